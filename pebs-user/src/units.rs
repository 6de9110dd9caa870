//! Units as types, so that clocks and ids can't be mixed.

use std::fmt::{self, Display, Formatter};
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

/// Time on the trace clock: ns since the trace began.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct TraceNs(pub i64);

/// Time on `CLOCK_MONOTONIC`, ns since boot. What eBPF programs call ktime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KtimeNs(pub u64);

/// Time on the perf clock (`sched_clock`), ns. Not comparable to [`KtimeNs`] without conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PerfNs(pub u64);

/// An instruction pointer in the address space it was sampled in: a virtual address, not an
/// offset in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ip(pub u64);

impl Ip {
    /// Whether the address lies in the kernel's half of the address space (x86-64).
    #[must_use]
    pub const fn is_kernel(self) -> bool {
        self.0 >> 63 == 1
    }
}

/// Cache slot of an address's function, valid until the cache is cleared; then slots are assigned anew.
///
/// Slots are assigned consecutively, so that data indexed by slot are close together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot(pub u16);

impl Slot {
    /// Number of slots.
    pub const COUNT: usize = 1 << 15;

    /// A slot for an address that is not cached: mostly different for different addresses.
    #[must_use]
    pub fn any(ip: Ip) -> Self {
        Self(spread(ip.0) % Self::COUNT as u16)
    }
}

/// 16 bits that differ for neighbouring numbers. Fibonacci hashing: the golden ratio spreads them; its top bits are the
/// best mixed.
#[inline(always)]
pub(crate) const fn spread(number: u64) -> u16 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    (number.wrapping_mul(GOLDEN) >> (u64::BITS - u16::BITS)) as u16
}

/// Unit of a count, and of what is estimated from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CountUnit {
    /// Time, ns: the event is a clock.
    Ns,
    #[default]
    Events,
    /// Samples that stand for an unknown number of events.
    Samples,
    Faults,
}

impl CountUnit {
    /// Its name in `trace.json` and in the output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::Events => "events",
            Self::Samples => "samples",
            Self::Faults => "faults",
        }
    }

    #[must_use]
    pub const fn is_time(self) -> bool {
        matches!(self, Self::Ns)
    }
}

impl Display for CountUnit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Process id in the sense of user space.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Pid(pub u32);

/// Thread id in the sense of user space.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Tid(pub u32);

impl Tid {
    /// Tid of a sample of a thread that had ended, for which the kernel reports -1. Null in tables.
    pub const UNKNOWN: Self = Self(u32::MAX);

    /// Its number, if it is known.
    #[must_use]
    pub const fn known(self) -> Option<u32> {
        match self {
            Self::UNKNOWN => None,
            Self(number) => Some(number),
        }
    }
}

/// A CPU's number.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Cpu(pub u16);

impl Cpu {
    /// CPU of a record without one, as in files of `perf record`. Null in tables.
    pub const UNKNOWN: Self = Self(u16::MAX);

    /// Its number, if it is known.
    #[must_use]
    pub const fn known(self) -> Option<u16> {
        match self {
            Self::UNKNOWN => None,
            Self(number) => Some(number),
        }
    }
}

/// Number of a probe within a run; the n-th `--uprobe` is n-1.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ProbeId(pub u16);

/// Number of an event within a run; the n-th `--event` is n-1.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct EventId(pub u8);

/// Key of a function in the `functions` table.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct FunctionId(pub u32);

/// Key of a call stack in the `stacks` table.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct StackId(pub u32);

/// Events between two samples; perf's `sample_period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResetValue(pub NonZeroU64);

impl ResetValue {
    /// This many of it.
    #[must_use]
    pub fn times(self, times: f64) -> Self {
        let value = (self.0.get() as f64 * times) as u64;
        Self(NonZeroU64::new(value).unwrap_or(NonZeroU64::MIN))
    }
}
