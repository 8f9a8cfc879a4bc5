//! A name in a directory, where a command is to act; the file need not exist.

use std::sync::Arc;

use ninefold::client::{Client, Error, Located, Node, components};
use ninefold::proto::{Dialect, Errno};
use ninefold::transport::Address;

use super::temporaries::Temporaries;

/// What stands in every temporary name between the file's name and the random characters.
pub const MARK: &str = ".ninefold-";

/// Random characters at the end of a temporary name, of 36: two thousand million names.
const RANDOM: usize = 6;

/// Bytes of the longest name (Linux's NAME_MAX).
const NAME_MAX: usize = 255;

/// `.NAME.ninefold-XXXXXX`, NAME cut so that it fits, between characters where it is UTF-8.
pub fn temporary_name(name: &[u8]) -> Vec<u8> {
    let room = NAME_MAX - 1 - MARK.len() - RANDOM;
    let cut = match std::str::from_utf8(name) {
        Ok(text) => (0..=room.min(name.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0),
        Err(_) => name.len().min(room),
    };
    let random = (0..RANDOM).map(|_| fastrand::alphanumeric().to_ascii_lowercase() as u8);
    b".".iter().chain(&name[..cut]).chain(MARK.as_bytes()).copied().chain(random).collect()
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Target {
    pub dir: Arc<Node>,
    /// Empty for the directory itself; see [`Target::itself`].
    pub name: Vec<u8>,
    /// Of the directory, for messages.
    pub address: Address,
}

impl Target {
    /// The name itself that an address ends in, be it of a symbolic link or of nothing. The root has none: EBUSY.
    pub async fn named(client: &Client, address: &Address) -> Result<Target, Error> {
        let (dir, name) = client.walk_parent(&address.path).await?;
        Target::visited(Arc::new(dir), name, address)
    }

    /// The file at an address, behind all symbolic links.
    pub async fn locate(client: &Client, address: &Address) -> Result<Target, Error> {
        let located = client.locate(&address.path).await?;
        Ok(Target::located(located, address))
    }

    /// The same of what was found.
    pub fn located(located: Located, address: &Address) -> Target {
        let Located { dir, dir_path, name, .. } = located;
        Target { dir: Arc::new(dir), name, address: Address { path: joined(&dir_path), ..address.clone() } }
    }

    /// A name that was come to, which `address` ends in.
    pub fn visited(dir: Arc<Node>, name: Vec<u8>, address: &Address) -> Result<Target, Error> {
        let mut above = components(&address.path)?;
        above.pop();
        Ok(Target { dir, name, address: Address { path: joined(&above), ..address.clone() } })
    }

    /// A name in the directory `node` at `address`.
    pub fn within(node: Node, address: &Address, name: &[u8]) -> Target {
        let path = joined(&components(&address.path).unwrap_or_default());
        Target { dir: Arc::new(node), name: name.to_vec(), address: Address { path, ..address.clone() } }
    }

    /// A directory that need not be in another: the root of a tree has no name.
    pub fn itself(node: Node, address: &Address) -> Target {
        Target::within(node, address, b"")
    }

    /// The file's own address, for messages, and for what is in it.
    pub fn own_address(&self) -> Address {
        if self.name.is_empty() { self.address.clone() } else { self.beside(&self.name) }
    }

    /// The file itself, a symbolic link too.
    pub async fn walk(&self) -> Result<Node, Error> {
        self.walk_as(self.dir.client()).await
    }

    /// The same by requests that count as caused by `client`'s replies; see [`Client::fork`].
    pub async fn walk_as(&self, client: &Client) -> Result<Node, Error> {
        let name = [self.name.as_slice()];
        self.dir.walk_as(client, if self.name.is_empty() { &[] } else { &name }).await
    }

    pub fn beside(&self, name: &[u8]) -> Address {
        Address { path: [&self.address.path[..], b"/", name].concat(), ..self.address.clone() }
    }

    /// A new name beside it, and where to find it.
    pub fn temporary(&self) -> (Vec<u8>, String) {
        let name = temporary_name(&self.name);
        let shown = self.beside(&name).to_string();
        (name, shown)
    }

    /// The same, if there is one.
    pub async fn find(&self) -> Result<Option<Node>, Error> {
        match self.walk().await {
            Ok(node) => Ok(Some(node)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Renames `name` of `from` to this name, in the place of whatever has it, where the server allows that in any way.
    /// For [`Temporaries::see_through`], as [`Target::swap`].
    pub async fn take(&self, temporaries: &Temporaries, from: &Node, name: &[u8]) -> Result<(), Error> {
        let Err(refused) = from.rename(name, &self.dir, &self.name).await else { return Ok(()) };
        // What servers of 9P2000 say to it is any text at all.
        let plan9 = from.client().dialect() == Dialect::Plan9 && matches!(refused, Error::Refused(_));
        if refused.errno() != Errno::EEXIST && !plan9 {
            return Err(refused);
        }
        match self.find().await? {
            None => Err(refused),
            Some(old) if old.qid().is_dir() => {
                drop(old);
                // An empty one; rename(2) would replace no other either.
                self.dir.unlink(&self.name, true).await?;
                from.rename(name, &self.dir, &self.name).await
            }
            Some(_) => self.swap(temporaries, from, name).await,
        }
    }

    /// Puts `name` of `from` in the place of the file here where a rename does not replace (9P2000): the old file is
    /// renamed aside, the new one to its name, and the old one removed. Between the first two there is no file of that
    /// name; nothing half-written ever has it. Refused, it leaves all as it was. For
    /// [`Temporaries::see_through`]: cut short it would leave the old file under a temporary name.
    pub async fn swap(&self, temporaries: &Temporaries, from: &Node, name: &[u8]) -> Result<(), Error> {
        let (aside, shown) = self.temporary();
        let entry = temporaries.enter(format!(
            "{shown}: the old {} may be left under this name: rename it back or remove it",
            self.own_address()
        ));
        if let Err(e) = self.dir.rename(&self.name, &self.dir, &aside).await {
            if is_refusal(&e) {
                entry.gone();
            }
            return Err(e);
        }
        if let Err(e) = from.rename(name, &self.dir, &self.name).await {
            if self.dir.rename(&aside, &self.dir, &self.name).await.is_ok() {
                entry.gone();
            }
            return Err(e);
        }
        entry.removed(&self.dir.unlink(&aside, false).await);
        Ok(())
    }
}

/// Whether the server said no, and nothing happened: after any other failure of a request it may have been carried out.
pub fn is_refusal(e: &Error) -> bool {
    matches!(e, Error::Refused(_) | Error::Unsupported { .. } | Error::Name(_) | Error::TooLarge(..))
}

fn joined(names: &[Vec<u8>]) -> Vec<u8> {
    names.iter().flat_map(|name| b"/".iter().chain(name)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_name_fits_and_keeps_its_characters_whole() {
        for name in [&b"x"[..], "é".repeat(127).as_bytes(), &[b'n'; 255], &[0xff; 255]] {
            let temporary = temporary_name(name);
            assert!(temporary.len() <= NAME_MAX && temporary.starts_with(b".") && temporary != temporary_name(name));
            assert_eq!(std::str::from_utf8(&temporary).is_ok(), std::str::from_utf8(name).is_ok());
        }
    }
}
