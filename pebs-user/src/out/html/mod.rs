//! A trace as one self-contained page: no other file, no network, no server.
//!
//! The page holds [`MOST_VISITS`] visits, of a larger trace the slow ones and a uniform sample, with a note; its
//! histogram is of all visits. Its data are made in `data`, its drawing is in `assets/page.js` and `assets/flame.js`,
//! with uPlot (MIT, licence beside it) for the latency over time.
//!
//! Names from the target are hostile: askama escapes markup, data are JSON without `<`, the script sets text only, and
//! the page's content policy forbids it to load anything.

mod data;
mod flame;
mod parts;

#[cfg(test)]
mod tests;

use std::io::{self, Write};

use askama::Template;

use crate::compare::classes::SlowBy;
use crate::compare::losses::LossVisits;
use crate::compare::select::error::ExportError;
use crate::compare::select::{Account, Bound, Request, Selection, choose};
use crate::present::human::{count, plural};
use crate::store::reader::Trace;

/// Visits that a page shows at most.
pub(crate) const MOST_VISITS: usize = 10_000;

/// The page. Scripts and styles are trusted, nothing else is.
#[derive(Template)]
#[template(path = "trace.html")]
struct View<'a> {
    trace: String,
    tool: &'a str,
    event: String,
    shows: String,
    style: [&'static str; 2],
    script: [&'static str; 2],
    licence: &'static str,
    data: String,
    report: String,
}

/// Writes the page of a trace; returns one line on its contents.
///
/// `slow` is the initial rule for slow items; `None`: that of the report. `report`: the report as text, which the page
/// holds as it is.
///
/// # Errors
/// If the trace can't be read, has no visits, or `out` fails.
pub(crate) fn write(
    trace: &Trace,
    slow: Option<SlowBy>,
    losses: LossVisits,
    report: String,
    out: &mut dyn Write,
) -> Result<String, ExportError> {
    let request = Request {
        selection: Selection::All,
        slow,
        losses,
        // They are shown, but not counted.
        lossy: true,
        open: true,
        bound: Some(Bound {
            visits: MOST_VISITS,
            samples: u64::MAX,
        }),
    };
    let chosen = choose(trace, &request)?;
    let data = data::read(trace, &chosen, losses)?;
    let shows = shows(&chosen.account);
    let events: Vec<&str> = trace
        .info
        .events
        .iter()
        .map(|it| it.name.as_str())
        .collect();
    let view = View {
        trace: trace.dir.display().to_string(),
        tool: &trace.info.tool_version,
        event: events.join(", "),
        shows: shows.clone(),
        style: [
            include_str!("assets/uPlot.min.css"),
            include_str!("assets/page.css"),
        ],
        script: [
            include_str!("assets/uPlot.iife.min.js"),
            concat!(
                include_str!("assets/flame.js"),
                include_str!("assets/page.js")
            ),
        ],
        licence: include_str!("assets/uPlot.LICENSE"),
        data: embedded(&data)?,
        report,
    };
    view.write_into(out)?;
    out.flush()?;
    Ok(shows)
}

/// JSON that can't end the element it is in: in JSON, `<` is in strings only.
fn embedded(data: &data::Page) -> Result<String, ExportError> {
    let json = serde_json::to_string(data).map_err(io::Error::from)?;
    Ok(json.replace('<', "\\u003c"))
}

fn shows(account: &Account) -> String {
    let mut shows = plural(account.all, "visit");
    if account.chosen < account.asked {
        shows = format!(
            "{} of {}: all slow ones, as far as they fit, and a uniform sample of the others; the \
             histogram is of all",
            count(account.chosen),
            plural(account.all, "visit")
        );
    }
    if account.condensed > 0 {
        let condensed = count(account.condensed);
        shows += &format!("; of {condensed} the details were not kept");
    }
    shows
}
