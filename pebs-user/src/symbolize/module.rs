//! A binary that is mapped somewhere, and the functions found in it.

use std::cell::OnceCell;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::blaze::{Blaze, Depth, Failure, Inner, Symbol};
use super::data::{Variable, covering as covering_variable};
use super::functions::{Description, Functions};
use super::ranges::RangeTable;
use super::unwind_rules::UnwindRules;
use crate::arch::{DataAccess, LONGEST, access_at, access_before};
use crate::binary::debug_file::DebugFile;
use crate::binary::demangle::demangle;
use crate::binary::eh_frame::Span;
use crate::binary::elf_image::{self, ElfHead, Layout};
use crate::binary::symbols::Function;
use crate::binary::unwind::{NoCaller, Registers, StackCopy};
use crate::units::FunctionId;

/// Shared data that a module needs for a look-up.
pub(super) struct Context<'a> {
    /// The symbolizer.
    pub blaze: &'a Blaze,
    /// Assigns numbers to new functions.
    pub functions: &'a mut Functions,
    /// Whether samples go to the innermost inlined function.
    pub innermost: bool,
}

/// An ELF file, held open so that it can be read after its processes are gone.
struct Image {
    file: File,
    head: ElfHead,
    debug_file: Option<DebugFile>,
    /// Read when the first function is looked up.
    layout: Option<Layout>,
    /// Symbols of a stripped file that blazesym refuses to read, without a decompressor for them. Read when the first
    /// function is looked up.
    embedded: OnceCell<Option<Vec<Function>>>,
    /// Depth to which blazesym may read the file; lowered when it fails.
    depth: Option<Depth>,
}

impl Image {
    /// A path to the open file, whatever has become of its name.
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    fn embedded(&self) -> Option<&[Function]> {
        let read = || elf_image::embedded_symbols(&self.file);
        self.embedded.get_or_init(read).as_deref()
    }
}

/// One binary. Addresses are virtual addresses of its file.
pub(super) struct Module {
    name: String,
    /// Whether it is the kernel of a recording.
    pub kernel: bool,
    build_id: Option<String>,
    image: Option<Image>,
    ranges: RangeTable,
    by_start: FxHashMap<u64, FunctionId>,
    /// With [`super::Inlining::Innermost`] only: the functions at an address, from the innermost to the one that
    /// contains the code. By address, as inlined code is in many small pieces.
    by_address: FxHashMap<u64, Rc<[FunctionId]>>,
    by_inlined: FxHashMap<(FunctionId, String), FunctionId>,
    /// Addresses known to be in no function.
    nameless: FxHashMap<u64, FunctionId>,
    unresolved: Option<FunctionId>,
    /// Read when it is first needed.
    unwind_rules: Option<UnwindRules>,
    /// Read when it is first needed.
    variables: Option<Vec<Variable>>,
    /// Accesses of instructions to data: by offset in the file, and whether it is that of the instruction's end.
    accesses: FxHashMap<(u64, bool), Option<DataAccess>>,
}

/// Maximum number of results cached per address; at the limit all are dropped.
const ADDRESSES_KEPT: usize = 1 << 18;

/// Longest code of a function that is disassembled up to an instruction.
const CODE_MAX: u64 = 1 << 20;

/// Symbols before an address among which one is looked for that covers it: functions may lie within another.
const NESTED_MAX: usize = 16;

/// A function's place and name.
struct ResolvedFunction {
    span: Span,
    name: String,
    file: Option<String>,
    line: Option<u32>,
}

impl Module {
    /// As [`Module::function`], for a kernel: by virtual address in its file.
    pub(super) fn kernel_function(
        &mut self,
        address: u64,
        context: &mut Context<'_>,
    ) -> FunctionId {
        let is_code = |image: &Image| image.head.offset(address).is_some();
        match self.image.as_ref().is_some_and(is_code) {
            true => self.physical(address, context),
            false => self.unresolved(context),
        }
    }

    /// A binary that was opened.
    #[must_use]
    pub(super) fn of_elf(
        name: String,
        file: File,
        head: ElfHead,
        debug_file: Option<DebugFile>,
    ) -> Self {
        let depth = match head.symbols {
            true if debug_file.is_some() || head.own_debug() => Some(Depth::Debug),
            true => Some(Depth::Symbols),
            false => None,
        };
        let mut module = Self::without_symbols(name);
        module.build_id = head.build_id.map(|id| id.to_string());
        module.image = Some(Image {
            file,
            head,
            debug_file,
            layout: None,
            embedded: OnceCell::new(),
            depth,
        });
        module
    }

    /// A mapping without symbols.
    #[must_use]
    pub(super) fn without_symbols(name: String) -> Self {
        Self {
            name,
            kernel: false,
            build_id: None,
            image: None,
            ranges: RangeTable::default(),
            by_start: FxHashMap::default(),
            by_address: FxHashMap::default(),
            by_inlined: FxHashMap::default(),
            nameless: FxHashMap::default(),
            unresolved: None,
            unwind_rules: None,
            variables: None,
            accesses: FxHashMap::default(),
        }
    }

    /// Path of the binary.
    #[must_use]
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the file can be read as ELF.
    #[must_use]
    pub(super) const fn is_elf(&self) -> bool {
        self.image.is_some()
    }

    /// Replaces the registers of a frame in the code at an offset of the file by its caller's. Returns whether the caller was
    /// interrupted there by a signal, and so is at an instruction, not behind a call.
    ///
    /// Cost: some 20 ns for a known address, some us for a new one; the first call reads the tables.
    ///
    /// # Errors
    /// See [`NoCaller`]; `None` if the file has no rule.
    pub(super) fn unwind(
        &mut self,
        offset: u64,
        registers: &mut Registers,
        stack: &StackCopy<'_>,
    ) -> Result<bool, Option<NoCaller>> {
        let image = self.image.as_ref().filter(|image| image.head.native);
        let image = image.ok_or(None)?;
        let address = image.head.address(offset).ok_or(None)?;
        let read = || UnwindRules::read(&image.file);
        let rules = self.unwind_rules.get_or_insert_with(read);
        rules.step(address, registers, stack)
    }

    /// The variable at an address of a process that has the byte at `offset` of the file at `start`, and the address's
    /// distance from its begin. `None`: no part of the file's memory; within it, `Some(None)`: no variable.
    ///
    /// Cost: the first call for an address within the file's memory reads its symbols.
    pub(super) fn variable(
        &mut self,
        (start, offset): (u64, u64),
        address: u64,
    ) -> Option<Option<(Rc<str>, u64)>> {
        let image = self.image.as_ref()?;
        let first = image.head.address_of_mapping(offset)?;
        let address = address.wrapping_sub(start).wrapping_add(first);
        if !image.head.memory.contains(&address) {
            return None;
        }
        let read = || {
            let mut all = elf_image::variables(&image.file);
            all.extend(image.debug_file.iter().flat_map(DebugFile::variables));
            all.sort_by_key(|(_, start, _)| *start);
            let all = all.into_iter().map(|(name, start, size)| Variable {
                range: start..start.saturating_add(size),
                name: demangle(&name).into(),
            });
            all.collect()
        };
        let variables = self.variables.get_or_insert_with(read);
        let found = covering_variable(variables, address);
        Some(found.map(|it| (Rc::clone(&it.name), address - it.range.start)))
    }

    /// Returns the access to data of the instruction at an offset of the file, or, if `before`, of the one that ends
    /// there. Addresses are those of the file.
    ///
    /// Cost: some us for an offset that is not cached.
    pub(super) fn data_access(
        &mut self,
        (offset, before): (u64, bool),
        blaze: &Blaze,
    ) -> Option<(u64, DataAccess)> {
        let image = self.image.as_ref().filter(|image| image.head.native)?;
        let address = image.head.address(offset)?;
        let access = match self.accesses.get(&(offset, before)) {
            Some(known) => *known,
            None => {
                let found = self.decode_access(address, before, blaze);
                if self.accesses.len() >= ADDRESSES_KEPT {
                    self.accesses.clear();
                }
                self.accesses.insert((offset, before), found);
                found
            }
        };
        Some((address, access?))
    }

    fn decode_access(&mut self, address: u64, before: bool, blaze: &Blaze) -> Option<DataAccess> {
        let start = match before {
            true => self.find(address.checked_sub(1)?, blaze)?.span.start,
            false => address,
        };
        let image = self.image.as_ref()?;
        let length = address - start + LONGEST;
        if length > CODE_MAX {
            return None;
        }
        let mut code = vec![0; usize::try_from(length).ok()?];
        let read = image.file.read_at(&mut code, image.head.offset(start)?);
        code.truncate(read.ok()?);
        match before {
            true => access_before(&code, start, address),
            false => access_at(&code, address),
        }
    }

    /// The function at an offset of the file.
    ///
    /// Cost: O(log functions) for a known function.
    pub(super) fn function(&mut self, offset: u64, context: &mut Context<'_>) -> FunctionId {
        let address = self
            .image
            .as_ref()
            .and_then(|image| image.head.address(offset));
        match address {
            Some(address) if context.innermost => self.innermost(address, context),
            Some(address) => self.physical(address, context),
            None => self.unresolved(context),
        }
    }

    /// The function that contains the address's code.
    fn physical(&mut self, address: u64, context: &mut Context<'_>) -> FunctionId {
        if let Some(function) = self.ranges.get(address) {
            return function;
        }
        if let Some(function) = self.nameless.get(&address) {
            return *function;
        }
        match self.find(address, context.blaze) {
            Some(found) => self.enter(address, found, context),
            None => {
                let function = self.unresolved(context);
                remember(&mut self.nameless, address, function);
                function
            }
        }
    }

    /// The innermost inlined function at the address.
    fn innermost(&mut self, address: u64, context: &mut Context<'_>) -> FunctionId {
        match self.at(address, context).first() {
            Some(function) => *function,
            None => self.unresolved(context),
        }
    }

    /// The functions inlined at an offset of the file, the innermost first; last the one that contains the code.
    ///
    /// Cost: a query of the debug information for an address that is not cached.
    pub(super) fn frames(&mut self, offset: u64, context: &mut Context<'_>) -> Rc<[FunctionId]> {
        let image = self.image.as_ref();
        match image.and_then(|image| image.head.address(offset)) {
            Some(address) => self.at(address, context),
            None => [self.unresolved(context)].into(),
        }
    }

    fn at(&mut self, address: u64, context: &mut Context<'_>) -> Rc<[FunctionId]> {
        if let Some(functions) = self.by_address.get(&address) {
            return Rc::clone(functions);
        }
        let outer = self.physical(address, context);
        let symbol = self.ask(context.blaze, address);
        let inlined = symbol.map_or_else(Vec::new, |symbol| symbol.inlined);
        let inlined = inlined.into_iter().rev();
        let mut functions: Vec<FunctionId> = inlined
            .map(|inner| self.inlined(outer, inner, context))
            .collect();
        functions.push(outer);
        let functions: Rc<[FunctionId]> = functions.into();
        remember(&mut self.by_address, address, Rc::clone(&functions));
        functions
    }

    fn inlined(
        &mut self,
        outer: FunctionId,
        inner: Inner,
        context: &mut Context<'_>,
    ) -> FunctionId {
        let key = (outer, inner.name);
        if let Some(function) = self.by_inlined.get(&key) {
            return *function;
        }
        let function = context.functions.add(Description {
            name: Some(key.1.clone()),
            module: Some(self.name.clone()),
            build_id: self.build_id.clone(),
            file: inner.file,
            inlined: true,
            ..Description::default()
        });
        self.by_inlined.insert(key, function);
        function
    }

    /// The module's single row for addresses without a name.
    pub(super) fn unresolved(&mut self, context: &mut Context<'_>) -> FunctionId {
        *self.unresolved.get_or_insert_with(|| {
            context.functions.add(Description {
                module: Some(self.name.clone()),
                build_id: self.build_id.clone(),
                kernel: self.kernel,
                ..Description::default()
            })
        })
    }

    /// Numbers a function that was found and enters its range, so that it is not looked for again.
    fn enter(
        &mut self,
        address: u64,
        found: ResolvedFunction,
        context: &mut Context<'_>,
    ) -> FunctionId {
        let Span { start, end } = found.span;
        let image = self.image.as_ref();
        let function = *self.by_start.entry(start).or_insert_with(|| {
            context.functions.add(Description {
                name: Some(found.name),
                module: Some(self.name.clone()),
                build_id: self.build_id.clone(),
                offset: image.and_then(|image| image.head.offset(start)),
                size: Some(end - start),
                file: found.file,
                line: found.line,
                kernel: self.kernel,
                inlined: false,
                kernel_entry: None,
                system_call: None,
            })
        });
        let nested = self.layout().map_or(&[][..], |layout| &layout.nested);
        let piece = around(nested, address, found.span);
        self.ranges
            .insert(address, piece.start, piece.end, function);
        function
    }

    /// Range and name of the function at an address.
    ///
    /// Range, in this order: of a symbol that covers the address; of a frame description that does; of a symbol
    /// without a size in the full symbol table. Never of the nearest symbol below, which in stripped binaries is
    /// usually another function. Name: of the file's own symbol at the start, else DWARF's: so it is the name by
    /// which the function can be probed, with or without installed debug files.
    fn find(&mut self, address: u64, blaze: &Blaze) -> Option<ResolvedFunction> {
        let symbol = self.ask(blaze, address);
        let (span, name) = match symbol {
            Some(symbol) if symbol.covers(address) => named(symbol),
            symbol => self.find_by_place(address, symbol.and_then(scattered_name), blaze)?,
        };
        let own = self
            .ask_to(blaze, Depth::Symbols, span.start)
            .filter(|own| own.start == span.start)
            .and_then(|own| own.name);
        let entry = self.ask(blaze, span.start);
        let (file, line) = entry.map_or((None, None), |entry| (entry.file, entry.line));
        let name = own.or(name);
        Some(ResolvedFunction {
            name: name.unwrap_or_else(|| self.anonymous_name(span.start)),
            span,
            file,
            line,
        })
    }

    /// As `find`, for an address that no symbol covers. `name` is DWARF's, for a function with several pieces.
    fn find_by_place(
        &mut self,
        address: u64,
        name: Option<String>,
        blaze: &Blaze,
    ) -> Option<(Span, Option<String>)> {
        if let Some(piece) = self.ask_to(blaze, Depth::Symbols, address)
            && piece.covers(address)
        {
            let (span, piece_name) = named(piece);
            return Some((span, name.or(piece_name)));
        }
        let layout = self.layout()?;
        if let Some(function) = layout.go_function(address) {
            let span = Span {
                start: function.start,
                end: function.end,
            };
            return Some((span, Some(function.name.to_string())));
        }
        let enclosing = Span::find(&layout.enclosing, address);
        let frame = Span::find(&layout.frames, address);
        let unsized_function = Span::find(&layout.unsized_functions, address);
        if let Some(enclosing) = enclosing
            && let Some(symbol) = self.ask_to(blaze, Depth::Symbols, enclosing.start)
            && symbol.covers(address)
        {
            return Some(named(symbol));
        }
        if let Some(frame) = frame {
            return Some(self.name_frame(frame, address, name, blaze));
        }
        let span = unsized_function?;
        let symbol = self.ask_to(blaze, Depth::Symbols, span.start)?;
        (symbol.start == span.start).then_some((span, symbol.name))
    }

    fn name_frame(
        &mut self,
        frame: Span,
        address: u64,
        name: Option<String>,
        blaze: &Blaze,
    ) -> (Span, Option<String>) {
        if name.is_some() {
            return (frame, name);
        }
        match self.ask_to(blaze, Depth::Symbols, frame.start) {
            Some(symbol) if symbol.covers(address) => named(symbol),
            Some(symbol) if symbol.start == frame.start && symbol.size.is_none() => {
                (frame, symbol.name)
            }
            _ => (frame, None),
        }
    }

    /// `module+fn@0xADDR`: the start of the function is known, its name is not.
    fn anonymous_name(&self, start: u64) -> String {
        let file_name = Path::new(&self.name).file_name();
        let module = file_name.map_or(self.name.as_str().into(), |name| name.to_string_lossy());
        format!("{module}+fn@{start:#x}")
    }

    fn layout(&mut self) -> Option<&Layout> {
        let image = self.image.as_mut()?;
        let file = &image.file;
        Some(
            image
                .layout
                .get_or_insert_with(|| elf_image::read_layout(file)),
        )
    }

    fn ask(&mut self, blaze: &Blaze, address: u64) -> Option<Symbol> {
        self.ask_to(blaze, Depth::Debug, address)
    }

    /// Queries blazesym, at most to the depth that still works for this file.
    fn ask_to(&mut self, blaze: &Blaze, at_most: Depth, address: u64) -> Option<Symbol> {
        let image = self.image.as_mut()?;
        loop {
            let depth = match (image.depth?, at_most) {
                (Depth::Debug, Depth::Debug) => Depth::Debug,
                _ => Depth::Symbols,
            };
            let answer = match (&image.debug_file, depth) {
                (Some(debug), Depth::Debug) => blaze.elf(&debug.path(), depth, address),
                _ => match image.embedded() {
                    Some(functions) => Ok(covering(functions, address)),
                    None => blaze.elf(&image.path(), depth, address),
                },
            };
            match (answer, depth) {
                (Ok(symbol), _) => return symbol,
                // A broken debug file does not mean that the binary is broken.
                (Err(_), Depth::Debug) if image.debug_file.take().is_some() => {
                    let own = image.head.own_debug();
                    image.depth = Some(if own { Depth::Debug } else { Depth::Symbols });
                }
                (Err(Failure::Refused), Depth::Debug) => image.depth = Some(Depth::Symbols),
                (Err(_), _) => image.depth = None,
            }
        }
    }
}

fn remember<T>(answers: &mut FxHashMap<u64, T>, address: u64, function: T) {
    if answers.len() >= ADDRESSES_KEPT {
        answers.clear();
    }
    answers.insert(address, function);
}

/// The symbol that covers an address, or one without a size that starts there. `functions` is sorted by address.
fn covering(functions: &[Function], address: u64) -> Option<Symbol> {
    let before = &functions[..functions.partition_point(|it| it.address <= address)];
    let covers = |it: &&Function| it.address == address || address - it.address < it.size;
    let found = before.iter().rev().take(NESTED_MAX).find(covers)?;
    Some(Symbol {
        name: Some(demangle(&found.name)),
        start: found.address,
        size: Some(found.size).filter(|size| *size > 0),
        ..Symbol::default()
    })
}

/// Place and name of a symbol that has a size.
fn named(symbol: Symbol) -> (Span, Option<String>) {
    let span = Span {
        start: symbol.start,
        end: symbol.start.saturating_add(symbol.size.unwrap_or(0)),
    };
    (span, symbol.name)
}

/// The name of a function that has several pieces in DWARF: blazesym then returns neither start nor size.
fn scattered_name(symbol: Symbol) -> Option<String> {
    (symbol.start == 0 && symbol.size.is_none())
        .then_some(symbol.name)
        .flatten()
}

/// The part of a span around an address that no nested function covers.
fn around(nested: &[Span], address: u64, span: Span) -> Span {
    let mut piece = span;
    let behind = nested.partition_point(|inner| inner.start <= address);
    if let Some(before) = behind.checked_sub(1).map(|index| nested[index])
        && before.end <= address
    {
        piece.start = piece.start.max(before.end);
    }
    if let Some(next) = nested.get(behind) {
        piece.end = piece.end.min(next.start);
    }
    piece
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A nested function cuts the outer one's range on both sides, and keeps its own.
    #[test]
    fn nested_cut() {
        let span = |start, end| Span { start, end };
        let nested = [span(20, 30), span(50, 60)];
        let outer = span(10, 100);
        assert_eq!(around(&nested, 15, outer), span(10, 20));
        assert_eq!(around(&nested, 40, outer), span(30, 50));
        assert_eq!(around(&nested, 70, outer), span(60, 100));
        assert_eq!(around(&nested, 25, span(20, 30)), span(20, 30));
    }
}
