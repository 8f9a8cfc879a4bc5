//! The constants, by what was measured. Each rule takes figures and gives one, so that it is seen what a machine would get.

use std::fmt::Write as _;

use ninefold_stream::Calibration;

use super::mapping::{self, LENGTHS};
use super::sizes::{CALLS, READS, WINDOWS, WRITES};
use crate::turns::Turns;

/// How much dearer than the best a smaller piece may be: memory and caches are for others too. The same measured twice differs by as much.
const NEAR: f64 = 1.03;

/// The same of the first piece, of which it is not known yet that more will be wanted.
const FIRST: f64 = 1.25;

/// The smallest of which the cost is at most `share` times the least.
fn smallest<T: Copy>(costs: &[(T, f64)], share: f64) -> Option<T> {
    let least = costs.iter().map(|cost| cost.1).min_by(f64::total_cmp)?;
    costs.iter().find(|cost| cost.1 <= least * share).map(|cost| cost.0)
}

/// From where on the second costs no more than the first, there and at all that follow.
fn from<T: Copy>(costs: &[(T, f64, f64)]) -> Option<T> {
    costs.iter().rev().take_while(|(_, first, second)| second <= first).last().map(|cost| cost.0)
}

/// What was measured of a column.
fn costs<T: Copy + ToString>(turns: &Turns, what: &str, tried: &[T]) -> Vec<(T, f64)> {
    tried.iter().filter_map(|&bytes| Some((bytes, turns.least(what, &bytes.to_string())?))).collect()
}

fn calls(turns: &Turns) -> Vec<(usize, f64, f64)> {
    let past = costs(turns, "call past", &CALLS).into_iter();
    past.zip(costs(turns, "call through", &CALLS)).map(|((bytes, past), (_, through))| (bytes, through, past)).collect()
}

fn lengths(turns: &Turns, table: Calibration) -> Vec<(u64, f64, f64)> {
    let of = |bytes: u64, way: &str| turns.least(&format!("file of {bytes}"), way);
    let (pread, mmap) = (mapping::pread(table), mapping::mmap(table));
    LENGTHS.iter().filter_map(|&bytes| Some((bytes, of(bytes, &pread)?, of(bytes, &mmap)?))).collect()
}

/// How much is moved at a time; what is not measured stays as it is.
pub fn sizes(turns: &Turns) -> Calibration {
    let usual = Calibration::default();
    let reads = costs(turns, "read", &READS);
    let read = smallest(&reads, NEAR).unwrap_or(usual.read);
    Calibration {
        first: smallest(&reads, FIRST).map_or(usual.first, |first| first.min(read)),
        read,
        write: smallest(&costs(turns, "write", &WRITES), NEAR).unwrap_or(usual.write),
        window: smallest(&costs(turns, "window", &WINDOWS), NEAR).unwrap_or(usual.window),
        // Where the system's copy is never the better one, the longest that was tried is not known to be worse either.
        direct: from(&calls(turns)).unwrap_or(2 * CALLS[CALLS.len() - 1]),
        ..usual
    }
}

/// Where mapping begins to pay. Where it does not at the longest file that was measured, none is mapped.
pub fn mapping(turns: &Turns, table: Calibration) -> Calibration {
    Calibration { map_from: from(&lengths(turns, table)).unwrap_or(u64::MAX), ..table }
}

pub fn text(turns: &Turns, table: Calibration) -> String {
    let mut text = String::from("\nPieces; nanoseconds a KiB\n");
    let list = |text: &mut String, name: &str, costs: Vec<(u64, f64)>| {
        let _ = write!(text, "  {name:22}");
        for (bytes, ns) in costs {
            let _ = write!(text, " {}: {:.1} ", short(bytes), ns * 1024.0);
        }
        text.push('\n');
    };
    let wide = |costs: Vec<(usize, f64)>| costs.into_iter().map(|(bytes, ns)| (bytes as u64, ns)).collect();
    list(&mut text, "read", wide(costs(turns, "read", &READS)));
    list(&mut text, "write", wide(costs(turns, "write", &WRITES)));
    list(&mut text, "window", costs(turns, "window", &WINDOWS));
    list(&mut text, "Read::read, direct", wide(calls(turns).into_iter().map(|(n, _, past)| (n, past)).collect()));
    list(&mut text, "Read::read, copied", wide(calls(turns).into_iter().map(|(n, through, _)| (n, through)).collect()));
    let lengths = lengths(turns, table);
    list(&mut text, "files by pread", lengths.iter().map(|&(n, pread, _)| (n, pread)).collect());
    list(&mut text, "files by mmap", lengths.iter().map(|&(n, _, mmap)| (n, mmap)).collect());
    let _ = writeln!(text, "\n{:12} {:>12} {:>12}", "constant", "default", "here");
    let (usual, here) = (Calibration::default().to_string(), table.to_string());
    for (usual, here) in usual.lines().zip(here.lines()) {
        let (name, usual) = usual.split_once(' ').unwrap_or((usual, ""));
        let here = here.split_once(' ').map_or("", |(_, here)| here);
        let kept = if ["map_whole", "ahead"].contains(&name) { "  not measured" } else { "" };
        let _ = writeln!(text, "{name:12} {usual:>12} {here:>12}{kept}");
    }
    text
}

fn short(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{}M", bytes >> 20) } else { format!("{}K", bytes >> 10) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_piece_that_is_near_the_best_is_taken() {
        assert_eq!(smallest(&[(1, 9.0), (2, 5.1), (3, 5.0), (4, 5.2)], NEAR), Some(2));
        assert_eq!(smallest(&[(1, 9.0), (2, 5.1), (3, 5.0)], 2.0), Some(1));
        assert_eq!(smallest::<u64>(&[], NEAR), None);
    }

    #[test]
    fn mapping_pays_from_where_it_never_loses_again() {
        assert_eq!(from(&[(1, 5.0, 4.0), (2, 5.0, 6.0), (3, 5.0, 5.0), (4, 5.0, 1.0)]), Some(3));
        assert_eq!(from(&[(1, 5.0, 4.0)]), Some(1));
        assert_eq!(from(&[(1, 5.0, 4.0), (2, 5.0, 6.0)]), None);
    }
}
