//! Losses made on purpose, through the whole pipeline into a trace: they are in the ledger, in `losses`, and in the
//! flags of the affected visits; no record is invented.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod machine;
mod marks;

use machine::{Loss, Machine, MachineRecord, Visit};
use pebs_user::ledger::{Account, Reason};
use pebs_user::pipeline::synthetic::{self, START_NS, Workload};
use pebs_user::store::schema::visit_flag;
use pebs_user::stream::clock::Clock;
use pebs_user::stream::decode::{Unordered, decode};
use pebs_user::stream::order::Order;
use pebs_user::units::KtimeNs;

fn account(seen: u64, written: u64, reasons: &[(Reason, u64)]) -> Account {
    Account {
        seen,
        written,
        reasons: reasons.iter().copied().collect(),
    }
}

/// Records of every kind come behind the frontier: they are counted by CPU and kind, the time from the first to the
/// last is a loss, the visit that lacks them is flagged, and the next one is complete.
#[test]
fn late() {
    let mut machine = Machine::new(2);
    machine.emit(0, 71, 100, MachineRecord::Begin(1));
    machine.emit(0, 71, 200, MachineRecord::Sample);
    machine.emit(0, 71, 300, MachineRecord::SwitchOut);
    machine.drain(1000, 1010);
    machine.emit(1, 72, 800, MachineRecord::Begin(2));
    machine.emit(1, 71, 900, MachineRecord::Sample);
    machine.emit(1, 71, 950, MachineRecord::SwitchOut);
    machine.emit(1, 72, 1550, MachineRecord::Return);
    machine.emit(0, 71, 1500, MachineRecord::Return);
    machine.emit(0, 71, 1600, MachineRecord::Begin(3));
    machine.emit(0, 71, 1700, MachineRecord::Return);
    machine.drain(2000, 2010);
    let recorded = machine.finish(2000);

    let [first, second] = &recorded.ledger.cpus[..] else {
        panic!("{:#?}", recorded.ledger);
    };
    assert_eq!(first.samples, account(1, 1, &[]));
    assert_eq!(first.marks, account(4, 4, &[]));
    assert_eq!(second.samples, account(1, 0, &[(Reason::Late, 1)]));
    let marks = [(Reason::Late, 1), (Reason::UnmatchedMark, 1)];
    assert_eq!(second.marks, account(2, 0, &marks));
    assert_eq!(second.tasks, account(1, 0, &[(Reason::Late, 1)]));
    let loss = Loss {
        begin: 800,
        end: 950,
        cpu: Some(1),
        records: Some(3),
    };
    assert_eq!(recorded.losses("late"), [loss]);
    let visit = |item, begin, end, flags| Visit {
        item,
        tid: 71,
        begin,
        end: Some(end),
        flags,
    };
    let expected = [
        visit(1, 100, 1500, visit_flag::LOSS),
        visit(3, 1600, 1700, 0),
    ];
    assert_eq!(recorded.visits(), expected);
}

/// A process execs: the visit before ends there, the one after is complete, even if another CPU's event beyond the
/// frontier was read first, or the exec event comes too late.
#[test]
fn program_replaced() {
    let other = machine::PID + 1;
    for (first, second) in [
        (&[(1500, other), (300, machine::PID)][..], &[][..]),
        (&[], &[(300, machine::PID)]),
    ] {
        let mut machine = Machine::new(1);
        machine.emit(0, 71, 100, MachineRecord::Begin(1));
        machine.drain(200, 210);
        machine.emit(0, 72, 400, MachineRecord::Begin(2));
        machine.drain_with(1000, 1010, first);
        machine.emit(0, 72, 1600, MachineRecord::Return);
        machine.drain_with(2000, 2010, second);
        let visits = machine.finish(2000).visits();
        let found: Vec<_> = visits
            .iter()
            .map(|visit| (visit.item, visit.end, visit.flags))
            .collect();
        let expected = [(1, Some(300), visit_flag::THREAD_ENDED), (2, Some(1600), 0)];
        assert_eq!(found, expected);
    }
}

/// A late end mark: the visit ends, flagged, at the first record that shows that it is over.
#[test]
fn late_end() {
    let mut machine = Machine::new(2);
    machine.emit(0, 71, 100, MachineRecord::Begin(1));
    machine.drain(1000, 1010);
    machine.emit(1, 71, 900, MachineRecord::Return);
    machine.emit(0, 71, 1200, MachineRecord::Begin(2));
    machine.emit(0, 71, 1300, MachineRecord::Return);
    machine.drain(2000, 2010);
    let recorded = machine.finish(2000);
    let ends: Vec<_> = recorded
        .visits()
        .iter()
        .map(|v| (v.item, v.end, v.flags))
        .collect();
    let cut = visit_flag::LOSS | visit_flag::UNWOUND;
    assert_eq!(ends, [(1, Some(1200), cut), (2, Some(1300), 0)]);
}

/// 64 rings: nothing is lost or late, every CPU's account balances, and only records newer than the frontier wait.
#[test]
fn rings_64() {
    let workload = Workload {
        cpus: 64,
        threads: 200,
        records: 400_000,
        pid: machine::PID,
        ..Workload::default()
    };
    let mut machine = Machine::new(usize::from(workload.cpus));
    let (mut clock, mut order) = (Clock::new(KtimeNs(START_NS)), Order::new(&[false]));
    let mut sum = [0; 3];
    let batches = synthetic::batches(&workload);
    assert!(batches.len() > 2, "{} batches", batches.len());
    for batch in batches {
        let mut newer = 0;
        let frontier = clock.trace_of_ktime(batch.frontier);
        for (cpu, bytes) in &batch.streams {
            let mut inbox = Unordered::default();
            let decoded = decode(*cpu, bytes, &mut clock, &mut inbox);
            let samples = inbox.samples.iter().map(|(.., sample)| sample.time);
            let times = samples.chain(inbox.records.iter().map(|record| record.time));
            newer += times.filter(|time| *time >= frontier).count();
            decode(*cpu, bytes, &mut clock, &mut order);
            let counts = [decoded.samples, decoded.marks, decoded.tasks];
            machine.emit_bytes(usize::from(cpu.0), bytes, counts);
            (0..3).for_each(|n| sum[n] += counts[n]);
        }
        drop(order.advance(frontier, |late| panic!("{late:?}")));
        assert_eq!(order.waiting(), newer, "only what is newer waits");
        let now = batch.frontier.0 - START_NS;
        machine.drain(now, now + 200_000);
    }

    let recorded = machine.finish(1 << 40);
    assert_eq!(recorded.ledger.cpus.len(), 64);
    for cpu in &recorded.ledger.cpus {
        for account in [&cpu.samples, &cpu.marks, &cpu.tasks] {
            assert!(account.reasons.is_empty(), "{cpu:#?}");
        }
    }
    let totals = recorded.ledger.totals();
    let written = [
        totals.samples.written,
        totals.marks.written,
        totals.tasks.written,
    ];
    assert_eq!(written, sum);
    assert_eq!(recorded.samples().0 as u64, sum[0]);
    assert_eq!(recorded.losses("late"), []);
    let visits = recorded.visits();
    let open = visits.iter().filter(|visit| visit.end.is_none()).count();
    assert_eq!((visits.len() * 2 - open) as u64, sum[1], "marks of visits");
    assert!(visits.iter().all(|v| v.flags & visit_flag::LOSS == 0));
}

/// A perf ring with invalid positions: the range is a loss of unknown size, the visit in it is flagged, the next one is
/// complete, and the account has one unreadable record.
#[test]
fn broken_perf_ring() {
    let mut machine = Machine::with_bulk(1);
    machine.emit(0, 71, 100, MachineRecord::Begin(1));
    machine.emit(0, 71, 400, MachineRecord::Return);
    machine.drain_broken(0, 500);
    machine.emit(0, 71, 600, MachineRecord::Begin(2));
    machine.emit(0, 71, 700, MachineRecord::Return);
    machine.emit(0, 71, 800, MachineRecord::Begin(3));
    machine.drain_broken(0, 900);
    machine.emit(0, 71, 950, MachineRecord::Return);
    machine.emit(0, 71, 1000, MachineRecord::Begin(4));
    machine.emit(0, 71, 1100, MachineRecord::Return);
    machine.drain(2000, 2010);
    let recorded = machine.finish(2000);
    let samples = &recorded.ledger.cpus[0].samples;
    assert_eq!(*samples, account(2, 0, &[(Reason::Malformed, 2)]));
    let range = |begin, end| Loss {
        begin,
        end,
        cpu: Some(0),
        records: None,
    };
    // No record was read before the first one.
    assert_eq!(
        recorded.losses("malformed"),
        [range(0, 500), range(500, 900)]
    );
    let flagged = recorded.visits().into_iter();
    let flagged: Vec<bool> = flagged.map(|it| it.flags & visit_flag::LOSS != 0).collect();
    assert_eq!(flagged, [true, true, true, false]);
}
