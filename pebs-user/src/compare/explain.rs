//! Why slow items were slow: ranks what separates them from similar items, with intervals.
//!
//! The trace is read in streams: visits once, then their functions and waits, then names. Memory: about 110 bytes an
//! item and 8 KiB a function and group. The comparison:
//!
//! * An *item* is a visit, or all visits with its id ([`Unit`]).
//! * A *group* is the items of a probe, or those of them with the same argument values.
//! * *Slow* and *typical* items of a group are defined in `compare::classes`. Where only slow items were kept (`--keep`),
//!   those that were not kept take its place: sums over them are in `function_stats`.
//! * [`contrast`] divides the difference between the two, [`variance`] the variance of all, [`stump`]
//!   finds the arguments that go along with slowness.

mod blocked;
mod chain;
pub(crate) mod chain_model;
pub(crate) mod model;

mod columns;
pub(crate) mod contrast;
pub(crate) mod counted;
pub(crate) mod groups;
mod interrupts_and_faults;
mod item;
pub(crate) mod item_model;
pub(crate) mod items;
mod kept;
pub(crate) mod keys;
pub(crate) mod kinds;
mod like;
pub(crate) mod mix;
mod nameless;
pub(crate) mod paths;
pub(crate) mod request;
mod runtimes;
pub(crate) mod stump;
pub(crate) mod sums;
#[cfg(test)]
mod tests;
pub(crate) mod timing;
pub(crate) mod variance;
mod when;

use rustc_hash::FxHashSet;

use self::blocked::{Threads, WaitStacks};
use self::contrast::Naming;
use self::groups::{GroupColumn, MACHINE, ProbeGroups, Section};
use self::items::Items;
use self::model::{
    Change, EXPLAIN_VERSION, Explanation, Gap, Group, Grouped, ProbeExplanation, Slow, Typical,
    TypicalRule,
};
use self::nameless::Nameless;
use self::sums::{ClassSums, GroupSums};
use super::classes::{Class, RankBy, never_ended};
use crate::compare::explain::item_model::ItemReport;
use crate::compare::explain::paths::no_paths;
use crate::compare::explain::sums::{Rows, names, sum};
use crate::compare::explain::timing::Timing;
use crate::compare::pool::{MIN_SAMPLES, OwnTimes};
use crate::compare::probe;
use crate::compare::remarks::{Note, TooLittle};
use crate::compare::rows;
use crate::store::reader::{ReadError, Trace};
use crate::store::run::{ResetChange, RunInfo};
use crate::store::schema::visit_flag;
use pebs_stats::blocks::{MIN_ITEMS, REPLICATES};

pub(crate) use self::request::{ExplainError, ExplainOptions, ItemChoice, NoItem, NoItems, Unit};

/// Part of a gap on the CPU from which on its functions have to be known.
const LEAST_ON_CPU: f64 = 0.1;

/// Error of functions' rates, as a part of their times, above which a note says so.
const UNSURE: f64 = 0.1;

/// Explains the slow items of a trace.
///
/// Cost: reads `visits`, `visit_functions`, `waits` and `functions` once, only the columns needed; of a trace with call
/// stacks `samples` twice, `stacks`, and the other two again; where functions have no names, `samples` and `stacks` once more.
///
/// # Errors
/// If the trace can't be read, has no such probe or column, or nothing that could be explained.
pub(crate) fn explain(
    trace: &Trace,
    options: &ExplainOptions,
) -> Result<Explanation, ExplainError> {
    let group_by = columns(trace, options)?;
    let mut items = read(trace, options)?;
    let slow = options.slow.or_else(|| items.slow_by(&trace.info));
    if slow.is_some_and(|it| it.by == RankBy::CpuTime) {
        if !trace.info.switches {
            return Err(ExplainError::NoCpuTime {
                trace: trace.dir.display().to_string(),
            });
        }
        items.take_cpu_time();
    }
    let rule = slow.and_then(|it| it.rule);
    let mut sections = Vec::new();
    let found: Vec<ProbeGroups> = (0..items.probes.len() as u16)
        .map(|probe| groups::of_probe(probe, &items, &group_by, rule))
        .map(|mut found| {
            sections.extend(found.whole.take());
            sections.append(&mut found.groups);
            found
        })
        .collect();
    let timing = Timing::of(&trace.info);
    let known = like::Known::of(&sections);
    // Groups found automatically get causes only.
    let looked_at = |section: &Section| section.labels.is_empty() || !group_by.is_empty();
    let candidates = |it| match looked_at(it) {
        true => kinds::candidates(it, &items),
        false => Vec::new(),
    };
    let candidates: Vec<Vec<u32>> = sections.iter().map(candidates).collect();
    let mut groups = explained(trace, options, &items, &sections, &timing, &candidates)?;
    let mut changes = match options.when {
        true => Some(changes(trace, options, (&items, &sections), &timing)?),
        false => None,
    };
    let mixes = mix::read(trace, options.losses, options.probe, Some(&items))?;
    let mut probes = Vec::new();
    for (probe, found) in (0..).zip(found) {
        let mut own: Vec<Group> = Vec::new();
        while groups.first().is_some_and(|it| it.0 == probe) {
            own.push(groups.remove(0).1);
        }
        let whole = (group_by.is_empty() && !own.is_empty()).then(|| own.remove(0));
        let slow_for_kind = match group_by[..] {
            [] => known.for_kind(probe, &sections, &own),
            _ => Vec::new(),
        };
        let of = &items.probes[usize::from(probe)];
        let Census {
            items: counted,
            ids,
            time_shared,
        } = Census::of(probe, &items);
        probes.push(ProbeExplanation {
            probe_ids: of.probe_ids.clone(),
            specs: of.specs.clone(),
            visits: of.visits,
            items: counted,
            item_ids: ids,
            time_shared,
            left_out: of.left_out,
            whole,
            slow_on_cpu: None,
            slow_for_kind,
            changes: changes
                .as_mut()
                .map(|all| std::mem::take(&mut all[usize::from(probe)])),
            mixes: mixes
                .iter()
                .filter(|it| of.probe_ids.contains(&it.probe_id))
                .cloned()
                .collect(),
            grouped: found.grouping.map(|it| Grouped {
                argument: it.argument,
                part: it.part,
                chance: it.chance,
            }),
            compared: found.compared,
            groups: own,
            other_groups: found.others.0,
            other_items: found.others.1,
        });
    }
    let mut notes = notes(&trace.info, &items);
    let all = probes
        .iter()
        .flat_map(|it| it.whole.iter().chain(&it.groups));
    notes.extend(runtimes::note(trace, all)?);
    notes.extend(unsure_rates(trace, &timing)?);
    let unit = items.unit;
    if slow.is_none() && group_by.is_empty() && trace.info.switches {
        explained_on_cpu(
            trace,
            options,
            items,
            &sections,
            &known,
            &timing,
            &mut probes,
        )?;
    }
    probes.iter_mut().for_each(like::rank);
    Ok(Explanation {
        explain_version: EXPLAIN_VERSION,
        trace: trace.dir.display().to_string(),
        unit,
        event: timing.event.cloned(),
        further_events: timing.further.clone(),
        event_resets: timing
            .event
            .map(|event| ResetChange::span(event, &trace.info.resets)),
        event_is_clock: timing.is_clock(),
        no_function_times: timing.reason.clone(),
        min_samples: MIN_SAMPLES,
        min_items: MIN_ITEMS as u64,
        replicates: REPLICATES as u32,
        probes,
        notes,
    })
}

/// Numbers of a probe's items.
struct Census {
    items: u64,
    /// Different item ids.
    ids: u64,
    /// Items that share their time with others.
    time_shared: u64,
}

impl Census {
    fn of(probe: u16, items: &Items) -> Self {
        let members = || items.all.iter().filter(|it| it.probe == probe);
        let ids: FxHashSet<u64> = members().map(|it| it.item_id).collect();
        let shared = members().filter(|it| it.flags & visit_flag::TIME_SHARED != 0);
        Self {
            items: members().count() as u64,
            ids: ids.len() as u64,
            time_shared: shared.count() as u64,
        }
    }
}

/// Remark where times follow from rates that are known badly.
fn unsure_rates(trace: &Trace, timing: &Timing<'_>) -> Result<Option<Note>, ExplainError> {
    let (Some(event), None) = (timing.event, &timing.reason) else {
        return Ok(None);
    };
    let part = rows::error_of_rates(trace, event)?.filter(|it| *it > UNSURE);
    Ok(part.map(|part| Note::Rates {
        event: event.name.clone(),
        percent: (part * 100.0).round() as u32,
    }))
}

/// Explains the slow items of sections, in their order, with the probe of each.
fn explained(
    trace: &Trace,
    options: &ExplainOptions,
    items: &Items,
    sections: &[Section],
    timing: &Timing<'_>,
    candidates: &[Vec<u32>],
) -> Result<Vec<(u16, Group)>, ReadError> {
    let mut summing = sum(trace, items, sections, (timing, candidates))?;
    if trace.info.keep.is_some() {
        kept::typical(trace, options.losses, &mut summing, timing)?;
    }
    let sums = &summing.sums;
    let counted = counted::sum(trace, &summing)?;
    let names = names(trace, sums)?;
    let naming = Naming {
        names: &names,
        states: &summing.states,
        probes: &trace.info.probes,
    };
    let explaining = Explaining {
        wait_stacks: WaitStacks::read(trace, sums)?,
        info: &trace.info,
        items,
        timing,
        naming,
        top: options.top,
        rows: &summing.rows,
        threads: Threads {
            names: &summing.actors,
            items,
            since_later: trace.info.waits_from_ns().is_some(),
        },
    };
    let mut groups: Vec<(u16, Group)> = sections
        .iter()
        .zip(sums)
        .zip(&counted)
        .zip(candidates)
        .enumerate()
        .map(|(done, (((section, sums), counted), candidates))| {
            let (done, all) = (done as u64, sections.len() as u64);
            trace.watch.report("ranking causes", done, all);
            let mut group = explaining.group(section, sums, candidates);
            group.counted_events = counted.rows(&trace.info.counted);
            (section.probe, group)
        })
        .collect();
    let gaps = groups.iter_mut().map(|(_, group)| group.gap.as_mut());
    paths::divide(trace, &summing, timing, gaps.collect())?;
    let gaps = groups.iter_mut().map(|(_, group)| group.gap.as_mut());
    blocked::follow(
        trace,
        &summing,
        (&explaining.naming, timing),
        gaps.collect(),
    )?;
    let nameless = groups.iter_mut().map(|it| Nameless::of_group(&mut it.1));
    nameless::set_callers(trace, &summing, timing, nameless.collect())?;
    Ok(groups)
}

/// Finds the changes over the recording, by probe.
fn changes(
    trace: &Trace,
    options: &ExplainOptions,
    (items, sections): (&Items, &[Section]),
    timing: &Timing<'_>,
) -> Result<Vec<Vec<Change>>, ReadError> {
    let mut changes: Vec<Vec<Change>> = vec![Vec::new(); items.probes.len()];
    let wholes = sections.iter().filter(|it| it.labels.is_empty());
    let found = wholes.flat_map(|whole| when::changes(whole, items));
    let (found, sections): (Vec<Change>, Vec<Section>) =
        found.map(|it| (it.change, it.section)).unzip();
    let summing = sum(trace, items, &sections, (timing, &[]))?;
    let names = names(trace, &summing.sums)?;
    let naming = Naming {
        names: &names,
        states: &summing.states,
        probes: &trace.info.probes,
    };
    let wait_stacks = WaitStacks::read(trace, &summing.sums)?;
    let threads = Threads {
        names: &summing.actors,
        items,
        since_later: trace.info.waits_from_ns().is_some(),
    };
    let mut gaps = Vec::new();
    for sums in &summing.sums {
        let classes = (&sums.slow, &sums.typical);
        let mut gap = contrast::gap(classes, &timing.further, &naming, options.top);
        if let Some(gap) = &mut gap {
            wait_stacks.set_blocking(gap, &sums.slow, &naming, threads);
        }
        gaps.push(gap);
    }
    paths::divide(
        trace,
        &summing,
        timing,
        gaps.iter_mut().map(Option::as_mut).collect(),
    )?;
    let of_gaps = gaps.iter_mut().map(Option::as_mut).collect();
    blocked::follow(trace, &summing, (&naming, timing), of_gaps)?;
    let nameless = gaps.iter_mut().map(|it| Nameless::of_gap(it.as_mut()));
    nameless::set_callers(trace, &summing, timing, nameless.collect())?;
    for ((mut change, section), gap) in found.into_iter().zip(&sections).zip(gaps) {
        // Of items that were not kept nothing is known.
        change.gap = gap.filter(|_| trace.info.keep.is_none());
        changes[usize::from(section.probe)].push(change);
    }
    Ok(changes)
}

/// Explains items that are slow by their time on the CPU: of each probe where these are not the slow ones, and of each
/// group of similar items where they are not slow among all.
fn explained_on_cpu(
    trace: &Trace,
    options: &ExplainOptions,
    mut items: Items,
    sections: &[Section],
    known: &like::Known,
    timing: &Timing<'_>,
    probes: &mut [ProbeExplanation],
) -> Result<(), ReadError> {
    let whole = |it: &&Section| it.labels.is_empty();
    let on_cpu = sections.iter().filter(whole);
    let on_cpu = on_cpu.filter_map(|it| it.by_cpu_time(&items));
    let also = like::Known::of(&on_cpu.collect::<Vec<_>>());
    let is_kept = trace.info.keep.is_some();
    let apart = sections.iter().filter_map(|it| match whole(&it) {
        // Items that were not kept are not slow by duration, and have no details.
        true if is_kept => None,
        true => it.on_cpu(&items),
        false => it
            .by_cpu_time(&items)
            .filter(|it| known.hides(it) && also.hides(it)),
    });
    let apart: Vec<Section> = apart.collect();
    if apart.is_empty() {
        return Ok(());
    }
    items.take_cpu_time();
    let candidates = vec![Vec::new(); apart.len()];
    for (probe, group) in explained(trace, options, &items, &apart, timing, &candidates)? {
        let probe = &mut probes[usize::from(probe)];
        if !group.labels.is_empty() {
            like::add(probe, group);
            continue;
        }
        let said = probe.whole.as_ref().and_then(|it| it.gap.as_ref());
        let is_said = said
            .zip(group.gap.as_ref())
            .is_some_and(|(said, gap)| is_mostly_same(said, gap));
        // Items that never ended are not explained.
        if !is_said && said.is_some() {
            probe.slow_on_cpu = Some(Box::new(group));
        }
    }
    Ok(())
}

/// Whether most of one gap has the same cause as most of another.
fn is_mostly_same(a: &Gap, b: &Gap) -> bool {
    let [a, b] = [a, b].map(|it| it.causes.first().filter(|it| it.figures.share >= 0.5));
    a.zip(b)
        .is_some_and(|(a, b)| a.kind == b.kind && a.function.is_same(&b.function))
}

/// Number of probes whose slow items have a function or a wait that no other item has.
#[cfg(test)]
fn with_only(trace: &Trace) -> usize {
    let items = Items::read(trace, &ExplainOptions::default()).unwrap();
    let probes = 0..items.probes.len() as u16;
    let sections: Vec<Section> = probes
        .filter_map(|probe| groups::of_probe(probe, &items, &[], None).whole)
        .collect();
    let candidates: Vec<Vec<u32>> = sections
        .iter()
        .map(|it| kinds::candidates(it, &items))
        .collect();
    let timing = Timing::of(&trace.info);
    let summing = sum(trace, &items, &sections, (&timing, &candidates)).unwrap();
    let names = names(trace, &summing.sums).unwrap();
    let naming = Naming {
        names: &names,
        states: &summing.states,
        probes: &trace.info.probes,
    };
    let each = sections.iter().zip(&summing.sums).zip(&candidates);
    let said = each.filter(|((section, sums), candidates)| {
        let context = kinds::KindContext {
            items: &items,
            section,
            sums,
            rows: &summing.rows,
            naming: &naming,
            stand_ins: names.by_kernel_entry(),
            complete: true,
        };
        context.any_only(candidates)
    });
    said.count()
}

/// Explains one item of a trace.
///
/// Cost: as [`explain`], and `samples` once.
///
/// # Errors
/// As [`explain`], and if there is no such item.
pub(crate) fn explain_item(
    trace: &Trace,
    options: &ExplainOptions,
    which: ItemChoice,
) -> Result<ItemReport, ExplainError> {
    let group_by = columns(trace, options)?;
    if options.slow.is_some_and(|it| it.by == RankBy::CpuTime) {
        return Err(ExplainError::OneByCpuTime);
    }
    let items = read(trace, options)?;
    item::report(trace, options, &items, &group_by, which)
}

fn columns(trace: &Trace, options: &ExplainOptions) -> Result<Vec<GroupColumn>, ExplainError> {
    probe::check(trace, options.probe)?;
    let name = || trace.dir.display().to_string();
    let arguments = &trace.info.columns;
    let find = |typed: &String| {
        let argument = arguments.iter().position(|it| it.name == *typed);
        let machine = MACHINE.iter().find(|it| it.0 == typed).map(|it| it.1);
        argument
            .map(GroupColumn::Argument)
            .or(machine)
            .ok_or_else(|| {
                let known = arguments.iter().map(|it| it.name.as_str());
                let mut known: Vec<&str> = known.chain(MACHINE.iter().map(|it| it.0)).collect();
                let score =
                    |it: &str| strsim::jaro_winkler(&typed.to_lowercase(), &it.to_lowercase());
                known.sort_by(|a, b| score(b).total_cmp(&score(a)));
                ExplainError::NoColumn {
                    trace: name(),
                    column: typed.clone(),
                    known: known.into_iter().map(str::to_owned).collect(),
                }
            })
    };
    let columns = options
        .group_by
        .iter()
        .map(find)
        .collect::<Result<Vec<_>, _>>()?;
    if let (Some(keep), Some(column)) = (&trace.info.keep, options.group_by.first()) {
        return Err(ExplainError::NotKept {
            trace: name(),
            column: column.clone(),
            kept: keep.keep.clone(),
        });
    }
    Ok(columns)
}

fn read(trace: &Trace, options: &ExplainOptions) -> Result<Items, ExplainError> {
    let items = Items::read(trace, options)?;
    if !items.all.is_empty() {
        return Ok(items);
    }
    let visits: u64 = items.probes.iter().map(|it| it.visits).sum();
    let lost: u64 = items.probes.iter().map(|it| it.left_out.loss).sum();
    let of = items.probes.first();
    let never = of.and_then(|it| never_ended(it.specs.first(), it.visits, it.left_out.open));
    let trace_name = || trace.dir.display().to_string();
    if let (true, Some(ended)) = (visits > 0 && lost == 0, never) {
        return Err(ExplainError::NeverEnded {
            trace: trace_name(),
            ended,
        });
    }
    Err(ExplainError::NoItems {
        trace: trace_name(),
        reason: match (visits, lost) {
            (0, _) => NoItems::NoVisits,
            (_, 0) => NoItems::NoneEnded { visits },
            _ => NoItems::NoneWhole { visits },
        },
    })
}

fn notes(info: &RunInfo, items: &Items) -> Vec<Note> {
    let mut notes: Vec<Note> = no_paths(info).into_iter().collect();
    if !info.switches {
        notes.push(Note::NoSwitches);
    }
    notes.extend(info.waits_from_ns().map(Note::WaitsFrom));
    notes.extend(info.beating().map(|it| {
        let probe = info.probes.iter().find(|probe| probe.id == it.probe_id);
        Note::Beats {
            spec: probe.map_or_else(String::new, |probe| probe.spec.to_string()),
            percent: (it.off * 100.0).round() as u32,
        }
    }));
    if items.unit == Unit::Item && items.probes.iter().any(|it| it.probe_ids.len() > 1) {
        notes.push(Note::Stages);
    }
    notes
}

/// Turns sums into groups.
struct Explaining<'a> {
    info: &'a RunInfo,
    items: &'a Items,
    timing: &'a Timing<'a>,
    naming: Naming<'a>,
    wait_stacks: WaitStacks,
    top: usize,
    rows: &'a Rows,
    threads: Threads<'a>,
}

impl Explaining<'_> {
    fn group(&self, section: &Section, sums: &GroupSums, candidates: &[u32]) -> Group {
        let slow = self.slow(section, sums);
        let typical = slow.as_ref().and_then(|_| self.typical(section, sums));
        let is_slow: Vec<bool> = section
            .classes
            .iter()
            .map(|it| *it == Class::Slow)
            .collect();
        let classes = (&sums.slow, &sums.typical);
        let further = &self.timing.further;
        let mut gap =
            contrast::gap(classes, further, &self.naming, self.top).filter(|_| typical.is_some());
        if let Some(gap) = &mut gap {
            self.wait_stacks
                .set_blocking(gap, &sums.slow, &self.naming, self.threads);
        }
        let of = &self.items.probes[usize::from(section.probe)];
        let never_ended = never_ended(of.specs.first(), of.visits, of.left_out.open);
        let mostly_ended = never_ended.is_none();
        // If most visits never ended, the few that did are no fair sample.
        gap = gap.filter(|_| mostly_ended);
        // Of time on the CPU there is nothing to split.
        let split = gap
            .as_ref()
            .filter(|_| self.items.by == RankBy::Duration)
            .and_then(|_| contrast::on_and_off(&sums.slow, &sums.typical));
        let is_off_cpu = split.is_some_and(|it| it[0].share.abs() < LEAST_ON_CPU);
        let too_little = slow
            .as_ref()
            .and_then(|slow| self.too_little(section, (slow, is_off_cpu), typical.as_ref()));
        let too_little = never_ended.map(TooLittle::NeverEnded).or(too_little);
        let context = kinds::KindContext {
            items: self.items,
            section,
            sums,
            rows: self.rows,
            naming: &self.naming,
            stand_ins: self.naming.names.by_kernel_entry(),
            complete: self.info.keep.is_none(),
        };
        let (kinds, only_slow) = if gap.is_some() && !candidates.is_empty() {
            (context.kinds(candidates), context.only_slow())
        } else {
            (Vec::new(), Vec::new())
        };
        let [switches, faults] = [self.info.switches, self.info.page_faults];
        let known = [switches, switches, faults];
        Group {
            labels: section.labels.clone(),
            by: self.items.by,
            items: section.members.len() as u64,
            duration: section.summary.quantiles,
            because: if mostly_ended {
                stump::because(&section.members, &is_slow, self.items)
            } else {
                Vec::new()
            },
            counts: if gap.is_some() && self.info.keep.is_none() {
                contrast::counts(&sums.slow, &sums.typical, &sums.all.counts, known)
            } else {
                Vec::new()
            },
            interference: if gap.is_some() && self.info.keep.is_none() {
                contrast::interference(sums)
            } else {
                Vec::new()
            },
            slow,
            typical,
            counted_events: Vec::new(),
            further: match &gap {
                Some(_) => contrast::further(classes, further),
                None => Vec::new(),
            },
            own: self.own_times(section, sums),
            on_cpu: split.map(|it| it[0]),
            off_cpu: split.map(|it| it[1]),
            kinds,
            only_slow,
            gap,
            too_little,
            variance: if self.info.keep.is_none() && mostly_ended {
                variance::divide(
                    &sums.all,
                    &self.naming,
                    self.top,
                    self.info.own_time.is_some(),
                )
            } else {
                None
            },
        }
    }

    fn slow(&self, section: &Section, sums: &GroupSums) -> Option<Slow> {
        let limit = section.summary.limit.as_ref()?;
        let slow = section.slow().map(|it| &self.items.all[it as usize]);
        let (mut count, mut without) = (0, 0);
        for item in slow {
            count += 1;
            without += u64::from(!item.has_details());
        }
        let mean = sums.slow.latency.total() / sums.slow.items.total();
        Some(Slow {
            rule: limit.rule.clone(),
            items: count,
            from_ns: section.summary.slow_range_ns?.0,
            to_ns: section.summary.slow_range_ns?.1,
            others_up_to_ns: section.summary.others_up_to_ns,
            between: limit.between,
            without_details: without,
            mean_ns: mean.is_finite().then_some(mean),
            samples: sums.slow.samples,
        })
    }

    /// pebs-trace's mean own time by class; `None` if unknown.
    fn own_times(&self, section: &Section, sums: &GroupSums) -> Option<OwnTimes> {
        self.info.own_time.as_ref()?;
        let all = section.members.iter();
        let all = all.map(|it| self.items.all[*it as usize].own_ns as f64);
        let mean = |class: &ClassSums| {
            let mean = class.own.total() / class.items.total();
            Some(mean).filter(|it| it.is_finite())
        };
        Some(OwnTimes {
            all_ns: all.sum::<f64>() / section.members.len() as f64,
            slow_ns: mean(&sums.slow),
            // Unknown for items that were not kept.
            typical_ns: mean(&sums.typical).filter(|_| self.info.keep.is_none()),
        })
    }

    fn typical(&self, section: &Section, sums: &GroupSums) -> Option<Typical> {
        let typical = &sums.typical;
        let (rule, range_ns) = match self.info.keep {
            Some(_) if section.labels.is_empty() => (TypicalRule::NotKept, typical.range_ns),
            _ => (TypicalRule::MiddleHalf, Some(section.summary.middle_half())),
        };
        let (from_ns, to_ns) = range_ns.or_else(|| {
            let others = section.summary.others_up_to_ns?;
            Some((0, others))
        })?;
        let items = typical.items.total();
        (items > 0.0).then(|| Typical {
            rule,
            items: items as u64,
            from_ns,
            to_ns,
            mean_ns: typical.latency.total() / items,
            samples: typical.samples,
        })
    }

    /// Whether every slow item shared its thread with other open items, without marks of its turns.
    fn all_shared(&self, section: &Section) -> bool {
        let mut slow = section.slow().map(|it| &self.items.all[it as usize]);
        slow.all(|it| it.flags & visit_flag::TIME_SHARED != 0)
    }

    /// Why the gap, or part of it, can't be explained. `is_off_cpu`: hardly any of it is time on the CPU.
    fn too_little(
        &self,
        section: &Section,
        (slow, is_off_cpu): (&Slow, bool),
        typical: Option<&Typical>,
    ) -> Option<TooLittle> {
        if slow.without_details == slow.items {
            return Some(match &self.info.keep {
                Some(keep) if keep.keep == "none" => TooLittle::NothingKept,
                _ if self.all_shared(section) => TooLittle::SharedThread,
                _ => TooLittle::NoSlowDetails,
            });
        }
        if typical.is_none() {
            return Some(TooLittle::NoTypicalDetails);
        }
        if let Some(reason) = &self.timing.reason {
            return Some(TooLittle::NoFunctionTimes(reason.clone()));
        }
        if slow.samples < MIN_SAMPLES && !is_off_cpu {
            return Some(TooLittle::FewSamples(slow.samples));
        }
        let known = slow.items - slow.without_details;
        (known < MIN_ITEMS as u64).then_some(TooLittle::FewSlowItems(known))
    }
}
