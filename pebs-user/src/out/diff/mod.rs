//! Comparisons of two traces, as text.

pub(crate) mod text;
