//! The rules. Each takes text and gives the faults it sees, as `path:line: what is wrong`, so that a test can feed it a fault.

use std::collections::BTreeSet;

use crate::scan::{code, lines_with_word, without_tests};

/// Which workspace crates a crate may depend on, in any way (dev and build dependencies too). `*` is all of them.
/// A crate that is not in this list is a fault: add it here and in ARCHITECTURE.md.
pub const ARROWS: &[(&str, &[&str])] = &[
    ("ninefold-proto", &[]),
    ("ninefold", &["ninefold-proto"]),
    ("ninefold-stream", &["ninefold"]),
    ("ninefold-fuse", &["ninefold"]),
    ("ninefold-capi", &["ninefold-stream", "ninefold"]),
    ("ninefold-preload", &["ninefold-stream", "ninefold"]),
    ("ninefold-cli", &["ninefold-fuse", "ninefold-stream", "ninefold"]),
    ("ninefold-lab", &["ninefold-stream", "ninefold"]),
    ("ninefold-fuzz", &["ninefold-proto", "ninefold"]),
    ("ninefold-conformance", &["*"]),
];

/// The files that may say `unsafe`. Each such block has a SAFETY note (a clippy lint), and each line here a reason.
pub const UNSAFE_FILES: &[&str] = &[
    "crates/ninefold-capi/src/asi.rs",                      // what C calls
    "crates/ninefold-capi/src/fence.rs",                    // C's pointers, checked, become references
    "crates/ninefold-capi/src/handles.rs",                  // a table that forks wait for
    "crates/ninefold-capi/src/kernel.rs",                   // system calls on C's memory and descriptors
    "crates/ninefold-capi/src/mixed.rs",                    // a test, which calls what C calls
    "crates/ninefold-capi/src/process.rs", // what a child of fork(2) must not lock is behind an atomic pointer
    "crates/ninefold-capi/src/signals.rs", // masks of signals
    "crates/ninefold-capi/src/stdio.rs",   // what C calls
    "crates/ninefold-capi/src/stream_io.rs", // what C calls
    "crates/ninefold-capi/src/unix_io.rs", // what C calls
    "crates/ninefold/src/server/streams/calls.rs", // fcntl(2) and ioctl(2) with numbers
    "crates/ninefold-stream/src/backplane/core.rs", // what a lock guards
    "crates/ninefold-stream/src/backplane/output.rs", // memory that regions are written in, read once they are free
    "crates/ninefold-stream/src/fault.rs", // the handler of SIGBUS
    "crates/ninefold-stream/src/memory.rs", // pages, and mapped files as slices
    "crates/ninefold-stream/src/module/directory.rs", // getdents64(2)
    "crates/ninefold-stream/src/module/ring/area.rs", // a mapping, and what a child of fork(2) has there
    "crates/ninefold-stream/src/module/ring/pages.rs", // memory that two processes share
    "crates/ninefold-stream/src/primitives.rs", // a mutex that is unlocked by a call
    "crates/ninefold-stream/src/region.rs", // addresses become slices
    "crates/ninefold-stream/src/search.rs", // SSE2's load
    "crates/ninefold-stream/tests/forked.rs", // gettid(2)
    "crates/ninefold-stream/tests/ignored_signal.rs", // signal(2) and raise(3)
    "crates/ninefold-stream/tests/lock_model.rs", // loom's cells
    "crates/ninefold-stream/tests/ninep.rs", // regions by their addresses
    "crates/ninefold-stream/tests/raw.rs", // regions by their addresses
    "crates/ninefold-stream/tests/interrupted.rs", // sigaction(2)
    "crates/ninefold-stream/tests/ring_forked.rs", // mmap(2)
    "crates/ninefold-stream/tests/ring_interrupted.rs", // sigaction(2)
    "crates/ninefold-stream/tests/support/child.rs", // fork(2) and wait(2)
    "crates/ninefold-stream/tests/support/interrupted.rs", // pthread_kill(3)
    "crates/ninefold-stream/tests/terminal_interrupted.rs", // sigaction(2)
    "crates/ninefold-stream/tests/many_mappings.rs", // mappings until there may be no more
    "crates/ninefold/src/tree/hostfs/prefetch.rs", // a hint to the processor
];

/// What would give the protocol crate a clock, a thread or a socket. `std` itself is not to be had outside its tests.
const IMPURE_WORDS: [&str; 9] = ["std", "Instant", "SystemTime", "tokio", "mio", "socket2", "rustix", "nix", "libc"];

/// Past this many lines a file holds more than one thing. Files named tests.rs are not counted.
pub const LINES_PER_FILE: usize = 1_000;

/// Bytes. Nothing that a person wrote is as large; a core file or a build is, and stays in the history for ever.
pub const BYTES_PER_FILE: u64 = 1 << 20;

/// One directory under conformance/transcripts for each dialect that the runner knows.
const TRANSCRIPT_DIRECTORIES: [&str; 4] = ["9p2000", "9p2000u", "9p2000l", "9p2000ln1"];

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn extension(path: &str) -> &str {
    file_name(path).rsplit_once('.').map_or("", |(_, end)| end)
}

/// Is all of the file test code?
fn is_test_file(path: &str) -> bool {
    file_name(path) == "tests.rs" || path.split('/').any(|part| part == "tests")
}

/// The crate's name in a Cargo.toml, and each dependency: line, name of the crate meant.
pub fn manifest(text: &str) -> (Option<String>, Vec<(usize, String)>) {
    let unquote = |text: &str| text.trim().trim_matches('"').to_owned();
    let mut name = None;
    let mut dependencies: Vec<(usize, String)> = Vec::new();
    let mut table = String::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split(" #").next().unwrap_or_default().trim();
        if let Some(header) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            table = unquote(header.trim_matches(['[', ']']));
            let kind = table.rsplit_once('.');
            if let Some((_, dependency)) = kind.filter(|(of, _)| of.ends_with("dependencies")) {
                dependencies.push((number, unquote(dependency)));
            }
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let key = unquote(key.split('.').next().unwrap_or_default());
        if table == "package" && key == "name" {
            name = Some(unquote(value));
        } else if table.ends_with("dependencies") && table != "workspace.dependencies" {
            dependencies.push((number, renamed(value).unwrap_or(key)));
        } else if key == "package" && table.contains("dependencies.") {
            dependencies.push((number, unquote(value)));
        }
    }
    (name, dependencies)
}

/// NAME in `{ package = "NAME", … }`: the crate that an alias stands for.
fn renamed(value: &str) -> Option<String> {
    let (_, after) = value.split_once("package")?;
    after.split('"').nth(1).map(str::to_owned)
}

/// Faults in the arrows of one Cargo.toml.
pub fn arrows(path: &str, text: &str) -> Vec<String> {
    let (Some(name), dependencies) = manifest(text) else {
        return Vec::new();
    };
    let Some((_, allowed)) = ARROWS.iter().find(|(of, _)| *of == name) else {
        return vec![format!("{path}: {name} is not in ARROWS in conformance/tests/tidy/rules.rs")];
    };
    dependencies
        .into_iter()
        .filter(|(_, to)| to == "ninefold" || to.starts_with("ninefold-"))
        .filter(|(_, to)| !allowed.contains(&"*") && !allowed.contains(&to.as_str()))
        .map(|(line, to)| format!("{path}:{line}: {name} may not depend on {to}"))
        .collect()
}

/// Faults in the first file of the protocol crate.
pub fn purity_attributes(path: &str, text: &str) -> Vec<String> {
    let dense: String = code(text).split_whitespace().collect();
    ["#![forbid(unsafe_code)]", "#![no_std]"]
        .into_iter()
        .filter(|attribute| !dense.contains(attribute))
        .map(|attribute| format!("{path}: {attribute} is missing"))
        .collect()
}

/// Faults in any source file of the protocol crate: words that bring I/O, a clock or a thread.
pub fn impure_words(path: &str, text: &str) -> Vec<String> {
    if is_test_file(path) {
        return Vec::new();
    }
    let product = without_tests(&code(text));
    let mut faults = Vec::new();
    for word in IMPURE_WORDS {
        for line in lines_with_word(&product, word) {
            faults.push(format!("{path}:{line}: `{word}` in the protocol crate, outside #[cfg(test)]"));
        }
    }
    faults
}

/// Faults in the protocol crate's Cargo.toml: dependencies that bring I/O.
pub fn impure_dependencies(path: &str, text: &str) -> Vec<String> {
    manifest(text)
        .1
        .into_iter()
        .filter(|(_, name)| IMPURE_WORDS.contains(&name.as_str()))
        .map(|(line, name)| format!("{path}:{line}: the protocol crate may not depend on {name}"))
        .collect()
}

/// `unsafe` in a Rust file that is not in UNSAFE_FILES.
pub fn unsafe_code(path: &str, text: &str) -> Vec<String> {
    if extension(path) != "rs" || UNSAFE_FILES.contains(&path) {
        return Vec::new();
    }
    lines_with_word(&code(text), "unsafe")
        .into_iter()
        .map(|line| format!("{path}:{line}: `unsafe` in a file that is not in UNSAFE_FILES"))
        .collect()
}

/// A Rust file that is too long.
pub fn length(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().count();
    let long = lines > LINES_PER_FILE && file_name(path) != "tests.rs";
    if extension(path) != "rs" || !long {
        return Vec::new();
    }
    vec![format!("{path}: {lines} lines; past {LINES_PER_FILE} a file holds more than one thing")]
}

/// A file that is too large to have been meant.
pub fn size(path: &str, bytes: u64) -> Vec<String> {
    if bytes <= BYTES_PER_FILE {
        return Vec::new();
    }
    vec![format!("{path}: {bytes} bytes; more than {BYTES_PER_FILE} do not belong into the repository")]
}

/// Tabs, space at the end of a line, and a missing last newline, in files that we write by hand.
pub fn white_space(path: &str, text: &str) -> Vec<String> {
    if !["rs", "toml", "md", "sh", "9p"].contains(&extension(path)) {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for (number, line) in (1..).zip(text.split('\n')) {
        if line.contains('\t') {
            faults.push(format!("{path}:{number}: a tab"));
        }
        if line.ends_with([' ', '\t', '\r']) {
            faults.push(format!("{path}:{number}: space at the end of the line"));
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        faults.push(format!("{path}: the last line has no end"));
    }
    faults
}

/// Code that was put off, and tests that were switched off without saying why.
pub fn loose_ends(path: &str, text: &str) -> Vec<String> {
    if extension(path) != "rs" {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for (number, line) in (1..).zip(code(text).lines()) {
        let dense: String = line.split_whitespace().collect();
        for word in ["todo!", "unimplemented!", "dbg!"] {
            if dense.contains(word) {
                faults.push(format!("{path}:{number}: {word}"));
            }
        }
        // The text of a reason is blanked, its quotes stay: two quotes side by side are an empty reason.
        let bare = dense.contains("#[ignore]");
        let empty = dense.contains("#[ignore=") && line.contains("\"\"");
        let conditional = dense.contains("cfg_attr(") && dense.contains(",ignore)");
        if conditional || bare || empty {
            faults.push(format!("{path}:{number}: #[ignore] without a reason: #[ignore = \"why\"]"));
        }
    }
    faults
}

/// A transcript that lies where the runner does not look.
pub fn stray_transcript(path: &str) -> Vec<String> {
    if extension(path) != "9p" {
        return Vec::new();
    }
    let parts: Vec<&str> = path.split('/').collect();
    let seen = matches!(parts[..], ["conformance", "transcripts", dialect, _]
        if TRANSCRIPT_DIRECTORIES.contains(&dialect));
    if seen {
        return Vec::new();
    }
    vec![format!(
        "{path}: no runner looks here; transcripts lie in conformance/transcripts/DIALECT/, \
         DIALECT one of {TRANSCRIPT_DIRECTORIES:?}"
    )]
}

/// Links in a Markdown file, with their lines, without code and without addresses on the network.
pub fn local_links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut fenced = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced || line.starts_with("    ") {
            continue;
        }
        // Every second piece between back quotes is code.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("_");
        let inline = prose.split("](").skip(1).filter_map(|s| s.split(')').next());
        let defined = prose.starts_with('[').then(|| prose.split_once("]:")).flatten();
        for target in inline.chain(defined.map(|(_, target)| target)) {
            let target = target.split_whitespace().next().unwrap_or_default();
            let remote = target.contains("://") || target.starts_with("mailto:");
            if !remote && !target.is_empty() {
                links.push((number, target.to_owned()));
            }
        }
    }
    links
}

/// Links that lead nowhere. `exists` answers for a path from the root, `text_of` gives a Markdown file's text.
pub fn dead_links(
    path: &str,
    text: &str,
    exists: impl Fn(&str) -> bool,
    text_of: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    if extension(path) != "md" {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for (line, link) in local_links(text) {
        let (target, anchor) = link.split_once('#').unwrap_or((&link, ""));
        let target = if target.is_empty() { Some(path.to_owned()) } else { resolve(path, target) };
        let Some(target) = target.filter(|target| target.is_empty() || exists(target)) else {
            faults.push(format!("{path}:{line}: {link} does not exist"));
            continue;
        };
        let headed = |text: &String| headings(text).iter().any(|heading| heading == anchor);
        if !anchor.is_empty() && extension(&target) == "md" && !text_of(&target).is_some_and(|t| headed(&t)) {
            faults.push(format!("{path}:{line}: {link}: no such heading"));
        }
    }
    faults
}

/// `link` seen from the file `from`, as a path from the root; None when it leaves the repository.
fn resolve(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The anchors that a Markdown file's headings give: small letters, spaces to hyphens, other signs dropped.
fn headings(text: &str) -> Vec<String> {
    let anchor = |title: &str| -> String {
        title
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    };
    text.lines().filter(|line| line.starts_with('#')).map(|line| anchor(line.trim_start_matches('#'))).collect()
}

/// Paths that exist on one developer's machine only.
pub fn private_paths(path: &str, text: &str) -> Vec<String> {
    // In two pieces, so that this file does not hold what it looks for.
    let private = concat!("/wo", "rk/");
    let begins_path = |before: &str| !before.ends_with(|c: char| c.is_alphanumeric() || "._-~/})>".contains(c));
    (1..)
        .zip(text.lines())
        .filter(|(_, line)| line.match_indices(private).any(|(at, _)| begins_path(&line[..at])))
        .map(|(number, _)| format!("{path}:{number}: a path that begins with {private}"))
        .collect()
}

/// Lines of one `cargo tree` that another one lacks.
pub fn missing_features(alone: &str, beside: &str) -> Vec<String> {
    let dependencies = |tree: &str| -> BTreeSet<String> {
        tree.lines().map(|line| line.trim_end_matches(" (*)").trim_end().to_owned()).collect()
    };
    let told = |line: &String| {
        format!("Cargo.toml: {line}: another package wants other features of it; name them in [workspace.dependencies]")
    };
    dependencies(alone).difference(&dependencies(beside)).map(told).collect()
}

/// The packages that `scripts/test.sh` builds for the judges.
pub fn packages_built(script: &str) -> Vec<&str> {
    let line = script.lines().find(|line| line.starts_with("release=(")).unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    words.windows(2).filter(|pair| pair[0] == "-p").map(|pair| pair[1]).collect()
}
