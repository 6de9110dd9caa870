//! What pebs-trace takes of visits: what is known of it, and their net time.

use pebs_common::record::Role;

use super::PipelineOptions;
use super::resets::Resets;
use crate::correlate::{ClosedVisit, MarkTime};
use crate::estimate::net::{Learner, SampleCost, Seen};
use crate::store::schema::visit_flag;
use crate::store::writer::TraceWriter;
use crate::units::{EventId, ProbeId};

/// What recording takes of visits, as it was measured before the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnCosts {
    /// Marks, by probe and [`pebs_common::record::Role`].
    pub marks: Vec<[MarkTime; 4]>,
    pub sample: Option<SampleCost>,
    /// The thread leaving the CPU and taking it again, as far as it is recorded, ns.
    pub switch_ns: f64,
    /// A page fault, as far as it is recorded, ns.
    pub page_fault_ns: f64,
    /// An interrupt, likewise.
    pub interrupt_ns: f64,
    /// What it left for later, likewise.
    pub softirq_ns: f64,
    /// A wake-up or preemption, likewise.
    pub encounter_ns: f64,
    /// The end of an interval of counts, likewise.
    pub tick_ns: f64,
}

/// Flags of visits that are not what they were: nothing is learnt from them.
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

/// Net time of visits.
#[derive(Debug)]
pub(super) struct Net {
    /// What is known; `None`: not enough for net times.
    known: Option<Box<Known>>,
    /// Whether samples come as time passes, of one event alone.
    learns: bool,
}

#[derive(Debug)]
struct Known {
    costs: OwnCosts,
    learner: Learner,
    /// Last visit that was looked at.
    visit_id: u64,
}

impl Net {
    pub(super) fn new(options: &PipelineOptions) -> Self {
        Self {
            known: None,
            learns: options.clock_events.as_slice() == [true],
        }
    }

    /// Says what is known. Once.
    pub(super) fn costs(&mut self, costs: &OwnCosts, writer: &TraceWriter) {
        let Some(sample) = costs.sample else { return };
        writer.sample_cost(0, sample);
        self.known = Some(Box::new(Known {
            costs: costs.clone(),
            learner: Learner::new(sample),
            visit_id: 0,
        }));
    }

    /// What the begin mark of a probe takes behind its time and the end mark before its time, ns; `None`: not known.
    pub(super) fn marks_of(&self, probe: ProbeId) -> Option<(u64, u64)> {
        let marks = self.known.as_ref()?.costs.marks.get(usize::from(probe.0))?;
        let of = |role: Role| marks[role as usize];
        let begins = [Role::Begin, Role::Next].map(|it| of(it).after_ns);
        let ends = [Role::End, Role::Return, Role::Next].map(|it| of(it).before_ns);
        Some((begins.into_iter().max()?, ends.into_iter().max()?))
    }

    /// What a sample takes, as far as it is known by now.
    pub(super) fn sample_cost(&self) -> Option<SampleCost> {
        Some(self.known.as_ref()?.learner.cost())
    }

    /// Net time of a visit and its standard error, ns; `None` if that is not known. Learns from the visit.
    #[inline]
    pub(super) fn of(
        &mut self,
        visit: &ClosedVisit<'_>,
        resets: &Resets,
        writer: &TraceWriter,
    ) -> Option<(i64, i64)> {
        let learns = self.learns;
        let known = self.known.as_mut()?;
        let (end, _) = visit.end?;
        let duration = (end.0 - visit.begin.0.0) as f64;
        let own = &visit.own;
        let Known {
            costs,
            learner,
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
        let fixed = own.marks_ns as f64 + records;
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
            && let Some(interval) = resets.since(EventId(0), visit.begin.0)
            && learner.see(&Seen {
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

    /// Learns what there is to learn, at the end.
    pub(super) fn finish(&mut self, writer: &TraceWriter) {
        if let Some(known) = self.known.as_mut().filter(|_| self.learns) {
            known.learn(writer);
        }
    }
}

impl Known {
    #[cold]
    fn learn(&mut self, writer: &TraceWriter) {
        if self.learner.learn() {
            writer.sample_cost(self.visit_id + 1, self.learner.cost());
        }
    }
}
