//! A fleet that is generated from recordings (`examples/generate_lake.rs` of pebs-user says how), with two planted causes: from the
//! middle of the time on a function of a version takes longer, and on some hosts of another service a wait.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::answers::Answers;
use super::spark::Cluster;
use super::traffic::{Busy, CAUSE, SLOW};
use super::{Args, Explained, judged, slower};
use crate::frame::lab::Lab;
use crate::frame::recorder::Recorder;
use crate::frame::table::Table;
use crate::frame::verdict::Verdict;
use crate::frame::{installed, shell};

/// Begin of the first hour.
const BEGIN: &str = "2026-03-01T00:00:00Z";
const BEGIN_S: i64 = 1_772_323_200;

/// How long each service is recorded: some ranges of 10 s.
const RECORDED: Duration = Duration::from_secs(45);

/// Recorded ranges that a range stands for at the busiest time of day.
const REPEATS: f64 = 3.0;

/// What is planted.
const VERSION: &str = "2.0";
const VERSION_FACTOR: f64 = 1.5;
const WAIT: &str = "clock_nanosleep";
const WAIT_FACTOR: f64 = 5.0;

/// One of so many hosts is slow by the wait.
const SLOW_OF: u64 = 40;

/// Longest time for one host's day by DuckDB, s.
const ONE_HOST: f64 = 1.0;

/// One host's day: items, durations and functions.
const HOST: &str = r"
import sys, time, pebs_trace
lake, host = sys.argv[1:]
begin = time.monotonic()
connection = pebs_trace.Lake(lake).duckdb(host=host)
connection.execute('set enable_progress_bar = false')
hours = connection.execute('select count(*), sum(items) from fleet_items').fetchall()
functions = connection.execute('select name, ns_per_item from fleet_hosts order by ns_per_item desc limit 10').fetchall()
waits = connection.execute('select state, name, sum(ns) from fleet_waits group by state, name').fetchall()
quantiles = connection.execute('select ns, sum(items) from fleet_durations group by ns order by ns').fetchall()
assert hours[0][0] and functions and waits and quantiles
print(time.monotonic() - begin)
";

pub fn run(lab: &Lab, args: &Args, hosts: u64) -> Result<ExitCode> {
    let (lake, truth) = (lab.dir.join("lake"), lab.dir.join("truth.json"));
    if !args.again {
        generate(lab, args, hosts, &lake, &truth)?;
    }
    let truth: Value = serde_json::from_str(&fs::read_to_string(&truth)?)?;
    let all = Size::of(&lake)?;
    println!(
        "{hosts} hosts, {} traces: {} items in {} rows of function_stats; {} objects, {:.0} MB",
        truth["traces"],
        truth["items"],
        truth["rows"],
        all.objects,
        all.megabytes()
    );
    let mut verdict = Verdict::default();
    planted(lab, &lake, &truth, args.hours, &mut verdict)?;
    let seconds = one_host(lab, &lake, &truth)?;
    verdict.goal(
        format!("one host's hours by DuckDB in {seconds:.2} s, at most {ONE_HOST} s"),
        seconds <= ONE_HOST,
    );
    let duckdb = Answers::of(&lake, &lab.tool, None)?;
    let mut cluster = Cluster::start(&lab.dir.join("spark"), 1)?;
    let one = Answers::of(&lake, &lab.tool, Some(&cluster))?;
    cluster.add_worker()?;
    let two = Answers::of(&lake, &lab.tool, Some(&cluster))?;
    let mut table = Table::new("question | rows: | Spark, one worker, s: | two, s: | DuckDB, s:");
    for (name, rows) in two.same(&duckdb)? {
        let of = |it: &Answers| it.questions.get(&name).map_or(0.0, |it| it.seconds);
        table.row(format_args!(
            "{name} | {rows} | {:.1} | {:.1} | {:.1}",
            of(&one),
            of(&two),
            of(&duckdb)
        ));
    }
    let all = |it: &Answers| it.seconds() + it.begun_s;
    table.row(format_args!(
        "with views | | {:.1} | {:.1} | {:.1}",
        all(&one),
        all(&two),
        all(&duckdb)
    ));
    one.same(&two)?;
    println!(
        "all rows are the same from Spark {} and DuckDB {}\n\n{table}",
        two.version, duckdb.version
    );
    verdict.goal("two workers take less time than one", all(&two) < all(&one));
    lab.publish("hosts.md", &by_hosts(lab, &lake, hosts, &cluster)?)?;
    Ok(judged(&verdict))
}

/// Records the services and generates the lake.
fn generate(lab: &Lab, args: &Args, hosts: u64, lake: &Path, truth: &Path) -> Result<()> {
    // Beside the tool, which was built with it if it was given.
    let generator = lab.tool.with_file_name("examples/generate_lake");
    if args.tool.is_none() {
        let mut build = shell::cargo(&["build", "--release", "--package", "pebs-trace"]);
        shell::run(build.args(["--example", "generate_lake"]))?;
    }
    let (redis, mixed) = (record_redis(lab)?, record_mixed(lab)?);
    shell::remove(lake)?;
    let slow = (hosts / SLOW_OF).max(1);
    let plan = json!({
        "lake": lake, "services": { "redis": [redis], "mixed": [mixed] },
        "hosts": hosts, "hours": args.hours, "begin": BEGIN, "range-s": args.range, "repeats": REPEATS,
        "seed": args.seed, "threads": 4, "truth": truth,
        "faults": [
            { "service": "redis", "who": { "version": VERSION }, "function": CAUSE, "factor": VERSION_FACTOR,
              "from-hour": args.hours / 2 },
            { "service": "mixed", "who": { "hosts": slow }, "function": WAIT, "wait": "sleeping",
              "factor": WAIT_FACTOR, "from-hour": 0 },
        ],
    });
    let file = lab.dir.join("plan.json");
    fs::write(&file, serde_json::to_string_pretty(&plan)?)?;
    let begin = Instant::now();
    shell::run(shell::as_root(generator).arg(file))?;
    println!("generated in {:.0} s", begin.elapsed().as_secs_f64());
    Ok(())
}

/// Sums alone, as the agent keeps them beside details of slow items.
const KEEP: [&str; 8] = [
    "--keep",
    "none",
    "--event",
    "cpu-clock",
    "--reset",
    "100000",
    "--force",
    "--output",
];

fn record_redis(lab: &Lab) -> Result<PathBuf> {
    let busy = Busy::start(&lab.clean("server")?, &SLOW)?;
    let trace = lab.clean("redis")?;
    let mut command = lab.tool();
    command.args([
        "-p",
        &busy.server.pid().to_string(),
        "--preset",
        "redis",
        "--redact",
        "cmd=first-word",
    ]);
    command.args(KEEP).arg(&trace);
    let recorder = Recorder::spawn(command)?;
    std::thread::sleep(RECORDED);
    recorder.stop()?;
    busy.end()?;
    Ok(trace)
}

fn record_mixed(lab: &Lab) -> Result<PathBuf> {
    /// An item takes 100 us, about.
    const ITEMS: u64 = RECORDED.as_secs() * 10_000;
    let program = lab.compile("mixed", &[])?;
    let trace = lab.clean("mixed-trace")?;
    let mut command = lab.tool();
    command.env("TRUTH_FILE", "/dev/null");
    command.args([
        "--uprobe",
        &format!("{}:handle(id=*arg1:u64)", program.display()),
    ]);
    command
        .args(KEEP)
        .arg(&trace)
        .arg("--")
        .arg(&program)
        .arg(ITEMS.to_string());
    shell::output(shell::show(&mut command))?;
    Ok(trace)
}

/// Asks `explain --by` for what is planted.
fn planted(lab: &Lab, lake: &Path, truth: &Value, hours: u64, verdict: &mut Verdict) -> Result<()> {
    let ask = |by: &str| {
        let found = Explained::of(lab, &lake.display().to_string(), by, |_| {})?;
        println!("{}, {:.1} s", found.read, found.seconds);
        anyhow::Ok(found)
    };
    let by_version = ask("version")?;
    let probe = by_version.probe("redis");
    let (values, causes) = slower(probe);
    verdict.goal(
        format!("version {VERSION} of redis is slower by {CAUSE}"),
        values == [VERSION] && causes.contains(&CAUSE),
    );
    let since = probe["slower"][0]["since_ns"]
        .as_i64()
        .map(|it| it / 1_000_000_000 - BEGIN_S);
    let planted = i64::try_from(hours / 2 * 3600)?;
    let is_near = since.is_some_and(|it| (it - planted).abs() <= 1800);
    verdict.goal(
        format!(
            "since hour {}: {:.1}",
            hours / 2,
            since.unwrap_or(0) as f64 / 3600.0
        ),
        is_near,
    );
    let by_host = ask("host")?;
    let (mut values, causes) = slower(by_host.probe("mixed"));
    values.sort();
    let hosts = truth["hosts"].as_object().context("no hosts")?;
    let slow = hosts.iter().filter(|it| it.1["faults"] == json!([1]));
    let slow: Vec<&String> = slow.map(|it| it.0).collect();
    let missed = slow.iter().filter(|it| !values.contains(it)).count();
    let others = values.iter().filter(|it| !slow.contains(it)).count();
    verdict.goal(
        format!(
            "{} hosts of mixed are slow by {WAIT}: {missed} missed, {others} others named",
            slow.len()
        ),
        missed == 0 && others <= 1 && causes.first() == Some(&WAIT),
    );
    Ok(())
}

/// Seconds of one host's hours in DuckDB.
fn one_host(lab: &Lab, lake: &Path, truth: &Value) -> Result<f64> {
    let hosts = truth["hosts"].as_object().context("no hosts")?;
    let host = hosts.keys().next().context("no host")?;
    let mut command = Command::new(installed::spark().context("no pyspark")?);
    command
        .args(["-W", "ignore", "-c", HOST])
        .arg(lake)
        .arg(host);
    command.env("PYTHONPATH", shell::workspace().join("pebs-user/python"));
    let seconds = shell::output(command.env("PEBS_TRACE", &lab.tool))?;
    Ok(seconds.trim().parse()?)
}

/// Time, bytes and objects by the number of hosts, of parts of the lake.
fn by_hosts(lab: &Lab, lake: &Path, hosts: u64, cluster: &Cluster) -> Result<String> {
    let mut table = Table::new(
        "hosts: | objects: | MB: | `explain --by version`, s: | it read, MB: | Spark, two workers, s: | its tasks read, MB: | DuckDB, s:",
    );
    for part in [hosts / 8, hosts / 4, hosts / 2, hosts] {
        let place = lab.clean("part")?;
        link(lake, &place, part)?;
        let size = Size::of(&place)?;
        let explained = Explained::of(lab, &place.display().to_string(), "version", |_| {})?;
        let seconds = explained.seconds;
        let read = explained
            .read
            .strip_prefix("read ")
            .and_then(|it| it.split(" of ").next());
        let duckdb = Answers::of(&place, &lab.tool, None)?;
        let spark = Answers::of(&place, &lab.tool, Some(cluster))?;
        spark.same(&duckdb)?;
        table.row(format_args!(
            "{part} | {} | {:.1} | {seconds:.1} | {} | {:.1} | {:.1} | {:.1}",
            size.objects,
            size.megabytes(),
            read.unwrap_or("unknown"),
            spark.seconds() + spark.begun_s,
            spark.bytes.unwrap_or(0) as f64 / 1e6,
            duckdb.seconds() + duckdb.begun_s,
        ));
        eprintln!("{table}");
    }
    shell::remove(&lab.dir.join("part"))?;
    Ok(table.to_string())
}

/// Objects and bytes of a lake.
#[derive(Default)]
struct Size {
    objects: u64,
    bytes: u64,
}

impl Size {
    fn of(lake: &Path) -> Result<Self> {
        let mut size = Self::default();
        each_file(lake, &mut |path| {
            size.objects += 1;
            size.bytes += fs::metadata(path)?.size();
            Ok(())
        })?;
        Ok(size)
    }

    fn megabytes(&self) -> f64 {
        self.bytes as f64 / 1e6
    }
}

/// Links the objects of the first hosts.
fn link(lake: &Path, to: &Path, hosts: u64) -> Result<()> {
    each_file(lake, &mut |path| {
        let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
        let number = folder
            .to_string_lossy()
            .rsplit('-')
            .next()
            .and_then(|it| it.parse::<u64>().ok());
        if number.context("no host")? < hosts {
            let place = to.join(path.strip_prefix(lake)?);
            fs::create_dir_all(place.parent().context("no folder")?)?;
            fs::hard_link(path, place)?;
        }
        Ok(())
    })
}

fn each_file(dir: &Path, act: &mut impl FnMut(&Path) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => each_file(&entry.path(), act)?,
            false => act(&entry.path())?,
        }
    }
    Ok(())
}
