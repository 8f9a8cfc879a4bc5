//! What is known of the ways to peers: whether what is sent is copied on its way ([`egress`]), so that it is no page of a file any more when it is acknowledged.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::{Answer, egress};

/// For so long it is believed what the kernel told.
const TOLD: Duration = Duration::from_secs(10);

/// For so long the kernel is waited for, which tells at once unless devices are being set up.
const LOOK: Duration = Duration::from_secs(1);

/// Ways that this is remembered of.
const MOST: usize = 256;

/// From an address of this machine to one of a peer; of one that is known with its interface only, that too.
type Way = (IpAddr, IpAddr, u32);

fn way((local, peer): (SocketAddr, SocketAddr)) -> Way {
    let scope = if let SocketAddr::V6(peer) = peer { peer.scope_id() } else { 0 };
    (local.ip(), peer.ip(), scope)
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Ways {
    all_copy: bool,
    known: Mutex<HashMap<Way, Known>>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    copies: bool,
    until: Instant,
}

impl Ways {
    /// With `all_copy` nobody is asked: so it is on all of them.
    pub fn new(all_copy: bool) -> Ways {
        Ways { all_copy, known: Mutex::default() }
    }

    /// Whether what a connection sends is copied before it is acknowledged: by its ends, which those of Unix sockets do not have, where pages lie with the
    /// peer too. `false` where that is not known.
    pub async fn copies(&self, ends: Option<(SocketAddr, SocketAddr)>) -> bool {
        let Some(ends @ (local, peer)) = ends else { return false };
        if self.all_copy {
            return true;
        }
        let way = way(ends);
        let known = self.known().get(&way).copied();
        if let Some(Known { copies, until }) = known
            && Instant::now() < until
        {
            return copies;
        }
        // Who cannot be told stays on the safe side.
        let look = Answer::blocking(move || Ok(egress::is_copied(local, peer).unwrap_or(false)));
        let copies = matches!(timeout(LOOK, look.wait()).await, Ok(Ok(true)));
        self.believe(way, copies, TOLD);
        copies
    }

    /// For `time` no use is made of it that what this connection sends is copied on its way.
    pub fn mistrust(&self, ends: (SocketAddr, SocketAddr), time: Duration) {
        self.believe(way(ends), false, time);
    }

    fn believe(&self, way: Way, copies: bool, time: Duration) {
        let (now, mut known) = (Instant::now(), self.known());
        let until = now + time;
        // What is known for worse is known for longer than a look tells.
        if known.get(&way).is_some_and(|known| !known.copies && until < known.until) {
            return;
        }
        if known.len() >= MOST {
            known.retain(|_, known| now < known.until);
        }
        // What is not trusted is not forgotten for what is.
        if known.len() >= MOST && !copies {
            known.retain(|_, known| !known.copies);
        }
        if known.len() < MOST || known.contains_key(&way) {
            known.insert(way, Known { copies, until });
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Way, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn end(address: [u8; 4]) -> SocketAddr {
        SocketAddr::new(address.into(), 1)
    }

    fn way(n: u8) -> Way {
        super::way((end([127, 0, 0, 1]), end([10, 0, 0, n])))
    }

    fn copies(ways: &Ways, way: Way) -> Option<bool> {
        ways.known().get(&way).map(|known| known.copies)
    }

    #[test]
    fn what_is_mistrusted_is_not_soon_trusted_again() {
        let ways = Ways::new(false);
        ways.mistrust((end([127, 0, 0, 1]), end([10, 0, 0, 1])), LONG);
        ways.believe(way(1), true, TOLD);
        assert_eq!(copies(&ways, way(1)), Some(false));
        ways.believe(way(2), false, TOLD);
        ways.believe(way(2), true, LONG);
        assert_eq!(copies(&ways, way(2)), Some(true));
    }

    #[test]
    fn no_more_are_remembered_than_there_is_room_for() {
        let ways = Ways::new(false);
        for n in 0..=255 {
            ways.believe(way(n), true, LONG);
        }
        let more = super::way((end([127, 0, 0, 2]), end([10, 0, 0, 1])));
        ways.believe(more, true, LONG);
        assert_eq!(copies(&ways, more), None);
        ways.known().values_mut().for_each(|known| known.until = Instant::now());
        ways.believe(more, true, LONG);
        assert_eq!((copies(&ways, more), ways.known().len()), (Some(true), 1));
    }

    #[test]
    fn what_is_not_trusted_has_room_as_long_as_anything_is() {
        let ways = Ways::new(false);
        for n in 0..=255 {
            ways.believe(way(n), n > 0, LONG);
        }
        let more = super::way((end([127, 0, 0, 2]), end([10, 0, 0, 1])));
        ways.believe(more, false, LONG);
        assert_eq!(
            [copies(&ways, way(0)), copies(&ways, way(1)), copies(&ways, more)],
            [Some(false), None, Some(false)]
        );
    }

    #[test]
    fn the_same_addresses_behind_two_interfaces_are_two_ways() {
        let here = "[fe80::1]:1".parse().unwrap();
        let behind =
            |interface| SocketAddr::V6(std::net::SocketAddrV6::new("fe80::2".parse().unwrap(), 1, 0, interface));
        assert_ne!(super::way((here, behind(1))), super::way((here, behind(2))));
        // Whatever the port.
        assert_eq!(
            super::way((end([10, 0, 0, 1]), "10.0.0.2:2".parse().unwrap())),
            super::way((end([10, 0, 0, 1]), end([10, 0, 0, 2])))
        );
    }

    #[tokio::test]
    async fn this_machine_is_reached_by_pages_unless_it_is_said_otherwise() {
        let here = "127.0.0.1:1".parse().unwrap();
        for all_copy in [false, true] {
            assert_eq!(Ways::new(all_copy).copies(Some((here, here))).await, all_copy);
            assert!(!Ways::new(all_copy).copies(None).await);
        }
    }
}
