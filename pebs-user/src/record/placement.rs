//! Checks of the probed instructions in the memory of running processes: for breakpoints of debuggers before probes are
//! placed, and for code without a probe after that.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::plan::Plan;
use crate::arch::{BREAKPOINT, is_breakpoint};
use crate::binary::process::{self, FileId};
use crate::failure::Warning;
use crate::failure::{Failure, Result};
use crate::probe::set::Site;
use crate::units::Pid;

/// Processes that may make marks: the traced ones, or all.
fn processes(plan: &Plan) -> Vec<Pid> {
    match &plan.cgroup {
        _ if !plan.pids.is_empty() => plan.pids.clone(),
        Some(cgroup) => cgroup.processes(),
        None => process::all(),
    }
}

/// The bytes at an instruction, as many as a breakpoint has: as a process has them, and as the file has them. `None` if
/// the file is not mapped.
fn bytes_at(pid: Pid, site: &Site) -> Option<[[u8; BREAKPOINT.len()]; 2]> {
    let file = FileId::of(&site.path)?;
    // Tools map a file to read it, too.
    let code = process::mappings(pid)?
        .into_iter()
        .filter(|it| it.executable);
    let address = { code }.find_map(|it| it.address_of(file, site.file_offset))?;
    let read = |path: &Path, at: u64| -> io::Result<_> {
        let mut bytes = [0; BREAKPOINT.len()];
        File::open(path)?.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    };
    let there = read(Path::new(&format!("/proc/{}/mem", pid.0)), address).ok()?;
    Some([there, read(&site.path, site.file_offset).ok()?])
}

/// Warnings of breakpoints of debuggers at probed instructions, before probes are placed.
///
/// The kernel takes such a breakpoint for its own, and the debugger takes it away each time that it stops the process.
/// Another tool's uprobe looks the same and does no harm: it has no process that traces.
pub(super) fn debuggers(plan: &Plan) -> Vec<Warning> {
    let warning = |pid: Pid| {
        let tracer = process::tracer(pid)?;
        let mut sites = plan.probes.probes.iter().flat_map(|probe| &probe.sites);
        let site = sites.find(|site| {
            bytes_at(pid, site)
                .is_some_and(|[there, in_file]| is_breakpoint(there) && !is_breakpoint(in_file))
        })?;
        let name = process::name(tracer).unwrap_or_else(|| "a debugger".to_owned());
        Some(Warning {
            text: format!(
                "{name} (process {}) has a breakpoint at {} in process {}: items may be missing, and it may not stop there \
                 while it is recorded",
                tracer.0, site.place, pid.0
            ),
            hint: "delete the breakpoint, or quit the debugger, and record again".to_owned(),
        })
    };
    processes(plan).into_iter().filter_map(warning).collect()
}

/// Names of debuggers that set breakpoints.
const DEBUGGERS: [&str; 6] = ["gdb", "gdbserver", "lldb", "lldb-server", "dlv", "rr"];

/// The debugger of a process, if it has one that sets breakpoints.
pub(super) fn debugger(pid: Pid) -> Option<Pid> {
    let tracer = process::tracer(pid)?;
    let name = process::name(tracer)?;
    DEBUGGERS.contains(&name.as_str()).then_some(tracer)
}

/// Warning of a debugger that came while recording.
///
/// It takes the probe's breakpoint for the program's own code when it sets one at the same place, and writes it back when
/// it takes its own away. The kernel puts the instruction back at the end of the recording, if that comes later.
pub(super) fn debugger_came(debugger: Pid, pid: Pid) -> Warning {
    let name = process::name(debugger).unwrap_or_else(|| "a debugger".to_owned());
    Warning {
        text: format!(
            "{name} (process {}) is attached to process {} while it is recorded: a breakpoint of it at a probed place, taken \
             away after the recording, leaves pebs-trace's there, and the process dies of SIGTRAP",
            debugger.0, pid.0
        ),
        hint: format!(
            "quit {name} before the recording ends, or set no breakpoint at a probed place"
        ),
    }
}

/// Warning of processes that have probed code mapped in a way that the kernel does not probe, after probes are placed.
///
/// # Errors
/// All of the `named` processes are such ones.
pub(super) fn check(plan: &Plan, named: &[Pid]) -> Result<Option<Warning>> {
    let found = unprobed(plan);
    let Some((_, warning)) = found.first() else {
        return Ok(None);
    };
    let mut warning = warning.clone();
    let is_bare = |pid: &Pid| found.iter().any(|(bare, _)| bare == pid);
    if !named.is_empty() && named.iter().all(is_bare) {
        return Err(Failure::new(
            format!("cannot record: {}", warning.text),
            warning.hint,
        ));
    }
    if let more @ 1.. = found.len() - 1 {
        warning.text.push_str(&format!(" (and {more} more)"));
    }
    Ok(Some(warning))
}

/// Processes without a placed probe, each with a warning.
///
/// One place of each file is looked at: the kernel probes a mapping or does not.
fn unprobed(plan: &Plan) -> Vec<(Pid, Warning)> {
    let mut sites: Vec<&Site> = plan.probes.probes.iter().flat_map(|it| &it.sites).collect();
    sites.sort_by_key(|site| &site.path);
    sites.dedup_by_key(|site| &site.path);
    let warning = |pid: Pid| {
        let is_bare =
            |site: &&&Site| bytes_at(pid, site).is_some_and(|[there, file]| there == file);
        let site = sites.iter().find(is_bare)?;
        let (id, path) = (pid.0, site.path.display());
        let warning = if is_on_overlay(&site.path) {
            let of_process = process::mappings(pid).unwrap_or_default();
            let file = FileId::of(&site.path);
            let mapping = of_process.iter().find(|it| Some(it.file) == file);
            let mounts = fs::read_to_string(format!("/proc/{id}/mountinfo")).unwrap_or_default();
            let lower = mapping.and_then(|it| lower_file(&mounts, Path::new(&it.path)));
            let lower = lower.map_or_else(
                || "in the overlay's lower layer".to_owned(),
                |it| it.display().to_string(),
            );
            Warning {
                text: format!(
                    "process {id} runs {path} as it was before it was written to or touched: its overlay file system has a \
                     new file since, which is probed"
                ),
                hint: format!("restart process {id}, or name the file that it runs, {lower}"),
            }
        } else {
            Warning {
                text: format!(
                    "process {id} has mapped {path} in a way that the kernel does not probe, as for writing"
                ),
                hint: format!("restart process {id}; /proc/{id}/maps shows what it has mapped"),
            }
        };
        Some((pid, warning))
    };
    let found = processes(plan).into_iter();
    found.filter_map(warning).collect()
}

/// Type of an overlay file system. Source: `OVERLAYFS_SUPER_MAGIC`, linux/magic.h.
const OVERLAY: rustix::fs::FsWord = 0x794c_7630;

fn is_on_overlay(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|it| it.f_type == OVERLAY)
}

/// The lower layer's file of a path on an overlay, by the process's `mountinfo`.
///
/// Source: proc_pid_mountinfo(5).
fn lower_file(mounts: &str, path: &Path) -> Option<PathBuf> {
    let overlay = |line: &str| {
        let (mount, system) = line.split_once(" - overlay ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (mount.next()?, mount.next()?);
        let below = path.strip_prefix(point).ok()?;
        let mut options = system.split([' ', ',']);
        let lower = options.find_map(|it| it.strip_prefix("lowerdir="))?;
        let of_root = |layer: &str| Path::new(layer).join(root.trim_start_matches('/'));
        let mut files = lower.split(':').map(|layer| of_root(layer).join(below));
        Some((
            point.len(),
            files.find(|it| it.is_absolute() && it.exists()),
        ))
    };
    let (_, file) = mounts.lines().filter_map(overlay).max()?;
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file is looked for in each lower layer of the innermost overlay that holds the path.
    #[test]
    fn lower_layers() {
        let dir = tempfile::tempdir().unwrap();
        let layers = ["a", "b"].map(|it| dir.path().join(it));
        layers.iter().for_each(|it| fs::create_dir(it).unwrap());
        let file = layers[1].join("app");
        fs::write(&file, "").unwrap();
        let [a, b] = layers.map(|it| it.display().to_string());
        let mounts = format!(
            "1 0 0:1 / / rw - overlay o rw,lowerdir=/none,upperdir=/u\n\
             2 1 0:2 / /m rw shared:1 - overlay o rw,lowerdir={a}:{b},upperdir=/u,workdir=/w\n\
             3 1 0:3 / /m/app rw - tmpfs t rw\n"
        );
        assert_eq!(lower_file(&mounts, Path::new("/m/app")), Some(file));
        assert_eq!(lower_file(&mounts, Path::new("/m/other")), None);
        assert_eq!(lower_file(&mounts, Path::new("/app")), None);
    }
}
