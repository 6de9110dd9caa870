//! Processes known only from events, without reading them.

use super::*;

/// Events alone are enough: a forked child before it execs, its new program after.
#[test]
fn events() {
    let (_dir, program) = compile(&["-O2"]);
    let running = Running::start(&program);
    let mut probe = Probe::new();
    probe.symbolizer.announce(running.pid());
    let child = Pid(u32::MAX - 7);
    let address = running.address("outer");
    probe.symbolizer.on_fork(running.pid(), child);
    assert_eq!(probe.name(child, address).as_deref(), Some("outer"));
    probe.symbolizer.on_exec(child);
    assert_eq!(probe.row(child, address).module, None);
    let mapping = proc_maps(running.pid())
        .unwrap()
        .into_iter()
        .find(|mapping| mapping.contains(address))
        .unwrap();
    probe.symbolizer.on_mapping(child, mapping);
    assert_eq!(probe.name(child, address).as_deref(), Some("outer"));
}

/// The kernel's pages for probes are distinct functions with the names from the kernel's records.
#[test]
fn pages_of_probes() {
    let mut probe = Probe::new();
    let pid = Pid(u32::MAX - 8);
    for (start, name) in [(0x1000, "[uprobes]"), (0x2000, "[uprobes-trampo")] {
        let mapping = Mapping {
            start,
            end: start + 0x1000,
            offset: 0,
            backing: Backing::from_kernel_name(name.as_bytes(), Default::default),
        };
        probe.symbolizer.on_mapping(pid, mapping);
    }
    for (ip, name) in [(0x1080, "[uprobes]"), (0x2007, "[uprobes-trampoline]")] {
        let row = probe.row(pid, ip);
        assert_eq!(row.name.as_deref(), Some(name));
        assert_eq!(row.module.as_deref(), Some(name));
    }
}

/// If pebs-trace's own work is distinguished, the kernel's pages for probes belong to it.
#[test]
fn pages_of_own_probes() {
    let mut probe = Probe::with(SymbolizeOptions {
        own_programs: Some(Vec::new()),
        ..SymbolizeOptions::default()
    });
    let pid = Pid(u32::MAX - 8);
    probe.symbolizer.on_mapping(
        pid,
        Mapping {
            start: 0x1000,
            end: 0x2000,
            offset: 0,
            backing: Backing::Uprobes,
        },
    );
    let own = probe.symbolizer.own_function();
    assert_eq!(probe.symbolizer.function(pid, Ip(0x1080)), own);
    assert_ne!(probe.symbolizer.function(pid, Ip(0x2080)), own);
}

/// A program that was never announced and ended before it was looked up: the kernel's records are enough.
#[test]
fn kernel_records() {
    use crate::collect::sideband::Sideband;
    let cpus = std::thread::available_parallelism().unwrap().get();
    let cpus: Vec<_> = (0..u16::try_from(cpus).unwrap())
        .map(crate::units::Cpu)
        .collect();
    let mut sideband = match Sideband::open(&cpus) {
        Ok((sideband, _)) => sideband,
        Err(error) => return println!("SKIP {error}"),
    };
    let (_dir, program) = compile(&["-O2"]);
    let mut running = Running::start(&program);
    running.stop();
    let mut events = Vec::new();
    sideband.poll(|event| events.push(event)).unwrap();
    events.sort_by_key(|event| event.time);
    let mut probe = Probe::new();
    for event in events {
        if let SidebandKind::Lost { records } = event.what {
            return println!("SKIP {records} records lost");
        }
        probe.symbolizer.on_event(event.what);
    }
    let name = probe.name(running.pid(), running.address("hidden"));
    assert_eq!(name.as_deref(), Some("hidden"));
    let name = probe.name(running.pid(), running.address("qsort"));
    assert_eq!(name.as_deref(), Some("qsort"));
}
