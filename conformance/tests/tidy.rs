//! The house rules that a program can check. The rules that need a reader are in ARCHITECTURE.md and CONTRIBUTING.md.
//!
//! Each rule is a function from text to faults (`tidy/rules.rs`); a test here runs it over the repository, and another
//! shows that it sees a fault.

#[path = "tidy/repo.rs"]
mod repo;
#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/scan.rs"]
mod scan;

use repo::File;

/// Runs a rule over every file and fails with all the faults at once.
#[track_caller]
fn clean(rule: impl Fn(&File) -> Vec<String>) {
    none(repo::files().iter().flat_map(rule).collect());
}

#[track_caller]
fn none(faults: Vec<String>) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// The fault is seen once, on the line expected; `line` 0 stands for a fault of the whole file.
#[track_caller]
fn seen(faults: Vec<String>, line: usize) {
    assert_eq!(faults.len(), 1, "{faults:?}");
    let place = format!(":{line}:");
    assert!(line == 0 || faults[0].contains(&place), "{faults:?}");
}

fn is_manifest(file: &File) -> bool {
    file.path == "Cargo.toml" || file.path.ends_with("/Cargo.toml")
}

fn in_proto(file: &File) -> bool {
    file.path.starts_with("crates/ninefold-proto/")
}

#[test]
fn no_arrow_points_up() {
    clean(|file| if is_manifest(file) { rules::arrows(&file.path, &file.text) } else { Vec::new() });
}

#[test]
fn an_arrow_that_points_up_is_seen_in_every_form() {
    let proto = "[package]\nname = \"ninefold-proto\"\n";
    for dependency in [
        "[dependencies]\nninefold.workspace = true\n",
        "[dependencies]\nninefold = { path = \"../ninefold\" }\n",
        "[dev-dependencies]\n\"ninefold\" = \"1\"\n",
        "[target.'cfg(unix)'.build-dependencies]\nninefold = \"1\"\n",
        "[dependencies]\nother = { package = \"ninefold\", version = \"1\" }\n",
    ] {
        seen(rules::arrows("Cargo.toml", &format!("{proto}{dependency}")), 4);
    }
    let table = format!("{proto}[dependencies.ninefold]\nversion = \"1\"\n");
    seen(rules::arrows("Cargo.toml", &table), 3);
    let alias = format!("{proto}[dependencies.other]\npackage = \"ninefold\"\n");
    seen(rules::arrows("Cargo.toml", &alias), 4);
    let suite = "[package]\nname = \"ninefold-cli\"\n[dependencies]\nninefold-conformance = \"1\"\n";
    seen(rules::arrows("Cargo.toml", suite), 4);
}

#[test]
fn an_arrow_that_points_down_is_no_fault() {
    let library = "[package]\nname = \"ninefold\"\n[dependencies]\nninefold-proto.workspace = true\ntokio = \"1\"\n";
    none(rules::arrows("Cargo.toml", library));
    let suite = "[package]\nname = \"ninefold-conformance\"\n[dependencies]\nninefold = \"1\"\n";
    none(rules::arrows("Cargo.toml", suite));
    none(rules::arrows("Cargo.toml", "[workspace.dependencies]\nninefold = \"1\"\n"));
}

#[test]
fn a_crate_without_arrows_of_its_own_is_seen() {
    seen(rules::arrows("Cargo.toml", "[package]\nname = \"ninefold-util\"\n"), 0);
}

#[test]
fn the_code_map_names_every_crate() {
    let files = repo::files();
    let map = files.iter().find(|file| file.path == "ARCHITECTURE.md");
    let map = &map.expect("ARCHITECTURE.md").text;
    let unnamed = |file: &&File| {
        rules::manifest(&file.text).0.is_some() && !map.contains(file.path.trim_end_matches("Cargo.toml"))
    };
    none(
        files
            .iter()
            .filter(|file| is_manifest(file))
            .filter(unnamed)
            .map(|file| format!("{}: not in ARCHITECTURE.md", file.path))
            .collect(),
    );
}

#[test]
fn the_protocol_crate_forbids_unsafe_code_and_std() {
    let files = repo::files();
    let first = files.iter().find(|file| file.path == "crates/ninefold-proto/src/lib.rs");
    let first = first.expect("the protocol crate has a lib.rs");
    none(rules::purity_attributes(&first.path, &first.text));
}

#[test]
fn a_missing_or_commented_out_attribute_is_seen() {
    seen(rules::purity_attributes("lib.rs", "#![no_std]\n"), 0);
    seen(rules::purity_attributes("lib.rs", "#![forbid(unsafe_code)]\n// #![no_std]\n"), 0);
    none(rules::purity_attributes("lib.rs", "#![no_std]\n#![forbid( unsafe_code )]\n"));
}

#[test]
fn the_protocol_crate_has_no_clock_no_thread_and_no_io() {
    clean(|file| {
        if !in_proto(file) {
            Vec::new()
        } else if is_manifest(file) {
            rules::impure_dependencies(&file.path, &file.text)
        } else if file.path.ends_with(".rs") {
            rules::impure_words(&file.path, &file.text)
        } else {
            Vec::new()
        }
    });
}

#[test]
fn a_clock_or_a_socket_in_the_protocol_crate_is_seen() {
    for line in [
        "use std::net::TcpStream;",
        "fn f() { ::std::thread::yield_now() }",
        "extern crate std;",
        "fn f(now: Instant) {}",
        "fn f(now: SystemTime) {}",
        "use tokio as t;",
    ] {
        seen(rules::impure_words("src/a.rs", &format!("\n{line}\n")), 2);
    }
    seen(rules::impure_dependencies("Cargo.toml", "[dependencies]\ntokio.workspace = true\n"), 2);
    let behind_tests = "#[cfg(test)]\nmod tests { use std::io; }\nuse std::fs;\n";
    seen(rules::impure_words("src/a.rs", behind_tests), 3);
}

#[test]
fn the_protocol_crate_may_use_std_in_tests_and_speak_of_it() {
    for text in [
        "//! Not `std::net`.\nconst WHY: &str = \"std::io\"; /* std */\n",
        "#[cfg(test)]\nextern crate std;\n#[cfg(test)]\nuse std::{fs, io};\n",
        "#[cfg(test)]\n#[allow(dead_code)]\nmod tests {\n    fn f(a: [u8; 4]) { std::thread::yield_now() }\n}\n",
        "const RAW: &str = r#\"std \" std\"#; const C: char = '\"'; // std\n",
    ] {
        none(rules::impure_words("src/a.rs", text));
    }
    none(rules::impure_words("src/wire/tests.rs", "use std::io;\n"));
    none(rules::impure_words("tests/golden.rs", "use std::io;\n"));
}

#[test]
fn unsafe_code_lies_in_named_files_only() {
    clean(|file| rules::unsafe_code(&file.path, &file.text));
    let files = repo::files();
    let gone = |path: &&&str| !files.iter().any(|file| file.path == **path);
    none(rules::UNSAFE_FILES.iter().filter(gone).map(|path| format!("{path}: in UNSAFE_FILES, but gone")).collect());
}

#[test]
fn unsafe_code_in_another_file_is_seen() {
    seen(rules::unsafe_code("a.rs", "\nfn f() { unsafe { g() } }\n"), 2);
    none(rules::unsafe_code("a.rs", "#![forbid(unsafe_code)]\n// unsafe\n"));
    none(rules::unsafe_code("a.md", "unsafe\n"));
}

#[test]
fn no_source_file_is_too_long() {
    clean(|file| rules::length(&file.path, &file.text));
}

#[test]
fn a_source_file_that_is_too_long_is_seen() {
    let most = "\n".repeat(rules::LINES_PER_FILE);
    let more = "\n".repeat(rules::LINES_PER_FILE + 1);
    none(rules::length("src/a.rs", &most));
    seen(rules::length("src/a.rs", &more), 0);
    none(rules::length("src/tests.rs", &more));
}

#[test]
fn no_file_is_too_large_to_have_been_meant() {
    none(repo::sizes().iter().flat_map(|(path, bytes)| rules::size(path, *bytes)).collect());
}

#[test]
fn a_file_that_is_too_large_is_seen() {
    none(rules::size("a", rules::BYTES_PER_FILE));
    seen(rules::size("a", rules::BYTES_PER_FILE + 1), 0);
}

#[test]
fn no_line_has_a_tab_or_space_at_its_end() {
    clean(|file| rules::white_space(&file.path, &file.text));
}

#[test]
fn a_tab_and_space_at_the_end_of_a_line_are_seen() {
    seen(rules::white_space("a.rs", "\n\tx\n"), 2);
    seen(rules::white_space("a.md", "x\ny \n"), 2);
    seen(rules::white_space("a.toml", "x\r\n"), 1);
    seen(rules::white_space("a.9p", "x"), 0);
    none(rules::white_space("a.rs", "x\n"));
    none(rules::white_space("Makefile", "\tx\n"));
}

#[test]
fn nothing_is_put_off_and_no_test_is_switched_off_without_a_reason() {
    clean(|file| rules::loose_ends(&file.path, &file.text));
}

#[test]
fn code_put_off_and_a_test_switched_off_are_seen() {
    for line in [
        "fn f() { todo!() }",
        "fn f() { unimplemented!(\"later\") }",
        "fn f() { dbg!(1); }",
        "#[ignore]",
        "#[ ignore ]",
        "#[ignore = \"\"]",
        "#[cfg_attr(miri, ignore)]",
    ] {
        seen(rules::loose_ends("a.rs", &format!("\n{line}\n")), 2);
    }
    none(rules::loose_ends("a.rs", "#[ignore = \"needs a disk to fill\"]\n// todo!\n"));
}

#[test]
fn every_transcript_lies_where_the_runner_looks() {
    clean(|file| rules::stray_transcript(&file.path));
}

#[test]
fn a_transcript_that_nobody_runs_is_seen() {
    none(rules::stray_transcript("conformance/transcripts/9p2000l/walk.9p"));
    for stray in [
        "walk.9p",
        "conformance/transcripts/walk.9p",
        "conformance/transcripts/9p2000L/walk.9p",
        "conformance/transcripts/9p2000l/deep/walk.9p",
    ] {
        seen(rules::stray_transcript(stray), 0);
    }
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let root = repo::root();
    clean(|file| {
        let exists = |path: &str| root.join(path).exists();
        let text_of = |path: &str| std::fs::read_to_string(root.join(path)).ok();
        rules::dead_links(&file.path, &file.text, exists, text_of)
    });
}

#[test]
fn a_link_that_leads_nowhere_is_seen() {
    let exists = |path: &str| path == "docs/a.md" || path == "src";
    let text_of = |_: &str| Some("# One & two\n".to_owned());
    let faults = |text: &str| rules::dead_links("docs/a.md", text, exists, text_of);
    for text in [
        "\n[b](b.md)\n",
        "\n[b](../docs/b.md \"title\")\n",
        "\n[b]: b.md\n",
        "\n[up](../../src)\n",
        "\n[a](#three)\n",
        "\n[a](a.md#three)\n",
    ] {
        seen(faults(text), 2);
    }
    for text in [
        "[a](a.md), [s](../src/) and [w](https://example.org/b.md)\n",
        "[a](a.md#one--two)\n",
        "`[b](b.md)`\n\n```\n[b](b.md)\n```\n",
    ] {
        none(faults(text));
    }
}

#[test]
fn no_file_names_a_path_of_one_machine() {
    clean(|file| rules::private_paths(&file.path, &file.text));
}

#[test]
fn a_path_of_one_machine_is_seen() {
    let path = concat!("/wo", "rk/x");
    seen(rules::private_paths("a.md", &format!("\nsee {path}\n")), 2);
    seen(rules::private_paths("a.md", &format!("\n\"{path}\"\n")), 2);
    none(rules::private_paths("a.md", &format!("https://example.org{path}\n")));
    none(rules::private_paths("a.md", "/workspace/x and work/x\n"));
}

/// The command built alone, as `cargo install` does, and built beside the C library and the suites, as `make test` does: with other
/// features of one dependency in one of them nearly everything would be compiled twice.
#[test]
fn the_command_has_the_same_dependencies_alone_and_beside_the_others() {
    let alone = repo::features(&["ninefold-cli"]);
    let script = repo::files().into_iter().find(|file| file.path == "scripts/test.sh").expect("scripts/test.sh");
    let packages = rules::packages_built(&script.text);
    assert!(packages.contains(&"ninefold-cli") && packages.len() > 1, "{packages:?}");
    let beside = repo::features(&packages);
    none(rules::missing_features(&alone, &beside));
}

#[test]
fn a_dependency_with_other_features_is_seen() {
    let alone = "a v1.0.0 std\nb v1.0.0\n";
    seen(rules::missing_features(alone, "a v1.0.0 alloc,std\nb v1.0.0\n"), 0);
    none(rules::missing_features(alone, "a v1.0.0 std (*)\na v1.0.0 std\nb v1.0.0\nc v1.0.0\n"));
}
