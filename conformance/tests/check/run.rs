//! Runs the command and reads its document.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use crate::command::NINEFOLD;

/// A run takes no longer, whatever the server does: 320 cases, of which a fault may silence a few.
const BOUND: Duration = Duration::from_secs(300);

/// What a run came to.
pub struct Found {
    pub status: i32,
    /// Null when it printed none.
    pub document: Value,
    pub stderr: String,
}

/// Runs `ninefold check`.
pub async fn check(words: &[&str]) -> Found {
    let mut command = Command::new(&*NINEFOLD);
    command.arg("check").args(words).env_remove("RUST_LOG").kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.spawn().expect("it runs").wait_with_output();
    let output = tokio::time::timeout(BOUND, output).await.expect("in time").expect("its output can be read");
    Found {
        status: output.status.code().unwrap_or(-1),
        document: serde_json::from_slice(&output.stdout).unwrap_or_default(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A case's entry in the document.
pub fn verdict(found: &Found, case: &str) -> Value {
    let cases = found.document["cases"].as_array();
    cases.into_iter().flatten().find(|entry| entry["name"] == case).cloned().unwrap_or_default()
}
