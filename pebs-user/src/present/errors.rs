//! Errors of [`crate::compare`] in words, with their hints.

use std::fmt::{self, Display, Formatter};
use std::io;

use pebs_mine::rank::RankError;
use pebs_mine::runs::RunsError;

use crate::compare::diff::{DiffError, Nothing};
use crate::compare::explain::{ExplainError, NoItem, NoItems};
use crate::compare::fleet::FleetError;
use crate::compare::fleet::model::Unread;
use crate::compare::mine::MineError;
use crate::compare::mine::across::AcrossError;
use crate::compare::mine::of_trace::TraceError;
use crate::compare::probe::NoProbe;
use crate::compare::report::ReportError;
use crate::compare::select::error::ExportError;
use crate::failure::Hint;

/// Advice where time on the CPU is asked for, and is unknown.
const CPU_TIME: &str = "record without --no-switches, or leave 'cpu' out of --slow";

/// Items or visits can't be divided by their time on the CPU.
fn no_cpu_time(f: &mut Formatter<'_>, what: &str, trace: &str) -> fmt::Result {
    write!(
        f,
        "cannot set {what} of trace {trace} apart by time on the CPU: switches were not recorded"
    )
}

impl Display for NoProbe {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "no probe {} in trace {}", self.probe.0, self.trace)
    }
}

impl Hint for NoProbe {
    fn hint(&self) -> Option<String> {
        let known = self.known.iter();
        let known: Vec<_> = known
            .map(|(id, spec)| format!("{} ({spec})", id.0))
            .collect();
        Some(if known.is_empty() {
            "it has none".to_owned()
        } else {
            format!("there are {}", known.join(", "))
        })
    }
}

impl Display for ReportError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::NoProbe(error) => error.fmt(f),
            Self::NoCpuTime { trace } => no_cpu_time(f, "items", trace),
        }
    }
}

impl Hint for ReportError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Read(error) => error.hint(),
            Self::NoProbe(error) => error.hint(),
            Self::NoCpuTime { .. } => Some(CPU_TIME.to_owned()),
        }
    }
}

impl Display for ExplainError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::NoProbe(error) => error.fmt(f),
            Self::NoColumn { trace, column, .. } => write!(
                f,
                "cannot group by '{column}': trace {trace} has no such argument"
            ),
            Self::NotKept {
                trace,
                column,
                kept,
            } => write!(
                f,
                "cannot group by '{column}': trace {trace} kept the details of {kept} items only"
            ),
            Self::NoItems { trace, reason } => {
                write!(f, "cannot explain trace {trace}: ")?;
                match reason {
                    NoItems::NoVisits => f.write_str("it has no visits"),
                    NoItems::NoneEnded { visits } => {
                        write!(f, "none of its {visits} visits ended")
                    }
                    NoItems::NoneWhole { visits } => write!(
                        f,
                        "all of its {visits} visits overlap a loss or did not end"
                    ),
                }
            }
            Self::NeverEnded { trace, ended } => write!(f, "cannot explain trace {trace}: {ended}"),
            Self::NoCpuTime { trace } => no_cpu_time(f, "items", trace),
            Self::OneByCpuTime => f.write_str("cannot show one item by time on the CPU"),
            Self::NoVisit {
                trace, visit_id, ..
            } => write!(f, "no visit {visit_id} in trace {trace}"),
            Self::NoItem { trace, item_id, .. } => write!(f, "no item {item_id} in trace {trace}"),
        }
    }
}

impl Hint for ExplainError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Read(error) => return error.hint(),
            Self::NoProbe(error) => return error.hint(),
            Self::NoColumn { known, .. } => format!("there are {}", known.join(", ")),
            Self::NotKept { .. } => {
                "leave --group-by out, or record without --keep to compare within groups".to_owned()
            }
            Self::NoItems { reason, .. } => match reason {
                NoItems::NoVisits => {
                    "was the probed function called? 'pebs-trace report' shows what was recorded"
                }
                NoItems::NoneEnded { .. } => "record until items end",
                NoItems::NoneWhole { .. } => "--all counts visits that overlap a loss",
            }
            .to_owned(),
            Self::NeverEnded { .. } => {
                "give id= at both ends of the SPEC, and record again".to_owned()
            }
            Self::NoCpuTime { .. } => CPU_TIME.to_owned(),
            Self::OneByCpuTime => {
                "leave 'cpu' out of --slow: its time on the CPU and its functions are shown"
                    .to_owned()
            }
            Self::NoVisit { last, .. } => format!(
                "visits are numbered from 1, the last one counted is {last}; --all counts visits that overlap a loss"
            ),
            Self::NoItem { reason, .. } => match reason {
                NoItem::LeftOut => {
                    "it is left out, as it overlaps a loss or did not end: --all counts the former"
                        .to_owned()
                }
                NoItem::InNoGroup => "no group contains it; try without --group-by".to_owned(),
                NoItem::Unknown {
                    first,
                    last,
                    closest,
                } => format!("ids are from {first} to {last}; the closest is {closest}"),
            },
        })
    }
}

impl Display for DiffError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Probes { before, after, .. } => write!(
                f,
                "cannot compare {before} with {after}: no probe is in both"
            ),
            Self::Nothing { trace, reason } => {
                write!(f, "cannot compare trace {trace}: ")?;
                match reason {
                    Nothing::NoPair => f.write_str("no probe that is in both has visits in both"),
                    Nothing::Kept { keep } => {
                        write!(f, "it has the details of some items only (--keep {keep})")
                    }
                    Nothing::NoneEnded => f.write_str("it has no visits that ended"),
                }
            }
        }
    }
}

impl Hint for DiffError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Read(error) => return error.hint(),
            Self::Probes { specs, .. } => {
                let [before, after] = specs.each_ref().map(|it| it.join(", "));
                format!("before: {before}; after: {after}; record both with the same --uprobe")
            }
            Self::Nothing { reason, .. } => match reason {
                Nothing::NoPair => "'pebs-trace report' shows what each trace has",
                Nothing::Kept { .. } => "record both without --keep",
                Nothing::NoneEnded => "'pebs-trace report' shows what it has",
            }
            .to_owned(),
        })
    }
}

impl Display for FleetError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownProperty { by, .. } => write!(f, "no trace has '{by}'"),
            Self::OtherTime => f.write_str("no trace is of this time"),
            Self::Empty { unread: None } => f.write_str("no trace has items that ended"),
            Self::Empty {
                unread: Some(Unread { trace, error }),
            } => write!(f, "no trace can be read: {trace}: {error}"),
        }
    }
}

impl Hint for FleetError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::UnknownProperty { known, .. } => format!("there are {}", known.join(", ")),
            Self::OtherTime => "leave --since and --until out to see what there is".to_owned(),
            Self::Empty { .. } => "'pebs-trace info' shows what a trace has".to_owned(),
        })
    }
}

impl Display for ExportError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::NoVisits { trace } => write!(f, "no visits in trace {trace}"),
            Self::NoItem { trace, item, .. } => write!(f, "no item {item} in trace {trace}"),
            Self::NoneSlow { trace, reason } => {
                write!(f, "no slow visits in trace {trace}: {reason}")
            }
            Self::NoCpuTime { trace } => no_cpu_time(f, "visits", trace),
            Self::Nothing { trace, loss, open } => write!(
                f,
                "nothing to export of trace {trace}: {loss} overlap a loss, of {open} the end is unknown"
            ),
            Self::Empty { trace } => write!(
                f,
                "nothing to export of trace {trace}: the visits have no samples and no waits"
            ),
            Self::Write(_) => f.write_str("cannot write the result"),
        }
    }
}

impl Hint for ExportError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Read(error) => return error.hint(),
            Self::NoVisits { trace } => {
                format!("'pebs-trace report {trace}' says what was recorded and what was lost")
            }
            Self::NoItem { slowest, .. } => {
                let ids: Vec<String> = slowest.iter().map(u64::to_string).collect();
                format!("the slowest items are {}", ids.join(", "))
            }
            Self::NoneSlow { .. } => {
                "give a lower limit, such as --slow p90, or leave --slow out".to_owned()
            }
            Self::NoCpuTime { .. } => CPU_TIME.to_owned(),
            Self::Nothing { .. } | Self::Empty { .. } => {
                "--all takes visits that overlap a loss, too".to_owned()
            }
            Self::Write(error) => match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "name a file on a disk with more room".to_owned()
                }
                _ => return None,
            },
        })
    }
}

impl Display for TraceError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::NotCounted(trace) => write!(f, "no events were counted in {trace}"),
            Self::NoIntervals(trace) => {
                write!(f, "no events were counted in intervals in {trace}")
            }
        }
    }
}

impl Hint for TraceError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Read(error) => error.hint(),
            Self::NotCounted(_) => Some("record it with --count auto".to_owned()),
            Self::NoIntervals(_) => {
                Some("record it with --count auto --count-interval 100".to_owned())
            }
        }
    }
}

impl Display for MineError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outcome(error) => error.fmt(f),
            Self::Rank(error) => write!(f, "cannot rank the events: {error}"),
            Self::Across(error) => error.fmt(f),
            Self::Interact(error) => write!(f, "cannot rank pairs of events: {error}"),
            Self::NoItem { name, .. } => write!(f, "no row is called '{name}'"),
        }
    }
}

impl Hint for MineError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Outcome(error) => error.hint(),
            Self::Rank(RankError::TooFewRows { .. }) => {
                "count longer or at shorter intervals (perf stat -I 10), or give the files of several runs".to_owned()
            }
            Self::Rank(RankError::ConstantOutcome { .. }) => {
                "--explain NAME explains another column".to_owned()
            }
            Self::Rank(RankError::NoEvents { .. }) => {
                "'pebs-trace events' lists what this machine can count; perf marks what it cannot count as '<not supported>'"
                    .to_owned()
            }
            Self::NoItem { example, .. } => format!("rows are called like '{example}'"),
            Self::Across(error) => return error.hint(),
            Self::Rank(RankError::Model(_)) | Self::Interact(_) => return None,
        })
    }
}

impl Display for AcrossError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runs(error) => write!(f, "cannot rank the events of these runs: {error}"),
            Self::Outcomes { files, names } => write!(
                f,
                "{} says how long a row took in {}, {} in {}",
                names[0], files[0], names[1], files[1]
            ),
            Self::Item => f.write_str("--item applies to runs that counted the same events"),
        }
    }
}

impl Hint for AcrossError {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Runs(RunsError::NoCommonClass { .. }) => {
                "--class names a column with the same values in all runs; without it all rows are of one class"
            }
            Self::Runs(RunsError::TooFewRows { .. }) => {
                "count longer, or at shorter intervals (perf stat -I 10)"
            }
            Self::Runs(RunsError::Constant { .. }) => "--explain NAME explains another column",
            Self::Runs(RunsError::NoEvents) => {
                "'pebs-trace events' lists what this machine can count"
            }
            Self::Runs(RunsError::OneValue { .. }) => {
                "leave it out, or give files of runs with another value"
            }
            Self::Runs(RunsError::Confounded { .. }) => {
                "leave one of them out, or give runs in which it alone differs"
            }
            Self::Runs(RunsError::TooFewRuns { .. }) => "give more runs, or fewer parameters",
            Self::Runs(RunsError::TooManyWords { .. }) => "give numbers, or more runs of each word",
            Self::Runs(RunsError::NoCommonEvent) => {
                "count at least one of the events both with and without the neighbour"
            }
            Self::Runs(RunsError::NoCommonConfiguration) => {
                "run the program with the same parameters beside the neighbour"
            }
            Self::Outcomes { .. } => "--explain NAME names one that all have",
            Self::Item => "give the file of one run",
            Self::Runs(RunsError::Model(_)) => return None,
        };
        Some(hint.to_owned())
    }
}
