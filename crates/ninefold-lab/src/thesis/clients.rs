//! Commands in the client's end that begin at the same instant, each with its own time: from its start to its end, taken in that end,
//! so that what the lab does to start them is not in it.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use super::way::Job;
use crate::round_trips::timed::{self, Timed};

/// How often a server is asked whether it listens.
const LOOK: Duration = Duration::from_millis(20);

/// Runs what a file lists as JSON. Milliseconds after which each is killed, with its process group.
pub fn run(jobs: &Path, within: u64) -> Result<Vec<Timed>> {
    let jobs: Vec<Job> = serde_json::from_slice(&std::fs::read(jobs)?).context("the list of commands")?;
    let barrier = Barrier::new(jobs.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = jobs
            .into_iter()
            .map(|Job { words, stdin, stdout, stderr }| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let options = timed::Options { within, stdin, stdout, stderr, words };
                    barrier.wait();
                    timed::run(&options)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?).collect()
    })
}

/// Waits until a server listens.
pub fn listens(address: SocketAddr, within: Duration) -> Result<()> {
    let began = Instant::now();
    while let Err(e) = TcpStream::connect_timeout(&address, within) {
        ensure!(began.elapsed() < within, "nobody listens at {address} after {} s: {e}", within.as_secs());
        std::thread::sleep(LOOK);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_its_own_time_and_status() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        // The first waits until the second has begun.
        let scripts = ["until [ -e \"$0\" ]; do sleep 0.01; done; exit 3", ": >\"$0\""];
        let jobs = scripts.iter().enumerate().map(|(n, script)| Job {
            words: ["sh", "-c", script, at("begun").to_str().unwrap()].map(Into::into).into(),
            stdin: None,
            stdout: at(&format!("out{n}")),
            stderr: at(&format!("err{n}")),
        });
        std::fs::write(at("jobs"), serde_json::to_vec(&jobs.collect::<Vec<Job>>()).unwrap()).unwrap();
        let timed = run(&at("jobs"), 60_000).unwrap();
        let statuses: Vec<_> = timed.iter().map(|timed| timed.status).collect();
        assert_eq!(statuses, [Some(3), Some(0)]);
        assert!(timed[0].nanoseconds > 0 && !timed[0].is_stopped);
    }

    #[test]
    fn nobody_who_listens_is_told() {
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = listens(address, Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("nobody listens at 127.0.0.1"), "{error:#}");
    }
}
