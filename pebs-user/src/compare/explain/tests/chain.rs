//! Whom waits waited for.

use proptest::prelude::*;

use super::*;
use crate::compare::explain::chain::{Root, follow};
use crate::compare::explain::chain_model::{Activity, Awaited, WaitedFor};
use crate::store::schema::{ArgValue, INTERRUPT, OtherWaitRow, WaitRow};
use crate::units::Tid;

const MS: i64 = 1_000_000;

/// A wait of a visit, woken by a thread or an interrupt, and how long it had no CPU.
fn wait(
    (visit_id, tid): (u64, u32),
    (begin, end): (i64, i64),
    (function, by): (u32, Option<u32>),
    runnable: i64,
) -> WaitRow<'static> {
    WaitRow {
        visit_id,
        tid: Tid(tid),
        begin_ns: TraceNs(begin),
        end_ns: TraceNs(end),
        function_id: Some(FunctionId(function)),
        state: "sleeping",
        runnable_ns: Some(runnable),
        woken_by: Some(if by.is_some() { "worker" } else { INTERRUPT }),
        woken_by_tid: by.map(Tid),
        ..WaitRow::default()
    }
}

fn other(
    tid: u32,
    (begin, end): (i64, i64),
    (function, by): (u32, Option<u32>),
) -> OtherWaitRow<'static> {
    OtherWaitRow {
        tid: Tid(tid),
        begin_ns: TraceNs(begin),
        end_ns: TraceNs(end),
        function_id: Some(FunctionId(function)),
        state: "sleeping",
        runnable_ns: Some(0),
        woken_by: Some(if by.is_some() { "worker" } else { INTERRUPT }),
        woken_by_tid: by.map(Tid),
        ..OtherWaitRow::default()
    }
}

/// A visit of a thread in which nothing was sampled.
fn visit(maker: &mut Maker, tid: u32, (begin, end): (i64, i64), key: &str) {
    let made = VisitFixture::new(0, key, &[Yielded(end - begin)]);
    maker.at(begin, &made.tid(tid));
}

fn of(trace: &TestTrace, (tid, begin, end): (u32, i64, i64)) -> WaitedFor {
    let root = Root {
        group: 0,
        tid,
        begin_ns: begin,
        end_ns: end,
    };
    let event = trace.info.events.first();
    let mut found = follow(trace, event, (1, vec![root])).unwrap();
    found.remove(0)
}

/// An item waits for one that waits for the disk most of the time: 1 ms of 10 on the CPU, and 1 ms without a CPU.
#[test]
fn worked() {
    let mut maker = Maker::new(info(&[SPEC]));
    visit(&mut maker, 2, (0, 11 * MS), "commit");
    visit(&mut maker, 1, (0, 12 * MS), "get");
    visit(&mut maker, 1, (13 * MS, 14 * MS), "get");
    maker.add(wait((1, 2), (0, 9 * MS), (4, None), 0));
    maker.add(wait((2, 1), (0, 11 * MS), (1, Some(2)), MS));
    let trace = maker.finish(&FUNCTIONS);
    let found = of(&trace, (1, 0, 11 * MS));
    assert_eq!((found.waits, found.queue, found.links.len()), (1, 1.0, 1));
    assert!((found.no_cpu - 1.0 / 11.0).abs() < 1e-9, "{found:?}");
    let link = &found.links[0];
    assert_eq!(link.kind, Awaited::Items);
    assert_eq!((link.items, link.visit_id, link.tid), (1, Some(1), 2));
    assert_eq!(link.args.len(), 1, "one of three items has this key");
    assert_eq!(link.args[0].value, Some(ArgValue::Str("commit".into())));
    let [disk, ran] = &link.doing[..] else {
        panic!("{link:?}");
    };
    assert_eq!(disk.kind, Activity::Waited);
    assert_eq!(disk.function.name.as_deref(), Some("fdatasync"));
    assert!((disk.part - 9.0 / 11.0).abs() < 1e-9, "{disk:?}");
    assert_eq!((ran.kind, ran.count), (Activity::Ran, 0));
    assert!((ran.part - 1.0 / 11.0).abs() < 1e-9, "{ran:?}");
}

/// Items that wait for the same lock are one queue; a thread at no item is a link of its own, whose waits are known.
#[test]
fn queues_and_threads() {
    let mut maker = Maker::new(info(&[SPEC]));
    visit(&mut maker, 2, (0, 3 * MS), "a");
    visit(&mut maker, 3, (0, 6 * MS), "b");
    visit(&mut maker, 1, (0, 10 * MS), "c");
    maker.add(wait((2, 3), (0, 3 * MS), (1, Some(2)), 0));
    maker.add(wait((3, 1), (0, 6 * MS), (1, Some(3)), 0));
    maker.add(wait((3, 1), (7 * MS, 10 * MS), (1, Some(4)), 0));
    maker.add(other(4, (6 * MS, 9 * MS), (4, None)));
    let trace = maker.finish(&FUNCTIONS);
    let found = of(&trace, (1, 0, 6 * MS));
    assert_eq!((found.queue, found.links.len()), (2.0, 1));
    assert_eq!((found.links[0].items, found.links[0].doing.len()), (2, 1));
    assert!((found.links[0].part - 1.0).abs() < 1e-9, "{found:?}");
    let found = of(&trace, (1, 7 * MS, 10 * MS));
    let link = &found.links[0];
    assert_eq!(
        (link.kind, link.tid, link.item_id),
        (Awaited::Thread, 4, None)
    );
    assert!((link.doing[0].part - 2.0 / 3.0).abs() < 1e-9, "{link:?}");
    assert_eq!(link.doing[0].function.name.as_deref(), Some("fdatasync"));
}

/// Unknown activity is not named: of a thread whose waits at no item were not recorded, of one that is not traced, and
/// of one too far down a chain. A traced thread that never waits was on the CPU.
#[test]
fn unknown() {
    let woken = |maker: &mut Maker, pid: u32| {
        visit(maker, 1, (0, 10 * MS), "a");
        let woken_by_pid = Some(crate::units::Pid(pid));
        let row = wait((1, 1), (MS, 9 * MS), (1, Some(2)), 0);
        maker.add(WaitRow {
            woken_by_pid,
            ..row
        });
    };
    let mut maker = Maker::new(info(&[SPEC]));
    woken(&mut maker, 100);
    let link = of(&maker.finish(&FUNCTIONS), (1, MS, 9 * MS))
        .links
        .remove(0);
    assert_eq!((link.kind, link.on_cpu), (Awaited::Thread, 0.0));
    assert!(link.doing.is_empty() && link.part > 0.99, "{link:?}");
    let mut maker = Maker::new(info(&[SPEC]));
    woken(&mut maker, 100);
    maker.add(other(3, (2 * MS, 3 * MS), (4, None)));
    let link = of(&maker.finish(&FUNCTIONS), (1, MS, 9 * MS))
        .links
        .remove(0);
    assert_eq!((link.kind, link.on_cpu), (Awaited::Thread, 1.0));
    let mut maker = Maker::new(info(&[SPEC]));
    woken(&mut maker, 200);
    let link = of(&maker.finish(&FUNCTIONS), (1, MS, 9 * MS))
        .links
        .remove(0);
    assert_eq!(link.kind, Awaited::Untraced);
    let mut maker = Maker::new(info(&[SPEC]));
    visit(&mut maker, 1, (0, 10 * MS), "a");
    maker.add(wait((1, 1), (MS, 9 * MS), (1, Some(2)), 0));
    for tid in 2..30 {
        maker.add(other(tid, (MS, 9 * MS), (1, Some(tid + 1))));
    }
    let found = of(&maker.finish(&FUNCTIONS), (1, MS, 9 * MS));
    sums(&found);
    let mut last = &found;
    while let Some(link) = last.links.first() {
        assert_eq!(link.kind, Awaited::Thread, "{link:?}");
        last = link.doing[0].waited_for.as_ref().unwrap();
    }
    assert!((last.unknown - 1.0).abs() < 1e-9, "{last:?}");
}

/// Two threads that wait for one another: no endless chain.
#[test]
fn handed_back() {
    let mut maker = Maker::new(info(&[SPEC]));
    visit(&mut maker, 1, (0, 10 * MS), "a");
    maker.add(wait((1, 1), (MS, 9 * MS), (1, Some(2)), 0));
    maker.add(other(2, (0, 3 * MS), (1, Some(1))));
    let trace = maker.finish(&FUNCTIONS);
    let found = of(&trace, (1, MS, 9 * MS));
    let waited = found.links[0].doing.iter().find(|it| it.state.is_some());
    let next = waited.unwrap().waited_for.as_ref().unwrap();
    assert!((next.itself - 0.25).abs() < 1e-9, "{found:?}");
    assert!(next.links.is_empty());
}

/// Every part of a wait is booked once.
fn sums(waited_for: &WaitedFor) {
    let links: f64 = waited_for.links.iter().map(|it| it.part).sum();
    let rest = waited_for.no_cpu + waited_for.interrupts + waited_for.itself + waited_for.unknown;
    let all = links + rest;
    assert!((all - waited_for.part).abs() < 1e-6, "{waited_for:?}");
    for link in &waited_for.links {
        let did: f64 = link.doing.iter().map(|it| it.part).sum();
        assert!(did <= link.part + 1e-6, "{link:?}");
        for doing in &link.doing {
            if let Some(next) = &doing.waited_for {
                assert!(next.part <= doing.part + 1e-6, "{doing:?}");
                sums(next);
            }
        }
    }
}

proptest! {
    // Each writes a trace, and reads it for each wait that is followed.
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever threads do, parts sum to the whole, and no chain is endless.
    #[test]
    fn parts_sum(
        rows in prop::collection::vec((1..6_u32, 0..40_i64, 1..9_i64, 0..7_u32, 0..3_i64, any::<bool>()), 1..60),
    ) {
        let mut maker = Maker::new(info(&[SPEC]));
        for tid in 1..6_u32 {
            visit(&mut maker, tid, (i64::from(tid) * 10, 200 - i64::from(tid) * 7), "k");
        }
        let mut at = [0_i64; 6];
        let mut last = Vec::new();
        for (tid, pause, ns, by, runnable, inside) in rows {
            let begin = at[tid as usize] + pause;
            let end = begin + ns;
            at[tid as usize] = end;
            let by = (function_of(by), Some(by).filter(|it| *it > 0));
            last.push((tid, begin, end));
            match inside {
                true => maker.add(wait((u64::from(tid), tid), (begin, end), by, runnable.min(ns))),
                false => maker.add(other(tid, (begin, end), by)),
            }
        }
        let trace = maker.finish(&FUNCTIONS);
        for root in last.into_iter().step_by(4) {
            let found = of(&trace, root);
            prop_assert!((found.part - 1.0).abs() < 1e-9);
            sums(&found);
        }
    }
}

const fn function_of(by: u32) -> u32 {
    by % 2 + 1
}
