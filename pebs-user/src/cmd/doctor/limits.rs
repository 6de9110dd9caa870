//! Checks of limits and rights.

use super::check::Check;
use super::facts::{Answer, DEFAULT_RESET, Facts};
use crate::limits::capabilities::setcap_command;
use crate::limits::{Lockdown, PIDS, SoftHard, describe_missing};
use crate::pmu::host::KernelVersion;

/// Returns how to get the missing privileges.
fn sudo() -> String {
    let command = setcap_command("$(which pebs-trace)");
    format!("use sudo, or '{command}'")
}

pub(super) fn capabilities(facts: &Facts) -> Check {
    let Some(caps) = facts.host.limits.capabilities else {
        return Check::degraded(
            "capabilities",
            "unknown",
            "mount /proc: 'sudo mount -t proc proc /proc'",
        );
    };
    if let Some(missing) = describe_missing(caps) {
        return Check::missing("capabilities", missing, &sudo());
    }
    let lacking: Vec<&str> = [
        (caps.sys_ptrace, "CAP_SYS_PTRACE (other users' processes)"),
        (caps.dac_read_search, "CAP_DAC_READ_SEARCH (their binaries)"),
        (caps.syslog, "CAP_SYSLOG (kernel symbols)"),
    ]
    .into_iter()
    .filter_map(|(have, name)| (!have).then_some(name))
    .collect();
    if lacking.is_empty() {
        return Check::ok(
            "capabilities",
            "perf events, eBPF, other processes, kernel symbols",
        );
    }
    Check::degraded(
        "capabilities",
        format!("lacks {}", lacking.join(", ")),
        &sudo(),
    )
}

/// The sysctl applies only to users without `CAP_PERFMON`.
pub(super) fn paranoid(facts: &Facts) -> Check {
    let limits = &facts.host.limits;
    let value = limits
        .paranoid
        .map_or("unknown".into(), |value| value.to_string());
    if limits.capabilities.is_some_and(|caps| caps.may_perf()) {
        let found =
            format!("kernel.perf_event_paranoid is {value}, which does not restrict this user");
        return Check::ok("paranoid level", found);
    }
    if limits.paranoid.is_some_and(|value| value < 0) {
        let found = format!("kernel.perf_event_paranoid is {value}, which restricts nobody");
        return Check::ok("paranoid level", found);
    }
    let found = format!("kernel.perf_event_paranoid is {value} and restricts this user");
    Check::missing("paranoid level", found, &sudo())
}

pub(super) fn lockdown(facts: &Facts) -> Check {
    match facts.host.limits.lockdown {
        None => Check::ok(
            "lockdown",
            "not in this kernel, or securityfs is not mounted",
        ),
        Some(Lockdown::None) => Check::ok("lockdown", "none"),
        Some(Lockdown::Integrity) => Check::ok("lockdown", "integrity, which allows tracing"),
        Some(Lockdown::Confidentiality) => Check::missing(
            "lockdown",
            "confidentiality: eBPF programs may not read the kernel's data",
            "boot without 'lockdown=confidentiality', or with Secure Boot off",
        ),
    }
}

/// A filter or profile counts only if something is refused that the capabilities allow.
pub(super) fn confinement(facts: &Facts) -> Check {
    const NAME: &str = "confinement";
    let limits = &facts.host.limits;
    let rules = &limits.confinement;
    let mut names = Vec::new();
    let mut fixes = Vec::new();
    if rules.seccomp {
        names.push("a seccomp filter".to_owned());
        fixes.push("'--security-opt seccomp=unconfined' (Kubernetes: seccompProfile of type Unconfined; systemd: SystemCallFilter=)");
    }
    if let Some(profile) = &rules.apparmor {
        names.push(format!("AppArmor's profile {profile}"));
        fixes.push(
            "'--security-opt apparmor=unconfined' (Kubernetes: appArmorProfile of type Unconfined)",
        );
    }
    if let Some(kind) = &rules.selinux {
        names.push(format!("SELinux's type {kind}"));
        fixes.push("'--security-opt label=disable' (Kubernetes: seLinuxOptions of type spc_t; 'ausearch -m avc' shows what is refused)");
    }
    if names.is_empty() {
        return Check::ok(NAME, "no seccomp filter, no profile of AppArmor or SELinux");
    }
    let names = names.join(", ");
    let tried = [
        &facts.ring_buffer,
        &facts.sample_program,
        &facts.clock,
        &facts.uprobes,
    ];
    let is_refused = tried.iter().any(|it| matches!(it, Answer::Unknown(_)));
    let caps = limits.capabilities;
    match (
        is_refused,
        caps.is_some_and(|it| it.may_bpf() && it.may_perf()),
    ) {
        (false, _) => Check::ok(NAME, format!("{names}: refuses nothing that was tried")),
        (true, false) => Check::ok(
            NAME,
            format!("{names}: what it refuses shows once the capabilities are there"),
        ),
        (true, true) => Check::missing(
            NAME,
            format!("{names}: refuses what the capabilities allow"),
            &format!("in a container {}", fixes.join(", ")),
        ),
    }
}

/// Commands are held at their first instruction by ptrace; `-p` needs none.
pub(super) fn ptrace(facts: &Facts) -> Check {
    const NAME: &str = "ptrace";
    let limits = &facts.host.limits;
    let scope = limits.ptrace_scope;
    match scope {
        Some(3..) => Check::degraded(
            NAME,
            "kernel.yama.ptrace_scope is 3: commands can't be started, -p works",
            "set kernel.yama.ptrace_scope below 3 in /etc/sysctl.d, then boot: the kernel does not lower it",
        ),
        Some(2) if !limits.capabilities.is_some_and(|it| it.sys_ptrace) => Check::degraded(
            NAME,
            "kernel.yama.ptrace_scope is 2: commands can't be started without CAP_SYS_PTRACE, -p works",
            &sudo(),
        ),
        Some(value) => Check::ok(
            NAME,
            format!("kernel.yama.ptrace_scope is {value}, which does not restrict this user"),
        ),
        None => Check::ok(NAME, "not restricted by Yama"),
    }
}

pub(super) fn pids(facts: &Facts) -> Check {
    match facts.host.limits.pid_namespace {
        Some(true) => Check::missing("pids", "a pid namespace, as in a container", PIDS),
        Some(false) => Check::ok("pids", "those of the machine"),
        None => Check::degraded(
            "pids",
            "unknown whether they are those of the machine",
            "mount /proc: 'sudo mount -t proc proc /proc'",
        ),
    }
}

/// Checks the sample rate limit against the rate of the default event at the default reset value.
pub(super) fn rates(facts: &Facts) -> Check {
    const NEEDED: u64 = 1_000_000_000 / DEFAULT_RESET;
    let limits = &facts.host.limits;
    let percent = match limits.cpu_time_max_percent {
        Some(0 | 100) => "kernel.perf_cpu_time_max_percent does not lower it".to_owned(),
        Some(percent) => format!("lowered when sampling takes more than {percent} % of a CPU"),
        None => "kernel.perf_cpu_time_max_percent unknown".to_owned(),
    };
    match limits.max_sample_rate {
        Some(rate) if rate >= NEEDED => Check::ok(
            "sample rate",
            format!("up to {rate} samples/s and CPU, {percent}"),
        ),
        Some(rate) => {
            let found = format!(
                "up to {rate} samples/s and CPU; --reset {DEFAULT_RESET} of cpu-clock needs {NEEDED}"
            );
            // In this order: with the share at 0 the kernel refuses to change the rate.
            let lift = match limits.cpu_time_max_percent {
                Some(0) => {
                    "sudo sysctl kernel.perf_cpu_time_max_percent=25 \
                            kernel.perf_event_max_sample_rate=100000 kernel.perf_cpu_time_max_percent=0"
                }
                _ => {
                    "sudo sysctl kernel.perf_event_max_sample_rate=100000 kernel.perf_cpu_time_max_percent=0"
                }
            };
            Check::degraded("sample rate", found, lift).by_command()
        }
        None => Check::degraded(
            "sample rate",
            "kernel.perf_event_max_sample_rate unknown",
            "mount /proc: 'sudo mount -t proc proc /proc'",
        ),
    }
}

pub(super) fn kernel_symbols(facts: &Facts) -> Check {
    let limits = &facts.host.limits;
    let syslog = limits.capabilities.is_some_and(|caps| caps.syslog);
    match limits.kptr_restrict {
        Some(2..) => Check::degraded(
            "kernel symbols",
            "kernel.kptr_restrict is 2: kernel functions have no names",
            "sudo sysctl kernel.kptr_restrict=1",
        )
        .by_command(),
        Some(1) if !syslog => Check::degraded(
            "kernel symbols",
            "kernel.kptr_restrict is 1: kernel functions have no names without CAP_SYSLOG",
            &sudo(),
        ),
        Some(value) => Check::ok("kernel symbols", format!("kernel.kptr_restrict is {value}")),
        None => Check::ok("kernel symbols", "kernel.kptr_restrict unknown"),
    }
}

/// Since Linux 5.11 eBPF maps count against the cgroup, not against this limit.
pub(super) fn memory(facts: &Facts) -> Check {
    /// Rings and maps of a large machine, bytes.
    const ENOUGH: u64 = 256 << 20;
    let mlock = facts
        .host
        .limits
        .mlock_kb
        .map_or("unknown".into(), |kb| format!("{kb} KiB"));
    let hard = facts.host.limits.locked_memory.map(|limit| limit.hard);
    let capable = facts
        .host
        .limits
        .capabilities
        .is_some_and(|caps| caps.sys_resource);
    let enough = capable
        || matches!(hard, Some(None))
        || matches!(hard, Some(Some(bytes)) if bytes >= ENOUGH);
    if facts.host.at_least(KernelVersion(5, 11)) {
        let found = format!(
            "maps do not count against RLIMIT_MEMLOCK (Linux 5.11); perf rings {mlock} per CPU"
        );
        return Check::ok("locked memory", found);
    }
    if enough {
        return Check::ok("locked memory", "RLIMIT_MEMLOCK can be raised far enough");
    }
    Check::degraded(
        "locked memory",
        "RLIMIT_MEMLOCK is too small for the rings",
        "ulimit -l unlimited",
    )
}

/// Each event takes one file per CPU or thread, each probe one more.
pub(super) fn files(facts: &Facts) -> Check {
    const ENOUGH: u64 = 4_096;
    let number = |value: Option<u64>| value.map_or("unlimited".into(), |value| value.to_string());
    match facts.host.limits.open_files {
        Some(SoftHard { soft, hard }) if hard.is_none_or(|hard| hard >= ENOUGH) => {
            let raised = format!(", raised by itself to {}", number(hard));
            let found = number(soft) + if soft == hard { "" } else { &raised };
            Check::ok("open files", found)
        }
        Some(SoftHard { hard, .. }) => {
            let found = format!(
                "at most {}: too few for many threads and probes",
                number(hard)
            );
            Check::degraded(
                "open files",
                found,
                "sudo prlimit --pid $$ --nofile=65536:65536",
            )
        }
        None => Check::degraded("open files", "limit unknown", "ulimit -n 65536"),
    }
}

/// Neither is needed; reported because other tools need them.
pub(super) fn mounts(facts: &Facts) -> Check {
    let place = |place: &Option<String>| place.clone().unwrap_or_else(|| "not mounted".into());
    let found = format!(
        "tracefs {}, bpffs {}: not needed",
        place(&facts.tracefs).replace("/sys/", "on /sys/"),
        place(&facts.bpffs).replace("/sys/", "on /sys/"),
    );
    Check::ok("mounts", found)
}
