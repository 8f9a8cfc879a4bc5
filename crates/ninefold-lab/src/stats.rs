//! What a lab tells of itself.

use std::net::SocketAddrV4;

use serde::{Deserialize, Serialize};

use crate::line::Counters;
use crate::pump::Care;
use crate::shape::{Direction, Shape};

/// What a lab tells of itself. Each direction is told as of an instant of its own, one after the other.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Stats {
    /// Bytes of the largest packet.
    pub mtu: u16,
    pub to_server: Side,
    pub to_client: Side,
    /// TCP connections that were opened and neither reset nor closed by both ends, as far as the link has seen.
    pub connections: Vec<Connection>,
}

impl Stats {
    pub fn side(&self, direction: Direction) -> &Side {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }
}

/// One direction.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Side {
    pub shape: Shape,
    pub is_cut: bool,
    pub counters: Counters,
    pub care: Care,
    /// Packets that the kernel dropped because the link did not take them in time; they were never offered. Not 0: the machine is
    /// too slow for what was sent.
    pub missed: u64,
}

/// A TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Connection {
    /// Its address at the client's end, whichever end opened it.
    pub client: SocketAddrV4,
    pub server: SocketAddrV4,
}
