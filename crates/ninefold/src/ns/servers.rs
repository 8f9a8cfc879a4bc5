//! The servers of a name space: one connection to each, and one attach for each of its trees.
//!
//! Lock: one map, never held across an await.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ninefold_proto::dialect::Version;
use tokio::sync::OnceCell;

use crate::client::{Client, Error, Options};
use crate::transport::{Address, Place};

/// A tree of a server; without an aname the one that it gives who asks for none.
type Key = (Place, Option<Version>, Option<Vec<u8>>);

type Connections = HashMap<(Place, Option<Version>), Arc<OnceCell<Client>>>;

/// Shared by all private copies of a name space.
#[derive(Debug)]
pub(super) struct Servers {
    options: Options,
    trees: Mutex<HashMap<Key, Arc<OnceCell<Client>>>>,
    /// The first tree of each that was asked for, whose connection the others use.
    first: Mutex<Connections>,
}

impl Servers {
    pub fn new(options: Options) -> Servers {
        Servers { options, trees: Mutex::default(), first: Mutex::default() }
    }

    /// The client of a tree, connected and attached at its first use. One whose connection was lost is made anew: what was
    /// mounted through the old one stays lost.
    pub async fn client(&self, address: &Address) -> Result<Client, Error> {
        let server = (address.place.clone(), address.dialect);
        let cell = {
            let key = (address.place.clone(), address.dialect, address.aname.clone());
            let mut trees = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
            if trees.get(&key).is_some_and(|cell| cell.get().is_some_and(Client::is_over)) {
                trees.remove(&key);
            }
            trees.entry(key).or_default().clone()
        };
        let client = cell.get_or_try_init(|| async {
            let connection = {
                let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
                if first.get(&server).is_some_and(|cell| cell.get().is_some_and(Client::is_over)) {
                    first.remove(&server);
                }
                first.entry(server.clone()).or_default().clone()
            };
            let mut ours = false;
            let client = connection
                .get_or_try_init(|| {
                    ours = true;
                    let tree = Address { path: Vec::new(), ..address.clone() };
                    async move { Client::connect(&tree, self.options.clone()).await }
                })
                .await?;
            if ours { Ok(client.clone()) } else { client.attach(address.aname.as_deref().unwrap_or_default()).await }
        });
        client.await.cloned()
    }

    /// Every connection that is open.
    pub fn clients(&self) -> Vec<Client> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.values().filter_map(|cell| cell.get().cloned()).collect()
    }
}
