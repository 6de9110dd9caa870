//! Settings of the kernel that a test changes and puts back.

use std::fs;
use std::path::Path;

use crate::locks::Lock;

const MAX_SAMPLE_RATE: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
const CPU_TIME_MAX_PERCENT: &str = "/proc/sys/kernel/perf_cpu_time_max_percent";

/// The kernel's own share: with 0 or 100 it refuses to change the rate.
/// Source: `perf_event_max_sample_rate_handler`, kernel/events/core.c.
const DEFAULT_PERCENT: &str = "25";

/// A lowered `kernel.perf_event_max_sample_rate`. Holds the recording lock, so that no other test
/// is disturbed; puts the setting back when dropped, also by a panic.
#[derive(Debug)]
pub struct SampleRate {
    /// The rate and the share as they were.
    before: (String, String),
    lock: Lock,
}

impl SampleRate {
    /// Lowers it to this many samples a second.
    ///
    /// # Errors
    /// The reason to skip: the kernel refuses, as in a container.
    pub fn lower(rate: u64) -> Result<Self, String> {
        Self::lower_under(Lock::recording(), rate)
    }

    /// The same, under the recording lock that the test already holds.
    ///
    /// # Errors
    /// The reason to skip.
    pub fn lower_under(lock: Lock, rate: u64) -> Result<Self, String> {
        let before = (read(MAX_SAMPLE_RATE)?, read(CPU_TIME_MAX_PERCENT)?);
        let lowered = Self { before, lock };
        if matches!(lowered.before.1.as_str(), "0" | "100") {
            write(CPU_TIME_MAX_PERCENT, DEFAULT_PERCENT)?;
        }
        write(MAX_SAMPLE_RATE, &rate.to_string())?;
        Ok(lowered)
    }

    /// Its lock, for a recording that uses it.
    #[must_use]
    pub fn lock(&self) -> Lock {
        self.lock.clone()
    }
}

impl Drop for SampleRate {
    fn drop(&mut self) {
        let (rate, percent) = &self.before;
        // The share last: with some shares the rate can't be changed.
        for (path, value) in [(MAX_SAMPLE_RATE, rate), (CPU_TIME_MAX_PERCENT, percent)] {
            if let Err(error) = write(path, value) {
                eprintln!("{error}");
            }
        }
    }
}

fn read(path: &str) -> Result<String, String> {
    let text = fs::read_to_string(Path::new(path));
    text.map(|text| text.trim().to_owned())
        .map_err(|e| format!("cannot read {path}: {e}"))
}

fn write(path: &str, value: &str) -> Result<(), String> {
    fs::write(path, value).map_err(|e| format!("cannot write {value} to {path}: {e}"))
}
