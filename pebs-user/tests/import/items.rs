//! Items from recorded probes, and from a table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pebs_user::import::survey;
use pebs_user::perf::data::reader::PerfData;
use pebs_user::perf::data::records::Item;
use pebs_user::perf::record::RecordKind;
use pebs_user::store::schema;

use crate::fixture;
use crate::run::Import;

/// A visit: item, begin, end, thread, samples.
type Visit = (u64, i64, Option<i64>, u32, u32);

fn visits(import: &Import) -> Vec<Visit> {
    let mut visits = Vec::new();
    schema::visits::each(&import.trace(), |row| {
        let end = row.end_ns.map(|end| end.0);
        visits.push((row.item_id, row.begin_ns.0, end, row.tid.0, row.samples));
    })
    .unwrap();
    visits.sort_unstable();
    visits
}

/// A sample of a recording: event, time, thread, raw bytes.
type RecordedSample = (usize, u64, u32, Vec<u8>);

fn samples(path: &std::path::Path) -> (Vec<String>, Vec<RecordedSample>) {
    let mut data = PerfData::open(path).unwrap();
    let survey = survey(&mut data).unwrap();
    let mut taken = Vec::new();
    let mut records = data.records();
    while let Some(item) = records.next_item() {
        if let Item::Event(raw) = item
            && let Ok((event, record)) = survey.names.decode(raw)
            && let RecordKind::Sample(sample) = record.kind
        {
            let (_, tid) = sample.pid_tid.unwrap();
            let raw = sample.rest().raw.unwrap_or_default().to_vec();
            taken.push((event, sample.time.unwrap(), tid, raw));
        }
    }
    (survey.names.names().to_vec(), taken)
}

/// Probes and a table of the same marks give the same visits: 600 items of three threads, each once.
#[test]
fn probes_and_table_agree() {
    let path = fixture("vm-spr.cpu-clock+uprobe-req.mt3.clk-mono").unwrap();
    let probes = Import::of(
        &path,
        &["--begin", "req_begin", "--end", "req_end", "--id", "id"],
    );
    assert_eq!(probes.code, 0, "{}", probes.stderr);
    let by_probes = visits(&probes);
    let mut items: Vec<u64> = by_probes.iter().map(|visit| visit.0).collect();
    items.dedup();
    let expected: Vec<u64> = (1..=3)
        .flat_map(|thread| thread * 1000..thread * 1000 + 200)
        .collect();
    assert_eq!(items, expected);

    let (names, taken) = samples(&path);
    let mut table = "time_ns,tid,mark,item_id\n".to_owned();
    for (event, time, tid, raw) in &taken {
        let mark = match names[*event].as_str() {
            "probe_srv:req_begin" => "begin",
            "probe_srv:req_end" => "end",
            _ => continue,
        };
        // Common fields (8 bytes), the probe's address, the id.
        let id = u64::from_ne_bytes(raw[16..24].try_into().unwrap());
        writeln!(table, "{time},{tid},{mark},{id}").unwrap();
    }
    let import = Import::prepare();
    std::os::unix::fs::symlink(&path, import.dir.path().join("perf.data")).unwrap();
    import.write("marks.csv", table.as_bytes());
    let args = [
        "perf.data",
        "--marks",
        "marks.csv",
        "--event",
        "cpu-clock",
        "-o",
        "out",
    ];
    let by_table = import.run(&args);
    assert_eq!(by_table.code, 0, "{}", by_table.stderr);
    assert_eq!(visits(&by_table), by_probes);
}

/// Without an id at the end, or without an end, items are matched by thread.
#[test]
fn rules() {
    let path = fixture("vm-spr.cpu-clock+uprobe-req.mt3.callgraph.zstd").unwrap();
    let by_thread = Import::of(&path, &["--begin", "req_begin", "--end", "req_end"]);
    let trace = by_thread.trace();
    assert_eq!(&*trace.info.probes[0].spec, "req_begin..req_end");
    assert!(trace.info.switches, "its switches were recorded");
    let numbers: Vec<u64> = visits(&by_thread).iter().map(|visit| visit.0).collect();
    assert_eq!(numbers, (1..=600).collect::<Vec<u64>>());
    let until_next = Import::of(
        &path,
        &["--begin", "req_begin", "--id", "id", "--event", "cpu-clock"],
    );
    let visits = visits(&until_next);
    assert_eq!(visits.len(), 600);
    for pair in visits.windows(2).filter(|pair| pair[0].3 == pair[1].3) {
        assert_eq!(
            pair[0].2,
            Some(pair[1].1),
            "each ends where the next begins"
        );
    }
}

/// Marks added to real precise samples: each sample is in the item at its time, and all are exact.
#[test]
fn marks_on_precise_samples() {
    let Some(path) = fixture("cfl-i9-9980HK.cycles-ppp.threads") else {
        return;
    };
    let (_, taken) = samples(&path);
    let mut threads: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for (_, time, tid, _) in &taken {
        threads.entry(*tid).or_default().push(*time);
    }
    // The first thread execs between its samples, which ends its item.
    let first = threads.pop_first().unwrap();
    assert_eq!(first.1.len(), 7);
    let (mut table, mut expected) = ("item_id,mark,tid,time_ns\n".to_owned(), Vec::new());
    for (tid, times) in &mut threads {
        times.sort_unstable();
        for (n, some) in times.chunks(7).enumerate() {
            let (begin, end) = (some[0], some[some.len() - 1] + 1);
            let id = u64::from(*tid) * 1000 + n as u64;
            writeln!(table, "{id},begin,{tid},{begin}\n{id},end,{tid},{end}").unwrap();
            expected.push((id, *tid, some.len() as u32));
        }
    }
    expected.sort_unstable();
    let import = Import::prepare();
    std::os::unix::fs::symlink(&path, import.dir.path().join("perf.data")).unwrap();
    import.write("marks.csv", table.as_bytes());
    let import = import.run(&["perf.data", "--marks", "marks.csv", "-o", "out"]);
    assert_eq!(import.code, 0, "{}", import.stderr);
    let got = visits(&import)
        .into_iter()
        .map(|(item, _, _, tid, samples)| (item, tid, samples));
    assert_eq!(got.collect::<Vec<_>>(), expected);
    let trace = import.trace();
    let ledger = trace.info.ledger.as_ref().unwrap();
    assert_eq!(
        (ledger.samples_unmatched, ledger.totals().samples.written),
        (7, 318)
    );
}

/// Without CPU and reset value in the samples, these are null.
#[test]
fn unknown_is_null() {
    let Some(path) = fixture("cfl-i9-9980HK.cycles-ppp.threads") else {
        return;
    };
    let import = Import::of(&path, &[]);
    schema::samples::each(&import.trace(), |row| {
        assert_eq!((row.cpu.known(), row.visit_id), (None, None));
    })
    .unwrap();
    let event = &import.trace().info.events[0];
    assert_eq!(
        (event.frequency, event.unit.name()),
        (Some(4000), "samples")
    );
    assert_eq!((event.precise_requested, event.precise_granted), (3, 3));
}

/// Throttled ranges and losses are rows of `losses`.
#[test]
fn losses() {
    let cases = [
        (
            "snb-i5-2467M.2ev-period10000.throttle.systemwide",
            "throttled",
            68,
            None,
        ),
        (
            "hsw-2955U.3ev-pp.period20003.lost_samples",
            "lost_perf_ring",
            2,
            Some(2),
        ),
    ];
    for (name, reason, ranges, records) in cases {
        let Some(path) = fixture(name) else { continue };
        let import = Import::of(&path, &[]);
        let (mut found, mut lost) = (0, None);
        schema::losses::each(&import.trace(), |row| {
            assert_eq!(row.reason, reason, "{name}");
            found += 1;
            if let Some(records) = row.records {
                lost = Some(lost.unwrap_or(0) + records);
            }
        })
        .unwrap();
        assert_eq!((found, lost), (ranges, records), "{name}");
    }
}
