//! Tests of event names against the encodings passed to the kernel, for each machine.
//!
//! Rows with a libpfm name were checked against libpfm 4.13, and are checked again where it is installed. The
//! others come from the kernel's source and Intel's lists.

use super::*;
use crate::pmu::host::fixtures;

/// An EVENT; its type, config, config1, config2, `precise_ip`, exclude_user and exclude_kernel; libpfm's name.
type Row = (&'static str, [u64; 7], &'static str);

fn words(host: &Host, event: &str) -> [u64; 7] {
    let reset = reset_value(16_000).unwrap();
    let spec = event.parse().unwrap();
    let attr = resolve(&spec, host, reset)
        .unwrap_or_else(|error| panic!("{event}: {error}"))
        .attr;
    words_of(&attr)
}

fn words_of(attr: &perf_event_attr) -> [u64; 7] {
    [
        attr.type_.into(),
        attr.config,
        attr.config1,
        attr.config2,
        attr.precise_ip(),
        attr.exclude_user(),
        attr.exclude_kernel(),
    ]
}

/// Skylake-SP and Cascade Lake.
const SKYLAKE: &[Row] = &[
    ("auto", [4, 0x1c2, 0, 0, 2, 0, 0], "UOPS_RETIRED:ALL"),
    (
        "uops_retired.all",
        [4, 0x1c2, 0, 0, 0, 0, 0],
        "UOPS_RETIRED:ALL",
    ),
    (
        "UOPS_RETIRED.ALL:ppu",
        [4, 0x1c2, 0, 0, 2, 0, 1],
        "UOPS_RETIRED:ALL",
    ),
    (
        "inst_retired.prec_dist:ppp",
        [4, 0x1c0, 0, 0, 3, 0, 0],
        "INST_RETIRED:PREC_DIST",
    ),
    (
        "inst_retired.any_p",
        [4, 0xc0, 0, 0, 0, 0, 0],
        "INST_RETIRED:ANY_P",
    ),
    (
        "mem_load_retired.l1_miss:P",
        [4, 0x8d1, 0, 0, 3, 0, 0],
        "MEM_LOAD_RETIRED:L1_MISS",
    ),
    (
        "cpu/mem_load_retired.l3_miss/pp",
        [4, 0x20d1, 0, 0, 2, 0, 0],
        "MEM_LOAD_RETIRED:L3_MISS",
    ),
    (
        "mem_load_l3_miss_retired.remote_hitm:k",
        [4, 0x4d3, 0, 0, 0, 1, 0],
        "MEM_LOAD_L3_MISS_RETIRED:REMOTE_HITM",
    ),
    (
        "mem_inst_retired.lock_loads",
        [4, 0x21d0, 0, 0, 0, 0, 0],
        "MEM_INST_RETIRED:LOCK_LOADS",
    ),
    (
        "mem_trans_retired.load_latency_gt_64:p",
        [4, 0x1cd, 64, 0, 1, 0, 0],
        "MEM_TRANS_RETIRED:LOAD_LATENCY:ldlat=64",
    ),
    (
        "mem-loads,ldlat=64:p",
        [4, 0x1cd, 64, 0, 1, 0, 0],
        "MEM_TRANS_RETIRED:LOAD_LATENCY:ldlat=64",
    ),
    (
        "cpu/mem-loads,ldlat=64/P",
        [4, 0x1cd, 64, 0, 3, 0, 0],
        "MEM_TRANS_RETIRED:LOAD_LATENCY:ldlat=64",
    ),
    (
        "cpu/mem-stores/P",
        [4, 0x82d0, 0, 0, 3, 0, 0],
        "MEM_INST_RETIRED:ALL_STORES",
    ),
    (
        "br_misp_retired.all_branches",
        [4, 0xc5, 0, 0, 0, 0, 0],
        "BR_MISP_RETIRED:ALL_BRANCHES",
    ),
    (
        "frontend_retired.dsb_miss:pp",
        [4, 0x1c6, 0x11, 0, 2, 0, 0],
        "FRONTEND_RETIRED:DSB_MISS",
    ),
    (
        "cycle_activity.stalls_l3_miss",
        [4, 0x0600_06a3, 0, 0, 0, 0, 0],
        "CYCLE_ACTIVITY:STALLS_L3_MISS",
    ),
    (
        "l2_rqsts.miss:u",
        [4, 0x3f24, 0, 0, 0, 0, 1],
        "L2_RQSTS:MISS",
    ),
    (
        "longest_lat_cache.miss",
        [4, 0x412e, 0, 0, 0, 0, 0],
        "LONGEST_LAT_CACHE:MISS",
    ),
    ("cycles:pp", [0, 0, 0, 0, 2, 0, 0], ""),
    ("cache-misses", [0, 3, 0, 0, 0, 0, 0], ""),
    ("cpu/cycles/pp", [0, 0, 0, 0, 2, 0, 0], ""),
    ("cpu/cpu-cycles/", [4, 0x3c, 0, 0, 0, 0, 0], ""),
    ("L1-dcache-load-misses", [3, 0x1_0000, 0, 0, 0, 0, 0], ""),
    ("r01c2:pp", [4, 0x1c2, 0, 0, 2, 0, 0], ""),
    ("cpu/r01c2/pp", [4, 0x1c2, 0, 0, 2, 0, 0], ""),
    (
        "cpu/event=0xc2,umask=0x1,cmask=16,inv/",
        [4, 0x1080_01c2, 0, 0, 0, 0, 0],
        "",
    ),
    ("cpu-clock:u", [1, 0, 0, 0, 0, 0, 1], ""),
    ("context-switches", [1, 3, 0, 0, 0, 0, 0], ""),
];

/// Ice Lake-SP and Sapphire Rapids.
const ICE_LAKE: &[Row] = &[
    ("auto", [4, 0x100, 0, 0, 2, 0, 0], "INST_RETIRED:PREC_DIST"),
    (
        "inst_retired.prec_dist:ppp",
        [4, 0x100, 0, 0, 3, 0, 0],
        "INST_RETIRED:PREC_DIST",
    ),
    (
        "uops_retired.slots",
        [4, 0x2c2, 0, 0, 0, 0, 0],
        "UOPS_RETIRED:SLOTS",
    ),
    (
        "mem_load_retired.l1_miss:pp",
        [4, 0x8d1, 0, 0, 2, 0, 0],
        "MEM_LOAD_RETIRED:L1_MISS",
    ),
    (
        "mem_trans_retired.load_latency_gt_64:p",
        [4, 0x1cd, 64, 0, 1, 0, 0],
        "MEM_TRANS_RETIRED:LOAD_LATENCY:ldlat=64",
    ),
    (
        "cpu/mem-loads,ldlat=30/P",
        [4, 0x1cd, 30, 0, 3, 0, 0],
        "MEM_TRANS_RETIRED:LOAD_LATENCY:ldlat=30",
    ),
    (
        "br_inst_retired.near_call:p",
        [4, 0x2c4, 0, 0, 1, 0, 0],
        "BR_INST_RETIRED:NEAR_CALL",
    ),
    (
        "frontend_retired.dsb_miss:pp",
        [4, 0x1c6, 0x11, 0, 2, 0, 0],
        "FRONTEND_RETIRED:DSB_MISS",
    ),
    (
        "cycle_activity.stalls_l3_miss",
        [4, 0x0600_06a3, 0, 0, 0, 0, 0],
        "CYCLE_ACTIVITY:STALLS_L3_MISS",
    ),
    ("slots", [4, 0x400, 0, 0, 0, 0, 0], ""),
];

/// Alder Lake, performance cores: the PMU's type is in the upper half of config.
const ALDER_LAKE: &[Row] = &[
    ("auto", [0, 0x4_0000_0001, 0, 0, 2, 0, 0], ""),
    ("cycles:P", [0, 0x4_0000_0000, 0, 0, 3, 0, 0], ""),
    ("cpu_core/cycles/u", [0, 0x4_0000_0000, 0, 0, 0, 0, 1], ""),
    ("cpu_atom/cycles/pp", [0, 0xa_0000_0000, 0, 0, 2, 0, 0], ""),
    ("cpu_atom/event=0xc0/pp", [10, 0xc0, 0, 0, 2, 0, 0], ""),
    ("LLC-loads", [3, 0x4_0000_0002, 0, 0, 0, 0, 0], ""),
    ("r1c2", [4, 0x1c2, 0, 0, 0, 0, 0], ""),
    ("mem-loads", [4, 0x1cd, 3, 0, 0, 0, 0], ""),
    (
        "cpu_atom/mem-loads,ldlat=64/P",
        [10, 0x5d0, 64, 0, 3, 0, 0],
        "",
    ),
    (
        "cpu_core/mem_load_retired.l1_miss/pp",
        [4, 0x8d1, 0, 0, 2, 0, 0],
        "",
    ),
    (
        "cpu_atom/mem_load_uops_retired.l2_hit/pp",
        [10, 0x2d1, 0, 0, 2, 0, 0],
        "",
    ),
    ("br_misp_retired.all_branches", [4, 0xc5, 0, 0, 0, 0, 0], ""),
];

/// Events of all Zen CPUs.
const ZEN: &[Row] = &[
    ("auto", [10, 0x8_0000, 0, 0, 0, 0, 0], ""),
    ("ibs_op//", [10, 0, 0, 0, 0, 0, 0], ""),
    ("ibs_op/cnt_ctl=1/", [10, 0x8_0000, 0, 0, 0, 0, 0], ""),
    ("ibs_fetch/rand_en=1/", [9, 1 << 57, 0, 0, 0, 0, 0], ""),
    ("cycles:P", [0, 0, 0, 0, 2, 0, 0], ""),
    ("r0c1:pp", [4, 0xc1, 0, 0, 2, 0, 0], ""),
    (
        "cpu/event=0x76/u",
        [4, 0x76, 0, 0, 0, 0, 1],
        "CYCLES_NOT_IN_HALT",
    ),
    (
        "cpu/instructions/",
        [4, 0xc0, 0, 0, 0, 0, 0],
        "RETIRED_INSTRUCTIONS",
    ),
    (
        "cpu/branch-misses/",
        [4, 0xc3, 0, 0, 0, 0, 0],
        "RETIRED_BRANCH_INSTRUCTIONS_MISPREDICTED",
    ),
    (
        "cpu/event=0x1c2,umask=0xff/",
        [4, 0x1_0000_ffc2, 0, 0, 0, 0, 0],
        "",
    ),
];

/// Zen 4 without and with modes filtered by the kernel.
const ZEN4: &[Row] = &[
    (
        "ibs_op/cnt_ctl=1,l3missonly=1/",
        [10, 0x9_0000, 0, 0, 0, 0, 0],
        "",
    ),
    ("ibs_fetch/l3missonly/", [9, 1 << 59, 0, 0, 0, 0, 0], ""),
    ("ibs_op//u", [10, 0, 0, 0, 0, 0, 0], ""),
];

/// The same since Linux 6.14.
const ZEN4_SWFILT: &[Row] = &[
    ("auto", [10, 0x8_0000, 0, 1, 0, 0, 0], ""),
    (
        "ibs_op/cnt_ctl=1,l3missonly=1/",
        [10, 0x9_0000, 0, 1, 0, 0, 0],
        "",
    ),
    ("ibs_op//u", [10, 0, 0, 1, 0, 0, 1], ""),
    ("cpu/event=0x76/u", [4, 0x76, 0, 0, 0, 0, 1], ""),
];

/// Zen 5: with a latency from which on loads are sampled.
const ZEN5: &[Row] = &[
    (
        "ibs_op/cnt_ctl=1,ldlat=128/",
        [10, 0x8_0000, 128, 1, 0, 0, 0],
        "",
    ),
    ("ibs_op//k", [10, 0, 0, 1, 0, 1, 0], ""),
];

/// A guest without a PMU.
const GUEST: &[Row] = &[
    ("auto", [1, 0, 0, 0, 0, 0, 0], ""),
    ("msr/tsc/", [9, 0, 0, 0, 0, 0, 0], ""),
    ("page-faults:u", [1, 2, 0, 0, 0, 0, 1], ""),
    ("mem:0x1000/8:w", [5, 0, 0x1000, 8, 0, 0, 0], ""),
];

/// A machine, libpfm's name for its PMU, and rows.
type Machine = (Host, &'static str, &'static [Row]);

fn machines() -> Vec<Machine> {
    vec![
        (fixtures::skylake(), "skx", SKYLAKE),
        (fixtures::cascade_lake(), "clx", SKYLAKE),
        (fixtures::ice_lake(), "icx", ICE_LAKE),
        (fixtures::sapphire_rapids(), "spr", ICE_LAKE),
        (fixtures::alder_lake(), "", ALDER_LAKE),
        (fixtures::zen2(), "amd64_fam17h_zen2", ZEN),
        (fixtures::zen3(), "amd64_fam19h_zen3", ZEN),
        (fixtures::zen4(), "amd64_fam19h_zen4", ZEN),
        (fixtures::zen4(), "", ZEN4),
        (fixtures::zen4_swfilt(), "", ZEN4_SWFILT),
        (fixtures::zen5(), "", ZEN5),
        (fixtures::bare_guest(), "", GUEST),
    ]
}

/// Each name has exactly these words on each machine.
#[test]
fn names_become_words() {
    for (host, _, rows) in machines() {
        for (event, expect, _) in rows {
            let found = words(&host, event);
            assert_eq!(&found, expect, "{event} on {}: {found:#x?}", host.cpu.name);
        }
    }
}

/// On a hybrid CPU a bare name gives one event with a counter on each kind of cores.
#[test]
fn bare_names_are_on_both_kinds() {
    let host = fixtures::alder_lake();
    let cases = [
        ("cycles:P", [0, 0xa_0000_0000, 0, 0, 3, 0, 0]),
        ("auto", [0, 0xa_0000_0001, 0, 0, 2, 0, 0]),
        ("mem-loads,ldlat=64:P", [10, 0x5d0, 64, 0, 3, 0, 0]),
        ("br_misp_retired.all_branches:u", [10, 0xc5, 0, 0, 0, 0, 1]),
        ("r1c2:pp", [10, 0x1c2, 0, 0, 2, 0, 0]),
    ];
    for (event, atom) in cases {
        let reset = reset_value(16_000).unwrap();
        let event = resolve(&event.parse().unwrap(), &host, reset).unwrap();
        let both = event.attrs_for(Target::Thread(crate::units::Tid(1)));
        assert_eq!(both.len(), 2, "{event:?}");
        assert_eq!(words_of(&both[1]), atom, "{event:?}");
        let on = |cpu| event.attrs_for(Target::Cpu(Cpu(cpu)));
        assert_eq!((on(0).len(), on(3).len()), (1, 1));
        assert_eq!(words_of(&on(0)[0]), words_of(&both[0]));
        assert_eq!(words_of(&on(3)[0]), atom);
        assert!(both.iter().all(|attr| attr.inherit() == 1));
        assert!((0..4).all(|cpu| event.counts_on(Cpu(cpu))));
        assert!(event.notes.iter().any(|note| note.contains("cpu_atom")));
    }
    let core = resolve(
        &"cpu_core/cycles/".parse().unwrap(),
        &host,
        reset_value(16_000).unwrap(),
    )
    .unwrap();
    assert!(core.twins.is_empty() && core.counts_on(Cpu(1)) && !core.counts_on(Cpu(2)));
}

/// libpfm's encoding of the same events: one line of `CONFIG CONFIG1` for each argument.
const LIBPFM: &str = r"
import ctypes, os, struct, sys
os.environ['LIBPFM_ENCODE_INACTIVE'] = '1'
lib = ctypes.CDLL('libpfm.so.4')
class Arg(ctypes.Structure):
    _fields_ = [('attr', ctypes.c_void_p), ('fstr', ctypes.c_void_p), ('size', ctypes.c_size_t),
                ('idx', ctypes.c_int), ('cpu', ctypes.c_int), ('flags', ctypes.c_int), ('pad', ctypes.c_int)]
assert lib.pfm_initialize() == 0
for event in sys.argv[1:]:
    attr = ctypes.create_string_buffer(256)
    arg = Arg(ctypes.addressof(attr), None, ctypes.sizeof(Arg), 0, 0, 0, 0)
    error = lib.pfm_get_os_event_encoding(event.encode(), 31, 1, ctypes.byref(arg))
    assert error == 0, event
    print(*struct.unpack_from('<Q', attr.raw, 8), *struct.unpack_from('<Q', attr.raw, 56))
";

/// libpfm, if installed, gives the same encoding for the rows it knows.
#[test]
fn libpfm_agrees() {
    let run = |args: &[String]| {
        let mut python = std::process::Command::new("python3");
        python.arg("-c").arg(LIBPFM).args(args).output()
    };
    if !run(&[]).is_ok_and(|output| output.status.success()) {
        eprintln!("SKIP no python3 with libpfm.so.4 (Debian: libpfm4)");
        return;
    }
    let mut compared = 0;
    for (host, pmu, rows) in machines() {
        let rows: Vec<&Row> = rows
            .iter()
            .filter(|row| !pmu.is_empty() && !row.2.is_empty())
            .collect();
        let names: Vec<String> = rows.iter().map(|row| format!("{pmu}::{}", row.2)).collect();
        let output = run(&names).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", host.cpu.name);
        let lines = String::from_utf8(output.stdout).unwrap();
        for (row, line) in rows.iter().zip(lines.lines()) {
            let expect = format!("{} {}", row.1[1], row.1[2]);
            assert_eq!(line, expect, "{} on {pmu}", row.0);
            compared += 1;
        }
    }
    assert!(compared > 50, "{compared}");
}
