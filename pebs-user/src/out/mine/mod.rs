//! Events mined from counts of `perf stat`, as text and as a page.

pub mod page;
pub mod text;
