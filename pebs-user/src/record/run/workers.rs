//! The two threads of a recording: one drains the rings, the other runs the pipeline.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use super::locked;
use crate::collect::bulk::BulkRing;
use crate::collect::clock::now;
use crate::collect::drain::Drain;
use crate::collect::session::Rings;
use crate::collect::sideband::Sideband;
use crate::cost::calibrate::UnitCosts;
use crate::estimate::Pause;
use crate::failure::{Failure, Result};
use crate::pipeline::{Outcome, OwnCosts, Pipeline, PipelineOptions, Progress};
use crate::pmu::watch::Watch;
use crate::record::cost::Prices;
use crate::record::event::{Emit, Event};
use crate::record::plan::Plan;
use crate::store::recover::RecoverError;
use crate::store::run::RunInfo;
use crate::store::snapshot;
use crate::store::writer::TraceWriter;
use crate::stream::cycle::{Cycle, FrequencyReading};
use crate::units::{Cpu, EventId, KtimeNs, ResetValue, TraceNs};

/// A wait before the start that is worth a word.
const LONG: Duration = Duration::from_millis(300);

/// Maximum number of empty cycles kept for the draining thread.
const SPARE_CYCLES: usize = 4;

/// Messages of other threads to the pipeline thread.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// Set when writing failed: nothing more can be recorded.
    pub(super) failed: AtomicBool,
    /// Pause that a sample causes in the target; set before anything is attached.
    pub(super) pause: OnceLock<Pause>,
    /// Costs that pebs-trace adds to visits; set before anything is attached.
    pub(super) own: OnceLock<OwnCosts>,
    /// Changes of reset values not yet seen by the pipeline: time, event, new value. Locked during a change, so
    /// that no sample is processed before its change is known.
    pub(super) resets: Mutex<Vec<(KtimeNs, EventId, ResetValue)>>,
    /// Cost of a switch with clocks that changed, ns, not yet seen by the pipeline.
    pub(super) switch_ns: Mutex<Option<f64>>,
    /// From when on it is recorded who ends waits, not yet seen by the pipeline. Locked while that begins.
    pub(super) waits_from: Mutex<Option<KtimeNs>>,
    /// Start of the first interval of counts; set before anything is attached.
    pub(super) count_from: OnceLock<KtimeNs>,
    /// Pauses not yet seen by the pipeline: begin, end.
    pub(super) pauses: Mutex<Vec<(KtimeNs, KtimeNs)>>,
    /// A snapshot that was asked for.
    pub(super) snapshot: Mutex<Option<SnapshotOrder>>,
    /// Frequencies of CPUs not yet seen by the pipeline.
    pub(super) frequencies: Mutex<Vec<FrequencyReading>>,
    /// CPUs that came online and are not yet seen by the pipeline: earliest time they may have been online, time
    /// from which they are sampled.
    pub(super) cpus: Mutex<Vec<(KtimeNs, KtimeNs, Cpu)>>,
    /// End of the trace, ktime; set before the probes are taken away. 0: not yet.
    pub(super) end: AtomicU64,
}

/// A snapshot to be written.
#[derive(Debug)]
pub(super) struct SnapshotOrder {
    pub(super) from: PathBuf,
    pub(super) to: PathBuf,
    pub(super) info: Box<RunInfo>,
    pub(super) length: TraceNs,
    pub(super) done: Sender<Result<(), RecoverError>>,
}

/// The draining thread and the pipeline thread.
pub(super) struct Workers {
    stop: Arc<AtomicBool>,
    pub(super) signals: Arc<Signals>,
    pub(super) progress: Arc<Progress>,
    /// Sends rings that are created later to the draining thread.
    pub(super) more_bulk: Sender<BulkRing>,
    /// Closed once symbols are loaded.
    is_ready: Receiver<()>,
    drain: JoinHandle<()>,
    pipeline: JoinHandle<Outcome>,
}

impl Workers {
    /// Starts both, which wait for the first records.
    pub(super) fn start(
        plan: &Plan,
        rings: Rings,
        bulk: Vec<BulkRing>,
        sideband: Option<Sideband>,
        writer: TraceWriter,
        origin: KtimeNs,
    ) -> Self {
        // Bounded in bytes by the draining thread.
        let (full, waiting) = unbounded();
        let (back, empty) = bounded(SPARE_CYCLES);
        let (ready, is_ready) = bounded::<()>(0);
        let (more_bulk, new_bulk) = unbounded();
        let waiting_bytes = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let signals = Arc::new(Signals::default());
        let progress = Arc::new(Progress::default());
        let Rings {
            rings,
            counters,
            lag_ns,
        } = rings;
        let drain = Drain {
            rings,
            bulk,
            more_bulk: new_bulk,
            counters,
            sideband,
            lag_ns,
            full,
            empty,
            waiting_bytes: Arc::clone(&waiting_bytes),
            max_waiting_bytes: plan.max_waiting_bytes,
            patient: plan.patient,
            stop: Arc::clone(&stop),
        };
        let options = PipelineOptions {
            origin,
            kinds: plan.kinds,
            counted: plan.counted_from(),
            count_interval: plan.count_interval,
            event_times: plan.event_times(),
            costly_events: plan.costly_events(),
            resets: plan.events.iter().map(|it| it.reset.0.get()).collect(),
            watches: plan.events.iter().map(|it| Watch::of(&it.attr)).collect(),
            max_samples: plan.max_samples,
            max_stack_bytes: plan.max_stack_bytes,
            symbolize: plan.symbolize.clone(),
            keep: plan.keep,
            bulk: plan.bulk_options(),
            interval: plan.segment,
        };
        let (probes, pids) = (plan.probes.clone(), plan.pids.clone());
        let patient = plan.patient;
        let needs_clock = plan.events.iter().any(|event| event.perf_clock);
        let (theirs, their_progress) = (Arc::clone(&signals), Arc::clone(&progress));
        let pipeline = thread::spawn(move || {
            // The symbolizer stays on the thread that makes it.
            let mut pipeline = Pipeline::new(&probes, &options, writer, their_progress);
            if needs_clock {
                pipeline.wait_for_clock();
            }
            if !pids.is_empty() {
                pipeline.follow(&pids);
            }
            pipeline.warm_up(&pids);
            drop(ready);
            let lanes = Lanes {
                waiting,
                back,
                waiting_bytes,
                patient,
            };
            pump(pipeline, &lanes, &theirs)
        });
        let drain = thread::spawn(move || drain.run());
        Self {
            stop,
            signals,
            progress,
            more_bulk,
            is_ready,
            drain,
            pipeline,
        }
    }

    /// Tells the pipeline what pebs-trace costs; to be called before anything is attached.
    pub(super) fn know_costs(&self, costs: &UnitCosts, prices: &Prices<'_>) {
        if let Some(pause) = costs.pause {
            let _ = self.signals.pause.set(pause);
        }
        if let Some(own) = prices.own_costs() {
            let _ = self.signals.own.set(own);
        }
    }

    /// Waits until symbols are loaded, so that no record has to wait for them later.
    pub(super) fn wait_until_ready(&self, emit: &mut Emit<'_>) {
        let waited = self.is_ready.recv_timeout(LONG);
        if waited == Err(RecvTimeoutError::Timeout) {
            emit(Event::ReadingSymbols);
            let _ = self.is_ready.recv();
        }
    }

    /// Ends both threads after the rest of the rings was processed.
    pub(super) fn stop(self, end: KtimeNs) -> Result<Outcome> {
        self.signals.end.store(end.0, Ordering::Release);
        self.stop.store(true, Ordering::Release);
        self.drain.thread().unpark();
        let panicked =
            |what| move |_| Failure::bare(format!("the {what} thread panicked: this is a bug"));
        self.drain.join().map_err(panicked("draining"))?;
        self.pipeline.join().map_err(panicked("pipeline"))
    }

    /// Ends both threads and removes the trace, which is still empty.
    pub(super) fn abandon(self, plan: &Plan) {
        if self.stop(now()).is_ok() {
            // This run has just made it, so it contains no files of others.
            let _ = std::fs::remove_dir_all(&plan.output);
        }
    }
}

/// Channels between the two threads.
struct Lanes {
    waiting: Receiver<Cycle>,
    back: Sender<Cycle>,
    waiting_bytes: Arc<AtomicUsize>,
    patient: bool,
}

/// Runs the pipeline until the draining thread is done.
fn pump(mut pipeline: Pipeline, lanes: &Lanes, signals: &Signals) -> Outcome {
    let mut has_costs = false;
    for mut cycle in &lanes.waiting {
        if !has_costs && let Some(costs) = signals.own.get() {
            pipeline.own_costs(costs);
            has_costs = true;
        }
        if let Some(&pause) = signals.pause.get() {
            pipeline.pause(pause);
        }
        if let Some(ns) = locked(&signals.switch_ns).take() {
            pipeline.switch_cost(ns);
        }
        for (begin, end) in locked(&signals.pauses).drain(..) {
            pipeline.paused(begin, end);
        }
        if let Some(from) = locked(&signals.waits_from).take() {
            pipeline.waits_from(from);
        }
        if let Some(&begin) = signals.count_from.get() {
            pipeline.count_from(begin);
        }
        for (time, event, reset) in locked(&signals.resets).drain(..) {
            pipeline.reset_changed(time, event, reset.0.get());
        }
        let frequencies = std::mem::take(&mut *locked(&signals.frequencies));
        frequencies.iter().for_each(|it| pipeline.frequency(it));
        for (begin, end, cpu) in locked(&signals.cpus).drain(..) {
            pipeline.cpu_came_online(begin, end, cpu);
        }
        let end = signals.end.load(Ordering::Acquire);
        if end > 0 {
            pipeline.stopping(KtimeNs(end));
        }
        let bytes = cycle.bytes();
        pipeline.cycle(&mut cycle);
        lanes.waiting_bytes.fetch_sub(bytes, Ordering::AcqRel);
        if let Some(order) = locked(&signals.snapshot).take() {
            pipeline.flush();
            let written = snapshot::write(&order.from, &order.to, &order.info, order.length);
            // Nobody waits any more if it took too long.
            let _ = order.done.send(written);
        }
        if lanes.patient {
            pipeline.rest();
        }
        if pipeline.has_failed() {
            signals.failed.store(true, Ordering::Relaxed);
        }
        // Fails at the end, when the receiver is gone.
        let _ = lanes.back.try_send(cycle);
    }
    pipeline.finish(KtimeNs(signals.end.load(Ordering::Acquire)))
}
