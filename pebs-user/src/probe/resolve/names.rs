//! Functions are found by the names that other tools print, and by those that we print.
//!
//! `names.gdb` holds, for `names.cpp` built by GCC 12, each symbol and what `info functions` of gdb 13 prints for it.

use std::collections::BTreeMap;
use std::process::Command;

use super::*;
use crate::binary::demangle::symbol_name;
use crate::binary::locate::mapped_files;
use crate::binary::lookup::spelling;
use crate::binary::testing::{Program, compile};
use crate::failure::Hint as _;
use crate::spec::{Shape, written};

const SOURCE: &str = include_str!("names.cpp");

/// Output of gdb for each symbol.
const GDB: &str = include_str!("names.gdb");

/// Our functions: mangled names and addresses.
fn symbols(program: &Program) -> BTreeMap<String, u64> {
    let output = Command::new("nm").arg(program.path()).output();
    let text = String::from_utf8(output.expect("nm").stdout).expect("text");
    let words = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let functions = words.filter_map(|words| match words.as_slice() {
        [address, "T" | "t" | "W", name] => {
            let address = u64::from_str_radix(address, 16).ok()?;
            Some(((*name).to_owned(), address))
        }
        _ => None,
    });
    let is_ours = |name: &str| {
        ["4shop", "_GLOBAL__N_1", "plain_c", "_ZL5local"]
            .iter()
            .any(|part| name.contains(part))
            && !["_Function_handler", "_GLOBAL__sub", "_M_"]
                .iter()
                .any(|part| name.contains(part))
    };
    functions.filter(|(name, _)| is_ours(name)).collect()
}

fn filtered(names: &[&String], options: &[&str]) -> Vec<String> {
    let output = Command::new("c++filt").args(options).args(names).output();
    let text = String::from_utf8(output.expect("c++filt").stdout).expect("text");
    text.lines().map(str::to_owned).collect()
}

/// The address that a SPEC means; else what is said.
fn address(spec: &str) -> Result<u64, (String, String)> {
    let spec = Spec::parse(spec).map_err(|error| (error.to_string(), String::new()))?;
    let options = ResolveOptions::default();
    let places = Resolver::new(&options).exact(&spec.begin);
    match places {
        Ok(places) => Ok(places[0].addresses()[0]),
        Err(error) => Err((error.to_string(), error.hint().unwrap_or_default())),
    }
}

/// Checks that a name means one function, bare and in double quotes, with and without arguments.
fn check(program: &Program, name: &str, expected: u64) -> Result<(), String> {
    let quoted = format!("\"{name}\"");
    for place in [name, &quoted] {
        for end in ["", "(id=arg1)", "(id=arg1, n=arg2)..main"] {
            let spec = program.spec(&format!("{place}{end}"));
            match address(&spec) {
                Ok(found) if found == expected => {}
                other => return Err(format!("{place}{end} at {expected:#x}: {other:x?}")),
            }
        }
    }
    Ok(())
}

/// Names of nm, c++filt, gdb and our own mean their function; a name of several is refused in one line, with a name for
/// each that means it alone.
#[test]
fn of_cpp() {
    let program = compile("g++", SOURCE, &["-O1", "-g"]);
    let binary = program.open();
    let symbols = symbols(&program);
    assert!(symbols.len() > 55, "{}", symbols.len());
    let names: Vec<&String> = symbols.keys().collect();
    let (whole, bare) = (filtered(&names, &[]), filtered(&names, &["-p"]));
    let mut wrong = Vec::new();
    let forms = names.iter().zip(&whole).zip(&bare);
    for ((mangled, whole), bare) in forms {
        let expected = symbols[*mangled];
        let spelled = spelling(&binary, expected);
        wrong.extend(check(&program, &spelled, expected).err());
        let own = symbol_name(mangled);
        for name in [*mangled, whole, bare, &own] {
            let single = check(&program, name, expected);
            let Err(told) = single else { continue };
            // Overloads, and the destructors that do and do not free the object.
            match address(&program.spec(name)) {
                Err((message, _)) if message.contains(" means ") && name != *mangled => {
                    let listed = message.contains(&written(&spelled)) && !message.contains('\n');
                    wrong.extend((!listed).then_some(message));
                    if name != bare
                        && !mangled.contains("D0Ev")
                        && !mangled.contains("D1Ev")
                        && !mangled.contains("D2Ev")
                    {
                        wrong.push(told);
                    }
                }
                _ => wrong.push(told),
            }
        }
    }
    for line in GDB.lines() {
        let (mangled, name) = line.split_once('\t').expect("two columns");
        let expected = match symbols.get(mangled) {
            Some(address) => *address,
            None if mangled == "main" => continue,
            None => panic!("{mangled} is gone"),
        };
        let whole = name.trim_end_matches(';');
        wrong.extend(check(&program, whole, expected).err());
        let named = whole.trim_start_matches("static ");
        wrong.extend(check(&program, named, expected).err());
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Other spellings that people and tools use.
#[test]
fn by_hand() {
    let program = compile("g++", SOURCE, &["-O1", "-g"]);
    let symbols = symbols(&program);
    let mut wrong = Vec::new();
    for (mangled, names) in [
        (
            "_ZN12_GLOBAL__N_16handleEl",
            &[
                "{anonymous}::handle",
                "<unnamed>::handle(long int)",
                "(anonymous namespace)::handle",
            ][..],
        ),
        (
            "_ZN4shop5StoreINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEiE3putERKS6_i",
            &[
                "shop::Store<std::string, int>::put",
                "shop::Store<std::string,int>::put(std::string const&, int)",
                "void shop::Store<std::basic_string<char>, int>::put(const std::string&, int)",
            ],
        ),
        (
            "_ZN4shop5OrderC1ERKSt3mapINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEiSt4lessIS7_ESaISt4pairIKS7_iEEE",
            &[
                "shop::Order::Order(std::map<std::string, int> const&)",
                "shop::Order::Order(const std::map<std::string,int> &)",
            ],
        ),
        (
            "_ZN4shop7largestINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEEET_RKSt6vectorIS7_SaIS7_EE",
            &[
                "shop::largest<std::string>",
                "std::string shop::largest<std::string>(std::vector<std::string> const&)",
            ],
        ),
        (
            "_ZN4shop7countedIsLm5ELb1ELc97EEElT_",
            &[
                "shop::counted<short, 5, true, 'a'>",
                "shop::counted<short int,5ul,true,97>(short)",
            ],
        ),
        (
            "_ZNKR4shop5Money5valueEv",
            &[
                "shop::Money::value() const&",
                "shop::Money::value() const &",
            ],
        ),
        (
            "_ZNK4shop5MoneycvmEv",
            &[
                "shop::Money::operator unsigned long",
                "shop::Money::operator unsigned long int() const",
                "shop::Money::operator unsigned long()",
            ],
        ),
        (
            "_ZNK4shop5MoneycvNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEEv",
            &[
                "shop::Money::operator std::string",
                "shop::Money::operator std::string() const",
            ],
        ),
        (
            "_ZN4shopli4_eurEy",
            &[
                "shop::operator\"\"_eur",
                "shop::operator \"\" _eur(unsigned long long)",
            ],
        ),
        (
            "_ZN4shoplsERSoRKNS_5MoneyE",
            &[
                "shop::operator<<",
                "shop::operator<<(std::ostream&, const shop::Money&)",
            ],
        ),
        (
            "_ZN4shop6taggedB5cxx11Ei",
            &["shop::tagged", "shop::tagged(int)"],
        ),
        (
            "_ZZN4shop11with_lambdaElENKUliE_clEi",
            &[
                "shop::with_lambda(long)::<lambda(int)>::operator()",
                "shop::with_lambda::{lambda(int)#1}::operator()(int) const",
                "shop::with_lambda(long)::'lambda'(int)::operator()(int) const",
            ],
        ),
        (
            "_ZNK12_GLOBAL__N_16HiddenclEiRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
            &[
                "(anonymous namespace)::Hidden::operator()",
                "{anonymous}::Hidden::operator()(int, std::string const&)",
            ],
        ),
        ("plain_c", &["plain_c", "plain_c(int, const char*)"]),
    ] {
        for name in names {
            wrong.extend(check(&program, name, symbols[mangled]).err());
        }
    }
    // Parameters that it does not have are no mistake to be overlooked.
    for name in [
        "plain_c(int)",
        "plain_c(n)",
        "shop::tagged(long)",
        "shop::Money::value() volatile",
        "shop::Store::put",
    ] {
        if let Ok(found) = address(&program.spec(name)) {
            wrong.push(format!("{name} is {found:#x}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The names in a hint, as they are printed.
fn offered(hint: &str) -> Vec<String> {
    let Some((_, rest)) = hint.split_once("did you mean ") else {
        return Vec::new();
    };
    let list = rest.split_once("? '").map_or(rest, |(list, _)| list);
    let mut names = Vec::new();
    let mut rest = list;
    while !rest.is_empty() {
        let end = match rest.strip_prefix('"') {
            // A name with `operator""` is the only one that has quotes in it.
            Some(inner) => inner.find("\", ").map_or(rest.len(), |at| at + 2),
            None => rest.find(", ").unwrap_or(rest.len()),
        };
        names.push(rest[..end].to_owned());
        rest = rest[end..].trim_start_matches(", ");
    }
    names
}

/// Checks that the right name is offered for a wrong one, and that all that are offered are accepted as printed.
fn near(bin: &str, typed: &str, expected: &str) {
    let spec = format!("{bin}:{typed}");
    let (message, hint) = address(&spec).expect_err(typed);
    let names = offered(&hint);
    assert!(
        names.iter().any(|name| name == expected),
        "{typed}: {message}\n{hint}"
    );
    for name in names {
        for end in ["", "(id=arg1)", "..", "%return.."] {
            let spec = format!("{bin}:{name}{end}");
            assert!(
                address(&spec).is_ok(),
                "{typed}: {spec}: {:?}",
                address(&spec)
            );
        }
    }
}

/// A slip of the pen, another case, and a name without its first components.
#[test]
fn near_misses_in_cpp() {
    let program = compile("g++", SOURCE, &["-O1"]);
    let bin = program.path().display().to_string();
    for (typed, expected) in [
        ("Order::send", "shop::Order::send"),
        ("shop::order::Send", "shop::Order::send"),
        ("shop::Order::sned", "shop::Order::send"),
        ("Order::sned", "shop::Order::send"),
        ("Store::put", "\"shop::Store<std::string, int>::put\""),
        ("shop::Store::put", "\"shop::Store<std::string, int>::put\""),
        ("put", "\"shop::Store<std::string, int>::put\""),
        ("Hidden::serve", "\"(anonymous namespace)::Hidden::serve\""),
        (
            "Hidden::serv(unsigned long)",
            "\"(anonymous namespace)::Hidden::serve\"",
        ),
        ("process", "\"shop::process(char const*)\""),
        ("Money::value", "\"shop::Money::value() const &\""),
        ("shop::process(int)", "\"shop::process(char const*)\""),
        ("Money::operator==", "shop::Money::operator=="),
        ("with_lamda", "shop::with_lambda"),
        ("operator<<", "shop::operator<<"),
        ("plain_d", "plain_c"),
        ("Order::~Order", "_ZN4shop5OrderD0Ev"),
    ] {
        near(&bin, typed, expected);
    }
}

/// Names of Rust: methods of traits, closures, and instances of generic functions.
#[test]
fn near_misses_in_rust() {
    let source = r#"
        use std::hint::black_box;
        mod shop {
            pub trait Item { fn handle(&self, n: u64) -> u64; }
            pub struct Cart(pub u64);
            impl Item for Cart { #[inline(never)] fn handle(&self, n: u64) -> u64 { std::hint::black_box(self.0 + n) } }
            impl Cart { #[inline(never)] pub fn total(&self) -> u64 { std::hint::black_box(self.0) } }
            #[inline(never)] pub fn largest<T: Copy + Into<u64>>(of: &[T]) -> u64 { of.iter().map(|it| (*it).into()).sum() }
            #[inline(never)] pub fn twice<F: Fn(u64) -> u64>(f: F) -> u64 { f(std::hint::black_box(1)) + f(2) }
        }
        use shop::Item as _;
        fn main() {
            let cart = shop::Cart(black_box(7));
            let extra = black_box(3);
            let closure = |n: u64| black_box(n + extra);
            println!("{}", cart.handle(1) + cart.total() + shop::largest(&[1_u32]) + shop::largest(&[1_u8]) + shop::twice(closure));
        }"#;
    for flags in [&["-O"][..], &["-O", "-Csymbol-mangling-version=v0"]] {
        let program = compile("rustc", source, flags);
        let bin = program.path().display().to_string();
        let binary = program.open();
        for function in binary
            .functions
            .iter()
            .filter(|it| it.name.contains("shop") && it.size > 0)
        {
            let spelled = written(&spelling(&binary, function.address));
            let found = address(&program.spec(&format!("{spelled}(id=arg1)")));
            assert_eq!(found, Ok(function.address), "{spelled}");
        }
        let method = "\"<main::shop::Cart as main::shop::Item>::handle\"";
        near(&bin, "Item::handle", method);
        near(
            &bin,
            "<main::shop::Cart as main::shop::Item>::handel",
            method,
        );
        near(&bin, "Cart::total", "main::shop::Cart::total");
        near(&bin, "shop::cart::Total", "main::shop::Cart::total");
        near(&bin, "Cart::totla", "main::shop::Cart::total");
    }
}

/// Names of Go: methods, and instances of generic functions, also as its own traces print them.
#[test]
fn of_go() {
    let folder = tempfile::tempdir().expect("folder");
    let source = "package main\n\
        import \"fmt\"\n\
        type Conn struct{ n int }\n\
        //go:noinline\n\
        func (c *Conn) serve(n int) int { c.n += n; return c.n }\n\
        type List[T any] struct{ all []T }\n\
        //go:noinline\n\
        func (l *List[T]) Add(t T) int { l.all = append(l.all, t); return len(l.all) }\n\
        //go:noinline\n\
        func Map[T any](of []T, f func(T) T) []T { for i := range of { of[i] = f(of[i]) }; return of }\n\
        func main() { c := Conn{}; l := List[int]{}; s := List[string]{}\n\
          fmt.Println(c.serve(1), l.Add(2), s.Add(\"a\"), Map([]int{1}, func(n int) int { return n + 1 })) }\n";
    std::fs::write(folder.path().join("main.go"), source).expect("written");
    let mut go = Command::new("go");
    go.args(["build", "-o", "program", "main.go"])
        .current_dir(folder.path());
    go.env("GOCACHE", folder.path().join("cache"))
        .env("GO111MODULE", "off");
    match go.output() {
        Ok(done) if done.status.success() => {}
        other => return println!("SKIP no go: {other:?}"),
    }
    let path = folder.path().join("program");
    let bin = path.display().to_string();
    let at = |name: &str| address(&format!("{bin}:{name}(id=arg1)"));
    // `go.shape.int` or `go.shape.int_0`, by the version of Go.
    let binary = Binary::open(&path).expect("read");
    let shaped = binary
        .functions
        .iter()
        .find(|it| it.name.starts_with("main.Map[go.shape"));
    let map = at(&shaped.expect("an instance").name).expect("as nm prints it");
    assert_eq!(at("main.Map[int]"), Ok(map));
    assert_eq!(at("main.Map[...]"), Ok(map));
    assert_eq!(at("\"main.Map[...]\""), Ok(map));
    let (message, _) = at("main.(*List[...]).Add").expect_err("two instances");
    assert!(
        message.contains("main.(*List[int]).Add, main.(*List[string]).Add"),
        "{message}"
    );
    near(&bin, "Conn.serve", "main.(*Conn).serve");
    near(&bin, "main.(*conn).Serve", "main.(*Conn).serve");
    near(&bin, "main.Conn.serv", "main.(*Conn).serve");
    near(&bin, "Map", "main.Map[int]");
    near(&bin, "main.List.Add", "main.(*List[int]).Add");
}

/// A place is named by the build id and the offset in the file, and nothing else is taken for it.
#[test]
fn by_build() {
    let program = compile(
        "gcc",
        "int work(int n) { return n + 1; } int main(int n, char **v) { return work(n) + getchar(); }",
        &["-O1", "-w", "-include", "stdio.h"],
    );
    let binary = program.open();
    let id = binary.build_id().expect("a build id");
    let start = binary
        .functions
        .iter()
        .find(|it| it.name == "work")
        .expect("defined")
        .address;
    let offset = binary.file_offset(start).expect("mapped");
    let mut child = Command::new(program.path())
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("started");
    let pid = Pid(child.id());
    // Its own code, the C library's and the loader's.
    while mapped_files(pid).len() < 3 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let found = |spec: &str, pid| {
        let options = ResolveOptions {
            pid,
            program: None,
            ..ResolveOptions::default()
        };
        resolve(&[spec.to_owned()], &options)
            .map(|set| set.probes[0].sites.last().map(|site| site.file_offset))
    };
    let mut results = Vec::new();
    for digits in [8, 16, id.len()] {
        for pid in [Some(pid), None] {
            results.push(found(
                &format!("{}+{offset:#x}(id=arg1)", &id[..digits]),
                pid,
            ));
        }
    }
    let place = format!("{id}+{offset:#x}");
    results.push(found(&format!("{place}..{place}%return"), Some(pid)));
    let before = found(&format!("{id}+0x0"), Some(pid));
    let other = found(&format!("0123456789abcdef+{offset:#x}"), Some(pid));
    child.kill().expect("own child");
    child.wait().expect("own child");
    let named = found(&program.spec("work(id=arg1)"), None).expect("by name");
    for result in results {
        assert_eq!(result.unwrap_or_else(|error| panic!("{error}")), named);
    }
    let before = before.expect_err("no code").to_string();
    assert!(before.contains("no code at that offset"), "{before}");
    let other = other.expect_err("another build");
    assert!(
        other
            .to_string()
            .starts_with("cannot find build 0123456789abcdef: none of the "),
        "{other}"
    );
    assert!(other.hint().is_some());
}

/// A function of an older build is found in the one that runs, which is said; without a shape it is refused.
#[test]
fn of_an_older_build() {
    let source = "#include <stdio.h>\n volatile long sink;\n\
        #define MIX(n) sink += n; sink ^= n; sink *= n; sink -= n; sink |= n; sink = ~sink; sink &= n; sink <<= 3; sink += n; \
          sink ^= n; sink -= n; sink *= n; sink >>= 5;\n\
        __attribute__((noipa)) void first(long n) { sink += n * LIMIT; puts(TEXT); }\n\
        __attribute__((noipa)) long work(long *list, long n) { long sum = LIMIT; for (long i = 0; i < n; i++) {\n\
          MIX(i) MIX(n) MIX(sum) sum += list[i]; if (list[i] > LIMIT) sum ^= sink; else puts(TEXT); } return sum; }\n\
        int main(int argc, char **argv) { long list[] = {argc, 2}; first(1); getchar(); return work(list, 2); }";
    let built = |flags: &[&str]| compile("gcc", source, &[&["-O2", "-w"], flags].concat());
    let old = built(&["-DLIMIT=9", "-DTEXT=\"old\""]);
    let new = built(&[
        "-DLIMIT=1000",
        "-DTEXT=\"a longer text\"",
        "-falign-functions=64",
    ]);
    let start = |program: &Program| {
        let binary = program.open();
        let work = binary
            .functions
            .iter()
            .find(|it| it.name == "work")
            .expect("defined");
        (work.address, binary)
    };
    let (address, binary) = start(&old);
    let shape = Shapes::of(&binary).at(address).expect("a function");
    let place = format!(
        "{}+{:#x}",
        binary.build_id().expect("an id"),
        binary.file_offset(address).expect("mapped")
    );
    let options = ResolveOptions {
        program: Some(new.path()),
        ..ResolveOptions::default()
    };
    let found = |spec: String| resolve(&[spec], &options);
    let refused = found(place.clone()).expect_err("another build").to_string();
    assert!(refused.starts_with("cannot find build "), "{refused}");
    let (moved, _) = start(&new);
    assert_ne!(moved, address);
    for end in ["(id=arg2)", ".."] {
        let set = found(format!("{place}~{shape}{end}")).unwrap_or_else(|error| panic!("{error}"));
        let by_name =
            found(new.spec(&format!("work{end}"))).unwrap_or_else(|error| panic!("{error}"));
        let offsets = |set: &ProbeSet| {
            set.probes[0]
                .sites
                .iter()
                .map(|it| it.file_offset)
                .collect::<Vec<_>>()
        };
        assert_eq!(offsets(&set), offsets(&by_name));
        let said = format!(
            " is of another build: in {} it is work at {moved:#x}, as it ",
            new.path().display()
        );
        assert!(
            set.notes.iter().any(|note| note.contains(&said)),
            "{:?}",
            set.notes
        );
    }
    let other = Shape {
        own: 1,
        before: 2,
        behind: 3,
    };
    let refused = found(format!("{place}~{other}"))
        .expect_err("no such function")
        .to_string();
    assert!(
        refused.ends_with("no function has its shape, or its neighbours"),
        "{refused}"
    );
}
