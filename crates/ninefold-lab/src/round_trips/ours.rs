//! Our commands, each a process of its own, and what they count of themselves.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::bed::{Bed, NINEFOLD, Words};
use super::operation::Operation;
use super::trees;

/// What a server is spoken to in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speech {
    Linux,
    Pipelined,
    /// .n1, by a client that remembers that the server speaks it.
    Warm,
}

impl Speech {
    fn query(self) -> &'static str {
        match self {
            Speech::Linux => "?dialect=9P2000.L",
            Speech::Pipelined => "?dialect=9P2000.ix",
            Speech::Warm => "",
        }
    }

    /// What `--stats` says when it was that.
    fn dialect(self) -> &'static str {
        match self {
            Speech::Linux => "9P2000.L",
            Speech::Pipelined => "9P2000.ix",
            Speech::Warm => "9P2000.L.n1",
        }
    }
}

/// What `--stats` writes, as far as it is reported.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Counted {
    dialect: String,
    pub round_trips: u64,
    messages: BTreeMap<String, u64>,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

impl Counted {
    /// Of a text with one object for each server; here is one server.
    fn parse(text: &str, speech: Speech) -> Result<Counted> {
        let counted: Counted = serde_json::from_str(text).with_context(|| format!("--stats wrote {text:?}"))?;
        let expected = speech.dialect();
        anyhow::ensure!(counted.dialect == expected, "{} was spoken and not {expected}", counted.dialect);
        Ok(counted)
    }

    /// Requests.
    pub fn messages(&self) -> u64 {
        self.messages.iter().filter(|(name, _)| name.starts_with('T')).map(|(_, count)| count).sum()
    }
}

/// The command that does an operation; none where no message is needed.
pub fn words(bed: &Bed<'_>, operation: Operation, speech: Speech) -> Option<Words> {
    let url = |path: &str| format!("9p://{NINEFOLD}/{path}{}", speech.query());
    let here = |name: &str| bed.trees.here().join(name);
    let down = |name: &str| bed.trees.down().join(name);
    let command = |words: &[&str]| {
        let stats = [bed.ninefold.clone().into(), "--stats".into(), stats(bed).into_os_string()];
        Words { words: stats.into_iter().chain(words.iter().map(Into::into)).collect(), stdin: None }
    };
    let write = |stdin: &Path| command(&["write", &url("made/x")]).reading(stdin);
    Some(match operation {
        Operation::Pwd => return None,
        Operation::Ls => command(&["ls", &url("few")]),
        Operation::LsLong => command(&["ls", "-l", &url("few")]),
        Operation::LsMany => command(&["ls", "-l", &url("many")]),
        Operation::LsTree => command(&["ls", "-lR", &url("tree")]),
        Operation::Stat => command(&["stat", &url("d/small")]),
        Operation::Create => write(Path::new("/dev/null")),
        Operation::WriteSmall => write(&here("small")),
        Operation::WriteLarger => write(&here("larger")),
        Operation::ReadSmall => command(&["cat", &url("d/small")]),
        Operation::ReadLarger => command(&["cat", &url("d/larger")]),
        Operation::CopyDown => command(&["cp", &url("d/middle")]).and(down("x")),
        Operation::CopyUp => command(&["cp"]).and(here("middle")).and(url("made/x")),
        Operation::Remove => command(&["rm", &url("made/x")]),
        Operation::Mkdir => command(&["mkdir", "-p", &url(&format!("made/{}", trees::DEEP))]),
        Operation::CopyTreeDown => command(&["cp", "-r", &url("tree")]).and(down("tree")),
        Operation::CopyTreeUp => command(&["cp", "-r"]).and(here("tree")).and(url("made/tree")),
        Operation::RemoveTree => command(&["rm", "-r", &url("made/tree")]),
        Operation::CopyLarge => command(&["cp", &url("d/large")]).and(down("x")),
        Operation::CopyParallel => {
            let parts = (0..trees::PARTS).map(|n| url(&format!("parts/{}", trees::part(n))));
            parts.fold(command(&["cp", "-j", "8"]), Words::and).and(bed.trees.down())
        }
    })
}

/// What makes the client remember the server.
pub fn remember(bed: &Bed<'_>) -> Words {
    Words::new([bed.ninefold.clone(), "stat".into(), format!("9p://{NINEFOLD}/").into()])
}

fn stats(bed: &Bed<'_>) -> std::path::PathBuf {
    bed.scratch("stats")
}

/// What the last command counted.
pub fn counted(bed: &Bed<'_>, speech: Speech) -> Result<Counted> {
    let path = stats(bed);
    let text = std::fs::read_to_string(&path).context("--stats wrote nothing")?;
    // The next command is to write its own.
    std::fs::remove_file(&path)?;
    Counted::parse(&text, speech)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_and_replies_are_not() {
        let text = r#"{"bytes_received":236,"bytes_sent":90,"dialect":"9P2000.L","messages":{"Rattach":1,"Rversion":1,
            "Rwalk":3,"Tattach":1,"Tversion":1,"Twalk":3},"msize":1048576,"round_trips":4,"server":"9p://h"}"#;
        let counted = Counted::parse(text, Speech::Linux).unwrap();
        assert_eq!(
            (counted.messages(), counted.round_trips, counted.bytes_sent, counted.bytes_received),
            (5, 4, 90, 236)
        );
    }

    #[test]
    fn what_spoke_another_dialect_is_no_figure_of_this_one() {
        let text = r#"{"bytes_received":1,"bytes_sent":1,"dialect":"9P2000.L","messages":{},"round_trips":4}"#;
        let error = Counted::parse(text, Speech::Warm).unwrap_err();
        assert_eq!(error.to_string(), "9P2000.L was spoken and not 9P2000.L.n1");
    }
}
