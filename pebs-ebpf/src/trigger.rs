//! The call that a recording waits for before it begins.

use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::{btf_map, uprobe};
use aya_ebpf::programs::ProbeContext;
use pebs_common::config::{Trigger, id_source};

use crate::arg;
use crate::mark::Target;

/// The condition that is waited for, and its hits.
#[btf_map]
static TRIGGER: Array<Trigger, 1> = Array::new();

/// The place is reached, perhaps with the value that is waited for.
#[uprobe]
pub fn trigger(ctx: ProbeContext) -> u32 {
    let Some(trigger) = TRIGGER.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: the array has one element, which the kernel never moves.
    let trigger = unsafe { &mut *trigger };
    let target = Target::of(&ctx);
    if !target.is_traced() {
        return 0;
    }
    let has_come = trigger.source != u32::from(id_source::ONE)
        || arg::value(&target.registers, &trigger.read) == Some(trigger.value);
    if has_come {
        trigger.hits = trigger.hits.wrapping_add(1);
    }
    0
}
