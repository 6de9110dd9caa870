//! Items with marks, whose turns samples show.

use super::*;
use crate::probe::item::{Context, Typed, resolve};

fn marked() -> ProbeSet {
    let by_id = |n: u16| Probe {
        id: ProbeId(n),
        ..Probe::without_sites(String::new(), VisitRule::ById)
    };
    ProbeSet {
        probes: vec![by_id(0), by_id(1)],
        item: Some(resolve(Typed::Reg("r13"), &Context::default()).unwrap()),
        ..ProbeSet::default()
    }
}

#[track_caller]
fn check(input: &str, expect: &str) {
    same(&run_on(&marked(), input), expect);
}

/// Marks give begin and end; between them a thread is at the item whose id its samples have, each turn up to half way to the
/// next one's samples, or to a mark that lies there. Samples with the id of an item that is not open are of none.
#[test]
fn turns_between_marks() {
    check(
        "10 7 begin 0 id=1
         12 7 sample id=1
         20 7 begin 0 id=2
         22 7 sample id=2
         32 7 sample id=1
         38 7 end 0 id=1
         42 7 sample id=2
         50 7 end 0 id=2
         52 7 sample id=2
         60 7 sample id=0",
        "stray 52
         stray 60
         p0 item 1 tid 7 10..38 samples 12 32 active 12..20 27..38 [sampled_turns]
         p0 item 2 tid 7 20..50 samples 22 42 active 20..27 40..50 [sampled_turns]",
    );
}

/// An item goes on on another thread, with its waits; its end may be there, and what its last thread did next is seen later.
#[test]
fn on_other_threads() {
    check(
        "10 7 begin 0 id=1
         12 7 sample id=1
         16 7 out run
         18 7 in
         20 7 sample id=1
         24 8 sample id=0
         30 7 sample id=3
         34 8 sample id=1
         40 8 end 0 id=1
         50 8 sample id=0",
        "stray 24
         stray 50
         stray 30
         p0 item 1 tid 7 10..40 samples 12 20 34 active 12..16 18..25 29..40 runnable 16..18 1 switches [preempted] [ended_elsewhere] [sampled_turns]",
    );
}

/// A sleep between two items is in neither. An id that is used again is another item: a run that goes on is cut at the marks.
#[test]
fn sleep_and_next_item_of_the_id() {
    check(
        "10 7 begin 0 id=1
         12 7 sample id=1
         14 7 out sleep
         40 7 in
         42 7 sample id=2
         44 7 end 0 id=1
         46 7 begin 0 id=1
         50 7 sample id=1
         56 7 end 0 id=1
         58 7 begin 0 id=1
         60 7 sample id=1
         70 7 sample id=1
         74 7 begin 0 id=1
         80 7 exit last",
        "stray 42
         p0 item 1 tid 7 10..44 samples 12 active 12..14 [sampled_turns]
         p0 item 1 tid 7 46..56 samples 50 active 46..56 [sampled_turns]
         p0 item 1 tid 7 58..74 samples 60 70 active 58..74 [end_missing] [sampled_turns]
         p0 item 1 tid 7 74..80 samples active 74..80 [thread_ended] [sampled_turns]",
    );
}

/// Of two open items with one id, the turns are of the one that began last. Turns whose estimated ends overlap are cut half
/// way; samples of two threads at a time are of one turn only, and the item's time is not all known.
#[test]
fn not_both() {
    check(
        "10 7 begin 0 id=1
         20 7 begin 1 id=1
         22 7 sample id=1
         30 7 end 1 id=1
         34 7 sample id=1
         35 8 sample id=1
         36 7 sample id=1
         50 7 end 0 id=1
         60 7 sample id=0
         60 8 sample id=0",
        "stray 60
         stray 35
         stray 60
         p0 item 1 tid 7 10..50 samples 34 36 active 30..50 [time_shared] [sampled_turns]
         p1 item 1 tid 7 20..30 samples 22 active 22..30 [sampled_turns]",
    );
}

/// Without an end the item is open at the end of the trace; a mark without an id, or an end without a begin, is lost.
#[test]
fn without_an_end() {
    check(
        "5 7 end 0 id=9
         10 7 begin 0 id=1
         12 7 sample id=1
         20 7 sample id=1
         22 7 begin 0
         30 7 sample id=0",
        "lost Mark began_before
         lost Mark unmatched_mark
         stray 30
         p0 item 1 tid 7 10..? samples 12 20 active 12..25 [open_at_end] [sampled_turns]",
    );
}
