//! Visits and waits as nested intervals, which viewers can show in a row.
//!
//! Items may overlap on a thread without one being within the other. Such visits go to different lanes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::compare::load;
use crate::compare::load::{Visit, Wait};
use crate::compare::select::VisitSet;
use crate::compare::select::error::ExportError;
use crate::store::reader::Trace;

/// An event in a lane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step<'a> {
    Begin(&'a Visit),
    /// A visit's thread leaves the CPU.
    Leave(&'a Wait),
    /// The innermost open interval ends.
    End,
}

/// Steps with their times, in order; an end belongs to the last open begin.
pub(super) type Steps<'a> = Vec<(i64, Step<'a>)>;

/// Begin and end of each interval in a lane.
type Intervals<'a> = Vec<(i64, i64, Step<'a>)>;

/// The visits of a set, by begin, with their waits.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    pub visits: Vec<Visit>,
    pub waits: Vec<Wait>,
}

impl Timeline {
    /// Reads them.
    pub(super) fn read(trace: &Trace, set: &VisitSet) -> Result<Self, ExportError> {
        let (mut visits, mut waits) = (Vec::new(), Vec::new());
        load::visits(trace, set, |visit| visits.push(visit))?;
        load::waits(trace, set, |wait| waits.push(wait))?;
        Ok(Self::new(visits, waits))
    }

    fn new(mut visits: Vec<Visit>, mut waits: Vec<Wait>) -> Self {
        // Of visits that begin together, the longest contains the others.
        visits.sort_by_key(|visit| (visit.begin_ns.0, Reverse(end(visit)), visit.visit_id));
        waits.sort_by_key(|wait| (wait.begin_ns, wait.end_ns));
        Self { visits, waits }
    }

    /// Steps of each lane, by process, thread and lane.
    pub(super) fn lanes(&self) -> BTreeMap<(u32, u32, usize), Steps<'_>> {
        let mut threads: FxHashMap<(u32, u32), Vec<Vec<i64>>> = FxHashMap::default();
        let mut lane_of: FxHashMap<u64, (usize, usize)> = FxHashMap::default();
        let mut lanes: BTreeMap<(u32, u32, usize), Intervals<'_>> = BTreeMap::new();
        for (index, visit) in self.visits.iter().enumerate() {
            let open = threads.entry((visit.pid.0, visit.tid.0)).or_default();
            let lane = fitting_lane(open, visit);
            lane_of.insert(visit.visit_id, (index, lane));
            let lane = lanes.entry((visit.pid.0, visit.tid.0, lane)).or_default();
            lane.push((visit.begin_ns.0, end(visit), Step::Begin(visit)));
        }
        for wait in &self.waits {
            let Some((index, lane)) = lane_of.get(&wait.visit_id) else {
                continue;
            };
            let visit = &self.visits[*index];
            // A wait may begin before its visit: the thread was off the CPU when another's mark began it.
            let begin = wait.begin_ns.max(visit.begin_ns.0);
            let until = wait.end_ns.min(end(visit)).max(begin);
            let lane = lanes.entry((visit.pid.0, visit.tid.0, *lane)).or_default();
            lane.push((begin, until, Step::Leave(wait)));
        }
        let steps = lanes.into_iter().map(|(key, lane)| (key, in_order(lane)));
        steps.collect()
    }
}

/// End of a visit; the end of time if it is unknown.
fn end(visit: &Visit) -> i64 {
    visit
        .end_ns
        .map_or(i64::MAX, |end| end.0.max(visit.begin_ns.0))
}

/// The first lane in which the visit nests in every open one. Visits come in order of their begin.
fn fitting_lane(open: &mut Vec<Vec<i64>>, visit: &Visit) -> usize {
    for (lane, ends) in open.iter_mut().enumerate() {
        while ends.last().is_some_and(|end| *end <= visit.begin_ns.0) {
            ends.pop();
        }
        if ends.last().is_none_or(|last| end(visit) <= *last) {
            ends.push(end(visit));
            return lane;
        }
    }
    open.push(vec![end(visit)]);
    open.len() - 1
}

/// Intervals as begins and ends; an interval that begins within another is cut at that one's end.
fn in_order(mut lane: Intervals<'_>) -> Steps<'_> {
    lane.sort_by_key(|(begin, end, step)| (*begin, Reverse(*end), matches!(step, Step::Leave(_))));
    let (mut steps, mut open): (Steps<'_>, Vec<i64>) = (Vec::new(), Vec::new());
    for (begin, end, step) in lane {
        while open.last().is_some_and(|last| *last <= begin) {
            steps.extend(open.pop().map(|end| (end, Step::End)));
        }
        let end = open.last().map_or(end, |last| end.min(*last));
        steps.push((begin, step));
        open.push(end);
    }
    while let Some(end) = open.pop() {
        // An interval without an end gets no end step.
        if end < i64::MAX {
            steps.push((end, Step::End));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::schema::VisitRow;
    use crate::units::{Pid, Tid, TraceNs};

    fn visit(visit_id: u64, begin_ns: i64, end_ns: Option<i64>) -> Visit {
        Visit {
            row: VisitRow {
                visit_id,
                item_id: visit_id,
                pid: Pid(1),
                tid: Tid(2),
                begin_ns: TraceNs(begin_ns),
                end_ns: end_ns.map(TraceNs),
                ..VisitRow::default()
            },
            args: Vec::new(),
        }
    }

    fn shown(visits: Vec<Visit>, waits: &[(u64, i64, i64)]) -> Vec<String> {
        let waits = waits.iter().map(|(visit_id, begin_ns, end_ns)| Wait {
            visit_id: *visit_id,
            begin_ns: *begin_ns,
            end_ns: *end_ns,
            function: None,
            state: "sleeping".to_owned(),
            stack: None,
            by: None,
            runnable_ns: None,
        });
        let timeline = Timeline::new(visits, waits.collect());
        let lanes = timeline.lanes();
        let text = |(time, step): &(i64, Step<'_>)| match step {
            Step::Begin(visit) => format!("{time}(v{}", visit.visit_id),
            Step::Leave(_) => format!("{time}(w"),
            Step::End => format!("{time})"),
        };
        let lanes = lanes.values();
        lanes
            .map(|steps| steps.iter().map(text).collect::<Vec<_>>().join(" "))
            .collect()
    }

    /// Nested visits and their waits share a lane; one that begins when another ends comes after it.
    #[test]
    fn nested() {
        let visits = vec![
            visit(1, 0, Some(100)),
            visit(2, 10, Some(40)),
            visit(3, 100, Some(120)),
        ];
        assert_eq!(
            shown(visits, &[(2, 20, 30), (1, 40, 90), (3, 90, 150)]),
            ["0(v1 10(v2 20(w 30) 40) 40(w 90) 100) 100(v3 100(w 120) 120)"]
        );
    }

    /// Visits that overlap without nesting, as in an event loop, have separate lanes, and so have those
    /// beside one that never ended.
    #[test]
    fn overlapping() {
        let visits = vec![
            visit(1, 0, Some(50)),
            visit(2, 10, Some(60)),
            visit(3, 20, Some(40)),
            visit(4, 70, None),
            visit(5, 80, Some(90)),
        ];
        assert_eq!(
            shown(visits, &[]),
            ["0(v1 20(v3 40) 50) 70(v4 80(v5 90)", "10(v2 60)"]
        );
    }
}
