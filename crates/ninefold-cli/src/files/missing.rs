//! What is missing when a file is not found: the file alone, or a directory on the way to it.

use ninefold::client::{Follow, components};
use ninefold::transport::Address;

use crate::servers::Servers;

/// What to say about a file that was not found; nothing when only its last name is missing.
pub async fn advice(servers: &Servers, address: &Address) -> Option<String> {
    let client = servers.client(address).await.ok()?;
    let names = components(&address.path).ok()?;
    let mut missing = None;
    // From the end: what exists is most often nearly all of it.
    for end in (1..names.len()).rev() {
        let path = names[..end].join(&b'/');
        match client.walk(&path, Follow::All).await {
            Err(e) if e.is_not_found() => missing = Some(path),
            _ => break,
        }
    }
    let path = [b"/", missing?.as_slice()].concat();
    let directory = Address { path, ..address.clone() };
    Some(format!("{directory} does not exist: check the path, or make it with ninefold mkdir -p"))
}
