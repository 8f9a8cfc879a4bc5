//! Streams: the checks of Tstream and Tstreamend, and the replies to them. The data go past the session, over connections
//! of their own, and so does the table of the streams that there are: the driver has both.
//!
//! A stream is a thing of the connection that asked for it. When [`Session::resets`] has grown, or the connection ends,
//! the driver ends those that there were.

use alloc::vec::Vec;

use super::n1::{AfterN1, known, range};
use super::op::{Copied, Done, Op, Share, Streaming};
use super::outbox::Bulk;
use super::reply::Reply;
use super::request::{Checked, Stop, refused};
use super::session::{After, Outstanding, Session};
use crate::error::Errno;
use crate::message::T;
use crate::n1::{stream, streamend};
use crate::types::StreamToken;

impl<F: Clone, P: Bulk + From<Vec<u8>>, B: AsRef<[u8]> + Clone + From<Vec<u8>>> Session<F, P, B> {
    /// Tstream and Tstreamend, in either layout.
    pub(super) fn check_stream<'a>(&mut self, message: T<'a>) -> Result<Checked<'a, F>, Stop> {
        match message {
            T::Stream { fid, flags, isread, offset, length, token } => {
                let (bits, last) = (flags.0 & !(stream::LAST_MOST << stream::LAST_BIT), flags.0 >> stream::LAST_BIT);
                known(bits, stream::ALL, "unknown stream flags")?;
                if isread > 1 {
                    return refused(Errno::EINVAL, "isread is neither 0 nor 1");
                }
                let read = isread == 1;
                let has = |flag| bits & flag != 0;
                let more = has(stream::MORE);
                let shared = has(stream::SHARED).then_some(last);
                let copied = match (has(stream::COPIED), has(stream::UNLESS_LONG), shared.map_or(last, |_| 0)) {
                    (false, false, 0) => Copied::No,
                    (true, false, 0) => Copied::Yes,
                    (true, true, 0) => Copied::UnlessLong,
                    (true, false, _) if length == 0 => {
                        return refused(Errno::EINVAL, "a stream of which the last bytes are copied has a length");
                    }
                    (true, false, last) => Copied::Last(u64::from(last) * stream::LAST_UNIT),
                    (false, true, _) => return refused(Errno::EINVAL, "UNLESS_LONG is of streams with COPIED"),
                    _ => {
                        return refused(
                            Errno::EINVAL,
                            "how many bytes are copied is of streams with COPIED, and without UNLESS_LONG",
                        );
                    }
                };
                if (more || copied != Copied::No) && !read {
                    return refused(Errno::EINVAL, "MORE and COPIED are of streams that are read");
                }
                let told = has(stream::TOLD);
                if told && !more {
                    return refused(Errno::EINVAL, "TOLD is of streams with MORE");
                }
                if more && length == 0 {
                    return refused(Errno::EINVAL, "a stream with MORE has a length");
                }
                let share = match shared {
                    Some(_) if !more || copied != Copied::UnlessLong => {
                        return refused(Errno::EINVAL, "SHARED is of streams with MORE, COPIED and UNLESS_LONG");
                    }
                    Some(of) if !(1..=stream::SHARES).contains(&of) => {
                        return refused(Errno::EINVAL, "a file is shared among 1 to 64 streams");
                    }
                    Some(of) if !offset.is_multiple_of(length) || offset / length >= u64::from(of) => {
                        return refused(Errno::EINVAL, "a share's offset is its number times its length");
                    }
                    shared => shared.map(|of| Share { number: (offset / length) as u32, of }),
                };
                let (id, file) = self.file(fid)?;
                let Some(handle) = self.fids.get(id) else { return Err(Errno::EBADF.into()) };
                let access = handle.access()?;
                match read {
                    _ if handle.is_dir() => return Err(Errno::EISDIR.into()),
                    true if !access.can_read() => return refused(Errno::EBADF, "fid is not open for reading"),
                    false if !access.can_write() => return refused(Errno::EBADF, "fid is not open for writing"),
                    _ => {}
                }
                range(offset, length)?;
                let appends = handle.appends();
                let length = (length > 0).then_some(length);
                let token = (token != StreamToken::default()).then_some(token);
                Ok(Checked {
                    op: Op::Stream { file, read, offset, length, appends, more, told, copied, share, token },
                    after: After::N1(AfterN1::Stream),
                    handles: [Some(id), None],
                    exclusive: false,
                    reserve: None,
                })
            }
            T::Streamend { id, flags } => {
                known(flags.0, streamend::ALL, "unknown flags of an end of a stream")?;
                Ok(Checked {
                    op: Op::StreamEnd { id, abort: flags.0 & streamend::ABORT != 0 },
                    after: After::N1(AfterN1::StreamEnd),
                    handles: [None, None],
                    exclusive: false,
                    reserve: None,
                })
            }
            _ => Err(Errno::EOPNOTSUPP.into()),
        }
    }

    /// The reply to a request that [`Session::check_stream`] let through.
    pub(super) fn settle_stream(&mut self, request: &Outstanding, done: Done<F, P>) -> Reply<P> {
        let is_n1 = self.version.is_n1();
        match (request.after, done) {
            // In `.s` nobody could reach a stream without an address.
            (After::N1(AfterN1::Stream), Done::Streaming(Streaming { address, .. }))
                if !is_n1 && address.is_empty() =>
            {
                self.out_of_contract(request, Done::Unit)
            }
            (After::N1(AfterN1::Stream), Done::Streaming(streaming)) => Reply::Stream(streaming),
            (After::N1(AfterN1::StreamEnd), Done::StreamEnded { count, modrev }) if count <= i64::MAX as u64 => {
                Reply::StreamEnd { count, modrev }
            }
            (_, done) => self.out_of_contract(request, done),
        }
    }
}
