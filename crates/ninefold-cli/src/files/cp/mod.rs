//! `ninefold cp`: files and trees between here and servers, and between servers.
//!
//! [`lone`] tries to be done at once; else [`targets`] says where each source goes, of a large one [`ahead`] makes the beginning there, [`tree`] goes through directories and keeps files on the way, [`file`] copies
//! one. A file is read by a [`reader`], cut where it is zeros ([`zeros`]), and written by a [`dest::Sink`], here by a thread
//! ([`here_file`]), there by writes that are on the way together ([`there_file`]). It is written beside its name ([`part`])
//! and renamed when it is whole.
//!
//! Everything runs within one future, except what must not be given up half-way (requests that make and rename files) and
//! what may wait for a disk: Ctrl-C drops that future, and with it everything is given up and tidied.

mod ahead;
mod blocks;
mod cx;
mod dest;
mod digest;
mod facts;
mod file;
mod filter;
mod here;
mod here_file;
mod here_part;
mod lone;
mod off;
mod part;
mod pour;
mod progress;
mod reader;
mod source;
mod special;
mod targets;
mod there;
mod there_file;
mod there_part;
mod there_small;
mod tree;
mod trouble;
mod turn;
mod zeros;

use std::cell::{Cell, RefCell};
use std::time::Instant;

use ninefold::client::Places;
use ninefold::transport::Address;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Mutex;

use super::World;
use crate::args::Cp;
use crate::out::Out;
use crate::place::Place;
use cx::{Cx, Tally};
use dest::How;
use filter::Filter;
use progress::Progress;
pub use reader::STREAMED;
use turn::Room;

/// Small files on their way at a time: 4 MB in files of 4 KiB, and what depth costs in round trips files cost only beyond that.
const SMALL: usize = 1024;

/// Bytes of small files in memory at a time.
const ROOM: usize = 32 << 20;

/// Descriptors for all else: standard ones, connections, files that are compared.
const OTHERS: u64 = 64;

/// Other files at a time.
const LARGE: usize = 8;

/// Copies a tree as it is to a name that is free, for `mv` where no rename leads: what changes meanwhile is a failure.
pub async fn whole(from: Address, to: Address, world: &World) -> anyhow::Result<()> {
    let args = Cp {
        places: vec![Place::Remote(from), Place::Remote(to)],
        recursive: true,
        preserve: true,
        jobs: None,
        resume: false,
        checksum: false,
        no_stream: false,
        streams: 8,
        dry_run: false,
        include: Vec::new(),
        exclude: Vec::new(),
        quiet: true,
        json: false,
    };
    copy(args, world, true).await
}

pub async fn run(args: Cp, world: &World) -> anyhow::Result<()> {
    copy(args, world, false).await
}

async fn copy(args: Cp, world: &World, strict: bool) -> anyhow::Result<()> {
    let began = Instant::now();
    let descriptors = allow_many_files();
    let how = How {
        preserve: args.preserve,
        resume: args.resume,
        checksum: args.checksum,
        umask: world.umask,
        owners: Default::default(),
        no_puts: Default::default(),
        temporaries: world.temporaries.clone(),
    };
    let cx = Cx {
        how,
        recursive: args.recursive,
        strict,
        streams: args.streams.into(),
        streaming: Cell::new(0),
        dry_run: args.dry_run,
        json: args.json,
        filter: Filter::new(&args.include, &args.exclude)?,
        world,
        progress: Progress::new(args.quiet),
        out: Mutex::new(Out::new()),
        unread: Cell::new(false),
        small: Places::new(args.jobs.map_or(SMALL, usize::from)),
        room: Room::new(ROOM),
        large: Places::new(args.jobs.map_or(LARGE, usize::from)),
        tally: RefCell::new(Tally::default()),
        lost: Cell::new(false),
        in_place: RefCell::default(),
        roots: RefCell::default(),
    };
    if lone::copy(&cx, &args.places).await? {
        cx.summary(began).await?;
        cx.progress.finish();
        return Ok(cx.out.into_inner().finish().await?);
    }
    let tops = targets::resolve(&cx, args.places).await?;
    // Each has at most one file of this machine open.
    let most = descriptors.saturating_sub(tree::DESCRIPTORS + OTHERS).max(1);
    let jobs = args.jobs.map_or(2 * SMALL, usize::from).min(usize::try_from(most).unwrap_or(usize::MAX));
    tree::copy(&cx, tops, jobs).await?;
    cx.summary(began).await?;
    cx.progress.finish();
    Ok(cx.out.into_inner().finish().await?)
}

/// Directories stay open while what is in them is copied: as many as are allowed may be open, not only as many as are
/// usual. What forbids it is told when a file cannot be opened. How many may be open then.
fn allow_many_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
