//! Programs with exactly known counts: Valgrind counts the events of each slice.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::frame::machine::{Killed, wait_until};
use crate::frame::shell;

/// The measured programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Program {
    Redis,
    Sqlite,
    Gcc,
    Python,
    Phases,
    Requests,
}

impl Program {
    pub const ALL: [Self; 6] = [
        Self::Redis,
        Self::Sqlite,
        Self::Gcc,
        Self::Python,
        Self::Phases,
        Self::Requests,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Sqlite => "sqlite",
            Self::Gcc => "gcc",
            Self::Python => "python",
            Self::Phases => "phases",
            Self::Requests => "requests",
        }
    }
}

/// Basic blocks between two dumps. Valgrind checks only when a thread's turn of about 13,000 blocks ends, so smaller
/// values have no effect.
const BLOCKS: u32 = 10_000;

/// Options of Valgrind: caches of 32 KiB and 1 MiB, so that both have misses.
const TOOL: [&str; 11] = [
    "--tool=callgrind",
    "--cache-sim=yes",
    "--branch-sim=yes",
    "--cacheuse=yes",
    "--collect-systime=yes",
    "--collect-bus=yes",
    "--combine-dumps=yes",
    "--dump-line=no",
    "--I1=32768,8,64",
    "--D1=32768,8,64",
    "--LL=1048576,16,64",
];

/// The command that counts a program.
fn valgrind(dumps: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command
        .args(TOOL)
        .arg(format!("--dump-every-bb={BLOCKS}"))
        .arg(format!("--callgrind-out-file={}", dumps.display()));
    command
}

/// The file of a run's counts, as CSV with a line per slice; counted now unless it exists.
pub fn counted(program: Program, run: u32) -> Result<PathBuf> {
    let dir = shell::workspace().join("target/counterminer");
    fs::create_dir_all(&dir)?;
    let result = dir.join(format!("{}-{run}.csv", program.name()));
    if result.exists() {
        return Ok(result);
    }
    let scratch = tempfile::tempdir_in(&dir)?;
    let dumps = scratch.path().join("dumps");
    count(program, run, &dumps, scratch.path())
        .with_context(|| format!("cannot count the events of {}", program.name()))?;
    let table = read(&dumps)?;
    let whole = scratch.path().join("whole");
    File::create(&whole)?.write_all(table.as_bytes())?;
    fs::rename(whole, &result)?;
    Ok(result)
}

fn count(program: Program, run: u32, dumps: &Path, scratch: &Path) -> Result<()> {
    let sources = shell::workspace().join("tests/counterminer");
    let mut command = valgrind(dumps);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    match program {
        Program::Redis => return serve_redis(command, run),
        Program::Sqlite => {
            let script = scratch.join("script.sql");
            fs::write(&script, SQL)?;
            command
                .args(["sqlite3", ":memory:"])
                .stdin(File::open(script)?);
        }
        Program::Gcc => {
            let source = scratch.join("made.c");
            fs::write(&source, c_source(run))?;
            let compiler = shell::output(Command::new("gcc").arg("-print-prog-name=cc1"))?;
            command.args([compiler.trim(), "-quiet", "-O2", "-o", "/dev/null"]);
            command.arg(source);
        }
        Program::Python => {
            command
                .arg("/usr/bin/python3")
                .arg(sources.join("script.py"));
            command.arg(run.to_string());
        }
        Program::Phases | Program::Requests => {
            let binary = scratch.join(program.name());
            let source = sources.join(program.name()).with_extension("c");
            let mut gcc = Command::new("gcc");
            gcc.args(["-O2", "-g", "-o"]).arg(&binary).arg(source);
            shell::output(&mut gcc)?;
            command.arg(binary).arg(run.to_string());
        }
    }
    let status = command.status()?;
    if !status.success() {
        bail!("'{}' failed ({status})", shell::display(&command));
    }
    Ok(())
}

/// Tables are filled, indexed, joined, changed and sorted. SQLite's random numbers differ between runs.
const SQL: &str = "\
create table t(a integer primary key, b text, c integer);
with recursive n(i) as (select 1 union all select i+1 from n where i<12000)
  insert into t select i, hex(randomblob(8)), abs(random()%500) from n;
create index ib on t(b);
select sum(c) from t where b > '8';
select count(*) from t x join t y on x.c=y.c where x.a<200;
update t set c=abs(random()%500) where a%7=abs(random()%7);
delete from t where a%11=3;
select b, count(*) from t group by substr(b,1,2) order by 2;
with recursive n(i) as (select 1 union all select i+1 from n where i<9000)
  insert into t select 20000+i, lower(hex(randomblob(abs(random()%20)))), i%300 from n;
select count(distinct c) from t;
select max(length(b)) from t where b like '%AB%';
create table u as select c, group_concat(b) g from t group by c;
select sum(length(g)) from u order by g;
select count(*) from t x join t y on x.c=y.c where x.a<150;
";

/// C source with functions whose kind and size follow from the seed.
fn c_source(seed: u32) -> String {
    let mut state = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    let mut next = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut text = String::from("static int g[64]; static double d[64];\n");
    for function in 0..6 {
        text.push_str(&format!("int f{function}(int a, int b) {{ int s = a;\n"));
        for _ in 0..2 + next(8) {
            let (x, y) = (next(64), next(900));
            text.push_str(&match next(4) {
                0 => format!(" for (int i = 0; i < b; i++) s += g[(i * {y}) & 63] ^ i;\n"),
                1 => format!(" if (s > {y}) s -= b * {x}; else {{ s ^= {y}; g[{x}] = s; }}\n"),
                2 => format!(" switch (s & 7) {{ case 1: s += {x}; break; case 3: s *= {y}; break; case 5: g[{x}]++; break; default: s--; }}\n"),
                _ => format!(" for (int i = 1; i < 64; i++) d[i] = d[i - 1] * {x} + (double)s / {};\n", y + 1),
            });
        }
        text.push_str(&format!(
            " return s + {}; }}\n",
            if function == 0 {
                "b".to_owned()
            } else {
                format!("f{}(s, a & 7)", next(function))
            }
        ));
    }
    text
}

/// Runs a server of our own, with a load of several kinds of commands, one after another.
fn serve_redis(mut command: Command, run: u32) -> Result<()> {
    let port = (17_300 + run % 500).to_string();
    command.args([
        "redis-server",
        "--save",
        "",
        "--appendonly",
        "no",
        "--port",
        &port,
    ]);
    let mut server = Killed(command.spawn()?);
    let cli = |words: &[&str]| {
        let mut cli = Command::new("redis-cli");
        cli.args(["-p", &port]).args(words);
        shell::output(&mut cli)
    };
    let answers = || cli(&["ping"]).ok().as_deref() == Some("PONG\n");
    if !wait_until(Duration::from_secs(60), answers) {
        bail!("redis-server does not answer");
    }
    for (kinds, requests) in [
        ("set,get", "2500"),
        ("lpush,lpop", "2000"),
        ("lrange_100", "150"),
        ("zadd,sadd,spop", "1800"),
        ("mset", "400"),
    ] {
        let mut load = Command::new("redis-benchmark");
        load.args(["-p", &port, "-q", "-c", "5", "-r", "3000", "-n", requests]);
        shell::output(load.args(["-t", kinds]))?;
    }
    // It exits without an answer.
    let _ = cli(&["shutdown", "nosave"]);
    server.wait()?;
    Ok(())
}

/// Converts the dumps to CSV: events as columns, slices as rows. Dumps omit zeros at the end of a line.
fn read(dumps: &Path) -> Result<String> {
    let mut lines = Vec::new();
    let mut events: Vec<String> = Vec::new();
    for line in BufReader::new(File::open(dumps)?).split(b'\n') {
        let line = line?;
        let text = String::from_utf8_lossy(&line);
        if let Some(names) = text.strip_prefix("events: ") {
            events = names.split_whitespace().map(str::to_owned).collect();
        } else if let Some(counts) = text.strip_prefix("totals: ") {
            let mut counts: Vec<&str> = counts.split_whitespace().collect();
            counts.resize(events.len(), "0");
            lines.push(counts.join(","));
        }
    }
    if lines.len() < 100 {
        bail!("only {} slices were counted", lines.len());
    }
    Ok(format!("{}\n{}\n", events.join(","), lines.join("\n")))
}
