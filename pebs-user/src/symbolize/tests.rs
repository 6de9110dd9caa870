//! The symbolizer on real programs, compiled here, compared with `nm` and the programs' own output.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use tempfile::TempDir;

mod events;
mod files;

use super::*;
use crate::binary::demangle::demangle;
use crate::binary::elf::Binary;
use crate::binary::mapping::{Backing, FileIdentity, MappedFile};
use crate::binary::testing::embed_symbols;
use crate::binary::{elf_image, lookup, process};

/// Prints the addresses of its functions, then waits for its standard input to close.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
volatile unsigned sink;

static inline __attribute__((always_inline)) void inlined_work(unsigned n) {
    for (unsigned i = 0; i < n; i++)
        sink += i * 31;
}
__attribute__((noinline)) void outer(unsigned n) {
    inlined_work(n);
}
__attribute__((noinline)) static void hidden(unsigned n) {
    sink = n;
    sink += n;
}
__asm__(".text\n.type unsized_asm,@function\nunsized_asm:\n nop\n nop\n nop\n ret\n"
        ".type sized_asm,@function\nsized_asm:\n nop\n.type in_sized_asm,@function\nin_sized_asm:\n nop\n nop\n"
        ".size in_sized_asm,.-in_sized_asm\n nop\n ret\n.size sized_asm,.-sized_asm\n");
void unsized_asm(void); void sized_asm(void); void in_sized_asm(void);

int main(int argc, char **argv) {
    outer(argc); hidden(argc);
    printf("outer %p\nhidden %p\nunsized_asm %p\nsized_asm %p\nin_sized_asm %p\nqsort %p\n", (void *)outer,
        (void *)hidden, (void *)unsized_asm, (void *)sized_asm, (void *)in_sized_asm, (void *)qsort);
    fflush(stdout);
    getchar();
    return 0;
}
"#;

struct Running {
    child: Child,
    addresses: Vec<(String, u64)>,
}

impl Running {
    fn start(program: &Path) -> Self {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let addresses = out
            .lines()
            .map(|line| {
                let line = line.unwrap();
                let (name, address) = line.split_once(" 0x").unwrap();
                (name.to_string(), u64::from_str_radix(address, 16).unwrap())
            })
            .take(6)
            .collect();
        Self { child, addresses }
    }

    fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    fn address(&self, name: &str) -> u64 {
        let found = self.addresses.iter().find(|(known, _)| known == name);
        found.unwrap().1
    }

    fn stop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compiles [`PROGRAM`]; the folder is removed with the test.
fn compile(flags: &[&str]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("program.c");
    std::fs::write(&source, PROGRAM).unwrap();
    let program = dir.path().join("program");
    run(Command::new("gcc")
        .args(flags)
        .arg("-o")
        .args([&program, &source]));
    (dir, program)
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A symbolizer that keeps the rows it returned.
struct Probe {
    symbolizer: Symbolizer,
    rows: Vec<FunctionRow>,
}

impl Probe {
    fn new() -> Self {
        Self::with(SymbolizeOptions::default())
    }

    fn with(options: SymbolizeOptions) -> Self {
        Self {
            symbolizer: Symbolizer::new(options),
            rows: Vec::new(),
        }
    }

    fn row(&mut self, pid: Pid, address: u64) -> FunctionRow {
        let id = self.symbolizer.function(pid, Ip(address));
        assert_eq!(id, self.symbolizer.function(pid, Ip(address)));
        self.symbolizer.take_new_functions(&mut self.rows);
        let row = self.rows[id.0 as usize].clone();
        assert_eq!(row.function_id, id);
        assert_eq!(self.symbolizer.is_resolved(id), row.name.is_some());
        row
    }

    /// Names of the frames at an address.
    fn frames(&mut self, pid: Pid, address: u64) -> Vec<String> {
        let mut ids = Vec::new();
        self.symbolizer.frames(pid, Ip(address), |id| ids.push(id));
        self.symbolizer.take_new_functions(&mut self.rows);
        let name = |id: &FunctionId| self.rows[id.0 as usize].name.clone().unwrap();
        ids.iter().map(name).collect()
    }

    fn name(&mut self, pid: Pid, address: u64) -> Option<String> {
        self.row(pid, address).name
    }
}

/// With DWARF: names, source line of the function's start, its address in the file; one id for the whole function.
#[test]
fn c_with_debug() {
    let (_dir, program) = compile(&["-O2", "-g"]);
    let running = Running::start(&program);
    let mut probe = Probe::new();
    let row = probe.row(running.pid(), running.address("outer"));
    assert_eq!(row.name.as_deref(), Some("outer"));
    assert!(row.module.unwrap().ends_with("/program"));
    assert!(row.file.unwrap().ends_with("program.c"));
    // The first instruction is from the inlined function's body: the line is that of its call.
    let line = PROGRAM
        .lines()
        .position(|line| line.contains("inlined_work(n);"))
        .unwrap();
    assert_eq!(row.line, Some(u32::try_from(line + 1).unwrap()));
    assert!(row.build_id.is_some_and(|id| id.len() == 40));
    let nm = run(Command::new("nm").arg("-S").arg(&program));
    let symbol = nm.lines().find(|line| line.ends_with(" outer")).unwrap();
    let numbers: Vec<u64> = symbol
        .split(' ')
        .filter_map(|word| u64::from_str_radix(word, 16).ok())
        .collect();
    assert_eq!(row.size, Some(numbers[1]));
    let last = running.address("outer") + numbers[1] - 1;
    assert_eq!(
        probe.row(running.pid(), last).function_id,
        row.function_id,
        "one id for the whole function"
    );
    assert_ne!(
        probe.row(running.pid(), last + 1).function_id,
        row.function_id
    );
}

/// Inlined code belongs to the function it was inlined into, unless requested otherwise.
#[test]
fn inlined_functions() {
    let (_dir, program) = compile(&["-O2", "-g"]);
    let running = Running::start(&program);
    let start = running.address("outer");
    let mut physical = Probe::new();
    let size = physical.row(running.pid(), start).size.unwrap();
    let mut innermost = Probe::with(SymbolizeOptions {
        inlined: Inlining::Innermost,
        ..SymbolizeOptions::default()
    });
    let mut names = std::collections::BTreeSet::new();
    for address in start..start + size {
        assert_eq!(
            physical.name(running.pid(), address).as_deref(),
            Some("outer")
        );
        names.insert(innermost.name(running.pid(), address).unwrap());
    }
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    assert_eq!(names, ["inlined_work", "outer"]);
    let nm = run(Command::new("nm").arg(&program));
    let symbol = nm.lines().find(|line| line.ends_with(" outer")).unwrap();
    let first = u64::from_str_radix(symbol.split(' ').next().unwrap(), 16).unwrap();
    let addresses = (first..first + size).map(|address| format!("{address:#x}"));
    let text = run(Command::new("addr2line")
        .args(["-f", "-e"])
        .arg(&program)
        .args(addresses));
    for (address, name) in (start..).zip(text.lines().step_by(2)) {
        assert_eq!(innermost.name(running.pid(), address).unwrap(), name);
    }
    let rows = innermost.rows.len();
    assert_eq!(rows, 2, "an id a pair, not an address");
    let marked: Vec<bool> = innermost.rows.iter().map(|row| row.inlined).collect();
    assert_eq!(marked, [false, true]);
    for (address, name) in (start..).zip(text.lines().step_by(2)) {
        let inner = innermost.frames(running.pid(), address);
        let expected = match name {
            "outer" => vec!["outer"],
            name => vec![name, "outer"],
        };
        assert_eq!(inner, expected);
        assert_eq!(physical.frames(running.pid(), address), ["outer"]);
    }
}

/// Stripped: exported functions keep their names, others are named by their start address.
#[test]
fn stripped() {
    let (_dir, program) = compile(&["-O2", "-rdynamic"]);
    let nm = run(Command::new("nm").arg(&program));
    let hidden = nm.lines().find(|line| line.ends_with(" t hidden")).unwrap();
    let hidden = u64::from_str_radix(hidden.split(' ').next().unwrap(), 16).unwrap();
    run(Command::new("strip").arg("-s").arg(&program));
    let running = Running::start(&program);
    let mut probe = Probe::new();
    let name = probe.name(running.pid(), running.address("outer"));
    assert_eq!(name.as_deref(), Some("outer"));
    let row = probe.row(running.pid(), running.address("hidden") + 3);
    assert_eq!(row.name, Some(format!("program+fn@{hidden:#x}")));
    // Without symbol or frame nothing is known, and the exported function before it is not returned.
    let row = probe.row(running.pid(), running.address("unsized_asm"));
    assert_eq!(row.name, None);
    assert!(row.module.unwrap().ends_with("/program"));
    let other = probe.row(running.pid(), running.address("unsized_asm") + 2);
    assert_eq!(
        other.function_id, row.function_id,
        "one unresolved row a module"
    );
}

/// Stripped as on Fedora: every function has its name, whichever table it is in.
#[test]
fn embedded_symbols() {
    let (_dir, program) = compile(&["-O2", "-rdynamic"]);
    if !embed_symbols(&program) {
        return println!("SKIP needs xz");
    }
    let binary = Binary::open(&program).unwrap();
    assert!(binary.tables.embedded && !binary.tables.is_stripped());
    let running = Running::start(&program);
    let mut probe = Probe::new();
    for function in ["outer", "hidden"] {
        assert!(lookup::function(&binary, function).is_ok(), "{function}");
        let name = probe.name(running.pid(), running.address(function) + 3);
        assert_eq!(name.as_deref(), Some(function));
    }
}

/// Hand-written assembly: functions without a size end at the next symbol, functions within functions are distinguished
/// whichever is looked up first.
#[test]
fn assembly() {
    let (_dir, program) = compile(&["-O1"]);
    let running = Running::start(&program);
    let pid = running.pid();
    for order in [[0, 1, 4], [4, 1, 0], [1, 0, 4]] {
        let mut probe = Probe::new();
        let start = running.address("sized_asm");
        for at in order {
            let expect = if at == 1 { "in_sized_asm" } else { "sized_asm" };
            assert_eq!(probe.name(pid, start + at).as_deref(), Some(expect), "{at}");
        }
        let name = probe.name(pid, running.address("unsized_asm") + 2);
        assert_eq!(name.as_deref(), Some("unsized_asm"));
    }
}

/// Two processes of one binary share ids, also through another path to the same content.
#[test]
fn shared_ids() {
    let (dir, program) = compile(&["-O2", "-no-pie"]);
    let copy = dir.path().join("copy");
    // Not copied by ourselves: a process forked meanwhile by another test could hold it open for writing, and then
    // it can't be executed.
    run(Command::new("cp").args([&program, &copy]));
    let (one, two) = (Running::start(&program), Running::start(&copy));
    let mut probe = Probe::new();
    let first = probe.row(one.pid(), one.address("outer"));
    let second = probe.row(two.pid(), two.address("outer"));
    assert_eq!(first.function_id, second.function_id);
}

/// Shared libraries: a function of libc as the program calls it.
#[test]
fn libc_function() {
    let (_dir, program) = compile(&["-O2"]);
    let running = Running::start(&program);
    let row = Probe::new().row(running.pid(), running.address("qsort"));
    assert_eq!(row.name.as_deref(), Some("qsort"));
    assert!(row.module.unwrap().contains("libc.so"));
}

/// Data of a process: a byte within a variable, the stack, and an unmapped address; a recorded process has what was
/// recorded.
#[test]
fn own_data() {
    let me = Pid(std::process::id());
    let mut probe = Probe::new();
    let exe = std::fs::read_link("/proc/self/exe").unwrap();
    let variables = elf_image::variables(&std::fs::File::open(&exe).unwrap());
    let mut long = variables.iter().filter(|it| it.2 >= 16);
    let (name, in_file, _) = long.next_back().unwrap();
    let maps = process::mappings(me).unwrap();
    let first = maps.iter().find(|it| exe.to_str() == Some(&it.path));
    let address = first.unwrap().start + in_file;
    let place = probe.symbolizer.data(me, address + 9).unwrap();
    assert_eq!(place.symbol.as_deref(), Some(&*demangle(name)));
    assert_eq!(place.offset, 9);
    assert_eq!(place.object.as_deref(), exe.to_str());
    let local = 0_u8;
    let place = probe
        .symbolizer
        .data(me, (&raw const local) as usize as u64);
    assert_eq!(place.unwrap().symbol, None);
    assert_eq!(probe.symbolizer.data(me, 8), None);
    assert_eq!(probe.symbolizer.data(me, u64::MAX), None);
    let recorded = SymbolizeOptions {
        recorded: Some(Recorded::default()),
        ..SymbolizeOptions::default()
    };
    let mut recorded = Symbolizer::new(recorded);
    assert_eq!(recorded.data(me, address), None);
    recorded.on_data_mapping(me, address - 16..address + 16, b"[heap]");
    recorded.on_data_mapping(me, 0..16, b"//anon");
    let place = recorded.data(me, address).unwrap();
    assert_eq!(
        (place.object.as_deref(), place.offset),
        (Some("[heap]"), 16)
    );
    assert_eq!(recorded.data(me, 4).unwrap().object, None);
}

/// Our own code, kernel, vdso and an unmapped address.
#[test]
fn own_process() {
    let me = Pid(std::process::id());
    let mut probe = Probe::new();
    let here = own_process as *const () as usize as u64;
    let name = probe.name(me, here).unwrap();
    assert!(name.contains("symbolize::tests::own_process"), "{name}");
    let vdso = proc_maps(me)
        .unwrap()
        .into_iter()
        .find(|mapping| mapping.backing == Backing::Vdso)
        .unwrap();
    let names: std::collections::BTreeSet<_> = (vdso.start..vdso.end)
        .step_by(16)
        .filter_map(|address| probe.name(me, address))
        .collect();
    assert!(
        names.iter().any(|name| name.contains("clock_gettime")),
        "{names:?}"
    );
    assert_eq!(probe.row(me, 8).module, None);
    assert_eq!(probe.row(Pid(u32::MAX), 0).module, None);
    assert_eq!(probe.name(me, VSYSCALL).as_deref(), Some("[vsyscall]"));
}

/// Kernel addresses, compared with /proc/kallsyms.
#[test]
fn kernel_function() {
    let kallsyms = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let line = kallsyms
        .lines()
        .find(|line| line.ends_with(" T schedule"))
        .unwrap();
    let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let mut probe = Probe::new();
    let row = probe.row(Pid(1), address + 4);
    if address == 0 {
        println!("SKIP kernel addresses are hidden");
        return;
    }
    assert_eq!(row.name.as_deref(), Some("schedule"));
    assert_eq!(row.module.as_deref(), Some("[kernel]"));
    assert_eq!(row.offset, Some(address));
    assert!(row.kernel);
    assert_eq!(probe.symbolizer.kernel_symbols_missing(), None);
    assert_eq!(probe.row(Pid(2), address).function_id, row.function_id);
}

/// A compiled page is named by the process's perf map.
#[test]
fn jit() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("jit.c");
    let text = r#"
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    char *code = mmap(0, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char path[64]; sprintf(path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(path, "w"); fprintf(map, "junk\n%lx 40 js:f(a, b)\n", (long)code); fclose(map);
    for (int i = 0; i < 6; i++) printf("code %p\n", code);
    fflush(stdout); getchar(); unlink(path); return 0;
}"#;
    std::fs::write(&source, text).unwrap();
    let program = dir.path().join("jit");
    run(Command::new("gcc").arg("-o").args([&program, &source]));
    let mut running = Running::start(&program);
    let (pid, code) = (running.pid(), running.address("code"));
    let mut probe = Probe::new();
    probe.symbolizer.announce(pid);
    let row = probe.row(pid, code + 0x3f);
    assert_eq!(row.name.as_deref(), Some("js:f(a, b)"));
    assert_eq!(row.module, Some(format!("/tmp/perf-{}.map", pid.0)));
    let row = probe.row(pid, code + 0x40);
    assert_eq!((row.name, row.module.as_deref()), (None, Some("[anon]")));
    running.stop();
    probe.symbolizer.on_exit(pid);
    let name = probe.name(pid, code);
    assert_eq!(name.as_deref(), Some("js:f(a, b)"), "after its end");
}

/// C++ and Rust names are demangled; a C++ function split by the compiler has its name in both parts.
#[test]
fn demangled() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("program.cc");
    let text = r#"
#include <cstdio>
#include <string>
namespace space { __attribute__((noinline)) int work(int a) {
    std::string s(a, 'x'); if (a == 77) throw s; std::puts(s.c_str()); return a * 3; } }
int main(int argc, char **) {
    for (int i = 0; i < 6; i++) std::printf("work %p\n", (void *)space::work);
    std::fflush(stdout); std::getchar(); return space::work(argc);
}"#;
    std::fs::write(&source, text).unwrap();
    for flags in [&["-O2"][..], &["-O2", "-g"]] {
        let program = dir.path().join("program");
        run(Command::new("g++")
            .args(flags)
            .arg("-o")
            .args([&program, &source]));
        let running = Running::start(&program);
        let mut probe = Probe::new();
        let name = probe.name(running.pid(), running.address("work")).unwrap();
        assert_eq!(name, "space::work(int)");
        let nm = run(Command::new("nm").arg("-C").arg(&program));
        let of = |end: &str| {
            let line = nm.lines().find(|line| line.ends_with(end))?;
            u64::from_str_radix(line.split(' ').next()?, 16).ok()
        };
        let (hot, cold) = (of("::work(int)").unwrap(), of("[clone .cold]").unwrap());
        let cold = running.address("work").wrapping_sub(hot).wrapping_add(cold);
        let name = probe.name(running.pid(), cold).unwrap();
        assert_eq!(name, "space::work(int) [clone .cold]");
    }
}

/// A stock server without debug information: every function of its symbol table has its name from `nm`, and no
/// address between functions has the name of the one before.
#[test]
fn stock_binary() {
    let program = Path::new("/usr/bin/redis-check-rdb");
    if !program.exists() {
        println!("SKIP {} is not installed", program.display());
        return;
    }
    let nm = run(Command::new("nm")
        .args(["-D", "-S", "--defined-only"])
        .arg(program));
    let mut probe = Probe::new();
    let file = std::fs::File::open(program).unwrap();
    let head = elf_image::read_head(&file).unwrap();
    let pid = Pid(u32::MAX - 9);
    probe.symbolizer.on_mapping(pid, whole_file(program));
    let mut checked = 0;
    let mut by_address = std::collections::BTreeMap::<u64, Vec<&str>>::new();
    let lines: Vec<Vec<&str>> = nm.lines().map(|line| line.split(' ').collect()).collect();
    for line in lines
        .iter()
        .filter(|line| line.len() == 4 && line[2] == "T")
    {
        let address = u64::from_str_radix(line[0], 16).unwrap();
        by_address.entry(address).or_default().push(line[3]);
    }
    for (address, names) in by_address.iter().step_by(7) {
        let Some(offset) = head.offset(*address) else {
            continue;
        };
        let row = probe.row(pid, 0x10_0000 + offset);
        let name = row.name.unwrap();
        assert!(names.contains(&name.as_str()), "{name} not in {names:?}");
        assert_eq!(row.offset, Some(offset));
        checked += 1;
    }
    assert!(checked > 100, "{checked}");
    let segment = head.segments[0];
    let wrong: Vec<_> = (0..segment.len)
        .step_by(997)
        .filter_map(|at| {
            let offset = segment.offset + at;
            let row = probe.row(pid, 0x10_0000 + offset);
            let start = row.offset?;
            (offset < start || start + row.size.unwrap() <= offset).then_some(row)
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Prints the cost of look-ups; asserts nothing, as test machines are noisy and tests not optimized.
#[test]
fn cost() {
    let me = Pid(std::process::id());
    let mut probe = Probe::new();
    let here = cost as *const () as usize as u64;
    let ips: Vec<Ip> = (0..1000).map(|i| Ip(here + i * 64)).collect();
    let begin = Instant::now();
    ips.iter().for_each(|ip| {
        probe.symbolizer.function(me, *ip);
    });
    println!("first: {:?} an address", begin.elapsed() / 1000);
    let begin = Instant::now();
    for _ in 0..1000 {
        for ip in &ips {
            std::hint::black_box(probe.symbolizer.function(me, *ip));
        }
    }
    println!("again: {:?} an address", begin.elapsed() / 1_000_000);
    let far: Vec<Ip> = (0..100_000u64)
        .map(|i| Ip(here + (i * 7) % 64_000))
        .collect();
    let begin = Instant::now();
    for ip in &far {
        std::hint::black_box(probe.symbolizer.function(me, *ip));
    }
    println!("scattered: {:?} an address", begin.elapsed() / 100_000);
}

/// A mapping of a whole file at 1 MiB.
fn whole_file(path: &Path) -> Mapping {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(path).unwrap();
    Mapping {
        start: 0x10_0000,
        end: 0x1000_0000,
        offset: 0,
        backing: Backing::File(MappedFile {
            path: std::sync::Arc::from(path),
            identity: Some(FileIdentity {
                major: rustix::fs::major(metadata.dev()),
                minor: rustix::fs::minor(metadata.dev()),
                inode: metadata.ino(),
            }),
            build_id: None,
            deleted: false,
        }),
    }
}
