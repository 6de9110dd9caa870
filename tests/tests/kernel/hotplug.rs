//! A CPU that is offline when a recording begins, and comes online in it.

use std::fs;
use std::path::Path;
use std::process::Command;

use pebs_tests::locks::Lock;
use pebs_tests::recording::{Live, Recorder};
use pebs_tests::workload::{TruthFile, Workload};
use pebs_tests::{check, machine, need, process};
use rustix::process::Signal;

/// The switch of the CPU that goes and comes.
const CPU_1: &str = "/sys/devices/system/cpu/cpu1/online";

/// Runs a workload to its end on it.
fn run_there(taskset: &Path, workload: &Workload, items: &str) -> TruthFile {
    let truth = TruthFile::new();
    let mut command = Command::new(taskset);
    command.args(["-c", "1"]).arg(&workload.path).arg(items);
    let ran = process::run(truth.on(&mut command));
    assert_eq!(ran.code(), Some(0), "{ran}");
    truth
}

/// Descriptors of counters that the tool has.
fn counters(live: &Live) -> usize {
    let listing = fs::read_dir(format!("/proc/{}/fd", live.tool.pid()));
    let links = listing.into_iter().flatten().flatten();
    let names = links.filter_map(|link| fs::read_link(link.path()).ok());
    names
        .filter(|name| name.ends_with("anon_inode:[perf_event]"))
        .count()
}

/// Returns once the tool has more than `before` counters, so some on the new CPU: the others follow at once.
fn wait_for_counters(live: &Live, before: usize) {
    process::wait_until("no counters for the CPU that came", || {
        counters(live) > before
    });
    let mut seen = (0, 0);
    process::wait_until("the counters change all the time", || {
        let now = counters(live);
        seen = (now, if now == seen.0 { seen.1 + 1 } else { 0 });
        seen.1 > 100
    });
}

/// Starts a recording while the CPU is offline, then brings the CPU online; returns the recording once the CPU is
/// sampled. `None`: the CPU can't be taken offline.
fn start_before_it_comes(workload: &Workload, args: &[&str]) -> Option<Live> {
    // Without it another test may have the CPU offline.
    let lock = Lock::recording();
    let offline = machine::cpus(2).ok().and_then(|()| Offline::take(CPU_1))?;
    let recorder = Recorder::new(&workload.spec(super::ID));
    let live = recorder.under(lock).args(args).start();
    drop(offline);
    live.until_rows("losses", 1);
    Some(live)
}

/// A CPU's switch, turned on again when dropped.
struct Offline(&'static str);

impl Offline {
    fn take(switch: &'static str) -> Option<Self> {
        fs::write(switch, "0").ok().map(|()| Self(switch))
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        let _ = fs::write(self.0, "1");
    }
}

/// Threads on it are sampled like everywhere else, with either transport.
#[test]
fn comes_online() {
    need!(machine::root());
    let taskset = need!(machine::program("taskset"));
    let workload = Workload::build("plain");
    for transport in ["bpf", "bulk"] {
        let args = [
            "--transport",
            transport,
            "--event",
            "cpu-clock",
            "--reset",
            "20000",
        ];
        let Some(live) = start_before_it_comes(&workload, &args) else {
            return println!("SKIP CPU 1 can't be taken offline");
        };
        let truth = run_there(&taskset, &workload, "5000");
        let recording = live.stop();
        let trace = recording.trace();
        check::whole_visits(&trace, &truth.read());
        let inside = |sample: &&pebs_tests::trace::Sample| sample.visit_id.is_some();
        let samples = trace.samples();
        let on_it = samples
            .iter()
            .filter(inside)
            .filter(|it| it.cpu == 1)
            .count();
        assert!(on_it > 0, "{transport}: {}", recording.tool);
        // Until it was sampled its threads are unknown.
        let losses = trace.losses();
        let mut gaps = losses.iter().filter(|it| it.reason == "cpu_came_online");
        let gap = gaps.next().unwrap_or_else(|| panic!("{losses:?}"));
        assert_eq!((gap.cpu, gap.records), (Some(1), None), "{gap:?}");
        assert!(gap.begin_ns < gap.end_ns, "{gap:?}");
        assert!(gaps.next().is_none(), "{losses:?}");
    }
}

/// A thread that was followed from before goes there, and is sampled on.
#[test]
fn thread_goes_there() {
    need!(machine::root());
    let taskset = need!(machine::program("taskset"));
    let workload = Workload::build("plain");
    for transport in ["bpf", "bulk"] {
        // Without it another test may have the CPU offline.
        let lock = Lock::recording();
        need!(machine::cpus(2));
        let Some(offline) = Offline::take(CPU_1) else {
            return println!("SKIP CPU 1 can't be taken offline");
        };
        let mut target = workload.start(&["5000"]);
        let pid = target.process.pid();
        let args = ["--event", "cpu-clock", "--reset", "20000"];
        let live = Recorder::new(&workload.spec(super::ID))
            .under(lock)
            .args(&["--transport", transport])
            .args(&args)
            .attach(pid);
        let before = counters(&live);
        drop(offline);
        wait_for_counters(&live, before);
        let moved = process::run(Command::new(&taskset).args(["-cp", "1", &pid.to_string()]));
        assert_eq!(moved.code(), Some(0), "{moved}");
        target.go();
        let (_, truth) = target.finish();
        let recording = live.stop();
        let trace = recording.trace();
        check::whole_visits(&trace, &truth);
        let mut samples = trace.samples();
        samples.retain(|sample| sample.visit_id.is_some());
        let there = samples.iter().all(|sample| sample.cpu == 1);
        assert!(there && samples.len() > 100, "{transport}: {samples:?}");
    }
}

/// A CPU that goes and comes back unobserved is sampled again.
#[test]
fn goes_and_comes() {
    need!(machine::root());
    let taskset = need!(machine::program("taskset"));
    let workload = Workload::build("plain");
    for transport in ["bpf", "bulk"] {
        // Without it another test may have the CPU offline.
        let lock = Lock::recording();
        need!(machine::cpus(2));
        let args = ["--transport", transport, "--event", "cpu-clock"];
        let live = Recorder::new(&workload.spec(super::ID))
            .under(lock)
            .args(&args)
            .start();
        // At once: the tool may be about to look after CPUs for the first time.
        live.tool.signal(Signal::STOP);
        let offline = Offline::take(CPU_1);
        let was_taken = offline.is_some();
        drop(offline);
        live.tool.signal(Signal::CONT);
        if !was_taken {
            return println!("SKIP CPU 1 can't be taken offline");
        }
        live.until_rows("losses", 1);
        let truth = run_there(&taskset, &workload, "5000");
        let recording = live.stop();
        let trace = recording.trace();
        check::whole_visits(&trace, &truth.read());
        let samples = trace.samples();
        let on_it = samples
            .iter()
            .filter(|it| it.cpu == 1 && it.visit_id.is_some());
        assert!(on_it.count() > 0, "{transport}: {}", recording.tool);
        let losses = trace.losses();
        let mut gaps = losses.iter().filter(|it| it.reason == "cpu_came_online");
        assert_eq!(gaps.next().map(|it| it.cpu), Some(Some(1)), "{losses:?}");
        assert!(gaps.next().is_none(), "{losses:?}");
    }
}

/// A process that ran there and ended before anybody could look at it has names: its mappings were reported.
#[test]
fn mappings_are_reported() {
    need!(machine::root());
    let taskset = need!(machine::program("taskset"));
    let workload = Workload::build("plain");
    let args = ["--event", "cpu-clock", "--reset", "20000"];
    let Some(live) = start_before_it_comes(&workload, &args) else {
        return println!("SKIP CPU 1 can't be taken offline");
    };
    live.tool.signal(Signal::STOP);
    run_there(&taskset, &workload, "2000");
    live.tool.signal(Signal::CONT);
    let recording = live.stop();
    let trace = recording.trace();
    let names = trace.function_names();
    let samples = trace.samples();
    let mut inside = samples.iter().filter(|it| it.visit_id.is_some());
    let is_handle = |name: &String| name == "handle";
    let named = inside.any(|it| it.cpu == 1 && names.get(&it.function_id).is_some_and(is_handle));
    assert!(named, "{}", recording.tool);
}

/// Its time is recorded, too: its clock is compared with the others' from its arrival.
#[test]
fn clock_is_compared() {
    need!(machine::root());
    let taskset = need!(machine::program("taskset"));
    let workload = Workload::build("plain");
    let args = ["--event", "cpu-clock", "--sample-clock", "perf"];
    let Some(live) = start_before_it_comes(&workload, &args) else {
        return println!("SKIP CPU 1 can't be taken offline");
    };
    // Ten readings a second, as soon as it is known; some machines have none for an idle CPU.
    let busy = [
        "-c",
        "1",
        "timeout",
        "1.5",
        "sh",
        "-c",
        "while :; do :; done",
    ];
    let ended = Command::new(&taskset).args(busy).status().unwrap();
    assert_eq!(ended.code(), Some(124), "the time is over");
    let recording = live.stop();
    let trace = recording.trace();
    let cpus = trace.json["ledger"]["cpus"].as_array().unwrap();
    // No traced thread ran: the only data are readings of clocks.
    let on_it = cpus.iter().find(|it| it["cpu"] == 1);
    let read = on_it.and_then(|it| it["tasks"]["written"].as_u64());
    assert!(read >= Some(3), "{cpus:?}");
}
