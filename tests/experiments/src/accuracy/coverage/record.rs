//! Makes a recording, and puts pebs-trace's figures beside the program's.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use pebs_tests::truth::Truth as Log;
use serde_json::Value;

use super::draw::{Draw, Order};
use super::{Estimate, Figure};
use crate::accuracy::number;
use crate::accuracy::regular::{self, FUNCTIONS, REGULAR};
use crate::frame::lab::Lab;
use crate::frame::statistics::{Z_95, mean_and_deviation, stderr};
use crate::frame::trace::{self, Item};
use crate::frame::{installed, shell};

/// Steps of an item of one round.
const STEPS: f64 = 20.0;

/// Steps between items at least: so many that reading the clock before and behind them does not matter.
const GAP: u32 = 6_000;

/// Arguments of the run without pebs-trace: half a second of items of 0.1 ms.
const ALONE: [u32; 7] = [4_000, 7_500, 1, 0, 0, 0, GAP];

/// Their number.
const RUNS_ALONE: usize = 8;

/// Part by which the first quarter of the timed steps may be below the median: else the CPU's speed changed during the
/// run, and the truth is not known.
const STEADY: f64 = 0.02;

/// Samples of an item from which on its own figures are judged: see `pebs-user/src/estimate/visit.rs`.
const MANY_SAMPLES: f64 = 10.0;

/// Runs of consecutive items whose means are compared, with at least two items each: within one, samples may beat with
/// the items.
const STRETCHES: usize = 40;

/// The function whose calls are counted, once an item; and the one that does more in slow items.
const COUNTED: &str = "four";
const SLOW: &str = "seven";

/// The workload, and what it does on this machine.
pub(super) struct Regular<'a> {
    lab: &'a Lab,
    program: PathBuf,
    /// Time of a step on this machine, about.
    step_ns: f64,
    /// Time that the machine's own interrupts add to a step, as a factor, without pebs-trace; and the standard
    /// deviation of that between runs.
    pub(super) interrupts: (f64, f64),
    /// Whether `interval_counts` can be read.
    has_readers: bool,
}

impl<'a> Regular<'a> {
    pub(super) fn new(lab: &'a Lab) -> Result<Self> {
        let program = lab.compile(REGULAR.name, &[])?;
        let has_readers = installed::readers().is_some();
        if !has_readers {
            println!("SKIP interval_counts: no duckdb; see cargo xtask setup");
        }
        let mut step = f64::NAN;
        let mut factors = Vec::new();
        let args = ALONE.map(|it| it.to_string());
        let args = args.each_ref().map(String::as_str);
        for _ in 0..RUNS_ALONE {
            let truth = lab.alone(&program, &args)?;
            step = step_ns(&truth)?;
            let mean = truth.notes.get("mean_fs").context("the log has no mean")?;
            factors.push(*mean as f64 / 1e6 / step);
        }
        Ok(Self {
            lab,
            program,
            step_ns: step,
            interrupts: mean_and_deviation(&factors),
            has_readers,
        })
    }

    /// Records, and compares; and whether samples beat with the items all the time, as far as pebs-trace knows. Empty if the truth is
    /// not known, as the CPU changed its speed.
    pub(super) fn figures(&self, draw: &Draw) -> Result<(bool, Vec<Figure>)> {
        shell::output(&mut self.recording(draw)?)?;
        let log = self.lab.truth()?;
        let spread = 1.0 - note(&log, "step_low_fs") / note(&log, "step_fs");
        if spread.is_nan() || spread > STEADY {
            eprintln!("the CPU's speed changed by {:.1} %", spread * 100.0);
            return Ok((false, Vec::new()));
        }
        let truth = Truth::new(draw, &log, self.interrupts.0)?;
        // Counting calls takes time, all of it in that function.
        if draw.counts {
            let count = match self.has_readers {
                true => counted(&self.lab.trace(), &truth)?,
                false => None,
            };
            return Ok((false, count.into_iter().collect()));
        }
        let report = self.lab.ask("report")?;
        let mut figures = pooled(&report, &truth);
        let samples: f64 = FUNCTIONS
            .iter()
            .filter_map(|name| regular::of_function(&report, name))
            .map(|all| number(&all["samples"]))
            .sum();
        if samples / truth.items >= MANY_SAMPLES {
            figures.extend(mean_self(&self.lab.items()?, &truth));
        }
        if let Order::Slow { .. } = draw.order {
            figures.extend(excess(&self.lab.ask("explain")?, &truth));
        }
        let run = &report["run"];
        let is_alone = run["jitter"]["clocks"].as_u64().is_none_or(|it| it <= 1);
        let beats = is_alone && run["positions"][0]["beats"] == true;
        let (_, unknown) = self.interrupts;
        figures.iter_mut().for_each(|it| it.widen(unknown));
        Ok((beats, figures))
    }

    fn recording(&self, draw: &Draw) -> Result<Command> {
        let rounds = ((draw.item_us * 1e3 / STEPS / self.step_ns) as u32).max(1);
        let (mut lengths, mut timer_us, mut every, mut extra) = (1, 0, 0, 0);
        match draw.order {
            Order::Equal => {}
            Order::Lengths(n) => lengths = n,
            Order::Timer(us) => timer_us = us,
            Order::Slow {
                every: n,
                extra: more,
            } => (every, extra) = (n, more),
        }
        let gap = GAP.max(2 * rounds);
        let args = [draw.items, rounds, lengths, timer_us, every, extra, gap];
        let spec = format!("{}:{}", self.program.display(), REGULAR.function);
        let mut options = vec!["--force", "--max-loss", "100"];
        let count = format!("mem:{COUNTED}:x");
        if draw.counts {
            options.extend(["--count", &count, "-I", "10"]);
        }
        let mut command = (self.lab).recording(&spec, draw.reset.map(u64::from), &options)?;
        command.arg(&self.program);
        command.args(args.map(|it| it.to_string()));
        Ok(command)
    }
}

/// A number that the workload logged; NaN if it did not.
fn note(log: &Log, name: &str) -> f64 {
    log.notes.get(name).map_or(f64::NAN, |it| *it as f64)
}

fn step_ns(log: &Log) -> Result<f64> {
    let fs = log.notes.get("step_fs");
    Ok(*fs.context("the log has no time of a step")? as f64 / 1e6)
}

/// The program's log.
struct Truth {
    items: f64,
    /// Time per item of each function, in the order of [`FUNCTIONS`], ns.
    per_item: [f64; 3],
    /// Items that do more, and the time that they take more than the middle half of the others, ns.
    slow: f64,
    extra_ns: f64,
}

impl Truth {
    /// An interrupt meets few items: the mean of the slow ones has its part of them, the middle half of the others has none.
    fn new(draw: &Draw, log: &Log, interrupts: f64) -> Result<Self> {
        let alone = step_ns(log)?;
        let step = alone * interrupts;
        let items = f64::from(draw.items);
        let steps = |name: &str| note(log, name);
        let slow = match draw.order {
            Order::Slow { every, .. } => (draw.items / every) as f64,
            _ => 0.0,
        };
        // Excess of `seven` over the share of the others.
        let more = steps(SLOW) - steps("nine") * 7.0 / 9.0;
        let usual = steps("nine") * STEPS / 9.0 / items;
        Ok(Self {
            items,
            per_item: FUNCTIONS.map(|name| steps(name) * step / items),
            slow,
            extra_ns: more * step / slow + usual * (step - alone),
        })
    }
}

/// The report's rows of the three functions, as times and as shares.
fn pooled(report: &Value, truth: &Truth) -> Vec<Figure> {
    let all = FUNCTIONS.map(|name| regular::of_function(report, name));
    let of = |all: Option<&Value>, key: &str| all.map(|it| number(&it[key]));
    let sum: f64 = all.iter().filter_map(|it| of(*it, "per_visit")).sum();
    if sum.is_nan() {
        // One of them has too few samples for an estimate: its share is unknown, and so are theirs.
        return Vec::new();
    }
    let true_sum: f64 = truth.per_item.iter().sum();
    let mut figures = Vec::new();
    for ((name, all), truth) in FUNCTIONS.iter().zip(all).zip(truth.per_item) {
        let value = of(all, "per_visit").unwrap_or(0.0);
        let ends = of(all, "low").zip(of(all, "high"));
        let interval = ends.filter(|(low, high)| low.is_finite() && high.is_finite());
        figures.push(Figure {
            estimate: Estimate::Pooled,
            function: (*name).to_owned(),
            truth,
            value,
            interval,
        });
        figures.push(Figure {
            estimate: Estimate::Share,
            function: (*name).to_owned(),
            truth: truth / true_sum,
            value: value / sum,
            interval: interval.map(|(low, high)| (low / sum, high / sum)),
        });
    }
    figures
}

/// Means over items, whose sum is right. A function without a sample in an item has no time in it.
fn mean_self(items: &[Item], truth: &Truth) -> Vec<Figure> {
    let number = items.len() as f64;
    // Their sum is not sampled: it is known from marks and own time.
    let is_part = |name: &str| FUNCTIONS.contains(&name);
    let all: f64 = items.iter().map(|it| it.of(|it| is_part(&it.name))).sum();
    let scale = all / number / truth.per_item.iter().sum::<f64>();
    let mean = |(name, truth): (&str, f64)| {
        let truth = truth * scale;
        let of = |item: &Item, what: &dyn Fn(&trace::Function) -> f64| -> f64 {
            let found = item.functions.iter().filter(|it| it.name == name);
            found.map(|it| what(it) * item.net_part()).sum()
        };
        let mean = items.iter().map(|it| of(it, &|it| it.self_ns)).sum::<f64>() / number;
        let error = |item| of(item, &|it| it.stderr_ns).powi(2);
        let of_each = items.iter().map(error).sum::<f64>().sqrt() / number;
        let run = (items.len() / STRETCHES).max(2);
        let runs = items.chunks_exact(run);
        let means = runs.map(|run| {
            run.iter().map(|it| of(it, &|it| it.self_ns)).sum::<f64>() / run.len() as f64
        });
        let error = Z_95 * of_each.max(stderr(&means.collect::<Vec<_>>()));
        Figure {
            estimate: Estimate::MeanSelf,
            function: name.to_owned(),
            truth,
            value: mean,
            interval: error.is_finite().then_some((mean - error, mean + error)),
        }
    };
    FUNCTIONS
        .into_iter()
        .zip(truth.per_item)
        .map(mean)
        .collect()
}

/// Excess of slow items. Empty if the slow ones of `explain` are not as many as those of the program: this is about
/// its estimates, not about which items they are of, and others are slow by what the truth does not have.
fn excess(explanation: &Value, truth: &Truth) -> Vec<Figure> {
    let probe = &explanation["probes"][0];
    let group = if probe["whole"].is_null() {
        &probe["groups"][0]
    } else {
        &probe["whole"]
    };
    let slow = number(&group["slow"]["items"]);
    if slow.is_nan() || (slow - truth.slow).abs() >= 1.0 {
        return Vec::new();
    }
    let figure = |estimate, name: &str, of: &Value| Figure {
        estimate,
        function: name.to_owned(),
        truth: truth.extra_ns,
        value: number(&of["excess_ns"]),
        interval: of["excess_low_ns"]
            .as_f64()
            .zip(of["excess_high_ns"].as_f64()),
    };
    let causes = group["gap"]["causes"].as_array().into_iter().flatten();
    let mut causes = causes.filter(|it| it["function"]["name"] == SLOW);
    let function = causes.next();
    let function = function.map(|cause| figure(Estimate::Excess, SLOW, cause));
    let on_cpu = Some(&group["on_cpu"]).filter(|it| !it.is_null());
    let all = on_cpu.map(|it| figure(Estimate::OnCpu, "all", it));
    function.into_iter().chain(all).collect()
}

/// Sums up the counts of all intervals; `None` if that of one is unknown.
fn counted(trace: &Path, truth: &Truth) -> Result<Option<Figure>> {
    let rows = trace::query(
        trace,
        "select if(count(*) = count(count), sum(count), null) from 'TRACE/interval_counts/*.parquet'",
    )?;
    let sum = rows.first().and_then(|row| row.first());
    let value = match sum.map_or("", String::as_str) {
        "None" => return Ok(None),
        sum => sum
            .parse()
            .with_context(|| format!("interval_counts has no sum: {sum}"))?,
    };
    Ok(Some(Figure {
        estimate: Estimate::Counted,
        function: COUNTED.to_owned(),
        truth: truth.items,
        value,
        interval: None,
    }))
}
