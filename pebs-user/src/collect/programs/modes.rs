//! Modes that the sample program leaves out, on the kernel that runs the tests.

use std::path::Path;
use std::time::{Duration, Instant};

use pebs_common::counter::Counter;

use super::*;
use crate::collect::kernel_map::Counters;
use crate::pmu::attr::{reset_value, resolve};
use crate::pmu::host::Host;
use crate::pmu::open::open_stepping_down;
use crate::pmu::target::Target;
use crate::units::{Pid, Tid};

/// Time on the CPU that makes thousands of samples.
const WORK: Duration = Duration::from_millis(100);

fn in_user_mode() {
    let begin = Instant::now();
    while begin.elapsed() < WORK {
        std::hint::black_box((0..10_000u64).sum::<u64>());
    }
}

fn in_kernel_mode() {
    let begin = Instant::now();
    let mut bytes = vec![0; 1 << 20];
    let zero = std::fs::File::open("/dev/zero").unwrap();
    while begin.elapsed() < WORK {
        rustix::io::read(&zero, &mut bytes).unwrap();
    }
}

/// Number of samples of event 0 dropped during some work, with these bits.
fn left_out(exclude_user: u32, exclude_kernel: u32, work: fn()) -> u64 {
    let settings = Settings {
        exclude_kernel,
        exclude_user,
        ..Settings::default()
    };
    let programs = Programs::load(&settings).unwrap();
    programs.trace(Pid(std::process::id())).unwrap();
    let host = Host::probe(Path::new("/"));
    let spec = "cpu-clock".parse().unwrap();
    let event = resolve(&spec, &host, reset_value(100_000).unwrap()).unwrap();
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    let target = Target::Thread(Tid(tid.cast_unsigned()));
    let counter = open_stepping_down(&event, target).unwrap().counter;
    let program = programs.sample(EventId(0)).unwrap();
    let _link = counter.attach(program, None).unwrap();
    counter.enable().unwrap();
    work();
    counter.disable().unwrap();
    let cpus = host.online.last().map_or(1, |cpu| usize::from(cpu.0) + 1);
    let counters = Counters::map(programs.map("COUNTERS").unwrap(), cpus).unwrap();
    (0..cpus)
        .map(|cpu| counters.row(cpu)[Counter::SampleExcluded as usize])
        .sum()
}

/// A mode is dropped only for the events with its bit set.
#[test]
fn modes_are_left_out_by_event() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP not root");
        return;
    }
    assert!(left_out(1, 0, in_user_mode) > 0);
    assert!(left_out(0, 1, in_kernel_mode) > 0);
    assert_eq!(left_out(2, 2, in_user_mode), 0, "asked for by event 1 only");
    assert_eq!(
        left_out(2, 2, in_kernel_mode),
        0,
        "asked for by event 1 only"
    );
}
