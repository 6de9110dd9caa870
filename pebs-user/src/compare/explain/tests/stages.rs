//! Items of several visits, and visits of several items.

use super::*;

/// Several probes that read ids are stages: an item lasts from its first begin to its last end, and the time
/// between its visits is shown.
#[test]
fn stages_are_one_item() {
    let specs = ["/bin/app:first(id=arg1)", "/bin/app:second(id=arg1)"];
    let mut maker = Maker::new(info(&specs));
    for i in 0..400_u64 {
        let queued = if i % 20 == 3 { 900_000 } else { 10_000 };
        let stage = |probe: u16| {
            VisitFixture::new(i, "k", &[Ran(1 + u32::from(probe), 30_000)])
                .probe(probe)
                .item(i + 1)
                .tid(7 + u32::from(probe))
        };
        let begin = maker.now;
        maker.at(begin, &stage(0));
        maker.at(begin + 30_000 + queued, &stage(1));
    }
    let trace = maker.finish(&FUNCTIONS);
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    assert_eq!(
        (explanation.unit, explanation.probes.len()),
        (Unit::Item, 1)
    );
    let group = whole(&explanation);
    assert_eq!((group.items, group.duration.p50_ns), (400, 70_000));
    let cause = &group.gap.as_ref().unwrap().causes[0];
    assert_eq!(cause.kind, CauseType::Handover);
    assert_eq!(cause.function.name.as_deref(), Some("second"));
    assert!((cause.figures.share - 1.0).abs() < 1e-9, "{cause:?}");
    let visits = ExplainOptions {
        unit: Some(Unit::Visit),
        ..ExplainOptions::default()
    };
    assert_eq!(explain(&trace, &visits).unwrap().probes.len(), 2);
    let item = explain_item(&trace, &ExplainOptions::default(), ItemChoice::Item(4)).unwrap();
    assert_eq!(
        (item.visit_ids.len(), item.latency_ns, item.account.rank),
        (2, 960_000, 1)
    );
    let marks = item
        .moments
        .iter()
        .filter(|it| it.kind == MomentType::Begin);
    assert_eq!(marks.map(|it| it.at_ns).collect::<Vec<_>>(), [0, 930_000]);
}

/// Stages with a batch between them: each of four items gets a quarter of the visit, and the others' turn is
/// shown separately, so that the parts of the excess sum to it.
#[test]
fn batches_are_shared_out() {
    let specs = [
        "/bin/app:first(id=arg1)",
        "/bin/app:all(ids=arg1[arg2]:u64)",
    ];
    let mut maker = Maker::new(info(&specs));
    for burst in 0..200_u64 {
        let ids: Vec<u64> = (1..=4).map(|n| burst * 4 + n).collect();
        for id in &ids {
            let begin = maker.now;
            let one = VisitFixture::new(burst, "k", &[Ran(1, 20_000)]).item(*id);
            maker.at(begin, &one);
        }
        let ran = if burst % 20 == 3 { 800_000 } else { 40_000 };
        let begin = maker.now;
        let all = VisitFixture::new(burst, "k", &[Ran(2, ran)])
            .probe(1)
            .tid(8)
            .batch(ids);
        maker.at(begin, &all);
        maker.now += 1_000;
    }
    let trace = maker.finish(&FUNCTIONS);
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    let group = whole(&explanation);
    assert_eq!((explanation.unit, group.items), (Unit::Item, 800));
    let gap = group.gap.as_ref().unwrap();
    let [others, own] = &gap.causes[..2] else {
        panic!("{gap:#?}");
    };
    assert_eq!(
        (others.kind, own.kind),
        (CauseType::Others, CauseType::Function)
    );
    assert_eq!(others.function.name.as_deref(), Some("all"));
    // 760 us longer: a quarter for itself, the rest for others.
    assert!(
        (others.figures.excess_ns - 570_000.0).abs() < 1.0,
        "{others:?}"
    );
    assert!(
        (own.figures.excess_ns - 190_000.0).abs() < 10_000.0,
        "{own:?}"
    );
    let item = explain_item(&trace, &ExplainOptions::default(), ItemChoice::Item(13)).unwrap();
    assert_eq!((item.visit_ids.len(), item.item_id), (2, 13));
    assert_eq!(item.oncpu_ns, Some(20_000 + 200_000));
    let visits = ExplainOptions {
        unit: Some(Unit::Visit),
        ..ExplainOptions::default()
    };
    let item = explain_item(&trace, &visits, ItemChoice::Item(13)).unwrap();
    assert_eq!((item.batch, item.oncpu_ns), (Some(4), Some(800_000)));
}

/// An address that is reused is a new item; visits that began before the recording are no item.
#[test]
fn ids_are_used_again() {
    let specs = ["/bin/app:first(id=arg1)", "/bin/app:second(id=arg1)"];
    let mut maker = Maker::new(info(&specs));
    let stage = |probe: u16, i: u64| {
        VisitFixture::new(i, "k", &[Ran(1 + u32::from(probe), 30_000)])
            .probe(probe)
            .item(0x1000 + i % 2)
    };
    maker.visit(&stage(1, 0));
    for i in 0..400 {
        maker.visit(&stage(0, i));
        maker.now += if i % 20 == 3 { 900_000 } else { 0 };
        maker.visit(&stage(1, i));
    }
    let trace = maker.finish(&FUNCTIONS);
    let explanation = explain(&trace, &ExplainOptions::default()).unwrap();
    let probe = &explanation.probes[0];
    assert_eq!((probe.items, probe.item_ids, probe.visits), (400, 2, 801));
    assert_eq!(probe.left_out.headless, 1);
    let text = text::render(&explanation);
    for expected in [
        "waited for stage second",
        "1 item whose first stage was not seen",
    ] {
        assert!(text.contains(expected), "{text}");
    }
}
