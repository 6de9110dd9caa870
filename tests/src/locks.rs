//! Machine-wide locks between tests, whatever process they run in.

use std::fs::File;
use std::sync::Arc;

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
        let path = std::env::temp_dir().join(format!("pebs-tests-{name}.lock"));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .unwrap_or_else(|e| panic!("cannot open lock file {}: {e}", path.display()));
        file.lock()
            .unwrap_or_else(|e| panic!("cannot lock {}: {e}", path.display()));
        Self {
            _file: Arc::new(file),
        }
    }

    /// The lock that every recording holds, so that tests don't disturb each other's timing.
    #[must_use]
    pub fn recording() -> Self {
        Self::take("recording")
    }
}
