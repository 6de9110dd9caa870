//! Why a recording can't be imported.

use crate::failure::Hint;
use crate::perf::data::error::DataError;

/// Contents of a recording without samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instead {
    Nothing,
    /// Counts of `perf stat record`.
    Counts,
    /// A hardware trace, such as Intel PT.
    HardwareTrace,
}

/// An import that failed.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file can't be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The events' records have different layouts, and carry no event id.
    #[error("cannot tell the events of {path} apart: their samples carry no identifier")]
    NoIds { path: String },
    /// No record could be read.
    #[error("{path} holds no sample{}", why(.cut.as_deref()))]
    NoSamples {
        path: String,
        /// Place and reason of the file's early end; `None`: it was read to its end.
        cut: Option<String>,
        instead: Instead,
    },
    /// The time span is impossibly long.
    #[error("the times of {what} reach over {years} years")]
    Centuries {
        /// The file, or the file and the table of marks.
        what: String,
        /// From the first to the last record.
        years: u64,
    },
    #[error("{path} has {samples} samples and none with a time")]
    NoTime { path: String, samples: u64 },
    #[error("{path} has {events} events that are samples; a trace has 256 at most")]
    TooManyEvents { path: String, events: usize },
    /// No event of the file has that name.
    #[error("no event '{wanted}' in {path}")]
    NoEvent {
        path: String,
        /// Name as typed.
        wanted: String,
        /// Names of the file's events.
        known: Vec<String>,
    },
    /// The name fits several events of the file.
    #[error("event '{wanted}' of {path} is the name of several")]
    Ambiguous {
        path: String,
        /// Name as typed.
        wanted: String,
        /// Names that fit.
        known: Vec<String>,
    },
    /// The event that begins items has no raw data, or the file lacks its format.
    #[error("cannot read field '{field}' of event '{event}': the recording lacks its format")]
    NoFormat {
        event: String,
        /// Name as typed.
        field: String,
    },
    /// The event has no such field, or the field is not a number.
    #[error("event '{event}' has no number '{field}'")]
    NoField {
        event: String,
        /// Name as typed.
        field: String,
        /// The event's numeric fields.
        known: Vec<String>,
    },
    /// All events, or all those chosen with `--event`, are used for marks.
    #[error("no event is left to be sampled: all {}of {path} are used for marks", .others.first().map_or("", |_| "that were chosen "))]
    NothingLeft {
        path: String,
        /// Events not chosen with `--event`.
        others: Vec<String>,
    },
}

fn why(cut: Option<&str>) -> String {
    cut.map_or_else(String::new, |cut| format!(": {cut}"))
}

/// Maximum number of names in a hint.
const SHOWN: usize = 12;

/// The first names, comma-separated, and the number of the others.
pub(crate) fn list(names: &[String]) -> String {
    let mut text = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN {
        text += &format!(" and {} more", names.len() - SHOWN);
    }
    text
}

impl Hint for ImportError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Data(error) => return error.hint(),
            Self::NoIds { .. } => {
                "record with 'perf record --sample-identifier', or one event at a time".to_owned()
            }
            Self::NoSamples { cut: Some(_), .. } => {
                "nothing could be saved; record again, and end 'perf record' with Ctrl-C".to_owned()
            }
            Self::NoSamples {
                instead: Instead::Counts,
                path,
                ..
            } => format!(
                "'perf stat record' counts and takes no samples: 'pebs-trace mine {path}' reads counts"
            ),
            Self::NoSamples {
                instead: Instead::HardwareTrace,
                path,
                ..
            } => format!(
                "it holds a hardware trace, which perf makes samples of: \
                 'perf inject --itrace=i100us --strip -i {path} -o NEW', then import NEW"
            ),
            Self::NoSamples { cut: None, .. } => {
                "the event never came: 'perf script -i FILE' shows nothing either; record another event, or longer"
                    .to_owned()
            }
            Self::Centuries { .. } => {
                "a file with such times is damaged: copy it again; marks must be on the recording's clock".to_owned()
            }
            Self::NoTime { .. } => "record with 'perf record -T', which adds the time".to_owned(),
            Self::TooManyEvents { .. } => "choose some with --event NAME".to_owned(),
            Self::NoEvent { known, .. } | Self::Ambiguous { known, .. } => {
                format!("there are: {}", list(known))
            }
            Self::NoFormat { .. } => {
                "record probes with 'perf record -e SYSTEM:NAME' as root, so that perf can store their formats"
                    .to_owned()
            }
            Self::NoField { known, .. } if known.is_empty() => {
                "it has no numbers: make the probe with one, as in 'perf probe -x BIN FUNC id=%di:u64'"
                    .to_owned()
            }
            Self::NoField { known, .. } => format!("it has: {}", list(known)),
            Self::NothingLeft { others, .. } if !others.is_empty() => {
                format!("marks need no --event; there are also: {}", list(others))
            }
            Self::NothingLeft { .. } => {
                "record a sampled event beside the probes: 'perf record -e cycles:pp -e PROBE ...'".to_owned()
            }
        })
    }
}
