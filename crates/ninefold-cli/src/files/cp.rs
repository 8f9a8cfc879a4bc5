//! `ninefold cp`.

use super::World;
use crate::args::Cp;

pub async fn run(args: Cp, world: &World) -> anyhow::Result<()> {
    let _ = (args, world);
    anyhow::bail!("cp is not built yet")
}
