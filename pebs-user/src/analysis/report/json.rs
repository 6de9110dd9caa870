//! A report as JSON, for programs.

use serde::Serialize;

use crate::terminal::shown_json;

/// Renders the report as indented JSON with a line end: stable keys, times in ns, null for unknown
/// values.
///
/// # Errors
/// None for a report made by [`super::build`] or [`super::memory::build`]: all its keys are strings.
pub(crate) fn render(report: &impl Serialize) -> Result<String, serde_json::Error> {
    let mut text = shown_json(serde_json::to_string_pretty(report)?);
    text.push('\n');
    Ok(text)
}
