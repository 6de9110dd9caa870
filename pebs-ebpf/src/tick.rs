//! The end of an interval of counts: a clock's event, on each CPU.

use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;

use crate::{count, task};

#[perf_event]
pub fn tick(_ctx: PerfEventContext) -> u32 {
    let ids = task::current();
    if task::is_traced(ids) {
        count::ticks(ids);
    }
    0
}
