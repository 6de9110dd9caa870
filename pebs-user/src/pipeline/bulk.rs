//! Takes samples of the bulk transport, and joins them to the kernel programs' marks by time.

use rustc_hash::FxHashSet;

use super::Pipeline;
use super::rows::Rows;
use crate::ledger::Reason;
use crate::store::schema::{LossRow, visit_flag};
use crate::stream::access::Access;
use crate::stream::bulk::{Reading, RingKind, RingReport, RingState, Unreadable};
use crate::stream::cycle::Cycle;
use crate::stream::decode::{Body, Inbox, Payloads, Record, UserCopy};
use crate::stream::sample::RawSample;
use crate::stream::samples::SampleSource;
use crate::stream::stacks::StackKey;
use crate::symbolize::unwind::UserStack;
use crate::units::{Cpu, Pid, Tid, TraceNs};

/// Settings of the bulk transport.
#[derive(Clone, Debug)]
pub struct BulkOptions {
    /// By event: format of its rings.
    pub kinds: Vec<RingKind>,
    /// Whether the rings hold samples of every process; only those of processes with a mark are used.
    pub everyone: bool,
}

impl BulkOptions {
    /// Whether the rings hold all samples, so that no program sees any.
    pub(super) fn has_all(&self) -> bool {
        self.kinds.iter().any(|kind| kind.reports_throttling)
    }
}

/// The rings of a run.
#[derive(Debug, Default)]
pub(super) struct Bulk {
    kinds: Vec<RingKind>,
    rings: Vec<RingState>,
    /// Processes that made a mark; `None`: all processes are used.
    marked: Option<FxHashSet<Pid>>,
    report: RingReport,
}

impl Bulk {
    pub(super) fn new(options: &BulkOptions) -> Self {
        Self {
            kinds: options.kinds.clone(),
            marked: options.everyone.then(FxHashSet::default),
            ..Self::default()
        }
    }

    /// Wraps `inbox` for the kernel programs' records: notes the processes that make marks, and passes call stacks and
    /// memory accesses to `rows`.
    pub(super) fn watch<'a, I: Inbox>(
        &'a mut self,
        inbox: &'a mut I,
        rows: &'a mut Rows,
    ) -> Watch<'a, I> {
        Watch {
            inbox,
            rows,
            marked: self.marked.as_mut(),
        }
    }
}

/// Notes which processes make marks, and keeps memory accesses.
pub(super) struct Watch<'a, I> {
    inbox: &'a mut I,
    rows: &'a mut Rows,
    marked: Option<&'a mut FxHashSet<Pid>>,
}

impl<I: Inbox> Inbox for Watch<'_, I> {
    #[inline(always)]
    fn sample(&mut self, pid: Pid, tid: Tid, sample: RawSample) {
        self.inbox.sample(pid, tid, sample);
    }

    #[inline(always)]
    fn samples(&mut self, pid: Pid, tid: Tid, samples: &impl SampleSource) {
        self.inbox.samples(pid, tid, samples);
    }

    fn access(&mut self, tid: Tid, sample: &RawSample, access: Access) {
        self.rows.accesses.hold(tid, &sample.bare(), access);
    }

    #[inline(always)]
    fn record(&mut self, record: Record) {
        if let (Some(marked), Body::Mark { .. }) = (&mut self.marked, &record.body) {
            marked.insert(record.pid);
        }
        self.inbox.record(record);
    }

    fn payloads(&mut self) -> &mut Payloads {
        self.inbox.payloads()
    }

    fn stack(
        &mut self,
        pid: Pid,
        shape: (usize, bool),
        frames: impl Iterator<Item = u64>,
    ) -> StackKey {
        self.rows.chains.key(pid, shape, frames)
    }

    fn user_stack(&mut self, (pid, time): (Pid, TraceNs), copy: &UserCopy<'_>) -> StackKey {
        let kernel = copy.kernel.iter().map(|word| u64::from_ne_bytes(*word));
        let stack = UserStack::of_copy(copy);
        self.rows
            .unwound((pid, time), (kernel, copy.is_cut), stack.as_ref())
    }
}

impl Pipeline {
    /// Takes the bytes of the bulk rings; call it after the marks of the same cycle were taken.
    pub(super) fn take_in_bulk(&mut self, cycle: &Cycle) {
        let Self {
            bulk,
            order,
            clock,
            accounts,
            rows,
            counted_at,
            ..
        } = self;
        let Bulk {
            kinds,
            rings,
            marked,
            report,
        } = bulk;
        let mut broken = Vec::new();
        for (index, stream) in cycle.bulk.iter().enumerate() {
            if rings.len() == index {
                rings.push(RingState::new(stream.cpu, stream.event));
            }
            let Some(kind) = kinds.get(usize::from(stream.event.0)) else {
                continue;
            };
            let reading = Reading {
                kind,
                clock,
                wanted: |pid| marked.as_ref().is_none_or(|marked| marked.contains(&pid)),
            };
            let mut inbox = Watch {
                inbox: &mut *order,
                rows: &mut *rows,
                marked: None,
            };
            rings[index].decode(&stream.bytes, &reading, &mut inbox, report);
            if let Some((samples, time)) = stream.lost {
                let time = clock.trace_of_ktime(time);
                rings[index].lost_so_far(samples, time, &mut report.gaps);
            }
            if let Some(time) = stream.broken {
                let time = clock.trace_of_ktime(time);
                broken.push(rings[index].unreadable(*counted_at, time));
                // At least one.
                report.decoded.malformed += 1;
            }
            accounts.decoded_uncounted(stream.cpu, &std::mem::take(&mut report.decoded));
            accounts.left_out(std::mem::take(&mut report.filtered), 0);
        }
        broken.iter().for_each(|range| self.unreadable(range));
        self.take_gaps();
    }

    fn unreadable(&mut self, range: &Unreadable) {
        let row = LossRow {
            begin_ns: range.begin,
            end_ns: range.end,
            cpu: range.cpu.known().map(Cpu),
            tid: None,
            reason: Reason::Malformed.name().to_owned(),
            records: None,
        };
        self.rows
            .loss_in_visits(&row, visit_flag::LOSS, &mut self.correlator);
    }

    /// Counts losses that no further record of the rings will report.
    pub(super) fn finish_bulk(&mut self, end: TraceNs) {
        let rings = self.bulk.rings.iter();
        let stopped = rings.filter_map(|ring| ring.finish(end));
        self.bulk.report.gaps.extend(stopped);
        self.take_gaps();
    }

    fn take_gaps(&mut self) {
        let mut gaps = std::mem::take(&mut self.bulk.report.gaps);
        gaps.drain(..).for_each(|gap| self.gap(&gap));
        self.bulk.report.gaps = gaps;
    }
}
