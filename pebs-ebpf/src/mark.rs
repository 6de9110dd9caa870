//! Marks: at a function's entry or return, or at an address. The meaning and content of a site's marks are given by
//! its [`SiteConfig`].

use core::arch::asm;
use core::mem::MaybeUninit;

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::{bpf_get_attach_cookie, bpf_ktime_get_ns};
use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use pebs_common::condition::Condition;
use pebs_common::config::{ArgKind, ArgProgram, MAX_ARGS, SiteConfig, id_source};
use pebs_common::counter::Counter;
use pebs_common::record::batch::COUNT;
use pebs_common::record::{ARG_CLASSES, Head, Kind, Mark, MarkArgs, MarkClock, mark_flag};

use crate::arch::kept::{BEGIN, SP, SP_BEFORE};
use crate::arch::{self, Registers, step};
use crate::arg::{self, STR_LONG, STR_SHORT};
use crate::batch;
use crate::count::{both, count_at_mark};
use crate::emit::{MARKS, count, emit};
use crate::go;
use crate::maps::{COUNT_EVENTS, SITES};
use crate::task;

/// A mark with named arguments in a ring.
#[repr(C)]
pub struct Room<const SIZE: usize> {
    header: MarkArgs,
    payload: [u8; SIZE],
}

#[uprobe]
pub fn mark(ctx: ProbeContext) -> u32 {
    match site(&ctx) {
        Some(site) => make(&ctx, site, 0),
        None => count(Counter::MarkNoSite),
    }
    0
}

/// As [`mark`], and does what the probed instruction does; only for kernels that let programs change registers.
#[uprobe]
pub fn mark_and_step(ctx: ProbeContext) -> u32 {
    let Some(site) = site(&ctx) else {
        count(Counter::MarkNoSite);
        return 0;
    };
    let is_done = step::is_done(&ctx, &site.step);
    make(
        &ctx,
        site,
        if is_done { step::popped(&site.step) } else { 0 },
    );
    if !is_done {
        step::step(&ctx, &site.step);
    }
    0
}

/// Configuration of the site that was hit.
#[inline(always)]
fn site(ctx: &ProbeContext) -> Option<&'static SiteConfig> {
    // SAFETY: the helper takes the program's own context.
    let site = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) };
    SITES.get(site as u32)
}

/// Makes the mark of a site, where the stack pointer is `popped` bytes above that before the instruction.
#[inline(always)]
fn make(ctx: &ProbeContext, site: &SiteConfig, popped: u64) {
    // SAFETY: the helper takes no pointer.
    let begin_ns = unsafe { bpf_ktime_get_ns() };
    let mut target = Target::of(ctx);
    // They are copied whole, as the verifier refuses parts at offsets that were computed.
    // SAFETY: sets a register to itself; without an instruction its line would be that of the next.
    unsafe { asm!("{0} = {0}", in(reg) target.registers.as_mut_ptr()) };
    // There is no more room on the stack that older kernels allow.
    target.registers[BEGIN] = begin_ns;
    target.registers[SP_BEFORE] = target.registers[SP].wrapping_sub(popped);
    if !task::is_traced_at_mark(target.ids) {
        count(Counter::MarkFiltered);
        return;
    }
    // SAFETY: the registers are in the context.
    let flags = || unsafe { arch::flags(ctx.regs) };
    if Condition::from_code(site.condition).is_some_and(|it| !it.holds(flags())) {
        return;
    }
    if site.has_id == id_source::BATCH {
        batch::mark(&mut target, site);
    } else if site.payload == 0 {
        emit::<Mark>(MARKS, |room| {
            room.write(plain(&target, site, Kind::Mark));
        });
    } else if site.payload as usize <= ARG_CLASSES[0] {
        with_args::<{ ARG_CLASSES[0] }>(&mut target, site);
    } else if site.payload as usize <= ARG_CLASSES[1] {
        with_args::<{ ARG_CLASSES[1] }>(&mut target, site);
    } else {
        with_args::<{ ARG_CLASSES[2] }>(&mut target, site);
    }
}

/// The thread at a mark.
pub struct Target {
    ids: task::Ids,
    /// A copy: not all kernels let separately verified functions take the program's context.
    pub registers: Registers,
}

impl Target {
    /// Does something whose time doesn't count as the program's: how long that takes depends on what is read, and says
    /// nothing about the rest.
    #[inline(always)]
    pub fn apart<T>(&mut self, work: impl FnOnce(&Self) -> T) -> T {
        // SAFETY: the helper takes no pointer.
        let now = || unsafe { bpf_ktime_get_ns() };
        self.registers[BEGIN] = self.registers[BEGIN].wrapping_sub(now());
        let done = work(self);
        self.registers[BEGIN] = self.registers[BEGIN].wrapping_add(now());
        done
    }

    /// Whether the thread is traced, as at a mark.
    #[inline(always)]
    pub fn is_traced(&self) -> bool {
        task::is_traced_at_mark(self.ids)
    }

    #[inline(always)]
    pub fn of(ctx: &ProbeContext) -> Self {
        let ids = task::current();
        // SAFETY: the registers are in the context.
        let registers = unsafe { arch::keep(ctx.regs) };
        Self { ids, registers }
    }
}

#[inline(always)]
fn plain(target: &Target, site: &SiteConfig, kind: Kind) -> Mark {
    let clock = time(target);
    let mut flags = site.role;
    let mut id = 0;
    if site.has_id == id_source::ONE {
        match arg::value(&target.registers, &site.id) {
            Some(value) => {
                id = value;
                flags |= mark_flag::ID_VALID;
            }
            None => count(Counter::ArgumentFault),
        }
    }
    let head = Head::new(kind, flags, site.probe, target.ids.pid, target.ids.tid);
    Mark {
        head,
        clock,
        sp: frame(target, site),
        id,
    }
}

/// The stack pointer at the function's first instruction, or the goroutine's frame.
#[inline(always)]
fn frame(target: &Target, site: &SiteConfig) -> u64 {
    let sp = target.registers[SP_BEFORE].wrapping_add(site.sp_adjust as u64);
    if site.goid == 0 {
        return sp;
    }
    let frame = go::frame(&target.registers, site.goid, sp);
    if frame == 0 {
        count(Counter::ArgumentFault);
    }
    frame
}

/// The time of the mark. If events are counted, emits the counts up to it, timed 1 ns before the mark: how long that
/// takes says nothing about the rest.
#[inline(always)]
fn time(target: &Target) -> MarkClock {
    let is_counted = COUNT_EVENTS.load() != 0;
    let counted = if is_counted {
        count_at_mark(both(target.ids))
    } else {
        0
    };
    if counted != 0 {
        return MarkClock::new(counted + 1, 0);
    }
    // SAFETY: the helper takes no pointer.
    let time_ns = unsafe { bpf_ktime_get_ns() };
    let ran_ns = if is_counted {
        0
    } else {
        time_ns - target.registers[BEGIN]
    };
    MarkClock::new(time_ns, ran_ns)
}

#[inline(always)]
fn with_args<const SIZE: usize>(target: &mut Target, site: &SiteConfig) {
    emit::<Room<SIZE>>(MARKS, |room| fill(target, site, room, |_, _| 0));
}

/// Fills a record with a mark, its named arguments, and the additional payload of `more`, which returns its valid
/// bits. That is read before the time of the mark, and so in no time of the item's.
#[inline(always)]
pub fn fill<const SIZE: usize>(
    target: &mut Target,
    site: &SiteConfig,
    room: &mut MaybeUninit<Room<SIZE>>,
    more: impl FnOnce(&mut Target, *mut u8) -> u64,
) {
    let payload = room
        .as_mut_ptr()
        .cast::<u8>()
        .wrapping_add(size_of::<MarkArgs>());
    let more = more(target, payload);
    let mark = plain(target, site, Kind::MarkArgs);
    let valid = read_args::<SIZE>(&target.registers, site, payload) | more;
    let header = (&raw mut *room).cast::<MarkArgs>();
    // SAFETY: the room starts with the header.
    unsafe { header.write(MarkArgs { mark, valid }) };
}

/// Reads every named argument into the payload; returns the bits of those that could be read.
#[inline(always)]
fn read_args<const SIZE: usize>(regs: &Registers, site: &SiteConfig, payload: *mut u8) -> u64 {
    let mut valid = 0;
    for index in 0..MAX_ARGS {
        if index >= site.args as usize {
            break;
        }
        let read = if SIZE == ARG_CLASSES[0] {
            argument_small(regs, site, index as u64, payload.cast())
        } else if SIZE == ARG_CLASSES[2] {
            argument_large(regs, site, index as u64, payload.cast())
        } else {
            // In a batch the named arguments precede the number of items.
            argument_middle(regs, site, index as u64, payload.cast())
        };
        valid |= read << index;
    }
    valid
}

const _: () = assert!(COUNT == ARG_CLASSES[1]);

/// [`argument`] in a payload of the first size.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn argument_small(
    regs: *const Registers,
    site: *const SiteConfig,
    index: u64,
    payload: *mut [u8; ARG_CLASSES[0]],
) -> u64 {
    argument(regs, site, index, payload)
}

/// [`argument`] in a payload of the second size.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn argument_middle(
    regs: *const Registers,
    site: *const SiteConfig,
    index: u64,
    payload: *mut [u8; ARG_CLASSES[1]],
) -> u64 {
    argument(regs, site, index, payload)
}

/// [`argument`] in a payload of the third size.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn argument_large(
    regs: *const Registers,
    site: *const SiteConfig,
    index: u64,
    payload: *mut [u8; ARG_CLASSES[2]],
) -> u64 {
    argument(regs, site, index, payload)
}

/// Reads a named argument into the payload; returns 1, or 0 if it can't be read.
#[inline(always)]
fn argument<const SIZE: usize>(
    regs: *const Registers,
    site: *const SiteConfig,
    index: u64,
    payload: *mut [u8; SIZE],
) -> u64 {
    if regs.is_null() || site.is_null() || payload.is_null() {
        // Never the case, but the verifier needs the check.
        return 0;
    }
    // SAFETY: they are not null, and the verifier makes sure that callers hand over as many bytes as the types have.
    let (regs, site) = unsafe { (&*regs, &*site) };
    let index = index as usize;
    if index >= MAX_ARGS {
        return 0;
    }
    let program = &site.named[index];
    if program.kind == ArgKind::None as u8 {
        // Can't be read here; it stays unknown.
        return 0;
    }
    let payload = payload.cast::<u8>();
    let room = (payload, SIZE, program);
    let read = match arg::value(regs, program) {
        None => false,
        Some(value) if program.kind == ArgKind::Bytes as u8 => {
            arg::value(regs, &site.lengths[index])
                .is_some_and(|length| bytes(room, (value, length)))
        }
        Some(value) if program.kind == ArgKind::Str as u8 => string(room, value),
        Some(value) => number(payload, SIZE, program.offset as usize, value),
    };
    if !read && site.may_lack == 0 {
        count(Counter::ArgumentFault);
    }
    u64::from(read)
}

#[inline(always)]
fn number(payload: *mut u8, size: usize, offset: usize, value: u64) -> bool {
    if offset > size - 8 {
        return false;
    }
    // SAFETY: offset + 8 <= size, the payload's length; offsets are multiples of 8.
    unsafe { payload.wrapping_add(offset).cast::<u64>().write(value) };
    true
}

/// Payload, its size, and the program of an argument in it.
type Slot<'a> = (*mut u8, usize, &'a ArgProgram);

#[inline(always)]
fn string((payload, size, program): Slot<'_>, address: u64) -> bool {
    let (offset, capacity) = (program.offset as usize, u64::from(program.capacity));
    let ends = program.is_signed != 0;
    if program.capacity as usize + 8 <= STR_SHORT {
        return size >= STR_SHORT
            && offset <= size - STR_SHORT
            && arg::string::<STR_SHORT>(payload.wrapping_add(offset), address, capacity, ends);
    }
    size >= STR_LONG
        && offset <= size - STR_LONG
        && arg::string::<STR_LONG>(payload.wrapping_add(offset), address, capacity, ends)
}

#[inline(always)]
fn bytes((payload, size, program): Slot<'_>, text: (u64, u64)) -> bool {
    let (offset, capacity) = (program.offset as usize, u64::from(program.capacity));
    if program.capacity as usize + 8 <= STR_SHORT {
        return size >= STR_SHORT
            && offset <= size - STR_SHORT
            && arg::bytes::<STR_SHORT>(payload.wrapping_add(offset), text, capacity);
    }
    size >= STR_LONG
        && offset <= size - STR_LONG
        && arg::bytes::<STR_LONG>(payload.wrapping_add(offset), text, capacity)
}
