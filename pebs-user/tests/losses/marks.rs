//! Random losses of begin and end marks, compared with the marks sent.

use std::collections::BTreeMap;

use pebs_user::ledger::Reason;
use pebs_user::pipeline::synthetic::Random;
use pebs_user::store::schema::visit_flag;

use crate::machine::{Loss, Machine, MachineRecord, Recorded, Visit};

const CPUS: u64 = 3;
/// One thread per CPU.
const TIDS: std::ops::Range<u32> = 70..73;
const ITEMS: u64 = 2000;
/// Largest time between two marks of a thread, ns.
const STEP_NS: u64 = 5_000;
/// Time between two drains, ns.
const DRAIN_NS: u64 = 200_000;

/// A mark that the thread made.
#[derive(Clone, Copy, Debug)]
struct Mark {
    time: u64,
    tid: u32,
    cpu: usize,
    /// The item that begins; `None`: the function returns.
    begins: Option<u64>,
    lost: bool,
}

/// Consecutive items on every thread; one mark in `lost_one_in` is lost, in bursts.
fn marks(random: &mut Random, lost_one_in: u64) -> Vec<Mark> {
    let mut all = Vec::new();
    let mut item = 0;
    for (cpu, tid) in TIDS.enumerate() {
        let (mut time, mut burst) = (1000 + random.below(STEP_NS), 0);
        for n in 0..ITEMS / CPUS * 2 {
            if random.below(lost_one_in) == 0 {
                burst = 1 + random.below(4);
            }
            let begins = n.is_multiple_of(2).then(|| {
                item += 1;
                item
            });
            all.push(Mark {
                time,
                tid,
                cpu,
                begins,
                lost: burst > 0,
            });
            burst = u64::saturating_sub(burst, 1);
            time += 10 + random.below(STEP_NS);
        }
    }
    all.sort_by_key(|mark| mark.time);
    all
}

fn record(marks: &[Mark]) -> Recorded {
    let mut machine = Machine::new(CPUS as usize);
    let mut next_drain = DRAIN_NS;
    for mark in marks {
        while mark.time >= next_drain {
            // The rings were read some us before the counters.
            machine.drain(next_drain - 5_000, next_drain);
            next_drain += DRAIN_NS;
        }
        let what = mark
            .begins
            .map_or(MachineRecord::Return, MachineRecord::Begin);
        if mark.lost {
            machine.refuse(mark.cpu, what);
        } else {
            machine.emit(mark.cpu, mark.tid, mark.time, what);
            if mark.begins.is_some() {
                machine.emit(mark.cpu, mark.tid, mark.time + 5, MachineRecord::Sample);
            }
        }
    }
    machine.drain(next_drain - 5_000, next_drain);
    machine.finish(next_drain)
}

/// Expected visits, from the marks that were not lost.
#[derive(Debug, Default)]
struct Expected {
    /// Item: thread, begin, end and whether both marks are its own.
    visits: BTreeMap<u64, (u32, u64, Option<u64>, bool)>,
    unmatched: u64,
}

fn expect(marks: &[Mark]) -> Expected {
    let mut expected = Expected::default();
    for tid in TIDS {
        // Item of the open visit, and item that the thread really handles.
        let (mut open, mut real): (Option<u64>, u64) = (None, 0);
        for mark in marks.iter().filter(|mark| mark.tid == tid) {
            real = mark.begins.unwrap_or(real);
            if mark.lost {
                continue;
            }
            if let Some(before) = open.take() {
                let visit = expected.visits.get_mut(&before).unwrap();
                visit.2 = Some(mark.time);
                visit.3 = mark.begins.is_none() && before == real;
            } else if mark.begins.is_none() {
                expected.unmatched += 1;
            }
            if let Some(item) = mark.begins {
                expected.visits.insert(item, (tid, mark.time, None, false));
                open = Some(item);
            }
        }
    }
    expected
}

/// For any loss: no visit is invented, those with both marks are exact, all others are flagged, ends without a begin
/// are counted, and every lost mark is within a range of `losses`.
#[test]
fn lost() {
    for (seed, lost_one_in) in [(1, 3), (2, 10), (3, 10), (4, 40), (5, 40), (6, 400)] {
        let marks = marks(&mut Random::new(seed), lost_one_in);
        let recorded = record(&marks);
        let expected = expect(&marks);
        let found = recorded.visits();
        assert_eq!(found.len(), expected.visits.len(), "seed {seed}");
        let losses = recorded.losses(Reason::DroppedRingFull.name());
        for visit in &found {
            let (tid, begin, end, own) = expected.visits[&(visit.item as u64)];
            let seen = (visit.tid as u32, visit.begin as u64);
            assert_eq!(seen, (tid, begin), "seed {seed}: {visit:?}");
            assert_eq!(
                visit.end,
                end.map(u64::cast_signed),
                "seed {seed}: {visit:?}"
            );
            let broken = visit_flag::UNWOUND | visit_flag::OPEN_AT_END;
            // A thread that stayed on its CPU lacks no mark of other CPUs; if its end is missing it may.
            let stayed = !has(visit, broken | visit_flag::END_MISSING);
            let cpu = Some(visit.tid - i64::from(TIDS.start));
            let concerns = |loss: &&Loss| !stayed || loss.cpu == cpu;
            let hit = losses.iter().filter(concerns).any(|it| it.overlaps(visit));
            assert_eq!(has(visit, visit_flag::LOSS), hit, "seed {seed}: {visit:?}");
            assert!(own || hit, "seed {seed}: damaged, not flagged: {visit:?}");
            assert!(!(own && has(visit, broken)), "seed {seed}: {visit:?}");
        }
        books(seed, &marks, &recorded, expected.unmatched);
        let whole = found.iter().filter(|v| v.flags == 0).count();
        assert!(
            lost_one_in < 400 || whole > 500,
            "{whole} whole, seed {seed}"
        );
    }
}

const fn has(visit: &Visit, flag: u32) -> bool {
    visit.flags & flag != 0
}

/// The ledger and `losses` have the lost marks, CPU by CPU.
fn books(seed: u64, marks: &[Mark], recorded: &Recorded, unmatched: u64) {
    let losses = recorded.losses(Reason::DroppedRingFull.name());
    let mut total_unmatched = 0;
    for (cpu, ledger) in recorded.ledger.cpus.iter().enumerate() {
        let here = || marks.iter().filter(|mark| mark.cpu == cpu);
        let lost = here().filter(|mark| mark.lost).count() as u64;
        let account = &ledger.marks;
        let reason = |reason| account.reasons.get(&reason).copied().unwrap_or(0);
        assert_eq!(account.seen, here().count() as u64, "seed {seed}");
        assert_eq!(reason(Reason::DroppedRingFull), lost, "seed {seed}");
        total_unmatched += reason(Reason::UnmatchedMark);
        let own = || losses.iter().filter(|loss| loss.cpu == Some(cpu as i64));
        let in_ranges: i64 = own().filter_map(|loss| loss.records).sum();
        assert_eq!(in_ranges as u64, lost, "seed {seed}");
        for mark in here().filter(|mark| mark.lost) {
            let time = mark.time as i64;
            let range = own().find(|loss| loss.begin <= time && time <= loss.end);
            assert!(range.is_some(), "seed {seed}: {mark:?} in no range");
        }
    }
    assert_eq!(total_unmatched, unmatched, "seed {seed}");
}
