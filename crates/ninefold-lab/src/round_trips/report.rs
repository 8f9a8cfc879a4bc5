//! The rows of a run: as text, a table for each link, and as rows.csv and report.json.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::operation::Operation;
use super::ours::Speech;
use super::row::{How, Row};
use super::system::System;

/// Seconds that a copy took in the paper's "Initial evaluation": by the old system, by the new one, and by fcp on the new one.
const PAPER: [f64; 3] = [112.0, 36.0, 19.0];

#[derive(Debug)]
pub struct Report {
    rounds: u32,
    /// As it was given.
    rate: String,
    rows: Vec<Row>,
}

impl Report {
    pub fn new(rounds: u32, rate: String) -> Report {
        Report { rounds, rate, rows: Vec::new() }
    }

    pub fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Rows that went wrong.
    pub fn failed(&self) -> usize {
        self.rows.iter().filter(|row| matches!(row.how, How::Failed(_))).count()
    }

    pub fn print(&self) {
        // Whoever reads may have seen enough.
        let _ = io::stdout().write_all(self.text().as_bytes());
    }

    fn text(&self) -> String {
        let mut text = format!(
            "medians of up to {} rounds, at a rate of {}; times in ms. link: connection and round trips; bare: TCP alone with the same \
             bytes; within: of link, or bare, 10 % + 20 ms\n",
            self.rounds, self.rate
        );
        for rows in self.rows.chunk_by(|a, b| a.rtt == b.rtt) {
            let Some(first) = rows.first() else { continue };
            let _ = writeln!(
                text,
                "\n{:26} {:22} {:>8} {:>6} {:>9} {:>9} {:>9} {:>6} {:6} ",
                format!("RTT {} ms", first.rtt.as_secs_f64() * 1e3),
                "by",
                "messages",
                "trips",
                "link",
                "took",
                "bare",
                "ratio",
                "within",
            );
            for row in rows {
                text += &line(row);
            }
            text += &evaluation(rows);
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
                Value::String(text) => format!("\"{}\"", text.replace('"', "\"\"")),
                other => other.to_string(),
            };
            csv += &row.columns().map(cell).join(",");
            csv.push('\n');
        }
        fs::write(dir.join("rows.csv"), csv)?;
        let rows: Vec<Value> =
            self.rows.iter().map(|row| row.columns().into_iter().map(|(k, v)| (k.to_owned(), v)).collect()).collect();
        let report = json!({ "bench": "round-trips", "rounds": self.rounds, "rate": self.rate, "rows": rows });
        fs::write(dir.join("report.json"), format!("{report:#}\n"))
    }
}

fn line(row: &Row) -> String {
    let number = |figure: Option<u64>| figure.map_or("-".to_owned(), |figure| figure.to_string());
    let time = |time: Option<Duration>| time.map_or("-".to_owned(), |time| format!("{:.1}", time.as_secs_f64() * 1e3));
    let within = match row.is_within() {
        Some(true) => "yes",
        Some(false) => "no",
        None => "-",
    };
    let note = match &row.how {
        How::Computed => "computed".to_owned(),
        How::Nothing => "asks no server".to_owned(),
        // The first line; report.json has all.
        how => how.note().unwrap_or_default().lines().next().unwrap_or_default().to_owned(),
    };
    let line = format!(
        "{:26} {:22} {:>8} {:>6} {:>9} {:>9} {:>9} {:>6} {within:6} {note}",
        row.operation.name(),
        row.system.name(),
        number(row.messages),
        number(row.round_trips),
        time(row.link()),
        time(row.time()),
        time(row.exchange()),
        row.ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
    );
    line.trim_end().to_owned() + "\n"
}

/// The large copy by the old system, by ours, and by ours in parallel, beside the paper's; nothing where one is missing.
fn evaluation(rows: &[Row]) -> String {
    let find = |system: System, operation: Operation| {
        rows.iter().find(|row| row.system == system && row.operation == operation).filter(|row| row.time().is_some())
    };
    let warm = System::Ours(Speech::Warm);
    let found = [(System::Old, Operation::CopyLarge), (warm, Operation::CopyLarge), (warm, Operation::CopyParallel)];
    let found: Vec<&Row> = found.into_iter().filter_map(|(system, operation)| find(system, operation)).collect();
    let [old, new, parallel] = found[..] else { return String::new() };
    let seconds = [old, new, parallel].map(|row| row.time().unwrap_or_default().as_secs_f64());
    let speedup = |times: [f64; 3]| format!("1, {:.1}, {:.1}", times[0] / times[1], times[0] / times[2]);
    format!(
        "the paper's evaluation, old, new, in parallel: {:.0}, {:.0}, {:.0} s there, as fast as {}; here {:.2}{}, {:.2}, {:.2} s, as \
         fast as {}\n",
        PAPER[0],
        PAPER[1],
        PAPER[2],
        speedup(PAPER),
        seconds[0],
        if old.how == How::Computed { " (computed)" } else { "" },
        seconds[1],
        seconds[2],
        speedup(seconds),
    )
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    #[test]
    fn what_was_computed_says_so_beside_the_papers_figures() {
        let mut report = Report::new(3, "1gbit".to_owned());
        let warm = System::Ours(Speech::Warm);
        let (mut old, mut new, mut parallel) =
            (row(System::Old, 1000, &[]), row(warm, 10, &[2000]), row(warm, 10, &[1000]));
        old.how = How::Computed;
        (old.operation, new.operation, parallel.operation) =
            (Operation::CopyLarge, Operation::CopyLarge, Operation::CopyParallel);
        [old, new, parallel].into_iter().for_each(|row| report.add(row));
        let text = report.text();
        assert!(text.contains("112, 36, 19 s there, as fast as 1, 3.1, 5.9;"), "{text}");
        assert!(text.contains("here 100.00 (computed), 2.00, 1.00 s, as fast as 1, 50.0, 100.0"), "{text}");
        let old = text.lines().find(|line| line.contains("one at a time")).unwrap();
        assert!(old.contains("100000.0") && old.ends_with("computed"), "{old}");
    }

    #[test]
    fn rows_are_written_as_text_that_others_read() {
        let mut report = Report::new(3, "1gbit".to_owned());
        report.add(row(System::Old, 3, &[310]));
        let mut failed = row(System::Sshfs, 3, &[]);
        (failed.how, failed.round_trips) = (How::Failed("it said \"no\", twice".to_owned()), None);
        report.add(failed);
        assert_eq!(report.failed(), 1);
        let dir = tempfile::tempdir().unwrap();
        report.write(dir.path()).unwrap();
        let csv = fs::read_to_string(dir.path().join("rows.csv")).unwrap();
        let lines: Vec<&str> = csv.lines().collect();
        assert!(lines[0].starts_with("rtt_ms,operation,system,how,rounds,messages,round_trips,"), "{csv}");
        assert!(
            lines[1].starts_with("100.0,\"stat\",\"9P2000, one at a time\",\"measured\",1,,3,,,300.0,310.0,"),
            "{csv}"
        );
        assert!(lines[2].ends_with(",\"it said \"\"no\"\", twice\""), "{csv}");
        let json: Value = serde_json::from_slice(&fs::read(dir.path().join("report.json")).unwrap()).unwrap();
        assert_eq!((&json["rows"][0]["took_ms"], &json["rows"][1]["took_ms"]), (&json!(310.0), &Value::Null));
    }
}
