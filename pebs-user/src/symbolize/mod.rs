//! Finds the function of an instruction pointer.
//!
//! ```text
//! (pid, ip) -> ip cache -> mapping of the process -> module, offset -> range table -> function id
//!                               | unknown                                | unknown
//!                               /proc/PID/maps, perf map                 blazesym, .eh_frame: once a function
//! ```
//!
//! Invariant: a sample always gets a function. Addresses without a name get their module's single unresolved row,
//! so the size of the `functions` table is bounded by the binaries, not by the addresses sampled.
//!
//! Invariant: no name is guessed. An address that no symbol covers is `module+fn@0xADDR` (ADDR: virtual address in
//! the file) if unwind tables give the start of its function, else unresolved.
//!
//! Files come from the traced processes and are not trusted: see `open`, `elf_image`, `debug_file` and `blaze` for
//! the checks. Memory: per sampled function about 200 bytes; per binary its spans (16 bytes per frame description)
//! and blazesym's index (8 bytes per symbol, plus parsed DWARF units); tables over 512 MiB are not read. The
//! numbers of open binaries, modules and functions of compiled code are limited: see `modules` and `jitted`.

pub(crate) mod space;
pub(crate) mod stacks;
pub(crate) mod unwind;

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

mod blaze;
mod data;
mod functions;
mod ip_cache;
mod jit_dump;
mod jitted;
mod kernel;
mod module;
mod modules;
mod own_work;
mod perf_map;
mod ranges;
mod recorded;
mod unwind_rules;

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

pub use self::data::DataPlace;
pub use self::kernel::{KernelSymbolsMissing, kernel_code};
pub use self::recorded::{Recorded, RecordedKernel};

use self::blaze::Blaze;
use self::data::DataMaps;
use self::functions::{Description, Functions};
use self::ip_cache::IpCache;
use self::jitted::JitFile;
use self::kernel::{KERNEL_MODULE, KernelSymbols};
use self::module::{Context, Module};
use self::modules::Modules;
use self::recorded::Vmlinux;
use self::space::{Change, ModuleId, Spaces};
use crate::arch::DataAccess;
use crate::binary::mapping::{Backing, Mapping};
use crate::binary::proc_maps::proc_maps;
use crate::store::schema::FunctionRow;
use crate::stream::sample::KernelEntry;
use crate::stream::sideband::SidebandKind;
use crate::units::{FunctionId, Ip, Pid, Slot};

/// Address of the kernel's legacy page, one page long, in the upper half of all address spaces.
const VSYSCALL: u64 = 0xffff_ffff_ff60_0000;
const VSYSCALL_LEN: u64 = 4096;

/// The kernel's pages in user space, each treated as one function.
const PAGES: [&str; 3] = ["[vsyscall]", "[uprobes]", "[uprobes-trampoline]"];

/// Minimum time between two readings of one process's mappings.
const MAPS_AGAIN: Duration = Duration::from_millis(100);

/// Function to which a sample in inlined code is attributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inlining {
    /// The function that contains the code: a debugger's physical frame.
    #[default]
    Physical,
    /// The innermost inlined function. Needs DWARF; costs one query per address, not per function. The same
    /// function inlined into two functions has two ids.
    Innermost,
}

/// Options of symbolizing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SymbolizeOptions {
    /// Attribution of inlined functions.
    pub inlined: Inlining,
    /// Directories with debug files (by build id, by debug link); `None`: `/usr/lib/debug` and `/lib/debug`.
    pub debug_dirs: Option<Vec<PathBuf>>,
    /// Set if the processes are those of a recording, perhaps of another machine: no process here is read, and
    /// binaries are searched as it specifies.
    pub recorded: Option<Recorded>,
    /// Prefixes of the symbols of the recording programs; `None`: no work is attributed to pebs-trace.
    pub own_programs: Option<Vec<String>>,
}

/// Names the functions of samples.
///
/// Events about processes ([`Symbolizer::on_mapping`] and so on) are given in order of time, between the samples.
/// Not `Send`: created on the thread that uses it.
pub struct Symbolizer {
    cache: IpCache,
    spaces: Spaces,
    modules: Modules,
    blaze: Blaze,
    functions: Functions,
    kernel: KernelSymbols,
    /// The file of a recorded kernel, and the offset of the kernel's addresses from those in the file.
    vmlinux: Option<(Module, u64)>,
    perf_maps: FxHashMap<Pid, JitFile>,
    jit_dumps: FxHashMap<Pid, JitFile>,
    /// Number of functions that all of these may still add.
    jitted_left: Rc<Cell<usize>>,
    /// Processes whose binaries are opened as soon as they are mapped.
    announced: FxHashSet<Pid>,
    /// Time at which the mappings of a process were last read from it.
    maps_read: FxHashMap<Pid, Instant>,
    data_maps: DataMaps,
    unmapped: Option<FunctionId>,
    /// Functions of [`PAGES`].
    pages: [Option<FunctionId>; PAGES.len()],
    innermost: bool,
    /// The processes run on this machine and can be read.
    is_live: bool,
    changes: u64,
}

/// One of [`PAGES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Vsyscall,
    Uprobes,
    UprobesTrampoline,
}

/// Access of an instruction to data in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstructionAccess {
    /// `load`, `store` or `load+store`.
    pub op: &'static str,
    /// Its size; `None`: not known.
    pub bytes: Option<u32>,
    /// Its address, if no register decides it.
    pub address: Option<u64>,
}

/// Target of a mapping.
enum Place {
    Module(ModuleId, u64),
    Page(Page),
    Unmapped,
}

impl Symbolizer {
    /// Reads nothing yet.
    #[must_use]
    pub fn new(options: SymbolizeOptions) -> Self {
        let SymbolizeOptions {
            inlined,
            debug_dirs,
            recorded,
            own_programs,
        } = options;
        let innermost = inlined == Inlining::Innermost;
        let is_live = recorded.is_none();
        let foreign = recorded.as_ref().filter(|it| !it.has_our_kernel());
        let kernel = match foreign {
            Some(_) => KernelSymbols::unknown(),
            None => KernelSymbols::new(debug_dirs.clone()).with_own(own_programs),
        };
        let vmlinux = foreign.and_then(Recorded::vmlinux).map(|vmlinux| {
            let Vmlinux {
                opened,
                head,
                slide,
            } = vmlinux;
            let mut module = Module::of_elf(KERNEL_MODULE.into(), opened.file, head, None);
            module.kernel = true;
            (module, slide)
        });
        Self {
            cache: IpCache::new(),
            spaces: Spaces::new(),
            modules: Modules::new(debug_dirs.as_deref()).with_recorded(recorded),
            blaze: Blaze::new(debug_dirs.as_deref()),
            functions: Functions::default(),
            kernel,
            vmlinux,
            perf_maps: FxHashMap::default(),
            jit_dumps: FxHashMap::default(),
            jitted_left: Rc::new(Cell::new(jitted::ENTRIES_MAX)),
            announced: FxHashSet::default(),
            maps_read: FxHashMap::default(),
            data_maps: DataMaps::default(),
            unmapped: None,
            pages: [None; PAGES.len()],
            innermost,
            is_live,
            changes: 0,
        }
    }

    /// The function of an address in a process.
    ///
    /// Cost: some ns for a recently seen address, no allocation; about 50 ns for a known function; a miss reads
    /// files. Addresses of JIT-compiled code are never cached, as it moves.
    #[inline]
    pub fn function(&mut self, pid: Pid, ip: Ip) -> FunctionId {
        match self.cache.get(pid, ip) {
            Some((function, _)) => function,
            None => self.find_function(pid, ip),
        }
    }

    /// Looks up many addresses, with the cache slot of each result; [`Slot::any`] if it is not cached.
    pub fn functions(
        &mut self,
        pid: Pid,
        ips: &[Ip],
        (functions, slots): (&mut [FunctionId], &mut [Slot]),
    ) {
        let mut done = 0;
        loop {
            let to = (&mut functions[done..], &mut slots[done..]);
            done += self.cache.get_all(pid, &ips[done..], to);
            let Some(ip) = ips.get(done) else {
                return;
            };
            (functions[done], slots[done]) = match self.cache.get(pid, *ip) {
                Some(found) => found,
                None => (self.find_function(pid, *ip), Slot::any(*ip)),
            };
            done += 1;
        }
    }

    /// The function that stands for a kernel function where the kernel was entered in this way; at marks, pebs-trace's own.
    /// Its own work and other functions are returned unchanged.
    pub fn entered_by(&mut self, function: FunctionId, entry: KernelEntry) -> FunctionId {
        match entry {
            KernelEntry::Mark => self.own_function(),
            _ => self.functions.entered_by(function, entry),
        }
    }

    /// The function at an address of the kernel, where the kernel was entered by a breakpoint of another tool: what is done
    /// for it is not pebs-trace's own work.
    pub fn function_of_other_tool(&mut self, ip: Ip) -> FunctionId {
        self.kernel
            .function_of_other_tool(ip.0, &mut self.functions)
    }

    /// The functions of an address as frames: with [`Inlining::Innermost`] the inlined ones, the innermost first,
    /// then the function that contains the code. The first is [`Symbolizer::function`]'s.
    ///
    /// Cost: as [`Symbolizer::function`]; with inlined functions some 100 ns for a known address.
    pub fn frames(&mut self, pid: Pid, ip: Ip, mut take: impl FnMut(FunctionId)) {
        let function = self.function(pid, ip);
        let place = (self.innermost && !ip.is_kernel()).then(|| self.place(pid, ip.0));
        let frames = match place {
            Some(Place::Module(module, offset)) if self.modules.get(module).is_elf() => {
                let mut context = Context {
                    blaze: &self.blaze,
                    functions: &mut self.functions,
                    innermost: true,
                };
                let module = self.modules.get_mut(module);
                Some(module.frames(offset, &mut context))
            }
            _ => None,
        };
        // The cached function may be older than the last change of the mappings.
        match frames.filter(|frames| frames.first() == Some(&function)) {
            Some(frames) => frames.iter().for_each(|frame| take(*frame)),
            None => take(function),
        }
    }

    /// The function of an address that the cache does not have.
    #[inline(never)]
    fn find_function(&mut self, pid: Pid, ip: Ip) -> FunctionId {
        if ip.is_kernel() {
            self.kernel_function(pid, ip.0)
        } else {
            self.user_function(pid, ip.0)
        }
    }

    /// Moves the rows of functions found since the last call to the end of `out`; each id is returned once.
    pub fn take_new_functions(&mut self, out: &mut Vec<FunctionRow>) {
        self.functions.take_new(out);
    }

    /// Number of changes of addresses' meaning so far: a result may differ from one returned before the last
    /// change.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether a process has JIT-compiled code, whose addresses change their meaning unnoticed.
    #[must_use]
    pub fn has_jitted(&self, pid: Pid) -> bool {
        let files = [self.perf_maps.get(&pid), self.jit_dumps.get(&pid)];
        files.into_iter().flatten().any(JitFile::is_there)
    }

    /// Whether the function has a name.
    #[must_use]
    pub fn is_resolved(&self, function: FunctionId) -> bool {
        self.functions.is_resolved(function)
    }

    /// Whether the kernel calls the function only to give up the CPU.
    #[must_use]
    pub fn is_scheduling(&self, function: FunctionId) -> bool {
        self.functions.is_scheduling(function)
    }

    /// Whether Go's runtime calls the function only to park a goroutine.
    #[must_use]
    pub fn is_parking(&self, function: FunctionId) -> bool {
        self.functions.is_parking(function)
    }

    /// The function of pebs-trace's own work; everything that runs during a mark is attributed to it, too.
    pub fn own_function(&mut self) -> FunctionId {
        self.kernel.own_function(&mut self.functions)
    }

    /// Why kernel functions have no names, once one was looked up without success.
    #[must_use]
    pub const fn kernel_symbols_missing(&self) -> Option<KernelSymbolsMissing> {
        self.kernel.missing()
    }

    /// Reads the kernel's symbols now, about 50 ms, instead of at the first kernel address.
    pub fn prepare_kernel(&mut self) {
        self.kernel.prepare();
    }

    /// Drops what was read of files and can be read again, if it was not needed for a while.
    pub fn rest(&mut self) {
        self.blaze.rest();
        self.kernel.rest();
    }

    /// Starts tracing a process: reads its mappings and opens its binaries, so that it can be symbolized after its
    /// end. One of a recording has nothing to be read before it ends.
    pub fn announce(&mut self, pid: Pid) {
        if !self.is_live {
            return;
        }
        self.announced.insert(pid);
        self.read_maps(pid);
        self.open_modules(pid);
        self.perf_map(pid);
    }

    /// The process mapped code.
    pub fn on_mapping(&mut self, pid: Pid, mapping: Mapping) {
        let start = mapping.start;
        self.jit_dump(pid, &mapping);
        let change = self.spaces.on_mapping(pid, mapping);
        self.after(change, pid);
        if self.announced.contains(&pid) {
            self.place(pid, start);
        }
    }

    /// The process created another one, or a thread (parent = child).
    pub fn on_fork(&mut self, parent: Pid, child: Pid) {
        if parent == child {
            return;
        }
        let change = self.spaces.on_fork(parent, child);
        self.after(change, child);
        self.drop_jitted(child);
        self.maps_read.remove(&child);
        if self.announced.contains(&parent) {
            self.announced.insert(child);
        } else {
            self.announced.remove(&child);
        }
    }

    /// The process has executed another program.
    pub fn on_exec(&mut self, pid: Pid) {
        let change = self.spaces.on_exec(pid);
        self.after(change, pid);
        self.drop_jitted(pid);
    }

    /// The process has ended; it can be symbolized until it is retired.
    pub fn on_exit(&mut self, pid: Pid) {
        if let Some(dropped) = self.spaces.on_exit(pid) {
            self.drop_process(dropped);
        }
    }

    /// The ended process that is forgotten when the next one ends, if one is.
    #[must_use]
    pub fn next_dropped(&self) -> Option<Pid> {
        self.spaces.next_dropped()
    }

    /// No more samples of the process will be looked up.
    pub fn retire(&mut self, pid: Pid) {
        self.spaces.retire(pid);
        self.drop_process(pid);
    }

    /// Handles any of these events, from the kernel's records.
    ///
    /// A process counts as ended when its first thread has; if other threads go on, it is still symbolized, but
    /// unreported mappings are no longer read from it.
    pub fn on_event(&mut self, event: SidebandKind) {
        match event {
            SidebandKind::Mapped { pid, mapping, .. } => self.on_mapping(pid, mapping),
            SidebandKind::Comm {
                pid, exec: true, ..
            } => self.on_exec(pid),
            SidebandKind::Fork { pid, parent, .. } => self.on_fork(parent, pid),
            SidebandKind::Replaced { pid, earlier } => {
                self.on_fork(pid, earlier);
                self.on_exec(pid);
            }
            SidebandKind::Exit { pid, tid } if pid.0 == tid.0 => self.on_exit(pid),
            SidebandKind::Comm { .. } | SidebandKind::Exit { .. } | SidebandKind::Lost { .. } => {}
        }
    }

    fn drop_process(&mut self, pid: Pid) {
        self.forget(pid);
        self.drop_jitted(pid);
        self.maps_read.remove(&pid);
        self.data_maps.forget(pid);
        self.announced.remove(&pid);
    }

    fn after(&mut self, change: Change, pid: Pid) {
        if change == Change::Replaced {
            self.forget(pid);
        }
    }

    /// Drops a process's cached addresses, whose meaning has changed.
    fn forget(&mut self, pid: Pid) {
        self.cache.forget(pid);
        self.changes += 1;
    }

    fn kernel_function(&mut self, pid: Pid, address: u64) -> FunctionId {
        if (VSYSCALL..VSYSCALL + VSYSCALL_LEN).contains(&address) {
            return self.page(Page::Vsyscall);
        }
        let function = match &mut self.vmlinux {
            Some((module, slide)) => {
                let mut context = Context {
                    blaze: &self.blaze,
                    functions: &mut self.functions,
                    innermost: false,
                };
                module.kernel_function(address.wrapping_sub(*slide), &mut context)
            }
            None => self.kernel.function(address, &mut self.functions),
        };
        if self.functions.is_resolved(function) {
            self.cache.put(pid, Ip(address), function);
        }
        function
    }

    fn user_function(&mut self, pid: Pid, address: u64) -> FunctionId {
        match self.place_now(pid, address) {
            Place::Module(module, offset) => self.module_function(pid, address, module, offset),
            // Instructions that are single-stepped out of line, and calls of marks.
            Place::Page(Page::Uprobes | Page::UprobesTrampoline) if self.kernel.has_own() => {
                self.own_function()
            }
            Place::Page(page) => self.page(page),
            // A JIT compiler may have made the page executable only between its writes.
            Place::Unmapped => match self.jitted(pid, address) {
                Some(function) => function,
                None => self.unmapped(),
            },
        }
    }

    /// Finds what is at an address of a process's data: a variable of a binary, else what a running process has mapped
    /// there. `None`: not known.
    ///
    /// Cost: some ns a mapping of code; the first address in a binary reads its symbols, a new one in no binary may read the
    /// process's mappings.
    pub fn data(&mut self, pid: Pid, address: u64) -> Option<DataPlace> {
        if Ip(address).is_kernel() {
            return None;
        }
        if self.maps_are_stale(pid) && !self.spaces.contains(pid) {
            self.read_maps(pid);
        }
        self.open_modules(pid);
        let mapped = self.spaces.mappings(pid).iter();
        let known = mapped.filter_map(|it| Some((it.module?, it.mapping.start, it.mapping.offset)));
        for (module, start, offset) in known {
            let module = self.modules.get_mut(module);
            if let Some((symbol, offset)) = module.variable((start, offset), address).flatten() {
                return Some(DataPlace {
                    symbol: Some(symbol),
                    object: Some(module.name().into()),
                    offset,
                });
            }
        }
        match (self.is_live, self.spaces.has_exited(pid)) {
            (true, false) => self.data_maps.read(pid, address),
            _ => self.data_maps.recorded(pid, address),
        }
    }

    /// A recorded process mapped data. `name`: of the file, or perf's `[heap]`, `[stack]` or `//anon`.
    pub fn on_data_mapping(&mut self, pid: Pid, range: Range<u64>, name: &[u8]) {
        const NO_NAME: &[u8] = b"//anon";
        let name = String::from_utf8_lossy(name);
        let name = Some(&*name).filter(|it| it.as_bytes() != NO_NAME && !it.is_empty());
        self.data_maps.add(pid, range, name.map(Rc::from));
    }

    /// Returns the access to data of the instruction at `ip`, or, if `before`, of the one that ends there: a data
    /// breakpoint stops behind the access. `None`: not known.
    ///
    /// Cost: some ns for a known instruction, some us for a new one.
    pub fn data_access(&mut self, pid: Pid, ip: Ip, before: bool) -> Option<InstructionAccess> {
        let Place::Module(module, offset) = self.place_now(pid, ip.0) else {
            return None;
        };
        let module = self.modules.get_mut(module);
        let (in_file, access) = module.data_access((offset, before), &self.blaze)?;
        let DataAccess { op, bytes, address } = access;
        let to_process = ip.0.wrapping_sub(in_file);
        Some(InstructionAccess {
            op,
            bytes: Some(bytes).filter(|bytes| *bytes > 0),
            address: address.map(|address| address.wrapping_add(to_process)),
        })
    }

    fn module_function(
        &mut self,
        pid: Pid,
        address: u64,
        module: ModuleId,
        offset: u64,
    ) -> FunctionId {
        if !self.modules.get(module).is_elf()
            && let Some(function) = self.jitted(pid, address)
        {
            return function;
        }
        let module = self.modules.get_mut(module);
        let jit = self.is_live && !module.is_elf();
        let mut context = Context {
            blaze: &self.blaze,
            functions: &mut self.functions,
            innermost: self.innermost,
        };
        let function = module.function(offset, &mut context);
        if !jit {
            self.cache.put(pid, Ip(address), function);
        }
        function
    }

    fn jitted(&mut self, pid: Pid, address: u64) -> Option<FunctionId> {
        if !self.spaces.contains(pid) {
            return None;
        }
        self.perf_map(pid);
        let files = [self.jit_dumps.get_mut(&pid), self.perf_maps.get_mut(&pid)];
        let mut files = files.into_iter().flatten();
        files.find_map(|file| file.function(address, &mut self.functions))
    }

    fn drop_jitted(&mut self, pid: Pid) {
        self.perf_maps.remove(&pid);
        self.jit_dumps.remove(&pid);
    }

    /// Takes note of a mapped dump of compiled code.
    fn jit_dump(&mut self, pid: Pid, mapping: &Mapping) {
        if self.is_live
            && let Backing::File(file) = &mapping.backing
            && jit_dump::is_dump(&file.path)
            && self
                .jit_dumps
                .get(&pid)
                .is_none_or(|it| !it.is_at(&file.path))
            && let Some(dump) = jit_dump::file(pid, &file.path, Rc::clone(&self.jitted_left))
        {
            self.jit_dumps.insert(pid, dump);
        }
    }

    /// Finds out where the process's perf map is, while the process exists.
    fn perf_map(&mut self, pid: Pid) {
        if self.is_live
            && let Entry::Vacant(entry) = self.perf_maps.entry(pid)
            && let Some(map) = perf_map::file(pid, Rc::clone(&self.jitted_left))
        {
            entry.insert(map);
        }
    }

    /// The place of an address now, reading the process's mappings if some may be missing.
    fn place_now(&mut self, pid: Pid, address: u64) -> Place {
        match self.place(pid, address) {
            Place::Unmapped if self.maps_are_stale(pid) => {
                self.read_maps(pid);
                self.place(pid, address)
            }
            place => place,
        }
    }

    /// The place of an address; opens its module if necessary.
    fn place(&mut self, pid: Pid, address: u64) -> Place {
        let Some(mapped) = self.spaces.find(pid, address) else {
            return Place::Unmapped;
        };
        let offset = mapped.mapping.file_offset(address);
        if let Some(module) = mapped.module {
            return Place::Module(module, offset);
        }
        match mapped.mapping.backing {
            Backing::Uprobes => Place::Page(Page::Uprobes),
            Backing::UprobesTrampoline => Place::Page(Page::UprobesTrampoline),
            Backing::Vsyscall => Place::Page(Page::Vsyscall),
            _ => {
                let module = self.modules.of_mapping(pid, &mapped.mapping);
                self.spaces.set_module(pid, address, module);
                Place::Module(module, offset)
            }
        }
    }

    fn maps_are_stale(&self, pid: Pid) -> bool {
        self.is_live
            && !self.spaces.has_exited(pid)
            && self
                .maps_read
                .get(&pid)
                .is_none_or(|read| read.elapsed() >= MAPS_AGAIN)
    }

    fn read_maps(&mut self, pid: Pid) {
        if !self.is_live {
            return;
        }
        if let Some(mappings) = proc_maps(pid) {
            mappings.iter().for_each(|it| self.jit_dump(pid, it));
            let change = self.spaces.replace(pid, mappings);
            self.after(change, pid);
        }
        if self.maps_read.len() >= space::SPACES_KEPT {
            self.maps_read.clear();
        }
        self.maps_read.insert(pid, Instant::now());
    }

    fn open_modules(&mut self, pid: Pid) {
        let starts: Vec<u64> = self
            .spaces
            .mappings(pid)
            .iter()
            .filter(|mapped| mapped.module.is_none())
            .map(|mapped| mapped.mapping.start)
            .collect();
        for start in starts {
            self.place(pid, start);
        }
    }

    fn unmapped(&mut self) -> FunctionId {
        let functions = &mut self.functions;
        *self
            .unmapped
            .get_or_insert_with(|| functions.add(Description::default()))
    }

    fn page(&mut self, page: Page) -> FunctionId {
        let functions = &mut self.functions;
        *self.pages[page as usize]
            .get_or_insert_with(|| functions.add(special(PAGES[page as usize])))
    }
}

/// A page of the kernel's, treated as one function that has the page's name.
fn special(name: &str) -> Description {
    Description {
        name: Some(name.into()),
        module: Some(name.into()),
        ..Description::default()
    }
}

#[cfg(test)]
mod tests;
