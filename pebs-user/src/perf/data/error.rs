//! Errors of reading a `perf.data`.

use crate::failure::Hint;
use std::io;

/// A reason for which a `perf.data` can't be read at all.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// It can't be opened or read.
    #[error("cannot read {path}")]
    Read {
        path: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// It is a directory, as `perf record --threads` and `--kcore` make.
    #[error("cannot read {path}: it is a directory")]
    Directory { path: String },
    /// It is a pipe or a device.
    #[error("cannot read {path}: it is not a regular file")]
    NotRegular { path: String },
    /// Its magic is unknown.
    #[error("{path} is not a perf.data file: it begins with {begin}")]
    NotPerfData {
        path: String,
        /// Its first bytes.
        begin: String,
    },
    /// It was recorded on a machine with the other byte order.
    #[error("{path} was recorded on a machine with the other byte order")]
    ByteOrder { path: String },
    /// It was recorded on a machine of 32 bits, whose addresses do not tell the kernel from programs.
    #[error("{path} was recorded on {arch}, a 32-bit machine")]
    Narrow {
        path: String,
        /// Its architecture.
        arch: String,
    },
    /// An essential part is malformed.
    #[error("{path} is damaged: {what}")]
    Damaged { path: String, what: String },
}

impl Hint for DataError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Read { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => "give the file that 'perf record -o FILE' wrote".to_owned(),
                io::ErrorKind::PermissionDenied => {
                    "perf lets only its user read what it wrote: 'sudo chmod a+r FILE'".to_owned()
                }
                _ => return None,
            },
            Self::Directory { .. } => "record without 'perf record --threads' and '--kcore': that makes one file".to_owned(),
            Self::NotRegular { .. } => {
                "write the stream to a file first: 'perf record -o - ... > perf.data' makes one that can be imported"
                    .to_owned()
            }
            Self::NotPerfData { .. } => "give the file that 'perf record -o FILE' wrote".to_owned(),
            Self::ByteOrder { .. } | Self::Narrow { .. } => {
                "pebs-trace imports recordings of 64-bit, little-endian machines; 'perf report -i FILE' shows this one on \
                 the machine that recorded it"
                    .to_owned()
            }
            Self::Damaged { .. } => {
                "copy the file again; 'perf report --header-only -i FILE' says whether perf can read it".to_owned()
            }
        })
    }
}
