//! A server that keeps to 9P in its own time: requests are carried out in any order, replies go out in the order in
//! which they were made. It judges the client by what it knows itself: tags and fids as they come in.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ninefold_proto::dialect::Version;
use ninefold_proto::message::{Entries, Payload, Qids, R, StatBytes, T, info};
use ninefold_proto::print::FieldKind;
use ninefold_proto::stat::{DirEntry, Stat};
use ninefold_proto::types::{Qid, QidType};
use ninefold_proto::wire::split_frame;
use ninefold_proto::{Dialect, Tag};

use super::Choose;
use super::judge::asked;

/// Habits in which servers differ.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// A walk that ends early makes its newfid, as diod's does.
    pub partial_walk_makes: bool,
    /// Tflush is answered with an error, and flushes nothing.
    pub refuses_flush: bool,
}

pub struct Server {
    version: Version,
    habits: Habits,
    /// Frames on their way to it.
    pub incoming: VecDeque<Vec<u8>>,
    /// Frames on their way to the client.
    pub outgoing: VecDeque<Vec<u8>>,
    /// Requests that came in and are not answered.
    requests: BTreeMap<u16, Vec<u8>>,
    fids: BTreeSet<u32>,
    /// Fids whose Tclunk or Tremove came in.
    ending: BTreeSet<u32>,
    /// Newfids of walks that ended early.
    stray: BTreeSet<u32>,
}

const DIR: Qid = Qid { kind: QidType::DIR, version: 1, path: 1 };

impl Server {
    pub fn new(version: Version, habits: Habits) -> Server {
        let (incoming, outgoing, requests, fids, ending, stray) = Default::default();
        Server { version, habits, incoming, outgoing, requests, fids, ending, stray }
    }

    pub fn fids(&self) -> usize {
        self.fids.len()
    }

    pub fn is_at_rest(&self) -> bool {
        self.incoming.is_empty() && self.outgoing.is_empty() && self.requests.is_empty()
    }

    /// One frame comes in.
    pub fn receive(&mut self) {
        let Some(frame) = self.incoming.pop_front() else { return };
        let (header, body) = split_frame(&frame).unwrap();
        let tag = header.tag.0;
        let message = T::decode(header.kind, body, self.version).unwrap();
        assert!(!self.requests.contains_key(&tag), "tag {tag} came twice");
        let asked = asked(&message, self.version);
        for fid in asked.names {
            let known = self.fids.contains(&fid) || header.kind == 120 && self.stray.contains(&fid);
            assert!(known && !self.ending.contains(&fid), "{message:?} names fid {fid}, which is no more, or not yet");
        }
        self.ending.extend(asked.ends);
        assert!(asked.makes.is_none_or(|fid| !self.fids.contains(&fid)), "{message:?}: newfid in use");
        self.requests.insert(tag, frame);
    }

    /// One request is answered.
    pub fn answer_one(&mut self, choose: &mut impl Choose) {
        let tags: Vec<u16> = self.requests.keys().copied().collect();
        if tags.is_empty() {
            return;
        }
        let tag = tags[choose.below(tags.len())];
        let frame = self.requests.remove(&tag).unwrap();
        let (header, body) = split_frame(&frame).unwrap();
        let message = T::decode(header.kind, body, self.version).unwrap();
        if let T::Flush { oldtag } = message {
            return self.flush(tag, oldtag.0, choose);
        }
        self.carry_out(tag, &message, choose);
    }

    fn flush(&mut self, tag: u16, oldtag: u16, choose: &mut impl Choose) {
        if self.habits.refuses_flush {
            return self.error(tag);
        }
        if let Some(frame) = self.requests.remove(&oldtag) {
            // It is either never carried out, or answered before the Rflush.
            if choose.below(2) == 0 {
                let (header, body) = split_frame(&frame).unwrap();
                let message = T::decode(header.kind, body, self.version).unwrap();
                self.carry_out(oldtag, &message, choose);
            }
        }
        self.reply(tag, &R::Flush {});
    }

    fn reply(&mut self, tag: u16, reply: &R<'_>) {
        let mut frame = Vec::new();
        reply.encode(Tag(tag), self.version, &mut frame);
        self.outgoing.push_back(frame);
    }

    fn error(&mut self, tag: u16) {
        match self.version.dialect {
            Dialect::Linux => self.reply(tag, &R::Lerror { ecode: 5, retry_ms: 0, text: b"" }),
            _ => self.reply(tag, &R::Error { ename: b"i/o error", errno: 5 }),
        }
    }

    fn carry_out(&mut self, tag: u16, message: &T<'_>, choose: &mut impl Choose) {
        let fails = choose.below(4) == 3;
        if let T::Clunk { fid } | T::Remove { fid } = *message {
            // The fid is gone, whatever comes of it (clunk(5), remove(5)).
            self.ending.remove(&fid.0);
            self.fids.remove(&fid.0);
            self.stray.remove(&fid.0);
        }
        if fails {
            return self.error(tag);
        }
        let mut scratch = Vec::new();
        let makes = asked(message, self.version).makes;
        if let T::Walk { wnames, .. } = *message
            && wnames.len() > 1
            && choose.below(3) == 2
        {
            let n = 1 + choose.below(wnames.len() - 1);
            self.stray.extend(makes);
            self.fids.extend(makes.filter(|_| self.habits.partial_walk_makes));
            return self.reply(tag, &R::Walk { wqids: Qids::encode(&vec![DIR; n], &mut scratch) });
        }
        self.fids.extend(makes);
        self.outgoing.push_back(success(tag, message, self.version, choose));
    }
}

/// A frame that says that all went well: every field 0, but for what must agree with the request.
pub fn success(tag: u16, message: &T<'_>, version: Version, choose: &mut impl Choose) -> Vec<u8> {
    let (mut scratch, mut frame) = (Vec::new(), Vec::new());
    let reply = match *message {
        T::Walk { wnames, .. } => R::Walk { wqids: Qids::encode(&vec![DIR; wnames.len()], &mut scratch) },
        // The data is the offset, so that the reader knows his own.
        T::Read { offset, count, .. } => {
            scratch.extend(offset.to_le_bytes());
            scratch.truncate(count as usize);
            R::Read { data: Payload(&scratch) }
        }
        T::Write { data, .. } => R::Write { count: (data.0.len() - choose.below(data.0.len() + 1)) as u32 },
        T::Stat { .. } => {
            Stat { name: b"x", ..Stat::UNTOUCHED }.encode(version.dialect, &mut scratch);
            R::Stat { stat: StatBytes(&scratch) }
        }
        T::Readdir { count, .. } => {
            let entry = DirEntry { qid: DIR, offset: 1, kind: 4, name: b"name" };
            if entry.encoded_len() <= count as usize {
                entry.encode(&mut scratch);
            }
            R::Readdir { data: Entries(&scratch) }
        }
        _ => {
            let row = info(message.number() + 1, version).expect("every request has a reply");
            let fields = row.fields.iter().filter(|field| field.dialects.has(version));
            scratch.resize(fields.map(|field| width(field.kind)).sum(), 0);
            R::decode(row.number, &scratch, version).expect("a body of zeros decodes")
        }
    };
    reply.encode(Tag(tag), version, &mut frame);
    frame
}

/// Bytes of a field that is 0, or empty.
fn width(kind: FieldKind) -> usize {
    match kind {
        FieldKind::U8 => 1,
        FieldKind::U16 | FieldKind::Tag | FieldKind::Str | FieldKind::Names | FieldKind::Qids | FieldKind::Stat => 2,
        FieldKind::U32 | FieldKind::Fid | FieldKind::Perm | FieldKind::Octal | FieldKind::Optional => 4,
        FieldKind::LongStr | FieldKind::Payload | FieldKind::Entries | FieldKind::PlusEntries => 4,
        FieldKind::U64 | FieldKind::Mask => 8,
        FieldKind::Qid => 13,
        FieldKind::Secret => 16,
    }
}
