//! Counts of a trace (`--count`) as a table to mine: a row for each visit, its net time as the outcome; or a row for each interval of a
//! thread (`--count-interval`), its time on the CPU as the outcome.

use std::collections::BTreeMap;

use pebs_mine::csv::{Table, Words};
use pebs_mine::intervals::{Cell, Intervals, Value};
use pebs_mine::series::{Event, Series};
use rustc_hash::{FxHashMap, FxHashSet};

use super::super::counted::{VisitCount, each};
use crate::store::args::{ArgRef, ArgView};
use crate::store::reader::{ReadError, Trace};
use crate::store::schema::{ArgColumn, count_state};
use crate::store::view::{Select as _, View as _, columns};

/// Column of the outcome: a visit's duration without pebs-trace's own time.
const OUTCOME: &str = "net_ns";

columns! {
    struct Columns of visits { visit_id, item_id, probe_id, duration_ns, net_ns }
}

/// The column with the time on the CPU in an interval.
const ONCPU: &str = "oncpu_ns";

columns! {
    struct IntervalColumns of interval_counts { tid, begin_ns, event, count, enabled_ns, running_ns }
}

/// A visit that has ended.
struct Row {
    visit_id: u64,
    item_id: u64,
    probe_id: u16,
    ns: i64,
    /// Its arguments; empty: null.
    words: Vec<String>,
}

/// Why a trace has nothing to mine.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It can't be read.
    Read(#[from] ReadError),
    /// The trace has no counts of visits.
    NotCounted(String),
    /// The trace has no counts of intervals.
    NoIntervals(String),
}

/// Reads the visits of the probe that has most of them, with the counts of each, and remarks on them; of arguments those
/// that are asked for.
///
/// # Errors
/// If the trace can't be read, or has no counts.
pub fn read(trace: &Trace, arguments: &[&str]) -> Result<(Table, Vec<Remark>), TraceError> {
    let events = &trace.info.counted;
    if events.is_empty() {
        return Err(TraceError::NotCounted(trace.dir.display().to_string()));
    }
    let wanted: Vec<&ArgColumn> = (trace.info.columns.iter())
        .filter(|it| arguments.contains(&it.name.as_str()))
        .collect();
    let (rows, mut notes) = rows(trace, &wanted)?;
    let places: FxHashMap<u64, usize> = rows.iter().map(|row| row.visit_id).zip(0..).collect();
    let mut counts = vec![vec![f64::NAN; rows.len()]; events.len()];
    let (mut known, mut scaled) = (0_u64, 0_u64);
    each(trace, |count: &VisitCount<'_>| {
        let place = places.get(&count.visit_id);
        if let (Some(&at), Some(value)) = (place, count.count)
            && let Some(of) = counts.get_mut(usize::from(count.event))
        {
            of[at] = value as f64;
            known += 1;
            scaled += u64::from(count.state == count_state::SCALED);
        }
    })?;
    if scaled > 0 {
        let share = scaled as f64 / known as f64;
        notes.push(Remark::Scaled { share });
    }
    let event = |name: &str, counts| Event {
        name: name.to_owned(),
        counts,
        running: Vec::new(),
    };
    let mut columns = vec![event(
        OUTCOME,
        rows.iter().map(|row| row.ns as f64).collect(),
    )];
    columns.extend(
        events
            .iter()
            .zip(counts)
            .map(|(of, it)| event(&of.name, it)),
    );
    let mut series = Series::of(columns);
    let ids: FxHashSet<u64> = rows.iter().map(|row| row.item_id).collect();
    series.labels = if ids.len() == rows.len() {
        rows.iter().map(|row| row.item_id.to_string()).collect()
    } else {
        notes.push(Remark::SharedIds);
        rows.iter().map(|row| row.visit_id.to_string()).collect()
    };
    let words = wanted.iter().enumerate().map(|(at, column)| Words {
        name: column.name.clone(),
        values: rows.iter().map(|row| row.words[at].clone()).collect(),
    });
    let table = Table {
        words: words.collect(),
        series,
        ..Table::default()
    };
    Ok((table, notes))
}

/// Reads the counts of each thread in each interval in which it was on the CPU.
///
/// # Errors
/// If the trace can't be read, or has no counts of intervals.
pub fn intervals(trace: &Trace) -> Result<Table, TraceError> {
    let names = &trace.info.counted;
    // By thread and begin: for each event its value and the share of the time in which it was counted, and the time on
    // the CPU.
    type Row = (Vec<(Value, f32)>, Option<i64>);
    let mut rows: BTreeMap<(u32, i64), Row> = BTreeMap::new();
    for batch in IntervalColumns::scan(trace)? {
        let batch = batch?;
        let columns = IntervalColumns::of(&batch)?;
        for row in 0..batch.num_rows() {
            let key = (columns.tid[row], columns.begin_ns[row]);
            let new = || (vec![(Value::NotCounted, 0.0); names.len()], None);
            let (cells, oncpu_ns) = rows.entry(key).or_insert_with(new);
            let (enabled_ns, running_ns) =
                (columns.enabled_ns.get(row), columns.running_ns.get(row));
            *oncpu_ns = (*oncpu_ns).max(enabled_ns);
            if let (Some(cell), Some(count)) = (
                cells.get_mut(usize::from(columns.event[row])),
                columns.count.get(row),
            ) {
                let share = match (running_ns, enabled_ns) {
                    (Some(running), Some(enabled)) if running < enabled => {
                        running as f64 / enabled as f64
                    }
                    _ => 1.0,
                };
                *cell = (Value::Counted(count as f64), share as f32);
            }
        }
    }
    if rows.is_empty() {
        return Err(TraceError::NoIntervals(trace.dir.display().to_string()));
    }
    let mut intervals = Intervals::default();
    for ((tid, begin_ns), (cells, oncpu_ns)) in rows {
        let part = format!("thread {tid}");
        let time = Some(begin_ns as f64 / 1e9);
        let oncpu = match oncpu_ns {
            Some(ns) => (Value::Counted(ns as f64), 1.0),
            None => (Value::NotCounted, 0.0),
        };
        let named = names.iter().map(|it| it.name.as_str()).zip(cells);
        for (event, (value, share)) in std::iter::once((ONCPU, oncpu)).chain(named) {
            intervals.add(&Cell {
                part: &part,
                time,
                event,
                value,
                share,
            });
        }
    }
    Ok(intervals.finish())
}

/// An argument in words; empty: null.
fn word(value: Option<ArgRef<'_>>) -> String {
    match value {
        None => String::new(),
        Some(ArgRef::U64(it)) => it.to_string(),
        Some(ArgRef::I64(it)) => it.to_string(),
        Some(ArgRef::Str(it)) => it.to_owned(),
    }
}

/// The visits to mine, and remarks on the others.
fn rows(trace: &Trace, arguments: &[&ArgColumn]) -> Result<(Vec<Row>, Vec<Remark>), ReadError> {
    let mut rows = Vec::new();
    let (mut open, mut not_net) = (0_u64, 0_u64);
    let wanted: Vec<ArgColumn> = arguments.iter().map(|&it| it.clone()).collect();
    for batch in trace.scan_with_args(Columns::NAMES)? {
        let batch = batch?;
        let columns = Columns::of(&batch)?;
        let args = ArgView::all(&batch, &wanted)?;
        for row in 0..batch.num_rows() {
            let Some(duration) = columns.duration_ns.get(row) else {
                open += 1;
                continue;
            };
            not_net += u64::from(columns.net_ns.get(row).is_none());
            rows.push(Row {
                visit_id: columns.visit_id[row],
                item_id: columns.item_id[row],
                probe_id: columns.probe_id[row],
                ns: columns.net_ns.get(row).unwrap_or(duration),
                words: args.iter().map(|it| word(it.get(row))).collect(),
            });
        }
    }
    let of = |id: u16| rows.iter().filter(|row| row.probe_id == id).count();
    let probes = trace.info.probes.iter().map(|probe| probe.id.0);
    let most = probes.max_by_key(|&id| of(id)).unwrap_or_default();
    let all = rows.len();
    rows.retain(|row| row.probe_id == most);
    let mut notes = Vec::new();
    if rows.len() < all
        && let Some(probe) = trace.info.probes.iter().find(|it| it.id.0 == most)
    {
        notes.push(Remark::OneProbe {
            items: rows.len(),
            spec: probe.spec.to_string(),
        });
    }
    if open > 0 {
        notes.push(Remark::Open { items: open });
    }
    if not_net > 0 {
        notes.push(Remark::NotNet { visits: not_net });
    }
    Ok((rows, notes))
}

/// A remark on the rows read.
#[derive(Clone, Debug, PartialEq)]
pub enum Remark {
    /// This share of the counts is scaled.
    Scaled { share: f64 },
    /// Rows are called by `visit_id`.
    SharedIds,
    /// Only the items of the probe with most of them.
    OneProbe { items: usize, spec: String },
    /// Items left out, as they have no end.
    Open { items: u64 },
    /// Visits with an unknown net time.
    NotNet { visits: u64 },
}
