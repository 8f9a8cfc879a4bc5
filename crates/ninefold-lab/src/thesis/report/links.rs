//! What else the rows tell: several clients, lost packets, the server's CPU time, and whether the link is what it ought to be.

use std::collections::BTreeSet;

use anyhow::Result;

use super::{DRAWN, Report, ratio, seconds, spread, strings};
use crate::thesis::case::{Case, Direction, Link, megabytes};
use crate::thesis::old::IOUNIT;
use crate::thesis::page::Page;
use crate::thesis::paper;
use crate::thesis::plot::{Line, draw};
use crate::thesis::rows::How;
use crate::thesis::sums::Place;
use crate::thesis::way;

/// The share by which one request at a time may differ from what the link ought to make of it.
const EMULATED_WITHIN: f64 = 0.05;

impl Report<'_> {
    pub(super) fn clients(&self, page: &mut Page) -> Result<()> {
        let several: Vec<&Place> = self.places.iter().filter(|place| place.case.clients > 1).collect();
        if several.is_empty() {
            return Ok(());
        }
        page.heading("Several clients at a time (table 7.4)");
        page.paragraph("Begun at the same instant. All together: the bytes of all by the slowest one's time.");
        let columns = strings(&[
            "",
            "clients",
            "slowest, s",
            "all together, MB/s",
            "slowest / mean",
            "CPU, s/GB",
            "runs",
            "notes",
        ]);
        let row = |place: &&Place| {
            let all = place.case.bytes as f64 * f64::from(place.case.clients) / 1e6;
            vec![
                format!("{}; {} {}", place.way.says, place.case.link.text(), megabytes(place.case.bytes)),
                place.case.clients.to_string(),
                seconds(place.median()),
                place.median().map_or("-".to_owned(), |median| format!("{:.2}", all / median)),
                place.unfairness.map_or("-".to_owned(), |figure| format!("{figure:.3}")),
                seconds(place.cpu_per_gb),
                place.seconds.map_or(0, |sum| sum.count).to_string(),
                place.note(),
            ]
        };
        page.table(&columns, &several.iter().map(row).collect::<Vec<_>>());
        let there: Vec<Vec<String>> = paper::CLIENTS
            .iter()
            .map(|&(clients, streams, http, plan9)| {
                vec![clients.to_string(), seconds(Some(streams)), seconds(Some(http)), seconds(Some(plan9))]
            })
            .collect();
        page.paragraph("The thesis's, 10 MB at 50 ms over 10 Mbit/s; seconds, the mean of the clients:");
        page.table(&strings(&["clients", "streaming 9P", "HTTP", "9P"]), &there);
        let alone: BTreeSet<Case> = several.iter().map(|place| Case { clients: 1, ..place.case.clone() }).collect();
        for alone in alone {
            let line = |name: &str| Line {
                says: name.to_owned(),
                points: several
                    .iter()
                    .filter(|place| place.way.name == name && Case { clients: 1, ..place.case.clone() } == alone)
                    .filter_map(|place| Some((f64::from(place.case.clients), place.median()?)))
                    .collect(),
            };
            let lines: Vec<Line> =
                DRAWN.into_iter().chain(["pump1"]).map(line).filter(|line| !line.points.is_empty()).collect();
            if let Some(svg) = draw(&format!("{} (figure 7.5)", alone.text()), "clients at a time", &lines)? {
                page.picture(&svg);
            }
        }
        Ok(())
    }

    pub(super) fn losses(&self, page: &mut Page) {
        let lossy: Vec<&Place> = self.places.iter().filter(|place| place.case.link.loss_ppm > 0).collect();
        if lossy.is_empty() {
            return;
        }
        page.heading("Where packets are lost");
        page.paragraph("Chance is drawn from the number of the run, so that the ways of a run meet the same.");
        let columns = strings(&[
            "",
            "lost, %",
            "control",
            "size",
            "median, s",
            "mean ± deviation",
            "HTTP by 1 connection / this",
            "notes",
        ]);
        let row = |place: &&Place| {
            let case = &place.case;
            let http = self.at(case, "http1").and_then(Place::median);
            vec![
                format!("{}, {} at {} ms", place.way.says, case.direction.name(), case.link.rtt_ms()),
                case.link.loss_percent().to_string(),
                case.link.control.clone(),
                megabytes(case.bytes),
                seconds(place.median()),
                spread(place),
                ratio(http, place.median()),
                place.note(),
            ]
        };
        page.table(&columns, &lossy.iter().map(row).collect::<Vec<_>>());
    }

    /// The largest size of each link: what begins and ends with a file counts least there.
    pub(super) fn cpu(&self, page: &mut Page) {
        let mut rows = Vec::new();
        let kinds: BTreeSet<(Direction, &Link)> =
            self.usual().map(|place| (place.case.direction, &place.case.link)).collect();
        for (direction, link) in kinds {
            let of_kind = || self.usual().filter(|place| place.case.direction == direction && place.case.link == *link);
            let Some(bytes) = of_kind().map(|place| place.case.bytes).max() else { continue };
            for place in of_kind().filter(|place| place.case.bytes == bytes && place.cpu_per_gb.is_some()) {
                let case = &place.case;
                let http = self.at(case, "http1").and_then(|place| place.cpu_per_gb);
                rows.push(vec![
                    place.way.says.to_owned(),
                    place.way.server().name().to_owned(),
                    case.text(),
                    seconds(place.cpu_per_gb),
                    ratio(place.cpu_per_gb, http),
                ]);
            }
        }
        if !rows.is_empty() {
            page.heading("The server's CPU time");
            page.paragraph(
                "User and system, of the server's whole process group and what came of it, by 10^9 bytes of file; the mean of the runs. \
                 What has ended is told in ticks of 10 ms. What the kernel does for arriving packets is in the link's time, for all alike.",
            );
            page.table(&strings(&["", "server", "", "s/GB", "of nginx's, 1 connection"]), &rows);
        }
    }

    pub(super) fn emulation(&self, page: &mut Page) {
        let rows = self.emulated();
        if rows.is_empty() {
            return;
        }
        page.heading("Is the link what it was asked to be?");
        page.paragraph(&format!(
            "One request at a time is waited for N × (RTT + 8 KiB / rate), within {} %, where TCP sends what it may at once: by reno, which is \
             what judges each link here. bbr paces, and sends the packets of each reply apart; rows of the tables above under it are \
             longer by that. The link's delay is less than was asked for by what a byte there and 8 KiB back took beyond it by bare sockets, \
             before anything was measured: taken off. What the client does with its own file between two requests is not counted. Where '-' stands neither was so. The last column puts a round trip without data, as measured on the same connection, in place of the RTT that \
             was asked for.",
            EMULATED_WITHIN * 100.0
        ));
        let columns = strings(&[
            "",
            "run",
            "N",
            "took, s",
            "ought to take, s",
            "ratio",
            "within",
            "taken off, ms",
            "ratio by round trips measured",
        ]);
        page.table(&columns, &rows);
    }

    pub(super) fn emulated(&self) -> Vec<Vec<String>> {
        let of_one = self.rows.iter().filter(|row| row.how == How::Measured && row.clients == 1);
        of_one
            .filter_map(|row| {
                let (messages, took) = (row.messages?, row.data_seconds?);
                let way = way::find(&row.way)?;
                let case = row.case();
                let data = case.link.bits(u64::from(IOUNIT)).as_secs_f64();
                let ought = messages as f64 * (case.link.rtt().as_secs_f64() + data);
                let by_trips = row.trip_seconds.map(|trip| messages as f64 * (trip + data));
                let within = match (took / ought - 1.0).abs() <= EMULATED_WITHIN {
                    // bbr does not send what it may at once, and what it makes of it is no fault of the link.
                    false if row.control == "bbr" && !way.is_check() => "paced",
                    true => "yes",
                    false => "no",
                };
                Some(vec![
                    format!("{}; {}", way.says, case.text()),
                    row.run.to_string(),
                    messages.to_string(),
                    seconds(Some(took)),
                    seconds(Some(ought)),
                    ratio(Some(took), Some(ought)),
                    within.to_owned(),
                    seconds(row.own_us.map(|own| own as f64 / 1e3)),
                    ratio(Some(took), by_trips),
                ])
            })
            .collect()
    }
}
