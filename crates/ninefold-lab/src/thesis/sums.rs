//! What several runs of one thing come to.

use super::case::Case;
use super::rows::{How, Row};
use super::way::{self, Way};

/// Of some figures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sum {
    pub count: usize,
    pub median: f64,
    pub mean: f64,
    /// Of the sample; none of one figure.
    pub deviation: Option<f64>,
}

impl Sum {
    /// None of no figures.
    pub fn of(figures: &[f64]) -> Option<Sum> {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let upper = *sorted.get(count / 2)?;
        let median = if count % 2 == 1 { upper } else { (sorted[count / 2 - 1] + upper) / 2.0 };
        let mean = sorted.iter().sum::<f64>() / count as f64;
        let squares: f64 = sorted.iter().map(|figure| (figure - mean).powi(2)).sum();
        let deviation = (count > 1).then(|| (squares / (count - 1) as f64).sqrt());
        Some(Sum { count, median, mean, deviation })
    }
}

/// One way in one case.
#[derive(Clone, Debug)]
pub struct Place {
    pub case: Case,
    pub way: Way,
    /// The slowest client's, of what was measured or computed.
    pub seconds: Option<Sum>,
    /// The slowest client's time by the mean of all.
    pub unfairness: Option<f64>,
    /// Of the server, by 10^9 bytes of file.
    pub cpu_per_gb: Option<f64>,
    /// The most of a run; none where they are not counted.
    pub streams: Option<u64>,
    /// The fewest and the most of a run, of all clients.
    pub connections: Option<(u64, u64)>,
    pub missed: u64,
    pub is_computed: bool,
    /// One measured run that took so long that there is no second.
    pub is_long: bool,
    /// Runs that have no figure, and why.
    pub lacking: Vec<(How, String)>,
}

impl Place {
    pub fn median(&self) -> Option<f64> {
        Some(self.seconds?.median)
    }

    /// Connections of data of one client, the fewest and the most of a run: of ours those beside the session.
    pub fn data_connections(&self) -> Option<(u64, u64)> {
        let each = |all: u64| (all / u64::from(self.case.clients.max(1))).saturating_sub(u64::from(self.way.is_ours()));
        self.connections.map(|(least, most)| (each(least), each(most)))
    }

    /// What tables say beside it.
    pub fn note(&self) -> String {
        let mut notes = Vec::new();
        if self.is_computed {
            notes.push("computed".to_owned());
        }
        if self.is_long {
            notes.push("one run".to_owned());
        }
        if self.way.may_stream() && self.seconds.is_some() && self.streams == Some(0) {
            notes.push("no stream was used: in-band".to_owned());
        }
        if self.missed > 0 {
            notes.push(format!("the link took {} packets too late", self.missed));
        }
        let mut told: Vec<&str> = Vec::new();
        for (how, why) in &self.lacking {
            if !told.contains(&why.as_str()) {
                let times = self.lacking.iter().filter(|(_, other)| other == why).count();
                let times = if times > 1 { format!(", {times} runs") } else { String::new() };
                notes.push(format!("{}{times}: {why}", how.word()));
                told.push(why);
            }
        }
        notes.join("; ")
    }
}

/// One for each case and way of rows that count, in their order and that of the ways. `long`: seconds from which on there is one run.
pub fn places(rows: &[Row], long: f64) -> Vec<Place> {
    let mut cases: Vec<Case> = Vec::new();
    for row in rows {
        let case = row.case();
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    cases.sort();
    let mut places = Vec::new();
    for case in cases {
        let of_case: Vec<&Row> = rows.iter().filter(|row| row.case() == case).collect();
        for way in way::ALL {
            let of_way: Vec<&Row> = of_case.iter().copied().filter(|row| row.way == way.name).collect();
            if !of_way.is_empty() {
                places.push(place(&case, way, &of_way, long));
            }
        }
    }
    places
}

fn place(case: &Case, way: Way, rows: &[&Row], long: f64) -> Place {
    let measured: Vec<&Row> = rows.iter().copied().filter(|row| row.how == How::Measured).collect();
    let computed: Vec<f64> = rows.iter().filter(|row| row.how == How::Computed).filter_map(|row| row.seconds).collect();
    let of = |figure: fn(&Row) -> Option<f64>| -> Vec<f64> { measured.iter().filter_map(|row| figure(row)).collect() };
    let seconds = of(|row| row.seconds);
    let is_computed = seconds.is_empty() && !computed.is_empty();
    let cpu = of(|row| row.cpu_seconds);
    let gigabytes = case.bytes as f64 * f64::from(case.clients) / 1e9;
    let unfairness = of(|row| Some(row.seconds? / row.mean_seconds.filter(|mean| *mean > 0.0)?));
    let lacking = rows
        .iter()
        .filter(|row| !matches!(row.how, How::Measured | How::Computed))
        .map(|row| (row.how, row.note.clone()))
        .collect();
    Place {
        case: case.clone(),
        way,
        is_long: seconds.len() == 1 && seconds[0] > long,
        seconds: Sum::of(&seconds).or(Sum::of(&computed)),
        unfairness: Sum::of(&unfairness).map(|sum| sum.median),
        cpu_per_gb: Sum::of(&cpu).filter(|_| gigabytes > 0.0).map(|sum| sum.mean / gigabytes),
        streams: measured.iter().filter_map(|row| row.streams).max(),
        connections: measured.iter().filter_map(|row| row.connections).fold(None, |all, one| {
            Some(all.map_or((one, one), |(least, most): (u64, u64)| (least.min(one), most.max(one))))
        }),
        missed: measured.iter().filter_map(|row| row.missed).sum(),
        is_computed,
        lacking,
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::tests::case;
    use super::super::rows::tests::measured;
    use super::*;

    #[test]
    fn median_mean_and_deviation_are_those_of_the_sample() {
        assert_eq!(Sum::of(&[]), None);
        assert_eq!(Sum::of(&[3.0]), Some(Sum { count: 1, median: 3.0, mean: 3.0, deviation: None }));
        let sum = Sum::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((sum.count, sum.median, sum.mean), (8, 4.5, 5.0));
        // 32 / 7.
        assert!((sum.deviation.unwrap() - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(Sum::of(&[9.0, 1.0, 5.0]).unwrap().median, 5.0);
    }

    #[test]
    fn a_place_has_what_its_runs_come_to_and_what_they_lack() {
        let case = Case { clients: 4, ..case(50_000, 10_000_000) };
        let mut rows: Vec<Row> =
            [2.0, 1.0, 3.0].iter().zip(1..).map(|(&seconds, run)| measured(&case, "stream", run, seconds)).collect();
        rows[0].mean_seconds = Some(1.0);
        rows[2].streams = Some(0);
        (rows[0].connections, rows[1].connections) = (Some(20), Some(8));
        let mut failed = Row::new(&case, "stream", 4, How::Failed);
        failed.note = "status 1: no".to_owned();
        rows.push(failed);
        let places = places(&rows, 60.0);
        assert_eq!(places.len(), 1);
        let place = &places[0];
        assert_eq!((place.median(), place.unfairness, place.is_long), (Some(2.0), Some(1.0), false));
        // Of four clients, each with a session.
        assert_eq!(place.data_connections(), Some((1, 4)));
        // 0.2 s on the mean for 0.04 GB.
        assert!((place.cpu_per_gb.unwrap() - 5.0).abs() < 1e-9);
        assert_eq!(place.note(), "no stream was used: in-band; failed: status 1: no");
    }

    #[test]
    fn what_was_computed_is_said_to_be() {
        let case = case(150_000, 200_000_000);
        let mut row = Row::new(&case, "one", 1, How::Computed);
        row.seconds = Some(3664.0);
        let places = places(&[row, measured(&case, "scp", 1, 61.0)], 60.0);
        assert_eq!((places[0].way.name, places[0].note().as_str()), ("one", "computed"));
        assert_eq!(
            (places[1].is_long, places[1].note().as_str(), places[1].cpu_per_gb.is_some()),
            (true, "one run", true)
        );
    }
}
