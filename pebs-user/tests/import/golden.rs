//! Output and tables of imports, for every family of recordings.

use std::path::Path;

use crate::run::Import;
use crate::{FOREIGN, OURS, fixture};

/// Arguments for recordings with items.
fn arguments(name: &str) -> &'static [&'static str] {
    if name.starts_with("vm-spr") {
        return &[
            "--begin",
            "req_begin",
            "--end",
            "probe_srv:req_end",
            "--id",
            "id",
        ];
    }
    if name.starts_with("adl-") {
        return &[
            "--begin",
            "user_events:TestProviderC_L5K0",
            "--event",
            "TestProviderCpp_L5K0",
        ];
    }
    &[]
}

fn shown(import: &Import) -> String {
    format!(
        "exit status {}\nrows: {}\n\n{}\n{}",
        import.code,
        import.rows(),
        import.stdout,
        import.stderr
    )
}

/// Report, other output, exit status and rows of each table equal the golden text; the account balances, and no sample
/// of the file is missing from it.
#[test]
fn families() {
    let bless = std::env::var_os("PEBS_BLESS").is_some_and(|value| value == "1");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import/golden");
    let mut faults = Vec::new();
    for (name, samples, _) in OURS.into_iter().chain(FOREIGN) {
        let Some(path) = fixture(name) else { continue };
        let import = Import::of(&path, arguments(name));
        let trace = import.trace();
        let ledger = trace.info.ledger.as_ref().unwrap();
        assert_eq!(ledger.check(), Vec::<String>::new(), "{name}");
        let info = trace.info.import.as_ref().unwrap();
        let switches = info
            .events
            .iter()
            .filter(|event| event.used_for == "switches");
        let switches: u64 = switches.map(|event| event.samples).sum();
        let totals = ledger.totals();
        let lost = totals.samples.of(pebs_user::ledger::Reason::LostPerfRing);
        let seen =
            totals.samples.seen + totals.marks.seen + ledger.samples_filtered + switches - lost;
        assert_eq!(seen, samples, "{name}");
        let golden = folder.join(format!("{name}.txt"));
        let got = shown(&import);
        if bless {
            std::fs::write(&golden, &got).unwrap();
        }
        if std::fs::read_to_string(&golden).unwrap_or_default() != got {
            faults.push(format!("{} differs:\n{got}", golden.display()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

const QUERY: &str = r#"
import sys, duckdb
query = lambda sql: duckdb.connect().execute(sql).fetchone()
print(*query("select count(*), count(distinct item_id), sum(samples)::bigint, count(oncpu_ns), count(cpu_begin) from 'out/visits/*.parquet'"),
      *query("select count(*), count(visit_id), count(cpu) from 'out/samples/*.parquet'"),
      *query("select sum(samples)::bigint, count(events), sum(events)::bigint from 'out/visit_functions/*.parquet'"))
"#;

/// DuckDB's counts equal the report's: 600 items with 1105 samples; nulls are nulls.
#[test]
fn duckdb_reads_the_same() {
    let python = std::env::var_os("PEBS_TRACE_PYTHON").unwrap_or_else(|| "python3".into());
    let run = |code: &str, dir: &Path| {
        let done = std::process::Command::new(&python)
            .args(["-c", code])
            .current_dir(dir)
            .output();
        done.ok().filter(|done| done.status.success())
    };
    if run("import duckdb", Path::new(".")).is_none() {
        return println!("SKIP python has no duckdb: set PEBS_TRACE_PYTHON");
    }
    let name = "vm-spr.cpu-clock+uprobe-req.mt3.callgraph.zstd";
    let import = Import::of(&fixture(name).unwrap(), arguments(name));
    let answer = run(QUERY, import.dir.path()).unwrap();
    let answer = String::from_utf8(answer.stdout).unwrap();
    // Samples have no CPU, marks do; each sample stands for 100 us.
    assert_eq!(
        answer.trim(),
        "600 600 1105 600 600 1142 1105 0 1105 633 110500000"
    );
}
