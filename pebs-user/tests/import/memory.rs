//! Memory accesses of recordings: the table, the report, and the guide's query.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use pebs_user::store::schema::Table;

use crate::fixture;
use crate::run::Import;

/// Begin of the recording of loads and stores, ns on its clock.
const BEGIN: u64 = 39_593_551_092_656;

/// Its thread with the most samples.
const THREAD: u32 = 2_782_702;

/// Items on that thread: fifty of 100 us, and one of 4 ms.
fn marks() -> String {
    let mut table = "time_ns,tid,mark,item_id\n".to_owned();
    let mut time = BEGIN + 900_000;
    for item in 0..51 {
        let length = if item == 30 { 4_000_000 } else { 100_000 };
        let _ = writeln!(table, "{time},{THREAD},begin,{item}");
        let _ = writeln!(table, "{},{THREAD},end,{item}", time + length);
        time += length + 10_000;
    }
    table
}

fn with_items() -> Option<Import> {
    let import = Import::prepare();
    let path = fixture("cfl-i9-9980HK.perf-mem.ld+st")?;
    std::os::unix::fs::symlink(path, import.dir.path().join("perf.data")).unwrap();
    import.write("marks.csv", marks().as_bytes());
    let args = ["perf.data", "--symfs", "nowhere", "--marks", "marks.csv"];
    Some(import.run(&[&args[..], &["-o", "out"]].concat()))
}

fn report(import: &Import, format: &str) -> String {
    let run = Command::new(env!("CARGO_BIN_EXE_pebs-trace"))
        .args(["report", "--by", "memory", "--format", format, "out"])
        .current_dir(import.dir.path())
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    String::from_utf8(run.stdout).unwrap()
}

/// Each sample of a load or store has its row, and reports equal the golden texts: loads and stores of Intel, as a
/// whole and by item, loads over a latency with a three-part weight, and AMD's IBS.
#[test]
fn reports() {
    let bless = std::env::var_os("PEBS_BLESS").is_some_and(|value| value == "1");
    let of = |name: &str| fixture(name).map(|path| Import::of(&path, &[]));
    let cases = [
        ("perf-mem", of("cfl-i9-9980HK.perf-mem.ld+st"), 698),
        ("perf-mem.items", with_items(), 698),
        (
            "weight_struct",
            of("skx-8173M.ldlat64-pp.weight_struct.pfm"),
            14,
        ),
        ("ibs", of("zen4-7975WX.ibs-cycles-P.dwarf.mt"), 17),
    ];
    for (name, import, rows) in cases {
        let Some(import) = import else { continue };
        assert_eq!(import.trace().rows(Table::Memory).unwrap(), rows, "{name}");
        let shown = format!("{}\n{}", report(&import, "text"), report(&import, "csv"));
        let golden = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("tests/import/golden/memory/{name}.txt"));
        if bless {
            std::fs::write(&golden, &shown).unwrap();
        }
        let wanted = std::fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(shown, wanted, "{} differs", golden.display());
        let json: serde_json::Value = serde_json::from_str(&report(&import, "json")).unwrap();
        let with_access = json["events"].as_array().unwrap().iter();
        let with_access: u64 = with_access
            .map(|event| event["with_access"].as_u64().unwrap())
            .sum();
        assert_eq!(with_access, rows, "{name}");
    }
}

/// A recording without accesses gives an empty table, and the report has a hint.
#[test]
fn nothing_to_say() {
    let import = Import::of(
        &fixture("vm-spr.cpu-clock+uprobe-req.mt3.clk-mono").unwrap(),
        &[],
    );
    assert_eq!(import.trace().rows(Table::Memory).unwrap(), 0);
    assert!(report(&import, "text").starts_with("no sample of this trace has a memory access"));
    assert_eq!(report(&import, "csv").lines().count(), 1);
}

/// A trace of a version without the table is one without accesses.
#[test]
fn older_traces() {
    let import = Import::of(
        &fixture("vm-spr.cpu-clock+uprobe-req.mt3.clk-mono").unwrap(),
        &[],
    );
    std::fs::remove_dir_all(import.out().join("memory")).unwrap();
    assert!(report(&import, "text").starts_with("no sample of this trace has a memory access"));
}

/// The guide's query of `memory` gives the report's figures.
#[test]
fn guide_query() {
    let python = std::env::var_os("PEBS_TRACE_PYTHON").unwrap_or_else(|| "python3".into());
    let has = Command::new(&python).args(["-c", "import duckdb"]).output();
    if !has.is_ok_and(|done| done.status.success()) {
        return println!("SKIP python has no duckdb: set PEBS_TRACE_PYTHON");
    }
    let Some(import) = with_items() else { return };
    let page = include_str!("../../guide/memory.md");
    let mut queries = page.split("```sql\n").skip(1);
    let query = queries.find(|text| text.contains("/memory/")).unwrap();
    let query = query.split("```").next().unwrap().replace("TRACE", "out");
    let script = "import sys, duckdb\nfor row in duckdb.connect().execute(sys.argv[1]).fetchall(): print(*row, sep='|')";
    let answer = Command::new(&python)
        .args(["-c", script, &query])
        .current_dir(import.dir.path())
        .output()
        .unwrap();
    let answer = String::from_utf8(answer.stdout).unwrap();
    let first = answer.lines().next().unwrap_or_default();
    // A function without a symbol, stores to the first level: as in the golden report of the items.
    assert!(first.starts_with("None|store|L1 hit|"), "{answer}");
    let csv = report(&import, "csv");
    let inside = csv
        .lines()
        .find(|line| line.contains("mem-stores/P,0,"))
        .unwrap();
    let samples = first.split('|').nth(3).unwrap();
    assert!(
        inside.contains(&format!("store,L1 hit,,,,{samples},")),
        "{first}\n{csv}"
    );
}
