//! `ninefold check`: holds anybody's 9P server against the rules, and says what it does otherwise.
//!
//! [`cases`] are the rules, a file a subject; a [`case::Case`] has a function that tries it with what a [`cx::Cx`] gives:
//! [`conn::Conn`]s, which send and receive frames as they are, with the words of [`talk`]. [`suite::Suite`] runs them,
//! [`report`] tells what came of it. Nothing here uses the library's client, which keeps to the rules itself and hides
//! what a server does.

mod case;
mod cases;
mod conn;
mod cx;
mod frame;
mod report;
mod scratch;
mod suite;
mod talk;
mod verdict;

use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use globset::{Glob, GlobSet, GlobSetBuilder};
use ninefold::client::Options;
use ninefold::proto::Dialect;
use ninefold::transport::dial;

use crate::args::Check;
use crate::failure::Usage;
use crate::out::Out;
use crate::signals::Signals;
use case::{Case, Group};
use cx::Target;
use report::{Counts, Verdict};
use suite::Suite;
use verdict::End;

/// The longest wait within a case, when none is given: a server that needs longer for any one reply is stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// Removing what was made takes no longer, after Ctrl-C or at the end.
const CLEAN_UP: Duration = Duration::from_secs(120);

pub async fn run(args: Check, timeout: Option<Duration>) -> anyhow::Result<ExitCode> {
    let chosen = choose(&args.only)?;
    if args.list {
        return list(&chosen, args.json).await;
    }
    let patience = timeout.unwrap_or(PATIENCE);
    if patience.is_zero() {
        return Err(Usage::error("--timeout 0: a check that waits for ever finds no server that does not answer"));
    }
    let address = args.url.context("no URL")?; // clap has seen to it
    let mut signals = Signals::catch().context("cannot catch signals")?;
    let server = address.to_string();
    if address.dialect.is_some_and(|version| version.groups) {
        return Err(Usage::error(format!("{server}: no case is about groups: leave out .ix")));
    }
    let wanted = match address.dialect {
        Some(version) if args.dialects.is_empty() => vec![version.dialect],
        _ => args.dialects.clone(),
    };
    let (uname, uid) = Options::default().user;
    let mut suite = Suite::new(Target { address, uname, uid }, patience);
    let mut out = Out::new();
    let run = Run { server: &server, wanted: &wanted, chosen: &chosen, json: args.json };
    let ended = tokio::select! {
        ended = run.all(&mut suite, &mut out) => Some(ended),
        () = signals.next() => None,
    };
    let left = tokio::select! {
        left = tokio::time::timeout(CLEAN_UP, suite.clean_up()) => {
            left.unwrap_or_else(|_| vec![format!("not removed within {} s", CLEAN_UP.as_secs())])
        }
        // A second Ctrl-C is in earnest.
        () = signals.next() => vec!["not removed: interrupted".to_owned()],
    };
    for left in &left {
        crate::report::say(format_args!("{server}: left behind: {left}"));
    }
    let Some(ended) = ended else { return Ok(ExitCode::from(130)) };
    let done = ended?;
    match run.end(done, &left, out).await {
        // Whoever reads has seen enough: `ninefold check ... | head`.
        Err(e) if e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe) => {
            Ok(ExitCode::FAILURE)
        }
        result => result,
    }
}

/// A group and those of its cases that were asked for.
type Chosen = Vec<(&'static Group, Vec<&'static Case>)>;

fn choose(only: &[String]) -> anyhow::Result<Chosen> {
    let mut globs = GlobSetBuilder::new();
    for pattern in only {
        let glob = Glob::new(pattern).map_err(|e| Usage::error(format!("--only: {e}")))?;
        globs.add(glob);
    }
    let globs: GlobSet = globs.build().context("--only")?;
    let matches = |group: &Group, case: &Case| only.is_empty() || globs.is_match(case.name(group));
    let chosen: Chosen = cases::GROUPS
        .into_iter()
        .map(|group| (group, group.cases.iter().filter(|case| matches(group, case)).collect::<Vec<_>>()))
        .filter(|(_, cases)| !cases.is_empty())
        .collect();
    if chosen.is_empty() {
        return Err(Usage::error(format!(
            "--only {}: no case has such a name: see ninefold check --list",
            only.join(" --only ")
        )));
    }
    Ok(chosen)
}

async fn list(chosen: &Chosen, json: bool) -> anyhow::Result<ExitCode> {
    let mut out = Out::new();
    for (group, cases) in chosen {
        if !json {
            out.put(format!("{}: {}\n", group.name, group.about).as_bytes()).await?;
        }
        for case in cases {
            let dialects: Vec<&str> =
                Dialect::ALL.into_iter().filter(|&d| case.is_in(d)).map(Dialect::as_str).collect();
            let (name, rule, source) = (case.name(group), case.rule, case.source);
            if json {
                let object = serde_json::json!({
                    "name": name, "group": group.name, "rule": rule, "source": source, "dialects": dialects,
                });
                out.json(&object).await?;
            } else {
                let line = format!("  {name} ({})\n    {rule}\n    {source}\n", dialects.join(" "));
                out.put(line.as_bytes()).await?;
            }
        }
    }
    match out.finish().await {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        other => other.map(|()| ExitCode::SUCCESS).context("standard output"),
    }
}

/// What a run is asked to do.
struct Run<'r> {
    server: &'r str,
    /// Empty: every dialect that the server grants.
    wanted: &'r [Dialect],
    chosen: &'r Chosen,
    json: bool,
}

/// What a run came to.
struct Done {
    granted: Vec<Dialect>,
    refused: Vec<(Dialect, String)>,
    verdicts: Vec<Verdict>,
}

impl Run<'_> {
    async fn all(&self, suite: &mut Suite, out: &mut Out) -> anyhow::Result<Done> {
        let (granted, refused) = self.dialects(suite).await?;
        if !self.json {
            for (dialect, got) in &refused {
                out.put(format!("{dialect} is not granted: {got}\n").as_bytes()).await?;
            }
        }
        let mut verdicts = Vec::new();
        for &dialect in &granted {
            suite.look(dialect).await.map_err(|end| self.cannot_attach(dialect, end))?;
            let place = suite.prepare(dialect).await;
            if let Err((_, Some(end))) = &place {
                let verdict = Verdict::no_place(dialect, end.clone());
                if !self.json {
                    out.put(verdict.text().as_bytes()).await?;
                }
                verdicts.push(verdict);
            }
            for (group, cases) in self.chosen {
                let mut of_group = Vec::new();
                for case in cases.iter().filter(|case| case.is_in(dialect)) {
                    of_group.push(suite.run(group, case, dialect, &place).await);
                }
                if !self.json && !of_group.is_empty() {
                    out.put(report::group_text(dialect, group, &of_group).as_bytes()).await?;
                    out.flush().await?;
                }
                verdicts.extend(of_group);
            }
        }
        Ok(Done { granted, refused, verdicts })
    }

    /// Which dialects the server grants of those asked for, and what it says to the others.
    async fn dialects(&self, suite: &Suite) -> anyhow::Result<(Vec<Dialect>, Vec<(Dialect, String)>)> {
        let asked = if self.wanted.is_empty() { &Dialect::ALL[..] } else { self.wanted };
        let (mut granted, mut refused) = (Vec::new(), Vec::new());
        for &dialect in asked {
            match suite.offer(dialect).await {
                Ok(()) => granted.push(dialect),
                Err(End::Fail { got, .. } | End::Differs { got, .. } | End::Skip(got)) => {
                    refused.push((dialect, got));
                }
            }
        }
        if let Some((dialect, got)) = refused.first().filter(|_| granted.is_empty() || !self.wanted.is_empty()) {
            // Whether anybody is there is told in the words of the other commands.
            let address = self.server.parse().context("the address")?;
            dial(&address).await.context("cannot connect")?;
            let server = self.server;
            return Err(match self.wanted.is_empty() {
                false => anyhow!("{server}: {dialect} is not granted: {got}; leave --dialect out to check what is"),
                true => anyhow!("{server}: no dialect is granted; to {dialect}: {got}; is it a 9P server?"),
            });
        }
        Ok((granted, refused))
    }

    fn cannot_attach(&self, dialect: Dialect, end: End) -> anyhow::Error {
        let got = match end {
            End::Fail { got, .. } | End::Differs { got, .. } | End::Skip(got) => got,
        };
        anyhow!(
            "{}: cannot attach in {dialect} and walk to the path: {got}; ?aname=NAME behind the address names the tree",
            self.server
        )
    }

    async fn end(&self, done: Done, left: &[String], mut out: Out) -> anyhow::Result<ExitCode> {
        let Done { granted, refused, verdicts } = done;
        let counts = Counts::of(&verdicts);
        if self.json {
            out.json(&report::document(self.server, &granted, &refused, &verdicts, left)).await?;
        } else {
            out.put(format!("{}: {}\n", self.server, counts.told()).as_bytes()).await?;
        }
        out.finish().await?;
        Ok(if counts.fail > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}
