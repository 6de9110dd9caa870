//! User-space call stacks from the CPU's call-stack branch records (LBR).

use perf_event_open_sys::bindings as sys;

use super::layout::Layout;
use super::sample::{RareFields, Words};

/// User-space calls that had not returned at a sample.
///
/// The caller of the outermost one is unknown: the record begins when the thread is first sampled, and holds the newest
/// 8 to 32 calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls<'a> {
    /// From, to and flags of each call, newest first.
    entries: Words<'a>,
}

/// Whether the branches of such samples are a call stack.
#[must_use]
pub(crate) const fn has_call_stack(layout: &Layout) -> bool {
    const CALL_STACK: u64 = sys::PERF_SAMPLE_BRANCH_CALL_STACK as u64;
    layout.has(sys::PERF_SAMPLE_BRANCH_STACK) && layout.branch_sample_type & CALL_STACK != 0
}

impl<'a> Calls<'a> {
    /// Returns the calls of a sample from [`has_call_stack`] layouts; `None` if it has none.
    #[must_use]
    pub(crate) fn of(sample: &RareFields<'a>) -> Option<Self> {
        let entries = sample.branches?.entries;
        (!entries.is_empty()).then_some(Self { entries })
    }

    /// Returns user-space frames, innermost first: the thread's ip (`inside`), then return addresses. In the kernel
    /// (`None`), the innermost function is known by its first address.
    pub(crate) fn frames(self, inside: Option<u64>) -> impl Iterator<Item = u64> + use<'a> {
        let innermost = inside.or_else(|| self.entries.iter().nth(1));
        // The record has the address of the call itself; any address within the call finds the same line.
        let callers = self.entries.iter().step_by(3);
        let callers = callers.map(|from| from.wrapping_add(1));
        innermost.into_iter().chain(callers)
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Sample;
    use super::*;
    use crate::stream::stacks::Chain;

    const LAYOUT: Layout = Layout {
        sample_type: (sys::PERF_SAMPLE_IP | sys::PERF_SAMPLE_BRANCH_STACK) as u64,
        read_format: 0,
        branch_sample_type: (sys::PERF_SAMPLE_BRANCH_USER | sys::PERF_SAMPLE_BRANCH_CALL_STACK)
            as u64,
        regs_user: 0,
        regs_intr: 0,
        sample_id_all: false,
    };

    fn body(calls: &[[u64; 3]]) -> Vec<u8> {
        let head = [0x3042, calls.len() as u64];
        let words = head.iter().chain(calls.as_flattened());
        words.flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// `main` calls `f` at 0x1010, which calls `g` at 0x2020; the calls themselves are looked up.
    #[test]
    fn callers_by_their_calls() {
        let body = body(&[[0x2020, 0x3000, 0], [0x1010, 0x2000, 0]]);
        let sample = Sample::decode(&LAYOUT, &body).unwrap();
        assert!(has_call_stack(&LAYOUT));
        let calls = Calls::of(&sample.rest()).unwrap();
        let looked_up = |inside, kernel: &[u64]| {
            let frames: Vec<u64> = kernel.iter().copied().chain(calls.frames(inside)).collect();
            let chain = Chain {
                kernel: kernel.len(),
                is_cut: true,
                frames: &frames,
            };
            chain.addresses().map(|ip| ip.0).collect::<Vec<u64>>()
        };
        assert_eq!(looked_up(sample.ip, &[]), [0x3042, 0x2020, 0x1010]);
        // In the kernel: the ip in `g` is unknown.
        let kernel = 1 << 63;
        assert_eq!(looked_up(None, &[kernel]), [kernel, 0x3000, 0x2020, 0x1010]);
    }

    /// Branches that are not calls give no stack, and neither does an empty record.
    #[test]
    fn other_branches() {
        let branches = Layout {
            branch_sample_type: sys::PERF_SAMPLE_BRANCH_ANY.into(),
            ..LAYOUT
        };
        assert!(!has_call_stack(&branches));
        let empty = body(&[]);
        let sample = Sample::decode(&LAYOUT, &empty).unwrap();
        assert!(Calls::of(&sample.rest()).is_none());
    }
}
