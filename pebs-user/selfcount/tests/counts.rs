//! Compares the real kernel's counts with what this program did. Software events and breakpoints work everywhere; tests
//! that need a PMU print SKIP without one.
#![expect(
    clippy::unwrap_used,
    reason = "integration tests: a panic is the report"
)]

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use pebs_selfcount::{Count, Error, Group, Mapping, Options, ReadPath, SyscallReason, events};

/// Opens a group of this thread; `None` where perf events are forbidden.
fn open(options: Options, names: &str) -> Option<Group> {
    match options.open(events(names).unwrap()) {
        Ok(group) => Some(group),
        Err(error @ Error::Denied { .. }) => {
            eprintln!("SKIP {error}: {}", error.hint().unwrap());
            None
        }
        Err(error) => panic!("{error}: {error:?}"),
    }
}

/// Opens or ends the test.
macro_rules! open {
    ($names:expr) => {
        open!(Options::default(), $names)
    };
    ($options:expr, $names:expr) => {
        match open($options, $names) {
            Some(group) => group,
            None => return,
        }
    };
}

/// Whether the CPU's counters are available.
fn has_pmu() -> bool {
    let devices = Path::new("/sys/bus/event_source/devices");
    devices.join("cpu").exists() || devices.join("cpu_core").exists()
}

/// Counts while `work` runs, from one read to the next.
fn during(group: &mut Group, work: impl FnOnce()) -> Vec<Count> {
    let before = group.read().unwrap().to_vec();
    work();
    let after = group.read().unwrap();
    let pairs = after.iter().zip(&before);
    pairs.map(|(after, before)| after.since(before)).collect()
}

mod memory {
    //! Pages that are not there until they are touched.
    #![expect(unsafe_code, reason = "a mapping of its own")]

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    /// Maps this many pages and touches each.
    pub fn touch(pages: usize) {
        let page = rustix::param::page_size();
        let len = pages * page;
        // SAFETY: a new mapping, written within its length, and unmapped when nothing refers to it.
        unsafe {
            let at = mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
            .unwrap();
            // Kernels without huge pages refuse the advice and need it not.
            let _ = madvise(at, len, Advice::LinuxNoHugepage);
            for n in 0..pages {
                at.cast::<u8>().add(n * page).write_volatile(1);
            }
            munmap(at, len).unwrap();
        }
    }
}

/// One fault for each page touched.
#[test]
fn page_faults() {
    let mut group = open!("page-faults:u,minor-faults:u,major-faults:u");
    group.start().unwrap();
    // Run once before, so that the code itself is mapped.
    during(&mut group, || memory::touch(1));
    assert_eq!(during(&mut group, || {})[0].scaled(), Some(0.0));
    for pages in [1, 64, 1_000] {
        let counts = during(&mut group, || memory::touch(pages));
        let values: Vec<_> = counts.iter().map(Count::scaled).collect();
        let expected = pages as f64;
        assert_eq!(values, [Some(expected), Some(expected), Some(0.0)]);
    }
    assert_eq!(
        group.read_path(),
        ReadPath::Syscall(SyscallReason::NoCounter)
    );
}

/// Context switches of a thread as getrusage counts them.
#[test]
fn context_switches() {
    // Without permission to count the kernel there is nothing to see: it does the switches.
    let mut group = open!("context-switches");
    let switches = || {
        let usage = usage::of_thread();
        (usage.ru_nvcsw + usage.ru_nivcsw).cast_unsigned()
    };
    let outer = switches();
    group.start().unwrap();
    let inner = switches();
    for _ in 0..50 {
        std::thread::sleep(Duration::from_micros(200));
    }
    let inner = switches() - inner;
    group.stop().unwrap();
    let outer = switches() - outer;
    let value = group.read().unwrap()[0].value;
    assert!(
        (inner..=outer).contains(&value),
        "{inner} <= {value} <= {outer}"
    );
    assert!(value >= 50, "{value}");
}

mod usage {
    //! The kernel's own statistics of this thread.
    #![expect(unsafe_code, reason = "getrusage has no safe binding")]

    pub fn of_thread() -> libc::rusage {
        // SAFETY: a struct of integers, which the call fills in.
        unsafe {
            let mut usage = std::mem::zeroed();
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
            usage
        }
    }
}

/// The function that breakpoints count.
#[inline(never)]
extern "C" fn counted(n: u64) -> u64 {
    black_box(n) + 1
}

/// Another function with the same calls, not counted by any event.
#[inline(never)]
extern "C" fn not_counted(n: u64) -> u64 {
    black_box(n) + 2
}

fn breakpoint() -> String {
    format!("mem:{:#x}:x:u", counted as *const () as usize)
}

fn call(times: u64) {
    for n in 0..times {
        black_box(counted(n) + not_counted(n));
    }
}

/// Each execution counts once; none counts while the group is stopped, or in another thread.
#[test]
fn breakpoints() {
    let mut group = open!(&format!("{},page-faults:u,task-clock:u", breakpoint()));
    call(3);
    assert_eq!(group.read().unwrap()[0].value, 0);
    assert_eq!(group.read().unwrap()[0].scaled(), None, "it never ran");
    group.start().unwrap();
    for times in [0, 1, 1_000] {
        let counts = during(&mut group, || call(times));
        assert_eq!(counts[0].scaled(), Some(times as f64));
        assert!(
            counts[0].is_exact() && counts[0].enabled_ns > 0,
            "{counts:?}"
        );
        assert!(counts[2].value <= counts[2].enabled_ns * 2, "{counts:?}");
    }
    let elsewhere = during(&mut group, || {
        std::thread::scope(|scope| {
            scope.spawn(|| call(100));
        });
    });
    assert_eq!(elsewhere[0].value, 0);
    group.stop().unwrap();
    let stopped = during(&mut group, || call(100));
    assert_eq!((stopped[0].value, stopped[0].scaled()), (0, None));
    assert_eq!(group.read().unwrap()[0].value, 1_001);
    // From 0 again, times included.
    group.reset().unwrap();
    assert_eq!(group.read().unwrap()[0], Count::default());
    group.start().unwrap();
    call(7);
    group.stop().unwrap();
    assert_eq!(group.read().unwrap()[0].scaled(), Some(7.0));
    assert_eq!(group.len(), 3);
}

/// Events of several PMUs of the kernel in one group, whichever leads: all count from the start, without a switch.
#[test]
fn mixed_groups() {
    let names = [
        "page-faults:u",
        "task-clock:u",
        &breakpoint(),
        "cpu-clock:u",
    ];
    for leader in 0..names.len() {
        let mut rotated = names;
        rotated.rotate_left(leader);
        let mut group = open!(&rotated.join(","));
        group.start().unwrap();
        memory::touch(20);
        call(5);
        // Starting and reading the group takes part of a short time.
        let until = Instant::now() + Duration::from_millis(20);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        let mut counts = group.read().unwrap().to_vec();
        counts.rotate_right(leader);
        // The first run has mapped the code.
        assert!(counts[0].value >= 20, "{rotated:?}: {counts:?}");
        assert_eq!(counts[2].value, 5, "{rotated:?}: {counts:?}");
        for clock in [1, 3] {
            let part = counts[clock].value as f64 / counts[clock].enabled_ns as f64;
            assert!((0.5..1.5).contains(&part), "{rotated:?}: {counts:?}");
        }
    }
}

/// Threads that are started later count with `inherit`, also after they ended, and can't be read by `rdpmc`.
#[test]
fn inherited() {
    let options = Options {
        inherit: true,
        ..Options::default()
    };
    let mut group = open!(options, &breakpoint());
    group.start().unwrap();
    call(10);
    std::thread::scope(|scope| {
        scope.spawn(|| call(100));
        scope.spawn(|| call(1_000));
    });
    assert_eq!(group.read().unwrap()[0].value, 1_110);
    group.reset().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| call(5));
    });
    assert_eq!(
        group.read().unwrap()[0].value,
        5,
        "what children counted before is gone"
    );
    assert_eq!(
        group.read_path(),
        ReadPath::Syscall(SyscallReason::Inherited)
    );
}

/// A CPU has four breakpoints: the fifth is refused, with its name.
#[test]
fn too_many_breakpoints() {
    let name = |n: usize| format!("mem:{:#x}:x:u", counted as *const () as usize + n);
    let names: Vec<String> = (0..5).map(name).collect();
    match Group::open(events(&names.join(",")).unwrap()) {
        Err(Error::Denied { .. }) => eprintln!("SKIP perf_event_open is not allowed"),
        Err(error @ Error::NoCounter { .. }) => {
            // Other tests use breakpoints, too.
            let text = error.to_string();
            assert!(names.iter().any(|name| text.contains(name)), "{text}");
            assert!(error.hint().is_some());
        }
        other => panic!("{other:?}"),
    }
}

/// The error of an unprivileged thread names what it may count instead.
#[test]
fn refused() {
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    let paranoid: i32 = paranoid.trim().parse().unwrap();
    if !rustix::process::geteuid().is_root() || paranoid < 2 {
        return eprintln!("SKIP needs root to be dropped, and kernel.perf_event_paranoid of 2");
    }
    let tried = std::thread::spawn(move || {
        rights::drop_in_this_thread();
        let of = |name| Group::open(events(name).unwrap()).map(|group| group.len());
        (of("page-faults"), of("page-faults:u"))
    });
    let (whole, user) = tried.join().unwrap();
    let error = whole.unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot open event page-faults: permission denied"
    );
    let hint = error.hint().unwrap();
    assert!(
        hint.contains(&format!("kernel.perf_event_paranoid is {paranoid}")),
        "{hint}"
    );
    assert!(hint.contains("page-faults:u"), "{hint}");
    assert_eq!(user.is_ok(), paranoid == 2);
}

mod rights {
    //! Rights are a thread's own for the kernel.
    #![expect(unsafe_code, reason = "only the system call changes one thread alone")]

    pub fn drop_in_this_thread() {
        const NOBODY: libc::uid_t = 65_534;
        // SAFETY: changes the user ids of this thread, which touches no memory and ends soon.
        let done = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        assert_eq!(done, 0);
    }
}

/// Without a PMU hardware events are refused by name, with the available ones.
#[test]
fn without_pmu() {
    if has_pmu() {
        return eprintln!("SKIP this machine has a PMU");
    }
    for name in ["cycles:u", "L1-dcache-load-misses:u", "r01c2:u"] {
        match Group::open(events(&format!("page-faults:u,{name}")).unwrap()) {
            Err(Error::Denied { .. }) => return eprintln!("SKIP perf_event_open is not allowed"),
            Err(error) => {
                assert_eq!(
                    error.to_string(),
                    format!("cannot open event {name}: this machine does not have it")
                );
                assert!(error.hint().unwrap().contains("page-faults"));
            }
            Ok(group) => panic!("{group:?}"),
        }
    }
}

/// With a PMU: `rdpmc` reads while the group runs, `read()` when it is stopped, and both count the same loop equally.
#[test]
fn with_pmu() {
    if !has_pmu() {
        return eprintln!("SKIP no PMU");
    }
    let spin = || {
        for n in 0..1_000_000_u64 {
            black_box(n);
        }
    };
    let mut found = Vec::new();
    for mapping in [
        Mapping::Populate,
        Mapping::Touch,
        Mapping::OnDemand,
        Mapping::Never,
    ] {
        let options = Options {
            mapping,
            ..Options::default()
        };
        let mut group = open!(options, "instructions:u,branches:u");
        group.start().unwrap();
        let counts = during(&mut group, spin);
        let path = group.read_path();
        if mapping == Mapping::Never {
            assert_eq!(path, ReadPath::Syscall(SyscallReason::NotMapped));
        } else if path != ReadPath::Rdpmc {
            eprintln!("note: {path:?}");
        }
        found.push(counts[0].scaled().unwrap());
        group.stop().unwrap();
        assert!(counts[0].value > counts[1].value, "{counts:?}");
        group.read().unwrap();
        assert!(matches!(group.read_path(), ReadPath::Syscall(_)));
    }
    let (least, most) = found.iter().fold((f64::MAX, 0.0), |(a, b): (f64, f64), x| {
        (a.min(*x), b.max(*x))
    });
    assert!(most < 1.01 * least, "{found:?}");
}

/// An empty group is refused.
#[test]
fn empty() {
    assert!(matches!(Group::open([]), Err(Error::NoEvent)));
}
