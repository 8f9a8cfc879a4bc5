//! What a siege found: figures in the order they were taken, and a verdict for each bound.

use serde_json::{Map, Value, json};

/// Figures and verdicts of one siege. Fill it, print it, ask whether all held.
#[derive(Debug)]
pub struct Report {
    siege: &'static str,
    figures: Vec<(String, Value)>,
    verdicts: Vec<Verdict>,
}

#[derive(Debug)]
struct Verdict {
    bound: String,
    held: bool,
    detail: String,
}

impl Report {
    /// An empty report of the siege of that name.
    pub fn new(siege: &'static str) -> Report {
        Report { siege, figures: Vec::new(), verdicts: Vec::new() }
    }

    /// Adds a figure; the unit is in its name.
    pub fn figure(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.figures.push((name.into(), value.into()));
    }

    /// Adds a figure with two digits behind the point.
    pub fn ratio(&mut self, name: impl Into<String>, value: f64) {
        self.figure(name, (value * 100.0).round() / 100.0);
    }

    /// Adds what a bound came to.
    pub fn verdict(&mut self, bound: impl Into<String>, held: bool, detail: impl Into<String>) {
        self.verdicts.push(Verdict { bound: bound.into(), held, detail: detail.into() });
    }

    /// Whether every bound held.
    pub fn held(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.held)
    }

    /// Prints it on standard output.
    pub fn print(&self, as_json: bool) {
        if as_json {
            let figures: Map<String, Value> = self.figures.iter().cloned().collect();
            let verdicts: Vec<Value> = (self.verdicts.iter())
                .map(|v| json!({ "bound": v.bound, "held": v.held, "detail": v.detail }))
                .collect();
            println!("{}", json!({ "siege": self.siege, "figures": figures, "bounds": verdicts, "held": self.held() }));
            return;
        }
        let width = self.figures.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in &self.figures {
            println!("{name:width$}  {value}");
        }
        for Verdict { bound, held, detail } in &self.verdicts {
            println!("{}: {bound} - {detail}", if *held { "held" } else { "BROKEN" });
        }
    }
}
