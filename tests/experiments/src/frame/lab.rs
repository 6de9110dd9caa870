//! A lab: the tool that is measured, and a folder in which programs are built, run and recorded.
//!
//! Invariant: every path that an experiment makes lies in its folder, and is removed as root before it is made anew, as
//! files of root can be removed only by root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Error, Result};
use pebs_tests::truth::Truth;
use serde_json::Value;

use super::recorder::{self, Recorder};
use super::trace::{self, Item};
use super::{shell, workload};

/// The tool, and a folder to work in.
#[derive(Clone)]
pub struct Lab {
    /// The `pebs-trace` that is measured.
    pub tool: PathBuf,
    pub dir: PathBuf,
    has_own_cache: bool,
}

impl Lab {
    /// In `target/NAME`, with this tool or else a release build of the workspace.
    pub fn new(name: &str, tool: Option<&Path>) -> Result<Self> {
        Self::at(&shell::target_dir()?.join(name), &recorder::of(tool)?)
    }

    /// In a folder, which is made.
    pub fn at(dir: &Path, tool: &Path) -> Result<Self> {
        fs::create_dir_all(dir)?;
        Ok(Self {
            tool: tool.to_owned(),
            dir: dir.to_owned(),
            has_own_cache: false,
        })
    }

    /// The tool keeps what it measures of the machine in the folder, so that it measures the machine anew.
    #[must_use]
    pub fn with_own_cache(self) -> Self {
        Self {
            has_own_cache: true,
            ..self
        }
    }

    /// The tool, as root.
    #[must_use]
    pub fn tool(&self) -> Command {
        self.tool_with(&[])
    }

    fn tool_with(&self, variables: &[String]) -> Command {
        let cache = self.dir.join("cache");
        let cache = format!("XDG_CACHE_HOME={}", cache.display());
        let cache = self.has_own_cache.then_some(cache);
        let variables: Vec<&String> = cache.iter().chain(variables).collect();
        if variables.is_empty() {
            return shell::as_root(&self.tool);
        }
        let mut command = shell::as_root("env");
        command.args(variables).arg(&self.tool);
        command
    }

    /// Path of a file or folder in the lab, which is not there.
    pub fn clean(&self, name: &str) -> Result<PathBuf> {
        let path = self.dir.join(name);
        shell::remove(&path)?;
        Ok(path)
    }

    /// Builds a workload of `tests/workloads`.
    pub fn compile(&self, name: &str, flags: &[&str]) -> Result<PathBuf> {
        let flags = [&["-O2", "-g", "-pthread"], flags].concat();
        let source = format!("tests/workloads/{name}.c");
        let program = self.dir.join(name);
        workload::compile(&source, &program, &flags)?;
        Ok(program)
    }

    /// Runs a workload without the tool; its truth.
    pub fn alone(&self, program: &Path, args: &[&str]) -> Result<Truth> {
        let log = self.clean("log")?;
        let mut command = Command::new("env");
        command.arg(format!("TRUTH_FILE={}", log.display()));
        shell::output(command.arg(program).args(args))?;
        self.truth()
    }

    /// Returns the path at which workloads log their truth.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// The truth of the last run.
    pub fn truth(&self) -> Result<Truth> {
        Truth::try_read(&self.log()).map_err(Error::msg)
    }

    /// The folder of recordings: each replaces the last.
    #[must_use]
    pub fn trace(&self) -> PathBuf {
        self.dir.join("trace")
    }

    /// The tool with the arguments of a recording of samples of cpu-clock, up to `--`; `None`: the tool chooses the reset
    /// value. The last recording and its log are removed.
    pub fn recording(&self, spec: &str, reset: Option<u64>, options: &[&str]) -> Result<Command> {
        self.clean("log")?;
        let trace = self.clean("trace")?;
        let log = format!("TRUTH_FILE={}", self.log().display());
        let mut command = self.tool_with(&[log]);
        command.args(["--uprobe", spec, "--event", "cpu-clock"]);
        if let Some(reset) = reset {
            command.args(["--reset", &reset.to_string()]);
        }
        command.args(options).arg("--output").arg(trace).arg("--");
        Ok(command)
    }

    /// Starts a recording of a process that runs.
    pub fn attach(&self, spec: &str, pid: u32, options: &[&str]) -> Result<Recorder> {
        self.attach_by_preset(pid, &[&["--uprobe", spec], options].concat())
    }

    /// Starts a recording of a process that runs, with the preset that fits it unless the options say what to probe.
    pub fn attach_by_preset(&self, pid: u32, options: &[&str]) -> Result<Recorder> {
        let trace = self.clean("trace")?;
        let mut command = self.tool();
        command.args(["-p", &pid.to_string()]);
        command.args(options).arg("--output").arg(trace);
        Recorder::spawn(command)
    }

    /// `trace.json` of the last recording.
    pub fn info(&self) -> Result<Value> {
        trace::info(&self.trace())
    }

    /// Items of the last recording with their functions.
    pub fn items(&self) -> Result<Vec<Item>> {
        let csv = self.clean("items.csv")?;
        let mut export = self.tool();
        export.args(["export", "--to", "csv", "--output"]);
        shell::output(export.arg(&csv).arg(self.trace()))?;
        trace::read_items(&fs::read_to_string(&csv)?)
    }

    /// Output of a command of the tool about the last recording, in JSON.
    pub fn ask(&self, command: &str) -> Result<Value> {
        let mut tool = self.tool();
        tool.arg(command).arg(self.trace());
        shell::json(tool.args(["--format", "json"]))
    }

    /// Costs of a sample of cpu-clock and of marks on this machine now, measured by the tool.
    pub fn calibration(&self) -> Result<Value> {
        let mut command = self.tool();
        command.args(["calibrate", "--event", "cpu-clock", "--format", "json"]);
        command.args(["--duration", "8"]);
        // Its exit status is 1 where the machine is too busy for an exact result.
        Ok(shell::json(shell::show(&mut command))?["calibration"].take())
    }

    /// Writes a table, prints it, and where it is.
    pub fn publish(&self, file: &str, text: &str) -> Result<()> {
        let path = self.dir.join(file);
        fs::write(&path, text)?;
        println!("{text}\ntable: {}", path.display());
        Ok(())
    }
}
