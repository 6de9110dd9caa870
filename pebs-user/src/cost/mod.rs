//! Cost of sampling: the cost of a sample, and its effect on a run with another reset value.
//!
//! The elapsed time of fixed work grows by the same amount with each sample taken, so the slope of elapsed time
//! over samples is the cost of one, `alpha` ([`mod@fit`]). Counting the events of a program without sampling it
//! then predicts the cost of any reset value ([`predict`]). Pure, except [`calibrate`] and [`counters`], which
//! measure.
//!
//! Source: Akiyama and Hirofuchi 2017, sections 4.2 (alpha), 4.4 (prediction, error E) and 4.5 (by core).

pub(crate) mod calibrate;
pub(crate) mod clocks;
pub(crate) mod counters;
mod fit;
pub(crate) mod overhead;
mod pause;
pub(crate) mod plan;
pub(crate) mod plot;
pub(crate) mod ring;
pub(crate) mod stepping;

pub(crate) use fit::{Fit, Point, fit};

use overhead::Counts;

/// A program as it runs without sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Native {
    /// Time on the CPU, ns. With several cores: of one, or the sum if they are alike.
    pub elapsed_ns: f64,
    /// Events counted meanwhile; for clocks the same time in ns.
    pub events: f64,
    /// Cost of marks and counted page faults, ns, which does not depend on the reset value.
    pub fixed_ns: f64,
}

/// Prediction of a run with a reset value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Predicted {
    pub samples: f64,
    /// Time on the CPU, ns.
    pub elapsed_ns: f64,
    /// Slow-down, 0.02 = 2 %.
    pub overhead: f64,
}

/// Predicts a run; `None` if samples would take all of the time, or if nothing ran.
///
/// Events that count work: N = events/R and T = T0 + fixed + alpha N. A clock advances while a sample is taken, so
/// N = T/R and T = (T0 + fixed)/(1 - alpha/R).
/// Assumption: the cost of a sample does not depend on the program.
/// *Worked number*: one second, alpha 2,500 ns, R = 16,000 ns of a clock: T = 1 s/(1 - 0.15625) = 1.185 s and
/// N = 74,074.
#[must_use]
pub(crate) fn predict(
    native: &Native,
    reset: u64,
    alpha_ns: f64,
    counts: Counts,
) -> Option<Predicted> {
    if native.elapsed_ns <= 0.0 || reset == 0 {
        return None;
    }
    let reset = reset as f64;
    let without = native.elapsed_ns + native.fixed_ns;
    let (samples, elapsed_ns) = match counts {
        Counts::Work => {
            let samples = native.events / reset;
            (samples, without + alpha_ns * samples)
        }
        Counts::Time => {
            let rest = 1.0 - alpha_ns / reset;
            if rest <= 0.0 {
                return None;
            }
            let elapsed = without / rest;
            (elapsed / reset, elapsed)
        }
    };
    let overhead = elapsed_ns / native.elapsed_ns - 1.0;
    Some(Predicted {
        samples,
        elapsed_ns,
        overhead,
    })
}

/// The smallest reset value whose predicted overhead is at most `most`; `None` if the fixed cost alone exceeds
/// that.
///
/// The inverse of [`predict`], rounded up.
#[must_use]
pub(crate) fn smallest_reset(
    native: &Native,
    alpha_ns: f64,
    counts: Counts,
    most: f64,
) -> Option<u64> {
    let room = most * native.elapsed_ns - native.fixed_ns;
    if native.elapsed_ns <= 0.0 || room <= 0.0 {
        return None;
    }
    let reset = match counts {
        Counts::Work => alpha_ns * native.events / room,
        Counts::Time => alpha_ns * native.elapsed_ns * (1.0 + most) / room,
    };
    // The kernel accepts no reset value beyond 2^63.
    (reset < i64::MAX as f64).then(|| (reset.ceil() as u64).max(1))
}

/// Relative error of a prediction, 0.02 = 2 %: above 0 if the run took longer than expected.
///
/// Source: Akiyama and Hirofuchi 2017, equation (1).
#[must_use]
pub(crate) fn error(measured_ns: f64, expected_ns: f64) -> f64 {
    (measured_ns - expected_ns) / expected_ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Native = Native {
        elapsed_ns: 1e9,
        events: 1e9,
        fixed_ns: 0.0,
    };

    /// The worked numbers: a clock's, and the paper's busy loop of 34.2 s on machine 1 with 286 ns a sample.
    #[test]
    fn worked_numbers() {
        let clock = predict(&SECOND, 16_000, 2_500.0, Counts::Time).unwrap();
        assert!((clock.elapsed_ns - 1.185_185e9).abs() < 1e3, "{clock:?}");
        assert!((clock.samples - 74_074.07).abs() < 0.1, "{clock:?}");
        let paper = Native {
            elapsed_ns: 34.2e9,
            events: 40e9,
            fixed_ns: 0.0,
        };
        // 20 million samples: 5.72 s more.
        let work = predict(&paper, 2_000, 286.0, Counts::Work).unwrap();
        assert!((work.elapsed_ns - 39.92e9).abs() < 1.0, "{work:?}");
        assert!((work.overhead - 5.72 / 34.2).abs() < 1e-9, "{work:?}");
        assert!((error(1.02e9, 1.0e9) - 0.02).abs() < 1e-12);
    }

    /// A clock whose samples last longer than its interval leaves no time to run.
    #[test]
    fn no_time_left() {
        assert_eq!(predict(&SECOND, 2_500, 2_500.0, Counts::Time), None);
        assert_eq!(predict(&Native::default(), 16_000, 1.0, Counts::Work), None);
        let marked = Native {
            fixed_ns: 4e7,
            ..SECOND
        };
        assert_eq!(smallest_reset(&marked, 1.0, Counts::Time, 0.03), None);
    }

    proptest! {
        /// The reset value for a bound keeps it, and no smaller one does, except by rounding.
        #[test]
        fn bound_is_kept(
            elapsed_ns in 1e6..1e11f64,
            rate in 0.001..4.0f64,
            fixed in 0.0..0.009f64,
            alpha in 50.0..20_000.0f64,
            most in 0.01..0.5f64,
            clock: bool,
        ) {
            let counts = if clock { Counts::Time } else { Counts::Work };
            let rate = if clock { 1.0 } else { rate };
            let native = Native { elapsed_ns, events: rate * elapsed_ns, fixed_ns: fixed * elapsed_ns };
            let reset = smallest_reset(&native, alpha, counts, most).unwrap();
            let there = predict(&native, reset, alpha, counts).unwrap();
            prop_assert!(there.overhead <= most * (1.0 + 1e-9), "{there:?}");
            if reset > 2 {
                let below = predict(&native, reset - 2, alpha, counts);
                prop_assert!(below.is_none_or(|it| it.overhead > most), "{below:?}");
            }
        }

        /// More events between samples never cost more.
        #[test]
        fn falls_with_the_reset_value(
            reset in 20_001u64..1 << 40, step in 1u64..1 << 40, alpha in 0.0..20_000.0f64, clock: bool,
        ) {
            let counts = if clock { Counts::Time } else { Counts::Work };
            let of = |reset| predict(&SECOND, reset, alpha, counts).unwrap();
            let (small, large) = (of(reset), of(reset + step));
            prop_assert!(large.elapsed_ns <= small.elapsed_ns && large.samples <= small.samples);
        }
    }
}
