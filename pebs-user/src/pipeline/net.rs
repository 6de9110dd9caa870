//! Costs of recording within visits, and net times of visits.

use super::PipelineOptions;
use super::resets::Resets;
use crate::correlate::{ClosedVisit, MarkTimes};
use crate::estimate::cold::Coldness;
use crate::estimate::net::{Learner, LearntVisit, SampleCost, Spacing};
use crate::estimate::positions::{Fell, Positions};
use crate::estimate::{EventTime, Pause};
use crate::store::schema::visit_flag;
use crate::store::writer::TraceWriter;
use crate::units::{EventId, ProbeId};

/// Costs of recording for a visit, measured before the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnCosts {
    /// Marks, by probe.
    pub marks: Vec<MarkTimes>,
    /// Signs of a mark that takes longer.
    pub coldness: Coldness,
    pub sample: Option<SampleCost>,
    /// Spacing of samples.
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
/// The cost of a mark may be measured too high, beside other load or a while ago; visits would then seem to take no
/// time.
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

    /// Upper bound of the time of marks; `None` if too few were seen.
    fn most(&self) -> Option<i64> {
        (self.number == self.ns.len()).then(|| self.ns[self.number - 1])
    }
}

/// Visits whose own marks take the same time within them.
#[derive(Clone, Debug)]
struct OfMarks {
    /// The begin mark's after its time, and the end mark's before its time, ns.
    ends: (u64, u64),
    visits: u64,
    /// Additional time of cold marks in them, ns.
    cold_ns: i64,
    shortest: Shortest,
}

impl OfMarks {
    fn of(times: &MarkTimes) -> Vec<Self> {
        let mut all: Vec<(u64, u64)> = times.ends();
        all.sort_unstable_by_key(|it| it.0 + it.1);
        all.dedup_by_key(|it| it.0 + it.1);
        let new = |ends| Self {
            ends,
            visits: 0,
            cold_ns: 0,
            shortest: Shortest::default(),
        };
        all.into_iter().map(new).collect()
    }

    const fn ns(&self) -> i64 {
        (self.ends.0 + self.ends.1).cast_signed()
    }

    /// Measured time of these marks beyond the time that the shortest visits leave for them, ns.
    fn too_much(&self) -> i64 {
        let most = self.shortest.most();
        most.map_or(0, |most| (self.ns() - most).max(0))
    }
}

#[derive(Debug)]
struct NetCosts {
    costs: OwnCosts,
    learner: Learner,
    /// Distribution of samples over the parts of visits, by probe.
    positions: Vec<Positions>,
    /// Visits by probe and what their own marks take within them.
    of_marks: Vec<Vec<OfMarks>>,
    /// The last visit seen.
    visit_id: u64,
}

impl Net {
    pub(super) fn new(options: &PipelineOptions) -> Self {
        Self {
            known: None,
            learns: options.event_times.as_slice() == [EventTime::Clock],
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
            of_marks: costs.marks.iter().map(OfMarks::of).collect(),
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

    /// The most that a probe's marks take within its own visits, ns: the begin mark after its time, the end mark before
    /// its time; `None` if unknown.
    pub(super) fn marks_of(&self, probe: ProbeId) -> Option<(u64, u64)> {
        let of_marks = self.known.as_ref()?.of_marks.get(usize::from(probe.0))?;
        let most = |of: fn(&OfMarks) -> u64| of_marks.iter().map(of).max().unwrap_or(0);
        Some((most(|it| it.ends.0), most(|it| it.ends.1)))
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
        let known = self.known.as_mut()?;
        let (end, _) = visit.end?;
        let duration = (end.0 - visit.begin.0.0) as f64;
        let own = &visit.own;
        let NetCosts {
            costs,
            learner,
            positions,
            of_marks,
            visit_id,
        } = known.as_mut();
        *visit_id = visit.visit_id;
        let records = own.cold_ns as f64
            + own.switches as f64 * costs.switch_ns
            + own.page_faults as f64 * costs.page_fault_ns
            + own.extras.interrupts as f64 * costs.interrupt_ns
            + own.extras.softirqs as f64 * costs.softirq_ns
            + own.extras.encounters as f64 * costs.encounter_ns
            + own.extras.ticks as f64 * costs.tick_ns;
        let cost = learner.cost();
        let is_plain = visit.flags & UNUSUAL == 0 && visit.switches() == Some(0);
        let of_marks = of_marks.get_mut(usize::from(visit.probe.0));
        let of_marks = of_marks.map_or(&mut [][..], Vec::as_mut_slice);
        // Of another number of marks, or other ones: as with the cheapest.
        let cheapest = of_marks.first().map_or(0, OfMarks::ns);
        let same = of_marks
            .iter()
            .position(|it| it.ns() == own.marks_ns.cast_signed());
        let alike = of_marks.get_mut(same.unwrap_or(0));
        let ((after, before), too_much) = alike.map_or_else(Default::default, |alike| {
            alike.visits += u64::from(same.is_some());
            alike.cold_ns += if same.is_some() { own.cold_ns } else { 0 };
            if is_plain && same.is_some() && own.samples == 0 {
                // The additional time of cold marks is not known well enough for a closer bound.
                alike.shortest.see(duration as i64);
            }
            (alike.ends, alike.too_much())
        });
        let fixed = (own.marks_ns.cast_signed() - too_much).max(0) as f64 + records;
        let net = (duration - fixed).round() - cost.of(own.samples).round();
        let result = (
            (net as i64).max(0),
            cost.stderr_of(own.samples).round() as i64,
        );
        let plain = learns && is_plain && own.samples == visit.samples.len() as u64;
        if plain
            && let Some(positions) = positions.get_mut(usize::from(visit.probe.0))
            && !visit.samples.is_empty()
        {
            let begin = visit.begin.0.0 + after.cast_signed();
            let length = duration - records - (after + before) as f64;
            let times = visit.samples.times.iter();
            let times = times.map(|time| (time.0 - begin) as f64);
            positions.add(begin, length, cost.ns, pause_before_ns, times);
        }
        if plain
            && let Some(interval) = resets.since(EventId(0), visit.begin.0)
            && learner.see(&LearntVisit {
                probe: visit.probe.0,
                // Dear and cheap marks make no difference between visits.
                ns: duration - records - ((after + before).cast_signed() - cheapest) as f64,
                samples: own.samples,
                interval_ns: interval as f64,
            })
        {
            known.learn(writer);
        }
        Some(result)
    }

    /// By probe: what the marks within a visit were measured to take, and how much of that is too much, as the shortest
    /// visits take no longer; means over visits, ns.
    pub(super) fn within(&self) -> Vec<(f64, f64)> {
        let known = self.known.iter().flat_map(|known| &known.of_marks);
        let mean = |all: &Vec<OfMarks>| {
            let visits: u64 = all.iter().map(|it| it.visits).sum();
            let of = |ns: fn(&OfMarks) -> i64| {
                let sum: f64 = all.iter().map(|it| it.visits as f64 * ns(it) as f64).sum();
                let first = all.first().map_or(0.0, |it| ns(it) as f64);
                if visits > 0 {
                    sum / visits as f64
                } else {
                    first
                }
            };
            let cold: i64 = all.iter().map(|it| it.cold_ns).sum();
            let cold = cold as f64 / visits.max(1) as f64;
            (of(OfMarks::ns) + cold, of(OfMarks::too_much))
        };
        known.map(mean).collect()
    }

    /// Returns the distribution of samples over the parts of each probe's visits, as far as known.
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
    use pebs_common::record::Role;

    use super::*;
    use crate::correlate::MarkTime;

    /// Visits from a dear place are no bound for those from a cheap one, and are not bounded by them.
    #[test]
    fn dear_and_cheap_places() {
        let mut times = MarkTimes::default();
        for (role, stepped, ns) in [
            (Role::Begin, false, 300),
            (Role::Begin, true, 10_000),
            (Role::End, false, 200),
        ] {
            let time = MarkTime {
                before_ns: ns,
                after_ns: ns,
            };
            times.set(role, stepped, time);
        }
        let mut all = OfMarks::of(&times);
        let ends: Vec<_> = all.iter().map(|it| it.ends).collect();
        assert_eq!(ends, [(300, 200), (10_000, 200)]);
        for ns in 900..910 {
            all[0].shortest.see(ns);
            all[1].shortest.see(10 * ns);
        }
        assert_eq!(all[0].too_much(), 0);
        assert_eq!(all[1].too_much(), 10_200 - 9_070);
    }

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
