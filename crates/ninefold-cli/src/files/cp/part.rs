//! Names of files that are being copied: `.NAME.XXXXXXXX.ninefold-part`, beside what they are to become.
//!
//! Where it is to be gone on with, the same copy has the same name each time, so that `--resume` finds what an
//! interrupted one left. XXXXXXXX stands for the source, which file it is and how it was last changed: another source, or
//! one that changed in between, gets another name, and its copy starts anew. Else it is random.

use ninefold::proto::attr::Time;
use ninefold::transport::Address;
use twox_hash::XxHash3_64;

use super::facts::Facts;
use crate::place::Place;

/// The end of every such name.
const END: &str = ".ninefold-part";

/// Hexadecimal digits that stand for the source.
const DIGITS: usize = 8;

/// Bytes of the longest name (Linux's NAME_MAX, and what the client lets through).
const NAME_MAX: usize = 255;

/// Bytes of a name beside NAME: a dot in front and one behind.
const BESIDE: usize = 2 + DIGITS + END.len();

/// The name under which a copy of `source`, which lies at `place`, is written that is to be `name`.
pub fn part_name(name: &[u8], place: &Place, source: &Facts) -> Vec<u8> {
    named(name, identity(place, source).into_bytes())
}

/// A name of the same form that no other copy has.
pub fn random_part_name(name: &[u8]) -> Vec<u8> {
    named(name, fastrand::u128(..).to_le_bytes().to_vec())
}

fn named(name: &[u8], mut id: Vec<u8>) -> Vec<u8> {
    let mut kept = name;
    if name.len() + BESIDE > NAME_MAX {
        // What is cut off must still tell two names apart.
        id.extend(name);
        kept = cut(name, NAME_MAX - BESIDE);
    }
    let hash = XxHash3_64::oneshot(&id) as u32;
    [b".", kept, format!(".{hash:08x}{END}").as_bytes()].concat()
}

/// What tells a file, as it is now, from every other: of this machine its inode, whatever path leads to it; of a server
/// the address too, since two servers may number their files alike.
fn identity(place: &Place, source: &Facts) -> String {
    let time = |time: Time| format!("{}.{}", time.sec, time.nsec);
    let which = match (place, &source.metadata) {
        (Place::Remote(address), Some(metadata)) => {
            let address = Address { dialect: None, ..address.clone() };
            format!("{address} {} {}", metadata.qid.path, metadata.qid.version)
        }
        _ => format!("{:?}", source.inode),
    };
    format!("{which} {} {} {:?} ", source.size, time(source.modified), source.changed.map(time))
}

/// Whether a file has such a name.
pub fn is_part_name(name: &[u8]) -> bool {
    let inner = name.strip_prefix(b".").and_then(|name| name.strip_suffix(END.as_bytes()));
    let digits = inner.and_then(|inner| inner.split_last_chunk::<{ DIGITS + 1 }>());
    digits.is_some_and(|(name, [dot, digits @ ..])| {
        !name.is_empty() && *dot == b'.' && digits.iter().all(u8::is_ascii_hexdigit)
    })
}

/// At most `max` bytes of a name, cut between characters where it is UTF-8.
fn cut(name: &[u8], max: usize) -> &[u8] {
    let end = match std::str::from_utf8(name) {
        Ok(text) => (0..=max.min(name.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0),
        Err(_) => max.min(name.len()),
    };
    &name[..end]
}

#[cfg(test)]
mod tests {
    use ninefold::client::{FileType, Metadata};
    use ninefold::proto::Qid;

    use super::*;
    use crate::files::sample;

    fn source(size: u64, sec: i64) -> Facts {
        let time = Time { sec, nsec: 5 };
        Facts {
            kind: FileType::File,
            mode: 0o644,
            size,
            accessed: time,
            modified: time,
            changed: Some(time),
            uid: None,
            gid: None,
            nlink: None,
            device: None,
            is_dense: true,
            inode: Some((1, 2)),
            metadata: None,
        }
    }

    /// Of a server's file.
    fn metadata(path: u64) -> Metadata {
        let Facts { kind, mode, size, accessed, modified, .. } = source(7, 9);
        Metadata { qid: Qid { path, ..Qid::default() }, kind, mode, size, accessed, modified, ..sample::metadata() }
    }

    fn of(name: &[u8], source: &Facts) -> Vec<u8> {
        part_name(name, &Place::Local("a".into()), source)
    }

    #[test]
    fn a_copy_of_the_same_source_finds_its_name_again_and_one_of_a_changed_source_does_not() {
        let name = of(b"a b", &source(7, 9));
        assert!(name.starts_with(b".a b.") && name.ends_with(END.as_bytes()), "{}", name.escape_ascii());
        assert!(is_part_name(&name));
        assert_eq!(of(b"a b", &source(7, 9)), name);
        assert_ne!(of(b"a b", &source(8, 9)), name);
        assert_ne!(of(b"a b", &source(7, 8)), name);
        assert_ne!(of(b"a b", &Facts { changed: Some(Time::default()), ..source(7, 9) }), name);
        // Its access time is not the source's content.
        assert_eq!(of(b"a b", &Facts { accessed: Time::default(), ..source(7, 9) }), name);
    }

    #[test]
    fn two_sources_of_one_size_and_time_have_two_names() {
        let name = of(b"x", &source(7, 9));
        assert_ne!(of(b"x", &Facts { inode: Some((1, 3)), ..source(7, 9) }), name);
        assert_ne!(of(b"x", &Facts { inode: Some((2, 2)), ..source(7, 9) }), name);
        let there = |url: &str, path| part_name(b"x", &url.parse().unwrap(), &Facts::from(metadata(path)));
        let name = there("9p://h/a", 5);
        assert_eq!(there("9p://h/a?dialect=9P2000", 5), name);
        assert_ne!(there("9p://h/b", 5), name);
        assert_ne!(there("9p://i/a", 5), name);
        assert_ne!(there("9p://h/a", 6), name);
    }

    #[test]
    fn a_random_name_is_of_the_same_form_and_never_the_same() {
        let name = random_part_name(b"x");
        assert!(is_part_name(&name) && name != random_part_name(b"x"));
    }

    #[test]
    fn names_of_255_bytes_get_names_that_fit_and_differ() {
        for long in [vec![b'x'; 255], vec![0xff; 255], "é".repeat(127).into_bytes()] {
            let mut other = long.clone();
            let last = other.len() - 2;
            other[last..].copy_from_slice("ü".as_bytes());
            let (a, b) = (of(&long, &source(1, 1)), of(&other, &source(1, 1)));
            assert!(a.len() <= 255 && b.len() <= 255);
            assert_ne!(a, b);
            assert!(is_part_name(&a) && is_part_name(&b));
            assert_eq!(std::str::from_utf8(&a).is_ok(), std::str::from_utf8(&long).is_ok());
        }
    }

    #[test]
    fn other_names_are_not_taken_for_such_names() {
        for name in
            ["x", ".x", ".ninefold-part", "..ninefold-part", ".x.0123456.ninefold-part", "x.01234567.ninefold-part"]
        {
            assert!(!is_part_name(name.as_bytes()), "{name}");
        }
    }
}
