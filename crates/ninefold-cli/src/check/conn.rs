//! A raw connection to the server under test: frames as they are, in any order, right or wrong.
//!
//! [`Conn::send`] and [`Conn::raw`] send, [`Conn::receive`] takes the next reply. What holds for every reply is checked
//! there, whatever the case is about: the frame is no longer than the msize agreed and decodes to its last byte; its tag
//! belongs to a request that is outstanding; it is of that request's type, or the dialect's error. After the Rflush of a
//! request, or an Rversion, nothing is outstanding that they ended. All waits end at the case's deadline.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use ninefold::proto::message::{R, RERROR, RLERROR, RVERSION, T, TFLUSH};
use ninefold::proto::wire::HEADER;
use ninefold::proto::{Dialect, Tag};
use ninefold::transport::Stream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

use super::frame::{Answer, Frame, text};
use super::verdict::End;

/// Bytes; the longest reply before an msize is agreed on: an Rversion or an error with its text.
const FIRST_REPLY: usize = 8192;

/// What the connections of one case share: the clock, and the log.
#[derive(Debug)]
pub struct Shared {
    deadline: Cell<Instant>,
    pub patience: Duration,
    log: RefCell<Vec<String>>,
    /// The server closed a connection.
    closed: Cell<bool>,
}

impl Shared {
    pub fn new(patience: Duration) -> Rc<Shared> {
        let deadline = Cell::new(Instant::now() + patience);
        Rc::new(Shared { deadline, patience, log: RefCell::default(), closed: Cell::new(false) })
    }

    /// The clock starts anew: what came before was preparation.
    pub fn restart(&self) {
        self.deadline.set(Instant::now() + self.patience);
    }

    pub fn deadline(&self) -> Instant {
        self.deadline.get()
    }

    /// What was exchanged so far, a line a frame.
    pub fn log(&self) -> Vec<String> {
        self.log.borrow().clone()
    }

    /// None is to be had.
    pub fn note_closed(&self) {
        self.closed.set(true);
    }

    /// Whether the server closed a connection of the case.
    pub fn was_closed(&self) -> bool {
        self.closed.get()
    }

    pub fn forget(&self) {
        self.log.borrow_mut().clear();
    }

    fn note(&self, connection: usize, line: &str) {
        let line = if connection == 0 { line.to_owned() } else { format!("[{}] {line}", connection + 1) };
        self.log.borrow_mut().push(line);
    }

    pub fn silence(&self) -> String {
        format!("no answer in {} s", self.patience.as_secs_f64())
    }
}

/// What comes next from the server.
#[derive(Debug)]
pub enum Event {
    Frame(Frame),
    /// The connection was closed; why, as the system tells it.
    Closed(String),
    /// Nothing until the deadline.
    Silence,
}

/// See the module.
#[derive(Debug)]
pub struct Conn {
    stream: Stream,
    /// The how many-th of its case, from 0.
    number: usize,
    /// How frames are read: the dialect agreed on, or the one about to be.
    pub dialect: Dialect,
    /// Bytes; `None` before there was an Rversion.
    pub msize: Option<u32>,
    arrived: BytesMut,
    /// Tag, number of the type and, of a Tflush, oldtag of each request that is not answered.
    outstanding: Vec<(Tag, u8, Option<Tag>)>,
    tag: u16,
    closed: Option<String>,
    shared: Rc<Shared>,
}

impl Conn {
    pub fn new(stream: Stream, number: usize, dialect: Dialect, shared: Rc<Shared>) -> Conn {
        let (arrived, outstanding) = (BytesMut::new(), Vec::new());
        Conn { stream, number, dialect, msize: None, arrived, outstanding, tag: 0, closed: None, shared }
    }

    /// A tag that was not used yet on this connection.
    pub fn fresh_tag(&mut self) -> Tag {
        self.tag += 1;
        Tag(self.tag)
    }

    /// The frame of a request.
    pub fn frame(&self, tag: Tag, message: &T<'_>) -> Vec<u8> {
        let mut frame = Vec::new();
        message.encode(tag, self.dialect, &mut frame);
        frame
    }

    /// Sends one request under a tag of its own.
    pub async fn send(&mut self, message: &T<'_>) -> Result<Tag, End> {
        let tag = self.fresh_tag();
        self.send_as(tag, message).await?;
        Ok(tag)
    }

    /// Sends one request under the tag given.
    pub async fn send_as(&mut self, tag: Tag, message: &T<'_>) -> Result<(), End> {
        let frame = self.frame(tag, message);
        self.raw(&frame).await
    }

    /// Sends several requests in one piece; their tags.
    pub async fn burst(&mut self, messages: &[T<'_>]) -> Result<Vec<Tag>, End> {
        let tags: Vec<Tag> = messages.iter().map(|_| self.fresh_tag()).collect();
        let mut bytes = Vec::new();
        for (tag, message) in tags.iter().zip(messages) {
            message.encode(*tag, self.dialect, &mut bytes);
        }
        self.raw(&bytes).await?;
        Ok(tags)
    }

    /// Sends bytes as they stand. Whole frames in them count as requests, for as far as they go.
    pub async fn raw(&mut self, bytes: &[u8]) -> Result<(), End> {
        self.expect_replies(bytes);
        self.write(bytes).await
    }

    /// Sends a part of a frame that was announced by [`Conn::expect_replies`].
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), End> {
        if self.closed.is_some() {
            return Ok(()); // told where a reply is waited for
        }
        let sent = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        match timeout_at(self.shared.deadline(), sent).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(e)) => {
                // What the server said before it closed may still be there to be read.
                if !is_close(&e) {
                    self.closed = Some(e.to_string());
                }
                Ok(())
            }
            Err(_) => Err(End::fail("the server to take what is sent", self.shared.silence())),
        }
    }

    /// Notes the whole frames in `bytes` as requests, and logs them.
    pub fn expect_replies(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((size, _)) = rest.split_first_chunk::<4>() {
            let size = u32::from_le_bytes(*size) as usize;
            if size < HEADER || size > rest.len() {
                break;
            }
            let (frame, behind) = rest.split_at(size);
            let (kind, tag) = (frame[4], Tag(u16::from_le_bytes([frame[5], frame[6]])));
            let oldtag = (kind == TFLUSH && size >= HEADER + 2).then(|| Tag(u16::from_le_bytes([frame[7], frame[8]])));
            self.outstanding.push((tag, kind, oldtag));
            self.shared.note(self.number, &format!("→ {}", text(frame, self.dialect)));
            rest = behind;
        }
        if !rest.is_empty() {
            let part = &rest[..rest.len().min(32)];
            let hex: String = part.iter().map(|b| format!("{b:02x}")).collect();
            let more = if part.len() < rest.len() { format!("... ({} bytes)", rest.len()) } else { String::new() };
            self.shared.note(self.number, &format!("→ raw 0x{hex}{more}"));
        }
    }

    /// An error may come under `tag` for what is no whole frame.
    pub fn expect_error(&mut self, tag: Tag, kind: u8) {
        self.outstanding.push((tag, kind, None));
    }

    /// What comes next. An error when it is a reply that breaks what holds for every reply.
    pub async fn event(&mut self) -> Result<Event, End> {
        loop {
            if let Some(size) = self.arrived.first_chunk::<4>() {
                let size = u32::from_le_bytes(*size) as usize;
                let most = self.msize.map_or(FIRST_REPLY, |msize| msize as usize);
                if size < HEADER || size > most {
                    let head: String = self.arrived.iter().take(16).map(|b| format!("{b:02x}")).collect();
                    return Err(End::fail(
                        format!("frames of {HEADER} to {most} bytes"),
                        format!("a frame of {size} bytes: 0x{head}..."),
                    ));
                }
                if self.arrived.len() >= size {
                    let bytes = self.arrived.split_to(size).to_vec();
                    let frame = Frame { bytes, dialect: self.dialect };
                    self.shared.note(self.number, &format!("← {}", frame.text()));
                    self.judge(&frame)?;
                    return Ok(Event::Frame(frame));
                }
            }
            if let Some(why) = &self.closed {
                return Ok(Event::Closed(why.clone()));
            }
            match timeout_at(self.shared.deadline(), self.stream.read_buf(&mut self.arrived)).await {
                Ok(Ok(0)) => self.closed = Some("closed the connection".to_owned()),
                Ok(Ok(_)) => {}
                Ok(Err(e)) if is_close(&e) => self.closed = Some("closed the connection".to_owned()),
                Ok(Err(e)) => self.closed = Some(format!("the connection failed: {e}")),
                Err(_) => return Ok(Event::Silence),
            }
            if self.closed.is_some() {
                self.shared.closed.set(true);
                let cut = if self.arrived.is_empty() { "" } else { " in the middle of a frame" };
                self.shared.note(self.number, &format!("closed{cut}"));
            }
        }
    }

    fn judge(&mut self, frame: &Frame) -> Result<(), End> {
        let tag = frame.tag();
        let Some(at) = self.outstanding.iter().position(|(of, ..)| *of == tag) else {
            return Err(End::fail("replies to what was asked, each once", frame.text()));
        };
        let (_, kind, oldtag) = self.outstanding.remove(at);
        let is_answer = kind.checked_add(1) == Some(frame.kind());
        if !is_answer && !frame.is_error() {
            return Err(End::fail(format!("type {} or an error", u16::from(kind) + 1), frame.text()));
        }
        // Of a version's refusal the layout is open: no dialect is agreed on.
        if self.msize.is_some() && kind + 1 != RVERSION {
            let error = if self.dialect == Dialect::Linux { RLERROR } else { RERROR };
            if frame.is_error() && frame.kind() != error {
                return Err(End::fail(format!("errors as {} has them", self.dialect), frame.text()));
            }
            frame.message()?;
        }
        if frame.kind() == RVERSION {
            self.outstanding.clear();
        }
        if let (Some(oldtag), false) = (oldtag, frame.is_error()) {
            // What was sent behind the Tflush is another request, under whatever tag.
            let mut place = 0..;
            self.outstanding
                .retain(|(tag, kind, _)| place.next().is_some_and(|i| i >= at) || *tag != oldtag || *kind == TFLUSH);
        }
        Ok(())
    }

    /// The next reply; that none comes is a failure.
    pub async fn receive(&mut self) -> Result<Frame, End> {
        let waited = self.waited_for();
        match self.event().await? {
            Event::Frame(frame) => Ok(frame),
            Event::Closed(why) => Err(End::fail(waited, why)),
            Event::Silence => Err(End::fail(waited, self.shared.silence())),
        }
    }

    fn waited_for(&self) -> String {
        let names: Vec<String> = self
            .outstanding
            .iter()
            .take(4)
            .map(|(tag, kind, _)| {
                let name = ninefold::proto::message::info(*kind, self.dialect).map_or("a request", |row| row.name);
                format!("{name} tag {tag}")
            })
            .collect();
        format!("an answer to {}{}", names.join(", "), if self.outstanding.len() > 4 { ", ..." } else { "" })
    }

    /// Sends one request and takes its reply, which must be the next.
    pub async fn ask(&mut self, message: &T<'_>) -> Result<Answer, End> {
        let tag = self.send(message).await?;
        self.answer(tag, message.number()).await
    }

    async fn answer(&mut self, tag: Tag, asked: u8) -> Result<Answer, End> {
        let frame = self.receive().await?;
        if frame.tag() != tag {
            return Err(End::fail(format!("the reply of tag {tag}"), frame.text()));
        }
        Ok(Answer { frame, asked })
    }

    /// Sends requests in one piece and takes all replies, in the order of the requests, however they come.
    pub async fn ask_all(&mut self, messages: &[T<'_>]) -> Result<Vec<Answer>, End> {
        let tags = self.burst(messages).await?;
        let mut answers: Vec<Option<Answer>> = messages.iter().map(|_| None).collect();
        for _ in messages {
            let frame = self.receive().await?;
            let at = tags.iter().position(|tag| *tag == frame.tag());
            let Some(at) = at else { return Err(End::fail("replies of these tags", frame.text())) };
            answers[at] = Some(Answer { frame, asked: messages[at].number() });
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Says that nothing else was sent: the Rflush of a tag that is not in use must be next (flush(5)). Nobody waits and
    /// hopes.
    pub async fn fence(&mut self) -> Result<(), End> {
        let tag = self.send(&T::Flush { oldtag: Tag(0xfff0) }).await?;
        let frame = self.receive().await?;
        if frame.tag() == tag && !frame.is_error() {
            return Ok(());
        }
        Err(End::fail(format!("Rflush tag {tag} and nothing before it"), frame.text()))
    }

    /// Sends a Tversion, and takes what comes for it: `Ok` is the msize and the string.
    pub async fn version(&mut self, msize: u32, version: &str) -> Result<Result<(u32, String), String>, End> {
        self.version_as(Tag::NONE, msize, version).await
    }

    pub async fn version_as(
        &mut self,
        tag: Tag,
        msize: u32,
        version: &str,
    ) -> Result<Result<(u32, String), String>, End> {
        self.send_as(tag, &T::Version { msize, version: version.as_bytes() }).await?;
        loop {
            match self.event().await? {
                // Replies to what went before may still come: they are no answer to the version.
                Event::Frame(frame) if frame.tag() != tag => continue,
                Event::Frame(frame) => match frame.message() {
                    Ok(R::Version { msize, version }) => {
                        return Ok(Ok((msize, String::from_utf8_lossy(version).into_owned())));
                    }
                    _ => return Ok(Err(frame.text())),
                },
                Event::Closed(why) => return Ok(Err(why)),
                Event::Silence => return Ok(Err(self.shared.silence())),
            }
        }
    }

    /// What comes for bytes that are no good request: an error under `tag`, or the end of the connection; both will do.
    /// `true` means that the connection lives.
    pub async fn rejected(&mut self, tag: Option<Tag>) -> Result<bool, End> {
        match self.event().await? {
            Event::Closed(_) => Ok(false),
            Event::Frame(frame) if frame.is_error() && tag.is_none_or(|tag| tag == frame.tag()) => Ok(true),
            Event::Frame(frame) => Err(End::fail("an error, or a closed connection", frame.text())),
            Event::Silence => Err(End::fail("an error, or a closed connection", self.shared.silence())),
        }
    }

    pub fn restart_clock(&self) {
        self.shared.restart();
    }

    pub fn silence(&self) -> String {
        self.shared.silence()
    }
}

/// Whether an error only says that the server closed.
fn is_close(e: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(e.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}
