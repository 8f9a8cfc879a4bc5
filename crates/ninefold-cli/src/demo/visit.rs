//! What the demo does with one server in one dialect: copies in, lists, reads, renames, copies out, removes.

use std::path::Path;

use anyhow::{Context, ensure};
use ninefold::transport::Address;

use super::goods::{GREETING, Goods, NAME, Sum};
use super::program::{Outcome, Program};
use super::{in_ms, say, server};

/// The copy's name once it is renamed there.
const RENAMED: &str = "the same things";

/// Name of the directory that is copied back to.
const BACK: &str = "back";

/// See the module.
#[derive(Debug)]
pub struct Visit<'a> {
    pub program: &'a Program,
    pub goods: &'a Goods,
    /// Where the served tree lies, to look at it from the other side.
    pub tree: &'a Path,
    pub url: Address,
}

impl Visit<'_> {
    pub async fn run(&self) -> anyhow::Result<()> {
        let (there, renamed) = (below(&self.url, NAME), below(&self.url, RENAMED));
        let greeting = below(&below(&self.url, NAME), GREETING.0);

        let copied = self.succeed(&["cp", "-r", "--checksum", NAME, &there.to_string()]).await?;
        let sum = self.agree(&self.tree.join(NAME), "on the server's disk")?;
        told(&copied, &format!("{sum}, on the server's disk too"))?;

        let listed = self.succeed(&["ls", &there.to_string()]).await?;
        let mut names: Vec<_> = str::from_utf8(&listed.stdout).context("ls")?.lines().map(str::to_owned).collect();
        names.sort();
        ensure!(names == self.goods.names, "{}: expected {:?}, found {names:?}", listed.line, self.goods.names);
        told(&listed, &format!("{} names", names.len()))?;

        let read = self.succeed(&["cat", &greeting.to_string()]).await?;
        ensure!(read.stdout == GREETING.1.as_bytes(), "{}: found {:?}", read.line, read.stdout.escape_ascii());
        told(&read, GREETING.1.trim_end())?;

        let moved = self.succeed(&["mv", &there.to_string(), &renamed.to_string()]).await?;
        self.agree(&self.tree.join(RENAMED), "on the server's disk")?;
        told(&moved, "renamed")?;

        let copied = self.succeed(&["cp", "-r", "--checksum", &renamed.to_string(), BACK]).await?;
        let back = self.program.dir.join(BACK);
        let sum = self.agree(&back, "of what came back")?;
        std::fs::remove_dir_all(&back).with_context(|| back.display().to_string())?;
        told(&copied, &format!("{sum}, as at the start"))?;

        let removed = self.succeed(&["rm", "-r", &renamed.to_string()]).await?;
        let left = std::fs::read_dir(self.tree).with_context(|| self.tree.display().to_string())?.count();
        ensure!(left == 0, "{}: {left} files are left", removed.line);
        told(&removed, "nothing is left")
    }

    /// Removes what a visit that failed left.
    pub fn clear(&self) -> anyhow::Result<()> {
        let left = [self.tree.join(NAME), self.tree.join(RENAMED), self.program.dir.join(BACK)];
        for dir in left.iter().filter(|dir| dir.exists()) {
            std::fs::remove_dir_all(dir).with_context(|| dir.display().to_string())?;
        }
        Ok(())
    }

    async fn succeed(&self, words: &[&str]) -> anyhow::Result<Outcome> {
        let outcome = self.program.run(words).await?;
        ensure!(outcome.status == Some(0), "{}", outcome.complaint());
        Ok(outcome)
    }

    /// The tree at `path` holds what was made at the start.
    fn agree(&self, path: &Path, whose: &str) -> anyhow::Result<Sum> {
        let sum = Sum::of(path)?;
        ensure!(sum == self.goods.sum, "{}: the sum {whose} is {sum}, it should be {}", path.display(), self.goods.sum);
        Ok(sum)
    }
}

/// Reads a file that is not there, which must fail and say so.
pub async fn miss(program: &Program, missing: &str) -> anyhow::Result<()> {
    let outcome = program.run(&["cat", missing]).await?;
    ensure!(outcome.status == Some(1), "expected exit status 1: {}", outcome.complaint());
    ensure!(outcome.stdout.is_empty(), "{}: it printed something on standard output", outcome.line);
    ensure!(outcome.stderr.contains(server::MISSING), "the message names no file: {}", outcome.complaint());
    told(&outcome, &format!("exit status 1: {}", outcome.stderr))
}

fn below(url: &Address, name: &str) -> Address {
    let mut url = url.clone();
    url.path.push(b'/');
    url.path.extend_from_slice(name.as_bytes());
    url
}

/// Prints what a command came to.
fn told(outcome: &Outcome, result: &str) -> anyhow::Result<()> {
    say(&format!("  $ {}\n    ✓ {} ({})\n", outcome.line, result, in_ms(outcome.took)))
}
