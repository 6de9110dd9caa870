//! Recordings of a cgroup and of a container.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pebs_tests::recording::Recorder;
use pebs_tests::workload::Workload;
use pebs_tests::{check, machine, need};

/// A cgroup for a test, with one of a container in it, removed at the end.
struct Cgroup {
    path: PathBuf,
    id: String,
}

impl Cgroup {
    /// Makes one below where version 2 is mounted.
    fn make(name: &str) -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mount = mounts.lines().find_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words.get(2) == Some(&"cgroup2")).then(|| words[1].to_owned())
        });
        let mount = mount.ok_or("needs a cgroup2 file system")?;
        let own = format!("pebs-trace-test-{}-{name}", std::process::id());
        let path = Path::new(&mount).join(own);
        // Tests that run at the same time have different ids.
        let id = format!(
            "{:08x}{:02x}{:054x}",
            std::process::id(),
            name.len(),
            0xf1e2
        );
        let cgroup = Self { path, id };
        fs::create_dir_all(cgroup.container())
            .map_err(|error| format!("needs a cgroup of its own: {error}"))?;
        Ok(cgroup)
    }

    /// As docker names it.
    fn container(&self) -> PathBuf {
        self.path.join(format!("docker-{}.scope", self.id))
    }

    fn enter(&self, pid: u32) {
        let procs = self.container().join("cgroup.procs");
        let entered = fs::write(procs, pid.to_string());
        assert!(entered.is_ok(), "{entered:?}");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Left behind if one of its processes does not end.
        let _ = fs::remove_dir(self.container());
        let _ = fs::remove_dir(&self.path);
    }
}

/// Processes of a cgroup below the one that is named are traced, those that run already and those that join it
/// later, and no others of the same program.
#[test]
fn processes_of_a_cgroup() {
    need!(machine::root());
    let cgroup = need!(Cgroup::make("cgroup"));
    recorded(&cgroup, &["--cgroup", &cgroup.path.display().to_string()]);
}

/// The same by the first letters of a container's id.
#[test]
fn processes_of_a_container() {
    need!(machine::root());
    let cgroup = need!(Cgroup::make("container"));
    recorded(&cgroup, &["--container", &cgroup.id[..40]]);
}

fn recorded(cgroup: &Cgroup, options: &[&str]) {
    let workload = Workload::build("plain");
    let mut first = workload.start(&["200"]);
    let mut other = workload.start(&["300"]);
    cgroup.enter(first.process.pid());
    let live = Recorder::new(&workload.spec(super::ID))
        .args(options)
        .start();
    let mut later = workload.start(&["250"]);
    cgroup.enter(later.process.pid());
    let inside = [first.process.pid(), later.process.pid()];
    let inside: BTreeSet<u64> = inside.into_iter().map(u64::from).collect();
    other.go();
    let _ = other.finish();
    first.go();
    let (_, truth) = first.finish();
    later.go();
    let (_, later_truth) = later.finish();
    let trace = live.stop().trace();
    check::no_mark_lost(&trace);
    let visits = trace.visits();
    let pids: BTreeSet<u64> = visits.iter().map(|visit| visit.pid).collect();
    assert_eq!(pids, inside);
    for visit in &visits {
        let is_first = visit.pid == u64::from(truth.items[0].pid);
        let truth = if is_first { &truth } else { &later_truth };
        check::within_truth(&trace, visit, truth.item(visit.item_id));
    }
    assert_eq!(visits.len(), 450);
    let of_others = trace.samples().iter().any(|it| !inside.contains(&it.tid));
    assert!(!of_others);
}
