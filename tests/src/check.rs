//! Checks that many tests make on a trace.

use std::collections::BTreeMap;

use crate::process::Finished;
use crate::recording::Recording;
use crate::trace::{Trace, Visit, flag};
use crate::truth::{ItemTruth, Truth};

/// Largest difference of the kernel's clock for marks from `clock_gettime` while it is being
/// adjusted.
///
/// Source: kernel/time/timekeeping.c, `ktime_get_mono_fast_ns`.
pub const CLOCK_SLACK_NS: i64 = 1_000;

/// Every account balances on every CPU: seen = written + each reason; the written records exist,
/// and the tables agree with each other.
///
/// # Panics
/// If not.
pub fn ledger(trace: &Trace) {
    balances(trace);
    let outside = trace
        .samples()
        .iter()
        .filter(|sample| sample.visit_id.is_none())
        .count();
    let unmatched = trace.json["ledger"]["samples_unmatched"].as_u64();
    let not_kept = trace.json["keep"].is_object();
    let expected = if not_kept { Some(0) } else { unmatched };
    assert_eq!(Some(outside as u64), expected, "samples in no visit");
    samples_of_visits(trace);
}

/// Every account balances on every CPU, and the number of samples is the number written: also where
/// the tables end at different times, as on a disk that ran full.
///
/// # Panics
/// If not.
pub fn balances(trace: &Trace) {
    for kind in ["samples", "marks", "tasks"] {
        for (cpu, account) in trace.accounts(kind).iter().enumerate() {
            assert_eq!(
                account.seen,
                account.written + account.with_reason(),
                "{kind} of the {cpu}. CPU do not balance: {account:?}\n{:#}",
                trace.json["ledger"]
            );
            // All that the kernel programs put into rings was read, up to the last record.
            let unread = account.reasons.get("malformed");
            assert_eq!(unread, None, "{kind} of the {cpu}. CPU: {account:?}");
        }
    }
    let rows = trace.table("samples").len() as u64;
    let written = trace.account("samples").written;
    assert_eq!(rows, written, "rows of samples, and samples written");
}

/// `visits.samples` is the number of rows of `samples` that name the visit, and the sum over its
/// `visit_functions`; a condensed visit has neither.
fn samples_of_visits(trace: &Trace) {
    let mut rows: BTreeMap<u64, u64> = BTreeMap::new();
    for visit in trace.samples().iter().filter_map(|s| s.visit_id) {
        *rows.entry(visit).or_default() += 1;
    }
    let mut by_function: BTreeMap<u64, u64> = BTreeMap::new();
    for row in trace.visit_functions() {
        *by_function.entry(row.visit_id).or_default() += row.samples;
    }
    for visit in trace.visits() {
        let id = visit.visit_id;
        let samples = if visit.has(flag::CONDENSED) {
            0
        } else {
            visit.samples
        };
        assert_eq!(rows.remove(&id).unwrap_or(0), samples, "rows of {visit:?}");
        let sum = by_function.remove(&id).unwrap_or(0);
        assert_eq!(sum, samples, "functions of {visit:?}");
    }
    assert!(
        rows.is_empty(),
        "samples of visits that are not there: {rows:?}"
    );
    assert!(
        by_function.is_empty(),
        "functions of visits that are not there: {by_function:?}"
    );
}

/// No mark was lost.
///
/// # Panics
/// If one was, with the ledger.
pub fn no_mark_lost(trace: &Trace) {
    let marks = trace.account("marks");
    assert_eq!(marks.lost(), 0, "marks lost: {:#}", trace.json["ledger"]);
}

/// The visits' items are exactly these, and no mark was lost or left over.
///
/// # Panics
/// If not.
pub fn same_items(trace: &Trace, visits: &[Visit], items: &[u64]) {
    no_mark_lost(trace);
    let mut seen: Vec<u64> = visits.iter().map(|visit| visit.item_id).collect();
    seen.sort_unstable();
    let mut expected = items.to_vec();
    expected.sort_unstable();
    let missing: Vec<_> = expected
        .iter()
        .filter(|id| seen.binary_search(id).is_err())
        .collect();
    let surplus: Vec<_> = seen
        .iter()
        .filter(|id| expected.binary_search(id).is_err())
        .collect();
    assert!(
        seen == expected,
        "{} visits, {} items; not recorded: {missing:?}; not handled: {surplus:?}\n{:#}",
        seen.len(),
        expected.len(),
        trace.json["ledger"]
    );
}

/// Every true item has exactly one visit, on its thread, that begins and ends within the true
/// times, and there are no others. Complete visits only: none unwound or cut off.
///
/// # Panics
/// If not.
pub fn whole_visits(trace: &Trace, truth: &Truth) {
    let visits = trace.visits();
    same_items(trace, &visits, &truth.ids());
    let broken = flag::UNWOUND | flag::END_MISSING | flag::OPEN_AT_END | flag::THREAD_ENDED;
    for visit in &visits {
        assert!(!visit.has(broken | flag::LOSS), "not whole: {visit:?}");
        within_truth(trace, visit, truth.item(visit.item_id));
    }
}

/// The visit begins within BEFORE..ENTER and ends within LEAVE..AFTER of its item, on its thread.
///
/// # Panics
/// If not.
pub fn within_truth(trace: &Trace, visit: &Visit, item: &ItemTruth) {
    // Goroutines are on several threads.
    let tid = if item.tid == 0 {
        visit.tid
    } else {
        u64::from(item.tid)
    };
    assert_eq!(
        (visit.item_id, visit.pid, visit.tid),
        (item.id, u64::from(item.pid), tid),
        "thread of {visit:?}"
    );
    let zero = trace.monotonic_ns();
    let on_trace_clock = |ns: Option<u64>| ns.map(|ns| ns as i64 - zero);
    let (begin, end) = (Some(visit.begin_ns), visit.end_ns);
    for (earlier, later, what) in [
        (on_trace_clock(item.before), begin, "begins before the call"),
        (
            begin,
            on_trace_clock(item.enter),
            "begins inside the function",
        ),
        (on_trace_clock(item.leave), end, "ends inside the function"),
        (end, on_trace_clock(item.after), "ends after the return"),
    ] {
        let (Some(earlier), Some(later)) = (earlier, later) else {
            continue;
        };
        assert!(
            earlier <= later + CLOCK_SLACK_NS,
            "{what} by {} ns: {visit:?}, truth {item:?}",
            earlier - later
        );
    }
    let duration = visit.end_ns.map(|end| end - visit.begin_ns);
    assert_eq!(visit.duration_ns, duration, "duration of {visit:?}");
    if let (Some(oncpu), Some(duration)) = (visit.oncpu_ns, visit.duration_ns) {
        assert!(
            (0..=duration).contains(&oncpu),
            "time on the CPU of {visit:?}"
        );
    }
}

/// The target ended under the tracer as it does on its own. A command's output comes first on the
/// tool's stdout, then the report.
///
/// # Panics
/// If not.
pub fn unharmed(recording: &Recording, alone: &Finished) {
    assert!(
        recording.tool.stdout.starts_with(&alone.stdout),
        "other output than alone: '{}'\n{}",
        alone.stdout,
        recording.tool
    );
}

/// As [`unharmed`], for a target that is our own child.
///
/// # Panics
/// If not.
pub fn same_end(traced: &Finished, alone: &Finished) {
    assert_eq!(
        (traced.status, &traced.stdout),
        (alone.status, &alone.stdout),
        "not as it ends alone\n{traced}"
    );
}
