//! `cargo xtask servers --clock`: compares the times of items with a clock inside of the server.
//!
//! A preloaded library logs when the call that receives a request begins and returns, and when the one that answers
//! begins (`tests/experiments/workloads/clock.c`). The tool records the items between these calls of libc, so that each has its
//! true times beside it. The exit code is 1 where items are missing, or times are off by more than [`GOOD`].
//!
//! * *Net time* of `RECEIVE%return..SEND` is the time from the return of one call to the other, and of `RECEIVE..SEND` from
//!   the call: compared with what they take in rounds without the tool. The same work has a dear first mark in the one and
//!   a cheap one in the other.
//! * *Own time*: the mark where an item begins lies within the call that receives, so the time from that call to the other
//!   grows by what this mark takes. Where the call waits for the request, it only waits less, and this is not known.

use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::clients::Client;
use super::running::Running;
use super::stock::{Server, median, pin, record_under_load};
use crate::frame::shell;

/// A time is right within this part of the true one, or these ns; an own time within the last part of it.
const GOOD: (f64, f64, f64) = (0.1, 500.0, 0.2);

/// Least part of the clock's time that an item without samples and switches may have, and ns that a clock may differ by.
const LEAST: (f64, f64) = (0.9, 200.0);

/// A call that takes longer than this in the middle, ns, waits.
const LONGEST_CALL: f64 = 5_000.0;

/// Items of so many times p50 are long.
const LONG: f64 = 5.0;

/// Bytes of a row of the log, and most rows, as in `clock.c`.
const ROW: usize = 32;
const ROWS: usize = 4_000_000;

/// Times of an item by the server's own clock, ns.
#[derive(Clone, Copy)]
struct Item {
    tid: u64,
    called: u64,
    received: u64,
    sends: u64,
}

impl Item {
    /// From the call or its return to the answer.
    const fn ns(self, from_return: bool) -> f64 {
        (self.sends
            - if from_return {
                self.received
            } else {
                self.called
            }) as f64
    }
}

/// The log.
struct Clock {
    file: File,
    /// Rows read.
    read: usize,
}

impl Clock {
    /// Makes the log and the library, and returns them with the variables of the server.
    fn new(dir: &Path, (receives, sends): (&str, &str)) -> Result<(Self, Vec<(String, String)>)> {
        let (library, log) = (dir.join("clock.so"), dir.join("log"));
        let source = shell::workspace().join("tests/experiments/workloads/clock.c");
        let mut compile = Command::new("cc");
        compile.args(["-O2", "-fPIC", "-shared", "-o"]);
        shell::run(compile.arg(&library).arg(source).arg("-ldl"))?;
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&log)?;
        file.set_len((8 + ROW * ROWS) as u64)?;
        // Whoever runs the server.
        file.set_permissions(Permissions::from_mode(0o666))?;
        let of = |name: &str, value: String| (name.to_owned(), value);
        let variables = vec![
            of("LD_PRELOAD", library.display().to_string()),
            of("CLOCK_LOG", log.display().to_string()),
            of("CLOCK_BEGIN", receives.to_owned()),
            of("CLOCK_END", sends.to_owned()),
        ];
        Ok((Self { file, read: 0 }, variables))
    }

    /// Rows since the last call.
    fn take(&mut self) -> Result<Vec<Item>> {
        use std::os::unix::fs::FileExt as _;
        let mut number = [0; 8];
        self.file.read_exact_at(&mut number, 0)?;
        let number = u64::from_ne_bytes(number) as usize;
        ensure!(number < ROWS, "the log is full: give less --seconds");
        let mut bytes = vec![0; (number - self.read) * ROW];
        self.file
            .read_exact_at(&mut bytes, (8 + self.read * ROW) as u64)?;
        self.read = number;
        let rows = bytes.chunks_exact(ROW).map(|row| {
            let of = |at: usize| {
                let word = row[8 * at..8 * at + 8].try_into();
                word.map_or(0, u64::from_ne_bytes)
            };
            Item {
                tid: of(0),
                called: of(1),
                received: of(2),
                sends: of(3),
            }
        });
        Ok(rows.collect())
    }
}

/// What the tool says of an item.
struct Visit {
    tid: u64,
    /// On `CLOCK_MONOTONIC`.
    begin: u64,
    net_ns: f64,
    /// Whether it met no sample and no switch.
    undisturbed: bool,
}

fn visits(trace: &Path) -> Result<Vec<Visit>> {
    const SCRIPT: &str = "import duckdb, json, sys
origin = json.load(open(sys.argv[1] + '/trace.json'))['monotonic_ns']
for row in duckdb.sql(f\"select tid, begin_ns + {origin}, net_ns, samples + coalesce(switches, 0) from \
'{sys.argv[1]}/visits/*.parquet' where net_ns is not null\").fetchall(): print(*row)";
    let python = shell::tools_dir().join("venv/bin/python");
    let text = shell::output(Command::new(python).args(["-c", SCRIPT]).arg(trace))?;
    let line = |line: &str| {
        let mut words = line.split(' ').map(|it| it.parse::<u64>().ok());
        Some(Visit {
            tid: words.next()??,
            begin: words.next()??,
            net_ns: words.next()?? as f64,
            undisturbed: words.next()?? == 0,
        })
    };
    Ok(text.lines().filter_map(line).collect())
}

/// Figures of the rounds of one SPEC.
#[derive(Default)]
struct Rounds {
    /// Items of the clock, and those of them that the tool has once.
    items: (usize, usize),
    /// p50 and p99 without the tool, and what it says, ns.
    plain: Vec<[f64; 2]>,
    told: Vec<[f64; 2]>,
    /// Items of [`LONG`] times p50 without the tool, as parts of all: by the clock without and with it, and what it says.
    long: Vec<[f64; 3]>,
    /// Items below their least.
    too_short: usize,
    /// What the time from the first call grew by in the middle, and what the tool says of both marks, ns.
    grew: Vec<f64>,
    own: Vec<f64>,
}

impl Rounds {
    fn see(
        &mut self,
        plain: &[Item],
        traced: &[Item],
        trace: &Path,
        from_return: bool,
    ) -> Result<()> {
        let mut visits = visits(trace)?;
        visits.sort_by_key(|it| (it.tid, it.begin));
        let mut net = Vec::new();
        for item in traced {
            let from = visits.partition_point(|it| (it.tid, it.begin) < (item.tid, item.called));
            let of = visits[from..].iter();
            let mut of = of.take_while(|it| it.tid == item.tid && it.begin <= item.received);
            self.items.0 += 1;
            let (Some(visit), None) = (of.next(), of.next()) else {
                continue;
            };
            self.items.1 += 1;
            net.push(visit.net_ns);
            // The marks are not within.
            let took = (item.sends - item.received) as f64;
            let least = LEAST.0 * took - LEAST.1;
            self.too_short += usize::from(visit.undisturbed && visit.net_ns < least);
        }
        let of = |items: &[Item]| quantiles(items.iter().map(|it| it.ns(from_return)));
        let usual = of(plain);
        let part = |all: &mut dyn Iterator<Item = f64>| {
            let all: Vec<f64> = all.collect();
            let long = all.iter().filter(|ns| **ns >= LONG * usual[0]).count();
            long as f64 / all.len() as f64
        };
        self.long.push([
            part(&mut plain.iter().map(|it| it.ns(from_return))),
            part(&mut traced.iter().map(|it| it.ns(from_return))),
            part(&mut net.iter().copied()),
        ]);
        self.plain.push(usual);
        self.told.push(quantiles(net.into_iter()));
        // Where the call waits for the request, marks only shorten the wait.
        let received = plain.iter().map(|it| (it.received - it.called) as f64);
        let whole = |items: &[Item]| quantiles(items.iter().map(|it| it.ns(false)))[0];
        if quantiles(received)[0] < LONGEST_CALL {
            self.grew.push(whole(traced) - whole(plain));
        }
        let info: Value = serde_json::from_slice(&fs::read(trace.join("trace.json"))?)?;
        let own = info["own_time"]["marks"][0]["whole"]["ns"].as_f64();
        self.own.push(own.context("no own time of marks")?);
        Ok(())
    }

    /// Columns, and whether all is right, where the first mark takes this long as the tool says.
    fn row(&self, own: f64) -> (String, bool) {
        let of = |all: &[[f64; 2]], at: usize| median(all.iter().map(|it| it[at]));
        let times = [0, 1].map(|at| (of(&self.plain, at), of(&self.told, at)));
        let grew = median(self.grew.iter().copied());
        let is_near =
            |(plain, told): &(f64, f64)| (told - plain).abs() <= GOOD.1.max(GOOD.0 * plain);
        let is_right = self.items.0 == self.items.1
            && times.iter().all(is_near)
            && self.too_short == 0
            && (self.grew.is_empty() || (own - grew).abs() <= GOOD.2 * grew);
        let grew = match self.grew.as_slice() {
            [] => "-".to_owned(),
            _ => us(grew),
        };
        let [(p50, net50), (p99, net99)] = times;
        let long = [0, 1, 2].map(|at| {
            let part = median(self.long.iter().map(|it| it[at]));
            format!("{:.2} %", part * 100.0)
        });
        let text = format!(
            "{} of {} | {} | {} | {} | {} | {} | {} | {} | {} | {}",
            self.items.1,
            self.items.0,
            us(p50),
            us(net50),
            us(p99),
            us(net99),
            long.join(", "),
            self.too_short,
            grew,
            us(own),
            if is_right { "" } else { "missed" }
        );
        (text, is_right)
    }
}

/// Asks for usual things for a while.
fn ask_usual(client: &mut dyn Client, time: Duration) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < time {
        client.ask(false)?;
    }
    Ok(())
}

fn us(ns: f64) -> String {
    format!("{:.2} us", ns / 1e3)
}

/// p50 and p99.
fn quantiles(values: impl Iterator<Item = f64>) -> [f64; 2] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    [0.5, 0.99].map(|q| {
        let at = (values.len() as f64 * q) as usize;
        values.get(at).copied().unwrap_or(f64::NAN)
    })
}

/// Runs the task.
pub(super) fn main(
    tool: &Path,
    servers: &[&Server],
    rounds: usize,
    length: Duration,
) -> Result<ExitCode> {
    let mut table = String::from(
        "| server | items | its clock, p50 | net | p99 | net | of 5 times p50 or more: without, with, net | too short | its first mark | as said | |\n\
         |---|--:|--:|--:|--:|--:|---|--:|--:|--:|---|\n",
    );
    let mut wrong = false;
    for server in servers {
        let Some(calls) = server.clock else { continue };
        match measure(server, calls, tool, rounds, length) {
            Ok(rows) => {
                for (spec, (text, is_right)) in rows {
                    wrong |= !is_right;
                    let _ = writeln!(table, "| {}, `{spec}` | {text} |", server.program.name);
                }
            }
            Err(error) => {
                wrong = true;
                let _ = writeln!(table, "| {} | FAILED: {error:#} |", server.program.name);
            }
        }
        eprintln!("{table}");
    }
    println!("{table}");
    Ok(ExitCode::from(u8::from(wrong)))
}

type SpecRow = (String, (String, bool));

fn measure(
    server: &Server,
    calls: (&str, &str),
    tool: &Path,
    rounds: usize,
    length: Duration,
) -> Result<Vec<SpecRow>> {
    let folder = tempfile::tempdir()?;
    let dir = folder.path();
    fs::set_permissions(dir, Permissions::from_mode(0o755))?;
    let (mut clock, variables) = Clock::new(dir, calls)?;
    let running = Running::start(&server.program, &variables, |it| {
        (server.client)(it.port).is_ok_and(|mut it| it.ask(false).is_ok())
    })?;
    pin(running.pid(), 0)?;
    pin(std::process::id(), 1)?;
    let mut client = (server.client)(running.port)?;
    let (receives, sends) = calls;
    let specs = [
        (format!("libc.so.6:{receives}%return..{sends}"), true),
        (format!("libc.so.6:{receives}..{sends}"), false),
    ];
    let mut all = [Rounds::default(), Rounds::default()];
    let trace = dir.join("trace");
    for _ in 0..rounds.max(1) {
        for ((spec, from_return), figures) in specs.iter().zip(&mut all) {
            clock.take()?;
            ask_usual(&mut *client, length)?;
            let plain = clock.take()?;
            let recorder =
                record_under_load(tool, (spec, running.pid()), &trace, &["--force"], || {
                    ask_usual(&mut *client, Duration::from_millis(20))
                })?;
            clock.take()?;
            ask_usual(&mut *client, length)?;
            let traced = clock.take()?;
            recorder.stop()?;
            figures.see(&plain, &traced, &trace, *from_return)?;
        }
    }
    // Files of root can be removed only by root.
    shell::output(shell::as_root("rm").arg("-rf").arg(&trace))?;
    // Both marks of the second SPEC are emulated, and its last is that of the first, too.
    let of_both = |rounds: &Rounds| median(rounds.own.iter().copied());
    let cheap = of_both(&all[1]) / 2.0;
    let own = [of_both(&all[0]) - cheap, cheap];
    let rows = specs.into_iter().zip(all.iter().zip(own));
    let rows = rows.map(|((spec, _), (figures, own))| (spec, figures.row(own)));
    Ok(rows.collect())
}
