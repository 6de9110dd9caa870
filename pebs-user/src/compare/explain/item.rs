//! One item: its time line, and what it took more time for than the typical items of its group.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::blocked::{self, Threads, WaitStacks};
use super::chain::{self, Root};
use super::chain_model::WaitedFor;
use super::contrast::{self, Naming};
use super::groups::{self, GroupColumn, Section};
use super::items::{Item, Items};
use super::model::{EXPLAIN_VERSION, Typical, TypicalRule};
use super::nameless::{self, Nameless};
use super::{kept, paths};
use crate::compare::arguments::NamedArg;
use crate::compare::batches::Batches;
use crate::compare::classes::Class;
use crate::compare::counts::Counts;
use crate::compare::explain::item_model::{ItemAccount, ItemReport, Moment, MomentType};
use crate::compare::explain::paths::no_paths;
use crate::compare::explain::request::{ExplainError, ExplainOptions, ItemChoice, NoItem, Unit};
use crate::compare::explain::sums::{ClassSums, names, sum};
use crate::compare::explain::timing::Timing;
use crate::compare::names::{FunctionName, Names};
use crate::compare::pool::MIN_SAMPLES;
use crate::compare::remarks::{ItemTooLittle, Note};
use crate::compare::rows::flag_names;
use crate::compare::waits::States;
use crate::store::args::{ArgRef, ArgView};
use crate::store::reader::{ReadError, Trace};
use crate::store::run::{EventInfo, RecordedSpec};
use crate::store::schema::visit_flag;
use crate::store::view::{Select as _, View as _, columns};
use crate::units::EventId;

/// Part of an item on the CPU from which on its functions have to be known.
const LEAST_ON_CPU: f64 = 0.1;

/// Largest number of runs in a time line, not counting marks and waits.
const MOST_RUNS: usize = 40;

/// Waits listed at most: the longest.
const MOST_WAITS: usize = 20;

/// Functions named in one part of a time line.
const MOST_NAMED: usize = 3;

/// Says everything about one item.
pub(super) fn report(
    trace: &Trace,
    options: &ExplainOptions,
    items: &Items,
    group_by: &[GroupColumn],
    which: ItemChoice,
) -> Result<ItemReport, ExplainError> {
    let (index, others_with_id) = find(trace, items, which)?;
    let item = items.all[index as usize];
    let timing = Timing::of(&trace.info);
    let Some(mut section) = group_of(index, items, group_by, options) else {
        return Err(ExplainError::NoItem {
            trace: trace.dir.display().to_string(),
            item_id: item.item_id,
            reason: NoItem::InNoGroup,
        });
    };
    let rank = 1 + longer(&section, items, item.net_ns());
    let shorter = section
        .members
        .iter()
        .filter(|it| rank_of(items, **it) < item.net_ns());
    let percentile = shorter.count() as f64 / section.members.len() as f64;
    make_only_slow(&mut section, index);
    let sections = [section];
    let mut summing = sum(trace, items, &sections, (&timing, &[]))?;
    if trace.info.keep.is_some() {
        kept::typical(trace, options.losses, &mut summing, &timing)?;
    }
    let sums = &summing.sums[0];
    let section = &sections[0];
    let visits = visits_of(trace, items, index)?;
    let line = Line::read(trace, &visits, timing.event.map(|it| it.id))?;
    let names_of_sums = names(trace, &summing.sums)?;
    let naming = Naming {
        names: &names_of_sums,
        states: &summing.states,
        probes: &trace.info.probes,
    };
    let mut gap = contrast::gap(
        (&sums.slow, &sums.typical),
        &timing.further,
        &naming,
        options.top,
    );
    let wait_stacks = WaitStacks::of(trace, &mut line.stacks.values().copied())?;
    if let Some(gap) = &mut gap {
        let threads = Threads {
            names: &summing.actors,
            items,
            since_later: trace.info.waits_from_ns().is_some(),
        };
        wait_stacks.set_blocking(gap, &sums.slow, &naming, threads);
    }
    paths::divide(trace, &summing, &timing, vec![gap.as_mut()])?;
    blocked::follow(trace, &summing, (&naming, &timing), vec![gap.as_mut()])?;
    let unnamed = vec![Nameless::of_gap(gap.as_mut())];
    nameless::set_callers(trace, &summing, &timing, unnamed)?;
    let typical = &sums.typical;
    let count = typical.items.total();
    let interference = match &gap {
        Some(_) if trace.info.keep.is_none() => contrast::interference(sums),
        _ => Vec::new(),
    };
    let account = ItemAccount {
        too_little: too_little(&item, gap.is_some(), count, &timing),
        labels: section.labels.clone(),
        items: section.members.len() as u64,
        rank,
        percentile,
        duration: section.summary.quantiles,
        typical: typical_items(trace, typical, section.summary.quantiles.p50_ns),
        further: match &gap {
            Some(_) => contrast::further((&sums.slow, &sums.typical), &timing.further),
            None => Vec::new(),
        },
        gap,
    };
    let probe = &items.probes[usize::from(item.probe)];
    let [switches, migrations, page_faults] = item.counts;
    let (moments, other_waits) = line.moments(trace, timing.event, &item, &visits, &wait_stacks)?;
    let is_batch = items.unit == Unit::Visit && item.flags & visit_flag::SHARED != 0;
    let batch = match is_batch {
        true => Batches::read(trace)?.of_visit(item.visit_id).items,
        false => None,
    };
    let own: Vec<&VisitFacts> = visits.iter().filter(|it| it.own).collect();
    Ok(ItemReport {
        explain_version: EXPLAIN_VERSION,
        trace: trace.dir.display().to_string(),
        event: timing.event.cloned(),
        further_events: timing.further.clone(),
        specs: probe.specs.clone(),
        item_id: item.item_id,
        batch,
        visit_ids: own.iter().map(|it| it.visit_id).collect(),
        others_with_id,
        pid: item.pid,
        tid: item.tid,
        begin_ns: item.begin_ns,
        latency_ns: item.latency_ns,
        oncpu_ns: item.active_ns.filter(|_| trace.info.switches),
        samples: item.samples,
        flags: flag_names(item.flags),
        counts: Counts {
            switches,
            migrations,
            page_faults,
        },
        interference,
        args: own.first().map_or_else(Vec::new, |it| it.args.clone()),
        account,
        moments,
        other_waits,
        notes: timing
            .reason
            .iter()
            .map(|it| Note::NoFunctionTimes(it.clone()))
            .chain(no_paths(&trace.info))
            .chain(trace.info.waits_from_ns().map(Note::WaitsFrom))
            .collect(),
    })
}

/// Makes this item the only slow one of a section.
fn make_only_slow(section: &mut Section, index: u32) {
    for (member, class) in section.members.iter().zip(&mut section.classes) {
        *class = match *class {
            _ if *member == index => Class::Slow,
            Class::Slow => Class::Between,
            other => other,
        };
    }
}

/// The typical items that an item is compared with, if there are any; `median_ns` is that of all.
fn typical_items(trace: &Trace, typical: &ClassSums, median_ns: i64) -> Option<Typical> {
    let count = typical.items.total();
    (count > 0.0).then(|| Typical {
        rule: match trace.info.keep {
            Some(_) => TypicalRule::NotKept,
            None => TypicalRule::MiddleHalf,
        },
        items: count as u64,
        from_ns: typical.range_ns.map_or(0, |it| it.0),
        to_ns: typical.range_ns.map_or(median_ns, |it| it.1),
        mean_ns: typical.latency.total() / count,
        samples: typical.samples,
    })
}

/// Why the item can't be explained.
fn too_little(item: &Item, gap: bool, typical: f64, timing: &Timing<'_>) -> Option<ItemTooLittle> {
    if item.flags & visit_flag::CONDENSED != 0 {
        return Some(ItemTooLittle::NotKept);
    }
    if item.active_ns.is_none() {
        return Some(ItemTooLittle::NoCpuTime);
    }
    if typical == 0.0 {
        return Some(ItemTooLittle::NoTypical);
    }
    if !gap {
        return Some(ItemTooLittle::NotLonger);
    }
    let n = item.samples;
    let active = item.active_ns.unwrap_or(0) as f64;
    let is_on_cpu = active >= LEAST_ON_CPU * item.latency_ns as f64;
    let few = timing.reason.is_none() && is_on_cpu && u64::from(n) < MIN_SAMPLES;
    few.then_some(ItemTooLittle::FewSamples(n))
}

fn rank_of(items: &Items, member: u32) -> i64 {
    items.all[member as usize].net_ns()
}

fn longer(section: &Section, items: &Items, than: i64) -> u64 {
    section
        .members
        .iter()
        .filter(|it| rank_of(items, **it) > than)
        .count() as u64
}

/// The item, and the number of others with its id.
fn find(trace: &Trace, items: &Items, which: ItemChoice) -> Result<(u32, u64), ExplainError> {
    let name = || trace.dir.display().to_string();
    match which {
        ItemChoice::Visit(visit_id) => match items.of_visit(visit_id).next() {
            Some((index, _)) => {
                let id = items.all[index as usize].item_id;
                let same = items.all.iter().filter(|it| it.item_id == id).count() as u64;
                Ok((index, same - 1))
            }
            None => Err(ExplainError::NoVisit {
                trace: name(),
                visit_id,
                last: items.all.iter().map(|it| it.visit_id).max().unwrap_or(0),
            }),
        },
        ItemChoice::Item(item_id) => {
            let batches = match items.unit {
                // A visit that serves several items has a number of its own.
                Unit::Visit => Batches::read(trace)?,
                Unit::Item => Batches::default(),
            };
            let serving: FxHashSet<u64> = batches.visits_of(item_id).collect();
            let same = (0..).zip(&items.all).filter(|(_, it)| {
                let alone = items.unit == Unit::Item || it.flags & visit_flag::SHARED == 0;
                alone && it.item_id == item_id || serving.contains(&it.visit_id)
            });
            let found: Vec<(u32, &Item)> = same.collect();
            // The first of equally long ones.
            let longest = found.iter().rev().max_by_key(|(_, it)| it.latency_ns);
            let Some(longest) = longest else {
                return Err(ExplainError::NoItem {
                    trace: name(),
                    item_id,
                    reason: why_none(trace, items, item_id)?,
                });
            };
            Ok((longest.0, found.len() as u64 - 1))
        }
    }
}

columns! {
    struct ItemIds of visits { item_id }
}

columns! {
    struct Visits of visits { visit_id, tid, begin_ns, duration_ns, probe_id }
}

columns! {
    struct Samples of samples { visit_id, time_ns, tid, function_id, event }
}

columns! {
    struct Waits of waits {
        visit_id, begin_ns, end_ns, tid, function_id, state, woken_by, preempted_by, stack_id
    }
}

/// Why there is no item with this id.
fn why_none(trace: &Trace, items: &Items, item_id: u64) -> Result<NoItem, ReadError> {
    for batch in ItemIds::scan(trace)? {
        if ItemIds::of(&batch?)?.item_id.contains(&item_id) {
            return Ok(NoItem::LeftOut);
        }
    }
    let ids = || items.all.iter().map(|it| it.item_id);
    Ok(NoItem::Unknown {
        first: ids().min().unwrap_or(0),
        last: ids().max().unwrap_or(0),
        closest: ids().min_by_key(|id| id.abs_diff(item_id)).unwrap_or(0),
    })
}

/// The group that an item is compared with.
fn group_of(
    index: u32,
    items: &Items,
    group_by: &[GroupColumn],
    options: &ExplainOptions,
) -> Option<Section> {
    let item = &items.all[index as usize];
    let (labels, like) = groups::alike(index, items, group_by);
    let members = (0..items.all.len() as u32)
        .filter(|&it| items.all[it as usize].probe == item.probe && like(it));
    let members = members.collect();
    Section::new(
        (item.probe, labels),
        members,
        items,
        options.slow.and_then(|it| it.rule),
    )
}

/// A visit of the item, or one that lies within it.
#[derive(Clone, Debug)]
struct VisitFacts {
    visit_id: u64,
    /// Whether it is a visit of the item, not one nested in it.
    own: bool,
    tid: u32,
    begin_ns: i64,
    end_ns: i64,
    spec: Option<RecordedSpec>,
    args: Vec<NamedArg>,
}

/// The visits of an item, in order.
fn visits_of(trace: &Trace, items: &Items, index: u32) -> Result<Vec<VisitFacts>, ReadError> {
    let mut found = Vec::new();
    for batch in trace.scan_with_args(Visits::NAMES)? {
        let batch = batch?;
        let visits = Visits::of(&batch)?;
        let args = ArgView::all(&batch, &trace.info.columns)?;
        for (row, &visit_id) in visits.visit_id.iter().enumerate() {
            let Some(duration_ns) = visits.duration_ns.get(row) else {
                continue;
            };
            if !items.of_visit(visit_id).any(|(item, _)| item == index) {
                continue;
            }
            let probe = trace
                .info
                .probes
                .iter()
                .find(|it| it.id.0 == visits.probe_id[row]);
            let named = args
                .iter()
                .zip(&trace.info.columns)
                .map(|(array, column)| NamedArg {
                    name: column.name.clone(),
                    value: array.get(row).map(ArgRef::to_value),
                });
            found.push(VisitFacts {
                visit_id,
                own: items.is_own(visit_id, index),
                tid: visits.tid[row],
                begin_ns: visits.begin_ns[row],
                end_ns: visits.begin_ns[row] + duration_ns,
                spec: probe.map(|it| it.spec.clone()),
                args: named.collect(),
            });
        }
    }
    found.sort_by_key(|it| (it.begin_ns, it.visit_id));
    Ok(found)
}

/// Data of an item by time.
struct Line {
    /// Time, thread, function; sorted.
    samples: Vec<(i64, u32, u32)>,
    /// Begin, end, thread, function, state; sorted.
    waits: Vec<(i64, i64, u32, Option<u32>, usize)>,
    /// The thread that took the CPU from a thread at that time, or woke it then.
    by: FxHashMap<(i64, u32), String>,
    /// The call stack at which a thread went to wait at that time.
    stacks: FxHashMap<(i64, u32), u32>,
    states: States,
}

impl Line {
    fn read(
        trace: &Trace,
        visits: &[VisitFacts],
        event: Option<EventId>,
    ) -> Result<Self, ReadError> {
        let wanted: FxHashSet<u64> = visits.iter().map(|it| it.visit_id).collect();
        let mut line = Self {
            samples: Vec::new(),
            waits: Vec::new(),
            by: FxHashMap::default(),
            stacks: FxHashMap::default(),
            states: States::default(),
        };
        for batch in Samples::scan(trace)? {
            let batch = batch?;
            let samples = Samples::of(&batch)?;
            let is_wanted = |row: &usize| {
                let visit = samples.visit_id.get(*row);
                visit.is_some_and(|visit| wanted.contains(&visit))
                    && event.is_some_and(|it| it.0 == samples.event[*row])
            };
            for row in (0..batch.num_rows()).filter(is_wanted) {
                // No thread without a number has a visit.
                let tid = samples.tid.get(row).unwrap_or(0);
                let (time, function) = (samples.time_ns[row], samples.function_id[row]);
                line.samples.push((time, tid, function));
            }
        }
        for batch in Waits::scan(trace)? {
            let batch = batch?;
            let waits = Waits::of(&batch)?;
            for row in (0..batch.num_rows()).filter(|&row| wanted.contains(&waits.visit_id[row])) {
                let (begin, end, tid) = (waits.begin_ns[row], waits.end_ns[row], waits.tid[row]);
                let by = waits.preempted_by.get(row).or(waits.woken_by.get(row));
                if let Some(by) = by {
                    line.by.insert((begin, tid), by.to_owned());
                }
                if let Some(stack) = waits.stack_id.get(row) {
                    line.stacks.insert((begin, tid), stack);
                }
                let state = line.states.index(waits.state.get(row));
                let function = waits.function_id.get(row);
                line.waits.push((begin, end, tid, function, state));
            }
        }
        line.samples.sort_unstable();
        line.waits.sort_unstable();
        Ok(line)
    }

    /// The time line in order, and the waits that are not in it.
    fn moments(
        mut self,
        trace: &Trace,
        event: Option<&EventInfo>,
        item: &Item,
        visits: &[VisitFacts],
        wait_stacks: &WaitStacks,
    ) -> Result<(Vec<Moment>, (u64, i64)), ReadError> {
        let functions = self.samples.iter().map(|it| it.2);
        let names = Names::of(
            trace,
            functions.chain(self.waits.iter().filter_map(|it| it.3)),
        )?;
        let runs = self.runs(item);
        let mut moments = Vec::new();
        for visit in visits {
            for (kind, at) in [
                (MomentType::Begin, visit.begin_ns),
                (MomentType::End, visit.end_ns),
            ] {
                moments.push(Moment {
                    at_ns: at - item.begin_ns,
                    tid: visit.tid,
                    kind,
                    ns: 0,
                    state: None,
                    by: None,
                    waited_for: None,
                    spec: visit.spec.clone(),
                    functions: Vec::new(),
                    path: Vec::new(),
                });
            }
        }
        self.waits.sort_by_key(|(begin, end, ..)| begin - end);
        let others = self.waits.split_off(self.waits.len().min(MOST_WAITS));
        let other_ns = others.iter().map(|(begin, end, ..)| end - begin).sum();
        let roots = (0..).zip(&self.waits).map(|(group, wait)| Root {
            group,
            tid: wait.2,
            begin_ns: wait.0,
            end_ns: wait.1,
        });
        // What other threads did before is not known.
        let known_from = trace.info.waits_from_ns().unwrap_or(0);
        let known = roots
            .filter(|it| it.begin_ns >= known_from && self.by.contains_key(&(it.begin_ns, it.tid)));
        let known: Vec<Root> = known.collect();
        let chains = match known.is_empty() {
            true => vec![WaitedFor::default(); self.waits.len()],
            false => chain::follow(trace, event, (self.waits.len(), known))?,
        };
        for (&(begin, end, tid, function, state), chain) in self.waits.iter().zip(chains) {
            moments.push(Moment {
                waited_for: Some(chain).filter(|it| !it.links.is_empty()),
                at_ns: begin - item.begin_ns,
                tid,
                kind: MomentType::Waited,
                ns: end - begin,
                state: Some(self.states.name(state).to_owned()),
                by: self.by.remove(&(begin, tid)),
                spec: None,
                functions: vec![(names.get(function), 0)],
                path: wait_stacks.functions(self.stacks.get(&(begin, tid)).copied()),
            });
        }
        for run in runs {
            moments.push(Moment {
                at_ns: run.first - item.begin_ns,
                tid: run.tid,
                kind: MomentType::Ran,
                ns: run.last - run.first,
                state: None,
                by: None,
                waited_for: None,
                spec: None,
                functions: run.named(&names),
                path: Vec::new(),
            });
        }
        moments.sort_by_key(|it| (it.at_ns, it.kind, it.tid));
        Ok((moments, (others.len() as u64, other_ns)))
    }

    /// Samples of the same function one after the other; of each slice of time if these are too many.
    fn runs(&self, item: &Item) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut open: FxHashMap<u32, usize> = FxHashMap::default();
        for &(time, tid, function) in &self.samples {
            let same = open.get(&tid).copied().filter(|at| {
                let run = &runs[*at];
                // A wait or a mark between two samples of a function ends its run.
                run.functions.contains_key(&function) && !self.broken(tid, run.last, time)
            });
            match same {
                Some(at) => runs[at].add(time, function),
                None => {
                    open.insert(tid, runs.len());
                    runs.push(Run::new(time, tid, function));
                }
            }
        }
        if runs.len() <= MOST_RUNS {
            return runs;
        }
        let slice = item.latency_ns / MOST_RUNS as i64 + 1;
        let mut slices: BTreeMap<(i64, u32), Run> = BTreeMap::new();
        for &(time, tid, function) in &self.samples {
            let at = (time - item.begin_ns).div_euclid(slice);
            let run = slices.entry((at, tid));
            run.and_modify(|run| run.add(time, function))
                .or_insert_with(|| Run::new(time, tid, function));
        }
        slices.into_values().collect()
    }

    fn broken(&self, tid: u32, from: i64, to: i64) -> bool {
        let first = self.waits.partition_point(|it| it.0 < from);
        let between = self.waits[first..].iter().take_while(|it| it.0 <= to);
        between.into_iter().any(|it| it.2 == tid)
    }
}

/// Samples that lie together.
struct Run {
    first: i64,
    last: i64,
    tid: u32,
    functions: BTreeMap<u32, u32>,
}

impl Run {
    fn new(time: i64, tid: u32, function: u32) -> Self {
        Self {
            first: time,
            last: time,
            tid,
            functions: BTreeMap::from([(function, 1)]),
        }
    }

    fn add(&mut self, time: i64, function: u32) {
        self.last = time;
        *self.functions.entry(function).or_default() += 1;
    }

    fn named(&self, names: &Names) -> Vec<(FunctionName, u32)> {
        let mut most: Vec<(u32, u32)> = self.functions.iter().map(|(id, n)| (*id, *n)).collect();
        most.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
        let most = most.into_iter().take(MOST_NAMED);
        most.map(|(id, samples)| (names.get(Some(id)), samples))
            .collect()
    }
}
