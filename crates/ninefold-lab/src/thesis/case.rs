//! What is measured in one place of a table: which way a file of how many bytes goes, for how many clients at a time, over which link.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Which way the file goes, seen from the client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Read,
    Write,
}

impl Direction {
    pub fn name(self) -> &'static str {
        match self {
            Direction::Read => "reading",
            Direction::Write => "writing",
        }
    }
}

/// The link, and the two kernels at its ends.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Link {
    /// Of a round trip, in microseconds.
    pub rtt_us: u64,
    /// Bits a second in each direction; 0 is no limit.
    pub rate: u64,
    /// Of a million packets, so many are lost, in each direction.
    pub loss_ppm: u32,
    /// The congestion control of both ends.
    pub control: String,
    /// The most bytes of a socket's buffers, in both ends; 0: the machine's.
    pub buffers: u64,
}

impl Link {
    pub fn rtt(&self) -> Duration {
        Duration::from_micros(self.rtt_us)
    }

    /// The time of so many bytes on it.
    pub fn bits(&self, bytes: u64) -> Duration {
        if self.rate == 0 { Duration::ZERO } else { Duration::from_secs_f64(bytes as f64 * 8.0 / self.rate as f64) }
    }

    pub fn text(&self) -> String {
        let rate = match self.rate {
            0 => "no limit".to_owned(),
            rate => format!("{} Mbit/s", rate as f64 / 1e6),
        };
        let loss = match self.loss_ppm {
            0 => String::new(),
            _ => format!(", {} % lost", self.loss_percent()),
        };
        let buffers = match self.buffers {
            0 => String::new(),
            buffers => format!(", buffers of {buffers} bytes"),
        };
        format!("{} ms, {rate}{loss}, {}{buffers}", self.rtt_ms(), self.control)
    }

    pub fn rtt_ms(&self) -> f64 {
        self.rtt_us as f64 / 1e3
    }

    pub fn loss_percent(&self) -> f64 {
        f64::from(self.loss_ppm) / 1e4
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Case {
    pub link: Link,
    pub direction: Direction,
    /// Of each client's file.
    pub bytes: u64,
    /// At the same time.
    pub clients: u32,
}

impl Case {
    pub fn text(&self) -> String {
        let clients = match self.clients {
            1 => String::new(),
            clients => format!(", {clients} clients"),
        };
        format!("{}: {} {}{clients}", self.link.text(), self.direction.name(), megabytes(self.bytes))
    }
}

/// As the thesis has its sizes.
pub fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn link(rtt_us: u64) -> Link {
        Link { rtt_us, rate: 1_000_000_000, loss_ppm: 0, control: "bbr".to_owned(), buffers: 0 }
    }

    pub fn case(rtt_us: u64, bytes: u64) -> Case {
        Case { link: link(rtt_us), direction: Direction::Read, bytes, clients: 1 }
    }

    #[test]
    fn a_case_names_what_differs_from_the_usual() {
        assert_eq!(case(500, 10_000_000).text(), "0.5 ms, 1000 Mbit/s, bbr: reading 10 MB");
        let mut other = case(50_000, 10_000_000);
        (other.link.loss_ppm, other.link.buffers, other.link.rate, other.clients) = (100, 4096, 0, 16);
        assert_eq!(other.text(), "50 ms, no limit, 0.01 % lost, bbr, buffers of 4096 bytes: reading 10 MB, 16 clients");
    }

    #[test]
    fn the_bits_of_a_message_take_their_time() {
        assert_eq!(link(0).bits(125_000), Duration::from_millis(1));
        assert_eq!(Link { rate: 0, ..link(0) }.bits(125_000), Duration::ZERO);
    }
}
