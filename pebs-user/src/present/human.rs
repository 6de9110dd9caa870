//! Numbers and foreign text as people read them.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::terminal::shown;

/// Shown for a value that was not observed.
pub(crate) const UNKNOWN: &str = "-";

/// A time with three significant digits and its unit: `412 ns`, `1.21 us`, `3.40 ms`, `12.3 s`.
pub(crate) fn time(ns: f64) -> String {
    let sign = if ns < 0.0 { "-" } else { "" };
    let ns = ns.abs();
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];
    // 999.6 us would be rounded to 1000 us: it is 1.00 ms.
    let unit = units.into_iter().find(|(size, _)| ns >= size * 0.9995);
    match unit {
        Some((size, name)) => format!("{sign}{} {name}", digits(ns / size)),
        None => format!("{sign}{ns:.0} ns"),
    }
}

/// A time that may be unknown.
pub(crate) fn maybe_time(ns: Option<f64>) -> String {
    ns.map_or_else(|| UNKNOWN.to_owned(), time)
}

fn digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// A difference of times, with its sign.
pub(crate) fn signed_time(ns: f64) -> String {
    let sign = if ns < 0.0 { "" } else { "+" };
    format!("{sign}{}", time(ns))
}

/// A count with its thousands apart: `20,040`.
pub(crate) fn count(n: u64) -> String {
    let plain = n.to_string();
    let mut text = String::with_capacity(plain.len() + plain.len() / 3);
    for (i, digit) in plain.chars().enumerate() {
        if i > 0 && (plain.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of events with three significant digits: `16.0 k`, `2.41 M`.
pub(crate) fn events(n: f64) -> String {
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    match units.into_iter().find(|(size, _)| n >= size * 0.9995) {
        Some((size, name)) => format!("{} {name}", digits(n / size)),
        None => format!("{n:.0}"),
    }
}

/// A count and its noun: `1 item`, `40 items`.
pub(crate) fn plural(n: u64, noun: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{} {noun}{s}", count(n))
}

/// A share of 0..1 in percent: `41 %`, `4.1 %`, `<0.1 %`.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        p if p <= 0.0 => "0 %".to_owned(),
        p if p < 0.1 => "<0.1 %".to_owned(),
        p if p < 9.95 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

/// Columns of a terminal that a text takes.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// Text from the target, safe for a terminal ([`shown`]), the middle left out beyond `width` columns.
pub(crate) fn safe(text: &str, width: usize) -> String {
    shorten(shown(text).into_owned(), width)
}

/// The text in `width` columns, at least one: its middle left out if it is longer.
pub(crate) fn shorten(text: String, width: usize) -> String {
    if columns(&text) <= width {
        return text;
    }
    let head = width.saturating_sub(1).div_ceil(2);
    let tail = width.saturating_sub(1 + head);
    let start = fitting(text.chars(), head);
    let end: String = fitting(text.chars().rev(), tail).chars().rev().collect();
    format!("{start}…{end}")
}

/// The leading characters that fit.
fn fitting(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut left = width;
    chars
        .take_while(|c| {
            let fits = c.width().unwrap_or(0) <= left;
            left = left.saturating_sub(c.width().unwrap_or(0));
            fits
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three digits and the unit that fits, at the borders too.
    #[test]
    fn times() {
        let shown = [0.0, 412.4, 999.4, 999.6, 1_210.0, 999_600.0, 3.4e6, 1.23e10].map(time);
        assert_eq!(
            shown,
            [
                "0 ns", "412 ns", "999 ns", "1.00 us", "1.21 us", "1.00 ms", "3.40 ms", "12.3 s"
            ]
        );
        assert_eq!(time(-1_500.0), "-1.50 us");
        assert_eq!(maybe_time(None), "-");
    }

    /// Thousands are apart.
    #[test]
    fn counts() {
        assert_eq!(
            [0, 999, 1_000, 20_040, 1_234_567].map(count),
            ["0", "999", "1,000", "20,040", "1,234,567"]
        );
        assert_eq!(
            [1.0, 16_000.0, 2_410_000.0].map(events),
            ["1", "16.0 k", "2.41 M"]
        );
        assert_eq!(
            [plural(1, "item"), plural(40, "item")],
            ["1 item", "40 items"]
        );
    }

    /// A share that is not zero is never shown as zero.
    #[test]
    fn percents() {
        assert_eq!(
            [0.0, 0.0004, 0.041, 0.41, 1.0].map(percent),
            ["0 %", "<0.1 %", "4.1 %", "41 %", "100 %"]
        );
    }

    /// A target can't write to the user's terminal through its strings.
    #[test]
    fn hostile_text() {
        assert_eq!(
            safe("a\x1b[2Jb\n\u{202e}c", 99),
            "a\\u{1b}[2Jb\\n\\u{202e}c"
        );
        assert_eq!(safe("größe", 99), "größe");
        assert_eq!(safe("abcdefghij", 7), "abc…hij");
        assert_eq!(safe("関数の名前です", 8), "関数…す");
    }
}
