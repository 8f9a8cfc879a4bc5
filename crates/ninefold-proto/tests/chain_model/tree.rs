//! The files of one user, and what one request at a time does to them: the model that chains are held against.

use std::collections::BTreeMap;

use ninefold_proto::{Dialect, Errno, Error};

/// A request of a chain. `slot` is one of its fids, walked to by its first request from the root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// To the user's directory, or to a file in it; or to nowhere at all.
    Walk {
        slot: usize,
        to: To,
    },
    Open {
        slot: usize,
        write: bool,
    },
    Create {
        slot: usize,
        name: char,
    },
    Read {
        slot: usize,
        offset: u64,
    },
    Write {
        slot: usize,
        offset: u64,
        byte: u8,
    },
    Stat {
        slot: usize,
    },
    Rename {
        slot: usize,
        name: char,
    },
    Remove {
        slot: usize,
    },
    Clunk {
        slot: usize,
    },
    /// All names of a directory.
    List {
        slot: usize,
    },
    /// A file gets another name, from one fid's directory into another's.
    Move {
        slot: usize,
        into: usize,
        old: char,
        new: char,
    },
    Unlink {
        slot: usize,
        name: char,
    },
    /// The first of a chain: of what follows, so many requests or fewer, nothing is done behind the first that fails.
    Stop {
        members: u16,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    Dir,
    File(char),
    Nowhere,
}

/// What a request brings. Errors are not told apart, but for that of a fid that was not made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Brought {
    /// Names walked.
    Walked(usize),
    Data(Vec<u8>),
    Count(u32),
    Length(u64),
    Names(String),
    Done,
    Refused,
    NotMade,
}

/// Bytes of a file at most, and of a read.
pub const LONGEST: usize = 8;

/// A file that nobody may open.
pub const CLOSED: char = 'c';

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree {
    names: BTreeMap<char, u64>,
    /// Of every file that there ever was: fids outlive names.
    contents: BTreeMap<u64, Vec<u8>>,
}

impl Tree {
    pub fn find(&self, name: char) -> Option<u64> {
        self.names.get(&name).copied()
    }

    pub fn name_of(&self, file: u64) -> Option<char> {
        self.names.iter().find(|(_, id)| **id == file).map(|(name, _)| *name)
    }

    /// Of all files, in order.
    pub fn names(&self) -> String {
        self.names.keys().collect()
    }

    pub fn create(&mut self, name: char) -> Result<u64, Error> {
        if self.find(name).is_some() {
            return Err(Errno::EEXIST.into());
        }
        let file = self.contents.len() as u64;
        self.names.insert(name, file);
        self.contents.insert(file, Vec::new());
        Ok(file)
    }

    pub fn may_open(&self, file: u64) -> Result<(), Error> {
        if self.name_of(file) == Some(CLOSED) { Err(Errno::EACCES.into()) } else { Ok(()) }
    }

    pub fn read(&self, file: u64, offset: u64) -> Vec<u8> {
        self.contents[&file].iter().skip(offset as usize).copied().collect()
    }

    pub fn write(&mut self, file: u64, offset: u64, byte: u8) -> u32 {
        let content = self.contents.get_mut(&file).expect("files are never forgotten");
        content.resize(content.len().max(offset as usize + 1).min(LONGEST), 0);
        content[offset as usize] = byte;
        1
    }

    pub fn length(&self, file: u64) -> u64 {
        self.contents[&file].len() as u64
    }

    pub fn rename(&mut self, file: u64, name: char) -> Result<(), Error> {
        let old = self.name_of(file).ok_or(Errno::ENOENT)?;
        if old == name {
            return Ok(());
        }
        if self.find(name).is_some() {
            return Err(Errno::EEXIST.into());
        }
        self.names.remove(&old);
        self.names.insert(name, file);
        Ok(())
    }

    pub fn remove(&mut self, file: u64) -> Result<(), Error> {
        let name = self.name_of(file).ok_or(Errno::ENOENT)?;
        self.names.remove(&name);
        Ok(())
    }

    pub fn rename_entry(&mut self, old: char, new: char) -> Result<(), Error> {
        self.rename(self.find(old).ok_or(Errno::ENOENT)?, new)
    }

    pub fn unlink(&mut self, name: char) -> Result<(), Error> {
        self.remove(self.find(name).ok_or(Errno::ENOENT)?)
    }
}

/// A fid of the model.
#[derive(Clone, Copy, Debug)]
enum Held {
    Dir { open: bool },
    File { file: u64, open: Option<bool> },
}

/// A chain carried out by itself, one request at a time.
pub struct Alone {
    pub tree: Tree,
    dialect: Dialect,
    fids: [Option<Held>; 2],
    /// Whether a request that fails is the last that is done, and whether one has.
    stops: bool,
    stopped: bool,
}

impl Alone {
    pub fn new(tree: &Tree, dialect: Dialect) -> Alone {
        Alone { tree: tree.clone(), dialect, fids: [None; 2], stops: false, stopped: false }
    }

    pub fn step(&mut self, step: &Step) -> Brought {
        if let Step::Stop { .. } = step {
            self.stops = true;
            return Brought::Done;
        }
        let brought = if self.stopped { self.not_done(step) } else { self.done(step) };
        let falls_short = match (step, &brought) {
            (Step::Walk { to: To::File(_), .. }, Brought::Walked(names)) => *names < 2,
            (_, brought) => matches!(brought, Brought::Refused | Brought::NotMade),
        };
        self.stopped |= self.stops && falls_short;
        brought
    }

    /// What is not carried out; a fid is forgotten all the same.
    fn not_done(&mut self, step: &Step) -> Brought {
        if matches!(step, Step::Walk { .. }) {
            return Brought::Refused;
        }
        let into = if let Step::Move { into, .. } = *step { into } else { step.slot() };
        if [step.slot(), into].into_iter().any(|slot| self.fids[slot].is_none()) {
            return Brought::NotMade;
        }
        if step.ends() {
            self.fids[step.slot()] = None;
        }
        Brought::Refused
    }

    fn done(&mut self, step: &Step) -> Brought {
        if let Step::Walk { slot, to } = *step {
            let (walked, held) = match to {
                To::Nowhere => return Brought::Refused,
                To::Dir => (1, Some(Held::Dir { open: false })),
                To::File(name) => match self.tree.find(name) {
                    Some(file) => (2, Some(Held::File { file, open: None })),
                    None => (1, None),
                },
            };
            self.fids[slot] = held;
            return Brought::Walked(walked);
        }
        let slot = step.slot();
        let Some(held) = self.fids[slot] else { return Brought::NotMade };
        if let Step::Move { into, .. } = *step
            && self.fids[into].is_none()
        {
            return Brought::NotMade;
        }
        self.on_fid(step, slot, held).unwrap_or(Brought::Refused)
    }

    fn on_fid(&mut self, step: &Step, slot: usize, held: Held) -> Result<Brought, Error> {
        let refused = || Error::from(Errno::EIO);
        let tree = &mut self.tree;
        Ok(match (step, held) {
            (Step::Open { write: false, .. }, Held::Dir { open: false }) => {
                self.fids[slot] = Some(Held::Dir { open: true });
                Brought::Done
            }
            (&Step::Open { write, .. }, Held::File { file, open: None }) => {
                tree.may_open(file)?;
                self.fids[slot] = Some(Held::File { file, open: Some(write) });
                Brought::Done
            }
            (&Step::Create { name, .. }, Held::Dir { open: false }) => {
                let file = tree.create(name)?;
                self.fids[slot] = Some(Held::File { file, open: Some(true) });
                Brought::Done
            }
            // A directory is read from its beginning (read(5)); in .L by a message of its own.
            (Step::Read { offset: 0, .. }, Held::Dir { open: true }) if self.dialect != Dialect::Linux => {
                Brought::Data(Vec::new())
            }
            (&Step::Read { offset, .. }, Held::File { file, open: Some(false) }) => {
                Brought::Data(tree.read(file, offset))
            }
            (&Step::Write { offset, byte, .. }, Held::File { file, open: Some(true) }) => {
                Brought::Count(tree.write(file, offset, byte))
            }
            (Step::Stat { .. }, Held::Dir { .. }) => Brought::Length(0),
            (Step::Stat { .. }, Held::File { file, .. }) => Brought::Length(tree.length(file)),
            (&Step::Rename { name, .. }, Held::File { file, .. }) => {
                tree.rename(file, name)?;
                Brought::Done
            }
            (Step::Remove { .. }, Held::File { file, .. }) => {
                self.fids[slot] = None;
                tree.remove(file)?;
                Brought::Done
            }
            (Step::List { .. }, Held::Dir { open: true }) => Brought::Names(tree.names()),
            (&Step::Move { into, old, new, .. }, Held::Dir { .. })
                if matches!(self.fids[into], Some(Held::Dir { .. })) =>
            {
                tree.rename_entry(old, new)?;
                Brought::Done
            }
            (&Step::Unlink { name, .. }, Held::Dir { .. }) => {
                tree.unlink(name)?;
                Brought::Done
            }
            (Step::Clunk { .. }, _) => {
                self.fids[slot] = None;
                Brought::Done
            }
            _ => return Err(refused()),
        })
    }
}

impl Step {
    pub fn slot(&self) -> usize {
        match *self {
            Step::Walk { slot, .. }
            | Step::Open { slot, .. }
            | Step::Create { slot, .. }
            | Step::Read { slot, .. }
            | Step::Write { slot, .. }
            | Step::Stat { slot }
            | Step::Rename { slot, .. }
            | Step::Remove { slot }
            | Step::Clunk { slot }
            | Step::List { slot }
            | Step::Move { slot, .. }
            | Step::Unlink { slot, .. } => slot,
            Step::Stop { .. } => 0,
        }
    }

    pub fn ends(&self) -> bool {
        matches!(self, Step::Remove { .. } | Step::Clunk { .. })
    }
}
