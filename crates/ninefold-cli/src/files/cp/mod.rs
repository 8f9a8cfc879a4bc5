//! `ninefold cp`: files and trees between here and servers, and between servers.
//!
//! [`targets`] says where each source goes, [`tree`] goes through directories and keeps files on the way, [`file`] copies
//! one. A file is read by a [`reader`], cut where it is zeros ([`zeros`]), and written by a [`dest::Sink`], here by a thread
//! ([`here_file`]), there by writes that are on the way together ([`there_file`]). It is written beside its name ([`part`])
//! and renamed when it is whole.
//!
//! Everything runs within one future, except what must not be given up half-way (requests that make and rename files) and
//! what may wait for a disk: Ctrl-C drops that future, and with it everything is given up and tidied.

mod cx;
mod dest;
mod digest;
mod facts;
mod file;
mod filter;
mod here;
mod here_file;
mod here_part;
mod off;
mod part;
mod progress;
mod reader;
mod source;
mod special;
mod targets;
mod there;
mod there_file;
mod there_part;
mod tree;
mod trouble;
mod zeros;

use std::cell::{Cell, RefCell};
use std::time::Instant;

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

/// Copies a tree as it is to a name that is free, for `mv` where no rename leads: what changes meanwhile is a failure.
pub async fn whole(from: Address, to: Address, world: &World) -> anyhow::Result<()> {
    let args = Cp {
        places: vec![Place::Remote(from), Place::Remote(to)],
        recursive: true,
        preserve: true,
        jobs: Cp::JOBS,
        resume: false,
        checksum: false,
        no_stream: false,
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
    allow_many_files();
    let how = How {
        preserve: args.preserve,
        resume: args.resume,
        checksum: args.checksum,
        umask: world.umask,
        owners: Default::default(),
        temporaries: world.temporaries.clone(),
    };
    let cx = Cx {
        how,
        recursive: args.recursive,
        strict,
        dry_run: args.dry_run,
        json: args.json,
        filter: Filter::new(&args.include, &args.exclude)?,
        world,
        progress: Progress::new(args.quiet),
        out: Mutex::new(Out::new()),
        unread: Cell::new(false),
        tally: RefCell::new(Tally::default()),
        lost: Cell::new(false),
        in_place: RefCell::default(),
        roots: RefCell::default(),
    };
    let tops = targets::resolve(&cx, args.places).await?;
    tree::copy(&cx, tops, args.jobs.into()).await?;
    cx.summary(began).await?;
    cx.progress.finish();
    Ok(cx.out.into_inner().finish().await?)
}

/// Directories stay open while what is in them is copied: as many as are allowed may be open, not only as many as are
/// usual. What forbids it is told when a file cannot be opened.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
