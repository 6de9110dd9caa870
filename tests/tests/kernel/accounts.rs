//! Every mark accounted for.

use std::fs;
use std::path::Path;

use pebs_tests::recording::Recorder;
use pebs_tests::trace::flag;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

/// 20,000 very short visits a second: each is recorded, with its id, and none is lost.
#[test]
fn short_visits() {
    need!(machine::root());
    let workload = Workload::build("short_visits");
    let alone = workload.run(&["30000", "20000"]);
    let (recording, truth) =
        Recorder::new(&workload.spec("handle(id=arg1)")).workload(&workload, &["30000", "20000"]);
    let trace = recording.trace();
    let ids: Vec<u64> = (1..=truth.notes["items"]).collect();
    check::same_items(&trace, &trace.visits(), &ids);
    let marks = trace.account("marks");
    assert_eq!((marks.seen, marks.written), (60_000, 60_000), "two a visit");
    check::unharmed(&recording, &alone);
}

/// While the tool is stopped its rings run full: the missing or damaged visits are those in the ledger.
#[test]
fn loss_is_what_the_ledger_says() {
    need!(machine::root());
    let workload = Workload::build("short_visits");
    let recorder = Recorder::new(&workload.spec("handle(id=arg1)"));
    let (recording, truth) = recorder.with_loss(&workload, &["50000", "0"]);
    let trace = recording.trace_with_loss();
    let (items, marks) = (truth.notes["items"], trace.account("marks"));
    assert!(marks.lost() > 0, "no loss to look at\n{}", recording.tool);
    assert_eq!(recording.tool.code(), Some(1), "{}", recording.tool);
    // Each item made two marks, and the kernel programs counted all of them.
    assert_eq!(marks.seen, 2 * items, "{marks:?}");
    let visits = trace.visits();
    let ends = visits
        .iter()
        .filter(|visit| visit.cpu_end.is_some())
        .count() as u64;
    let begins = visits.len() as u64;
    assert_eq!(marks.written, begins + ends, "begins and ends of visits");
    let (missing, without_end) = (items - begins, begins - ends);
    assert!(
        missing <= marks.lost(),
        "{missing} visits missing, {marks:?}"
    );
    assert!(
        without_end <= marks.lost(),
        "{without_end} visits without end, {marks:?}"
    );
    // No visit without a loss flag mixes two items.
    let whole: Vec<_> = visits.iter().filter(|v| !v.has(flag::LOSS)).collect();
    for pair in whole.windows(2) {
        let (end, begin) = (pair[0].end_ns, pair[1].begin_ns);
        assert!(end.is_some_and(|end| end <= begin), "{pair:?}");
    }
    assert!(
        whole.len() < visits.len(),
        "visits near the loss are flagged"
    );
    assert!(
        !trace.table("losses").is_empty(),
        "the loss has a time range"
    );
}

/// The files have the documented columns, in the documented types.
#[test]
fn tables_have_the_documented_columns() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let spec = workload.spec("handle(id=*(arg1):u64, kind=*(arg1+8):u32, name=str(*(arg1+16)))");
    let (recording, _) = Recorder::new(&spec).beside().workload(&workload, &["100"]);
    let trace = recording.trace();
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pebs-user/guide/trace.md");
    let guide = fs::read_to_string(guide).unwrap();
    let tables = documented(&guide);
    assert!(tables.len() > 10, "{tables:?}");
    for (table, mut columns) in tables {
        let found = trace.table(&table).columns();
        let found: Vec<String> = found
            .iter()
            .map(|(name, kind)| format!("{name} {kind}"))
            .collect();
        if table == "visits" {
            columns.extend(["kind UInt64", "name Utf8"].map(str::to_owned));
        }
        assert_eq!(found, columns, "{table}");
    }
}

/// The tables of the guide's page, each with its columns and their types.
fn documented(guide: &str) -> Vec<(String, Vec<String>)> {
    let sections = guide.split("\n## ").skip(1);
    let tables = sections.filter_map(|it| it.split_once("\n\n"));
    let tables = tables.filter(|(_, text)| text.contains("\n| column | type |"));
    let columns = |text: &str| {
        let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
        let rows = rows.filter_map(|row| row.split_once("` | "));
        let rows = rows.map(|(name, rest)| {
            let kind = rest.split([',', '|']).next().unwrap_or_default();
            let kind = kind.trim().replace("List(", "List(non-null ");
            format!("{name} {kind}")
        });
        rows.collect()
    };
    let named = tables.map(|(name, text)| (name.to_owned(), columns(text)));
    named.collect()
}

/// `trace.json` has the circumstances of the recording.
#[test]
fn trace_json_says_how() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let (recording, _) = Recorder::new(&workload.spec(super::ID))
        .beside()
        .workload(&workload, &["100"]);
    let json = recording.trace().json;
    assert_eq!(json["schema_version"], 1);
    assert_eq!(json["transport"], "bpf");
    assert!(!json["transport_reason"].as_str().unwrap().is_empty());
    assert_eq!(json["probes"][0]["spec"], workload.spec(super::ID));
    assert_eq!(json["probes"][0]["rule"], "call");
    let sites = json["probes"][0]["sites"].as_array().unwrap();
    let begin = sites.iter().find(|site| site["role"] == "begin").unwrap();
    for key in ["path", "place", "kind", "instruction", "class"] {
        assert!(
            !begin[key].as_str().unwrap().is_empty(),
            "{key} of {begin:#}"
        );
    }
    assert!(
        sites.iter().any(|site| site["role"] == "return"),
        "{sites:#?}"
    );
    assert!(json["command_line"].as_array().unwrap().len() > 4);
    assert!(json["duration_ns"].as_i64().unwrap() > 0);
    assert_eq!(json["cost"]["marks"], 200);
}

/// Ends of items that began before the recording could see it are no loss, and counted apart from ends without a begin.
#[test]
fn began_before() {
    need!(machine::root());
    let workload = Workload::build("batches");
    // The first batch has 8 items, which are admitted, served, then answered: so 8 ends come before any begin.
    let spec = workload.spec("answer..admit");
    let (recording, _) = Recorder::new(&spec).beside().workload(&workload, &["3"]);
    let trace = recording.trace();
    let marks = trace.account("marks");
    assert_eq!(marks.reasons.get("began_before"), Some(&8), "{marks:?}");
    assert_eq!(marks.lost(), 0, "{marks:?}");
    let unmatched = marks.reasons.get("unmatched_mark").copied().unwrap_or(0);
    assert!(unmatched > 0, "{marks:?}");
}
