//! Complete but unusual recordings: unusable parts are reported, the rest is imported.

use pebs_user::store::schema::{Table, samples, visits};

use crate::fixture;
use crate::piped::Piped;
use crate::run::Import;

const COMM_EXEC: (u32, u16) = (3, 1 << 13);
const SAMPLE: (u32, u16) = (9, 2);

/// IP, TID, TIME.
const FIELDS: u64 = 1 | 2 | 4;
const READ: u64 = 1 << 4;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const THREAD: u64 = 10 | 10 << 32;

/// cpu-clock every 10 us with these fields.
fn clock(fields: u64) -> Piped {
    let mut piped = Piped::new();
    piped.attr([1, 0, 10_000], (fields, SAMPLE_ID_ALL), 1);
    piped
}

fn sample(piped: &mut Piped, thread: u64, time: u64) {
    piped.words(SAMPLE, &[0x1000, thread, time]);
}

fn notes(import: &Import) -> String {
    assert_eq!(import.code, 0, "{}", import.stderr);
    import.trace().info.notes.join("\n")
}

/// A damaged time, years from all others, costs its sample, not the file.
#[test]
fn damaged_time() {
    let mut piped = clock(FIELDS);
    for n in 0..100 {
        sample(&mut piped, THREAD, 1_000_000 + n * 10_000);
        if n == 50 {
            sample(&mut piped, THREAD, 1 << 62);
        }
    }
    let import = Import::of_bytes(&piped.0, &["--max-loss", "100"]);
    let notes = notes(&import);
    assert!(
        notes.contains("1 samples have a time years away"),
        "{notes}"
    );
    let info = import.trace().info;
    assert_eq!(info.duration_ns.unwrap(), 99 * 10_000 + 1);
    let ledger = info.ledger.unwrap();
    assert_eq!(ledger.check(), Vec::<String>::new());
    assert_eq!(ledger.totals().samples.seen, 101);
    assert_eq!(import.trace().rows(Table::Samples).unwrap(), 100);
}

/// Files of perf before 2012 have another magic, and are otherwise the same.
#[test]
fn version_1() {
    let mut bytes =
        std::fs::read(fixture("vm-spr.cpu-clock+uprobe-req.mt3.clk-mono").unwrap()).unwrap();
    let rows = Import::of_bytes(&bytes, &[]).rows();
    bytes[..8].copy_from_slice(b"PERFFILE");
    assert_eq!(Import::of_bytes(&bytes, &[]).rows(), rows);
    // The header's size shows the other byte order.
    bytes[8..16].reverse();
    let import = Import::of_bytes(&bytes, &[]);
    assert!(
        import.stderr.contains("the other byte order"),
        "{}",
        import.stderr
    );
}

/// The error for a recording that can't have samples names its kind.
#[test]
fn other_kinds() {
    let (stat, hardware) = ((76, 0), (70, 0));
    let cases = [
        (stat, "'perf stat record' counts and takes no samples"),
        (hardware, "perf inject --itrace"),
    ];
    for (kind, hint) in cases {
        let mut piped = clock(FIELDS);
        piped.words(kind, &[0; 4]);
        let import = Import::of_bytes(&piped.0, &[]);
        assert_eq!(import.code, 2);
        assert!(
            import.stderr.contains("holds no sample") && import.stderr.contains(hint),
            "{}",
            import.stderr
        );
    }
}

/// Counts of a group are left out, with a note in the report.
#[test]
fn left_out() {
    let mut group = Piped::new();
    const GROUP_AND_ID: u64 = 1 << 3 | 1 << 2;
    group.attr_that_reads(
        [1, 0, 10_000],
        (FIELDS | READ, GROUP_AND_ID, SAMPLE_ID_ALL),
        1,
    );
    group.words(SAMPLE, &[0x1000, THREAD, 1_000_000, 2, 7, 1, 8, 2]);
    let group = notes(&Import::of_bytes(&group.0, &[]));
    assert!(group.contains("a group (':S') are not imported"), "{group}");
    let mut plain = clock(FIELDS);
    sample(&mut plain, THREAD, 1_000_000);
    let plain = notes(&Import::of_bytes(&plain.0, &[]));
    assert!(!plain.contains("':S'"), "{plain}");
}

/// A sample taken while its thread ends has no thread: null, not 4294967295.
#[test]
fn ended_thread() {
    let mut piped = clock(FIELDS);
    sample(&mut piped, THREAD, 1_000_000);
    sample(&mut piped, u64::MAX, 1_010_000);
    let import = Import::of_bytes(&piped.0, &[]);
    let mut tids = Vec::new();
    samples::each(&import.trace(), |row| tids.push(row.tid.known())).unwrap();
    tids.sort_unstable();
    assert_eq!(tids, [None, Some(10)]);
}

/// Items of a table end as listed, even if their process execs in between.
#[test]
fn exec_within_an_item() {
    let mut piped = clock(FIELDS);
    sample(&mut piped, THREAD, 1_010_000);
    let name = u64::from_ne_bytes(*b"other\0\0\0");
    piped.words(COMM_EXEC, &[THREAD, name, THREAD, 1_015_000]);
    sample(&mut piped, THREAD, 1_020_000);
    sample(&mut piped, THREAD, 1_040_000);
    piped.round();
    let import = Import::prepare();
    import.write("perf.data", &piped.0);
    import.write(
        "marks.csv",
        b"time_ns,tid,mark\n1005000,10,begin\n1030000,10,end\n",
    );
    let args = ["perf.data", "--symfs", "nowhere", "-o", "out"];
    let import = import.run(&[&args[..], &["--marks", "marks.csv"]].concat());
    assert_eq!(import.code, 0, "{}", import.stderr);
    let mut found = Vec::new();
    visits::each(&import.trace(), |row| {
        found.push((row.duration_ns, row.samples, row.flags));
    })
    .unwrap();
    assert_eq!(found, [(Some(25_000), 2, 0)]);
}
