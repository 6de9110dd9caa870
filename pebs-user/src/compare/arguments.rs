//! Named arguments of visits, and those that a group of visits shares.

use serde::{Serialize, Serializer};

use crate::store::args::{ArgRef, ArgView};
use crate::store::schema::{ArgColumn, ArgValue};

/// A named argument.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NamedArg {
    /// Its column.
    pub name: String,
    #[serde(serialize_with = "value")]
    pub value: Option<ArgValue>,
}

fn value<S: Serializer>(value: &Option<ArgValue>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        None => serializer.serialize_none(),
        Some(ArgValue::U64(number)) => serializer.serialize_u64(*number),
        Some(ArgValue::I64(number)) => serializer.serialize_i64(*number),
        Some(ArgValue::Str(text)) => serializer.serialize_str(text),
    }
}

/// An argument that a group of visits has in common.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SharedArg {
    pub name: String,
    /// The value, or the common prefix.
    pub value: String,
    /// Whether the whole value is common.
    pub whole: bool,
}

/// Common part of one argument's values so far.
#[derive(Clone, Debug, PartialEq)]
enum Common {
    /// No value seen.
    Unseen,
    Number(ArgValue),
    /// Common prefix; `whole`: all values equal it.
    Text {
        start: String,
        whole: bool,
    },
    Nothing,
}

impl Common {
    fn narrow(&mut self, value: Option<ArgRef<'_>>) {
        match (&mut *self, value) {
            (Self::Nothing, _) => {}
            (Self::Text { start, whole }, Some(ArgRef::Str(text))) => {
                let length = common_length(start, text);
                *whole &= length == start.len() && length == text.len();
                start.truncate(length);
                if length == 0 && !*whole {
                    *self = Self::Nothing;
                }
            }
            (Self::Unseen, Some(ArgRef::Str(text))) => {
                *self = Self::Text {
                    start: text.to_owned(),
                    whole: true,
                }
            }
            (Self::Unseen, Some(number)) => *self = Self::Number(number.to_value()),
            (Self::Number(known), Some(number)) if *known == number.to_value() => {}
            _ => *self = Self::Nothing,
        }
    }

    /// Whether all values that have this in common also have `other`.
    fn implies(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Text { start, whole },
                Self::Text {
                    start: other,
                    whole: to_end,
                },
            ) => start.starts_with(other.as_str()) && (!to_end || *whole),
            _ => self == other,
        }
    }

    fn show(&self, name: &str) -> Option<SharedArg> {
        let (value, whole) = match self {
            Self::Unseen | Self::Nothing => return None,
            Self::Number(ArgValue::U64(number)) => (number.to_string(), true),
            Self::Number(ArgValue::I64(number)) => (number.to_string(), true),
            Self::Number(ArgValue::Str(text)) => (text.to_string(), true),
            Self::Text { start, whole } => (start.clone(), *whole),
        };
        Some(SharedArg {
            name: name.to_owned(),
            value,
            whole,
        })
    }
}

/// Bytes that two texts have in common at their begin, whole characters only.
fn common_length(a: &str, b: &str) -> usize {
    let equal = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    (0..=equal)
        .rev()
        .find(|&n| a.is_char_boundary(n))
        .unwrap_or(0)
}

/// Common parts of the arguments of a group of visits, column by column.
#[derive(Clone, Debug)]
pub(crate) struct SharedArgs {
    visits: u64,
    columns: Vec<Common>,
}

impl SharedArgs {
    /// No visits yet.
    pub(crate) fn new(columns: usize) -> Self {
        Self {
            visits: 0,
            columns: vec![Common::Unseen; columns],
        }
    }

    /// Adds a visit.
    pub(crate) fn add(&mut self, args: &[ArgView<'_>], row: usize) {
        self.visits += 1;
        for (common, array) in self.columns.iter_mut().zip(args) {
            common.narrow(array.get(row));
        }
    }

    /// Arguments that these visits share and `others` do not all share. A single visit shares
    /// nothing.
    pub(crate) fn apart_from(&self, others: &Self, columns: &[ArgColumn]) -> Vec<SharedArg> {
        if self.visits < 2 {
            return Vec::new();
        }
        let pairs = self.columns.iter().zip(&others.columns).zip(columns);
        pairs
            .filter(|((own, other), _)| !other.implies(own))
            .filter_map(|((own, _), column)| own.show(&column.name))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(group: &[Option<ArgRef<'_>>]) -> Common {
        let mut common = Common::Unseen;
        for value in group {
            common.narrow(*value);
        }
        common
    }

    fn texts(group: &[&str]) -> Common {
        let group: Vec<_> = group.iter().map(|text| Some(ArgRef::Str(text))).collect();
        shared(&group)
    }

    fn text(start: &str, whole: bool) -> Common {
        Common::Text {
            start: start.to_owned(),
            whole,
        }
    }

    /// Texts share their begin, numbers only the whole.
    #[test]
    fn narrowing() {
        assert_eq!(texts(&["big:017", "big:003"]), text("big:0", false));
        assert_eq!(texts(&["get", "get"]), text("get", true));
        assert_eq!(texts(&["get", "getex"]), text("get", false));
        assert_eq!(texts(&["größe", "grüße"]), text("gr", false));
        assert_eq!(texts(&["a", "b"]), Common::Nothing);
        assert_eq!(texts(&["", ""]), text("", true));
        let numbers = |a, b| shared(&[Some(ArgRef::U64(a)), Some(ArgRef::U64(b))]);
        assert_eq!(numbers(7, 7), Common::Number(ArgValue::U64(7)));
        assert_eq!(numbers(7, 8), Common::Nothing);
        assert_eq!(shared(&[Some(ArgRef::I64(1)), None]), Common::Nothing);
    }

    /// An argument that all others share as well sets nothing apart.
    #[test]
    fn implied() {
        assert!(texts(&["get", "get"]).implies(&text("get", true)));
        assert!(texts(&["key:1", "key:2"]).implies(&text("key", false)));
        assert!(!texts(&["key:1", "key:2"]).implies(&text("key:1", true)));
        assert!(!texts(&["small:1", "big:2"]).implies(&text("big:", false)));
        assert!(!text("get", false).implies(&text("get", true)));
        assert!(!Common::Unseen.implies(&text("get", true)));
    }
}
