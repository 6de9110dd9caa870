//! References to a function: direct calls and jumps, or anything else from which its address may be known.
//!
//! Instructions are not decoded: every field of code that holds the distance to a function's first byte counts, and
//! every word of data that holds its address. What is taken for a reference by chance only makes a function seem
//! better known than it is, so nothing is missed. Not seen are addresses that a program computes from others; no
//! compiler does so for functions, except Go's.

use std::collections::BTreeSet;
use std::ops::Range;

use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SectionKind, elf};

use super::object_file::Elf;

/// Sections that describe functions without referring to them for a call.
const DESCRIPTIONS: [&str; 6] = [
    ".eh_frame",
    ".eh_frame_hdr",
    ".gcc_except_table",
    ".sframe",
    ".gnu.hash",
    ".hash",
];

/// Sizes of a constant between a field with a distance and the next instruction.
const CONSTANTS: [u64; 3] = [1, 2, 4];

/// References to all functions of a binary.
#[derive(Debug, Default)]
pub(crate) struct References {
    /// Fields of instructions that hold the distance from the next instruction: the function, and the field's address.
    direct: Vec<(u64, u64)>,
    /// Functions that are referred to in other ways.
    otherwise: BTreeSet<u64>,
}

impl References {
    /// Finds all references to the functions that start at `starts`. Cost: the size of the binary.
    pub(super) fn read(file: &Elf<'_>, starts: &Starts) -> Self {
        let mut found = Self::default();
        // Otherwise addresses are data only, as a program may be loaded anywhere.
        let is_fixed = file.elf_header().e_type.get(object::LittleEndian) == elf::ET_EXEC;
        for section in file.sections() {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
                continue;
            };
            let name = section.name().unwrap_or_default();
            let describes = DESCRIPTIONS.contains(&name) || section.kind() == SectionKind::Note;
            if sh_flags.0 & elf::SHF_ALLOC.0 == 0 || describes {
                continue;
            }
            let data = section.data().unwrap_or_default();
            let at = section.address();
            if sh_flags.0 & elf::SHF_EXECINSTR.0 != 0 {
                found.code(data, at, starts);
            } else {
                found.distances(data, at, starts);
            }
            let words = data.windows(8).filter_map(|word| word.try_into().ok());
            let words = words.map(u64::from_le_bytes);
            found.otherwise.extend(words.filter(|it| starts.has(*it)));
            if is_fixed {
                let words = data.windows(4).map(|word| u64::from(number(word)));
                found.otherwise.extend(words.filter(|it| starts.has(*it)));
            }
        }
        let exported = file.dynamic_symbols().map(|symbol| symbol.address());
        found.otherwise.extend(exported.chain([file.entry()]));
        found.direct.sort_unstable();
        found
    }

    fn code(&mut self, code: &[u8], at: u64, starts: &Starts) {
        for (index, word) in code.windows(4).enumerate() {
            let field = at.wrapping_add(index as u64);
            // One byte or two; fewer at the section's start.
            let opcode = &code[index.saturating_sub(2)..index];
            let distance = number(word).cast_signed();
            // Padding in front of a function is a nop that ends in zeros.
            if distance == 0 && !matches!(opcode, [.., 0xe8 | 0xe9] | [0x0f, 0x80..=0x8f]) {
                continue;
            }
            let next = field.wrapping_add(4);
            let target = next.wrapping_add_signed(i64::from(distance));
            if starts.has(target) {
                self.direct.push((target, field));
            }
            let further = CONSTANTS.map(|size| target.wrapping_add(size));
            self.otherwise
                .extend(further.into_iter().filter(|it| starts.has(*it)));
        }
    }

    /// Words of data that hold the distance from themselves.
    fn distances(&mut self, data: &[u8], at: u64, starts: &Starts) {
        for (field, word) in (at..).step_by(4).zip(data.chunks_exact(4)) {
            let target = field.wrapping_add_signed(i64::from(number(word).cast_signed()));
            if starts.has(target) {
                self.otherwise.insert(target);
            }
        }
    }

    /// Fields of instructions that refer to the function, if nothing else does.
    pub(crate) fn only_direct(&self, function: u64) -> Option<impl Iterator<Item = u64> + '_> {
        if self.otherwise.contains(&function) {
            return None;
        }
        let from = self.direct.partition_point(|(to, _)| *to < function);
        let same = self.direct[from..].iter();
        Some(
            same.take_while(move |(to, _)| *to == function)
                .map(|(_, field)| *field),
        )
    }
}

/// A little-endian number of four bytes.
fn number(word: &[u8]) -> u32 {
    word.try_into().map_or(0, u32::from_le_bytes)
}

/// Starts of functions, as a bit for each byte of code.
#[derive(Debug)]
pub(super) struct Starts {
    range: Range<u64>,
    bits: Vec<u64>,
}

impl Starts {
    /// Those of `all` that lie in `range`.
    pub(super) fn new(range: Range<u64>, all: impl IntoIterator<Item = u64>) -> Self {
        let size = range.end.saturating_sub(range.start);
        let words = usize::try_from(size / 64).map_or(0, |words| words + 1);
        let mut starts = Self {
            range,
            bits: vec![0; words],
        };
        for start in all {
            if let Some((word, bit)) = starts.place(start) {
                starts.bits[word] |= bit;
            }
        }
        starts
    }

    fn place(&self, address: u64) -> Option<(usize, u64)> {
        if !self.range.contains(&address) {
            return None;
        }
        let offset = address - self.range.start;
        Some((usize::try_from(offset / 64).ok()?, 1 << (offset % 64)))
    }

    fn has(&self, address: u64) -> bool {
        self.place(address)
            .is_some_and(|(word, bit)| self.bits[word] & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use crate::binary::testing::compile;

    /// Calls are distinguished from addresses that are stored, passed, exported, or jumped to.
    #[test]
    fn kinds() {
        let source = r#"
#define F(name) __attribute__((noinline, noipa, used)) static int name(int n) { __asm__ volatile("" ::: "memory"); return n + 1; }
F(called) F(stored) F(passed) F(jumped)
int (*volatile table[])(int) = {stored};
void take(int (*)(int));
__attribute__((noinline, noipa)) void take(int (*f)(int)) { table[0] = f; }
__attribute__((noinline, noipa)) int on(int n) { return jumped(n * 3); }
int main(int argc, char **argv) { take(passed); return called(argc) + called(argc + 7) + table[0](argc) + on(argc); }
"#;
        for flags in [
            &["-O2"][..],
            &["-O2", "-no-pie", "-fno-pie"],
            &["-O2", "-static-pie", "-fPIE"],
            &["-O2", "-fuse-ld=bfd", "-Wl,-z,pack-relative-relocs"],
        ] {
            let program = compile("gcc", source, flags);
            let binary = program.open();
            let calls = |name: &str| {
                let mut functions = binary.functions.iter();
                let function = functions.find(|it| it.name == name).expect("defined");
                let fields = binary.references()?.only_direct(function.address)?;
                let is_call = |field: &u64| binary.bytes(&(field - 1..*field)) == [0xe8];
                let fields: Vec<u64> = fields.collect();
                // A short jump is seen elsewhere.
                let known = !fields.is_empty() && fields.iter().all(is_call);
                known.then_some(fields.len())
            };
            assert_eq!(calls("called"), Some(2), "{flags:?}");
            for other in ["stored", "passed", "jumped", "main"] {
                assert_eq!(calls(other), None, "{other} {flags:?}");
            }
        }
        let program = compile("gcc", source, &["-O2", "-rdynamic"]);
        let binary = program.open();
        let on = binary
            .functions
            .iter()
            .find(|it| it.name == "on")
            .expect("defined");
        let references = binary.references().expect("has sections");
        assert!(references.only_direct(on.address).is_none(), "exported");
    }
}
