//! The programs that record interrupts, softirqs, page faults and reclaim of memory.

use std::collections::BTreeSet;

use aya::programs::RawTracePoint;
use aya::programs::raw_trace_point::RawTracePointLinkId;

use super::{Programs, ProgramsError, RunTime};
use crate::arch::machine;
use crate::collect::btf::Btf;
use crate::pmu::attr::Faults;
use crate::stream::decode::Interferences;

/// Handler of the interrupts of devices, which every kernel with tracepoints of interrupts has. Beside it there are those
/// of a machine's CPUs. Each has a tracepoint `_entry` and one `_exit`.
///
/// Source: include/trace/events/irq.h.
const DEVICES: &str = "irq_handler";

/// Work deferred by interrupts.
const SOFT: &str = "softirq";

/// Begin and end of a handler, by program.
const HARD_PROGRAMS: (&str, &str) = ("irq_begins", "irq_ends");

/// Programs at the begin and end of [`SOFT`].
const SOFT_PROGRAMS: (&str, &str) = ("softirq_begins", "softirq_ends");

/// Reclaim of the machine's memory, and of a cgroup's, which not every kernel has. Each has a tracepoint `_begin` and one
/// `_end`.
///
/// Source: include/trace/events/vmscan.h.
const RECLAIMS: [&str; 2] = ["mm_vmscan_direct_reclaim", "mm_vmscan_memcg_reclaim"];

/// Programs at the begin and end of [`RECLAIMS`].
const RECLAIM_PROGRAMS: (&str, &str) = ("reclaim_begins", "reclaim_ends");

/// The program at page faults of a kind.
pub(super) const fn fault_program(which: Faults) -> &'static str {
    match which {
        Faults::All => "page_fault",
        Faults::Minor => "minor_fault",
        Faults::Major => "major_fault",
    }
}

impl Faults {
    /// The page fault events needed: if their time is recorded, also those at the end of faults.
    pub(in crate::collect) const fn needed(asked: Interferences) -> &'static [Self] {
        const EACH: [Faults; 3] = [Faults::Minor, Faults::Major, Faults::All];
        match asked.faults {
            true => &EACH,
            false => &[Self::All],
        }
    }
}

/// The attachments and their tracepoints.
#[derive(Default)]
pub(super) struct Attachments {
    /// Program and tracepoint, by `(begin, end)`.
    handlers: Vec<(&'static str, String)>,
    /// The tracepoint that is missing.
    missing: Option<String>,
    raw: Vec<(&'static str, RawTracePointLinkId)>,
}

/// Tracepoints that recording the requested data needs.
pub(super) fn needed(asked: Interferences) -> impl Iterator<Item = String> {
    let irq = [DEVICES, SOFT].into_iter().filter(move |_| asked.irq);
    let faults = RECLAIMS.into_iter().take(1).filter(move |_| asked.faults);
    irq.flat_map(both_ends)
        .chain(faults.flat_map(both_ends_of_reclaim))
}

/// Name of one that the kernel lacks; `None` if it has all.
fn missing(asked: Interferences, kernel: &Btf) -> Option<String> {
    needed(asked).find(|name| kernel.tracepoint_arguments(name).is_none())
}

fn both_ends(handler: &str) -> [String; 2] {
    [format!("{handler}_entry"), format!("{handler}_exit")]
}

fn both_ends_of_reclaim(reclaim: &str) -> [String; 2] {
    [format!("{reclaim}_begin"), format!("{reclaim}_end")]
}

impl Attachments {
    /// Attachments for the requested data, as far as this kernel supports it.
    pub(super) fn of(asked: Interferences, kernel: &Btf) -> Self {
        let mut attachments = Self {
            missing: missing(asked, kernel),
            ..Self::default()
        };
        let mut wanted = Vec::new();
        if asked.irq {
            let handlers = [DEVICES].into_iter().chain(machine::INTERRUPTS);
            wanted.extend(handlers.map(|handler| (both_ends(handler), HARD_PROGRAMS)));
            wanted.push((both_ends(SOFT), SOFT_PROGRAMS));
        }
        if asked.faults {
            wanted.extend(RECLAIMS.map(|it| (both_ends_of_reclaim(it), RECLAIM_PROGRAMS)));
        }
        for ([entry, exit], (begins, ends)) in wanted {
            let known = |name: &str| kernel.tracepoint_arguments(name).is_some();
            if known(&entry) && known(&exit) {
                // The end first: an end without its begin is ignored.
                attachments.handlers.push((ends, exit));
                attachments.handlers.push((begins, entry));
            }
        }
        attachments
    }
}

impl Programs {
    pub(super) fn load_interference(&mut self) -> Result<(), ProgramsError> {
        if let Some(missing) = &self.interference.missing {
            return Err(ProgramsError::NoInterruptions(missing.clone()));
        }
        let programs = self.interference.handlers.iter().map(|it| it.0);
        let programs: BTreeSet<&str> = programs.collect();
        for name in programs {
            self.verify(name, |program: &mut RawTracePoint| program.load())?;
        }
        Ok(())
    }

    /// Runs of the programs at begin and end of interrupts, and of softirqs.
    #[must_use]
    pub(crate) fn irq_times(&self) -> [[Option<RunTime>; 2]; 2] {
        let of = |(begins, ends)| [self.run_time(begins), self.run_time(ends)];
        [HARD_PROGRAMS, SOFT_PROGRAMS].map(of)
    }

    pub(super) fn attach_interference(&mut self) -> Result<(), ProgramsError> {
        for (name, tracepoint) in self.interference.handlers.clone() {
            let link = self.with(name, |program: &mut RawTracePoint| {
                program.attach(&tracepoint)
            })?;
            self.interference.raw.push((name, link));
        }
        Ok(())
    }

    /// Detaches the programs; one that can't be detached now is detached when it is dropped.
    pub(super) fn detach_interference(&mut self) {
        for (name, link) in std::mem::take(&mut self.interference.raw) {
            let _ = self.with(name, |program: &mut RawTracePoint| program.detach(link));
        }
    }
}
