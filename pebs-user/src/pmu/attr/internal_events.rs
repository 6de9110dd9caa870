//! Events that the recorder needs itself: the clock calibrator, page faults.

use perf_event_open_sys::bindings::{self as sys, perf_event_attr};

use super::READ_FORMAT;
use crate::pmu::target::Target;

/// Settings of an event that counts nothing.
#[must_use]
pub(crate) fn dummy() -> perf_event_attr {
    perf_event_attr {
        type_: sys::PERF_TYPE_SOFTWARE,
        config: sys::PERF_COUNT_SW_DUMMY.into(),
        read_format: READ_FORMAT,
        ..perf_event_attr::default()
    }
}

/// Settings of the clock calibrator: a slow clock whose samples carry the perf clock's time.
#[must_use]
pub(crate) fn calibrator(period_ns: u64) -> perf_event_attr {
    let mut attr = perf_event_attr {
        type_: sys::PERF_TYPE_SOFTWARE,
        config: u64::from(sys::PERF_COUNT_SW_CPU_CLOCK),
        sample_type: u64::from(sys::PERF_SAMPLE_TIME),
        read_format: READ_FORMAT,
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = period_ns;
    attr.__bindgen_anon_2.wakeup_events = 1;
    attr.set_disabled(1);
    attr
}

/// Kind of page faults: the kernel counts all faults when they begin, minor and major ones when they are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Faults {
    All,
    /// The page was in memory.
    Minor,
    /// The page had to be read.
    Major,
}

impl Faults {
    /// The event's name.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::All => "page-faults",
            Self::Minor => "minor-faults",
            Self::Major => "major-faults",
        }
    }
}

/// Settings of a counter of page faults: its program runs at each.
#[must_use]
pub(crate) fn page_faults(which: Faults, target: Target) -> perf_event_attr {
    let mut attr = perf_event_attr {
        type_: sys::PERF_TYPE_SOFTWARE,
        config: u64::from(match which {
            Faults::All => sys::PERF_COUNT_SW_PAGE_FAULTS,
            Faults::Minor => sys::PERF_COUNT_SW_PAGE_FAULTS_MIN,
            Faults::Major => sys::PERF_COUNT_SW_PAGE_FAULTS_MAJ,
        }),
        read_format: READ_FORMAT,
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = 1;
    attr.__bindgen_anon_2.wakeup_events = 1;
    attr.set_disabled(1);
    attr.set_inherit((!matches!(target, Target::Cpu(_))).into());
    attr
}
