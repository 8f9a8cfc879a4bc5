//! The `ninefold` command.
//!
//! `args` defines the command line, once, for parser, help, completions and manual; each subcommand has a file of its
//! own. Exit status: 0 done, 1 failed, 2 used wrongly.
#![forbid(unsafe_code)]
// They panic where nothing can be written: `2>/dev/full`, or a reader who has gone.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod args;
mod bench;
mod check;
mod demo;
mod doctor;
mod failure;
mod files;
mod given;
mod iostat;
mod ns;
mod out;
mod output;
mod place;
mod report;
mod serve;
mod servers;
mod signals;
mod trace;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use args::{Args, Command, Ns, NsCommand};
use failure::Usage;
use servers::Servers;

fn main() -> ExitCode {
    let args = Args::parse_from(args::with_two_dashes(std::env::args_os()));
    log_to_stderr(args.verbose);
    match run(args) {
        Ok(code) => code,
        Err(e) => {
            report::say(format_args!("{e:#}"));
            if e.is::<Usage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Serve(serve) => block_on(serve::run(serve, args.timeout)),
        Command::Ns(Ns { command: NsCommand::Show(show) }) => block_on(ns::show(show, args.timeout)),
        Command::Trace(args) => block_on(trace::run(args)),
        Command::Iostat(args) => block_on(iostat::run(args)),
        Command::Check(check) => block_on(check::run(check, args.timeout)),
        Command::Doctor(args) => doctor::run(&args),
        Command::Bench { words } => bench::bench(&words),
        Command::Lab { words } => bench::lab(&words),
        Command::Demo => block_on(demo::run()),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut args::whole(bench::described().as_ref()), "ninefold", &mut script);
            print(&script)
        }
        Command::Man => {
            let mut page = Vec::new();
            args::manual(args::whole(bench::described().as_ref()), &mut page)?;
            print(&page)
        }
        command => {
            let world = files::World::new(Servers::new(args.timeout, args.stats, !command.has_no_streams()));
            block_on(files::run(command, world))
        }
    }
}

fn print(bytes: &[u8]) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        // Whoever reads has seen enough: `ninefold man | head`.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        other => other.map(|()| ExitCode::SUCCESS).context("standard output"),
    }
}

/// How long a thread that may wait stays when there is nothing for it to do.
const IDLE: Duration = Duration::from_secs(60);

fn block_on(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    // On one processor too: where one thread waits for a disk, another one serves the others.
    let workers = std::thread::available_parallelism().map_or(2, |all| all.get().max(2));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        // Each session's user is looked up by one: to make a thread for it would take as long again.
        .thread_keep_alive(IDLE)
        .enable_all()
        .build()
        .context("cannot start threads")?;
    let result = runtime.block_on(command);
    // A read of a terminal, or of a disk that hangs, must not hold up the end.
    runtime.shutdown_background();
    result
}

/// Warnings by default; `RUST_LOG` says it more finely, `-v` says more.
fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let filter = EnvFilter::builder().with_default_directive(level.into());
    let filter = if verbose == 0 { filter.from_env_lossy() } else { filter.parse_lossy("") };
    let colours = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr);
    // It would tell on standard error, in a way that panics, that it cannot write to standard error.
    log.log_internal_errors(false).init();
}
