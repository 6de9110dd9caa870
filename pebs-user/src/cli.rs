//! The command line: the subcommands, each with its own arguments. Doc comments are the help.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser, Subcommand};

use crate::cmd;
use crate::cmd::record::args::RecordArgs;
use crate::failure::Result;
use crate::selftest::workload::WorkloadArgs;
use crate::terminal::Color;

/// Tell why one item was slow on an unmodified program
///
/// Puts probes on the functions that start and finish an item (request, packet, query), samples
/// the CPU, works out which item each sample belongs to, and writes a trace in Parquet: the time
/// of every function for every single item. At the end it prints a report.
///
/// Exit status: 0 complete; 1 finished, but loss above --max-loss or the trace is cut; 2 could not run.
#[derive(Debug, Parser)]
#[command(name = "pebs-trace", version, args_conflicts_with_subcommands = true)]
#[command(subcommand_negates_reqs = true, max_term_width = 100)]
pub struct Cli {
    /// What to do instead of recording.
    #[command(subcommand)]
    pub command: Option<Cmd>,
    /// How to record.
    #[command(flatten)]
    pub record: RecordArgs,
    /// Say more: -v the steps, -vv also what programs and libraries log
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub verbose: u8,
    /// Colour what is printed for people
    ///
    /// auto: on a terminal, unless NO_COLOR is set; CLICOLOR_FORCE=1 does in a pipe, too. Lines are as wide as the
    /// terminal, 120 columns in a pipe or a file; COLUMNS sets another width.
    #[arg(long, value_enum, default_value_t, value_name = "WHEN", global = true)]
    pub color: Color,
}

/// Everything but recording.
#[derive(Debug, Subcommand)]
pub enum Cmd {
    /// Print the report of a trace
    Report(cmd::report::ReportArgs),
    /// Rank the causes of slow items, with their uncertainty
    ///
    /// Compares the slow items of each group with its typical ones, and divides the difference among functions on the
    /// CPU (from samples), waits off it by the function that blocked, and preemption. All shares and an unexplained
    /// rest sum to the difference. Each has its samples and a 95 % interval: a bootstrap over items, given which are
    /// slow. Typical is the middle half of the group by duration, slow ones excluded; of a trace recorded with --keep,
    /// the items that were not kept. 'because' names a test of an argument that separates slow items from others
    /// (Fisher's exact test, corrected for all tests searched). It does not prove that the argument is the reason.
    Explain(cmd::explain::ExplainArgs),
    /// Browse a trace in the terminal: a list of items, enter to open one
    ///
    /// The list sorts by duration, time on the CPU, item id or begin, and filters by probe and by a text in
    /// the arguments. An item shows its functions with their errors, its waits and what happened to its
    /// thread, beside what is typical of its probe. '?' lists the keys.
    View(cmd::view::ViewArgs),
    /// Say how a trace was recorded, what it holds, and what was lost
    ///
    /// When, where and by which command, the probes with the instructions that were chosen, the events with the precision
    /// granted; the account of every record (seen = written + each reason), what the recording cost, and the size of
    /// each table.
    Info(cmd::info::InfoArgs),
    /// Compare two traces: which function's time per item changed
    ///
    /// Functions are the same if the file name of their module and their name are; the binary with the probe may have
    /// another name. Each figure has an interval; all of them hold at once in 95 of 100 comparisons, so that two runs
    /// of the same build do not differ by chance. Intervals do not cover differences between whole runs (frequency,
    /// other load): set --fail-above well above those.
    ///
    /// Exit status: 0 compared; 3 something is above --fail-above; 2 could not compare.
    Diff(cmd::diff::DiffArgs),
    /// Rank counted events by how much of a duration each explains
    ///
    /// Reads what 'perf stat' counted at intervals, or a table of items. Cleans counts that are inexact because events
    /// shared counters; ranks events by the share of the variance that depends on them, with intervals, against
    /// shuffled counts as noise; and finds pairs of events that interact.
    Mine(cmd::mine::MineArgs),
    /// Convert a recording of perf into a trace
    Import(cmd::import::ImportArgs),
    /// Write a trace in the format of another tool
    ///
    /// Prints to stderr which visits the output shows, and with which weight: perfetto and firefox
    /// show every sample at its time; csv has the tables' columns; the others show the estimated CPU time
    /// of functions (self_ns; of an event that is no clock, events) and the time of waits, so that the
    /// parts of an item add up to its duration. csv, folded and flamegraph take traces of any size; the others hold up
    /// to 100,000 visits, of a larger trace the slowest and a uniform sample. Of a trace recorded with --call-graph a
    /// stack is the probe and all that called the function, and an estimate is divided among its stacks by their
    /// samples; else it is the probe and the function.
    Export(cmd::export::ExportArgs),
    /// Write a trace as one self-contained page
    ///
    /// Latency over time, functions of selected items against typical ones, functions of each item, time
    /// lines, and the report. The page needs no network and no other file. It holds up to 10,000 visits: of a larger
    /// trace the slow ones and a uniform sample of the others, and it says so.
    Html(cmd::html::HtmlArgs),
    /// Finish the open segments of a trace whose recorder was killed
    Recover(cmd::recover::RecoverArgs),
    /// List what can be probed in a binary, and how
    Probes(cmd::probes::ProbesArgs),
    /// List the events that can be sampled, and how precisely
    Events(cmd::events::EventsArgs),
    /// Check what this machine can do, and print how to fix what is missing
    Doctor(cmd::doctor::DoctorArgs),
    /// Measure what a sample and a mark cost on this machine, and keep it
    Calibrate(cmd::calibrate::CalibrateArgs),
    /// Find the reset value for a bound on the overhead, before recording
    Plan(cmd::plan::PlanArgs),
    /// Judge precise sampling against known truth on this machine
    Validate(cmd::validate::ValidateArgs),
    /// Be the experiment of time stamps alone, at several reset values.
    #[command(hide = true)]
    Selftest(cmd::selftest::SelftestArgs),
    /// Be the workload that the self-test records.
    #[command(hide = true)]
    SelftestWorkload(WorkloadArgs),
}

impl Cli {
    /// Runs the subcommand; without one, records.
    ///
    /// # Errors
    /// Those of the subcommand: what could not be done, and why.
    pub fn run(&self) -> Result<ExitCode> {
        match &self.command {
            None => cmd::record::run(&self.record),
            Some(command) => command.run(),
        }
    }
}

impl Cmd {
    fn run(&self) -> Result<ExitCode> {
        match self {
            Self::Report(args) => cmd::report::run(args),
            Self::Explain(args) => cmd::explain::run(args),
            Self::View(args) => cmd::view::run(args),
            Self::Info(args) => cmd::info::run(args),
            Self::Diff(args) => cmd::diff::run(args),
            Self::Mine(args) => cmd::mine::run(args),
            Self::Import(args) => cmd::import::run(args),
            Self::Export(args) => cmd::export::run(args),
            Self::Html(args) => cmd::html::run(args),
            Self::Recover(args) => cmd::recover::run(args),
            Self::Probes(args) => cmd::probes::run(args),
            Self::Events(args) => cmd::events::run(args),
            Self::Doctor(args) => cmd::doctor::run(args),
            Self::Calibrate(args) => cmd::calibrate::run(args),
            Self::Plan(args) => cmd::plan::run(args),
            Self::Validate(args) => cmd::validate::run(args),
            Self::Selftest(args) => cmd::selftest::run(args),
            Self::SelftestWorkload(args) => cmd::selftest::workload(args),
        }
    }
}

/// A hint for an unexpected word: similar subcommands and options.
#[must_use]
pub fn hint_of(error: &clap::Error) -> Option<String> {
    /// Below this similarity a name is no help.
    const ENOUGH: f64 = 0.85;
    if error.kind() == ErrorKind::InvalidUtf8 {
        return Some(
            "only files and commands may have names that are not UTF-8, not what a SPEC names: 'ln -s BIN app', \
             and probe ./app:FUNC"
                .to_owned(),
        );
    }
    let word = match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(word) if error.kind() == ErrorKind::UnknownArgument => word,
        _ => return None,
    };
    if word.starts_with('-') {
        return None;
    }
    if word.parse::<u32>().is_ok() {
        return Some(format!(
            "each process needs an option of its own: -p {word}"
        ));
    }
    let cli = Cli::command();
    let score = |it: &clap::Command| strsim::jaro_winkler(word, it.get_name());
    let near = cli.get_subcommands().filter(|it| !it.is_hide_set());
    let near = near.max_by(|a, b| score(a).total_cmp(&score(b)));
    Some(match near.filter(|it| score(it) >= ENOUGH) {
        Some(near) => format!("did you mean {}?", near.get_name()),
        None => format!("a command to trace follows '--': -- {word}"),
    })
}

/// Moves options that all subcommands have behind the subcommand: `pebs-trace --color never report T` becomes
/// `pebs-trace report --color never T`. clap takes options before a subcommand for those of recording.
pub fn in_order(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.collect();
    let mut end = 1;
    while let Some(arg) = args.get(end).and_then(|arg| arg.to_str()) {
        let counts = |arg: &str| {
            let letters = arg.strip_prefix('-').unwrap_or_default();
            !letters.is_empty() && letters.chars().all(|letter| letter == 'v')
        };
        end += match arg {
            "--color" => 2,
            "--verbose" => 1,
            _ if arg.starts_with("--color=") || counts(arg) => 1,
            _ => break,
        };
    }
    let is_subcommand = |arg: &OsString| {
        let named = |it: &clap::Command| it.get_name() == arg.as_os_str();
        Cli::command().get_subcommands().any(named)
    };
    if args.get(end).is_some_and(is_subcommand) {
        args[1..=end].rotate_right(1);
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options that every subcommand has may come before it, whatever stands behind.
    #[test]
    fn options_before_subcommands() {
        let ordered = |text: &str| in_order(text.split(' ').map(OsString::from));
        let cases = [
            ("p report T", "p report T"),
            ("p --color never report T", "p report --color never T"),
            (
                "p -vv --color=always --verbose explain T -v",
                "p explain -vv --color=always --verbose T -v",
            ),
            (
                "p --color never -u app:f -- report",
                "p --color never -u app:f -- report",
            ),
            ("p --color", "p --color"),
            ("p -v", "p -v"),
            ("p", "p"),
        ];
        for (typed, expected) in cases {
            let expected: Vec<OsString> = expected.split(' ').map(OsString::from).collect();
            assert_eq!(ordered(typed), expected);
        }
        assert!(Cli::try_parse_from(ordered("p --color never report T")).is_ok());
    }
}
