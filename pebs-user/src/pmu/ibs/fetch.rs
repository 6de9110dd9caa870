//! Instruction fetches.

use super::{PageSize, Raw, bit, cap, is_early_zen3};
use crate::pmu::host::CpuModel;
use crate::units::Ip;

/// An instruction fetch that IBS tagged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IbsFetch {
    /// Address of the code.
    pub ip: Ip,
    /// Its physical address.
    pub physical: Option<u64>,
    /// Whether it completed; else it was aborted.
    pub completed: bool,
    /// Duration, cycles.
    pub latency: u16,
    /// Whether the instruction cache missed; `None` if not valid.
    pub l1_miss: Option<bool>,
    /// Whether the second level missed; `None` if the fetch did not complete.
    pub l2_miss: Option<bool>,
    /// Whether the third level missed; `None` before Zen 4.
    pub l3_miss: Option<bool>,
    /// Whether the op cache missed; `None` before Zen 4.
    pub op_cache_miss: Option<bool>,
    /// Whether the first level of translation missed.
    pub l1_tlb_miss: bool,
    /// Whether the second level of translation missed.
    pub l2_tlb_miss: bool,
    /// Page size; `None` without a physical address.
    pub page: Option<PageSize>,
    /// Cycles of the L1 TLB refill; `None` if the CPU does not report it.
    pub tlb_latency: Option<u16>,
}

impl IbsFetch {
    /// Decodes the raw data of a sample of `ibs_fetch`; `None` if it is too short.
    ///
    /// `cpu` is the CPU model of the sample: some have errata.
    #[must_use]
    pub(crate) fn decode(raw: &[u8], cpu: &CpuModel) -> Option<Self> {
        let raw = Raw::new(raw)?;
        let (control, linear, physical) = (raw.register(0)?, raw.register(1)?, raw.register(2)?);
        let extended = raw.has(cap::FETCH_EXTENDED).then(|| raw.register(3));
        let completed = bit(control, 50);
        let physical_valid = bit(control, 52);
        let zen4 = raw.has(cap::ZEN4);
        Some(Self {
            ip: Ip(linear),
            physical: Some(physical).filter(|it| physical_valid && *it != 0),
            completed,
            latency: (control >> 32) as u16,
            // Erratum 1238.
            l1_miss: (!is_early_zen3(cpu)).then(|| bit(control, 51)),
            l2_miss: completed.then(|| bit(control, 58)),
            l3_miss: zen4.then(|| bit(control, 61)),
            op_cache_miss: zen4.then(|| bit(control, 60)),
            l1_tlb_miss: bit(control, 55),
            l2_tlb_miss: bit(control, 56),
            page: physical_valid
                .then(|| page(control >> 53 & 3, cpu))
                .flatten(),
            tlb_latency: extended.flatten().map(|extended| extended as u16),
        })
    }
}

/// Erratum 1347: early Zen 3 encodes the sizes in another way.
const fn page(number: u64, cpu: &CpuModel) -> Option<PageSize> {
    match (is_early_zen3(cpu), number) {
        (_, 0) => Some(PageSize::K4),
        (true, 1) => Some(PageSize::K16),
        (true, 2) | (false, 1) => Some(PageSize::M2),
        (true, 3) | (false, 2) => Some(PageSize::G1),
        _ => None,
    }
}
