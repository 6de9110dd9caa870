//! `cargo xtask fuzz`: feeds mutated bytes to all readers of untrusted data.
//!
//! libFuzzer, driven without cargo-fuzz: one build with a stable compiler makes all targets. A bounded run shares
//! the libraries of the tests' build, which then have no coverage counters.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::shell;

/// The crate of the targets.
const CRATE: &str = "pebs-user/fuzz";

/// Seconds a target in `cargo xtask ci` at most: there it has the time that others leave unused.
const CI_SECONDS: u64 = 600;

/// Number of inputs of a target in `cargo xtask ci`: some seconds. They depend on the code alone, so that the
/// result for a change is reproducible; `cargo xtask fuzz` searches further.
fn ci_inputs(target: &str) -> u64 {
    match target {
        "recover" | "perf_data" => 1000,
        "trace_reader" => 4000,
        "binary" | "symbols" | "process_files" | "trace_info" => 12_000,
        "unwind" => 40_000,
        _ => 100_000,
    }
}

/// Coverage for libFuzzer: its counters at every edge, and the operands of comparisons.
const FLAGS: [&str; 7] = [
    "--cfg",
    "fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Limits of an input: memory of the whole process, length. The targets themselves limit the memory for one input.
const LIMITS: [&str; 2] = ["-rss_limit_mb=2048", "-max_len=65536"];

/// Seconds an input may take; in a bounded run it may have to wait for a CPU.
const fn timeout(bounded: bool) -> &'static str {
    if bounded {
        "-timeout=200"
    } else {
        "-timeout=20"
    }
}

/// Additional time of a target, for its last input and the first reading of the corpus.
const GRACE: Duration = Duration::from_secs(60);

/// Options of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub struct Args {
    /// Run each target this long
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    seconds: u64,
    /// Use a smaller, fixed set of inputs
    #[arg(long)]
    bounded: bool,
    /// Only these targets; default: all
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

/// Runs the task.
pub fn main(args: &Args) -> Result<ExitCode> {
    if let Some(reason) = unable() {
        bail!("cannot fuzz: {reason}");
    }
    run(args)?;
    Ok(ExitCode::SUCCESS)
}

/// A bounded run of all targets.
pub fn bounded() -> Result<()> {
    if let Some(reason) = unable() {
        println!("SKIP fuzzing: {reason}");
        return Ok(());
    }
    run(&Args {
        seconds: CI_SECONDS,
        bounded: true,
        targets: Vec::new(),
    })
}

/// Why this machine can't build the targets.
fn unable() -> Option<String> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Some("only x86-64 Linux is supported".to_owned());
    }
    let probe = Command::new("rustc")
        .args(FLAGS)
        .args(["--crate-type=lib", "--emit=obj", "-o", "/dev/null", "-"])
        .stdin(Stdio::null())
        .current_dir(shell::workspace())
        .output();
    match probe {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let first = text.lines().next().unwrap_or("no message");
            Some(format!("rustc can't instrument for coverage: {first}"))
        }
        Err(error) => Some(format!("cannot run rustc: {error}")),
    }
}

fn run(args: &Args) -> Result<()> {
    let places = Places::new(args.bounded)?;
    let targets = chosen(args)?;
    let begin = Instant::now();
    build(&places, &targets, args.bounded)?;
    println!("fuzz: built in {:.0?}", begin.elapsed());
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    let allowed = Duration::from_secs(args.seconds) + GRACE;
    let mut waiting = targets.iter();
    let mut running: Vec<Run> = Vec::new();
    let mut failed = Vec::new();
    loop {
        while running.len() < at_once
            && let Some(name) = waiting.next()
        {
            running.push(Run::start(&places, name, args)?);
        }
        if running.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        let (ended, going) = running.into_iter().try_fold(
            (Vec::new(), Vec::new()),
            |(mut ended, mut going), mut run| -> Result<_> {
                match run.child.try_wait()? {
                    Some(status) => ended.push((run, status.success())),
                    None if run.begin.elapsed() > allowed => {
                        run.child.kill()?;
                        run.child.wait()?;
                        ended.push((run, false));
                    }
                    None => going.push(run),
                }
                Ok((ended, going))
            },
        )?;
        running = going;
        for (run, passed) in ended {
            run.report(passed)?;
            failed.extend((!passed).then(|| run.name.clone()));
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    bail!("found something in {}", failed.join(", "))
}

/// Names of the targets: their source files'.
fn chosen(args: &Args) -> Result<Vec<String>> {
    let folder = shell::workspace().join(CRATE).join("fuzz_targets");
    let mut all = Vec::new();
    for entry in
        fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        all.extend(
            entry?
                .path()
                .file_stem()
                .map(|name| name.to_string_lossy().into_owned()),
        );
    }
    all.sort();
    if let Some(unknown) = args.targets.iter().find(|name| !all.contains(name)) {
        bail!("no target '{unknown}'; there are {}", all.join(", "));
    }
    Ok(if args.targets.is_empty() {
        all
    } else {
        args.targets.clone()
    })
}

/// Folders.
struct Places {
    /// The targets' own folder.
    target: PathBuf,
    /// Cargo's folder of programs.
    programs: PathBuf,
    /// Committed inputs.
    seeds: PathBuf,
}

impl Places {
    fn new(bounded: bool) -> Result<Self> {
        let all = shell::target_dir()?;
        let target = all.join("fuzz");
        Ok(Self {
            programs: if bounded {
                all.join("debug")
            } else {
                target.join(TRIPLE).join("fuzz")
            },
            target,
            seeds: shell::workspace().join(CRATE).join("corpus"),
        })
    }
}

/// Named, so that its flags do not apply to build scripts.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

fn build(places: &Places, targets: &[String], bounded: bool) -> Result<()> {
    fs::create_dir_all(&places.target)?;
    // No target loads the kernel programs.
    let object = places.target.join("no-ebpf.o");
    if !object.exists() {
        File::create(&object)?;
    }
    let mut command = shell::cargo(&["build", "--package", "pebs-fuzz"]);
    command
        .args(targets.iter().flat_map(|name| ["--bin", name]))
        .env("PEBS_EBPF_OBJECT", object);
    if bounded {
        command.env("RUSTC_WORKSPACE_WRAPPER", wrapper(places)?);
    } else {
        command
            .args(["--profile", "fuzz", "--target", TRIPLE, "--target-dir"])
            .arg(&places.target)
            .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}"));
    }
    shell::run(&mut command)
}

/// A wrapper of the compiler that adds the flags to our crates, except build scripts. They are not optimised: that takes
/// longer than it saves.
fn wrapper(places: &Places) -> Result<PathBuf> {
    let path = places.target.join("rustc");
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *' build_script_build '*) exec \"$@\" ;; esac\nexec \"$@\" {}\n",
        FLAGS.join(" ")
    );
    fs::write(&path, script)?;
    fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    Ok(path)
}

/// A target that runs.
struct Run {
    name: String,
    child: Child,
    log: PathBuf,
    begin: Instant,
}

impl Run {
    fn start(places: &Places, name: &str, args: &Args) -> Result<Self> {
        let folder = |what: &str| -> Result<PathBuf> {
            let folder = places.target.join(what).join(name);
            fs::create_dir_all(&folder)?;
            Ok(folder)
        };
        let found = folder("found")?;
        let log = folder("logs")?.join("log");
        let file = File::create(&log)?;
        let mut command = Command::new(places.programs.join(name));
        command
            .args(LIMITS)
            .arg(timeout(args.bounded))
            .arg(format!("-max_total_time={}", args.seconds))
            .args(["-print_final_stats=1", "-reload=0"])
            .arg(format!("-artifact_prefix={}/", found.display()));
        // New inputs go to the first folder. A bounded run starts from the seeds alone, each time.
        let new = if args.bounded {
            command.args(["-seed=1".to_owned(), format!("-runs={}", ci_inputs(name))]);
            fs::remove_dir_all(folder("bounded")?)?;
            folder("bounded")?
        } else {
            folder("corpus")?
        };
        command.arg(new);
        let child = command
            .arg(places.seeds.join(name))
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot run the target {name}"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
            begin: Instant::now(),
        })
    }

    /// Prints one line; of a finding also how it came about.
    fn report(&self, passed: bool) -> Result<()> {
        let text = fs::read(&self.log)?;
        let text = String::from_utf8_lossy(&text);
        let stat = |name: &str| {
            let mark = format!("stat::{name}:");
            let line = text.lines().find_map(|line| line.strip_prefix(&mark));
            line.map_or("?", str::trim).to_owned()
        };
        let coverage = text.lines().rev().find_map(|line| {
            let (_, rest) = line.split_once(" cov: ")?;
            rest.split_whitespace().next()
        });
        println!(
            "fuzz: {:<14} {:>9} inputs, {:>6} a second, {:>6} edges, {:>4} MB  {}",
            self.name,
            stat("number_of_executed_units"),
            stat("average_exec_per_sec"),
            coverage.unwrap_or("?"),
            stat("peak_rss_mb"),
            if passed { "ok" } else { "FAILED" },
        );
        if !passed {
            self.explain(&text)?;
        }
        Ok(())
    }

    fn explain(&self, log: &str) -> Result<()> {
        let mut out = std::io::stdout().lock();
        let lines: Vec<&str> = log.lines().filter(|line| !line.starts_with('#')).collect();
        for line in lines.iter().take(120) {
            writeln!(out, "  {line}")?;
        }
        let found = log
            .lines()
            .find_map(|line| line.split_once("Test unit written to "));
        if let Some((_, input)) = found {
            writeln!(out, "  once mended, keep it: {}", keep(input, &self.name))?;
        }
        Ok(())
    }
}

/// The command that makes a finding part of the corpus.
fn keep(input: &str, name: &str) -> String {
    let folder = Path::new(CRATE).join("corpus").join(name);
    format!("mv {input} {}/", folder.display())
}
