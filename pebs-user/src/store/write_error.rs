//! Errors of writing a trace.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::fields::ColumnError;
use super::files::{io_cause, is_full, named};
use super::segment_error::SegmentError;
use crate::failure::Hint;
use crate::limits;
use crate::terminal::quoted;

/// An error of writing a trace.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The directory exists: nothing is ever overwritten.
    #[error("cannot create trace {}: it exists", path.display())]
    Exists {
        /// The trace's directory.
        path: PathBuf,
    },
    /// The parent directory does not exist.
    #[error("cannot create trace {}: no directory {}", path.display(), parent.display())]
    MissingParent {
        /// The trace's directory.
        path: PathBuf,
        /// The missing directory.
        parent: PathBuf,
    },
    /// The file system or its permissions do not allow it.
    #[error("cannot write to {}", path.display())]
    Unwritable {
        /// File that was being written.
        path: PathBuf,
        source: io::Error,
    },
    /// No room on the disk, or in the user's quota.
    #[error("cannot write to {}: disk full", path.display())]
    DiskFull {
        /// File that was being written.
        path: PathBuf,
    },
    /// Another process holds the trace's lock.
    #[error("cannot write to {}: another process does", path.display())]
    Busy {
        /// The trace's directory.
        path: PathBuf,
    },
    /// Invalid argument columns.
    #[error(transparent)]
    Column(#[from] ColumnError),
    /// A row had an argument of another type than its column.
    #[error("cannot write argument {index} of a visit: not of its column's type")]
    Argument {
        /// Index into the trace's argument columns.
        index: usize,
    },
    /// Other I/O errors.
    #[error("cannot write {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        source: io::Error,
    },
    /// Rows could not be encoded, or could not be read back.
    #[error("cannot encode {}", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl WriteError {
    /// An I/O error at a path.
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        let path = named(path);
        if is_full(&source) {
            return Self::DiskFull { path };
        }
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::Unwritable { path, source }
            }
            _ => Self::Io { path, source },
        }
    }

    /// A failure with a segment of a table's folder.
    pub(super) fn segment(path: &Path, error: SegmentError) -> Self {
        if let Some(io) = io_cause(&error)
            && is_full(io)
        {
            return Self::DiskFull { path: named(path) };
        }
        match error {
            SegmentError::Io(source) => Self::io(path, source),
            other => Self::Encode {
                path: named(path),
                source: Box::new(other),
            },
        }
    }
}

impl Hint for WriteError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Exists { path } => Some(format!(
                "a trace is never overwritten; choose another name with -o, or remove it: rm -r {}",
                quoted(&path.to_string_lossy())
            )),
            Self::MissingParent { parent, .. } => {
                Some(format!("mkdir -p {}", quoted(&parent.to_string_lossy())))
            }
            Self::Unwritable { path, .. } => {
                let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
                let parent = parent.unwrap_or(Path::new("."));
                Some(format!(
                    "'ls -ld {}' shows who may write there; choose another place with -o",
                    parent.display()
                ))
            }
            Self::DiskFull { path } => {
                let kept = if path.exists() {
                    "what was written is kept; "
                } else {
                    ""
                };
                // Files created before the error may be gone again.
                let there = path.ancestors().find(|it| it.exists());
                Some(format!(
                    "{kept}'df -h {}' shows the disk; free room, or choose another place with -o",
                    there.unwrap_or(Path::new(".")).display()
                ))
            }
            Self::Column(error) => error.hint(),
            Self::Io { source, .. } if source.raw_os_error() == Some(libc::EMFILE) => {
                Some(limits::open_files().hint())
            }
            Self::Busy { .. } | Self::Argument { .. } | Self::Io { .. } | Self::Encode { .. } => {
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands in hints can be pasted into a shell, for any name of the trace.
    #[test]
    fn commands_to_paste() {
        let path = PathBuf::from("my traces/t");
        let parent = PathBuf::from("my traces");
        let exists = WriteError::Exists { path: path.clone() }.hint().unwrap();
        assert!(exists.ends_with(": rm -r 'my traces/t'"), "{exists}");
        let missing = WriteError::MissingParent { path, parent };
        assert_eq!(missing.hint().unwrap(), "mkdir -p 'my traces'");
    }

    /// If the disk was too full to keep anything, the message does not claim it, and names the disk by an existing
    /// path.
    #[test]
    fn nothing_kept() {
        let dir = tempfile::tempdir().unwrap();
        let hint = |path: PathBuf| WriteError::DiskFull { path }.hint().unwrap();
        let gone = hint(dir.path().join("trace/samples"));
        assert!(!gone.contains("kept"), "{gone}");
        let shown = format!("'df -h {}'", dir.path().display());
        assert!(gone.contains(&shown), "{gone}");
        assert!(hint(dir.path().to_owned()).starts_with("what was written is kept; "));
    }
}
