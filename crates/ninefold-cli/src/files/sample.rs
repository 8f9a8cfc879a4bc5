//! What the tests of these commands start from.

use ninefold::client::{FileType, Metadata};
use ninefold::proto::Qid;
use ninefold::proto::attr::Time;

/// An empty plain file of mode 0644, of which a server tells no more than every dialect must.
pub fn metadata() -> Metadata {
    Metadata {
        qid: Qid::default(),
        kind: FileType::File,
        mode: 0o644,
        plan9_mode: None,
        size: 0,
        nlink: None,
        uid: None,
        gid: None,
        owner: None,
        group: None,
        modifier: None,
        device: None,
        block_size: None,
        blocks: None,
        accessed: Time::default(),
        modified: Time::default(),
        changed: None,
        born: None,
        link_target: None,
    }
}
