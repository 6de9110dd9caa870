//! The part of a text report on items that go through stages.

use std::fmt::Write;

use super::lists::{lines, show};
use super::{SPEC_WIDTH, line, quantiles};
use crate::analysis::report::brief;
use crate::analysis::report::human::{UNKNOWN, count, percent, plural, time};
use crate::analysis::report::model::{Quantiles, Stages};

/// Items, their latency, and a row for each stage and for the waiting before it.
pub(super) fn write(out: &mut String, it: &Stages) {
    let stages = plural(it.stages.len() as u64, "stage");
    let _ = writeln!(out, "{} through {stages}", plural(it.items, "item"));
    if let Some(latency) = it.latency {
        let Quantiles {
            p50_ns,
            p90_ns,
            p99_ns,
            max_ns,
            ..
        } = latency;
        line(out, "latency", &quantiles([p50_ns, p90_ns, p99_ns, max_ns]));
    }
    line(out, "left out", &left_out(it));
    if it.unknown_ids > 0 {
        let text = format!(
            "{} served in a batch without a known id: that stage counts as waiting",
            plural(it.unknown_ids, "item")
        );
        line(out, "batches", &text);
    }
    let mut table = lines(["", "share", "times", "mean", "p50", "p99", "max"]);
    let mut rows = 0;
    let mut row = |what: String, share: Option<f64>, times: u64, lengths: Option<Quantiles>| {
        let ns = |ns: fn(Quantiles) -> f64| {
            lengths.map_or_else(|| UNKNOWN.to_owned(), |lengths| time(ns(lengths)))
        };
        table.add_row([
            what,
            share.map_or_else(|| UNKNOWN.to_owned(), percent),
            count(times),
            ns(|it| it.mean_ns),
            ns(|it| it.p50_ns as f64),
            ns(|it| it.p99_ns as f64),
            ns(|it| it.max_ns as f64),
        ]);
        rows += 1;
    };
    for stage in &it.stages {
        let name = stage.spec.as_deref().map_or_else(
            || format!("probe {}", stage.probe_id),
            |spec| brief::spec(spec, SPEC_WIDTH / 2),
        );
        if stage.waits > 0 {
            let what = format!("waiting for {name}");
            row(what, stage.waiting_share, stage.waits, stage.waiting);
        }
        if stage.shared > 0 {
            let what = format!("others of the batch in {name}");
            row(what, stage.others_share, stage.shared, stage.others);
        }
        row(name, stage.service_share, stage.visits, stage.service);
    }
    show(
        out,
        "where the items were, part of their latencies' sum",
        &table,
        &[1, 2, 3, 4, 5, 6],
        rows,
    );
}

fn left_out(it: &Stages) -> String {
    let reasons = [
        (it.left_out_loss, "overlapping a loss (--all counts them)"),
        (it.left_out_open, "under way at the end"),
        (it.left_out_headless, "whose first stage was not seen"),
    ];
    let told = reasons.iter().filter(|it| it.0 > 0);
    let told: Vec<String> = told
        .map(|(items, why)| format!("{} {why}", plural(*items, "item")))
        .collect();
    told.join(", ")
}
