//! Shared cache lines of a recording in the form of `perf c2c record`, and of watched variables.

use std::process::Command;

use pebs_user::store::schema::{Table, memory};

use crate::piped::Piped;
use crate::run::Import;

const SAMPLE: (u32, u16) = (9, 2 | 1 << 14);
const MAPPED_DATA: (u32, u16) = (1, 2 | 1 << 13);
const SAMPLE_ID_ALL: u64 = 1 << 18;

/// IDENTIFIER, IP, TID, TIME, ADDR, CPU, PERIOD, WEIGHT, DATA_SRC and PHYS_ADDR: fields of `perf c2c record`.
const C2C: u64 =
    1 << 16 | 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 7 | 1 << 8 | 1 << 14 | 1 << 15 | 1 << 19;

/// A load from a remote cache that had modified the line (OP_LOAD, HIT, L3, SNOOP_HITM), and a store to the first level.
const MODIFIED: u64 = 1 << 1 | (1 << 1 | 1 << 6) << 5 | 1 << 4 << 19;
const STORE: u64 = 1 << 2 | (1 << 1 | 1 << 3) << 5;

const LOADS: u64 = 1;
const STORES: u64 = 2;

fn thread(tid: u64) -> u64 {
    10 | tid << 32
}

/// One thread stores to the first word of a line, another loads the word behind; each has a line of its own, too.
fn recording() -> Vec<u8> {
    let mut piped = Piped::new();
    piped.attr([4, 0x1cd, 100], (C2C, SAMPLE_ID_ALL), LOADS);
    piped.attr([4, 0x82d0, 1_000], (C2C, SAMPLE_ID_ALL), STORES);
    let heap = [
        10 | 10 << 32,
        0x6000,
        0x2000,
        0,
        u64::from_ne_bytes(*b"[heap]\0\0"),
    ];
    // TID, TIME, CPU and IDENTIFIER.
    piped.words(
        MAPPED_DATA,
        &[&heap[..], &[thread(10), 999_000, 0, LOADS]].concat(),
    );
    for n in 0..60 {
        let mut put = |event, tid: u64, addr: u64, source| {
            let (ip, period) = (0x1000 * tid, if event == LOADS { 100 } else { 1_000 });
            let time = 1_000_000 + n * 10_000 + tid;
            let physical = 0x9_0000_0000 + addr;
            let words = [
                event,
                ip,
                thread(tid),
                time,
                addr,
                0,
                period,
                70,
                source,
                physical,
            ];
            piped.words(SAMPLE, &words);
        };
        put(STORES, 10, 0x7000, STORE);
        put(LOADS, 11, 0x7008, MODIFIED);
        put(STORES, 10, 0x7040, STORE);
        put(LOADS, 11, 0x7080, MODIFIED);
    }
    piped.round();
    piped.0
}

fn report(import: &Import, format: &str) -> String {
    let run = Command::new(env!("CARGO_BIN_EXE_pebs-trace"))
        .args(["report", "--by", "line", "--format", format, "out"])
        .current_dir(import.dir.path())
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    String::from_utf8(run.stdout).unwrap()
}

/// The text without its line breaks.
fn text(import: &Import) -> String {
    let text = report(import, "text");
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

fn lines(import: &Import) -> Vec<serde_json::Value> {
    let json: serde_json::Value = serde_json::from_str(&report(import, "json")).unwrap();
    json["lines"].as_array().unwrap().clone()
}

/// Addresses, physical ones too, data sources, processes and the heap are imported; the line that both threads use is found, with what
/// the samples of each event stand for, and loads that found it modified.
#[test]
fn as_c2c_records() {
    let import = Import::of_bytes(&recording(), &[]);
    assert_eq!(import.code, 0, "{}", import.stderr);
    let mut rows = 0;
    memory::each(&import.trace(), |row| {
        assert_eq!((row.pid.map(|it| it.0), row.bytes), (Some(10), None));
        assert_eq!(row.phys_addr, row.addr.map(|addr| addr + 0x9_0000_0000));
        rows += 1;
    })
    .unwrap();
    assert_eq!(rows, 240);
    let lines = lines(&import);
    let [line] = &lines[..] else {
        panic!("{lines:#?}")
    };
    assert_eq!(line["address"], "0x7000");
    assert_eq!(line["physical"], "0x900007000");
    assert_eq!(line["sharing"], "false", "{line:#}");
    let data = serde_json::json!({ "symbol": null, "object": "[heap]", "offset": 0x1000 });
    assert_eq!(line["data"], data);
    assert_eq!(line["all"]["events"], 66_000.0);
    assert_eq!(line["contended"]["events"], 6_000.0);
    assert_eq!(line["hit_modified"]["samples"], 60);
    let text = text(&import);
    assert!(
        text.contains("(the trace has no line size: taken for 64 bytes)"),
        "{text}"
    );
}

/// A watched address is known without an address in the samples; what is only written is stored to, and which of the watched
/// bytes is not known. What executes is no access.
#[test]
fn watched() {
    const BREAKPOINT: u64 = 5;
    const PLAIN: u64 = 1 << 16 | 1 | 1 << 1 | 1 << 2;
    let recording = |access: u64| {
        let mut piped = Piped::new();
        piped.watch(
            [BREAKPOINT, 1],
            (PLAIN, SAMPLE_ID_ALL),
            (access, 0x7000, 8),
            1,
        );
        for n in 0..100 {
            let tid = 10 + n % 2;
            piped.words(
                (9, 2),
                &[1, 0x1000 * tid, thread(tid), 1_000_000 + n * 10_000],
            );
        }
        piped.round();
        piped.0
    };
    let import = Import::of_bytes(&recording(2), &[]);
    let found = lines(&import);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(
        (&found[0]["sharing"], &found[0]["same_bytes"]),
        (&"unknown".into(), &serde_json::json!([0.0, 1.0]))
    );
    let both = Import::of_bytes(&recording(3), &[]);
    let text = text(&both);
    assert!(
        text.contains("100 not known to be a load or a store"),
        "{text}"
    );
    assert!(text.contains("no cache line is shared"), "{text}");
    let executed = Import::of_bytes(&recording(4), &[]);
    assert_eq!(executed.trace().rows(Table::Memory).unwrap(), 0);
}

/// Traces of versions without processes, and without the table, name no line.
#[test]
fn older_traces() {
    let import = Import::of_bytes(&recording(), &[]);
    std::fs::remove_dir_all(import.out().join("memory")).unwrap();
    assert!(report(&import, "text").starts_with("no sample of this trace has a memory access"));
    assert_eq!(report(&import, "csv").lines().count(), 1);
}
