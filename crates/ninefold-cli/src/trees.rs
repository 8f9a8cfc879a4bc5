//! The trees that can be exported.

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use ninefold::server::FileServer;

/// A directory of this machine.
pub fn directory(dir: &Path) -> anyhow::Result<Arc<dyn FileServer>> {
    bail!("{}: this build cannot export a directory", dir.display())
}

/// A tree in memory.
pub fn memory() -> anyhow::Result<Arc<dyn FileServer>> {
    bail!("this build cannot export a tree in memory")
}
