//! Measures how long a sample stops the interrupted code, in this process.
//!
//! A loop that only reads the clock sees each interrupt as a jump in time. The sample taken in it shows when,
//! within the jump, its time was read. The pause is the median of some dozens.
//!
//! Assumption: what stops this loop stops the target for as long. Interrupts without a sample are left out.

use std::time::Duration;

use pebs_stats::summary::exact_quantile;

use crate::collect::clock::now;
use crate::estimate::Pause;
use crate::units::KtimeNs;

/// A jump of the clock above this is an interrupt, ns: two readings are normally 25..150 apart.
const JUMP_NS: u64 = 400;

/// Minimum number of samples for a result.
const ENOUGH: u32 = 24;

/// An interquartile range over the standard deviation, of a normal distribution.
const QUARTILES: f64 = 1.349;

/// Minimum and maximum time of watching.
const WATCH: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(40));

/// A jump of the clock: the last instant before it and the first after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Jump {
    from: KtimeNs,
    to: KtimeNs,
}

/// Time to watch a clock with this interval.
pub(super) fn time_to_watch(interval: Duration) -> Duration {
    let (least, most) = WATCH;
    // Twice the undisturbed time, as the watcher may be switched out.
    (interval * ENOUGH * 2).clamp(least, most)
}

/// Watches the clock for a time, and returns its jumps.
pub(super) fn watch(time: Duration) -> Vec<Jump> {
    let mut jumps = Vec::with_capacity(4096);
    let start = now();
    let end = start.0 + time.as_nanos() as u64;
    let mut last = start;
    while last.0 < end && jumps.len() < jumps.capacity() {
        let next = now();
        if next.0 - last.0 > JUMP_NS {
            jumps.push(Jump {
                from: last,
                to: next,
            });
        }
        last = next;
    }
    jumps
}

/// The pause, from jumps and the times of samples, both in order; `None` if too few match.
pub(super) fn pause(jumps: &[Jump], samples: &[KtimeNs]) -> Option<Pause> {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for time in samples {
        let next = jumps.partition_point(|jump| jump.to < *time);
        if let Some(jump) = jumps.get(next).filter(|jump| jump.from <= *time) {
            before.push(time.0 - jump.from.0);
            after.push(jump.to.0 - time.0);
        }
    }
    if before.len() < ENOUGH as usize {
        return None;
    }
    before.sort_unstable();
    after.sort_unstable();
    let spread = deviation(&before).hypot(deviation(&after)) / 2.0;
    Some(Pause {
        before: quantile(&before, 0.5).cast_signed(),
        after: quantile(&after, 0.5).cast_signed(),
        spread: spread.round() as i64,
    })
}

fn quantile(sorted: &[u64], share: f64) -> u64 {
    exact_quantile(sorted, share).unwrap_or_default()
}

/// Standard deviation, by the quartiles: single long interrupts do not count.
fn deviation(sorted: &[u64]) -> f64 {
    (quantile(sorted, 0.75) - quantile(sorted, 0.25)) as f64 / QUARTILES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jump(from: u64, to: u64) -> Jump {
        Jump {
            from: KtimeNs(from),
            to: KtimeNs(to),
        }
    }

    /// Samples are matched with the jumps that contain them; other jumps and samples do not count.
    #[test]
    fn matched() {
        let mut jumps: Vec<Jump> = (0..50).map(|n| jump(n * 1000, n * 1000 + 30)).collect();
        jumps.push(jump(60_000, 69_000));
        let mut samples: Vec<KtimeNs> = (0..50).map(|n| KtimeNs(n * 1000 + 10)).collect();
        samples.push(KtimeNs(55_555));
        let expected = Pause {
            before: 10,
            after: 20,
            spread: 0,
        };
        assert_eq!(pause(&jumps, &samples), Some(expected));
        assert_eq!(pause(&jumps, &samples[..20]), None);
        assert_eq!(pause(&[], &samples), None);
    }

    /// Pauses of different length: the spread is that of the middle between the end of one and the start of the
    /// next. `before` is uniform over 0..=40: quartiles 10 and 30; `after` is constant.
    #[test]
    fn spread() {
        let jumps: Vec<Jump> = (0..41)
            .map(|n| jump(1000 * n, 1000 * n + 100 + n))
            .collect();
        let samples: Vec<KtimeNs> = (0..41).map(|n| KtimeNs(1000 * n + n)).collect();
        let found = pause(&jumps, &samples).unwrap();
        assert_eq!((found.before, found.after), (20, 100));
        assert_eq!(found.spread, (20.0_f64 / 1.349 / 2.0).round() as i64);
    }

    /// Watching returns jumps in order of time, and ends.
    #[test]
    fn jumps_are_in_order() {
        let jumps = watch(Duration::from_millis(5));
        assert!(jumps.iter().all(|jump| jump.to.0 - jump.from.0 > JUMP_NS));
        assert!(jumps.windows(2).all(|two| two[0].to <= two[1].from));
    }
}
