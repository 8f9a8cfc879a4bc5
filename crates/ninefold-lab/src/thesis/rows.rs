//! The rows of a measurement, one a run, in a CSV file: each is written when it is known, so that what was measured stays when the
//! program ends, and a later one goes on behind it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::case::{Case, Direction, Link};

/// How a row came about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    Measured,
    /// It asks one request at a time, and would take too long: told from a smaller file, or from its round trips.
    Computed,
    /// It was killed when the longest time for a run was over.
    Stopped,
    /// The program does not know an option of its command line.
    Refused,
    /// Something is not installed, or this kernel has it not.
    Missing,
    /// It went wrong.
    Failed,
}

impl How {
    pub fn word(self) -> &'static str {
        match self {
            How::Measured => "measured",
            How::Computed => "computed",
            How::Stopped => "stopped",
            How::Refused => "refused",
            How::Missing => "missing",
            How::Failed => "failed",
        }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Row {
    pub direction: Direction,
    pub rtt_us: u64,
    pub rate: u64,
    pub loss_ppm: u32,
    pub control: String,
    pub buffers: u64,
    pub bytes: u64,
    pub clients: u32,
    pub way: String,
    /// From 1.
    pub run: u32,
    pub how: How,
    /// Of the slowest client.
    pub seconds: Option<f64>,
    /// The mean of the clients.
    pub mean_seconds: Option<f64>,
    /// Of the server, user and system, for all clients.
    pub cpu_seconds: Option<f64>,
    /// Tstream messages of all clients, where they are counted.
    pub streams: Option<u64>,
    /// TCP connections that all clients opened.
    pub connections: Option<u64>,
    /// One request at a time: those with data, their time, and that of one without.
    pub messages: Option<u64>,
    pub data_seconds: Option<f64>,
    pub trip_seconds: Option<f64>,
    /// Packets that the link took too late.
    pub missed: Option<u64>,
    /// What was taken off the link's round trip for what two kernels, two processes and the lab take beside it, in microseconds.
    pub own_us: Option<u64>,
    /// How many others wanted a processor, when it began: the load average of the last minute.
    pub load: Option<f64>,
    pub note: String,
}

impl Row {
    pub fn new(case: &Case, way: &str, run: u32, how: How) -> Row {
        let Link { rtt_us, rate, loss_ppm, control, buffers } = case.link.clone();
        Row {
            direction: case.direction,
            rtt_us,
            rate,
            loss_ppm,
            control,
            buffers,
            bytes: case.bytes,
            clients: case.clients,
            way: way.to_owned(),
            run,
            how,
            seconds: None,
            mean_seconds: None,
            cpu_seconds: None,
            streams: None,
            connections: None,
            messages: None,
            data_seconds: None,
            trip_seconds: None,
            missed: None,
            own_us: None,
            load: None,
            note: String::new(),
        }
    }

    pub fn case(&self) -> Case {
        let Row { rtt_us, rate, loss_ppm, buffers, .. } = *self;
        let link = Link { rtt_us, rate, loss_ppm, control: self.control.clone(), buffers };
        Case { link, direction: self.direction, bytes: self.bytes, clients: self.clients }
    }
}

/// The column that was added last.
const NEWEST: &str = "own_us";

/// All rows of a directory.
#[derive(Debug)]
pub struct Rows {
    file: csv::Writer<File>,
    rows: Vec<Row>,
}

impl Rows {
    /// Opens a file, or makes it. A line that was not finished is taken away.
    pub fn open(path: &Path) -> Result<Rows> {
        let name = || path.display().to_string();
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).with_context(name)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).with_context(name)?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        file.set_len(whole as u64)?;
        file.seek(SeekFrom::End(0))?;
        let rows =
            parse(&text[..whole]).and_then(|rows| is_whole(&text[..whole]).map(|()| rows)).with_context(|| {
                format!("{} is not of this version: give another directory to --out, or take it away", path.display())
            })?;
        let file = csv::WriterBuilder::new().has_headers(whole == 0).from_writer(file);
        Ok(Rows { file, rows })
    }

    /// Reads what is there, none where there is no file.
    pub fn read(path: &Path) -> Result<Vec<Row>> {
        match fs::read(path) {
            Ok(text) => parse(&text).with_context(|| path.display().to_string()),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(e).with_context(|| path.display().to_string()),
        }
    }

    pub fn add(&mut self, mut row: Row) -> Result<()> {
        // So that each is a line, and half of one is known.
        row.note = row.note.replace(['\n', '\r'], " ");
        self.file.serialize(&row).context("rows.csv")?;
        self.file.flush().context("rows.csv")?;
        self.rows.push(row);
        Ok(())
    }

    pub fn all(&self) -> &[Row] {
        &self.rows
    }

    /// Whether that is measured, or need not be. What could not be tried, or went wrong, is tried again.
    pub fn is_done(&self, case: &Case, way: &str, run: u32) -> bool {
        self.of(case, way).any(|row| match row.how {
            How::Measured => row.run == run,
            How::Computed | How::Stopped => true,
            How::Refused | How::Missing | How::Failed => false,
        })
    }

    pub fn of<'r>(&'r self, case: &'r Case, way: &'r str) -> impl Iterator<Item = &'r Row> {
        self.rows.iter().filter(move |row| row.way == way && row.case() == *case)
    }
}

/// Whether rows can be written behind these: what an earlier version wrote can but be read.
fn is_whole(text: &[u8]) -> Result<()> {
    let mut reader = csv::Reader::from_reader(text);
    let columns = reader.headers()?;
    ensure!(columns.is_empty() || columns.iter().any(|column| column == NEWEST), "it has no column '{NEWEST}'");
    Ok(())
}

fn parse(text: &[u8]) -> Result<Vec<Row>> {
    let mut reader = csv::Reader::from_reader(text);
    let rows: Vec<Row> = reader.deserialize().collect::<Result<_, _>>()?;
    for row in &rows {
        let figures = [row.seconds, row.mean_seconds, row.cpu_seconds, row.data_seconds, row.trip_seconds];
        let is_time = |figure: &f64| figure.is_finite() && *figure >= 0.0;
        ensure!(figures.iter().flatten().all(is_time), "a time of {} is none", row.way);
        ensure!(row.how != How::Measured || row.seconds.is_some(), "a run of {} has no time", row.way);
    }
    Ok(rows)
}

/// The rows that count: the last of each run; what was not measured only where nothing of its place was.
pub fn counted(rows: &[Row]) -> Vec<Row> {
    let mut last: BTreeMap<(Case, String, u32), &Row> = BTreeMap::new();
    for row in rows {
        last.insert((row.case(), row.way.clone(), row.run), row);
    }
    let measured: Vec<(Case, String)> =
        last.values().filter(|row| row.how == How::Measured).map(|row| (row.case(), row.way.clone())).collect();
    last.into_iter()
        .filter(|((case, way, _), row)| {
            // What failed beside runs that did not is told.
            matches!(row.how, How::Measured | How::Failed | How::Stopped)
                || !measured.iter().any(|(other, name)| other == case && name == way)
        })
        .map(|(_, row)| row.clone())
        .collect()
}

#[cfg(test)]
pub mod tests {
    use super::super::case::tests::case;
    use super::*;

    /// A run that was measured.
    pub fn measured(case: &Case, way: &str, run: u32, seconds: f64) -> Row {
        let mut row = Row::new(case, way, run, How::Measured);
        (row.seconds, row.mean_seconds, row.cpu_seconds) = (Some(seconds), Some(seconds), Some(seconds / 10.0));
        row
    }

    #[test]
    fn what_was_written_is_there_again_and_a_later_measurement_goes_on_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.csv");
        let case = case(50_000, 10_000_000);
        let mut rows = Rows::open(&path).unwrap();
        rows.add(measured(&case, "http1", 1, 0.25)).unwrap();
        let mut failed = Row::new(&case, "scp", 1, How::Failed);
        failed.note = "it said \"no\",\nand more".to_owned();
        rows.add(failed).unwrap();
        drop(rows);
        let mut rows = Rows::open(&path).unwrap();
        assert_eq!(rows.all()[0], measured(&case, "http1", 1, 0.25));
        assert_eq!(rows.all()[1].note, "it said \"no\", and more");
        assert!(rows.is_done(&case, "http1", 1) && !rows.is_done(&case, "http1", 2));
        // What failed is tried again.
        assert!(!rows.is_done(&case, "scp", 1));
        rows.add(measured(&case, "scp", 1, 0.5)).unwrap();
        drop(rows);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().filter(|line| line.starts_with("direction,rtt_us,")).count(), 1, "{text}");
        let all = Rows::read(&path).unwrap();
        assert_eq!((all.len(), counted(&all).len()), (3, 2));
        assert!(counted(&all).iter().all(|row| row.how == How::Measured));
    }

    #[test]
    fn a_line_that_was_not_finished_is_measured_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.csv");
        let case = case(500, 10_000_000);
        let mut rows = Rows::open(&path).unwrap();
        (1..=2).for_each(|run| rows.add(measured(&case, "rsync", run, 1.0)).unwrap());
        drop(rows);
        let text = fs::read_to_string(&path).unwrap();
        // Of every length that the last line may have been cut to, and those of the header too.
        let begins = text.trim_end().rfind('\n').unwrap() + 1;
        for length in [0, 5, begins, begins + 1, text.len() - 1] {
            fs::write(&path, &text[..length]).unwrap();
            let mut rows = Rows::open(&path).unwrap();
            assert!(!rows.is_done(&case, "rsync", 2), "{length}");
            if length >= begins {
                assert!(rows.is_done(&case, "rsync", 1), "{length}");
                rows.add(measured(&case, "rsync", 2, 1.0)).unwrap();
                drop(rows);
                assert_eq!(fs::read_to_string(&path).unwrap(), text, "{length}");
            }
        }
    }

    #[test]
    fn a_file_of_other_columns_and_figures_that_are_none_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.csv");
        fs::write(&path, "a,b\n1,2\n").unwrap();
        assert!(Rows::open(&path).unwrap_err().to_string().contains("give another directory to --out"));
        fs::remove_file(&path).unwrap();
        let mut rows = Rows::open(&path).unwrap();
        rows.add(measured(&case(500, 1), "rsync", 1, f64::NAN)).unwrap();
        Rows::read(&path).unwrap_err();
    }

    #[test]
    fn what_an_earlier_version_wrote_is_read_but_not_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows.csv");
        let row = measured(&case(500, 1), "rsync", 1, 1.0);
        Rows::open(&path).unwrap().add(row.clone()).unwrap();
        let mut reader = csv::Reader::from_path(&path).unwrap();
        let newest = reader.headers().unwrap().iter().position(|column| column == NEWEST).unwrap();
        let without = |record: &csv::StringRecord| -> String {
            let columns: Vec<&str> =
                record.iter().enumerate().filter(|(at, _)| *at != newest).map(|(_, column)| column).collect();
            columns.join(",") + "\n"
        };
        let lines = [without(&reader.headers().unwrap().clone()), without(&reader.records().next().unwrap().unwrap())];
        fs::write(&path, lines.concat()).unwrap();
        assert_eq!(Rows::read(&path).unwrap(), [row]);
        let told = format!("{:#}", Rows::open(&path).unwrap_err());
        assert!(told.contains("not of this version") && told.contains("no column 'own_us'"), "{told}");
        assert_eq!(fs::read_to_string(&path).unwrap(), lines.concat());
    }

    #[test]
    fn what_was_computed_or_stopped_is_not_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let case = case(500, 1);
        let mut rows = Rows::open(&dir.path().join("rows.csv")).unwrap();
        for (way, how, is_done) in [
            ("one", How::Computed, true),
            ("scp", How::Stopped, true),
            ("inband", How::Refused, false),
            ("http1", How::Missing, false),
        ] {
            rows.add(Row::new(&case, way, 1, how)).unwrap();
            assert_eq!(rows.is_done(&case, way, 3), is_done, "{way}");
        }
    }
}
