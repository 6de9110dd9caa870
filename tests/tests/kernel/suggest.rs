//! `pebs-trace suggest`: which functions look like items.

use std::time::Duration;

use pebs_tests::check;
use pebs_tests::process::{Finished, Running, Signal};
use pebs_tests::recording::{Recorder, pebs_trace};
use pebs_tests::workload::Workload;
use pebs_tests::{machine, need};
use serde_json::Value;

/// Starts a server, and asks which of its functions look like items; with what it printed.
fn suggested(workload: &Workload, args: &[&str]) -> (Finished, String) {
    let mut command = std::process::Command::new(&workload.path);
    let mut server = Running::start(command.arg("30"));
    server.wait_for_output(|text| text.contains('\n'));
    let pid = server.pid().to_string();
    let done = pebs_trace(["suggest", "-p", &pid].iter().chain(args));
    server.signal(Signal::KILL);
    (done, server.finish().stdout)
}

fn json(done: &Finished) -> Value {
    assert_eq!(done.code(), Some(0), "{done}");
    serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done}"))
}

/// The function that has one call for each request is first, with its rate, its duration and the text of its argument;
/// the loop is not suggested, and each SPEC can be recorded.
#[test]
fn of_a_server() {
    need!(machine::root());
    let workload = Workload::build("served");
    let (done, _) = suggested(&workload, &["--format", "json"]);
    let found = json(&done);
    let list = found["suggestions"].as_array().unwrap();
    let first = &list[0];
    assert_eq!(first["function"], "answer", "{done}");
    assert!(
        first["p50_ns"].is_u64() && first["per_s"].is_number(),
        "{done}"
    );
    let text = first["text"]["example"].as_str().unwrap();
    assert!(text.starts_with("GET /page/"), "{done}");
    let names: Vec<&str> = list
        .iter()
        .filter_map(|it| it["function"].as_str())
        .collect();
    assert!(
        !names.contains(&"serve") && !names.contains(&"main"),
        "{names:?}"
    );
    assert!(!first["reasons"].as_array().unwrap().is_empty(), "{done}");
    let (done, _) = suggested(&workload, &[]);
    assert_eq!(done.code(), Some(0), "{done}");
    let spec = format!("1  -u '{}:answer(", workload.path.display());
    assert!(done.stdout.contains(&spec), "{done}");
}

/// Without names the function is found by the build and its offset in the file.
#[test]
fn of_a_stripped_server() {
    need!(machine::root());
    let workload = Workload::build("served_stripped");
    let (done, printed) = suggested(&workload, &["--format", "json"]);
    let found = json(&done);
    let answer: u64 = printed.trim().rsplit(' ').next().unwrap().parse().unwrap();
    let first = &found["suggestions"][0];
    let spec = first["spec"].as_str().unwrap();
    assert!(spec.contains(&format!("+{answer:#x}")), "{printed}: {done}");
    assert!(
        first["build_id"].is_string() && first["offset"].is_u64(),
        "{done}"
    );
}

/// A server in Python, and its client.
const SCRIPT: &str = "
import os, socket
here, there = socket.socketpair()
if os.fork():
    while True:
        request = here.recv(4096)
        total = sum(i * i for i in range(2000))
        here.send(b'answer %d' % total)
number = 0
while True:
    number += 1
    there.send(b'request %d' % number)
    there.recv(4096)
";

/// Items lie between a read and the next write there, which is suggested and can be recorded.
#[test]
fn of_an_interpreter() {
    need!(machine::root());
    let python = need!(machine::program("python3"));
    let mut command = std::process::Command::new(python);
    let server = Running::start(command.args(["-c", SCRIPT]));
    let pid = server.pid().to_string();
    let done = pebs_trace(["suggest", "--format", "json", "-p", &pid]);
    let found = json(&done);
    let list = found["suggestions"].as_array().unwrap();
    let is_exchange = |it: &&Value| it["function"] == "recv..send";
    let place = list.iter().position(|it| is_exchange(&it));
    assert!(place.is_some_and(|place| place < 5), "{done}");
    let spec = list.iter().find(is_exchange).unwrap()["spec"].as_str();
    let live = Recorder::new(spec.unwrap()).attach(server.pid());
    std::thread::sleep(Duration::from_millis(500));
    let recording = live.stop();
    server.signal(Signal::KILL);
    let _ = server.finish();
    let trace = recording.trace();
    check::ledger(&trace);
    let texts = trace.text_argument("text").into_values().flatten();
    let requests = texts.filter(|text| text.starts_with("request ")).count();
    assert!(requests > 50, "{requests}");
}

/// A program that waits for ever has no items, which is said in one line with a hint.
#[test]
fn of_an_idle_process() {
    need!(machine::root());
    let server = Running::start(std::process::Command::new("sleep").arg("60"));
    let done = pebs_trace(["suggest", "-d", "0.5", "-p", &server.pid().to_string()]);
    server.signal(Signal::KILL);
    let _ = server.finish();
    assert_eq!(done.code(), Some(1), "{done}");
    assert!(
        done.stderr.contains("looks like an item: it was idle"),
        "{done}"
    );
    assert!(done.stderr.contains("hint: "), "{done}");
}
