//! Interrupts, softirqs and page faults during visits (`--with irq,faults`): time that is included in functions and
//! waits.

use serde::Serialize;

use crate::store::schema::{InterferenceColumns, MAJOR_FAULTS};
use crate::units::CountUnit;

impl InterferenceColumns {
    /// The same without pebs-trace's own time during page faults: its time on the thread's CPU, in proportion to the
    /// part that faults have of that.
    #[must_use]
    pub(crate) fn net(mut self, oncpu_ns: Option<i64>, own_ns: i64) -> Self {
        let faults = self.fault_ns.zip(oncpu_ns);
        self.fault_ns = faults.map_or(self.fault_ns, |(ns, on_cpu)| {
            Some(ns - own_during(ns, on_cpu, own_ns))
        });
        self
    }
}

/// pebs-trace's own time in `ns` of a thread's time on the CPU, of which it took `own_ns` altogether.
///
/// *Worked number*: of 200 us on the CPU it took 120 us, and faults took 100 us: 60 us of these are its own.
pub(crate) fn own_during(ns: i64, oncpu_ns: i64, own_ns: i64) -> i64 {
    if oncpu_ns <= 0 {
        return 0;
    }
    let part = (ns as f64 / oncpu_ns as f64).clamp(0.0, 1.0);
    ((own_ns.max(0) as f64 * part) as i64).min(ns)
}

/// An interruption of visits, the mean of one visit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct InterferenceRow {
    /// `interrupts`, `softirqs` or `page faults`: time in them; `major faults`: their number.
    pub what: &'static str,
    /// `ns` or `faults`.
    pub unit: CountUnit,
    /// Mean of all visits counted; null if unknown for all.
    pub all: Option<f64>,
    /// Mean of slow visits.
    pub slow: Option<f64>,
    /// Mean of typical visits.
    pub typical: Option<f64>,
}

/// Sums over visits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InterferenceSums([(f64, u64); InterferenceColumns::NAMES.len()]);

impl InterferenceSums {
    pub(crate) fn add(&mut self, visit: &InterferenceColumns) {
        for ((sum, visits), value) in self.0.iter_mut().zip(visit.values()) {
            *sum += value.unwrap_or(0) as f64;
            *visits += u64::from(value.is_some());
        }
    }

    fn mean(&self, at: usize) -> Option<f64> {
        let (sum, visits) = self.0[at];
        (visits > 0).then(|| sum / visits as f64)
    }

    /// Rows of the kinds that are known for any visit.
    pub(crate) fn rows(all: &Self, slow: &Self, typical: &Self) -> Vec<InterferenceRow> {
        let rows = InterferenceColumns::WORDS
            .into_iter()
            .enumerate()
            .map(|(at, what)| InterferenceRow {
                what,
                unit: if what == MAJOR_FAULTS {
                    CountUnit::Faults
                } else {
                    CountUnit::Ns
                },
                all: all.mean(at),
                slow: slow.mean(at),
                typical: typical.mean(at),
            });
        rows.filter(|row| row.all.is_some()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(irq_ns: Option<i64>, major_faults: Option<u32>) -> InterferenceColumns {
        InterferenceColumns {
            irq_ns,
            major_faults,
            ..InterferenceColumns::default()
        }
    }

    fn sums(visits: &[InterferenceColumns]) -> InterferenceSums {
        let mut sums = InterferenceSums::default();
        visits.iter().for_each(|visit| sums.add(visit));
        sums
    }

    /// Faults have their part of pebs-trace's time on the CPU; a wait during a fault has no part of it.
    #[test]
    fn own_work_in_faults() {
        let faults = |ns| InterferenceColumns {
            fault_ns: Some(ns),
            ..InterferenceColumns::default()
        };
        for (ns, on_cpu, own, net) in [
            (100, Some(200), 120, 40),
            (1_000, Some(200), 120, 880),
            (100, Some(0), 120, 100),
            (100, None, 120, 100),
            (50, Some(60), 80, 0),
        ] {
            assert_eq!(faults(ns).net(on_cpu, own), faults(net));
        }
    }

    /// Means are over visits with known values; what is unknown for all is left out, never 0.
    #[test]
    fn means_of_what_is_known() {
        let slow = visit(Some(9_000), None);
        let typical = [visit(Some(1_000), None), visit(None, None)];
        let all = [&typical[..], &[slow]].concat();
        let rows = InterferenceSums::rows(&sums(&all), &sums(&[slow]), &sums(&typical));
        let [row] = rows[..] else {
            panic!("{rows:?}");
        };
        assert_eq!((row.what, row.unit), ("interrupts", CountUnit::Ns));
        assert_eq!(
            (row.all, row.slow, row.typical),
            (Some(5_000.0), Some(9_000.0), Some(1_000.0))
        );
        assert_eq!(slow.beside(&rows), "interrupts 9.00 us (typical 1.00 us)");
        assert_eq!(typical[1].beside(&rows), "interrupts - (typical 1.00 us)");
        assert_eq!(slow.beside(&[]), "");
    }

    /// Named are values that typical visits do not reach, and times only if they are a part of the visit's.
    #[test]
    fn striking() {
        let typical = sums(&[visit(Some(1_000), Some(0))]);
        let rows = InterferenceSums::rows(&typical, &typical, &typical);
        let striking = |irq, major, duration| visit(irq, major).striking(duration, &rows);
        assert_eq!(
            striking(Some(2_500), Some(1), 100_000),
            ["interrupts 2.50 us", "1 major fault"]
        );
        assert!(
            striking(Some(2_500), Some(0), 1_000_000).is_empty(),
            "a small part"
        );
        assert!(striking(Some(1_900), None, 10_000).is_empty(), "as typical");
    }
}
