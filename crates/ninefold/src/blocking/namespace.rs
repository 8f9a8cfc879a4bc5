//! Name spaces without an async runtime.

use bytes::Bytes;
use ninefold_proto::attr::SetAttr;

use super::{Client, File, Node, wait};
use crate::client::{Follow, Listed, Looked, Metadata, Mode, Options};
use crate::ns::file::Line;
use crate::ns::{self, Error, Flags, Mounted, Mtab, Order, Path};
use crate::transport::Address;

/// See [`ns::Namespace`].
#[derive(Clone, Debug)]
pub struct Namespace(ns::Namespace);

impl Namespace {
    /// See [`ns::Namespace::new`].
    pub fn new(options: Options) -> Namespace {
        Namespace(ns::Namespace::new(options))
    }

    /// See [`ns::Namespace::private`].
    pub fn private(&self) -> Namespace {
        Namespace(self.0.private())
    }

    /// See [`ns::Namespace::table`].
    pub fn table(&self) -> Mtab<Mounted> {
        self.0.table()
    }

    /// See [`ns::Namespace::dot`].
    pub fn dot(&self) -> Path {
        self.0.dot()
    }

    /// See [`ns::Namespace::clients`].
    pub fn clients(&self) -> Vec<Client> {
        self.0.clients().into_iter().map(Client).collect()
    }

    /// See [`ns::Namespace::show`].
    pub fn show(&self) -> Vec<u8> {
        self.0.show()
    }

    waiting! {
        /// See [`ns::Namespace::mount`].
        fn mount(&self, server: &Address, old: impl AsRef<[u8]>, how: (Order, Flags)) -> ();
        /// See [`ns::Namespace::bind`].
        fn bind(&self, new: impl AsRef<[u8]>, old: impl AsRef<[u8]>, how: (Order, Flags)) -> ();
        /// See [`ns::Namespace::unmount`].
        fn unmount(&self, new: Option<&[u8]>, old: impl AsRef<[u8]>) -> ();
        /// See [`ns::Namespace::clear`].
        fn clear(&self) -> ();
        /// See [`ns::Namespace::cd`].
        fn cd(&self, dir: impl AsRef<[u8]>) -> ();
        /// See [`ns::Namespace::run`].
        fn run(&self, lines: &[Line]) -> ();
        /// See [`ns::Namespace::may_cache`].
        fn may_cache(&self, name: impl AsRef<[u8]>) -> bool;
        /// See [`ns::Namespace::walk`].
        fn walk(&self, name: impl AsRef<[u8]>, follow: Follow) -> Node;
        /// See [`ns::Namespace::metadata`].
        fn metadata(&self, name: impl AsRef<[u8]>, follow: Follow) -> Metadata;
        /// See [`ns::Namespace::look`].
        fn look(&self, name: impl AsRef<[u8]>, follow: Follow) -> Looked;
        /// See [`ns::Namespace::set`].
        fn set(&self, name: impl AsRef<[u8]>, change: &SetAttr, follow: Follow) -> ();
        /// See [`ns::Namespace::read_link`].
        fn read_link(&self, name: impl AsRef<[u8]>) -> Vec<u8>;
        /// See [`ns::Namespace::access`].
        fn access(&self, name: impl AsRef<[u8]>, mode: u32) -> u32;
        /// See [`ns::Namespace::list`].
        fn list(&self, name: impl AsRef<[u8]>) -> Vec<Listed>;
        /// See [`ns::Namespace::open`].
        fn open(&self, name: impl AsRef<[u8]>, mode: Mode) -> File;
        /// See [`ns::Namespace::read`].
        fn read(&self, name: impl AsRef<[u8]>, most: usize) -> Bytes;
        /// See [`ns::Namespace::create`].
        fn create(&self, name: impl AsRef<[u8]>, mode: Mode, perm: u32, exclusive: bool) -> File;
        /// See [`ns::Namespace::write`].
        fn write(&self, name: impl AsRef<[u8]>, data: Bytes, perm: u32) -> ();
        /// See [`ns::Namespace::mkdir`].
        fn mkdir(&self, name: impl AsRef<[u8]>, perm: u32) -> ();
        /// See [`ns::Namespace::unlink`].
        fn unlink(&self, name: impl AsRef<[u8]>, dir: bool) -> ();
        /// See [`ns::Namespace::remove`].
        fn remove(&self, name: impl AsRef<[u8]>) -> ();
        /// See [`ns::Namespace::rename`].
        fn rename(&self, name: impl AsRef<[u8]>, new_name: impl AsRef<[u8]>) -> ();
    }
}
