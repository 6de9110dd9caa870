//! Explanations as JSON, for programs.

use serde::Serialize;

use crate::terminal::shown_json;

/// Renders an explanation, of a trace or an item, as indented JSON with a line end: stable keys,
/// times in ns, null for unknown values.
///
/// # Errors
/// None for results of [`crate::compare::explain::explain()`] and [`crate::compare::explain::explain_item`]: all keys are strings.
pub(crate) fn render<T: Serialize>(explanation: &T) -> Result<String, serde_json::Error> {
    let mut text = shown_json(serde_json::to_string_pretty(explanation)?);
    text.push('\n');
    Ok(text)
}
