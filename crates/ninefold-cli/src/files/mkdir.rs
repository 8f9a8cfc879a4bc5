//! `ninefold mkdir`.

use super::World;
use crate::args::Mkdir;

pub async fn run(args: Mkdir, world: &World) -> anyhow::Result<()> {
    let _ = (args, world);
    anyhow::bail!("mkdir is not built yet")
}
