//! The kernel's limits on this process: sysctls, resource limits, capabilities.
//!
//! Every value is read on its own and is `None` where the machine does not say: a container may
//! hide `/proc/sys`, and an unknown is not a zero.

pub(crate) mod capabilities;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Hint for machines where the pids seen here differ from the kernel's.
pub(crate) const PIDS: &str = "run it on the host with -p PID, where paths are as that process sees them, or in a \
    container with the pids of the host ('docker run --pid=host', hostPID)";

/// Limits of the machine and of this process, read once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// See [`max_sample_rate`].
    pub max_sample_rate: Option<u64>,
    /// See [`cpu_time_max_percent`].
    pub cpu_time_max_percent: Option<u64>,
    /// See [`max_stack`].
    pub max_stack: Option<u64>,
    /// See [`paranoid`].
    pub paranoid: Option<i64>,
    /// See [`mlock_kb`].
    pub mlock_kb: Option<u64>,
    /// See [`nmi_watchdog`].
    pub nmi_watchdog: Option<bool>,
    /// See [`kptr_restrict`].
    pub kptr_restrict: Option<u64>,
    /// See [`lockdown`].
    pub lockdown: Option<Lockdown>,
    /// See [`open_files`].
    pub open_files: Option<SoftHard>,
    /// See [`locked_memory`].
    pub locked_memory: Option<SoftHard>,
    /// See [`capabilities()`].
    pub capabilities: Option<Capabilities>,
    /// See [`pid_namespace`].
    pub pid_namespace: Option<bool>,
    /// See [`ptrace_scope`].
    pub ptrace_scope: Option<u64>,
    /// See [`confinement`].
    pub confinement: Confinement,
}

impl Limits {
    /// Reads all limits below `root`, which is `/` except in tests. Resource limits are always this process's own.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        Self {
            max_sample_rate: max_sample_rate(root),
            cpu_time_max_percent: cpu_time_max_percent(root),
            max_stack: max_stack(root),
            paranoid: paranoid(root),
            mlock_kb: mlock_kb(root),
            nmi_watchdog: nmi_watchdog(root),
            kptr_restrict: kptr_restrict(root),
            lockdown: lockdown(root),
            open_files: Some(open_files()),
            locked_memory: Some(locked_memory()),
            capabilities: capabilities(root),
            pid_namespace: pid_namespace(root),
            ptrace_scope: ptrace_scope(root),
            confinement: confinement(root),
        }
    }
}

/// Rules beside capabilities that can refuse system calls to this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Whether it has a seccomp filter.
    pub seccomp: bool,
    /// A profile of AppArmor's that is enforced.
    pub apparmor: Option<String>,
    /// A type of SELinux's other than those of unconfined processes.
    pub selinux: Option<String>,
}

impl Confinement {
    /// Whether anything of it applies.
    pub(crate) fn is_any(&self) -> bool {
        *self != Self::default()
    }
}

/// A resource limit; `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftHard {
    /// Current limit; `None`: unlimited.
    pub soft: Option<u64>,
    /// Up to where this process may raise it itself.
    pub hard: Option<u64>,
}

impl SoftHard {
    /// Hint for an exhausted limit of open files.
    #[must_use]
    pub fn hint(self) -> String {
        let number =
            |limit: Option<u64>| limit.map_or("unlimited".into(), |limit| limit.to_string());
        format!(
            "the limit of open files is {} (hard limit {}): run 'ulimit -n {}' first, \
             or trace fewer threads and probes",
            number(self.soft),
            number(self.hard),
            number(self.hard.map(|hard| hard.max(65_536))),
        )
    }
}

/// Lockdown mode of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lockdown {
    /// Off.
    None,
    /// Unsigned code may not change the kernel; tracing works.
    Integrity,
    /// No process may read kernel memory: eBPF reads of kernel memory and kernel samples are refused.
    Confidentiality,
}

/// Effective capabilities that matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// `CAP_SYS_ADMIN`: includes PERFMON and BPF.
    pub sys_admin: bool,
    /// `CAP_PERFMON`: perf events beyond `kernel.perf_event_paranoid`. Since Linux 5.8.
    pub perfmon: bool,
    /// `CAP_BPF`: loading eBPF programs. Since Linux 5.8.
    pub bpf: bool,
    /// `CAP_SYS_PTRACE`: looking into other users' processes.
    pub sys_ptrace: bool,
    /// `CAP_SYSLOG`: kernel symbol addresses under `kernel.kptr_restrict` = 1.
    pub syslog: bool,
    /// `CAP_SYS_RESOURCE`: raising resource limits beyond the hard limit.
    pub sys_resource: bool,
    /// `CAP_DAC_READ_SEARCH`: reading binaries and `/proc` files of others.
    pub dac_read_search: bool,
}

impl Capabilities {
    /// Decodes the mask of `CapEff:` in `/proc/self/status`.
    ///
    /// Source: include/uapi/linux/capability.h.
    #[must_use]
    pub const fn from_mask(mask: u64) -> Self {
        Self {
            dac_read_search: mask & (1 << 2) != 0,
            sys_ptrace: mask & (1 << 19) != 0,
            sys_admin: mask & (1 << 21) != 0,
            sys_resource: mask & (1 << 24) != 0,
            syslog: mask & (1 << 34) != 0,
            perfmon: mask & (1 << 38) != 0,
            bpf: mask & (1 << 39) != 0,
        }
    }

    /// Whether perf events of any process and of the kernel may be opened whatever
    /// `kernel.perf_event_paranoid` says.
    #[must_use]
    pub const fn may_perf(self) -> bool {
        self.perfmon || self.sys_admin
    }

    /// Whether tracing eBPF programs may be loaded.
    #[must_use]
    pub const fn may_bpf(self) -> bool {
        self.sys_admin || (self.bpf && self.perfmon)
    }
}

/// `kernel.perf_event_max_stack`: frames of a call stack at most, in the kernel and in user space each.
#[must_use]
pub(crate) fn max_stack(root: &Path) -> Option<u64> {
    sysctl(root, "perf_event_max_stack")
}

/// `kernel.perf_event_max_sample_rate`: samples per second and CPU above which the kernel throttles.
#[must_use]
pub(crate) fn max_sample_rate(root: &Path) -> Option<u64> {
    sysctl(root, "perf_event_max_sample_rate")
}

/// `kernel.perf_cpu_time_max_percent`: share of a CPU's time that sampling interrupts may take
/// before the kernel lowers the maximum rate; 0 and 100 turn that off.
#[must_use]
pub(crate) fn cpu_time_max_percent(root: &Path) -> Option<u64> {
    sysctl(root, "perf_cpu_time_max_percent")
}

/// `kernel.perf_event_paranoid`: -1 lets everyone do everything, 2 allows only own processes in
/// user mode, 3 (Debian, Ubuntu) nothing without a capability.
#[must_use]
pub(crate) fn paranoid(root: &Path) -> Option<i64> {
    sysctl(root, "perf_event_paranoid")
}

/// `kernel.perf_event_mlock_kb`: KiB of perf ring buffers per CPU that an unprivileged user may
/// have.
#[must_use]
pub(crate) fn mlock_kb(root: &Path) -> Option<u64> {
    sysctl(root, "perf_event_mlock_kb")
}

/// `kernel.nmi_watchdog`: whether the hard lockup detector holds a hardware counter on each CPU.
#[must_use]
pub(crate) fn nmi_watchdog(root: &Path) -> Option<bool> {
    sysctl::<u64>(root, "nmi_watchdog").map(|value| value != 0)
}

/// `kernel.kptr_restrict`: above 0 kernel addresses are hidden from some, at 2 from all.
#[must_use]
pub(crate) fn kptr_restrict(root: &Path) -> Option<u64> {
    sysctl(root, "kptr_restrict")
}

/// `kernel.yama.ptrace_scope`: at 2 only processes with `CAP_SYS_PTRACE` may trace one, at 3 none; `None` without Yama.
#[must_use]
pub(crate) fn ptrace_scope(root: &Path) -> Option<u64> {
    sysctl(root, "yama/ptrace_scope")
}

/// Filters and profiles of this process.
#[must_use]
pub(crate) fn confinement(root: &Path) -> Confinement {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    // Source: proc_pid_status(5), seccomp(2): 2 is SECCOMP_MODE_FILTER.
    let status = read("proc/self/status");
    let mut modes = status.lines().filter_map(|it| it.strip_prefix("Seccomp:"));
    let seccomp = modes.any(|it| it.trim() == "2");
    // With both, AppArmor's is in a folder of its own.
    let profile = match read("proc/self/attr/apparmor/current") {
        none if none.is_empty() => read("proc/self/attr/current"),
        profile => profile,
    };
    Confinement {
        seccomp,
        apparmor: enforced_profile(&profile),
        selinux: confined_type(&read("proc/self/attr/current")),
    }
}

/// Lockdown mode; `None` where the kernel has no lockdown or securityfs is not mounted.
#[must_use]
pub(crate) fn lockdown(root: &Path) -> Option<Lockdown> {
    parse_lockdown(&fs::read_to_string(root.join("sys/kernel/security/lockdown")).ok()?)
}

/// Limit of open files of this process: each counter and each probe takes one.
#[must_use]
pub(crate) fn open_files() -> SoftHard {
    getrlimit(Resource::Nofile).into()
}

/// Limit of the address space of this process, bytes; `None`: unlimited.
#[must_use]
pub(crate) fn address_space() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Limit of locked memory of this process, bytes. Counts eBPF maps before Linux 5.11 and perf
/// rings always.
#[must_use]
pub(crate) fn locked_memory() -> SoftHard {
    getrlimit(Resource::Memlock).into()
}

/// Original limits of open files and of locked memory: child processes would inherit the raised ones, and programs that
/// use `select` break above 1024 files.
#[derive(Clone, Debug)]
pub(crate) struct Former([(Resource, Rlimit); 2]);

impl Former {
    /// As they are.
    #[must_use]
    pub(crate) fn now() -> Self {
        Self([Resource::Nofile, Resource::Memlock].map(|it| (it, getrlimit(it))))
    }

    /// Puts them back. Makes system calls only, as a child may between fork and exec.
    ///
    /// # Errors
    /// The kernel refused.
    pub(crate) fn restore(&self) -> io::Result<()> {
        let mut each = self.0.iter();
        each.try_for_each(|(resource, limit)| Ok(setrlimit(*resource, *limit)?))
    }
}

/// Open files that are enough for most recordings. Source: Linux's own hard limit is 4096, systemd's 524288.
const ENOUGH_FILES: u64 = 65_536;

/// Raises the limits of open files and of locked memory to their hard limits; that of open files also beyond a low hard
/// limit, if this process may. Returns the original limits.
#[must_use]
pub(crate) fn raise() -> Former {
    let former = Former::now();
    for (resource, limit) in &former.0 {
        let maximum = limit.maximum;
        let raise = |maximum| {
            let current = maximum;
            setrlimit(*resource, Rlimit { current, maximum })
        };
        let is_low = *resource == Resource::Nofile && maximum.is_some_and(|it| it < ENOUGH_FILES);
        if is_low && raise(Some(ENOUGH_FILES)).is_ok() {
            continue;
        }
        // A refusal leaves the old limit, and is met when a file can't be opened.
        let _ = raise(maximum);
    }
    former
}

/// Effective capabilities of this process.
#[must_use]
pub(crate) fn capabilities(root: &Path) -> Option<Capabilities> {
    parse_capabilities(&fs::read_to_string(root.join("proc/self/status")).ok()?)
}

/// Whether this process is in a pid namespace, as in most containers: the kernel programs see the machine's pids, and
/// `/proc` here has others. `None` if unknown.
///
/// Source: `PROC_PID_INIT_INO`, include/linux/proc_ns.h.
#[must_use]
pub(crate) fn pid_namespace(root: &Path) -> Option<bool> {
    const MACHINE: u64 = 0xEFFF_FFFC;
    let namespace = fs::metadata(root.join("proc/self/ns/pid")).ok()?;
    Some(namespace.ino() != MACHINE)
}

/// Privileges that recording needs and this process lacks: `None` if it lacks none, or if `/proc` does not show them.
///
/// Says each missing capability; the numbers come from this process, not from the machine.
#[must_use]
pub(crate) fn missing_privileges() -> Option<String> {
    describe_missing(capabilities(Path::new("/"))?)
}

/// The sentence of [`missing_privileges`] for given capabilities.
#[must_use]
pub(crate) fn describe_missing(caps: Capabilities) -> Option<String> {
    let missing: Vec<&str> = [
        (
            caps.may_perf(),
            "CAP_PERFMON (open perf events, place uprobes)",
        ),
        (caps.sys_admin || caps.bpf, "CAP_BPF (load eBPF programs)"),
    ]
    .into_iter()
    .filter_map(|(have, name)| (!have).then_some(name))
    .collect();
    (!missing.is_empty()).then(|| format!("not root: missing {}", missing.join(" and ")))
}

impl From<Rlimit> for SoftHard {
    fn from(limit: Rlimit) -> Self {
        Self {
            soft: limit.current,
            hard: limit.maximum,
        }
    }
}

fn sysctl<T: std::str::FromStr>(root: &Path, name: &str) -> Option<T> {
    let path = root.join("proc/sys/kernel").join(name);
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn parse_lockdown(text: &str) -> Option<Lockdown> {
    let current = text.split('[').nth(1)?.split(']').next()?;
    match current {
        "none" => Some(Lockdown::None),
        "integrity" => Some(Lockdown::Integrity),
        "confidentiality" => Some(Lockdown::Confidentiality),
        _ => None,
    }
}

/// The profile in `docker-default (enforce)`; `None` if it only logs, or there is none (`unconfined`).
fn enforced_profile(current: &str) -> Option<String> {
    let name = current
        .trim_end_matches(['\n', '\0'])
        .strip_suffix(" (enforce)")?;
    Some(name.to_owned())
}

/// The type in `system_u:system_r:container_t:s0`, unless it is one of those that SELinux's targeted policy does not confine.
fn confined_type(current: &str) -> Option<String> {
    let mut parts = current.trim_end_matches(['\n', '\0']).split(':');
    let (_user, _role, kind) = (parts.next()?, parts.next()?, parts.next()?);
    let is_type = kind.ends_with("_t") && !kind.contains(' ');
    let is_free =
        kind.starts_with("unconfined") || matches!(kind, "kernel_t" | "initrc_t" | "spc_t");
    (is_type && !is_free).then(|| kind.to_owned())
}

fn parse_capabilities(status: &str) -> Option<Capabilities> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    let mask = u64::from_str_radix(line.trim(), 16).ok()?;
    Some(Capabilities::from_mask(mask))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lockdown's file marks the current mode with brackets.
    #[test]
    fn lockdown_modes() {
        let cases = [
            ("[none] integrity confidentiality\n", Some(Lockdown::None)),
            (
                "none [integrity] confidentiality\n",
                Some(Lockdown::Integrity),
            ),
            (
                "none integrity [confidentiality]\n",
                Some(Lockdown::Confidentiality),
            ),
            ("", None),
            ("[other]", None),
        ];
        for (text, expect) in cases {
            assert_eq!(parse_lockdown(text), expect, "{text:?}");
        }
    }

    /// Profiles of either module are told apart by their form; those that refuse nothing are none.
    #[test]
    fn profiles() {
        let tree = tempfile::tempdir().unwrap();
        let own = tree.path().join("proc/self");
        fs::create_dir_all(own.join("attr")).unwrap();
        fs::write(
            own.join("status"),
            "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n",
        )
        .unwrap();
        let found = |current: &str| {
            fs::write(own.join("attr/current"), current).unwrap();
            let Confinement {
                seccomp,
                apparmor,
                selinux,
            } = confinement(tree.path());
            assert!(seccomp);
            (apparmor, selinux)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            found("docker-default (enforce)\n"),
            (some("docker-default"), None)
        );
        let child = "/usr/bin/man//filter (enforce)\n";
        assert_eq!(found(child), (some("/usr/bin/man//filter"), None));
        assert_eq!(
            found("system_u:system_r:container_t:s0:c1,c2\0"),
            (None, some("container_t"))
        );
        for free in [
            "unconfined\n",
            "x (complain)\n",
            "unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023\0",
            "system_u:system_r:unconfined_service_t:s0\0",
            "",
        ] {
            assert_eq!(found(free), (None, None), "{free:?}");
        }
        fs::write(own.join("status"), "Seccomp:\t0\n").unwrap();
        assert!(!confinement(tree.path()).seccomp);
        assert_eq!(confinement(&own), Confinement::default(), "nothing to read");
    }

    /// Root's mask has all capabilities; an ordinary user's has none, and both missing ones are named.
    #[test]
    fn capabilities_decide() {
        let root = parse_capabilities("Name:\tx\nCapEff:\t000001ffffffffff\n").unwrap();
        assert!(root.may_perf() && root.may_bpf() && root.syslog && root.sys_ptrace);
        assert_eq!(describe_missing(root), None);

        let user = parse_capabilities("CapEff:\t0000000000000000\n").unwrap();
        let text = describe_missing(user).unwrap();
        assert!(
            text.starts_with("not root")
                && text.contains("CAP_PERFMON")
                && text.contains("CAP_BPF")
        );

        let perf_only = Capabilities::from_mask(1 << 38);
        let text = describe_missing(perf_only).unwrap();
        assert!(
            !text.contains("CAP_PERFMON") && text.contains("CAP_BPF"),
            "{text}"
        );
    }

    /// Sysctls are read below the given root; a missing one is unknown, not 0.
    #[test]
    fn sysctls_from_a_tree() {
        let tree = tempfile::tempdir().unwrap();
        let dir = tree.path().join("proc/sys/kernel");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("perf_event_paranoid"), "-1\n").unwrap();
        fs::write(dir.join("nmi_watchdog"), "1\n").unwrap();
        let limits = Limits::read(tree.path());
        assert_eq!(limits.paranoid, Some(-1));
        assert_eq!(limits.nmi_watchdog, Some(true));
        assert_eq!(limits.max_sample_rate, None);
        assert_eq!(limits.capabilities, None);
    }

    /// Raising never lowers, ends at the hard limit where that is allowed, and can be undone.
    #[test]
    fn raise_reaches_hard() {
        let before = open_files();
        let former = raise();
        let after = open_files();
        assert_eq!(after.hard, before.hard);
        assert_eq!(after.soft, after.hard);
        former.restore().unwrap();
        assert_eq!(open_files(), before);
        let _ = raise();
    }
}
