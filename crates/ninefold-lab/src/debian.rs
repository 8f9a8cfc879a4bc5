//! Programs of Debian's packages that are measured beside ours.

use std::path::PathBuf;

use anyhow::Result;

/// What is not installed, and how to mend it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lacking {
    program: String,
    package: String,
}

impl std::fmt::Display for Lacking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is missing: apt install {}", self.program, self.package)
    }
}

impl std::error::Error for Lacking {}

/// Where a program lies; /usr/sbin is in the path of root only.
///
/// # Errors
/// `Lacking`, when it is not installed.
pub fn need(name: &str, package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/bin")]);
    let found = dirs.map(|dir| dir.join(name)).find(|path| path.is_file());
    Ok(found.ok_or_else(|| Lacking { program: name.to_owned(), package: package.to_owned() })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_installed_is_named_with_its_package() {
        let error = need("no-such-program", "its-package").unwrap_err();
        assert!(error.is::<Lacking>());
        assert_eq!(error.to_string(), "no-such-program is missing: apt install its-package");
        assert!(need("sh", "dash").unwrap().is_file());
    }
}
