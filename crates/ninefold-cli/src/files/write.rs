//! `ninefold write`.

use super::World;
use crate::args::Write;

pub async fn run(args: Write, world: &World) -> anyhow::Result<()> {
    let _ = (args, world);
    anyhow::bail!("write is not built yet")
}
