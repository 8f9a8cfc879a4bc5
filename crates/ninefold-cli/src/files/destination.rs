//! Where `mv` and `ln` put things: under a name, or into a directory that is there.

use ninefold::client::{Client, Error, Follow};
use ninefold::transport::Address;

use super::target::Target;

/// Whether two addresses are of one tree of one server, whatever dialect each asks for.
pub fn same_tree(a: &Address, b: &Address) -> bool {
    let aname = |address: &Address| address.aname.clone().unwrap_or_default();
    a.place == b.place && aname(a) == aname(b)
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
