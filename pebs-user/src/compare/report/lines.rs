//! Cache lines that threads share: `report --by line`.
//!
//! Two accesses conflict if two threads make them to one line and one of them stores: caches then pass the line to and fro.
//! If both are to the same bytes, the threads share data (true sharing); if not, they share only the line (false sharing),
//! and would not meet on lines of their own. [`SharedLine::same_bytes`] is the share of the pairs of conflicting accesses
//! that are to the same bytes: with a accesses of a thread and b of another there are a x b pairs.
//!
//! *Worked number*: one thread stores 900 times to bytes 0 to 7 and 100 times to bytes 8 to 15, another 500 times to bytes 8
//! to 15: 100 x 500 of 1,000 x 500 pairs, 10 %.
//!
//! A line is listed if at least [`MIN_SAMPLES`] accesses can have met others: those of all its threads but the one with the
//! most samples, as far as threads used the line at the same time. So memory that a thread hands back and another takes, or
//! that one thread sets up for another, is not.
//!
//! A sample stands for as many events as its reset value R; as if each of them were sampled with the chance 1/R, the variance
//! of n samples is n R (R - 1): 100 samples every 1,000 stand for 100,000 +- 9,995 events, and a count of each event is exact.
//! A line can have been passed on at most twice for each of [`SharedLine::contended`].
//!
//! Source: Sasongko et al. 2023, section V (accesses of several threads to one line, one of them a store).

use arrow_array::RecordBatch;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Serialize, Serializer};

use super::classes::VisitClasses;
use super::section::{Runs, Section};
use crate::compare::chance::wilson;
use crate::compare::classes::Class;
use crate::compare::names::{FunctionName, Names};
use crate::compare::pool::MIN_SAMPLES;
use crate::compare::probe;
use crate::compare::report::passes::{first_pass, gather};
use crate::compare::report::request::{ReportError, ReportOptions};
use crate::compare::waits::States;
use crate::store::reader::{ReadError, Trace};
use crate::store::run::EventInfo;
use crate::store::schema::Table;
use crate::store::view::{Select as _, View as _, columns};
use crate::units::{EventId, Ip};

/// Version of the JSON keys; grows when one changes its meaning or goes away.
pub(crate) const LINE_REPORT_VERSION: u32 = 1;

/// Size of a cache line where the trace does not have it: that of all x86 CPUs of today.
const LINE_BYTES: u32 = 64;

/// Longest access that is assumed where its size is unknown: that of a general-purpose register.
const LONGEST_BYTES: u64 = 8;

/// Share of the conflicts below which they are neglected.
const FEW: f64 = 0.1;

columns! {
    struct Accesses of memory {
        time_ns, visit_id, function_id, tid, event, events, op, snoop, addr, phys_addr, pid, bytes, data_symbol,
        data_object, data_offset
    }
}

columns! {
    struct Items of visits { visit_id, item_id, probe_id }
}

/// A report of the cache lines that threads share.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LineReport {
    /// [`LINE_REPORT_VERSION`].
    pub line_report_version: u32,
    /// Path of the trace, as given.
    pub trace: String,
    /// Size of a cache line.
    pub line_bytes: u32,
    /// Whether the trace has it; else it is assumed.
    pub line_bytes_known: bool,
    /// Least number of accesses of other threads than the one with the most.
    pub min_samples: u64,
    /// Events whose samples have memory accesses; empty if there are none.
    pub events: Vec<EventInfo>,
    /// Samples with any data on their access.
    pub samples: u64,
    /// Loads and stores with address, thread and process; no others are used.
    pub used: u64,
    /// Those without an address, thread or process.
    pub without_address: u64,
    /// Those with an address that are not known to be loads or stores.
    pub without_op: u64,
    /// The most contended first.
    pub lines: Vec<SharedLine>,
}

/// A number and its estimate. Events are null where the kernel varied the reset value and samples do not have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Count {
    pub samples: u64,
    /// Events that they stand for; null below [`MIN_SAMPLES`], too.
    pub events: Option<f64>,
    /// Standard error of `events`.
    pub events_stderr: Option<f64>,
}

/// Overlap of the bytes that the threads of a line access; decided at 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sharing {
    /// The same ones: so are more than a tenth of the conflicts, and not a tenth is known to be to different ones.
    True,
    /// Different ones: so are more than nine tenths of the conflicts.
    False,
    /// More than a tenth of the conflicts is to the same ones, and more than a tenth to different ones.
    Both,
    /// Too few samples to tell, or sizes are unknown.
    Unknown,
}

/// A cache line that several threads use.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SharedLine {
    /// Its address in the process; of processes that share memory in the first of them.
    #[serde(serialize_with = "hex")]
    pub address: u64,
    /// The process; null: the kernel's memory. Of several see `threads`.
    pub pid: Option<u32>,
    /// Its physical address; null: not in the samples, or it moved.
    #[serde(serialize_with = "maybe_hex")]
    pub physical: Option<u64>,
    /// Data at the place with the most accesses; null: not known.
    pub data: Option<Data>,
    pub sharing: Sharing,
    /// Share of conflicting pairs of accesses that are to the same bytes, as far as sizes are known: at least, at most.
    pub same_bytes: [f64; 2],
    pub all: Count,
    /// Accesses of all threads that used it at the same time as others but the one with the most.
    pub contended: Count,
    /// Accesses that found the line modified in another cache; null: no sample of the line has a snoop.
    pub hit_modified: Option<Count>,
    /// The most accesses first.
    pub threads: Vec<Thread>,
}

/// Data at an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) struct Data {
    /// The variable; null: not known.
    pub symbol: Option<String>,
    /// Its binary, the mapped file, `[heap]` or `[stack]`; null: memory without a name.
    pub object: Option<String>,
    /// Offset from the begin of the variable, without one from that of the mapping.
    pub offset: u64,
}

/// A thread that uses a line.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Thread {
    /// Process; null in traces without it.
    pub pid: Option<u32>,
    pub tid: u32,
    pub all: Count,
    /// Samples that load, and samples that store; some do both.
    pub loads: u64,
    pub stores: u64,
    /// Whether another thread used the line at the same time.
    pub at_once: bool,
    /// Items in which it did.
    pub items: u64,
    /// Slow ones of them, as far as they are counted.
    pub slow_items: u64,
    /// The most events first.
    pub accesses: Vec<Access>,
}

/// Accesses of the same function, instruction and operation.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Access {
    pub function: FunctionName,
    /// `load`, `store` or `load+store`.
    pub op: &'static str,
    /// First byte within the line.
    pub offset: u32,
    /// Number of bytes; null: not known.
    pub bytes: Option<u32>,
    /// Data there; null: not known.
    pub data: Option<Data>,
    pub all: Count,
    /// Those that found the line modified in another cache.
    pub hit_modified: u64,
    /// Items in which it did so.
    pub items: u64,
    /// Slow ones of them, as far as they are counted.
    pub slow_items: u64,
}

fn hex<S: Serializer>(address: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{address:#x}"))
}

fn maybe_hex<S: Serializer>(address: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    match address {
        Some(address) => hex(address, to),
        None => to.serialize_none(),
    }
}

/// Makes the report of the shared lines of a trace.
///
/// Cost: reads `memory` twice, `visits` three times. Memory: 40 bytes a line that was sampled, and more for those of
/// several threads.
///
/// # Errors
/// If the trace can't be read, or has no such probe.
pub(crate) fn build(trace: &Trace, options: &ReportOptions) -> Result<LineReport, ReportError> {
    probe::check(trace, options.probe)?;
    let line_bytes = trace.info.host.line_bytes;
    let watches = trace.info.events.iter().filter(|it| it.is_breakpoint());
    let mut reading = Reading {
        line_bytes: u64::from(line_bytes.unwrap_or(LINE_BYTES)),
        watches: watches.map(|it| it.id).collect(),
        ..Reading::default()
    };
    if trace.rows(Table::Memory)? > 0 {
        for batch in Accesses::scan(trace)? {
            reading.look(&batch?)?;
        }
        let mut lines = reading.candidates();
        for batch in Accesses::scan(trace)? {
            reading.add(&batch?, &mut lines)?;
        }
        lines.all.retain_mut(Line::is_shared);
        return finish(trace, options, (reading, line_bytes), lines.all);
    }
    Ok(report(trace, (&reading, line_bytes), Vec::new()))
}

fn report(
    trace: &Trace,
    (reading, line_bytes): (&Reading, Option<u32>),
    lines: Vec<SharedLine>,
) -> LineReport {
    let events = trace.info.events.iter();
    let events = events.filter(|event| reading.events.contains(&event.id));
    LineReport {
        line_report_version: LINE_REPORT_VERSION,
        trace: trace.dir.display().to_string(),
        line_bytes: reading.line_bytes as u32,
        line_bytes_known: line_bytes.is_some(),
        min_samples: MIN_SAMPLES,
        events: events.cloned().collect(),
        samples: reading.samples,
        used: reading.used,
        without_address: reading.without_address,
        without_op: reading.without_op,
        lines,
    }
}

/// Address of a line in an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Place {
    /// `None`: the kernel's.
    pid: Option<u32>,
    address: u64,
}

/// Physical addresses of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Physical {
    Unknown,
    One(u64),
    /// It moved, so that they say nothing about who shares it.
    Several,
}

impl Physical {
    fn add(&mut self, address: u64) {
        *self = match *self {
            Self::Unknown => Self::One(address),
            Self::One(same) if same == address => Self::One(same),
            _ => Self::Several,
        };
    }
}

/// Findings of the first pass about a line.
#[derive(Clone, Copy, Debug)]
struct Seen {
    tid: u32,
    /// Whether another thread uses it, too.
    several: bool,
    stored: bool,
    physical: Physical,
}

/// One access that is used.
struct Used {
    place: Place,
    offset: u32,
    physical: Option<u64>,
    tid: u32,
    op: Op,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Op {
    Load,
    Store,
    Both,
}

impl Op {
    fn of(name: &str) -> Option<Self> {
        match name {
            "load" => Some(Self::Load),
            "store" => Some(Self::Store),
            "load+store" => Some(Self::Both),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Store => "store",
            Self::Both => "load+store",
        }
    }

    fn stores(self) -> bool {
        self != Self::Load
    }
}

#[derive(Default)]
struct Reading {
    line_bytes: u64,
    /// Events that are data breakpoints.
    watches: Vec<EventId>,
    /// Events with accesses.
    events: FxHashSet<EventId>,
    samples: u64,
    used: u64,
    without_address: u64,
    without_op: u64,
    seen: FxHashMap<Place, Seen>,
}

/// Lines of several threads, one of which stores.
struct Candidates {
    all: Vec<Line>,
    by_place: FxHashMap<Place, usize>,
}

impl Reading {
    /// The access of a row.
    ///
    /// # Errors
    /// If it is not used: whether it lacks an address, a thread or a process, else the operation.
    fn row(&self, accesses: &Accesses<'_>, row: usize) -> Result<Used, bool> {
        let addr = accesses.addr.get(row).ok_or(true)?;
        let tid = accesses.tid.get(row).ok_or(true)?;
        let pid = accesses.pid.get(row);
        // The same address in another process is another one.
        if pid.is_none() && !Ip(addr).is_kernel() {
            return Err(true);
        }
        let op = accesses.op.get(row).and_then(Op::of).ok_or(false)?;
        let offset = addr % self.line_bytes;
        let physical = accesses.phys_addr.get(row);
        Ok(Used {
            place: Place {
                pid: pid.filter(|_| !Ip(addr).is_kernel()),
                address: addr - offset,
            },
            offset: offset as u32,
            physical: physical.map(|it| it - it % self.line_bytes),
            tid,
            op,
        })
    }

    /// First pass.
    fn look(&mut self, batch: &RecordBatch) -> Result<(), ReadError> {
        let accesses = Accesses::of(batch)?;
        for row in 0..batch.num_rows() {
            self.samples += 1;
            self.events.insert(EventId(accesses.event[row]));
            let used = match self.row(&accesses, row) {
                Ok(used) => used,
                Err(true) => {
                    self.without_address += 1;
                    continue;
                }
                Err(false) => {
                    self.without_op += 1;
                    continue;
                }
            };
            self.used += 1;
            let seen = self.seen.entry(used.place).or_insert(Seen {
                tid: used.tid,
                several: false,
                stored: false,
                physical: Physical::Unknown,
            });
            seen.several |= seen.tid != used.tid;
            seen.stored |= used.op.stores();
            if let Some(physical) = used.physical {
                seen.physical.add(physical);
            }
        }
        Ok(())
    }

    /// The lines to look at more closely: places with the same memory are one.
    fn candidates(&mut self) -> Candidates {
        let mut by_physical: FxHashMap<u64, Vec<Place>> = FxHashMap::default();
        let mut groups: Vec<Vec<Place>> = Vec::new();
        for (place, seen) in &self.seen {
            match seen.physical {
                Physical::One(physical) => by_physical.entry(physical).or_default().push(*place),
                _ if seen.several && seen.stored => groups.push(vec![*place]),
                _ => {}
            }
        }
        groups.extend(by_physical.into_values());
        let (mut all, mut by_place) = (Vec::new(), FxHashMap::default());
        for mut places in groups {
            places.sort_unstable();
            let Some(first) = places.first() else {
                continue;
            };
            let seen = |place: &Place| self.seen[place];
            let tid = seen(first).tid;
            let several = places
                .iter()
                .any(|it| seen(it).several || seen(it).tid != tid);
            if !several || !places.iter().any(|it| seen(it).stored) {
                continue;
            }
            all.push(Line {
                place: *first,
                physical: match seen(first).physical {
                    Physical::One(physical) => Some(physical),
                    _ => None,
                },
                threads: FxHashMap::default(),
            });
            by_place.extend(places.into_iter().map(|place| (place, all.len() - 1)));
        }
        self.seen = FxHashMap::default();
        Candidates { all, by_place }
    }

    /// Second pass.
    fn add(&self, batch: &RecordBatch, lines: &mut Candidates) -> Result<(), ReadError> {
        let accesses = Accesses::of(batch)?;
        for row in 0..batch.num_rows() {
            let Ok(used) = self.row(&accesses, row) else {
                continue;
            };
            let Some(line) = lines.by_place.get(&used.place) else {
                continue;
            };
            let snoop = accesses.snoop.get(row);
            let event = EventId(accesses.event[row]);
            let pid = accesses.pid.get(row);
            let threads = &mut lines.all[*line].threads;
            let thread = threads.entry((pid, used.tid)).or_default();
            let time = accesses.time_ns[row];
            thread.span = match thread.span {
                Some((first, last)) => Some((first.min(time), last.max(time))),
                None => Some((time, time)),
            };
            thread.has_snoop |= snoop.is_some();
            let key = Key {
                function: accesses.function_id[row],
                op: used.op,
                offset: used.offset,
                bytes: accesses.bytes.get(row),
                watched: self.watches.contains(&event),
            };
            let sums = thread.accesses.entry(key).or_default();
            sums.visits.extend(accesses.visit_id.get(row));
            let events = accesses.events.get(row);
            sums.all.add(events);
            if snoop == Some("HitM") {
                sums.hit_modified.add(events);
            }
            if sums.data.is_none() {
                sums.data = accesses.data_offset.get(row).map(|offset| Data {
                    symbol: accesses.data_symbol.get(row).map(str::to_owned),
                    object: accesses.data_object.get(row).map(str::to_owned),
                    offset,
                });
            }
        }
        Ok(())
    }
}

/// Sum of samples and what they stand for.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    samples: u64,
    events: f64,
    variance: f64,
    /// Whether a sample lacks the number of events it stands for.
    unknown: bool,
}

impl Sum {
    fn add(&mut self, events: Option<u64>) {
        self.samples += 1;
        match events {
            Some(events) => {
                self.events += events as f64;
                self.variance += events as f64 * events.saturating_sub(1) as f64;
            }
            None => self.unknown = true,
        }
    }

    fn of(sums: impl Iterator<Item = Self>) -> Self {
        sums.fold(Self::default(), |all, one| Self {
            samples: all.samples + one.samples,
            events: all.events + one.events,
            variance: all.variance + one.variance,
            unknown: all.unknown | one.unknown,
        })
    }

    fn count(&self) -> Count {
        let known = !self.unknown && self.samples >= MIN_SAMPLES;
        Count {
            samples: self.samples,
            events: known.then_some(self.events),
            events_stderr: known.then(|| self.variance.sqrt()),
        }
    }
}

/// What the accesses of a thread are summed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    function: u32,
    op: Op,
    offset: u32,
    bytes: Option<u32>,
    /// Whether the address is that which is watched.
    watched: bool,
}

impl Key {
    /// Bytes that are certainly accessed, and those that may be, from the first up to the end.
    fn extent(&self) -> [(u64, u64); 2] {
        let first = u64::from(self.offset);
        match self.bytes {
            Some(bytes) => [(first, first + u64::from(bytes)); 2],
            // A part of what is watched, or more.
            None if self.watched => [(0, 0), (0, u64::MAX)],
            None => [(first, first + 1), (first, first + LONGEST_BYTES)],
        }
    }

    /// Whether it accesses bytes that `other` accesses; `None`: not known.
    fn meets(&self, other: &Self) -> Option<bool> {
        let [(certain, possible), (others, others_possible)] =
            [self.extent(), other.extent()].map(|[certain, possible]| (certain, possible));
        let overlap = |a: (u64, u64), b: (u64, u64)| a.0.max(b.0) < a.1.min(b.1);
        match (overlap(certain, others), overlap(possible, others_possible)) {
            (true, _) => Some(true),
            (false, false) => Some(false),
            (false, true) => None,
        }
    }
}

#[derive(Debug, Default)]
struct AccessSums {
    all: Sum,
    hit_modified: Sum,
    data: Option<Data>,
    visits: FxHashSet<u64>,
}

#[derive(Debug, Default)]
struct ThreadSums {
    accesses: FxHashMap<Key, AccessSums>,
    /// First and last access.
    span: Option<(i64, i64)>,
    has_snoop: bool,
    /// Whether another thread used the line meanwhile.
    at_once: bool,
}

impl ThreadSums {
    fn sum(&self) -> Sum {
        Sum::of(self.accesses.values().map(|it| it.all))
    }

    fn visits(&self) -> impl Iterator<Item = &u64> {
        self.accesses.values().flat_map(|it| &it.visits)
    }
}

#[derive(Debug)]
struct Line {
    place: Place,
    physical: Option<u64>,
    /// By process and thread.
    threads: FxHashMap<(Option<u32>, u32), ThreadSums>,
}

impl Line {
    /// Whether enough of its accesses may have met others. Notes which threads used it at the same time.
    fn is_shared(&mut self) -> bool {
        let mut spans: Vec<_> = self
            .threads
            .iter()
            .filter_map(|(key, it)| Some((it.span?, *key)))
            .collect();
        spans.sort_unstable();
        // The earlier thread that used it last.
        let mut latest: Option<(i64, (Option<u32>, u32))> = None;
        let mut at_once = FxHashSet::default();
        for ((first, last), key) in spans {
            if let Some((end, other)) = latest.filter(|(end, _)| first <= *end) {
                at_once.extend([key, other]);
                latest = Some(if last > end {
                    (last, key)
                } else {
                    (end, other)
                });
            } else {
                latest = Some((last, key));
            }
        }
        for (key, thread) in &mut self.threads {
            thread.at_once = at_once.contains(key);
        }
        let stores = self
            .met()
            .any(|it| it.accesses.keys().any(|key| key.op.stores()));
        stores && self.contended().samples >= MIN_SAMPLES
    }

    /// Threads that used it at the same time as others.
    fn met(&self) -> impl Iterator<Item = &ThreadSums> {
        self.threads.values().filter(|it| it.at_once)
    }

    /// Accesses of all threads that met but the one with the most.
    fn contended(&self) -> Sum {
        let mut sums: Vec<Sum> = self.met().map(ThreadSums::sum).collect();
        sums.sort_by(|a, b| {
            a.events
                .total_cmp(&b.events)
                .then(a.samples.cmp(&b.samples))
        });
        sums.pop();
        Sum::of(sums.into_iter())
    }

    /// Of the pairs of conflicting accesses, the share to the same bytes: at least, and at most.
    fn same_bytes(&self) -> [f64; 2] {
        /// Accesses to the same bytes with the same effect, by thread.
        type Alike = FxHashMap<Key, FxHashMap<usize, f64>>;
        let mut alike = Alike::default();
        for (n, thread) in self.met().enumerate() {
            for (key, sums) in &thread.accesses {
                let key = Key {
                    function: 0,
                    ..*key
                };
                *alike.entry(key).or_default().entry(n).or_default() += sums.all.samples as f64;
            }
        }
        let alike: Vec<(Key, FxHashMap<usize, f64>)> = alike.into_iter().collect();
        let (mut all, mut same, mut unknown) = (0.0, 0.0, 0.0);
        for (at, (a, by_a)) in alike.iter().enumerate() {
            for (b, by_b) in &alike[at..] {
                if !a.op.stores() && !b.op.stores() {
                    continue;
                }
                let whole = by_a.values().sum::<f64>() * by_b.values().sum::<f64>();
                let own = by_a
                    .iter()
                    .map(|(n, count)| count * by_b.get(n).unwrap_or(&0.0));
                // The same sums have each pair twice.
                let twice = if a == b { 2.0 } else { 1.0 };
                let pairs = (whole - own.sum::<f64>()) / twice;
                all += pairs;
                match a.meets(b) {
                    Some(true) => same += pairs,
                    Some(false) => {}
                    None => unknown += pairs,
                }
            }
        }
        if all > 0.0 {
            [same / all, (same + unknown) / all]
        } else {
            [0.0, 1.0]
        }
    }
}

/// Decides the overlap from the least and most share of the same bytes, known from so many accesses.
fn sharing([least, most]: [f64; 2], samples: u64) -> Sharing {
    let [low, _] = wilson(least, samples);
    let [_, high] = wilson(most, samples);
    match (low > FEW, high) {
        (_, high) if high < FEW => Sharing::False,
        (true, high) if high < 1.0 - FEW => Sharing::Both,
        (true, _) => Sharing::True,
        // Perhaps none, perhaps more than a few.
        (false, _) => Sharing::Unknown,
    }
}

/// Items of visits.
type ItemOf = FxHashMap<u64, (u16, u64)>;

fn items(trace: &Trace, lines: &[Line]) -> Result<ItemOf, ReadError> {
    let threads = lines.iter().flat_map(|line| line.threads.values());
    let wanted: FxHashSet<u64> = threads.flat_map(ThreadSums::visits).copied().collect();
    let mut found = ItemOf::default();
    if wanted.is_empty() {
        return Ok(found);
    }
    for batch in Items::scan(trace)? {
        let batch = batch?;
        let visits = Items::of(&batch)?;
        for (row, visit) in visits.visit_id.iter().enumerate() {
            if wanted.contains(visit) {
                found.insert(*visit, (visits.probe_id[row], visits.item_id[row]));
            }
        }
    }
    Ok(found)
}

fn finish(
    trace: &Trace,
    options: &ReportOptions,
    (reading, line_bytes): (Reading, Option<u32>),
    mut lines: Vec<Line>,
) -> Result<LineReport, ReportError> {
    let runs = Runs::of(trace)?;
    let sections = first_pass(trace, options)?
        .map(|probe, tally| Section::new(probe, tally, &trace.info.columns, options, &runs));
    let gathered = gather(trace, options, sections, &mut States::default())?;
    let items = items(trace, &lines)?;
    if let Some(only) = options.probe {
        let is_in = |visit: &u64| items.get(visit).is_some_and(|(probe, _)| *probe == only.0);
        lines.retain(|line| line.threads.values().any(|it| it.visits().any(is_in)));
    }
    let keys = lines.iter().flat_map(|line| line.threads.values());
    let functions = keys.flat_map(|it| it.accesses.keys().map(|key| key.function));
    let names = Names::of(trace, functions)?;
    let naming = Naming {
        names,
        items,
        classes: gathered.classes,
    };
    let mut shown: Vec<SharedLine> = lines.iter().map(|line| naming.line(line)).collect();
    let rank = |line: &SharedLine| {
        let events = |it: &Count| it.events.unwrap_or(it.samples as f64);
        let modified = line.hit_modified.as_ref().map_or(0.0, events);
        [modified, events(&line.contended), events(&line.all)]
    };
    shown.sort_by(|a, b| {
        let by_rank = rank(b)
            .partial_cmp(&rank(a))
            .unwrap_or(std::cmp::Ordering::Equal);
        by_rank.then((a.pid, a.address).cmp(&(b.pid, b.address)))
    });
    Ok(report(trace, (&reading, line_bytes), shown))
}

/// Names, items and classes that the parts of the report need.
struct Naming {
    names: Names,
    items: ItemOf,
    classes: VisitClasses,
}

impl Naming {
    fn line(&self, line: &Line) -> SharedLine {
        let mut threads: Vec<Thread> = line
            .threads
            .iter()
            .map(|(key, sums)| self.thread(*key, sums))
            .collect();
        threads.sort_by(|a, b| {
            let most = b.all.samples.cmp(&a.all.samples);
            most.then((a.pid, a.tid).cmp(&(b.pid, b.tid)))
        });
        let all = Sum::of(line.threads.values().map(ThreadSums::sum));
        let contended = line.contended();
        let same_bytes = line.same_bytes();
        let sums = || line.threads.values().flat_map(|it| it.accesses.values());
        let has_snoop = line.threads.values().any(|it| it.has_snoop);
        let accesses = threads.iter().flat_map(|it| &it.accesses);
        let most = accesses.max_by(|a, b| {
            let samples = a.all.samples.cmp(&b.all.samples);
            samples.then(b.offset.cmp(&a.offset))
        });
        SharedLine {
            address: line.place.address,
            pid: line.place.pid,
            physical: line.physical,
            data: most.and_then(|it| it.data.clone()),
            sharing: sharing(same_bytes, contended.samples),
            same_bytes,
            all: all.count(),
            contended: contended.count(),
            hit_modified: has_snoop.then(|| Sum::of(sums().map(|it| it.hit_modified)).count()),
            threads,
        }
    }

    fn thread(&self, (pid, tid): (Option<u32>, u32), sums: &ThreadSums) -> Thread {
        let mut accesses: Vec<(&Key, &AccessSums)> = sums.accesses.iter().collect();
        accesses.sort_by(|(key_a, a), (key_b, b)| {
            let most = b.all.samples.cmp(&a.all.samples);
            most.then(key_a.cmp(key_b))
        });
        let samples = |wanted: fn(Op) -> bool| {
            let of = accesses.iter().filter(|(key, _)| wanted(key.op));
            of.map(|(_, sums)| sums.all.samples).sum()
        };
        Thread {
            pid,
            tid,
            all: sums.sum().count(),
            loads: samples(|op| op != Op::Store),
            stores: samples(Op::stores),
            at_once: sums.at_once,
            items: self.count(sums.visits()),
            slow_items: self.slow(sums.visits()),
            accesses: accesses
                .into_iter()
                .map(|(key, sums)| Access {
                    function: self.names.get(Some(key.function)),
                    op: key.op.name(),
                    offset: key.offset,
                    bytes: key.bytes,
                    data: sums.data.clone(),
                    all: sums.all.count(),
                    hit_modified: sums.hit_modified.samples,
                    items: self.count(sums.visits.iter()),
                    slow_items: self.slow(sums.visits.iter()),
                })
                .collect(),
        }
    }

    /// Number of different items of slow visits.
    fn slow<'a>(&self, visits: impl Iterator<Item = &'a u64>) -> u64 {
        let is_slow = |visit: &&u64| {
            let class = self.classes.get(**visit);
            class.is_some_and(|it| it.class == Class::Slow)
        };
        self.count(visits.filter(is_slow))
    }

    /// Number of different items of visits.
    fn count<'a>(&self, visits: impl Iterator<Item = &'a u64>) -> u64 {
        let items = visits.filter_map(|visit| self.items.get(visit));
        items.collect::<FxHashSet<_>>().len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wilson's interval decides: nothing is said of few accesses, and nothing where sizes are unknown.
    #[test]
    fn what_shares_say() {
        assert_eq!(sharing([0.0, 0.0], 10), Sharing::Unknown);
        assert_eq!(sharing([0.0, 0.0], 40), Sharing::False);
        assert_eq!(sharing([1.0, 1.0], 10), Sharing::True);
        assert_eq!(sharing([0.1, 0.1], 20), Sharing::Unknown);
        assert_eq!(sharing([0.5, 0.5], 40), Sharing::Both);
        assert_eq!(sharing([0.0, 1.0], 1000), Sharing::Unknown);
        assert_eq!(sharing([0.02, 0.02], 1000), Sharing::False);
        assert_eq!(sharing([0.97, 0.97], 1000), Sharing::True);
    }

    /// Bytes overlap, are apart, or may overlap where the size of one is unknown; a watched address alone says nothing.
    #[test]
    fn extents() {
        let key = |offset, bytes, watched| Key {
            function: 1,
            op: Op::Store,
            offset,
            bytes,
            watched,
        };
        let meets = |a: Key, b: Key| {
            assert_eq!(a.meets(&b), b.meets(&a));
            a.meets(&b)
        };
        assert_eq!(
            meets(key(0, Some(8), false), key(7, Some(1), false)),
            Some(true)
        );
        assert_eq!(
            meets(key(0, Some(8), false), key(8, Some(8), false)),
            Some(false)
        );
        assert_eq!(meets(key(0, None, false), key(0, None, false)), Some(true));
        assert_eq!(meets(key(0, None, false), key(4, None, false)), None);
        assert_eq!(meets(key(0, None, false), key(8, None, false)), Some(false));
        for (offset, bytes) in [(0, Some(8)), (32, Some(8)), (0, None)] {
            assert_eq!(meets(key(0, None, true), key(offset, bytes, true)), None);
        }
    }
}
