//! The command line of `ninefold lab`: a lab that stays until it is told to end, and what is done with it from a shell.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use rustix::event::PollFlags;

use crate::control::{Control, Request};
use crate::keeper::{MTU, MTU_MIN, Plan};
use crate::lab::{end, is_ready, keep};
use crate::line::Count;
use crate::shape::{Change, Direction, End};
use crate::stats::{Side, Stats};
use crate::units::{Both, Queue, Rate, Share, Time};
use crate::{enter, keeper};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a lab: a client's and a server's network, 10.9.0.1 and 10.9.0.2, and a link between them
    ///
    /// It stays until `lab down`. Where a value may be given for each direction, one value holds for both; A,B is A towards the
    /// server and B towards the client.
    Up {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        options: ShapeOptions,
        /// The largest packet, in bytes
        #[arg(long, value_name = "BYTES", default_value_t = MTU, value_parser = clap::value_parser!(u16).range(i64::from(MTU_MIN)..))]
        mtu: u16,
    },
    /// Run a command in the client's network
    ///
    /// Its exit status is taken over, and signals are passed on. It is killed when this command or the lab ends.
    Client(Run),
    /// Run a command in the server's network
    ///
    /// Its exit status is taken over, and signals are passed on. It is killed when this command or the lab ends.
    Server(Run),
    /// Change the link; what is not named stays as it is
    Set {
        #[command(flatten)]
        name: Name,
        #[command(flatten)]
        options: ShapeOptions,
    },
    /// Cut the link: packets on their way are dropped, and all that come until it is healed
    Cut(Directions),
    /// Let packets through again
    Heal(Directions),
    /// Reset TCP connections: both ends get a RST at once, and what they send further is answered with one
    Reset {
        #[command(flatten)]
        name: Name,
        /// Only connections that have this port at either end
        #[arg(long)]
        port: Option<u16>,
    },
    /// Stop all processes in an end, as if its programs hung: its kernel still acknowledges what comes
    Freeze {
        end: End,
        #[command(flatten)]
        name: Name,
    },
    /// Continue all processes in an end
    Thaw {
        end: End,
        #[command(flatten)]
        name: Name,
    },
    /// Print what each direction does and what passed
    Stats {
        #[command(flatten)]
        name: Name,
        /// One JSON object
        #[arg(long)]
        json: bool,
    },
    /// End the lab and everything that runs in it
    Down {
        #[command(flatten)]
        name: Name,
    },
    /// The lab's own first process
    #[command(hide = true)]
    Keep { plan: String },
    /// The lab's own second process
    #[command(hide = true)]
    KeepInner { plan: String },
}

#[derive(Debug, Args)]
pub struct Name {
    /// Which lab, when there are several
    #[arg(long, default_value = "default")]
    name: String,
}

#[derive(Debug, Args)]
pub struct Run {
    #[command(flatten)]
    name: Name,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    words: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Directions {
    /// Only this direction
    direction: Option<Direction>,
    #[command(flatten)]
    name: Name,
}

impl Directions {
    fn list(&self) -> Vec<Direction> {
        self.direction.map_or(Direction::BOTH.to_vec(), |direction| vec![direction])
    }
}

#[derive(Debug, Args)]
pub struct ShapeOptions {
    /// Half of it is the delay of each direction
    #[arg(long, value_name = "TIME", conflicts_with = "delay")]
    rtt: Option<Time>,
    /// How long a packet takes in one direction, behind the queue: 25ms, 0.5ms, 250us
    #[arg(long, value_name = "TIME[,TIME]")]
    delay: Option<Both<Time>>,
    /// Each packet takes up to so much longer; none overtakes the one before, and waits for it
    #[arg(long, value_name = "TIME[,TIME]")]
    jitter: Option<Both<Time>>,
    /// Bits of IP packets in a second: 10mbit, 1gbit, or none for no limit
    #[arg(long, value_name = "RATE[,RATE]")]
    rate: Option<Both<Rate>>,
    /// What may wait for its turn: 100p packets, 9000b, 64k or 2m bytes, or auto: what a round trip carries, at least 150,000 bytes
    #[arg(long, value_name = "SIZE[,SIZE]")]
    queue: Option<Both<Queue>>,
    /// The share of packets that are lost: 0.1%
    #[arg(long, value_name = "SHARE[,SHARE]")]
    loss: Option<Both<Share>>,
    /// The share of packets that are held back, so that others overtake
    #[arg(long, value_name = "SHARE[,SHARE]")]
    reorder: Option<Both<Share>>,
    /// How long those are held back [default: 1ms]
    #[arg(long, value_name = "TIME[,TIME]")]
    reorder_by: Option<Both<Time>>,
    /// Chance is drawn from this number: the same number, the same fate of each direction's n-th packet
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
}

impl ShapeOptions {
    /// What becomes different towards the server and towards the client.
    fn changes(&self) -> [Change; 2] {
        let half = self.rtt.map(|rtt| Time(rtt.0 / 2));
        Direction::BOTH.map(|direction| {
            let time = |both: Option<Both<Time>>| one(both, direction).map(|time: Time| -> Duration { time.0 });
            let share = |both: Option<Both<Share>>| one(both, direction).map(|share: Share| share.0);
            Change {
                delay: half.map(|half| half.0).or(time(self.delay)),
                jitter: time(self.jitter),
                rate: one(self.rate, direction).map(|rate: Rate| rate.0),
                queue: one(self.queue, direction),
                loss: share(self.loss),
                reorder: share(self.reorder),
                reorder_by: time(self.reorder_by),
            }
        })
    }
}

fn one<T: Copy>(both: Option<Both<T>>, direction: Direction) -> Option<T> {
    let both = both?;
    match direction {
        Direction::ToServer => both.to_server,
        Direction::ToClient => both.to_client,
    }
}

/// Runs a command of the lab. The process must have one thread.
pub fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Up { name, options, mtu } => up(&name.name, options, *mtu)?,
        Command::Client(Run { name, words }) => return enter::run(&name.name, End::Client, words),
        Command::Server(Run { name, words }) => return enter::run(&name.name, End::Server, words),
        Command::Set { name, options } => {
            let [to_server, to_client] = options.changes();
            let request = Request::Set { changes: Box::new([to_server, to_client]), seed: options.seed };
            Control::connect(&name.name)?.order(&request)?;
        }
        Command::Cut(directions) => Control::connect(&directions.name.name)?.order(&Request::Cut(directions.list()))?,
        Command::Heal(directions) => {
            Control::connect(&directions.name.name)?.order(&Request::Heal(directions.list()))?
        }
        Command::Reset { name, port } => {
            let count = Control::connect(&name.name)?.count(&Request::Reset(*port))?;
            print(&format!("connections reset: {count}\n"))?;
        }
        Command::Freeze { end, name } => {
            let count = Control::connect(&name.name)?.count(&Request::Freeze(*end))?;
            print(&format!("processes stopped: {count}\n"))?;
        }
        Command::Thaw { end, name } => {
            let count = Control::connect(&name.name)?.count(&Request::Thaw(*end))?;
            print(&format!("processes continued: {count}\n"))?;
        }
        Command::Stats { name, json } => {
            let stats = Control::connect(&name.name)?.stats()?;
            print(&if *json { format!("{}\n", serde_json::to_string(&stats)?) } else { table(&stats) })?;
        }
        Command::Down { name } => down(&name.name)?,
        Command::Keep { plan } => return Ok(keeper::outer(plan)),
        Command::KeepInner { plan } => return Ok(keeper::inner(plan)),
    }
    Ok(ExitCode::SUCCESS)
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output")
}

fn up(name: &str, options: &ShapeOptions, mtu: u16) -> Result<()> {
    let mut plan = Plan::new(name.to_owned(), true);
    let [to_server, to_client] = options.changes();
    to_server.apply(&mut plan.to_server);
    to_client.apply(&mut plan.to_client);
    plan.mtu = mtu;
    plan.seed = options.seed.unwrap_or(0);
    plan.check()?;
    let program = std::env::current_exe().context("cannot tell where this program lies")?;
    let mut keeper = keep(&program, &plan)?;
    let which = if name == "default" { String::new() } else { format!(" --name {name}") };
    let address = End::Server.address();
    let told = print(&format!(
        "the lab '{name}' is up: client {}, server {address}\n  \
         ninefold lab server{which} -- ninefold serve DIR --listen 9p://{address} --insecure\n  \
         ninefold lab client{which} -- ninefold ls 9p://{address}\n  \
         ninefold lab down{which}\n",
        End::Client.address()
    ));
    // Before it is taken over: a lab of which this command fails does not stay.
    if told.is_err() {
        end(&mut keeper, None)?;
        return told;
    }
    let mut lifeline = keeper.stdin.take().context("the lab's process has no input")?;
    lifeline.write_all(b"\n").context("the lab ended at once")
}

/// Ends a lab and waits until nothing of it is left.
fn down(name: &str) -> Result<()> {
    let mut control = Control::connect(name)?;
    let keeper = control.keeper()?;
    control.order(&Request::Down)?;
    if !is_ready(&keeper, PollFlags::IN)? {
        rustix::process::pidfd_send_signal(&keeper, rustix::process::Signal::KILL).context("cannot end the lab")?;
        if !is_ready(&keeper, PollFlags::IN)? {
            bail!("the lab '{name}' does not end: a process in it waits for a disk, or the machine has too much to do");
        }
    }
    Ok(())
}

/// For people.
fn table(stats: &Stats) -> String {
    let sides = [&stats.to_server, &stats.to_client];
    let mut out = format!("{:<22}{:>24}{:>24}\n", format!("MTU {}", stats.mtu), "to the server", "to the client");
    let mut row = |name: &str, tell: &dyn Fn(&Side) -> String| {
        out.push_str(&format!("{name:<22}{:>24}{:>24}\n", tell(sides[0]), tell(sides[1])));
    };
    let milliseconds = |time: Duration| format!("{} ms", time.as_nanos() as f64 / 1e6);
    let measured = |nanoseconds: u64| format!("{:.3} ms", nanoseconds as f64 / 1e6);
    let percent = |share: f64| format!("{} %", (share * 1e8).round() / 1e6);
    row("link", &|side| if side.is_cut { "cut" } else { "whole" }.to_owned());
    row("delay", &|side| milliseconds(side.shape.delay));
    row("jitter", &|side| milliseconds(side.shape.jitter));
    row("rate", &|side| side.shape.rate.map_or("none".into(), |rate| format!("{} Mbit/s", rate as f64 / 1e6)));
    row("queue", &|side| format!("{} = {}", side.shape.queue, side.shape.queue_limit()));
    row("loss", &|side| percent(side.shape.loss));
    row("reordered", &|side| format!("{} by {}", percent(side.shape.reorder), milliseconds(side.shape.reorder_by)));
    type Tell = fn(&Side) -> Count;
    let counts: [(&str, Tell); 11] = [
        ("offered", |side| side.counters.offered),
        ("delivered", |side| side.counters.delivered),
        ("on the way", |side| side.counters.on_the_way),
        ("held back", |side| side.counters.reordered),
        ("dropped: lost", |side| side.counters.lost),
        ("dropped: queue full", |side| side.counters.queue_full),
        ("dropped: cut", |side| side.counters.cut),
        ("dropped: reset", |side| side.counters.reset),
        ("dropped: too many", |side| side.counters.overrun),
        ("not IPv4", |side| side.care.foreign),
        ("not taken", |side| side.care.undeliverable),
    ];
    for (name, count) in counts {
        row(name, &|side| format!("{} = {} B", count(side).packets, count(side).bytes));
    }
    row("late by over 0.2 ms", &|side| format!("{}, at most {}", side.care.late, measured(side.care.latest_ns)));
    row("not looked at for", &|side| format!("at most {}", milliseconds(Duration::from_nanos(side.care.unwatched_ns))));
    row("missed by the link", &|side| side.missed.to_string());
    out.push_str(&format!("connections: {}\n", stats.connections.len()));
    for connection in &stats.connections {
        out.push_str(&format!("  {} - {}\n", connection.client, connection.server));
    }
    out
}
