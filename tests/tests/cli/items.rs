//! Places of item ids that can't be read.

use pebs_tests::process::Finished;
use pebs_tests::recording::pebs_trace;
use pebs_tests::workload::Workload;
use pebs_tests::{machine, need};

use super::{good_spec, hints, record, refused};

fn variable(option: &str, place: &str) -> Finished {
    let path = Workload::build("ids").path.display().to_string();
    record(&[option, &format!("{path}:{place}")])
}

/// The registers there are.
#[test]
fn unknown_register() {
    need!(machine::root());
    let done = record(&["--item-reg", "r99"]);
    refused(&done, &["--item-reg", "no register 'r99'"]);
    hints(&done, &["r13"]);
    refused(&record(&["--item-reg", "r13:u24"]), &["no type 'u24'"]);
}

/// The nearest variable is suggested; a variable of the other kind leads to the other option.
#[test]
fn unknown_variable() {
    need!(machine::root());
    let done = variable("--item-mem", "curent_id:u64");
    refused(&done, &["'curent_id' not found"]);
    hints(&done, &["current_id"]);
    let done = variable("--item-mem", "own_id:u32");
    refused(&done, &["thread-local"]);
    hints(&done, &["--item-tls"]);
    let done = variable("--item-tls", "current_id");
    refused(&done, &["not thread-local"]);
    hints(&done, &["--item-mem"]);
    refused(&variable("--item-mem", "main"), &["no variable"]);
}

#[test]
fn faults_of_form() {
    need!(machine::root());
    let done = variable("--item-mem", "current_id+x:u64");
    refused(&done, &["'x' is not an offset"]);
    hints(&done, &["bytes"]);
    refused(&variable("--item-mem", "current_id:str"), &["not a string"]);
    refused(&variable("--item-mem", "current_id:u9"), &["no type 'u9'"]);
    let done = record(&["--item-mem", "/nowhere/app:id:u64"]);
    refused(&done, &["/nowhere/app"]);
    let done = record(&["--item-reg", "r13", "--item-none", "nil"]);
    assert_eq!(done.code(), Some(2), "{done}");
}

/// Thread-local variables of libraries have no fixed offset.
#[test]
fn library() {
    need!(machine::root());
    for option in ["--item-tls", "--item-mem"] {
        let done = record(&[option, "libc.so.6:errno:i32"]);
        refused(&done, &["shared library"]);
        hints(&done, &["--uprobe"]);
    }
}

/// No process to trace is given.
#[test]
fn no_target() {
    need!(machine::root());
    let done = pebs_trace(["--item-reg", "r13"]);
    refused(&done, &["every process"]);
    hints(&done, &["-p PID"]);
}

/// Marks are joined with ids at samples by the id of both ends; nothing else may say which item a thread is at.
#[test]
fn marks_too() {
    need!(machine::root());
    let done = record(&["--item-reg", "r13", "--uprobe", &good_spec()]);
    refused(&done, &["not matched by id"]);
    hints(&done, &["START(id=EXPR)..END(id=EXPR)"]);
    let marked = Workload::build("marked").spec("begin_item(id=arg1)..end_item(id=arg1)");
    let with = |option: &[&str]| {
        let marks = ["--item-reg", "r13", "--uprobe", &marked];
        record(&[&marks[..], option].concat())
    };
    let done = with(&["--resume", &good_spec()]);
    refused(&done, &["which item a thread is at"]);
    hints(&done, &["leave out --preset and --resume"]);
    let done = with(&["--count", "page-faults"]);
    refused(&done, &["cannot count events"]);
    hints(&done, &["leave out --count"]);
}

/// If no event goes on at all times, turns of items and times of functions are not known as well as they seem: it is
/// said before the start. With a clock beside it there is nothing to say.
#[test]
fn no_steady_event() {
    need!(machine::root());
    let said = |options: &[&str], words: &str| {
        let faults = ["-e", "page-faults", "-c", "20000"];
        let done = record(&[&faults[..], options].concat());
        assert_eq!(done.code(), Some(0), "{done}");
        done.stderr.contains(words)
    };
    let turns = "page-faults does not go on at all times";
    assert!(said(&["--item-reg", "r13"], turns));
    assert!(!said(&["--item-reg", "r13", "-e", "cpu-clock"], turns));
    let functions = "not by the times of their functions";
    let spec = good_spec();
    assert!(said(&["--uprobe", &spec, "--keep", "slow"], functions));
    assert!(!said(
        &["--uprobe", &spec, "--keep", "slow", "-e", "cpu-clock"],
        functions
    ));
}

/// Registers that are no numbers, and a variable that is not a ring, are refused with what there is.
#[test]
fn not_a_register_and_no_ring() {
    need!(machine::root());
    for register in ["xmm3", "eflags"] {
        let done = record(&["--item-reg", register]);
        refused(&done, &[&format!("no register '{register}'")]);
        hints(&done, &["r15"]);
    }
    let misses = Workload::build("misses");
    let done = record(&["--uprobe", &misses.spec("handle(to=w->prod.tail)")]);
    refused(&done, &["'w' has no field 'prod'"]);
    hints(&done, &["its fields: id"]);
}

/// An eBPF program has to see each sample.
#[test]
fn in_bulk() {
    need!(machine::root());
    let path = Workload::build("ids").path.display().to_string();
    let place = format!("{path}:current_id:u64");
    let done = record(&["--item-mem", &place, "--transport", "bulk"]);
    refused(&done, &["bulk", "item id"]);
    hints(&done, &["--transport bpf"]);
}
