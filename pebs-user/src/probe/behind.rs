//! Ends of visits marked behind the calls of a function, in its callers.
//!
//! Where a function's own exits are single-stepped, a cheap instruction may follow in its caller: a `call`, a jump, a
//! branch. This is right only if nobody else can call the function. So its address must be known to nobody: each
//! reference to it in the binary is a direct call, nothing else in the file holds its address, no other file can name
//! it, no neighbour jumps or runs into it. Between the call and the mark there are only a few moves and arithmetic
//! instructions, and control gets there from the call alone: each return makes one mark, and nothing else makes any.

use std::ops::Range;

use super::body::{self, Body};
use super::ends::{self, Ends, Unclear};
use super::exits::{EndSite, Graph};
use crate::arch::calls::DIRECT;
use crate::arch::unwind::RETURN_ADDRESS_BYTES;
use crate::arch::{self, EntryClass, Flow, Instruction, Kernel, Register, idioms};
use crate::binary::demangle::without_version;
use crate::binary::elf::Binary;
use crate::binary::frames::Depth;
use crate::binary::symbols::Function;

/// Maximum number of calls: each has a probe.
const MAX_CALLS: usize = 32;

/// Maximum number of instructions between a return and the mark.
const MAX_BETWEEN: usize = 12;

/// Reach of a short jump, bytes, with the jump itself.
const SHORT_JUMP: u64 = 130;

/// Finds the cheapest instructions that mark the ends of the function at `range`, once each, where `registers` have
/// their final values: in the function, or behind its calls if none of its own exits needs a mark for another reason.
///
/// # Errors
/// A clause that describes why its exits are ambiguous.
pub(crate) fn cheapest(
    binary: &Binary,
    kernel: Kernel,
    range: &Range<u64>,
    registers: &[Register],
) -> Result<Ends, Unclear> {
    let mut ends = ends::cheapest(binary, kernel, range.clone(), registers)?;
    let (_, tail_jumps) = ends.exits;
    let is_dear = ends
        .sites
        .iter()
        .any(|it| it.class == EntryClass::SingleStep);
    // The time of a function that is jumped to is not the function's own.
    if is_dear
        && tail_jumps == 0
        && ends.conditional.is_empty()
        && let Some(sites) = sites(binary, kernel, range, registers)
    {
        ends.behind_calls = sites.len();
        ends.sites = sites;
    }
    Ok(ends)
}

/// Cheap instructions, one behind each call of the function at `range`, where `registers` still have the values of its
/// return; `None` if some call has none, or some call may not be known.
fn sites(
    binary: &Binary,
    kernel: Kernel,
    range: &Range<u64>,
    registers: &[Register],
) -> Option<Vec<EndSite>> {
    let calls = calls(binary, range)?;
    let behind = calls.into_iter().map(|call| {
        let caller = binary.frames.range_of(call)?;
        if is_part(binary, caller.start) {
            return None;
        }
        let flow = ends::ways(binary, kernel, caller)?;
        one(binary, kernel, &flow, call, range.start, registers)
    });
    behind.collect()
}

/// Whether a range starts in the middle of a function that was split.
fn is_part(binary: &Binary, start: u64) -> bool {
    let cold = |it: &Function| without_version(&it.name).contains(".cold");
    binary.symbol_at(start).is_some_and(cold)
        || binary.frames.depth_at(start) != Some(Depth::RETURN)
}

/// Addresses of the direct calls of a function, if all are known. What looks like one may still be none.
fn calls(binary: &Binary, range: &Range<u64>) -> Option<Vec<u64>> {
    DIRECT?;
    let fields = binary.references()?.only_direct(range.start)?;
    let is_call =
        |call: &u64| binary.bytes(&(*call..call.saturating_add(1))).first() == DIRECT.as_ref();
    let calls: Vec<u64> = fields.map(|field| field.saturating_sub(1)).collect();
    let fit = !calls.is_empty() && calls.len() <= MAX_CALLS && calls.iter().all(is_call);
    (fit && is_apart(binary, range)).then_some(calls)
}

/// Whether no code near the function jumps or runs into it.
fn is_apart(binary: &Binary, function: &Range<u64>) -> bool {
    let start = function.start;
    let near = start.saturating_sub(SHORT_JUMP)..start.saturating_add(SHORT_JUMP);
    let mut at = near.start;
    while at < near.end {
        let Some(range) = binary.frames.range_of(at) else {
            // Between functions is padding only, if anything.
            let next = binary.frames.starts_after(at).unwrap_or(near.end);
            let gap = at..next.min(near.end);
            if binary.is_code(at) && !is_padding(binary, &gap) {
                return false;
            }
            at = gap.end;
            continue;
        };
        let body = Body::read(binary, range.clone());
        let jumps = body.targets().any(|(_, to)| to == start);
        if body.broken.is_some() || range.start != start && (jumps || runs_on(&body)) {
            return false;
        }
        at = range.end;
    }
    true
}

/// Whether control may go on behind the end of some code. Behind a last call it does not: that one never returns.
fn runs_on(body: &Body) -> bool {
    let last = body.code.iter().rev().find(|it| !it.is_filler());
    last.is_some_and(|it| {
        it.flow().falls_through() && !matches!(it.flow(), Flow::Call | Flow::IndirectCall)
    })
}

fn is_padding(binary: &Binary, gap: &Range<u64>) -> bool {
    let (code, wrong) = arch::decode(binary.bytes(gap), gap.start);
    let zero = |at: &u64| binary.bytes(&(*at..gap.end)).iter().all(|byte| *byte == 0);
    code.iter().all(Instruction::is_filler) && wrong.as_ref().is_none_or(zero)
}

/// The instruction behind a call.
fn one(
    binary: &Binary,
    kernel: Kernel,
    flow: &Graph,
    call: u64,
    function: u64,
    registers: &[Register],
) -> Option<EndSite> {
    let at = flow
        .code
        .binary_search_by_key(&call, Instruction::address)
        .ok()?;
    if flow.code[at].call_target() != Some(function) {
        return None;
    }
    // Behind the return the stack pointer is above the return address.
    let mut sp_adjust = -RETURN_ADDRESS_BYTES;
    for pair in flow.code[at..].windows(2).take(MAX_BETWEEN) {
        let [before, instruction] = pair else { break };
        if !flow.leads_only(before.address(), instruction.address()) {
            return None;
        }
        let class = kernel.class(body::bytes(binary, instruction));
        if class == Ok(EntryClass::Emulated) {
            return Some(EndSite {
                address: instruction.address(),
                class: EntryClass::Emulated,
                text: instruction.text(),
                result_known: true,
                sp_adjust,
                condition: None,
                passed: 0.0,
            });
        }
        let stores = !registers.is_empty() && instruction.writes_memory();
        let is_simple = instruction.flow() == Flow::Next && idioms::is_simple(instruction);
        if !is_simple || stores || instruction.changes(registers) {
            return None;
        }
        sp_adjust -= instruction.stack_change()?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::testing::{Program, compile};

    const SOURCE: &str = r#"
#define F(name, body) asm(".text\n.p2align 4\n.globl " #name "\n.type " #name ",@function\n" #name ":\n" \
    ".cfi_startproc\n" body "\n.cfi_endproc\n.size " #name ",.-" #name "\n");
#define LEAF "mov (%rdi),%rax\n mov %rax,(%rdi)\n ret"
// The C runtime's own code has no frames.
F(first, ".skip 200, 0x90\n ret") F(once, LEAF) F(twice, LEAF) F(kept, LEAF) F(joined, LEAF) F(last, LEAF) F(stored, LEAF) F(near, LEAF) F(tail, "mov (%rdi),%rax\n jmp *%rax")
F(after, "jmp near")
F(caller, "push %rbx\n .cfi_adjust_cfa_offset 8\n sub $16,%rsp\n .cfi_adjust_cfa_offset 16\n call once\n mov %rax,%rbx\n add $16,%rsp\n"
    " .cfi_adjust_cfa_offset -16\n test %eax,%eax\n je 1f\n call twice\n push %rax\n pop %rax\n1: call twice\n mov %rdi,%rax\n jmp 2f\n2: call kept\n"
    " mov $1,%eax\n jmp 3f\n3: test %edi,%edi\n je 4f\n call joined\n4: push %rax\n pop %rax\n call tail\n jmp 5f\n5: call last\n pop %rbx\n .cfi_adjust_cfa_offset -8\n ret")
void *volatile table[1]; void stored(void); void caller(void);
int main(int c, char **v) { table[0] = stored; stored(); if (c > 100) caller(); return 0; }
"#;

    fn marked(program: &Program, name: &str, registers: &[Register]) -> Option<Vec<(String, i64)>> {
        let binary = program.open();
        let mut functions = binary.functions.iter();
        let function = functions.find(|it| it.name == name).expect("defined");
        let range = binary.extent(function.address).expect("sized");
        let kernel = Kernel::from_release("6.18");
        let ends = cheapest(&binary, kernel, &range, registers).expect("clear");
        let word = |it: &EndSite| it.text.split(' ').next().unwrap_or_default().to_owned();
        let sites = ends.sites.iter().map(|it| (word(it), it.sp_adjust));
        (ends.behind_calls > 0).then(|| sites.collect())
    }

    /// Cheap instructions behind each call, with the way back to the stack pointer at the function's entry; none where
    /// a call has none, control may come from elsewhere, or the function may be called in other ways.
    #[test]
    fn behind_calls() {
        let program = compile("gcc", SOURCE, &["-O1", "-no-pie"]);
        let marked = |name| marked(&program, name, &[]);
        let site = |text: &str, sp_adjust| (text.to_owned(), sp_adjust);
        assert_eq!(marked("once"), Some(vec![site("je", -24)]));
        assert_eq!(
            marked("twice"),
            Some(vec![site("push", -8), site("jmp", -8)])
        );
        assert_eq!(marked("kept"), Some(vec![site("jmp", -8)]));
        for other in ["joined", "last", "stored", "near", "tail", "main"] {
            assert_eq!(marked(other), None, "{other}");
        }
    }

    /// A result must still be there.
    #[test]
    fn results() {
        let program = compile("gcc", SOURCE, &["-O1", "-no-pie"]);
        let rax = [Register::RESULT];
        assert!(marked(&program, "once", &rax).is_some());
        assert!(marked(&program, "kept", &rax).is_none());
    }
}
