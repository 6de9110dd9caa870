//! Pauses: nothing is probed or sampled, and the target is as without a recording but for switches of its threads.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;

use super::workers::SnapshotOrder;
use super::{Control, locked};
use crate::collect::clock::now;
use crate::collect::session::MarkCount;
use crate::failure::{Failure, Result, Warning};
use crate::record::event::Event;
use crate::record::placement;
use crate::record::start::Trigger;
use crate::store::run::{Moment, Paused};
use crate::store::snapshot;
use crate::store::writer::TraceWriter;
use crate::units::{KtimeNs, TraceNs};

/// Interval of looking whether the recording may begin.
pub(super) const LOOK_FOR_START: Duration = Duration::from_millis(5);

/// Time in which the pipeline takes in what was recorded before.
const TAKEN_IN: Duration = Duration::from_secs(2);

/// Largest number of notes.
const MOST_NOTES: usize = 10_000;

/// Time in which a snapshot is written.
const WRITTEN_IN: Duration = Duration::from_secs(10);

/// Whether items are recorded now.
pub(super) enum State {
    /// Probes were not placed yet.
    Waits(Waits),
    Records,
    /// All is seen until `begin`, and no mark or sample is made from `done` on.
    Paused {
        begin: KtimeNs,
        done: KtimeNs,
    },
}

/// State of the wait for the start.
pub(super) struct Waits {
    since: Option<Instant>,
    /// Counts the call that is waited for.
    call: Option<MarkCount>,
    /// Message on the budget.
    budget: Option<String>,
}

impl Waits {
    pub(super) const fn new(budget: Option<String>) -> Self {
        Self {
            since: None,
            call: None,
            budget,
        }
    }
}

impl Control<'_, '_> {
    pub(super) const fn records(&self) -> bool {
        matches!(self.state, State::Records)
    }

    pub(super) const fn waits(&self) -> bool {
        matches!(self.state, State::Waits(_))
    }

    /// Begins to wait for the start: the command runs from now on.
    ///
    /// # Errors
    /// The call that is waited for can't be probed.
    pub(super) fn begin_to_wait(&mut self) -> Result<()> {
        let State::Waits(waits) = &mut self.state else {
            return Ok(());
        };
        waits.since = Some(Instant::now());
        if let Trigger::Call(call) = &self.whole.start {
            waits.call = Some(self.session.wait_for(self.plan, &call.sites, call.value)?);
        }
        (self.emit)(Event::Waits(self.whole.start.text()));
        Ok(())
    }

    /// Begins to record once what was waited for has come.
    ///
    /// # Errors
    /// A probe can't be placed.
    pub(super) fn look_for_start(&mut self) -> Result<()> {
        let State::Waits(waits) = &self.state else {
            return Ok(());
        };
        let has_come = match &self.whole.start {
            Trigger::None => true,
            Trigger::Time(time) => waits.since.is_some_and(|it| it.elapsed() >= *time),
            Trigger::File(path) => path.exists(),
            Trigger::Call(_) => self.session.was_called()?,
            Trigger::Order => false,
        };
        if has_come { self.resume() } else { Ok(()) }
    }

    /// Stops recording; visits that are open then have no end.
    ///
    /// # Errors
    /// The recording was not made for that.
    pub(super) fn pause(&mut self) -> Result<()> {
        if !self.whole.pausable {
            return Err(Failure::new(
                "cannot pause: the right to place probes was given up at the start",
                "record with --control",
            ));
        }
        if !self.records() {
            return Ok(());
        }
        self.begin_pause();
        (self.emit)(Event::Paused);
        Ok(())
    }

    fn begin_pause(&mut self) {
        let begin = self.session.pause();
        self.state = State::Paused { begin, done: now() };
        self.info.pauses.push(Paused {
            begin_ns: self.trace_time(begin),
            end_ns: None,
        });
        self.write_info();
    }

    /// Records from now on.
    ///
    /// # Errors
    /// A probe can't be placed: a recording that was paused stays so.
    pub(super) fn resume(&mut self) -> Result<()> {
        let (since, done) = match std::mem::replace(&mut self.state, State::Records) {
            State::Records => return Ok(()),
            State::Waits(waits) => {
                let spent = waits.call.map(MarkCount::end);
                let begin = now();
                self.goes_on(KtimeNs(self.info.monotonic_ns), begin);
                let _ = self.signals.count_from.set(self.session.start_counting()?);
                self.session.start(self.plan)?;
                drop(spent);
                if !self.whole.pausable {
                    self.session.place_no_more();
                }
                if let Some(warning) = placement::check(self.whole, &self.whole.pids)? {
                    self.info.notes.push(warning.text.clone());
                    (self.emit)(Event::Warning(warning));
                }
                (self.emit)(Event::Started {
                    budget: waits.budget,
                });
                return Ok(());
            }
            State::Paused { begin, done } => (begin, done),
        };
        // Records of before must have been handled when visits are closed.
        self.wait_for_pipeline(done);
        self.goes_on(since, now());
        if let Err(error) = self.session.resume(self.plan) {
            self.begin_pause();
            return Err(error.into());
        }
        (self.emit)(Event::Resumed);
        Ok(())
    }

    /// Ends a pause that lasts until the end.
    pub(super) fn end_pause(&mut self) {
        let origin = KtimeNs(self.info.monotonic_ns);
        let (since, done) = match &self.state {
            State::Records => return,
            State::Waits(_) => (origin, origin),
            State::Paused { begin, done } => (*begin, *done),
        };
        self.wait_for_pipeline(done);
        locked(&self.signals.pauses).push((since, now()));
        if self.waits() {
            self.info.pauses.push(Paused {
                begin_ns: TraceNs(0),
                end_ns: None,
            });
        }
    }

    /// Lets the pipeline know of a pause before a record that follows it.
    fn goes_on(&mut self, begin: KtimeNs, end: KtimeNs) {
        locked(&self.signals.pauses).push((begin, end));
        let (begin_ns, end_ns) = (self.trace_time(begin), Some(self.trace_time(end)));
        match self.info.pauses.last_mut().filter(|it| it.end_ns.is_none()) {
            Some(last) => last.end_ns = end_ns,
            None => self.info.pauses.push(Paused { begin_ns, end_ns }),
        }
        self.write_info();
    }

    /// Waits until all records up to a time were handled, within limits.
    fn wait_for_pipeline(&self, until: KtimeNs) {
        let (until, begin) = (self.trace_time(until), Instant::now());
        while self.load().until < until && begin.elapsed() < TAKEN_IN {
            std::thread::sleep(LOOK_FOR_START);
        }
    }

    pub(super) fn trace_time(&self, at: KtimeNs) -> TraceNs {
        TraceNs(at.0.saturating_sub(self.info.monotonic_ns) as i64)
    }

    /// Adds a note with the time.
    ///
    /// # Errors
    /// There are too many, as `trace.json` is written anew with each.
    pub(super) fn note(&mut self, text: String) -> Result<()> {
        if self.info.moments.len() >= MOST_NOTES {
            return Err(Failure::bare(format!(
                "'{text}' is not noted: there are {MOST_NOTES} notes"
            )));
        }
        let time_ns = self.trace_time(now());
        self.info.moments.push(Moment { time_ns, text });
        self.write_info();
        Ok(())
    }

    /// Writes what was recorded up to now as a trace of its own.
    ///
    /// # Errors
    /// It can't be written.
    pub(super) fn snapshot(&mut self, to: Option<PathBuf>) -> Result<()> {
        let at = now();
        self.wait_for_pipeline(at);
        let to = to.unwrap_or_else(|| snapshot::next_name(&self.whole.output));
        let (done, is_done) = bounded(1);
        *locked(&self.signals.snapshot) = Some(SnapshotOrder {
            from: self.output.to_owned(),
            to: to.clone(),
            info: Box::new(self.info.clone()),
            length: self.trace_time(at),
            done,
        });
        match is_done.recv_timeout(WRITTEN_IN) {
            Ok(written) => written?,
            Err(_) => {
                return Err(Failure::bare(format!(
                    "the snapshot {} is not there after {} s",
                    to.display(),
                    WRITTEN_IN.as_secs()
                )));
            }
        }
        (self.emit)(Event::Snapshot(to));
        Ok(())
    }

    /// Reports what could not be done.
    pub(super) fn failed(&mut self, error: &Failure) {
        let text = error.to_string();
        (self.emit)(match error.hint().map(str::to_owned) {
            Some(hint) => Event::Warning(Warning { text, hint }),
            None => Event::Problem(text),
        });
    }

    /// Why the recording ends by its limits.
    pub(super) fn limit(&self) -> Option<&'static str> {
        let (visits, bytes) = (&self.progress.visits, &self.progress.bytes);
        let limits = [
            (self.whole.stop_after, visits, "enough items (--stop-after)"),
            (
                self.whole.max_size,
                bytes,
                "the trace is large enough (--max-size)",
            ),
        ];
        let reached = |(limit, now, _): &(Option<u64>, &AtomicU64, &str)| {
            limit.is_some_and(|limit| now.load(Ordering::Relaxed) >= limit)
        };
        limits.iter().find(|it| reached(it)).map(|it| it.2)
    }

    /// Whoever kills us finds what changed; at the end it is written in any case.
    pub(super) fn write_info(&self) {
        if let Err(error) = TraceWriter::rewrite_info(self.output, self.info) {
            tracing::debug!("trace.json is not up to date: {error}");
        }
    }
}
