//! `pebs-trace mine`: which of the counted events explains how long something took.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use pebs_mine::csv;
use pebs_mine::rank::Scale;

use super::explain::Format;
use super::result_file::{OnTerminal, ResultFile};
use super::{print_page, print_result};
use crate::compare::mine::across::{RunTable, Runs, are_apart, mine_runs};
use crate::compare::mine::of_trace::{self, TraceError};
use crate::compare::mine::{CleanWhen, MineOptions, Mined, Until, mine};
use crate::failure::{Context as _, Failure, Result};
use crate::out::mine::{page, text};
use crate::perf::data::reader::{PerfData, is_perf_data};
use crate::perf::data::stat;
use crate::present::csv::Line;
use crate::present::json;
use crate::store::reader::Trace;
use crate::terminal;

/// Options of `pebs-trace mine`.
#[derive(Clone, Debug, clap::Args)]
pub struct MineArgs {
    /// Traces with --count, counts of 'perf stat', or tables of counts
    ///
    /// 'perf stat -I 100 -x, -o FILE' (or -j) and 'perf stat record -I 100 -o FILE' count at intervals; with -A or
    /// --per-thread each CPU or thread is a separate series. Each item of a trace is a row. A table has a header
    /// line, then a line per item. Rows of several files are joined; files that counted different events are ranked run by
    /// run, and compared. '-' is standard input.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Rank a configuration value of the runs, too
    ///
    /// NAME is in the path of each FILE (workers=4/counts.csv, or workers=4,shards=2.csv), or the name of a column that
    /// holds one value a file. NAME=VALUE,VALUE,... gives a value for each FILE, then for each of --beside. Its pairs
    /// with other parameters and with events are ranked. May be repeated.
    #[arg(short, long = "parameter", value_name = "NAME[=VALUES]")]
    pub parameters: Vec<String>,

    /// Show which events change rank in these runs, beside a neighbour
    ///
    /// Counts of the same program while another one ran. Files of any kind that FILE can be.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub beside: Vec<PathBuf>,

    /// Compare items of the same class only
    ///
    /// A column of the tables, or an argument in the traces (kind=arg1 in --uprobe 'FILE:FUNC(kind=arg1)'). Runs that counted other
    /// events are compared over the same share of each class. Default: all items are of one class.
    #[arg(long, value_name = "NAME")]
    pub class: Option<String>,

    /// Explain the items or the time intervals of traces
    ///
    /// Intervals are those of --count-interval: each thread is a separate series.
    #[arg(long, value_enum, default_value_t)]
    pub series: SeriesArg,

    /// Explain this column
    ///
    /// Default: IPC, if instructions and cycles were counted; else a counted column named duration, latency, time or
    /// task-clock.
    #[arg(short, long, value_name = "NAME")]
    pub explain: Option<String>,

    /// Which counts to clean
    ///
    /// An event that shared its counter with others was counted in a part of each interval. Outliers that come from
    /// that are replaced, gaps are filled, and parts are completed from the intervals around. Counts of whole
    /// intervals and of items are changed only with always.
    #[arg(long, value_enum, default_value_t)]
    pub clean: CleanArg,

    /// Fill in missing values from this many neighbouring intervals
    ///
    /// 1 to 100. Default: 3 to 8, chosen for each event by cross-validation.
    #[arg(long, value_name = "INTERVALS", value_parser = clap::value_parser!(u64).range(1..=100))]
    pub neighbours: Option<u64>,

    /// Explain the outcome itself, or its logarithm
    ///
    /// Default: log if the outcomes span more than a decade.
    #[arg(long, value_enum)]
    pub scale: Option<ScaleArg>,

    /// Show which counts of this item or interval are unusual
    ///
    /// Its id or time as in the file. Default: the three worst.
    #[arg(short, long, value_name = "ID")]
    pub item: Option<String>,

    /// Stop after this step
    #[arg(long, value_enum, default_value_t)]
    pub until: UntilArg,

    /// List at most this many events and pairs
    #[arg(long, value_name = "EVENTS", default_value_t = 12)]
    pub top: usize,

    /// Seed for random samples of rows
    ///
    /// The same seed gives the same result.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,

    /// Also write the cleaned counts to this file, which must not exist
    ///
    /// As CSV; the last column names the events whose counts were changed, and why.
    #[arg(long, value_name = "FILE")]
    pub cleaned: Option<PathBuf>,

    /// Also write a page with figures to this file, which must not exist
    ///
    /// Error by number of events, importance, series before and after cleaning.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Output format
    ///
    /// JSON has every value that was changed, and all events and pairs.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Meaning of a row of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SeriesArg {
    /// Items
    #[default]
    Items,
    /// Time intervals of each thread
    Intervals,
}

/// Counts that are cleaned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CleanArg {
    /// Counts that are known to be scaled
    #[default]
    Scaled,
    /// All counts
    Always,
    /// No counts
    Never,
}

/// Scale of the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScaleArg {
    /// The value itself: the longest weigh most
    Linear,
    /// Its logarithm: equal ratios weigh the same
    Log,
}

/// The last step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum UntilArg {
    /// Clean counts
    Clean,
    /// Rank events
    Rank,
    /// Rank pairs of events
    #[default]
    Interact,
}

impl MineArgs {
    fn options(&self) -> MineOptions {
        MineOptions {
            explain: self.explain.clone(),
            clean: match self.clean {
                CleanArg::Scaled => CleanWhen::Scaled,
                CleanArg::Always => CleanWhen::Always,
                CleanArg::Never => CleanWhen::Never,
            },
            neighbours: self.neighbours.map(|it| it as usize),
            scale: self.scale.map(|it| match it {
                ScaleArg::Linear => Scale::Linear,
                ScaleArg::Log => Scale::Log,
            }),
            item: self.item.clone(),
            until: match self.until {
                UntilArg::Clean => Until::Clean,
                UntilArg::Rank => Until::Rank,
                UntilArg::Interact => Until::Interact,
            },
            seed: self.seed,
        }
    }
}

fn read(path: &Path, of: SeriesArg, words: &[&str]) -> Result<csv::Table> {
    let name = path.display().to_string();
    if path == Path::new("-") && of == SeriesArg::Items {
        let mut input = std::io::stdin().lock();
        if is_perf_data(input.fill_buf().context("cannot read standard input")?) {
            return Err(Failure::new(
                "cannot read counts of 'perf stat record' from standard input",
                "write them to a file: 'perf stat record -I 100 -o FILE CMD'",
            ));
        }
        return Ok(csv::read("standard input", input)?);
    }
    if path.is_dir() {
        let trace = Trace::open(path).map_err(TraceError::from)?;
        return Ok(match of {
            SeriesArg::Items => {
                let (mut table, remarks) = of_trace::read(&trace, words)?;
                table.notes.extend(remarks.iter().map(ToString::to_string));
                table
            }
            SeriesArg::Intervals => of_trace::intervals(&trace)?,
        });
    }
    if of == SeriesArg::Intervals {
        return Err(Failure::new(
            format!("{name} is not a trace: --series applies to traces only"),
            "leave it out: files of perf have intervals",
        ));
    }
    let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
    let mut file = BufReader::with_capacity(1 << 20, file);
    let begin = file.fill_buf();
    if is_perf_data(begin.with_context(|| format!("cannot read {name}"))?) {
        return Ok(stat::read(&mut PerfData::open(path)?)?);
    }
    Ok(csv::read(&name, file)?)
}

/// Runs `pebs-trace mine`: the result goes to stdout.
///
/// # Errors
/// If a file can't be read, there is nothing to explain, or a result can't be written.
pub fn run(args: &MineArgs) -> Result<ExitCode> {
    let parameters = args.parameters.iter().map(|it| Parameter::of(it));
    let parameters: Vec<Parameter<'_>> = parameters.collect();
    let mut words: Vec<&str> = parameters.iter().map(|it| it.name).collect();
    words.extend(args.class.as_deref());
    let read_all = |paths: &[PathBuf]| -> Result<Vec<(String, csv::Table)>> {
        let one = |path: &PathBuf| {
            let table = read(path, args.series, &words)?;
            Ok((path.display().to_string(), table))
        };
        paths.iter().map(one).collect()
    };
    let tables = read_all(&args.files)?;
    let has_more = !parameters.is_empty() || !args.beside.is_empty() || args.class.is_some();
    let is_ranked = args.until != UntilArg::Clean;
    let mined = if is_ranked && (has_more || are_apart(&tables)) {
        let beside = read_all(&args.beside)?;
        mine_runs(runs(args, &parameters, tables, beside)?, &args.options())?
    } else {
        let files = tables.iter().map(|it| it.0.clone()).collect();
        mine(files, csv::join(tables), &args.options())?
    };
    if let Some(path) = &args.cleaned {
        to_file(path, |out| write_cleaned(&mined, out))?;
    }
    if let Some(path) = &args.html {
        to_file(path, |out| page::write(&mined, args.top, out))?;
    }
    match args.format {
        Format::Text => print_page(&text::page(&mined, args.top, terminal::width()), "ranking")?,
        Format::Json => {
            let json = json::render(&mined).context("cannot write the ranking as JSON")?;
            print_result(&json, "ranking")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A parameter as typed.
struct Parameter<'a> {
    name: &'a str,
    /// A value for each file.
    values: Option<Vec<&'a str>>,
}

impl<'a> Parameter<'a> {
    fn of(typed: &'a str) -> Self {
        match typed.split_once('=') {
            Some((name, values)) => Self {
                name,
                values: Some(values.split(',').map(str::trim).collect()),
            },
            None => Self {
                name: typed,
                values: None,
            },
        }
    }

    /// Its value in a file, the `at`-th of all; taken out of the table if it is a column there.
    fn value(&self, at: usize, file: &str, table: &mut csv::Table) -> Result<String> {
        let name = self.name;
        let column = table.take_words(name);
        if let Some(values) = &self.values {
            return Ok(values.get(at).copied().unwrap_or_default().to_owned());
        }
        if let Some(value) = in_path(file, name) {
            return Ok(value.to_owned());
        }
        let Some(mut values) = column else {
            return Err(Failure::new(
                format!("{file} has no parameter '{name}'"),
                format!(
                    "put {name}=VALUE into its path, add a column '{name}', or give a value for each file: --parameter {name}=VALUE,VALUE"
                ),
            ));
        };
        values.sort_unstable();
        values.dedup();
        match &values[..] {
            [value] if !value.is_empty() => Ok(value.clone()),
            [_] => Err(Failure::new(
                format!("{file}: column '{name}' is empty"),
                "a parameter has one value in all rows of a file",
            )),
            _ => Err(Failure::new(
                format!("{file}: column '{name}' has {} values", values.len()),
                "a parameter has one value in all rows of a file: write a file for each run",
            )),
        }
    }
}

/// The value of `NAME=VALUE` in a path: a folder, or between the commas of the file's name.
fn in_path<'a>(file: &'a str, name: &str) -> Option<&'a str> {
    let (folders, last) = file.rsplit_once('/').unwrap_or(("", file));
    // The end that names the format is no part of a value; a number's fraction is.
    let stem = match last.rsplit_once('.') {
        Some((stem, end)) if end.contains(|c: char| c.is_ascii_alphabetic()) => stem,
        _ => last,
    };
    let parts = folders.split('/').chain(stem.split(','));
    let mut values = parts.filter_map(|it| it.strip_prefix(name)?.strip_prefix('='));
    values.next_back()
}

/// The runs to mine together, each with its parameters and classes.
fn runs(
    args: &MineArgs,
    parameters: &[Parameter<'_>],
    alone: Vec<(String, csv::Table)>,
    beside: Vec<(String, csv::Table)>,
) -> Result<Runs> {
    let files = alone.len() + beside.len();
    for (at, parameter) in parameters.iter().enumerate() {
        let name = parameter.name;
        if name.is_empty() {
            return Err(Failure::new(
                "a parameter without a name",
                "--parameter NAME, or --parameter NAME=VALUE,VALUE",
            ));
        }
        if parameters[..at].iter().any(|it| it.name == name) {
            return Err(Failure::new(
                format!("parameter '{name}' is given twice"),
                "leave out one of them",
            ));
        }
        if let Some(values) = &parameter.values
            && (values.len() != files || values.contains(&""))
        {
            return Err(Failure::new(
                format!(
                    "parameter '{name}' has {} values for {files} files",
                    values.iter().filter(|it| !it.is_empty()).count()
                ),
                "give one for each FILE, then one for each of --beside, or only its name",
            ));
        }
    }
    let mut tables = Vec::new();
    let first = alone.len();
    for (at, (name, mut table)) in alone.into_iter().chain(beside).enumerate() {
        let values = parameters.iter().map(|it| it.value(at, &name, &mut table));
        let values = values.collect::<Result<Vec<String>>>()?;
        let classes = match &args.class {
            None => Vec::new(),
            Some(class) => table.take_words(class).ok_or_else(|| {
                Failure::new(
                    format!("{name} has no column '{class}'"),
                    "--class names a column of words or numbers, or an argument that was recorded",
                )
            })?,
        };
        tables.push(RunTable {
            name,
            table,
            values,
            classes,
        });
    }
    let beside = tables.split_off(first);
    Ok(Runs {
        alone: tables,
        beside,
        parameters: parameters.iter().map(|it| it.name.to_owned()).collect(),
        class: args.class.clone(),
    })
}

fn to_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    let file = ResultFile {
        output: Some(path.to_owned()),
        force: false,
    };
    file.write(OnTerminal::Refuse, write)
}

/// Writes the cleaned counts as CSV; the last column names the changed events.
fn write_cleaned(mined: &Mined, out: &mut dyn Write) -> std::io::Result<()> {
    let mut line = Line::default();
    line.text("row");
    for event in &mined.series.events {
        line.text(&event.name);
    }
    line.text("changed");
    out.write_all(line.end().as_bytes())?;
    let mut changes: std::collections::HashMap<&str, Vec<String>> =
        std::collections::HashMap::new();
    for change in &mined.changes {
        let of_row = changes.entry(&change.row).or_default();
        of_row.push(format!("{}: {}", change.event, change.why));
    }
    for row in 0..mined.series.rows() {
        let label = mined.series.label(row);
        let mut line = Line::default();
        line.text(&label);
        for event in &mined.series.events {
            line.maybe(Some(event.counts[row]).filter(|it| !it.is_nan()));
        }
        line.text(
            &changes
                .get(&*label)
                .map_or_else(String::new, |it| it.join("; ")),
        );
        out.write_all(line.end().as_bytes())?;
    }
    Ok(())
}
