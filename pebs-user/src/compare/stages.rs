//! Stages: visits of several probes that are one item, in the order in which it went through them.
//!
//! If a run has several probes and all read ids, the visits with the same id in a process are one item, in the order of
//! their begin, on whichever threads. The first probe of the command line is the first stage: each begin of it starts a
//! new item, so that a reused id (an address that was freed) is not taken for the same item. Visits before the first
//! such begin belong to items that began before the recording did.
//!
//! An item lasts from its first begin to its last end, less pebs-trace's own time. Its time in a stage is *service*;
//! the time in no stage is *waiting* for the one that begins next. If stages overlap, each has its service, with no
//! waiting between them: so service and waiting sum to the latency only where no stages overlap. A visit that serves
//! several items is a stage of each: an item's service is its share of the visit, the rest of the visit is the others'
//! turn.
//!
//! Memory: 72 bytes a visit, or an item of one that serves several.

use super::batches::{Batches, Share};
use super::classes::{Standing, Took};
use crate::compare::losses::LossVisits;
use crate::store::reader::{ReadError, Trace};
use crate::store::run::RunInfo;
use crate::store::schema::visit_flag;
use crate::store::view::{Select as _, View as _, columns};

columns! {
    struct Visits of visits { visit_id, item_id, probe_id, pid, begin_ns, duration_ns, net_ns, flags }
}

/// Whether the probes of a run are stages of the same items: there are several, and all read ids.
pub(crate) fn has_stages(info: &RunInfo) -> bool {
    info.probes.len() > 1 && info.probes.iter().all(|probe| probe.spec.reads_ids())
}

/// The probe that begins items, the first of the command line; `None` if the probes are no stages.
pub(crate) fn first_stage(info: &RunInfo) -> Option<u16> {
    let first = info.probes.iter().map(|probe| probe.id.0).min();
    first.filter(|_| has_stages(info))
}

/// Calls `take` with each visit of a trace whose probes are stages, and the number of its item; never for other traces.
///
/// # Errors
/// If the trace can't be read.
pub(crate) fn passages(trace: &Trace, mut take: impl FnMut(u64, u32)) -> Result<(), ReadError> {
    if has_stages(&trace.info) {
        for (number, passage) in (0..).zip(Passages::read(trace)?.iter()) {
            let visits = passage.steps.iter().map(|step| step.visit_id);
            visits.for_each(|visit| take(visit, number));
        }
    }
    Ok(())
}

/// One visit of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Step {
    item: (u32, u64),
    /// Begin on the trace clock.
    pub begin_ns: i64,
    /// Number of the visit.
    pub visit_id: u64,
    /// From begin to end; `None`: its end was never seen.
    pub duration_ns: Option<i64>,
    pub probe: u16,
    flags: u32,
    /// pebs-trace's own time in it, as far as known, ns.
    own_ns: i64,
    /// Part of the net time that belongs to other items of the same batch, ns.
    pub others_ns: i64,
    /// Whether there are others.
    pub has_others: bool,
}

impl Step {
    /// End on the trace clock; its begin if that was never seen.
    pub(crate) fn end_ns(&self) -> i64 {
        let duration = self.duration_ns.unwrap_or(0).max(0);
        self.begin_ns.saturating_add(duration)
    }

    /// Whether its end was never seen.
    fn is_open(&self) -> bool {
        let took = Took {
            duration_ns: self.duration_ns,
            ..Took::default()
        };
        let standing = Standing::of(took, self.flags, LossVisits::Include);
        standing == Standing::Open
    }

    pub(crate) const fn item_id(&self) -> u64 {
        self.item.1
    }

    /// Whether the visit serves several items.
    pub(crate) const fn is_shared(&self) -> bool {
        self.flags & visit_flag::SHARED != 0
    }

    /// Net time of the visit.
    fn net_ns(&self) -> i64 {
        let whole = self.end_ns().saturating_sub(self.begin_ns);
        whole.saturating_sub(self.own_ns).max(0)
    }

    /// The item's own net time in the stage.
    pub(crate) fn service_ns(&self) -> i64 {
        self.net_ns().saturating_sub(self.others_ns)
    }

    /// pebs-trace's own time in the part after `until`, in proportion.
    fn own_after(&self, until: i64) -> i64 {
        let whole = self.end_ns() - self.begin_ns;
        let after = self.end_ns() - self.begin_ns.max(until);
        if after <= 0 || whole <= 0 {
            return 0;
        }
        (self.own_ns as f64 * after as f64 / whole as f64) as i64
    }
}

/// Completeness of an item that went through stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completeness {
    Whole,
    /// A visit overlaps a loss.
    Loss,
    /// The end of a visit was never seen.
    Open,
    /// It began before the recording.
    Headless,
}

/// An item's visits, the first begin first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passage<'a> {
    /// The visits; at least one.
    pub steps: &'a [Step],
    pub known: Completeness,
}

impl Passage<'_> {
    /// Whether it is counted.
    pub(crate) fn counts(&self, losses: LossVisits) -> bool {
        self.known == Completeness::Whole
            || self.known == Completeness::Loss && losses == LossVisits::Include
    }

    /// From the first begin to the last end, without pebs-trace's own time in the stages, ns. Own time in an overlap of
    /// stages counts once.
    pub(crate) fn latency_ns(&self) -> i64 {
        let (mut until, mut own) = (i64::MIN, 0);
        for step in self.steps {
            own += step.own_after(until);
            until = until.max(step.end_ns());
        }
        let first = self.steps.first();
        first.map_or(0, |first| (until - first.begin_ns - own).max(0))
    }

    /// Time in no stage, each with the visit that ended it.
    pub(crate) fn waits(&self) -> impl Iterator<Item = (&Step, i64)> {
        let mut until = i64::MAX;
        self.steps.iter().filter_map(move |step| {
            let waited = step.begin_ns.saturating_sub(until);
            until = match until {
                i64::MAX => step.end_ns(),
                until => until.max(step.end_ns()),
            };
            (waited > 0).then_some((step, waited))
        })
    }
}

/// The items of a run with stages.
#[derive(Debug, Default)]
pub(crate) struct Passages {
    steps: Vec<Step>,
    /// Index of each item's first step.
    starts: Vec<u32>,
    first: Option<u16>,
    /// Times that an item was served in a batch, but its id is not known: that stage is missing from it.
    pub unknown: u64,
}

impl Passages {
    /// Reads the visits of a trace whose probes are stages.
    pub(crate) fn read(trace: &Trace) -> Result<Self, ReadError> {
        let mut steps = Vec::new();
        let batches = Batches::read(trace)?;
        let mut unknown = 0;
        for batch in Visits::scan(trace)? {
            let batch = batch?;
            let visits = Visits::of(&batch)?;
            for row in 0..batch.num_rows() {
                let duration = visits.duration_ns.get(row);
                let own = duration
                    .zip(visits.net_ns.get(row))
                    .map(|(all, net)| all - net);
                let step = Step {
                    item: (visits.pid[row], visits.item_id[row]),
                    begin_ns: visits.begin_ns[row],
                    visit_id: visits.visit_id[row],
                    duration_ns: duration,
                    own_ns: own.map_or(0, |ns| ns.max(0)),
                    probe: visits.probe_id[row],
                    flags: visits.flags[row],
                    others_ns: 0,
                    has_others: false,
                };
                if !step.is_shared() {
                    steps.push(step);
                    continue;
                }
                let batch = batches.of_visit(step.visit_id);
                unknown += u64::from(batch.unknown());
                let whole = step.net_ns();
                steps.extend(batch.known.iter().map(|member| Step {
                    item: (step.item.0, member.item_id),
                    others_ns: whole - member.share.part(whole),
                    has_others: member.share != Share::WHOLE,
                    ..step
                }));
            }
        }
        Ok(Self {
            unknown,
            ..Self::of(steps, first_stage(&trace.info))
        })
    }

    fn of(mut steps: Vec<Step>, first: Option<u16>) -> Self {
        steps.sort_unstable();
        let begins = |at: usize| {
            at == 0 || steps[at].item != steps[at - 1].item || Some(steps[at].probe) == first
        };
        // Fewer than 2^32: each takes more than a byte of a file.
        let starts = (0..steps.len()).filter(|at| begins(*at));
        Self {
            starts: starts.map(|at| at as u32).collect(),
            steps,
            first,
            unknown: 0,
        }
    }

    /// The items, in no order that means anything.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Passage<'_>> {
        let ends = self.starts.iter().skip(1).map(|at| *at as usize);
        let ends = ends.chain([self.steps.len()]);
        self.starts.iter().zip(ends).map(|(start, end)| {
            let steps = &self.steps[*start as usize..end];
            let any = |flag: u32| steps.iter().any(|step| step.flags & flag != 0);
            let known = if steps.first().map(|step| step.probe) != self.first {
                Completeness::Headless
            } else if steps.iter().any(Step::is_open) {
                Completeness::Open
            } else if any(visit_flag::LOSS) {
                Completeness::Loss
            } else {
                Completeness::Whole
            };
            Passage { steps, known }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(item: u64, probe: u16, begin_ns: i64, end_ns: i64) -> Step {
        Step {
            item: (7, item),
            begin_ns,
            visit_id: begin_ns as u64,
            duration_ns: (end_ns > 0).then_some(end_ns - begin_ns),
            probe,
            flags: 0,
            own_ns: 0,
            others_ns: 0,
            has_others: false,
        }
    }

    /// Number of visits, latency, completeness, and waits by visit.
    type Summary = (usize, i64, Completeness, Vec<(u64, i64)>);

    fn summaries(steps: &[Step]) -> Vec<Summary> {
        let of = Passages::of(steps.to_vec(), Some(0));
        of.iter()
            .map(|it| {
                let waits = it.waits().map(|(step, ns)| (step.visit_id, ns));
                (it.steps.len(), it.latency_ns(), it.known, waits.collect())
            })
            .collect()
    }

    /// Service 10 + 30, waiting 20: latency 60. The same address again is another item.
    #[test]
    fn addresses_are_used_again() {
        let steps = [
            step(1, 1, 130, 160),
            step(1, 0, 0, 10),
            step(1, 0, 100, 110),
            step(1, 1, 30, 60),
        ];
        let first = (2, 60, Completeness::Whole, vec![(30, 20)]);
        let second = (2, 60, Completeness::Whole, vec![(130, 20)]);
        assert_eq!(summaries(&steps), [first, second]);
    }

    /// The second stage of an item whose first stage was not seen, and an item that is still under way.
    #[test]
    fn ends_of_the_recording() {
        let steps = [step(1, 1, 5, 9), step(2, 0, 6, 8), step(2, 1, 20, 0)];
        let headless = (1, 4, Completeness::Headless, vec![]);
        let open = (2, 14, Completeness::Open, vec![(20, 12)]);
        assert_eq!(summaries(&steps), [headless, open]);
    }

    /// Simultaneous stages: no waiting before the longest of them has ended.
    #[test]
    fn overlapping_stages() {
        let steps = [
            step(1, 0, 0, 100),
            step(1, 1, 10, 20),
            step(1, 2, 40, 90),
            step(1, 1, 130, 140),
        ];
        assert_eq!(
            summaries(&steps),
            [(4, 140, Completeness::Whole, vec![(130, 30)])]
        );
    }

    /// A stage within another has its own time in common with it; one after it has not.
    #[test]
    fn own_time() {
        let with_own = |step: Step, own_ns| Step { own_ns, ..step };
        let steps = [
            with_own(step(1, 0, 0, 100), 30),
            with_own(step(1, 1, 10, 20), 5),
            with_own(step(1, 1, 130, 150), 4),
        ];
        assert_eq!(
            summaries(&steps),
            [(3, 116, Completeness::Whole, vec![(130, 30)])]
        );
        assert_eq!(steps.map(|it| it.service_ns()), [70, 5, 16]);
    }

    /// Another process has its own addresses.
    #[test]
    fn processes_are_apart() {
        let other = Step {
            item: (8, 1),
            ..step(1, 0, 1, 3)
        };
        assert_eq!(summaries(&[step(1, 0, 0, 10), other]).len(), 2);
    }
}
