//! The table of misbehaviours.

use ninefold_proto::Dialect;
use ninefold_proto::dialect::{DialectSet, Version};
use ninefold_proto::types::Fid;

use super::listing::Entry;
use super::scene::{Reply, Request, Scene};
use super::stream::{self, Trick};
use super::{
    attach, attribute, data, directory, failure, flush, frame, link, open, reply, silence, version, walk, xattr,
};

/// One way to misbehave.
#[derive(Debug)]
pub struct Misbehaviour {
    /// Small letters and hyphens, unique.
    pub name: &'static str,
    /// What the server does, for a person.
    pub what: &'static str,
    /// The rule broken and where it is written; `None` where it is only odd.
    pub rule: Option<&'static str>,
    dialects: DialectSet,
    pub(super) hook: Hook,
}

/// What is done with the messages that pass.
#[derive(Debug)]
pub(super) enum Hook {
    /// With each request; it is forwarded only if the hook does so.
    Request(fn(&mut Scene, &Request<'_>)),
    /// With each reply of the honest server; it is said only if the hook does so.
    Reply(fn(&mut Scene, &Reply<'_>)),
    Both(fn(&mut Scene, &Request<'_>), fn(&mut Scene, &Reply<'_>)),
    /// Bytes said before anything is asked.
    Greeting(&'static [u8]),
    /// Entries at the end of the listing of the directory that the fid stands for.
    Listed(fn(&Scene, Fid) -> Vec<Entry>),
    /// With streams; connections come by TCP.
    Stream(Trick),
    /// Nothing: the tree has files of these names.
    Names(&'static [&'static [u8]]),
    /// Nothing: what the tree has is enough.
    Tree,
}

impl Misbehaviour {
    /// A rule that is broken.
    pub(super) const fn new(
        name: &'static str,
        dialects: DialectSet,
        hook: Hook,
        what: &'static str,
        rule: &'static str,
    ) -> Misbehaviour {
        Misbehaviour { name, what, rule: Some(rule), dialects, hook }
    }

    /// Something odd that no rule forbids.
    pub(super) const fn odd(name: &'static str, dialects: DialectSet, hook: Hook, what: &'static str) -> Misbehaviour {
        Misbehaviour { name, what, rule: None, dialects, hook }
    }

    /// The dialects in which it can be played, poorest first.
    pub fn dialects(&self) -> impl Iterator<Item = Dialect> + use<> {
        let set = self.dialects;
        Dialect::ALL.into_iter().filter(move |&dialect| set.has(dialect))
    }

    /// The same with the suffixes that it takes.
    pub fn versions(&self) -> impl Iterator<Item = Version> + use<> {
        let of_streams = matches!(self.hook, Hook::Stream(_));
        self.dialects().map(move |dialect| if of_streams { stream::version(dialect) } else { dialect.into() })
    }
}

/// Every misbehaviour of messages, by subject. What is wrong with streams is in [`streams`].
pub fn all() -> impl Iterator<Item = &'static Misbehaviour> {
    [
        version::TABLE,
        attach::TABLE,
        frame::TABLE,
        reply::TABLE,
        walk::TABLE,
        open::TABLE,
        data::TABLE,
        directory::TABLE,
        attribute::TABLE,
        link::TABLE,
        xattr::TABLE,
        failure::TABLE,
        flush::TABLE,
        silence::TABLE,
    ]
    .into_iter()
    .flatten()
}

/// Every misbehaviour of streams, for connections over TCP.
pub fn streams() -> impl Iterator<Item = &'static Misbehaviour> {
    stream::TABLE.iter()
}

/// The misbehaviour of that name.
pub fn find(name: &str) -> Option<&'static Misbehaviour> {
    all().chain(streams()).find(|misbehaviour| misbehaviour.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_name_is_unique_and_is_typed_without_quoting() {
        let names: Vec<&str> = all().chain(streams()).map(|misbehaviour| misbehaviour.name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        let plain = |name: &&str| name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        assert!(names.iter().all(plain), "{names:?}");
    }

    #[test]
    fn each_can_be_played_in_some_dialect() {
        assert!(all().chain(streams()).all(|misbehaviour| misbehaviour.dialects().next().is_some()));
    }
}
