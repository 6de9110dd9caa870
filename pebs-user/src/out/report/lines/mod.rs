//! Reports of cache lines that threads share, as text and csv.

pub(crate) mod csv;
#[cfg(test)]
mod tests;
pub(crate) mod text;
