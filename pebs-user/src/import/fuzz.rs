//! What the fuzz target `perf_data` calls.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{MarkSource, check_span, feed, roles, run_info, survey};
use crate::perf::data::reader::PerfData;
use crate::pipeline::{Keep, Pipeline, PipelineOptions, Progress};
use crate::probe::set::{Probe, ProbeSet};
use crate::store::writer::{TraceWriter, WriterOptions};
use crate::stream::decode::Interferences;
use crate::symbolize::{Recorded, SymbolizeOptions};
use crate::units::{KtimeNs, ProbeId};

/// Makes a trace of a file in a folder, items beginning at its second event, and checks the account.
pub fn import(data: &[u8], dir: &Path) {
    let (path, out) = (dir.join("perf.data"), dir.join("imported"));
    // Of the call before.
    let _ = std::fs::remove_dir_all(&out);
    if std::fs::write(&path, data).is_err() {
        return;
    }
    let Ok(mut data) = PerfData::open(&path) else {
        return;
    };
    let Ok(survey) = survey(&mut data) else {
        return;
    };
    let (Some((first, last)), 1..) = (survey.times, survey.samples()) else {
        return;
    };
    if check_span("it", (first, last)).is_err() {
        return;
    }
    let begin = survey.names.names().get(1).cloned();
    let source = begin.map_or(MarkSource::None, |begin| MarkSource::Events {
        begin,
        end: None,
        id: None,
    });
    let Ok(roles) = roles(&data, &survey, &source, &[]) else {
        return;
    };
    let info = run_info(&data, &survey, &roles, (first, ""));
    let options = WriterOptions {
        compact: false,
        ..WriterOptions::default()
    };
    let Ok(writer) = TraceWriter::create(&out, &info, options) else {
        return;
    };
    let probe = |rule| Probe {
        id: ProbeId(0),
        spec: String::new(),
        rule,
        resumes: false,
        has_id: roles.has_id,
        sites: Vec::new(),
        batch: None,
        begin_fields: Vec::new(),
        end_fields: Vec::new(),
    };
    let probes = ProbeSet {
        probes: roles.rule.map(probe).into_iter().collect(),
        ..ProbeSet::default()
    };
    let options = PipelineOptions {
        bulk: None,
        origin: KtimeNs(first),
        switches: roles.switches,
        page_faults: false,
        interference: Interferences::default(),
        encounters: false,
        counted: Vec::new(),
        count_interval: None,
        clock_events: vec![false; info.events.len()],
        resets: vec![1; info.events.len()],
        max_samples: 1 << 16,
        max_stack_bytes: 1 << 16,
        symbolize: SymbolizeOptions {
            recorded: Some(Recorded::default()),
            ..SymbolizeOptions::default()
        },
        keep: Keep::All,
        interval: Duration::from_secs(10),
    };
    let mut pipeline = Pipeline::new(&probes, &options, writer, Arc::new(Progress::default()));
    feed(
        &data,
        &survey,
        (&roles, &source),
        KtimeNs(first),
        &mut pipeline,
    );
    let outcome = pipeline.finish(KtimeNs(last));
    assert_eq!(outcome.ledger.check(), Vec::<String>::new());
    let totals = outcome.ledger.totals();
    let lost = survey.losses.iter().filter_map(|loss| loss.records);
    let lost = lost.fold(0u64, u64::saturating_add);
    let switches = info.import.iter().flat_map(|import| &import.events);
    let switches: u64 = switches
        .filter(|it| it.used_for == "switches")
        .map(|it| it.samples)
        .sum();
    let seen = totals.samples.seen + totals.marks.seen + outcome.ledger.samples_filtered + switches;
    let held = survey.samples() + survey.malformed + survey.left_over.0;
    assert!(
        seen.saturating_sub(lost) >= held.saturating_sub(switches),
        "{seen} of {held} + {lost}"
    );
}
