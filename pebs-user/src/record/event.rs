//! Events of a recording, for the caller to show.

use std::path::PathBuf;
use std::time::Duration;

use crate::estimate::sketch::Sketch;
use crate::failure::Warning;
use crate::store::run::OverheadInfo;
use crate::units::EventId;

/// Something that happened, in its order.
#[derive(Clone, Debug)]
pub enum Event {
    /// Servers of debuginfod are asked for this many debug files.
    AskingDebuginfod(usize),
    /// A preset says where items begin and end.
    Preset {
        /// Its name.
        name: String,
        /// SPECs of items.
        uprobes: Vec<String>,
        /// SPECs of where items are resumed.
        resumes: Vec<String>,
    },
    /// The transport of samples was chosen.
    Transport {
        /// `bpf` or `bulk`.
        name: &'static str,
        /// The events, and why.
        why: String,
    },
    /// A remark, which the trace has as well.
    Note(String),
    /// Something is not as it should be; the recording goes on.
    Warning(Warning),
    /// The same, where there is nothing to be done.
    Problem(String),
    /// The cost of marks and samples is being measured.
    Measuring,
    /// The symbols of running processes are being read, which takes some time.
    ReadingSymbols,
    /// The command runs, or the target is there; items are recorded once this happens.
    Waits(String),
    /// Nothing is recorded from now on.
    Paused,
    /// Items are recorded again.
    Resumed,
    /// A copy of the trace so far is in this directory.
    Snapshot(PathBuf),
    /// Everything is attached: items are recorded from now on.
    Started {
        /// The bound on the slow-down of items and the first reset value, if there is a bound.
        budget: Option<String>,
    },
    /// Marks alone cost more than the bound that nobody asked for, or samples may take more than it has room for.
    Beyond(OverheadInfo),
    /// The reset value of an event was changed.
    Changed {
        event: EventId,
        old: u64,
        new: u64,
        /// The slow-down of items that was the reason; `None`: it was asked for.
        overhead: Option<f64>,
    },
    /// Progress, some times a second.
    Status(Status),
    /// It is over; the trace is being completed.
    Ending,
}

/// Progress of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Visits of items so far.
    pub visits: u64,
    /// Slow visits so far.
    pub slow: u64,
    /// Durations of visits so far, ns.
    pub durations: Sketch,
    /// Samples so far.
    pub samples: u64,
    /// Records lost so far.
    pub lost: u64,
    /// Bytes written so far.
    pub bytes: u64,
    /// Growth of the trace; `None` until it is known.
    pub growth: Option<Growth>,
    /// Slow-down of items so far, a share; `None` if unknown.
    pub slowdown: Option<f64>,
    /// The same in the last moments.
    pub last_slowdown: Option<f64>,
    /// The reset value in force and its unit, if it may change by itself.
    pub reset: Option<(u64, &'static str)>,
}

/// Growth of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Bytes an hour.
    pub an_hour: f64,
    /// Time until it has its largest size, if there is one.
    pub left: Option<Duration>,
}

impl Growth {
    /// Time after which it is reported: the first records are written some seconds after they were made.
    const KNOWN_AFTER: f64 = 10.0;

    /// That of a trace with so many bytes after seconds of recording; `None` if that is too early to tell.
    pub(super) fn of(bytes: u64, seconds: f64, largest: Option<u64>) -> Option<Self> {
        if bytes == 0 || seconds < Self::KNOWN_AFTER {
            return None;
        }
        let rate = bytes as f64 / seconds;
        let left = |largest: u64| {
            Duration::try_from_secs_f64(largest.saturating_sub(bytes) as f64 / rate).ok()
        };
        Some(Self {
            an_hour: rate * 3600.0,
            left: largest.and_then(left),
        })
    }
}

/// Receives events, on the thread that records.
pub(super) type Emit<'a> = dyn FnMut(Event) + 'a;

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest size is reached at the rate of the recording so far; it is unknown in the first seconds.
    #[test]
    fn growth() {
        let of = |bytes, seconds| Growth::of(bytes, seconds, Some(10_000_000));
        assert_eq!(of(1_000_000, 5.0), None);
        assert_eq!(of(0, 50.0), None);
        let expected = Growth {
            an_hour: 360e6,
            left: Some(Duration::from_secs(90)),
        };
        assert_eq!(of(1_000_000, 10.0), Some(expected));
        let full = of(11_000_000, 10.0).and_then(|it| it.left);
        assert_eq!(full, Some(Duration::ZERO));
        assert_eq!(Growth::of(1, 20.0, None).and_then(|it| it.left), None);
    }
}
