//! Starts of functions that have neither a symbol nor an unwind table entry: call targets.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl};

/// First byte of a direct call, by which it is found without disassembly.
pub(crate) const DIRECT: Option<u8> = Some(0xe8);

/// Targets of the direct calls in some code, sorted.
///
/// Bytes that are no code (tables between functions) are skipped one by one.
/// Cost: about 10 ns per byte.
pub(crate) fn targets(code: &[u8], address: u64) -> Vec<u64> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut found = Vec::new();
    while decoder.can_decode() {
        let (at, ip) = (decoder.position(), decoder.ip());
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            // In range: at least one byte was decoded.
            let _ = decoder.set_position(at + 1);
            decoder.set_ip(ip + 1);
            continue;
        }
        if instruction.flow_control() == FlowControl::Call && instruction.is_call_near() {
            found.push(instruction.near_branch_target());
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// End of the function whose code starts at `address`, at most the end of `code`: the end of the last instruction
/// that its jumps reach. `None` if a jump through a table or a pointer leaves that open.
pub(crate) fn end_of(code: &[u8], address: u64) -> Option<u64> {
    let bounds = address..address.saturating_add(code.len() as u64);
    let (mut waiting, mut seen) = (vec![address], BTreeSet::new());
    let mut end = address;
    while let Some(from) = waiting.pop() {
        let Range { start, .. } = bounds;
        let offset = usize::try_from(from.checked_sub(start)?).ok()?;
        let mut decoder = Decoder::with_ip(64, code.get(offset..)?, from, DecoderOptions::NONE);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() || !seen.insert(instruction.ip()) {
                break;
            }
            end = end.max(instruction.next_ip());
            let jumps_within = |target: u64| bounds.contains(&target);
            match instruction.flow_control() {
                FlowControl::IndirectBranch => return None,
                FlowControl::ConditionalBranch => {
                    let target = instruction.near_branch_target();
                    waiting.extend(jumps_within(target).then_some(target));
                }
                FlowControl::UnconditionalBranch => {
                    let target = instruction.near_branch_target();
                    // A tail call goes backwards, or to the start of another function.
                    waiting.extend(jumps_within(target).then_some(target));
                    break;
                }
                FlowControl::Return | FlowControl::Exception => break,
                _ => {}
            }
        }
    }
    (end > address).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls are found after bytes that are no code; a function ends after its last reachable instruction.
    #[test]
    fn starts_and_ends() {
        // 0x1000: call 0x1010; ret; (06: no instruction); 0x1007: call 0x1011; ret
        let mut code = vec![0xe8, 0x0b, 0, 0, 0, 0xc3, 0x06, 0xe8, 0x05, 0, 0, 0, 0xc3];
        assert_eq!(targets(&code, 0x1000), [0x1010, 0x1011]);
        assert_eq!(end_of(&code, 0x1000), Some(0x1006));
        // je +1; ret; (06); nop; ret
        code = vec![0x74, 0x02, 0xc3, 0x06, 0x90, 0xc3, 0xc3];
        assert_eq!(end_of(&code, 0x2000), Some(0x2006));
        // jmp *%rax
        assert_eq!(end_of(&[0xff, 0xe0, 0xc3], 0x2000), None);
    }
}
