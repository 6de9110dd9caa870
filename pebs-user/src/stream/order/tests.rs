use std::collections::BTreeMap;

use super::queue::{KEPT_ROOM, ROOMY};
use super::*;
use crate::stream::sample::SampleKind;
use crate::units::{Cpu, EventId, Ip, ProbeId};
use pebs_common::record::Role;
use proptest::prelude::*;

/// Marks of this probe are shared.
const SHARED: ProbeId = ProbeId(1);

fn order() -> Order {
    Order::new(&[false, true])
}

fn mark(order: &mut Order, time: i64, tid: u32, probe: ProbeId) {
    let args = order.payloads().push(1, &time.to_ne_bytes());
    let body = Body::Mark {
        probe,
        role: Role::Begin,
        stepped: false,
        ran_ns: None,
        id: None,
        sp: 0,
        args,
    };
    order.record(Record {
        time: TraceNs(time),
        pid: Pid(1),
        tid: Tid(tid),
        cpu: Cpu(2),
        body,
    });
}

fn sample(order: &mut Order, time: i64, tid: u32) {
    let sample = RawSample {
        time: TraceNs(time),
        ip: Ip(0),
        sp: 0,
        kind: SampleKind::new(Cpu(2), EventId(0), (false, false)),
    };
    order.sample(Pid(1), Tid(tid), sample);
}

/// Times that came out, by thread; shared marks as thread 0. Samples are negative.
type Out = BTreeMap<u32, Vec<i64>>;

fn take(ready: &mut Ready<'_>, out: &mut Out) {
    let payload_fits = |record: &Record, payloads: &Payloads| {
        let Body::Mark { args, .. } = record.body else {
            unreachable!()
        };
        let bytes = payloads.get(args).try_into().unwrap();
        assert_eq!(i64::from_ne_bytes(bytes), record.time.0);
    };
    while let Some(record) = ready.next_shared(TraceNs(i64::MAX)) {
        payload_fits(&record, ready.parts().payloads);
        out.entry(0).or_default().push(record.time.0);
    }
    ready.parts().each(|lane, payloads| {
        let times = out.entry(lane.tid.0).or_default();
        while let Some(turn) = lane.next(TraceNs(i64::MAX)) {
            match turn {
                Turn::Samples(raw) => times.extend(raw.samples.times.iter().map(|time| -time.0)),
                Turn::Record(record) => {
                    payload_fits(record, payloads);
                    times.push(record.time.0);
                }
            }
        }
    });
}

proptest! {
    /// Any interleaving that respects the frontiers comes out complete and, thread by thread,
    /// sorted, each mark with its own payload.
    #[test]
    fn sorted_and_whole(
        mut records in prop::collection::vec((1i64..1000, 1u32..4, 0u8..3), 1..200),
        step in 1usize..20,
        part in 2usize..8,
    ) {
        // Within a batch the order is arbitrary; no batch has a time below the previous frontier.
        records.sort_unstable();
        let (mut order, mut out, mut expected) = (order(), Out::new(), Out::new());
        for (time, tid, kind) in &records {
            let thread = if *kind == 2 { 0 } else { *tid };
            let sign = if *kind == 0 { -1 } else { 1 };
            expected.entry(thread).or_default().push(sign * time);
        }
        for batch in records.chunks(step) {
            for &(time, tid, kind) in batch.iter().rev() {
                match kind {
                    0 => sample(&mut order, time, tid),
                    1 => mark(&mut order, time, tid, ProbeId(0)),
                    _ => mark(&mut order, time, tid, SHARED),
                }
            }
            // Mostly, many records wait.
            let frontier = TraceNs(batch[batch.len() / part].0);
            take(&mut order.advance(frontier, |_| panic!("late")), &mut out);
        }
        take(&mut order.advance(TraceNs(i64::MAX), |_| panic!("late")), &mut out);
        // At the same time, marks come first.
        for times in expected.values_mut() {
            times.sort_by_key(|time| (time.abs(), -time.signum()));
        }
        prop_assert_eq!(out, expected);
        prop_assert_eq!(order.waiting(), 0);
    }
}

/// Records that are removed while most wait don't come out again, and late records don't get among
/// the waiting ones.
#[test]
fn gone_is_gone() {
    let mut order = order();
    let mut out = Out::new();
    for time in [10, 20, 30] {
        sample(&mut order, time, 1);
    }
    take(
        &mut order.advance(TraceNs(15), |_| panic!("late")),
        &mut out,
    );
    assert_eq!((order.waiting(), &out), (2, &Out::from([(1, vec![-10])])));
    for time in [5, 12, 25] {
        sample(&mut order, time, 1);
    }
    let mut late = Vec::new();
    take(
        &mut order.advance(TraceNs(26), |l| late.push(l.time.0)),
        &mut out,
    );
    assert_eq!(late, [5, 12]);
    take(
        &mut order.advance(TraceNs(40), |_| panic!("late")),
        &mut out,
    );
    assert_eq!(out, Out::from([(1, vec![-10, -20, -25, -30])]));
    assert_eq!(order.waiting(), 0);
}

/// A record behind the frontier is reported as late and dropped.
#[test]
fn late_records() {
    let mut order = order();
    drop(order.advance(TraceNs(100), |_| {}));
    sample(&mut order, 98, 1);
    mark(&mut order, 99, 1, ProbeId(0));
    mark(&mut order, 99, 1, SHARED);
    mark(&mut order, 100, 1, ProbeId(0));
    let (mut late, mut out) = (Vec::new(), Out::new());
    take(&mut order.advance(TraceNs(200), |l| late.push(l)), &mut out);
    let of = |kind, time| Late {
        cpu: 2,
        kind,
        time: TraceNs(time),
    };
    let mark = of(LateKind::Mark, 99);
    assert_eq!(late, [of(LateKind::Sample, 98), mark, mark]);
    assert_eq!(out, Out::from([(1, vec![100])]));
}

/// A lane is read up to a time, and later from there on.
#[test]
fn up_to_a_time() {
    let mut order = order();
    sample(&mut order, 10, 1);
    sample(&mut order, 30, 1);
    mark(&mut order, 20, 1, ProbeId(0));
    let mut ready = order.advance(TraceNs(100), |_| panic!("late"));
    assert_eq!((ready.samples(), ready.records().count()), (2, 1));
    let mut parts = ready.parts();
    let lane = parts.lane(Pid(1), Tid(1)).unwrap();
    assert!(!lane.has_before(TraceNs(10)) && lane.has_before(TraceNs(11)));
    assert!(
        matches!(lane.next(TraceNs(20)), Some(Turn::Samples(raw)) if raw.samples.times == [TraceNs(10)])
    );
    assert!(lane.next(TraceNs(20)).is_none());
    assert!(matches!(lane.next(TraceNs(30)), Some(Turn::Record(r)) if r.time.0 == 20));
    assert!(lane.next(TraceNs(30)).is_none());
    assert!(
        matches!(lane.next(TraceNs(31)), Some(Turn::Samples(raw)) if raw.samples.times == [TraceNs(30)])
    );
    assert!(parts.lane(Pid(1), Tid(2)).is_none());
}

/// Lanes of threads that ended are dropped.
#[test]
fn idle_lanes_go() {
    let mut order = order();
    for n in 0..4 * IDLE as i64 {
        sample(&mut order, n, n as u32);
        drop(order.advance(TraceNs(n), |_| panic!("late")));
    }
    assert!(
        order.lanes.len() <= 2 * IDLE as usize,
        "{}",
        order.lanes.len()
    );
    assert_eq!(order.lane_of.len(), order.lanes.len());
    assert_eq!(order.waiting(), 1);
}

/// A thread that was busy once is given less capacity, one that is busy now and then keeps it.
#[test]
fn room() {
    let (mut order, mut time) = (order(), 0);
    let mut round = |samples: i64| {
        (0..samples).for_each(|n| sample(&mut order, time + n, 7));
        time += samples;
        drop(order.advance(TraceNs(time), |late| panic!("{late:?}")));
        order.lanes[0].samples.records.room()
    };
    let busy = round(100_000);
    for _ in 0..ROOMY {
        assert_eq!(round(100_000), busy);
        for _ in 1..ROOMY {
            assert_eq!(round(10), busy);
        }
    }
    let quiet = (0..20 * ROOMY).map(|_| round(10)).last();
    assert!(quiet < Some(8 * KEPT_ROOM), "{quiet:?} of {busy}");
}
