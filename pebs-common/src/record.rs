//! Records written to the rings by the eBPF programs.
//!
//! Every record starts with a [`Head`]; its kind decides the rest. A plain sample and a plain
//! mark take 32 bytes; the CPU is not in the record because it is the ring's. All values are in
//! host byte order.

/// Declares an enum by the numbers that it has on the wire.
macro_rules! numbered {
    (
        $(#[$about:meta])*
        $name:ident {
            $($(#[$words:meta])* $variant:ident = $number:literal,)+
        }
    ) => {
        $(#[$about])*
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$words])* $variant = $number,)+
        }

        impl $name {
            /// The variant with this number, or `None` if this version does not know it.
            #[must_use]
            pub const fn from_u8(value: u8) -> Option<Self> {
                match value {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

numbered! {
    /// Kind of a record.
    Kind {
        /// [`Counts`]: event counts since the thread's last mark, or since it was switched in.
        Counts = 0,
        /// A [`Sample`].
        Sample = 1,
        /// A [`Mark`].
        Mark = 2,
        /// A [`MarkArgs`]: a mark followed by named arguments.
        MarkArgs = 3,
        /// A [`Switch`] off the CPU.
        SwitchOut = 4,
        /// A [`Switch`] onto the CPU.
        SwitchIn = 5,
        /// A [`Task`]; its flags are a [`TaskKind`].
        Task = 6,
        /// A [`SampleUser`]: a sample followed by its frames in the kernel and a copy of its user stack.
        SampleUser = 7,
        /// A [`SwitchUser`]: a [`Switch`] off the CPU, followed by the same.
        SwitchUser = 8,
        /// A [`ClockPair`].
        Clock = 9,
        /// A [`SampleAccess`]: a sample with its memory access.
        SampleAccess = 12,
        /// A [`SampleStack`]: a sample followed by its call stack.
        SampleStack = 13,
        /// An [`Encounter`]: a traced thread that waits is woken.
        Wake = 14,
        /// An [`Encounter`]: a traced thread that could have run is preempted by another one.
        Displace = 15,
    }
}

numbered! {
    /// Kind of a [`Task`]. Rare records share a [`Kind`], as there are 16.
    TaskKind {
        /// A traced process forked.
        Fork = 0,
        /// A traced process replaced its program.
        Exec = 1,
        /// A traced thread ended.
        Exit = 2,
        /// A traced thread was interrupted; the index is an [`Interference`].
        Interference = 3,
        /// The kernel stops an event's counter until the next tick.
        Throttle = 4,
    }
}

/// First word of every record: kind (4 bits), flags (4), index (8), pid (24), tid (24).
///
/// The kernel's `PID_MAX_LIMIT` is 2^22, so 24 bits hold any pid or tid. The index is the event
/// of a sample or the probe of a mark.
/// Source: include/linux/threads.h.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head(pub u64);

impl Head {
    /// Packs a head. Values beyond their width are cut.
    #[inline(always)]
    #[must_use]
    pub const fn new(kind: Kind, flags: u8, index: u8, pid: u32, tid: u32) -> Self {
        Self(
            (kind as u64)
                | ((flags as u64 & 0xf) << 4)
                | ((index as u64) << 8)
                | ((pid as u64 & 0xff_ffff) << 16)
                | ((tid as u64 & 0xff_ffff) << 40),
        )
    }

    /// Packs the head of a [`Task`].
    #[inline(always)]
    #[must_use]
    pub const fn of_task(what: TaskKind, index: u8, pid: u32, tid: u32) -> Self {
        Self::new(Kind::Task, what as u8, index, pid, tid)
    }

    /// The kind's number.
    #[inline(always)]
    #[must_use]
    pub const fn kind(self) -> u8 {
        (self.0 & 0xf) as u8
    }

    /// The four flag bits; their meaning is the record's.
    #[inline(always)]
    #[must_use]
    pub const fn flags(self) -> u8 {
        ((self.0 >> 4) & 0xf) as u8
    }

    /// The event's or probe's number.
    #[inline(always)]
    #[must_use]
    pub const fn index(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Process id as in user space.
    #[inline(always)]
    #[must_use]
    pub const fn pid(self) -> u32 {
        ((self.0 >> 16) & 0xff_ffff) as u32
    }

    /// Thread id as in user space.
    #[inline(always)]
    #[must_use]
    pub const fn tid(self) -> u32 {
        (self.0 >> 40) as u32
    }
}

/// Flags of a [`Sample`].
pub mod sample_flag {
    /// The kernel marked the ip as exact (`PERF_EFLAGS_EXACT`): the proof of precision.
    pub const EXACT_IP: u8 = 1;
    /// Taken in kernel mode.
    pub const KERNEL: u8 = 2;
    /// The time is on the perf clock, not on `CLOCK_MONOTONIC`.
    pub const PERF_CLOCK: u8 = 4;
    /// The id of the thread's current item is in the place of the stack pointer.
    pub const ITEM: u8 = 8;
}

/// A sample. 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Index: the event. Flags: [`sample_flag`].
    pub head: Head,
    /// ns on the clock that the flags name.
    pub time_ns: u64,
    /// Instruction pointer.
    pub ip: u64,
    /// User stack pointer; in kernel mode how the thread entered the kernel: the number of its system call plus 1, one
    /// of [`entry`], or 0: otherwise, or unknown. With [`sample_flag::ITEM`] the item id.
    pub sp: u64,
}

/// Numbers of system calls are below this. Linux 6.18 has 470.
pub const MAX_SYSTEM_CALLS: u64 = 500;

/// Entries to the kernel from user mode other than by one of the target's system calls, in the place of its number plus
/// 1. What interrupts the kernel itself is no entry: the thread entered it before.
pub mod entry {
    /// By a page fault.
    pub const PAGE_FAULT: u64 = 501;
    /// By an interrupt: of a timer, a device, or another CPU.
    pub const INTERRUPT: u64 = 502;
    /// By an exception that is neither a page fault nor a breakpoint.
    pub const EXCEPTION: u64 = 503;
    /// By a breakpoint or a single step of another tool.
    pub const BREAKPOINT: u64 = 504;
    /// By a debug exception: after a single step, or at a hardware breakpoint. In no sample, which says whose it was.
    pub const DEBUG: u64 = 505;
    /// At a mark: by a breakpoint, by the trap after a single step, or by a system call that the kernel puts in the
    /// place of these.
    pub const MARK: u64 = 511;
}

/// A sample with the hardware's data about its memory access, as in the kernel's `struct perf_sample_data`; 0 means
/// unknown. 56 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleAccess {
    /// The sample itself.
    pub sample: Sample,
    /// Address of the data.
    pub addr: u64,
    /// `union perf_sample_weight`: three numbers of cycles.
    pub weight: u64,
    /// `union perf_mem_data_src`.
    pub data_src: u64,
}

/// A sample with its call stack. The header of 40 bytes is followed by the frames, a word each: those in the
/// kernel, then those in user space, each from the innermost on. The first of each is the current instruction, the
/// others are return addresses. Words after the frames are undefined.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleStack {
    /// The sample itself.
    pub sample: Sample,
    /// Number of frames.
    pub depth: StackDepth,
}

/// Number of frames in the kernel (16 bits) and in user space (16), and whether outer ones were cut off (1).
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackDepth(pub u64);

impl StackDepth {
    /// Packs a depth. Values beyond their width are cut.
    #[inline(always)]
    #[must_use]
    pub const fn new(kernel: u64, user: u64, is_cut: bool) -> Self {
        Self(kernel & 0xffff | (user & 0xffff) << 16 | (is_cut as u64) << 32)
    }

    /// Frames in the kernel.
    #[must_use]
    pub const fn kernel(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    /// Frames in user space.
    #[must_use]
    pub const fn user(self) -> usize {
        (self.0 >> 16 & 0xffff) as usize
    }

    /// Whether outer frames are missing in the record.
    #[must_use]
    pub const fn is_cut(self) -> bool {
        self.0 >> 32 & 1 == 1
    }
}

/// Most frames in the kernel, and in user space. Source: `PERF_MAX_STACK_DEPTH`, include/uapi/linux/perf_event.h.
pub const MAX_FRAMES: usize = 127;

/// Capacities of the size classes of [`SampleStack`], frames.
pub const STACK_CLASSES: [usize; 4] = [16, 40, 96, 2 * MAX_FRAMES];

/// A sample with a copy of its user stack. The header of 208 bytes is followed by the words and bytes of
/// [`UserState::shape`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleUser {
    /// The sample itself.
    pub sample: Sample,
    /// Its thread in user mode.
    pub user: UserState,
}

/// A traced thread is switched out, with a copy of its user stack, as in a [`SampleUser`]. The innermost kernel frames are
/// those of the switch itself.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchUser {
    /// The switch itself.
    pub switch: Switch,
    /// Its thread in user mode.
    pub user: UserState,
}

/// A thread in user mode: when it was interrupted there, or when it entered the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserState {
    /// Shape of the data that follow.
    pub shape: UserShape,
    /// Its registers, as in the kernel's `struct pt_regs`.
    pub registers: [u64; REGISTER_WORDS],
}

pub use crate::arch::REGISTER_WORDS;

/// Shape of the data behind a [`UserState`]: room for frames in the kernel (words: 8 bits), of which some are in use (8
/// bits), whether outer ones are missing (1), then bytes of user memory from the stack pointer on (32 bits from bit
/// 32).
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserShape(pub u64);

impl UserShape {
    /// Packs a shape. Values beyond their width are cut.
    #[inline(always)]
    #[must_use]
    pub const fn new((room, frames, is_cut): (usize, u64, bool), copied: u32) -> Self {
        Self(
            room as u64 & 0xff
                | (frames & 0xff) << 8
                | (is_cut as u64) << 16
                | (copied as u64) << 32,
        )
    }

    /// Words of the room for kernel frames.
    #[must_use]
    pub const fn room(self) -> usize {
        (self.0 & 0xff) as usize
    }

    /// Frames in the kernel.
    #[must_use]
    pub const fn frames(self) -> usize {
        (self.0 >> 8 & 0xff) as usize
    }

    /// Whether outer frames of the kernel are missing.
    #[must_use]
    pub const fn is_cut(self) -> bool {
        self.0 >> 16 & 1 == 1
    }

    /// Bytes of user memory.
    #[must_use]
    pub const fn copied(self) -> usize {
        (self.0 >> 32) as usize
    }
}

/// Room for kernel frames before a copied user stack.
pub const KERNEL_FRAMES: usize = 64;

/// Capacities of the size classes of copied stacks, bytes.
pub const COPY_CLASSES: [usize; 6] = [1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10];

/// Effect of a mark on its item. Two bits of a mark's flags.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The thread starts an item.
    Begin = 0,
    /// The thread finishes an item, at a separate place (`START..END`).
    End = 1,
    /// The function that was entered at a begin mark returns from the same frame.
    Return = 2,
    /// The thread starts an item, which also finishes the previous one (`START..`).
    Next = 3,
}

impl Role {
    /// The role in the low two bits of a mark's flags.
    #[inline(always)]
    #[must_use]
    pub const fn from_flags(flags: u8) -> Self {
        match flags & 3 {
            0 => Self::Begin,
            1 => Self::End,
            2 => Self::Return,
            _ => Self::Next,
        }
    }
}

/// Flags of a [`Mark`] above the two bits of its [`Role`].
pub mod mark_flag {
    /// The mark's `id` was requested and could be read.
    pub const ID_VALID: u8 = 4;
    /// The probed instruction is single-stepped: the mark costs many times as much as others.
    pub const STEPPED: u8 = 8;
}

/// Bits of a [`go_frame`] for the place on the stack, in words of 8 bytes: stacks of up to 1 GiB, Go's limit.
const GO_DEPTH_BITS: u32 = 27;

/// Largest depth of a [`go_frame`].
const GO_DEPTH_MAX: u64 = (1 << GO_DEPTH_BITS) - 1;

/// A frame of a goroutine: the goroutine's number, and how far below the top of its stack the frame is.
///
/// It stays the same when the stack grows, which moves it. Of two frames of a goroutine the inner one is smaller. 0: no
/// goroutine is known. Numbers from 2^37 on are cut, which can mix up only goroutines that far apart.
#[must_use]
pub const fn go_frame(goid: u64, stack_top: u64, sp: u64) -> u64 {
    if goid == 0 {
        return 0;
    }
    let depth = stack_top.wrapping_sub(sp) / 8;
    let depth = if depth > GO_DEPTH_MAX {
        GO_DEPTH_MAX
    } else {
        depth
    };
    (goid << GO_DEPTH_BITS) | (GO_DEPTH_MAX - depth)
}

/// The goroutine of a [`go_frame`], cut as there.
#[must_use]
pub const fn goroutine_of(go_frame: u64) -> u64 {
    go_frame >> GO_DEPTH_BITS
}

/// The frame outside of all others of a goroutine.
#[must_use]
pub const fn go_frame_outermost(goroutine: u64) -> u64 {
    go_frame(goroutine, 0, 0)
}

/// A goroutine's number, cut as in a [`go_frame`].
#[must_use]
pub const fn goroutine(goid: u64) -> u64 {
    goroutine_of(goid << GO_DEPTH_BITS)
}

/// Time of a mark, and how long its program had run by then, in one word: what a mark takes can be told from that.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkClock(pub u64);

impl MarkClock {
    /// Bits of the time, the low ones; those above are lost, and follow from the time of the recording.
    const TIME_BITS: u32 = 56;
    /// Unit of the program's time, ns.
    const UNIT_NS: u64 = 8;

    /// A time on `CLOCK_MONOTONIC`, and the time since the program's start, ns; 0: unknown.
    #[must_use]
    pub const fn new(time_ns: u64, ran_ns: u64) -> Self {
        let units = ran_ns / Self::UNIT_NS;
        let units = if units > 255 { 255 } else { units };
        Self(time_ns << (64 - Self::TIME_BITS) >> (64 - Self::TIME_BITS) | units << Self::TIME_BITS)
    }

    /// ns from a time less than a year away.
    #[must_use]
    pub const fn since(self, origin_ns: u64) -> i64 {
        let unused = 64 - Self::TIME_BITS;
        (self.0.wrapping_sub(origin_ns) << unused).cast_signed() >> unused
    }

    /// Time that the program had run, ns, rounded down; `None` if unknown. At most 2,040.
    #[must_use]
    pub const fn ran_ns(self) -> Option<u16> {
        match self.0 >> Self::TIME_BITS {
            0 => None,
            units => Some((units * Self::UNIT_NS) as u16),
        }
    }
}

impl From<u64> for MarkClock {
    #[inline(always)]
    fn from(word: u64) -> Self {
        Self(word)
    }
}

/// A mark without named arguments. 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Index: the probe. Flags: [`Role`] and [`mark_flag`].
    pub head: Head,
    /// On `CLOCK_MONOTONIC`, read after the ring's room was reserved.
    pub clock: MarkClock,
    /// Stack pointer as it was at the function's first instruction (where the return address
    /// is), whatever instruction the probe sits on. In Go code the [`go_frame`] there.
    pub sp: u64,
    /// Item id, if valid according to the flags.
    pub id: u64,
}

/// A mark with named arguments. The header of 40 bytes is followed by the payload.
///
/// The payload's layout is fixed per site by [`crate::config::ArgProgram::offset`]: 8 bytes for a
/// number; for a string a length word and then the bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkArgs {
    /// The mark itself.
    pub mark: Mark,
    /// Bit n: argument n could be read.
    pub valid: u64,
}

/// Payload bytes of the three size classes of [`MarkArgs`].
pub const ARG_CLASSES: [usize; 3] = [24, 88, 472];

/// The payload of a [`MarkArgs`] that begins a batch: named arguments, the number of items, their ids.
pub mod batch {
    use crate::config::{MAX_ARGS, MAX_BATCH};

    /// Offset of the number of items: a word. Named arguments are before it.
    pub const COUNT: usize = super::ARG_CLASSES[1];
    /// Offset of the ids, each as wide as in the target.
    pub const IDS: usize = COUNT + 8;
    /// Payload bytes of the size classes: for 16, 64 and all ids of 8 bytes.
    pub const CLASSES: [usize; 3] = [IDS + 16 * 8, IDS + 64 * 8, IDS + MAX_BATCH * 8];
    /// Bit of [`super::MarkArgs::valid`]: the number of items could be read.
    pub const COUNT_VALID: u32 = 1 << MAX_ARGS;
    /// Bit of [`super::MarkArgs::valid`]: their ids could be read, at most [`MAX_BATCH`].
    pub const IDS_VALID: u32 = 2 << MAX_ARGS;
}

/// Flags of a [`Switch`].
pub mod switch_flag {
    /// The thread was preempted: it could have run.
    pub const PREEMPTED: u8 = 1;
    /// It waits within a mark: the kernel looks for the probe of a breakpoint and waits for the lock of the process's
    /// mappings.
    pub const IN_MARK: u8 = 4;
}

/// A traced thread is switched out or in. 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Flags: [`switch_flag`].
    pub head: Head,
    /// ns on `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Switched out: user instruction pointer at which the thread entered the kernel, 0 if
    /// unknown. Switched in: 0.
    pub ip: u64,
    /// Switched out: the kernel's `TASK_*` state bits of the thread. Switched in: 0.
    pub state: u64,
}

/// Flags of [`Counts`].
pub mod count_flag {
    /// There are three words for each event: count, time enabled and time running, ns; both 0 if it is not counted
    /// on this CPU. Without the flag there is one, and each event was counted all the time.
    pub const TIMES: u8 = 1;
    /// Made by a tick that ends an interval: the thread goes on, and made no mark.
    pub const TICK: u8 = 2;
}

/// Event counts of a thread up to a mark, a tick, or its switch-out, since the previous one or its switch-in. The
/// header of 24 bytes is followed by a word for each event, or three. It precedes the record of that mark or
/// switch.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Index: number of events. Flags: [`count_flag`].
    pub head: Head,
    /// ns on `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Length of the counted time, ns.
    pub ns: u64,
}

/// Capacities of the size classes of [`Counts`], events.
pub const COUNT_CLASSES: [usize; 3] = [2, 6, crate::config::MAX_COUNTS];

numbered! {
    /// An interrupt, softirqs, a page fault, or reclaim of memory.
    Interference {
        /// A page fault, which is counted.
        PageFault = 0,
        /// A timed page fault whose page was in memory.
        MinorFault = 1,
        /// A timed page fault whose page had to be read.
        MajorFault = 2,
        Interrupt = 3,
        /// A softirq.
        SoftInterrupt = 4,
        /// The thread had to reclaim memory.
        Reclaim = 5,
    }
}

/// An event of a traced thread or process. 24 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The thread concerned; for Throttle the running one. Flags: [`TaskKind`]. Index: for Exit the signal that ended it, 0
    /// if none; for Interference its kind; for Throttle the event.
    pub head: Head,
    /// ns on `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Fork: the child's pid in the low half, its tid in the high half. Exec: the previous tid of the thread. Exit:
    /// 1 if it was the process's last thread, else 0. Interference: its duration, ns; 0 for a counted page fault.
    /// Throttle: 0.
    pub other: u64,
}

/// Flags of an [`Encounter`].
pub mod encounter_flag {
    /// Caused by an interrupt, not a thread: the fields of the other thread are 0.
    pub const INTERRUPT: u8 = 1;
}

/// Another thread's effect on a traced one: it wakes or preempts it. 40 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encounter {
    /// The traced thread. Flags: [`encounter_flag`].
    pub head: Head,
    /// ns on `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// The other thread: its pid in the low half, its tid in the high half.
    pub other: u64,
    /// Its name in memory order, followed by NUL.
    pub comm: [u64; 2],
}

/// The same instant on both clocks. 24 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockPair {
    /// Kind only.
    pub head: Head,
    /// ns on `CLOCK_MONOTONIC`, read after the perf clock: never too early.
    pub monotonic_ns: u64,
    /// ns on the perf clock.
    pub perf_ns: u64,
}

const _: () = assert!(size_of::<Head>() == 8);
const _: () = assert!(size_of::<Sample>() == 32);
const _: () = assert!(size_of::<SampleAccess>() == size_of::<Sample>() + 24);
const _: () = assert!(size_of::<SampleStack>() == 40);
const _: () = assert!(size_of::<SampleUser>() == 40 + 8 * REGISTER_WORDS);
const _: () = assert!(size_of::<SwitchUser>() == size_of::<SampleUser>());
const _: () = assert!(KERNEL_FRAMES < 256);
const _: () = assert!(size_of::<Mark>() == 32);
const _: () = assert!(size_of::<MarkArgs>() == 40);
const _: () = assert!(size_of::<Switch>() == 32);
const _: () = assert!(size_of::<Task>() == 24);
const _: () = assert!(size_of::<Encounter>() == 40);
const _: () = assert!(size_of::<Counts>() == 24);
const _: () = assert!(size_of::<ClockPair>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    /// The time of a mark and that of its program share a word: any time within a year of the origin, whatever its high bits.
    #[test]
    fn mark_clock() {
        for origin in [0, 1_000, (1 << 56) - 5, (7 << 56) + 3, u64::MAX - 100] {
            for (since, ran, rounded) in [
                (0, 0, None),
                (1_000_000, 7, None),
                (-3, 8, Some(8)),
                (1 << 50, 135, Some(128)),
                (1, 1 << 40, Some(2_040)),
            ] {
                let clock = MarkClock::new(origin.wrapping_add_signed(since), ran);
                assert_eq!(clock.since(origin), since, "{origin} {ran}");
                assert_eq!(clock.ran_ns(), rounded);
            }
        }
    }

    /// A head returns the packed values, at the limits of every field.
    #[test]
    fn head_round_trip() {
        let head = Head::new(Kind::SwitchOut, 0xf, 255, (1 << 22) - 1, 1 << 22);
        assert_eq!(head.kind(), Kind::SwitchOut as u8);
        assert_eq!(head.flags(), 0xf);
        assert_eq!(head.index(), 255);
        assert_eq!(head.pid(), (1 << 22) - 1);
        assert_eq!(head.tid(), 1 << 22);
    }
}
