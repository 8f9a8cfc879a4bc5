//! The examples of streams that lend regions do what coreutils' programs do.

mod support;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use support::Program;

/// Words of letters and what is between words, in lines of many lengths; the last has no end.
fn text(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut text = Vec::with_capacity(bytes + 100_000);
    while text.len() < bytes {
        let letters = if next() % 997 == 0 { 70_000 } else { next() % 12 };
        text.extend((0..letters).map(|n| b"etaoinshrdluETAOIN0123456789"[((n + next()) % 28) as usize]));
        text.push(b"     \t\n\n  \x0b\x0c\r"[(next() % 13) as usize]);
    }
    text.truncate(bytes);
    text
}

fn coreutils(program: &str, args: &[&str], input: &[u8]) -> Vec<u8> {
    let output = fed(Command::new(program).args(args).env("LC_ALL", "C").stderr(Stdio::inherit()), input);
    assert!(output.status.success(), "{program}");
    output.stdout
}

fn fed(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).unwrap());
        child.wait_with_output().unwrap()
    })
}

#[test]
fn the_filter_gives_what_tr_gives() {
    let program = Program::build("examples/upper.c", &[]);
    for bytes in [0, 1, 100_000, 3_000_000] {
        let text = text(bytes);
        let expected = coreutils("tr", &["a-z", "A-Z"], &text);
        let output = fed(&mut program.command(&[]), &text);
        assert!(output.status.success() && output.stdout == expected, "{bytes} bytes by pipes");

        // Of files that other programs have written to before, and write to behind it.
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        std::fs::write(&from, &text).unwrap();
        let mut out = std::fs::File::create(&to).unwrap();
        out.write_all(b"before").unwrap();
        let mut command = program.command(&[]);
        command.stdin(std::fs::File::open(&from).unwrap()).stdout(out.try_clone().unwrap());
        assert!(command.status().unwrap().success());
        out.write_all(b"behind").unwrap();
        assert!(
            std::fs::read(&to).unwrap() == [b"before", &expected[..], b"behind"].concat(),
            "{bytes} bytes of files"
        );
    }
}

#[test]
fn a_filter_whose_output_takes_no_more_says_so() {
    let program = Program::build("examples/upper.c", &[]);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = program.command(&[]);
    let mut child = command.stdout(full).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"text").unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && errors.starts_with("standard output: No space"), "{errors}");
}

#[test]
fn the_parallel_word_count_gives_what_wc_gives() {
    let program = Program::build("examples/wc_threads.c", &[]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("text");
    for bytes in [0, 1, 300_000, 262_144, 5_000_000] {
        let text = text(bytes);
        std::fs::write(&path, &text).unwrap();
        let output = program.command(&[path.to_str().unwrap()]).output().unwrap();
        let numbers = |bytes: &[u8]| -> Vec<u64> {
            String::from_utf8_lossy(bytes).split_whitespace().map(|n| n.parse().unwrap()).collect()
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(numbers(&output.stdout), numbers(&coreutils("wc", &[], &text)), "{bytes} bytes");
    }
    let output = program.command(&["/none"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_copy_program_gives_what_cp_gives_and_decompresses() {
    let program = Program::build("examples/copy.c", &[]);
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for bytes in [0, 1, 5_000_000] {
        std::fs::write(path("from"), text(bytes)).unwrap();
        coreutils("cp", &[&path("from"), &path("expected")], &[]);
        program.run(&[&path("from"), &path("to")]);
        coreutils("cmp", &[&path("expected"), &path("to")], &[]);
    }
    // What the kernel copies nothing of.
    program.run(&["/proc/self/cmdline", &path("to")]);
    assert!(!std::fs::read(path("to")).unwrap().is_empty());
    if support::has("gzip") {
        std::fs::write(path("from.gz"), coreutils("gzip", &["-c"], &text(1_000_000))).unwrap();
        program.run(&[&path("from.gz"), &path("to"), "gzip"]);
        assert!(std::fs::read(path("to")).unwrap() == text(1_000_000));
    } else {
        support::skip("the_copy_program_gives_what_cp_gives_and_decompresses", "gzip is not installed");
    }
    for wrong in [&["/none", "to"][..], &["from", "/none/to"], &["from", "to", "none"]] {
        let mut command = program.command(wrong);
        assert_eq!(command.current_dir(dir.path()).output().unwrap().status.code(), Some(1), "{wrong:?}");
    }
}
