//! What it costs to resolve a path in a table of 10,000 mounts, with no server: prints nanoseconds and nodes visited for each.
//!
//! `cargo run --release -p ninefold --example ns_resolve`

use std::hint::black_box;
use std::time::Instant;

use ninefold::ns::{Flags, Mtab, Order, Path, Refused};

const MOUNTS: u32 = 10_000;
const ROUNDS: usize = 200;

fn main() -> Result<(), Refused> {
    let path = |text: String| Path::parse(text.as_bytes(), &Path::root()).expect("a path");
    let mut table = Mtab::new();
    let how = (Order::Replace, Flags::default());
    // A hundred directories of a hundred, and one directory of all of them.
    for (shape, name) in [(100, "tree"), (MOUNTS, "flat")] {
        for number in 0..MOUNTS {
            table.mount(number, &path(format!("/{name}/{}/m{number}", number % (MOUNTS / shape))), how, None)?;
        }
        let texts: Vec<String> =
            (0..MOUNTS).map(|n| format!("/{name}/{}/m{n}/usr/ken/lib/profile", n % (MOUNTS / shape))).collect();
        let paths: Vec<Path> = texts.iter().cloned().map(path).collect();
        let began = Instant::now();
        let mut visited = 0;
        for _ in 0..ROUNDS {
            for path in &paths {
                visited += black_box(table.resolve(black_box(path))).visited;
            }
        }
        let lookups = ROUNDS * paths.len();
        let resolve = began.elapsed().as_nanos() as f64 / lookups as f64;
        let began = Instant::now();
        for _ in 0..ROUNDS / 10 {
            for text in &texts {
                let path = Path::parse(black_box(text).as_bytes(), &Path::root()).expect("a path");
                black_box(table.resolve(&path).visited);
            }
        }
        let parsed = began.elapsed().as_nanos() as f64 / (lookups / 10) as f64;
        println!(
            "{name}: {} mounts, paths of 7 names: {resolve:.0} ns to resolve one, {parsed:.0} ns with its parsing, {:.1} nodes",
            table.len(),
            visited as f64 / lookups as f64
        );
        table = Mtab::new();
    }
    Ok(())
}
