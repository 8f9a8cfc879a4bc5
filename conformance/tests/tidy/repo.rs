//! The files of the repository, as text. What git ignores is not part of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file: its path from the root of the repository, with `/` between the parts, and its text.
pub struct File {
    pub path: String,
    pub text: String,
}

/// The root of the repository: the directory above this crate.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().expect("the crate lies in the repository").to_path_buf()
}

/// Every text file, tracked or about to be. Files that are not UTF-8 (fuzz seeds, for example) are left out.
pub fn files() -> Vec<File> {
    let root = root();
    let read = |path: String| {
        let text = fs::read_to_string(root.join(&path)).ok()?;
        Some(File { path, text })
    };
    let files: Vec<File> = paths(&root).into_iter().filter_map(read).collect();
    assert!(files.iter().any(|file| file.path == "Cargo.toml"), "no Cargo.toml among the files of {}", root.display());
    files
}

/// Every file, text or not: its path and its size in bytes.
pub fn sizes() -> Vec<(String, u64)> {
    let root = root();
    let size = |path: String| fs::symlink_metadata(root.join(&path)).ok().map(|meta| (path, meta.len()));
    paths(&root).into_iter().filter_map(size).collect()
}

/// What `cargo tree` says of these packages' dependencies: a line each, with its features.
pub fn features(packages: &[&str]) -> String {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--locked", "--edges", "normal,build", "--format", "{p} {f}", "--prefix", "none"]);
    for package in packages {
        tree.args(["--package", package]);
    }
    let output = tree.current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo tree prints text")
}

fn paths(root: &Path) -> Vec<String> {
    listed_by_git(root).unwrap_or_else(|| {
        let mut found = Vec::new();
        walk(root, "", &mut found);
        found
    })
}

/// None when this is no git checkout, or git refuses to look at it.
fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    let names = String::from_utf8(output.stdout).ok()?;
    let paths: Vec<String> = names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let whole = output.status.success() && paths.iter().any(|path| path == "Cargo.toml");
    whole.then_some(paths)
}

/// For an unpacked source archive: everything but what .gitignore names.
fn walk(root: &Path, below: &str, found: &mut Vec<String>) {
    const IGNORED: [&str; 4] = [".git", "target", "corpus", "artifacts"];
    let Ok(entries) = fs::read_dir(root.join(below)) else {
        return;
    };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if IGNORED.contains(&name.as_str()) {
            continue;
        }
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(root, &path, found),
            Ok(kind) if kind.is_file() => found.push(path),
            _ => {}
        }
    }
}
