//! Damaged files and tables: one error line, one hint, and the rest is imported.

use crate::fixture;
use crate::piped::Piped;
use crate::run::Import;

fn recording() -> Vec<u8> {
    std::fs::read(fixture("vm-spr.cpu-clock+uprobe-req.mt3.clk-mono").unwrap()).unwrap()
}

/// The import failed: exit status 2, these two lines, no trace.
fn refused(import: &Import, error: &str, hint: &str) {
    let lines: Vec<&str> = import.stderr.lines().collect();
    assert_eq!(import.code, 2, "{}", import.stderr);
    let [first, second] = lines[..] else {
        panic!("two lines, not\n{}", import.stderr)
    };
    assert!(
        first.starts_with("error: ") && first.contains(error),
        "{first}\nnot {error}"
    );
    assert!(
        second.starts_with("hint: ") && second.contains(hint),
        "{second}\nnot {hint}"
    );
    assert!(!import.out().exists(), "a trace was left");
}

fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let at = bytes
        .windows(from.len())
        .position(|window| window == from)
        .unwrap();
    bytes[at..at + to.len()].copy_from_slice(to);
}

/// Standard input is imported like the file, though it can be read but once.
#[test]
fn standard_input() {
    let bytes = recording();
    let (file, stream) = (Import::of_bytes(&bytes, &[]), Import::of_stream(&bytes));
    assert_eq!(stream.code, file.code);
    assert_eq!(stream.rows(), file.rows());
}

/// Files other than recordings, and recordings of 32-bit and big-endian machines, are refused.
#[test]
fn not_a_recording() {
    let whole = recording();
    let text = Import::of_bytes(b"time,event\n", &[]);
    refused(
        &text,
        "perf.data is not a perf.data file: it begins with 'time,eve'",
        "perf record -o",
    );
    refused(&Import::of_bytes(b"", &[]), "it is empty", "perf record -o");
    refused(
        &Import::of_bytes(&whole[..60], &[]),
        "it ends within its header",
        "copy the file again",
    );
    let mut swapped = whole.clone();
    swapped[..8].reverse();
    refused(
        &Import::of_bytes(&swapped, &[]),
        "the other byte order",
        "recordings of 64-bit, little-endian machines",
    );
    let mut other = whole.clone();
    replace(&mut other, b"x86_64\0", b"armv7l\0");
    refused(
        &Import::of_bytes(&other, &[]),
        "recorded on armv7l, a 32-bit machine",
        "recordings of 64-bit, little-endian machines",
    );
    let mut attrs = whole.clone();
    attrs[24..32].fill(0xff);
    refused(
        &Import::of_bytes(&attrs, &[]),
        "is damaged: its events do not lie within it",
        "perf report",
    );
    let missing = Import::prepare().run(&["perf.data", "-o", "out"]);
    refused(
        &missing,
        "cannot read perf.data: No such file",
        "perf record -o FILE",
    );
    let folder = Import::prepare().run(&[".", "-o", "out"]);
    refused(&folder, "cannot read .: it is a directory", "--threads");
    let device = Import::prepare().run(&["/dev/null", "-o", "out"]);
    refused(&device, "it is not a regular file", "to a file first");
}

/// `perf record --per-thread` records no time: samples can't be assigned to items, though records of its threads have
/// times. If other samples have times, the hint is not about rings.
#[test]
fn no_time() {
    const EXIT: (u32, u16) = (4, 0);
    const SAMPLE: (u32, u16) = (9, 2);
    const THREAD: u64 = 10 | 10 << 32;
    // IDENTIFIER, IP, TID; and TIME.
    const FIELDS: u64 = 1 << 16 | 1 | 2;
    let mut piped = Piped::new();
    piped.attr([1, 0, 10_000], (FIELDS, 0), 1);
    piped.words(SAMPLE, &[1, 0x1000, THREAD]);
    piped.words(SAMPLE, &[1, 0x1000, THREAD]);
    piped.words(EXIT, &[10 | 10 << 32, THREAD, 1_000_000]);
    refused(
        &Import::of_bytes(&piped.0, &[]),
        "perf.data has 2 samples and none with a time",
        "perf record -T",
    );
    let mut both = Piped::new();
    both.attr([1, 0, 10_000], (FIELDS, 0), 1);
    both.attr([1, 2, 1], (FIELDS | 4, 0), 2);
    both.words(SAMPLE, &[1, 0x1000, THREAD]);
    both.words(SAMPLE, &[2, 0x1000, THREAD, 1_000_000]);
    let import = Import::of_bytes(&both.0, &[]);
    assert_eq!(import.code, 1, "{}", import.stderr);
    let hint = "lost, above --max-loss 1\nhint: record with 'perf record -T'";
    assert!(import.stderr.contains(hint), "{}", import.stderr);
}

/// A truncated file is imported up to its end: exit status 1, the account balances, and no sample is invented.
#[test]
fn cut() {
    let whole = recording();
    let mut saved = Vec::new();
    for percent in [10, 40, 70, 95] {
        let cut = &whole[..whole.len() * percent / 100];
        let import = Import::of_bytes(cut, &[]);
        if import.code == 2 {
            refused(&import, "holds no sample", "nothing could be saved");
            saved.push(0);
            continue;
        }
        assert_eq!(import.code, 1, "{}", import.stderr);
        let trace = import.trace();
        let info = trace.info.import.as_ref().unwrap();
        let samples: u64 = info.events.iter().map(|event| event.samples).sum();
        assert!(
            import.stderr.contains("warning: perf.data is truncated"),
            "{}",
            import.stderr
        );
        assert!(
            import.stderr.contains(&format!("{samples} samples")),
            "{}",
            import.stderr
        );
        assert!(info.cut.is_some() && trace.info.complete);
        assert_eq!(
            trace.info.ledger.as_ref().unwrap().check(),
            Vec::<String>::new()
        );
        saved.push(samples);
    }
    assert!(
        saved.is_sorted() && saved[1] > 0 && saved[2] < 2307 && saved[3] == 2307,
        "{saved:?}"
    );
}

/// A recording whose `perf record` was killed is read without the parts written last.
#[test]
fn unfinished() {
    let mut bytes = recording();
    // The size of the records and the list of features are written at the end.
    bytes[48..56].fill(0);
    bytes[72..104].fill(0);
    let data_end = 1 + bytes.len() * 9 / 10;
    let import = Import::of_bytes(&bytes[..data_end], &[]);
    assert_eq!(import.code, 1, "{}", import.stderr);
    let trace = import.trace();
    let info = trace.info.import.as_ref().unwrap();
    let samples: u64 = info.events.iter().map(|event| event.samples).sum();
    assert!(samples > 1000, "{samples}");
    let probes = Import::of_bytes(&bytes[..data_end], &["--begin", "req_begin"]);
    // Names come with an update record, formats at the end.
    assert!(
        probes.code == 1 || probes.stderr.contains("no event 'req_begin'"),
        "{}",
        probes.stderr
    );
}

/// Errors for unknown names list the existing ones.
#[test]
fn wrong_names() {
    let path = fixture("vm-spr.cpu-clock+uprobe-req.mt3.clk-mono").unwrap();
    let all = "there are: cpu-clock, probe_srv:req_begin, probe_srv:req_end";
    refused(
        &Import::of(&path, &["--begin", "req_start"]),
        "no event 'req_start' in perf.data",
        all,
    );
    refused(
        &Import::of(&path, &["--event", "cycles"]),
        "no event 'cycles' in perf.data",
        all,
    );
    refused(
        &Import::of(&path, &["--begin", "probe_srv"]),
        "'probe_srv' of perf.data is the name of several",
        "probe_srv:req_end",
    );
    let field = Import::of(&path, &["--begin", "req_begin", "--id", "key"]);
    refused(
        &field,
        "event 'probe_srv:req_begin' has no number 'key'",
        "it has: __probe_ip, id",
    );
    let clock = Import::of(&path, &["--begin", "cpu-clock", "--id", "id"]);
    refused(
        &clock,
        "cannot read field 'id' of event 'cpu-clock'",
        "as root",
    );
    let same = Import::of(&path, &["--begin", "req_end", "--end", "req_end"]);
    refused(
        &same,
        "cannot begin and end at the same event 'req_end'",
        "leave --end out",
    );
    if let Some(path) = fixture("cfl-i9-9980HK.cycles-ppp.threads") {
        let nothing = Import::of(&path, &["--begin", "cycles"]);
        refused(
            &nothing,
            "no event is left to be sampled",
            "beside the probes",
        );
    }
    let chosen = Import::of(&path, &["--event", "req_end", "--begin", "req_end"]);
    refused(
        &chosen,
        "all that were chosen of perf.data are used for marks",
        "marks need no --event; there are also: cpu-clock, probe_srv:req_begin",
    );
    let usage = Import::of(&path, &["--end", "req_end"]);
    assert!(
        usage.code == 2 && usage.stderr.contains("--begin"),
        "{}",
        usage.stderr
    );
}

/// A malformed table of marks is refused with the faulty line; one on another clock is reported.
#[test]
fn wrong_tables() {
    let path = fixture("vm-spr.cpu-clock+uprobe-req.mt3.clk-mono").unwrap();
    let with = |table: &[u8]| {
        let import = Import::prepare();
        std::os::unix::fs::symlink(&path, import.dir.path().join("perf.data")).unwrap();
        import.write("marks.csv", table);
        import.run(&[
            "perf.data",
            "--marks",
            "marks.csv",
            "--symfs",
            "nowhere",
            "-o",
            "out",
        ])
    };
    refused(
        &with(b"time,thread\n1,2\n"),
        "cannot use marks.csv: no column 'time_ns'",
        "time_ns,tid,mark,item_id",
    );
    refused(
        &with(b"time_ns,tid,mark\n1,2,open\n"),
        "line 2: mark is 'open', not begin or end",
        "begin or end",
    );
    refused(
        &with(b"time_ns,tid,mark\n1.5,2,end\n"),
        "line 2: time_ns is '1.5'",
        "ns on the recording's clock",
    );
    refused(
        &with(b"time_ns,tid,mark\n"),
        "no mark in it",
        "time_ns,tid,mark,item_id",
    );
    refused(
        &with(b"\xff\xfe\n"),
        "no column 'time_ns'",
        "time_ns,tid,mark,item_id",
    );
    let far = with(b"time_ns,tid,mark\n1,1,begin\n18446744073709551615,1,end\n");
    refused(
        &far,
        "the times of perf.data and marks.csv reach over 584 years",
        "marks must be on the recording's clock",
    );
    let elsewhere = with(b"time_ns,tid,mark\n10,1,end\n");
    assert!(
        elsewhere.stderr.contains("no item is complete"),
        "{}",
        elsewhere.stderr
    );
    assert!(
        elsewhere
            .stderr
            .contains("are the marks on the same clock?"),
        "{}",
        elsewhere.stderr
    );
    let missing = Import::of(&path, &["--marks", "nowhere.csv"]);
    refused(
        &missing,
        "cannot read nowhere.csv: No such file",
        "time_ns,tid,mark,item_id",
    );
}

/// A pipe neither blocks nor counts as a file.
#[test]
fn pipe() {
    let import = Import::prepare();
    let path = import.dir.path().join("perf.data");
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let import = import.run(&["perf.data", "-o", "out"]);
    refused(&import, "it is not a regular file", "to a file first");
}
