//! `sched_switch` as switches: complete, of one process, and with one missing.

use std::fmt::Write as _;

use pebs_user::store::schema::{self, Table, visit_flag};

use crate::piped::Piped;
use crate::run::Import;

/// Thread with items, and a thread that is seen to leave but never to come back.
const SERVER: u32 = 10;
const OTHER: u32 = 20;

/// Number of items, each 900 us long, one per ms.
const ITEMS: u64 = 40;

/// ns from an item's begin to the thread's switch-out, switch-in, sample, and the item's end.
const OUT: u64 = 200_000;
const IN: u64 = 500_000;
const SAMPLE: u64 = 600_000;
const END: u64 = 900_000;

/// The tracepoint, as a recording describes it.
const FORMAT: &str = "name: sched_switch
ID: 316
format:
\tfield:pid_t prev_pid;\toffset:0;\tsize:4;\tsigned:1;
\tfield:long prev_state;\toffset:8;\tsize:8;\tsigned:1;
\tfield:pid_t next_pid;\toffset:16;\tsize:4;\tsigned:1;
";

/// Ids of the events.
const CLOCK: u64 = 1;
const SWITCH: u64 = 2;

/// A clock and `sched_switch`.
struct Recording(Piped);

impl Recording {
    fn new() -> Self {
        let mut recording = Self(Piped::new());
        // IP, TID, TIME, CPU, IDENTIFIER; and RAW.
        let common = 1 | 2 | 4 | 1 << 7 | 1 << 16;
        recording.0.attr([1, 0, 1_000_000], (common, 0), CLOCK);
        let raw = common | 1 << 10;
        recording.0.attr([2, 316, 1], (raw, 0), SWITCH);
        recording.formats();
        recording
    }

    fn formats(&mut self) {
        let mut data = b"\x17\x08\x44tracing0.6\0".to_vec();
        data.extend([0, 8]);
        data.extend(4096_u32.to_ne_bytes());
        for name in [&b"header_page\0"[..], b"header_event\0"] {
            data.extend(name);
            data.extend(0_u64.to_ne_bytes());
        }
        data.extend(0_u32.to_ne_bytes());
        data.extend(1_u32.to_ne_bytes());
        data.extend(b"sched\0");
        data.extend(1_u32.to_ne_bytes());
        data.extend((FORMAT.len() as u64).to_ne_bytes());
        data.extend(FORMAT.as_bytes());
        data.resize(data.len().next_multiple_of(8), 0);
        let len = (data.len() as u32).to_ne_bytes();
        self.0.record((66, 0), &len);
        self.0.0.extend(data);
    }

    fn sample(&mut self, (id, time, tid): (u64, u64, u32), raw: &[u8]) {
        let thread = u64::from(tid) | u64::from(tid) << 32;
        let words = [id, 0x1000, thread, time, 0];
        let mut body: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        body.extend(raw);
        self.0.record((9, 0), &body);
    }

    /// Adds a switch, in the context of the thread that leaves.
    fn switch(&mut self, time: u64, prev: u32, next: u32) {
        let mut raw = 28_u32.to_ne_bytes().to_vec();
        raw.extend(prev.to_ne_bytes());
        raw.extend([0; 4]);
        raw.extend(1_u64.to_ne_bytes());
        raw.extend(next.to_ne_bytes());
        raw.extend([0; 8]);
        self.sample((SWITCH, time, prev), &raw);
    }

    /// Adds all items, each with a wait. `comes`: whether the thread's return within the item is recorded.
    fn serve(mut self, comes: impl Fn(u64) -> bool) -> Vec<u8> {
        for item in 0..ITEMS {
            let begin = begin(item);
            self.switch(begin + OUT, SERVER, 0);
            // The thread that comes is not seen to come; it has no items.
            self.switch(begin + OUT + 1000, OTHER, 0);
            if comes(item) {
                self.switch(begin + IN, 0, SERVER);
            }
            self.sample((CLOCK, begin + SAMPLE, SERVER), &[]);
            // A later sample shows that the item is over before its thread is seen again.
            self.sample((CLOCK, begin + END + 50_000, OTHER), &[]);
            self.0.round();
        }
        self.0.round();
        self.0.0
    }
}

fn begin(item: u64) -> u64 {
    1_000_000_000 + item * 1_000_000
}

fn imported(recording: &[u8]) -> Import {
    let mut marks = "time_ns,tid,mark,item_id\n".to_owned();
    for item in 0..ITEMS {
        let (begin, end) = (begin(item), begin(item) + END);
        let _ = writeln!(marks, "{begin},{SERVER},begin,{item}");
        let _ = writeln!(marks, "{end},{SERVER},end,{item}");
    }
    let import = Import::prepare();
    import.write("perf.data", recording);
    import.write("marks.csv", marks.as_bytes());
    let args = ["perf.data", "--marks", "marks.csv", "--max-loss", "100"];
    let import = import.run(&[&args[..], &["--symfs", "nowhere", "-o", "out"]].concat());
    assert_eq!(import.code, 0, "{}", import.stderr);
    import
}

/// Item, time on the CPU, and whether it is flagged with a loss.
fn visits(import: &Import) -> Vec<(u64, Option<i64>, bool)> {
    let mut visits = Vec::new();
    schema::visits::each(&import.trace(), |row| {
        let is_lossy = row.flags & visit_flag::LOSS != 0;
        visits.push((row.item_id, row.oncpu_ns, is_lossy));
    })
    .unwrap();
    visits.sort_unstable();
    visits
}

/// Missing switches of other threads do not matter.
#[test]
fn whole() {
    let import = imported(&Recording::new().serve(|_| true));
    let wanted = (0..ITEMS).map(|item| (item, Some(600_000), false));
    let wanted: Vec<_> = wanted.collect();
    assert_eq!(visits(&import), wanted);
    let trace = import.trace();
    assert_eq!(trace.rows(Table::Waits).unwrap(), ITEMS);
    assert_eq!(trace.rows(Table::Losses).unwrap(), 0);
}

/// With the switches of one process only, the time on the CPU is unknown, and a note gives the reason.
#[test]
fn of_one_process() {
    let import = imported(&Recording::new().serve(|_| false));
    let wanted: Vec<_> = (0..ITEMS).map(|item| (item, None, false)).collect();
    assert_eq!(visits(&import), wanted);
    let trace = import.trace();
    assert_eq!(trace.rows(Table::Waits).unwrap(), 0);
    let notes = trace.info.notes.join("\n");
    assert!(notes.contains("sched_switch does not say"), "{notes}");
}

/// A missing switch is a loss from the switch before it to the thread's next mark, where it is known to run. The visit
/// at that time is flagged.
#[test]
fn one_is_missing() {
    let import = imported(&Recording::new().serve(|item| item != 7));
    let flagged = visits(&import).into_iter().filter(|visit| visit.2);
    let flagged: Vec<u64> = flagged.map(|visit| visit.0).collect();
    assert_eq!(flagged, [7]);
    let trace = import.trace();
    let mut losses = Vec::new();
    schema::losses::each(&trace, |row| losses.push(row)).unwrap();
    let [loss] = &losses[..] else {
        panic!("{losses:?}");
    };
    let origin = trace.info.monotonic_ns;
    let time = |after: u64| (begin(7) + after - origin).cast_signed();
    let range = (loss.begin_ns.0, loss.end_ns.0);
    assert_eq!(range, (time(OUT), time(END)));
    assert_eq!(loss.tid.map(|tid| tid.0), Some(SERVER));
    let ledger = trace.info.ledger.as_ref().unwrap();
    assert_eq!(ledger.check(), Vec::<String>::new());
    let notes = trace.info.notes.join("\n");
    assert!(
        notes.contains("switches of threads with items are missing (1 gap)"),
        "{notes}"
    );
}
