//! The bits of the columns `flags`, and their names.

use super::descriptions::Described;

/// Declares the bits of a column: a module with a constant for each, and their names and words, lowest bit first.
macro_rules! flags {
    ($(#[doc = $about:literal])+ $module:ident {
        $($(#[doc = $words:literal])+ $flag:ident = $bit:literal, $name:literal,)+
    }) => {
        $(#[doc = $about])+
        pub mod $module {
            use super::Described;

            $($(#[doc = $words])+ pub const $flag: u32 = 1 << $bit;)+

            /// Description of each, lowest first.
            pub const ALL: &[Described] = &[
                $(Described { name: $name, words: concat!($($words, "\n"),+) },)+
            ];

            /// Names of the bits, lowest first, as reports and `trace.json` show them.
            pub const NAMES: [&str; ALL.len()] = [$($name),+];

            // A name's place is its bit.
            const _: () = {
                let (mut place, bits) = (0, [$($bit),+]);
                while place < bits.len() {
                    assert!(bits[place] == place);
                    place += 1;
                }
            };

            /// Name of a flag.
            #[must_use]
            pub const fn name(flag: u32) -> &'static str {
                NAMES[flag.trailing_zeros() as usize]
            }
        }
    };
}
flags! {
    /// Bits of `visits.flags`.
    visit_flag {
        /// Another item was open on the thread during the visit.
        OVERLAPPED = 0, "overlapped",
        /// The visit's function never returned: its frame is gone (exception, longjmp, coroutine switch), and `end_ns` is the
        /// first instant at which that was seen.
        UNWOUND = 1, "unwound",
        /// The end mark never came; the visit was closed by the next begin of the same probe on its
        /// thread or with its id.
        END_MISSING = 2, "end_missing",
        /// The trace ended while the visit was open: `end_ns` is null.
        OPEN_AT_END = 3, "open_at_end",
        /// The thread or process ended, or replaced its program, during the visit.
        THREAD_ENDED = 4, "thread_ended",
        /// The visit overlaps a loss: left out of statistics unless asked for.
        LOSS = 5, "loss",
        /// The thread changed CPU during the visit.
        MIGRATED = 6, "migrated",
        /// The thread was taken off the CPU while it could have run.
        PREEMPTED = 7, "preempted",
        /// The end mark came from another thread.
        ENDED_ELSEWHERE = 8, "ended_elsewhere",
        /// The kernel throttled sampling during the visit.
        THROTTLED = 9, "throttled",
        /// The details were not kept (`--keep`): the visit is in `function_stats`, but has no rows in
        /// `visit_functions`, `samples` and `waits`.
        CONDENSED = 10, "condensed",
        /// No marks were made: begin and end lie half way between a sample with the item's id and one with
        /// another (where the thread slept in between, there), each wrong by a standard deviation of the
        /// distance to the nearest sample, divided by the square root of 3.
        SAMPLED_BOUNDS = 11, "sampled_bounds",
        /// The visit served the items of its rows in `batch_items` together: each has an equal share of its time, samples and
        /// waits. `item_id` is the batch's number.
        SHARED = 12, "shared",
        /// Not all ids of a [`SHARED`] visit's items are known: there are more than are read, or they could not be read.
        IDS_MISSING = 13, "ids_missing",
        /// Part of its time belongs to no single item, as several were open and no mark says which one the thread worked
        /// on (`--resume`): its time on the CPU and its waits are not all known.
        TIME_SHARED = 14, "time_shared",
        /// Marks made begin and end. At which item a thread was between them is known from samples with its id: each of its
        /// turns begins and ends half way between a sample with the id and one with another.
        SAMPLED_TURNS = 15, "sampled_turns",
    }
}

flags! {
    /// Bits of `samples.flags`.
    sample_flag {
        /// The hardware reports that the ip is exact.
        EXACT_IP = 0, "exact_ip",
        /// Taken in kernel mode.
        KERNEL = 1, "kernel",
        /// Closer to a boundary of its visit than the clock error.
        NEAR_BOUNDARY = 2, "near_boundary",
    }
}
