//! Events mined from counts of `perf stat`, as text and as a page.

mod across;
mod cells;
pub mod page;
pub mod text;
