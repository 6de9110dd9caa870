//! `pebs-trace plan`: the reset value for a given bound on the overhead, and its predicted effect.

mod measure;
mod show;
mod sizes;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum as _;

use super::ending::EndSignals;
use super::status::StatusLine;
use super::values::{CallGraphArg, Extra, Format};
use crate::cost::plan::Goal;
use crate::cost::ring::Sensitivity;
use crate::failure::{Context as _, Failure, Result};
use crate::record::{Counting, Recording, Remote, Target, TransportChoice};
use crate::stream::decode::{Interferences, RecordKinds};
use crate::units::Pid;

/// Options of `pebs-trace plan`.
#[derive(Clone, Debug, clap::Args)]
pub struct PlanArgs {
    /// Keep the slow-down of items below this
    ///
    /// 3 and 3% are 3 percent. Includes the cost of marks.
    #[arg(long, value_name = "PERCENT", value_parser = crate::cmd::values::overhead, default_value = "3%")]
    pub max_overhead: f64,
    /// Take at least this many samples in the median item
    #[arg(long, value_name = "SAMPLES", value_parser = samples, default_value = "10")]
    pub min_samples_per_item: f64,
    /// Probe where items begin and end; repeat for several
    #[arg(short = 'u', long = "uprobe", value_name = "SPEC")]
    pub uprobes: Vec<String>,
    /// Use the SPECs of a preset, or of a preset's file
    #[arg(long = "preset", value_name = "NAME[=BIN]")]
    pub presets: Vec<String>,
    /// Plan for this event, by its name in perf
    #[arg(short, long, value_name = "EVENT", default_value = "auto")]
    pub event: String,
    /// Plan for samples with call stacks, which cost more and are larger
    ///
    /// -g without HOW is eh, as for recording. The cost of lbr can't be measured beforehand.
    #[arg(short = 'g', long, value_name = "HOW", value_enum)]
    #[arg(num_args = 0..=1, default_missing_value = "eh")]
    pub call_graph: Option<CallGraphArg>,
    /// Plan for samples with memory accesses
    #[arg(long, conflicts_with = "call_graph")]
    pub memory: bool,
    /// Plan for recording these, too, separated by commas
    ///
    /// waits, irq, faults and freq as for recording: recorded while counting, to measure their cost and size.
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',')]
    pub with: Vec<Extra>,
    /// Count in this process and its children; repeat for several
    #[arg(
        short,
        long = "pid",
        value_name = "PID",
        value_parser = crate::cmd::values::pid,
        conflicts_with = "command_line"
    )]
    pub pids: Vec<u32>,
    /// Count for this time, or until the command ends
    ///
    /// A command that runs longer continues.
    #[arg(short, long, value_name = "SECONDS", value_parser = crate::cmd::values::seconds, default_value = "3")]
    pub duration: Duration,
    /// Whether the program needs the caches; sets the size of rings
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    pub cache: Sensitivity,
    /// Output format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    pub format: Format,
    /// Start this command and count in it and its children
    #[arg(last = true, value_name = "CMD", id = "command_line")]
    pub command_line: Vec<OsString>,
}

impl PlanArgs {
    /// Options of the extra data to record, with their values as typed.
    fn details(&self) -> Vec<(&'static str, String)> {
        let name = |extra: &Extra| {
            let value = extra.to_possible_value();
            value.map_or_else(String::new, |value| value.get_name().to_owned())
        };
        let with: Vec<String> = self.with.iter().map(name).collect();
        let graph = self
            .call_graph
            .map(|how| ("--call-graph", how.name().to_owned()));
        let memory = self.memory.then(|| ("--memory", String::new()));
        let with = (!with.is_empty()).then(|| ("--with", with.join(",")));
        [graph, memory, with].into_iter().flatten().collect()
    }
}

fn samples(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    number
        .filter(|number| (0.01..=1e6).contains(number))
        .ok_or_else(|| "a number from 0.01 to 1000000".to_owned())
}

/// Counts, predicts and prints.
///
/// # Errors
/// If it could not run, or if there was nothing to count.
pub fn run(args: &PlanArgs) -> Result<ExitCode> {
    if args.pids.is_empty() && args.command_line.is_empty() {
        return Err(Failure::new(
            "cannot plan for every process: events are counted in threads".to_owned(),
            "give -p PID, or a command after '--'".to_owned(),
        ));
    }
    if args.call_graph == Some(CallGraphArg::Lbr) {
        return Err(Failure::new(
            "cannot plan for --call-graph lbr: the cost of such a sample can only be measured while recording".to_owned(),
            "plan without it, and record with the --max-overhead that must hold".to_owned(),
        ));
    }
    let place = Place::new()?;
    let trace = place.0.join("trace");
    let counting = count(args, &trace)?;
    let found = measure::look(&counting, &trace, args)?;
    let goal = Goal {
        overhead: args.max_overhead,
        samples: args.min_samples_per_item,
        least: found.least_reset,
    };
    show::show(&counting, &found, &goal, args)
}

/// The recording that counts. Cache misses are counted along where the CPU does.
fn recording(args: &PlanArgs, trace: &Path) -> Result<Recording> {
    let has = |extra| args.with.contains(&extra);
    let mut events = vec![args.event.clone()];
    if args.cache == Sensitivity::Auto && measure::counts_misses() {
        events.push(measure::MISSES.to_owned());
    }
    let plain = Recording::new(trace);
    Ok(Recording {
        uprobes: args.uprobes.clone(),
        presets: args.presets.clone(),
        events,
        // Counters of programs: there are no samples for perf's rings.
        transport: TransportChoice::Bpf,
        call_graph: CallGraphArg::taken(args.call_graph),
        memory: args.memory,
        kinds: RecordKinds {
            encounters: has(Extra::Waits),
            encounters_later: false,
            interference: Interferences {
                irq: has(Extra::Irq),
                faults: has(Extra::Faults),
            },
            ..plain.kinds
        },
        frequencies: has(Extra::Freq),
        target: match args.command_line.as_slice() {
            [] => Target::Processes(args.pids.iter().copied().map(Pid).collect()),
            command => Target::Command(command.to_vec()),
        },
        duration: Some(args.duration),
        ..plain
    })
}

/// Counts, with nothing but a line of status.
fn count(args: &PlanArgs, trace: &Path) -> Result<Counting> {
    let planned = recording(args, trace)?.plan(|_| {})?;
    let remote = Remote::default();
    let _signals = EndSignals::listen(&remote)?;
    let mut status = StatusLine::default();
    planned.count(&remote, |event| status.show(&event))
}

/// A private directory for the trace of visits, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("pebs-trace-plan-{}", std::process::id()));
        // Fails if it exists, so that nobody else's directory is used.
        let made = fs::DirBuilder::new().mode(0o700).create(&dir);
        made.with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self(dir))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
