//! The targets of a recording: processes, threads, a cgroup.

use std::path::Path;
use std::sync::Arc;

use super::recording::{Recording, Target};
use crate::binary::{build, process};
use crate::failure::{Failure, Result};
use crate::probe::cgroup::Cgroup;
use crate::spec::Spec;
use crate::units::{Pid, Tid};

/// Targets of a recording; without processes and cgroup, every process.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordingTargets {
    /// Processes, with their children.
    pub pids: Vec<Pid>,
    /// Threads of those processes to trace; empty: all.
    pub threads: Vec<Tid>,
    /// Cgroup whose processes are traced.
    pub cgroup: Option<Arc<Cgroup>>,
    /// Process in whose file system BIN is looked up.
    pub sees: Option<Pid>,
}

impl RecordingTargets {
    /// Resolves and checks the options.
    ///
    /// # Errors
    /// There is nothing to trace.
    pub(super) fn of(recording: &Recording) -> Result<Self> {
        let mut targets = Self::default();
        let (pids, tids): (&[Pid], &[Tid]) = match &recording.target {
            Target::Processes(pids) => (pids, &[]),
            Target::Threads(tids) => (&[], tids),
            _ => (&[], &[]),
        };
        for pid in pids.iter().copied() {
            check_process(pid)?;
            targets.pids.push(pid);
        }
        for tid in tids.iter().copied() {
            let Some(pid) = process::process_of(tid) else {
                return Err(Failure::new(
                    format!("thread {} does not exist", tid.0),
                    "'ps -L -p PID' lists the threads of a process".to_owned(),
                ));
            };
            check_process(pid)?;
            targets.threads.push(tid);
            if !targets.pids.contains(&pid) {
                targets.pids.push(pid);
            }
        }
        let cgroup = match &recording.target {
            Target::Cgroup(path) => Some(Cgroup::open(path)?),
            Target::Container(id) => Some(Cgroup::of_container(id)?),
            Target::Pod(name) => Some(Cgroup::of_pod(name)?),
            _ => None,
        };
        targets.sees = targets.pids.first().copied();
        if let Some(cgroup) = &cgroup {
            targets.sees = one_that_runs(recording, &cgroup.processes());
        }
        targets.cgroup = cgroup.map(Arc::new);
        Ok(targets)
    }
}

/// Refuses a pid that is not a running process.
pub(crate) fn check_process(pid: Pid) -> Result<()> {
    if !process::exists(pid) {
        return Err(Failure::new(
            format!("process {} does not exist", pid.0),
            format!(
                "'ps -p {}' shows whether it runs; 'pgrep NAME' finds pids",
                pid.0
            ),
        ));
    }
    if let Some(leader) = process::process_of(Tid(pid.0)).filter(|leader| *leader != pid) {
        return Err(Failure::new(
            format!(
                "{} is a thread of process {}, not a process",
                pid.0, leader.0
            ),
            format!(
                "-p {} traces the process, -t {} this thread alone",
                leader.0, pid.0
            ),
        ));
    }
    if process::is_zombie(pid) {
        return Err(Failure::new(
            format!("process {} has ended: it is a zombie", pid.0),
            "'pgrep NAME' finds the pids of those that run".to_owned(),
        ));
    }
    Ok(())
}

/// A process that has mapped the first binary; if none has, the first process.
fn one_that_runs(recording: &Recording, pids: &[Pid]) -> Option<Pid> {
    let spec = recording
        .uprobes
        .first()
        .and_then(|text| Spec::parse(text).ok());
    let build = spec.as_ref().filter(|spec| spec.begin.is_build);
    if let Some(spec) = build {
        let runs = |pid: &&Pid| build::find(&spec.begin.binary, Some(**pid), None).is_ok();
        return pids.iter().find(runs).or(pids.first()).copied();
    }
    let name = spec.and_then(|spec| {
        let name = Path::new(&spec.begin.binary).file_name()?;
        Some(name.to_os_string())
    });
    let runs = |pid: &&Pid| {
        let mapped = process::mappings(**pid).unwrap_or_default();
        mapped
            .iter()
            .any(|it| it.executable && Path::new(&it.path).file_name() == name.as_deref())
    };
    pids.iter().find(runs).or(pids.first()).copied()
}
