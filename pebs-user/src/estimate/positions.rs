//! Whether samples beat with items: where in their items they fall. Pure.
//!
//! Marks say where each item was, so it is known in advance where samples fall if they don't depend on the items:
//! evenly from begin to end. If they beat with items, they fall on some places again and again, and the others seem to
//! take no time.
//!
//! # How
//!
//! The time on the CPU between an item's marks, less what its samples took, is divided into [`PARTS`] parts. The parts
//! at both ends are left out: samples that would fall into a mark come just after it, and an error of a sample's cost
//! moves the end. A sample's chance is not that of its neighbours, which beat together, but that of its time: samples
//! are counted in [`GROUPS`] groups of stretches of time, and parts differ only if they do by [`SIGNS`] standard errors
//! between groups.
//!
//! *Worked number*: 10,000 samples, of which one of 12 parts got 1,300 instead of 833: off by (1300 - 833) / 10000 =
//! 5 % at least, as the others miss these.

use crate::rng::mix;

/// Parts of an item.
pub const PARTS: usize = 16;

/// Parts that are compared.
const COMPARED: std::ops::Range<usize> = 2..PARTS - 2;

/// Groups of stretches of time.
const GROUPS: usize = 32;

/// Length of a stretch, ns: long against that in which samples depend on each other.
const STRETCH_NS: i64 = 20_000_000;

/// Standard errors by which a part must differ.
const SIGNS: f64 = 5.0;

/// Share of samples at other places that matters.
const MATTERS: f64 = 0.03;

/// Least samples that are compared.
const LEAST: u64 = 500;

/// Samples by part of their item, for one probe.
#[derive(Clone, Debug)]
pub struct Positions {
    groups: Box<[[u32; PARTS]; GROUPS]>,
}

/// Distribution of a probe's samples over its items' parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Fell {
    pub samples: u64,
    /// Share of the samples in each part.
    pub shares: [f64; PARTS],
    /// Share of samples that are at other places than by chance, as far as compared.
    pub off: f64,
    /// Whether that is more than chance, and matters.
    pub beats: bool,
}

impl Default for Positions {
    fn default() -> Self {
        Self {
            groups: Box::new([[0; PARTS]; GROUPS]),
        }
    }
}

impl Positions {
    /// Adds the samples of an item that ran without a break. `length_ns`: its time between marks, with samples;
    /// `times_ns`: those of its samples since its begin mark; `cost_ns`: time that each of them took, of which
    /// `before_ns` before its own time was read.
    pub fn add(
        &mut self,
        begin_ns: i64,
        length_ns: f64,
        cost_ns: f64,
        before_ns: f64,
        times_ns: impl ExactSizeIterator<Item = f64>,
    ) {
        let own = length_ns - cost_ns * times_ns.len() as f64;
        if own <= 0.0 {
            return;
        }
        let group = mix((begin_ns / STRETCH_NS).cast_unsigned()) as usize % GROUPS;
        for (before, time) in times_ns.enumerate() {
            let part = (time - before_ns - cost_ns * before as f64) / own * PARTS as f64;
            if (0.0..PARTS as f64).contains(&part) {
                self.groups[group][part as usize] += 1;
            }
        }
    }

    /// Returns their distribution; `None` if there are too few samples, or they came in too short a time.
    #[must_use]
    pub fn close(&self) -> Option<Fell> {
        let sum = |parts: &[u32]| parts.iter().map(|n| u64::from(*n)).sum::<u64>();
        let compared = |group: &[u32; PARTS]| sum(&group[COMPARED]) as f64;
        let samples: u64 = self.groups.iter().map(|group| sum(group)).sum();
        let all: f64 = self.groups.iter().map(compared).sum();
        let filled = self.groups.iter().filter(|it| compared(it) > 0.0).count() as f64;
        if all < LEAST as f64 || filled < GROUPS as f64 / 2.0 {
            return None;
        }
        let expected = 1.0 / COMPARED.len() as f64;
        let (mut off, mut most) = (0.0, 0.0f64);
        for part in COMPARED {
            let of = |group: &[u32; PARTS]| f64::from(group[part]);
            let share = self.groups.iter().map(of).sum::<f64>() / all;
            let residual = |group: &[u32; PARTS]| (of(group) - share * compared(group)).powi(2);
            let squares: f64 = self.groups.iter().map(residual).sum();
            // Not below that of independent samples.
            let least = expected * (1.0 - expected) / all;
            let variance = (squares * filled / (filled - 1.0) / (all * all)).max(least);
            off += (share - expected).abs() / 2.0;
            most = most.max((share - expected).abs() / variance.sqrt());
        }
        Some(Fell {
            samples,
            shares: std::array::from_fn(|part| {
                let of = self.groups.iter().map(|group| f64::from(group[part]));
                of.sum::<f64>() / samples as f64
            }),
            off,
            beats: most > SIGNS && off > MATTERS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

    /// Part of its cost after which a sample's time is read.
    const PAUSE: f64 = 0.6;

    /// Samples of 20 us items, one after the other for 4 s, at these distances.
    fn positions(mut distance: impl FnMut(&mut SplitMix64) -> f64, cost: f64) -> Fell {
        const LENGTH: f64 = 20_000.0;
        let mut rng = SplitMix64::new(5);
        let mut positions = Positions::default();
        let (mut now, mut next) = (0.0, 777.0);
        while now < 4e9 {
            let (mut rest, mut times) = (LENGTH, Vec::new());
            let begin = now;
            while next < now + rest {
                rest -= next - now;
                times.push(next + PAUSE * cost - begin);
                now = next + cost;
                next += distance(&mut rng).max(cost);
            }
            now += rest;
            positions.add(
                begin as i64,
                now - begin,
                cost,
                PAUSE * cost,
                times.into_iter(),
            );
            now += 3_000.0;
            next = f64::max(next, now);
        }
        positions.close().unwrap()
    }

    /// Distances that are drawn from a wide range don't beat; a multiple of the items' distance does, as do distances
    /// that vary by little.
    #[test]
    fn equal_distances_beat() {
        let even = |rng: &mut SplitMix64| 5_000.0 + f64::from(rng.below(90_000));
        let fell = positions(even, 4_000.0);
        assert!(!fell.beats && fell.off < 0.05, "{fell:?}");
        // Their times are read when much of their cost is over.
        let fell = positions(even, 13_000.0);
        assert!(!fell.beats && fell.off < 0.05, "{fell:?}");
        let fell = positions(|_| 46_000.0 + 4_000.0 * 2.0, 4_000.0);
        assert!(fell.beats && fell.off > 0.3, "{fell:?}");
        let fell = positions(|rng| 53_900.0 + f64::from(rng.below(200)), 4_000.0);
        assert!(fell.beats, "{fell:?}");
    }

    /// Too few samples yield nothing, and no input yields NaN.
    #[test]
    fn too_few() {
        let mut positions = Positions::default();
        positions.add(0, 10.0, 20.0, 0.0, [5.0].into_iter());
        positions.add(
            i64::MIN,
            10.0,
            0.0,
            0.0,
            [f64::NAN, -1.0, 1e300].into_iter(),
        );
        for n in 0..400 {
            positions.add(n * STRETCH_NS, 10.0, 0.0, 0.0, [5.0].into_iter());
        }
        assert_eq!(positions.close(), None);
    }
}
