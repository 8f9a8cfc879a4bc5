//! The thesis bench from end to end: small files over a lab, by every way whose programs are here, and a second measurement that goes
//! on behind the first.

mod support;

use std::path::Path;
use std::process::{Command, Output};

use support::{BENCH, lab, skip};

/// Ways that need nothing beyond what is built here, and those that need a peer's programs.
const OWN: [&str; 8] = ["check", "pump1", "pump4", "one", "stream-pipe", "stream1", "stream4", "export"];
const PEERS: [&str; 5] = ["http1", "http4", "scp", "rsync", "diodcat"];

fn thesis(out: &Path, ninefold: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(BENCH);
    command.args(["thesis", "--rtt", "1ms", "--size", "300000", "--table", "read,write"]).arg("--out").arg(out);
    command.arg("--ninefold").arg(ninefold).args(words);
    // Where nothing else is, and nothing stays.
    command.arg("--dir").arg(out.parent().unwrap()).arg("--to").arg(out.parent().unwrap());
    command.output().unwrap()
}

/// The columns way, direction, run and how of each row, and its note.
fn rows(out: &Path) -> Vec<[String; 5]> {
    let mut reader = csv::Reader::from_path(out.join("rows.csv")).unwrap();
    let columns = ["way", "direction", "run", "how", "note"]
        .map(|name| reader.headers().unwrap().iter().position(|header| header == name).unwrap());
    reader.records().map(|record| columns.map(|column| record.as_ref().unwrap()[column].to_owned())).collect()
}

/// How many runs of a way are measured.
fn measured(rows: &[[String; 5]], way: &str, direction: &str) -> usize {
    let is = |row: &&[String; 5]| row[0] == way && row[1] == direction && row[3] == "measured";
    rows.iter().filter(is).count()
}

#[test]
fn files_arrive_by_every_way_and_a_second_measurement_goes_on_behind_the_first() {
    let name = "files_arrive_by_every_way_and_a_second_measurement_goes_on_behind_the_first";
    let ninefold = Path::new(BENCH).with_file_name("ninefold");
    if !ninefold.is_file() {
        return skip(name, &format!("{} is not built: cargo build -p ninefold-cli", ninefold.display()));
    }
    if !rustix::process::geteuid().is_root() {
        return skip(name, "only root can start the servers beside");
    }
    if lab(name, Default::default()).is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let only = [&OWN[..], &PEERS[..]].concat().join(",");
    let output = thesis(&out, &ninefold, &["--only", &only, "--runs", "2"]);
    assert!(output.status.success(), "{output:?}");
    let first = rows(&out);
    // What is not installed is told, and nothing else is missing.
    let missing: Vec<&str> = first.iter().filter(|row| row[3] == "missing").map(|row| row[4].as_str()).collect();
    assert!(missing.iter().all(|note| note.contains("apt install")), "{missing:?}");
    for way in OWN.iter().chain(&PEERS) {
        let is_missing = first.iter().any(|row| row[0] == *way && row[3] == "missing");
        assert_eq!(measured(&first, way, "read"), if is_missing { 0 } else { 2 }, "{way}");
    }
    for way in ["pump4", "one", "stream-pipe", "stream1", "export"] {
        assert_eq!(measured(&first, way, "write"), 2, "{way}");
    }
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("bare sockets, 4") && page.contains("Is the link what it was asked to be?"), "{page}");
    // Nothing is left beside what was asked for.
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["out"]);

    // What is there is not measured again, and a third run is.
    let output = thesis(&out, &ninefold, &["--only", "pump4,pump2", "--runs", "3"]);
    assert!(output.status.success(), "{output:?}");
    let second = rows(&out);
    assert_eq!(second[..first.len()], first);
    let runs: Vec<String> =
        second[first.len()..].iter().map(|row| format!("{} {} {}", row[0], row[1], row[2])).collect();
    let expected = |direction: &str| {
        ["pump2", "pump2", "pump2", "pump4"]
            .iter()
            .zip([1, 2, 3, 3])
            .map(|(way, run)| format!("{way} {direction} {run}"))
            .collect::<Vec<_>>()
    };
    // The link itself is looked at first, whatever else was asked for.
    assert_eq!(runs, [vec!["check read 3".to_owned()], expected("read"), expected("write")].concat());
    if let Some(why) = missing.first() {
        skip(name, why);
    }
}

#[test]
fn a_way_that_is_not_there_and_a_report_of_nothing_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let told = |words: &[&str]| {
        let output = thesis(&out, Path::new("/nonexistent/ninefold"), words);
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(told(&["--only", "ftp"]).contains("no way has 'ftp' in its name; there are http1, http4"));
    assert!(told(&["--report-only"]).contains("has no rows"));
    assert!(told(&[]).contains("/nonexistent/ninefold is missing; name it with --ninefold"));
}
