//! The tables, and the cases that each of them has.

use std::time::Duration;

use clap::ValueEnum;

use super::case::{Case, Direction, Link};

/// The rate of the thesis's slow half.
const NARROW: u64 = 10_000_000;

/// The round trip time and the sizes of table 7.4, and of the tables of chance.
const FAR: Duration = Duration::from_millis(50);

/// Of a million packets.
const LOSSES: [u32; 3] = [100, 1000, 10_000];

/// At the same time; the thesis has the first three.
const CLIENTS: [u32; 4] = [2, 4, 8, 16];

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Table {
    /// Every size at every round trip time: tables 2.2 to 2.4 and 7.1 to 7.3
    Read,
    /// The same, writing
    Write,
    /// The smallest size at every round trip time over 10 Mbit/s
    Narrow,
    /// Two to sixteen clients of the smallest size at 50 ms: table 7.4
    Clients,
    /// The smallest and the largest size at 50 ms, where 0.01, 0.1 and 1 % of the packets are lost, under cubic and bbr
    Loss,
}

/// What the tables are made of.
#[derive(Clone, Debug)]
pub struct Plan {
    pub tables: Vec<Table>,
    pub rtts: Vec<Duration>,
    /// Where the round trip times were not given, those tables that have one have theirs.
    pub has_rtts: bool,
    pub sizes: Vec<u64>,
    pub rate: u64,
    /// Congestion controls that were given; else the machine's, and those two where packets are lost.
    pub controls: Vec<String>,
    pub own_control: String,
    pub losses: Vec<u32>,
    pub clients: Vec<u32>,
    pub buffers: u64,
}

impl Plan {
    fn link(&self, rtt: Duration, rate: u64, control: &str, loss_ppm: u32) -> Link {
        Link { rtt_us: rtt.as_micros() as u64, rate, loss_ppm, control: control.to_owned(), buffers: self.buffers }
    }

    /// All cases, those of one link behind another, each once.
    pub fn cases(&self) -> Vec<Case> {
        let mut cases: Vec<Case> = Vec::new();
        for table in &self.tables {
            for case in self.table(*table) {
                if !cases.contains(&case) {
                    cases.push(case);
                }
            }
        }
        // The order of tables and sizes stays within a link.
        let mut links: Vec<Link> = Vec::new();
        for case in &cases {
            if !links.contains(&case.link) {
                links.push(case.link.clone());
            }
        }
        cases.sort_by_key(|case| links.iter().position(|link| *link == case.link));
        cases
    }

    fn table(&self, table: Table) -> Vec<Case> {
        let own = std::slice::from_ref(&self.own_control);
        let controls = if self.controls.is_empty() { own } else { &self.controls };
        let far = if self.has_rtts { self.rtts.clone() } else { vec![FAR] };
        let (least, most) = (self.sizes.iter().min().copied(), self.sizes.iter().max().copied());
        let all =
            |controls: &[String], rtts: &[Duration], rate: u64, losses: &[u32], sizes: &[u64], direction: Direction| {
                let mut cases = Vec::new();
                for control in controls {
                    for &rtt in rtts {
                        for &loss in losses {
                            let link = self.link(rtt, rate, control, loss);
                            cases.extend(sizes.iter().map(|&bytes| Case {
                                link: link.clone(),
                                direction,
                                bytes,
                                clients: 1,
                            }));
                        }
                    }
                }
                cases
            };
        match table {
            Table::Read => all(controls, &self.rtts, self.rate, &[0], &self.sizes, Direction::Read),
            Table::Write => all(controls, &self.rtts, self.rate, &[0], &self.sizes, Direction::Write),
            Table::Narrow => {
                let least: Vec<u64> = least.into_iter().collect();
                all(controls, &self.rtts, NARROW, &[0], &least, Direction::Read)
            }
            Table::Clients => {
                let least: Vec<u64> = least.into_iter().collect();
                let one = all(controls, &far, self.rate, &[0], &least, Direction::Read);
                let several = if self.clients.is_empty() { &CLIENTS[..] } else { &self.clients };
                one.iter().flat_map(|case| several.iter().map(|&clients| Case { clients, ..case.clone() })).collect()
            }
            Table::Loss => {
                let both = ["cubic", "bbr"].map(str::to_owned);
                let controls = if self.controls.is_empty() { &both[..] } else { &self.controls };
                let losses = if self.losses.is_empty() { &LOSSES[..] } else { &self.losses };
                let mut ends: Vec<u64> = least.into_iter().chain(most).collect();
                ends.dedup();
                all(controls, &far, self.rate, losses, &ends, Direction::Read)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(tables: &[Table]) -> Plan {
        Plan {
            tables: tables.to_vec(),
            rtts: [500, 15_000, 50_000, 150_000].map(Duration::from_micros).into(),
            has_rtts: false,
            sizes: [10, 50, 100, 200].map(|megabytes| megabytes * 1_000_000).into(),
            rate: 1_000_000_000,
            controls: Vec::new(),
            own_control: "bbr".to_owned(),
            losses: Vec::new(),
            clients: Vec::new(),
            buffers: 0,
        }
    }

    #[test]
    fn the_tables_have_the_sizes_and_distances_of_the_thesis_and_more() {
        let cases = plan(&[Table::Read]).cases();
        assert_eq!(cases.len(), 4 * 4);
        assert!(cases.iter().all(|case| case.clients == 1 && case.link.loss_ppm == 0 && case.link.control == "bbr"));
        let narrow = plan(&[Table::Narrow]).cases();
        assert!(
            narrow.len() == 4 && narrow.iter().all(|case| case.link.rate == 10_000_000 && case.bytes == 10_000_000)
        );
        let clients: Vec<u32> = plan(&[Table::Clients]).cases().iter().map(|case| case.clients).collect();
        assert_eq!(clients, [2, 4, 8, 16]);
        let loss = plan(&[Table::Loss]).cases();
        assert!(loss.len() == 2 * 3 * 2 && loss.iter().all(|case| case.link.rtt_us == 50_000));
    }

    #[test]
    fn cases_of_one_link_lie_together_so_that_a_lab_is_made_once() {
        let cases = plan(&[Table::Read, Table::Write, Table::Clients]).cases();
        let links = cases.chunk_by(|a, b| a.link == b.link).count();
        assert_eq!((cases.len(), links), (4 * 4 * 2 + 4, 4));
    }

    #[test]
    fn what_is_given_goes_for_every_table() {
        let mut plan = plan(&[Table::Read, Table::Loss, Table::Clients]);
        (plan.rtts, plan.has_rtts) = (vec![Duration::from_millis(15)], true);
        (plan.controls, plan.losses, plan.clients) = (vec!["cubic".to_owned()], vec![1000], vec![3]);
        let cases = plan.cases();
        assert!(cases.iter().all(|case| case.link.rtt_us == 15_000 && case.link.control == "cubic"));
        assert_eq!(cases.iter().filter(|case| case.link.loss_ppm == 1000).count(), 2);
        assert_eq!(cases.iter().filter(|case| case.clients == 3).count(), 1);
    }
}
