//! pebs-selfcount for C: `libselfcount.a`, `libselfcount.so` and `include/selfcount.h`, which documents the functions.
//!
//! ```sh
//! cargo build --release -p pebs-selfcount-c
//! cc -Iinclude examples/count.c -Ltarget/release -lselfcount
//! ```
//!
//! No function panics or unwinds into C; a failure shows in the return value, and [`selfcount_error`] has the message.
#![expect(unsafe_code, reason = "the C ABI: pointers and lengths of callers")]

use std::cell::RefCell;
use std::error::Error as _;
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::ptr;

use pebs_selfcount::{Count, Error, Group, Mapping, Options, ReadPath, events};

/// `SELFCOUNT_INHERIT`.
const INHERIT: c_uint = 1;
/// `SELFCOUNT_TOUCH`.
const TOUCH: c_uint = 2;
/// `SELFCOUNT_ON_DEMAND`.
const ON_DEMAND: c_uint = 4;
/// `SELFCOUNT_NO_RDPMC`.
const NO_RDPMC: c_uint = 8;

/// `struct selfcount_count`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SelfcountCount {
    /// Events counted.
    pub value: u64,
    /// Time enabled, ns.
    pub enabled_ns: u64,
    /// Time counting, ns.
    pub running_ns: u64,
    /// 1 if it was on a hardware counter when it was read; else 0.
    pub is_running: u64,
}

const _: () = assert!(size_of::<SelfcountCount>() == 32);

impl From<Count> for SelfcountCount {
    fn from(count: Count) -> Self {
        let Count {
            value,
            enabled_ns,
            running_ns,
            is_running,
        } = count;
        Self {
            value,
            enabled_ns,
            running_ns,
            is_running: is_running.into(),
        }
    }
}

impl From<SelfcountCount> for Count {
    fn from(count: SelfcountCount) -> Self {
        Self {
            value: count.value,
            enabled_ns: count.enabled_ns,
            running_ns: count.running_ns,
            is_running: count.is_running != 0,
        }
    }
}

/// `struct selfcount_group`, opaque to C.
pub struct SelfcountGroup {
    group: Group,
    /// Address of a thread-local variable: identifies the thread without a system call.
    thread: usize,
}

/// A thread's last failure.
#[derive(Default)]
struct Failure {
    message: CString,
    hint: CString,
}

thread_local! {
    static FAILURE: RefCell<Failure> = RefCell::default();
    static HERE: u8 = const { 0 };
}

fn this_thread() -> usize {
    HERE.with(|here| ptr::from_ref(here).addr())
}

fn fail(message: &str, hint: Option<&str>) {
    let text = |text: &str| CString::new(text.replace('\0', "?")).unwrap_or_default();
    let failure = Failure {
        message: text(message),
        hint: text(hint.unwrap_or_default()),
    };
    FAILURE.with_borrow_mut(|last| *last = failure);
}

fn fail_by(error: &Error) {
    let message = match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    fail(&message, error.hint().as_deref());
}

fn status(done: Result<(), Error>) -> c_int {
    match done {
        Ok(()) => 0,
        Err(error) => {
            fail_by(&error);
            -1
        }
    }
}

/// The group behind a pointer; `None` if it is null or of another thread.
///
/// # Safety
/// The pointer is null, or from `selfcount_open` and not closed, and no other thread uses it meanwhile.
unsafe fn group<'a>(group: *mut SelfcountGroup) -> Option<&'a mut Group> {
    // SAFETY: the caller's.
    let Some(group) = (unsafe { group.as_mut() }) else {
        fail("no group", None);
        return None;
    };
    if group.thread != this_thread() {
        fail(
            "the group belongs to another thread",
            Some("each thread opens a group of its own"),
        );
        return None;
    }
    Some(&mut group.group)
}

/// Opens a group of this thread, stopped; null if it can't.
///
/// # Safety
/// `names` is a C string or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selfcount_open(
    names: *const c_char,
    flags: c_uint,
) -> *mut SelfcountGroup {
    if names.is_null() || flags & !(INHERIT | TOUCH | ON_DEMAND | NO_RDPMC) != 0 {
        fail("no names, or unknown flags", None);
        return ptr::null_mut();
    }
    // SAFETY: not null; the caller's else.
    let names = unsafe { CStr::from_ptr(names) }.to_string_lossy();
    let mapping = match flags {
        flags if flags & NO_RDPMC != 0 => Mapping::Never,
        flags if flags & ON_DEMAND != 0 => Mapping::OnDemand,
        flags if flags & TOUCH != 0 => Mapping::Touch,
        _ => Mapping::Populate,
    };
    let options = Options {
        inherit: flags & INHERIT != 0,
        mapping,
    };
    match events(&names).and_then(|events| options.open(events)) {
        Ok(group) => Box::into_raw(Box::new(SelfcountGroup {
            group,
            thread: this_thread(),
        })),
        Err(error) => {
            fail_by(&error);
            ptr::null_mut()
        }
    }
}

/// Starts the group's counters.
///
/// # Safety
/// As for [`selfcount_read`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selfcount_start(of: *mut SelfcountGroup) -> c_int {
    // SAFETY: the caller's.
    unsafe { group(of) }.map_or(-1, |group| status(group.start()))
}

/// Ends counting.
///
/// # Safety
/// As for [`selfcount_read`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selfcount_stop(of: *mut SelfcountGroup) -> c_int {
    // SAFETY: the caller's.
    unsafe { group(of) }.map_or(-1, |group| status(group.stop()))
}

/// Counts from 0 again.
///
/// # Safety
/// As for [`selfcount_read`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selfcount_reset(of: *mut SelfcountGroup) -> c_int {
    // SAFETY: the caller's.
    unsafe { group(of) }.map_or(-1, |group| status(group.reset()))
}

/// Reads all events, and returns their number; -1 on failure.
///
/// # Safety
/// The group is null, or from [`selfcount_open`], not closed, and not in use by another caller. `counts` has room for
/// `room` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selfcount_read(
    of: *mut SelfcountGroup,
    counts: *mut SelfcountCount,
    room: usize,
) -> c_int {
    // SAFETY: the caller's.
    let Some(group) = (unsafe { group(of) }) else {
        return -1;
    };
    let events = group.len();
    if counts.is_null() || room < events {
        fail("there is no room for the counts of all events", None);
        return -1;
    }
    match group.read() {
        Ok(found) => {
            for (n, count) in found.iter().enumerate() {
                // SAFETY: below `room`; C memory may be uninitialised, so it is written without being read.
                unsafe { counts.add(n).write((*count).into()) };
            }
            c_int::try_from(events).unwrap_or(c_int::MAX)
        }
        Err(error) => {
            fail_by(&error);
            -1
        }
    }
}

/// Number of the group's events; 0 of null.
///
/// # Safety
/// As for [`selfcount_read`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selfcount_events(of: *const SelfcountGroup) -> usize {
    // SAFETY: the caller's.
    unsafe { of.as_ref() }.map_or(0, |it| it.group.len())
}

/// 1 if the last read went by `rdpmc`, 0 if by `read()`.
///
/// # Safety
/// As for [`selfcount_read`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selfcount_is_rdpmc(of: *const SelfcountGroup) -> c_int {
    // SAFETY: the caller's.
    let path = unsafe { of.as_ref() }.map(|it| it.group.read_path());
    (path == Some(ReadPath::Rdpmc)).into()
}

/// Closes the group. Null is fine.
///
/// # Safety
/// The group is null or from [`selfcount_open`], and not closed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selfcount_close(of: *mut SelfcountGroup) {
    if !of.is_null() {
        // SAFETY: from `Box::into_raw`, once.
        drop(unsafe { Box::from_raw(of) });
    }
}

/// Events between an earlier read and a later one.
#[unsafe(no_mangle)]
pub extern "C" fn selfcount_since(
    later: SelfcountCount,
    earlier: SelfcountCount,
) -> SelfcountCount {
    Count::from(later).since(&earlier.into()).into()
}

/// Events, those estimated that came in others' turns; NaN if it never counted.
#[unsafe(no_mangle)]
pub extern "C" fn selfcount_scaled(count: SelfcountCount) -> f64 {
    Count::from(count).scaled().unwrap_or(f64::NAN)
}

/// Why the last call in this thread failed. Valid until the next that fails.
#[unsafe(no_mangle)]
pub extern "C" fn selfcount_error() -> *const c_char {
    FAILURE.with_borrow(|failure| failure.message.as_ptr())
}

/// Advice on the last error; an empty string if there is none. Valid as long as [`selfcount_error`].
#[unsafe(no_mangle)]
pub extern "C" fn selfcount_hint() -> *const c_char {
    FAILURE.with_borrow(|failure| failure.hint.as_ptr())
}
