//! Slow items against typical ones: divides the difference of their latencies among causes.
//!
//! # The estimate
//!
//! The gap is the mean latency of the slow items less that of the typical ones. An item's latency is its time on the
//! CPU, its waits, including those for the next stage, and the rest, which other items of the thread had. Waits and the
//! rest are observed. The time on the CPU is observed as well, and divided among functions by samples as in
//! [`crate::compare::pool`]: time of f per item = (events of f / all events) x (active time / items) of the class. So
//! the means of all parts always sum to the mean latency of a class, and their differences to the gap.
//!
//! A function with fewer than [`MIN_SAMPLES`] samples in the slow items, and no more to be expected from the typical
//! ones, is merged with the other such functions of its module; if these have too few together, or the slow items have
//! too few in all, the time is *unexplained*.
//!
//! The work of the kernel or a library for one call of the program is spread over many of its functions (a page fault,
//! an allocation). So several functions are one cause, with the largest of them listed in it, if none has half of their
//! time and they are the kernel's in the same system call, the kernel's in unknown ones, or of a module without a probe.
//! Functions in page faults always are one cause, and functions in interrupts: the program called none of them.
//!
//! *Worked number*: 40 slow items of 1.05 ms mean against typical ones of 4 us. 70 % of the slow
//! ones' samples are in f, and their time on the CPU is 1 ms: f takes 700 us an item, in typical ones
//! 0: 700 / 1046 = 67 % of the gap.
//!
//! # Its interval
//!
//! For 1,000 replicates of the slow and, independently, of the typical items the share is recomputed, including the
//! gap; the middle 95 % are the interval. It covers the chance of sampling and the spread between items, for a given
//! slow limit, and assumes independent items. The error of pebs-trace's own time is drawn in each replicate as well,
//! once for both classes, as it is the same for all marks and for all samples: the gap has the error of the additional
//! samples of slow items. *Worked number*: a sample takes 2 us, give or take 0.5, and slow items have 4 samples more: the
//! gap is known to 2 us, however many items there are. There is no interval below 8 slow items, and none of functions
//! where samples beat with the items ([`crate::compare::pool`]).

use super::interrupts_and_faults::WHAT;
use super::model::{
    Cause, CauseType, CountRow, EventFigures, Figures, Gap, InterferenceRow, OtherCauses,
    WithEvents,
};
use super::sums::{ClassSums, EventSums, GroupSums, type_of_wait};
use crate::compare::classes::Class;
use crate::compare::explain::keys::Key;
use crate::compare::further::FurtherEvent;
use crate::compare::names::{FunctionName, Names, file_name};
use crate::compare::pool::MIN_SAMPLES;
use crate::compare::waits::{IDLE, OTHER_ITEMS, States};
use crate::rng::SplitMix64;
use crate::store::run::{ProbeInfo, SiteInfo};
use crate::units::FunctionId;
use pebs_stats::blocks::{Blocks, Draw, Draws, interval};

/// Least part of its module's excess that makes a function a cause of its own.
const ALONE: f64 = 0.5;

/// Functions listed in a cause that is several.
const MEMBERS: usize = 6;

/// Least share of the gap of a listed cause, and of the slow items' events of a function listed for these.
const LEAST_SHARE: f64 = 0.005;

/// Names of the counts, in the order of [`ClassSums::counts`].
pub(super) const COUNTS: [&str; 3] = ["switches", "migrations", PAGE_FAULTS];

/// Name of the last of them.
pub(crate) const PAGE_FAULTS: &str = "page_faults";

/// State of an item between two stages.
const QUEUED: &str = "queued";

/// Names for keys.
pub(crate) struct Naming<'a> {
    /// Names of functions.
    pub names: &'a Names,
    /// Names of states.
    pub states: &'a States,
    /// The run's probes.
    pub probes: &'a [ProbeInfo],
}

impl Naming<'_> {
    /// Kind, function and state of a key.
    pub(crate) fn of(&self, key: Key) -> (CauseType, FunctionName, Option<String>) {
        match key {
            Key::Function(id) => (CauseType::Function, self.names.get(Some(id.0)), None),
            Key::Wait(wait) => {
                let state = self.states.name(wait.state);
                let function = self.names.get(wait.function.map(|id| id.0));
                (type_of_wait(state), function, Some(state.to_owned()))
            }
            Key::Handover(stage) | Key::Others(stage) => {
                let probe = self.probes.iter().find(|probe| probe.id.0 == stage);
                let function = FunctionName {
                    name: probe.map(|probe| probe.spec.function().to_owned()),
                    ..FunctionName::default()
                };
                match key {
                    Key::Others(_) => (CauseType::Others, function, None),
                    _ => (CauseType::Handover, function, Some(QUEUED.to_owned())),
                }
            }
        }
    }

    /// The functions of the same module as this one.
    fn module(&self, key: Key) -> FunctionName {
        let function = key.function().map(|id| id.0);
        self.names.get(function).module_only()
    }
}

/// Whether a module is the kernel or has no probe: it works on behalf of its callers.
fn is_foreign(probes: &[ProbeInfo], module: &FunctionName) -> bool {
    let mut sites = probes.iter().flat_map(|it| &it.sites).peekable();
    let Some(path) = &module.module else {
        return false;
    };
    // By file name only: the process may see other paths than we do.
    let is_site = |site: &SiteInfo| file_name(&site.path) == file_name(path);
    // A module that was started by a symbolic link is named after the link, as SPEC mostly is.
    let is_typed = |probe: &ProbeInfo| {
        let binary = probe.spec.binary().map(file_name);
        binary == Some(file_name(path))
    };
    let has_sites = sites.peek().is_some();
    let has_probe = sites.any(is_site) || probes.iter().any(is_typed);
    module.kernel || has_sites && !has_probe
}

/// A part of the latency in both classes.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// Events for functions, ns for waits and for all of them together; for the time elsewhere, ns of the waits, which
    /// are subtracted.
    pub slow: Blocks,
    pub typical: Blocks,
    /// Samples, or waits.
    pub samples: (u64, u64),
    pub how: PartBasis,
    /// Of each further event; empty for waits.
    pub further: Vec<EventPart>,
}

/// A further event in a part.
#[derive(Clone, Debug, Default)]
pub(super) struct EventPart {
    slow: Blocks,
    typical: Blocks,
    samples: (u64, u64),
}

impl EventPart {
    /// All of a class each.
    fn all(slow: &EventSums, typical: &EventSums) -> Self {
        Self {
            slow: slow.events.clone(),
            typical: typical.events.clone(),
            samples: (slow.samples, typical.samples),
        }
    }

    /// Of one function.
    fn of(function: FunctionId, (slow, typical): (&EventSums, &EventSums)) -> Self {
        let of = |class: &EventSums| class.functions.get(&function).cloned().unwrap_or_default();
        let ((slow, slow_samples), (typical, typical_samples)) = (of(slow), of(typical));
        Self {
            slow,
            typical,
            samples: (slow_samples, typical_samples),
        }
    }

    fn merge(&mut self, other: &Self) {
        self.slow.merge(&other.slow);
        self.typical.merge(&other.typical);
        self.samples.0 += other.samples.0;
        self.samples.1 += other.samples.1;
    }
}

/// Conversion of a part to time per item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PartBasis {
    /// Its share of the time on the CPU.
    #[default]
    Sampled,
    Observed,
    /// The latency less the time on the CPU and less this part.
    Left,
    /// All of the time on the CPU.
    OnCpu,
}

impl Part {
    /// Sums parts of one kind; `None` if there are none.
    fn sum<'a>(how: PartBasis, parts: impl Iterator<Item = &'a Self>) -> Option<Self> {
        parts.fold(None, |sum, part| {
            let mut sum = sum.unwrap_or(Self {
                how,
                ..Self::default()
            });
            sum.merge(part);
            Some(sum)
        })
    }

    /// An observed part, without samples.
    fn observed(slow: &Blocks, typical: &Blocks) -> Self {
        Self {
            slow: slow.clone(),
            typical: typical.clone(),
            how: PartBasis::Observed,
            ..Self::default()
        }
    }

    fn merge(&mut self, other: &Self) {
        self.slow.merge(&other.slow);
        self.typical.merge(&other.typical);
        self.samples.0 += other.samples.0;
        self.samples.1 += other.samples.1;
        if self.further.len() < other.further.len() {
            self.further
                .resize_with(other.further.len(), EventPart::default);
        }
        let pairs = self.further.iter_mut().zip(&other.further);
        pairs.for_each(|(own, more)| own.merge(more));
    }

    /// Subtracts a part.
    pub(super) fn take_away(&mut self, part: &Self) {
        self.slow.take_away(&part.slow);
        self.typical.take_away(&part.typical);
        self.samples.0 = self.samples.0.saturating_sub(part.samples.0);
        self.samples.1 = self.samples.1.saturating_sub(part.samples.1);
    }

    /// Adds the events and samples of an item.
    pub(super) fn add(&mut self, class: Class, block: usize, (events, samples): (f64, u64)) {
        match class {
            Class::Slow => {
                self.slow.add(block, events);
                self.samples.0 += samples;
            }
            Class::Typical => {
                self.typical.add(block, events);
                self.samples.1 += samples;
            }
            Class::Between => {}
        }
    }

    /// Time per item in each class.
    fn per_item(&self, means: &(Means, Means), draw: Option<(&Draw, &Draw)>) -> (f64, f64) {
        let (slow, typical) = match draw {
            None => (self.slow.total(), self.typical.total()),
            Some((slow, typical)) => (self.slow.weighted(slow), self.typical.weighted(typical)),
        };
        (
            means.0.time(slow, self.how),
            means.1.time(typical, self.how),
        )
    }

    fn excess(&self, means: &(Means, Means), draw: Option<(&Draw, &Draw)>) -> f64 {
        let (slow, typical) = self.per_item(means, draw);
        slow - typical
    }
}

/// Means over the items of a class, or of a replicate of it.
#[derive(Clone, Copy, Debug)]
struct Means {
    items: f64,
    latency: f64,
    active: f64,
    events: f64,
}

impl Means {
    fn of(class: &ClassSums, draw: Option<(&Draw, OwnDraw)>) -> Self {
        let sum = |blocks: &Blocks| {
            draw.map_or_else(|| blocks.total(), |(draw, _)| blocks.weighted(draw))
        };
        let items = sum(&class.items);
        let own = draw.map_or(0.0, |(_, own)| own.of_item(class));
        Self {
            items,
            latency: sum(&class.latency) / items + own,
            active: sum(&class.active) / items + own,
            events: sum(&class.events),
        }
    }

    fn time(&self, sum: f64, how: PartBasis) -> f64 {
        match how {
            PartBasis::Sampled if self.events > 0.0 => sum / self.events * self.active,
            PartBasis::Sampled => 0.0,
            PartBasis::Observed => sum / self.items,
            PartBasis::Left => self.latency - self.active - sum / self.items,
            PartBasis::OnCpu => self.active,
        }
    }
}

/// By how much pebs-trace's own time is off in a replicate, in standard errors.
#[derive(Clone, Copy, Debug, Default)]
struct OwnDraw {
    marks: f64,
    sample: f64,
}

impl OwnDraw {
    fn drawn(random: &mut SplitMix64) -> Self {
        let mut unit = || (f64::from(random.below(1 << 30)) + 0.5) / f64::from(1 << 30);
        // Box and Muller, Annals of Mathematical Statistics 29 (1958): two independent normal values.
        let (radius, angle) = ((-2.0 * unit().ln()).sqrt(), std::f64::consts::TAU * unit());
        Self {
            marks: radius * angle.cos(),
            sample: radius * angle.sin(),
        }
    }

    /// Of the mean item of a class, ns.
    fn of_item(self, class: &ClassSums) -> f64 {
        let samples = class.own_samples as f64 / class.items.total();
        let error = class.own_error;
        self.marks * error.marks + self.sample * error.sample * samples
    }
}

/// Seed of the draws of own time.
const OWN_SEED: u64 = 0x6f77_6e00;

/// The classes and their replicates.
pub(super) struct Contrast {
    means: (Means, Means),
    replicates: Vec<((Means, Means), usize)>,
    draws: (Draws, Draws),
    /// Whether samples beat with the items: then parts of them have no interval.
    beats: bool,
    /// The further events, and all of them in each class.
    further: Vec<(FurtherEvent, EventPart)>,
}

impl Contrast {
    /// The same with further events.
    fn with_further((slow, typical): (&ClassSums, &ClassSums), further: &[FurtherEvent]) -> Self {
        let sums = slow.further.iter().zip(&typical.further);
        let all = sums.map(|(slow, typical)| EventPart::all(slow, typical));
        Self {
            further: further.iter().cloned().zip(all).collect(),
            ..Self::new(slow, typical)
        }
    }

    pub(super) fn new(slow: &ClassSums, typical: &ClassSums) -> Self {
        let draws = (Draws::of(&slow.items, 1), Draws::of(&typical.items, 2));
        let pairs = draws.0.0.iter().zip(&draws.1.0).enumerate();
        let mut random = SplitMix64::new(OWN_SEED);
        Self {
            means: (Means::of(slow, None), Means::of(typical, None)),
            replicates: pairs
                .map(|(at, (a, b))| {
                    let own = OwnDraw::drawn(&mut random);
                    let of = |class: &ClassSums, draw| Means::of(class, Some((draw, own)));
                    ((of(slow, a), of(typical, b)), at)
                })
                .collect(),
            draws,
            beats: slow.beats || typical.beats,
            further: Vec::new(),
        }
    }

    /// Time per slow item less that per typical item.
    pub(super) fn excess(&self, part: &Part) -> f64 {
        part.excess(&self.means, None)
    }

    fn gap(&self) -> f64 {
        self.means.0.latency - self.means.1.latency
    }

    /// Interval of a figure of a replicate.
    fn interval(
        &self,
        figure: impl Fn(&(Means, Means), (&Draw, &Draw)) -> f64,
    ) -> Option<(f64, f64)> {
        let of = |(means, at): &((Means, Means), usize)| {
            figure(means, (&self.draws.0.0[*at], &self.draws.1.0[*at]))
        };
        interval(self.replicates.iter().map(of).collect())
    }

    fn gap_interval(&self) -> Option<(f64, f64)> {
        self.interval(|means, _| means.0.latency - means.1.latency)
    }

    /// Intervals of the share of a figure in the gap, and of the figure itself; none of a sampled one if samples beat with
    /// the items.
    fn intervals(
        &self,
        is_sampled: bool,
        excess: impl Fn(&(Means, Means), (&Draw, &Draw)) -> f64,
    ) -> [Option<(f64, f64)>; 2] {
        if is_sampled && self.beats {
            return [None, None];
        }
        let share = self.interval(|means, draws| {
            let gap = means.0.latency - means.1.latency;
            // In a replicate without a gap a share is meaningless.
            if gap > 0.0 {
                excess(means, draws) / gap
            } else {
                f64::NAN
            }
        });
        [share, self.interval(excess)]
    }

    pub(super) fn rest(&self, causes: u64, parts: &[&Part]) -> OtherCauses {
        let sum = |means: &(Means, Means), draw: Option<(&Draw, &Draw)>| {
            parts
                .iter()
                .map(|part| part.excess(means, draw))
                .sum::<f64>()
        };
        let excess = sum(&self.means, None);
        let is_sampled = parts.iter().any(|it| it.how == PartBasis::Sampled);
        let figure = |means: &(Means, Means), draws: (&Draw, &Draw)| sum(means, Some(draws));
        let [share, _] = self.intervals(is_sampled, figure);
        OtherCauses {
            causes,
            share: excess / self.gap(),
            share_low: share.map(|it| it.0),
            share_high: share.map(|it| it.1),
            excess_ns: excess,
            slow_samples: parts
                .iter()
                .filter(|part| part.how == PartBasis::Sampled)
                .map(|part| part.samples.0)
                .sum(),
        }
    }

    pub(super) fn cause(
        &self,
        (kind, function, state): (CauseType, FunctionName, Option<String>),
        part: &Part,
    ) -> Cause {
        Cause {
            kind,
            function,
            state,
            figures: self.figures(part),
            further: self.events(&part.further),
            blocked: None,
            by: None,
            waited_for: None,
            paths: Vec::new(),
            other_paths: None,
            functions: Vec::new(),
        }
    }

    fn with_functions(&self, row: &CauseRow) -> Cause {
        let members = row.members.iter().take(MEMBERS);
        let members = members.map(|(id, part)| self.cause(id.clone(), part));
        Cause {
            functions: members.collect(),
            ..self.cause(row.id.clone(), &row.part)
        }
    }

    /// Figures of these parts of the further events.
    fn events(&self, parts: &[EventPart]) -> Vec<EventFigures> {
        let each = self.further.iter().zip(parts);
        each.map(|((event, all), part)| self.event(event, all, part))
            .collect()
    }

    fn event(&self, event: &FurtherEvent, all: &EventPart, part: &EventPart) -> EventFigures {
        let means = &self.means;
        let (slow_samples, typical_samples) = part.samples;
        let unknown = EventFigures {
            slow_samples,
            typical_samples,
            ..EventFigures::default()
        };
        // As many as slow items should have had, if they were like typical ones.
        let expected = typical_samples as f64 * means.0.items / means.1.items;
        if !event.is_known(slow_samples.max(expected as u64)) {
            return unknown;
        }
        let excess = self.interval(|means, (slow, typical)| {
            part.slow.weighted(slow) / means.0.items
                - part.typical.weighted(typical) / means.1.items
        });
        let slow = part.slow.total() / means.0.items;
        let typical = part.typical.total() / means.1.items;
        let share = part.slow.total() / all.slow.total();
        let known = |value: f64| Some(value).filter(|it| it.is_finite());
        EventFigures {
            slow: known(slow),
            typical: known(typical),
            share: known(share),
            excess: known(slow - typical),
            excess_low: excess.map(|it| it.0),
            excess_high: excess.map(|it| it.1),
            ..unknown
        }
    }

    /// The functions of these rows with a good part of the slow items' further events, most first.
    fn with_events<'a>(
        &self,
        rows: impl Iterator<Item = &'a CauseRow>,
        top: usize,
    ) -> Vec<WithEvents> {
        let sampled = rows.filter(|row| row.part.how == PartBasis::Sampled);
        // Too few samples of time are no reason to put events of several functions together.
        let functions = sampled.flat_map(|row| {
            let alone = row.members.is_empty().then_some((&row.id, &row.part));
            let members = row.members.iter().map(|it| (&it.0, &it.1));
            alone.into_iter().chain(members)
        });
        let mut found: Vec<WithEvents> = functions
            .map(|(id, part)| WithEvents {
                kind: id.0,
                function: id.1.clone(),
                slow_samples: part.samples.0,
                further: self.events(&part.further),
            })
            .collect();
        let share = |it: &WithEvents| {
            let shares = it.further.iter().filter_map(|it| it.share);
            shares.fold(0.0, f64::max)
        };
        found.retain(|it| share(it) >= LEAST_SHARE);
        // Stable, so that equal ones keep the order of their keys.
        found.sort_by(|a, b| share(b).total_cmp(&share(a)));
        found.truncate(top);
        found
    }

    /// Figures of a part: slow items against typical ones.
    pub(super) fn figures(&self, part: &Part) -> Figures {
        let (slow_ns, typical_ns) = part.per_item(&self.means, None);
        let is_sampled = part.how == PartBasis::Sampled;
        let figure =
            |means: &(Means, Means), draws: (&Draw, &Draw)| part.excess(means, Some(draws));
        let [share, excess] = self.intervals(is_sampled, figure);
        Figures {
            share: (slow_ns - typical_ns) / self.gap(),
            share_low: share.map(|it| it.0),
            share_high: share.map(|it| it.1),
            excess_ns: slow_ns - typical_ns,
            excess_low_ns: excess.map(|it| it.0),
            excess_high_ns: excess.map(|it| it.1),
            slow_ns,
            typical_ns,
            slow_samples: part.samples.0,
            typical_samples: part.samples.1,
        }
    }
}

/// Whether a part has enough samples in slow items, or enough in typical ones that slow items should have had as many.
/// Were only the larger count decisive, chance would decide by its sign which parts are listed.
pub(super) fn enough(
    (slow, typical): (&ClassSums, &ClassSums),
    (in_slow, in_typical): (u64, u64),
) -> bool {
    let expected = in_typical as f64 * (slow.items.total() / typical.items.total());
    slow.samples >= MIN_SAMPLES && expected.max(in_slow as f64) >= MIN_SAMPLES as f64
}

/// Identity of a part.
type CauseId = (CauseType, FunctionName, Option<String>);

/// A row: a part with its name, and its members, if known.
#[derive(Clone, Debug)]
struct CauseRow {
    id: CauseId,
    part: Part,
    members: Vec<(CauseId, Part)>,
}

impl CauseRow {
    const fn one(id: CauseId, part: Part) -> Self {
        Self {
            id,
            part,
            members: Vec::new(),
        }
    }

    fn several(module: FunctionName, members: Vec<(CauseId, Part)>) -> Self {
        let parts = members.iter().map(|(_, part)| part);
        Self {
            part: Part::sum(PartBasis::Sampled, parts).unwrap_or_default(),
            id: (CauseType::Module, module, None),
            members,
        }
    }

    fn is_function(&self) -> bool {
        self.id.0 == CauseType::Function
    }

    /// Whether samples of time saw it.
    fn has_samples(&self) -> bool {
        self.part.samples != (0, 0)
    }
}

/// The parts of two classes that enough is known of, and the rest of the functions; those that only have further events
/// as well.
fn parts(
    slow: &ClassSums,
    typical: &ClassSums,
    naming: &Naming<'_>,
) -> (Vec<CauseRow>, Vec<CauseRow>) {
    let of_time = slow.keys.keys().chain(typical.keys.keys()).copied();
    let further = slow.further.iter().chain(&typical.further);
    let further = further.flat_map(|it| it.functions.keys());
    let mut keys: Vec<Key> = of_time
        .chain(further.map(|id| Key::Function(*id)))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let enough = |part: &Part| enough((slow, typical), part.samples);
    let (mut listed, mut modules, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for key in keys {
        let of = |class: &ClassSums| class.keys.get(&key).cloned().unwrap_or_default();
        let ((slow_sum, slow_samples), (typical_sum, typical_samples)) = (of(slow), of(typical));
        let sampled = matches!(key, Key::Function(_));
        let sums = slow.further.iter().zip(&typical.further);
        let further = match key {
            Key::Function(id) => sums.map(|it| EventPart::of(id, it)).collect(),
            Key::Wait(_) | Key::Handover(_) | Key::Others(_) => Vec::new(),
        };
        let part = Part {
            further,
            slow: slow_sum,
            typical: typical_sum,
            samples: (slow_samples, typical_samples),
            how: if sampled {
                PartBasis::Sampled
            } else {
                PartBasis::Observed
            },
        };
        if !sampled || enough(&part) {
            listed.push(CauseRow::one(naming.of(key), part));
            continue;
        }
        if part.samples == (0, 0) {
            unknown.push(CauseRow::one(naming.of(key), part));
            continue;
        }
        add(
            &mut modules,
            naming.module(key),
            vec![(naming.of(key), part)],
        );
    }
    // Entries to the kernel with too few samples are merged into the kernel.
    let few = |it: &mut CauseRow| it.id.1.kernel_entry.is_some() && !enough(&it.part);
    for it in modules.extract_if(.., few).collect::<Vec<_>>() {
        add(&mut modules, it.id.1.without_entry(), it.members);
    }
    for module in modules {
        if enough(&module.part) {
            listed.push(module);
        } else {
            let members = module.members.into_iter();
            unknown.extend(members.map(|(id, part)| CauseRow::one(id, part)));
        }
    }
    (listed, unknown)
}

/// Adds functions to the row of their module.
fn add(modules: &mut Vec<CauseRow>, module: FunctionName, mut members: Vec<(CauseId, Part)>) {
    match modules.iter_mut().find(|it| it.id.1 == module) {
        Some(it) => {
            members.iter().for_each(|(_, part)| it.part.merge(part));
            it.members.append(&mut members);
        }
        None => modules.push(CauseRow::several(module, members)),
    }
}

/// Puts those functions of the kernel, and of each module without a probe, together that are one cause.
fn together(
    parts: Vec<CauseRow>,
    naming: &Naming<'_>,
    excess: impl Fn(&Part) -> f64,
) -> Vec<CauseRow> {
    let mut modules: Vec<FunctionName> = Vec::new();
    for row in parts.iter().filter(|row| row.is_function()) {
        let module = row.id.1.module_only();
        if is_foreign(naming.probes, &module) && !modules.contains(&module) {
            modules.push(module);
        }
    }
    let mut rows = parts;
    for module in modules {
        let is_of = |row: &CauseRow| {
            matches!(row.id.0, CauseType::Function | CauseType::Module)
                && row.id.1.module_only() == module
        };
        let (of, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_of);
        rows = others;
        let sum: f64 = of.iter().map(|row| excess(&row.part)).sum();
        let functions = || of.iter().filter(|row| row.is_function());
        let largest = functions().map(|row| excess(&row.part)).fold(0.0, f64::max);
        let is_apart = functions().count() < 2 || largest >= ALONE * sum;
        if is_apart && !module.is_uncalled() {
            rows.extend(of);
            continue;
        }
        let members = of.into_iter().flat_map(|row| match row.is_function() {
            true => vec![(row.id, row.part)],
            false => row.members,
        });
        rows.push(CauseRow::several(module, members.collect()));
    }
    rows
}

/// Divides the gap between two classes, into the `top` largest causes and the rest; `None` if there is no gap, or one
/// of the classes is empty.
///
/// Cost: O(replicates x blocks x causes listed).
pub(super) fn gap(
    (slow, typical): (&ClassSums, &ClassSums),
    further: &[FurtherEvent],
    naming: &Naming<'_>,
    top: usize,
) -> Option<Gap> {
    let contrast = Contrast::with_further((slow, typical), further);
    let gap_ns = contrast.gap();
    // Not a number if a class is empty.
    if gap_ns.is_nan() || gap_ns <= 0.0 {
        return None;
    }
    let (all_rows, unknown) = parts(slow, typical, naming);
    let too_few = unknown.iter().filter(|it| it.has_samples());
    let share = |part: &Part| part.excess(&contrast.means, None) / gap_ns;
    let mut all_rows = together(all_rows, naming, share);
    for row in &mut all_rows {
        row.members
            .sort_by(|a, b| share(&b.1).total_cmp(&share(&a.1)));
    }
    let mut elsewhere = Part {
        how: PartBasis::Left,
        ..Part::default()
    };
    all_rows
        .iter()
        .filter(|it| it.part.how == PartBasis::Observed)
        .for_each(|it| elsewhere.merge(&it.part));
    elsewhere.samples = (0, 0);
    let state = naming.states.contains(IDLE).then(|| OTHER_ITEMS.to_owned());
    all_rows.push(CauseRow::one(
        (CauseType::Elsewhere, FunctionName::default(), state),
        elsewhere,
    ));
    let mut rows: Vec<(&CauseRow, f64)> =
        all_rows.iter().map(|row| (row, share(&row.part))).collect();
    // Stable, so that equal ones keep the order of their keys.
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    // A negative share is listed if it is at least a tenth of the gap.
    let counts = |share: f64| share >= LEAST_SHARE || share <= -0.1;
    let mut left = top;
    let (shown, hidden): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, share)| {
        let fits = counts(*share) && left > 0;
        left -= usize::from(fits);
        fits
    });
    let causes: Vec<Cause> = shown
        .iter()
        .map(|(row, _)| contrast.with_functions(row))
        .collect();
    let hidden: Vec<&CauseRow> = hidden.into_iter().map(|(row, _)| row).collect();
    let with_events = hidden.iter().copied().chain(&unknown);
    let with_events = contrast.with_events(with_events, top);
    let lumps = [PartBasis::Sampled, PartBasis::Observed, PartBasis::Left].map(|how| {
        let of_how = hidden.iter().filter(|row| row.part.how == how);
        Part::sum(how, of_how.map(|row| &row.part))
    });
    let lumps: Vec<&Part> = lumps.iter().flatten().collect();
    let hidden = hidden.iter().filter(|row| row.id.0 != CauseType::Elsewhere);
    let others = contrast.rest(hidden.count() as u64, &lumps);
    let sampled = |wanted: &dyn Fn(&FunctionName) -> bool| {
        let found = all_rows
            .iter()
            .filter(|it| it.part.how == PartBasis::Sampled && wanted(&it.id.1));
        let found: Vec<&Part> = found.map(|it| &it.part).collect();
        let count = found.len() as u64;
        (
            Part::sum(PartBasis::Sampled, found.into_iter()).unwrap_or_default(),
            count,
        )
    };
    let kernel = sampled(&|name| name.kernel);
    let (all_sampled, _) = sampled(&|_| true);
    let on_cpu = |means: &(Means, Means), draw: Option<(&Draw, &Draw)>| {
        means.0.active - means.1.active - all_sampled.excess(means, draw)
    };
    let unexplained_ns = on_cpu(&contrast.means, None);
    let [unexplained, _] = contrast.intervals(true, |means, draws| on_cpu(means, Some(draws)));
    let gap_interval = contrast.gap_interval();
    Some(Gap {
        gap_ns,
        gap_low_ns: gap_interval.map(|it| it.0),
        gap_high_ns: gap_interval.map(|it| it.1),
        causes,
        others,
        unexplained: OtherCauses {
            causes: too_few.clone().count() as u64,
            share: unexplained_ns / gap_ns,
            share_low: unexplained.map(|it| it.0),
            share_high: unexplained.map(|it| it.1),
            excess_ns: unexplained_ns,
            slow_samples: too_few.map(|it| it.part.samples.0).sum(),
        },
        kernel: contrast.rest(kernel.1, &[&kernel.0]),
        with_events,
    })
}

/// The further events of all functions in both classes.
pub(super) fn further(
    classes: (&ClassSums, &ClassSums),
    further: &[FurtherEvent],
) -> Vec<EventFigures> {
    let contrast = Contrast::with_further(classes, further);
    let all = contrast.further.iter();
    all.map(|(event, all)| contrast.event(event, all, all))
        .collect()
}

/// Time on the CPU and off it, all of either; `None` if the slow ones take no longer.
pub(super) fn on_and_off(slow: &ClassSums, typical: &ClassSums) -> Option<[Figures; 2]> {
    let contrast = Contrast::new(slow, typical);
    if contrast.gap().is_nan() || contrast.gap() <= 0.0 {
        return None;
    }
    let parts = [PartBasis::OnCpu, PartBasis::Left].map(|how| Part {
        how,
        ..Part::default()
    });
    Some(parts.map(|part| contrast.figures(&part)))
}

/// Mean counts in both classes; empty if not recorded.
pub(super) fn counts(
    slow: &ClassSums,
    typical: &ClassSums,
    all: &[[f64; 6]; 3],
    known: [bool; 3],
) -> Vec<CountRow> {
    let contrast = Contrast::new(slow, typical);
    let (means, mut rows) = (contrast.means, Vec::new());
    for (at, count) in COUNTS.into_iter().enumerate().filter(|(at, _)| known[*at]) {
        let part = Part::observed(&slow.counts[at], &typical.counts[at]);
        let (in_slow, in_typical) = part.per_item(&means, None);
        if !in_slow.is_finite() || !in_typical.is_finite() {
            continue;
        }
        let excess = contrast.interval(|means, draws| part.excess(means, Some(draws)));
        rows.push(CountRow {
            count,
            slow: in_slow,
            typical: in_typical,
            excess: in_slow - in_typical,
            excess_low: excess.map(|it| it.0),
            excess_high: excess.map(|it| it.1),
            variance_part: correlation_squared(&all[at]),
        });
    }
    rows
}

/// Interrupt, softirq and page-fault time in both classes, the largest share of the gap first; kinds not recorded are
/// left out.
pub(super) fn interference(sums: &GroupSums) -> Vec<InterferenceRow> {
    let GroupSums { slow, typical, all } = sums;
    let contrast = Contrast::new(slow, typical);
    let mut rows = Vec::new();
    for (at, what) in WHAT.into_iter().enumerate() {
        let is_known = all.interference[at][0] > 0.0;
        let part = Part::observed(&slow.interference[at], &typical.interference[at]);
        let (slow_ns, typical_ns) = part.per_item(&contrast.means, None);
        let gap = contrast.gap();
        if !is_known || gap <= 0.0 || !slow_ns.is_finite() || !typical_ns.is_finite() {
            continue;
        }
        let figure =
            |means: &(Means, Means), draws: (&Draw, &Draw)| part.excess(means, Some(draws));
        let [share, excess] = contrast.intervals(false, figure);
        rows.push(InterferenceRow {
            what,
            slow_ns,
            typical_ns,
            excess_ns: slow_ns - typical_ns,
            excess_low_ns: excess.map(|it| it.0),
            excess_high_ns: excess.map(|it| it.1),
            share: (slow_ns - typical_ns) / gap,
            share_low: share.map(|it| it.0),
            share_high: share.map(|it| it.1),
            variance_part: correlation_squared(&all.interference[at]),
        });
    }
    rows.sort_by(|a, b| b.share.total_cmp(&a.share));
    rows
}

/// r² from n and the sums of x, x², xy, y, y²; `None` if one does not vary.
fn correlation_squared([n, x, xx, xy, y, yy]: &[f64; 6]) -> Option<f64> {
    let covariance = xy - x * y / n;
    let (of_x, of_y) = (xx - x * x / n, yy - y * y / n);
    (of_x > 0.0 && of_y > 0.0).then(|| covariance * covariance / (of_x * of_y))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fixtures;
    use crate::store::run::EntryClass;

    /// A program that runs by a symbolic link, as Debian's redis-server does, is not a library.
    #[test]
    fn program_of_another_name() {
        let mut info = fixtures::info(&["redis-server:processCommand"]);
        info.probes[0].sites = vec![SiteInfo {
            path: "/usr/bin/redis-check-rdb".to_owned(),
            place: "processCommand".to_owned(),
            file_offset: 0,
            role: "begin".to_owned(),
            kind: "uprobe".to_owned(),
            instruction: String::new(),
            class: EntryClass::Emulated,
        }];
        let foreign = |module: &str| {
            let module = FunctionName {
                module: Some(module.to_owned()),
                ..FunctionName::default()
            };
            is_foreign(&info.probes, &module)
        };
        assert!(!foreign("/usr/bin/redis-server"));
        assert!(!foreign("/usr/bin/redis-check-rdb"));
        assert!(foreign("/usr/lib/x86_64-linux-gnu/libc.so.6"));
    }
}
