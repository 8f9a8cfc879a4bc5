//! `ninefold find`.

use super::World;
use crate::args::Find;

pub async fn run(args: Find, world: &World) -> anyhow::Result<()> {
    let _ = (args, world);
    anyhow::bail!("find is not built yet")
}
