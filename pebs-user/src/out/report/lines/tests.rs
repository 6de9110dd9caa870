use super::{csv, text};
use crate::compare::report::ReportOptions;
use crate::compare::report::lines::*;
use crate::present::json;
use crate::store::fixtures::{Did, Maker, TestTrace, VisitFixture, info};
use crate::store::schema::MemoryRow;
use crate::units::{CountUnit, EventId, FunctionId, Pid, ProbeId, Tid, TraceNs};

/// Accesses between two samples.
const RESET: u64 = 100;

/// Functions of the trace.
const FUNCTIONS: [(u32, &str, &str); 3] = [
    (1, "left", "/bin/app"),
    (2, "right", "/bin/app"),
    (3, "setup", "/bin/app"),
];

/// Accesses of one kind, spread over the time of the trace.
#[derive(Clone, Copy)]
struct Accesses {
    samples: u64,
    pid: u32,
    tid: u32,
    function: u32,
    op: Option<&'static str>,
    addr: u64,
    bytes: Option<u32>,
    physical: Option<u64>,
    snoop: Option<&'static str>,
    /// Time of the first, and between two.
    times: (i64, i64),
}

/// Stores of eight bytes.
fn stores(samples: u64, tid: u32, function: u32, addr: u64) -> Accesses {
    Accesses {
        samples,
        pid: 100,
        tid,
        function,
        op: Some("store"),
        addr,
        bytes: Some(8),
        physical: None,
        snoop: None,
        times: (1_000, 1_000),
    }
}

impl Accesses {
    fn rows(self) -> impl Iterator<Item = MemoryRow<'static>> {
        let (first, step) = self.times;
        (0..self.samples.cast_signed()).map(move |n| MemoryRow {
            time_ns: TraceNs(first + n * step),
            function_id: FunctionId(self.function),
            tid: Tid(self.tid),
            event: EventId(0),
            events: Some(RESET),
            op: self.op,
            snoop: self.snoop,
            addr: Some(self.addr),
            phys_addr: self.physical,
            pid: Some(Pid(self.pid)),
            bytes: self.bytes,
            data_symbol: Some("pair"),
            data_object: Some("/bin/app"),
            data_offset: Some(self.addr % 64),
            visit_id: None,
            level: None,
            tlb: None,
            locked: None,
            blocked: None,
            latency_cycles: None,
            op_cycles: None,
            retire_cycles: None,
            tlb_cycles: None,
            page_bytes: None,
            taken: None,
            mispredicted: None,
            data_src: None,
        })
    }
}

fn maker() -> Maker {
    let mut run = info(&["app:req"]);
    run.events[0].name = "mem-stores".to_owned();
    run.events[0].unit = CountUnit::Events;
    run.events[0].reset = RESET;
    run.host.line_bytes = Some(64);
    Maker::new(run)
}

fn trace(accesses: &[Accesses]) -> TestTrace {
    let mut maker = maker();
    for some in accesses {
        some.rows().for_each(|row| maker.add(row));
    }
    maker.finish(&FUNCTIONS)
}

fn built(trace: &TestTrace) -> LineReport {
    build(trace, &ReportOptions::default()).unwrap()
}

fn lines(accesses: &[Accesses]) -> Vec<SharedLine> {
    built(&trace(accesses)).lines
}

fn one(accesses: &[Accesses]) -> SharedLine {
    let [line] = &lines(accesses)[..] else {
        panic!("{:?}", lines(accesses))
    };
    line.clone()
}

/// Different bytes of one line: both functions with their bytes, what the samples stand for, and false sharing; lines of their
/// own are not listed, nor is one that nobody stores to.
#[test]
fn false_sharing() {
    let only_loads = |tid| Accesses {
        op: Some("load"),
        ..stores(90, tid, 1, 0x3000)
    };
    let report = built(&trace(&[
        stores(400, 7, 1, 0x1000),
        stores(100, 8, 2, 0x1008),
        stores(400, 7, 1, 0x2000),
        stores(400, 8, 2, 0x2040),
        only_loads(7),
        only_loads(8),
    ]));
    let [line] = &report.lines[..] else {
        panic!("{report:?}")
    };
    assert_eq!((line.address, line.pid), (0x1000, Some(100)));
    assert_eq!((line.sharing, line.same_bytes), (Sharing::False, [0.0; 2]));
    assert_eq!((line.all.samples, line.all.events), (500, Some(50_000.0)));
    assert_eq!(line.contended.events, Some(10_000.0));
    let error = line.contended.events_stderr.unwrap();
    assert!((error - 994.99).abs() < 0.01, "{error}");
    assert_eq!(line.hit_modified, None);
    let [a, b] = &line.threads[..] else {
        panic!("{line:?}")
    };
    assert_eq!((a.tid, a.stores, b.tid, b.stores), (7, 400, 8, 100));
    let of = |it: &Thread| {
        let access = &it.accesses[0];
        let name = access.function.name.clone().unwrap();
        (name, access.op, access.offset, access.bytes)
    };
    assert_eq!(of(a), ("left".to_owned(), "store", 0, Some(8)));
    assert_eq!(of(b), ("right".to_owned(), "store", 8, Some(8)));
    let data = a.accesses[0].data.clone().unwrap();
    assert_eq!((data.symbol.as_deref(), data.offset), (Some("pair"), 0));
    assert_eq!((report.samples, report.used), (1_480, 1_480));
}

/// The same bytes, overlapping ones, and some of each; sizes that are not known leave it open.
#[test]
fn kinds_of_sharing() {
    let left = stores(400, 7, 1, 0x1000);
    let kind = |other: Accesses| one(&[left, other]).sharing;
    assert_eq!(kind(stores(100, 8, 2, 0x1000)), Sharing::True);
    let narrow = Accesses {
        bytes: Some(1),
        ..stores(100, 8, 2, 0x1007)
    };
    assert_eq!(kind(narrow), Sharing::True);
    let unsized_at = |addr| Accesses {
        bytes: None,
        ..stores(100, 8, 2, addr)
    };
    assert_eq!(kind(unsized_at(0x1000)), Sharing::True);
    assert_eq!(kind(unsized_at(0x1008)), Sharing::False);
    let open = Accesses {
        bytes: None,
        ..left
    };
    assert_eq!(one(&[open, unsized_at(0x1004)]).sharing, Sharing::Unknown);
    assert_eq!(kind(stores(12, 8, 2, 0x1008)), Sharing::Unknown);
    let both = one(&[left, stores(50, 8, 2, 0x1000), stores(50, 8, 2, 0x1008)]);
    assert_eq!((both.sharing, both.same_bytes), (Sharing::Both, [0.5; 2]));
    // The worked number of the module.
    let worked = one(&[
        stores(900, 7, 1, 0x1000),
        stores(100, 7, 1, 0x1008),
        stores(500, 8, 2, 0x1008),
    ]);
    assert_eq!(worked.same_bytes, [0.1; 2]);
}

/// Too few accesses of the other threads, and accesses one after another, are no sharing; a thread that set the line up
/// before is listed as not having met the others.
#[test]
fn not_at_once() {
    let left = stores(400, 7, 1, 0x1000);
    assert_eq!(lines(&[left, stores(9, 8, 2, 0x1008)]).len(), 0);
    assert_eq!(lines(&[left, stores(10, 8, 2, 0x1008)]).len(), 1);
    let later = Accesses {
        times: (1_000_000, 1_000),
        ..stores(400, 8, 2, 0x1000)
    };
    assert_eq!(lines(&[left, later]).len(), 0);
    let before = Accesses {
        times: (0, 1),
        ..stores(50, 9, 3, 0x1000)
    };
    let line = one(&[left, stores(100, 8, 2, 0x1008), before]);
    let met: Vec<_> = line.threads.iter().map(|it| (it.tid, it.at_once)).collect();
    assert_eq!(met, [(7, true), (8, true), (9, false)]);
    assert_eq!(
        (line.sharing, line.contended.samples),
        (Sharing::False, 100)
    );
}

/// An address of two processes is two places, unless the memory is the same.
#[test]
fn processes() {
    let other = Accesses {
        pid: 200,
        ..stores(100, 8, 2, 0x1000)
    };
    let left = stores(400, 7, 1, 0x1000);
    assert_eq!(lines(&[left, other]).len(), 0);
    let at = |some: Accesses, physical| Accesses {
        physical: Some(physical),
        ..some
    };
    assert_eq!(lines(&[at(left, 0x7040), at(other, 0x9040)]).len(), 0);
    let elsewhere = Accesses {
        addr: 0x5008,
        ..other
    };
    let line = one(&[at(left, 0x7040), at(elsewhere, 0x7048)]);
    assert_eq!(
        (line.physical, line.sharing),
        (Some(0x7040), Sharing::False)
    );
    let pids: Vec<_> = line.threads.iter().filter_map(|it| it.pid).collect();
    assert_eq!(pids, [100, 200]);
    // Memory that moved, within one process.
    let moved = [at(left, 0x7040), at(stores(100, 8, 2, 0x1000), 0x9040)];
    assert_eq!(one(&moved).physical, None);
    // The kernel has the same memory in all processes.
    let kernel = |some: Accesses| Accesses {
        addr: 0xffff_8880_0000_1000,
        ..some
    };
    assert_eq!(one(&[kernel(left), kernel(other)]).pid, None);
}

/// Lines with accesses that found them modified in another cache come first.
#[test]
fn order() {
    let modified = |some: Accesses| Accesses {
        snoop: Some("HitM"),
        op: Some("load"),
        ..some
    };
    let found = lines(&[
        stores(400, 7, 1, 0x1000),
        stores(400, 8, 2, 0x1008),
        stores(100, 7, 1, 0x2000),
        modified(stores(20, 8, 2, 0x2000)),
    ]);
    let [first, second] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!((first.address, second.address), (0x2000, 0x1000));
    let count = first.hit_modified.unwrap();
    assert_eq!((count.samples, count.events), (20, Some(2_000.0)));
}

/// Samples without what is needed are counted and used for nothing; so are all those of earlier traces, which lack the
/// process.
#[test]
fn left_out() {
    let mut maker = maker();
    let rows = [
        stores(50, 7, 1, 0x1000),
        stores(50, 8, 2, 0x1000),
        Accesses {
            op: None,
            ..stores(7, 8, 2, 0x1000)
        },
        Accesses {
            op: Some("fetch"),
            ..stores(1, 8, 2, 0x1000)
        },
    ];
    for row in rows.into_iter().flat_map(Accesses::rows) {
        maker.add(row);
    }
    for row in stores(3, 8, 2, 0x1000).rows() {
        maker.add(MemoryRow { addr: None, ..row });
        maker.add(MemoryRow { pid: None, ..row });
    }
    let report = built(&maker.finish(&FUNCTIONS));
    assert_eq!(
        (report.used, report.without_address, report.without_op),
        (100, 6, 8)
    );
    assert_eq!(report.lines[0].all.samples, 100);
}

/// Items of each thread and slow ones of them; with a single probe, lines of its items only.
#[test]
fn items() {
    let mut maker = maker();
    for n in 0..200_u64 {
        let slow = n % 100 == 50;
        let ran = [Did::Ran(1, if slow { 900_000 } else { 10_000 })];
        maker.visit(&VisitFixture::new(n, "", &ran));
    }
    let rows = stores(30, 7, 1, 0x1000)
        .rows()
        .chain(stores(30, 8, 2, 0x1008).rows());
    for (n, row) in (0..).zip(rows) {
        let visit_id = (n < 30).then_some(30 + n);
        maker.add(MemoryRow { visit_id, ..row });
    }
    let trace = maker.finish(&FUNCTIONS);
    let report = built(&trace);
    let of: Vec<_> = report.lines[0]
        .threads
        .iter()
        .map(|it| (it.tid, it.items, it.slow_items, it.accesses[0].items))
        .collect();
    assert_eq!(of, [(7, 30, 1, 30), (8, 0, 0, 0)]);
    let only = |probe| {
        let options = ReportOptions {
            probe: Some(ProbeId(probe)),
            ..ReportOptions::default()
        };
        build(&trace, &options).map(|it| it.lines.len())
    };
    assert_eq!(only(0).unwrap(), 1);
    assert!(only(1).is_err());
}

/// The three formats agree; for a trace without accesses the text names the options that record some.
#[test]
fn forms() {
    let report = built(&trace(&[
        stores(4_000, 7, 1, 0x1000),
        stores(100, 8, 2, 0x1008),
        stores(100, 9, 2, 0x1008),
    ]));
    let text = text::render(&report, 10);
    let words: Vec<&str> = text.split_whitespace().collect();
    let unwrapped = words.join(" ");
    for part in [
        "mem-stores every 100: 4,200 samples with a memory access, 4,200 of them loads and stores",
        "1 cache line of 64 bytes shared",
        "1. pair of app, line 0x1000 of process 100: false sharing (",
        "420 k accesses +- 12.6 k by 3 threads, 20.0 k +- 2.76 k without",
        "hint: give what each thread stores a line of its own: alignas(64)",
    ] {
        assert!(unwrapped.contains(part), "'{part}' is not in\n{text}");
    }
    let mut rows = text.lines().map(str::trim_start);
    let right = rows.find(|it| it.starts_with("right"));
    let words: Vec<_> = right.unwrap().split_whitespace().collect();
    assert_eq!(words[1..6], ["store", "+8", "8", "pair+8", "8,"], "{text}");
    let csv = csv::render(&report);
    assert_eq!(csv.lines().count(), 4);
    let columns = csv.lines().next().unwrap().split(',').count();
    assert!(
        csv.lines().all(|line| line.split(',').count() == columns),
        "{csv}"
    );
    let json: serde_json::Value = serde_json::from_str(&json::render(&report).unwrap()).unwrap();
    assert_eq!(json["lines"][0]["sharing"], "false");
    assert_eq!(json["lines"][0]["address"], "0x1000");
    let empty = built(&maker().finish(&FUNCTIONS));
    assert!(text::render(&empty, 10).starts_with("no sample of this trace"));
    assert_eq!(csv::render(&empty).lines().count(), 1);
}
