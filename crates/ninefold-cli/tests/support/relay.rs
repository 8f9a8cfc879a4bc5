//! A relay between a command and its server that knows every fid and every request, and can hold requests back.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ninefold::proto::Dialect;
use ninefold::proto::print::{Data, print};

use super::PATIENCE;

/// What to do with the requests that are watched for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// The server never sees it: it stalls.
    Hold,
    /// The connection ends.
    Close,
    /// The relay answers with EPERM, and the server never sees it.
    Refuse,
}

/// What passed on one connection.
#[derive(Debug, Default)]
struct Seen {
    dialect: Option<Dialect>,
    /// Requests without a reply: tag to text. A flushed one is answered with its flush.
    outstanding: HashMap<String, String>,
    /// Tags that a Tflush was sent for, until its reply.
    flushed: HashSet<String>,
    fids: HashSet<String>,
    lines: Vec<String>,
}

/// See the module. For one connection.
pub struct Relay {
    address: SocketAddr,
    held: Receiver<String>,
    over: Receiver<()>,
    seen: Arc<Mutex<Seen>>,
}

impl Relay {
    /// Does `deed` to requests of one of `kinds`, for example `Twrite`.
    pub fn new(server: &str, kinds: &[&str], deed: Deed) -> Relay {
        Relay::with_delay(server, kinds, deed, Duration::ZERO)
    }

    /// The same over a link on which each way takes `delay`.
    pub fn with_delay(server: &str, kinds: &[&str], deed: Deed, delay: Duration) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server: SocketAddr = server.strip_prefix("9p://").unwrap().parse().unwrap();
        let kinds: Vec<String> = kinds.iter().map(|kind| format!("{kind} ")).collect();
        let (seen, (hold, held), (ended, over)) = (Arc::new(Mutex::new(Seen::default())), channel(), channel());
        let both = seen.clone();
        std::thread::spawn(move || {
            let client = listener.accept().unwrap().0;
            let server = TcpStream::connect(server).unwrap();
            for end in [&client, &server] {
                end.set_nodelay(true).unwrap();
            }
            let replies = server.try_clone().unwrap();
            let to_client = Arc::new(Mutex::new(client.try_clone().unwrap()));
            let (seen, to) = (both.clone(), to_client.clone());
            let back = std::thread::spawn(move || {
                pass(replies, to, delay, |line| {
                    seen.lock().unwrap().reply(line);
                    true
                })
            });
            requests((client, server), &to_client, delay, &both, &kinds, deed, &hold);
            back.join().unwrap();
            let _ = ended.send(());
        });
        Relay { address, held, over, seen }
    }

    pub fn url(&self, path: &str, dialect: Dialect) -> String {
        format!("9p://{}/{path}?dialect={dialect}", self.address)
    }

    /// Waits until a request was held back, or its connection closed.
    pub fn wait(&self) -> String {
        self.held.recv_timeout(PATIENCE).expect("a request to hold in time")
    }

    /// Waits for the end of the connection: the fids that were not clunked, and the requests neither answered nor flushed.
    /// A Tclunk and a Tremove need no flush: it would leave nobody knowing whether the fid is gone. Nor does a Tflush.
    pub fn end(self) -> (Vec<String>, Vec<String>) {
        self.over.recv_timeout(PATIENCE).expect("the end of the connection in time");
        let seen = self.seen.lock().unwrap();
        let own = |line: &str| ["Tflush", "Tclunk", "Tremove"].iter().any(|kind| line.starts_with(kind));
        let open = seen.outstanding.iter().filter(|(tag, line)| !own(line) && !seen.flushed.contains(*tag));
        (seen.fids.iter().cloned().collect(), open.map(|(_, line)| line.clone()).collect())
    }

    /// All that passed.
    pub fn lines(&self) -> Vec<String> {
        self.seen.lock().unwrap().lines.clone()
    }
}

fn requests(
    (client, server): (TcpStream, TcpStream),
    to_client: &Mutex<TcpStream>,
    delay: Duration,
    seen: &Mutex<Seen>,
    kinds: &[String],
    deed: Deed,
    hold: &Sender<String>,
) {
    let closing = [client.try_clone().unwrap(), server.try_clone().unwrap()];
    let server = Arc::new(Mutex::new(server));
    pass(client, server, delay, |line| {
        seen.lock().unwrap().request(line);
        if !kinds.iter().any(|kind| line.starts_with(kind.as_str())) {
            return true;
        }
        match deed {
            Deed::Hold => {}
            Deed::Close => closing.iter().for_each(|end| drop(end.shutdown(Shutdown::Both))),
            Deed::Refuse => {
                let mut seen = seen.lock().unwrap();
                let dialect = seen.dialect.unwrap_or(Dialect::Linux);
                let reply = refusal(after(line, "tag"), dialect);
                seen.reply(&reply);
                to_client.lock().unwrap().write_all(&super::frame(&reply, dialect)).unwrap();
            }
        }
        let _ = hold.send(line.to_owned());
        false
    });
}

fn refusal(tag: &str, dialect: Dialect) -> String {
    match dialect {
        Dialect::Plan9 => format!("Rerror tag {tag} ename 'wstat prohibited'"),
        Dialect::Unix => format!("Rerror tag {tag} ename 'operation not permitted' errno 1"),
        Dialect::Linux => format!("Rlerror tag {tag} ecode 1"),
    }
}

/// Passes on the frames that `look` lets through, each `delay` later, until either end is gone.
fn pass(mut from: TcpStream, to: Arc<Mutex<TcpStream>>, delay: Duration, mut look: impl FnMut(&str) -> bool) {
    let (queue, late) = channel::<(Instant, Vec<u8>)>();
    let writer = std::thread::spawn(move || {
        for (due, frame) in late {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.lock().unwrap().write_all(&frame).is_err() {
                break;
            }
        }
        let _ = to.lock().unwrap().shutdown(Shutdown::Both);
    });
    let mut dialect = Dialect::Linux;
    while let Some(frame) = frame(&mut from) {
        let line = print(&frame, dialect, Data::Elided).to_string();
        if let Some(agreed) = line.split('\'').nth(1).filter(|_| line.contains("version ")) {
            dialect = Dialect::from_version(agreed.as_bytes()).unwrap_or(Dialect::Linux);
        }
        if look(&line) && queue.send((Instant::now() + delay, frame)).is_err() {
            break;
        }
    }
    drop(queue);
    writer.join().unwrap();
}

fn frame(from: &mut TcpStream) -> Option<Vec<u8>> {
    use std::io::Read;
    let mut frame = vec![0; 4];
    from.read_exact(&mut frame).ok()?;
    let size = u32::from_le_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize;
    frame.resize(size, 0);
    from.read_exact(&mut frame[4..]).ok()?;
    Some(frame)
}

/// The word behind another.
fn after<'l>(line: &'l str, word: &str) -> &'l str {
    let mut words = line.split(' ').skip_while(|w| *w != word);
    words.nth(1).unwrap_or_else(|| panic!("no {word} in {line}"))
}

impl Seen {
    fn request(&mut self, line: &str) {
        if line.starts_with("Tversion") {
            self.dialect = line.split('\'').nth(1).and_then(|version| Dialect::from_version(version.as_bytes()));
        }
        self.lines.push(format!("→ {line}"));
        let old = self.outstanding.insert(after(line, "tag").to_owned(), line.to_owned());
        match line.split(' ').next().unwrap_or_default() {
            // The fid is gone whatever comes of it (clunk(5), remove(5)).
            "Tclunk" | "Tremove" => drop(self.fids.remove(after(line, "fid"))),
            "Tflush" => drop(self.flushed.insert(after(line, "oldtag").to_owned())),
            _ => {}
        }
        assert!(old.is_none(), "two requests of one tag: {old:?}, {line}");
    }

    fn reply(&mut self, line: &str) {
        self.lines.push(format!("← {line}"));
        let request =
            self.outstanding.remove(after(line, "tag")).unwrap_or_else(|| panic!("nothing was asked: {line}"));
        let refused = line.starts_with("Rerror") || line.starts_with("Rlerror");
        let kind = request.split(' ').next().unwrap_or_default();
        match kind {
            // Answered with its flush, or never.
            "Tflush" => {
                self.outstanding.remove(after(&request, "oldtag"));
                self.flushed.remove(after(&request, "oldtag"));
            }
            "Tattach" if !refused => drop(self.fids.insert(after(&request, "fid").to_owned())),
            "Twalk" if !refused && after(&request, "nwname") == after(line, "nwqid") => {
                self.fids.insert(after(&request, "newfid").to_owned());
            }
            _ => {}
        }
    }
}
