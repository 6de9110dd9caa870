//! Event attributes, as in a file.

use perf_event_open_sys::bindings as sys;

use crate::perf::bytes::Bytes;
use crate::perf::layout::Layout;
use crate::pmu::watch::Watch;

/// The used fields of `struct perf_event_attr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// `PERF_TYPE_*`, or a PMU's type number on the recording machine.
    pub kind: u32,
    /// Event code, its meaning depends on `kind`.
    pub config: u64,
    /// Events between two samples; samples per second if `is_frequency`.
    pub period: u64,
    /// Whether the kernel adjusts the period to a frequency.
    pub is_frequency: bool,
    /// Whether user space is excluded.
    pub exclude_user: bool,
    /// Precise level.
    pub precise: u8,
    /// Clock of the record times, `CLOCK_*`; `None`: the perf clock.
    pub clock: Option<i32>,
    /// Place that a data breakpoint watches; `None`: another event.
    pub watch: Option<Watched>,
    /// Fields of the records.
    pub layout: Layout,
}

/// A data breakpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    pub address: u64,
    pub watch: Watch,
}

/// Bits of the attr's flag word. Source: include/uapi/linux/perf_event.h.
const EXCLUDE_USER: u64 = 1 << 4;
const FREQ: u64 = 1 << 10;
const PRECISE_SHIFT: u32 = 15;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const USE_CLOCKID: u64 = 1 << 25;

/// Size of the first version of the attr, bytes.
const FIRST_SIZE: usize = 64;

/// Size up to the last used field, inclusive, bytes.
const USED_SIZE: usize = 104;

impl Attr {
    /// Reads an attr of any version; `None` if it is shorter than the first version.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < FIRST_SIZE {
            return None;
        }
        // Fields of later versions are 0.
        let mut padded = [0; USED_SIZE];
        let len = bytes.len().min(USED_SIZE);
        padded[..len].copy_from_slice(&bytes[..len]);
        let mut rest = Bytes(&padded);
        let (kind, _size) = rest.pair()?;
        let (config, period) = (rest.u64()?, rest.u64()?);
        let (sample_type, read_format, flags) = (rest.u64()?, rest.u64()?, rest.u64()?);
        let (_wakeup, access) = rest.pair()?;
        let (address, len) = (rest.u64()?, rest.u64()?);
        let branch_sample_type = rest.u64()?;
        let regs_user = rest.u64()?;
        let (_stack, clock) = rest.pair()?;
        Some(Self {
            kind,
            config,
            period,
            is_frequency: flags & FREQ != 0,
            exclude_user: flags & EXCLUDE_USER != 0,
            precise: (flags >> PRECISE_SHIFT & 3) as u8,
            clock: (flags & USE_CLOCKID != 0).then_some(clock.cast_signed()),
            watch: (kind == sys::PERF_TYPE_BREAKPOINT)
                .then(|| Watch::new(access, len))
                .flatten()
                .map(|watch| Watched { address, watch }),
            layout: Layout {
                sample_type,
                read_format,
                branch_sample_type,
                regs_user,
                regs_intr: rest.u64()?,
                sample_id_all: flags & SAMPLE_ID_ALL != 0,
            },
        })
    }

    /// Name for an event that the file does not name: perf's name, or type and config.
    #[must_use]
    pub fn plain_name(&self) -> String {
        const HARDWARE: [&str; 10] = [
            "cycles",
            "instructions",
            "cache-references",
            "cache-misses",
            "branches",
            "branch-misses",
            "bus-cycles",
            "stalled-cycles-frontend",
            "stalled-cycles-backend",
            "ref-cycles",
        ];
        const SOFTWARE: [&str; 11] = [
            "cpu-clock",
            "task-clock",
            "page-faults",
            "context-switches",
            "cpu-migrations",
            "minor-faults",
            "major-faults",
            "alignment-faults",
            "emulation-faults",
            "dummy",
            "bpf-output",
        ];
        // On hybrid CPUs the upper half of the config is the PMU of the core type.
        let known = match self.kind {
            sys::PERF_TYPE_HARDWARE => HARDWARE.get((self.config & 0xffff_ffff) as usize),
            sys::PERF_TYPE_SOFTWARE => SOFTWARE.get(self.config as usize),
            _ => None,
        };
        match known {
            Some(name) => (*name).to_owned(),
            None => format!("type={},config={:#x}", self.kind, self.config),
        }
    }

    /// Whether it counts time on the CPU.
    #[must_use]
    pub fn is_clock(&self) -> bool {
        self.kind == sys::PERF_TYPE_SOFTWARE
            && (self.config == u64::from(sys::PERF_COUNT_SW_CPU_CLOCK)
                || self.config == u64::from(sys::PERF_COUNT_SW_TASK_CLOCK))
    }

    /// Whether it exists only for records other than samples.
    #[must_use]
    pub fn is_dummy(&self) -> bool {
        self.kind == sys::PERF_TYPE_SOFTWARE && self.config == u64::from(sys::PERF_COUNT_SW_DUMMY)
    }

    /// Whether it is a tracepoint, static or of a dynamic probe.
    #[must_use]
    pub const fn is_tracepoint(&self) -> bool {
        self.kind == sys::PERF_TYPE_TRACEPOINT
    }
}

/// An event of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    pub attr: Attr,
    /// Ids by which records refer to it.
    pub ids: Vec<u64>,
    /// Name, if the file has one.
    pub name: Option<String>,
}
