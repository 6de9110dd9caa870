//! Data of the view: the report of a trace, and the distribution of durations.

use rustc_hash::FxHashMap;

use super::bars::Durations;
use crate::compare::classes::{RankBy, Ranker, SlowBy, Standing, Took};
use crate::compare::losses::LossVisits;
use crate::compare::names::FunctionName;
use crate::compare::report::model::{ProbeReport, Row, SlowVisit};
use crate::compare::report::{ReportError, ReportOptions, build};
use crate::present::human::safe;
use crate::store::reader::{ReadError, Trace};
use crate::store::run::EventInfo;
use crate::store::schema::ArgValue;
use crate::store::view::{Select as _, View as _, columns};

/// Functions and waits of a group that an item is compared with: all above 0.5 % of the group's time.
const MOST_ROWS: usize = 10_000;

/// Characters of an argument that are kept; one is seldom longer than the 64 that a probe reads.
const ARG_WIDTH: usize = 200;

/// All data of the view.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    /// Path of the trace, safe to show.
    pub trace: String,
    /// The event that times on the CPU are from.
    pub event: Option<EventInfo>,
    /// A group for each probe of the trace: items are compared within it.
    pub groups: Vec<Group>,
    /// Items of all groups, of each the slowest.
    pub items: Vec<Item>,
    /// Quantity by which items are ranked.
    pub by: RankBy,
    /// Why the trace is not whole, if it is not.
    pub remark: Option<String>,
}

/// The items of one probe.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// Report on all of them. The slowest are in [`Data::items`].
    pub report: ProbeReport,
    /// Durations of all items counted, listed or not.
    pub durations: Durations,
    /// Items listed.
    pub listed: usize,
}

/// One visit, called item as in reports.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Index of its group.
    pub group: usize,
    /// Its figures.
    pub visit: SlowVisit,
    /// Time by which it is ranked, ns: its duration or its time on the CPU, without pebs-trace's own time.
    pub ranked_ns: i64,
    /// Its arguments as `name=value`, safe to show.
    pub args: String,
}

/// Time of an item in a function, running or blocked, beside the typical value of its group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part<'a> {
    pub function: &'a FunctionName,
    /// State of the thread while off the CPU; `None`: on the CPU.
    pub state: Option<&'a str>,
    /// Time in the item, ns; `None` if unknown, or if the item does not have this part.
    pub ns: Option<f64>,
    /// Standard error of that; `None` if unknown, and for waits, which are observed.
    pub stderr_ns: Option<f64>,
    /// Samples in the item, or number of waits.
    pub samples: u64,
    /// Row of the report on all items of the group; `None` if it is too small to be listed.
    pub row: Option<&'a Row>,
}

impl Data {
    /// Reads the data of the view, with the `slowest` items of each probe, by a rule if one is asked for.
    ///
    /// Cost: that of a report ([`build`]) and one more column of `visits`. Memory: that of a report, and the
    /// arguments, functions and waits of the items kept.
    ///
    /// # Errors
    /// If the trace can't be read.
    pub(crate) fn read(
        trace: &Trace,
        (slowest, slow): (usize, Option<SlowBy>),
        losses: LossVisits,
    ) -> Result<Self, ReportError> {
        let options = ReportOptions {
            probe: None,
            slowest,
            top: MOST_ROWS,
            losses,
            slow,
        };
        let report = build(trace, &options)?;
        let mut data = Self {
            trace: safe(&report.trace, usize::MAX),
            event: report.event,
            by: slow.unwrap_or_default().by,
            groups: Vec::new(),
            items: Vec::new(),
            remark: trace.remark().map(|(remark, _)| safe(&remark, usize::MAX)),
        };
        let Some(ranker) = Ranker::of(&trace.info, slow) else {
            let trace = trace.dir.display().to_string();
            return Err(ReportError::NoCpuTime { trace });
        };
        let mut durations = durations(trace, losses, &ranker)?;
        for mut probe in report.probes {
            let visits = std::mem::take(&mut probe.slowest);
            let (group, listed) = (data.groups.len(), visits.len());
            data.items.extend(visits.into_iter().map(|visit| Item {
                group,
                args: arguments(&visit),
                ranked_ns: ranked(&visit, &ranker),
                visit,
            }));
            data.groups.push(Group {
                durations: durations.remove(&probe.probe_id).unwrap_or_default(),
                report: probe,
                listed,
            });
        }
        Ok(data)
    }

    #[must_use]
    pub(crate) fn group(&self, item: &Item) -> &Group {
        &self.groups[item.group]
    }

    /// The parts of an item, the longest first, then parts that only typical items have.
    #[must_use]
    pub(crate) fn parts<'a>(&'a self, item: &'a Item) -> Vec<Part<'a>> {
        let report = &self.group(item).report;
        let mut typical: FxHashMap<(Option<u32>, Option<&str>), _> = FxHashMap::default();
        for row in report.spread.iter().chain(&report.largest) {
            let key = (row.function.function_id, row.state.as_deref());
            typical.insert(key, row);
        }
        let functions = item.visit.functions.iter().map(|it| Part {
            function: &it.function,
            state: None,
            ns: it.self_ns,
            stderr_ns: it.self_stderr_ns,
            samples: it.samples.into(),
            row: None,
        });
        let waits = item.visit.waits.iter().map(|it| Part {
            function: &it.function,
            state: Some(&it.state),
            ns: Some(it.ns as f64),
            stderr_ns: None,
            samples: it.waits,
            row: None,
        });
        let mut parts: Vec<Part<'_>> = functions.chain(waits).collect();
        for part in &mut parts {
            let key = (part.function.function_id, part.state);
            part.row = typical.remove(&key);
        }
        let of_one = |row: &&Row| row.typical.samples > 0 && !row.function.is_module();
        let others = typical.into_values().filter(of_one);
        parts.extend(others.map(|row| Part {
            function: &row.function,
            state: row.state.as_deref(),
            ns: None,
            stderr_ns: None,
            samples: 0,
            row: Some(row),
        }));
        let usual = |part: &Part<'_>| part.row.and_then(|row| row.typical.per_visit);
        parts.sort_by(|a, b| {
            let longest = b.ns.unwrap_or(-1.0).total_cmp(&a.ns.unwrap_or(-1.0));
            let seen = b.samples.cmp(&a.samples);
            let usual = usual(b)
                .unwrap_or(-1.0)
                .total_cmp(&usual(a).unwrap_or(-1.0));
            let names = a.function.function_id.cmp(&b.function.function_id);
            let states = a.state.cmp(&b.state);
            longest.then(seen).then(usual).then(names).then(states)
        });
        parts
    }
}

/// Time by which a visit is ranked, ns.
fn ranked(visit: &SlowVisit, ranker: &Ranker) -> i64 {
    let took = Took {
        duration_ns: visit.duration_ns,
        net_ns: visit.net_ns,
        samples: visit.samples,
    };
    let of = (visit.probe_id.0, visit.flags);
    let rank = took.rank();
    let rank = rank.and_then(|it| ranker.rank(it, visit.oncpu_ns, of));
    rank.map_or(0, |it| it.ns)
}

columns! {
    struct Visits of visits { probe_id, duration_ns, oncpu_ns, flags, net_ns, samples }
}

/// Times by which the counted visits are ranked, by probe.
fn durations(
    trace: &Trace,
    losses: LossVisits,
    ranker: &Ranker,
) -> Result<FxHashMap<u16, Durations>, ReadError> {
    let mut all: FxHashMap<u16, Durations> = FxHashMap::default();
    for batch in Visits::scan(trace)? {
        let batch = batch?;
        let visits = Visits::of(&batch)?;
        for row in 0..batch.num_rows() {
            let took = Took {
                duration_ns: visits.duration_ns.get(row),
                net_ns: visits.net_ns.get(row),
                samples: visits.samples[row],
            };
            let (oncpu, flags) = (visits.oncpu_ns.get(row), visits.flags[row]);
            if let Standing::Counted(rank) = Standing::of(took, flags, losses)
                && let Some(rank) = ranker.rank(rank, oncpu, (visits.probe_id[row], flags))
            {
                all.entry(visits.probe_id[row]).or_default().add(rank.ns);
            }
        }
    }
    Ok(all)
}

fn arguments(visit: &SlowVisit) -> String {
    let mut text = String::new();
    for arg in &visit.args {
        let value = match &arg.value {
            None => continue,
            Some(ArgValue::U64(number)) => number.to_string(),
            Some(ArgValue::I64(number)) => number.to_string(),
            Some(ArgValue::Str(value)) => safe(value, ARG_WIDTH),
        };
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&safe(&arg.name, ARG_WIDTH));
        text.push('=');
        text.push_str(&value);
    }
    text
}
