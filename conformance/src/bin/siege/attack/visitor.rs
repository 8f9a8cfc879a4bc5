//! A client at work in the attacked tree: one connection, one operation after the other, for as long as it takes.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ninefold_proto::Dialect;

use super::evidence::Evidence;
use super::ground::Ground;
use super::visit::Visit;
use crate::address::Address;
use crate::connection::{Connection, Failure};
use crate::random::Random;
use crate::report::Report;

/// Operations on one connection; then it starts anew, and the fids that the server believes to have are gone.
const TERM: usize = 5_000;
/// Attempts to connect before the server is called gone, and the time between two.
const ATTEMPTS: usize = 20;
const BETWEEN: Duration = Duration::from_millis(250);
/// Faults that are told.
const TOLD: usize = 5;

/// What visitors did.
#[derive(Default)]
pub struct Tally {
    /// By kind of operation: done, refused.
    operations: BTreeMap<&'static str, (u64, u64)>,
    links_met: u64,
    faults: Vec<String>,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        for (kind, (done, refused)) in other.operations {
            let sum = self.operations.entry(kind).or_default();
            sum.0 += done;
            sum.1 += refused;
        }
        self.links_met += other.links_met;
        self.faults.extend(other.faults);
        self.faults.truncate(TOLD);
    }
}

impl Tally {
    /// Adds the figures.
    pub fn report(&self, elapsed: Duration, report: &mut Report) {
        let mut sum = 0;
        for (kind, (done, refused)) in &self.operations {
            report.figure(format!("{kind}_done"), *done);
            report.figure(format!("{kind}_refused"), *refused);
            sum += done + refused;
        }
        report.figure("operations", sum);
        report.figure("operations_each_second", (sum as f64 / elapsed.as_secs_f64()).round());
        report.figure("links_met", self.links_met);
    }

    /// Requests that were not answered as the protocol says.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }
}

/// One client.
pub struct Visitor<'a> {
    address: &'a Address,
    dialect: Dialect,
    ground: &'a Ground,
    evidence: &'a Evidence,
    random: Random,
    tally: Tally,
}

impl<'a> Visitor<'a> {
    pub fn new(
        address: &'a Address,
        dialect: Dialect,
        ground: &'a Ground,
        evidence: &'a Evidence,
        seed: u64,
    ) -> Visitor<'a> {
        Visitor { address, dialect, ground, evidence, random: Random::new(seed), tally: Tally::default() }
    }

    /// Works until told to stop, or until the server is gone.
    pub fn run(mut self, stop: &AtomicBool) -> Tally {
        while !stop.load(Ordering::Relaxed) {
            let Some(connection) = self.connect() else { break };
            let mut visit = Visit::new(connection, self.ground, self.evidence, self.random.clone());
            for _ in 0..TERM {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let (kind, result) = visit.operate();
                let (done, refused) = self.tally.operations.entry(kind).or_default();
                match result {
                    Ok(()) => *done += 1,
                    Err(failure) if failure.is_refusal() => *refused += 1,
                    Err(failure) => {
                        self.fault(format!("{kind} in {}: {failure}", self.dialect));
                        break;
                    }
                }
            }
            self.tally.links_met += visit.links_met();
            self.random = visit.into_random();
        }
        self.tally
    }

    fn connect(&mut self) -> Option<Connection> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            match Connection::attach(self.address, self.dialect) {
                Ok(connection) => return Some(connection),
                Err(failure) => last = Some(failure),
            }
            std::thread::sleep(BETWEEN);
        }
        let failure = last.unwrap_or(Failure::Dialect(self.dialect));
        self.fault(format!("no connection in {}: {failure}", self.dialect));
        None
    }

    fn fault(&mut self, text: String) {
        if self.tally.faults.len() < TOLD {
            self.tally.faults.push(text);
        }
    }
}
