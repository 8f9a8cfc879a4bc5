//! What is known of a stream's end, and how it is asked for.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ninefold_proto::message::Octal;
use ninefold_proto::{Errno, R, T};

use crate::client::connection::{Reply, Waiting};
use crate::client::error::{Error, Fault};
use crate::client::file::File;
use crate::client::node::unexpected;
use crate::client::nudge::nudging;
use crate::client::owned_stream::OwnedStream;

/// What is known of the end.
#[derive(Debug)]
pub(super) enum End {
    /// `.s`: nobody will say.
    Unsaid,
    /// `.n1`: it was not asked for yet; dropped, the stream is given up.
    Unasked { stream: OwnedStream, modrev: u64 },
    /// `.n1`: its connection tells, behind the last byte; dropped, the stream is given up.
    Comes { stream: OwnedStream, modrev: u64 },
    /// `.n1`: the stream's number, the file's at its beginning, and the question about its end, unless that was refused before.
    Asked {
        id: u32,
        modrev: u64,
        waiting: Option<Waiting>,
        /// Its connection may tell it, and a server that told it may have forgotten it since.
        comes: bool,
    },
    /// `.n1`: the server does not know it any more, which its connection may still tell.
    Forgotten { modrev: u64 },
    /// The answer.
    Said { modrev: u64, answer: Result<(u64, u64), Error> },
}

impl End {
    /// The file's number when the stream began; 0: the server cannot tell.
    pub fn modrev(&self) -> u64 {
        match self {
            End::Unsaid => 0,
            End::Unasked { modrev, .. }
            | End::Comes { modrev, .. }
            | End::Asked { modrev, .. }
            | End::Forgotten { modrev }
            | End::Said { modrev, .. } => *modrev,
        }
    }

    /// Waits for a word of the server that it failed; for ever if there is none.
    pub async fn failed(&mut self) -> Error {
        poll_fn(|cx| {
            if let End::Asked { waiting: Some(waiting), modrev, comes, .. } = self
                && let Poll::Ready(reply) = Future::poll(Pin::new(waiting), cx)
            {
                let (modrev, comes) = (*modrev, *comes);
                match said(reply) {
                    Err(Error::Refused(e)) if comes && e.errno == Errno::EBADF => *self = End::Forgotten { modrev },
                    // It takes no more questions that wait: it is asked when the end is there.
                    Err(Error::Refused(e)) if is_full(e.errno) => self.ask_later(),
                    answer => *self = End::Said { modrev, answer },
                }
            }
            match self {
                End::Said { answer: Err(e), .. } => Poll::Ready(e.clone()),
                _ => Poll::Pending,
            }
        })
        .await
    }

    fn ask_later(&mut self) {
        if let End::Asked { waiting, .. } = self {
            *waiting = None;
        }
    }

    /// What the server says to the end, within `patience`, where what it waits for ought to take no more than `rest`.
    pub async fn answer(&mut self, file: &File, rest: Duration, patience: Duration) -> Result<(u64, u64), Error> {
        let answered = async {
            loop {
                let (id, modrev, comes) = match self {
                    End::Unsaid | End::Unasked { .. } | End::Comes { .. } => return Err(unexpected()),
                    End::Said { answer, .. } => return answer.clone(),
                    // Its connection did not tell it either.
                    End::Forgotten { .. } => {
                        return Err(Fault::Cut(Arc::new(io::ErrorKind::UnexpectedEof.into())).into());
                    }
                    End::Asked { id, modrev, waiting, comes } => {
                        let answer = match waiting {
                            Some(waiting) => said(waiting.await),
                            None => said(file.client.call(T::Streamend { id: *id, flags: Octal(0) }).await),
                        };
                        match answer {
                            Err(Error::Refused(e)) if *comes && e.errno == Errno::EBADF => {
                                *self = End::Forgotten { modrev: *modrev };
                                continue;
                            }
                            Err(Error::Refused(e)) if waiting.is_some() && is_full(e.errno) => (*id, *modrev, *comes),
                            answer => {
                                *self = End::Said { modrev: *modrev, answer };
                                continue;
                            }
                        }
                    }
                };
                *self = End::Asked { id, modrev, waiting: None, comes };
            }
        };
        match tokio::time::timeout(patience, nudging(&file.client, rest, answered)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::TimedOut(patience)),
        }
    }
}

/// Whether a server refuses what waits, because too much does.
fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::EAGAIN | Errno::ETRYLATER)
}

fn said(reply: Result<Reply, Error>) -> Result<(u64, u64), Error> {
    match reply?.message()? {
        R::Streamend { count, modrev } => Ok((count, modrev)),
        _ => Err(unexpected()),
    }
}
