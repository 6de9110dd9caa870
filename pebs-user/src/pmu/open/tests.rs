//! Tests that open events on the running kernel. They need root, and are skipped with a message without it.

use crate::failure::Hint as _;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};

use super::*;
use crate::limits;
use crate::pmu::attr::{ResolvedEvent, reset_value, resolve};
use crate::pmu::event::{EventSpec, Modifiers};
use crate::pmu::host::Host;
use crate::pmu::sysfs::UprobePmu;
use crate::units::Pid;

/// Prints why a test is skipped; returns whether it is.
fn skip() -> bool {
    let missing = limits::missing_privileges();
    if let Some(missing) = &missing {
        eprintln!("SKIP {missing}");
    }
    missing.is_some()
}

fn this_thread() -> Tid {
    Tid(rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned())
}

fn event(text: &str, reset: u64) -> ResolvedEvent {
    let spec: EventSpec = text.parse().unwrap();
    resolve(
        &spec,
        &Host::probe(Path::new("/")),
        reset_value(reset).unwrap(),
    )
    .unwrap()
}

fn page_size() -> usize {
    // SAFETY: sysconf reads no memory of ours.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap()
}

/// Opens, runs `work` with the counter on, and reads it.
fn count(event: &ResolvedEvent, target: Target, work: impl FnOnce()) -> Times {
    let opened = open_stepping_down(event, target).unwrap();
    opened.counter.enable().unwrap();
    work();
    opened.counter.disable().unwrap();
    opened.counter.times().unwrap()
}

#[inline(never)]
extern "C" fn watched(n: u64) -> u64 {
    std::hint::black_box(n) + 1
}

/// A call that the compiler can't inline.
fn call_watched(times: u64) {
    for n in 0..times {
        std::hint::black_box(watched as extern "C" fn(u64) -> u64)(n);
    }
}

/// Another function for breakpoints, as the kernel may rewrite a probed one while they count.
#[inline(never)]
extern "C" fn stopped_at(n: u64) -> u64 {
    std::hint::black_box(n) ^ 0x55
}

fn call_stopped_at(times: u64) {
    for n in 0..times {
        std::hint::black_box(stopped_at as extern "C" fn(u64) -> u64)(n);
    }
}

/// Runs for this much CPU time of the thread, whatever else uses its CPU.
fn spin(milliseconds: i64) {
    let own = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec * 1000 + time.tv_nsec / 1_000_000
    };
    let end = own() + milliseconds;
    while own() < end {
        std::hint::spin_loop();
    }
}

/// Clocks count ns, on a thread and on a CPU.
#[test]
fn clocks_count_time() {
    if skip() {
        return;
    }
    let times = count(
        &event("task-clock", 16_000),
        Target::Thread(this_thread()),
        || spin(5),
    );
    assert!(times.value > 1_000_000, "{times:?}");
    assert!(
        times.running_ns > 0 && times.enabled_ns >= times.running_ns,
        "{times:?}"
    );
    let times = count(&event("cpu-clock", 16_000), Target::Cpu(Cpu(0)), || spin(5));
    assert!(times.value >= 1_000_000, "{times:?}");
}

/// Each first touch of a page is one fault.
#[test]
fn page_faults_are_counted() {
    if skip() {
        return;
    }
    const PAGES: usize = 64;
    let size = PAGES * page_size();
    let times = count(
        &event("page-faults:u", 1),
        Target::Thread(this_thread()),
        || {
            // SAFETY: a fresh anonymous mapping that nobody else knows, touched within its bounds.
            unsafe {
                let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                let access = libc::PROT_READ | libc::PROT_WRITE;
                let at = libc::mmap(std::ptr::null_mut(), size, access, private, -1, 0);
                assert_ne!(at, libc::MAP_FAILED);
                libc::madvise(at, size, libc::MADV_NOHUGEPAGE);
                for page in 0..PAGES {
                    at.cast::<u8>().add(page * page_size()).write_volatile(1);
                }
                libc::munmap(at, size);
            }
        },
    );
    assert!((64..96).contains(&times.value), "{times:?}");
}

fn breakpoint() -> ResolvedEvent {
    event(
        &format!(
            "mem:{:#x}:x:u",
            stopped_at as extern "C" fn(u64) -> u64 as usize
        ),
        7,
    )
}

/// A breakpoint counts every call of the function and nothing else.
#[test]
fn breakpoints_count_calls() {
    if skip() {
        return;
    }
    let times = count(&breakpoint(), Target::Thread(this_thread()), || {
        call_stopped_at(1_000);
    });
    assert_eq!(times.value, 1_000);
}

/// The fifth breakpoint has no slot, and the hint says how many there are.
#[test]
fn breakpoints_run_out() {
    if skip() {
        return;
    }
    let target = Target::Thread(this_thread());
    let (mut held, mut refused) = (Vec::new(), None);
    for _ in 0..5 {
        match open_stepping_down(&breakpoint(), target) {
            Ok(opened) => held.push(opened),
            Err(error) => refused = Some(error),
        }
    }
    let error = refused.unwrap();
    assert_eq!(error.kind, OpenErrorKind::NoSlot, "{error}");
    assert!(
        error.to_string().contains("no hardware breakpoint is free"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("four"));
}

/// An ended thread is reported as gone, not as an error of the event.
#[test]
fn thread_gone() {
    if skip() {
        return;
    }
    let tid = std::thread::spawn(this_thread).join().unwrap();
    let error = open_stepping_down(&event("task-clock", 16_000), Target::Thread(tid)).unwrap_err();
    assert_eq!(error.kind, OpenErrorKind::ThreadGone);
    let expect = format!(
        "cannot open event task-clock for thread {}: no such thread",
        tid.0
    );
    assert_eq!(error.to_string(), expect);
}

/// A CPU that does not exist is refused with a hint.
#[test]
fn no_such_cpu() {
    if skip() {
        return;
    }
    let target = Target::Cpu(Cpu(u16::MAX));
    let error = open_stepping_down(&event("cpu-clock", 16_000), target).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot open event cpu-clock on cpu 65535: "),
        "{error}"
    );
    assert!(error.hint().is_some());
}

/// Without a PMU the message for a hardware event says so.
#[test]
fn hardware_event_without_pmu() {
    let host = Host::probe(Path::new("/"));
    if skip() || host.no_pmu_reason().is_none() {
        eprintln!("SKIP this machine has a hardware PMU");
        return;
    }
    let attr = perf_event_attr {
        config: 1,
        ..perf_event_attr::default()
    };
    let error = PerfEvent::open(&attr, Target::Cpu(Cpu(0)), "instructions").unwrap_err();
    let known = [
        OpenErrorKind::NotFound,
        OpenErrorKind::NotSupported,
        OpenErrorKind::NoDevice,
    ];
    assert!(known.contains(&error.kind), "{error:?}");
    assert!(error.hint().unwrap().contains("cpu-clock"));
}

/// `auto` opens an event on any machine, with a reason for the choice.
#[test]
fn auto_opens() {
    if skip() {
        return;
    }
    let host = Host::probe(Path::new("/"));
    let reset = reset_value(16_000).unwrap();
    let auto = open_auto(Modifiers::default(), &host, reset, Target::Cpu(Cpu(0))).unwrap();
    assert!(
        auto.event
            .notes
            .iter()
            .any(|note| note.starts_with("auto: ")),
        "{auto:?}"
    );
    if host.no_pmu_reason().is_some() {
        assert_eq!(auto.event.name, "cpu-clock");
    }
}

/// Two counters have two ids.
#[test]
fn ids_differ() {
    if skip() {
        return;
    }
    let event = event("cpu-clock", 16_000);
    let open = || {
        open_stepping_down(&event, Target::Cpu(Cpu(0)))
            .unwrap()
            .counter
    };
    let (one, two) = (open(), open());
    assert_ne!(one.id().unwrap(), two.id().unwrap());
}

/// Place of a function of this program in its file.
fn site(at: UprobeAt) -> UprobeSite {
    let address = watched as extern "C" fn(u64) -> u64 as usize as u64;
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let file_offset = maps.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = u64::from_str_radix(end, 16).ok()?;
        let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
        (start..end)
            .contains(&address)
            .then(|| address - start + offset)
    });
    let path = PathBuf::from("/proc/self/exe").canonicalize().unwrap();
    UprobeSite {
        path,
        file_offset: file_offset.unwrap(),
        at,
        semaphore: None,
    }
}

fn own_process() -> UprobeScope {
    UprobeScope::Process(Pid(this_thread().0))
}

/// An uprobe and an uretprobe each count the calls of one function of this process.
#[test]
fn uprobes_count_calls() {
    let pmu = UprobePmu::read(Path::new("/"));
    let (false, Some(pmu)) = (skip(), pmu) else {
        eprintln!("SKIP no uprobe PMU");
        return;
    };
    let mut keeper = Keeper::start().unwrap();
    for at in [UprobeAt::Instruction, UprobeAt::Return] {
        let probe = open_uprobe(&mut keeper, &pmu, &site(at), own_process()).unwrap();
        call_watched(100);
        drop_and_check(probe, 100, at);
    }
}

fn drop_and_check(probe: PerfEvent, expect: u64, at: UprobeAt) {
    probe.disable().unwrap();
    assert_eq!(probe.times().unwrap().value, expect, "{at:?}");
}

/// A place without code, or in a missing file, is refused with a clear message.
#[test]
fn uprobe_beyond_the_file() {
    let pmu = UprobePmu::read(Path::new("/"));
    let (false, Some(pmu)) = (skip(), pmu) else {
        eprintln!("SKIP no uprobe PMU");
        return;
    };
    let site = UprobeSite {
        file_offset: 1 << 40,
        ..site(UprobeAt::Instruction)
    };
    let mut keeper = Keeper::start().unwrap();
    let error = open_uprobe(&mut keeper, &pmu, &site, UprobeScope::Everyone).unwrap_err();
    assert_eq!(error.kind, OpenErrorKind::Invalid, "{error}");
    assert!(
        error.to_string().ends_with("not within executable code"),
        "{error}"
    );
}

/// Loads `r0 = 0; exit` as a program of the given type.
fn load_program(kind: u32) -> OwnedFd {
    /// The first fields of `union bpf_attr` for `BPF_PROG_LOAD`.
    #[repr(C)]
    struct ProgLoad {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
    }
    let instructions: [u64; 2] = [0xb7, 0x95];
    let attr = ProgLoad {
        kind,
        count: 2,
        instructions: instructions.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
    };
    const BPF_PROG_LOAD: libc::c_int = 5;
    // SAFETY: the attr and what it points to live through the call and have the sizes given.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_LOAD,
            &raw const attr,
            size_of::<ProgLoad>(),
        )
    };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the kernel just gave us this descriptor.
    unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) }
}

const PROGRAM_KPROBE: u32 = 2;
const PROGRAM_PERF_EVENT: u32 = 7;

/// A program attaches with and without a cookie; a second one is refused until the link is closed.
#[test]
fn programs_attach() {
    if skip() {
        return;
    }
    let program = load_program(PROGRAM_PERF_EVENT);
    let counter = open_stepping_down(&event("cpu-clock", 1_000_003), Target::Cpu(Cpu(0)))
        .unwrap()
        .counter;
    let link = counter.attach(program.as_fd(), Some(7)).unwrap();
    assert!(link.fd().is_some());
    let error = counter.attach(program.as_fd(), None).unwrap_err();
    assert_eq!(error.source.raw_os_error(), Some(libc::EEXIST));
    assert!(error.hint().is_some());
    drop(link);
    counter.attach(program.as_fd(), None).unwrap();
}

/// The way of old kernels, which have no links, works too.
#[test]
fn programs_attach_without_link() {
    if skip() {
        return;
    }
    let program = load_program(PROGRAM_PERF_EVENT);
    let counter = open_stepping_down(&event("cpu-clock", 1_000_003), Target::Cpu(Cpu(0)))
        .unwrap()
        .counter;
    counter.set_bpf(program.as_fd()).unwrap();
    let error = counter.set_bpf(program.as_fd()).unwrap_err();
    assert_eq!(error.source.raw_os_error(), Some(libc::EEXIST));
}

/// A program on an uprobe gets its cookie; programs on several probes do not disturb each other.
#[test]
fn programs_attach_to_uprobes() {
    let pmu = UprobePmu::read(Path::new("/"));
    let (false, Some(pmu)) = (skip(), pmu) else {
        eprintln!("SKIP no uprobe PMU");
        return;
    };
    let program = load_program(PROGRAM_KPROBE);
    let mut keeper = Keeper::start().unwrap();
    let attached: Vec<_> = [UprobeAt::Instruction, UprobeAt::Return]
        .into_iter()
        .zip([1u64, 2])
        .map(|(at, cookie)| {
            let probe = open_uprobe(&mut keeper, &pmu, &site(at), UprobeScope::Everyone).unwrap();
            let link = probe.attach(program.as_fd(), Some(cookie)).unwrap();
            (link, probe)
        })
        .collect();
    call_watched(10);
    assert_eq!(attached.len(), 2);
}

/// A counter in a group counts as it does alone, and the leader is enabled without being started.
#[test]
fn led_by_another() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP not root");
        return;
    }
    let target = Target::Thread(Tid(rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned()));
    let (pid, cpu) = target.arguments();
    let attr = event("task-clock", 1_000_000).attr_for(target);
    let mut leading = attr;
    leading.sample_period = 0;
    leading.set_disabled(0);
    let leader = PerfEvent::open_raw(&leading, pid, cpu).unwrap();
    let led = PerfEvent {
        fd: open_in(&attr, pid, cpu, Some(leader.as_fd())).unwrap(),
        _kept: None,
        _leader: None,
        target: None,
    };
    assert_eq!(led.times().unwrap().value, 0, "not started yet");
    led.enable().unwrap();
    std::hint::black_box((0..3_000_000u64).fold(0, |a, b| a ^ b));
    led.disable().unwrap();
    assert!(led.times().unwrap().value > 0);
    assert!(leader.times().unwrap().value > 0);
}
