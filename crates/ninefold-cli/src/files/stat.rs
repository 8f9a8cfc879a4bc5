//! `ninefold stat`: in the default format of GNU's stat(1). What the dialect does not tell is `-`: the device in all of
//! them; in .u and 9P2000 blocks and the times of change and birth; in 9P2000 links and numbers of owners too.

use futures_util::stream::{self, StreamExt};
use ninefold::client::{Client, FileType, Follow, Metadata, Node};
use ninefold::proto::Errno;

use super::World;
use super::look::json;
use super::look::names::Names;
use super::look::owners::{Owners, Who};
use super::look::show::{self, Clock};
use super::look::tree::{self, Item};
use crate::args::Stat;
use crate::given::{self, Remote};
use crate::out::Out;
use crate::place::says_directory;
use crate::report::Failure;

/// Files that are asked for at a time.
const AT_A_TIME: usize = 32;

/// What stands for a field that is not told.
const UNTOLD: &str = "-";

pub async fn run(args: Stat, world: &World) -> anyhow::Result<()> {
    let given = given::remote(args.urls, "stat")?;
    let (names, clock, mut owners) = (Names::for_stdout(), Clock::local(), Owners::default());
    let mut out = Out::new();
    let follow = if args.dereference { Follow::All } else { Follow::NotLast };
    let is_one = given.len() == 1;
    let asked = stream::iter(given).map(async |given| match is_one {
        true => look_first(given, follow, world).await,
        false => look(given, follow, world).await,
    });
    let mut asked = std::pin::pin!(asked.buffered(AT_A_TIME));
    while let Some(found) = asked.next().await {
        let (given, item) = match found {
            Ok((given, item, beside)) => {
                if let Some((node, client)) = beside {
                    client.join(node.client());
                }
                (given, item)
            }
            Err(failure) => {
                world.report.complain(failure);
                continue;
            }
        };
        if let Some(Err(e)) = &item.target {
            world.report.complain(given.failed("cannot read symbolic link", e.clone()));
        }
        if args.json {
            out.json(&json::item(&given, b"", &item)).await?;
        } else if let Some(metadata) = item.metadata() {
            owners.learn(std::iter::once(metadata)).await;
            out.put(&text(names, &item, metadata, &owners, &clock)).await?;
        }
        out.pause().await?;
    }
    Ok(out.finish().await?)
}

/// A file, and what it was asked with where that was beside others.
type Found = (Remote, Item, Option<(Node, Client)>);

async fn look(given: Remote, follow: Follow, world: &World) -> Result<Found, Failure> {
    let (node, client) = given.walk_beside(world, follow).await?;
    let item = tree::single(&node, given.word.clone().into_bytes(), true).await;
    let item = item.map_err(|e| given.failed("cannot access", e))?;
    Ok((given, item, Some((node, client))))
}

/// The same for the only one: with the handshake.
async fn look_first(given: Remote, follow: Follow, world: &World) -> Result<Found, Failure> {
    let path = &given.address.path;
    // A slash at the end asks for a directory, through a link if need be, as Linux has it.
    let is_dir = says_directory(path);
    let follow = if is_dir { Follow::All } else { follow };
    let (_, looked) = world.servers.first(&given.address, async |client| client.look(path, follow).await).await?;
    let looked = match looked {
        Ok(looked) if is_dir && looked.metadata.kind != FileType::Dir => Err(Errno::ENOTDIR.into()),
        other => other,
    };
    let looked = looked.map_err(|e| given.failed("cannot access", e))?;
    let item = tree::looked(looked, given.word.clone().into_bytes());
    Ok((given, item, None))
}

fn text(names: Names, item: &Item, metadata: &Metadata, owners: &Owners, clock: &Clock) -> Vec<u8> {
    let mut out = b"  File: ".to_vec();
    out.extend(names.show(&item.name));
    if let Some(Ok(target)) = &item.target {
        out.extend_from_slice(b" -> ");
        out.extend(names.show(target));
    }
    let number = |n: Option<u64>| n.map_or(UNTOLD.to_owned(), |n| n.to_string());
    let (size, blocks, unit) = (metadata.size, number(metadata.blocks), number(metadata.block_size));
    let kind = kind(metadata);
    let lines = format!("\n  Size: {size:<10}\tBlocks: {blocks:<10} IO Block: {unit:<6} {kind}\n");
    out.extend_from_slice(lines.as_bytes());
    let (inode, links) = (metadata.qid.path, number(metadata.nlink));
    let device = match metadata.device {
        Some((major, minor)) => format!("{links:<5} Device type: {major},{minor}"),
        None => links,
    };
    out.extend_from_slice(format!("Device: {UNTOLD}\tInode: {inode:<10}  Links: {device}\n").as_bytes());
    let (bits, mode) = (metadata.mode, show::mode(metadata.kind, metadata.mode));
    out.extend_from_slice(format!("Access: ({bits:04o}/{mode})  Uid: (").as_bytes());
    owner(&mut out, metadata.uid, owners.user(metadata));
    out.extend_from_slice(b")   Gid: (");
    owner(&mut out, metadata.gid, owners.group(metadata));
    let time = |time| clock.full(time);
    let (accessed, modified) = (time(metadata.accessed), time(metadata.modified));
    let changed = metadata.changed.map_or(UNTOLD.to_owned(), time);
    let born = metadata.born.map_or(UNTOLD.to_owned(), time);
    let times = format!(")\nAccess: {accessed}\nModify: {modified}\nChange: {changed}\n Birth: {born}\n");
    out.extend_from_slice(times.as_bytes());
    out
}

/// A number and a name, each at the right of its column.
fn owner(out: &mut Vec<u8>, number: Option<u32>, who: Who) {
    let number = number.map_or(UNTOLD.to_owned(), |n| n.to_string());
    let name = match who {
        Who::Name(name) => name,
        // stat(1)'s word for a number that has no name.
        Who::Number(_) => b"UNKNOWN".to_vec(),
        Who::Unknown => UNTOLD.into(),
    };
    let blanks = " ".repeat(8_usize.saturating_sub(name.len()));
    out.extend_from_slice(format!("{number:>5}/{blanks}").as_bytes());
    out.extend(name);
}

fn kind(metadata: &Metadata) -> &'static str {
    match metadata.kind {
        FileType::File if metadata.size == 0 => "regular empty file",
        FileType::File => "regular file",
        FileType::Dir => "directory",
        FileType::Symlink => "symbolic link",
        FileType::CharDevice => "character special file",
        FileType::BlockDevice => "block special file",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}
