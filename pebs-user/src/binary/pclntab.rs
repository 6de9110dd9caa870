//! Go's table of functions (`.gopclntab`), which stripping does not remove.
//!
//! Source: src/debug/gosym/pclntab.go of Go 1.2, 1.16, 1.18 and 1.20.

use object::{Object, ObjectSection};

use super::object_file::content;

/// Sections that may contain the table; the second in position-independent programs.
const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

/// First word of the table, by the version of Go that introduced it.
const GO_1_2: u32 = 0xffff_fffb;
/// As [`GO_1_2`].
const GO_1_16: u32 = 0xffff_fffa;
/// See [`GO_1_2`].
const GO_1_18: u32 = 0xffff_fff0;
/// See [`GO_1_2`].
const GO_1_20: u32 = 0xffff_fff1;

/// Maximum length of a name, bytes.
const NAME_MAX: usize = 4 << 10;

/// A function of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GoFunction {
    /// Virtual address in the file.
    pub start: u64,
    /// End address: start of the next function.
    pub end: u64,
    /// Go's name: `main.(*server).handle`.
    pub name: Box<str>,
}

/// The functions of a Go program, by address; empty if there is no table, or one of an unknown version.
///
/// Cost: about 50 ns per function.
#[must_use]
pub(crate) fn functions<'data>(file: &impl Object<'data>) -> Vec<GoFunction> {
    let found = section_of(file);
    found.map_or_else(Vec::new, |(data, text)| {
        read(&data, || text).unwrap_or_default()
    })
}

/// The table of a file, and the base of its code addresses, if the table does not have it.
fn section_of<'data>(file: &impl Object<'data>) -> Option<(Vec<u8>, Option<u64>)> {
    let section = SECTIONS
        .iter()
        .find_map(|name| file.section_by_name(name))?;
    let data = content(&section).ok()?;
    // The linker may leave the code address to be relocated by the loader.
    let word = section.address() + 8 + 2 * 8;
    let moved = file.dynamic_relocations().into_iter().flatten();
    let mut moved = moved.filter(|(at, _)| *at == word);
    let addend = moved.next().map(|(_, it)| it.addend().cast_unsigned());
    let text = addend.or_else(|| Some(file.section_by_name(".text")?.address()));
    Some((data, text))
}

/// Sizes of the frames of a Go program's functions, which stripping does not remove either.
#[derive(Debug)]
pub(crate) struct GoStacks {
    data: Vec<u8>,
    text: Option<u64>,
}

/// A frame of a Go function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GoFrame {
    /// Bytes from the stack pointer to the return address.
    Depth(i64),
    /// There is no caller.
    Outermost,
    /// The caller is on another stack.
    OtherStack,
}

/// Functions without caller on their stack.
const OUTERMOST: [&str; 3] = ["runtime.goexit", "runtime.mstart", "runtime.rt0_go"];

/// Functions that change the stack, to run others on the thread's own, on that of signals, or of a goroutine.
const SWITCHES: [&str; 10] = [
    // They go on with another goroutine, or in another function's frame.
    "runtime.gogo",
    "gogo",
    "runtime.cgocallback",
    "runtime.mcall",
    "runtime.systemstack",
    "runtime.morestack",
    "runtime.asmcgocall",
    // They call the vdso there.
    "runtime.nanotime1",
    "runtime.walltime",
    "time.now",
];

impl GoStacks {
    /// Those of a file; `None` if it has no table.
    #[must_use]
    pub(crate) fn read<'data>(file: &impl Object<'data>) -> Option<Self> {
        let (data, text) = section_of(file)?;
        Table::of(&data, || text)?;
        Some(Self { data, text })
    }

    /// The frame of the function at an address, just before the instruction there runs; `None` if it is not known.
    ///
    /// Cost: O(log functions + length of the function).
    #[must_use]
    pub(crate) fn frame_at(&self, address: u64) -> Option<GoFrame> {
        let table = Table::of(&self.data, || self.text)?;
        let (mut low, mut high) = (0, table.count);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match table.address(middle)? <= address {
                true => low = middle,
                false => high = middle,
            }
        }
        let range = table.address(low)?..table.address(low + 1)?;
        if !range.contains(&address) {
            return None;
        }
        let name = table.name(low);
        match name.as_deref().map(|name| name.trim_end_matches(".abi0")) {
            Some(name) if OUTERMOST.contains(&name) => return Some(GoFrame::Outermost),
            Some(name) if SWITCHES.contains(&name) => return Some(GoFrame::OtherStack),
            _ => {}
        }
        table.depth(low, (range.start, address)).map(GoFrame::Depth)
    }
}

/// Offsets of the parts of a table.
struct Table<'a> {
    data: &'a [u8],
    /// Offset of the first name.
    names: usize,
    /// Offset of the first entry; function offsets are relative to it, too.
    entries: usize,
    /// Entries, without the last one, which marks the end of the code.
    count: usize,
    /// Bytes of each of the two fields of an entry.
    width: usize,
    /// Base of code addresses.
    text: u64,
    /// Offset of the tables of values by address.
    values: usize,
}

fn read(data: &[u8], text: impl FnOnce() -> Option<u64>) -> Option<Vec<GoFunction>> {
    let table = Table::of(data, text)?;
    let mut functions = Vec::new();
    // Functions may share a long name, which costs the file nothing.
    let mut left = data.len().saturating_mul(4);
    let mut start = table.address(0)?;
    for n in 0..table.count {
        let end = table.address(n + 1)?;
        if let Some(name) = table.name(n).filter(|_| end > start) {
            let Some(rest) = left.checked_sub(name.len()) else {
                break;
            };
            left = rest;
            functions.push(GoFunction { start, end, name });
        }
        start = end;
    }
    functions.sort_by_key(|it| it.start);
    functions.dedup_by_key(|it| it.start);
    Some(functions)
}

impl<'a> Table<'a> {
    fn of(data: &'a [u8], text: impl FnOnce() -> Option<u64>) -> Option<Self> {
        let magic = u32::try_from(number(data, 0, 4)?).ok()?;
        // Pointers of 8 bytes; the smallest x86 instruction has one byte.
        if data.get(4..8)? != [0, 0, 1, 8] {
            return None;
        }
        let word = |n: usize| number(data, 8 + 8 * n, 8);
        let offset = |n: usize| usize::try_from(word(n)?).ok();
        let count = offset(0)?;
        let table = match magic {
            GO_1_2 => Self {
                data,
                names: 0,
                entries: 16,
                count,
                width: 8,
                text: 0,
                values: 0,
            },
            GO_1_16 => Self {
                data,
                names: offset(2)?,
                entries: offset(6)?,
                count,
                width: 8,
                text: 0,
                values: offset(5)?,
            },
            GO_1_18 | GO_1_20 => Self {
                data,
                names: offset(3)?,
                entries: offset(7)?,
                count,
                width: 4,
                text: match word(2)? {
                    0 => text()?,
                    known => known,
                },
                values: offset(6)?,
            },
            _ => return None,
        };
        Some(table)
    }

    /// Address at which function `n` starts.
    fn address(&self, n: usize) -> Option<u64> {
        self.text.checked_add(self.field(2 * n)?)
    }

    fn field(&self, n: usize) -> Option<u64> {
        let at = self.entries.checked_add(n.checked_mul(self.width)?)?;
        number(self.data, at, self.width)
    }

    /// Offset of what is known of function `n`, behind its address.
    fn description(&self, n: usize) -> Option<usize> {
        let offset = usize::try_from(self.field(2 * n + 1)?).ok()?;
        // Before Go 1.16 everything is relative to the table's begin.
        let base = if self.names == 0 { 0 } else { self.entries };
        base.checked_add(offset)?.checked_add(self.width)
    }

    /// Bytes from the stack pointer to the return address, at an address of function `n`, which starts at another.
    fn depth(&self, n: usize, (start, address): (u64, u64)) -> Option<i64> {
        // Behind name, arguments, and place of deferred calls.
        let at = self.description(n)?.checked_add(3 * 4)?;
        let offset = usize::try_from(number(self.data, at, 4)?).ok()?;
        let mut bytes = self.data.get(self.values.checked_add(offset)?..)?.iter();
        let (mut depth, mut behind) = (-1, start);
        loop {
            let change = varint(&mut bytes)?;
            if change == 0 && behind > start {
                return None;
            }
            depth += match change & 1 {
                0 => i64::from(change >> 1),
                _ => !i64::from(change >> 1),
            };
            behind = behind.checked_add(u64::from(varint(&mut bytes)?))?;
            if address < behind {
                return Some(depth);
            }
        }
    }

    fn name(&self, n: usize) -> Option<Box<str>> {
        let at = self.description(n)?;
        let offset = usize::try_from(number(self.data, at, 4)?).ok()?;
        let text = self.data.get(self.names.checked_add(offset)?..)?;
        let text = &text[..text.len().min(NAME_MAX)];
        let end = text.iter().position(|byte| *byte == 0)?;
        let name = crate::terminal::shown(std::str::from_utf8(&text[..end]).ok()?).into_owned();
        (!name.is_empty()).then(|| name.into_boxed_str())
    }
}

/// Reads a number of variable length.
fn varint<'a>(bytes: &mut impl Iterator<Item = &'a u8>) -> Option<u32> {
    let mut number = 0;
    for shift in (0..32).step_by(7) {
        let byte = bytes.next()?;
        number |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Reads a number of `width` bytes.
fn number(data: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = data.get(at..at.checked_add(width)?)?;
    let mut number = [0; 8];
    number.get_mut(..width)?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table with functions `main.a` and `main.b` at 0x1000 and 0x1020, as each version of Go lays it out.
    fn table(magic: u32) -> Vec<u8> {
        let mut data = magic.to_le_bytes().to_vec();
        data.extend([0, 0, 1, 8]);
        let word = |data: &mut Vec<u8>, word: u64| data.extend(word.to_le_bytes());
        let names = b"\0main.a\0main.b\0";
        let offsets = [1u64, 8];
        word(&mut data, 2);
        match magic {
            GO_1_2 => {
                // Three entries, the last with an address only, then two functions, then names.
                let functions = 16 + 5 * 8;
                let names_at = functions + 2 * 16;
                for (n, start) in [0x1000u64, 0x1020].into_iter().enumerate() {
                    word(&mut data, start);
                    word(&mut data, (functions + 16 * n) as u64);
                }
                word(&mut data, 0x1040);
                for (n, start) in [0x1000u64, 0x1020].into_iter().enumerate() {
                    word(&mut data, start);
                    word(&mut data, names_at as u64 + offsets[n]);
                }
                data.extend(names);
            }
            GO_1_16 => {
                let names_at = 8 + 7 * 8;
                let entries = names_at + 16;
                for offset in [0, names_at as u64, 0, 0, 0, entries as u64] {
                    word(&mut data, offset);
                }
                data.extend(names);
                data.push(0);
                for (n, start) in [0x1000u64, 0x1020].into_iter().enumerate() {
                    word(&mut data, start);
                    word(&mut data, (40 + 16 * n) as u64);
                }
                word(&mut data, 0x1040);
                for (n, start) in [0x1000u64, 0x1020].into_iter().enumerate() {
                    word(&mut data, start);
                    word(&mut data, offsets[n]);
                }
            }
            _ => {
                let names_at = 8 + 8 * 8;
                let entries = names_at + 16;
                for offset in [0, 0, names_at as u64, 0, 0, 0, entries as u64] {
                    word(&mut data, offset);
                }
                data.extend(names);
                data.push(0);
                let half = |data: &mut Vec<u8>, half: u32| data.extend(half.to_le_bytes());
                for (n, start) in [0u32, 0x20].into_iter().enumerate() {
                    half(&mut data, start);
                    half(&mut data, 20 + 8 * n as u32);
                }
                half(&mut data, 0x40);
                for (n, start) in [0u32, 0x20].into_iter().enumerate() {
                    half(&mut data, start);
                    half(&mut data, offsets[n] as u32);
                }
            }
        }
        data
    }

    /// Every version of the table gives the same functions; a table truncated anywhere gives none or some of them.
    #[test]
    fn versions() {
        let expect = |start, end, name: &str| GoFunction {
            start,
            end,
            name: name.into(),
        };
        let all = [
            expect(0x1000, 0x1020, "main.a"),
            expect(0x1020, 0x1040, "main.b"),
        ];
        for magic in [GO_1_2, GO_1_16, GO_1_18, GO_1_20] {
            let data = table(magic);
            assert_eq!(read(&data, || Some(0x1000)).unwrap(), all, "{magic:#x}");
            for cut in 0..data.len() {
                let found = read(&data[..cut], || Some(0x1000)).unwrap_or_default();
                assert!(found.iter().all(|it| all.contains(it)), "{magic:#x} {cut}");
            }
        }
        assert_eq!(read(&table(0xffff_ff00), || Some(0)), None);
    }
}
