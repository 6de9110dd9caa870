//! CPU frequencies while items were served (`--with freq`).

use rustc_hash::FxHashMap;

use crate::store::reader::{ReadError, Trace};
use crate::store::schema::frequencies;

/// Largest distance of a reading from an instant it applies to, ns: two and a half periods.
const REACH_NS: i64 = 250_000_000;

/// All readings of a trace.
///
/// Memory: 16 bytes a reading.
#[derive(Debug, Default)]
pub(crate) struct Frequencies {
    /// Time and kHz, in order of time, by CPU.
    by_cpu: FxHashMap<u16, Vec<(i64, u32)>>,
    /// The highest of all.
    most_khz: u32,
}

impl Frequencies {
    /// Reads the frequencies; empty if they were not recorded.
    pub(crate) fn read(trace: &Trace) -> Result<Self, ReadError> {
        let mut all = Self::default();
        frequencies::each(trace, |row| {
            let of_cpu = all.by_cpu.entry(row.cpu.0).or_default();
            of_cpu.push((row.time_ns.0, row.khz));
            all.most_khz = all.most_khz.max(row.khz);
        })?;
        all.by_cpu.values_mut().for_each(|it| it.sort_unstable());
        Ok(all)
    }

    /// The mean frequency of a CPU from `begin_ns` to `end_ns`, kHz: of the readings within, else of the nearest one;
    /// `None` if there is none nearby.
    fn mean_khz(&self, cpu: u16, begin_ns: i64, end_ns: i64) -> Option<f64> {
        let readings = self.by_cpu.get(&cpu)?;
        let first = readings.partition_point(|it| it.0 < begin_ns);
        let behind = readings.partition_point(|it| it.0 <= end_ns);
        let within = readings.get(first..behind).unwrap_or_default();
        if !within.is_empty() {
            let sum: f64 = within.iter().map(|it| f64::from(it.1)).sum();
            return Some(sum / within.len() as f64);
        }
        let before = first.checked_sub(1).map(|at| readings[at]);
        let before = before.map(|(time, khz)| (begin_ns.saturating_sub(time), khz));
        let after = readings.get(first);
        let after = after.map(|(time, khz)| (time.saturating_sub(end_ns), *khz));
        let nearest = before.into_iter().chain(after).min()?;
        (nearest.0 <= REACH_NS).then(|| f64::from(nearest.1))
    }

    /// The part of `active_ns` on a CPU that the highest frequency of the recording would have saved, ns: `active_ns` x
    /// (1 - f / highest f). Assumes that work takes as many cycles at any frequency: work that waits for memory saves
    /// less.
    ///
    /// *Worked number*: 10 us at 2.0 GHz, where up to 4.0 GHz were seen: 5 us.
    pub(crate) fn lost_ns(
        &self,
        cpu: u16,
        (begin_ns, end_ns): (i64, i64),
        active_ns: i64,
    ) -> Option<f64> {
        let khz = self.mean_khz(cpu, begin_ns, end_ns)?;
        Some(active_ns as f64 * (1.0 - khz / f64::from(self.most_khz)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings within count, else the nearest, but none too far away or of another CPU.
    #[test]
    fn nearest_readings() {
        let second = 1_000_000_000;
        let all = Frequencies {
            by_cpu: [(
                3,
                vec![(second, 4_000), (second + 100, 2_000), (3 * second, 1_000)],
            )]
            .into_iter()
            .collect(),
            most_khz: 4_000,
        };
        let lost = |begin, end| all.lost_ns(3, (begin, end), 1_000);
        assert_eq!(lost(second - 10, second + 10), Some(0.0));
        assert_eq!(lost(second + 90, second + 110), Some(500.0));
        assert_eq!(lost(second - 10, second + 110), Some(250.0));
        assert_eq!(lost(second + 20, second + 30), Some(0.0));
        assert_eq!(lost(second + 80, second + 90), Some(500.0));
        assert_eq!(lost(2 * second, 2 * second + 10), None);
        assert_eq!(all.lost_ns(0, (second, second), 1_000), None);
        assert_eq!(Frequencies::default().lost_ns(0, (0, 1), 1), None);
    }
}
