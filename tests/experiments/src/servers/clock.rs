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

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::clients::Client;
use super::stock::{Server, record_under_load, start};
use crate::frame::lab::Lab;
use crate::frame::statistics::{median, quantiles};
use crate::frame::table::Table;
use crate::frame::verdict::exit_code;
use crate::frame::{trace, workload};

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
        let flags = ["-O2", "-fPIC", "-shared", "-ldl"];
        workload::compile("tests/experiments/workloads/clock.c", &library, &flags)?;
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
    /// Median growth of the time from the first call, and the tool's figure for both marks, ns.
    grew: Vec<f64>,
    own: Vec<f64>,
}

impl Rounds {
    fn see(&mut self, plain: &[Item], traced: &[Item], lab: &Lab, from_return: bool) -> Result<()> {
        let mut visits = trace::visits(&lab.trace())?;
        visits.retain(|it| it.net_ns.is_some());
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
            let net_ns = visit.net_ns.unwrap_or_default() as f64;
            net.push(net_ns);
            // The marks are not within.
            let took = (item.sends - item.received) as f64;
            let least = LEAST.0 * took - LEAST.1;
            self.too_short += usize::from(visit.disturbances == Some(0) && net_ns < least);
        }
        let of = |items: &[Item]| p50_and_p99(items.iter().map(|it| it.ns(from_return)));
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
        self.told.push(p50_and_p99(net.into_iter()));
        // Where the call waits for the request, marks only shorten the wait.
        let received = plain.iter().map(|it| (it.received - it.called) as f64);
        let whole = |items: &[Item]| p50_and_p99(items.iter().map(|it| it.ns(false)))[0];
        if p50_and_p99(received)[0] < LONGEST_CALL {
            self.grew.push(whole(traced) - whole(plain));
        }
        let info = lab.info()?;
        let own = info["own_time"]["marks"][0]["whole"]["ns"].as_f64();
        self.own.push(own.context("no own time of marks")?);
        Ok(())
    }

    /// Columns, and whether all is right, where the first mark takes this long as the tool says.
    fn row(&self, own: f64) -> (String, bool) {
        let of = |all: &[[f64; 2]], at: usize| median(all.iter().map(|it| it[at]).collect());
        let times = [0, 1].map(|at| (of(&self.plain, at), of(&self.told, at)));
        let grew = median(self.grew.clone());
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
            let part = median(self.long.iter().map(|it| it[at]).collect());
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

fn p50_and_p99(values: impl Iterator<Item = f64>) -> [f64; 2] {
    quantiles(values.collect(), [0.5, 0.99])
}

/// Runs the task.
pub(super) fn main(
    tool: &Path,
    servers: &[&Server],
    rounds: usize,
    length: Duration,
) -> Result<ExitCode> {
    let mut table = Table::new(
        "server | items: | its clock, p50: | net: | p99: | net: | of 5 times p50 or more: without, with, net | too short: | \
         its first mark: | as said: |",
    );
    let mut wrong = false;
    for server in servers {
        let Some(calls) = server.clock else { continue };
        match measure(server, calls, tool, rounds, length) {
            Ok(rows) => {
                for (spec, (text, is_right)) in rows {
                    wrong |= !is_right;
                    table.row(format_args!("{}, `{spec}` | {text}", server.program.name));
                }
            }
            Err(error) => {
                wrong = true;
                table.row(format_args!("{} | FAILED: {error:#}", server.program.name));
            }
        }
        eprintln!("{table}");
    }
    println!("{table}");
    Ok(exit_code(!wrong))
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
    let (running, mut client) = start(server, &variables)?;
    let lab = Lab::at(dir, tool)?;
    let (receives, sends) = calls;
    let specs = [
        (format!("libc.so.6:{receives}%return..{sends}"), true),
        (format!("libc.so.6:{receives}..{sends}"), false),
    ];
    let mut all = [Rounds::default(), Rounds::default()];
    for _ in 0..rounds.max(1) {
        for ((spec, from_return), figures) in specs.iter().zip(&mut all) {
            clock.take()?;
            ask_usual(&mut *client, length)?;
            let plain = clock.take()?;
            let recorder =
                record_under_load(&lab, (Some(spec), running.pid()), &["--force"], || {
                    ask_usual(&mut *client, Duration::from_millis(20))
                })?;
            clock.take()?;
            ask_usual(&mut *client, length)?;
            let traced = clock.take()?;
            recorder.stop()?;
            figures.see(&plain, &traced, &lab, *from_return)?;
        }
    }
    // The folder itself is not root's.
    lab.clean("trace")?;
    // Both marks of the second SPEC are emulated, and its last is that of the first, too.
    let of_both = |rounds: &Rounds| median(rounds.own.clone());
    let cheap = of_both(&all[1]) / 2.0;
    let own = [of_both(&all[0]) - cheap, cheap];
    let rows = specs.into_iter().zip(all.iter().zip(own));
    let rows = rows.map(|((spec, _), (figures, own))| (spec, figures.row(own)));
    Ok(rows.collect())
}
