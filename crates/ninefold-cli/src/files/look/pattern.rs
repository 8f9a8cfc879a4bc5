//! Patterns of file names as find -name has them (fnmatch(3), glob(7)), byte by byte as in the C locale: `*`, `?`,
//! `[a-z]`, `[!a-z]` or `[^a-z]`, `[[:alpha:]]`, and `\` before a byte that is meant as it is. Names need not be UTF-8;
//! a dot at the front is a byte like any other.

use regex::bytes::{Regex, RegexBuilder};

/// See the module.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

/// The classes of glob(7) that a `[` may hold; `regex` has them under the same names.
const CLASSES: [&str; 12] =
    ["alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "xdigit"];

impl Pattern {
    /// Fails only for a pattern of megabytes.
    pub fn new(pattern: &[u8]) -> Result<Pattern, regex::Error> {
        let mut text = String::from("^");
        let mut left = pattern;
        while let Some((&byte, rest)) = left.split_first() {
            left = rest;
            match byte {
                b'*' => text.push_str(".*"),
                b'?' => text.push('.'),
                b'[' => match set(rest) {
                    Some((set, rest)) => {
                        text.push_str(&set);
                        left = rest;
                    }
                    // Without an end it is no set.
                    None => literal(&mut text, b'['),
                },
                b'\\' => match rest.split_first() {
                    Some((&byte, rest)) => {
                        literal(&mut text, byte);
                        left = rest;
                    }
                    // There is nothing that it could stand before: nothing matches, as fnmatch(3) has it.
                    None => text.push_str(r"[^\x00-\xFF]"),
                },
                byte => literal(&mut text, byte),
            }
        }
        text.push('$');
        RegexBuilder::new(&text).unicode(false).dot_matches_new_line(true).build().map(Pattern)
    }

    pub fn matches(&self, name: &[u8]) -> bool {
        self.0.is_match(name)
    }
}

fn literal(text: &mut String, byte: u8) {
    text.push_str(&format!(r"\x{byte:02X}"));
}

/// The set behind a `[`, and what follows its `]`.
fn set(pattern: &[u8]) -> Option<(String, &[u8])> {
    let mut left = pattern;
    let mut text = String::from("[");
    if let Some(rest) = left.strip_prefix(b"!").or_else(|| left.strip_prefix(b"^")) {
        text.push('^');
        left = rest;
    }
    let mut empty = true;
    let mut holds = false;
    loop {
        // A `]` at the front is one of the set.
        if let Some(rest) = left.strip_prefix(b"]").filter(|_| !empty) {
            if !holds {
                // Every range was one that ends before it begins.
                text.push_str(r"^\x00-\xFF");
            }
            text.push(']');
            return Some((text, rest));
        }
        empty = false;
        if let Some((class, rest)) = class(left) {
            text.push_str(&format!("[:{class}:]"));
            holds = true;
            left = rest;
            continue;
        }
        let (first, rest) = member(left)?;
        let range = rest.strip_prefix(b"-").filter(|rest| !rest.starts_with(b"]")).and_then(member);
        let (last, rest) = range.unwrap_or((first, rest));
        if first <= last {
            text.push_str(&format!(r"\x{first:02X}-\x{last:02X}"));
            holds = true;
        }
        left = rest;
    }
}

/// One byte of a set.
fn member(left: &[u8]) -> Option<(u8, &[u8])> {
    let (&byte, rest) = left.split_first()?;
    if byte == b'\\' { rest.split_first().map(|(&byte, rest)| (byte, rest)) } else { Some((byte, rest)) }
}

/// `[:alpha:]` and its like.
fn class(left: &[u8]) -> Option<(&'static str, &[u8])> {
    let rest = left.strip_prefix(b"[:")?;
    CLASSES.iter().find_map(|class| {
        let rest = rest.strip_prefix(class.as_bytes())?.strip_prefix(b":]")?;
        Some((*class, rest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &[u8], name: &[u8]) -> bool {
        Pattern::new(pattern).unwrap().matches(name)
    }

    #[test]
    fn patterns_match_what_fnmatch_matches() {
        let cases: [(&[u8], &[u8], &[u8]); 20] = [
            // Pattern, a name that it matches, one that it does not.
            (b"*.txt", b".txt", b"a.txt~"),
            (b"*", b".hidden", b"\0 is in no name, so this case has none"),
            (b"a?c", b"a\nc", b"ac"),
            (b"???", b"\xff\xfe\x80", "ü".as_bytes()),
            (b"[ab].x", b"a.x", b"c.x"),
            (b"[!ab].x", b"c.x", b"a.x"),
            (b"[^ab].x", b"c.x", b"a.x"),
            (b"[a-c]", b"b", b"d"),
            (b"[]]", b"]", b"["),
            (b"[!]]", b"[", b"]"),
            (b"[a-]", b"-", b"b"),
            (b"[[:digit:]x]*", b"5a", b"a5"),
            (b"[\xf0-\xff]", b"\xfe", b"\x80"),
            (b"[a", b"[a", b"a"),
            (b"\\*", b"*", b"x"),
            (b"[\\]a]", b"]", b"\\"),
            (b"{a,b}", b"{a,b}", b"a"),
            (b"a.b", b"a.b", b"axb"),
            (b"(a|b)+$", b"(a|b)+$", b"a"),
            (b"[*?]", b"*", b"a"),
        ];
        for (pattern, name, other) in cases {
            assert!(matches(pattern, name), "{} {}", pattern.escape_ascii(), name.escape_ascii());
            let all = pattern == b"*";
            assert!(matches(pattern, other) == all, "{} {}", pattern.escape_ascii(), other.escape_ascii());
        }
    }

    #[test]
    fn a_range_that_is_none_and_a_backslash_before_nothing_match_nothing() {
        for name in [&b"z"[..], b"a", b"b", b"m", b"\\", b""] {
            assert!(!matches(b"[z-a]", name), "{}", name.escape_ascii());
            assert!(!matches(b"a\\", name), "{}", name.escape_ascii());
        }
        assert!(matches(b"[z-ax]", b"x"));
    }
}
