//! Entry point of the fuzz target `perf_data`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{MarkSource, Premises, Reading, Roles, Survey, check_span, feed, roles, run_info};
use crate::perf::data::reader::PerfData;
use crate::pipeline::{Keep, Pipeline, PipelineOptions, Progress};
use crate::probe::set::{Probe, ProbeSet};
use crate::store::options::WriterOptions;
use crate::store::run::EventInfo;
use crate::store::writer::TraceWriter;
use crate::stream::decode::RecordKinds;
use crate::symbolize::{Recorded, SymbolizeOptions};
use crate::units::KtimeNs;

/// Imports a file in both ways (in one reading, and after a survey) and checks the account each time. Items begin at
/// its second event.
pub fn import(data: &[u8], dir: &Path) {
    let path = dir.join("perf.data");
    if std::fs::write(&path, data).is_err() {
        return;
    }
    let _ = import_file(&path, &dir.join("imported"));
}

fn import_file(path: &Path, out: &Path) -> Option<()> {
    let mut data = PerfData::open(path).ok()?;
    let mut reading = Reading::begin(&mut data).ok()?;
    let begin = reading.names().get(1).cloned();
    let source = begin.map_or(MarkSource::None, |begin| MarkSource::Events {
        begin,
        end: None,
        id: None,
    });
    let mut once = None;
    if let Some(premises) = reading.premises(&data, &source, &[]) {
        let Premises {
            survey,
            roles,
            first,
            ..
        } = &premises;
        let mut pipeline = pipeline(&data, (survey, roles), *first, out)?;
        let fed = reading.feed(&mut data, (&premises, &source), &mut pipeline);
        once = fed.ok().flatten().map(|_| (premises, pipeline));
    }
    let survey = reading.close(&mut data).ok()?;
    let (first, last) = survey.times.filter(|_| survey.samples() > 0)?;
    check_span("it", (first, last)).ok()?;
    let roles = roles(&data, &survey, &source, &[]).ok()?;
    let check = |pipeline: Pipeline| check(&data, &survey, &roles, pipeline, (first, last));
    if let Some((premises, pipeline)) = once
        && premises.hold(&data, &survey, &roles)
    {
        check(pipeline);
    }
    let mut pipeline = pipeline(&data, (&survey, &roles), first, out)?;
    let parts = (&roles, &source);
    feed(&data, &survey, parts, KtimeNs(first), &mut pipeline);
    check(pipeline);
    Some(())
}

fn pipeline(
    data: &PerfData,
    (survey, roles): (&Survey, &Roles),
    first: u64,
    out: &Path,
) -> Option<Pipeline> {
    // Left by the call before.
    let _ = std::fs::remove_dir_all(out);
    let info = run_info(data, survey, roles, (first, ""));
    let options = WriterOptions {
        compact: false,
        ..WriterOptions::default()
    };
    let writer = TraceWriter::create(out, &info, options).ok()?;
    let probe = |rule| Probe {
        has_id: roles.has_id,
        ..Probe::without_sites(String::new(), rule)
    };
    let probes = ProbeSet {
        probes: roles.rule.map(probe).into_iter().collect(),
        ..ProbeSet::default()
    };
    let options = PipelineOptions {
        bulk: None,
        origin: KtimeNs(first),
        counted: Vec::new(),
        count_interval: None,
        event_times: info.events.iter().map(EventInfo::time).collect(),
        costly_events: u64::MAX,
        resets: vec![1; info.events.len()],
        watches: Vec::new(),
        max_samples: 1 << 16,
        max_stack_bytes: 1 << 16,
        symbolize: SymbolizeOptions {
            recorded: Some(Recorded::default()),
            ..SymbolizeOptions::default()
        },
        keep: Keep::All,
        interval: Duration::from_secs(10),
        kinds: RecordKinds {
            switches: roles.switches,
            ..RecordKinds::default()
        },
    };
    let progress = Arc::new(Progress::default());
    Some(Pipeline::new(&probes, &options, writer, progress))
}

fn check(
    data: &PerfData,
    survey: &Survey,
    roles: &Roles,
    pipeline: Pipeline,
    (first, last): (u64, u64),
) {
    let outcome = pipeline.finish(KtimeNs(last));
    assert_eq!(outcome.ledger.check(), Vec::<String>::new());
    let totals = outcome.ledger.totals();
    let lost = survey.losses.iter().filter_map(|loss| loss.records);
    let lost = lost.fold(0u64, u64::saturating_add);
    let info = run_info(data, survey, roles, (first, ""));
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
