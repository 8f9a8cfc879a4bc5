//! `ninefold chown`.

use super::World;
use crate::args::Chown;

pub async fn run(args: Chown, world: &World) -> anyhow::Result<()> {
    let _ = (args, world);
    anyhow::bail!("chown is not built yet")
}
