//! Figures that commands of pebs-trace and of this task have already: the comparison of PEBS and IBS, Weaver's costs of
//! reading counters, CounterMiner's errors.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Lab;
use crate::frame::page::Section;
use crate::frame::pictures::{dots, draw, line, panel};
use crate::frame::shell;
use crate::frame::table::Table;

/// Columns of the comparison.
const WIDTH: &str = "120";

/// `pebs-trace validate`, beside the figures of the comparison.
pub fn comparison(lab: &Lab) -> Result<Section> {
    let json = lab.clean("validation.json")?;
    let mut command = lab.tool();
    command
        .args(["validate", "--format", "json", "-o"])
        .arg(&json);
    if lab.quick {
        command.arg("--quick");
    }
    let output = shell::collect(shell::show(&mut command))?;
    let report: Value = serde_json::from_slice(&fs::read(&json).with_context(|| {
        format!(
            "validate wrote nothing: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )
    })?)?;
    let mut command = lab.tool();
    command.env("COLUMNS", WIDTH);
    command
        .args(["validate", "--compare"])
        .arg(&json)
        .arg(&json);
    let text = shell::output(&mut command)?;
    let verdicts = verdicts(&report);
    Ok(Section {
        title: "The comparison of PEBS and IBS, by `pebs-trace validate`",
        published:
            "Skylake, Cascade Lake, Zen 2 and Zen 3, each figure with its place, in the table."
                .to_owned(),
        ours: format!(
            "`pebs-trace validate`, once, and `validate --compare` of the result with itself (A and B are this machine):\n\n\
             ```text\n{}\n```\n\n{}",
            text.trim(),
            table(&verdicts)
        ),
        differs: differs(&verdicts),
        pictures: Vec::new(),
        musts: vec![(
            "validate ran, and every experiment has a verdict".to_owned(),
            !verdicts.is_empty(),
        )]
        .into(),
    })
}

/// Name, verdict and the rows that deviate, of each experiment.
type Verdict = (String, String, Vec<String>);

fn verdicts(report: &Value) -> Vec<Verdict> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let experiments = report["experiments"].as_array().into_iter().flatten();
    experiments
        .map(|it| {
            let rows = it["rows"].as_array().into_iter().flatten();
            let deviating = rows.filter(|row| row["holds"] == false);
            let named =
                deviating.map(|row| format!("{} {}", text(&row["event"]), text(&row["case"])));
            (text(&it["name"]), text(&it["verdict"]), named.collect())
        })
        .collect()
}

fn table(verdicts: &[Verdict]) -> String {
    let mut table = Table::new("experiment | verdict | rows that deviate");
    for (name, verdict, rows) in verdicts {
        table.row(format_args!("{name} | {verdict} | {}", rows.join("; ")));
    }
    table.to_string()
}

fn differs(verdicts: &[Verdict]) -> String {
    let deviating = verdicts
        .iter()
        .filter(|it| it.1 == "deviates")
        .map(|it| it.0.as_str());
    let deviating: Vec<&str> = deviating.collect();
    let deviating = match deviating.is_empty() {
        true => "None of the experiments deviates from its truth.".to_owned(),
        false => format!("Experiments that deviate: {}.", deviating.join(", ")),
    };
    format!(
        "Rows of PEBS and IBS say *not on this machine*. What stands in for them, and how it is judged, is the experiment: \
         breakpoints and page faults, whose number and place are known exactly, and clocks, against work of known length. \
         {deviating}"
    )
}

/// `pebs-trace calibrate --counters`, beside Weaver's results.
pub fn reading(lab: &Lab) -> Result<Section> {
    let svg = lab.clean("reading.svg")?;
    let mut command = lab.tool();
    command.args(["calibrate", "--counters", "--format", "json"]);
    command.args(["--duration", if lab.quick { "3" } else { "20" }, "--plot"]);
    let text = shell::output(command.arg(&svg))?;
    let found: Value = serde_json::from_str(&text)?;
    let ways = found["counters"]["ways"]
        .as_array()
        .context("calibrate printed no ways")?;
    let measured = ways.iter().filter_map(Costs::of);
    let measured: Vec<Costs> = measured.collect();
    let mut table =
        Table::new("way | start: | first read: | 10th read: | stop: | each further event:");
    for it in &measured {
        table.row(format_args!(
            "{} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0}",
            it.way, it.start, it.first, it.last, it.stop, it.further
        ));
    }
    let ours = format!(
        "`pebs-trace calibrate --counters`, medians in ns of a group of one event, and by how much each further event makes start, \
         read and stop longer:\n\n{table}"
    );
    let hardware = found["counters"]["is_hardware"] == true;
    Ok(Section {
        title: "Figures 1, 3 and 5 to 8 of Weaver's paper: start, read and stop of counters",
        published: "A read by `rdpmc` costs a few hundred cycles if its page is populated or touched before, thousands at the \
                    first access if not; `read()` 2,000 to 3,000, less with static linking; start more than stop; repeated reads \
                    less than the first; cost linear in the number of events. The figures are pictures of a Core 2 and others, in \
                    cycles."
            .to_owned(),
        ours,
        differs: format!(
            "{} Experiment: the first read against the tenth, and lazily bound `read()` in a new process against a static one, both \
             above: what a first call pays is the same in kind as published.",
            if hardware {
                "Counters of the CPU, as in the paper."
            } else {
                "No counters of the CPU: events are the kernel's own, `rdpmc` has no rows."
            }
        ),
        pictures: vec![("reading.svg", fs::read_to_string(&svg)?)],
        musts: claims(&measured).into(),
    })
}

/// Costs of a way with one event, ns.
struct Costs {
    way: String,
    start: f64,
    first: f64,
    last: f64,
    stop: f64,
    further: f64,
}

impl Costs {
    fn of(way: &Value) -> Option<Self> {
        let by_events = way["by_events"].as_array()?;
        let (one, most) = (by_events.first()?, by_events.last()?);
        let median = |value: &Value| value["median"].as_f64();
        let events = most["events"].as_f64()? - one["events"].as_f64()?;
        let reads = one["reads"].as_array()?;
        Some(Self {
            way: way["way"].as_str()?.to_owned(),
            start: median(&one["start"])?,
            first: median(reads.first()?)?,
            last: median(reads.last()?)?,
            stop: median(&one["stop"])?,
            further: (median(&most["total"])? - median(&one["total"])?) / events,
        })
    }
}

/// Weaver's findings that can be tested here.
fn claims(measured: &[Costs]) -> Vec<(String, bool)> {
    let way = |name: &str| measured.iter().find(|it| it.way == name);
    let mut claims = Vec::new();
    if let Some(read) = way("read") {
        claims.push((
            "repeated reads cost less than the first".to_owned(),
            read.last < read.first,
        ));
        claims.push(("more events cost more".to_owned(), read.further > 0.0));
    }
    if let (Some(lazy), Some(fixed)) = (way("new-lazy"), way("new-static")) {
        claims.push((
            "the first `read()` of a new process costs less if it is linked statically".to_owned(),
            fixed.first < lazy.first,
        ));
    }
    if let (Some(rdpmc), Some(touched)) = (way("rdpmc"), way("rdpmc-touch")) {
        claims.push((
            "the first `rdpmc` costs less if its page was touched before".to_owned(),
            touched.first < rdpmc.first,
        ));
    }
    claims
}

/// The section of `tests/measurements.md` that has the result of `cargo xtask counterminer`.
const COUNTS: &str = "## Counts that shared their counters";

/// CounterMiner's Figure 7, as `cargo xtask counterminer` found it last: that takes longer than all of this.
pub fn mining(_lab: &Lab) -> Result<Section> {
    let text = fs::read_to_string(shell::workspace().join("tests/measurements.md"))?;
    let section = text
        .split_once(COUNTS)
        .context("tests/measurements.md has no such section")?
        .1;
    let section = section.split("\n## ").next().unwrap_or_default().trim();
    let rows = numbers(section);
    let (here, paper) = (rows.get("here, %"), rows.get("paper, %"));
    let (here, paper) = (
        here.context("no row of ours")?,
        paper.context("no row of the paper's")?,
    );
    Ok(Section {
        title: "Figure 7 of CounterMiner: error of counts that shared their counters, before and after cleaning",
        published: "In the row *paper* of the table: 37 % before and 5.3 % after cleaning with 10 events, 54 and 29.4 % with 36."
            .to_owned(),
        ours: format!("The newest result of `cargo xtask counterminer`, from `tests/measurements.md`. {section}"),
        differs: "The events and the programs: counts of Valgrind, shared among four counters by simulation, as there is no CPU \
                  with counters. Why the error after cleaning stays above the paper's, and the experiments that say so (runs of \
                  programs that hardly differ; a machine whose speed wanders), are in the text above."
            .to_owned(),
        pictures: vec![("mining.svg", errors(here, paper))],
        musts: vec![(
            "cleaning makes the error smaller at every number of events".to_owned(),
            here.iter().all(|(_, before, after)| after < before),
        )]
        .into(),
    })
}

/// Events, error before and after, of each row of the table.
fn numbers(section: &str) -> std::collections::HashMap<String, Vec<(f64, f64, f64)>> {
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let rows: Vec<Vec<&str>> = rows
        .map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let Some(events) = rows.first() else {
        return std::collections::HashMap::new();
    };
    let pair = |(events, cell): (&&str, &&str)| {
        let (before, after) = cell.split_once(", ")?;
        Some((
            events.parse().ok()?,
            before.parse().ok()?,
            after.parse().ok()?,
        ))
    };
    let row = |row: &Vec<&str>| {
        let cells = events.iter().zip(row).skip(1).filter_map(pair).collect();
        (row[0].to_owned(), cells)
    };
    rows.iter().skip(1).map(row).collect()
}

fn errors(here: &[(f64, f64, f64)], paper: &[(f64, f64, f64)]) -> String {
    let of = |title: &str, of: fn(&(f64, f64, f64)) -> f64| {
        let points = |rows: &[(f64, f64, f64)]| rows.iter().map(|row| (row.0, of(row))).collect();
        let series = vec![line("paper", points(paper)), dots("here", points(here))];
        panel(title, "events on 4 counters", "error, %", series)
    };
    let panels = [
        of("before cleaning", |row| row.1),
        of("after cleaning", |row| row.2),
    ];
    draw(
        "Error of counts that shared their counters (CounterMiner, Figure 7)",
        &panels,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table in the file of measurements can be parsed.
    #[test]
    fn counts_of_the_measurements() {
        let text = fs::read_to_string(shell::workspace().join("tests/measurements.md")).unwrap();
        let rows = numbers(text.split_once(COUNTS).unwrap().1);
        assert_eq!(rows["paper, %"].first(), Some(&(10.0, 37.0, 5.3)));
        assert!(rows["here, %"].len() >= 5);
    }
}
