//! Runs QEMU with a time limit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::packages::Kernel;
use super::softpmu::Pmu;
use super::{Accel, Arch};
use crate::shell;

/// Memory of the guest, including its files.
const MEMORY: &str = "1536M";

/// The emulated CPU: all features but an instruction that QEMU 7.2 gets wrong: after a `cmpxchg16b` of the
/// allocator of Linux 6.12 the flags are garbage. Kernels do without it.
const EMULATED_CPU: &str = "max,-cx16";

/// The guest's time: each instruction takes 2 ns (2 to the shift), and an idle guest does not sleep. So
/// its timers don't outrun it, however slow the emulation and busy the host.
const INSTRUCTION_TIME: &str = "shift=1,sleep=off";

/// A guest without hardware except for two serial lines. A panic restarts it, which ends QEMU.
const OPTIONS: [&str; 6] = [
    "-nodefaults",
    "-no-user-config",
    "-no-reboot",
    "-display",
    "none",
    "-monitor",
];

/// The kernel's messages go to the first serial line. The time stamp counter is reliable, and reading any
/// other clock is slow; no attacker is on this guest.
const COMMAND_LINE: &str = "console=ttyS0 panic=-1 quiet loglevel=4 tsc=reliable clocksource=tsc mitigations=off nowatchdog";

/// The same of aarch64, which has one serial line: the kernel's own messages are left out.
const COMMAND_LINE_ARM: &str =
    "console=ttyAMA0 panic=-1 quiet loglevel=1 mitigations=off nowatchdog";

/// The emulated CPU of aarch64: all features; return addresses are signed by a hash that QEMU computes fast.
const EMULATED_ARM: &str = "max,pauth-impdef=on";

/// Interval between two polls of QEMU.
const POLL: Duration = Duration::from_millis(100);

/// Lines of the kernel's messages worth showing when things went wrong.
const LAST_LINES: usize = 25;

/// Parameters of the machine.
pub struct Machine {
    /// The emulator.
    pub qemu: PathBuf,
    /// Architecture of its processor.
    pub arch: Arch,
    /// Execution of instructions.
    pub accel: Accel,
    /// CPUs of the guest.
    pub cpus: u32,
    /// The PMU in software that it gets.
    pub pmu: Option<Pmu>,
}

/// Results of a guest.
#[derive(Debug)]
pub struct Ran {
    /// Its report on the second serial line.
    pub report: String,
    /// The end of the kernel's messages.
    pub console: String,
    /// From power-on to power-off.
    pub took: Duration,
    /// Why it did not power itself off.
    pub killed: Option<String>,
}

impl Machine {
    /// An emulated machine of aarch64 with one CPU.
    pub const fn aarch64(qemu: PathBuf) -> Self {
        Self {
            qemu,
            arch: Arch::Aarch64,
            accel: Accel::Tcg,
            cpus: 1,
            pmu: None,
        }
    }

    /// Boots a kernel with the guest's files and waits until the guest is done or the time is up.
    pub fn boot(&self, kernel: &Kernel, image: &Path, limit: Duration) -> Result<Ran> {
        let dir = kernel.image.parent().unwrap_or(Path::new("."));
        let (console, report) = (dir.join("console.log"), dir.join("report.log"));
        let (accel, cpu) = match self.accel {
            Accel::Tcg if self.arch == Arch::Aarch64 => ("tcg", EMULATED_ARM),
            Accel::Tcg => ("tcg", EMULATED_CPU),
            Accel::Kvm => ("kvm", "host"),
        };
        let model = self.pmu.map_or("", Pmu::cpu);
        let cpu = format!("{cpu}{}{model}", if model.is_empty() { "" } else { "," });
        let mut command = Command::new(&self.qemu);
        match self.arch {
            Arch::Aarch64 => {
                command.args(["-machine", "virt"]);
            }
            Arch::X86_64 if self.accel == Accel::Tcg => {
                command.args(["-icount", INSTRUCTION_TIME]);
            }
            Arch::X86_64 => {}
        }
        command
            .args(["-accel", accel, "-cpu", &cpu, "-m", MEMORY])
            .args(["-smp", &self.cpus.to_string()])
            .args(OPTIONS)
            .arg("none")
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(image)
            .stdin(Stdio::null());
        match self.arch {
            Arch::X86_64 => {
                command.args(["-append", COMMAND_LINE, "-serial"]);
                command.arg(format!("file:{}", console.display()));
            }
            // It has one serial line.
            Arch::Aarch64 => {
                command.args(["-append", COMMAND_LINE_ARM]);
            }
        }
        command
            .arg("-serial")
            .arg(format!("file:{}", report.display()));
        for old in [&console, &report] {
            if old.exists() {
                fs::remove_file(old)?;
            }
        }
        eprintln!("$ {}", shell::display(&command));
        let begin = Instant::now();
        let child = command.spawn().context("cannot run QEMU")?;
        let killed = wait(child, limit)?;
        let took = begin.elapsed();
        let read = |path: &Path| -> Result<String> {
            let bytes = fs::read(path).unwrap_or_default();
            Ok(String::from_utf8_lossy(&bytes).replace('\r', ""))
        };
        Ok(Ran {
            report: read(&report)?,
            console: last_lines(&read(&console)?),
            took,
            killed,
        })
    }
}

/// Waits for the end, or kills it at the limit; returns why it did not end by itself.
fn wait(mut child: Child, limit: Duration) -> Result<Option<String>> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((!status.success()).then(|| format!("QEMU failed ({status})")));
        }
        if Instant::now() > deadline {
            // It may have ended just now.
            let _ = child.kill();
            child.wait()?;
            return Ok(Some(format!("not done after {} s", limit.as_secs())));
        }
        std::thread::sleep(POLL);
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}
