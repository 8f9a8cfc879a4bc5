//! Names in a directory: made, linked, renamed, removed.

use ninefold_proto::message::Octal;
use ninefold_proto::n1::rename2;
use ninefold_proto::stat::dm;
use ninefold_proto::types::Name;
use ninefold_proto::{Dialect, Errno, T};

use super::client::Client;
use super::error::Error;
use super::metadata::FileType;
use super::node::{Node, own_gid, plan9_kind, plan9_perm};

/// unlinkat(2)'s AT_REMOVEDIR.
pub(super) const REMOVEDIR: u32 = 0x200;

impl Node {
    /// Makes a directory. `perm`: 0 to 0o777 (.u and .L: 0o7777; in 9P2000 more is refused), cut down by the server as it
    /// sees fit.
    pub async fn mkdir(&self, name: &[u8], perm: u32) -> Result<(), Error> {
        Name::new(name)?;
        match self.client.dialect() {
            Dialect::Linux => {
                let dfid = self.fid.fid();
                self.client.call(T::Mkdir { dfid, name, mode: Octal(perm), gid: own_gid() }).await.map(drop)
            }
            dialect => self.plan9_create(name, dm::DIR | plan9_perm(perm, dialect)?, b"").await,
        }
    }

    /// Makes a symbolic link to `target`; not in 9P2000.
    pub async fn symlink(&self, name: &[u8], target: &[u8]) -> Result<(), Error> {
        Name::new(name)?;
        self.not_plan9("make a symbolic link")?;
        match self.client.dialect() {
            Dialect::Linux => {
                let request = T::Symlink { dfid: self.fid.fid(), name, symtgt: target, gid: own_gid() };
                self.client.call(request).await.map(drop)
            }
            _ => self.plan9_create(name, dm::SYMLINK | 0o777, target).await,
        }
    }

    /// Makes another name for `file`; not in 9P2000.
    pub async fn link(&self, name: &[u8], file: &Node) -> Result<(), Error> {
        Name::new(name)?;
        self.not_plan9("make a hard link")?;
        self.is_beside(file)?;
        match self.client.dialect() {
            Dialect::Linux => {
                let request = T::Link { dfid: self.fid.fid(), fid: file.fid.fid(), name };
                self.client.call(request).await.map(drop)
            }
            // The extension is the number of the fid to link to (S4, "Details").
            _ => self.plan9_create(name, dm::LINK | 0o777, file.fid.fid().to_string().as_bytes()).await,
        }
    }

    /// Makes a device, fifo or socket; not in 9P2000. `device`: major and minor number.
    pub async fn mknod(&self, name: &[u8], kind: FileType, perm: u32, device: (u32, u32)) -> Result<(), Error> {
        Name::new(name)?;
        self.not_plan9("make a special file")?;
        let (major, minor) = device;
        match self.client.dialect() {
            Dialect::Linux => {
                let mode = Octal(kind.mode_bits() | perm);
                let request = T::Mknod { dfid: self.fid.fid(), name, mode, major, minor, gid: own_gid() };
                self.client.call(request).await.map(drop)
            }
            dialect => {
                let extension = match kind {
                    FileType::BlockDevice => format!("b {major} {minor}"),
                    FileType::CharDevice => format!("c {major} {minor}"),
                    _ => String::new(),
                };
                self.plan9_create(name, plan9_kind(kind) | plan9_perm(perm, dialect)?, extension.as_bytes()).await
            }
        }
    }

    /// Tcreate of something that is not to be open: on a fid of its own, clunked afterwards.
    async fn plan9_create(&self, name: &[u8], perm: u32, extension: &[u8]) -> Result<(), Error> {
        let mut chain = self.client.chain();
        let (spot, walked) = chain.walk(self, &[]).await?;
        let made = chain.make(&spot, name, perm, extension).await?;
        chain.let_go(spot).await?;
        walked.take().await?;
        made.take().await?;
        Ok(())
    }

    /// Removes a name of this directory: of an empty directory when `dir`, else of anything but a directory.
    pub async fn unlink(&self, name: &[u8], dir: bool) -> Result<(), Error> {
        self.unlink_as(&self.client, name, dir).await
    }

    /// The same by requests that count as caused by `client`'s replies; see [`Client::fork`].
    pub async fn unlink_as(&self, client: &Client, name: &[u8], dir: bool) -> Result<(), Error> {
        Name::new(name)?;
        if client.dialect() == Dialect::Linux {
            let flags = Octal(if dir { REMOVEDIR } else { 0 });
            match client.call(T::Unlinkat { dirfid: self.fid.fid(), name, flags }).await {
                // diod does not have it.
                Err(e) if not_there(&e) => {}
                other => return other.map(drop),
            }
        }
        let node = self.walk_as(client, &[name]).await?;
        match (node.qid().is_dir(), dir) {
            (true, false) => Err(Errno::EISDIR.into()),
            (false, true) => Err(Errno::ENOTDIR.into()),
            _ => node.remove().await,
        }
    }

    /// Renames `name` of this directory to `new_name` in `new_dir`. In .L and .u an existing file there is replaced at
    /// once; in 9P2000 an existing name is EEXIST. 9P2000 and .u rename within one directory only.
    pub async fn rename(&self, name: &[u8], new_dir: &Node, new_name: &[u8]) -> Result<(), Error> {
        Name::new(name)?;
        Name::new(new_name)?;
        self.is_beside(new_dir)?;
        let dialect = self.client.dialect();
        if dialect != Dialect::Linux {
            if self.qid().path != new_dir.qid().path {
                return Err(Error::Unsupported { what: "move a file to another directory", dialect });
            }
            let mut chain = self.client.chain();
            let (spot, walked) = chain.walk(self, &[name]).await?;
            let renamed = chain.rename(&spot, new_dir, new_name).await?;
            chain.let_go(spot).await?;
            walked.take().await?;
            renamed.take().await?;
            return Ok(());
        }
        let (olddirfid, newdirfid) = (self.fid.fid(), new_dir.fid.fid());
        let request = T::Renameat { olddirfid, oldname: name, newdirfid, newname: new_name };
        match self.client.call(request).await {
            Err(e) if not_there(&e) => {}
            other => return other.map(drop),
        }
        let node = self.walk(&[name]).await?;
        let request = T::Rename { fid: node.fid.fid(), dfid: newdirfid, name: new_name };
        self.client.call(request).await.map(drop)
    }

    /// The same where nothing has the new name, else EEXIST (renameat2(2), RENAME_NOREPLACE); .n1 only.
    pub async fn rename_new(&self, name: &[u8], new_dir: &Node, new_name: &[u8]) -> Result<(), Error> {
        Name::new(name)?;
        Name::new(new_name)?;
        self.is_beside(new_dir)?;
        self.rename2(name, new_dir, new_name, rename2::NOREPLACE).await
    }

    /// Trades the two names, both of which must be there (renameat2(2), RENAME_EXCHANGE); .n1 only.
    pub async fn exchange(&self, name: &[u8], other_dir: &Node, other_name: &[u8]) -> Result<(), Error> {
        Name::new(name)?;
        Name::new(other_name)?;
        self.is_beside(other_dir)?;
        self.rename2(name, other_dir, other_name, rename2::EXCHANGE).await
    }

    async fn rename2(&self, name: &[u8], new_dir: &Node, new_name: &[u8], flags: u32) -> Result<(), Error> {
        let (olddirfid, newdirfid) = (self.fid.fid(), new_dir.fid.fid());
        let flags = Octal(flags);
        let request = T::Rename2 { olddirfid, oldname: name, newdirfid, newname: new_name, flags };
        self.client.call(request).await.map(drop)
    }

    /// Of one connection: elsewhere the number of its fid is another file's.
    fn is_beside(&self, other: &Node) -> Result<(), Error> {
        if other.fid.is_of(self.client.handle()) { Ok(()) } else { Err(Errno::EINVAL.into()) }
    }

    fn not_plan9(&self, what: &'static str) -> Result<(), Error> {
        match self.client.dialect() {
            dialect @ Dialect::Plan9 => Err(Error::Unsupported { what, dialect }),
            _ => Ok(()),
        }
    }
}

/// Whether the server does not have the message at all.
pub(super) fn not_there(e: &Error) -> bool {
    matches!(e.errno(), Errno::EOPNOTSUPP | Errno::ENOSYS)
}
