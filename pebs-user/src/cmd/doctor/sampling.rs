//! Checks of the events that can be sampled.

use pebs_common::config::MAX_CPUS;

use super::check::Check;
use super::facts::{Answer, Facts};
use super::kernel::is_yes;
use crate::arch::machine::TELLS_GUESTS;
use crate::pmu::host::{Host, Vendor};

const GUEST_PMU: &str = "give the guest a virtual PMU (QEMU: '-cpu host,pmu=on'), or record on bare metal; \
                         cpu-clock works without";

pub(super) fn machine(facts: &Facts) -> Check {
    let cpu = &facts.host.cpu.name;
    Check::ok(
        "machine",
        match &facts.host.hypervisor {
            None if TELLS_GUESTS => format!("{cpu}, bare metal"),
            None => cpu.clone(),
            Some(name) => format!("{cpu}, virtual machine on {name}"),
        },
    )
}

pub(super) fn cpus(facts: &Facts) -> Check {
    let online = &facts.host.online;
    match online.last() {
        None => Check::degraded(
            "cpus",
            "number unknown",
            "mount /sys: 'sudo mount -t sysfs sysfs /sys'",
        ),
        Some(last) if u32::from(last.0) >= MAX_CPUS => {
            let found = format!("cpu {} is beyond the {MAX_CPUS} that are recorded", last.0);
            let fix = format!(
                "take it offline: 'echo 0 | sudo tee /sys/devices/system/cpu/cpu{}/online'",
                last.0
            );
            Check::degraded("cpus", found, &fix)
        }
        Some(_) => Check::ok("cpus", format!("{} online", online.len())),
    }
}

pub(super) fn clock(facts: &Facts) -> Check {
    let fix =
        "use a kernel with CONFIG_PERF_EVENTS=y; in a container allow perf_event_open (seccomp)";
    Check::needed("software clock", &facts.clock, "opened cpu-clock", fix)
}

/// Needed only by `mem:` events.
pub(super) fn breakpoints(facts: &Facts) -> Check {
    match &facts.breakpoints {
        Answer::Yes => Check::ok("breakpoints", "opened one: mem: events work, four per CPU"),
        Answer::No(reason) => {
            let fix = "end the debugger that holds them; some hypervisors grant none: do without mem: events";
            Check::degraded("breakpoints", reason, fix)
        }
        Answer::Unknown(reason) => {
            let found = format!("could not be checked: {reason}");
            Check::degraded("breakpoints", found, "run 'sudo pebs-trace doctor'")
        }
    }
}

pub(super) fn pmu(facts: &Facts) -> Check {
    let host = &facts.host;
    if let Some(reason) = host.no_pmu_reason() {
        return Check::degraded("hardware PMU", reason, pmu_cure(host));
    }
    let names: Vec<&str> = host.pmus.iter().map(|pmu| pmu.name.as_str()).collect();
    Check::ok("hardware PMU", format!("PMUs: {}", names.join(", ")))
}

fn pmu_cure(host: &Host) -> &'static str {
    if host.hypervisor.is_some() {
        GUEST_PMU
    } else {
        "look for 'Performance Events:' in 'sudo dmesg'; the firmware may have turned the PMU off"
    }
}

/// The maximum precision that the kernel reports; [`automatic`] tests what is granted.
pub(super) fn precision(facts: &Facts) -> Check {
    let host = &facts.host;
    if host.no_pmu_reason().is_some() {
        return Check::degraded(
            "precision",
            "neither PEBS nor IBS without a hardware PMU",
            pmu_cure(host),
        );
    }
    if host.pmu("ibs_op").is_some() {
        let filter = host
            .pmu("ibs_op")
            .is_some_and(|ibs| ibs.formats.contains_key("swfilt"));
        let modes = if filter { "kernel" } else { "sample program" };
        return Check::ok(
            "precision",
            format!("IBS, precise level up to 2, modes filtered by the {modes}"),
        );
    }
    match (host.max_precise(), host.cpu.vendor) {
        (0, _) => {
            let found = "the PMU grants neither PEBS nor IBS: samples skid";
            let cure = if host.hypervisor.is_some() {
                "have the host pass PEBS or IBS on, or record on bare metal"
            } else {
                "look for 'PEBS' in 'sudo dmesg': microcode or firmware may have turned it off"
            };
            Check::degraded("precision", found, cure)
        }
        (level, Vendor::Intel) => {
            Check::ok("precision", format!("PEBS, precise level up to {level}"))
        }
        (level, _) => Check::ok("precision", format!("precise level up to {level}")),
    }
}

/// The event that `auto` stands for, tested by opening it.
pub(super) fn automatic(facts: &Facts) -> Check {
    match &facts.automatic {
        Ok(auto) => {
            let level = match auto.precise {
                0 => String::new(),
                level => format!(" at precise level {level}"),
            };
            let about = format!("auto: {}: ", auto.name);
            let notes: Vec<&str> = auto
                .notes
                .iter()
                .filter_map(|note| note.strip_prefix(&about).or(note.strip_prefix("auto: ")))
                .collect();
            Check::ok(
                "event auto",
                format!("{}{level} ({})", auto.name, notes.join("; ")),
            )
        }
        Err(error) if is_yes(&facts.clock) => {
            Check::degraded("event auto", error, "name an event: --event task-clock")
        }
        Err(error) if matches!(facts.clock, Answer::Unknown(_)) => {
            let found = format!("could not be checked: {error}");
            Check::degraded("event auto", found, "run 'sudo pebs-trace doctor'")
        }
        Err(error) => Check::missing("event auto", error, "see 'software clock' above"),
    }
}

/// Always ok: everything works without a calibration.
pub(super) fn calibration(facts: &Facts) -> Check {
    Check::ok("cost of a sample", &facts.calibration)
}

/// Always ok: a deviation is not a fault of the machine's settings.
pub(super) fn validation(facts: &Facts) -> Check {
    Check::ok("validated", &facts.validation)
}

pub(super) fn watchdog(facts: &Facts) -> Check {
    match facts.host.limits.nmi_watchdog {
        Some(true) if facts.host.core_pmu().is_some() => Check::degraded(
            "nmi watchdog",
            "kernel.nmi_watchdog is 1: it holds one hardware counter of each CPU",
            "sudo sysctl kernel.nmi_watchdog=0",
        ),
        _ => Check::ok("nmi watchdog", "holds no hardware counter"),
    }
}
