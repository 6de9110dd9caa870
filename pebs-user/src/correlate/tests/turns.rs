//! Several items open at the same time on one thread.

use super::*;

/// Probes 4 (by its call), 5 (up to its own end mark) and 7 (up to the next mark) make resume marks.
pub(super) fn resuming() -> ProbeSet {
    let mut probes = probes();
    for n in [4, 5, 7] {
        probes.probes[n].resumes = true;
    }
    probes
}

#[track_caller]
fn check_resuming(input: &str, expect: &str) {
    same(&run_on(&resuming(), input), expect);
}

/// Without resume marks, the time, samples and sleep of a thread with two open items belong to neither.
#[test]
fn shared() {
    check(
        "10 7 begin 2 id=5
         11 7 sample
         20 7 begin 2 id=6
         21 7 sample
         22 7 out sleep
         28 7 in
         30 7 end 2 id=5
         31 7 sample
         40 7 end 2 id=6
         41 7 sample",
        "stray 21
         p2 item 5 tid 7 10..30 samples 11 active 10..20 shared 4 idle 6 [overlapped] [time_shared]
         p2 item 6 tid 7 20..40 samples 31 active 30..40 shared 4 idle 6 [overlapped] [time_shared]
         stray 41
         shared samples 1",
    );
}

/// A stage's time is its own, whatever items are open; time that was shared before an item began is not counted for it.
#[test]
fn stages_in_shared_time() {
    check(
        "10 7 begin 2 id=5
         20 7 begin 2 id=6
         22 7 begin 0 id=5 sp=100
         23 7 sample sp=90
         25 7 ret 0 sp=100
         26 7 end 2 id=5
         30 7 begin 2 id=7
         34 7 end 2 id=7
         40 7 end 2 id=6",
        "p0 item 5 tid 7 22..25 samples 23 active 22..25 [overlapped]
         p2 item 5 tid 7 10..26 samples active 10..20 shared 3 [overlapped] [time_shared]
         p2 item 7 tid 7 30..34 samples active shared 4 [overlapped] [time_shared]
         p2 item 6 tid 7 20..40 samples active 26..30 34..40 shared 7 [overlapped] [time_shared]",
    );
}

/// Between the call that resumes an item and its return the thread's time is that item's; otherwise it is the loop's.
#[test]
fn resumed_by_calls() {
    check_resuming(
        "10 7 begin 2 id=5
         12 7 begin 2 id=6
         14 7 begin 4 id=5 sp=100
         15 7 sample sp=90
         16 7 out sleep
         18 7 in
         20 7 ret 4 sp=100
         21 7 sample sp=110
         22 7 out sleep
         28 7 in
         30 7 begin 4 id=6 sp=100
         31 7 sample sp=90
         35 7 end 2 id=6
         36 7 sample sp=90
         37 7 ret 4 sp=100
         40 7 begin 4 id=5 sp=100
         42 7 end 2 id=5
         43 7 ret 4 sp=100",
        "stray 21
         p2 item 6 tid 7 12..35 samples 31 active 12..14 30..35 shared 4 idle 8 [overlapped]
         stray 36
         p2 item 5 tid 7 10..42 samples 15 active 10..12 14..16 18..20 40..42 sleeping 16..18 1 switches shared 7 idle 6 [overlapped]
         shared samples 1",
    );
}

/// An item that begins within the resuming call of its id is the current one.
#[test]
fn begins_while_resumed() {
    check_resuming(
        "10 7 begin 4 id=5 sp=100
         11 7 sample sp=90
         12 7 begin 2 id=5
         13 7 sample sp=90
         20 7 ret 4 sp=100
         21 7 sample
         30 7 begin 4 id=5 sp=100
         40 7 end 2 id=5
         41 7 ret 4 sp=100",
        "stray 11
         stray 21
         p2 item 5 tid 7 12..40 samples 13 active 12..20 30..40 shared 10
         shared samples 1",
    );
}

/// A resume without an end, or a begin, lasts until the thread's next mark or sleep.
#[test]
fn resumed_until_the_next() {
    check_resuming(
        "10 7 begin 2 id=5
         11 7 out sleep
         12 7 in
         13 7 begin 2 id=6
         14 7 next 7 id=5
         15 7 sample
         16 7 next 7 id=6
         17 7 out run
         18 7 in
         19 7 out sleep
         20 7 in
         21 7 sample
         22 7 next 7 id=5
         25 7 end 2 id=5
         26 7 next 7 id=6
         27 7 end 2 id=6",
        "stray 21
         p2 item 5 tid 7 10..25 samples 15 active 10..11 14..16 22..25 shared 3 idle 2 [overlapped] [preempted]
         p2 item 6 tid 7 13..27 samples active 13..14 16..17 18..19 26..27 runnable 17..18 1 switches shared 2 idle 1 [overlapped] [preempted]
         shared samples 1",
    );
}

/// Nested resumes: the return of the inner one gives the thread back. A resume whose frame a sample finds gone has
/// ended.
#[test]
fn resumes_within_resumes() {
    check_resuming(
        "10 7 begin 2 id=5
         11 7 begin 2 id=6
         20 7 begin 4 id=5 sp=100
         22 7 begin 4 id=6 sp=80
         24 7 ret 4 sp=80
         26 7 begin 4 id=6 sp=80
         27 7 sample sp=95
         30 7 begin 5 id=6
         32 7 begin 0 id=6 sp=60
         34 7 ret 0 sp=60
         36 7 end 5
         38 7 sample sp=120
         40 7 end 2 id=5
         41 7 end 2 id=6",
        "p0 item 6 tid 7 32..34 samples active 32..34 [overlapped]
         stray 38
         p2 item 5 tid 7 10..40 samples 27 active 10..11 20..22 24..26 27..30 36..38 shared 2 [overlapped]
         p2 item 6 tid 7 11..41 samples active 11..20 22..24 26..27 30..32 34..36 shared 3 [overlapped]
         shared samples 1",
    );
}

/// An item that another thread resumes: its time there is unknown.
#[test]
fn resumed_elsewhere() {
    check_resuming(
        "10 7 begin 2 id=5
         20 8 begin 4 id=5 sp=100
         21 8 sample sp=90
         25 8 ret 4 sp=100
         30 7 end 2 id=5",
        "stray 21
         p2 item 5 tid 7 10..30 samples active 10..30 [time_shared]
         elsewhere 1",
    );
}
