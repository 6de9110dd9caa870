//! Data of `.eh_frame`: function boundaries, and the location of the return address at an address.

use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EhFrameOffset, EndianSlice, LittleEndian,
    RegisterRule, UnwindContext, UnwindSection, UnwindTableRow,
};
use object::{Object, ObjectSection};

use super::object_file::content;
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
}

/// The unwind table of one binary.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    section: Vec<u8>,
    bases: BaseAddresses,
    entries: Vec<Entry>,
    /// Whether some function has landing pads: code that runs when an exception passes.
    pub personality: bool,
}

type Row = UnwindTableRow<usize>;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

impl Frames {
    /// Reads the table; empty if the binary has none. Stops at the first entry that can't be parsed.
    #[must_use]
    pub(crate) fn read<'data>(file: &impl Object<'data>) -> Self {
        let Some(section) = file.section_by_name(".eh_frame") else {
            return Self::default();
        };
        let Ok(data) = content(&section) else {
            return Self::default();
        };
        let address = |name| file.section_by_name(name).map_or(0, |s| s.address());
        let mut frames = Self {
            section: data,
            bases: BaseAddresses::default()
                .set_eh_frame(section.address())
                .set_text(address(".text"))
                .set_got(address(".got")),
            ..Self::default()
        };
        let (entries, personality) = frames.scan();
        frames.entries = entries;
        frames.personality = personality;
        frames
    }

    fn table(&self) -> EhFrame<Slice<'_>> {
        let mut table = EhFrame::new(&self.section, LittleEndian);
        table.set_address_size(8);
        table
    }

    fn scan(&self) -> (Vec<Entry>, bool) {
        let table = self.table();
        let mut entries = Vec::new();
        let mut personality = false;
        let mut iter = table.entries(&self.bases);
        while let Ok(Some(entry)) = iter.next() {
            match entry {
                CieOrFde::Cie(cie) => personality |= cie.personality().is_some(),
                CieOrFde::Fde(partial) => {
                    let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else {
                        continue;
                    };
                    if fde.len() > 0 && fde.initial_address() > 0 {
                        entries.push(Entry {
                            range: fde.initial_address()..fde.end_address(),
                            offset: fde.offset(),
                        });
                    }
                }
            }
        }
        entries.sort_by_key(|entry| entry.range.start);
        entries.dedup_by_key(|entry| entry.range.start);
        (entries, personality)
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
        self.with_row(address, |row| match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset }
                if *register == unwind::STACK_POINTER =>
            {
                Depth::Known(*offset)
            }
            _ => Depth::FramePointer,
        })
    }

    /// Reads the table's row for the state just before the instruction at `address` runs.
    fn with_row<T>(&self, address: u64, read: impl FnOnce(&Row) -> T) -> Option<T> {
        let entry = self.entry_of(address)?;
        let table = self.table();
        let offset = EhFrameOffset(entry.offset);
        let fde = table
            .fde_from_offset(&self.bases, offset, EhFrame::cie_from_offset)
            .ok()?;
        let mut context = UnwindContext::new();
        let row = fde
            .unwind_info_for_address(&table, &self.bases, &mut context, address)
            .ok()?;
        Some(read(row))
    }
}

impl Frames {
    /// Rule to find the caller before the instruction at `address` runs; `None` if the table has none, or one of a
    /// kind that is not supported.
    #[must_use]
    pub(crate) fn rule_at(&self, address: u64) -> Option<CallerRule> {
        self.with_row(address, rule_of).flatten()
    }
}

fn rule_of(row: &Row) -> Option<CallerRule> {
    if matches!(
        row.register(unwind::RETURN_ADDRESS),
        Some(RegisterRule::Undefined)
    ) {
        return Some(CallerRule::Outermost);
    }
    let saved_frame_pointer = match row.register(unwind::FRAME_POINTER) {
        None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => None,
        Some(RegisterRule::Offset(offset)) => Some(offset),
        Some(_) => return None,
    };
    match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } if *register == unwind::STACK_POINTER => {
            Some(CallerRule::Above {
                bytes: *offset,
                saved_frame_pointer,
            })
        }
        CfaRule::RegisterAndOffset { register, .. } if *register == unwind::FRAME_POINTER => {
            Some(CallerRule::FramePointer)
        }
        _ => None,
    }
}

/// Rule to find a function's caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerRule {
    /// The frame ends `bytes` above the stack pointer, with the return address as its last word.
    Above {
        /// Distance from the stack pointer to the frame's end.
        bytes: i64,
        /// Location of the caller's saved frame pointer, bytes from the frame's end; `None` if it is still in its
        /// register.
        saved_frame_pointer: Option<i64>,
    },
    /// The frame pointer leads there.
    FramePointer,
    /// There is no caller.
    Outermost,
    /// Code put in place of a return address by a uretprobe, not the program's own.
    Uretprobe,
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

    /// At the start of a function the return address is on top of the stack, and the caller's frame pointer in its
    /// register; within a function that keeps a frame pointer, it leads to the caller.
    #[test]
    fn rules_of_callers() {
        let data = std::fs::read("/bin/ls").expect("ls is there");
        let file = object::File::parse(&*data).expect("ELF");
        let frames = Frames::read(&file);
        let at_entry = CallerRule::Above {
            bytes: 8,
            saved_frame_pointer: None,
        };
        let entries = frames.ranges().map(|range| frames.rule_at(range.start));
        let (plain, all) = entries.fold((0, 0), |(plain, all), rule| {
            (plain + usize::from(rule == Some(at_entry)), all + 1)
        });
        assert!(plain * 10 > all * 8, "{plain} of {all}");
        let inside = frames.ranges().flat_map(|range| range.clone().step_by(7));
        let saves = |rule: Option<CallerRule>| {
            let saved = |saved: Option<i64>| saved.is_some();
            matches!(rule, Some(CallerRule::Above { saved_frame_pointer, .. }) if saved(saved_frame_pointer))
        };
        assert!(inside.into_iter().any(|at| saves(frames.rule_at(at))));
        assert_eq!(frames.rule_at(0), None);
    }

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
