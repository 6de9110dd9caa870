//! Traces as they are named on the command line: directories, or what a lake has.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::Arc;

use bytesize::ByteSize;

use crate::failure::Result;
use crate::lake::{Remote, TraceAddress};
use crate::store::reader::Trace;
use crate::terminal::say;

/// A trace. When it is no longer used, it says how many bytes were read of a lake.
#[derive(Debug)]
pub(super) struct Opened {
    trace: Trace,
    remote: Option<Arc<Remote>>,
}

/// Opens a directory, `LAKE#HOST/TRACE-ID` or `LAKE#TRACE-ID`.
///
/// # Errors
/// There is no trace, or it can't be read.
pub(super) fn open(path: &Path) -> Result<Opened> {
    let (trace, remote) = match TraceAddress::of(path).filter(|_| !path.exists()) {
        Some(address) => {
            let (trace, remote) = Remote::open(&address)?;
            (trace, Some(remote))
        }
        None => (Trace::open(path)?, None),
    };
    Ok(Opened { trace, remote })
}

impl Opened {
    /// Whether it is in a lake.
    pub(super) const fn is_remote(&self) -> bool {
        self.remote.is_some()
    }
}

impl Deref for Opened {
    type Target = Trace;

    fn deref(&self) -> &Trace {
        &self.trace
    }
}

impl DerefMut for Opened {
    fn deref_mut(&mut self) -> &mut Trace {
        &mut self.trace
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(remote) = &self.remote {
            let (read, all) = remote.bytes();
            let size = |bytes| ByteSize(bytes).display().si();
            say!(
                "read {} of {} of {}",
                size(read),
                size(all),
                self.trace.dir.display()
            );
        }
    }
}
