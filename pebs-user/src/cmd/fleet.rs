//! `pebs-trace explain --by`: what sets groups of many traces apart.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use bytesize::ByteSize;
use chrono::DateTime;

use super::{print_page, print_result};
use crate::compare::fleet::{FleetOptions, HOST, Member, fleet};
use crate::failure::{Context as _, Failure, Result};
use crate::lake::{Address, Filter, Lake, Remote, list};
use crate::out::fleet::text;
use crate::present::json;
use crate::store::reader::Trace;
use crate::store::run::RunInfo;
use crate::terminal::{self, say};

/// Folders between the one given and a trace, at most: those of an agent are `DIRECTORY/TARGET/TRACE`, with hosts above
/// them.
const DEPTH: usize = 4;

/// Compares the groups of the traces in a lake or a directory, as text or as JSON.
pub(super) fn run(root: &Path, options: &FleetOptions, as_json: bool) -> Result<ExitCode> {
    let lake = lake(root)?;
    let members = match &lake {
        Some(lake) => in_lake(lake, options)?,
        None => in_directory(root)?,
    };
    // Else there may be some of another time.
    if members.is_empty() && options.since.is_none() && options.until.is_none() {
        return Err(Failure::new(
            format!("there is no trace in {}", root.display()),
            "with --by, give a lake, or a directory that holds traces, as an agent writes them",
        ));
    }
    let found = fleet(&members, options)?;
    if let Some(lake) = &lake {
        let size = ByteSize(lake.bytes_read()).display().si();
        say!("read {size} of {}", root.display());
    }
    if as_json {
        let json = json::render(&found).context("cannot write the comparison as JSON")?;
        print_result(&json, "comparison")?;
    } else {
        print_page(&text::page(&found, terminal::width()), "comparison")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The lake of this address; `None`: it is a directory that holds traces.
fn lake(root: &Path) -> Result<Option<Arc<Lake>>> {
    let Some(address) = root.to_str().and_then(|it| it.parse::<Address>().ok()) else {
        return Ok(None);
    };
    let is_lake = address.folder().is_none_or(is_lake);
    let lake = is_lake.then(|| Lake::open(&address)).transpose()?;
    Ok(lake.map(Arc::new))
}

/// Whether a directory is a lake: what it has is sorted by tables.
fn is_lake(folder: &Path) -> bool {
    folder.join("traces").is_dir() && !folder.join("trace.json").exists()
}

/// The traces of a lake, without those that have no end.
fn in_lake<'a>(lake: &Arc<Lake>, options: &FleetOptions) -> Result<Vec<Member<'a>>> {
    let filter = Filter {
        since: options.since.map(DateTime::from_timestamp_nanos),
        until: options.until.map(DateTime::from_timestamp_nanos),
        host: None,
    };
    let mut members = Vec::new();
    for listed in list(lake, &filter)? {
        let name = format!(
            "{}#{}/{}",
            lake.address(),
            listed.host,
            listed.manifest.trace_id
        );
        let info = match serde_json::from_str::<RunInfo>(&listed.manifest.info) {
            Ok(info) => info,
            Err(error) => {
                say!("left out {name}: {error}");
                continue;
            }
        };
        let mut properties = properties(&info);
        properties.extend(listed.manifest.labels.clone());
        let target = listed.manifest.target.clone();
        properties.extend(target.map(|it| ("target".to_owned(), it)));
        properties.insert(HOST.to_owned(), listed.host.to_string());
        let lake = Arc::clone(lake);
        let manifest = &listed.manifest;
        let length = info.duration_ns.unwrap_or(0);
        let after = manifest.until_ns.map_or(0, |until| (length - until).max(0));
        let twice_ns = manifest.from_ns.clamp(0, length) + after;
        let member = member(name, &info, properties, move || {
            let opened = Remote::of(Arc::clone(&lake), &listed);
            Ok(opened.map_err(|error| error.to_string())?.0)
        });
        members.extend(member.map(|it| Member { twice_ns, ..it }));
    }
    Ok(members)
}

fn in_directory<'a>(root: &Path) -> Result<Vec<Member<'a>>> {
    let mut members = Vec::new();
    for dir in traces(root)? {
        let info = match Trace::open(&dir) {
            Ok(trace) => trace.info,
            Err(error) => {
                say!("left out {}: {error}", dir.display());
                continue;
            }
        };
        let mut properties = properties(&info);
        properties.extend(folders(&dir, root));
        let name = dir.display().to_string();
        members.extend(member(name, &info, properties, move || {
            Trace::open(&dir).map_err(|error| error.to_string())
        }));
    }
    Ok(members)
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
fn member<'a>(
    name: String,
    info: &RunInfo,
    properties: BTreeMap<String, String>,
    open: impl Fn() -> Result<Trace, String> + Send + Sync + 'a,
) -> Option<Member<'a>> {
    let duration = info.duration_ns.filter(|_| info.wall_clock_is_known())?;
    Some(Member {
        name,
        properties,
        begin_ns: info.wall_clock_ns,
        end_ns: info.wall_clock_ns.saturating_add(duration),
        twice_ns: 0,
        open: Box::new(open),
    })
}

/// Returns the machine's properties in `trace.json`.
fn properties(info: &RunInfo) -> BTreeMap<String, String> {
    let host = &info.host;
    let all = [
        (HOST, &host.name),
        ("kernel", &host.kernel),
        ("cpu", &host.cpu),
        ("pebs-trace", &info.tool_version),
    ];
    all.map(|(name, value)| (name.to_owned(), value.clone()))
        .into()
}

/// The folders between a directory and a trace in it.
fn folders(dir: &Path, root: &Path) -> Vec<(String, String)> {
    let below = dir.parent().and_then(|it| it.strip_prefix(root).ok());
    let folders = below.into_iter().flatten().enumerate();
    let named = folders.map(|(n, folder)| {
        let name = match n {
            0 => "folder".to_owned(),
            n => format!("folder{}", n + 1),
        };
        (name, folder.to_string_lossy().into_owned())
    });
    named.collect()
}
