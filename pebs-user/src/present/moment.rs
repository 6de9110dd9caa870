//! Instants of a recording as times of the day.

use chrono::{DateTime, Local, TimeZone as _};

use crate::store::run::RunInfo;

/// The local time of an instant, with its date, to the millisecond; `None` if the recording's time of day is unknown.
pub(crate) fn local(ns: i64, run: &RunInfo) -> Option<String> {
    at(ns, run).map(|it| it.format("%Y-%m-%d %H:%M:%S%.3f").to_string())
}

/// The same without the date.
pub(crate) fn time_of_day(ns: i64, run: &RunInfo) -> Option<String> {
    at(ns, run).map(|it| it.format("%H:%M:%S%.3f").to_string())
}

/// Local time of the day with its date, of a time in ns since 1970, to the second.
pub(crate) fn wall_clock(ns: i64) -> String {
    let at = Local.timestamp_nanos(ns);
    at.format("%Y-%m-%d %H:%M:%S").to_string()
}

fn at(ns: i64, run: &RunInfo) -> Option<DateTime<Local>> {
    run.wall_clock_is_known()
        .then(|| Local.timestamp_nanos(run.wall_clock_ns.saturating_add(ns)))
}
