use super::*;

/// Intervals of 100 ns, one of which begins at 30, with one counter; finished ones as text.
struct Test {
    intervals: Intervals,
    over: Vec<String>,
}

impl Test {
    fn new() -> Self {
        let mut intervals = Intervals::new(100, 1);
        intervals.begin_at(TraceNs(30));
        Self {
            intervals,
            over: Vec::new(),
        }
    }

    /// Adds `events` events of a thread on a CPU from `since` to `time`.
    fn counted(&mut self, (tid, cpu): (u32, u16), (since, time): (i64, i64), events: u64) {
        let words = events.to_ne_bytes();
        let counted = Counted {
            ns: (time - since) as u64,
            words: &words,
            times: false,
            tick: true,
        };
        let who = (Pid(1), Tid(tid), Cpu(cpu));
        let over = &mut self.over;
        let mut say = |it: &IntervalCounts<'_>| over.push(shown(it));
        self.intervals
            .counted(who, TraceNs(time), &counted, &mut say);
    }

    fn ends(&mut self, tid: u32) {
        let over = &mut self.over;
        self.intervals
            .ends(Tid(tid), &mut |it| over.push(shown(it)));
    }

    fn finish(mut self) -> Vec<String> {
        let over = &mut self.over;
        self.intervals.finish(&mut |it| over.push(shown(it)));
        self.over
    }
}

fn shown(it: &IntervalCounts<'_>) -> String {
    let stayed = it
        .stayed
        .map_or_else(String::new, |cpu| format!(" on {}", cpu.0));
    format!(
        "{} at {}: {} in {}, {} switches{stayed}{}",
        it.tid.0,
        it.begin.0,
        it.events.each[0].events,
        it.oncpu_ns,
        it.switches,
        if it.events.incomplete { " lacks" } else { "" }
    )
}

/// A tick may be somewhat early or late: counts go to the interval that contains most of their time, and are never
/// counted twice.
#[test]
fn ticks() {
    let mut test = Test::new();
    test.counted((7, 0), (30, 131), 5);
    test.counted((7, 0), (131, 150), 1);
    test.counted((7, 0), (150, 228), 2);
    test.counted((7, 0), (228, 331), 9);
    let over = test.finish();
    assert_eq!(
        over,
        [
            "7 at 30: 5 in 101, 0 switches on 0",
            "7 at 130: 3 in 97, 0 switches on 0",
            "7 at 230: 9 in 103, 0 switches on 0",
        ]
    );
}

/// A thread has no interval where it sleeps; each thread has its own, up to its end.
#[test]
fn threads() {
    let mut test = Test::new();
    test.counted((7, 0), (40, 50), 5);
    test.intervals.leaves(Tid(7));
    test.counted((8, 1), (45, 60), 1);
    test.intervals.takes(Tid(7));
    test.counted((7, 1), (700, 710), 6);
    test.ends(7);
    test.ends(7);
    test.counted((8, 1), (60, 120), 1);
    // Before the first interval.
    test.counted((9, 1), (10, 20), 4);
    assert_eq!(
        test.finish(),
        [
            "7 at 40: 5 in 10, 1 switches",
            "7 at 630: 6 in 10, 0 switches on 1",
            "8 at 30: 2 in 75, 0 switches on 1",
            "9 at -70: 4 in 10, 0 switches on 1",
        ]
        .map(|it| it.replace("7 at 40", "7 at 30"))
    );
}

/// The switch-in record is missing: the counts before and after are flagged as incomplete.
#[test]
fn missing_switches() {
    let mut test = Test::new();
    test.counted((7, 0), (40, 50), 5);
    test.intervals.leaves(Tid(7));
    // The thread took the CPU and left it, without counts.
    test.intervals.leaves(Tid(7));
    test.intervals.takes(Tid(7));
    test.counted((7, 0), (140, 150), 5);
    test.intervals.leaves(Tid(7));
    test.counted((7, 0), (240, 250), 5);
    test.counted((7, 0), (340, 350), 5);
    assert_eq!(
        test.finish(),
        [
            "7 at 30: 5 in 10, 2 switches lacks",
            "7 at 130: 5 in 10, 1 switches lacks",
            "7 at 230: 5 in 10, 0 switches on 0 lacks",
            "7 at 330: 5 in 10, 0 switches on 0",
        ]
    );
}

/// The switch-out record is missing: the counts before the next switch-in are flagged as incomplete.
#[test]
fn missing_switch_out() {
    let mut test = Test::new();
    test.counted((7, 0), (40, 50), 5);
    test.intervals.takes(Tid(7));
    test.counted((7, 0), (140, 150), 5);
    assert_eq!(
        test.finish(),
        [
            "7 at 30: 5 in 10, 0 switches on 0 lacks",
            "7 at 130: 5 in 10, 0 switches on 0",
        ]
    );
}

/// All counts of a thread seen from its birth are known; one that never ran has none.
#[test]
fn from_birth_on() {
    let mut test = Test::new();
    let born = |test: &mut Test, tid| test.intervals.born((Pid(1), Tid(tid)), TraceNs(120));
    born(&mut test, 7);
    test.intervals.takes(Tid(7));
    test.counted((7, 0), (140, 150), 5);
    test.ends(7);
    // The thread ran without counts, for part or all of its time.
    born(&mut test, 8);
    test.counted((8, 0), (150, 160), 5);
    test.ends(8);
    born(&mut test, 9);
    test.ends(9);
    born(&mut test, 10);
    assert_eq!(
        test.finish(),
        [
            "7 at 130: 5 in 10, 0 switches on 0",
            "8 at 30: 0 in 0, 0 switches lacks",
            "8 at 130: 5 in 10, 0 switches on 0 lacks",
            "9 at 30: 0 in 0, 0 switches lacks",
        ]
    );
}
