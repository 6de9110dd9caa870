//! Functions of the running kernel, its modules and BPF programs.
//!
//! `/proc/kallsyms` says where functions begin, and which module they are of; blazesym names them, from the kernel's
//! debug file where there is one. A function reaches up to the next symbol: kallsyms has no sizes.
//! What was found once is not looked up again: a BPF program or module loaded where an older one was seen, in the same
//! run, keeps the older one's names.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use blazesym::MaybeDefault;
use blazesym::symbolize::source::Kernel as KernelSource;

use super::blaze::{Blaze, Symbol};
use super::functions::{Description, Functions};
use super::ranges::RangeTable;
use crate::units::FunctionId;

/// Name of the module for the kernel proper.
pub const KERNEL_MODULE: &str = "[kernel]";

/// Furthest that a symbol reaches if no other one follows sooner.
const FUNCTION_MAX: u64 = 1 << 20;

/// Shortest time between two readings of kallsyms, about 50 ms each: BPF programs and modules come and go.
const READ_AGAIN: Duration = Duration::from_secs(5);

/// Most symbols that are taken in; a kernel with all modules has some 250,000.
const SYMBOLS_MAX: usize = 1 << 22;

/// Why kernel addresses have no names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelSymbolsMissing {
    /// The file can't be read, as in some containers, or the kernel is built without.
    #[error("cannot read kernel symbols from /proc/kallsyms")]
    Unreadable,
    /// All addresses read as zero.
    #[error("kernel symbols in /proc/kallsyms have no addresses")]
    Hidden,
}

impl KernelSymbolsMissing {
    /// What can be done about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let value = std::fs::read_to_string("/proc/sys/kernel/kptr_restrict").ok()?;
        Some(format!(
            "kernel.kptr_restrict is {}; use root, or 'sysctl kernel.kptr_restrict=0'",
            value.trim()
        ))
    }
}

/// Where functions begin.
#[derive(Debug, Default)]
struct Starts {
    /// Sorted; of symbols at one address, one.
    starts: Vec<Start>,
    modules: Vec<Box<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Start {
    address: u64,
    module: u16,
}

impl Starts {
    /// Begin, end and module of the function at an address.
    fn find(&self, address: u64) -> Option<(u64, u64, &str)> {
        let behind = self
            .starts
            .partition_point(|start| start.address <= address);
        let start = self.starts[behind.checked_sub(1)?];
        let limit = start.address.saturating_add(FUNCTION_MAX);
        let end = self
            .starts
            .get(behind)
            .map_or(limit, |next| next.address.min(limit));
        let module = &self.modules[usize::from(start.module)];
        (address < end).then_some((start.address, end, module))
    }
}

/// Reads the code symbols of a kallsyms file: `ADDRESS TYPE NAME [MODULE]`.
fn read_starts(reader: impl BufRead) -> Result<Starts, KernelSymbolsMissing> {
    let mut starts = Starts {
        starts: Vec::new(),
        modules: vec![KERNEL_MODULE.into()],
    };
    let mut hidden = false;
    for line in reader.lines() {
        let Ok(line) = line else { break };
        let Some((address, module)) = parse_line(&line) else {
            continue;
        };
        if address == 0 {
            hidden = true;
            continue;
        }
        let module = module_number(&mut starts.modules, module);
        starts.starts.push(Start { address, module });
        if starts.starts.len() == SYMBOLS_MAX {
            break;
        }
    }
    starts.starts.sort_unstable();
    starts.starts.dedup_by_key(|start| start.address);
    match (starts.starts.is_empty(), hidden) {
        (false, _) => Ok(starts),
        (true, true) => Err(KernelSymbolsMissing::Hidden),
        (true, false) => Err(KernelSymbolsMissing::Unreadable),
    }
}

fn parse_line(line: &str) -> Option<(u64, Option<&str>)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let kind = words.next()?;
    let _name = words.next()?;
    matches!(kind, "t" | "T" | "w" | "W").then(|| (address, words.next()))
}

/// Symbols come module by module, so that the last one is nearly always the one.
fn module_number(modules: &mut Vec<Box<str>>, name: Option<&str>) -> u16 {
    let Some(name) = name else { return 0 };
    let known = modules.iter().rposition(|module| **module == *name);
    let number = known.unwrap_or_else(|| {
        if modules.len() < usize::from(u16::MAX) {
            modules.push(name.into());
        }
        modules.len() - 1
    });
    u16::try_from(number).unwrap_or(0)
}

/// The symbols of the running kernel, read when the first kernel address is looked up.
pub struct KernelSymbols {
    path: PathBuf,
    debug_dirs: Option<Vec<PathBuf>>,
    starts: Starts,
    blaze: Blaze,
    /// Whether blazesym may use a vmlinux file; it gives up on all addresses if that does not fit.
    vmlinux: bool,
    ranges: RangeTable,
    unresolved: Option<FunctionId>,
    read: Option<Instant>,
    missing: Option<KernelSymbolsMissing>,
}

impl KernelSymbols {
    /// Of the kernel that runs.
    #[must_use]
    pub fn new(debug_dirs: Option<Vec<PathBuf>>) -> Self {
        Self::from_file(PathBuf::from("/proc/kallsyms"), debug_dirs)
    }

    /// Of a kernel that is not known: nothing has a name.
    #[must_use]
    pub fn unknown() -> Self {
        Self::from_file(PathBuf::from("/dev/null"), None)
    }

    fn from_file(path: PathBuf, debug_dirs: Option<Vec<PathBuf>>) -> Self {
        Self {
            path,
            starts: Starts::default(),
            blaze: Blaze::new(debug_dirs.as_deref()),
            debug_dirs,
            vmlinux: true,
            ranges: RangeTable::default(),
            unresolved: None,
            read: None,
            missing: None,
        }
    }

    /// Why names are missing, if they are, once one was asked for.
    #[must_use]
    pub const fn missing(&self) -> Option<KernelSymbolsMissing> {
        self.missing
    }

    /// The function at a kernel address.
    ///
    /// Cost: O(log functions) once the function is known; the first call reads kallsyms, about 100 ms.
    pub fn function(&mut self, address: u64, functions: &mut Functions) -> FunctionId {
        if let Some(function) = self.ranges.get(address) {
            return function;
        }
        self.prepare();
        if self.is_stale(address) {
            self.read();
        }
        let Some((start, end, module)) = self.starts.find(address) else {
            return self.unresolved(functions);
        };
        let module = module.to_string();
        let Some(symbol) = self.name(start) else {
            return self.unresolved(functions);
        };
        let function = functions.add(Description {
            name: symbol.name,
            module: Some(module),
            offset: Some(start),
            size: Some(symbol.size.unwrap_or(end - start)),
            file: symbol.file,
            line: symbol.line,
            kernel: true,
            ..Description::default()
        });
        self.ranges.insert(address, start, end, function);
        function
    }

    /// Reads kallsyms if that has not been done, and has blazesym read it.
    pub fn prepare(&mut self) {
        if self.read.is_none() {
            self.read();
            if let Some(first) = self.starts.starts.first() {
                self.name(first.address);
            }
        }
    }

    /// Whether kallsyms should be read before an address is looked up in what was read.
    ///
    /// The kernel proper does not change. Where code comes and goes, a new function may lie where an
    /// older one or nothing was known.
    fn is_stale(&self, address: u64) -> bool {
        let is_fixed = || {
            let found = self.starts.find(address);
            found.is_some_and(|(_, _, module)| module == KERNEL_MODULE)
        };
        let is_recent = || self.read.is_some_and(|read| read.elapsed() < READ_AGAIN);
        self.missing.is_none() && !is_fixed() && !is_recent()
    }

    fn read(&mut self) {
        self.read = Some(Instant::now());
        let starts = File::open(&self.path)
            .map_err(|_| KernelSymbolsMissing::Unreadable)
            .and_then(|file| read_starts(BufReader::with_capacity(64 << 10, file)));
        match starts {
            Ok(starts) => {
                self.starts = starts;
                self.missing = None;
                // What blazesym has read of the old file must go as well.
                self.blaze = Blaze::new(self.debug_dirs.as_deref());
            }
            Err(missing) => self.missing = Some(missing),
        }
    }

    fn name(&mut self, start: u64) -> Option<Symbol> {
        if self.vmlinux {
            match self.blaze.kernel(self.source(MaybeDefault::Default), start) {
                Ok(symbol) => return symbol,
                Err(_) => self.vmlinux = false,
            }
        }
        let source = self.source(MaybeDefault::None);
        self.blaze.kernel(source, start).ok().flatten()
    }

    fn source(&self, vmlinux: MaybeDefault<PathBuf>) -> KernelSource {
        KernelSource {
            kallsyms: MaybeDefault::Some(self.path.clone()),
            vmlinux,
            ..KernelSource::default()
        }
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

    use super::*;

    const KALLSYMS: &str = "\
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
        kernel.vmlinux = false;
        let mut functions = Functions::default();
        let ids = addresses
            .iter()
            .map(|address| kernel.function(*address, &mut functions).0)
            .collect();
        let mut rows = Vec::new();
        functions.take_new(&mut rows);
        (rows, ids)
    }

    /// Functions reach up to the next one, variables do not cut them, modules keep their names.
    #[test]
    fn functions_and_modules() {
        let addresses = [
            0xffff_ffff_8100_0190,
            0xffff_ffff_8100_0100,
            0xffff_ffff_c000_1008,
            0xffff_ffff_c000_2008,
        ];
        let (rows, ids) = lookup(KALLSYMS, &addresses);
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
        let missing = read_starts(text.as_bytes()).unwrap_err();
        assert_eq!(missing, KernelSymbolsMissing::Hidden);
        assert!(missing.hint().unwrap().contains("kptr_restrict"));
    }

    /// An address far behind the last symbol is not that symbol's.
    #[test]
    fn far_behind() {
        let (rows, _) = lookup(KALLSYMS, &[0xffff_ffff_d000_0000]);
        assert_eq!(rows[0].name, None);
    }
}
