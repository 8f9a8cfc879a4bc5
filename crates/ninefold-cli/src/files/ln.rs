//! `ninefold ln`.

use super::World;
use crate::args::Ln;

pub async fn run(args: Ln, world: &World) -> anyhow::Result<()> {
    let _ = (args, world);
    anyhow::bail!("ln is not built yet")
}
