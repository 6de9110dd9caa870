//! What this machine offers for sampling, looked up once.
//!
//! Plain data: everything later decides from a [`Host`], so that other machines can be played
//! from a folder of files.

use std::fs;
use std::path::Path;

use crate::pmu::limits::Limits;
use crate::pmu::open::UprobePmu;
use crate::pmu::sysfs::{self, Pmu};
use crate::units::Cpu;

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Kernel release as `uname -r` prints it.
    pub release: String,
    /// Its version; `None` if the release does not start with one.
    pub version: Option<KernelVersion>,
    /// CPU.
    pub cpu: CpuModel,
    /// CPUs online, ascending.
    pub online: Vec<Cpu>,
    /// Hypervisor below this kernel, if any.
    pub hypervisor: Option<String>,
    /// PMUs, sorted by name.
    pub pmus: Vec<Pmu>,
    /// The PMU of uprobes.
    pub uprobe: Option<UprobePmu>,
    /// Limits.
    pub limits: Limits,
}

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

/// Who made the CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// Intel.
    Intel,
    /// AMD, and Hygon, whose CPUs are Zen.
    Amd,
    /// Anyone else, or unknown.
    #[default]
    Other,
}

/// A CPU's model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuModel {
    /// Who made it.
    pub vendor: Vendor,
    /// Family as `/proc/cpuinfo` says it.
    pub family: u32,
    /// Model.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
    /// Name.
    pub name: String,
}

impl Host {
    /// Looks at the machine below `root`, which is `/` except in tests.
    ///
    /// What can't be read is left empty; nothing is opened or changed. Cost: some hundred small
    /// files.
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
            pmus: sysfs::read_pmus(root),
            uprobe: UprobePmu::read(root),
            limits: Limits::read(root),
        }
    }

    /// The PMU of that name.
    #[must_use]
    pub fn pmu(&self, name: &str) -> Option<&Pmu> {
        self.pmus.iter().find(|pmu| pmu.name == name)
    }

    /// Whether a program sees the time that the kernel gave to a sample: before Linux 6.3 it finds what
    /// happens to lie there.
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

    /// The PMU of the cores: `cpu`, or on hybrid CPUs the one of the performance cores.
    #[must_use]
    pub fn core_pmu(&self) -> Option<&Pmu> {
        self.pmu("cpu").or_else(|| self.pmu("cpu_core"))
    }

    /// Whether the CPU has two kinds of cores with a PMU each.
    #[must_use]
    pub fn is_hybrid(&self) -> bool {
        self.pmu("cpu_core").is_some() && self.pmu("cpu_atom").is_some()
    }

    /// Highest precise level of the cores' events: 0 without PEBS or IBS.
    ///
    /// AMD's cores have none of their own; `cycles` with a precise level goes to IBS, which knows
    /// levels 1 and 2.
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
        let guest = match &self.hypervisor {
            Some(name) => format!(" (a virtual machine on {name} that was given none)"),
            None => String::new(),
        };
        Some(format!(
            "no hardware PMU here: /{} has no cpu{guest}",
            sysfs::DEVICES
        ))
    }
}

/// CPUs online now, ascending.
#[must_use]
pub fn online_cpus(root: &Path) -> Vec<Cpu> {
    sysfs::text(&root.join("sys/devices/system/cpu/online"))
        .and_then(|list| sysfs::parse_cpu_list(&list))
        .unwrap_or_default()
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
        name: field(cpuinfo, "model name").unwrap_or("unknown").to_owned(),
    }
}

/// The first value of a key of `/proc/cpuinfo`.
fn field<'a>(cpuinfo: &'a str, key: &str) -> Option<&'a str> {
    cpuinfo.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

/// The hypervisor's name as far as the machine tells; the CPU flag decides whether there is one.
fn hypervisor(root: &Path, cpuinfo: &str) -> Option<String> {
    let flags = field(cpuinfo, "flags")?;
    if !flags.split_whitespace().any(|flag| flag == "hypervisor") {
        return None;
    }
    let told = ["sys/hypervisor/type", "sys/class/dmi/id/sys_vendor"];
    let name = told.iter().find_map(|path| sysfs::text(&root.join(path)));
    Some(
        name.filter(|name| !name.is_empty())
            .unwrap_or_else(|| "an unnamed hypervisor".into()),
    )
}

/// Machines that this one is not, as folders of files. Values are those that the kernel's source
/// prints: arch/x86/events/{core.c,intel/core.c,amd/core.c,amd/ibs.c}.
#[cfg(test)]
pub(crate) mod fixtures {
    use super::*;

    /// Writes files below a temporary folder and probes it.
    pub(crate) fn host(files: &[(&str, &str)]) -> Host {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        Host::probe(root.path())
    }

    fn cpuinfo(vendor: &str, family: u32, model: u32, flags: &str) -> String {
        format!(
            "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n\
             model name\t: Fixture\nstepping\t: 4\nflags\t\t: fpu {flags}"
        )
    }

    const COMMON: [(&str, &str); 7] = [
        ("sys/devices/system/cpu/online", "0-3"),
        ("sys/bus/event_source/devices/software/type", "1"),
        ("sys/bus/event_source/devices/breakpoint/type", "5"),
        ("sys/bus/event_source/devices/uprobe/type", "7"),
        (
            "sys/bus/event_source/devices/uprobe/format/retprobe",
            "config:0",
        ),
        ("proc/sys/kernel/perf_event_max_sample_rate", "100000"),
        ("proc/sys/kernel/osrelease", "6.12.1-amd64"),
    ];

    const INTEL: [(&str, &str); 13] = [
        ("sys/bus/event_source/devices/cpu/type", "4"),
        (
            "sys/bus/event_source/devices/cpu/format/event",
            "config:0-7",
        ),
        (
            "sys/bus/event_source/devices/cpu/format/umask",
            "config:8-15",
        ),
        ("sys/bus/event_source/devices/cpu/format/edge", "config:18"),
        ("sys/bus/event_source/devices/cpu/format/pc", "config:19"),
        ("sys/bus/event_source/devices/cpu/format/any", "config:21"),
        ("sys/bus/event_source/devices/cpu/format/inv", "config:23"),
        (
            "sys/bus/event_source/devices/cpu/format/cmask",
            "config:24-31",
        ),
        (
            "sys/bus/event_source/devices/cpu/format/ldlat",
            "config1:0-15",
        ),
        (
            "sys/bus/event_source/devices/cpu/format/offcore_rsp",
            "config1:0-63",
        ),
        (
            "sys/bus/event_source/devices/cpu/events/cpu-cycles",
            "event=0x3c",
        ),
        (
            "sys/bus/event_source/devices/cpu/events/mem-loads",
            "event=0xcd,umask=0x1,ldlat=3",
        ),
        ("sys/bus/event_source/devices/cpu/caps/max_precise", "3"),
    ];

    fn build(parts: &[&[(&str, &str)]], cpuinfo: &str) -> Host {
        let mut files: Vec<(&str, &str)> = parts.concat();
        files.push(("proc/cpuinfo", cpuinfo));
        host(&files)
    }

    /// Skylake-SP: family 6, model 85.
    pub(crate) fn skylake() -> Host {
        build(
            &[&COMMON, &INTEL],
            &cpuinfo("GenuineIntel", 6, 85, "ds pebs"),
        )
    }

    /// Ice Lake-SP: family 6, model 106.
    pub(crate) fn ice_lake() -> Host {
        build(
            &[&COMMON, &INTEL],
            &cpuinfo("GenuineIntel", 6, 106, "ds pebs"),
        )
    }

    /// A guest on a Skylake host that grants counters but no PEBS.
    pub(crate) fn skylake_guest() -> Host {
        let no_pebs = [("sys/bus/event_source/devices/cpu/caps/max_precise", "0")];
        build(
            &[&COMMON, &INTEL, &no_pebs],
            &cpuinfo("GenuineIntel", 6, 85, "hypervisor"),
        )
    }

    const AMD: [(&str, &str); 13] = [
        ("sys/bus/event_source/devices/cpu/type", "4"),
        (
            "sys/bus/event_source/devices/cpu/format/event",
            "config:0-7,32-35",
        ),
        (
            "sys/bus/event_source/devices/cpu/format/umask",
            "config:8-15",
        ),
        ("sys/bus/event_source/devices/cpu/format/edge", "config:18"),
        ("sys/bus/event_source/devices/cpu/format/inv", "config:23"),
        (
            "sys/bus/event_source/devices/cpu/format/cmask",
            "config:24-31",
        ),
        ("sys/bus/event_source/devices/cpu/caps/max_precise", "0"),
        ("sys/bus/event_source/devices/ibs_fetch/type", "9"),
        (
            "sys/bus/event_source/devices/ibs_fetch/format/rand_en",
            "config:57",
        ),
        ("sys/bus/event_source/devices/ibs_op/type", "10"),
        (
            "sys/bus/event_source/devices/ibs_op/format/cnt_ctl",
            "config:19",
        ),
        (
            "sys/bus/event_source/devices/ibs_op/format/l3missonly",
            "config:16",
        ),
        (
            "sys/bus/event_source/devices/ibs_op/caps/zen4_ibs_extensions",
            "1",
        ),
    ];

    /// Zen 4: family 25, model 17, before the kernel filtered modes.
    pub(crate) fn zen4() -> Host {
        build(&[&COMMON, &AMD], &cpuinfo("AuthenticAMD", 25, 17, "ibs"))
    }

    /// The same with Linux 6.14's `swfilt`.
    pub(crate) fn zen4_swfilt() -> Host {
        let filter = [(
            "sys/bus/event_source/devices/ibs_op/format/swfilt",
            "config2:0",
        )];
        build(
            &[&COMMON, &AMD, &filter],
            &cpuinfo("AuthenticAMD", 25, 17, "ibs"),
        )
    }

    /// A guest without any PMU.
    pub(crate) fn bare_guest() -> Host {
        build(&[&COMMON], &cpuinfo("AuthenticAMD", 26, 2, "hypervisor"))
    }

    /// Alder Lake: two PMUs of cores.
    pub(crate) fn alder_lake() -> Host {
        let hybrid = [
            ("sys/bus/event_source/devices/cpu_core/type", "4"),
            ("sys/bus/event_source/devices/cpu_core/cpus", "0-1"),
            (
                "sys/bus/event_source/devices/cpu_core/format/event",
                "config:0-7",
            ),
            (
                "sys/bus/event_source/devices/cpu_core/caps/max_precise",
                "3",
            ),
            ("sys/bus/event_source/devices/cpu_atom/type", "10"),
            ("sys/bus/event_source/devices/cpu_atom/cpus", "2-3"),
            (
                "sys/bus/event_source/devices/cpu_atom/format/event",
                "config:0-7",
            ),
            (
                "sys/bus/event_source/devices/cpu_atom/caps/max_precise",
                "3",
            ),
        ];
        build(
            &[&COMMON, &hybrid],
            &cpuinfo("GenuineIntel", 6, 151, "ds pebs"),
        )
    }
}

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

    /// A fixture is read back whole: CPU, PMUs and the ceiling of precision.
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

    /// A guest without a PMU says so, and why.
    #[test]
    fn bare_guest_has_a_reason() {
        let reason = fixtures::bare_guest().no_pmu_reason().unwrap();
        let expect = "no hardware PMU here: /sys/bus/event_source/devices has no cpu";
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
