//! A size as truncate(1) has it: `10`, `4K`, `+1M`, `-512`, `<2GB`, `>1KiB`, `/4096`, `%1K`.

use std::str::FromStr;

/// See the module; [`SizeChange::apply`] does it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeChange {
    op: Op,
    /// Bytes.
    by: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    To,
    Add,
    Take,
    AtMost,
    AtLeast,
    /// Down to a multiple.
    Down,
    /// Up to a multiple.
    Up,
}

impl SizeChange {
    /// The new size of a file of `old` bytes, never below 0; `None` when no number of 63 bits holds it.
    pub fn apply(self, old: u64) -> Option<u64> {
        let size = match self.op {
            Op::To => Some(self.by),
            Op::Add => old.checked_add(self.by),
            Op::Take => Some(old.saturating_sub(self.by)),
            Op::AtMost => Some(old.min(self.by)),
            Op::AtLeast => Some(old.max(self.by)),
            Op::Down => Some(old - old % self.by),
            Op::Up => old.checked_next_multiple_of(self.by),
        };
        size.filter(|&size| i64::try_from(size).is_ok())
    }

    /// Whether the old size counts.
    pub fn is_relative(self) -> bool {
        self.op != Op::To
    }
}

impl FromStr for SizeChange {
    type Err = String;

    fn from_str(text: &str) -> Result<SizeChange, String> {
        let trimmed = text.trim_start();
        let (op, rest) = match trimmed.chars().next() {
            Some('+') => (Op::Add, &trimmed[1..]),
            Some('-') => (Op::Take, &trimmed[1..]),
            Some('<') => (Op::AtMost, &trimmed[1..]),
            Some('>') => (Op::AtLeast, &trimmed[1..]),
            Some('/') => (Op::Down, &trimmed[1..]),
            Some('%') => (Op::Up, &trimmed[1..]),
            _ => (Op::To, trimmed),
        };
        let by = bytes(rest).ok_or_else(|| {
            format!("'{text}' is no size: expected a number, perhaps with K, M, G, T, P or E, or KB and so on, behind + - < > / %")
        })?;
        match (op, by) {
            (Op::Down | Op::Up, 0) => Err(format!("'{text}': division by zero")),
            _ => Ok(SizeChange { op, by }),
        }
    }
}

/// `4`, `4K` and `4KiB` (1024), `4KB` (1000).
fn bytes(text: &str) -> Option<u64> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(at);
    let number: u64 = number.parse().ok()?;
    let mut letters = suffix.chars();
    let power = match letters.next() {
        None => return within(number),
        Some('K' | 'k') => 1,
        Some('M' | 'm') => 2,
        Some('G' | 'g') => 3,
        Some('T' | 't') => 4,
        Some('P') => 5,
        Some('E') => 6,
        Some(_) => return None,
    };
    let base = match letters.as_str() {
        "" | "iB" => 1024u64,
        "B" => 1000,
        _ => return None,
    };
    within(number.checked_mul(base.checked_pow(power)?)?)
}

/// Sizes are signed on every Unix.
fn within(bytes: u64) -> Option<u64> {
    i64::try_from(bytes).is_ok().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_does_what_truncate_does() {
        for (text, old, new) in [
            ("10", 7, Some(10)),
            ("4K", 0, Some(4096)),
            ("4KiB", 0, Some(4096)),
            ("4KB", 0, Some(4000)),
            ("1m", 0, Some(1 << 20)),
            ("2GB", 0, Some(2_000_000_000)),
            ("1T", 0, Some(1 << 40)),
            ("7E", 0, Some(7 << 60)),
            ("+5", 7, Some(12)),
            ("-5", 7, Some(2)),
            ("-50", 7, Some(0)),
            ("<5", 7, Some(5)),
            ("<9", 7, Some(7)),
            (">9", 7, Some(9)),
            ("/4", 7, Some(4)),
            ("%4", 7, Some(8)),
            ("%4", 8, Some(8)),
            (" +1", 1, Some(2)),
            ("+1", i64::MAX as u64, None),
            ("%4", i64::MAX as u64, None),
        ] {
            assert_eq!(text.parse::<SizeChange>().unwrap().apply(old), new, "{text} on {old}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in
            ["", "K", "x", "1Q", "1KiBx", "1Ki", "1é", "8E", "9999999999999999999999", "++1", "/0", "%0", "1 K", "1B"]
        {
            assert!(text.parse::<SizeChange>().is_err(), "{text}");
        }
    }
}
