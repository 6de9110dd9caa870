//! How fast each CPU runs, as sysfs says it: read by this program at times, at no cost for what is traced.
//!
//! Nothing here is exact to the instant: on x86 the kernel gives the mean over its last tick or so, and of an idle CPU
//! what it was set to.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use crate::stream::cycle::FrequencyReading;
use crate::units::{Cpu, KtimeNs};

/// How often they are read.
pub(crate) const PERIOD: Duration = Duration::from_millis(100);

/// The CPUs whose frequency the kernel knows.
#[derive(Debug, Default)]
pub(crate) struct Frequencies {
    files: Vec<(Cpu, File)>,
}

impl Frequencies {
    /// Opens those of the CPUs below `root`, which is `/` except in tests. Empty where the kernel does not change
    /// frequencies, as in most virtual machines.
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

    /// Whether none is known.
    #[must_use]
    pub(crate) const fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Reads all of them, at that time. A CPU that is offline, or of which the kernel says 0, has none.
    ///
    /// Cost: some us a CPU.
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

    /// Each reading is of its time; a CPU without a frequency, or with one that is not known, has none.
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
