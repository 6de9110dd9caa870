//! `pebs-trace validate`: compares precise sampling with known truth on this machine.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use clap::ValueEnum;
use indicatif::ProgressBar;

use super::print_page;
use super::result_file::{OnTerminal, ResultFile};
use super::selftest::{Place, Task};
use crate::cost::calibrate::Bench;
use crate::cost::calibrate::saved::Folder;
use crate::failure::{Context as _, Failure, Result};
use crate::limits;
use crate::pmu::host::Host;
use crate::record::TransportChoice;
use crate::selftest::findings::Findings;
use crate::selftest::truth::{PEAK_NOTE, Truth};
use crate::selftest::workload::{Order, peak_kib};
use crate::terminal::{self, say};
use crate::validate::compare::compare;
use crate::validate::report::{Experiment, Name, Report, Row};
use crate::validate::{
    accuracy, bias, many, memory, modes, overhead, page, sensitivity, stamps, take, text,
};

/// No experiment begins after this time.
const MOST: Duration = Duration::from_secs(165);
const MOST_QUICK: Duration = Duration::from_secs(27);

/// ns between samples of the recordings.
const RESET: u64 = 50_021;

/// The same for regular items: so many that several clocks sample together.
const RESET_REGULAR: u64 = 100_003;

/// Options of `pebs-trace validate`.
#[derive(Clone, Debug, clap::Args)]
pub struct ValidateArgs {
    /// Take at most 30 seconds, with fewer samples and runs
    #[arg(long)]
    pub quick: bool,
    /// Run only these experiments, separated by commas
    ///
    /// The result is not saved.
    #[arg(long, value_name = "NAME", value_enum, value_delimiter = ',')]
    pub only: Vec<Name>,
    /// Compare two results instead, beside published figures
    ///
    /// Both written with --format json: of two machines, or before and after a change. The figures published for
    /// Skylake, Cascade Lake, Zen 2 and Zen 3 are beside them, each with its source. As text or as a page.
    #[arg(long, num_args = 2, value_names = ["A.json", "B.json"], conflicts_with_all = ["quick", "only"])]
    pub compare: Option<Vec<PathBuf>>,
    /// Output format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub format: ValidateFormat,
    /// Destination.
    #[command(flatten)]
    pub file: ResultFile,
}

/// Form of the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ValidateFormat {
    /// For people
    #[default]
    Text,
    /// For programs and --compare; complete
    Json,
    /// One self-contained page
    Html,
}

/// Runs the experiments, or compares two results.
///
/// # Errors
/// If it could not run, or the result can't be written.
pub fn run(args: &ValidateArgs) -> Result<ExitCode> {
    if let Some([a, b]) = args.compare.as_deref() {
        return side_by_side(args, [a, b]);
    }
    if let Some(missing) = limits::missing_privileges() {
        return Err(Failure::new(
            format!("cannot validate: {missing}"),
            "use sudo, or 'pebs-trace doctor' for what is missing".to_owned(),
        ));
    }
    let host = Host::probe(Path::new("/"));
    let report = validate(&host, args);
    let json = serde_json::to_vec_pretty(&report)?;
    if args.only.is_empty() {
        keep(&host, &json);
    }
    match args.format {
        ValidateFormat::Text => write_text(args, &text::page(&report, terminal::width()))?,
        ValidateFormat::Json => args.file.write(OnTerminal::Show, |out| {
            out.write_all(&json)?;
            out.write_all(b"\n")
        })?,
        ValidateFormat::Html => {
            let write = |out: &mut dyn std::io::Write| page::write(&report, out);
            args.file.write(OnTerminal::Refuse, write)?;
        }
    }
    Ok(ExitCode::from(u8::from(report.deviates())))
}

/// A page to stdout, or its plain text to a file.
fn write_text(args: &ValidateArgs, page: &crate::present::Page) -> Result<()> {
    if args.file.output.is_none() {
        return print_page(page, "result");
    }
    let plain = page.plain();
    args.file
        .write(OnTerminal::Show, |out| out.write_all(plain.as_bytes()))
}

/// Runs the selected experiments until the time is over.
fn validate(host: &Host, args: &ValidateArgs) -> Report {
    let begin = Instant::now();
    let mut report = Report::new(host, args.quick, SystemTime::now());
    let wanted = |name: &Name| args.only.is_empty() || args.only.contains(name);
    let names: Vec<Name> = Name::ALL.into_iter().filter(wanted).collect();
    let most = if args.quick { MOST_QUICK } else { MOST };
    let bar = ProgressBar::new_spinner();
    let lab = Lab {
        host,
        quick: args.quick,
        bench: take::bench(),
        by_program: OnceCell::new(),
    };
    for (n, &name) in names.iter().enumerate() {
        bar.set_message(format!("{} of {}: {}", n + 1, names.len(), name.title()));
        bar.tick();
        let this = Instant::now();
        let done = if begin.elapsed() < most {
            lab.experiment(name)
        } else {
            let late = "not tried: out of time";
            Experiment::new(name, vec![Row::not_here("all", "", late)])
        };
        report.experiments.push(Experiment {
            seconds: this.elapsed().as_secs_f64(),
            ..done
        });
    }
    bar.finish_and_clear();
    report.seconds = begin.elapsed().as_secs_f64();
    report
}

/// State shared by the experiments.
struct Lab<'a> {
    host: &'a Host,
    quick: bool,
    bench: Option<Bench>,
    /// A recording by `bpf`: of time stamps and of memory.
    by_program: OnceCell<Result<(Findings, Truth), String>>,
}

impl Lab<'_> {
    fn experiment(&self, name: Name) -> Experiment {
        let (host, quick, bench) = (self.host, self.quick, self.bench.as_ref());
        match name {
            Name::Accuracy => accuracy::run(host, quick, bench),
            Name::Sensitivity => sensitivity::run(host, quick),
            Name::Bias => bias::run(host, quick),
            Name::ManyEvents => many::run(host, quick),
            Name::Memory => memory::run(host, quick),
            Name::Modes => modes::run(host, quick),
            Name::Overhead => {
                let mut rows = overhead::run(host, quick, bench);
                rows.push(self.memory_of_recording());
                Experiment::new(name, rows)
            }
            Name::TimeStamps => {
                let by_kernel = self.record(TransportChoice::Bulk);
                let rows = [("bpf", self.by_program()), ("bulk", &by_kernel)];
                let mut rows = rows.map(|(how, found)| stamped(how, found)).to_vec();
                rows.extend(
                    [Order::Equal, Order::Lengths, Order::Timer].map(|it| self.regular(it)),
                );
                Experiment::new(name, rows)
            }
        }
    }

    fn task(&self, transport: TransportChoice) -> Task {
        Task {
            reset: RESET,
            seconds: if self.quick { 0.5 } else { 5.0 },
            seed: 1,
            transport,
            order: Order::Random,
        }
    }

    /// Records the workload that logs its truth.
    fn record(&self, transport: TransportChoice) -> Result<(Findings, Truth), String> {
        measured(self.task(transport))
    }

    /// A row of items that come as regularly as samples.
    fn regular(&self, order: Order) -> Row {
        let found = measured(Task {
            reset: RESET_REGULAR,
            seconds: if self.quick { 0.5 } else { 2.0 },
            order,
            ..self.task(TransportChoice::Bpf)
        });
        match found {
            Ok((found, _)) => stamps::regular(order, &found),
            Err(why) => Row::not_here("cpu-clock", stamps::regular_case(order, RESET_REGULAR), why),
        }
    }

    fn by_program(&self) -> &Result<(Findings, Truth), String> {
        self.by_program
            .get_or_init(|| self.record(TransportChoice::Bpf))
    }

    /// Peak memory of a target with and without a recording, and of this program.
    fn memory_of_recording(&self) -> Row {
        let peak = |truth: &Truth| {
            let kib = truth.notes.get(PEAK_NOTE)?;
            Some(kib.cast_unsigned())
        };
        let peaks = || -> Result<Option<stamps::Peaks>, String> {
            let (_, recorded) = self.by_program().as_ref().map_err(Clone::clone)?;
            let place = Place::new(false);
            let alone = place.and_then(|place| self.task(TransportChoice::Bpf).alone(&place.dir));
            let alone = alone.map_err(|error| error.to_string())?;
            let peaks = || {
                Some(stamps::Peaks {
                    alone: peak(&alone)?,
                    recorded: peak(recorded)?,
                    own: peak_kib()?,
                })
            };
            Ok(peaks())
        };
        let why = match peaks() {
            Ok(Some(peaks)) => return stamps::memory(&peaks),
            Ok(None) => "/proc/self/status does not have it".to_owned(),
            Err(why) => why,
        };
        Row::not_here("cpu-clock", "memory of a recording", why)
    }
}

fn measured(task: Task) -> Result<(Findings, Truth), String> {
    let place = Place::new(false);
    let found = place.and_then(|place| task.measure(&place.dir));
    found.map_err(|error| error.to_string())
}

/// A row of time stamps.
fn stamped(transport: &str, found: &Result<(Findings, Truth), String>) -> Row {
    match found {
        Ok((found, _)) => stamps::row(transport, found),
        Err(why) => Row::not_here("cpu-clock", format!("R {RESET}, {transport}"), why),
    }
}

fn keep(host: &Host, json: &[u8]) {
    let Some(folder) = Folder::of_user() else {
        return;
    };
    if let Err(error) = folder.keep_validation(host, json) {
        say!("warning: the result is not saved for 'pebs-trace doctor': {error}");
    }
}

/// A line for the doctor: the last result of this machine.
pub(super) fn describe(host: &Host) -> String {
    let none = || "never run: 'pebs-trace validate' compares sampling with known truth".to_owned();
    let Some(bytes) = Folder::of_user().and_then(|folder| folder.validation(host)) else {
        return none();
    };
    match Report::parse(Path::new("the last result"), &bytes) {
        Ok(report) => text::line(&report),
        Err(_) => {
            "the last result is from another version: run 'pebs-trace validate' again".to_owned()
        }
    }
}

fn side_by_side(args: &ValidateArgs, [a, b]: [&PathBuf; 2]) -> Result<ExitCode> {
    let (a, b) = (Report::read(a)?, Report::read(b)?);
    let compared = compare([&a, &b]);
    match args.format {
        ValidateFormat::Text => {
            write_text(args, &text::comparison(&compared, terminal::width()))?;
        }
        ValidateFormat::Html => {
            let write = |out: &mut dyn std::io::Write| page::write_comparison(&compared, out);
            args.file.write(OnTerminal::Refuse, write)?;
        }
        ValidateFormat::Json => {
            return Err(Failure::new(
                "a comparison has no JSON form".to_owned(),
                "both files are JSON already; --format html writes a page".to_owned(),
            ))
            .context("cannot write the comparison");
        }
    }
    Ok(ExitCode::SUCCESS)
}
