//! Thousands of files open, thousands looked at, many processes and threads at work: each costs a server a fid.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::thread;

use anyhow::{Context, Result};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::actor::Actor;
use crate::check::{Place, checks, holds, list, look, same};

checks![
    thousands_of_files_are_open_at_once,
    thousands_of_names_are_looked_at_and_kept,
    threads_make_and_remove_files_side_by_side,
    threads_make_one_file_once,
    processes_write_files_side_by_side,
];

fn thousands_of_files_are_open_at_once(place: &Place) -> Result<()> {
    const OPEN: u32 = 2000;
    const FILES: u32 = 200; // each is opened ten times over
    for n in 0..FILES {
        place.file(format!("{n}"), format!("{n}"))?;
    }
    let mut open = Vec::new();
    for n in 0..OPEN {
        let file = File::options().read(true).write(true).open(place.at(format!("{}", n % FILES)));
        open.push(file.with_context(|| format!("opening the {n}th file"))?);
    }
    for (n, file) in open.iter_mut().enumerate().step_by(7) {
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        same(text, format!("{}", n as u32 % FILES), "what is read")?;
    }
    open[42].write_all_at(b"!", 0)?;
    let mut got = [0; 1];
    open[242].read_exact_at(&mut got, 0)?;
    same(got[0], b'!', "by another descriptor of the same file")
}

fn thousands_of_names_are_looked_at_and_kept(place: &Place) -> Result<()> {
    const NAMES: u32 = 2000;
    for n in 0..NAMES {
        let path = place.at(format!("{n}"));
        mknodat(CWD, &path, FileType::RegularFile, Mode::from_raw_mode(0o600), 0).with_context(|| format!("{n}"))?;
    }
    for n in 0..NAMES {
        look(&place.at(format!("{n}")))?;
    }
    fs::write(place.at("0"), "still there")?;
    holds(&place.at("0"), "still there")?;
    same(list(place.root())?.len(), NAMES as usize, "names")
}

fn threads_make_and_remove_files_side_by_side(place: &Place) -> Result<()> {
    thread::scope(|scope| {
        let work = |thread: u32| -> Result<()> {
            for n in 0..15 {
                let path = place.at(format!("{thread}-{n}"));
                fs::write(&path, format!("{thread} {n}"))?;
                holds(&path, format!("{thread} {n}"))?;
                fs::remove_file(&path)?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..8).map(|n| scope.spawn(move || work(n))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("the thread"))
    })?;
    same(list(place.root())?.len(), 0, "names left")
}

fn threads_make_one_file_once(place: &Place) -> Result<()> {
    for round in 0..10 {
        let path = place.at(format!("{round}"));
        let made = thread::scope(|scope| {
            let threads: Vec<_> = (0..6).map(|_| scope.spawn(|| File::create_new(&path).is_ok())).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|made| *made).count()
        });
        same(made, 1, "threads that made it")?;
    }
    Ok(())
}

fn processes_write_files_side_by_side(place: &Place) -> Result<()> {
    let mut actors = (0..4).map(|_| Actor::start()).collect::<Result<Vec<_>>>()?;
    for round in 0..10 {
        for (n, actor) in actors.iter_mut().enumerate() {
            actor.begin(&[&"make", &place.at(format!("{n}-{round}")), &format!("{n} {round}")])?;
        }
        for actor in &mut actors {
            let answer = actor.answer_within(std::time::Duration::from_secs(20))?;
            same(answer, Some(Ok(String::new())), "a file made by a process")?;
        }
    }
    let mut log = File::create(place.at("log"))?;
    for n in 0..4 {
        for round in 0..10 {
            holds(&place.at(format!("{n}-{round}")), format!("{n} {round}"))?;
            writeln!(log, "{n} {round}")?;
        }
    }
    Ok(())
}
