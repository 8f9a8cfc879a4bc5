//! The command line of the round-trips bench, as far as it goes without a server to measure.

use std::process::Command;

/// What it says on standard error before it fails.
fn refused(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ninefold-bench")).arg("round-trips").args(words).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_bench_that_would_measure_nothing_says_so() {
    assert!(refused(&["--only", "no such word"]).contains("no operation and no system has a name"));
    assert!(refused(&["--rate", "fast"]).contains("'fast' is no rate"), "{}", refused(&["--rate", "fast"]));
}

#[test]
fn a_missing_program_is_named_with_what_to_do() {
    let told = refused(&["--ninefold", "/nonexistent/ninefold"]);
    assert!(told.contains("/nonexistent/ninefold is missing; name it with --ninefold"), "{told}");
}
