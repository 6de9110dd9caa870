//! Comparisons of groups of many traces, as text.

pub(crate) mod text;
