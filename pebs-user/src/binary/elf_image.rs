//! Function boundaries and headers of an ELF file.
//!
//! Files are read, not mapped, so that a file truncated meanwhile gives an error, not a signal. Sizes are checked
//! before anything is read: a sparse file costs its author nothing and can claim any size.

use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use gimli::RunTimeEndian;
use object::read::{ReadCache, ReadRef};
use object::{
    BinaryFormat, Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _,
    SectionFlags, SegmentFlags, SymbolKind, elf,
};

use super::eh_frame::{self, Span, disjoint};
use super::frames::Frames;
use super::mapping::BuildId;
use super::pclntab::{self, GoFunction, GoStacks};
use super::symbols::{self, Function};
use crate::arch::machine;

/// Largest single table that is read: 22 million symbols.
const TABLE_MAX: u64 = 512 << 20;

/// Largest file whose DWARF is used.
const DEBUG_FILE_MAX: u64 = 16 << 30;

/// Maximum total size that a file's compressed sections may claim.
const INFLATED_MAX: u64 = 4 << 30;

/// Maximum ratio of a compressed section's size to its size in the file: deflate can do no better.
///
/// Source: <https://zlib.net/zlib_tech.html>, "Maximum Compression Factor".
const INFLATE_RATIO: u64 = 1032;

/// A loaded, executable part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Offset in the file.
    pub offset: u64,
    /// Length in the file.
    pub len: u64,
    /// Virtual address.
    pub address: u64,
}

/// Properties of a file known when it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ElfHead {
    /// Executable segments.
    pub segments: Vec<Segment>,
    /// Virtual addresses of all its memory, zeroed data included.
    pub memory: Range<u64>,
    pub build_id: Option<BuildId>,
    /// Whether its machine code is of this machine, so that it can be disassembled.
    pub native: bool,
    /// Whether its symbol tables are small enough to be loaded.
    pub symbols: bool,
    /// Whether its DWARF is small enough to be loaded.
    pub sane_debug: bool,
    /// Name of the file that has its DWARF.
    pub debug_link: Option<PathBuf>,
    /// Whether its DWARF refers to yet another file.
    pub supplement: bool,
}

impl ElfHead {
    /// Whether a symbolizer may look for DWARF in the file itself, which makes it open files referred to there.
    #[must_use]
    pub(crate) const fn own_debug(&self) -> bool {
        self.sane_debug && self.debug_link.is_none() && !self.supplement
    }

    /// Virtual address of an offset in the file.
    #[must_use]
    pub(crate) fn address(&self, offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let at = offset.checked_sub(segment.offset)?;
            (at < segment.len).then(|| segment.address.wrapping_add(at))
        })
    }

    /// Virtual address at which a mapping begins that has this offset in the file: up to a page before a segment.
    #[must_use]
    pub(crate) fn address_of_mapping(&self, offset: u64) -> Option<u64> {
        /// Mappings begin at a page.
        const PAGE: u64 = 4096;
        let mapped = self.segments.iter().find(|segment| {
            let first = segment.offset - segment.offset % PAGE;
            (first..segment.offset.saturating_add(segment.len)).contains(&offset)
        });
        let segment = mapped?;
        Some(
            offset
                .wrapping_sub(segment.offset)
                .wrapping_add(segment.address),
        )
    }

    /// Offset in the file of a virtual address.
    #[must_use]
    pub(crate) fn offset(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let at = address.checked_sub(segment.address)?;
            (at < segment.len).then(|| segment.offset.wrapping_add(at))
        })
    }
}

/// Function boundaries that symbols alone do not show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Functions by frame descriptions; sorted, disjoint.
    pub frames: Vec<Span>,
    /// Functions within another one, as in hand-written assembly; sorted, disjoint.
    pub nested: Vec<Span>,
    /// Functions that contain such functions; sorted, disjoint.
    pub enclosing: Vec<Span>,
    /// Functions of `.symtab` without a size, each up to the next symbol; sorted, disjoint.
    pub unsized_functions: Vec<Span>,
    /// Functions of a Go program without symbols, sorted, disjoint.
    pub go: Vec<GoFunction>,
}

/// Reads the file, refusing too large ranges.
#[derive(Clone, Copy)]
struct Bounded<'a>(&'a ReadCache<&'a File>);

impl<'a> ReadRef<'a> for Bounded<'a> {
    fn len(self) -> Result<u64, ()> {
        self.0.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size > TABLE_MAX {
            return Err(());
        }
        self.0.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, end: u8) -> Result<&'a [u8], ()> {
        self.0.read_bytes_at_until(range, end)
    }
}

type Parsed<'a> = object::File<'a, Bounded<'a>>;

fn parse<'a>(cache: &'a ReadCache<&'a File>) -> Option<Parsed<'a>> {
    let file = object::File::parse(Bounded(cache)).ok()?;
    (file.format() == BinaryFormat::Elf).then_some(file)
}

/// Reads the headers of a file; `None` if it is no ELF file.
///
/// Cost: about 50 us.
#[must_use]
pub(crate) fn read_head(file: &File) -> Option<ElfHead> {
    let len = file.metadata().ok()?.len();
    let cache = ReadCache::new(file);
    let parsed = parse(&cache)?;
    let segments = parsed
        .segments()
        .filter(|segment| {
            matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.0 & elf::PF_X.0 != 0)
        })
        .map(|segment| {
            let (offset, len) = segment.file_range();
            Segment {
                offset,
                len,
                address: segment.address(),
            }
        })
        .collect();
    let symbols = sizes_are_sane(&parsed);
    let starts = parsed.segments().map(|it| it.address());
    let ends = parsed
        .segments()
        .map(|it| it.address().saturating_add(it.size()));
    Some(ElfHead {
        memory: starts.min().unwrap_or(0)..ends.max().unwrap_or(0),
        segments,
        build_id: parsed.build_id().ok().flatten().and_then(BuildId::new),
        native: parsed.architecture() == machine::ARCHITECTURE,
        symbols,
        sane_debug: symbols && len <= DEBUG_FILE_MAX,
        debug_link: debug_link(&parsed),
        supplement: [".gnu_debugaltlink", ".debug_sup"]
            .iter()
            .any(|name| parsed.section_by_name(name).is_some()),
    })
}

/// Reads the tables of unwind rules, empty if there are none, those of Go, and the address of a program's first instruction,
/// 0 if there is none.
///
/// Cost: about 100 ns per function.
#[must_use]
pub(crate) fn read_unwind_tables(file: &File) -> (Frames, Option<GoStacks>, u64) {
    let cache = ReadCache::new(file);
    let parsed = parse(&cache);
    let read = |parsed: Parsed<'_>| {
        let go = GoStacks::read(&parsed);
        (Frames::read_all(&parsed), go, parsed.entry())
    };
    parsed.map_or_else(|| (Frames::default(), None, 0), read)
}

/// The functions of a stripped file that has its symbols in `.gnu_debugdata`, by address; `None` for others.
#[must_use]
pub(crate) fn embedded_symbols(file: &File) -> Option<Vec<Function>> {
    let cache = ReadCache::new(file);
    symbols::embedded_symbols(&parse(&cache)?)
}

/// Variables of the file's symbol tables, by address: name, address, size.
///
/// Cost: about 30 ns per symbol.
#[must_use]
pub(crate) fn variables(file: &File) -> Vec<(String, u64, u64)> {
    let cache = ReadCache::new(file);
    let Some(parsed) = parse(&cache).filter(sizes_are_sane) else {
        return Vec::new();
    };
    let mut names = symbols::Names::of_len(cache.len().unwrap_or(0));
    let all = parsed.symbols().chain(parsed.dynamic_symbols());
    let all = all.filter(|it| it.kind() == SymbolKind::Data && it.is_definition() && it.size() > 0);
    let all = all.filter_map(|it| {
        let name = names.take(it.name_bytes().ok()?)?;
        Some((name, it.address(), it.size()))
    });
    let mut all: Vec<_> = all.collect();
    // Of several names of the same data the shortest has no version or suffix.
    all.sort_unstable_by(|a, b| (a.1, a.2, a.0.len(), &a.0).cmp(&(b.1, b.2, b.0.len(), &b.0)));
    all.dedup_by_key(|it| (it.1, it.2));
    all
}

/// Virtual address of a symbol of the full symbol table; `None` if there is no such symbol.
#[must_use]
pub(crate) fn symbol_address(file: &File, name: &[u8]) -> Option<u64> {
    let cache = ReadCache::new(file);
    let parsed = parse(&cache)?;
    let symbol = parsed
        .symbols()
        .find(|symbol| symbol.name_bytes() == Ok(name))?;
    Some(symbol.address())
}

/// The name in the debug link; an unreadable one counts as one, as it would be followed, too.
fn debug_link(parsed: &Parsed<'_>) -> Option<PathBuf> {
    parsed.section_by_name(".gnu_debuglink")?;
    let link = parsed.gnu_debuglink().ok().flatten();
    Some(link.map_or_else(PathBuf::new, |(name, _crc)| {
        PathBuf::from(OsStr::from_bytes(name))
    }))
}

/// Whether all tables that a symbolizer would load are within their limits.
fn sizes_are_sane(parsed: &Parsed<'_>) -> bool {
    let mut inflated = 0u64;
    for section in parsed.sections() {
        let SectionFlags::Elf { sh_flags, sh_type } = section.flags() else {
            return false;
        };
        if sh_flags.0 & elf::SHF_COMPRESSED.0 != 0 {
            let Ok(range) = section.compressed_file_range() else {
                return false;
            };
            if range.uncompressed_size > range.compressed_size.saturating_mul(INFLATE_RATIO) {
                return false;
            }
            inflated = inflated.saturating_add(range.uncompressed_size);
        }
        let table = matches!(sh_type, elf::SHT_SYMTAB | elf::SHT_DYNSYM | elf::SHT_STRTAB);
        if table && section.size() > TABLE_MAX {
            return false;
        }
    }
    inflated <= INFLATED_MAX
}

/// Reads the function boundaries.
///
/// Cost: about 30 ns per symbol and 100 ns per frame description; only the resulting spans stay in memory.
#[must_use]
pub(crate) fn read_layout(file: &File) -> Layout {
    let cache = ReadCache::new(file);
    let Some(parsed) = parse(&cache) else {
        return Layout::default();
    };
    let functions = functions(&parsed);
    let (nested, enclosing) = nested(&functions);
    Layout {
        frames: frames(&parsed),
        nested,
        enclosing,
        unsized_functions: unsized_functions(&parsed, &functions),
        go: match parsed.symbol_table() {
            Some(_) => Vec::new(),
            None => pclntab::functions(&parsed),
        },
    }
}

impl Layout {
    /// The function of a Go program at an address.
    #[must_use]
    pub(crate) fn go_function(&self, address: u64) -> Option<&GoFunction> {
        let behind = self.go.partition_point(|it| it.start <= address);
        let found = self.go.get(behind.checked_sub(1)?)?;
        (address < found.end).then_some(found)
    }
}

fn frames(parsed: &Parsed<'_>) -> Vec<Span> {
    let Some(section) = parsed.section_by_name(".eh_frame") else {
        return Vec::new();
    };
    let Ok(data) = section.data() else {
        return Vec::new();
    };
    eh_frame::function_spans(&eh_frame::Section {
        data,
        address: section.address(),
        text: parsed
            .section_by_name(".text")
            .map_or(0, |text| text.address()),
        address_size: if parsed.is_64() { 8 } else { 4 },
        endian: if parsed.is_little_endian() {
            RunTimeEndian::Little
        } else {
            RunTimeEndian::Big
        },
    })
}

/// All function symbols as (start, end), sorted; without a size, end = start.
fn functions(parsed: &Parsed<'_>) -> Vec<Span> {
    let mut spans: Vec<Span> = parsed
        .symbols()
        .chain(parsed.dynamic_symbols())
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
        .map(|symbol| Span {
            start: symbol.address(),
            end: symbol.address().saturating_add(symbol.size()),
        })
        .collect();
    spans.sort_unstable();
    spans.dedup();
    spans
}

/// Functions that begin inside another one that continues after them, and the enclosing functions.
fn nested(functions: &[Span]) -> (Vec<Span>, Vec<Span>) {
    let (mut nested, mut enclosing) = (Vec::<Span>::new(), Vec::new());
    let mut outer = Span { start: 0, end: 0 };
    for &span in functions.iter().filter(|span| span.start < span.end) {
        let inside = outer.start < span.start && span.end < outer.end;
        if inside && nested.last().is_none_or(|last| last.end <= span.start) {
            nested.push(span);
            if enclosing.last() != Some(&outer) {
                enclosing.push(outer);
            }
        }
        if span.end > outer.end {
            outer = span;
        }
    }
    (nested, disjoint(enclosing))
}

/// `.symtab` names every function, so a function without a size extends to the next symbol. `.dynsym` names few:
/// there this would be a guess, and usually wrong.
fn unsized_functions(parsed: &Parsed<'_>, functions: &[Span]) -> Vec<Span> {
    let spans = parsed
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
        .filter(|symbol| symbol.size() == 0)
        .filter_map(|symbol| {
            let start = symbol.address();
            let next = functions.partition_point(|span| span.start <= start);
            let section = parsed.section_by_index(symbol.section_index()?).ok()?;
            let limit = section.address().saturating_add(section.size());
            let end = functions
                .get(next)
                .map_or(limit, |span| span.start.min(limit));
            (start < end).then_some(Span { start, end })
        })
        .collect();
    disjoint(spans)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// The test program itself has code, frames and a place for this very function.
    #[test]
    fn own_executable() {
        let file = File::open("/proc/self/exe").unwrap();
        let head = read_head(&file).unwrap();
        let segment = head.segments[0];
        assert_eq!(head.address(segment.offset + 5), Some(segment.address + 5));
        assert_eq!(head.offset(segment.address + 5), Some(segment.offset + 5));
        assert_eq!(head.address(u64::MAX), None);
        let page = segment.offset % 4096;
        assert_eq!(
            head.address_of_mapping(segment.offset - page),
            Some(segment.address - page)
        );
        assert_eq!(head.address_of_mapping(u64::MAX), None);
        assert!(head.symbols && head.own_debug());
        let layout = read_layout(&file);
        assert!(layout.frames.len() > 1000);
    }

    /// A section of 114 bytes that claims 4 GiB: the DWARF of such a file is not loaded.
    #[test]
    fn section_that_lies() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(include_bytes!(
            "../../fuzz/corpus/symbols/found-section-of-4-gib"
        ))
        .unwrap();
        assert!(!read_head(&file).unwrap().own_debug());
    }

    /// A function inside another is nested; one that shares its start or end is not.
    #[test]
    fn nesting() {
        let span = |start, end| Span { start, end };
        let functions = [
            span(10, 100),
            span(20, 30),
            span(90, 100),
            span(100, 120),
            span(110, 110),
        ];
        assert_eq!(
            nested(&functions),
            (vec![span(20, 30)], vec![span(10, 100)])
        );
    }

    /// Text, cut ELF files and files that claim giant tables are refused, not trusted.
    #[test]
    fn hostile_files() {
        let with = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            file
        };
        assert_eq!(read_head(&with(b"#!/bin/sh\n")), None);
        let whole = std::fs::read("/proc/self/exe").unwrap();
        let _ = read_head(&with(&whole[..64]));
        let _ = read_layout(&with(&whole[..4096]));
        // A section header count of 0 moves the true count to a 64-bit field of the first header.
        let mut huge = whole[..4096].to_vec();
        huge[60..62].fill(0);
        huge[40..48].copy_from_slice(&1024u64.to_le_bytes());
        huge[1024..1088].fill(0);
        huge[1024 + 32..1024 + 40].copy_from_slice(&(1u64 << 36).to_le_bytes());
        let file = with(&huge);
        file.set_len(1 << 43).unwrap();
        assert_eq!(read_head(&file), None);
    }
}
