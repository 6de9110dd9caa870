//! Item ids and named arguments equal the values that the program passed.

use pebs_tests::recording::Recorder;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

const ITEMS: u64 = 500;
const FIRST_ID: u64 = 1_000_001;

/// Numbers of several widths, strings, registers and return values arrive as the program had them.
#[test]
fn named_arguments() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let spec = workload.spec(
        "handle(id=*(arg1):u64, kind=*(arg1+8):u32, n=*(arg1+12):i32, low=*(arg1):u8, \
         also=*(%rdi):u64, name=str(*(arg1+16)))",
    );
    arguments_arrive(&workload, &spec);
}

/// The same by the names that the debug information has.
#[test]
fn arguments_by_their_names() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let spec = workload.spec(
        "handle(id=it->id, kind=it->kind, n=it->n, low=it->id:u8, also=*(it+0):u64, name=it->name)",
    );
    arguments_arrive(&workload, &spec);
}

fn arguments_arrive(workload: &Workload, spec: &str) {
    let (recording, truth) = Recorder::new(spec).beside().workload(workload, &["500"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let number = |name: &str| trace.number_argument(name);
    let (kind, n, low, also) = (number("kind"), number("n"), number("low"), number("also"));
    let names = trace.text_argument("name");
    for visit in trace.visits() {
        let (id, at) = (visit.visit_id, visit.item_id - FIRST_ID + 1);
        assert_eq!(kind[&id], Some(at % 3), "{visit:?}");
        assert_eq!(n[&id], Some(at % 10), "{visit:?}");
        assert_eq!(low[&id], Some(visit.item_id & 0xff), "{visit:?}");
        assert_eq!(also[&id], Some(visit.item_id), "{visit:?}");
        let name = ["get", "set", "del"][(at % 3) as usize];
        assert_eq!(names[&id].as_deref(), Some(name), "{visit:?}");
    }
    assert_eq!(trace.json["ledger"]["argument_faults"], 0);
}

/// Without `id=` items are numbered in order.
#[test]
fn numbered_items() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let (recording, truth) = Recorder::new(&workload.spec("handle"))
        .beside()
        .workload(&workload, &["500"]);
    let trace = recording.trace();
    let visits = trace.visits();
    check::same_items(&trace, &visits, &(1..=ITEMS).collect::<Vec<_>>());
    for (visit, item) in visits.iter().zip(&truth.items) {
        let mut numbered = *item;
        numbered.id = visit.item_id;
        assert_eq!(item.id - FIRST_ID + 1, visit.item_id, "in order");
        check::within_truth(&trace, visit, &numbered);
    }
}

/// The return value is read at the end of the visit.
#[test]
fn return_value() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let spec = workload.spec("handle(id=*(arg1):u64)..handle%return(rc=retval)");
    let (recording, truth) = Recorder::new(&spec).beside().workload(&workload, &["500"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let rc = trace.number_argument("rc");
    for visit in trace.visits() {
        assert_eq!(rc[&visit.visit_id], Some(visit.item_id % 7), "{visit:?}");
    }
}

/// An invalid pointer leaves the argument unknown, never 0, and is counted; the visit is still recorded.
#[test]
fn unreadable_argument() {
    need!(machine::root());
    let workload = Workload::build("plain");
    let spec = workload.spec("handle(id=*(arg1):u64, lost=*(*(arg1+8)):u64)");
    let (recording, truth) = Recorder::new(&spec).beside().workload(&workload, &["500"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    assert!(trace.number_argument("lost").values().all(Option::is_none));
    assert_eq!(trace.json["ledger"]["argument_faults"], ITEMS);
}

/// The text of `strings`, from which paths are cut.
const PATHS: &str = "/index/of/all/the/things/that/there/are/and/more/!";

/// Strings of Rust are recorded with their lengths, whatever follows them in memory, truncated where requested; in
/// structures, behind references, and passed by value.
#[test]
fn strings_of_rust() {
    need!(machine::root());
    for name in ["strings", "strings_debug"] {
        let workload = Workload::build(name);
        let spec = workload.spec(
            "handle(path=request.path, user=request->user, body=str(request.body, 7), kind=kind, \
             same=str(arg2, arg3), some=str(arg2, arg3, 3))",
        );
        let (recording, truth) = Recorder::new(&spec).beside().workload(&workload, &["200"]);
        let trace = recording.trace();
        check::same_items(&trace, &trace.visits(), &truth.ids());
        let text = |name: &str| trace.text_argument(name);
        let (path, user, body, kind) = (text("path"), text("user"), text("body"), text("kind"));
        let (same, some) = (text("same"), text("some"));
        for visit in trace.visits() {
            let (id, at) = (visit.visit_id, visit.item_id as usize);
            let n = at % 50;
            assert_eq!(path[&id].as_deref(), Some(&PATHS[..n]), "{visit:?}");
            assert_eq!(
                user[&id].as_deref(),
                Some(&*format!("user{n}")),
                "{visit:?}"
            );
            let letter = char::from(b'a' + n as u8 % 26).to_string();
            let mut expected = letter.repeat(n.min(7));
            expected.push_str(if n > 7 { "…" } else { "" });
            assert_eq!(body[&id].as_deref(), Some(&*expected), "{visit:?}");
            let expected = ["get", "set", "delete"][at % 3];
            assert_eq!(kind[&id].as_deref(), Some(expected), "{visit:?}");
            assert_eq!(same[&id].as_deref(), Some(expected), "{visit:?}");
            let expected = ["get", "set", "del…"][at % 3];
            assert_eq!(some[&id].as_deref(), Some(expected), "{visit:?}");
        }
        assert_eq!(trace.json["ledger"]["argument_faults"], 0);
    }
}

/// Of redacted texts the trace has what the rule leaves, by options and by a preset.
#[test]
fn redacted() {
    need!(machine::root());
    let workload = Workload::build("strings");
    let arguments = "path=request.path, user=request->user, kind=kind";
    let folder = tempfile::tempdir().expect("a folder");
    let preset = folder.path().join("own.toml");
    let text = format!(
        "about = \"requests\"\nredact.user = \"hash\"\nredact.other = \"literals\"\n\
         [[probe]]\nspec = \"{{bin}}:handle({arguments})\"\n"
    );
    std::fs::write(&preset, text).expect("room");
    let spec = workload.spec(&format!("handle({arguments})"));
    let rules: [&[&str]; 2] = [
        &["--redact", "user=hash", "--redact", "path=query"],
        &["--redact", "path=query", "--redact", "preset"],
    ];
    for (by_preset, rules) in [false, true].into_iter().zip(rules) {
        let recorder = match by_preset {
            true => Recorder::plain().args(&["--preset", &preset.display().to_string()]),
            false => Recorder::new(&spec),
        };
        let recorder = recorder.beside().args(rules);
        let recording = recorder.command(&workload.path, &["200"]);
        let trace = recording.trace();
        let text = |name: &str| trace.text_argument(name);
        let (path, user, kind) = (text("path"), text("user"), text("kind"));
        let mut users = std::collections::HashMap::new();
        assert_eq!(trace.visits().len(), 200, "{}", recording.tool);
        for visit in trace.visits() {
            let (id, at) = (visit.visit_id, visit.item_id as usize);
            let word = user[&id].clone().expect("a word");
            assert!(
                word.len() == 16 && !word.contains("user"),
                "{word}: {visit:?}"
            );
            assert_eq!(users.entry(at % 50).or_insert(word.clone()), &word);
            assert_eq!(path[&id].as_deref(), Some(&PATHS[..at % 50]), "{visit:?}");
            let expected = ["get", "set", "delete"][at % 3];
            assert_eq!(kind[&id].as_deref(), Some(expected), "{visit:?}");
        }
        let different: std::collections::HashSet<_> = users.values().collect();
        assert_eq!(different.len(), 50);
        let redacted = serde_json::json!({"path": "query", "user": "hash"});
        assert_eq!(trace.json["redacted"], redacted);
        let told = "redacted  path (query), user (hash)";
        assert!(recording.tool.stdout.contains(told), "{}", recording.tool);
    }
}

/// Results have fields: behind a returned pointer, and in a struct returned by value.
#[test]
fn fields_of_results() {
    need!(machine::root());
    let workload = Workload::build("strings");
    let spec = workload.spec("find(found=retval.user, same=retval->id)");
    let (recording, _) = Recorder::new(&spec).beside().workload(&workload, &["200"]);
    let trace = recording.trace();
    let (found, same) = (trace.text_argument("found"), trace.number_argument("same"));
    for visit in trace.visits() {
        let n = visit.item_id % 50;
        assert_eq!(same[&visit.visit_id], Some(n), "{visit:?}");
        let user = found[&visit.visit_id].as_deref();
        assert_eq!(user, Some(&*format!("user{n}")), "{visit:?}");
    }
    let spec = workload.spec("answer(user=user, text=retval.text, code=retval.code)");
    let (recording, _) = Recorder::new(&spec).beside().workload(&workload, &["200"]);
    let trace = recording.trace();
    let (user, text) = (trace.text_argument("user"), trace.text_argument("text"));
    for visit in trace.visits() {
        let user = user[&visit.visit_id].clone();
        let expected = format!("user{}", visit.item_id % 50);
        assert_eq!(user, Some(expected.clone()), "{visit:?}");
        assert_eq!(text[&visit.visit_id], Some(expected + "!"), "{visit:?}");
    }
    let code = trace.table("visits").i64("code");
    let mut code: Vec<i64> = code.into_iter().flatten().collect();
    code.sort_unstable();
    assert_eq!(code, (-200..0).collect::<Vec<i64>>());
}

/// Short strings alone and long ones beside others have the requested length, and a mark where they were cut.
#[test]
fn lengths_of_strings() {
    need!(machine::root());
    let workload = Workload::build("plain");
    for (args, whole) in [
        ("a=str(NAME, 2)", 2),
        ("a=str(NAME, 8), n=*(arg1+12):u32, b=str(NAME, 16)", 3),
        ("a=str(NAME, 128), b=str(NAME, 200)", 3),
    ] {
        let args = args.replace("NAME", "*(arg1+16)");
        let spec = workload.spec(&format!("handle(id=*(arg1):u64, {args})"));
        let (recording, _) = Recorder::new(&spec).beside().workload(&workload, &["100"]);
        let trace = recording.trace();
        for column in ["a", "b"] {
            if !args.contains(&format!("{column}=str")) {
                continue;
            }
            let texts = trace.text_argument(column);
            for visit in trace.visits() {
                let name = ["get", "set", "del"][((visit.item_id - FIRST_ID + 1) % 3) as usize];
                let text = texts[&visit.visit_id].as_deref();
                let cut = if whole < 3 { "…" } else { "" };
                let expected = format!("{}{cut}", &name[..whole]);
                assert_eq!(text, Some(&*expected), "{spec} {column}");
            }
        }
        assert_eq!(trace.json["ledger"]["argument_faults"], 0, "{spec}");
    }
}

/// Arguments of USDT probes have the size and sign in the note: in registers that differ from place to place, constants
/// and variables. The semaphore is raised, and lowered again.
#[test]
fn usdt_arguments() {
    need!(machine::root());
    let workload = need!(Workload::try_build("usdt"));
    let spec = workload.spec(
        "usdt:app:begin(id=arg1, kind=arg2, name=str(arg3), constant=arg4, level=arg5)\
         ..usdt:app:end(id=arg2, rc=arg1)",
    );
    let (recording, truth) = Recorder::new(&spec).beside().workload(&workload, &["200"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    assert_eq!(truth.notes["asked"], 200, "the semaphore");
    let table = trace.table("visits");
    let ids: Vec<u64> = table.u64("item_id").into_iter().flatten().collect();
    let (kind, rc) = (table.i64("kind"), table.i64("rc"));
    let (constant, level) = (table.i64("constant"), table.i64("level"));
    let names = table.text("name");
    for (row, id) in ids.into_iter().enumerate() {
        let i = id as i64;
        let (name, expected) = if i & 1 == 1 {
            ("odd", -i | 1)
        } else {
            ("even", -i * 2)
        };
        assert_eq!(kind[row], Some(expected), "item {id}");
        assert_eq!(names[row].as_deref(), Some(name), "item {id}");
        assert_eq!(
            (constant[row], level[row]),
            (Some(42), Some(-7)),
            "item {id}"
        );
        assert_eq!(rc[row], Some(-(i % 100)), "item {id}");
    }
    assert_eq!(trace.json["ledger"]["argument_faults"], 0);
    let alone = workload.run(&["5"]);
    assert_eq!(alone.code(), Some(0), "{alone}");
}
