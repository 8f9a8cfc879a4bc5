//! `ninefold demo`.

mod support;

use support::run;

#[test]
fn the_demo_succeeds() {
    let (code, stdout, stderr) = run(&["demo"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert_eq!(stdout.lines().filter(|line| line.starts_with('✓')).count(), 10, "{stdout}");
}
