//! Text of the target, whose bytes need not be UTF-8.

use std::borrow::Cow;

/// The text with `\xNN` for each byte that is not UTF-8.
///
/// `cut`: its end may be missing, so an incomplete character there is dropped.
#[must_use]
pub(crate) fn escape(bytes: &[u8], cut: bool) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.into();
    }
    let mut text = String::with_capacity(bytes.len() + 16);
    let mut chunks = bytes.utf8_chunks().peekable();
    while let Some(chunk) = chunks.next() {
        text.push_str(chunk.valid());
        if cut && chunks.peek().is_none() && is_begun(chunk.invalid()) {
            break;
        }
        let escaped = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}"));
        text.extend(escaped);
    }
    text.into()
}

/// Whether the bytes are an incomplete UTF-8 character.
fn is_begun(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that are not UTF-8 are kept, but for an incomplete character at the end of a cut text.
    #[test]
    fn strings() {
        assert_eq!(escape(b"all of it", true), "all of it");
        assert_eq!(escape(b"caf\xc3", true), "caf");
        assert_eq!(escape(b"caf\xc3", false), "caf\\xc3");
        assert_eq!(escape(b"a\xc3b\xff\xfe", true), "a\\xc3b\\xff\\xfe");
    }
}
