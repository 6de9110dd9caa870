//! Time stamps: recordings by both transports, of a workload that logs when each of its functions ran.
//!
//! The workload, its log and the comparison are those of [`crate::selftest`].

use super::report::{Basis, Figure, Row};
use crate::selftest::findings::{Findings, Length, PooledFindings};
use crate::selftest::workload::Order;

/// Difference from the truth that a pooled time may have, whatever its interval.
const POOLED_BOUND: f64 = 0.02;

/// Row of a transport.
pub(crate) fn row(transport: &str, found: &Findings) -> Row {
    let reset = found.reset_ns;
    let case = format!("R {reset}, {transport}");
    let (visits, samples) = (&found.visits, &found.samples);
    let misses = found.misses(found.tests());
    let mut row = Row::new("cpu-clock", case, Basis::Exact).figures([
        Figure::count("samples in a wrong item", samples.wrong_item, "samples"),
        Figure::count("samples", samples.samples, "samples"),
        Figure::count("marks out of place", visits.misplaced, "items"),
        Figure::count("items", visits.items, "items"),
        Figure::count(
            "items without a visit, or the reverse",
            visits.missing + visits.extra,
            "items",
        ),
    ]);
    row = row.figures(Figure::share(
        "samples that name another function",
        samples.wrong_function,
        samples.judged,
    ));
    let clock = found.clock_error_ns.map(|ns| {
        Figure::new(
            "error of the samples' clock (p99)",
            ns,
            "ns",
            samples.samples,
        )
    });
    row = row.figures(clock).figures([Figure::new(
        "error of the log's clock",
        found.truth_clock_error_ns as f64,
        "ns",
        visits.items,
    )]);
    let worst = found.worst(Length::Long);
    row = row.figures(worst.map(|it| {
        Figure::new(
            "largest bias of a function's time",
            it.bias * 100.0,
            "%",
            it.rows,
        )
    }));
    let coverage = found.coverage(Length::Long);
    row = row.figures(coverage.map(|it| {
        Figure::new(
            "coverage of the 95 % interval",
            it * 100.0,
            "%",
            found.rows(Length::Long),
        )
    }));
    let mut note = "every item has its visit, every mark and sample is in its item".to_owned();
    if !misses.is_empty() {
        note += &format!("; of the targets of estimates: {}", misses.join("; "));
    }
    let wrong = visits.missing + visits.extra + visits.misplaced + samples.wrong_item;
    row.judged(visits.items > 0 && wrong == 0, note)
}

/// Case of [`regular`].
pub(crate) fn regular_case(order: Order, reset: u64) -> String {
    let items = match order {
        Order::Random => "items by chance",
        Order::Equal => "equal items",
        Order::Lengths => "items of three lengths",
        Order::Timer => "items in step with a timer",
    };
    format!("R {reset}, {items}")
}

/// Row of items that come as regularly as samples: how far the pooled times of their functions are off.
pub(crate) fn regular(order: Order, found: &Findings) -> Row {
    let case = regular_case(order, found.reset_ns);
    let size = |it: &&PooledFindings| it.bias().abs();
    let worst = found
        .pooled
        .iter()
        .max_by(|a, b| size(a).total_cmp(&size(b)));
    let known = found
        .pooled
        .iter()
        .filter_map(|it| Some((it, it.interval_ns?)));
    let (mut holds, mut near, mut functions) = (0, 0, 0);
    for (it, (low, high)) in known {
        functions += 1;
        holds += u64::from((low..=high).contains(&it.truth_ns));
        let off = (it.per_item_ns - it.truth_ns).abs();
        near += u64::from(off <= (high - low).max(POOLED_BOUND * it.truth_ns));
    }
    let samples = found.samples.in_visits;
    Row::new("cpu-clock", case, Basis::Exact)
        .figures([
            Figure::count("items", found.visits.items, "items"),
            Figure::count("samples in items", samples, "samples"),
        ])
        .figures(worst.map(|it| {
            let bias = it.bias() * 100.0;
            Figure::new(
                "largest bias of a function's pooled time",
                bias,
                "%",
                samples,
            )
        }))
        .figures(Figure::share(
            "intervals of pooled times that hold",
            holds,
            functions,
        ))
        .judged(
            functions == 3 && near == 3,
            "no function's pooled time off by more than 2 % and twice its interval",
        )
}

/// Peak memory of a target and of the program that recorded it, KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peaks {
    /// Of the target alone.
    pub alone: u64,
    /// Of the target while it was recorded.
    pub recorded: u64,
    /// Of this program afterwards, including other experiments.
    pub own: u64,
}

/// Memory used by recording.
pub(crate) fn memory(peaks: &Peaks) -> Row {
    let overhead = (peaks.recorded as f64 / peaks.alone.max(1) as f64 - 1.0) * 100.0;
    Row::new("cpu-clock", "memory of a recording", Basis::StandIn).figures([
        Figure::count("peak of the target alone", peaks.alone, "KiB"),
        Figure::count("peak of the target recorded", peaks.recorded, "KiB"),
        Figure::new("memory overhead of the target", overhead, "%", 1),
        Figure::count("peak of pebs-trace, experiments included", peaks.own, "KiB"),
    ])
}
