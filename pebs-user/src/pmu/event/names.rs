//! The kernel's generic event names.
//!
//! Source: include/uapi/linux/perf_event.h for the numbers, perf-list(1) for the names.

use std::fmt;

/// Events that the kernel counts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SoftwareEvent {
    /// Time of a CPU, ns.
    #[doc(alias = "PERF_COUNT_SW_CPU_CLOCK")]
    CpuClock,
    /// Time that a thread runs, ns.
    #[doc(alias = "PERF_COUNT_SW_TASK_CLOCK")]
    TaskClock,
    /// Page faults of both kinds.
    PageFaults,
    /// Changes of the running thread.
    ContextSwitches,
    /// Moves of a thread to another CPU.
    CpuMigrations,
    /// Page faults served without I/O.
    MinorFaults,
    /// Page faults that read from a disk.
    MajorFaults,
    /// Unaligned accesses that the kernel mended.
    AlignmentFaults,
    /// Instructions that the kernel emulated.
    EmulationFaults,
    /// Switches between cgroups.
    CgroupSwitches,
}

impl SoftwareEvent {
    /// Number, name and second name of every event.
    const TABLE: [(Self, u64, &'static str, Option<&'static str>); 10] = [
        (Self::CpuClock, 0, "cpu-clock", None),
        (Self::TaskClock, 1, "task-clock", None),
        (Self::PageFaults, 2, "page-faults", Some("faults")),
        (Self::ContextSwitches, 3, "context-switches", Some("cs")),
        (Self::CpuMigrations, 4, "cpu-migrations", Some("migrations")),
        (Self::MinorFaults, 5, "minor-faults", None),
        (Self::MajorFaults, 6, "major-faults", None),
        (Self::AlignmentFaults, 7, "alignment-faults", None),
        (Self::EmulationFaults, 8, "emulation-faults", None),
        (Self::CgroupSwitches, 11, "cgroup-switches", None),
    ];

    /// The event with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let mut rows = Self::TABLE.iter();
        rows.find(|row| row.2 == name || row.3 == Some(name))
            .map(|row| row.0)
    }

    /// The event with that number.
    #[must_use]
    pub fn from_config(config: u64) -> Option<Self> {
        let mut rows = Self::TABLE.iter();
        rows.find(|row| row.1 == config).map(|row| row.0)
    }

    /// perf's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// `perf_event_attr.config` under `PERF_TYPE_SOFTWARE`.
    #[must_use]
    pub fn config(self) -> u64 {
        self.row().1
    }

    /// Whether the reset value is in ns.
    #[must_use]
    pub const fn is_clock(self) -> bool {
        matches!(self, Self::CpuClock | Self::TaskClock)
    }

    /// Whether it only ever happens in kernel mode.
    #[must_use]
    pub const fn is_kernel_only(self) -> bool {
        matches!(
            self,
            Self::ContextSwitches | Self::CpuMigrations | Self::CgroupSwitches
        )
    }

    /// Every event.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::TABLE.iter().map(|row| row.0)
    }

    /// Description in one line.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::CpuClock => "Time of a CPU, ns",
            Self::TaskClock => "Time that a thread runs, ns",
            Self::PageFaults => "Page faults of both kinds",
            Self::ContextSwitches => "Changes of the running thread",
            Self::CpuMigrations => "Moves of a thread to another CPU",
            Self::MinorFaults => "Page faults served without I/O",
            Self::MajorFaults => "Page faults that read from a disk",
            Self::AlignmentFaults => "Unaligned accesses that the kernel mended",
            Self::EmulationFaults => "Instructions that the kernel emulated",
            Self::CgroupSwitches => "Switches between cgroups",
        }
    }

    fn row(self) -> &'static (Self, u64, &'static str, Option<&'static str>) {
        let at = Self::TABLE.iter().position(|row| row.0 == self);
        &Self::TABLE[at.unwrap_or_default()]
    }
}

/// Generic hardware events, which the kernel maps to the CPU's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HardwareEvent {
    /// Cycles at the CPU's current frequency.
    Cycles,
    /// Instructions retired.
    Instructions,
    /// Accesses of the last level cache.
    CacheReferences,
    /// Misses of the last level cache.
    CacheMisses,
    /// Branches retired.
    Branches,
    /// Branches mispredicted.
    BranchMisses,
    /// Cycles of the bus.
    BusCycles,
    /// Cycles in which the front end delivered no uop.
    StalledFrontend,
    /// Cycles in which the back end accepted no uop.
    StalledBackend,
    /// Cycles at the nominal frequency.
    RefCycles,
}

impl HardwareEvent {
    /// Name and second name; the index is the kernel's number.
    const TABLE: [(Self, &'static str, &'static str); 10] = [
        (Self::Cycles, "cycles", "cpu-cycles"),
        (Self::Instructions, "instructions", "instructions"),
        (
            Self::CacheReferences,
            "cache-references",
            "cache-references",
        ),
        (Self::CacheMisses, "cache-misses", "cache-misses"),
        (Self::Branches, "branches", "branch-instructions"),
        (Self::BranchMisses, "branch-misses", "branch-misses"),
        (Self::BusCycles, "bus-cycles", "bus-cycles"),
        (
            Self::StalledFrontend,
            "stalled-cycles-frontend",
            "idle-cycles-frontend",
        ),
        (
            Self::StalledBackend,
            "stalled-cycles-backend",
            "idle-cycles-backend",
        ),
        (Self::RefCycles, "ref-cycles", "ref-cycles"),
    ];

    /// The event with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let mut rows = Self::TABLE.iter();
        rows.find(|row| row.1 == name || row.2 == name)
            .map(|row| row.0)
    }

    /// Every event, in the order of the kernel's numbers.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::TABLE.iter().map(|row| row.0)
    }

    /// perf's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::TABLE[self as usize].1
    }

    /// The name of its file in a PMU's `events/` folder.
    #[must_use]
    pub const fn sysfs_name(self) -> &'static str {
        Self::TABLE[self as usize].2
    }

    /// Description in one line.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Cycles => "Cycles at the CPU's current frequency",
            Self::Instructions => "Instructions retired",
            Self::CacheReferences => "Accesses of the last level cache",
            Self::CacheMisses => "Misses of the last level cache",
            Self::Branches => "Branches retired",
            Self::BranchMisses => "Branches mispredicted",
            Self::BusCycles => "Cycles of the bus",
            Self::StalledFrontend => "Cycles in which the front end delivered nothing",
            Self::StalledBackend => "Cycles in which the back end took nothing",
            Self::RefCycles => "Cycles at the nominal frequency",
        }
    }

    /// `perf_event_attr.config` under `PERF_TYPE_HARDWARE`.
    #[must_use]
    pub const fn config(self) -> u64 {
        self as u64
    }
}

/// Caches of the kernel's generic cache events; the order is the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheLevel {
    /// First level, data.
    L1Data,
    /// First level, instructions.
    L1Instructions,
    /// Last level.
    LastLevel,
    /// Address translation of data.
    DataTlb,
    /// Address translation of instructions.
    InstructionTlb,
    /// Branch prediction.
    Branch,
    /// Memory of the local and of other NUMA nodes.
    Node,
}

/// Operations of the kernel's generic cache events; the order is the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheOp {
    /// Loads.
    Load,
    /// Stores.
    Store,
    /// Prefetches.
    Prefetch,
}

/// A generic cache event, such as `LLC-load-misses`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheEvent {
    /// Level or use of the cache.
    pub level: CacheLevel,
    /// Operation on the cache.
    pub op: CacheOp,
    /// Misses only, or all accesses.
    pub misses: bool,
}

const CACHES: [(CacheLevel, &str); 7] = [
    (CacheLevel::L1Data, "L1-dcache"),
    (CacheLevel::L1Instructions, "L1-icache"),
    (CacheLevel::LastLevel, "LLC"),
    (CacheLevel::DataTlb, "dTLB"),
    (CacheLevel::InstructionTlb, "iTLB"),
    (CacheLevel::Branch, "branch"),
    (CacheLevel::Node, "node"),
];

const CACHE_OPS: [(CacheOp, bool, &str); 6] = [
    (CacheOp::Load, false, "loads"),
    (CacheOp::Load, true, "load-misses"),
    (CacheOp::Store, false, "stores"),
    (CacheOp::Store, true, "store-misses"),
    (CacheOp::Prefetch, false, "prefetches"),
    (CacheOp::Prefetch, true, "prefetch-misses"),
];

impl CacheEvent {
    /// Every event; a CPU has a part of them.
    pub fn all() -> impl Iterator<Item = Self> {
        CACHES.iter().flat_map(|&(level, _)| {
            let ops = CACHE_OPS.iter();
            ops.map(move |&(op, misses, _)| Self { level, op, misses })
        })
    }

    /// Description in one line.
    #[must_use]
    pub fn description(self) -> String {
        let op = match self.op {
            CacheOp::Load => "Loads",
            CacheOp::Store => "Stores",
            CacheOp::Prefetch => "Prefetches",
        };
        let place = match self.level {
            CacheLevel::L1Data => "the first level data cache",
            CacheLevel::L1Instructions => "the first level instruction cache",
            CacheLevel::LastLevel => "the last level cache",
            CacheLevel::DataTlb => "the translation of data addresses",
            CacheLevel::InstructionTlb => "the translation of instruction addresses",
            CacheLevel::Branch => "the branch prediction",
            CacheLevel::Node => "the memory of a node",
        };
        let how = if self.misses { "that missed" } else { "of" };
        format!("{op} {how} {place}, where the CPU has them")
    }

    /// The event with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let (level, rest) = CACHES.iter().find_map(|(level, prefix)| {
            Some((*level, name.strip_prefix(prefix)?.strip_prefix('-')?))
        })?;
        let (op, misses, _) = CACHE_OPS.into_iter().find(|row| row.2 == rest)?;
        Some(Self { level, op, misses })
    }

    /// `perf_event_attr.config` under `PERF_TYPE_HW_CACHE`.
    #[must_use]
    pub const fn config(self) -> u64 {
        (self.level as u64) | ((self.op as u64) << 8) | ((self.misses as u64) << 16)
    }
}

impl fmt::Display for CacheEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = CACHE_OPS
            .iter()
            .find(|row| row.0 == self.op && row.1 == self.misses);
        write!(
            f,
            "{}-{}",
            CACHES[self.level as usize].1,
            op.map_or("", |row| row.2)
        )
    }
}

/// All fixed names, for suggestions.
pub(super) fn fixed() -> impl Iterator<Item = String> {
    let software = SoftwareEvent::TABLE
        .iter()
        .flat_map(|row| std::iter::once(row.2).chain(row.3));
    let hardware = HardwareEvent::TABLE.iter().flat_map(|row| [row.1, row.2]);
    let caches = CacheEvent::all().map(|event| event.to_string());
    std::iter::once("auto")
        .chain(software)
        .chain(hardware)
        .map(String::from)
        .chain(caches)
}

/// Up to three of the kernel's names and `others` that are most similar to `typed`, best first.
///
/// Cost: one edit distance per name.
#[must_use]
pub fn nearest<'a>(typed: &str, others: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    /// Below this similarity a name is no help.
    const ENOUGH: f64 = 0.75;
    let score = |name: &str| strsim::jaro_winkler(&typed.to_lowercase(), &name.to_lowercase());
    let mut found: Vec<(f64, String)> = fixed()
        .chain(others.into_iter().map(String::from))
        .map(|name| (score(&name), name))
        .filter(|(score, _)| *score >= ENOUGH)
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    found.dedup_by(|a, b| a.1 == b.1);
    found.into_iter().take(3).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers match the kernel's: a table in the wrong order would count other events.
    #[test]
    fn numbers_match_the_kernel() {
        use perf_event_open_sys::bindings as b;
        let software = [
            ("cpu-clock", b::PERF_COUNT_SW_CPU_CLOCK),
            ("task-clock", b::PERF_COUNT_SW_TASK_CLOCK),
            ("faults", b::PERF_COUNT_SW_PAGE_FAULTS),
            ("cs", b::PERF_COUNT_SW_CONTEXT_SWITCHES),
            ("migrations", b::PERF_COUNT_SW_CPU_MIGRATIONS),
            ("minor-faults", b::PERF_COUNT_SW_PAGE_FAULTS_MIN),
            ("major-faults", b::PERF_COUNT_SW_PAGE_FAULTS_MAJ),
            ("alignment-faults", b::PERF_COUNT_SW_ALIGNMENT_FAULTS),
            ("emulation-faults", b::PERF_COUNT_SW_EMULATION_FAULTS),
            ("cgroup-switches", b::PERF_COUNT_SW_CGROUP_SWITCHES),
        ];
        for (name, number) in software {
            let event = SoftwareEvent::from_name(name).unwrap();
            assert_eq!(event.config(), u64::from(number), "{name}");
        }
        let hardware = [
            ("cpu-cycles", b::PERF_COUNT_HW_CPU_CYCLES),
            ("instructions", b::PERF_COUNT_HW_INSTRUCTIONS),
            ("cache-references", b::PERF_COUNT_HW_CACHE_REFERENCES),
            ("cache-misses", b::PERF_COUNT_HW_CACHE_MISSES),
            ("branches", b::PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
            ("branch-misses", b::PERF_COUNT_HW_BRANCH_MISSES),
            ("bus-cycles", b::PERF_COUNT_HW_BUS_CYCLES),
            (
                "idle-cycles-frontend",
                b::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND,
            ),
            (
                "stalled-cycles-backend",
                b::PERF_COUNT_HW_STALLED_CYCLES_BACKEND,
            ),
            ("ref-cycles", b::PERF_COUNT_HW_REF_CPU_CYCLES),
        ];
        for (name, number) in hardware {
            let event = HardwareEvent::from_name(name).unwrap();
            assert_eq!(event.config(), u64::from(number), "{name}");
            assert_eq!(HardwareEvent::from_name(event.name()), Some(event));
        }
    }

    /// Cache names encode level, operation and result as the kernel requires, and decode to the same.
    #[test]
    fn cache_names() {
        let misses = CacheEvent::from_name("LLC-store-misses").unwrap();
        assert_eq!(misses.config(), 0x1_0102);
        assert_eq!(CacheEvent::from_name("LLC-stores-misses"), None);
        for name in fixed().filter(|name| name.contains("TLB") || name.starts_with("L1")) {
            let event = CacheEvent::from_name(&name).unwrap();
            assert_eq!(event.to_string(), name);
        }
    }

    /// A typing error finds the intended name; random text finds nothing.
    #[test]
    fn suggestions() {
        assert_eq!(nearest("cycels", [])[0], "cycles");
        assert_eq!(nearest("cpu_clock", [])[0], "cpu-clock");
        assert_eq!(nearest("mem-load", ["mem-loads"])[0], "mem-loads");
        assert!(nearest("zzzz", []).is_empty());
    }
}
