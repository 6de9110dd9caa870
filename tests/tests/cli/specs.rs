//! Faulty SPECs: the caret is under the fault.

use pebs_tests::recording::pebs_trace;
use pebs_tests::workload::Workload;
use pebs_tests::{machine, need};

use super::{hints, record_spec, refused};

/// The line of the caret points at this text in the line above it.
fn caret_under(spec: &str, fault: &str) {
    let done = record_spec(spec);
    refused(&done, &["^"]);
    let lines: Vec<&str> = done.stderr.lines().collect();
    let caret_line = lines
        .iter()
        .position(|line| line.trim_start().starts_with('^'))
        .unwrap_or_else(|| panic!("no line of the caret\n{done}"));
    let (shown, caret) = (lines[caret_line - 1], lines[caret_line].find('^').unwrap());
    assert!(
        shown.contains(spec),
        "the SPEC stands above the caret\n{done}"
    );
    let under: String = shown.chars().skip(caret).collect();
    assert!(
        under.starts_with(fault),
        "the caret is under '{under}', not '{fault}'\n{done}"
    );
}

#[test]
fn no_function() {
    need!(machine::root());
    let path = Workload::build("plain").path.display().to_string();
    refused(&record_spec(&path), &[]);
    refused(&record_spec(&format!("{path}:")), &[]);
    refused(&record_spec(""), &[]);
}

/// Faults of form, each at its place.
#[test]
fn carets() {
    need!(machine::root());
    let workload = Workload::build("plain");
    for (tail, fault) in [
        ("handle(id=)", ")"),
        ("handle(id=*(arg1)", ""),
        ("handle(id=*(arg1+)):u64)", ")"),
        ("handle(=arg1)", "="),
        ("handle(id=arg1,)", ")"),
        ("handle(id=arg1) x", "x"),
    ] {
        caret_under(&workload.spec(tail), fault);
    }
}

/// A register that this machine does not have.
#[test]
fn bad_register() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let done = record_spec(&workload.spec("handle(id=%rqx)"));
    refused(&done, &["rqx", "^"]);
    caret_under(&workload.spec("handle(id=%rqx)"), "%rqx");
}

/// Arguments count from 1, and only some are in registers.
#[test]
fn bad_argument_number() {
    need!(machine::root());
    let workload = Workload::build("plain");
    refused(
        &record_spec(&workload.spec("handle(id=arg0)")),
        &["arg0", "^"],
    );
    refused(
        &record_spec(&workload.spec("handle(id=arg99)")),
        &["arg99", "^"],
    );
}

/// A type that does not exist.
#[test]
fn bad_type() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let done = record_spec(&workload.spec("handle(id=*(arg1):u65)"));
    refused(&done, &["u65", "u64", "^"]);
    caret_under(&workload.spec("handle(id=*(arg1):u65)"), "u65");
}

/// An item id that is not a number.
#[test]
fn id_is_a_string() {
    need!(machine::root());
    let workload = Workload::build("plain");
    refused(
        &record_spec(&workload.spec("handle(id=str(arg1))")),
        &["id"],
    );
}

/// A return value at an entry.
#[test]
fn retval_at_entry() {
    need!(machine::root());
    let workload = Workload::build("plain");
    refused(
        &record_spec(&workload.spec("handle(id=retval)")),
        &["retval"],
    );
}

/// A duplicate name, and names of existing columns.
#[test]
fn names_that_clash() {
    need!(machine::root());
    let workload = Workload::build("plain");
    refused(
        &record_spec(&workload.spec("handle(a=arg1, a=arg2)")),
        &["'a'"],
    );
    refused(
        &record_spec(&workload.spec("handle(begin_ns=arg1)")),
        &["begin_ns"],
    );
}

/// Redaction is refused of arguments that no probe reads or that are numbers, by unknown rules, and by presets without
/// any.
#[test]
fn redaction() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let spec = workload.spec("handle(id=it->id, n=it->n, name=it->name)");
    let with = |rule: &str| pebs_trace(["-u", &spec, "--redact", rule, "--", "true"]);
    let other = with("nam=hash");
    refused(&other, &["cannot redact nam: no probe reads it"]);
    hints(&other, &["texts that are read: name"]);
    let number = with("n=hash");
    refused(&number, &["cannot redact n: it is a number"]);
    refused(&with("name=sql"), &["no rule 'sql'", "literals, query"]);
    refused(&with("name"), &["such as sql=literals, or preset"]);
    let no_preset = with("preset");
    refused(&no_preset, &["no preset says what to redact"]);
    hints(&no_preset, &["--redact sql=literals"]);
}

/// Presets that do not exist, have a fault, or lack their program; programs that none fits.
#[test]
fn presets() {
    let unknown = pebs_trace(["--preset", "gone", "--", "true"]);
    refused(&unknown, &["no preset 'gone'"]);
    hints(&unknown, &["redis", "tokio"]);
    let of_what = pebs_trace(["--preset", "tokio"]);
    refused(&of_what, &["needs a program"]);
    hints(&of_what, &["--preset tokio=./app"]);
    let folder = tempfile::tempdir().unwrap();
    let faulty = folder.path().join("own.toml");
    std::fs::write(&faulty, "about = \"a\"\n\nprobes = 1\n").unwrap();
    let faulty = faulty.display().to_string();
    let fault = pebs_trace(["--preset", &faulty, "--", "true"]);
    refused(&fault, &["own.toml: line 3: unknown field `probes`"]);
    hints(&fault, &["pebs-trace presets redis"]);
    let none = pebs_trace(["--", "true"]);
    refused(&none, &["no preset fits /usr/bin/true"]);
    hints(&none, &["pebs-trace suggest", "pebs-trace presets"]);
    let not_it = pebs_trace(["--preset", "redis", "--", "true"]);
    refused(
        &not_it,
        &["preset redis does not fit /usr/bin/true", "processCommand"],
    );
}

/// The list of presets, as a table and as JSON, and the text of one.
#[test]
fn listed_presets() {
    let list = pebs_trace(["presets"]);
    assert_eq!(list.code(), Some(0), "{list}");
    let row = list.stdout.lines().find(|it| it.contains("redis"));
    assert!(row.is_some_and(|it| it.contains("redis-server")), "{list}");
    let json = pebs_trace(["presets", "--format", "json"]);
    let rows: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let names: Vec<&str> = rows
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it["name"].as_str())
        .collect();
    assert!(
        names.contains(&"nginx") && names.contains(&"go"),
        "{names:?}"
    );
    let one = pebs_trace(["presets", "redis"]);
    assert!(one.stdout.contains("[[probe]]"), "{one}");
    refused(&pebs_trace(["presets", "gone"]), &["no preset 'gone'"]);
}
