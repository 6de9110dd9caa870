//! The complete part of a Parquet file that grows by row groups and may end anywhere.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Take};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};

use super::thrift::is_footer;

/// End of a footer: its length, and the format's magic.
const TAIL: u64 = 8;

/// Maximum bytes of a footer: ours have at most 32 row groups.
const FOOTER_MAX: u64 = 4 << 20;

/// Bytes looked through at once for the end of a footer.
const WINDOW: u64 = 1 << 20;

/// The first bytes of a file.
#[derive(Clone)]
pub(super) struct Prefix {
    file: Arc<File>,
    bytes: u64,
}

impl Prefix {
    /// The file up to its last valid footer; `None` without one.
    pub(super) fn whole_parquet(file: File) -> io::Result<Option<Self>> {
        let end = file.metadata()?.len();
        Self::up_to(Arc::new(file), end)
    }

    /// The file up to the valid footer before its last one.
    pub(super) fn earlier(&self) -> io::Result<Option<Self>> {
        Self::up_to(Arc::clone(&self.file), self.bytes - 1)
    }

    /// The file up to the last valid footer that ends before or at `end`.
    fn up_to(file: Arc<File>, mut end: u64) -> io::Result<Option<Self>> {
        while end > TAIL {
            let start = end.saturating_sub(WINDOW);
            let mut window = vec![0; (end - start) as usize];
            file.read_exact_at(&mut window, start)?;
            let magics = window.windows(4).enumerate().rev();
            for (at, _) in magics.filter(|(_, word)| word == b"PAR1") {
                let bytes = start + at as u64 + 4;
                if has_footer_at(&file, bytes)? {
                    return Ok(Some(Self { file, bytes }));
                }
            }
            if start == 0 {
                break;
            }
            // A magic cut by the start of the window is found in the next one.
            end = start + 3;
        }
        Ok(None)
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Number of bytes.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Whether the bytes before `end` are a footer whose row groups are all before it.
fn has_footer_at(file: &File, end: u64) -> io::Result<bool> {
    let Some(tail) = end.checked_sub(TAIL) else {
        return Ok(false);
    };
    let mut length = [0; 4];
    file.read_exact_at(&mut length, tail)?;
    let length = u64::from(u32::from_le_bytes(length));
    let begin = tail.checked_sub(length);
    let Some(begin) = begin.filter(|_| length <= FOOTER_MAX) else {
        return Ok(false);
    };
    let mut footer = vec![0; length as usize];
    file.read_exact_at(&mut footer, begin)?;
    if !is_footer(&footer) {
        return Ok(false);
    }
    let decode = || ParquetMetaDataReader::decode_metadata(&footer);
    // The decoder checks lengths, but panics on some bytes that are no footer.
    let decoded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode));
    Ok(matches!(decoded, Ok(Ok(metadata)) if lies_before(&metadata, begin) && adds_up(&metadata)))
}

/// Whether redundant data of a footer agree: if not, bits have flipped on the disk, and an earlier footer is used.
fn adds_up(metadata: &ParquetMetaData) -> bool {
    let rows = metadata.row_groups().iter().map(|group| group.num_rows());
    let all_rows = rows.fold(0, i64::saturating_add);
    let is_whole = |group: &RowGroupMetaData| {
        let columns = group.columns();
        let values = columns
            .iter()
            .filter(|it| it.column_descr().max_rep_level() == 0)
            .all(|it| it.num_values() == group.num_rows());
        // They are adjacent.
        let joined = columns.windows(2).all(|pair| {
            let (start, length) = pair[0].byte_range();
            pair[1].byte_range().0 == start.saturating_add(length)
        });
        let sizes = columns.iter().map(|it| it.compressed_size());
        let begin = columns.first().map(|first| first.byte_range().0);
        let offset = group.file_offset().and_then(|it| u64::try_from(it).ok());
        let all_sizes = sizes.fold(0, i64::saturating_add);
        values && joined && begin == offset && all_sizes == group.total_byte_size()
    };
    all_rows == metadata.file_metadata().num_rows() && metadata.row_groups().iter().all(is_whole)
}

fn lies_before(metadata: &ParquetMetaData, end: u64) -> bool {
    let mut columns = metadata.row_groups().iter().flat_map(|g| g.columns());
    columns.all(|column| {
        let data = column.data_page_offset();
        let start = column.dictionary_page_offset().unwrap_or(data).min(data);
        let bounds = (
            u64::try_from(start),
            u64::try_from(column.compressed_size()),
        );
        let (Ok(start), Ok(length)) = bounds else {
            return false;
        };
        start.checked_add(length).is_some_and(|last| last <= end)
    })
}

impl Length for Prefix {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for Prefix {
    type T = Take<BufReader<File>>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(start))?;
        let rest = self.bytes.saturating_sub(start);
        Ok(BufReader::new(file).take(rest))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let rest = self.bytes.saturating_sub(start);
        if length as u64 > rest {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}
