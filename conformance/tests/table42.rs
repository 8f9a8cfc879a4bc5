//! A client that knows nothing of us but table 4.2 of S1, in C, against our server.

#[path = "support/command.rs"]
mod command;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use command::NINEFOLD;

struct Server {
    child: Child,
    port: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Exports a directory at a port of the system's choice.
fn serve(dir: &Path) -> Server {
    let mut command = Command::new(&*NINEFOLD);
    command.args(["serve", "--listen", "9p://127.0.0.1:0"]).arg(dir).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let told = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port = told.into_iter().find_map(|line| {
        let (_, rest) = line.split_once("9p://127.0.0.1:")?;
        Some(rest.chars().take_while(char::is_ascii_digit).collect())
    });
    Server { child, port: port.expect("the server says where it listens") }
}

fn noise(len: usize) -> Vec<u8> {
    let mut x = 1_u32;
    let byte = |_| {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 24) as u8
    };
    (0..len).map(byte).collect()
}

#[test]
fn a_client_written_from_the_table_alone_reads_and_writes_whole_files_and_their_ends() {
    let work = tempfile::tempdir().unwrap();
    let (dir, client) = (work.path().join("export"), work.path().join("client"));
    fs::create_dir(&dir).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/table42/client.c");
    let mut build = Command::new("cc");
    build.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Werror", "-o"]).arg(&client).arg(source);
    assert!(build.status().expect("a C compiler: apt install gcc").success());
    let server = serve(&dir);
    let run = |what: &str, name: &str, offset: usize, file: &Path| -> ExitStatus {
        let mut command = Command::new(&client);
        command.args(["127.0.0.1", &server.port, what, name, &offset.to_string()]);
        match what {
            "read" => command.stdout(File::create(file).unwrap()),
            _ => command.stdin(File::open(file).unwrap()),
        };
        command.status().unwrap()
    };
    let bytes = noise(3_000_001);
    let (got, given) = (work.path().join("got"), work.path().join("given"));
    fs::write(dir.join("f"), &bytes).unwrap();
    for offset in [0, 1_234_567, bytes.len()] {
        assert!(run("read", "f", offset, &got).success());
        assert!(fs::read(&got).unwrap() == bytes[offset..], "from {offset} on");
    }
    fs::write(&given, &bytes).unwrap();
    fs::write(dir.join("g"), b"before").unwrap();
    assert!(run("write", "g", 3, &given).success());
    assert!(fs::read(dir.join("g")).unwrap() == [b"bef", &bytes[..]].concat());
    assert_eq!(run("read", "none", 0, &got).code(), Some(1));
}
