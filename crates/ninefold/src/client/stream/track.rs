//! A data connection that streams have one after another: who has come to its end hands it to the next, whose token was sent while
//! the one before was still on its way. So a connection that has found its rate brings one part of a file behind the other, without a
//! pause.
//!
//! Locks: `line` alone, while a few bytes are given to the socket; who asks whether it is broken does not wait for it. In whatever order replies bring the tokens, turns come in the order in which
//! they were sent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ninefold_proto::n1::stream;
use ninefold_proto::types::StreamToken;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Mutex, oneshot};

use super::gathered::Gathered;
use crate::transport::Stream as Socket;

/// The longest wait for room for a token: the server takes it when it has come to it, and until then the kernel does.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

type Reading = Gathered<ReadHalf<Socket>>;

/// See the [module](self).
#[derive(Debug)]
pub(in crate::client) struct Track {
    line: Mutex<Line>,
    /// One of its streams left before its end: no other one gets its turn.
    is_left: AtomicBool,
}

#[derive(Debug)]
struct Line {
    write: WriteHalf<Socket>,
    /// Where the last of its streams will leave it. `None` where somebody could not get in line, and while somebody is about to.
    end: Option<oneshot::Receiver<Reading>>,
}

/// A stream's place on a track.
#[derive(Debug)]
pub(super) struct Turn {
    pub track: Arc<Track>,
    reading: Option<Reading>,
    /// Its turn has not come.
    before: Option<oneshot::Receiver<Reading>>,
    next: Option<oneshot::Sender<Reading>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.next.is_some() {
            self.track.is_left.store(true, Ordering::Relaxed);
        }
    }
}

impl Track {
    /// Of a connection whose first stream has it.
    pub(super) fn begin(socket: Gathered<Socket>) -> Turn {
        let (reading, write) = socket.split();
        let (next, end) = oneshot::channel();
        let track = Track { line: Mutex::new(Line { write, end: Some(end) }), is_left: AtomicBool::new(false) };
        Turn { track: Arc::new(track), reading: Some(reading), before: None, next: Some(next) }
    }

    /// Whether nothing comes by it any more, or behind what it has.
    pub fn is_broken(&self) -> bool {
        // Who has the lock is about to get in line, or to fail.
        self.is_left.load(Ordering::Relaxed) || self.line.try_lock().is_ok_and(|line| line.end.is_none())
    }

    /// Sends the token of the stream that is the next one.
    pub(super) async fn follow(self: &Arc<Track>, token: &StreamToken) -> io::Result<Turn> {
        let mut line = self.line.lock().await;
        // It would get a token of which nobody makes use.
        if self.is_left.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let before = line.end.take().ok_or(io::ErrorKind::NotConnected)?;
        let say = async {
            line.write.write_all(&opening(stream::PREFACE, token)).await?;
            line.write.flush().await
        };
        match tokio::time::timeout(PATIENCE, say).await {
            Ok(said) => said?,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        }
        let (next, end) = oneshot::channel();
        line.end = Some(end);
        Ok(Turn { track: self.clone(), reading: None, before: Some(before), next: Some(next) })
    }
}

impl Turn {
    /// Waits for the stream before it; an error where that did not come to its end.
    pub async fn wait(&mut self) -> io::Result<()> {
        if let Some(before) = &mut self.before {
            let reading = before.await;
            self.before = None;
            self.reading = Some(reading.map_err(|_| io::ErrorKind::UnexpectedEof)?);
        }
        Ok(())
    }

    /// The bytes that come, of which the caller takes no more than are its own; `left`: see [`Gathered::read_buf`].
    pub async fn read_buf(&mut self, buf: &mut impl bytes::BufMut, left: Option<u64>) -> io::Result<usize> {
        match &mut self.reading {
            Some(reading) => reading.read_buf(buf, left).await,
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// All its bytes came: the next one may go on.
    pub fn pass(&mut self) {
        if let (Some(reading), Some(next)) = (self.reading.take(), self.next.take()) {
            // Where nobody is in line it lies there until the track ends, or somebody is.
            let _ = next.send(reading);
        }
    }
}

/// What a data connection says of the stream that it is for: at best in one segment.
pub(super) fn opening(preface: [u8; 8], token: &StreamToken) -> Vec<u8> {
    let mut opening = Vec::with_capacity(stream::OPENING);
    opening.extend_from_slice(&preface);
    opening.extend_from_slice(&token.0);
    opening
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use ninefold_proto::types::StreamToken;
    use tokio::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn behind_a_token_that_could_not_be_said_nobody_gets_in_line() {
        for is_dropped in [false, true] {
            let (near, far) = UnixStream::pair().unwrap();
            let turn = Track::begin(Gathered::never(Socket::Unix(near)));
            let _second = turn.track.follow(&StreamToken([1; 16])).await.expect("it is in line");
            assert!(!turn.track.is_broken());
            if is_dropped {
                // Nobody takes what is said: who is in line waits for room.
                let mut line = turn.track.line.lock().await;
                while futures_util::poll!(pin!(line.write.write_all(&[0; 64 << 10]))).is_ready() {}
                drop(line);
                let token = StreamToken([2; 16]);
                let mut third = Box::pin(turn.track.follow(&token));
                assert!(futures_util::poll!(&mut third).is_pending());
                assert!(!turn.track.is_broken(), "it may get in line");
                drop(third);
            } else {
                drop(far);
                turn.track.follow(&StreamToken([2; 16])).await.expect_err("its peer has gone");
            }
            assert!(turn.track.is_broken());
        }
    }
}
