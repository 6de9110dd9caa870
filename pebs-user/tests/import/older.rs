//! Traces written by earlier versions: one of each schema.

use std::path::{Path, PathBuf};

use pebs_user::compare::report::{ReportOptions, build};
use pebs_user::store::reader::Trace;
use pebs_user::store::schema::{OLDEST_SCHEMA, SCHEMA_VERSION, Table, VisitRow, visits};

use crate::fixture;
use crate::run::Import;

fn written_with(schema: u32) -> PathBuf {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/traces");
    traces.join(format!("schema-{schema}"))
}

/// All visits, sorted by number: the order of rows is not part of a schema.
fn visits(trace: &Trace) -> Vec<VisitRow> {
    let mut rows = Vec::new();
    visits::each(trace, |row| rows.push(row)).unwrap();
    rows.sort_by_key(|row| row.visit_id);
    rows
}

/// A trace of each schema is read like a current one; columns that it lacks are unknown.
#[test]
fn older_schemas() {
    let path = fixture("vm-spr.cpu-clock+uprobe-req.mt3.callgraph.zstd").unwrap();
    let items = ["--begin", "req_begin", "--end", "probe_srv:req_end"];
    let now = Import::of(&path, &[&items[..], &["--id", "id"]].concat());
    let now = now.trace();
    for schema in OLDEST_SCHEMA..=SCHEMA_VERSION {
        let old = Trace::open(&written_with(schema)).unwrap();
        assert_eq!(old.info.schema_version, schema);
        for table in Table::ALL {
            assert_eq!(old.rows(table).unwrap(), now.rows(table).unwrap());
        }
        // Columns that schema 1 lacks.
        let as_old = |row| VisitRow {
            shared_ns: None,
            idle_ns: None,
            ..row
        };
        let rows: Vec<_> = visits(&now).into_iter().map(as_old).collect();
        assert_eq!(rows.len(), 600);
        let differ = visits(&old).into_iter().zip(rows).find(|(a, b)| a != b);
        assert_eq!(differ, None, "schema {schema}");
        let report = |trace| build(trace, &ReportOptions::default()).unwrap().probes;
        let (old, now) = (report(&old), report(&now));
        assert_eq!(old[0].duration, now[0].duration);
        assert_eq!(old[0].time, now[0].time);
    }
}
