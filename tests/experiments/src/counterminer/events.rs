//! Counts of a run: 13 events of Valgrind, more events of a CPU that are sums of these, and cycles as a known function.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use pebs_mine::multiplex::Exact;
use pebs_mine::series::{Event, Series};
use pebs_stats::rng::Rng;

/// Events in the order in which they are used: those of Valgrind first, then those of a CPU.
const EVENTS: [(&str, &[&str], &[&str]); 36] = [
    ("instructions", &["Ir"], &[]),
    ("loads", &["Dr"], &[]),
    ("stores", &["Dw"], &[]),
    ("l1i-misses", &["I1mr"], &[]),
    ("l1d-load-misses", &["D1mr"], &[]),
    ("l1d-store-misses", &["D1mw"], &[]),
    ("branches", &["Bc"], &[]),
    ("branch-misses", &["Bcm"], &[]),
    ("indirect-branches", &["Bi"], &[]),
    ("indirect-misses", &["Bim"], &[]),
    ("ll-fetch-misses", &["ILmr"], &[]),
    ("ll-load-misses", &["DLmr"], &[]),
    ("ll-store-misses", &["DLmw"], &[]),
    ("l1-use", &["AcCost1"], &[]),
    ("l1-loss", &["SpLoss1"], &[]),
    ("ll-use", &["AcCost2"], &[]),
    ("ll-loss", &["SpLoss2"], &[]),
    ("locked", &["Ge"], &[]),
    ("syscalls", &["sysCount"], &[]),
    ("accesses", &["Dr", "Dw"], &[]),
    ("all-branches", &["Bc", "Bi"], &[]),
    ("all-branch-misses", &["Bcm", "Bim"], &[]),
    ("l1d-misses", &["D1mr", "D1mw"], &[]),
    ("l1-misses", &["I1mr", "D1mr", "D1mw"], &[]),
    ("ll-data-misses", &["DLmr", "DLmw"], &[]),
    ("ll-misses", &["ILmr", "DLmr", "DLmw"], &[]),
    ("l1d-load-hits", &["Dr"], &["D1mr"]),
    ("l1d-store-hits", &["Dw"], &["D1mw"]),
    ("l1i-hits", &["Ir"], &["I1mr"]),
    ("branch-hits", &["Bc"], &["Bcm"]),
    ("indirect-hits", &["Bi"], &["Bim"]),
    ("ll-read-misses", &["ILmr", "DLmr"], &[]),
    ("l1-read-misses", &["I1mr", "D1mr"], &[]),
    ("ll-load-hits", &["D1mr"], &["DLmr"]),
    ("ll-store-hits", &["D1mw"], &["DLmw"]),
    ("ll-fetch-hits", &["I1mr"], &["ILmr"]),
];

/// Cycles per event: the weights of callgrind_annotate, and the cost of a misprediction.
pub const CYCLES: [(&str, f64); 6] = [
    ("instructions", 1.0),
    ("l1-misses", 10.0),
    ("ll-misses", 100.0),
    ("all-branch-misses", 10.0),
    ("locked", 20.0),
    ("syscalls", 500.0),
];

/// Counts of each slice of a run.
#[derive(Clone, Debug)]
pub struct Counts {
    events: Vec<(String, Vec<f64>)>,
    /// Cycles of each slice.
    pub cycles: Vec<f64>,
}

impl Counts {
    /// Reads what [`super::programs::counted`] wrote.
    pub fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file)?;
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().context("an empty file")?.split(',').collect();
        let mut columns: Vec<Vec<f64>> = vec![Vec::new(); names.len()];
        for line in lines {
            for (column, value) in columns.iter_mut().zip(line.split(',')) {
                column.push(value.parse()?);
            }
        }
        let rows = columns.first().map_or(0, Vec::len);
        let sum = |of: &[&str], row: usize| -> f64 {
            let places = of
                .iter()
                .filter_map(|name| names.iter().position(|it| it == name));
            places.map(|at| columns[at][row]).sum()
        };
        let events: Vec<(String, Vec<f64>)> = EVENTS
            .iter()
            .map(|(name, plus, minus)| {
                let counts = (0..rows).map(|row| sum(plus, row) - sum(minus, row));
                ((*name).to_owned(), counts.collect())
            })
            .collect();
        let mut cycles = vec![0.0; rows];
        for (name, cost) in CYCLES {
            let counts = events
                .iter()
                .find(|it| it.0 == name)
                .context("an event is missing")?;
            cycles
                .iter_mut()
                .zip(&counts.1)
                .for_each(|(sum, count)| *sum += cost * count);
        }
        Ok(Self { events, cycles })
    }

    /// The first `events` events with times: a slice lasts a millisecond on average.
    ///
    /// `unrest`: standard deviation of the logarithm of the machine's speed. Valgrind's runs have no neighbours and no
    /// clock changes; two runs of a deterministic program are nearly equal.
    pub fn exact(&self, events: usize, unrest: f64, seed: u64) -> Exact {
        /// Part of a deviation that remains after a slice: half of it after 14.
        const STAYS: f64 = 0.95;
        let mean = pebs_stats::summary::mean(&self.cycles);
        let mut rng = Rng::new(seed);
        let mut deviation = rng.normal();
        let lengths: Vec<f64> = self
            .cycles
            .iter()
            .map(|cycles| {
                deviation = STAYS * deviation + (1.0 - STAYS * STAYS).sqrt() * rng.normal();
                cycles / mean * (unrest * deviation).exp()
            })
            .collect();
        Exact::new(self.events.iter().take(events).cloned().collect(), &lengths)
    }

    /// All events, a row per slice.
    pub fn series(&self) -> Series {
        let events = self.events.iter().map(|(name, counts)| Event {
            name: name.clone(),
            counts: counts.clone(),
            running: Vec::new(),
        });
        Series::of(events.collect())
    }
}
