//! Surveys a recording: counts, times, threads and losses.

use std::sync::Arc;

use perf_event_open_sys::bindings as sys;
use rustc_hash::{FxHashMap, FxHashSet};

use super::error::ImportError;
use super::losses::Losses;
use super::names::{EventNames, is_guest};
use super::switches::{Balance, SwitchFormat};
use super::times::{Far, SPAN_MAX, Times};
use crate::binary::mapping::BuildId;
use crate::perf::data::attr::Attr;
use crate::perf::data::reader::PerfData;
use crate::perf::data::records::{Fault, Item, Records};
use crate::perf::data::tracing::Formats;
use crate::perf::record::{MappedAs, Mmap, Mode, RawRecord, Record, RecordKind};
use crate::perf::sample::{Malformed, Sample};
use crate::pipeline::ReportedLoss;
use crate::pmu::host::Vendor;
use crate::stream::access::Registers;
use crate::stream::fast_samples::Run;
use crate::symbolize::RecordedKernel;
use crate::units::{Cpu, Tid};

/// Sample counts of one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Samples that could be decoded.
    pub samples: u64,
    /// Those with an exact ip, as flagged by the kernel.
    pub exact: u64,
    /// Those taken in guests.
    pub guest: u64,
    pub untimed: u64,
    /// Smallest and largest period in the samples; `None`: they carry none.
    pub periods: Option<(u64, u64)>,
}

impl Counts {
    /// Counts a run of samples, which are all of a guest or all not; `first`: one of them.
    fn add(&mut self, first: RawRecord<'_>, (samples, exact): (u64, u64)) {
        self.samples += samples;
        self.exact += exact;
        self.guest += u64::from(is_guest(first)) * samples;
    }

    fn period(&mut self, period: u64) {
        let (least, most) = self.periods.get_or_insert((period, period));
        *least = period.min(*least);
        *most = period.max(*most);
    }
}

/// Position of the recorded kernel in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelMapping {
    /// Name of the symbol at `address`.
    pub symbol: Vec<u8>,
    pub address: u64,
    /// The kernel's build id, if its mmap record has one (`perf record --buildid-mmap`).
    pub build_id: Option<BuildId>,
}

/// The survey of a recording.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Events by id, and their names.
    pub names: EventNames,
    /// Formats of tracepoints.
    pub formats: Formats,
    /// By event.
    pub counts: Vec<Counts>,
    /// By event: the PMU registers that its samples carry as raw data.
    pub registers: Vec<Option<Registers>>,
    /// Samples too short for their event, or of an unknown event.
    pub malformed: u64,
    /// Samples too long for their event, and the total of their surplus bytes.
    pub left_over: (u64, u64),
    /// First and last time, on the recording's clock, without the times counted in [`Survey::far`].
    pub times: Option<(u64, u64)>,
    /// Records with damaged times.
    pub far: Far,
    /// Process id by thread id.
    pub pids: FxHashMap<u32, u32>,
    /// Number of the kernel's context-switch records.
    pub switches: u64,
    /// Ranges without full data, sorted by begin.
    pub losses: Vec<ReportedLoss>,
    /// Samples dropped by `perf record --filter`.
    pub left_out: u64,
    pub kernel: Option<KernelMapping>,
    /// Whether mmap records have build ids.
    pub has_build_ids: bool,
    /// Why reading stopped before the end of the file.
    pub fault: Option<Fault>,
    /// Balance of the `sched_switch` samples.
    pub(super) switched: Balance,
    /// By event: its fields, if it is `sched_switch`.
    pub(super) switch_formats: Vec<Option<SwitchFormat>>,
    /// Events with the threads in whose context they fired; filled only if `tells_switches`.
    seen: FxHashSet<(usize, u32)>,
    /// Whether some event is `sched_switch`.
    tells_switches: bool,
    /// Process and thread of the last record.
    recent: Option<(u32, u32)>,
    /// Bytes of tracepoint formats parsed.
    tracing: usize,
}

const YEAR: u64 = 365 * 24 * 3600 * 1_000_000_000;

/// Checks that a time range is short enough to compute with. `what`: names of its files, for the error.
///
/// # Errors
/// If it spans more than nine years.
pub fn check_span(what: &str, (first, last): (u64, u64)) -> Result<(), ImportError> {
    let span = last.saturating_sub(first);
    if span <= SPAN_MAX {
        return Ok(());
    }
    Err(ImportError::Centuries {
        what: what.to_owned(),
        years: span / YEAR,
    })
}

/// Surveys a recording from begin to end, and completes the metadata in `data`.
///
/// Cost: as reading the file. Memory: by the number of threads and losses.
///
/// # Errors
/// If the recording's events can't be distinguished.
pub fn survey(data: &mut PerfData) -> Result<Survey, ImportError> {
    let mut surveyor = Surveyor::default();
    let mut records = data.records();
    while surveyor.round(data, &mut records)? {}
    surveyor.close(data, &records)
}

/// Builds a [`Survey`].
#[derive(Debug, Default)]
pub(super) struct Surveyor {
    /// The survey so far, without times and losses.
    pub(super) survey: Survey,
    pub(super) losses: Losses,
    times: Times,
    /// Number of events at the last look. In piped files, event descriptions may follow later.
    known: Option<usize>,
}

impl Surveyor {
    /// Takes the records up to the end of a round; `false`: the file ended.
    ///
    /// # Errors
    /// If the recording's events can't be distinguished.
    pub(super) fn round(
        &mut self,
        data: &mut PerfData,
        records: &mut Records,
    ) -> Result<bool, ImportError> {
        loop {
            if self.knows_events(data)
                && let Some((event, run)) = self.survey.names.run(records.ahead())
            {
                self.run(event, &run);
                let bytes = run.bytes.len();
                records.skip(bytes);
                continue;
            }
            match records.next_item() {
                None => return Ok(false),
                Some(Item::Event(raw)) => {
                    self.look_at_events(data)?;
                    let decoded = self.survey.names.decode(raw);
                    self.record(raw, &decoded);
                }
                Some(Item::Perf { kind, misc, body }) => data.learn(kind, misc, body),
                Some(Item::Round) => {
                    self.losses.round();
                    return Ok(true);
                }
            }
        }
    }

    /// The survey of the records so far, without losses.
    ///
    /// # Errors
    /// If the recording's events can't be distinguished.
    pub(super) fn so_far(&mut self, data: &PerfData) -> Result<Survey, ImportError> {
        self.survey.learn(data)?;
        self.known = Some(data.events.len());
        let mut survey = self.survey.clone();
        if let Some((span, far)) = self.times.clone().close() {
            (survey.times, survey.far) = (Some(span), far);
        }
        Ok(survey)
    }

    /// The complete survey, after the last record.
    ///
    /// # Errors
    /// If the recording's events can't be distinguished.
    pub(super) fn close(
        mut self,
        data: &PerfData,
        records: &Records,
    ) -> Result<Survey, ImportError> {
        let mut survey = self.so_far(data)?;
        survey.fault = records.fault().cloned();
        (survey.losses, survey.left_out) = self.losses.close(survey.times.unwrap_or_default());
        Ok(survey)
    }

    /// Whether all events described so far are known.
    #[inline]
    pub(super) fn knows_events(&self, data: &PerfData) -> bool {
        self.known == Some(data.events.len())
    }

    /// Rereads the event descriptions if there are new ones.
    pub(super) fn look_at_events(&mut self, data: &PerfData) -> Result<(), ImportError> {
        if self.knows_events(data) {
            return Ok(());
        }
        self.known = Some(data.events.len());
        self.survey.learn(data)
    }

    /// Takes a run of samples.
    #[inline]
    pub(super) fn run(&mut self, event: usize, run: &Run<'_>) {
        self.survey.run(event, run);
        let mut newest = 0;
        for time in run.times() {
            self.times.see(time, true);
            newest = time;
        }
        self.losses.see(newest, cpu(run.cpu()));
    }

    pub(super) fn record(
        &mut self,
        raw: RawRecord<'_>,
        decoded: &Result<(usize, Record<'_>), Malformed>,
    ) {
        let survey = &mut self.survey;
        match decoded {
            Ok((event, record)) => {
                survey.take(*event, raw, record);
                self.note(raw, record);
            }
            Err(Malformed::Short) if is_sample(raw) => survey.malformed += 1,
            Err(Malformed::LeftOver(bytes)) => {
                survey.left_over.0 += 1;
                survey.left_over.1 += *bytes as u64;
            }
            Err(Malformed::Short) => {}
        }
    }

    /// Notes a record's losses and time.
    fn note(&mut self, raw: RawRecord<'_>, record: &Record<'_>) {
        let (id, losses) = (&record.id, &mut self.losses);
        match record.kind {
            RecordKind::Lost { .. } | RecordKind::LostSamples { .. } => {
                losses.lost(raw, record, cpu(id.cpu));
            }
            RecordKind::Throttle {
                stopped,
                time,
                id: event,
                stream_id,
            } => {
                let time = id.time.unwrap_or(time);
                let tid = id.pid_tid.map(|(_, tid)| Tid(tid));
                losses.throttle(stopped, (event, stream_id), (time, cpu(id.cpu), tid));
            }
            _ => {}
        }
        if let Some(time) = record.time()
            && !matches!(record.kind, RecordKind::Other { .. })
        {
            losses.see(time, cpu(id.cpu));
            self.times.see(time, is_sample(raw));
        }
    }

    /// Whether the recording begins before `first` after all, or a loss was found too late.
    pub(super) fn is_otherwise(&self, first: u64) -> bool {
        self.losses.has_missed() || self.span().is_some_and(|(begin, _)| begin != first)
    }

    /// First and last time so far, without damaged ones.
    pub(super) fn span(&self) -> Option<(u64, u64)> {
        self.times.clone().close().map(|(span, _)| span)
    }
}

/// The PMU registers in an event's raw data: those of IBS, also where a precise core event was forwarded to it.
fn registers(data: &PerfData, attr: &Attr) -> Option<Registers> {
    let cpu = data.features.model.as_ref()?;
    let pmus = &data.features.pmus;
    let forwarded = cpu.vendor == Vendor::Amd
        && attr.precise > 0
        && matches!(attr.kind, sys::PERF_TYPE_HARDWARE | sys::PERF_TYPE_RAW);
    if forwarded {
        return Registers::of_pmu("ibs_op", cpu);
    }
    Registers::of_pmu(pmus.get(&attr.kind)?, cpu)
}

impl Survey {
    fn learn(&mut self, data: &PerfData) -> Result<(), ImportError> {
        let tracing = data.features.tracing.len();
        if self.tracing != tracing {
            self.tracing = tracing;
            self.formats = Formats::read(&data.features.tracing);
        }
        self.names = EventNames::new(&data.events, &self.formats);
        let events = data.events.iter();
        self.switch_formats = events
            .map(|event| SwitchFormat::of(&event.attr, &self.formats))
            .collect();
        self.tells_switches = self.switch_formats.iter().any(Option::is_some);
        let registers = data.events.iter().map(|event| registers(data, &event.attr));
        self.registers = registers.collect();
        self.counts.resize(data.events.len(), Counts::default());
        self.names.check(data)
    }

    fn take(&mut self, event: usize, raw: RawRecord<'_>, record: &Record<'_>) {
        if let Some(thread) = record.id.pid_tid {
            self.meet(thread);
        }
        match record.kind {
            RecordKind::Sample(sample) => self.sample(event, raw, &sample),
            RecordKind::Mmap(mmap) => {
                self.has_build_ids |= matches!(mmap.file, MappedAs::BuildId(_));
                if raw.mode() == Mode::Kernel {
                    self.kernel_mapping(&mmap);
                }
            }
            RecordKind::Comm { pid, tid, .. } => self.meet((pid, tid)),
            RecordKind::Fork(task) => self.meet((task.pid, task.tid)),
            RecordKind::Switch { .. } => self.switches += 1,
            _ => {}
        }
    }

    /// Notes the process of a record's thread.
    #[inline]
    fn meet(&mut self, (pid, tid): (u32, u32)) {
        if self.recent != Some((pid, tid)) && tid != u32::MAX {
            self.recent = Some((pid, tid));
            self.pids.insert(tid, pid);
        }
    }

    /// Whether a time is a damaged one, see [`Survey::far`].
    #[inline]
    #[must_use]
    pub fn is_far(&self, time: u64) -> bool {
        let is_within = |&(first, last): &(u64, u64)| (first..=last).contains(&time);
        self.far.records > 0 && time > 0 && !self.times.as_ref().is_some_and(is_within)
    }

    /// Takes a run of samples.
    #[inline]
    fn run(&mut self, event: usize, run: &Run<'_>) {
        self.meet(run.pid_tid);
        self.see_thread(event, run.pid_tid.1);
        let counts = &mut self.counts[event];
        run.periods().for_each(|period| counts.period(period));
        counts.add(run.first, (run.len() as u64, run.exact()));
        self.sched_switch(event, || run.raw());
    }

    fn sample(&mut self, event: usize, raw: RawRecord<'_>, sample: &Sample<'_>) {
        self.see_thread(event, sample.pid_tid.map_or(u32::MAX, |(_, tid)| tid));
        let counts = &mut self.counts[event];
        let (exact, _) = raw.flags();
        counts.add(raw, (1, exact.into()));
        counts.untimed += u64::from(sample.time.unwrap_or(0) == 0);
        sample.period.into_iter().for_each(|it| counts.period(it));
        self.sched_switch(event, || sample.rest().raw);
    }

    /// Notes the thread in whose context an event fired.
    fn see_thread(&mut self, event: usize, tid: u32) {
        if self.tells_switches {
            self.seen.insert((event, tid));
        }
    }

    /// Threads in whose context these events fired; empty unless some event is `sched_switch`.
    pub(super) fn threads_of(&self, wanted: impl Fn(usize) -> bool) -> FxHashSet<u32> {
        let seen = self.seen.iter().filter(|(event, _)| wanted(*event));
        seen.map(|(_, tid)| *tid).collect()
    }

    /// Takes the mmap record named `[kernel.kallsyms]SYMBOL`: its page offset is the symbol's address.
    fn kernel_mapping(&mut self, mmap: &Mmap<'_>) {
        if let Some(symbol) = mmap.name.strip_prefix(b"[kernel.kallsyms]")
            && !symbol.is_empty()
        {
            let build_id = match mmap.file {
                MappedAs::BuildId(id) => BuildId::new(id),
                MappedAs::Unknown | MappedAs::Inode { .. } => None,
            };
            self.kernel = Some(KernelMapping {
                symbol: symbol.to_vec(),
                address: mmap.offset,
                build_id,
            });
        }
    }

    /// The recorded kernel; `None` if its build id is unknown.
    #[must_use]
    pub fn recorded_kernel(&self, data: &PerfData) -> Option<RecordedKernel> {
        let mapping = self.kernel.as_ref()?;
        let in_header = data.features.build_id_of(b"[kernel.kallsyms]");
        Some(RecordedKernel {
            build_id: mapping.build_id.or(in_header)?,
            symbol: Arc::from(mapping.symbol.as_slice()),
            address: mapping.address,
        })
    }

    fn sched_switch<'a>(&mut self, event: usize, raw: impl FnOnce() -> Option<&'a [u8]>) {
        if let Some(format) = &self.switch_formats[event]
            && let Some(switched) = raw().and_then(|raw| format.read(raw))
        {
            self.switched.add(switched);
        }
    }

    /// Samples of all events.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.counts.iter().map(|counts| counts.samples).sum()
    }

    /// Samples with a time.
    #[must_use]
    pub fn timed(&self) -> u64 {
        let counts = self.counts.iter();
        counts.map(|counts| counts.samples - counts.untimed).sum()
    }
}

/// A CPU number that fits the tables.
pub(super) fn cpu(number: Option<u32>) -> Option<Cpu> {
    let cpu = Cpu(u16::try_from(number?).ok()?);
    cpu.known().map(Cpu)
}

const fn is_sample(raw: RawRecord<'_>) -> bool {
    raw.kind == perf_event_open_sys::bindings::PERF_RECORD_SAMPLE
}
