//! The instructions that end a function's visits: every `ret` and tail jump, or cheaper instructions on the way to
//! them (`exits`).
//!
//! Probes there are safe with any unwinder. At the exits the stack pointer is the same as at the function's first
//! instruction, so the mark's stack pointer identifies the frame. The function is read completely, including parts
//! that compilers move away (`f.cold`). Anything ambiguous is refused, never guessed.
//!
//! A conditional jump to another function may leave or stay; the flags tell which when the mark is made. Where it
//! can't be marked (it is in front of the place at which the entry is), the mark is made at that function's entry
//! instead (at its returns, if it has no name and may be a part of this function), with its frame's stack pointer:
//! calls from elsewhere have a stack pointer that matches no open visit.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;

use super::body::{self, Body};
use super::entry::{self, Needs};
use super::exits::{self, EndSite, Graph};
use crate::arch::{EntryClass, Flow, IndirectJump, Instruction, Kernel, Register, idioms};
use crate::binary::demangle::without_version;
use crate::binary::elf::Binary;
use crate::binary::frames::Depth;

/// Maximum number of parts of a function.
const MAX_PARTS: usize = 16;

/// All ends of a function.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ends {
    /// Places to probe, by address.
    pub sites: Vec<EndSite>,
    /// Targets of conditional jumps out of the function that can't be marked there, to be marked at their entries.
    pub conditional: Vec<u64>,
    /// Number of `ret`s and of tail jumps.
    pub exits: (usize, usize),
    /// Number of sites if they are not in the function but in its callers, else 0.
    pub behind_calls: usize,
}

impl Ends {
    /// Text such as `3 ret and 1 tail jump`, or `2 emulated instructions for 3 ret`.
    #[must_use]
    pub(crate) fn describe(&self) -> String {
        let (rets, tails) = self.exits;
        let mut exits = format!("{rets} ret");
        if tails > 0 {
            let _ = write!(exits, " and {tails} tail jump");
        }
        if self.behind_calls > 0 {
            return format!(
                "{} emulated instructions behind its calls",
                self.behind_calls
            );
        }
        let cheap = |site: &&EndSite| site.class != EntryClass::SingleStep;
        let cheap = self.sites.iter().filter(cheap).count();
        match cheap {
            0 => exits,
            1 if self.sites.len() == 1 => format!("1 emulated instruction for {exits}"),
            _ if cheap == self.sites.len() => format!("{cheap} emulated instructions for {exits}"),
            _ => format!(
                "{} instructions for {exits}, {cheap} of them emulated",
                self.sites.len()
            ),
        }
    }
}

/// Why the ends of a function are ambiguous, one clause.
pub(crate) type Unclear = String;

/// Finds every end of the function at `range`: its `ret`s and tail jumps.
///
/// # Errors
/// A clause that describes the ambiguity.
pub(crate) fn find(binary: &Binary, kernel: Kernel, range: Range<u64>) -> Result<Ends, Unclear> {
    let search = Search::with_ends(binary, kernel, range)?;
    search.ends(|sites| {
        let classed = |(site, class): Classed| {
            Ok(EndSite {
                class: class?,
                ..site
            })
        };
        let sites: Result<_, Unclear> = sites.into_iter().map(classed).collect();
        Ok((sites?, search.conditional.keys().copied().collect()))
    })
}

/// Finds the cheapest instructions that each way out of the function at `range` passes exactly once, where
/// `registers` have their final values.
///
/// # Errors
/// A clause that describes the ambiguity.
pub(crate) fn cheapest(
    binary: &Binary,
    kernel: Kernel,
    range: Range<u64>,
    registers: &[Register],
) -> Result<Ends, Unclear> {
    let search = Search::with_ends(binary, kernel, range)?;
    let taken: Vec<u64> = search
        .exits
        .iter()
        .map(|(exit, _)| exit.address())
        .collect();
    let needs = Needs {
        taken: &taken,
        ..Needs::default()
    };
    let start = search.main.start;
    let entry = entry::choose(binary, kernel, &search.bodies[0], needs);
    let wanted = exits::Wanted {
        binary,
        kernel,
        registers,
        entry: (start, entry.map_or(u64::MAX, |entry| entry.address)),
    };
    let flow = Graph::read(binary, &search.bodies, &taken.into_iter().collect());
    search.ends(|sites| {
        let sites: Vec<EndSite> = sites.into_iter().map(|(site, _)| site).collect();
        let leaving = search.conditional.keys().copied().collect();
        exits::cheapest(&wanted, &flow, &sites, &leaving)
    })
}

/// The function at `range` with all of its parts, and the ways through it, if each of its switches is known.
pub(super) fn ways(binary: &Binary, kernel: Kernel, range: Range<u64>) -> Option<Graph> {
    let search = Search::run(binary, kernel, range).ok()?;
    let exits = search.exits.iter().map(|(exit, _)| exit.address());
    let flow = Graph::read(binary, &search.bodies, &exits.collect());
    flow.tables_known.then_some(flow)
}

/// Whether control reaches the instruction at `next` of the function at `range` only from the one at `before`, by
/// falling through; `false` if that is not known.
pub(crate) fn is_reached_only_from(
    binary: &Binary,
    kernel: Kernel,
    range: Range<u64>,
    (before, next): (u64, u64),
) -> bool {
    ways(binary, kernel, range).is_some_and(|flow| flow.leads_only(before, next))
}

/// Checks the probes of [`cheapest`]: returns the exits that some path reaches past no probe or past several, with
/// their number.
///
/// # Errors
/// As [`cheapest`].
#[cfg(test)]
pub fn check(
    binary: &Binary,
    kernel: Kernel,
    range: Range<u64>,
    registers: &[Register],
) -> Result<(Vec<(u64, usize)>, Ends), Unclear> {
    let search = Search::with_ends(binary, kernel, range.clone())?;
    let ends = cheapest(binary, kernel, range, registers)?;
    let outs = search
        .exits
        .iter()
        .map(|(exit, _)| exit.address())
        .collect();
    let flow = Graph::read(binary, &search.bodies, &outs);
    let marked = |it: &(&u64, &u64)| !ends.conditional.contains(it.1);
    let leaving = search.conditional.iter().filter(marked);
    let leaving = leaving.map(|(branch, _)| *branch).collect();
    Ok((exits::passes(&flow, &ends.sites, &outs, &leaving), ends))
}

/// An exit and its class, or why it has none.
type Classed = (EndSite, Result<EntryClass, String>);

struct Search<'a> {
    binary: &'a Binary,
    kernel: Kernel,
    main: Range<u64>,
    parts: Vec<Range<u64>>,
    /// The parts' instructions.
    bodies: Vec<Body>,
    /// Exits, and whether each is a `ret`.
    exits: Vec<(Instruction, bool)>,
    /// Conditional jumps out of the function, and where they go.
    conditional: BTreeMap<u64, u64>,
}

impl<'a> Search<'a> {
    /// Reads the function at `range` and all parts of it.
    fn run(binary: &'a Binary, kernel: Kernel, range: Range<u64>) -> Result<Self, Unclear> {
        let mut search = Self {
            binary,
            kernel,
            main: range.clone(),
            parts: Vec::new(),
            bodies: Vec::new(),
            exits: Vec::new(),
            conditional: BTreeMap::new(),
        };
        let mut waiting = vec![range];
        while let Some(range) = waiting.pop() {
            if search.parts.len() >= MAX_PARTS {
                return Err(format!("it has more than {MAX_PARTS} parts"));
            }
            let body = Body::read(binary, range.clone());
            if let Some(why) = body.broken {
                return Err(why);
            }
            search.parts.push(range);
            for index in 0..body.code.len() {
                if let Some(part) = search.instruction(&body, index, &waiting)? {
                    waiting.push(part);
                }
            }
            search.bodies.push(body);
        }
        Ok(search)
    }

    /// As [`Self::run`], for a function that must have an end.
    fn with_ends(binary: &'a Binary, kernel: Kernel, range: Range<u64>) -> Result<Self, Unclear> {
        let search = Self::run(binary, kernel, range)?;
        if search.exits.is_empty() && search.conditional.is_empty() {
            return Err("it never returns".to_owned());
        }
        Ok(search)
    }

    /// The ends, at the places chosen by `choose`, which also returns the conditional jumps that can't be marked.
    fn ends(
        &self,
        choose: impl FnOnce(Vec<Classed>) -> Result<(Vec<EndSite>, BTreeSet<u64>), Unclear>,
    ) -> Result<Ends, Unclear> {
        let one = |(instruction, is_ret): &(Instruction, bool)| {
            let bytes = body::bytes(self.binary, instruction);
            let class = self.kernel.class(bytes);
            let text = instruction.text();
            let class = class.map_err(|why| format!("'{text}': {why}"));
            let site = EndSite {
                address: instruction.address(),
                class: EntryClass::SingleStep,
                text,
                result_known: *is_ret,
                sp_adjust: 0,
                condition: None,
                passed: 0.0,
            };
            (site, class)
        };
        let rets = self.exits.iter().filter(|(_, is_ret)| *is_ret).count();
        let (mut sites, unmarked) = choose(self.exits.iter().map(one).collect())?;
        sites.sort_by_key(|site| site.address);
        let targets = unmarked.iter().map(|branch| self.conditional[branch]);
        let conditional: BTreeSet<u64> = targets.collect();
        let marked = self.conditional.len() - unmarked.len();
        Ok(Ends {
            sites,
            conditional: conditional.into_iter().collect(),
            exits: (rets, self.exits.len() - rets + marked),
            behind_calls: 0,
        })
    }

    /// Examines one instruction; returns a further part of the function if it jumps there.
    fn instruction(
        &mut self,
        body: &Body,
        index: usize,
        waiting: &[Range<u64>],
    ) -> Result<Option<Range<u64>>, Unclear> {
        let instruction = &body.code[index];
        match instruction.flow() {
            Flow::Return => {
                if !instruction.is_plain_return() {
                    return Err(format!("it leaves by '{}'", instruction.text()));
                }
                self.exits.push((*instruction, true));
            }
            Flow::Jump(_) | Flow::Branch(_) => {
                return self.jump(instruction, waiting);
            }
            Flow::IndirectJump => match self.indirect(body, index) {
                IndirectJump::Switch => {}
                IndirectJump::TailCall => self.exits.push((*instruction, false)),
                // A switch would have case labels that no other instruction leads to.
                _ if all_else_is_reached(body) => {
                    self.exits.push((*instruction, false));
                }
                _ => {
                    return Err(format!(
                        "'{}' at {:#x} may be a switch or a tail call",
                        instruction.text(),
                        instruction.address()
                    ));
                }
            },
            _ => {}
        }
        Ok(None)
    }

    /// A direct jump: within the function, to a part of it, or out.
    fn jump(
        &mut self,
        instruction: &Instruction,
        waiting: &[Range<u64>],
    ) -> Result<Option<Range<u64>>, Unclear> {
        let Some(to) = instruction.jump_target() else {
            return Ok(None);
        };
        let known = self.parts.iter().chain(waiting);
        if known.clone().any(|part| part.contains(&to)) {
            return Ok(None);
        }
        if let Some(part) = self.part(to) {
            return Ok(Some(part));
        }
        let leaves = match self.depth(instruction.address()) {
            Some(depth) => depth == Depth::RETURN,
            None => self.binary.symbol_at(to).is_some(),
        };
        if !leaves {
            return Err(format!(
                "the jump at {:#x} goes to {to:#x}, which belongs to no known function",
                instruction.address()
            ));
        }
        if matches!(instruction.flow(), Flow::Branch(_)) {
            // Without a name it may be a part of this function that does not come back. Marking its returns is
            // right in both cases.
            if self.binary.symbol_at(to).is_none() && !self.binary.is_stub(to) {
                return Ok(self.binary.frames.range_of(to));
            }
            self.conditional.insert(instruction.address(), to);
        } else {
            self.exits.push((*instruction, false));
        }
        Ok(None)
    }

    /// The range of a part of this function that was moved away, if it contains `to`.
    fn part(&self, to: u64) -> Option<Range<u64>> {
        // A call into another library: a PLT stub has no frame of its own.
        if self.binary.is_stub(to) {
            return None;
        }
        let frame = self.binary.frames.range_of(to);
        let range = frame.clone().or_else(|| self.binary.extent(to))?;
        if let Some(symbol) = self.binary.symbol_at(range.start) {
            let cold = without_version(&symbol.name).contains(".cold");
            // With a symbol of its own it is another function.
            return cold.then_some(range);
        }
        if self.depth(to).is_some_and(|depth| depth != Depth::RETURN) {
            return Some(range);
        }
        // Without names: a part jumps back to after the entry, another function does not.
        let body = Body::read(self.binary, range.clone());
        let back = body
            .targets()
            .any(|(_, back)| back > self.main.start && back < self.main.end);
        (body.broken.is_none() && back).then_some(range)
    }

    fn depth(&self, address: u64) -> Option<Depth> {
        self.binary.frames.depth_at(address)
    }

    /// Distinguishes a `switch` from a tail call through a pointer.
    fn indirect(&self, body: &Body, index: usize) -> IndirectJump {
        let jump = &body.code[index];
        match self.depth(jump.address()) {
            // The frame still exists, so the jump can't leave the function.
            Some(depth) if depth != Depth::RETURN => return IndirectJump::Switch,
            _ => {}
        }
        match idioms::indirect_jump(&body.code, index, body::bytes(self.binary, jump)) {
            IndirectJump::Table(table) => self.by_table(table),
            known => known,
        }
    }

    /// Decides by the first address of its table.
    fn by_table(&self, table: u64) -> IndirectJump {
        let bytes = self.binary.bytes(&(table..table.saturating_add(8)));
        match <[u8; 8]>::try_from(bytes).map(u64::from_le_bytes) {
            Ok(first) if self.parts.iter().any(|part| part.contains(&first)) => {
                IndirectJump::Switch
            }
            Ok(first) if self.binary.is_code(first) => IndirectJump::TailCall,
            _ => IndirectJump::Unclear,
        }
    }
}

/// Whether direct jumps, or going on, lead from a function's entry to every instruction but padding.
fn all_else_is_reached(body: &Body) -> bool {
    let mut reached = vec![false; body.code.len()];
    let mut waiting = vec![0];
    while let Some(index) = waiting.pop() {
        let Some(seen) = reached.get_mut(index) else {
            continue;
        };
        if std::mem::replace(seen, true) {
            continue;
        }
        let instruction = &body.code[index];
        waiting.extend(instruction.jump_target().and_then(|to| body.index_of(to)));
        if instruction.flow().falls_through() {
            waiting.push(index + 1);
        }
    }
    reached
        .iter()
        .zip(&body.code)
        .all(|(reached, instruction)| *reached || instruction.is_filler())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::testing::{Program, assembled, compile};

    /// Functions with known exits.
    const SOURCE: &str = r#"
F(other, "xor %eax,%eax\n ret")
F(two, "test %edi,%edi\n je 1f\n ret\n1: ret $8")
F(leaves, "test %edi,%edi\n je 1f\n jmp other\n1: jmp *8(%rdi)")
F(maybe, "test %edi,%edi\n jne other\n ret")
F(pointer, "mov %rdi,%rax\n jmp *%rax")
F(unsure, "test %edi,%edi\n je 1f\n jmp *(%rdi,%rsi,8)\n xor %eax,%eax\n1: ret")
F(through_array, "push %rbx\n mov %rdi,%rbx\n call other\n pop %rbx\n lea 9f(%rip),%rax\n mov (%rax,%rbx,8),%rax\n jmp *%rax\n"
    " nop\n.section .data\n9: .quad other\n.text\n")
F(data, "jmp 1f+1\n1: movabs $0x1122334455667788,%rax\n ret")
F(forever, "1: jmp 1b")
F(far, "lret")
F(table, "cmp $1,%edi\n ja 1f\n lea 9f(%rip),%rdx\n movslq (%rdx,%rdi,4),%rax\n add %rdx,%rax\n jmp *%rax\n"
    "8: ret\n1: ret\n.section .rodata\n9: .long 8b-9b, 1b-9b\n.text\n")
asm(".section .text.unlikely\n.type split.cold,@function\nsplit.cold: .cfi_startproc\n"
    " test %esi,%esi\n je 7f\n ret\n7: jmp 6f\n.cfi_endproc\n.size split.cold,.-split.cold\n");
F(split, "test %edi,%edi\n jne split.cold\n nop\n6: nop\n ret")
int main(void) { return 0; }
"#;

    fn ends(program: &Program, name: &str) -> Result<Ends, Unclear> {
        let binary = program.open();
        let function = binary
            .functions
            .iter()
            .find(|f| f.name == name)
            .expect("defined");
        let range = binary.extent(function.address).expect("sized");
        find(&binary, Kernel::from_release("6.18"), range)
    }

    /// Number of rets and of tail jumps found.
    fn counts(program: &Program, name: &str) -> (usize, usize, usize) {
        let ends = ends(program, name).unwrap_or_else(|why| panic!("{name}: {why}"));
        let rets = ends.sites.iter().filter(|site| site.result_known).count();
        (rets, ends.sites.len() - rets, ends.conditional.len())
    }

    /// Every exit is found and no switch is mistaken for one.
    #[test]
    fn exits() {
        let program = assembled(SOURCE);
        let counts = |name| counts(&program, name);
        assert_eq!(counts("two"), (2, 0, 0));
        assert_eq!(counts("leaves"), (0, 2, 0));
        assert_eq!(counts("maybe"), (1, 0, 1));
        assert_eq!(counts("pointer"), (0, 1, 0));
        assert_eq!(counts("through_array"), (0, 1, 0));
        assert_eq!(counts("table"), (2, 0, 0));
        assert_eq!(counts("split"), (2, 0, 0));
    }

    /// A tail call into another library leaves through its stub.
    #[test]
    fn library_calls() {
        let source = "#include <stdio.h>\nvolatile long s;\n__attribute__((noinline)) int f(int n) { if (n > 3) \
                      return 7; s++; return puts(\"x\"); }\nint main(int c, char **v) { return f(c); }";
        for flags in [&["-O2"][..], &["-O2", "-fcf-protection=full", "-no-pie"]] {
            let program = compile("gcc", source, flags);
            assert_eq!(counts(&program, "f"), (1, 1, 0), "{flags:?}");
        }
    }

    /// Ambiguous functions are refused with a reason.
    #[test]
    fn refusals() {
        let program = assembled(SOURCE);
        let why = |name| ends(&program, name).expect_err(name);
        assert!(why("unsure").contains("switch or a tail call"));
        assert!(why("data").contains("middle of an instruction"));
        assert_eq!(why("forever"), "it never returns");
        assert!(why("far").contains("leaves by"));
    }

    /// The compiler's own switches and cold parts, position independent or not, with and without symbols: stripping
    /// does not change the number of exits.
    #[test]
    fn compiled_code() {
        let source = r#"
#include <stdlib.h>
volatile long sink;
__attribute__((noinline)) int choose(int n) { switch (n) {
  case 0: sink += 3; return 1; case 1: sink *= 7; return 5; case 2: sink -= 9; return 8;
  case 3: sink ^= 1; return 2; case 4: sink += 77; return 11; case 5: sink |= 5; return 3;
  default: return sink; } }
__attribute__((cold, noinline)) void bad(int n) { sink += n; }
__attribute__((noinline)) int parted(int n) {
  if (__builtin_expect(n == 13, 0)) { bad(n); bad(n + 1); sink += n; return 7; } sink += n; return n * 2; }
int main(int argc, char **argv) { return choose(argc) + parted(argc); }
"#;
        for flags in [
            &["-O2"][..],
            &["-O2", "-no-pie", "-fno-pie"],
            &["-O2", "-static-pie", "-fPIE"],
            &["-O2", "-fcf-protection=full"],
        ] {
            let program = compile("gcc", source, flags);
            let before: Vec<Ends> = ["choose", "parted"]
                .iter()
                .map(|name| ends(&program, name).unwrap_or_else(|why| panic!("{name}: {why}")))
                .collect();
            assert!(before[0].sites.len() > 3 && before[0].conditional.is_empty());
            let addresses: Vec<u64> = {
                let binary = program.open();
                let find = |name| binary.functions.iter().find(|f| f.name == name);
                ["choose", "parted"]
                    .map(|name| find(name).expect("defined").address)
                    .to_vec()
            };
            program.strip();
            let binary = program.open();
            for (address, before) in addresses.iter().zip(&before) {
                let range = binary.extent(*address).expect("in .eh_frame");
                let after = find(&binary, Kernel::from_release("6.18"), range);
                assert_eq!(after.as_ref(), Ok(before), "{flags:?}");
            }
        }
    }
}
