//! Choice of the probed instruction at a function's entry.
//!
//! The kernel single-steps most probed instructions, which costs ten times as much as a `push`, a nop or a direct
//! branch, and compilers put `endbr64` and register moves in front. The probe may move to a later cheap instruction
//! if nothing between the first instruction and that one can leave the path, loop back, write memory, or change a
//! register that the probe reads.
//!
//! Invariant: the chosen instruction runs exactly as often as the first one, and the stack pointer at the first one
//! can be computed from the one there.

use pebs_common::condition::Condition;

use super::body::{self, Body};
use crate::arch::{EntryClass, Flow, Instruction, Kernel, Register};
use crate::binary::elf::Binary;

/// Maximum number of instructions examined.
const MAX_INSTRUCTIONS: usize = 16;

/// Maximum number of bytes examined.
const MAX_BYTES: u64 = 64;

/// Requirements of a probe on its instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs<'a> {
    /// Registers that the probe reads.
    pub registers: &'a [Register],
    /// Instructions with other sites of the probe.
    pub taken: &'a [u64],
    /// The return address must be on top of the stack, or in its register (for a uretprobe).
    pub return_address: ReturnAddress,
}

/// Required location of the return address when the probe fires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReturnAddress {
    /// At any known place.
    #[default]
    Known,
    /// On top of the stack, or in its register as the caller left it.
    OnTop,
}

/// The chosen instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its virtual address in the file.
    pub address: u64,
    /// Offset from the function's first instruction, bytes.
    pub offset: u64,
    /// Cost class.
    pub class: EntryClass,
    /// Disassembled.
    pub text: String,
    /// Offset from the stack pointer there to the stack pointer at the first instruction.
    pub sp_adjust: i64,
    /// A mark is made only under this condition: that Go's stack needs not grow, after which the function starts again.
    pub condition: Option<Condition>,
    /// The function jumps back to it: a mark in each round.
    pub repeated: bool,
}

/// Chooses the instruction of a function.
///
/// # Errors
/// Why no instruction near the entry can be probed.
pub(crate) fn choose(
    binary: &Binary,
    kernel: Kernel,
    body: &Body,
    needs: Needs<'_>,
) -> Result<Entry, String> {
    let Some(first) = body.code.first() else {
        return Err("there is no instruction at its entry".to_owned());
    };
    let start = first.address();
    let mut walk = Walk::default();
    let mut kept = needs.registers.to_vec();
    if needs.return_address == ReturnAddress::OnTop {
        kept.extend(Register::RETURN_ADDRESS);
    }
    let mut in_program: Option<Entry> = None;
    let mut fallback: Option<Entry> = None;
    // Where a single step faults, the program's handler may go on elsewhere.
    let mut faulting: Option<Entry> = None;
    let mut last_resort: Option<Entry> = None;
    let mut refusal = None;
    for instruction in body.code.iter().take(MAX_INSTRUCTIONS) {
        let address = instruction.address();
        if address - start >= MAX_BYTES || loops_between(body, start, address) {
            break;
        }
        let on_top = needs.return_address == ReturnAddress::Known || walk.sp_adjust == 0;
        let condition = match needs.return_address {
            ReturnAddress::Known => stack_suffices(body, instruction),
            ReturnAddress::OnTop => None,
        };
        // Where branches land, the probe stands only if it must.
        let elsewhere =
            instruction.is_branch_target() && needs.return_address == ReturnAddress::Known;
        // A call that grows the stack would make a mark before and another after it.
        let twice = condition.is_none() && grows_stack_later(body, instruction);
        if on_top && !elsewhere && !needs.taken.contains(&address) {
            match kernel.class(body::bytes(binary, instruction)) {
                Ok(class) => {
                    let entry = walk.entry(body, instruction, class);
                    let entry = Entry {
                        condition,
                        // Behind the check.
                        repeated: entry.repeated && condition.is_none(),
                        ..entry
                    };
                    let kind = match class {
                        _ if twice => &mut last_resort,
                        EntryClass::Emulated => return Ok(entry),
                        EntryClass::InProgram => &mut in_program,
                        EntryClass::SingleStep if instruction.may_fault() => &mut faulting,
                        EntryClass::SingleStep => &mut fallback,
                    };
                    kind.get_or_insert(entry);
                }
                Err(why) => {
                    refusal.get_or_insert_with(|| format!("'{}': {why}", instruction.text()));
                }
            }
        }
        if grows_stack(body, instruction) {
            walk.checked_stack = true;
        } else if !walk.pass(instruction, &kept) {
            break;
        }
    }
    let found = in_program.or(fallback).or(faulting).or(last_resort);
    found.ok_or_else(|| {
        refusal.unwrap_or_else(|| "it is too short: its entry is also its end".to_owned())
    })
}

/// Whether a jump in the function goes to a place after its first instruction, up to `address`.
fn loops_between(body: &Body, start: u64, address: u64) -> bool {
    body.targets().any(|(_, to)| to > start && to <= address)
}

/// Whether an instruction is Go's stack check: a jump to a block that grows the stack, restores the argument
/// registers and starts the function again.
fn grows_stack(body: &Body, instruction: &Instruction) -> bool {
    let Flow::Branch(to) = instruction.flow() else {
        return false;
    };
    let Some(at) = body.index_of(to) else {
        return false;
    };
    let mut called = false;
    for next in &body.code[at..] {
        match next.flow() {
            Flow::Next => {}
            Flow::Call if !called => called = true,
            Flow::Jump(to) => return called && to == body.range.start,
            _ => return false,
        }
    }
    false
}

/// The condition under which Go's stack suffices, if an instruction is the last branch of the check.
fn stack_suffices(body: &Body, instruction: &Instruction) -> Option<Condition> {
    let mut later = body.code.iter().take(MAX_INSTRUCTIONS);
    let is_last = !later.any(|it| it.address() > instruction.address() && grows_stack(body, it));
    let condition = instruction.condition().filter(|_| is_last)?;
    grows_stack(body, instruction).then(|| condition.negated())
}

/// Whether such a check is at this instruction or one of the following.
fn grows_stack_later(body: &Body, instruction: &Instruction) -> bool {
    let later = body.code.iter().take(MAX_INSTRUCTIONS);
    later
        .filter(|i| i.address() >= instruction.address())
        .any(|i| grows_stack(body, i))
}

/// State on the way from the first instruction.
#[derive(Default)]
struct Walk {
    sp_adjust: i64,
    /// After the stack check: jumps back to the start pass this place once more.
    checked_stack: bool,
}

impl Walk {
    fn entry(&self, body: &Body, instruction: &Instruction, class: EntryClass) -> Entry {
        let start = body.range.start;
        Entry {
            address: instruction.address(),
            offset: instruction.address() - start,
            class,
            text: instruction.text(),
            sp_adjust: self.sp_adjust,
            condition: None,
            repeated: !self.checked_stack && body.targets().any(|(_, to)| to == start),
        }
    }

    /// Advances over an instruction; false if the probe must not be after it.
    fn pass(&mut self, instruction: &Instruction, registers: &[Register]) -> bool {
        if instruction.flow() != Flow::Next
            || !instruction.is_one_step()
            || instruction.writes_memory() && !instruction.saves_registers(self.sp_adjust)
            || instruction.changes(registers)
        {
            return false;
        }
        let Some(change) = instruction.stack_change() else {
            return false;
        };
        self.sp_adjust -= change;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::testing::assembled;

    /// Functions whose instructions are known byte for byte.
    const SOURCE: &str = r#"
F(fenced, "endbr64\n push %rbx\n pop %rbx\n ret")
F(moved, "sub $24,%rsp\n xor %eax,%eax\n test %rdi,%rdi\n je 1f\n nop\n1: add $24,%rsp\n ret")
F(clobbers, "mov %rsi,%rdi\n push %rbx\n pop %rbx\n ret")
F(writes, "mov %rdi,-8(%rsp)\n push %rbx\n pop %rbx\n ret")
F(rounds, "xor %eax,%eax\n1: mov %rdi,%rdx\n push %rbx\n pop %rbx\n dec %rdi\n jnz 1b\n ret")
F(again, "mov %rdi,%rdx\n push %rbx\n pop %rbx\n dec %rdi\n jnz again\n ret")
F(loads, "mov (%rdi),%rax\n mov %rsi,%rdx\n add %rdx,%rax\n ret")
F(nothing, "ret")
F(locked, "lock incl (%rdi)\n push %rbx\n pop %rbx\n ret")
F(patchable, ".byte 0x0f,0x1f,0x44,0,0\n push %rbx\n pop %rbx\n ret")
F(nop5, "mov %rdi,%rax\n .byte 0x0f,0x1f,0x44,0,0\n ret")
F(grows, "cmp 16(%r14),%rsp\n jbe 1f\n push %rbp\n mov %rsp,%rbp\n pop %rbp\n ret\n"
    "1: mov %rax,8(%rsp)\n call nothing\n mov 8(%rsp),%rax\n jmp grows")
int main(void) { return 0; }
"#;

    fn chosen(name: &str, needs: Needs<'_>) -> Result<Entry, String> {
        let program = assembled(SOURCE);
        let binary = program.open();
        let function = binary
            .functions
            .iter()
            .find(|f| f.name == name)
            .expect("defined");
        let range = binary.extent(function.address).expect("sized");
        let body = Body::read(&binary, range);
        choose(&binary, Kernel::from_release("6.18"), &body, needs)
    }

    fn place(name: &str, needs: Needs<'_>) -> (u64, EntryClass, i64) {
        let entry = chosen(name, needs).unwrap_or_else(|why| panic!("{name}: {why}"));
        (entry.offset, entry.class, entry.sp_adjust)
    }

    /// The probe moves to a cheap instruction, and the change of the stack pointer is known.
    #[test]
    fn moves_to_cheap_instructions() {
        let any = Needs::default();
        assert_eq!(place("fenced", any), (4, EntryClass::Emulated, 0));
        assert_eq!(place("moved", any), (9, EntryClass::Emulated, 24));
        assert_eq!(place("nop5", any), (0, EntryClass::SingleStep, 0));
        assert_eq!(place("patchable", any), (5, EntryClass::Emulated, 0));
        // Of dear ones it takes one that can't fault.
        assert_eq!(place("loads", any), (3, EntryClass::SingleStep, 0));
    }

    /// A uretprobe needs the return address on top of the stack.
    #[test]
    fn stays_for_a_uretprobe() {
        let needs = Needs {
            return_address: ReturnAddress::OnTop,
            ..Needs::default()
        };
        assert_eq!(place("moved", needs), (0, EntryClass::SingleStep, 0));
        assert_eq!(place("fenced", needs).0, 4);
    }

    /// It never moves past a change of a register that is read, a write, or the target of a loop.
    #[test]
    fn stays_in_front() {
        let rdi = [Register::ARGUMENTS[0]];
        let rsi = [Register::ARGUMENTS[1]];
        let reads = |registers| Needs {
            registers,
            ..Needs::default()
        };
        assert_eq!(place("clobbers", reads(&rdi)).0, 0);
        assert_eq!(place("clobbers", reads(&rsi)).0, 3);
        assert_eq!(place("writes", Needs::default()).0, 0);
        assert_eq!(
            place("rounds", Needs::default()),
            (0, EntryClass::SingleStep, 0)
        );
        assert!(chosen("again", Needs::default()).expect("chosen").repeated);
    }

    /// Go functions restart after growing their stack: the probe is placed at the branch of that check, with a mark
    /// only where the stack suffices.
    #[test]
    fn at_the_stack_check() {
        let rax = [Register::GO_ARGUMENTS[0]];
        let needs = Needs {
            registers: &rax,
            ..Needs::default()
        };
        let entry = chosen("grows", needs).expect("chosen");
        assert_eq!((entry.offset, entry.class), (4, EntryClass::Emulated));
        let condition = entry.condition.expect("a condition");
        let (carry, zero) = (1, 1 << 6);
        assert!(condition.holds(0) && !condition.holds(carry) && !condition.holds(zero));
        assert!(!entry.repeated);
    }

    /// A uretprobe has no condition: there the probe is placed after the check, which each call passes once.
    #[test]
    fn behind_the_stack_check() {
        let rax = [Register::GO_ARGUMENTS[0]];
        let needs = Needs {
            registers: &rax,
            return_address: ReturnAddress::OnTop,
            ..Needs::default()
        };
        assert_eq!(place("grows", needs), (6, EntryClass::Emulated, 0));
        assert!(!chosen("grows", needs).expect("chosen").repeated);
    }

    /// Instructions that the kernel refuses, or that are also an end, are not chosen.
    #[test]
    fn refusals() {
        let why = chosen("locked", Needs::default()).expect_err("refused");
        assert!(why.contains("lock"), "{why}");
        let start = chosen("nothing", Needs::default()).expect("alone").address;
        let taken = [start];
        let needs = Needs {
            taken: &taken,
            ..Needs::default()
        };
        assert!(
            chosen("nothing", needs)
                .expect_err("taken")
                .contains("too short")
        );
    }
}
