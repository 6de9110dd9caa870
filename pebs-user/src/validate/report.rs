//! Result of a validation: one file of JSON, which can be sent and compared.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::statistics::Summary;
use crate::failure::Hint;
use crate::pmu::host::Host;
use crate::present::human::{count, time};
use crate::terminal::shown;

/// Type of the file.
const KIND: &str = "pebs-trace validation";

/// Layout of the file.
pub(crate) const VERSION: u32 = 1;

/// Largest file that is read, bytes.
const MOST_BYTES: u64 = 16 << 20;

/// All that was found on a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// [`KIND`].
    pub kind: String,
    /// Layout of the file.
    pub version: u32,
    /// Version of pebs-trace.
    pub tool_version: String,
    /// Time of its begin, seconds since 1970.
    pub taken_s: u64,
    /// Duration, s.
    pub seconds: f64,
    /// Whether it was the quick suite.
    pub quick: bool,
    /// The machine.
    pub machine: Machine,
    /// Experiments in the order of execution.
    pub experiments: Vec<Experiment>,
}

/// The machine. Neither host name nor user: the file is meant to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// CPU model.
    pub cpu: String,
    /// Kernel release.
    pub kernel: String,
    /// Hypervisor; null: none, or hidden.
    pub hypervisor: Option<String>,
    /// CPUs that are online.
    pub cpus: u64,
    /// Why there is no hardware counter; null: there is.
    pub no_pmu: Option<String>,
}

/// Name of an experiment.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[clap(rename_all = "snake_case")]
pub enum Name {
    /// Samples against the number of events, per event and number of threads
    Accuracy,
    /// The same at each reset value, over several runs
    Sensitivity,
    /// Shares of several instructions with equal events, and samples elsewhere
    Bias,
    /// One to six events at once
    ManyEvents,
    /// Level and address of known accesses
    Memory,
    /// User and kernel mode
    Modes,
    /// Time and memory that sampling takes
    Overhead,
    /// Marks and samples against the log of a workload
    TimeStamps,
}

impl Name {
    /// All of them, in the order of execution.
    pub(crate) const ALL: [Self; 8] = [
        Self::Accuracy,
        Self::Sensitivity,
        Self::Bias,
        Self::ManyEvents,
        Self::Memory,
        Self::Modes,
        Self::Overhead,
        Self::TimeStamps,
    ];

    /// Its title.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Accuracy => "accuracy of counts",
            Self::Sensitivity => "sensitivity to the reset value, and stability",
            Self::Bias => "bias and attribution",
            Self::ManyEvents => "many events at once",
            Self::Memory => "memory accesses",
            Self::Modes => "user and kernel mode",
            Self::Overhead => "overhead in time and memory",
            Self::TimeStamps => "time stamps",
        }
    }
}

/// One experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Experiment {
    /// Which.
    pub name: Name,
    /// Verdict.
    pub verdict: Verdict,
    /// The same in a sentence.
    pub summary: String,
    /// Duration, s.
    pub seconds: f64,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// Verdict on an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// All rows that are judged are within their bounds.
    Holds,
    /// One at least is not.
    Deviates,
    /// Measured, without a bound to judge by.
    Measured,
    /// Nothing could be measured.
    NotHere,
}

impl Verdict {
    /// In words.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Deviates => "deviates",
            Self::Measured => "measured",
            Self::NotHere => "not on this machine",
        }
    }
}

/// Reliability of a row's truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Basis {
    /// Number and place of the events are known exactly.
    #[serde(rename = "exact")]
    Exact,
    /// A software event in place of a precise one, or a truth that is measured itself.
    #[serde(rename = "stand-in")]
    StandIn,
    /// The machine does not have it.
    #[serde(rename = "not on this machine")]
    NotHere,
}

impl Basis {
    /// In words.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::StandIn => "stand-in",
            Self::NotHere => "not on this machine",
        }
    }
}

/// One event in one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The event.
    pub event: String,
    /// Further parameters of the row: threads, reset value, transport.
    pub case: String,
    /// Reliability of its truth.
    pub basis: Basis,
    /// Measured values; empty if there are none.
    pub figures: Vec<Figure>,
    /// Whether it is within its bound; null: it has none.
    pub holds: Option<bool>,
    /// The bound, the reason for missing figures, or a remark.
    pub note: Option<String>,
}

/// A number that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// Name.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Its unit: `samples`, `events`, `%`, `ns`, `bytes`, `KiB`; empty: a ratio.
    pub unit: String,
    /// Number of samples or runs that it comes from.
    pub n: u64,
    /// Precision; null: it is a count.
    pub spread: Option<Spread>,
}

/// Precision of a figure, in its unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Spread {
    /// Standard deviation over runs.
    Deviation(f64),
    /// 95 % interval.
    Interval(f64, f64),
}

impl Figure {
    /// A count.
    pub(crate) fn count(name: &str, value: u64, unit: &str) -> Self {
        Self::new(name, value as f64, unit, value)
    }

    /// A figure from `n` samples or runs.
    pub(crate) fn new(name: &str, value: f64, unit: &str, n: u64) -> Self {
        Self {
            name: name.to_owned(),
            value,
            unit: unit.to_owned(),
            n,
            spread: None,
        }
    }

    /// Mean of runs with its standard deviation.
    pub(crate) fn mean(name: &str, of: Summary, unit: &str) -> Self {
        Self {
            spread: Some(Spread::Deviation(of.deviation)),
            ..Self::new(name, of.mean, unit, of.n)
        }
    }

    /// A share of `n` samples, with its 95 % interval (Wilson), in percent.
    pub(crate) fn share(name: &str, part: u64, n: u64) -> Option<Self> {
        const Z: f64 = 1.96;
        let (count, share) = (n as f64, part as f64 / n as f64);
        let middle = share + Z * Z / (2.0 * count);
        let half = Z * (share * (1.0 - share) / count + Z * Z / (4.0 * count * count)).sqrt();
        let whole = 1.0 + Z * Z / count;
        let [low, high] = [middle - half, middle + half].map(|it| (it / whole).clamp(0.0, 1.0));
        (n > 0).then(|| Self {
            spread: Some(Spread::Interval(low * 100.0, high * 100.0)),
            ..Self::new(name, share * 100.0, "%", n)
        })
    }
}

impl Row {
    /// A row with results.
    pub(crate) fn new(event: &str, case: impl Into<String>, basis: Basis) -> Self {
        Self {
            event: event.to_owned(),
            case: case.into(),
            basis,
            figures: Vec::new(),
            holds: None,
            note: None,
        }
    }

    /// A row of something that the machine has not.
    pub(crate) fn not_here(event: &str, case: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            note: Some(why.into()),
            ..Self::new(event, case, Basis::NotHere)
        }
    }

    /// With figures.
    pub(crate) fn figures(mut self, figures: impl IntoIterator<Item = Figure>) -> Self {
        self.figures.extend(figures);
        self
    }

    /// Judged.
    pub(crate) fn judged(mut self, holds: bool, bound: impl Into<String>) -> Self {
        self.holds = Some(holds);
        self.note = Some(bound.into());
        self
    }

    /// With a remark.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// A figure's value.
    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        let figure = self.figures.iter().find(|figure| figure.name == name)?;
        Some(figure.value)
    }
}

impl Experiment {
    /// Draws the verdict from the rows.
    pub(crate) fn new(name: Name, rows: Vec<Row>) -> Self {
        let judged = rows.iter().filter(|row| row.holds.is_some()).count();
        let bad = { rows.iter() }.filter(|row| row.holds == Some(false));
        let bad: Vec<String> = bad
            .map(|row| format!("{}, {}", row.event, row.case))
            .collect();
        let absent = rows
            .iter()
            .filter(|row| row.basis == Basis::NotHere)
            .count();
        let verdict = if absent == rows.len() {
            Verdict::NotHere
        } else if !bad.is_empty() {
            Verdict::Deviates
        } else if judged > 0 {
            Verdict::Holds
        } else {
            Verdict::Measured
        };
        let mut summary = match verdict {
            Verdict::Holds => format!("{judged} of {judged} rows within their bounds"),
            Verdict::Deviates => {
                let more = bad.len().saturating_sub(3);
                let mut text = bad[..bad.len().min(3)].join("; ");
                if more > 0 {
                    text += &format!("; {more} more");
                }
                format!("{} of {judged} rows out of bounds: {text}", bad.len())
            }
            Verdict::Measured => format!("{} rows, none of which has a bound", rows.len() - absent),
            Verdict::NotHere => {
                let note = rows.iter().find_map(|row| row.note.clone());
                note.unwrap_or_else(|| "no event for it".to_owned())
            }
        };
        if absent > 0 && verdict != Verdict::NotHere {
            summary += &format!("; {absent} not on this machine");
        }
        Self {
            name,
            verdict,
            summary,
            seconds: 0.0,
            rows,
        }
    }
}

impl Machine {
    /// This one.
    pub(crate) fn of(host: &Host) -> Self {
        Self {
            cpu: host.cpu.name.clone(),
            kernel: host.release.clone(),
            hypervisor: host.hypervisor.clone(),
            cpus: host.online.len() as u64,
            no_pmu: host.no_pmu_reason(),
        }
    }
}

/// Why a file can't be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportError {
    /// The system's.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Something else.
    #[error("{} is no result of 'pebs-trace validate'", path.display())]
    Other {
        /// The file.
        path: PathBuf,
    },
    /// Written by another version.
    #[error("{} has version {found} of the layout; this pebs-trace reads version {VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// Version of the pebs-trace that wrote it.
        tool: String,
    },
    /// The file is incomplete.
    #[error("{} is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        #[source]
        source: serde_json::Error,
    },
}

impl Hint for ReportError {
    fn hint(&self) -> Option<String> {
        let write = "'pebs-trace validate --format json -o FILE' writes one";
        Some(match self {
            Self::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                write.to_owned()
            }
            Self::Read { .. } => return None,
            Self::Other { .. } => write.to_owned(),
            Self::Version { tool, .. } => {
                format!(
                    "it was written by pebs-trace {tool}: compare it with that, or run it again with this one"
                )
            }
            Self::Damaged { .. } => "copy it again: its end or a part of it is missing".to_owned(),
        })
    }
}

impl Report {
    /// A report without experiments, of a validation that began at `begin`.
    pub(crate) fn new(host: &Host, quick: bool, begin: std::time::SystemTime) -> Self {
        let since = begin.duration_since(std::time::UNIX_EPOCH);
        Self {
            kind: KIND.to_owned(),
            version: VERSION,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            taken_s: since.map_or(0, |time| time.as_secs()),
            seconds: 0.0,
            quick,
            machine: Machine::of(host),
            experiments: Vec::new(),
        }
    }

    /// An experiment, if it was run.
    pub(crate) fn experiment(&self, name: Name) -> Option<&Experiment> {
        self.experiments.iter().find(|it| it.name == name)
    }

    /// Whether one deviates.
    pub(crate) fn deviates(&self) -> bool {
        let verdicts = self.experiments.iter().map(|it| it.verdict);
        { verdicts }.any(|verdict| verdict == Verdict::Deviates)
    }

    /// Reads one.
    ///
    /// # Errors
    /// It can't be read, or is something else.
    pub(crate) fn read(path: &Path) -> Result<Self, ReportError> {
        let read = crate::files::read_regular(path, MOST_BYTES);
        let bytes = read.map_err(|source| ReportError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(path, &bytes)
    }

    /// From the bytes of a file.
    ///
    /// # Errors
    /// See [`ReportError`].
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, ReportError> {
        #[derive(Deserialize)]
        struct Head {
            kind: String,
            version: u64,
            #[serde(default)]
            tool_version: String,
        }
        let path = || path.to_owned();
        let head: Head = match serde_json::from_slice(bytes) {
            Ok(head) => head,
            Err(source) if source.is_eof() && bytes.starts_with(b"{") => {
                return Err(ReportError::Damaged {
                    path: path(),
                    source,
                });
            }
            Err(_) => return Err(ReportError::Other { path: path() }),
        };
        if head.kind != KIND {
            return Err(ReportError::Other { path: path() });
        }
        if head.version != u64::from(VERSION) {
            return Err(ReportError::Version {
                path: path(),
                found: head.version,
                tool: head.tool_version,
            });
        }
        let read = serde_json::from_slice(bytes).map(safe);
        let report = read.and_then(serde_json::from_value);
        report.map_err(|source| ReportError::Damaged {
            path: path(),
            source,
        })
    }
}

/// Makes all foreign texts safe for a terminal.
fn safe(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(shown(&text).into_owned()),
        Value::Array(all) => all.into_iter().map(safe).collect(),
        Value::Object(all) => all.into_iter().map(|(name, it)| (name, safe(it))).collect(),
        other => other,
    }
}

/// A figure's value, with its unit and how exact it is.
pub(crate) fn value(figure: &Figure) -> String {
    let unit = figure.unit.as_str();
    if unit == "ns" && figure.spread.is_none() {
        return time(figure.value);
    }
    let plain = |value: f64| number(value, unit);
    let shown = match unit {
        // The name implies the unit.
        "" | "samples" | "events" | "items" => String::new(),
        unit => format!(" {unit}"),
    };
    match figure.spread {
        None => format!("{}{shown}", plain(figure.value)),
        Some(Spread::Deviation(deviation)) => {
            format!("{} ± {}{shown}", plain(figure.value), plain(deviation))
        }
        Some(Spread::Interval(low, high)) => {
            format!(
                "{} ({} .. {}){shown}",
                plain(figure.value),
                plain(low),
                plain(high)
            )
        }
    }
}

fn number(value: f64, unit: &str) -> String {
    let is_whole = value == value.round() && value.abs() < 1e15;
    match value {
        v if is_whole && v >= 1_000.0 => count(v as u64),
        v if is_whole => format!("{v:.0}"),
        v if unit == "%" && v.abs() < 0.01 => format!("{v:.4}"),
        v if v.abs() < 1e-4 => format!("{v:.1e}"),
        v if unit.is_empty() => format!("{v:.4}"),
        v if v.abs() < 10.0 => format!("{v:.2}"),
        v => format!("{v:.1}"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::pmu::host::fixtures;

    /// A report with two experiments.
    pub(crate) fn report() -> Report {
        let begin = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_764_000_000);
        let ratio = Figure::mean(
            "samples/expected",
            Summary::of(&[0.98, 1.0, 1.02]).unwrap(),
            "",
        );
        let good = Row::new("breakpoint", "1 thread", Basis::Exact)
            .figures([Figure::count("samples", 5_000, "samples"), ratio])
            .judged(true, "equal");
        let bad = Row::new("cpu-clock", "1 thread", Basis::StandIn)
            .figures(Figure::share("off", 30, 100))
            .judged(false, "within 5 %");
        let absent = Row::not_here("loads", "1 thread", "no hardware PMU here");
        let mut report = Report::new(&fixtures::bare_guest(), true, begin);
        report.experiments = vec![
            Experiment::new(Name::Accuracy, vec![good, bad, absent.clone()]),
            Experiment::new(Name::Memory, vec![absent]),
        ];
        report
    }

    /// Verdicts follow from the rows, and name the rows out of bounds.
    #[test]
    fn verdicts() {
        let report = report();
        let [accuracy, memory] = &report.experiments[..] else {
            panic!("{report:?}");
        };
        assert_eq!(accuracy.verdict, Verdict::Deviates);
        assert_eq!(
            accuracy.summary,
            "1 of 2 rows out of bounds: cpu-clock, 1 thread; 1 not on this machine"
        );
        assert_eq!(memory.verdict, Verdict::NotHere);
        assert_eq!(memory.summary, "no hardware PMU here");
        assert!(report.deviates());
        let measured = Experiment::new(
            Name::Overhead,
            vec![Row::new("cpu-clock", "", Basis::StandIn)],
        );
        assert_eq!(measured.verdict, Verdict::Measured);
    }

    /// A share has the interval of Wilson: 30 of 100 are 21.9 to 39.6 %.
    #[test]
    fn shares() {
        let share = Figure::share("off", 30, 100).unwrap();
        let Some(Spread::Interval(low, high)) = share.spread else {
            panic!("{share:?}");
        };
        assert!(
            (low - 21.9).abs() < 0.1 && (high - 39.6).abs() < 0.1,
            "{low} {high}"
        );
        assert_eq!(Figure::share("off", 0, 0), None);
    }

    /// A foreign report can't send control characters to a terminal.
    #[test]
    fn foreign_text() {
        let mut report = report();
        report.machine.cpu = "CPU\u{1b}[2J".to_owned();
        let text = serde_json::to_string(&report).unwrap();
        let read = Report::parse(Path::new("r"), text.as_bytes()).unwrap();
        assert!(
            !read.machine.cpu.contains('\u{1b}'),
            "{:?}",
            read.machine.cpu
        );
        assert!(read.machine.cpu.starts_with("CPU"));
    }

    /// A written file can be read; any other is refused with advice.
    #[test]
    fn files() {
        let path = Path::new("r.json");
        let report = report();
        let text = serde_json::to_string_pretty(&report).unwrap();
        assert_eq!(Report::parse(path, text.as_bytes()).unwrap(), report);
        let refused = |text: &str| {
            let error = Report::parse(path, text.as_bytes()).unwrap_err();
            format!("{error}; {}", error.hint().unwrap_or_default())
        };
        let newer = refused(&text.replace("\"version\": 1", "\"version\": 9"));
        assert!(
            newer.starts_with("r.json has version 9 of the layout; this pebs-trace reads version 1; it was written by"),
            "{newer}"
        );
        assert!(refused(&text[..text.len() / 2]).starts_with("r.json is damaged; copy it again"));
        let wrong_type = text.replace("\"quick\": true", "\"quick\": 7");
        assert!(refused(&wrong_type).starts_with("r.json is damaged"));
        for other in ["", "[1]", "{}", "PAR1", "{\"kind\": \"x\", \"version\": 1}"] {
            let error = refused(other);
            assert!(
                error.starts_with("r.json is no result of 'pebs-trace validate'; 'pebs-trace validate --format json"),
                "{other}: {error}"
            );
        }
    }

    /// Numbers as short as they can be read.
    #[test]
    fn values() {
        let figure = |value, unit| Figure::new("x", value, unit, 3);
        assert_eq!(value(&figure(1_234.0, "samples")), "1,234");
        assert_eq!(value(&figure(0.998_76, "")), "0.9988");
        assert_eq!(value(&figure(1_500.0, "ns")), "1.50 us");
        assert_eq!(value(&figure(12.345, "%")), "12.3 %");
        let interval = Figure::share("x", 30, 100).unwrap();
        assert_eq!(value(&interval), "30 (21.9 .. 39.6) %");
        let spread = Some(Spread::Deviation(0.001));
        assert_eq!(
            value(&Figure {
                spread,
                ..figure(1.0, "")
            }),
            "1 ± 0.0010"
        );
    }
}
