//! Users of one connection, each with chains on files of his own, one chain at a time; what passes between the two ends
//! waits in queues, and steps are drawn at random.

pub mod hostile;
mod messages;
mod server;
mod tree;

use std::collections::{BTreeMap, VecDeque};

use ninefold_proto::client::{Answer, Due, Limits, Parting, Refused, Session, Turn};
use ninefold_proto::dialect::Version;
use ninefold_proto::message::{R, T};
use ninefold_proto::wire::split_frame;
use ninefold_proto::{Dialect, Fid, Tag};

use messages::{Place, brought, refused};
use server::Server;
use tree::{Alone, Brought, LONGEST, Step, To, Tree};

pub const MSIZE: u32 = 4096;
pub const USERS: usize = 6;

/// Chains of one connection.
const CHAINS: u64 = 60;

/// A step that does not come in so many others never will.
const PATIENCE: usize = 200_000;

/// Choices: those that are given, one byte each, and then numbers that look random and are the same each time (xorshift64).
pub struct Random<'b> {
    given: Option<&'b [u8]>,
    state: u64,
}

impl<'b> Random<'b> {
    pub fn of_seed(seed: u64) -> Random<'b> {
        Random { given: None, state: (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 }
    }

    /// As a fuzzer gives them.
    pub fn of_bytes(bytes: &'b [u8]) -> Random<'b> {
        Random { given: Some(bytes), ..Random::of_seed(0) }
    }

    /// A number under `n`, which is 1 to 256.
    pub fn below(&mut self, n: usize) -> usize {
        if let Some((&first, rest)) = self.given.and_then(<[u8]>::split_first) {
            self.given = Some(rest);
            return usize::from(first) % n;
        }
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state % n as u64) as usize
    }

    /// All that was given is used: what is on its way is to come to an end.
    pub fn is_over(&self) -> bool {
        self.given.is_some_and(<[u8]>::is_empty)
    }
}

/// A chain on its way.
struct Chain {
    /// Of what is unanswered; else [`Tag::NONE`].
    tag: Tag,
    /// Those of a chain that is given up have all been called.
    steps: Vec<Step>,
    fids: [Option<Fid>; 2],
    /// Steps that were called.
    called: usize,
    /// Those of them that are unanswered, in their order.
    asked: VecDeque<usize>,
    /// What each of the steps that were called brought.
    brought: Vec<Option<Brought>>,
    given_up: bool,
}

#[derive(Default)]
pub struct Played {
    pub chains: u64,
    pub aborted: u64,
    /// Requests that were taken back before they left.
    pub withdrawn: u64,
    /// Requests that were called when some of their chain were answered.
    pub called_late: u64,
    /// Chains that have less than their guard guards.
    pub short_of_its_guard: u64,
}

struct Run<'b> {
    random: Random<'b>,
    version: Version,
    client: Session,
    server: Server,
    root: Fid,
    /// Each user's directory, for Trename to name; .L only.
    dirs: Vec<Fid>,
    chains: [Option<Chain>; USERS],
    /// What each user's files are when nothing is on its way.
    trees: [Tree; USERS],
    /// Frames that wait for their turn.
    later: BTreeMap<Tag, VecDeque<Vec<u8>>>,
    played: Played,
}

/// Plays one connection to its end.
pub fn play(version: Version, random: Random<'_>) -> Played {
    let mut run = Run::new(version, random);
    for _ in 0..PATIENCE {
        run.step();
        if run.is_enough() && run.is_at_rest() {
            break;
        }
    }
    assert!(run.is_at_rest(), "something is on its way for ever");
    let fids = 1 + run.dirs.len();
    assert_eq!((run.client.fids(), run.client.calls(), run.client.unattended()), (fids, 0, 0));
    assert_eq!(run.server.fids(), fids, "fids that nobody owns at the server");
    assert!(run.later.values().all(VecDeque::is_empty));
    run.played
}

impl<'b> Run<'b> {
    fn new(version: Version, random: Random<'b>) -> Run<'b> {
        let client = Session::new(version, MSIZE, Limits::default());
        let server = Server::new(version);
        let (chains, trees, later, played, dirs) = Default::default();
        let mut run = Run { random, version, client, server, root: Fid(0), dirs, chains, trees, later, played };
        run.root = run.client.new_fid().unwrap();
        let own = run.is_own();
        run.establish(&messages::attach(own, run.root));
        let with_dirs = if version.dialect == Dialect::Linux { USERS } else { 0 };
        for user in 0..with_dirs {
            let dir = run.client.new_fid().unwrap();
            run.establish(&messages::walk(run.root, dir, user, To::Dir, &mut Vec::new()));
            run.dirs.push(dir);
        }
        run
    }

    /// Calls what makes a fid, and waits for it.
    fn establish(&mut self, request: &T<'_>) {
        let mut frame = Vec::new();
        self.client.call(request, &mut frame).unwrap();
        self.server.incoming.push_back(frame);
        self.server.receive();
        self.server.finish_one(&mut Random::of_seed(0));
        let reply = self.server.outgoing.pop_front().unwrap();
        assert!(matches!(self.client.handle_frame(&reply), Ok(Answer::Reply { made: Some(_), .. })));
    }

    /// Whether the next request is one of `.n1`'s own, where it has one for the deed.
    fn is_own(&mut self) -> bool {
        self.version.is_n1() && self.random.below(2) == 0
    }

    fn is_at_rest(&self) -> bool {
        self.chains.iter().all(Option::is_none) && self.server.is_at_rest() && self.client.is_idle()
    }

    /// No further chain is begun.
    fn is_enough(&self) -> bool {
        self.played.chains >= CHAINS || self.random.is_over()
    }

    fn step(&mut self) {
        match self.random.below(18) {
            0 => self.begin(),
            16 | 17 => {
                let user = self.random.below(USERS);
                self.call_more(user);
            }
            1 if self.random.below(4) == 0 => self.give_up(),
            2..=4 => self.server.receive(),
            5..=9 => self.server.finish_one(&mut self.random),
            10..=13 => self.deliver(),
            _ => self.transmit(),
        }
        self.turns();
        self.settle();
    }

    /// A user without a chain begins one.
    fn begin(&mut self) {
        let user = self.random.below(USERS);
        if self.chains[user].is_some() || self.is_enough() {
            return;
        }
        let (tag, steps, fids) = (Tag::NONE, self.steps(), Default::default());
        let (asked, brought) = Default::default();
        self.chains[user] = Some(Chain { tag, steps, fids, called: 0, asked, brought, given_up: false });
        self.played.chains += 1;
        self.call_more(user);
    }

    /// Some of a chain are called, most often all that are left.
    fn call_more(&mut self, user: usize) {
        let Some(mut chain) = self.chains[user].take_if(|chain| !chain.given_up) else { return };
        let left = chain.steps.len() - chain.called;
        let now = if self.random.below(3) > 0 { left } else { left.min(self.random.below(4)) };
        self.played.called_late += if chain.called > 0 { now as u64 } else { 0 };
        for _ in 0..now {
            self.call(user, &mut chain);
        }
        self.chains[user] = Some(chain);
    }

    fn call(&mut self, user: usize, chain: &mut Chain) {
        let at = chain.called;
        let step = chain.steps[at].clone();
        let slot = step.slot();
        if matches!(step, Step::Walk { .. }) {
            let fid = self.client.new_fid().unwrap();
            self.client.keep(fid, true);
            chain.fids[slot] = Some(fid);
        }
        let (own, version, root) = (self.is_own(), self.version, self.root);
        let dir = self.dirs.get(user).copied().unwrap_or(Fid::NONE);
        let mut bytes = Vec::new();
        let request = messages::request(&Place { version, own, user, root, dir, fids: &chain.fids }, &step, &mut bytes);
        let mut frame = Vec::new();
        // When all of it is answered the next one begins another.
        let is_first = chain.tag == Tag::NONE;
        let turn = match is_first {
            true => self.client.call(&request, &mut frame).map(|tag| {
                chain.tag = tag;
                Turn::Now
            }),
            false => self.client.call_behind(chain.tag, &request, &mut frame),
        };
        chain.called += 1;
        let turn = match turn {
            Ok(turn) => turn,
            // Its walk has failed already.
            Err(Refused::UnknownFid(fid)) if chain.fids.contains(&Some(fid)) => {
                return chain.brought.push(Some(Brought::NotMade));
            }
            Err(refused) => panic!("{request:?}: {refused}"),
        };
        assert_eq!(turn == Turn::Now, is_first || self.version.groups);
        frame.extend(request.payload());
        chain.brought.push(None);
        chain.asked.push_back(at);
        match turn {
            Turn::Now => self.server.incoming.push_back(frame),
            Turn::Later => self.later.entry(chain.tag).or_default().push_back(frame),
        }
    }

    /// Up to ten requests on up to two fids, each of which begins with a walk.
    fn steps(&mut self) -> Vec<Step> {
        let random = &mut self.random;
        let deeds = if self.version.dialect == Dialect::Linux { 16 } else { 12 };
        let mut steps = Vec::new();
        // Walked to, and not ended.
        let mut slots: Vec<usize> = Vec::new();
        let mut new = vec![1, 0];
        // What a Tremove behind would remove is not known.
        let mut created = [false; 2];
        for _ in 0..1 + random.below(10) {
            let name = char::from(b'a' + random.below(3) as u8);
            if !new.is_empty() && (slots.is_empty() || random.below(5) == 0) {
                let slot = new.pop().unwrap();
                let to = match random.below(8) {
                    0 => To::Nowhere,
                    1..=3 => To::Dir,
                    _ => To::File(name),
                };
                steps.push(Step::Walk { slot, to });
                slots.push(slot);
                continue;
            }
            let Some(&slot) = slots.get(random.below(slots.len().max(1))) else { break };
            let offset = random.below(LONGEST) as u64;
            let step = match random.below(deeds) {
                0 | 1 => Step::Open { slot, write: random.below(2) == 0 },
                2 | 3 => Step::Create { slot, name },
                4 | 5 => Step::Read { slot, offset },
                6 | 7 => Step::Write { slot, offset, byte: random.below(256) as u8 },
                8 => Step::Stat { slot },
                9 => Step::Rename { slot, name },
                10 if !created[slot] => Step::Remove { slot },
                // .L's alone.
                12 | 13 => Step::List { slot },
                14 => {
                    let into = slots[random.below(slots.len())];
                    Step::Move { slot, into, old: char::from(b'a' + random.below(3) as u8), new: name }
                }
                15 => Step::Unlink { slot, name },
                _ => Step::Clunk { slot },
            };
            created[slot] |= matches!(step, Step::Create { .. });
            if step.ends() {
                slots.retain(|&there| there != slot);
            }
            steps.push(step);
        }
        if self.version.is_n1() && random.below(3) == 0 {
            let members = steps.len() + random.below(3);
            steps.insert(0, Step::Stop { members: members as u16 });
        }
        steps
    }

    /// A chain is given up: some of what has not left is taken back, from its end on; the rest is cancelled.
    fn give_up(&mut self) {
        let user = self.random.below(USERS);
        let Some(chain) = self.chains[user].as_mut().filter(|chain| !chain.given_up) else { return };
        chain.given_up = true;
        chain.steps.truncate(chain.called);
        self.played.aborted += 1;
        let most = self.random.below(12);
        for _ in 0..most.min(chain.asked.len()) {
            let unsent = self.later.get_mut(&chain.tag).and_then(VecDeque::pop_back).is_some();
            if !unsent && !self.server.lose_last(chain.tag) {
                break;
            }
            assert!(self.client.withdraw_last(chain.tag));
            let never = chain.asked.pop_back().unwrap();
            // It was never called; those behind it were refused, and are nothing.
            chain.steps.truncate(never);
            chain.brought.truncate(never);
            self.played.withdrawn += 1;
        }
        if chain.asked.is_empty() && !self.client.is_guarded(chain.tag) {
            // The tag may be another's from now on.
            chain.tag = Tag::NONE;
        } else {
            self.client.cancel(chain.tag);
            self.later.remove(&chain.tag);
        }
        for fid in chain.fids.into_iter().flatten() {
            self.client.abandon(fid, Parting::Clunk);
        }
    }

    /// Flushes and clunks that the client sends by itself.
    fn transmit(&mut self) {
        let mut frame = Vec::new();
        while self.client.poll_transmit(&mut frame) {
            self.server.incoming.push_back(std::mem::take(&mut frame));
        }
    }

    fn deliver(&mut self) {
        let Some(frame) = self.server.outgoing.pop_front() else { return };
        let dialect = self.version.dialect;
        self.assault(split_frame(&frame).unwrap().0.tag);
        match self.client.handle_frame(&frame).expect("the server breaks a rule") {
            Answer::Reply { tag, reply, .. } => {
                let brought = brought(&reply, dialect);
                self.answered(tag, brought);
            }
            Answer::Failed { tag, error } => self.answered(tag, refused(&error)),
            Answer::Settled => {}
        }
    }

    /// Frames that no server may send, with the tag of one that comes and with one that is free: they are refused, and what they
    /// changed would show.
    fn assault(&mut self, tag: Tag) {
        if self.random.below(8) > 0 {
            return;
        }
        let free = Tag(65_000);
        let frames = [(tag, R::Version { msize: MSIZE, version: b"9P2000" }), (free, R::Clunk {})];
        for (tag, reply) in frames {
            let mut frame = Vec::new();
            reply.encode(tag, self.version, &mut frame);
            assert!(self.client.handle_frame(&frame).is_err(), "{reply:?} is taken");
        }
    }

    /// What has its turn goes out.
    fn turns(&mut self) {
        while let Some(due) = self.client.poll_turn() {
            assert!(!self.version.groups, "a group waits for its turn");
            match due {
                Due::Send { tag } => {
                    let frame = self.later.get_mut(&tag).and_then(VecDeque::pop_front);
                    self.server.incoming.push_back(frame.expect("there is one"));
                }
                Due::Failed { tag, error } => {
                    self.later.get_mut(&tag).and_then(VecDeque::pop_front).expect("there is one");
                    self.answered(tag, refused(&error));
                }
            }
        }
    }

    fn answered(&mut self, tag: Tag, brought: Brought) {
        let chain = self.chains.iter_mut().flatten().find(|chain| chain.tag == tag && !chain.given_up);
        let chain = chain.expect("an answer for a chain that waits");
        let at = chain.asked.pop_front().expect("an answer to what was asked");
        chain.brought[at] = Some(brought);
        if chain.asked.is_empty() && !self.client.is_guarded(tag) {
            chain.tag = Tag::NONE;
        }
    }

    /// Chains that are over are held against what they would have done alone.
    fn settle(&mut self) {
        for user in 0..USERS {
            let over = |chain: &mut Chain| match chain.given_up {
                true => !self.client.holds(chain.tag),
                false => chain.called == chain.steps.len() && chain.asked.is_empty(),
            };
            let Some(chain) = self.chains[user].take_if(over) else { continue };
            let mut alone = Alone::new(&self.trees[user], self.version.dialect);
            let now = &self.server.trees[user];
            let known = chain.asked.front().copied().unwrap_or(chain.steps.len());
            for (at, step) in chain.steps.iter().enumerate() {
                // Of one that was given up no more need have been done than was told.
                if at >= known && alone.tree == *now {
                    break;
                }
                let brought = alone.step(step);
                if let Some(told) = &chain.brought[at] {
                    assert_eq!(*told, brought, "{step:?} of {:?}", chain.steps);
                }
            }
            assert_eq!(alone.tree, *now, "what is left behind {:?}, of which {known} were told", chain.steps);
            self.trees[user] = alone.tree;
            if !chain.given_up {
                if chain.tag != Tag::NONE {
                    // Its guard waits for more than it has.
                    self.client.cancel(chain.tag);
                    self.played.short_of_its_guard += 1;
                }
                for fid in chain.fids.into_iter().flatten() {
                    self.client.abandon(fid, Parting::Clunk);
                }
            }
        }
    }
}
