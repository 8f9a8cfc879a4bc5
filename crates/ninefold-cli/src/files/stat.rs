//! `ninefold stat`.

use super::World;
use crate::args::Stat;

pub async fn run(args: Stat, world: &World) -> anyhow::Result<()> {
    let _ = (args, world);
    anyhow::bail!("stat is not built yet")
}
