//! Two hundred recordings of one server, each killed at a random moment.
//!
//! Several run at a time, which shortens the test and makes their moments more random still.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use pebs_tests::bpf::Objects;
use pebs_tests::locks::Lock;
use pebs_tests::process;
use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::table::{self, Table};
use pebs_tests::trace::Trace;
use pebs_tests::workload::{Waiting, Workload, address_of};
use pebs_tests::{machine, need, say_skip};
use rustix::process::Signal;

/// Recordings.
const RUNS: usize = 128;
const AT_A_TIME: usize = 8;
/// Setting up takes about that long on an idle machine.
const SETUP: Duration = Duration::from_millis(800);
/// Taking the probes away takes about that long.
const STOPPING: Duration = Duration::from_millis(150);
/// Latest time of a kill, after the start or after the first data on disk: with segments of one second, some are
/// closed.
const LATEST: Duration = Duration::from_millis(1500);
/// Time for the kernel to release objects without a holder.
const CLEANED: Duration = Duration::from_secs(30);
/// Names the seed of a run that is to be repeated.
const SEED: &str = "PEBS_TEST_SEED";

/// Moment of the kill.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// So long after the start of the process.
    InSetup(Duration),
    /// So long after everything is attached.
    Recording(Duration),
    /// So long after the first visits are on disk.
    Written(Duration),
    /// So long after it was asked to end.
    Stopping(Duration),
}

/// The moments of a seed (splitmix64).
fn moments(seed: u64) -> Vec<Moment> {
    let mut state = seed;
    let mut below = |limit: u64| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    };
    let mut up_to = |longest: Duration| Duration::from_nanos(below(longest.as_nanos() as u64));
    (0..RUNS as u64)
        .map(|n| match n % 8 {
            0..3 => Moment::InSetup(up_to(SETUP)),
            3 | 4 => Moment::Stopping(up_to(STOPPING)),
            // On any machine this many have visits.
            5 | 6 => Moment::Written(up_to(LATEST)),
            _ => Moment::Recording(up_to(LATEST)),
        })
        .collect()
}

fn seed() -> u64 {
    let given = std::env::var(SEED).ok().and_then(|text| text.parse().ok());
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    given.unwrap_or_else(|| u64::from(since.unwrap().subsec_nanos()))
}

/// At any moment of a kill every closed segment is readable, `recover` saves the open ones up to their last complete
/// batch, the server goes on answering, and the kernel keeps no objects.
#[test]
fn kill_9_at_random_moments() {
    need!(machine::root());
    let seed = seed();
    println!("{SEED}={seed} repeats these moments");
    let moments = moments(seed);
    let workload = Workload::build("answers");
    let mut target = workload.start(&[]);
    target.go();
    let pid = target.process.pid();
    let lock = Lock::recording();
    let target = Mutex::new(target);
    let leaks_before = leaks();
    let (next, held) = (AtomicUsize::new(0), Mutex::new(Objects::default()));
    let killed: Vec<Recording> = std::thread::scope(|scope| {
        let work = || {
            let mut killed = Vec::new();
            while let Some(moment) = moments.get(next.fetch_add(1, Ordering::Relaxed)) {
                let recorder = Recorder::new(&workload.spec("handle(id=arg1)"))
                    .args(&["--segment", "1", "--reset", "100000", "-p"])
                    .args(&[&pid.to_string()])
                    .under(lock.clone());
                let (recording, objects) = kill_at(recorder, *moment);
                held.lock().unwrap().add(&objects);
                answers(&mut target.lock().unwrap());
                killed.push(recording);
            }
            killed
        };
        let workers: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(work)).collect();
        let all = workers.into_iter().flat_map(|it| it.join().unwrap());
        all.collect()
    });
    assert_eq!(killed.len(), RUNS);
    nothing_left(&held.into_inner().unwrap());
    probes_gone(pid, &workload.path);
    match leaks_before.zip(leaks()) {
        Some((before, now)) => assert_eq!(now, before, "uprobes leaked"),
        None => say_skip(format_args!(
            "dmesg can't be read: whether uprobes leaked is not known"
        )),
    }
    target.into_inner().unwrap().answers_stop();
    drop(lock);
    traces(&killed);
}

/// Kills a recording; returns the kernel objects that it held just before.
fn kill_at(recorder: Recorder, moment: Moment) -> (Recording, Objects) {
    let mut live = recorder.launch();
    match moment {
        Moment::InSetup(after) => std::thread::sleep(after),
        Moment::Recording(after) => {
            live.wait_until_it_records();
            std::thread::sleep(after);
        }
        Moment::Written(after) => {
            live.wait_until_it_records();
            live.until_rows("visits", 1);
            std::thread::sleep(after);
        }
        Moment::Stopping(_) => {
            live.wait_until_it_records();
            live.until_rows("visits", 1);
        }
    }
    let objects = Objects::held_by(live.tool.pid());
    if !matches!(moment, Moment::InSetup(_)) {
        assert!(
            objects.programs.len() > 1 && !objects.links.is_empty(),
            "{objects:?}"
        );
    }
    if let Moment::Stopping(after) = moment {
        live.tool.signal(Signal::INT);
        std::thread::sleep(after);
    }
    let recording = live.kill();
    let tool = &recording.tool;
    let may_have_ended = matches!(moment, Moment::Stopping(_)) && tool.code().is_some();
    assert!(
        tool.signal() == Some(9) || may_have_ended,
        "{moment:?}: {tool}"
    );
    (recording, objects)
}

/// Number of kernel messages on breakpoints that could not be removed; `None`: its log can't be read.
pub fn leaks() -> Option<usize> {
    let log = Command::new("dmesg").output().ok()?;
    let text = String::from_utf8_lossy(&log.stdout);
    log.status
        .success()
        .then(|| text.matches("leaking uprobe").count())
}

/// The server answers, and has handled more items than at its last answer.
fn answers(target: &mut Waiting) {
    static QUESTIONS: AtomicUsize = AtomicUsize::new(0);
    static HANDLED: AtomicUsize = AtomicUsize::new(0);
    let question = QUESTIONS.fetch_add(1, Ordering::Relaxed);
    target.process.send(&format!("ping {question}\n"));
    let answer = target.process.wait_for_line(&format!("pong {question} "));
    let items: usize = answer.rsplit(' ').next().unwrap().parse().unwrap();
    let before = HANDLED.swap(items, Ordering::Relaxed);
    assert!(items > before, "{items} items handled, {before} before");
}

/// Programs, maps and links are gone; and with the programs the perf events that they were
/// attached to.
fn nothing_left(held: &Objects) {
    assert!(
        held.programs.len() > RUNS,
        "{} programs",
        held.programs.len()
    );
    let deadline = Instant::now() + CLEANED;
    loop {
        let left = held.still_there();
        if left == Objects::default() {
            return;
        }
        assert!(Instant::now() < deadline, "left in the kernel: {left:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The probed function's code equals the file's again.
pub fn probes_gone(pid: u32, binary: &Path) {
    const CODE: usize = 16;
    let function = address_of(binary, "handle");
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut mappings = maps.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = fields[0].split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let own = fields.last() == Some(&binary.to_str()?);
        own.then_some((number(start)?, number(end)?, number(fields[2])?))
    });
    let base = mappings.clone().next().unwrap().0;
    let address = base + function;
    let (start, _, offset) = mappings
        .find(|(start, end, _)| (*start..*end).contains(&address))
        .unwrap();
    let at = (address - start + offset) as usize;
    let code = fs::read(binary).unwrap()[at..at + CODE].to_vec();
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let deadline = Instant::now() + CLEANED;
    loop {
        let mut now = [0; CODE];
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut now, address).unwrap();
        if now[..] == code {
            return;
        }
        assert!(Instant::now() < deadline, "{now:x?}, not {code:x?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Rows of each table.
type Rows = BTreeMap<String, usize>;

/// Files of a killed recording.
struct TraceFiles<'a> {
    recording: &'a Recording,
    /// Closed segments with length and time of last change.
    closed: Vec<(PathBuf, u64, SystemTime)>,
    /// Rows in closed segments, and up to the last whole footer of open ones.
    rows: Rows,
}

impl<'a> TraceFiles<'a> {
    /// `None`: killed before there was a trace, or when it was whole.
    fn read(recording: &'a Recording) -> Option<Self> {
        let dir = recording.dir();
        if !dir.join("trace.json").exists() {
            let has_rows = tables(&dir)
                .iter()
                .any(|name| !files(&dir.join(name)).is_empty());
            assert!(!has_rows, "rows without trace.json\n{}", recording.tool);
            return None;
        }
        if Trace::open(&dir).json["complete"] == true {
            return None;
        }
        let (mut closed, mut rows) = (Vec::new(), Rows::new());
        for name in tables(&dir) {
            let sum = rows.entry(name.clone()).or_default();
            for path in files(&dir.join(&name)) {
                let is_parquet = path.extension().is_some_and(|end| end == "parquet");
                if is_parquet {
                    closed.push(unchanged(&path));
                } else if table::is_open(&path) {
                    *sum += table::rows_of_open(&path);
                }
            }
            if !table::segments(&dir.join(&name)).is_empty() {
                *sum += Table::read(&dir, &name).len();
            }
        }
        Some(Self {
            recording,
            closed,
            rows,
        })
    }

    /// Checks the result of `recover`; returns the number of visits.
    fn check(&self) -> usize {
        let dir = self.recording.dir();
        for file in &self.closed {
            assert_eq!(
                &unchanged(&file.0),
                file,
                "recover changed a closed segment"
            );
        }
        let trace = Trace::open(&dir);
        let rows: Rows = tables(&dir)
            .into_iter()
            .map(|name| (name.clone(), trace.table(&name).len()))
            .collect();
        assert_eq!(rows, self.rows, "{}", self.recording.tool);
        let visits = trace.visits();
        for pair in visits.windows(2) {
            let (before, item) = (pair[0].item_id, pair[1].item_id);
            assert_eq!(item, before + 1, "an item is missing: {pair:?}");
        }
        visits.len()
    }
}

fn unchanged(path: &Path) -> (PathBuf, u64, SystemTime) {
    let file = path.metadata().unwrap();
    (path.to_owned(), file.len(), file.modified().unwrap())
}

/// Folders of a trace.
fn tables(dir: &Path) -> Vec<String> {
    let folders = files(dir).into_iter().filter(|path| path.is_dir());
    folders
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Every trace is readable without recovery, and after `recover` has all complete batches on disk.
fn traces(killed: &[Recording]) {
    let left: Vec<TraceFiles<'_>> = killed.iter().filter_map(TraceFiles::read).collect();
    let dirs: Vec<PathBuf> = left.iter().map(|it| it.recording.dir()).collect();
    let recovery = pebs_trace(std::iter::once("recover".into()).chain(dirs.clone()));
    // 1: a kill cut a batch in the middle, whose bytes are reported as lost.
    let cut = recovery.stdout.contains("bytes lost");
    assert_eq!(recovery.code(), Some(i32::from(cut)), "{recovery}");
    let visits: Vec<usize> = left.iter().map(TraceFiles::check).collect();
    let closed = left.iter().filter(|it| !it.closed.is_empty()).count();
    let full = visits.iter().filter(|visits| **visits > 0).count();
    println!(
        "{} traces, {closed} with closed segments, {full} with visits, {} visits",
        left.len(),
        visits.iter().sum::<usize>()
    );
    assert!(full > RUNS / 5, "{full} traces with visits");
    assert!(closed > 0, "no trace with closed segments");
    let again = pebs_trace(std::iter::once("recover".into()).chain(dirs));
    assert_eq!(again.code(), Some(0), "nothing more to do\n{again}");
    other_readers(&left);
}

/// Prints the rows of each table of each trace, as DuckDB and as pandas count them.
const READERS: &str = "
import sys, os, json, duckdb, pandas
rows = []
for trace in sys.argv[1:]:
    duck, panda = {}, {}
    for table in sorted(os.listdir(trace)):
        path = os.path.join(trace, table)
        if os.path.isdir(path):
            duck[table], = duckdb.execute(f\"select count(*) from '{path}/*.parquet'\").fetchone()
            panda[table] = len(pandas.read_parquet(path))
    rows.append([duck, panda])
print(json.dumps(rows))
";

/// DuckDB and pandas read every table of every trace, with equally many rows.
fn other_readers(left: &[TraceFiles<'_>]) {
    let python = match machine::python(&["duckdb", "pandas", "pyarrow"]) {
        Ok(python) => python,
        Err(reason) => return say_skip(format_args!("{reason}")),
    };
    let dirs = left.iter().map(|it| it.recording.dir());
    let done = process::run(Command::new(python).args(["-c", READERS]).args(dirs));
    assert_eq!(done.code(), Some(0), "{done}");
    let rows: Vec<[Rows; 2]> = serde_json::from_str(&done.stdout).unwrap();
    for (left, [duckdb, pandas]) in left.iter().zip(&rows) {
        assert_eq!((duckdb, pandas), (&left.rows, &left.rows));
    }
    assert_eq!(rows.len(), left.len());
}
