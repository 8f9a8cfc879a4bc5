//! Runs the cases one after another, each on connections of its own, whatever the server does in any of them.

use std::rc::Rc;
use std::time::{Duration, Instant};

use ninefold::proto::Dialect;

use super::case::{Case, Group, Needs};
use super::conn::Shared;
use super::cx::{Cx, MSIZE, Target};
use super::report::Verdict;
use super::scratch::{self, NoPlace, Path};
use super::verdict::End;

/// A case whose server goes on and on, never silent for long, is ended after so many times its patience.
const CASE_MAX: u32 = 12;

/// How long a server that is gone may take to come back, where something starts it again.
const COME_BACK: Duration = Duration::from_secs(3);

/// One run against one server.
#[derive(Debug)]
pub struct Suite {
    target: Rc<Target>,
    /// The longest wait within a case.
    patience: Duration,
    /// The name of the scratch directories, but for their ends.
    name: String,
    /// Those that were made, to be removed.
    pub made: Vec<(Dialect, Path)>,
    /// The case in which the server went, and whether it was waited for.
    gone_since: Option<(String, bool)>,
    /// In the last case a connection was closed, or none was to be had: what it did to the server may come out in the next one.
    is_shaken: bool,
}

/// Whether a dialect's cases have a directory to write in, and why not; if that is a fault of the server, which.
pub type Place = Result<Path, (String, Option<End>)>;

impl Suite {
    pub fn new(target: Target, patience: Duration) -> Suite {
        let name = format!("ninefold-check-{:08x}", fastrand::u32(..));
        Suite { target: Rc::new(target), patience, name, made: Vec::new(), gone_since: None, is_shaken: false }
    }

    fn cx(&self, dialect: Dialect, scratch: Path, own: String) -> (Cx, Rc<Shared>) {
        let shared = Shared::new(self.patience);
        (Cx::new(self.target.clone(), dialect, shared.clone(), scratch, own), shared)
    }

    /// Offers a dialect; what came in its place if it was not granted.
    pub async fn offer(&self, dialect: Dialect) -> Result<(), End> {
        let (mut cx, _) = self.cx(dialect, Vec::new(), String::new());
        cx.agreed(MSIZE).await.map(drop)
    }

    /// Attaches and walks to the path of the address.
    pub async fn look(&self, dialect: Dialect) -> Result<(), End> {
        scratch::look(&self.target, dialect, self.patience).await
    }

    /// Makes the directory in which a dialect's cases work.
    pub async fn prepare(&mut self, dialect: Dialect) -> Place {
        let end = dialect.as_str().rsplit('.').next().unwrap_or_default();
        let name = format!("{}-{end}", self.name);
        let mut path = self.target.path();
        path.push(name.clone().into_bytes());
        // Noted first: Ctrl-C may come between the server's making it and our knowing that.
        if !self.made.iter().any(|(_, made)| *made == path) {
            self.made.push((dialect, path.clone()));
        }
        match scratch::make(&self.target, dialect, &name, self.patience).await {
            Ok(()) => Ok(path),
            Err(NoPlace::Refused(told)) => {
                self.made.retain(|(_, made)| *made != path);
                Err((format!("no directory can be made: {told}"), None))
            }
            Err(NoPlace::Broken(end)) => {
                Err(("the server answers wrongly when a directory is made to work in".to_owned(), Some(end)))
            }
        }
    }

    /// Runs one case.
    pub async fn run(&mut self, group: &Group, case: &Case, dialect: Dialect, place: &Place) -> Verdict {
        let mut verdict = Verdict::new(group, case, dialect, Ok(()));
        if let Some((since, waited)) = self.gone_since.clone() {
            if !self.is_back(dialect, if waited { Duration::ZERO } else { COME_BACK }).await {
                self.gone_since = Some((since.clone(), true));
                verdict.end = Err(End::skip(format!("the server is gone since {since}")));
                return verdict;
            }
            self.gone_since = None;
            // What it kept in memory is lost.
            let _ = self.prepare(dialect).await;
        }
        let path = match place {
            Err((why, _)) if case.needs == Needs::Write => {
                verdict.end = Err(End::skip(why.clone()));
                return verdict;
            }
            Err(_) => Vec::new(),
            Ok(path) => path.clone(),
        };
        let was_shaken = std::mem::take(&mut self.is_shaken);
        let own = verdict.name.replace('/', "-");
        self.attempt(case, &path, own.clone(), &mut verdict).await;
        // What it fails by otherwise is its own.
        if was_shaken && self.is_shaken && verdict.failed() && self.is_back(dialect, COME_BACK).await {
            self.gone_since = None;
            let _ = self.prepare(dialect).await;
            self.attempt(case, &path, format!("{own}-again"), &mut verdict).await;
        }
        verdict
    }

    /// Runs one case in the directory `own`, and looks whether the server lives when it has ended.
    async fn attempt(&mut self, case: &Case, path: &Path, own: String, verdict: &mut Verdict) {
        let dialect = verdict.dialect;
        let (mut cx, shared) = self.cx(dialect, path.clone(), own);
        let began = Instant::now();
        let most = self.patience * CASE_MAX;
        verdict.end = match tokio::time::timeout(most, (case.run)(&mut cx)).await {
            Ok(end) => end,
            Err(_) => Err(End::fail("an end", format!("still going on after {} s", most.as_secs_f64()))),
        };
        verdict.elapsed = began.elapsed();
        drop(cx);
        // A server may go after it closed a connection, which was the right thing to do.
        if (verdict.failed() || shared.was_closed()) && !self.answers(dialect, self.patience).await {
            self.gone_since = Some((verdict.name.clone(), false));
            const GONE: &str = "the server is gone: it takes no new connection, or answers nothing there";
            match &mut verdict.end {
                Err(End::Fail { got, .. }) => got.push_str(&format!("; {GONE}")),
                end => *end = Err(End::fail("the server to go on", GONE)),
            }
        }
        self.is_shaken = shared.was_closed() || self.gone_since.is_some();
        verdict.frames = if verdict.failed() { shared.log() } else { Vec::new() };
    }

    async fn answers(&self, dialect: Dialect, patience: Duration) -> bool {
        let shared = Shared::new(patience);
        let mut cx = Cx::new(self.target.clone(), dialect, shared, Vec::new(), String::new());
        cx.agreed(MSIZE).await.is_ok()
    }

    /// Whether a server that was gone answers again, or does so within `limit`.
    async fn is_back(&self, dialect: Dialect, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        loop {
            if self.answers(dialect, self.patience.min(Duration::from_secs(1))).await {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Removes what was made; what is left behind, and why.
    pub async fn clean_up(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        for (dialect, path) in std::mem::take(&mut self.made) {
            if let Err(end) = scratch::remove(&self.target, dialect, &path, self.patience).await {
                let path = path.iter().map(|name| String::from_utf8_lossy(name)).collect::<Vec<_>>().join("/");
                let why = match end {
                    End::Fail { expected, got } | End::Differs { expected, got } => {
                        format!("expected {expected}, got {got}")
                    }
                    End::Skip(why) => why,
                };
                left.push(format!("/{path}: {why}"));
            }
        }
        left
    }
}
