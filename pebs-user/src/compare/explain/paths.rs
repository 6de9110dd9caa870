//! Divides the share of a function in the gap among its call paths.
//!
//! Samples are read twice: first to find the call paths with enough samples to be distinguished, then for their sums.
//! So only those need memory. The other paths get the remainder of the function, so that the shares of its paths sum
//! to its own.

use std::{iter, slice};

use rustc_hash::{FxHashMap, FxHashSet};

use super::contrast::{Contrast, Part, enough};
use super::model::{CallPath, Cause, CauseType, Gap};
use super::sums::Summing;
use crate::compare::classes::Class;
use crate::compare::explain::keys::Key;
use crate::compare::explain::timing::Timing;
use crate::compare::names::Names;
use crate::compare::paths::{Path, Paths, Weights};
use crate::compare::remarks::Note;
use crate::compare::rows::samples;
use crate::store::reader::{ReadError, Trace};
use crate::store::run::RunInfo;
use crate::units::FunctionId;
use pebs_stats::blocks::Blocks;

/// Call paths listed for one function.
const MOST_PATHS: usize = 5;

/// Least share of the gap of a listed call path, as for causes.
const LEAST_SHARE: f64 = 0.005;

/// A section and a call path.
type Place = (u16, u32);

/// Divides the functions among the causes of these gaps, one for each section, by call path. Does nothing if the trace
/// has no call stacks, or lacks the details of typical items.
pub(super) fn divide(
    trace: &Trace,
    summing: &Summing<'_>,
    timing: &Timing<'_>,
    mut gaps: Vec<Option<&mut Gap>>,
) -> Result<(), ReadError> {
    let Some(event) = timing.event.filter(|_| timing.reason.is_none()) else {
        return Ok(());
    };
    let wanted = gaps.iter().map(|gap| wanted(gap.as_deref()));
    let wanted: Vec<FxHashSet<u32>> = wanted.collect();
    let any: FxHashSet<u32> = wanted.iter().flatten().copied().collect();
    if trace.info.call_graph.is_none() || trace.info.keep.is_some() || any.is_empty() {
        return Ok(());
    }
    let mut paths = Paths::read(trace)?;
    let mut counts: FxHashMap<Place, (u64, u64)> = FxHashMap::default();
    let mut turn = 0;
    samples(trace, event.id, |visit, function, stack| {
        turn += 1;
        if any.contains(&function) {
            let path = paths.of(stack, function);
            summing.classes_of(visit, |section, (class, _), share| {
                let is_counted = class != Class::Between;
                if is_counted && wanted[usize::from(section)].contains(&function) {
                    let count = counts.entry((section, path)).or_default();
                    let one = share.count(1, turn);
                    count.0 += if class == Class::Slow { one } else { 0 };
                    count.1 += if class == Class::Typical { one } else { 0 };
                }
            });
        }
    })?;
    let mut found: FxHashMap<(u16, Option<u32>), u64> = FxHashMap::default();
    for (section, path) in counts.keys() {
        *found
            .entry((*section, paths.get(*path).function()))
            .or_default() += 1;
    }
    counts.retain(|(section, _), count| {
        let sums = &summing.sums[usize::from(*section)];
        enough((&sums.slow, &sums.typical), *count)
    });
    let weights = Weights::read(trace, event)?;
    let mut parts: FxHashMap<Place, Part> = FxHashMap::default();
    turn = 0;
    samples(trace, event.id, |visit, function, stack| {
        turn += 1;
        if any.contains(&function) {
            let path = paths.of(stack, function);
            summing.classes_of(visit, |section, (class, block), share| {
                if counts.contains_key(&(section, path)) {
                    let part = parts.entry((section, path)).or_default();
                    let events = weights.of(visit, function) * share.of_whole();
                    part.add(class, block, (events, share.count(1, turn)));
                }
            });
        }
    })?;
    let frames = counts
        .keys()
        .flat_map(|(_, path)| paths.get(*path).callers());
    let names = Names::of(trace, frames.copied())?;
    for (section, gap) in (0..).zip(&mut gaps) {
        let Some(gap) = gap else { continue };
        let sums = &summing.sums[usize::from(section)];
        let dividing = Dividing {
            contrast: Contrast::new(&sums.slow, &sums.typical),
            gap_ns: gap.gap_ns,
            names: &names,
        };
        let causes = gap.causes.iter_mut().flat_map(alone_or_members);
        for cause in causes {
            let Some(function) = function(cause) else {
                continue;
            };
            let own = parts.iter().filter(|((of, _), _)| *of == section);
            let own = own.map(|((_, path), part)| (*path, paths.get(*path), part));
            let own = own.filter(|(_, path, _)| path.function() == Some(function));
            let total = |keys: &FxHashMap<Key, (Blocks, u64)>| {
                let found = keys.get(&Key::Function(FunctionId(function)));
                found.cloned().unwrap_or_default()
            };
            let (slow, typical) = (total(&sums.slow.keys), total(&sums.typical.keys));
            let whole = Part {
                slow: slow.0,
                typical: typical.0,
                samples: (slow.1, typical.1),
                ..Part::default()
            };
            let found = found.get(&(section, Some(function))).copied();
            dividing.cause(cause, own.collect(), (whole, found.unwrap_or(0)));
        }
    }
    Ok(())
}

/// Functions of a gap to be divided.
fn wanted(gap: Option<&Gap>) -> FxHashSet<u32> {
    let causes = gap.into_iter().flat_map(|gap| &gap.causes);
    let all = causes.flat_map(|it| iter::once(it).chain(&it.functions));
    all.filter_map(function).collect()
}

/// The cause itself, or its member functions.
fn alone_or_members(cause: &mut Cause) -> impl Iterator<Item = &mut Cause> {
    match cause.functions.is_empty() {
        true => slice::from_mut(cause).iter_mut(),
        false => cause.functions.iter_mut(),
    }
}

fn function(cause: &Cause) -> Option<u32> {
    let id = cause.function.function_id;
    id.filter(|_| cause.kind == CauseType::Function)
}

/// Dividing the causes of one gap.
struct Dividing<'a> {
    contrast: Contrast,
    gap_ns: f64,
    names: &'a Names,
}

impl Dividing<'_> {
    /// `whole`: all of the function, and the number of its call paths.
    fn cause(
        &self,
        cause: &mut Cause,
        mut paths: Vec<(u32, &Path, &Part)>,
        (whole, found): (Part, u64),
    ) {
        let share = |part: &Part| self.contrast.excess(part) / self.gap_ns;
        paths.sort_by(|a, b| {
            let order = share(b.2).abs().total_cmp(&share(a.2).abs());
            order.then(a.0.cmp(&b.0))
        });
        paths.retain(|(_, _, part)| share(part).abs() >= LEAST_SHARE);
        paths.truncate(MOST_PATHS);
        let mut rest = whole;
        for (_, _, part) in &paths {
            rest.take_away(part);
        }
        let left = found.saturating_sub(paths.len() as u64);
        cause.other_paths = Some(self.contrast.rest(left, &[&rest]));
        let listed = paths.iter();
        cause.paths = listed
            .map(|(_, path, part)| self.path(path, part))
            .collect();
    }

    fn path(&self, path: &Path, part: &Part) -> CallPath {
        let callers = path.callers().iter();
        CallPath {
            callers: callers.map(|id| self.names.get(Some(*id))).collect(),
            truncated: path.truncated,
            known: path.known,
            figures: self.contrast.figures(part),
        }
    }
}

/// Why the call stacks of a run do not show the callers of functions.
pub(crate) fn no_paths(info: &RunInfo) -> Option<Note> {
    let no_callers = info.call_graph.is_some() && info.keep.is_some();
    no_callers.then_some(Note::NoCallPaths)
}
