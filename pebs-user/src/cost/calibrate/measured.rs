//! Costs measured by earlier recordings, saved beside calibrations and reused: measuring takes longer than
//! everything else before the first mark.
//!
//! They are valid for the same machine, kernel, event and version of pebs-trace, and for `LASTS`, as a virtual
//! machine may have moved. Costs are scaled by the ratio of the machine's speed now to that when they were
//! measured. Files that do not match, are damaged, or were measured at a very different speed are ignored, and costs
//! measured while the speed changed are not saved, so that those measured beside a busy neighbour do no harm later.

use std::io;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::UnitCosts;
use super::saved::{Folder, MOST_NS, SavedMarks, day_of};
use super::speed::Speed;
use crate::estimate::Pause;
use crate::pmu::host::Host;

/// Version of the figures' meaning and of the way they are measured.
const VERSION: u32 = 4;

/// Build profile: the loops run at another speed when not optimized.
const BUILD: &str = if cfg!(debug_assertions) {
    concat!(env!("CARGO_PKG_VERSION"), " debug")
} else {
    env!("CARGO_PKG_VERSION")
};

/// Time for which a file is used.
const LASTS: Duration = Duration::from_secs(7 * 24 * 3600);

/// Costs in ns; null if not wanted, or not measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    version: u32,
    tool_version: String,
    cpu: String,
    kernel: String,
    event: String,
    taken_s: u64,
    speed: Speed,
    sample_ns: Option<f64>,
    switch_ns: Option<f64>,
    /// Before and after the reading of a sample's time, and their spread.
    pause: Option<[i64; 3]>,
    marks: SavedMarks,
}

impl Measured {
    /// The costs measured since the machine had this speed, for samples with this key; `None` if the speed has changed.
    #[must_use]
    pub(crate) fn since(before: &Speed, host: &Host, key: &str, costs: &UnitCosts) -> Option<Self> {
        let speed = Speed::now(costs.pause.is_some());
        let before = Speed {
            interrupt_ns: before.interrupt_ns.filter(|_| costs.pause.is_some()),
            ..*before
        };
        speed
            .is_near(&before)
            .then(|| Self::new(speed, host, key, costs))
    }

    fn new(speed: Speed, host: &Host, key: &str, costs: &UnitCosts) -> Self {
        let pause = |it: Pause| [it.before, it.after, it.spread];
        Self {
            version: VERSION,
            tool_version: BUILD.to_owned(),
            cpu: host.cpu.name.clone(),
            kernel: host.release.clone(),
            event: key.to_owned(),
            taken_s: now_s(),
            speed,
            sample_ns: costs.sample_ns,
            switch_ns: costs.switch_ns,
            pause: costs.pause.map(pause),
            marks: SavedMarks::from(costs),
        }
    }

    /// Loads the costs for these samples from a folder.
    #[must_use]
    pub(crate) fn load(folder: &Folder, host: &Host, key: &str) -> Option<Self> {
        let data = folder.read(&folder.named("measured", host, key)).ok()?;
        let found: Self = serde_json::from_slice(&data).ok()?;
        found.holds(host, key).then_some(found)
    }

    fn holds(&self, host: &Host, key: &str) -> bool {
        let cost = |ns: f64| (0.0..MOST_NS).contains(&ns);
        let costs = self.marks.all().into_iter();
        let mut costs = costs.chain([self.sample_ns, self.switch_ns]).flatten();
        let mut pauses = self.pause.into_iter().flatten();
        let age = now_s().checked_sub(self.taken_s);
        self.version == VERSION
            && self.tool_version == BUILD
            && (self.cpu.as_str(), self.kernel.as_str()) == (&host.cpu.name, &host.release)
            && self.event == key
            && age.is_some_and(|age| age < LASTS.as_secs())
            && costs.all(cost)
            && pauses.all(|ns| (0..MOST_NS as i64).contains(&ns))
    }

    /// Saves it in a folder.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn save(&self, folder: &Folder, host: &Host) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        folder.write(&folder.named("measured", host, &self.event), &text)
    }

    /// Replaces `costs` where they are known here, scaled to the machine's current speed. Returns false, without a
    /// change, if that differs too much.
    #[must_use]
    pub(crate) fn apply(&self, costs: &mut UnitCosts) -> bool {
        self.apply_at(&Speed::now(self.speed.interrupt_ns.is_some()), costs)
    }

    fn apply_at(&self, speed: &Speed, costs: &mut UnitCosts) -> bool {
        let Some(change) = speed.since(&self.speed) else {
            return false;
        };
        let sample = |ns: f64| ns * change.interrupts;
        self.marks.scaled(change.code).apply(costs);
        costs.sample_ns = self.sample_ns.map(sample).or(costs.sample_ns);
        costs.switch_ns = self
            .switch_ns
            .map(|ns| ns * change.code)
            .or(costs.switch_ns);
        let pause = |it: [i64; 3]| {
            let [before, after, spread] = it.map(|ns| sample(ns as f64).round() as i64);
            Pause {
                before,
                after,
                spread,
            }
        };
        costs.pause = self.pause.map(pause).or(costs.pause);
        true
    }

    /// The day on which it was measured: `2026-11-21`.
    #[must_use]
    pub(crate) fn day(&self) -> String {
        day_of(self.taken_s)
    }
}

fn now_s() -> u64 {
    let now = SystemTime::UNIX_EPOCH.elapsed();
    now.map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::host::fixtures;

    /// Saved costs are found for the same samples of the same machine, and ignored once they are old, of another
    /// version or invalid.
    #[test]
    fn kept_and_found() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().to_owned(), None);
        let host = fixtures::skylake();
        let costs = UnitCosts {
            emulated_ns: Some(430.0),
            sample_ns: Some(2_500.0),
            pause: Some(Pause {
                before: 700,
                after: 1_100,
                spread: 90,
            }),
            ..UnitCosts::default()
        };
        let then = Speed {
            loop_ns: 100.0,
            interrupt_ns: Some(2_000.0),
        };
        let good = Measured::new(then, &host, "cpu-clock", &costs);
        assert_eq!(Measured::load(&folder, &host, "cpu-clock"), None);
        good.save(&folder, &host).unwrap();
        let mut found = UnitCosts::default();
        let kept = Measured::load(&folder, &host, "cpu-clock").unwrap();
        assert!(kept.apply_at(&good.speed, &mut found));
        assert_eq!(found, costs);
        // Costs measured on a slower machine are scaled down: interrupts otherwise than code.
        let now = Speed {
            loop_ns: 70.0,
            interrupt_ns: Some(1_600.0),
        };
        let mut faster = UnitCosts::default();
        assert!(good.apply_at(&now, &mut faster));
        assert_eq!(
            (faster.emulated_ns, faster.sample_ns),
            (Some(301.0), Some(2_000.0))
        );
        assert_eq!(faster.pause.unwrap().after, 880);
        // Beside a busy neighbour parts slow down so differently that nothing is scaled.
        let another = Speed {
            loop_ns: 220.0,
            ..then
        };
        assert!(!good.apply_at(&another, &mut faster));
        let bad: [fn(&mut Measured); 6] = [
            |it| it.taken_s -= LASTS.as_secs(),
            |it| it.taken_s += 1000,
            |it| it.tool_version = "0".to_owned(),
            |it| it.kernel = "4".to_owned(),
            |it| it.sample_ns = Some(-1.0),
            |it| it.pause = Some([0, -5, 0]),
        ];
        for change in bad {
            let mut other = good.clone();
            change(&mut other);
            other.save(&folder, &host).unwrap();
            assert_eq!(
                Measured::load(&folder, &host, "cpu-clock"),
                None,
                "{other:?}"
            );
        }
        assert_eq!(Measured::load(&folder, &host, "cycles"), None);
    }
}
