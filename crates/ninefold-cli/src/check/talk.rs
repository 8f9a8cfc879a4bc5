//! Requests in words that hold in every dialect: [`Conn::open`] is Topen or Tlopen.
//!
//! The short ones return the [`Answer`], whatever it is. Those that give a value expect that it works, and fail the case
//! where it does not.

use ninefold::proto::attr::getattr;
use ninefold::proto::message::{Mask, Names, Octal, Optional, Payload, Perm, R, StatBytes, T};
use ninefold::proto::stat::{self, Stat, dm};
use ninefold::proto::types::NAME_MAX;
use ninefold::proto::{Dialect, Fid, Qid};

use super::conn::Conn;
use super::frame::Answer;
use super::verdict::{End, ensure};

/// The root of the tree attached to.
pub const ROOT: Fid = Fid(0);
/// The case's own directory.
pub const HERE: Fid = Fid(1);
/// What a case's helpers use and clunk.
const SPARE: Fid = Fid(9_000);

/// How to open: the mode of Topen and the flags of Tlopen.
#[derive(Clone, Copy, Debug)]
pub struct How {
    pub mode: u8,
    pub flags: u32,
}

pub const READ: How = How { mode: 0, flags: 0 };
pub const WRITE: How = How { mode: 1, flags: 1 };
pub const RDWR: How = How { mode: 2, flags: 2 };
/// For writing, and emptied.
pub const TRUNC: How = How { mode: 0x11, flags: 0o1001 };

/// Permissions of what the suite makes: the user's own.
pub const PERM: u32 = 0o600;
const DIR_PERM: u32 = 0o700;

/// One entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub name: Vec<u8>,
    pub qid: Qid,
    /// Where to read on behind it: .L's cookie; in the other dialects the offset behind its record.
    pub next: u64,
}

/// What every dialect tells of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    pub qid: Qid,
    /// Permission bits, 0 to 0o777.
    pub perm: u32,
    pub size: u64,
    /// Seconds since 1970.
    pub mtime: u64,
    pub is_dir: bool,
}

impl Conn {
    pub async fn walk(&mut self, fid: Fid, newfid: Fid, names: &[&[u8]]) -> Result<Answer, End> {
        let mut scratch = Vec::new();
        let wnames = Names::encode(names.iter().copied(), &mut scratch);
        self.ask(&T::Walk { fid, newfid, wnames }).await
    }

    /// Walks to a new fid, all the way.
    pub async fn reach(&mut self, fid: Fid, newfid: Fid, names: &[&[u8]]) -> Result<Vec<Qid>, End> {
        let frame = self.walk(fid, newfid, names).await?.ok()?;
        let qids = frame.wqids();
        ensure(qids.len() == names.len(), format!("{} qids", names.len()), || frame.text())?;
        Ok(qids)
    }

    pub async fn clunk(&mut self, fid: Fid) -> Result<Answer, End> {
        self.ask(&T::Clunk { fid }).await
    }

    pub async fn remove(&mut self, fid: Fid) -> Result<Answer, End> {
        self.ask(&T::Remove { fid }).await
    }

    pub async fn read(&mut self, fid: Fid, offset: u64, count: u32) -> Result<Answer, End> {
        self.ask(&T::Read { fid, offset, count }).await
    }

    pub async fn write_at(&mut self, fid: Fid, offset: u64, data: &[u8]) -> Result<Answer, End> {
        self.ask(&T::Write { fid, offset, data: Payload(data) }).await
    }

    pub async fn open(&mut self, fid: Fid, how: How) -> Result<Answer, End> {
        let message = self.opening(fid, how);
        self.ask(&message).await
    }

    pub fn opening(&self, fid: Fid, how: How) -> T<'static> {
        match self.dialect {
            Dialect::Linux => T::Lopen { fid, flags: Octal(how.flags) },
            _ => T::Open { fid, mode: how.mode },
        }
    }

    /// Makes and opens a file; the fid becomes the file's.
    pub async fn create(&mut self, fid: Fid, name: &[u8], how: How) -> Result<Answer, End> {
        let message = self.creation(fid, name, how);
        self.ask(&message).await
    }

    pub fn creation<'a>(&self, fid: Fid, name: &'a [u8], how: How) -> T<'a> {
        match self.dialect {
            // O_CREAT, as Linux's client says it
            Dialect::Linux => T::Lcreate { fid, name, flags: Octal(how.flags | 0o100), mode: Octal(PERM), gid: gid() },
            _ => T::Create { fid, name, perm: Perm(PERM), mode: how.mode, extension: b"" },
        }
    }

    /// Makes a directory in the one that `dfid` stands for, and leaves `dfid` where it is.
    pub async fn mkdir(&mut self, dfid: Fid, name: &[u8]) -> Result<Answer, End> {
        if self.dialect == Dialect::Linux {
            return self.ask(&T::Mkdir { dfid, name, mode: Octal(DIR_PERM), gid: gid() }).await;
        }
        self.special(dfid, name, dm::DIR | DIR_PERM, b"").await
    }

    /// Tcreate of something that is not a plain file, by a fid of its own.
    pub async fn special(&mut self, dfid: Fid, name: &[u8], perm: u32, extension: &[u8]) -> Result<Answer, End> {
        self.reach(dfid, SPARE, &[]).await?;
        let answer = self.ask(&T::Create { fid: SPARE, name, perm: Perm(perm), mode: 0, extension }).await?;
        self.clunk(SPARE).await?.ok()?;
        Ok(answer)
    }

    /// A new directory.
    pub async fn dir(&mut self, name: &[u8]) -> Result<(), End> {
        self.mkdir(HERE, name).await?.ok().map(drop)
    }

    /// A new file with these bytes, in the case's directory.
    pub async fn file(&mut self, name: &[u8], content: &[u8]) -> Result<(), End> {
        self.file_in(HERE, name, content).await
    }

    pub async fn file_in(&mut self, dfid: Fid, name: &[u8], content: &[u8]) -> Result<(), End> {
        self.reach(dfid, SPARE, &[]).await?;
        self.create(SPARE, name, WRITE).await?.ok()?;
        self.write_all(SPARE, 0, content).await?;
        self.clunk(SPARE).await?.ok().map(drop)
    }

    /// Writes all of `data`, in as many messages as it takes.
    pub async fn write_all(&mut self, fid: Fid, offset: u64, data: &[u8]) -> Result<(), End> {
        let mut done = 0;
        while done < data.len() {
            let end = data.len().min(done + self.io_size() as usize);
            let frame = self.write_at(fid, offset + done as u64, &data[done..end]).await?.ok()?;
            let count = frame.count() as usize;
            ensure((1..=end - done).contains(&count), format!("1 to {} bytes taken", end - done), || frame.text())?;
            done += count;
        }
        Ok(())
    }

    /// Reads an open fid from `offset` to the end.
    pub async fn read_all(&mut self, fid: Fid, offset: u64) -> Result<Vec<u8>, End> {
        let mut all = Vec::new();
        loop {
            let count = self.io_size();
            let frame = self.read(fid, offset + all.len() as u64, count).await?.ok()?;
            let data = frame.data();
            ensure(data.len() <= count as usize, format!("at most {count} bytes"), || frame.text())?;
            if data.is_empty() {
                return Ok(all);
            }
            all.extend(data);
        }
    }

    /// The largest count of a read or write that every server takes: IOHDRSZ off the msize.
    pub fn io_size(&self) -> u32 {
        self.msize.unwrap_or(4096) - ninefold::proto::wire::IO_HEADER
    }

    /// What a file of the case's directory holds.
    pub async fn content(&mut self, name: &[u8]) -> Result<Vec<u8>, End> {
        self.reach(HERE, SPARE, &[name]).await?;
        self.open(SPARE, READ).await?.ok()?;
        let content = self.read_all(SPARE, 0).await?;
        self.clunk(SPARE).await?.ok()?;
        Ok(content)
    }

    /// Fails unless the file holds `expected`.
    pub async fn holds(&mut self, name: &[u8], expected: &[u8]) -> Result<(), End> {
        let content = self.content(name).await?;
        let show = |bytes: &[u8]| match bytes.len() {
            0..=40 => format!("'{}'", bytes.escape_ascii()),
            n => format!("{n} bytes that begin with '{}'", bytes[..40].escape_ascii()),
        };
        ensure(content == expected, format!("{} in {}", show(expected), name.escape_ascii()), || show(&content))
    }

    /// A fid walked to `name` in the case's directory and opened.
    pub async fn opened(&mut self, name: &[u8], fid: Fid, how: How) -> Result<(), End> {
        self.reach(HERE, fid, &[name]).await?;
        self.open(fid, how).await?.ok().map(drop)
    }

    /// Whether a name can be walked to. The fid used is clunked.
    pub async fn exists(&mut self, dfid: Fid, name: &[u8]) -> Result<bool, End> {
        let answer = self.walk(dfid, SPARE, &[name]).await?;
        if answer.frame.is_error() {
            return Ok(false);
        }
        self.clunk(SPARE).await?.ok()?;
        Ok(true)
    }

    /// Fails unless `fid` is unknown to the server: Tclunk of it is an error.
    pub async fn unknown(&mut self, fid: Fid) -> Result<(), End> {
        let answer = self.clunk(fid).await?;
        ensure(answer.frame.is_error(), format!("fid {fid} to be unknown, and its Tclunk an error"), || {
            answer.frame.text()
        })
    }

    /// Fails unless `fid` stands for a file: its attributes can be asked for.
    pub async fn known(&mut self, fid: Fid) -> Result<Facts, End> {
        self.facts(fid).await
    }

    /// Tstat or Tgetattr, as it is.
    pub async fn ask_facts(&mut self, fid: Fid) -> Result<Answer, End> {
        match self.dialect {
            Dialect::Linux => self.ask(&T::Getattr { fid, request_mask: Mask(getattr::BASIC) }).await,
            _ => self.ask(&T::Stat { fid }).await,
        }
    }

    pub async fn facts(&mut self, fid: Fid) -> Result<Facts, End> {
        let frame = self.ask_facts(fid).await?.ok()?;
        match frame.message()? {
            R::Getattr { qid, mode, size, mtime_sec, .. } => {
                Ok(Facts { qid, perm: mode.0 & 0o777, size, mtime: mtime_sec, is_dir: mode.0 & 0o170_000 == 0o040_000 })
            }
            R::Stat { stat: StatBytes(bytes) } => {
                let stat = Stat::decode(bytes, self.dialect)
                    .map_err(|e| End::fail("a stat record", format!("{}: {e}", frame.text())))?;
                let (perm, is_dir) = (stat.mode & 0o777, stat.mode & dm::DIR != 0);
                Ok(Facts { qid: stat.qid, perm, size: stat.length, mtime: stat.mtime.into(), is_dir })
            }
            _ => Err(End::fail("attributes", frame.text())),
        }
    }

    /// Twstat.
    pub async fn wstat(&mut self, fid: Fid, stat: &Stat<'_>) -> Result<Answer, End> {
        let mut bytes = Vec::new();
        stat.encode(self.dialect, &mut bytes);
        self.ask(&T::Wstat { fid, stat: StatBytes(&bytes) }).await
    }

    /// One read of a directory.
    pub async fn entries(&mut self, fid: Fid, offset: u64, count: u32) -> Result<Vec<Entry>, End> {
        let answer = match self.dialect {
            Dialect::Linux => self.ask(&T::Readdir { fid, offset, count }).await?,
            _ => self.read(fid, offset, count).await?,
        };
        let frame = answer.ok()?;
        let data = frame.data();
        ensure(data.len() <= count as usize, format!("at most {count} bytes of entries"), || frame.text())?;
        let broken = |e| End::fail("whole entries", format!("{}: {e}", frame.text()));
        let mut entries = Vec::new();
        if self.dialect == Dialect::Linux {
            for entry in stat::dir_entries(&data) {
                let entry = entry.map_err(broken)?;
                entries.push(Entry { name: entry.name.to_vec(), qid: entry.qid, next: entry.offset });
            }
        } else {
            let mut next = offset;
            for stat in stat::stats(&data, self.dialect) {
                let stat = stat.map_err(broken)?;
                next += stat.encoded_len(self.dialect) as u64;
                entries.push(Entry { name: stat.name.to_vec(), qid: stat.qid, next });
            }
        }
        let bad = entries.iter().find(|e| e.name.is_empty() || e.name.len() > NAME_MAX || e.name.contains(&b'/'));
        ensure(bad.is_none(), "names", || format!("{bad:?}"))?;
        Ok(entries)
    }

    /// Reads an open directory from `offset` to its end, `count` bytes at a time.
    pub async fn entries_from(&mut self, fid: Fid, offset: u64, count: u32) -> Result<Vec<Entry>, End> {
        let (mut all, mut at) = (Vec::new(), offset);
        loop {
            let entries = self.entries(fid, at, count).await?;
            let Some(last) = entries.last() else { return Ok(all) };
            at = last.next;
            all.extend(entries);
            ensure(all.len() <= 100_000, "an end of the directory", || format!("{} entries so far", all.len()))?;
        }
    }

    /// The names in a directory, sorted, `.` and `..` left out.
    pub async fn names(&mut self, dfid: Fid) -> Result<Vec<Vec<u8>>, End> {
        self.reach(dfid, SPARE, &[]).await?;
        self.open(SPARE, READ).await?.ok()?;
        let count = self.io_size();
        let entries = self.entries_from(SPARE, 0, count).await?;
        self.clunk(SPARE).await?.ok()?;
        let mut names = without_dots(entries);
        names.sort();
        Ok(names)
    }

    pub async fn fsync(&mut self, fid: Fid) -> Result<Answer, End> {
        self.ask(&T::Fsync { fid, datasync: Optional(0) }).await
    }
}

/// The names in the order in which they came.
pub fn without_dots(entries: Vec<Entry>) -> Vec<Vec<u8>> {
    entries.into_iter().map(|entry| entry.name).filter(|name| name != b"." && name != b"..").collect()
}

/// The group that new files get in .L: the one of whoever runs the suite.
pub fn gid() -> u32 {
    rustix::process::getegid().as_raw()
}

/// `n` bytes in which every place is told from its neighbours.
pub fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i % 251) as u8).collect()
}
