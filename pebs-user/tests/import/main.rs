//! Recordings of `perf record` through the decoder, the import and the report.
//!
//! `golden/NAME.txt` is the output and the tables of an import of `NAME.data`. `PEBS_BLESS=1 cargo test -p pebs-trace
//! --test import` rewrites the golden texts: read the difference before you keep it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod calls;
mod damage;
mod golden;
mod items;
mod lines;
mod losses;
mod machines;
mod memory;
mod older;
mod piped;
mod reading;
mod run;
mod switches;
mod unusual;

use std::path::{Path, PathBuf};

use pebs_user::import::survey;
use pebs_user::perf::data::reader::PerfData;

/// A recording: its name, number of samples, and of samples with an exact ip.
type Fixture = (&'static str, u64, u64);

/// Recordings that are part of the repository.
const OURS: [Fixture; 2] = [
    ("vm-spr.cpu-clock+uprobe-req.mt3.clk-mono", 2307, 0),
    ("vm-spr.cpu-clock+uprobe-req.mt3.callgraph.zstd", 2342, 0),
];

/// Recordings of others. Every sample of a precise Intel event is exact.
const FOREIGN: [Fixture; 29] = [
    ("adl-i9-12900K.user_events+sched_switch.clk-mono", 539, 0),
    (
        "adl-i9-12900K.user_events+sched_switch.clk-mono.pipe",
        551,
        0,
    ),
    ("celeron867.6ev.forkexit.systemwide", 15499, 0),
    ("cfl-i9-9980HK.cycles-ppp.threads", 318, 318),
    ("cfl-i9-9980HK.perf-mem.ld+st", 698, 698),
    ("clx-4210R.cycles-ppp.mt3.callgraph.2", 1985, 1985),
    ("clx-4210R.cycles-ppp.mt3.callgraph", 1984, 1984),
    ("cml-i9-10900KF.cycles-ppp.systemwide", 5098, 5098),
    ("cml-i9-10900KF.unfinished-file", 123, 123),
    ("hsw-2955U.3ev-pp.period20003.lost_samples", 191, 191),
    ("hsw-2955U.3ev-pp.period20003.lost_samples.pipe", 191, 191),
    ("hsw-i5-4200U.cycles-P.dwarf", 99, 99),
    ("hsw-i5-4200U.cycles-P.lbr-callgraph", 856, 856),
    ("lnl-ultra7-258V.hybrid.cycles-Pu.callgraph", 3203, 3203),
    ("mstange.fibo.compressed2.pipe", 547, 547),
    ("mstange.sleep.compressed", 8, 0),
    ("mstange.sleep.compressed.pipe", 8, 0),
    ("mstange.sleep.compressed2", 7, 7),
    ("mstange.sleep.compressed2.pipe", 7, 7),
    ("mstange.sleep", 7, 7),
    ("rpl-i7-1365U.hybrid.cycles-ppp", 7, 7),
    ("skl-m7-6Y75.cycles-ppp.lbr", 13, 13),
    ("skl-m7-6Y75.intel_pt+cycles", 15, 0),
    ("skx-8173M.cycles-u.lbr", 3740, 0),
    ("skx-8173M.ldlat64-pp.weight_struct.pfm", 14, 14),
    ("skx-w2135.group.pipe", 21, 0),
    ("snb-i5-2467M.2ev-period10000.throttle.systemwide", 14980, 0),
    ("zen4-7975WX.ibs-cycles-P.dwarf.mt", 58, 58),
    ("zen4-engsample.brs-spec.rc4", 8, 0),
];

/// Path of a recording; `None`, with a message, if it is one of others' and missing.
fn fixture(name: &str) -> Option<PathBuf> {
    let file = format!("{name}.data");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = manifest.join("tests/fixtures/perf-data").join(&file);
    if own.exists() {
        return Some(own);
    }
    let named = std::env::var_os("PEBS_PERF_DATA").map(PathBuf::from);
    let above = manifest
        .ancestors()
        .map(|dir| dir.join("shared/fixtures/perf-data"));
    let found = named
        .into_iter()
        .chain(above)
        .map(|dir| dir.join(&file))
        .find(|path| path.exists());
    if found.is_none() {
        println!("SKIP {file} is not here: name its folder in PEBS_PERF_DATA");
    }
    found
}

/// All recordings are read to their last byte, with the expected number of samples.
#[test]
fn every_sample() {
    for (name, samples, exact) in OURS.into_iter().chain(FOREIGN) {
        let Some(path) = fixture(name) else { continue };
        let mut data = PerfData::open(&path).unwrap();
        let survey = survey(&mut data).unwrap();
        let counted: u64 = survey.counts.iter().map(|counts| counts.exact).sum();
        assert_eq!((survey.samples(), counted), (samples, exact), "{name}");
        assert_eq!((survey.malformed, survey.left_over), (0, (0, 0)), "{name}");
        assert_eq!(survey.fault, None, "{name}");
    }
}
