//! Ours beside the bare pump and HTTP, and beside the thesis's own figures: shares of the medians of the same runs.

use std::collections::BTreeSet;

use super::{Report, ratio, seconds, strings};
use crate::thesis::case::{Case, Direction};
use crate::thesis::page::Page;
use crate::thesis::paper;
use crate::thesis::sums::Place;
use crate::thesis::way::EXPORT;

/// HTTP's two ways, of which the better one is what others are put beside.
const HTTP: [u32; 2] = [1, 4];

/// Our ways, in the order of the comparison.
const OURS: [&str; 4] = ["stream", "stream-pipe", "inband", "inband-pipe"];

impl Report<'_> {
    /// The best of some ways of a case: its median, and their name.
    pub(super) fn best<'p>(&'p self, case: &Case, is: impl Fn(&Place) -> bool) -> Option<(f64, &'p Place)> {
        let all = self.places.iter().filter(|place| place.case == *case && is(place));
        all.filter_map(|place| Some((place.median()?, place))).min_by(|a, b| a.0.total_cmp(&b.0))
    }

    pub(super) fn best_pump(&self, case: &Case) -> Option<(f64, &Place)> {
        self.best(case, |place| place.way.pump().is_some())
    }

    pub(super) fn better_http(&self, case: &Case) -> Option<(f64, &Place)> {
        self.best(case, |place| place.way.http().is_some_and(|connections| HTTP.contains(&connections)))
    }

    /// Ours beside the pump and beside HTTP, everywhere.
    pub(super) fn shares(&self, page: &mut Page) {
        let mut columns = strings(&["medians", "best pump", "s", "better HTTP", "s", "HTTP / pump"]);
        for name in OURS {
            columns.extend([format!("{name} / pump"), format!("{name} / HTTP")]);
        }
        let cases: BTreeSet<&Case> = self.places.iter().map(|place| &place.case).collect();
        let mut rows = Vec::new();
        for case in cases {
            let (pump, http) = (self.best_pump(case), self.better_http(case));
            let (pump_at, http_at) = (pump.map(|best| best.0), http.map(|best| best.0));
            if pump.is_none() && http.is_none() {
                continue;
            }
            let name = |best: Option<(f64, &Place)>| best.map_or("-".to_owned(), |best| best.1.way.name.to_owned());
            let mut row = vec![case.text(), name(pump), seconds(pump_at), name(http), seconds(http_at)];
            row.push(ratio(http_at, pump_at));
            for way in OURS {
                let ours = self.at(case, way).and_then(Place::median);
                row.extend([ratio(ours, pump_at), ratio(ours, http_at)]);
            }
            rows.push(row);
        }
        page.heading("Times as shares of bare sockets' and of HTTP's");
        page.paragraph(
            "The best of the bare pump's ways over 1 to 16 connections, and the better of HTTP's two ways (1 connection and 4 ranges; \
             writing: one PUT), of the same runs; below 1 is faster.",
        );
        page.table(&columns, &rows);
    }

    /// Streams beside HTTP and the pump of as many connections.
    pub(super) fn equals(&self, page: &mut Page) {
        let mut rows = Vec::new();
        for place in self.places.iter().filter(|place| place.way.may_stream()) {
            // What has come through another server has had two ways.
            let Some((least, most)) = place.data_connections().filter(|_| place.way.server().behind().is_none()) else {
                continue;
            };
            let of = |connections: Option<u32>| connections.is_some_and(|connections| u64::from(connections) == most);
            let http = self.best(&place.case, |place| of(place.way.http())).map(|best| best.0);
            let pump = self.best(&place.case, |place| of(place.way.pump())).map(|best| best.0);
            if http.is_some() || pump.is_some() {
                let ours = place.median();
                let name = place.way.says.to_owned();
                let count = if least == most { most.to_string() } else { format!("{least} to {most}") };
                let mut row = vec![name, place.case.text(), count, seconds(ours)];
                row.extend([seconds(http), ratio(ours, http), seconds(pump), ratio(ours, pump)]);
                rows.push(row);
            }
        }
        if !rows.is_empty() {
            page.heading("At equal connection counts");
            page.paragraph(
                "Connections of data, as the client's kernel counted them: the session, which streams have beside them, is not counted.",
            );
            let columns = [
                "",
                "",
                "connections",
                "s",
                "HTTP by as many, s",
                "of HTTP's",
                "bare sockets by as many, s",
                "of theirs",
            ];
            page.table(&strings(&columns), &rows);
        }
    }

    /// What comes through a server that exports another's files, beside what comes from that one.
    pub(super) fn exported(&self, page: &mut Page) {
        let mut rows = Vec::new();
        for place in self.places.iter().filter(|place| place.way.name == EXPORT) {
            let (through, direct) = (place.median(), self.at(&place.case, "stream").and_then(Place::median));
            let bytes = place.case.bytes as f64 * f64::from(place.case.clients);
            let rate = |took: Option<f64>| took.map_or("-".to_owned(), |took| format!("{:.1}", bytes / took / 1e6));
            let mut row = vec![place.case.text(), seconds(through), rate(through), seconds(direct), rate(direct)];
            row.extend([ratio(direct, through), place.note()]);
            rows.push(row);
        }
        if !rows.is_empty() {
            page.heading("Through an exporting server");
            page.paragraph(
                "A second server of ours, beside the one that has the files, exports a name space of them: the link is between it and the \
                 client. Beside it are the same files from their own server.",
            );
            let columns = ["", "through, s", "MB/s", "direct, s", "MB/s", "rate, of the direct one", "notes"];
            page.table(&strings(&columns), &rows);
        }
    }

    /// The thesis's tables beside the same places of these rows: what it had to show are shares.
    pub(super) fn thesis(&self, page: &mut Page) {
        let columns = strings(&[
            "table",
            "link here",
            "MB",
            "there: 9P, s",
            "HTTP, s",
            "streams, s",
            "9P / HTTP",
            "streams / HTTP",
            "here: one at a time, s",
            "HTTP, s",
            "ninefold cp, s",
            "one at a time / HTTP",
            "cp / HTTP",
        ]);
        let mut rows = Vec::new();
        for figure in paper::FIGURES {
            let is_here = |place: &&Place| {
                let Case { link, direction, bytes, .. } = &place.case;
                (link.rtt_us, *direction, *bytes) == (figure.rtt_us, Direction::Read, figure.megabytes * 1_000_000)
            };
            let links: BTreeSet<&Case> = self.usual().filter(is_here).map(|place| &place.case).collect();
            for case in links {
                let here = |way: &str| self.at(case, way).and_then(Place::median);
                let (one, http, ours) = (here("one"), here("http1"), here("stream"));
                rows.push(vec![
                    figure.table.to_owned(),
                    case.link.text(),
                    figure.megabytes.to_string(),
                    seconds(Some(figure.plan9)),
                    seconds(Some(figure.http)),
                    seconds(figure.streams),
                    ratio(Some(figure.plan9), Some(figure.http)),
                    ratio(figure.streams, Some(figure.http)),
                    seconds(one),
                    seconds(http),
                    seconds(ours),
                    ratio(one, http),
                    ratio(ours, http),
                ]);
            }
        }
        if !rows.is_empty() {
            page.heading("Tables 2.2 to 2.4 and 7.1 to 7.3 of the thesis");
            page.paragraph(
                "There: over a hub of 10 Mbit/s, means of five runs. Only shares compare: of 9P by HTTP's time, and of streams by HTTP's.",
            );
            page.table(&columns, &rows);
        }
    }
}
