//! Names on standard output: the bytes as they are, as the namesakes print them into pipes and files; on a terminal
//! nothing that it would obey.

use std::io::{IsTerminal, stdout};

use crate::report::is_obeyed;

/// How names are printed here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Names {
    Raw,
    /// What a terminal would obey, and bytes that are no UTF-8, as `?`.
    Tame,
}

impl Names {
    /// What suits standard output.
    pub fn for_stdout() -> Names {
        if stdout().is_terminal() { Names::Tame } else { Names::Raw }
    }

    /// A name as it is printed.
    pub fn show(self, name: &[u8]) -> Vec<u8> {
        match self {
            Names::Raw => name.to_vec(),
            Names::Tame => tame(name).into_bytes(),
        }
    }
}

/// A name for a terminal.
pub fn tame(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        text.extend(chunk.valid().chars().map(|c| if is_obeyed(c) { '?' } else { c }));
        text.extend(chunk.invalid().iter().map(|_| '?'));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_told_nothing_that_it_would_obey() {
        // The last but one turns the direction of writing: U+202E.
        let name = b"a\x1b[2J\n\xc2\x9b\xff\xe2\x80\xae\xc3\xbc";
        assert_eq!(Names::Raw.show(name), name);
        assert_eq!(Names::Tame.show(name), "a?[2J????ü".as_bytes());
    }
}
