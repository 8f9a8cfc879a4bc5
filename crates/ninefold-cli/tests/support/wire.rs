//! A relay between a command and its server to which something happens at one instant: when so many bytes have gone one way by the data
//! connections, or when the session has carried so many pieces. The instant is counted in what passed, so it is the same on any machine.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::meddler::Way;

/// When it happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    /// So many bytes have gone the way of the data.
    Bytes(u64),
    /// The same, but at a connection that was not the first to bring any.
    OfTheSecond(u64),
    /// So many pieces have come by the session, either way.
    Pieces(u64),
}

/// What happens to the relay itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// All connections end, and no other is taken.
    All,
    /// They are reset, and no other is taken.
    Reset,
    /// They stay, and nothing passes.
    Silence,
    /// The second of the data connections ends; others go on.
    Second,
}

/// See the module.
pub struct Wire {
    address: SocketAddr,
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    /// The way of the data.
    way: Way,
}

type Deed = Box<dyn FnOnce() -> Option<Cut> + Send>;

struct State {
    server: SocketAddr,
    /// What the session brings takes so long.
    delay: Duration,
    ends: Vec<[TcpStream; 2]>,
    /// Of those that brought data, in the order of their first bytes.
    carriers: Vec<usize>,
    bytes: u64,
    pieces: u64,
    event: Option<(At, Deed)>,
    has_happened: bool,
    /// The deed is not done.
    is_happening: bool,
    passes: bool,
    takes: bool,
    is_over: bool,
}

impl Wire {
    pub fn new(server: SocketAddr, way: Way, delay: Duration) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = State {
            server,
            delay,
            ends: Vec::new(),
            carriers: Vec::new(),
            bytes: 0,
            pieces: 0,
            event: None,
            has_happened: false,
            is_happening: false,
            passes: true,
            takes: true,
            is_over: false,
        };
        let inner = Arc::new(Inner { state: Mutex::new(state), changed: Condvar::new(), way });
        let all = inner.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if all.lock().is_over {
                    return;
                }
                all.join(near);
            }
        });
        Wire { address, inner }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// At that instant `deed` is done, before anything more passes where it is noticed, and then what it asks for.
    pub fn at(&self, at: At, deed: impl FnOnce() -> Option<Cut> + Send + 'static) {
        self.inner.lock().event = Some((at, Box::new(deed)));
    }

    /// Whether it has; a deed that was begun is waited for.
    pub fn has_happened(&self) -> bool {
        let state = self.inner.lock();
        let wait = self.inner.changed.wait_timeout_while(state, Duration::from_secs(60), |state| state.is_happening);
        let (state, waited) = wait.unwrap();
        assert!(!waited.timed_out(), "what was to happen takes more than a minute");
        state.has_happened
    }

    /// What the session brings takes so long from now on.
    pub fn delay(&self, delay: Duration) {
        self.inner.lock().delay = delay;
    }

    /// Bytes that went the way of the data, and pieces of the session.
    pub fn passed(&self) -> (u64, u64) {
        let state = self.inner.lock();
        (state.bytes, state.pieces)
    }

    /// All that is there ends; from now on everything passes, to `server`.
    pub fn heal(&self, server: SocketAddr) {
        let mut state = self.inner.lock();
        state.end();
        state.server = server;
        (state.bytes, state.pieces) = (0, 0);
        state.carriers.clear();
        (state.event, state.has_happened) = (None, false);
        (state.passes, state.takes) = (true, true);
        self.inner.changed.notify_all();
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let mut state = self.inner.lock();
        state.end();
        (state.passes, state.is_over) = (true, true);
        self.inner.changed.notify_all();
        drop(state);
        // Who waits for the next one takes it and goes.
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn end(&mut self) {
        for [near, far] in self.ends.drain(..) {
            let _ = (near.shutdown(Shutdown::Both), far.shutdown(Shutdown::Both));
        }
    }

    fn cut(&mut self, cut: Cut) {
        match cut {
            Cut::Silence => self.passes = false,
            Cut::Second => {
                if let Some([near, far]) = self.carriers.get(1).and_then(|&carrier| self.ends.get(carrier)) {
                    let _ = (near.shutdown(Shutdown::Both), far.shutdown(Shutdown::Both));
                }
            }
            Cut::All | Cut::Reset => {
                self.takes = false;
                if cut == Cut::Reset {
                    for end in self.ends.iter().flatten() {
                        let _ = rustix::net::sockopt::set_socket_linger(end, Some(Duration::ZERO));
                    }
                }
                self.end();
            }
        }
    }

    /// How many of `read` bytes pass before it happens, if it is to happen among them.
    fn happens(&mut self, number: usize, is_data: bool, read: usize) -> Option<usize> {
        let is_session = number == 0;
        if is_data && !self.carriers.contains(&number) {
            self.carriers.push(number);
        }
        let (bytes, pieces) = (self.bytes, self.pieces);
        self.bytes += if is_data { read as u64 } else { 0 };
        self.pieces += u64::from(is_session);
        match self.event.as_ref()?.0 {
            At::Bytes(at) if is_data && (bytes..self.bytes).contains(&at) => Some((at - bytes) as usize),
            At::OfTheSecond(at) if is_data && self.bytes > at && self.carriers.get(1) == Some(&number) => Some(0),
            At::Pieces(at) if is_session && pieces == at => Some(0),
            _ => None,
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn join(self: &Arc<Self>, near: TcpStream) {
        let mut state = self.lock();
        if !state.takes {
            return;
        }
        // A server that is gone.
        let Ok(far) = TcpStream::connect(state.server) else { return };
        for end in [&near, &far] {
            end.set_nodelay(true).unwrap();
        }
        let number = state.ends.len();
        state.ends.push([near.try_clone().unwrap(), far.try_clone().unwrap()]);
        for way in [Way::ToServer, Way::ToClient] {
            let (near, far, all) = (near.try_clone().unwrap(), far.try_clone().unwrap(), self.clone());
            std::thread::spawn(move || match way {
                Way::ToServer => all.carry(number, way, near, far),
                Way::ToClient => all.carry(number, way, far, near),
            });
        }
    }

    fn carry(&self, number: usize, way: Way, mut from: TcpStream, mut to: TcpStream) {
        let (mut buffer, is_session) = (vec![0; 64 << 10], number == 0);
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            let mut state = self.lock();
            let (delay, mut first) = (state.delay, 0);
            if let Some(passes) = state.happens(number, !is_session && way == self.way, read)
                && let Some((_, deed)) = state.event.take()
            {
                // Before it is done: whoever it ends may be looked at by then.
                (state.has_happened, state.is_happening) = (true, true);
                drop(state);
                first = passes;
                let is_passed = to.write_all(&buffer[..first]).is_ok();
                let cut = deed();
                state = self.lock();
                state.is_happening = false;
                self.changed.notify_all();
                if !is_passed {
                    break;
                }
                if let Some(cut) = cut {
                    state.cut(cut);
                }
            }
            while !state.passes {
                state = self.changed.wait(state).unwrap();
            }
            drop(state);
            if is_session && way == Way::ToClient {
                std::thread::sleep(delay);
            }
            if to.write_all(&buffer[first..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }
}
