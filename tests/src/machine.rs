//! Requirements that tests check on this machine.

use std::path::{Path, PathBuf};

/// The binary under test: `PEBS_TRACE`, else `pebs-trace` in the profile's directory of the test
/// executable (`target/debug`).
///
/// # Panics
/// If it does not exist: the harness builds nothing itself.
#[must_use]
pub fn pebs_trace() -> PathBuf {
    let path = match std::env::var_os("PEBS_TRACE") {
        Some(path) => PathBuf::from(path),
        None => profile_dir().join("pebs-trace"),
    };
    assert!(
        path.is_file(),
        "{} is missing: build it with 'cargo build -p pebs-trace', or name it in PEBS_TRACE",
        path.display()
    );
    path.canonicalize().expect("the file is there")
}

/// An example of pebs-user.
///
/// # Errors
/// It was not built: the harness builds nothing itself.
pub fn example(name: &str) -> Result<PathBuf, String> {
    let path = profile_dir().join("examples").join(name);
    match path.is_file() {
        true => Ok(path),
        false => Err(format!(
            "{} is missing: build it with 'cargo build -p pebs-trace --examples'",
            path.display()
        )),
    }
}

/// Directory of the built profile, such as `target/debug`.
///
/// # Panics
/// If the test executable has no path.
#[must_use]
pub fn profile_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("a test has an executable");
    let dir = exe.parent().expect("an executable lies in a directory");
    match dir.file_name() {
        Some(name) if name == "deps" => dir.parent().unwrap_or(dir).to_owned(),
        _ => dir.to_owned(),
    }
}

/// Root privileges, which recording needs.
///
/// # Errors
/// The reason to skip.
pub fn root() -> Result<(), String> {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        Err("not root: recording needs the kernel's permission".to_owned())
    }
}

/// A Python that can import these modules: `PEBS_TRACE_PYTHON`, else `python3`.
///
/// # Errors
/// The reason to skip.
pub fn python(modules: &[&str]) -> Result<PathBuf, String> {
    let python = std::env::var_os("PEBS_TRACE_PYTHON").unwrap_or_else(|| "python3".into());
    let modules = modules.join(", ");
    let import = std::process::Command::new(&python)
        .args(["-c", &format!("import {modules}")])
        .output();
    if import.is_ok_and(|output| output.status.success()) {
        Ok(python.into())
    } else {
        Err(format!(
            "{} cannot import {modules}: set PEBS_TRACE_PYTHON",
            python.display()
        ))
    }
}

/// Path of the S3 server for tests, from its own environment: it brings 300 MB that nothing else needs.
///
/// # Errors
/// There is none.
pub fn s3_server() -> Result<PathBuf, String> {
    let place = profile_dir().with_file_name("tools/moto/bin/moto_server");
    place
        .exists()
        .then_some(place)
        .ok_or_else(|| "no moto_server: 'cargo xtask setup' installs it".to_owned())
}

/// At least that many CPUs.
///
/// # Errors
/// The reason to skip.
pub fn cpus(n: usize) -> Result<(), String> {
    let have = std::thread::available_parallelism().map_or(1, usize::from);
    if have >= n {
        Ok(())
    } else {
        Err(format!("{n} CPUs needed, {have} there"))
    }
}

/// At least that version of the kernel.
///
/// # Errors
/// The reason to skip.
///
/// # Panics
/// If the kernel does not report its version.
pub fn kernel(major: u32, minor: u32) -> Result<(), String> {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(['.', '-', '+']).map(str::parse::<u32>);
    let mut next = || numbers.next().and_then(Result::ok).expect("a version");
    if (next(), next()) >= (major, minor) {
        Ok(())
    } else {
        Err(format!("Linux {major}.{minor} needed, this is {release}"))
    }
}

/// Path of an installed program, symbolic links followed.
///
/// # Errors
/// The reason to skip.
pub fn program(name: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
        .and_then(|file| file.canonicalize().ok())
        .ok_or_else(|| format!("{name} is not installed"))
}

/// Path of a hardware PMU that can sample precisely: Intel's `cpu` with PEBS, or AMD's IBS.
///
/// # Errors
/// The reason to skip.
pub fn precise_pmu() -> Result<PathBuf, String> {
    let devices = Path::new("/sys/bus/event_source/devices");
    let max_precise = |pmu: &str| -> u32 {
        std::fs::read_to_string(devices.join(pmu).join("caps/max_precise"))
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0)
    };
    for pmu in ["cpu", "cpu_core", "ibs_op"] {
        let dir = devices.join(pmu);
        if dir.is_dir() && (pmu == "ibs_op" || max_precise(pmu) > 0) {
            return Ok(dir);
        }
    }
    let found: Vec<String> = std::fs::read_dir(devices)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect();
    Err(format!(
        "no hardware PMU: {} has {}",
        devices.display(),
        found.join(", ")
    ))
}
