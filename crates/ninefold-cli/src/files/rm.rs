//! `ninefold rm`: files and trees, through no symbolic link.

use ninefold::client::{Client, Error, FileType, Named, Node};
use ninefold::proto::{Dialect, Errno};
use ninefold::transport::Address;

use super::World;
use super::crawl::{SIGHT, Visitor, Way, crawl};
use super::target::Target;
use crate::args::Rm;
use crate::place::{ends_in_dots, says_directory};

/// What to do where a path ends in `.` or `..`: nobody may be sure which directory that is.
pub const NAME_IT: &str = "name the directory itself";

pub async fn run(args: Rm, world: &World) -> anyhow::Result<()> {
    let addresses = args.urls.iter().map(|place| place.remote("rm")).collect::<Result<Vec<_>, _>>()?;
    let Rm { recursive, force, dir, .. } = args;
    let removal = Removal { world, recursive, force, dir };
    for address in addresses {
        if let Err(e) = removal.one(address).await {
            removal.complain(address, e).await;
        }
    }
    Ok(())
}

/// Removes a directory and all that is in it; whether all of it is gone.
pub async fn tree(at: Target, world: &World) -> bool {
    let before = world.report.failures();
    crawl(&Removal { world, recursive: true, force: false, dir: false }, at, None).await;
    world.report.failures() == before
}

struct Removal<'a> {
    world: &'a World,
    recursive: bool,
    force: bool,
    dir: bool,
}

impl Removal<'_> {
    async fn one(&self, address: &Address) -> Result<(), Error> {
        let is_plain = !says_directory(&address.path) && !self.recursive && !self.dir;
        if is_plain {
            // Refused, it has done nothing: then it may be a directory.
            let unlink = async |client: &Client| client.unlink(&address.path, false).await;
            let Some((_, done)) = self.world.first(address, unlink).await else { return Ok(()) };
            if !matches!(&done, Err(e) if e.errno() == Errno::EISDIR) {
                return done;
            }
        }
        if ends_in_dots(&address.path) {
            self.world
                .report
                .complain(format_args!("{address}: cannot remove it: '.' and '..' are no names: {NAME_IT}"));
            return Ok(());
        }
        // What is to be gone into is listed at once, unless something else is tried first; anything else is not.
        let visit = async |client: &Client| client.visit_name(&address.path, SIGHT).await;
        let Some((_, named)) = self.world.first(address, visit).await else { return Ok(()) };
        let Named { dir, name, visited } = match named {
            Err(e) if e.errno() == Errno::EBUSY => {
                self.world.report.complain(format_args!(
                    "{address}: cannot remove it: it is the root of the tree: name what is in it, or remove it where it \
                     is served"
                ));
                return Ok(());
            }
            other => other?,
        };
        let at = Target::visited(dir, name, address)?;
        let visited = visited?;
        let node = visited.node.clone();
        match node.qid().is_dir() {
            // A symbolic link too: what it leads to is not what has the name.
            false if says_directory(&address.path) => Err(Errno::ENOTDIR.into()),
            false => at.dir.unlink(&at.name, false).await,
            true if self.recursive => {
                let begun = Some(visited).filter(|_| self.lists_at_once(node.client()));
                drop(node);
                crawl(self, at, begun).await;
                Ok(())
            }
            true if self.dir => at.dir.unlink(&at.name, true).await,
            true => {
                self.world.report.complain(format_args!(
                    "{address}: cannot remove it: it is a directory: give -r to remove it and all that is in it, or -d \
                     if it is empty"
                ));
                Ok(())
            }
        }
    }

    /// With -f what is not there is as good as removed.
    fn forgives(&self, e: &Error) -> bool {
        self.force && matches!(e.errno(), Errno::ENOENT | Errno::ENOTDIR)
    }

    async fn complain(&self, address: &Address, e: Error) {
        if !self.forgives(&e) {
            self.world.complain(address, "cannot remove it", e).await;
        }
    }

    fn done(&self, at: &Target, result: Result<(), Error>) -> bool {
        match result {
            Ok(()) => true,
            Err(e) => self.failed(at, "cannot remove it", e),
        }
    }
}

impl Visitor for Removal<'_> {
    fn lists_at_once(&self, client: &Client) -> bool {
        client.dialect() != Dialect::Plan9
    }

    /// In 9P2000 a link to a directory looks like the directory, and is removed itself (docs/semantics.md): what can be
    /// removed without going in is not gone into.
    async fn enter(&self, at: &Target, node: &Node) -> Way {
        let removed =
            node.client().dialect() == Dialect::Plan9 && at.dir.unlink_as(node.client(), &at.name, true).await.is_ok();
        if removed { Way::Past } else { Way::In }
    }

    async fn file(&self, at: &Target, _: FileType, client: &Client) -> bool {
        self.done(at, at.dir.unlink_as(client, &at.name, false).await)
    }

    async fn leave(&self, at: &Target, client: &Client) -> bool {
        self.done(at, at.dir.unlink_as(client, &at.name, true).await)
    }

    fn failed(&self, at: &Target, tried: &'static str, e: Error) -> bool {
        let forgiven = self.forgives(&e);
        if !forgiven {
            self.world.report.fail(at.own_address(), tried, e);
        }
        forgiven
    }
}
