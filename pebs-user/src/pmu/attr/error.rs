//! Why an event can't be had on this machine.

use super::ibs_terms;
use super::lbr::NoCallRecord;
use crate::failure::Hint;
use crate::pmu::sysfs::TermError;

/// An event or reset value that this machine can't do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    /// No such name on this machine.
    #[error("unknown event '{event}'{}", if elsewhere.is_empty() { "" } else { " on this CPU" })]
    Unknown {
        /// As typed.
        event: String,
        /// Closest names, best first.
        nearest: Vec<String>,
        /// CPUs that have it.
        elsewhere: Vec<String>,
    },
    /// One kind of a hybrid CPU's cores lacks the event.
    #[error("event '{event}' is not on the cores of {pmu}")]
    NotOnAllCores {
        /// As typed.
        event: String,
        /// The PMU of the cores without it.
        pmu: String,
        /// PMUs of the cores with it.
        having: Vec<String>,
    },
    /// The event needs a hardware PMU.
    #[error("event '{event}' can't be counted: {reason}")]
    NoPmu {
        /// As typed.
        event: String,
        /// Why there is none.
        reason: String,
    },
    /// No such PMU.
    #[error("unknown PMU '{pmu}'{}", suffix(reason.as_deref()))]
    UnknownPmu {
        /// As typed.
        pmu: String,
        /// PMUs of this machine.
        known: Vec<String>,
        /// Why there is none, if it is the core's.
        reason: Option<String>,
    },
    /// A term is unknown or too large.
    #[error(transparent)]
    Term(#[from] TermError),
    /// A latency from which on loads are sampled that IBS does not know.
    #[error("cannot sample loads from {latency} cycles on: ibs_op knows ldlat={least} to {most}")]
    LoadLatency {
        /// As typed, cycles.
        latency: u64,
        /// The smallest.
        least: u64,
        /// The largest.
        most: u64,
    },
    /// A mode was asked for in which the event never happens.
    #[error("event '{event}' never happens in user mode")]
    KernelOnly {
        /// As typed.
        event: String,
    },
    /// Only the hypervisor was asked for, whose mode no x86 counts.
    #[error("event '{event}' counts neither in user mode nor in the kernel, so never")]
    NoMode {
        /// As typed.
        event: String,
    },
    /// The CPU's record of calls does not go with it.
    #[error("cannot take call stacks of '{event}' by lbr, the CPU's record of calls: {why}")]
    NoCallRecord {
        /// As resolved.
        event: String,
        /// Why not.
        why: NoCallRecord,
    },
    /// A precise level on an event without one.
    #[error("event '{event}' has no precise level")]
    NoPreciseLevel {
        /// As typed.
        event: String,
    },
    /// x86 can't watch reads alone.
    #[error("breakpoint '{event}' can't stop at reads alone")]
    ReadOnlyBreakpoint {
        /// As typed.
        event: String,
    },
    /// A reset value of 0.
    #[error("reset value 0: there is no sample every 0 events")]
    ResetZero,
    /// A reset value that the machine can't keep up with.
    #[error(
        "reset value {reset} of event '{event}' is too small: the limit is {limit} {unit}, as {why}"
    )]
    ResetTooSmall {
        event: String,
        /// As typed.
        reset: u64,
        /// Smallest value that is accepted.
        limit: u64,
        /// What it counts.
        unit: &'static str,
        /// Where the limit comes from.
        why: &'static str,
    },
    /// A reset value with the top bit set: the kernel takes it for a negative one.
    #[error(
        "reset value {reset} is too large: the kernel takes at most {}",
        i64::MAX
    )]
    ResetTooLarge {
        /// As typed.
        reset: u64,
    },
}

impl Hint for EventError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Unknown {
                nearest, elsewhere, ..
            } if !nearest.is_empty() || !elsewhere.is_empty() => suggestion(nearest, elsewhere),
            Self::NotOnAllCores { event, having, .. } => {
                let one = having.first().map_or("", String::as_str);
                format!(
                    "--event {one}/{event}/ samples the other cores alone; \
                     cycles, instructions and auto are on all"
                )
            }
            Self::Unknown { .. } => {
                "'pebs-trace events' lists what there is here; or give a code: \
                 cpu/event=0xc2,umask=0x1/pp, r01c2, mem:BIN:FUNC:x"
                    .into()
            }
            Self::NoPmu { .. }
            | Self::UnknownPmu {
                reason: Some(_), ..
            } => "use --event cpu-clock, or run on bare metal or in a guest with a virtual PMU; \
                 'pebs-trace doctor' shows what there is"
                .into(),
            Self::UnknownPmu { known, .. } => format!("this machine has {}", known.join(", ")),
            Self::Term(TermError::Unknown { pmu, term, known }) => {
                let ibs = ibs_terms::advice(pmu, term, known);
                ibs.unwrap_or_else(|| format!("PMU {pmu} has {}", known.join(", ")))
            }
            Self::Term(_) => "'pebs-trace doctor' shows the PMUs; their fields are in \
                 /sys/bus/event_source/devices/PMU/format"
                .into(),
            Self::LoadLatency {
                latency,
                least,
                most,
            } => format!(
                "use ldlat={}, or ibs_op// --memory, which has the latency of every load that missed the L1",
                (*latency).clamp(*least, *most)
            ),
            Self::KernelOnly { .. } => "leave out ':u' and --exclude-kernel for it".into(),
            Self::NoMode { .. } => "use ':u', ':k', or none: an x86 does not count ':h'".into(),
            Self::NoCallRecord { why, .. } => match why {
                NoCallRecord::KernelOnly => "leave out ':k', or use --call-graph fp".into(),
                _ => "use --call-graph fp; it needs programs built with -fno-omit-frame-pointer"
                    .into(),
            },
            Self::NoPreciseLevel { .. } => "leave out ':p': only hardware events have one".into(),
            Self::ReadOnlyBreakpoint { .. } => "use ':rw', which stops at both".into(),
            Self::ResetZero => "the default is --reset 16000".into(),
            Self::ResetTooSmall { limit, .. } => format!("use --reset {limit} or more"),
            Self::ResetTooLarge { .. } => "the default is --reset 16000".into(),
        })
    }
}

/// Names that are near, and where the name itself exists.
fn suggestion(nearest: &[String], elsewhere: &[String]) -> String {
    /// More CPUs than this would fill the line.
    const SHOWN: usize = 6;
    let mut parts = Vec::new();
    if !nearest.is_empty() {
        parts.push(format!("did you mean {}?", nearest.join(", ")));
    }
    if !elsewhere.is_empty() {
        let shown = elsewhere[..elsewhere.len().min(SHOWN)].join(", ");
        let more = elsewhere.len().saturating_sub(SHOWN);
        let rest = if more == 0 {
            String::new()
        } else {
            format!(" and {more} more")
        };
        parts.push(format!("it exists on {shown}{rest}"));
    }
    parts.join(" ")
}

fn suffix(reason: Option<&str>) -> String {
    reason.map_or(String::new(), |reason| format!(": {reason}"))
}
