//! `ninefold serve`: exports trees until it is told to end.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use ninefold::ns::NsFs;
use ninefold::server::{Limits, Policy, Server, ServerBuilder, StreamLimits, User};
use ninefold::transport::{Address, Identity, Listener, PORT, Place, stdio};
use ninefold::tree::hostfs::HostFs;
use ninefold::tree::ramfs::RamFs;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::args::Serve;
use crate::failure::Usage;
use crate::ns;
use crate::signals::Signals;

/// Connections at a time; over it, accepting waits. Each costs a descriptor beside those of its open files.
const CONNECTIONS: usize = 16_384;

/// From the first signal until what is left is broken off. Service managers kill after 90 s (systemd) or 10 s (docker stop).
const DRAIN: Duration = Duration::from_secs(9);

/// What is broken off then has so long to go.
const PARTING: Duration = Duration::from_millis(500);

pub async fn run(args: Serve, timeout: Option<Duration>) -> anyhow::Result<ExitCode> {
    // From here on a signal drains; one that comes before anything is served ends just as well.
    let mut signals = Signals::catch().context("cannot catch signals")?;
    raise_descriptor_limit();
    let Exports { mut builder, directories, mut words } = exports(&args)?;
    if let Some(file) = &args.ns {
        let composed = tokio::select! {
            composed = ns::composed(Some(file), timeout) => composed?,
            () = signals.next() => return Ok(ExitCode::SUCCESS),
        };
        builder = builder.export("", Arc::new(NsFs::new(composed)), args.read_only);
        words.push(file.display().to_string());
    }
    let limits = Limits { msize: args.msize, ..Limits::default() };
    // No thread of the runtime opens what is exported so that it would have to wait.
    let streams = StreamLimits { kernel_leases: true, ..StreamLimits::default() };
    let server = builder.identity(identity(&args)?).limits(limits).streams(streams).build();
    let mut work = JoinSet::new();
    if args.stdio {
        let (stream, peer) = stdio::take().context("standard input and output")?;
        work.spawn(server.serve(stream, peer));
    } else {
        let listeners = listen(&args).await?;
        let addresses = listeners.iter().map(|l| l.local_address().map(|a| a.to_string()));
        let addresses: Vec<String> = addresses.collect::<Result<_, _>>()?;
        // A mount of this server inside what it exports would have it wait for itself.
        directories.iter().for_each(|directory| directory.set_own_addresses(addresses.clone()));
        announce(&words.join(", "), &addresses)?;
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        for listener in listeners {
            work.spawn(server.serve_all(listener, slots.clone()));
        }
    }
    tokio::select! {
        // Only the one connection of --stdio ends by itself.
        ended = work.join_next() => {
            part(work).await;
            ended.transpose().context("what served has failed")?;
            return Ok(ExitCode::SUCCESS);
        }
        () = signals.next() => {}
    }
    info!("draining: {} connections", server.connections());
    let ended = tokio::select! {
        biased;
        () = server.drain() => ExitCode::SUCCESS,
        () = signals.next() => ExitCode::FAILURE,
        () = tokio::time::sleep(DRAIN) => {
            warn!("{} connections were not finished within {} s", server.connections(), DRAIN.as_secs());
            ExitCode::FAILURE
        }
    };
    part(work).await;
    Ok(ended)
}

/// Breaks off what is left. The files of Unix sockets are removed then.
async fn part(mut work: JoinSet<()>) {
    let _ = tokio::time::timeout(PARTING, work.shutdown()).await;
}

/// Everything that is exported.
struct Exports {
    builder: ServerBuilder,
    directories: Vec<Arc<HostFs>>,
    /// For a person to read.
    words: Vec<String>,
}

fn exports(args: &Serve) -> anyhow::Result<Exports> {
    let (mut builder, mut directories, mut words) = (Server::builder(), Vec::new(), Vec::new());
    let mut names = BTreeSet::new();
    let mut claim = |name: &str| {
        let free = names.insert(name.to_owned());
        let twice = || Usage::error(format!("two exports have the attach name '{name}': give each its own"));
        free.then_some(()).ok_or_else(twice)
    };
    let default = args.dir.iter().map(|dir| ("", dir));
    for (name, dir) in default.chain(args.exports.iter().map(|export| (export.name.as_str(), &export.dir))) {
        claim(name)?;
        let path = directory(dir)?;
        let tree = Arc::new(HostFs::open(&path)?);
        directories.push(tree.clone());
        builder = builder.export(name, tree, args.read_only);
        builder = alias(builder, name, &path);
        words.push(if name.is_empty() { path.display().to_string() } else { format!("{name}={}", path.display()) });
    }
    if args.ns.is_some() {
        claim("")?;
    }
    if let Some(name) = &args.ram {
        claim(name)?;
        builder = builder.export(name, Arc::new(RamFs::new()), args.read_only);
        words.push(if name.is_empty() { "memory".to_owned() } else { format!("{name}=memory") });
    }
    Ok(Exports { builder, directories, words })
}

/// The full path of a directory that can be exported.
fn directory(dir: &Path) -> anyhow::Result<PathBuf> {
    let look = || {
        let path = dir.canonicalize()?;
        if !path.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        accessat(CWD, &path, Access::READ_OK | Access::EXEC_OK, AtFlags::EACCESS)?;
        Ok(path)
    };
    look().map_err(|e: io::Error| {
        let why = match e.kind() {
            io::ErrorKind::NotFound => "there is no such directory: make it, or name another".to_owned(),
            io::ErrorKind::NotADirectory => "it is no directory: name the one that it is in".to_owned(),
            io::ErrorKind::PermissionDenied => {
                let user = User::of_process().name;
                format!("{user} may not read it: run as somebody who may, or change its mode")
            }
            _ => e.to_string(),
        };
        anyhow!("cannot export {}: {why}", dir.display())
    })
}

/// diod's clients say the directory's path on the server. `/` would swallow every other path.
fn alias(builder: ServerBuilder, name: &str, path: &Path) -> ServerBuilder {
    match path.to_str() {
        Some(path) if path != "/" => builder.alias(path, name),
        _ => builder,
    }
}

fn identity(args: &Serve) -> anyhow::Result<Policy> {
    let me = User::of_process();
    let squash = match &args.squash {
        Some(name) => {
            let user = User::from_name(name).or_else(|| name.parse().ok().map(User::from_uid));
            Some(user.ok_or_else(|| Usage::error(format!("--squash {name}: this machine has no such user")))?)
        }
        None => None,
    };
    let needs_root = |flag: &str| {
        Usage::error(format!("{flag} needs root: run by {}, this server can only act as {}", me.name, me.name))
    };
    match squash {
        Some(user) if me.uid == 0 => Ok(Policy::Squash(user)),
        Some(user) if user.uid == me.uid => Ok(Policy::AsProcess),
        Some(user) => Err(needs_root(&format!("--squash {}", user.name))),
        None if args.trust_uids && me.uid != 0 => Err(needs_root("--trust-uids")),
        None if args.trust_uids => Ok(Policy::TrustUids),
        None => Ok(Policy::of_process()),
    }
}

async fn listen(args: &Serve) -> anyhow::Result<Vec<Listener>> {
    let default = Address::new(Place::Tcp { host: "127.0.0.1".to_owned(), port: PORT });
    let addresses = if args.listen.is_empty() { vec![default] } else { args.listen.clone() };
    let files = args.cert.as_deref().map(|cert| (cert, args.key.as_deref().unwrap_or(cert)));
    if files.is_some() && !addresses.iter().any(|address| matches!(address.place, Place::Tls { .. })) {
        return Err(Usage::error("--cert is shown to nobody: add --listen 9ps://HOST:PORT".to_owned()));
    }
    let mut listeners = Vec::new();
    for address in &addresses {
        listeners.push(bind(address, args.insecure, files).await?);
    }
    Ok(listeners)
}

/// Listens at `address`, beyond loopback only when that is allowed; with TLS as the one whose certificate and key `files` are, or
/// as the one that is kept for this user.
pub async fn bind(address: &Address, insecure: bool, files: Option<(&Path, &Path)>) -> anyhow::Result<Listener> {
    if matches!(address.place, Place::Ssh { .. }) {
        return Err(Usage::error(format!(
            "{address}: ssh starts the server at the other end: listen at 9p://HOST:PORT or 9p+unix:/SOCKET"
        )));
    }
    let pinned = matches!(address.place, Place::Tls { pin: Some(_), .. });
    if !matches!(&address.path[..], b"" | b"/") || address.aname.is_some() || address.dialect.is_some() || pinned {
        return Err(Usage::error(format!(
            "{address}: the path, attach name, dialect and pin are for the client to say: listen at {}",
            address.place
        )));
    }
    if let (Place::Tcp { host, port } | Place::Tls { host, port, .. }, false) = (&address.place, insecure) {
        let found = tokio::net::lookup_host((host.as_str(), *port)).await;
        let found: Vec<SocketAddr> =
            found.with_context(|| format!("{address}: no such host: check the name, or say a number"))?.collect();
        if !found.iter().all(is_loopback) {
            return Err(beyond(address));
        }
    }
    let listener = match &address.place {
        Place::Tls { .. } => Listener::bind_tls(address, identity_of(files)?).await?,
        _ => Listener::bind(address).await?,
    };
    // The name may have been looked up to something else this time.
    if !insecure && !listener.socket_address().as_ref().is_none_or(is_loopback) {
        return Err(beyond(address));
    }
    Ok(listener)
}

fn identity_of(files: Option<(&Path, &Path)>) -> anyhow::Result<Identity> {
    if let Some((cert, key)) = files {
        return Identity::from_files(cert, key).context("--cert and --key");
    }
    let dir = Identity::dir().ok_or_else(|| {
        Usage::error("there is nowhere to keep a certificate: set XDG_STATE_HOME or HOME, or say --cert".to_owned())
    })?;
    Identity::kept(&dir).with_context(|| format!("cannot keep a certificate in {}", dir.display()))
}

fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn beyond(address: &Address) -> anyhow::Error {
    let why = match address.place {
        Place::Tls { .. } => {
            "whoever can connect is served: TLS tells the client who the server is, and not the server who comes"
        }
        _ => "9P over TCP is neither encrypted nor authenticated",
    };
    Usage::error(format!(
        "{address} reaches beyond this machine, where {why}: listen at 127.0.0.1 or 9p+unix:/SOCKET and come \
         through ssh, or add --insecure"
    ))
}

/// One line for each address, for a person to paste and a script to read.
fn announce(what: &str, addresses: &[String]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let mut say = || {
        addresses.iter().try_for_each(|address| writeln!(out, "ninefold: serving {what} at {address}"))?;
        out.flush()
    };
    say().context("cannot say on standard output where to connect: keep it open, or redirect it to /dev/null")
}

/// Every connection, open file and end of a pipe is a descriptor; the soft limit is only for programs that use select(2).
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(e) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        warn!("cannot raise the limit of open files: {e}");
    }
}
