//! Resolves SPECs in compiled and stock programs.

use crate::failure::Hint as _;
use std::path::Path;
use std::process::Command;

use super::*;
use crate::binary::parameters::parameters;
use crate::binary::testing::{Program, compile};
use crate::store::run::EntryClass;
use crate::store::schema::ArgType;

const SOURCE: &str = r#"
struct item { unsigned long id; unsigned kind; const char *name; };
volatile long sink;
__attribute__((noipa)) static int hidden(struct item *i) { sink += i->kind; return sink; }
__attribute__((noinline)) int process(struct item *i, int n) { sink += n; return hidden(i) + n; }
__attribute__((noinline)) void finish(struct item *i) {
  sink -= i->id; }
int main(int argc, char **argv) {
  struct item i = { argc, 2, "x" }; process(&i, 1); finish(&i); return 0; }
"#;

fn program(flags: &[&str]) -> Program {
    compile(
        "gcc",
        SOURCE,
        &[&["-O2", "-g", "-fno-inline"], flags].concat(),
    )
}

fn set(specs: &[String], mode: ReturnMode) -> Result<ProbeSet, ResolveError> {
    let options = ResolveOptions {
        return_mode: mode,
        pid: None,
        program: None,
        steps: false,
    };
    resolve(specs, &options)
}

fn one(spec: &str) -> Probe {
    let mut set = set(&[spec.to_owned()], ReturnMode::Auto).unwrap_or_else(|e| panic!("{e}"));
    set.probes.remove(0)
}

fn error(spec: &str) -> (String, String) {
    let error = set(&[spec.to_owned()], ReturnMode::Auto).expect_err(spec);
    (error.to_string(), error.hint().unwrap_or_default())
}

/// A pattern is one probe of all matching functions, ends first; a pattern without matches is reported like a name.
#[test]
fn patterns() {
    let source = "volatile long sink;\n\
         __attribute__((noinline)) void poll_a(long *i) { sink += *i; }\n\
         __attribute__((noinline)) void poll_b(long *i) { sink -= *i; }\n\
         int main(void) { long i = 1; poll_a(&i); poll_b(&i); return 0; }\n";
    let program = compile("gcc", source, &["-O2", "-g"]);
    let probe = one(&program.spec("poll_*(id=*(arg1):u64)"));
    let roles: Vec<Role> = probe.sites.iter().map(|site| site.role).collect();
    assert_eq!(
        roles,
        [Role::Return, Role::Return, Role::Begin, Role::Begin]
    );
    // Every program has a `frame_dummy` without a size; functions with the same finding share a remark.
    let all = set(&[program.spec("*")], ReturnMode::Auto).unwrap();
    let is_shared =
        |note: &&String| note.starts_with("returns of ") && note.contains("poll_a, poll_b");
    let shared = all.notes.iter().filter(is_shared).count();
    assert_eq!(shared, 1, "{:?}", all.notes);
    let named = set(&[program.spec("poll_*(i->x)")], ReturnMode::Auto);
    assert!(named.is_err());
    let (message, _) = error(&program.spec("pool_*"));
    assert!(message.contains("function 'pool_*' not found"), "{message}");
    let (message, _) = error(&program.spec("poll_*..main"));
    assert!(message.contains("not found"), "{message}");
}

/// Several names are one probe, at either end; each of them has to be there.
#[test]
fn several_names() {
    let source = "volatile long sink;\n\
         __attribute__((noinline)) void take_a(long i) { sink += i; }\n\
         __attribute__((noinline)) void take_b(long i) { sink -= i; }\n\
         __attribute__((noinline)) void give_a(long i) { sink ^= i; }\n\
         __attribute__((noinline)) void give_b(long i) { sink |= i; }\n\
         __attribute__((noinline)) void give_c(long i) { sink &= i; }\n\
         int main(void) { take_a(1); take_b(2); give_a(3); give_b(4); give_c(5); return 0; }\n";
    let program = compile("gcc", source, &["-O2"]);
    let roles = |spec: &str| -> Vec<Role> {
        let probe = one(&program.spec(spec));
        probe.sites.iter().map(|site| site.role).collect()
    };
    assert_eq!(
        roles("take_a|take_b%return..give_a | give_b|give_c"),
        [Role::End, Role::End, Role::End, Role::Begin, Role::Begin]
    );
    assert_eq!(
        roles("take_a|take_b(n=arg1)"),
        [Role::Return, Role::Return, Role::Begin, Role::Begin]
    );
    for spec in ["take_a|absent", "take_a..give_a|absent%return"] {
        let (message, _) = error(&program.spec(spec));
        assert!(message.contains("function 'absent' not found"), "{message}");
    }
    let (message, _) = error(&program.spec("operator||"));
    assert!(message.contains("'operator||' not found"), "{message}");
}

/// A call in a plain program: on request by uretprobe, at the entry's first instruction; else on its exits; ends
/// first.
#[test]
fn calls() {
    for flags in [&[][..], &["-no-pie"], &["-static-pie"]] {
        let program = program(flags);
        let spec = program.spec("process(id=*(arg1):u64, kind=*(arg1+8):u32, r=retval:i32)");
        for (mode, by_uretprobe) in [(ReturnMode::Auto, false), (ReturnMode::Uretprobe, true)] {
            let mut set = set(std::slice::from_ref(&spec), mode).unwrap_or_else(|e| panic!("{e}"));
            a_call(&set.probes.remove(0), by_uretprobe);
        }
    }
}

fn a_call(probe: &Probe, by_uretprobe: bool) {
    assert_eq!(probe.rule, VisitRule::Call);
    assert!(probe.has_id);
    let begin = probe.sites.last().expect("entry");
    assert_eq!(begin.role, Role::Begin);
    assert!(
        probe.sites[..probe.sites.len() - 1]
            .iter()
            .all(|s| s.role == Role::Return)
    );
    assert_eq!(probe.sites[0].uretprobe, by_uretprobe);
    if by_uretprobe {
        assert_eq!(probe.sites[0].file_offset, begin.file_offset);
        assert_eq!(probe.sites[0].config.sp_adjust, -8);
    }
    assert_eq!(begin.config.has_id, 1);
    assert_eq!((begin.config.args, begin.config.payload), (1, 8));
    assert_eq!((probe.begin_fields.len(), probe.end_fields.len()), (1, 1));
    assert_eq!(probe.end_fields[0].r#type, ArgType::I64);
}

/// The ids of a batch by register and by name; unreadable or unmatchable ones are refused.
#[test]
fn batches() {
    use crate::spec::expr::Type;
    let source = "struct pkt { long id; }; volatile long sink;\n\
         struct burst { short n; int ids[8]; struct pkt *pkts[4]; struct pkt flat[2]; };\n\
         __attribute__((noinline)) void serve(struct burst *b, unsigned *ids, int n)\n\
         { sink += b->n + n + ids[0]; }\n\
         __attribute__((noinline)) void done(long id) { sink -= id; }\n\
         int main(void) { struct burst b = {0}; unsigned u = 0; serve(&b, &u, 1); done(2); return 0; }";
    let program = compile("gcc", source, &["-O2", "-g"]);
    let found = |args: &str| {
        let probe = one(&program.spec(&format!("serve({args})")));
        assert!(!probe.has_id);
        let site = probe.sites.last().expect("entry").config;
        assert_eq!(site.has_id, 2);
        (probe.batch, site.id, site.count)
    };
    let (each, array, count) = found("ids=arg2[arg3]:u64, n=arg3");
    assert_eq!(
        (each, array.steps, array.add),
        (Some(Type::Unsigned(8)), 0, 0)
    );
    assert_eq!((count.steps, count.width), (0, 4));
    let (each, array, count) = found("ids=ids[n]");
    assert_eq!(
        (each, array.width, count.kind),
        (Some(Type::Unsigned(4)), 4, 2)
    );
    let (each, array, count) = found("ids=b->ids[b->n]");
    assert_eq!(
        (each, array.steps, array.add),
        (Some(Type::Signed(4)), 0, 4)
    );
    assert_eq!((count.steps, count.width, count.kind), (1, 2, 2));
    assert_eq!(found("ids=b->pkts[b->n]").0, Some(Type::Unsigned(8)));
    assert!(
        error(&program.spec("serve(ids=b->flat[b->n])"))
            .0
            .contains("structures")
    );
    assert!(
        error(&program.spec("serve(ids=b->n[b->n])"))
            .0
            .contains("neither an array")
    );
    assert!(
        error(&program.spec("serve(ids=b->no[b->n])"))
            .0
            .contains("no field")
    );
    assert!(
        error(&program.spec("serve(ids=arg1[retval])"))
            .0
            .contains("only at a return")
    );
    let spec = "serve(ids=arg2[arg3], a=str(arg1), b=str(arg1))";
    assert!(error(&program.spec(spec)).0.contains("88 at most"));
    let spec = "serve(ids=arg2[arg3])..done(id=arg1)";
    assert!(error(&program.spec(spec)).1.contains("as a whole"));
    let spec = "done..serve(ids=arg2[arg3])";
    assert!(error(&program.spec(spec)).0.contains("where visits start"));
    assert_eq!(
        one(&program.spec("serve(ids=arg2[arg3])..done")).rule,
        VisitRule::ByThread
    );
}

/// The rules follow from the shape of the SPEC and the ids.
#[test]
fn rules() {
    let program = program(&[]);
    let rule = |place: &str| one(&program.spec(place)).rule;
    assert_eq!(rule("process..finish"), VisitRule::ByThread);
    assert_eq!(rule("process(id=arg1)..finish(id=arg1)"), VisitRule::ById);
    assert_eq!(rule("process.."), VisitRule::UntilNext);
    assert_eq!(
        rule("process(id=arg1)..process%return"),
        VisitRule::ByThread
    );
    let probe = one(&program.spec("process..finish"));
    let roles: Vec<Role> = probe.sites.iter().map(|s| s.role).collect();
    assert_eq!(roles, [Role::End, Role::Begin]);
}

/// Forced onto `ret`, the tail jump's result is not read.
#[test]
fn call_by_ret() {
    let source = "volatile long s; __attribute__((noinline)) int g(int n) { s += n; return s; }\n\
         __attribute__((noinline)) int f(int n) { if (n > 3) return 7; s++; return g(n + 1); }\n\
         int main(int c, char **v) { return f(c); }";
    let program = compile("gcc", source, &["-O2"]);
    let spec = program.spec("f(r=retval)");
    let set = set(&[spec], ReturnMode::Ret).unwrap_or_else(|e| panic!("{e}"));
    let sites = &set.probes[0].sites;
    let by = |start: &'static str| {
        sites
            .iter()
            .filter(move |s| s.instruction.starts_with(start))
    };
    let read = |site: &Site| site.config.named[0].kind;
    assert_eq!(by("ret").map(read).collect::<Vec<_>>(), [1]);
    assert_eq!(by("jmp").map(read).collect::<Vec<_>>(), [0]);
    assert!(
        sites
            .iter()
            .all(|s| !s.uretprobe && s.config.sp_adjust == 0)
    );
    assert!(
        set.notes[0].contains("1 ret and 1 tail jump"),
        "{:?}",
        set.notes
    );
}

/// Lines and static functions are found by DWARF and .symtab, offsets are checked.
#[test]
fn places() {
    let program = program(&[]);
    let line = one(&program.spec("main.c:7..process%return"));
    assert!(
        line.sites
            .iter()
            .any(|s| s.role == Role::Begin && s.place.starts_with("finish"))
    );
    assert_eq!(one(&program.spec("hidden")).rule, VisitRule::Call);
    let (text, hint) = error(&program.spec("main.c:1.."));
    assert!(
        text.contains("the nearest is") && hint.contains("-g"),
        "{text}"
    );
    let (text, _) = error(&program.spec("process+0x7000.."));
    assert!(text.contains("past the end of the function"), "{text}");
    let (text, _) = error(&program.spec("0x10.."));
    assert!(text.contains("no code"), "{text}");
}

/// An address in the middle of an instruction is refused with its neighbours.
#[test]
fn middle_of_an_instruction() {
    let (text, hint) = error("redis-server:main+1..");
    assert!(text.contains("middle of an instruction"), "{text}");
    assert!(hint.contains("the next instruction at 0x"), "{hint}");
}

/// Sites of a USDT probe that declare an argument with and without a sign are one probe once it has one type.
#[test]
fn usdt_signs() {
    let site = |argument: &str| {
        format!(
            "__asm__ volatile(\"990: nop\\n.pushsection .note.stapsdt,\\\"\\\",\\\"note\\\"\\n.balign 4\\n\"\n\
             \".4byte 992f-991f,994f-993f,3\\n991: .asciz \\\"stapsdt\\\"\\n992: .balign 4\\n993: .8byte 990b,0,0\\n\"\n\
             \".asciz \\\"app\\\"\\n.asciz \\\"begin\\\"\\n.asciz \\\"{argument}\\\"\\n994: .balign 4\\n.popsection\");\n"
        )
    };
    let (signed, unsigned) = (site("-4@%edi"), site("4@%edi"));
    let source = format!("int main(void) {{\n{signed}{unsigned}return 0; }}\n");
    let program = compile("gcc", &source, &["-O2", "-no-pie"]);
    let (message, hint) = error(&program.spec("usdt:app:begin(x=arg1).."));
    assert!(
        message.contains("is a signed number at one place"),
        "{message}"
    );
    assert!(hint.contains("x=arg1:i32"), "{hint}");
    let typed = one(&program.spec("usdt:app:begin(x=arg1:i32).."));
    assert_eq!(typed.sites.len(), 2);
}

/// `argN` of a compiler's copy of a function is what that gets; it is said, and `probes` does not number what it lacks.
#[test]
fn clones() {
    let source = "volatile long sink;\n\
         __attribute__((noinline)) static void mixed(int unused, long id, long *never, long b) { sink += id * b; }\n\
         int main(int argc, char **argv) { mixed(argc, argc, &(long){ 1 }, argc * 2L); return 0; }\n";
    let program = compile("gcc", source, &["-O2", "-g"]);
    let binary = program.open();
    let names = binary.functions.iter().map(|it| it.name.as_str());
    let name = names
        .into_iter()
        .find(|it| it.starts_with("mixed."))
        .expect("a copy");
    let said = |place: &str| {
        let set = set(&[program.spec(place)], ReturnMode::Auto).unwrap_or_else(|e| panic!("{e}"));
        set.notes
            .iter()
            .any(|it| it.starts_with("argN is what mixed."))
    };
    assert!(said(&format!("{name}(id=arg1)")));
    assert!(said("mixed*(id=arg1)"));
    assert!(!said(&format!("{name}(id=id)")));
    assert!(!said("main(id=arg1)"));
    let address = lookup::function(&binary, name).expect("found").address;
    let listed = parameters(&binary, &[address].into());
    let read = listed[&address]
        .iter()
        .map(|it| (it.name.as_str(), it.read.as_deref()));
    let read: Vec<_> = read.filter(|(_, read)| read.is_some()).collect();
    assert_eq!(read, [("id", Some("arg1")), ("b", Some("arg2"))]);
}

/// A stripped program is probed by address; a name is refused with that hint.
#[test]
fn stripped() {
    let program = program(&[]);
    let address = one(&program.spec("process")).sites[0].address;
    program.strip();
    let (text, hint) = error(&program.spec("process"));
    assert!(text.contains("stripped: no .symtab"), "{text}");
    assert!(hint.contains("debug symbols"), "{hint}");
    assert!(hint.ends_with("lists where functions begin"), "{hint}");
    let start = program.open().start_of(address).expect("in .eh_frame");
    let probe = one(&program.spec(&format!("{start:#x}")));
    assert_eq!(probe.rule, VisitRule::Call);
    assert!(
        probe.sites[0].place.contains("+fn@0x"),
        "{}",
        probe.sites[0].place
    );
}

/// A debug file beside the binary provides the names.
#[test]
fn debug_link() {
    let program = program(&[]);
    let run = |arguments: &[&str]| {
        let status = Command::new("objcopy")
            .args(arguments)
            .current_dir(program.folder())
            .status();
        assert!(status.expect("objcopy").success());
    };
    run(&["--only-keep-debug", "program", "program.debug"]);
    program.strip();
    run(&["--add-gnu-debuglink=program.debug", "program"]);
    assert_eq!(one(&program.spec("hidden")).rule, VisitRule::Call);
    assert!(!one(&program.spec("main.c:7..")).sites.is_empty());
}

/// C++ functions by readable name; overloads are listed.
#[test]
fn cpp_names() {
    let source = "volatile long s; namespace ns { struct C { __attribute__((noinline)) int m(int n) { s += \
         n; return s; } }; __attribute__((noinline)) void f(int) { s++; } __attribute__((noinline)) void \
         f(long) { s--; } }\nint main(int c, char **) { ns::C x; ns::f(1); ns::f(1L); return x.m(c); }";
    let program = compile("g++", source, &["-O1"]);
    let probe = one(&program.spec("ns::C::m(id=arg2:u32)"));
    assert!(
        probe.sites[0].place.starts_with("ns::C::m(int)"),
        "{}",
        probe.sites[0].place
    );
    assert_eq!(one(&program.spec("ns::f(long)")).rule, VisitRule::Call);
    let (text, hint) = error(&program.spec("ns::f"));
    assert!(
        text.contains("ns::f(int)") && text.contains("ns::f(long)"),
        "{text}"
    );
    assert!(
        !text.contains('\n') && hint.contains("ns::f(int)"),
        "{hint}"
    );
}

/// Stock programs: the documented examples work.
#[test]
fn stock_programs() {
    let redis = one("redis-server:processCommand(id=*(arg1):u64, key=str(*(*(*(arg1+80)+8)+8)))");
    let begin = redis.sites.last().expect("entry");
    assert!(!redis.sites[0].uretprobe && begin.class == EntryClass::Emulated);
    assert!(redis.sites[0].path.ends_with("redis-check-rdb"));
    let sqlite = one("libsqlite3.so.0:sqlite3_step(id=arg1)");
    assert!(sqlite.sites.len() > 1 && !sqlite.sites[0].uretprobe);
    let nginx = "/usr/sbin/nginx";
    if Path::new(nginx).exists() {
        let spec =
            format!("{nginx}:ngx_http_process_request(id=arg1)..ngx_http_free_request(id=arg1)");
        assert_eq!(one(&spec).rule, VisitRule::ById);
    }
}

/// Every wrong input has a message, and a hint where one is possible.
#[test]
fn bad_input() {
    assert!(
        error("/nonexistent/app:f")
            .0
            .contains("cannot find binary /nonexistent/app")
    );
    assert!(
        error("/etc/passwd:f")
            .0
            .contains("not an ELF binary but text")
    );
    assert!(error("/usr/bin/ldd:f").1.contains("interpreter"));
    assert!(
        error("redis-server:procesCommand")
            .1
            .contains("did you mean processCommand")
    );
    assert!(error("redis-server:write").1.contains("libc.so.6:write"));
    assert!(error("libc:memcpy").0.contains("indirect function"));
    assert!(
        error("redis-server:processCommand(id=%rzx)")
            .0
            .contains('^')
    );
    assert!(
        error("redis-server:processCommand(id=retval)")
            .0
            .contains("only at a return")
    );
    assert!(
        error("redis-server:processCommand(id=str(arg1))")
            .0
            .contains("must be a number")
    );
    assert!(
        error("redis-server:processCommand(pid=arg1)")
            .0
            .contains("every trace")
    );
    assert!(
        error("redis-server:main..processCommand(id=arg1)")
            .0
            .contains("START has none")
    );
    let long = "redis-server:processCommand(a=str(arg1,400), b=str(arg2,400))";
    assert!(error(long).0.contains("472 at most"));
    let spec = "redis-server:usdt:a:b";
    assert!(error(spec).0.contains("it has none"));
}

/// Probes share a column of the same name if the types agree.
#[test]
fn shared_columns() {
    let spec = |args: &str| format!("redis-server:processCommand({args})");
    let good = set(&[spec("k=arg1, n=arg2"), spec("n=arg1")], ReturnMode::Auto).expect("agree");
    assert_eq!(good.columns.len(), 2);
    assert_eq!(good.probes[1].begin_fields[0].column, 1);
    let bad = set(&[spec("k=arg1"), spec("k=arg1:i32")], ReturnMode::Auto);
    assert!(matches!(bad, Err(ResolveError::ColumnType { .. })));
    let many = vec![spec("k=arg1"); 257];
    assert!(matches!(
        set(&many, ReturnMode::Auto),
        Err(ResolveError::TooMany { .. })
    ));
}

/// USDT probes are found with their arguments.
#[test]
fn usdt() {
    let probe = one("libstdc++.so.6:usdt:libstdcxx:throw(id=arg1)..usdt:libstdcxx:catch(id=arg1)");
    assert_eq!(probe.rule, VisitRule::ById);
    assert!(probe.sites.iter().all(|s| s.instruction.starts_with("nop")));
    let alone = one("libstdc++.so.6:usdt:libstdcxx:throw");
    assert_eq!(alone.rule, VisitRule::UntilNext);
}

/// A function inlined everywhere is distinguished from a missing one; the message names the functions that contain
/// it.
#[test]
fn inlined_everywhere() {
    let source = "volatile long sink;\n\
         static inline __attribute__((always_inline)) void step(long n) { sink += n; }\n\
         __attribute__((noipa)) void serve(long n) { step(n); sink -= n; }\n\
         int main(int argc, char **argv) { serve(argc); return 0; }\n";
    let program = compile("gcc", source, &["-O2", "-g"]);
    for place in ["step", "serve..step", "serve..step%return"] {
        let (text, hint) = error(&program.spec(place));
        assert!(text.contains("function 'step' of "), "{place}: {text}");
        assert!(text.contains("was inlined wherever"), "{place}: {text}");
        let caller = format!("probe who calls it: {};", program.spec("serve"));
        assert!(hint.starts_with(&caller), "{place}: {hint}");
        assert!(hint.contains("--inlined"), "{place}: {hint}");
    }
    let (text, _) = error(&program.spec("stop"));
    assert!(text.contains("'stop' not found"), "{text}");
}

/// Arguments that a function does not have are refused if that is known, wherever they are read.
#[test]
fn arguments_that_are_not() {
    let known = program(&[]);
    for (place, last) in [
        ("finish(id=arg9)", "its last is arg1"),
        ("finish(id=arg1, n=*(arg2+8):u32)", "its last is arg1"),
        ("process(ids=arg1[arg3])", "its last is arg2"),
    ] {
        let (text, hint) = error(&known.spec(place));
        assert!(text.contains("by its debug information"), "{place}: {text}");
        assert!(text.contains(last), "{place}: {text}");
        assert!(hint.contains("i (arg1)"), "{place}: {hint}");
    }
    let (_, hint) = error(&known.spec("finish(id=arg2)"));
    assert!(hint.contains("%rsi reads the register"), "{hint}");
    one(&known.spec("process(id=arg2)"));
    one(&known.spec("finish(id=%rsi)"));
    one(&known.spec("*inish(id=arg2)"));
    let unknown = compile("gcc", SOURCE, &["-O2", "-fno-inline"]);
    one(&unknown.spec("finish(id=arg9)"));
}

/// A line alone: at a function's start it is the function, else it is up to the function's return.
#[test]
fn lines_alone() {
    let source = "volatile long sink;\n\
         __attribute__((noinline)) long handle(long n) {\n\
         sink += n;\n\
         for (long i = 0; i < n; i++) sink += i;\n\
         return sink; }\n\
         int main(int argc, char **argv) { return handle(argc); }\n";
    let program = compile("gcc", source, &["-O0", "-g"]);
    let call = one(&program.spec("main.c:2(n=arg1)"));
    let function = one(&program.spec("handle(n=arg1)"));
    assert_eq!(call.rule, VisitRule::Call);
    assert_eq!(call.sites, function.sites);
    let within = one(&program.spec("main.c:4(r=retval)"));
    assert_eq!(within.rule, VisitRule::ByThread);
    let roles: Vec<Role> = within.sites.iter().map(|site| site.role).collect();
    assert_eq!(roles, [Role::End, Role::Begin]);
    assert!(
        within.sites[1].place.starts_with("handle+0x"),
        "{}",
        within.sites[1].place
    );
    let (message, _) = error(&program.spec("main.c:1"));
    assert!(message.contains("the nearest is 2"), "{message}");
}

/// Without symbols and unwind tables a function is found by the calls to it, also as `0xADDR%return`.
#[test]
fn called_addresses() {
    let flags = [
        "-Os",
        "-fno-inline",
        "-fno-asynchronous-unwind-tables",
        "-fcf-protection=none",
    ];
    let program = compile("gcc", SOURCE, &flags);
    let address = |name: &str| {
        let binary = program.open();
        let found = binary.functions.iter().find(|f| f.name == name);
        (found.expect(name).address, found.expect(name).size)
    };
    let (process, size) = address("process");
    program.strip();
    let binary = program.open();
    assert_eq!(binary.frames.range_of(process), None, "no unwind table");
    assert_eq!(binary.start_of(process + 3), Some(process));
    let extent = binary.extent(process).expect("known");
    assert_eq!(extent, process..process + size);
    let probe = one(&program.spec(&format!("{process:#x}(id=arg1)")));
    assert_eq!(probe.rule, VisitRule::Call);
    let range = one(&program.spec(&format!("{process:#x}..{process:#x}%return(r=retval)")));
    assert_eq!(range.sites[0].role, Role::End);
    let (message, hint) = error(&program.spec(&format!("{:#x}", process + 4)));
    assert!(message.contains("no function starts there"), "{message}");
    assert!(hint.contains(&format!("{process:#x}")), "{hint}");
    let (message, hint) = error(&program.spec("0x7f0012345678"));
    assert!(message.contains("no code"), "{message}");
    assert!(hint.contains("not that of a process"), "{hint}");
}

/// A function that only jumps to another is probed at its target.
#[test]
fn bare_jumps() {
    let source = "volatile long sink;\n\
         __attribute__((noipa)) long harness(long n) { sink += n; return sink; }\n\
         __attribute__((noipa)) long poll(long n) { return harness(n); }\n\
         int main(int argc, char **argv) { return poll(argc); }\n";
    let program = compile("gcc", source, &["-O2", "-g"]);
    let spec = program.spec("poll(n=n)");
    let set = set(&[spec], ReturnMode::Ret).unwrap_or_else(|e| panic!("{e}"));
    let note = "poll only jumps to harness: that is probed, whoever calls it";
    assert!(set.notes.iter().any(|it| it == note), "{:?}", set.notes);
    let places: Vec<&str> = set.probes[0]
        .sites
        .iter()
        .map(|it| it.place.as_str())
        .collect();
    assert!(
        places.iter().all(|it| it.starts_with("harness")),
        "{places:?}"
    );
}

/// A library is found where the loader of the command that is started will: by RUNPATH, by the older RPATH, and by a bare
/// name.
#[test]
fn library_of_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("l.c", "int v; void pebs_mine(void) { v++; }");
    write(
        "m.c",
        "void pebs_mine(void); int main(void) { pebs_mine(); }",
    );
    std::fs::create_dir(dir.path().join("lib")).unwrap();
    let cc = |args: &str| {
        let mut command = Command::new("cc");
        let command = command.args(args.split(' ')).current_dir(dir.path());
        assert!(command.status().unwrap().success(), "{args}");
    };
    cc("-shared -fPIC -o lib/libpebsmine.so.1 l.c");
    for (program, tags) in [
        ("run", "--enable-new-dtags"),
        ("old", "--disable-new-dtags"),
    ] {
        cc(&format!(
            "-o {program} m.c lib/libpebsmine.so.1 -Wl,-rpath,$ORIGIN/lib,{tags}"
        ));
        let options = ResolveOptions {
            program: Some(dir.path().join(program)),
            ..ResolveOptions::default()
        };
        for name in ["libpebsmine.so.1", "libpebsmine"] {
            let specs = [format!("{name}:pebs_mine")];
            let set = resolve(&specs, &options).unwrap_or_else(|e| panic!("{program}: {e}"));
            let path = &set.probes[0].sites[0].path;
            let library = dir.path().join("lib/libpebsmine.so.1");
            assert_eq!(*path, std::fs::canonicalize(library).unwrap());
            assert!(resolve(&specs, &ResolveOptions::default()).is_err());
        }
    }
}
