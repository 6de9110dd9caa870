//! `pebs-trace explain`: why slow items were slow.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;

use super::progress::Progress;
use super::source::open;
use super::{fleet, moment, print_page, print_result};
use crate::compare::classes::SlowBy;
use crate::compare::explain::{ExplainOptions, ItemChoice, Unit, explain, explain_item};
use crate::compare::find::{self, Known};
use crate::compare::fleet::FleetOptions;
use crate::compare::losses::LossVisits;
use crate::failure::{Context as _, Failure, Result};
use crate::out::explain::text;
use crate::present::json;
use crate::present::moment::local;
use crate::store::reader::Trace;
use crate::terminal::{self, say, shown};
use crate::units::ProbeId;

/// Options of `pebs-trace explain`.
#[derive(Clone, Debug, clap::Args)]
pub struct ExplainArgs {
    /// Directory of the trace
    ///
    /// As printed at the end of the recording. With --by a directory that holds traces.
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// Compare groups of many traces: by host, or what else sets them apart
    ///
    /// host finds slow hosts, and what they have in common. Others make a group of each value: folder (the first one
    /// between TRACE and the trace; folder2, the second), kernel, cpu. An unknown name lists what there is. Which groups take longer, since when, and by
    /// which functions and waits; intervals cover what differs from host to host.
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["group_by", "slow", "item", "visit", "at", "item_like", "per", "probe", "when"])]
    pub by: Option<String>,

    #[command(flatten)]
    pub period: moment::PeriodArgs,

    /// Compare only items with the same values of these arguments
    ///
    /// Names from the SPEC, also tid, pid and cpu_begin; separated by commas. Default: all items of a probe, and also
    /// the groups of the argument that separates durations best, if beyond chance.
    #[arg(short, long, value_name = "ARG,…", value_delimiter = ',')]
    pub group_by: Vec<String>,

    /// Rule for slow items
    ///
    /// p99: the slowest 1 % of a group (p50 to p99.99); 3x: at least three times its median; 500us: at least this
    /// time. Default: those above a gap in the durations, if there is one, else p99. With cpu: before it (cpu:p99,
    /// cpu:3x, cpu:500us), or cpu for the default rule: by time on the CPU, which then takes the place of durations.
    #[arg(short, long, value_name = "RULE")]
    pub slow: Option<SlowBy>,

    /// Show one item: its time line, and its times beside those of its group
    ///
    /// The longest, if several have this id.
    #[arg(short, long, value_name = "ID", conflicts_with = "visit")]
    pub item: Option<u64>,

    /// Show the item of this visit
    #[arg(long, value_name = "ID")]
    pub visit: Option<u64>,

    /// Show the longest item that ran at this time of the day
    ///
    /// 12:04:31 (or 12:04, 12:04:31.5) is local time, '2026-11-29 12:04:31' has a date, 2026-11-29T12:04:31Z a zone; +1.5 is
    /// the time since the begin of the recording, s. It lasts as long as its last unit: 12:04 a minute.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["item", "visit"], allow_hyphen_values = true)]
    pub at: Option<String>,

    /// Show the longest item with this text in an argument
    ///
    /// Of an argument that is a number, TEXT is all of it. With --at both must hold.
    #[arg(long = "item-like", value_name = "TEXT", conflicts_with_all = ["item", "visit"])]
    pub item_like: Option<String>,

    /// Explain single visits, or all visits with the same id as one item
    ///
    /// An item lasts from its first begin to its last end. Default: item, if there are several probes and all read
    /// ids (stages), or ids were read at samples (--item-reg), where items are compared by their time on the CPU unless
    /// --slow says otherwise; else visit. A visit within a visit of another probe on its thread is part of it.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub per: Option<PerArg>,

    /// Explain only one probe
    ///
    /// Its number: the first --uprobe of the recording is 0.
    #[arg(long, value_name = "ID")]
    pub probe: Option<u16>,

    /// Show what changed when, over the recording
    ///
    /// Steps, a drift and periods of the items' times, each with what makes the difference.
    #[arg(long, conflicts_with_all = ["group_by", "item", "visit", "at", "item_like"])]
    pub when: bool,

    /// List at most this many causes
    #[arg(long, value_name = "CAUSES", default_value_t = ExplainOptions::default().top)]
    pub top: usize,

    /// Include visits that overlap a loss
    ///
    /// Default: left out, as some of their records may be missing.
    #[arg(long)]
    pub all: bool,

    /// Output format
    ///
    /// JSON has times in ns and shares from 0 to 1; unknown values are null.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Format of an explanation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// For programs; complete
    Json,
}

/// Unit that is explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PerArg {
    /// Single visits
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
            when: self.when,
        }
    }
}

impl ExplainArgs {
    fn fleet(&self, by: &str) -> Result<FleetOptions> {
        let [since, until] = [&self.period.since, &self.period.until]
            .map(|typed| typed.as_deref().map(moment::wall_clock).transpose());
        let ExplainOptions { losses, top, .. } = self.options();
        Ok(FleetOptions {
            by: by.to_owned(),
            since: since?,
            until: until?,
            top,
            losses,
        })
    }

    /// The longest visit that `--at` and `--item-like` mean; `None` without both.
    fn found(&self, trace: &Trace) -> Result<Option<u64>> {
        if self.at.is_none() && self.item_like.is_none() {
            return Ok(None);
        }
        let within = self.at.as_ref().map(|at| moment::range(at, &trace.info));
        let known = Known {
            within: within.transpose()?,
            like: self.item_like.clone(),
        };
        let at = self.at.as_ref().map(|at| format!(" that ran at {at}"));
        let like = self.item_like.as_ref();
        let like = like.map(|text| format!(" with '{}' in an argument", shown(text)));
        let which = format!("{}{}", at.unwrap_or_default(), like.unwrap_or_default());
        let Some(found) = find::longest(trace, &known)? else {
            return Err(Failure::new(
                format!("there is no item{which} in {}", trace.dir.display()),
                "'pebs-trace report' lists the longest; '+1.5' is a time since the begin, and texts are cut after 56 bytes",
            ));
        };
        let begun = local(found.begin_ns, &trace.info);
        let begun = begun.map_or_else(String::new, |at| format!(", begun at {at}"));
        let (n, items) = (
            found.visits,
            if found.visits == 1 { "item" } else { "items" },
        );
        say!(
            "{n} {items}{which}; the longest is visit {}{begun}",
            found.visit_id
        );
        Ok(Some(found.visit_id))
    }
}

/// Runs `pebs-trace explain`: the explanation goes to stdout, remarks on the trace to stderr.
///
/// # Errors
/// If the trace can't be read or explained, or stdout can't be written. The hint, if there is one, is
/// an error of type [`ExplainError`](crate::compare::explain::ExplainError) in the chain.
pub fn run(args: &ExplainArgs) -> Result<ExitCode> {
    if let Some(by) = &args.by {
        return fleet::run(&args.trace, &args.fleet(by)?, args.format == Format::Json);
    }
    let mut trace = open(&args.trace)?;
    if let Some((remark, hint)) = trace.remark() {
        say!("{remark}\nhint: {hint}");
    }
    let options = args.options();
    let progress = Progress::unless(args.format == Format::Json);
    trace.watch = progress.watch();
    args.period.apply(&mut trace)?;
    let which = match (args.item, args.visit) {
        (Some(item), _) => Some(ItemChoice::Item(item)),
        (None, Some(visit)) => Some(ItemChoice::Visit(visit)),
        (None, None) => args.found(&trace)?.map(ItemChoice::Visit),
    };
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
