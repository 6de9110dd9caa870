//! eBPF programs of pebs-trace.
//!
//! A program turns its context into one wire record and puts it into the CPU's ring; it makes no decisions about
//! items, and counts every record that it can't emit.
//!
//! Invariant: a record's `CLOCK_MONOTONIC` time is read after its room was reserved, so once user space saw a ring
//! without reserved records, no earlier record can still appear in it.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]
#![expect(
    unsafe_code,
    reason = "eBPF programs talk to the kernel by raw pointers"
)]

mod access;
mod arch;
mod arg;
mod batch;
mod clock;
mod copy;
mod count;
mod emit;
mod fault;
mod go;
mod irq;
mod item;
mod library;
mod maps;
mod mark;
mod reclaim;
mod sample;
mod sched;
mod stack;
mod task;
mod tick;
mod trigger;
mod user_stack;
mod wake;

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
