//! Wrapper of blazesym; no other code calls it.
//!
//! blazesym maps files into memory and trusts much of their content. So it is used only for files whose tables have
//! a sane size (`elf_image`), and a panic in it loses the names of that file, not the run. The same holds for a
//! file that is truncated while it is mapped (`bus_error`): the kernel refuses writes to a running executable, not
//! to a library in use.

use std::cell::{Cell, OnceCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{Builder, Input, Sym, Symbolized, Symbolizer};

use crate::binary::bus_error;
use crate::binary::demangle::demangle;

/// Result of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Symbol {
    /// Demangled name; `None` if DWARF has a function without one.
    pub name: Option<String>,
    /// Its first address.
    pub start: u64,
    /// Its size; `None` if the symbol has none, or the function has several pieces.
    pub size: Option<u64>,
    /// Source file of the address; with inlined functions, of the call in this function.
    pub file: Option<String>,
    /// Line in `file`.
    pub line: Option<u32>,
    /// The functions inlined at the address, each into the one before it.
    pub inlined: Vec<Inner>,
}

/// An inlined function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Inner {
    /// Its name, demangled.
    pub name: String,
    /// The source file that its code is from.
    pub file: Option<String>,
}

impl Symbol {
    /// Whether the symbol is known to cover the address.
    #[must_use]
    pub(super) fn covers(&self, address: u64) -> bool {
        self.size
            .is_some_and(|size| address.checked_sub(self.start).is_some_and(|at| at < size))
    }
}

/// blazesym could not use the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It reported that the file is malformed.
    Refused,
    /// It panicked, or the file was truncated: never to be used for that file again.
    Panicked,
}

/// Parts of an ELF file that may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Symbol tables.
    Symbols,
    /// Symbol tables and DWARF, debug files included.
    Debug,
}

/// A blazesym symbolizer, with its per-file caches.
///
/// Not `Send`: lives on the thread that created it.
pub(super) struct Blaze {
    debug_dirs: Option<Vec<PathBuf>>,
    symbolizer: OnceCell<Symbolizer>,
    /// Time of the last question.
    asked: Cell<Option<Instant>>,
    /// Time without a question after which the caches are dropped.
    rest: Duration,
}

/// The first such time; twice as long after each time, so that reading all again is rare.
const REST: Duration = Duration::from_secs(20);

/// The longest.
const LONGEST_REST: Duration = Duration::from_hours(1);

impl Blaze {
    /// `debug_dirs`: directories of debug files; `None`: blazesym's defaults `/usr/lib/debug` and `/lib/debug`.
    #[must_use]
    pub(super) fn new(debug_dirs: Option<&[PathBuf]>) -> Self {
        bus_error::survive();
        Self {
            debug_dirs: debug_dirs.map(<[PathBuf]>::to_vec),
            symbolizer: OnceCell::new(),
            asked: Cell::new(None),
            rest: REST,
        }
    }

    fn symbolizer(&self) -> &Symbolizer {
        self.symbolizer.get_or_init(|| {
            // Files are named by our open descriptors, so the file behind a name never changes.
            let mut builder = Builder::default()
                .enable_auto_reload(false)
                .enable_code_info(true)
                .enable_inlined_fns(true)
                .enable_demangling(false);
            if self.debug_dirs.is_some() {
                builder = builder.set_debug_dirs(self.debug_dirs.as_deref());
            }
            builder.build()
        })
    }

    /// Drops the caches, some MiB for each file, if nothing was asked for a while. The next question reads the file again.
    pub(super) fn rest(&mut self) {
        let asked = self.asked.get();
        if asked.is_some_and(|it| it.elapsed() >= self.rest) {
            self.symbolizer.take();
            self.asked.set(None);
            self.rest = (self.rest * 2).min(LONGEST_REST);
        }
    }

    /// The symbol at a virtual address of an ELF file; `None` if there is none.
    ///
    /// Cost: about 1 us from symbol tables, 6 us from DWARF once it is loaded; loading takes from 1 ms to some 100 ms.
    ///
    /// # Errors
    /// The file can't be used to that depth.
    pub(super) fn elf(
        &self,
        path: &Path,
        depth: Depth,
        address: u64,
    ) -> Result<Option<Symbol>, Failure> {
        let mut elf = Elf::new(path);
        elf.debug_syms = depth == Depth::Debug;
        self.ask(&Source::Elf(elf), Input::VirtOffset(address))
    }

    /// The symbol at a kernel address.
    ///
    /// # Errors
    /// Neither kallsyms nor vmlinux can be used.
    pub(super) fn kernel(&self, source: Kernel, address: u64) -> Result<Option<Symbol>, Failure> {
        self.ask(&Source::Kernel(source), Input::AbsAddr(address))
    }

    fn ask(&self, source: &Source<'_>, input: Input<u64>) -> Result<Option<Symbol>, Failure> {
        self.asked.set(Some(Instant::now()));
        let symbolizer = self.symbolizer();
        let replaced = bus_error::replaced();
        let answer = catch_unwind(AssertUnwindSafe(|| {
            symbolizer
                .symbolize_single(source, input)
                .map(|symbolized| match symbolized {
                    Symbolized::Sym(sym) => Some(convert(&sym)),
                    Symbolized::Unknown(_) => None,
                })
        }));
        if bus_error::replaced() != replaced {
            tracing::debug!("{source:?}: cut short while it was read");
            return Err(Failure::Panicked);
        }
        match answer {
            Ok(Ok(symbol)) => Ok(symbol),
            Ok(Err(error)) => {
                tracing::debug!("{source:?}: {error}");
                Err(Failure::Refused)
            }
            Err(_panic) => Err(Failure::Panicked),
        }
    }
}

fn convert(sym: &Sym<'_>) -> Symbol {
    let inlined = sym.inlined.iter().filter(|inner| !inner.name.is_empty());
    Symbol {
        name: (!sym.name.is_empty()).then(|| demangle(&sym.name)),
        start: sym.addr,
        size: sym.size.filter(|size| *size > 0).map(|size| size as u64),
        file: sym
            .code_info
            .as_ref()
            .map(|code| code.to_path().to_string_lossy().into_owned()),
        line: sym.code_info.as_ref().and_then(|code| code.line),
        inlined: inlined
            .map(|inner| Inner {
                name: demangle(&inner.name),
                file: inner
                    .code_info
                    .as_ref()
                    .map(|code| code.to_path().to_string_lossy().into_owned()),
            })
            .collect(),
    }
}
