//! Shows an explanation as text.

pub(crate) mod text;

use std::path::Path;

use crate::compare::explain::explain;
use crate::compare::explain::request::ExplainOptions;
use crate::failure::Result;
use crate::store::reader::Trace;

/// The explanation of a trace with default options, in lines of this width.
///
/// # Errors
/// The trace can't be read or explained.
pub fn text_of(trace: &Path, width: usize) -> Result<String> {
    let trace = Trace::open(trace)?;
    Ok(text::page(&explain(&trace, &ExplainOptions::default())?, width).plain())
}
