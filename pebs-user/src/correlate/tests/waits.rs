//! Time off the CPU.

use super::*;

/// Time off the CPU is a wait with its state; it is not active time.
#[test]
fn states() {
    check(
        "10 7 begin 0 sp=100
         20 7 out sleep
         30 7 in
         40 7 out run
         45 7 in cpu=1
         50 7 ret 0 sp=100 cpu=1",
        "p0 item 1 tid 7 10..50 samples active 10..20 30..40 45..50 sleeping 20..30 runnable 40..45 2 switches 1 migrations [migrated] [preempted]",
    );
}

/// Another CPU wakes the thread before its switch is told: the last such wake-up ends the sleep, unless one comes in it.
/// One before a sleep that ended, or before it was preempted, ends none.
#[test]
fn woken_early() {
    check(
        "10 7 begin 0 sp=100
         15 7 woken
         18 7 woken
         20 7 out sleep
         30 7 in
         40 7 out sleep
         45 7 in
         48 7 woken
         50 7 out sleep
         55 7 woken
         60 7 in
         62 7 woken
         65 7 out run
         70 7 in
         80 7 ret 0 sp=100",
        "p0 item 1 tid 7 10..80 samples active 10..20 30..40 45..50 60..65 70..80 sleeping 20..30 woken 20 sleeping 40..45 sleeping 50..60 woken 55 runnable 65..70 4 switches [preempted]",
    );
}

/// A visit that ends elsewhere while its thread sleeps keeps the wait up to its end.
#[test]
fn ends_while_asleep() {
    check(
        "10 7 begin 2 id=5
         20 7 out sleep
         30 8 end 2 id=5
         40 7 in
         50 7 begin 2 id=6
         60 7 end 2 id=6",
        "p2 item 5 tid 7 10..30 samples active 10..20 sleeping 20..30 1 switches [ended_elsewhere]
         p2 item 6 tid 7 50..60 samples active 50..60",
    );
}
