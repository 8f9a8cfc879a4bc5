//! A small new file in one round trip: made under another name, written, and given its own, as one group whose guard ends it
//! with the first request that fails ([`Chain::all_or_stop`]). So the file appears whole, or not at all. `.n1` only.
//!
//! [`Client::put`] and [`Node::put`] take a [`NewFile`]; what went wrong [`Unput`] tells, with what may be left.

use bytes::Bytes;
use ninefold_proto::attr::SetAttr;
use ninefold_proto::types::{MAXWELEM, Name};
use ninefold_proto::wire::IO_HEADER;
use ninefold_proto::{Errno, Qid};

use super::chain::{Chain, Opened, Promise, Spot};
use super::client::Client;
use super::error::Error;
use super::file::File;
use super::node::{Mode, Node};
use super::resolve::{Located, components, locate_or_make};
use super::stream::{Grant, Granted, Saying};

/// Requests of one group at most, so that a Tsession and the guard fit into 64 with them (docs/protocol.md, "Groups").
const MEMBERS_MAX: usize = 62;

/// A file to be made in a directory.
#[derive(Clone, Copy, Debug)]
pub struct NewFile<'n> {
    /// Nothing may have it.
    pub name: &'n [u8],
    /// What it is called until it is whole; nothing may have this either.
    pub part: &'n [u8],
    /// Permissions that it is made with, 0 to 0o777, cut down by the server as it sees fit.
    pub perm: u32,
    /// Attributes that it gets when all is written.
    pub set: Option<&'n SetAttr>,
    /// Permissions that it gets when it has its name, where the part is to be kept from others: of a part that something has
    /// the name of `perm` is all that it ever had.
    pub mode: Option<u32>,
    /// It is on the server's disk before it gets its name.
    pub sync: bool,
}

/// Why there is no such file.
#[derive(Debug)]
pub enum Unput {
    /// Nothing was done: it cannot be done so, or was refused before anything was made.
    Nothing(Error),
    /// The part is there, in part or whole, and was refused the rest, from `step` on.
    Part { step: Step, error: Error },
    /// The part is there, whole, and something has the name.
    Taken,
    /// The server took less than all of a write: the part is there, and why it is not whole nobody said.
    Short,
    /// The file has its name, and all that was to be in it, but not its [`NewFile::mode`].
    Mode(Error),
    /// Nobody knows what was done.
    Unknown(Error),
}

/// What is done to a file after it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Write,
    /// The attributes of [`NewFile::set`].
    Set,
    Sync,
    /// The letting go of it, at which some servers tell what they could not write.
    Close,
    /// Its name. `EINVAL` is what file systems say that cannot rename to what must be free (renameat2(2), RENAME_NOREPLACE).
    Rename,
}

impl Client {
    /// Makes a file in the directory at `dir`, whose path goes through no symbolic link (else [`Unput::Nothing`]).
    pub async fn put(&self, dir: &[u8], new: &NewFile<'_>, data: Bytes) -> Result<(), Unput> {
        let names = components(dir).map_err(Unput::Nothing)?;
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        if names.len() > MAXWELEM || self.fitting(&names).len() < names.len() {
            return Err(Unput::Nothing(Errno::ENAMETOOLONG.into()));
        }
        let (mut chain, guard, piece) = begin(self, new, data.len(), 1).await?;
        let (dir, walked) = chain.walk_root(&names).await.map_err(unknown)?;
        let (file, cloned) = chain.walk_spot(&dir, &[]).await.map_err(unknown)?;
        let row = Row::ask(&mut chain, &dir, file, new, (data, piece)).await?;
        guard.take().await.map_err(nothing)?;
        if walked.take().await.map_err(nothing)?.len() < names.len() {
            return Err(Unput::Nothing(Errno::ENOENT.into()));
        }
        cloned.take().await.map_err(nothing)?;
        row.take().await
    }
}

impl Node {
    /// Makes a file in this directory, by requests of `client`, which is of the same connection; see [`Client::fork`].
    pub async fn put(&self, client: &Client, new: &NewFile<'_>, data: Bytes) -> Result<(), Unput> {
        let (mut chain, guard, piece) = begin(client, new, data.len(), 0).await?;
        let (file, cloned) = chain.walk(self, &[]).await.map_err(unknown)?;
        let row = Row::ask(&mut chain, self, file, new, (data, piece)).await?;
        guard.take().await.map_err(nothing)?;
        cloned.take().await.map_err(nothing)?;
        row.take().await
    }
}

/// A chain whose guard reaches to the rename, and the bytes of each write; `walks` are those before the file's own.
async fn begin(
    client: &Client,
    new: &NewFile<'_>,
    bytes: usize,
    walks: usize,
) -> Result<(Chain, Promise<()>, usize), Unput> {
    for name in [new.name, new.part] {
        Name::new(name).map_err(|e| Unput::Nothing(e.into()))?;
    }
    let piece = (client.msize() - IO_HEADER) as usize;
    // The file's walk, its making, its clunk and its rename.
    let members = 4 + walks + bytes.div_ceil(piece) + usize::from(new.set.is_some()) + usize::from(new.sync);
    // The second fid's walk, its mode and its clunk.
    let members = members + if new.mode.is_some() { 3 } else { 0 };
    let fits = members <= MEMBERS_MAX;
    let mut chain = client.chain();
    match u16::try_from(members).ok().filter(|_| fits) {
        Some(members) => {
            let guard = chain.all_or_stop(members).await.map_err(Unput::Nothing)?;
            Ok((chain, guard, piece))
        }
        None => Err(Unput::Nothing(Error::TooLarge("the file", client.dialect()))),
    }
}

/// Where names are.
pub(super) trait Dir {
    /// Renames within it, to a name that nothing has.
    async fn rename_new(&self, chain: &mut Chain, from: &[u8], to: &[u8]) -> Result<Promise<()>, Error>;
}

impl Dir for Spot {
    async fn rename_new(&self, chain: &mut Chain, from: &[u8], to: &[u8]) -> Result<Promise<()>, Error> {
        chain.rename_at((self, from), (self, to), true).await
    }
}

impl Dir for Node {
    async fn rename_new(&self, chain: &mut Chain, from: &[u8], to: &[u8]) -> Result<Promise<()>, Error> {
        chain.rename_in(self, from, to).await
    }
}

/// What was asked for the file itself.
struct Row {
    made: Promise<Opened>,
    /// With the bytes that each was asked to write.
    written: Vec<(Promise<u32>, usize)>,
    /// The walk to a second fid of the file.
    second: Option<Promise<Vec<Qid>>>,
    then: Vec<(Step, Promise<()>)>,
    renamed: Promise<()>,
    mode: Option<Promise<()>>,
}

impl Row {
    /// `file` is a spot at `dir`. An error here is one before anything was known of what was asked.
    async fn ask(
        chain: &mut Chain,
        dir: &impl Dir,
        file: Spot,
        new: &NewFile<'_>,
        (mut data, piece): (Bytes, usize),
    ) -> Result<Row, Unput> {
        let made = chain.create(&file, new.part, Mode::WRITE, new.perm).await.map_err(unknown)?;
        // The first is clunked before the rename. From the file and not by its name, which may be another's by then: whoever may
        // write to the directory would choose whose permissions are changed.
        let (second, walked) = match new.mode {
            Some(_) => Some(chain.walk_spot(&file, &[]).await.map_err(unknown)?).unzip(),
            None => (None, None),
        };
        let (mut written, mut then, mut offset) = (Vec::new(), Vec::new(), 0);
        while !data.is_empty() {
            let some = data.split_to(piece.min(data.len()));
            let bytes = some.len();
            // One that does not fit any more, as a server that was presumed has agreed on less, is refused: were it cut, nothing
            // would stop the rename.
            written.push((chain.write_whole(&file, offset, some).await.map_err(unknown)?, bytes));
            offset += bytes as u64;
        }
        if let Some(change) = new.set {
            then.push((Step::Set, chain.set(&file, change).await.map_err(unknown)?));
        }
        if new.sync {
            then.push((Step::Sync, chain.sync(&file).await.map_err(unknown)?));
        }
        // Before the rename: some servers tell only here that they could not write.
        then.push((Step::Close, chain.clunk(file).await.map_err(unknown)?));
        let renamed = dir.rename_new(chain, new.part, new.name).await.map_err(unknown)?;
        let mut mode = None;
        if let (Some(second), Some(bits)) = (second, new.mode) {
            let change = SetAttr { mode: Some(bits), ..SetAttr::default() };
            mode = Some(chain.set(&second, &change).await.map_err(unknown)?);
            chain.let_go(second).await.map_err(unknown)?;
        }
        Ok(Row { made, written, second: walked, then, renamed, mode })
    }

    async fn take(self) -> Result<(), Unput> {
        self.made.take().await.map_err(nothing)?;
        if let Some(second) = self.second {
            second.take().await.map_err(|e| part(Step::Write, e))?;
        }
        for (promise, bytes) in self.written {
            if (promise.take().await.map_err(|e| part(Step::Write, e))? as usize) < bytes {
                return Err(Unput::Short);
            }
        }
        for (step, promise) in self.then {
            promise.take().await.map_err(|e| part(step, e))?;
        }
        match self.renamed.take().await {
            Err(Error::Refused(e)) if e.errno == Errno::EEXIST => return Err(Unput::Taken),
            renamed => renamed.map_err(|e| part(Step::Rename, e))?,
        }
        match self.mode {
            Some(mode) => {
                mode.take().await.map_err(|e| if let Error::Refused(_) = e { Unput::Mode(e) } else { unknown(e) })
            }
            None => Ok(()),
        }
    }
}

/// What was not even asked, or asked and not answered: what came before may have been done.
fn unknown(e: Error) -> Unput {
    Unput::Unknown(e)
}

/// What failed before anything was made.
fn nothing(e: Error) -> Unput {
    if let Error::Refused(_) = e { Unput::Nothing(e) } else { Unput::Unknown(e) }
}

/// What failed behind that.
fn part(step: Step, error: Error) -> Unput {
    if let Error::Refused(_) = error { Unput::Part { step, error } } else { Unput::Unknown(error) }
}

/// A part of a new file that will be written by a stream of its own ([`File::stream_write`]).
#[derive(Clone, Default, Debug)]
pub struct Stretch {
    pub offset: u64,
    pub length: u64,
    /// The first of its bytes, no more than `length`, or none: those that will be written there in any case. As many as a new connection takes are sent with the
    /// question for the stream, a round trip before the others can be; the server may write them even if nobody comes for the stream, or later.
    pub head: Bytes,
}

/// Streams of parts of a file that is to be made, whose tokens and first bytes are on their way already.
pub(super) struct Said(Vec<((u64, u64), Saying)>);

impl Said {
    /// As many of `parts` as may be asked for before connections are known to be had. Before anything is asked: an error here is one of nothing
    /// that was done.
    pub fn begin(client: &Client, chain: &Chain, parts: &[Stretch]) -> Result<Said, Error> {
        let parts = &parts[..chain.at_once(parts.len())];
        client.prepare_streams(parts.len());
        let most = |part: &Stretch| usize::try_from(part.length).unwrap_or(usize::MAX);
        let begin = |part: &Stretch| {
            let head = part.head.slice(..part.head.len().min(most(part)));
            Saying::begin(client, head).map(|saying| ((part.offset, part.length), saying))
        };
        parts.iter().map(begin).collect::<Result<_, _>>().map(Said)
    }

    /// The requests for them.
    pub fn members(&self) -> u16 {
        self.0.len() as u16
    }
}

/// A file that was asked to be made, with its streams.
pub(super) struct Making {
    spot: Spot,
    made: Promise<Opened>,
    asked: Vec<((u64, u64), Promise<Grant>, Saying)>,
}

impl Making {
    /// `spot` is at the directory.
    pub async fn ask(chain: &mut Chain, spot: Spot, name: &[u8], perm: u32, said: Said) -> Result<Making, Error> {
        let made = chain.create(&spot, name, Mode::WRITE, perm).await?;
        let mut asked = Vec::with_capacity(said.0.len());
        for (part, saying) in said.0 {
            asked.push((part, chain.stream_to(&spot, part, saying.token).await?, saying));
        }
        Ok(Making { spot, made, asked })
    }

    pub async fn take(self) -> Result<File, Error> {
        let file = self.spot.into_file(self.made.take().await?, Mode::WRITE)?;
        for (part, grant, saying) in self.asked {
            // Why it is not is told by who asks for another.
            if let Ok(grant) = grant.take().await {
                file.grant(Granted::new(grant.of(part)?, Some(saying)));
            }
        }
        Ok(file)
    }
}

/// A file that is to be made beside a name that nothing has.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'n> {
    /// What it is called; nothing may have this either.
    pub part: &'n [u8],
    /// Permissions that it is made with, 0 to 0o777, cut down by the server as it sees fit.
    pub perm: u32,
    /// By which it will be written.
    pub parts: &'n [Stretch],
}

impl Client {
    /// What is at `path`, as [`Client::locate`] finds it; and where nothing is, the file of `draft`, made in the directory and opened to be written. In `.n1`, and
    /// where the path leads through no symbolic link, both in one round trip, with the streams as by [`Node::make_file`]: the guard of that group sees to it
    /// that nothing is made where something has the name. In every other case none is made. A refusal is one of the looking: then none is there either.
    pub async fn locate_or_make(&self, path: &[u8], draft: &Draft<'_>) -> Result<(Located, Option<File>), Error> {
        locate_or_make(self, path, Some(draft)).await
    }
}

impl Node {
    /// Makes a plain file that does not exist in this directory, and opens it to be written, as [`Node::create`] does; in `.n1` in one round trip. The
    /// streams of `parts` are asked for in the same one where that may be. The requests are `client`'s, and so is the file.
    pub async fn make_file(&self, client: &Client, name: &[u8], perm: u32, parts: &[Stretch]) -> Result<File, Error> {
        if !client.version().is_n1() {
            return self.walk_as(client, &[]).await?.create(name, Mode::WRITE, perm).await;
        }
        let mut chain = client.chain();
        let said = Said::begin(client, &chain, parts)?;
        let guard = chain.all_or_stop(2 + said.members()).await?;
        let (spot, walked) = chain.walk(self, &[]).await?;
        let making = Making::ask(&mut chain, spot, name, perm, said).await?;
        guard.take().await?;
        walked.take().await?;
        making.take().await
    }

    /// Makes a directory in this one and walks to it, or to what has the name already: in `.n1` in one round trip. Beside
    /// the node is what came of the making. The requests are `client`'s, and so is the node.
    pub async fn make_dir(&self, client: &Client, name: &[u8], perm: u32) -> Result<(Node, Result<(), Error>), Error> {
        if !self.client.version().is_n1() {
            let made = self.mkdir(name, perm).await;
            return match self.walk_as(client, &[name]).await {
                Ok(node) => Ok((node, made)),
                Err(e) => Err(made.err().unwrap_or(e)),
            };
        }
        Name::new(name)?;
        let mut chain = client.chain();
        let made = chain.mkdir_in(self, name, perm).await?;
        let (spot, walked) = chain.walk(self, &[name]).await?;
        let made = made.take().await;
        match (walked.take().await, made) {
            (Ok(qids), made) => {
                let qid = qids.last().copied().unwrap_or_default();
                Ok((spot.into_node(qid)?, made))
            }
            // Nothing was made, and that is why nothing is there.
            (Err(Error::Refused(_)), Err(refused)) => Err(refused),
            (Err(e), _) => Err(e),
        }
    }
}
