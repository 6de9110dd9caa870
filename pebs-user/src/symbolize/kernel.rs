//! Functions of the running kernel, its modules and BPF programs.
//!
//! `/proc/kallsyms` has the start, name and module of functions. It is read once, as the kernel takes tens of ms to
//! write it; if the kernel's debug file exists, blazesym knows more. A function extends to the next symbol:
//! kallsyms has no sizes. The functions of the kernel proper stay the same: all recordings of a process share them. Functions found are cached: a BPF program or module loaded where an older one was seen in
//! the same run keeps the older one's names.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use blazesym::MaybeDefault;
use blazesym::symbolize::source::Kernel as KernelSource;
use pebs_common::config::{EntryCode, KernelCode};

use super::blaze::{Blaze, Symbol};
use super::functions::{Description, Functions};
use super::own_work::OwnFunctions;
use super::ranges::RangeTable;
use crate::arch;
use crate::binary::demangle::demangle;
use crate::failure::Hint;
use crate::units::FunctionId;

/// The functions of the running kernel.
const KALLSYMS: &str = "/proc/kallsyms";

/// Result of the last reading, and its time.
static LAST: Mutex<Option<(Instant, Listed)>> = Mutex::new(None);

/// Name of the module for the kernel proper.
pub(super) const KERNEL_MODULE: &str = "[kernel]";

/// Maximum extent of a symbol if no other one follows earlier.
const FUNCTION_MAX: u64 = 1 << 20;

/// Minimum time between two readings of kallsyms, about 50 ms each: BPF programs and modules come and go.
const READ_AGAIN: Duration = Duration::from_secs(5);

/// Most symbols that are taken in; a kernel with all modules has some 250,000.
const SYMBOLS_MAX: usize = 1 << 22;

/// Symbol at the end of the kernel's code.
const TEXT_END: &[u8] = b"_etext";

/// Why kernel addresses have no names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelSymbolsMissing {
    /// The file can't be read, as in some containers, or the kernel is built without it.
    #[error("cannot read kernel symbols from /proc/kallsyms")]
    Unreadable,
    /// All addresses read as zero.
    #[error("kernel symbols in /proc/kallsyms have no addresses")]
    Hidden,
}

impl Hint for KernelSymbolsMissing {
    fn hint(&self) -> Option<String> {
        let value = std::fs::read_to_string("/proc/sys/kernel/kptr_restrict").ok()?;
        Some(format!(
            "kernel.kptr_restrict is {}; use root, or 'sysctl kernel.kptr_restrict=0'",
            value.trim()
        ))
    }
}

/// Finds the code that the kernel is entered by, and that deals with marks; functions that are missing in the list have
/// the range 0..0. Reads kallsyms the first time, about 50 ms.
#[must_use]
pub fn kernel_code() -> KernelCode {
    static CODE: OnceLock<KernelCode> = OnceLock::new();
    *CODE.get_or_init(|| {
        let mut code = KernelCode::default();
        if let Ok(file) = File::open(KALLSYMS) {
            find_kernel_code(BufReader::with_capacity(64 << 10, file), &mut code);
        }
        code
    })
}

fn find_kernel_code(mut reader: impl BufRead, code: &mut KernelCode) {
    let mut open: Option<(u64, Wanted)> = None;
    let mut line = Vec::new();
    while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
        // Modules follow, in no order.
        if let Some((address @ 1.., name, None)) = parse_line(&line) {
            if let Some((begin, wanted)) = open.take_if(|(begin, _)| address > *begin) {
                match wanted {
                    Wanted::Notify => code.notify = [begin, address],
                    Wanted::Entry(entry) => add_entry(code, [begin, address], entry),
                }
            }
            if name == TEXT_END {
                return;
            }
            open = open.or_else(|| Some((address, wanted(name)?)));
        }
        line.clear();
    }
}

/// Code that is looked for.
#[derive(Clone, Copy)]
enum Wanted {
    /// See [`KernelCode::notify`].
    Notify,
    /// An entry, with its number.
    Entry(u64),
}

fn wanted(name: &[u8]) -> Option<Wanted> {
    let name = std::str::from_utf8(name).ok()?;
    match (name, arch::kernel_entry(name)) {
        ("uprobe_notify_resume", _) => Some(Wanted::Notify),
        (_, 0) => None,
        (_, entry) => Some(Wanted::Entry(entry)),
    }
}

/// Adds a range, to the one before it if that is the same entry. Without room it stays unknown.
fn add_entry(code: &mut KernelCode, range: [u64; 2], entry: u64) {
    let is_used = |it: &EntryCode| it.entry != 0;
    let used = code.entries.iter().take_while(|it| is_used(it)).count();
    match code.entries[..used].last_mut() {
        Some(last) if (last.range[1], last.entry) == (range[0], entry) => last.range[1] = range[1],
        _ => {
            if let Some(unused) = code.entries.get_mut(used) {
                *unused = EntryCode { range, entry };
            }
        }
    }
}

/// Start addresses of functions.
#[derive(Debug, Default)]
struct Starts {
    /// Sorted; for symbols at the same address, the first.
    starts: Vec<Start>,
    /// Their names, concatenated.
    names: Vec<u8>,
    modules: Vec<Box<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Start {
    address: u64,
    /// Offset and length of its name.
    name: (u32, u16),
    module: u16,
}

/// A function as listed in kallsyms.
struct KernelSymbol<'a> {
    start: u64,
    end: u64,
    name: &'a [u8],
    module: &'a str,
}

impl Starts {
    /// The function at an address.
    fn find(&self, address: u64) -> Option<KernelSymbol<'_>> {
        let behind = self
            .starts
            .partition_point(|start| start.address <= address);
        let start = self.starts[behind.checked_sub(1)?];
        let limit = start.address.saturating_add(FUNCTION_MAX);
        let end = self
            .starts
            .get(behind)
            .map_or(limit, |next| next.address.min(limit));
        let (at, len) = (start.name.0 as usize, usize::from(start.name.1));
        (address < end).then(|| KernelSymbol {
            start: start.address,
            end,
            name: &self.names[at..at + len],
            module: &self.modules[usize::from(start.module)],
        })
    }

    /// Returns the start of the first function behind an address.
    fn next(&self, address: u64) -> Option<u64> {
        let behind = self
            .starts
            .partition_point(|start| start.address <= address);
        self.starts.get(behind).map(|start| start.address)
    }

    /// Of symbols at the same address, the first one listed is kept.
    fn sort(&mut self) {
        self.starts.sort();
        self.starts.dedup_by_key(|start| start.address);
        self.starts.shrink_to_fit();
        self.names.shrink_to_fit();
    }

    /// Adds a symbol, unless there are too many.
    fn push(&mut self, address: u64, name: &[u8], module: Option<&[u8]>) {
        let begin = u32::try_from(self.names.len());
        if let (Ok(begin), Ok(len)) = (begin, u16::try_from(name.len()))
            && self.starts.len() < SYMBOLS_MAX
        {
            self.names.extend_from_slice(name);
            self.starts.push(Start {
                address,
                name: (begin, len),
                module: module_number(&mut self.modules, module),
            });
        }
    }
}

/// All functions.
#[derive(Clone, Debug, Default)]
struct Listed {
    /// Those of the kernel proper.
    kernel: Arc<Starts>,
    /// Those of modules and BPF programs, which come and go.
    others: Arc<Starts>,
}

impl Listed {
    fn both(&self) -> [&Starts; 2] {
        [&self.kernel, &self.others]
    }

    /// The function at an address.
    fn find(&self, address: u64) -> Option<KernelSymbol<'_>> {
        let found = self.both().into_iter().filter_map(|it| it.find(address));
        let found = found.max_by_key(|it| it.start)?;
        let next = self.both().into_iter().filter_map(|it| it.next(address));
        Some(KernelSymbol {
            end: next.min().unwrap_or(u64::MAX).min(found.end),
            ..found
        })
    }
}

/// Reads the code symbols of a kallsyms file: `ADDRESS TYPE NAME [MODULE]`. Those of the kernel proper may be known.
fn read_starts(
    mut reader: impl BufRead,
    known: Option<Arc<Starts>>,
) -> Result<Listed, KernelSymbolsMissing> {
    let empty = || Starts {
        modules: vec![KERNEL_MODULE.into()],
        ..Starts::default()
    };
    let (mut kernel, mut others) = (empty(), empty());
    let (mut hidden, mut line) = (false, Vec::new());
    while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
        match parse_line(&line) {
            Some((0, ..)) => hidden = true,
            Some((address, name, None)) if known.is_none() => kernel.push(address, name, None),
            Some((_, _, None)) | None => {}
            Some((address, name, module)) => others.push(address, name, module),
        }
        line.clear();
    }
    // They are nearly sorted.
    kernel.sort();
    others.sort();
    let listed = Listed {
        kernel: known.unwrap_or_else(|| Arc::new(kernel)),
        others: Arc::new(others),
    };
    let is_empty = listed.both().iter().all(|it| it.starts.is_empty());
    match (is_empty, hidden) {
        (false, _) => Ok(listed),
        (true, true) => Err(KernelSymbolsMissing::Hidden),
        (true, false) => Err(KernelSymbolsMissing::Unreadable),
    }
}

/// Address, name and module.
type Line<'a> = (u64, &'a [u8], Option<&'a [u8]>);

fn parse_line(line: &[u8]) -> Option<Line<'_>> {
    let words = line.split(u8::is_ascii_whitespace);
    let mut words = words.filter(|word| !word.is_empty());
    let digit = |sum: u64, byte: &u8| {
        let digit = char::from(*byte).to_digit(16)?;
        Some(sum.checked_mul(16)? + u64::from(digit))
    };
    let address = words.next()?.iter().try_fold(0, digit)?;
    let kind = words.next()?;
    let name = words.next()?;
    matches!(kind, b"t" | b"T" | b"w" | b"W").then(|| (address, name, words.next()))
}

/// Symbols are listed module by module, so the last one nearly always matches.
fn module_number(modules: &mut Vec<Box<str>>, name: Option<&[u8]>) -> u16 {
    let Some(name) = name else { return 0 };
    let known = modules.iter().rposition(|module| module.as_bytes() == name);
    let number = known.unwrap_or_else(|| {
        if modules.len() < usize::from(u16::MAX) {
            modules.push(String::from_utf8_lossy(name).into());
        }
        modules.len() - 1
    });
    u16::try_from(number).unwrap_or(0)
}

/// The debug file of the running kernel, at the places used by distributions.
fn vmlinux() -> Option<PathBuf> {
    let release = rustix::system::uname();
    let name = format!("vmlinux-{}", release.release().to_string_lossy());
    let dirs = ["/boot", "/usr/lib/debug/boot"].map(Path::new);
    let mut paths = dirs.iter().map(|dir| dir.join(&name));
    paths.find(|path| path.exists())
}

/// The symbols of the running kernel, read when the first kernel address is looked up.
pub(super) struct KernelSymbols {
    path: PathBuf,
    debug_dirs: Option<Vec<PathBuf>>,
    listed: Listed,
    blaze: Blaze,
    /// The kernel's debug file, if there is one and it matches.
    vmlinux: Option<PathBuf>,
    ranges: RangeTable,
    unresolved: Option<FunctionId>,
    read: Option<Instant>,
    missing: Option<KernelSymbolsMissing>,
    own: OwnFunctions,
    /// Functions that look like own work, but ran for another tool.
    of_others: RangeTable,
}

impl KernelSymbols {
    /// Symbols of the running kernel.
    #[must_use]
    pub(super) fn new(debug_dirs: Option<Vec<PathBuf>>) -> Self {
        Self {
            vmlinux: vmlinux(),
            ..Self::from_file(PathBuf::from(KALLSYMS), debug_dirs)
        }
    }

    /// Symbols of an unknown kernel: no function has a name.
    #[must_use]
    pub(super) fn unknown() -> Self {
        Self::from_file(PathBuf::from("/dev/null"), None)
    }

    fn from_file(path: PathBuf, debug_dirs: Option<Vec<PathBuf>>) -> Self {
        Self {
            path,
            listed: Listed::default(),
            blaze: Blaze::new(debug_dirs.as_deref()),
            debug_dirs,
            vmlinux: None,
            ranges: RangeTable::default(),
            unresolved: None,
            read: None,
            missing: None,
            own: OwnFunctions::default(),
            of_others: RangeTable::default(),
        }
    }

    /// Distinguishes the work of programs with these symbols, and of the kernel for them, from other kernel work.
    #[must_use]
    pub(super) fn with_own(self, programs: Option<Vec<String>>) -> Self {
        Self {
            own: OwnFunctions::new(programs),
            ..self
        }
    }

    /// Whether some work is distinguished as own.
    #[must_use]
    pub(super) const fn has_own(&self) -> bool {
        self.own.is_known()
    }

    /// The function of that work.
    pub(super) fn own_function(&mut self, functions: &mut Functions) -> FunctionId {
        self.own.function(functions)
    }

    /// Why kernel functions have no names; set once a function was looked up without success.
    #[must_use]
    pub(super) const fn missing(&self) -> Option<KernelSymbolsMissing> {
        self.missing
    }

    /// The function at a kernel address.
    ///
    /// Cost: O(log functions) for a known function; the first call reads kallsyms, about 50 ms.
    pub(super) fn function(&mut self, address: u64, functions: &mut Functions) -> FunctionId {
        if let Some(function) = self.ranges.get(address) {
            return function;
        }
        self.prepare();
        if self.is_stale(address) {
            self.read(self.read);
        }
        let Some(known) = self.listed.find(address) else {
            return self.unresolved(functions);
        };
        let (start, end) = (known.start, known.end);
        let function = match self.own.is(&String::from_utf8_lossy(known.name)) {
            true => self.own.function(functions),
            false => self.add(address, functions),
        };
        self.ranges.insert(address, start, end, function);
        function
    }

    /// The function at a kernel address that ran for another tool: only pebs-trace's own programs are own work.
    pub(super) fn function_of_other_tool(
        &mut self,
        address: u64,
        functions: &mut Functions,
    ) -> FunctionId {
        let function = self.function(address, functions);
        if !self.own.has_function(function) {
            return function;
        }
        if let Some(function) = self.of_others.get(address) {
            return function;
        }
        let Some(known) = self.listed.find(address) else {
            return function;
        };
        if self.own.is_program(&String::from_utf8_lossy(known.name)) {
            return function;
        }
        let (start, end) = (known.start, known.end);
        let function = self.add(address, functions);
        self.of_others.insert(address, start, end, function);
        function
    }

    /// Adds the function at an address that has a symbol.
    fn add(&mut self, address: u64, functions: &mut Functions) -> FunctionId {
        let Some(known) = self.listed.find(address) else {
            return self.unresolved(functions);
        };
        let (start, end, module) = (known.start, known.end, known.module.to_owned());
        let named = Symbol {
            name: Some(demangle(&String::from_utf8_lossy(known.name))),
            ..Symbol::default()
        };
        let symbol = self.debug_symbol(start).unwrap_or(named);
        functions.add(Description {
            name: symbol.name,
            module: Some(module),
            offset: Some(start),
            size: Some(symbol.size.unwrap_or(end - start)),
            file: symbol.file,
            line: symbol.line,
            kernel: true,
            ..Description::default()
        })
    }

    /// See [`Blaze::rest`].
    pub(super) fn rest(&mut self) {
        self.blaze.rest();
    }

    /// Reads kallsyms if that has not been done, and has blazesym read the debug file.
    pub(super) fn prepare(&mut self) {
        if self.read.is_none() {
            self.read(None);
            if let Some(first) = self.listed.kernel.starts.first() {
                self.debug_symbol(first.address);
            }
        }
    }

    /// Whether kallsyms should be read again before an address is looked up.
    ///
    /// The kernel proper does not change. In the area of modules and BPF programs, a new function may be at a
    /// formerly used or unknown address.
    fn is_stale(&self, address: u64) -> bool {
        let is_fixed = || {
            let found = self.listed.find(address);
            found.is_some_and(|known| known.module == KERNEL_MODULE)
        };
        let is_recent = || self.read.is_some_and(|read| read.elapsed() < READ_AGAIN);
        self.missing.is_none() && !is_fixed() && !is_recent()
    }

    /// Reads kallsyms, or takes what another recording read after this time.
    fn read(&mut self, former: Option<Instant>) {
        let is_running = self.path == Path::new(KALLSYMS);
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.as_ref().filter(|_| is_running);
        let is_newer = |(read, _): &&(Instant, Listed)| former.is_some_and(|it| it < *read);
        let (read, listed) = match known.filter(is_newer) {
            Some((read, listed)) => (*read, Ok(listed.clone())),
            None => {
                let kernel = known.map(|(_, listed)| Arc::clone(&listed.kernel));
                let now = Instant::now();
                let listed = File::open(&self.path)
                    .map_err(|_| KernelSymbolsMissing::Unreadable)
                    .and_then(|file| read_starts(BufReader::with_capacity(64 << 10, file), kernel));
                (now, listed)
            }
        };
        self.read = Some(read);
        match listed {
            Ok(listed) => {
                if is_running {
                    *last = Some((read, listed.clone()));
                }
                self.listed = listed;
                self.missing = None;
                // Drops blazesym's data of the old file, too.
                self.blaze = Blaze::new(self.debug_dirs.as_deref());
            }
            Err(missing) => self.missing = Some(missing),
        }
    }

    /// Symbol of a function in the kernel's debug file.
    fn debug_symbol(&mut self, start: u64) -> Option<Symbol> {
        let source = KernelSource {
            kallsyms: MaybeDefault::Some(self.path.clone()),
            vmlinux: MaybeDefault::Some(self.vmlinux.clone()?),
            ..KernelSource::default()
        };
        let symbol = self.blaze.kernel(source, start);
        if symbol.is_err() {
            self.vmlinux = None;
        }
        symbol.ok().flatten()
    }

    fn unresolved(&mut self, functions: &mut Functions) -> FunctionId {
        *self.unresolved.get_or_insert_with(|| {
            functions.add(Description {
                module: Some(KERNEL_MODULE.into()),
                kernel: true,
                ..Description::default()
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use pebs_common::record::entry;

    use super::*;

    const LIST: &str = "\
ffffffff81000000 T _stext
ffffffff81000100 t f
ffffffff81000180 D a_variable
ffffffff81000200 T g
ffffffffc0001000 t m\t[mod]
ffffffffc0002000 t bpf_prog_ab_x\t[bpf]
nonsense
";

    fn lookup(text: &str, addresses: &[u64]) -> (Vec<crate::store::schema::FunctionRow>, Vec<u32>) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let mut kernel = KernelSymbols::from_file(file.path().into(), None);
        let mut functions = Functions::default();
        let ids = addresses
            .iter()
            .map(|address| kernel.function(*address, &mut functions).0)
            .collect();
        let mut rows = Vec::new();
        functions.take_new(&mut rows);
        (rows, ids)
    }

    /// Functions extend to the next symbol of the kernel proper that lies behind, those with the same entry are one range; a
    /// missing one has no range.
    #[test]
    fn code_by_which_the_kernel_is_entered() {
        let list = b"10 T asm_exc_int3\n\
                     10 T another_name\n\
                     5 t m [a_module]\n\
                     30 T asm_exc_page_fault\n\
                     40 T asm_int80_emulation\n\
                     50 T irq_entries_end\n\
                     50 T asm_common_interrupt\n\
                     60 T asm_sysvec_reschedule_ipi\n\
                     70 T last_entry\n\
                     80 T uprobe_notify_resume\n\
                     90 T last\n\
                     a0 T _etext\n\
                     b0 T asm_exc_debug\n\
                     c0 T later\n";
        let mut code = KernelCode::default();
        find_kernel_code(&list[..], &mut code);
        assert_eq!(code.notify, [0x80, 0x90]);
        let entries = code.entries.map(|it| (it.range, it.entry));
        let expected = [
            ([0x10, 0x30], entry::BREAKPOINT),
            ([0x30, 0x40], entry::PAGE_FAULT),
            ([0x50, 0x70], entry::INTERRUPT),
            ([0, 0], 0),
        ];
        assert_eq!(entries[..4], expected);
    }

    /// More ranges than there is room for stay unknown.
    #[test]
    fn too_many_entries() {
        let mut code = KernelCode::default();
        for at in 0..2 * code.entries.len() as u64 {
            add_entry(&mut code, [10 * at + 1, 10 * at + 5], entry::EXCEPTION);
        }
        let last = code.entries[code.entries.len() - 1];
        assert_eq!(last.range, [151, 155]);
    }

    /// Functions extend to the next one, variables do not cut them, and modules keep their names.
    #[test]
    fn functions_and_modules() {
        let addresses = [
            0xffff_ffff_8100_0190,
            0xffff_ffff_8100_0100,
            0xffff_ffff_c000_1008,
            0xffff_ffff_c000_2008,
        ];
        let (rows, ids) = lookup(LIST, &addresses);
        assert_eq!(ids, [0, 0, 1, 2]);
        let names: Vec<_> = rows
            .iter()
            .map(|row| (row.name.as_deref().unwrap(), row.module.as_deref().unwrap()))
            .collect();
        assert_eq!(
            names,
            [
                ("f", "[kernel]"),
                ("m", "[mod]"),
                ("bpf_prog_ab_x", "[bpf]")
            ]
        );
        assert_eq!(rows[0].size, Some(0x100));
        assert_eq!(rows[0].offset, Some(0xffff_ffff_8100_0100));
        assert!(rows[0].kernel);
    }

    /// Hidden addresses give one unresolved row and a reason.
    #[test]
    fn hidden() {
        let text = "0000000000000000 T _stext\n0000000000000000 t f\n";
        let (rows, ids) = lookup(text, &[0xffff_ffff_8100_0190, 0xffff_ffff_8100_0290]);
        assert_eq!(ids, [0, 0]);
        assert_eq!((rows.len(), rows[0].name.as_deref()), (1, None));
        let missing = read_starts(text.as_bytes(), None).unwrap_err();
        assert_eq!(missing, KernelSymbolsMissing::Hidden);
        assert!(missing.hint().unwrap().contains("kptr_restrict"));
    }

    /// A second reading takes in modules alone; a function ends where one of a module begins.
    #[test]
    fn known_kernel() {
        let first = read_starts(LIST.as_bytes(), None).unwrap();
        let more = "ffffffff81000110 t early\t[mod]\nffffffff81000300 T other\n";
        let listed = read_starts(more.as_bytes(), Some(first.kernel)).unwrap();
        let name = |address| listed.find(address).unwrap().name;
        assert_eq!(name(0xffff_ffff_8100_0108), b"f");
        assert_eq!(
            listed.find(0xffff_ffff_8100_0108).unwrap().end & 0xfff,
            0x110
        );
        assert_eq!(name(0xffff_ffff_8100_0118), b"early");
        assert_eq!(name(0xffff_ffff_8100_0308), b"g");
    }

    /// An address far after the last symbol does not belong to it.
    #[test]
    fn far_behind() {
        let (rows, _) = lookup(LIST, &[0xffff_ffff_d000_0000]);
        assert_eq!(rows[0].name, None);
    }
}
