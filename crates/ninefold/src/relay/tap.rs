//! Frames out of a stream of bytes that pass by, in whatever pieces they come.

use std::fmt;

use ninefold_proto::dialect::{Version, answer_version};
use ninefold_proto::message::{self, RVERSION};
use ninefold_proto::n1::stream::PREFACE;
use ninefold_proto::print::{self, Data};
use ninefold_proto::types::Tag;
use ninefold_proto::wire::{self, HEADER};
use ninefold_proto::{Dialect, R, T};

/// Which way a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    ToServer,
    ToClient,
}

impl Direction {
    /// `→` to the server, `←` to the client.
    pub fn arrow(self) -> char {
        match self {
            Direction::ToServer => '→',
            Direction::ToClient => '←',
        }
    }
}

/// What passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part<'a> {
    /// A frame, not checked beyond its size.
    Whole(&'a [u8]),
    /// The first seven bytes of a frame that is longer than msize, and its size in bytes.
    Head(&'a [u8; HEADER], u32),
    /// Bytes that are no frame: their size field was impossible, or the stream ended inside of them. Nothing
    /// behind an impossible size can be understood.
    Raw(&'a [u8]),
    /// So many bytes of a stream's data connection, which are no messages and no bytes to be shown: a token, or a file's.
    Data(u64),
}

/// Something that passes, and what is needed to read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen<'a> {
    pub direction: Direction,
    pub part: Part<'a>,
    /// The version in force. An Rversion is already seen in the one that it agrees to.
    pub version: Version,
}

impl<'a> Seen<'a> {
    /// Bytes on the wire.
    pub fn size(&self) -> u64 {
        match self.part {
            Part::Whole(bytes) | Part::Raw(bytes) => bytes.len() as u64,
            Part::Head(_, size) => size.into(),
            Part::Data(bytes) => bytes,
        }
    }

    /// The text form, as [`print`](mod@print) has it, without arrow.
    pub fn text(&self, data: Data) -> Text<'a> {
        Text { seen: *self, data }
    }
}

/// Something seen, as text.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    seen: Seen<'a>,
    data: Data,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seen.part {
            Part::Whole(frame) => print::print(frame, self.seen.version, self.data).fmt(f),
            Part::Raw(bytes) => print::print(bytes, self.seen.version, self.data).fmt(f),
            Part::Data(bytes) => write!(f, "data of a stream ({bytes} bytes)"),
            Part::Head(head, size) => {
                let [_, _, _, _, kind, low, high] = *head;
                let tag = Tag(u16::from_le_bytes([low, high]));
                match message::info(kind, self.seen.version) {
                    Some(row) => write!(f, "{} tag {tag} ... ({size} bytes)", row.name),
                    None => write!(f, "type {kind} tag {tag} ... ({size} bytes)"),
                }
            }
        }
    }
}

/// What both directions of a connection must know.
#[derive(Debug)]
pub(super) struct Session {
    version: Version,
    /// Offered and not answered: a client that knows its server speaks it already.
    offered: Option<Version>,
    /// It began as data connections do: there are no frames.
    is_data: bool,
    /// Longer frames are not held.
    frame_max: u32,
    limit: u32,
}

impl Session {
    /// Before a version is agreed: frames up to `limit` bytes are held.
    pub(super) fn new(limit: u32) -> Session {
        Session { version: Dialect::Plan9.into(), offered: None, is_data: false, frame_max: limit, limit }
    }

    /// What is spoken in a direction.
    fn version(&self, direction: Direction) -> Version {
        match direction {
            Direction::ToServer => self.offered.unwrap_or(self.version),
            Direction::ToClient => self.version,
        }
    }

    fn learn(&mut self, direction: Direction, frame: &[u8]) {
        if direction == Direction::ToServer {
            if let Ok((header, body)) = wire::split_frame(frame)
                && let Ok(T::Version { version, .. }) = T::decode(header.kind, body, self.version(direction))
            {
                self.offered = Version::parse(version);
            }
            return;
        }
        self.offered = None;
        if frame.get(4) != Some(&RVERSION) {
            return;
        }
        let Ok((_, body)) = wire::split_frame(frame) else { return };
        if let Ok(R::Version { msize, version }) = R::decode(RVERSION, body, self.version) {
            // "unknown" agrees to nothing; a suffix that we do not know changes no layout that we print.
            let answer = answer_version(version, msize, self.limit);
            if let Some(version) = answer.version {
                self.version = version;
                self.frame_max = answer.msize;
            }
        }
    }
}

/// The preface's first four bytes, as the size of a frame would be.
const PREFACE_SIZE: u32 = u32::from_le_bytes([PREFACE[0], PREFACE[1], PREFACE[2], PREFACE[3]]);

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct Tap {
    direction: Direction,
    /// The beginning of a frame that is not there whole.
    held: Vec<u8>,
    /// Bytes still to come of a frame that is shown by its head.
    skip: u64,
    /// A size was impossible: there are no frames any more.
    lost: bool,
    /// Nothing has passed.
    fresh: bool,
}

impl Tap {
    pub(super) fn new(direction: Direction) -> Tap {
        Tap { direction, held: Vec::new(), skip: 0, lost: false, fresh: true }
    }

    pub(super) fn direction(&self) -> Direction {
        self.direction
    }

    /// Takes the next bytes that pass and shows every frame that ends in them.
    pub(super) fn feed(&mut self, mut bytes: &[u8], session: &mut Session, mut show: impl FnMut(&Seen<'_>)) {
        let direction = self.direction;
        while !bytes.is_empty() {
            if session.is_data {
                let held = std::mem::take(&mut self.held).len();
                let part = Part::Data((held + bytes.len()) as u64);
                show(&Seen { direction, part, version: session.version(direction) });
                return;
            }
            if self.lost {
                show(&Seen { direction, part: Part::Raw(bytes), version: session.version(direction) });
                return;
            }
            if self.skip > 0 {
                let n = self.skip.min(bytes.len() as u64);
                self.skip -= n;
                bytes = &bytes[n as usize..];
                continue;
            }
            // Only the four bytes of the size are moved before it is known how many are worth holding.
            let wanted = match size_of(&self.held, bytes) {
                None => 4,
                Some(size) if (size as usize) < HEADER => {
                    self.lost = true;
                    let mut raw = std::mem::take(&mut self.held);
                    raw.extend_from_slice(bytes);
                    show(&Seen { direction, part: Part::Raw(&raw), version: session.version(direction) });
                    return;
                }
                // No frame begins so, and no session with anything but a frame.
                Some(size) if self.fresh && direction == Direction::ToServer && size == PREFACE_SIZE => {
                    session.is_data = true;
                    continue;
                }
                Some(size) if size > session.frame_max => HEADER,
                Some(size) => size as usize,
            };
            let (now, rest) = bytes.split_at(bytes.len().min(wanted - self.held.len()));
            bytes = rest;
            let whole = if self.held.is_empty() && now.len() == wanted {
                now
            } else {
                self.held.extend_from_slice(now);
                &self.held
            };
            let Some(size) = size_of(whole, b"").filter(|_| whole.len() == wanted) else { continue };
            let part = match whole.first_chunk() {
                Some(head) if size > session.frame_max => {
                    self.skip = u64::from(size) - HEADER as u64;
                    Part::Head(head, size)
                }
                _ => {
                    session.learn(direction, whole);
                    Part::Whole(whole)
                }
            };
            show(&Seen { direction, part, version: session.version(direction) });
            self.held.clear();
            self.fresh = false;
        }
    }

    /// The stream has ended: shows what is left of a frame that will never be whole.
    pub(super) fn end(&mut self, session: &Session, mut show: impl FnMut(&Seen<'_>)) {
        if !self.held.is_empty() {
            let direction = self.direction;
            show(&Seen { direction, part: Part::Raw(&self.held), version: session.version(direction) });
            self.held.clear();
        }
    }
}

/// The size field of the frame that begins with `held` and goes on in `next`.
fn size_of(held: &[u8], next: &[u8]) -> Option<u32> {
    let mut bytes = held.iter().chain(next).copied();
    let mut byte = || bytes.next();
    Some(u32::from_le_bytes([byte()?, byte()?, byte()?, byte()?]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ninefold_proto::message::{Mask, Octal};
    use ninefold_proto::types::Fid;

    fn frame(f: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        f(&mut out);
        out
    }

    fn lines(tap: &mut Tap, session: &mut Session, pieces: &[&[u8]]) -> Vec<String> {
        let mut lines = Vec::new();
        for piece in pieces {
            tap.feed(piece, session, |seen| lines.push(seen.text(Data::Elided).to_string()));
        }
        tap.end(session, |seen| lines.push(seen.text(Data::Elided).to_string()));
        lines
    }

    #[test]
    fn a_frame_is_shown_once_and_whole_however_it_is_cut() {
        let mut stream = frame(|out| T::Clunk { fid: Fid(1) }.encode(Tag(1), Dialect::Linux, out));
        T::Clunk { fid: Fid(2) }.encode(Tag(2), Dialect::Linux, &mut stream);
        T::Flush { oldtag: Tag(2) }.encode(Tag(3), Dialect::Linux, &mut stream);
        let expected = ["Tclunk tag 1 fid 1", "Tclunk tag 2 fid 2", "Tflush tag 3 oldtag 2"];
        for step in 1..=stream.len() {
            let pieces: Vec<_> = stream.chunks(step).collect();
            let got = lines(&mut Tap::new(Direction::ToServer), &mut Session::new(8192), &pieces);
            assert_eq!(got, expected, "in pieces of {step}");
        }
    }

    #[test]
    fn a_frame_over_msize_is_shown_by_its_head_and_the_next_is_found() {
        let data = [7; 5000];
        let write = T::Write { fid: Fid(1), offset: 0, data: message::Payload(&data) };
        let mut stream = frame(|out| write.encode(Tag(9), Dialect::Linux, out));
        T::Clunk { fid: Fid(1) }.encode(Tag(2), Dialect::Linux, &mut stream);
        for step in [1, 6, 7, 1000, stream.len()] {
            let pieces: Vec<_> = stream.chunks(step).collect();
            let got = lines(&mut Tap::new(Direction::ToServer), &mut Session::new(4096), &pieces);
            assert_eq!(got, ["Twrite tag 9 ... (5023 bytes)", "Tclunk tag 2 fid 1"], "in pieces of {step}");
        }
    }

    #[test]
    fn behind_an_impossible_size_everything_is_raw() {
        let pieces: [&[u8]; 3] = [&[6, 0], &[0, 0, 1], &[9, 9]];
        let mut shown = Vec::new();
        let (mut tap, mut session) = (Tap::new(Direction::ToServer), Session::new(8192));
        for piece in pieces {
            tap.feed(piece, &mut session, |seen| {
                let Part::Raw(bytes) = seen.part else { panic!("{seen:?}") };
                shown.extend_from_slice(bytes);
            });
        }
        assert_eq!(shown, pieces.concat());
    }

    #[test]
    fn what_passes_on_a_data_connection_is_counted_and_not_shown() {
        let opening = b"9Pstreamand the token 16";
        for step in [1, 4, 5, 24] {
            let (mut session, mut total) = (Session::new(8192), 0);
            let mut tap = Tap::new(Direction::ToServer);
            let mut back = Tap::new(Direction::ToClient);
            for piece in opening.chunks(step) {
                tap.feed(piece, &mut session, |seen| {
                    assert!(matches!(seen.part, Part::Data(_)), "{seen:?}");
                    total += seen.size();
                });
            }
            assert_eq!(total, 24, "in pieces of {step}");
            let shown = lines(&mut back, &mut session, &[b"\x07\0\0\0 of a file"]);
            assert_eq!(shown, ["data of a stream (14 bytes)"]);
        }
    }

    #[test]
    fn rversion_sets_the_dialect_and_unknown_does_not() {
        let version = |v: &'static [u8]| {
            frame(|out| R::Version { msize: 8192, version: v }.encode(Tag::NONE, Dialect::Plan9, out))
        };
        let mut session = Session::new(8192);
        let mut tap = Tap::new(Direction::ToClient);
        lines(&mut tap, &mut session, &[&version(b"9P2000.L")]);
        assert_eq!(session.version, Dialect::Linux.into());
        lines(&mut tap, &mut session, &[&version(b"unknown")]);
        assert_eq!(session.version, Dialect::Linux.into());
        lines(&mut tap, &mut session, &[&version(b"9P2000.u")]);
        assert_eq!(session.version, Dialect::Unix.into());
    }

    #[test]
    fn what_is_sent_before_the_rversion_is_read_as_what_was_offered() {
        let offer = |version: &'static [u8]| {
            frame(|out| T::Version { msize: 8192, version }.encode(Tag::NONE, Dialect::Plan9, out))
        };
        let session = frame(|out| {
            let id = ninefold_proto::types::SessionId([1; 16]);
            let (flags, caps) = (Octal(1), Mask(0));
            T::Session { flags, session: id, caps, fid: Fid(1), uname: b"u", aname: b"", n_uname: 0 }.encode(
                Tag(0),
                Version::N1,
                out,
            );
        });
        let mut state = Session::new(8192);
        let mut tap = Tap::new(Direction::ToServer);
        let early = lines(&mut tap, &mut state, &[&offer(b"9P2000.L.n1"), &session]);
        assert!(early[1].starts_with("Tsession tag 0"), "{early:?}");
        // Refused, what was offered is nothing.
        let refused =
            frame(|out| R::Lerror { ecode: 5, retry_ms: 0, text: b"" }.encode(Tag::NONE, Dialect::Linux, out));
        lines(&mut Tap::new(Direction::ToClient), &mut state, &[&refused]);
        let late = lines(&mut tap, &mut state, &[&session]);
        assert!(late[0].starts_with("raw"), "{late:?}");
    }

    #[test]
    fn the_end_inside_a_frame_is_shown_raw() {
        let got = lines(&mut Tap::new(Direction::ToServer), &mut Session::new(8192), &[&[19, 0, 0, 0, 100]]);
        assert_eq!(got, ["raw 0x1300000064... (5 bytes)"]);
    }
}
