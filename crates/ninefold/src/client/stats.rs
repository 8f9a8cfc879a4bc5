//! What a client counted: messages, bytes, and the longest causal chain.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ninefold_proto::dialect::Version;

/// What passed on one connection so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stats {
    /// With its suffixes.
    pub dialect: Version,
    /// Bytes of the largest frame agreed.
    pub msize: u32,
    /// Messages by name, `Twalk`, `Rwalk`; those that never passed are left out.
    pub messages: BTreeMap<&'static str, u64>,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// The longest causal chain: a request's depth is 1 + the greatest depth of any reply that caused it.
    pub round_trips: u32,
}

/// A thread of cause and effect: the depth of the deepest reply that what follows may depend on.
///
/// Every [`Client`](super::Client) has one, and what is made through it shares it. What runs side by side takes a fork
/// ([`Client::fork`](super::Client::fork)), or each would count as the cause of the other. Within a lane every earlier
/// reply counts as a cause, so a figure can be too high and never too low.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane(Arc<AtomicU32>);

impl Lane {
    pub fn depth(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn raise(&self, depth: u32) {
        self.0.fetch_max(depth, Ordering::Relaxed);
    }

    pub fn fork(&self) -> Lane {
        Lane(Arc::new(AtomicU32::new(self.depth())))
    }
}
