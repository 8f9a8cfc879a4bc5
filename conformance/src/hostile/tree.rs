//! The fixed tree that the hostile server serves.
//!
//! ```text
//! greeting            "hello\n"; in 9P2000.L with an extended attribute user.note = "remark"
//! numbers             3 MiB and 1 byte of known content, see numbers()
//! empty               nothing
//! dir/                a, b, c: "a\n", "b\n", "c\n"; and inner/, an empty directory
//! deep/d1/…/d19/leaf  "leaf\n", 21 names below the root
//! link                a symbolic link to greeting     (this and what follows: not in 9P2000)
//! loop                a symbolic link to itself
//! trap                a symbolic link to ../outside
//! decoy/planted       "planted\n"
//! ```
//!
//! Beside them lie the names that a misbehaviour wants, files of "odd\n".

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use ninefold::server::{Attach, Create, Cx, File, FileServer, User};
use ninefold::tree::ramfs::RamFs;
use ninefold_proto::open::{Access, Open};
use ninefold_proto::types::WalkElem;
use ninefold_proto::{Dialect, Errno, Error, Name};

/// Content of `greeting`.
pub const GREETING: &[u8] = b"hello\n";

/// Bytes of `numbers`: three frames of 1 MiB are not enough for it.
pub const NUMBERS_BYTES: usize = (3 << 20) + 1;

/// Directories below `deep`: with `deep` and `leaf` more names than one walk may have (16, walk(5)).
pub const DEPTH: usize = 19;

/// Names below the root, 9P2000's: entries of the root's listing.
pub const ROOT_NAMES: [&str; 5] = ["deep", "dir", "empty", "greeting", "numbers"];

/// Those that the root has beside, where there are symbolic links.
pub const LINK_NAMES: [&str; 4] = ["decoy", "link", "loop", "trap"];

/// Content of `numbers`: no two pieces of it that a client can confuse are alike.
pub fn numbers() -> &'static [u8] {
    static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut content: Vec<u8> = (0u32..).flat_map(|n| n.to_le_bytes()).take(NUMBERS_BYTES - 1).collect();
        content.push(b'\n');
        content
    });
    &CONTENT
}

/// The path of the leaf below `deep`, names parted by `/`.
pub fn deep_path() -> String {
    let middle: Vec<String> = (1..=DEPTH).map(|n| format!("d{n}")).collect();
    format!("deep/{}/leaf", middle.join("/"))
}

/// The attach name of the tree for a dialect.
pub(super) fn name_for(dialect: Dialect) -> &'static str {
    if dialect == Dialect::Plan9 { "plain" } else { "linked" }
}

/// The tree, with links or without, and with further files in its root.
pub(super) async fn grow(links: bool, extra: &[&[u8]]) -> Result<RamFs, Error> {
    let tree = RamFs::new();
    let who = Attach { user: Arc::new(User::of_process()), dialect: Dialect::Linux };
    let (_, file) = tree.attach(&Cx::detached(), &who).wait().await?;
    let root = Grower(file);
    let greeting = root.file(b"greeting", GREETING).await?;
    greeting.0.xattr_set(&Cx::detached(), b"user.note", Bytes::from_static(b"remark"), 0).wait().await?;
    root.file(b"numbers", numbers()).await?;
    root.file(b"empty", b"").await?;
    let dir = root.dir(b"dir").await?;
    for (name, content) in [(b"a", b"a\n"), (b"b", b"b\n"), (b"c", b"c\n")] {
        dir.file(name, content).await?;
    }
    dir.dir(b"inner").await?;
    let mut at = root.dir(b"deep").await?;
    for n in 1..=DEPTH {
        at = at.dir(format!("d{n}").as_bytes()).await?;
    }
    at.file(b"leaf", b"leaf\n").await?;
    if links {
        root.link(b"link", b"greeting").await?;
        root.link(b"loop", b"loop").await?;
        root.link(b"trap", b"../outside").await?;
        root.dir(b"decoy").await?.file(b"planted", b"planted\n").await?;
    }
    for name in extra {
        root.file(name, b"odd\n").await?;
    }
    Ok(tree)
}

/// A directory in which files are made.
struct Grower(Arc<dyn File>);

impl Grower {
    async fn at(&self, elems: &[WalkElem<'_>]) -> Result<Grower, Error> {
        let walked = self.0.walk(&Cx::detached(), elems).wait().await?;
        walked.file.map(Grower).ok_or(Error::new(Errno::ENOENT))
    }

    async fn file(&self, file: &[u8], content: &'static [u8]) -> Result<Grower, Error> {
        // The fid that creates becomes the file.
        let dir = self.at(&[]).await?;
        let open = Open { access: Access::Write, flags: 0, remove_on_clunk: false };
        let what = Create { name: name(file)?, mode: 0o644, dm: 0, gid: None, open, exclusive: true };
        let made = Grower(dir.0.create(&Cx::detached(), what).wait().await?.file);
        let mut written = 0;
        while written < content.len() {
            let rest = Bytes::from_static(&content[written..]);
            written += made.0.write(&Cx::detached(), written as u64, rest).wait().await? as usize;
        }
        Ok(made)
    }

    async fn dir(&self, dir: &[u8]) -> Result<Grower, Error> {
        let dir = name(dir)?;
        self.0.mkdir(&Cx::detached(), dir, 0o755, None).wait().await?;
        self.at(&[WalkElem::Name(dir)]).await
    }

    async fn link(&self, link: &[u8], target: &[u8]) -> Result<(), Error> {
        self.0.symlink(&Cx::detached(), name(link)?, target, None).wait().await.map(drop)
    }
}

fn name(bytes: &[u8]) -> Result<Name<'_>, Error> {
    Name::new(bytes).map_err(|e| Error::with_text(Errno::EINVAL, e.to_string()))
}
