//! A report, or two side by side, as one self-contained page.

use std::io::{self, Write};

use askama::Template;

use super::compare::{Comparison, MachineEntry};
use super::report::{Report, Row, Verdict, value};
use super::text::{LEGEND, heading, judgement};

/// The page of a report.
#[derive(Template)]
#[template(path = "validate.html")]
struct View<'a> {
    heading: String,
    legend: &'static str,
    experiments: Vec<Section<'a>>,
}

struct Section<'a> {
    title: &'static str,
    verdict: &'static str,
    class: &'static str,
    summary: &'a str,
    rows: Vec<Line<'a>>,
}

struct Line<'a> {
    row: &'a Row,
    basis: &'static str,
    verdict: &'static str,
    figures: Vec<(String, String, u64)>,
    note: &'a str,
}

/// The page of a comparison.
#[derive(Template)]
#[template(path = "validate-compare.html")]
struct Side<'a> {
    machines: &'a [String],
    aspects: Vec<(&'static str, Vec<(String, String)>)>,
    figures: Vec<(&'static str, String, [String; 2], &'static str)>,
    source: &'a [String; 2],
}

/// Writes the page of a report.
///
/// # Errors
/// If `out` fails.
pub(crate) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let line = |row| -> Line<'_> {
        let row: &Row = row;
        Line {
            row,
            basis: row.basis.words(),
            verdict: judgement(row),
            figures: { row.figures.iter() }
                .map(|it| (it.name.clone(), value(it), it.n))
                .collect(),
            note: row.note.as_deref().unwrap_or_default(),
        }
    };
    let sections = report.experiments.iter().map(|it| Section {
        title: it.name.title(),
        verdict: it.verdict.words(),
        class: class(it.verdict),
        summary: &it.summary,
        rows: it.rows.iter().map(line).collect(),
    });
    let view = View {
        heading: heading(report),
        legend: LEGEND,
        experiments: sections.collect(),
    };
    view.write_into(out)?;
    out.flush()
}

const fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "good",
        Verdict::Deviates => "bad",
        Verdict::Measured | Verdict::NotHere => "none",
    }
}

/// Writes the page of a comparison.
///
/// # Errors
/// If `out` fails.
pub(crate) fn write_comparison(compared: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let cell = |cell: &Option<MachineEntry>| match cell {
        Some(MachineEntry { text, source }) => (text.clone(), source.clone().unwrap_or_default()),
        None => (String::new(), String::new()),
    };
    let aspects = compared.aspects.iter();
    let view = Side {
        machines: &compared.machines,
        aspects: aspects
            .map(|(aspect, cells)| (aspect.title(), cells.iter().map(cell).collect()))
            .collect(),
        figures: { compared.figures.iter() }
            .map(|pair| {
                let what = format!("{}, {}: {}", pair.event, pair.case, pair.name);
                let differ = match pair.differ {
                    Some(true) => "yes",
                    Some(false) => "no",
                    None => "",
                };
                (pair.experiment.title(), what, pair.texts(), differ)
            })
            .collect(),
        source: &compared.source,
    };
    view.write_into(out)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::compare::compare;
    use crate::validate::report::tests::report;

    /// Everything is in the page, escaped, and nothing is loaded from elsewhere.
    #[test]
    fn pages() {
        let mut report = report();
        report.machine.cpu = "<b>CPU</b>".to_owned();
        let mut page = Vec::new();
        write(&report, &mut page).unwrap();
        let mut side = Vec::new();
        write_comparison(&compare([&report, &report]), &mut side).unwrap();
        for (page, parts) in [
            (
                page,
                [
                    "accuracy of counts",
                    "deviates",
                    "5,000",
                    "no hardware PMU here",
                ],
            ),
            (
                side,
                ["Cascade Lake", "section IV.G.3", "samples/expected", "A: "],
            ),
        ] {
            let text = String::from_utf8(page).unwrap();
            for part in parts {
                assert!(text.contains(part), "{part}:\n{text}");
            }
            assert!(
                !text.contains("<b>CPU") && text.contains("b&#62;CPU"),
                "{text}"
            );
            for from_elsewhere in ["http://", "https://", "src=", "<script"] {
                assert!(!text.contains(from_elsewhere), "{from_elsewhere}");
            }
        }
    }
}
