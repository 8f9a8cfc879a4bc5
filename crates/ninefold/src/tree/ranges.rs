//! Byte ranges of one file and who holds them: POSIX record locks (fcntl(2)) as pure data.
//!
//! [`Ranges`] promises: an owner holds each byte in one mode at most; locking replaces what the owner held of
//! those bytes, unlocking takes them out of the middle; neighbours that are alike are one segment. It never
//! waits, reads no clock and opens nothing. How it is driven: [`Ranges::conflict`] says whether a lock may be
//! taken; [`Ranges::plan`] works out the change, whose [`Plan::growth`] the caller can refuse; and
//! [`Ranges::apply`] makes it.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use ninefold_proto::Errno;

/// The greatest offset of a byte in a file: Linux's loff_t is signed.
pub(crate) const MAX_OFFSET: u64 = i64::MAX as u64;

/// Bytes `first` to `last`, both included; a `last` of [`MAX_OFFSET`] is "to the end, however far it grows".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Span {
    /// From a request's start and length, 0 being "to the end". As fcntl(2) says it: EINVAL for a start that is
    /// no offset, EOVERFLOW for an end that is none.
    pub(crate) fn new(start: u64, length: u64) -> Result<Span, Errno> {
        if start > MAX_OFFSET {
            return Err(Errno::EINVAL);
        }
        match length {
            0 => Ok(Span { first: start, last: MAX_OFFSET }),
            _ if length - 1 > MAX_OFFSET - start => Err(Errno::EOVERFLOW),
            _ => Ok(Span { first: start, last: start + (length - 1) }),
        }
    }

    /// The length that a request would give: 0 is "to the end".
    pub(crate) fn length(self) -> u64 {
        if self.last == MAX_OFFSET { 0 } else { self.last - self.first + 1 }
    }

    /// Whether the two share a byte.
    pub(crate) fn overlaps(self, other: Span) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    fn intersection(self, other: Span) -> Span {
        Span { first: self.first.max(other.first), last: self.last.min(other.last) }
    }
}

/// How bytes are held.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Mode {
    /// Shared with other readers.
    Read,
    /// Alone.
    Write,
}

impl Mode {
    /// Whether two owners cannot hold a byte in these modes at once.
    pub(crate) fn excludes(self, other: Mode) -> bool {
        self == Mode::Write || other == Mode::Write
    }
}

/// Bytes that one owner holds in one mode; the first byte is the key that it is filed under.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Segment {
    last: u64,
    mode: Mode,
    /// The open files through which these bytes were locked, sorted: the lock ends with the last of them.
    holders: Vec<u64>,
}

type Segments = BTreeMap<u64, Segment>;

/// What one owner's locks are to become within a span.
#[derive(Debug)]
pub(crate) struct Plan<O> {
    owner: O,
    remove: Vec<u64>,
    add: Vec<(u64, Segment)>,
    growth: isize,
}

impl<O> Plan<O> {
    /// How many locks the owner will have more, or fewer; a segment counts once for each holder.
    pub(crate) fn growth(&self) -> isize {
        self.growth
    }
}

/// All locks of one file.
#[derive(Debug)]
pub(crate) struct Ranges<O> {
    owners: HashMap<O, Segments>,
}

impl<O: Clone + Eq + Hash> Ranges<O> {
    pub(crate) fn new() -> Ranges<O> {
        Ranges { owners: HashMap::new() }
    }

    /// Whether nobody holds anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// The lock of another owner, lowest in the file, that stands in the way.
    pub(crate) fn conflict(&self, owner: &O, span: Span, mode: Mode) -> Option<(&O, Span, Mode)> {
        self.conflicts(owner, span, mode).min_by_key(|(_, at, _)| at.first)
    }

    /// The first lock of each other owner that stands in the way.
    pub(crate) fn conflicts(&self, owner: &O, span: Span, mode: Mode) -> impl Iterator<Item = (&O, Span, Mode)> {
        let others = self.owners.iter().filter(move |(other, _)| *other != owner);
        others.filter_map(move |(other, segments)| {
            let (at, segment) = touching(segments, span).find(|(_, segment)| segment.mode.excludes(mode))?;
            Some((other, at, segment.mode))
        })
    }

    /// What becomes of `owner`'s locks when it takes `span` in `mode` through `holder`, or with `None` unlocks it.
    pub(crate) fn plan(&self, owner: &O, span: Span, take: Option<(Mode, u64)>) -> Plan<O> {
        // The neighbours that only touch the span are planned anew too, for they may melt into it.
        let wide = Span { first: span.first.saturating_sub(1), last: span.last.saturating_add(1) };
        let none = Segments::new();
        let before = self.owners.get(owner).unwrap_or(&none);
        let mut remove = Vec::new();
        let mut after: Vec<(u64, Segment)> = Vec::new();
        let mut at = span.first;
        let mut old = 0;
        for (held, segment) in touching(before, wide) {
            remove.push(held.first);
            old += segment.holders.len();
            if held.first < span.first {
                let last = held.last.min(span.first - 1);
                push(&mut after, held.first, Segment { last, ..segment.clone() });
            }
            if let (Some((mode, holder)), true) = (take, held.overlaps(span)) {
                let inner = held.intersection(span);
                if at < inner.first {
                    push(&mut after, at, Segment { last: inner.first - 1, mode, holders: vec![holder] });
                }
                push(
                    &mut after,
                    inner.first,
                    Segment { last: inner.last, mode, holders: with(&segment.holders, holder) },
                );
                at = inner.last + 1;
            }
            if held.last > span.last {
                if let (Some((mode, holder)), true) = (take, at <= span.last) {
                    push(&mut after, at, Segment { last: span.last, mode, holders: vec![holder] });
                    at = span.last + 1;
                }
                push(&mut after, held.first.max(span.last + 1), segment.clone());
            }
        }
        if let (Some((mode, holder)), true) = (take, at <= span.last) {
            push(&mut after, at, Segment { last: span.last, mode, holders: vec![holder] });
        }
        let new: usize = after.iter().map(|(_, segment)| segment.holders.len()).sum();
        Plan { owner: owner.clone(), remove, add: after, growth: new as isize - old as isize }
    }

    /// Makes a planned change. Nothing else may have changed since it was planned.
    pub(crate) fn apply(&mut self, plan: Plan<O>) {
        let segments = self.owners.entry(plan.owner.clone()).or_default();
        for first in plan.remove {
            segments.remove(&first);
        }
        segments.extend(plan.add);
        if segments.is_empty() {
            self.owners.remove(&plan.owner);
        }
    }

    /// Ends `holder`'s part in every lock. Answers, for each owner that lost something, by how many locks it has
    /// fewer and the spans that it no longer holds.
    pub(crate) fn release(&mut self, holder: u64) -> Vec<(O, usize, Vec<Span>)> {
        let mut lost = Vec::new();
        self.owners.retain(|owner, segments| {
            if !segments.values().any(|segment| segment.holders.contains(&holder)) {
                return true;
            }
            let old: usize = segments.values().map(|segment| segment.holders.len()).sum();
            let mut gone = Vec::new();
            let mut left = Vec::new();
            for (first, mut segment) in std::mem::take(segments) {
                segment.holders.retain(|&h| h != holder);
                if segment.holders.is_empty() {
                    gone.push(Span { first, last: segment.last });
                } else {
                    push(&mut left, first, segment);
                }
            }
            *segments = left.into_iter().collect();
            let new: usize = segments.values().map(|segment| segment.holders.len()).sum();
            lost.push((owner.clone(), old - new, gone));
            !segments.is_empty()
        });
        lost
    }

    /// The parts of `span` that nobody holds.
    pub(crate) fn gaps(&self, span: Span) -> Vec<Span> {
        let mut held: Vec<Span> =
            self.owners.values().flat_map(|segments| touching(segments, span)).map(|(at, _)| at).collect();
        held.sort_unstable_by_key(|at| at.first);
        let mut gaps = Vec::new();
        let mut next = span.first;
        for at in held {
            if at.first > next {
                gaps.push(Span { first: next, last: at.first - 1 });
            }
            next = next.max(at.last + 1);
        }
        if next <= span.last {
            gaps.push(Span { first: next, last: span.last });
        }
        gaps
    }
}

/// The segments that share a byte with `span`, in order.
fn touching(segments: &Segments, span: Span) -> impl Iterator<Item = (Span, &Segment)> {
    let before = segments.range(..span.first).next_back().filter(move |(_, segment)| segment.last >= span.first);
    let within = segments.range(span.first..=span.last.max(span.first));
    before.into_iter().chain(within).map(|(&first, segment)| (Span { first, last: segment.last }, segment))
}

/// Appends a segment, or lets it melt into the one before it.
fn push(segments: &mut Vec<(u64, Segment)>, first: u64, segment: Segment) {
    if let Some((_, before)) = segments.last_mut()
        && before.last + 1 == first
        && before.mode == segment.mode
        && before.holders == segment.holders
    {
        before.last = segment.last;
    } else {
        segments.push((first, segment));
    }
}

fn with(holders: &[u64], holder: u64) -> Vec<u64> {
    let mut holders = holders.to_vec();
    if let Err(at) = holders.binary_search(&holder) {
        holders.insert(at, holder);
    }
    holders
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: u64 = 24;

    fn span(start: u64, length: u64) -> Span {
        Span::new(start, length).unwrap()
    }

    /// Each owner's lock on each byte: a mode and the holders.
    type Naive = HashMap<u8, Vec<Option<(Mode, Vec<u64>)>>>;

    /// What each owner holds of each of the model's bytes; the last stands for everything from there to the end.
    fn bytes(ranges: &Ranges<u8>) -> Naive {
        let byte = |segments: &Segments, at: u64| {
            touching(segments, Span { first: at, last: at }).next().map(|(_, s)| (s.mode, s.holders.clone()))
        };
        ranges.owners.iter().map(|(&o, segments)| (o, (0..=BYTES).map(|at| byte(segments, at)).collect())).collect()
    }

    #[derive(Clone, Debug)]
    enum Op {
        Lock { owner: u8, start: u64, length: u64, mode: Mode, holder: u64 },
        Unlock { owner: u8, start: u64, length: u64 },
        Release { holder: u64 },
    }

    fn op() -> impl Strategy<Value = Op> {
        let place = || (0..3u8, 0..BYTES).prop_flat_map(|(owner, start)| (Just(owner), Just(start), 0..=BYTES - start));
        prop_oneof![
            4 => (place(), any::<bool>(), 0..3u64).prop_map(|((owner, start, length), write, holder)| {
                let mode = if write { Mode::Write } else { Mode::Read };
                // An owner's holders are its own: a fid belongs to one connection.
                Op::Lock { owner, start, length, mode, holder: holder + 10 * u64::from(owner) }
            }),
            2 => place().prop_map(|(owner, start, length)| Op::Unlock { owner, start, length }),
            1 => (0..3u64, 0..3u64).prop_map(|(owner, holder)| Op::Release { holder: holder + 10 * owner }),
        ]
    }

    fn covers(start: u64, length: u64, at: u64) -> bool {
        at >= start && (length == 0 || at < start + length)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn ranges_agree_with_a_lock_for_each_byte(ops in proptest::collection::vec(op(), 1..40)) {
            let mut ranges = Ranges::new();
            let mut naive = Naive::new();
            let mut count = 0isize;
            for op in ops {
                match op {
                    Op::Lock { owner, start, length, mode, holder } => {
                        let conflict = ranges.conflict(&owner, span(start, length), mode).map(|c| c.1.first.max(start));
                        let expected = (0..=BYTES).find(|&at| covers(start, length, at) && naive.iter().any(|(o, held)| {
                            *o != owner && held[at as usize].as_ref().is_some_and(|(m, _)| m.excludes(mode))
                        }));
                        prop_assert_eq!(conflict.is_some(), expected.is_some());
                        if conflict.is_none() {
                            let plan = ranges.plan(&owner, span(start, length), Some((mode, holder)));
                            count += plan.growth();
                            ranges.apply(plan);
                            let held = naive.entry(owner).or_insert_with(|| vec![None; BYTES as usize + 1]);
                            for at in (0..=BYTES).filter(|&at| covers(start, length, at)) {
                                let old = held[at as usize].take().map_or_else(Vec::new, |(_, h)| h);
                                held[at as usize] = Some((mode, with(&old, holder)));
                            }
                        }
                    }
                    Op::Unlock { owner, start, length } => {
                        let plan = ranges.plan(&owner, span(start, length), None);
                        count += plan.growth();
                        ranges.apply(plan);
                        for at in (0..=BYTES).filter(|&at| covers(start, length, at)) {
                            if let Some(held) = naive.get_mut(&owner) {
                                held[at as usize] = None;
                            }
                        }
                    }
                    Op::Release { holder } => {
                        for (_, fewer, _) in ranges.release(holder) {
                            count -= fewer as isize;
                        }
                        for byte in naive.values_mut().flatten() {
                            if let Some((_, holders)) = byte {
                                holders.retain(|&h| h != holder);
                            }
                            if byte.as_ref().is_some_and(|(_, holders)| holders.is_empty()) {
                                *byte = None;
                            }
                        }
                    }
                }
                naive.retain(|_, held| held.iter().any(Option::is_some));
                prop_assert_eq!(&bytes(&ranges), &naive);
                let segments = ranges.owners.values().flat_map(BTreeMap::values);
                prop_assert_eq!(segments.map(|s| s.holders.len() as isize).sum::<isize>(), count);
                let unheld: Vec<u64> = (0..=BYTES).filter(|&at| naive.values().all(|held| held[at as usize].is_none())).collect();
                let gaps = ranges.gaps(span(0, 0));
                prop_assert_eq!((0..=BYTES).filter(|&at| gaps.iter().any(|g| g.first <= at && at <= g.last)).collect::<Vec<_>>(), unheld);
                for segments in ranges.owners.values() {
                    for ((_, a), (first, b)) in segments.iter().zip(segments.iter().skip(1)) {
                        prop_assert!(a.last < *first);
                        prop_assert!(a.last + 1 < *first || a.mode != b.mode || a.holders != b.holders, "neighbours alike");
                    }
                }
            }
        }
    }

    #[test]
    fn length_0_reaches_to_the_end() {
        assert_eq!(span(5, 0), Span { first: 5, last: MAX_OFFSET });
        assert_eq!(span(5, 0).length(), 0);
        assert_eq!(span(5, 2).length(), 2);
    }

    #[test]
    fn a_range_beyond_the_greatest_offset_is_refused() {
        assert_eq!(Span::new(u64::MAX, 1), Err(Errno::EINVAL));
        assert_eq!(Span::new(MAX_OFFSET + 1, 0), Err(Errno::EINVAL));
        assert_eq!(Span::new(1, u64::MAX), Err(Errno::EOVERFLOW));
        assert_eq!(Span::new(MAX_OFFSET, 2), Err(Errno::EOVERFLOW));
        assert_eq!(Span::new(MAX_OFFSET, 1), Ok(Span { first: MAX_OFFSET, last: MAX_OFFSET }));
    }

    #[test]
    fn the_last_byte_of_all_can_be_locked_and_unlocked() {
        let mut ranges = Ranges::new();
        ranges.apply(ranges.plan(&1, span(MAX_OFFSET, 1), Some((Mode::Write, 1))));
        assert!(ranges.conflict(&2, span(0, 0), Mode::Read).is_some());
        assert!(ranges.conflict(&2, span(0, MAX_OFFSET), Mode::Read).is_none());
        assert_eq!(ranges.gaps(span(0, 0)), [span(0, MAX_OFFSET)]);
        ranges.apply(ranges.plan(&1, span(0, 0), None));
        assert!(ranges.is_empty());
    }

    #[test]
    fn the_lowest_conflict_is_told() {
        let mut ranges = Ranges::new();
        ranges.apply(ranges.plan(&1, span(50, 5), Some((Mode::Write, 1))));
        ranges.apply(ranges.plan(&2, span(10, 5), Some((Mode::Read, 1))));
        let (owner, at, mode) = ranges.conflict(&3, span(0, 0), Mode::Write).unwrap();
        assert_eq!((*owner, at, mode), (2, span(10, 5), Mode::Read));
        let (owner, ..) = ranges.conflict(&3, span(0, 0), Mode::Read).unwrap();
        assert_eq!(*owner, 1);
    }
}
