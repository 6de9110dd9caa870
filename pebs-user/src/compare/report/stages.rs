//! Items that go through stages: service in each, waiting before each.

use std::collections::BTreeMap;

use super::model::{Stage, Stages};
use crate::compare::lengths::Lengths;
use crate::compare::report::request::ReportOptions;
use crate::compare::stages::{Completeness, Passages, has_stages};
use crate::store::reader::{ReadError, Trace};

/// The passage of items through the stages of a trace; `None` if its probes are no stages, or a single one was
/// asked for.
///
/// Memory: 80 bytes a visit.
pub(super) fn read(trace: &Trace, options: &ReportOptions) -> Result<Option<Stages>, ReadError> {
    if options.probe.is_some() || !has_stages(&trace.info) {
        return Ok(None);
    }
    let passages = Passages::read(trace)?;
    let (mut items, mut latency) = (0, Lengths::default());
    let mut left_out = [0; 3];
    let mut stages: BTreeMap<u16, [Lengths; 3]> = BTreeMap::new();
    // For each probe with visits, whether one is of an item that began.
    let mut begun: BTreeMap<u16, bool> = BTreeMap::new();
    for passage in passages.iter() {
        for step in passage.steps {
            *begun.entry(step.probe).or_default() |= passage.known != Completeness::Headless;
        }
        if !passage.counts(options.losses) {
            left_out[match passage.known {
                Completeness::Loss | Completeness::Whole => 0,
                Completeness::Open => 1,
                Completeness::Headless => 2,
            }] += 1;
            continue;
        }
        items += 1;
        latency.add(passage.latency_ns());
        for step in passage.steps {
            let [service, _, others] = stages.entry(step.probe).or_default();
            service.add(step.service_ns());
            if step.has_others {
                others.add(step.others_ns);
            }
        }
        for (step, ns) in passage.waits() {
            let [_, waiting, _] = stages.entry(step.probe).or_default();
            waiting.add(ns);
        }
    }
    let spec = |probe: u16| {
        let info = trace.info.probes.iter().find(|it| it.id.0 == probe);
        info.map(|it| it.spec.to_string())
    };
    // Without any item the recording may have begun too late.
    let apart = begun.iter().filter(|it| items > 0 && !it.1);
    let strangers = apart.filter_map(|it| spec(*it.0)).collect();
    let share = |part: &Lengths| (latency.sum > 0).then(|| part.sum as f64 / latency.sum as f64);
    let stages = stages
        .into_iter()
        .map(|(probe, [mut service, mut waiting, mut others])| Stage {
            probe_id: probe,
            spec: spec(probe),
            visits: service.all.len() as u64,
            service_share: share(&service),
            service: service.quantiles(),
            waits: waiting.all.len() as u64,
            waiting_share: share(&waiting),
            waiting: waiting.quantiles(),
            shared: others.all.len() as u64,
            others_share: share(&others),
            others: others.quantiles(),
        });
    let stages = stages.collect();
    Ok(Some(Stages {
        items,
        left_out_loss: left_out[0],
        left_out_open: left_out[1],
        left_out_headless: left_out[2],
        unknown_ids: passages.unknown,
        strangers,
        latency: latency.quantiles(),
        stages,
    }))
}

#[cfg(test)]
mod tests {
    use crate::compare::lengths::Quantiles;
    use crate::compare::report::build;
    use crate::compare::report::request::ReportOptions;
    use crate::out::report::text;
    use crate::store::fixtures::{Did, Maker, VisitFixture, info};

    /// 60 us of service and 10 us of waiting an item, of one in twenty 900 us; the last one is under way.
    #[test]
    fn service_and_waiting() {
        let specs = ["/bin/app:first(id=arg1)", "/bin/app:second(id=arg1)"];
        let mut maker = Maker::new(info(&specs));
        let stage = |probe: u16| {
            VisitFixture::new(1, "k", &[Did::Ran(1, 30_000)])
                .probe(probe)
                .item(0x1000)
        };
        maker.at(1_000, &stage(1));
        for i in 0..100 {
            let begin = maker.now + 1_000;
            maker.at(begin, &stage(0));
            let queued = if i % 20 == 3 { 900_000 } else { 10_000 };
            let begin = maker.now + queued;
            maker.at(begin, &stage(1));
        }
        let trace = maker.finish(&[]);
        let report = build(&trace, &ReportOptions::default()).unwrap();
        let stages = report.stages.clone().unwrap();
        assert_eq!((stages.items, stages.left_out_headless), (100, 1));
        assert!(stages.strangers.is_empty(), "{stages:?}");
        let latency = stages.latency.unwrap();
        assert_eq!((latency.p50_ns, latency.max_ns), (70_000, 960_000));
        let [first, second] = &stages.stages[..] else {
            panic!("{stages:?}");
        };
        assert_eq!((first.visits, first.waits, first.waiting), (100, 0, None));
        let waiting = second.waiting.unwrap();
        assert_eq!((second.waits, waiting.p50_ns), (100, 10_000));
        assert!((waiting.mean_ns - 54_500.0).abs() < 1e-6, "{waiting:?}");
        let shares = [
            first.service_share,
            second.service_share,
            second.waiting_share,
        ];
        let sum: f64 = shares.iter().map(|it| it.unwrap()).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{shares:?}");
        assert_eq!((second.shared, second.others), (0, None));
        let text = text::render(&report);
        for expected in [
            "100 items through 2 stages",
            "waiting for /bin/app:second(id=arg1)",
        ] {
            assert!(text.contains(expected), "{text}");
        }
    }

    /// The second stage reads something else: no item has a second stage, and one line says why.
    #[test]
    fn ids_of_something_else() {
        let specs = ["/bin/app:first(id=arg1)", "/bin/app:second(id=arg2)"];
        let mut maker = Maker::new(info(&specs));
        for i in 0..50 {
            for probe in [0, 1] {
                let begin = maker.now + 1_000;
                let one = VisitFixture::new(1, "k", &[Did::Ran(1, 10_000)]);
                let item_id = 1000 * u64::from(probe) + i;
                maker.at(begin, &one.probe(probe).item(item_id));
            }
        }
        let report = build(&maker.finish(&[]), &ReportOptions::default()).unwrap();
        let stages = report.stages.clone().unwrap();
        assert_eq!(stages.strangers, specs[1..]);
        assert_eq!((stages.items, stages.left_out_headless), (50, 50));
        let text = text::render(&report);
        let expected = "/bin/app:second(id=arg2) has no id of the first stage";
        assert!(text.contains(expected), "{text}");
    }

    /// Two items served together: of the 40 us each has 20 us for itself and waits 20 us for the other.
    #[test]
    fn batches() {
        let specs = [
            "/bin/app:first(id=arg1)",
            "/bin/app:both(ids=arg1[arg2]:u64)",
        ];
        let mut maker = Maker::new(info(&specs));
        for i in 0..50 {
            for item_id in [2 * i, 2 * i + 1] {
                let begin = maker.now;
                let one = VisitFixture::new(1, "k", &[Did::Ran(1, 10_000)]).item(item_id);
                maker.at(begin, &one);
            }
            let begin = maker.now + 5_000;
            let both = VisitFixture::new(1, "k", &[Did::Ran(1, 40_000)])
                .probe(1)
                .batch(vec![2 * i, 2 * i + 1]);
            maker.at(begin, &both);
        }
        let trace = maker.finish(&[]);
        let report = build(&trace, &ReportOptions::default()).unwrap();
        let stages = report.stages.clone().unwrap();
        assert_eq!(
            (stages.items, stages.latency.unwrap().max_ns),
            (100, 65_000)
        );
        let second = &stages.stages[1];
        let mean = |lengths: Option<Quantiles>| lengths.unwrap().mean_ns;
        assert_eq!((second.visits, second.shared), (100, 100));
        assert_eq!(
            (mean(second.service), mean(second.others)),
            (20_000.0, 20_000.0)
        );
        let shares = stages.stages.iter().flat_map(|it| {
            [it.service_share, it.waiting_share, it.others_share].map(Option::unwrap)
        });
        assert!((shares.sum::<f64>() - 1.0).abs() < 1e-9, "{stages:?}");
        let batches = report.probes[1].batches.unwrap();
        assert_eq!(
            (batches.items, batches.unknown, batches.largest),
            (100, 0, 2)
        );
        assert_eq!(mean(batches.share), 20_000.0);
        let text = text::render(&report);
        for expected in [
            "100 items in 50 visits",
            "2.0 a visit, 2 at most; an item's share p50 20.0 us",
            "others of the batch in /bin/app:both",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}
