//! Paths against programs that compilers made.

use std::process::Command;

use super::super::resolve::{ResolveOptions, resolve};
use super::super::set::ProbeSet;
use super::added;
use crate::binary::testing::{Program, compile};
use crate::failure::Hint as _;
use crate::store::schema::ArgType;
use pebs_common::config::{ArgKind, ArgProgram};

const C: &str = r#"
enum color { RED = 1, GREEN, BLUE = 7 };
struct header { unsigned short kind; int id; char tag[8]; };
typedef struct packet {
  unsigned long sum;
  struct header hdr;
  const char *uri;
  struct packet *next;
  enum color color;
  union { long a; short b; };
  unsigned flag : 3;
  double weight;
} packet_t;
volatile long sink;
__attribute__((noinline)) int handle(packet_t *pkt, unsigned char n, const struct header *h, double x) {
  sink += pkt->sum + n + h->id + (long)x; return n; }
int main(int argc, char **argv) {
  packet_t p = { argc }; return handle(&p, 2, &p.hdr, 1.5); }
"#;

const CPP: &str = r#"
#include <string>
struct base { int kind; };
struct request : base { std::string uri; long size; };
volatile long sink;
struct server {
  long count;
  __attribute__((noipa)) void serve(const request &req) { sink += req.size + count; }
};
int main(int argc, char **argv) {
  request r; r.size = argc; r.uri = argv[0]; server s{3}; s.serve(r); return 0; }
"#;

fn c() -> Program {
    compile("gcc", C, &["-O2", "-g", "-fno-inline"])
}

fn set(program: &Program, arguments: &str) -> ProbeSet {
    let spec = program.spec(&format!("handle({arguments})"));
    let options = ResolveOptions::default();
    resolve(&[spec], &options).unwrap_or_else(|error| panic!("{arguments}: {error}"))
}

/// The compiled argument `x`, with its offset in the record cleared.
fn program(program: &Program, expression: &str) -> ArgProgram {
    let set = set(program, &format!("x={expression}"));
    let sites = &set.probes[0].sites;
    sites[sites.len() - 1].config.named[0]
}

fn refused(program: &Program, expression: &str) -> (String, String) {
    let spec = program.spec(&format!("handle(x={expression})"));
    let error = resolve(&[spec], &ResolveOptions::default()).expect_err(expression);
    (error.to_string(), error.hint().unwrap_or_default())
}

/// A path compiles to the same as its register and offset.
#[test]
fn paths_are_offsets() {
    let c = c();
    let same = [
        ("pkt->sum", "*(arg1+0):u64"),
        ("pkt->hdr.id", "*(arg1+12):i32"),
        ("pkt->hdr.kind", "*(arg1+8):u16"),
        ("pkt->uri", "str(*(arg1+24))"),
        ("str(pkt->uri, 128)", "str(*(arg1+24), 128)"),
        ("pkt->next->next->hdr.id", "*(*(*(arg1+32)+32)+12):i32"),
        ("pkt->next", "*(arg1+32)"),
        ("pkt->b", "*(arg1+48):i16"),
        ("pkt->sum:u16", "*(arg1+0):u16"),
        ("n", "arg2:u8"),
        ("h->id", "*(arg3+4):i32"),
        ("pkt", "arg1"),
    ];
    // DWARF 2 writes the place of a member as an expression.
    let old = compile(
        "gcc",
        C,
        &["-O2", "-gdwarf-2", "-gstrict-dwarf", "-fno-inline"],
    );
    for (path, offsets) in same {
        assert_eq!(program(&c, path), program(&c, offsets), "{path}");
        if path.starts_with("pkt") {
            assert_eq!(program(&old, path), program(&c, offsets), "DWARF 2: {path}");
        }
    }
    let (error, _) = refused(&old, "pkt->flag");
    assert!(error.contains("bit field"), "{error}");
}

/// Only expressions that add a constant are places of members.
#[test]
fn places_of_members() {
    assert_eq!(added(&[0x23, 0x22]), Some(34));
    assert_eq!(added(&[0x23, 0x80, 0x01]), Some(128));
    assert_eq!(added(&[0x10, 0x08, 0x22]), Some(8));
    assert_eq!(added(&[0x12, 0x06, 0x10, 0x18, 0x1c, 0x06, 0x22]), None);
    assert_eq!(added(&[0x23, 0x08, 0x06]), None);
    assert_eq!(added(&[]), None);
}

const TEXTS: &str = r#"
#include <array>
#include <cstdint>
#include <string>
struct top { long t; };
struct part { char tag[4]; char more[12]; };
struct row : virtual top {
  long id; char name[8]; char next[100]; unsigned char bytes[4]; part in; std::array<char, 6> six;
  wchar_t *wide; const char16_t *w16; std::wstring ws; std::u16string u16; char32_t w32[4]; std::string s; char open[]; };
volatile long sink;
__attribute__((noipa)) void handle(row *r, const char (&eight)[8]) { sink += r->id + eight[0]; }
int main(int argc, char **) { static row r; static char e[8]; handle(&r, e); return argc - 1; }
"#;

/// The text in an array ends with the array, whatever is behind it; texts of wide characters and fields of virtual
/// bases are refused.
#[test]
fn texts_of_set_size() {
    let cpp = compile("g++", TEXTS, &["-O1", "-g", "-fno-inline"]);
    let size = |expression: &str| {
        let it = program(&cpp, expression);
        assert_eq!(it.kind, ArgKind::Str as u8, "{expression}");
        (it.capacity, it.is_signed)
    };
    let cases = [
        ("r->name", (8, 1)),
        ("str(r->name)", (8, 1)),
        ("str(r->name, 8)", (8, 1)),
        ("str(r->name, 5)", (5, 0)),
        ("str(r->name + 3)", (5, 1)),
        ("*(r->name):str", (8, 1)),
        ("r->next", (56, 0)),
        ("str(r->next, 200)", (100, 1)),
        ("str(r->bytes)", (4, 1)),
        ("r->in.tag", (4, 1)),
        ("r->six", (6, 1)),
        ("eight", (8, 1)),
        ("r->open", (56, 0)),
        ("r->s", (56, 0)),
    ];
    for (expression, expected) in cases {
        assert_eq!(size(expression), expected, "{expression}");
    }
    let name = program(&cpp, "r->name");
    let id = program(&cpp, "r->id");
    assert_eq!(i64::from(name.add), i64::from(id.derefs[0]) + 8);
    for (expression, what) in [
        ("r->wide", "wchar_t"),
        ("str(r->wide)", "wchar_t"),
        ("r->w16", "char16_t"),
        ("str(r->w32)", "char32_t"),
        ("r->ws", "wchar_t"),
        ("r->u16", "char16_t"),
        ("str(r->name + 8)", "no byte 8"),
        ("r->t", "no fixed place"),
    ] {
        let (error, _) = refused(&cpp, expression);
        assert!(error.contains(what), "{expression}: {error}");
    }
    assert_eq!(program(&cpp, "r->wide:u64").steps, 1);
}

const RETURNS: &str = r#"
#include <stdbool.h>
struct pair { int a, b; };
enum way { IN = -1, OUT = 2 };
volatile long sink;
#define F(type, name, value) __attribute__((noipa)) type name(long a) { sink += a; return value; }
F(int, r_int, -a) F(signed char, r_char, a) F(unsigned short, r_ushort, a) F(bool, r_bool, a & 1) F(long, r_long, a)
F(enum way, r_enum, a & 1 ? IN : OUT) F(void *, r_ptr, (void *)a) F(const char *, r_str, "a") F(double, r_dbl, a)
F(struct pair, r_pair, ((struct pair){a, 2})) F(void, r_void, )
int main(int n, char **v) {
  r_void(n); return r_int(n) + r_char(n) + r_ushort(n) + r_bool(n) + r_long(n) + r_enum(n) + (long)r_ptr(n) + *r_str(n)
    + r_dbl(n) + r_pair(n).a; }
"#;

/// The declared type says what `retval` is; without debug information it is the register.
#[test]
fn declared_results() {
    let typed = compile("gcc", RETURNS, &["-O2", "-g", "-fno-inline"]);
    let bare = compile("gcc", RETURNS, &["-O2", "-fno-inline"]);
    let at = |program: &Program, spec: &str| {
        let set = resolve(&[program.spec(spec)], &ResolveOptions::default());
        let set = set.unwrap_or_else(|error| panic!("{spec}: {error}"));
        set.probes[0].sites[0].config.named[0]
    };
    for (name, type_) in [
        ("r_int", "i32"),
        ("r_char", "i8"),
        ("r_ushort", "u16"),
        ("r_bool", "u8"),
        ("r_long", "i64"),
        ("r_enum", "i32"),
        ("r_ptr", "u64"),
        ("r_str", "u64"),
    ] {
        let [plain, cast] =
            [String::new(), format!(":{type_}")].map(|cast| format!("{name}(x=retval{cast})"));
        assert_eq!(at(&typed, &plain), at(&typed, &cast), "{name}");
        assert_eq!(
            at(&bare, &plain),
            at(&bare, &format!("{name}(x=retval:u64)"))
        );
    }
    for (name, what) in [
        ("r_dbl", "floating-point"),
        ("r_pair", "small structure"),
        ("r_void", "returns nothing"),
    ] {
        let spec = typed.spec(&format!("{name}(x=retval)"));
        let error = resolve(&[spec], &ResolveOptions::default()).expect_err(name);
        assert!(error.to_string().contains(what), "{name}: {error}");
        assert_eq!(at(&bare, &format!("{name}(x=retval)")).width, 8);
    }
}

/// The item id, too, and numbers of an enumeration have their names in a column of text.
#[test]
fn ids_and_names() {
    let c = c();
    let set = set(&c, "id=pkt->hdr.id, color=pkt->color");
    assert!(set.probes[0].has_id);
    assert_eq!(set.columns[0].r#type, ArgType::Str);
    let field = &set.probes[0].begin_fields[0];
    let name = |number: i64| field.name_of(number.cast_unsigned()).into_string();
    assert_eq!([name(1), name(2), name(7)], ["RED", "GREEN", "BLUE"]);
    assert_eq!([name(3), name(-1)], ["3", "-1"]);
}

/// Unreadable values are refused with a hint.
#[test]
fn refusals() {
    let c = c();
    let cases = [
        ("packet->sum", "no argument 'packet'", "pkt, n, h, x"),
        ("pkt->sun", "no field 'sun'", "sum, hdr, uri"),
        ("pkt.sum", "not a structure in memory", "pkt->sum"),
        ("pkt->hdr->id", "not a pointer", "pkt->hdr.id"),
        ("n->id", "not a pointer", "n.id"),
        ("pkt->hdr", "not a number", "kind, id, tag"),
        ("pkt->flag", "bit field", "word"),
        ("pkt->weight", "floating-point", "bits"),
        ("x", "in no register", "floating-point arguments"),
    ];
    for (path, what, hint) in cases {
        let (error, help) = refused(&c, path);
        assert!(error.contains(what), "{path}: {error}");
        assert!(help.contains(hint), "{path}: {help}");
    }
    let bare = compile("gcc", C, &["-O2", "-fno-inline"]);
    let (error, _) = refused(&bare, "pkt->sum");
    assert!(error.contains("no debug information"), "{error}");
}

/// Debug information in a separate file (split DWARF) is reported as such, not as missing arguments.
#[test]
fn split_debug_information() {
    let split = compile("gcc", C, &["-O2", "-fno-inline", "-g", "-gsplit-dwarf"]);
    let (error, help) = refused(&split, "pkt->sum");
    assert!(error.contains(".dwo, and not read"), "{error}");
    assert!(help.contains("without -gsplit-dwarf"), "{help}");
    assert_eq!(program(&split, "*(arg1+0):u64"), program(&c(), "pkt->sum"));
}

const RUST: &str = include_str!("../../../../tests/workloads/strings.rs");

/// Hints for what can't be read by name say where it is.
#[test]
fn by_value() {
    let source = "struct two { long a, b; }; struct big { long a[3]; }; volatile long sink;\n\
         __attribute__((noipa)) void handle(struct two s, struct big t, double x, long id)\n\
         { sink += s.a + s.b + t.a[0] + (long)x + id; }\n\
         int main(int n, char **v) { handle((struct two){ n }, (struct big){ { n } }, n, n); return 0; }\n";
    for level in ["-O0", "-O2"] {
        let program = compile("gcc", source, &[level, "-g"]);
        for expression in ["s", "s.a", "s->a", "t.a", "x"] {
            let (error, hint) = refused(&program, expression);
            let expected = match expression {
                "x" => "%xmm registers",
                _ => "a structure passed by value is in registers",
            };
            assert!(
                hint.contains(expected),
                "{level} {expression}: {error}, {hint}"
            );
        }
    }
}

/// Types may be in units of their own, and in a file that several binaries share; without that the reason is given.
#[test]
fn types_elsewhere() {
    let expected = program(&c(), "pkt->hdr.id");
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let flags = ["-O2", version, "-fdebug-types-section", "-fno-inline"];
        let units = compile("gcc", C, &flags);
        assert_eq!(program(&units, "pkt->hdr.id"), expected, "{version}");
    }
    let shared = c();
    let in_folder = |command: &str| {
        let shell = Command::new("sh")
            .args(["-ec", command])
            .current_dir(shared.folder())
            .status();
        shell.is_ok_and(|status| status.success())
    };
    if !in_folder("cp program other; dwz -m shared program other") {
        return println!("SKIP needs dwz");
    }
    assert_eq!(program(&shared, "pkt->hdr.id"), expected);
    assert!(in_folder("rm shared"));
    let (error, hint) = refused(&shared, "pkt->hdr.id");
    assert!(error.contains("in shared, shared with other"), "{error}");
    assert!(hint.contains("debug symbols"), "{hint}");
}

/// Rust strings in structures, behind references and passed by value, optimised and not. A hidden argument for the
/// result shifts the others.
#[test]
fn rust() {
    for flags in [
        &["--edition=2024", "-O", "-g"][..],
        &["--edition=2024", "-g"],
    ] {
        let rust = compile("rustc", RUST, flags);
        let at = |function: &str, expression: &str| {
            let spec = rust.spec(&format!("{function}(x={expression})"));
            let set = resolve(&[spec], &ResolveOptions::default());
            let set = set.unwrap_or_else(|error| panic!("{flags:?} {expression}: {error}"));
            let sites = &set.probes[0].sites;
            let config = &sites[sites.len() - 1].config;
            (config.named[0], config.lengths[0])
        };
        let length = |function: &str, expression: &str| at(function, expression).1;
        let at = |function: &str, expression: &str| at(function, expression).0;
        let shape = |it: ArgProgram| (it.kind, it.reg_offset, it.steps, it.capacity);
        let text = ArgKind::Bytes as u8;
        for field in ["path", "user", "body"] {
            let [arrow, dot] = ["->", "."].map(|by| at("handle", &format!("request{by}{field}")));
            assert_eq!(arrow, dot);
            assert_eq!(shape(arrow), (text, 112, 1, 56), "{field}");
            let length = length("handle", &format!("request.{field}"));
            assert_eq!((length.reg_offset, length.steps, length.width), (112, 1, 8));
            assert_eq!(length.derefs[0], arrow.derefs[0] + 8, "{field}");
        }
        assert_eq!(at("handle", "request.id").kind, ArgKind::Unsigned as u8);
        let kind = at("handle", "kind");
        assert_eq!(shape(kind), (text, 104, 0, 56));
        assert_eq!(length("handle", "kind").reg_offset, 96, "rdx");
        assert_eq!(shape(at("handle", "str(kind, 100)")), (text, 104, 0, 100));
        // By reference, after the address of the result.
        assert_eq!(shape(at("answer", "user")), (text, 96, 1, 56));
        assert_eq!(shape(at("answer", "id")), (1, 104, 0, 0));
        let error = |function: &str, expression: &str| {
            let spec = rust.spec(&format!("{function}(x={expression})"));
            let error = resolve(&[spec], &ResolveOptions::default());
            error.map(|_| ()).expect_err(expression).to_string()
        };
        assert!(error("handle", "request.next.id").contains("no field"));
        assert!(error("find", "requests").contains("not a number"));
    }
    let optimised = compile("rustc", RUST, &["--edition=2024", "-O", "-g"]);
    let spec = optimised.spec("handle(name=name)");
    let set = resolve(&[spec], &ResolveOptions::default()).expect("by value");
    let sites = &set.probes[0].sites;
    assert_eq!(sites[sites.len() - 1].config.named[0].reg_offset, 88, "rcx");
}

/// Return values have fields, too: behind a pointer, or in memory provided by the caller.
#[test]
fn results() {
    let cpp = compile("g++", RESULTS, &["-O2", "-g", "-fno-inline"]);
    let at = |function: &str, expression: &str| {
        let spec = cpp.spec(&format!("{function}(x={expression})"));
        let set = resolve(&[spec], &ResolveOptions::default());
        let set = set.unwrap_or_else(|error| panic!("{expression}: {error}"));
        set.probes[0].sites[0].config.named[0]
    };
    assert_eq!(at("find", "retval->id"), at("find", "*(retval+8):i32"));
    assert_eq!(
        at("find", "retval->in.kind"),
        at("find", "*(retval+12):u16")
    );
    assert_eq!(at("find", "retval->name"), at("find", "str(*(retval))"));
    assert_eq!(at("make", "retval.t.id"), at("make", "*(retval+8):i32"));
    assert_eq!(at("describe", "retval"), at("describe", "retval:u64"));
    let error = |spec: &str| {
        let spec = cpp.spec(spec);
        let error = resolve(&[spec], &ResolveOptions::default()).expect_err("refused");
        (error.to_string(), error.hint().unwrap_or_default())
    };
    let cases = [
        ("find(x=retval->no)", "no field 'no'", "name, id, in"),
        (
            "small(x=retval.a)",
            "returned in registers",
            "first register",
        ),
        ("nothing(x=retval->a)", "no result", "leave the fields out"),
        (
            "number(x=retval->a)",
            "neither a structure",
            "first register",
        ),
        ("find(id=retval->id)", "only at a return", ""),
        (
            "find..find%return(x=key)",
            "gone at a return",
            "where the function starts",
        ),
    ];
    for (spec, what, hint) in cases {
        let (found, help) = error(spec);
        assert!(
            found.contains(what) && help.contains(hint),
            "{spec}: {found} {help}"
        );
    }
    let set = resolve(
        &[cpp.spec("find(key=key)..find%return(x=retval->id)")],
        &ResolveOptions::default(),
    );
    assert!(set.is_ok_and(|set| set.columns.len() == 2));
}

const RESULTS: &str = r#"
struct inner { unsigned short kind; };
struct thing { const char *name; int id; inner in; };
struct pair { int a, b; };
struct large { thing t; long more[2]; };
thing things[4];
volatile long sink;
__attribute__((noipa)) thing *find(long key) { sink += key; return &things[key & 3]; }
__attribute__((noipa)) large make(long key) { sink += key; return {things[key & 3]}; }
__attribute__((noipa)) const char *describe(long key) { sink += key; return "x"; }
__attribute__((noipa)) pair small(int a) { sink += a; return {a, 2}; }
__attribute__((noipa)) int number(int a) { sink += a; return a; }
__attribute__((noipa)) void nothing(int a) { sink += a; }
int main(int argc, char **) {
  nothing(number(small(make(find(argc)->id).t.id).a)); return *describe(1); }
"#;

/// References, base classes, `this` and `std::string`.
#[test]
fn cpp() {
    let cpp = compile("g++", CPP, &["-O2", "-g", "-fno-inline"]);
    let at = |expression: &str| {
        let spec = cpp.spec(&format!("server::serve(x={expression})"));
        let set = resolve(&[spec], &ResolveOptions::default());
        let set = set.unwrap_or_else(|error| panic!("{expression}: {error}"));
        let sites = &set.probes[0].sites;
        sites[sites.len() - 1].config.named[0]
    };
    assert_eq!(at("req.size"), at("*(arg2+40):i64"));
    assert_eq!(at("req.kind"), at("*(arg2):i32"));
    assert_eq!(at("req.uri"), at("str(*(arg2+8))"));
    assert_eq!(at("this->count"), at("*(arg1):i64"));
}
