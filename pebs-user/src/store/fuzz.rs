//! Hostile files of a trace, for [`crate::fuzz`].

use std::fs;
use std::path::Path;

use super::files::{INFO_FILE, LOCK_FILE};
use super::reader::Trace;
use super::recover::recover;
use super::run::RunInfo;
use super::schema::{ArgColumn, ArgType, SCHEMA_VERSION, Table};
use super::segment_files::{closed_path, open_path};

/// The run that the corpus was recorded in: `n=arg1, delta=arg2:i32, key=str(arg3)`.
fn run_info() -> RunInfo {
    let column = |name: &str, kind| ArgColumn {
        name: name.to_owned(),
        r#type: kind,
    };
    RunInfo {
        schema_version: SCHEMA_VERSION,
        columns: vec![
            column("n", ArgType::U64),
            column("delta", ArgType::I64),
            column("key", ArgType::Str),
        ],
        ..RunInfo::default()
    }
}

/// Creates a trace without segments in `dir`. `None` on an I/O error.
fn empty_trace(dir: &Path) -> Option<()> {
    for table in Table::ALL {
        let folder = dir.join(table.name());
        let _ = fs::create_dir(&folder);
        for entry in fs::read_dir(&folder).ok()? {
            fs::remove_file(entry.ok()?.path()).ok()?;
        }
    }
    let _ = fs::remove_file(dir.join(LOCK_FILE));
    fs::write(dir.join(INFO_FILE), serde_json::to_vec(&run_info()).ok()?).ok()
}

/// Reads every column of every table.
fn scan(dir: &Path) {
    let Ok(trace) = Trace::open(dir) else { return };
    for table in Table::ALL {
        let _ = trace.rows(table);
        let schema = trace.schema(table);
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        if let Ok(scan) = trace.scan(table, &names) {
            for batch in scan {
                drop(batch);
            }
        }
    }
}

/// The table selected by the first byte of an input, and the other bytes.
fn chosen(data: &[u8]) -> Option<(Table, &[u8])> {
    let (first, rest) = data.split_first()?;
    Some((Table::ALL[usize::from(*first) % Table::ALL.len()], rest))
}

/// `trace.json`.
pub fn info(data: &[u8], dir: &Path) {
    if empty_trace(dir).is_some() && fs::write(dir.join(INFO_FILE), data).is_ok() {
        scan(dir);
    }
}

/// A Parquet file.
pub fn closed_segment(data: &[u8], dir: &Path) {
    if let Some((table, bytes)) = chosen(data)
        && empty_trace(dir).is_some()
        && fs::write(closed_path(&dir.join(table.name()), 0), bytes).is_ok()
    {
        scan(dir);
    }
}

/// A Parquet file that grows by row groups and ends anywhere.
pub fn open_segment(data: &[u8], dir: &Path) {
    if let Some((table, bytes)) = chosen(data)
        && empty_trace(dir).is_some()
        && fs::write(open_path(&dir.join(table.name()), 0), bytes).is_ok()
        && recover(dir).is_ok()
    {
        assert_eq!(
            recover(dir).ok(),
            Some(Default::default()),
            "nothing is left to do"
        );
        scan(dir);
    }
}
