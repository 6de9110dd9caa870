//! A trace in a lake, read like one in a directory: of its objects no more is fetched than what is read.
//!
//! Each object is a sparse file of its size in a temporary directory, and what a reader is about to read is fetched into it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tempfile::TempDir;

use super::address::Address;
use super::error::LakeError;
use super::layout::{Host, TraceId};
use super::list::{Listed, find};
use super::store::Lake;
use crate::store::reader::{Source, Trace};
use crate::store::table::Table;

/// Bytes at the end of an object that are fetched first: more than the footers of most have.
const END: u64 = 16 << 10;

/// Separates the address of a lake from a trace in it.
const MARK: char = '#';

/// Address of a trace in a lake: `LAKE#HOST/TRACE-ID`, or `LAKE#TRACE-ID`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceAddress {
    lake: Address,
    host: Option<Host>,
    id: TraceId,
}

impl TraceAddress {
    /// `None`: it is the path of a directory.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let (lake, rest) = path.to_str()?.rsplit_once(MARK)?;
        let (host, id) = match rest.split_once('/') {
            Some((host, id)) => (Some(host.parse().ok()?), id),
            None => (None, rest),
        };
        Some(Self {
            lake: lake.parse().ok()?,
            host,
            id: id.parse().ok()?,
        })
    }
}

/// Local copy of the parts of a trace's objects that were read.
#[derive(Debug)]
pub struct Remote {
    lake: Arc<Lake>,
    #[expect(dead_code, reason = "held, not read")]
    place: TempDir,
    files: Mutex<BTreeMap<PathBuf, Fetched>>,
    /// Bytes of all objects.
    bytes: u64,
}

/// Fetched parts of an object.
#[derive(Debug)]
struct Fetched {
    name: String,
    bytes: u64,
    ranges: Vec<Range<u64>>,
}

impl Fetched {
    /// Returns a range that holds all that is not here of this one; it can have more.
    fn missing(&self, wanted: Range<u64>) -> Range<u64> {
        self.ranges
            .iter()
            .fold(wanted, |Range { start, end }, here| {
                match (here.contains(&start), here.start < end && end <= here.end) {
                    (true, true) => end..end,
                    (true, false) => here.end.min(end)..end,
                    (false, true) => start..here.start,
                    (false, false) => start..end,
                }
            })
    }
}

impl Remote {
    /// Opens a trace: reads its manifest.
    ///
    /// # Errors
    /// There is none, or the store failed.
    pub fn open(address: &TraceAddress) -> Result<(Trace, Arc<Self>), LakeError> {
        let lake = Lake::open(&address.lake)?;
        let listed = find(&lake, address.host.as_ref(), &address.id)?;
        Self::of(Arc::new(lake), &listed)
    }

    /// Opens a trace whose manifest was read.
    ///
    /// # Errors
    /// The manifest is damaged, or there is no room for a part of the trace here.
    pub fn of(lake: Arc<Lake>, listed: &Listed) -> Result<(Trace, Arc<Self>), LakeError> {
        let Listed { host, manifest } = listed;
        let shown = format!("{}{MARK}{host}/{}", lake.address(), manifest.trace_id);
        let io = |source| LakeError::Io {
            what: format!("keep a part of {shown} here"),
            source,
        };
        let place = tempfile::Builder::new()
            .prefix("pebs-trace-lake-")
            .tempdir()
            .map_err(io)?;
        fs::write(place.path().join("trace.json"), &manifest.info).map_err(io)?;
        for table in Table::ALL {
            fs::create_dir(place.path().join(table.name())).map_err(io)?;
        }
        let (mut files, mut numbers) = (BTreeMap::new(), BTreeMap::new());
        for object in &manifest.objects {
            let number: &mut u32 = numbers.entry(object.table.name()).or_default();
            let path = place
                .path()
                .join(object.table.name())
                .join(format!("{number:06}.parquet"));
            *number += 1;
            let bytes = object.bytes.unsigned_abs();
            File::create(&path)
                .and_then(|it| it.set_len(bytes))
                .map_err(io)?;
            let fetched = Fetched {
                name: object.name.clone(),
                bytes,
                ranges: Vec::new(),
            };
            files.insert(path, fetched);
        }
        let mut trace = Trace::open(place.path())?;
        let remote = Arc::new(Self {
            lake,
            place,
            files: Mutex::new(files),
            bytes: manifest.bytes.unsigned_abs(),
        });
        trace.come_from(shown.into(), Arc::clone(&remote) as _);
        Ok((trace, remote))
    }

    /// Bytes that were read so far, and of all objects.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.lake.bytes_read(), self.bytes)
    }

    fn fetch(&self, path: &Path, fetched: &mut Fetched, wanted: &[Range<u64>]) -> io::Result<()> {
        let missing = wanted.iter().cloned().map(|it| fetched.missing(it));
        let missing: Vec<Range<u64>> = missing.filter(|it| !it.is_empty()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        if missing.iter().any(|it| it.end > fetched.bytes) {
            return Err(damaged("its footer names what is behind its end"));
        }
        let got = self
            .lake
            .ranges(&fetched.name, &missing)
            .map_err(io::Error::other)?;
        let file = File::options().write(true).open(path)?;
        for (range, bytes) in missing.into_iter().zip(got) {
            if bytes.len() as u64 != range.end - range.start {
                return Err(damaged("the store has less of it than its manifest says"));
            }
            file.write_all_at(&bytes, range.start)?;
            fetched.ranges.push(range);
        }
        Ok(())
    }

    fn with(
        &self,
        path: &Path,
        work: impl FnOnce(&mut Fetched) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        match files.get_mut(path) {
            Some(fetched) => work(fetched),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl Source for Remote {
    fn footer(&self, path: &Path) -> io::Result<()> {
        self.with(path, |fetched| {
            let bytes = fetched.bytes;
            let end = bytes.saturating_sub(END)..bytes;
            self.fetch(path, fetched, std::slice::from_ref(&end))?;
            let mut length = [0; 4];
            let Some(at) = bytes.checked_sub(8) else {
                return Ok(());
            };
            File::open(path)?.read_exact_at(&mut length, at)?;
            // Where it is longer than the end.
            let footer = at.saturating_sub(u32::from_le_bytes(length).into());
            let rest = footer..footer.max(end.start);
            self.fetch(path, fetched, std::slice::from_ref(&rest))
        })
    }

    fn ranges(&self, path: &Path, ranges: &[Range<u64>]) -> io::Result<()> {
        self.with(path, |fetched| self.fetch(path, fetched, ranges))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that are here at an end of a range, or all of it, are not fetched again.
    #[test]
    fn ranges() {
        let here = Fetched {
            name: String::new(),
            bytes: 100,
            ranges: vec![80..100, 10..20],
        };
        for (wanted, missing) in [
            (80..100, 0),
            (85..90, 0),
            (0..10, 10),
            (60..90, 20),
            (15..40, 20),
            (15..90, 60),
            (5..95, 75),
            (30..40, 10),
            (5..30, 25),
        ] {
            let rest = here.missing(wanted.clone());
            assert_eq!(rest.end - rest.start, missing, "{wanted:?}: {rest:?}");
        }
    }

    /// An address names a lake and a trace; what is no id is a path.
    #[test]
    fn addresses() {
        let id = "20260301T030000Z-0123456789abcdef";
        let of = |text: &str| TraceAddress::of(text.as_ref());
        let whole = of(&format!("s3://b/p#web-1/{id}")).unwrap();
        assert_eq!(
            (whole.lake.to_string(), whole.id.to_string()),
            ("s3://b/p".to_owned(), id.to_owned())
        );
        assert_eq!(whole.host.unwrap().to_string(), "web-1");
        assert_eq!(of(&format!("a#b#{id}")).unwrap().lake.to_string(), "a#b");
        for text in [
            id,
            "t",
            "a#b",
            &format!("a#../{id}"),
            &format!("ftp://x#{id}"),
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
