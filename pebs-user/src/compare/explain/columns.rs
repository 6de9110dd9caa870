//! The arguments of items, column by column, for grouping and for distinguishing items.

use rustc_hash::FxHashMap;

use crate::store::args::{ArgRef, ArgView};
use crate::store::schema::{ArgColumn, ArgType};

/// Largest number of distinct texts of a column; all others count as one.
const MOST_TEXTS: usize = 1 << 18;

/// Number of leading characters of a text that are compared.
const TEXT_LENGTH: usize = 200;

/// Adding it to an i64 as u64 keeps the order.
const SIGN: u64 = 1 << 63;

/// Code of an argument that could not be read.
pub(crate) const NULL: u32 = u32::MAX;

/// Texts by code, in order of first occurrence.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    codes: FxHashMap<Box<str>, u32>,
    texts: Vec<Box<str>>,
}

impl Texts {
    pub(crate) fn code(&mut self, text: &str) -> u32 {
        if let Some(&code) = self.codes.get(text) {
            return code;
        }
        let code = self.texts.len() as u32;
        if self.texts.len() > MOST_TEXTS {
            return code - 1;
        }
        let text = if self.texts.len() == MOST_TEXTS {
            "(others)"
        } else {
            text
        };
        self.texts.push(text.into());
        self.codes.insert(text.into(), code);
        code
    }

    pub(crate) fn text(&self, code: u32) -> &str {
        self.texts.get(code as usize).map_or("", |text| text)
    }

    /// Number of different texts.
    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }
}

/// Values of one argument, one for each item.
#[derive(Debug)]
pub(crate) enum Values {
    /// Numbers, as [`ordered`] has them.
    Number {
        /// Whether they were signed.
        signed: bool,
        /// By item; `None` where reading failed.
        values: Vec<Option<u64>>,
    },
    /// Texts: the whole and the begin up to the first digit.
    Text {
        /// Code of the whole by item.
        whole: Vec<u32>,
        /// Code of the begin by item.
        start: Vec<u32>,
        /// Different texts.
        wholes: Texts,
        /// Different begins.
        starts: Texts,
    },
}

/// One argument.
#[derive(Debug)]
pub(crate) struct Column {
    pub name: String,
    pub values: Values,
}

impl Column {
    /// Whether the value of an item is known.
    pub(crate) fn is_known(&self, item: u32) -> bool {
        match &self.values {
            Values::Number { values, .. } => values[item as usize].is_some(),
            Values::Text { whole, .. } => whole[item as usize] != NULL,
        }
    }
}

/// Formats a number from its ordered form.
pub(crate) fn show_number(value: u64, signed: bool) -> String {
    if signed {
        ((value ^ SIGN) as i64).to_string()
    } else {
        value.to_string()
    }
}

/// The arguments of all items.
#[derive(Debug)]
pub(crate) struct ArgumentColumns(pub Vec<Column>);

impl ArgumentColumns {
    /// Columns without values.
    pub(crate) fn new(columns: &[ArgColumn]) -> Self {
        let values = |kind| match kind {
            ArgType::U64 | ArgType::I64 => Values::Number {
                signed: kind == ArgType::I64,
                values: Vec::new(),
            },
            ArgType::Str => Values::Text {
                whole: Vec::new(),
                start: Vec::new(),
                wholes: Texts::default(),
                starts: Texts::default(),
            },
        };
        let columns = columns.iter().map(|column| Column {
            name: column.name.clone(),
            values: values(column.r#type),
        });
        Self(columns.collect())
    }

    /// Adds the values of a new item.
    pub(crate) fn push(&mut self, args: &[ArgView<'_>], row: usize) {
        for (column, array) in self.0.iter_mut().zip(args) {
            let value = array.get(row);
            match &mut column.values {
                Values::Number { values, .. } => values.push(value.and_then(ordered)),
                Values::Text {
                    whole,
                    start,
                    wholes,
                    starts,
                } => {
                    let (all, begin) = codes(value, wholes, starts);
                    whole.push(all);
                    start.push(begin);
                }
            }
        }
    }

    /// Fills in values that an item lacks from another of its visits.
    pub(crate) fn fill(&mut self, item: usize, args: &[ArgView<'_>], row: usize) {
        for (column, array) in self.0.iter_mut().zip(args) {
            let value = array.get(row);
            match &mut column.values {
                Values::Number { values, .. } => {
                    values[item] = values[item].or_else(|| value.and_then(ordered));
                }
                Values::Text {
                    whole,
                    start,
                    wholes,
                    starts,
                } if whole[item] == NULL => {
                    (whole[item], start[item]) = codes(value, wholes, starts);
                }
                Values::Text { .. } => {}
            }
        }
    }
}

/// A number as u64 in the same order.
fn ordered(value: ArgRef<'_>) -> Option<u64> {
    match value {
        ArgRef::U64(number) => Some(number),
        ArgRef::I64(number) => Some(number as u64 ^ SIGN),
        ArgRef::Str(_) => None,
    }
}

fn codes(value: Option<ArgRef<'_>>, wholes: &mut Texts, starts: &mut Texts) -> (u32, u32) {
    let Some(ArgRef::Str(text)) = value else {
        return (NULL, NULL);
    };
    let end = text
        .char_indices()
        .nth(TEXT_LENGTH)
        .map_or(text.len(), |(at, _)| at);
    let text = &text[..end];
    let digit = text
        .find(|c: char| c.is_ascii_digit())
        .unwrap_or(text.len());
    (wholes.code(text), starts.code(&text[..digit]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers keep their order and come back as they were, with their sign.
    #[test]
    fn numbers_in_order() {
        let values = [i64::MIN, -5, 0, 7, i64::MAX];
        let ordered: Vec<u64> = values
            .iter()
            .filter_map(|it| ordered(ArgRef::I64(*it)))
            .collect();
        assert!(ordered.is_sorted());
        let shown: Vec<String> = ordered.iter().map(|it| show_number(*it, true)).collect();
        assert_eq!(shown, values.map(|it| it.to_string()));
        assert_eq!(show_number(u64::MAX, false), u64::MAX.to_string());
    }

    /// Texts are distinguished up to a bound; beyond it they count as "other".
    #[test]
    fn texts_are_bounded() {
        let mut texts = Texts::default();
        let codes: Vec<u32> = ["a", "b", "a"].iter().map(|it| texts.code(it)).collect();
        assert_eq!((codes, texts.len()), (vec![0, 1, 0], 2));
        for n in 0..MOST_TEXTS + 10 {
            texts.code(&n.to_string());
        }
        assert_eq!(texts.len(), MOST_TEXTS + 1);
        assert_eq!(texts.text(MOST_TEXTS as u32), "(others)");
    }

    /// The prefix of a text before its first digit is searched as well.
    #[test]
    fn starts_of_texts() {
        let (mut wholes, mut starts) = (Texts::default(), Texts::default());
        let (a, b) = (
            codes(Some(ArgRef::Str("big:001")), &mut wholes, &mut starts),
            codes(Some(ArgRef::Str("big:002")), &mut wholes, &mut starts),
        );
        assert!(a.0 != b.0 && a.1 == b.1);
        assert_eq!(starts.text(a.1), "big:");
        assert_eq!(codes(None, &mut wholes, &mut starts), (NULL, NULL));
    }
}
