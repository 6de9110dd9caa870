//! Generates and compiles the source of a server.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::mystery::{Body, CAUSES, Call, Cause, Function, Language, Mystery, SHAPES, Shape};
use crate::frame::shell;

const C: &str = include_str!("../../../mysteries/server.c");
const RUST: &str = include_str!("../../../mysteries/server.rs");
const GO: &str = include_str!("../../../mysteries/server.go");
const HELPER: &str = include_str!("../../../mysteries/helper.c");

/// Work of `n` units in one of four sorts: a generator of numbers, a table, a division, shifts. `a` is the result.
const C_WORK: [&str; 4] = [
    "for (uint64_t i = 0; i < n * 64; i++) a = (a ^ a >> 29) * 0xd1342543de82ef95ULL + i;",
    "for (uint64_t i = 0; i < n * 50; i++) a += bytes[(a + i) & 4095];",
    "{ double x = (double)(a & 1023); for (uint64_t i = 0; i < n * 20; i++) x = 100.0 / (x + 1.5); a += (uint64_t)x; }",
    "a |= 1; for (uint64_t i = 0; i < n * 50; i++) { a ^= a << 13; a ^= a >> 7; a ^= a << 17; }",
];
const RUST_WORK: [&str; 4] = [
    "for i in 0..n * 64 { a = (a ^ a >> 29).wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(i); }",
    "for i in 0..n * 50 { a = a.wrapping_add(u64::from(unsafe { BYTES[(a.wrapping_add(i) & 4095) as usize] })); }",
    "let mut x = (a & 1023) as f64; for _ in 0..n * 20 { x = 100.0 / (x + 1.5); } a = a.wrapping_add(x as u64);",
    "a |= 1; for _ in 0..n * 50 { a ^= a << 13; a ^= a >> 7; a ^= a << 17; }",
];
const GO_WORK: [&str; 4] = [
    "for i := uint64(0); i < n*64; i++ { a = (a^a>>29)*0xd1342543de82ef95 + i }",
    "for i := uint64(0); i < n*50; i++ { a += uint64(bytes[(a+i)&4095]) }",
    "x := float64(a & 1023); for i := uint64(0); i < n*20; i++ { x = 100.0 / (x + 1.5) }; a += uint64(x)",
    "a |= 1; for i := uint64(0); i < n*50; i++ { a ^= a << 13; a ^= a >> 7; a ^= a << 17 }",
];

/// Code of the cause, in each language; `@WORK@` is work of n units.
fn trouble(cause: Cause, language: Language) -> &'static str {
    use Language::{C, Cpp, Go, Rust};
    match (cause, language) {
        (Cause::Cpu, C | Cpp) => {
            "if (r->kind == KIND) { uint64_t t = thread_time(); n = EXTRA; @WORK@ r->cause_ns += thread_time() - t; }"
        }
        (Cause::Cpu, Rust) => {
            "if r.kind == KIND { let t = clock(3); let n = EXTRA; @WORK@ r.cause_ns += clock(3) - t; }"
        }
        (Cause::Cpu, Go) => "if r.kind == KIND { t := threadTime(); n := uint64(EXTRA); @WORK@; r.causeNs += threadTime() - t }",
        (Cause::Lock, C | Cpp) => {
            "uint64_t t = now(); TAKE(); r->cause_ns = now() - t; r->slow = r->cause_ns > EXTRA * 25;
  if (r->step) a += @callee@(r, EXTRA);
  GIVE();
  if (!r->step) a += @callee@(r, EXTRA);"
        }
        (Cause::Lock, Rust) => {
            "let t = now(); let held = GUARD.lock().unwrap(); r.cause_ns = now() - t; r.slow = u32::from(r.cause_ns > EXTRA * 25);
        if r.step == 1 { a = a.wrapping_add(@callee@(r, EXTRA)); }
        drop(held);
        if r.step == 0 { a = a.wrapping_add(@callee@(r, EXTRA)); }"
        }
        (Cause::Lock, Go) => {
            "t := now(); guard.Lock(); r.causeNs = now() - t; if r.causeNs > EXTRA*25 { r.slow = 1 }
	if r.step == 1 { a += @callee@(r, mine, EXTRA) }
	guard.Unlock()
	if r.step == 0 { a += @callee@(r, mine, EXTRA) }"
        }
        (Cause::Allocator, C) => {
            "if (r->slow) { uint64_t t = now();
    for (unsigned k = 0; k < EXTRA; k++) { void *all[64];
      for (unsigned i = 0; i < 64; i++) { all[i] = malloc(24 + (a + i * 7919u) % 1400); *(volatile char *)all[i] = 1; a = mix(a); }
      for (unsigned i = 0; i < 64; i++) free(all[i * 37 % 64]); }
    r->cause_ns += now() - t; }"
        }
        (Cause::Allocator, Cpp) => {
            "if (r->slow) { uint64_t t = now();
    for (unsigned k = 0; k < EXTRA; k++) { std::unique_ptr<char[]> all[64];
      for (unsigned i = 0; i < 64; i++) { all[i].reset(new char[24 + (a + i * 7919u) % 1400]); *(volatile char *)all[i].get() = 1; a = mix(a); }
      for (unsigned i = 0; i < 64; i++) all[i * 37 % 64].reset(); }
    r->cause_ns += now() - t; }"
        }
        (Cause::Allocator, Rust) => {
            "if r.slow == 1 { let t = now();
            for _ in 0..EXTRA { let mut all: [Vec<u8>; 64] = std::array::from_fn(|i| { a = mix(a); black_box(Vec::with_capacity((24 + (a + i as u64) % 1400) as usize)) });
                for i in 0..64 { all[i * 37 % 64] = Vec::new(); } }
            r.cause_ns += now() - t; }"
        }
        (Cause::Allocator, Go) => {
            "if r.slow == 1 { t := now()
		for k := 0; k < EXTRA; k++ { var all [64][]byte
			for i := range all { all[i] = make([]byte, 24+(a+uint64(i))%1400); a = mix(a) }
			a += uint64(len(all[a%64])) }
		r.causeNs += now() - t }"
        }
        (Cause::PageFaults, C | Cpp) => {
            "if (r->slow) { uint64_t t = now(); size_t size = (size_t)EXTRA * 4096;
    char *at = (char *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(at, size, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < size; i += 4096) ((volatile char *)at)[i] = 1;
    munmap(at, size); r->cause_ns += now() - t; }"
        }
        (Cause::PageFaults, Rust) => {
            "if r.slow == 1 { unsafe { let t = now(); let size = EXTRA as usize * 4096;
            let at = mmap(std::ptr::null_mut(), size, 3, 2 | 0x20, -1, 0);
            madvise(at, size, 15);
            for i in (0..size).step_by(4096) { at.add(i).write_volatile(1); }
            munmap(at, size); r.cause_ns += now() - t; } }"
        }
        (Cause::PageFaults, Go) => {
            "if r.slow == 1 { t := now()
		at, err := syscall.Mmap(-1, 0, EXTRA*4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err == nil { syscall.Madvise(at, 15); for i := 0; i < len(at); i += 4096 { at[i] = 1 }; syscall.Munmap(at) }
		r.causeNs += now() - t }"
        }
        (Cause::ColdRead, C | Cpp) => {
            "static __thread char buffer[EXTRA * 4096] __attribute__((aligned(4096)));
  if (pread(cached, buffer, 512, (off_t)(a % 64 * 512)) < 0) abort();
  if (r->slow) { uint64_t t = now(); off_t from = (off_t)(64 + mix(a) % 8000) * 4096; int fd = direct;
    if (@DROP@) { fd = cached; posix_fadvise(fd, from, EXTRA * 4096, POSIX_FADV_DONTNEED); }
    if (pread(fd, buffer, EXTRA * 4096, from) < 0) abort();
    r->cause_ns += now() - t; }"
        }
        (Cause::ColdRead, Rust) => {
            "#[repr(align(4096))] struct Buffer([u8; EXTRA as usize * 4096]);
        thread_local! { static BUFFER: UnsafeCell<Buffer> = const { UnsafeCell::new(Buffer([0; EXTRA as usize * 4096])) }; }
        let to = BUFFER.with(|it| it.get().cast::<u8>());
        unsafe { assert!(pread(CACHED, to, 512, (a % 64 * 512) as i64) >= 0);
        if r.slow == 1 { let t = now(); let from = ((64 + mix(a) % 8000) * 4096) as i64; let mut fd = DIRECT;
            if DROP { fd = CACHED; posix_fadvise(fd, from, EXTRA as i64 * 4096, 4); }
            assert!(pread(fd, to, EXTRA as usize * 4096, from) >= 0);
            r.cause_ns += now() - t; } }"
        }
        (Cause::ColdRead, Go) => {
            "if _, err := syscall.Pread(cached, mine.buffer[:512], int64(a%64*512)); err != nil { panic(err) }
	if r.slow == 1 { t := now(); from := int64(64+mix(a)%8000) * 4096; fd := direct
		if DROP { fd = cached; syscall.Syscall6(syscall.SYS_FADVISE64, uintptr(fd), uintptr(from), EXTRA*4096, 4, 0, 0) }
		if _, err := syscall.Pread(fd, mine.buffer[:EXTRA*4096], from); err != nil { panic(err) }
		r.causeNs += now() - t }"
        }
        (Cause::Dependency, C | Cpp) => {
            "uint64_t t = now(), late = r->slow ? EXTRA : 0; if (peer < 0) peer = dial();
  if (write(peer, &late, sizeof late) < 0 || read(peer, &late, sizeof late) < 0) abort();
  r->cause_ns = now() - t; r->slow = r->cause_ns > EXTRA * 500;"
        }
        (Cause::Dependency, Rust) => {
            "let t = now(); let mut late: u64 = if r.slow == 1 { EXTRA } else { 0 }; if PEER.get() < 0 { PEER.set(dial()); }
        unsafe { assert!(write(PEER.get(), (&raw const late).cast(), 8) == 8 && read(PEER.get(), (&raw mut late).cast(), 8) == 8); }
        r.cause_ns = now() - t; r.slow = u32::from(r.cause_ns > EXTRA * 500);"
        }
        (Cause::Dependency, Go) => {
            "t := now(); late := [8]byte{}; if r.slow == 1 { *(*uint64)(unsafe.Pointer(&late)) = EXTRA }; if mine.peer < 0 { mine.peer = dial() }
	if _, err := syscall.Write(mine.peer, late[:]); err != nil { panic(err) }
	if _, err := syscall.Read(mine.peer, late[:]); err != nil { panic(err) }
	r.causeNs, r.slow = now() - t, 0; if r.causeNs > EXTRA*500 { r.slow = 1 }"
        }
        (Cause::CacheMisses, C | Cpp) => {
            "uint64_t t = thread_time(), at = mix(a) % (r->slow ? LINES : 64); struct line *lines = r->slow ? far_lines : near_lines;
  for (unsigned i = 0; i < EXTRA; i++) at = lines[at].next;
  a += at; r->cause_ns = thread_time() - t;"
        }
        (Cause::CacheMisses, Rust) => {
            "let t = clock(3); unsafe { let lines: &[Line] = if r.slow == 1 { &FAR } else { &NEAR };
            let mut at = mix(a) % lines.len() as u64;
            for _ in 0..EXTRA { at = lines[at as usize].next; }
            a = a.wrapping_add(at); } r.cause_ns = clock(3) - t;"
        }
        (Cause::CacheMisses, Go) => {
            "t := threadTime(); lines := nearLines; if r.slow == 1 { lines = farLines }
	at := mix(a) % uint64(len(lines)); for i := 0; i < EXTRA; i++ { at = lines[at].next }
	a += at; r.causeNs = threadTime() - t"
        }
        (Cause::Callee, C | Cpp) => {
            "if (r->slow) { uint64_t t = thread_time(); a += @callee@(r, EXTRA); r->cause_ns += thread_time() - t; }"
        }
        (Cause::Callee, Rust) => {
            "if r.slow == 1 { let t = clock(3); a = a.wrapping_add(@callee@(r, EXTRA)); r.cause_ns += clock(3) - t; }"
        }
        (Cause::Callee, Go) => "if r.slow == 1 { t := threadTime(); a += @callee@(r, mine, EXTRA); r.causeNs += threadTime() - t }",
        (Cause::Neighbour | Cause::Queue | Cause::Nothing, _) => "",
    }
}

/// The whole source.
pub fn source(it: &Mystery) -> String {
    let template = match it.language {
        Language::C | Language::Cpp => C,
        Language::Rust => RUST,
        Language::Go => GO,
    };
    let number = |place: usize| place.to_string();
    let place = |found: Option<usize>| number(found.unwrap_or(0));
    let mut text = template.replace("@FUNCTIONS@", &functions(it));
    let words: HashMap<&str, String> = HashMap::from([
        (
            "@SHAPE@",
            place(SHAPES.iter().position(|known| *known == it.shape)),
        ),
        (
            "@CAUSE@",
            place(CAUSES.iter().position(|known| *known == it.cause)),
        ),
        ("@WORKERS@", it.workers.to_string()),
        ("@PERIOD_NS@", it.period_ns.to_string()),
        ("@RUN_NS@", ((it.seconds * 1e9) as u64).to_string()),
        ("@SEED@", it.seed.to_string()),
        ("@SLOW_PPM@", it.slow_ppm.to_string()),
        ("@KIND@", it.kind.to_string()),
        ("@EXTRA@", it.extra.to_string()),
        ("@BURST@", it.burst.to_string()),
        ("@LENGTHS@", it.lengths.to_string()),
        ("@PINNED@", it.pinned.map_or(0, |cpu| cpu + 1).to_string()),
        ("@DROP@", u8::from(it.drops).to_string()),
        ("@STEPS@", it.steps.len().to_string()),
        ("@space@", it.space.to_owned()),
        ("@handler@", it.handler.clone()),
        ("@submit@", it.submit.clone()),
        ("@accept@", it.accept.clone()),
        ("@finish@", it.finish.clone()),
        ("@callee@", it.callee.clone()),
    ]);
    for (word, value) in words {
        text = text.replace(word, &value);
    }
    text
}

/// The functions of a server, callees first.
fn functions(it: &Mystery) -> String {
    let mut text = String::new();
    for function in &it.functions {
        text += &one(it, function);
    }
    text + &handler(it)
}

fn one(it: &Mystery, function: &Function) -> String {
    let (sort, wrong) = match &function.body {
        Body::Node { calls } => return node(it, &function.name, calls),
        Body::Leaf { sort } => (*sort, ""),
        Body::Culprit { sort } => (*sort, trouble(it.cause, it.language)),
    };
    let name = &function.name;
    // Makes all functions different, as compilers merge equal ones.
    let salt = 2 * it
        .functions
        .iter()
        .position(|known| known == function)
        .unwrap_or(0)
        + 1;
    match it.language {
        Language::C | Language::Cpp => {
            let work = C_WORK[sort];
            let wrong = wrong.replace("@WORK@", work);
            format!(
                "NOINLINE static uint64_t {name}(struct request *r, uint64_t n) {{\n  uint64_t a = r->id + n * {salt};\n  \
                 {work}\n  {wrong}\n  return a;\n}}\n\n"
            )
        }
        Language::Rust => {
            let work = RUST_WORK[sort];
            let wrong = wrong.replace("@WORK@", work);
            format!(
                "    #[inline(never)]\n    pub fn {name}(r: &mut Request, n: u64) -> u64 {{\n        let mut a = r.id + n * {salt};\n        \
                 {work}\n        {wrong}\n        black_box(a)\n    }}\n\n"
            )
        }
        Language::Go => {
            let work = GO_WORK[sort];
            let wrong = wrong.replace("@WORK@", &format!("{{ {work} }}"));
            format!(
                "//go:noinline\nfunc {name}(r *request, mine *local, n uint64) uint64 {{\n\ta := r.id + n*{salt}\n\t{{ {work} }}\n\t\
                 {wrong}\n\treturn a\n}}\n\n"
            )
        }
    }
}

fn node(it: &Mystery, name: &str, calls: &[Call]) -> String {
    let lines: String = calls.iter().map(|call| line(it, call)).collect();
    match it.language {
        Language::C | Language::Cpp => format!(
            "NOINLINE static uint64_t {name}(struct request *r) {{\n  uint64_t a = r->size;\n{lines}  return a;\n}}\n\n"
        ),
        Language::Rust => format!(
            "    #[inline(never)]\n    pub fn {name}(r: &mut Request) -> u64 {{\n        let mut a = u64::from(r.size);\n\
             {lines}        black_box(a)\n    }}\n\n"
        ),
        Language::Go => format!(
            "//go:noinline\nfunc {name}(r *request, mine *local) uint64 {{\n\ta := uint64(r.size)\n{lines}\treturn a\n}}\n\n"
        ),
    }
}

/// A call in a node.
fn line(it: &Mystery, call: &Call) -> String {
    let Call {
        function,
        units,
        spread,
    } = call;
    let name = &it.functions[*function].name;
    let work = match it.language {
        Language::C | Language::Cpp => format!(", span(r, {function}, {units}, {spread})"),
        Language::Rust => format!("span(r, {function}, {units}, {spread})"),
        Language::Go => format!(", span(r, {function}, {units}, {spread})"),
    };
    let is_node = matches!(it.functions[*function].body, Body::Node { .. });
    match (it.language, is_node) {
        (Language::C | Language::Cpp, true) => format!("  a += {name}(r);\n"),
        (Language::C | Language::Cpp, false) => format!("  a += {name}(r{work});\n"),
        (Language::Rust, true) => format!("        a = a.wrapping_add({name}(r));\n"),
        (Language::Rust, false) => {
            format!("        let n = {work};\n        a = a.wrapping_add({name}(r, n));\n")
        }
        (Language::Go, true) => format!("\ta += {name}(r, mine)\n"),
        (Language::Go, false) => format!("\ta += {name}(r, mine{work})\n"),
    }
}

/// The function that handles an item; where items are handled in turns, that of a turn, with those of begin and end.
fn handler(it: &Mystery) -> String {
    let Mystery {
        handler,
        accept,
        finish,
        ..
    } = it;
    let mut calls = String::new();
    let turns = it.shape == Shape::Turns;
    for (at, step) in it.steps.iter().enumerate() {
        let name = &it.functions[*step].name;
        let _ = match (it.language, turns) {
            (Language::C | Language::Cpp, true) => {
                writeln!(calls, "  if (r->step == {at}) r->sum += {name}(r);")
            }
            (Language::C | Language::Cpp, false) => writeln!(calls, "  r->sum += {name}(r);"),
            (Language::Rust, true) => {
                writeln!(
                    calls,
                    "        if r.step == {at} {{ r.sum = r.sum.wrapping_add({name}(r)); }}"
                )
            }
            (Language::Rust, false) => {
                writeln!(calls, "        r.sum = r.sum.wrapping_add({name}(r));")
            }
            (Language::Go, _) => writeln!(calls, "\tr.sum += {name}(r, mine)"),
        };
    }
    match it.language {
        Language::C | Language::Cpp => {
            let ends = if turns {
                format!(
                    "NOINLINE void {accept}(struct request *r) {{\n  r->begin = now();\n}}\n\n\
                     NOINLINE void {finish}(struct request *r) {{\n  r->sum ^= now();\n}}\n"
                )
            } else {
                String::new()
            };
            format!("NOINLINE void {handler}(struct request *r) {{\n{calls}}}\n\n{ends}")
        }
        Language::Rust => format!(
            "    #[inline(never)]\n    pub fn {handler}(r: &mut Request) {{\n{calls}    }}\n\n    \
             #[inline(never)]\n    pub fn {accept}(r: &mut Request) {{\n        r.begin = now();\n    }}\n\n    \
             #[inline(never)]\n    pub fn {finish}(r: &mut Request) {{\n        r.sum ^= now();\n    }}\n"
        ),
        Language::Go => {
            format!("//go:noinline\nfunc {handler}(r *request, mine *local) {{\n{calls}}}\n")
        }
    }
}

/// Whether the compiler of the language is installed.
pub fn can_compile(language: Language) -> bool {
    language != Language::Go || Command::new("go").arg("version").output().is_ok()
}

/// The program of a mystery, compiled if it is not there yet.
pub fn compile(it: &Mystery, cache: &Path) -> Result<PathBuf> {
    let text = source(it);
    let (extension, name) = match it.language {
        Language::C => ("c", "cc"),
        Language::Cpp => ("cpp", "c++"),
        Language::Rust => ("rs", "rustc"),
        Language::Go => ("go", "go"),
    };
    make(&text, extension, cache, |source, program| {
        let mut command = Command::new(name);
        match it.language {
            Language::C | Language::Cpp => command.args(["-O2", "-g", "-pthread", "-o"]),
            Language::Rust => command.args([
                "--edition",
                "2024",
                "--crate-name",
                "server",
                "-O",
                "-g",
                "-o",
            ]),
            Language::Go => {
                command
                    .env("GO111MODULE", "off")
                    .env("GOCACHE", cache.join("go"));
                command.args(["build", "-o"])
            }
        };
        command.arg(program).arg(source);
        command
    })
}

/// The program of the other processes.
pub fn helper(cache: &Path) -> Result<PathBuf> {
    make(HELPER, "c", cache, |source, program| {
        let mut command = Command::new("cc");
        command
            .args(["-O2", "-pthread", "-o"])
            .arg(program)
            .arg(source);
        command
    })
}

/// Compiles a source once.
fn make(
    text: &str,
    extension: &str,
    cache: &Path,
    command: impl Fn(&Path, &Path) -> Command,
) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    (text, extension).hash(&mut hasher);
    let dir = cache.join(format!("{:016x}", hasher.finish()));
    let program = dir.join("server");
    if program.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(&dir)?;
    let source = dir.join(format!("server.{extension}"));
    fs::write(&source, text)?;
    let made = dir.join("made");
    shell::output(&mut command(&source, &made))
        .with_context(|| format!("cannot compile {}", source.display()))?;
    fs::rename(&made, &program)?;
    Ok(program)
}
