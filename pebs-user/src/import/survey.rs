//! The first pass: what there is in a recording.

use perf_event_open_sys::bindings as sys;
use rustc_hash::FxHashMap;

use super::error::ImportError;
use super::names::{EventNames, is_guest};
use crate::correlate::LONGEST_TICK_NS;
use crate::perf::data::attr::Attr;
use crate::perf::data::format::Field;
use crate::perf::data::reader::PerfData;
use crate::perf::data::records::{Fault, Item};
use crate::perf::data::tracing::Formats;
use crate::perf::record::{Mmap, Mode, RawRecord, Record, What};
use crate::perf::sample::{Malformed, Sample};
use crate::pipeline::ToldLoss;
use crate::pmu::host::Vendor;
use crate::stream::access::Registers;
use crate::symbolize::mapping::{BuildId, FileFacts};
use crate::units::{Cpu, KtimeNs, Tid};

/// The samples of one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All that could be read.
    pub samples: u64,
    /// Those of which the kernel said that the ip is exact.
    pub exact: u64,
    /// Those of guests.
    pub guest: u64,
    /// Those without a time.
    pub untimed: u64,
    /// Smallest and largest period that they carry.
    pub periods: Option<(u64, u64)>,
}

/// What there is in a recording.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Events by the records' ids, and their names.
    pub names: EventNames,
    /// Formats of tracepoints.
    pub formats: Formats,
    /// By event.
    pub counts: Vec<Counts>,
    /// By event: registers that its samples carry raw.
    pub registers: Vec<Option<Registers>>,
    /// Samples that are shorter than their event says, or name an unknown event.
    pub malformed: u64,
    /// Samples that are longer, and the bytes left over in all of them.
    pub left_over: (u64, u64),
    /// Times of the first and the last record that has one, on the recording's clock.
    pub times: Option<(u64, u64)>,
    /// Processes of threads.
    pub pids: FxHashMap<u32, u32>,
    /// Records of the kernel's that say that a thread leaves or takes a CPU.
    pub switches: u64,
    /// Ranges without full data, by begin.
    pub losses: Vec<ToldLoss>,
    /// Where the kernel lay: the name of a symbol, its address.
    pub kernel: Option<(Vec<u8>, u64)>,
    /// What ended reading too soon.
    pub fault: Option<Fault>,
    /// By thread: how often `sched_switch` took it off a CPU, and how often it brought it on one.
    switched: FxHashMap<u32, (u64, u64)>,
    /// Bytes of formats read.
    tracing: usize,
}

/// Records that one record may say are lost; what says more makes no sense.
const LOST_MAX: u64 = u32::MAX as u64;

/// Since when a counter stands still, and where.
type Stopped = (u64, Option<Cpu>, Option<Tid>);

/// What the losses are made of.
#[derive(Default)]
struct Losses {
    /// Time of the record before, in the file.
    before: u64,
    /// Counters that stand still: since when, where.
    stopped: FxHashMap<(u64, u64), Stopped>,
}

/// Longest time from the first record to the last, ns: nine years. Sums of some such times are numbers still.
const SPAN_MAX: u64 = 1 << 58;

/// ns in a year.
const YEAR: u64 = 365 * 24 * 3600 * 1_000_000_000;

/// Checks that times can be reckoned with. `what`: the files that they are from.
///
/// # Errors
/// If they reach over more than nine years.
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

/// Reads a recording from begin to end; `data` knows all that it says of itself afterwards.
///
/// Cost: as reading the file. Memory: by the number of threads and of losses.
///
/// # Errors
/// If its events can't be told apart.
pub fn survey(data: &mut PerfData) -> Result<Survey, ImportError> {
    let mut survey = Survey::default();
    let mut losses = Losses::default();
    // Piped files say what their records mean as they go on.
    let mut known = usize::MAX;
    let mut records = data.records();
    while let Some(item) = records.next_item() {
        match item {
            Item::Event(raw) => {
                if known != data.events.len() {
                    known = data.events.len();
                    survey.learn(data)?;
                }
                survey.record(data, raw, &mut losses);
            }
            Item::Perf { kind, misc, body } => data.learn(kind, misc, body),
            Item::Round => {}
        }
    }
    survey.fault = records.fault().cloned();
    survey.learn(data)?;
    survey.close(losses);
    let registers = data.events.iter().map(|event| registers(data, &event.attr));
    survey.registers = registers.collect();
    Ok(survey)
}

/// Registers that samples of an event carry raw: those of IBS, also where a precise event of the cores was
/// forwarded to it.
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

/// What a mapping is of, by all that the recording says.
pub(super) fn facts(data: &PerfData, name: &[u8]) -> FileFacts {
    FileFacts {
        // Inodes are those of the machine that recorded.
        identity: None,
        build_id: data.features.build_id_of(name),
    }
}

/// Build id of the kernel that was recorded.
#[must_use]
pub fn kernel_build_id(data: &PerfData) -> Option<BuildId> {
    data.features.build_id_of(b"[kernel.kallsyms]")
}

impl Survey {
    fn learn(&mut self, data: &PerfData) -> Result<(), ImportError> {
        let tracing = data.features.tracing.len();
        if self.tracing != tracing {
            self.tracing = tracing;
            self.formats = Formats::read(&data.features.tracing);
        }
        self.names = EventNames::new(&data.events, &self.formats);
        self.counts.resize(data.events.len(), Counts::default());
        self.names.check(data)
    }

    fn record(&mut self, data: &PerfData, raw: RawRecord<'_>, losses: &mut Losses) {
        match self.names.decode(raw) {
            Ok((event, record)) => self.take(data, (event, raw, &record), losses),
            Err(Malformed::Short) if is_sample(raw) => self.malformed += 1,
            Err(Malformed::LeftOver(bytes)) => {
                self.left_over.0 += 1;
                self.left_over.1 += bytes as u64;
            }
            Err(Malformed::Short) => {}
        }
    }

    fn take(
        &mut self,
        data: &PerfData,
        (event, raw, record): (usize, RawRecord<'_>, &Record<'_>),
        losses: &mut Losses,
    ) {
        let id = &record.id;
        if let Some((pid, tid)) = id.pid_tid
            && tid != u32::MAX
        {
            self.pids.insert(tid, pid);
        }
        match record.what {
            What::Sample(sample) => {
                self.sample(event, raw, &sample);
                self.sched_switch(data, event, &sample);
            }
            What::Lost { records } | What::LostSamples { records } => {
                let time = record.time().unwrap_or(losses.before);
                self.losses.push(ToldLoss {
                    begin: KtimeNs(losses.before.min(time)),
                    end: KtimeNs(time),
                    cpu: cpu(id.cpu),
                    tid: None,
                    records: Some(records.min(LOST_MAX)),
                });
            }
            What::Throttle {
                stopped,
                time,
                id: event,
                stream_id,
            } => {
                let time = id.time.unwrap_or(time);
                let tid = id.pid_tid.map(|(_, tid)| Tid(tid));
                self.throttle(
                    stopped,
                    (event, stream_id),
                    (time, cpu(id.cpu), tid),
                    losses,
                );
            }
            What::Mmap(mmap) if raw.mode() == Mode::Kernel => self.kernel_mapping(&mmap),
            What::Comm { pid, tid, .. } => {
                self.pids.insert(tid, pid);
            }
            What::Fork(task) => {
                self.pids.insert(task.tid, task.pid);
            }
            What::Switch { .. } => self.switches += 1,
            _ => {}
        }
        if let Some(time) = record.time()
            && !matches!(record.what, What::Other { .. })
        {
            losses.before = time;
            self.see(time);
        }
    }

    fn see(&mut self, time: u64) {
        let (first, last) = self.times.get_or_insert((time, time));
        *first = time.min(*first);
        *last = time.max(*last);
    }

    fn sample(&mut self, event: usize, raw: RawRecord<'_>, sample: &Sample<'_>) {
        let Some(counts) = self.counts.get_mut(event) else {
            return;
        };
        counts.samples += 1;
        counts.exact +=
            u64::from(raw.has(perf_event_open_sys::bindings::PERF_RECORD_MISC_EXACT_IP));
        counts.guest += u64::from(is_guest(raw));
        counts.untimed += u64::from(sample.time.unwrap_or(0) == 0);
        if let Some(period) = sample.period {
            let (least, most) = counts.periods.get_or_insert((period, period));
            *least = period.min(*least);
            *most = period.max(*most);
        }
    }

    fn throttle(
        &mut self,
        stopped: bool,
        counter: (u64, u64),
        (time, cpu, tid): Stopped,
        losses: &mut Losses,
    ) {
        let was = if stopped {
            losses.stopped.insert(counter, (time, cpu, tid))
        } else {
            losses.stopped.remove(&counter)
        };
        if let Some((begin, cpu, tid)) = was {
            self.stood_still((begin, time), cpu, tid);
        }
    }

    /// A counter goes on at the next tick, or sooner. That is told only once its thread runs again, but what lies
    /// between is no time in which it could have counted.
    fn stood_still(&mut self, (begin, end): (u64, u64), cpu: Option<Cpu>, tid: Option<Tid>) {
        let tick = begin.saturating_add(LONGEST_TICK_NS.unsigned_abs());
        self.losses.push(ToldLoss {
            begin: KtimeNs(begin),
            end: KtimeNs(end.clamp(begin, tick)),
            cpu,
            tid,
            records: None,
        });
    }

    /// `[kernel.kallsyms]_text`: the symbol that the offset is the address of.
    fn kernel_mapping(&mut self, mmap: &Mmap<'_>) {
        if let Some(symbol) = mmap.name.strip_prefix(b"[kernel.kallsyms]")
            && !symbol.is_empty()
        {
            self.kernel = Some((symbol.to_vec(), mmap.offset));
        }
    }

    fn close(&mut self, losses: Losses) {
        let end = self.times.map_or(0, |(_, last)| last);
        for (begin, cpu, tid) in losses.stopped.into_values() {
            self.stood_still((begin, end), cpu, tid);
        }
        self.losses.sort_by_key(|loss| (loss.begin, loss.end));
    }

    fn sched_switch(&mut self, data: &PerfData, event: usize, sample: &Sample<'_>) {
        let Some(switch) = switch_format(data, &self.formats, event) else {
            return;
        };
        if let Some(switch) = sample.rest().raw.and_then(|raw| switch.read(raw)) {
            self.switched.entry(switch.prev).or_default().0 += 1;
            self.switched.entry(switch.next).or_default().1 += 1;
        }
    }

    /// Whether `sched_switch` was recorded of whole CPUs: an event of a thread sees it leave, not come.
    #[must_use]
    pub fn switches_are_whole(&self) -> bool {
        let known = |tid: &u32| *tid != 0 && self.pids.contains_key(tid);
        let of = self.switched.iter().filter(|(tid, _)| known(tid));
        let (outs, ins) = of.fold((0, 0), |sum, (_, n)| (sum.0 + n.0, sum.1 + n.1));
        // At the ends of the recording some have no partner.
        outs > 0 && ins * 10 >= outs * 9
    }

    /// Samples of all events.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.counts.iter().map(|counts| counts.samples).sum()
    }
}

/// Where a `sched_switch` says what.
pub(super) struct SwitchFormat<'a> {
    prev: &'a Field,
    state: &'a Field,
    next: &'a Field,
}

/// A change of threads on a CPU.
pub(super) struct Switched {
    /// Thread that leaves.
    pub prev: u32,
    /// Its `TASK_*` bits.
    pub state: u32,
    /// Thread that comes.
    pub next: u32,
}

/// The format of an event, if it is `sched_switch`.
pub(super) fn switch_format<'a>(
    data: &PerfData,
    formats: &'a Formats,
    event: usize,
) -> Option<SwitchFormat<'a>> {
    let attr = &data.events.get(event)?.attr;
    let format = formats.get(attr.config).filter(|_| attr.is_tracepoint())?;
    if format.name != "sched_switch" {
        return None;
    }
    Some(SwitchFormat {
        prev: format.field("prev_pid")?,
        state: format.field("prev_state")?,
        next: format.field("next_pid")?,
    })
}

impl SwitchFormat<'_> {
    /// What a sample's raw bytes say.
    pub fn read(&self, raw: &[u8]) -> Option<Switched> {
        Some(Switched {
            prev: self.prev.number(raw)? as u32,
            state: self.state.number(raw)? as u32,
            next: self.next.number(raw)? as u32,
        })
    }
}

/// A CPU as the tables have it.
pub(super) fn cpu(number: Option<u32>) -> Option<Cpu> {
    let cpu = Cpu(u16::try_from(number?).ok()?);
    cpu.known().map(Cpu)
}

const fn is_sample(raw: RawRecord<'_>) -> bool {
    raw.kind == perf_event_open_sys::bindings::PERF_RECORD_SAMPLE
}
