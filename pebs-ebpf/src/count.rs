//! Events that are counted for each visit: read when a traced thread is switched in, makes a mark and is switched
//! out. With intervals, also at the ticks that end them.
//!
//! Counters belong to a CPU. Counts between two of these points on one CPU belong to the thread; each thread keeps
//! the last reading in task storage, so that memory is allocated only at its first mark.
//!
//! The program at a switch may interrupt the one at a mark, never the other way round. So a mark reads into the
//! second reading and makes it the current one with one instruction, which fails if the thread was switched out
//! meanwhile: then it reads again, as the switch has put the counts before it into the ring. A tick, too, may
//! interrupt a mark, but no switch: switches run with interrupts off. A tick leaves the second reading to the mark,
//! and copies its own to the first.

use core::arch::asm;
use core::ptr::{from_ref, null, null_mut};

use aya_ebpf::bindings::bpf_map_type::BPF_MAP_TYPE_TASK_STORAGE;
use aya_ebpf::bindings::{
    BPF_F_CURRENT_CPU, BPF_F_NO_PREALLOC, BPF_LOCAL_STORAGE_GET_F_CREATE, bpf_perf_event_value,
    task_struct,
};
use aya_ebpf::btf_maps::{ArrayOfMaps, PerfEventArray};
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::helpers::generated::{
    bpf_get_current_task_btf, bpf_perf_event_read, bpf_perf_event_read_value, bpf_task_storage_get,
};
use aya_ebpf::macros::btf_map;
use pebs_common::config::MAX_COUNTS;
use pebs_common::record::{COUNT_CLASSES, Counts, Head, Kind, count_flag};

use crate::emit::{TASKS, emit_if};
use crate::maps::{COUNT_ALWAYS, COUNT_EVENTS, COUNT_INTERVALS};
use crate::task::Ids;

/// Counters: for each event a map with one counter per CPU, which user space puts there.
#[btf_map]
static COUNTED: ArrayOfMaps<PerfEventArray, MAX_COUNTS> = ArrayOfMaps::new();

/// Counters at the last reading of a thread.
#[btf_map]
static COUNTS: TaskStorage<State> = TaskStorage::new();

/// A value per thread, stored with it by the kernel.
#[repr(C)]
struct TaskStorage<T> {
    r#type: *const [i32; BPF_MAP_TYPE_TASK_STORAGE as usize],
    key: *const i32,
    value: *const T,
    max_entries: *const [i32; 0],
    map_flags: *const [i32; BPF_F_NO_PREALLOC as usize],
}

// SAFETY: the pointers are types for the loader, and never followed.
unsafe impl<T> Sync for TaskStorage<T> {}

impl<T> TaskStorage<T> {
    const fn new() -> Self {
        Self {
            r#type: null(),
            key: null(),
            value: null(),
            max_entries: null(),
            map_flags: null(),
        }
    }
}

/// Counting state of a thread.
#[repr(C)]
struct State {
    /// Bit 0: index of the current reading; [`VALID`]; [`ENDED`]; and from [`SWITCH`] on the number of switches of
    /// the thread.
    word: u64,
    readings: [Reading; 2],
}

/// Counter values at one time.
#[repr(C)]
struct Reading {
    /// Time of the reading, ns.
    time_ns: u64,
    values: [bpf_perf_event_value; MAX_COUNTS],
}

/// Bit of a state's word: the current reading is of the CPU that the thread is on.
const VALID: u64 = 2;

/// Bit of a state's word: the thread has ended.
const ENDED: u64 = 4;

/// Added to a state's word at a switch or a tick.
const SWITCH: u64 = 8;

/// Maximum number of attempts of a mark.
const TRIES: usize = 3;

/// Used instead of the time enabled: there is no such counter on this CPU.
const MISSING: u64 = u64::MAX;

/// Source: `MAX_ERRNO`, include/linux/err.h.
const LARGEST_ERROR: u64 = 4095;

/// Counts in a ring.
#[repr(C)]
struct Room<const WORDS: usize> {
    header: Counts,
    words: [u64; WORDS],
}

/// The running thread makes a mark: emits its counts up to now. Returns the time, ns; 0 if the counts are unknown.
///
/// `ids` has the process in its high half. Verified once as a function of its own, for all kinds of marks.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn count_at_mark(ids: u64) -> u64 {
    // SAFETY: the helper takes no pointer.
    let task = unsafe { bpf_get_current_task_btf() };
    let Some(state) = state_of(task, BPF_LOCAL_STORAGE_GET_F_CREATE.into()) else {
        return 0;
    };
    for _ in 0..TRIES {
        let before = get_word(state);
        let after = (before ^ 1) | VALID;
        let current = before & 1;
        read(state, current ^ 1);
        if before & VALID != 0 {
            if let Some(time_ns) = put(state, current, ids, 0, || replace(state, before, after)) {
                return time_ns;
            }
        } else {
            let time_ns = now(state, current ^ 1);
            if replace(state, before, after) {
                return time_ns;
            }
        }
    }
    // The next counts would include those that this one lacks, so they are dropped.
    set_word(state, (get_word(state) + SWITCH) & !VALID);
    0
}

/// The running thread is switched out: emits its counts up to now. Interrupts are off.
#[inline(always)]
pub fn leaves(ids: Ids) {
    if !is_counting() {
        return;
    }
    // SAFETY: the helper takes no pointer.
    let task = unsafe { bpf_get_current_task_btf() };
    let Some(state) = state_of(task, 0) else {
        return;
    };
    let word = get_word(state);
    if word & VALID != 0 {
        let current = word & 1;
        read(state, current ^ 1);
        put(state, current, both(ids), 0, || true);
        set_word(state, (word + SWITCH) & !VALID);
    }
}

/// The running thread ends: emits its counts up to now. It is not counted any more.
#[inline(always)]
pub fn ends(ids: Ids) {
    if !is_counting() {
        return;
    }
    // A tick may come at any time.
    count_at_mark(both(ids));
    // SAFETY: the helper takes no pointer.
    let task = unsafe { bpf_get_current_task_btf() };
    if let Some(state) = state_of(task, 0) {
        set_word(state, (get_word(state) | ENDED) & !VALID);
    }
}

/// An interval ends: emits the counts of the running thread up to now. In an interrupt.
#[inline(always)]
pub fn ticks(ids: Ids) {
    // SAFETY: the helper takes no pointer.
    let task = unsafe { bpf_get_current_task_btf() };
    let Some(state) = state_of(task, BPF_LOCAL_STORAGE_GET_F_CREATE.into()) else {
        return;
    };
    let word = get_word(state);
    if word & ENDED != 0 {
        return;
    }
    let current = word & 1;
    if word & VALID == 0 {
        read(state, current);
        now(state, current);
        return set_word(state, (word + SWITCH) | VALID);
    }
    read(state, current ^ 1);
    put(state, current, both(ids), count_flag::TICK, || true);
    // SAFETY: both are in a map value, and differ.
    unsafe {
        reading(state, current).copy_from_nonoverlapping(reading(state, current ^ 1), 1);
    }
    set_word(state, word + SWITCH);
}

#[inline(always)]
fn is_counting() -> bool {
    COUNT_EVENTS.load() != 0 || COUNT_INTERVALS.load() != 0
}

/// A thread is switched in.
#[inline(always)]
pub fn takes(task: *mut task_struct) {
    if !is_counting() {
        return;
    }
    let flags = if COUNT_INTERVALS.load() == 0 {
        0
    } else {
        BPF_LOCAL_STORAGE_GET_F_CREATE.into()
    };
    let Some(state) = state_of(task, flags) else {
        return;
    };
    let word = get_word(state);
    if word & ENDED != 0 {
        return;
    }
    read(state, word & 1);
    now(state, word & 1);
    set_word(state, (word + SWITCH) | VALID);
}

/// A thread and its process in one word.
#[inline(always)]
pub fn both(ids: Ids) -> u64 {
    u64::from(ids.pid) << 32 | u64::from(ids.tid)
}

#[inline(always)]
fn state_of(task: *mut task_struct, flags: u64) -> Option<*mut State> {
    let map = from_ref(&COUNTS).cast_mut().cast();
    // SAFETY: the map is ours, and the verifier knows the task.
    let state = unsafe { bpf_task_storage_get(map, task, null_mut(), flags) }.cast::<State>();
    (!state.is_null()).then_some(state)
}

#[inline(always)]
fn get_word(state: *mut State) -> u64 {
    // SAFETY: the state is a map value; only programs on this CPU use it.
    unsafe { (&raw const (*state).word).read_volatile() }
}

#[inline(always)]
fn set_word(state: *mut State, word: u64) {
    // SAFETY: as above.
    unsafe { (&raw mut (*state).word).write_volatile(word) }
}

/// Sets the word if it is unchanged; returns whether it was.
#[inline(always)]
fn replace(state: *mut State, old: u64, new: u64) -> bool {
    let found: u64;
    // `core` has no compare-and-exchange for this target.
    // SAFETY: the word is an aligned u64 in a map value.
    unsafe {
        asm!(
            "r0 = cmpxchg_64({0} + 0, r0, {1})",
            in(reg) &raw mut (*state).word,
            in(reg) new,
            inout("r0") old => found,
        );
    }
    found == old
}

/// One of the two readings.
#[inline(always)]
fn reading(state: *mut State, which: u64) -> *mut Reading {
    // SAFETY: the state is a map value, and there are two.
    unsafe { &raw mut (*state).readings[(which & 1) as usize] }
}

/// Reads all counters.
#[inline(always)]
fn read(state: *mut State, which: u64) {
    let reading = reading(state, which);
    for n in 0..MAX_COUNTS as u32 {
        if n >= COUNT_EVENTS.load() {
            break;
        }
        // SAFETY: the reading is in a map value, and n is within bounds.
        let value = unsafe { &raw mut (*reading).values[n as usize] };
        let Some(counters) = COUNTED.get(n) else {
            return;
        };
        let counters = from_ref(counters).cast_mut().cast();
        if COUNT_ALWAYS.load() & (1 << n) != 0 {
            // SAFETY: the map is one that the outer map returned, and the value is in a map value.
            unsafe { *value = count_alone(bpf_perf_event_read(counters, BPF_F_CURRENT_CPU)) };
            continue;
        }
        let size = size_of::<bpf_perf_event_value>() as u32;
        // SAFETY: as above, and the value has that size.
        unsafe {
            if bpf_perf_event_read_value(counters, BPF_F_CURRENT_CPU, value, size) != 0 {
                (*value).enabled = MISSING;
            }
        }
    }
}

/// A count without its times, which takes less than half as long to read.
///
/// An error is one of the largest numbers, which real counts do not reach.
#[inline(always)]
const fn count_alone(read: u64) -> bpf_perf_event_value {
    let is_error = read > u64::MAX - LARGEST_ERROR;
    bpf_perf_event_value {
        counter: read,
        enabled: if is_error { MISSING } else { 0 },
        running: 0,
    }
}

/// Sets the time of a reading to now, and returns it, ns.
#[inline(always)]
fn now(state: *mut State, which: u64) -> u64 {
    // SAFETY: the helper takes no pointer.
    let time_ns = unsafe { bpf_ktime_get_ns() };
    // SAFETY: the reading is in a map value.
    unsafe { (*reading(state, which)).time_ns = time_ns };
    time_ns
}

/// Emits the counts from the current reading to the other one, if `commit` returns true; returns the time, ns.
#[inline(always)]
fn put(
    state: *mut State,
    current: u64,
    ids: u64,
    flags: u8,
    commit: impl FnOnce() -> bool,
) -> Option<u64> {
    let whole = is_whole(state, current);
    let number = COUNT_EVENTS.load() as usize;
    let source = CountSource {
        state,
        current,
        ids,
        flags,
    };
    const SMALL: usize = COUNT_CLASSES[0];
    const MIDDLE: usize = COUNT_CLASSES[1];
    const LARGE: usize = COUNT_CLASSES[2];
    match (number <= SMALL, number <= MIDDLE) {
        (true, _) if whole => source.put::<SMALL, false>(commit),
        (true, _) => source.put::<{ 3 * SMALL }, true>(commit),
        (_, true) if whole => source.put::<MIDDLE, false>(commit),
        (_, true) => source.put::<{ 3 * MIDDLE }, true>(commit),
        _ if whole => source.put::<LARGE, false>(commit),
        _ => source.put::<{ 3 * LARGE }, true>(commit),
    }
}

/// Whether each counter counted all the time between the readings.
#[inline(always)]
fn is_whole(state: *mut State, current: u64) -> bool {
    let (base, now) = (reading(state, current), reading(state, current ^ 1));
    let mut missed = 0;
    for n in 0..MAX_COUNTS {
        if n >= COUNT_EVENTS.load() as usize {
            break;
        }
        // SAFETY: the readings are in a map value, and n is within bounds.
        let [base, now] = unsafe { [&(*base).values[n], &(*now).values[n]] };
        missed |= now.enabled.wrapping_sub(base.enabled) ^ now.running.wrapping_sub(base.running);
        missed |= u64::from(now.enabled == MISSING);
    }
    missed == 0
}

/// Source of a counts record.
struct CountSource {
    state: *mut State,
    current: u64,
    ids: u64,
    /// Flags that are always set.
    flags: u8,
}

impl CountSource {
    #[inline(always)]
    fn put<const WORDS: usize, const TIMES: bool>(
        &self,
        commit: impl FnOnce() -> bool,
    ) -> Option<u64> {
        let mut done = None;
        emit_if::<Room<WORDS>>(TASKS, |room| {
            let time_ns = self.fill::<WORDS, TIMES>(room.as_mut_ptr());
            let is_committed = commit();
            done = is_committed.then_some(time_ns);
            is_committed
        });
        done
    }

    #[inline(always)]
    fn fill<const WORDS: usize, const TIMES: bool>(&self, room: *mut Room<WORDS>) -> u64 {
        let number = COUNT_EVENTS.load();
        let (base, last) = (
            reading(self.state, self.current),
            reading(self.state, self.current ^ 1),
        );
        let time_ns = now(self.state, self.current ^ 1);
        // SAFETY: the reading is in a map value.
        let ns = unsafe { time_ns.wrapping_sub((*base).time_ns) };
        let each = if TIMES { 3 } else { 1 };
        for n in 0..WORDS / each {
            if n >= number as usize || n >= MAX_COUNTS {
                break;
            }
            // SAFETY: the readings are in a map value, and n is below the numbers of values and of words.
            unsafe {
                let [base, now] = [&(*base).values[n], &(*last).values[n]];
                let words = &raw mut (*room).words;
                (*words)[n * each] = now.counter.wrapping_sub(base.counter);
                if TIMES {
                    let missing = now.enabled == MISSING || base.enabled == MISSING;
                    let enabled = now.enabled.wrapping_sub(base.enabled);
                    let running = now.running.wrapping_sub(base.running);
                    // Their times are not read.
                    let always = COUNT_ALWAYS.load() & (1 << n) != 0;
                    let [enabled, running] = if always { [ns; 2] } else { [enabled, running] };
                    (*words)[n * each + 1] = if missing { 0 } else { enabled };
                    (*words)[n * each + 2] = if missing { 0 } else { running };
                }
            }
        }
        let flags = self.flags | if TIMES { count_flag::TIMES } else { 0 };
        let (pid, tid) = ((self.ids >> 32) as u32, self.ids as u32);
        // SAFETY: the room is that of a record, and the readings are in a map value.
        unsafe {
            (&raw mut (*room).header).write(Counts {
                head: Head::new(Kind::Counts, flags, number as u8, pid, tid),
                time_ns,
                ns,
            });
        }
        time_ns
    }
}
