//! Where the program of a command lies, as execvp(3) finds it, and a command of it that std begins by posix_spawn(3).
//!
//! std forks where it would have to look the name up in another environment than its own; and what was forked holds, until it has
//! executed its program, a copy of each pipe by which std waits to hear of others that were forked at the same instant. What begins by
//! posix_spawn is waited for by no pipe. So the name is looked up here.

use std::ffi::{OsStr, OsString};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Access, access};
use rustix::io::Errno;

/// Where the C library looks when the environment does not say: confstr(3), _CS_PATH.
const PATH: &str = "/bin:/usr/bin";

/// What executes a file that is executable and begins as no program does: execvp(3).
const SHELL: &str = "/bin/sh";

/// Words, environment and standard descriptors of a command; the working directory is the calling thread's.
pub struct Program<'a> {
    pub words: &'a [OsString],
    pub environment: &'a [(OsString, OsString)],
    pub descriptors: [OwnedFd; 3],
}

impl Program<'_> {
    /// Begins it by `spawn`. The error is that of looking the program up, or of executing it.
    pub fn begin<T>(&self, mut spawn: impl FnMut(&mut Command) -> Result<T>) -> Result<T> {
        let (name, arguments) = self.words.split_first().ok_or(ErrorKind::InvalidInput)?;
        let path = self.environment.iter().rfind(|(variable, _)| variable == "PATH").map(|(_, path)| path.as_os_str());
        let program = find(name, path.unwrap_or(PATH.as_ref()))?;
        let mut command = self.command(&program)?;
        match spawn(command.arg0(name).args(arguments)) {
            Err(e) if e.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
                spawn(self.command(SHELL.as_ref())?.arg0(name).arg(&program).args(arguments))
            }
            begun => begun,
        }
    }

    fn command(&self, program: &Path) -> Result<Command> {
        let [stdin, stdout, stderr] = &self.descriptors;
        let mut command = Command::new(program);
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        command.env_clear().envs(environment);
        command.stdin(stdin.try_clone()?).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
        Ok(command)
    }
}

/// A path, with a `/` in it. A name with one is its own path; any other is looked for in the directories of `path`.
fn find(name: &OsStr, path: &OsStr) -> Result<PathBuf> {
    if name.is_empty() {
        return Err(Errno::NOENT.into());
    }
    if name.as_bytes().contains(&b'/') {
        return Ok(name.into());
    }
    let mut error = Errno::NOENT;
    for directory in path.as_bytes().split(|&byte| byte == b':') {
        // An empty one is the working directory.
        let directory = if directory.is_empty() { OsStr::new(".") } else { OsStr::from_bytes(directory) };
        let candidate = Path::new(directory).join(name);
        match access(&candidate, Access::EXEC_OK) {
            Ok(()) if candidate.is_file() => return Ok(candidate),
            // What may not be executed is told where nothing else is found.
            Ok(()) | Err(Errno::ACCESS) => error = Errno::ACCESS,
            Err(_) => {}
        }
    }
    Err(Error::from(error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_name_is_the_first_that_may_be_executed_in_the_path_and_one_with_a_slash_is_itself() {
        let root = tempfile::tempdir().unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| root.path().join(name));
        [&a, &b, &c].into_iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        let file = |dir: &Path, name: &str, mode: u32| {
            std::fs::write(dir.join(name), "").unwrap();
            std::fs::set_permissions(dir.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        file(&b, "both", 0o755);
        file(&c, "both", 0o755);
        // One that is there and may not be executed, and a directory, do not end the search.
        file(&a, "one", 0o644);
        std::fs::create_dir(b.join("one")).unwrap();
        file(&c, "one", 0o755);
        file(&a, "none", 0o644);
        let path = [root.path().join("missing"), a.join("one"), a.clone(), b.clone(), c.clone()];
        let path = std::env::join_paths(path).unwrap();
        let find = |name: &str| find(name.as_ref(), &path).map_err(|e| e.kind());
        assert_eq!(find("both"), Ok(b.join("both")));
        assert_eq!(find("one"), Ok(c.join("one")));
        assert_eq!(find("none"), Err(ErrorKind::PermissionDenied));
        assert_eq!([find("other"), find("")], [Err(ErrorKind::NotFound), Err(ErrorKind::NotFound)]);
        assert_eq!(find("./one"), Ok("./one".into()));
        assert_eq!(super::find("sh".as_ref(), PATH.as_ref()).unwrap(), Path::new("/bin/sh"));
        // Which has to have a slash too.
        assert_eq!(
            super::find("Cargo.toml".as_ref(), "".as_ref()).map_err(|e| e.kind()),
            Err(ErrorKind::PermissionDenied)
        );
    }
}
