//! The value to be explained: duration of a row, or instructions per cycle.

use crate::series::{Event, Series};

/// Values to explain, one a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Name of the event, or `IPC`.
    pub name: String,
    /// One value a row; NaN: missing.
    pub values: Vec<f64>,
    /// Whether a lower value is the bad one.
    pub low_is_bad: bool,
}

/// There is nothing to explain.
#[derive(Debug, thiserror::Error)]
pub enum OutcomeError {
    /// A name that no event has.
    #[error("no column '{name}' to explain")]
    Unknown {
        /// Name that was asked for.
        name: String,
        /// Available names.
        names: Vec<String>,
    },
    /// No column is clearly the outcome.
    #[error("no column says how long a row took")]
    NotClear {
        /// Available names.
        names: Vec<String>,
    },
}

impl OutcomeError {
    /// Advice to the user.
    #[must_use]
    pub fn hint(&self) -> String {
        let (Self::Unknown { names, .. } | Self::NotClear { names }) = self;
        let shown: Vec<&str> = names.iter().map(String::as_str).take(12).collect();
        let more = if names.len() > shown.len() {
            ", .."
        } else {
            ""
        };
        format!(
            "--explain NAME names it; there are {}{more}",
            shown.join(", ")
        )
    }
}

/// Names of events and columns that hold a duration, the most specific first.
const DURATIONS: [&str; 11] = [
    "duration",
    "duration_ns",
    "net_ns",
    "oncpu_ns",
    "latency",
    "latency_ns",
    "elapsed",
    "time",
    "duration_time",
    "task-clock",
    "cpu-clock",
];

/// The ratio that is explained if both of its events were counted in intervals of equal length.
const IPC: &str = "IPC";

/// The part of a name before its modifiers: `cycles` of `cycles:u`.
fn base(name: &str) -> &str {
    name.split([':', ' ']).next().unwrap_or(name)
}

fn is_cycles(name: &str) -> bool {
    ["cycles", "cpu-cycles"].contains(&base(name))
}

/// Whether any row has a value.
fn is_known(values: &[f64]) -> bool {
    values.iter().any(|it| it.is_finite())
}

/// Takes the outcome out of the series: the event `asked` for, else IPC, else a duration; of these two what was counted
/// in any row.
///
/// # Errors
/// If there is no such event.
pub fn take(series: &mut Series, asked: Option<&str>) -> Result<Outcome, OutcomeError> {
    let names = || series.events.iter().map(|it| it.name.clone()).collect();
    let instructions = series
        .events
        .iter()
        .position(|it| base(&it.name) == "instructions");
    let cycles = series.events.iter().position(|it| is_cycles(&it.name));
    let wants_ipc = asked.is_none_or(|it| it.eq_ignore_ascii_case(IPC));
    if let (true, Some(instructions), Some(cycles)) = (wants_ipc, instructions, cycles) {
        let ratio = series.events[instructions]
            .counts
            .iter()
            .zip(&series.events[cycles].counts);
        let values = ratio.map(|(done, cycles)| {
            if *cycles > 0.0 {
                done / cycles
            } else {
                f64::NAN
            }
        });
        let values: Vec<f64> = values.collect();
        if asked.is_some() || is_known(&values) {
            series
                .events
                .retain(|it| base(&it.name) != "instructions" && !is_cycles(&it.name));
            return Ok(Outcome {
                name: IPC.to_owned(),
                values,
                low_is_bad: true,
            });
        }
    }
    let at = match asked {
        Some(name) => series.find(name).ok_or_else(|| OutcomeError::Unknown {
            name: name.to_owned(),
            names: names(),
        })?,
        None => DURATIONS
            .iter()
            .find_map(|name| {
                series.events.iter().position(|it| {
                    base(&it.name).eq_ignore_ascii_case(name) && is_known(&it.counts)
                })
            })
            .ok_or_else(|| OutcomeError::NotClear { names: names() })?,
    };
    let Event { name, counts, .. } = series.events.remove(at);
    Ok(Outcome {
        name,
        values: counts,
        low_is_bad: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(names: &[&str]) -> Series {
        let events = names.iter().enumerate().map(|(at, name)| Event {
            name: (*name).to_owned(),
            counts: vec![at as f64, 2.0],
            running: Vec::new(),
        });
        Series::of(events.collect())
    }

    /// IPC where both its events are counted, else a duration, else the event asked for; events that IPC is computed
    /// from are removed.
    #[test]
    fn taken() {
        let mut counted = series(&["cycles:u", "instructions:u", "faults"]);
        let outcome = take(&mut counted, None).unwrap();
        assert_eq!((outcome.name.as_str(), outcome.values[1]), ("IPC", 1.0));
        assert!(outcome.values[0].is_nan() && outcome.low_is_bad);
        assert_eq!(counted.events.len(), 1);
        let mut items = series(&["faults", "Duration", "x"]);
        assert_eq!(take(&mut items, None).unwrap().name, "Duration");
        assert_eq!(take(&mut items, Some("x")).unwrap().name, "x");
        let error = take(&mut items, Some("y")).unwrap_err();
        assert!(error.hint().contains("faults"));
        assert!(matches!(
            take(&mut items, None),
            Err(OutcomeError::NotClear { .. })
        ));
    }

    /// A column without a count in any row (a machine without a PMU) is not an outcome, unless it is asked for.
    #[test]
    fn not_counted() {
        let uncounted = || {
            let mut counted = series(&["cycles", "instructions", "time", "task-clock"]);
            for event in &mut counted.events[..3] {
                event.counts = vec![f64::NAN; 2];
            }
            counted
        };
        assert_eq!(take(&mut uncounted(), None).unwrap().name, "task-clock");
        assert_eq!(take(&mut uncounted(), Some("ipc")).unwrap().name, "IPC");
    }
}
