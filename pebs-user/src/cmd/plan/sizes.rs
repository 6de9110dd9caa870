//! How many bytes a sample takes, by what it says.

use pebs_common::record::{STACK_CLASSES, Sample, SampleAccess, SampleStack};
use serde::Serialize;

use crate::pmu::attr::ResolvedEvent;

/// Bytes of the kernel's header of each record.
const HEADER: usize = 8;

/// Frames that a call stack is taken to have at most: how deep they are is not known before there are samples.
pub(super) const FRAMES: usize = STACK_CLASSES[1];

/// Bytes of the trace for each sample, its part of `visit_functions` included: as measured on the workloads of the
/// tests, where it is 3 (one long visit) to 6 (short ones).
const TRACE_SAMPLE: f64 = 6.0;

/// What its call stack adds: measured there and on queries of SQLite, 0.2 (few paths) to 1.6 (many).
const TRACE_STACK: f64 = 2.0;

/// What a row of `memory` adds: measured there, 4 (near addresses) to 8.
const TRACE_ACCESS: f64 = 8.0;

/// Bytes that a sample takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct SampleBytes {
    /// Of a CPU's ring.
    pub ring: usize,
    /// Of the trace, about.
    pub trace: f64,
    /// Frames that its call stack is taken to have; null if it has none.
    pub frames: Option<usize>,
}

impl SampleBytes {
    /// Of an event, with call stacks or without.
    pub(super) fn of(event: &ResolvedEvent, stacks: bool) -> Self {
        match stacks {
            true => Self {
                ring: HEADER + size_of::<SampleStack>() + FRAMES * size_of::<u64>(),
                trace: TRACE_SAMPLE + TRACE_STACK,
                frames: Some(FRAMES),
            },
            false if event.access != 0 => Self {
                ring: HEADER + size_of::<SampleAccess>(),
                trace: TRACE_SAMPLE + TRACE_ACCESS,
                frames: None,
            },
            false => Self {
                ring: HEADER + size_of::<Sample>(),
                trace: TRACE_SAMPLE,
                frames: None,
            },
        }
    }
}
