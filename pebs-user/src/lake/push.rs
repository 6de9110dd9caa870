//! Brings a trace into a lake: its tables, then the manifest.

use std::collections::BTreeMap;
use std::path::Path;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::error::LakeError;
use super::layout::{Host, TraceId, hex, manifest_object, table_object};
use super::manifest::{Manifest, Object, count};
use super::store::{Lake, digest_of_file};
use crate::files::{open_regular, read_regular};
use crate::store::argument::ArgType;
use crate::store::joined::{Part, join, parts};
use crate::store::reader::{ReadError, Trace, TraceState, info_text};
use crate::store::recover::is_final;
use crate::store::run::RunInfo;
use crate::store::schema::measure;
use crate::store::table::Table;
use crate::store::view::{Select as _, View as _, columns};
use crate::watch::Watch;

/// Largest object that is sent in one request, which makes it only if there is none, bytes.
const LARGEST_AT_ONCE: u64 = 48 << 20;

/// Longest value of a label, bytes.
const LONGEST_LABEL: usize = 1024;

/// Description of a trace in a lake, beside the trace itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    /// The host; `None`: as the trace says.
    pub host: Option<Host>,
    pub target: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// The items that count; `None`: all.
    pub window: Option<Window>,
    /// Whether texts go out as they were recorded.
    pub with_texts: bool,
}

/// Part of a trace whose items no other one counts, ns of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub from_ns: i64,
    pub until_ns: Option<i64>,
    /// Items that began in it.
    pub items: u64,
}

impl Tags {
    /// Takes a label, as `KEY=VALUE`.
    ///
    /// # Errors
    /// It is none.
    pub fn label(&mut self, text: &str) -> Result<(), LakeError> {
        let (key, value) = text.split_once('=').unwrap_or_default();
        let plain = |it: char| it.is_ascii_alphanumeric() || "._-/".contains(it);
        let is_value = value.len() <= LONGEST_LABEL && !value.contains(char::is_control);
        if key.is_empty() || !key.chars().all(plain) || !is_value {
            return Err(LakeError::Name {
                text: text.to_owned(),
                what: "a label",
            });
        }
        self.labels.insert(key.to_owned(), value.to_owned());
        Ok(())
    }
}

/// Result of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    pub id: TraceId,
    pub host: Host,
    /// Objects that were made, the manifest among them.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects that were there already.
    pub there: u64,
}

/// Brings a trace into a lake. One that is there already, or in part, gets what is missing.
///
/// Cost: reads the trace once; holds 32 MiB of it.
///
/// # Errors
/// The trace is not complete, has texts that must not go out, or can't be read; or the store failed: what was brought
/// stays, and is no trace for readers until the manifest is there.
pub fn push(lake: &Lake, dir: &Path, tags: &Tags, watch: &Watch) -> Result<Pushed, LakeError> {
    let trace = Trace::open(dir)?;
    check(&trace, dir, tags)?;
    let info = info_text(dir).map_err(|source| LakeError::Io {
        what: format!("read trace.json of {}", dir.display()),
        source,
    })?;
    let id = TraceId::of(trace.info.wall_clock_ns, &info);
    let host = match &tags.host {
        Some(host) => host.clone(),
        None => trace.info.host.name.parse()?,
    };
    let mut pushed = Pushed {
        id: id.clone(),
        host: host.clone(),
        objects: 0,
        bytes: 0,
        there: 0,
    };
    let name = manifest_object(&host, &id);
    if let Some(file) = lake.get(&name)? {
        let there = Manifest::from_parquet(&lake.shown(&name), file)?;
        pushed.there = there.objects.len() as u64 + 1;
        return Ok(pushed);
    }
    let info = String::from_utf8_lossy(&info).into_owned();
    let mut manifest = Manifest::of(id.clone(), &trace.info, info);
    manifest.target.clone_from(&tags.target);
    manifest.labels.clone_from(&tags.labels);
    let mut work = Vec::new();
    for table in Table::ALL {
        let parts = parts(trace.segments(table))?;
        work.extend(
            parts
                .into_iter()
                .enumerate()
                .map(|(at, part)| (table, at + 1, part)),
        );
    }
    let rows = |of| {
        work.iter()
            .filter(|it| it.0 == of)
            .map(|it| it.2.rows)
            .sum::<u64>()
    };
    let window = match tags.window {
        Some(window) => window,
        None => Window {
            items: items(&trace, rows(Table::Visits))?,
            ..Window::default()
        },
    };
    manifest.items = count(window.items);
    (manifest.from_ns, manifest.until_ns) = (window.from_ns, window.until_ns);
    manifest.samples = count(samples(&trace.info).unwrap_or(rows(Table::Samples)));
    let all = work.iter().map(|it| it.2.bytes).sum();
    let mut done = 0;
    for (table, number, part) in &work {
        watch.report(&format!("pushing {}", table.name()), done, all);
        let name = table_object(*table, &host, &id, *number);
        let object = bring(lake, name, *table, part, &mut pushed)?;
        manifest.bytes += object.bytes;
        manifest.objects.push(object);
        done += part.bytes;
    }
    let file = manifest.to_parquet()?;
    let bytes = file.len() as u64;
    // If somebody else was faster, it is the same trace.
    pushed.count(lake.put(&name, file.into())?, bytes);
    Ok(pushed)
}

impl Pushed {
    const fn count(&mut self, is_new: bool, bytes: u64) {
        if is_new {
            self.objects += 1;
            self.bytes += bytes;
        } else {
            self.there += 1;
        }
    }
}

/// Makes the object of a part, unless it is there.
fn bring(
    lake: &Lake,
    name: String,
    table: Table,
    part: &Part,
    pushed: &mut Pushed,
) -> Result<Object, LakeError> {
    let object = |bytes: u64, sha256| Object {
        table,
        name: name.clone(),
        rows: count(part.rows),
        bytes: count(bytes),
        sha256,
    };
    if let [segment] = &*part.segments
        && part.bytes > LARGEST_AT_ONCE
    {
        let opened = open_regular(segment);
        let file = opened.map_err(|source| LakeError::Io {
            what: format!("read {}", segment.display()),
            source,
        })?;
        let sha256 = digest_of_file(&file, segment)?;
        let is_new = !is_there(lake, &name, part.bytes, &sha256)?;
        if is_new {
            lake.put_file(&name, &file, part.bytes)?;
        }
        pushed.count(is_new, part.bytes);
        return Ok(object(part.bytes, sha256));
    }
    let file = match &*part.segments {
        [segment] => read_regular(segment, LARGEST_AT_ONCE).map_err(|source| LakeError::Io {
            what: format!("read {}", segment.display()),
            source,
        })?,
        segments => join(segments)?,
    };
    let (bytes, sha256) = (file.len() as u64, hex(digest(&SHA256, &file).as_ref()));
    let file = bytes::Bytes::from(file);
    let mut is_new = lake.put(&name, file.clone())?;
    if !is_new && !is_there(lake, &name, bytes, &sha256)? {
        // Another version of this program made it of the same trace, and no manifest names it.
        lake.replace(&name, file)?;
        is_new = true;
    }
    pushed.count(is_new, bytes);
    Ok(object(bytes, sha256))
}

/// Whether there is this object.
fn is_there(lake: &Lake, name: &str, bytes: u64, sha256: &str) -> Result<bool, LakeError> {
    if lake.size(name)? != Some(bytes) {
        return Ok(false);
    }
    let found = lake.digest(name)?;
    Ok(found.is_some_and(|it| it == (bytes, sha256.to_owned())))
}

fn samples(info: &RunInfo) -> Option<u64> {
    Some(info.ledger.as_ref()?.totals().samples.written)
}

columns! {
    struct Durations of function_stats { measure, visits_with }
}

/// Items of a trace with this number of visits: where those are the kept ones alone, the items in its sums.
fn items(trace: &Trace, visits: u64) -> Result<u64, ReadError> {
    if trace.info.keep.is_none() {
        return Ok(visits);
    }
    let mut items = 0;
    for batch in Durations::scan(trace)? {
        let batch = batch?;
        let columns = Durations::of(&batch)?;
        let rows = 0..batch.num_rows();
        let durations = rows.filter(|row| columns.measure.get(*row) == measure::DURATION);
        items += durations.map(|row| columns.visits_with[row]).sum::<u64>();
    }
    Ok(items)
}

/// Whether a trace may be brought: it does not change any more, and its texts may go out.
fn check(trace: &Trace, dir: &Path, tags: &Tags) -> Result<(), LakeError> {
    let refused = |why: &str, hint: String| {
        Err(LakeError::Refused {
            trace: dir.to_owned(),
            why: why.to_owned(),
            hint,
        })
    };
    if trace.state() == TraceState::Live {
        return refused(
            "it is being written",
            "push it when the recording has ended, or a snapshot of it".to_owned(),
        );
    }
    if !trace.open_segments().is_empty() || !is_final(&trace.info) {
        let hint = format!("pebs-trace recover {}", dir.display());
        return refused("it was not finished", hint);
    }
    let texts = trace
        .info
        .columns
        .iter()
        .filter(|it| it.r#type == ArgType::Str);
    let open: Vec<&str> = texts
        .map(|it| it.name.as_str())
        .filter(|name| !trace.info.redacted.contains_key(*name))
        .collect();
    if !open.is_empty() && !tags.with_texts {
        return refused(
            &format!(
                "it has texts of requests that are not redacted: {}",
                open.join(", ")
            ),
            format!(
                "record with --redact {}=RULE ('pebs-trace guide presets'); --with-texts pushes them as they are",
                open[0]
            ),
        );
    }
    Ok(())
}
