//! Machine-wide locks between tests, whatever process they run in.

use std::fs::File;
use std::io;
use std::sync::Arc;

/// Name of the lock that every recording holds.
const RECORDING: &str = "recording";

/// Holds a lock until it and all its clones are dropped.
#[derive(Clone, Debug)]
pub struct Lock {
    _file: Arc<File>,
}

impl Lock {
    /// Waits for the lock of that name.
    ///
    /// # Panics
    /// If the lock file in the temporary directory cannot be opened.
    #[must_use]
    pub fn take(name: &str) -> Self {
        Self::locked(name, File::lock)
    }

    fn locked(name: &str, lock: fn(&File) -> io::Result<()>) -> Self {
        let path = std::env::temp_dir().join(format!("pebs-tests-{name}.lock"));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .unwrap_or_else(|e| panic!("cannot open lock file {}: {e}", path.display()));
        lock(&file).unwrap_or_else(|e| panic!("cannot lock {}: {e}", path.display()));
        Self {
            _file: Arc::new(file),
        }
    }

    /// The lock of a recording that runs alone, so that no other one disturbs its timing.
    #[must_use]
    pub fn recording() -> Self {
        Self::take(RECORDING)
    }

    /// The lock of recordings that may run at the same time, beside none that runs alone.
    #[must_use]
    pub fn recording_beside() -> Self {
        Self::locked(RECORDING, File::lock_shared)
    }
}
