//! `cargo xtask stacks`: whether call stacks of stock programs are whole, equal perf's, and what they cost beside perf's.
//!
//! Whole: the user stacks of a recording with `--call-graph eh` that reach the thread's first function. Equal: stacks of one
//! recording of `perf record --call-graph dwarf`, unwound by 'perf script' and by 'pebs-trace import', frame by frame, of those
//! that both complete. Cost: CPU time of a program with and without a recording, by its samples. Paced: what recordings lose by
//! stacks where the budget chooses the rate of samples, as by default. The exit code is 1 if a goal is missed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::frame::lab::Lab;
use crate::frame::perf::{perf, records_in};
use crate::frame::rounds::beside;
use crate::frame::statistics::median;
use crate::frame::table::Table;
use crate::frame::verdict::{Verdict, exit_code};
use crate::frame::{shell, trace, workload};
use crate::servers::clients::{self, Client};
use crate::servers::running::{POSTGRES, Program, Running};

/// Options of `cargo xtask stacks`.
#[derive(clap::Args)]
pub struct Args {
    /// Rounds of the measurement of costs
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of a recording of a server, s
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Only compare recordings that the budget paces, with stacks and without
    #[arg(long)]
    paced: bool,
    /// Use this pebs-trace instead of a release build of the workspace
    #[arg(long, value_name = "PATH")]
    tool: Option<PathBuf>,
}

/// Part of the user stacks that has to be whole, and of those that both complete that has to be equal.
const WHOLE: f64 = 0.98;
const EQUAL: f64 = 0.99;

/// Largest cost of a sample, by perf's with copied stacks.
const COST: f64 = 0.5;

/// Least part of the samples that a recording keeps with stacks where the budget paces it.
const KEPT: f64 = 0.8;

/// ns between samples.
const RESET: u64 = 200_000;

/// Bytes that perf copies: as many as the tool.
const PERF_COPIES: &str = "dwarf,16384";

/// A function that no program calls: there are no marks.
const NO_MARKS: &str = "libc.so.6:a64l";

/// Program that is recorded.
enum Subject {
    /// A program that ends.
    Command(&'static str, Vec<String>),
    /// A server under load.
    Server(Program, fn(u16) -> Result<Box<dyn Client>>),
}

impl Subject {
    const fn name(&self) -> &'static str {
        match self {
            Self::Command(name, _) => name,
            Self::Server(program, _) => program.name,
        }
    }
}

const PYTHON: &str = "import json, re
for i in range(400):
  for j in range(40): json.loads(json.dumps({'a': [j] * 20, 'b': 'x' * j})); re.findall('(a+)+b', 'aaaaaaaaab' * 3)
  sorted(((j * 7919) % 1000 for j in range(2000)), key=lambda it: -it)";

const SQL: &str = "create table t(a, b); with recursive c(x) as (select 1 union all select x + 1 from c where x < 300000) \
    insert into t select x * 7919 % 10007, 'name' || x from c; create index i on t(a); \
    select a, count(*), max(b) from t group by a order by 2 desc, 3 limit 5; \
    select count(*) from t x join t y on x.a = y.a where y.b like '%99%';";

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn subjects(lab: &Lab) -> Result<Vec<Subject>> {
    let program = lab.dir.join("unwinding");
    let flags = [
        "-O2",
        "-std=c++17",
        "-pthread",
        "-fomit-frame-pointer",
        "-s",
        "-lstdc++",
    ];
    workload::compile("tests/workloads/unwinding.cpp", &program, &flags)?;
    let program = program.display().to_string();
    Ok(vec![
        Subject::Command("sqlite3", words(&["/usr/bin/sqlite3", ":memory:", SQL])),
        Subject::Command("python3", words(&["/usr/bin/python3", "-c", PYTHON])),
        Subject::Command("C++, stripped", words(&[&program, "1500", "3"])),
        Subject::Server(
            Program {
                args: &["--port", "PORT", "--save", "", "--dir", "DIR"],
                ..Program::new("redis", "redis-server", "/usr/bin/redis-server")
            },
            clients::redis,
        ),
        Subject::Server(POSTGRES, clients::postgres),
        Subject::Server(
            Program {
                config: "daemon off;\nmaster_process off;\npid DIR/pid;\nerror_log DIR/log;\nevents {}\n\
                    http {\n access_log off;\n keepalive_requests 1000000000;\n server {\n  listen 127.0.0.1:PORT;\n  \
                    root DIR/www;\n }\n}\n",
                args: &["-p", "DIR", "-c", "DIR/config"],
                ..Program::new("nginx", "nginx", "/usr/sbin/nginx")
            },
            clients::apache,
        ),
    ])
}

/// Ends a recorder as Ctrl-C does.
fn interrupt(mut child: Child) -> Result<()> {
    if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
        // It may have ended with its target.
        let _ = kill_process(pid, Signal::INT);
    }
    child.wait()?;
    Ok(())
}

/// Starts a program without output.
fn quietly(command: &mut Command) -> Result<Child> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command.stderr(Stdio::null()).spawn()?)
}

/// Runs `recorder`, which is complete but for its target, while the subject works.
fn record(subject: &Subject, mut recorder: Command, seconds: f64) -> Result<()> {
    match subject {
        Subject::Command(_, words) => {
            quietly(recorder.arg("--").args(words))?.wait()?;
        }
        Subject::Server(program, client) => {
            let mut server = Running::start(program, &[], |it| client(it.port).is_ok())?;
            recorder.args(["-p", &server.pid().to_string()]);
            let recorder = quietly(&mut recorder)?;
            std::thread::sleep(Duration::from_secs(2));
            let mut client = client(server.port)?;
            let began = Instant::now();
            let mut n = 0;
            while began.elapsed().as_secs_f64() < seconds {
                n += 1;
                client.ask(n % 100 == 0)?;
            }
            interrupt(recorder)?;
            // PostgreSQL waits for its clients.
            drop(client);
            server.stop()?;
        }
    }
    Ok(())
}

/// The tool with the options of a recording, without its target.
fn tool(lab: &Lab, call_graph: Option<&str>) -> Result<Command> {
    let output = lab.clean("trace")?;
    let mut command = lab.tool();
    command.args(["--uprobe", NO_MARKS, "--event", "cpu-clock", "--force"]);
    command.args([
        "--reset",
        &RESET.to_string(),
        "--no-switches",
        "--no-page-faults",
    ]);
    command.args(call_graph.map(|how| format!("--call-graph={how}")));
    command.arg("--output").arg(output);
    Ok(command)
}

/// perf with the options of a recording, without its target.
fn perf_record(data: &Path, call_graph: Option<&str>) -> Result<Command> {
    let mut command = perf().context("no perf")?;
    command.args(["record", "-q", "-e", "cpu-clock", "-c", &RESET.to_string()]);
    command.args(call_graph.map(|how| format!("--call-graph={how}")));
    command.arg("-o").arg(data);
    Ok(command)
}

/// A frame in a file: offset of the code, and its length if known.
type Place = (i64, i64);

/// A call stack: frames in user space, innermost first, and whether the first function was reached.
#[derive(Debug, Default)]
struct Stack {
    frames: Vec<Place>,
    is_whole: bool,
}

/// Stacks by thread, in order of time.
type Stacks = BTreeMap<String, Vec<Stack>>;

/// Those of a trace.
fn ours(trace: &Path) -> Result<Stacks> {
    let rows = trace::query(
        trace,
        "with f as (select stack_id, truncated, unnest(frames) id, generate_subscripts(frames, 1) n from 'TRACE/stacks/*.parquet'),
         k as (select stack_id, any_value(truncated) t, coalesce(string_agg(case when kernel then null else
            coalesce(\"offset\", -1) || '+' || coalesce(size, 0) end, ',' order by n), '-') p
            from f join 'TRACE/functions/*.parquet' g on g.function_id = f.id group by stack_id)
         select s.tid, t, p from 'TRACE/samples/*.parquet' s left join k on k.stack_id = s.stack_id order by s.tid, s.time_ns",
    )?;
    let mut stacks = Stacks::new();
    for row in rows {
        let [tid, truncated, places] = &row[..] else {
            continue;
        };
        let place = |text: &str| {
            let (offset, size) = text.split_once('+')?;
            Some((offset.parse().ok()?, size.parse().ok()?))
        };
        stacks.entry(tid.clone()).or_default().push(Stack {
            frames: places.split(',').filter_map(place).collect(),
            is_whole: truncated == "False",
        });
    }
    Ok(stacks)
}

/// Those of a recording of perf, by 'perf script'. Whole: the outermost frame is a program's or a thread's first function.
fn perfs(data: &Path) -> Result<Stacks> {
    let mut script = perf().context("no perf")?;
    script.args(["script", "--no-inline", "-F", "tid,time,ip,sym,dso", "-i"]);
    let text = shell::output(script.arg(data).stderr(Stdio::null()))?;
    let mut stacks = Stacks::new();
    for paragraph in text.split("\n\n") {
        let mut lines = paragraph.lines();
        let Some(head) = lines.next() else { continue };
        let Some(tid) = head.split_whitespace().next() else {
            continue;
        };
        let mut stack = Stack::default();
        for line in lines {
            let mut words = line.split_whitespace();
            let Some(Ok(ip)) = words.next().map(|word| u64::from_str_radix(word, 16)) else {
                continue;
            };
            let symbol = words.next().unwrap_or_default();
            stack.is_whole = ["_start", "__clone3", "__GI___clone3", "clone3", "__clone"].contains(&symbol)
                // Stripped programs have no name there; the C library calls it.
                || symbol == "[unknown]" && stack.is_whole;
            if symbol.starts_with("__libc_start_main") {
                stack.is_whole = true;
            }
            if let Ok(ip) = i64::try_from(ip) {
                stack.frames.push((ip, 0));
            }
        }
        stacks.entry(tid.to_owned()).or_default().push(stack);
    }
    Ok(stacks)
}

/// Number of stacks that both complete, and of those with the same frames.
fn equal(ours: &Stacks, perfs: &Stacks) -> (u64, u64) {
    let (mut both, mut same) = (0, 0);
    for (tid, ours) in ours {
        let Some(perfs) = perfs.get(tid).filter(|it| it.len() == ours.len()) else {
            continue;
        };
        for (our, perf) in ours.iter().zip(perfs) {
            if !our.is_whole || !perf.is_whole {
                continue;
            }
            both += 1;
            let is_in = |((start, size), (ip, _)): (&Place, &Place)| {
                // A function without a size reaches from its start on; without a start it can't be compared.
                *start >= 0 && ip >= start && (*size == 0 || ip - start < *size)
            };
            let is_same = our.frames.len() == perf.frames.len();
            same += u64::from(is_same && our.frames.iter().zip(&perf.frames).all(is_in));
        }
    }
    (both, same)
}

fn percent(part: u64, of: u64) -> String {
    match of {
        0 => "-".to_owned(),
        _ => format!("{:.1} %", 100.0 * part as f64 / of as f64),
    }
}

/// A row of completeness and equality, and whether they are as they have to be.
fn completeness(subject: &Subject, lab: &Lab, args: &Args) -> Result<(String, bool, bool)> {
    record(subject, tool(lab, Some("eh"))?, args.seconds)?;
    let unwound = lab.info()?["unwound"].take();
    let ended = unwound.as_object().context("no stack was unwound")?;
    let number = |name: &str| ended[name].as_u64().unwrap_or(0);
    let all: u64 = ended.values().filter_map(serde_json::Value::as_u64).sum();
    let whole = number("whole");
    let others: Vec<String> = ended
        .iter()
        .filter(|(name, n)| *name != "whole" && n.as_u64() > Some(0))
        .map(|(name, n)| format!("{name} {n}"))
        .collect();
    let data = lab.clean("perf.data")?;
    record(
        subject,
        perf_record(&data, Some(PERF_COPIES))?,
        args.seconds,
    )?;
    let imported = lab.clean("imported")?;
    let mut import = lab.tool();
    import
        .arg("import")
        .arg(&data)
        .arg("--output")
        .arg(&imported);
    // Its exit status is 1 where there is no item.
    shell::collect(&mut import)?;
    let (ours, perfs) = (ours(&imported)?, perfs(&data)?);
    let (both, same) = equal(&ours, &perfs);
    let count = |stacks: &Stacks| {
        let all = stacks.values().flatten();
        let (whole, all) = all.fold((0, 0), |(whole, all), it| {
            (whole + u64::from(it.is_whole), all + 1)
        });
        percent(whole, all)
    };
    let row = format!(
        "{} | {all} | {} | {} | {} | {} | {both} | {}",
        subject.name(),
        percent(whole, all),
        others.join(", "),
        count(&ours),
        count(&perfs),
        percent(same, both)
    );
    eprintln!("{row}");
    let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
    Ok((
        row,
        share(whole, all) >= WHOLE,
        both > 0 && share(same, both) >= EQUAL,
    ))
}

/// A way to record.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Ours(Option<&'static str>),
    Perfs(Option<&'static str>),
}

impl Way {
    const ALL: [Self; 6] = [
        Self::Ours(None),
        Self::Ours(Some("fp")),
        Self::Ours(Some("eh")),
        Self::Perfs(None),
        Self::Perfs(Some("fp")),
        Self::Perfs(Some(PERF_COPIES)),
    ];

    fn name(self) -> String {
        let (tool, how) = match self {
            Self::Ours(how) => ("pebs-trace", how),
            Self::Perfs(how) => ("perf", how),
        };
        format!(
            "{tool} {}",
            how.map_or_else(String::new, |how| format!("--call-graph {how}"))
        )
    }
}

/// CPU time of a command with its children, s: of the command alone, not of what records it.
fn cpu_time(lab: &Lab, recorder: Option<Command>, words: &[String]) -> Result<f64> {
    let file = lab.clean("times")?;
    let timed = "TIMEFORMAT='%U %S'; { time \"$@\" > /dev/null 2>&1; } 2> \"$0\"";
    let mut inner = vec!["bash".to_owned(), "-c".to_owned(), timed.to_owned()];
    inner.push(file.display().to_string());
    inner.extend_from_slice(words);
    let mut command = match recorder {
        Some(mut recorder) => {
            recorder.arg("--").args(&inner);
            recorder
        }
        None => {
            let mut command = Command::new(&inner[0]);
            command.args(&inner[1..]);
            command
        }
    };
    quietly(&mut command)?.wait()?;
    let text = std::fs::read_to_string(&file)?;
    let times = text.split_whitespace().map(str::parse::<f64>);
    Ok(times.collect::<Result<Vec<f64>, _>>()?.iter().sum())
}

/// Rows of what samples cost, and whether ours with stacks cost at most [`COST`] of perf's.
fn costs(subject: &Subject, lab: &Lab, rounds: usize, table: &mut Table) -> Result<Option<bool>> {
    let Subject::Command(name, words) = subject else {
        return Ok(None);
    };
    let data = lab.dir.join("perf.data");
    let measured = beside(
        rounds,
        &Way::ALL,
        || cpu_time(lab, None, words),
        |way| {
            let _ = std::fs::remove_file(&data);
            let (seconds, samples, bytes) = match way {
                Way::Ours(how) => {
                    let seconds = cpu_time(lab, Some(tool(lab, *how)?), words)?;
                    let samples = trace::Account::of(&lab.info()?, "samples").written;
                    (seconds, samples, bytes_of(&lab.trace())?)
                }
                Way::Perfs(how) => {
                    let seconds = cpu_time(lab, Some(perf_record(&data, *how)?), words)?;
                    (
                        seconds,
                        records_in(&data)?.1,
                        std::fs::metadata(&data)?.len(),
                    )
                }
            };
            Ok((seconds, samples, bytes))
        },
    )?;
    let mut cost = BTreeMap::new();
    for (way, runs) in Way::ALL.iter().zip(&measured.cases) {
        let us = runs
            .iter()
            .map(|(without, (with, samples, _))| (with - without) * 1e6 / *samples as f64);
        let bytes = runs
            .iter()
            .map(|(_, (_, samples, bytes))| *bytes as f64 / *samples as f64);
        let us = median(us.collect());
        let row = format!(
            "{name} | {} | {us:.1} | {:.1}",
            way.name(),
            median(bytes.collect())
        );
        eprintln!("{row}");
        table.row(row);
        cost.insert(way.name(), us);
    }
    let of = |way: Way| cost[&way.name()];
    Ok(Some(
        of(Way::Ours(Some("eh"))) <= COST * of(Way::Perfs(Some(PERF_COPIES))),
    ))
}

/// The tool as it paces itself, without its target: `none` or `eh`, or as it chooses.
fn pacing(lab: &Lab, call_graph: Option<&str>) -> Result<Command> {
    let output = lab.clean("trace")?;
    let mut command = lab.tool();
    command.args(["--uprobe", NO_MARKS, "--event", "cpu-clock"]);
    command.args(call_graph.map(|how| format!("--call-graph={how}")));
    command.arg("--output").arg(output);
    Ok(command)
}

/// A run of a command under a recording that the budget paces.
struct Paced {
    /// CPU time of the command, s.
    cpu_s: f64,
    samples: u64,
    lost: u64,
    bytes: u64,
    /// CPU time of the tool after its start, s.
    tool_s: f64,
    /// Choice of the tool, with its reason.
    chosen: String,
}

/// Rows of recordings that the budget paces, with stacks and without, and whether those with stacks keep their samples.
fn paced(
    subject: &Subject,
    lab: &Lab,
    rounds: usize,
    table: &mut Table,
) -> Result<Option<(bool, bool)>> {
    let Subject::Command(name, words) = subject else {
        return Ok(None);
    };
    const WAYS: [Option<&str>; 2] = [Some("none"), None];
    let measured = beside(
        rounds,
        &WAYS,
        || cpu_time(lab, None, words),
        |way| {
            let cpu_s = cpu_time(lab, Some(pacing(lab, *way)?), words)?;
            let info = lab.info()?;
            let account = trace::Account::of(&info, "samples");
            let notes = info["notes"].as_array().into_iter().flatten();
            let mut notes = notes.filter_map(serde_json::Value::as_str);
            Ok(Paced {
                cpu_s,
                samples: account.written,
                lost: account.seen - account.written,
                bytes: bytes_of(&lab.trace())?,
                tool_s: info["cost"]["tool_cpu_ns"].as_f64().unwrap_or(0.0) / 1e9,
                chosen: notes
                    .find(|it| it.starts_with("stacks: "))
                    .unwrap_or("-")
                    .to_owned(),
            })
        },
    )?;
    let mut rates = Vec::new();
    let mut all_lost = 0;
    for (way, runs) in WAYS.iter().zip(&measured.cases) {
        let of = |value: &dyn Fn(f64, &Paced) -> f64| {
            median(
                runs.iter()
                    .map(|(without, it)| value(*without, it))
                    .collect(),
            )
        };
        let rate = of(&|without, it| it.samples as f64 / without);
        let slower = of(&|without, it| 100.0 * (it.cpu_s / without - 1.0));
        let lost: u64 = runs.iter().map(|(_, it)| it.lost).sum();
        let row = format!(
            "{name} | {} | {slower:.1} | {rate:.0} | {lost} | {:.0} | {:.1} | {}",
            way.unwrap_or("as chosen"),
            of(&|_, it| it.bytes as f64 / it.samples as f64),
            of(&|without, it| 100.0 * it.tool_s / without),
            runs.last().map_or("-", |(_, it)| &it.chosen),
        );
        eprintln!("{row}");
        table.row(row);
        rates.push(rate);
        all_lost += lost;
    }
    Ok(Some((rates[1] >= KEPT * rates[0], all_lost == 0)))
}

/// Bytes of the files below a folder.
fn bytes_of(dir: &Path) -> Result<u64> {
    let text = shell::output(shell::as_root("du").args(["-sb"]).arg(dir))?;
    let bytes = text.split_whitespace().next().context("du says nothing")?;
    Ok(bytes.parse()?)
}

/// Runs the task.
pub fn main(args: &Args) -> Result<ExitCode> {
    ensure!(perf().is_some(), "no perf: apt-get install linux-perf");
    let lab = Lab::new("stacks", args.tool.as_deref())?;
    let mut verdict = Verdict::default();
    let mut stacks = Table::new(
        "program | stacks: | whole: | ended otherwise | of a dwarf recording: | by perf: | both: | equal:",
    );
    let mut times =
        Table::new("program | recorded by | CPU time of a sample, us: | bytes of a sample:");
    let mut pace = Table::new(
        "program | stacks | slower, %: | samples a second: | lost: | bytes of a sample: | CPU time of the tool, %: | chosen",
    );
    for subject in &subjects(&lab)? {
        if let Some((is_kept, is_whole)) = paced(subject, &lab, args.rounds, &mut pace)? {
            let name = subject.name();
            let kept = 100.0 * KEPT;
            verdict.goal(format!("{name}: {kept:.0} % of the samples"), is_kept);
            verdict.goal(format!("{name}: no sample lost"), is_whole);
        }
        if args.paced {
            continue;
        }
        let (row, is_whole, is_equal) = completeness(subject, &lab, args)?;
        stacks.row(row);
        verdict.goal(
            format!("{}: {:.0} % whole", subject.name(), 100.0 * WHOLE),
            is_whole,
        );
        verdict.goal(
            format!("{}: {:.0} % as perf's", subject.name(), 100.0 * EQUAL),
            is_equal,
        );
        if let Some(is_cheap) = costs(subject, &lab, args.rounds, &mut times)? {
            verdict.goal(format!("{}: half of perf's cost", subject.name()), is_cheap);
        }
    }
    let mut text = format!(
        "# Call stacks of stock programs\n\nPaced by the budget:\n\n{pace}\nA sample every {} us of CPU time.\n\n{stacks}\n{times}\n",
        RESET / 1000
    );
    for what in verdict.missed() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "missed: {what}");
    }
    lab.publish("stacks.md", &text)?;
    Ok(exit_code(verdict.is_met()))
}
