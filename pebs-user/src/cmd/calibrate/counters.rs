//! `pebs-trace calibrate --counters`: the cost to a program of counting its own events.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use indicatif::ProgressBar;
use serde_json::json;

use super::CalibrateArgs;
use crate::cmd::values::Format;
use crate::cost::counters::boxes::{self, Row};
use crate::cost::counters::{Counters, OfEvents, OfWay, READS, ROUNDS, Spread, measure};
use crate::cost::plot::{self, Look, Panel, Series};
use crate::failure::{Context as _, Result};
use crate::pmu::host::Host;
use crate::present::human::UNKNOWN;
use crate::present::table::{Cell, Column, Table};
use crate::terminal;

/// Measures and prints.
///
/// # Errors
/// If this user may not count events, or the file can't be written.
pub(super) fn run(args: &CalibrateArgs) -> Result<ExitCode> {
    let host = Host::probe(Path::new("/"));
    let bar = ProgressBar::new_spinner();
    let counters = measure(args.duration, |round| {
        bar.set_message(format!("round {round} of {ROUNDS}"));
        bar.tick();
    });
    bar.finish_and_clear();
    let counters = counters.context("cannot calibrate counters")?;
    let title = title(&host, &counters);
    if let Some(file) = &args.plot {
        let drawn = svg(&title, &counters);
        std::fs::write(file, drawn).with_context(|| format!("cannot write {}", file.display()))?;
    }
    match args.format {
        Format::Text => print!("{}", text(&title, &counters, terminal::width())),
        Format::Json => {
            let whole =
                json!({ "cpu": host.cpu.name, "kernel": host.release, "counters": counters });
            println!("{}", serde_json::to_string_pretty(&whole)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn title(host: &Host, counters: &Counters) -> String {
    let kind = if counters.is_hardware {
        "hardware"
    } else {
        "software"
    };
    format!(
        "counting oneself: {kind} events on {}, Linux {}",
        host.cpu.name, host.release
    )
}

/// A column of the table: a call and its cost in a group of one event.
type Call = (&'static str, fn(&OfEvents) -> &Spread);

const CALLS: [Call; 5] = [
    ("start", |costs| &costs.start),
    ("first read", OfEvents::first),
    ("10th read", OfEvents::last),
    ("stop", |costs| &costs.stop),
    ("start, read, stop", |costs| &costs.total),
];

fn ns(spread: &Spread) -> String {
    format!("{:.0}", spread.median)
}

/// Ways with costs.
fn measured(counters: &Counters) -> impl Iterator<Item = &OfWay> {
    counters.ways.iter().filter(|it| !it.by_events.is_empty())
}

/// A row for each measured way, with a number for each of `values`.
fn table(
    counters: &Counters,
    first: &str,
    columns: impl IntoIterator<Item = String>,
    cells: impl Fn(&OfWay) -> Vec<Option<String>>,
    width: usize,
) -> String {
    let names = std::iter::once(Column::words(first));
    let numbers = columns.into_iter().map(Column::number);
    let mut table = Table::new(names.chain(numbers));
    for of_way in measured(counters) {
        let name = of_way.way.name().to_owned();
        let cells = cells(of_way)
            .into_iter()
            .map(|cell| cell.unwrap_or_else(|| UNKNOWN.to_owned()));
        table.row(std::iter::once(name).chain(cells).map(Cell::Text));
    }
    let mut text = table.lines(width).join("\n");
    text.push('\n');
    text
}

fn text(title: &str, counters: &Counters, width: usize) -> String {
    let rounds = measured(counters)
        .map(|it| it.by_events[0].start.rounds)
        .max();
    let first = counters.events.first().map_or(UNKNOWN, String::as_str);
    // Writing to a string does not fail.
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{title}\nmedians of {} rounds, ns; the clock's own {:.0} ns are subtracted; new: in a process that was just started\n",
        rounds.unwrap_or_default(),
        counters.clock_ns
    );
    let columns = CALLS.iter().map(|(name, _)| (*name).to_owned());
    let one = |of_way: &OfWay| {
        CALLS
            .iter()
            .map(|(_, of)| Some(ns(of(&of_way.by_events[0]))))
            .collect()
    };
    text += &table(
        counters,
        &format!("one event ({first})"),
        columns,
        one,
        width,
    );
    for OfWay {
        way, not_measured, ..
    } in &counters.ways
    {
        if let Some(reason) = not_measured {
            let _ = writeln!(text, "  {}: not measured: {reason}", way.name());
        }
    }
    let _ = writeln!(
        text,
        "\n▒ 25..75 %, │ median, ├ ┤ one standard deviation, × outlier"
    );
    for (name, of) in CALLS {
        let rows: Vec<Row<'_>> = rows(counters, of).collect();
        let _ = write!(text, "\n{name}\n{}", boxes::text(&rows, width));
    }
    text.push('\n');
    let reads = |of_way: &OfWay| {
        of_way.by_events[0]
            .reads
            .iter()
            .map(|read| Some(ns(read)))
            .collect()
    };
    text += &table(
        counters,
        "n-th read of one event",
        (1..=READS).map(|n| n.to_string()),
        reads,
        width,
    );
    for (name, of) in CALLS {
        text.push('\n');
        let most = counters.events.len();
        let by_events = |of_way: &OfWay| {
            let costs = |events| of_way.by_events.iter().find(|it| it.events == events);
            (1..=most)
                .map(|events| costs(events).map(|it| ns(of(it))))
                .collect()
        };
        text += &table(
            counters,
            &format!("{name} of n events"),
            (1..=most).map(|n| n.to_string()),
            by_events,
            width,
        );
    }
    text
}

/// Box plot rows of a call with one event.
fn rows(counters: &Counters, of: fn(&OfEvents) -> &Spread) -> impl Iterator<Item = Row<'_>> {
    measured(counters).map(move |it| Row {
        name: it.way.name(),
        spread: of(&it.by_events[0]),
    })
}

fn svg(title: &str, counters: &Counters) -> String {
    let panels = CALLS.map(|(name, of)| (name, rows(counters, of).collect::<Vec<_>>()));
    let (width, height) = boxes::size(&panels);
    let lines = plot::draw(
        "Groups of 1 to 8 events, and the n-th read of one event",
        &lines(counters),
    );
    let (wide, high) = plot::size(2 * measured(counters).count());
    let (whole_width, whole_height) = (width.max(wide), TITLE + height + high);
    let title = plot::escaped(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {whole_width} {whole_height}\" width=\"{whole_width}\" \
         height=\"{whole_height}\" role=\"img\">\n<title>{title}</title>\n\
         <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"title\" x=\"16\" y=\"26\">{title}</text>\n\
         <g transform=\"translate(0 {TITLE})\">\n{}</g>\n<g transform=\"translate(0 {})\">\n{lines}</g>\n</svg>\n",
        boxes::svg(&panels),
        TITLE + height
    )
}

/// Room for the title.
const TITLE: f64 = 36.0;

/// Two panels for each way: costs by number of events, and of repeated reads.
fn lines(counters: &Counters) -> Vec<Panel> {
    let panels = measured(counters).flat_map(|it| {
        let by_events = |of: fn(&OfEvents) -> &Spread| {
            it.by_events
                .iter()
                .map(move |costs| (costs.events as f64, of(costs).median))
        };
        let reads = it.by_events[0].reads.iter().enumerate();
        let panel = |across: &str, series| Panel {
            title: it.way.name().to_owned(),
            across: across.to_owned(),
            up: "ns".to_owned(),
            series,
        };
        let series = |name: &str, look, points| Series {
            name: name.to_owned(),
            look,
            points,
        };
        [
            panel(
                "events",
                vec![
                    series(
                        "start, read, stop",
                        Look::Line,
                        by_events(|costs| &costs.total).collect(),
                    ),
                    series(
                        "first read",
                        Look::Dots,
                        by_events(OfEvents::first).collect(),
                    ),
                ],
            ),
            panel(
                "read",
                vec![series(
                    "one event",
                    Look::Dots,
                    reads
                        .map(|(n, read)| (n as f64 + 1.0, read.median))
                        .collect(),
                )],
            ),
        ]
    });
    panels.collect()
}
