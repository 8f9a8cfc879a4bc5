//! `ninefold check` against ninefold's own server, where every case must pass in every dialect, and against the same server
//! with a fault planted between the two, where the case meant for it must find it out.
//!
//! The relay without a fault is held against the cases too: what is found is the fault, not the relay.

#[path = "support/command.rs"]
mod command;
#[path = "check/faults.rs"]
mod faults;
#[path = "check/relay.rs"]
mod relay;
#[path = "check/replies.rs"]
mod replies;
#[path = "check/run.rs"]
mod run;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use relay::{Fault, Relay};
use run::{check, verdict};

/// Runs at a time: those in which a server does not answer leave room for others.
const AT_A_TIME: usize = 4;

/// Seconds: how long a server that does not answer is waited for.
const PATIENCE: &str = "2";

/// How long one is waited for that does.
const LONG: &str = "60";

fn all() -> impl Iterator<Item = &'static Fault> {
    faults::TABLE.iter().chain(replies::TABLE)
}

#[test]
fn at_least_twenty_faults_are_planted_in_every_dialect_and_each_has_a_name_of_its_own() {
    let names: BTreeSet<&str> = all().map(|fault| fault.name).collect();
    assert_eq!(names.len(), all().count());
    assert!(names.len() >= 20, "{}", names.len());
    let dialects: BTreeSet<&str> = all().map(|fault| fault.dialect).collect();
    assert_eq!(dialects, BTreeSet::from(["9P2000", "9P2000.L", "9P2000.u"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_planted_fault_is_found_by_the_case_meant_for_it() {
    let permits = Arc::new(Semaphore::new(AT_A_TIME));
    let mut runs = JoinSet::new();
    for fault in all() {
        let permits = permits.clone();
        runs.spawn(async move {
            let _permit = permits.acquire().await.expect("open");
            let relay = Relay::start(Some(fault)).await;
            let patience = if fault.silent { PATIENCE } else { LONG };
            let found =
                check(&["--json", "--timeout", patience, "--dialect", fault.dialect, "--only", fault.case, &relay.url])
                    .await;
            let came = verdict(&found, fault.case);
            let told = format!("{}: {} in {}: {}\n{}", fault.name, fault.case, fault.dialect, came, found.stderr);
            (came["verdict"] == fault.verdict && found.status == i32::from(fault.verdict == "fail"), told)
        });
    }
    let mut missed = Vec::new();
    for (found, told) in runs.join_all().await {
        if !found {
            missed.push(told);
        }
    }
    assert!(missed.is_empty(), "not found:\n{}", missed.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_fault_the_relay_passes_every_case_that_a_fault_is_planted_for() {
    let relay = Relay::start(None).await;
    for dialect in ["9P2000", "9P2000.u", "9P2000.L"] {
        let cases: BTreeSet<&str> = all().filter(|fault| fault.dialect == dialect).map(|fault| fault.case).collect();
        let mut words = vec!["--json", "--timeout", LONG, "--dialect", dialect];
        for case in &cases {
            words.extend(["--only", case]);
        }
        words.push(&relay.url);
        let found = check(&words).await;
        for case in &cases {
            assert_eq!(verdict(&found, case)["verdict"], "ok", "{}", verdict(&found, case));
        }
        assert_eq!(found.status, 0, "{}", found.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_is_told_of_and_does_not_hang_the_suite() {
    let relay = Relay::start(Some(&faults::DIES)).await;
    let found =
        check(&["--json", "--timeout", PATIENCE, "--dialect", "9P2000.L", "--only", "walk/*", &relay.url]).await;
    let cases = found.document["cases"].as_array().expect("cases");
    let of = |wanted: &str| cases.iter().filter(|case| case["verdict"] == wanted).collect::<Vec<&Value>>();
    assert_eq!(found.status, 1);
    assert_eq!(of("fail").len(), 1, "{:?}", of("fail"));
    assert!(of("fail")[0]["got"].as_str().is_some_and(|got| got.contains("the server is gone")), "{:?}", of("fail"));
    assert!(of("skip").len() > 3);
    for skipped in of("skip") {
        assert!(skipped["reason"].as_str().is_some_and(|why| why.starts_with("the server is gone since walk/")));
    }
    assert!(found.stderr.contains("left behind"), "{}", found.stderr);
}
