//! `ninefold truncate`.

use super::World;
use crate::args::Truncate;

pub async fn run(args: Truncate, world: &World) -> anyhow::Result<()> {
    let _ = (args, world);
    anyhow::bail!("truncate is not built yet")
}
