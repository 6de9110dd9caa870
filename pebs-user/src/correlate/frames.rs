//! Frames by their stack pointers: whether one is gone.

/// Two stack pointers further apart than this are on different stacks (signal stacks, coroutines) and show nothing
/// about each other's frames. Threads' stacks are 8 MiB apart by default.
const STACK_SPAN: u64 = 1 << 20;

/// Size of a return address, bytes.
pub(super) const RETURN_ADDRESS: u64 = 8;

/// Whether two stack pointers can be compared.
#[inline]
pub(super) const fn same_stack(a: u64, b: u64) -> bool {
    a.abs_diff(b) < STACK_SPAN
}

/// Number of leading `sps` that are still inside the frame entered at `sp`. See `Thread::frames_gone`.
#[inline]
pub(super) fn inside_frame(sp: u64, sps: &[u64]) -> usize {
    // Gone: above the return address, on the same stack.
    let first = sp.saturating_add(RETURN_ADDRESS + 1);
    let count = sp.saturating_add(STACK_SPAN).saturating_sub(first);
    let gone = |sp: &u64| sp.wrapping_sub(first) < count;
    // Nearly always none is gone: a loop without early exit that only collects sign bits compares several at once. As
    // `count` is below 2^63, `distance < count` is the borrow of their difference.
    let borrow = |sp: &u64| {
        let distance = sp.wrapping_sub(first);
        !distance & distance.wrapping_sub(count)
    };
    let any = sps.iter().fold(0, |bits, sp| bits | borrow(sp));
    if any.cast_signed() < 0 {
        sps.iter().position(gone).unwrap_or(sps.len())
    } else {
        sps.len()
    }
}
