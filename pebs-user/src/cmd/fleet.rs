//! `pebs-trace explain --by`: what sets groups of many traces apart.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::{print_page, print_result};
use crate::compare::fleet::{FleetOptions, HOST, Member, fleet};
use crate::failure::{Context as _, Failure, Result};
use crate::out::fleet::text;
use crate::present::json;
use crate::store::reader::{ReadError, Trace};
use crate::store::run::RunInfo;
use crate::terminal::{self, say};

/// Folders between the one given and a trace, at most: those of an agent are `DIRECTORY/TARGET/TRACE`, with hosts above
/// them.
const DEPTH: usize = 4;

/// Compares the groups of the traces in a directory, as text or as JSON.
pub(super) fn run(root: &Path, options: &FleetOptions, as_json: bool) -> Result<ExitCode> {
    let mut members = Vec::new();
    for dir in traces(root)? {
        match member(&dir, root) {
            Ok(found) => members.extend(found),
            Err(error) => say!("left out {}: {error}", dir.display()),
        }
    }
    if members.is_empty() {
        return Err(Failure::new(
            format!("there is no trace in {}", root.display()),
            "with --by, give a directory that holds traces, as an agent writes them",
        ));
    }
    let found = fleet(&members, options)?;
    if as_json {
        let json = json::render(&found).context("cannot write the comparison as JSON")?;
        print_result(&json, "comparison")?;
    } else {
        print_page(&text::page(&found, terminal::width()), "comparison")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Directories of traces in a directory, at any depth up to [`DEPTH`].
fn traces(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![(root.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        if folder.join("trace.json").is_file() {
            found.push(folder);
            continue;
        }
        if depth == DEPTH {
            continue;
        }
        let entries = fs::read_dir(&folder);
        let entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read {}", folder.display()))?;
            // Links are not followed: there may be circles.
            if entry.file_type().is_ok_and(|it| it.is_dir()) {
                folders.push((entry.path(), depth + 1));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A trace with its properties; `None`: it is being written, or its time of day is unknown.
fn member<'a>(dir: &Path, root: &Path) -> Result<Option<Member<'a>>, ReadError> {
    let trace = Trace::open(dir)?;
    let info = &trace.info;
    let (true, Some(duration)) = (info.wall_clock_is_known(), info.duration_ns) else {
        return Ok(None);
    };
    let at = dir.to_owned();
    Ok(Some(Member {
        name: dir.display().to_string(),
        properties: properties(info, dir, root),
        begin_ns: info.wall_clock_ns,
        end_ns: info.wall_clock_ns.saturating_add(duration),
        open: Box::new(move || Trace::open(&at)),
    }))
}

/// What sets a trace apart: its machine, and the folders in which it lies.
fn properties(info: &RunInfo, dir: &Path, root: &Path) -> BTreeMap<String, String> {
    let host = &info.host;
    let mut all = BTreeMap::from([
        (HOST.to_owned(), host.name.clone()),
        ("kernel".to_owned(), host.kernel.clone()),
        ("cpu".to_owned(), host.cpu.clone()),
        ("pebs-trace".to_owned(), info.tool_version.clone()),
    ]);
    let below = dir.parent().and_then(|it| it.strip_prefix(root).ok());
    for (n, folder) in below.into_iter().flatten().enumerate() {
        let name = match n {
            0 => "folder".to_owned(),
            n => format!("folder{}", n + 1),
        };
        all.insert(name, folder.to_string_lossy().into_owned());
    }
    all
}
