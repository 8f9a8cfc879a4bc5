//! `ninefold ln`: hard and symbolic links.

use ninefold::client::{Client, Error, Follow, Node, components};
use ninefold::proto::{Dialect, Errno, QidType};
use ninefold::transport::Address;

use super::destination::{into_directory, new_name, same_tree};
use super::target::Target;
use super::temporaries::Temporaries;
use super::{World, is_one_file};
use crate::args::Ln;
use crate::failure::Usage;
use crate::place::{self, Place};

pub async fn run(args: Ln, world: &World) -> anyhow::Result<()> {
    let link = args.link.remote("ln")?;
    let original = if args.symbolic { None } else { Some(hard(&args.target, link)?) };
    let Some(client) = world.client(link).await else { return Ok(()) };
    if args.symbolic && matches!(args.target.parse(), Ok(Place::Remote(_))) {
        world.report.warn(format_args!(
            "{link}: it leads to a file named '{}', which is hardly meant: a link's text is a path in the tree, like ../f",
            args.target
        ));
    }
    let made = make(&client, &args, original.as_ref(), link, world).await;
    if let Err(e) = made {
        world.complain(link, "cannot make the link", e).await;
    }
    Ok(())
}

/// The file that is to get another name.
fn hard(target: &str, link: &Address) -> anyhow::Result<Address> {
    match target.parse() {
        Ok(Place::Remote(address)) if same_tree(&address, link) => Ok(address),
        Ok(Place::Remote(address)) => Err(Usage::error(format!(
            "{address} and {link} are not of one server: a hard link is another name on the same one; copy it with \
             ninefold cp"
        ))),
        Ok(Place::Local(_)) => Err(Usage::error(format!(
            "'{target}' is no URL: a hard link is another name of a file of the same server; give -s for a symbolic \
             link to that text"
        ))),
        Err(e) => Err(Usage::error(e.to_string())),
    }
}

/// What a link is made to.
#[derive(Debug)]
enum Original {
    Text(Vec<u8>),
    File(Node),
}

impl Original {
    async fn link(&self, dir: &Node, name: &[u8]) -> Result<(), Error> {
        match self {
            Original::Text(text) => dir.symlink(name, text).await,
            Original::File(node) => dir.link(name, node).await,
        }
    }
}

async fn make(client: &Client, args: &Ln, hard: Option<&Address>, link: &Address, world: &World) -> Result<(), Error> {
    if client.dialect() == Dialect::Plan9 {
        let what = if args.symbolic { "make a symbolic link" } else { "make a hard link" };
        return Err(Error::Unsupported { what, dialect: client.dialect() });
    }
    let (original, base) = match hard {
        None => (Original::Text(args.target.clone().into_bytes()), base_of_text(&args.target)),
        Some(address) => {
            let node = match place::walk(client, &address.path, Follow::NotLast).await {
                Ok(node) => node,
                Err(e) => {
                    world.complain(address, "cannot make a link to it", e).await;
                    return Ok(());
                }
            };
            if node.qid().is_dir() {
                world
                    .report
                    .complain(format_args!("{address}: a directory has one name only: give -s for a symbolic link"));
                return Ok(());
            }
            (Original::File(node), components(&address.path)?.pop().unwrap_or_default())
        }
    };
    let into = match args.no_dereference && is_link(client, link).await? {
        true => None,
        false => into_directory(client, link, &base).await?,
    };
    let at = match into {
        Some(at) => at,
        None => new_name(client, link, false).await?,
    };
    match original.link(&at.dir, &at.name).await {
        Err(e) if e.errno() == Errno::EEXIST && args.force => replace(original, at, &world.temporaries).await,
        other => other,
    }
}

/// Whether there is a symbolic link under this very name.
async fn is_link(client: &Client, link: &Address) -> Result<bool, Error> {
    match place::walk(client, &link.path, Follow::NotLast).await {
        Ok(node) => Ok(node.qid().kind.has(QidType::SYMLINK)),
        Err(e) if e.is_not_found() => Ok(false),
        Err(e) => Err(e),
    }
}

fn base_of_text(text: &str) -> Vec<u8> {
    text.trim_end_matches('/').rsplit('/').next().unwrap_or_default().as_bytes().to_vec()
}

/// Made under a temporary name and renamed, so that there is a file under the name all the time.
async fn replace(original: Original, at: Target, temporaries: &Temporaries) -> Result<(), Error> {
    let old = at.walk().await?;
    if old.qid().is_dir() {
        return Err(Errno::EISDIR.into());
    }
    // A rename of one name of a file onto another does nothing and leaves both (rename(2)).
    if let Original::File(node) = &original
        && is_one_file(node, &old).await?
    {
        return Ok(());
    }
    let (temporary, shown) = at.temporary();
    let warning = format!("{shown}: this temporary link may be left: remove it");
    let (client, within) = (at.dir.client().clone(), temporaries.clone());
    let undo = {
        let (dir, temporary) = (at.dir.clone(), temporary.clone());
        async move { dir.unlink(&temporary, false).await }
    };
    let work = async move {
        original.link(&at.dir, &temporary).await?;
        let taken = at.take(&within, &at.dir, &temporary).await;
        if taken.is_err() {
            at.dir.unlink(&temporary, false).await?;
        }
        taken
    };
    temporaries.see_through(warning, &client, work, undo).await
}
