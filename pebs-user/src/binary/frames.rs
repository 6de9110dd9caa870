//! Unwind tables: function boundaries, and where a function's caller is found at an address.

use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, DebugFrameOffset, EhFrame, EhFrameOffset,
    Encoding, EndianSlice, EvaluationResult, Format, LittleEndian, Location, UnwindContext,
    UnwindExpression, UnwindSection, UnwindTableRow, Value,
};
use object::{Object, ObjectSection};

use super::object_file::content;
use super::unwind::{Expression, Expressions, FrameRule, Registers, StackCopy};
use crate::arch::unwind;

/// Functions covered by `.eh_frame`, as virtual addresses in the file, sorted, without empty ones.
///
/// Works on stripped binaries. A function split by the compiler (`f.cold`) has two ranges.
#[cfg(test)]
#[must_use]
pub fn eh_frame_functions(file: &object::File<'_>) -> Vec<Range<u64>> {
    Frames::read(file)
        .entries
        .into_iter()
        .map(|entry| entry.range)
        .collect()
}

/// An entry (FDE).
#[derive(Clone, Debug)]
struct Entry {
    range: Range<u64>,
    offset: usize,
    /// Whether it is of `.debug_frame`.
    debug: bool,
}

/// The unwind tables of one binary: `.eh_frame`, and `.debug_frame` for code that the former does not cover.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    eh_frame: Vec<u8>,
    debug_frame: Vec<u8>,
    bases: BaseAddresses,
    entries: Vec<Entry>,
    /// Whether some function has landing pads: code that runs when an exception passes.
    pub personality: bool,
}

type Row = UnwindTableRow<usize>;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

impl Frames {
    /// Reads `.eh_frame`; empty if the binary has none. Stops at the first entry that can't be parsed.
    #[must_use]
    pub(crate) fn read<'data>(file: &impl Object<'data>) -> Self {
        let mut frames = Self::default();
        if let Some(section) = file.section_by_name(".eh_frame")
            && let Ok(data) = content(&section)
        {
            frames.eh_frame = data;
            frames.bases = frames.bases.set_eh_frame(section.address());
        }
        let address = |name| file.section_by_name(name).map_or(0, |s| s.address());
        frames.bases = frames
            .bases
            .set_text(address(".text"))
            .set_got(address(".got"));
        let table = eh_table(&frames.eh_frame);
        let (entries, personality) = scan(&table, &frames.bases, false);
        frames.entries = in_order(entries);
        frames.personality = personality;
        frames
    }

    /// The table of `.eh_frame` alone, at an address.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of_section(section: Vec<u8>, address: u64) -> Self {
        let mut frames = Self {
            eh_frame: section,
            bases: BaseAddresses::default().set_eh_frame(address),
            ..Self::default()
        };
        let (entries, _) = scan(&eh_table(&frames.eh_frame), &frames.bases, false);
        frames.entries = in_order(entries);
        frames
    }

    /// Reads both tables.
    #[must_use]
    pub(crate) fn read_all<'data>(file: &impl Object<'data>) -> Self {
        let mut frames = Self::read(file);
        if let Some(section) = file.section_by_name(".debug_frame")
            && let Ok(data) = content(&section)
        {
            let (entries, _) = scan(&debug_table(&data), &frames.bases, true);
            let is_new = |entry: &Entry| frames.entry_of(entry.range.start).is_none();
            let new: Vec<Entry> = entries.into_iter().filter(is_new).collect();
            frames.entries.extend(new);
            frames.entries = in_order(std::mem::take(&mut frames.entries));
            frames.debug_frame = data;
        }
        frames
    }

    /// Every range, sorted.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = &Range<u64>> {
        self.entries.iter().map(|entry| &entry.range)
    }

    /// The range that holds an address. O(log n).
    #[must_use]
    pub(crate) fn range_of(&self, address: u64) -> Option<Range<u64>> {
        self.entry_of(address).map(|entry| entry.range.clone())
    }

    /// Start of the first range behind an address.
    pub(crate) fn starts_after(&self, address: u64) -> Option<u64> {
        let after = |entry: &Entry| entry.range.start <= address;
        let next = self.entries.get(self.entries.partition_point(after))?;
        Some(next.range.start)
    }

    fn entry_of(&self, address: u64) -> Option<&Entry> {
        let after = self
            .entries
            .partition_point(|entry| entry.range.start <= address);
        let entry = self.entries.get(after.checked_sub(1)?)?;
        entry.range.contains(&address).then_some(entry)
    }

    /// Bytes between the stack pointer and the top of the frame just before the instruction at `address` runs: 8 if
    /// the return address is on top of the stack, as at a function's entry and its `ret`. `None` if unknown or
    /// relative to another register.
    #[must_use]
    pub(crate) fn depth_at(&self, address: u64) -> Option<Depth> {
        self.with_row(address, |row, _| match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset }
                if *register == unwind::STACK_POINTER =>
            {
                Depth::Known(*offset)
            }
            _ => Depth::FramePointer,
        })
    }

    /// Reads the table's row for the state just before the instruction at `address` runs, and whether it is code to which
    /// a signal's handler returns.
    fn with_row<T>(&self, address: u64, read: impl FnOnce(&Row, bool) -> T) -> Option<T> {
        let entry = self.entry_of(address)?;
        let mut context = UnwindContext::new();
        let bases = &self.bases;
        match entry.debug {
            false => {
                let table = eh_table(&self.eh_frame);
                let offset = EhFrameOffset(entry.offset);
                let fde = table.fde_from_offset(bases, offset, EhFrame::cie_from_offset);
                let fde = fde.ok()?;
                let row = fde.unwind_info_for_address(&table, bases, &mut context, address);
                Some(read(row.ok()?, fde.is_signal_trampoline()))
            }
            true => {
                let table = debug_table(&self.debug_frame);
                let offset = DebugFrameOffset(entry.offset);
                let fde = table.fde_from_offset(bases, offset, DebugFrame::cie_from_offset);
                let fde = fde.ok()?;
                let row = fde.unwind_info_for_address(&table, bases, &mut context, address);
                Some(read(row.ok()?, fde.is_signal_trampoline()))
            }
        }
    }

    /// Rule to find the caller's registers before the instruction at `address` runs; `None` if the tables have none.
    ///
    /// Cost: some us.
    #[must_use]
    pub(crate) fn rule_at(&self, address: u64) -> Option<FrameRule> {
        let entry = self.entry_of(address)?;
        self.with_row(address, |row, is_signal| {
            FrameRule::of(row, is_signal, entry.debug)
        })
    }
}

impl Expressions for Frames {
    fn evaluate(
        &self,
        expression: Expression,
        initial: Option<u64>,
        registers: &Registers,
        stack: &StackCopy<'_>,
    ) -> Option<u64> {
        let encoding = Encoding {
            format: Format::Dwarf32,
            version: 4,
            address_size: 8,
        };
        let at = UnwindExpression {
            offset: expression.offset,
            length: expression.length,
        };
        let bytes = match expression.debug {
            false => at.get(&eh_table(&self.eh_frame)),
            true => at.get(&debug_table(&self.debug_frame)),
        };
        let mut evaluation = bytes.ok()?.evaluation(encoding);
        evaluation.set_max_iterations(EXPRESSION_STEPS);
        if let Some(initial) = initial {
            evaluation.set_initial_value(initial);
        }
        let mut state = evaluation.evaluate().ok()?;
        loop {
            state = match state {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register: of, .. } => {
                    evaluation.resume_with_register(Value::Generic(registers.get(of.0)?))
                }
                EvaluationResult::RequiresMemory {
                    address,
                    size: 8,
                    space: None,
                    ..
                } => evaluation.resume_with_memory(Value::Generic(stack.word(address)?)),
                _ => return None,
            }
            .ok()?;
        }
        match evaluation.as_result().last()?.location {
            Location::Address { address } => Some(address),
            _ => None,
        }
    }
}

/// Most steps of an expression.
const EXPRESSION_STEPS: u32 = 1000;

fn eh_table(data: &[u8]) -> EhFrame<Slice<'_>> {
    let mut table = EhFrame::new(data, LittleEndian);
    table.set_address_size(8);
    table.set_vendor(unwind::VENDOR);
    table
}

fn debug_table(data: &[u8]) -> DebugFrame<Slice<'_>> {
    let mut table = DebugFrame::new(data, LittleEndian);
    table.set_address_size(8);
    table.set_vendor(unwind::VENDOR);
    table
}

/// The entries of a table, and whether some function has landing pads.
fn scan<'a, S: UnwindSection<Slice<'a>>>(
    table: &S,
    bases: &BaseAddresses,
    debug: bool,
) -> (Vec<Entry>, bool) {
    let mut entries = Vec::new();
    let mut personality = false;
    let mut iter = table.entries(bases);
    while let Ok(Some(entry)) = iter.next() {
        match entry {
            CieOrFde::Cie(cie) => personality |= cie.personality().is_some(),
            CieOrFde::Fde(partial) => {
                let Ok(fde) = partial.parse(S::cie_from_offset) else {
                    continue;
                };
                if fde.len() > 0 && fde.initial_address() > 0 {
                    entries.push(Entry {
                        range: fde.initial_address()..fde.end_address(),
                        offset: fde.offset(),
                        debug,
                    });
                }
            }
        }
    }
    (entries, personality)
}

fn in_order(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by_key(|entry| entry.range.start);
    entries.dedup_by_key(|entry| entry.range.start);
    entries
}

/// Distance to the top of the frame, see [`Frames::depth_at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// This number of bytes above the stack pointer.
    Known(i64),
    /// Relative to another register: within the body of a function with a frame.
    FramePointer,
}

impl Depth {
    /// The return address is on top of the stack.
    pub(crate) const RETURN: Self = Self::Known(unwind::RETURN_ADDRESS_BYTES);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stripped binary of the distribution has function starts, and its entries have the return
    /// address on top of the stack.
    #[test]
    fn stripped_binary_has_functions() {
        let data = std::fs::read("/bin/ls").expect("ls is there");
        let file = object::File::parse(&*data).expect("ELF");
        let functions = eh_frame_functions(&file);
        assert!(functions.len() > 100, "{}", functions.len());
        assert!(
            functions
                .windows(2)
                .all(|pair| pair[0].start < pair[1].start)
        );
        let frames = Frames::read(&file);
        let at_return = functions
            .iter()
            .filter(|range| frames.depth_at(range.start) == Some(Depth::RETURN))
            .count();
        assert!(at_return * 10 > functions.len() * 8, "{at_return}");
        assert!(!frames.personality, "ls is plain C");
    }
}
