//! What the demo's client does in one conversation, in the messages of its dialect.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ninefold::proto::message::{Names, Octal, Payload, Perm, StatBytes};
use ninefold::proto::open::lflags;
use ninefold::proto::stat::{Stat, dir_entries, omode};
use ninefold::proto::wire::{READ_OVERHEAD, Reader, WRITE_OVERHEAD};
use ninefold::proto::{Dialect, Fid, R, T};

use super::client::Client;

const ROOT: Fid = Fid(0);
const FILE: Fid = Fid(1);
const DIR: Fid = Fid(2);

const NAME: &str = "demo.dat";
const NEW_NAME: &str = "demo.renamed";

pub struct Errand<'a> {
    pub client: Client,
    /// Where the server's tree lies, to look at it from the other side.
    pub tree: &'a Path,
    pub content: &'a [u8],
}

pub struct Times {
    pub write: Duration,
    pub read: Duration,
    /// Of the bytes read back.
    pub checksum: u64,
}

impl Errand<'_> {
    pub fn run(mut self) -> anyhow::Result<Times> {
        let began = Instant::now();
        self.create().context("create")?;
        self.write().context("write")?;
        self.clunk(FILE)?;
        let write = began.elapsed();
        let on_disk = std::fs::read(self.tree.join(NAME)).context("the file on disk")?;
        ensure!(on_disk == self.content, "the file on disk is not what was written");
        let began = Instant::now();
        let back = self.read().context("read")?;
        let read = began.elapsed();
        let (checksum, expected) = (checksum(&back), checksum(self.content));
        ensure!(
            checksum == expected && back.len() == self.content.len(),
            "wrote {} bytes with checksum {expected:016x}, read {} with {checksum:016x}",
            self.content.len(),
            back.len()
        );
        self.expect_listing(&[NAME])?;
        self.rename().context("rename")?;
        self.expect_listing(&[NEW_NAME])?;
        self.walk(FILE, Some(NEW_NAME))?;
        self.client.rpc(&T::Remove { fid: FILE })?;
        self.expect_listing(&[])?;
        Ok(Times { write, read, checksum })
    }

    /// Makes `newfid` stand for `name` in the root, or for the root itself.
    fn walk(&mut self, newfid: Fid, name: Option<&str>) -> anyhow::Result<()> {
        let mut scratch = Vec::new();
        let wnames = Names::encode(name.map(str::as_bytes), &mut scratch);
        match self.client.rpc(&T::Walk { fid: ROOT, newfid, wnames })? {
            R::Walk { wqids } if wqids.len() == wnames.len() => Ok(()),
            _ => bail!("Twalk did not reach {}", name.unwrap_or("the root")),
        }
    }

    fn clunk(&mut self, fid: Fid) -> anyhow::Result<()> {
        self.client.rpc(&T::Clunk { fid }).map(|_| ())
    }

    fn create(&mut self) -> anyhow::Result<()> {
        self.walk(FILE, None)?;
        let name = NAME.as_bytes();
        let create = match self.client.dialect {
            Dialect::Linux => {
                let flags = Octal(lflags::CREAT | lflags::EXCL | lflags::WRONLY);
                T::Lcreate { fid: FILE, name, flags, mode: Octal(0o644), gid: rustix::process::getegid().as_raw() }
            }
            _ => T::Create { fid: FILE, name, perm: Perm(0o644), mode: omode::WRITE, extension: b"" },
        };
        self.client.rpc(&create).map(|_| ())
    }

    fn write(&mut self) -> anyhow::Result<()> {
        let chunk = (self.client.msize - WRITE_OVERHEAD) as usize;
        let mut offset = 0;
        while offset < self.content.len() {
            let data = &self.content[offset..self.content.len().min(offset + chunk)];
            match self.client.rpc(&T::Write { fid: FILE, offset: offset as u64, data: Payload(data) })? {
                R::Write { count } if (1..=data.len()).contains(&(count as usize)) => offset += count as usize,
                other => bail!("wrote {} bytes, the reply is {other:?}", data.len()),
            }
        }
        Ok(())
    }

    fn read(&mut self) -> anyhow::Result<Vec<u8>> {
        self.walk(FILE, Some(NAME))?;
        self.open(FILE)?;
        let mut all = Vec::with_capacity(self.content.len());
        loop {
            let count = self.client.msize - READ_OVERHEAD;
            match self.client.rpc(&T::Read { fid: FILE, offset: all.len() as u64, count })? {
                R::Read { data } if data.0.is_empty() => break,
                R::Read { data } => all.extend_from_slice(data.0),
                other => bail!("Tread was answered by {}", other.name()),
            }
            ensure!(all.len() <= self.content.len(), "the file has more bytes than were written");
        }
        self.clunk(FILE)?;
        Ok(all)
    }

    /// For reading.
    fn open(&mut self, fid: Fid) -> anyhow::Result<()> {
        let open = match self.client.dialect {
            Dialect::Linux => T::Lopen { fid, flags: Octal(0) },
            _ => T::Open { fid, mode: omode::READ },
        };
        self.client.rpc(&open).map(|_| ())
    }

    fn expect_listing(&mut self, expected: &[&str]) -> anyhow::Result<()> {
        let found = self.list().context("list")?;
        ensure!(found == expected, "expected the directory to hold {expected:?}, found {found:?}");
        Ok(())
    }

    /// The names in the root, `.` and `..` left out.
    fn list(&mut self) -> anyhow::Result<Vec<String>> {
        self.walk(DIR, None)?;
        self.open(DIR)?;
        let (dialect, count) = (self.client.dialect, self.client.msize - READ_OVERHEAD);
        let mut names = Vec::new();
        let mut add = |name: &[u8]| names.push(String::from_utf8_lossy(name).into_owned());
        let mut offset = 0;
        loop {
            let list = match dialect {
                Dialect::Linux => T::Readdir { fid: DIR, offset, count },
                _ => T::Read { fid: DIR, offset, count },
            };
            match self.client.rpc(&list)? {
                R::Readdir { data } if !data.0.is_empty() => {
                    for entry in dir_entries(data.0) {
                        let entry = entry?;
                        offset = entry.offset;
                        add(entry.name);
                    }
                }
                R::Read { data } if !data.0.is_empty() => {
                    offset += data.0.len() as u64;
                    let mut reader = Reader::new(data.0);
                    while reader.remaining() > 0 {
                        add(Stat::read(&mut reader, dialect)?.name);
                    }
                }
                _ => break,
            }
        }
        self.clunk(DIR)?;
        names.retain(|name| name != "." && name != "..");
        Ok(names)
    }

    fn rename(&mut self) -> anyhow::Result<()> {
        if self.client.dialect == Dialect::Linux {
            let (oldname, newname) = (NAME.as_bytes(), NEW_NAME.as_bytes());
            let rename = T::Renameat { olddirfid: ROOT, oldname, newdirfid: ROOT, newname };
            return self.client.rpc(&rename).map(|_| ());
        }
        self.walk(FILE, Some(NAME))?;
        let mut stat = Vec::new();
        Stat { name: NEW_NAME.as_bytes(), ..Stat::UNTOUCHED }.encode(self.client.dialect, &mut stat);
        self.client.rpc(&T::Wstat { fid: FILE, stat: StatBytes(&stat) })?;
        self.clunk(FILE)
    }
}

/// FNV-1a, 64 bits.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}
