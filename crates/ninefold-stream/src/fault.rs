//! What becomes of a mapped file that is made shorter while it is looked at: zeros and a notice, never a signal.
//!
//! The kernel answers such a look with SIGBUS. A handler that is installed before the first mapping finds the mapping by the address,
//! puts zeros there, tells the [`Notice`], and lets the program look again. A SIGBUS that is not about a watched mapping
//! goes to who had the signal before.
//!
//! The handler may run at any instant, in any thread: it takes no lock and allocates nothing. It reads a table of fixed length, of
//! places that are each guarded by a version, odd while it is changed. The place of the mapping that the fault is in does not change:
//! who looks at a mapping keeps it.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Once};

use nix::libc;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::memory::PAGE;

/// Who wants to know that part of a mapped file was gone. Called in a signal handler: atomics only.
pub trait Notice: Send + Sync {
    /// Part of the mapping is zeros from now on.
    fn is_shorter(&self);
}

/// Mappings at a time; who gets no place reads without mapping. A program with more open mapped streams gains little by each.
const PLACES: usize = 256;

struct Place {
    taken: AtomicBool,
    version: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    ward: AtomicPtr<Ward>,
}

/// What the handler changes of a mapping.
struct Ward {
    damaged: AtomicBool,
    notice: Arc<dyn Notice>,
}

static TABLE: [Place; PLACES] = [const {
    Place {
        taken: AtomicBool::new(false),
        version: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        ward: AtomicPtr::new(std::ptr::null_mut()),
    }
}; PLACES];

impl Place {
    fn set(&self, start: usize, end: usize, ward: *mut Ward) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.ward.store(ward, Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
    }

    /// The end of the mapping and the ward, if the address is in it.
    fn of(&self, address: usize) -> Option<(usize, *mut Ward)> {
        let version = self.version.load(Ordering::Acquire);
        let (start, end) = (self.start.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        let ward = self.ward.load(Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let steady = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        (steady && (start..end).contains(&address)).then_some((end, ward))
    }
}

/// While it lives, looking at the mapping raises no signal.
pub struct Watch {
    place: &'static Place,
    ward: Arc<Ward>,
}

impl Watch {
    /// None when the table is full. The mapping must outlive the watch.
    pub fn begin(start: usize, bytes: usize, notice: Arc<dyn Notice>) -> Option<Watch> {
        let free =
            |place: &&Place| place.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let place = TABLE.iter().find(free)?;
        let ward = Arc::new(Ward { damaged: AtomicBool::new(false), notice });
        place.set(start, start + bytes, Arc::as_ptr(&ward).cast_mut());
        Some(Watch { place, ward })
    }

    pub fn is_damaged(&self) -> bool {
        self.ward.damaged.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.place.set(0, 0, std::ptr::null_mut());
        self.place.taken.store(false, Ordering::Release);
    }
}

/// What the program had for SIGBUS before. Set before our handler is, and never freed.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(std::ptr::null_mut());

fn current() -> Option<libc::sigaction> {
    // SAFETY: all zeros is a value of the record, and the call fills it.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only asks; the pointer is to a record of ours.
    let asked = unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut action) };
    (asked == 0).then_some(action)
}

/// Is our handler the one that is called? It is installed by the first call. A program that installs its own later has it its way: its
/// new streams do not map.
pub fn is_guarding() -> bool {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let Some(before) = current() else {
            return;
        };
        BEFORE.store(Box::into_raw(Box::new(before)), Ordering::Release);
        // SAFETY: all zeros is a value of the record.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as *const () as usize;
        // On the stack that the program set aside for signals, if it did.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler has the form that SA_SIGINFO asks for, and does nothing that a handler may not.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
    });
    current().is_some_and(|action| action.sa_sigaction == handler as *const () as usize)
}

extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a record that lives as long as the handler runs; a fault's has an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // Codes above 0 are the kernel's; a signal that somebody sent has an address that means nothing.
    if code > 0 && mend(address) {
        return;
    }
    let before = BEFORE.load(Ordering::Acquire);
    // SAFETY: set before the handler was, to a record that is never freed.
    let before = unsafe { &*before };
    let function = before.sa_sigaction;
    if function == libc::SIG_IGN && code <= 0 {
        // Sent by somebody, and ignored as before. To hand it on would be to give up the signal for good.
    } else if function == libc::SIG_DFL || function == libc::SIG_IGN {
        // What would have happened happens when the instruction is tried again, or now where the signal was sent.
        // SAFETY: a record that the kernel gave us; raise(3) and sigaction(2) may be called in a handler.
        unsafe {
            libc::sigaction(signal, before, std::ptr::null_mut());
            if code <= 0 {
                libc::raise(signal);
            }
        }
    } else if before.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: it was installed as a function of this form.
        let function: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(function) };
        function(signal, info, context);
    } else {
        // SAFETY: it was installed as a function of this form.
        let function: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(function) };
        function(signal);
    }
}

/// Puts zeros where the file is gone; false when the address is in no watched mapping.
fn mend(address: usize) -> bool {
    let Some((end, ward)) = TABLE.iter().find_map(|place| place.of(address)) else {
        return false;
    };
    // SAFETY: the watch of a mapping that is looked at lives, and its ward with it.
    let ward = unsafe { &*ward };
    // Before the zeros are there: another thread may look at them and ask at once.
    ward.damaged.store(true, Ordering::Release);
    ward.notice.is_shorter();
    let page = address & !(PAGE - 1);
    // To the end of the mapping, of which the file has nothing either: that is one mapping more. Page by page, a program could come to
    // have as many as it may.
    let (at, flags) = (std::ptr::without_provenance_mut(page), MapFlags::PRIVATE | MapFlags::FIXED);
    // SAFETY: the pages are of a mapping that we made and that is looked at now, so it is not unmapped meanwhile; the file's page that
    // the first one showed is gone. Bytes before the file's end are in other pages, or in this one and then there is no fault.
    unsafe { mmap_anonymous(at, end - page, ProtFlags::READ, flags) }.is_ok()
}
