//! Errors of resolving an event on this machine.

use super::ibs_terms;
use super::lbr::NoCallRecord;
use crate::failure::Hint;
use crate::pmu::sysfs::TermError;

/// An event or reset value that this machine does not support.
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
    /// Missing on one kind of a hybrid CPU's cores.
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
        /// Why there is no hardware PMU.
        reason: String,
    },
    /// No such PMU.
    #[error("unknown PMU '{pmu}'{}", suffix(reason.as_deref()))]
    UnknownPmu {
        /// As typed.
        pmu: String,
        /// PMUs of this machine.
        known: Vec<String>,
        /// Why it is missing, if it is the core's.
        reason: Option<String>,
    },
    /// A term is unknown or too large.
    #[error(transparent)]
    Term(#[from] TermError),
    /// A minimum load latency that IBS does not support.
    #[error("cannot sample loads from {latency} cycles on: ibs_op knows ldlat={least} to {most}")]
    LoadLatency {
        /// As typed, cycles.
        latency: u64,
        /// The smallest.
        least: u64,
        /// The largest.
        most: u64,
    },
    /// Only modes were requested in which the event never occurs.
    #[error("event '{event}' never happens in user mode")]
    KernelOnly {
        /// As typed.
        event: String,
    },
    /// Only the hypervisor's mode was requested, which no x86 counts.
    #[error("event '{event}' counts neither in user mode nor in the kernel, so never")]
    NoMode {
        /// As typed.
        event: String,
    },
    /// The CPU's record of calls does not go with it.
    #[error("cannot take call stacks of '{event}' by lbr (last branch records): {why}")]
    NoCallRecord {
        /// As resolved.
        event: String,
        /// Why not.
        why: NoCallRecord,
    },
    /// A precise level was requested for an event without one.
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
    /// A breakpoint that x86 can't set.
    #[error(
        "breakpoint '{event}' watches {len} bytes at an address that is not a multiple of {len}"
    )]
    UnalignedBreakpoint {
        /// As typed.
        event: String,
        len: u64,
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
        /// Unit of the value.
        unit: &'static str,
        /// Reason for the limit.
        why: &'static str,
    },
    /// A reset value with the top bit set, which is negative to the kernel.
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
                NoCallRecord::KernelOnly => "leave out ':k', or use --call-graph eh".into(),
                _ => "use --call-graph eh, which any event has".into(),
            },
            Self::NoPreciseLevel { .. } => "leave out ':p': only hardware events have one".into(),
            Self::ReadOnlyBreakpoint { .. } => "use ':rw', which stops at both".into(),
            Self::UnalignedBreakpoint { .. } => {
                "append a shorter /LEN of 1, 2 or 4, or use two events".into()
            }
            Self::ResetZero => "the default is --reset 16000".into(),
            Self::ResetTooSmall { limit, .. } => format!("use --reset {limit} or more"),
            Self::ResetTooLarge { .. } => "the default is --reset 16000".into(),
        })
    }
}

/// Names that are near, and where the name itself exists.
fn suggestion(nearest: &[String], elsewhere: &[String]) -> String {
    /// Maximum number of listed CPUs.
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
