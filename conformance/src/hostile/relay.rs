//! Between a client and the honest server: every frame goes through the misbehaviour's hook.
//!
//! Four loops in one task: a reader and a writer for each side, joined by short queues. A reader waits while the queues
//! that it fills are full; the writer to the client waits for the client alone, so a client that reads is never waited
//! for in a circle.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ninefold::transport::Stream;
use ninefold_proto::wire::{HEADER, split_frame};
use ninefold_proto::{R, T};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use super::listing;
use super::misbehaviour::Hook;
use super::scene::{Act, Reply, Request, Scene};
use super::{stream, tree};

/// Bytes; a client's frame over this is not read. The greatest msize that ninefold agrees to.
const FRAME_MAX: usize = 8 << 20;

/// Frames that wait for a side to take them.
const QUEUE: usize = 16;

/// How long a connection stays open that is not read from any more: longer than any client waits.
const DEAF: Duration = Duration::from_secs(3600);

/// Joins a client with the honest server until one of them closes or the hook hangs up.
pub(super) async fn join(client: Stream, server: Stream, hook: &'static Hook) -> io::Result<()> {
    let (from_client, to_client) = tokio::io::split(client);
    let (from_server, to_server) = tokio::io::split(server);
    let (say, said) = mpsc::channel(QUEUE);
    let (ask, asked) = mpsc::channel(QUEUE);
    let mut scene = Scene::new();
    if let Hook::Greeting(bytes) = hook {
        scene.say(*bytes);
    }
    let scene = Mutex::new(scene);
    let lines = Lines { say, ask };
    let ended = tokio::try_join!(
        requests(from_client, lines.clone(), &scene, hook),
        replies(from_server, lines, &scene, hook),
        tell_client(to_client, said),
        tell_server(to_server, asked),
    );
    match ended {
        Err(End::HungUp) | Ok(_) => Ok(()),
        Err(End::Failed(e)) => Err(e),
    }
}

/// Why the loops ended before the streams did.
enum End {
    HungUp,
    Failed(io::Error),
}

impl From<io::Error> for End {
    fn from(e: io::Error) -> End {
        End::Failed(e)
    }
}

/// The queues to both sides.
#[derive(Clone)]
struct Lines {
    say: mpsc::Sender<Act>,
    ask: mpsc::Sender<Vec<u8>>,
}

impl Lines {
    /// Hands over what the hook wants done. A side that is gone takes nothing more; its reader sees the end too.
    async fn carry_out(&self, scene: &Mutex<Scene>) {
        let (to_client, to_server) = {
            let mut scene = lock(scene);
            (std::mem::take(&mut scene.to_client), std::mem::take(&mut scene.to_server))
        };
        for frame in to_server {
            let _ = self.ask.send(frame).await;
        }
        for act in to_client {
            let _ = self.say.send(act).await;
        }
    }
}

fn lock(scene: &Mutex<Scene>) -> std::sync::MutexGuard<'_, Scene> {
    scene.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn requests(
    mut from: impl AsyncRead + Unpin,
    lines: Lines,
    scene: &Mutex<Scene>,
    hook: &'static Hook,
) -> Result<(), End> {
    lines.carry_out(scene).await; // the greeting
    while let Some(frame) = read_frame(&mut from).await? {
        take_request(&mut lock(scene), &frame, hook);
        lines.carry_out(scene).await;
        if lock(scene).deaf {
            tokio::time::sleep(DEAF).await;
            return Err(End::HungUp);
        }
    }
    Ok(())
}

fn take_request(scene: &mut Scene, frame: &[u8], hook: &Hook) {
    let decoded =
        split_frame(frame).and_then(|(header, body)| Ok((header.tag, T::decode(header.kind, body, scene.version)?)));
    // What is no message here is the honest server's to refuse.
    let Ok((tag, message)) = decoded else { return scene.to_server.push(frame.to_vec()) };
    let aname = tree::name_for(scene.dialect).as_bytes();
    let attach = match message {
        T::Attach { fid, afid, uname, n_uname, .. } => Some(T::Attach { fid, afid, uname, aname, n_uname }),
        T::Session { flags, session, caps, fid, uname, n_uname, .. } => {
            Some(T::Session { flags, session, caps, fid, uname, aname, n_uname })
        }
        _ => None,
    };
    if let Some(attach) = attach {
        let mut frame = Vec::new();
        attach.encode(tag, scene.version, &mut frame);
        return hooked_request(scene, &Request { tag, message, frame: &frame }, hook);
    }
    hooked_request(scene, &Request { tag, message, frame }, hook);
}

fn hooked_request(scene: &mut Scene, request: &Request<'_>, hook: &Hook) {
    match hook {
        Hook::Request(hook) | Hook::Both(hook, _) => hook(scene, request),
        Hook::Listed(_) => listing::after_the_end(scene, request),
        Hook::Reply(_) | Hook::Greeting(_) | Hook::Stream(_) | Hook::Names(_) | Hook::Tree => {
            scene.forward(request.tag, request.frame);
        }
    }
}

async fn replies(
    mut from: impl AsyncRead + Unpin,
    lines: Lines,
    scene: &Mutex<Scene>,
    hook: &'static Hook,
) -> Result<(), End> {
    while let Some(frame) = read_frame(&mut from).await? {
        take_reply(&mut lock(scene), &frame, hook)?;
        lines.carry_out(scene).await;
    }
    Ok(())
}

/// The honest server makes no mistakes: a reply that cannot be understood is a fault of this relay.
fn take_reply(scene: &mut Scene, frame: &[u8], hook: &'static Hook) -> io::Result<()> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("the honest server: {what}"));
    let (header, body) = split_frame(frame).map_err(|e| wrong(&e.to_string()))?;
    let tag = header.tag;
    let request = scene.take_outstanding(tag).ok_or_else(|| wrong("a reply to nothing"))?;
    let (asked, asked_body) = split_frame(&request).map_err(|e| wrong(&e.to_string()))?;
    // Of the dialect in which it was asked: an Rversion may change it.
    let version = scene.version;
    let to = T::decode(asked.kind, asked_body, version).map_err(|e| wrong(&e.to_string()))?;
    let message = R::decode(header.kind, body, version).map_err(|e| wrong(&e.to_string()))?;
    scene.learn(&to, &message);
    let reply = Reply { tag, message, frame, to };
    match hook {
        Hook::Reply(hook) | Hook::Both(_, hook) => hook(scene, &reply),
        Hook::Listed(entries) => listing::at_the_end(scene, &reply, *entries),
        Hook::Stream(trick) => stream::say(scene, &reply, trick),
        Hook::Request(_) | Hook::Greeting(_) | Hook::Names(_) | Hook::Tree => scene.say(frame),
    }
    Ok(())
}

async fn tell_client(mut to: impl AsyncWrite + Unpin, mut acts: mpsc::Receiver<Act>) -> Result<(), End> {
    while let Some(act) = acts.recv().await {
        match act {
            Act::Say(bytes) => {
                to.write_all(&bytes).await?;
                to.flush().await?;
            }
            Act::Pause(pause) => tokio::time::sleep(pause).await,
            Act::HangUp => {
                to.shutdown().await?;
                return Err(End::HungUp);
            }
        }
    }
    Ok(to.shutdown().await?)
}

async fn tell_server(mut to: impl AsyncWrite + Unpin, mut frames: mpsc::Receiver<Vec<u8>>) -> Result<(), End> {
    while let Some(frame) = frames.recv().await {
        to.write_all(&frame).await?;
        to.flush().await?;
    }
    Ok(to.shutdown().await?)
}

/// One frame, or `None` at the end of the stream.
async fn read_frame(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let mut size = [0; 4];
    match from.read_exact(&mut size).await {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    };
    let length = u32::from_le_bytes(size) as usize;
    if !(HEADER..=FRAME_MAX).contains(&length) {
        let why = format!("a frame of {length} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut frame = vec![0; length];
    frame[..4].copy_from_slice(&size);
    from.read_exact(&mut frame[4..]).await?;
    Ok(Some(frame))
}
