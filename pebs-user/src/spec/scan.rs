//! Questions about pieces of a SPEC's text.

/// Index of the parenthesis closed by the last one of the text.
pub(super) fn matching_open(text: &str) -> Option<usize> {
    if !text.ends_with(')') {
        return None;
    }
    let mut depth = 0_i32;
    for (at, byte) in text.bytes().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Index of the last unclosed parenthesis.
pub(super) fn open_without_close(text: &str) -> Option<usize> {
    let mut open = Vec::new();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => open.push(at),
            b')' => {
                open.pop();
            }
            _ => {}
        }
    }
    open.first().copied()
}

/// Whether the inside of parentheses starts with `name=` (and not with `==`).
pub(super) fn looks_like_args(inner: &str) -> bool {
    inner.split_once('=').is_some_and(|(name, rest)| {
        let is_name = !name.contains(['(', ')', '<', '>', ',', ':', '&']);
        !rest.starts_with('=') && is_name && !name.trim().is_empty()
    }) || inner.trim_start().starts_with('=')
}

/// Whether the text in parentheses is an expression without a name.
pub(super) fn looks_like_value(inner: &str) -> bool {
    let inner = inner.trim();
    inner.starts_with('%')
        || inner.starts_with("*(")
        || inner.starts_with("*arg")
        || inner.starts_with("str(")
        || inner == "retval"
        || inner.contains("->") && !inner.contains(' ')
        || inner
            .strip_prefix("arg")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Colons that are not part of `::`, or of an ABI tag (`[abi:cxx11]`).
pub(crate) fn single_colons(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    (0..bytes.len())
        .filter(|&at| {
            bytes[at] == b':'
                && bytes.get(at + 1) != Some(&b':')
                && (at == 0 || bytes[at - 1] != b':')
                && !bytes[..at].ends_with(b"[abi")
        })
        .collect()
}

/// Whether the text could be a place.
pub(super) fn is_sensible(text: &str) -> bool {
    text.starts_with("usdt:") || is_line(text) || address(text).is_some() || plausible(text)
}

/// Whether it is `FILE:LINE`: a file's name, a single colon, digits.
pub(super) fn is_line(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(file, line)| {
        !line.is_empty()
            && line.bytes().all(|b| b.is_ascii_digit())
            && !file.is_empty()
            && !file.ends_with(':')
            && single_colons(file).is_empty()
    })
}

/// Parses `0xADDR`, alone or as in reports (`module+fn@0xADDR`): `Some(None)` if its digits are malformed.
pub(super) fn address(text: &str) -> Option<Option<u64>> {
    let digits = match text.rfind("fn@0x") {
        Some(at) => &text[at + 5..],
        None => text
            .strip_prefix("0x")
            .or_else(|| text.strip_prefix("0X"))?,
    };
    let valid = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    Some(
        valid
            .then(|| u64::from_str_radix(digits, 16).ok())
            .flatten(),
    )
}

/// The build id of `BUILDID+0xOFF`, if at least [`BUILD_DIGITS`] of its digits and the begin of a number are there.
pub(super) fn build_place(text: &str) -> Option<&str> {
    let (id, offset) = text.split_once('+')?;
    let is_id = id.len() >= BUILD_DIGITS && id.bytes().all(|it| it.is_ascii_hexdigit());
    (is_id && offset.starts_with(|c: char| c.is_ascii_digit())).then_some(id)
}

/// Fewest digits of a build id.
const BUILD_DIGITS: usize = 8;

/// Splits `FUNC+OFF` at the last plus, if a number (even a malformed one) follows.
pub(super) fn split_offset(text: &str) -> Option<(&str, &str)> {
    let (name, digits) = text.rsplit_once('+')?;
    let (name, digits) = (name.trim_end(), digits.trim());
    (digits.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty()).then_some((name, digits))
}

/// Whether the text could be a function's name or pattern: no digit, slash or other punctuation in front.
pub(super) fn plausible(name: &str) -> bool {
    let rest = name.trim_start_matches('*');
    let any = rest.is_empty() || rest.starts_with("::");
    any && !name.is_empty()
        || rest.starts_with(|c: char| {
            c.is_alphabetic() || matches!(c, '_' | '~' | '$' | '.' | '<' | '(' | '{')
        })
}

pub(crate) fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
