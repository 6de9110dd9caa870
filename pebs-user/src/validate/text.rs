//! A report, or two side by side, as text for people.

use super::compare::{Comparison, MachineEntry};
use super::report::{Basis, Experiment, Report, Row, Verdict, value};
use crate::present::Page;
use crate::present::human::columns;
use crate::present::table::{Cell, Column, Table};

/// Figures of a row that are shown; JSON and the page have all.
const FIGURES: usize = 3;

/// A report: a verdict for each experiment, then its rows.
pub(crate) fn page(report: &Report, width: usize) -> Page {
    let mut page = Page::new(width);
    page.paragraph(&heading(report));
    page.gap();
    for experiment in &report.experiments {
        page.paragraph(&verdict(experiment));
    }
    for experiment in &report.experiments {
        page.table(experiment.name.title(), &rows(experiment));
        if experiment.verdict != Verdict::NotHere {
            for line in absent(experiment) {
                page.paragraph(&format!("  {line}"));
            }
        }
    }
    page.gap();
    page.paragraph(LEGEND);
    page
}

/// Explanation of the terms.
pub(crate) const LEGEND: &str = "exact: number and place of the events are known exactly. stand-in: a software event in place of a precise one, \
     or a truth that is measured itself. After a figure: ± its standard deviation over runs, or (low .. high) its 95 % interval.";

/// Machine, time and place of the measurement.
pub(crate) fn heading(report: &Report) -> String {
    let machine = &report.machine;
    let time =
        std::time::UNIX_EPOCH + std::time::Duration::from_secs(report.taken_s.min(MOST_SECONDS));
    let day = humantime::format_rfc3339_seconds(time).to_string();
    let guest = match &machine.hypervisor {
        Some(hypervisor) => format!(", a guest of {hypervisor}"),
        None => String::new(),
    };
    let quick = if report.quick { "quick, " } else { "" };
    let s = if machine.cpus == 1 { "" } else { "s" };
    format!(
        "{}, {} CPU{s}{guest}, Linux {}; pebs-trace {}, {quick}{:.0} s, {}",
        machine.cpu,
        machine.cpus,
        machine.kernel,
        report.tool_version,
        report.seconds,
        day.get(..10).unwrap_or_default()
    )
}

/// The last second that has a date of ten characters.
const MOST_SECONDS: u64 = 253_402_300_799;

/// An experiment's verdict in a sentence.
pub(crate) fn verdict(experiment: &Experiment) -> String {
    let Experiment { name, summary, .. } = experiment;
    format!(
        "{}: {}: {summary}",
        name.title(),
        experiment.verdict.words()
    )
}

fn rows(experiment: &Experiment) -> Table {
    let mut table = Table::new([
        Column::names("event", 12),
        Column::names("case", 12),
        Column::words(""),
        Column::words(""),
        Column::names("figures", 24),
    ]);
    let here = experiment
        .rows
        .iter()
        .filter(|row| row.basis != Basis::NotHere);
    for row in here {
        table.row([
            Cell::Text(row.event.clone()),
            Cell::Text(row.case.clone()),
            Cell::Text(row.basis.words().to_owned()),
            Cell::Text(judgement(row).to_owned()),
            figures(row),
        ]);
    }
    table
}

/// Missing features of the machine, grouped by reason.
fn absent(experiment: &Experiment) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    let rows = experiment
        .rows
        .iter()
        .filter(|row| row.basis == Basis::NotHere);
    for row in rows {
        let why = row.note.as_deref().unwrap_or_default();
        let same_event = |it: &&Row| it.event == row.event;
        let is_case = { experiment.rows.iter().filter(same_event) }.any(|it| it.note != row.note);
        let name = if is_case { &row.case } else { &row.event };
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) if names.contains(&name.as_str()) => {}
            Some((_, names)) => names.push(name),
            None => reasons.push((why, vec![name])),
        }
    }
    let line = |(why, names): (&str, Vec<&str>)| {
        format!("not on this machine: {}: {why}", names.join("; "))
    };
    reasons.into_iter().map(line).collect()
}

/// Verdict on a row.
pub(crate) const fn judgement(row: &Row) -> &'static str {
    match row.holds {
        Some(true) => "holds",
        Some(false) => "deviates",
        None => "",
    }
}

/// As many figures as there is room for, the first one always.
fn figures(row: &Row) -> Cell {
    let shown = row.figures.iter().filter(|it| {
        !matches!(it.name.as_str(), "lost" | "throttled" | "time not counted") || it.value > 0.0
    });
    let shown: Vec<String> = shown
        .map(|it| format!("{} {}", it.name, value(it)))
        .collect();
    let fitted = move |width: usize| {
        let mut text = shown.first().cloned().unwrap_or_default();
        for figure in shown.iter().skip(1).take(FIGURES - 1) {
            if columns(&text) + 2 + columns(figure) > width {
                break;
            }
            text += ", ";
            text += figure;
        }
        text
    };
    // Rows out of bounds are explained.
    match (&row.note, row.holds) {
        (Some(note), Some(false)) => Cell::detailed(fitted, "; ", note.clone()),
        _ => Cell::fitted(fitted),
    }
}

/// Two machines side by side.
pub(crate) fn comparison(compared: &Comparison, width: usize) -> Page {
    let mut page = Page::new(width);
    for machine in compared.machines.iter().take(2) {
        page.paragraph(machine);
    }
    for (aspect, cells) in &compared.aspects {
        if cells.iter().all(Option::is_none) {
            continue;
        }
        page.gap();
        page.paragraph(aspect.title());
        for (n, (machine, cell)) in compared.machines.iter().zip(cells).enumerate() {
            let Some(MachineEntry { text, source }) = cell else {
                continue;
            };
            let name = ["A", "B"].get(n).map_or(machine.as_str(), |letter| letter);
            let source = source.as_ref().map(|it| format!(" [{it}]"));
            page.paragraph(&format!("  {name}: {text}{}", source.unwrap_or_default()));
        }
    }
    let mut table = Table::new([
        Column::names("event", 14),
        Column::names("case", 16),
        Column::names("figure", 18),
        Column::number("A"),
        Column::number("B"),
        Column::words("differ"),
    ]);
    for pair in compared.figures.iter().filter(|it| it.differ == Some(true)) {
        let [a, b] = pair.texts();
        let cells = [&pair.event, &pair.case, &pair.name, &a, &b].map(|it| Cell::Text(it.clone()));
        table.row(cells.into_iter().chain([Cell::Text("yes".to_owned())]));
    }
    page.table("Figures whose intervals do not overlap", &table);
    page.gap();
    page.paragraph(&format!(
        "Published: {}. {}",
        compared.source[0], compared.source[1]
    ));
    page
}

/// A line for the doctor.
pub(crate) fn line(report: &Report) -> String {
    let of = |verdict| {
        let names = report.experiments.iter().filter(|it| it.verdict == verdict);
        names.map(|it| it.name.title()).collect::<Vec<_>>()
    };
    let (holds, deviates) = (of(Verdict::Holds), of(Verdict::Deviates));
    let day = heading(report);
    let day = day.rsplit(", ").next().unwrap_or_default().to_owned();
    let all = report.experiments.len();
    if deviates.is_empty() {
        format!("{} of {all} experiments hold, {day}", holds.len())
    } else {
        format!(
            "{} of {all} experiments deviate ({}), {day}",
            deviates.len(),
            deviates.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::compare::compare;
    use crate::validate::report::tests::report;

    /// The text has a verdict for each experiment, rows out of bounds with the reason, and missing features once.
    #[test]
    fn text() {
        let text = page(&report(), 100).plain();
        for part in [
            "accuracy of counts: deviates: 1 of 2 rows out of bounds: cpu-clock, 1 thread; 1 not on",
            "memory accesses: not on this machine: no hardware PMU here",
            "samples 5,000",
            "deviates",
            "within 5 %",
            "2025-11-24",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
    }

    /// Both machines, and the published figures with their places.
    #[test]
    fn two_machines() {
        let report = report();
        let text = comparison(&compare([&report, &report]), 90).plain();
        for part in [
            "A: ",
            "B: ",
            "Cascade Lake",
            "[section IV.G.3]",
            "Published: Sasongko",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert!(
            !text.contains("do not overlap"),
            "equal machines do not differ:\n{text}"
        );
    }

    /// The doctor's line names the deviations.
    #[test]
    fn for_the_doctor() {
        let mut report = report();
        assert_eq!(
            line(&report),
            "1 of 2 experiments deviate (accuracy of counts), 2025-11-24"
        );
        report.experiments.remove(0);
        assert_eq!(line(&report), "0 of 1 experiments hold, 2025-11-24");
    }
}
