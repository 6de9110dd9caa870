//! Starts of functions that have neither a symbol nor an unwind table entry: call targets.

use std::collections::BTreeSet;

use super::instruction::{Instruction, decode};
use crate::arch::common::Flow;

/// First byte of a direct call, by which it is found without disassembly: none, as no mark has to be made behind a call
/// where `ret` is emulated.
pub(crate) const DIRECT: Option<u8> = None;

/// Bytes of an instruction.
const BYTES: usize = 4;

/// Targets of the direct calls in some code, sorted.
///
/// Bytes that are no code (tables between functions) are skipped. Cost: about 1 ns per byte.
pub(crate) fn targets(code: &[u8], address: u64) -> Vec<u64> {
    let words = code.chunks_exact(BYTES).zip((address..).step_by(BYTES));
    let decoded = words.filter_map(|(word, at)| decode(word, at).0.first().copied());
    let mut found: Vec<u64> = decoded.filter_map(|it| it.call_target()).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// End of the function whose code starts at `address`, at most the end of `code`: the end of the last instruction
/// that its jumps reach. `None` if a jump through a table or a pointer leaves that open.
pub(crate) fn end_of(code: &[u8], address: u64) -> Option<u64> {
    let (code, _) = decode(code, address);
    let at = |address: u64| {
        code.binary_search_by_key(&address, Instruction::address)
            .ok()
    };
    let (mut waiting, mut seen) = (vec![address], BTreeSet::new());
    let mut end = address;
    while let Some(from) = waiting.pop() {
        // A tail call goes backwards, or to the start of another function.
        let Some(first) = at(from) else { continue };
        for instruction in &code[first..] {
            if !seen.insert(instruction.address()) {
                break;
            }
            end = end.max(instruction.next());
            match instruction.flow() {
                Flow::IndirectJump => return None,
                Flow::Branch(to) => waiting.push(to),
                Flow::Jump(to) => {
                    waiting.push(to);
                    break;
                }
                Flow::Return | Flow::Trap => break,
                _ => {}
            }
        }
    }
    (end > address).then_some(end)
}
