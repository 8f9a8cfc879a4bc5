//! The data of a large write on their way from a socket into a pipe: from there the kernel moves them to the file, and no memory of ours sees them.
//!
//! Only of a peer on this machine. What comes from another one lies in as many places of a pipe as it had segments, more than there are, and would
//! keep the pipe from others for as long as it is under way. As what looks near may come by a tunnel, or be held back, few of the process's pipes
//! are for this.
//!
//! The pages in the pipe may be the peer's own, of a file that it sends: who changes them before the reply changes what is written.

use std::io::{self, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{BufMut, BytesMut};

use super::Data;
use crate::transport::{PipeShare, Piped, Received, Stream};

/// Large frames that come through memory behind one that did not fit a pipe, or was not for one.
const WITHOUT: u32 = 64;

/// Pipes of this process that wait for their peers' data at a time: a third of those that there are.
const MOST: usize = 8;

/// Those that do.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Those of one connection.
#[derive(Debug)]
pub(super) struct Incoming {
    /// Where the pipes are from; `None`: the peer is elsewhere, or its connection is no socket.
    share: Option<PipeShare>,
    /// The one that comes.
    current: Option<Current>,
    /// Frames left of [`WITHOUT`].
    without: u32,
}

#[derive(Debug)]
struct Current {
    piped: Piped,
    length: usize,
    _taken: Taken,
}

/// One of [`MOST`].
#[derive(Debug)]
struct Taken;

impl Taken {
    fn take() -> Option<Taken> {
        let more = |taken| (taken < MOST).then_some(taken + 1);
        TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Current {
    fn missing(&self) -> usize {
        self.length - self.piped.len()
    }
}

impl Incoming {
    pub fn new(share: Option<PipeShare>) -> Incoming {
        Incoming { share, current: None, without: 0 }
    }

    /// Whether the next one may come so.
    pub fn is_expected(&self) -> bool {
        self.share.is_some() && self.without == 0
    }

    /// One of so many bytes begins, if a pipe is to be had.
    pub fn begin(&mut self, length: usize) {
        self.current = self.take(length);
        if self.current.is_none() {
            self.pass();
        }
    }

    fn take(&self, length: usize) -> Option<Current> {
        let share = self.share.as_ref().filter(|_| length <= Piped::CAPACITY)?;
        let taken = Taken::take()?;
        share.take().map(|piped| Current { piped, length, _taken: taken })
    }

    /// What was expected is not for a pipe: the next ones come as a whole again.
    pub fn pass(&mut self) {
        self.without = WITHOUT;
    }

    /// A large frame has come through memory.
    pub fn came_otherwise(&mut self) {
        self.without = self.without.saturating_sub(1);
    }

    /// Whether one comes, or has come.
    pub fn is_under_way(&self) -> bool {
        self.current.is_some()
    }

    /// The one that comes, once it is whole.
    pub fn take_whole(&mut self) -> Option<Data> {
        let Current { piped, length, .. } = self.current.take_if(|current| current.missing() == 0)?;
        Some(Data::piped(piped, length, bytes::Bytes::new()))
    }

    /// Takes more of it, which is missing. `Ok(false)`: the peer sends no more. What the pipe has no place for goes on in memory, behind what is
    /// in `buffer`.
    pub fn poll_receive(
        &mut self,
        stream: &Stream,
        task: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<bool>> {
        let Some(current) = &mut self.current else { return Poll::Pending };
        let missing = current.missing();
        if missing == 0 {
            return Poll::Pending;
        }
        match ready!(stream.poll_receive_piped(task, &mut current.piped, missing))? {
            Received::Some => return Poll::Ready(Ok(true)),
            Received::End => return Poll::Ready(Ok(false)),
            Received::Full => self.pass(),
            Received::Refused => self.share = None,
        }
        if let Some(Current { piped, .. }) = self.current.take() {
            drain(piped, buffer)?;
        }
        Poll::Ready(Ok(true))
    }

    /// Nothing more comes.
    pub fn stop(&mut self) {
        self.current = None;
    }
}

/// Puts what is in a pipe behind what is in `buffer`.
fn drain(piped: Piped, buffer: &mut BytesMut) -> io::Result<()> {
    let left = piped.len() as u64;
    buffer.reserve(left as usize);
    let copied = io::copy(&mut piped.take(left), &mut buffer.writer())?;
    if copied == left { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tokio::net::UnixStream;

    use super::*;
    use crate::transport::PIPES_ALONE;

    /// Both ends of a socket.
    fn pair() -> (std::os::unix::net::UnixStream, Stream) {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        (near, UnixStream::from_std(far).unwrap().into())
    }

    async fn receive(incoming: &mut Incoming, stream: &Stream, buffer: &mut BytesMut) -> io::Result<bool> {
        std::future::poll_fn(|task| incoming.poll_receive(stream, task, buffer)).await
    }

    #[tokio::test]
    async fn what_comes_in_more_pieces_than_a_pipe_has_places_goes_on_in_memory() {
        let _alone = PIPES_ALONE.lock().await;
        let (mut near, stream) = pair();
        let bytes: Vec<u8> = (0..400_000_u32).map(|n| (n ^ n >> 8) as u8).collect();
        let sent = bytes.clone();
        let sends = std::thread::spawn(move || sent.chunks(500).for_each(|piece| near.write_all(piece).unwrap()));
        let mut incoming = Incoming::new(Some(PipeShare::default()));
        assert!(incoming.is_expected());
        incoming.begin(bytes.len());
        let mut buffer = BytesMut::from(&b"before"[..]);
        while incoming.is_under_way() {
            assert!(receive(&mut incoming, &stream, &mut buffer).await.unwrap());
        }
        assert!(incoming.take_whole().is_none() && !incoming.is_expected());
        let moved = buffer.len() - 6;
        assert!((1..bytes.len()).contains(&moved), "{moved}");
        assert!(buffer[..6] == b"before"[..] && buffer[6..] == bytes[..moved]);
        for _ in 0..WITHOUT {
            assert!(!incoming.is_expected());
            incoming.came_otherwise();
        }
        assert!(incoming.is_expected());
        drop(stream);
        let _ = sends.join();
    }

    #[tokio::test]
    async fn one_is_whole_when_all_of_it_has_come_and_nothing_behind_it_is_taken() {
        let _alone = PIPES_ALONE.lock().await;
        let (mut near, stream) = pair();
        let mut incoming = Incoming::new(Some(PipeShare::default()));
        let mut buffer = BytesMut::new();
        incoming.begin(10);
        near.write_all(b"four").unwrap();
        assert!(receive(&mut incoming, &stream, &mut buffer).await.unwrap());
        assert!(incoming.take_whole().is_none());
        near.write_all(b"and ten and more").unwrap();
        assert!(receive(&mut incoming, &stream, &mut buffer).await.unwrap());
        let data = incoming.take_whole().unwrap();
        assert!(data.is_piped() && data.len() == 10);
        assert_eq!(&data.into_bytes().unwrap()[..], b"fourand te");
        assert!(!incoming.is_under_way() && buffer.is_empty());
        let mut rest = [0; 20];
        assert_eq!(stream.read_now(&mut rest).unwrap(), 10);
        incoming.begin(10);
        drop(near);
        assert!(!receive(&mut incoming, &stream, &mut buffer).await.unwrap(), "the peer is gone");
        incoming.stop();
        assert!(!incoming.is_under_way());
    }

    #[test]
    fn few_pipes_are_for_what_comes_and_one_that_ends_makes_way_for_another() {
        let _alone = PIPES_ALONE.blocking_lock();
        let begun = || {
            let mut incoming = Incoming::new(Some(PipeShare::default()));
            incoming.begin(10);
            incoming
        };
        let mut all: Vec<_> = (0..=MOST).map(|_| begun()).collect();
        assert_eq!(all.iter().filter(|incoming| incoming.is_under_way()).count(), MOST);
        assert!(!all[MOST].is_expected(), "the next ones come as a whole");
        all[0].stop();
        all.remove(1);
        assert!(begun().is_under_way());
        let (one, two, three) = (begun(), begun(), begun());
        assert_eq!([&one, &two, &three].map(Incoming::is_under_way), [true, true, false]);
    }

    #[test]
    fn without_a_pipe_none_comes() {
        let mut elsewhere = Incoming::new(None);
        elsewhere.begin(10);
        assert!(!elsewhere.is_expected() && !elsewhere.is_under_way());
        let mut too_large = Incoming::new(Some(PipeShare::default()));
        too_large.begin(Piped::CAPACITY + 1);
        assert!(!too_large.is_expected() && !too_large.is_under_way());
    }

    #[tokio::test]
    async fn a_socket_that_gives_a_pipe_nothing_is_read_in_memory_for_ever() {
        let _alone = PIPES_ALONE.lock().await;
        // It is none.
        let (_near, far) = tokio::io::duplex(100);
        let stream = Stream::from(far);
        let mut incoming = Incoming::new(Some(PipeShare::default()));
        incoming.begin(10);
        let mut buffer = BytesMut::new();
        assert!(receive(&mut incoming, &stream, &mut buffer).await.unwrap());
        assert!(!incoming.is_under_way() && !incoming.is_expected() && buffer.is_empty());
        (0..2 * WITHOUT).for_each(|_| incoming.came_otherwise());
        assert!(!incoming.is_expected());
    }
}
