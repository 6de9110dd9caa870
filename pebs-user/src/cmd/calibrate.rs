//! `pebs-trace calibrate`: measures the cost of a sample and of a mark on this machine, and saves it.

mod counters;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use indicatif::ProgressBar;
use serde_json::json;

use super::values::{Format, TransportArg};
use crate::collect::programs::StackLimits;
use crate::collect::session::Transport;
use crate::cost::calibrate::saved::{self, Calibration, Folder, SavedMarks, SavedPoint};
use crate::cost::calibrate::sweep::{self, ROUNDS, Sweep, sweep};
use crate::cost::calibrate::with_options::Extras;
use crate::cost::calibrate::{Wanted, measure};
use crate::cost::plot::{self, Look, Panel, Series};
use crate::cost::{Fit, fit};
use crate::failure::{Context as _, Failure, Result};
use crate::limits;
use crate::pmu::attr::{ResolvedEvent, reset_value};
use crate::pmu::event::EventSpec;
use crate::pmu::host::Host;
use crate::pmu::sysfs::UprobePmu;
use crate::present::human::{UNKNOWN, count, time};
use crate::present::table::{Column, Table};
use crate::record::grant;
use crate::store::run::EntryClass;
use crate::terminal::say;

/// Reset value with which the event is first opened; the sweep uses its own values.
const RESET: u64 = 16_000;

/// Relative error of alpha above which the result is too inexact to be saved.
const USELESS: f64 = 0.5;

/// Relative error from which there is a remark.
const WIDE: f64 = 0.1;

/// Options of `pebs-trace calibrate`.
#[derive(Clone, Debug, clap::Args)]
pub struct CalibrateArgs {
    /// Calibrate this event, by its name in perf
    ///
    /// A clock, cycles, instructions or the like, or page-faults. auto is the default of recording.
    #[arg(short, long, value_name = "EVENT", default_value = "auto")]
    pub event: String,
    /// Calibrate samples of this transport
    ///
    /// bpf: an interrupt and an eBPF program per sample. bulk: the kernel writes them, with PEBS many per interrupt.
    /// auto is the default of recording. Each is saved for its recordings.
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    pub transport: TransportArg,
    /// Measure start, read and stop of counters in a program that counts itself
    ///
    /// By each method: read() of the C library, an inline system call, rdpmc with its page mapped in three ways. The
    /// first read and the next nine, of 1 to 8 events: a table, box plots, or JSON; --plot draws them. Hardware
    /// events if there is a PMU, else software events, which rdpmc can't read. Programs that are linked statically,
    /// or look up read() at its first call, are built with cc. Takes at most --duration and needs no privileges.
    #[arg(long, conflicts_with_all = ["event", "transport", "dry_run"])]
    pub counters: bool,
    /// Begin no new round after this time
    ///
    /// 15 rounds take about 4 s on an idle machine; at least three are needed.
    #[arg(short, long, value_name = "SECONDS", value_parser = crate::cmd::values::seconds, default_value = "20")]
    pub duration: Duration,
    /// Output format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    pub format: Format,
    /// Draw samples against CPU time, with the fitted line, to this file
    ///
    /// With --counters: box plots of each call, and costs by number of events and of reads.
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Print the result without saving it
    #[arg(long)]
    pub dry_run: bool,
}

/// Calibrates and prints the result.
///
/// # Errors
/// If it could not run, or could not save the result.
pub fn run(args: &CalibrateArgs) -> Result<ExitCode> {
    if args.counters {
        return counters::run(args);
    }
    let spec: EventSpec = args.event.parse()?;
    if let Some(missing) = limits::missing_privileges() {
        return Err(Failure::new(
            format!("cannot calibrate: {missing}"),
            "use sudo, or 'pebs-trace doctor' for what is missing".to_owned(),
        ));
    }
    let host = Host::probe(Path::new("/"));
    let (event, _) = grant(&spec, &host, reset_value(RESET)?)?;
    let Some(pmu) = UprobePmu::read(Path::new("/")) else {
        return Err(Failure::new(
            "cannot calibrate: this kernel has no uprobe events".to_owned(),
            "'pebs-trace doctor' says what this kernel has".to_owned(),
        ));
    };
    let bar = ProgressBar::new_spinner();
    let transport = match args.transport {
        TransportArg::Bulk => Transport::Bulk,
        TransportArg::Auto if event.is_buffered(&host) => Transport::Bulk,
        TransportArg::Auto | TransportArg::Bpf => Transport::Bpf,
    };
    let found = sweep(&pmu, (&event, transport), args.duration, |round| {
        bar.set_message(format!("round {round} of {ROUNDS}"));
        bar.tick();
    });
    bar.finish_and_clear();
    let found = found?;
    let key = saved::key(&event.name, transport);
    let calibration = calibration(&host, &key, &pmu, &found)?;
    let is_useful = is_useful(&calibration.fit);
    let kept = match Folder::of_user() {
        Some(folder) if is_useful && !args.dry_run => Some(keep(&folder, &host, &calibration)?),
        _ => None,
    };
    if let Some(file) = &args.plot {
        let svg = plot::draw(
            &title(&calibration),
            &[panel(&calibration, event.unit.name())],
        );
        std::fs::write(file, svg).with_context(|| format!("cannot write {}", file.display()))?;
    }
    match args.format {
        Format::Text => print!("{}", text(&calibration, &event, kept.as_deref())),
        Format::Json => {
            let whole = json!({ "calibration": calibration, "file": kept });
            println!("{}", serde_json::to_string_pretty(&whole)?);
        }
    }
    remark(&calibration, args.duration);
    Ok(ExitCode::from(u8::from(!is_useful)))
}

fn calibration(host: &Host, key: &str, pmu: &UprobePmu, found: &Sweep) -> Result<Calibration> {
    let points = found.points.iter().map(|it| SavedPoint {
        reset: it.reset,
        samples: it.point.samples,
        elapsed_ns: it.point.elapsed_ns,
    });
    let points: Vec<SavedPoint> = points.collect();
    let all: Vec<_> = points.iter().map(SavedPoint::point).collect();
    let Some(fit) = fit(&all) else {
        return Err(Failure::new(
            format!("cannot calibrate event '{key}': no sample was taken"),
            "'pebs-trace doctor' says what this machine can do".to_owned(),
        ));
    };
    let (marks, why) = measure(
        pmu,
        Wanted {
            classes: &[EntryClass::Emulated, EntryClass::SingleStep],
            uretprobes: true,
            page_faults: true,
            switches: false,
            event: None,
            more: Default::default(),
            sample: false,
            stacks: StackLimits::default(),
            extras: Extras::default(),
        },
    );
    if let Some(why) = why {
        say!("warning: not all costs of marks could be measured: {why}");
    }
    Ok(Calibration {
        rounds: found.rounds,
        refused: found.points.iter().map(|it| it.refused).sum(),
        marks: SavedMarks::from(&marks),
        ..Calibration::new(host, key, fit, points)
    })
}

fn is_useful(fit: &Fit) -> bool {
    fit.alpha_ns > 0.0 && fit.alpha_error_ns < USELESS * fit.alpha_ns
}

fn keep(folder: &Folder, host: &Host, calibration: &Calibration) -> Result<PathBuf> {
    folder.save(host, calibration).map_err(|error| {
        let file = folder.file(host, &calibration.event);
        Failure::new(
            format!("cannot save the calibration in {}: {error}", file.display()),
            "set XDG_CACHE_HOME to a folder that you may write to, or use --dry-run".to_owned(),
        )
    })
}

fn title(calibration: &Calibration) -> String {
    let Calibration {
        event, cpu, kernel, ..
    } = calibration;
    format!("{event} on {cpu}, Linux {kernel}")
}

/// A cost and the half-width of its interval in one unit: `2.51 us ± 0.04`.
fn interval(fit: &Fit) -> String {
    let (alpha, error) = (fit.alpha_ns, fit.alpha_error_ns);
    if alpha.abs() < 1_000.0 {
        return format!("{alpha:.0} ns ± {error:.0}");
    }
    format!("{:.2} us ± {:.2}", alpha / 1e3, error / 1e3)
}

fn text(calibration: &Calibration, event: &ResolvedEvent, kept: Option<&Path>) -> String {
    let fit = &calibration.fit;
    let mut text = format!("{}\n", title(calibration));
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "a sample costs {} (95 % interval), R2 {:.4}, medians of {} rounds\n\n{}\n",
        interval(fit),
        fit.r2,
        calibration.rounds,
        table(calibration, event.unit.name())
    );
    let marks = &calibration.marks;
    let of = |ns: Option<f64>| ns.map_or_else(|| UNKNOWN.to_owned(), time);
    let _ = writeln!(
        text,
        "a mark costs {} at an emulated instruction, {} single-stepped, {} as a uretprobe;\n\
         each {} more where the thread slept since the last one\n\
         counting a page fault costs {}",
        of(marks.emulated_ns),
        of(marks.single_step_ns),
        of(marks.uretprobe_ns),
        of(marks.apart.map(|it| it.extra_ns())),
        of(marks.page_fault_ns)
    );
    if let Some(file) = kept {
        let _ = writeln!(text, "saved in {}", file.display());
    }
    text
}

fn table(calibration: &Calibration, unit: &str) -> String {
    let titles = ["reset value", "samples", "CPU time", "off the line, %"];
    let mut table = Table::new(titles.map(Column::number));
    for point in &calibration.points {
        let expected = calibration.fit.base_ns + calibration.fit.alpha_ns * point.samples;
        let off = crate::cost::error(point.elapsed_ns, expected);
        let cells = [
            point.reset.map_or_else(
                || "none".to_owned(),
                |reset| format!("{} {unit}", count(reset)),
            ),
            count(point.samples.round() as u64),
            time(point.elapsed_ns),
            format!("{:+.2}", off * 100.0),
        ];
        table.row(cells.map(Into::into));
    }
    table.whole()
}

fn panel(calibration: &Calibration, unit: &str) -> Panel {
    let fit = &calibration.fit;
    let most = calibration.points.iter().map(|it| it.samples);
    let most = most.fold(0.0, f64::max);
    let at = |samples: f64| (samples, (fit.base_ns + fit.alpha_ns * samples) / 1e6);
    let measured = calibration.points.iter();
    let first = calibration.points.iter().filter_map(|it| it.reset).max();
    let last = calibration.points.iter().filter_map(|it| it.reset).min();
    Panel {
        title: format!("a sample costs {}", interval(fit)),
        across: format!(
            "samples: none, every {} to {} {unit}",
            first.unwrap_or_default(),
            last.unwrap_or_default()
        ),
        up: "CPU time of the loop, ms".to_owned(),
        series: vec![
            Series {
                name: format!("best fit, R2 {:.4}", fit.r2),
                look: Look::Line,
                points: vec![at(0.0), at(most)],
            },
            Series {
                name: "measured".to_owned(),
                look: Look::Dots,
                points: measured
                    .map(|it| (it.samples, it.elapsed_ns / 1e6))
                    .collect(),
            },
        ],
    }
}

/// Warns on stderr about everything that makes the result inexact.
fn remark(calibration: &Calibration, most: Duration) {
    let (fit, rounds) = (&calibration.fit, calibration.rounds);
    if rounds < ROUNDS {
        let most = humantime::format_duration(most);
        say!("warning: stopped after {rounds} of {ROUNDS} rounds, after {most}");
        say!("hint: a longer --duration, or a less busy machine, makes the result more exact");
    }
    if calibration.refused > 0 {
        say!(
            "warning: {} samples did not fit into the ring; they cost a little less than others",
            calibration.refused
        );
    }
    let wide = fit.alpha_error_ns / fit.alpha_ns;
    if !is_useful(fit) {
        say!(
            "warning: a sample costs {}: too inexact to save",
            interval(fit)
        );
        say!("hint: run it again when the machine is idle");
    } else if wide > WIDE {
        say!(
            "warning: the cost of a sample is uncertain by {:.0} %",
            wide * 100.0
        );
        say!("hint: run it again when the machine is idle");
    }
}

/// One line for the doctor: the calibration of an event, or a note that there is none.
pub(super) fn describe(host: &Host, event: &str) -> String {
    use crate::cost::calibrate::saved::LoadedCalibration;
    let none = format!(
        "none for {event}: costs are measured before a run and kept for a week; 'pebs-trace calibrate' makes them more exact"
    );
    match Folder::of_user().map(|folder| folder.load(host, event)) {
        Some(LoadedCalibration::Good(it)) => format!(
            "{event}: {} a sample, calibrated {}",
            interval(&it.fit),
            it.day()
        ),
        Some(LoadedCalibration::Ignored(note)) => note,
        Some(LoadedCalibration::Nothing) | None => none,
    }
}

/// The smallest reset value of the calibration sweep; plans start from it.
pub(super) fn first_reset(event: &ResolvedEvent) -> Option<u64> {
    sweep::resets(event)?.last().copied()
}
