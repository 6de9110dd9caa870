//! Frequency of each CPU, from sysfs: read periodically by this program, at no cost for the traced processes.
//!
//! Not exact to the instant: on x86 the kernel gives the mean over about the last tick, and for an idle CPU the
//! configured value.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use crate::stream::cycle::FrequencyReading;
use crate::units::{Cpu, KtimeNs};

/// Interval of reading.
pub(crate) const PERIOD: Duration = Duration::from_millis(100);

/// The CPUs whose frequency the kernel reports.
#[derive(Debug, Default)]
pub(crate) struct Frequencies {
    files: Vec<(Cpu, File)>,
}

impl Frequencies {
    /// Opens the frequency files of the CPUs below `root`, which is `/` except in tests. Empty if the kernel does
    /// not change frequencies, as in most virtual machines.
    #[must_use]
    pub(crate) fn open(root: &Path, online: &[Cpu]) -> Self {
        let open = |cpu: &Cpu| {
            let path = format!(
                "sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq",
                cpu.0
            );
            let file = File::open(root.join(path)).ok()?;
            read(&file).map(|_| (*cpu, file))
        };
        Self {
            files: online.iter().filter_map(open).collect(),
        }
    }

    /// Whether no frequency is known.
    #[must_use]
    pub(crate) const fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Reads all frequencies, stamped with `time`. CPUs that are offline, or report 0, are skipped.
    ///
    /// Cost: some us per CPU.
    pub(crate) fn read(&self, time: KtimeNs, take: &mut Vec<FrequencyReading>) {
        let known = self.files.iter().filter_map(|(cpu, file)| {
            let khz = read(file).filter(|khz| *khz > 0)?;
            Some(FrequencyReading {
                time,
                cpu: *cpu,
                khz,
            })
        });
        take.extend(known);
    }
}

/// A number in a file that changes.
fn read(file: &File) -> Option<u32> {
    let mut text = [0; 16];
    let length = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..length])
        .ok()?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Each reading has the given time; a CPU without a known frequency has no reading.
    #[test]
    fn of_a_tree() {
        let root = tempfile::tempdir().unwrap();
        let set = |cpu: u16, text: &str| {
            let dir = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq");
            let dir = root.path().join(dir);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("scaling_cur_freq"), text).unwrap();
        };
        set(0, "3400000\n");
        set(2, "0\n");
        set(3, "<unknown>\n");
        let online = [0, 1, 2, 3].map(Cpu);
        let frequencies = Frequencies::open(root.path(), &online);
        let mut readings = Vec::new();
        frequencies.read(KtimeNs(5), &mut readings);
        set(0, "800000\n");
        set(2, "2100000\n");
        frequencies.read(KtimeNs(6), &mut readings);
        let seen: Vec<_> = readings
            .iter()
            .map(|it| (it.time.0, it.cpu.0, it.khz))
            .collect();
        assert_eq!(
            seen,
            [(5, 0, 3_400_000), (6, 0, 800_000), (6, 2, 2_100_000)]
        );
        assert!(!frequencies.is_empty());
        let empty = tempfile::tempdir().unwrap();
        assert!(Frequencies::open(empty.path(), &online).is_empty());
    }
}
