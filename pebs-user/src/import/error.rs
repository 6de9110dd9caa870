//! Why a recording can't be imported.

use crate::failure::Hint;
use crate::perf::data::error::DataError;

/// What a recording without samples holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instead {
    Nothing,
    /// Counts, of `perf stat record`.
    Counts,
    /// A trace of the hardware's, as Intel PT.
    HardwareTrace,
}

/// An import that can't be done.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file can't be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The records of its events lie differently, and do not name their event.
    #[error("cannot tell the events of {path} apart: their samples carry no identifier")]
    NoIds {
        /// The file.
        path: String,
    },
    /// It has no records at all, or none that can be read.
    #[error("{path} holds no sample{}", why(.cut.as_deref()))]
    NoSamples {
        /// The file.
        path: String,
        /// Where reading had to end.
        cut: Option<String>,
        /// What it holds in their place.
        instead: Instead,
    },
    /// Its times make no sense.
    #[error("the times of {what} reach over {years} years")]
    Centuries {
        /// The file, or the file and the table of marks.
        what: String,
        /// From the first to the last.
        years: u64,
    },
    /// No sample has a time.
    #[error("{path} has {samples} samples and none with a time")]
    NoTime {
        /// The file.
        path: String,
        /// How many.
        samples: u64,
    },
    /// More events than the trace can number.
    #[error("{path} has {events} events that are samples; a trace has 256 at most")]
    TooManyEvents {
        /// The file.
        path: String,
        /// How many.
        events: usize,
    },
    /// No event has that name.
    #[error("no event '{wanted}' in {path}")]
    NoEvent {
        /// The file.
        path: String,
        /// As typed.
        wanted: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// An event is named by several events of the file.
    #[error("event '{wanted}' of {path} is the name of several")]
    Ambiguous {
        /// The file.
        path: String,
        /// As typed.
        wanted: String,
        /// Those that fit.
        known: Vec<String>,
    },
    /// The event that begins items gives no raw data, or the file does not say what they mean.
    #[error("cannot read field '{field}' of event '{event}': the recording lacks its format")]
    NoFormat {
        event: String,
        /// As typed.
        field: String,
    },
    /// It has no such field, or it is no number.
    #[error("event '{event}' has no number '{field}'")]
    NoField {
        event: String,
        /// As typed.
        field: String,
        /// Numbers that it has.
        known: Vec<String>,
    },
    /// All events are used for marks, or all that are wanted.
    #[error("no event is left to be sampled: all {}of {path} are used for marks", .others.first().map_or("", |_| "that were chosen "))]
    NothingLeft {
        /// The file.
        path: String,
        /// Those that nobody wanted.
        others: Vec<String>,
    },
}

fn why(cut: Option<&str>) -> String {
    cut.map_or_else(String::new, |cut| format!(": {cut}"))
}

/// Names shown in a hint at most.
const SHOWN: usize = 12;

/// The first of some names, for a hint.
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
