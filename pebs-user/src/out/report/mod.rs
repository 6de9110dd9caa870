//! Reports as text, csv and JSON.

pub(crate) mod csv;
pub(crate) mod lines;
pub(crate) mod memory;
pub(crate) mod paths;
#[cfg(test)]
mod tests;
pub(crate) mod text;
