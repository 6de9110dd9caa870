//! One trace of a target: a recording on a thread of its own, and what became of it.
//!
//! The next trace begins before this one ends, so that no item is missed: one that begins once the next trace records is
//! that one's, an earlier one this one's, which goes on until those under way have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::config::TargetConfig;
use super::disk;
use super::limits::Limits;
use super::recent::Recent;
use crate::failure::{Context as _, Failure, Result, Warning};
use crate::ledger::Ledger;
use crate::record::{Event, Recorded, Recording, Remote};
use crate::store::reader::{ReadError, Trace};
use crate::store::run::RunInfo;
use crate::store::view::{Select as _, View as _, columns};
use crate::units::Pid;

columns! {
    struct Visits of visits { begin_ns, end_ns }
}

/// Phase of a trace's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing is recorded yet.
    Starts,
    Records,
    /// The next one records; this one ends then.
    Overlaps(Instant),
    /// It was ordered to end.
    Ends,
}

/// A trace that is being written.
#[derive(Debug)]
pub(super) struct Segment {
    /// Its directory, which no other trace has.
    pub trace: PathBuf,
    pub options: Arc<TargetConfig>,
    pub phase: Phase,
    /// Time at which it was begun.
    pub since: Instant,
    /// Processes that are recorded, with those that descend from them.
    pub covers: BTreeSet<Pid>,
    pub remote: Remote,
    /// Items that are this trace's.
    pub window: Arc<Window>,
    /// Durations of the last ones.
    pub recent: Recent,
    pub limits: Limits,
    /// Why a snapshot was asked for that is not there yet.
    asked: Option<String>,
    thread: JoinHandle<()>,
}

/// The time whose items a trace has, on `CLOCK_MONOTONIC`, ns.
#[derive(Debug)]
pub(super) struct Window {
    from: AtomicI64,
    until: AtomicI64,
    /// That of the trace before it, which ends where this one begins.
    former: Option<Weak<Self>>,
}

impl Window {
    fn new(former: Option<&Arc<Self>>) -> Self {
        Self {
            from: AtomicI64::new(0),
            until: AtomicI64::new(i64::MAX),
            former: former.map(Arc::downgrade),
        }
    }

    /// Items that begin from now on are recorded.
    fn begin(&self) {
        let Some(former) = &self.former else { return };
        let now = now();
        self.from.store(now, Ordering::Release);
        // One that is closed has no later items.
        if let Some(former) = former.upgrade() {
            former.until.store(now, Ordering::Release);
        }
    }
}

/// Items of a trace, and which of them count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    /// From when on items are this trace's, ns of the trace.
    pub from_ns: i64,
    /// Until when; null: its end.
    pub until_ns: Option<i64>,
    /// Items that began between the two. Of all traces together, each item once.
    pub items: u64,
    /// Of these, items whose end is missing, as the trace ended first.
    pub unfinished: u64,
    /// Items that are in the former trace, too.
    pub before: u64,
    /// Items that are in the next trace, too.
    pub after: u64,
}

/// End of a recording, and its result.
#[derive(Debug)]
pub(super) struct Ended {
    pub why: &'static str,
    pub info: Box<RunInfo>,
    pub counts: Option<Counts>,
    pub warnings: Vec<String>,
    /// Why not all of it could be written.
    pub cut: Option<Failure>,
}

/// Message from the thread of a recording.
#[derive(Debug)]
pub(super) enum Said {
    Event(Event),
    Ended(Result<Ended>),
}

impl Segment {
    /// Starts a recording of these processes, which follows a `former` one. Messages about it come from its thread.
    pub(super) fn start(
        recording: Recording,
        options: Arc<TargetConfig>,
        covers: BTreeSet<Pid>,
        former: Option<&Arc<Window>>,
        tell: impl Fn(Said) + Send + 'static,
    ) -> Result<Self> {
        let (remote, window) = (Remote::default(), Arc::new(Window::new(former)));
        let trace = recording.output.clone();
        let (theirs, seen) = (remote.clone(), Arc::clone(&window));
        let name = options.name.clone();
        let thread = thread::Builder::new().name(name).spawn(move || {
            let emit = |event| tell(Said::Event(event));
            let ended = catch_unwind(AssertUnwindSafe(|| {
                record(&recording, &theirs, &seen, emit)
            }));
            let panicked = |_| {
                Err(Failure::bare(
                    "the recording's thread panicked: this is a bug",
                ))
            };
            tell(Said::Ended(ended.unwrap_or_else(panicked)));
        });
        Ok(Self {
            trace,
            options,
            phase: Phase::Starts,
            since: Instant::now(),
            covers,
            remote,
            window,
            recent: Recent::default(),
            limits: Limits::default(),
            asked: None,
            thread: thread.context("cannot start a recording's thread")?,
        })
    }

    /// The next trace records: it ends in a moment.
    pub(super) fn overlap(&mut self, time: Duration) {
        self.phase = Phase::Overlaps(Instant::now() + time);
    }

    /// Has a copy made of what was recorded so far.
    pub(super) fn snapshot(&mut self, because: String) {
        self.asked = Some(because);
        self.remote.snapshot(None);
    }

    /// Why the snapshot that was made was asked for.
    pub(super) fn why_snapshot(&mut self) -> String {
        self.asked.take().unwrap_or_default()
    }

    pub(super) fn end(&mut self, why: &'static str) {
        self.phase = Phase::Ends;
        self.remote.end(why);
    }

    /// Waits until nothing of it is left.
    pub(super) fn join(self) {
        // A panic was printed.
        let _ = self.thread.join();
    }

    /// Whether it is neither ending nor about to.
    pub(super) fn goes_on(&self) -> bool {
        matches!(self.phase, Phase::Starts | Phase::Records)
    }
}

/// Records to the end.
fn record(
    recording: &Recording,
    remote: &Remote,
    window: &Window,
    mut emit: impl FnMut(Event),
) -> Result<Ended> {
    let mut emit = |event: Event| {
        match event {
            // The supervisor looks at the status by itself.
            Event::Status(_) => return,
            Event::Started { .. } => window.begin(),
            _ => {}
        }
        emit(event);
    };
    let planned = recording.plan(&mut emit)?;
    let recorded = planned.run(remote, &mut emit)?;
    let counts = count(&recorded, window)
        .map_err(|error| tracing::warn!("cannot count items: {error}"))
        .ok();
    let Recorded {
        info,
        ended_by,
        warnings,
        faults,
        cut,
        ..
    } = recorded;
    let warnings = warnings.into_iter().map(|Warning { text, .. }| text);
    // What a row calls closed stays, whatever happens to the machine.
    let settled = disk::settle(&recording.output);
    let unsettled = settled
        .err()
        .map(|error| format!("may not be on the disk: {error}"));
    Ok(Ended {
        why: ended_by,
        info: Box::new(info),
        counts,
        warnings: warnings.chain(faults).chain(unsettled).collect(),
        cut: cut.map(Failure::from),
    })
}

/// The time on `CLOCK_MONOTONIC`, ns.
fn now() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Counts the items of a trace, by whether they began in the window.
fn count(recorded: &Recorded, window: &Window) -> Result<Counts, ReadError> {
    let zero = recorded.info.monotonic_ns.cast_signed();
    let within = |time: &AtomicI64| time.load(Ordering::Acquire).saturating_sub(zero);
    // What begins is attached before the window does, where there is no trace before it.
    let from = within(&window.from).max(0);
    count_visits(&Trace::open(&recorded.trace)?, from, within(&window.until))
}

fn count_visits(trace: &Trace, from: i64, until: i64) -> Result<Counts, ReadError> {
    let is_last = until >= i64::MAX / 2;
    let mut counts = Counts {
        from_ns: from,
        until_ns: (!is_last).then_some(until),
        ..Counts::default()
    };
    for batch in Visits::scan(trace)? {
        let batch = batch?;
        let visits = Visits::of(&batch)?;
        for row in 0..batch.num_rows() {
            let begin = visits.begin_ns[row];
            if begin < from {
                counts.before += 1;
            } else if begin >= until {
                counts.after += 1;
            } else {
                counts.items += 1;
                counts.unfinished += u64::from(visits.end_ns.get(row).is_none());
            }
        }
    }
    Ok(counts)
}

/// Records that are missing, by reason: samples, marks and others.
pub(super) fn lost(ledger: &Ledger) -> BTreeMap<&'static str, u64> {
    let totals = ledger.totals();
    let mut lost = BTreeMap::new();
    for account in [&totals.samples, &totals.marks, &totals.tasks] {
        for (reason, records) in account.losses() {
            *lost.entry(reason.name()).or_default() += records;
        }
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fixtures::{Did, Maker, VisitFixture, info};

    /// Items count by when they began: before the window, in it, whether they ended or not, and behind it.
    #[test]
    fn windows() {
        let mut maker = Maker::new(info(&["app:f"]));
        for begin in [100, 200, 300, 400] {
            maker.at(begin, &VisitFixture::new(1, "a", &[Did::Ran(1, 50)]));
        }
        let trace = maker.finish(&[(1, "f", "app")]);
        let of = |from, until| count_visits(&trace, from, until).unwrap();
        let all = of(0, i64::MAX);
        assert_eq!((all.items, all.until_ns), (4, None));
        let some = of(200, 400);
        assert_eq!((some.before, some.items, some.after), (1, 2, 1));
        assert_eq!(
            (some.from_ns, some.until_ns, some.unfinished),
            (200, Some(400), 0)
        );
    }
}
