//! Call paths of the visits of a page, for its flame graph.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::parts::Parts;
use crate::compare::load;
use crate::compare::load::{Visit, Weight};
use crate::compare::paths::Paths;
use crate::compare::rows::samples;
use crate::compare::select::VisitSet;
use crate::store::reader::{ReadError, Trace};
use crate::units::EventId;

/// Largest number of call paths by samples, and again by time of waits. Other paths are reduced to their function.
const MOST_PATHS: usize = 4_000;

/// Samples and waits by call path; empty if the trace has no call stacks.
#[derive(Debug, Default, Serialize)]
pub(super) struct Flame {
    /// Functions of each path, as numbers of parts, the outermost first.
    paths: Vec<Vec<usize>>,
    /// Rows of visit i are at `at[i]..at[i + 1]`.
    at: Vec<usize>,
    path: Vec<usize>,
    samples: Vec<u32>,
    waits: WaitPaths,
}

/// Time off the CPU by the call path that blocked: `at` as in [`Flame`].
#[derive(Debug, Default, Serialize)]
struct WaitPaths {
    at: Vec<usize>,
    /// The wait as the visit's sums have it.
    part: Vec<usize>,
    path: Vec<usize>,
    ns: Vec<i64>,
    waits: Vec<u32>,
}

/// For each visit the values by path: samples, or time and number of waits.
type Counts<K, V> = FxHashMap<u64, FxHashMap<K, V>>;

/// Call paths on a page.
struct PagePaths<'a> {
    paths: &'a mut Paths,
    /// Their numbers on the page.
    numbers: FxHashMap<u32, usize>,
}

impl Flame {
    /// Reads the samples of an event in these visits, which are those of the set, and also the waits if the weight is
    /// time.
    pub(super) fn read(
        trace: &Trace,
        weight: Weight<'_>,
        (visits, set): (&[Visit], &VisitSet),
        parts: &mut Parts<'_>,
    ) -> Result<Self, ReadError> {
        let mut flame = Self::default();
        if trace.info.call_graph.is_none() {
            return Ok(flame);
        }
        let mut on_page = PagePaths {
            paths: &mut Paths::read(trace)?,
            numbers: FxHashMap::default(),
        };
        flame.read_samples(trace, weight, visits, set, &mut on_page, parts)?;
        if weight.is_time() {
            flame.read_waits(trace, visits, set, &mut on_page, parts)?;
        }
        Ok(flame)
    }

    fn read_samples(
        &mut self,
        trace: &Trace,
        weight: Weight<'_>,
        visits: &[Visit],
        set: &VisitSet,
        on_page: &mut PagePaths<'_>,
        parts: &mut Parts<'_>,
    ) -> Result<(), ReadError> {
        let mut counts: Counts<u32, u32> = FxHashMap::default();
        let mut sums: FxHashMap<u32, u64> = FxHashMap::default();
        samples(trace, EventId(weight.event()), |visit, function, stack| {
            if set.contains(visit) {
                let path = on_page.paths.of(stack, function);
                *counts.entry(visit).or_default().entry(path).or_default() += 1;
                *sums.entry(path).or_default() += 1;
            }
        })?;
        self.add_largest(on_page, sums, parts);
        for visit in visits {
            self.at.push(self.path.len());
            let own = counts.remove(&visit.visit_id).unwrap_or_default();
            let own = own.into_iter().filter_map(|(path, samples)| {
                let number = on_page.numbers.get(&path)?;
                Some((*number, samples))
            });
            let mut own: Vec<(usize, u32)> = own.collect();
            own.sort_unstable();
            for (path, samples) in own {
                self.path.push(path);
                self.samples.push(samples);
            }
        }
        self.at.push(self.path.len());
        Ok(())
    }

    fn read_waits(
        &mut self,
        trace: &Trace,
        visits: &[Visit],
        set: &VisitSet,
        on_page: &mut PagePaths<'_>,
        parts: &mut Parts<'_>,
    ) -> Result<(), ReadError> {
        let mut counts: Counts<(usize, u32), (i64, u32)> = FxHashMap::default();
        let mut sums: FxHashMap<u32, u64> = FxHashMap::default();
        load::waits(trace, set, |wait| {
            let Some(path) = wait.stack.and_then(|stack| on_page.paths.of_wait(stack)) else {
                return;
            };
            let part = parts.number(wait.function, Some(&wait.state));
            let of_visit = counts.entry(wait.visit_id).or_default();
            let own = of_visit.entry((part, path)).or_default();
            own.0 = own.0.saturating_add(wait.ns());
            own.1 += 1;
            let sum = sums.entry(path).or_default();
            *sum = sum.saturating_add(wait.ns().unsigned_abs());
        })?;
        self.add_largest(on_page, sums, parts);
        let rows = &mut self.waits;
        for visit in visits {
            rows.at.push(rows.path.len());
            let own = counts.remove(&visit.visit_id).unwrap_or_default();
            let own = own.into_iter().filter_map(|((part, path), took)| {
                let number = on_page.numbers.get(&path)?;
                Some((part, *number, took))
            });
            let mut own: Vec<(usize, usize, (i64, u32))> = own.collect();
            own.sort_unstable();
            for (part, path, (ns, waits)) in own {
                rows.part.push(part);
                rows.path.push(path);
                rows.ns.push(ns);
                rows.waits.push(waits);
            }
        }
        rows.at.push(rows.path.len());
        Ok(())
    }

    /// Adds the largest of these paths.
    fn add_largest(
        &mut self,
        on_page: &mut PagePaths<'_>,
        sums: FxHashMap<u32, u64>,
        parts: &mut Parts<'_>,
    ) {
        let mut largest: Vec<(u32, u64)> = sums.into_iter().collect();
        largest.retain(|(path, _)| on_page.paths.get(*path).known);
        largest.sort_unstable_by_key(|(path, sum)| (Reverse(*sum), *path));
        largest.truncate(MOST_PATHS);
        for (path, _) in largest {
            on_page.numbers.entry(path).or_insert_with(|| {
                let frames = on_page.paths.get(path).frames.iter().rev();
                let frames = frames.map(|function| parts.number(Some(*function), None));
                self.paths.push(frames.collect());
                self.paths.len() - 1
            });
        }
    }
}
