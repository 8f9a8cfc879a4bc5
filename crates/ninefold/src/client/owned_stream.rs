//! Streams with an owner: [`OwnedStream`] is one of `.n1` that the server has and of whose end it was not asked.

use super::connection::Handle;

/// A stream of which the server is told that nobody will come for it when this is dropped: before whatever is asked from then on.
#[derive(Debug)]
pub(super) struct OwnedStream {
    handle: Handle,
    id: u32,
    /// Somebody asked for its end, or has come for it.
    gone: bool,
}

impl OwnedStream {
    /// The stream of a reply that just came.
    pub fn given(handle: Handle, id: u32) -> OwnedStream {
        OwnedStream { handle, id, gone: false }
    }

    /// The number by which the server knows it.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// It ends by itself from here on, or by who asks for that.
    pub fn let_go(mut self) {
        self.gone = true;
    }
}

impl Drop for OwnedStream {
    fn drop(&mut self) {
        if !self.gone {
            self.handle.end_stream(self.id);
        }
    }
}
