//! Runs `pebs-trace` and keeps its results.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::check;
use crate::locks::Lock;
use crate::machine;
use crate::process::{self, Finished, Running};
use crate::table;
use crate::trace::Trace;
use crate::truth::Truth;
use crate::workload::{TruthFile, Workload};

/// Time that the kernel and the rings get to deliver the last marks of a target that has ended.
const SETTLE: Duration = Duration::from_millis(100);

/// The smallest ring that the tool takes: room for some 1,600 marks.
const SMALLEST_RING: &str = "64KiB";

/// Large enough for a tool that gets no CPU for seconds, as on a machine whose tests and host use all of them.
/// Tests of losses use a smaller one.
const LARGE_RING: &str = "16MiB";

/// Creates the views, including those of the tables, and runs a query.
const QUERY: &str = "
import duckdb, json, sys
text = open(sys.argv[1]).read()
for line in text.splitlines():
    if line.startswith('--   create view'):
        duckdb.sql(line[2:])
duckdb.sql(text)
print(json.dumps(duckdb.sql(sys.argv[2]).fetchall()))
";

/// Runs `pebs-trace` with these arguments to its end; for everything that is not a recording.
pub fn pebs_trace<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Finished {
    process::run(Command::new(machine::pebs_trace()).args(args))
}

/// The arguments of a recording.
#[derive(Debug)]
pub struct Recorder {
    args: Vec<OsString>,
    place: TempDir,
    lock: Option<Lock>,
    beside: bool,
    before_others: bool,
    /// Whether the tool may choose the sampling rate and refuse.
    own_pace: bool,
    /// Program and arguments that start the tool.
    starter: Vec<OsString>,
}

impl Recorder {
    /// A recording with one probe, to a temporary directory.
    ///
    /// # Panics
    /// If the temporary directory is not writable.
    #[must_use]
    pub fn new(spec: &str) -> Self {
        Self::plain().args(&["--uprobe", spec])
    }

    /// A recording without a probe, to a temporary directory.
    ///
    /// # Panics
    /// If the temporary directory is not writable.
    #[must_use]
    pub fn plain() -> Self {
        let place = tempfile::tempdir().expect("temporary directory is writable");
        let args = vec!["-o".into(), place.path().join("trace").into()];
        let lock = None;
        Self {
            args,
            place,
            lock,
            beside: false,
            before_others: false,
            own_pace: false,
            starter: Vec::new(),
        }
    }

    /// Starts the tool through a program that executes the command after its own arguments (`env NAME=VALUE`).
    #[must_use]
    pub fn started_by(mut self, words: &[&str]) -> Self {
        self.starter = words.iter().map(OsString::from).collect();
        self
    }

    /// Records under a lock that the test already holds.
    #[must_use]
    pub fn under(mut self, lock: Lock) -> Self {
        self.lock = Some(lock);
        self
    }

    /// Lets it run at the same time as others: the test depends neither on time nor on which processes run.
    #[must_use]
    pub const fn beside(mut self) -> Self {
        self.beside = true;
        self
    }

    /// Has the workload take its CPUs before all other programs (`TRUTH_REALTIME`).
    #[must_use]
    pub const fn before_others(mut self) -> Self {
        self.before_others = true;
        self
    }

    /// Lets the tool choose its sampling rate, and refuse costly recordings, as by default.
    #[must_use]
    pub const fn own_pace(mut self) -> Self {
        self.own_pace = true;
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(OsString::from));
        self
    }

    /// Records a command from its first instruction to its end.
    #[must_use]
    pub fn command(mut self, program: &Path, args: &[&str]) -> Recording {
        let _lock = self.lock();
        let truth = TruthFile::new();
        let mut command = self.tool();
        command.arg("--").arg(program).args(args);
        if self.before_others {
            command.env("TRUTH_REALTIME", "1");
        }
        let tool = process::run(truth.on(&mut command));
        Recording::new(tool, self.place)
    }

    /// Records a workload from its first instruction to its end.
    #[must_use]
    pub fn workload(mut self, workload: &Workload, args: &[&str]) -> (Recording, Truth) {
        let _lock = self.lock();
        let truth = TruthFile::new();
        let mut command = self.tool();
        command.arg("--").arg(&workload.path);
        if self.before_others {
            command.env("TRUTH_REALTIME", "1");
        }
        let tool = process::run(truth.on(command.args(args)));
        let recording = Recording::new(tool, self.place);
        recording.expect_trace();
        (recording, truth.read())
    }

    /// Records a workload with the smallest rings while the tool itself is stopped: with enough
    /// marks for the rings to run full, whatever the machine's speed. Samples are few.
    #[must_use]
    pub fn with_loss(self, workload: &Workload, args: &[&str]) -> (Recording, Truth) {
        let mut target = workload.start(args);
        let live = self
            .args(&["--ring-size", SMALLEST_RING, "--reset", "10000000"])
            .attach(target.process.pid());
        live.tool.signal(Signal::STOP);
        target.go();
        let (_, truth) = target.finish();
        live.tool.signal(Signal::CONT);
        (live.stop(), truth)
    }

    /// Attaches to a running process and returns once everything is attached.
    #[must_use]
    pub fn attach(self, pid: u32) -> Live {
        self.args(&["-p", &pid.to_string()]).start()
    }

    /// Starts to record without naming a process (unless the arguments do), and returns once
    /// everything is attached.
    #[must_use]
    pub fn start(self) -> Live {
        let mut live = self.launch();
        live.wait_until_it_records();
        live
    }

    /// Starts to record, and returns at once.
    #[must_use]
    pub fn launch(mut self) -> Live {
        let lock = self.lock();
        let tool = Running::start(&mut self.tool());
        Live {
            tool,
            place: self.place,
            _lock: lock,
        }
    }

    /// The tool with its arguments so far.
    fn tool(&self) -> Command {
        let mut words = self.starter.iter();
        let mut command = match words.next() {
            None => Command::new(machine::pebs_trace()),
            Some(starter) => {
                let mut command = Command::new(starter);
                command.args(words).arg(machine::pebs_trace());
                command
            }
        };
        command.args(&self.args);
        if !self.args.iter().any(|arg| arg == "--ring-size") {
            command.args(["--ring-size", LARGE_RING]);
        }
        let given = |name: &&str| self.args.iter().any(|arg| arg == name);
        // Most tests want many samples, of work that consists mostly of marks.
        if !self.own_pace && !["--reset", "-c", "--max-overhead"].iter().any(given) {
            command.args(["--reset", "16000"]);
        }
        if !self.own_pace && !given(&"--force") {
            command.arg("--force");
        }
        command
    }

    fn lock(&mut self) -> Lock {
        self.lock.take().unwrap_or_else(|| match self.beside {
            true => Lock::recording_beside(),
            false => Lock::recording(),
        })
    }
}

/// A running recording. Killed if dropped.
#[derive(Debug)]
pub struct Live {
    pub tool: Running,
    place: TempDir,
    _lock: Lock,
}

impl Live {
    /// Directory of the trace being written.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        self.place.path().join("trace")
    }

    /// Returns once everything is attached.
    ///
    /// # Panics
    /// If the tool ends first, with all that it printed.
    pub fn wait_until_it_records(&mut self) {
        self.tool.wait_for_line("recording");
    }

    /// Returns once this many rows of a table are on disk, so that the tool has caught up.
    ///
    /// # Panics
    /// If they do not come within the time that any child may take.
    pub fn until_rows(&self, table: &str, rows: usize) {
        let what = format!("no {rows} rows of {table} in {}", self.dir().display());
        process::wait_until(&what, || table::rows_so_far(&self.dir(), table) >= rows);
    }

    /// Ends it as Ctrl-C would.
    #[must_use]
    pub fn stop(self) -> Recording {
        std::thread::sleep(SETTLE);
        self.tool.signal(Signal::INT);
        self.finish()
    }

    /// Kills the tool with a signal that it cannot catch.
    #[must_use]
    pub fn kill(self) -> Recording {
        self.tool.signal(Signal::KILL);
        self.finish()
    }

    /// Waits until it ends by itself.
    #[must_use]
    pub fn finish(self) -> Recording {
        Recording::new(self.tool.finish(), self.place)
    }
}

/// A recording that ended.
#[derive(Debug)]
pub struct Recording {
    /// Exit status and output of the tool.
    pub tool: Finished,
    place: Arc<TempDir>,
}

impl Recording {
    fn new(tool: Finished, place: TempDir) -> Self {
        let place = Arc::new(place);
        Self { tool, place }
    }

    /// Directory of the trace, whether it exists or not.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        self.place.path().join("trace")
    }

    /// Answer of DuckDB to a query on the views written by `export --to views.sql`: an array of rows.
    ///
    /// # Panics
    /// If there are no views, or the query fails, with all that was printed.
    #[must_use]
    pub fn query(&self, python: &Path, sql: &str) -> serde_json::Value {
        let dir = self.dir();
        let views = dir.with_file_name("views.sql");
        let mut export = Command::new(machine::pebs_trace());
        let export = process::run(
            export
                .arg("export")
                .arg(&dir)
                .args(["--to", "views.sql", "--force", "-o"])
                .arg(&views),
        );
        assert_eq!(export.code(), Some(0), "{export}");
        let mut command = Command::new(python);
        let done = process::run(command.args(["-c", QUERY]).arg(&views).arg(sql));
        assert_eq!(done.code(), Some(0), "{done}");
        serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done}"))
    }

    /// The trace of a recording that ended in good order without loss. Its ledger balances.
    ///
    /// # Panics
    /// If the tool did not exit 0, with all that it printed.
    #[must_use]
    pub fn trace(&self) -> Trace {
        assert_eq!(self.tool.code(), Some(0), "{}", self.tool);
        self.trace_with_loss()
    }

    /// The trace of a recording that ended in good order, with or without loss. Its ledger
    /// balances.
    ///
    /// # Panics
    /// If the tool could not run or left the trace incomplete, with all that it printed.
    #[must_use]
    pub fn trace_with_loss(&self) -> Trace {
        self.expect_trace();
        let trace = Trace::open(&self.dir()).keeping(Arc::clone(&self.place));
        assert_eq!(trace.json["complete"], true, "{}", self.tool);
        check::ledger(&trace);
        trace
    }

    /// Panics unless the tool recorded something.
    fn expect_trace(&self) {
        let recorded = matches!(self.tool.code(), Some(0 | 1)) && self.dir().is_dir();
        assert!(recorded, "nothing recorded\n{}", self.tool);
    }
}
