//! Writes the counts of visits and intervals: rows of `counts` and `interval_counts`, one per event.

use super::rows::{CountedFrom, Rows};
use crate::correlate::{ClosedVisit, Count, IntervalCounts};
use crate::store::schema::{CountRow, IntervalCountRow, count_state, visit_flag};
use crate::units::EventId;

impl Rows {
    /// Writes the counts of a visit.
    pub(super) fn counts(&mut self, visit: &ClosedVisit<'_>) {
        let mut counters = visit.events.each.iter();
        for n in 0..self.counted.len() {
            let counted = match self.counted[n] {
                CountedFrom::Counter => counters.next().map(|it| (*it, visit.events.incomplete)),
                CountedFrom::Switches => {
                    Some((observed(visit, visit.counts.switches.into()), false))
                }
                CountedFrom::Times => Some((observed(visit, oncpu_ns(visit)), false)),
            };
            let Some((count, incomplete)) = counted else {
                continue;
            };
            let (count, state) = match is_whole(visit) && !incomplete {
                true => (count, state_of(&count)),
                false => (Count::default(), count_state::UNKNOWN),
            };
            let is_known = state != count_state::UNKNOWN;
            let result = self.writer.add(&CountRow {
                visit_id: visit.visit_id,
                item_id: visit.item_id,
                event: EventId(n as u8),
                count: scaled(&count).filter(|_| is_known),
                enabled_ns: is_known.then_some(count.enabled_ns as i64),
                running_ns: is_known.then_some(count.running_ns as i64),
                state,
            });
            self.check(result);
        }
    }

    /// Writes the counts of a thread in an interval; `whole`: no record is missing.
    pub(super) fn interval_counts(&mut self, interval: &IntervalCounts<'_>, whole: bool) {
        let mut counters = interval.events.each.iter();
        for n in 0..self.counted.len() {
            let all_the_time = |events| Count {
                events,
                enabled_ns: interval.oncpu_ns,
                running_ns: interval.oncpu_ns,
            };
            let count = match self.counted[n] {
                CountedFrom::Counter => counters.next().copied(),
                CountedFrom::Switches => Some(all_the_time(interval.switches)),
                CountedFrom::Times => Some(all_the_time(interval.oncpu_ns)),
            };
            let Some(count) = count else {
                continue;
            };
            let result = self.writer.add(&IntervalCountRow {
                pid: interval.pid,
                tid: interval.tid,
                begin_ns: interval.begin,
                event: EventId(n as u8),
                count: scaled(&count).filter(|_| whole),
                enabled_ns: whole.then_some(count.enabled_ns as i64),
                running_ns: whole.then_some(count.running_ns as i64),
                state: if whole {
                    state_of(&count)
                } else {
                    count_state::UNKNOWN
                },
            });
            self.check(result);
        }
    }
}

/// Time on the CPU; 0 if unknown, in which case all counts are.
fn oncpu_ns(visit: &ClosedVisit<'_>) -> u64 {
    visit.oncpu_ns().unwrap_or_default().cast_unsigned()
}

/// A count without a counter, valid for all of the visit's time on the CPU.
fn observed(visit: &ClosedVisit<'_>, events: u64) -> Count {
    let ns = oncpu_ns(visit);
    Count {
        events,
        enabled_ns: ns,
        running_ns: ns,
    }
}

/// Whether the visit's time on the CPU is known and it overlaps no loss.
fn is_whole(visit: &ClosedVisit<'_>) -> bool {
    visit.oncpu_ns().is_some() && visit.flags & visit_flag::LOSS == 0
}

const fn state_of(count: &Count) -> &'static str {
    if count.running_ns >= count.enabled_ns {
        count_state::EXACT
    } else if count.running_ns == 0 {
        count_state::NO_TURN
    } else {
        count_state::SCALED
    }
}

/// Number of events, extrapolated if the counter was multiplexed; `None` if it never ran.
///
/// Assumption: the rate was the same while others ran. 30 events in 1 of 3 ms are 90.
fn scaled(count: &Count) -> Option<u64> {
    let Count {
        events,
        enabled_ns,
        running_ns,
    } = *count;
    if running_ns >= enabled_ns {
        return Some(events);
    }
    let scaled = u128::from(events) * u128::from(enabled_ns);
    let rounded = (scaled + u128::from(running_ns) / 2).checked_div(running_ns.into())?;
    u64::try_from(rounded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A count of all the time is exact; without a turn it is unknown, never 0; else it is scaled, and marked as such.
    #[test]
    fn turns() {
        let count = |events, enabled_ns, running_ns| Count {
            events,
            enabled_ns,
            running_ns,
        };
        let all = [
            (count(7, 100, 100), Some(7), "exact"),
            (count(0, 0, 0), Some(0), "exact"),
            (count(0, 100, 0), None, "no turn"),
            (count(30, 3_000_000, 1_000_000), Some(90), "scaled"),
            (count(1, 3, 2), Some(2), "scaled"),
            (count(u64::MAX, u64::MAX, 1), None, "scaled"),
        ];
        for (count, expect, state) in all {
            assert_eq!((scaled(&count), state_of(&count)), (expect, state));
        }
    }
}
