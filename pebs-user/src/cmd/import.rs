//! `pebs-trace import`: converts a recording of `perf record` into a trace.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use super::progress::Progress as ProgressLine;
use super::report::{self, Format};
use crate::failure::{Context as _, Failure, Hint as _, Result};
use crate::import::error::{ImportError, Instead, list};
use crate::import::marks::{self, Marks};
use crate::import::{Fed, MarkSource, Reading, Roles, Survey, check_span, feed, roles, run_info};
use crate::ledger::Ledger;
use crate::perf::data::error::DataError;
use crate::perf::data::machine;
use crate::perf::data::reader::PerfData;
use crate::pipeline::{Keep, Outcome, Pipeline, PipelineOptions, Progress};
use crate::present::human::plural;
use crate::probe::set::{Probe, ProbeSet};
use crate::store::options::WriterOptions;
use crate::store::run::{EventInfo, RunInfo};
use crate::store::writer::TraceWriter;
use crate::stream::decode::RecordKinds;
use crate::symbolize::{Inlining, Recorded, RecordedKernel, SymbolizeOptions};
use crate::terminal::say;
use crate::units::{CountUnit, KtimeNs};

/// Options of `pebs-trace import`.
#[derive(Clone, Debug, clap::Args)]
pub struct ImportArgs {
    /// File that 'perf record' wrote, or - for standard input
    ///
    /// A stream ('perf record -o -') is copied to a temporary file first.
    #[arg(value_name = "PERF_DATA")]
    pub file: PathBuf,
    /// Begin an item at each sample of this event, by its name in perf
    ///
    /// Examples: probe_app:req_begin, sdt_app:request__start. 'perf evlist -i FILE' lists the events.
    #[arg(
        long,
        value_name = "EVENT",
        help_heading = "Items",
        conflicts_with = "marks"
    )]
    pub begin: Option<String>,
    /// End an item at each sample of this event
    ///
    /// Default: an item ends where the next one begins on its thread.
    #[arg(long, value_name = "EVENT", help_heading = "Items", requires = "begin")]
    pub end: Option<String>,
    /// Take the item id from this field of the event
    ///
    /// If both events have it, begins and ends are matched by it, and items may overlap on a thread or change
    /// threads; else they are matched by thread. Default: items are numbered.
    #[arg(long, value_name = "FIELD", help_heading = "Items", requires = "begin")]
    pub id: Option<String>,
    /// Take the begins and ends of items from this table
    ///
    /// CSV with the columns time_ns (on the recording's clock, as 'perf script --ns' prints it, in ns), tid, mark
    /// (begin or end), and item_id, which is optional.
    #[arg(long, value_name = "CSV", help_heading = "Items")]
    pub marks: Option<PathBuf>,
    /// Import only samples of this event; repeat for several
    ///
    /// Default: samples of all events that have no other role.
    #[arg(short, long = "event", value_name = "EVENT", help_heading = "Items")]
    pub events: Vec<String>,
    /// Binary, or directory to search for binaries; repeat for several
    ///
    /// A file is used if its build id is the recorded one, or by its name, if the recording has no build id for it.
    /// Directories are searched by path, by name and by .build-id, as in ~/.debug. Binaries at their recorded paths
    /// are used only by build id.
    #[arg(long, value_name = "PATH", help_heading = "Names")]
    pub symbols: Vec<PathBuf>,
    /// Look for binaries in this copy of the recorded file system
    ///
    /// By their paths below it, and not on this machine. The running kernel is then not used for names, even if it is
    /// the recorded one.
    #[arg(long, value_name = "DIR", help_heading = "Names")]
    pub symfs: Option<PathBuf>,
    /// Attribute samples in inlined code to the inlined function
    ///
    /// Needs debug information. With call stacks inlined functions are separate frames, before the function that
    /// contains their code.
    #[arg(long, help_heading = "Names")]
    pub inlined: bool,
    /// Write the trace to this directory, which must not exist
    ///
    /// Default: ./pebs-trace-YYYYmmdd-HHMMSS
    #[arg(short, long, value_name = "DIR", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Do not compact the files of the trace
    ///
    /// Compacting (zstd, dictionaries) makes them less than half as large, for about a quarter more CPU time.
    #[arg(long, help_heading = "Output")]
    pub no_compact: bool,
    /// Format of the report
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    pub format: Format,
    /// Exit with 1 if more than this share of samples or marks is lost
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = crate::cmd::values::percent)]
    #[arg(help_heading = "Output")]
    pub max_loss: f64,
}

/// Trace time after which a segment is closed. Importing again costs less than many small files.
const SEGMENT: Duration = Duration::from_secs(60);

/// Maximum number of samples held for open visits: 1 GiB.
const SAMPLES_MAX: usize = 1 << 25;

/// Maximum bytes of distinct call stacks in memory: some 300,000 stacks.
const STACK_BYTES_MAX: usize = 64 << 20;

/// Imports a recording.
///
/// # Errors
/// If nothing could be imported.
pub fn run(args: &ImportArgs) -> Result<ExitCode> {
    let source = source(args)?;
    let mut data = PerfData::open(&args.file).map_err(ImportError::from)?;
    check_architecture(&data)?;
    let progress = ProgressLine::from(args.format);
    data.watch = progress.watch().named("importing records");
    let output = args.output.clone().unwrap_or_else(super::default_output);
    let mut reading = Reading::begin(&mut data)?;
    check_architecture(&data)?;
    let mut draft = None;
    if let Some(premises) = reading.premises(&data, &source, &args.events) {
        let import = Import {
            args,
            data: &data,
            survey: &premises.survey,
            roles: &premises.roles,
            origin: KtimeNs(premises.first),
        };
        let (mut pipeline, note) = import.start(&output)?;
        let fed = reading.feed(&mut data, (&premises, &source), &mut pipeline);
        draft = Some((premises, pipeline, note, fed));
    }
    let whole = reading.close(&mut data).map_err(Failure::from);
    let whole = whole.and_then(|survey| WholeSurvey::new(args, &data, survey, &source));
    if let Some((premises, pipeline, note, fed)) = draft {
        if let (Ok(Some(fed)), Ok(whole)) = (fed, &whole)
            && premises.hold(&data, &whole.survey, &whole.roles)
        {
            let import = whole.import(args, &data);
            return Ok(import.end(&output, pipeline, fed, whole.last, note, progress));
        }
        drop(pipeline);
        discard(&output)?;
    }
    let whole = whole?;
    let import = whole.import(args, &data);
    let (mut pipeline, note) = import.start(&output)?;
    let parts = (&whole.roles, &source);
    let fed = feed(&data, &whole.survey, parts, import.origin, &mut pipeline);
    Ok(import.end(&output, pipeline, fed, whole.last, note, progress))
}

/// Removes a trace that was begun in vain.
fn discard(output: &Path) -> Result<()> {
    std::fs::remove_dir_all(output).map_err(|error| {
        let message = format!("cannot make {} anew: {error}", output.display());
        Failure::new(message, "import into another directory".to_owned())
    })
}

/// Results of the survey of the whole recording.
struct WholeSurvey {
    survey: Survey,
    roles: Roles,
    /// Times of the first and the last record, or mark.
    first: u64,
    last: u64,
}

impl WholeSurvey {
    fn new(
        args: &ImportArgs,
        data: &PerfData,
        survey: Survey,
        source: &MarkSource,
    ) -> Result<Self> {
        check_architecture(data)?;
        let Some((first, last)) = survey.times.filter(|_| survey.timed() > 0) else {
            return Err(empty(data, &survey).into());
        };
        let roles = roles(data, &survey, source, &args.events)?;
        let mark_times = match source {
            MarkSource::Table(Marks(rows)) => rows.first().zip(rows.last()),
            MarkSource::None | MarkSource::Events { .. } => None,
        };
        let (first, last) = mark_times.map_or((first, last), |(a, b)| {
            (first.min(a.time), last.max(b.time))
        });
        let files = match &args.marks {
            Some(marks) => format!("{} and {}", data.path(), marks.display()),
            None => data.path().to_owned(),
        };
        check_span(&files, (first, last))?;
        Ok(Self {
            survey,
            roles,
            first,
            last,
        })
    }

    const fn import<'a>(&'a self, args: &'a ImportArgs, data: &'a PerfData) -> Import<'a> {
        Import {
            args,
            data,
            survey: &self.survey,
            roles: &self.roles,
            origin: KtimeNs(self.first),
        }
    }
}

/// Binaries with samples, by their recorded paths.
fn binaries(data: &PerfData) -> Vec<PathBuf> {
    let paths = data.features.build_ids.keys();
    let paths = paths.map(|path| PathBuf::from(OsStr::from_bytes(path)));
    paths.filter(|path| path.is_absolute()).collect()
}

/// A recording and the options of its import.
struct Import<'a> {
    args: &'a ImportArgs,
    data: &'a PerfData,
    survey: &'a Survey,
    roles: &'a Roles,
    /// ns 0 on the recording's clock.
    origin: KtimeNs,
}

/// Source of the begins and ends of items, from the options.
fn source(args: &ImportArgs) -> Result<MarkSource> {
    if let Some(path) = &args.marks {
        let bytes = std::fs::read(path).map_err(|error| {
            let message = format!("cannot read {}: {error}", path.display());
            let hint = "a table of marks begins with the line 'time_ns,tid,mark,item_id'";
            Failure::new(message, hint.to_owned())
        })?;
        let text = String::from_utf8_lossy(&bytes);
        let marks = marks::parse(&text);
        let marks = marks.with_context(|| format!("cannot use {}", path.display()))?;
        return Ok(MarkSource::Table(marks));
    }
    let Some(begin) = args.begin.clone() else {
        return Ok(MarkSource::None);
    };
    if args.end.as_ref() == Some(&begin) {
        return Err(Failure::new(
            format!("items cannot begin and end at the same event '{begin}'"),
            "leave --end out if an item ends where the next begins".to_owned(),
        ));
    }
    Ok(MarkSource::Events {
        begin,
        end: args.end.clone(),
        id: args.id.clone(),
    })
}

/// Description of the begins and ends of items.
fn spec(args: &ImportArgs) -> String {
    match (&args.marks, &args.begin) {
        (Some(path), _) => path.display().to_string(),
        (None, Some(begin)) => {
            let id = args
                .id
                .as_ref()
                .map_or_else(String::new, |id| format!("(id={id})"));
            let end = args.end.as_deref().unwrap_or_default();
            format!("{begin}{id}..{end}")
        }
        (None, None) => String::new(),
    }
}

fn check_architecture(data: &PerfData) -> Result<(), ImportError> {
    match &data.features.arch {
        Some(arch) if machine::is_narrow(arch) => Err(DataError::Narrow {
            path: data.path().to_owned(),
            arch: arch.clone(),
        }
        .into()),
        _ => Ok(()),
    }
}

/// The error for a recording without anything to import.
fn empty(data: &PerfData, survey: &Survey) -> ImportError {
    let path = data.path().to_owned();
    match survey.samples() {
        0 => ImportError::NoSamples {
            path,
            cut: survey
                .fault
                .as_ref()
                .map(|fault| format!("{} at byte {}", fault.what, fault.at)),
            instead: match (data.has_counts, data.has_hardware_trace) {
                (true, _) => Instead::Counts,
                (false, true) => Instead::HardwareTrace,
                (false, false) => Instead::Nothing,
            },
        },
        samples => ImportError::NoTime { path, samples },
    }
}

impl Import<'_> {
    fn info(&self) -> RunInfo {
        let parts = (self.origin.0, &*spec(self.args));
        run_info(self.data, self.survey, self.roles, parts)
    }

    /// Makes the trace, and what fills it. With a remark on debug files.
    fn start(&self, output: &Path) -> Result<(Pipeline, Option<String>)> {
        let mut info = self.info();
        let mut note = None;
        if self.args.symfs.is_none() {
            note = super::fetch_debug_files(|| binaries(self.data));
        }
        info.notes.extend(note.clone());
        let options = WriterOptions {
            segment: SEGMENT,
            compact: !self.args.no_compact,
            compact_all: true,
            ..WriterOptions::default()
        };
        let writer = TraceWriter::create(output, &info, options)?;
        Ok((self.pipeline(&info, writer), note))
    }

    /// Closes the trace, whose last record is at `last`, and prints the notes for the user.
    fn end(
        &self,
        output: &Path,
        pipeline: Pipeline,
        fed: Fed,
        last: u64,
        note: Option<String>,
        progress: ProgressLine,
    ) -> ExitCode {
        let mut info = self.info();
        info.notes.extend(note);
        // Times are half-open: the last record is within.
        let outcome = pipeline.finish(KtimeNs(last.saturating_add(1)));
        drop(progress);
        self.finish(output, (info, outcome, fed))
    }

    fn pipeline(&self, info: &RunInfo, writer: TraceWriter) -> Pipeline {
        let Self {
            args,
            data,
            survey,
            roles,
            origin,
        } = *self;
        let kernel = survey.recorded_kernel(data);
        // Asked once: it reads all of the kernel's symbols.
        let is_ours = kernel.as_ref().is_some_and(RecordedKernel::is_ours);
        let written = || std::fs::metadata(&args.file)?.modified();
        let until = is_ours.then(written).and_then(Result::ok);
        let probe = |rule| Probe {
            has_id: roles.has_id,
            ..Probe::without_sites(spec(args), rule)
        };
        let probes = ProbeSet {
            probes: roles.rule.map(probe).into_iter().collect(),
            ..ProbeSet::default()
        };
        let options = PipelineOptions {
            bulk: None,
            origin,
            counted: Vec::new(),
            count_interval: None,
            event_times: info.events.iter().map(EventInfo::time).collect(),
            costly_events: u64::MAX,
            resets: info
                .events
                .iter()
                .map(|event| {
                    if event.unit == CountUnit::Samples {
                        0
                    } else {
                        event.reset
                    }
                })
                .collect(),
            watches: roles.watches(data),
            max_samples: SAMPLES_MAX,
            max_stack_bytes: STACK_BYTES_MAX,
            symbolize: SymbolizeOptions {
                inlined: match args.inlined {
                    true => Inlining::Innermost,
                    false => Inlining::Physical,
                },
                recorded: Some(Recorded {
                    symbols: Arc::from(args.symbols.as_slice()),
                    symfs: args.symfs.as_deref().map(Arc::from),
                    kernel,
                    until,
                }),
                ..SymbolizeOptions::default()
            },
            keep: Keep::All,
            interval: SEGMENT,
            kinds: RecordKinds {
                switches: roles.switches,
                ..RecordKinds::default()
            },
        };
        Pipeline::new(&probes, &options, writer, Arc::new(Progress::default()))
    }

    /// Closes the trace, prints the report and remarks, returns the exit code.
    fn finish(&self, output: &Path, (mut info, outcome, fed): (RunInfo, Outcome, Fed)) -> ExitCode {
        let Self {
            args, data, survey, ..
        } = *self;
        let faults = outcome.ledger.check();
        let unnamed = unnamed(data, survey, &outcome.ledger);
        let (visits, unmatched) = (outcome.visits, outcome.marks);
        info.complete = true;
        info.duration_ns = Some(outcome.end.0);
        info.unwound = outcome.unwound;
        info.notes.extend(faults.iter().cloned());
        if fed.lone_switches > 0 {
            info.notes.push(format!(
                "switches of threads with items are missing ({}): visits around them are flagged",
                plural(fed.lone_switches, "gap")
            ));
        }
        let lost = loss_ratio(&outcome.ledger);
        info.ledger = Some(outcome.ledger);
        let written = outcome.writer.finish(&info);
        let cut = outcome.write_error.or(written.err());
        // The trace is complete even if its report fails.
        if let Err(error) = report::print(output, args.format, &[]) {
            say!("error: {error}");
        }
        for fault in &faults {
            say!("warning: {fault}: this is a bug");
        }
        if let Some(error) = &cut {
            say!("error: {error}: the trace holds only what was written before");
            if let Some(hint) = error.hint() {
                say!("hint: {hint}");
            }
        }
        if let Some((text, hint)) = damage(data, survey) {
            say!("warning: {text}\nhint: {hint}");
        }
        if let Some((text, hint)) = no_items(args, survey, (visits, unmatched), fed) {
            say!("warning: {text}\nhint: {hint}");
        }
        if let Some((text, hint)) = unnamed {
            say!("warning: {text}\nhint: {hint}");
        }
        let above = lost * 100.0 > args.max_loss;
        if above {
            say!(
                "warning: {:.3} % of samples or marks were lost, above --max-loss {}",
                lost * 100.0,
                args.max_loss
            );
            say!("hint: {}", fewer_losses(survey));
        }
        say_where(output, args.format);
        let bad = above
            || cut.is_some()
            || !faults.is_empty()
            || survey.fault.is_some()
            || data.unfinished
            || data.incomplete;
        ExitCode::from(u8::from(bad))
    }
}

fn loss_ratio(ledger: &Ledger) -> f64 {
    let totals = ledger.totals();
    totals.samples.loss_ratio().max(totals.marks.loss_ratio())
}

/// Prints the path of the trace: to stdout for text, else to stderr, to keep the data clean.
fn say_where(output: &Path, format: Format) {
    let line = format!("trace: {}", output.display());
    if format == Format::Text {
        // Ignored: the reader may have closed the pipe.
        let _ = writeln!(crate::terminal::stdout(), "{line}");
    } else {
        say!("{line}");
    }
}

/// Describes the missing part of a damaged file, with a hint.
fn damage(data: &PerfData, survey: &Survey) -> Option<(String, String)> {
    let saved = survey.samples();
    let path = data.path();
    if let Some(fault) = &survey.fault {
        let text = format!(
            "{path} is truncated: {} at byte {} of {}; the {saved} samples before it were saved",
            fault.what, fault.at, data.len
        );
        return Some((
            text,
            "copy the file again, if it was complete elsewhere".to_owned(),
        ));
    }
    if data.incomplete {
        let text = format!(
            "{path} is truncated after its records: names and build ids may be missing; all {saved} samples were saved"
        );
        let hint = "copy the file again, if it was complete elsewhere";
        return Some((text, hint.to_owned()));
    }
    data.unfinished.then(|| {
        let text = format!(
            "{path} was not finished: 'perf record' was killed; {saved} samples were saved"
        );
        let hint = "end 'perf record' with Ctrl-C or SIGTERM: names and build ids are written last";
        (text, hint.to_owned())
    })
}

/// Hint against the most frequent reason of loss.
fn fewer_losses(survey: &Survey) -> &'static str {
    let lost = survey.losses.iter().filter_map(|loss| loss.records);
    if survey.samples() - survey.timed() > lost.sum() {
        "record with 'perf record -T', which adds the time to samples that have none"
    } else {
        "record with larger rings ('perf record -m 4M') or a larger period ('-c')"
    }
}

/// Remark and hint if most samples have no symbol name.
fn unnamed(data: &PerfData, survey: &Survey, ledger: &Ledger) -> Option<(String, String)> {
    ledger.unnamed().map(|(unnamed, all)| {
        let path = data.path();
        let (why, hint) = if data.features.build_ids.is_empty() && !survey.has_build_ids {
            (
                "the recording has no build ids, so no binary here is known to be theirs",
                format!(
                    "record with 'perf record --buildid-mmap', or name each binary with --symbols FILE \
                     ('perf script -i {path} --show-mmap-events' lists them)"
                ),
            )
        } else {
            (
                "their binaries are not here",
                format!(
                    "--symbols DIR, with the binaries of the recorded machine \
                     ('perf buildid-list -i {path}' lists them)"
                ),
            )
        };
        let text = format!("{unnamed} of {all} samples have no name: {why}");
        (text, hint)
    })
}

/// Why there is no item.
fn no_items(
    args: &ImportArgs,
    survey: &Survey,
    (visits, marks): (u64, u64),
    fed: Fed,
) -> Option<(String, String)> {
    if visits > 0 && fed.unknown_threads == 0 {
        return None;
    }
    if visits > 0 {
        return Some((
            format!(
                "{} of threads that are not in the recording",
                plural(fed.unknown_threads, "mark")
            ),
            "tid is the thread's id, not the process's".to_owned(),
        ));
    }
    let (text, hint) = match (&args.marks, &args.begin, marks) {
        (None, None, _) => (
            "no begin and end of items was given: no sample is in an item".to_owned(),
            format!(
                "--begin EVENT [--end EVENT] [--id FIELD], or --marks CSV; there are: {}",
                list(survey.names.names())
            ),
        ),
        (None, Some(begin), 0) => (
            format!("no item begins: event '{begin}' never occurred"),
            "the probe must be hit while perf records".to_owned(),
        ),
        _ => {
            let (first, last) = survey.times.unwrap_or_default();
            (
                "no item is complete: no begin has a matching end".to_owned(),
                format!(
                    "the recording's times are {first} to {last} ns: are the marks on the same clock?"
                ),
            )
        }
    };
    Some((text, hint))
}
