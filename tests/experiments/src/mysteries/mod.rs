//! `cargo xtask mysteries`: how often the tool is right about servers that it has never seen.
//!
//! A seed generates a server with one hidden cause of slow items, with names drawn from word lists, and its load.
//! The tool records it with default options; the causes ranked by `explain` are compared with the server's log.

mod equal;
mod judge;
mod mystery;
mod names;
mod program;
mod run;
mod score;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};

use self::equal::equal;
use self::judge::{Outcome, Truth, Verdict};
use self::mystery::Mystery;
use self::score::{Counts, Judged};
use crate::frame::lab::Lab;
use crate::frame::rounds::parallel;
use crate::frame::seeds::Seeds;
use crate::frame::verdict::exit_code;
use crate::frame::{recorder, shell};

/// Options of `cargo xtask mysteries`.
#[derive(clap::Args)]
pub struct Args {
    /// Number of seeds
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Run only this seed
    #[arg(long, value_name = "N", conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Run time of each server, seconds
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Use this pebs-trace instead of a release build of the workspace
    #[arg(long, value_name = "PATH")]
    tool: Option<PathBuf>,
    /// Keep source, log, trace and explanation of every seed in DIR
    #[arg(long, value_name = "DIR")]
    keep_dir: Option<PathBuf>,
    /// Run no server: explain and judge again the results kept in DIR
    #[arg(long, value_name = "DIR", conflicts_with_all = ["keep_dir", "log", "compile"])]
    again: Option<PathBuf>,
    /// Instead record servers without a fault twice each, and count the changes that `diff` reports
    #[arg(long, value_name = "PAIRS", conflicts_with_all = ["seeds", "seed", "keep_dir", "again", "log", "compile"])]
    equal: Option<usize>,
    /// Append verdicts to FILE, and skip the seeds that are in it
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Only compile the servers
    #[arg(long)]
    compile: bool,
}

/// Rates to reach.
const FIRST: f64 = 0.95;
const AMONG_THREE: f64 = 0.99;
const NAMED: f64 = 0.05;

/// Probability that a run fails though its rates are right.
const BY_CHANCE: f64 = 0.005;

/// Number of seeds, and seconds of each, of a short run that detects major regressions.
const SMALL: (u64, f64) = (14, 3.0);

/// The same probability for such a small run, which is one of many.
const SMALL_BY_CHANCE: f64 = 0.0001;

/// A few seeds, of a build for tests.
pub fn small() -> Result<()> {
    let (seeds, seconds) = SMALL;
    let args = Args {
        seeds,
        from: 1,
        seed: None,
        seconds,
        tool: Some(recorder::build(false)?),
        keep_dir: None,
        again: None,
        equal: None,
        log: None,
        compile: false,
    };
    let all = judge_all(&args)?;
    if !is_passed(&all, SMALL_BY_CHANCE) {
        bail!("causes are missed, or named where there are none");
    }
    Ok(())
}

/// Runs the task.
pub fn main(args: &Args) -> Result<ExitCode> {
    if let Some(pairs) = args.equal {
        return equal(pairs, args);
    }
    let all = judge_all(args)?;
    Ok(exit_code(args.compile || is_passed(&all, BY_CHANCE)))
}

/// Runs the servers, judges the explanations and prints the results; with `compile` it only compiles.
fn judge_all(args: &Args) -> Result<Vec<Judged>> {
    let seeds = match args.seed {
        Some(seed) => seed..seed + 1,
        None => args.from..args.from + args.seeds,
    };
    let tool = recorder::of(args.tool.as_deref())?;
    let all = run_all(&seeds, args, &tool)?;
    if !args.compile {
        println!("{}", score::table(&all));
    }
    Ok(all)
}

/// Whether no count is below what chance explains at the required rates.
fn is_passed(all: &[Judged], by_chance: f64) -> bool {
    let Counts {
        cases,
        first,
        among_three,
        nulls,
        named,
        ..
    } = Counts::of(all.iter());
    let mut passed = true;
    for (what, found, of, rate) in [
        ("first", first, cases, FIRST),
        ("among three", among_three, cases, AMONG_THREE),
        ("none named", nulls - named, nulls, 1.0 - NAMED),
    ] {
        let least = score::least(of, rate, by_chance);
        println!(
            "{what}: {found} of {of}; {:.0} % is the goal, below {least} it is not chance",
            rate * 100.0
        );
        passed &= found >= least;
    }
    passed
}

fn run_all(seeds: &Range<u64>, args: &Args, tool: &Path) -> Result<Vec<Judged>> {
    if let Some(kept) = &args.again {
        return judge_again(seeds, args.seconds, kept, tool);
    }
    let cache = shell::target_dir()?.join("mysteries");
    fs::create_dir_all(&cache)?;
    let mut judged = Seeds::read(args.log.as_deref(), "a verdict", |it: &Judged| Ok(it.seed))?;
    let mysteries: Vec<Mystery> = seeds
        .clone()
        .map(|seed| Mystery::new(seed, args.seconds))
        .filter(|it| !judged.done.contains_key(&it.seed))
        .collect();
    let helper = program::helper(&cache)?;
    let programs = compile(&mysteries, &cache)?;
    if args.compile {
        return Ok(Vec::new());
    }
    for (it, program) in mysteries.iter().zip(programs) {
        let Some(program) = program else {
            println!(
                "seed {}: SKIP no compiler for {}",
                it.seed,
                it.language.name()
            );
            continue;
        };
        let one = one(it, tool, &program, &helper, args)?;
        print(it, &one.verdict);
        judged.add(it.seed, one)?;
    }
    Ok(judged.done.into_values().collect())
}

fn print(
    it: &Mystery,
    Verdict {
        outcome, ranked, ..
    }: &Verdict,
) {
    println!(
        "seed {} ({}): {outcome:?}; {ranked}",
        it.seed,
        it.describe()
    );
}

/// Explains the traces that a run kept, and judges that.
fn judge_again(seeds: &Range<u64>, seconds: f64, kept: &Path, tool: &Path) -> Result<Vec<Judged>> {
    let mut all = Vec::new();
    for it in seeds.clone().map(|seed| Mystery::new(seed, seconds)) {
        let dir = kept.join(format!("seed-{}", it.seed));
        if dir.exists() {
            let run = run::explain_again(&Lab::at(&dir, tool)?);
            let judged = judged(&it, run)?;
            print(&it, &judged.verdict);
            all.push(judged);
        }
    }
    if all.is_empty() {
        bail!("{}: no seed of these was kept here", kept.display());
    }
    Ok(all)
}

fn judged(it: &Mystery, run: run::Run) -> Result<Judged> {
    let verdict = match run.explanation {
        Ok(explanation) => judge::judge(it, &Truth::read(&run.truth)?, &explanation)?,
        Err(error) => Verdict {
            outcome: Outcome::Failed(format!("{error:#}")),
            covered: None,
            read_first: false,
            ranked: String::new(),
        },
    };
    Ok(Judged {
        seed: it.seed,
        cause: it.cause,
        shape: it.shape,
        language: it.language,
        verdict,
    })
}

/// Compiles all on all CPUs. `None`: no compiler for it is here.
fn compile(all: &[Mystery], cache: &Path) -> Result<Vec<Option<PathBuf>>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    parallel(threads, all, |it| {
        let can = program::can_compile(it.language);
        can.then(|| program::compile(it, cache)).transpose()
    })
}

/// Runs and judges one.
fn one(it: &Mystery, tool: &Path, program: &Path, helper: &Path, args: &Args) -> Result<Judged> {
    let dir = tempfile::Builder::new().prefix("mystery-").tempdir()?;
    let lab = Lab::at(dir.path(), tool)?;
    let run = run::record(it, &lab, program, helper)?;
    if let Some(keep) = &args.keep_dir {
        fs::create_dir_all(keep)?;
        let to = keep.join(format!("seed-{}", it.seed));
        let [from, to] = [dir.path(), &to].map(|it| it.display().to_string());
        shell::remove(Path::new(&to))?;
        shell::output(shell::as_root("cp").args(["-r", &from, &to]))?;
        fs::write(Path::new(&to).join("source"), program::source(it))?;
        fs::write(Path::new(&to).join("mystery"), format!("{it:#?}\n"))?;
    }
    // Files of root can be removed only by root.
    lab.clean("trace")?;
    judged(it, run)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::mystery::{Body, CAUSES, Cause, Language, SHAPES};
    use super::*;

    /// A seed is the same mystery each time, to the last byte of its source; another seed is another.
    #[test]
    fn a_seed_is_a_mystery() {
        for seed in 0..50 {
            let (a, b) = (Mystery::new(seed, 4.0), Mystery::new(seed, 4.0));
            assert_eq!(a, b);
            assert_eq!(program::source(&a), program::source(&b));
            assert_ne!(
                program::source(&a),
                program::source(&Mystery::new(seed + 1, 4.0))
            );
        }
    }

    /// Some items are regular, but not those that come in bursts; a server of equal ones works in each language.
    #[test]
    fn regular_items() {
        let all: Vec<Mystery> = (0..600).map(|seed| Mystery::new(seed, 0.2)).collect();
        for lengths in [1, 2, 3, 5] {
            let of = all.iter().filter(|it| it.lengths == lengths).count();
            assert!((10..150).contains(&of), "{lengths}: {of}");
        }
        assert!(all.iter().all(|it| it.burst == 0 || it.lengths == 0));
        let cache = tempfile::tempdir().unwrap();
        for language in [Language::C, Language::Rust, Language::Go] {
            let is_wanted = |it: &&Mystery| {
                it.language == language
                    && it.lengths == 1
                    && matches!(it.cause, Cause::Nothing | Cause::Cpu | Cause::Callee)
            };
            let it = all.iter().find(is_wanted).unwrap();
            if !program::can_compile(language) {
                continue;
            }
            let program = program::compile(it, cache.path()).unwrap();
            let path = |name: &str| cache.path().join(name);
            let mut command = std::process::Command::new(program);
            for name in ["truth", "file", "socket"] {
                command.arg(path(name));
            }
            assert!(command.status().unwrap().success(), "{}", it.describe());
            let log = fs::read_to_string(path("truth")).unwrap();
            let items = log.lines().count() as u64;
            let most = 200_000_000 / it.period_ns + 2;
            // Where another process took the CPU, items that were due come late, and none is left out.
            assert!((most / 3..=most).contains(&items), "{items} of {most}");
            fs::remove_file(path("truth")).unwrap();
        }
    }

    /// Every cause, shape and language comes up, and every place in a source is filled.
    #[test]
    fn all_come_up() {
        let all: Vec<Mystery> = (0..600).map(|seed| Mystery::new(seed, 4.0)).collect();
        let causes: HashSet<_> = all.iter().map(|it| it.cause as u8).collect();
        let shapes: HashSet<_> = all.iter().map(|it| it.shape as u8).collect();
        let languages: HashSet<_> = all.iter().map(|it| it.language as u8).collect();
        assert_eq!(
            (causes.len(), shapes.len(), languages.len()),
            (CAUSES.len(), SHAPES.len(), 4)
        );
        for it in &all {
            let text = program::source(it);
            let unfilled = text
                .split('@')
                .skip(1)
                .step_by(2)
                .find(|it| it.chars().all(|c| c.is_alphanumeric() || c == '_'));
            assert_eq!(unfilled, None, "seed {}", it.seed);
        }
    }

    /// Each function but those that the shape calls is called once, by one that comes after it; one is the culprit.
    #[test]
    fn functions_are_a_tree() {
        for it in (0..300).map(|seed| Mystery::new(seed, 4.0)) {
            let mut called = it.steps.clone();
            for (at, function) in it.functions.iter().enumerate() {
                if let Body::Node { calls } = &function.body {
                    called.extend(calls.iter().map(|call| call.function));
                    assert!(
                        calls.iter().all(|call| call.function < at),
                        "seed {}",
                        it.seed
                    );
                }
            }
            called.sort_unstable();
            // The callee is called by the culprit.
            let callee = usize::from(matches!(it.cause, Cause::Callee | Cause::Lock));
            assert_eq!(
                called,
                (callee..it.functions.len()).collect::<Vec<_>>(),
                "seed {}",
                it.seed
            );
            let culprits = it
                .functions
                .iter()
                .filter(|it| matches!(it.body, Body::Culprit { .. }));
            assert_eq!(culprits.count(), 1);
        }
    }

    /// Without a cause, the source has no code of one, and no function is much longer than others.
    #[test]
    fn null_cases_have_no_cause() {
        for it in (0..300)
            .map(|seed| Mystery::new(seed, 4.0))
            .filter(|it| it.cause == Cause::Nothing)
        {
            let text = program::source(&it);
            assert!(
                !text.contains("_ns += ") && !text.contains("causeNs += "),
                "seed {}",
                it.seed
            );
            let calls = it.functions.iter().filter_map(|it| match &it.body {
                Body::Node { calls } => Some(calls),
                _ => None,
            });
            let units: Vec<u64> = calls
                .flatten()
                .map(|it| it.units)
                .filter(|it| *it > 0)
                .collect();
            let (sum, most) = (units.iter().sum::<u64>(), units.iter().max().copied());
            assert!(most.unwrap_or(0) * 3 < sum, "seed {}: {units:?}", it.seed);
        }
    }

    /// A server of each cause in C works: it ends, and logs longer times for items that the cause affected.
    #[test]
    fn servers_log_their_truth() {
        let cache = tempfile::tempdir().unwrap();
        let is_simple = |it: &Mystery| {
            it.language == Language::C
                && it.cause != Cause::Neighbour
                && it.cause != Cause::Dependency
        };
        let mut seen = HashSet::new();
        for it in (0..)
            .map(|seed| Mystery::new(seed, 0.3))
            .filter(is_simple)
            .take(40)
        {
            if !seen.insert(it.cause as u8) {
                continue;
            }
            let program = program::compile(&it, cache.path()).unwrap();
            let path = |name: &str| cache.path().join(name);
            let mut command = std::process::Command::new(program);
            command
                .arg(path("truth"))
                .arg(path("file"))
                .arg(path("socket"));
            assert!(command.status().unwrap().success(), "seed {}", it.seed);
            let log = fs::read_to_string(path("truth")).unwrap();
            Truth::read(&log).unwrap();
            let slow = log
                .lines()
                .filter(|line| line.split(' ').nth(1) == Some("1"))
                .count();
            assert!(log.lines().count() > 10, "seed {}: {log}", it.seed);
            // With a lock or a queue the machine decides which items wait.
            if !matches!(it.cause, Cause::Lock | Cause::Queue) {
                assert_eq!(
                    slow > 0,
                    it.cause != Cause::Nothing,
                    "seed {}: {slow}",
                    it.seed
                );
            }
        }
    }
}
