//! The closed list of rules that a server can break.

use crate::types::Tag;
use crate::wire::DecodeError;

/// A rule that the server broke; nothing more on its connection can be believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ServerMisbehaved {
    #[error("bad frame: {0}")]
    Frame(DecodeError),
    #[error("an msize of {got}, where {offered} was offered and 4096 is the least")]
    Msize { offered: u32, got: u32 },
    #[error("its {name} does not decode: {error}")]
    Body { name: &'static str, error: DecodeError },
    #[error("message type {0}, which this dialect does not know")]
    UnknownType(u8),
    #[error("{0}, a request, where replies come")]
    RequestFromServer(&'static str),
    #[error("{reply} in answer to {request}")]
    WrongType { request: &'static str, reply: &'static str },
    #[error("an answer to tag {0} before the one to Tversion")]
    BeforeVersion(Tag),
    #[error("a reply to tag {0}, on which nothing was asked")]
    UnknownTag(Tag),
    #[error("a success for {0} on a fid that was never made")]
    FidNeverMade(&'static str),
    #[error("an error reply with the number 0")]
    ErrorZero,
    #[error("{got} bytes where {asked} were asked for")]
    TooMuchData { asked: u32, got: usize },
    #[error("Rcopyrange says that {got} bytes were copied, of {asked}")]
    CopiedTooMuch { asked: u64, got: u64 },
    #[error("Raccess allows {got:#o}, and {asked:#o} was asked for")]
    AccessNotAsked { asked: u32, got: u32 },
    #[error("an Rreaddirplus with the flags {0:#o}, of which some are unknown")]
    ListingFlags(u32),
    #[error("an Rstream whose address is none")]
    StreamAddress,
    #[error("a stream of {length} bytes from {offset} on, more than a file has")]
    StreamPart { offset: u64, length: u64 },
    #[error("a stream of {0} bytes, more than a file has")]
    StreamedTooMuch(u64),
    #[error("{got} bytes taken of {sent} that were sent")]
    TookTooMuch { sent: u32, got: u32 },
    #[error("{got} qids for a walk of {names} names")]
    TooManyQids { names: usize, got: usize },
    #[error("a walk of {0} names that ends at the first without an error")]
    EmptyWalk(usize),
    #[error("directory entries that do not decode: {0}")]
    Entries(DecodeError),
    #[error("a stat record that does not decode: {0}")]
    Stat(DecodeError),
}
