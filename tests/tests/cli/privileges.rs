//! Without root: exactly what is missing is named.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use pebs_tests::workload::Workload;
use pebs_tests::{machine, need, process};

use super::{hints, refused};

/// Runs the tool as nobody, from copies that nobody may execute.
fn as_nobody(build: impl FnOnce(&str) -> Vec<String>) -> Result<process::Finished, String> {
    machine::root()?;
    let setpriv = machine::program("setpriv")?;
    let dir = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o777))
        .tempdir()
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

/// doctor runs without root, says what is missing, and exits 1.
#[test]
fn doctor_without_root() {
    let done = need!(as_nobody(|_| vec!["doctor".to_owned()]));
    assert_eq!(done.code(), Some(1), "{done}");
    assert!(done.stdout.contains("missing"), "{done}");
    assert!(done.stdout.contains("CAP_BPF"), "{done}");
}

/// With root on a machine that can record, doctor finds nothing missing, and says what is only
/// degraded.
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
        let said = done.stdout.to_lowercase().contains(&topic.to_lowercase());
        assert!(said, "doctor says nothing of {topic}\n{done}");
    }
}

/// What needs no permission works without.
#[test]
fn probes_without_root() {
    let done = need!(as_nobody(|target| vec![
        "probes".to_owned(),
        target.to_owned()
    ]));
    assert_eq!(done.code(), Some(0), "{done}");
    assert!(done.stdout.contains("handle"), "{done}");
}
