//! Short files over a distance: `cp` has them by several streams in the round trip of their open, and whole however they are written.

mod support;

use std::io::BufReader;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use ninefold_lab::{End, Lab, Options, Shape};
use support::{BENCH, first_line, lab, skip};

const PORT: u16 = 5640;

/// A server of a directory in an end of a lab. It ends with this.
struct Serves(Child);

impl Drop for Serves {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(lab: &Lab, ninefold: &Path, dir: &Path) -> Serves {
    let at = format!("9p://{}:{PORT}", lab.address(End::Server));
    let mut command = lab.command(End::Server, ninefold);
    command.args(["serve", "--insecure", "--listen", &at]).arg(dir);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (_, line) = first_line(BufReader::new(child.stdout.take().unwrap()));
    assert!(line.contains(&at), "{line}");
    Serves(child)
}

/// What `cp` of the file says on standard error, and how many there were of each message.
fn copy(lab: &Lab, ninefold: &Path, to: &Path) -> (String, serde_json::Value) {
    let stats = tempfile::NamedTempFile::new().unwrap();
    let mut command = lab.command(End::Client, ninefold);
    // Nothing is remembered from one to the next.
    command.env("XDG_CACHE_HOME", "/dev/null/none").args(["cp", "--stats"]).arg(stats.path());
    let from = format!("9p://{}:{PORT}/f", lab.address(End::Server));
    let output = command.arg(from).arg(to).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let told: serde_json::Value = serde_json::from_slice(&std::fs::read(stats.path()).unwrap()).unwrap();
    (String::from_utf8(output.stderr).unwrap(), told["messages"].clone())
}

#[test]
fn a_short_file_comes_by_shares_and_one_that_is_written_in_place_too() {
    let name = "a_short_file_comes_by_shares_and_one_that_is_written_in_place_too";
    let ninefold = Path::new(BENCH).with_file_name("ninefold");
    if !ninefold.is_file() {
        return skip(name, &format!("{} is not built: cargo build -p ninefold-cli", ninefold.display()));
    }
    let shape = Shape { delay: Duration::from_millis(15), ..Shape::default() };
    let Some(lab) = lab(name, Options::both(shape)) else { return };
    let (dir, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let _serves = serve(&lab, &ninefold, dir.path());
    for (size, is_shared) in [(200_000, false), (300_000, true), (1_500_000, true)] {
        let mut content = vec![0; size];
        fastrand::Rng::with_seed(size as u64).fill(&mut content);
        std::fs::write(dir.path().join("f"), &content).unwrap();
        let (to, other) = (here.path().join("f"), here.path().join("g"));
        let (said, messages) = copy(&lab, &ninefold, &to);
        assert!(std::fs::read(&to).unwrap() == content && said.is_empty(), "{said}");
        let came = |message: &str| messages[message].as_u64().unwrap_or(0);
        // At 30 ms eight are asked for, whatever its size is found to be. Where the machine is held up others may bring what one was to.
        assert!(if is_shared { came("Rstream") >= 8 } else { came("Rstream") == 0 }, "{size}: {messages}");
        assert_eq!(came("Rread"), u64::from(!is_shared), "{size}: {messages}");
        // Another name keeps the file.
        std::fs::write(&to, b"old").unwrap();
        std::fs::hard_link(&to, &other).unwrap();
        let (said, messages) = copy(&lab, &ninefold, &to);
        assert!(said.contains("written in place"), "{said}");
        assert!(std::fs::read(&other).unwrap() == content, "{size}: {messages}");
        std::fs::remove_file(&other).unwrap();
    }
}
