//! Losses are counted once, with the longest range in which they may have happened.

use std::fmt::Write as _;

use pebs_user::store::schema::losses;

use crate::piped::Piped;
use crate::run::Import;

const LOST: (u32, u16) = (2, 0);
const SAMPLE: (u32, u16) = (9, 2);

/// perf's own count at the end; `FILTERED`: records dropped by its filter.
const LOST_SAMPLES: (u32, u16) = (13, 0);
const FILTERED: (u32, u16) = (13, 1 << 15);

/// IP, TID, TIME, and CPU.
const FIELDS: u64 = 1 | 2 | 4;
const CPU: u64 = 1 << 7;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const THREAD: u64 = 10 | 10 << 32;

/// Times of each CPU's samples by round, us. The ring of CPU 1 was full after its first round; the record that reports
/// it is the first one read later.
const ROUNDS: [[&[u64]; 2]; 4] = [
    [&[100, 200], &[110, 190]],
    [&[300, 400], &[]],
    [&[500, 600], &[580, 590]],
    [&[700], &[710]],
];

/// Time of the sample that the loss precedes, and number of lost records.
const BEFORE_US: u64 = 580;
const RECORDS: u64 = 40;

fn ns(us: u64) -> u64 {
    1_000_000 + us * 1000
}

/// A recording with `counted` as perf's own count; `has_cpu`: whether records have the CPU.
fn recording(has_cpu: bool, counted: u64) -> Vec<u8> {
    let mut piped = Piped::new();
    let fields = if has_cpu { FIELDS | CPU } else { FIELDS };
    piped.attr([1, 0, 10_000], (fields, SAMPLE_ID_ALL), 1);
    let with_cpu = |words: &[u64], cpu: u64| {
        let cpu = has_cpu.then_some(cpu);
        words.iter().copied().chain(cpu).collect::<Vec<u64>>()
    };
    for round in ROUNDS {
        for (cpu, times) in (0..).zip(round) {
            for us in times {
                let time = ns(*us);
                if *us == BEFORE_US {
                    piped.words(LOST, &with_cpu(&[1, RECORDS, THREAD, time], cpu));
                }
                piped.words(SAMPLE, &with_cpu(&[0x1000, THREAD, time], cpu));
            }
        }
        piped.round();
    }
    piped.words(LOST_SAMPLES, &with_cpu(&[counted, 0, 0], 0));
    piped.words(FILTERED, &with_cpu(&[7, 0, 0], 0));
    piped.0
}

/// Begin and end, us, CPU and records of each loss.
fn losses(recording: &[u8]) -> (Import, String) {
    let import = Import::of_bytes(recording, &["--max-loss", "100"]);
    assert_eq!(import.code, 0, "{}", import.stderr);
    let trace = import.trace();
    let ledger = trace.info.ledger.as_ref().unwrap();
    assert_eq!(ledger.check(), Vec::<String>::new());
    let us = |time: i64| (time + trace.info.monotonic_ns.cast_signed() - 1_000_000) / 1000;
    let mut text = String::new();
    losses::each(&trace, |row| {
        let (begin, end) = (us(row.begin_ns.0), us(row.end_ns.0));
        let (cpu, records) = (row.cpu.map(|cpu| cpu.0), row.records.unwrap_or(0));
        let _ = writeln!(text, "{begin}..{end} {cpu:?} {records}");
    })
    .unwrap();
    (import, text)
}

/// The range begins at the last record of the same ring, even if the file has another ring's record just before. perf's
/// count at the end includes it, and records dropped by the filter are not lost.
#[test]
fn of_a_ring() {
    let (import, found) = losses(&recording(true, RECORDS));
    assert_eq!(found, "190..580 Some(1) 40\n");
    let notes = import.trace().info.notes.join("\n");
    assert!(notes.contains("7 samples were left out by"), "{notes}");
}

/// Without the CPU in its records, the range still begins early enough.
#[test]
fn of_any_ring() {
    let (_, found) = losses(&recording(false, RECORDS));
    assert_eq!(found, "100..580 None 40\n");
}

/// A loss before the first record begins at an unknown time, not at the clock's begin.
#[test]
fn at_the_begin() {
    let mut piped = Piped::new();
    piped.attr([1, 0, 10_000], (FIELDS, SAMPLE_ID_ALL), 1);
    piped.words(LOST, &[1, RECORDS, THREAD, ns(150)]);
    piped.words(SAMPLE, &[0x1000, THREAD, ns(100)]);
    piped.words(SAMPLE, &[0x1000, THREAD, ns(200)]);
    piped.round();
    let (_, found) = losses(&piped.0);
    assert_eq!(found, "100..150 None 40\n");
}

/// Losses counted at the end beyond those in the rings are at the end: no later record could report them.
#[test]
fn at_the_end() {
    let (_, found) = losses(&recording(true, RECORDS + 2));
    assert_eq!(found, "190..580 Some(1) 40\n710..710 None 2\n");
}
