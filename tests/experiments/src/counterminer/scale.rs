//! Time and memory of many items, and accuracy and time beside scikit-learn.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};
use pebs_mine::interact::{self, interact};
use pebs_mine::known::known;
use pebs_mine::model::{Frame, Model, Params};
use pebs_mine::rank::{Options, rank};
use pebs_mine::{csv, outcome};
use pebs_stats::rng::Rng;
use pebs_stats::summary::mean;

use crate::frame::shell;

/// Rows and events of the comparison with scikit-learn.
const COMPARED: (usize, usize) = (8_000, 30);

/// Seconds and errors of both programs.
pub struct ScikitComparison {
    pub ours: (f64, f64),
    pub theirs: (f64, f64),
}

/// Fits the same trees to the same rows, and tests both on the same held-out quarter; means over three seeds.
pub fn beside(dir: &Path) -> Result<Option<ScikitComparison>> {
    let python = shell::tools_dir().join("mine-venv/bin/python");
    if !python.exists() {
        return Ok(None);
    }
    let (rows, count) = COMPARED;
    let (series, outcome) = known(77, rows, count);
    let mut order: Vec<usize> = (0..rows).collect();
    Rng::new(77).shuffle(&mut order);
    let (held, train) = order.split_at(rows / 4);
    let params = Params::default();

    let columns: Vec<&[f64]> = series.events.iter().map(|it| &it.counts[..]).collect();
    let of = |rows: &[usize]| rows.iter().map(|&row| outcome[row]).collect::<Vec<f64>>();
    let (frame, outcomes) = (Frame::of(&columns, train), of(train));
    let truth = of(held);
    let test = Frame::of(&columns, held);
    let (mut seconds, mut errors) = (Vec::new(), Vec::new());
    for seed in 0..3 {
        let began = Instant::now();
        let model = Model::fit(&frame, &outcomes, &Params { seed, ..params })?;
        seconds.push(began.elapsed().as_secs_f64());
        let pairs = model.predict(&test).into_iter().zip(&truth);
        errors.push(mean(
            &pairs
                .map(|(p, t)| ((t - p) / t).abs())
                .collect::<Vec<f64>>(),
        ));
    }

    let file = dir.join("compared.csv");
    let mut text = String::from("held,outcome");
    series
        .events
        .iter()
        .try_for_each(|it| write!(text, ",{}", it.name))?;
    let mut is_held = vec![false; rows];
    held.iter().for_each(|&row| is_held[row] = true);
    for row in 0..rows {
        write!(text, "\n{},{}", u8::from(is_held[row]), outcome[row])?;
        series
            .events
            .iter()
            .try_for_each(|it| write!(text, ",{}", it.counts[row]))?;
    }
    fs::write(&file, text)?;
    let mut rival = Command::new(python);
    rival
        .arg(shell::workspace().join("tests/counterminer/rival.py"))
        .arg(&file);
    rival.args([
        params.trees.to_string(),
        params.rate.to_string(),
        params.depth.to_string(),
        params.subsample.to_string(),
    ]);
    let output = shell::output(&mut rival)?;
    let mut numbers = output.split_whitespace().map(str::parse::<f64>);
    let mut next = || {
        numbers
            .next()
            .context("scikit-learn's result is short")?
            .map_err(anyhow::Error::from)
    };
    Ok(Some(ScikitComparison {
        ours: (mean(&seconds), mean(&errors)),
        theirs: (next()?, next()?),
    }))
}

/// Rows and events of the large table.
const LARGE: (usize, usize) = (1_000_000, 30);

/// Seconds and GiB to read, rank and pair 10^6 items with 30 events, in a process of its own.
pub fn large(dir: &Path) -> Result<(f64, f64)> {
    let file = dir.join("large.csv");
    if !file.exists() {
        write_large(&file)?;
    }
    let mut mine = Command::new(std::env::current_exe()?);
    let output = shell::output(mine.args(["counterminer", "--mine"]).arg(&file))?;
    let mut numbers = output.split_whitespace().map(str::parse::<f64>);
    let mut next = || {
        numbers
            .next()
            .context("the result is short")?
            .map_err(anyhow::Error::from)
    };
    Ok((next()?, next()?))
}

/// Writes a table in which a third of the events matter, each half as much as the previous one.
fn write_large(file: &Path) -> Result<()> {
    let mut rng = Rng::new(5);
    let part = file.with_extension("part");
    let mut out = BufWriter::new(File::create(&part)?);
    let (rows, count) = LARGE;
    let names: Vec<String> = (0..count).map(|it| format!("event{it}")).collect();
    writeln!(out, "duration,{}", names.join(","))?;
    for _ in 0..rows {
        let counts: Vec<f64> = (0..count)
            .map(|_| (1000.0 * (0.4 * rng.normal()).exp()).round())
            .collect();
        let sum: f64 = counts
            .iter()
            .take(10)
            .enumerate()
            .map(|(at, it)| it / f64::from(1 << at))
            .sum();
        write!(out, "{:.0}", sum + 50.0 * rng.normal().abs())?;
        counts.iter().try_for_each(|it| write!(out, ",{it}"))?;
        writeln!(out)?;
    }
    out.flush()?;
    Ok(fs::rename(part, file)?)
}

/// Reads, ranks and pairs a table; prints seconds and the most memory used, in GiB.
pub fn mine(file: &Path) -> Result<()> {
    let began = Instant::now();
    let table = csv::read(
        "large",
        BufReader::with_capacity(1 << 20, File::open(file)?),
    )?;
    let mut series = table.series;
    let outcome = outcome::take(&mut series, None)?;
    let ranking = rank(&series, &outcome.values, &Options::default())?;
    let pairs = interact(
        &series,
        &outcome.values,
        &ranking,
        &interact::Options::default(),
    )?;
    anyhow::ensure!(ranking.explains() && !pairs.is_empty(), "nothing was found");
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status
        .lines()
        .find_map(|it| it.strip_prefix("VmHWM:"))
        .context("no VmHWM")?;
    let kib: f64 = peak.trim().trim_end_matches(" kB").parse()?;
    println!(
        "{} {}",
        began.elapsed().as_secs_f64(),
        kib / 1024.0 / 1024.0
    );
    Ok(())
}
