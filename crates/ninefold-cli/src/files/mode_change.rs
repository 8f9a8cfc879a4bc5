//! A change of permissions as chmod(1) has it: `u+rwX,go-w`, `a=r`, `+t`, `g=u`, `755`, `=644`.

use std::str::FromStr;

/// All bits that chmod(2) knows.
const ALL: u32 = 0o7777;

/// Set-user-ID and set-group-ID, which a directory keeps unless they are mentioned.
const SET_ID: u32 = 0o6000;

const RWX: u32 = 0o777;

/// See the module; [`ModeChange::apply`] does it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModeChange {
    steps: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    /// The bits of those meant by `ugoa`; none when nobody was named, and the umask counts.
    who: u32,
    op: Op,
    what: What,
    /// Bits named, which a directory does not keep.
    mentioned: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Add,
    Remove,
    Set,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Bits(u32),
    /// These, and execution where somebody may execute it already, or it is a directory: `X`.
    BitsAndSearch(u32),
    /// What the owner, the group or the others have: the bits of theirs.
    Copy(u32),
}

impl ModeChange {
    /// The new mode of a file that has `old`, 0 to 0o7777.
    pub fn apply(&self, old: u32, is_dir: bool, umask: u32) -> u32 {
        self.steps.iter().fold(old & ALL, |mode, step| step.apply(mode, is_dir, umask))
    }
}

impl Step {
    fn apply(&self, mode: u32, is_dir: bool, umask: u32) -> u32 {
        let value = match self.what {
            What::Bits(bits) => bits,
            What::BitsAndSearch(bits) if is_dir || mode & 0o111 != 0 => bits | 0o111,
            What::BitsAndSearch(bits) => bits,
            What::Copy(from) => {
                let bits = mode & from;
                [0o444, 0o222, 0o111].into_iter().filter(|bit| bits & bit != 0).fold(0, |all, bit| all | bit)
            }
        };
        let kept = if is_dir { SET_ID & !self.mentioned } else { 0 };
        let value = value & if self.who == 0 { !umask } else { self.who } & !kept;
        match self.op {
            Op::Add => mode | value,
            Op::Remove => mode & !value,
            Op::Set => mode & (kept | if self.who == 0 { 0 } else { !self.who }) | value,
        }
    }
}

impl FromStr for ModeChange {
    type Err = String;

    fn from_str(text: &str) -> Result<ModeChange, String> {
        let steps = if text.starts_with(|c: char| c.is_ascii_digit()) {
            number(text).map(|step| vec![step])
        } else {
            text.split(',').map(clause).collect::<Option<Vec<_>>>().map(|steps| steps.concat())
        };
        steps
            .map(|steps| ModeChange { steps })
            .ok_or_else(|| format!("'{text}' is no mode: expected octal digits, or for example u+rwX,go-w"))
    }
}

fn octal(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|b| matches!(b, b'0'..=b'7'));
    u32::from_str_radix(text, 8).ok().filter(|&mode| digits && mode <= ALL)
}

/// `755`: a directory keeps its set-ID bits, unless five digits or more leave no doubt.
fn number(text: &str) -> Option<Step> {
    let mode = octal(text)?;
    let mentioned = if text.len() < 5 { mode & !RWX | RWX } else { ALL };
    Some(Step { who: ALL, op: Op::Set, what: What::Bits(mode), mentioned })
}

/// `[ugoa]*([-+=](PERMISSIONS|[ugo]|OCTAL))+`
fn clause(text: &str) -> Option<Vec<Step>> {
    let at = text.find(['+', '-', '='])?;
    let who = text[..at].chars().try_fold(0, |who, c| {
        Some(
            who | match c {
                'u' => 0o4700,
                'g' => 0o2070,
                'o' => 0o1007,
                'a' => ALL,
                _ => return None,
            },
        )
    })?;
    let mut steps = Vec::new();
    let mut left = &text[at..];
    while !left.is_empty() {
        let op = match left.as_bytes()[0] {
            b'+' => Op::Add,
            b'-' => Op::Remove,
            _ => Op::Set,
        };
        left = &left[1..];
        let end = left.find(['+', '-', '=']).unwrap_or(left.len());
        let (word, rest) = left.split_at(end);
        left = rest;
        steps.push(step(who, op, word)?);
    }
    Some(steps)
}

fn step(who: u32, op: Op, word: &str) -> Option<Step> {
    if word.starts_with(|c: char| c.is_ascii_digit()) {
        let bits = octal(word).filter(|_| who == 0)?;
        return Some(Step { who: ALL, op, what: What::Bits(bits), mentioned: ALL });
    }
    let copied = match word {
        "u" => Some(0o700),
        "g" => Some(0o070),
        "o" => Some(0o007),
        _ => None,
    };
    if let Some(from) = copied {
        let mentioned = if who == 0 { from } else { who & from };
        return Some(Step { who, op, what: What::Copy(from), mentioned });
    }
    let (mut bits, mut search) = (0, false);
    for c in word.chars() {
        bits |= match c {
            'r' => 0o444,
            'w' => 0o222,
            'x' => 0o111,
            's' => SET_ID,
            't' => 0o1000,
            'X' => {
                search = true;
                0
            }
            _ => return None,
        };
    }
    let what = if search { What::BitsAndSearch(bits) } else { What::Bits(bits) };
    Some(Step { who, op, what, mentioned: if who == 0 { bits } else { who & bits } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str, old: u32, is_dir: bool) -> u32 {
        text.parse::<ModeChange>().unwrap_or_else(|e| panic!("{e}")).apply(old, is_dir, 0o022)
    }

    #[test]
    fn each_form_does_what_chmod_does() {
        for (text, old, new) in [
            ("644", 0o777, 0o644),
            ("4755", 0, 0o4755),
            ("=7", 0o777, 0o007),
            ("+111", 0o644, 0o755),
            ("-4000", 0o4755, 0o755),
            ("u+x", 0o644, 0o744),
            ("+x", 0o644, 0o755),
            // The umask leaves the writing of group and others alone.
            ("+w", 0o444, 0o644),
            ("-w", 0o666, 0o466),
            ("=rw", 0o777, 0o644),
            ("=", 0o777, 0),
            ("a=", 0o7777, 0),
            ("a+w", 0o444, 0o666),
            ("go-rwx", 0o777, 0o700),
            ("ug=rw,o=", 0o777, 0o660),
            ("u=rwx,g=u,o=g", 0o000, 0o777),
            ("g=u-w", 0o700, 0o750),
            ("g=u,g-w", 0o700, 0o750),
            ("u+s,g+s,+t", 0o755, 0o7755),
            ("o+s", 0o755, 0o755),
            ("u+t", 0o755, 0o755),
            ("a+X", 0o644, 0o644),
            ("a+X", 0o744, 0o755),
            ("u=x,a+rX", 0o000, 0o555),
            ("u+r+w-x", 0o500, 0o600),
            ("u+rwX,go-w", 0o666, 0o644),
        ] {
            assert_eq!(changed(text, old, false), new, "{text} on {old:o}: {:o}", changed(text, old, false));
        }
    }

    #[test]
    fn a_directory_keeps_its_set_id_bits_unless_they_are_mentioned() {
        for (text, old, new) in [
            ("755", 0o2700, 0o2755),
            ("00755", 0o2700, 0o755),
            ("2755", 0o4700, 0o6755),
            ("=755", 0o2700, 0o755),
            ("a=rx", 0o2777, 0o2555),
            ("g-s", 0o2755, 0o755),
            ("a+X", 0o600, 0o711),
            ("-2000", 0o2755, 0o755),
        ] {
            assert_eq!(changed(text, old, true), new, "{text} on {old:o}: {:o}", changed(text, old, true));
        }
    }

    #[test]
    fn what_is_no_mode_is_refused() {
        for text in ["", "8", "77777", "+8", "u", "ux", "u+rz", "b+x", "u+7", "u+rw,", ",u+r", "u+ug", "u+ru", "0x1"] {
            assert!(text.parse::<ModeChange>().is_err(), "{text}");
        }
    }
}
