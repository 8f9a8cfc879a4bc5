//! `ninefold.h` and the library say the same, in C and in C++, and nothing else goes out of the library.

mod support;

use std::collections::BTreeSet;
use std::process::Command;

use support::{Program, library_dir, runtime_dir, source};

fn header() -> String {
    std::fs::read_to_string(source("include/ninefold.h")).unwrap()
}

/// Its text without comments.
fn declarations() -> String {
    let text = header();
    let rests = text.split("/*").map(|piece| piece.split_once("*/").map_or(piece, |(_, rest)| rest));
    rests.collect()
}

fn words(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').collect()
}

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_shared_library_exports_what_the_header_declares_and_nothing_else() {
    let library = library_dir().join("libninefold.so");
    let symbols = output("nm", &["-D", "--defined-only", library.to_str().unwrap()]);
    let exported: BTreeSet<&str> = symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let text = declarations();
    let declared: BTreeSet<&str> = words(&text).into_iter().filter(|word| word.starts_with("nf_")).collect();
    assert!(declared.len() > 10);
    assert_eq!(exported, declared);
}

#[test]
fn every_short_name_is_a_function_around_the_long_one() {
    let text = declarations();
    let short = text.split_once("#ifndef NF_NO_SHORT_NAMES").unwrap().1;
    let names = words(short);
    for long in words(&text).into_iter().filter(|word| word.starts_with("nf_")) {
        // It has one argument more than the thesis gives the call.
        if long != "nf_stream_range" {
            let name = long.strip_prefix("nf_").unwrap();
            assert!(
                names.contains(name) && short.contains(&format!("{name}(int fd"))
                    || short.contains(&format!("{name}(")),
                "{name}"
            );
            assert!(!short.contains(&format!("#define {name}")), "{name} is a macro");
        }
    }
}

#[test]
fn every_call_has_a_manual_page_that_shows_it() {
    let text = declarations();
    let short = text.split_once("#ifndef NF_NO_SHORT_NAMES").unwrap().1;
    let functions = short.split("static inline ").skip(1).filter_map(|rest| rest.split('(').next());
    let names: BTreeSet<&str> = functions.filter_map(|words| words.rsplit([' ', '*']).next()).collect();
    assert!(names.len() > 60 && names.contains("sfprintf"), "{names:?}");
    let makefile = std::fs::read_to_string(source("../../Makefile")).unwrap().replace("\\\n", " ");
    for name in names.into_iter().chain(["nf_stream_range"]) {
        // Installed as a page of its own, or as another name of one.
        let line = makefile.lines().find(|line| {
            let named = line.trim().strip_prefix("for name in ").and_then(|rest| rest.split(';').next());
            named.is_some_and(|names| names.split_whitespace().any(|word| word == name))
        });
        let page = line.map_or(name, |line| line.split_once("man3/").unwrap().1.split_once(".3").unwrap().0);
        let page = std::fs::read_to_string(source(&format!("man/{page}.3")));
        let page = page.unwrap_or_else(|e| panic!("{name} has no manual page: {e}"));
        assert!(words(&page).contains(name), "the page of {name} does not have it");
    }
}

#[test]
fn programs_ask_for_the_library_by_its_soname_and_cannot_unload_it() {
    let library = library_dir().join("libninefold.so");
    let dynamic = output("readelf", &["-d", library.to_str().unwrap()]);
    assert!(dynamic.contains("[libninefold.so.0]") && dynamic.contains("NODELETE"), "{dynamic}");
}

#[test]
fn the_header_is_c_and_cplusplus_and_leaves_a_programs_own_names_alone() {
    for flags in [&["-std=c99"][..], &["-std=gnu11"], &["-std=c17"], &["-std=c99", "-DNF_NO_SHORT_NAMES"]] {
        Program::build("tests/c/names.c", flags).run(&[]);
    }
    for flags in [&["-x", "c++", "-std=c++11"][..], &["-x", "c++", "-std=c++20"], &["-x", "c++", "-DNF_NO_SHORT_NAMES"]]
    {
        // What follows is no source any more.
        Program::build_by("c++", "tests/c/names.c", flags).run(&[]);
    }
}

#[test]
fn a_program_is_linked_with_the_static_library_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (program, library) = (dir.path().join("program"), library_dir().join("libninefold.a"));
    let mut command = Command::new("cc");
    command.arg("-I").arg(source("include")).arg("-o").arg(&program).arg(source("tests/c/calls.c")).arg(library);
    // As ninefold.pc has them under Libs.private.
    let private = pc_line("Libs.private");
    let output = command.args(private.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    nix::unistd::mkfifo(&dir.path().join("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let status = Command::new(&program).arg(dir.path()).status().unwrap();
    assert!(status.success());
}

fn pc_line(field: &str) -> String {
    let text = std::fs::read_to_string(source("ninefold.pc.in")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    line.unwrap_or_else(|| panic!("no {field}")).trim().to_owned()
}

#[test]
fn the_file_for_pkg_config_has_what_make_install_fills_in() {
    let text = std::fs::read_to_string(source("ninefold.pc.in")).unwrap();
    for word in ["@PREFIX@", "@LIBDIR@", "@INCLUDEDIR@", "@VERSION@"] {
        assert_eq!(text.matches(word).count(), 1, "{word}");
    }
    assert!(pc_line("Libs").ends_with("-lninefold"));
    assert!(runtime_dir().exists());
}
