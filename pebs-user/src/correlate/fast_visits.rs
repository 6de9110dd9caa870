//! Fast path for calls that begin and return with nothing but samples in between: most visits of a busy server.
//!
//! The state machine would open such a visit, hold its samples and close it before any other record. Here both marks
//! and the samples between them are read in place from the lane.
//!
//! Invariant: the output equals that of the state machine, which handles everything that is not this simple.

use pebs_common::record::Role;

use super::frames::inside_frame;
use super::interrupts_and_faults::InterruptionTimes;
use super::loss::VisitThread;
use super::marks::read_args;
use super::thread::Thread;
use super::{Batch, ClosedVisit, Correlator, Counts, EventCounts, OwnWork, Sink, costly};
use crate::store::run::VisitRule;
use crate::store::schema::ArgValue;
use crate::stream::decode::{Body, Payloads};
use crate::stream::order::{Lane, Two};
use crate::stream::sample::SampleKind;
use crate::units::{Cpu, TraceNs};

/// Buffers of a visit, kept for reuse.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    args: Vec<Option<ArgValue>>,
    batch: Batch,
    events: EventCounts,
}

impl Correlator {
    /// Handles the lane's next records if they are a complete call; returns whether they were.
    #[inline]
    pub(super) fn whole_visit(
        &mut self,
        lane: &mut Lane,
        payloads: &Payloads,
        until: TraceNs,
        sink: &mut impl Sink,
    ) -> bool {
        let Some(two) = lane.next_two(until) else {
            return false;
        };
        let whole = self.take_whole(&two, payloads, sink);
        let between = two.between.sps.len();
        if whole {
            lane.pass_two(between);
        }
        whole
    }

    fn take_whole(&mut self, two: &Two<'_>, payloads: &Payloads, sink: &mut impl Sink) -> bool {
        let Two {
            first,
            second,
            between,
        } = *two;
        let (
            Body::Mark {
                probe,
                role: Role::Begin,
                stepped: begin_stepped,
                ran_ns: begin_ran_ns,
                id,
                sp,
                args,
                ..
            },
            Body::Mark {
                probe: returned,
                role: Role::Return,
                stepped: end_stepped,
                ran_ns: end_ran_ns,
                sp: return_sp,
                args: end_args,
                ..
            },
        ) = (first.body, second.body)
        else {
            return false;
        };
        let (pid, tid, cpu) = (first.pid, first.tid, first.cpu);
        let samples = between.samples;
        let Self {
            probes,
            columns,
            options,
            mark_times,
            coldness,
            threads,
            runs,
            losses,
            throttles,
            next_visit,
            next_item,
            held,
            scratch,
            ..
        } = self;
        let number = usize::from(probe.0);
        let (Some(rule), Some(next_item)) = (probes.get(number), next_item.get_mut(number)) else {
            return false;
        };
        let is_call = (rule.rule == VisitRule::Call)
            & !rule.resumes
            & (probe == returned)
            & (sp == return_sp);
        let is_free = |thread: &mut Thread| thread.pid == pid && thread.is_free_on(cpu);
        let is_here = |kind: &SampleKind| kind.cpu() == cpu;
        let is_plain = is_call
            && second.cpu == cpu
            && runs.is_none()
            && options.counters == 0
            && throttles.is_empty()
            && samples.kinds.first().is_none_or(is_here)
            && samples.are_of_one_cpu()
            && *held + samples.len() <= options.max_samples
            && threads.get_mut(tid).is_some_and(is_free)
            && inside_frame(sp, between.sps) == samples.len();
        if !is_plain {
            return false;
        }
        let item = *next_item;
        *next_item += 1;
        let who = VisitThread {
            tid: Some(tid),
            stayed: cpu.known().filter(|_| options.switches).map(Cpu),
        };
        let mut flags = losses.flags(first.time, second.time, who);
        let Scratch {
            args: row,
            batch,
            events,
        } = scratch;
        if *columns > 0 {
            row.clear();
            row.resize(*columns, None);
            read_args(&rule.begin_fields, args, payloads, row);
            read_args(&rule.end_fields, end_args, payloads, row);
        }
        batch.clear();
        if let Some(each) = rule.batch {
            flags |= batch.read(each, args.valid, payloads.get(args));
        }
        let [begin_mark, end_mark] = [(Role::Begin, begin_stepped), (Role::Return, end_stepped)]
            .map(|(role, stepped)| mark_times[number].of(role, stepped));
        let active = (first.time, second.time);
        let is_active = active.0 < active.1;
        let visit = ClosedVisit {
            visit_id: *next_visit,
            item_id: id.filter(|_| rule.has_id).unwrap_or(item),
            probe,
            pid,
            tid,
            threads: &[],
            begin: (first.time, cpu),
            end: Some((second.time, Some(cpu))),
            flags,
            args: row,
            batch,
            active: if is_active { &[active] } else { &[] },
            shared_ns: 0,
            switches: options.switches,
            page_faults: options.page_faults,
            counts: Counts::default(),
            interference: InterruptionTimes::default().columns(options.interference),
            own: OwnWork {
                marks_ns: begin_mark.after_ns + end_mark.before_ns,
                cold_ns: coldness.more(begin_stepped, begin_ran_ns).after_ns
                    + coldness.more(end_stepped, end_ran_ns).before_ns,
                samples: costly(samples.kinds, options.costly_events),
                ..OwnWork::default()
            },
            samples,
            waits: &[],
            mark_waits: (0, 0),
            events,
        };
        *next_visit += 1;
        sink.visit(&visit);
        true
    }
}
