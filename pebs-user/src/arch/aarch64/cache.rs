//! Memory that is written soon.

/// Prefetches the cache lines of some of `values` for writing, without waiting for them: nothing here, as stores of
/// another core's lines were not measured on this machine.
#[inline(always)]
pub(crate) const fn will_write<T>(_values: &[T], _from: usize, _count: usize) {}
