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

/// Another CPU can wake the thread before its switch is recorded: the last such wake-up ends the sleep, unless one
/// comes during it. An earlier wake-up, before a finished sleep or a preemption, ends none.
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

/// If the switch-in event is missing, a wait ends at the thread's next record, and that is counted; not where a clock
/// error puts the switch behind a sample, nor outside of visits.
#[test]
fn missing_switch_in() {
    check(
        "10 7 begin 0 sp=100
         20 7 out sleep
         30 7 sample sp=90
         31 7 in
         40 7 out sleep
         50 7 sample sp=90
         60 7 out run
         70 7 out sleep
         75 7 in
         80 7 ret 0 sp=100
         81 7 out sleep
         85 7 begin 0 sp=100
         90 7 ret 0 sp=100
         95 7 out sleep",
        "p0 item 1 tid 7 10..80 samples 30 50 active 10..20 30..40 50..60 75..80 sleeping 20..30 sleeping 40..50 runnable 60..70 sleeping 70..75 4 switches [preempted]
         p0 item 2 tid 7 85..90 samples active 85..90
         missing switch-ins 2",
    );
}
