//! `ninefold du`.

use super::World;
use crate::args::Du;

pub async fn run(args: Du, world: &World) -> anyhow::Result<()> {
    let _ = (args, world);
    anyhow::bail!("du is not built yet")
}
