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
    /// One look at a time: most who come meanwhile, as the streams of one file do, ask for the same way.
    looks: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    copies: bool,
    until: Instant,
}

impl Ways {
    /// With `all_copy` nobody is asked: so it is on all of them.
    pub fn new(all_copy: bool) -> Ways {
        Ways { all_copy, known: Mutex::default(), looks: tokio::sync::Mutex::default() }
    }

    /// Whether what a connection sends is copied before it is acknowledged: by its ends, which those of Unix sockets do not have, where pages lie with the
    /// peer too. `false` where that is not known.
    pub async fn copies(&self, ends: Option<(SocketAddr, SocketAddr)>) -> bool {
        let Some(ends @ (local, peer)) = ends else { return false };
        // Who cannot be told stays on the safe side.
        self.all_copy || self.copies_by(way(ends), move || egress::is_copied(local, peer).unwrap_or(false)).await
    }

    /// The same by what is known, or by a look, which may block.
    async fn copies_by(&self, way: Way, look: impl FnOnce() -> bool + Send + 'static) -> bool {
        if let Some(copies) = self.believed(&way) {
            return copies;
        }
        let told = async {
            let _one = self.looks.lock().await;
            match self.believed(&way) {
                Some(copies) => copies,
                None => {
                    let copies = Answer::blocking(move || Ok(look())).wait().await.unwrap_or(false);
                    self.believe(way, copies, TOLD);
                    copies
                }
            }
        };
        match timeout(LOOK, told).await {
            Ok(copies) => copies,
            Err(_) => {
                self.believe(way, false, TOLD);
                false
            }
        }
    }

    fn believed(&self, way: &Way) -> Option<bool> {
        self.known().get(way).filter(|known| Instant::now() < known.until).map(|known| known.copies)
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

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
    async fn who_asks_for_a_way_while_another_looks_at_it_does_not_look_himself() {
        let (ways, looks) = (Ways::new(false), Arc::new(AtomicUsize::new(0)));
        let ask = |n: u8| {
            let looks = looks.clone();
            ways.copies_by(way(n), move || {
                looks.fetch_add(1, Ordering::Relaxed);
                n != 2
            })
        };
        let told = futures_util::future::join_all([1, 1, 2, 1, 2].map(ask)).await;
        assert_eq!((told, looks.load(Ordering::Relaxed)), (vec![true, true, false, true, false], 2));
    }

    #[tokio::test]
    async fn a_look_that_takes_too_long_tells_nothing_and_holds_up_nobody_for_longer() {
        let ways = Ways::new(false);
        // The second may get its turn at the very end of its time: it has to wait too.
        let [(go, goes), (go_behind, goes_behind)] = [(); 2].map(|()| std::sync::mpsc::channel::<()>());
        let slow = ways.copies_by(way(1), move || goes.recv().is_err());
        let behind = ways.copies_by(way(2), move || goes_behind.recv().is_err());
        let began = Instant::now();
        assert_eq!(tokio::join!(slow, behind), (false, false));
        assert!(began.elapsed() >= LOOK, "it was not waited for");
        assert_eq!([1, 2].map(|n| ways.believed(&way(n))), [Some(false); 2]);
        drop((go, go_behind));
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
