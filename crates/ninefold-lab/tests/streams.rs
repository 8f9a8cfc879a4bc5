//! `streams` and `calibrate` from end to end, on small files: what is measured, what is gone on with, and where the constants go.

use std::path::Path;
use std::process::{Command, Output};

use ninefold_stream::Calibration;

const BENCH: &str = env!("CARGO_BIN_EXE_ninefold-bench");

/// A bench in a directory where nothing else is, which is the user's configuration too.
fn bench(name: &str, dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(BENCH);
    command.args([name, "--size", "256K", "--dir"]).arg(dir).args(words);
    command.env("XDG_CONFIG_HOME", dir.join("config")).env_remove("NINEFOLD_CALIBRATION");
    command.output().unwrap()
}

#[track_caller]
fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The columns what, way and round of each row.
fn rows(out: &Path) -> Vec<[String; 3]> {
    let mut reader = csv::Reader::from_path(out.join("rows.csv")).unwrap();
    reader.records().map(|record| [0, 1, 2].map(|column| record.as_ref().unwrap()[column].to_owned())).collect()
}

fn has_compiler() -> bool {
    Command::new("cc").arg("--version").output().is_ok_and(|output| output.status.success())
}

#[test]
fn streams_are_measured_beside_c_and_a_second_measurement_adds_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let only = ["--only", "64 bytes,lines,compare", "--out", out.to_str().unwrap(), "--rounds"];
    let text = said(&bench("streams", dir.path(), &[&only[..], &["2"]].concat()));
    let first = rows(&out);
    for way in ["pread", "mmap"] {
        assert_eq!(first.iter().filter(|row| row[0] == "64 bytes" && row[1] == way).count(), 2, "{first:?}");
    }
    if has_compiler() {
        assert_eq!(first.iter().filter(|row| row[1] == "fread" || row[1] == "getline").count(), 4, "{first:?}");
    } else {
        assert!(text.contains("not measured: no C compiler"), "{text}");
    }
    assert!(!first.iter().any(|row| row[0] == "copy a file"), "{first:?}");

    said(&bench("streams", dir.path(), &[&only[..], &["3"]].concat()));
    let second = rows(&out);
    assert_eq!(second[..first.len()], first[..]);
    assert!(second[first.len()..].iter().all(|row| row[2] == "3"), "{second:?}");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(out.join("report.json")).unwrap()).unwrap();
    assert_eq!(report["rows"].as_array().unwrap().len(), 6);
    // No files stay but those that were asked for.
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["out"]);

    let all = said(&bench("streams", dir.path(), &["--rounds", "1"]));
    let is_told = |line: &&str| line.starts_with("read 64 KiB ") || line.starts_with("copy a file ");
    assert_eq!(all.lines().filter(is_told).count(), 3, "{all}");
}

#[test]
fn a_calibration_prints_the_papers_tables_and_is_kept_only_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (out, kept) = (dir.path().join("out"), dir.path().join("config/ninefold/calibration"));
    let text = said(&bench("calibrate", dir.path(), &["--rounds", "2", "--out", out.to_str().unwrap()]));
    if has_compiler() {
        for table in 4..=7 {
            assert!(text.contains(&format!("\nTable {table}: ")), "{text}");
        }
        for line in text.lines().skip_while(|line| !line.starts_with("Table 4")).take_while(|line| line != &"Pieces") {
            assert!(!line.trim_end().ends_with(" -"), "{text}");
        }
    }
    assert!(!kept.exists());
    let table = Calibration::read(&out.join("calibration")).unwrap().unwrap();
    assert_eq!(table.map_whole, Calibration::default().map_whole);

    // From the same rows comes the same table.
    let text = said(&bench("calibrate", dir.path(), &["--rounds", "2", "--out", out.to_str().unwrap(), "--keep"]));
    assert!(text.contains(&format!("kept in {}", kept.display())), "{text}");
    assert_eq!(Calibration::read(&kept).unwrap(), Some(table));
}

#[test]
fn a_calibration_that_is_none_is_told_by_its_line_and_replaced_only_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("config/ninefold/calibration");
    std::fs::create_dir_all(kept.parent().unwrap()).unwrap();
    std::fs::write(&kept, "read 262144\nfirst 12\n").unwrap();
    for name in ["streams", "calibrate"] {
        let output = bench(name, dir.path(), &[]);
        assert!(!output.status.success(), "{output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains("config/ninefold/calibration is no calibration"), "{told}");
        assert!(told.contains("line 2: 'first' is 4096 to 67108864 bytes"), "{told}");
    }
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "read 262144\nfirst 12\n");
    said(&bench("calibrate", dir.path(), &["--rounds", "1", "--keep"]));
    Calibration::read(&kept).unwrap().unwrap();
}
