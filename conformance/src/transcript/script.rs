//! A transcript as read from its file: [`Script::load`] gives the steps in order, includes resolved.

use std::fmt;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, bail, ensure};
use ninefold_proto::dialect::Version;

/// Where a line stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    file: Rc<str>,
    line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// What a line asks for. Text is kept as written: variables are known only when it is run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    Connect,
    /// A T line or `raw`.
    Send(String),
    /// An R line.
    Expect(String),
    /// `open`: a data connection, by a token or an address of an Rstream.
    Open(String),
    /// `put`: bytes on a data connection.
    Put(String),
    /// `end`: no more of them.
    End,
    /// `got`: all that comes on a data connection, to its end.
    Got(String),
    Next,
    Silence,
    Closed,
    /// `file`, `dir`, `symlink`, `fifo`, with their words.
    Make(String),
    /// `check`, with its words.
    Check(String),
}

/// One line of a script.
#[derive(Clone, Debug)]
pub struct Step {
    pub place: Place,
    pub version: Version,
    /// The connection's name; empty for the one without a name.
    pub connection: String,
    pub action: Action,
}

/// The steps of a transcript.
#[derive(Clone, Debug, Default)]
pub struct Script {
    pub(crate) steps: Vec<Step>,
    needs: Vec<String>,
}

/// Includes within includes; more is a file that includes itself.
const INCLUDE_DEPTH_MAX: usize = 8;

impl Script {
    /// Reads a transcript and what it includes.
    pub fn load(path: &Path) -> anyhow::Result<Script> {
        let mut script = Script::default();
        script.read(path, &mut None, 0)?;
        ensure!(!script.steps.is_empty(), "{}: there is nothing to do in it", path.display());
        Ok(script)
    }

    /// What the target must have: the words of `needs` lines.
    pub fn needs(&self) -> &[String] {
        &self.needs
    }

    /// Whether it makes or checks files in the exported directory itself, beside the protocol.
    pub fn needs_directory(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.action, Action::Make(_) | Action::Check(_)))
    }

    fn read(&mut self, path: &Path, version: &mut Option<Version>, depth: usize) -> anyhow::Result<()> {
        ensure!(depth < INCLUDE_DEPTH_MAX, "{}: included by itself", path.display());
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let file: Rc<str> = path.display().to_string().into();
        for (line, text) in (1..).zip(text.lines()) {
            let place = Place { file: file.clone(), line };
            self.line(text.trim(), path, &place, version, depth).with_context(|| place.to_string())?;
        }
        Ok(())
    }

    fn line(
        &mut self,
        text: &str,
        path: &Path,
        place: &Place,
        version: &mut Option<Version>,
        depth: usize,
    ) -> anyhow::Result<()> {
        if text.is_empty() || text.starts_with('#') {
            return Ok(());
        }
        let (connection, text) = split_connection(text);
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim();
        let plain = |action| {
            ensure!(rest.is_empty(), "'{word}' takes no words behind it");
            Ok(action)
        };
        let action = match word {
            "include" => return self.read(&path.with_file_name(rest), version, depth + 1),
            "dialect" => {
                let named = Version::parse(rest.as_bytes());
                *version = Some(named.with_context(|| format!("'{rest}' is no dialect"))?);
                return Ok(());
            }
            "needs" => {
                ensure!(!rest.is_empty(), "'needs' names nothing");
                self.needs.extend(rest.split_whitespace().map(str::to_owned));
                return Ok(());
            }
            "connect" => {
                return self.push(place, *version, rest, Action::Connect);
            }
            "open" => Action::Open(rest.to_owned()),
            "put" => Action::Put(rest.to_owned()),
            "got" => Action::Got(rest.to_owned()),
            "end" => plain(Action::End)?,
            "next" => plain(Action::Next)?,
            "none" => plain(Action::Silence)?,
            "closed" => plain(Action::Closed)?,
            "file" | "dir" | "symlink" | "fifo" => Action::Make(text.to_owned()),
            "check" => Action::Check(rest.to_owned()),
            "raw" => Action::Send(text.to_owned()),
            "*" => Action::Expect(text.to_owned()),
            _ if word.starts_with('T') => Action::Send(text.to_owned()),
            _ if word.starts_with('R') => Action::Expect(text.to_owned()),
            _ => bail!("'{word}' begins no line of a transcript"),
        };
        self.push(place, *version, connection, action)
    }

    fn push(
        &mut self,
        place: &Place,
        version: Option<Version>,
        connection: &str,
        action: Action,
    ) -> anyhow::Result<()> {
        let version = version.context("a 'dialect' line must come first")?;
        self.steps.push(Step { place: place.clone(), version, connection: connection.to_owned(), action });
        Ok(())
    }
}

/// Takes `NAME:` off the front; arrows, as a trace prints them, are taken off too.
fn split_connection(text: &str) -> (&str, &str) {
    let (connection, text) = match text.split_once(' ') {
        Some((word, rest)) if word.ends_with(':') => (&word[..word.len() - 1], rest.trim_start()),
        _ => ("", text),
    };
    let arrow = ["→", "->", "←", "<-"].into_iter().find_map(|arrow| text.strip_prefix(arrow));
    (connection, arrow.unwrap_or(text).trim_start())
}
