//! Checks of the kernel's features.

use super::check::Check;
use super::facts::{Answer, Facts};
use crate::arch::{EMULATED, LATER, REPLACES_NOPS};
use crate::pmu::host::{KernelVersion, NEWER};
use crate::pmu::open::ADMIN_ALONE;

/// Oldest kernel that recording works on: since then perf event links have a cookie.
const OLDEST: KernelVersion = KernelVersion(5, 15);

pub(super) fn version(facts: &Facts) -> Check {
    let release = &facts.host.release;
    match facts.host.version {
        Some(version) if version >= OLDEST => Check::ok("kernel", release),
        Some(_) => Check::missing("kernel", format!("{release} is older than {OLDEST}"), NEWER),
        None => Check::degraded(
            "kernel",
            "version unknown",
            "mount /proc: 'sudo mount -t proc proc /proc'",
        ),
    }
}

pub(super) fn btf(facts: &Facts) -> Check {
    let fix = "use a kernel with CONFIG_DEBUG_INFO_BTF=y, as distributions have it, and mount /sys";
    Check::needed("BTF", &facts.btf, "/sys/kernel/btf/vmlinux", fix)
}

pub(super) fn ring_buffer(facts: &Facts) -> Check {
    Check::needed(
        "ring buffer",
        &facts.ring_buffer,
        "created one (Linux 5.8)",
        NEWER,
    )
}

pub(super) fn task_storage(facts: &Facts) -> Check {
    Check::needed(
        "task storage",
        &facts.task_storage,
        "known to the kernel (Linux 5.11)",
        NEWER,
    )
}

pub(super) fn cookies(facts: &Facts) -> Check {
    Check::needed(
        "probe cookies",
        &facts.cookies,
        "tried one (Linux 5.15)",
        NEWER,
    )
}

pub(super) fn sample_program(facts: &Facts) -> Check {
    let fix = "use a kernel with CONFIG_PERF_EVENTS=y and CONFIG_BPF_EVENTS=y";
    Check::needed("sample program", &facts.sample_program, "loaded one", fix)
}

pub(super) fn uprobes(facts: &Facts) -> Check {
    let Some(pmu) = &facts.host.uprobe else {
        let fix = "use a kernel with CONFIG_UPROBE_EVENTS=y, and mount /sys";
        return Check::missing("uprobes", "the kernel has no PMU named uprobe", fix);
    };
    let semaphores = if pmu.semaphore.is_some() {
        "with"
    } else {
        "without"
    };
    let found = format!(
        "PMU uprobe is type {}, {semaphores} USDT semaphores",
        pmu.kind
    );
    Check::needed("uprobes", &facts.uprobes, &found, ADMIN_ALONE)
}

/// The scheduler's tracepoint gives time off the CPU; samples do not need it.
pub(super) fn tracepoints(facts: &Facts) -> Check {
    let fix = "use a kernel with CONFIG_DEBUG_INFO_BTF=y and CONFIG_TRACEPOINTS=y";
    Check::needed(
        "tracepoints",
        &facts.tracepoints,
        "sched_switch with types: time off the CPU",
        fix,
    )
}

/// Tracepoints that only `--with` needs.
pub(super) fn extras(facts: &Facts) -> Check {
    let found = "waits, interrupts and page faults can be recorded (--with waits,irq,faults)";
    match &facts.extras {
        Answer::No(reason) => Check::degraded(
            "extras",
            format!("{reason}: --with waits or irq fails"),
            "use a kernel with CONFIG_DEBUG_INFO_BTF=y and CONFIG_TRACEPOINTS=y",
        ),
        answer => Check::needed("extras", answer, found, ""),
    }
}

/// Copied code of programs that move their own code needs `bpf_loop`, in Linux since 5.17.
pub(super) fn copied_code(facts: &Facts) -> Check {
    if facts.host.at_least(KernelVersion(5, 17)) {
        let found = "a program that copies its probed code to huge pages survives (Linux 5.17)";
        return Check::ok("copied code", found);
    }
    let found = "before Linux 5.17 a program that copies its probed code to huge pages itself dies of SIGTRAP";
    Check::degraded("copied code", found, "boot Linux 5.17 or later")
}

/// eBPF programs can read a sample's own time since Linux 6.3.
pub(super) fn sample_time(facts: &Facts) -> Check {
    if facts.host.programs_see_sample_time() {
        return Check::ok(
            "sample time",
            "the program sees each sample's own time (Linux 6.3)",
        );
    }
    let found = "before Linux 6.3 the program does not see a sample's own time: hardware samples are timed when it runs";
    Check::degraded("sample time", found, "boot Linux 6.3 or later")
}

/// Most functions return by an instruction that the kernel single-steps, unless the mark program does it.
pub(super) fn single_steps(facts: &Facts) -> Check {
    let found = if facts.steps {
        "the mark program does returns and moves itself: a mark costs 0.5 us on nearly any function"
            .to_owned()
    } else {
        format!(
            "a mark costs 0.5 us on {EMULATED}, 4 us on other instructions (10 us in some virtual machines){LATER}"
        )
    };
    Check::ok("single steps", found)
}

/// Five-byte nops are never probed.
pub(super) fn nops(facts: &Facts) -> Check {
    let found = if !REPLACES_NOPS {
        "none is replaced on this machine"
    } else if facts.host.at_least(KernelVersion(6, 18)) {
        "five-byte nops are never probed: this kernel would replace them, which kills forked processes"
    } else {
        "five-byte nops are never probed: Linux 6.18 replaces them, which kills forked processes"
    };
    Check::ok("nops", found)
}

/// Whether a feature is certain to work.
pub(super) fn is_yes(answer: &Answer) -> bool {
    *answer == Answer::Yes
}
