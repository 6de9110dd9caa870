//! Compares two traces: which function's time per item changed, and how certain that is.
//!
//! A function is the same in both if its name and the file name of its module are, where the probed binary may have
//! another name in each (`app-old`, `app-new`); functions named by their address, unless their module is the same build
//! in both, and those with few samples, are compared module by module. The time per item is estimated as in [`crate::compare::pool`], its error from 64 periods
//! of the run, or from 16 longer ones where that is larger (batch means); figures from few samples have at least the
//! error of counting so few.
//!
//! # Intervals
//!
//! change ± t x sqrt(error before² + error after²), with t such that all intervals of the comparison, those of counted
//! events included, hold at once in 95 of 100 (Bonferroni: with m figures each has 1 - 0.05 / m). So two runs of the
//! same build differ anywhere in at most one of twenty comparisons, if nothing but chance differs; a run on a warmer
//! machine is not the same, which is why a limit is better well above 0. Where samples beat with the items of a run,
//! functions have no interval ([`crate::compare::pool`]).
//!
//! # The limit
//!
//! A figure fails if its whole interval is above the limit: the time on the CPU per item and the median
//! duration relative to themselves, the time of a function or a wait per item relative to the mean duration
//! before. Mean and tail of durations and preemptions are shown only: other programs on the machine, and a
//! host that takes a CPU away, move them; the median moves only if half of the items do.
//!
//! *Worked number*: items of 100 us; f takes 20.0 +- 0.2 us before and 28.0 +- 0.2 us after. The change is
//! 8 us, its error 0.28 us, t = 3.3 for 50 figures: 7.1 .. 8.9 us, 7.1 .. 8.9 % of an item, above 5 %.

pub(in crate::compare) mod figures;
pub(crate) mod model;
#[cfg(test)]
mod tests;

use std::path::Path;

use pebs_stats::summary::normal_quantile;
use rustc_hash::{FxHashMap, FxHashSet};
use thiserror::Error;

use self::figures::{Figure, Name, PERIODS, ProbeFigures, as_rare};
use self::model::{
    Change, DIFF_VERSION, Diff, DurationDiff, Failed, HostPart, Note, ProbeDiff, RowDiff,
};
use super::classes::Class;
use super::counted;
use super::explain::contrast::Naming;
use super::explain::groups::Section;
use super::explain::items::Items;
use super::explain::model::CauseType;
use super::explain::sums::Summing;
use super::explain::{ExplainOptions, Unit};
use crate::compare::explain::timing::Timing;
use crate::compare::losses::LossVisits;
use crate::compare::names::{Names, file_name};
use crate::compare::pool::MIN_SAMPLES;
use crate::compare::remarks::TooLittle;
use crate::store::reader::{ReadError, Trace};
use crate::store::run::{CountedInfo, RunInfo};
use crate::store::view::{Select as _, View as _, columns};

/// Rows of the comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DiffRows {
    /// Functions.
    #[default]
    Function,
    /// Modules: binaries, libraries, the kernel.
    Module,
}

/// Options of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct DiffOptions {
    /// Rows to compare.
    pub by: DiffRows,
    /// Relative growth above which a figure fails.
    pub fail_above: Option<f64>,
    /// Visits that overlap a loss.
    pub losses: LossVisits,
}

/// Why there is no comparison.
#[derive(Debug, Error)]
pub(crate) enum DiffError {
    /// A trace can't be read.
    Read(#[from] ReadError),
    /// The traces have no probe in common.
    Probes {
        /// The trace before.
        before: String,
        /// The trace after.
        after: String,
        /// Their SPECs.
        specs: [Vec<String>; 2],
    },
    /// A trace has nothing to compare.
    Nothing { trace: String, reason: Nothing },
}

/// Why a trace has nothing to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Nothing {
    /// No probe has visits in both traces.
    NoPair,
    /// It has the details of some items only.
    Kept {
        /// `slow` or `none`.
        keep: String,
    },
    /// No visit ended.
    NoneEnded,
}

/// Compares two traces.
///
/// Cost: reads `visits`, `visit_functions`, `waits` and `functions` of both once.
///
/// # Errors
/// If one can't be read or has nothing to compare, or they have no probe in common.
pub(crate) fn diff(
    before: &Trace,
    after: &Trace,
    options: &DiffOptions,
) -> Result<Diff, DiffError> {
    let mut notes = Vec::new();
    let pairs = pairs(&before.info, &after.info, &mut notes).ok_or_else(|| {
        let specs = |trace: &Trace| {
            trace
                .info
                .probes
                .iter()
                .map(|it| it.spec.to_string())
                .collect()
        };
        DiffError::Probes {
            before: name(before),
            after: name(after),
            specs: [specs(before), specs(after)],
        }
    })?;
    compare_runs(&before.info, &after.info, &mut notes);
    let same = same_builds(before, after)?;
    let read = |trace| read(trace, options, &same);
    let mut figures = (read(before)?, read(after)?);
    for (from, to) in renamed(&before.info, &after.info, &pairs) {
        let known = |(_, it): &(u16, ProbeFigures)| it.has_module(&from);
        if !figures.0.iter().any(known) {
            figures.1.iter_mut().for_each(|it| it.1.rename(&from, &to));
        }
    }
    let mut drafts = Vec::new();
    for (old, new) in pairs {
        let found = (
            figures.0.iter().find(|it| it.0 == old),
            figures.1.iter().find(|it| it.0 == new),
        );
        if let (Some((_, old)), Some((_, new))) = found {
            drafts.push(Draft {
                old,
                new,
                rows: rows(old, new),
            });
        }
    }
    if drafts.is_empty() {
        return Err(DiffError::Nothing {
            trace: name(after),
            reason: Nothing::NoPair,
        });
    }
    let comparisons: usize = drafts.iter().map(Draft::comparisons).sum();
    let judge = Judge {
        t: t_quantile(0.025 / comparisons as f64),
        fail_above: options.fail_above,
    };
    let probes: Vec<ProbeDiff> = drafts.iter().map(|draft| draft.judged(&judge)).collect();
    if options.fail_above.is_some()
        && drafts
            .iter()
            .any(|it| it.old.durations[0].error.is_none() || it.new.durations[0].error.is_none())
    {
        notes.push(Note::TooFewItems);
    }
    for draft in &drafts {
        for (it, is_after) in [(draft.old, false), (draft.new, true)] {
            if it.beats() {
                notes.push(Note::Beats {
                    spec: it.spec.clone(),
                    is_after,
                });
            }
        }
    }
    Ok(Diff {
        diff_version: DIFF_VERSION,
        before: name(before),
        after: name(after),
        fail_above: options.fail_above,
        comparisons: comparisons as u64,
        failed: probes.iter().flat_map(failed).collect(),
        probes,
        notes,
    })
}

fn name(trace: &Trace) -> String {
    trace.dir.display().to_string()
}

/// SPEC with the file name of its binary only, so that builds in different places are the same.
pub(in crate::compare) fn place(spec: &str) -> String {
    match spec.split_once(':') {
        Some((binary, rest)) => {
            let file = Path::new(binary).file_name();
            format!(
                "{}:{rest}",
                file.map_or(binary.into(), |it| it.to_string_lossy())
            )
        }
        None => spec.to_owned(),
    }
}

/// SPEC without its binary and arguments.
fn function(spec: &str) -> &str {
    let rest = spec.split_once(':').map_or(spec, |it| it.1);
    rest.split(['(', '.']).next().unwrap_or(rest)
}

/// Numbers of the probes that are the same in both.
fn pairs(before: &RunInfo, after: &RunInfo, notes: &mut Vec<Note>) -> Option<Vec<(u16, u16)>> {
    let mut pairs = Vec::new();
    let mut left: Vec<_> = after.probes.iter().collect();
    for old in &before.probes {
        let same = |it: &&_| place(probe_spec(it)) == place(&old.spec);
        let alike = |it: &&_| function(probe_spec(it)) == function(&old.spec);
        let found = left.iter().position(same);
        let Some(at) = found.or_else(|| left.iter().position(alike)) else {
            notes.push(Note::OnlyBefore {
                spec: old.spec.to_string(),
            });
            continue;
        };
        let new = left.remove(at);
        if place(&new.spec) != place(&old.spec) {
            notes.push(Note::ProbesDiffer([
                old.spec.to_string(),
                new.spec.to_string(),
            ]));
        }
        pairs.push((old.id.0, new.id.0));
    }
    notes.extend(left.iter().map(|it| Note::OnlyAfter {
        spec: it.spec.to_string(),
    }));
    (!pairs.is_empty()).then_some(pairs)
}

/// File names of probed binaries after and before, where they differ.
fn renamed(before: &RunInfo, after: &RunInfo, pairs: &[(u16, u16)]) -> Vec<(String, String)> {
    let file = |run: &RunInfo, id: u16| {
        let probe = run.probes.iter().find(|it| it.id.0 == id)?;
        let path = Path::new(&probe.sites.first()?.path);
        Some(path.file_name()?.to_string_lossy().into_owned())
    };
    let names = |&(old, new): &(u16, u16)| Some((file(after, new)?, file(before, old)?));
    let mut renamed: Vec<_> = pairs.iter().filter_map(names).collect();
    renamed.retain(|(from, to)| from != to);
    renamed.sort();
    renamed.dedup_by(|a, b| a.0 == b.0);
    renamed
}

fn probe_spec(probe: &crate::store::run::ProbeInfo) -> &str {
    &probe.spec
}

/// Notes differences between two runs beside the target.
fn compare_runs(before: &RunInfo, after: &RunInfo, notes: &mut Vec<Note>) {
    let timing = (Timing::of(before).event, Timing::of(after).event);
    if let (Some(old), Some(new)) = timing {
        if old.name != new.name {
            notes.push(Note::EventsDiffer([old.name.clone(), new.name.clone()]));
        } else if old.reset != new.reset {
            notes.push(Note::ResetsDiffer([old.reset, new.reset]));
        }
    }
    let (old, new) = (&before.host, &after.host);
    for (what, old, new) in [
        (HostPart::Host, &old.name, &new.name),
        (HostPart::Kernel, &old.kernel, &new.kernel),
        (HostPart::Cpu, &old.cpu, &new.cpu),
    ] {
        if old != new {
            let values = [old.clone(), new.clone()];
            notes.push(Note::HostsDiffer { what, values });
        }
    }
    if before.switches != after.switches {
        notes.push(Note::SwitchesDiffer);
    }
    if !(before.switches && after.switches) {
        notes.push(Note::NoSwitches);
    }
    if before.keep != after.keep {
        notes.push(Note::KeptDiffers);
    }
}

columns! {
    struct Modules of functions { module, build_id }
}

/// Build id of each module of a trace, by its file name; `None` where there are several.
fn builds(trace: &Trace) -> Result<FxHashMap<String, Option<String>>, ReadError> {
    let mut builds: FxHashMap<String, Option<String>> = FxHashMap::default();
    for batch in Modules::scan(trace)? {
        let batch = batch?;
        let columns = Modules::of(&batch)?;
        for row in 0..batch.num_rows() {
            let (Some(module), Some(id)) = (columns.module.get(row), columns.build_id.get(row))
            else {
                continue;
            };
            let new = || Some(id.to_owned());
            let known = builds.entry(file_name(module).to_owned());
            let known = known.or_insert_with(new);
            if known.as_deref() != Some(id) {
                *known = None;
            }
        }
    }
    Ok(builds)
}

/// File names of the modules that are the same build in both traces.
fn same_builds(before: &Trace, after: &Trace) -> Result<FxHashSet<String>, ReadError> {
    let (mut before, after) = (builds(before)?, builds(after)?);
    before.retain(|module, id| id.is_some() && after.get(module) == Some(&*id));
    Ok(before.into_keys().collect())
}

/// Figures of every probe of a trace that has items, by its number. `same`: see [`ProbeFigures::new`].
fn read(
    trace: &Trace,
    options: &DiffOptions,
    same: &FxHashSet<String>,
) -> Result<Vec<(u16, ProbeFigures)>, DiffError> {
    if let Some(keep) = &trace.info.keep {
        return Err(DiffError::Nothing {
            trace: name(trace),
            reason: Nothing::Kept {
                keep: keep.keep.clone(),
            },
        });
    }
    let asked = ExplainOptions {
        unit: Some(Unit::Visit),
        losses: options.losses,
        ..ExplainOptions::default()
    };
    let mut items = Items::read(trace, &asked)?;
    items.divide(PERIODS);
    let mut sections = Vec::new();
    for probe in 0..items.probes.len() as u16 {
        let members =
            (0..items.all.len() as u32).filter(|&it| items.all[it as usize].probe == probe);
        let members: Vec<u32> = members.collect();
        if let Some(mut section) = Section::new((probe, Vec::new()), members, &items, None) {
            section.classes.fill(Class::Typical);
            sections.push(section);
        }
    }
    if sections.is_empty() {
        return Err(DiffError::Nothing {
            trace: name(trace),
            reason: Nothing::NoneEnded,
        });
    }
    let timing = Timing::of(&trace.info);
    let period = |items: &Items, item| usize::from(items.period(item));
    let mut summing = Summing::new(&items, &sections, period);
    if let (Some(event), None) = (timing.event, &timing.reason) {
        summing.functions(trace, event)?;
    }
    summing.waits(trace)?;
    let counted = crate::compare::explain::counted::sum(trace, &summing)?;
    let Summing { sums, states, .. } = summing;
    let ids = sums.iter().flat_map(|it| it.typical.keys.keys());
    let ids = ids.filter_map(|key| key.function().map(|id| id.0));
    let names = Names::of(trace, ids)?;
    let naming = Naming {
        names: &names,
        states: &states,
        probes: &trace.info.probes,
    };
    let each = sections.iter().zip(sums).zip(counted);
    let probes = each.map(|((section, sums), counted)| {
        let of = &items.probes[usize::from(section.probe)];
        let specs: String = of.specs.iter().map(|it| &**it).collect();
        let mut figures = ProbeFigures::new(
            specs,
            &section.members,
            &items,
            sums.typical,
            &naming,
            options.by,
            same,
        );
        figures.counted = (counted, trace.info.counted.clone());
        (of.probe_ids[0], figures)
    });
    Ok(probes.collect())
}

/// A function or wait in both traces.
type RowFigures = (Name, (Figure, u64), (Figure, u64));

/// Rows that both traces have; functions with few samples are merged by module.
fn rows(old: &ProbeFigures, new: &ProbeFigures) -> Vec<RowFigures> {
    let mut names: Vec<&Name> = old.rows.keys().chain(new.rows.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let of = |name: &Name| (old.figure(name), new.figure(name));
    let (mut rows, mut few): (Vec<RowFigures>, Vec<RowFigures>) = Default::default();
    for name in names {
        let (old, new) = of(name);
        let sampled = matches!(name.kind, CauseType::Function | CauseType::Module);
        if !sampled || old.1.max(new.1) >= MIN_SAMPLES {
            rows.push((name.clone(), old, new));
            continue;
        }
        let module = Name {
            kind: CauseType::Module,
            name: None,
            ..name.clone()
        };
        let add = |sum: &mut (Figure, u64), more: (Figure, u64)| {
            sum.0.ns += more.0.ns;
            // Samples of different functions are about independent.
            sum.0.error = sum.0.error.zip(more.0.error).map(|(a, b)| a.hypot(b));
            sum.1 += more.1;
        };
        match few.iter_mut().find(|it| it.0 == module) {
            Some(sum) => {
                add(&mut sum.1, old);
                add(&mut sum.2, new);
            }
            None => few.push((module, old, new)),
        }
    }
    for (name, old, new) in few {
        match rows.iter_mut().find(|it| it.0 == name) {
            Some(known) => {
                for (sum, more) in [(&mut known.1, old), (&mut known.2, new)] {
                    sum.0.ns += more.0.ns;
                    sum.0.error = sum.0.error.zip(more.0.error).map(|(a, b)| a.hypot(b));
                    sum.1 += more.1;
                }
            }
            None if old.1.max(new.1) >= MIN_SAMPLES => rows.push((name, old, new)),
            None => {}
        }
    }
    let items = (old.items as f64, new.items as f64);
    for (_, old, new) in &mut rows {
        as_rare(old, new, items);
    }
    rows
}

/// A quantile of Student's t with the degrees of freedom of two runs of [`PERIODS`] periods.
///
/// Source: Abramowitz and Stegun 26.7.5, the first term.
fn t_quantile(p: f64) -> f64 {
    let (z, degrees) = (normal_quantile(p), 2.0 * (PERIODS as f64 - 1.0));
    z + (z.powi(3) + z) / (4.0 * degrees)
}

/// Whether a figure of either kind can fail.
fn can_fail(kind: CauseType) -> bool {
    matches!(
        kind,
        CauseType::Function | CauseType::Module | CauseType::Wait
    )
}

/// A probe before and after.
struct Draft<'a> {
    old: &'a ProbeFigures,
    new: &'a ProbeFigures,
    rows: Vec<RowFigures>,
}

/// Computes intervals and verdicts.
struct Judge {
    t: f64,
    fail_above: Option<f64>,
}

impl Judge {
    /// Interval of the change of a counted event.
    fn counted(&self, ratios: [counted::Ratio<'_>; 2]) -> Option<(f64, f64)> {
        let figure = |it: &counted::Ratio<'_>| {
            let count = it.sum.total() as u64;
            (figures::ratio(it.sum, it.of, it.items), count)
        };
        let [mut old, mut new] = [0, 1].map(|at| figure(&ratios[at]));
        as_rare(
            &mut old,
            &mut new,
            (ratios[0].of.total(), ratios[1].of.total()),
        );
        let half = self.t * old.0.error?.hypot(new.0.error?);
        let (change, scale) = (new.0.ns - old.0.ns, ratios[0].scale);
        Some((scale * (change - half), scale * (change + half)))
    }

    fn change(&self, old: Figure, new: Figure, base: f64, can_fail: bool) -> Change {
        let change_ns = new.ns - old.ns;
        let half = old.error.zip(new.error).map(|(a, b)| self.t * a.hypot(b));
        let (low, high) = (half.map(|it| change_ns - it), half.map(|it| change_ns + it));
        let share = |ns: f64| if base > 0.0 { ns / base } else { 0.0 };
        Change {
            before_ns: old.ns,
            after_ns: new.ns,
            change_ns,
            change_low_ns: low,
            change_high_ns: high,
            share: share(change_ns),
            share_low: low.map(share),
            share_high: high.map(share),
            changed: low.is_some_and(|it| it > 0.0) || high.is_some_and(|it| it < 0.0),
            fails: can_fail
                && low
                    .zip(self.fail_above)
                    .is_some_and(|(low, limit)| share(low) > limit),
        }
    }
}

impl Draft<'_> {
    /// Number of figures with an interval: those of durations, functions and waits, and two for each counted event.
    fn comparisons(&self) -> usize {
        let before = &self.old.counted.1;
        let both = |event: &&CountedInfo| before.iter().any(|it| it.name == event.name);
        4 + self.rows.len() + 2 * self.new.counted.1.iter().filter(both).count()
    }

    fn judged(&self, judge: &Judge) -> ProbeDiff {
        let (old, new) = (self.old, self.new);
        let of = |it: &ProbeFigures| {
            let [mean, p50, p99] = it.durations;
            [
                ("mean", mean),
                ("on_cpu", it.on_cpu()),
                ("p50", p50),
                ("p99", p99),
            ]
        };
        let durations = of(old).into_iter().zip(of(new));
        let durations = durations.map(|((figure, old), (_, new))| DurationDiff {
            figure,
            change: judge.change(old, new, old.ns, matches!(figure, "on_cpu" | "p50")),
        });
        let base = old.durations[0].ns;
        let mut rows: Vec<RowDiff> = self
            .rows
            .iter()
            .map(|(name, old, new)| RowDiff {
                kind: name.kind,
                name: name.name.clone(),
                module: name.module.clone(),
                kernel: name.kernel,
                state: name.state.clone(),
                change: judge.change(old.0, new.0, base, can_fail(name.kind)),
                before_samples: old.1,
                after_samples: new.1,
            })
            .collect();
        rows.sort_by(|a, b| {
            let sure = b.change.changed.cmp(&a.change.changed);
            sure.then(
                b.change
                    .change_ns
                    .abs()
                    .total_cmp(&a.change.change_ns.abs()),
            )
        });
        let few = old.samples().min(new.samples());
        ProbeDiff {
            spec_before: old.spec.clone(),
            spec_after: new.spec.clone(),
            items_before: old.items,
            items_after: new.items,
            mean_before_ns: base,
            durations: durations.collect(),
            rows,
            counted_events: {
                let (counted, events) = &new.counted;
                let before = (&old.counted.0, &old.counted.1[..]);
                counted.change(events, before, &|it| judge.counted(it))
            },
            too_little: (few < MIN_SAMPLES).then_some(TooLittle::FewSamples(few)),
        }
    }
}

/// Figures that fail.
fn failed(probe: &ProbeDiff) -> Vec<Failed> {
    let durations = probe.durations.iter().filter(|it| it.change.fails);
    let rows = probe.rows.iter().filter(|it| it.change.fails);
    durations
        .map(|it| Failed::Duration(it.figure))
        .chain(rows.cloned().map(Failed::Row))
        .collect()
}
