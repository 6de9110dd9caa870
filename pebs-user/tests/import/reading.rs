//! An import in one reading equals one after a survey of the whole file.

use pebs_user::store::schema;
use proptest::prelude::*;

use crate::piped::Piped;
use crate::run::Import;

const LOST: (u32, u16) = (2, 0);
const COMM_EXEC: (u32, u16) = (3, 1 << 13);
const EXIT: (u32, u16) = (4, 0);
const THROTTLE: (u32, u16) = (5, 0);
const UNTHROTTLE: (u32, u16) = (6, 0);
const FORK: (u32, u16) = (7, 0);
const SAMPLE: (u32, u16) = (9, 2);
const SWITCH_OUT: (u32, u16) = (14, 1 << 13);
const SWITCH_IN: (u32, u16) = (14, 0);

/// `FINISHED_ROUND`, and a record of perf's own without content.
const ROUND: u32 = 68;
const NOTHING: u32 = 79;

/// IP, TID, TIME, CPU, IDENTIFIER; and the period.
const FIELDS: u64 = 1 | 2 | 4 | 1 << 7 | 1 << 16;
const PERIOD: u64 = 1 << 8;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const FREQ: u64 = 1 << 10;

/// Event ids: a clock, begin marks, end marks, and an event with a frequency.
const CLOCK: u64 = 1;
const BEGIN: u64 = 2;
const END: u64 = 3;
const CYCLES: u64 = 4;

/// The next record of a CPU.
#[derive(Clone, Copy, Debug)]
enum Step {
    Sample,
    Cycles(u64),
    Begin,
    End,
    Lost(u64),
    Throttle,
    Unthrottle,
    Switch,
    Process,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Sample),
        3 => (1000_u64..1003).prop_map(Step::Cycles),
        4 => Just(Step::Begin),
        4 => Just(Step::End),
        1 => (1_u64..9).prop_map(Step::Lost),
        1 => Just(Step::Throttle),
        1 => Just(Step::Unthrottle),
        2 => Just(Step::Switch),
        1 => Just(Step::Process),
    ]
}

/// Content of a CPU's ring when it is read: records, each with the time since the previous one, us.
type Ring = Vec<(Step, u64)>;

/// Rounds of two rings.
fn recording(rounds: &[[Ring; 2]], has_switches: bool) -> Vec<u8> {
    let mut piped = Piped::new();
    let flags = SAMPLE_ID_ALL;
    let fields = FIELDS | PERIOD;
    piped.attr([1, 0, 10_000], (fields, flags), CLOCK);
    piped.attr([1, 2, 1], (fields, flags), BEGIN);
    piped.attr([1, 5, 1], (fields, flags), END);
    piped.attr([0, 0, 4000], (fields, flags | FREQ), CYCLES);
    let mut times = [1_000_000_000_u64; 2];
    let mut processes = 0;
    // No record is older than the newest of the round before the last.
    let mut newest = [0, 0];
    for round in rounds {
        times = times.map(|time| time.max(newest[0]));
        for (cpu, ring) in (0..).zip(round) {
            for (step, us) in ring {
                let time = &mut times[cpu];
                *time += us * 1000;
                let at = (cpu as u64, *time);
                match step {
                    Step::Process => {
                        processes += 1;
                        process(&mut piped, at, 1000 + processes);
                    }
                    Step::Switch if !has_switches => {}
                    step => put(&mut piped, at, *step),
                }
            }
        }
        piped.round();
        newest = [newest[1], times[0].max(times[1])];
    }
    piped.0
}

fn thread(tid: u64) -> u64 {
    tid | tid << 32
}

/// Trailing words of each record that is not a sample.
fn id(cpu: u64, time: u64, tid: u64) -> [u64; 4] {
    [thread(tid), time, cpu, CLOCK]
}

fn sample(piped: &mut Piped, event: u64, (cpu, time): (u64, u64), tid: u64, period: u64) {
    let words = [event, 0x40_1000 + time % 64, thread(tid), time, cpu, period];
    piped.words(SAMPLE, &words);
}

fn put(piped: &mut Piped, (cpu, time): (u64, u64), step: Step) {
    let tid = 10 + cpu;
    let id = id(cpu, time, tid);
    let with_id = |words: &[u64]| [words, &id].concat();
    match step {
        Step::Sample => sample(piped, CLOCK, (cpu, time), tid, 10_000),
        Step::Cycles(period) => sample(piped, CYCLES, (cpu, time), tid, period),
        Step::Begin => sample(piped, BEGIN, (cpu, time), tid, 1),
        Step::End => sample(piped, END, (cpu, time), tid, 1),
        Step::Lost(records) => piped.words(LOST, &with_id(&[CLOCK, records])),
        Step::Throttle => piped.words(THROTTLE, &with_id(&[time, CLOCK, cpu])),
        Step::Unthrottle => piped.words(UNTHROTTLE, &with_id(&[time, CLOCK, cpu])),
        Step::Switch => {
            piped.words(SWITCH_OUT, &id);
            let [thread, time, ..] = id;
            piped.words(SWITCH_IN, &[thread, time + 400, cpu, CLOCK]);
        }
        Step::Process => {}
    }
}

/// Adds a process that begins, execs, takes a sample and ends within a microsecond.
fn process(piped: &mut Piped, (cpu, time): (u64, u64), pid: u64) {
    let parent = 10 + cpu;
    let pids = pid | parent << 32;
    piped.words(
        FORK,
        &[&[pids, pids, time][..], &id(cpu, time, parent)].concat(),
    );
    let name = u64::from_le_bytes(*b"short\0\0\0");
    let comm = [&[thread(pid), name][..], &id(cpu, time + 100, pid)].concat();
    piped.words(COMM_EXEC, &comm);
    sample(piped, CLOCK, (cpu, time + 200), pid, 10_000);
    let exit = [&[pids, pids, time + 300][..], &id(cpu, time + 300, pid)].concat();
    piped.words(EXIT, &exit);
}

/// The same records without rounds, so that the import surveys the whole file first.
fn without_rounds(recording: &[u8]) -> Vec<u8> {
    let mut bytes = recording.to_vec();
    let mut at = 16;
    while at < bytes.len() {
        let size = u16::from_ne_bytes([bytes[at + 6], bytes[at + 7]]);
        let kind = &mut bytes[at..at + 4];
        if *kind == ROUND.to_ne_bytes() {
            kind.copy_from_slice(&NOTHING.to_ne_bytes());
        }
        at += usize::from(size);
    }
    bytes
}

/// All rows that do not depend on the order of threads, and the trace's metadata.
fn contents(recording: &[u8]) -> Vec<String> {
    let args = ["--begin", "page-faults", "--end", "minor-faults"];
    let import = Import::of_bytes(recording, &[&args[..], &["--max-loss", "100"]].concat());
    assert_eq!(import.code, 0, "{}", import.stderr);
    let trace = import.trace();
    let mut lines = Vec::new();
    schema::visits::each(&trace, |mut row| {
        (row.visit_id, row.item_id) = (0, 0);
        lines.push(format!("{row:?}"));
    })
    .unwrap();
    schema::samples::each(&trace, |row| {
        let (time, ip, tid) = (row.time_ns, row.ip, row.tid);
        let is_inside = row.visit_id.is_some();
        lines.push(format!("{time:?} {ip:?} {tid:?} {} {is_inside}", row.flags));
    })
    .unwrap();
    schema::losses::each(&trace, |row| lines.push(format!("{row:?}"))).unwrap();
    lines.sort();
    let info = &trace.info;
    lines.push(format!("{:?}", info.events));
    lines.push(format!("{:?}", info.ledger));
    lines.push(format!("{:?} {:?}", info.notes, info.monotonic_ns));
    lines
}

fn check(rounds: &[[Ring; 2]], has_switches: bool) {
    let recording = recording(rounds, has_switches);
    let (once, before) = (contents(&recording), contents(&without_rounds(&recording)));
    assert_eq!(once, before);
}

fn ring() -> impl Strategy<Value = Ring> {
    prop::collection::vec((step(), 1_u64..3000), 0..12)
}

/// Adds events of all kinds to the first round and to the last.
fn framed(mut rounds: Vec<[Ring; 2]>) -> Vec<[Ring; 2]> {
    let all = [Step::Sample, Step::Begin, Step::Sample, Step::Cycles(7)];
    let all = all.map(|step| (step, 5));
    rounds.insert(0, [all.to_vec(), all.to_vec()]);
    rounds.push([all.to_vec(), all.to_vec()]);
    rounds
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Losses, throttled counters, processes, switches and periods in any order.
    #[test]
    fn whatever_comes(
        rounds in prop::collection::vec((ring(), ring()), 0..12),
        has_switches in any::<bool>(),
    ) {
        let rounds = rounds.into_iter().map(|(a, b)| [a, b]).collect();
        check(&framed(rounds), has_switches);
    }
}

/// A ring that was silent at first has the oldest record; a counter is stopped over many short rounds, and one until
/// the end; a loss reaches back over everything.
#[test]
fn surprises() {
    let sample = |us| (Step::Sample, us);
    let pause: Vec<[Ring; 2]> = (0..40).map(|_| [vec![sample(300)], vec![]]).collect();
    let stopped = [vec![(Step::Begin, 5), (Step::Throttle, 5)], vec![]];
    let goes_on = [vec![(Step::Unthrottle, 20), (Step::End, 9)], vec![]];
    let cases: [Vec<[Ring; 2]>; 3] = [
        vec![[vec![sample(500)], vec![]], [vec![], vec![sample(1)]]],
        [&[stopped.clone()][..], &pause, &[goes_on, stopped], &pause].concat(),
        [
            &[[vec![(Step::Begin, 1)], vec![(Step::Begin, 1)]]],
            &pause[..],
            &[[vec![(Step::End, 9)], vec![(Step::Lost(3), 20_000)]]],
            &pause,
        ]
        .concat(),
    ];
    for rounds in cases {
        check(&rounds, false);
        check(&framed(rounds), false);
    }
}
