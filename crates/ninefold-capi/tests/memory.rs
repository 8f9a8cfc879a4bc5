//! The C programs under AddressSanitizer and under valgrind: no byte is read, written, freed or lost that should not be.

mod support;

use std::sync::Arc;

use nine::tree::hostfs::HostFs;
use nine::tree::ramfs::RamFs;
use support::late::Late;
use support::{Program, Served, has, skip};

/// Runs the programs, each built with `flags` and run under `under`, but for the one that forks: `under_fork`.
fn run_all(flags: &[&str], under: &[&str], under_fork: &[&str], dialect: &str) {
    let build = |name: &str| Program::build(&format!("tests/c/{name}.c"), flags).under(under);
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    nix::unistd::mkfifo(&dir.path().join("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    for name in ["file", "twin"] {
        std::fs::write(dir.path().join(name), "x").unwrap();
    }
    let host = Served::tcp(Arc::new(HostFs::open(dir.path()).unwrap()));
    let ram = Served::tcp(Arc::new(RamFs::new()));
    let late = Served::tcp(Arc::new(Late::default()));
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();

    build("streams").run(&[&ram.name("/f", dialect), "300001"]);
    build("behind").run(&[&ram.name("/f", dialect)]);
    build("closing").run(&[&ram.name("/f", dialect), "2"]);
    build("late").run(&[&late.name("/f", dialect)]);
    build("calls").run(&[&host.name("", dialect)]);
    build("calls").run(&[&path("")]);
    build("streams").run(&[&path("streamed"), "300001"]);
    build("asi").run(&[&path("")]);
    build("asi_wrong").run(&[&path(""), &host.name("/file", dialect)]);
    build("asi_threads").run(&[&path(""), "100"]);
    build("asi_mixed").run(&[&path("")]);
    build("stdio").run(&[&path(""), "300"]);
    build("unix_mixed").run(&[&path(""), "2", "500"]);
    build("far").run(&[&host.name("/far", dialect), &path("copy")]);
    build("far").run(&[&path("far"), &path("copy"), "local"]);
    // An instruction is tried again behind a signal there, by whose registers valgrind goes only if it is told to.
    let exact = (!under_fork.is_empty()).then_some("--vex-iropt-register-updates=allregs-at-mem-access");
    let under_signals: Vec<&str> = under_fork.iter().copied().chain(exact).collect();
    Program::build("tests/c/faults.c", flags).under(&under_signals).run(&[&path("")]);
    Program::build_by("c++", "tests/c/iostreams.cpp", flags).under(under).run(&[&path(""), "200"]);
    let forked = Program::build("tests/c/forked.c", flags).under(under_fork);
    forked.run(&[&host.name("/child", dialect), &host.name("/fifo", dialect)]);
    build("streams").run(&[&ram.name("/lent", dialect), "300001"]);
    let lent = Program::build("tests/c/asi_remote.c", flags).under(under_fork);
    lent.run(&[&ram.name("/lent", dialect), &path(""), "300001"]);
    build("asi_remote_write").run(&[&ram.name("/written", dialect)]);
    build("threads").run(&[&host.name("", dialect), "5"]);
    // Stopped at its first unlink, which is the test's to do.
    let program = build("unix_io");
    let mut random = program.start(&[&host.name("/file", dialect), &path("twin"), "7", "150"]);
    while random.report().is_some() {
        std::fs::remove_file(path("file")).unwrap();
        random.go_on();
    }
    random.ended();

    std::fs::write(path("cut"), vec![0; 32 << 20]).unwrap();
    let name = host.name("/cut", dialect);
    let program = build("cut");
    let mut cut = program.start(&["write", &name, "0"]);
    assert_eq!(cut.report().as_deref(), Some("begun"));
    let address = host.address().clone();
    host.kill();
    cut.go_on();
    assert_eq!(cut.report().as_deref(), Some("over"));
    let again = Served::at(&address, Arc::new(HostFs::open(dir.path()).unwrap()));
    cut.go_on();
    cut.end();
    drop(again);
}

/// Whether the compiler can build with AddressSanitizer and the machine can run what comes of it.
fn has_sanitizer() -> bool {
    std::panic::catch_unwind(|| Program::build("tests/c/names.c", &SANITIZED).run(&[])).is_ok()
}

const SANITIZED: [&str; 3] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"];

#[test]
fn address_sanitizer_finds_nothing_in_the_programs() {
    if !has_sanitizer() {
        return skip("address_sanitizer_finds_nothing_in_the_programs", "the C compiler has no AddressSanitizer");
    }
    run_all(&SANITIZED, &[], &[], "");
}

#[test]
fn address_sanitizer_sees_a_stream_that_is_closed_twice() {
    if !has_sanitizer() {
        return skip("address_sanitizer_sees_a_stream_that_is_closed_twice", "the C compiler has no AddressSanitizer");
    }
    let served = Served::tcp(Arc::new(RamFs::new()));
    let program = Program::build("tests/c/twice.c", &SANITIZED);
    let output = program.command(&[&served.name("/f", "")]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("AddressSanitizer"), "{errors}");
}

#[test]
fn valgrind_finds_nothing_in_the_programs() {
    if !has("valgrind") {
        return skip("valgrind_finds_nothing_in_the_programs", "valgrind is not installed");
    }
    // What is kept for the life of the process is reachable at its end, and no leak.
    let leaks = ["--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"];
    // A child does not free what its parent had: there is nobody who could.
    let valgrind = ["valgrind", "-q", "--error-exitcode=99", "--fair-sched=try"];
    run_all(&[], &[&valgrind[..], &leaks].concat(), &valgrind, "");
}
