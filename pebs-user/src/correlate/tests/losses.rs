//! Visits that overlap a loss.

use super::*;

/// Visits that overlap a loss are flagged, others are not; nor are those of other threads if the loss is of one thread.
#[test]
fn losses() {
    check(
        "10 7 begin 0 sp=100
         20 7 ret 0 sp=100
         30 loss 25
         40 7 begin 0 sp=100
         50 7 ret 0 sp=100
         60 7 begin 0 sp=100
         60 8 begin 0 sp=100
         70 loss 65 tid=7
         80 7 ret 0 sp=100
         80 8 ret 0 sp=100",
        "p0 item 1 tid 7 10..20 samples active 10..20
         p0 item 2 tid 7 40..50 samples active 40..50
         p0 item 3 tid 7 60..80 samples active 60..80 [loss]
         p0 item 4 tid 8 60..80 samples active 60..80",
    );
}

/// A loss on one CPU doesn't flag visits whose thread stayed on another; a thread that left its CPU may have been
/// anywhere, and so may marks with ids.
#[test]
fn losses_of_a_cpu() {
    check(
        "10 7 begin 0 sp=100
         10 8 begin 0 sp=100 cpu=1
         10 9 begin 0 sp=100 cpu=1
         10 6 begin 0 sp=100 cpu=1
         10 5 begin 2 id=1 cpu=1
         20 9 out sleep cpu=1
         25 loss 15 cpu=0
         30 9 in cpu=1
         30 6 begin 0 sp=90 cpu=1
         40 6 ret 0 sp=90 cpu=1
         40 7 ret 0 sp=100
         40 8 ret 0 sp=100 cpu=1
         40 9 ret 0 sp=100 cpu=1
         50 6 ret 0 sp=100 cpu=1
         50 5 end 2 id=1 cpu=1
         60 8 begin 0 sp=100 cpu=1
         65 loss 61 cpu=0
         70 8 ret 0 sp=100 cpu=0",
        "p0 item 5 tid 6 30..40 samples active 30..40 [overlapped]
         p0 item 1 tid 7 10..40 samples active 10..40 [loss]
         p0 item 2 tid 8 10..40 samples active 10..40
         p0 item 3 tid 9 10..40 samples active 10..20 30..40 sleeping 20..30 1 switches [loss]
         p0 item 4 tid 6 10..50 samples active 10..30 40..50 [overlapped] [loss]
         p2 item 1 tid 5 10..50 samples active 10..50 [loss]
         p0 item 6 tid 8 60..70 samples active 60..70 1 migrations [loss] [migrated]",
    );
}
