//! Call paths of the visits of a page, from which it draws its flame graph.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::data::Parts;
use crate::analysis::paths::Paths;
use crate::analysis::rows::samples;
use crate::export::load::Visit;
use crate::export::select::VisitSet;
use crate::store::reader::{ReadError, Trace};
use crate::units::EventId;

/// Call paths on a page: those with the most samples. Of the samples of others only the function is told.
const MOST_PATHS: usize = 4_000;

/// Samples by call path; empty if the trace has no call stacks.
#[derive(Debug, Default, Serialize)]
pub(super) struct Flame {
    /// Functions of each path, as numbers of parts, the outermost first.
    paths: Vec<Vec<usize>>,
    /// Rows `at[i]..at[i + 1]` are those of visit i.
    at: Vec<usize>,
    path: Vec<usize>,
    samples: Vec<u32>,
}

impl Flame {
    /// Reads the samples of an event in these visits, which are those of the set.
    pub(super) fn read(
        trace: &Trace,
        event: u8,
        (visits, set): (&[Visit], &VisitSet),
        parts: &mut Parts<'_>,
    ) -> Result<Self, ReadError> {
        let mut flame = Self::default();
        if trace.info.call_graph.is_none() {
            return Ok(flame);
        }
        let mut paths = Paths::read(trace)?;
        let mut counts: FxHashMap<u64, FxHashMap<u32, u32>> = FxHashMap::default();
        let mut sums: FxHashMap<u32, u64> = FxHashMap::default();
        samples(trace, EventId(event), |visit, function, stack| {
            if set.contains(visit) {
                let path = paths.of(stack, function);
                *counts.entry(visit).or_default().entry(path).or_default() += 1;
                *sums.entry(path).or_default() += 1;
            }
        })?;
        let mut told: Vec<(u32, u64)> = sums.into_iter().collect();
        told.retain(|(path, _)| paths.get(*path).known);
        told.sort_unstable_by_key(|(path, samples)| (Reverse(*samples), *path));
        told.truncate(MOST_PATHS);
        let mut numbers = FxHashMap::default();
        for (path, _) in told {
            numbers.insert(path, flame.paths.len());
            let frames = paths.get(path).frames.iter().rev();
            let frames = frames.map(|function| parts.number(Some(*function), None));
            flame.paths.push(frames.collect());
        }
        for visit in visits {
            flame.at.push(flame.path.len());
            let own = counts.remove(&visit.visit_id).unwrap_or_default();
            let own = own.iter().filter_map(|(path, samples)| {
                let number = numbers.get(path)?;
                Some((*number, *samples))
            });
            let mut own: Vec<(usize, u32)> = own.collect();
            own.sort_unstable();
            for (path, samples) in own {
                flame.path.push(path);
                flame.samples.push(samples);
            }
        }
        flame.at.push(flame.path.len());
        Ok(flame)
    }
}
