//! Replaying a transcript: [`run`] drives one script against one [`Target`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ninefold::server::User;
use ninefold::transport::Address;
use ninefold_proto::Dialect;
use ninefold_proto::dialect::{self, Version};
use ninefold_proto::message::{R, RVERSION};
use ninefold_proto::n1::stream::{OPENING, PREFACE, PREFACE_OWN};
use ninefold_proto::print::{Data, parse, print};
use ninefold_proto::stat::stats;
use ninefold_proto::stream::StreamAddress;
use ninefold_proto::wire::split_frame;

use super::connection::{Connection, Received};
use super::fixture;
use super::pattern::Values;
use super::script::{Action, Place, Script, Step};

/// A wait that is longer than any server on the same machine needs, and short enough for a person.
const DEADLINE: Duration = Duration::from_secs(5);

/// Tags of the Tflush that proves absence; a script must not use them.
const PROOF: &str = "Tflush tag 65534 oldtag 65533";
const PROVEN: &str = "Rflush tag 65534";

/// The server that is judged.
#[derive(Clone, Debug)]
pub struct Target {
    pub address: Address,
    /// The tree to attach; `$aname`.
    pub aname: String,
    /// The exported directory, where it lies on this machine.
    pub dir: Option<PathBuf>,
    /// No wait is longer.
    pub deadline: Duration,
    /// Words of `needs` lines that the target lacks, each with the reason.
    pub lacks: BTreeMap<String, String>,
    /// The tree may not be changed: it is for the scripts that need that, and for no others.
    pub read_only: bool,
}

/// The word of a `needs` line for a tree that may not be changed.
pub const READ_ONLY: &str = "read-only";

impl Target {
    /// The tree that the address names, in a target that lacks nothing but what this process cannot do for it.
    pub fn new(address: Address) -> Target {
        let mut lacks = BTreeMap::new();
        if !rustix::process::geteuid().is_root() {
            lacks.insert("root".to_owned(), "not run by root".to_owned());
        }
        let aname = address.aname.as_deref().map(String::from_utf8_lossy).unwrap_or_default().into_owned();
        Target { address, aname, dir: None, deadline: DEADLINE, lacks, read_only: false }
    }
}

/// How a script ended that found no fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Passed,
    /// It was not run; why.
    Skipped(String),
}

/// What was wrong, and at which line.
#[derive(Debug)]
pub struct Failure {
    place: Place,
    what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

impl std::error::Error for Failure {}

/// Replays `script` against `target`.
pub fn run(script: &Script, target: &Target) -> Result<Outcome, Failure> {
    if let Some(why) = script.needs().iter().find_map(|word| target.lacks.get(word)) {
        return Ok(Outcome::Skipped(why.clone()));
    }
    match (script.needs().iter().any(|word| word == READ_ONLY), target.read_only) {
        (true, false) => return Ok(Outcome::Skipped("the tree may be changed".to_owned())),
        (false, true) => return Ok(Outcome::Skipped("the tree may not be changed".to_owned())),
        _ => {}
    }
    if script.needs_directory() && target.dir.is_none() {
        return Ok(Outcome::Skipped("the exported directory is not known".to_owned()));
    }
    let mut run = Run { target, connections: BTreeMap::new(), versioned: BTreeSet::new(), values: known(target) };
    let mut steps = &script.steps[..];
    while let Some(step) = steps.first() {
        let same = |kind: fn(&Action) -> bool| steps.iter().take_while(|step| kind(&step.action)).count();
        let taken = match &step.action {
            Action::Send(_) => {
                let block = same(|action| matches!(action, Action::Send(_)));
                run.send(&steps[..block])?;
                block
            }
            Action::Expect(_) => {
                let group = same(|action| matches!(action, Action::Expect(_)));
                run.expect(&steps[..group])?;
                group
            }
            _ => {
                run.single(step)?;
                1
            }
        };
        steps = &steps[taken..];
    }
    run.end(script)
}

/// The values that are known before anything was said.
fn known(target: &Target) -> Values {
    let user = User::of_process();
    let mut values = Values::default();
    values.set("uid", user.uid.to_string());
    values.set("gid", user.gid.to_string());
    values.set("user", quote(&user.name));
    values.set("aname", quote(&target.aname));
    if let Some(dir) = &target.dir {
        values.set("dir", quote(&dir.to_string_lossy()));
    }
    values
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

fn unquote(text: &str) -> Option<&str> {
    text.strip_prefix('\'')?.strip_suffix('\'')
}

struct Run<'t> {
    target: &'t Target,
    connections: BTreeMap<String, Connection>,
    /// Connections on which a dialect was agreed.
    versioned: BTreeSet<String>,
    values: Values,
}

impl Run<'_> {
    /// One step that is neither T nor R line.
    fn single(&mut self, step: &Step) -> Result<(), Failure> {
        let fail = |what: String| Failure { place: step.place.clone(), what };
        match &step.action {
            Action::Connect => {
                self.versioned.remove(&step.connection);
                self.connections.remove(&step.connection);
                self.connection(step).map(|_| ())
            }
            Action::Make(line) | Action::Check(line) => {
                let line = self.values.substitute(line).map_err(fail)?;
                let dir = self.target.dir.as_deref().ok_or_else(|| fail("the directory is not known".to_owned()))?;
                let act = if matches!(step.action, Action::Make(_)) { fixture::make } else { fixture::check };
                act(dir, &line).map_err(|e| fail(format!("{line}: {e:#}")))
            }
            Action::Silence => self.prove_silence(step),
            Action::Closed => {
                let deadline = self.deadline();
                let got = self.receive(step, deadline)?;
                self.versioned.remove(&step.connection);
                self.connections.remove(&step.connection);
                match got {
                    Received::Closed => Ok(()),
                    got => Err(fail(format!("expected: the connection is closed\n  got: {}", self.text(&got, step)))),
                }
            }
            Action::Open(what) => {
                let what = self.values.substitute(what).map_err(fail)?;
                self.open_data(step, what.trim_matches('\''))
            }
            Action::Put(text) => {
                let bytes = unquote(text).ok_or_else(|| fail(format!("{text} is no quoted text")))?;
                self.write(step, bytes.as_bytes())
            }
            Action::End => self.connection(step)?.end().map_err(|e| fail(format!("cannot end: {e}"))),
            Action::Got(text) => {
                let wanted = unquote(text).ok_or_else(|| fail(format!("{text} is no quoted text")))?;
                let deadline = self.deadline();
                let got =
                    self.connection(step)?.rest(deadline).map_err(|e| fail(format!("no end of the data: {e}")))?;
                if got == wanted.as_bytes() {
                    return Ok(());
                }
                let got = String::from_utf8_lossy(&got).into_owned();
                Err(fail(format!("expected: {wanted:?}, and the end\n  got: {got:?}")))
            }
            Action::Next => Ok(()),
            Action::Send(_) | Action::Expect(_) => unreachable!("taken in blocks"),
        }
    }

    /// Opens a data connection: with a token where the session is, behind `own` one of the client's; with `tcp!ADDRESS!PORT` there.
    fn open_data(&mut self, step: &Step, what: &str) -> Result<(), Failure> {
        let fail = |what: String| Failure { place: step.place.clone(), what };
        let mut address = self.target.address.clone();
        let opening = match StreamAddress::parse(what.as_bytes()) {
            Some(StreamAddress { host, port }) => {
                address.place = ninefold::transport::Place::Tcp { host: host.to_owned(), port };
                Vec::new()
            }
            None => {
                let (preface, what) = what.strip_prefix("own ").map_or((PREFACE, what), |what| (PREFACE_OWN, what));
                let digits = what.strip_prefix("0x").unwrap_or_default();
                let digit = |at: usize| u8::from_str_radix(digits.get(at..at + 2).unwrap_or_default(), 16);
                let token: Result<Vec<u8>, _> = (0..digits.len()).step_by(2).map(digit).collect();
                let token = token.ok().filter(|token| token.len() == OPENING - PREFACE.len());
                [&preface[..], &token.ok_or_else(|| fail(format!("{what} is neither a token nor an address")))?]
                    .concat()
            }
        };
        let mut opened = Connection::open(&address).map_err(|e| fail(format!("cannot connect to {address}: {e}")))?;
        opened.send(&opening, self.target.deadline).map_err(|e| fail(format!("cannot send: {e}")))?;
        self.connections.insert(step.connection.clone(), opened);
        Ok(())
    }

    /// Sends a block of T lines, each connection's share in one piece.
    fn send(&mut self, block: &[Step]) -> Result<(), Failure> {
        let mut pieces: BTreeMap<&str, (&Step, Vec<u8>)> = BTreeMap::new();
        for step in block {
            let fail = |what: String| Failure { place: step.place.clone(), what };
            let Action::Send(line) = &step.action else { continue };
            let line = self.values.substitute(line).map_err(fail)?;
            let frame = parse(&line, step.version).map_err(|e| fail(format!("{line}: {e}")))?;
            pieces.entry(&step.connection).or_insert((step, Vec::new())).1.extend(frame);
        }
        for (step, bytes) in pieces.into_values() {
            self.write(step, &bytes)?;
        }
        Ok(())
    }

    /// Waits until every R line of a group has its message.
    fn expect(&mut self, group: &[Step]) -> Result<(), Failure> {
        let deadline = self.deadline();
        let mut pending: Vec<&Step> = group.iter().collect();
        while let Some(step) = pending.first().copied() {
            let got = self.receive(step, deadline)?;
            let wanted: Vec<&Step> = pending.iter().copied().filter(|s| s.connection == step.connection).collect();
            let Received::Frame(frame) = &got else { return Err(self.mismatch(step, &wanted, &got)) };
            self.note_version(&step.connection, frame);
            let mut taker = None;
            for step in &wanted {
                let Action::Expect(line) = &step.action else { continue };
                let fail = |e| Failure { place: step.place.clone(), what: format!("{line}: {e}") };
                if self.matches(line, frame, step.version).map_err(fail)? {
                    taker = Some(*step);
                    break;
                }
            }
            let Some(taker) = taker else { return Err(self.mismatch(step, &wanted, &got)) };
            pending.retain(|step| !std::ptr::eq(*step, taker));
        }
        Ok(())
    }

    fn matches(
        &mut self,
        line: &str,
        frame: &[u8],
        version: Version,
    ) -> Result<bool, ninefold_proto::print::ParseError> {
        let got = print(frame, version, Data::Whole).to_string();
        if self.values.matches(line, &got)? {
            return Ok(true);
        }
        match records(frame, version) {
            Some(got) if line.contains('[') => self.values.matches(line, &got),
            _ => Ok(false),
        }
    }

    fn mismatch(&self, step: &Step, wanted: &[&Step], got: &Received) -> Failure {
        let mut what = String::from("not what was expected");
        for step in wanted {
            if let Action::Expect(line) = &step.action {
                what += &format!("\n  expected: {}", self.values.substitute(line).as_ref().unwrap_or(line));
            }
        }
        what += &format!("\n  got: {}", self.text(got, step));
        Failure { place: step.place.clone(), what }
    }

    fn text(&self, got: &Received, step: &Step) -> String {
        match got {
            Received::Frame(frame) => match records(frame, step.version) {
                Some(records) => records,
                None => print(frame, step.version, Data::Whole).to_string(),
            },
            Received::Closed => "the server closed the connection".to_owned(),
            Received::Nothing => format!("nothing in {:?}", self.target.deadline),
            Received::Broken(e) => format!("a frame that no client can read: {e}"),
        }
    }

    /// Holds what comes from now on against the msize that was agreed.
    fn note_version(&mut self, connection: &str, frame: &[u8]) {
        let Ok((header, body)) = split_frame(frame) else { return };
        if header.kind != RVERSION {
            return;
        }
        if let Ok(R::Version { msize, version }) = R::decode(header.kind, body, Dialect::Plan9) {
            if version == dialect::UNKNOWN.as_bytes() {
                self.versioned.remove(connection);
            } else if let Some(open) = self.connections.get_mut(connection) {
                open.set_msize(msize);
                self.versioned.insert(connection.to_owned());
            }
        }
    }

    fn prove_silence(&mut self, step: &Step) -> Result<(), Failure> {
        let fail = |what: String| Failure { place: step.place.clone(), what };
        let proof = parse(PROOF, step.version).map_err(|e| fail(e.to_string()))?;
        self.write(step, &proof)?;
        let got = self.receive(step, self.deadline())?;
        match self.text(&got, step) {
            text if text == PROVEN => Ok(()),
            text => Err(fail(format!("expected: nothing, and then the answer to {PROOF}\n  got: {text}"))),
        }
    }

    /// Proves that no message is left over on any connection.
    fn end(mut self, script: &Script) -> Result<Outcome, Failure> {
        for connection in std::mem::take(&mut self.versioned) {
            let last = script.steps.iter().rev().find(|step| step.connection == connection);
            self.prove_silence(last.expect("a step opened it"))?;
        }
        Ok(Outcome::Passed)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.target.deadline
    }

    fn connection(&mut self, step: &Step) -> Result<&mut Connection, Failure> {
        if !self.connections.contains_key(&step.connection) {
            let address = &self.target.address;
            let opened = Connection::open(address).map_err(|e| Failure {
                place: step.place.clone(),
                what: format!("cannot connect to {address}: {e}"),
            })?;
            self.connections.insert(step.connection.clone(), opened);
        }
        Ok(self.connections.get_mut(&step.connection).expect("just made"))
    }

    fn write(&mut self, step: &Step, bytes: &[u8]) -> Result<(), Failure> {
        let wait = self.target.deadline;
        let written = self.connection(step)?.send(bytes, wait);
        written.map_err(|e| Failure { place: step.place.clone(), what: format!("cannot send: {e}") })
    }

    fn receive(&mut self, step: &Step, deadline: Instant) -> Result<Received, Failure> {
        let received = self.connection(step)?.receive(deadline);
        received.map_err(|e| Failure { place: step.place.clone(), what: format!("cannot receive: {e}") })
    }
}

/// An Rread whose data are stat records, with the records in a list; `None` for any other frame.
fn records(frame: &[u8], version: Version) -> Option<String> {
    let (header, body) = split_frame(frame).ok()?;
    let R::Read { data } = R::decode(header.kind, body, version).ok()? else { return None };
    if version.dialect == Dialect::Linux || data.0.is_empty() {
        return None;
    }
    let mut list = Vec::new();
    for stat in stats(data.0, version.dialect) {
        let mut bytes = Vec::new();
        stat.ok()?.encode(version.dialect, &mut bytes);
        let mut frame = Vec::new();
        R::Stat { stat: ninefold_proto::message::StatBytes(&bytes) }.encode(header.tag, version, &mut frame);
        let line = print(&frame, version, Data::Whole).to_string();
        list.push(format!("({})", line.split_once(" stat ")?.1));
    }
    Some(format!("Rread tag {} count {} [{}]", header.tag, data.0.len(), list.join(" ")))
}

#[cfg(test)]
mod tests;
