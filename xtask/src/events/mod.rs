//! `cargo xtask events`: makes the table of Intel's events that is built into the program.
//!
//! The table (`pebs-user/data/events/intel.tsv.zst`) is committed, so that a build fetches nothing. Its
//! text form is described in `pebs-user/src/pmu/table.rs`, which reads it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell;

mod linux;
mod pattern;
mod perfmon;
mod row;

/// The commit of Intel's perfmon repository that tables are made from.
const PERFMON_COMMIT: &str = "6dadedf3aa483393943e044ba5ec88a4507cd040";

/// The Linux release with the copy of Intel's lists.
const LINUX_EVENTS: &str = "7.2.13";

/// The Linux release with the precise flags of Ice Lake and later.
const LINUX_PRECISE: &str = "6.12.117";

/// An event that CPUs have but Intel's lists lack: the one with which the method was published.
///
/// Skylake's kernel code takes any event with PEBS, and libpfm knows this one as precise.
/// Source: arch/x86/events/intel/ds.c (`intel_skl_pebs_event_constraints`).
const LEFT_OUT: (&[&str], &str) = (
    &["skylake", "skylakex", "cascadelakex"],
    r#"{"EventName": "UOPS_RETIRED.ALL", "EventCode": "0xC2", "UMask": "0x01", "PEBS": "1",
        "Counter": "0,1,2,3", "BriefDescription": "Actually retired uops (not in Intel's list for this CPU)"}"#,
);

/// Options of the task
#[derive(clap::Args)]
pub struct Args {
    /// Checkout of Intel's perfmon repository, at the pinned commit
    #[arg(long, value_name = "DIR", required_unless_present = "linux")]
    perfmon: Option<PathBuf>,
    /// Source tree of Linux 7.2.13 (Debian: linux-source-7.2), whose lists are copies of Intel's
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with = "perfmon",
        requires = "precise"
    )]
    linux: Option<PathBuf>,
    /// Source tree of Linux 6.12.117 (Debian: linux-source-6.12), which has the precise flags
    #[arg(long, value_name = "DIR")]
    precise: Option<PathBuf>,
    /// Accept a commit or release other than the pinned one
    #[arg(long)]
    unpinned: bool,
    /// Write here instead of into the tree
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The events of one kind of cores, before they are packed.
struct List {
    /// The vendor's name of the CPU, as in its file names.
    name: String,
    /// PMU that has them: `cpu`, or one of a hybrid CPU.
    pmu: String,
    /// CPUs: `FAMILY-MODEL` or `FAMILY-MODEL-STEPPINGS`, hexadecimal.
    cpus: Vec<String>,
    /// The list's version.
    version: String,
    /// The vendor's objects.
    events: Vec<Value>,
    /// Precise flag of each event, by its name in lower case, for lists without these flags.
    precise: HashMap<String, bool>,
}

/// Makes the table.
pub fn main(args: &Args) -> Result<()> {
    let (source, lists) = match (&args.perfmon, &args.linux, &args.precise) {
        (Some(dir), ..) => perfmon::read(dir, args.unpinned)?,
        (None, Some(events), Some(precise)) => linux::read(events, precise, args.unpinned)?,
        _ => bail!("give --perfmon, or --linux with --precise"),
    };
    let (text, rows) = table(&source, lists)?;
    let output = args
        .output
        .clone()
        .unwrap_or_else(|| shell::workspace().join("pebs-user/data/events/intel.tsv.zst"));
    let packed = zstd::encode_all(text.as_bytes(), 22)?;
    std::fs::write(&output, &packed)
        .with_context(|| format!("cannot write {}", output.display()))?;
    println!(
        "{}: {rows} events, {} bytes of text, {} packed",
        output.display(),
        text.len(),
        packed.len()
    );
    Ok(())
}

/// The table's text and the number of events in it.
fn table(source: &str, mut lists: Vec<List>) -> Result<(String, usize)> {
    lists.sort_by(|a, b| (&a.name, &a.pmu).cmp(&(&b.name, &b.pmu)));
    let mut text = format!("# {source}\n");
    let mut rows = 0;
    for list in &mut lists {
        let (cpus, event) = LEFT_OUT;
        if cpus.contains(&list.name.as_str()) {
            list.events.push(serde_json::from_str(event)?);
        }
        rows += row::write(&mut text, list)
            .with_context(|| format!("events of {} {}", list.name, list.pmu))?;
    }
    Ok((text, rows))
}

/// Reads a JSON file.
fn json(path: &Path) -> Result<Value> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is no JSON", path.display()))
}

/// Rows of a `mapfile.csv` without its head line.
fn mapfile(path: &Path) -> Result<Vec<Vec<String>>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let rows = text.lines().skip(1).filter(|line| !line.trim().is_empty());
    Ok(rows
        .map(|line| line.split(',').map(|cell| cell.trim().to_owned()).collect())
        .collect())
}

fn pinned(what: &str, found: &str, wanted: &str, unpinned: bool) -> Result<()> {
    if found != wanted && !unpinned {
        bail!("{what} is {found}, but the table is made from {wanted}; --unpinned takes it");
    }
    Ok(())
}
