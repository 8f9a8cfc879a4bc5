//! A stream over a data connection of its own: what was asked for, the bytes, and at the end the server's word on how many there were.
//!
//! In `.n1` that word is Rstreamend, asked for as soon as the stream is there, so that it costs no round trip: the bytes are counted
//! against it, and the file's number at the end against the one at the beginning. Of a stream behind which others come by its connection the
//! connection itself tells that number behind the last byte, and nothing behind one that has fewer; Rstreamend is asked for only where that is not heard. In `.s` the server says nothing of the end: there the
//! file's size is asked for. What a server says and sends is believed in neither alone.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use futures_util::future::{Either, select};
use ninefold_proto::message::Octal;
use ninefold_proto::n1::{stream, streamend};
use ninefold_proto::stream::StreamAddress;
use ninefold_proto::types::StreamToken;
use ninefold_proto::{Errno, R, T};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::end::End;
use super::gathered::Gathered;
use super::granted::{Grant, Granted};
use super::track::{Track, Turn, opening};
use crate::client::client::Client;
use crate::client::connection::Reply;
use crate::client::dialer::{Dialer, is_at_end, is_silent};
use crate::client::error::{Error, Fault};
use crate::client::file::File;
use crate::client::node::unexpected;
use crate::client::owned_stream::OwnedStream;
use crate::transport::Stream as Socket;

/// How long the server's word on a connection that broke is waited for: what it knows of the cause it knows by then, and it is worth no
/// more.
const LAST_WORD: Duration = Duration::from_secs(2);

/// Round trips that such waits are longer by on a long way.
const TRIPS: u32 = 4;

/// So many times as long is the longest of such waits, where the server says other things meanwhile.
const BUSY: u32 = 10;

/// How long nothing may be taken of what is written, or come of what is read, before the server is asked how the stream ended, where that was to be asked last, or its
/// connection is to tell it: one that nobody hears is told so.
const STALL: Duration = Duration::from_secs(2);

/// How long a server lets nothing move on a stream (docs/protocol.md, "Streams"): one that has told the end, and forgotten it, says nothing of what does not come.
const IDLE: Duration = Duration::from_secs(300);

/// Bytes that a socket may still hold when all was given to it: the default of tcp_wmem's maximum (tcp(7)).
const IN_SOCKET: u64 = 4 << 20;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Beside {
    file: File,
    carrier: Carrier,
    read: bool,
    offset: u64,
    length: Option<u64>,
    end: End,
    /// Of one whose connection tells the end: what of that has come. None behind it.
    telling: Option<BytesMut>,
    /// The place of what came by it among the round trips.
    depth: u32,
    began: Instant,
    /// Bytes that came, or were sent.
    moved: u64,
    ended: Option<Result<(), Error>>,
    /// It goes on where another one ended: that data connections get through is known, and so is whether the file was changed since.
    goes_on: Option<Gone>,
    is_vouched_for: bool,
    was_asked_ahead: bool,
    is_behind: bool,
}

/// A stream all of whose bytes were given to its connection, and of whose end the server is still to be asked. Dropped, it is given up.
#[derive(Debug)]
pub(in crate::client) struct Late {
    stream: OwnedStream,
    sent: u64,
    patience: Duration,
    rest: Duration,
    /// There until its end is known.
    _connection: Carrier,
}

impl Late {
    /// The number by which the server knows it.
    pub fn id(&self) -> u32 {
        self.stream.id()
    }

    /// How long the server may take for what is on its way.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// How long what is on its way may take, as far as that can be told.
    pub fn rest(&self) -> Duration {
        self.rest
    }

    /// It has ended as the server said; whether all of it is in the file.
    pub fn ended(self, answer: Result<u64, Error>) -> Result<(), Error> {
        // Of whose end nothing was said goes on.
        if matches!(answer, Ok(_) | Err(Error::Refused(_))) {
            self.stream.let_go();
        }
        let written = answer.map_err(of_the_way)?;
        if written == self.sent { Ok(()) } else { Err(Fault::Unwritten { sent: self.sent, written }.into()) }
    }
}

/// What its bytes come or go by.
#[derive(Debug)]
enum Carrier {
    /// A connection of its own.
    Own(Gathered<Socket>),
    /// One that it has between others, of which it reads its own bytes.
    Turn(Turn),
}

impl Carrier {
    /// `left`: bytes that are to come, where that is known.
    async fn read_buf(&mut self, buf: &mut impl BufMut, left: Option<u64>) -> io::Result<usize> {
        match self {
            Carrier::Own(connection) => connection.read_buf(buf, left).await,
            Carrier::Turn(turn) => turn.read_buf(buf, left).await,
        }
    }

    /// The connection of a stream that has one of its own.
    fn own(&mut self) -> io::Result<&mut Socket> {
        match self {
            Carrier::Own(connection) => Ok(&mut connection.socket),
            Carrier::Turn(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// How a stream that is read shares its connection with others.
#[derive(Clone, Debug)]
pub(super) enum Sharing {
    /// It has it alone.
    Alone,
    /// Others are to come behind it.
    First,
    Behind(Arc<Track>),
}

/// What is asked of the server.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub read: bool,
    pub offset: u64,
    pub length: Option<u64>,
    /// So many bytes at its end are no pages of the file, which may change on the way: of one that is read and has a length, to the next
    /// [unit](stream::LAST_UNIT).
    pub copies: u64,
    /// The server is asked for its end when that is wanted, and not from the beginning.
    pub late: bool,
    pub sharing: Sharing,
}

impl Ask {
    /// One that has a connection of its own.
    pub fn alone(read: bool, offset: u64, length: Option<u64>) -> Ask {
        Ask { read, offset, length, copies: 0, late: false, sharing: Sharing::Alone }
    }

    /// Whether its connection tells the end.
    fn is_told(&self) -> bool {
        self.read && !matches!(self.sharing, Sharing::Alone)
    }

    fn flags(&self) -> u32 {
        let more = match self.sharing {
            Sharing::Alone => 0,
            _ if self.is_told() => stream::MORE | stream::TOLD,
            _ => stream::MORE,
        };
        let units = self.copies.div_ceil(stream::LAST_UNIT);
        let copied = match units {
            0 => 0,
            // More of them cannot be said.
            _ if self.length.is_some_and(|length| self.copies >= length) || units > stream::LAST_MOST.into() => {
                stream::COPIED
            }
            units => stream::COPIED | (units as u32) << stream::LAST_BIT,
        };
        more | copied
    }
}

/// What is known of the one that a stream goes on behind.
#[derive(Clone, Copy, Debug)]
struct Gone {
    is_changed: bool,
}

/// What the server gave to a Tstream.
enum Given {
    /// `.s`: a port at an address.
    Port(String, u16),
    /// Of `.n1`.
    Token {
        grant: Grant,
        /// Its token was said on the connection.
        is_said: bool,
    },
}

impl Given {
    fn read(reply: Reply, ask: &Ask) -> Result<Given, Error> {
        match reply.message()? {
            R::Stream { data, .. } if reply.version.streams => {
                let address = StreamAddress::parse(data.0).ok_or_else(unexpected)?;
                Ok(Given::Port(address.host.to_owned(), address.port))
            }
            _ => {
                let grant = Grant::read(reply)?.of((ask.offset, ask.length.unwrap_or_default()))?;
                Ok(Given::Token { grant, is_said: false })
            }
        }
    }

    /// Its number, and the file's when it began.
    fn named(&self) -> Option<(u32, u64)> {
        match self {
            Given::Port(..) => None,
            Given::Token { grant, .. } => Some((grant.stream.id(), grant.modrev)),
        }
    }

    fn stream(self) -> Option<OwnedStream> {
        match self {
            Given::Port(..) => None,
            Given::Token { grant, .. } => Some(grant.stream),
        }
    }
}

impl Beside {
    /// Asks for a stream of `file`; `None` where the server has none for it, or no connection to it can be had: the same bytes can be
    /// had in messages.
    pub async fn open(file: &File, ask: &Ask) -> Result<Option<Beside>, Error> {
        let &Ask { read, offset, length, .. } = ask;
        let client = &file.client;
        let (handle, version) = (client.handle(), client.version());
        // On the wire a length of 0 is to the end.
        if !client.has_streams() || length == Some(0) {
            return Ok(None);
        }
        let request = T::Stream {
            fid: file.fid.fid(),
            flags: Octal(ask.flags()),
            isread: read.into(),
            offset,
            length: length.unwrap_or_default(),
            token: StreamToken::default(),
        };
        // Where the connection goes is known in .n1: it is made meanwhile.
        let dials = version.is_n1() && !matches!(ask.sharing, Sharing::Behind(_));
        let dial = async { if dials { Some(handle.dialer().open().await) } else { None } };
        let (given, dialled) = match unless_refused(client.call(request), dial).await {
            Ok((reply, dialled)) => (Given::read(reply, ask)?, dialled),
            // Of a server that knows no flags.
            Err(Error::Refused(e)) if e.errno == Errno::EINVAL && ask.flags() != 0 => {
                let ask = Ask::alone(read, offset, length);
                return Box::pin(Beside::open(file, &ask)).await;
            }
            // Why it cannot be is told by who reads or writes.
            Err(Error::Refused(_) | Error::Unsupported { .. }) => return Ok(None),
            Err(e) => return Err(e),
        };
        Beside::begin(file, ask, given, dialled).await
    }

    /// The same of one that was asked for with the open of the file, and is the first of its connection.
    pub async fn granted(file: &File, ask: &Ask, mut granted: Granted) -> Result<Option<Beside>, Error> {
        let said = granted.said().await;
        let is_said = said.is_some();
        let (said, sent) = match said {
            Some(Ok((socket, sent))) => (Some(Ok(socket)), sent),
            Some(Err(e)) => (Some(Err(e)), 0),
            None => (None, 0),
        };
        let is_good = |socket: &Socket| is_silent(socket) || ask.length == Some(sent) && is_at_end(socket);
        let dialled = match said {
            // A server waits some seconds for the Tstream: of what is read data may have come, and of what is written nothing does but an end, which
            // is that of the stream where all of it was sent.
            Some(Ok(socket)) if !ask.read && !is_good(&socket) => Err(io::ErrorKind::ConnectionReset.into()),
            Some(said) => said,
            None => file.client.handle().dialer().open().await,
        };
        if granted.grant.elsewhere.is_some() {
            return Ok(None);
        }
        if let (Err(e), true) = (&dialled, is_said) {
            if e.kind() == io::ErrorKind::TimedOut {
                // Nor will another one be had, which would take as long.
                tracing::debug!("no data connection: {e}");
                drop(granted);
                file.client.handle().dialer().give_up();
                return Ok(None);
            }
            tracing::debug!("a stream is asked for again, as its connection came to nothing: {e}");
            // Before that: what a server takes at a time may be one.
            drop(granted);
            return Beside::open(file, ask).await;
        }
        let given = Given::Token { grant: granted.grant, is_said };
        let begun = Beside::begin(file, ask, given, Some(dialled)).await?;
        Ok(begun.map(|beside| Beside { was_asked_ahead: true, moved: sent, ..beside }))
    }

    async fn begin(
        file: &File,
        ask: &Ask,
        given: Given,
        dialled: Option<io::Result<Socket>>,
    ) -> Result<Option<Beside>, Error> {
        let &Ask { read, offset, length, .. } = ask;
        let (client, handle) = (&file.client, file.client.handle());
        let named = given.named();
        let carrier = match (&ask.sharing, &given) {
            (Sharing::Behind(track), Given::Token { grant: Grant { token, elsewhere: None, .. }, .. }) => {
                track.follow(token).await.map(Carrier::Turn)
            }
            (Sharing::Behind(_), _) => Err(io::ErrorKind::Unsupported.into()),
            (sharing, _) => connect(handle.dialer(), &given, dialled).await.map(|socket| match (sharing, read) {
                (Sharing::Alone, false) => Carrier::Own(Gathered::never(socket)),
                (Sharing::Alone, true) => Carrier::Own(Gathered::new(socket, client.attach_took())),
                (Sharing::First | Sharing::Behind(_), _) => {
                    Carrier::Turn(Track::begin(Gathered::new(socket, client.attach_took())))
                }
            }),
        };
        let (lane, mut stream) = (&client.lane, given.stream());
        let carrier = match carrier {
            Ok(carrier) => carrier,
            Err(e) => {
                tracing::debug!("no data connection: {e}");
                // Before another one is asked for: what a server takes at a time may be one.
                drop(stream);
                if let Sharing::Behind(_) = ask.sharing {
                    // It is that of the streams before it that is gone.
                    let ask = Ask { sharing: Sharing::First, ..ask.clone() };
                    return Box::pin(Beside::open(file, &ask)).await;
                }
                handle.dialer().give_up();
                return Ok(None);
            }
        };
        let (is_late, is_told) = (ask.late, ask.is_told());
        let unasked = if is_late || is_told { stream.take() } else { None };
        let (end, depth) = match (named, unasked) {
            // The connection took one round trip, and what comes by it another half.
            (None, _) => (End::Unsaid, lane.depth() + 1),
            (Some((_, modrev)), Some(stream)) if is_told => (End::Comes { stream, modrev }, lane.depth() + 1),
            (Some((_, modrev)), Some(stream)) => (End::Unasked { stream, modrev }, lane.depth()),
            (Some((id, modrev)), None) => {
                let waiting =
                    handle.begin(T::Streamend { id, flags: Octal(0) }, Default::default(), lane.depth()).await?;
                if let Some(stream) = stream {
                    stream.let_go();
                }
                let depth = waiting.depth();
                (End::Asked { id, modrev, waiting: Some(waiting), comes: false }, depth)
            }
        };
        let telling = matches!(end, End::Comes { .. }).then(BytesMut::new);
        let (file, began) = (file.share(), Instant::now());
        Ok(Some(Beside {
            file,
            carrier,
            read,
            offset,
            length,
            end,
            telling,
            depth,
            began,
            moved: 0,
            ended: None,
            goes_on: None,
            is_vouched_for: false,
            was_asked_ahead: matches!(ask.sharing, Sharing::Behind(_)),
            is_behind: matches!(ask.sharing, Sharing::Behind(_)),
        }))
    }

    /// The file's number when the stream began; 0: the server cannot tell.
    pub fn modrev(&self) -> u64 {
        self.end.modrev()
    }

    /// The file that it is of.
    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the server's word at the end was that of one who knows whether the file was changed.
    pub fn is_vouched_for(&self) -> bool {
        self.is_vouched_for
    }

    /// Whether those that it goes on behind began at another state of the file.
    pub fn is_of_another_state(&self) -> bool {
        self.goes_on.is_some_and(|gone| gone.is_changed)
    }

    /// It goes on where another one ended.
    pub fn goes_on_behind(&mut self, is_changed: bool) {
        self.goes_on = Some(Gone { is_changed });
    }

    /// Bytes that came, or were sent.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    pub fn reads(&self) -> bool {
        self.read
    }

    /// The longest silence. Before the first byte it is short: that none comes may be for the way, and there is another.
    fn patience(&self) -> Duration {
        let client = &self.file.client;
        // As good as for ever, and no overflow.
        let patience = client.options().timeout.unwrap_or(Duration::from_secs(1 << 30));
        // By the connection of one that is behind others bytes have come.
        let is_first = self.read && self.moved == 0 && self.goes_on.is_none() && !self.is_behind;
        if is_first { patience.min(self.last_word()) } else { patience }
    }

    /// See [`LAST_WORD`].
    fn last_word(&self) -> Duration {
        LAST_WORD + self.file.client.attach_took() * TRIPS
    }

    /// The next bytes, 0 at the end, which was found to be that of all of it.
    pub async fn read(&mut self, mut buf: &mut [u8]) -> Result<usize, Error> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.receive(&mut buf).await
    }

    /// The same, to the end of a buffer that has room.
    pub async fn read_buf(&mut self, buf: &mut BytesMut) -> Result<usize, Error> {
        self.receive(buf).await
    }

    async fn receive(&mut self, buf: &mut impl BufMut) -> Result<usize, Error> {
        if let Some(ended) = &self.ended {
            return ended.clone().map(|()| 0);
        }
        // A server of .s sends all that there is: the rest is nobody's. And behind this stream another may come.
        let has_more = matches!(self.end, End::Unsaid) || matches!(self.carrier, Carrier::Turn(_));
        let arrived = match self.length.filter(|_| has_more) {
            Some(length) if self.moved == length => Ok(0),
            Some(length) => {
                let left = usize::try_from(length - self.moved).unwrap_or(usize::MAX);
                self.arrive(&mut buf.limit(left)).await
            }
            None => self.arrive(buf).await,
        };
        let result = match arrived {
            // Its connection was at its end before its turn: what became of the file another one tells.
            Ok(0) if self.is_behind && self.moved == 0 && self.length != Some(0) => {
                Err(Fault::Cut(Arc::new(io::ErrorKind::UnexpectedEof.into())).into())
            }
            Ok(0) => self.check_end().await.map(|()| 0),
            Ok(bytes) => {
                self.file.client.lane.raise(self.depth);
                self.moved += bytes as u64;
                if let Carrier::Turn(turn) = &mut self.carrier
                    && self.length == Some(self.moved)
                    && self.telling.is_none()
                {
                    turn.pass();
                }
                match self.length.filter(|&length| self.moved > length) {
                    Some(length) => Err(Fault::Beyond { asked: length }.into()),
                    None => Ok(bytes),
                }
            }
            Err(e) => Err(e),
        };
        match &result {
            Ok(0) => self.ended = Some(Ok(())),
            Ok(_) => {}
            Err(e) => self.ended = Some(Err(e.clone())),
        }
        result
    }

    /// Bytes as they come, or the server's word that there will be none.
    async fn arrive(&mut self, buf: &mut impl BufMut) -> Result<usize, Error> {
        self.come_to_turn().await?;
        let most = if self.telling.is_some() { self.patience().min(IDLE + STALL) } else { self.patience() };
        let mut patience = most;
        // With the last byte comes what is told behind it.
        let behind = if self.telling.is_some() { stream::TOLD_BYTES as u64 } else { 0 };
        let left = self.length.map(|length| length.saturating_sub(self.moved) + behind);
        loop {
            let is_asked = !matches!(self.end, End::Comes { .. });
            let step = if is_asked { patience } else { patience.min(STALL) };
            let Beside { carrier, end, .. } = self;
            let read = async {
                tokio::select! {
                    biased;
                    read = carrier.read_buf(buf, left) => Ok(read),
                    e = end.failed() => Err(e),
                }
            };
            return match tokio::time::timeout(step, read).await {
                // Of one that nobody hears the session may.
                Err(_) if step < patience => {
                    patience -= step;
                    self.ask().await?;
                    continue;
                }
                Err(_) => Err(Error::TimedOut(most)),
                Ok(Err(e)) => Err(of_the_way(e)),
                Ok(Ok(Ok(bytes))) => Ok(bytes),
                Ok(Ok(Err(e))) => Err(self.broke(e).await),
            };
        }
    }

    /// Hears the end of one whose connection tells it, all of whose bytes are here; where it does not, the server is asked. Where that was asked before, what it says goes,
    /// and what the connection tells is only taken off it for who comes behind.
    async fn hear_end(&mut self) -> Result<(), Error> {
        let is_awaited = matches!(self.end, End::Comes { .. } | End::Forgotten { .. });
        let patience = if is_awaited { self.patience().min(STALL) } else { Duration::ZERO };
        let Beside { carrier, telling: Some(telling), .. } = self else { return Ok(()) };
        let hear = async {
            while let left @ 1.. = stream::TOLD_BYTES.saturating_sub(telling.len()) {
                if carrier.read_buf(&mut (&mut *telling).limit(left), Some(left as u64)).await? == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
                }
            }
            Ok(telling.get_u64_le())
        };
        let heard = tokio::time::timeout(patience, hear).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()));
        self.telling = None;
        let last = match heard {
            Ok(last) => last,
            Err(e) => {
                tracing::debug!("a stream's connection did not tell its end: {e}");
                return self.ask().await;
            }
        };
        if let Carrier::Turn(turn) = &mut self.carrier {
            turn.pass();
        }
        if is_awaited {
            let said = End::Said { modrev: self.end.modrev(), answer: Ok((self.moved, last)) };
            if let End::Comes { stream, .. } = std::mem::replace(&mut self.end, said) {
                stream.let_go();
            }
        }
        Ok(())
    }

    /// Waits for the stream before it on its connection, whose waits have bounds of their own.
    async fn come_to_turn(&mut self) -> Result<(), Error> {
        let Beside { carrier: Carrier::Turn(turn), end, .. } = self else { return Ok(()) };
        tokio::select! {
            biased;
            came = turn.wait() => came.map_err(|e| Fault::Cut(Arc::new(e)).into()),
            e = end.failed() => Err(of_the_way(e)),
        }
    }

    /// The stream, where its connection is to tell the end and has not: who drops it ends it.
    pub fn take_unended(&mut self) -> Option<OwnedStream> {
        let End::Comes { stream, modrev } = &self.end else { return None };
        let gone = End::Asked { id: stream.id(), modrev: *modrev, waiting: None, comes: false };
        match std::mem::replace(&mut self.end, gone) {
            End::Comes { stream, .. } => Some(stream),
            _ => None,
        }
    }

    /// Whether what failed may be what it was to share, or that nobody came for it in time: it was asked for ahead of need.
    pub fn was_asked_ahead(&self) -> bool {
        self.was_asked_ahead
    }

    /// Whether others had its connection before it.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// The connection, where others may come behind it.
    pub fn track(&self) -> Option<&Arc<Track>> {
        if let Carrier::Turn(turn) = &self.carrier { Some(&turn.track) } else { None }
    }

    /// The number by which the server knows it, if it has not told its end.
    pub fn id(&self) -> Option<u32> {
        if let End::Asked { id, .. } = self.end { Some(id) } else { None }
    }

    /// Asks the server for the end, where that was put off.
    async fn ask(&mut self) -> Result<(), Error> {
        let (End::Unasked { stream, modrev } | End::Comes { stream, modrev }) = &self.end else { return Ok(()) };
        let (client, id, modrev) = (&self.file.client, stream.id(), *modrev);
        let comes = matches!(self.end, End::Comes { .. });
        let request = T::Streamend { id, flags: Octal(0) };
        let waiting = client.handle().begin(request, Default::default(), client.lane.depth()).await?;
        self.depth = waiting.depth();
        let asked = End::Asked { id, modrev, waiting: Some(waiting), comes };
        if let End::Unasked { stream, .. } | End::Comes { stream, .. } = std::mem::replace(&mut self.end, asked) {
            stream.let_go();
        }
        Ok(())
    }

    /// Writes all of it into the socket.
    pub async fn write(&mut self, mut data: &[u8]) -> Result<(), Error> {
        if let Some(Err(e)) = &self.ended {
            return Err(e.clone());
        }
        let most = self.patience();
        while !data.is_empty() {
            let is_asked = !matches!(self.end, End::Unasked { .. });
            let patience = if is_asked { most } else { most.min(STALL) };
            let Beside { carrier, end, .. } = self;
            let write = async {
                let socket = carrier.own();
                tokio::select! {
                    biased;
                    e = end.failed() => Err(e),
                    written = async { socket?.write_in_step(data).await } => Ok(written),
                }
            };
            let result = match tokio::time::timeout(patience, write).await {
                Err(_) if !is_asked => self.ask().await.map(|()| 0),
                Err(_) => Err(Error::TimedOut(patience)),
                Ok(Err(e)) => Err(of_the_way(e)),
                Ok(Ok(Ok(0))) => Err(self.broke(io::ErrorKind::WriteZero.into()).await),
                Ok(Ok(Ok(written))) => Ok(written),
                Ok(Ok(Err(e))) => Err(self.broke(e).await),
            };
            match result {
                Ok(written) => {
                    self.moved += written as u64;
                    data = &data[written..];
                }
                Err(e) => {
                    self.ended = Some(Err(e.clone()));
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// Gives the socket all that is left of what was written, and its end. How long the rest ought to take, and how long the server may take for it.
    async fn end_sending(&mut self) -> Result<(Duration, Duration), Error> {
        if let Some(Err(e)) = &self.ended {
            return Err(e.clone());
        }
        // Behind TLS bytes may be left that the socket had no room for.
        let patience = self.patience();
        let carrier = &mut self.carrier;
        match tokio::time::timeout(patience, async { carrier.own()?.shutdown().await }).await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return Err(self.broke(e).await),
            Err(_) => return Err(Error::TimedOut(patience)),
        }
        // What the socket holds goes at the rate at which the rest went; nobody sees it go.
        let left = self.moved.min(IN_SOCKET);
        let rest = self.began.elapsed().mul_f64(left as f64 / self.moved.max(1) as f64);
        Ok((rest, patience.saturating_add(rest * 2)))
    }

    /// Whether the server was not asked for its end yet.
    pub fn is_late(&self) -> bool {
        matches!(self.end, End::Unasked { .. })
    }

    /// What was written, all of which was given to the socket, where the server was not asked for its end; else it comes to that.
    pub async fn into_late(mut self) -> Result<Option<Late>, Error> {
        if !self.is_late() || self.length != Some(self.moved) {
            return self.finish_writing().await.map(|_| None);
        }
        let (rest, patience) = self.end_sending().await?;
        Ok(match self.end {
            End::Unasked { stream, .. } => {
                Some(Late { stream, sent: self.moved, patience, rest, _connection: self.carrier })
            }
            _ => None,
        })
    }

    /// The end of what was written: waits until the server has it all in the file.
    pub async fn finish_writing(mut self) -> Result<u64, Error> {
        let (rest, patience) = self.end_sending().await?;
        if let End::Unsaid = self.end {
            return self.finish_unsaid(patience).await;
        }
        self.ask().await?;
        // Who ends it before its length is told EPIPE for that.
        let is_short = self.length.is_some_and(|length| self.moved < length);
        let answer = self.end.answer(&self.file, rest, patience).await;
        let (count, _) = answer.map_err(|e| if is_short { e } else { of_the_way(e) })?;
        self.file.client.lane.raise(self.depth);
        let (sent, written) = (self.moved, count);
        if sent == written { Ok(sent) } else { Err(Fault::Unwritten { sent, written }.into()) }
    }

    /// In `.s` the server closes the connection when it has come to its end, and no more can be known but the file's size.
    async fn finish_unsaid(mut self, patience: Duration) -> Result<u64, Error> {
        let cut = |e: io::Error| Error::from(Fault::Cut(Arc::new(e)));
        let mut none = [0];
        let carrier = &mut self.carrier;
        match tokio::time::timeout(patience, async { carrier.own()?.read(&mut none).await }).await {
            Ok(Ok(0)) => {}
            Ok(Ok(_)) => return Err(Fault::Beyond { asked: 0 }.into()),
            Ok(Err(e)) => return Err(cut(e)),
            Err(_) => return Err(Error::TimedOut(patience)),
        }
        self.file.client.lane.raise(self.depth);
        let size = self.file.metadata_by(&self.file.client).await?.size;
        let written = size.saturating_sub(self.offset);
        let sent = self.moved;
        if written < sent { Err(Fault::Unwritten { sent, written }.into()) } else { Ok(sent) }
    }

    /// The connection came to its end: whether that is the end of what was asked for.
    async fn check_end(&mut self) -> Result<(), Error> {
        let moved = self.moved;
        if let End::Unsaid = self.end {
            if self.length == Some(moved) {
                return Ok(());
            }
            let size = self.file.metadata_by(&self.file.client).await?.size;
            let there = size.saturating_sub(self.offset).min(self.length.unwrap_or(u64::MAX));
            return match moved {
                _ if moved < there => Err(Fault::Short { got: moved, sent: there }.into()),
                // What has no size may have bytes.
                _ if moved > there && size > 0 => Err(Fault::Changed.into()),
                _ => Ok(()),
            };
        }
        if self.length == Some(moved) {
            self.hear_end().await?;
        }
        // What ended before its length tells nothing.
        self.ask().await?;
        // The server looks at the file when we have acknowledged its end: at once with ours, and not when TCP would by itself.
        if moved > 0
            && let Carrier::Own(connection) = &mut self.carrier
        {
            let _ = tokio::time::timeout(LAST_WORD, connection.socket.shutdown()).await;
        }
        // Nothing at all came perhaps because the connection did not get through: then nobody answers, and there is another way.
        let patience = self.patience();
        let is_early = self.length.is_some_and(|length| moved < length);
        let answer = match is_early {
            true => self.word_on_an_early_end(patience).await,
            false => self.end.answer(&self.file, Duration::ZERO, patience).await,
        };
        let (sent, modrev) = match answer {
            Ok(told) => told,
            // All of it is here, and nobody is left to say what became of the file.
            Err(_) if matches!(self.end, End::Forgotten { .. }) && self.length == Some(moved) => (moved, 0),
            // The server knows of no end: it was made on the way, which lets bytes through.
            Err(Error::TimedOut(_)) if moved > 0 || self.goes_on.is_some() => {
                return Err(Fault::Cut(Arc::new(io::ErrorKind::UnexpectedEof.into())).into());
            }
            Err(e) => return Err(of_the_way(e)),
        };
        let at_first = self.end.modrev();
        if sent != moved {
            return Err(Fault::Short { got: moved, sent }.into());
        }
        self.is_vouched_for = at_first != 0 && modrev != 0;
        if self.is_of_another_state() {
            return Err(Fault::Changed.into());
        }
        if at_first != 0 && modrev != 0 && at_first != modrev {
            return Err(Fault::Changed.into());
        }
        Ok(())
    }

    /// What the server says of a stream that came to its end before its length. One that ended it knows why by then; one that does not was not who ended it,
    /// and may send on for long to where nobody takes it. While it says other things its word may be behind those.
    async fn word_on_an_early_end(&mut self, patience: Duration) -> Result<(u64, u64), Error> {
        let word = patience.min(self.last_word());
        let until = Instant::now() + patience.min(word * BUSY);
        loop {
            // What is heard at first may be answers to what was asked for to remind it.
            let (since, left) = (Instant::now() + word / 2, until.saturating_duration_since(Instant::now()));
            match self.end.answer(&self.file, Duration::ZERO, word.min(left)).await {
                Err(Error::TimedOut(_)) if self.file.client.heard_at() > since && Instant::now() < until => {}
                answer => return answer,
            }
        }
    }

    /// The connection broke: the server's word on it if it has one.
    async fn broke(&mut self, e: io::Error) -> Error {
        // What can be asked nothing any more does not say it.
        let is_asked = self.ask().await.is_ok();
        let patience = self.last_word();
        let answer = match self.end {
            _ if !is_asked => return Fault::Cut(Arc::new(e)).into(),
            End::Unsaid => return Fault::Cut(Arc::new(e)).into(),
            _ => self.end.answer(&self.file, Duration::ZERO, patience).await,
        };
        match answer {
            Err(said @ Error::Refused(_)) => of_the_way(said),
            _ => Fault::Cut(Arc::new(e)).into(),
        }
    }

    /// Closes its connection by a reset.
    pub fn reset(mut self) {
        if let Ok(socket) = self.carrier.own() {
            socket.reset_on_close();
        }
    }

    /// Ends it at the server, unless that has told its end.
    pub fn give_up(mut self) {
        // What is told by the connection is ended by who drops it.
        if let (None, Some(id)) = (self.take_unended(), self.id()) {
            self.file.client.handle().end_stream(id);
        }
    }

    /// The end before the end.
    pub fn finish_reading(self) -> Result<(), Error> {
        match self.ended {
            Some(Err(e)) => Err(e),
            _ => Ok(()),
        }
    }
}

/// The server's word that the connection broke is not of the file.
fn of_the_way(e: Error) -> Error {
    let kind = match &e {
        Error::Refused(said) if said.errno == Errno::ECONNRESET => io::ErrorKind::ConnectionReset,
        Error::Refused(said) if said.errno == Errno::EPIPE => io::ErrorKind::BrokenPipe,
        _ => return e,
    };
    Fault::Cut(Arc::new(kind.into())).into()
}

/// What a server answered, and what was dialled meanwhile. A refusal is told at once: a connection is of no use then.
async fn unless_refused<A, D>(
    call: impl Future<Output = Result<A, Error>>,
    dial: impl Future<Output = D>,
) -> Result<(A, D), Error> {
    match select(pin!(call), pin!(dial)).await {
        Either::Left((reply, dial)) => Ok((reply?, dial.await)),
        Either::Right((dialled, call)) => Ok((call.await?, dialled)),
    }
}

/// Tells the server that nobody will come for the stream's bytes.
pub(super) async fn give_up(client: &Client, id: u32) {
    let _ = client.call(T::Streamend { id, flags: Octal(streamend::ABORT) }).await;
}

/// The data connection of what was given, which was told whose it is.
async fn connect(dialer: &Dialer, given: &Given, dialled: Option<io::Result<Socket>>) -> io::Result<Socket> {
    let mut socket = match (given, dialled) {
        (Given::Port(host, port) | Given::Token { grant: Grant { elsewhere: Some((host, port)), .. }, .. }, _) => {
            dialer.open_at(host, *port).await?
        }
        (_, Some(opened)) => opened?,
        (_, None) => return Err(io::ErrorKind::Unsupported.into()),
    };
    if let Given::Token { grant, is_said: false } = given {
        socket.write_all(&opening(stream::PREFACE, &grant.token)).await?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn copies_are_asked_for_in_whole_units_and_all_of_a_stream_by_none() {
        let ask = |copies, length| Ask { copies, ..Ask::alone(true, 0, Some(length)) }.flags();
        let unit = stream::LAST_UNIT;
        assert_eq!(ask(0, 9 * unit), 0);
        assert_eq!(ask(1, 9 * unit), stream::COPIED | 1 << stream::LAST_BIT);
        assert_eq!(ask(unit + 1, 9 * unit), stream::COPIED | 2 << stream::LAST_BIT);
        assert_eq!((ask(9 * unit, 9 * unit), ask(u64::MAX, 9 * unit)), (stream::COPIED, stream::COPIED));
        // More than the flags can say: all, which is more.
        let most = u64::from(stream::LAST_MOST) * unit;
        assert_eq!(ask(most, 2 * most), stream::COPIED | stream::LAST_MOST << stream::LAST_BIT);
        assert_eq!(ask(most + 1, 2 * most), stream::COPIED);
        assert_eq!(Ask { copies: unit, sharing: Sharing::First, ..Ask::alone(true, 0, Some(9 * unit)) }.flags(), 0x113);
    }

    #[test]
    fn a_refusal_does_not_wait_for_a_connection_that_is_of_no_use() {
        let refused = ready(Err::<(), _>(Error::from(Errno::EOPNOTSUPP)));
        let told = unless_refused(refused, pending::<()>()).now_or_never().expect("it is told at once");
        assert_eq!(told.unwrap_err().errno(), Errno::EOPNOTSUPP);
        assert_eq!(unless_refused(ready(Ok(1)), ready(2)).now_or_never().unwrap().unwrap(), (1, 2));
    }

    #[test]
    fn the_servers_word_that_a_connection_broke_is_told_as_that() {
        for errno in [Errno::ECONNRESET, Errno::EPIPE] {
            assert!(matches!(of_the_way(errno.into()), Error::Stream(Fault::Cut(_))), "{errno:?}");
        }
        assert_eq!(of_the_way(Errno::EIO.into()).errno(), Errno::EIO);
    }
}
