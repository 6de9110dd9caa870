//! Properties of the figures: parts sum to the whole, and intervals have the stated coverage.

use proptest::prelude::*;

use super::{FUNCTIONS, holds, sum};
use crate::compare::explain::contrast::{Naming, gap, on_and_off};
use crate::compare::explain::keys::Key;
use crate::compare::explain::model::CauseType;
use crate::compare::explain::sums::{AllSums, ClassSums};
use crate::compare::explain::variance::divide;
use crate::compare::names::Names;
use crate::compare::pool::OwnError;
use crate::compare::waits::{States, WaitKey};
use crate::rng::SplitMix64;
use crate::store::fixtures::{Maker, info};
use crate::units::FunctionId;
use pebs_stats::blocks::{Blocks, block_of};

/// A class of items, each with samples of three functions and a wait, all known.
fn class(items: &[([u16; 3], u32, u32)], first: u32) -> ClassSums {
    let mut class = ClassSums::default();
    for (item, (samples, wait, idle)) in (first..).zip(items) {
        let block = block_of(item);
        let active: f64 = samples.iter().map(|n| f64::from(*n) * 1_000.0).sum();
        let active = active + 300.0;
        class.items.add(block, 1.0);
        class.active.add(block, active);
        class
            .latency
            .add(block, active + f64::from(*wait) + f64::from(*idle));
        for (function, &n) in samples.iter().enumerate().filter(|it| *it.1 > 0) {
            let key = Key::Function(FunctionId(function as u32));
            let (sum, count) = class.keys.entry(key).or_default();
            sum.add(block, f64::from(n) * 1_000.0);
            *count += u64::from(n);
            class.events.add(block, f64::from(n) * 1_000.0);
            class.samples += u64::from(n);
        }
        let key = Key::Wait(WaitKey {
            state: 0,
            function: None,
        });
        let (sum, count) = class
            .keys
            .entry(key)
            .or_insert_with(|| (Blocks::default(), 0));
        sum.add(block, f64::from(*wait));
        *count += 1;
    }
    class
}

fn with_naming<T>(use_it: impl FnOnce(&Naming<'_>) -> T) -> T {
    let trace = Maker::new(info(&[])).finish(&FUNCTIONS);
    let names = Names::of(&trace, 0..6).unwrap();
    let mut states = States::default();
    states.index("sleeping");
    use_it(&Naming {
        names: &names,
        states: &states,
        probes: &[],
    })
}

/// If samples beat with the items, functions have no interval; observed figures have one.
#[test]
fn no_interval_of_functions_that_beat() {
    let items = |samples: [u16; 3], wait| vec![(samples, wait, 10); 40];
    for beats in [false, true] {
        let mut slow = class(&items([50, 3, 1], 9_000), 0);
        let mut typical = class(&items([1, 1, 1], 100), 1_000);
        (slow.beats, typical.beats) = (beats, beats);
        let found = with_naming(|naming| gap((&slow, &typical), &[], naming, 9)).unwrap();
        assert!(found.gap_low_ns.is_some());
        let has = |kind: CauseType| found.causes.iter().any(|it| it.kind == kind);
        assert!(has(CauseType::Function) && has(CauseType::Wait));
        for cause in &found.causes {
            let is_known = !beats || cause.kind != CauseType::Function;
            let figures = &cause.figures;
            assert_eq!(figures.share_low.is_some(), is_known, "{cause:?}");
            assert_eq!(figures.excess_high_ns.is_some(), is_known, "{cause:?}");
        }
        assert_eq!(found.unexplained.share_low.is_none(), beats);
    }
}

/// The error of pebs-trace's own time is in the intervals of the times that it was subtracted from: that of samples, as
/// slow items have more of them; that of marks in functions only, as all items have the same marks. Waits have none.
#[test]
fn own_error_in_intervals() {
    let items = |samples: [u16; 3], wait| vec![(samples, wait, 10); 400];
    let found = |error: OwnError| {
        let mut slow = class(&items([60, 20, 0], 9_000), 0);
        let mut typical = class(&items([20, 20, 0], 100), 10_000);
        for (class, samples) in [(&mut slow, 4), (&mut typical, 1)] {
            (class.own_error, class.own_samples) = (error, 400 * samples);
        }
        let gap = with_naming(|naming| gap((&slow, &typical), &[], naming, 9)).unwrap();
        let wide = |low: Option<f64>, high: Option<f64>| high.unwrap() - low.unwrap();
        let cause = |kind, at: u32| {
            let id = (kind == CauseType::Function).then_some(at);
            let mut causes = gap.causes.iter();
            let of = causes.find(|it| it.kind == kind && it.function.function_id == id);
            of.map_or(f64::NAN, |it| {
                wide(it.figures.excess_low_ns, it.figures.excess_high_ns)
            })
        };
        let [on, off] = on_and_off(&slow, &typical).unwrap();
        [
            wide(gap.gap_low_ns, gap.gap_high_ns),
            wide(on.excess_low_ns, on.excess_high_ns),
            wide(off.excess_low_ns, off.excess_high_ns),
            cause(CauseType::Function, 0),
            cause(CauseType::Wait, 0),
        ]
    };
    let near = |found: f64, wanted: f64| (found - wanted).abs() <= 0.1 * wanted + 1e-6;
    let none = found(OwnError::default());
    assert!(none.iter().all(|it| near(*it, 0.0)), "{none:?}");
    // Slow items have three samples more, so twice 1.96 x 3 x 500 ns; f has 3/4 of 4 samples and 1/2 of 1.
    let sample = OwnError {
        marks: 0.0,
        sample: 500.0,
    };
    let both = 2.0 * 1.96 * 500.0;
    let [gap, on, off, f, wait] = found(sample);
    assert!(near(gap, 3.0 * both) && near(on, 3.0 * both), "{gap} {on}");
    assert!(near(f, 2.5 * both), "{f}");
    assert!(near(off, 0.0) && near(wait, 0.0), "{off} {wait}");
    let marks = OwnError {
        marks: 500.0,
        sample: 0.0,
    };
    let [gap, on, off, f, wait] = found(marks);
    assert!(
        near(gap, 0.0) && near(on, 0.0) && near(f, both / 4.0),
        "{gap} {on} {f}"
    );
    assert!(near(off, 0.0) && near(wait, 0.0), "{off} {wait}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    // For any items the shares sum to the gap, each lies within its interval except by chance, and no
    // figure is NaN.
    #[test]
    fn shares_sum_to_the_gap(
        slow in prop::collection::vec(([0_u16..60, 0..60, 0..3], 0_u32..90_000, 0_u32..20_000), 1..30),
        typical in prop::collection::vec(([0_u16..4, 0..4, 0..3], 0_u32..2_000, 0_u32..500), 1..60),
        top in 0_usize..5,
    ) {
        let (slow, typical) = (class(&slow, 0), class(&typical, 1_000));
        let found = with_naming(|naming| gap((&slow, &typical), &[], naming, top));
        if let Some(found) = found {
            prop_assert!((sum(&found) - 1.0).abs() < 1e-6, "{}", sum(&found));
            prop_assert!(found.causes.len() <= top);
            prop_assert!(found.causes.is_sorted_by(|a, b| a.figures.share >= b.figures.share));
            for cause in &found.causes {
                let figures = [cause.figures.share, cause.figures.excess_ns, cause.figures.slow_ns, cause.figures.typical_ns];
                prop_assert!(figures.iter().all(|it| it.is_finite()), "{cause:?}");
                prop_assert!(cause.figures.share_low.is_none() || cause.figures.share_low <= cause.figures.share_high);
            }
        }
    }

    // The shares of the variance sum to 1.
    #[test]
    fn variance_sums_to_one(
        items in prop::collection::vec(([0_u16..30, 0..9, 0..3], 0_u32..90_000, 0_u32..9_000), 20..80),
    ) {
        let mut all = AllSums::default();
        for (item, (samples, wait, idle)) in (0..).zip(&items) {
            let block = block_of(item);
            let active = samples.iter().map(|n| f64::from(*n) * 1_000.0).sum::<f64>() + 300.0;
            let latency = active + f64::from(*wait) + f64::from(*idle) - 40_000.0;
            let pairs = [
                (&mut all.items, 1.0),
                (&mut all.latency.0, latency),
                (&mut all.latency.1, latency * latency),
                (&mut all.active.0, active),
                (&mut all.active.1, active * latency),
                (&mut all.events.0, active - 300.0),
                (&mut all.events.1, (active - 300.0) * latency),
            ];
            pairs.into_iter().for_each(|(sum, value)| sum.add(block, value));
            for (function, &n) in samples.iter().enumerate() {
                let sums = all.keys.entry(Key::Function(FunctionId(function as u32))).or_default();
                sums.0.add(block, f64::from(n) * 1_000.0);
                sums.1.add(block, f64::from(n) * 1_000.0 * latency);
                sums.2 += u64::from(n);
            }
            let sums = all.keys.entry(Key::Wait(WaitKey { state: 0, function: None })).or_default();
            sums.0.add(block, f64::from(*wait));
            sums.1.add(block, f64::from(*wait) * latency);
            sums.2 += 1;
        }
        let found = with_naming(|naming| divide(&all, naming, 2, false));
        if let Some(found) = found {
            let attributed: f64 = found.parts.iter().map(|it| it.share).sum();
            let whole = attributed + found.others + found.unexplained;
            prop_assert!((whole - 1.0).abs() < 1e-6, "{whole}");
        }
    }
}

/// The intervals contain the truth about as often as stated: 40 slow items with a few samples each, of
/// which f takes 70 % on average.
#[test]
fn intervals_hold_the_truth() {
    let mut random = SplitMix64::new(9);
    let trials = 60;
    let typical = class(&[([1, 1, 0], 0, 0); 400], 5_000);
    let held = (0..trials).filter(|_| {
        let slow: Vec<_> = (0..40)
            .map(|_| {
                let n = 6 + random.below(9) as u16;
                let f = (0..n).filter(|_| random.below(10) < 7).count() as u16;
                ([f, n - f, 0], 0, 0)
            })
            .collect();
        let slow = class(&slow, 0);
        let found = with_naming(|naming| gap((&slow, &typical), &[], naming, 9)).unwrap();
        let f = found
            .causes
            .iter()
            .find(|it| it.function.function_id == Some(0));
        // 7 of 10 samples in the mean are in f, and in typical items 1 of 2; 300 ns are shared out.
        let truth = (0.7 * 10_300.0 - 0.5 * 2_300.0) / 8_000.0;
        f.is_some_and(|it| holds(it, truth))
    });
    let held = held.count();
    assert!((51..=60).contains(&held), "{held} of {trials}");
}
