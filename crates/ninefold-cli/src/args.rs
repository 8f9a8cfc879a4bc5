//! The command line: the one definition from which parser, help, completions and manual are made.

mod apart;
mod files;
mod more;
mod words;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use ninefold::proto::Dialect;
use ninefold::transport::Address;

pub use files::*;
pub use words::with_two_dashes;

/// Use the files of any 9P server as if they were here, serve file trees, and watch 9P at work.
#[derive(Debug, Parser)]
#[command(name = "ninefold", version, max_term_width = 100, arg_required_else_help = true, after_long_help = more::help())]
pub struct Args {
    /// Log more on standard error: who connects; twice for who is taken for whom.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// The longest silence of a server that owes a reply, and the longest wait for a connection; 0 waits for ever. If it is not
    /// given: 60, but 120 for a login over ssh, and 5 for check.
    #[arg(long, global = true, value_name = "SECS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Write what passed between us and the servers to FILE, as JSON; - is standard error.
    #[arg(long, global = true, value_name = "FILE")]
    pub stats: Option<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

/// Seconds, fractions allowed; no more than a month, so that sums with it stay far from any overflow.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    let most = 31.0 * 24.0 * 3600.0;
    if !(0.0..=most).contains(&seconds) {
        return Err(format!("expected 0 to {most} seconds"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Serve(Serve),
    Ls(Ls),
    Cat(Cat),
    Stat(Stat),
    Du(Du),
    Find(Find),
    Write(Write),
    Rm(Rm),
    Mv(Mv),
    Mkdir(Mkdir),
    Ln(Ln),
    Chmod(Chmod),
    Chown(Chown),
    Truncate(Truncate),
    Cp(Cp),
    Trace(Trace),
    Iostat(Iostat),
    Check(Check),
    Ns(Ns),
    Doctor(Doctor),
    /// Measure ninefold beside its peers: runs ninefold-bench, which is built apart. `ninefold bench --help` lists what there is
    #[command(disable_help_flag = true)]
    Bench {
        #[arg(value_name = "NAME AND OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<std::ffi::OsString>,
    },
    /// Try things over a network that is slow, narrow or broken: two networks of this machine and a link between them
    ///
    /// `lab up` makes a client's and a server's network, 10.9.0.1 and 10.9.0.2, joined by a link of a given delay, rate, queue,
    /// jitter, loss and order, each direction on its own. `lab server COMMAND…` and `lab client COMMAND…` run a command in
    /// either; `lab set` changes the link, `lab cut`, `heal`, `reset`, `freeze` and `thaw` break it and mend it, `lab stats` tells
    /// what passed, and `lab down` ends all. No root is needed where user namespaces are allowed. Runs ninefold-bench, which
    /// is built apart; `ninefold lab up --help` lists the options.
    #[command(disable_help_flag = true)]
    Lab {
        #[arg(value_name = "COMMAND AND OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<std::ffi::OsString>,
    },
    /// Show that it works on this machine: serve a private directory and use it in every dialect, over every transport.
    Demo,
    /// Print the completions of a shell: ninefold completions bash > /etc/bash_completion.d/ninefold
    Completions {
        shell: clap_complete::Shell,
    },
    /// Print the manual page: ninefold man | man -l -
    Man,
}

impl Command {
    /// Whether data are to go in messages alone.
    pub fn has_no_streams(&self) -> bool {
        match self {
            Command::Cat(Cat { no_stream, .. })
            | Command::Write(Write { no_stream, .. })
            | Command::Cp(Cp { no_stream, .. }) => *no_stream,
            _ => false,
        }
    }
}

/// Export directories to 9P clients.
///
/// Prints a line with the address to connect to. SIGTERM and SIGINT end it: requests under way are finished, and the
/// exit status is 0.
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// The directory to export.
    #[arg(required_unless_present_any = ["exports", "ram", "ns"])]
    pub dir: Option<PathBuf>,
    /// Where to listen: 9p://HOST[:PORT], 9ps://HOST[:PORT] or 9p+unix:/SOCKET; may be repeated [default: 9p://127.0.0.1:5640].
    #[arg(long, value_name = "URL")]
    pub listen: Vec<Address>,
    /// The certificate to show at 9ps:// addresses, with those that lead to its authority behind it, in PEM [default: one of the
    /// server's own, kept in $XDG_STATE_HOME/ninefold].
    #[arg(long, value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// Its private key, in PEM [default: in the certificate's file].
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Serve one client, on standard input and output.
    #[arg(long, conflicts_with = "listen")]
    pub stdio: bool,
    /// Export DIR under the attach name NAME; may be repeated.
    #[arg(long = "export", value_name = "NAME=DIR", value_parser = export)]
    pub exports: Vec<Export>,
    /// Export a tree in memory, empty at first and gone at the end, under the attach name NAME; for trying things out.
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub ram: Option<String>,
    /// Export the tree that FILE composes of other servers; see docs/namespace.md. They see the user of this process.
    #[arg(long, value_name = "FILE", conflicts_with = "dir")]
    pub ns: Option<PathBuf>,
    /// Refuse every change.
    #[arg(long)]
    pub read_only: bool,
    /// Do everything as USER, whoever the client says it is; needs root.
    #[arg(long, value_name = "USER")]
    pub squash: Option<String>,
    /// Believe the user numbers that clients on TCP send; needs root.
    #[arg(long, conflicts_with = "squash")]
    pub trust_uids: bool,
    /// Allow an address beyond loopback, although whoever can connect is served, and 9p:// is not encrypted.
    #[arg(long)]
    pub insecure: bool,
    /// The largest message to agree to, 4096 to 8388608.
    #[arg(long, value_name = "BYTES", default_value_t = MSIZE_MAX, value_parser = clap::value_parser!(u32).range(4096..=MSIZE_MAX as i64))]
    pub msize: u32,
}

/// The greatest msize that is worth its memory: 8 MiB.
const MSIZE_MAX: u32 = 8 << 20;

/// A named export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    pub name: String,
    pub dir: PathBuf,
}

fn export(text: &str) -> Result<Export, String> {
    let (name, dir) = text.split_once('=').ok_or("expected NAME=DIR")?;
    if name.contains('/') || matches!(name, "." | "..") {
        return Err(format!("'{name}' is no attach name: it must not hold a '/' nor be '.' or '..'"));
    }
    if dir.is_empty() {
        return Err("the directory is missing: expected NAME=DIR".to_owned());
    }
    Ok(Export { name: name.to_owned(), dir: dir.into() })
}

/// Compose a tree of several servers, as a file of mount, bind and unmount lines describes it.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Ns {
    #[command(subcommand)]
    pub command: NsCommand,
}

#[derive(Debug, Subcommand)]
pub enum NsCommand {
    Show(NsShow),
}

/// Print what is mounted where, as a file that makes it.
///
/// The servers that FILE names are connected to, and so is told what cannot be reached.
#[derive(Debug, clap::Args)]
pub struct NsShow {
    /// The file; lib/namespace in the home directory when none is given.
    #[arg(long, value_name = "FILE")]
    pub ns: Option<PathBuf>,
    /// One object a line for each mounted file.
    #[arg(long)]
    pub json: bool,
}

/// Print every message between clients and a server.
///
/// Listens for clients, connects each to the server at URL, and passes everything on unchanged. Lines are in the form
/// that transcripts are written in.
#[derive(Debug, clap::Args)]
pub struct Trace {
    /// The server.
    pub url: Address,
    /// Where clients connect.
    #[arg(long, value_name = "URL", default_value = "9p://127.0.0.1:0")]
    pub listen: Address,
    /// Print file data too.
    #[arg(long)]
    pub data: bool,
    /// Append the messages to FILE and not to standard output.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    /// Listen beyond loopback.
    #[arg(long)]
    pub insecure: bool,
}

/// Count the messages between clients and a server, and how long they take.
///
/// Listens for clients, connects each to the server at URL, and passes everything on unchanged. Prints a table at the
/// end: Ctrl-C.
#[derive(Debug, clap::Args)]
pub struct Iostat {
    /// The server.
    pub url: Address,
    /// Where clients connect.
    #[arg(long, value_name = "URL", default_value = "9p://127.0.0.1:0")]
    pub listen: Address,
    /// Print what was counted in each interval too.
    #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u64).range(1..))]
    pub interval: Option<u64>,
    /// One JSON object for each table.
    #[arg(long)]
    pub json: bool,
    /// Listen beyond loopback.
    #[arg(long)]
    pub insecure: bool,
}

/// Check a 9P server against the protocol.
///
/// Runs the conformance suite against any server, in each dialect that it grants, and tells what it does otherwise than the
/// manual says. It works in a directory of its own, ninefold-check-RANDOM, which it makes under the URL's path and removes;
/// in a tree that cannot be written the cases that need one are skipped. Exit status 1 when a case failed; a difference
/// that the manual allows, or that is known to be harmless, is told and is no failure.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// The directory to work in.
    #[arg(required_unless_present = "list")]
    pub url: Option<Address>,
    /// The dialects to check, separated by commas [default: each that the server grants].
    #[arg(long = "dialect", value_name = "DIALECT", value_delimiter = ',', value_parser = dialect)]
    pub dialects: Vec<Dialect>,
    /// Only cases whose name matches: --only 'walk/*'; may be repeated.
    #[arg(long, value_name = "GLOB")]
    pub only: Vec<String>,
    /// List the cases, with rule and source, and do nothing else.
    #[arg(long)]
    pub list: bool,
    /// One JSON document; with --list one object a case.
    #[arg(long)]
    pub json: bool,
}

/// Look for what stands in the way on this machine, and tell how to mend it.
///
/// FUSE, limits, socket buffers, congestion control, user namespaces. Nothing is changed. Exit status 1 when something lacks, so
/// that a part of ninefold does not work; what only makes it slow is told.
#[derive(Debug, clap::Args)]
pub struct Doctor {
    /// The delay to the servers and back that buffers are judged for, in milliseconds.
    #[arg(long, value_name = "MS", default_value = "50", value_parser = milliseconds)]
    pub rtt: Duration,
    /// The rate that is wanted of one connection, in Gbit/s.
    #[arg(long, value_name = "GBIT", default_value = "1", value_parser = gigabits)]
    pub rate: f64,
    /// One JSON object for each thing that was looked at.
    #[arg(long)]
    pub json: bool,
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    let ms = text.parse().ok().filter(|ms: &f64| (0.001..=100_000.0).contains(ms));
    ms.map(|ms| Duration::from_secs_f64(ms / 1e3)).ok_or_else(|| "expected a number of milliseconds".to_owned())
}

/// In bits a second.
fn gigabits(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| (0.000_001..=1000.0).contains(rate));
    rate.map(|rate| rate * 1e9).ok_or_else(|| "expected a number of Gbit/s".to_owned())
}

fn dialect(text: &str) -> Result<Dialect, String> {
    Dialect::from_version(text.as_bytes()).ok_or_else(|| "expected 9P2000, 9P2000.u or 9P2000.L".to_owned())
}

/// The whole definition, for completions and manual: with the commands of the program that `bench` and `lab` become, where it tells
/// them.
pub fn whole(described: Option<&serde_json::Value>) -> clap::Command {
    match described {
        Some(described) => apart::with(Args::command(), described),
        None => Args::command(),
    }
}

/// Writes the manual of the [whole]: the page of the command, then one of each subcommand.
pub fn manual(whole: clap::Command, out: &mut dyn io::Write) -> io::Result<()> {
    let mut command = whole.disable_help_subcommand(true);
    command.build();
    let man = clap_mangen::Man::new(command.clone());
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    man.render_subcommands_section(out)?;
    more::manual(out)?;
    man.render_version_section(out)?;
    pages(&command, "ninefold", out)
}

/// A page of each subcommand of `command`, and of theirs.
fn pages(command: &clap::Command, name: &str, out: &mut dyn io::Write) -> io::Result<()> {
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        let name = format!("{name}-{}", sub.get_name());
        let man = clap_mangen::Man::new(sub.clone().display_name(&name)).title(name.clone());
        man.render(out)?;
        pages(sub, &name, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(words: &[&str]) -> Result<Serve, clap::error::ErrorKind> {
        let words = ["ninefold", "serve"].iter().chain(words);
        match Args::try_parse_from(words).map_err(|e| e.kind())?.command {
            Command::Serve(serve) => Ok(serve),
            _ => unreachable!("parsed as another command"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_directory_is_needed_unless_something_else_is_exported() {
        use clap::error::ErrorKind::MissingRequiredArgument;
        assert_eq!(serve(&[]).unwrap_err(), MissingRequiredArgument);
        assert_eq!(serve(&["--read-only"]).unwrap_err(), MissingRequiredArgument);
        assert!(serve(&["--ram"]).is_ok());
        assert!(serve(&["--export", "a=/b"]).is_ok());
        assert_eq!(serve(&["/d"]).unwrap().dir, Some("/d".into()));
    }

    #[test]
    fn the_name_of_the_tree_in_memory_does_not_swallow_the_directory() {
        let args = serve(&["--ram", "/d"]).unwrap();
        assert_eq!((args.ram.as_deref(), args.dir), (Some(""), Some("/d".into())));
        assert_eq!(serve(&["--ram=scratch"]).unwrap().ram.as_deref(), Some("scratch"));
    }

    #[test]
    fn an_export_is_a_name_and_a_directory() {
        assert_eq!(export("a=/b=c"), Ok(Export { name: "a".into(), dir: "/b=c".into() }));
        for bad in ["a", "a=", "a/b=/c", "..=/c"] {
            assert!(export(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_msize_lies_between_4096_bytes_and_8_mib() {
        assert_eq!(serve(&["/d"]).unwrap().msize, 8 << 20);
        assert_eq!(serve(&["/d", "--msize", "4096"]).unwrap().msize, 4096);
        for bad in ["4095", "8388609", "x"] {
            assert!(serve(&["/d", "--msize", bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn flags_that_contradict_each_other_are_refused() {
        assert!(serve(&["/d", "--stdio", "--listen", "9p://localhost"]).is_err());
        assert!(serve(&["/d", "--squash", "x", "--trust-uids"]).is_err());
        assert!(serve(&["/d", "--listen", "ftp://localhost"]).is_err());
    }

    #[test]
    fn the_manual_has_every_subcommand() {
        let mut page = Vec::new();
        manual(whole(None), &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        for name in ["serve", "trace", "iostat", "check", "demo", "completions", "man"] {
            assert!(page.contains(&format!(".TH ninefold-{name} ")), "{name}");
        }
    }
}
