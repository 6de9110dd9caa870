//! The Python package, on a trace that has just been recorded.

use std::path::Path;
use std::process::Command;

use pebs_tests::recording::Recorder;
use pebs_tests::workload::Workload;
use pebs_tests::{machine, need, process};

use super::good_spec;

/// Tables are those on disk, with words for events and flags; what is said is what the command says.
const SCRIPT: &str = r#"
import sys
import duckdb
import pebs_trace

path, before = sys.argv[1:]
trace = pebs_trace.load(path)
files = f"'{path}/visits/*.parquet'"
(rows, loss), = duckdb.sql(f"select count(*), count(*) filter (flags & 32 <> 0) from {files}").fetchall()
assert rows == 2000 == trace.visits.num_rows == len(trace.pandas("visits")), (rows, trace.visits)
assert "visits" in trace.tables and "memory" not in trace.tables, trace.tables
flags = trace.pandas("visits")["flags"]
assert flags.str.split("|").apply(lambda names: "loss" in names).sum() == loss, flags.unique()
assert set(trace.samples["event"].to_pylist()) <= set(trace.events), trace.events
assert trace.pandas("visits")["net_ns"].dtype.name == "Int64"
assert "(ns)" in trace.describe("visits")["net_ns"]
connection = trace.duckdb()
assert connection.sql("select count(*) from visits").fetchall() == [(rows,)]
assert connection.sql("select count(*) from pooled_functions").fetchall()[0][0] > 0

explanation = trace.explain()
(probe,) = explanation.probes
assert probe.items == rows == probe.whole.items, probe
assert probe.whole.duration.p50_ns <= probe.whole.duration.p99_ns
# Without an interval where samples beat with the items, or are too few.
known = [cause for cause in explanation.causes if cause.share_low is not None]
assert all(cause.share_low <= cause.share <= cause.share_high for cause in known), known
assert "2,000 items" in str(explanation) and "<pre>" in explanation._repr_html_()

diff = pebs_trace.diff(before, trace)
assert {it.name for it in diff.probes[0].durations} == {"mean", "on_cpu", "p50", "p99"}, diff

for wrong, word in [
    (lambda: pebs_trace.load(path + "/visits"), "is no trace"),
    (lambda: trace.explain("--slow", "never"), "--slow"),
    (lambda: pebs_trace.record(path, uprobe="nowhere:f"), ""),
]:
    try:
        wrong()
    except pebs_trace.PebsTraceError as error:
        assert word in str(error) and error.status == 2, error
    else:
        raise AssertionError("accepted")
"#;

#[test]
fn package() {
    need!(machine::root());
    let python = need!(machine::python(&["duckdb", "pandas", "pyarrow"]));
    let workload = Workload::build("plain");
    let record = || {
        let recorder = Recorder::new(&good_spec()).beside();
        recorder.workload(&workload, &["2000"]).0
    };
    let (before, trace) = (record(), record());
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pebs-user/python");
    let done = process::run(
        Command::new(python)
            .env("PYTHONPATH", package)
            .env("PEBS_TRACE", machine::pebs_trace())
            .arg("-c")
            .arg(SCRIPT)
            .args([trace.dir(), before.dir()]),
    );
    assert_eq!(done.code(), Some(0), "{done}");
}
