//! Tests of the registers of each generation, byte for byte, and of the kernel's own decoding.

use perf_event_open_sys::bindings as sys;

use super::*;
use crate::perf::layout::Layout;
use crate::perf::sample::Sample;
use crate::pmu::host::Vendor;
use crate::stream::access::{Access, Registers};

const FAMILY_10H: u32 = 0x07;
const FAMILY_15H: u32 = 0x5ff;
const FAMILY_16H: u32 = 0x7ff;
const ZEN2: u32 = 0x3ff;
const ZEN3: u32 = 0x3ff;
const ZEN4: u32 = 0xbff;
const ZEN5: u32 = 0x1bff;
const PAGE_SIZES: u32 = ZEN5 | 1 << 19;
const LATER: u32 = PAGE_SIZES | 0xf << 13;

fn cpu(family: u32, model: u32) -> CpuModel {
    CpuModel {
        vendor: Vendor::Amd,
        family,
        model,
        ..CpuModel::default()
    }
}

/// Names of the registers in the order in which `perf_ibs_handle_irq` reads them.
fn op_registers(caps: u32) -> Vec<&'static str> {
    let mut names = vec![
        "op_ctl",
        "op_rip",
        "op_data",
        "op_data2",
        "op_data3",
        "dc_linad",
        "dc_physad",
    ];
    if caps & 1 << 5 != 0 {
        names.push("br_target");
    }
    if caps & 1 << 10 != 0 {
        names.push("op_data4");
    }
    names
}

fn fetch_registers(caps: u32) -> Vec<&'static str> {
    let mut names = vec!["fetch_ctl", "fetch_linad", "fetch_physad"];
    if caps & 1 << 9 != 0 {
        names.push("extd_ctl");
    }
    names
}

/// The raw field of a sample: `caps`, then the registers with these values.
fn raw(caps: u32, names: &[&str], value: impl Fn(&str) -> u64) -> Vec<u8> {
    let mut bytes = caps.to_le_bytes().to_vec();
    names
        .iter()
        .for_each(|name| bytes.extend(value(name).to_le_bytes()));
    bytes
}

/// Registers of a retired branch that loads, with all optional ones; each has a distinct value.
fn branch_that_loads(name: &str) -> u64 {
    match name {
        "op_ctl" => 0x4_0000,
        "op_rip" => 0x40_1000,
        // 9 cycles to completion, 200 to retirement; returns, taken, mispredicted, retired, fused.
        "op_data" => 9 | 200 << 16 | 0xf << 34 | 1 << 39,
        "op_data2" => 3,
        // A load that missed both caches, addresses valid; 8 bytes, 300 cycles.
        "op_data3" => 1 | 1 << 7 | 3 << 17 | 1 << 20 | 4 << 22 | 300 << 32,
        "dc_linad" => 0x7fff_0010,
        "dc_physad" => 0x1234_5010,
        "br_target" => 0x40_2000,
        "op_data4" => 1,
        other => panic!("{other}"),
    }
}

/// Each generation's registers are found, and missing ones are `None`.
#[test]
fn ops_of_each_generation() {
    for (caps, family, model) in [
        (FAMILY_10H, 0x10, 4),
        (FAMILY_15H, 0x15, 2),
        (FAMILY_16H, 0x16, 0x30),
        (ZEN2, 0x17, 0x31),
        (ZEN3, 0x19, 0x21),
        (ZEN4, 0x19, 0x11),
        (ZEN5, 0x1a, 0x02),
        (PAGE_SIZES, 0x1a, 0x50),
        (LATER, 0x1a, 0x90),
    ] {
        let names = op_registers(caps);
        let bytes = raw(caps, &names, branch_that_loads);
        assert_eq!(bytes.len(), 4 + 8 * names.len());
        let op = IbsOp::decode(&bytes, &cpu(family, model)).unwrap();
        let has = |cap: u32| caps & 1 << cap != 0;
        assert_eq!(op.ip, Some(Ip(0x40_1000)), "{caps:#x}");
        assert_eq!((op.completion_to_retire, op.tag_to_retire), (9, 200));
        let branch = op.branch.unwrap();
        assert_eq!(branch.target, has(5).then_some(Ip(0x40_2000)), "{caps:#x}");
        assert!(branch.taken && branch.mispredicted && branch.returns);
        assert_eq!(branch.fused, has(8), "{caps:#x}");
        assert_eq!(op.resync, has(10).then_some(true), "{caps:#x}");
        let memory = op.memory.unwrap();
        assert_eq!((memory.kind, memory.width), (OpKind::Load, Some(8)));
        assert_eq!(
            (memory.address, memory.physical, memory.miss_latency),
            (Some(0x7fff_0010), Some(0x1234_5010), Some(300)),
            "{caps:#x}"
        );
        assert_eq!(memory.place.unwrap().level, Level::Ram, "{caps:#x}");
        // Truncated registers are unknown; the first seven are required.
        for kept in 0..names.len() {
            let cut = IbsOp::decode(&bytes[..4 + 8 * kept], &cpu(family, model));
            assert_eq!(cut.is_some(), kept >= 7, "{caps:#x}: {kept}");
            let resync = cut.and_then(|op| op.resync);
            assert_eq!(resync, None, "{caps:#x}: {kept}");
        }
    }
}

/// The same of fetches.
#[test]
fn fetches_of_each_generation() {
    let value = |name: &str| match name {
        // 77 cycles, complete, missed in cache and second level, physical address, 2 MiB; op cache and L3 missed.
        "fetch_ctl" => 77 << 32 | 7 << 50 | 1 << 53 | 1 << 58 | 3 << 60,
        "fetch_linad" => 0x40_1000,
        "fetch_physad" => 0x9_1000,
        "extd_ctl" => 21 | 1 << 16,
        other => panic!("{other}"),
    };
    for (caps, family, model) in [
        (FAMILY_10H, 0x10, 4),
        (ZEN2, 0x17, 0x31),
        (ZEN4, 0x19, 0x11),
        (ZEN5, 0x1a, 0x02),
        (LATER, 0x1a, 0x90),
    ] {
        let bytes = raw(caps, &fetch_registers(caps), value);
        let fetch = IbsFetch::decode(&bytes, &cpu(family, model)).unwrap();
        let has = |cap: u32| caps & 1 << cap != 0;
        assert_eq!((fetch.ip, fetch.physical), (Ip(0x40_1000), Some(0x9_1000)));
        assert_eq!((fetch.latency, fetch.completed), (77, true));
        assert_eq!(
            (fetch.l1_miss, fetch.l2_miss, fetch.page),
            (Some(true), Some(true), Some(PageSize::M2))
        );
        let zen4 = has(11).then_some(true);
        assert_eq!((fetch.op_cache_miss, fetch.l3_miss), (zen4, zen4));
        assert_eq!(fetch.tlb_latency, has(9).then_some(21), "{caps:#x}");
    }
}

/// The kernel clears physical addresses for users who may not see them, but not the valid bit.
#[test]
fn physical_addresses_are_taken_away() {
    let hidden = |name: &str| match name {
        "dc_physad" | "fetch_physad" => 0,
        "fetch_ctl" => 1 << 52,
        "fetch_linad" | "extd_ctl" => 1,
        name => branch_that_loads(name),
    };
    let zen5 = cpu(0x1a, 2);
    let op = IbsOp::decode(&raw(ZEN5, &op_registers(ZEN5), hidden), &zen5).unwrap();
    let memory = op.memory.unwrap();
    assert_eq!((memory.address, memory.physical), (Some(0x7fff_0010), None));
    let fetch = IbsFetch::decode(&raw(ZEN5, &fetch_registers(ZEN5), hidden), &zen5).unwrap();
    assert_eq!((fetch.physical, fetch.page), (None, Some(PageSize::K4)));
}

/// Fields of `PERF_SAMPLE_DATA_SRC` as the kernel fills them for IBS.
/// Source: include/uapi/linux/perf_event.h.
mod word {
    pub(super) const LOAD: u64 = 2;
    pub(super) const STORE: u64 = 4;

    /// A hit at a level: its bit of the older field and its number.
    pub(super) const fn level(bits: u64, number: u64) -> u64 {
        (bits | 2) << 5 | number << 33
    }

    pub(super) const UNKNOWN: u64 = 1 << 5 | 0xf << 33;
    pub(super) const REMOTE: u64 = 1 << 37;
    pub(super) const NO_SNOOP: u64 = 1 << 19;
    pub(super) const MODIFIED: u64 = 0x10 << 19;
    pub(super) const NO_TLB: u64 = 1 << 26;
    pub(super) const L1_TLB: u64 = 0xa << 26;
    pub(super) const L2_TLB: u64 = 0x12 << 26;
    pub(super) const NOT_L2_TLB: u64 = 0x14 << 26;
    pub(super) const LOCKED: u64 = 2 << 24;

    pub(super) const fn hops(n: u64) -> u64 {
        n << 43
    }
}

/// The decoded access matches the kernel's `PERF_SAMPLE_DATA_SRC` for the same registers.
#[test]
fn as_the_kernel_says() {
    use word::*;
    const MISSED: u64 = 1 | 1 << 7 | 1 << 20;
    const ADDRESSES: u64 = 3 << 17;
    let (zen2, zen3, zen4, zen5) = (
        (ZEN2, 0x17, 0x31),
        (ZEN3, 0x19, 0x01),
        (ZEN4, 0x19, 0x11),
        (PAGE_SIZES, 0x1a, 0x50),
    );
    let near = NO_SNOOP | NO_TLB;
    let cases = [
        (zen4, 0, 1, LOAD | level(8, 1) | near),
        (zen4, 0, 1 | 1 << 7, LOAD | level(0x20, 2) | near),
        (zen4, 1, MISSED, LOAD | level(0x40, 3) | MODIFIED | NO_TLB),
        (zen4, 1 | 1 << 5, MISSED, LOAD | level(0x40, 3) | near),
        (
            zen4,
            2,
            MISSED,
            LOAD | level(0x400, 0xb) | REMOTE | hops(1) | MODIFIED | NO_TLB,
        ),
        (zen4, 3, MISSED, LOAD | level(0x80, 0xd) | near),
        (
            zen4,
            3 | 1 << 4,
            MISSED,
            LOAD | level(0x100, 0xd) | REMOTE | hops(2) | near,
        ),
        (
            zen4,
            5 | 1 << 5,
            MISSED,
            LOAD | level(0x800, 0xb) | REMOTE | hops(2) | near,
        ),
        (zen4, 7, MISSED, LOAD | level(0x1000, 0xa) | near),
        (zen4, 0, MISSED, LOAD | UNKNOWN | near),
        (zen4, 0, MISSED | 1 << 16, LOAD | level(0x10, 0xc) | near),
        (zen4, 3, MISSED ^ 3, STORE | UNKNOWN | near),
        (zen4, 3, 1 | 1 << 14, LOAD | level(0x2000, 8) | near),
        (
            zen2,
            2,
            MISSED,
            LOAD | level(0x440, 0xb) | hops(1) | MODIFIED | NO_TLB,
        ),
        (
            zen2,
            4,
            MISSED,
            LOAD | level(0x800, 0xb) | REMOTE | hops(2) | near,
        ),
        (zen2, 6, MISSED, LOAD | UNKNOWN | near),
        // Errata of early Zen 3: a prefetch has no data source.
        (zen3, 3, MISSED | 1 << 21, LOAD | UNKNOWN | near),
        (zen3, 2, MISSED, LOAD | level(0x440, 0xb) | hops(1) | near),
        // Translation and lock.
        (
            zen4,
            0,
            1 | ADDRESSES,
            LOAD | level(8, 1) | NO_SNOOP | L1_TLB,
        ),
        (
            zen4,
            0,
            1 | ADDRESSES | 1 << 2 | 1 << 15,
            LOAD | level(8, 1) | NO_SNOOP | L2_TLB | LOCKED,
        ),
        (
            zen5,
            0,
            1 | ADDRESSES | 3 << 2,
            LOAD | level(8, 1) | NO_SNOOP | NOT_L2_TLB,
        ),
        // Page sizes are reported: then the physical address must be valid, too.
        (zen5, 0, 1 | 1 << 17, LOAD | level(8, 1) | near),
    ];
    for ((caps, family, model), data2, data3, kernels) in cases {
        let value = |name: &str| match name {
            "op_data2" => data2,
            "op_data3" => data3,
            _ => 0,
        };
        let bytes = raw(caps, &op_registers(caps), value);
        // The raw field: its size, the bytes, and padding to 8, which is empty here.
        let mut by_registers = (bytes.len() as u32).to_le_bytes().to_vec();
        by_registers.extend(bytes);
        let registers = Registers::IbsOp(family, model);
        let decoded = |field: u32, body: &[u8], registers| {
            let sample_type = field.into();
            let layout = Layout {
                sample_type,
                ..Layout::default()
            };
            let sample = Sample::decode(&layout, body).unwrap();
            Access::of(&sample, registers).unwrap()
        };
        let ours = decoded(sys::PERF_SAMPLE_RAW, &by_registers, Some(registers));
        let theirs = decoded(sys::PERF_SAMPLE_DATA_SRC, &kernels.to_le_bytes(), None);
        let of = |it: &Access| (it.place, it.snoop, it.tlb);
        assert_eq!(of(&ours), of(&theirs), "{caps:#x} {data2:#x} {data3:#x}");
        // The kernel reports a prefetch as a load, and locked accesses only.
        if data3 & 1 << 21 == 0 {
            assert_eq!(ours.op, theirs.op, "{data3:#x}");
        }
        assert!(
            theirs
                .locked
                .is_none_or(|locked| ours.locked == Some(locked))
        );
    }
}

/// Newer CPUs report whether another node is on another socket.
#[test]
fn remote_sockets() {
    let distance = |caps, data2| {
        let value = |name: &str| match name {
            "op_data2" => data2,
            "op_data3" => 1 | 1 << 7 | 1 << 20,
            _ => 0,
        };
        let bytes = raw(caps, &op_registers(caps), value);
        let op = IbsOp::decode(&bytes, &cpu(0x1a, 0x90)).unwrap();
        op.memory.unwrap().place.unwrap().distance
    };
    assert_eq!(distance(LATER, 3 | 1 << 4 | 1 << 9), Distance::Socket);
    assert_eq!(distance(LATER, 5 | 1 << 9), Distance::Socket);
    assert_eq!(distance(LATER, 3 | 1 << 4), Distance::Node);
    assert_eq!(distance(LATER, 3 | 1 << 9), Distance::Near);
    assert_eq!(distance(ZEN5, 3 | 1 << 4 | 1 << 9), Distance::Node);
}
