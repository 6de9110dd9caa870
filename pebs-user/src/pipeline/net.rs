//! Costs of recording within visits, and net times of visits.

use pebs_common::record::Role;

use super::PipelineOptions;
use super::resets::Resets;
use crate::correlate::{ClosedVisit, MarkTime};
use crate::estimate::Pause;
use crate::estimate::net::{Learner, LearntVisit, SampleCost, Spacing};
use crate::estimate::positions::{Fell, Positions};
use crate::store::schema::visit_flag;
use crate::store::writer::TraceWriter;
use crate::units::{EventId, ProbeId};

/// Costs of recording for a visit, measured before the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnCosts {
    /// Marks, by probe and [`pebs_common::record::Role`].
    pub marks: Vec<[MarkTime; 4]>,
    pub sample: Option<SampleCost>,
    /// How samples follow each other.
    pub spacing: Spacing,
    /// Cost of a switch out and in, as far as these are recorded, ns.
    pub switch_ns: f64,
    /// Cost of a page fault, 0 if not recorded, ns.
    pub page_fault_ns: f64,
    /// Cost of an interrupt, 0 if not recorded, ns.
    pub interrupt_ns: f64,
    /// Cost of a softirq, 0 if not recorded, ns.
    pub softirq_ns: f64,
    /// Cost of a wake-up or preemption, 0 if not recorded, ns.
    pub encounter_ns: f64,
    /// Cost of the end of an interval of counts, 0 if there are none, ns.
    pub tick_ns: f64,
}

/// Flags of visits that the costs are not learnt from.
const UNUSUAL: u32 = visit_flag::OVERLAPPED
    | visit_flag::UNWOUND
    | visit_flag::END_MISSING
    | visit_flag::OPEN_AT_END
    | visit_flag::THREAD_ENDED
    | visit_flag::LOSS
    | visit_flag::MIGRATED
    | visit_flag::PREEMPTED
    | visit_flag::ENDED_ELSEWHERE
    | visit_flag::THROTTLED
    | visit_flag::SAMPLED_BOUNDS;

/// Computes net times of visits.
#[derive(Debug)]
pub(super) struct Net {
    /// `None`: net times are unknown.
    known: Option<Box<NetCosts>>,
    /// Whether the cost of a sample is learnt: there is one event, a clock.
    learns: bool,
    /// Time that a sample stops the target before its own time is read, ns.
    pause_before_ns: f64,
}

/// The shortest visits of a probe without samples, and without marks but their own: these take no longer.
///
/// What a mark was measured to cost beside other load, or a while ago, may be too much; visits would seem to take no time
/// then.
#[derive(Clone, Debug, Default)]
struct Shortest {
    /// Durations, rising. A few may be too short by a clock's error: the last one counts.
    ns: [i64; 8],
    number: usize,
}

impl Shortest {
    fn see(&mut self, ns: i64) {
        let is_full = self.number == self.ns.len();
        if is_full && ns >= self.ns[self.number - 1] {
            return;
        }
        let at = self.ns[..self.number].partition_point(|it| *it <= ns);
        let last = self.number.min(self.ns.len() - 1);
        self.ns.copy_within(at..last, at + 1);
        self.ns[at] = ns;
        self.number = last + 1;
    }

    /// What marks take at most; `None` if too few were seen.
    fn most(&self) -> Option<i64> {
        (self.number == self.ns.len()).then(|| self.ns[self.number - 1])
    }
}

#[derive(Debug)]
struct NetCosts {
    costs: OwnCosts,
    learner: Learner,
    /// Where samples fall in visits, by probe.
    positions: Vec<Positions>,
    /// The shortest visits, by probe.
    shortest: Vec<Shortest>,
    /// The last visit seen.
    visit_id: u64,
}

impl Net {
    pub(super) fn new(options: &PipelineOptions) -> Self {
        Self {
            known: None,
            learns: options.clock_events.as_slice() == [true],
            pause_before_ns: 0.0,
        }
    }

    /// Sets the costs; at most once.
    pub(super) fn costs(&mut self, costs: &OwnCosts, writer: &TraceWriter) {
        let Some(sample) = costs.sample else { return };
        writer.sample_cost(0, sample);
        self.known = Some(Box::new(NetCosts {
            costs: costs.clone(),
            learner: Learner::new(sample, costs.spacing),
            positions: vec![Positions::default(); costs.marks.len()],
            shortest: vec![Shortest::default(); costs.marks.len()],
            visit_id: 0,
        }));
    }

    /// Sets how long a sample stops the target.
    pub(super) const fn pause(&mut self, pause: Pause) {
        self.pause_before_ns = pause.before as f64;
    }

    /// Sets the cost of a switch, ns.
    pub(super) fn switch_cost(&mut self, ns: f64) {
        if let Some(known) = &mut self.known {
            known.costs.switch_ns = ns;
        }
    }

    /// Costs of a probe's marks within its own visits, ns: the begin mark's after its time, the end mark's before its
    /// time; `None` if unknown.
    pub(super) fn marks_of(&self, probe: ProbeId) -> Option<(u64, u64)> {
        let marks = self.known.as_ref()?.costs.marks.get(usize::from(probe.0))?;
        let of = |role: Role| marks[role as usize];
        let begins = [Role::Begin, Role::Next].map(|it| of(it).after_ns);
        let ends = [Role::End, Role::Return, Role::Next].map(|it| of(it).before_ns);
        Some((begins.into_iter().max()?, ends.into_iter().max()?))
    }

    /// Cost of a sample, as learnt so far; `None` if unknown.
    pub(super) fn sample_cost(&self) -> Option<SampleCost> {
        Some(self.known.as_ref()?.learner.cost())
    }

    /// Net time of a visit and its standard error, ns; `None` if unknown. Learns from the visit.
    #[inline]
    pub(super) fn of(
        &mut self,
        visit: &ClosedVisit<'_>,
        resets: &Resets,
        writer: &TraceWriter,
    ) -> Option<(i64, i64)> {
        let (learns, pause_before_ns) = (self.learns, self.pause_before_ns);
        let (after, before) = self.marks_of(visit.probe).unwrap_or_default();
        let known = self.known.as_mut()?;
        let (end, _) = visit.end?;
        let duration = (end.0 - visit.begin.0.0) as f64;
        let own = &visit.own;
        let NetCosts {
            costs,
            learner,
            positions,
            shortest,
            visit_id,
        } = known.as_mut();
        *visit_id = visit.visit_id;
        let records = own.switches as f64 * costs.switch_ns
            + own.page_faults as f64 * costs.page_fault_ns
            + own.extras.interrupts as f64 * costs.interrupt_ns
            + own.extras.softirqs as f64 * costs.softirq_ns
            + own.extras.encounters as f64 * costs.encounter_ns
            + own.extras.ticks as f64 * costs.tick_ns;
        let cost = learner.cost();
        let inside = (after + before).cast_signed();
        let mut too_much = 0;
        if let Some(shortest) = shortest.get_mut(usize::from(visit.probe.0)) {
            let is_plain = visit.flags & UNUSUAL == 0 && visit.switches() == Some(0);
            if is_plain && own.samples == 0 && own.marks_ns.cast_signed() <= inside {
                shortest.see(duration as i64);
            }
            too_much = shortest.most().map_or(0, |most| (inside - most).max(0));
        }
        let fixed = (own.marks_ns.cast_signed() - too_much).max(0) as f64 + records;
        let net = (duration - fixed).round() - cost.of(own.samples).round();
        let result = (
            (net as i64).max(0),
            cost.stderr_of(own.samples).round() as i64,
        );
        let plain = learns
            && visit.flags & UNUSUAL == 0
            && visit.switches() == Some(0)
            && own.samples == visit.samples.len() as u64;
        if plain
            && let Some(positions) = positions.get_mut(usize::from(visit.probe.0))
            && !visit.samples.is_empty()
        {
            let begin = visit.begin.0.0 + after.cast_signed();
            let length = duration - records - (after + before) as f64;
            let times = visit.samples.times.iter();
            let times = times.map(|time| (time.0 - begin) as f64);
            positions.add(begin, length, (cost.ns, pause_before_ns), times);
        }
        if plain
            && let Some(interval) = resets.since(EventId(0), visit.begin.0)
            && learner.see(&LearntVisit {
                probe: visit.probe.0,
                ns: duration - records,
                samples: own.samples,
                interval_ns: interval as f64,
            })
        {
            known.learn(writer);
        }
        Some(result)
    }

    /// By probe: what the marks within a visit take at most, as the shortest visits take no longer.
    pub(super) fn most_of_marks(&self) -> Vec<Option<i64>> {
        let known = self.known.iter().flat_map(|known| &known.shortest);
        known.map(Shortest::most).collect()
    }

    /// Where samples fell in the visits of each probe, as far as known.
    pub(super) fn positions(&self) -> Vec<(ProbeId, Fell)> {
        let known = self.known.iter().flat_map(|known| &known.positions);
        let fell = (0..)
            .zip(known)
            .filter_map(|(n, of)| Some((ProbeId(n), of.close()?)));
        fell.collect()
    }

    /// Learns from the remaining visits, at the end.
    pub(super) fn finish(&mut self, writer: &TraceWriter) {
        if let Some(known) = self.known.as_mut().filter(|_| self.learns) {
            known.learn(writer);
        }
    }
}

impl NetCosts {
    #[cold]
    fn learn(&mut self, writer: &TraceWriter) {
        if self.learner.learn() {
            writer.sample_cost(self.visit_id + 1, self.learner.cost());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The eighth of the shortest, in any order.
    #[test]
    fn shortest() {
        let mut shortest = Shortest::default();
        for ns in [50, 10, 90, 20, 70, 30, 60] {
            shortest.see(ns);
            assert_eq!(shortest.most(), None);
        }
        shortest.see(80);
        assert_eq!(shortest.ns, [10, 20, 30, 50, 60, 70, 80, 90]);
        assert_eq!(shortest.most(), Some(90));
        shortest.see(100);
        shortest.see(15);
        shortest.see(5);
        assert_eq!(shortest.ns, [5, 10, 15, 20, 30, 50, 60, 70]);
    }
}
