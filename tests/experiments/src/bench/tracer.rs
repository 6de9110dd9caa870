//! The programs that are compared, each given the same task.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::cpu_time::timed_success;
use super::probes::Probes;
use super::{BPFTRACE_LIMIT, Load, Measure, PERF_LIMIT};
use crate::frame::lab::Lab;
use crate::frame::{installed, perf, shell, workload};

/// Tracer of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracer {
    /// No tracer: the baseline.
    Nobody,
    /// `pebs-trace`.
    Ours,
    /// `perf record`, with events made by `perf probe`.
    Perf,
    /// bpftrace that prints thread and time of each.
    Bpftrace,
}

impl Tracer {
    /// Name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nobody => "untraced",
            Self::Ours => "pebs-trace",
            Self::Perf => "perf record",
            Self::Bpftrace => "bpftrace",
        }
    }

    /// Largest share of this one's cost that ours may have.
    pub fn limit(self) -> Option<f64> {
        match self {
            Self::Nobody | Self::Ours => None,
            Self::Perf => Some(PERF_LIMIT),
            Self::Bpftrace => Some(BPFTRACE_LIMIT),
        }
    }
}

#[derive(Clone, Copy)]
pub struct Run {
    /// CPU time of the measured part of the workload.
    pub cpu_ns: f64,
    /// Marks or samples that the tracer recorded.
    pub recorded: u64,
    /// CPU time of the tracer itself, before symbolization, ns; for [`Tracer::Nobody`] that of starting the workload.
    pub recorder_ns: f64,
}

/// Available tracers.
pub struct Tracers {
    /// [`Tracer::Nobody`] first, then ours, then the other installed ones.
    pub available: Vec<Tracer>,
    lab: Lab,
    workload: PathBuf,
    /// perf's probes for marks.
    _probes: Option<Probes>,
}

impl Tracers {
    /// Finds the other tracers, and prints which are left out. Their probes are removed when this is dropped.
    pub fn find(lab: Lab) -> Result<Self> {
        // Its function begins with a push, whatever the distribution's defaults.
        let flags = ["-O2", "-g", "-fcf-protection=none", "-fno-ipa-ra"];
        let workload = lab.dir.join("marks");
        workload::compile("tests/experiments/workloads/marks.c", &workload, &flags)?;
        let mut tracers = Self {
            available: vec![Tracer::Nobody, Tracer::Ours],
            lab,
            workload,
            _probes: None,
        };
        match Probes::make(&tracers.workload, &["mark_me", "mark_me%return"]) {
            Ok(probes) => {
                tracers._probes = Some(probes);
                tracers.available.push(Tracer::Perf);
            }
            Err(error) => println!("SKIP perf record: {error:#}"),
        }
        match installed::program("bpftrace") {
            Some(_) => tracers.available.push(Tracer::Bpftrace),
            None => println!("SKIP bpftrace: not installed"),
        }
        Ok(tracers)
    }

    /// Runs the workload once under the tracer.
    pub fn run(&self, tracer: Tracer, load: Load) -> Result<Run> {
        let result = self.lab.clean("cpu_ns")?;
        let workload = self.workload_command(load, &result);
        let command = self.command(tracer, load, &workload)?;
        let logs = ["out", "err"].map(|stream| self.log_path(tracer, stream));
        // 1: pebs-trace finished with loss, which shows in its number of records.
        let accepted: &[i32] = if tracer == Tracer::Ours { &[1] } else { &[] };
        let all = timed_success(&command, [&logs[0], &logs[1]], accepted)?;
        let text = std::fs::read_to_string(&result).context("the workload left no result")?;
        let mut columns = text.split_whitespace().map(str::parse::<f64>);
        let (Some(Ok(calls)), Some(Ok(spin)), Some(Ok(workload))) =
            (columns.next(), columns.next(), columns.next())
        else {
            bail!("the workload's result is not understood: {text:?}");
        };
        let recorded = self.recorded(tracer, load)?;
        Ok(Run {
            cpu_ns: if load.measure == Measure::Mark {
                calls
            } else {
                spin
            },
            recorded,
            recorder_ns: all * 1e9 - workload + self.script(tracer)? * 1e9,
        })
    }

    /// CPU time, in seconds, that the tracer takes afterwards to symbolize its data: ours does so while it records,
    /// and bpftrace prints addresses.
    fn script(&self, tracer: Tracer) -> Result<f64> {
        if tracer != Tracer::Perf {
            return Ok(0.0);
        }
        let mut command = shell::as_root("perf");
        command.args(["script", "-i"]).arg(self.perf_data());
        let log = self.log_path(tracer, "script.err");
        timed_success(&command, [Path::new("/dev/null"), &log], &[])
    }

    /// Number of marks or samples in the tracer's output.
    fn recorded(&self, tracer: Tracer, load: Load) -> Result<u64> {
        match tracer {
            Tracer::Nobody => Ok(0),
            Tracer::Ours => {
                let info = self.lab.info()?;
                let key = match load.measure {
                    Measure::Mark => "marks",
                    Measure::Sample => "samples",
                };
                info["cost"][key].as_u64().context("trace.json has no cost")
            }
            Tracer::Perf => Ok(perf::records_in(&self.perf_data())?.1),
            Tracer::Bpftrace => {
                let text = std::fs::read_to_string(self.log_path(tracer, "out"))?;
                Ok(text.lines().filter(|line| !line.is_empty()).count() as u64)
            }
        }
    }

    fn log_path(&self, tracer: Tracer, stream: &str) -> PathBuf {
        self.lab
            .dir
            .join(format!("{}.{stream}", tracer.name().replace(' ', "-")))
    }

    fn perf_data(&self) -> PathBuf {
        self.lab.dir.join("perf.data")
    }

    fn workload_command(&self, load: Load, result: &Path) -> Vec<String> {
        vec![
            self.workload.display().to_string(),
            load.calls.to_string(),
            load.spin.to_string(),
            result.display().to_string(),
        ]
    }

    fn command(&self, tracer: Tracer, load: Load, workload: &[String]) -> Result<Command> {
        Ok(match tracer {
            Tracer::Nobody => {
                let mut command = shell::as_root(&workload[0]);
                command.args(&workload[1..]);
                command
            }
            Tracer::Ours => self.ours(load, workload)?,
            Tracer::Perf => self.perf(load, workload),
            Tracer::Bpftrace => self.bpftrace(load, workload),
        })
    }

    fn ours(&self, load: Load, workload: &[String]) -> Result<Command> {
        // A reset value of a second: no samples to speak of while marks are measured.
        let (function, reset) = match load.measure {
            Measure::Mark => ("mark_me", 1_000_000_000),
            Measure::Sample => ("never", load.period_ns),
        };
        let spec = format!("{}:{function}", self.workload.display());
        // Returns as the others mark them; marks take most of this target's time.
        let options = ["--return", "uretprobe", "--force", "--no-switches"];
        let mut command = self.lab.recording(&spec, Some(reset), &options)?;
        command.args(workload);
        Ok(command)
    }

    fn perf(&self, load: Load, workload: &[String]) -> Command {
        let mut command = shell::as_root("perf");
        command
            .args(["record", "--quiet", "--no-buildid", "--output"])
            .arg(self.perf_data());
        match load.measure {
            Measure::Mark => {
                command.args(["-e", "probe_marks:mark_me,probe_marks:mark_me__return"])
            }
            Measure::Sample => command.args(["-e", "cpu-clock", "-c", &load.period_ns.to_string()]),
        };
        command.arg("--").args(workload);
        command
    }

    fn bpftrace(&self, load: Load, workload: &[String]) -> Command {
        let path = self.workload.display();
        let program = match load.measure {
            Measure::Mark => format!(
                "uprobe:{path}:mark_me {{ printf(\"b %d %llu\\n\", tid, nsecs) }} \
                 uretprobe:{path}:mark_me {{ printf(\"r %d %llu\\n\", tid, nsecs) }}"
            ),
            Measure::Sample => format!(
                "profile:us:{} /comm == \"marks\"/ {{ printf(\"%d %llu %lx\\n\", tid, nsecs, reg(\"ip\")) }}",
                load.period_ns / 1000
            ),
        };
        let mut command = shell::as_root("bpftrace");
        command.args(["-q", "-e", &program, "-c", &workload.join(" ")]);
        command
    }
}
