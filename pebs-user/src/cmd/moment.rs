//! A moment of the day as a user types it, in a recording.

use std::ops::Range;

use chrono::{
    DateTime, Days, Local, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, TimeZone as _,
};

use crate::failure::{Failure, Result};
use crate::present::moment::local;
use crate::store::reader::Trace;
use crate::store::run::RunInfo;

/// The time that a typed moment means, ns since the begin of the recording: as long as its last unit, from `12:04` a minute,
/// from `12:04:31` a second, from `12:04:31.5` a tenth of one.
///
/// `HH:MM[:SS[.F]]` is local time on a day of the recording, `YYYY-MM-DD HH:MM[:SS[.F]]` local time, and with `Z` or
/// `+02:00` behind it of another zone; `+SECONDS` counts from the begin.
///
/// # Errors
/// It is no time, or lies outside of the recording.
pub(super) fn range(typed: &str, run: &RunInfo) -> Result<Range<i64>> {
    inside(typed, read(typed, run)?, run)
}

/// The same for a time that may lie outside of the recording.
fn read(typed: &str, run: &RunInfo) -> Result<Range<i64>> {
    let length_ns = run.duration_ns.unwrap_or(i64::MAX);
    if let Some(seconds) = typed.strip_prefix('+') {
        let number: f64 = seconds.parse().map_err(|_| not_a_time(typed))?;
        let from = (number * 1e9) as i64;
        return Ok(from..from.saturating_add(unit_ns(seconds, 1_000_000_000)));
    }
    if !run.wall_clock_is_known() {
        return Err(Failure::new(
            format!("cannot find {typed}: the time of day of this recording is unknown"),
            "give the time since its begin: --at +1.5".to_owned(),
        ));
    }
    let text = typed.replacen('T', " ", 1);
    let unit = match text.matches(':').count() {
        _ if text.ends_with('Z') || zone_of(&text).is_some() => {
            unit_ns(clock_of(&text), 1_000_000_000)
        }
        1 => 60_000_000_000,
        _ => unit_ns(&text, 1_000_000_000),
    };
    let begin = Local.timestamp_nanos(run.wall_clock_ns);
    if let Some(at) = absolute(&text) {
        let from = at.checked_sub(run.wall_clock_ns);
        let from = from.ok_or_else(|| not_a_time(typed))?;
        return Ok(from..from.saturating_add(unit));
    }
    let time = clock_time(&text).ok_or_else(|| not_a_time(typed))?;
    // The first day of the recording on which it lies in it.
    let days = TimeDelta::nanoseconds(length_ns).num_days().clamp(0, 366) as u64 + 1;
    let first = begin.date_naive();
    let on = |day: NaiveDate| {
        let at = day.and_time(time).and_local_timezone(Local).earliest()?;
        at.timestamp_nanos_opt()?.checked_sub(run.wall_clock_ns)
    };
    let on_days = (0..=days).filter_map(|day| on(first.checked_add_days(Days::new(day))?));
    let ranges: Vec<Range<i64>> = on_days
        .map(|from| from..from.saturating_add(unit))
        .collect();
    let found = ranges.iter().find(|it| is_inside(it, length_ns));
    let found = found.or(ranges.first()).cloned();
    found.ok_or_else(|| not_a_time(typed))
}

/// A moment with its date, ns since 1970: of many recordings none is the one whose day is meant.
///
/// # Errors
/// It is no time, or has no date.
pub(super) fn wall_clock(typed: &str) -> Result<i64> {
    absolute(&typed.replacen('T', " ", 1)).ok_or_else(|| {
        Failure::new(
            format!("cannot read the time '{typed}'"),
            "write it with its date: '2026-11-29 12:04', or 2026-11-29T12:04:31Z",
        )
    })
}

/// A date and time, ns since 1970.
fn absolute(text: &str) -> Option<i64> {
    if let Ok(zoned) = DateTime::parse_from_rfc3339(&text.replacen(' ', "T", 1)) {
        return zoned.timestamp_nanos_opt();
    }
    let at = date_and_time(text)?.and_local_timezone(Local).earliest();
    at?.timestamp_nanos_opt()
}

/// A part of a recording, by the time of the day or since its begin.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct PeriodArgs {
    /// Only items that began at this time or later
    ///
    /// 12:04:31 (or 12:04, 12:04:31.5) is local time, '2026-11-29 12:04:31' has a date, 2026-11-29T12:04:31Z a zone; +1.5 is
    /// the time since the begin of the recording, s.
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,

    /// Only items that began before this time
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
}

impl PeriodArgs {
    /// Whether it is a part of the recording.
    pub(super) const fn is_given(&self) -> bool {
        self.since.is_some() || self.until.is_some()
    }

    /// Has only the items of the period read.
    ///
    /// # Errors
    /// A time can't be read, or no item is left.
    pub(super) fn apply(&self, trace: &mut Trace) -> Result<()> {
        if !self.is_given() {
            return Ok(());
        }
        if trace.info.keep.is_some() {
            return Err(Failure::new(
                "cannot look at a part of a trace that was recorded with --keep: it has sums over all items",
                "leave --since and --until out",
            ));
        }
        let begin = |typed: &Option<String>, otherwise: i64| match typed {
            Some(typed) => read(typed, &trace.info).map(|it| it.start),
            None => Ok(otherwise),
        };
        let period = begin(&self.since, i64::MIN)?..begin(&self.until, i64::MAX)?;
        if trace.only(period)? == 0 {
            let end = trace.info.duration_ns;
            let ends = [Some(0), end].map(|ns| ns.and_then(|ns| local(ns, &trace.info)));
            return Err(Failure::new(
                format!("no item of {} began in this time", trace.dir.display()),
                match ends {
                    [Some(begin), Some(end)] => format!("it is from {begin} to {end}"),
                    _ => "--since is the earlier one, --until the later one".to_owned(),
                },
            ));
        }
        Ok(())
    }
}

/// Length of a number's last decimal place, in ns, where its whole unit has this many.
fn unit_ns(text: &str, whole: i64) -> i64 {
    let places = text.rsplit_once('.').map_or(0, |(_, places)| places.len());
    let tenth = |unit: i64, _| unit / 10;
    (0..places).fold(whole, tenth).max(1)
}

/// The zone behind a time, `+02:00`.
fn zone_of(text: &str) -> Option<&str> {
    let (_, time) = text.split_once(' ')?;
    let at = time.find(['+', '-'])?;
    time.get(at..)
}

/// A date and time without its zone.
fn clock_of(text: &str) -> &str {
    let without = text.strip_suffix('Z').unwrap_or(text);
    zone_of(text).map_or(without, |zone| text.strip_suffix(zone).unwrap_or(text))
}

fn date_and_time(text: &str) -> Option<NaiveDateTime> {
    let (date, time) = text.split_once(' ')?;
    let date = NaiveDate::parse_from_str(date, "%Y-%m-%d").ok()?;
    Some(date.and_time(clock_time(time)?))
}

fn clock_time(text: &str) -> Option<NaiveTime> {
    let forms = ["%H:%M:%S%.f", "%H:%M"];
    forms
        .iter()
        .find_map(|form| NaiveTime::parse_from_str(text, form).ok())
}

fn is_inside(range: &Range<i64>, length_ns: i64) -> bool {
    range.end > 0 && range.start <= length_ns
}

fn inside(typed: &str, range: Range<i64>, run: &RunInfo) -> Result<Range<i64>> {
    let length_ns = run.duration_ns.unwrap_or(i64::MAX);
    if is_inside(&range, length_ns) {
        return Ok(range);
    }
    let ends = [Some(0), run.duration_ns].map(|ns| ns.and_then(|ns| local(ns, run)));
    let hint = match ends {
        [Some(begin), Some(end)] => format!("it is from {begin} to {end}"),
        [Some(begin), None] => format!("it begins at {begin}"),
        _ => "'pebs-trace info' says how long it is".to_owned(),
    };
    Err(Failure::new(
        format!("{typed} is not in the recording"),
        hint,
    ))
}

fn not_a_time(typed: &str) -> Failure {
    Failure::new(
        format!("cannot read the time '{typed}'"),
        "write 12:04:31, 12:04, '2026-11-29 12:04:31.5', 2026-11-29T12:04:31Z, or +1.5 (seconds since the begin)"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fixtures::Did::Ran;
    use crate::store::fixtures::{Maker, VisitFixture, info};

    /// A recording of 20 s that begins at 12:04:30.25 local time.
    fn run() -> RunInfo {
        let at = NaiveDate::from_ymd_opt(2026, 11, 29)
            .and_then(|it| it.and_hms_milli_opt(12, 4, 30, 250))
            .and_then(|it| it.and_local_timezone(Local).earliest());
        RunInfo {
            wall_clock_ns: at.and_then(|it| it.timestamp_nanos_opt()).unwrap(),
            duration_ns: Some(20_000_000_000),
            ..RunInfo::default()
        }
    }

    /// Each form, and how long its last unit is.
    #[test]
    fn forms() {
        let of = |typed: &str| range(typed, &run()).unwrap();
        const MS: i64 = 1_000_000;
        assert_eq!(of("12:04:31"), 750 * MS..1_750 * MS);
        assert_eq!(of("12:04:31.5"), 1_250 * MS..1_350 * MS);
        assert_eq!(of("12:04"), -30_250 * MS..29_750 * MS);
        assert_eq!(of("2026-11-29 12:04:31"), 750 * MS..1_750 * MS);
        assert_eq!(of("2026-11-29T12:04:31.25"), 1_000 * MS..1_010 * MS);
        assert_eq!(of("+1.5"), 1_500 * MS..1_600 * MS);
        assert_eq!(of("+3"), 3_000 * MS..4_000 * MS);
        let begin = DateTime::from_timestamp_nanos(run().wall_clock_ns + 1_000 * MS);
        let zulu = begin.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
        assert_eq!(of(&zulu), 1_000 * MS..1_001 * MS);
        assert_eq!(local(0, &run()).unwrap(), "2026-11-29 12:04:30.250");
    }

    /// The items of a period are reported; one without an item is refused with the recording's times.
    #[test]
    fn periods() {
        let mut maker = Maker::new(RunInfo {
            wall_clock_ns: run().wall_clock_ns,
            ..info(&["app:f"])
        });
        for second in 0..20 {
            let made = VisitFixture::new(second, "k", &[Ran(0, 1_000)]);
            maker.at(second as i64 * 1_000_000_000, &made);
        }
        let made = maker.finish(&[]);
        let of = |since: Option<&str>, until: Option<&str>| {
            let period = PeriodArgs {
                since: since.map(str::to_owned),
                until: until.map(str::to_owned),
            };
            let mut trace = Trace::open(&made.dir).unwrap();
            period.apply(&mut trace).map(|()| trace.within())
        };
        assert_eq!(of(None, None).unwrap(), None);
        let [from, to] = of(Some("12:04:32"), Some("12:04:35")).unwrap().unwrap();
        assert_eq!((from, to), (1_750_000_000, 4_750_000_000));
        assert_eq!(of(Some("+19"), None).unwrap().unwrap()[0], 19_000_000_000);
        let error = of(Some("12:06"), Some("12:07")).unwrap_err();
        assert!(error.hint().unwrap().contains("12:04:30.250"), "{error}");
        assert!(of(Some("+5"), Some("+5")).is_err());
    }

    /// Faults are reported with what is right.
    #[test]
    fn faults() {
        let of = |typed: &str| range(typed, &run()).unwrap_err();
        assert!(of("12:05:31").hint().unwrap().contains("12:04:50.250"));
        assert!(of("2025-11-29 12:04:31").to_string().contains("not in"));
        for typed in ["noon", "25:00", "+x", "12:04:61", ""] {
            assert!(of(typed).to_string().contains("cannot read"), "{typed}");
        }
        let over_midnight = RunInfo {
            duration_ns: Some(24 * 3_600_000_000_000),
            ..run()
        };
        assert!(range("03:00:00", &over_midnight).is_ok());
    }
}
