//! A small file that is copied to where a server has none: made, written, given its attributes and its name in one round trip
//! ([`Node::put`](ninefold::client::Node::put)). What cannot be done so leaves nothing, and is for [`super::there_file`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use ninefold::client::{Client, NewFile, Step, Unput};
use ninefold::proto::Errno;
use ninefold::proto::attr::SetAttr;
use tokio::sync::oneshot;

use super::dest::How;
use super::facts::Facts;
use super::part::random_part_name;
use super::there::Dir;
use super::trouble::Cause;

/// Writes `data` to a new file in `dir` that is to be like `source`, by requests of `client`; whether that was done. In a task,
/// because what was given up may have made a file. Owner and group are left out where they may not be given.
/// A server that cannot do it for any file is remembered ([`How::no_puts`]).
pub async fn put(
    dir: &Arc<Dir>,
    client: &Client,
    name: &[u8],
    data: Bytes,
    source: &Facts,
    how: &How,
) -> Result<bool, Cause> {
    let mut tried = Vec::new();
    loop {
        let set = if how.preserve { how.owners.attributes(source, &tried) } else { None };
        // Of a change of owner the bits do not survive that come with it: they take another request.
        if how.preserve && set.is_none() {
            return Ok(false);
        }
        match attempt(dir, client, name, data.clone(), (source, set), how).await? {
            Put::Done => {
                how.owners.were_refused(tried);
                return Ok(true);
            }
            Put::Refused(Some((Step::Set, Errno::EPERM | Errno::EINVAL | Errno::EACCES))) => {
                match set.map(|set| (set.uid, set.gid)) {
                    None | Some((None, None)) => return Ok(false),
                    Some(pair) => tried.push(pair),
                }
            }
            Put::Refused(Some((Step::Rename, Errno::EINVAL | Errno::EOPNOTSUPP | Errno::ENOSYS))) => {
                how.no_puts.store(true, Ordering::Relaxed);
                return Ok(false);
            }
            Put::Refused(_) => return Ok(false),
        }
    }
}

/// What came of an attempt that left nothing behind.
enum Put {
    Done,
    /// What was refused of a file that had been made, and how.
    Refused(Option<(Step, Errno)>),
}

async fn attempt(
    dir: &Arc<Dir>,
    client: &Client,
    name: &[u8],
    data: Bytes,
    (source, set): (&Facts, Option<SetAttr>),
    how: &How,
) -> Result<Put, Cause> {
    // Until it has its owner, what is to keep its permissions is nobody else's to read.
    let perm = if how.preserve { 0o600 } else { how.mode(source) };
    let task = Task { dir: dir.clone(), client: client.clone(), name: name.to_vec(), perm, set, data };
    let (answer, done) = oneshot::channel();
    let temporaries = how.temporaries.clone();
    how.temporaries.spawn(async move {
        let part = random_part_name(&task.name);
        let entry = temporaries.file(task.dir.address_of(&part));
        let node = &task.dir.node;
        let result = match temporaries.unless_cut(task.put(&part)).await {
            Some(Ok(())) => {
                entry.gone();
                Ok(Put::Done)
            }
            Some(Err(Unput::Nothing(_))) => {
                entry.gone();
                Ok(Put::Refused(None))
            }
            Some(Err(unput @ (Unput::Taken | Unput::Short | Unput::Part { .. }))) => {
                entry.removed(&node.unlink_as(&task.client, &part, false).await);
                let refused = if let Unput::Part { step, error } = unput { Some((step, error.errno())) } else { None };
                Ok(Put::Refused(refused))
            }
            Some(Err(Unput::Mode(e) | Unput::Unknown(e))) => {
                let cause = Cause::from(e);
                // Of a connection that is gone nobody learns it.
                if !cause.is_loss() {
                    entry.find_out(node, &part).await;
                }
                Err(cause)
            }
            None => {
                entry.find_out(node, &part).await;
                Err(Cause::Here(Errno::ECANCELED))
            }
        };
        let _ = answer.send(result);
    });
    done.await.unwrap_or(Err(Cause::Here(Errno::ECANCELED)))
}

struct Task {
    dir: Arc<Dir>,
    client: Client,
    name: Vec<u8>,
    perm: u32,
    set: Option<SetAttr>,
    data: Bytes,
}

impl Task {
    async fn put(&self, part: &[u8]) -> Result<(), Unput> {
        let Task { name, perm, set, data, .. } = self;
        let new = NewFile { name, part, perm: *perm, set: set.as_ref(), mode: None, sync: false };
        self.dir.node.put(&self.client, &new, data.clone()).await
    }
}
