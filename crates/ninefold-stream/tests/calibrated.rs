//! The table of a machine, where a person has put one: which streams go by it. A program of its own for each case, as a process reads it
//! once and from its environment.

use std::path::Path;
use std::process::Command;

use ninefold_stream::{Calibration, Options, Stream};

/// Set in a program that this test started: the file that it opens.
const FILE: &str = "NINEFOLD_TEST_FILE";

/// What streams on a file go by, in another program: the module, and what the first call brings into memory.
fn told(path: &Path, place: &[(&str, &Path)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_program_that_opens_a_file", "--nocapture"]).env(FILE, path);
    command.env_remove("NINEFOLD_CALIBRATION").env_remove("XDG_CONFIG_HOME").env_remove("HOME");
    command.envs(place.iter().copied());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|line| line.split_once("told: ")).map(|(_, told)| told.to_owned()).unwrap()
}

#[test]
fn the_program_that_opens_a_file() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let plain = Stream::open(&path).unwrap();
    let given = Calibration { first: 4096, ..Calibration::default() };
    let given = Options::new().read(true).module("pread").calibration(given).open(&path).unwrap();
    let length = |mut stream: Stream| std::io::BufRead::fill_buf(&mut stream).unwrap().len();
    println!("\ntold: {} {}", length(plain), length(given));
}

#[test]
fn streams_go_by_the_table_that_a_person_put_and_by_no_broken_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![0; 200 << 10]).unwrap();
    let config = directory.path().join("config");
    let table = config.join("ninefold").join("calibration");
    std::fs::create_dir_all(table.parent().unwrap()).unwrap();
    let defaults = format!("{} 4096", 64 << 10);
    assert_eq!(told(&path, &[]), defaults);
    assert_eq!(told(&path, &[("XDG_CONFIG_HOME", &config)]), defaults);

    std::fs::write(&table, "first 8192\n").unwrap();
    assert_eq!(told(&path, &[("XDG_CONFIG_HOME", &config)]), "8192 4096");
    let home = directory.path().join("home");
    std::fs::create_dir(&home).unwrap();
    std::os::unix::fs::symlink(&config, home.join(".config")).unwrap();
    assert_eq!(told(&path, &[("HOME", &home)]), "8192 4096");
    let other = directory.path().join("other");
    std::fs::write(&other, "first 12288\n").unwrap();
    assert_eq!(told(&path, &[("XDG_CONFIG_HOME", &config), ("NINEFOLD_CALIBRATION", &other)]), "12288 4096");

    for broken in ["first 8192\nfirst 8192\n", "first 1\n", "\u{0}", &"x".repeat(1 << 20)] {
        std::fs::write(&table, broken).unwrap();
        assert_eq!(told(&path, &[("XDG_CONFIG_HOME", &config)]), defaults);
    }
    assert_eq!(told(&path, &[("NINEFOLD_CALIBRATION", directory.path())]), defaults);
}
