//! `pebs-trace report`: which items were slow, and which functions take their time.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use serde::Serialize;

use super::moment::PeriodArgs;
use super::progress::Progress;
use super::source::open;
use super::{print_page, print_result};
use crate::compare::classes::SlowBy;
use crate::compare::losses::LossVisits;
use crate::compare::report::{ReportError, ReportOptions, build, lines, memory, paths};
use crate::failure::{Context as _, Result};
use crate::out::report::csv::{self, CsvTable};
use crate::out::report::{lines as lines_out, memory as memory_out, paths as paths_out, text};
use crate::present::{Page, json};
use crate::store::reader::Trace;
use crate::terminal::{say, width};
use crate::units::ProbeId;

/// Options of `pebs-trace report`.
#[derive(Clone, Debug, clap::Args)]
pub struct ReportArgs {
    /// Directory of the trace
    ///
    /// As printed at the end of the recording.
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,

    /// Output format
    ///
    /// JSON and CSV have times in ns; unknown values are null or empty.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,

    /// Report times, call paths, memory accesses, or shared cache lines
    ///
    /// path: for each function its callers, up to the function of the probe, and the time per item of each such path,
    /// of slow and of typical items, with samples and interval; they sum to the function. Events, if the event is not a
    /// clock. Needs call stacks: record with --call-graph, or import 'perf record --call-graph'.
    ///
    /// memory: for each function where the data of its loads and stores came from, snoops of other caches, address
    /// translation, and latency; as events (samples x reset value) per item with their error, of slow and of typical
    /// items. Needs samples with memory accesses: record with --memory, or import 'perf mem record'.
    ///
    /// line: cache lines that several threads use and one of them stores to: who uses which bytes, from which function and in
    /// how many items, and whether these are the same bytes (true sharing) or different ones (false sharing). Needs loads and
    /// stores with their address: record as for memory, watch variables (--event mem:BIN:VARIABLE:rw), or import 'perf c2c
    /// record'.
    #[arg(long, value_enum, default_value_t)]
    pub by: By,

    /// Table that CSV holds
    #[arg(long, value_enum, default_value_t)]
    pub table: ReportTable,

    #[command(flatten)]
    pub period: PeriodArgs,

    /// List this many of the slowest items
    #[arg(long, value_name = "ITEMS", default_value_t = ReportOptions::default().slowest)]
    pub slowest: usize,

    /// List at most this many functions
    ///
    /// In each of the two lists; functions below 0.5 % of the whole are left out.
    #[arg(long, value_name = "FUNCTIONS", default_value_t = ReportOptions::default().top)]
    pub top: usize,

    /// Rule for slow items
    ///
    /// p99: the slowest 1 % of the items of a probe (p50 to p99.99); 3x: at least three times their median; 500us: at
    /// least this time. Default: those above a gap in the durations, if there is one, else p99. With cpu: before it
    /// (cpu:p99, cpu:3x, cpu:500us), or cpu for the default rule: by time on the CPU, which then takes the place of
    /// durations.
    #[arg(long, value_name = "RULE")]
    pub slow: Option<SlowBy>,

    /// Include visits that overlap a loss
    ///
    /// Default: left out, as some of their records may be missing.
    #[arg(long)]
    pub all: bool,

    /// Report only one probe
    ///
    /// Its number: the first --uprobe of the recording is 0.
    #[arg(long, value_name = "ID")]
    pub probe: Option<u16>,
}

/// Format of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// For programs; complete
    Json,
    /// For programs; one table
    Csv,
}

/// Kinds of report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Time of functions and waits
    #[default]
    Time,
    /// Time of functions by call path
    Path,
    /// Memory accesses of functions
    Memory,
    /// Cache lines that threads share
    Line,
}

/// Table of a CSV report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReportTable {
    /// A row for each function or wait
    #[default]
    Functions,
    /// A row for each of the slowest items
    Items,
}

impl From<Format> for Progress {
    fn from(format: Format) -> Self {
        Self::unless(format != Format::Text)
    }
}

impl From<ReportTable> for CsvTable {
    fn from(table: ReportTable) -> Self {
        match table {
            ReportTable::Functions => Self::Functions,
            ReportTable::Items => Self::Items,
        }
    }
}

/// Runs `pebs-trace report`: the report goes to stdout, remarks on the trace to stderr.
///
/// # Errors
/// If the trace can't be read or stdout can't be written. The hint, if there is one, is an error
/// of type [`ReportError`] in the chain.
pub fn run(args: &ReportArgs) -> Result<ExitCode> {
    let options = ReportOptions {
        probe: args.probe.map(ProbeId),
        slowest: args.slowest,
        top: args.top,
        losses: if args.all {
            LossVisits::Include
        } else {
            LossVisits::LeaveOut
        },
        slow: args.slow,
    };
    let of = (&*args.trace, &args.period);
    match args.by {
        By::Time => write(of, args.format, args.table, &options, &[])?,
        By::Path => write_paths(of, args.format, &options)?,
        By::Memory => write_memory(of, args.format, &options)?,
        By::Line => write_lines(of, args.format, &options)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the report of a trace with default options, as at the end of a recording. The text omits the notes in
/// `printed`.
///
/// # Errors
/// As [`run`].
pub fn print(trace_dir: &Path, format: Format, printed: &[String]) -> Result<()> {
    write(
        (trace_dir, &PeriodArgs::default()),
        format,
        ReportTable::default(),
        &ReportOptions::default(),
        printed,
    )
}

/// Builds a report of a trace and shows its progress.
fn read<T>(
    (dir, period): Part<'_>,
    format: Format,
    build: impl FnOnce(&Trace) -> Result<T, ReportError>,
) -> Result<T> {
    let mut trace = open(dir)?;
    if let Some((remark, hint)) = trace.remark() {
        say!("{remark}\nhint: {hint}");
    }
    let progress = Progress::from(format);
    trace.watch = progress.watch();
    period.apply(&mut trace)?;
    Ok(build(&trace)?)
}

/// A trace, and the part of it to report.
type Part<'a> = (&'a Path, &'a PeriodArgs);

fn write_paths(dir: Part<'_>, format: Format, options: &ReportOptions) -> Result<()> {
    let report = read(dir, format, |trace| paths::build(trace, options))?;
    if report.call_graph.is_none() && format != Format::Text {
        say!("{}", paths_out::text::NOTHING.trim_end());
    }
    let text = || paths_out::text::page(&report, options.top, width());
    show(format, &report, text, || paths_out::csv::render(&report))
}

fn write_memory(dir: Part<'_>, format: Format, options: &ReportOptions) -> Result<()> {
    let report = read(dir, format, |trace| memory::build(trace, options))?;
    if report.events.is_empty() && format != Format::Text {
        say!("{}", memory_out::text::NOTHING.trim_end());
    }
    let text = || memory_out::text::page(&report, options.top, width());
    show(format, &report, text, || memory_out::csv::render(&report))
}

fn write_lines(dir: Part<'_>, format: Format, options: &ReportOptions) -> Result<()> {
    let report = read(dir, format, |trace| lines::build(trace, options))?;
    if report.events.is_empty() && format != Format::Text {
        say!("{}", lines_out::text::NOTHING.trim_end());
    }
    let text = || lines_out::text::page(&report, options.top, width());
    show(format, &report, text, || lines_out::csv::render(&report))
}

fn write(
    dir: Part<'_>,
    format: Format,
    table: ReportTable,
    options: &ReportOptions,
    printed: &[String],
) -> Result<()> {
    let mut report = read(dir, format, |trace| build(trace, options))?;
    if format == Format::Text {
        report.run.notes.retain(|note| !printed.contains(note));
    }
    let text = || text::page(&report, width());
    show(format, &report, text, || csv::render(&report, table.into()))
}

/// Prints a report in a format.
fn show(
    format: Format,
    report: &impl Serialize,
    text: impl FnOnce() -> Page,
    csv: impl FnOnce() -> String,
) -> Result<()> {
    let shown = match format {
        Format::Text => return print_page(&text(), "report"),
        Format::Json => json::render(report).context("cannot write the report as JSON")?,
        Format::Csv => csv(),
    };
    print_result(&shown, "report")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ReportArgs,
    }

    /// Defaults work unread, and every option is taken.
    #[test]
    fn arguments() {
        let plain = Line::try_parse_from(["report", "t"]).unwrap().args;
        assert_eq!((plain.slowest, plain.top, plain.all), (10, 15, false));
        assert_eq!((plain.format, plain.probe), (Format::Text, None));
        let all = "report t --format csv --table items --slowest 3 --top 4 --all --probe 1";
        let all = Line::try_parse_from(all.split(' ')).unwrap().args;
        assert_eq!((all.slowest, all.top, all.all), (3, 4, true));
        assert_eq!((all.format, all.table), (Format::Csv, ReportTable::Items));
        assert_eq!(all.probe, Some(1));
        let slow = Line::try_parse_from(["report", "t", "--slow", "cpu:3x"]).unwrap();
        assert_eq!((plain.slow, slow.args.slow), (None, "cpu:3x".parse().ok()));
        let memory = Line::try_parse_from(["report", "t", "--by", "memory"]).unwrap();
        assert_eq!((plain.by, memory.args.by), (By::Time, By::Memory));
        let line = Line::try_parse_from(["report", "t", "--by", "line"]).unwrap();
        assert_eq!(line.args.by, By::Line);
        let path = Line::try_parse_from(["report", "t", "--by", "path"]).unwrap();
        assert_eq!(path.args.by, By::Path);
    }

    /// An error of the trace brings its hint.
    #[test]
    fn missing_trace() {
        let args = Line::try_parse_from(["report", "/nonexistent/t"])
            .unwrap()
            .args;
        let error = run(&args).unwrap_err();
        assert!(error.hint().is_some(), "{error}");
    }
}
