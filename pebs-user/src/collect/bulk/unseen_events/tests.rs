use std::path::Path;
use std::sync::mpsc;

use perf_event_open_sys::bindings::{self as sys, perf_event_attr};

use super::*;
use crate::collect::perf_ring::RawRecord;
use crate::pmu::host::online_cpus;

/// A counter that children inherit, with samples of 100 us that have the thread's number.
fn clock() -> perf_event_attr {
    let mut attr = perf_event_attr {
        type_: sys::PERF_TYPE_SOFTWARE,
        config: sys::PERF_COUNT_SW_TASK_CLOCK.into(),
        sample_type: sys::PERF_SAMPLE_TID.into(),
        ..perf_event_attr::default()
    };
    attr.__bindgen_anon_1.sample_period = 100_000;
    attr.set_inherit(1);
    attr.set_disabled(1);
    attr
}

fn own_tid() -> Tid {
    Tid(rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned())
}

fn is_sample_of(record: &RawRecord<'_>, tid: Tid) -> bool {
    record.kind == sys::PERF_RECORD_SAMPLE && record.body[4..8] == tid.0.to_ne_bytes()
}

/// Unseen samples of a thread with inherited counters are in the ring of its CPU; each CPU has exactly one ring.
#[test]
fn inherited_counters() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP not root");
        return;
    }
    let cpus = online_cpus(Path::new("/"));
    let mut rests = RestRings::default();
    let mut rings = rests.add(EventId(0), &cpus).unwrap();
    assert_eq!(rings.len(), cpus.len());
    assert!(rests.add(EventId(0), &cpus).unwrap().is_empty());

    let (tid_sender, tid_receiver) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let parent = std::thread::spawn(move || {
        tid_sender.send(own_tid()).unwrap();
        wait.recv().unwrap();
        let child = std::thread::spawn(|| {
            (0..20_000_000u32).for_each(|n| {
                std::hint::black_box(n);
            });
            own_tid()
        });
        child.join().unwrap()
    });
    let parent_tid = tid_receiver.recv().unwrap();
    let open = |cpu: &Cpu| {
        let target = Target::ThreadOnCpu(parent_tid, *cpu);
        let counter = PerfEvent::open(&clock(), target, "task-clock").unwrap();
        rests.catch(&counter, *cpu).unwrap();
        counter.enable().unwrap();
        counter
    };
    let counters: Vec<PerfEvent> = cpus.iter().map(open).collect();
    go.send(()).unwrap();
    let child = parent.join().unwrap();
    drop(counters);
    let mut samples = 0;
    for ring in &mut rings {
        let drained = ring.ring.drain(|record| {
            samples += u32::from(is_sample_of(&record, child));
        });
        drained.unwrap();
    }
    assert!(samples > 10, "{samples}");
}
