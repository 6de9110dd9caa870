//! Import of files written by this kernel's `perf record`.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::process::Command;

use pebs_tests::locks::Lock;
use pebs_tests::process;
use pebs_tests::recording::pebs_trace;
use pebs_tests::trace::{SAMPLE_KERNEL, Trace, Wait};
use pebs_tests::truth::Truth;
use pebs_tests::workload::{TruthFile, Workload};
use pebs_tests::{machine, need};

/// Items as a table of marks.
fn marks(truth: &Truth) -> String {
    let mut table = "time_ns,tid,mark,item_id\n".to_owned();
    for item in &truth.items {
        for (time, mark) in [(item.before, "begin"), (item.after, "end")] {
            let _ = writeln!(
                table,
                "{},{},{mark},{}",
                time.unwrap_or(0),
                item.tid,
                item.id
            );
        }
    }
    table
}

/// `sched_switch` with call stacks shows where threads blocked, as in our own recordings.
#[test]
fn stacks_of_switches() {
    need!(machine::root());
    let perf = need!(machine::program("perf"));
    let taskset = need!(machine::program("taskset"));
    let workload = Workload::build("sleeper");
    let place = tempfile::tempdir().unwrap();
    let [data, csv, out] = ["perf.data", "marks.csv", "trace"].map(|name| place.path().join(name));
    let truth = TruthFile::new();
    let mut command = Command::new(perf);
    command
        .args([
            "record",
            // perf 6.1 falls over eBPF programs that go while it looks at them.
            "--no-bpf-event",
            "-a",
            "-g",
            "-k",
            "CLOCK_MONOTONIC",
            "-m",
            "4M",
            "-o",
        ])
        .arg(&data)
        .args([
            "-e",
            "cpu-clock",
            "-c",
            "1000000",
            "-e",
            "sched:sched_switch",
            "--",
        ])
        .args([taskset.as_os_str(), "-c".as_ref(), "0".as_ref()])
        .arg(&workload.path)
        .arg("200");
    let lock = Lock::recording();
    // Linux 6.18 stops recording tracepoints of some idle tasks, and then the thread that follows them on the CPU
    // is not seen. Beside this program there is no idle time.
    let mut busy = Command::new(&taskset);
    busy.args(["-c", "0", "nice", "sh", "-c", "while :; do :; done"]);
    let busy = process::Running::start(&mut busy);
    let recorded = process::run(truth.on(&mut command));
    drop(busy);
    drop(lock);
    if recorded.code() != Some(0) {
        println!("SKIP perf can't record switches here: {recorded}");
        return;
    }
    std::fs::write(&csv, marks(&truth.read())).unwrap();
    let args = [
        "import".as_ref(),
        data.as_os_str(),
        "--marks".as_ref(),
        csv.as_os_str(),
    ];
    let imported = pebs_trace(args.into_iter().chain(["-o".as_ref(), out.as_os_str()]));
    assert!(imported.code() < Some(2), "{imported}");
    let trace = Trace::open(&out);
    let stacks = trace.stacks();
    let stacks: HashMap<u64, &Vec<u64>> =
        stacks.iter().map(|it| (it.stack_id, &it.frames)).collect();
    let (names, kernel) = (trace.function_names(), trace.kernel_functions());
    let waits = trace.waits();
    let sleeps: Vec<&Wait> = waits.iter().filter(|it| it.state == "sleeping").collect();
    // Four of five items sleep, except those with a missing switch.
    assert!(sleeps.len() > 150, "{} sleep: {waits:?}", sleeps.len());
    for wait in sleeps {
        let frames = stacks[&wait.stack_id.unwrap()];
        assert!(kernel.contains(&frames[0]), "{wait:?} {frames:?}");
        let of = |id: &u64| names.get(id).map_or("", String::as_str);
        let slept = frames.iter().any(|id| of(id).contains("nanosleep"));
        assert!(slept, "{:?}", frames.iter().map(of).collect::<Vec<_>>());
        assert!(!of(&frames[0]).contains("schedule"), "{}", of(&frames[0]));
        let function = wait.function_id.unwrap();
        assert!(
            !kernel.contains(&function),
            "where it left user space: {}",
            of(&function)
        );
    }
    // The place of a preemption is chance.
    let preempted = waits.iter().filter(|it| it.state == "runnable");
    assert!(
        preempted.clone().all(|it| it.stack_id.is_none()),
        "{waits:?}"
    );
}

/// Inlined functions are separate frames in imported traces as well, on request.
#[test]
fn inlined() {
    need!(machine::root());
    let perf = need!(machine::program("perf"));
    let workload = Workload::build("calls_inlined");
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("perf.data");
    let truth = TruthFile::new();
    let mut command = Command::new(perf);
    command
        .args(["record", "--no-bpf-event", "-g"])
        .args(["-e", "cpu-clock:u", "-c", "200000", "-o"])
        .arg(&data)
        .arg("--")
        .arg(&workload.path)
        .arg("60");
    let lock = Lock::recording();
    let recorded = need!(process::run_perf(truth.on(&mut command)));
    drop(lock);
    assert_eq!(recorded.code(), Some(0), "{recorded}");
    let names = |out: &str, args: &[&str]| {
        let out = place.path().join(out);
        let paths = [
            "import".as_ref(),
            data.as_os_str(),
            "-o".as_ref(),
            out.as_os_str(),
        ];
        let args = args.iter().map(std::ffi::OsStr::new);
        let imported = pebs_trace(paths.into_iter().chain(args));
        assert!(imported.code() < Some(2), "{imported}");
        let trace = Trace::open(&out);
        let names = trace.function_names();
        let stacks = trace.stacks();
        let frames = stacks.into_iter().flat_map(|it| it.frames);
        frames
            .filter_map(|id| names.get(&id).cloned())
            .collect::<HashSet<String>>()
    };
    let plain = names("plain", &[]);
    assert!(
        plain.contains("leaf") && !plain.contains("truth_work"),
        "{plain:?}"
    );
    let inlined = names("inlined", &["--inlined"]);
    assert!(
        inlined.contains("leaf") && inlined.contains("truth_work"),
        "{inlined:?}"
    );
}

/// Functions of the kernel have names if the recording identifies its kernel: at its end, or where it was mapped.
#[test]
fn kernel_functions() {
    need!(machine::root());
    let perf = need!(machine::program("perf"));
    let place = tempfile::tempdir().unwrap();
    for how in ["--no-buildid-mmap", "--buildid-mmap"] {
        let [data, out] = ["perf.data", "trace"].map(|name| place.path().join(name));
        let _ = std::fs::remove_dir_all(&out);
        let lock = Lock::recording();
        let mut command = Command::new(&perf);
        // perf 6.1 falls over eBPF programs that go while it looks at them.
        command.args(["record", "--no-bpf-event", "--sample-cpu", how]);
        command.args(["-e", "cpu-clock", "-c", "100000", "-o"]);
        command
            .arg(&data)
            .args(["--", "dd", "if=/dev/zero", "of=/dev/null"]);
        let recorded = process::run(command.args(["bs=1M", "count=2000"]));
        drop(lock);
        if recorded.code() != Some(0) {
            println!("SKIP perf can't record with {how} here: {recorded}");
            continue;
        }
        let args = ["import".as_ref(), data.as_os_str(), "-o".as_ref()];
        let imported = pebs_trace([&args[..], &[out.as_os_str()]].concat());
        assert_eq!(imported.code(), Some(0), "{imported}");
        let trace = Trace::open(&out);
        let names = trace.function_names();
        let samples = trace.samples();
        let in_kernel = samples.iter().filter(|it| it.flags & SAMPLE_KERNEL != 0);
        let named = in_kernel.filter(|it| names.contains_key(&it.function_id));
        assert!(named.count() > 50, "{how}: {imported}");
    }
}
