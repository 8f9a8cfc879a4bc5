//! What a client asks of its server and of itself.

use std::time::Duration;

use ninefold_proto::types::NONUNAME;
use ninefold_proto::wire::{IO_HEADER, MSIZE_MIN};
use rustix::process::getuid;

use super::memory::Memory;

/// The range of [`Options::msize`]: what every server of ours takes, and the most that one offers.
const MSIZES: (u32, u32) = (MSIZE_MIN, 8 << 20);

/// How to connect, and what to bound. The default suits every server known to us.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Bytes of the largest message to offer, 4,096 to 8 MiB; what lies outside is brought into that range. What
    /// 1 MiB of data takes: beyond it a message costs more in buffers than it saves in messages.
    pub msize: u32,
    /// The longest silence that a call bears, and the longest that a connection takes with all tries; `None` waits for ever. A call over a
    /// slow link may take longer: its time begins anew with every byte of it, or of calls made before it, that leaves, and
    /// with every reply to it or to one of those, whole or 4,096 bytes at a time. Answers to later calls do not help it. So
    /// long too, and two seconds at least, a server may leave a Tflush or an abandoned Tclunk unanswered before the
    /// connection is given up.
    pub timeout: Option<Duration>,
    /// The longest wait for a connection over ssh, from its start to the end of the attach, in place of `timeout`: a person
    /// may have to type a password. `None` waits for ever.
    pub login_timeout: Option<Duration>,
    /// The user to attach as: a name, and a number for the dialects that carry one.
    pub user: (Vec<u8>, u32),
    /// The most entries of one directory; more is a server that does not end.
    pub dir_entries_max: usize,
    /// The most bytes on the way at a time in a pipelined read or write of one file, or arrived and not taken. 512 requests besides.
    pub window_max: usize,
    /// The same of all files of a connection together, but one message for each, which is never refused: so a program that
    /// leaves one file unread keeps nobody from another. 4,096 requests besides, of whatever kind.
    pub flights_max: usize,
    /// Where it is remembered what servers agreed on; `None` remembers nothing, and makes no early start.
    pub memory: Option<Memory>,
    /// The clunks of files that are dropped, and that nothing was written to, are sent with the next request, and at the end left to
    /// the end of the connection: it costs no round trip then. For programs that end soon; until then the server holds the
    /// files, 64 at most, also those that are open.
    pub clunks_held_back: bool,
    /// A [`Stream`](super::Stream) may have a connection of its own; else all data go in messages.
    pub streams: bool,
    /// Streams of a long file that the first operation is about ([`Client::first`](super::Client::first),
    /// [`BeginRead::streams`](super::BeginRead::streams)): at a server that is remembered, connections for them are dialled beside
    /// the first one: one where it is near. 0: none.
    pub streams_at_once: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            msize: (1 << 20) + IO_HEADER,
            timeout: Some(Duration::from_secs(60)),
            // As long as sshd lets a login take (sshd_config(5), LoginGraceTime).
            login_timeout: Some(Duration::from_secs(120)),
            user: this_user(),
            // Who keeps all of them to sort them takes about half a KiB for each: 1 GiB, which most machines have. A server
            // that does not end should not end the client.
            dir_entries_max: 2_000_000,
            // 10 Gbit/s over 50 ms.
            window_max: 64 << 20,
            // Four files that each fill such a path.
            flights_max: 256 << 20,
            memory: None,
            clunks_held_back: false,
            streams: true,
            streams_at_once: 0,
        }
    }
}

/// The name and number of the user that this process acts as.
fn this_user() -> (Vec<u8>, u32) {
    let uid = getuid();
    let known = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid.as_raw())).ok().flatten();
    let name = known.map_or_else(|| uid.as_raw().to_string(), |user| user.name);
    (name.into_bytes(), uid.as_raw())
}

impl Options {
    /// The msize to offer.
    pub(super) fn offer(&self) -> u32 {
        self.msize.clamp(MSIZES.0, MSIZES.1)
    }

    /// Attaches as a user known by name alone.
    pub fn user_name(mut self, name: impl Into<Vec<u8>>) -> Options {
        self.user = (name.into(), NONUNAME);
        self
    }
}
