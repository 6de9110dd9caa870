use super::*;
use crate::failure::Hint as _;
use crate::pmu::host::fixtures;
use crate::units::CountUnit;

fn try_resolve(host: &Host, event: &str) -> Result<ResolvedEvent, EventError> {
    resolve(&event.parse().unwrap(), host, reset_value(16_000).unwrap())
}

fn resolved(host: &Host, event: &str) -> ResolvedEvent {
    try_resolve(host, event).unwrap_or_else(|error| panic!("{event}: {error}"))
}

/// Type, config and precise level, as perf encodes them.
fn code(host: &Host, event: &str) -> (u32, u64, u64) {
    let attr = resolved(host, event).attr;
    (attr.type_, attr.config, attr.precise_ip())
}

/// Names become the kernel's numbers on each machine.
#[test]
fn encodings() {
    let skylake = fixtures::skylake();
    let cases = [
        ("cpu-clock", (1, 0, 0)),
        ("task-clock", (1, 1, 0)),
        ("faults", (1, 2, 0)),
        ("cycles:pp", (0, 0, 2)),
        ("instructions:P", (0, 1, 3)),
        ("LLC-load-misses", (3, 0x1_0002, 0)),
        ("r01c2:p", (4, 0x1c2, 1)),
        ("cpu/event=0xc2,umask=0x1/pp", (4, 0x1c2, 2)),
        ("cpu/mem-loads/P", (4, 0x1cd, 3)),
        ("mem-loads", (4, 0x1cd, 0)),
        ("mem:0x1000:x", (5, 0, 0)),
    ];
    for (event, expect) in cases {
        assert_eq!(code(&skylake, event), expect, "{event}");
    }
    let zen4 = fixtures::zen4();
    assert_eq!(code(&zen4, "ibs_op/cnt_ctl=1/"), (10, 0x8_0000, 0));
    assert_eq!(code(&zen4, "cycles:P"), (0, 0, 2));
    assert_eq!(code(&fixtures::ice_lake(), "auto"), (4, 0x100, 2));
    assert_eq!(code(&skylake, "auto"), (4, 0x1c2, 2));
    assert_eq!(code(&fixtures::bare_guest(), "auto"), (1, 0, 0));
}

/// The hypervisor's mode alone would never give a sample for any event; combined with others it is harmless.
#[test]
fn no_mode() {
    for (host, event) in [
        (fixtures::skylake(), "cycles:hpp"),
        (fixtures::zen5(), "ibs_op//h"),
        (fixtures::bare_guest(), "auto:h"),
        (fixtures::bare_guest(), "page-faults:h"),
    ] {
        let error = try_resolve(&host, event).unwrap_err();
        assert!(matches!(error, EventError::NoMode { .. }), "{error}");
        assert!(error.hint().unwrap().contains("':u'"), "{event}");
    }
    let attr = resolved(&fixtures::skylake(), "cycles:uh").attr;
    assert_eq!((attr.exclude_user(), attr.exclude_kernel()), (0, 1));
}

/// Software events use CLOCK_MONOTONIC; hardware events never do, as that would replace the record's own time.
#[test]
fn clock_choice() {
    let host = fixtures::skylake();
    for event in ["cpu-clock", "page-faults", "mem:main:x", "context-switches"] {
        let event = resolved(&host, event);
        assert_eq!(
            (event.attr.use_clockid(), event.attr.clockid),
            (1, libc::CLOCK_MONOTONIC)
        );
        assert!(!event.perf_clock);
    }
    for event in ["cycles:pp", "r1c2", "cache-misses", "cpu/event=0xc0/"] {
        let event = resolved(&host, event);
        assert_eq!((event.attr.use_clockid(), event.attr.clockid), (0, 0));
        assert!(event.perf_clock && event.nmi);
    }
    let ibs = resolved(&fixtures::zen4(), "ibs_op//");
    assert!(ibs.attr.use_clockid() == 0 && ibs.perf_clock && ibs.nmi);
}

/// Before Linux 6.3 programs don't see the time of a sample: the program takes the time, with a note.
#[test]
fn clock_of_old_kernels() {
    use crate::pmu::host::KernelVersion;
    let mut host = fixtures::skylake();
    for (version, sees) in [(KernelVersion(6, 1), false), (KernelVersion(6, 3), true)] {
        host.version = Some(version);
        let event = resolved(&host, "cycles:pp");
        assert_eq!(event.perf_clock, sees);
        assert_eq!(event.notes.iter().any(|note| note == NO_SAMPLE_TIME), !sees);
        assert!(!resolved(&host, "cpu-clock").perf_clock);
    }
}

/// A clock without user mode does not count all time on the CPU, with a note; for one without kernel mode the note
/// says where that time goes.
#[test]
fn clocks_of_one_mode() {
    for (name, unit, note) in [
        ("cpu-clock", "ns", None),
        ("cpu-clock:uk", "ns", None),
        ("cpu-clock:u", "ns", Some("no time in the kernel")),
        ("task-clock:k", "events", Some("no time in user space")),
        (
            "software/config=0/k",
            "events",
            Some("no time in user space"),
        ),
    ] {
        let event = resolved(&fixtures::skylake(), name);
        assert_eq!(event.unit.name(), unit, "{name}");
        let noted = event
            .notes
            .iter()
            .any(|it| note.is_some_and(|note| it.contains(note)));
        assert_eq!(
            (noted, event.notes.len()),
            (note.is_some(), note.iter().len()),
            "{name}"
        );
    }
}

/// The same by option, with a single note.
#[test]
fn clocks_without_the_kernel() {
    for name in ["cpu-clock", "cpu-clock:u"] {
        let mut event = resolved(&fixtures::skylake(), name);
        event.exclude_kernel().unwrap();
        assert_eq!(
            (event.unit, event.notes.len()),
            (CountUnit::Ns, 1),
            "{name}"
        );
    }
}

/// Every event gives one interrupt per sample: fixed period, wake-up at each, no watermark.
#[test]
fn one_interrupt_per_sample() {
    for event in ["cpu-clock", "cycles:pp", "mem:main:x"] {
        let attr = resolved(&fixtures::skylake(), event).attr;
        assert_eq!((attr.freq(), attr.sample_period), (0, 16_000), "{event}");
        assert_eq!((attr.wakeup_events, attr.watermark()), (1, 0), "{event}");
        assert_eq!(
            (attr.disabled(), attr.read_format),
            (1, READ_FORMAT),
            "{event}"
        );
        let needed = sys::PERF_SAMPLE_TIME | sys::PERF_SAMPLE_IP | sys::PERF_SAMPLE_TID;
        assert_eq!(
            attr.sample_type & u64::from(needed),
            u64::from(needed),
            "{event}"
        );
    }
}

/// Modifiers become exclude bits; without any, all modes count.
#[test]
fn modes_become_bits() {
    let bits = |event: &str| {
        let attr = resolved(&fixtures::skylake(), event).attr;
        (attr.exclude_user(), attr.exclude_kernel())
    };
    assert_eq!(bits("cpu-clock"), (0, 0));
    assert_eq!(bits("cpu-clock:u"), (0, 1));
    assert_eq!(bits("cycles:kpp"), (1, 0));
    assert_eq!(bits("cycles:uk"), (0, 0));
}

/// `D` pins an event, and doesn't affect modes.
#[test]
fn pinned() {
    let host = fixtures::skylake();
    for (event, expected) in [
        ("cycles:pp", (0, 0)),
        ("cycles:D", (1, 0)),
        ("r1c2:uDP", (1, 1)),
    ] {
        let attr = resolved(&host, event).attr;
        assert_eq!((attr.pinned(), attr.exclude_kernel()), expected, "{event}");
    }
}

/// IBS accepts no exclude bit before `swfilt`: the program filters, with a note. With it the kernel filters.
#[test]
fn ibs_modes() {
    for text in ["ibs_op//u", "cycles:ppu", "ibs_op/cnt_ctl=1/u"] {
        let event = resolved(&fixtures::zen4(), text);
        let attr = event.attr;
        assert_eq!(
            (
                attr.exclude_kernel(),
                attr.exclude_hv(),
                attr.exclude_guest()
            ),
            (0, 0, 0)
        );
        assert_eq!(
            event.drop_in_program,
            DropModes {
                user: false,
                kernel: true
            },
            "{text}"
        );
        assert!(
            event.notes.iter().any(|note| note.contains("6.14")),
            "{text}"
        );

        let event = resolved(&fixtures::zen4_swfilt(), text);
        assert_eq!(
            (event.attr.exclude_kernel(), event.attr.config2),
            (1, 1),
            "{text}"
        );
        assert_eq!(event.drop_in_program, DropModes::default());
    }
    let core = resolved(&fixtures::zen4(), "cycles:u");
    assert_eq!(
        (core.attr.exclude_kernel(), core.attr.exclude_guest()),
        (1, 1)
    );
}

/// IBS counts in steps of 16: the value is rounded up, with a note.
#[test]
fn ibs_rounds() {
    let host = fixtures::zen4();
    let reset = reset_value(16_001).unwrap();
    for text in ["ibs_op//", "cycles:pp"] {
        let event = resolve(&text.parse().unwrap(), &host, reset).unwrap();
        assert_eq!(
            (event.reset.0.get(), event.attr.sample_period),
            (16_016, 16_016)
        );
        assert!(
            event.notes[0].contains("16001 became 16016"),
            "{:?}",
            event.notes
        );
    }
    let core = resolve(&"cycles".parse().unwrap(), &host, reset).unwrap();
    assert_eq!(core.attr.sample_period, 16_001);
}

/// A `period=` term replaces the reset value, a `name=` term the name; 0 is refused there too.
#[test]
fn own_terms() {
    let host = fixtures::skylake();
    let event = resolved(&host, "cpu/event=0xc0,period=4001,name=inst/pp");
    assert_eq!((event.name.as_str(), event.reset.0.get()), ("inst", 4_001));
    assert_eq!(event.attr.sample_period, 4_001);
    let error = try_resolve(&host, "cpu/event=0xc0,period=0/").unwrap_err();
    assert_eq!(error, EventError::ResetZero);
}

/// A breakpoint has the kernel's bits; a symbol is looked up later.
#[test]
fn breakpoints() {
    let host = fixtures::bare_guest();
    let event = resolved(&host, "mem:./app:main:x:u");
    assert_eq!(
        (event.attr.bp_type, event.attr.bp_len, event.attr.bp_addr),
        (4, 8, 0)
    );
    let EventClass::Breakpoint { symbol, access, .. } = event.class else {
        panic!("{:?}", event.class);
    };
    assert_eq!(
        (symbol.as_deref(), access.execute),
        (Some("./app:main"), true)
    );
    assert!(!event.nmi);
    let event = resolved(&host, "mem:0x1238/8:w");
    assert_eq!(
        (event.attr.bp_type, event.attr.bp_len, event.attr.bp_addr),
        (2, 8, 0x1238)
    );
    assert!(event.nmi, "a write by the kernel is handled like an NMI");
    assert_eq!(resolved(&host, "mem:0x1234").attr.bp_len, 4);
    assert!(
        !resolved(&host, "mem:main:x").nmi,
        "the kernel executes no user code"
    );
    assert!(resolved(&host, "mem:0xffffffff81000000:x").nmi);
}

/// Impossible requests are refused by name, with a hint.
#[test]
fn refusals() {
    let cases = [
        ("cycels", "unknown event 'cycels'", "cycles"),
        (
            "cycles:pp",
            "event 'cycles:pp' can't be counted: no hardware PMU here",
            "cpu-clock",
        ),
        ("r1c2", "event 'r1c2' can't be counted", "cpu-clock"),
        (
            "cpu/event=1/",
            "unknown PMU 'cpu': no hardware PMU here",
            "cpu-clock",
        ),
        ("gpu/event=1/", "unknown PMU 'gpu'", "software"),
        (
            "cs:u",
            "event 'context-switches:u' never happens in user mode",
            "leave out ':u'",
        ),
        (
            "cpu-clock:p",
            "event 'cpu-clock:p' has no precise level",
            "leave out ':p'",
        ),
        (
            "page-faults:P",
            "event 'page-faults:P' has no precise level",
            "leave out ':p'",
        ),
        (
            "mem:main:r",
            "breakpoint 'mem:main:r' can't stop at reads alone",
            "':rw'",
        ),
    ];
    for (event, message, hint) in cases {
        let error = try_resolve(&fixtures::bare_guest(), event).unwrap_err();
        assert!(error.to_string().starts_with(message), "{event}: {error}");
        assert!(
            error.hint().unwrap().contains(hint),
            "{event}: {:?}",
            error.hint()
        );
    }
    let error = try_resolve(&fixtures::skylake(), "cpu/evnt=1/").unwrap_err();
    assert!(
        error.hint().unwrap().contains("umask"),
        "{:?}",
        error.hint()
    );
}

/// Names of another CPU, of one kind of cores, and similar names are distinguished.
#[test]
fn names_that_are_not_here() {
    let cases = [
        (
            fixtures::ice_lake(),
            "uops_retired.all:pp",
            "unknown event 'uops_retired.all' on this CPU",
            "it exists on alderlake",
        ),
        (
            fixtures::skylake(),
            "mem_load_retired.l1_mis",
            "unknown event 'mem_load_retired.l1_mis'",
            "did you mean mem_load_retired.l1_miss",
        ),
        (
            fixtures::skylake(),
            "cpu/uops_retired.slots/",
            "unknown event 'uops_retired.slots' on this CPU",
            "icelake",
        ),
        (
            fixtures::zen4(),
            "uops_retired.all",
            "unknown event 'uops_retired.all' on this CPU",
            "broadwell",
        ),
        (
            fixtures::bare_guest(),
            "uops_retired.all:pp",
            "event 'uops_retired.all' can't be counted: no hardware PMU here",
            "cpu-clock",
        ),
        (
            fixtures::alder_lake(),
            "mem_load_retired.l1_miss:pp",
            "event 'mem_load_retired.l1_miss' is not on the cores of cpu_atom",
            "--event cpu_core/mem_load_retired.l1_miss/",
        ),
        (
            fixtures::alder_lake(),
            "cpu_atom/mem_load_retired.l1_miss/pp",
            "event 'mem_load_retired.l1_miss' is not on the cores of cpu_atom",
            "cpu_core",
        ),
        (
            fixtures::alder_lake(),
            "cpu/cycles/",
            "unknown PMU 'cpu'",
            "cpu_atom, cpu_core",
        ),
        (
            fixtures::skylake(),
            "cpu/cycles,umask=1/",
            "PMU cpu has no term 'umask'",
            "period",
        ),
        (
            fixtures::zen4(),
            "ibs_op/ldlat=128/",
            "PMU ibs_op has no term 'ldlat'",
            "'ldlat' needs Zen 5 and Linux 6.15 (here ibs_op has cnt_ctl, l3missonly); \
             ibs_op/l3missonly=1/ samples what missed the L3, ibs_op// --memory",
        ),
        (
            fixtures::zen3(),
            "ibs_op/ldlat=128/",
            "PMU ibs_op has no term 'ldlat'",
            "(here ibs_op has cnt_ctl); ibs_op// --memory",
        ),
        (
            fixtures::zen3(),
            "ibs_op/l3missonly=1/",
            "PMU ibs_op has no term 'l3missonly'",
            "needs Zen 4 and Linux 5.19",
        ),
        (
            fixtures::zen4(),
            "ibs_fetch/swfilt=1/",
            "PMU ibs_fetch has no term 'swfilt'",
            "':u' and ':k'",
        ),
        (
            fixtures::zen5(),
            "ibs_op/ldlat=64/",
            "cannot sample loads from 64 cycles on",
            "use ldlat=128,",
        ),
        (
            fixtures::zen5(),
            "ibs_op/ldlat=4000/",
            "cannot sample loads from 4000 cycles on",
            "use ldlat=2048,",
        ),
    ];
    for (host, event, message, hint) in cases {
        let error = try_resolve(&host, event).unwrap_err();
        assert!(error.to_string().starts_with(message), "{event}: {error}");
        let actual = error.hint().unwrap();
        assert!(actual.contains(hint), "{event}: {actual}");
        assert!(
            !actual.contains('\n') && actual.len() < 250,
            "one line: {actual}"
        );
    }
}

/// A precise level that the vendor does not back is warned of, not refused.
#[test]
fn doubtful_precision() {
    let host = fixtures::skylake();
    let warnings = |event: &str| resolved(&host, event).warnings;
    let warning = &warnings("l2_rqsts.miss:pp")[0];
    assert!(warning.text.contains("does not call l2_rqsts.miss precise"));
    let warning = &warnings("mem_trans_retired.load_latency_gt_64")[0];
    assert!(warning.text.contains("only when precise"), "{warning:?}");
    for event in [
        "l2_rqsts.miss",
        "uops_retired.all:pp",
        "cycles:pp",
        "r01c2:pp",
    ] {
        assert_eq!(warnings(event), [], "{event}");
    }
}

/// Threads are followed into their children; a CPU's idle time is excluded.
#[test]
fn targets() {
    let event = resolved(&fixtures::bare_guest(), "cpu-clock");
    let cpu = event.attr_for(Target::Cpu(Cpu(0)));
    assert_eq!((cpu.inherit(), cpu.exclude_idle()), (0, 1));
    let thread = event.attr_for(Target::Thread(crate::units::Tid(1)));
    assert_eq!((thread.inherit(), thread.exclude_idle()), (1, 0));
}

/// Leaving the kernel out works for every class that has user samples.
#[test]
fn exclude_kernel_later() {
    let mut clock = resolved(&fixtures::bare_guest(), "cpu-clock");
    clock.exclude_kernel().unwrap();
    assert_eq!(clock.attr.exclude_kernel(), 1);
    let mut ibs = resolved(&fixtures::zen4(), "ibs_op//");
    ibs.exclude_kernel().unwrap();
    assert!(ibs.drop_in_program.kernel && ibs.attr.exclude_kernel() == 0);
    let mut switches = resolved(&fixtures::bare_guest(), "cs");
    assert!(switches.exclude_kernel().is_err());
    let mut kernel_only = resolved(&fixtures::bare_guest(), "page-faults:k");
    assert!(kernel_only.exclude_kernel().is_err());
}
