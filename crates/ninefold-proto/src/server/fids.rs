//! The fids of a connection, and the files behind them.
//!
//! A fid is a name for a handle; a handle lives on after its fid is forgotten until the last request
//! that uses it is complete. Only then comes the file's farewell.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use hashbrown::HashMap;

use super::op::{FarewellId, RecordEnd, RequestId, XattrWrite};
use crate::error::{Errno, Error};
use crate::open::{Access, Open, lflags};
use crate::types::{Fid, Qid, QidType};

/// Index of a handle. Held only by fids and by requests that are counted in `uses`, so it never dangles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HandleId(pub(super) u32);

impl From<FarewellId> for HandleId {
    fn from(id: FarewellId) -> HandleId {
        HandleId(id.0)
    }
}

/// What a handle may be used for. Each has eight bytes at most, for which see [`Handle`].
#[derive(Debug)]
#[expect(clippy::box_collection, reason = "a Vec, or a boxed slice, makes every handle larger")]
pub(super) enum Mode {
    /// Walked, not open.
    Walked,
    /// Open; `remove`: 9P2000's ORCLOSE; `appends`: whatever is written goes to the end.
    Open { access: Access, remove: bool, appends: bool },
    /// Made by Txattrwalk: the value is read.
    XattrRead(Box<Vec<u8>>),
    /// Made by Txattrcreate: the value is written, and set at the clunk.
    XattrWrite(Box<Written>),
}

/// An extended attribute that is being written.
#[derive(Debug)]
pub(super) struct Written {
    pub name: Vec<u8>,
    pub size: usize,
    pub flags: u32,
    pub value: Vec<u8>,
}

impl Mode {
    pub fn open(how: Open) -> Mode {
        Mode::Open { access: how.access, remove: how.remove_on_clunk, appends: how.has(lflags::APPEND) }
    }

    /// Bytes of an attribute's value that it holds or has promised room for.
    fn value_bytes(&self) -> usize {
        match self {
            Mode::XattrRead(value) => value.len(),
            Mode::XattrWrite(written) => written.size,
            Mode::Walked | Mode::Open { .. } => 0,
        }
    }
}

/// A place in a directory of 9P2000 or .u: its offset on the wire and the file server's cookie.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct DirPosition {
    pub offset: u64,
    pub cookie: u64,
}

/// Room for so many fids is kept, some 2 KB.
const SLOTS_KEEP: usize = 128;

/// Places of one directory to which its reader may go back in .u: those behind its last 4,096 records, some 100 KB.
const PLACES: usize = 4096;

/// The same of all directories of a connection, some 2 MB. Who reads more of them at a time goes back less far.
const PLACES_ALL: usize = 65_536;

/// Where a directory may be read.
#[derive(Default, Debug)]
struct DirPlaces {
    /// Where the last read ended.
    last: DirPosition,
    /// Places before it, by their offsets.
    places: BTreeMap<u64, u64>,
}

impl DirPlaces {
    /// read(5): a directory is read from the start or from where the last read ended. Linux's client takes the offsets of .u
    /// for such as lseek(2) goes to.
    fn find(&self, offset: u64) -> Option<DirPosition> {
        match offset {
            0 => Some(DirPosition::default()),
            offset if offset == self.last.offset => Some(self.last),
            offset => self.places.get(&offset).map(|&cookie| DirPosition { offset, cookie }),
        }
    }
}

/// How a handle ends.
#[derive(Debug, Default)]
pub(super) struct Fate {
    /// The Tclunk or Tremove that waits for the result.
    pub request: Option<RequestId>,
    pub remove: bool,
    /// Known beforehand to fail with this.
    pub error: Option<Error>,
    /// The request is not carried out: nothing but the end of the fid comes of it, no attribute is set and no file removed.
    pub refused: bool,
}

/// What most have none of lies elsewhere, so that one is a cache line: of many connections with many fids each, what a request costs is the lines that
/// it touches.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Handle<F> {
    pub file: F,
    /// The fid that it was made for, or none. What waits for it is queued by this.
    pub fid: Option<Fid>,
    pub kind: QidType,
    pub mode: Mode,
    /// None until it is read.
    dir: Option<Box<DirPlaces>>,
    /// The export may not be changed.
    pub read_only: bool,
    /// Requests that use it now.
    pub uses: u32,
    /// A request that nothing may run beside: open, create, remove, a walk onto itself.
    pub exclusive: bool,
    /// Its fid is gone.
    pub fate: Option<Box<Fate>>,
}

impl<F> Handle<F> {
    pub fn is_dir(&self) -> bool {
        self.kind.has(QidType::DIR)
    }

    pub fn is_open(&self) -> bool {
        matches!(self.mode, Mode::Open { .. })
    }

    /// Where a read of the directory at `offset` begins, if it may.
    pub fn place(&self, offset: u64) -> Option<DirPosition> {
        match &self.dir {
            Some(dir) => dir.find(offset),
            None => DirPlaces::default().find(offset),
        }
    }

    /// Whether what is written goes to the end, whatever its offset.
    pub fn appends(&self) -> bool {
        self.kind.has(QidType::APPEND) || matches!(self.mode, Mode::Open { appends: true, .. })
    }

    /// The access it is open with.
    pub fn access(&self) -> Result<Access, Error> {
        match self.mode {
            Mode::Open { access, .. } => Ok(access),
            _ => Err(Error::with_text(Errno::EBADF, "fid is not open")),
        }
    }

    /// What is left to do for an extended attribute when the handle ends.
    pub fn take_xattr(&mut self) -> Option<Result<XattrWrite, Error>> {
        let Mode::XattrWrite(written) = &mut self.mode else { return None };
        let Written { name, size, flags, value } = &mut **written;
        let (name, value) = (core::mem::take(name), core::mem::take(value));
        if value.len() != *size {
            return Some(Err(Error::with_text(Errno::EINVAL, "attribute value shorter than announced")));
        }
        Some(Ok(XattrWrite { name, value: (*size > 0).then_some(value), flags: *flags }))
    }
}

#[derive(Clone, Copy, Debug)]
enum Slot {
    /// A walk or an attach is to make it.
    Reserved,
    Live(HandleId),
}

/// What a fid of a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lookup {
    Unknown,
    /// A request that is not complete will make it, or not.
    Reserved,
    Live(HandleId),
}

#[derive(Debug)]
pub(super) struct Fids<F> {
    /// The hash has a seed of each table's own: a peer that chooses the numbers does not know which of them fall together.
    slots: HashMap<u32, Slot>,
    handles: Vec<Option<Handle<F>>>,
    free: Vec<u32>,
    live: usize,
    /// Bytes of attributes' values in `handles`.
    value_bytes: usize,
    /// Places of directories in `handles`.
    places: usize,
}

impl<F> Default for Fids<F> {
    fn default() -> Self {
        Fids { slots: HashMap::new(), handles: Vec::new(), free: Vec::new(), live: 0, value_bytes: 0, places: 0 }
    }
}

impl<F> Fids<F> {
    /// Fids known or reserved.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Handles alive, with and without a fid.
    pub fn handles(&self) -> usize {
        self.live
    }

    /// Bytes of attributes' values that handles hold or have promised room for.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    pub fn lookup(&self, fid: Fid) -> Lookup {
        match self.slots.get(&fid.0) {
            None => Lookup::Unknown,
            Some(Slot::Reserved) => Lookup::Reserved,
            Some(Slot::Live(id)) => Lookup::Live(*id),
        }
    }

    pub fn reserve(&mut self, fid: Fid) {
        self.slots.insert(fid.0, Slot::Reserved);
    }

    /// Forgets a reserved fid whose request made nothing.
    pub fn unreserve(&mut self, fid: Fid) {
        if let Some(Slot::Reserved) = self.slots.get(&fid.0) {
            self.slots.remove(&fid.0);
        }
    }

    /// Gives `fid` a new handle.
    pub fn establish(&mut self, fid: Fid, file: F, qid: Qid, mode: Mode, read_only: bool) {
        let id = self.insert(file, Some(fid), qid, mode, read_only);
        self.slots.insert(fid.0, Slot::Live(id));
    }

    /// A handle, not yet known by a fid.
    pub fn insert(&mut self, file: F, fid: Option<Fid>, qid: Qid, mode: Mode, read_only: bool) -> HandleId {
        self.value_bytes += mode.value_bytes();
        let handle =
            Handle { file, fid, kind: qid.kind, mode, dir: None, read_only, uses: 0, exclusive: false, fate: None };
        let index = match self.free.pop() {
            Some(index) => {
                self.handles[index as usize] = Some(handle);
                index
            }
            None => {
                self.handles.push(Some(handle));
                self.handles.len() as u32 - 1
            }
        };
        self.live += 1;
        HandleId(index)
    }

    /// The handle; ids come only from this table and are not kept beyond their uses.
    pub fn get(&mut self, id: HandleId) -> Option<&mut Handle<F>> {
        self.handles.get_mut(id.0 as usize)?.as_mut()
    }

    /// Requests that use the handle.
    pub fn uses(&self, id: HandleId) -> u32 {
        self.handles.get(id.0 as usize).and_then(Option::as_ref).map_or(0, |handle| handle.uses)
    }

    pub fn file(&self, id: HandleId) -> Option<&F> {
        Some(&self.handles.get(id.0 as usize)?.as_ref()?.file)
    }

    /// Gives the handle another use.
    pub fn set_mode(&mut self, id: HandleId, mode: Mode) {
        if let Some(handle) = self.handles.get_mut(id.0 as usize).and_then(Option::as_mut) {
            self.value_bytes += mode.value_bytes();
            self.value_bytes -= handle.mode.value_bytes();
            handle.mode = mode;
        }
    }

    /// Records that end so were told of a directory, read from `from` on. `back`: it may be read from each of them again, until
    /// it is read from its start.
    pub fn told(&mut self, id: HandleId, from: DirPosition, ends: &[RecordEnd], back: bool) {
        let Some(Handle { dir, .. }) = self.handles.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let dir = dir.get_or_insert_default();
        self.places -= dir.places.len();
        if from.offset == 0 {
            dir.places.clear();
        }
        dir.last = from;
        for end in ends {
            dir.last = DirPosition { offset: from.offset + u64::from(end.end), cookie: end.cookie };
            if back {
                dir.places.insert(dir.last.offset, dir.last.cookie);
            }
            while dir.places.len() > PLACES.min(PLACES_ALL - self.places) {
                dir.places.pop_first();
            }
        }
        self.places += dir.places.len();
    }

    /// Forgets the fid; the handle stays for its farewell.
    pub fn forget(&mut self, fid: Fid) -> Option<HandleId> {
        match self.slots.get(&fid.0)? {
            Slot::Reserved => None,
            Slot::Live(id) => {
                let id = *id;
                self.slots.remove(&fid.0);
                // One that once had many and has few is smaller again.
                if self.slots.capacity() > SLOTS_KEEP.max(8 * self.slots.len()) {
                    self.slots.shrink_to(2 * self.slots.len());
                }
                Some(id)
            }
        }
    }

    /// Drops a handle after its farewell.
    pub fn drop_handle(&mut self, id: HandleId) -> Option<Handle<F>> {
        let handle = self.handles.get_mut(id.0 as usize)?.take()?;
        self.live -= 1;
        self.value_bytes -= handle.mode.value_bytes();
        self.places -= handle.dir.as_ref().map_or(0, |dir| dir.places.len());
        self.free.push(id.0);
        if self.live == 0 {
            // A connection that once had many fids and let them go is small again.
            self.handles = Vec::new();
            self.free = Vec::new();
            self.slots.shrink_to_fit();
        }
        Some(handle)
    }

    /// Forgets all fids; the handles that had one, in the order of their numbers.
    pub fn forget_all(&mut self) -> Vec<HandleId> {
        let slots = core::mem::take(&mut self.slots);
        let live = |slot| if let Slot::Live(id) = slot { Some(id) } else { None };
        let mut handles: Vec<HandleId> = slots.into_values().filter_map(live).collect();
        handles.sort_unstable_by_key(|id| id.0);
        handles
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use super::*;

    #[test]
    fn a_handle_is_one_cache_line() {
        assert_eq!(size_of::<Option<Handle<Arc<dyn Fn()>>>>(), 64);
    }

    #[test]
    fn a_connection_that_had_many_fids_and_has_few_is_small_again() {
        let mut fids = Fids::default();
        (0..10_000).for_each(|fid| fids.establish(Fid(fid), (), Qid::default(), Mode::Walked, false));
        let most = fids.slots.capacity();
        for fid in 10..10_000 {
            let id = fids.forget(Fid(fid)).unwrap();
            fids.drop_handle(id).unwrap();
        }
        assert_eq!((fids.len(), fids.lookup(Fid(10))), (10, Lookup::Unknown));
        assert!((0..10).all(|fid| matches!(fids.lookup(Fid(fid)), Lookup::Live(id) if fids.file(id).is_some())));
        assert!(most >= 10_000 && fids.slots.capacity() <= SLOTS_KEEP, "room for {}", fids.slots.capacity());
    }
}
