//! `ninefold doctor`: what on this machine stands in the way, and how to mend it.
//!
//! [`machine`] looks, [`findings`] judges what was seen; here it is told. Nothing is changed, and no server is asked.

mod findings;
mod machine;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use serde_json::json;

use crate::args::Doctor;
use findings::{Finding, Path, State, findings};
use machine::Machine;

/// Columns of a finding's name.
const NAME: usize = 20;

/// Must run while the process has one thread: a user name space is made by no other (unshare(2)).
pub fn run(args: &Doctor) -> anyhow::Result<ExitCode> {
    let path = Path { rtt: args.rtt, bits_per_second: args.rate };
    let findings = findings(&Machine::look(), path);
    let mut text = String::new();
    for finding in &findings {
        if args.json {
            text.push_str(&as_json(finding).to_string());
            text.push('\n');
        } else {
            text.push_str(&as_text(finding));
        }
    }
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {}
        other => other.context("standard output")?,
    }
    let lacks = findings.iter().any(|finding| finding.state == State::Lacks);
    Ok(if lacks { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn as_text(finding: &Finding) -> String {
    let mut text = format!("{:<6}{:<NAME$}{}\n", finding.state.word(), finding.name, finding.found);
    if let Some(advice) = &finding.advice {
        text.push_str(&format!("{:6}{:NAME$}{}\n", "", "", advice.matter));
        text.push_str(&format!("{:6}{:NAME$}mend: {}\n", "", "", advice.mend));
    }
    text
}

fn as_json(finding: &Finding) -> serde_json::Value {
    json!({
        "name": finding.name,
        "state": finding.state.word(),
        "found": finding.found,
        "matter": finding.advice.as_ref().map(|advice| &advice.matter),
        "mend": finding.advice.as_ref().map(|advice| &advice.mend),
    })
}
