//! Size of a trace on disk.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::frame::verdict::word;

/// Largest size of the three tables together, bytes per sample.
const MOST_BYTES: f64 = 6.0;

/// The tables counted.
const TABLES: [&str; 3] = ["samples", "visit_functions", "visits"];

/// Bytes of each of the tables.
pub struct Sizes(pub [u64; TABLES.len()]);

impl Sizes {
    /// Sizes of a trace.
    pub fn of(trace: &Path) -> Result<Self> {
        let mut sizes = [0; TABLES.len()];
        for (table, size) in TABLES.iter().zip(&mut sizes) {
            for file in fs::read_dir(trace.join(table))? {
                *size += file?.metadata()?.len();
            }
        }
        Ok(Self(sizes))
    }

    /// Describes the size of a trace with this many samples; returns whether it is within the limit.
    pub fn describe(&self, samples: f64) -> (String, bool) {
        let each = |bytes: u64| bytes as f64 / samples;
        let bytes = each(self.0.iter().sum());
        let of: Vec<String> = TABLES
            .iter()
            .zip(self.0)
            .map(|(table, bytes)| format!("{table} {:.2}", each(bytes)))
            .collect();
        let is_within = bytes <= MOST_BYTES;
        let text = format!(
            "{bytes:.2} bytes each ({}; limit {MOST_BYTES}): {}",
            of.join(", "),
            word(is_within)
        );
        (text, is_within)
    }
}
