use proptest::prelude::*;

use super::*;
use crate::pmu::host::Vendor;

fn zen(family: u32, model: u32) -> CpuModel {
    CpuModel {
        vendor: Vendor::Amd,
        family,
        model,
        ..CpuModel::default()
    }
}

const ZEN2_CAPS: u32 = 0x3ff;
const ZEN4_CAPS: u32 = 0xbff;

fn raw(caps: u32, registers: &[u64]) -> Vec<u8> {
    let mut bytes = caps.to_le_bytes().to_vec();
    bytes.extend(registers.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

/// An op: `data`, `data2`, `data3`; the addresses are 0x7f00 and 0x1_7f00, the branch target 0x4010.
fn op(caps: u32, cpu: &CpuModel, data: u64, data2: u64, data3: u64) -> IbsOp {
    let registers = [
        0x6_0000, 0x4000, data, data2, data3, 0x7f00, 0x1_7f00, 0x4010,
    ];
    IbsOp::decode(&raw(caps, &registers), cpu).unwrap()
}

const LOAD: u64 = 1;
const STORE: u64 = 2;
const TLB1_MISS: u64 = 1 << 2;
const TLB2_MISS: u64 = 1 << 3;
const L1_MISS: u64 = 1 << 7;
const NO_BUFFER: u64 = 1 << 16;
const ADDRESSES: u64 = 3 << 17;
const L2_MISS: u64 = 1 << 20;
const PREFETCH: u64 = 1 << 21;

/// Latencies and branches come from the first data register.
#[test]
fn branches() {
    let cpu = zen(0x19, 0x11);
    let data = 12 | 340 << 16 | 1 << 34 | 1 << 35 | 1 << 36 | 1 << 37 | 1 << 39;
    let found = op(ZEN4_CAPS, &cpu, data, 0, 0);
    assert_eq!((found.tag_to_retire, found.completion_to_retire), (340, 12));
    assert_eq!((found.ip, found.kind()), (Some(Ip(0x4000)), OpKind::Branch));
    let branch = Branch {
        taken: true,
        mispredicted: true,
        returns: true,
        fused: true,
        target: Some(Ip(0x4010)),
    };
    assert_eq!(found.branch, Some(branch));
    // Without the bit for retired branches the other bits are meaningless.
    assert_eq!(op(ZEN4_CAPS, &cpu, data & !(1 << 37), 0, 0).branch, None);
    let invalid = op(ZEN4_CAPS, &cpu, 1 << 38 | 1 << 40, 0, 0);
    assert_eq!((invalid.ip, invalid.microcode), (None, true));
    assert_eq!(invalid.kind(), OpKind::Other);
}

/// Loads have a data source; sources are renumbered from Zen 4 on.
#[test]
fn sources() {
    let place = |caps, cpu: &CpuModel, data2, data3| {
        let found = op(caps, cpu, 0, data2, data3).memory.unwrap().place;
        found.map_or("N/A".to_owned(), |place| place.to_string())
    };
    let (zen2, zen4) = (zen(0x17, 0x31), zen(0x19, 0x11));
    let missed = LOAD | L1_MISS | L2_MISS;
    let remote = 1 << 4;
    let cases = [
        (ZEN4_CAPS, &zen4, 0, LOAD, "L1 hit"),
        (ZEN4_CAPS, &zen4, 0, LOAD | L1_MISS, "L2 hit"),
        (ZEN4_CAPS, &zen4, 1, missed, "L3 hit"),
        (
            ZEN4_CAPS,
            &zen4,
            2,
            missed,
            "Remote core, same node Any cache hit",
        ),
        (ZEN4_CAPS, &zen4, 3, missed, "RAM hit"),
        (
            ZEN4_CAPS,
            &zen4,
            3 | remote,
            missed,
            "Remote node, same socket RAM hit",
        ),
        (
            ZEN4_CAPS,
            &zen4,
            5,
            missed,
            "Remote node, same socket Any cache hit",
        ),
        (ZEN4_CAPS, &zen4, 7, missed, "I/O hit"),
        (ZEN4_CAPS, &zen4, 1 << 6, missed, "CXL hit"),
        (ZEN4_CAPS, &zen4, 0, missed, "N/A"),
        (ZEN4_CAPS, &zen4, 0, missed | NO_BUFFER, "LFB/MAB hit"),
        (ZEN4_CAPS, &zen4, 0, STORE | L1_MISS | L2_MISS, "N/A"),
        (ZEN4_CAPS, &zen4, 0, LOAD | 1 << 14, "Uncached hit"),
        (
            ZEN2_CAPS,
            &zen2,
            2,
            missed,
            "Remote core, same node Any cache hit",
        ),
        (
            ZEN2_CAPS,
            &zen2,
            4,
            missed,
            "Remote node, same socket Any cache hit",
        ),
        (ZEN2_CAPS, &zen2, 3, missed, "RAM hit"),
        (ZEN2_CAPS, &zen2, 1, missed, "N/A"),
    ];
    for (caps, cpu, data2, data3, expect) in cases {
        assert_eq!(
            place(caps, cpu, data2, data3),
            expect,
            "{data2:#x} {data3:#x}"
        );
    }
}

/// Latencies, translation, width and addresses of an access.
#[test]
fn accesses() {
    let cpu = zen(0x19, 0x11);
    let data3 = LOAD | L1_MISS | TLB1_MISS | ADDRESSES | 4 << 22 | 5 << 26 | 211 << 32 | 33 << 48;
    let memory = op(ZEN4_CAPS, &cpu, 0, 1, data3 | 1 << 15).memory.unwrap();
    assert_eq!((memory.kind, memory.width), (OpKind::Load, Some(8)));
    assert_eq!(
        (memory.address, memory.physical),
        (Some(0x7f00), Some(0x1_7f00))
    );
    assert_eq!(
        (memory.miss_latency, memory.tlb_latency),
        (Some(211), Some(33))
    );
    assert_eq!(
        memory.tlb.map(|tlb| tlb.to_string()).as_deref(),
        Some("L2 hit")
    );
    assert!(memory.locked && !memory.misaligned);
    assert_eq!((memory.open_misses, memory.l2_miss), (Some(5), Some(false)));
    let walked = op(ZEN4_CAPS, &cpu, 0, 0, data3 | TLB2_MISS | STORE)
        .memory
        .unwrap();
    assert_eq!(
        walked.tlb.map(|tlb| tlb.to_string()).as_deref(),
        Some("L2 miss")
    );
    assert_eq!(walked.kind, OpKind::LoadStore);
    let hit = op(ZEN4_CAPS, &cpu, 0, 0, STORE | 1 << 4).memory.unwrap();
    assert_eq!((hit.address, hit.tlb, hit.miss_latency), (None, None, None));
    assert_eq!(hit.page, Some(PageSize::M2));
}

/// Newer CPUs have the page's size in two bits, valid with a physical address.
#[test]
fn page_sizes() {
    let (cpu, caps) = (zen(0x1a, 0x50), ZEN4_CAPS | 1 << 19);
    let page = |data3| op(caps, &cpu, 0, 0, LOAD | data3).memory.unwrap().page;
    assert_eq!(page(ADDRESSES), Some(PageSize::K4));
    assert_eq!(page(ADDRESSES | 1 << 4), Some(PageSize::M2));
    assert_eq!(page(ADDRESSES | 1 << 5), Some(PageSize::G1));
    assert_eq!(page(1 << 17), None);
}

/// Early Zen 3: fields that errata make invalid are `None`.
#[test]
fn errata() {
    let (early, later) = (zen(0x19, 1), zen(0x19, 0x11));
    let data3 = LOAD | L1_MISS | PREFETCH | 3 << 26;
    let memory = op(ZEN2_CAPS, &early, 0, 3, data3).memory.unwrap();
    assert_eq!(
        (memory.l2_miss, memory.open_misses, memory.place),
        (None, None, None)
    );
    assert_eq!(memory.kind, OpKind::Prefetch);
    let memory = op(ZEN4_CAPS, &later, 0, 3, data3).memory.unwrap();
    assert_eq!((memory.l2_miss, memory.open_misses), (Some(false), Some(3)));
}

/// Data 4 follows the branch target, if the CPU has it.
#[test]
fn data4() {
    let cpu = zen(0x15, 2);
    let registers = [0, 0x4000, 0, 0, LOAD, 0, 0, 0, 1];
    let both = IbsOp::decode(&raw(0x7ff, &registers), &cpu).unwrap();
    assert_eq!(both.resync, Some(true));
    let alone = IbsOp::decode(&raw(0x7ff & !cap::BRANCH_TARGET, &registers[1..]), &cpu);
    assert_eq!(alone.unwrap().resync, Some(true));
    assert_eq!(op(ZEN4_CAPS, &cpu, 0, 0, 0).resync, None);
}

/// A fetch: latency, caches, translation; errata of early Zen 3.
#[test]
fn fetches() {
    let control =
        90 << 32 | 1 << 49 | 1 << 50 | 1 << 51 | 1 << 52 | 1 << 53 | 1 << 55 | 1 << 58 | 1 << 60;
    let bytes = raw(ZEN4_CAPS, &[control, 0x40_1000, 0x9_1000, 17]);
    let fetch = IbsFetch::decode(&bytes, &zen(0x19, 0x11)).unwrap();
    let expect = IbsFetch {
        ip: Ip(0x40_1000),
        physical: Some(0x9_1000),
        completed: true,
        latency: 90,
        l1_miss: Some(true),
        l2_miss: Some(true),
        l3_miss: Some(false),
        op_cache_miss: Some(true),
        l1_tlb_miss: true,
        l2_tlb_miss: false,
        page: Some(PageSize::M2),
        tlb_latency: Some(17),
    };
    assert_eq!(fetch, expect);
    let early =
        IbsFetch::decode(&raw(ZEN2_CAPS, &[control, 0x40_1000, 0, 0]), &zen(0x19, 1)).unwrap();
    assert_eq!((early.l1_miss, early.page), (None, Some(PageSize::K16)));
    assert_eq!((early.l3_miss, early.op_cache_miss), (None, None));
}

/// Short data is neither an op nor a fetch.
#[test]
fn short_data() {
    let cpu = zen(0x19, 0x11);
    assert_eq!(IbsOp::decode(&raw(0, &[0; 6]), &cpu), None);
    assert_eq!(IbsFetch::decode(&raw(0, &[0; 2]), &cpu), None);
    assert_eq!(IbsOp::decode(&[], &cpu), None);
}

proptest! {
    /// No bytes panic, on any model.
    #[test]
    fn any_bytes(bytes: Vec<u8>, caps: u32, words in proptest::collection::vec(any::<u64>(), 0..10), model in 0u32..0x60) {
        let cpu = zen(0x19, model);
        for raw in [bytes, raw(caps, &words)] {
            let _ = (IbsOp::decode(&raw, &cpu), IbsFetch::decode(&raw, &cpu));
        }
    }
}
