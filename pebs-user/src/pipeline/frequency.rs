//! Frequencies of CPUs: a row for each reading.

use super::Pipeline;
use crate::store::schema::FrequencyRow;
use crate::stream::cycle::FrequencyReading;

impl Pipeline {
    /// Writes a reading.
    pub fn frequency(&mut self, reading: &FrequencyReading) {
        let row = FrequencyRow {
            time_ns: self.clock.trace_of_ktime(reading.time),
            cpu: reading.cpu,
            khz: reading.khz,
        };
        let result = self.rows.writer.add(&row);
        self.rows.check(result);
    }
}
