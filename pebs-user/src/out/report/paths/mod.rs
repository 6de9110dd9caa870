//! Reports by call path, as text and csv.

pub(crate) mod csv;
#[cfg(test)]
mod tests;
pub(crate) mod text;
