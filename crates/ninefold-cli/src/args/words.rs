//! The words of find(1): its options have one dash, which the parser of the command line does not know.

use std::ffi::{OsStr, OsString};

/// Options that find has with one dash; those with a value first.
const OPTIONS: [(&str, bool); 6] =
    [("name", true), ("type", true), ("maxdepth", true), ("mindepth", true), ("print0", false), ("print", false)];

/// The command line with the options of `find` as the parser has them. Only words behind `find` are touched, and not
/// the values of options there, nor what follows `--`.
pub fn with_two_dashes(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words = words.peekable();
    let mut out: Vec<OsString> = words.next().into_iter().collect();
    let mut find = false;
    while let Some(word) = words.next() {
        if word == "--" {
            out.push(word);
            break;
        }
        if !find {
            find = word == "find";
            out.push(word);
            continue;
        }
        match option(&word) {
            Some((name, has_value)) => {
                out.push(format!("--{name}").into());
                out.extend(words.next_if(|_| has_value));
            }
            None => out.push(word),
        }
    }
    out.extend(words);
    out
}

fn option(word: &OsStr) -> Option<(&'static str, bool)> {
    let word = word.to_str()?.strip_prefix('-')?;
    let word = word.strip_prefix('-').unwrap_or(word);
    OPTIONS.into_iter().find(|(name, _)| *name == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> String {
        let words = with_two_dashes(line.split(' ').map(OsString::from));
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn options_of_find_may_have_one_dash() {
        let cases = [
            ("ninefold find u -name *.c -type f -print0", "ninefold find u --name *.c --type f --print0"),
            ("ninefold -v find -maxdepth 1 u", "ninefold -v find --maxdepth 1 u"),
            ("ninefold find u -name -name --type -type", "ninefold find u --name -name --type -type"),
            ("ninefold find u --name=-name -name", "ninefold find u --name=-name --name"),
            ("ninefold find -- -name", "ninefold find -- -name"),
            ("ninefold ls -name find", "ninefold ls -name find"),
            ("-name find -v", "-name find -v"),
        ];
        for (line, expected) in cases {
            assert_eq!(words(line), expected);
        }
    }
}
