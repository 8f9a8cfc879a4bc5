//! A temporary file that a request which goes with a connection's own may have made: [`Left`].

use ninefold::client::Client;
use ninefold::transport::Address;

use super::temporaries::{Entry, Temporaries};

/// It may be there. Dropped, it is removed when the server has told what became of it.
pub struct Left {
    /// There until it is known.
    entry: Option<Entry>,
    temporaries: Temporaries,
    client: Client,
    path: Vec<u8>,
}

impl Left {
    /// What `client` is about to make at `shown`.
    pub fn at(shown: &Address, temporaries: &Temporaries, client: &Client) -> Left {
        let entry = Some(temporaries.file(shown));
        Left { entry, temporaries: temporaries.clone(), client: client.clone(), path: shown.path.clone() }
    }

    /// It is not there.
    pub fn gone(mut self) {
        if let Some(entry) = self.entry.take() {
            entry.gone();
        }
    }

    /// It is there, and another's to remove.
    pub fn into_entry(mut self) -> Option<Entry> {
        self.entry.take()
    }

    /// The same to be looked for by another connection.
    pub fn by(mut self, client: &Client) -> Left {
        Left {
            entry: self.entry.take(),
            temporaries: self.temporaries.clone(),
            client: client.clone(),
            path: self.path.clone(),
        }
    }

    /// Removes it, if it is there.
    pub async fn remove(mut self) {
        let removed = self.client.unlink(&self.path, false).await;
        if let Some(entry) = self.entry.take() {
            entry.removed(&removed);
        }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let Some(entry) = self.entry.take() else { return };
        let (client, path) = (self.client.clone(), std::mem::take(&mut self.path));
        self.temporaries.spawn(async move { entry.find_out_at(&client, &path).await });
    }
}
