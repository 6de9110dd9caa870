//! Memory access of a sample, or the op that AMD's IBS followed. Pure.

use perf_event_open_sys::bindings as sys;

use crate::perf::layout::Layout;
use crate::perf::sample::{self, RareFields, Sample};
use crate::pmu::host::CpuModel;
use crate::pmu::ibs::{IbsFetch, IbsOp, PageSize};
use crate::pmu::memory::{
    Blocked, DataSource, Distance, Level, MemoryOp, Place, Snoop, Tlb, TlbLevel, Weight,
};

/// Sample fields that describe an access.
pub(crate) const FIELDS: u32 = sys::PERF_SAMPLE_ADDR
    | sys::PERF_SAMPLE_PHYS_ADDR
    | sys::PERF_SAMPLE_DATA_SRC
    | sys::PERF_SAMPLE_WEIGHT
    | sys::PERF_SAMPLE_WEIGHT_STRUCT
    | sys::PERF_SAMPLE_DATA_PAGE_SIZE;

/// A memory access or an op. `None`: the hardware did not report the field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Address of the data; of a fetch, of the code.
    pub addr: Option<u64>,
    /// Physical address.
    pub phys_addr: Option<u64>,
    /// Raw word of `PERF_SAMPLE_DATA_SRC`.
    pub data_src: Option<u64>,
    /// Kind of access: "load", "store", "prefetch" or "exec".
    pub op: Option<&'static str>,
    /// Memory level that had the data, or that missed.
    pub place: Option<Place>,
    /// Result of the snoop of other caches.
    pub snoop: Option<Snoop>,
    /// Result of the address translation.
    pub tlb: Option<Tlb>,
    /// Whether the instruction was locked.
    pub locked: Option<bool>,
    /// Reason for which the load was blocked.
    pub blocked: Option<Blocked>,
    /// Page size, bytes.
    pub page_size: Option<u64>,
    /// Latency of the access, cycles.
    pub latency: Option<u32>,
    /// Latency of the whole instruction or op, cycles.
    pub op_latency: Option<u32>,
    /// Cycles from its completion, or from the previous retirement, to its own retirement.
    pub retire_latency: Option<u32>,
    /// Cycles of the refill of the first-level TLB.
    pub tlb_latency: Option<u32>,
    /// Whether the branch was taken.
    pub taken: Option<bool>,
    /// Whether the branch was mispredicted.
    pub mispredicted: Option<bool>,
    /// Events since the previous sample, if in the sample.
    pub period: Option<u64>,
}

/// Kind of raw registers in an event's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registers {
    /// Registers of `ibs_op`; CPU family and model.
    IbsOp(u32, u32),
    /// Registers of `ibs_fetch`; CPU family and model.
    IbsFetch(u32, u32),
}

impl Registers {
    /// Returns the registers of a PMU's samples; `None` if its raw data is something else.
    #[must_use]
    pub fn of_pmu(name: &str, cpu: &CpuModel) -> Option<Self> {
        match name {
            "ibs_op" => Some(Self::IbsOp(cpu.family, cpu.model)),
            "ibs_fetch" => Some(Self::IbsFetch(cpu.family, cpu.model)),
            _ => None,
        }
    }
}

/// Whether samples may contain access data.
#[must_use]
pub(crate) const fn may_have_access(layout: &Layout, registers: Option<Registers>) -> bool {
    layout.has(FIELDS) || registers.is_some() && layout.has(sys::PERF_SAMPLE_RAW)
}

impl Access {
    /// Reads the access of a sample in perf's format; `None` if it has none.
    #[must_use]
    pub fn of(sample: &Sample<'_>, registers: Option<Registers>) -> Option<Self> {
        let access = Self::of_fields(sample.addr, &sample.rest(), registers)?;
        Some(Self {
            period: sample.period.filter(|period| *period != 0),
            ..access
        })
    }

    fn of_fields(
        addr: Option<u64>,
        rest: &RareFields<'_>,
        registers: Option<Registers>,
    ) -> Option<Self> {
        let mut access = Self {
            addr: addr.filter(|addr| *addr != 0),
            phys_addr: rest.phys_addr.filter(|addr| *addr != 0),
            page_size: rest.data_page_size.filter(|bytes| *bytes != 0),
            ..Self::default()
        };
        access.source(rest.data_src.unwrap_or(0));
        match rest.weight {
            Some(sample::Weight::Whole(word)) => access.weigh(Weight::whole(word)),
            Some(sample::Weight::Parts { var1, var2, var3 }) => {
                let word = u64::from(var1) | u64::from(var2) << 32 | u64::from(var3) << 48;
                access.weigh(Weight::parts(word));
            }
            None => {}
        }
        if let (Some(registers), Some(raw)) = (registers, rest.raw) {
            access.registers(registers, raw);
        }
        access.unless_empty()
    }

    /// Reads the access from the words of a sample program; `None` if they are empty.
    #[must_use]
    pub fn of_words(addr: u64, weight: u64, data_src: u64) -> Option<Self> {
        let mut access = Self {
            addr: (addr != 0).then_some(addr),
            ..Self::default()
        };
        access.source(data_src);
        access.weigh(Weight::parts(weight));
        access.unless_empty()
    }

    fn unless_empty(self) -> Option<Self> {
        (self != Self::default()).then_some(self)
    }

    fn source(&mut self, word: u64) {
        let source = DataSource::decode(word);
        let nothing = DataSource {
            locked: source.locked,
            ..DataSource::default()
        };
        // In a word of 0 `locked` is known too, so it doesn't count.
        if source == nothing {
            return;
        }
        self.data_src = Some(word);
        self.op = source.op.map(|op| match op {
            MemoryOp::Load => "load",
            MemoryOp::Store => "store",
            MemoryOp::Prefetch => "prefetch",
            MemoryOp::Execute => "exec",
        });
        self.place = source.place;
        self.snoop = source.snoop;
        self.tlb = source.tlb;
        self.locked = source.locked;
        self.blocked = source.blocked;
    }

    fn weigh(&mut self, weight: Weight) {
        self.latency = weight.latency;
        self.op_latency = weight.instruction.map(u32::from);
        self.retire_latency = weight.retirement.map(u32::from);
    }

    /// Overrides fields by the raw registers, which are more detailed than the kernel's words.
    fn registers(&mut self, registers: Registers, raw: &[u8]) {
        let cpu = |family, model| CpuModel {
            family,
            model,
            ..CpuModel::default()
        };
        match registers {
            Registers::IbsOp(family, model) => {
                if let Some(op) = IbsOp::decode(raw, &cpu(family, model)) {
                    self.ibs_op(&op);
                }
            }
            Registers::IbsFetch(family, model) => {
                if let Some(fetch) = IbsFetch::decode(raw, &cpu(family, model)) {
                    self.ibs_fetch(&fetch);
                }
            }
        }
    }

    fn ibs_op(&mut self, op: &IbsOp) {
        use crate::pmu::ibs::OpKind;
        self.op = Some(match op.kind() {
            OpKind::Load => "load",
            OpKind::Store => "store",
            OpKind::LoadStore => "load+store",
            OpKind::Prefetch => "prefetch",
            OpKind::Branch => "branch",
            OpKind::Other => "other",
        });
        self.op_latency = Some(op.tag_to_retire.into());
        self.retire_latency = Some(op.completion_to_retire.into());
        self.taken = op.branch.map(|branch| branch.taken);
        self.mispredicted = op.branch.map(|branch| branch.mispredicted);
        let Some(memory) = op.memory else { return };
        self.addr = memory.address;
        self.phys_addr = memory.physical;
        self.place = memory.place;
        self.snoop = memory.snoop;
        self.tlb = memory.tlb;
        self.locked = Some(memory.locked);
        self.page_size = memory.page.map(bytes_of);
        self.latency = memory.miss_latency.map(u32::from);
        self.tlb_latency = memory.tlb_latency.map(u32::from);
    }

    fn ibs_fetch(&mut self, fetch: &IbsFetch) {
        self.op = Some(if fetch.completed {
            "fetch"
        } else {
            "aborted fetch"
        });
        self.addr = Some(fetch.ip.0);
        self.phys_addr = fetch.physical;
        self.latency = Some(fetch.latency.into());
        self.tlb_latency = fetch.tlb_latency.map(u32::from);
        self.page_size = fetch.page.map(bytes_of);
        self.place = fetched_from(fetch);
        let (level, hit) = match (fetch.l1_tlb_miss, fetch.l2_tlb_miss) {
            (false, _) => (TlbLevel::L1, true),
            (true, miss) => (TlbLevel::L2, !miss),
        };
        self.tlb = Some(Tlb { level, hit });
    }
}

/// First level that had the code, or the last one known to have missed.
fn fetched_from(fetch: &IbsFetch) -> Option<Place> {
    let place = |level, hit| {
        Some(Place {
            level,
            distance: Distance::Near,
            hit: Some(hit),
        })
    };
    match (fetch.l1_miss?, fetch.l2_miss, fetch.l3_miss) {
        (false, ..) => place(Level::L1, true),
        (true, None, _) => place(Level::L1, false),
        (true, Some(false), _) => place(Level::L2, true),
        (true, Some(true), None) => place(Level::L2, false),
        (true, Some(true), Some(miss)) => place(Level::L3, !miss),
    }
}

const fn bytes_of(page: PageSize) -> u64 {
    match page {
        PageSize::K4 => 4 << 10,
        PageSize::K16 => 16 << 10,
        PageSize::M2 => 2 << 20,
        PageSize::G1 => 1 << 30,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A load of Skylake-SP: `mem-loads` with weight and data_src as perf prints them.
    #[test]
    fn intel_load() {
        // OP_LOAD, L3 hit, snoop none, DTLB L1 or L2 hit, not locked.
        let word = 0x2 | 0x42 << 5 | 0x2 << 19 | 0x2 << 24 | (0x2 | 3 << 3) << 26 | 3 << 33;
        let rest = RareFields {
            data_src: Some(word),
            weight: Some(sample::Weight::Parts {
                var1: 66,
                var2: 90,
                var3: 0,
            }),
            ..RareFields::default()
        };
        let access = Access::of_fields(Some(0x7fff_1000), &rest, None).unwrap();
        assert_eq!((access.op, access.addr), (Some("load"), Some(0x7fff_1000)));
        assert_eq!(access.place.unwrap().to_string(), "L3 hit");
        assert_eq!(access.tlb.unwrap().to_string(), "L1 or L2 hit");
        assert_eq!(
            (access.latency, access.op_latency, access.retire_latency),
            (Some(66), Some(90), None)
        );
        assert_eq!(access.data_src, Some(word));
        let words = Access::of_words(0x7fff_1000, 66 | 90 << 32, word);
        assert_eq!(words, Some(access));
    }

    /// Empty samples have no access: `PERF_MEM_NA`, and fields of 0.
    #[test]
    fn nothing_is_nothing() {
        // Source: PERF_MEM_NA, include/linux/perf_event.h.
        let na = 1 | 1 << 5 | 1 << 24 | 1 << 26 | 1 << 19;
        let rest = RareFields {
            data_src: Some(na),
            weight: Some(sample::Weight::Whole(0)),
            ..RareFields::default()
        };
        assert_eq!(Access::of_fields(Some(0), &rest, None), None);
        assert_eq!(Access::of_words(0, 0, na), None);
        assert_eq!(Access::of_fields(None, &RareFields::default(), None), None);
    }

    /// IBS registers are used only if the PMU is IBS; no bytes make it fail.
    #[test]
    fn ibs_registers() {
        let cpu = CpuModel {
            family: 0x19,
            model: 0x11,
            ..CpuModel::default()
        };
        let op = Registers::of_pmu("ibs_op", &cpu);
        assert_eq!(Registers::of_pmu("cpu", &cpu), None);
        let mut raw = 0u32.to_le_bytes().to_vec();
        // Control, RIP, data (a mispredicted taken branch, 40 cycles to retire), data 2, data 3 (a load
        // that missed the first level and hit the second, 17 cycles), address, physical address.
        let data = 40 << 16 | 8 | 1 << 35 | 1 << 36 | 1 << 37;
        let data3 = 1 | 1 << 7 | 1 << 17 | 17 << 32;
        for word in [0u64, 0x1000, data, 0, data3, 0x7000, 0] {
            raw.extend(word.to_le_bytes());
        }
        let rest = RareFields {
            raw: Some(&raw),
            ..RareFields::default()
        };
        let access = Access::of_fields(None, &rest, op).unwrap();
        assert_eq!((access.op, access.addr), (Some("load"), Some(0x7000)));
        assert_eq!(access.place.unwrap().to_string(), "L2 hit");
        assert_eq!((access.latency, access.op_latency), (Some(17), Some(40)));
        assert_eq!(
            (access.taken, access.mispredicted),
            (Some(true), Some(true))
        );
        assert_eq!(Access::of_fields(None, &rest, None), None);
        let fetch = Registers::of_pmu("ibs_fetch", &cpu);
        let mut raw = 0u32.to_le_bytes().to_vec();
        // Completed after 30 cycles; instruction cache and second level missed.
        for word in [30u64 << 32 | 1 << 50 | 1 << 51 | 1 << 58, 0x2000, 0] {
            raw.extend(word.to_le_bytes());
        }
        let rest = RareFields {
            raw: Some(&raw),
            ..RareFields::default()
        };
        let access = Access::of_fields(None, &rest, fetch).unwrap();
        assert_eq!((access.op, access.latency), (Some("fetch"), Some(30)));
        assert_eq!(access.place.unwrap().to_string(), "L2 miss");
    }

    proptest::proptest! {
        /// No raw bytes make it panic.
        #[test]
        fn any_registers(raw: Vec<u8>, family: u32, model: u32) {
            let rest = RareFields { raw: Some(&raw), ..RareFields::default() };
            let _ = Access::of_fields(None, &rest, Some(Registers::IbsOp(family, model)));
            let _ = Access::of_fields(None, &rest, Some(Registers::IbsFetch(family, model)));
        }
    }
}
