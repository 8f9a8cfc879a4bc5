//! Where `mv` and `ln` put things: under a name, or into a directory that is there.

use ninefold::client::{Client, Error, Follow};
use ninefold::proto::Errno;
use ninefold::transport::Address;

use super::target::Target;
use crate::place::{ends_in_dots, says_directory};

/// Whether two addresses are of one tree of one server, whatever dialect each asks for.
pub fn same_tree(a: &Address, b: &Address) -> bool {
    let aname = |address: &Address| address.aname.clone().unwrap_or_default();
    a.place == b.place && aname(a) == aname(b)
}

/// The name that an address ends in, for a file to be made there. A path that says that it is a directory's (`new/`,
/// `file/.`) is taken only for a directory, and only with a slash: `none/x/..` is no name for anything new.
pub async fn new_name(client: &Client, address: &Address, is_dir: bool) -> Result<Target, Error> {
    let path = &address.path;
    if ends_in_dots(path) || !is_dir && says_directory(path) {
        return Err(not_a_file(client, address).await);
    }
    Target::named(client, address).await
}

/// Why a path that says that it is a directory's is not a file's: EISDIR, ENOTDIR, or that there is nothing.
pub async fn not_a_file(client: &Client, address: &Address) -> Error {
    match client.walk(&address.path, Follow::All).await {
        Ok(node) if node.qid().is_dir() => Errno::EISDIR.into(),
        Ok(_) => Errno::ENOTDIR.into(),
        Err(e) => e,
    }
}

/// The name `base` in the directory at an address, if there is one, a symbolic link to one included.
pub async fn into_directory(client: &Client, address: &Address, base: &[u8]) -> Result<Option<Target>, Error> {
    match client.walk(&address.path, Follow::All).await {
        Ok(node) if node.qid().is_dir() => Ok(Some(Target::within(node, address, base))),
        Ok(_) => Ok(None),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e),
    }
}
