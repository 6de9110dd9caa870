//! Sources of a binary's names: debug files, other roots, and files that are broken or change.

use super::*;
use crate::binary::bus_error;

/// A stripped binary is named from its debug file, found by build id, compressed as distributions have it.
#[test]
fn debug_file() {
    let (dir, program) = compile(&["-O2", "-g"]);
    let notes = run(Command::new("readelf").arg("-n").arg(&program));
    let id = notes.lines().find_map(|line| line.split_once("Build ID: "));
    let id = id.unwrap().1.trim();
    let debug = dir.path().join(".build-id").join(&id[..2]);
    std::fs::create_dir_all(&debug).unwrap();
    let debug = debug.join(format!("{}.debug", &id[2..]));
    let keep = ["--only-keep-debug", "--compress-debug-sections=zlib"];
    run(Command::new("objcopy").args(keep).args([&program, &debug]));
    run(Command::new("strip").arg("-s").arg(&program));
    let running = Running::start(&program);
    let mut probe = Probe::with(SymbolizeOptions {
        debug_dirs: Some(vec![dir.path().into()]),
        ..SymbolizeOptions::default()
    });
    let row = probe.row(running.pid(), running.address("hidden"));
    assert_eq!(row.name.as_deref(), Some("hidden"));
    assert!(row.file.unwrap().ends_with("program.c"));
    // Without it, the same binary.
    let row = Probe::new().row(running.pid(), running.address("hidden"));
    assert!(row.name.unwrap().starts_with("program+fn@0x"));
}

/// A debug link is followed only to a file of the same build, and never into a pipe.
#[test]
fn debug_link() {
    let (dir, program) = compile(&["-O2", "-g"]);
    let debug = dir.path().join("program.debug");
    run(Command::new("objcopy")
        .arg("--only-keep-debug")
        .args([&program, &debug]));
    run(Command::new("strip").arg("-s").arg(&program));
    let link = format!("--add-gnu-debuglink={}", debug.display());
    run(Command::new("objcopy").arg(link).arg(&program));
    let running = Running::start(&program);
    let row = Probe::new().row(running.pid(), running.address("hidden"));
    assert_eq!(row.name.as_deref(), Some("hidden"));
    assert!(row.file.unwrap().ends_with("program.c"));

    std::fs::remove_file(&debug).unwrap();
    run(Command::new("mkfifo").arg(&debug));
    let row = Probe::new().row(running.pid(), running.address("hidden"));
    assert!(row.name.unwrap().starts_with("program+fn@0x"));

    std::fs::remove_file(&debug).unwrap();
    std::fs::copy("/bin/true", &debug).unwrap();
    let row = Probe::new().row(running.pid(), running.address("hidden"));
    assert!(row.name.unwrap().starts_with("program+fn@0x"));
}

/// In a root of its own: the binary is found by its mapping, the perf map inside that root, also after the end.
#[test]
fn own_root() {
    let (dir, program) = compile(&["-O2", "-static"]);
    std::fs::create_dir(dir.path().join("tmp")).unwrap();
    let script = dir.path().join("start");
    let text = format!("#!/bin/sh\nexec chroot {} /program\n", dir.path().display());
    std::fs::write(&script, text).unwrap();
    run(Command::new("chmod").arg("+x").arg(&script));
    let mut running = Running::start(&script);
    let pid = running.pid();
    let map = dir.path().join(format!("tmp/perf-{}.map", pid.0));
    std::fs::write(map, "7000 100 compiled\n").unwrap();
    let mut probe = Probe::new();
    probe.symbolizer.announce(pid);
    running.stop();
    probe.symbolizer.on_exit(pid);
    let row = probe.row(pid, running.address("outer"));
    assert_eq!(row.name.as_deref(), Some("outer"));
    assert!(row.module.unwrap().ends_with("/program"));
    assert!(program.exists());
    assert_eq!(probe.name(pid, 0x7010).as_deref(), Some("compiled"));
}

/// In a mount namespace of its own, in which alone its binary is visible.
#[test]
fn own_mounts() {
    let (dir, program) = compile(&["-O2"]);
    let inner = dir.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let script = dir.path().join("start");
    let (inner, program) = (inner.display(), program.display());
    let text = format!(
        "#!/bin/sh\nexec unshare --mount sh -c 'mount -t tmpfs none {inner} && cp {program} {inner}/only && exec {inner}/only'\n"
    );
    std::fs::write(&script, text).unwrap();
    run(Command::new("chmod").arg("+x").arg(&script));
    if !rustix::process::geteuid().is_root() {
        println!("SKIP needs root");
        return;
    }
    let running = Running::start(&script);
    let row = Probe::new().row(running.pid(), running.address("outer"));
    assert_eq!(row.name.as_deref(), Some("outer"));
    assert!(row.module.unwrap().ends_with("/inner/only"));
    assert!(!dir.path().join("inner/only").exists());
}

/// A file that only claims to be a program, or is truncated, loses its names and nothing else.
#[test]
fn broken_binary() {
    let (dir, program) = compile(&["-O2"]);
    let whole = std::fs::read(&program).unwrap();
    let mut probe = Probe::new();
    for (at, len) in [0, 10, 64, 200, 1000, 5000, whole.len() - 100]
        .into_iter()
        .enumerate()
    {
        let path = dir.path().join(format!("cut{at}"));
        std::fs::write(&path, &whole[..len]).unwrap();
        let pid = Pid(u32::MAX - 20 - u32::try_from(at).unwrap());
        probe.symbolizer.on_mapping(pid, whole_file(&path));
        let row = probe.row(pid, 0x10_1000);
        assert!(row.module.unwrap().contains("cut"), "{len}");
    }
    // Every byte of the headers broken in turn.
    for at in (0..64).chain(64..400).step_by(3) {
        let path = dir.path().join(format!("broken{at}"));
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        std::fs::write(&path, &bytes).unwrap();
        let pid = Pid(u32::MAX - 100 - u32::try_from(at).unwrap());
        probe.symbolizer.on_mapping(pid, whole_file(&path));
        probe.row(pid, 0x10_1200);
    }
}

/// A library that is cut short while it is mapped costs names, not the recording.
#[test]
fn cut_while_mapped() {
    let (dir, program) = compile(&["-O2", "-g", "-static"]);
    let head = elf_image::read_head(&std::fs::File::open(&program).unwrap()).unwrap();
    let library = dir.path().join("library");
    std::fs::copy(&program, &library).unwrap();
    let pid = Pid(u32::MAX - 11);
    let mut probe = Probe::new();
    probe.symbolizer.on_mapping(pid, whole_file(&library));
    let segment = head.segments[0];
    let address = |at: u64| 0x10_0000 + segment.offset + at;
    let named = |probe: &mut Probe| {
        let name = |at: &u64| probe.name(pid, address(*at)).is_some();
        (0..segment.len).step_by(4001).filter(name).count()
    };
    assert!(probe.name(pid, address(segment.len / 2)).is_some());
    let cut = std::fs::OpenOptions::new().write(true).open(&library);
    cut.unwrap().set_len(4096).unwrap();
    let before = bus_error::replaced();
    named(&mut probe);
    assert!(
        bus_error::replaced() > before,
        "nothing was read of what was cut"
    );
    // Others are still named.
    probe
        .symbolizer
        .on_mapping(Pid(pid.0 - 1), whole_file(&program));
    let row = probe.row(Pid(pid.0 - 1), address(segment.len / 2));
    assert!(row.name.is_some());
}

/// A process that was announced is symbolized after it has ended and its binary was deleted.
#[test]
fn exited_and_deleted() {
    let (_dir, program) = compile(&["-O2"]);
    let mut running = Running::start(&program);
    let mut probe = Probe::new();
    probe.symbolizer.announce(running.pid());
    std::fs::remove_file(&program).unwrap();
    running.stop();
    probe.symbolizer.on_exit(running.pid());
    let name = probe.name(running.pid(), running.address("hidden"));
    assert_eq!(name.as_deref(), Some("hidden"));
    probe.symbolizer.retire(running.pid());
    assert_eq!(
        probe.row(running.pid(), running.address("hidden")).module,
        None
    );
}

/// A binary replaced on disk while it runs is symbolized from the running file.
#[test]
fn deleted_while_running() {
    let (_dir, program) = compile(&["-O2"]);
    let running = Running::start(&program);
    std::fs::remove_file(&program).unwrap();
    std::fs::copy("/bin/true", &program).unwrap();
    let mut probe = Probe::new();
    let row = probe.row(running.pid(), running.address("outer"));
    assert_eq!(row.name.as_deref(), Some("outer"));
    assert!(row.module.unwrap().ends_with("/program"), "no ' (deleted)'");
}
