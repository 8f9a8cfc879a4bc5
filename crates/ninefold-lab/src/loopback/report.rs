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
    /// Each the median of the rounds.
    per_second: f64,
    bytes_per_second: f64,
    /// The server's, in microseconds and in seconds.
    cpu_per_operation: f64,
    cpu_per_gb: f64,
    /// Microseconds.
    p50: f64,
    p99: f64,
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
        }
    }

    fn columns(&self) -> [(&'static str, Value); 11] {
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
        ]
    }
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
