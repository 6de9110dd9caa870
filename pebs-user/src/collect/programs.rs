//! The kernel programs: load them with the run's settings, and give out their descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use aya::maps::Map;
use aya::programs::{BtfTracePoint, PerfEvent, Program, ProgramError, UProbe};
use aya::{Ebpf, EbpfError, EbpfLoader};
use pebs_common::config::{MAX_EVENTS, Scope, SiteConfig};

use crate::collect::btf::{Btf, BtfError};
use crate::collect::kernel_map;
use crate::units::{EventId, Pid};

/// The compiled programs.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/pebs-ebpf"));

/// Log levels as aya-log numbers them.
const LOG_NOTHING: u8 = 0;
/// See [`LOG_NOTHING`].
const LOG_ALL: u8 = u8::MAX;

/// What the programs are told before they are loaded.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Which processes are traced.
    pub scope: Scope,
    /// Leave out samples in kernel mode by looking at them.
    pub exclude_kernel: bool,
    /// Bit n: samples of event n carry the perf clock's time.
    pub perf_clock_events: u32,
    /// Samples are refused while more than this many bytes of a ring are unread.
    pub sample_limit: u64,
    /// Whether switches are recorded.
    pub switches: bool,
    /// Events sampled.
    pub events: usize,
    /// Whether the programs log what they do, for `-vv`.
    pub log: bool,
}

/// The programs could not be loaded or attached.
#[derive(Debug, thiserror::Error)]
pub enum ProgramsError {
    /// The kernel's type information could not be used.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// aya could not parse the kernel's type information.
    #[error("cannot read the kernel's type information")]
    AyaBtf(#[source] aya::BtfError),
    /// The object could not be loaded: a map was refused.
    #[error("cannot load the eBPF object")]
    Object(#[source] EbpfError),
    /// A program or map is not in the object: it was built from other sources.
    #[error("the eBPF object has no '{0}'")]
    Missing(String),
    /// The kernel refused a program.
    #[error("cannot load or attach eBPF program '{name}'")]
    Program {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: ProgramError,
    },
    /// The kernel refused a map operation.
    #[error("cannot {0}")]
    Map(&'static str, #[source] io::Error),
}

impl ProgramsError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Btf(error) => error.hint(),
            Self::AyaBtf(_) | Self::Missing(_) => None,
            Self::Object(_) | Self::Program { .. } | Self::Map(..) => Some(
                "'pebs-trace doctor' says what this kernel lacks; -vv shows the verifier's log"
                    .to_owned(),
            ),
        }
    }
}

/// The loaded programs and their maps. Dropping it unloads and detaches everything.
pub struct Programs {
    ebpf: Ebpf,
}

/// Programs on tracepoints, and whether they are only needed for switches.
const TRACEPOINTS: [(&str, bool); 4] = [
    ("sched_switch", true),
    ("sched_process_fork", false),
    ("sched_process_exec", false),
    ("sched_process_exit", false),
];

impl Programs {
    /// Loads the programs that the settings ask for; nothing is attached yet.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn load(settings: &Settings) -> Result<Self, ProgramsError> {
        let kernel = Btf::of_kernel()?;
        let btf = aya::Btf::from_sys_fs().map_err(ProgramsError::AyaBtf)?;
        // `hw` is a struct within the event.
        let interrupts =
            kernel.member("perf_event", "hw")? + kernel.member("hw_perf_event", "interrupts")?;
        let offsets = [
            ("EVENT_INTERRUPTS_OFFSET", interrupts),
            (
                "SAMPLE_TIME_OFFSET",
                kernel.member("perf_sample_data", "time")?,
            ),
            ("TASK_PID_OFFSET", kernel.member("task_struct", "pid")?),
            (
                "TASK_SIGNAL_OFFSET",
                kernel.member("task_struct", "signal")?,
            ),
            (
                "SIGNAL_LIVE_OFFSET",
                kernel.member("signal_struct", "live")?,
            ),
        ];
        let scope = settings.scope as u32;
        let exclude_kernel = u32::from(settings.exclude_kernel);
        let log_level = if settings.log { LOG_ALL } else { LOG_NOTHING };
        let mut loader = EbpfLoader::new();
        loader
            .btf(Some(&btf))
            .override_global("SCOPE", &scope, true)
            .override_global(aya_log::LEVEL, &log_level, false)
            .override_global("EXCLUDE_KERNEL", &exclude_kernel, true)
            .override_global("PERF_CLOCK_EVENTS", &settings.perf_clock_events, true)
            .override_global("SAMPLE_LIMIT", &settings.sample_limit, true);
        for (name, offset) in &offsets {
            loader.override_global(name, offset, true);
        }
        let mut programs = Self {
            ebpf: loader.load(OBJECT).map_err(ProgramsError::Object)?,
        };
        programs.load_all(settings, &btf)?;
        Ok(programs)
    }

    fn load_all(&mut self, settings: &Settings, btf: &aya::Btf) -> Result<(), ProgramsError> {
        self.with("mark", |program: &mut UProbe| program.load())?;
        for event in 0..settings.events.min(MAX_EVENTS) {
            self.with(&format!("sample{event}"), |program: &mut PerfEvent| {
                program.load()
            })?;
        }
        if settings.perf_clock_events != 0 {
            self.with("clock", |program: &mut PerfEvent| program.load())?;
        }
        for (name, for_switches) in TRACEPOINTS {
            if settings.switches || !for_switches {
                self.with(name, |program: &mut BtfTracePoint| program.load(name, btf))?;
            }
        }
        Ok(())
    }

    /// Attaches the programs on tracepoints that were loaded.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn attach_tracepoints(&mut self, settings: &Settings) -> Result<(), ProgramsError> {
        for (name, for_switches) in TRACEPOINTS {
            if settings.switches || !for_switches {
                self.with(name, |program: &mut BtfTracePoint| {
                    program.attach().map(drop)
                })?;
            }
        }
        Ok(())
    }

    fn with<'a, P>(
        &'a mut self,
        name: &str,
        act: impl FnOnce(&mut P) -> Result<(), ProgramError>,
    ) -> Result<(), ProgramsError>
    where
        &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
        P: 'a,
    {
        let failed = |source| ProgramsError::Program {
            name: name.to_owned(),
            source,
        };
        let program = self
            .ebpf
            .program_mut(name)
            .ok_or_else(|| ProgramsError::Missing(name.to_owned()))?;
        let program: &'a mut P = program.try_into().map_err(failed)?;
        act(program).map_err(failed)
    }

    /// Descriptor of the mark program.
    ///
    /// # Errors
    /// If it is not loaded.
    pub fn mark(&self) -> Result<BorrowedFd<'_>, ProgramsError> {
        self.program("mark")
    }

    /// Descriptor of an event's sample program.
    ///
    /// # Errors
    /// If it is not loaded.
    pub fn sample(&self, event: EventId) -> Result<BorrowedFd<'_>, ProgramsError> {
        self.program(&format!("sample{}", event.0))
    }

    /// Descriptor of the clock calibrator.
    ///
    /// # Errors
    /// If it is not loaded.
    pub fn clock(&self) -> Result<BorrowedFd<'_>, ProgramsError> {
        self.program("clock")
    }

    fn program(&self, name: &str) -> Result<BorrowedFd<'_>, ProgramsError> {
        let missing = || ProgramsError::Missing(name.to_owned());
        let fd = match self.ebpf.program(name).ok_or_else(missing)? {
            Program::UProbe(program) => program.fd(),
            Program::PerfEvent(program) => program.fd(),
            _ => return Err(missing()),
        };
        let failed = |source| ProgramsError::Program {
            name: name.to_owned(),
            source,
        };
        Ok(fd.map_err(failed)?.as_fd())
    }

    /// Descriptor of a map.
    ///
    /// # Errors
    /// If the object has none of that name.
    pub fn map(&self, name: &str) -> Result<BorrowedFd<'_>, ProgramsError> {
        let missing = || ProgramsError::Missing(name.to_owned());
        match self.ebpf.map(name).ok_or_else(missing)? {
            Map::Array(data) | Map::HashMap(data) | Map::ArrayOfMaps(data) => Ok(data.fd().as_fd()),
            _ => Err(missing()),
        }
    }

    /// Tells the mark program what to do at a site, by the site's attach cookie.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn set_site(&self, cookie: u32, config: &SiteConfig) -> Result<(), ProgramsError> {
        kernel_map::set(self.map("SITES")?, cookie, config)
            .map_err(|error| ProgramsError::Map("configure a probe", error))
    }

    /// Traces a process from now on.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn trace(&self, pid: Pid) -> Result<(), ProgramsError> {
        kernel_map::set(self.map("TRACED")?, pid.0, &1u32)
            .map_err(|error| ProgramsError::Map("add a process to the traced ones", error))
    }

    /// What the programs log from now on goes to the `log` crate, at each flush.
    ///
    /// # Errors
    /// The log could not be opened.
    pub fn start_log(&mut self) -> Result<Log, aya_log::Error> {
        aya_log::EbpfLogger::init(&mut self.ebpf)
    }
}

/// The programs' own log.
pub type Log = aya_log::EbpfLogger<&'static dyn log::Log>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Every program passes the running kernel's verifier.
    #[test]
    fn verifier_accepts_all() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP not root");
            return;
        }
        let settings = Settings {
            scope: Scope::Everyone,
            exclude_kernel: true,
            perf_clock_events: 1,
            sample_limit: 1 << 18,
            switches: true,
            events: MAX_EVENTS,
            log: true,
        };
        let mut programs = Programs::load(&settings).unwrap_or_else(|error| panic!("{error:#?}"));
        programs.attach_tracepoints(&settings).unwrap();
        assert!(programs.sample(EventId(7)).is_ok());
    }
}
