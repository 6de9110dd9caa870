//! Fields and numbers as various programs and locales write them.

/// Supported separators, the likeliest first.
pub(super) const SEPARATORS: [char; 6] = [',', ';', '\t', '|', ':', ' '];

/// The fields of a line; within quotes a separator is text.
pub(super) fn split(line: &str, separator: char) -> Vec<&str> {
    if !line.contains('"') {
        return line.split(separator).map(str::trim).collect();
    }
    let (mut fields, mut begin, mut quoted) = (Vec::new(), 0, false);
    for (at, c) in line.char_indices() {
        if c == '"' {
            quoted = !quoted;
        } else if c == separator && !quoted {
            fields.push(&line[begin..at]);
            begin = at + c.len_utf8();
        }
    }
    fields.push(&line[begin..]);
    fields
        .into_iter()
        .map(|it| it.trim().trim_matches('"').trim())
        .collect()
}

/// A number, with a decimal comma where the comma is not the separator.
pub(super) fn number(text: &str, separator: char) -> Option<f64> {
    if let Ok(number) = text.parse::<f64>() {
        return number.is_finite().then_some(number);
    }
    if separator == ',' || !text.contains(',') {
        return None;
    }
    // 1.234,5 as well as 1234,5; one comma only.
    let (whole, part) = text.split_once(',')?;
    format!(
        "{}.{part}",
        whole.replace(['.', '\u{a0}', '\u{202f}', '\''], "")
    )
    .parse()
    .ok()
}

/// Whether a field stands for a missing value.
pub(super) fn is_missing(text: &str) -> bool {
    text.is_empty()
        || [
            "na",
            "n/a",
            "nan",
            "null",
            "none",
            "-",
            "<not counted>",
            "<not supported>",
        ]
        .iter()
        .any(|it| text.eq_ignore_ascii_case(it))
}
