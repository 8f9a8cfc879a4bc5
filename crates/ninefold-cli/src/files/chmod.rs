//! `ninefold chmod`.

use super::World;
use crate::args::Chmod;

pub async fn run(args: Chmod, world: &World) -> anyhow::Result<()> {
    let _ = (args, world);
    anyhow::bail!("chmod is not built yet")
}
