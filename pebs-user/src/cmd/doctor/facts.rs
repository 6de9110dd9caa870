//! The facts that the doctor checks, as plain data, and how they are gathered.

use std::fs;
use std::io;
use std::path::Path;

use aya::maps::MapType;
use aya::programs::{ProgramError, ProgramType};

use crate::binary::debuginfod::Debuginfod;
use crate::collect::programs::tracepoints_of_extras;
use crate::cost::stepping;
use crate::failure::Result;
use crate::limits;
use crate::pmu::attr::{reset_value, resolve};
use crate::pmu::event::Modifiers;
use crate::pmu::host::Host;
use crate::pmu::open::{may_place, open_auto, open_stepping_down};
use crate::pmu::target::Target;
use crate::units::{Cpu, Tid};

/// Reset value with which events are tried: the default of recording.
pub(super) const DEFAULT_RESET: u64 = 16_000;

/// Whether the machine has a feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Tested and works.
    Yes,
    /// Tested and does not work, with the reason.
    No(String),
    /// Could not be tested, with the reason.
    Unknown(String),
}

/// The event that `auto` stands for on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Automatic {
    /// The event.
    pub name: String,
    /// Precise level with which it opened.
    pub precise: u8,
    /// Why this event was chosen, and why not a better one.
    pub notes: Vec<String>,
}

/// All facts that the checks use.
#[derive(Clone, Debug)]
pub struct Facts {
    /// PMUs, kernel, CPU, limits.
    pub host: Host,
    /// BTF of the running kernel.
    pub btf: Answer,
    /// eBPF ring buffers.
    pub ring_buffer: Answer,
    /// eBPF storage per task.
    pub task_storage: Answer,
    /// Uprobes, by the rights of this process.
    pub uprobes: Answer,
    /// Whether the mark program may do instructions that the kernel would single-step.
    pub steps: bool,
    /// eBPF links on perf events with a cookie.
    pub cookies: Answer,
    /// eBPF programs on perf events.
    pub sample_program: Answer,
    /// Typed tracepoint of the scheduler.
    pub tracepoints: Answer,
    /// Tracepoints of wake-ups and interrupts.
    pub extras: Answer,
    /// A software clock.
    pub clock: Answer,
    /// A hardware breakpoint.
    pub breakpoints: Answer,
    /// The event that `auto` stands for, or why none can be opened.
    pub automatic: Result<Automatic, String>,
    /// Known cost of a sample of that event.
    pub calibration: String,
    /// Result of the last `pebs-trace validate` on this machine.
    pub validation: String,
    /// Mount point of tracefs.
    pub tracefs: Option<String>,
    /// Mount point of the eBPF file system.
    pub bpffs: Option<String>,
    /// Whether a debuginfod client and servers are configured.
    pub debuginfod: Debuginfod,
}

impl Facts {
    /// Gathers the facts. Opens and closes some events and maps; changes nothing.
    #[must_use]
    pub fn gather() -> Self {
        let host = Host::probe(Path::new("/"));
        let types = fs::read("/sys/kernel/btf/vmlinux");
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let automatic = automatic(&host);
        let sampled = automatic
            .as_ref()
            .map_or("cpu-clock", |it| it.name.as_str());
        Self {
            calibration: crate::cmd::calibrate::describe(&host, sampled),
            validation: crate::cmd::validate::describe(&host),
            btf: types.as_ref().map_or_else(file_answer, |_| Answer::Yes),
            tracepoints: types
                .as_ref()
                .map_or_else(file_answer, |types| tracepoints(types, &["sched_switch"])),
            extras: types.as_ref().map_or_else(file_answer, |types| {
                tracepoints(types, &tracepoints_of_extras())
            }),
            ring_buffer: map(MapType::RingBuf),
            task_storage: map(MapType::TaskStorage),
            uprobes: uprobes(&host),
            steps: stepping::works(),
            cookies: cookies(&host),
            sample_program: program(ProgramType::PerfEvent),
            clock: event(&host, "cpu-clock"),
            breakpoints: event(&host, &own_breakpoint()),
            automatic,
            tracefs: mounted(&mounts, "tracefs"),
            bpffs: mounted(&mounts, "bpf"),
            debuginfod: Debuginfod::here(),
            host,
        }
    }

    /// A machine on which everything that was tried works, with root's rights.
    #[cfg(test)]
    pub(super) fn able(mut host: Host) -> Self {
        host.limits.capabilities = Some(limits::Capabilities::from_mask(u64::MAX));
        host.limits.max_sample_rate = Some(100_000);
        host.limits.pid_namespace = Some(false);
        let best = crate::pmu::attr::auto::candidates(&host).remove(0);
        let automatic = Automatic {
            name: best.name.into(),
            precise: best.min_precise,
            notes: vec![format!("auto: {}: {}", best.name, best.reason)],
        };
        Self {
            host,
            btf: Answer::Yes,
            ring_buffer: Answer::Yes,
            task_storage: Answer::Yes,
            uprobes: Answer::Yes,
            steps: true,
            cookies: Answer::Yes,
            sample_program: Answer::Yes,
            tracepoints: Answer::Yes,
            extras: Answer::Yes,
            clock: Answer::Yes,
            breakpoints: Answer::Yes,
            automatic: Ok(automatic),
            calibration: String::new(),
            validation: String::new(),
            tracefs: None,
            bpffs: None,
            debuginfod: Debuginfod::Off,
        }
    }

    /// All answers, so that tests can set each to no.
    #[cfg(test)]
    pub(super) fn answers(&mut self) -> [&mut Answer; 10] {
        [
            &mut self.btf,
            &mut self.ring_buffer,
            &mut self.task_storage,
            &mut self.uprobes,
            &mut self.cookies,
            &mut self.sample_program,
            &mut self.tracepoints,
            &mut self.extras,
            &mut self.clock,
            &mut self.breakpoints,
        ]
    }
}

/// A refusal; permission errors give [`Answer::Unknown`].
fn refused(error: &io::Error) -> Answer {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Answer::Unknown("permission denied".into()),
        _ => Answer::No(error.to_string()),
    }
}

fn file_answer(error: &io::Error) -> Answer {
    match error.kind() {
        io::ErrorKind::NotFound => Answer::No("the kernel has no /sys/kernel/btf/vmlinux".into()),
        _ => refused(error),
    }
}

/// Whether the kernel's BTF describes all these tracepoints; without that no typed program can be loaded for them.
fn tracepoints(types: &[u8], names: &[impl AsRef<str>]) -> Answer {
    let is_missing = |name: &&str| {
        let name = format!("\0btf_trace_{name}\0");
        let mut windows = types.windows(name.len());
        !windows.any(|window| window == name.as_bytes())
    };
    match names.iter().map(AsRef::as_ref).find(is_missing) {
        None => Answer::Yes,
        Some(name) => Answer::No(format!("the kernel's types lack the tracepoint {name}")),
    }
}

fn map(kind: MapType) -> Answer {
    match aya::sys::is_map_supported(kind) {
        Ok(true) => Answer::Yes,
        Ok(false) => Answer::No("the kernel refused to create one".into()),
        Err(error) => refused(&error.io_error),
    }
}

fn program(kind: ProgramType) -> Answer {
    match aya::sys::is_program_supported(kind) {
        Ok(true) => Answer::Yes,
        Ok(false) => Answer::No("the kernel refused to load one".into()),
        Err(ProgramError::SyscallError(error)) => refused(&error.io_error),
        Err(error) => Answer::No(error.to_string()),
    }
}

/// Whether perf links take a cookie; unknown without the right to load programs.
fn cookies(host: &Host) -> Answer {
    let limits = &host.limits;
    let caps = limits.capabilities;
    let may = caps.is_some_and(limits::Capabilities::may_bpf) && !limits.confinement.is_any();
    match (aya::features().bpf_cookie(), may) {
        (true, _) => Answer::Yes,
        (false, true) => Answer::No("this kernel has no cookies for perf links".into()),
        (false, false) => Answer::Unknown("permission denied".into()),
    }
}

/// Whether uprobes can be opened. A refusal counts only with `CAP_PERFMON`, which is required anyway, and where nothing
/// else may have refused it.
fn uprobes(host: &Host) -> Answer {
    let limits = &host.limits;
    let caps = limits.capabilities;
    let may = caps.is_some_and(limits::Capabilities::may_perf) && !limits.confinement.is_any();
    match host.uprobe.as_ref().map(may_place) {
        Some(Err(_)) if may => {
            Answer::No("this kernel requires CAP_SYS_ADMIN to place a uprobe".into())
        }
        Some(Err(error)) => refused(&error),
        Some(Ok(())) | None => Answer::Yes,
    }
}

/// Opens an event on this thread and closes it.
fn event(host: &Host, text: &str) -> Answer {
    let resolved = match (text.parse(), reset_value(DEFAULT_RESET)) {
        (Ok(spec), Ok(reset)) => resolve(&spec, host, reset).map_err(|error| error.to_string()),
        (Err(error), _) => Err(error.to_string()),
        (_, Err(error)) => Err(error.to_string()),
    };
    let opened = resolved
        .map_err(Answer::No)
        .map(|event| open_stepping_down(&event, this_thread()));
    match opened {
        Ok(Ok(_)) => Answer::Yes,
        Ok(Err(error)) => match error.errno {
            Some(libc::EACCES | libc::EPERM) => Answer::Unknown(error.reason()),
            _ => Answer::No(error.reason()),
        },
        Err(answer) => answer,
    }
}

/// A breakpoint on a function of this program, in user mode.
fn own_breakpoint() -> String {
    let address = own_breakpoint as fn() -> String as usize;
    format!("mem:{address:#x}:x:u")
}

fn this_thread() -> Target {
    Target::Thread(Tid(rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned()))
}

fn automatic(host: &Host) -> Result<Automatic, String> {
    let reset = reset_value(DEFAULT_RESET).map_err(|error| error.to_string())?;
    let cpu = host.online.first().copied().unwrap_or(Cpu(0));
    let auto = open_auto(Modifiers::default(), host, reset, Target::Cpu(cpu));
    auto.map_err(|error| error.to_string())
        .map(|auto| Automatic {
            name: auto.event.name,
            precise: auto.opened.granted.precise,
            notes: auto.event.notes,
        })
}

/// Mount point of the first file system of a type.
fn mounted(mounts: &str, kind: &str) -> Option<String> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let place = fields.next()?;
        (fields.next()? == kind).then(|| place.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mounts are found by type, not by name.
    #[test]
    fn mounts() {
        let text = "proc /proc proc rw 0 0\ntracefs /sys/kernel/tracing tracefs rw 0 0\n";
        assert_eq!(
            mounted(text, "tracefs").as_deref(),
            Some("/sys/kernel/tracing")
        );
        assert_eq!(mounted(text, "bpf"), None);
    }

    /// Types without the tracepoint are a no.
    #[test]
    fn tracepoint_by_name() {
        let types = b"a\0btf_trace_sched_switch\0btf_trace_sched_wakeup_new\0";
        assert_eq!(tracepoints(types, &["sched_switch"]), Answer::Yes);
        let lacks =
            |name: &str| Answer::No(format!("the kernel's types lack the tracepoint {name}"));
        let both = ["sched_switch", "sched_wakeup"];
        assert_eq!(tracepoints(types, &both), lacks("sched_wakeup"));
    }

    /// A permission error says nothing about the feature.
    #[test]
    fn refusals() {
        let denied = io::Error::from_raw_os_error(libc::EPERM);
        assert!(matches!(refused(&denied), Answer::Unknown(_)));
        let invalid = io::Error::from_raw_os_error(libc::EINVAL);
        assert!(matches!(refused(&invalid), Answer::No(_)));
    }
}
