//! Explanations as JSON, for programs.

use serde::Serialize;

/// An explanation, or that of an item, as indented JSON with a line end: stable keys, times in ns,
/// null for what is unknown.
///
/// # Errors
/// None for what [`super::explain()`] and [`super::explain_item`] make: all keys are strings.
pub fn render<T: Serialize>(explanation: &T) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(explanation)?;
    text.push('\n');
    Ok(text)
}
