//! Cost of items that a visit serves together, by kind, and the batches that take longer than their items explain.
//!
//! A batch shows no times of its single items, but batches differ by what they hold: their times are regressed on the
//! number of their items of each kind, as [`fit`] describes. Kinds are values or ranges of an argument of the items, which
//! another stage reads: of all arguments that of the best fit, divided as [`stump`] does. Unless costs differ beyond
//! chance, by the number of divisions searched, they are equal, and all items have one cost.
//!
//! A batch is dear if it takes longer than what it holds by the cost of a mean item at least, beyond chance, and not only
//! as it waited for a CPU, which happens to items of any kind.
//!
//! Batches with an item whose argument is unknown are left out: nothing is assumed about it. Where visits of other probes
//! within the batches tell what each item took, those times are exact, and listed beside.
//!
//! Memory: as [`Items`], and about 80 bytes a batch and 8 for each of its items.

#[cfg(test)]
mod tests;

use pebs_stats::summary::ranks;
use rustc_hash::{FxHashMap, FxHashSet};

use super::columns::Column;
use super::items::{Items, NONE};
use super::model::{Cost, Costs, DearBatch, DearItem, ItemCost, Label, Mix, NoCosts, SplitTest};
use super::request::{ExplainOptions, Unit};
use super::stump::{self, Tests};
use crate::compare::batches::Batches;
use crate::compare::classes::{NetOnCpu, Standing, Took};
use crate::compare::losses::LossVisits;
use crate::compare::pool::OwnError;
use crate::compare::stages::has_stages;
use crate::compare::waits::PREEMPTED;
use crate::store::reader::{ReadError, Trace};
use crate::store::run::ProbeInfo;
use crate::store::schema::visit_flag;
use crate::store::view::{Select as _, View as _, columns};
use crate::units::ProbeId;
use pebs_stats::batches::{self as fit, Fit, NoFit};

columns! {
    struct Visits of visits {
        visit_id, item_id, probe_id, tid, begin_ns, duration_ns, oncpu_ns, samples, flags, net_ns, net_stderr_ns
    }
}

columns! {
    struct Waits of waits { item_id, tid, begin_ns, end_ns, state }
}

/// Chance below which costs differ.
const DIFFER: f64 = 0.01;

/// Chance below which a batch is dear.
const DEAR: f64 = 0.01;

/// Dear batches that are listed.
const MOST_DEAR: usize = 100;

/// Value of items whose own is too rare for a kind.
const OTHERS: &str = "(others)";

/// A visit that serves several items.
struct Batch {
    visit_id: u64,
    /// Number of the batch.
    item_id: u64,
    tid: u32,
    begin_ns: i64,
    end_ns: i64,
    net_ns: i64,
    error_ns: f64,
    on_cpu_ns: Option<i64>,
    items: u32,
    /// Items by index, each with the number of times that it is served, and its time within the batch; `None`: some are
    /// unknown.
    held: Option<Vec<Held>>,
}

#[derive(Clone, Copy)]
struct Held {
    item: u32,
    times: u32,
    /// With its standard error.
    inside_ns: Option<(i64, f32)>,
}

/// Finds the cost of items in the batches of each probe that serves several at once, or of this one.
///
/// `items`: those of the trace, if they are known already.
///
/// Cost: reads `visits`; where items have arguments, as [`Items::read`], and `waits` if a batch is dear.
///
/// # Errors
/// If the trace can't be read.
pub(crate) fn read(
    trace: &Trace,
    losses: LossVisits,
    only: Option<ProbeId>,
    items: Option<&Items>,
) -> Result<Vec<Mix>, ReadError> {
    let is_asked = |it: &&ProbeInfo| it.spec.is_batched() && only.is_none_or(|id| id == it.id);
    let probes: Vec<&ProbeInfo> = trace.info.probes.iter().filter(is_asked).collect();
    if probes.is_empty() {
        return Ok(Vec::new());
    }
    let reads = |name: &str| {
        let mut others = trace.info.probes.iter().filter(|it| !it.spec.is_batched());
        others.any(|it| it.spec.has_argument(name))
    };
    let has_arguments =
        has_stages(&trace.info) && trace.info.columns.iter().any(|it| reads(&it.name));
    if !has_arguments {
        let unknown = |it: &ProbeInfo| Mix::unknown(it, NoCosts::NoArgument);
        return Ok(probes.into_iter().map(unknown).collect());
    }
    let own;
    let items = match items.filter(|it| it.unit == Unit::Item) {
        Some(items) => items,
        None => {
            let options = ExplainOptions {
                unit: Some(Unit::Item),
                losses,
                ..ExplainOptions::default()
            };
            own = Items::read(trace, &options)?;
            &own
        }
    };
    let members = Batches::read(trace)?;
    let within = members.probes_within().iter();
    let within = within.map(|probe| OwnError::of(&trace.info, *probe).marks);
    let item_ns = within.fold(0.0, f64::hypot);
    let mut by_probe = batches(trace, losses, (items, &members))?;
    let columns = items.columns.0.iter().filter(|it| reads(&it.name));
    let columns: Vec<&Column> = columns.collect();
    let mut mixes = Vec::new();
    for probe in probes {
        let mut batches = by_probe.remove(&probe.id.0).unwrap_or_default();
        batches.sort_by_key(|it| it.begin_ns);
        let own = OwnErrors {
            batch_ns: OwnError::of(&trace.info, probe.id.0).marks,
            item_ns,
        };
        mixes.push(of_probe(trace, probe, &batches, items, &columns, own)?);
    }
    Ok(mixes)
}

impl Mix {
    fn unknown(probe: &ProbeInfo, why: NoCosts) -> Self {
        Self {
            probe_id: probe.id.0,
            spec: probe.spec.clone(),
            batches: 0,
            items: 0,
            left_out: 0,
            costs: None,
            on_cpu: None,
            unknown: Some(why),
            inside: Vec::new(),
            dear_batches: 0,
            dear: Vec::new(),
            waited: 0,
        }
    }
}

/// The batches that are counted, by probe.
fn batches(
    trace: &Trace,
    losses: LossVisits,
    (items, members): (&Items, &Batches),
) -> Result<FxHashMap<u16, Vec<Batch>>, ReadError> {
    let net = NetOnCpu::of(&trace.info);
    let mut found: FxHashMap<u16, Vec<Batch>> = FxHashMap::default();
    for rows in Visits::scan(trace)? {
        let rows = rows?;
        let visits = Visits::of(&rows)?;
        let shared = |row: &usize| visits.flags[*row] & visit_flag::SHARED != 0;
        for row in (0..rows.num_rows()).filter(shared) {
            let flags = visits.flags[row];
            let took = Took {
                duration_ns: visits.duration_ns.get(row),
                net_ns: visits.net_ns.get(row),
                samples: visits.samples[row],
            };
            let Standing::Counted(rank) = Standing::of(took, flags, losses) else {
                continue;
            };
            let (visit_id, probe) = (visits.visit_id[row], visits.probe_id[row]);
            let members = members.of_visit(visit_id);
            let served = items.served(visit_id);
            let is_whole = members.items.is_some()
                && members.unknown() == 0
                && served.len() == members.known.len();
            let held = members.inside_ns().zip(served);
            let held = held.map(|((member, inside_ns), it)| Held {
                item: it.0,
                times: member.times,
                inside_ns,
            });
            // Beside visits within it, its time on the CPU is only what is outside of them.
            let alone = visits
                .oncpu_ns
                .get(row)
                .filter(|_| flags & visit_flag::OVERLAPPED == 0);
            found.entry(probe).or_default().push(Batch {
                visit_id,
                item_id: visits.item_id[row],
                tid: visits.tid[row],
                begin_ns: visits.begin_ns[row],
                end_ns: visits.begin_ns[row] + took.duration_ns.unwrap_or(0),
                net_ns: rank.ns,
                error_ns: visits.net_stderr_ns.get(row).unwrap_or(0) as f64,
                on_cpu_ns: alone.map(|ns| net.net(ns, rank, (probe, flags))),
                items: members.items.unwrap_or(0),
                held: is_whole.then(|| held.collect()),
            });
        }
    }
    Ok(found)
}

fn of_probe(
    trace: &Trace,
    probe: &ProbeInfo,
    batches: &[Batch],
    items: &Items,
    columns: &[&Column],
    own: OwnErrors,
) -> Result<Mix, ReadError> {
    let unknown = |why| Ok(Mix::unknown(probe, why));
    let whole: Vec<&Batch> = batches.iter().filter(|it| it.held.is_some()).collect();
    if whole.len() * 2 < batches.len() {
        return unknown(NoCosts::NotRead {
            batches: (batches.len() - whole.len()) as u64,
            of: batches.len() as u64,
        });
    }
    let costing = match Costing::of(&whole, items, columns) {
        Ok(costing) => costing,
        Err(NoFit::TooFew) => {
            return unknown(NoCosts::TooFew {
                batches: whole.len() as u64,
            });
        }
        Err(NoFit::Alike) => return unknown(NoCosts::Alike),
    };
    let used = &costing.used;
    let served = |it: &&Batch| u64::from(it.items);
    let on_cpu = used.iter().map(|it| it.on_cpu_ns.map(|ns| ns as f64));
    let on_cpu: Option<Vec<f64>> = on_cpu.collect();
    let on_cpu = on_cpu.filter(|_| trace.info.switches);
    let on_cpu = on_cpu.and_then(|ns| {
        let times = fit::Batches {
            ns,
            ..costing.times.clone()
        };
        Some(costing.costs(&times, &Fit::of(&times).ok()?, own))
    });
    let inside = costing.inside();
    let (dear, waited) = costing.dear(trace, (items, inside.as_ref()))?;
    let each_inside = inside
        .iter()
        .filter_map(|it| Some((&it.times, it.fit.as_ref()?)));
    let inside = each_inside.flat_map(|(times, fit)| costing.costs(times, fit, own).kinds);
    Ok(Mix {
        probe_id: probe.id.0,
        spec: probe.spec.clone(),
        batches: used.len() as u64,
        items: used.iter().map(served).sum(),
        left_out: (batches.len() - used.len()) as u64,
        costs: Some(costing.costs(&costing.times, &costing.fit, own)),
        on_cpu,
        unknown: None,
        inside: inside.collect(),
        dear_batches: dear.len() as u64,
        dear: listed(dear),
        waited,
    })
}

/// The dearest batches, the dearest first; of these, batches that lost the CPU come last, as their caches were cold.
fn listed(mut dear: Vec<DearBatch>) -> Vec<DearBatch> {
    dear.sort_by(|a, b| b.beyond_ns.total_cmp(&a.beyond_ns));
    dear.truncate(MOST_DEAR);
    dear.sort_by_key(|it| it.waited_ns > 0);
    dear
}

/// Standard errors of what is known of pebs-trace's own time: of the marks of a batch, and of those within it, by item, ns.
/// They are the same in all batches.
#[derive(Clone, Copy)]
struct OwnErrors {
    batch_ns: f64,
    item_ns: f64,
}

/// Standard errors on each side of an interval of 95 %.
const Z_95: f64 = 1.96;

/// The costs of the items of batches by the argument that explains them best.
struct Costing<'a> {
    /// Batches in order of time.
    used: Vec<&'a Batch>,
    times: fit::Batches,
    fit: Fit,
    arguments: Vec<String>,
    chance: f64,
    /// Labels of the kinds.
    kinds: Vec<Vec<Label>>,
    /// By item, [`NONE`] if in no batch.
    kind_of: Vec<u32>,
}

/// Kinds of items by an argument.
struct Kinds {
    argument: String,
    labels: Vec<Tests>,
    /// By item, [`NONE`]: unknown, or in no batch.
    kind_of: Vec<u32>,
}

/// The times of these batches, of items of so many kinds.
fn times(batches: &[&Batch], kind_of: &[u32], kinds: usize) -> fit::Batches {
    let mut times = fit::Batches {
        ns: Vec::with_capacity(batches.len()),
        error_ns: Vec::with_capacity(batches.len()),
        counts: vec![0.0; batches.len() * kinds],
        kinds,
        fixed: true,
    };
    for (at, batch) in batches.iter().enumerate() {
        times.ns.push(batch.net_ns as f64);
        times.error_ns.push(batch.error_ns);
        for held in batch.held.iter().flatten() {
            let kind = kind_of[held.item as usize] as usize;
            times.counts[at * kinds + kind] += f64::from(held.times);
        }
    }
    // Where all hold equally many, what is fixed can't be told from what items cost.
    let mut sizes = batches.iter().map(|it| it.items);
    let first = sizes.next();
    times.fixed = sizes.any(|it| Some(it) != first);
    times
}

impl<'a> Costing<'a> {
    fn of(whole: &[&'a Batch], items: &Items, columns: &[&Column]) -> Result<Self, NoFit> {
        let mut members = Vec::new();
        // By item, its place among the members.
        let mut place_of = vec![NONE; items.all.len()];
        let mut first_of = Vec::new();
        for (at, batch) in whole.iter().enumerate() {
            for held in batch.held.iter().flatten() {
                let place = &mut place_of[held.item as usize];
                if *place == NONE {
                    *place = members.len() as u32;
                    members.push(held.item);
                    first_of.push(at);
                }
            }
        }
        let mut kind_of = place_of.clone();
        let in_one = kind_of.iter_mut().filter(|it| **it != NONE);
        in_one.for_each(|it| *it = 0);
        let all_times = times(whole, &kind_of, 1);
        let alike = Fit::of(&all_times)?;
        let beyond = |at: &usize| alike.residuals[*at] / alike.scales[*at];
        let ranks = ranks(&first_of.iter().map(beyond).collect::<Vec<f64>>());
        let (mut tested, mut compared) = (0, Vec::new());
        let mut best: Option<(f64, f64, Kinds, Vec<usize>, fit::Batches, Fit)> = None;
        for division in stump::divisions(columns.iter().copied(), &members, &ranks) {
            tested += division.tested;
            let column = columns.iter().find(|it| it.name == division.argument);
            let Some(column) = column else { continue };
            for (labels, group) in division.groups {
                let kinds = Kinds::of(column, labels, (&members, &group, &place_of));
                let is_known = |at: &usize| {
                    let mut held = whole[*at].held.iter().flatten();
                    held.all(|it| kinds.kind_of[it.item as usize] != NONE)
                };
                let used: Vec<usize> = (0..whole.len()).filter(is_known).collect();
                if used.len() * 2 < whole.len() {
                    continue;
                }
                let batches: Vec<&Batch> = used.iter().map(|at| whole[*at]).collect();
                let times = times(&batches, &kinds.kind_of, kinds.labels.len());
                let Ok(fit) = Fit::of(&times) else { continue };
                if !compared.contains(&kinds.argument) {
                    compared.push(kinds.argument.clone());
                }
                let scales: Vec<f64> = used.iter().map(|at| alike.scales[*at]).collect();
                let rank = fit.criterion(&scales);
                if best.as_ref().is_none_or(|it| rank < it.0) {
                    best = Some((rank, fit.equal(), kinds, used, times, fit));
                }
            }
        }
        let chance = best
            .as_ref()
            .map_or(1.0, |it| (it.1 * tested as f64).min(1.0));
        if let Some((_, _, kinds, used, times, fit)) = best.filter(|_| chance < DIFFER) {
            return Ok(Self {
                used: used.into_iter().map(|at| whole[at]).collect(),
                times,
                fit,
                chance,
                kinds: kinds.labels(),
                kind_of: kinds.kind_of,
                arguments: vec![kinds.argument],
            });
        }
        Ok(Self {
            used: whole.to_vec(),
            times: all_times,
            fit: alike,
            arguments: compared,
            chance,
            kinds: vec![Vec::new()],
            kind_of,
        })
    }

    fn costs(&self, times: &fit::Batches, fit: &Fit, own: OwnErrors) -> Costs {
        let width = fit.width();
        let cost = |it: fit::Estimate, own: f64| {
            let half = (width * it.error).hypot(Z_95 * own);
            Cost {
                ns: it.value,
                low_ns: it.value - half,
                high_ns: it.value + half,
            }
        };
        let counts = |kind: usize| times.counts.iter().skip(kind).step_by(self.kinds.len());
        let kinds = self
            .kinds
            .iter()
            .enumerate()
            .map(|(kind, labels)| ItemCost {
                labels: labels.clone(),
                items: counts(kind).sum::<f64>() as u64,
                cost: cost(fit.kind(kind), own.item_ns),
            });
        Costs {
            arguments: self.arguments.clone(),
            chance: self.chance,
            fixed: fit.fixed().map(|it| cost(it, own.batch_ns)),
            kinds: kinds.collect(),
        }
    }

    /// Returns the times of single items within the batches, fitted like batches of one; `None` unless they are known
    /// for the items of most.
    fn inside(&self) -> Option<Inside> {
        let mut found = Inside {
            held: Vec::new(),
            times: fit::Batches {
                kinds: self.kinds.len(),
                ..fit::Batches::default()
            },
            fit: None,
        };
        let mut unknown = 0;
        for (at, batch) in self.used.iter().enumerate() {
            for held in batch.held.iter().flatten() {
                let Some((ns, error)) = held.inside_ns else {
                    unknown += 1;
                    continue;
                };
                let kind = self.kind_of[held.item as usize];
                let is_kind = |it| f64::from(u8::from(it == kind));
                found.held.push((at, *held));
                found.times.ns.push(ns as f64 / f64::from(held.times));
                let error = f64::from(error) / f64::from(held.times);
                found.times.error_ns.push(error);
                let counts = (0..self.kinds.len() as u32).map(is_kind);
                found.times.counts.extend(counts);
            }
        }
        if unknown > found.held.len() {
            return None;
        }
        found.fit = Some(Fit::of(&found.times).ok()?);
        Some(found)
    }

    /// The batches that take longer than what they hold, and the number of those that only waited for a CPU. Where it is
    /// known what each item took, those with an item that took longer than its kind.
    fn dear(
        &self,
        trace: &Trace,
        (items, inside): (&Items, Option<&Inside>),
    ) -> Result<(Vec<DearBatch>, u64), ReadError> {
        let times = &self.times;
        let served: f64 = times.counts.iter().sum();
        let of_kind = |(at, n): (usize, &f64)| n * self.fit.kind(at % times.kinds).value;
        let cost: f64 = times.counts.iter().enumerate().map(of_kind).sum();
        let least = (cost / served).max(0.0);
        let (fit, held) = inside
            .and_then(|it| Some((it.fit.as_ref()?, Some(&it.held))))
            .unwrap_or((&self.fit, None));
        let tail = fit.tail();
        let chance = |row: usize, beyond: f64| match beyond >= least {
            true => tail.chance(beyond / fit.scales[row]),
            false => 1.0,
        };
        let mut apart: Vec<usize> = (0..fit.residuals.len())
            .filter(|&row| chance(row, fit.residuals[row]) < DEAR)
            .collect();
        let batch_of = |row: usize| held.map_or(row, |held| held[row].0);
        let id_of = |row: usize| held.map(|held| items.all[held[row].1.item as usize].item_id);
        let mut batches: Vec<usize> = apart.iter().map(|&row| batch_of(row)).collect();
        batches.dedup();
        let waits = for_cpu(trace, &self.used, batches)?;
        let waited = |row: usize| {
            let found = waits.get(&(batch_of(row), id_of(row)));
            found.copied().unwrap_or(0)
        };
        // Of several items of a batch the dearest.
        apart.sort_by_key(|&row| waited(row) - fit.residuals[row] as i64);
        let mut seen = FxHashSet::default();
        apart.retain(|&row| seen.insert(batch_of(row)));
        let mut dear = Vec::new();
        for &row in &apart {
            let (batch, waited) = (self.used[batch_of(row)], waited(row));
            let beyond = fit.residuals[row] - waited as f64;
            let chance = chance(row, beyond);
            if chance >= DEAR {
                continue;
            }
            let inside_ns = held.and_then(|held| held[row].1.inside_ns);
            dear.push(DearBatch {
                visit_id: batch.visit_id,
                item_id: batch.item_id,
                items: batch.items,
                net_ns: batch.net_ns,
                expected_ns: batch.net_ns as f64 - self.fit.residuals[batch_of(row)],
                beyond_ns: beyond,
                waited_ns: waited,
                chance,
                item: id_of(row)
                    .zip(inside_ns)
                    .map(|(item_id, (net_ns, _))| DearItem { item_id, net_ns }),
            });
        }
        let waited = (apart.len() - dear.len()) as u64;
        Ok((dear, waited))
    }
}

/// Items with known times within the batches.
struct Inside {
    /// Each with the index of its batch.
    held: Vec<(usize, Held)>,
    times: fit::Batches,
    fit: Option<Fit>,
}

impl Kinds {
    /// Kinds by groups of members; those with a value that is too rare for a group are one more.
    fn of(
        column: &Column,
        mut labels: Vec<Tests>,
        (members, group, place_of): (&[u32], &[Option<u16>], &[u32]),
    ) -> Self {
        let mut kind_of = vec![NONE; place_of.len()];
        let others = labels.len() as u32;
        let mut has_others = false;
        for (&item, group) in members.iter().zip(group) {
            kind_of[item as usize] = match group {
                Some(group) => u32::from(*group),
                None if column.is_known(item) => {
                    has_others = true;
                    others
                }
                None => NONE,
            };
        }
        if has_others {
            labels.push(vec![(SplitTest::Equal, OTHERS.to_owned())]);
        }
        Self {
            argument: column.name.clone(),
            labels,
            kind_of,
        }
    }

    fn labels(&self) -> Vec<Vec<Label>> {
        let label = |(test, value): &(SplitTest, String)| Label {
            argument: self.argument.clone(),
            test: *test,
            value: Some(value.clone()),
        };
        let tests = self.labels.iter();
        tests.map(|it| it.iter().map(label).collect()).collect()
    }
}

/// Time that batches waited for a CPU, and that in which each of their items did, as far as visits within them tell, ns.
/// `of`: their indices.
fn for_cpu(
    trace: &Trace,
    batches: &[&Batch],
    mut of: Vec<usize>,
) -> Result<FxHashMap<(usize, Option<u64>), i64>, ReadError> {
    let mut waited = FxHashMap::default();
    if of.is_empty() {
        return Ok(waited);
    }
    of.sort_by_key(|&at| (batches[at].tid, batches[at].begin_ns));
    for rows in Waits::scan(trace)? {
        let rows = rows?;
        let waits = Waits::of(&rows)?;
        for (row, &tid) in waits.tid.iter().enumerate() {
            let (begin, end) = (waits.begin_ns[row], waits.end_ns[row]);
            let before = of.partition_point(|&at| {
                let it = batches[at];
                (it.tid, it.begin_ns) <= (tid, begin)
            });
            if let Some(at) = before.checked_sub(1).map(|it| of[it])
                && batches[at].tid == tid
                && batches[at].end_ns >= end
                && waits.state.get(row) == PREEMPTED
            {
                for whose in [None, Some(waits.item_id[row])] {
                    *waited.entry((at, whose)).or_default() += end - begin;
                }
            }
        }
    }
    Ok(waited)
}
