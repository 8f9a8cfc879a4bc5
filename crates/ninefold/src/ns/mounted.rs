//! A file of a server that has a name in a name space.

use std::fmt;
use std::sync::Arc;

use ninefold_proto::Qid;

use crate::client::nameop::Base;
use crate::client::{Client, Error, Node, components};
use crate::transport::Address;

/// A file that is mounted or bound. Its fid, if it is not the root's of its tree, is clunked with the last clone. Two are equal when
/// they are one file of one connection.
#[derive(Clone)]
pub struct Mounted(Arc<Inner>);

struct Inner {
    client: Client,
    /// `None`: the root of the tree.
    node: Option<Node>,
    qid: Qid,
    address: Address,
}

impl Mounted {
    /// The root of the client's tree; `address` has no path.
    pub(super) async fn root(client: Client, address: Address) -> Result<Mounted, Error> {
        let qid = Base::root(&client).qid().await?;
        Ok(Mounted(Arc::new(Inner { client, node: None, qid, address })))
    }

    /// A file that was walked to by `names` from `self`.
    pub(super) fn below<'n>(&self, node: Node, names: impl IntoIterator<Item = &'n [u8]>) -> Mounted {
        let address = self.address_below(names);
        let (client, qid) = (self.0.client.clone(), node.qid());
        Mounted(Arc::new(Inner { client, node: Some(node), qid, address }))
    }

    /// Where `names` below it are.
    pub(super) fn address_below<'n>(&self, names: impl IntoIterator<Item = &'n [u8]>) -> Address {
        let mut address = self.0.address.clone();
        for name in names {
            if address.path.last() != Some(&b'/') {
                address.path.push(b'/');
            }
            address.path.extend_from_slice(name);
        }
        address
    }

    /// Whether it was mounted from there, as far as the letters of both tell.
    pub(super) fn is_at(&self, other: &Address) -> bool {
        let own = &self.0.address;
        let tree =
            |address: &Address| (address.place.clone(), address.dialect, address.aname.clone().unwrap_or_default());
        let names = |address: &Address| components(&address.path).ok();
        tree(own) == tree(other) && names(own).is_some() && names(own) == names(other)
    }

    /// Where names below it are walked from, by `client`, which is of the same connection.
    pub(super) fn base<'a>(&'a self, client: &'a Client) -> Base<'a> {
        match &self.0.node {
            None => Base::root(client),
            Some(node) => Base::at(node, client),
        }
    }

    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// As it was when it was mounted.
    pub fn qid(&self) -> Qid {
        self.0.qid
    }

    /// Where it is: its server, and its path there.
    pub fn address(&self) -> &Address {
        &self.0.address
    }
}

impl PartialEq for Mounted {
    fn eq(&self, other: &Mounted) -> bool {
        let (one, two) = (&*self.0, &*other.0);
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        let same_file = (one.qid.path, one.qid.kind) == (two.qid.path, two.qid.kind);
        // Qids of two trees of a server may be the same.
        one.client.is_beside(&two.client) && one.address.aname == two.address.aname && same_file
    }
}

impl fmt::Debug for Mounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.address)
    }
}

impl fmt::Display for Mounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.address)
    }
}
