//! The id of a thread's current item, where a sample reads it.

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_task_pt_regs};
use pebs_common::config::{ItemConfig, ItemSource, MAX_DEREFS};
use pebs_common::counter::Counter;

use crate::arg;
use crate::emit::count;
use crate::library;
use crate::maps::{ITEM, ITEM_SOURCE};

/// The thread is ending, and its registers are no longer used. Source: `PF_EXITING`,
/// include/linux/sched.h.
const EXITING: u32 = 4;

/// The current item's id. `user` has the registers of user space if the sample was taken there.
#[inline(always)]
pub fn id(user: Option<*const u8>) -> u64 {
    let Some(config) = ITEM.get(0) else {
        return 0;
    };
    // SAFETY: the helper takes no pointer.
    let task = unsafe { bpf_get_current_task_btf() }
        .cast::<u8>()
        .cast_const();
    if user.is_none() && is_exiting(task, config) {
        return config.none;
    }
    read(task, user, config).unwrap_or_else(|| {
        count(Counter::ItemFault);
        config.none
    })
}

#[inline(always)]
fn is_exiting(task: *const u8, config: &ItemConfig) -> bool {
    member::<u32>(task, config.offsets.task_flags).is_some_and(|flags| flags & EXITING != 0)
}

#[inline(always)]
fn read(task: *const u8, user: Option<*const u8>, config: &ItemConfig) -> Option<u64> {
    if ITEM_SOURCE.load() == ItemSource::Register as u32 {
        let regs = user.unwrap_or_else(|| entered_with(task));
        let register = member::<u64>(regs, config.program.reg_offset.into())?;
        return arg::value_from(register, &config.program);
    }
    let mm = member::<*const u8>(task, config.offsets.task_mm)?;
    if ITEM_SOURCE.load() == ItemSource::Library as u32 {
        return follow(
            library::base(mm, config)?.wrapping_add(config.offset),
            config,
        );
    }
    if !runs(mm, config) {
        return None;
    }
    let base = if ITEM_SOURCE.load() == ItemSource::Memory as u32 {
        member::<u64>(mm, config.offsets.mm_start_code)?
    } else {
        member::<u64>(task, config.offsets.task_fsbase)?
    };
    follow(base.wrapping_add(config.offset), config)
}

/// The registers with which the thread entered the kernel.
#[inline(always)]
fn entered_with(task: *const u8) -> *const u8 {
    // SAFETY: the helper takes the running thread's structure.
    let regs = unsafe { bpf_task_pt_regs(task.cast_mut().cast()) };
    (regs as *const pt_regs).cast()
}

/// Whether the process runs the executable that has the variable.
#[inline(always)]
fn runs(mm: *const u8, config: &ItemConfig) -> bool {
    let offsets = &config.offsets;
    let inode = member::<*const u8>(mm, offsets.mm_exe_file)
        .and_then(|file| member::<*const u8>(file, offsets.file_inode));
    inode.is_some_and(|inode| {
        member::<u64>(inode, offsets.inode_number) == Some(config.inode)
            && member::<u64>(inode, offsets.inode_size) == Some(config.size)
    })
}

/// The number at the end of the pointers; `None` for a null pointer.
#[inline(always)]
fn follow(mut value: u64, config: &ItemConfig) -> Option<u64> {
    let program = &config.program;
    for step in 0..MAX_DEREFS {
        if step >= program.steps as usize {
            break;
        }
        if value == 0 {
            return Some(config.none);
        }
        value = arg::follow(value, step, program)?;
    }
    Some(arg::extend(value, program))
}

/// A member of a structure of the kernel.
#[inline(always)]
pub fn member<T>(structure: *const u8, offset: u32) -> Option<T> {
    let address = structure.wrapping_add(offset as usize).cast::<T>();
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(address) }.ok()
}
