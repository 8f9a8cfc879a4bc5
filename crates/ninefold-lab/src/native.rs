//! What streams are measured beside: the C library and the system calls as a program of C has them, `native/native.c`. It is made when a
//! bench begins, by the machine's own compiler at -O2, and asked by lines.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::turns::Took;

const SOURCE: &str = include_str!("native/native.c");

/// The program. It ends when this is dropped.
#[derive(Debug)]
pub struct Native {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Native {
    /// Makes and starts it; its files are in `scratch`. What the machine lacks for that is the inner error.
    pub fn start(scratch: &Path) -> Result<Result<Native, String>> {
        let (source, program) = (scratch.join("native.c"), scratch.join("native"));
        std::fs::write(&source, SOURCE).with_context(|| source.display().to_string())?;
        let compiler = Command::new("cc").args(["-O2", "-o"]).args([&program, &source]).stdin(Stdio::null()).output();
        let said = match compiler {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Err("no C compiler: apt install build-essential".to_owned()));
            }
            other => other.context("cc")?,
        };
        ensure!(said.status.success(), "cc: {}", String::from_utf8_lossy(&said.stderr).trim());
        let mut command = Command::new(&program);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("the program of C")?;
        let (questions, answers) = (child.stdin.take(), child.stdout.take().context("its output")?);
        Ok(Ok(Native { child, questions, answers: BufReader::new(answers) }))
    }

    /// One measurement.
    ///
    /// # Errors
    /// What it told, and its end.
    pub fn ask(&mut self, words: &[&OsStr]) -> Result<Took> {
        let mut line = words.join(OsStr::new("\t")).into_encoded_bytes();
        ensure!(!line.contains(&b'\n'), "a name with a line's end in it");
        line.push(b'\n');
        let questions = self.questions.as_mut().context("the program of C has ended")?;
        questions.write_all(&line).context("the program of C")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).context("the program of C")?;
        let answer = answer.trim_end();
        let numbers = answer.split_once(' ').and_then(|(took, units)| Some((took.parse().ok()?, units.parse().ok()?)));
        match numbers {
            Some((took, units)) => Ok(Took { time: Duration::from_nanos(took), units }),
            None => bail!("{:?}: {}", words, if answer.is_empty() { "it ended" } else { answer }),
        }
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        self.questions = None; // its end
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(native: &mut Native, line: &str) -> Result<Took> {
        native.ask(&line.split(' ').map(OsStr::new).collect::<Vec<_>>())
    }

    #[test]
    fn each_measurement_does_what_its_name_says() {
        let dir = tempfile::tempdir().unwrap();
        let Ok(mut native) = Native::start(dir.path()).unwrap() else { return };
        let (path, new) = (dir.path().join("file"), dir.path().join("new"));
        let lines = format!("{:063}\n", 0).repeat(256);
        std::fs::write(&path, &lines).unwrap();
        let (path, to) = (path.display(), new.display());
        for (line, units) in [
            ("copy 16384 3 0".to_owned(), 12),
            ("copy_to_buf 16384 3 64".to_owned(), 12),
            (format!("touch_read {path} 2"), 8),
            (format!("touch_write {path} 2"), 8),
            (format!("touch_new {path} 2"), 8),
            (format!("write_page {path} 16384 2"), 8),
            (format!("write_new {path} 16384 2"), 8),
            (format!("read_file {path} 16384 2"), 8),
            (format!("beginning {path} 1 5"), 5),
            (format!("beginning {path} 0 5"), 5),
            (format!("read {path} 4096"), 16384),
            (format!("file_to_file {path} {to}"), 16384),
            (format!("fread {to} 64"), 256),
        ] {
            let took = ask(&mut native, &line).unwrap();
            assert_eq!(took.units, units, "{line}");
            assert!(!took.time.is_zero(), "{line}");
        }
        assert_eq!(std::fs::metadata(&new).unwrap().len(), 16384);
        std::fs::write(&new, &lines).unwrap();
        assert_eq!(ask(&mut native, &format!("getline {to}")).unwrap().units, 256);
        let wrong = ask(&mut native, "fread /nonexistent 64").unwrap_err().to_string();
        assert!(wrong.contains("No such file"), "{wrong}");
        assert!(ask(&mut native, "fly").unwrap_err().to_string().contains("no such measurement"));
    }
}
