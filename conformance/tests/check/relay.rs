//! A server with one fault: ninefold's own, and a relay in front of it that does one thing wrong.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use ninefold::server::Server;
use ninefold::transport::{Address, Listener, Peer, Stream, memory};
use ninefold::tree::ramfs::RamFs;
use ninefold_proto::wire::{HEADER, split_frame};
use ninefold_proto::{Dialect, Fid, R, T, Tag};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// One way to break one rule.
#[derive(Debug)]
pub struct Fault {
    pub name: &'static str,
    pub dialect: &'static str,
    /// The case that must find it out.
    pub case: &'static str,
    /// `fail`, or `differs` where the rule leaves a choice.
    pub verdict: &'static str,
    /// Something is not answered, so that the suite must wait.
    pub silent: bool,
    /// Does it. `true` when the frame was dealt with; otherwise it passes.
    pub plant: fn(&mut Scene, &Pass<'_>) -> bool,
}

impl Fault {
    pub const fn new(
        name: &'static str,
        dialect: &'static str,
        case: &'static str,
        plant: fn(&mut Scene, &Pass<'_>) -> bool,
    ) -> Fault {
        Fault { name, dialect, case, verdict: "fail", silent: false, plant }
    }

    pub const fn silent(self) -> Fault {
        Fault { silent: true, ..self }
    }

    pub const fn differs(self) -> Fault {
        Fault { verdict: "differs", ..self }
    }
}

/// A frame that passes, decoded.
pub enum Pass<'f> {
    Request { tag: Tag, message: T<'f>, frame: &'f [u8] },
    Reply { tag: Tag, to: T<'f>, message: R<'f>, frame: &'f [u8] },
}

/// What the relay knows of a connection, and what it is about to send.
#[derive(Debug)]
pub struct Scene {
    pub dialect: Dialect,
    to_client: Vec<u8>,
    to_server: Vec<u8>,
    /// Requests that the server has not answered.
    outstanding: HashMap<Tag, Vec<u8>>,
    /// Fids that the fault knows of and the server does not.
    pub fids: HashSet<Fid>,
    /// A frame kept back.
    pub held: Option<Vec<u8>>,
    /// How often.
    pub count: u64,
    /// The connection ends.
    pub hang_up: bool,
    /// The server ends.
    pub die: bool,
}

impl Scene {
    /// Sends a reply to the client.
    pub fn say(&mut self, tag: Tag, reply: R<'_>) -> bool {
        reply.encode(tag, self.dialect, &mut self.to_client);
        true
    }

    pub fn say_raw(&mut self, bytes: &[u8]) -> bool {
        self.to_client.extend_from_slice(bytes);
        true
    }

    /// Sends an error to the client.
    pub fn refuse(&mut self, tag: Tag, errno: u32) -> bool {
        let reply = match self.dialect {
            Dialect::Linux => R::Lerror { ecode: errno, retry_ms: 0, text: b"" },
            _ => R::Error { ename: b"refused", errno },
        };
        self.say(tag, reply)
    }

    /// Sends a request to the server.
    pub fn ask(&mut self, tag: Tag, request: T<'_>) -> bool {
        let mut frame = Vec::new();
        request.encode(tag, self.dialect, &mut frame);
        self.forward(tag, &frame)
    }

    pub fn forward(&mut self, tag: Tag, frame: &[u8]) -> bool {
        self.outstanding.insert(tag, frame.to_vec());
        self.to_server.extend_from_slice(frame);
        true
    }

    pub fn is_outstanding(&self, tag: Tag) -> bool {
        self.outstanding.contains_key(&tag)
    }
}

/// A server that runs until it is dropped.
pub struct Relay {
    pub url: String,
    end: CancellationToken,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

impl Relay {
    pub async fn start(fault: Option<&'static Fault>) -> Relay {
        let anywhere: Address = "9p://127.0.0.1:0".parse().expect("an address");
        let listener = Listener::bind(&anywhere).await.expect("a port");
        let url = listener.local_address().expect("its address").to_string();
        let honest = Server::builder().export("", Arc::new(RamFs::new()), false).build();
        let end = CancellationToken::new();
        let stop = end.clone();
        tokio::spawn(async move {
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted.0,
                    () = stop.cancelled() => return,
                };
                let (near, far) = memory::pair(1 << 20);
                tokio::spawn(honest.serve(far, Peer::Memory));
                let stop = stop.clone();
                tokio::spawn(async move {
                    let died = stop.clone();
                    tokio::select! {
                        // The client closed, or the fault did.
                        _ = join(accepted, near, fault, &died) => {}
                        () = stop.cancelled() => {}
                    }
                });
            }
        });
        Relay { url, end }
    }
}

enum Came {
    Request(Vec<u8>),
    Reply(Vec<u8>),
    End,
}

async fn join(client: Stream, server: Stream, fault: Option<&Fault>, died: &CancellationToken) -> io::Result<()> {
    let (from_client, mut to_client) = tokio::io::split(client);
    let (from_server, mut to_server) = tokio::io::split(server);
    let (tell, mut told) = mpsc::channel(64);
    // Dropped, they end.
    let mut readers = tokio::task::JoinSet::new();
    readers.spawn(frames(from_client, tell.clone(), Came::Request));
    readers.spawn(frames(from_server, tell, Came::Reply));
    let mut scene = Scene {
        dialect: Dialect::Plan9,
        to_client: Vec::new(),
        to_server: Vec::new(),
        outstanding: HashMap::new(),
        fids: HashSet::new(),
        held: None,
        count: 0,
        hang_up: false,
        die: false,
    };
    while let Some(came) = told.recv().await {
        match came {
            Came::Request(frame) => request(&mut scene, &frame, fault),
            Came::Reply(frame) => reply(&mut scene, &frame, fault),
            Came::End => break,
        }
        let (client, server) = (std::mem::take(&mut scene.to_client), std::mem::take(&mut scene.to_server));
        to_server.write_all(&server).await?;
        to_client.write_all(&client).await?;
        to_client.flush().await?;
        if scene.die {
            died.cancel();
        }
        if scene.hang_up {
            break;
        }
    }
    Ok(())
}

fn request(scene: &mut Scene, frame: &[u8], fault: Option<&Fault>) {
    let Ok((header, body)) = split_frame(frame) else { return };
    if let Ok(message) = T::decode(header.kind, body, scene.dialect)
        && let Some(fault) = fault
        && (fault.plant)(scene, &Pass::Request { tag: header.tag, message, frame })
    {
        return;
    }
    scene.forward(header.tag, frame);
}

fn reply(scene: &mut Scene, frame: &[u8], fault: Option<&Fault>) {
    let (header, body) = split_frame(frame).expect("the honest server sends frames");
    let tag = header.tag;
    let asked = scene.outstanding.remove(&tag).unwrap_or_default();
    let decoded = split_frame(&asked).ok().and_then(|(asked, body)| T::decode(asked.kind, body, scene.dialect).ok());
    let message = R::decode(header.kind, body, scene.dialect).ok();
    if let Some(R::Version { version, .. }) = message {
        scene.dialect = Dialect::from_version(version).unwrap_or(scene.dialect);
    }
    if let (Some(to), Some(message), Some(fault)) = (decoded, message, fault)
        && (fault.plant)(scene, &Pass::Reply { tag, to, message, frame })
    {
        return;
    }
    scene.say_raw(frame);
}

async fn frames(mut from: impl AsyncRead + Unpin, tell: mpsc::Sender<Came>, kind: fn(Vec<u8>) -> Came) {
    loop {
        let mut size = [0; 4];
        if from.read_exact(&mut size).await.is_err() {
            break;
        }
        let length = u32::from_le_bytes(size) as usize;
        if !(HEADER..=16 << 20).contains(&length) {
            break;
        }
        let mut frame = vec![0; length];
        frame[..4].copy_from_slice(&size);
        if from.read_exact(&mut frame[4..]).await.is_err() || tell.send(kind(frame)).await.is_err() {
            return;
        }
    }
    // Nobody may be there any more to be told.
    let _ = tell.send(Came::End).await;
}
