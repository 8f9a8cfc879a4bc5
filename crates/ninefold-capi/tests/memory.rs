//! The C programs under AddressSanitizer and under valgrind: no byte is read, written, freed or lost that should not be.

mod support;

use std::sync::Arc;

use nine::tree::hostfs::HostFs;
use nine::tree::ramfs::RamFs;
use support::late::Late;
use support::{Program, Served, has, skip};

/// How the programs are built and run.
#[derive(Clone, Copy)]
struct How<'a> {
    flags: &'a [&'a str],
    under: &'a [&'a str],
    /// The same without a look for leaks.
    under_fork: &'a [&'a str],
}

impl How<'_> {
    fn build(&self, name: &str) -> Program {
        Program::build(&format!("tests/c/{name}.c"), self.flags).under(self.under)
    }

    fn build_forking(&self, name: &str) -> Program {
        Program::build(&format!("tests/c/{name}.c"), self.flags).under(self.under_fork)
    }
}

/// A directory that is served, and one in memory.
struct Bed {
    host: Served,
    ram: Served,
    /// Removed when nobody serves it any more.
    dir: tempfile::TempDir,
}

impl Bed {
    fn new() -> Bed {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        nix::unistd::mkfifo(&dir.path().join("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        for name in ["file", "twin"] {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        let host = Served::tcp(Arc::new(HostFs::open(dir.path()).unwrap()));
        Bed { host, ram: Served::tcp(Arc::new(RamFs::new())), dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }
}

/// Files of a server.
fn run_remote(how: How<'_>) {
    let bed = Bed::new();
    let late = Served::tcp(Arc::new(Late::default()));
    how.build("streams").run(&[&bed.ram.name("/f", ""), "300001"]);
    how.build("behind").run(&[&bed.ram.name("/f", "")]);
    how.build("closing").run(&[&bed.ram.name("/f", ""), "2"]);
    how.build("late").run(&[&late.name("/f", "")]);
    how.build("calls").run(&[&bed.host.name("", "")]);
    how.build("far").run(&[&bed.host.name("/far", ""), &bed.path("copy")]);
    how.build_forking("forked").run(&[&bed.host.name("/child", ""), &bed.host.name("/fifo", "")]);
    how.build("streams").run(&[&bed.ram.name("/lent", ""), "300001"]);
    how.build_forking("asi_remote").run(&[&bed.ram.name("/lent", ""), &bed.path(""), "300001"]);
    how.build("asi_remote_write").run(&[&bed.ram.name("/written", "")]);
    how.build("threads").run(&[&bed.host.name("", ""), "5"]);
}

/// Files of this machine, alone and beside a server's.
fn run_local(how: How<'_>) {
    let bed = Bed::new();
    how.build("calls").run(&[&bed.path("")]);
    how.build("streams").run(&[&bed.path("streamed"), "300001"]);
    how.build("asi").run(&[&bed.path("")]);
    how.build("asi_wrong").run(&[&bed.path(""), &bed.host.name("/file", "")]);
    how.build("asi_threads").run(&[&bed.path(""), "100"]);
    how.build("asi_mixed").run(&[&bed.path("")]);
    how.build("stdio").run(&[&bed.path(""), "300"]);
    how.build("unix_mixed").run(&[&bed.path(""), "2", "500"]);
    how.build("far").run(&[&bed.path("far"), &bed.path("copy"), "local"]);
    // An instruction is tried again behind a signal there, by whose registers valgrind goes only if it is told to.
    let exact = (!how.under_fork.is_empty()).then_some("--vex-iropt-register-updates=allregs-at-mem-access");
    let under_signals: Vec<&str> = how.under_fork.iter().copied().chain(exact).collect();
    Program::build("tests/c/faults.c", how.flags).under(&under_signals).run(&[&bed.path("")]);
    Program::build_by("c++", "tests/c/iostreams.cpp", how.flags).under(how.under).run(&[&bed.path(""), "200"]);
}

/// Files that go, and a server that goes.
fn run_with_losses(how: How<'_>) {
    let bed = Bed::new();
    // Stopped at its first unlink, which is the test's to do.
    let program = how.build("unix_io");
    let mut random = program.start(&[&bed.host.name("/file", ""), &bed.path("twin"), "7", "150"]);
    while random.report().is_some() {
        std::fs::remove_file(bed.path("file")).unwrap();
        random.go_on();
    }
    random.ended();

    std::fs::write(bed.path("cut"), vec![0; 32 << 20]).unwrap();
    let program = how.build("cut");
    let mut cut = program.start(&["write", &bed.host.name("/cut", ""), "0"]);
    assert_eq!(cut.report().as_deref(), Some("begun"));
    let address = bed.host.address().clone();
    bed.host.kill();
    cut.go_on();
    assert_eq!(cut.report().as_deref(), Some("over"));
    let again = Served::at(&address, Arc::new(HostFs::open(bed.dir.path()).unwrap()));
    cut.go_on();
    cut.end();
    drop(again);
}

/// Whether the compiler can build with AddressSanitizer and the machine can run what comes of it.
fn has_sanitizer() -> bool {
    std::panic::catch_unwind(|| Program::build("tests/c/names.c", &SANITIZED).run(&[])).is_ok()
}

const SANITIZED: [&str; 3] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"];

fn sanitized(name: &str, run: fn(How<'_>)) {
    if !has_sanitizer() {
        return skip(name, "the C compiler has no AddressSanitizer");
    }
    run(How { flags: &SANITIZED, under: &[], under_fork: &[] });
}

#[test]
fn address_sanitizer_finds_nothing_in_the_programs_on_a_servers_files() {
    sanitized("address_sanitizer_finds_nothing_in_the_programs_on_a_servers_files", run_remote);
}

#[test]
fn address_sanitizer_finds_nothing_in_the_programs_on_files_here() {
    sanitized("address_sanitizer_finds_nothing_in_the_programs_on_files_here", run_local);
}

#[test]
fn address_sanitizer_finds_nothing_in_the_programs_whose_files_go() {
    sanitized("address_sanitizer_finds_nothing_in_the_programs_whose_files_go", run_with_losses);
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

fn under_valgrind(name: &str, run: fn(How<'_>)) {
    if !has("valgrind") {
        return skip(name, "valgrind is not installed");
    }
    // What is kept for the life of the process is reachable at its end, and no leak.
    let leaks = ["--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"];
    // A child does not free what its parent had: there is nobody who could.
    let valgrind = ["valgrind", "-q", "--error-exitcode=99", "--fair-sched=try"];
    run(How { flags: &[], under: &[&valgrind[..], &leaks].concat(), under_fork: &valgrind });
}

// Three tests, because a program under valgrind has one processor.

#[test]
fn valgrind_finds_nothing_in_the_programs_on_a_servers_files() {
    under_valgrind("valgrind_finds_nothing_in_the_programs_on_a_servers_files", run_remote);
}

#[test]
fn valgrind_finds_nothing_in_the_programs_on_files_here() {
    under_valgrind("valgrind_finds_nothing_in_the_programs_on_files_here", run_local);
}

#[test]
fn valgrind_finds_nothing_in_the_programs_whose_files_go() {
    under_valgrind("valgrind_finds_nothing_in_the_programs_whose_files_go", run_with_losses);
}
