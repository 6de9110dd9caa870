//! Cost of marks in a run, by the samples that met them. Pure.
//!
//! The cost of a mark depends on what ran before it: where items make system calls, or use more memory than the caches
//! hold, the kernel's code and data are no longer in the caches, and a mark takes up to twice as long as one that was
//! measured before the run. A clock's samples tell: those for which the kernel was entered by a mark are as many as
//! marks took time. A sample does not fall into another one, so it stands for the distance to the next less its own cost.
//!
//! Few samples tell little; then what was measured counts. With c the cost as measured, d what a sample stands for, and n
//! samples at marks, c/d samples are expected. The number has a Poisson distribution, whose mean is that times an unknown
//! factor f. Before the run f has a Gamma distribution of mean 1 and shape [`SHAPE`], as costs differ by about half;
//! after it the mean is (SHAPE + n) / (SHAPE + c/d).
//! *Worked number*: 400,000 marks of 0.68 us, samples every 200 us that cost 13 us: 1,455 are expected. 2,767 came:
//! f = 2771 / 1459 = 1.90, a mark took 1.29 us.

/// Shape of the factor's distribution before the run: its standard deviation is a half.
const SHAPE: f64 = 4.0;

/// Samples of a clock that the kernel took while it handled marks, by the way that it was entered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtMarks {
    /// Within visits.
    pub inside: Met,
    /// Outside of visits.
    pub outside: Met,
}

/// A number of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    pub samples: u64,
    /// Distances that they stand for, ns.
    pub distances_ns: u64,
}

/// Cost of marks, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MarksCost {
    pub whole_ns: f64,
    /// The part outside of visits.
    pub outside_ns: f64,
}

impl AtMarks {
    /// Adds a sample that stands for that distance.
    pub(crate) const fn add(&mut self, in_visit: bool, distance_ns: u64) {
        let met = match in_visit {
            true => &mut self.inside,
            false => &mut self.outside,
        };
        met.samples += 1;
        met.distances_ns += distance_ns;
    }

    /// Within visits and outside.
    pub(crate) const fn all(&self) -> Met {
        Met {
            samples: self.inside.samples + self.outside.samples,
            distances_ns: self.inside.distances_ns + self.outside.distances_ns,
        }
    }

    /// The cost of the marks that was measured before the run, corrected by factors for the whole and for the part
    /// within visits.
    pub(crate) fn correct(&self, measured: MarksCost, sample_ns: f64) -> MarksCost {
        let inside_ns = (measured.whole_ns - measured.outside_ns).max(0.0);
        let whole_ns = measured.whole_ns * self.all().factor(measured.whole_ns, sample_ns);
        let inside_ns = inside_ns * self.inside.factor(inside_ns, sample_ns);
        MarksCost {
            whole_ns,
            outside_ns: (whole_ns - inside_ns).max(0.0),
        }
    }
}

impl Met {
    /// Factor for what was measured; 1 without samples, as it is not known then what they would stand for.
    pub(crate) fn factor(self, measured_ns: f64, sample_ns: f64) -> f64 {
        let number = self.samples as f64;
        let stands_for = self.distances_ns as f64 / number - sample_ns;
        if self.samples == 0 || stands_for <= 0.0 {
            return 1.0;
        }
        (SHAPE + number) / (SHAPE + measured_ns / stands_for)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(samples: u64, distance_ns: u64) -> Met {
        Met {
            samples,
            distances_ns: samples * distance_ns,
        }
    }

    /// The worked number; few samples say little.
    #[test]
    fn factors() {
        let measured_ns = 400_000.0 * 680.0;
        let factor = met(2_767, 200_000).factor(measured_ns, 13_000.0);
        assert!((factor - 1.9).abs() < 0.01, "{factor}");
        assert_eq!(Met::default().factor(measured_ns, 13_000.0), 1.0);
        let few = met(2, 1_300_000).factor(1e6, 13_000.0);
        assert!((1.0..1.3).contains(&few), "{few}");
        assert_eq!(
            met(5, 10_000).factor(1e6, 13_000.0),
            1.0,
            "no time between samples"
        );
    }

    /// Inside and outside are distinguished, and the sum is that of all.
    #[test]
    fn parts() {
        let at = AtMarks {
            inside: met(3_000, 100_000),
            outside: met(1_000, 100_000),
        };
        let measured = MarksCost {
            whole_ns: 2e8,
            outside_ns: 1e8,
        };
        let corrected = at.correct(measured, 0.0);
        assert!(
            (corrected.whole_ns / 4e8 - 1.0).abs() < 0.01,
            "{corrected:?}"
        );
        assert!(
            (corrected.outside_ns / 1e8 - 1.0).abs() < 0.02,
            "{corrected:?}"
        );
    }
}
