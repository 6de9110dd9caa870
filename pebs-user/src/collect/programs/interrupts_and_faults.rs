//! The programs that see what comes between threads and their work: interrupts and page faults.

use aya::programs::RawTracePoint;
use aya::programs::raw_trace_point::RawTracePointLinkId;

use super::{Programs, ProgramsError, RunTime};
use crate::collect::btf::Btf;
use crate::pmu::attr::Faults;
use crate::stream::decode::Interferences;

/// Handlers of interrupts: of devices, and of each of the CPU's own vectors that the kernel traces. Each has a
/// tracepoint `_entry` and one `_exit`.
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

/// Work that interrupts left for later.
const SOFT: &str = "softirq";

/// Begin and end of a handler, by program.
const HARD_PROGRAMS: (&str, &str) = ("irq_begins", "irq_ends");

/// The same of [`SOFT`].
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
    /// Those that have to be seen: their end as well where their time is wanted.
    pub(in crate::collect) const fn needed(asked: Interferences) -> &'static [Self] {
        const EACH: [Faults; 3] = [Faults::Minor, Faults::Major, Faults::All];
        match asked.faults {
            true => &EACH,
            false => &[Self::All],
        }
    }
}

/// What is attached, and to what.
#[derive(Default)]
pub(super) struct Attachments {
    /// Program and tracepoint, by `(begin, end)`.
    handlers: Vec<(&'static str, String)>,
    /// The tracepoint that is missing.
    missing: Option<String>,
    raw: Vec<(&'static str, RawTracePointLinkId)>,
}

/// Whether the kernel can tell the time of interrupts; the name of the tracepoint that it lacks.
pub(crate) fn irq_missing(kernel: &Btf) -> Option<String> {
    let ends = [DEVICES, SOFT].into_iter().flat_map(both_ends);
    ends.into_iter()
        .find(|name| kernel.tracepoint_arguments(name).is_none())
}

fn both_ends(handler: &str) -> [String; 2] {
    [format!("{handler}_entry"), format!("{handler}_exit")]
}

impl Attachments {
    /// For what is asked for, as far as this kernel has it.
    pub(super) fn of(asked: Interferences, kernel: &Btf) -> Self {
        let mut attachments = Self::default();
        if !asked.irq {
            return attachments;
        }
        attachments.missing = irq_missing(kernel);
        let hard = HANDLERS.iter().map(|handler| (handler, HARD_PROGRAMS));
        for (handler, (begins, ends)) in hard.chain([(&SOFT, SOFT_PROGRAMS)]) {
            let [entry, exit] = both_ends(handler);
            let known = |name: &str| kernel.tracepoint_arguments(name).is_some();
            if known(&entry) && known(&exit) {
                // The end first: one without its begin is passed over.
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

    /// Takes the programs off again; what can't be taken off now goes with the program.
    pub(super) fn detach_interference(&mut self) {
        for (name, link) in std::mem::take(&mut self.interference.raw) {
            let _ = self.with(name, |program: &mut RawTracePoint| program.detach(link));
        }
    }
}
