//! Brings closed traces into a lake, one after the other, on a thread of its own.
//!
//! What a trace's window is, and that it was brought, is noted beside it, so that a restart goes on. A store that fails or hangs
//! costs this thread's time and nothing else: traces wait on the disk, within its budget.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use serde::{Deserialize, Serialize};

use super::config::AgentConfig;
use crate::collect::privileges;
use crate::failure::{Context as _, Result};
use crate::files::read_regular;
use crate::lake::{self, Address, Host, Lake, LakeError, Pushed, Tags, Window};
use crate::rng::SplitMix64;
use crate::watch::Watch;

/// The note beside a trace.
const NOTE: &str = "agent.json";

/// Largest note that is read, bytes.
const MOST_BYTES: u64 = 64 << 10;

/// Wait after the first failure, and the longest one.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(10)];

/// Time that traces have at the end of the agent; what is not brought then is with the next start.
const AT_THE_END: Duration = Duration::from_secs(5);

/// Destination, and the description of this machine there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    to: Address,
    host: Option<Host>,
    labels: BTreeMap<String, String>,
    with_texts: bool,
}

impl Settings {
    /// `None`: nothing leaves the machine.
    pub(super) fn of(config: &AgentConfig) -> Option<Self> {
        Some(Self {
            to: config.to.clone()?,
            host: config.host.clone(),
            labels: config.labels.clone(),
            with_texts: config.with_texts,
        })
    }

    /// The lake's address.
    pub(super) fn lake(&self) -> String {
        self.to.to_string()
    }
}

/// Notes of the agent on a trace, in a file beside it.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Note {
    window: Option<Window>,
    /// The lake that has it.
    pushed: Option<String>,
}

impl Note {
    /// An empty one, if there is none.
    fn read(trace: &Path) -> Self {
        let text = read_regular(&trace.join(NOTE), MOST_BYTES).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    fn write(&self, trace: &Path) -> Result<()> {
        let path = trace.join(NOTE);
        let text = serde_json::to_vec(self)?;
        let written = || {
            // Without the name of the temporary file.
            let plain = |error: io::Error| io::Error::from(error.kind());
            let mut file = tempfile::NamedTempFile::new_in(trace).map_err(plain)?;
            file.write_all(&text)?;
            file.persist(&path).map_err(io::Error::from).map(drop)
        };
        written().with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Notes the window of a trace that was closed.
///
/// # Errors
/// It can't be written: then all items of the trace count.
pub(super) fn note_window(trace: &Path, window: Window) -> Result<()> {
    let mut note = Note::read(trace);
    note.window = Some(window);
    note.write(trace)
}

/// Whether a trace is in this lake.
pub(super) fn is_pushed(trace: &Path, settings: &Settings) -> bool {
    Note::read(trace).pushed == Some(settings.to.to_string())
}

/// A trace that waits, and its target.
pub(super) type Waiting = (PathBuf, String);

/// Result of an upload.
#[derive(Debug)]
pub(super) struct Outcome {
    pub waiting: Waiting,
    pub result: std::result::Result<Pushed, LakeError>,
    /// Time until the next attempt; `None`: not before something changes.
    pub again_in: Option<Duration>,
}

enum Order {
    Bring(Vec<Waiting>),
    Set(Option<Settings>),
    End,
}

/// The thread.
#[derive(Debug)]
pub(super) struct Uploads {
    orders: Sender<Order>,
    thread: JoinHandle<()>,
}

impl Uploads {
    /// Starts the thread, which reports the outcome of each trace.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(super) fn start(
        settings: Option<Settings>,
        tell: impl Fn(Outcome) + Send + 'static,
    ) -> Result<Self> {
        let (orders, theirs) = unbounded();
        let thread = thread::Builder::new()
            .name("uploads".to_owned())
            .spawn(move || {
                privileges::give_up_on_this_thread();
                // It is last whenever somebody else wants the CPU; without that it works as well.
                let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19);
                Work::new(settings).run(&theirs, tell);
            });
        Ok(Self {
            orders,
            thread: thread.context("cannot start the thread of uploads")?,
        })
    }

    /// Brings these, and none of those ordered before.
    pub(super) fn bring(&self, waiting: Vec<Waiting>) {
        // A thread that panicked said so.
        let _ = self.orders.send(Order::Bring(waiting));
    }

    pub(super) fn set(&self, settings: Option<Settings>) {
        let _ = self.orders.send(Order::Set(settings));
    }

    /// Waits for what can be brought in some seconds; a store that hangs is left alone then.
    pub(super) fn end(self) {
        let _ = self.orders.send(Order::End);
        let deadline = Instant::now() + AT_THE_END;
        while !self.thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// State of the thread.
struct Work {
    settings: Option<Settings>,
    lake: Option<Lake>,
    waiting: BTreeMap<PathBuf, String>,
    /// Those that are in the lake, and those that can't be brought as things are: an order made before that was known may
    /// name them again.
    settled: Vec<PathBuf>,
    failures: u32,
    after: Instant,
    rng: SplitMix64,
    is_ending: bool,
}

impl Work {
    fn new(settings: Option<Settings>) -> Self {
        Self {
            settings,
            lake: None,
            waiting: BTreeMap::new(),
            settled: Vec::new(),
            failures: 0,
            after: Instant::now(),
            rng: SplitMix64::new(seed()),
            is_ending: false,
        }
    }

    fn run(&mut self, orders: &Receiver<Order>, tell: impl Fn(Outcome)) {
        loop {
            let has_work = self.settings.is_some() && !self.waiting.is_empty();
            if self.is_ending && (!has_work || self.failures > 0) {
                return;
            }
            let order = match has_work {
                true => orders.recv_deadline(self.after),
                false => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match order {
                Ok(order) => self.heed(order),
                Err(RecvTimeoutError::Disconnected) if !self.is_ending => return,
                Err(_) => {
                    if let Some(outcome) = self.bring_one() {
                        tell(outcome);
                    }
                }
            }
        }
    }

    fn heed(&mut self, order: Order) {
        match order {
            Order::Bring(waiting) => {
                self.waiting = waiting.into_iter().collect();
                self.settled.retain(|it| self.waiting.contains_key(it));
                for path in &self.settled {
                    self.waiting.remove(path);
                }
            }
            Order::Set(settings) => {
                self.settings = settings;
                self.lake = None;
                self.settled.clear();
                self.failures = 0;
                self.after = Instant::now();
            }
            Order::End => self.is_ending = true,
        }
    }

    /// Brings the oldest one.
    fn bring_one(&mut self) -> Option<Outcome> {
        let settings = self.settings.clone()?;
        let oldest = self
            .waiting
            .iter()
            .min_by_key(|it| it.0.file_name().map(ToOwned::to_owned));
        let waiting = oldest.map(|(path, target)| (path.clone(), target.clone()))?;
        let result = self.bring(&settings, &waiting);
        // Somebody removed it meanwhile, which is no failure of the store.
        if result.is_err() && !waiting.0.exists() {
            self.waiting.remove(&waiting.0);
            return None;
        }
        let again_in = match &result {
            Ok(_) => {
                self.settle(&waiting.0);
                self.failures = 0;
                self.after = Instant::now();
                None
            }
            Err(error) if error.is_final() => {
                self.settle(&waiting.0);
                None
            }
            Err(_) => {
                self.lake = None;
                let wait = wait(self.failures, self.rng.below(1000));
                self.failures += 1;
                self.after = Instant::now() + wait;
                Some(wait)
            }
        };
        Some(Outcome {
            waiting,
            result,
            again_in,
        })
    }

    /// Does not bring it from now on, whatever an earlier order says.
    fn settle(&mut self, trace: &Path) {
        self.waiting.remove(trace);
        self.settled.push(trace.to_owned());
    }

    fn bring(
        &mut self,
        settings: &Settings,
        (trace, target): &Waiting,
    ) -> std::result::Result<Pushed, LakeError> {
        let mut note = Note::read(trace);
        let tags = Tags {
            host: settings.host.clone(),
            target: Some(target.clone()),
            labels: settings.labels.clone(),
            window: note.window,
            with_texts: settings.with_texts,
        };
        let lake = match self.lake.take() {
            Some(lake) => lake,
            None => Lake::open_or_make(&settings.to)?,
        };
        let pushed = lake::push(&lake, trace, &tags, &Watch::default())?;
        self.lake = Some(lake);
        note.pushed = Some(settings.to.to_string());
        if let Err(error) = note.write(trace) {
            // The next start asks the lake, which has it.
            tracing::warn!("{error}");
        }
        Ok(pushed)
    }
}

/// Twice as long each time; between a half and the whole of that, so that a thousand machines do not come at once.
fn wait(failures: u32, drawn: u32) -> Duration {
    let [first, longest] = WAITS;
    let wait = first.saturating_mul(2_u32.saturating_pow(failures.min(16)));
    let wait = wait.min(longest);
    (wait + wait.saturating_mul(drawn) / 1000) / 2
}

/// Another one for each machine and start.
fn seed() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    now.tv_nsec.cast_unsigned() ^ u64::from(std::process::id()) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An order made before a trace was brought may name it still; later ones do not, and after other settings it counts again.
    #[test]
    fn brought_once() {
        let mut work = Work::new(None);
        let order = |names: &[&str]| {
            let waiting = names.iter().map(|it| (PathBuf::from(it), String::new()));
            Order::Bring(waiting.collect())
        };
        let names = |work: &Work| work.waiting.keys().cloned().collect::<Vec<_>>();
        work.heed(order(&["a", "b"]));
        work.settle(Path::new("a"));
        work.heed(order(&["a", "b"]));
        assert_eq!(names(&work), [PathBuf::from("b")]);
        work.heed(order(&["b"]));
        assert!(work.settled.is_empty());
        work.settle(Path::new("b"));
        work.heed(Order::Set(None));
        work.heed(order(&["b"]));
        assert_eq!(names(&work), [PathBuf::from("b")]);
    }

    /// Waits double up to ten minutes, and are never the same for all.
    #[test]
    fn waits() {
        assert_eq!(wait(0, 0), Duration::from_millis(500));
        assert_eq!(wait(0, 1000), Duration::from_secs(1));
        assert_eq!(wait(3, 1000), Duration::from_secs(8));
        assert_eq!(wait(3, 500), Duration::from_secs(6));
        for failures in [10, 100, u32::MAX] {
            assert_eq!(wait(failures, 1000), Duration::from_mins(10));
        }
    }
}
