//! Requests that share a tag, in whatever order they come, are done and are flushed: every request is answered once, in the
//! order of its tag, or was flushed; none is carried out before those of its tag before it are answered, nor left behind.

use alloc::collections::{BTreeMap, VecDeque};

use super::*;
use crate::types::WalkElem;

/// What is to be answered of one tag, in order.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Due {
    /// To the request with this serial number.
    Reply(u64),
    /// To the Tflush with this tag, which is served.
    Flush(u64),
    /// To the Tflush with this serial number, in its own tag; while it is served, when its `Flush` is answered.
    Turn(u64),
}

/// How a request uses fid 2.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Use {
    None,
    Shared,
    /// Nothing runs beside it.
    Alone,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    id: RequestId,
    serial: u64,
    tag: u64,
}

/// A session with fids 1 and 2. Each request has its serial number in its offset or name, and in the text of the error that it
/// is answered with.
struct Random {
    b: Bench,
    state: u64,
    serial: u64,
    uses: BTreeMap<u64, Use>,
    running: Vec<Running>,
    due: BTreeMap<u64, VecDeque<Due>>,
    /// Tflushes that must be answered at once.
    at_once: Vec<u64>,
    /// Tflushes that are served, by their tags: the tag of the request that they wait for, and their serial number.
    served: BTreeMap<u64, (u64, u64)>,
}

const TAGS: u64 = 4;

/// Tflush's number.
const TFLUSH: u8 = 108;

impl Random {
    fn new(seed: u64) -> Random {
        let mut b = Bench::attached_as(Dialect::Plan9, "9P2000.ix");
        b.open(1);
        b.walk(2, DIR);
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let (uses, due, served) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Random { b, state, serial: 0, uses, running: Vec::new(), due, at_once: Vec::new(), served }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % below
    }

    fn send(&mut self) {
        let tag = self.draw(TAGS);
        self.serial += 1;
        let serial = self.serial;
        let (line, used) = match self.draw(4) {
            0..=1 => (format!("Tread tag {tag} fid 1 offset {serial} count 8"), Use::None),
            2 => (format!("Twalk tag {tag} fid 2 newfid {} nwname 1 0:{serial}", 100 + serial), Use::Shared),
            _ => (format!("Twalk tag {tag} fid 2 newfid 2 nwname 1 0:{serial}"), Use::Alone),
        };
        self.uses.insert(serial, used);
        self.due.entry(tag).or_default().push_back(Due::Reply(serial));
        let frame = parse(&line, Dialect::Plan9).unwrap();
        let begun = begun(self.b.session.handle_frame(&frame, &|_| false, &mut self.b.out));
        self.began(begun);
    }

    fn members(&mut self) {
        while let Some(member) = self.b.session.poll_member() {
            let tag = u64::from(member.tag().0);
            let flush = match self.due.get(&tag).and_then(VecDeque::front) {
                Some(Due::Turn(serial)) => Some(*serial),
                _ => None,
            };
            if let Some(serial) = flush {
                let frame = member.frame().unwrap();
                assert_eq!(frame[4], TFLUSH, "out of turn");
                self.serve_flush(tag, u16::from_le_bytes([frame[7], frame[8]]).into(), serial);
            }
            match self.b.session.handle_member(&member, &mut self.b.out) {
                Ok(Event::Cancel(_)) if flush.is_some() => {}
                event => {
                    let begun = begun(event);
                    self.began(begun);
                }
            }
            self.take_replies();
        }
    }

    fn began(&mut self, begun: Option<(RequestId, u64)>) {
        let Some((id, serial)) = begun else { return };
        let first = self.due.iter().find(|(_, due)| due.front() == Some(&Due::Reply(serial)));
        let (&tag, _) = first.unwrap_or_else(|| panic!("{serial} is begun out of turn"));
        self.running.push(Running { id, serial, tag });
    }

    /// Of a tag, or of a Tflush that is served; in a tag of its own, or in a group.
    fn flush(&mut self) {
        self.serial += 1;
        let serial = self.serial;
        let served: Vec<u64> = self.served.keys().copied().collect();
        let oldtag = match self.draw(3) {
            0 if !served.is_empty() => served[self.draw(served.len() as u64) as usize],
            _ => self.draw(TAGS),
        };
        let tag = if self.draw(2) == 0 { self.draw(TAGS) } else { 1000 + serial };
        let turn = self.due.get(&tag).is_none_or(VecDeque::is_empty);
        if tag < TAGS {
            self.due.entry(tag).or_default().push_back(Due::Turn(serial));
        }
        if turn {
            self.serve_flush(tag, oldtag, serial);
        }
        let did = self.b.send(&format!("Tflush tag {tag} oldtag {oldtag}"));
        assert!(matches!(did, Did::Handled | Did::Cancel(_)), "{did:?}");
    }

    /// Only the first of a tag can have begun; of the rest those never will that came before the Tflush.
    fn serve_flush(&mut self, tag: u64, oldtag: u64, serial: u64) {
        let served = self.served.get(&oldtag).copied().filter(|(_, since)| *since < serial);
        if tag != oldtag
            && let Some(due) = self.due.get_mut(&oldtag)
        {
            due.retain(|due| match due {
                Due::Reply(one) => *one > serial || self.running.iter().any(|running| running.serial == *one),
                Due::Turn(one) => *one > serial || served.is_some_and(|(_, since)| since == *one),
                Due::Flush(_) => true,
            });
        }
        let before = self.running.iter().find(|running| running.tag == oldtag && running.serial < serial);
        let Some(home) = served.map(|(home, _)| home).or(before.map(|_| oldtag)) else {
            return self.at_once.push(tag);
        };
        // Behind what runs and its other flushes, before what came after those.
        let due = self.due.get_mut(&home).unwrap();
        let at = 1 + due.iter().skip(1).take_while(|due| matches!(due, Due::Flush(_))).count();
        due.insert(at, Due::Flush(tag));
        self.served.insert(tag, (home, serial));
    }

    fn complete(&mut self) {
        let at = self.draw(self.running.len() as u64) as usize;
        let Running { id, serial, tag } = self.running.swap_remove(at);
        let undone = self.draw(2) == 0;
        let due = self.due.get_mut(&tag).unwrap();
        let error = if undone && matches!(due.get(1), Some(Due::Flush(_))) {
            // Undone: no reply.
            assert_eq!(due.pop_front(), Some(Due::Reply(serial)));
            Errno::EINTR.into()
        } else {
            Error::with_text(Errno::EIO, format!("{serial}"))
        };
        self.b.session.complete(id, Err(error), &mut self.b.out);
    }

    fn take_replies(&mut self) {
        for line in self.b.replies() {
            let words: Vec<_> = line.split(' ').collect();
            let tag: u64 = words[2].parse().unwrap();
            if words[0] != "Rflush" {
                let serial = words[4].trim_matches('\'').parse().unwrap_or_else(|_| panic!("{line}"));
                assert_eq!(self.due.get_mut(&tag).and_then(VecDeque::pop_front), Some(Due::Reply(serial)), "{line}");
                continue;
            }
            if let Some(at) = self.at_once.iter().position(|flush| *flush == tag) {
                self.at_once.remove(at);
            } else {
                let first = self.due.values_mut().find(|due| due.front() == Some(&Due::Flush(tag)));
                first.unwrap_or_else(|| panic!("{line}: out of turn")).pop_front();
                self.served.remove(&tag);
            }
            if tag < TAGS {
                let first = self.due.get_mut(&tag).and_then(VecDeque::pop_front);
                assert!(matches!(first, Some(Due::Turn(_))), "{line}: {first:?} is out of turn");
            }
        }
        assert!(self.at_once.is_empty(), "{:?} are not answered", self.at_once);
    }

    /// What came of a step, and of what then has its turn; a driver may take more steps before it looks for that.
    fn settle(&mut self) {
        self.take_replies();
        if self.draw(3) == 0 {
            return;
        }
        self.members();
        let waits = |(tag, due): &(&u64, &VecDeque<Due>)| !due.is_empty() && !self.served.contains_key(tag);
        let tags = self.due.iter().filter(waits).count();
        let uses: Vec<_> = self.running.iter().map(|running| self.uses[&running.serial]).collect();
        let of_fid_2 = uses.iter().filter(|used| **used != Use::None).count();
        assert!(!uses.contains(&Use::Alone) || of_fid_2 == 1, "beside one that runs alone");
        match of_fid_2 {
            0 => assert_eq!(uses.len(), tags, "one of each tag runs where nothing uses the fid"),
            _ => assert!(uses.len() <= tags),
        }
    }
}

/// What is to be carried out, with its serial number.
fn begun(event: Result<Event<'_, File>, Violation>) -> Option<(RequestId, u64)> {
    match event {
        Ok(Event::Execute(Request { id, op: Op::Read { offset, .. }, .. })) => Some((id, offset)),
        Ok(Event::Execute(Request { id, op: Op::Walk { elems, .. }, .. })) => {
            let [WalkElem::Name(name)] = elems[..] else { panic!("{elems:?}") };
            Some((id, core::str::from_utf8(name.as_bytes()).unwrap().parse().unwrap()))
        }
        Ok(Event::Handled) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn random_groups_are_answered_as_if_each_had_been_waited_for() {
    for seed in 0..1500 {
        let mut random = Random::new(seed);
        for _ in 0..60 {
            match random.draw(7) {
                0..=2 => random.send(),
                3 => random.flush(),
                _ if !random.running.is_empty() => random.complete(),
                _ => {}
            }
            random.settle();
        }
        loop {
            random.members();
            if random.running.is_empty() {
                break;
            }
            random.complete();
            random.settle();
        }
        assert_eq!(random.due.values().map(VecDeque::len).sum::<usize>(), 0, "seed {seed}: something waits for ever");
        assert_eq!(random.b.session.outstanding(), 0, "seed {seed}");
    }
}
