//! The servers that the process is connected to: one connection each, made by the first open of a file there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use nine::client::{Client, Error, Options};
use nine::proto::dialect::Version;
use nine::transport::{Address, Place};

use crate::fence::EIO;

/// What makes a connection: where, as which tree, in which dialect.
type Key = (Place, Option<Vec<u8>>, Option<Version>);

#[derive(Default)]
pub struct Servers {
    /// In the order of their first use, which numbers them.
    known: Mutex<HashMap<Key, Arc<Slot>>>,
}

struct Slot {
    number: u32,
    /// Locked while it is being connected to, so that a second thread waits and does not connect too.
    client: tokio::sync::Mutex<Option<Client>>,
}

impl Servers {
    /// The client of the server at `address`, and the number that the server has here. Where the connection has ended another is
    /// made; files that were open on it stay lost.
    pub async fn client(&self, address: &Address) -> Result<(Client, u32), Error> {
        let slot = self.slot(address);
        let mut client = slot.client.lock().await;
        if let Some(known) = client.as_ref().filter(|client| !client.is_over()) {
            return Ok((known.clone(), slot.number));
        }
        let made = match &address.place {
            // ssh blocks the signals that the thread blocks which starts it: SIGTERM and SIGHUP are to end it.
            Place::Ssh { .. } => Box::pin(Client::connect(address, Options::default())).await?,
            // On the thread of the connections, so that a thread which is made on the way, for a name to be looked up, takes no signals as that
            // takes none, and needs nothing of the caller's stack.
            _ => {
                let address = address.clone();
                let connecting = tokio::spawn(async move { Client::connect(&address, Options::default()).await });
                connecting.await.map_err(|_| Error::from(EIO))??
            }
        };
        *client = Some(made.clone());
        Ok((made, slot.number))
    }

    fn slot(&self, address: &Address) -> Arc<Slot> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let number = u32::try_from(known.len()).unwrap_or(u32::MAX);
        let key = (address.place.clone(), address.aname.clone(), address.dialect);
        let slot = || Arc::new(Slot { number, client: tokio::sync::Mutex::default() });
        known.entry(key).or_insert_with(slot).clone()
    }
}
