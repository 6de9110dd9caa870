//! The programs that record interrupts, softirqs and page faults.

use aya::programs::RawTracePoint;
use aya::programs::raw_trace_point::RawTracePointLinkId;

use super::{Programs, ProgramsError, RunTime};
use crate::collect::btf::Btf;
use crate::pmu::attr::Faults;
use crate::stream::decode::Interferences;

/// Interrupt handlers: those of devices, and each CPU vector that the kernel traces. Each has a tracepoint `_entry`
/// and one `_exit`.
///
/// Source: include/trace/events/irq.h, arch/x86/include/asm/trace/irq_vectors.h.
const HANDLERS: [&str; 11] = [
    "irq_handler",
    "local_timer",
    "reschedule",
    "call_function",
    "call_function_single",
    "irq_work",
    "x86_platform_ipi",
    "thermal_apic",
    "threshold_apic",
    "deferred_error_apic",
    "error_apic",
];

/// The handler that every kernel with tracepoints of interrupts has.
const DEVICES: &str = HANDLERS[0];

/// Work deferred by interrupts.
const SOFT: &str = "softirq";

/// Begin and end of a handler, by program.
const HARD_PROGRAMS: (&str, &str) = ("irq_begins", "irq_ends");

/// Programs at the begin and end of [`SOFT`].
const SOFT_PROGRAMS: (&str, &str) = ("softirq_begins", "softirq_ends");

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

/// Tracepoints that recording the time of interrupts needs.
pub(super) fn needed() -> impl Iterator<Item = String> {
    [DEVICES, SOFT].into_iter().flat_map(both_ends)
}

/// Name of one that the kernel lacks; `None` if it has all.
fn missing(kernel: &Btf) -> Option<String> {
    needed().find(|name| kernel.tracepoint_arguments(name).is_none())
}

fn both_ends(handler: &str) -> [String; 2] {
    [format!("{handler}_entry"), format!("{handler}_exit")]
}

impl Attachments {
    /// Attachments for the requested data, as far as this kernel supports it.
    pub(super) fn of(asked: Interferences, kernel: &Btf) -> Self {
        let mut attachments = Self::default();
        if !asked.irq {
            return attachments;
        }
        attachments.missing = missing(kernel);
        let hard = HANDLERS.iter().map(|handler| (handler, HARD_PROGRAMS));
        for (handler, (begins, ends)) in hard.chain([(&SOFT, SOFT_PROGRAMS)]) {
            let [entry, exit] = both_ends(handler);
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
            return Err(ProgramsError::NoInterrupts(missing.clone()));
        }
        if !self.interference.handlers.is_empty() {
            for (begins, ends) in [HARD_PROGRAMS, SOFT_PROGRAMS] {
                self.verify(begins, |program: &mut RawTracePoint| program.load())?;
                self.verify(ends, |program: &mut RawTracePoint| program.load())?;
            }
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
