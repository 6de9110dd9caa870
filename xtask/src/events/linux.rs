//! The copies of Intel's lists in Linux's `tools/perf/pmu-events`.
//!
//! Newer trees lack the precise flags of Ice Lake and later, so these come from an older one. An event in
//! neither has an unknown precision.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{LINUX_EVENTS, LINUX_PRECISE, List, json, mapfile, pattern, pinned};

const LISTS: &str = "tools/perf/pmu-events/arch/x86";

/// Fewer precise events than this in a list: it was made without the flags.
const FEWEST_FLAGS: usize = 2;

/// Events of one CPU by PMU.
type ByPmu = HashMap<String, Vec<Value>>;

/// Reads both trees.
pub fn read(events: &Path, precise: &Path, unpinned: bool) -> Result<(String, Vec<List>)> {
    for (dir, wanted) in [(events, LINUX_EVENTS), (precise, LINUX_PRECISE)] {
        pinned("the Linux tree", &release(dir)?, wanted, unpinned)?;
    }
    let mut lists = Vec::new();
    for row in mapfile(&events.join(LISTS).join("mapfile.csv"))? {
        let [pattern, version, name, kind, ..] = row.as_slice() else {
            continue;
        };
        let Some(cpus) = pattern::cpus(pattern).filter(|_| kind == "core") else {
            continue;
        };
        let mut older = cores(&precise.join(LISTS).join(name))?;
        for (pmu, events) in cores(&events.join(LISTS).join(name))? {
            let flags = flags(older.remove(&pmu).unwrap_or_default());
            lists.push(List {
                name: name.clone(),
                pmu,
                cpus: cpus.clone(),
                version: version.clone(),
                events,
                precise: flags,
            });
        }
    }
    let source = format!(
        "Intel's lists as in Linux {}, precise flags as in Linux {}",
        release(events)?,
        release(precise)?
    );
    Ok((source, lists))
}

/// Returns which events are precise, by name; empty if the list was made without these flags.
fn flags(events: Vec<Value>) -> HashMap<String, bool> {
    let precise = |event: &Value| event["PEBS"].as_str().is_some_and(|pebs| pebs != "0");
    if events.iter().filter(|event| precise(event)).count() < FEWEST_FLAGS {
        return HashMap::new();
    }
    let name = |event: &Value| event["EventName"].as_str().map(str::to_lowercase);
    events
        .iter()
        .filter_map(|event| Some((name(event)?, precise(event))))
        .collect()
}

/// Events of the cores in a folder; empty if it does not exist.
fn cores(dir: &Path) -> Result<ByPmu> {
    let mut all = ByPmu::new();
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
        .collect();
    files.sort();
    for file in files {
        let value = json(&file)?;
        // Beside the lists there are groups of metrics, which are no arrays.
        for event in value.as_array().into_iter().flatten() {
            let pmu = match event["Unit"].as_str() {
                None => "cpu",
                Some(unit @ ("cpu_core" | "cpu_atom" | "cpu_lowpower")) => unit,
                Some(_) => continue,
            };
            if event["EventName"].is_string() && event["MetricExpr"].is_null() {
                all.entry(pmu.to_owned()).or_default().push(event.clone());
            }
        }
    }
    Ok(all)
}

/// `7.2.13`, from the tree's Makefile.
fn release(dir: &Path) -> Result<String> {
    let path = dir.join("Makefile");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let number = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|line| line.trim().strip_prefix('='))
            .map(str::trim)
            .with_context(|| format!("{} has no {key}", path.display()))
    };
    Ok(format!(
        "{}.{}.{}",
        number("VERSION")?,
        number("PATCHLEVEL")?,
        number("SUBLEVEL")?
    ))
}
