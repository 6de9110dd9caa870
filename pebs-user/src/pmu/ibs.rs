//! AMD's IBS registers, as in `PERF_SAMPLE_RAW`. Pure.
//!
//! The kernel writes `caps` (u32), then the registers (u64 each), little-endian. Ops: control, RIP, data, data 2,
//! data 3, data address, physical address, then branch target and data 4 if `caps` has them. Fetches: control,
//! address, physical address, then extended control.
//!
//! For users who may not see kernel data the physical address is 0, even if its valid bit is set.
//!
//! Source: arch/x86/events/amd/ibs.c (`perf_ibs_handle_irq`, `perf_ibs_phyaddr_clear`), arch/x86/include/asm/amd/ibs.h;
//! AMD's PPR for the errata.

use std::fmt;

use crate::pmu::host::CpuModel;
use crate::pmu::memory::{Distance, Level, Place, Snoop, Tlb, TlbLevel};
use crate::units::Ip;

mod fetch;

pub(crate) use fetch::IbsFetch;

/// An op that IBS tagged and followed to its retirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IbsOp {
    /// Its instruction; `None` if the CPU marks it invalid.
    pub ip: Option<Ip>,
    /// From tagging to retirement, cycles.
    pub tag_to_retire: u16,
    /// From completion to retirement, cycles.
    pub completion_to_retire: u16,
    /// Whether it is from microcode.
    pub microcode: bool,
    /// If it is a branch.
    pub branch: Option<Branch>,
    /// If it loads, stores or prefetches.
    pub memory: Option<Memory>,
    /// Whether a load was repeated after it had completed; `None` if the CPU does not report it.
    pub resync: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OpKind {
    Load,
    Store,
    /// Both, as a locked addition.
    LoadStore,
    /// A prefetch by software.
    Prefetch,
    Branch,
    /// Other ops.
    Other,
}

/// A branch that retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Branch {
    /// Whether it was taken.
    pub taken: bool,
    /// Whether it was mispredicted.
    pub mispredicted: bool,
    /// Whether it is a return.
    pub returns: bool,
    /// Whether it was fused with the instruction before.
    pub fused: bool,
    /// Branch target; `None` if not reported or 0.
    pub target: Option<Ip>,
}

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub kind: OpKind,
    /// Address of the data.
    pub address: Option<u64>,
    /// Its physical address.
    pub physical: Option<u64>,
    /// Data source; `None` if not reported, as for stores that miss.
    pub place: Option<Place>,
    /// State in the other cache, for loads served by one, if the CPU reports it.
    pub snoop: Option<Snoop>,
    /// Whether the first level missed.
    pub l1_miss: bool,
    /// Whether the second level missed; `None` if not valid.
    pub l2_miss: Option<bool>,
    /// Cycles from the miss of the first level to the data, of loads that missed it.
    pub miss_latency: Option<u16>,
    /// Result of the address translation; `None` if not reported.
    pub tlb: Option<Tlb>,
    /// Cycles of the L1 TLB refill, if it missed.
    pub tlb_latency: Option<u16>,
    /// Page size, if the CPU reports it.
    pub page: Option<PageSize>,
    /// Whether it is locked.
    pub locked: bool,
    /// Whether it crosses a boundary.
    pub misaligned: bool,
    /// Bytes; `None` if not reported.
    pub width: Option<u8>,
    /// L1 misses in flight; `None` if not valid.
    pub open_misses: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PageSize {
    /// 4 KiB.
    K4,
    /// 16 KiB: four pages in one TLB entry.
    K16,
    /// 2 MiB.
    M2,
    /// 1 GiB.
    G1,
}

/// Bits of `caps`.
/// Source: arch/x86/include/asm/perf_event.h.
mod cap {
    pub(super) const BRANCH_TARGET: u32 = 1 << 5;
    pub(super) const RIP_INVALID: u32 = 1 << 7;
    pub(super) const FUSED: u32 = 1 << 8;
    pub(super) const FETCH_EXTENDED: u32 = 1 << 9;
    pub(super) const DATA4: u32 = 1 << 10;
    pub(super) const ZEN4: u32 = 1 << 11;
    pub(super) const REMOTE_SOCKET: u32 = 1 << 16;
    pub(super) const PAGE_SIZE: u32 = 1 << 19;
}

/// `caps` and the registers.
struct Raw<'a> {
    caps: u32,
    registers: &'a [u8],
}

impl<'a> Raw<'a> {
    fn new(raw: &'a [u8]) -> Option<Self> {
        let (caps, registers) = raw.split_first_chunk::<4>()?;
        Some(Self {
            caps: u32::from_le_bytes(*caps),
            registers,
        })
    }

    fn register(&self, n: usize) -> Option<u64> {
        let bytes = self.registers.get(n * 8..)?.first_chunk::<8>()?;
        Some(u64::from_le_bytes(*bytes))
    }

    const fn has(&self, cap: u32) -> bool {
        self.caps & cap != 0
    }
}

const fn bit(word: u64, at: u32) -> bool {
    word >> at & 1 != 0
}

/// Zen 3 as sold: some fields are wrong (errata 1238, 1293, 1347).
const fn is_early_zen3(cpu: &CpuModel) -> bool {
    cpu.family == 0x19 && cpu.model <= 0xf
}

impl IbsOp {
    /// Decodes the raw data of a sample of `ibs_op`; `None` if it is too short.
    ///
    /// `cpu` is the CPU model of the sample: some have errata.
    #[doc(alias = "perf_ibs_data")]
    #[must_use]
    pub(crate) fn decode(raw: &[u8], cpu: &CpuModel) -> Option<Self> {
        let raw = Raw::new(raw)?;
        let data = raw.register(2)?;
        let (data2, data3) = (raw.register(3)?, raw.register(4)?);
        // These registers always exist; the optional ones follow.
        let (linear, physical) = (raw.register(5)?, raw.register(6)?);
        let has_target = raw.has(cap::BRANCH_TARGET);
        let target = has_target.then(|| raw.register(7)).flatten();
        let data4 = raw
            .has(cap::DATA4)
            .then(|| raw.register(7 + usize::from(has_target)));
        let invalid = raw.has(cap::RIP_INVALID) && bit(data, 38);
        Some(Self {
            ip: raw.register(1).filter(|_| !invalid).map(Ip),
            tag_to_retire: (data >> 16) as u16,
            completion_to_retire: data as u16,
            microcode: bit(data, 40),
            branch: bit(data, 37).then(|| Branch {
                taken: bit(data, 35),
                mispredicted: bit(data, 36),
                returns: bit(data, 34),
                fused: raw.has(cap::FUSED) && bit(data, 39),
                target: target.filter(|&target| target != 0).map(Ip),
            }),
            memory: Memory::decode(&raw, cpu, [data2, data3, linear, physical]),
            resync: data4.flatten().map(|data4| bit(data4, 0)),
        })
    }

    #[must_use]
    pub(crate) fn kind(&self) -> OpKind {
        match (self.memory, self.branch) {
            (Some(memory), _) => memory.kind,
            (None, Some(_)) => OpKind::Branch,
            (None, None) => OpKind::Other,
        }
    }
}

impl Memory {
    fn decode(raw: &Raw<'_>, cpu: &CpuModel, words: [u64; 4]) -> Option<Self> {
        let [data2, data3, linear, physical] = words;
        let (load, store, prefetch) = (bit(data3, 0), bit(data3, 1), bit(data3, 21));
        let kind = match (load, store) {
            _ if prefetch && !store => OpKind::Prefetch,
            (true, true) => OpKind::LoadStore,
            (true, false) => OpKind::Load,
            (false, true) => OpKind::Store,
            (false, false) => return None,
        };
        let physical_valid = bit(data3, 18);
        let l1_miss = bit(data3, 7);
        // Erratum 1293: not valid for prefetches and for misses without a miss buffer.
        let vague = is_early_zen3(cpu) && (bit(data3, 16) || prefetch);
        let tlb_miss = bit(data3, 2);
        let refill_valid = !raw.has(cap::ZEN4) || physical_valid;
        Some(Self {
            kind,
            address: bit(data3, 17).then_some(linear),
            physical: Some(physical).filter(|it| physical_valid && *it != 0),
            place: place(raw, data2, data3, vague),
            snoop: snoop(raw, cpu, data2, data3),
            l1_miss,
            l2_miss: (!vague).then(|| bit(data3, 20)),
            miss_latency: (l1_miss && load).then_some((data3 >> 32) as u16),
            tlb: tlb(raw, data3),
            tlb_latency: (tlb_miss && refill_valid).then_some((data3 >> 48) as u16),
            page: page(raw, data3),
            locked: bit(data3, 15),
            misaligned: bit(data3, 8),
            width: match (data3 >> 22) & 0xf {
                0 => None,
                log => 1u8.checked_shl(log as u32 - 1),
            },
            open_misses: (!vague).then_some((data3 >> 26) as u8 & 0x3f),
        })
    }
}

/// Data source, as the kernel computes it for `PERF_SAMPLE_DATA_SRC`.
fn place(raw: &Raw<'_>, data2: u64, data3: u64, vague: bool) -> Option<Place> {
    let hit = |level| {
        Some(Place {
            level,
            distance: Distance::Near,
            hit: Some(true),
        })
    };
    let data2 = if vague { 0 } else { data2 };
    let source = source_number(raw, data2);
    const IO: u64 = 7;
    if bit(data3, 14) && source != IO {
        return hit(Level::Uncached);
    }
    if !bit(data3, 7) {
        return hit(Level::L1);
    }
    if !bit(data3, 20) && !vague {
        return hit(Level::L2);
    }
    let load = bit(data3, 0);
    let found = load.then(|| by_source(raw, source, data2)).flatten();
    match found {
        Some((level, distance)) => Some(Place {
            level,
            distance,
            hit: Some(true),
        }),
        // On its way already: misses share a buffer.
        None if bit(data3, 16) => hit(Level::FillBuffer),
        None => None,
    }
}

/// The data source's number: three bits, five from Zen 4 on.
const fn source_number(raw: &Raw<'_>, data2: u64) -> u64 {
    let low = data2 & 7;
    if raw.has(cap::ZEN4) {
        (data2 >> 6 & 3) << 3 | low
    } else {
        low
    }
}

fn by_source(raw: &Raw<'_>, source: u64, data2: u64) -> Option<(Level, Distance)> {
    let far = if raw.has(cap::REMOTE_SOCKET) && bit(data2, 9) {
        Distance::Socket
    } else {
        Distance::Node
    };
    let memory = if bit(data2, 4) { far } else { Distance::Near };
    Some(match (raw.has(cap::ZEN4), source) {
        (true, 1) => (Level::L3, Distance::Near),
        (true, 2) | (false, 2) => (Level::AnyCache, Distance::Core),
        (_, 3) => (Level::Ram, memory),
        (false, 4) | (true, 5) => (Level::AnyCache, far),
        (true, 6) => (Level::Pmem, memory),
        (_, 7) => (Level::Io, Distance::Near),
        (true, 8) => (Level::Cxl, memory),
        _ => return None,
    })
}

/// Whether another cache had modified the line that a load got from it.
fn snoop(raw: &Raw<'_>, cpu: &CpuModel, data2: u64, data3: u64) -> Option<Snoop> {
    // Not valid in all of Zen 3.
    let tells = !(cpu.family == 0x19 && matches!(cpu.model, 0..=0xf | 0x20..=0x5f));
    let (load, l1_miss, l2_miss) = (bit(data3, 0), bit(data3, 7), bit(data3, 20));
    let cached = matches!(
        (raw.has(cap::ZEN4), source_number(raw, data2)),
        (true, 1 | 2 | 5) | (false, 2)
    );
    let owned = bit(data2, 5);
    (tells && load && l1_miss && l2_miss && cached && !owned).then_some(Snoop::HitModified)
}

fn tlb(raw: &Raw<'_>, data3: u64) -> Option<Tlb> {
    let valid = bit(data3, 17) && (!raw.has(cap::PAGE_SIZE) || bit(data3, 18));
    let (level, hit) = match (bit(data3, 2), bit(data3, 3)) {
        (false, _) => (TlbLevel::L1, true),
        (true, false) => (TlbLevel::L2, true),
        (true, true) => (TlbLevel::L2, false),
    };
    valid.then_some(Tlb { level, hit })
}

/// Page size: newer CPUs report it in two bits, older ones the TLB entry that was hit.
fn page(raw: &Raw<'_>, data3: u64) -> Option<PageSize> {
    let (m2, g1) = (bit(data3, 4), bit(data3, 5));
    if raw.has(cap::PAGE_SIZE) {
        return match (bit(data3, 18), g1, m2) {
            (true, false, false) => Some(PageSize::K4),
            (true, false, true) => Some(PageSize::M2),
            (true, true, false) => Some(PageSize::G1),
            _ => None,
        };
    }
    if m2 || bit(data3, 6) {
        Some(PageSize::M2)
    } else if g1 || bit(data3, 19) {
        Some(PageSize::G1)
    } else {
        None
    }
}

impl fmt::Display for OpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Load => "load",
            Self::Store => "store",
            Self::LoadStore => "load+store",
            Self::Prefetch => "prefetch",
            Self::Branch => "branch",
            Self::Other => "other",
        })
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::K4 => "4K",
            Self::K16 => "16K",
            Self::M2 => "2M",
            Self::G1 => "1G",
        })
    }
}

#[cfg(test)]
mod layouts;
#[cfg(test)]
mod tests;
