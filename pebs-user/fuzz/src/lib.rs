//! Common parts of all fuzz targets: a memory limit per input, and panics are reported where they end.

#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use pebs_user::fuzz::Target;
use tempfile::TempDir;

/// Memory that an input may make a reader hold at once, bytes.
const MOST: usize = 256 << 20;

/// The system's allocator, with a limit.
struct Counting;

/// Bytes allocated now.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Largest value allowed for [`LIVE`].
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: usize) {
    let live = LIVE
        .fetch_add(bytes, Ordering::Relaxed)
        .saturating_add(bytes);
    if live > LIMIT.load(Ordering::Relaxed) {
        LIMIT.store(usize::MAX, Ordering::Relaxed);
        eprintln!("this input makes the reader hold {live} bytes: {bytes} more now");
        eprintln!("{}", std::backtrace::Backtrace::force_capture());
        std::process::abort();
    }
}

// SAFETY: all calls are passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size.saturating_sub(layout.size()));
        LIVE.fetch_sub(layout.size().saturating_sub(size), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Panics that a reader catches itself are not findings, so the hook only stores them.
pub fn init() {
    std::panic::set_hook(Box::new(|info| {
        let text = format!("{info}\n{}", std::backtrace::Backtrace::force_capture());
        PANIC.with_borrow_mut(|last| *last = text);
    }));
}

/// Runs a reader on an input.
pub fn run(target: Target, data: &[u8]) {
    static SCRATCH: OnceLock<TempDir> = OnceLock::new();
    let scratch = SCRATCH.get_or_init(scratch).path();
    LIMIT.store(LIVE.load(Ordering::Relaxed) + MOST, Ordering::Relaxed);
    let result = catch_unwind(AssertUnwindSafe(|| target(data, scratch)));
    LIMIT.store(usize::MAX, Ordering::Relaxed);
    if result.is_err() {
        PANIC.with_borrow(|last| eprintln!("{last}"));
        std::process::abort();
    }
}

/// In memory if there is such a folder: some readers write files for every input.
fn scratch() -> TempDir {
    let made = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    made.unwrap_or_else(|error| panic!("no folder for temporary files: {error}"))
}

/// Makes a reader of [`pebs_user::fuzz`] a fuzz target.
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        libfuzzer_sys::fuzz_target!(init: $crate::init(), |data: &[u8]| $crate::run(pebs_user::fuzz::$name, data));
    };
}
