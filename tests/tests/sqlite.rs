//! The stock sqlite3 shell: fourteen of 4,000 INSERTs run a checkpoint inside their COMMIT.
//!
//! In WAL mode with wal_autocheckpoint=400 it is the same INSERTs in every run. Their time is off
//! the CPU, in fdatasync.
#![expect(
    clippy::unwrap_used,
    reason = "integration tests: a panic is the report"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use pebs_tests::explain::{explain, whole};
use pebs_tests::recording::Recorder;
use pebs_tests::trace::{Trace, Visit, Wait};
use pebs_tests::{check, machine, need, process};

const INSERTS: u64 = 4_000;

/// Path of the library that the shell uses, by `ldd`.
fn library(shell: &Path) -> Result<PathBuf, String> {
    let listing = process::run(Command::new("ldd").arg(shell));
    listing
        .stdout
        .lines()
        .filter(|line| line.contains("libsqlite3"))
        .find_map(|line| line.split("=> ").nth(1)?.split(' ').next())
        .and_then(|path| Path::new(path).canonicalize().ok())
        .ok_or_else(|| format!("{} is not linked with libsqlite3", shell.display()))
}

fn script() -> String {
    let mut sql = String::from(
        "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=400; PRAGMA synchronous=NORMAL;\n\
         CREATE TABLE t(k INTEGER PRIMARY KEY, v BLOB);\n",
    );
    for i in 0..INSERTS {
        writeln!(sql, "INSERT INTO t VALUES({i},randomblob(900));").unwrap();
    }
    sql
}

/// Number of the INSERT that a statement is.
fn insert_number(sql: &str) -> Option<u64> {
    sql.strip_prefix("INSERT INTO t VALUES(")?
        .split(',')
        .next()?
        .parse()
        .ok()
}

/// Statements by INSERT number, and the numbers of those in which a checkpoint ran.
fn inserts(trace: &Trace) -> (BTreeMap<u64, Visit>, BTreeSet<u64>) {
    let sql = trace.text_argument("sql");
    let number = |visit: &Visit| insert_number(sql[&visit.visit_id].as_deref()?);
    let (statements, checkpoints): (Vec<Visit>, Vec<Visit>) = trace
        .visits()
        .into_iter()
        .partition(|visit| visit.probe_id == 0);
    let inserts: BTreeMap<u64, Visit> = statements
        .into_iter()
        .filter_map(|visit| Some((number(&visit)?, visit)))
        .collect();
    let with_checkpoint = inserts
        .iter()
        .filter(|(_, insert)| {
            checkpoints
                .iter()
                .any(|c| insert.begin_ns <= c.begin_ns && c.end_ns <= insert.end_ns)
        })
        .map(|(&number, _)| number)
        .collect();
    (inserts, with_checkpoint)
}

/// All fourteen are found, with the right kind of time.
#[test]
fn checkpoints() {
    need!(machine::root());
    let shell = need!(machine::program("sqlite3"));
    let library = need!(library(&shell));
    // On a disk: in memory there would be no wait.
    let dir = tempfile::tempdir_in(machine::profile_dir()).unwrap();
    let (load, database) = (dir.path().join("load.sql"), dir.path().join("a.db"));
    std::fs::write(&load, script()).unwrap();
    let path = library.display();
    let recording = Recorder::new(&format!(
        "{path}:sqlite3_prepare_v2(sql=str(arg2))..sqlite3_finalize"
    ))
    .args(&["--uprobe", &format!("{path}:sqlite3WalCheckpoint")])
    .args(&["--event", "cpu-clock", "--reset", "50000"])
    .command(
        &shell,
        &[
            &database.display().to_string(),
            &format!(".read {}", load.display()),
        ],
    );
    let trace = recording.trace();
    check::no_mark_lost(&trace);
    let (inserts, checkpoints) = inserts(&trace);
    assert_eq!(inserts.len() as u64, INSERTS, "{}", recording.tool);
    let expected = [
        264, 532, 800, 1068, 1336, 1604, 1872, 2138, 2404, 2672, 2940, 3206, 3472, 3738,
    ];
    assert_eq!(checkpoints, BTreeSet::from(expected));
    slower_than_the_others(&trace, &inserts, &checkpoints);
    off_the_cpu_in_fdatasync(&trace, &inserts, &checkpoints);
    explained(&recording.dir());
}

/// The checkpoint separates the slow statements from others, and contains the wait for the disk.
fn explained(trace: &Path) {
    let explanation = explain(trace, &["--slow", "10x"]);
    let group = whole(&explanation);
    let because = group.because();
    // On a busy machine other statements are slow as well: preempted.
    let found = because
        .iter()
        .find(|it| it["argument"] == "visits of sqlite3WalCheckpoint")
        .unwrap_or_else(|| panic!("{:#}", group.0));
    let with = (found["slow_with"].as_u64(), found["other_with"].as_u64());
    assert_eq!(with, (Some(14), Some(0)), "{found:#}");
    let cause = group.first_of_program();
    assert_eq!(cause.kind(), "wait", "{:#}", group.0["gap"]);
    assert!(cause.name().contains("fdatasync"), "{:#}", cause.0);
}

/// Each takes longer than 99 % of the INSERTs without a checkpoint, not counting time in which other threads had the
/// CPU: on a busy machine more than one in a hundred is preempted.
fn slower_than_the_others(
    trace: &Trace,
    inserts: &BTreeMap<u64, Visit>,
    checkpoints: &BTreeSet<u64>,
) {
    let mut waits = trace.waits();
    waits.retain(|wait| wait.state == "runnable");
    waits.sort_unstable_by_key(|wait| wait.begin_ns);
    let duration = |number: &u64| {
        let insert = &inserts[number];
        let end = insert.end_ns.unwrap();
        let first = waits.partition_point(|wait| wait.begin_ns < insert.begin_ns);
        let within = waits[first..].iter().take_while(|wait| wait.end_ns <= end);
        end - insert.begin_ns - within.map(Wait::length_ns).sum::<i64>()
    };
    let mut others: Vec<i64> = inserts
        .keys()
        .filter(|n| !checkpoints.contains(n))
        .map(duration)
        .collect();
    others.sort_unstable();
    let p99 = others[others.len() * 99 / 100];
    for number in checkpoints {
        let ns = duration(number);
        assert!(
            ns > p99,
            "INSERT {number} took {ns} ns, p99 of the others is {p99} ns"
        );
    }
}

fn off_the_cpu_in_fdatasync(
    trace: &Trace,
    inserts: &BTreeMap<u64, Visit>,
    checkpoints: &BTreeSet<u64>,
) {
    let (names, waits) = (trace.function_names(), trace.waits());
    for number in checkpoints {
        let insert = &inserts[number];
        // A checkpoint is a separate visit within the INSERT: matched by time, not by visit.
        let (begin, end) = (insert.begin_ns, insert.end_ns.unwrap());
        let (mut in_sync, mut off) = (0, 0);
        for wait in waits
            .iter()
            .filter(|w| begin <= w.begin_ns && w.end_ns <= end)
        {
            let name = wait
                .function_id
                .and_then(|id| names.get(&id))
                .map_or("", String::as_str);
            // Being preempted is the machine's doing, not the program's.
            if wait.state != "runnable" {
                off += wait.length_ns();
                in_sync += if name.contains("fdatasync") {
                    wait.length_ns()
                } else {
                    0
                };
            }
        }
        assert!(
            in_sync > 0,
            "INSERT {number} waits in no fdatasync: {insert:?}"
        );
        assert!(
            2 * in_sync > off,
            "INSERT {number}: {in_sync} of {off} ns off the CPU in fdatasync"
        );
    }
}
