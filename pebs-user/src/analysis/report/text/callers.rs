//! Callers in one line.

use super::name_within;
use crate::analysis::report::model::FunctionName;

/// Callers that are named; of more the nearest ones and the outermost.
const MOST: usize = 6;

/// Characters of a caller's name.
const WIDTH: usize = 36;

/// Who called a function, the nearest first: `<- parse <- handle`. What called itself is there once, with how often.
///
/// `truncated`: outer ones are not known; `known`: whether there was a call stack at all.
pub(in crate::analysis) fn callers(
    callers: &[FunctionName],
    truncated: bool,
    known: bool,
) -> String {
    if !known {
        return "<- unknown (no call stack)".to_owned();
    }
    let alike = callers.chunk_by(|a, b| a == b);
    let mut names: Vec<String> = alike.map(repeated).collect();
    if names.len() > MOST {
        names.splice(MOST - 1..names.len() - 1, ["…".to_owned()]);
    }
    match (names.is_empty(), truncated) {
        (_, true) => names.push("… (not known further)".to_owned()),
        (true, false) => names.push("the item's begin".to_owned()),
        (false, false) => {}
    }
    format!("<- {}", names.join(" <- "))
}

/// A function that is its own caller so many times.
fn repeated(callers: &[FunctionName]) -> String {
    let name = callers
        .first()
        .map_or_else(String::new, |it| name_within(it, WIDTH));
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

    /// What is not known is said; of many callers the outermost is still there.
    #[test]
    fn in_one_line() {
        let few = named("parse handle");
        assert_eq!(callers(&few, false, true), "<- parse <- handle");
        assert_eq!(
            callers(&few, true, true),
            "<- parse <- handle <- … (not known further)"
        );
        let many = named("a b c d e f g h");
        assert_eq!(
            callers(&many, false, true),
            "<- a <- b <- c <- d <- e <- … <- h"
        );
        let six = named("a b c d e f");
        assert_eq!(callers(&six, false, true), "<- a <- b <- c <- d <- e <- f");
        let again = named("a sort sort sort b c sort d sort sort e");
        assert_eq!(
            callers(&again, false, true),
            "<- a <- sort (3 times) <- b <- c <- sort <- … <- e"
        );
        assert_eq!(callers(&[], false, true), "<- the item's begin");
        assert_eq!(callers(&[], true, false), "<- unknown (no call stack)");
    }
}
