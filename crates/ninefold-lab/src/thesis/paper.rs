//! The thesis's own figures: J. Floren, "FTP-like Streams for the 9P File Protocol", Rochester Institute of Technology, 2010. Its files
//! went over a hub of 10 Mbit/s between machines of that time, so that only shares compare: how much longer one takes than another, and
//! how much longer a distance makes it.

/// Seconds of a size in MB at a round trip time: 9P, HTTP, and streaming 9P where there is one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    pub table: &'static str,
    pub rtt_us: u64,
    pub megabytes: u64,
    pub plan9: f64,
    pub http: f64,
    pub streams: Option<f64>,
}

const fn first(table: &'static str, rtt_us: u64, megabytes: u64, plan9: f64, http: f64) -> Figure {
    Figure { table, rtt_us, megabytes, plan9, http, streams: None }
}

const fn second(table: &'static str, rtt_us: u64, megabytes: u64, plan9: f64, http: f64, streams: f64) -> Figure {
    Figure { table, rtt_us, megabytes, plan9, http, streams: Some(streams) }
}

/// Tables 2.2 to 2.4, and the means of 7.1 to 7.3.
pub const FIGURES: [Figure; 24] = [
    first("2.2", 500, 10, 10.60, 11.91),
    first("2.2", 500, 50, 51.96, 62.04),
    first("2.2", 500, 100, 103.64, 124.80),
    first("2.2", 500, 200, 208.81, 249.50),
    first("2.3", 15_000, 10, 29.57, 14.08),
    first("2.3", 15_000, 50, 147.44, 70.81),
    first("2.3", 15_000, 100, 296.06, 140.38),
    first("2.3", 15_000, 200, 590.94, 281.63),
    first("2.4", 50_000, 10, 76.16, 19.43),
    first("2.4", 50_000, 50, 374.07, 98.88),
    first("2.4", 50_000, 100, 747.13, 197.90),
    first("2.4", 50_000, 200, 1512.31, 400.00),
    second("7.1", 500, 10, 10.91, 12.66, 12.71),
    second("7.1", 500, 50, 59.21, 62.75, 62.11),
    second("7.1", 500, 100, 126.96, 125.30, 125.58),
    second("7.1", 500, 200, 262.40, 251.41, 251.53),
    second("7.2", 15_000, 10, 30.85, 14.47, 14.41),
    second("7.2", 15_000, 50, 156.29, 71.41, 70.91),
    second("7.2", 15_000, 100, 319.88, 144.44, 142.10),
    second("7.2", 15_000, 200, 647.22, 286.56, 284.60),
    second("7.3", 50_000, 10, 75.15, 19.58, 19.88),
    second("7.3", 50_000, 50, 379.67, 96.71, 96.83),
    second("7.3", 50_000, 100, 767.93, 193.10, 193.23),
    second("7.3", 50_000, 200, 1543.12, 385.292, 386.02),
];

/// Table 7.4: clients, and seconds by streaming 9P, HTTP and 9P; 10 MB at 50 ms.
pub const CLIENTS: [(u32, f64, f64, f64); 3] =
    [(2, 30.96, 28.51, 79.75), (4, 53.28, 52.53, 100.81), (8, 104.24, 101.93, 158.53)];
