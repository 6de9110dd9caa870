use proptest::prelude::*;

use super::*;

const CLOCK: EventId = EventId(0);
const MISSES: EventId = EventId(1);

fn sample(time: i64, function: u32) -> TimedSample {
    TimedSample {
        time: TraceNs(time),
        function: FunctionId(function),
        event: CLOCK,
    }
}

fn series(samples: &[TimedSample]) -> SeriesBuf {
    samples.iter().copied().collect()
}

fn intervals(bounds: &[i64]) -> Vec<(TraceNs, TraceNs)> {
    bounds
        .chunks_exact(2)
        .map(|pair| (TraceNs(pair[0]), TraceNs(pair[1])))
        .collect()
}

/// Bounds that are half way to a sample of another item have the error of a change in that gap.
#[test]
fn sampled_bounds() {
    let samples = series(&[sample(5, 1), sample(15, 1)]);
    let active = intervals(&[0, 20]);
    let visit = VisitTimeline {
        begin: TraceNs(0),
        end: Some(TraceNs(20)),
        active: &active,
        samples: samples.series(),
    };
    let mut rows = Vec::new();
    let mut estimator = Estimator::new(&[EventTime::Clock]).with_sampled_bounds();
    estimator.estimate(&visit, &mut rows);
    error_is(rows[0].self_stderr_ns(), (2.0 * 100.0_f64 / 12.0).sqrt());
}

/// Estimates a visit that lasts from the first active instant to the last.
fn estimate(active: &[i64], samples: &[TimedSample]) -> Vec<FunctionEstimate> {
    let active = intervals(active);
    let samples = series(samples);
    let visit = VisitTimeline {
        begin: active[0].0,
        end: Some(active[active.len() - 1].1),
        active: &active,
        samples: samples.series(),
    };
    let mut rows = Vec::new();
    Estimator::new(&[EventTime::Clock, EventTime::None]).estimate(&visit, &mut rows);
    rows
}

fn close_to(got: Option<f64>, want: f64) {
    assert!((got.unwrap() - want).abs() < 1e-3, "{got:?} != {want}");
}

fn error_is(got: Option<f64>, want: f64) {
    assert!(
        (got.unwrap() / want - 1.0).abs() < 1.0 / 128.0,
        "{got:?} != {want}"
    );
}

/// To 1 in 128, up and down, and over a power of two; 0 stays 0.
#[test]
fn rounded_errors() {
    assert_eq!([0.0, 1.5, 127.0].map(rounded), [0.0, 1.5, 127.0]);
    assert_eq!(rounded(129.9), 130.0);
    assert_eq!(rounded(128.9), 128.0);
    assert_eq!(rounded(127.9), 128.0);
}

/// The worked number of the module docs.
#[test]
fn worked_number() {
    let samples = [
        sample(6_000, 1),
        sample(16_000, 1),
        sample(26_000, 2),
        sample(36_000, 2),
    ];
    let rows = estimate(&[0, 40_000], &samples);
    assert_eq!(rows.len(), 2);
    assert_eq!((rows[0].samples, rows[0].span_ns()), (2, 10_000));
    close_to(rows[0].self_ns(), 21_000.0);
    close_to(rows[1].self_ns(), 19_000.0);
    error_is(rows[0].self_stderr_ns(), (100e6_f64 / 12.0 + 2.7e6).sqrt());
    error_is(rows[1].self_stderr_ns(), (100e6_f64 / 12.0 + 0.8e6).sqrt());
}

/// The worked number of the pause; the sum of owned times is the whole time.
#[test]
fn worked_pause() {
    let samples = series(&[sample(10_000, 1), sample(26_000, 2)]);
    let visit = VisitTimeline {
        begin: TraceNs(0),
        end: Some(TraceNs(36_000)),
        active: &[(TraceNs(0), TraceNs(36_000))],
        samples: samples.series(),
    };
    let pause = Pause {
        before: 1_000,
        after: 3_000,
        spread: 0,
    };
    let mut rows = Vec::new();
    Estimator::new(&[EventTime::Clock])
        .with_pause(pause)
        .estimate(&visit, &mut rows);
    assert_eq!(rows[0].self_ns(), Some(19_000.0));
    assert_eq!(rows[1].self_ns(), Some(17_000.0));
    // n = 2, c = 1: q = 0.75, mean gap 18 - 4 = 14 us; e = 9 and 7 us.
    let outer = |e: f64| 0.75 * e / 14.0 * e * e / 3.0;
    error_is(
        rows[0].self_stderr_ns(),
        1000.0 * (12.0 + outer(9.0)).sqrt(),
    );
    error_is(
        rows[1].self_stderr_ns(),
        1000.0 * (12.0 + outer(7.0)).sqrt(),
    );
    rows.clear();
    Estimator::new(&[EventTime::Clock])
        .with_pause(Pause {
            spread: 2_000,
            ..pause
        })
        .estimate(&visit, &mut rows);
    error_is(
        rows[0].self_stderr_ns(),
        1000.0 * (12.0 + 4.0 + outer(9.0)).sqrt(),
    );
}

/// Time off the CPU belongs to no function, and gaps are measured without it.
#[test]
fn waits_are_left_out() {
    let rows = estimate(&[0, 10, 1000, 1030], &[sample(8, 1), sample(1008, 2)]);
    // On the active clock the samples are at 8 and 18 of 40.
    assert_eq!(rows[0].self_ns(), Some(13.0));
    assert_eq!(rows[1].self_ns(), Some(27.0));
    assert_eq!(rows[0].span_ns(), 0);
}

/// A sample outside of the active time, because of clock jitter, goes to the nearest instant in it.
#[test]
fn jitter_is_clamped() {
    let samples = [sample(90, 1), sample(150, 2), sample(260, 3)];
    let rows = estimate(&[100, 140, 160, 250], &samples);
    let owned: Vec<_> = rows.iter().map(|row| row.self_ns().unwrap()).collect();
    assert_eq!(owned, [20.0, 65.0, 45.0]);
}

/// Events are estimated separately, and one that is not a clock has counts but no times.
#[test]
fn events_apart() {
    let mut samples = [sample(10, 1), sample(20, 1), sample(30, 2)];
    samples[1].event = MISSES;
    let rows = estimate(&[0, 40], &samples);
    let got: Vec<_> = rows
        .iter()
        .map(|row| (row.event, row.function.0, row.self_ns()))
        .collect();
    assert_eq!(
        got,
        [
            (CLOCK, 1, Some(20.0)),
            (MISSES, 1, None),
            (CLOCK, 2, Some(20.0))
        ]
    );
    assert_eq!(rows[1].self_stderr_ns(), None);
}

/// Unobserved visits are not estimated: no samples, no end, no active time.
#[test]
fn unknown_stays_unknown() {
    assert_eq!(estimate(&[0, 100], &[]), []);
    let active = intervals(&[0, 100]);
    let samples = series(&[sample(50, 1)]);
    let open = VisitTimeline {
        begin: TraceNs(0),
        end: None,
        active: &active,
        samples: samples.series(),
    };
    let nowhere = VisitTimeline {
        end: Some(TraceNs(100)),
        active: &[],
        ..open
    };
    for visit in [open, nowhere] {
        let mut rows = Vec::new();
        Estimator::new(&[EventTime::Clock]).estimate(&visit, &mut rows);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].samples, rows[0].self_ns()), (1, None));
    }
}

/// A visit's result doesn't depend on earlier visits of the same estimator.
#[test]
fn scratch_is_clean() {
    let active = intervals(&[0, 100]);
    let second = [sample(20, 2), sample(30, 9)];
    let (first, after) = (series(&[sample(5, 1), sample(60, 2)]), series(&second));
    let visit = |samples| VisitTimeline {
        begin: TraceNs(0),
        end: Some(TraceNs(100)),
        active: &active,
        samples,
    };
    let mut estimator = Estimator::new(&[EventTime::Clock]);
    let mut reused = Vec::new();
    estimator.estimate(&visit(first.series()), &mut reused);
    estimator.estimate(&visit(after.series()), &mut reused);
    assert_eq!(reused[2..], estimate(&[0, 100], &second));
}

fn timeline() -> impl Strategy<Value = (Vec<i64>, Vec<TimedSample>)> {
    let steps = prop::collection::vec(1_i64..5_000, 2..24);
    let samples = prop::collection::vec((-300_i64..60_000, 0_u32..6, 0_u8..3), 1..80);
    (steps, samples).prop_map(|(mut steps, samples)| {
        steps.truncate(steps.len() / 2 * 2);
        let bounds = steps.iter().scan(0, |at, step| {
            *at += step;
            Some(*at)
        });
        let mut samples: Vec<_> = samples
            .into_iter()
            .map(|(time, function, event)| TimedSample {
                event: EventId(event),
                ..sample(time, function)
            })
            .collect();
        samples.sort_by_key(|sample| sample.time);
        (bounds.collect(), samples)
    })
}

proptest! {
    /// Whatever the samples, the gaps and the pause: for each clock the times add up to the active time, none is
    /// negative, and every sample is counted.
    #[test]
    fn nothing_lost_or_counted_twice(
        (active, samples) in timeline(),
        (before, after) in (0_i64..30, 0_i64..30),
    ) {
        let total: i64 = active.chunks_exact(2).map(|pair| pair[1] - pair[0]).sum();
        let bounds = intervals(&active);
        let buffer = series(&samples);
        let visit = VisitTimeline {
            begin: bounds[0].0,
            end: Some(bounds[bounds.len() - 1].1),
            active: &bounds,
            samples: buffer.series(),
        };
        let mut rows = Vec::new();
        Estimator::new(&[EventTime::Clock, EventTime::Clock, EventTime::None])
            .with_pause(Pause { before, after, spread: 0 })
            .estimate(&visit, &mut rows);
        prop_assert_eq!(rows.iter().map(|row| row.samples as usize).sum::<usize>(), samples.len());
        for event in [0, 1] {
            let of_event = rows.iter().filter(|row| row.event.0 == event);
            let owned: Vec<f64> = of_event.map(|row| row.self_ns().unwrap()).collect();
            prop_assert!(owned.iter().all(|&ns| ns >= 0.0));
            if !owned.is_empty() {
                prop_assert_eq!(owned.iter().sum::<f64>(), total as f64);
            }
        }
    }

    /// Adjacent intervals act as one: the estimates are the same to the bit, although a single interval is a
    /// separate case.
    #[test]
    fn intervals_that_meet(
        (active, samples) in timeline(),
        shares in prop::collection::vec(0.0..1.0_f64, 1..4),
        (before, after) in (0_i64..30, 0_i64..30),
    ) {
        let (begin, end) = (active[0], active[active.len() - 1].max(active[0] + 1));
        let mut bounds: Vec<i64> = shares.iter().map(|it| begin + (it * (end - begin) as f64) as i64).collect();
        bounds.extend([begin, end]);
        bounds.sort_unstable();
        bounds.dedup();
        let parts: Vec<_> = bounds.windows(2).map(|pair| (TraceNs(pair[0]), TraceNs(pair[1]))).collect();
        let inside = samples.into_iter().filter(|it| (begin..=end).contains(&it.time.0));
        let buffer: SeriesBuf = inside.map(|it| TimedSample { event: CLOCK, ..it }).collect();
        let Series { times, functions, .. } = buffer.series();
        let estimate = |active: &[(TraceNs, TraceNs)]| {
            let visit = VisitTimeline {
                begin: TraceNs(begin),
                end: Some(TraceNs(end)),
                active,
                samples: Series { times, functions, events: Events::All(CLOCK) },
            };
            let mut rows = Vec::new();
            Estimator::new(&[EventTime::Clock])
                .with_pause(Pause { before, after, spread: 3 })
                .estimate(&visit, &mut rows);
            rows
        };
        prop_assert_eq!(estimate(&[(TraceNs(begin), TraceNs(end))]), estimate(&parts));
    }
}
