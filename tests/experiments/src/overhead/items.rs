//! A recording's own estimate of its cost, against external measurements, on servers and on items of several lengths.
//!
//! Each target handles many equal items in a closed loop, alternately without and with a recording; its CPU time is
//! read from `/proc/PID/schedstat`. *CPU of the target* is predicted by `cost.target_cpu` of `trace.json`, *slow-down
//! of items* by `cost.slowdown`, which can be measured externally if the target does nothing but items.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::frame::lab::Lab;
use crate::frame::machine::{self, Killed, cpu_ns};
use crate::frame::redis::Server;
use crate::frame::resp::Client;
use crate::frame::shell;
use crate::frame::statistics::{Spread, median};
use crate::frame::table::Table;

/// A prediction is good within this part of the measured value, or within this absolute difference.
const RELATIVE: f64 = 0.25;
const ABSOLUTE: f64 = 0.02;

/// Part of the predictions that have to be good.
const GOOD: f64 = 0.9;

/// CPU time of a lot of items, s.
const LOT: f64 = 0.4;

/// Reset values: the default, and explicit ones, ns.
const PACES: [Option<u64>; 3] = [None, Some(1_000_000), Some(200_000)];

/// Lengths of items, ns, and their memory, KiB.
const ITEMS: [(u64, u64); 4] = [(2_000, 16), (20_000, 16), (20_000, 512), (500_000, 64)];

/// Something that does items on request.
enum Driver {
    /// Lines with a number of items, each answered by `done`.
    Lines(ChildStdin, BufReader<ChildStdout>),
    /// As many GETs.
    Redis(Client),
    /// As many statements.
    Sqlite(ChildStdin, BufReader<ChildStdout>),
}

pub(super) struct Target {
    pub(super) name: String,
    spec: String,
    pid: u32,
    driver: Driver,
    /// Whether it does only items.
    only_items: bool,
    /// Items of a lot.
    lot: u64,
    _server: Option<Server>,
    _child: Option<Killed>,
}

impl Target {
    pub(super) fn paced(program: &Path, ns: u64, kib: u64) -> Result<Self> {
        let mut command = Command::new(program);
        command.args([ns.to_string(), kib.to_string()]);
        let (child, input, output) = piped(&mut command)?;
        Self {
            name: format!("items of {:.0} us in {kib} KiB", ns as f64 / 1e3),
            spec: format!("{}:item", program.display()),
            pid: child.id(),
            driver: Driver::Lines(input, output),
            only_items: true,
            lot: 1,
            _server: None,
            _child: Some(child),
        }
        .sized()
    }

    fn redis(dir: &Path) -> Result<Self> {
        let server = Server::start(dir)?;
        let pid = server.pid();
        // A GET of a server that changes its CPU takes 8 to 22 us.
        machine::pin(pid, 0)?;
        let mut client = server.connect()?;
        client.ask(&["SET", "key", "value"])?;
        Self {
            name: "redis, GETs".to_owned(),
            spec: format!("{}:processCommand", exe(pid)?.display()),
            pid,
            driver: Driver::Redis(client),
            only_items: false,
            lot: 1,
            _server: Some(server),
            _child: None,
        }
        .sized()
    }

    pub(super) fn sqlite() -> Result<Self> {
        let (child, mut input, output) = piped(Command::new("sqlite3").arg(":memory:"))?;
        let pid = child.id();
        writeln!(
            input,
            "create table t(a integer primary key, b text);\nbegin;"
        )?;
        Self {
            name: "sqlite, INSERTs".to_owned(),
            spec: "libsqlite3.so.0:sqlite3_step".to_owned(),
            pid,
            driver: Driver::Sqlite(input, output),
            only_items: false,
            lot: 1,
            _server: None,
            _child: Some(child),
        }
        .sized()
    }

    /// Sets the number of items in a lot so that it takes [`LOT`].
    fn sized(mut self) -> Result<Self> {
        let mut items = 64;
        loop {
            let ns = self.lot(items)?;
            if ns > 1e9 * LOT / 16.0 {
                self.lot = ((items as f64 * LOT * 1e9 / ns) as u64).max(1);
                return Ok(self);
            }
            items *= 2;
        }
    }

    /// CPU time of as many items as take [`LOT`], ns.
    pub(super) fn whole_lot(&mut self) -> Result<f64> {
        self.lot(self.lot)
    }

    /// CPU time of this many items, ns.
    fn lot(&mut self, items: u64) -> Result<f64> {
        let before = cpu_ns(self.pid)?;
        match &mut self.driver {
            Driver::Lines(input, output) => {
                writeln!(input, "{items}")?;
                until_done(output)?;
            }
            Driver::Redis(client) => {
                for _ in 0..items {
                    client.ask(&["GET", "key"])?;
                }
            }
            Driver::Sqlite(input, output) => {
                let mut lines = String::new();
                for n in 0..items {
                    let _ = writeln!(lines, "insert into t(b) values('text {n}');");
                }
                lines += "select 'done';\n";
                input.write_all(lines.as_bytes())?;
                until_done(output)?;
            }
        }
        // Wait for the work after the answer.
        std::thread::sleep(Duration::from_millis(2));
        Ok(cpu_ns(self.pid)? - before)
    }
}

fn piped(command: &mut Command) -> Result<(Killed, ChildStdin, BufReader<ChildStdout>)> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let child = command.spawn();
    let mut child =
        Killed(child.with_context(|| format!("cannot start {}", shell::display(command)))?);
    let input = child.stdin.take().context("no stdin")?;
    let output = child.stdout.take().context("no stdout")?;
    Ok((child, input, BufReader::new(output)))
}

fn until_done(output: &mut impl BufRead) -> Result<()> {
    let mut line = String::new();
    while output.read_line(&mut line)? > 0 {
        if line.starts_with("done") {
            return Ok(());
        }
        line.clear();
    }
    bail!("the target ended")
}

fn exe(pid: u32) -> Result<PathBuf> {
    Ok(fs::read_link(format!("/proc/{pid}/exe"))?)
}

/// One figure of one recording, or of several: the medians.
struct Case {
    what: String,
    figure: &'static str,
    predicted: Option<f64>,
    /// With the middle half of the measurements: how precisely the machine allows to measure.
    measured: Spread,
}

impl Case {
    fn is_good(&self) -> bool {
        self.is_near(self.measured.median)
    }

    /// Whether it is near something that was measured in the middle half of the rounds.
    fn may_be_good(&self) -> bool {
        let held = self.predicted.is_some_and(|it| self.measured.holds(it));
        self.is_near(self.measured.low) || self.is_near(self.measured.high) || held
    }

    fn is_near(&self, measured: f64) -> bool {
        let off = self.predicted.map(|it| (it - measured).abs());
        off.is_some_and(|off| off <= ABSOLUTE.max(RELATIVE * measured))
    }
}

/// Measures all, and returns the table and whether enough predictions are good.
pub fn measure(lab: &Lab, rounds: usize) -> Result<(String, bool)> {
    let program = lab.compile("paced", &[])?;
    let mut cases = Vec::new();
    for (ns, kib) in ITEMS {
        cases.extend(compare(Target::paced(&program, ns, kib)?, lab, rounds)?);
    }
    let redis = Target::redis(&lab.dir.join("redis"))?;
    cases.extend(compare(redis, lab, rounds)?);
    cases.extend(compare(Target::sqlite()?, lab, rounds)?);
    Ok(table(&cases))
}

fn compare(mut target: Target, lab: &Lab, rounds: usize) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for pace in PACES {
        let mut measured = Vec::new();
        let (mut items, mut cpu) = (Vec::new(), Vec::new());
        for _ in 0..rounds.max(1) {
            let before = target.whole_lot()?;
            let pace = pace.map(|it| it.to_string());
            let reset = pace.as_deref().map(|it| ["--reset", it]);
            let options = ["--event", "cpu-clock"].into_iter();
            let options: Vec<&str> = options.chain(reset.into_iter().flatten()).collect();
            let (with, info) = recorded(&mut target, lab, &options)?;
            let after = target.whole_lot()?;
            measured.push(with / f64::midpoint(before, after) - 1.0);
            items.extend(info["cost"]["slowdown"].as_f64());
            cpu.extend(info["cost"]["target_cpu"].as_f64());
        }
        let pace = pace.map_or_else(|| "default".to_owned(), |it| format!("--reset {it}"));
        let measured = Spread::between(measured, 0.25, 0.75);
        let mut case = |figure, all: Vec<f64>| {
            let predicted = (!all.is_empty()).then(|| median(all));
            let what = format!("{} | {pace}", target.name);
            let case = Case {
                what,
                figure,
                predicted,
                measured,
            };
            eprintln!("{}", row(&case));
            cases.push(case);
        };
        case("CPU of the target", cpu);
        if target.only_items {
            case("slow-down of items", items);
        }
    }
    Ok(cases)
}

/// CPU time of a recorded lot, and the figures in `trace.json`.
pub(super) fn recorded(target: &mut Target, lab: &Lab, options: &[&str]) -> Result<(f64, Value)> {
    let options = [options, &["--force"]].concat();
    let recorder = lab.attach(&target.spec, target.pid, &options)?;
    let start = Instant::now();
    // Without a reset value the tool finds one in the first moments, which are part of the judged time.
    let cpu = target.whole_lot()?;
    eprintln!("{} items in {:?}", target.lot, start.elapsed());
    recorder.stop()?;
    Ok((cpu, lab.info()?))
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn row(case: &Case) -> String {
    format!(
        "{} | {} | {} | {} | {} .. {} | {}",
        case.what,
        case.figure,
        case.predicted.map_or_else(|| "-".to_owned(), percent),
        percent(case.measured.median),
        percent(case.measured.low),
        percent(case.measured.high),
        match (case.is_good(), case.may_be_good()) {
            (true, _) => "yes",
            (_, true) => "within what was measured",
            _ => "no",
        }
    )
}

fn table(cases: &[Case]) -> (String, bool) {
    let good = cases.iter().filter(|case| case.is_good()).count();
    let maybe = cases.iter().filter(|case| case.may_be_good()).count();
    let part = good as f64 / cases.len().max(1) as f64;
    let mut table = Table::new(
        "target | reset value | figure | predicted: | measured: | middle half of the rounds: | good",
    );
    for case in cases {
        table.row(row(case));
    }
    let text = format!(
        "# What a recording says that it cost\n\nMedians of recordings of {LOT} s of CPU time each; measured from outside by \
         /proc/PID/schedstat. Good: within {:.0} % of what was measured, or {:.0} percentage points.\n\n{table}\n\
         {good} of {} predictions are good: {:.0} %, wanted {:.0} %; {maybe} are as near to what was measured in the middle \
         half of the rounds\n",
        RELATIVE * 100.0,
        ABSOLUTE * 100.0,
        cases.len(),
        part * 100.0,
        GOOD * 100.0
    );
    (text, part >= GOOD)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Good is close, relatively or absolutely; a missing prediction is not good.
    #[test]
    fn judged() {
        let case = |predicted, measured: f64| Case {
            what: "a | b".to_owned(),
            figure: "CPU of the target",
            predicted,
            measured: Spread::of(vec![measured]),
        };
        let good = [(0.049, 0.03), (0.80, 1.0), (1.25, 1.0), (0.0, -0.01)];
        let bad = [(0.10, 0.07), (0.70, 1.0), (0.031, 0.01)];
        assert!(good.iter().all(|(p, m)| case(Some(*p), *m).is_good()));
        assert!(!bad.iter().any(|(p, m)| case(Some(*p), *m).is_good()));
        assert!(!case(None, 0.0).is_good());
        let cases: Vec<Case> = good.iter().map(|(p, m)| case(Some(*p), *m)).collect();
        let (text, enough) = table(&cases);
        assert!(
            enough && text.contains("4 of 4 predictions are good: 100 %"),
            "{text}"
        );
    }
}
