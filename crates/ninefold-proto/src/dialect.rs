//! Which 9P is spoken: the three dialects, what is added to them, and how the two ends agree (version(5), protocol.md).
//!
//! The server's side is one function, [`answer_version`]. The client's side is [`Negotiation`]: take
//! [`Negotiation::offer`], send it, hand the answer to [`Negotiation::handle`], and do what it says.

use core::fmt;

use crate::wire::MSIZE_MIN;

/// A family of messages. A value agreed at run time, never a type or a feature.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dialect {
    /// `9P2000`: Plan 9's own.
    Plan9,
    /// `9P2000.u`: Unix numbers, links, devices (S4).
    Unix,
    /// `9P2000.L`: Linux's messages.
    Linux,
}

impl Dialect {
    /// All of them, poorest first.
    pub const ALL: [Dialect; 3] = [Dialect::Plan9, Dialect::Unix, Dialect::Linux];

    /// The version string.
    pub fn as_str(self) -> &'static str {
        match self {
            Dialect::Plan9 => "9P2000",
            Dialect::Unix => "9P2000.u",
            Dialect::Linux => "9P2000.L",
        }
    }

    /// The dialect whose version string is exactly `s`.
    pub fn from_version(s: &[u8]) -> Option<Dialect> {
        Dialect::ALL.into_iter().find(|d| d.as_str().as_bytes() == s)
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What two ends agree on: the dialect, and what the suffix behind it says. It decides the layout of every message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Version {
    pub dialect: Dialect,
    /// Requests that share a tag are a group. With 9P2000 and .u this is `.ix`, where Tcreate opens and cuts a plain file that
    /// is there; with .L it is `.n1`, which has messages of its own.
    pub groups: bool,
    /// `.s` behind 9P2000 or .u: streams, as S1 lays them out. `.n1` has streams of its own, and never this.
    pub streams: bool,
}

impl Version {
    /// `9P2000.L.n1`: .L with groups, sessions, and the messages from 160 on.
    pub const N1: Version = Version { dialect: Dialect::Linux, groups: true, streams: false };

    /// One of each layout of messages; `.ix` is laid out as what it stands behind.
    pub const LAYOUTS: [Version; 6] = [
        Version { dialect: Dialect::Plan9, groups: false, streams: false },
        Version { dialect: Dialect::Unix, groups: false, streams: false },
        Version { dialect: Dialect::Linux, groups: false, streams: false },
        Version::N1,
        Version { dialect: Dialect::Plan9, groups: false, streams: true },
        Version { dialect: Dialect::Unix, groups: false, streams: true },
    ];

    /// Every version that a server of ours may agree to.
    pub const ALL: [Version; 10] = [
        Version::LAYOUTS[0],
        Version::LAYOUTS[1],
        Version::LAYOUTS[2],
        Version::N1,
        Version::LAYOUTS[4],
        Version::LAYOUTS[5],
        Version { groups: true, ..Version::LAYOUTS[0] },
        Version { groups: true, ..Version::LAYOUTS[1] },
        Version { groups: true, ..Version::LAYOUTS[4] },
        Version { groups: true, ..Version::LAYOUTS[5] },
    ];

    pub fn is_n1(self) -> bool {
        self == Version::N1
    }

    /// Whether it is `9P2000.ix` or `9P2000.u.ix`.
    pub fn is_ix(self) -> bool {
        self.groups && self.dialect != Dialect::Linux
    }

    /// Whether it has Tstream, in whichever layout.
    pub fn has_streams(self) -> bool {
        self.streams || self.is_n1()
    }

    /// The version string; of two suffixes `.ix` first.
    pub fn as_str(self) -> &'static str {
        match (self.dialect, self.groups, self.streams) {
            (Dialect::Linux, true, _) => "9P2000.L.n1",
            (Dialect::Plan9, true, true) => "9P2000.ix.s",
            (Dialect::Plan9, true, false) => "9P2000.ix",
            (Dialect::Plan9, false, true) => "9P2000.s",
            (Dialect::Unix, true, true) => "9P2000.u.ix.s",
            (Dialect::Unix, true, false) => "9P2000.u.ix",
            (Dialect::Unix, false, true) => "9P2000.u.s",
            (dialect, ..) => dialect.as_str(),
        }
    }

    /// The same with `.s` in front of `.ix`, where it has both.
    fn as_str_streams_first(self) -> &'static str {
        match (self.dialect, self.groups, self.streams) {
            (Dialect::Plan9, true, true) => "9P2000.s.ix",
            (Dialect::Unix, true, true) => "9P2000.u.s.ix",
            _ => self.as_str(),
        }
    }

    /// The version whose string is exactly `s`, its suffixes in any order.
    pub fn parse(s: &[u8]) -> Option<Version> {
        let names = |version: Version| [version.as_str(), version.as_str_streams_first()];
        Version::ALL.into_iter().find(|&version| names(version).iter().any(|name| name.as_bytes() == s))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<Dialect> for Version {
    fn from(dialect: Dialect) -> Version {
        Version { dialect, groups: false, streams: false }
    }
}

/// A set of layouts of messages; the column of the message table. What has .L has `.n1`, and what has 9P2000 or .u has that with `.s`.
/// A message that is laid out in two ways is one row, whose fields name the layouts that have them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DialectSet(u8);

impl DialectSet {
    pub const PUL: DialectSet = DialectSet(0b11_1111);
    pub const PU: DialectSet = DialectSet(0b11_0011);
    pub const UL: DialectSet = DialectSet(0b10_1110);
    pub const P: DialectSet = DialectSet(0b01_0001);
    pub const U: DialectSet = DialectSet(0b10_0010);
    pub const L: DialectSet = DialectSet(0b00_1100);
    /// `.n1` only.
    pub const N: DialectSet = DialectSet(0b00_1000);
    /// `.s` only, behind 9P2000 and behind .u.
    pub const S: DialectSet = DialectSet(0b11_0000);
    /// `.s` and `.n1`.
    pub const SN: DialectSet = DialectSet(0b11_1000);

    /// Whether the layout of `version` is in it.
    pub fn has(self, version: impl Into<Version>) -> bool {
        let version = version.into();
        let bit = match version.dialect {
            _ if version.is_n1() => 3,
            dialect if version.streams => 4 + dialect as u8,
            dialect => dialect as u8,
        };
        self.0 & (1 << bit) != 0
    }
}

/// The version string that ends a negotiation without result.
pub const UNKNOWN: &str = "unknown";

/// The server's answer to a Tversion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// `None`: `unknown`.
    pub version: Option<Version>,
    /// The string to reply: the suffixes are in the order of the offer.
    pub name: &'static str,
    pub msize: u32,
}

/// The server's answer to a Tversion.
///
/// The offered string is cut at the first suffix that is not known, so the reply is a prefix of the
/// offer; any other `9P` with a number of 2000 or more gets `9P2000`; the rest, and an msize under
/// [`MSIZE_MIN`], gets `unknown`. Never an error (version(5)).
pub fn answer_version(offered: &[u8], msize: u32, msize_max: u32) -> Answer {
    let msize_agreed = msize.min(msize_max);
    if msize < MSIZE_MIN {
        return Answer { version: None, name: UNKNOWN, msize: msize_agreed };
    }
    let mut parts = offered.split(|&b| b == b'.').peekable();
    let mut streams_first = false;
    let version = match parts.next().unwrap_or_default() {
        b"9P2000" => {
            let dialect = match parts.peek().copied() {
                Some(b"u") => Dialect::Unix,
                Some(b"L") => Dialect::Linux,
                _ => Dialect::Plan9,
            };
            if dialect != Dialect::Plan9 {
                parts.next();
            }
            let mut version = Version::from(dialect);
            for part in parts {
                match part {
                    b"n1" if dialect == Dialect::Linux && !version.groups => version.groups = true,
                    b"ix" if dialect != Dialect::Linux && !version.groups => version.groups = true,
                    b"s" if dialect != Dialect::Linux && !version.streams => {
                        version.streams = true;
                        streams_first = !version.groups;
                    }
                    _ => break,
                }
            }
            Some(version)
        }
        base => {
            let number = base.strip_prefix(b"9P").and_then(leading_number);
            number.filter(|&n| n >= 2000).map(|_| Dialect::Plan9.into())
        }
    };
    let name = match version {
        Some(version) if streams_first => version.as_str_streams_first(),
        Some(version) => version.as_str(),
        None => UNKNOWN,
    };
    Answer { version, name, msize: msize_agreed }
}

/// The number that `s` begins with, saturating.
fn leading_number(s: &[u8]) -> Option<u32> {
    s.first().filter(|b| b.is_ascii_digit())?;
    let digits = s.iter().take_while(|b| b.is_ascii_digit());
    Some(digits.fold(0u32, |n, b| n.saturating_mul(10).saturating_add(u32::from(b - b'0'))))
}

/// What came back for a Tversion. Real servers refuse in all of these ways (9p-landscape 1.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VersionAnswer<'a> {
    /// Rversion.
    Version { msize: u32, version: &'a [u8] },
    /// Rerror or Rlerror, whatever is in it.
    Refused,
    /// The connection was closed.
    Closed,
}

impl VersionAnswer<'_> {
    /// Whether it is the version `offered`, as it stands or cut.
    fn takes(&self, offered: &str) -> bool {
        matches!(self, VersionAnswer::Version { version, .. }
            if offered.as_bytes().starts_with(version) && Version::parse(version).is_some())
    }
}

/// What the client does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Agreed: speak `version` with frames of at most `msize` bytes.
    Agreed { version: Version, msize: u32 },
    /// Send the next [`Negotiation::offer`] on the same connection.
    OfferAgain,
    /// Connect anew, then send the next [`Negotiation::offer`].
    Redial,
    /// No dialect in common.
    Failed,
}

/// The client's side of version negotiation: `.L.n1`, then `.L`, `.u`, `9P2000`, the last two with `.s` and without, with the same
/// msize each time; every style of refusal ends in the best common dialect. `.ix` is offered to who pins it, and to nobody else.
#[derive(Clone, Debug)]
pub struct Negotiation {
    msize: u32,
    offers: &'static [&'static str],
    /// Index into `offers` of the one to send now.
    at: usize,
    /// The offer of now is the one that the server took the last time; all of them follow if it does not.
    remembered: bool,
}

/// Those without `.s` are for servers that compare the whole string, as libixp does, instead of cutting it. `.ix` is not among
/// them: there Tcreate opens and cuts a file that is there, and no bit that every server knows forbids it.
const OFFERS: &[&str] = &["9P2000.L.n1", "9P2000.L", "9P2000.u.s", "9P2000.u", "9P2000.s", "9P2000"];
const OFFER_UNIX: usize = 2;
const OFFER_PLAIN_STREAMS: usize = 4;
const OFFER_PLAIN: usize = 5;

impl Negotiation {
    /// Starts at the best offer.
    pub fn new(msize: u32) -> Negotiation {
        Negotiation { msize, offers: OFFERS, at: 0, remembered: false }
    }

    /// Offers only `version`, as a user who pinned it wants.
    pub fn pinned(msize: u32, version: impl Into<Version>) -> Negotiation {
        let offers: &[&str] = match version.into() {
            Version { dialect: Dialect::Linux, groups: true, .. } => &["9P2000.L.n1"],
            Version { dialect: Dialect::Linux, groups: false, .. } => &["9P2000.L"],
            Version { dialect: Dialect::Plan9, groups: true, streams: true } => &["9P2000.ix.s"],
            Version { dialect: Dialect::Plan9, groups: true, streams: false } => &["9P2000.ix"],
            Version { dialect: Dialect::Plan9, groups: false, streams: true } => &["9P2000.s"],
            Version { dialect: Dialect::Plan9, groups: false, streams: false } => &["9P2000"],
            Version { dialect: Dialect::Unix, groups: true, streams: true } => &["9P2000.u.ix.s"],
            Version { dialect: Dialect::Unix, groups: true, streams: false } => &["9P2000.u.ix"],
            Version { dialect: Dialect::Unix, groups: false, streams: true } => &["9P2000.u.s"],
            Version { dialect: Dialect::Unix, groups: false, streams: false } => &["9P2000.u"],
        };
        Negotiation { msize, offers, at: 0, remembered: false }
    }

    /// The same, but what the server took the last time is offered first.
    pub fn remembering(msize: u32, offer: Version) -> Negotiation {
        let at = OFFERS.iter().position(|&known| known == offer.as_str()).unwrap_or_default();
        Negotiation { at, remembered: at > 0, ..Negotiation::new(msize) }
    }

    /// The version string and msize to send now.
    pub fn offer(&self) -> (&'static str, u32) {
        (self.offers[self.at], self.msize)
    }

    /// Whether only one dialect is offered.
    pub fn is_pinned(&self) -> bool {
        self.offers.len() == 1
    }

    /// Takes the answer to the last offer.
    pub fn handle(&mut self, answer: VersionAnswer<'_>) -> Step {
        let offered = self.offers[self.at];
        let pinned = self.is_pinned();
        if core::mem::take(&mut self.remembered) && !answer.takes(offered) {
            self.at = 0;
            return if answer == VersionAnswer::Closed { Step::Redial } else { Step::OfferAgain };
        }
        match answer {
            VersionAnswer::Version { msize, version } if offered.as_bytes().starts_with(version) => {
                let Some(version) = Version::parse(version) else { return self.next(Step::OfferAgain) };
                // An msize over the offer or under the least is a server that cannot be talked to in any dialect.
                if msize > self.msize || msize < MSIZE_MIN || (pinned && version.as_str() != offered) {
                    return Step::Failed;
                }
                // Some servers say .u only to exactly .u, and so with .s: what is more is asked for before less is taken.
                if version == Dialect::Plan9.into() && self.at < OFFER_PLAIN_STREAMS && !pinned {
                    self.at = OFFER_UNIX.max(self.at + 1);
                    return Step::OfferAgain;
                }
                Step::Agreed { version, msize }
            }
            // "unknown" (its msize may be 0), or a version that is no prefix of the offer.
            VersionAnswer::Version { .. } | VersionAnswer::Refused => self.next(Step::OfferAgain),
            VersionAnswer::Closed => {
                // One that closes on what it does not know (knusbaum/go9p) takes exactly the plain version.
                if !pinned && self.at < OFFER_PLAIN {
                    self.at = OFFER_PLAIN - 1;
                }
                self.next(Step::Redial)
            }
        }
    }

    fn next(&mut self, step: Step) -> Step {
        self.at += 1;
        if self.at < self.offers.len() {
            step
        } else {
            self.at = self.offers.len() - 1;
            Step::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(version: &str) -> Option<&'static str> {
        {
            let answer = answer_version(version.as_bytes(), 8192, 65536);
            answer.version.map(|_| answer.name)
        }
    }

    #[test]
    fn server_cuts_the_offer_at_the_first_suffix_it_does_not_know() {
        assert_eq!(answer("9P2000"), Some("9P2000"));
        assert_eq!(answer("9P2000.u"), Some("9P2000.u"));
        assert_eq!(answer("9P2000.L"), Some("9P2000.L"));
        assert_eq!(answer("9P2000.L.n1"), Some("9P2000.L.n1"));
        assert_eq!(answer("9P2000.L.n1.s"), Some("9P2000.L.n1"));
        assert_eq!(answer("9P2000.L.n2"), Some("9P2000.L"));
        assert_eq!(answer("9P2000.n1"), Some("9P2000"));
        assert_eq!(answer("9P2000.L.s.ix"), Some("9P2000.L"));
        assert_eq!(answer("9P2000.u.zz"), Some("9P2000.u"));
        assert_eq!(answer("9P2000.zz.u"), Some("9P2000"));
        assert_eq!(answer("9P2000."), Some("9P2000"));
        assert_eq!(answer("9P2000.ix"), Some("9P2000.ix"));
        assert_eq!(answer("9P2000.ix.s"), Some("9P2000.ix.s"));
        assert_eq!(answer("9P2000.s.ix"), Some("9P2000.s.ix"));
        assert_eq!(answer("9P2000.u.s.ix.zz"), Some("9P2000.u.s.ix"));
        assert_eq!(answer("9P2000.u.ix.s"), Some("9P2000.u.ix.s"));
        assert_eq!(answer("9P2000.s"), Some("9P2000.s"));
        assert_eq!(answer("9P2000.u.s"), Some("9P2000.u.s"));
        assert_eq!(answer("9P2000.s.u"), Some("9P2000.s"));
        assert_eq!(answer("9P2000.s.s"), Some("9P2000.s"));
        assert_eq!(answer("9P2000.ix.ix.s"), Some("9P2000.ix"));
        assert_eq!(answer("9P2000.s.zz.ix"), Some("9P2000.s"));
        assert_eq!(answer("9P2000.L.s"), Some("9P2000.L"));
        assert_eq!(answer("9P2000.ix.u"), Some("9P2000.ix"));
        assert_eq!(answer("9P2000.u.ix"), Some("9P2000.u.ix"));
        assert_eq!(answer("9P2000.u.zz.ix"), Some("9P2000.u"));
        assert_eq!(answer("9P2000.L.ix"), Some("9P2000.L"));
        assert_eq!(answer("9P2000.ixx"), Some("9P2000"));
    }

    #[test]
    fn server_answers_later_9p_with_9p2000_and_the_rest_with_unknown() {
        assert_eq!(answer("9P2001"), Some("9P2000"));
        assert_eq!(answer("9P99999999999999"), Some("9P2000"));
        assert_eq!(answer("9P2000L"), Some("9P2000"));
        for bad in ["", "9P", "9P1999", "9p2000", "HTTP/1.1", "9P-2000", " 9P2000"] {
            assert_eq!(answer(bad), None, "{bad}");
        }
    }

    #[test]
    fn server_takes_the_smaller_msize_and_refuses_one_under_4096() {
        let answer = |msize| {
            let Answer { version, msize, .. } = answer_version(b"9P2000.L", msize, 65536);
            (version, msize)
        };
        assert_eq!(answer(4096), (Some(Dialect::Linux.into()), 4096));
        assert_eq!(answer(u32::MAX), (Some(Dialect::Linux.into()), 65536));
        assert_eq!(answer(4095), (None, 4095));
    }

    #[test]
    fn every_version_is_the_one_of_its_string() {
        for version in Version::ALL {
            assert_eq!(Version::parse(version.as_str().as_bytes()), Some(version));
            let answer = answer_version(version.as_str().as_bytes(), 8192, 65536);
            assert_eq!((answer.version, answer.name), (Some(version), version.as_str()));
        }
        let both = Version { dialect: Dialect::Unix, groups: true, streams: true };
        assert_eq!(Version::parse(b"9P2000.u.s.ix"), Some(both));
        for unknown in [&b"9P2000.L.ix"[..], b"9P2000.L.s", b"9P2000.L.n1.s", b"9P2000.s.s", b"9P2000.s.u"] {
            assert_eq!(Version::parse(unknown), None);
        }
    }

    fn ok(version: &str) -> VersionAnswer<'_> {
        VersionAnswer::Version { msize: 8192, version: version.as_bytes() }
    }

    #[test]
    fn client_falls_back_through_unknown_and_errors_to_the_best_common_dialect() {
        let mut n = Negotiation::new(8192);
        assert_eq!(n.offer().0, "9P2000.L.n1");
        assert_eq!(n.handle(VersionAnswer::Refused), Step::OfferAgain);
        assert_eq!(n.offer().0, "9P2000.L");
        assert_eq!(n.handle(VersionAnswer::Version { msize: 0, version: b"unknown" }), Step::OfferAgain);
        for offer in ["9P2000.u.s", "9P2000.u", "9P2000.s"] {
            assert_eq!(n.offer().0, offer);
            assert_eq!(n.handle(ok("unknown")), Step::OfferAgain);
        }
        assert_eq!(n.offer().0, "9P2000");
        for version in ["9P2000.ix", "9P2000.ix.s", "9P2000.L"] {
            assert_eq!(n.clone().handle(ok(version)), Step::Failed, "{version} was not offered");
        }
        assert_eq!(n.clone().handle(ok("9P2000")), Step::Agreed { version: Dialect::Plan9.into(), msize: 8192 });
        assert_eq!(n.handle(ok("unknown")), Step::Failed);
    }

    #[test]
    fn client_takes_a_prefix_at_once_but_asks_a_plain_server_once_for_u() {
        for version in [Version::N1, Dialect::Linux.into()] {
            let mut n = Negotiation::new(8192);
            assert_eq!(n.handle(ok(version.as_str())), Step::Agreed { version, msize: 8192 });
        }

        let mut n = Negotiation::new(8192);
        assert_eq!(n.handle(ok("9P2000")), Step::OfferAgain);
        assert_eq!(n.offer().0, "9P2000.u.s");
        for version in ["9P2000.u", "9P2000.u.s"] {
            let version = Version::parse(version.as_bytes()).unwrap();
            assert_eq!(n.clone().handle(ok(version.as_str())), Step::Agreed { version, msize: 8192 });
        }
        for answer in [ok("9P2000"), VersionAnswer::Refused] {
            let mut n = n.clone();
            assert_eq!(n.handle(answer), Step::OfferAgain);
            assert_eq!(n.offer().0, "9P2000.u");
            let unix: Version = Dialect::Unix.into();
            assert_eq!(n.clone().handle(ok("9P2000.u")), Step::Agreed { version: unix, msize: 8192 });
            assert_eq!(n.handle(answer), Step::OfferAgain);
            assert_eq!(n.offer().0, "9P2000.s");
            let streams = Version { streams: true, ..Dialect::Plan9.into() };
            assert_eq!(n.clone().handle(ok("9P2000.s")), Step::Agreed { version: streams, msize: 8192 });
            assert_eq!(n.clone().handle(ok("9P2000")), Step::Agreed { version: Dialect::Plan9.into(), msize: 8192 });
            assert_eq!(n.handle(VersionAnswer::Refused), Step::OfferAgain);
            assert_eq!(n.offer().0, "9P2000");
        }
    }

    #[test]
    fn client_offers_first_what_it_remembers_and_then_everything() {
        let unix: Version = Dialect::Unix.into();
        let n = Negotiation::remembering(8192, unix);
        assert_eq!(n.offer().0, "9P2000.u");
        assert!(!n.is_pinned());
        assert_eq!(n.clone().handle(ok("9P2000.u")), Step::Agreed { version: unix, msize: 8192 });
        for answer in [VersionAnswer::Refused, ok("unknown"), ok("9P3000"), VersionAnswer::Closed] {
            let mut n = n.clone();
            let step = n.handle(answer);
            assert_eq!(step, if answer == VersionAnswer::Closed { Step::Redial } else { Step::OfferAgain });
            // From the best on, as if nothing had been remembered.
            assert_eq!(n.offer().0, "9P2000.L.n1");
            assert_eq!(n.handle(VersionAnswer::Refused), Step::OfferAgain);
            assert_eq!(n.offer().0, "9P2000.L");
        }
        // What nobody offers unasked is not remembered.
        assert_eq!(
            Negotiation::remembering(8192, Version { dialect: Dialect::Plan9, groups: true, streams: false }).offer().0,
            "9P2000.L.n1"
        );
    }

    #[test]
    fn client_redials_a_server_that_closes_and_offers_the_plain_version() {
        let mut n = Negotiation::new(8192);
        assert_eq!(n.handle(VersionAnswer::Closed), Step::Redial);
        assert_eq!(n.offer().0, "9P2000");
        assert_eq!(n.handle(VersionAnswer::Closed), Step::Failed);
    }

    #[test]
    fn client_does_not_believe_an_msize_over_its_offer_or_under_the_least() {
        for msize in [0, 4095, 8193, u32::MAX] {
            let mut n = Negotiation::new(8192);
            assert_eq!(n.handle(VersionAnswer::Version { msize, version: b"9P2000.L" }), Step::Failed, "{msize}");
        }
    }

    #[test]
    fn client_that_pins_a_version_gets_it_or_fails() {
        let mut n = Negotiation::pinned(8192, Dialect::Unix);
        assert_eq!(n.clone().handle(ok("9P2000.u")), Step::Agreed { version: Dialect::Unix.into(), msize: 8192 });
        assert_eq!(n.handle(ok("9P2000")), Step::Failed);
        for version in Version::ALL {
            let mut n = Negotiation::pinned(8192, version);
            assert_eq!(n.offer().0, version.as_str());
            assert_eq!(n.clone().handle(ok(version.as_str())), Step::Agreed { version, msize: 8192 });
            if version != version.dialect.into() {
                assert_eq!(n.handle(ok(version.dialect.as_str())), Step::Failed);
            }
        }
    }
}
