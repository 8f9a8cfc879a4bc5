//! What is done to the files: the same by every system, with the same preparation, and the same proof that it was done.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::trees::{self, Trees};

/// An operation of the bench.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub enum Operation {
    Pwd,
    Ls,
    LsLong,
    Stat,
    Create,
    WriteSmall,
    ReadSmall,
    CopyDown,
    CopyUp,
    Remove,
    Mkdir,
    ReadLarger,
    WriteLarger,
    LsMany,
    LsTree,
    CopyTreeDown,
    CopyTreeUp,
    RemoveTree,
    /// The paper's evaluation: one large file, and the same bytes in files that are copied side by side.
    CopyLarge,
    CopyParallel,
}

use Operation::{
    CopyDown, CopyLarge, CopyParallel, CopyTreeDown, CopyTreeUp, CopyUp, Create, Ls, LsLong, LsMany, LsTree, Mkdir,
    Pwd, ReadLarger, ReadSmall, Remove, RemoveTree, Stat, WriteLarger, WriteSmall,
};

/// What there is to see when an operation was done.
enum Proof<'a> {
    /// At least so many lines of output.
    Lines(usize),
    /// A file's content, of so many bytes, as output.
    Output(u64),
    /// A file with that.
    File(PathBuf, u64),
    Dir(PathBuf),
    Gone(PathBuf),
    /// All the files of the tree.
    Tree(PathBuf),
    /// The files that are copied side by side.
    Parts(&'a Path),
}

impl Operation {
    pub const ALL: [Operation; 20] = [
        Pwd,
        Ls,
        LsLong,
        Stat,
        Create,
        WriteSmall,
        ReadSmall,
        CopyDown,
        CopyUp,
        Remove,
        Mkdir,
        ReadLarger,
        WriteLarger,
        LsMany,
        LsTree,
        CopyTreeDown,
        CopyTreeUp,
        RemoveTree,
        CopyLarge,
        CopyParallel,
    ];

    /// Under which it is reported.
    pub fn name(self) -> &'static str {
        match self {
            Pwd => "pwd",
            Ls => "ls of 20",
            LsLong => "ls -l of 20",
            Stat => "stat",
            Create => "create",
            WriteSmall => "create+write 4 KiB",
            ReadSmall => "read 4 KiB",
            CopyDown => "copy 80 KiB down",
            CopyUp => "copy 80 KiB up",
            Remove => "remove",
            Mkdir => "mkdir -p of 8 levels",
            ReadLarger => "read 1 MiB",
            WriteLarger => "create+write 1 MiB",
            LsMany => "ls -l of 2,000",
            LsTree => "ls -lR of 1,000 in 50",
            CopyTreeDown => "cp -r 1,000 x 4 KiB down",
            CopyTreeUp => "cp -r 1,000 x 4 KiB up",
            RemoveTree => "rm -r of 1,000 in 50",
            CopyLarge => "copy 64 MiB",
            CopyParallel => "copy 8 x 8 MiB at a time",
        }
    }

    /// Makes the trees what they are to be before it, whatever was done to them.
    pub fn prepare(self, trees: &Trees) -> Result<()> {
        trees.clear().context("cannot clear what was made")?;
        match self {
            Remove => trees::file(&trees.made().join("x"), 0),
            RemoveTree => trees::tree(&trees.made().join("tree")),
            CopyLarge | CopyParallel => trees.large(),
            _ => Ok(()),
        }
        .context("cannot prepare the tree")
    }

    fn proof(self, trees: &Trees) -> Proof<'_> {
        let (made, down) = (|name: &str| trees.made().join(name), |name: &str| trees.down().join(name));
        match self {
            Pwd | Stat => Proof::Lines(1),
            Ls | LsLong => Proof::Lines(trees::FEW),
            LsMany => Proof::Lines(trees::MANY),
            LsTree => Proof::Lines(trees::DIRS * (trees::FILES + 1)),
            Create => Proof::File(made("x"), 0),
            WriteSmall => Proof::File(made("x"), trees::SMALL),
            WriteLarger => Proof::File(made("x"), trees::LARGER),
            ReadSmall => Proof::Output(trees::SMALL),
            ReadLarger => Proof::Output(trees::LARGER),
            CopyDown => Proof::File(down("x"), trees::MIDDLE),
            CopyUp => Proof::File(made("x"), trees::MIDDLE),
            Remove => Proof::Gone(made("x")),
            Mkdir => Proof::Dir(made(trees::DEEP)),
            CopyTreeDown => Proof::Tree(down("tree")),
            CopyTreeUp => Proof::Tree(made("tree")),
            RemoveTree => Proof::Gone(made("tree")),
            CopyLarge => Proof::File(down("x"), trees::LARGE),
            CopyParallel => Proof::Parts(trees.down()),
        }
    }

    /// That it was done, by what is in the trees or in its output.
    pub fn check(self, trees: &Trees, output: &Path) -> Result<()> {
        let is_whole = |path: &Path, expected: &[u8]| -> Result<()> {
            let came = fs::read(path).with_context(|| format!("{} was not made", path.display()))?;
            ensure!(came.len() == expected.len(), "{} has {} bytes", path.display(), came.len());
            ensure!(came == expected, "{} has other content than it should", path.display());
            Ok(())
        };
        match self.proof(trees) {
            Proof::Lines(least) => {
                let lines = fs::read(output)?.split(|&byte| byte == b'\n').count() - 1;
                ensure!(lines >= least, "{lines} lines where {least} were to come");
            }
            Proof::Output(bytes) => is_whole(output, &trees::content(bytes))?,
            Proof::File(path, bytes) => is_whole(&path, &trees::content(bytes))?,
            Proof::Dir(path) => ensure!(path.is_dir(), "{} was not made", path.display()),
            Proof::Gone(path) => ensure!(!path.try_exists()?, "{} is still there", path.display()),
            Proof::Tree(top) => {
                let content = trees::content(trees::SMALL);
                trees::tree_files().try_for_each(|path| is_whole(&top.join(path), &content))?;
            }
            Proof::Parts(dir) => {
                let content = trees::content(trees::LARGE / trees::PARTS);
                (0..trees::PARTS).try_for_each(|n| is_whole(&dir.join(trees::part(n)), &content))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_that_was_not_done_is_found_out() {
        let trees = Trees::make(&std::env::temp_dir()).unwrap();
        let output = trees.down().with_file_name("output");
        fs::write(&output, "").unwrap();
        for operation in Operation::ALL {
            operation.prepare(&trees).unwrap();
            operation.check(&trees, &output).expect_err(operation.name());
        }
        // As long as it should be, and something else.
        fs::write(trees.made().join("x"), vec![0; trees::SMALL as usize]).unwrap();
        let error = Operation::WriteSmall.check(&trees, &output).unwrap_err();
        assert!(error.to_string().ends_with("has other content than it should"), "{error}");
        trees::file(&trees.made().join("x"), trees::SMALL).unwrap();
        Operation::WriteSmall.check(&trees, &output).unwrap();
    }

    #[test]
    fn names_tell_operations_apart() {
        let mut names: Vec<&str> = Operation::ALL.iter().map(|operation| operation.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Operation::ALL.len());
    }
}
