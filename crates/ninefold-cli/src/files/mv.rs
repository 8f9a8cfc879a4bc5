//! `ninefold mv`.

use super::World;
use crate::args::Mv;

pub async fn run(args: Mv, world: &World) -> anyhow::Result<()> {
    let _ = (args, world);
    anyhow::bail!("mv is not built yet")
}
