//! Binaries that cannot be probed.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use pebs_tests::recording::pebs_trace;
use pebs_tests::workload::Workload;
use pebs_tests::{machine, need, process};

use super::{hints, record_spec, refused};

/// No such file.
#[test]
fn missing() {
    need!(machine::root());
    let done = record_spec("/nowhere/server:handle");
    refused(&done, &["/nowhere/server", "no such file", "hint:"]);
}

/// A bare name that is in no directory of the PATH.
#[test]
fn not_in_path() {
    need!(machine::root());
    let done = record_spec("no-such-program-at-all:handle");
    refused(&done, &["no-such-program-at-all"]);
}

#[test]
fn directory() {
    need!(machine::root());
    refused(&record_spec("/usr/bin:handle"), &["/usr/bin"]);
}

/// A file that its user may not read. Root may read all, so another user asks.
#[test]
fn unreadable() {
    need!(machine::root());
    let setpriv = need!(machine::program("setpriv"));
    let dir = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir()
        .unwrap();
    let (secret, tool) = (dir.path().join("secret"), dir.path().join("pebs-trace"));
    fs::copy(Workload::build("plain").path, &secret).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).unwrap();
    process::copy_program(&machine::pebs_trace(), &tool);
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
            .args(["probes", &secret.display().to_string()]),
    );
    refused(&done, &["secret", "permission denied"]);
}

/// A script.
#[test]
fn not_an_elf() {
    need!(machine::root());
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    fs::write(&script, "#!/bin/sh\nexit 0\n").unwrap();
    let done = record_spec(&format!("{}:main", script.display()));
    refused(&done, &["script", "not an ELF"]);
}

/// An empty file and a cut ELF file.
#[test]
fn damaged() {
    need!(machine::root());
    let dir = tempfile::tempdir().unwrap();
    let whole = fs::read(Workload::build("plain").path).unwrap();
    for length in [0, 3, 20, 64, 200, whole.len() / 2] {
        let file = dir.path().join(format!("first{length}"));
        fs::write(&file, &whole[..length]).unwrap();
        let done = record_spec(&format!("{}:handle", file.display()));
        refused(&done, &[&format!("first{length}")]);
    }
}

/// An ELF file for another machine.
#[test]
fn wrong_architecture() {
    need!(machine::root());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("arm");
    let mut bytes = fs::read(Workload::build("plain").path).unwrap();
    // e_machine: EM_AARCH64.
    bytes[18..20].copy_from_slice(&183u16.to_le_bytes());
    fs::write(&file, bytes).unwrap();
    let done = record_spec(&format!("{}:handle", file.display()));
    refused(&done, &["arm64", "x86-64"]);
}

/// A name that is nearly right: the nearest are suggested.
#[test]
fn unknown_function() {
    need!(machine::root());
    let workload = Workload::build("overlap");
    let done = record_spec(&workload.spec("begin_itm"));
    refused(&done, &["begin_itm", "not found"]);
    assert!(done.stderr.contains("begin_item"), "no suggestion\n{done}");
    let done = record_spec(&workload.spec("begin_item..finish_itm"));
    refused(&done, &["finish_itm", "not found"]);
}

/// A stripped binary is reported as such, with the functions that can be probed.
#[test]
fn unknown_function_of_a_stripped_binary() {
    need!(machine::root());
    let workload = Workload::build("stripped");
    let done = record_spec(&workload.spec("handle"));
    refused(&done, &["handle", "not found", "stripped"]);
    // There are no names, so the hint does not ask for one.
    hints(&done, &["where functions begin", "0xADDR"]);
}

/// A SPEC is text: for a binary whose name is not UTF-8 there is a hint.
#[test]
fn name_that_is_not_text() {
    let spec = OsStr::from_bytes(b"./serv\xff:handle");
    let done = pebs_trace([OsStr::new("--uprobe"), spec]);
    assert_eq!(done.code(), Some(2), "{done}");
    hints(&done, &["must be UTF-8", "ln -s"]);
}

/// A function that the binary only imports has no address in it.
#[test]
fn function_without_an_address() {
    need!(machine::root());
    let workload = Workload::build("shared_lib");
    let done = record_spec(&workload.spec("lib_handle"));
    refused(&done, &["lib_handle", "another library"]);
}

/// An address outside of all code.
#[test]
fn address_outside() {
    need!(machine::root());
    let workload = Workload::build("plain");
    refused(
        &record_spec(&workload.spec("0x7fffffff0000")),
        &["0x7fffffff0000"],
    );
}

/// An offset beyond the function, and one into the middle of an instruction.
#[test]
fn offset_outside() {
    need!(machine::root());
    let workload = Workload::build("plain");
    refused(
        &record_spec(&workload.spec("handle+0x100000..handle%return")),
        &["handle"],
    );
}

/// `probes` lists the functions that can be probed, or those that match a pattern.
#[test]
fn probes_lists_functions() {
    let workload = Workload::build("overlap");
    let path = workload.path.display().to_string();
    let all = pebs_trace(["probes", &path]);
    assert_eq!(all.code(), Some(0), "{all}");
    for function in ["begin_item", "step", "end_item", "main"] {
        assert!(all.stdout.contains(function), "{function}\n{all}");
    }
    let some = pebs_trace(["probes", &path, "begin"]);
    assert_eq!(some.code(), Some(0), "{some}");
    assert!(some.stdout.contains("begin_item"), "{some}");
    assert!(!some.stdout.contains("end_item"), "{some}");
    refused(
        &pebs_trace(["probes", "/nowhere/server"]),
        &["/nowhere/server"],
    );
}
