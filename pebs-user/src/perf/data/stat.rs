//! Counts of `perf stat record`, as a table with one row per interval.
//!
//! Counters are written as totals at the end of each interval, one per event, CPU and thread; the count of an interval
//! is the difference. Counts are summed over CPUs and threads like in perf, then scaled to the time in which the event
//! was enabled.
//!
//! Source: tools/lib/perf/include/perf/event.h (records); `process_counter_values` and `perf_stat_process_counter`,
//! tools/perf/util/stat.c.

use std::collections::{BTreeMap, HashMap};

use pebs_mine::csv::Table;
use pebs_mine::intervals::{Cell, Intervals, Value};

use super::reader::PerfData;
use super::records::{Item, user};
use crate::failure::Hint;
use crate::perf::bytes::Bytes;

/// `PERF_EVENT_UPDATE__SCALE`.
const UPDATE_SCALE: u64 = 1;

/// `PERF_STAT_CONFIG_TERM__AGGR_MODE`.
const AGGR_MODE: u64 = 0;

/// Values of `AGGR_MODE` for a series per CPU and for a single series; the meaning of the others differs between
/// versions of perf.
const AGGR_NONE: u64 = 0;
const AGGR_GLOBAL: u64 = 1;

/// CPU number of a counter that follows its thread.
const ANY_CPU: u32 = u32::MAX;

/// Reasons why there are no counts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StatError {
    #[error("{path} has no counts of 'perf stat record'")]
    NoCounts { path: String },
    #[error("{path} ends before its first interval does")]
    NoInterval { path: String },
}

impl Hint for StatError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoCounts { path } => {
                format!("it holds samples: 'pebs-trace import {path}' reads them")
            }
            Self::NoInterval { .. } => {
                "count anew, and end it with Ctrl-C: 'perf stat record -I 100 -o FILE CMD'"
                    .to_owned()
            }
        })
    }
}

/// A counter's totals at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    count: u64,
    enabled_ns: u64,
    running_ns: u64,
}

impl Reading {
    fn since(self, before: Self) -> Self {
        Self {
            count: self.count.wrapping_sub(before.count),
            enabled_ns: self.enabled_ns.wrapping_sub(before.enabled_ns),
            running_ns: self.running_ns.wrapping_sub(before.running_ns),
        }
    }

    fn add(&mut self, more: Self) {
        self.count = self.count.wrapping_add(more.count);
        self.enabled_ns = self.enabled_ns.wrapping_add(more.enabled_ns);
        self.running_ns = self.running_ns.wrapping_add(more.running_ns);
    }

    /// Returns the count of the whole interval, in the event's unit, and the share of the time that was counted.
    fn value(self, unit: f64) -> (Value, f32) {
        let count = self.count as f64 * unit;
        // Never enabled: nothing ran, so nothing happened.
        if self.enabled_ns == 0 || self.running_ns >= self.enabled_ns {
            return (Value::Counted(count), 1.0);
        }
        if self.running_ns == 0 {
            return (Value::NotCounted, 0.0);
        }
        let share = self.running_ns as f64 / self.enabled_ns as f64;
        (Value::Counted(count / share), share as f32)
    }
}

/// A counter: event, CPU and thread. In the order of the columns.
type Counter = (usize, u32, u32);

/// Reads the records of a file in order.
#[derive(Default)]
struct Reader {
    /// Index of events by the ids of their counters.
    events: HashMap<u64, usize>,
    names: Vec<String>,
    /// Unit of each event's counts.
    units: Vec<f64>,
    /// Names and ids of threads, in the order by which counters refer to them.
    threads: Vec<String>,
    aggregated: Option<u64>,
    /// Totals of each counter at the end of the last interval, and now.
    counters: BTreeMap<Counter, (Reading, Reading)>,
    is_supported: Vec<bool>,
    intervals: Intervals,
    rounds: usize,
}

/// Reads the counts of a file.
///
/// # Errors
/// If it has none.
pub(crate) fn read(data: &mut PerfData) -> Result<Table, StatError> {
    let mut reader = Reader::default();
    let mut records = data.records();
    while let Some(item) = records.next_item() {
        let Item::Perf { kind, misc, body } = item else {
            continue;
        };
        data.learn(kind, misc, body);
        // Records that are too short are ignored.
        let _ = reader.take(data, kind, body);
    }
    let path = || data.path().to_owned();
    match (data.has_counts, reader.rounds) {
        (false, _) => return Err(StatError::NoCounts { path: path() }),
        (true, 0) => return Err(StatError::NoInterval { path: path() }),
        (true, _) => {}
    }
    let by_topology = reader.is_by_topology();
    let mut table = reader.intervals.finish();
    if by_topology {
        table
            .notes
            .push("perf summed up over cores or sockets: here each CPU is by itself".to_owned());
    }
    if let Some(fault) = records.fault() {
        table.notes.push(format!(
            "the file is damaged: {} at byte {}; intervals before that are read",
            fault.what, fault.at
        ));
    }
    Ok(table)
}

impl Reader {
    fn take(&mut self, data: &PerfData, kind: u32, body: &[u8]) -> Option<()> {
        let mut bytes = Bytes(body);
        match kind {
            user::THREAD_MAP => self.thread_map(&mut bytes),
            user::STAT_CONFIG => {
                for _ in 0..bytes.u64()? {
                    let (term, value) = (bytes.u64()?, bytes.u64()?);
                    if term == AGGR_MODE {
                        self.aggregated = Some(value);
                    }
                }
                Some(())
            }
            user::EVENT_UPDATE => {
                self.learn_events(data);
                let (what, id) = (bytes.u64()?, bytes.u64()?);
                if what == UPDATE_SCALE {
                    let unit = f64::from_bits(bytes.u64()?);
                    let event = *self.events.get(&id)?;
                    self.units[event] = if unit > 0.0 { unit } else { 1.0 };
                }
                Some(())
            }
            user::STAT => {
                let (id, (cpu, thread)) = (bytes.u64()?, bytes.pair()?);
                let now = Reading {
                    count: bytes.u64()?,
                    enabled_ns: bytes.u64()?,
                    running_ns: bytes.u64()?,
                };
                self.learn_events(data);
                let event = *self.events.get(&id)?;
                self.is_supported[event] = true;
                self.counters.entry((event, cpu, thread)).or_default().1 = now;
                Some(())
            }
            user::STAT_ROUND => {
                let (_kind, time_ns) = (bytes.u64()?, bytes.u64()?);
                self.end_interval(time_ns);
                Some(())
            }
            _ => None,
        }
    }

    /// Updates the events: they may come one by one, and get their names later.
    fn learn_events(&mut self, data: &PerfData) {
        if self.rounds > 0 {
            return;
        }
        let name = |event: &super::attr::Event| {
            let name = event.name.clone();
            name.unwrap_or_else(|| event.attr.plain_name())
        };
        self.names = data.events.iter().map(name).collect();
        self.units.resize(self.names.len(), 1.0);
        self.is_supported.resize(self.names.len(), false);
        for (number, event) in data.events.iter().enumerate() {
            self.events.extend(event.ids.iter().map(|&id| (id, number)));
        }
    }

    /// u64 count; for each thread: u64 tid, 16 bytes of name.
    fn thread_map(&mut self, bytes: &mut Bytes<'_>) -> Option<()> {
        self.threads.clear();
        for _ in 0..bytes.u64()? {
            let tid = bytes.u64()?;
            let name = Bytes(bytes.take(16)?);
            let name = String::from_utf8_lossy(name.text());
            self.threads.push(format!("{name}-{tid}"));
        }
        Some(())
    }

    fn is_by_topology(&self) -> bool {
        let on_cpus = self.counters.keys().any(|&(_, cpu, _)| cpu != ANY_CPU);
        on_cpus
            && self
                .aggregated
                .is_some_and(|it| it != AGGR_NONE && it != AGGR_GLOBAL)
    }

    /// Name of the series that a counter belongs to.
    fn part(&self, (_, cpu, thread): Counter) -> String {
        match self.aggregated {
            None | Some(AGGR_GLOBAL) => String::new(),
            Some(_) if cpu != ANY_CPU => format!("CPU{cpu}"),
            Some(_) => match self.threads.get(thread as usize) {
                Some(name) => name.clone(),
                None => format!("thread {thread}"),
            },
        }
    }

    /// Adds a row to each series.
    fn end_interval(&mut self, time_ns: u64) {
        self.rounds += 1;
        let mut sums: BTreeMap<(String, usize), Reading> = BTreeMap::new();
        for (&counter, (before, now)) in &self.counters {
            let sum = sums.entry((self.part(counter), counter.0)).or_default();
            sum.add(now.since(*before));
        }
        for (before, now) in self.counters.values_mut() {
            *before = *now;
        }
        let mut parts: Vec<String> = sums.keys().map(|it| it.0.clone()).collect();
        parts.dedup();
        let time = Some(time_ns as f64 / 1e9);
        for part in parts {
            for (event, name) in self.names.iter().enumerate() {
                let (value, share) = match sums.get(&(part.clone(), event)) {
                    Some(sum) => sum.value(self.units[event]),
                    None if self.is_supported[event] => (Value::NotCounted, 0.0),
                    None => (Value::NotSupported, 0.0),
                };
                self.intervals.add(&Cell {
                    part: &part,
                    time,
                    event: name,
                    value,
                    share,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
