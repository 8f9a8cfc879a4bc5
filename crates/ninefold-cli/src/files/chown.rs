//! `ninefold chown`.

use ninefold::client::{Client, Error, FileType, Follow, Node};
use ninefold::proto::attr::SetAttr;
use ninefold::transport::Address;
use nix::unistd::{Group, User};

use super::World;
use super::crawl::{Visitor, Way, crawl};
use super::target::Target;
use crate::args::Chown;
use crate::failure::Usage;
use crate::place;

pub async fn run(args: Chown, world: &World) -> anyhow::Result<()> {
    let addresses = args.urls.iter().map(|place| place.remote("chown")).collect::<Result<Vec<_>, _>>()?;
    let (uid, gid) = owners(&args.owner).map_err(Usage::error)?;
    let change = Change { owners: SetAttr { uid, gid, ..SetAttr::default() }, world };
    for address in addresses {
        if let Err(e) = change.one(address, args.recursive).await {
            world.complain(address, "cannot change the owner", e).await;
        }
    }
    Ok(())
}

/// `UID`, `UID:GID`, `:GID`, and `UID:` for the group that the user logs in with; each a number or a name of this
/// machine. A name of digits counts as a name, as POSIX has it.
fn owners(text: &str) -> Result<(Option<u32>, Option<u32>), String> {
    let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    let known = match user {
        "" => None,
        name => Some(User::from_name(name).map_err(|e| format!("'{name}': cannot read the users: {e}"))?),
    };
    let uid = match known.as_ref() {
        None => None,
        Some(Some(user)) => Some(user.uid.as_raw()),
        Some(None) => Some(number(user).ok_or_else(|| unknown(user, "user"))?),
    };
    let gid = match group {
        None => None,
        Some("") if user.is_empty() => None,
        Some("") => match known.flatten() {
            Some(user) => Some(user.gid.as_raw()),
            None => return Err(format!("'{text}': the group of user {user} is not known here: give it as {user}:GID")),
        },
        Some(name) => match Group::from_name(name).map_err(|e| format!("'{name}': cannot read the groups: {e}"))? {
            Some(group) => Some(group.gid.as_raw()),
            None => Some(number(name).ok_or_else(|| unknown(name, "group"))?),
        },
    };
    Ok((uid, gid))
}

/// All ones mean "leave it" (chown(2)).
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&id| id != u32::MAX)
}

fn unknown(name: &str, what: &str) -> String {
    format!("'{name}' is no {what} of this machine: give the number that it has where the files are")
}

struct Change<'a> {
    owners: SetAttr,
    world: &'a World,
}

impl Change<'_> {
    async fn one(&self, address: &Address, recursive: bool) -> Result<(), Error> {
        let Some(client) = self.world.client(address).await else { return Ok(()) };
        let node = place::walk(&client, &address.path, Follow::NotLast).await?;
        if !recursive || !node.qid().is_dir() {
            return node.set(&self.owners).await;
        }
        crawl(self, Target::itself(node, address), None).await;
        Ok(())
    }

    fn done(&self, at: &Target, result: Result<(), Error>) -> bool {
        match result {
            Ok(()) => true,
            Err(e) => self.failed(at, "cannot change the owner", e),
        }
    }
}

impl Visitor for Change<'_> {
    /// What may not be read may be once it is changed.
    fn lists_at_once(&self, _: &Client) -> bool {
        false
    }

    async fn enter(&self, at: &Target, node: &Node) -> Way {
        if self.done(at, node.set(&self.owners).await) { Way::In } else { Way::Failed }
    }

    async fn file(&self, at: &Target, _: FileType, client: &Client) -> bool {
        let changed = async { at.walk_as(client).await?.set(&self.owners).await };
        self.done(at, changed.await)
    }

    async fn leave(&self, _: &Target, _: &Client) -> bool {
        true
    }

    fn failed(&self, at: &Target, tried: &'static str, e: Error) -> bool {
        self.world.report.fail(at.own_address(), tried, e);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_numbers_or_names_and_each_may_be_left_out() {
        assert_eq!(owners("0"), Ok((Some(0), None)));
        assert_eq!(owners("root"), Ok((Some(0), None)));
        assert_eq!(owners("root:"), Ok((Some(0), Some(0))));
        assert_eq!(owners("12345:54321"), Ok((Some(12345), Some(54321))));
        assert_eq!(owners(":root"), Ok((None, Some(0))));
        assert_eq!(owners(":"), Ok((None, None)));
        for text in ["no such user", "-1", "4294967295", "4294967296", "1:no such group", "4294967000:"] {
            assert!(owners(text).is_err(), "{text}");
        }
    }
}
