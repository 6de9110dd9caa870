//! Without root: exactly the missing privilege is named.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use pebs_tests::workload::Workload;
use pebs_tests::{machine, need, process};

use super::{hints, refused};

/// Runs the tool as user nobody, from copies that other users can't execute.
fn as_nobody(build: impl FnOnce(&str) -> Vec<String>) -> Result<process::Finished, String> {
    as_nobody_with("-all", build)
}

/// The same, with these capabilities.
fn as_nobody_with(
    capabilities: &str,
    build: impl FnOnce(&str) -> Vec<String>,
) -> Result<process::Finished, String> {
    machine::root()?;
    let setpriv = machine::program("setpriv")?;
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    // Independent of the umask.
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777))
        .map_err(|e| e.to_string())?;
    let (tool, target) = (dir.path().join("pebs-trace"), dir.path().join("target"));
    process::copy_program(&machine::pebs_trace(), &tool);
    process::copy_program(&Workload::build("plain").path, &target);
    let done = process::run(
        Command::new(setpriv)
            .args([
                "--reuid",
                "65534",
                "--regid",
                "65534",
                "--clear-groups",
                "--inh-caps",
                capabilities,
                "--ambient-caps",
                capabilities,
                "--",
            ])
            .arg(tool)
            .args(build(&target.display().to_string()))
            .current_dir(dir.path()),
    );
    Ok(done)
}

/// A recording names the capabilities that it lacks, and how to get them.
#[test]
fn recording_names_what_is_missing() {
    let done = need!(as_nobody(|target| {
        let spec = format!("{target}:handle");
        ["--uprobe", &spec, "-o", "trace", "--", target]
            .map(str::to_owned)
            .into()
    }));
    refused(&done, &["CAP_BPF"]);
    assert!(done.stderr.contains("CAP_PERFMON"), "{done}");
    hints(&done, &["sudo"]);
}

/// Kernels differ in whether uprobes need more than `CAP_PERFMON`: doctor knows, and a refused recording names the
/// missing capability, not the present ones.
#[test]
fn without_sys_admin() {
    let capabilities = "-all,+perfmon,+bpf,+sys_ptrace";
    let doctor = need!(as_nobody_with(capabilities, |_| vec!["doctor".to_owned()]));
    let mut lines = doctor.stdout.lines();
    let uprobes = lines.find(|line| line.contains(" uprobes ")).unwrap();
    let done = need!(as_nobody_with(capabilities, |target| {
        let spec = format!("{target}:handle");
        ["--uprobe", &spec, "-o", "trace", "--", target]
            .map(str::to_owned)
            .into()
    }));
    if uprobes.starts_with("ok") {
        assert!(matches!(done.code(), Some(0 | 1)), "{doctor}\n{done}");
        return;
    }
    assert!(uprobes.starts_with("missing"), "{doctor}");
    assert!(uprobes.contains("CAP_SYS_ADMIN"), "{doctor}");
    refused(&done, &["cannot place ", "permission denied"]);
    hints(&done, &["CAP_SYS_ADMIN", "use sudo"]);
}

/// doctor runs without root, names the missing privileges, and exits 1.
#[test]
fn doctor_without_root() {
    let done = need!(as_nobody(|_| vec!["doctor".to_owned()]));
    assert_eq!(done.code(), Some(1), "{done}");
    assert!(done.stdout.contains("missing"), "{done}");
    assert!(done.stdout.contains("CAP_BPF"), "{done}");
}

/// With root on a machine that can record, doctor finds nothing missing, and lists degraded features only.
#[test]
fn doctor_with_root() {
    need!(machine::root());
    let done = pebs_tests::recording::pebs_trace(["doctor"]);
    assert_eq!(done.code(), Some(0), "{done}");
    assert!(done.stdout.contains("ok"), "{done}");
    for topic in [
        "kernel",
        "BTF",
        "capabilit",
        "paranoid",
        "lockdown",
        "PMU",
        "memlock",
    ] {
        let is_named = done.stdout.to_lowercase().contains(&topic.to_lowercase());
        assert!(is_named, "doctor says nothing of {topic}\n{done}");
    }
}

/// Commands that need no permission work without.
#[test]
fn probes_without_root() {
    let done = need!(as_nobody(|target| vec![
        "probes".to_owned(),
        target.to_owned()
    ]));
    assert_eq!(done.code(), Some(0), "{done}");
    assert!(done.stdout.contains("handle"), "{done}");
}
