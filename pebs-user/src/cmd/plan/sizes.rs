//! Size of a sample in bytes, by its content.

use pebs_common::record::{STACK_CLASSES, Sample, SampleAccess, SampleStack};
use serde::Serialize;

use super::super::values::CallGraphArg;
use crate::pmu::attr::ResolvedEvent;
use crate::record::USUAL_SAMPLE;

/// Bytes of the kernel's header of each record.
const HEADER: usize = 8;

/// Assumed maximum depth of call stacks; the real depth is unknown before sampling.
pub(super) const FRAMES: usize = STACK_CLASSES[1];

/// Bytes of the trace per sample, with its share of `visit_functions`. Measured on the tests' workloads: 3 (one
/// long visit) to 6 (short visits).
const TRACE_SAMPLE: f64 = 6.0;

/// Bytes per sample for its call stack. Measured on those and on SQLite queries: 0.2 (few paths) to 1.6 (many).
const TRACE_STACK: f64 = 2.0;

/// Bytes per row of `memory`. Measured on the same: 4 (near addresses) to 8.
const TRACE_ACCESS: f64 = 8.0;

/// Size of a sample, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct SampleBytes {
    /// In a CPU's ring.
    pub ring: usize,
    /// In the trace, about.
    pub trace: f64,
    /// Assumed depth of its call stack; null if it has none.
    pub frames: Option<usize>,
}

impl SampleBytes {
    /// Size of an event's samples, with call stacks or without.
    pub(super) fn of(event: &ResolvedEvent, stacks: Option<CallGraphArg>) -> Self {
        match stacks.filter(|it| *it != CallGraphArg::None) {
            Some(how) => Self {
                ring: match how {
                    CallGraphArg::Eh => USUAL_SAMPLE,
                    _ => HEADER + size_of::<SampleStack>() + FRAMES * size_of::<u64>(),
                },
                trace: TRACE_SAMPLE + TRACE_STACK,
                frames: Some(FRAMES),
            },
            None if event.access != 0 => Self {
                ring: HEADER + size_of::<SampleAccess>(),
                trace: TRACE_SAMPLE + TRACE_ACCESS,
                frames: None,
            },
            None => Self {
                ring: HEADER + size_of::<Sample>(),
                trace: TRACE_SAMPLE,
                frames: None,
            },
        }
    }
}
