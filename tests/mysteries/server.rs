// A server with one hidden cause: see README.md.
#![allow(dead_code, unused, static_mut_refs)]
use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const THREADS: u32 = 0;
const POOL: u32 = 1;
const LOOP: u32 = 2;
const TURNS: u32 = 3;
const FORKED: u32 = 4;
const CPU: u32 = 0;
const LOCK: u32 = 1;
const ALLOCATOR: u32 = 2;
const FAULTS: u32 = 3;
const READ: u32 = 4;
const NEIGHBOUR: u32 = 5;
const DEPENDENCY: u32 = 6;
const QUEUE: u32 = 7;
const CACHE: u32 = 8;
const CALLEE: u32 = 9;
const NOTHING: u32 = 10;

const SHAPE: u32 = @SHAPE@;
const CAUSE: u32 = @CAUSE@;
const WORKERS: usize = @WORKERS@;
const PERIOD_NS: u64 = @PERIOD_NS@;
const RUN_NS: u64 = @RUN_NS@;
const SEED: u64 = @SEED@;
const SLOW_PPM: u64 = @SLOW_PPM@;
const KIND: u32 = @KIND@;
const EXTRA: u64 = @EXTRA@;
const BURST: u64 = @BURST@;
/// Items are of so many lengths in turn and come at equal times; 0: by chance.
const LENGTHS: u64 = @LENGTHS@;
const PINNED: usize = @PINNED@;
const DROP: bool = @DROP@ != 0;
const STEPS: u32 = @STEPS@;
const MAX_ITEMS: usize = (RUN_NS / PERIOD_NS * 2 + 100_000) as usize;

#[repr(C)]
#[derive(Clone, Copy)]
struct Request {
    id: u64,
    kind: u32,
    size: u32,
    slow: u32,
    step: u32,
    begin: u64,
    cause_ns: u64,
    sum: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    id: u64,
    slow: u64,
    cause_ns: u64,
    duration_ns: u64,
}

unsafe extern "C" {
    fn mmap(at: *mut u8, n: usize, protection: i32, flags: i32, fd: i32, from: i64) -> *mut u8;
    fn munmap(at: *mut u8, n: usize) -> i32;
    fn madvise(at: *mut u8, n: usize, advice: i32) -> i32;
    fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
    fn open(path: *const u8, flags: i32, mode: u32) -> i32;
    fn pread(fd: i32, to: *mut u8, n: usize, from: i64) -> isize;
    fn read(fd: i32, to: *mut u8, n: usize) -> isize;
    fn write(fd: i32, from: *const u8, n: usize) -> isize;
    fn close(fd: i32) -> i32;
    fn fsync(fd: i32) -> i32;
    fn posix_fadvise(fd: i32, from: i64, n: i64, advice: i32) -> i32;
    fn socket(domain: i32, kind: i32, protocol: i32) -> i32;
    fn connect(fd: i32, to: *const u8, n: u32) -> i32;
    fn socketpair(domain: i32, kind: i32, protocol: i32, ends: *mut i32) -> i32;
    fn epoll_create1(flags: i32) -> i32;
    fn epoll_ctl(poll: i32, what: i32, fd: i32, event: *mut Event) -> i32;
    fn epoll_wait(poll: i32, events: *mut Event, n: i32, timeout: i32) -> i32;
    fn fork() -> i32;
    fn wait(status: *mut i32) -> i32;
    fn _exit(status: i32) -> !;
    fn sched_setaffinity(pid: i32, n: usize, set: *const u64) -> i32;
}

#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Event {
    events: u32,
    fd: i32,
    rest: u32,
}

static mut COUNTER: *const AtomicU64 = std::ptr::null();
static mut ENTRIES: *mut Entry = std::ptr::null_mut();
static mut BYTES: [u8; 4096] = [0; 4096];
static mut CACHED: i32 = -1;
static mut DIRECT: i32 = -1;
static mut ADDRESS: String = String::new();

#[inline(always)]
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[inline(always)]
fn clock(which: i32) -> u64 {
    let mut t = [0i64; 2];
    unsafe { clock_gettime(which, &mut t) };
    (t[0] * 1_000_000_000 + t[1]) as u64
}

#[inline(always)]
fn now() -> u64 {
    clock(1)
}

/// Units of work of one function for one item: `spread` percent more or less than `base`.
#[inline(always)]
fn span(r: &Request, function: u64, base: u64, spread: u64) -> u64 {
    let least = base - base * spread / 100;
    let turn = r.id.checked_rem(LENGTHS).unwrap_or(r.id);
    let u = mix(turn * 64 + function + SEED) >> 44;
    least + (base * spread / 50 * u >> 20)
}

fn make(id: u64) -> Request {
    let u = mix(id ^ SEED);
    let chosen = u % 1_000_000 < SLOW_PPM && CAUSE != NOTHING;
    let mut kind = ((u >> 32) % 7) as u32;
    if CAUSE == CPU {
        kind = if chosen { KIND } else if kind == KIND { 7 } else { kind };
    }
    let size = 100 + ((u >> 40) % 900) as u32;
    // With a lock it is the others that wait.
    let (slow, step) = if CAUSE == LOCK { (0, u32::from(chosen)) } else { (u32::from(chosen), 0) };
    Request { id, kind, size, slow, step, begin: 0, cause_ns: 0, sum: 0 }
}

fn enter(done: &Request, begin: u64) {
    unsafe {
        let at = (*COUNTER).fetch_add(1, Relaxed) as usize;
        if at < MAX_ITEMS {
            let duration_ns = now() - begin;
            *ENTRIES.add(at) = Entry { id: done.id, slow: done.slow.into(), cause_ns: done.cause_ns, duration_ns };
        }
    }
}

/// Lines of 64 bytes, each with the number of the next.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line {
    next: u64,
}
static mut NEAR: Vec<Line> = Vec::new();
static mut FAR: Vec<Line> = Vec::new();
fn ring(n: u64) -> Vec<Line> {
    let mut all: Vec<Line> = (0..n).map(|next| Line { next }).collect();
    for i in (1..n).rev() {
        let j = mix(i + SEED) % i;
        let swapped = all[i as usize].next;
        all[i as usize].next = all[j as usize].next;
        all[j as usize].next = swapped;
    }
    all
}

thread_local! {
    static PEER: Cell<i32> = const { Cell::new(-1) };
}
fn dial() -> i32 {
    unsafe {
        let mut to = [0u8; 110];
        to[0] = 1;
        let name = ADDRESS.as_bytes();
        to[2..2 + name.len()].copy_from_slice(name);
        let fd = socket(1, 5, 0);
        if connect(fd, to.as_ptr(), 110) != 0 {
            eprintln!("connect: {}", std::io::Error::last_os_error());
            std::process::exit(2);
        }
        fd
    }
}

static GUARD: Mutex<()> = Mutex::new(());

mod @space@ {
    use super::*;

@FUNCTIONS@
}
use @space@::*;

fn serve(r: &mut Request, begin: u64) {
    let cpu = if CAUSE == NEIGHBOUR { clock(3) } else { 0 };
    @handler@(r);
    if CAUSE == NEIGHBOUR {
        let wall = now() - begin;
        r.cause_ns = wall.saturating_sub(clock(3) - cpu);
        r.slow = u32::from(r.cause_ns > 200_000);
    }
    enter(r, begin);
}

/// Sleeps until an item is due; exponential times between items.
struct Source {
    id: u64,
    due: u64,
    until: u64,
}

impl Source {
    fn new() -> Self {
        Self { id: 0, due: now() + PERIOD_NS, until: now() + RUN_NS }
    }

    fn next(&mut self) -> bool {
        let mut t;
        loop {
            t = now();
            if t >= self.due {
                break;
            }
            std::thread::sleep(Duration::from_nanos(self.due - t));
        }
        self.id += 1;
        if LENGTHS > 0 {
            self.due += PERIOD_NS;
            return t < self.until;
        }
        // Some items come together with the one before them.
        if BURST == 0 || mix(self.id / BURST.max(1) + SEED) % 1_000_000 >= SLOW_PPM {
            let u = mix(self.id * 7 + SEED) | 1;
            let zeros = u64::from(u.leading_zeros());
            let part = (u << 1 << zeros) >> 44;
            self.due += (zeros * 693 + 693 - (693 * part >> 20)) * PERIOD_NS / 1000;
        }
        t < self.until
    }
}

fn threads() {
    let mut source = Source::new();
    while source.next() {
        let mut r = make(source.id);
        std::thread::spawn(move || {
            serve(&mut r, now());
            if CAUSE == DEPENDENCY {
                unsafe { close(PEER.get()) };
            }
        });
    }
    std::thread::sleep(Duration::from_millis(300));
}

static WAITING: Mutex<(VecDeque<Request>, bool)> = Mutex::new((VecDeque::new(), false));
static COME: Condvar = Condvar::new();

#[inline(never)]
pub fn @submit@(r: &mut Request) {
    r.begin = now();
    let mut waiting = WAITING.lock().unwrap();
    // More than these are turned away.
    if waiting.0.len() < 512 {
        waiting.0.push_back(*r);
    }
    drop(waiting);
    COME.notify_one();
}

fn pool() {
    WAITING.lock().unwrap().0.reserve(512);
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            std::thread::spawn(|| {
                loop {
                    let mut waiting = WAITING.lock().unwrap();
                    while waiting.0.is_empty() && !waiting.1 {
                        waiting = COME.wait(waiting).unwrap();
                    }
                    let Some(mut r) = waiting.0.pop_front() else { return };
                    drop(waiting);
                    let mut begin = now();
                    if CAUSE == QUEUE {
                        r.cause_ns = begin - r.begin;
                        r.slow = u32::from(r.cause_ns > EXTRA);
                        begin = r.begin;
                    }
                    serve(&mut r, begin);
                }
            })
        })
        .collect();
    let mut source = Source::new();
    while source.next() {
        @submit@(&mut make(source.id));
    }
    WAITING.lock().unwrap().1 = true;
    COME.notify_all();
    for worker in workers {
        let _ = worker.join();
    }
}

const SIZE: usize = std::mem::size_of::<Request>();

fn pair() -> [i32; 2] {
    let mut ends = [0; 2];
    if unsafe { socketpair(1, 5, 0, ends.as_mut_ptr()) } != 0 {
        std::process::exit(2);
    }
    ends
}

fn forked() {
    let ends = pair();
    for _ in 0..WORKERS {
        unsafe {
            if fork() == 0 {
                close(ends[1]);
                let mut r = make(0);
                while read(ends[0], (&raw mut r).cast(), SIZE) == SIZE as isize {
                    serve(&mut r, now());
                }
                _exit(0);
            }
        }
    }
    unsafe { close(ends[0]) };
    let mut source = Source::new();
    while source.next() {
        let r = make(source.id);
        if unsafe { write(ends[1], (&raw const r).cast(), SIZE) } < 0 {
            break;
        }
    }
    unsafe {
        close(ends[1]);
        while wait(std::ptr::null_mut()) > 0 {}
    }
}

const CLIENTS: usize = 8;

fn event_loop() {
    unsafe {
        let poll = epoll_create1(0);
        let mut clients = [0; CLIENTS];
        for client in &mut clients {
            let ends = pair();
            *client = ends[0];
            let mut event = Event { events: 1, fd: ends[1], rest: 0 };
            epoll_ctl(poll, 1, ends[1], &mut event);
        }
        let client = std::thread::spawn(move || {
            let mut source = Source::new();
            while source.next() {
                let r = make(source.id);
                write(clients[source.id as usize % CLIENTS], (&raw const r).cast(), SIZE);
            }
            for fd in clients {
                close(fd);
            }
        });
        let mut open = CLIENTS;
        let mut active: Vec<(Request, u64)> = Vec::with_capacity(64);
        while open > 0 || !active.is_empty() {
            let mut events = [Event { events: 0, fd: 0, rest: 0 }; 16];
            let room = if active.len() < 48 { 16 } else { 1 };
            let n = epoll_wait(poll, events.as_mut_ptr(), room, if active.is_empty() { -1 } else { 0 });
            for event in &events[..n.max(0) as usize] {
                if active.len() == 64 {
                    continue;
                }
                let mut r = make(0);
                let got = read(event.fd, (&raw mut r).cast(), SIZE);
                if got == 0 {
                    epoll_ctl(poll, 2, event.fd, std::ptr::null_mut());
                    open -= 1;
                }
                if got != SIZE as isize {
                    continue;
                }
                if SHAPE == TURNS {
                    let begin = now();
                    active.push((r, begin));
                    if let Some(last) = active.last_mut() {
                        @accept@(&mut last.0);
                    }
                } else {
                    serve(&mut r, now());
                }
            }
            let mut i = 0;
            while i < active.len() {
                @handler@(&mut active[i].0);
                active[i].0.step += 1;
                if active[i].0.step < STEPS {
                    i += 1;
                    continue;
                }
                @finish@(&mut active[i].0);
                enter(&active[i].0, active[i].1);
                active.swap_remove(i);
            }
        }
        let _ = client.join();
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, truth, path, address] = &args[..] else { std::process::exit(2) };
    unsafe {
        ADDRESS = address.clone();
        let size = MAX_ITEMS * std::mem::size_of::<Entry>() + 4096;
        // Shared, anonymous, present from the start.
        let shared = mmap(std::ptr::null_mut(), size, 3, 1 | 0x20 | 0x8000, -1, 0);
        COUNTER = shared.cast();
        ENTRIES = shared.add(4096).cast();
        for i in 0..4096 {
            BYTES[i] = mix(i as u64) as u8;
        }
        if CAUSE == CACHE {
            NEAR = ring(64);
            FAR = ring(1 << 20);
        }
        if CAUSE == READ {
            let name = format!("{path}\0");
            CACHED = open(name.as_ptr(), 2 | 0o100, 0o600);
            for _ in 0..8192 {
                write(CACHED, BYTES.as_ptr(), 4096);
            }
            fsync(CACHED);
            DIRECT = open(name.as_ptr(), 0o40000, 0);
            if DIRECT < 0 {
                DIRECT = open(name.as_ptr(), 0, 0);
            }
        }
        if PINNED > 0 {
            let set = 1u64 << (PINNED.max(1) - 1);
            sched_setaffinity(0, 8, &set);
        }
        match SHAPE {
            THREADS => threads(),
            POOL => pool(),
            FORKED => forked(),
            _ => event_loop(),
        }
        let n = ((*COUNTER).load(Relaxed) as usize).min(MAX_ITEMS);
        let mut text = String::new();
        for i in 0..n {
            let it = *ENTRIES.add(i);
            text += &format!("{} {} {} {}\n", it.id, it.slow, it.cause_ns, it.duration_ns);
        }
        if std::fs::write(truth, text).is_err() {
            std::process::exit(2);
        }
    }
}
