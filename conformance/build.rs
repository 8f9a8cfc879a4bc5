//! Makes one named test of each transcript, so that failures are named and counted one by one.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = Path::new("transcripts");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut text = String::new();
    for dialect in entries(root).iter().filter(|path| path.is_dir()) {
        println!("cargo::rerun-if-changed={}", dialect.display());
        let files: Vec<PathBuf> =
            entries(dialect).into_iter().filter(|path| path.extension().is_some_and(|e| e == "9p")).collect();
        module(&mut text, "hostfs", dialect, files.iter());
        module(&mut text, "ramfs", dialect, files.iter().filter(|path| fits_every_tree(path)));
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("transcripts.rs");
    fs::write(out, text).expect("OUT_DIR is writable");
}

/// What is in a directory, in a fixed order.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable directory").path()).collect();
    paths.sort();
    paths
}

fn module<'p>(text: &mut String, tree: &str, dialect: &Path, files: impl Iterator<Item = &'p PathBuf>) {
    let name = |path: &Path| path.file_stem().expect("named").to_string_lossy().replace('-', "_");
    writeln!(text, "mod {tree}_{} {{", name(dialect)).expect("memory");
    for file in files {
        writeln!(
            text,
            "    #[test]\n    fn {}() {{\n        crate::{tree}({:?});\n    }}",
            name(file),
            file.display().to_string()
        )
        .expect("memory");
    }
    text.push_str("}\n");
}

/// Whether a transcript asks for nothing that only a tree of the host has.
fn fits_every_tree(file: &Path) -> bool {
    println!("cargo::rerun-if-changed={}", file.display());
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let host = ["needs ", "file ", "dir ", "symlink ", "fifo ", "check "];
    !text.lines().any(|line| host.iter().any(|word| line.trim_start().starts_with(word)))
}
