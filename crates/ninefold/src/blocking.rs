//! [`client`] for programs without an async runtime: the same names, the same methods, and each call waits.
//!
//! ```no_run
//! use ninefold::blocking::Client;
//! use ninefold::client::{Error, Follow, Mode, Options};
//!
//! fn main() -> Result<(), Error> {
//!     let address = "9p://localhost/etc/motd".parse().expect("an address");
//!     let client = Client::connect(&address, Options::default())?;
//!     let node = client.walk(&address.path, Follow::All)?;
//!     let metadata = node.metadata()?;
//!     let file = node.open(Mode::READ)?;
//!     let mut reader = file.reader(0, Some(&metadata));
//!     while let Some(bytes) = reader.next()? {
//!         print!("{}", String::from_utf8_lossy(&bytes));
//!     }
//!     Ok(())
//! }
//! ```
//!
//! All connections of a process share one thread, which starts with the first call; calls may be made from any number of
//! threads at a time. Within a tokio runtime, on its blocking threads too, every call fails with
//! [`Error::WithinRuntime`], having done nothing: it would stop what else runs there. Use [`client`] there.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use ninefold_proto::attr::{SetAttr, Statfs};
use ninefold_proto::{Dialect, Qid};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::client::{self, Attach, Entry, Error, FileType, Follow, Listed, Lock, Metadata, Mode, Options, Stats};
use crate::transport::{self, Address};

/// The thread of all connections; made at the first call.
fn runtime() -> Result<&'static Runtime, Error> {
    static RUNTIME: OnceLock<Result<Runtime, Arc<io::Error>>> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).thread_name("ninefold").enable_all().build().map_err(Arc::new)
    });
    made.as_ref().map_err(|e| Error::Dial(e.clone()))
}

/// Waits on the caller's thread for what is done with [`client`]'s own types, on the thread of all connections.
///
/// # Errors
/// Those of the future; [`Error::WithinRuntime`].
pub fn block_on<T>(future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    wait(future)
}

fn wait<T, E: From<Error>>(future: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    if Handle::try_current().is_ok() {
        return Err(Error::WithinRuntime.into());
    }
    runtime()?.block_on(future)
}

/// Methods that wait for those of the same name, whose docs say the rest.
macro_rules! waiting {
    ($($(#[$doc:meta])* fn $name:ident(self $(, $arg:ident: $ty:ty)*) -> $out:ty;)*) => {
        $($(#[$doc])*
        pub fn $name(self $(, $arg: $ty)*) -> Result<$out, Error> {
            wait(self.0.$name($($arg),*)).map(Into::into)
        })*
    };
    ($($(#[$doc:meta])* fn $name:ident(&self $(, $arg:ident: $ty:ty)*) -> $out:ty;)*) => {
        $($(#[$doc])*
        pub fn $name(&self $(, $arg: $ty)*) -> Result<$out, Error> {
            wait(self.0.$name($($arg),*)).map(Into::into)
        })*
    };
}

mod namespace;

pub use namespace::Namespace;

/// See [`client::Client`].
#[derive(Clone, Debug)]
pub struct Client(client::Client);

/// See [`client::Node`].
#[derive(Debug)]
pub struct Node(client::Node);

/// See [`client::File`].
#[derive(Debug)]
pub struct File(client::File);

/// See [`client::Located`].
#[derive(Debug)]
pub struct Located {
    pub dir: Node,
    pub dir_path: Vec<Vec<u8>>,
    pub name: Vec<u8>,
    pub found: Option<Node>,
}

impl From<client::Node> for Node {
    fn from(node: client::Node) -> Node {
        Node(node)
    }
}

impl From<client::File> for File {
    fn from(file: client::File) -> File {
        File(file)
    }
}

/// For who goes on with [`client`]'s own, by [`block_on`].
impl From<File> for client::File {
    fn from(file: File) -> client::File {
        file.0
    }
}

impl Client {
    /// See [`client::Client::connect`].
    pub fn connect(address: &Address, options: Options) -> Result<Client, Error> {
        wait(client::Client::connect(address, options)).map(Client)
    }

    /// See [`client::Client::over`].
    pub fn over(stream: transport::Stream, attach: &Attach, options: Options) -> Result<Client, Error> {
        wait(client::Client::over(stream, attach, options)).map(Client)
    }

    /// See [`client::Client::dialect`].
    pub fn dialect(&self) -> Dialect {
        self.0.dialect()
    }

    /// See [`client::Client::msize`].
    pub fn msize(&self) -> u32 {
        self.0.msize()
    }

    /// See [`client::Client::stats`].
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// See [`client::Client::walk_parent`].
    pub fn walk_parent(&self, path: impl AsRef<[u8]>) -> Result<(Node, Vec<u8>), Error> {
        wait(self.0.walk_parent(path)).map(|(node, name)| (Node(node), name))
    }

    /// See [`client::Client::locate`].
    pub fn locate(&self, path: impl AsRef<[u8]>) -> Result<Located, Error> {
        let client::Located { dir, dir_path, name, found } = wait(self.0.locate(path))?;
        Ok(Located { dir: Node(dir), dir_path, name, found: found.map(Node) })
    }

    waiting! {
        /// See [`client::Client::root`].
        fn root(&self) -> Node;
        /// See [`client::Client::walk`].
        fn walk(&self, path: impl AsRef<[u8]>, follow: Follow) -> Node;
        /// See [`client::Client::metadata`].
        fn metadata(&self, path: impl AsRef<[u8]>, follow: Follow) -> Metadata;
        /// See [`client::Client::read`].
        fn read(&self, path: impl AsRef<[u8]>, most: usize) -> Bytes;
        /// See [`client::Client::remove`].
        fn remove(&self, path: impl AsRef<[u8]>) -> ();
        /// See [`client::Client::mkdir`].
        fn mkdir(&self, path: impl AsRef<[u8]>, perm: u32) -> ();
        /// See [`client::Client::rename`].
        fn rename(&self, path: impl AsRef<[u8]>, new_name: &[u8]) -> ();
    }

    waiting! {
        /// See [`client::Client::close`].
        fn close(self, patience: Duration) -> ();
    }
}

impl Node {
    /// See [`client::Node::qid`].
    pub fn qid(&self) -> Qid {
        self.0.qid()
    }

    /// See [`client::Node::link`].
    pub fn link(&self, name: &[u8], file: &Node) -> Result<(), Error> {
        wait(self.0.link(name, &file.0))
    }

    /// See [`client::Node::rename`].
    pub fn rename(&self, name: &[u8], new_dir: &Node, new_name: &[u8]) -> Result<(), Error> {
        wait(self.0.rename(name, &new_dir.0, new_name))
    }

    /// See [`client::Node::read_dir`].
    pub fn read_dir(&self) -> Result<ReadDir, Error> {
        wait(self.0.read_dir()).map(ReadDir)
    }

    /// See [`client::Node::into_read_dir`].
    pub fn into_read_dir(self) -> Result<ReadDir, Error> {
        wait(self.0.into_read_dir()).map(ReadDir)
    }

    /// See [`client::Node::list`].
    pub fn list(&self) -> Result<Listing<'_>, Error> {
        wait(self.0.list()).map(Listing)
    }

    waiting! {
        /// See [`client::Node::walk`].
        fn walk(&self, names: &[&[u8]]) -> Node;
        /// See [`client::Node::metadata`].
        fn metadata(&self) -> Metadata;
        /// See [`client::Node::metadata_of`].
        fn metadata_of(&self, name: &[u8]) -> Metadata;
        /// See [`client::Node::set`].
        fn set(&self, change: &SetAttr) -> ();
        /// See [`client::Node::truncate`].
        fn truncate(&self, size: u64) -> ();
        /// See [`client::Node::read_link`].
        fn read_link(&self) -> Vec<u8>;
        /// See [`client::Node::statfs`].
        fn statfs(&self) -> Statfs;
        /// See [`client::Node::mkdir`].
        fn mkdir(&self, name: &[u8], perm: u32) -> ();
        /// See [`client::Node::symlink`].
        fn symlink(&self, name: &[u8], target: &[u8]) -> ();
        /// See [`client::Node::mknod`].
        fn mknod(&self, name: &[u8], kind: FileType, perm: u32, device: (u32, u32)) -> ();
        /// See [`client::Node::unlink`].
        fn unlink(&self, name: &[u8], dir: bool) -> ();
        /// See [`client::Node::get_xattr`].
        fn get_xattr(&self, name: &[u8]) -> Vec<u8>;
        /// See [`client::Node::list_xattrs`].
        fn list_xattrs(&self) -> Vec<Vec<u8>>;
        /// See [`client::Node::set_xattr`].
        fn set_xattr(&self, name: &[u8], value: &[u8]) -> ();
        /// See [`client::Node::remove_xattr`].
        fn remove_xattr(&self, name: &[u8]) -> ();
    }

    /// See [`client::Node::open_and_look`].
    pub fn open_and_look(self, mode: Mode) -> Result<(File, Option<Metadata>), Error> {
        wait(self.0.open_and_look(mode)).map(|(file, metadata)| (File(file), metadata))
    }

    waiting! {
        /// See [`client::Node::open`].
        fn open(self, mode: Mode) -> File;
        /// See [`client::Node::create`].
        fn create(self, name: &[u8], mode: Mode, perm: u32) -> File;
        /// See [`client::Node::remove`].
        fn remove(self) -> ();
        /// See [`client::Node::clunk`].
        fn clunk(self) -> ();
    }
}

impl File {
    /// See [`client::File::qid`].
    pub fn qid(&self) -> Qid {
        self.0.qid()
    }

    /// See [`client::File::remove_on_drop`].
    pub fn remove_on_drop(&mut self) {
        self.0.remove_on_drop();
    }

    /// See [`client::File::keep`].
    pub fn keep(&mut self) {
        self.0.keep();
    }

    /// See [`client::File::reader`].
    pub fn reader(&self, offset: u64, metadata: Option<&Metadata>) -> Reader<'_> {
        Reader { reader: self.0.reader(offset, metadata), rest: Bytes::new() }
    }

    /// See [`client::File::read_ahead`].
    pub fn read_ahead(&self, metadata: Option<&Metadata>) -> ReadAhead<'_> {
        ReadAhead(self.0.read_ahead(metadata))
    }

    /// See [`client::File::writer`].
    pub fn writer(&self, offset: u64, metadata: Option<&Metadata>) -> Writer<'_> {
        Writer(self.0.writer(offset, metadata))
    }

    /// See [`client::File::stream_read`].
    pub fn stream_read(&self, offset: u64, length: Option<u64>) -> Result<Stream, Error> {
        wait(self.0.stream_read(offset, length)).map(Stream)
    }

    /// See [`client::File::stream_read_in_band`].
    pub fn stream_read_in_band(&self, offset: u64, length: Option<u64>) -> Stream {
        Stream(self.0.stream_read_in_band(offset, length))
    }

    /// See [`client::File::stream_write`].
    pub fn stream_write(&self, offset: u64, length: Option<u64>) -> Result<Stream, Error> {
        wait(self.0.stream_write(offset, length)).map(Stream)
    }

    waiting! {
        /// See [`client::File::read_at`].
        fn read_at(&self, offset: u64, count: u32) -> Bytes;
        /// See [`client::File::write_at`].
        fn write_at(&self, offset: u64, data: Bytes) -> u32;
        /// See [`client::File::write_behind`].
        fn write_behind(&self, offset: u64, data: Bytes) -> ();
        /// See [`client::File::flush`].
        fn flush(&self) -> ();
        /// See [`client::File::sync`].
        fn sync(&self) -> ();
        /// See [`client::File::metadata`].
        fn metadata(&self) -> Metadata;
        /// See [`client::File::set`].
        fn set(&self, change: &SetAttr) -> ();
        /// See [`client::File::try_lock`].
        fn try_lock(&self, lock: &Lock) -> bool;
        /// See [`client::File::unlock`].
        fn unlock(&self, lock: &Lock) -> ();
        /// See [`client::File::conflicting_lock`].
        fn conflicting_lock(&self, lock: &Lock) -> Option<Lock>;
    }

    waiting! {
        /// See [`client::File::close`].
        fn close(self) -> ();
        /// See [`client::File::remove`].
        fn remove(self) -> ();
    }
}

/// See [`client::Reader`]. What is on the way arrives between calls too.
#[derive(Debug)]
pub struct Reader<'f> {
    reader: client::Reader<'f>,
    /// Of what came last, what [`io::Read`] did not take.
    rest: Bytes,
}

impl Reader<'_> {
    /// See [`client::Reader::until`].
    pub fn until(self, end: u64) -> Self {
        Reader { reader: self.reader.until(end), ..self }
    }

    /// See [`client::Reader::position`].
    pub fn position(&self) -> u64 {
        self.reader.position() - self.rest.len() as u64
    }

    /// See [`client::Reader::missing`].
    pub fn missing(&self) -> u64 {
        self.reader.missing()
    }

    /// See [`client::Reader::next`].
    #[allow(clippy::should_implement_trait, reason = "the name of the method that it waits for")]
    pub fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if self.rest.is_empty() { wait(self.reader.next()) } else { Ok(Some(std::mem::take(&mut self.rest))) }
    }
}

/// Copies; [`Reader::next`] does not.
impl io::Read for Reader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let Some(mut bytes) = self.next()? else { return Ok(0) };
        let part = bytes.split_to(buf.len().min(bytes.len()));
        buf[..part.len()].copy_from_slice(&part);
        self.rest = bytes;
        Ok(part.len())
    }
}

/// See [`client::ReadAhead`].
#[derive(Debug)]
pub struct ReadAhead<'f>(client::ReadAhead<'f>);

impl ReadAhead<'_> {
    /// See [`client::ReadAhead::read_at`].
    pub fn read_at(&mut self, offset: u64, count: u32) -> Result<Bytes, Error> {
        wait(self.0.read_at(offset, count))
    }
}

/// See [`client::Writer`].
#[derive(Debug)]
pub struct Writer<'f>(client::Writer<'f>);

impl Writer<'_> {
    /// See [`client::Writer::position`].
    pub fn position(&self) -> u64 {
        self.0.position()
    }

    /// See [`client::Writer::written`].
    pub fn written(&self) -> u64 {
        self.0.written()
    }

    /// See [`client::Writer::write`].
    pub fn write(&mut self, data: Bytes) -> Result<(), Error> {
        wait(self.0.write(data))
    }

    /// See [`client::Writer::skip`].
    pub fn skip(&mut self, bytes: u64) {
        self.0.skip(bytes);
    }

    /// See [`client::Writer::within`].
    pub fn within(&mut self, span: u64) -> Result<(), Error> {
        wait(self.0.within(span))
    }

    /// See [`client::Writer::finish`].
    pub fn finish(&mut self) -> Result<u64, Error> {
        wait(self.0.finish())
    }
}

/// Copies; [`Writer::write`] does not. Flushing waits for the replies to all of it.
impl io::Write for Writer<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write(Bytes::copy_from_slice(buf))?;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.finish()?;
        Ok(())
    }
}

/// See [`client::Stream`]. What is on the way arrives between calls too.
#[derive(Debug)]
pub struct Stream(client::Stream);

impl Stream {
    /// See [`client::Stream::is_in_band`].
    pub fn is_in_band(&self) -> bool {
        self.0.is_in_band()
    }

    /// See [`client::Stream::moved`].
    pub fn moved(&self) -> u64 {
        self.0.moved()
    }

    /// See [`client::Stream::read`].
    pub fn read(&mut self, buf: &mut [u8]) -> Result<usize, Error> {
        wait(self.0.read(buf))
    }

    /// See [`client::Stream::next`].
    #[allow(clippy::should_implement_trait, reason = "the name of the method that it waits for")]
    pub fn next(&mut self) -> Result<Option<Bytes>, Error> {
        wait(self.0.next())
    }

    /// See [`client::Stream::write`].
    pub fn write(&mut self, data: &[u8]) -> Result<(), Error> {
        wait(self.0.write(data))
    }

    /// See [`client::Stream::write_bytes`].
    pub fn write_bytes(&mut self, data: Bytes) -> Result<(), Error> {
        wait(self.0.write_bytes(data))
    }

    waiting! {
        /// See [`client::Stream::finish`].
        fn finish(self) -> u64;
    }
}

impl io::Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(Stream::read(self, buf)?)
    }
}

/// There is nothing to flush: [`Stream::finish`] tells whether all is written.
impl io::Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Stream::write(self, buf)?;
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// See [`client::ReadDir`].
#[derive(Debug)]
pub struct ReadDir(client::ReadDir);

impl ReadDir {
    /// See [`client::ReadDir::next`].
    #[allow(clippy::should_implement_trait, reason = "the name of the method that it waits for")]
    pub fn next(&mut self) -> Result<Option<Entry>, Error> {
        wait(self.0.next())
    }

    waiting! {
        /// See [`client::ReadDir::all`].
        fn all(self) -> Vec<Entry>;
    }
}

/// See [`client::Listing`].
pub struct Listing<'d>(client::Listing<'d>);

impl Listing<'_> {
    /// See [`client::Listing::next`].
    #[allow(clippy::should_implement_trait, reason = "the name of the method that it waits for")]
    pub fn next(&mut self) -> Result<Option<Listed>, Error> {
        wait(self.0.next())
    }
}
