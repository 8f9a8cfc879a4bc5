//! `ninefold ls`: as ls(1) prints.
//!
//! What the dialect does not tell is `?`: the number of links in 9P2000, and in .u where the server does not tell it as
//! Linux's client expects. The blocks of `total` are those of [`show::disk`](super::show::disk).

use std::io::IsTerminal;

use futures_util::stream::{self, StreamExt};
use ninefold::client::{Client, FileType, Follow, Node, Visited};
use ninefold::proto::{Errno, QidType};
use term_grid::{Direction, Filling, Grid, GridOptions};

use super::World;
use super::look::json;
use super::look::long::Long;
use super::look::names::{self, Names};
use super::look::owners::Owners;
use super::look::show::{Clock, TimeStyle};
use super::look::tree::{self, Attributes, Item, Listing, Tree, Trouble, Wants, is_over, path};
use crate::args::Ls;
use crate::given::{self, Remote};
use crate::out::Out;
use crate::report::Failure;

/// Files of the command line that are looked at at a time.
const GIVEN_AT_A_TIME: usize = 32;

/// Columns between two names.
const GAP: usize = 2;

/// A file of the command line that is there.
struct Found {
    given: Remote,
    /// Not asked for with -d.
    visited: Option<Visited>,
    item: Item,
}

pub async fn run(args: Ls, world: &World) -> anyhow::Result<()> {
    let given = given::remote(args.urls.clone(), "ls")?;
    let alone = given.len() == 1;
    let headed = !alone || args.recursive;
    let names = Names::for_stdout();
    let long = args.long.then(|| Long {
        names,
        human: args.human_readable,
        owners: Owners::default(),
        clock: Clock::local(),
        times: args.time_style.unwrap_or_else(TimeStyle::from_env),
    });
    let form = match long {
        _ if args.json => Form::Json,
        Some(long) => Form::Long(long),
        None if std::io::stdout().is_terminal() && !args.one => Form::Columns(width()),
        None => Form::Names,
    };
    let mut ls = Listings { args, world, names, form, out: Out::new(), alone, printed: false };
    let (files, directories) = ls.look(given).await;
    ls.files(files, &directories).await?;
    for directory in directories {
        ls.directory(directory, headed).await?;
    }
    Ok(ls.out.finish().await?)
}

/// How files are printed.
enum Form {
    Names,
    /// As many columns as fit into so many characters.
    Columns(usize),
    Long(Long),
    Json,
}

/// A file of which no more is to be known than the walk told.
fn unasked(node: &Node, name: Vec<u8>) -> Item {
    let (kind, qid) = (FileType::from_qid(node.qid().kind), node.qid());
    Item { name, kind, qid, attributes: Attributes::NotAsked, target: None, descends: false }
}

/// Of the terminal, as ls(1) finds it.
fn width() -> usize {
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|&columns| columns > 0);
    told.or_else(|| terminal_size::terminal_size().map(|(width, _)| width.0.into())).unwrap_or(80)
}

struct Listings<'w> {
    args: Ls,
    world: &'w World,
    names: Names,
    form: Form,
    out: Out,
    /// One file is given.
    alone: bool,
    /// Something was, so that an empty line comes before the next directory.
    printed: bool,
}

impl Listings<'_> {
    fn wants_attributes(&self) -> bool {
        matches!(self.form, Form::Long(_) | Form::Json)
    }

    /// The files and the directories of the command line, each sorted.
    async fn look(&self, given: Vec<Remote>) -> (Vec<Found>, Vec<Found>) {
        let looks = stream::iter(given).map(|given| self.look_at(given)).buffered(GIVEN_AT_A_TIME);
        let mut looks = std::pin::pin!(looks);
        let mut all = Vec::new();
        while let Some(found) = looks.next().await {
            match found {
                Ok((found, client)) => {
                    if let Some(visited) = &found.visited {
                        client.join(visited.node.client());
                    }
                    all.push(found);
                }
                Err(failure) => self.world.report.complain(failure),
            }
        }
        all.sort_by(|a, b| a.given.key().cmp(&b.given.key()));
        all.into_iter().partition(|found| self.args.directory || found.item.kind != FileType::Dir)
    }

    /// As ls(1): a link to a directory stands for the directory, unless with -l or -d; any other for itself.
    async fn look_at(&self, given: Remote) -> Result<(Found, Client), Failure> {
        let name = given.word.clone().into_bytes();
        if self.args.directory {
            let (node, client) = given.walk_beside(self.world, Follow::NotLast).await?;
            let item = match self.wants_attributes() {
                true => tree::single(&node, name, true).await.map_err(|e| given.failed("cannot access", e))?,
                false => unasked(&node, name),
            };
            client.join(node.client());
            return Ok((Found { given, visited: None, item }, client));
        }
        let sight = self.wants().sight(self.alone);
        let visit = async |follow| given.visit_beside(self.world, follow, sight).await;
        let (visited, client) = if self.args.long {
            visit(Follow::NotLast).await?
        } else {
            match visit(Follow::All).await {
                // Where only names are printed, it is one whether it was come to through a link or not.
                Ok((visited, client)) if visited.node.qid().is_dir() || !self.wants_attributes() => (visited, client),
                Ok(_) => visit(Follow::NotLast).await?,
                Err(failure) if matches!(failure.error.errno(), Errno::ENOENT | Errno::ELOOP) => {
                    let link = visit(Follow::NotLast).await;
                    link.ok().filter(|(link, _)| link.node.qid().kind.has(QidType::SYMLINK)).ok_or(failure)?
                }
                Err(failure) => return Err(failure),
            }
        };
        let mut visited = visited;
        let node = &visited.node;
        // A directory's own attributes are only measured with those of files beside it.
        let item = if self.wants_attributes() && !(node.qid().is_dir() && self.alone) {
            match visited.looked.take() {
                Some(looked) => tree::looked(looked, name),
                None => tree::single(node, name, true).await.map_err(|e| given.failed("cannot access", e))?,
            }
        } else {
            unasked(node, name)
        };
        Ok((Found { given, visited: Some(visited), item }, client))
    }

    /// What is to be known of what is in a directory.
    fn wants(&self) -> Wants {
        Wants {
            attributes: self.wants_attributes(),
            targets: true,
            hidden: self.args.all,
            dots: self.args.all && !self.args.json,
            sorted: true,
            levels: if self.args.recursive { usize::MAX } else { 0 },
        }
    }

    async fn files(&mut self, files: Vec<Found>, directories: &[Found]) -> anyhow::Result<()> {
        let (given, items): (Vec<Remote>, Vec<Item>) = files.into_iter().map(|file| (file.given, file.item)).unzip();
        for (given, item) in given.iter().zip(&items) {
            self.complain_of_target(given, b"", item);
        }
        if let Form::Json = self.form {
            for (given, item) in given.iter().zip(&items) {
                self.out.json(&json::item(given, b"", item)).await?;
            }
            return Ok(());
        }
        self.printed = !items.is_empty();
        let directories: Vec<&Item> = directories.iter().map(|directory| &directory.item).collect();
        self.print(&items, &directories).await
    }

    async fn directory(&mut self, Found { given, visited, .. }: Found, headed: bool) -> anyhow::Result<()> {
        let Some(visited) = visited else { return Ok(()) };
        let mut tree = Tree::new(visited, self.wants());
        while let Some(Listing { below, items, trouble }) = tree.next().await {
            if trouble.as_ref().is_none_or(Trouble::came_later) {
                if headed && !self.args.json {
                    let blank = if self.printed { "\n" } else { "" };
                    let name = self.names.show(&given.join(&below));
                    self.out.put(&[blank.as_bytes(), &name, b":\n"].concat()).await?;
                }
                self.printed = true;
                if self.list(&given, &below, &items).await? {
                    break;
                }
            }
            if let Some(complaint) = trouble.map(|trouble| trouble.of(given.join_text(&below))) {
                self.world.report.complain(&complaint);
                if complaint.is_over() {
                    break;
                }
            }
            self.out.pause().await?;
        }
        Ok(())
    }

    /// Prints what a directory holds. Gives whether nothing more will come from the server.
    async fn list(&mut self, given: &Remote, below: &[u8], items: &[Item]) -> anyhow::Result<bool> {
        let mut over = false;
        for item in items {
            let Attributes::Failed(e) = &item.attributes else {
                self.complain_of_target(given, &path(below, &item.name), item);
                continue;
            };
            let file = given.join_text(&path(below, &item.name));
            self.world.report.complain(Failure::new(file, "cannot access", e.clone()));
            over = is_over(e);
            if over {
                // The others have the same to tell.
                break;
            }
        }
        match &self.form {
            Form::Json => {
                for item in items {
                    self.out.json(&json::item(given, &path(below, &item.name), item)).await?;
                }
                return Ok(over);
            }
            Form::Long(long) => {
                let total = long.total(items);
                self.out.put(total.as_bytes()).await?;
            }
            Form::Names | Form::Columns(_) => {}
        }
        self.print(items, &[]).await?;
        Ok(over)
    }

    fn complain_of_target(&self, given: &Remote, below: &[u8], item: &Item) {
        if let Some(Err(e)) = &item.target {
            let failure = Failure::new(given.join_text(below), "cannot read symbolic link", e.clone());
            self.world.report.complain(failure);
        }
    }

    /// Prints files that are listed together. `others` are measured with them: ls(1) does so with the directories of its
    /// command line.
    async fn print(&mut self, items: &[Item], others: &[&Item]) -> anyhow::Result<()> {
        match &mut self.form {
            Form::Long(long) => {
                let widths = long.measure(items.iter().chain(others.iter().copied())).await;
                for item in items {
                    self.out.put(&long.line(item, &widths)).await?;
                }
            }
            Form::Columns(width) => {
                let cells: Vec<String> = items.iter().map(|item| names::tame(&item.name)).collect();
                let (direction, filling) = (Direction::TopToBottom, Filling::Spaces(GAP));
                let grid = Grid::new(cells, GridOptions { direction, filling, width: *width });
                self.out.put(grid.to_string().as_bytes()).await?;
            }
            Form::Names | Form::Json => {
                for item in items {
                    let mut line = self.names.show(&item.name);
                    line.push(b'\n');
                    self.out.put(&line).await?;
                }
            }
        }
        Ok(())
    }
}
