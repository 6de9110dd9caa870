//! Takes decoded records, such as those of a file that another program recorded.
//!
//! From ordering on they are treated like those of our own rings; their losses are those that the file reports.

use std::ops::Range;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::Pipeline;
use crate::ledger::Reason;
use crate::store::schema::{LossRow, visit_flag};
use crate::stream::access::Access;
use crate::stream::bulk::Gap;
use crate::stream::decode::{Decoded, Inbox};
use crate::stream::sample::RawSample;
use crate::stream::sideband::SidebandEvent;
use crate::stream::stacks::StackKey;
use crate::symbolize::unwind::UserStack;
use crate::units::{Cpu, KtimeNs, Pid, Tid, TraceNs};

/// Data of a recording between two frontiers, without the records put into the inbox.
#[derive(Debug, Default)]
pub struct ImportedRound {
    /// Number of records put into the inbox, by CPU; malformed ones count as samples.
    pub decoded: FxHashMap<Cpu, Decoded>,
    /// Ranges without full data that begin before the frontier.
    pub losses: Vec<ReportedLoss>,
    /// Samples left out on purpose.
    pub filtered: u64,
    /// Samples without a time.
    pub untimed: u64,
    /// No record of an earlier time follows.
    pub frontier: KtimeNs,
}

/// A range without full data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedLoss {
    /// Last instant known to be complete.
    pub begin: KtimeNs,
    /// First instant known to be complete again.
    pub end: KtimeNs,
    /// The CPU; `None`: all.
    pub cpu: Option<Cpu>,
    /// The thread; `None`: any.
    pub tid: Option<Tid>,
    /// Number of records lost; `None`: the kernel stopped a counter.
    pub records: Option<u64>,
}

impl Pipeline {
    /// Inbox of decoded records; [`Pipeline::settle`] processes them.
    pub fn inbox(&mut self) -> &mut impl Inbox {
        &mut self.order
    }

    /// Keeps the memory access of a sample put into the inbox.
    pub fn access(&mut self, tid: Tid, sample: &RawSample, access: Access) {
        self.rows.accesses.hold(tid, &sample.bare(), access);
    }

    /// A process mapped data.
    pub fn data_mapping(&mut self, pid: Pid, range: Range<u64>, name: &[u8]) {
        self.rows.symbolizer.on_data_mapping(pid, range, name);
    }

    /// Takes a process event, in the order of the file.
    pub fn process(&mut self, event: SidebandEvent) {
        self.process_event(event);
    }

    /// Key of a sample's call stack whose frames in user space are unwound from a copy. `kernel`: as in [`Inbox::stack`].
    pub fn user_stack(
        &mut self,
        of: (Pid, TraceNs),
        kernel: (impl ExactSizeIterator<Item = u64>, bool),
        stack: Option<&UserStack<'_>>,
    ) -> StackKey {
        self.rows.unwound(of, kernel, stack)
    }

    /// Key of a sample's call stack, see [`Inbox::stack`].
    pub fn stack(
        &mut self,
        pid: Pid,
        shape: (usize, bool),
        frames: impl Iterator<Item = u64>,
    ) -> StackKey {
        self.rows.chains.key(pid, shape, frames)
    }

    /// Processes the inbox and `round`, which is empty afterwards.
    pub fn settle(&mut self, round: &mut ImportedRound) {
        for (cpu, decoded) in std::mem::take(&mut round.decoded) {
            self.accounts.decoded_uncounted(cpu, &decoded);
        }
        self.accounts.left_out(round.filtered, round.untimed);
        (round.filtered, round.untimed) = (0, 0);
        for loss in round.losses.drain(..) {
            self.reported_loss(&loss);
        }
        self.sideband
            .make_contiguous()
            .sort_by_key(|(time, _)| *time);
        let frontier = self.clock.trace_of_ktime(round.frontier);
        self.advance(frontier);
        self.rows
            .tick(Duration::from_nanos(frontier.0.max(0).cast_unsigned()));
        self.publish();
    }

    fn reported_loss(&mut self, loss: &ReportedLoss) {
        self.gap(&Gap {
            begin: self.clock.trace_of_ktime(loss.begin),
            end: self.clock.trace_of_ktime(loss.end),
            cpu: loss.cpu.unwrap_or(Cpu::UNKNOWN),
            tid: loss.tid,
            records: loss.records,
        });
    }

    /// Adds a loss range reported by the kernel, and counts its records.
    pub(super) fn gap(&mut self, gap: &Gap) {
        let Gap {
            begin,
            end,
            cpu,
            tid,
            records,
        } = *gap;
        let (flag, reason) = if let Some(records) = records {
            self.accounts.reported_lost(cpu, records);
            (visit_flag::LOSS, Reason::LostPerfRing.name())
        } else {
            self.rows.throttled += 1;
            (visit_flag::THROTTLED, "throttled")
        };
        let row = LossRow {
            begin_ns: begin,
            end_ns: end,
            cpu: cpu.known().map(Cpu),
            tid,
            reason: reason.to_owned(),
            records,
        };
        self.rows.loss_in_visits(&row, flag, &mut self.correlator);
    }
}
