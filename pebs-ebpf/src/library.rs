//! Load addresses of a library in the processes that use it.

use aya_ebpf::helpers::generated::bpf_get_current_task_btf;
use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use pebs_common::config::{ItemConfig, Program};
use pebs_common::counter::Counter;

use crate::arch;
use crate::emit::count;
use crate::item::member;
use crate::maps::{ITEM, LIBRARIES};

/// The first instruction of the library that the loader runs in each process.
#[uprobe]
pub fn library(ctx: ProbeContext) -> u32 {
    let Some(config) = ITEM.get(0) else {
        return 0;
    };
    // SAFETY: the helper takes no pointer.
    let task = unsafe { bpf_get_current_task_btf() }
        .cast::<u8>()
        .cast_const();
    // SAFETY: the program's context is the registers.
    let ip = unsafe { arch::ip(ctx.regs) };
    let key = member::<*const u8>(task, config.offsets.task_mm).and_then(|mm| program(mm, config));
    let base = ip.wrapping_sub(config.entry);
    let known = key.is_some_and(|key| LIBRARIES.insert(&key.key(), &[key.0, base], 0).is_ok());
    if !known {
        count(Counter::ItemFault);
    }
    0
}

/// Load address of the library in a process (of file address 0); `None` if unknown.
#[inline(always)]
pub fn base(mm: *const u8, config: &ItemConfig) -> Option<u64> {
    let program = program(mm, config)?;
    // SAFETY: the entry is copied; user space and this program write it whole or see a hit of another one.
    let [stack, base] = unsafe { LIBRARIES.get(&program.key()) }.copied()?;
    (stack == program.0).then_some(base)
}

/// The program that a process runs, which its forks run as well.
#[inline(always)]
fn program(mm: *const u8, config: &ItemConfig) -> Option<Program> {
    member(mm, config.offsets.mm_start_stack).map(Program)
}
