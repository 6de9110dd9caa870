//! Configuration that user space writes for the eBPF programs before they run.

/// Maximum number of probes in a run: a mark's head has eight bits for the probe.
pub const MAX_PROBES: usize = 256;

/// Maximum number of events in a run: each has its own copy of the sample program.
pub const MAX_EVENTS: usize = 8;

/// Maximum number of events counted for each visit.
pub const MAX_COUNTS: usize = 16;

/// Maximum number of named arguments per site, including the item id.
pub const MAX_ARGS: usize = 8;

/// Maximum number of memory reads per argument.
pub const MAX_DEREFS: usize = 4;

/// Maximum number of CPUs: the size of the outer ring maps.
pub const MAX_CPUS: u32 = 1024;

/// Maximum number of processes in the table of traced processes.
pub const MAX_PROCESSES: u32 = 65_536;

/// Maximum number of threads traced without the other threads of their processes.
pub const MAX_THREADS: u32 = 1024;

/// Records of waits beside switches; may change while recording.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waits {
    /// Nothing.
    #[default]
    Nothing = 0,
    /// Wake-ups and preemptions.
    Encounters = 1,
    /// The same, and the call stack at which a thread blocks.
    WithStacks = 2,
}

/// Used instead of a register's offset: the value starts from 0, without a register.
pub const NO_REGISTER: u16 = u16::MAX;

/// Width of an argument's last read, and its extension to 64 bits.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArgKind {
    /// No argument in this slot.
    None = 0,
    /// Unsigned number of 1, 2, 4 or 8 bytes.
    Unsigned = 1,
    /// Signed number of 1, 2, 4 or 8 bytes.
    Signed = 2,
    /// NUL-terminated string at the address.
    Str = 3,
    /// An array at the address: ids of the items of a batch, each of `width` bytes.
    Ids = 4,
    /// Text at the address, of the length that [`SiteConfig::lengths`] reads.
    Bytes = 5,
    /// An array of pointers at the address, with an id of `width` bytes behind each.
    IdsBehind = 6,
}

/// Values of [`SiteConfig::has_id`].
pub mod id_source {
    /// Items are numbered.
    pub const NONE: u8 = 0;
    /// `id` reads the item's id.
    pub const ONE: u8 = 1;
    /// `id` reads the address of a batch's ids, `count` their number.
    pub const BATCH: u8 = 2;
}

/// Bytes written for a short string in the payload, including its length word: one with a capacity of up to 56.
pub const STR_SHORT: usize = 64;

/// Bytes written for any other string. The part beyond the string's capacity is overwritten by the next argument.
pub const STR_LONG: usize = 256;

/// Flag in the length word of a string: it was cut.
pub const STR_CUT: u64 = 1 << 63;

/// Maximum number of ids of a batch that are read. Further ones are counted, not read.
pub const MAX_BATCH: usize = 256;

/// Steps that read an argument: start from a register, follow up to [`MAX_DEREFS`] pointers, keep the last `width`
/// bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArgProgram {
    /// Byte offset of the register in the kernel's `struct pt_regs`, or [`NO_REGISTER`].
    pub reg_offset: u16,
    /// An [`ArgKind`].
    pub kind: u8,
    /// Number: its size, 1, 2, 4 or 8 bytes.
    pub width: u8,
    /// Number of `derefs` used. Each reads 8 bytes at value + offset, the last one of a number `width` bytes. A
    /// string or an array is read at the value after all of them, plus the next of `derefs`, if there is one.
    pub steps: u8,
    /// [`ArgKind::IdsBehind`]: 1: the ids are signed. [`ArgKind::Str`]: 1: the string ends after `capacity` bytes at
    /// the latest, so that it is never cut. Else zero.
    pub is_signed: u8,
    /// Offset of the value in the record's payload, bytes; a multiple of 8. Ignored for the id.
    pub offset: u16,
    /// String: maximum bytes kept. [`ArgKind::IdsBehind`]: offset of the id from each pointer, signed. Else zero.
    pub capacity: u32,
    /// Added to the start value (also when `steps` is 0).
    pub add: i32,
    /// Offsets of the pointer steps.
    pub derefs: [i32; MAX_DEREFS],
}

impl ArgProgram {
    /// An unused slot.
    pub const NONE: Self = Self {
        reg_offset: 0,
        kind: ArgKind::None as u8,
        width: 0,
        steps: 0,
        is_signed: 0,
        offset: 0,
        capacity: 0,
        add: 0,
        derefs: [0; MAX_DEREFS],
    };
}

/// The lowest `width` bytes of a number, extended.
#[inline(always)]
#[must_use]
pub const fn widen(value: u64, width: u8, is_signed: bool) -> u64 {
    let unused = match width {
        1 => 56,
        2 => 48,
        4 => 32,
        _ => 0,
    };
    let high = value << unused;
    if is_signed {
        ((high as i64) >> unused) as u64
    } else {
        high >> unused
    }
}

/// Work of the mark program in place of the probed instruction, so that the kernel need not single-step it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// One of [`step_kind`].
    pub kind: u8,
    /// Length of the instruction, bytes.
    pub length: u8,
    /// Word of the kernel's `struct pt_regs` that it changes.
    pub to: u8,
    /// Word that the new value comes from, or [`NO_WORD`].
    pub from: u8,
    /// Added to that.
    pub add: i32,
    /// Offset of the instruction in its page.
    pub place: u64,
}

impl Step {
    /// The kernel executes the instruction.
    pub const NONE: Self = Self {
        kind: step_kind::NONE,
        length: 0,
        to: 0,
        from: 0,
        add: 0,
        place: 0,
    };
}

/// Values of [`Step::kind`].
pub mod step_kind {
    /// Nothing.
    pub const NONE: u8 = 0;
    /// Returns to the address on top of the stack.
    pub const RETURN: u8 = 1;
    /// Goes on behind the instruction.
    pub const NEXT: u8 = 2;
    /// Assigns a value to a register.
    pub const ASSIGN: u8 = 3;
    /// Assigns the lower half of a value to a register, and zero to its upper half.
    pub const ASSIGN_32: u8 = 4;
    /// Sets a register to zero, and the flags as for a result of zero.
    pub const ZERO: u8 = 5;
}

/// [`Step::from`] of a value that does not depend on a register.
pub const NO_WORD: u8 = u8::MAX;

/// Configuration of a site for the mark program. Indexed by the attach cookie.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SiteConfig {
    /// The probe's number.
    pub probe: u8,
    /// A [`crate::record::Role`].
    pub role: u8,
    /// Named arguments in use, the id not counted.
    pub args: u8,
    /// One of [`id_source`].
    pub has_id: u8,
    /// Payload bytes used, 0 if there are no named arguments.
    pub payload: u16,
    /// [`Condition::code`](crate::condition::Condition::code) of the condition under which a mark is made; 0: always.
    pub condition: u8,
    /// 1: named arguments need not exist, so those that can't be read are not counted as
    /// [`ArgumentFault`](crate::counter::Counter::ArgumentFault).
    pub may_lack: u8,
    /// Added to the stack pointer, gives its value at the function's first instruction.
    pub sp_adjust: i64,
    /// Work in place of the instruction.
    pub step: Step,
    /// In Go code: offset of `goid` in `runtime.g`; the mark then has a [`crate::record::go_frame`] instead of the
    /// stack pointer. 0: other code.
    pub goid: u64,
    /// Reads the item id.
    pub id: ArgProgram,
    /// Reads the number of items in a batch.
    pub count: ArgProgram,
    /// Read the named arguments.
    pub named: [ArgProgram; MAX_ARGS],
    /// Read the length of each argument of kind [`ArgKind::Bytes`].
    pub lengths: [ArgProgram; MAX_ARGS],
}

const _: () = assert!(size_of::<ArgProgram>() == 32);
const _: () = assert!(size_of::<SiteConfig>() == 40 + 2 * 32 + 2 * 32 * MAX_ARGS);

/// Condition that a recording waits for before it begins.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Number of hits so far.
    pub hits: u64,
    /// The value to wait for.
    pub value: u64,
    /// Reads the value that is compared.
    pub read: ArgProgram,
    /// One of [`id_source`]: [`id_source::ONE`] if a value is waited for.
    pub source: u32,
    /// 0.
    pub unused: u32,
}

const _: () = assert!(size_of::<Trigger>() == 56);

/// Source of the item id of a thread without marks, read at each sample.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ItemSource {
    /// No source: items are marked.
    None = 0,
    /// A register of user space.
    Register = 1,
    /// A variable of the executable.
    Memory = 2,
    /// A thread-local variable of the executable.
    Tls = 3,
    /// A variable of a library.
    Library = 4,
}

/// Maximum number of known library addresses, one per program.
pub const MAX_LIBRARIES: usize = 4096;

/// A run of a program, identified by the random start of its stack, which forks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Program(
    /// `mm_struct::start_stack`.
    pub u64,
);

impl Program {
    /// Key in a map: stacks are aligned to 16 bytes.
    #[must_use]
    pub const fn key(self) -> u32 {
        (self.0 >> 4) as u32
    }
}

/// Source of the item id at a sample.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ItemConfig {
    /// Reads the id. For a register like at a mark; otherwise the register is ignored, and it starts from the
    /// variable's address.
    pub program: ArgProgram,
    /// The variable's address: in memory, minus the address of the executable's first code
    /// (`mm_struct::start_code`); thread-local, minus the thread pointer; in a library, in its file.
    pub offset: u64,
    /// Address in the library's file of the instruction at which its load address is found.
    pub entry: u64,
    /// Inode number of the executable that has the variable.
    pub inode: u64,
    /// Size in bytes: inode numbers are unique only within a file system.
    pub size: u64,
    /// The id that means "no item".
    pub none: u64,
    /// Kernel offsets needed for this.
    pub offsets: ItemOffsets,
}

/// Offsets of members in structures of the kernel, bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ItemOffsets {
    /// `flags` in `struct task_struct`.
    pub task_flags: u32,
    /// `mm` in `struct task_struct`.
    pub task_mm: u32,
    /// `thread.fsbase` in `struct task_struct`.
    pub task_fsbase: u32,
    /// `start_code` in `struct mm_struct`.
    pub mm_start_code: u32,
    /// `exe_file` in `struct mm_struct`.
    pub mm_exe_file: u32,
    /// `f_inode` in `struct file`.
    pub file_inode: u32,
    /// `i_ino` in `struct inode`.
    pub inode_number: u32,
    /// `i_size` in `struct inode`.
    pub inode_size: u32,
    /// `start_stack` in `struct mm_struct`.
    pub mm_start_stack: u32,
    /// Must be zero.
    pub pad: u32,
}

const _: () = assert!(size_of::<ItemConfig>() == 32 + 5 * 8 + 10 * 4);

/// Address ranges of the kernel's code, which tell what a thread does in the kernel; 0: unknown.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCode {
    /// Start and end of the function that looks for the probe of a mark and runs its programs.
    pub notify: [u64; 2],
    /// Entries to the kernel. Unused places have the range 0..0.
    pub entries: [EntryCode; MAX_ENTRY_CODES],
    /// Properties that distinguish breakpoints of marks from those of other tools.
    pub marks: OwnBreakpoints,
}

/// Breakpoints of pebs-trace's own.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnBreakpoints {
    /// Places of marks.
    pub places: PageOffsets,
    /// Instruction pointers in user code while a mark is made: its place, behind the breakpoint, or where it goes on.
    pub stands: PageOffsets,
    /// 1: some marks are made by uretprobes, whose places are not among these.
    pub returns: u32,
    /// 1: hardware breakpoints are sampled or counted.
    pub hardware: u32,
}

impl Default for OwnBreakpoints {
    /// All breakpoints may be own ones.
    fn default() -> Self {
        Self {
            places: PageOffsets::ALL,
            stands: PageOffsets::ALL,
            returns: 1,
            hardware: 1,
        }
    }
}

/// A set of addresses, known by their offsets in a page: these are the same in every process that maps a file. An
/// address that was not added is in the set if its offset is that of another.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageOffsets([u64; OFFSET_WORDS]);

/// Bytes of the smallest page.
pub const PAGE: u64 = 4096;

/// Words with a bit for each of them.
const OFFSET_WORDS: usize = PAGE as usize / u64::BITS as usize;

impl PageOffsets {
    /// No addresses.
    pub const NONE: Self = Self([0; OFFSET_WORDS]);

    /// All addresses.
    pub const ALL: Self = Self([u64::MAX; OFFSET_WORDS]);

    /// Adds an address.
    pub const fn add(&mut self, address: u64) {
        let offset = address % PAGE;
        self.0[offset as usize / u64::BITS as usize] |= 1 << (offset % u64::BITS as u64);
    }

    /// Whether an address is in the set, or one with the same offset.
    #[inline(always)]
    #[must_use]
    pub const fn has(&self, address: u64) -> bool {
        let offset = address % PAGE;
        self.0[offset as usize / u64::BITS as usize] >> (offset % u64::BITS as u64) & 1 == 1
    }
}

/// Code that the kernel is entered by from user mode.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryCode {
    /// Start and end.
    pub range: [u64; 2],
    /// One of [`entry`](crate::record::entry).
    pub entry: u64,
}

/// Maximum number of ranges of code that the kernel is entered by. Linux 6.18 on x86-64 has 8.
pub const MAX_ENTRY_CODES: usize = 16;

const _: () =
    assert!(size_of::<KernelCode>() == 16 + 24 * MAX_ENTRY_CODES + 2 * 8 * OFFSET_WORDS + 8);

/// Maximum number of probed places whose breakpoints are searched in copies of code.
pub const MAX_COPY_PLACES: u32 = 64;

/// Bytes of code by which a copy of a place is recognised.
pub const COPY_WINDOW: usize = 16;

/// Pattern of a probed place in a copy of its page: code is copied to the same offset in a page.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CopyPlace {
    /// Offset of the window in the page.
    pub offset: u32,
    /// Total number of places; 0: no place here.
    pub places: u32,
    /// The window with a breakpoint.
    pub expected: [u64; COPY_WINDOW / 8],
    /// Bits to compare; all are 0: no place here.
    pub mask: [u64; COPY_WINDOW / 8],
}

const _: () = assert!(size_of::<CopyPlace>() == 8 + 2 * COPY_WINDOW);

/// A process makes memory executable that holds a copy of a probed place.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Process; it was sent a SIGSTOP.
    pub pid: u32,
    /// Must be zero.
    pub pad: u32,
    /// The memory.
    pub start: u64,
    pub end: u64,
}

/// Bytes of the ring for [`Copied`].
pub const COPIED_RING: usize = 1 << 16;

/// Maximum number of sites in a run (entries, returns and ends of all probes).
pub const MAX_SITES: u32 = 4096;

/// Processes that a run traces.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every process that makes a mark; it is added to the table at its first mark.
    Everyone = 0,
    /// The processes in the table, and their children from the fork on.
    Table = 1,
    /// Every process of a cgroup, or of one below it, that makes a mark; it is added to the table at its first
    /// mark.
    Cgroup = 2,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses are known by their offsets in a page, to the last one.
    #[test]
    fn page_offsets() {
        let mut set = PageOffsets::NONE;
        set.add(0x5000);
        set.add(0x7fff);
        assert!(set.has(0) && set.has(0x1_0000_5000) && set.has(0xfff));
        assert!(!set.has(1) && !set.has(0x5ffe) && !set.has(64));
        assert!(PageOffsets::ALL.has(77));
    }
}
