//! Result of mining as one self-contained page: importance, error against number of events, series before and after
//! cleaning.
//!
//! Figures are drawn here, as SVG; the page has no script. Names are escaped by askama, in figures by [`escaped`].

use std::fmt::Write as _;
use std::io::{self, Write};

use askama::Template;

use super::text;
use crate::compare::mine::across::CauseOf;
use crate::compare::mine::{Drawn, Interval, Mined, ModelOf, RankedEvents};
use crate::present::human::{events, percent, safe};

/// The page. Figures are trusted, nothing else is.
#[derive(Template)]
#[template(path = "mine.html")]
struct View {
    files: String,
    verdict: String,
    importance: String,
    errors: String,
    series: Vec<(String, String)>,
    report: String,
}

/// Writes the page; `top`: events that are listed and drawn.
///
/// # Errors
/// If `out` fails.
pub fn write(mined: &Mined, top: usize, out: &mut dyn Write) -> io::Result<()> {
    let report = text::render(mined, top);
    let ranking = mined.ranking.as_ref();
    let view = View {
        files: mined.files.join(", "),
        verdict: report
            .split("\n  ")
            .next()
            .unwrap_or_default()
            .replace('\n', " "),
        importance: match (ranking, &mined.across) {
            (Some(it), _) => importance(it.events.iter().map(Bar::of_events), top),
            (None, Some(it)) => importance(it.causes.iter().map(Bar::of_cause), top),
            (None, None) => String::new(),
        },
        errors: ranking.map_or_else(String::new, |it| errors(&it.models, it.best)),
        series: mined
            .drawn
            .iter()
            .map(|it| (it.event.clone(), series(it)))
            .collect(),
        report,
    };
    view.write_into(out)?;
    out.flush()
}

/// Text within SVG.
fn escaped(text: &str) -> String {
    safe(text, 40)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Width of a figure, in the units of its view box.
const WIDTH: f64 = 800.0;

/// Height of a figure with axes.
const HEIGHT: f64 = 240.0;

/// Room for labels on the left, and below.
const MARGIN: (f64, f64) = (60.0, 28.0);

fn svg(height: f64, label: &str, body: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">{body}</svg>",
        escaped(label)
    )
}

/// A bar of the figure of importance.
struct Bar<'a> {
    names: &'a [String],
    effect: &'a Interval,
    is_noise: bool,
}

impl<'a> Bar<'a> {
    fn of_events(of: &'a RankedEvents) -> Self {
        Self {
            names: &of.events,
            effect: &of.effect,
            is_noise: of.is_noise,
        }
    }

    fn of_cause(of: &'a CauseOf) -> Self {
        Self {
            names: &of.names,
            effect: &of.effect,
            is_noise: of.is_noise,
        }
    }
}

fn importance<'a>(bars: impl Iterator<Item = Bar<'a>>, top: usize) -> String {
    const ROW: f64 = 22.0;
    const NAMES: f64 = 270.0;
    let shown: Vec<Bar<'_>> = bars.take(top).collect();
    let most = shown
        .iter()
        .map(|it| it.effect.high)
        .fold(f64::MIN_POSITIVE, f64::max);
    let x = |share: f64| NAMES + share.max(0.0) / most * (WIDTH - NAMES - 70.0);
    let mut body = String::new();
    for (at, it) in shown.iter().enumerate() {
        let y = at as f64 * ROW;
        let names = it.names.join(" = ");
        let class = if it.is_noise { "noise" } else { "bar" };
        let (end, low, high) = (x(it.effect.mean), x(it.effect.low), x(it.effect.high));
        let middle = y + 10.0;
        // Writing to a string cannot fail.
        let _ = write!(
            body,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><rect class=\"{class}\" x=\"{NAMES}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\"/>\
             <line class=\"whisker\" x1=\"{low:.1}\" x2=\"{high:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            NAMES - 6.0,
            y + 14.0,
            escaped(&names),
            y + 3.0,
            end - NAMES,
            high + 6.0,
            y + 14.0,
            percent(it.effect.mean)
        );
    }
    svg(
        shown.len() as f64 * ROW + 4.0,
        "share of the variance by event",
        &body,
    )
}

/// A frame with the highest value at its side.
fn axes(most: &str, first: &str, last: &str) -> String {
    let (left, bottom) = (MARGIN.0, HEIGHT - MARGIN.1);
    format!(
        "<line class=\"axis\" x1=\"{left}\" x2=\"{left}\" y1=\"8\" y2=\"{bottom}\"/><line class=\"axis\" x1=\"{left}\" x2=\"{WIDTH}\" y1=\"{bottom}\" y2=\"{bottom}\"/>\
         <text x=\"{0}\" y=\"16\" text-anchor=\"end\">{most}</text><text x=\"{0}\" y=\"{bottom}\" text-anchor=\"end\">0</text>\
         <text x=\"{left}\" y=\"{1}\">{first}</text><text x=\"{WIDTH}\" y=\"{1}\" text-anchor=\"end\">{last}</text>",
        left - 6.0,
        HEIGHT - 8.0
    )
}

/// As the paper's figure 8: from all events on the left to one on the right.
fn errors(models: &[ModelOf], best: usize) -> String {
    let most = models
        .iter()
        .map(|it| it.error)
        .fold(f64::MIN_POSITIVE, f64::max);
    let (all, last) = (models.first().map_or(1, |it| it.events.len()), 1.0);
    let x = |count: usize| {
        let span = (all as f64 - last).max(1.0);
        MARGIN.0 + (all - count) as f64 / span * (WIDTH - MARGIN.0 - 8.0)
    };
    let y = |error: f64| HEIGHT - MARGIN.1 - error / most * (HEIGHT - MARGIN.1 - 10.0);
    let points: Vec<String> = models
        .iter()
        .map(|it| format!("{:.1},{:.1}", x(it.events.len()), y(it.error)))
        .collect();
    let mut body = axes(&percent(most), &format!("{all} events"), "1 event");
    let _ = write!(
        body,
        "<polyline class=\"line\" points=\"{}\"/>",
        points.join(" ")
    );
    if let Some(it) = models.get(best) {
        let (at, height) = (x(it.events.len()), y(it.error));
        let _ = write!(
            body,
            "<circle class=\"best\" cx=\"{at:.1}\" cy=\"{height:.1}\" r=\"4\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} events, {}</text>",
            height - 10.0,
            it.events.len(),
            percent(it.error)
        );
    }
    svg(
        HEIGHT,
        "error of the model against its number of events",
        &body,
    )
}

/// Points of a drawn series: of more rows, the mean of several.
const POINTS: usize = 800;

/// As the paper's figure 5.
fn series(drawn: &Drawn) -> String {
    let step = drawn.after.len().div_ceil(POINTS).max(1);
    let known = drawn
        .before
        .iter()
        .chain(&drawn.after)
        .filter(|it| !it.is_nan());
    let most = known.copied().fold(f64::MIN_POSITIVE, f64::max);
    let count = drawn.after.len().div_ceil(step).max(2) as f64 - 1.0;
    let lines = |values: &[f64], class: &str| {
        let mut body = String::new();
        let mut points = String::new();
        let mut flush = |points: &mut String| {
            if !points.is_empty() {
                let _ = write!(
                    body,
                    "<polyline class=\"{class}\" points=\"{}\"/>",
                    points.trim_end()
                );
                points.clear();
            }
        };
        for (at, values) in values.chunks(step).enumerate() {
            let known: Vec<f64> = values.iter().copied().filter(|it| !it.is_nan()).collect();
            if known.is_empty() {
                flush(&mut points);
                continue;
            }
            let mean = known.iter().sum::<f64>() / known.len() as f64;
            let x = MARGIN.0 + at as f64 / count * (WIDTH - MARGIN.0 - 8.0);
            let y = HEIGHT - MARGIN.1 - mean / most * (HEIGHT - MARGIN.1 - 10.0);
            let _ = write!(points, "{x:.1},{y:.1} ");
        }
        flush(&mut points);
        body
    };
    let mut body = axes(
        &events(most),
        "first",
        &format!("row {}", drawn.after.len()),
    );
    body += &lines(&drawn.before, "before");
    body += &lines(&drawn.after, "line");
    svg(
        HEIGHT,
        &format!("{} before and after cleaning", drawn.event),
        &body,
    )
}
