//! JSON for programs.

use serde::Serialize;

use crate::terminal::shown_json;

/// Renders what was compared as indented JSON with a line end: stable keys, times in ns, null for unknown values.
///
/// # Errors
/// None for the types of [`crate::compare`]: all keys are strings.
pub(crate) fn render(compared: &impl Serialize) -> Result<String, serde_json::Error> {
    let mut text = shown_json(serde_json::to_string_pretty(compared)?);
    text.push('\n');
    Ok(text)
}
