//! Compares machines with each other and with the paper's published figures.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::report::{Basis, Experiment, Figure, Name, Report, Row, Spread, value};

/// Aspects of the comparison, as in the paper's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Aspect {
    Counters,
    Accuracy,
    Sensitivity,
    Stability,
    Bias,
    ManyEvents,
    Memory,
    Modes,
    Overhead,
    MemoryOverhead,
    TimeStamps,
}

impl Aspect {
    const ALL: [Self; 11] = [
        Self::Counters,
        Self::Accuracy,
        Self::Sensitivity,
        Self::Stability,
        Self::Bias,
        Self::ManyEvents,
        Self::Memory,
        Self::Modes,
        Self::Overhead,
        Self::MemoryOverhead,
        Self::TimeStamps,
    ];

    /// In words.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Counters => "counters",
            Self::Accuracy => "accuracy of counts (100 % is exact)",
            Self::Sensitivity => "accuracy at the smallest and the largest reset value",
            Self::Stability => "largest standard deviation over runs",
            Self::Bias => "largest share of one of four equal instructions, and share off them",
            Self::ManyEvents => "accuracy with one event, and with most at once",
            Self::Memory => "memory accesses that say what they are",
            Self::Modes => "samples in the wrong mode",
            Self::Overhead => "time overhead on one thread, without and with delivery",
            Self::MemoryOverhead => "memory overhead of the target",
            Self::TimeStamps => "samples in a wrong item",
        }
    }

    const fn experiment(self) -> Name {
        match self {
            Self::Accuracy => Name::Accuracy,
            Self::Sensitivity | Self::Stability => Name::Sensitivity,
            Self::Bias => Name::Bias,
            Self::Counters | Self::ManyEvents => Name::ManyEvents,
            Self::Memory => Name::Memory,
            Self::Modes => Name::Modes,
            Self::Overhead | Self::MemoryOverhead => Name::Overhead,
            Self::TimeStamps => Name::TimeStamps,
        }
    }

    /// The report's entry on it; `None`: not tried, or not applicable.
    fn of(self, report: &Report) -> Option<String> {
        let experiment = report.experiment(self.experiment())?;
        let events = events(experiment);
        let parts: Vec<String> = { events.iter() }
            .filter_map(|(event, rows)| {
                let summary = self.of_event(rows)?;
                Some(format!("{event} {summary}"))
            })
            .collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    fn of_event(self, rows: &[&Row]) -> Option<String> {
        let ratio = |row: &Row| row.value(RATIO).map(accuracy);
        match self {
            Self::Counters => {
                let open = rows.iter().find_map(|row| row.value("open at once"))?;
                Some(format!("{open:.0}"))
            }
            Self::Accuracy => {
                let all: Vec<f64> = rows.iter().filter_map(|row| ratio(row)).collect();
                range(&all)
            }
            Self::Sensitivity => {
                let (first, last) = (rows.first()?, rows.last()?);
                let [first_is, last_is] = [ratio(first)?, ratio(last)?].map(percent);
                Some(format!(
                    "{first_is} at {}, {last_is} at {}",
                    first.case, last.case
                ))
            }
            Self::Stability => {
                let deviations = rows.iter().filter_map(|row| {
                    let figure = row.figures.iter().find(|it| it.name == RATIO)?;
                    match figure.spread? {
                        Spread::Deviation(deviation) => Some(deviation * 100.0),
                        Spread::Interval(..) => None,
                    }
                });
                deviations.reduce(f64::max).map(percent)
            }
            Self::Bias => {
                // A reset value that is a multiple of the events of a round is no measure of bias.
                let is_fair =
                    |row: &&&Row| row.basis == Basis::Exact && row.value("chi-square").is_some();
                let fair = rows.iter().find(is_fair)?;
                let share = { fair.figures.iter() }
                    .filter(|it| it.name.starts_with("at instruction"))
                    .map(|it| it.value)
                    .reduce(f64::max)?;
                let off = fair.value("off the event's instructions")?;
                Some(format!("{} and {}", percent(share), percent(off)))
            }
            Self::ManyEvents => {
                let worst = |row: &Row| {
                    let ratios = row.figures.iter().filter(|it| it.name.ends_with(RATIO));
                    ratios.map(|it| accuracy(it.value)).reduce(f64::min)
                };
                let here: Vec<&&Row> = rows.iter().filter(|row| worst(row).is_some()).collect();
                let (first, last) = (here.first()?, here.last()?);
                let [first_is, last_is] = [worst(first)?, worst(last)?].map(percent);
                Some(format!(
                    "{first_is} at {}, {last_is} at {}",
                    first.case, last.case
                ))
            }
            Self::Memory => {
                let shares: Vec<String> = { rows.iter() }
                    .filter_map(|row| {
                        let share = row
                            .value("as it is")
                            .or_else(|| row.value("address of the page touched"))?;
                        Some(format!("{} {}", row.case, percent(share)))
                    })
                    .collect();
                (!shares.is_empty()).then(|| shares.join(", "))
            }
            Self::Modes => rows
                .iter()
                .find_map(|row| row.value("in the wrong mode"))
                .map(percent),
            Self::Overhead => {
                // A breakpoint stops at each execution, so its share depends on how often that was.
                let first = rows.iter().find(|row| row.value("overhead").is_some())?;
                let reset = first.case.split(',').next()?;
                let overhead = |how: &str| {
                    let case = format!("{reset}, {how}, 1 thread");
                    let row = rows.iter().find(|row| row.case == case)?;
                    Some(format!("{} {how}", percent(row.value("overhead")?)))
                };
                let ways = ["not delivered", "bulk", "bpf"].into_iter();
                let parts: Vec<String> = ways.filter_map(overhead).collect();
                let is_breakpoint = first.event.starts_with("breakpoint");
                (!is_breakpoint).then(|| format!("{} ({reset})", parts.join(", ")))
            }
            Self::MemoryOverhead => {
                let row = rows.iter().find(|row| row.case.starts_with("memory"))?;
                Some(percent(row.value("memory overhead of the target")?))
            }
            Self::TimeStamps => {
                let of = |row: &&&Row| {
                    let (wrong, all) =
                        (row.value("samples in a wrong item")?, row.value("samples")?);
                    Some(format!("{wrong:.0} of {all:.0} ({})", row.case))
                };
                let parts: Vec<String> = rows.iter().filter_map(|row| of(&row)).collect();
                (!parts.is_empty()).then(|| parts.join(", "))
            }
        }
    }
}

/// The figure of accuracy: samples, lost ones included, per expected one.
const RATIO: &str = "samples/expected";

/// The paper's accuracy, percent.
fn accuracy(ratio: f64) -> f64 {
    (1.0 - (ratio - 1.0).abs()) * 100.0
}

fn percent(value: f64) -> String {
    match value {
        v if v == v.round() => format!("{v:.0} %"),
        // 99.96 is not 100.
        v if v.abs() < 10.0 || (v - v.round()).abs() < 0.05 => format!("{v:.2} %"),
        v => format!("{v:.1} %"),
    }
}

fn range(all: &[f64]) -> Option<String> {
    let least = all.iter().copied().reduce(f64::min)?;
    let most = all.iter().copied().reduce(f64::max)?;
    let [least, most] = [least, most].map(percent);
    Some(if least == most {
        least
    } else {
        format!("{least} to {most}")
    })
}

/// Rows by event, in the order of the report, without those that the machine has not.
fn events(experiment: &Experiment) -> Vec<(&str, Vec<&Row>)> {
    let mut events: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in experiment
        .rows
        .iter()
        .filter(|row| row.basis != Basis::NotHere)
    {
        match events.iter_mut().find(|(event, _)| *event == row.event) {
            Some((_, rows)) => rows.push(row),
            None => events.push((&row.event, vec![row])),
        }
    }
    events
}

/// The published figures.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct References {
    /// Title of the paper.
    pub paper: String,
    /// Note on all figures.
    pub note: String,
    machines: Vec<Reference>,
}

#[derive(Clone, Debug, Deserialize)]
struct Reference {
    name: String,
    aspects: BTreeMap<Aspect, (String, String)>,
}

impl References {
    /// The references built into this program.
    pub(crate) fn embedded() -> Self {
        // A test reads it.
        serde_json::from_str(include_str!("references.json")).unwrap_or_else(|_| Self {
            paper: String::new(),
            note: String::new(),
            machines: Vec::new(),
        })
    }
}

/// Entry of a machine on an aspect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MachineEntry {
    /// The figures.
    pub text: String,
    /// Place of publication; `None`: measured here.
    pub source: Option<String>,
}

/// Machines side by side.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    /// Their names.
    pub machines: Vec<String>,
    /// Entry of each machine, by aspect; `None`: no entry.
    pub aspects: Vec<(Aspect, Vec<Option<MachineEntry>>)>,
    /// Figures of both reports that belong together.
    pub figures: Vec<Pair>,
    /// The published figures' source and note.
    pub source: [String; 2],
}

/// A figure of both machines.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pair {
    /// Experiment.
    pub experiment: Name,
    /// Event.
    pub event: String,
    /// Case.
    pub case: String,
    /// Figure.
    pub name: String,
    /// Its values.
    pub values: [Figure; 2],
    /// Whether their intervals, or two standard deviations around them, are disjoint; `None`: one has
    /// neither.
    pub differ: Option<bool>,
}

/// Puts two reports side by side, and beside the published figures.
pub(crate) fn compare(reports: [&Report; 2]) -> Comparison {
    let references = References::embedded();
    let names = ["A", "B"].into_iter().zip(reports);
    let names = names.map(|(letter, report)| {
        let Report { machine, .. } = report;
        let quick = if report.quick { ", quick" } else { "" };
        format!("{letter}: {}, Linux {}{quick}", machine.cpu, machine.kernel)
    });
    let machines = names.chain(references.machines.iter().map(|it| it.name.clone()));
    let aspects = Aspect::ALL.map(|aspect| {
        let ours = reports.iter().map(|report| {
            let text = aspect.of(report)?;
            Some(MachineEntry { text, source: None })
        });
        let published = references.machines.iter().map(|it| {
            let (text, source) = it.aspects.get(&aspect)?;
            Some(MachineEntry {
                text: text.clone(),
                source: Some(source.clone()),
            })
        });
        (aspect, ours.chain(published).collect())
    });
    Comparison {
        machines: machines.collect(),
        aspects: aspects.into_iter().collect(),
        figures: pairs(reports),
        source: [references.paper.clone(), references.note.clone()],
    }
}

/// Figures that both reports have. Counts are left out: they are amounts of work.
fn pairs([a, b]: [&Report; 2]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for ours in &a.experiments {
        let Some(theirs) = b.experiment(ours.name) else {
            continue;
        };
        for row in &ours.rows {
            let same = |other: &&Row| (&other.event, &other.case) == (&row.event, &row.case);
            let Some(other) = theirs.rows.iter().find(same) else {
                continue;
            };
            for figure in row.figures.iter().filter(|it| !is_count(it)) {
                let Some(second) = other.figures.iter().find(|it| it.name == figure.name) else {
                    continue;
                };
                pairs.push(Pair {
                    experiment: ours.name,
                    event: row.event.clone(),
                    case: row.case.clone(),
                    name: figure.name.clone(),
                    values: [figure.clone(), second.clone()],
                    differ: differ(figure, second),
                });
            }
        }
    }
    pairs
}

/// Whether a figure is an amount of work.
fn is_count(figure: &Figure) -> bool {
    matches!(figure.unit.as_str(), "samples" | "items" | "events")
}

/// Bounds of a figure.
fn bounds(figure: &Figure) -> Option<(f64, f64)> {
    Some(match figure.spread? {
        Spread::Deviation(deviation) => (
            figure.value - 2.0 * deviation,
            figure.value + 2.0 * deviation,
        ),
        Spread::Interval(low, high) => (low, high),
    })
}

fn differ(a: &Figure, b: &Figure) -> Option<bool> {
    let (a, b) = (bounds(a)?, bounds(b)?);
    Some(a.1 < b.0 || b.1 < a.0)
}

impl Pair {
    /// Both values as text.
    pub(crate) fn texts(&self) -> [String; 2] {
        [value(&self.values[0]), value(&self.values[1])]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::report::tests::report;

    /// The published figures are parsed, and each has a place of publication.
    #[test]
    fn references() {
        let references = References::embedded();
        let names: Vec<&str> = references
            .machines
            .iter()
            .map(|it| it.name.as_str())
            .collect();
        assert_eq!(
            names,
            [
                "Skylake",
                "Cascade Lake",
                "Zen 2",
                "Zen 3",
                "Intel (data set)"
            ]
        );
        for machine in &references.machines {
            for (text, source) in machine.aspects.values() {
                assert!(!text.is_empty());
                assert!(
                    source.contains("section ") || source.contains("data set"),
                    "{source}"
                );
            }
        }
        let modes = &references.machines[2].aspects[&Aspect::Modes];
        assert_eq!(modes.0, "IBS: 41 of 10 K in the wrong mode");
        assert!(references.note.contains("not named"));
    }

    /// Two machines and the published ones: a cell each, empty where unknown.
    #[test]
    fn side_by_side() {
        let ours = report();
        let mut other = report();
        other.machine.cpu = "Other CPU".to_owned();
        let spread = Some(Spread::Deviation(0.001));
        let figure = &mut other.experiments[0].rows[0].figures[1];
        (figure.value, figure.spread) = (0.5, spread);
        let compared = compare([&ours, &other]);
        assert_eq!(compared.machines.len(), 7);
        assert!(
            compared.machines[1].starts_with("B: Other CPU, Linux "),
            "{:?}",
            compared.machines
        );
        let (_, cells) = compared
            .aspects
            .iter()
            .find(|it| it.0 == Aspect::Accuracy)
            .unwrap();
        let text = |n: usize| cells[n].as_ref().map(|it| it.text.as_str());
        assert_eq!(text(0), Some("breakpoint 100 %"));
        assert_eq!(text(1), Some("breakpoint 50 %"));
        assert!(text(2).unwrap().starts_with("PEBS: "));
        let (_, cells) = compared
            .aspects
            .iter()
            .find(|it| it.0 == Aspect::Memory)
            .unwrap();
        assert!(
            cells.iter().all(Option::is_none),
            "not here, and not in the paper"
        );
        let [ratio, share] = &compared.figures[..] else {
            panic!("{:?}", compared.figures);
        };
        assert_eq!((ratio.name.as_str(), ratio.differ), (RATIO, Some(true)));
        assert_eq!((share.name.as_str(), share.differ), ("off", Some(false)));
    }

    /// Touching intervals do not differ; without an interval there is no verdict.
    #[test]
    fn differences() {
        let with = |value: f64, spread| Figure {
            spread,
            ..Figure::new("x", value, "", 5)
        };
        let interval = |low, high| with(low, Some(Spread::Interval(low, high)));
        assert_eq!(
            differ(&interval(1.0, 2.0), &interval(2.0, 3.0)),
            Some(false)
        );
        assert_eq!(differ(&interval(1.0, 2.0), &interval(2.1, 3.0)), Some(true));
        assert_eq!(differ(&with(1.0, None), &interval(2.0, 3.0)), None);
        assert_eq!(range(&[99.5, 100.0]), Some("99.5 % to 100 %".to_owned()));
        assert_eq!(range(&[]), None);
    }
}
