//! Time off the CPU within visits.

use std::collections::HashMap;

use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::trace::Wait;
use pebs_tests::truth::Truth;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

/// Number of sleeping items that may not sleep: a thread may lose the CPU just before it sleeps, and then the awaited
/// event comes first.
const AWAKE: usize = 2;

/// Number of wake-ups by a timer, of twenty, that may be missing: a kernel may have a task over which it runs no eBPF
/// program, and the timer may interrupt that one. Switches from it are missing, too: the thread that it displaced is
/// seen again at its next record.
const MISSING_SWITCHES: usize = 3;

/// Visits that sleep: the time off the CPU is at least the requested one, and at most that measured by the program
/// around its sleep.
#[test]
fn sleeper() {
    need!(machine::root());
    let workload = Workload::build("sleeper");
    let alone = workload.run(&["60"]);
    let (recording, truth) = Recorder::new(&workload.spec(super::ID)).workload(&workload, &["60"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    let (waits, zero) = (trace.waits(), trace.monotonic_ns());
    let (mut awake, mut missing) = (0, 0);
    for visit in trace.visits() {
        let sleeping = |wait: &&Wait| wait.visit_id == visit.visit_id && wait.state == "sleeping";
        let slept: Vec<&Wait> = waits.iter().filter(sleeping).collect();
        let asked_ms = if visit.item_id % 5 == 0 {
            0
        } else {
            1 + visit.item_id as i64 % 3
        };
        let total: i64 = slept.iter().map(|wait| wait.length_ns()).sum();
        let off: i64 = waits
            .iter()
            .filter(|wait| wait.visit_id == visit.visit_id)
            .map(Wait::length_ns)
            .sum();
        let oncpu = visit.oncpu_ns.unwrap();
        assert_eq!(
            oncpu + off,
            visit.duration_ns.unwrap(),
            "{visit:?} {slept:?}"
        );
        match truth.calls.iter().find(|call| call.item == visit.item_id) {
            None => assert_eq!(total, 0, "an item that does not sleep: {slept:?}"),
            Some(nap) => {
                let (enter, leave) = (nap.enter as i64 - zero, nap.leave as i64 - zero);
                for wait in &slept {
                    assert!(
                        enter <= wait.begin_ns + check::CLOCK_SLACK_NS,
                        "{wait:?} outside of {enter}..{leave}"
                    );
                    missing += usize::from(wait.end_ns > leave + check::CLOCK_SLACK_NS);
                }
                let Some(first) = slept.first() else {
                    // The timer ran out before it slept, as it lost the CPU in between; or both switches are missing.
                    if off > 0 {
                        awake += 1;
                    } else {
                        missing += 1;
                    }
                    continue;
                };
                // From its switch out to its switch in; the timer itself runs from a little before.
                let before_switch = total + (first.begin_ns - enter);
                assert!(
                    before_switch >= asked_ms * 1_000_000,
                    "{slept:?}, {asked_ms} ms asked"
                );
            }
        }
    }
    assert!(awake <= AWAKE, "{awake} of 48 did not sleep");
    assert!(
        missing <= MISSING_SWITCHES,
        "{missing} of 48 waits are missing or end too late"
    );
    check::unharmed(&recording, &alone);
}

/// The function that a sleeping thread was in is named.
#[test]
fn waits_name_their_function() {
    need!(machine::root());
    let workload = Workload::build("sleeper");
    let (recording, _) = Recorder::new(&workload.spec(super::ID))
        .beside()
        .workload(&workload, &["20"]);
    let trace = recording.trace();
    let names = trace.function_names();
    let waits = trace.waits();
    let sleeps: Vec<&Wait> = waits
        .iter()
        .filter(|wait| wait.state == "sleeping")
        .collect();
    let once = 16 - AWAKE..=16;
    assert!(once.contains(&sleeps.len()), "four of five sleep, once");
    for wait in sleeps {
        let name = wait.function_id.and_then(|id| names.get(&id));
        assert!(
            name.is_some_and(|name| name.contains("nanosleep")),
            "{wait:?} {name:?}"
        );
    }
}

/// Waits with the recorded threads that ended them; the truth's own items.
fn with_partners(args: &[&str]) -> (Recording, Truth, Vec<Wait>) {
    let workload = Workload::build("partners");
    let alone = workload.run(args);
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .before_others()
        .args(&["--with", "waits"])
        .workload(&workload, args);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    check::unharmed(&recording, &alone);
    let waits = trace.waits();
    (recording, truth, waits)
}

/// A thread that waits for another is woken by it; one that sleeps, by an interrupt.
#[test]
fn who_wakes() {
    need!(machine::root());
    let (recording, truth, waits) = with_partners(&["40"]);
    let items: HashMap<u64, u64> = recording
        .trace()
        .visits()
        .iter()
        .map(|visit| (visit.visit_id, visit.item_id))
        .collect();
    let (mut by_partner, mut by_timer, mut missing) = (0, 0, 0);
    let mut by_interrupt = None;
    for wait in waits.iter().filter(|wait| wait.state == "sleeping") {
        let by = (wait.woken_by.as_deref(), wait.woken_by_tid);
        if items[&wait.visit_id] % 2 == 1 {
            assert_eq!(
                by,
                (Some("partner"), Some(truth.notes["partner"])),
                "{wait:?}"
            );
            by_partner += 1;
        } else if by == (None, None) {
            assert_eq!(wait.runnable_ns, None, "{wait:?}");
            missing += 1;
            continue;
        } else {
            assert_eq!(by, (Some("[interrupt]"), None), "{wait:?}");
            by_timer += 1;
            by_interrupt = Some(items[&wait.visit_id]);
        }
        let runnable = wait.runnable_ns.unwrap_or(-1);
        assert!((0..=wait.length_ns()).contains(&runnable), "{wait:?}");
    }
    let cost = &recording.trace().json["cost"];
    assert!(
        cost["encounters"].as_u64() >= Some(by_timer) && cost["encounters_ns"].is_number(),
        "{cost}"
    );
    assert!(missing <= MISSING_SWITCHES, "{waits:?}");
    let enough = 20 - AWAKE;
    let timers = by_timer as usize + missing;
    assert!(by_partner >= enough && timers >= enough, "{waits:?}");
    let dir = recording.dir();
    let item = format!("--item={}", by_interrupt.unwrap_or_default());
    let explained = pebs_trace(["explain".as_ref(), dir.as_os_str(), item.as_ref()]);
    assert!(
        explained.stdout.contains("woken by [interrupt]"),
        "{explained}"
    );
}

/// A wait by preemption by a thread of the same process is marked as such, and its thread was runnable all the time.
#[test]
fn who_preempts() {
    need!(machine::root());
    let (_, truth, waits) = with_partners(&["10", "1"]);
    let of_hog = |wait: &&Wait| wait.preempted_by.as_deref() == Some("hog");
    let by_hog: Vec<&Wait> = waits.iter().filter(of_hog).collect();
    // It runs every other ms, and only the kernel's own threads before it.
    assert!(by_hog.len() >= 10, "{waits:?}");
    for wait in by_hog {
        assert_eq!(wait.state, "runnable", "{wait:?}");
        assert_eq!(wait.preempted_by_tid, Some(truth.notes["hog"]), "{wait:?}");
        assert_eq!(wait.runnable_ns, Some(wait.length_ns()), "{wait:?}");
        assert_eq!(wait.woken_by, None, "{wait:?}");
    }
}

/// Item, and names on the stack: in the kernel, and in user space.
type WaitPath = (u64, Vec<String>, Vec<String>);

/// Records `locks`, and returns for each wait in an item, except preemptions, the item and the names on its stack: in
/// the kernel and in user space.
fn stacks_of_waits(name: &str) -> (Recording, Vec<WaitPath>) {
    let workload = Workload::build(name);
    let alone = workload.run(&["60"]);
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .beside()
        .args(&["--with", "waits", "--call-graph", "fp", "--reset", "100000"])
        .workload(&workload, &["60"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    check::unharmed(&recording, &alone);
    let (names, in_kernel) = (trace.function_names(), trace.kernel_functions());
    let stacks: HashMap<u64, Vec<u64>> = trace
        .stacks()
        .into_iter()
        .map(|stack| (stack.stack_id, stack.frames))
        .collect();
    let items: HashMap<u64, u64> = trace
        .visits()
        .iter()
        .map(|visit| (visit.visit_id, visit.item_id))
        .collect();
    let mut found = Vec::new();
    for wait in trace.waits() {
        let Some(stack) = wait.stack_id.map(|id| &stacks[&id]) else {
            assert_eq!(wait.state, "runnable", "{wait:?}");
            continue;
        };
        let first_in_user = stack.iter().find(|id| !in_kernel.contains(id)).copied();
        assert_eq!(wait.function_id, first_in_user, "{wait:?}");
        let (kernel, user): (Vec<u64>, Vec<u64>) =
            stack.iter().partition(|id| in_kernel.contains(id));
        let named = |ids: Vec<u64>| ids.iter().filter_map(|id| names.get(id).cloned()).collect();
        if wait.state == "sleeping" {
            found.push((items[&wait.visit_id], named(kernel), named(user)));
        }
    }
    (recording, found)
}

/// Expected reason of a wait of an item of `locks`, and the functions above it.
fn truth_of_locks(item: u64) -> (&'static str, &'static [&'static str]) {
    match item % 6 {
        1 | 5 => ("futex", &["call", "take", "lock_table", "handle"]),
        2 | 4 => (
            "nanosleep",
            &["call", "pause_for", "read_page", "refill", "handle"],
        ),
        _ => ("nanosleep", &["nanosleep", "library", "handle"]),
    }
}

/// Each wait has the stack at which the thread blocked, starting with the kernel's function and without the switch
/// itself.
#[test]
fn where_it_blocks() {
    need!(machine::root());
    let (recording, stacks) = stacks_of_waits("locks");
    let (mut met, mut locked) = ([0; 3], None);
    for (item, kernel, user) in stacks {
        let (what, path) = truth_of_locks(item);
        assert!(kernel.iter().any(|name| name.contains(what)), "{kernel:?}");
        let of_switch = |name: &String| name.contains("schedule") || name.contains("bpf");
        assert!(!kernel.iter().any(of_switch), "{kernel:?}");
        if item % 3 == 0 {
            // The C library's own function comes first; until its file is known its callers are not.
            let whole = user.get(1..).is_some_and(|user| starts(user, path));
            assert!(whole || starts(&user[1..], &["handle", "main"]), "{user:?}");
            met[2] += u64::from(whole);
        } else {
            assert!(starts(&user, path), "{user:?}");
            met[usize::from(what == "futex")] += 1;
            locked = locked.or((what == "futex").then_some(item));
        }
    }
    let enough = 20 - AWAKE as u64;
    let many = met[0] >= enough && met[1] >= enough && met[2] >= 10;
    assert!(many, "{met:?}");
    let dir = recording.dir();
    let item = format!("--item={}", locked.unwrap());
    let explained = pebs_trace(["explain".as_ref(), dir.as_os_str(), item.as_ref()]);
    let path = "<- call <- take <- lock_table <- handle <- main";
    assert!(explained.stdout.contains(path), "{explained}");
    let folded = pebs_trace(["export".as_ref(), dir.as_os_str(), "--to=folded".as_ref()]);
    let path = "main;handle;refill;read_page;pause_for;call;";
    assert!(folded.stdout.contains(path), "{folded}");
}

fn starts(names: &[String], with: &[&str]) -> bool {
    names.len() >= with.len() && names.iter().zip(with).all(|(name, with)| name == with)
}

/// The same of a program without frame pointers: its unwind tables are followed, up to the thread's first function.
#[test]
fn where_it_blocks_without_frame_pointers() {
    need!(machine::root());
    let (recording, stacks) = stacks_of_waits("locks_no_frames");
    let (mut met, mut others) = (0, Vec::new());
    for (item, _, user) in stacks {
        let (_, path) = truth_of_locks(item);
        let of_library = usize::from(item % 3 == 0);
        let is_whole = user.last().is_some_and(|it| it == "_start");
        match is_whole && starts(&user[of_library..], path) {
            true => met += 1,
            false => others.push((item, user)),
        }
    }
    let ended = &recording.trace().json["unwound"];
    assert!(met >= 50, "{met}; {ended}; {others:?}");
}

/// Without `--with waits` the columns on other threads are null.
#[test]
fn others_are_not_recorded() {
    need!(machine::root());
    let workload = Workload::build("partners");
    let (recording, _) = Recorder::new(&workload.spec(super::ID))
        .beside()
        .workload(&workload, &["4"]);
    let waits = recording.trace().waits();
    let has_others = |wait: &Wait| {
        let others = wait.woken_by.is_some() || wait.preempted_by.is_some();
        others || wait.runnable_ns.is_some() || wait.stack_id.is_some()
    };
    assert!(
        !waits.is_empty() && !waits.iter().any(has_others),
        "{waits:?}"
    );
}

/// `--no-switches`: time off the CPU is unknown, not 0.
#[test]
fn no_switches() {
    need!(machine::root());
    let workload = Workload::build("sleeper");
    let (recording, truth) = Recorder::new(&workload.spec(super::ID))
        .beside()
        .args(&["--no-switches"])
        .workload(&workload, &["20"]);
    let trace = recording.trace();
    check::whole_visits(&trace, &truth);
    assert_eq!(trace.json["switches"], false);
    assert!(trace.visits().iter().all(|visit| visit.oncpu_ns.is_none()));
    assert!(trace.waits().is_empty());
}

/// Recordings until a mark waits for the lock of the mappings.
const ATTEMPTS: u32 = 5;

/// An item that never waits, beside a thread that holds the lock of the mappings: the wait of its marks for that lock
/// is pebs-trace's own, not the item's.
///
/// A mark waits only if both threads run at the same time, which other processes may prevent: one of several recordings
/// has to show it, no recording may show a wait of an item.
#[test]
fn marks_wait_for_mappings() {
    need!(machine::root());
    let workload = Workload::build("mappings");
    let alone = workload.run(&["20000"]);
    for _ in 0..ATTEMPTS {
        let (recording, truth) = Recorder::new(&workload.spec(super::ID))
            .before_others()
            .args(&["--reset", "1000000"])
            .workload(&workload, &["20000"]);
        let trace = recording.trace();
        check::whole_visits(&trace, &truth);
        let waits = trace.waits();
        let own: Vec<&Wait> = waits
            .iter()
            .filter(|wait| wait.state != "runnable")
            .collect();
        assert!(own.is_empty(), "{} waits: {:?}", own.len(), own.first());
        check::unharmed(&recording, &alone);
        let info = std::fs::read_to_string(recording.dir().join("trace.json")).unwrap();
        if info.contains("(mmap_lock)") {
            return;
        }
    }
    panic!("no mark waited in {ATTEMPTS} recordings");
}
