//! C programs on the library, judged by their exit status: on files here, and on files of servers in every dialect.

mod support;

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nine::transport::Address;
use nine::tree::hostfs::HostFs;
use nine::tree::ramfs::RamFs;
use nix::libc;
use support::late::Late;
use support::{DIALECTS, Program, Served, has_streams, skip, source};

/// A directory, exported.
struct Host {
    dir: tempfile::TempDir,
    served: Served,
}

impl Host {
    fn new() -> Host {
        let dir = tempfile::tempdir().unwrap();
        // In 9P2000 a new file gets no permission that its directory lacks (open(5)).
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        nix::unistd::mkfifo(&dir.path().join("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        let served = Served::tcp(Arc::new(HostFs::open(dir.path()).unwrap()));
        Host { dir, served }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }
}

/// Bytes of the files of the tests, as tests/c/check.h has them.
fn content(size: usize) -> Vec<u8> {
    (0..size as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Random operations on `name`, whose file is at `path` here, beside the same on a twin by libc.
fn random(program: &Program, host: &Host, name: &str, path: &str, seed: u64, operations: &str) {
    let twin = host.path("twin");
    let mut running = program.start(&[name, &twin, &seed.to_string(), operations]);
    while let Some(report) = running.report() {
        assert_eq!(report, "unlink");
        std::fs::remove_file(path).unwrap();
        running.go_on();
    }
    running.ended();
}

/// Programs of random operations in each dialect: 1, or as many as `NINEFOLD_UNIX_IO` says.
fn seeds() -> std::ops::RangeInclusive<u64> {
    1..=std::env::var("NINEFOLD_UNIX_IO").map_or(1, |seeds| seeds.parse().unwrap())
}

#[test]
fn random_unix_io_on_a_file_of_a_server_gives_what_libc_gives_in_every_dialect() {
    let program = Program::build("tests/c/unix_io.c", &[]);
    for (dialect, seed) in DIALECTS.iter().flat_map(|dialect| seeds().map(move |seed| (dialect, seed))) {
        let host = Host::new();
        for name in ["file", "twin"] {
            std::fs::write(host.path(name), content(100_000)).unwrap();
        }
        println!("{dialect}, seed {seed}");
        random(&program, &host, &host.served.name("/file", dialect), &host.path("file"), seed, "1000");
    }
}

#[test]
fn random_unix_io_on_a_file_here_gives_what_libc_gives() {
    let program = Program::build("tests/c/unix_io.c", &[]);
    let host = Host::new();
    for name in ["file", "twin"] {
        std::fs::write(host.path(name), content(100_000)).unwrap();
    }
    random(&program, &host, &host.path("file"), &host.path("file"), 5, "5000");
}

#[test]
fn calls_refuse_what_is_wrong_alike_here_and_at_a_server() {
    let program = Program::build("tests/c/calls.c", &[]);
    program.run(&[Host::new().dir.path().to_str().unwrap()]);
    for dialect in DIALECTS {
        println!("{dialect}");
        let host = Host::new();
        program.run(&[&host.served.name("", dialect)]);
    }
}

#[test]
fn a_name_that_is_an_address_only_for_a_careless_reader_is_a_file_here() {
    let program = Program::build("examples/cp_before.c", &[]);
    let host = Host::new();
    std::fs::write(host.path("a:b"), "content").unwrap();
    let mut command = program.command(&["a:b", "c:d"]);
    assert!(command.current_dir(host.dir.path()).status().unwrap().success());
    assert_eq!(std::fs::read(host.path("c:d")).unwrap(), b"content");
}

#[test]
fn an_error_of_a_write_behind_is_kept_and_told_once() {
    let program = Program::build("tests/c/behind.c", &[]);
    for dialect in DIALECTS {
        println!("{dialect}");
        // It takes nothing beyond 16 TiB. The file has a version: without one every write is waited for.
        let served = Served::tcp(Arc::new(RamFs::new()));
        let made = Program::build("tests/c/streams.c", &[]);
        made.run(&[&served.name("/f", dialect), "1000"]);
        program.run(&[&served.name("/f", dialect)]);
    }
}

#[test]
fn what_a_server_says_only_at_the_close_is_told_by_whoever_ends_the_file() {
    let program = Program::build("tests/c/late.c", &[]);
    for dialect in ["9P2000.u", "9P2000.L", "9P2000.L.n1"] {
        println!("{dialect}");
        program.run(&[&Served::tcp(Arc::new(Late::default())).name("/f", dialect)]);
    }
}

#[test]
fn whether_a_file_has_places_is_asked_for_by_its_open_alone() {
    let program = Program::build("tests/c/places.c", &[]);
    for (dialect, looks) in [("9P2000", 0), ("9P2000.u", 1), ("9P2000.L", 1), ("9P2000.L.n1", 1)] {
        let late = Late::default();
        let asked = late.looks.clone();
        let served = Served::tcp(Arc::new(late));
        let mut running = program.start(&[&served.name("/f", dialect)]);
        assert_eq!(running.report().as_deref(), Some("open"));
        assert_eq!(asked.load(Ordering::Relaxed), looks, "{dialect}");
        running.go_on();
        running.end();
        assert_eq!(asked.load(Ordering::Relaxed), looks, "{dialect}");
    }
}

#[test]
fn what_is_written_behind_while_another_thread_closes_is_written_or_told() {
    let program = Program::build("tests/c/closing.c", &[]);
    let served = Served::tcp(Arc::new(RamFs::new()));
    let made = Program::build("tests/c/streams.c", &[]);
    for dialect in ["9P2000", "9P2000.L.n1"] {
        made.run(&[&served.name("/f", dialect), "1000"]);
        program.run(&[&served.name("/f", dialect), "10"]);
    }
}

#[test]
fn a_stream_carries_a_file_each_way_and_has_a_place_of_its_own() {
    const SIZE: usize = 5_000_001;
    let program = Program::build("tests/c/streams.c", &[]);
    let run = |host: &Host, name: &str| {
        println!("{name}");
        program.run(&[name, &SIZE.to_string()]);
        assert!(std::fs::read(host.path("file")).unwrap() == content(SIZE));
    };
    for dialect in DIALECTS {
        let host = Host::new();
        run(&host, &host.served.name("/file", dialect));
        // By connections of their own, and not by messages.
        let counts = host.served.server.stream_counts();
        assert_eq!(counts.opened > 0, has_streams(dialect), "{dialect} {counts:?}");
        assert_eq!((counts.refused, counts.silent), (0, 0));
    }
    let host = Host::new();
    run(&host, &host.path("file"));
}

#[test]
fn a_stream_here_that_did_not_move_all_of_it_says_so_at_its_end() {
    let host = Host::new();
    Program::build("tests/c/here.c", &["-ldl"]).run(&[&host.path("file")]);
}

#[test]
fn each_call_on_regions_does_what_the_header_says() {
    Program::build("tests/c/asi.c", &[]).run(&[&Host::new().path("")]);
}

#[test]
fn regions_that_are_none_and_whatever_else_is_wrong_are_refused_and_do_no_harm() {
    let host = Host::new();
    std::fs::write(host.path("file"), "content").unwrap();
    Program::build("tests/c/asi_wrong.c", &[]).run(&[&host.path(""), &host.served.name("/file", "")]);
}

#[test]
fn short_ways_of_the_header_are_gone_only_while_they_are_right() {
    let layout = ninefold_stream::LAYOUT.map(|place| place.to_string()).join(",");
    let wrapped = ["salloc", "salloc_line", "sfree", "sgetc"].map(|name| format!("-Wl,--wrap=nf_{name}"));
    let layout = format!("-DLAYOUT={layout}");
    let flags: Vec<&str> = wrapped.iter().chain([&layout]).map(String::as_str).collect();
    for more in [&["-O0"][..], &["-O2"], &["-O2", "-masm=intel"]] {
        Program::build("tests/c/short.c", &[&flags, more].concat()).run(&[&Host::new().path("")]);
    }
}

#[test]
fn what_goes_wrong_is_told_by_the_call_that_meets_it_and_what_was_flushed_is_there() {
    const NAME: &str = "what_goes_wrong_is_told_by_the_call_that_meets_it_and_what_was_flushed_is_there";
    let program = Program::build("tests/c/faults.c", &[]);
    let host = Host::new();
    let mut running = program.start(&[&host.path("")]);
    if let Some(report) = running.report() {
        running.go_on();
        skip(NAME, &format!("a file system with little room: {report} can be made here"));
    }
    running.ended();
}

#[test]
fn places_beyond_four_gigabytes_are_places_by_every_interface() {
    let program = Program::build("tests/c/far.c", &[]);
    let host = Host::new();
    program.run(&[&host.path("far"), &host.path("copy"), "local"]);
    for dialect in DIALECTS {
        println!("{dialect}");
        program.run(&[&host.served.name("/far", dialect), &host.path("copy")]);
    }
}

#[test]
fn threads_share_a_stream_of_regions() {
    Program::build("tests/c/asi_threads.c", &[]).run(&[&Host::new().path(""), "2000"]);
}

#[test]
fn a_stream_of_the_thesis_on_a_file_here_lends_regions_too() {
    Program::build("tests/c/asi_mixed.c", &[]).run(&[&Host::new().path("")]);
}

#[test]
fn a_file_of_a_server_lends_regions_in_every_dialect() {
    const SIZE: usize = 5_000_001;
    let program = Program::build("tests/c/asi_remote.c", &[]);
    for dialect in DIALECTS {
        println!("{dialect}");
        let (host, here) = (Host::new(), tempfile::tempdir().unwrap());
        std::fs::write(host.path("file"), content(SIZE)).unwrap();
        let name = host.served.name("/file", dialect);
        program.run(&[&name, here.path().to_str().unwrap(), &SIZE.to_string()]);
        assert_eq!(host.served.server.stream_counts().opened > 0, has_streams(dialect), "{dialect}");
    }
}

#[test]
fn a_file_of_a_server_is_written_by_regions_in_every_dialect() {
    let program = Program::build("tests/c/asi_remote_write.c", &[]);
    for dialect in DIALECTS {
        println!("{dialect}");
        let host = Host::new();
        program.run(&[&host.served.name("/made", dialect)]);
    }
}

#[test]
fn standard_io_on_streams_does_what_libc_does_with_regions_in_between() {
    Program::build("tests/c/stdio.c", &[]).run(&[&Host::new().path(""), "5000"]);
}

#[test]
fn two_processes_hand_over_by_a_ring_or_plainly_where_one_knows_none() {
    Program::build("tests/c/ring.c", &[]).run(&[]);
}

#[test]
fn unix_io_and_regions_and_standard_io_on_one_stream_have_one_offset() {
    Program::build("tests/c/unix_mixed.c", &["-O1"]).run(&[&Host::new().path(""), "1", "100000"]);
}

#[test]
fn a_child_shares_offsets_and_what_was_flushed_before_is_written_once() {
    Program::build("tests/c/inherited.c", &["-O1"]).run(&[&Host::new().path("")]);
}

#[test]
fn descriptors_of_streams_are_any_threads_and_a_childs_too() {
    Program::build("tests/c/numbers.c", &[]).run(&[&Host::new().path(""), "200"]);
}

#[test]
fn streams_on_a_terminal_and_on_a_directory_are_what_they_are_in_c_too() {
    let directory = tempfile::tempdir().unwrap();
    for name in 0..100 {
        std::fs::write(directory.path().join(name.to_string()), "").unwrap();
    }
    Program::build("tests/c/kinds.c", &[]).run(&[directory.path().to_str().unwrap()]);
}

#[test]
fn iostreams_of_cplusplus_on_regions_do_what_those_of_the_standard_do() {
    for standard in ["-std=c++11", "-std=c++20"] {
        let program = Program::build_by("c++", "tests/c/iostreams.cpp", &[standard, "-O1"]);
        program.run(&[&Host::new().path(""), "5000"]);
    }
}

#[test]
fn a_stream_into_a_full_file_system_fails_and_its_end_says_so() {
    let program = Program::build("tests/c/full.c", &[]);
    for dialect in DIALECTS {
        println!("{dialect}");
        let served = Served::tcp(Arc::new(RamFs::with_limit(4 << 20)));
        let errno = if dialect.ends_with(".s") { 0 } else { libc::ENOSPC };
        program.run(&[&served.name("/f", dialect), &errno.to_string()]);
    }
}

#[test]
fn a_file_that_is_rewritten_while_a_stream_reads_it_is_told_at_the_end() {
    let program = Program::build("tests/c/changed.c", &[]);
    let host = Host::new();
    // Large enough that no socket holds all of it.
    std::fs::write(host.path("file"), vec![0; 32 << 20]).unwrap();
    let mut running = program.start(&[&host.served.name("/file", "9P2000.L.n1")]);
    assert_eq!(running.report().as_deref(), Some("begun"));
    let file = std::fs::File::options().write(true).open(host.path("file")).unwrap();
    file.write_all_at(b"changed", 1000).unwrap();
    running.go_on();
    assert_eq!(running.report(), None);
    running.ended();
}

#[test]
fn whatever_a_program_does_when_its_server_dies_it_is_told_and_lives() {
    const SIZE: usize = 32 << 20;
    let large = content(SIZE);
    let program = Program::build("tests/c/cut.c", &[]);
    for dialect in DIALECTS {
        for what in ["read", "regions", "write", "freed", "end", "plain", "behind"] {
            println!("{dialect} {what}");
            let host = Host::new();
            // Large enough that no socket holds all of it.
            std::fs::write(host.path("file"), if ["read", "regions"].contains(&what) { &large[..] } else { b"x" })
                .unwrap();
            let Host { dir, served } = host;
            let name = served.name("/file", dialect);
            let address = served.address().clone();
            let mut running = program.start(&[what, &name, &SIZE.to_string()]);
            assert_eq!(running.report().as_deref(), Some("begun"));
            served.kill();
            running.go_on();
            assert_eq!(running.report().as_deref(), Some("over"));
            let again = Served::at(&address, Arc::new(HostFs::open(dir.path()).unwrap()));
            running.go_on();
            assert_eq!(running.report(), None);
            running.ended();
            drop(again);
        }
    }
}

#[test]
fn a_child_has_none_of_its_parents_files_and_has_its_own() {
    let program = Program::build("tests/c/forked.c", &[]);
    for dialect in DIALECTS {
        let host = Host::new();
        program.run(&[&host.served.name("/file", dialect), &host.served.name("/fifo", dialect)]);
    }
}

#[test]
fn a_child_with_its_parents_number_is_told_at_once_too() {
    const NAME: &str = "a_child_with_its_parents_number_is_told_at_once_too";
    let program = Program::build("tests/c/reborn.c", &[]);
    let host = Host::new();
    let mut running = program.start(&[&host.served.name("/fifo", "9P2000.L.n1")]);
    if let Some(report) = running.report() {
        assert_eq!(report, "no pid namespace");
        running.go_on();
        skip(NAME, "no pid namespace can be made here");
    }
    running.ended();
}

#[test]
fn threads_share_one_connection_and_what_they_append_is_whole() {
    let program = Program::build("tests/c/threads.c", &[]);
    for dialect in DIALECTS {
        println!("{dialect}");
        let host = Host::new();
        let mut running = program.start(&[&host.served.name("", dialect), "50"]);
        assert_eq!(running.report().as_deref(), Some("connected"));
        assert_eq!(host.served.server.connections(), 1);
        running.go_on();
        assert_eq!(running.report(), None);
        running.ended();
    }
}

#[test]
fn no_thread_of_the_library_takes_a_signal_from_its_beginning_on() {
    let host = Host::new();
    let name = host.served.name("/file", "9P2000.L.n1");
    assert!(name.contains("127.0.0.1"));
    Program::build("tests/c/born.c", &["-ldl"]).run(&[&name.replace("127.0.0.1", "localhost")]);
}

#[test]
fn ssh_is_started_with_the_signals_of_the_thread_that_opens() {
    let program = Program::build("tests/c/ssh.c", &["-ldl"]);
    let status = program.command(&["9p+ssh://host/file"]).env("NINEFOLD_SSH", "false").status().unwrap();
    assert!(status.success());
}

#[test]
fn nothing_of_the_library_has_the_number_of_standard_input_or_output_or_error() {
    let program = Program::build("tests/c/standard.c", &[]);
    let host = Host::new();
    program.run(&[&host.served.name("/file", ""), &host.path("here")]);
    let address = Address::unix(host.dir.path().join("socket"));
    let served = Served::at(&address, Arc::new(HostFs::open(host.dir.path()).unwrap()));
    program.run(&[&served.name("/file", ""), &host.path("here")]);
}

#[test]
fn the_copy_program_of_the_thesis_copies_with_streams_as_it_did_without() {
    const SIZE: usize = 1_000_001;
    let host = Host::new();
    std::fs::write(host.path("from"), content(SIZE)).unwrap();
    let (here, there) = (host.path("from"), host.served.name("/from", ""));
    for path in ["examples/cp_before.c", "examples/cp_after.c"] {
        let program = Program::build(path, &[]);
        for from in [&here, &there] {
            for to in [&host.path("to"), &host.served.name("/to", "")] {
                program.run(&[from, to]);
                assert!(std::fs::read(host.path("to")).unwrap() == content(SIZE), "{path} {from} {to}");
                std::fs::remove_file(host.path("to")).unwrap();
            }
        }
        let none = program.command(&["none", "to"]).current_dir(host.dir.path()).status().unwrap();
        assert_eq!(none.code(), Some(1));
    }
    let lines = |path: &str| std::fs::read_to_string(source(path)).unwrap().lines().count();
    assert!(lines("examples/cp_after.c") <= lines("examples/cp_before.c") + 5);
}
