//! Cost of a run: measured unit costs times counts.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::budget::is_known;
use super::plan::Plan;
use pebs_common::config::MAX_EVENTS;
use pebs_common::record::Role;

use crate::collect::programs::StackLimits;
use crate::collect::session::Transport;
use crate::correlate::{ExtraRecords, MarkTime, MarkTimes};
use crate::cost::calibrate::measured::{Measured, Taken};
use crate::cost::calibrate::saved::{self, Calibration, Folder, LoadedCalibration};
use crate::cost::calibrate::speed::Speed;
use crate::cost::calibrate::with_options::Extras;
use crate::cost::calibrate::{self, Preparing, UnitCosts, Wanted};
use crate::cost::overhead::Window;
use crate::estimate::cold::Coldness;
use crate::estimate::marks::{AtMarks, MarksCost};
use crate::estimate::net::{SampleCost, Spacing};
use crate::failure::Warning;
use crate::pipeline::{ColdNs, Load, MarksBy, MarksMade, Outcome, OwnCosts};
use crate::pmu::attr::{EventClass, ResolvedEvent};
use crate::pmu::jitter::{Clocks, clocks, least_together};
use crate::pmu::sysfs::UprobePmu;
use crate::present::human::{percent, plural, time};
use crate::probe::set::{Probe, Site};
use crate::store::run::EntryClass;
use crate::store::run::{CostInfo, OwnCost, OwnMarks, OwnTime};
use crate::stream::sample::SamplesBy;
use crate::units::{EventId, ProbeId};

/// Fraction of a mark's cost, a single step excluded, that falls outside of the visit it begins or ends.
const OUTSIDE: f64 = 0.5;

/// Slow-down from which on it is worth a remark.
const HEAVY: f64 = 0.25;

/// Relative error assumed for the measured cost of a mark: it was measured with our caches, not the target's.
const MARKS_OFF: f64 = 0.25;

/// Costs of marks and samples, and where they come from.
#[derive(Default)]
pub(super) struct KnownCosts {
    pub units: UnitCosts,
    /// The calibration that they come from, if any.
    pub calibration: Option<Box<Calibration>>,
    /// Day of the earlier recording that measured them, if all come from it.
    pub measured: Option<String>,
    /// Why a calibration is ignored, or costs are unknown.
    pub note: Option<String>,
}

impl KnownCosts {
    /// The source as stored in `trace.json`.
    pub(super) fn source(&self) -> String {
        match (&self.calibration, &self.measured) {
            (Some(calibration), _) => format!("calibrated {}", calibration.day()),
            (None, Some(day)) => format!("measured {day}"),
            (None, None) => "measured before the run".to_owned(),
        }
    }

    /// Measures the cost of marks again and takes the lower figure, so that one disturbed measurement does not make
    /// a recording impossible.
    pub(super) fn measure_marks_again(&mut self, plan: &Plan) {
        let before = Speed::now(true);
        if let Some(marks) = marks_now(plan) {
            let _alone = alone();
            self.keep(plan, &before, marks);
            self.units = with_lower_marks(&self.units, &marks);
        }
    }

    /// Saves what was measured since the machine had this speed for later recordings, and uses what two of them agree
    /// on.
    fn keep(&mut self, plan: &Plan, before: &Speed, mut measured: UnitCosts) {
        let Some(key) = key_of(plan) else { return };
        // A calibrated sample cost is more exact than the one measured here, and is saved separately.
        if self.calibration.is_some() {
            measured.sample_ns = None;
        }
        let Some(all) = save(plan, &key, before, &measured) else {
            return;
        };
        let _ = all.apply(&mut self.units);
        if let Some(calibration) = &self.calibration {
            calibration.apply(&mut self.units);
        }
    }
}

/// Saves what was measured since the machine had this speed; returns it with what earlier recordings measured.
fn save(plan: &Plan, key: &str, before: &Speed, measured: &UnitCosts) -> Option<Measured> {
    let folder = Folder::of_user()?;
    let Some(taken) = Taken::since(before, measured) else {
        tracing::debug!("costs are not kept: the machine's speed changed while they were measured");
        return None;
    };
    let mut all = Measured::load(&folder, &plan.host, key);
    all.add(taken);
    if let Err(error) = all.save(&folder, &plan.host) {
        tracing::debug!("cannot keep what was measured: {error}");
    }
    Some(all)
}

/// Finds the cost of a sample, and of a mark for each class of probed instruction, on this machine: from the
/// event's calibration, from an earlier recording, and by measuring the rest now.
#[derive(Default)]
pub(super) struct Measuring {
    known: KnownCosts,
    classes: Vec<EntryClass>,
    uretprobes: bool,
    page_faults: bool,
    switches: bool,
    sample: bool,
    /// Events after the first whose samples have an unknown cost that can be measured.
    more: [bool; MAX_EVENTS - 1],
    event: bool,
    /// Set only if something must be measured.
    prepared: Option<Preparing>,
}

impl Measuring {
    /// Loads the known costs, and starts to prepare the measurement of the others.
    pub(super) fn begin(plan: &Plan) -> Self {
        let Some(pmu) = UprobePmu::read(Path::new("/")) else {
            return Self::default();
        };
        let mut known = KnownCosts::default();
        let key = key_of(plan);
        // Calibrated samples have no call stack.
        if let Some(key) = key.as_deref().filter(|_| plan.stacks.frames == 0) {
            (known.calibration, known.note) = load(plan, key);
        }
        known.measured = earlier(plan, key.as_deref()).and_then(|it| it.apply(&mut known.units));
        if let Some(calibration) = &known.calibration {
            calibration.apply(&mut known.units);
        }
        let others = plan.events.iter().skip(1);
        for (cost, event) in known.units.more_samples_ns.iter_mut().zip(others) {
            *cost = saved_sample(plan, event, plan.stacks);
        }
        let units = &known.units;
        let mut classes = classes(plan);
        classes.retain(|class| units.of_mark(*class, false).is_none());
        let is_clock =
            |event: &ResolvedEvent| event.class == EventClass::Clock && !event.perf_clock;
        let has_pause = plan.events.first().is_some_and(is_clock);
        let mut wanted = Self {
            uretprobes: sites(plan).any(|site| site.uretprobe) && units.uretprobe_ns.is_none(),
            page_faults: plan.kinds.page_faults
                && !plan.kinds.interference.faults
                && units.page_fault_ns.is_none(),
            switches: (plan.kinds.switches || has_pause) && units.switch.is_none(),
            sample: units.sample_ns.is_none() && plan.events.first().is_some_and(is_known),
            event: has_pause && units.pause.is_none(),
            more: std::array::from_fn(|n| {
                let event = plan.events.get(n + 1);
                let can = |it: &ResolvedEvent| is_known(it) && is_interrupting(plan, it);
                units.more_samples_ns[n].is_none() && event.is_some_and(can)
            }),
            classes,
            known,
            prepared: None,
        };
        let extras = wanted.extras(plan);
        if wanted.is_any() || extras != Extras::default() {
            wanted.known.measured = None;
            wanted.prepared = Some(calibrate::prepare(&pmu, plan.stacks, extras));
        }
        wanted
    }

    /// Returns the records that `--with` adds; wake-ups that may be recorded later are measured unless their cost is
    /// known.
    fn extras(&self, plan: &Plan) -> Extras {
        let is_known = self.known.units.extras.encounter_ns.is_some();
        Extras {
            waits_later: plan.kinds.encounters_later && !is_known,
            ..extras(plan)
        }
    }

    fn is_any(&self) -> bool {
        let others = self.uretprobes || self.page_faults || self.switches;
        let samples = self.sample || self.more.contains(&true);
        !self.classes.is_empty() || others || samples || self.event
    }

    /// Whether [`Measuring::finish`] measures something.
    pub(super) fn takes_time(&self, plan: &Plan) -> bool {
        self.prepared.is_some() || counts_cost(plan)
    }

    /// Measures the unknown costs, and saves them for later recordings.
    pub(super) fn finish(self, plan: &Plan) -> KnownCosts {
        let _alone = alone();
        let extras = self.extras(plan);
        let mut known = self.known;
        // Only samples with one interrupt each can be measured now.
        let interrupts = plan
            .events
            .first()
            .is_some_and(|it| is_interrupting(plan, it));
        if let Some(prepared) = self.prepared {
            let before = Speed::now(true);
            let (measured, why) = calibrate::measure_with(
                prepared,
                Wanted {
                    classes: &self.classes,
                    uretprobes: self.uretprobes,
                    page_faults: self.page_faults,
                    switches: self.switches,
                    event: plan
                        .events
                        .first()
                        .filter(|_| self.event || self.sample || self.switches),
                    sample: self.sample && interrupts,
                    more: std::array::from_fn(|n| plan.events.get(n + 1).filter(|_| self.more[n])),
                    stacks: plan.stacks,
                    extras,
                },
            );
            let mut units = measured;
            known.units.fill(&mut units);
            known.units = units;
            known.keep(plan, &before, measured);
            let failed = why.map(|why| format!("not all costs could be measured: {why}"));
            // Both are rare; that costs are unknown is the more important one.
            known.note = failed.or(known.note);
        }
        if counts_cost(plan)
            && let Some(pmu) = UprobePmu::read(Path::new("/"))
        {
            let ticks = plan.count_interval.is_some();
            match calibrate::counts::reading(&pmu, &plan.counted, ticks, &plan.host) {
                Ok(it) => (known.units.count_ns, known.units.tick_ns) = (it.mark_ns, it.tick_ns),
                Err(why) => {
                    known.note = Some(format!(
                        "what reading counters costs can't be measured: {why}"
                    ));
                }
            }
        }
        known
    }
}

/// Whether each sample of an event has an interrupt.
fn is_interrupting(plan: &Plan, event: &ResolvedEvent) -> bool {
    plan.transport.how == Transport::Bpf || !event.is_buffered(&plan.host)
}

/// Cost of a sample of an event after the first, ns, from its calibration or from earlier recordings of it alone; `None`
/// if there are none.
fn saved_sample(plan: &Plan, event: &ResolvedEvent, stacks: StackLimits) -> Option<f64> {
    let key = sample_key(plan, event, stacks);
    let mut units = UnitCosts::default();
    let _ = earlier(plan, Some(&key)).and_then(|it| it.apply(&mut units));
    if stacks.frames == 0
        && let (Some(calibration), _) = load(plan, &key)
    {
        calibration.apply(&mut units);
    }
    units.sample_ns
}

/// Whether the cost of the first event's samples without call stacks is calibrated.
pub(super) fn is_calibrated(plan: &Plan) -> bool {
    let first = plan.events.first();
    let key = first.map(|event| sample_key(plan, event, StackLimits::default()));
    key.is_some_and(|key| load(plan, &key).0.is_some())
}

/// Costs of a sample of the first event with each of these call stacks, ns: as measured by earlier recordings, or else both
/// now; `None` if they can't be.
pub(super) fn samples_with(
    plan: &Plan,
    each: [StackLimits; 2],
    before_measuring: impl FnOnce(),
) -> Option<[f64; 2]> {
    let event = plan.events.first()?;
    if let [Some(one), Some(other)] = each.map(|stacks| saved_sample(plan, event, stacks)) {
        return Some([one, other]);
    }
    before_measuring();
    let pmu = UprobePmu::read(Path::new("/"))?;
    let prepared = each.map(|stacks| calibrate::prepare(&pmu, stacks, Extras::default()));
    let _alone = alone();
    let mut costs = Vec::new();
    for (stacks, prepared) in each.into_iter().zip(prepared) {
        let before = Speed::now(true);
        let wanted = Wanted {
            classes: &[],
            uretprobes: false,
            page_faults: false,
            switches: false,
            event: Some(event),
            sample: true,
            more: Default::default(),
            stacks,
            extras: Extras::default(),
        };
        let (measured, _) = calibrate::measure_with(prepared, wanted);
        let _ = save(plan, &sample_key(plan, event, stacks), &before, &measured);
        costs.push(measured.sample_ns?);
    }
    costs.try_into().ok()
}

/// Held while costs are measured: recordings of one process would measure each other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether marks read counters, or threads are counted in intervals.
fn counts_cost(plan: &Plan) -> bool {
    plan.reads_counters() || plan.count_interval.is_some()
}

/// Note on the cost of reading counters, printed before the start; `None` if none are read.
pub(super) fn counts_note(plan: &Plan, units: &UnitCosts) -> Option<String> {
    let ticks = plan
        .count_interval
        .map(|interval| ticks_note(interval, units.tick_ns));
    let marks = plan.reads_counters().then(|| marks_note(plan, units));
    match (marks, ticks) {
        (Some(marks), Some(ticks)) => Some(format!("{marks}; also {ticks}")),
        (None, Some(ticks)) => Some(format!("threads are counted {ticks}")),
        (marks, None) => marks,
    }
}

/// Note on the cost of reading counters at marks and switches.
fn marks_note(plan: &Plan, units: &UnitCosts) -> String {
    let counters = plan.counted.iter().filter(|it| it.counter().is_some());
    let counters = plural(counters.count() as u64, "counter");
    match units.count_ns {
        Some(ns) => format!(
            "{counters} are read at each mark and switch, together in {}, included in the cost of marks",
            time(ns)
        ),
        None => {
            format!("{counters} are read at each mark and switch, at unknown cost")
        }
    }
}

/// Note on the cost of reading counters at the end of each interval.
fn ticks_note(interval: Duration, tick_ns: Option<f64>) -> String {
    let each = time(interval.as_nanos() as f64);
    match tick_ns {
        Some(ns) => format!(
            "every {each}, in {}: {} of the time of a thread that runs",
            time(ns),
            percent(ns / interval.as_nanos() as f64)
        ),
        None => format!("every {each}, at unknown cost"),
    }
}

/// Key under which the cost of the first event's samples is saved.
fn key_of(plan: &Plan) -> Option<String> {
    Some(sample_key(plan, plan.events.first()?, plan.stacks))
}

/// Key under which the cost of an event's samples is saved.
fn sample_key(plan: &Plan, event: &ResolvedEvent, stacks: StackLimits) -> String {
    let plain = saved::key(&event.name, plan.transport.how);
    match stacks {
        StackLimits { frames: 0, .. } => plain,
        StackLimits {
            frames,
            by_pointers: true,
            ..
        } => format!("{plain}, call stacks of {frames}"),
        StackLimits { copied, .. } => format!("{plain}, stacks of {copied} bytes"),
    }
}

/// Classes of the probed instructions, and the emulated class, which the cost of a single step is relative to.
fn classes(plan: &Plan) -> Vec<EntryClass> {
    let plain = sites(plan).filter(|site| !site.uretprobe);
    plain
        .flat_map(|site| [site.class, EntryClass::Emulated])
        .collect()
}

/// The costs, with those of marks measured again if that gives less.
pub(super) fn marks_again(plan: &Plan, units: &UnitCosts) -> UnitCosts {
    marks_now(plan).map_or(*units, |marks| with_lower_marks(units, &marks))
}

/// The costs of marks, measured now.
fn marks_now(plan: &Plan) -> Option<UnitCosts> {
    let _alone = alone();
    let pmu = UprobePmu::read(Path::new("/"))?;
    let (costs, _) = calibrate::measure(
        &pmu,
        Wanted {
            classes: &classes(plan),
            uretprobes: sites(plan).any(|site| site.uretprobe),
            page_faults: false,
            switches: false,
            event: None,
            sample: false,
            more: Default::default(),
            stacks: plan.stacks,
            extras: Extras::default(),
        },
    );
    Some(costs)
}

fn with_lower_marks(units: &UnitCosts, marks: &UnitCosts) -> UnitCosts {
    let lower = |old: Option<f64>, new: Option<f64>| match (old, new) {
        (Some(old), Some(new)) => Some(old.min(new)),
        _ => old.or(new),
    };
    UnitCosts {
        emulated_ns: lower(units.emulated_ns, marks.emulated_ns),
        single_step_ns: lower(units.single_step_ns, marks.single_step_ns),
        uretprobe_ns: lower(units.uretprobe_ns, marks.uretprobe_ns),
        apart: marks.apart.or(units.apart),
        single_step_ran_ns: marks.single_step_ran_ns.or(units.single_step_ran_ns),
        ..*units
    }
}

/// Costs measured by earlier recordings.
fn earlier(plan: &Plan, key: Option<&str>) -> Option<Measured> {
    Some(Measured::load(&Folder::of_user()?, &plan.host, key?))
}

/// The calibration of the first event, and a note if one is ignored.
fn load(plan: &Plan, key: &str) -> (Option<Box<Calibration>>, Option<String>) {
    let Some(folder) = Folder::of_user() else {
        return (None, None);
    };
    match folder.load(&plan.host, key) {
        LoadedCalibration::Good(calibration) => (Some(calibration), None),
        LoadedCalibration::Nothing => (None, None),
        LoadedCalibration::Ignored(note) => (None, Some(note)),
    }
}

fn extras(plan: &Plan) -> Extras {
    Extras {
        encounters: plan.kinds.encounters,
        waits_later: false,
        interference: plan.kinds.interference,
    }
}

fn sites(plan: &Plan) -> impl Iterator<Item = &Site> {
    plan.probes.probes.iter().flat_map(|probe| &probe.sites)
}

/// Unit costs of this run, and the kinds of records that they apply to.
#[derive(Clone, Copy)]
pub(super) struct Prices<'a> {
    probes: &'a [Probe],
    costs: &'a UnitCosts,
    page_faults: bool,
    /// Extra records (`--with`) that are recorded.
    extras: Extras,
    /// Whether there are intervals of counts.
    ticks: bool,
    /// Whether the interrupt of each sample is recorded as an interrupt.
    samples_interrupt: bool,
    /// Whether there is one event: net times know the samples of one.
    one_event: bool,
    /// Spacing of samples.
    spacing: Spacing,
    /// Signs of a mark that takes longer.
    coldness: Coldness,
}

/// The clocks that sampled a target.
#[derive(Debug, Default)]
pub(super) struct ClockSpans(
    /// Number of switches before each change, and the clocks since.
    Vec<(u64, Clocks)>,
);

impl ClockSpans {
    /// Other clocks are in force after that number of switches.
    pub(super) fn push(&mut self, switches: u64, clocks: Clocks) {
        self.0.push((switches, clocks));
    }

    /// Those in force at the end.
    pub(super) fn last(&self) -> Clocks {
        self.0.last().map_or_else(Clocks::default, |it| it.1)
    }

    /// Whether any were those of CPUs.
    pub(super) fn were_of_cpus(&self) -> bool {
        self.0.iter().any(|it| it.1 == Clocks::OfCpus)
    }

    /// Cost of all switches, if each costs so much, ns; `None` if it is unknown.
    fn switches_ns(&self, all: u64, each: impl Fn(Clocks) -> Option<f64>) -> Option<f64> {
        let (mut sum, mut from, mut clocks) = (0.0, 0, Clocks::default());
        for (until, next) in self.0.iter().copied().chain([(all, self.last())]) {
            sum += until.saturating_sub(from) as f64 * each(clocks)?;
            (from, clocks) = (until, next);
        }
        Some(sum)
    }
}

/// Returns the spacing of the first event's samples; those of threads that come and go have one clock.
fn spacing(plan: &Plan, costs: &UnitCosts) -> Spacing {
    let spacing = Spacing::varied(plan.jitter / 100.0);
    let clocks = plan
        .events
        .first()
        .and_then(|event| clocks(event, plan.jitter));
    match clocks {
        Some(clocks) => spacing.with_clocks(clocks, least_together(costs.sample_ns)),
        None => spacing,
    }
}

/// Returns the signs of a mark that takes longer: known where programs of marks do as they did when they were measured.
fn coldness(plan: &Plan, costs: &UnitCosts) -> Coldness {
    let is_alike = plan.threads.is_empty() && costs.count_ns.is_none();
    let apart = costs.apart.filter(|_| is_alike);
    apart.map_or_else(Coldness::default, |it| {
        it.coldness(costs.single_step_ran_ns)
    })
}

impl<'a> Prices<'a> {
    pub(super) fn new(plan: &'a Plan, costs: &'a UnitCosts) -> Self {
        let extras = extras(plan);
        // They are recorded later only where their cost is known.
        let waits_later = plan.kinds.encounters_later && costs.extras.encounter_ns.is_some();
        Self {
            probes: &plan.probes.probes,
            costs,
            page_faults: plan.kinds.page_faults,
            extras: Extras {
                encounters: extras.encounters || waits_later,
                ..extras
            },
            ticks: plan.count_interval.is_some(),
            samples_interrupt: matches!(plan.events.as_slice(), [event] if event.class == EventClass::Clock),
            one_event: plan.events.len() == 1,
            spacing: spacing(plan, costs),
            coldness: coldness(plan, costs),
        }
    }

    /// The unit costs.
    pub(super) const fn costs(&self) -> &'a UnitCosts {
        self.costs
    }

    /// Whether all of them are known.
    pub(super) fn are_known(&self) -> bool {
        let each = MarksMade {
            by: vec![[1; 8]; self.probes.len()],
            cold: Vec::new(),
        };
        let one = ExtraRecords {
            interrupts: 1,
            softirqs: 1,
            encounters: 1,
            ticks: 0,
        };
        self.marks_ns(&each).is_some()
            && self.page_faults_ns(1).is_some()
            && self.sample_ns().is_some()
            && self.extras_ns(&one).is_some()
    }

    /// Cost of marks, ns. The cost of one mark depends on its probe, its role and whether its instruction is
    /// single-stepped; sites that share these are almost always of the same class.
    pub(super) fn marks_ns(&self, marks: &MarksMade) -> Option<f64> {
        let sum = self.sum(&marks.by, |site| {
            Some(self.mark_ns(site)? + self.passed_ns(site)?)
        });
        Some(sum? + cold_ns(marks, |it| it.whole))
    }

    /// Cost of a mark, ns: as right after another one where marks tell that they take longer, else as programs pay it.
    fn mark_ns(&self, site: &Site) -> Option<f64> {
        match self.coldness.warm_ns[usize::from(is_stepped(site))] > 0.0 {
            true => self.costs.of_warm_mark(site.class, site.uretprobe),
            false => self.costs.of_mark(site.class, site.uretprobe),
        }
    }

    /// Cost of the sites that a visit passes without a mark before this one, ns.
    fn passed_ns(&self, site: &Site) -> Option<f64> {
        if site.passed > 0.0 {
            return Some(site.passed * self.costs.emulated_ns?);
        }
        Some(0.0)
    }

    /// The part of it outside of visits, ns: for a begin mark the work before it reads its time, for an end mark
    /// the work after, including all of a single step.
    fn outside_ns(&self, marks: &MarksMade) -> Option<f64> {
        let sum = self.sum(&marks.by, |site| {
            let whole = self.mark_ns(site)?;
            let emulated = match (site.class, site.uretprobe) {
                (EntryClass::SingleStep, false) => self.costs.emulated_ns?.min(whole),
                _ => whole,
            };
            let begins = matches!(site.role, Role::Begin | Role::Next);
            let step = if begins { 0.0 } else { whole - emulated };
            Some(OUTSIDE * emulated + step)
        });
        Some(sum? + cold_ns(marks, |it| it.outside))
    }

    /// Cost of these marks, of all that were made until then, and of the samples that met those.
    pub(super) fn cost_of_marks(
        &self,
        marks: &MarksMade,
        (all, at_marks): (&MarksMade, &AtMarks),
    ) -> Option<MarksCost> {
        let measured = self.measured(marks)?;
        let Some(sample_ns) = self.clock_sample_ns() else {
            return Some(measured);
        };
        let all = self.measured(all)?;
        let corrected = at_marks.correct(all, sample_ns);
        let part = |of: fn(&MarksCost) -> f64| match of(&all) > 0.0 {
            true => of(&measured) * of(&corrected) / of(&all),
            false => of(&measured),
        };
        Some(MarksCost {
            whole_ns: part(|it| it.whole_ns),
            outside_ns: part(|it| it.outside_ns),
        })
    }

    /// Cost of a sample, if the only event is a clock: its samples tell what marks take.
    fn clock_sample_ns(&self) -> Option<f64> {
        self.costs.sample_ns.filter(|_| self.samples_interrupt)
    }

    /// Cost of marks as measured before the run.
    fn measured(&self, marks: &MarksMade) -> Option<MarksCost> {
        Some(MarksCost {
            whole_ns: self.marks_ns(marks)?,
            outside_ns: self.outside_ns(marks)?,
        })
    }

    fn sum(&self, marks_by: &[MarksBy], each: impl Fn(&Site) -> Option<f64>) -> Option<f64> {
        let mut sum = 0.0;
        for (probe, by_role) in self.probes.iter().zip(marks_by) {
            for site in &probe.sites {
                let same = probe.sites.iter().filter(|other| key(other) == key(site));
                let share = by_role[key(site)] as f64 / same.count() as f64;
                if share > 0.0 {
                    sum += share * each(site)?;
                }
            }
        }
        Some(sum)
    }

    /// Costs that pebs-trace adds to visits; `None` if the cost of something recorded is unknown.
    pub(super) fn own_costs(&self) -> Option<OwnCosts> {
        let extras = &self.costs.extras;
        let irq = self.extras.interference.irq;
        let pause = self.costs.pause;
        let pause_ns = pause.map(|it| (it.before + it.after) as f64);
        let own_ns = self.sample_ns().filter(|ns| *ns > 0.0 && self.one_event);
        let sample_ns = own_ns.or(pause_ns)?;
        // The spread of a whole sample is not measured; the pause covers half of it.
        let spread_ns = pause.map_or(0.0, |pause| 2.0 * pause.spread as f64);
        Some(OwnCosts {
            marks: self.mark_times()?,
            coldness: self.coldness,
            sample: Some(SampleCost::measured(sample_ns, spread_ns)),
            spacing: self.spacing,
            // 0 if it could not be measured: small compared with a switch. Counters are read at both ends of a
            // switch.
            switch_ns: self.switch_ns(Clocks::default()).unwrap_or(0.0),
            page_fault_ns: self.page_faults_ns(1)?,
            interrupt_ns: price(irq, 1, extras.interrupt_ns)?,
            softirq_ns: price(irq, 1, extras.softirq_ns)?,
            encounter_ns: price(self.extras.encounters, 1, extras.encounter_ns)?,
            // As with switches.
            tick_ns: self.ticks_ns(1).unwrap_or(0.0),
        })
    }

    /// Cost of a switch with these clocks, ns; `None` if unknown.
    pub(super) fn switch_ns(&self, clocks: Clocks) -> Option<f64> {
        Some(self.costs.switch?.of(clocks) + self.costs.count_ns.unwrap_or(0.0))
    }

    /// Cost of marks before and after their timestamp, by probe; the mean over sites that share a role and are all
    /// single-stepped, or all not.
    fn mark_times(&self) -> Option<Vec<MarkTimes>> {
        let mut times = vec![MarkTimes::default(); self.probes.len()];
        for (probe, times) in self.probes.iter().zip(&mut times) {
            for one in &probe.sites {
                let alike = probe.sites.iter().filter(|it| key(it) == key(one));
                let (mut before, mut after, mut number) = (0.0, 0.0, 0.0);
                for site in alike {
                    let (first, rest) = self.costs.parts_of_mark(site.class, site.uretprobe)?;
                    let first = first + self.passed_ns(site)?;
                    (before, after, number) = (before + first, after + rest, number + 1.0);
                }
                let time = MarkTime {
                    before_ns: (before / number).round() as u64,
                    after_ns: (after / number).round() as u64,
                };
                times.set(one.role, is_stepped(one), time);
            }
        }
        Some(times)
    }

    fn page_faults_ns(&self, faults: u64) -> Option<f64> {
        if !self.page_faults {
            return Some(0.0);
        }
        let each = match self.extras.interference.faults {
            true => self.costs.extras.fault_ns?,
            false => self.costs.page_fault_ns?,
        };
        Some(faults as f64 * each)
    }

    /// ns of interrupts.
    fn interrupts_ns(&self, records: &ExtraRecords) -> Option<f64> {
        let costs = &self.costs.extras;
        let irq = self.extras.interference.irq;
        let hard = price(irq, records.interrupts, costs.interrupt_ns)?;
        Some(hard + price(irq, records.softirqs, costs.softirq_ns)?)
    }

    /// ns of wake-ups and displacements.
    fn encounters_ns(&self, records: &ExtraRecords) -> Option<f64> {
        let each = self.costs.extras.encounter_ns;
        price(self.extras.encounters, records.encounters, each)
    }

    /// ns of ends of intervals of counts; `None` if that is not known.
    fn ticks_ns(&self, ticks: u64) -> Option<f64> {
        price(self.ticks, ticks, self.costs.tick_ns)
    }

    fn extras_ns(&self, records: &ExtraRecords) -> Option<f64> {
        let ticks_ns = self.ticks_ns(records.ticks).unwrap_or(0.0);
        Some(self.interrupts_ns(records)? + self.encounters_ns(records)? + ticks_ns)
    }

    /// Cost of a sample of the first event whose samples have a known one, ns.
    fn sample_ns(&self) -> Option<f64> {
        let known = (0..MAX_EVENTS as u8).map(EventId);
        let mut known = known.filter(|event| self.costs.of_sample(*event).is_some());
        self.samples_ns(&SamplesBy::of_event(known.next()?, 1))
    }

    /// Cost of samples, ns, and their number, of those events for which it is known.
    fn known_samples(&self, samples: &SamplesBy) -> Option<(f64, u64)> {
        let mut known = SamplesBy::default();
        let each = samples.iter();
        let each = each.filter(|(event, _)| self.costs.of_sample(*event).is_some());
        each.for_each(|(event, samples)| known.add(event, samples));
        Some((self.samples_ns(&known)?, known.sum()))
    }

    /// Cost of samples, ns; `None` if that of an event is unknown.
    fn samples_ns(&self, samples: &SamplesBy) -> Option<f64> {
        let mut sum = 0.0;
        for (event, samples) in samples.iter().filter(|(_, samples)| *samples > 0) {
            sum += samples as f64 * self.costs.of_sample(event)?;
        }
        let seen = self.samples_interrupt && self.extras.interference.irq;
        Some(sum + price(seen, samples.sum(), self.costs.extras.interrupt_ns)?)
    }

    /// Costs of what was counted between two instants; `None` if a unit cost is unknown.
    pub(super) fn window(&self, before: &Load, now: &Load) -> Option<Window> {
        let marks = now.marks.since(&before.marks);
        // A visit whose end is unknown has counted samples, but no time.
        let samples = now.samples.since(&before.samples);
        let (samples_ns, samples) = self.known_samples(&samples)?;
        let faults = now.page_faults.saturating_sub(before.page_faults);
        let oncpu_ns = (now.oncpu_ns - before.oncpu_ns).max(0.0);
        let extras = self.extras_ns(&now.extras.since(&before.extras))?;
        let marks = self.cost_of_marks(&marks, (&now.marks, &now.at_marks))?;
        let faults_ns = self.page_faults_ns(faults)? + extras;
        let (marks_ns, outside_ns) = (marks.whole_ns, marks.outside_ns);
        Some(Window::of_visits(
            oncpu_ns, marks_ns, outside_ns, faults_ns, samples_ns, samples,
        ))
    }
}

/// Index of a site's marks in the counts of its probe.
fn key(site: &Site) -> usize {
    site.role as usize + 4 * usize::from(is_stepped(site))
}

fn is_stepped(site: &Site) -> bool {
    site.class == EntryClass::SingleStep && !site.uretprobe
}

/// Time that pebs-trace added to visits, for `trace.json`; `None` if unknown.
pub(super) fn own_time(
    plan: &Plan,
    units: &UnitCosts,
    source: Option<&str>,
    outcome: &Outcome,
    clocks: Clocks,
) -> Option<OwnTime> {
    let prices = Prices::new(plan, units);
    let costs = prices.own_costs()?;
    let switch_ns = prices.switch_ns(clocks).filter(|_| plan.kinds.switches);
    let source = source.unwrap_or_default().to_owned();
    let measured_marks = prices.measured(&outcome.marks_made);
    let inside_factor = match (measured_marks, prices.clock_sample_ns()) {
        (Some(all), Some(sample_ns)) => outcome
            .at_marks
            .inside
            .factor((all.whole_ns - all.outside_ns).max(0.0), sample_ns),
        _ => 1.0,
    };
    // The error is the expected difference between a cost measured on ourselves and the cost to the target.
    let measured = |ns: f64| OwnCost {
        ns,
        stderr_ns: ns * MARKS_OFF,
        source: source.clone(),
    };
    let marks = plan
        .probes
        .probes
        .iter()
        .zip(&costs.marks)
        .zip(0..=u16::MAX);
    let marks = marks.map(|((probe, times), id)| {
        let made = &outcome.marks_made;
        let by_role = made.by.get(usize::from(id));
        let cold = made.cold.get(usize::from(id)).map_or(0, |it| it.whole);
        let begins = by_role.map_or(0, begins);
        let cold = cold as f64 / begins.max(1) as f64;
        let whole = whole_ns(probe, times, by_role) + cold;
        let within = outcome.marks_within.get(usize::from(id)).copied();
        let (inside, too_much) = within.unwrap_or_default();
        let seen_ns = inside * inside_factor;
        let most = Some(inside - too_much).filter(|_| too_much > 0.0);
        OwnMarks {
            probe_id: ProbeId(id),
            inside: Some(OwnCost {
                source: most.map_or_else(|| source.clone(), |_| "the shortest visits".to_owned()),
                ..measured(most.unwrap_or(inside))
            })
            .map(|it| OwnCost {
                // Samples say how wrong it is.
                stderr_ns: it.stderr_ns.max((seen_ns - it.ns).abs()),
                ..it
            }),
            whole: Some(measured(whole)),
            measured_ns: most.map(|_| inside),
        }
    });
    let sample = outcome.sample_cost;
    Some(OwnTime {
        marks: marks.collect(),
        sample: sample.map(|it| OwnCost {
            ns: it.ns,
            stderr_ns: it.stderr_ns,
            source: match it.learnt_from {
                0 => source.clone(),
                items => format!("learnt in the run from {items} items"),
            },
        }),
        sample_spread_ns: sample.map(|it| it.spread_ns),
        switch: switch_ns.filter(|it| *it > 0.0).map(measured),
        page_fault: plan
            .kinds
            .page_faults
            .then(|| measured(costs.page_fault_ns)),
        tick: (costs.tick_ns > 0.0).then(|| measured(costs.tick_ns)),
    })
}

/// Cost of the marks of a visit, ns: the mean over the probe's places, by how many marks each kind of them made.
fn whole_ns(probe: &Probe, times: &MarkTimes, by_role: Option<&MarksBy>) -> f64 {
    let of = |roles: &[Role]| {
        let places = roles
            .iter()
            .flat_map(|role| [false, true].map(|stepped| (*role, stepped)));
        let (mut sum, mut marks) = (0.0, 0.0);
        for (role, stepped) in places {
            let is_here = |it: &Site| it.role == role && is_stepped(it) == stepped;
            if let Some(site) = probe.sites.iter().find(|it| is_here(it)) {
                let time = times.of(role, stepped);
                // As many of each if there were none.
                let number = by_role.map_or(0.0, |it| it[key(site)] as f64) + 1e-9;
                sum += number * (time.before_ns + time.after_ns) as f64;
                marks += number;
            }
        }
        if marks > 0.0 { sum / marks } else { 0.0 }
    };
    of(&[Role::Begin, Role::Next]) + of(&[Role::End, Role::Return])
}

/// Number of begin marks.
fn begins(by_role: &MarksBy) -> u64 {
    let of = |role: Role| by_role[role as usize] + by_role[role as usize + 4];
    of(Role::Begin) + of(Role::Next)
}

/// Time of marks beyond that of marks right after another, ns.
fn cold_ns(marks: &MarksMade, part: fn(&ColdNs) -> i64) -> f64 {
    marks.cold.iter().map(part).sum::<i64>() as f64
}

/// Cost of `number` events; 0 if they are not recorded or there were none, `None` if the unit cost is unknown.
fn price(recorded: bool, number: u64, each: Option<f64>) -> Option<f64> {
    if !recorded || number == 0 {
        return Some(0.0);
    }
    Some(number as f64 * each?)
}

/// The whole cost. `sample_ns` is the cost of a sample estimated from this run, if known; `target_cpu_ns` the
/// target's CPU time; the clocks are those that sampled.
pub(super) fn total(
    plan: &Plan,
    costs: &UnitCosts,
    outcome: &Outcome,
    sample_ns: Option<f64>,
    target_cpu_ns: Option<f64>,
    clocks: &ClockSpans,
) -> CostInfo {
    let costs = &UnitCosts {
        sample_ns: sample_ns.or(costs.sample_ns),
        ..*costs
    };
    let prices = Prices::new(plan, costs);
    let all = (&outcome.marks_made, &outcome.at_marks);
    let marks = prices.cost_of_marks(&outcome.marks_made, all);
    let marks_ns = marks.map(|it| it.whole_ns);
    let measured_ns = prices.marks_ns(&outcome.marks_made);
    let (mut inside_by, outside_by) = outcome.samples_by;
    let mut samples_by = inside_by;
    samples_by += outside_by;
    let page_faults_ns = prices.page_faults_ns(outcome.page_faults);
    let outside = outcome.ledger.samples_unmatched - outcome.shared_samples;
    let inside = outcome.samples - outside.min(outcome.samples);
    if let [_] = plan.events.as_slice() {
        // Those that were lost on their way cost as much.
        samples_by = SamplesBy::of_event(EventId(0), outcome.samples);
        inside_by = SamplesBy::of_event(EventId(0), inside);
    }
    let samples_ns = prices.samples_ns(&samples_by);
    let switches = outcome.switches;
    let switches_ns = match plan.kinds.switches {
        true => clocks.switches_ns(switches, |it| prices.switch_ns(it)),
        false => Some(0.0),
    };
    let window = || {
        // Samples outside visits do not slow visits down.
        let extras_ns = prices.extras_ns(&outcome.extras)?;
        let samples_ns = prices.samples_ns(&inside_by)?;
        let waits_ns = outcome.mark_waits.1 as f64;
        Some(Window::of_visits(
            outcome.visits_oncpu_ns?,
            marks_ns?,
            marks?.outside_ns,
            page_faults_ns? + extras_ns + waits_ns,
            samples_ns,
            inside,
        ))
    };
    let window = window();
    let least = window.and_then(|window| window.least());
    let ticks_ns = prices.ticks_ns(outcome.ticks);
    let target_cpu = || {
        let in_visits = ExtraRecords {
            ticks: 0,
            ..outcome.extras
        };
        let extras_ns = prices.extras_ns(&in_visits)? + ticks_ns.unwrap_or(0.0);
        let all =
            marks_ns? + samples_ns? + page_faults_ns? + extras_ns + switches_ns.unwrap_or(0.0);
        // At least the time of visits without their cost remains.
        let least = window.map_or(0.0, |it| it.undisturbed_ns());
        let left = (target_cpu_ns? - all).max(least);
        // A smaller remainder is below the error of both.
        (left > 0.1 * target_cpu_ns?).then(|| all / left)
    };
    CostInfo {
        marks: outcome.marks,
        samples: outcome.samples,
        tool_cpu_ns: tool_cpu_ns(),
        marks_ns,
        marks_measured_ns: measured_ns.filter(|_| measured_ns != marks_ns),
        marks_met: outcome.at_marks.all().samples,
        samples_ns,
        page_faults: outcome.page_faults,
        page_faults_ns,
        interrupts: outcome.extras.interrupts + outcome.extras.softirqs,
        interrupts_ns: prices
            .interrupts_ns(&outcome.extras)
            .filter(|_| plan.kinds.interference.irq),
        encounters: outcome.extras.encounters,
        encounters_ns: prices
            .encounters_ns(&outcome.extras)
            .filter(|_| plan.kinds.encounters || outcome.extras.encounters > 0),
        pause_before_ns: costs.pause.map(|pause| pause.before),
        pause_after_ns: costs.pause.map(|pause| pause.after),
        visits_oncpu_ns: outcome.visits_oncpu_ns,
        slowdown: window
            .and_then(|window| window.overhead())
            .filter(|_| least.is_none()),
        slowdown_least: least,
        target_cpu: target_cpu(),
        target_cpu_ns,
        switches,
        switches_ns: switches_ns.filter(|_| plan.kinds.switches),
        ticks: outcome.ticks,
        ticks_ns: ticks_ns.filter(|_| plan.count_interval.is_some()),
    }
}

/// Remark and hint for runs that slowed the target down a lot.
pub(super) fn remark(plan: &Plan, costs: &UnitCosts, cost: &CostInfo) -> Option<Warning> {
    // With a bound, the governor's own remark covers this.
    if plan.overhead.is_some() {
        return None;
    }
    let (word, slowdown) = match cost.slowdown_least {
        Some(least) => ("at least", least),
        None => ("about", cost.slowdown.filter(|share| *share > HEAVY)?),
    };
    let (marks, samples) = (cost.marks_ns?, cost.samples_ns?);
    let text = format!("slow-down of items: {word} {:.0} %", slowdown * 100.0);
    let net = cost.visits_oncpu_ns? - 0.5 * marks - samples;
    let fixed = if net > 0.0 { marks / net } else { 1.0 };
    let unit = plan.events.first()?.reset_unit();
    let clock = matches!(plan.events.as_slice(), [event] if event.class == EventClass::Clock);
    if marks > samples || !clock {
        let hint = "most of it comes from marks: probe a function that is called less often";
        return Some(Warning {
            text,
            hint: if marks > samples {
                hint.to_owned()
            } else {
                "raise --reset".to_owned()
            },
        });
    }
    Some(Warning {
        text,
        hint: super::budget::cheaper(fixed, costs.sample_ns?, unit),
    })
}

/// CPU time of this process so far, user and system, ns.
fn tool_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
