//! `pebs-trace explain`: why slow items were slow.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;

use super::progress::Progress;
use super::{print_page, print_result};
use crate::analysis::explain::{
    ExplainError, ExplainOptions, Unit, Which, explain, explain_item, json, text,
};
use crate::analysis::report::LossVisits;
use crate::estimate::baseline::Rule;
use crate::failure::{Context as _, Result};
use crate::store::reader::Trace;
use crate::terminal;
use crate::terminal::say;
use crate::units::ProbeId;

/// Options of `pebs-trace explain`.
#[derive(Clone, Debug, clap::Args)]
pub struct ExplainArgs {
    /// Directory of the trace
    ///
    /// The one that pebs-trace named at the end of the run.
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// Compare items with the same values of these arguments only
    ///
    /// Names from the SPEC, also tid, pid and cpu_begin; separated by commas. Default: all items of a
    /// probe, and beside them the groups of the argument that splits durations best, if one does
    /// beyond chance.
    #[arg(short, long, value_name = "ARG,…", value_delimiter = ',')]
    pub group_by: Vec<String>,

    /// Call items slow by this rule
    ///
    /// p99 is the slowest 1 % of a group (p50 to p99.99), 3x at least three times its median, 500us at
    /// least this time. Default: those that a gap in the durations sets apart, else p99.
    #[arg(short, long, value_name = "RULE")]
    pub slow: Option<Rule>,

    /// Show this item: its time line, and its times beside those of its group
    ///
    /// The longest, if there are several with this id.
    #[arg(short, long, value_name = "ID", conflicts_with = "visit")]
    pub item: Option<u64>,

    /// Show the item with this visit
    #[arg(long, value_name = "ID")]
    pub visit: Option<u64>,

    /// Take each visit by itself, or all visits with the same id as one item
    ///
    /// An item lasts from its first begin to its last end. Default: item, if there are several probes
    /// and all read ids, as these are stages; else visit. A visit that lies within one of another probe
    /// on its thread is part of it.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub per: Option<PerArg>,

    /// Explain one probe only
    ///
    /// Its number: the first --uprobe of the recording is 0.
    #[arg(long, value_name = "ID")]
    pub probe: Option<u16>,

    /// List at most this many causes
    #[arg(long, value_name = "CAUSES", default_value_t = ExplainOptions::default().top)]
    pub top: usize,

    /// Count visits that overlap a loss, too
    ///
    /// Default: they are left out, as records of theirs may be missing.
    #[arg(long)]
    pub all: bool,

    /// Write text for people or JSON for programs
    ///
    /// JSON holds times in ns and shares of 0..1, and leaves what is unknown null.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Format of an explanation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// For programs: everything
    Json,
}

/// Unit that is explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PerArg {
    /// Each visit
    Visit,
    /// All visits with the same id
    Item,
}

impl ExplainArgs {
    fn options(&self) -> ExplainOptions {
        ExplainOptions {
            probe: self.probe.map(ProbeId),
            group_by: self.group_by.clone(),
            slow: self.slow,
            unit: self.per.map(|per| match per {
                PerArg::Visit => Unit::Visit,
                PerArg::Item => Unit::Item,
            }),
            losses: if self.all {
                LossVisits::Include
            } else {
                LossVisits::LeaveOut
            },
            top: self.top,
        }
    }
}

/// Runs `pebs-trace explain`: the explanation goes to stdout, remarks on the trace to stderr.
///
/// # Errors
/// If the trace can't be read or explained, or stdout can't be written. The hint, if there is one, is
/// an error of type [`ExplainError`] in the chain.
pub fn run(args: &ExplainArgs) -> Result<ExitCode> {
    let mut trace = Trace::open(&args.trace).map_err(ExplainError::from)?;
    if let Some((remark, hint)) = trace.remark() {
        say!("{remark}\nhint: {hint}");
    }
    let options = args.options();
    let which = args.item.map(Which::Item).or(args.visit.map(Which::Visit));
    let progress = Progress::unless(args.format == Format::Json);
    trace.watch = progress.watch();
    let json_failed = "cannot write the explanation as JSON";
    let width = terminal::width();
    let shown = match (which, args.format) {
        (None, Format::Text) => Ok(text::page(&explain(&trace, &options)?, width)),
        (Some(which), Format::Text) => {
            let item = explain_item(&trace, &options, which)?;
            Ok(text::item::page(&item, width))
        }
        (None, Format::Json) => {
            Err(json::render(&explain(&trace, &options)?).context(json_failed)?)
        }
        (Some(which), Format::Json) => {
            Err(json::render(&explain_item(&trace, &options, which)?).context(json_failed)?)
        }
    };
    drop(progress);
    match shown {
        Ok(page) => print_page(&page, "explanation")?,
        Err(json) => print_result(&json, "explanation")?,
    }
    Ok(ExitCode::SUCCESS)
}
