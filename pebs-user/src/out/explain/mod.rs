//! Explanations as text.

pub(crate) mod text;
