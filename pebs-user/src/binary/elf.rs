//! A binary: its functions, its code, and the file offsets of addresses.

use std::cell::OnceCell;
use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};

use object::elf;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};
use object::{LittleEndian, Object};

use super::debug_data;
use super::frames::Frames;
use super::locate::find_library;
use super::object_file::{Elf, MAX_FILE};
use super::pclntab;
use super::references::{References, Starts};
use super::symbols::{Function, Names, Table, dynamic_strings, dynamic_values, imports, symbols};
use crate::arch::{calls, machine};
use crate::failure::Hint;
use crate::files::read_regular;

/// Errors that make a file unusable for probing.
#[derive(Debug, thiserror::Error)]
pub enum BinaryError {
    /// The file can't be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    #[error("{path} is not an ELF binary but {looks}")]
    NotElf {
        /// The file.
        path: PathBuf,
        /// Guessed kind of the file.
        looks: String,
        /// Interpreter of a script.
        interpreter: Option<String>,
    },
    /// An ELF file for another architecture.
    #[error(
        "{path} is {found}, only {} binaries can be probed here",
        machine::NAME
    )]
    Architecture {
        /// The file.
        path: PathBuf,
        found: String,
    },
    /// Inconsistent headers.
    #[error("cannot read {path} as ELF: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The parser's words.
        what: String,
    },
}

impl Hint for BinaryError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Read { source, .. } => match source.kind() {
                std::io::ErrorKind::PermissionDenied => Some("use sudo".to_owned()),
                _ => None,
            },
            Self::NotElf { interpreter, .. } => Some(match interpreter {
                Some(name) => {
                    format!("probe its interpreter: {name}:FUNC, and the script with -p or --")
                }
                None => "name the program itself; 'file' says what this is".to_owned(),
            }),
            Self::Architecture { .. } | Self::Damaged { .. } => None,
        }
    }
}

/// Maximum ratio of the addresses from the first to the last code to the size of the file.
const MAX_SPREAD: u64 = 4;

/// Program or library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BinaryType {
    /// A program, position independent or not.
    Executable,
    /// A library that other programs load.
    SharedLibrary,
}

/// Language whose conventions the code follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    /// System V calling convention: C, C++, Rust and most others.
    SysV,
    /// Go: its own registers, and stacks that move.
    Go,
}

/// A mapped part of the file.
#[derive(Clone, Debug)]
struct Load {
    address: u64,
    offset: u64,
    file_size: u64,
    executable: bool,
}

/// Source of the names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Functions in `.symtab`, of the file itself or of its debug file; `None` if neither has one.
    pub symtab: Option<usize>,
    /// Functions in `.dynsym`.
    pub dynsym: usize,
    /// Functions in Go's pclntab, which is read if there is no `.symtab`.
    pub pclntab: usize,
    /// The debug file that was found.
    pub debug_file: Option<PathBuf>,
    /// Whether `.symtab` is that in `.gnu_debugdata`.
    pub embedded: bool,
}

impl Tables {
    /// Whether functions that are not exported have no names.
    #[must_use]
    pub fn is_stripped(&self) -> bool {
        self.symtab.is_none() && self.pclntab == 0
    }
}

/// A binary that was read. Holds the file's bytes.
#[derive(Debug)]
pub(crate) struct Binary {
    /// The file: symlinks resolved, as this process can open it.
    pub path: PathBuf,
    /// Program or library.
    pub kind: BinaryType,
    /// Calling convention.
    pub language: Language,
    /// Function symbols, by address, then name.
    pub functions: Vec<Function>,
    /// Functions imported from other libraries.
    pub imports: Vec<String>,
    /// Libraries it needs (`DT_NEEDED`).
    pub needed: Vec<String>,
    /// Folders in which the loader looks for them before its own (`DT_RUNPATH`, else `DT_RPATH`).
    pub library_folders: Vec<PathBuf>,
    /// Source of the names.
    pub tables: Tables,
    /// Unwind table.
    pub frames: Frames,
    data: Vec<u8>,
    loads: Vec<Load>,
    /// Executable sections.
    sections: Vec<Range<u64>>,
    /// Executable sections that contain only PLT stubs.
    stubs: Vec<Range<u64>>,
    /// Targets of direct calls; computed when neither symbols nor frames cover an address.
    called: OnceCell<Vec<u64>>,
    /// References to functions; computed on first use.
    references: OnceCell<Option<References>>,
}

impl Binary {
    /// Reads a binary and the debug file that belongs to it. Cost: the size of both files.
    ///
    /// # Errors
    /// [`BinaryError`].
    pub(crate) fn open(path: &Path) -> Result<Self, BinaryError> {
        let data = read_regular(path, MAX_FILE).map_err(|source| BinaryError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(path, data)
    }

    /// As [`Binary::open`], for a file already read.
    pub(crate) fn parse(path: &Path, data: Vec<u8>) -> Result<Self, BinaryError> {
        check_header(path, &data)?;
        let damaged = |error: object::Error| BinaryError::Damaged {
            path: path.to_owned(),
            what: error.to_string(),
        };
        let file = Elf::parse(&*data).map_err(damaged)?;
        let mut names = Names::of(&file);
        let mut binary = Self {
            path: path.to_owned(),
            kind: kind(&file),
            language: language(&file),
            functions: Vec::new(),
            imports: imports(&file, &mut names),
            needed: dynamic_strings(&file, elf::DT_NEEDED, &mut names),
            library_folders: library_folders(path, &file, &mut names),
            tables: Tables::default(),
            frames: Frames::read(&file),
            loads: loads(&file),
            sections: executable_sections(&file, ""),
            stubs: executable_sections(&file, ".plt"),
            data: Vec::new(),
            called: OnceCell::new(),
            references: OnceCell::new(),
        };
        binary.read_symbols(&file, &mut names);
        binary.data = data;
        Ok(binary)
    }

    /// Collects functions from every table there is.
    fn read_symbols(&mut self, file: &Elf<'_>, names: &mut Names) {
        let mut functions = Vec::new();
        let own = symbols(file, Table::Static, names);
        let own_size = own.len();
        functions.extend(own);
        self.tables.symtab = (own_size > 0).then_some(own_size);
        if own_size == 0 {
            let separate =
                debug_data::find(&self.path, file).map(|(path, data)| (Some(path), data));
            let debug = separate.or_else(|| Some((None, debug_data::embedded(file)?)));
            if let Some((path, data)) = debug
                && let Ok(debug) = Elf::parse(&*data)
            {
                let more = symbols(&debug, Table::Static, &mut Names::of(&debug));
                self.tables.symtab = Some(more.len());
                self.tables.embedded = path.is_none();
                self.tables.debug_file = path;
                functions.extend(more);
            }
        }
        if functions.is_empty() && self.language == Language::Go {
            let table = pclntab::functions(file);
            self.tables.pclntab = table.len();
            functions.extend(table.into_iter().map(|it| Function {
                name: it.name.into(),
                address: it.start,
                size: it.end - it.start,
                global: true,
                ifunc: false,
            }));
        }
        let dynamic = symbols(file, Table::Dynamic, names);
        self.tables.dynsym = dynamic.len();
        functions.extend(dynamic);
        functions.retain(|f| {
            self.loads
                .iter()
                .any(|l| l.executable && l.holds(f.address))
        });
        functions.sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
        functions.dedup_by(|b, a| a.address == b.address && same_function(a, b));
        self.functions = functions;
    }

    /// Parses its headers again, for data that is read on demand (DWARF, notes).
    #[must_use]
    pub(crate) fn elf(&self) -> Option<Elf<'_>> {
        Elf::parse(&*self.data).ok()
    }

    /// The build id, in hexadecimal; `None` if there is none.
    pub(crate) fn build_id(&self) -> Option<String> {
        let file = self.elf()?;
        file.build_id().ok().flatten().map(debug_data::hex)
    }

    /// File offset of a virtual address; `None` if no part of the file is mapped there.
    #[must_use]
    pub(crate) fn file_offset(&self, address: u64) -> Option<u64> {
        let load = self.loads.iter().find(|load| load.holds(address))?;
        (address - load.address).checked_add(load.offset)
    }

    /// Virtual address of a file offset; `None` if it is not mapped.
    #[must_use]
    pub(crate) fn address_of(&self, offset: u64) -> Option<u64> {
        self.loads.iter().find_map(|load| {
            let at = offset.checked_sub(load.offset)?;
            (at < load.file_size).then(|| load.address.checked_add(at))?
        })
    }

    /// Whether an address holds code.
    #[must_use]
    pub(crate) fn is_code(&self, address: u64) -> bool {
        self.loads.iter().any(|l| l.executable && l.holds(address))
            && (self.sections.is_empty() || self.sections.iter().any(|s| s.contains(&address)))
    }

    /// Whether an address is in a PLT.
    #[must_use]
    pub(crate) fn is_stub(&self, address: u64) -> bool {
        self.stubs.iter().any(|s| s.contains(&address))
    }

    /// Bytes of the file mapped at `range`, cut where the mapping ends.
    #[must_use]
    pub(crate) fn bytes(&self, range: &Range<u64>) -> &[u8] {
        let Some(load) = self.loads.iter().find(|load| load.holds(range.start)) else {
            return &[];
        };
        let end = range.end.min(load.address.saturating_add(load.file_size));
        let start = (range.start - load.address).saturating_add(load.offset);
        let stop = start.saturating_add(end.saturating_sub(range.start));
        let (Ok(start), Ok(stop)) = (usize::try_from(start), usize::try_from(stop)) else {
            return &[];
        };
        self.data.get(start..stop).unwrap_or(&[])
    }

    /// The bytes of a function that starts at `address`: its symbol's size, else the unwind table's,
    /// else up to the next symbol or the section's end.
    #[must_use]
    pub(crate) fn extent(&self, address: u64) -> Option<Range<u64>> {
        let first = self.functions.partition_point(|f| f.address < address);
        let same = self.functions[first..]
            .iter()
            .take_while(|f| f.address == address);
        if let Some(size) = same.map(|f| f.size).max().filter(|size| *size > 0) {
            return Some(address..address.saturating_add(size));
        }
        if let Some(range) = self.frames.range_of(address)
            && range.start == address
        {
            return Some(range);
        }
        let section = self.sections.iter().find(|s| s.contains(&address))?;
        let next = self.functions[first..]
            .iter()
            .map(|f| f.address)
            .find(|next| *next > address);
        let frame = self.frames.range_of(address).map(|range| range.end);
        let described = self
            .functions
            .get(first)
            .is_some_and(|f| f.address == address);
        if !described && frame.is_none() {
            return self.called_extent(address, section, next);
        }
        let end = [next, frame]
            .into_iter()
            .flatten()
            .fold(section.end, u64::min);
        (end > address).then_some(address..end)
    }

    /// The function that holds an address: its start.
    #[must_use]
    pub(crate) fn start_of(&self, address: u64) -> Option<u64> {
        if let Some(range) = self.frames.range_of(address) {
            return Some(range.start);
        }
        let after = self.functions.partition_point(|f| f.address <= address);
        let function = after.checked_sub(1).and_then(|at| self.functions.get(at));
        if let Some(function) = function
            && self.extent(function.address)?.contains(&address)
        {
            return Some(function.address);
        }
        if !self.is_code(address) || self.is_stub(address) {
            return None;
        }
        let called = self.called();
        let start = *called.get(
            called
                .partition_point(|start| *start <= address)
                .checked_sub(1)?,
        )?;
        let extent = self.extent(start)?;
        extent.contains(&address).then_some(start)
    }

    /// References to each function; `None` for Go, whose tables of methods are not read, and if the file does not tell
    /// code from data.
    pub(crate) fn references(&self) -> Option<&References> {
        let read = || {
            let file = self.elf()?;
            if self.language == Language::Go || self.sections.is_empty() {
                return None;
            }
            let first = self.sections.iter().map(|it| it.start).min()?;
            let end = self.sections.iter().map(|it| it.end).max()?;
            // Code is in the file, so damaged addresses are farther apart than the file is long.
            if end.checked_sub(first)? > (self.data.len() as u64).saturating_mul(MAX_SPREAD) {
                return None;
            }
            let named = self.functions.iter().map(|it| it.address);
            let framed = self.frames.ranges().map(|it| it.start);
            let starts = Starts::new(first..end, named.chain(framed));
            Some(References::read(&file, &starts))
        };
        self.references.get_or_init(read).as_ref()
    }

    fn called(&self) -> &[u64] {
        self.called.get_or_init(|| {
            let sections = self.sections.iter().filter(|it| !self.is_stub(it.start));
            let mut all: Vec<u64> = sections
                .flat_map(|section| calls::targets(self.bytes(section), section.start))
                .filter(|target| self.is_code(*target))
                .collect();
            all.sort_unstable();
            all.dedup();
            all
        })
    }

    /// Extent of a function determined from its own jumps, at most up to the next known function.
    fn called_extent(
        &self,
        address: u64,
        section: &Range<u64>,
        next: Option<u64>,
    ) -> Option<Range<u64>> {
        let called = self.called();
        let behind = called.get(called.partition_point(|start| *start <= address));
        let next = next.into_iter().chain(behind.copied());
        let most = address..next.fold(section.end, u64::min);
        let end = calls::end_of(self.bytes(&most), address).unwrap_or(most.end);
        (address < end).then_some(address..end)
    }

    /// A symbol that starts at an address, preferably a global one.
    #[must_use]
    pub(crate) fn symbol_at(&self, address: u64) -> Option<&Function> {
        let first = self.functions.partition_point(|f| f.address < address);
        let same = self.functions[first..]
            .iter()
            .take_while(|f| f.address == address);
        same.max_by_key(|f| (f.global, f.size > 0))
    }
}

/// The folders of a file's `DT_RUNPATH`, else `DT_RPATH`; those that depend on the machine (`$LIB`) are left out.
///
/// Source: ld.so(8).
fn library_folders(path: &Path, file: &Elf<'_>, names: &mut Names) -> Vec<PathBuf> {
    let origin = path.parent().unwrap_or(Path::new("/")).to_string_lossy();
    let lists = match dynamic_strings(file, elf::DT_RUNPATH, names) {
        lists if lists.is_empty() => dynamic_strings(file, elf::DT_RPATH, names),
        lists => lists,
    };
    let folders = lists.iter().flat_map(|list| list.split(':'));
    let folders = folders.map(|it| it.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin));
    let known = folders.filter(|it| !it.is_empty() && !it.contains('$'));
    known.map(PathBuf::from).collect()
}

/// The binaries, and then the libraries that they need, each once; those that can't be read are left out.
pub(crate) fn with_libraries(binaries: Vec<PathBuf>) -> impl Iterator<Item = Binary> {
    let mut waiting = VecDeque::from(binaries);
    let mut seen = HashSet::new();
    std::iter::from_fn(move || {
        loop {
            let path = waiting.pop_front()?;
            if seen.insert(path.clone())
                && let Ok(binary) = Binary::open(&path)
            {
                waiting.extend(binary.needed.iter().filter_map(|name| find_library(name)));
                return Some(binary);
            }
        }
    })
}

/// Merges a symbol of `.symtab` with its copy in `.dynsym`, which may have the version.
fn same_function(a: &mut Function, b: &mut Function) -> bool {
    let same =
        super::demangle::without_version(&a.name) == super::demangle::without_version(&b.name);
    if same {
        a.size = a.size.max(b.size);
        a.global |= b.global;
        if b.name.len() > a.name.len() {
            std::mem::swap(&mut a.name, &mut b.name);
        }
    }
    same
}

impl Load {
    fn holds(&self, address: u64) -> bool {
        address >= self.address && address - self.address < self.file_size
    }
}

/// Checks for the header of a program or library of this machine.
fn check_header(path: &Path, data: &[u8]) -> Result<(), BinaryError> {
    if !data.starts_with(b"\x7fELF") {
        let (looks, interpreter) = looks_like(data);
        return Err(BinaryError::NotElf {
            path: path.to_owned(),
            looks,
            interpreter,
        });
    }
    let wrong = |found: &str| BinaryError::Architecture {
        path: path.to_owned(),
        found: found.to_owned(),
    };
    if data.get(4) == Some(&1) {
        return Err(wrong("a 32-bit binary"));
    }
    if data.get(5) == Some(&2) {
        return Err(wrong("a big-endian binary"));
    }
    let half = |at: usize| match data.get(at..at + 2) {
        Some(bytes) => u16::from_le_bytes([bytes[0], bytes[1]]),
        None => 0,
    };
    let of = elf::Machine(half(18));
    if of != machine::ELF {
        let name = match of {
            elf::EM_X86_64 => "a binary for x86-64".to_owned(),
            elf::EM_AARCH64 => "a binary for arm64".to_owned(),
            elf::EM_RISCV => "a binary for risc-v".to_owned(),
            elf::EM_S390 => "a binary for s390".to_owned(),
            elf::EM_PPC64 => "a binary for powerpc".to_owned(),
            other => format!("a binary for machine {}", other.0),
        };
        return Err(wrong(&name));
    }
    match elf::FileType(half(16)) {
        elf::ET_EXEC | elf::ET_DYN => Ok(()),
        elf::ET_REL => Err(wrong("an object file that was not linked yet")),
        elf::ET_CORE => Err(wrong("a core dump")),
        _ => Err(wrong("neither a program nor a library")),
    }
}

/// Describes a file that is no ELF, with a script's interpreter.
fn looks_like(data: &[u8]) -> (String, Option<String>) {
    if let Some(rest) = data.strip_prefix(b"#!") {
        let line = rest.split(|b| *b == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line).trim().to_owned();
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default().to_owned();
        let interpreter = if first.ends_with("/env") {
            words.find(|w| !w.starts_with('-')).map(str::to_owned)
        } else {
            Some(first)
        };
        return (format!("a script run by '{line}'"), interpreter);
    }
    let looks = match data {
        [] => "an empty file",
        [b'!', b'<', b'a', b'r', b'c', b'h', ..] => "a static library (archive)",
        [b'P', b'K', ..] => "a zip archive",
        [0x1f, 0x8b, ..] => "a gzip archive",
        [b'M', b'Z', ..] => "a Windows program",
        [0xcf | 0xce, 0xfa, 0xed, 0xfe, ..] => "a macOS program",
        _ if data
            .iter()
            .take(512)
            .all(|b| *b >= b' ' || b"\t\n\r".contains(b)) =>
        {
            "text"
        }
        _ => "something else",
    };
    (looks.to_owned(), None)
}

fn kind(file: &Elf<'_>) -> BinaryType {
    let header = file.elf_header();
    let flags = dynamic_values(file, elf::DT_FLAGS_1)
        .first()
        .copied()
        .unwrap_or(0);
    let interp = file
        .elf_program_headers()
        .iter()
        .any(|p| p.p_type(LittleEndian) == elf::PT_INTERP);
    let soname = !dynamic_values(file, elf::DT_SONAME).is_empty();
    let pie = flags & elf::DF_1_PIE.0 != 0;
    if header.e_type(LittleEndian) == elf::ET_EXEC || pie || (interp && !soname) {
        BinaryType::Executable
    } else {
        BinaryType::SharedLibrary
    }
}

fn language(file: &Elf<'_>) -> Language {
    let go = [
        ".go.buildinfo",
        ".note.go.buildid",
        ".gopclntab",
        ".data.rel.ro.gopclntab",
    ]
    .iter()
    .any(|name| file.section_by_name(name).is_some());
    if go { Language::Go } else { Language::SysV }
}

fn loads(file: &Elf<'_>) -> Vec<Load> {
    file.elf_program_headers()
        .iter()
        .filter(|p| p.p_type(LittleEndian) == elf::PT_LOAD)
        .map(|p| Load {
            address: p.p_vaddr(LittleEndian),
            offset: p.p_offset(LittleEndian),
            file_size: p.p_filesz(LittleEndian),
            executable: p.p_flags(LittleEndian).0 & elf::PF_X.0 != 0,
        })
        .collect()
}

/// Ranges of executable sections whose names start with `prefix`.
fn executable_sections(file: &Elf<'_>, prefix: &str) -> Vec<Range<u64>> {
    let table = file.elf_section_table();
    let named = |section: &elf::SectionHeader64<LittleEndian>| {
        let name = table
            .section_name(LittleEndian, section)
            .unwrap_or_default();
        name.starts_with(prefix.as_bytes())
    };
    table
        .iter()
        .filter(|section| named(section))
        .filter(|section| section.sh_flags(LittleEndian).0 & elf::SHF_EXECINSTR.0 != 0)
        .map(|section| {
            let start = section.sh_addr(LittleEndian);
            start..start.saturating_add(section.sh_size(LittleEndian))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use object::ObjectSection as _;

    use super::super::parameters::parameters;
    use super::super::testing::compile;
    use super::*;

    fn open(path: &str) -> Binary {
        let path = fs::canonicalize(path).expect("there");
        Binary::open(&path).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A stock server: its functions come from .dynsym and are in its code.
    #[test]
    fn stock_server() {
        let redis = open("/usr/bin/redis-server");
        assert_eq!(redis.kind, BinaryType::Executable);
        assert!(redis.path.ends_with("redis-check-rdb"));
        let f = redis
            .functions
            .iter()
            .find(|f| f.name == "processCommand")
            .expect("exported");
        assert!(redis.is_code(f.address) && f.size > 0);
        assert!(redis.file_offset(f.address).is_some());
        assert_eq!(redis.bytes(&(f.address..f.address + 4)).len(), 4);
        assert!(redis.imports.iter().any(|name| name == "write"));
    }

    /// The C library is a library, although it can be executed, and its names carry versions.
    #[test]
    fn c_library() {
        let libc = open("/lib/x86_64-linux-gnu/libc.so.6");
        assert_eq!(libc.kind, BinaryType::SharedLibrary);
        assert!(
            libc.functions
                .iter()
                .any(|f| f.name == "malloc@@GLIBC_2.2.5")
        );
        assert!(
            libc.functions
                .iter()
                .any(|f| f.ifunc && f.name.starts_with("memcpy@"))
        );
    }

    /// Other kinds of files are named in the error.
    #[test]
    fn other_files() {
        let error = |path: &str| Binary::open(Path::new(path)).expect_err(path);
        let text = error("/usr/bin/ldd").to_string();
        assert!(text.contains("a script run by '/"), "{text}");
        assert!(error("/etc/passwd").to_string().contains("but text"));
        assert!(matches!(error("/nonexistent"), BinaryError::Read { .. }));
        let mut small = fs::read("/bin/ls").expect("ls");
        small[4] = 1;
        assert!(check_header(Path::new("x"), &small).is_err());
        small[4] = 2;
        small[18] = 183;
        let arm = check_header(Path::new("x"), &small).expect_err("arm");
        assert!(arm.to_string().contains("arm64"));
    }

    /// A small program, to be broken.
    const SMALL: &str = "int f(int a) { return a * 3; } void _start(void) { f(2); for (;;); }";

    /// With any word of a file set to a huge value or zero, no query panics.
    #[test]
    fn every_word_broken() {
        let flags = [
            "-O1",
            "-g",
            "-nostdlib",
            "-static",
            "-Wl,-z,noseparate-code",
        ];
        let program = compile("gcc", SMALL, &flags);
        let whole = fs::read(program.path()).expect("compiled");
        for at in (16..whole.len() - 8).step_by(8) {
            for value in [u64::MAX, u64::MAX / 2, 0] {
                let mut bytes = whole.clone();
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
                crate::probe::fuzz::binary(&bytes);
            }
        }
    }

    /// A compressed section with an impossible size counts as empty, and nothing is allocated for it.
    #[test]
    fn section_that_lies() {
        let program = compile("gcc", SMALL, &["-O1", "-g", "-gz", "-nostdlib", "-static"]);
        let mut bytes = fs::read(program.path()).expect("compiled");
        let open = |bytes: &[u8]| Binary::parse(Path::new("x"), bytes.to_vec()).expect("ELF");
        let wanted = |binary: &Binary| binary.functions.iter().map(|f| f.address).collect();
        let binary = open(&bytes);
        assert!(!parameters(&binary, &wanted(&binary)).is_empty());
        let file = Elf::parse(&*bytes).expect("ELF");
        let section = file
            .section_by_name(".debug_info")
            .expect("debug information");
        let (offset, _) = section.file_range().expect("in the file");
        let at = usize::try_from(offset).expect("in the file") + 8;
        bytes[at..at + 8].copy_from_slice(&(1_u64 << 46).to_le_bytes());
        let binary = open(&bytes);
        assert!(parameters(&binary, &wanted(&binary)).is_empty());
    }
}
