//! The trace read by other programs: DuckDB, pandas and pyarrow as installed.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use serde_json::{Value, json};

use crate::store::fixtures::rows::{self, complete, info};
use crate::store::options::WriterOptions;
use crate::store::schema::{
    FunctionRow, FunctionStatRow, MemoryRow, Table, VisitFunctionRow, WaitRow,
};
use crate::store::writer::TraceWriter;

/// Rows of `visits`; enough for a second page of the ten times as many samples.
const VISITS: u64 = 12_000;

/// The interpreter; it needs the modules named by the test.
fn python() -> String {
    env::var("PEBS_TRACE_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// Whether a module can be imported; prints a message if not.
fn has(module: &str) -> bool {
    let import = Command::new(python())
        .args(["-c", &format!("import {module}")])
        .output();
    let there = import.is_ok_and(|output| output.status.success());
    if !there {
        println!(
            "SKIP {} has no module {module}: pip install {module}, or set PEBS_TRACE_PYTHON",
            python()
        );
    }
    there
}

/// Runs a script on a trace; returns the JSON it prints.
fn run(script: &str, trace: &Path) -> Value {
    let output = Command::new(python())
        .args(["-c", script])
        .arg(trace)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// `compact`: segments are compacted; else files are as the columns were encoded.
fn write(dir: &Path, compact: bool) {
    let options = WriterOptions {
        compact,
        ..WriterOptions::default()
    };
    let mut writer = TraceWriter::create(dir, &info(), options).unwrap();
    for second in 0..20 {
        let from = second * VISITS / 20;
        rows::write(&mut writer, from, from + VISITS / 20).unwrap();
        writer.tick(std::time::Duration::from_secs(second)).unwrap();
    }
    writer.finish(&complete()).unwrap();
    assert!(
        fs::read_dir(dir.join(Table::Samples.name()))
            .unwrap()
            .count()
            > 1
    );
}

/// Counts and sums of the written rows. Sums of 64-bit ids as text.
fn truth() -> Value {
    let visits: Vec<_> = (0..VISITS).map(rows::visit).collect();
    let samples: Vec<_> = (0..VISITS * 10).map(rows::sample).collect();
    let functions: Vec<_> = (0..VISITS).map(VisitFunctionRow::numbered).collect();
    let stats: Vec<_> = (0..VISITS).map(FunctionStatRow::numbered).collect();
    let waits = (0..VISITS).map(WaitRow::numbered);
    let named: Vec<_> = (0..300).map(FunctionRow::numbered).collect();
    let memory: Vec<_> = (0..VISITS).map(MemoryRow::numbered).collect();
    let locked = |is: bool| memory.iter().filter(|m| m.locked == Some(is)).count();
    let sum = |values: &mut dyn Iterator<Item = u64>| -> String {
        values.map(u128::from).sum::<u128>().to_string()
    };
    json!({
        "visits": VISITS,
        "items": sum(&mut visits.iter().map(|v| v.item_id)),
        "ends": visits.iter().filter(|v| v.end_ns.is_some()).count(),
        "end_sum": visits.iter().filter_map(|v| v.end_ns).map(|t| t.0).sum::<i64>(),
        "deltas": visits.len() as i64 * (visits.len() as i64 - 1) / -2,
        "ns": visits.len().div_ceil(2),
        "keys": (0..VISITS).filter(|n| n % 3 != 0).count(),
        "key_bytes": (0..VISITS).filter(|n| n % 3 != 0).map(|n| format!("key:{n}").len()).sum::<usize>(),
        "samples": samples.len(),
        "ips": sum(&mut samples.iter().map(|s| s.ip)),
        "times": samples.iter().map(|s| s.time_ns.0).sum::<i64>(),
        "in_visits": samples.iter().filter(|s| s.visit_id.is_some()).count(),
        "visit_sum": samples.iter().filter_map(|s| s.visit_id).sum::<u64>(),
        "self": functions.iter().filter_map(|f| f.self_ns).sum::<f64>(),
        "sleeping": waits.filter(|w| w.state == "sleeping").count(),
        "buckets": stats.iter().map(|s| s.bucket_ns.len()).sum::<usize>(),
        "bucketed": stats.iter().flat_map(|s| &s.bucket_count).sum::<u64>(),
        "kernel": named.iter().filter(|f| f.kernel).count(),
        "unnamed": named.iter().filter(|f| f.name.is_none()).count(),
        "losses": 0,
        "loads": memory.iter().filter(|m| m.level.is_some()).count(),
        "latency": memory.iter().filter_map(|m| m.latency_cycles).sum::<u32>(),
        "locked": locked(true),
        "not_locked": locked(false),
    })
}

const DUCKDB: &str = r#"
import sys, json, duckdb
t = sys.argv[1]
def one(sql):
    return duckdb.connect().execute(sql.replace('trace/', t + '/')).fetchone()
r = {}
r['visits'], r['items'], r['ends'], r['end_sum'], r['deltas'], r['ns'], r['keys'], r['key_bytes'] = one(
    "select count(*), sum(item_id::hugeint)::text, count(end_ns), sum(end_ns)::bigint, sum(delta)::bigint, "
    "count(n), count(key), sum(length(key))::bigint from 'trace/visits/*.parquet'")
r['samples'], r['ips'], r['times'], r['in_visits'], r['visit_sum'] = one(
    "select count(*), sum(ip::hugeint)::text, sum(time_ns)::bigint, count(visit_id), sum(visit_id)::bigint "
    "from 'trace/samples/*.parquet'")
r['self'], = one("select sum(self_ns) from 'trace/visit_functions/*.parquet'")
r['sleeping'], = one("select count(*) from 'trace/waits/*.parquet' where state = 'sleeping'")
r['buckets'], r['bucketed'] = one("select count(b), sum(n)::bigint from (select unnest(bucket_ns) as b, "
    "unnest(bucket_count) as n from 'trace/function_stats/*.parquet')")
r['kernel'], r['unnamed'] = one(
    "select count(*) filter (kernel), count(*) filter (name is null) from 'trace/functions/*.parquet'")
r['loads'], r['latency'], r['locked'], r['not_locked'] = one(
    "select count(level), sum(latency_cycles)::bigint, count(*) filter (locked), count(*) filter (not locked) "
    "from 'trace/memory/*.parquet'")
r['losses'], = one("select count(*) from 'trace/losses/*.parquet'")
print(json.dumps(r))
"#;

const PANDAS: &str = r#"
import sys, json, glob, pandas, pyarrow.parquet
t = sys.argv[1]
for file in glob.glob(f'{t}/*/*.parquet'):
    pyarrow.parquet.read_table(file, page_checksum_verification=True)
v, s, f, w, g, fn, l, m = (pandas.read_parquet(f'{t}/{x}', engine='pyarrow', dtype_backend='pyarrow') for x in
    ('visits', 'samples', 'visit_functions', 'waits', 'function_stats', 'functions', 'losses', 'memory'))
print(json.dumps({
    'visits': len(v), 'items': str(sum(map(int, v.item_id))), 'ends': int(v.end_ns.count()),
    'end_sum': int(v.end_ns.sum()), 'deltas': int(v.delta.sum()), 'ns': int(v.n.count()),
    'keys': int(v.key.count()), 'key_bytes': int(v.key.str.len().sum()),
    'samples': len(s), 'ips': str(sum(map(int, s.ip))), 'times': int(s.time_ns.sum()),
    'in_visits': int(s.visit_id.count()), 'visit_sum': int(s.visit_id.sum()),
    'self': float(f.self_ns.sum()), 'sleeping': int((w.state == 'sleeping').sum()),
    'buckets': int(g.bucket_ns.list.len().sum()), 'bucketed': int(g.bucket_count.list.flatten().sum()),
    'kernel': int(fn.kernel.sum()), 'unnamed': int(fn.name.isna().sum()), 'losses': len(l),
    'loads': int(m.level.count()), 'latency': int(m.latency_cycles.sum()), 'locked': int(m.locked.sum()),
    'not_locked': int((m.locked == False).sum()),
}))
"#;

/// Metadata of `visits.oncpu_ns` as the programs see it.
const COLUMN_METADATA: &str = r#"
import sys, json, duckdb, pyarrow.parquet
file = sys.argv[1] + '/visits/000000.parquet'
of_field = pyarrow.parquet.read_schema(file).field('oncpu_ns').metadata
of_file = duckdb.connect().execute(
    f"select decode(value) from parquet_kv_metadata('{file}') where decode(key) = 'oncpu_ns'").fetchone()
print(json.dumps([of_field[b'unit'].decode(), of_field[b'description'].decode(), of_file[0]]))
"#;

// Units and descriptions are where other programs look for them.
#[test]
fn columns_are_described() {
    if !has("duckdb") || !has("pyarrow") {
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("t");
    write(&dir, true);
    let mut columns = Table::Visits.columns().iter();
    let column = columns.find(|it| it.name == "oncpu_ns");
    let words = column.unwrap().plain();
    let first = words.split(". ").next().unwrap();
    let expected = json!(["ns", first, format!("{first} (ns)")]);
    assert_eq!(run(COLUMN_METADATA, &dir), expected);
}

// DuckDB counts and sums the written rows, in compacted segments and in uncompacted ones.
#[test]
fn duckdb_reads_the_same() {
    if !has("duckdb") {
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    for compact in [true, false] {
        let dir = parent.path().join(compact.to_string());
        write(&dir, compact);
        assert_eq!(run(DUCKDB, &dir), truth(), "compact: {compact}");
    }
}

// So do pandas and pyarrow, which verifies the pages' checksums.
#[test]
fn pandas_reads_the_same() {
    if !has("pandas") || !has("pyarrow") {
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    for compact in [true, false] {
        let dir = parent.path().join(compact.to_string());
        write(&dir, compact);
        assert_eq!(run(PANDAS, &dir), truth(), "compact: {compact}");
    }
}
