//! `ninefold rm`.

use super::World;
use crate::args::Rm;

pub async fn run(args: Rm, world: &World) -> anyhow::Result<()> {
    let _ = (args, world);
    anyhow::bail!("rm is not built yet")
}
