//! Data breakpoints: what they watch. Pure.

use perf_event_open_sys::bindings::{self as sys, perf_event_attr};

/// Place that a data breakpoint watches. Its samples have the watched address, not that of the access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Bytes from the watched address on.
    pub bytes: u32,
    /// Whether it stops at loads, too.
    pub loads: bool,
}

impl Watch {
    /// From `bp_type` and `bp_len` of a breakpoint; `None` if it stops at execution.
    #[must_use]
    pub fn new(access: u32, len: u64) -> Option<Self> {
        let bytes = u32::try_from(len).ok()?;
        (access & sys::HW_BREAKPOINT_RW != 0).then_some(Self {
            bytes,
            loads: access & sys::HW_BREAKPOINT_R != 0,
        })
    }

    /// From an event's settings; `None` for other events.
    #[must_use]
    pub fn of(attr: &perf_event_attr) -> Option<Self> {
        let is_breakpoint = attr.type_ == sys::PERF_TYPE_BREAKPOINT;
        is_breakpoint
            .then(|| Self::new(attr.bp_type, attr.bp_len))
            .flatten()
    }
}
