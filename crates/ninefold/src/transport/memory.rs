//! Two streams joined in memory, for tests and for a client beside its server.

use super::Stream;

/// Two ends of one connection. Each way holds up to `buffer` bytes before its writer waits.
pub fn pair(buffer: usize) -> (Stream, Stream) {
    let (a, b) = tokio::io::duplex(buffer);
    (Stream::Memory(a), Stream::Memory(b))
}
