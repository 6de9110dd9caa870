//! The small form: six servers, an agent for each with its own name of a host, an S3 server, and the questions.
//!
//! Fewer than five hosts can't be told to be slow.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use pebs_tests::machine::s3_server;
use pebs_tests::store::S3;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::answers::Answers;
use super::spark::Cluster;
use super::traffic::{Busy, CAUSE, SLOW};
use super::{Explained, judged, slower};
use crate::frame::lab::Lab;
use crate::frame::machine::{Killed, wait_until};
use crate::frame::shell;
use crate::frame::verdict::Verdict;

const HOSTS: usize = 6;

/// The host that has the setting.
const SLOW_HOST: usize = 4;

/// Traces of this length, and how long it is recorded.
const SEGMENT: &str = "20s";
const RECORDED: Duration = Duration::from_secs(70);

/// Longest time for an agent to start, and to bring its last trace.
const PATIENCE: Duration = Duration::from_secs(120);

pub fn run(lab: &Lab) -> Result<ExitCode> {
    let begin = Instant::now();
    let s3 = S3::start(&s3_server().map_err(|it| anyhow!(it))?);
    let lake = format!("s3://{}/lake", S3::BUCKET);
    println!(
        "an S3 server is at http://{}, the lake will be {lake}",
        s3.address()
    );
    let slow = name(SLOW_HOST);
    let (mut servers, mut agents) = (Vec::new(), Vec::new());
    for host in 0..HOSTS {
        let dir = lab.clean(&name(host))?;
        let options: &[&str] = if host == SLOW_HOST { &SLOW } else { &[] };
        let busy = Busy::start(&dir, options)?;
        agents.push(Agent::start(lab, host, busy.server.pid(), &lake, &s3)?);
        servers.push(busy);
    }
    println!("{HOSTS} redis-servers run, {slow} with {}", SLOW.join(" "));
    for agent in &agents {
        agent.wait_until_recording()?;
    }
    println!("recording for {} s", RECORDED.as_secs());
    std::thread::sleep(RECORDED);
    for agent in agents {
        agent.stop()?;
    }
    servers.into_iter().try_for_each(Busy::end)?;
    let with_store = |command: &mut Command| S3::used_by(command, s3.address());
    let mut traces = lab.tool();
    with_store(traces.args(["traces", &lake]));
    print!("{}", shell::output(shell::show(&mut traces))?);
    let by_host = Explained::of(lab, &lake, "host", with_store)?;
    let mut page = lab.tool();
    with_store(page.args(["explain", &lake, "--by", "host"]));
    println!("{}{}", shell::output(shell::show(&mut page))?, by_host.read);
    let probe = &by_host.found["probes"][0];
    let (values, causes) = slower(probe);
    let mut verdict = Verdict::default();
    let first = probe["groups"][0]["value"].as_str();
    verdict.goal(format!("{slow} is first"), first == Some(&slow));
    verdict.goal(format!("{slow} alone is slow"), values == [slow.clone()]);
    verdict.goal(format!("as {CAUSE} takes longer"), causes.contains(&CAUSE));
    let copy = copied(&s3, &lab.clean("lake")?)?;
    println!(
        "Spark from PyPI has no access to S3: it reads a copy, {}",
        copy.display()
    );
    let cluster = Cluster::start(&lab.dir.join("spark"), 2)?;
    let spark = Answers::of(&copy, &lab.tool, Some(&cluster))?;
    drop(cluster);
    let duckdb = Answers::of(&copy, &lab.tool, None)?;
    let rows = spark.same(&duckdb)?;
    for (question, rows) in &rows {
        println!(
            "{question}: {rows} rows, the same from Spark {} and DuckDB {}",
            spark.version, duckdb.version
        );
    }
    let hosts = spark.rows("hosts")?;
    let slowest = hosts.iter().max_by(|a, b| mean(a).total_cmp(&mean(b)));
    let slowest = slowest.and_then(|it| it[1].as_str());
    verdict.goal(
        format!("in Spark {slow} has the longest items"),
        slowest == Some(&slow),
    );
    println!("{:.0} s in all", begin.elapsed().as_secs_f64());
    Ok(judged(&verdict))
}

fn name(host: usize) -> String {
    format!("web-{host}")
}

/// The mean of a row of the question "hosts".
fn mean(row: &[Value]) -> f64 {
    row.get(3).and_then(Value::as_f64).unwrap_or(0.0)
}

/// An agent that runs.
struct Agent {
    child: Killed,
    dir: PathBuf,
}

impl Agent {
    fn start(lab: &Lab, host: usize, pid: u32, lake: &str, s3: &S3) -> Result<Self> {
        let dir = lab.dir.join(name(host));
        let (place, name) = (dir.display(), name(host));
        let zone = ["a", "b"][host % 2];
        let config = format!(
            "[agent]\ndirectory = \"{place}/traces\"\nsocket = \"{place}/socket\"\nsegment = \"{SEGMENT}\"\n\
            overlap = \"2s\"\nto = \"{lake}\"\nhost = \"{name}\"\nlabels = {{ version = \"7.0\", zone = \"{zone}\" }}\n\n\
            [[target]]\nname = \"redis\"\npid = {pid}\npreset = \"redis\"\nredact = [\"cmd=first-word\"]\n"
        );
        let path = dir.join("agent.toml");
        fs::write(&path, config)?;
        let mut command = lab.tool();
        S3::used_by(&mut command, s3.address());
        command.args(["agent", "--config"]).arg(path);
        let log = File::create(dir.join("agent.log"))?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = shell::show(&mut command).spawn();
        Ok(Self {
            child: Killed(child.context("cannot start the agent")?),
            dir,
        })
    }

    /// Whether its account has a row of this event.
    fn has(&self, event: &str) -> bool {
        let rows = fs::read_to_string(self.dir.join("traces/events.jsonl")).unwrap_or_default();
        let mut rows = rows
            .lines()
            .filter_map(|it| serde_json::from_str::<Value>(it).ok());
        rows.any(|it| it["event"] == event)
    }

    fn wait_until_recording(&self) -> Result<()> {
        let log = self.dir.join("agent.log");
        ensure!(
            wait_until(PATIENCE, || self.has("started")),
            "nothing is recorded: {}",
            log.display()
        );
        Ok(())
    }

    /// Ends it as systemd would.
    fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = self.child.wait()?;
        let log = self.dir.join("agent.log");
        if !status.success() || !self.has("pushed") {
            bail!(
                "the agent failed, or brought nothing ({status}): {}",
                log.display()
            );
        }
        Ok(())
    }
}

/// Copies the lake to a directory.
fn copied(s3: &S3, dir: &Path) -> Result<PathBuf> {
    for (name, data) in s3.objects() {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().context("no folder")?)?;
        fs::write(path, data)?;
    }
    Ok(dir.join("lake"))
}
