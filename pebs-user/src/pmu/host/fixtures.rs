//! Fixtures of other machines, as folders of files.
//!
//! Each is a list of `path = text` in `pmu/machines`, with the text that the kernel prints on that CPU
//! (arch/x86/events/{core.c,intel/core.c,amd/core.c,amd/ibs.c}). Paths are below the folder of PMUs; `cpu`,
//! `flags`, `online`, `kernel` and `nmi_watchdog` stand for the files with these values.

use std::fs;
use std::path::Path;

use super::Host;
use crate::pmu::sysfs::DEVICES;

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}

/// Probes the machine of a manifest; later lines win.
fn machine(manifest: &str) -> Host {
    let root = tempfile::tempdir().unwrap();
    unpack(manifest, root.path());
    Host::probe(root.path())
}

/// Writes the files of a manifest.
fn unpack(manifest: &str, root: &Path) {
    let (mut cpu, mut flags) = (String::new(), String::new());
    for line in manifest.lines().filter(|line| !line.starts_with('#')) {
        let (key, text) = line.split_once(" = ").unwrap_or_else(|| panic!("{line}"));
        match key {
            "cpu" => cpu = cpuinfo(text),
            "flags" => flags = format!("flags\t\t: fpu {text}"),
            "online" => write(root, "sys/devices/system/cpu/online", text),
            "kernel" => write(root, "proc/sys/kernel/osrelease", text),
            "nmi_watchdog" => write(root, "proc/sys/kernel/nmi_watchdog", text),
            _ => write(root, &format!("{DEVICES}/{key}"), text),
        }
    }
    write(root, "proc/sys/kernel/perf_event_max_sample_rate", "100000");
    write(root, "proc/cpuinfo", &(cpu + &flags));
}

/// `VENDOR FAMILY MODEL STEPPING NAME`.
fn cpuinfo(text: &str) -> String {
    let [vendor, family, model, stepping, name] = text.splitn(5, ' ').collect::<Vec<_>>()[..]
        .try_into()
        .unwrap();
    format!(
        "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n\
         model name\t: {name}\nstepping\t: {stepping}\n"
    )
}

macro_rules! machines {
    ($($(#[doc = $doc:literal])* $name:ident $file:literal)*) => {
        $(
            $(#[doc = $doc])*
            pub(crate) fn $name() -> Host {
                machine(include_str!(concat!("../machines/", $file, ".txt")))
            }
        )*
    };
}

machines! {
    /// Skylake-SP.
    skylake "skylake-sp"
    /// Cascade Lake: the same model, a later stepping.
    cascade_lake "cascade-lake"
    /// Ice Lake-SP.
    ice_lake "ice-lake"
    /// Sapphire Rapids.
    sapphire_rapids "sapphire-rapids"
    /// Alder Lake: two PMUs of cores.
    alder_lake "alder-lake"
    /// Zen 2.
    zen2 "zen2"
    /// Zen 3.
    zen3 "zen3"
    /// Zen 4, before the kernel filtered modes.
    zen4 "zen4"
    /// Zen 4 with Linux 6.14's `swfilt`.
    zen4_swfilt "zen4-swfilt"
    /// Zen 5.
    zen5 "zen5"
    /// A guest without any PMU.
    bare_guest "guest"
}

/// A guest on a Skylake host that grants counters but no PEBS.
pub(crate) fn skylake_guest() -> Host {
    let manifest = include_str!("../machines/skylake-sp.txt");
    machine(&format!(
        "{manifest}cpu/caps/max_precise = 0\nflags = hypervisor\n"
    ))
}
