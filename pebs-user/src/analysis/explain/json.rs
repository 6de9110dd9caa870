//! Explanations as JSON, for programs.

use serde::Serialize;

use crate::terminal::shown_json;

/// An explanation, or that of an item, as indented JSON with a line end: stable keys, times in ns,
/// null for what is unknown.
///
/// # Errors
/// None for what [`super::explain()`] and [`super::explain_item`] make: all keys are strings.
pub(crate) fn render<T: Serialize>(explanation: &T) -> Result<String, serde_json::Error> {
    let mut text = shown_json(serde_json::to_string_pretty(explanation)?);
    text.push('\n');
    Ok(text)
}
