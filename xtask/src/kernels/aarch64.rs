//! The guest of aarch64: a recording of known work on Debian's arm64 kernels, emulated.
//!
//! The tool and the workload are compiled here for aarch64, statically, and checked is what is exact: each item was seen
//! once, by its id, and lasted as long as its own log says. The emulated processor signs return addresses and checks where
//! indirect branches land (PAC and BTI), and one build of the workload does both. Real hardware differs in time, and may
//! have bugs of its own.
//!
//! The tests of the x86-64 guest are not run here: they compile their workloads themselves.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::cpio::Archive;
use super::guest::{BEGIN, DONE, END, FOLDERS};
use super::machine::{Machine, Ran};
use super::packages::{Kernel, Packages};
use crate::shell;
use crate::toolchain::find_program;

/// The emulator; part of Debian's `qemu-system-arm`.
pub const QEMU: &str = "qemu-system-aarch64";

/// The C compiler; Debian's `gcc-aarch64-linux-gnu`.
const COMPILER: &str = "aarch64-linux-gnu-gcc";

/// Target of the tool's compilation. The C library is linked statically.
const TRIPLE: &str = "aarch64-unknown-linux-gnu";

/// Shell and tools of the guest, in one static file.
const BUSYBOX: &str = "busybox-static";

/// Kernels that run by default.
pub const VERSIONS: [&str; 2] = ["6.1", "6.12"];

/// Time limit of a step in the guest, seconds.
const STEP_LIMIT: u32 = 600;

/// A recording of known work.
struct Recording {
    /// Of the recording, and of the program.
    name: &'static str,
    /// File of the workload.
    source: &'static str,
    /// Options of the compiler.
    build: &'static str,
    /// Arguments of the program.
    arguments: &'static str,
    /// Options of the tool.
    options: &'static str,
    /// Whether the samples have call stacks, which must reach `main`.
    stacks: bool,
}

/// Compiles code that signs return addresses and marks where branches may land.
const GUARDED: &str = "-mbranch-protection=standard";

const RECORDINGS: [Recording; 7] = [
    Recording {
        name: "tables",
        source: "plain.c",
        build: "-fomit-frame-pointer",
        arguments: "300",
        options: "--call-graph=eh --reset 100000",
        stacks: true,
    },
    Recording {
        name: "pointers",
        source: "plain.c",
        build: "-fno-omit-frame-pointer",
        arguments: "300",
        options: "--call-graph=fp --reset 100000",
        stacks: true,
    },
    Recording {
        name: "guarded",
        source: "plain.c",
        build: GUARDED,
        arguments: "300",
        options: "--call-graph=eh --reset 100000",
        stacks: true,
    },
    Recording {
        name: "ret",
        source: "plain.c",
        build: GUARDED,
        arguments: "300",
        options: "--return ret",
        stacks: false,
    },
    Recording {
        name: "uretprobe",
        source: "plain.c",
        build: GUARDED,
        arguments: "300",
        options: "--return uretprobe",
        stacks: false,
    },
    Recording {
        name: "forks",
        source: "fork.c",
        build: GUARDED,
        arguments: "50",
        options: "",
        stacks: false,
    },
    Recording {
        name: "threads",
        source: "late_threads.c",
        build: "",
        arguments: "20 20",
        options: "",
        stacks: false,
    },
];

/// Boots these kernels and prints what was found. Returns whether all is well; what is not installed is skipped with its
/// reason.
pub fn run(versions: &[&str], limit: Duration) -> Result<bool> {
    let Some(qemu) = find_program(QEMU) else {
        println!("SKIP kernels of aarch64: no {QEMU} (Debian's qemu-system-arm)");
        return Ok(true);
    };
    if find_program(COMPILER).is_none() {
        println!("SKIP kernels of aarch64: no {COMPILER} (Debian's gcc-aarch64-linux-gnu)");
        return Ok(true);
    }
    let packages = match Packages::open("arm64") {
        Ok(packages) => packages,
        Err(error) => {
            println!("SKIP kernels of aarch64: {error:#}");
            return Ok(true);
        }
    };
    let mut kernels = Vec::new();
    for version in versions {
        match packages.kernel(version) {
            Ok(kernel) => kernels.push(kernel),
            Err(error) => println!("SKIP kernel {version}: {error:#}"),
        }
    }
    if kernels.is_empty() {
        return Ok(true);
    }
    let image = image(&packages)?;
    let machine = Machine::aarch64(qemu);
    let mut is_well = true;
    for kernel in &kernels {
        is_well &= boot(&machine, kernel, &image, limit)?;
    }
    Ok(is_well)
}

/// Boots one kernel, prints a line for each recording, and on a fault what the guest printed.
fn boot(machine: &Machine, kernel: &Kernel, image: &Path, limit: Duration) -> Result<bool> {
    eprintln!("kernels: booting {} of aarch64", kernel.release);
    let ran = machine.boot(kernel, image, limit)?;
    let mut faults = faults(&ran);
    for recording in &RECORDINGS {
        let name = recording.name;
        match recording.check(&ran.report) {
            Ok(found) => println!("{} {name:<10} {found}", kernel.release),
            Err(error) => faults.push(format!("{name}: {error:#}")),
        }
    }
    println!("{} took {} s", kernel.release, ran.took.as_secs());
    for fault in &faults {
        println!("{} FAILED {fault}", kernel.release);
    }
    if !faults.is_empty() {
        println!("{}", ran.report);
    }
    Ok(faults.is_empty())
}

fn faults(ran: &Ran) -> Vec<String> {
    let mut faults: Vec<String> = ran.killed.clone().into_iter().collect();
    if !ran.report.lines().any(|line| line == DONE) {
        faults.push("the guest did not get to its end".to_owned());
    }
    faults
}

/// Lines of a step, and how it ended.
fn section<'a>(report: &'a str, name: &str) -> Option<(Vec<&'a str>, &'a str)> {
    let begin = format!("{BEGIN}{name}");
    let end = format!("{END}{name} ");
    let mut lines = report.lines().skip_while(|line| *line != begin).skip(1);
    let mut found = Vec::new();
    for line in &mut lines {
        if let Some(how) = line.strip_prefix(&end) {
            return Some((found, how));
        }
        found.push(line);
    }
    None
}

impl Recording {
    /// Compares the items that were seen with the workload's own log.
    fn check(&self, report: &str) -> Result<String> {
        let (lines, how) = section(report, self.name).context("it did not end")?;
        if how != "0" {
            bail!("exit status {how}");
        }
        let truth: BTreeMap<Key, [u64; 4]> = lines.iter().filter_map(|line| item(line)).collect();
        let visits = visits(&lines)?;
        if truth.is_empty() || visits.len() != truth.len() {
            bail!("{} of {} items were seen", visits.len(), truth.len());
        }
        for (key, took) in &visits {
            let [before, enter, leave, after] = truth.get(key).context("an item that was not")?;
            let bounds = leave - enter..=after - before;
            if !bounds.contains(took) {
                bail!("item {key:?} took {took} ns, by its log {bounds:?} ns");
            }
        }
        let (handled, total) = (visits.len(), truth.len());
        if !self.stacks {
            return Ok(format!(
                "{handled} of {total} items, each as long as by its own log"
            ));
        }
        let stacks = lines.iter().filter(|line| line.contains(";main;handle"));
        match stacks.count() {
            0 => bail!("no stack has main and handle"),
            found => Ok(format!(
                "{handled} of {total} items, each as long as by its own log; {found} stacks from main on"
            )),
        }
    }

    /// Place of the program in the guest.
    fn program(&self) -> String {
        format!("/bin/{}", self.name)
    }

    /// The guest's commands: records, and prints the log, the visits and the stacks.
    fn commands(&self) -> String {
        let Self {
            name,
            arguments,
            options,
            ..
        } = self;
        let program = self.program();
        let mut text = format!(
            "TRUTH_FILE=/tmp/truth-{name} timeout {STEP_LIMIT} pebs-trace {options} \
             -u '{program}:handle(id=*(arg1):u64, n=*(arg1+12):u32)' -o /tmp/{name} \
             -- {program} {arguments} 2>&1 && \
             cat /tmp/truth-{name} && pebs-trace export /tmp/{name} --to csv"
        );
        if self.stacks {
            text += &format!(" && pebs-trace export /tmp/{name} --to folded");
        }
        text
    }
}

/// Thread and id of an item.
type Key = (u64, u64);

/// `item ID PID TID BEFORE ENTER LEAVE AFTER`
fn item(line: &str) -> Option<(Key, [u64; 4])> {
    let mut words = line.strip_prefix("item ")?.split(' ').map(str::parse);
    let mut next = || words.next()?.ok();
    let (id, _pid, tid) = (next()?, next()?, next()?);
    Some(((tid, id), [next()?, next()?, next()?, next()?]))
}

/// Threads, ids and durations of the visits in an exported table, each once.
fn visits(lines: &[&str]) -> Result<Vec<(Key, u64)>> {
    let head = lines.iter().position(|line| line.starts_with("visit_id,"));
    let head = head.context("no table of visits")?;
    let column = |name: &str| {
        let at = lines[head].split(',').position(|it| it == name);
        at.with_context(|| format!("no column {name} in the table of visits"))
    };
    let (tid, id, took) = (column("tid")?, column("item_id")?, column("duration_ns")?);
    let mut found: BTreeMap<u64, (Key, u64)> = BTreeMap::new();
    for line in &lines[head + 1..] {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |at: usize| cells.get(at)?.parse().ok();
        // A visit has a line for each of its functions.
        if let (Some(visit), Some(tid), Some(id), Some(took)) =
            (number(0), number(tid), number(id), number(took))
        {
            found.insert(visit, ((tid, id), took));
        }
    }
    Ok(found.into_values().collect())
}

/// Makes the guest's files.
fn image(packages: &Packages) -> Result<PathBuf> {
    let dir = shell::tools_dir().join("kernels");
    let path = dir.join("image-aarch64.cpio");
    let mut archive = Archive::new(BufWriter::new(fs::File::create(&path)?));
    for folder in FOLDERS {
        archive.folder(Path::new(folder))?;
    }
    archive.device(Path::new("/dev/console"), (5, 1))?;
    let busybox = packages.file(BUSYBOX, "bin/busybox")?;
    archive.file(Path::new("/bin/busybox"), &fs::read(&busybox)?)?;
    let tool = tool(&dir)?;
    archive.file(Path::new("/bin/pebs-trace"), &fs::read(tool)?)?;
    for recording in &RECORDINGS {
        let program = dir.join(format!("aarch64-{}", recording.name));
        let mut compile = Command::new(COMPILER);
        compile.args(["-O2", "-g", "-static", "-pthread"]);
        compile.args(recording.build.split_whitespace());
        let source = shell::workspace()
            .join("tests/workloads")
            .join(recording.source);
        shell::run(compile.arg(source).arg("-o").arg(&program))?;
        archive.file(Path::new(&recording.program()), &fs::read(&program)?)?;
    }
    archive.file(Path::new("/init"), init().as_bytes())?;
    archive.finish()?;
    Ok(path)
}

/// Compiles the tool for aarch64; a release build, as emulation is slow.
fn tool(dir: &Path) -> Result<PathBuf> {
    shell::run(Command::new("rustup").args(["target", "add", TRIPLE]))?;
    let target = shell::target_dir()?;
    let variable = TRIPLE.to_uppercase().replace('-', "_");
    let mut build = shell::cargo(&[
        "build",
        "--locked",
        "--package",
        "pebs-trace",
        "--bin",
        "pebs-trace",
    ]);
    build
        .args(["--target", TRIPLE])
        .env(format!("CARGO_TARGET_{variable}_LINKER"), COMPILER)
        .env(
            format!("CARGO_TARGET_{variable}_RUSTFLAGS"),
            "-C target-feature=+crt-static",
        )
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    shell::run(&mut build)?;
    let stripped = dir.join("aarch64-pebs-trace");
    let mut strip = Command::new("aarch64-linux-gnu-strip");
    strip.arg("-o").arg(&stripped);
    shell::run(strip.arg(target.join(TRIPLE).join("debug/pebs-trace")))?;
    Ok(stripped)
}

/// Process 1 of the guest: takes the steps and powers off.
fn init() -> String {
    let mut text = String::from(
        "#!/bin/busybox sh\n\
         export PATH=/bin HOME=/\n\
         /bin/busybox --install -s /bin\n\
         mount -t proc proc /proc\nmount -t sysfs sysfs /sys\nmount -t devtmpfs dev /dev\n\
         mount -t tracefs tracefs /sys/kernel/tracing\n",
    );
    let mut step = |name: &str, command: &str| {
        text +=
            &format!("echo '{BEGIN}{name}'\n{command}\nhow=$?\necho\necho \"{END}{name} $how\"\n");
    };
    step("doctor", &format!("timeout {STEP_LIMIT} pebs-trace doctor"));
    for recording in &RECORDINGS {
        step(recording.name, &recording.commands());
    }
    text + &format!("echo '{DONE}'\npoweroff -f\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
        #begin ret\n\
        item 7 1 3 100 110 190 200\n\
        visit_id,item_id,tid,duration_ns\n\
        0,7,3,95\n\
        0,7,3,95\n\
        \n\
        #end ret 0\n\
        #begin forks\n";

    fn recording(name: &str) -> &'static Recording {
        RECORDINGS.iter().find(|it| it.name == name).unwrap()
    }

    /// A step's lines and end; visits once each, whatever the number of their functions; durations within the log's.
    #[test]
    fn report() {
        let (lines, how) = section(REPORT, "ret").unwrap();
        assert_eq!(how, "0");
        assert_eq!(visits(&lines).unwrap(), [((3, 7), 95)]);
        assert_eq!(item(lines[0]), Some(((3, 7), [100, 110, 190, 200])));
        assert!(section(REPORT, "forks").is_none());
        let found = recording("ret").check(REPORT).unwrap();
        assert_eq!(found, "1 of 1 items, each as long as by its own log");
        let long = REPORT.replace(",95", ",101");
        assert!(recording("ret").check(&long).is_err());
        let two = REPORT.replace("visit_id", "item 8 1 3 300 310 390 400\nvisit_id");
        assert!(recording("ret").check(&two).is_err());
    }

    /// Each step says how it ended, and a recording shows what it is compared with.
    #[test]
    fn script() {
        let text = init();
        assert!(text.contains("#begin uretprobe") && text.contains("#end uretprobe $how"));
        assert!(text.ends_with("poweroff -f\n"));
    }
}
