//! Where the command is that the tests run.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The command: `NINEFOLD` names it, or it is built and lies where cargo puts it, above this test's own directory.
pub static NINEFOLD: LazyLock<PathBuf> = LazyLock::new(|| {
    if let Some(path) = env::var_os("NINEFOLD") {
        return path.into();
    }
    let profile =
        env::current_exe().expect("a test has a path").parent().and_then(Path::parent).expect("deps/").to_owned();
    // Cargo builds a package's commands for its own tests only, so one from an earlier build may lie there.
    let mut build = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build
        .args(["build", "--quiet", "--package", "ninefold-cli"])
        .arg("--target-dir")
        .arg(profile.parent().expect("target"));
    if profile.ends_with("release") {
        build.arg("--release");
    }
    let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo runs");
    assert!(built.success(), "cargo build -p ninefold-cli: {built}");
    profile.join("ninefold")
});
