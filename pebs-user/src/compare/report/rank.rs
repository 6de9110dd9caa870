//! From sums to the rows of a report.

use rustc_hash::FxHashMap;

use super::detail::Drafts;
use super::model::{
    Cell, EventCells, Member, ProbeReport, Row, SlowClass, SlowVisit, StateSum, TimeSplit,
    TypicalClass, TypicalRule, VisitWait,
};
use super::section::{ClassSums, Section, SlowDraft};
use crate::compare::classes::{RankBy, SlowBy, never_ended};
use crate::compare::condensed::Condensed;
use crate::compare::further::FurtherEvent;
use crate::compare::names::{FunctionName, Names};
use crate::compare::pool::{MIN_SAMPLES, OwnTimes, Pool, Pooled, PooledFunction, Quantity};
use crate::compare::slots::Slots;
use crate::compare::stats::{Stats, other_waits};
use crate::compare::waits::{ELSEWHERE, OTHER_ITEMS, States, WaitKey, WaitSum, is_anywhere};
use crate::store::run::RunInfo;
use crate::units::{CountUnit, FunctionId};

/// Least part of the whole of a listed row.
const LEAST_PART: f64 = 0.005;

/// Functions listed of a row that is several.
const MEMBERS: usize = 6;

/// Functions and waits listed for one visit.
const VISIT_TOP: usize = 10;

/// Turns sums into rows.
pub(super) struct Ranking<'a> {
    pub info: &'a RunInfo,
    /// Rows of a list.
    pub top: usize,
    /// Quantity of the report's event.
    pub quantity: Quantity,
    pub further: &'a [FurtherEvent],
    /// Names of states.
    pub states: &'a States,
    /// Names of the functions of slow visits.
    pub names: &'a Names,
    /// Rule for slow visits.
    pub slow: SlowBy,
}

/// A class with its resamples drawn.
struct Class {
    figures: Figures,
    /// Of each further event.
    further: Vec<Figures>,
    waits: FxHashMap<WaitKey, WaitSum>,
    visits: f64,
    /// Mean duration of the visits pooled.
    mean_ns: f64,
    /// Mean time on the CPU of the same.
    oncpu_ns: f64,
}

/// Times of functions, from rows of visits or from sums over visits.
enum Figures {
    Pooled(Pooled),
    Condensed(Condensed),
}

impl Figures {
    fn function(&self, function: FunctionId, quantity: Quantity) -> Option<PooledFunction> {
        match self {
            Self::Pooled(pooled) => pooled.function(function),
            Self::Condensed(sums) => sums.function(function, quantity),
        }
    }

    fn per_item(&self, function: FunctionId, quantity: Quantity) -> Option<f64> {
        match self {
            Self::Pooled(pooled) => pooled.per_item(function),
            Self::Condensed(sums) => sums.per_item(function, quantity),
        }
    }

    fn events(&self) -> f64 {
        match self {
            Self::Pooled(pooled) => pooled.events(),
            Self::Condensed(sums) => sums.events(),
        }
    }

    fn events_of(&self, function: FunctionId) -> f64 {
        match self {
            Self::Pooled(pooled) => pooled.events_of(function),
            Self::Condensed(sums) => sums.events_of(function),
        }
    }

    fn join(&mut self, functions: &[FunctionId], joined: FunctionId) {
        match self {
            Self::Pooled(pooled) => pooled.join(functions, joined),
            Self::Condensed(sums) => sums.join(functions, joined),
        }
    }

    fn samples(&self, function: FunctionId) -> u64 {
        match self {
            Self::Pooled(pooled) => pooled.samples(function),
            Self::Condensed(sums) => sums.samples_of(function),
        }
    }

    fn functions(&self) -> Vec<FunctionId> {
        match self {
            Self::Pooled(pooled) => pooled.functions().map(|(function, _)| function).collect(),
            Self::Condensed(sums) => sums.functions().collect(),
        }
    }
}

impl Class {
    fn new(sums: ClassSums, quantity: Quantity) -> Self {
        let pooled = sums.pool.close(quantity);
        Self {
            oncpu_ns: pooled.active_ns() / sums.pooled as f64,
            figures: Figures::Pooled(pooled),
            further: further(sums.further),
            waits: sums.waits,
            visits: sums.pooled as f64,
            mean_ns: sums.pooled_duration_ns / sums.pooled as f64,
        }
    }

    /// All visits, and those that were not kept, from sums over all and the visits kept.
    fn condensed(
        (stats, further_stats): (Stats, Vec<Condensed>),
        kept: ClassSums,
        quantity: Quantity,
    ) -> (Self, Self) {
        let pooled = kept.pool.close(quantity);
        let all = stats.functions;
        let rest = all.without(kept.pooled, pooled.active_ns(), pooled.functions());
        let kept_further = kept.further.into_iter();
        let kept_further = kept_further.map(|it| it.close(Quantity::Events));
        let rest_further = further_stats.iter().zip(kept_further);
        let rest_further = rest_further
            .map(|(all, of_kept)| all.without(kept.pooled, 0.0, of_kept.functions()))
            .collect();
        let class =
            |(figures, further): (Condensed, Vec<Condensed>), waits, duration_ns: f64| Self {
                further: further.into_iter().map(Figures::Condensed).collect(),
                visits: figures.items as f64,
                mean_ns: duration_ns / figures.items as f64,
                oncpu_ns: figures.active_ns / figures.items as f64,
                figures: Figures::Condensed(figures),
                waits,
            };
        let rest_ns = stats.duration_ns - kept.pooled_duration_ns;
        let rest_waits = other_waits(&stats.waits, &kept.waits);
        (
            class((all, further_stats), stats.waits, stats.duration_ns),
            class((rest, rest_further), rest_waits, rest_ns),
        )
    }

    /// Merges all waits of a state into one where the function is chance.
    fn join_functions(&mut self, states: &States) {
        let waits = std::mem::take(&mut self.waits);
        for (mut key, sum) in waits {
            if is_anywhere(states.name(key.state)) {
                key.function = None;
            }
            let joined = self.waits.entry(key).or_default();
            joined.ns += sum.ns;
            joined.waits += sum.waits;
        }
    }

    fn function(&self, function: FunctionId, quantity: Quantity) -> Cell {
        cell(
            self.figures.function(function, quantity),
            quantity,
            self.mean_ns,
        )
    }

    /// Events of a further event in a function.
    fn events(&self, function: FunctionId, (at, event): (usize, &FurtherEvent)) -> Cell {
        let Some(figures) = self.further.get(at) else {
            return Cell::default();
        };
        let samples = figures.samples(function);
        let empty = Cell {
            samples,
            ..Cell::default()
        };
        if !event.is_known(samples) || self.visits == 0.0 {
            return empty;
        }
        let found = figures.function(function, Quantity::Events);
        found.map_or(
            Cell {
                per_visit: Some(0.0),
                share: (figures.events() > 0.0).then_some(0.0),
                ..empty
            },
            |it| counted(it, it.share),
        )
    }

    /// Observed time per visit, possibly 0. `None` if the class is empty.
    fn wait(&self, key: WaitKey) -> Cell {
        let sum = self.waits.get(&key).copied().unwrap_or_default();
        let per_visit = sum.ns as f64 / self.visits;
        let share = per_visit / self.mean_ns;
        Cell {
            samples: sum.waits,
            per_visit: per_visit.is_finite().then_some(per_visit),
            low: None,
            high: None,
            share: share.is_finite().then_some(share),
        }
    }

    /// Time per visit that is neither on the CPU nor waiting.
    fn elsewhere(&self) -> Cell {
        let waits: i64 = self.waits.values().map(|it| it.ns).sum();
        let off = waits as f64 / self.visits;
        let per_visit = Some(self.mean_ns - self.oncpu_ns - off).filter(|it| it.is_finite());
        // Negative values are rounding errors of clocks.
        let per_visit = per_visit.map(|it| it.max(0.0));
        let share = per_visit.map(|it| it / self.mean_ns);
        Cell {
            per_visit,
            share: share.filter(|it| it.is_finite()),
            ..Cell::default()
        }
    }

    /// Sum of all rows in this row's unit, per visit; 0 if unknown.
    fn whole(&self, key: Key, quantity: Quantity) -> f64 {
        let whole = match (key, quantity) {
            (Key::Function(_), Quantity::Events) => self.figures.events() / self.visits,
            _ => self.mean_ns,
        };
        if whole.is_finite() { whole } else { 0.0 }
    }

    /// Events of a further event in a function, and in all, per visit; 0 if unknown.
    fn events_each(&self, at: usize, function: FunctionId) -> (f64, f64) {
        let each = self
            .further
            .get(at)
            .map_or((0.0, 0.0), |it| (it.events_of(function), it.events()));
        match self.visits > 0.0 {
            true => (each.0 / self.visits, each.1 / self.visits),
            false => (0.0, 0.0),
        }
    }

    /// Sort key of lists; 0 if unknown.
    fn weight(&self, key: Key, quantity: Quantity) -> f64 {
        match key {
            Key::Function(function) => self.figures.per_item(function, quantity).unwrap_or(0.0),
            Key::Wait(key) => self.wait(key).per_visit.unwrap_or(0.0),
            Key::Elsewhere => self.elsewhere().per_visit.unwrap_or(0.0),
        }
    }
}

/// Cell of a function in visits of this mean duration; `found` is `None` if no sample hit it.
pub(super) fn cell(found: Option<PooledFunction>, quantity: Quantity, mean_ns: f64) -> Cell {
    let Some(found) = found else {
        return Cell::default();
    };
    let samples = found.samples;
    if samples < MIN_SAMPLES {
        return Cell {
            samples,
            ..Cell::default()
        };
    }
    let share = match quantity {
        Quantity::Time => found.per_item / mean_ns,
        Quantity::Events => found.share,
    };
    counted(found, share)
}

fn counted(found: PooledFunction, share: f64) -> Cell {
    Cell {
        samples: found.samples,
        per_visit: Some(found.per_item),
        low: found.interval.map(|(low, _)| low),
        high: found.interval.map(|(_, high)| high),
        share: share.is_finite().then_some(share),
    }
}

fn further(pools: Vec<Pool>) -> Vec<Figures> {
    let closed = pools.into_iter().map(|it| it.close(Quantity::Events));
    closed.map(Figures::Pooled).collect()
}

/// Subject of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Function(FunctionId),
    Wait(WaitKey),
    /// Time of the thread for other visits.
    Elsewhere,
}

/// The classes of a probe.
struct Classes {
    all: Class,
    slow: Class,
    typical: Class,
}

impl Ranking<'_> {
    /// One section for each probe; functions have no names yet.
    pub(super) fn probes(&self, sections: Slots<Section>, mut drafts: Drafts) -> Vec<ProbeReport> {
        let sections = sections.into_iter();
        sections
            .map(|(probe, section)| self.probe(probe, section, &mut drafts))
            .collect()
    }

    fn probe(&self, probe_id: u16, section: Section, drafts: &mut Drafts) -> ProbeReport {
        let spec = self.info.probes.iter().find(|probe| probe.id.0 == probe_id);
        let time = self.time_split(&section);
        let (slow, typical) = (self.slow_class(&section), typical_class(&section));
        let interference = section.interference();
        let counted = section.counted.rows(&self.info.counted);
        let own = self.own_times(&section);
        let Section {
            tally,
            all,
            typical: typical_sums,
            slow: slow_sums,
            slowest_ids,
            stats,
            further_stats,
            classes: summary,
            ..
        } = section;
        let (all, typical_class) = match stats {
            Some(stats) => Class::condensed((stats, further_stats), all, self.quantity),
            None => (
                Class::new(all, self.quantity),
                Class::new(typical_sums, self.quantity),
            ),
        };
        let mut classes = Classes {
            all,
            slow: Class::new(slow_sums, self.quantity),
            typical: typical_class,
        };
        for class in [&mut classes.all, &mut classes.slow, &mut classes.typical] {
            class.join_functions(self.states);
        }
        let never_ended = never_ended(spec.map(|it| &it.spec), tally.visits, tally.open);
        let known = never_ended.is_none();
        let slow = slow.filter(|_| known);
        let slowest = slowest_ids.iter().filter_map(|id| drafts.0.remove(id));
        // First, as functions are joined for the other.
        let largest = self.largest(&classes);
        let (spread, spread_unexplained_ns) = match slow {
            Some(_) => self.spread(&mut classes),
            None => (Vec::new(), None),
        };
        ProbeReport {
            batches: None,
            mix: None,
            probe_id,
            spec: spec.map(|probe| probe.spec.clone()),
            items: tally.items.len(),
            visits: tally.visits,
            counted: tally.counted,
            left_out_loss: tally.loss,
            left_out_open: tally.open,
            never_ended,
            flags: tally.flags(),
            samples: tally.samples,
            by: self.slow.by,
            duration: summary.map(|it| it.quantiles),
            time,
            largest,
            spread,
            spread_unexplained_ns,
            slow,
            slow_on_cpu: None,
            slow_for_kind: Vec::new(),
            kinds_part: None,
            typical: typical.filter(|_| known),
            own,
            interference,
            counted_events: counted,
            slowest: slowest.map(|draft| self.visit(draft)).collect(),
        }
    }

    /// pebs-trace's mean own time by class; `None` if unknown.
    fn own_times(&self, section: &Section) -> Option<OwnTimes> {
        let mean = |sums: &ClassSums| (sums.visits > 0).then(|| sums.own_ns / sums.visits as f64);
        self.info.own_time.as_ref()?;
        Some(OwnTimes {
            all_ns: mean(&section.all)?,
            slow_ns: mean(&section.slow),
            typical_ns: mean(&section.typical),
        })
    }

    fn time_split(&self, section: &Section) -> Option<TimeSplit> {
        let (waits, visits, duration_ns) = match &section.stats {
            Some(stats) => (&stats.waits, stats.functions.items, stats.duration_ns),
            None => {
                let all = &section.all;
                (&all.waits, all.pooled, all.pooled_duration_ns)
            }
        };
        if !self.info.switches || visits == 0 || self.slow.by == RankBy::CpuTime {
            return None;
        }
        let oncpu_ns = match &section.stats {
            Some(stats) => stats.functions.active_ns,
            None => section.oncpu_ns,
        };
        let mut states: Vec<StateSum> = Vec::new();
        for (key, sum) in waits {
            let name = self.states.name(key.state);
            let at = states.iter().position(|it| it.state == name);
            let at = at.unwrap_or_else(|| {
                states.push(StateSum {
                    state: name.to_owned(),
                    ns: 0.0,
                    waits: 0,
                });
                states.len() - 1
            });
            states[at].ns += sum.ns as f64;
            states[at].waits += sum.waits;
        }
        states.sort_by(|a, b| b.ns.total_cmp(&a.ns).then_with(|| a.state.cmp(&b.state)));
        let off: f64 = states.iter().map(|state| state.ns).sum();
        Some(TimeSplit {
            visits,
            duration_ns,
            oncpu_ns,
            waits: states,
            elsewhere_ns: (duration_ns - oncpu_ns - off).max(0.0),
        })
    }

    fn slow_class(&self, section: &Section) -> Option<SlowClass> {
        let summary = section.classes.as_ref()?;
        let (limit, sums) = (summary.limit.as_ref()?, &section.slow);
        let (from_ns, to_ns) = summary.slow_range_ns?;
        let without_details = section.slow_condensed;
        let mean_ns = if sums.pooled > 0 {
            sums.pooled_duration_ns / sums.pooled as f64
        } else {
            sums.duration_ns / sums.visits as f64
        };
        Some(SlowClass {
            without_details,
            rule: limit.rule.clone(),
            visits: sums.visits,
            from_ns,
            to_ns,
            others_up_to_ns: summary.others_up_to_ns,
            between: limit.between,
            mean_ns,
            shared: section
                .shared_slow
                .apart_from(&section.shared_others, &self.info.columns),
        })
    }

    /// Rows by the difference of slow visits to typical ones, and that on the CPU in functions with too few
    /// samples each.
    fn spread(&self, classes: &mut Classes) -> (Vec<Row>, Option<f64>) {
        let modules = self.join_few(classes);
        let Classes { slow, typical, .. } = &*classes;
        let functions = slow.figures.functions().into_iter();
        let known = functions.filter(|id| slow.function(*id, self.quantity).per_visit.is_some());
        let more = known.map(|id| {
            let of = |class: &Class| class.weight(Key::Function(id), self.quantity);
            of(slow) - of(typical)
        });
        let unexplained = slow.oncpu_ns - typical.oncpu_ns - more.sum::<f64>();
        let is_known = self.quantity == Quantity::Time && unexplained.is_finite();
        let unexplained = Some(unexplained).filter(|_| is_known);
        let weigh = |key| {
            let whole = slow.whole(key, self.quantity) - typical.whole(key, self.quantity);
            (
                slow.weight(key, self.quantity) - typical.weight(key, self.quantity),
                whole,
            )
        };
        let mut rows = self.rows(classes, weigh, |at, id| {
            let [of_slow, of_typical] = [slow, typical].map(|it| it.events_each(at, id));
            (of_slow.0 - of_typical.0, of_slow.1)
        });
        for row in &mut rows {
            let joined = modules
                .iter()
                .find(|(id, ..)| row.function.function_id == Some(id.0));
            if let Some((_, module, members)) = joined {
                row.function = module.clone();
                row.functions.clone_from(members);
            }
        }
        (rows, unexplained)
    }

    /// Joins the functions of each module that have too few samples each, and enough together, as `explain` does.
    /// Returns the numbers that they have then, with the largest of them.
    fn join_few(&self, classes: &mut Classes) -> Vec<(FunctionId, FunctionName, Vec<Member>)> {
        let Classes { slow, typical, .. } = &*classes;
        let in_slow = |id: &FunctionId| slow.figures.samples(*id);
        // Slow visits should have had as many, if they were like typical ones.
        let expected = |id: &FunctionId| {
            let typical_samples = typical.figures.samples(*id) as f64;
            typical_samples * slow.visits / typical.visits
        };
        let is_few =
            |id: &FunctionId| in_slow(id) < MIN_SAMPLES && expected(id) < MIN_SAMPLES as f64;
        let mut few = slow.figures.functions();
        few.retain(is_few);
        few.sort_unstable();
        let mut modules: Vec<(FunctionName, Vec<FunctionId>)> = Vec::new();
        for id in few {
            let module = self.names.get(Some(id.0)).module_only();
            add(&mut modules, module, &[id]);
        }
        let enough = |ids: &[FunctionId]| ids.iter().map(in_slow).sum::<u64>() >= MIN_SAMPLES;
        let entries = modules.extract_if(.., |it| it.0.kernel && !enough(&it.1));
        for (module, ids) in entries.collect::<Vec<_>>() {
            add(&mut modules, module.without_entry(), &ids);
        }
        modules.retain(|it| enough(&it.1) && it.0.is_module());
        let numbers = (0..).map(|n| FunctionId(u32::MAX - n));
        let joined = numbers.zip(modules).map(|(joined, (module, ids))| {
            let members = self.members(classes, &ids);
            for class in [&mut classes.all, &mut classes.slow, &mut classes.typical] {
                class.figures.join(&ids, joined);
                let further = class.further.iter_mut();
                further.for_each(|it| it.join(&ids, joined));
            }
            (joined, module, members)
        });
        joined.collect()
    }

    /// The functions, of these, that slow visits have more of, the largest first.
    fn members(&self, classes: &Classes, ids: &[FunctionId]) -> Vec<Member> {
        let Classes { slow, typical, .. } = classes;
        let members = ids.iter().map(|id| {
            let per_visit = |of: &Class| of.figures.per_item(*id, self.quantity).unwrap_or(0.0);
            Member {
                function: self.names.get(Some(id.0)),
                slow_samples: slow.figures.samples(*id),
                difference: per_visit(slow) - per_visit(typical),
            }
        });
        let mut members: Vec<Member> = members.filter(|it| it.difference > 0.0).collect();
        // Stable, and numbers are ascending.
        members.sort_by(|a, b| b.difference.total_cmp(&a.difference));
        members.truncate(MEMBERS);
        members
    }

    fn largest(&self, classes: &Classes) -> Vec<Row> {
        let all = &classes.all;
        let weigh = |key| {
            (
                all.weight(key, self.quantity),
                all.whole(key, self.quantity),
            )
        };
        self.rows(classes, weigh, |at, id| all.events_each(at, id))
    }

    /// The rows of the largest weights, `weigh` giving the weight and the whole that it is a part
    /// of, and then those of further events, by `weigh_events`. Waits come last if functions are not in ns.
    fn rows(
        &self,
        classes: &Classes,
        weigh: impl Fn(Key) -> (f64, f64),
        weigh_events: impl Fn(usize, FunctionId) -> (f64, f64),
    ) -> Vec<Row> {
        let functions = classes.all.figures.functions();
        let functions = functions.into_iter().map(Key::Function);
        let waits = classes.all.waits.keys().map(|key| Key::Wait(*key));
        // Without switches it is not known when a thread ran.
        let elsewhere = self.info.switches.then_some(Key::Elsewhere);
        let mut keys: Vec<(f64, Key)> = functions
            .chain(waits)
            .chain(elsewhere)
            .filter_map(|key| {
                let (weight, whole) = weigh(key);
                (weight > 0.0 && weight >= LEAST_PART * whole).then_some((weight, key))
            })
            .collect();
        let apart = |key: Key| self.quantity != Quantity::Time && !matches!(key, Key::Function(_));
        keys.sort_by(|(a, key_a), (b, key_b)| {
            let order = apart(*key_a).cmp(&apart(*key_b));
            order.then(b.total_cmp(a)).then(key_a.cmp(key_b))
        });
        keys.truncate(self.top);
        let mut keys: Vec<Key> = keys.into_iter().map(|(_, key)| key).collect();
        for (at, figures) in classes.all.further.iter().enumerate() {
            let functions = figures.functions().into_iter();
            let functions = functions.filter(|id| self.further[at].is_known(figures.samples(*id)));
            let more = functions.filter_map(|id| {
                let (weight, whole) = weigh_events(at, id);
                let is_large = weight > 0.0 && weight >= LEAST_PART * whole;
                (is_large && !keys.contains(&Key::Function(id))).then_some((weight, id))
            });
            let mut more: Vec<(f64, FunctionId)> = more.collect();
            more.sort_by(|(a, id_a), (b, id_b)| b.total_cmp(a).then(id_a.cmp(id_b)));
            more.truncate(self.top);
            keys.extend(more.into_iter().map(|(_, id)| Key::Function(id)));
        }
        let rows = keys.into_iter();
        rows.map(|key| self.row(classes, key)).collect()
    }

    /// The further events of a row.
    fn events(&self, classes: &Classes, function: FunctionId) -> Vec<EventCells> {
        let each = self.further.iter().enumerate();
        let each = each.map(|(at, event)| {
            let of = |class: &Class| class.events(function, (at, event));
            let all = of(&classes.all);
            EventCells {
                events: all
                    .per_visit
                    .map(|_| classes.all.further[at].events_of(function)),
                all,
                slow: of(&classes.slow),
                typical: of(&classes.typical),
            }
        });
        each.collect()
    }

    /// Unit of events: samples, if they have no reset value.
    fn counted(&self) -> CountUnit {
        let mut units = self.info.events.iter().map(|it| it.unit);
        if units.any(|it| it == CountUnit::Samples) {
            CountUnit::Samples
        } else {
            CountUnit::Events
        }
    }

    fn row(&self, classes: &Classes, key: Key) -> Row {
        let cell = |class: &Class| match key {
            Key::Function(function) => class.function(function, self.quantity),
            Key::Wait(key) => class.wait(key),
            Key::Elsewhere => class.elsewhere(),
        };
        let (function, state, unit) = match (key, self.quantity) {
            (Key::Wait(key), _) => (
                key.function,
                Some(self.states.name(key.state)),
                CountUnit::Ns,
            ),
            (Key::Elsewhere, _) if self.info.resumes.is_empty() => {
                (None, Some(ELSEWHERE), CountUnit::Ns)
            }
            (Key::Elsewhere, _) => (None, Some(OTHER_ITEMS), CountUnit::Ns),
            (Key::Function(id), Quantity::Time) => (Some(id), None, CountUnit::Ns),
            (Key::Function(id), Quantity::Events) => (Some(id), None, self.counted()),
        };
        let slow = cell(&classes.slow);
        let difference = slow
            .per_visit
            .map(|slow| slow - classes.typical.weight(key, self.quantity));
        Row {
            function: unnamed(function),
            state: state.map(str::to_owned),
            unit,
            all: cell(&classes.all),
            slow,
            typical: cell(&classes.typical),
            difference,
            further: match key {
                Key::Function(id) => self.events(classes, id),
                Key::Wait(_) | Key::Elsewhere => Vec::new(),
            },
            functions: Vec::new(),
            waited_for: None,
        }
    }

    fn visit(&self, draft: SlowDraft) -> SlowVisit {
        let mut functions = draft.functions;
        functions.sort_by(|(id_a, a), (id_b, b)| {
            let own = |it: Option<f64>| it.unwrap_or(0.0);
            let order = own(b.self_ns).total_cmp(&own(a.self_ns));
            order.then(b.samples.cmp(&a.samples)).then(id_a.cmp(id_b))
        });
        let mut waits: Vec<(WaitKey, WaitSum)> = draft.waits.into_iter().collect();
        waits.sort_by(|(key_a, a), (key_b, b)| b.ns.cmp(&a.ns).then(key_a.cmp(key_b)));
        let functions = functions.into_iter().take(VISIT_TOP);
        let waits = waits.into_iter().take(VISIT_TOP);
        SlowVisit {
            functions: functions
                .map(|(id, mut function)| {
                    function.function = unnamed(Some(id));
                    function
                })
                .collect(),
            waits: waits
                .map(|(key, sum)| VisitWait {
                    function: unnamed(key.function),
                    state: self.states.name(key.state).to_owned(),
                    ns: sum.ns,
                    waits: sum.waits,
                })
                .collect(),
            ..draft.visit
        }
    }
}

/// Adds functions to their module.
fn add(
    modules: &mut Vec<(FunctionName, Vec<FunctionId>)>,
    module: FunctionName,
    ids: &[FunctionId],
) {
    match modules.iter_mut().find(|it| it.0 == module) {
        Some((_, known)) => known.extend(ids),
        None => modules.push((module, ids.to_vec())),
    }
}

fn typical_class(section: &Section) -> Option<TypicalClass> {
    let summary = section.classes.as_ref()?;
    summary.limit.as_ref()?;
    let sums = &section.typical;
    let of_all = sums.range_ns?;
    let (rule, (from_ns, up_to_ns)) = match section.stats {
        Some(_) => (TypicalRule::NotKept, of_all),
        None => (TypicalRule::MiddleHalf, summary.middle_half()),
    };
    Some(TypicalClass {
        rule,
        visits: sums.visits,
        from_ns,
        up_to_ns,
        mean_ns: if sums.pooled > 0 {
            sums.pooled_duration_ns / sums.pooled as f64
        } else {
            sums.duration_ns / sums.visits as f64
        },
        counts: sums.counts.means(),
    })
}

fn unnamed(function: Option<FunctionId>) -> FunctionName {
    FunctionName {
        function_id: function.map(|id| id.0),
        ..FunctionName::default()
    }
}
