//! Simulates multiplexing in the kernel, more events than counters, on exactly known series.
//!
//! The kernel keeps the events in a list and programs those at its head, one for each counter; after each turn the
//! first one moves to the end (`rotate_ctx` in kernel/events/core.c). A tool that reads at intervals scales a count by
//! the share of the interval in which the event had a counter.

use crate::series::{Event, Series};
use pebs_stats::rng::Rng;

/// True counts in short slices.
#[derive(Clone, Debug)]
pub struct Exact {
    names: Vec<String>,
    /// Begin of each slice, and end of the last one, ms.
    times: Vec<f64>,
    /// For each event its cumulative count at each of these times.
    sums: Vec<Vec<f64>>,
}

impl Exact {
    /// Slices of known length (ms) and, for each event, their counts.
    #[must_use]
    pub fn new(events: Vec<(String, Vec<f64>)>, lengths: &[f64]) -> Self {
        let sums = |values: &[f64]| {
            let mut sum = 0.0;
            let steps = values.iter().map(|value| {
                sum += value;
                sum
            });
            std::iter::once(0.0).chain(steps).collect::<Vec<f64>>()
        };
        Self {
            times: sums(lengths),
            sums: events.iter().map(|(_, counts)| sums(counts)).collect(),
            names: events.into_iter().map(|(name, _)| name).collect(),
        }
    }

    /// Keeps only the first `events` events.
    #[must_use]
    pub fn first(&self, events: usize) -> Self {
        Self {
            names: self.names.iter().take(events).cloned().collect(),
            times: self.times.clone(),
            sums: self.sums.iter().take(events).cloned().collect(),
        }
    }

    /// End of the last slice, ms.
    #[must_use]
    pub fn end(&self) -> f64 {
        self.times.last().copied().unwrap_or(0.0)
    }

    /// Count of an event before a time; within a slice in proportion to time.
    fn before(&self, event: usize, time: f64) -> f64 {
        let sums = &self.sums[event];
        let at = self.times.partition_point(|&begin| begin <= time);
        if at == 0 {
            return 0.0;
        }
        let Some(&end) = self.times.get(at) else {
            return sums[at - 1];
        };
        let begin = self.times[at - 1];
        let part = (time - begin) / (end - begin);
        sums[at - 1] + (sums[at] - sums[at - 1]) * part
    }

    fn between(&self, event: usize, from: f64, to: f64) -> f64 {
        self.before(event, to) - self.before(event, from)
    }

    /// Counts of each interval with a counter for each event.
    #[must_use]
    pub fn counted(&self, interval: f64) -> Series {
        let rows = (self.end() / interval) as usize;
        let events = self.names.iter().enumerate().map(|(event, name)| {
            let count = |row: usize| {
                let from = row as f64 * interval;
                self.between(event, from, from + interval)
            };
            Event {
                name: name.clone(),
                counts: (0..rows).map(count).collect(),
                running: vec![1.0; rows],
            }
        });
        Series::of(events.collect())
    }

    /// Counts of each interval as printed by a tool that multiplexes counters.
    #[must_use]
    pub fn multiplexed(&self, rotation: &Rotation) -> Series {
        let Rotation {
            counters,
            turn,
            interval,
            lateness,
            seed,
        } = *rotation;
        let count = self.names.len();
        let mut rng = Rng::new(seed);
        let first = rng.below(count.max(1));
        let phase = turn * rng.unit();
        let rows = (self.end() / interval) as usize;
        // The reader wakes up a bit late.
        let reads: Vec<f64> = (0..=rows)
            .map(|row| {
                let late = if row == 0 { 0.0 } else { lateness * rng.unit() };
                row as f64 * interval + late
            })
            .collect();
        let mut events: Vec<Event> = self
            .names
            .iter()
            .map(|name| Event {
                name: name.clone(),
                ..Event::default()
            })
            .collect();
        let mut on = vec![(0.0, 0.0); count];
        for pair in reads.windows(2) {
            on.fill((0.0, 0.0));
            let mut from = pair[0];
            while from < pair[1] {
                let number = ((from + phase) / turn + 1e-9).floor();
                let to = ((number + 1.0) * turn - phase).min(pair[1]);
                for place in 0..counters.min(count) {
                    let event = (first + number as usize + place) % count;
                    on[event].0 += self.between(event, from, to);
                    on[event].1 += to - from;
                }
                from = to;
            }
            for (event, &(counted, running)) in events.iter_mut().zip(&on) {
                let share = (running / (pair[1] - pair[0])).min(1.0);
                event.running.push(share as f32);
                event.counts.push(if share > 0.0 {
                    (counted / share).round()
                } else {
                    f64::NAN
                });
            }
        }
        Series::of(events)
    }
}

/// Multiplexing and reading of the counters.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// Counters of the CPU.
    pub counters: usize,
    /// Length of a turn, in ms.
    pub turn: f64,
    /// Time between two readings, ms.
    pub interval: f64,
    /// Largest delay of a reading, ms.
    pub lateness: f64,
    /// Seed of the delays and of the first turn.
    pub seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact() -> Exact {
        let slices = 400;
        let events = (1..=10).map(|k| (format!("e{k}"), vec![f64::from(k) * 100.0; slices]));
        Exact::new(events.collect(), &vec![1.0; slices])
    }

    /// Each event has its fair share of the counters; of a steady program the scaled counts are right.
    #[test]
    fn fair_turns() {
        let rotation = Rotation {
            counters: 4,
            turn: 1.0,
            interval: 10.0,
            lateness: 0.0,
            seed: 3,
        };
        let series = exact().multiplexed(&rotation);
        assert_eq!((series.rows(), series.events.len()), (40, 10));
        for (event, exact) in series.events.iter().zip(&exact().counted(10.0).events) {
            for row in 0..series.rows() {
                assert!((event.counts[row] - exact.counts[row]).abs() <= 1.0);
                assert!((event.running[row] - 0.4).abs() < 1e-3);
            }
        }
    }

    /// With long turns an event has no turn in some intervals: these are unknown, not 0.
    #[test]
    fn intervals_without_a_turn() {
        let rotation = Rotation {
            counters: 4,
            turn: 4.0,
            interval: 8.0,
            lateness: 0.1,
            seed: 5,
        };
        let series = exact().multiplexed(&rotation);
        for event in &series.events {
            let missing = event.counts.iter().filter(|it| it.is_nan()).count();
            assert!((10..40).contains(&missing), "{missing}");
            let zero = event.counts.iter().filter(|&&it| it == 0.0).count();
            assert_eq!(zero, 0);
        }
    }
}
