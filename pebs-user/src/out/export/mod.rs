//! A trace in the formats of other tools: one file per format.
//!
//! [`crate::compare::select`] chooses the visits, [`crate::compare::load`] reads their rows. No format alters a number: each documents
//! its weight in its help and, where it has a place for that, in its output.
//!
//! Memory: `csv`, `folded` and `flamegraph` take any trace in bounded memory; the others hold the visits
//! that they show, and so a bounded number: of a larger trace the slowest and a uniform sample, with a
//! note.

mod csv;
mod firefox;
mod flamegraph;
mod folded;
mod otlp;
mod perfetto;
mod pprof;
mod speedscope;
mod stacks;
mod timeline;
mod views;

#[cfg(test)]
mod tests;

use std::io::Write;

use clap::ValueEnum;

use crate::compare::load::{Functions, Probes, Weight};
use crate::compare::losses::LossVisits;
use crate::compare::select::error::ExportError;
use crate::compare::select::{Account, Bound, Chosen, Request, Selection, choose};
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
    /// JSON for OpenTelemetry collectors, Jaeger, Tempo: items as traces, visits and waits as spans
    Otlp,
    /// Text: a line for each stack with its self time or wait, in ns
    Folded,
    /// SVG: self time and waits; slow items per item, coloured by difference to typical ones
    Flamegraph,
    /// Text: a row for each function of each visit, all columns of both
    Csv,
    /// SQL: views of function times per slow, typical and any item, pooled over items
    #[value(name = "views.sql")]
    Views,
}

/// Properties of a format, except name and help.
struct Nature {
    /// Whether the output is lines of text for people.
    is_text: bool,
    /// Whether it sums over visits: those that overlap a loss are then left out.
    is_sum: bool,
    /// Capacity; `None`: a trace of any size. Viewers hold everything in memory as well.
    bound: Option<Bound>,
    weight: Weighs,
    write: WriteFormat,
}

type WriteFormat = fn(&Input<'_>, &mut dyn Write) -> Result<(), ExportError>;

/// Weight of the output.
#[derive(Clone, Copy)]
enum Weighs {
    /// One for each sample, at its time.
    Samples,
    /// Estimates of functions, and waits.
    Estimates,
    /// The same, of slow visits their mean.
    MeansOfSlow,
    /// None: the output has these rows.
    Nothing(&'static str),
}

impl Nature {
    /// Sums over visits, for programs to read.
    const fn sum(write: WriteFormat) -> Self {
        Self {
            is_text: false,
            is_sum: true,
            bound: None,
            weight: Weighs::Estimates,
            write,
        }
    }

    /// Visits and samples over time.
    const fn timeline(write: WriteFormat) -> Self {
        Self {
            is_sum: false,
            weight: Weighs::Samples,
            ..Self::sum(write)
        }
    }

    /// Lines of text with what the tables have.
    const fn text(write: WriteFormat, what: &'static str) -> Self {
        Self {
            is_text: true,
            is_sum: false,
            weight: Weighs::Nothing(what),
            ..Self::sum(write)
        }
    }

    /// Limits the format to [`MOST_VISITS`] visits and `samples` samples.
    const fn up_to(self, samples: u64) -> Self {
        let bound = Bound {
            visits: MOST_VISITS,
            samples,
        };
        Self {
            bound: Some(bound),
            ..self
        }
    }
}

/// Visits that a bounded format holds.
const MOST_VISITS: usize = 100_000;

impl Format {
    const fn nature(self) -> Nature {
        match self {
            Self::Perfetto => Nature::timeline(perfetto::write).up_to(10_000_000),
            Self::Firefox => Nature::timeline(firefox::write).up_to(2_000_000),
            Self::Pprof => Nature::sum(pprof::write).up_to(u64::MAX),
            Self::Speedscope => Nature::sum(speedscope::write).up_to(u64::MAX),
            Self::Otlp => Nature::sum(otlp::write).up_to(u64::MAX),
            Self::Folded => Nature {
                is_text: true,
                ..Nature::sum(folded::write)
            },
            Self::Flamegraph => Nature {
                weight: Weighs::MeansOfSlow,
                ..Nature::sum(flamegraph::write)
            },
            Self::Csv => Nature::text(csv::write, "every column of visits and visit_functions"),
            Self::Views => Nature::text(views::write, "views over the tables of the trace"),
        }
    }

    /// Whether the output is lines of text for people.
    #[must_use]
    pub const fn is_text(self) -> bool {
        self.nature().is_text
    }
}

/// Input of a format.
struct Input<'a> {
    trace: &'a Trace,
    selection: Selection,
    losses: LossVisits,
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
    let nature = format.nature();
    let request = Request {
        selection,
        slow: None,
        losses,
        lossy: losses == LossVisits::Include || !nature.is_sum,
        open: !nature.is_sum,
        bound: nature.bound.map(|bound| Bound {
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
        losses,
        chosen: &chosen,
        weight,
        functions: &Functions::read(trace)?,
        probes: &Probes::of(&trace.info),
        stacks: &CallStacks::read(trace)?,
        note: note(
            &chosen.account,
            selection,
            nature.weight.words(selection, weight),
        ),
    };
    let against_typical = matches!(
        (nature.weight, selection),
        (Weighs::MeansOfSlow, Selection::Slow(_))
    );
    if against_typical && trace.info.keep.is_some() {
        input.note += "; typical visits are those whose details were kept, which are not all alike";
    }
    (nature.write)(&input, out)?;
    out.flush()?;
    Ok(input.note)
}

impl Weighs {
    fn words(self, selection: Selection, weight: Weight<'_>) -> String {
        match self {
            Self::Samples => format!("one for each sample of {}", weight.event_name()),
            Self::MeansOfSlow if matches!(selection, Selection::Slow(_)) => {
                format!("mean per visit of {}", weight.mean_words())
            }
            Self::Estimates | Self::MeansOfSlow => weight.words(),
            Self::Nothing(what) => format!("none: {what}"),
        }
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
