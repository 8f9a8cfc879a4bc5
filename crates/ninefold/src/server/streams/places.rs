//! The places of a server's streams, and who has them.
//!
//! Nobody gets one when he has as many as are free: so whoever takes what he can leaves as much again to others, the next of whom may
//! take half of that, and a dozen who all take what they can leave one to who has none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ninefold_proto::{Errno, Error};

use super::origin::Origin;
use crate::server::Server;
use crate::transport::Peer;

#[derive(Debug)]
pub(super) struct Places {
    /// So many there are.
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Of each that has one.
    of: HashMap<Origin, usize>,
}

impl Places {
    pub fn new(most: usize) -> Places {
        Places { most, taken: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are taken.
    pub fn taken(&self) -> usize {
        self.lock().all
    }

    /// Whether half of them are taken: then who has one is to use it.
    pub fn are_short(&self) -> bool {
        self.taken() >= self.most.div_ceil(2)
    }

    fn take(&self, origin: Origin) -> Result<(), Error> {
        let mut taken = self.lock();
        let free = self.most.saturating_sub(taken.all);
        let has = taken.of.get(&origin).copied().unwrap_or(0);
        if free == 0 {
            return Err(Error::with_text(Errno::EMFILE, "too many streams at this server"));
        }
        if has >= free {
            return Err(Error::with_text(Errno::EMFILE, "too many streams of this address at this server"));
        }
        taken.all += 1;
        taken.of.insert(origin, has + 1);
        Ok(())
    }

    fn give_back(&self, origin: Origin) {
        let mut taken = self.lock();
        taken.all -= 1;
        if let Some(has) = taken.of.get_mut(&origin) {
            *has -= 1;
            if *has == 0 {
                taken.of.remove(&origin);
            }
        }
    }
}

/// A place among the streams of the server. Dropped, it is free.
#[derive(Debug)]
pub(super) struct Place {
    server: Arc<Server>,
    origin: Origin,
}

impl Place {
    /// EMFILE where there is none for this peer.
    pub fn take(server: &Arc<Server>, peer: &Peer) -> Result<Place, Error> {
        let origin = Origin::of(peer);
        server.streams.places.take(origin)?;
        Ok(Place { server: server.clone(), origin })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.server.streams.places.give_back(self.origin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_of(places: &Places, user: u32) -> usize {
        (0..).take_while(|_| places.take(Origin::User(user)).is_ok()).count()
    }

    #[test]
    fn who_takes_what_he_can_leaves_as_much_to_others() {
        let places = Places::new(4096);
        let taken: Vec<usize> = (0..14).map(|user| all_of(&places, user)).collect();
        assert_eq!(taken, [2048, 1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1, 1, 0]);
        let told = |user| places.take(Origin::User(user)).unwrap_err().to_string();
        assert_eq!(told(20), "too many streams at this server");
        places.give_back(Origin::User(0));
        assert_eq!(told(0), "too many streams of this address at this server");
        assert!(places.take(Origin::User(20)).is_ok());
    }

    #[test]
    fn what_is_given_back_is_as_if_it_had_never_been_taken() {
        let places = Places::new(3);
        let origin = Origin::User(1);
        assert!(!places.are_short());
        assert!(places.take(origin).is_ok() && !places.are_short());
        assert!(places.take(origin).is_ok() && places.are_short());
        assert!(places.take(origin).is_err());
        places.give_back(origin);
        places.give_back(origin);
        assert!(places.taken() == 0 && places.lock().of.is_empty());
        assert_eq!(all_of(&Places::new(0), 1), 0);
        assert_eq!(all_of(&Places::new(1), 1), 1);
    }
}
