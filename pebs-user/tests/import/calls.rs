//! Call stacks by the CPU's record of calls (`perf record --call-graph lbr`).

use std::path::Path;

use pebs_user::import::survey;
use pebs_user::perf::data::reader::PerfData;
use pebs_user::perf::data::records::Item;
use pebs_user::perf::record::RecordKind;
use pebs_user::store::call_stacks::CallStacks;
use pebs_user::store::schema::{Table, samples};

use crate::fixture;
use crate::run::Import;

/// Source: include/uapi/linux/perf_event.h.
const CALL_STACK: u64 = 1 << 11;

/// The kernel's half of the addresses, and the context marker between kernel and user frames.
const KERNEL: u64 = 1 << 63;
const CONTEXTS: u64 = -4095_i64 as u64;

/// By sample, sorted by time: its address, and the number of frames in its record.
fn frames_of(path: &Path) -> Vec<(u64, usize)> {
    let mut data = PerfData::open(path).unwrap();
    let survey = survey(&mut data).unwrap();
    assert!(data.events[0].attr.layout.branch_sample_type & CALL_STACK != 0);
    let mut samples = Vec::new();
    let mut records = data.records();
    while let Some(item) = records.next_item() {
        let Item::Event(raw) = item else { continue };
        let Ok((_, record)) = survey.names.decode(raw) else {
            continue;
        };
        let RecordKind::Sample(sample) = record.kind else {
            continue;
        };
        let rest = sample.rest();
        let (ip, branches) = (sample.ip.unwrap(), rest.branches.unwrap());
        let chain = rest.callchain.unwrap().iter();
        let kernel = chain.filter(|at| *at < CONTEXTS && *at >= KERNEL).count();
        let calls = branches.entries.len() / 3;
        assert!(calls > 0, "each of these samples has calls");
        // The innermost user-space address is the sample's, or the target of the last call.
        samples.push((
            sample.time.unwrap(),
            ip,
            kernel.max(usize::from(ip >= KERNEL)) + 1 + calls,
        ));
    }
    samples.sort_unstable();
    samples
        .into_iter()
        .map(|(_, ip, frames)| (ip, frames))
        .collect()
}

/// Every sample of such a recording has a stack: the kernel's frames, its user-space address, and each call.
#[test]
fn lbr_call_stacks() {
    let Some(path) = fixture("hsw-i5-4200U.cycles-P.lbr-callgraph") else {
        return;
    };
    let wanted = frames_of(&path);
    let import = Import::of(&path, &[]);
    let trace = import.trace();
    let stacks = CallStacks::read(&trace).unwrap();
    let mut found = Vec::new();
    samples::each(&trace, |row| {
        let frames = stacks.frames(row.stack_id.map(|id| id.0)).unwrap();
        found.push((row.time_ns, row.ip, frames.len()));
    })
    .unwrap();
    found.sort_unstable();
    let found: Vec<_> = found
        .into_iter()
        .map(|(_, ip, frames)| (ip, frames))
        .collect();
    assert_eq!(found, wanted);
    assert!(found.iter().any(|(_, frames)| *frames > 3));
    assert!(found.iter().any(|(ip, _)| *ip >= KERNEL));
}

/// Branches other than calls give no stacks.
#[test]
fn other_branches() {
    for name in ["skl-m7-6Y75.cycles-ppp.lbr", "zen4-engsample.brs-spec.rc4"] {
        let Some(path) = fixture(name) else { continue };
        let import = Import::of(&path, &[]);
        assert_eq!(import.trace().rows(Table::Stacks).unwrap(), 0, "{name}");
    }
}
