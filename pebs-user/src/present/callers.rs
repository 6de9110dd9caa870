//! Callers in one line.

use crate::compare::names::FunctionName;
use crate::present::functions::name_within;
use crate::present::human::columns;

/// Callers that are named; if there are more, the nearest ones and the outermost.
const MOST: usize = 6;

/// Columns of a caller's name, where there is room.
const WIDTH: usize = 36;

/// Columns of a caller's name where there is little.
const NARROW: usize = 16;

/// Callers of a function, the nearest first, within this many columns if possible: `<- parse <- handle`. A
/// recursive function appears once, with a count. Where there is little room, fewer callers are named.
///
/// `truncated`: outer callers are missing; `known`: whether there was a call stack at all.
pub(crate) fn callers(
    callers: &[FunctionName],
    truncated: bool,
    known: bool,
    width: usize,
) -> String {
    if !known {
        return "<- unknown (no call stack)".to_owned();
    }
    let equal: Vec<&[FunctionName]> = callers.chunk_by(|a, b| a == b).collect();
    let mut text = String::new();
    for (most, name_width) in (2..=MOST)
        .rev()
        .flat_map(|most| [(most, WIDTH), (most, NARROW)])
    {
        let mut names: Vec<String> = equal.iter().map(|it| repeated(it, name_width)).collect();
        if names.len() > most {
            names.splice(most - 1..names.len() - 1, ["…".to_owned()]);
        }
        match (names.is_empty(), truncated) {
            (_, true) => names.push("…".to_owned()),
            (true, false) => names.push("the item's begin".to_owned()),
            (false, false) => {}
        }
        text = format!("<- {}", names.join(" <- "));
        if columns(&text) <= width {
            break;
        }
    }
    text
}

/// A function that calls itself this many times in a row.
fn repeated(callers: &[FunctionName], width: usize) -> String {
    let name = callers
        .first()
        .map_or_else(String::new, |it| name_within(it, width));
    match callers.len() {
        ..=1 => name,
        times => format!("{name} ({times} times)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &str) -> Vec<FunctionName> {
        let one = |name: &str| FunctionName {
            name: Some(name.to_owned()),
            ..FunctionName::default()
        };
        names.split_whitespace().map(one).collect()
    }

    /// Missing callers are marked; of many callers the outermost is still shown.
    #[test]
    fn in_one_line() {
        let few = named("parse handle");
        assert_eq!(callers(&few, false, true, 99), "<- parse <- handle");
        assert_eq!(callers(&few, true, true, 99), "<- parse <- handle <- …");
        let many = named("a b c d e f g h");
        assert_eq!(
            callers(&many, false, true, 99),
            "<- a <- b <- c <- d <- e <- … <- h"
        );
        let six = named("a b c d e f");
        assert_eq!(
            callers(&six, false, true, 99),
            "<- a <- b <- c <- d <- e <- f"
        );
        let again = named("a sort sort sort b c sort d sort sort e");
        assert_eq!(
            callers(&again, false, true, 99),
            "<- a <- sort (3 times) <- b <- c <- sort <- … <- e"
        );
        assert_eq!(callers(&many, false, true, 20), "<- a <- b <- … <- h");
        assert_eq!(callers(&[], false, true, 99), "<- the item's begin");
        assert_eq!(callers(&[], true, false, 99), "<- unknown (no call stack)");
    }
}
