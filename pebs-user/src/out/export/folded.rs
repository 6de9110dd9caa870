//! Stacks in one line each, as flame graph tools read them: `probe;function;... weight`.
//!
//! Weight: [`Weight::words`](crate::compare::load::Weight::words). A wait is a frame `[sleeping]` on top of the function in
//! which the thread blocked, so the weights of a visit add up to its duration. Memory: a number for each stack.
//!
//! Where the trace has call stacks, a function's sum over the visits of a probe is divided among the stacks of its
//! samples.

use std::collections::BTreeMap;
use std::io::Write;

use rustc_hash::FxHashMap;

use super::Input;
use super::stacks::Shares;
use crate::compare::load;
use crate::compare::select::VisitSet;
use crate::compare::select::error::ExportError;
use crate::terminal::shown;

/// Suffix of kernel functions, by which flame graph tools colour them.
const KERNEL_SUFFIX: &str = "_[k]";

/// Weights of a set of visits.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// Number of the probe and weight of each stack.
    pub stacks: BTreeMap<String, (u16, f64)>,
    /// Visits that have functions, by probe.
    pub visits: BTreeMap<u16, u64>,
}

impl Sums {
    /// Visits of all probes.
    pub(super) fn all_visits(&self) -> u64 {
        self.visits.values().sum()
    }
}

/// Writes a line for each stack.
pub(super) fn write(input: &Input<'_>, out: &mut dyn Write) -> Result<(), ExportError> {
    for (stack, (_, weight)) in sums(input, &input.chosen.visits, Measure::Own)?.stacks {
        if weight.round() >= 1.0 {
            writeln!(out, "{stack} {weight:.0}")?;
        }
    }
    Ok(())
}

/// Weight of functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// By their estimates in each visit: parts of a visit add up.
    Own,
    /// Events or time that their samples stand for: unbiased in the mean over visits, however short.
    Counted,
}

/// Key of a sum: probe, function, and for a wait its state and call stack.
type Key = (u16, Option<u32>, Option<u8>, Option<u32>);

/// Weights of a set of visits.
pub(super) fn sums(
    input: &Input<'_>,
    set: &VisitSet,
    measure: Measure,
) -> Result<Sums, ExportError> {
    let mut probes: FxHashMap<u64, u16> = FxHashMap::default();
    let mut visits: BTreeMap<u16, u64> = BTreeMap::new();
    load::probes(input.trace, set, |visit, probe, condensed| {
        // With a single probe the probe of each visit is known.
        if input.trace.info.probes.len() > 1 {
            probes.insert(visit, probe);
        }
        *visits.entry(probe).or_default() += u64::from(!condensed);
    })?;
    let only = input
        .trace
        .info
        .probes
        .first()
        .map_or(0, |probe| probe.id.0);
    let probe = |visit: u64| probes.get(&visit).copied().unwrap_or(only);
    let mut sums: FxHashMap<Key, f64> = FxHashMap::default();
    load::functions(input.trace, set, |row| {
        let weight = match measure {
            Measure::Own => input.weight.get(&row),
            Measure::Counted => input.weight.events(&row),
        };
        if let Some(weight) = weight {
            let key = (probe(row.visit_id), Some(row.function_id.0), None, None);
            *sums.entry(key).or_default() += weight;
        }
    })?;
    let mut states: Vec<String> = Vec::new();
    if input.weight.is_time() {
        load::waits(input.trace, set, |wait| {
            let known = states.iter().position(|state| *state == wait.state);
            let state = known.unwrap_or_else(|| {
                states.push(wait.state.clone());
                states.len() - 1
            });
            // The table has five.
            let state = u8::try_from(state).unwrap_or(u8::MAX);
            let key = (probe(wait.visit_id), wait.function, Some(state), wait.stack);
            *sums.entry(key).or_default() += wait.ns() as f64;
        })?;
    }
    let shares = Shares::read(input.trace, set, input.weight.event(), |sample| {
        (probe(sample.visit_id), Some(sample.function), None, None)
    })?;
    let mut stacks: BTreeMap<String, (u16, f64)> = BTreeMap::new();
    for (key, weight) in sums {
        let (probe, function, state, stack) = key;
        for share in shares.split(&key, 0, weight) {
            let mut frames = vec![frame(&input.probes.label(probe))];
            let path = match state {
                None => input.stacks.path(share.stack, function),
                Some(_) => input.stacks.wait_path(stack, function),
            };
            frames.extend(path.into_iter().map(|function| named(input, function)));
            if let Some(state) = state {
                frames.push(format!("[{}]", frame(&states[usize::from(state)])));
            }
            let sum = stacks.entry(frames.join(";")).or_insert((probe, 0.0));
            sum.1 += share.weight;
        }
    }
    Ok(Sums { stacks, visits })
}

/// A function as a frame.
fn named(input: &Input<'_>, function: Option<u32>) -> String {
    let known = function.and_then(|id| input.functions.get(id));
    let is_kernel = known.is_some_and(|function| function.kernel);
    let suffix = if is_kernel { KERNEL_SUFFIX } else { "" };
    frame(&(input.name(function) + suffix))
}

/// A name without characters that would end a frame or a line, or be parsed as a weight.
fn frame(name: &str) -> String {
    let name = shown(name).replace(';', ",");
    match name.rsplit_once(char::is_whitespace) {
        Some((head, tail)) if tail.parse::<f64>().is_ok() => format!("{head}_{tail}"),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that contain the format's own characters are escaped.
    #[test]
    fn frames() {
        let names = [
            "<[u8; 4]>::f",
            "f 12",
            "a\nb 3",
            "operator new",
            "größe 1e3",
        ]
        .map(frame);
        let expect = [
            "<[u8, 4]>::f",
            "f_12",
            "a\\nb_3",
            "operator new",
            "größe_1e3",
        ];
        assert_eq!(names, expect);
    }
}
