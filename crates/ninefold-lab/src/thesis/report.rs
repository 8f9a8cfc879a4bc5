//! What the rows of a directory come to: a page with tables and figures, and a summary for the terminal. `Report::new`, then `summary`
//! and `write`.

mod beside;
mod links;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Result;

use super::case::{Case, Direction, Link, megabytes};
use super::page::Page;
use super::plot::{Line, draw};
use super::rows::{How, Row, counted};
use super::setting::Setting;
use super::sums::{Place, places};

/// The lines of the figures, beside the best of the bare pump.
const DRAWN: [&str; 10] =
    ["http1", "http4", "stream", "stream-pipe", "inband", "inband-pipe", "one", "scp", "rsync", "diodcat"];

#[derive(Debug)]
pub struct Report<'s> {
    rows: Vec<Row>,
    places: Vec<Place>,
    setting: &'s Setting,
    /// Seconds from which on there is one run.
    long: f64,
}

fn seconds(figure: Option<f64>) -> String {
    figure.map_or("-".to_owned(), |figure| format!("{figure:.3}"))
}

fn ratio(over: Option<f64>, under: Option<f64>) -> String {
    match (over, under) {
        (Some(over), Some(under)) if under > 0.0 => format!("{:.3}", over / under),
        _ => "-".to_owned(),
    }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

impl Report<'_> {
    pub fn new<'s>(rows: &[Row], setting: &'s Setting, long: f64) -> Report<'s> {
        let rows = counted(rows);
        let places = places(&rows, long);
        Report { rows, places, setting, long }
    }

    /// Runs that went wrong and were not done later.
    pub fn failed(&self) -> usize {
        self.count(How::Failed)
    }

    fn count(&self, how: How) -> usize {
        self.rows.iter().filter(|row| row.how == how).count()
    }

    /// How many runs of each kind there are.
    fn sum(&self) -> String {
        use How::{Computed, Failed, Measured, Missing, Refused, Stopped};
        let kinds = [Measured, Computed, Stopped, Refused, Missing, Failed];
        let told: Vec<String> = kinds
            .into_iter()
            .map(|how| (how, self.count(how)))
            .filter(|(how, count)| *count > 0 || *how == Measured)
            .map(|(how, count)| format!("{count} {}", how.word()))
            .collect();
        told.join(", ")
    }

    pub fn summary(&self) -> String {
        let mut text = String::new();
        for places in self.places.chunk_by(|a, b| a.case == b.case) {
            let Some(first) = places.first() else { continue };
            let _ = writeln!(text, "{}", first.case.text());
            for place in places {
                let runs = place.seconds.map_or(0, |sum| sum.count);
                let line =
                    format!("  {:12} {:>10} s  {runs} runs  {}", place.way.name, seconds(place.median()), place.note());
                let _ = writeln!(text, "{}", line.trim_end());
            }
        }
        let _ = writeln!(text, "rows: {}", self.sum());
        text
    }

    pub fn write(&self, out: &Path) -> Result<()> {
        Ok(fs::write(out.join("report.html"), self.page()?)?)
    }

    fn page(&self) -> Result<String> {
        let mut page = Page::new("Files by streams, 9P and others, over a distance");
        self.preface(&mut page);
        self.shares(&mut page);
        self.equals(&mut page);
        self.exported(&mut page);
        for direction in [Direction::Read, Direction::Write] {
            self.transfers(&mut page, direction)?;
        }
        self.thesis(&mut page);
        self.clients(&mut page)?;
        self.losses(&mut page);
        self.cpu(&mut page);
        self.emulation(&mut page);
        self.lacking(&mut page);
        Ok(page.finish())
    }

    fn preface(&self, page: &mut Page) {
        let setting = self.setting;
        page.paragraph(&format!("{}. {}. {}", setting.ninefold, setting.machine, setting.files));
        page.paragraph(&format!("Peers: {}.", setting.peers.join("; ")));
        page.paragraph(&format!(
            "Socket buffers are bounded alike for all, by {}, unless a link says otherwise.",
            setting.buffers
        ));
        page.paragraph(
            "A time is that of a whole command, from the start of its process to its end; every file that arrived was compared by a \
             checksum when its time had been taken. The ways took turns, so many runs. Of the runs the tables have the median, and mean \
             and deviation where they say so. HTTP's ranges lie in a file each: putting them together is not in its time. The client \
             has spoken to the server before.",
        );
        let loads: Vec<f64> = self.rows.iter().filter_map(|row| row.load).collect();
        if let (Some(least), Some(most)) =
            (loads.iter().copied().reduce(f64::min), loads.iter().copied().reduce(f64::max))
        {
            page.paragraph(&format!("Load average of the machine at the beginning of runs: {least} to {most}."));
        }
        page.paragraph(&format!("Runs: {}.", self.sum()));
    }

    /// Places of one client without loss, the usual ones.
    fn usual(&self) -> impl Iterator<Item = &Place> {
        let is_usual =
            |place: &&Place| place.case.clients == 1 && place.case.link.loss_ppm == 0 && !place.way.is_check();
        self.places.iter().filter(is_usual)
    }

    fn at(&self, case: &Case, way: &str) -> Option<&Place> {
        self.places.iter().find(|place| place.case == *case && place.way.name == way)
    }

    fn transfers(&self, page: &mut Page, direction: Direction) -> Result<()> {
        let links: BTreeSet<&Link> =
            self.usual().filter(|place| place.case.direction == direction).map(|place| &place.case.link).collect();
        if links.is_empty() {
            return Ok(());
        }
        page.heading(&format!("One client, {}", direction.name()));
        for link in links {
            let of_link: Vec<&Place> =
                self.usual().filter(|place| place.case.direction == direction && place.case.link == *link).collect();
            let sizes: BTreeSet<u64> = of_link.iter().map(|place| place.case.bytes).collect();
            page.smaller(&link.text());
            let mut columns = strings(&["seconds: median (mean ± deviation, runs)"]);
            columns.extend(sizes.iter().map(|&bytes| megabytes(bytes)));
            columns.push("notes".to_owned());
            let mut rows = Vec::new();
            for way in super::way::ALL {
                let at = |bytes: u64| of_link.iter().find(|place| place.way == way && place.case.bytes == bytes);
                if sizes.iter().all(|&bytes| at(bytes).is_none()) {
                    continue;
                }
                let mut row = vec![way.says.to_owned()];
                let mut notes: Vec<String> = Vec::new();
                for &bytes in &sizes {
                    row.push(at(bytes).map_or("-".to_owned(), |place| cell(place)));
                    let note = at(bytes).map(|place| place.note()).unwrap_or_default();
                    if !note.is_empty() && !notes.contains(&note) {
                        notes.push(note);
                    }
                }
                row.push(notes.join("; "));
                rows.push(row);
            }
            page.table(&columns, &rows);
            if sizes.len() > 1 {
                let figure = match (direction, link.rtt_us) {
                    (Direction::Read, 500) => " (figures 2.3, 7.2)",
                    (Direction::Read, 15_000) => " (figures 2.4, 7.3)",
                    (Direction::Read, 50_000) => " (figures 2.5, 7.4)",
                    _ => "",
                };
                let title = format!("{} at {}{figure}", direction.name(), link.text());
                let line = |name: &str, says: &str, of: &dyn Fn(&Case) -> Option<f64>| Line {
                    says: format!("{name}: {says}"),
                    points: sizes
                        .iter()
                        .filter_map(|&bytes| {
                            let case = Case { link: link.clone(), direction, bytes, clients: 1 };
                            Some((bytes as f64 / 1e6, of(&case)?))
                        })
                        .collect(),
                };
                let mut lines = vec![line("pump", "the best", &|case| Some(self.best_pump(case)?.0))];
                for name in DRAWN {
                    let Some(way) = super::way::find(name) else { continue };
                    lines.push(line(name, way.says, &|case| self.at(case, name)?.median()));
                }
                lines.retain(|line| !line.points.is_empty());
                if let Some(svg) = draw(&title, "MB", &lines)? {
                    page.picture(&svg);
                }
            }
        }
        Ok(())
    }

    fn lacking(&self, page: &mut Page) {
        page.heading("What has no figure, and why");
        let mut rows = Vec::new();
        for place in &self.places {
            for (how, why) in &place.lacking {
                rows.push(vec![place.way.says.to_owned(), place.case.text(), how.word().to_owned(), why.clone()]);
            }
        }
        page.paragraph(&format!(
            "{} runs. What asks one request at a time and would take more than {} s is computed above 10 MB; what takes so long was \
             run once.",
            rows.len(),
            self.long
        ));
        page.table(&strings(&["", "", "", ""]), &rows);
    }
}

/// Mean and deviation, and of how many runs.
fn spread(place: &Place) -> String {
    place.seconds.map_or(String::new(), |sum| {
        let deviation = sum.deviation.map_or(String::new(), |deviation| format!(" ± {deviation:.3}"));
        format!("{:.3}{deviation}, {}", sum.mean, sum.count)
    })
}

fn cell(place: &Place) -> String {
    match place.median() {
        None => "-".to_owned(),
        Some(median) if place.is_computed => format!("{median:.0} (computed)"),
        Some(median) => format!("{median:.3} ({})", spread(place)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::tests::case;
    use super::super::rows::tests::measured;
    use super::*;

    fn rows() -> Vec<Row> {
        let mut rows = Vec::new();
        for bytes in [10_000_000, 200_000_000] {
            let case = case(50_000, bytes);
            let scale = bytes as f64 / 1e7;
            for run in 1..=3 {
                for (way, seconds) in
                    [("http1", 0.4), ("http4", 0.3), ("pump1", 0.25), ("pump4", 0.2), ("stream", 0.24)]
                {
                    rows.push(measured(&case, way, run, seconds * scale));
                }
            }
        }
        let mut one = measured(&case(50_000, 10_000_000), "one", 1, 62.0);
        (one.messages, one.data_seconds, one.trip_seconds) = (Some(1221), Some(61.5), Some(0.0502));
        rows.push(one);
        let mut computed = Row::new(&case(50_000, 200_000_000), "one", 1, How::Computed);
        computed.seconds = Some(1240.0);
        rows.push(computed);
        let mut refused = Row::new(&case(50_000, 200_000_000), "inband", 1, How::Refused);
        refused.note = "error: unexpected argument '--no-stream' found".to_owned();
        rows.push(refused);
        let several = Case { clients: 16, ..case(50_000, 10_000_000) };
        let mut slow = measured(&several, "stream", 1, 1.6);
        slow.mean_seconds = Some(1.28);
        rows.push(slow);
        rows
    }

    #[test]
    fn ours_is_put_beside_the_best_pump_and_the_better_http() {
        let setting = Setting::default();
        let page = Report::new(&rows(), &setting, 60.0).page().unwrap();
        // 0.24 beside 0.2 and 0.3, at both sizes.
        let row = "<td>pump4</td><td>4.000</td><td>http4</td><td>6.000</td><td>1.500</td><td>1.200</td><td>0.800</td>";
        assert!(page.contains(row), "{page}");
        // Connections are not counted here; then there are four and a session, as many as of HTTP's ranges and the pump's.
        assert!(!page.contains("At equal connection counts"), "{page}");
        let mut rows = rows();
        rows.iter_mut().filter(|row| row.way == "stream" && row.clients == 1).for_each(|row| row.connections = Some(5));
        let equal = Report::new(&rows, &setting, 60.0).page().unwrap();
        let row = "<td>4</td><td>4.800</td><td>6.000</td><td>0.800</td><td>4.000</td><td>1.200</td>";
        assert!(equal.contains("At equal connection counts") && equal.contains(row), "{equal}");
        // As many in each run; in others fewer.
        rows.iter_mut().filter(|row| row.way == "stream" && row.run == 2).for_each(|row| row.connections = Some(3));
        let fewer = Report::new(&rows, &setting, 60.0).page().unwrap();
        assert!(fewer.contains("<td>2 to 4</td><td>4.800</td><td>6.000</td>"), "{fewer}");
        // 16 × 10 MB in 1.6 s; 1.6 beside 1.28.
        assert!(page.contains("<td>16</td><td>1.600</td><td>100.00</td><td>1.250</td>"), "{page}");
        assert!(page.contains("<svg ") && page.contains("1240 (computed)"), "{page}");
    }

    #[test]
    fn what_comes_through_an_exporting_server_is_put_beside_what_comes_from_the_files_own() {
        let setting = Setting::default();
        let mut rows = rows();
        assert!(!Report::new(&rows, &setting, 60.0).page().unwrap().contains("Through an exporting server"));
        let mut through = measured(&case(50_000, 200_000_000), "export", 1, 6.0);
        (through.streams, through.connections) = (Some(4), Some(5));
        rows.push(through);
        let page = Report::new(&rows, &setting, 60.0).page().unwrap();
        let row = "<td>6.000</td><td>33.3</td><td>4.800</td><td>41.7</td><td>0.800</td>";
        assert!(page.contains("Through an exporting server") && page.contains(row), "{page}");
        // It has two ways, and is no row among those of one.
        assert!(!page.contains("At equal connection counts"), "{page}");
    }

    #[test]
    fn the_emulation_is_judged_by_one_request_at_a_time() {
        let setting = Setting::default();
        let mut rows = rows();
        // 1221 × (50 ms + 65.536 us) are 61.13 s.
        let told = Report::new(&rows, &setting, 60.0).emulated();
        assert_eq!(told.len(), 1);
        assert_eq!(told[0][2..7], strings(&["1221", "61.500", "61.130", "1.006", "yes"]));
        // Beyond 5 %: bbr may have paced it, and reno has not.
        for (way, within) in [("one", "paced"), ("check", "no")] {
            for row in rows.iter_mut().filter(|row| row.messages.is_some()) {
                (row.data_seconds, row.way) = (Some(64.2), way.to_owned());
            }
            assert_eq!(Report::new(&rows, &setting, 60.0).emulated()[0][5..7], strings(&["1.050", within]));
        }
    }

    #[test]
    fn what_has_no_figure_is_counted_and_named() {
        let setting = Setting::default();
        let rows = rows();
        let report = Report::new(&rows, &setting, 60.0);
        assert_eq!(report.failed(), 0);
        let summary = report.summary();
        assert!(summary.ends_with("rows: 32 measured, 1 computed, 1 refused\n"), "{summary}");
        assert!(summary.contains("0 runs  refused: error: unexpected argument '--no-stream' found"), "{summary}");
        let page = report.page().unwrap();
        assert!(page.contains("<td>refused</td><td>error: unexpected argument '--no-stream' found</td>"), "{page}");
    }
}
