//! The part of a text report on items that go through stages.

use crate::compare::lengths::Quantiles;
use crate::compare::report::model::Stages;
use crate::present::functions::SPEC_WIDTH;
use crate::present::human::{UNKNOWN, count, percent, plural, time};
use crate::present::items::quantiles;
use crate::present::table::{Column, Table};
use crate::present::{Page, brief};

/// Items, their latency, and a row for each stage and for the waiting before it.
pub(super) fn write(out: &mut Page, it: &Stages) {
    let stages = plural(it.stages.len() as u64, "stage");
    out.paragraph(&format!("{} through {stages}", plural(it.items, "item")));
    if let Some(latency) = it.latency {
        let Quantiles {
            p50_ns,
            p90_ns,
            p99_ns,
            max_ns,
            ..
        } = latency;
        out.line("latency", &quantiles([p50_ns, p90_ns, p99_ns, max_ns]));
    }
    out.line("left out", &left_out(it));
    for spec in &it.strangers {
        let spec = brief::spec(spec, SPEC_WIDTH);
        out.line(
            "ids",
            &format!("{spec} has no id of the first stage: it reads something else, or other items come there"),
        );
    }
    if it.unknown_ids > 0 {
        let text = format!(
            "{} served in a batch without a known id: that stage counts as waiting",
            plural(it.unknown_ids, "item")
        );
        out.line("batches", &text);
    }
    let mut table = Table::new([
        Column::names("", 24),
        Column::number("share"),
        Column::number("times").rank(2),
        Column::number("mean"),
        Column::number("p50").rank(3),
        Column::number("p99").rank(1),
        Column::number("max").rank(1),
    ]);
    let mut row = |what: String, share: Option<f64>, times: u64, lengths: Option<Quantiles>| {
        let ns = |ns: fn(Quantiles) -> f64| {
            lengths.map_or_else(|| UNKNOWN.to_owned(), |lengths| time(ns(lengths)))
        };
        table.row([
            what.into(),
            share.map_or_else(|| UNKNOWN.to_owned(), percent).into(),
            count(times).into(),
            ns(|it| it.mean_ns).into(),
            ns(|it| it.p50_ns as f64).into(),
            ns(|it| it.p99_ns as f64).into(),
            ns(|it| it.max_ns as f64).into(),
        ]);
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
    out.table("where the items were, part of their latencies' sum", &table);
}

fn left_out(it: &Stages) -> String {
    let reasons = [
        (it.left_out_loss, "overlapping a loss (--all counts them)"),
        (it.left_out_open, "under way at the end"),
        (it.left_out_headless, "whose first stage was not seen"),
    ];
    let known = reasons.iter().filter(|it| it.0 > 0);
    let texts: Vec<String> = known
        .map(|(items, why)| format!("{} {why}", plural(*items, "item")))
        .collect();
    texts.join(", ")
}
