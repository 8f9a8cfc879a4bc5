//! A directory and all that it lies in, made in one group: one round trip where the server speaks `.n1`.
//!
//! At each level Tmkdir is asked, and then the walk to the name: a directory that is there is as good as one that is made, so only
//! whether the walk comes to a directory decides. It goes through no symbolic link: what lies behind one, and everything else that
//! stands in the way, is for who goes step by step and is told what it is. Nothing of it is undone then.

use ninefold_proto::{Errno, Qid};

use super::chain::{Promise, Spot};
use super::client::Client;
use super::error::Error;
use super::metadata::Metadata;
use super::node::Node;
use super::resolve::components;

/// Levels that go into one group: two requests each, beside the attach, the first walk and the last look, of 64 that a tag may have.
const LEVELS: usize = 30;

/// A directory that is there.
#[derive(Debug)]
pub struct MadeDir {
    pub node: Node,
    /// It was made, and not found.
    pub made: bool,
    pub metadata: Result<Metadata, Error>,
}

impl Client {
    /// Makes the directory at `path` with the permissions `perm`, and those above it that are not there with `perm_above`, each cut
    /// down by the server as it sees fit. `None`: it is not known to be there; the server does not speak `.n1`, the path is the
    /// root's, or something stands in the way.
    pub async fn mkdir_all(
        &self,
        path: impl AsRef<[u8]>,
        perm_above: u32,
        perm: u32,
    ) -> Result<Option<MadeDir>, Error> {
        let names = components(path.as_ref())?;
        if !self.version().is_n1() || names.is_empty() {
            return Ok(None);
        }
        let mut chain = self.chain();
        let (mut at, walked) = chain.walk_root(&[]).await?;
        let mut begun = Some(walked);
        let mut left = names.len();
        for names in names.chunks(LEVELS) {
            let mut levels = Vec::with_capacity(names.len());
            for name in names {
                left -= 1;
                let perm = if left == 0 { perm } else { perm_above };
                let made = chain.mkdir(&at, name, perm).await?;
                let (next, walked) = chain.walk_spot(&at, &[name]).await?;
                levels.push((made, walked));
                // The one above is clunked when its requests are answered.
                at = next;
            }
            let metadata = if left == 0 { Some(chain.stat(&at).await?) } else { None };
            if let Some(walked) = begun.take() {
                walked.take().await?;
            }
            let Some((qid, made)) = came(levels).await? else { return Ok(None) };
            if let Some(metadata) = metadata {
                let metadata = metadata.take().await;
                return Ok(Some(MadeDir { node: Spot::into_node(at, qid)?, made, metadata }));
            }
        }
        Ok(None)
    }
}

/// The qid of the last level's directory and whether it was made, if each of the levels is a directory.
async fn came(levels: Vec<(Promise<()>, Promise<Vec<Qid>>)>) -> Result<Option<(Qid, bool)>, Error> {
    let mut last = None;
    for (made, walked) in levels {
        let made = heard(made.take().await)?.is_some();
        let qid = heard(walked.take().await)?.and_then(|qids| qids.last().copied());
        let Some(qid) = qid.filter(|qid| qid.is_dir()) else { return Ok(None) };
        last = Some((qid, made));
    }
    Ok(last)
}

/// `None` where the server refused it.
fn heard<B>(told: Result<B, Error>) -> Result<Option<B>, Error> {
    match told {
        Ok(told) => Ok(Some(told)),
        Err(Error::Refused(_)) => Ok(None),
        Err(e) if e.errno() == Errno::EBADF => Ok(None),
        Err(e) => Err(e),
    }
}
