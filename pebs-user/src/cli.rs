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

/// Explain why single items were slow, in an unmodified program
///
/// Puts probes on the functions that begin and end an item (request, packet, query), samples the CPU, attributes each
/// sample to an item, and writes a trace in Parquet: the time of every function in every item. Prints a report at the
/// end.
///
/// Exit status: 0 complete; 1 finished, but loss is above --max-loss or the trace is cut; 2 could not run.
#[derive(Debug, Parser)]
#[command(name = "pebs-trace", version, args_conflicts_with_subcommands = true)]
#[command(subcommand_negates_reqs = true, max_term_width = 100)]
pub struct Cli {
    /// Subcommand; `None`: a recording.
    #[command(subcommand)]
    pub command: Option<Cmd>,
    /// Options of a recording.
    #[command(flatten)]
    pub record: RecordArgs,
    /// Log more: -v steps, -vv also messages of programs and libraries
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub verbose: u8,
    /// Colour the output for people
    ///
    /// auto: on a terminal, unless NO_COLOR is set; with CLICOLOR_FORCE=1 in a pipe, too. Lines are as wide as the
    /// terminal, or 120 columns in a pipe or a file; COLUMNS sets another width.
    #[arg(long, value_enum, default_value_t, value_name = "WHEN", global = true)]
    pub color: Color,
}

/// Everything but recording.
#[derive(Debug, Subcommand)]
pub enum Cmd {
    /// Report slow items and the functions that take their time
    Report(cmd::report::ReportArgs),
    /// Rank the causes of slow items, with their uncertainty
    ///
    /// Compares the slow items of each group with its typical items, and divides the difference among functions on
    /// the CPU (from samples), waits by the function that blocked, and preemption. The shares and an unexplained rest
    /// sum to the difference. Each share has its number of samples and a 95 % interval: a bootstrap over items, with
    /// the set of slow items fixed. Typical items are the middle half of the group by duration, without slow ones; in
    /// a trace recorded with --keep, the items that were not kept. 'because' names a test of an argument that
    /// separates slow items from others (Fisher's exact test, corrected for all tests searched). It does not prove
    /// that the argument is the cause.
    Explain(cmd::explain::ExplainArgs),
    /// Browse the items of a trace in the terminal
    ///
    /// The list sorts by duration, time on the CPU, item id or begin, and filters by probe or by text in the
    /// arguments. Enter opens an item: its functions with their errors, its waits and the events of its thread,
    /// beside the typical values of its probe. '?' lists the keys.
    View(cmd::view::ViewArgs),
    /// Show how a trace was recorded, what it holds, and what was lost
    ///
    /// When, where and by which command, the probes with the instructions chosen, the events with the precision
    /// granted; the account of all records (seen = written + each reason), the cost of recording, and the size of each
    /// table.
    Info(cmd::info::InfoArgs),
    /// Compare the time per item of functions in two traces
    ///
    /// Functions match if their names and the file names of their modules are equal; the binary with the probe may
    /// have another name. Each figure has an interval; all intervals hold at once in 95 of 100 comparisons, so that
    /// two runs of the same build do not differ by chance. Intervals do not cover differences between whole runs
    /// (frequency, other load): set --fail-above well above those.
    ///
    /// Exit status: 0 compared; 3 a figure is above --fail-above; 2 could not compare.
    Diff(cmd::diff::DiffArgs),
    /// Rank counted events by how much of the duration each explains
    ///
    /// Reads counts of 'perf stat' at intervals, or a table of items. Cleans counts that are inexact because events
    /// shared counters; ranks events by the share of the variance that depends on them, with intervals, against
    /// shuffled counts as noise; and finds pairs of events that interact.
    Mine(cmd::mine::MineArgs),
    /// Convert a recording of 'perf record' into a trace
    ///
    /// Reads what 'perf record' wrote, on this machine or another: a file, piped, compressed, or cut short. Samples
    /// with :pp keep their exact addresses. Begins and ends of items come from probes that were recorded with the
    /// samples (perf probe, USDT, user_events), or from a table. The trace is like one that pebs-trace records:
    /// report, DuckDB and pandas read it.
    ///
    /// Exit status: 0 complete; 1 the file is cut, or loss above --max-loss; 2 nothing could be imported.
    Import(cmd::import::ImportArgs),
    /// Convert a trace to the format of another tool
    ///
    /// Prints to stderr which visits the output contains, and their weights. perfetto and firefox show every sample
    /// at its time; csv has the columns of the tables; the others show the estimated CPU time of functions (self_ns;
    /// events, if the event happens now and then) and the time of waits, so that the parts of an item add up to its
    /// duration. csv, folded and flamegraph take traces of any size; the others hold up to 100,000 visits (perfetto with
    /// up to 10 million samples, firefox 2 million): of a larger trace the slowest and a uniform sample. In a trace recorded with --call-graph a stack is the probe and
    /// the callers of the function, and an estimate is divided among its stacks by their samples; otherwise a stack
    /// is the probe and the function.
    Export(cmd::export::ExportArgs),
    /// Write a trace as one self-contained HTML page
    ///
    /// Latency over time, functions of selected items beside those of typical ones, functions of each item, time
    /// lines, and the report. Needs no network and no other file. Holds up to 10,000 visits: of a larger trace the
    /// slow ones and a uniform sample of the others, as noted on the page.
    Html(cmd::html::HtmlArgs),
    /// Recover a trace whose recorder was killed
    ///
    /// Turns every open segment into Parquet, up to the last complete row on disk. A second run changes nothing.
    ///
    /// Exit status: 0 all rows on disk saved; 1 some bytes were not complete rows; 2 a trace could not be recovered.
    Recover(cmd::recover::RecoverArgs),
    /// List the functions and USDT probes of a binary
    ///
    /// For each function: where the entry probe goes and the cost of a mark there, how its returns can be marked
    /// safely, and its arguments, if the binary has debug information. USDT probes come last.
    ///
    /// Exit status: 0, or 1 if no name matches the pattern.
    Probes(cmd::probes::ProbesArgs),
    /// Record services all the time, as a service itself
    ///
    /// The file names targets: programs, units or cgroups, each with a preset or SPECs. A target is recorded whenever it runs,
    /// into traces of an hour; old ones are removed so that all keep within a size. SIGHUP reads the file again, SIGUSR2 makes
    /// snapshots, SIGTERM ends. 'pebs-trace guide always-on' has all keys, and a unit for systemd.
    ///
    /// Exit status: 0 ended as told; 2 could not start.
    Agent(cmd::agent::AgentArgs),
    /// Push traces into an object store or a directory for many machines
    ///
    /// Each table of a trace becomes objects by date and host, which DuckDB, Spark and Trino read as they are; a manifest comes
    /// last, without which there is no trace for anybody. What is there already is not sent again, so that the same command
    /// goes on after a failure. A trace that is being written, is not finished, or has texts that are not redacted is refused.
    /// Credentials are those of the environment or of the instance. 'pebs-trace guide lake' has settings and queries.
    ///
    /// Exit status: 0 all are in the lake; 2 one is not.
    Push(cmd::push::PushArgs),
    /// List the traces of a lake
    ///
    /// Those of a time or of one host are found by the names of objects: others are not read. Times are in UTC.
    Traces(cmd::traces::TracesArgs),
    /// List presets: SPECs for known programs, those that run first
    ///
    /// With NAME it prints the preset: a file in TOML with the SPECs of a kind of program. Your own go to
    /// ~/.config/pebs-trace/presets/NAME.toml, those of a machine to /etc/pebs-trace/presets; both come before built-in ones
    /// of the same name.
    Presets(cmd::presets::PresetsArgs),
    /// Suggest functions of a running program that look like items
    ///
    /// Samples call stacks, reads and writes of the process for some seconds, then watches calls of the most interesting
    /// functions by hardware breakpoints: how often they come, how long they take, what their arguments point at. Prints
    /// up to ten SPECs, the best first, with their figures and why each was chosen. No code is changed. Samples
    /// and breakpoints are bounded to take about 1 % of the process's CPU time. A process shows its items only while it
    /// works.
    ///
    /// Exit status: 0 suggestions; 1 no function looks like an item; 2 could not look.
    Suggest(cmd::suggest::SuggestArgs),
    /// List the events that can be sampled, and their precision
    ///
    /// For each name: whether its samples can be precise (yes; no; only: it counts correctly only with :p; -:
    /// unknown), whether the hardware buffers many samples before one interrupt (bulk: PEBS from Skylake on), and
    /// what it counts. Names come from the kernel, from the PMUs in sysfs, and from Intel's event lists, which are
    /// built in.
    ///
    /// Exit status: 0, or 1 if no name matches the pattern.
    Events(cmd::events::EventsArgs),
    /// Check whether this machine can record, and print fixes
    ///
    /// Each line is ok, degraded (recording works, with less) or missing (recording does not work), with the finding
    /// and the command that fixes it. Features are tried, not guessed from the version. Changes nothing without --fix.
    /// Takes well under a second; run it with sudo, as you would record.
    ///
    /// Exit status: 0 if nothing required is missing, else 1.
    Doctor(cmd::doctor::DoctorArgs),
    /// Measure and save the cost of a sample and of a mark on this machine
    ///
    /// Runs a busy loop of known work without samples and with a sample every 10, 20 ... 640 us (or 2,000 ... 128,000
    /// events), in turn. The slope of its CPU time over the samples taken is the cost of one sample, printed with its
    /// 95 % interval. Uses one CPU for some seconds and affects no other process.
    ///
    /// The result is saved for this CPU model, kernel and event in ~/.cache/pebs-trace (or
    /// $XDG_CACHE_HOME/pebs-trace). It replaces the quick measurement before each recording: for the reported
    /// overhead, --max-overhead and 'pebs-trace plan'. Run it on an idle machine.
    ///
    /// --counters instead measures the cost of a program that counts its own events, and saves nothing.
    ///
    /// Exit status: 0 saved; 1 measured, but too inexact to save; 2 could not run.
    Calibrate(cmd::calibrate::CalibrateArgs),
    /// Find the reset value for a bound on the overhead, before recording
    ///
    /// Makes marks for some seconds, counts the event without sampling it, and predicts for each reset value:
    /// slow-down of items, samples per item, the shortest function that is seen, size of the trace. Prints the table
    /// and the command line to record with. 'pebs-trace calibrate' makes the prediction more exact.
    ///
    /// Exit status: 0 a reset value meets the goal; 1 none does, and the alternatives are printed; 2 could not run.
    Plan(cmd::plan::PlanArgs),
    /// Print a page of the guide
    ///
    /// The guide answers questions: why was it slow, what is an item, what does tracing cost. Without PAGE it lists the
    /// pages. For a word that is no page it names those that mention it.
    Guide(cmd::documents::GuideArgs),
    /// Show a man page
    ///
    /// On a terminal with 'man', else as it is, for 'man -l'. With --dir it writes the pages of all commands to files.
    Man(cmd::documents::ManArgs),
    /// Print completions for a shell
    ///
    /// For bash: pebs-trace completions bash > /usr/share/bash-completion/completions/pebs-trace. For this shell alone:
    /// source <(pebs-trace completions bash).
    Completions(cmd::documents::CompletionsArgs),
    /// Compare precise sampling with known truth on this machine
    ///
    /// Runs built-in assembly code whose events are known, samples it as recordings do, and prints how far samples
    /// are from the truth: accuracy of counts, sensitivity to the reset value and stability, bias and attribution,
    /// many events at once, memory accesses, user and kernel mode, overhead, and time stamps of whole recordings.
    /// Tries every event of the machine: PEBS, IBS, breakpoints, page faults and clocks. Each row is 'exact',
    /// 'stand-in' or 'not on this machine'. Needs root and an idle machine, and takes at most 3 minutes; repeat
    /// it before you trust a deviation.
    ///
    /// The last result is saved in ~/.cache/pebs-trace (or $XDG_CACHE_HOME/pebs-trace); 'pebs-trace doctor' shows it.
    /// A result written with --format json can be shared: it holds CPU, kernel and figures, no host or user names.
    ///
    /// Exit status: 0 all within bounds; 1 deviations, which are named; 2 could not run.
    Validate(cmd::validate::ValidateArgs),
    /// Run the time-stamp experiment alone, at several reset values
    ///
    /// Records a built-in program that logs when each of its functions ran, and compares the trace with the log: bias
    /// and standard error of the functions' times, coverage of the 95 % interval, samples in a wrong item. Times
    /// include the machine's noise: repeat it on an idle machine before blaming the tool. Exit status: 0 all targets
    /// reached; 1 one was missed, which is named; 2 could not run.
    #[command(hide = true)]
    Selftest(cmd::selftest::SelftestArgs),
    /// Run the workload that the self-test records.
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
    /// The whole command line.
    fn program() -> clap::Command {
        Cli::command()
    }

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
            Self::Agent(args) => cmd::agent::run(args),
            Self::Push(args) => cmd::push::run(args),
            Self::Traces(args) => cmd::traces::run(args),
            Self::Probes(args) => cmd::probes::run(args),
            Self::Presets(args) => cmd::presets::run(args),
            Self::Suggest(args) => cmd::suggest::run(args),
            Self::Events(args) => cmd::events::run(args),
            Self::Doctor(args) => cmd::doctor::run(args),
            Self::Calibrate(args) => cmd::calibrate::run(args),
            Self::Plan(args) => cmd::plan::run(args),
            Self::Guide(args) => cmd::documents::guide(args),
            Self::Man(args) => cmd::documents::man(args, Self::program()),
            Self::Completions(args) => cmd::documents::completions(args, Self::program()),
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
            "names in a SPEC must be UTF-8, only files and commands may have others: 'ln -s BIN app', \
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
