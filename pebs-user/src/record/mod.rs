//! Recording as a library: from a description to a finished trace.
//!
//! [`Recording`] describes; [`Recording::plan`] resolves that on this machine, and [`Planned::run`] records until the end.
//! [`Recording::start`] does both on a thread of its own and returns a [`Handle`]. A [`Remote`] ends the recording, changes
//! its budget, and has its progress; what people may want to read is reported as an [`Event`], or is in [`Recorded`].
//!
//! `resolve` makes a `plan` of the options, `cost` prices marks and samples, `stacks` decides on call stacks, `waits` on who ends waits, `pace` chooses the first reset value or
//! refuses, `run` sets the session up and waits for its end, `governor` keeps the budget meanwhile, `finish` closes the
//! trace and writes `trace.json`.
//!
//! Invariant: nothing here prints, ends the process, or handles a signal, and several recordings run at once in one
//! process. What belongs to the process is shared: a plan raises its limits of open files and locked memory, its
//! recordings take turns to measure costs, and the CPU time in a trace is that of the process.

mod event;
mod recording;
mod remote;

mod budget;
mod items;
mod placement;
mod plan;
mod preset;
mod redact;
mod replaced;
mod resolve;
mod start;
mod targets;
mod transport;

mod cost;
mod governor;
mod pace;
mod stacks;
mod waits;

mod finish;
mod run;

use std::thread;

use crate::cost::calibrate::UnitCosts;
use crate::cost::calibrate::saved::Calibration;
use crate::failure::{Context as _, Result};
use crate::pmu::attr::ResolvedEvent;
use crate::pmu::host::Host;
use crate::pmu::open::Times;
use crate::store::run::RunInfo;

pub use event::{Event, Growth, Status};
pub use finish::Recorded;
pub use recording::{
    CallGraph, ItemId, KeepItems, Recording, SampleClock, Start, Target, TransportChoice,
};
pub use remote::{Handle, Remote};

pub(crate) use budget::{EXTRA, percent};
pub(crate) use resolve::grant;
pub(crate) use stacks::USUAL_SAMPLE;
pub(crate) use targets::check_process;

/// A recording whose options were resolved and checked on this machine. Nothing is attached yet.
pub struct Planned(plan::Plan);

/// Result of a run with marks but without samples.
pub struct Counting {
    /// The machine.
    pub host: Host,
    pub events: Vec<ResolvedEvent>,
    /// Count of each event in the traced threads; `None` if it can't be read.
    pub times: Vec<Option<Times>>,
    /// Costs of marks and samples.
    pub units: UnitCosts,
    /// Source of the costs.
    pub source: String,
    /// The calibration that they come from, if any.
    pub calibration: Option<Box<Calibration>>,
    /// A calibration that is ignored, and why.
    pub note: Option<String>,
    /// Content of `trace.json`: length, ledger, cost.
    pub info: RunInfo,
    pub visits: u64,
    /// Bytes of marks, switches and the like in the ring of the CPU that had most of them.
    pub most_ring_bytes: u64,
    pub ended_by: &'static str,
    /// Whether a recording that the budget paces would take call stacks by itself, and why; `None` if that is not its choice.
    pub stacks: Option<String>,
    /// Message if there was no item.
    pub no_item: String,
}

impl Recording {
    /// Resolves and checks the options; reports the transport, remarks and warnings.
    ///
    /// # Errors
    /// The first option that can't be satisfied on this machine, with a hint.
    pub fn plan(&self, mut emit: impl FnMut(Event)) -> Result<Planned> {
        let plan = resolve::resolve(self, &mut emit)?;
        plan.report(&mut emit);
        Ok(Planned(plan))
    }

    /// Records on a new thread, which calls `emit`, until the end of the target, of the time, or of the handle.
    ///
    /// # Errors
    /// As [`Recording::plan`]; or there is no thread left.
    pub fn start(&self, mut emit: impl FnMut(Event) + Send + 'static) -> Result<Handle> {
        let planned = self.plan(&mut emit)?;
        let remote = Remote::default();
        let theirs = remote.clone();
        let thread = thread::Builder::new().spawn(move || planned.run(&theirs, emit));
        let thread = thread.context("cannot start the recording's thread")?;
        Ok(Handle::new(remote, thread))
    }
}

impl Planned {
    /// Records on this thread until the end of the target or of the time, or until `remote` ends it.
    ///
    /// Waits in an event loop of its own: not to be called from asynchronous code, for which there is
    /// [`Recording::start`].
    ///
    /// # Errors
    /// If it could not run. Data already written stays.
    pub fn run(mut self, remote: &Remote, mut emit: impl FnMut(Event)) -> Result<Recorded> {
        let stopped = run::record(&mut self.0, remote, &mut emit)?;
        Ok(finish::finish(&self.0, stopped))
    }

    /// Records without samples: events are only counted. The trace contains visits.
    ///
    /// # Errors
    /// If it could not run or could not write the whole trace.
    pub fn count(mut self, remote: &Remote, mut emit: impl FnMut(Event)) -> Result<Counting> {
        self.0.counting = true;
        if let Some(event) = self.0.events.first() {
            budget::check_known(event, "plan")?;
        }
        let stopped = run::record(&mut self.0, remote, &mut emit)?;
        finish::close_counted(self.0, stopped)
    }
}
