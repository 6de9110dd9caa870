//! Costs measured by earlier recordings, saved beside calibrations and reused: measuring takes longer than
//! everything else before the first mark.
//!
//! A cost is reused once two recordings measured nearly the same, so that one that was measured beside a busy neighbour
//! does no harm later. It is valid for the same machine, kernel, event and version of pebs-trace, and for `LASTS`, as a
//! virtual machine may have moved. Costs are scaled by the ratio of the machine's speed now to that when they were
//! measured; at a very different speed they are ignored, and while the speed changes they are not saved. Files that do
//! not match or are damaged are ignored.

use std::io;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::saved::{Folder, MOST_NS, SavedMarks, day_of};
use super::speed::Speed;
use super::with_options::ExtraCosts;
use super::{Apart, SwitchCosts, UnitCosts};
use crate::estimate::Pause;
use crate::pmu::host::Host;

/// Version of the figures' meaning and of the way they are measured.
const VERSION: u32 = 13;

/// Build profile: the loops run at another speed when not optimized.
const BUILD: &str = if cfg!(debug_assertions) {
    concat!(env!("CARGO_PKG_VERSION"), " debug")
} else {
    env!("CARGO_PKG_VERSION")
};

/// Time for which a file is used.
const LASTS: Duration = Duration::from_secs(7 * 24 * 3600);

/// Number of measurements that are kept, the latest ones: some have only those costs that were unknown.
const KEPT: usize = 8;

/// Largest ratio and difference of two measurements that confirm each other.
const AGREE: (f64, f64) = (1.25, 100.0);

/// The measurements for samples with one key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    version: u32,
    tool_version: String,
    cpu: String,
    kernel: String,
    event: String,
    /// The latest one last.
    taken: Vec<Taken>,
}

/// Costs measured by one recording, in ns; null if not wanted, or not measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Taken {
    taken_s: u64,
    speed: Speed,
    sample_ns: Option<f64>,
    switch: Option<SwitchCosts>,
    /// Before and after the reading of a sample's time, and their spread.
    pause: Option<[i64; 3]>,
    /// A wake-up.
    #[serde(default)]
    wake_ns: Option<f64>,
    marks: SavedMarks,
}

impl Taken {
    /// The costs measured since the machine had this speed; `None` if the speed has changed.
    #[must_use]
    pub(crate) fn since(before: &Speed, costs: &UnitCosts) -> Option<Self> {
        let has_pause = costs.pause.is_some();
        let speed = Speed::now(has_pause);
        let before = Speed {
            interrupt_ns: before.interrupt_ns.filter(|_| has_pause),
            ..*before
        };
        speed.is_near(&before).then(|| Self::new(speed, costs))
    }

    fn new(speed: Speed, costs: &UnitCosts) -> Self {
        let pause = |it: Pause| [it.before, it.after, it.spread];
        Self {
            taken_s: now_s(),
            speed,
            sample_ns: costs.sample_ns,
            switch: costs.switch,
            pause: costs.pause.map(pause),
            wake_ns: costs.extras.encounter_ns,
            marks: SavedMarks::from(costs),
        }
    }

    fn holds(&self) -> bool {
        let cost = |ns: f64| (0.0..MOST_NS).contains(&ns);
        let costs = self.marks.all().into_iter();
        let switch = self.switch.map(|it| [it.several_ns, it.one_ns, it.none_ns]);
        let mut costs = costs
            .chain([self.sample_ns, self.wake_ns])
            .flatten()
            .chain(switch.into_iter().flatten());
        let mut pauses = self.pause.into_iter().flatten();
        let age = now_s().checked_sub(self.taken_s);
        age.is_some_and(|age| age < LASTS.as_secs())
            && costs.all(cost)
            && pauses.all(|ns| (0..MOST_NS as i64).contains(&ns))
    }

    /// The costs at a speed; `None` if it differs too much.
    fn at(&self, speed: &Speed) -> Option<UnitCosts> {
        let change = speed.since(&self.speed)?;
        let sample = |ns: f64| ns * change.interrupts;
        let mut costs = UnitCosts::default();
        self.marks.scaled(change.code).apply(&mut costs);
        costs.sample_ns = self.sample_ns.map(sample);
        costs.extras.encounter_ns = self.wake_ns.map(|ns| ns * change.code);
        costs.switch = self.switch.map(|it| it.map(|ns| ns * change.code));
        costs.pause = self.pause.map(|it| {
            let [before, after, spread] = it.map(|ns| sample(ns as f64).round() as i64);
            Pause {
                before,
                after,
                spread,
            }
        });
        Some(costs)
    }
}

impl Measured {
    fn new(host: &Host, key: &str) -> Self {
        Self {
            version: VERSION,
            tool_version: BUILD.to_owned(),
            cpu: host.cpu.name.clone(),
            kernel: host.release.clone(),
            event: key.to_owned(),
            taken: Vec::new(),
        }
    }

    /// Loads the costs for these samples from a folder; there may be none.
    #[must_use]
    pub(crate) fn load(folder: &Folder, host: &Host, key: &str) -> Self {
        let new = Self::new(host, key);
        let data = folder.read(&folder.named("measured", host, key));
        let found = data
            .ok()
            .and_then(|it| serde_json::from_slice::<Self>(&it).ok());
        let mut taken = found.map_or(Vec::new(), |mut found| {
            let taken = std::mem::take(&mut found.taken);
            if found == new { taken } else { Vec::new() }
        });
        taken.retain(Taken::holds);
        Self { taken, ..new }
    }

    /// Adds the latest measurement.
    pub(crate) fn add(&mut self, taken: Taken) {
        self.taken.push(taken);
        let old = self.taken.len().saturating_sub(KEPT);
        self.taken.drain(..old);
    }

    /// Saves it in a folder.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn save(&self, folder: &Folder, host: &Host) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        folder.write(&folder.named("measured", host, &self.event), &text)
    }

    /// Replaces `costs` where two measurements agree, scaled to the machine's current speed. Returns the day of the
    /// latest measurement, as `2026-11-21`; `None` if nothing was replaced.
    #[must_use]
    pub(crate) fn apply(&self, costs: &mut UnitCosts) -> Option<String> {
        let latest = self.taken.last()?;
        let interrupts = self.taken.iter().any(|it| it.speed.interrupt_ns.is_some());
        let agreed = self.agreed_at(&Speed::now(interrupts));
        agreed.fill(costs);
        (agreed != UnitCosts::default()).then(|| day_of(latest.taken_s))
    }

    /// The costs that two measurements agree on, at a speed.
    fn agreed_at(&self, speed: &Speed) -> UnitCosts {
        let all: Vec<_> = self.taken.iter().filter_map(|it| it.at(speed)).collect();
        let agreed = |field: fn(&UnitCosts) -> Option<f64>| agreed(all.iter().filter_map(field));
        let whole = |it: &Pause| (it.before + it.after) as f64;
        // Each by itself, as one of them may be too long where another is not.
        let none_ns = agreed(|it| Some(it.switch?.none_ns));
        let one_ns = agreed(|it| Some(it.switch?.one_ns));
        let several_ns = agreed(|it| Some(it.switch?.several_ns));
        let switch = none_ns.zip(one_ns).zip(several_ns);
        let pauses = all.iter().filter_map(|it| it.pause);
        let pause = agreed_of(pauses, whole);
        UnitCosts {
            emulated_ns: agreed(|it| it.emulated_ns),
            single_step_ns: agreed(|it| it.single_step_ns),
            uretprobe_ns: agreed(|it| it.uretprobe_ns),
            page_fault_ns: agreed(|it| it.page_fault_ns),
            sample_ns: agreed(|it| it.sample_ns),
            switch: switch.map(|((none, one), several)| SwitchCosts::ordered(none, one, several)),
            single_step_ran_ns: agreed(|it| it.single_step_ran_ns),
            apart: agreed_of(all.iter().filter_map(|it| it.apart), Apart::extra_ns),
            pause,
            extras: ExtraCosts {
                encounter_ns: agreed(|it| it.extras.encounter_ns),
                ..ExtraCosts::default()
            },
            ..UnitCosts::default()
        }
    }
}

/// The lowest figure that is confirmed by another one.
fn agreed(figures: impl Iterator<Item = f64>) -> Option<f64> {
    agreed_of(figures, |it| *it)
}

/// The same of figures by their length, ns. Of the lowest two that agree it is the lower one: a disturbed measurement
/// may be too long, and also too short, as a difference of two times.
fn agreed_of<T: Copy>(figures: impl Iterator<Item = T>, ns: impl Fn(&T) -> f64) -> Option<T> {
    let mut sorted: Vec<T> = figures.collect();
    sorted.sort_by(|a, b| ns(a).total_cmp(&ns(b)));
    let (ratio, difference) = AGREE;
    let mut pairs = sorted.windows(2);
    let pair = pairs.find(|it| ns(&it[1]) <= (ns(&it[0]) * ratio).max(ns(&it[0]) + difference))?;
    Some(pair[0])
}

fn now_s() -> u64 {
    let now = SystemTime::UNIX_EPOCH.elapsed();
    now.map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::host::fixtures;

    const THEN: Speed = Speed {
        loop_ns: 100.0,
        interrupt_ns: Some(2_000.0),
    };

    fn costs(sample_ns: f64) -> UnitCosts {
        UnitCosts {
            emulated_ns: Some(430.0),
            sample_ns: Some(sample_ns),
            pause: Some(Pause {
                before: 700,
                after: 1_100,
                spread: 90,
            }),
            ..UnitCosts::default()
        }
    }

    /// Saved costs are found for the same samples of the same machine, and ignored once they are old, of another
    /// version or invalid.
    #[test]
    fn kept_and_found() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().to_owned(), None);
        let host = fixtures::skylake();
        let mut good = Measured::new(&host, "cpu-clock");
        assert_eq!(Measured::load(&folder, &host, "cpu-clock"), good);
        good.add(Taken::new(THEN, &costs(2_500.0)));
        good.save(&folder, &host).unwrap();
        assert_eq!(Measured::load(&folder, &host, "cpu-clock"), good);
        let bad: [fn(&mut Measured); 6] = [
            |it| it.taken[0].taken_s -= LASTS.as_secs(),
            |it| it.taken[0].taken_s += 1000,
            |it| it.tool_version = "0".to_owned(),
            |it| it.kernel = "4".to_owned(),
            |it| it.taken[0].sample_ns = Some(-1.0),
            |it| it.taken[0].pause = Some([0, -5, 0]),
        ];
        for change in bad {
            let mut other = good.clone();
            change(&mut other);
            other.save(&folder, &host).unwrap();
            let found = Measured::load(&folder, &host, "cpu-clock");
            assert_eq!(found.taken, [], "{other:?}");
        }
        assert_eq!(Measured::load(&folder, &host, "cycles").taken, []);
    }

    /// A cost is used once two measurements agree, and then the lower one, whatever others say.
    #[test]
    fn two_agree() {
        let mut measured = Measured::new(&fixtures::skylake(), "cpu-clock");
        assert_eq!(measured.apply(&mut UnitCosts::default()), None);
        for (sample_ns, agreed) in [
            (9_000.0, None),
            (2_600.0, None),
            (2_500.0, Some(2_500.0)),
            (0.0, Some(2_500.0)),
            (3_600.0, Some(2_500.0)),
        ] {
            measured.add(Taken::new(THEN, &costs(sample_ns)));
            assert_eq!(measured.agreed_at(&THEN).sample_ns, agreed);
        }
        assert_eq!(measured.agreed_at(&THEN), costs(2_500.0));
        for _ in 0..KEPT {
            measured.add(Taken::new(THEN, &UnitCosts::default()));
        }
        assert_eq!(measured.taken.len(), KEPT);
        assert_eq!(measured.agreed_at(&THEN), UnitCosts::default());
    }

    /// Each kind of clocks has the lowest cost that is confirmed for it, whatever the same measurements say of the others.
    #[test]
    fn disturbed_switch() {
        let mut measured = Measured::new(&fixtures::skylake(), "cpu-clock");
        for (none, one, several) in [
            (7_200.0, 7_200.0, 7_200.0),
            (900.0, 4_600.0, 7_800.0),
            (950.0, 4_500.0, 5_000.0),
        ] {
            let switch = Some(SwitchCosts::ordered(none, one, several));
            let costs = UnitCosts {
                switch,
                ..UnitCosts::default()
            };
            measured.add(Taken::new(THEN, &costs));
        }
        let agreed = measured.agreed_at(&THEN).switch;
        assert_eq!(agreed, Some(SwitchCosts::ordered(900.0, 4_500.0, 7_200.0)));
    }

    /// Costs measured on a slower machine are scaled down, interrupts otherwise than code; not if it is much slower.
    #[test]
    fn scaled() {
        let taken = Taken::new(THEN, &costs(2_500.0));
        let now = Speed {
            loop_ns: 70.0,
            interrupt_ns: Some(1_600.0),
        };
        let faster = taken.at(&now).unwrap();
        assert_eq!(
            (faster.emulated_ns, faster.sample_ns),
            (Some(301.0), Some(2_000.0))
        );
        assert_eq!(faster.pause.unwrap().after, 880);
        let another = Speed {
            loop_ns: 220.0,
            ..THEN
        };
        assert_eq!(taken.at(&another), None);
    }
}
