//! Sampling features of this machine, read once.
//!
//! Plain data: all later decisions depend only on a [`Host`], so tests can use other machines from a folder of
//! files.

use std::fs;
use std::path::Path;

use crate::limits::Limits;
use crate::pmu::sysfs::{self, CORE_PMUS, Pmu, UprobePmu};
use crate::units::Cpu;

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Kernel release as `uname -r` prints it.
    pub release: String,
    /// Kernel version; `None` if the release does not start with one.
    pub version: Option<KernelVersion>,
    pub cpu: CpuModel,
    /// CPUs online, ascending.
    pub online: Vec<Cpu>,
    /// Hypervisor below this kernel, if any.
    pub hypervisor: Option<String>,
    /// Size of a line of the first cache; `None` if unknown.
    pub line_bytes: Option<u32>,
    /// PMUs, sorted by name.
    pub pmus: Vec<Pmu>,
    /// The PMU of uprobes.
    pub uprobe: Option<UprobePmu>,
    pub limits: Limits,
}

/// Hint for a kernel that is too old.
pub(crate) const NEWER: &str = "boot Linux 5.15 or later (Debian 12 and later have it)";

/// A kernel's version. Compares as a version does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion(
    /// First number.
    pub u32,
    /// Second number.
    pub u32,
);

impl KernelVersion {
    /// Reads `6.18` off the front of `6.18.44-cloud-amd64`.
    #[must_use]
    pub fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        Some(Self(
            numbers.next()?.parse().ok()?,
            numbers.next()?.parse().ok()?,
        ))
    }
}

impl std::fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// CPU vendor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Vendor {
    Intel,
    /// AMD, and Hygon (Zen).
    Amd,
    /// Anyone else, or unknown.
    #[default]
    Other,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuModel {
    /// CPU vendor.
    pub vendor: Vendor,
    /// Family as in `/proc/cpuinfo`.
    pub family: u32,
    pub model: u32,
    pub stepping: u32,
    pub name: String,
}

impl Host {
    /// Reads the machine's files below `root`, which is `/` except in tests.
    ///
    /// Unreadable values stay empty; nothing is opened or changed. Cost: a few hundred small files.
    #[must_use]
    pub fn probe(root: &Path) -> Self {
        let cpuinfo = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
        let release = sysfs::text(&root.join("proc/sys/kernel/osrelease")).unwrap_or_default();
        Self {
            version: KernelVersion::parse(&release),
            release,
            cpu: parse_cpu(&cpuinfo),
            online: online_cpus(root),
            hypervisor: hypervisor(root, &cpuinfo),
            line_bytes: line_bytes(root),
            pmus: sysfs::read_pmus(root),
            uprobe: UprobePmu::read(root),
            limits: Limits::read(root),
        }
    }

    #[must_use]
    pub fn pmu(&self, name: &str) -> Option<&Pmu> {
        self.pmus.iter().find(|pmu| pmu.name == name)
    }

    /// Whether a program sees the time that the kernel gave to a sample; before Linux 6.3 it reads uninitialized
    /// memory.
    /// Source: kernel/events/core.c (`perf_prepare_sample` before `bpf_overflow_handler`).
    #[must_use]
    pub fn programs_see_sample_time(&self) -> bool {
        self.at_least(KernelVersion(6, 3))
    }

    /// Whether the kernel is at least that version; an unknown version is not.
    #[must_use]
    pub fn at_least(&self, version: KernelVersion) -> bool {
        self.version.is_some_and(|own| own >= version)
    }

    /// The PMU of the cores: `cpu`, or on hybrid CPUs that of the performance cores.
    #[must_use]
    pub fn core_pmu(&self) -> Option<&Pmu> {
        self.core_pmus().next()
    }

    /// The PMU of each kind of cores, performance cores first.
    pub fn core_pmus(&self) -> impl Iterator<Item = &Pmu> {
        CORE_PMUS.iter().filter_map(|name| self.pmu(name))
    }

    /// Whether the CPU has two kinds of cores with a PMU each.
    #[must_use]
    pub fn is_hybrid(&self) -> bool {
        self.core_pmus().count() > 1
    }

    /// Maximum precise level of core events: 0 without PEBS or IBS.
    ///
    /// AMD's cores have none themselves; `cycles` with a precise level uses IBS, which supports levels 1 and 2.
    /// Source: arch/x86/events/core.c (`max_precise_show`), arch/x86/events/amd/ibs.c.
    #[must_use]
    pub fn max_precise(&self) -> u8 {
        let core = self.core_pmu().and_then(|pmu| pmu.max_precise).unwrap_or(0);
        let ibs = if self.pmu("ibs_op").is_some() { 2 } else { 0 };
        core.max(ibs)
    }

    /// Why there is no hardware PMU, for messages; `None` if there is one.
    #[must_use]
    pub fn no_pmu_reason(&self) -> Option<String> {
        if self.core_pmu().is_some() {
            return None;
        }
        let guest = match self.hypervisor {
            Some(_) => " (a virtual machine that was given none)",
            None => "",
        };
        Some(format!("no hardware PMU here{guest}"))
    }
}

/// CPUs online now, ascending.
#[must_use]
pub(crate) fn online_cpus(root: &Path) -> Vec<Cpu> {
    sysfs::text(&root.join("sys/devices/system/cpu/online"))
        .and_then(|list| sysfs::parse_cpu_list(&list))
        .unwrap_or_default()
}

/// Size of a line of the first CPU's first cache.
///
/// Source: Documentation/ABI/testing/sysfs-devices-system-cpu (`coherency_line_size`).
fn line_bytes(root: &Path) -> Option<u32> {
    let file = root.join("sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size");
    let bytes: u32 = sysfs::text(&file)?.parse().ok()?;
    bytes.is_power_of_two().then_some(bytes)
}

/// The model of the first CPU in `/proc/cpuinfo`.
fn parse_cpu(cpuinfo: &str) -> CpuModel {
    let number = |key| {
        field(cpuinfo, key)
            .and_then(|value| value.parse().ok())
            .unwrap_or(0)
    };
    CpuModel {
        vendor: match field(cpuinfo, "vendor_id") {
            Some("GenuineIntel") => Vendor::Intel,
            Some("AuthenticAMD" | "HygonGenuine") => Vendor::Amd,
            _ => Vendor::Other,
        },
        family: number("cpu family"),
        model: number("model"),
        stepping: number("stepping"),
        name: field(cpuinfo, "model name").map_or_else(|| numbered(cpuinfo), str::to_owned),
    }
}

/// The name of a CPU that has none: aarch64 gives numbers of the implementer and of the part.
fn numbered(cpuinfo: &str) -> String {
    let both = field(cpuinfo, "CPU implementer").zip(field(cpuinfo, "CPU part"));
    both.map_or_else(
        || "unknown".to_owned(),
        |(implementer, part)| format!("CPU {implementer}:{part}"),
    )
}

/// The first value of a key of `/proc/cpuinfo`.
fn field<'a>(cpuinfo: &'a str, key: &str) -> Option<&'a str> {
    cpuinfo.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

/// The hypervisor's name as far as known; `None` without the CPU flag.
fn hypervisor(root: &Path, cpuinfo: &str) -> Option<String> {
    let flags = field(cpuinfo, "flags")?;
    if !flags.split_whitespace().any(|flag| flag == "hypervisor") {
        return None;
    }
    let paths = ["sys/hypervisor/type", "sys/class/dmi/id/sys_vendor"];
    let name = paths.iter().find_map(|path| sysfs::text(&root.join(path)));
    Some(
        name.filter(|name| !name.is_empty())
            .unwrap_or_else(|| "an unnamed hypervisor".into()),
    )
}

#[cfg(test)]
pub(crate) mod fixtures;

#[cfg(test)]
mod tests {
    use super::*;

    /// Release strings of distributions all start with the version.
    #[test]
    fn kernel_versions() {
        assert_eq!(
            KernelVersion::parse("6.18.44-fc"),
            Some(KernelVersion(6, 18))
        );
        assert_eq!(
            KernelVersion::parse("5.4.0-42-generic"),
            Some(KernelVersion(5, 4))
        );
        assert_eq!(KernelVersion::parse("7.0-rc1"), Some(KernelVersion(7, 0)));
        assert_eq!(KernelVersion::parse(""), None);
        assert!(KernelVersion(6, 9) < KernelVersion(6, 18));
    }

    /// A fixture is read completely: CPU, PMUs and the maximum precise level.
    #[test]
    fn fixtures_are_read() {
        let host = fixtures::skylake();
        assert_eq!(
            (host.cpu.vendor, host.cpu.family, host.cpu.model),
            (Vendor::Intel, 6, 85)
        );
        assert_eq!((host.online.len(), host.max_precise()), (4, 3));
        assert_eq!(
            (host.hypervisor.clone(), host.no_pmu_reason()),
            (None, None)
        );
        assert!(host.uprobe.is_some());
        assert_eq!(fixtures::zen4().max_precise(), 2);
        assert_eq!(fixtures::skylake_guest().max_precise(), 0);
        let cores = fixtures::alder_lake().core_pmu().unwrap().cpus.clone();
        assert_eq!(cores, Some(vec![Cpu(0), Cpu(1)]));
    }

    /// A guest without a PMU has a reason for that.
    #[test]
    fn bare_guest_has_a_reason() {
        let reason = fixtures::bare_guest().no_pmu_reason().unwrap();
        let expect = "no hardware PMU here (a ";
        assert!(reason.starts_with(expect), "{reason}");
        assert!(reason.contains("virtual machine"), "{reason}");
    }

    /// The machine that runs the tests has a kernel, CPUs and software events.
    #[test]
    fn this_machine() {
        let host = Host::probe(Path::new("/"));
        assert!(host.version.is_some(), "{}", host.release);
        assert!(!host.online.is_empty());
        assert_eq!(host.pmu("software").map(|pmu| pmu.kind), Some(1));
    }
}
