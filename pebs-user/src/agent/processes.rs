//! Running processes that belong to a target.
//!
//! By looking at `/proc` once a second: the kernel's messages of forks (`PROC_EVENTS`) need another privilege, come for every
//! short process of the machine, and get lost exactly where many come. Numbers are given in order, so that only those since
//! the last look are asked for, and all are listed once a minute. A process that is new is looked at in each of
//! its first seconds, as it may not run its program yet, later once a minute, and whether it is in
//! another cgroup every ten; those of targets each time. So ten thousand that
//! do nothing cost two hundred system calls a second.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::config::TargetConfig;
use crate::binary::process::{self, FileId};
use crate::preset::matches;
use crate::units::{Pid, Tid};

/// Looks at a process before it counts as settled.
const FIRST_LOOKS: u64 = 10;

/// Age of a process that was there before the agent and counts as settled.
const SETTLED: Duration = Duration::from_secs(10);

/// One look of so many is at a process that has settled, and at the list of all.
const RARELY: u64 = 60;

/// One of so many of these is at its name and cgroup as well, if it runs the same file.
const SELDOM: u64 = 10;

/// Numbers of new processes that are asked for one by one.
const MOST_NEW: u32 = 1_000;

/// Ancestors that are followed.
const MOST_ANCESTORS: usize = 64;

/// Processes of a target that run the same file: they are recorded together.
///
/// A binary that was replaced by an upgrade is another file, and is probed anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The program of the first.
    pub program: PathBuf,
    /// Those that no other one of them is an ancestor of.
    pub roots: Vec<Pid>,
    /// All of them.
    pub all: BTreeSet<Pid>,
}

/// Key of a group: the target, and the file.
pub(super) type Key = (String, FileId);

/// A process as it was at the last look at it.
#[derive(Clone, Debug)]
struct Known {
    looks: u64,
    program: PathBuf,
    file: FileId,
    name: String,
    cgroups: Vec<String>,
    parent: Option<Pid>,
    /// Targets that it belongs to, by their places.
    of: Vec<usize>,
}

impl Known {
    /// `None`: it is gone, or a thread of the kernel.
    fn new(pid: Pid, targets: &[TargetConfig]) -> Option<Self> {
        let program = process::exe(pid)?;
        let known = Self {
            looks: 0,
            file: FileId::of(&exe(pid))?,
            name: process::name(pid)?,
            cgroups: cgroups(pid),
            parent: process::parent(pid),
            of: Vec::new(),
            program,
        };
        Some(known.sorted(pid, targets))
    }

    fn sorted(self, pid: Pid, targets: &[TargetConfig]) -> Self {
        let places = targets.iter().zip(0..);
        let of = places.filter(|(target, _)| self.is_of(pid, target));
        Self {
            of: of.map(|(_, place)| place).collect(),
            ..self
        }
    }

    /// Whether all that says what belongs to the target holds.
    fn is_of(&self, pid: Pid, target: &TargetConfig) -> bool {
        let TargetConfig {
            exe,
            comm,
            pid: number,
            unit,
            cgroup,
            ..
        } = target;
        exe.as_ref().is_none_or(|it| is_program(&self.program, it))
            && comm.as_ref().is_none_or(|it| *it == self.name)
            && number.is_none_or(|it| it == pid.0)
            && unit
                .as_ref()
                .is_none_or(|unit| self.cgroups.iter().any(|it| is_of_unit(it, unit)))
            && cgroup
                .as_ref()
                .is_none_or(|pattern| self.cgroups.iter().any(|it| matches(pattern, it)))
    }
}

/// Whether a process's program is meant: by its path, or without `/` by its file name.
fn is_program(program: &Path, typed: &str) -> bool {
    // The kernel's mark of a file that was replaced.
    let path = program.to_string_lossy();
    let path = path.strip_suffix(" (deleted)").unwrap_or(&path);
    match typed.contains('/') {
        true => path == typed,
        false => path.rsplit('/').next() == Some(typed),
    }
}

/// Whether a cgroup is that of a unit or below it. Without an ending the unit is a service.
fn is_of_unit(cgroup: &str, unit: &str) -> bool {
    let service = |part: &str| part.strip_suffix(".service") == Some(unit);
    cgroup.split('/').any(|part| part == unit || service(part))
}

fn exe(pid: Pid) -> PathBuf {
    format!("/proc/{}/exe", pid.0).into()
}

/// Paths of a process's cgroups: of version 2, and of systemd's hierarchy of version 1.
fn cgroups(pid: Pid) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{}/cgroup", pid.0)).unwrap_or_default();
    let paths = text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (kind, path) = (parts.next()?, parts.next()?);
        matches!(kind, "" | "name=systemd").then(|| path.to_owned())
    });
    paths.collect()
}

/// Looks for processes of targets.
#[derive(Debug)]
pub(super) struct Processes {
    targets: Vec<TargetConfig>,
    known: BTreeMap<Pid, Known>,
    looks: u64,
    /// The number that was given last.
    newest: Option<u32>,
}

impl Processes {
    pub(super) const fn new(targets: Vec<TargetConfig>) -> Self {
        Self {
            targets,
            known: BTreeMap::new(),
            looks: 0,
            newest: None,
        }
    }

    /// The groups of processes that run now.
    pub(super) fn look(&mut self) -> BTreeMap<Key, Found> {
        self.looks += 1;
        self.list();
        self.refresh();
        groups(&self.known, &self.targets)
    }

    /// Finds new processes.
    fn list(&mut self) {
        let newest = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let newest = newest.rsplit(' ').next();
        let newest: Option<u32> = newest.and_then(|it| it.trim_end().parse().ok());
        let since = match (self.newest, newest) {
            // What runs was given its number before, or starts anew.
            (Some(last), Some(newest)) => newest.checked_sub(last),
            _ => None,
        };
        let is_due = self.looks.is_multiple_of(RARELY);
        let is_first = self.newest.is_none();
        let own = Pid(std::process::id());
        let now: BTreeSet<Pid> = match (since, newest) {
            (Some(new @ ..=MOST_NEW), Some(newest)) if !is_due => {
                // A number that was given anew is that of another process.
                let new: BTreeSet<Pid> = (newest - new + 1..=newest).map(Pid).collect();
                self.known.retain(|pid, _| !new.contains(pid));
                // Threads have numbers, too.
                new.into_iter()
                    .filter(|pid| process::process_of(Tid(pid.0)) == Some(*pid))
                    .collect()
            }
            _ => {
                let all: BTreeSet<Pid> = process::all().into_iter().collect();
                self.known.retain(|pid, _| all.contains(pid));
                all
            }
        };
        self.newest = newest;
        for pid in now.into_iter().filter(|it| *it != own) {
            if !self.known.contains_key(&pid)
                && let Some(mut known) = Known::new(pid, &self.targets)
            {
                // Of those that ran before, most are no new ones.
                let has_settled = || process::age(pid, Tid(pid.0)).is_some_and(|it| it >= SETTLED);
                if is_first && has_settled() {
                    known.looks = FIRST_LOOKS;
                }
                self.known.insert(pid, known);
            }
        }
    }

    /// Looks again at processes that may have changed.
    fn refresh(&mut self) {
        let (round, targets) = (self.looks, &self.targets);
        self.known.retain(|pid, known| {
            let is_due_in = |looks| (u64::from(pid.0) + round).is_multiple_of(looks);
            let is_due = known.looks < FIRST_LOOKS || is_due_in(RARELY) || !known.of.is_empty();
            known.looks += 1;
            if !is_due {
                return true;
            }
            let looks = known.looks;
            // Its name and cgroup may be others.
            let is_whole = match looks <= FIRST_LOOKS {
                true => looks.is_power_of_two(),
                false => is_due_in(RARELY * SELDOM),
            };
            let is_same = || FileId::of(&exe(*pid)) == Some(known.file);
            if known.of.is_empty() && !is_whole && is_same() {
                return true;
            }
            let now = Known::new(*pid, targets).filter(|_| !process::is_zombie(*pid));
            now.is_some_and(|now| {
                *known = Known { looks, ..now };
                true
            })
        });
    }
}

fn groups(known: &BTreeMap<Pid, Known>, targets: &[TargetConfig]) -> BTreeMap<Key, Found> {
    let mut groups = BTreeMap::new();
    for (pid, it) in known {
        for target in it.of.iter().filter_map(|place| targets.get(*place)) {
            let group = groups
                .entry((target.name.clone(), it.file))
                .or_insert_with(|| Found {
                    program: it.program.clone(),
                    roots: Vec::new(),
                    all: BTreeSet::new(),
                });
            group.all.insert(*pid);
        }
    }
    for group in groups.values_mut() {
        let parent = |pid: &Pid| known.get(pid)?.parent;
        let is_root = |pid: &&Pid| {
            let mut ancestors = std::iter::successors(parent(pid), parent).take(MOST_ANCESTORS);
            !ancestors.any(|it| group.all.contains(&it))
        };
        group.roots = group.all.iter().filter(is_root).copied().collect();
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> TargetConfig {
        toml::from_str(&format!("name = \"t\"\n{text}")).unwrap()
    }

    fn known(program: &str, inode: u64, parent: u32) -> Known {
        Known {
            looks: 0,
            program: program.into(),
            file: FileId {
                device: (8, 1),
                inode,
            },
            name: "main".to_owned(),
            cgroups: vec!["/system.slice/app.service/worker".to_owned()],
            parent: Some(Pid(parent)),
            of: Vec::new(),
        }
    }

    /// All that is given has to hold; a replaced file has its old name.
    #[test]
    fn belongs() {
        let it = known("/usr/bin/app (deleted)", 1, 1);
        for (text, is) in [
            ("exe = \"app\"", true),
            ("exe = \"/usr/bin/app\"", true),
            ("exe = \"/bin/app\"", false),
            ("exe = \"ap\"", false),
            ("comm = \"main\"", true),
            ("comm = \"app\"", false),
            ("pid = 7", true),
            ("pid = 8", false),
            ("unit = \"app\"", true),
            ("unit = \"app.service\"", true),
            ("unit = \"worker.service\"", false),
            ("cgroup = \"/system.slice/app*\"", true),
            ("cgroup = \"/system.slice\"", false),
            ("exe = \"app\"\nunit = \"other\"", false),
        ] {
            assert_eq!(it.is_of(Pid(7), &target(text)), is, "{text}");
        }
    }

    /// Processes of a target are apart by their files, and those that descend from others are not roots, whatever runs between.
    #[test]
    fn grouped() {
        let all = BTreeMap::from([
            (Pid(10), known("/bin/app", 1, 1)),
            (Pid(11), known("/bin/sh", 9, 10)),
            (Pid(12), known("/bin/app", 1, 11)),
            (Pid(13), known("/bin/app", 1, 1)),
            (Pid(20), known("/bin/app", 2, 10)),
        ]);
        let targets = [target("exe = \"app\"")];
        let sorted = |(pid, it): (Pid, Known)| (pid, it.sorted(pid, &targets));
        let groups = groups(&all.into_iter().map(sorted).collect(), &targets);
        let roots = groups.values().map(|it| it.roots.clone());
        let roots: Vec<_> = roots.collect();
        assert_eq!(roots, [vec![Pid(10), Pid(13)], vec![Pid(20)]]);
        let (_, first) = groups.first_key_value().unwrap();
        assert_eq!(first.all.len(), 3);
    }

    /// A process is found when it comes and forgotten when it has ended; nothing new, and only its targets are looked at.
    #[test]
    fn looks() {
        let mut processes = Processes::new(vec![target("exe = \"sleep\"\ncomm = \"sleep\"")]);
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = Pid(child.id());
        let has = |groups: &BTreeMap<Key, Found>| groups.values().any(|it| it.all.contains(&pid));
        let came = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            has(&processes.look())
        });
        assert!(came);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!has(&processes.look()));
    }
}
