//! A trace in the formats of other tools: one file per format.
//!
//! [`select`] chooses the visits, [`load`] reads their rows. No format alters a number: each documents
//! its weight in its help and, where it has a place for that, in its output.
//!
//! Memory: `csv`, `folded` and `flamegraph` take any trace in bounded memory; the others hold the visits
//! that they show, and so a bounded number: of a larger trace the slowest and a uniform sample, with a
//! note.

pub(crate) mod error;
pub(crate) mod load;
pub(crate) mod select;

mod csv;
mod firefox;
mod flamegraph;
mod folded;
mod perfetto;
mod pprof;
mod speedscope;
mod stacks;
mod timeline;
mod views;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::io::Write;

use clap::ValueEnum;

use self::error::ExportError;
use self::load::{Functions, Probes, Weight};
use self::select::{Account, Bound, Chosen, Request, Selection, choose};
use crate::analysis::report::LossVisits;
use crate::store::call_stacks::CallStacks;
use crate::store::reader::Trace;

/// Formats of other tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Protobuf for ui.perfetto.dev: items and waits over time, each sample with its function
    Perfetto,
    /// JSON for profiler.firefox.com: items as markers, each sample with its function
    Firefox,
    /// Gzipped protobuf for go tool pprof: self time and waits, items and arguments as labels
    Pprof,
    /// JSON for speedscope.app: self time and waits, item after item
    Speedscope,
    /// Text: a line for each stack with its self time or wait, in ns
    Folded,
    /// SVG: self time and waits; of slow items per item, coloured by the difference to typical ones
    Flamegraph,
    /// Text: a row for each function of each visit, all columns of both
    Csv,
    /// SQL: views with what functions take per slow, typical and any item, pooled over items
    #[value(name = "views.sql")]
    Views,
}

impl Format {
    /// Whether the output is lines of text for people.
    #[must_use]
    pub fn is_text(self) -> bool {
        matches!(self, Self::Folded | Self::Csv | Self::Views)
    }

    /// Whether it sums over visits: those that overlap a loss are then left out.
    fn is_sum(self) -> bool {
        matches!(
            self,
            Self::Pprof | Self::Speedscope | Self::Folded | Self::Flamegraph
        )
    }

    /// Capacity; `None`: a trace of any size.
    fn bound(self) -> Option<Bound> {
        let visits = 100_000;
        match self {
            // Its viewers hold everything in memory as well.
            Self::Perfetto => Some(Bound {
                visits,
                samples: 10_000_000,
            }),
            Self::Firefox => Some(Bound {
                visits,
                samples: 2_000_000,
            }),
            Self::Pprof | Self::Speedscope => Some(Bound {
                visits,
                samples: u64::MAX,
            }),
            Self::Folded | Self::Flamegraph | Self::Csv | Self::Views => None,
        }
    }
}

/// Input of a format.
struct Input<'a> {
    trace: &'a Trace,
    selection: Selection,
    chosen: &'a Chosen,
    weight: Weight<'a>,
    functions: &'a Functions,
    probes: &'a Probes,
    stacks: &'a CallStacks,
    /// One line on the contents of the output.
    note: String,
}

impl Input<'_> {
    fn name(&self, function: Option<u32>) -> String {
        function.map_or_else(|| UNKNOWN.to_owned(), |id| self.functions.label(id))
    }
}

/// An unknown function.
const UNKNOWN: &str = "[unknown]";

/// Largest number of samples held in memory by formats whose estimates are divided among call stacks.
const DIVIDED: u64 = 20_000_000;

/// Writes a trace in a format; returns one line on the contents of the output.
///
/// # Errors
/// If the trace can't be read, nothing is to be written, or `out` fails.
pub(crate) fn export(
    trace: &Trace,
    format: Format,
    (selection, losses): (Selection, LossVisits),
    out: &mut dyn Write,
) -> Result<String, ExportError> {
    let request = Request {
        selection,
        slow: None,
        losses,
        lossy: losses == LossVisits::Include || !format.is_sum(),
        open: !format.is_sum(),
        bound: format.bound().map(|bound| Bound {
            samples: match trace.info.call_graph {
                Some(_) => bound.samples.min(DIVIDED),
                None => bound.samples,
            },
            ..bound
        }),
    };
    let chosen = choose(trace, &request)?;
    let weight = Weight::of(&trace.info);
    let mut input = Input {
        trace,
        selection,
        chosen: &chosen,
        weight,
        functions: &Functions::read(trace)?,
        probes: &Probes::of(&trace.info),
        stacks: &CallStacks::read(trace)?,
        note: note(&chosen.account, selection, weigh(format, selection, weight)),
    };
    let against_kept = format == Format::Flamegraph && matches!(selection, Selection::Slow(_));
    if against_kept && trace.info.keep.is_some() {
        input.note += "; typical visits are those whose details were kept, which are not all alike";
    }
    match format {
        Format::Perfetto => perfetto::write(&input, out)?,
        Format::Firefox => firefox::write(&input, out)?,
        Format::Pprof => pprof::write(&input, out)?,
        Format::Speedscope => speedscope::write(&input, out)?,
        Format::Folded => folded::write(&input, out)?,
        Format::Flamegraph => flamegraph::write(&input, out)?,
        Format::Csv => csv::write(&input, out)?,
        Format::Views => views::write(&input, losses, out)?,
    }
    out.flush()?;
    Ok(input.note)
}

/// Describes the weight of the output.
fn weigh(format: Format, selection: Selection, weight: Weight<'_>) -> String {
    match format {
        Format::Perfetto | Format::Firefox => {
            format!("one for each sample of {}", weight.event_name())
        }
        Format::Flamegraph if matches!(selection, Selection::Slow(_)) => {
            format!("mean per visit of {}", weight.mean_words())
        }
        Format::Views => "none: views over the tables of the trace".to_owned(),
        Format::Csv => "none: every column of visits and visit_functions".to_owned(),
        _ => weight.words(),
    }
}

fn note(account: &Account, selection: Selection, weight: String) -> String {
    let Account {
        all,
        asked,
        chosen,
        loss,
        open,
        condensed,
    } = account;
    let what = match selection {
        Selection::All => String::new(),
        Selection::Item(item) => format!(" (item {item})"),
        Selection::Slow(rule) => format!(" (slow: {rule})"),
    };
    let mut note = format!("{asked} of {all} visits{what}; weight: {weight}");
    if chosen < asked {
        note += &format!("; reduced to {chosen} visits: the slowest, and a uniform sample");
    }
    for (number, why) in [
        (loss, "left out as they overlap a loss (--all takes them)"),
        (open, "left out as their end is unknown"),
        (
            condensed,
            "without functions, as their details were not kept",
        ),
    ] {
        if *number > 0 {
            note += &format!("; {number} visits {why}");
        }
    }
    note
}
