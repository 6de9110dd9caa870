//! Reports of memory accesses, as text and csv.

pub(crate) mod csv;
#[cfg(test)]
mod tests;
pub(crate) mod text;
