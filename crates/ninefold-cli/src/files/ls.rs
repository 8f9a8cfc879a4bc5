//! `ninefold ls`.

use super::World;
use crate::args::Ls;

pub async fn run(args: Ls, world: &World) -> anyhow::Result<()> {
    let _ = (args, world);
    anyhow::bail!("ls is not built yet")
}
