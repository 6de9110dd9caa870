//! Intel's perfmon repository: `mapfile.csv` and one JSON file per kind of cores.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{List, PERFMON_COMMIT, json, mapfile, pattern, pinned};
use crate::shell;

/// Reads a checkout.
pub fn read(dir: &Path, unpinned: bool) -> Result<(String, Vec<List>)> {
    let mut git = Command::new("git");
    let commit = shell::output(git.arg("-C").arg(dir).args(["rev-parse", "HEAD"]))?;
    let commit = commit.trim();
    pinned("the commit", commit, PERFMON_COMMIT, unpinned)?;
    let mut files: BTreeMap<(String, &str), (String, Vec<String>)> = BTreeMap::new();
    for row in mapfile(&dir.join("mapfile.csv"))? {
        let [cpu, version, file, kind, rest @ ..] = row.as_slice() else {
            continue;
        };
        let role = rest.get(2).map_or("", String::as_str);
        let pmu = match (kind.as_str(), role) {
            ("core", _) => "cpu",
            ("hybridcore", "Core") => "cpu_core",
            ("hybridcore", "Atom") => "cpu_atom",
            ("hybridcore", "LowPower_Atom") => "cpu_lowpower",
            _ => continue,
        };
        let entry = files.entry((file.clone(), pmu)).or_default();
        entry.0.clone_from(version);
        entry.1.extend(pattern::cpus(cpu).unwrap_or_default());
    }
    let mut lists = Vec::new();
    for ((file, pmu), (version, cpus)) in files {
        let value = json(&dir.join(file.trim_start_matches('/')))?;
        let events = value["Events"].as_array().context("no Events")?.clone();
        let stem = file.rsplit('/').next().unwrap_or_default();
        let name = stem.split('_').next().unwrap_or_default().to_lowercase();
        lists.push(List {
            name,
            pmu: pmu.to_owned(),
            cpus,
            version: version.to_lowercase(),
            events,
            precise: HashMap::new(),
        });
    }
    Ok((format!("Intel perfmon {commit}"), lists))
}
