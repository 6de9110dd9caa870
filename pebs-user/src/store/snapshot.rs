//! A copy of a trace that is still being written, as a trace of its own.
//!
//! Closed segments are never changed, so they become links where the file system has them; open ones are copied up to
//! what was flushed, and closed there.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::files::{INFO_FILE, Owner};
use super::recover::{RecoverError, close_tables};
use super::run::RunInfo;
use super::segment_files::SegmentFiles;
use super::table::Table;
use super::write_error::WriteError;
use crate::units::TraceNs;

/// The first name that is free: the trace's, with a number behind it.
#[must_use]
pub fn next_name(trace: &Path) -> PathBuf {
    let with = |number: u32| {
        let mut name = trace.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    let mut names = (1..).map(with);
    names.find(|it| !it.exists()).unwrap_or_else(|| with(0))
}

/// Writes a trace of which nothing is written meanwhile to a new directory, with that length.
///
/// # Errors
/// The directory exists, or can't be written.
pub fn write(from: &Path, to: &Path, info: &RunInfo, length: TraceNs) -> Result<(), RecoverError> {
    let owner = Owner::of_process();
    let at = |path: &Path| {
        let path = path.to_owned();
        move |error| WriteError::io(&path, error)
    };
    let made = owner.make_dir(to).map_err(at(to))?;
    let to = made.path();
    let mut info = info.clone();
    info.duration_ns = Some(length.0);
    info.notes.push(format!(
        "a snapshot after {:.3} s: the recording went on, and what it lost is not known here",
        length.0 as f64 / 1e9
    ));
    for table in Table::ALL {
        let source = from.join(table.name());
        let folder = to.join(table.name());
        let held = owner.make_dir(&folder).map_err(at(&folder))?;
        let files = SegmentFiles::list(&source).map_err(at(&source))?;
        for path in files.closed.values() {
            let name = held.path().join(path.file_name().unwrap_or_default());
            if fs::hard_link(path, &name).is_err() {
                copy(path, &name, owner).map_err(at(&name))?;
            }
        }
        for path in files.open.values() {
            let name = held.path().join(path.file_name().unwrap_or_default());
            copy(path, &name, owner).map_err(at(&name))?;
        }
    }
    close_tables(&to, &info, owner)?;
    owner
        .write_info(&to, &info)
        .map_err(at(&to.join(INFO_FILE)))?;
    Ok(())
}

fn copy(from: &Path, to: &Path, owner: Owner) -> io::Result<u64> {
    io::copy(&mut File::open(from)?, &mut owner.make_file(to)?)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::rows::{self, info};
    use super::super::options::WriterOptions;
    use super::super::reader::Trace;
    use super::super::writer::TraceWriter;
    use super::*;

    /// A snapshot has the rows of closed and of open segments, and the trace goes on.
    #[test]
    fn of_an_open_trace() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("trace");
        let mut writer = TraceWriter::create(&dir, &info(), WriterOptions::default()).unwrap();
        rows::write(&mut writer, 0, 10).unwrap();
        writer.tick(std::time::Duration::from_secs(10)).unwrap();
        writer.flush_all().unwrap();
        let first = next_name(&dir);
        write(&dir, &first, &info(), TraceNs(7)).unwrap();
        rows::write(&mut writer, 10, 20).unwrap();
        writer.flush_all().unwrap();
        let second = next_name(&dir);
        assert!(first.ends_with("trace.1") && second.ends_with("trace.2"));
        write(&dir, &second, &info(), TraceNs(8)).unwrap();
        for (path, visits, length) in [(&first, 10, 7), (&second, 20, 8)] {
            let trace = Trace::open(path).unwrap();
            assert_eq!(trace.rows(Table::Visits).unwrap(), visits);
            assert_eq!(trace.info.duration_ns, Some(length));
            assert!(trace.remark().is_none());
        }
        // An existing directory is not touched.
        assert!(write(&dir, &first, &info(), TraceNs(9)).is_err());
        writer.finish(&rows::complete()).unwrap();
        assert_eq!(Trace::open(&dir).unwrap().rows(Table::Visits).unwrap(), 20);
    }
}
