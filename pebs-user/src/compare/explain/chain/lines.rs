//! Activities of threads over time: their visits, waits and samples in some windows of time.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::compare::waits::{PARKED, PREEMPTED, States};
use crate::store::reader::{ReadError, Trace};
use crate::store::run::{EventInfo, VisitRule};
use crate::store::schema::visit_flag;
use crate::store::view::{Select as _, View as _, columns};

columns! {
    struct Waits of waits {
        visit_id, tid, begin_ns, end_ns, function_id, state, runnable_ns, woken_by, woken_by_pid, woken_by_tid,
        preempted_by, preempted_by_tid, stack_id
    }
}

columns! {
    struct OtherWaits of other_waits {
        tid, begin_ns, end_ns, function_id, state, runnable_ns, woken_by, woken_by_pid, woken_by_tid, preempted_by,
        preempted_by_tid, stack_id
    }
}

columns! {
    struct Visits of visits { visit_id, item_id, probe_id, pid, tid, begin_ns, end_ns, flags }
}

columns! {
    struct Samples of samples { time_ns, tid, function_id, event }
}

/// Adds the rows of a table of waits to the lines of their threads; the visit of each by its row.
macro_rules! add_waits {
    ($lines:ident, $trace:ident, $windows:ident, $table:ident, |$rows:ident, $row:ident| $visit:expr) => {
        for batch in $table::scan($trace)? {
            let batch = batch?;
            let rows = $table::of(&batch)?;
            for (row, &tid) in rows.tid.iter().enumerate() {
                let (begin, end) = (rows.begin_ns[row], rows.end_ns[row]);
                let state = rows.state.get(row);
                if !$windows.overlap(begin, end) || state == PARKED {
                    continue;
                }
                let taken = (rows.preempted_by.get(row), rows.preempted_by_tid.get(row));
                let woken = (rows.woken_by.get(row), rows.woken_by_tid.get(row));
                if let (Some(pid), Some(tid)) = (rows.woken_by_pid.get(row), woken.1) {
                    $lines.process_of.insert(tid, pid);
                }
                let ($rows, $row) = (&rows, row);
                let wait = WaitAt {
                    begin,
                    end,
                    woken: end - rows.runnable_ns.get(row).unwrap_or(0),
                    by: $lines.by(state, taken, woken),
                    state: $lines.states.index(state),
                    function: rows.function_id.get(row),
                    stack: rows.stack_id.get(row),
                    visit: $visit,
                };
                $lines.line(tid).waits.push(wait);
            }
        }
    };
}

/// Most visits that are looked through for the one that a thread was at.
const MOST_LOOKED_AT: usize = 1_000;

/// Windows of time: disjoint, in order.
#[derive(Debug, Default)]
pub(super) struct Windows(Vec<(i64, i64)>);

impl Windows {
    /// The union of some.
    pub(super) fn of(mut windows: Vec<(i64, i64)>) -> Self {
        windows.sort_unstable();
        let mut union: Vec<(i64, i64)> = Vec::new();
        for (begin, end) in windows {
            match union.last_mut() {
                Some(last) if begin <= last.1 => last.1 = last.1.max(end),
                _ => union.push((begin, end)),
            }
        }
        Self(union)
    }

    /// Whether one overlaps this range.
    fn overlap(&self, begin: i64, end: i64) -> bool {
        let first = self.0.partition_point(|window| window.1 <= begin);
        self.0.get(first).is_some_and(|window| window.0 < end)
    }
}

/// Cause of a wait's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Unknown,
    /// No thread did.
    Interrupt,
    /// This thread woke it.
    Woken(u32),
    /// A thread took the CPU: the first one of its name; 0: unknown which.
    Preempted(u32),
}

/// An interval off the CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitAt {
    pub begin: i64,
    pub end: i64,
    /// From when on the thread could have run.
    pub woken: i64,
    pub state: usize,
    pub function: Option<u32>,
    pub stack: Option<u32>,
    pub by: By,
    /// The visit that was current.
    pub visit: Option<u64>,
}

/// A visit on its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VisitAt {
    pub begin: i64,
    pub end: i64,
    pub visit_id: u64,
    pub item_id: u64,
    pub probe: u16,
    /// Whether other visits of the thread may begin and end at any time meanwhile.
    is_by_id: bool,
    /// Whether some of its time may be another item's.
    is_shared: bool,
    /// Whether its waits and samples were kept.
    pub has_details: bool,
}

/// One thread.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// In order, disjoint.
    pub waits: Vec<WaitAt>,
    /// In the order of their begins.
    visits: Vec<VisitAt>,
    /// The latest end of this visit and all before.
    latest: Vec<i64>,
    /// Times and functions of samples, in order.
    samples: Vec<(i64, u32)>,
}

/// The threads.
#[derive(Debug, Default)]
pub(super) struct Lines {
    threads: FxHashMap<u32, Line>,
    /// Of a traced thread of which there is nothing in these windows: it was on the CPU.
    empty: Line,
    /// Processes with visits.
    processes: FxHashSet<u32>,
    /// Processes of the threads that woke others.
    process_of: FxHashMap<u32, u32>,
    /// Whether waits of threads at no item were recorded.
    has_other_waits: bool,
    /// Names of the threads that woke others or took their CPU, by tid.
    pub names: FxHashMap<u32, String>,
    /// The first thread of each name that took a CPU.
    takers: FxHashMap<String, u32>,
    pub states: States,
    /// Visits met, by number.
    pub visits: FxHashMap<u64, VisitAt>,
}

impl Lines {
    /// Reads what threads did in these windows. Memory: the rows of that time.
    pub(super) fn read(
        trace: &Trace,
        windows: &Windows,
        event: Option<&EventInfo>,
    ) -> Result<Self, ReadError> {
        let mut lines = Self::default();
        add_waits!(lines, trace, windows, Waits, |rows, row| Some(
            rows.visit_id[row]
        ));
        add_waits!(lines, trace, windows, OtherWaits, |_rows, _row| None);
        let first = OtherWaits::scan(trace)?.next().transpose()?;
        lines.has_other_waits = first.is_some_and(|it| it.num_rows() > 0);
        lines.read_visits(trace, windows)?;
        if let Some(event) = event {
            lines.read_samples(trace, windows, event)?;
        }
        for line in lines.threads.values_mut() {
            // Goroutines that wait at the same time have one thread: those are no waits of the thread.
            line.waits.sort_unstable_by_key(|it| (it.begin, it.end));
            let mut end = i64::MIN;
            line.waits.retain(|it| {
                let is_next = it.begin >= end;
                end = if is_next { it.end } else { end };
                is_next
            });
            line.visits.sort_by_key(|it| (it.begin, -it.end));
            line.samples.sort_unstable();
            let mut latest = i64::MIN;
            line.latest.extend(line.visits.iter().map(|it| {
                latest = latest.max(it.end);
                latest
            }));
        }
        Ok(lines)
    }

    /// Returns the line of a thread; `None`: it is not traced.
    pub(super) fn of(&self, tid: u32) -> Option<&Line> {
        let process = self.process_of.get(&tid);
        let is_traced = process.is_some_and(|pid| self.processes.contains(pid));
        let known = self.threads.get(&tid);
        known.or_else(|| is_traced.then_some(&self.empty))
    }

    /// Whether a thread was on the CPU where nothing says that it waited: its waits at this visit, or at none, are known.
    pub(super) fn has_waits_of(&self, visit: Option<&VisitAt>) -> bool {
        visit.map_or(self.has_other_waits, |it| it.has_details)
    }

    fn line(&mut self, tid: u32) -> &mut Line {
        self.threads.entry(tid).or_default()
    }

    /// Returns the cause of a wait's end, by the names and numbers of who took the CPU and who woke the thread.
    fn by(
        &mut self,
        state: &str,
        taken: (Option<&str>, Option<u32>),
        woken: (Option<&str>, Option<u32>),
    ) -> By {
        let is_preempted = state == PREEMPTED;
        let (name, tid) = if is_preempted { taken } else { woken };
        if let (Some(name), Some(tid)) = (name, tid) {
            let known = self.names.entry(tid);
            known.or_insert_with(|| name.to_owned());
        }
        match (is_preempted, name, tid) {
            (true, Some(name), Some(tid)) => match self.takers.get(name) {
                Some(first) => By::Preempted(*first),
                None => {
                    self.takers.insert(name.to_owned(), tid);
                    By::Preempted(tid)
                }
            },
            (true, ..) => By::Preempted(0),
            (false, _, Some(tid)) => By::Woken(tid),
            (false, Some(_), None) => By::Interrupt,
            (false, None, None) => By::Unknown,
        }
    }

    fn read_visits(&mut self, trace: &Trace, windows: &Windows) -> Result<(), ReadError> {
        let by_id = trace.info.probes.iter();
        let by_id = by_id.filter(|it| it.rule == VisitRule::ById);
        let by_id: Vec<u16> = by_id.map(|it| it.id.0).collect();
        for batch in Visits::scan(trace)? {
            let batch = batch?;
            let rows = Visits::of(&batch)?;
            for (row, &tid) in rows.tid.iter().enumerate() {
                let begin = rows.begin_ns[row];
                let end = rows.end_ns.get(row).unwrap_or(i64::MAX);
                self.processes.insert(rows.pid[row]);
                if windows.overlap(begin, end) {
                    let visit = VisitAt {
                        begin,
                        end,
                        visit_id: rows.visit_id[row],
                        item_id: rows.item_id[row],
                        probe: rows.probe_id[row],
                        is_by_id: by_id.contains(&rows.probe_id[row]),
                        is_shared: rows.flags[row] & visit_flag::TIME_SHARED != 0,
                        has_details: rows.flags[row] & visit_flag::CONDENSED == 0,
                    };
                    self.visits.insert(visit.visit_id, visit);
                    self.line(tid).visits.push(visit);
                }
            }
        }
        Ok(())
    }

    fn read_samples(
        &mut self,
        trace: &Trace,
        windows: &Windows,
        event: &EventInfo,
    ) -> Result<(), ReadError> {
        let own = trace.own_function()?;
        for batch in Samples::scan(trace)? {
            let batch = batch?;
            let rows = Samples::of(&batch)?;
            for (row, &time) in rows.time_ns.iter().enumerate() {
                let function = rows.function_id[row];
                let is_wanted = rows.event[row] == event.id.0 && Some(function) != own;
                if let Some(tid) = rows.tid.get(row)
                    && is_wanted
                    && windows.overlap(time, time + 1)
                {
                    self.line(tid).samples.push((time, function));
                }
            }
        }
        Ok(())
    }
}

impl Line {
    /// The waits that overlap a range.
    pub(super) fn waits_in(&self, begin: i64, end: i64) -> impl Iterator<Item = &WaitAt> {
        let first = self.waits.partition_point(|it| it.end <= begin);
        self.waits[first..]
            .iter()
            .take_while(move |it| it.begin < end)
    }

    /// Functions of the samples in a range.
    pub(super) fn samples_in(&self, begin: i64, end: i64) -> impl Iterator<Item = u32> + '_ {
        let first = self.samples.partition_point(|it| it.0 < begin);
        let of_range = self.samples[first..]
            .iter()
            .take_while(move |it| it.0 < end);
        of_range.map(|it| it.1)
    }

    /// Times within a range at which visits begin or end, in order.
    pub(super) fn turns_in(&self, begin: i64, end: i64) -> Vec<i64> {
        let first = self.latest.partition_point(|latest| *latest <= begin);
        let of_range = self.visits[first..].iter().take_while(|it| it.begin < end);
        let mut turns: Vec<i64> = of_range
            .flat_map(|it| [it.begin, it.end])
            .filter(|at| (begin + 1..end).contains(at))
            .collect();
        turns.sort_unstable();
        turns.dedup();
        turns
    }

    /// The visit that the thread was at; `None`: none, or it is not known which.
    pub(super) fn visit_at(&self, time: i64) -> Option<&VisitAt> {
        let before = self.visits.partition_point(|it| it.begin <= time);
        let last = self.visits[..before].iter().zip(&self.latest);
        let mut open = last
            .rev()
            .take(MOST_LOOKED_AT)
            .take_while(|(_, latest)| **latest > time)
            .filter(|(visit, _)| visit.end > time)
            .map(|(visit, _)| visit);
        let inner = open.next()?;
        let is_known = !inner.is_shared && (!inner.is_by_id || open.next().is_none());
        is_known.then_some(inner)
    }
}
