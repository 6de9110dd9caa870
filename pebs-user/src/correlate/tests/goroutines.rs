//! Visits of goroutines.

use super::*;

/// Probe 0 is a Go function, 1 goes from START to END in Go, 2 follows goroutines: begin: a thread takes one up, end: it
/// looks for another, return: the goroutine is over.
fn go() -> ProbeSet {
    let mut probes = probes();
    probes.probes[0].rule = VisitRule::GoCall;
    for n in [1, 2] {
        probes.probes[n].rule = VisitRule::ByGoroutine;
    }
    probes.probes[2].resumes = true;
    probes
}

#[track_caller]
fn check_go(input: &str, expect: &str) {
    same(&run_on(&go(), input), expect);
}

/// A goroutine parks, and goes on on another thread: its time and samples there are the item's, those of the first
/// thread are not any more.
#[test]
fn on_another_thread() {
    check_go(
        "10 7 begin 0 g=5 sp=100
         11 7 sample
         20 7 end 2
         21 7 sample
         22 7 out sleep
         30 8 sample
         32 8 begin 2 id=5
         33 8 sample
         35 8 fault
         36 7 in
         37 7 sample
         40 8 ret 0 g=5 sp=100
         41 8 sample",
        "stray 21
         stray 30
         stray 37
         p0 item 1 tid 7 10..40 samples 11 33 active 10..20 32..40 parked 20..32 1 faults [ended_elsewhere]
         stray 41",
    );
}

/// Two goroutines take turns on a thread within items of the same function, at the same place of their stacks.
#[test]
fn taking_turns() {
    check_go(
        "10 7 begin 0 g=5 sp=100
         20 7 end 2
         21 7 begin 2 id=6
         22 7 begin 0 g=6 sp=100
         23 7 sample
         30 7 end 2
         31 7 begin 2 id=5
         32 7 sample
         34 7 ret 0 g=5 sp=100
         35 7 end 2
         36 7 begin 2 id=6
         40 7 ret 0 g=6 sp=100",
        "p0 item 1 tid 7 10..34 samples 32 active 10..20 31..34 parked 20..31
         p0 item 2 tid 7 22..40 samples 23 active 22..30 36..40 parked 30..36",
    );
}

/// A goroutine that is seen on another thread is there, although the mark that took it up is missing; and one that
/// replaces another on a thread has put that one down.
#[test]
fn missing_marks() {
    check_go(
        "10 7 begin 0 g=5 sp=100
         20 8 ret 0 g=5 sp=100
         30 7 begin 0 g=5 sp=100
         35 7 begin 2 id=6
         36 7 begin 0 g=6 sp=200
         38 7 ret 0 g=6 sp=200
         40 8 begin 2 id=5
         44 8 ret 0 g=5 sp=100",
        "p0 item 1 tid 7 10..20 samples active 10..20 [ended_elsewhere]
         p0 item 3 tid 7 36..38 samples active 36..38
         p0 item 2 tid 7 30..44 samples active 30..35 40..44 parked 35..40 [ended_elsewhere]",
    );
}

/// Nested calls move together; of what they wait for, the innermost waits. A call that a panic has unwound is closed by
/// the return of one outside of it, or by the next call in its place.
#[test]
fn nested_and_unwound() {
    check_go(
        "10 7 begin 0 g=5 sp=200
         12 7 begin 0 g=5 sp=100
         14 7 end 2
         20 8 begin 2 id=5
         22 8 ret 0 g=5 sp=100
         23 8 begin 0 g=5 sp=100
         25 8 begin 0 g=5 sp=100
         30 8 ret 0 g=5 sp=200",
        "p0 item 2 tid 7 12..22 samples active 12..14 20..22 parked 14..20 [overlapped] [ended_elsewhere]
         p0 item 3 tid 8 23..25 samples active 23..25 [overlapped] [unwound]
         p0 item 4 tid 8 25..30 samples active 25..30 [overlapped] [unwound]
         p0 item 1 tid 7 10..30 samples active 10..12 22..23 [overlapped] [ended_elsewhere]",
    );
}

/// Items whose goroutine is over are closed, and so are those that no thread has at the end of the process or of the
/// recording.
#[test]
fn ended() {
    check_go(
        "10 7 begin 0 g=5 sp=200
         12 7 begin 1 g=5 sp=100
         14 7 ret 2 id=5
         15 7 end 2
         20 7 begin 0 g=6 sp=200
         22 7 end 2
         30 7 exit last
         40 8 begin 0 g=5 sp=200
         41 8 end 2
         50 8 sample",
        "p1 item 1 tid 7 12..14 samples active 12..14 [overlapped] [unwound]
         p0 item 1 tid 7 10..14 samples active 10..12 [overlapped] [unwound]
         p0 item 2 tid 7 20..30 samples active 20..22 parked 22..30 [thread_ended]
         stray 50
         p0 item 3 tid 8 40..? samples active 40..41 parked 41..50 [open_at_end]",
    );
}

/// From START to END in one goroutine, whatever the stack; END without START, and marks outside of goroutines.
#[test]
fn from_start_to_end() {
    check_go(
        "10 7 begin 1 g=5 sp=200
         11 7 begin 0 g=5 sp=300
         12 7 ret 0 g=5 sp=300
         13 7 end 2
         15 8 begin 2 id=5
         20 8 end 1 g=5 sp=4000
         21 8 end 1 g=5 sp=200
         22 8 begin 1",
        "p0 item 1 tid 7 11..12 samples active 11..12 [overlapped]
         p1 item 1 tid 7 10..20 samples active 10..11 12..13 15..20 parked 13..15 [overlapped] [ended_elsewhere]
         lost Mark unmatched_mark
         lost Mark unmatched_mark",
    );
}
