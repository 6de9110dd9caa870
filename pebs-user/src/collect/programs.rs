//! Loads the eBPF programs with the run's settings, and provides their descriptors.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use aya::maps::Map;
use aya::programs::tp_btf::{BtfTracePointLink, BtfTracePointLinkId};
use aya::programs::{BtfTracePoint, PerfEvent, Program, ProgramError, UProbe};
use aya::{Ebpf, EbpfLoader};
use pebs_common::config::{
    ArgProgram, CopyPlace, ItemConfig, ItemOffsets, ItemSource, KernelCode, MAX_CPUS, MAX_EVENTS,
    MAX_PROCESSES, Program as ProgramRun, Scope, SiteConfig, Trigger, Waits,
};

use crate::arch::machine;
use crate::collect::btf::{Btf, BtfError};
use crate::collect::kernel_map;
use crate::pmu::attr::Faults;
use crate::probe::cgroup::Cgroup;
use crate::stream::decode::{Interferences, RecordKinds};
use crate::units::{Cpu, EventId, Pid, Tid};
pub(crate) use error::ProgramsError;
use interrupts_and_faults::Attachments;

/// The compiled programs, packed by zstd: they would be a sixteenth of the tool.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pebs-ebpf.zst"));

/// Log levels as aya-log numbers them.
const LOG_NOTHING: u8 = 0;
/// See [`LOG_NOTHING`].
const LOG_ALL: u8 = u8::MAX;

/// Configuration of the programs, set before they are loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Traced processes.
    pub scope: Scope,
    /// Whether only the threads of [`Programs::trace_thread`] are traced.
    pub only_threads: bool,
    /// Bit n: the program drops samples of event n in kernel mode.
    pub exclude_kernel: u32,
    /// Bit n: the program drops samples of event n in user mode.
    pub exclude_user: u32,
    /// Bit n: samples of event n carry the perf clock's time.
    pub perf_clock_events: u32,
    /// Bit n: samples of event n carry their memory access.
    pub access_events: u32,
    /// Samples are refused while more than this many bytes of a ring are unread.
    pub sample_limit: u64,
    /// Whether the mark program does probed instructions in place of the kernel.
    pub steps: bool,
    /// Records besides marks and samples.
    pub kinds: RecordKinds,
    /// Whether some marks read ids behind an array of pointers.
    pub ids_behind: bool,
    /// Source of item ids at samples; `None` if they have none. Offsets are filled in.
    pub item: Option<(ItemSource, ItemConfig)>,
    /// Whether samples are taken in interrupts that are recorded like others.
    pub samples_interrupt: bool,
    /// Events sampled.
    pub events: usize,
    /// Number of counters of events that are counted for each visit.
    pub counters: u32,
    /// Bit n: the n-th of these is never multiplexed.
    pub count_always: u32,
    /// Whether they are counted in intervals as well.
    pub count_intervals: bool,
    pub stacks: StackLimits,
    /// Whether the programs log what they do, for `-vv`.
    pub log: bool,
}

/// Limits of the call stacks that the programs take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StackLimits {
    /// Maximum frames in each mode; 0: no call stacks.
    pub frames: u32,
    /// Maximum bytes of a user stack that are copied, to be unwound later.
    pub copied: u32,
    /// Whether frame pointers of samples are followed instead; stacks of waits are copied all the same.
    pub by_pointers: bool,
}

/// Marks and samples of one event, of the processes of [`Programs::trace`].
impl Default for Settings {
    fn default() -> Self {
        Self {
            scope: Scope::Table,
            only_threads: false,
            exclude_kernel: 0,
            exclude_user: 0,
            perf_clock_events: 0,
            access_events: 0,
            sample_limit: u64::MAX,
            steps: false,
            kinds: RecordKinds::default(),
            ids_behind: false,
            item: None,
            samples_interrupt: false,
            events: 1,
            counters: 0,
            count_always: 0,
            count_intervals: false,
            stacks: StackLimits::default(),
            log: false,
        }
    }
}

/// Runs of a program and their total time, while the kernel counted them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunTime {
    pub runs: u64,
    /// Their time.
    pub ns: u64,
}

/// The loaded programs and their maps. Dropping it unloads and detaches everything.
pub(crate) struct Programs {
    ebpf: Ebpf,
    /// Program and tracepoint of the loaded ones.
    tracepoints: Vec<(&'static str, &'static str)>,
    /// Records of waits once switches are recorded.
    waits: Waits,
    /// The attached ones.
    attached: Vec<(&'static str, BtfTracePointLinkId)>,
    /// Attachments of the programs that record interrupts and page faults.
    interference: Attachments,
    /// Maps of counters by counted event: the kernel drops the counters with the descriptor through which they were
    /// set.
    counters: Vec<OwnedFd>,
}

/// Programs on the tracepoints of their names.
const TRACEPOINTS: [&str; 3] = [
    "sched_process_fork",
    "sched_process_exec",
    "sched_process_exit",
];

/// The mark program that does the probed instruction.
const STEPPING: &str = "mark_and_step";

/// The program that waits for a call.
const TRIGGER_PROGRAM: &str = "trigger";

/// The program that searches copies of probed places.
const COPY_PROGRAM: &str = "becomes_executable";

/// The tracepoint in whoever is about to change mappings.
const BECOMES_EXECUTABLE: &str = "mmap_lock_start_locking";

/// The tracepoint of wake-ups, and the program on it.
const WAKING: &str = "sched_waking";

/// Tracepoints that `--with` needs. Page faults are software events, which every kernel has.
pub(crate) fn tracepoints_of_extras() -> Vec<String> {
    let all = Interferences {
        irq: true,
        faults: true,
    };
    let waking = std::iter::once(WAKING.to_owned());
    waking.chain(interrupts_and_faults::needed(all)).collect()
}

/// The tracepoint of switches.
const SWITCH: &str = "sched_switch";

/// Its program since Linux 5.18, where it has four arguments.
const SWITCH_PROGRAM: &str = SWITCH;

/// The program for it before.
const OLD_SWITCH_PROGRAM: &str = "sched_switch_5_15";

/// The switch program that fits the kernel: an older verifier would refuse the newer one for its additional
/// argument.
fn switch_program(kernel: &Btf) -> &'static str {
    if kernel.tracepoint_arguments(SWITCH) == Some(3) {
        OLD_SWITCH_PROGRAM
    } else {
        SWITCH_PROGRAM
    }
}

/// Offset of the thread pointer in a task.
fn thread_pointer(kernel: &Btf) -> Result<u64, BtfError> {
    let members = machine::THREAD_POINTER.iter();
    members.map(|(of, name)| kernel.member(of, name)).sum()
}

/// Kernel offsets needed to read item ids.
fn item_offsets(kernel: &Btf) -> Result<ItemOffsets, BtfError> {
    let member = |r#struct, name| {
        let offset = kernel.member(r#struct, name)?;
        u32::try_from(offset).map_err(|_| BtfError::NoMember(r#struct, name))
    };
    Ok(ItemOffsets {
        task_flags: member("task_struct", "flags")?,
        task_mm: member("task_struct", "mm")?,
        task_fsbase: thread_pointer(kernel)? as u32,
        mm_start_code: member("mm_struct", "start_code")?,
        mm_exe_file: member("mm_struct", "exe_file")?,
        file_inode: member("file", "f_inode")?,
        inode_number: member("inode", "i_ino")?,
        inode_size: member("inode", "i_size")?,
        mm_start_stack: member("mm_struct", "start_stack")?,
        pad: 0,
    })
}

/// Offsets of what uprobes do in a thread; and in that, of the place that is single-stepped, its copy and its uprobe.
fn uprobe_offsets(kernel: &Btf) -> Result<[u64; 4], BtfError> {
    Ok([
        kernel.member("task_struct", "utask")?,
        kernel.member("uprobe_task", "vaddr")?,
        kernel.member("uprobe_task", "xol_vaddr")?,
        kernel.member("uprobe_task", "active_uprobe")?,
    ])
}

/// Offsets of members of the kernel's types, by the names of the globals that take them.
fn member_offsets(kernel: &Btf, switch: &str) -> Result<Vec<(&'static str, u64)>, ProgramsError> {
    let state = if switch == OLD_SWITCH_PROGRAM {
        kernel.member("task_struct", "__state")?
    } else {
        0
    };
    // `hw` is a struct within the event.
    let interrupts =
        kernel.member("perf_event", "hw")? + kernel.member("hw_perf_event", "interrupts")?;
    // Since Linux 6.6, if built for shadow stacks.
    let features = kernel
        .member("task_struct", "thread")
        .and_then(|thread| Ok(thread + kernel.member("thread_struct", "features")?))
        .unwrap_or(u64::MAX);
    let [utask, vaddr, slot, active] = uprobe_offsets(kernel).unwrap_or_default();
    Ok(vec![
        ("EVENT_INTERRUPTS_OFFSET", interrupts),
        ("TASK_STATE_OFFSET", state),
        (
            "SAMPLE_TIME_OFFSET",
            kernel.member("perf_sample_data", "time")?,
        ),
        (
            "SAMPLE_ADDR_OFFSET",
            kernel.member("perf_sample_data", "addr")?,
        ),
        (
            "SAMPLE_WEIGHT_OFFSET",
            kernel.member("perf_sample_data", "weight")?,
        ),
        (
            "SAMPLE_DATA_SRC_OFFSET",
            kernel.member("perf_sample_data", "data_src")?,
        ),
        (
            "SAMPLE_FLAGS_OFFSET",
            // Since Linux 6.1.
            kernel
                .member("perf_sample_data", "sample_flags")
                .unwrap_or(u64::MAX),
        ),
        ("TASK_PID_OFFSET", kernel.member("task_struct", "pid")?),
        ("TASK_COMM_OFFSET", kernel.member("task_struct", "comm")?),
        ("TASK_MM_OFFSET", kernel.member("task_struct", "mm")?),
        ("TASK_STACK_OFFSET", kernel.member("task_struct", "stack")?),
        ("TASK_UTASK_OFFSET", utask),
        ("UTASK_VADDR_OFFSET", vaddr),
        ("UTASK_SLOT_OFFSET", slot),
        ("UTASK_ACTIVE_OFFSET", active),
        (
            "TASK_SIGNAL_OFFSET",
            kernel.member("task_struct", "signal")?,
        ),
        (
            "TASK_EXIT_CODE_OFFSET",
            kernel.member("task_struct", "exit_code")?,
        ),
        ("TASK_FEATURES_OFFSET", features),
        ("TASK_FSBASE_OFFSET", thread_pointer(kernel)?),
        (
            "MM_START_STACK_OFFSET",
            kernel.member("mm_struct", "start_stack")?,
        ),
        (
            "SIGNAL_LIVE_OFFSET",
            kernel.member("signal_struct", "live")?,
        ),
    ])
}

impl Programs {
    /// Loads the programs for these settings, without attaching them.
    ///
    /// # Errors
    /// The kernel refused a program or map.
    pub(crate) fn load(settings: &Settings) -> Result<Self, ProgramsError> {
        let kernel = Btf::of_kernel()?;
        let btf = aya::Btf::from_sys_fs().map_err(ProgramsError::AyaBtf)?;
        let switch = switch_program(&kernel);
        let mut tracepoints = Vec::new();
        if settings.kinds.switches {
            tracepoints.push((switch, SWITCH));
        }
        tracepoints.extend(TRACEPOINTS.map(|name| (name, name)));
        let encounters = settings.kinds.encounters || settings.kinds.encounters_later;
        if encounters {
            tracepoints.push((WAKING, WAKING));
        }
        let encounters = u32::from(encounters);
        let own_interrupts = settings.kinds.interference.irq && settings.samples_interrupt;
        let samples_interrupt = u32::from(own_interrupts);
        let fault_times = u32::from(settings.kinds.interference.faults);
        let offsets = member_offsets(&kernel, switch)?;
        let source = settings.item.map_or(ItemSource::None, |(source, _)| source);
        let item_source = source as u32;
        let scope = settings.scope as u32;
        let only_threads = u32::from(settings.only_threads);
        let ids_behind = u32::from(settings.ids_behind);
        let count_intervals = u32::from(settings.count_intervals);
        let log_level = if settings.log { LOG_ALL } else { LOG_NOTHING };
        let followed = match settings.stacks.by_pointers {
            true => settings.stacks.frames,
            false => 0,
        };
        let mut loader = EbpfLoader::new();
        loader
            .btf(Some(&btf))
            .override_global("SCOPE", &scope, true)
            .override_global("ONLY_THREADS", &only_threads, true)
            .override_global(aya_log::LEVEL, &log_level, false)
            .override_global("EXCLUDE_KERNEL", &settings.exclude_kernel, true)
            .override_global("EXCLUDE_USER", &settings.exclude_user, true)
            .override_global("PERF_CLOCK_EVENTS", &settings.perf_clock_events, true)
            .override_global("ACCESS_EVENTS", &settings.access_events, true)
            .override_global("ITEM_SOURCE", &item_source, true)
            .override_global("IDS_BEHIND", &ids_behind, true)
            .override_global("ENCOUNTERS", &encounters, true)
            .override_global("SAMPLES_INTERRUPT", &samples_interrupt, true)
            .override_global("FAULT_TIMES", &fault_times, true)
            .override_global("COUNT_EVENTS", &settings.counters, true)
            .override_global("COUNT_ALWAYS", &settings.count_always, true)
            .override_global("COUNT_INTERVALS", &count_intervals, true)
            // aya has no name for storage of threads.
            .allow_unsupported_maps()
            .override_global("STACK_FRAMES", &followed, true)
            .override_global("STACK_BYTES", &settings.stacks.copied, true)
            .override_global("SAMPLE_LIMIT", &settings.sample_limit, true);
        for (name, offset) in &offsets {
            loader.override_global(name, offset, true);
        }
        let object = zstd::decode_all(OBJECT)
            .map_err(|error| ProgramsError::Map("unpack the eBPF object", error))?;
        let mut programs = Self {
            ebpf: loader.load(&object).map_err(ProgramsError::Object)?,
            tracepoints,
            waits: match settings.kinds.encounters {
                true if settings.stacks.copied > 0 => Waits::WithStacks,
                true => Waits::Encounters,
                false => Waits::Nothing,
            },
            attached: Vec::new(),
            interference: Attachments::of(settings.kinds.interference, &kernel),
            counters: Vec::new(),
        };
        programs.make_counters(settings.counters)?;
        programs.load_all(settings, &btf)?;
        if let Some((_, mut config)) = settings.item {
            config.offsets = item_offsets(&kernel)?;
            programs.set_item(&config)?;
        }
        Ok(programs)
    }

    fn load_all(&mut self, settings: &Settings, btf: &aya::Btf) -> Result<(), ProgramsError> {
        self.verify("mark", |program: &mut UProbe| program.load())?;
        if settings.steps {
            self.verify(STEPPING, |program: &mut UProbe| program.load())?;
        }
        if settings
            .item
            .is_some_and(|(source, _)| source == ItemSource::Library)
        {
            self.verify("library", |program: &mut UProbe| program.load())?;
        }
        for event in 0..settings.events.min(MAX_EVENTS) {
            self.verify(&format!("sample{event}"), |program: &mut PerfEvent| {
                program.load()
            })?;
        }
        if settings.kinds.page_faults {
            for which in Faults::needed(settings.kinds.interference) {
                let name = interrupts_and_faults::fault_program(*which);
                self.verify(name, |program: &mut PerfEvent| program.load())?;
            }
        }
        if settings.perf_clock_events != 0 {
            self.verify("clock", |program: &mut PerfEvent| program.load())?;
        }
        if settings.count_intervals {
            self.verify("tick", |program: &mut PerfEvent| program.load())?;
        }
        for (name, tracepoint) in self.tracepoints.clone() {
            self.verify(name, |program: &mut BtfTracePoint| {
                program.load(tracepoint, btf)
            })?;
        }
        self.load_interference()
    }

    /// Attaches the programs that follow tasks: forks, execs, exits.
    ///
    /// # Errors
    /// The kernel refused an attachment.
    pub(crate) fn attach_tasks(&mut self) -> Result<(), ProgramsError> {
        self.attach_tracepoints(|tracepoint| TRACEPOINTS.contains(&tracepoint))
    }

    /// Attaches the other loaded tracepoint programs, which make many records on a busy machine.
    ///
    /// # Errors
    /// The kernel refused an attachment.
    pub(crate) fn attach_switches(&mut self) -> Result<(), ProgramsError> {
        self.attach_tracepoints(|it| !TRACEPOINTS.contains(&it) && it != WAKING)?;
        if self.waits != Waits::Nothing {
            self.record_waits(self.waits)?;
        }
        self.attach_interference()
    }

    /// Records these from now on, if switches are recorded and [`Settings`] allow it.
    ///
    /// # Errors
    /// The kernel refused it.
    pub(crate) fn record_waits(&mut self, waits: Waits) -> Result<(), ProgramsError> {
        kernel_map::set(self.map("WAITS")?, 0, &(waits as u32))
            .map_err(|error| ProgramsError::Map("record who ends waits", error))?;
        let is_attached = self.attached.iter().any(|(name, _)| *name == WAKING);
        if waits != Waits::Nothing && !is_attached {
            self.attach_tracepoints(|it| it == WAKING)?;
        }
        Ok(())
    }

    fn attach_tracepoints(&mut self, which: impl Fn(&str) -> bool) -> Result<(), ProgramsError> {
        let chosen = self.tracepoints.clone().into_iter();
        for (name, _) in chosen.filter(|(_, tracepoint)| which(tracepoint)) {
            let link = self.with(name, BtfTracePoint::attach)?;
            self.attached.push((name, link));
        }
        Ok(())
    }

    /// Starts looking for copies of probed places wherever memory becomes executable, until the link is dropped.
    /// Also returns the ring of the copies found.
    ///
    /// # Errors
    /// The kernel refused: `bpf_loop` needs Linux 5.17.
    pub(crate) fn watch_copies(
        &mut self,
        places: &[CopyPlace],
    ) -> Result<(BtfTracePointLink, OwnedFd), ProgramsError> {
        for (index, place) in (0u32..).zip(places) {
            kernel_map::set(self.map("COPY_PLACES")?, index, place)
                .map_err(|error| ProgramsError::Map("say what copies of code look like", error))?;
        }
        let btf = aya::Btf::from_sys_fs().map_err(ProgramsError::AyaBtf)?;
        self.verify(COPY_PROGRAM, |program: &mut BtfTracePoint| {
            program.load(BECOMES_EXECUTABLE, &btf)
        })?;
        let ring = self.map("COPIES")?.try_clone_to_owned();
        let ring = ring.map_err(|error| ProgramsError::Map("open a ring", error))?;
        let link = self.with(COPY_PROGRAM, |program: &mut BtfTracePoint| {
            let id = program.attach()?;
            program.take_link(id)
        })?;
        Ok((link, ring))
    }

    /// Detaches the programs from their tracepoints: nothing more is recorded there.
    pub(crate) fn detach_tracepoints(&mut self) {
        for (name, link) in std::mem::take(&mut self.attached) {
            // A program that can't be detached now is detached when it is dropped.
            let _ = self.with(name, |program: &mut BtfTracePoint| program.detach(link));
        }
        self.detach_interference();
    }

    /// Loads a program. Retries if the verifier was interrupted by a signal.
    fn verify<'a, P>(
        &'a mut self,
        name: &str,
        mut load: impl FnMut(&mut P) -> Result<(), ProgramError>,
    ) -> Result<(), ProgramsError>
    where
        &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
        P: 'a,
    {
        self.with(name, |program: &mut P| {
            uninterrupted(|| load(program), is_signal)
        })
    }

    fn with<'a, P, T>(
        &'a mut self,
        name: &str,
        act: impl FnOnce(&mut P) -> Result<T, ProgramError>,
    ) -> Result<T, ProgramsError>
    where
        &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
        P: 'a,
    {
        let failed = |error| ProgramsError::refused(name, error);
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
    pub(crate) fn mark(&self) -> Result<BorrowedFd<'_>, ProgramsError> {
        self.program("mark")
    }

    /// Descriptor of the mark program that does the probed instruction in place of the kernel.
    ///
    /// # Errors
    /// If it is not loaded.
    pub(crate) fn mark_and_step(&self) -> Result<BorrowedFd<'_>, ProgramsError> {
        self.program(STEPPING)
    }

    /// Loads the program that waits for a call, and returns its descriptor.
    ///
    /// # Errors
    /// The kernel refused it.
    pub(crate) fn wait_for(&mut self, trigger: &Trigger) -> Result<BorrowedFd<'_>, ProgramsError> {
        self.verify(TRIGGER_PROGRAM, |program: &mut UProbe| program.load())?;
        kernel_map::set(self.map("TRIGGER")?, 0, trigger)
            .map_err(|error| ProgramsError::Map("wait for a call", error))?;
        self.program(TRIGGER_PROGRAM)
    }

    /// Number of calls that were waited for so far.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn calls(&self) -> Result<u64, ProgramsError> {
        let mut trigger = Trigger {
            hits: 0,
            value: 0,
            read: ArgProgram::NONE,
            source: 0,
            unused: 0,
        };
        kernel_map::get(self.map("TRIGGER")?, 0, &mut trigger)
            .map_err(|error| ProgramsError::Map("see whether a call came", error))?;
        Ok(trigger.hits)
    }

    /// Descriptor of the program that finds the address of a library.
    ///
    /// # Errors
    /// It is not loaded.
    pub(crate) fn library(&self) -> Result<BorrowedFd<'_>, ProgramsError> {
        self.program("library")
    }

    /// Sets the load address of the variable's library in a program, for the sample programs.
    ///
    /// # Errors
    /// The kernel refused the update.
    pub(crate) fn set_library(&self, program: ProgramRun, base: u64) -> Result<(), ProgramsError> {
        kernel_map::set(self.map("LIBRARIES")?, program.key(), &[program.0, base])
            .map_err(|error| ProgramsError::Map("say where a library lies", error))
    }

    /// Descriptor of an event's sample program.
    ///
    /// # Errors
    /// If it is not loaded.
    pub(crate) fn sample(&self, event: EventId) -> Result<BorrowedFd<'_>, ProgramsError> {
        self.program(&format!("sample{}", event.0))
    }

    /// Descriptor of the program for these page faults.
    ///
    /// # Errors
    /// If it is not loaded.
    pub(crate) fn page_fault(&self, which: Faults) -> Result<BorrowedFd<'_>, ProgramsError> {
        self.program(interrupts_and_faults::fault_program(which))
    }

    /// Runs of a program; `None` if it is not loaded, or the kernel does not report them.
    fn run_time(&self, name: &str) -> Option<RunTime> {
        let info = self.ebpf.program(name)?.info().ok()?;
        Some(RunTime {
            runs: info.run_count(),
            ns: info.run_time().as_nanos() as u64,
        })
    }

    /// Runs of the program at wake-ups.
    #[must_use]
    pub(crate) fn wake_time(&self) -> Option<RunTime> {
        self.run_time(WAKING)
    }

    /// Runs of the program at the end of minor page faults.
    #[must_use]
    pub(crate) fn minor_fault_time(&self) -> Option<RunTime> {
        self.run_time(interrupts_and_faults::fault_program(Faults::Minor))
    }

    /// Descriptor of the clock calibrator.
    ///
    /// # Errors
    /// If it is not loaded.
    pub(crate) fn clock(&self) -> Result<BorrowedFd<'_>, ProgramsError> {
        self.program("clock")
    }

    /// Descriptor of the program at the end of an interval of counts.
    ///
    /// # Errors
    /// If it is not loaded.
    pub(crate) fn tick(&self) -> Result<BorrowedFd<'_>, ProgramsError> {
        self.program("tick")
    }

    fn program(&self, name: &str) -> Result<BorrowedFd<'_>, ProgramsError> {
        let missing = || ProgramsError::Missing(name.to_owned());
        let fd = match self.ebpf.program(name).ok_or_else(missing)? {
            Program::UProbe(program) => program.fd(),
            Program::PerfEvent(program) => program.fd(),
            _ => return Err(missing()),
        };
        let failed = |error| ProgramsError::refused(name, error);
        Ok(fd.map_err(failed)?.as_fd())
    }

    /// Descriptor of a map.
    ///
    /// # Errors
    /// The object has no map of that name.
    pub(crate) fn map(&self, name: &str) -> Result<BorrowedFd<'_>, ProgramsError> {
        let missing = || ProgramsError::Missing(name.to_owned());
        match self.ebpf.map(name).ok_or_else(missing)? {
            Map::Array(data)
            | Map::HashMap(data)
            | Map::ArrayOfMaps(data)
            | Map::RingBuf(data)
            | Map::CgroupArray(data) => Ok(data.fd().as_fd()),
            _ => Err(missing()),
        }
    }

    /// Sets what the mark program does at a site, by the site's attach cookie.
    ///
    /// # Errors
    /// The kernel refused the update.
    pub(crate) fn set_site(&self, cookie: u32, config: &SiteConfig) -> Result<(), ProgramsError> {
        kernel_map::set(self.map("SITES")?, cookie, config)
            .map_err(|error| ProgramsError::Map("configure a probe", error))
    }

    /// Sets how the sample programs read item ids.
    fn set_item(&self, config: &ItemConfig) -> Result<(), ProgramsError> {
        kernel_map::set(self.map("ITEM")?, 0, config)
            .map_err(|error| ProgramsError::Map("say where item ids are", error))
    }

    /// Sets where the kernel deals with marks.
    ///
    /// # Errors
    /// The kernel refused the update.
    pub(crate) fn set_kernel_code(&self, code: &KernelCode) -> Result<(), ProgramsError> {
        kernel_map::set(self.map("KERNEL_CODE")?, 0, code)
            .map_err(|error| ProgramsError::Map("say where marks are dealt with", error))
    }

    /// Makes the maps of counters that programs read.
    fn make_counters(&mut self, number: u32) -> Result<(), ProgramsError> {
        let failed = |error| ProgramsError::Map("make room for counters", error);
        let make = |_| kernel_map::create_perf_array(MAX_CPUS);
        let made: Vec<OwnedFd> = (0..number)
            .map(make)
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        let all: Vec<_> = (0..).zip(made.iter().map(AsFd::as_fd)).collect();
        if !all.is_empty() {
            kernel_map::set_maps(self.map("COUNTED")?, &all).map_err(failed)?;
        }
        self.counters = made;
        Ok(())
    }

    /// Lets programs read the counter of an event on its CPU.
    ///
    /// # Errors
    /// The kernel refused the update.
    pub(crate) fn set_counter(
        &self,
        number: u32,
        cpu: Cpu,
        counter: BorrowedFd<'_>,
    ) -> Result<(), ProgramsError> {
        let map = self.counters.get(number as usize);
        let map = map.ok_or_else(|| ProgramsError::Missing("COUNTED".to_owned()))?;
        kernel_map::set(map.as_fd(), cpu.0.into(), &counter.as_raw_fd())
            .map_err(|error| ProgramsError::Map("say which counters are read", error))
    }

    /// Traces a process from now on.
    ///
    /// # Errors
    /// The kernel refused the update.
    pub(crate) fn trace(&self, pid: Pid) -> Result<(), ProgramsError> {
        kernel_map::set(self.map("TRACED")?, pid.0, &1u32)
            .map_err(|error| ProgramsError::Map("add a process to the traced ones", error))
    }

    /// Traces a thread of a traced process, if only some threads are traced.
    ///
    /// # Errors
    /// The kernel refused the update.
    pub(crate) fn trace_thread(&self, tid: Tid) -> Result<(), ProgramsError> {
        kernel_map::set(self.map("THREADS")?, tid.0, &1u32)
            .map_err(|error| ProgramsError::Map("add a thread to the traced ones", error))
    }

    /// Traces the processes of a cgroup, under [`Scope::Cgroup`].
    ///
    /// # Errors
    /// The kernel refused the update.
    pub(crate) fn set_cgroup(&self, cgroup: &Cgroup) -> Result<(), ProgramsError> {
        let directory = cgroup.directory.as_raw_fd();
        kernel_map::set(self.map("CGROUP")?, 0, &directory)
            .map_err(|error| ProgramsError::Map("say which cgroup is traced", error))
    }

    /// The processes traced now.
    ///
    /// # Errors
    /// The kernel refused the read.
    pub(crate) fn traced(&self) -> Result<Vec<Pid>, ProgramsError> {
        let pids = kernel_map::keys(self.map("TRACED")?, MAX_PROCESSES)
            .map_err(|error| ProgramsError::Map("list the traced processes", error))?;
        Ok(pids.into_iter().map(Pid).collect())
    }

    /// Prefixes of the programs' symbols in the kernel.
    #[must_use]
    pub(crate) fn symbols(&self) -> Vec<String> {
        let infos = self.ebpf.programs().filter_map(|(_, it)| it.info().ok());
        infos
            .map(|it| format!("bpf_prog_{:016x}_", it.tag()))
            .collect()
    }

    /// Passes the programs' log messages to the `log` crate from now on, at each flush.
    ///
    /// # Errors
    /// The log could not be opened.
    pub(crate) fn start_log(&mut self) -> Result<Log, aya_log::Error> {
        aya_log::EbpfLogger::init(&mut self.ebpf)
    }
}

/// Logger of the programs' messages.
pub(crate) type Log = aya_log::EbpfLogger<&'static dyn log::Log>;

mod error;
mod interrupts_and_faults;
/// Retries while the call is interrupted by signals.
fn uninterrupted<E>(
    mut load: impl FnMut() -> Result<(), E>,
    is_signal: impl Fn(&E) -> bool,
) -> Result<(), E> {
    const ATTEMPTS: usize = 100;
    let mut result = load();
    for _ in 1..ATTEMPTS {
        if !result.as_ref().is_err_and(&is_signal) {
            break;
        }
        result = load();
    }
    result
}

/// Whether the verifier stopped because of a signal, which is not a verdict.
///
/// Source: `signal_pending` in `do_check`, kernel/bpf/verifier.c.
fn is_signal(error: &ProgramError) -> bool {
    match error {
        ProgramError::LoadError { io_error, .. } => io_error.raw_os_error() == Some(libc::EAGAIN),
        _ => false,
    }
}

#[cfg(test)]
mod modes;

#[cfg(test)]
mod tests {
    use pebs_common::config::{ArgProgram, MAX_COUNTS};

    use super::*;

    /// An interruption by a signal is retried, but not forever.
    #[test]
    fn loads_again() {
        let calls = |codes: &mut dyn Iterator<Item = i32>| {
            let mut calls = 0;
            let load = || {
                calls += 1;
                codes.next().map_or(Ok(()), Err)
            };
            let result = uninterrupted(load, |code| *code == libc::EAGAIN);
            (calls, result.is_ok())
        };
        let again = libc::EAGAIN;
        assert_eq!(calls(&mut [again, again].into_iter()), (3, true));
        assert_eq!(calls(&mut [again, libc::EACCES].into_iter()), (2, false));
        assert_eq!(calls(&mut std::iter::repeat(again)), (100, false));
    }

    /// Maximum instructions that the verifier follows in a program, on all paths together. Older kernels may follow
    /// many times as many in the same program, and refuse it after a million: 6.1 refused one in which 6.18
    /// followed 205,000.
    const MOST_VERIFIED: u32 = 40_000;

    /// The running kernel's verifier accepts every program within that limit, for every source of item ids; also
    /// the switch program for older kernels, whose arguments are the first ones of the current one.
    #[test]
    fn verifier_accepts_all() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP not root");
            return;
        }
        let item = ItemConfig {
            program: ArgProgram::NONE,
            offset: 0,
            entry: 0,
            inode: 0,
            size: 0,
            none: 0,
            offsets: ItemOffsets::default(),
        };
        for source in [
            ItemSource::None,
            ItemSource::Register,
            ItemSource::Memory,
            ItemSource::Tls,
            ItemSource::Library,
        ] {
            accepts_all((source, item));
        }
    }

    fn accepts_all(item: (ItemSource, ItemConfig)) {
        let settings = Settings {
            item: Some(item),
            ids_behind: true,
            scope: Scope::Everyone,
            only_threads: true,
            exclude_kernel: 1,
            exclude_user: 2,
            perf_clock_events: 1,
            access_events: 3,
            sample_limit: 1 << 18,
            steps: false,
            events: MAX_EVENTS,
            counters: MAX_COUNTS as u32,
            count_always: 0x5555,
            count_intervals: true,
            stacks: StackLimits {
                frames: 127,
                copied: 16 << 10,
                by_pointers: false,
            },
            samples_interrupt: true,
            log: true,
            kinds: RecordKinds {
                switches: true,
                page_faults: true,
                encounters: true,
                encounters_later: false,
                interference: Interferences {
                    irq: true,
                    faults: true,
                },
            },
        };
        let mut programs = Programs::load(&settings).unwrap_or_else(|error| panic!("{error:#?}"));
        programs.attach_tasks().unwrap();
        programs.attach_switches().unwrap();
        assert!(programs.sample(EventId(7)).is_ok());
        let btf = aya::Btf::from_sys_fs().unwrap();
        let old = programs.with(OLD_SWITCH_PROGRAM, |program: &mut BtfTracePoint| {
            program.load(SWITCH, &btf)
        });
        old.unwrap_or_else(|error| panic!("{error:#?}"));
        assert!(programs.page_fault(Faults::Major).is_ok());
        let watched = programs.watch_copies(&[CopyPlace::default()]);
        watched.unwrap_or_else(|error| panic!("{error:#?}"));
        for (name, program) in programs.ebpf.programs() {
            // Not all are loaded, and Linux before 5.16 does not report it.
            let info = program.info().ok();
            let verified = info.and_then(|info| info.verified_instruction_count());
            let verified = verified.unwrap_or_default();
            println!("{name}, {:?}: {verified} instructions verified", item.0);
            assert!(verified <= MOST_VERIFIED, "{name}: {verified}");
        }
    }
}
