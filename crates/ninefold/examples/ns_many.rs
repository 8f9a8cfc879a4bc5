//! Many servers in one name space: prints how long it takes to mount them all and to stat a file of each, and the memory that
//! each costs the client (resident pages, /proc/self/statm).
//!
//! `ns_many serve HOST PORT COUNT` listens at COUNT ports from PORT on; `ns_many mount HOST PORT COUNT`, in another process, and
//! perhaps behind a link with a delay, mounts them.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::try_join_all;
use ninefold::client::{Follow, Options};
use ninefold::ns::{Flags, Namespace, Order};
use ninefold::server::Server;
use ninefold::transport::{Address, Listener, Place};
use ninefold::tree::ramfs::RamFs;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [what, host, port, count] = &words[..] else { return Err("ns_many serve|mount HOST PORT COUNT".into()) };
    let (first, count): (u16, u16) = (port.parse()?, count.parse()?);
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    let last = first.checked_add(count).ok_or("no port is above 65535")?;
    let addresses = (first..last).map(|port| Address::new(Place::Tcp { host: host.clone(), port }));
    match &what[..] {
        "serve" => serve(addresses).await,
        "mount" => mount(addresses.collect()).await,
        _ => Err("ns_many serve|mount HOST PORT COUNT".into()),
    }
}

async fn serve(addresses: impl Iterator<Item = Address>) -> Result<(), Box<dyn Error>> {
    for address in addresses {
        let listener = Listener::bind(&address).await?;
        let server = Server::builder().export("", Arc::new(RamFs::new()), false).build();
        tokio::spawn(async move {
            loop {
                let (stream, peer) = listener.accept().await;
                tokio::spawn(server.serve(stream, peer));
            }
        });
    }
    println!("listening");
    std::future::pending().await
}

async fn mount(addresses: Vec<Address>) -> Result<(), Box<dyn Error>> {
    let ns = Namespace::new(Options::default());
    let how = (Order::Replace, Flags::default());
    let name = |at: usize| format!("/n/{at}");
    let before = resident()?;
    let began = Instant::now();
    try_join_all(addresses.iter().enumerate().map(|(at, address)| ns.mount(address, name(at), how))).await?;
    let mounted = began.elapsed();
    try_join_all((0..addresses.len()).map(|at| ns.metadata(name(at), Follow::All))).await?;
    let all = began.elapsed();
    let each = resident()?.saturating_sub(before) / addresses.len().max(1);
    println!(
        "{} servers: mounted after {:.0} ms, a stat answered from each after {:.0} ms, {each} bytes each",
        addresses.len(),
        mounted.as_secs_f64() * 1e3,
        all.as_secs_f64() * 1e3,
    );
    Ok(())
}

/// Bytes of this process that are in memory.
fn resident() -> Result<usize, Box<dyn Error>> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: usize = statm.split(' ').nth(1).ok_or("/proc/self/statm has no second number")?.parse()?;
    Ok(pages * rustix::param::page_size())
}
