//! The figures: medians of the rounds, and what ninefold's are of its peers'.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::generator::{Outcome, Runs};

/// One operation on one server.
#[derive(Clone, Debug)]
pub struct Row {
    operation: String,
    server: &'static str,
    /// Bytes.
    msize: u32,
    connections: usize,
    /// Operations in flight on each connection.
    depth: u16,
    /// Each the median of the rounds, or of the turns where a round has several.
    per_second: f64,
    bytes_per_second: f64,
    /// The server's, in microseconds and in seconds.
    cpu_per_operation: f64,
    cpu_per_gb: f64,
    /// Microseconds.
    p50: f64,
    p99: f64,
    /// Of the best by other numbers of connections; NaN where they were not compared.
    of_best: f64,
}

impl Row {
    pub fn new(operation: &str, server: &'static str, msize: u32, connections: usize, depth: u16, runs: &Runs) -> Row {
        let of = |figure: &dyn Fn(&Outcome) -> f64| median(runs.iter().map(figure).collect());
        let percentile = |share: f64| {
            of(&|run| {
                let at = (run.latencies.len() as f64 * share) as usize;
                run.latencies.get(at).map_or(f64::NAN, |&ns| ns as f64 / 1e3)
            })
        };
        Row {
            operation: operation.to_owned(),
            server,
            msize,
            connections,
            depth,
            per_second: of(&|run| run.operations as f64 / run.elapsed.as_secs_f64()),
            bytes_per_second: of(&|run| run.bytes as f64 / run.elapsed.as_secs_f64()),
            cpu_per_operation: of(&|run| run.cpu.as_secs_f64() * 1e6 / run.operations as f64),
            cpu_per_gb: of(&|run| run.cpu.as_secs_f64() * 1e9 / run.bytes as f64),
            p50: percentile(0.5),
            p99: percentile(0.99),
            of_best: f64::NAN,
        }
    }

    /// The same, with its share of the best.
    pub fn compared(self, of_best: f64) -> Row {
        Row { of_best, ..self }
    }

    fn columns(&self) -> [(&'static str, Value); 12] {
        let number = |figure: f64| if figure.is_finite() { json!(figure) } else { Value::Null };
        [
            ("operation", json!(self.operation)),
            ("server", json!(self.server)),
            ("msize", json!(self.msize)),
            ("connections", json!(self.connections)),
            ("in_flight", json!(self.depth)),
            ("operations_per_second", number(self.per_second)),
            ("bytes_per_second", number(self.bytes_per_second)),
            ("server_cpu_us_per_operation", number(self.cpu_per_operation)),
            ("server_cpu_s_per_gb", number(self.cpu_per_gb)),
            ("p50_us", number(self.p50)),
            ("p99_us", number(self.p99)),
            ("of_best", number(self.of_best)),
        ]
    }
}

/// What the rate of each of these is of the best one's. They took turns: so each turn's rates are taken by their mean, as what a request costs goes up
/// and down with the machine's other guests, mostly for all of a turn, and then the medians.
pub fn of_best(cases: &[&Runs]) -> Vec<f64> {
    let rate = |run: &Outcome| run.operations as f64 / run.elapsed.as_secs_f64();
    let mean = |turn: usize| {
        let rates = cases.iter().filter_map(|runs| runs.get(turn)).map(rate);
        rates.sum::<f64>() / cases.len() as f64
    };
    let share = |runs: &&Runs| median(runs.iter().enumerate().map(|(turn, run)| rate(run) / mean(turn)).collect());
    let shares: Vec<f64> = cases.iter().map(share).collect();
    let best = shares.iter().copied().fold(f64::NAN, f64::max);
    shares.iter().map(|share| share / best).collect()
}

/// NaN when there is none.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    match figures.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => figures[n / 2],
        n => f64::midpoint(figures[n / 2 - 1], figures[n / 2]),
    }
}

/// All of a run.
#[derive(Debug)]
pub struct Report {
    rounds: u32,
    place: String,
    rows: Vec<Row>,
}

impl Report {
    pub fn new(rounds: u32, place: &Path) -> Report {
        Report { rounds, place: place.display().to_string(), rows: Vec::new() }
    }

    pub fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Ours, and the peer's of the same operation, msize and connections.
    fn beside<'a>(&'a self, peer: &'a str) -> impl Iterator<Item = (&'a Row, &'a Row)> {
        self.rows.iter().filter(|row| row.server == "ninefold").filter_map(move |ours| {
            let alike = |row: &&Row| {
                row.server == peer
                    && row.operation == ours.operation
                    && row.msize == ours.msize
                    && row.connections == ours.connections
            };
            Some((ours, self.rows.iter().find(alike)?))
        })
    }

    pub fn print(&self) {
        // Whoever reads may have seen enough.
        let _ = io::stdout().write_all(self.text().as_bytes());
    }

    fn text(&self) -> String {
        let mut text = format!(
            "medians of {} rounds; trees in {}; us and s are the server's CPU time\n\n",
            self.rounds, self.place
        );
        let _ = writeln!(
            text,
            "{:36} {:12} {:>8} {:>5} {:>5} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "operation", "server", "msize", "conn", "depth", "op/s", "MB/s", "us/op", "s/GB", "p50 us", "p99 us"
        );
        for row in &self.rows {
            let show = |figure: f64, places: usize| match figure.is_finite() {
                true => format!("{figure:.places$}"),
                false => "-".to_owned(),
            };
            let moved =
                |figure: f64, places: usize| show(if row.bytes_per_second > 0.0 { figure } else { f64::NAN }, places);
            let _ = writeln!(
                text,
                "{:36} {:12} {:>8} {:>5} {:>5} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8}",
                row.operation,
                row.server,
                row.msize,
                row.connections,
                row.depth,
                show(row.per_second, 0),
                moved(row.bytes_per_second / 1e6, 0),
                show(row.cpu_per_operation, 2),
                moved(row.cpu_per_gb, 3),
                show(row.p50, 0),
                show(row.p99, 0),
            );
        }
        let scaled = |row: &&Row| row.of_best.is_finite();
        for (n, row) in self.rows.iter().filter(scaled).enumerate() {
            if n == 0 {
                let what = "the rate of the best, by the same turns; by the medians of all";
                let _ = writeln!(text, "\nby connections: {what}");
            }
            let Row { operation, server, msize, connections, of_best, .. } = row;
            let is_beside =
                |other: &&Row| (&other.operation, other.server, other.msize) == (operation, *server, *msize);
            let best = self.rows.iter().filter(is_beside).map(|row| row.per_second).fold(0.0, f64::max);
            let by_medians = row.per_second / best;
            let _ = writeln!(text, "{operation:36} {server:12} {connections:>5} {of_best:>6.2} {by_medians:>6.2}");
        }
        for (peer, what) in [("diod", "ninefold beside diod"), ("bare sockets", "ninefold beside bare sockets")] {
            let mut first = true;
            for (ours, theirs) in self.beside(peer) {
                if std::mem::take(&mut first) {
                    let _ = writeln!(text, "\n{what}, of the same msize: its rate / theirs, its CPU time / theirs");
                }
                // What moves much is told by its bytes, everything else by its operations.
                let rate = match ours.operation.contains("sequential") {
                    true => ours.bytes_per_second / theirs.bytes_per_second,
                    false => ours.per_second / theirs.per_second,
                };
                let cpu = match ours.operation.contains("sequential") {
                    true => ours.cpu_per_gb / theirs.cpu_per_gb,
                    false => ours.cpu_per_operation / theirs.cpu_per_operation,
                };
                let _ = writeln!(
                    text,
                    "{:30} {:>8} {:>5} {rate:>6.2} {cpu:>6.2}",
                    ours.operation, ours.msize, ours.connections
                );
            }
        }
        text
    }

    /// Writes rows.csv and report.json.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        let mut csv = String::new();
        if let Some(row) = self.rows.first() {
            csv += &row.columns().map(|(name, _)| name).join(",");
            csv.push('\n');
        }
        for row in &self.rows {
            let cell = |(_, value): (_, Value)| match value {
                Value::Null => String::new(),
                // No text here has a quote in it.
                Value::String(text) => format!("\"{text}\""),
                other => other.to_string(),
            };
            csv += &row.columns().map(cell).join(",");
            csv.push('\n');
        }
        fs::write(dir.join("rows.csv"), csv)?;
        let rows: Vec<Value> =
            self.rows.iter().map(|row| row.columns().into_iter().map(|(k, v)| (k.to_owned(), v)).collect()).collect();
        let report = json!({ "bench": "loopback", "rounds": self.rounds, "trees": self.place, "rows": rows });
        fs::write(dir.join("report.json"), format!("{report:#}\n"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_a_turn_cost_all_alike_is_none_of_a_cases_share() {
        let run = |operations| Outcome { operations, elapsed: Duration::from_secs(2), ..Outcome::default() };
        let of_best = |cases: &[&Runs]| of_best(cases).iter().map(|share| (share * 100.0).round()).collect::<Vec<_>>();
        // The machine is half as fast in every second turn; by rates alone the first would have had its luck.
        let (one, many) = ([800, 400, 800].map(run).to_vec(), [1000, 500, 1000].map(run).to_vec());
        assert_eq!(of_best(&[&one, &many]), [80.0, 100.0]);
        // One turn is not what counts.
        let odd = [800, 4, 800].map(run).to_vec();
        assert_eq!(of_best(&[&odd, &many]), [80.0, 100.0]);
        assert_eq!(of_best(&[&many]), [100.0]);
    }
}
