//! Finds visits by what a user knows of them: when they ran, and a text in an argument.

use std::ops::Range;

use crate::store::args::{ArgRef, ArgView};
use crate::store::reader::{ReadError, Trace};
use crate::store::view::{Select as _, View as _, columns};

/// Facts by which a visit is searched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// It ran at some time in this range, ns since the begin of the trace.
    pub within: Option<Range<i64>>,
    /// A text is part of one of its arguments; of a number, all of it.
    pub like: Option<String>,
}

/// The longest of the visits that were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub visit_id: u64,
    pub begin_ns: i64,
    /// Less the tool's own time, where that is known.
    pub net_ns: i64,
    /// Number of visits found.
    pub visits: u64,
}

columns! {
    struct Columns of visits { visit_id, begin_ns, duration_ns, net_ns }
}

/// The longest of the visits with a known end of which this is true; the first of equally long ones. `None`: there is
/// none.
///
/// Cost: one pass over the visits.
///
/// # Errors
/// The trace can't be read.
pub(crate) fn longest(trace: &Trace, known: &Known) -> Result<Option<Found>, ReadError> {
    let mut longest: Option<Found> = None;
    for batch in trace.scan_with_args(Columns::NAMES)? {
        let batch = batch?;
        let rows = Columns::of(&batch)?;
        let args = match known.like {
            Some(_) => ArgView::all(&batch, &trace.info.columns)?,
            None => Vec::new(),
        };
        for (row, visit_id) in rows.visit_id.iter().enumerate() {
            let Some(duration_ns) = rows.duration_ns.get(row) else {
                continue;
            };
            let begin_ns = rows.begin_ns[row];
            let end_ns = begin_ns.saturating_add(duration_ns);
            let ran = |it: &Range<i64>| begin_ns < it.end && end_ns >= it.start;
            let has = |text: &String| args.iter().any(|it| is_like(it.get(row), text));
            if !known.within.as_ref().is_none_or(ran) || !known.like.as_ref().is_none_or(has) {
                continue;
            }
            let net_ns = rows.net_ns.get(row).unwrap_or(duration_ns);
            let this = Found {
                visit_id: *visit_id,
                begin_ns,
                net_ns,
                visits: 1,
            };
            longest = Some(match longest {
                None => this,
                Some(other) => Found {
                    visits: other.visits + 1,
                    ..if net_ns > other.net_ns { this } else { other }
                },
            });
        }
    }
    Ok(longest)
}

fn is_like(value: Option<ArgRef<'_>>, text: &str) -> bool {
    match value {
        Some(ArgRef::Str(value)) => value.contains(text),
        Some(ArgRef::U64(value)) => text.parse() == Ok(value),
        Some(ArgRef::I64(value)) => text.parse() == Ok(value),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::testing;

    /// The longest of the visits that ran then, or have the text; numbers are compared as a whole.
    #[test]
    fn in_a_small_trace() {
        let made = testing::small();
        let of = |within: Option<Range<i64>>, like: Option<&str>| {
            let like = like.map(str::to_owned);
            let found = longest(&made, &Known { within, like }).unwrap();
            found.map(|it| (it.begin_ns, it.visits))
        };
        // The open visit has no duration.
        assert_eq!(of(None, None), Some((60_000, 5)));
        assert_eq!(of(Some(0..60_000), None), Some((1_000, 1)));
        assert_eq!(of(Some(130_000..140_000), None), Some((60_000, 3)));
        assert_eq!(of(None, Some("</script>")), Some((100_000, 1)));
        assert_eq!(of(None, Some("5")), Some((60_000, 1)));
        assert_eq!(of(Some(0..10), Some("5")), None);
        assert_eq!(of(None, Some("nothing")), None);
    }
}
