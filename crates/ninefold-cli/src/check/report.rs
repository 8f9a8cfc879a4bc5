//! What came of each case, as text and as JSON.

use std::time::Duration;

use ninefold::proto::Dialect;
use serde_json::{Value, json};

use super::case::{Case, Group};
use super::verdict::End;

/// Lines of an exchange that are printed: the beginning, which sets the stage, and the end, where it failed.
const FIRST_FRAMES: usize = 12;
const LAST_FRAMES: usize = 40;

/// One case in one dialect.
#[derive(Debug)]
pub struct Verdict {
    pub name: String,
    pub group: &'static str,
    pub dialect: Dialect,
    pub rule: &'static str,
    pub source: &'static str,
    pub end: Result<(), End>,
    pub elapsed: Duration,
    pub frames: Vec<String>,
}

impl Verdict {
    pub fn new(group: &Group, case: &Case, dialect: Dialect, end: Result<(), End>) -> Verdict {
        Verdict {
            name: case.name(group),
            group: group.name,
            dialect,
            rule: case.rule,
            source: case.source,
            end,
            elapsed: Duration::ZERO,
            frames: Vec::new(),
        }
    }

    /// That no directory to work in could be made, by a fault of the server.
    pub fn no_place(dialect: Dialect, end: End) -> Verdict {
        Verdict {
            name: "scratch/directory-is-made".to_owned(),
            group: "scratch",
            dialect,
            rule: "A directory is looked for and made, or the server refuses to make it.",
            source: "walk(5); open(5); diod protocol.md, mkdir",
            end: Err(end),
            elapsed: Duration::ZERO,
            frames: Vec::new(),
        }
    }

    fn word(&self) -> &'static str {
        match &self.end {
            Ok(()) => "ok",
            Err(End::Fail { .. }) => "fail",
            Err(End::Differs { .. }) => "differs",
            Err(End::Skip(_)) => "skip",
        }
    }

    pub fn failed(&self) -> bool {
        matches!(self.end, Err(End::Fail { .. }))
    }

    fn shown_frames(&self) -> Vec<String> {
        let n = self.frames.len();
        if n <= FIRST_FRAMES + LAST_FRAMES {
            return self.frames.clone();
        }
        let mut shown = self.frames[..FIRST_FRAMES].to_vec();
        shown.push(format!("... ({} frames)", n - FIRST_FRAMES - LAST_FRAMES));
        shown.extend_from_slice(&self.frames[n - LAST_FRAMES..]);
        shown
    }

    pub fn text(&self) -> String {
        let Verdict { name, dialect, rule, source, .. } = self;
        let word = self.word();
        match &self.end {
            // Those that were skipped are told together.
            Ok(()) | Err(End::Skip(_)) => String::new(),
            Err(End::Fail { expected, got } | End::Differs { expected, got }) => {
                let mut text = format!(
                    "  {word} {name} ({dialect})\n    rule      {rule}\n    source    {source}\n    expected  {expected}\n    got       {got}\n"
                );
                if self.failed() {
                    for frame in self.shown_frames() {
                        text.push_str(&format!("      {frame}\n"));
                    }
                }
                text
            }
        }
    }

    fn object(&self) -> Value {
        let mut object = json!({
            "name": self.name,
            "group": self.group,
            "dialect": self.dialect.as_str(),
            "rule": self.rule,
            "source": self.source,
            "verdict": self.word(),
            "elapsed": self.elapsed.as_secs_f64(),
        });
        match &self.end {
            Ok(()) => {}
            Err(End::Skip(why)) => object["reason"] = json!(why),
            Err(End::Fail { expected, got } | End::Differs { expected, got }) => {
                object["expected"] = json!(expected);
                object["got"] = json!(got);
            }
        }
        if self.failed() {
            object["frames"] = json!(self.shown_frames());
        }
        object
    }
}

/// How many ended how.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub ok: usize,
    pub fail: usize,
    pub differs: usize,
    pub skip: usize,
}

impl Counts {
    pub fn of<'v>(verdicts: impl IntoIterator<Item = &'v Verdict>) -> Counts {
        let mut counts = Counts::default();
        for verdict in verdicts {
            match verdict.end {
                Ok(()) => counts.ok += 1,
                Err(End::Fail { .. }) => counts.fail += 1,
                Err(End::Differs { .. }) => counts.differs += 1,
                Err(End::Skip(_)) => counts.skip += 1,
            }
        }
        counts
    }

    /// `20 ok, 1 failed, 2 differ, 3 skipped`, without what is 0.
    pub fn told(self) -> String {
        let parts = [(self.fail, "failed"), (self.differs, "differ"), (self.skip, "skipped")];
        let rest: String = parts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!(", {n} {word}")).collect();
        format!("{} ok{rest}", self.ok)
    }

    fn object(self) -> Value {
        json!({ "ok": self.ok, "fail": self.fail, "differs": self.differs, "skip": self.skip })
    }
}

/// A group's line in one dialect, and below it what did not end well.
pub fn group_text(dialect: Dialect, group: &Group, verdicts: &[Verdict]) -> String {
    let counts = Counts::of(verdicts).told();
    let mut text = format!("{:<8} {:<8} {counts}\n", dialect.as_str(), group.name);
    for verdict in verdicts {
        text.push_str(&verdict.text());
    }
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for verdict in verdicts {
        let Err(End::Skip(why)) = &verdict.end else { continue };
        match reasons.iter_mut().find(|(reason, _)| reason == why) {
            Some((_, n)) => *n += 1,
            None => reasons.push((why, 1)),
        }
    }
    for (why, n) in reasons {
        text.push_str(&format!("  skip {n}: {why}\n"));
    }
    text
}

/// The whole run as one document.
pub fn document(
    server: &str,
    dialects: &[Dialect],
    refused: &[(Dialect, String)],
    verdicts: &[Verdict],
    left: &[String],
) -> Value {
    let by_dialect: serde_json::Map<String, Value> = dialects
        .iter()
        .map(|&dialect| {
            let counts = Counts::of(verdicts.iter().filter(|v| v.dialect == dialect));
            (dialect.as_str().to_owned(), counts.object())
        })
        .collect();
    let refused: serde_json::Map<String, Value> =
        refused.iter().map(|(dialect, got)| (dialect.as_str().to_owned(), json!(got))).collect();
    json!({
        "server": server,
        "suite": env!("CARGO_PKG_VERSION"),
        "dialects": dialects.iter().map(|dialect| dialect.as_str()).collect::<Vec<_>>(),
        "not_granted": refused,
        "counts": Counts::of(verdicts).object(),
        "counts_by_dialect": by_dialect,
        "left_behind": left,
        "cases": verdicts.iter().map(Verdict::object).collect::<Vec<_>>(),
    })
}
