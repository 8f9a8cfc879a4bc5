//! mmap(2), and programs that are run from where they lie.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use vmap::{Flush, Map, MapMut};

use crate::check::{Place, checks, chmod, holds, noise, same};

checks![
    private_maps_show_the_file,
    private_maps_keep_what_is_written_to_themselves,
    private_maps_outlive_the_name,
    shared_maps_for_reading_show_the_file,
    shared_maps_write_the_file,
    shared_maps_see_each_other,
    programs_are_run,
    scripts_are_run,
];

fn private_maps_show_the_file(place: &Place) -> Result<()> {
    let content = noise(20_000, 1);
    let file = File::open(place.file("file", &content)?)?;
    let map: MapMut = MapMut::with_options().copy().len(content.len()).map(&file).context("mmap")?;
    same(map.to_vec(), content, "the map")
}

fn private_maps_keep_what_is_written_to_themselves(place: &Place) -> Result<()> {
    let path = place.file("file", noise(9000, 2))?;
    let mut map: MapMut = MapMut::with_options().copy().len(9000).map(&File::open(&path)?).context("mmap")?;
    map[5000..5005].copy_from_slice(b"wrote");
    same(&map[5000..5005], b"wrote", "the map")?;
    holds(&path, noise(9000, 2))
}

fn private_maps_outlive_the_name(place: &Place) -> Result<()> {
    let content = noise(50_000, 3);
    let path = place.file("file", &content)?;
    let map: MapMut = MapMut::with_options().copy().len(content.len()).map(&File::open(&path)?).context("mmap")?;
    fs::remove_file(&path)?;
    same(map.to_vec(), content, "the map of a file that is closed and removed")
}

fn shared_maps_for_reading_show_the_file(place: &Place) -> Result<()> {
    let content = noise(30_001, 4);
    let file = File::open(place.file("file", &content)?)?;
    let map: Map = Map::with_options().len(content.len()).map(&file).context("mmap")?;
    same(map.to_vec(), content, "the map")
}

fn shared_maps_write_the_file(place: &Place) -> Result<()> {
    let path = place.file("file", noise(10_000, 5))?;
    let file = OpenOptions::new().read(true).write(true).open(&path)?;
    let mut map: MapMut = MapMut::with_options().len(10_000).map(&file).context("mmap")?;
    map[4090..4102].copy_from_slice(b"over an edge");
    map.flush(&file, Flush::Sync).context("msync")?;
    let mut want = noise(10_000, 5);
    want[4090..4102].copy_from_slice(b"over an edge");
    holds(&path, &want)?;
    let mut got = vec![0; 12];
    file.read_exact_at(&mut got, 4090)?;
    same(got.as_slice(), b"over an edge", "by read(2)")
}

fn shared_maps_see_each_other(place: &Place) -> Result<()> {
    let path = place.file("file", [0; 4096])?;
    let file = || OpenOptions::new().read(true).write(true).open(&path);
    let mut a: MapMut = MapMut::with_options().len(4096).map(&file()?).context("mmap")?;
    let b: MapMut = MapMut::with_options().len(4096).map(&file()?).context("mmap")?;
    a[100] = 42;
    same(b[100], 42, "the other map")
}

fn programs_are_run(place: &Place) -> Result<()> {
    let path = place.at("true");
    fs::copy("/bin/true", &path).context("copying /bin/true")?;
    chmod(&path, 0o755)?;
    let status = Command::new(&path).status().context("running it")?;
    ensure!(status.success(), "it ended with {status}");
    Ok(())
}

fn scripts_are_run(place: &Place) -> Result<()> {
    let path = place.file("script", "#!/bin/sh\necho from \"$0\"\n")?;
    chmod(&path, 0o755)?;
    let output = Command::new(&path).output().context("running it")?;
    same(String::from_utf8(output.stdout)?, format!("from {}\n", path.display()), "what it printed")
}
