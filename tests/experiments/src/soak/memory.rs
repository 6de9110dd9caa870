//! Whether a process's memory grows.

use std::fs;
use std::time::Duration;

use crate::frame::statistics::{fit, median};

/// This part of a run is warm-up: buffers grow to their size, symbols are loaded.
const WARM_UP: f64 = 0.2;

/// Growth over the whole run that may be chance, MiB: buffers that are used for the first time, segments
/// of different fill, and the backlog of a starved recorder, a quarter of its 64 MiB.
const MARGIN_MIB: f64 = 8.0 + 16.0;

/// Resident memory over time.
#[derive(Debug, Default)]
pub struct Memory {
    /// Seconds since the start, and MiB.
    points: Vec<(f64, f64)>,
}

/// Result of the observation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Median after the warm-up, MiB.
    pub median_mib: f64,
    /// Most at any time, MiB.
    pub most_mib: f64,
    /// Slope of the line of least squares after the warm-up, MiB a minute.
    pub slope_mib: f64,
    /// Along that line, from the end of the warm-up to the end, MiB.
    pub growth_mib: f64,
}

impl Verdict {
    /// The largest growth that counts as flat, MiB.
    pub const LIMIT_MIB: f64 = MARGIN_MIB;

    /// Whether memory stayed flat.
    pub fn is_flat(&self) -> bool {
        self.growth_mib <= Self::LIMIT_MIB
    }
}

impl Memory {
    /// Adds the resident memory of the process at a time; does nothing if it has ended.
    pub fn look(&mut self, pid: u32, at: Duration) {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        if let Some(kib) = resident_kib(&status) {
            self.points.push((at.as_secs_f64(), kib as f64 / 1024.0));
        }
    }

    /// The verdict; `None` if there are too few points.
    pub fn verdict(&self) -> Option<Verdict> {
        let end = self.points.last()?.0;
        let warm = self
            .points
            .partition_point(|(seconds, _)| *seconds < end * WARM_UP);
        let settled = &self.points[warm..];
        let [(first, _), .., (last, _)] = settled else {
            return None;
        };
        let slope = fit(settled).slope;
        let all = self.points.iter().map(|(_, mib)| *mib);
        Some(Verdict {
            median_mib: median(settled.iter().map(|(_, mib)| *mib).collect()),
            most_mib: all.fold(0.0, f64::max),
            slope_mib: slope * 60.0,
            growth_mib: slope * (last - first),
        })
    }
}

/// Source: proc_pid_status(5).
fn resident_kib(status: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(mib: impl Fn(f64) -> f64) -> Verdict {
        let points = (0..600).map(|s| (f64::from(s), mib(f64::from(s))));
        let memory = Memory {
            points: points.collect(),
        };
        memory.verdict().unwrap()
    }

    /// A saw-tooth after a steep start is flat; a leak of three MiB a minute in it is not.
    #[test]
    fn leak_in_a_saw_tooth() {
        let saw = |s: f64| 100.0 + (s % 10.0) * 2.0 - 60.0 * (-s / 10.0).exp();
        let flat = verdict(saw);
        assert!(flat.is_flat() && flat.slope_mib.abs() < 0.2, "{flat:?}");
        let leak = verdict(|s| saw(s) + s / 20.0);
        assert!(
            !leak.is_flat() && (leak.slope_mib - 3.0).abs() < 0.2,
            "{leak:?}"
        );
    }

    /// The resident size is found among the others.
    #[test]
    fn status() {
        let text = "VmPeak:\t  999 kB\nVmRSS:\t   51200 kB\nRssAnon:\t 1 kB\n";
        assert_eq!(resident_kib(text), Some(51_200));
        assert_eq!(resident_kib(""), None);
    }
}
