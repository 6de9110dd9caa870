//! The forms of a SPEC, and their errors.

use proptest::prelude::*;

use super::*;

fn spec(text: &str) -> Spec {
    Spec::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn begin(text: &str) -> (String, Location) {
    let spec = spec(text);
    (spec.begin.binary, spec.begin.location)
}

fn func(name: &str) -> Location {
    Location::Function(name.to_owned())
}

/// Binary and place of each form of the grammar.
#[test]
fn forms() {
    assert_eq!(begin("./app:work"), ("./app".into(), func("work")));
    assert_eq!(spec("./app:work").end, End::Return);
    assert_eq!(
        begin("app:0x1f40"),
        ("app".into(), Location::Address(0x1f40))
    );
    assert_eq!(
        begin("app:app+fn@0x1f40"),
        ("app".into(), Location::Address(0x1f40))
    );
    assert_eq!(
        begin("app:work+0x10.."),
        ("app".into(), Location::Offset("work".into(), 16))
    );
    assert_eq!(spec("app:work..").end, End::Next);
    assert_eq!(
        begin("app:src/main.c:42.."),
        ("app".into(), Location::Line("src/main.c".into(), 42))
    );
    assert_eq!(
        begin("postgres:usdt:postgresql:query__start"),
        (
            "postgres".into(),
            Location::Usdt("postgresql".into(), "query__start".into())
        )
    );
}

/// The return of a function by its address, and a line alone.
#[test]
fn addresses_and_lines() {
    assert_eq!(
        begin("app:0x1f40%return.."),
        ("app".into(), Location::ReturnAt(0x1f40))
    );
    let End::At(end) = spec("app:work..0x1f40%return").end else {
        panic!("no end")
    };
    assert_eq!(end.location, Location::ReturnAt(0x1f40));
    let line = spec("./app:file.c:25");
    assert_eq!(line.begin.location, Location::Line("file.c".into(), 25));
    assert_eq!(line.end, End::Return);
    let line = spec("./app:src/file.c:25(id=%rdi)");
    assert_eq!(line.begin.args.len(), 1);
}

/// A build id and an offset, alone, at both ends, and with what finds them in another build.
#[test]
fn builds() {
    let place = |text: &str| {
        let begin = spec(text).begin;
        (begin.binary, begin.is_build, begin.location)
    };
    let at = |id: &str, offset| (id.to_owned(), true, Location::FileOffset(offset, None));
    assert_eq!(place("a50d6825+0x1f40"), at("a50d6825", 0x1f40));
    assert_eq!(
        place("A50D6825e71f+0x1f40(id=arg1)"),
        at("a50d6825e71f", 0x1f40)
    );
    let ends = spec("a50d6825+0x10..a50d6825+0x10%return(id=retval)");
    assert_eq!(ends.begin.location, Location::FileOffset(0x10, None));
    let End::At(end) = ends.end else {
        panic!("no end")
    };
    assert!(end.is_build && end.args.len() == 1);
    assert_eq!(end.location, Location::ReturnAtOffset(0x10, None));
    let shape = Shape {
        own: 0x0102_0304,
        before: 0,
        behind: 0xa0b0_c0d0,
    };
    let text = format!("a50d6825+0x10~{shape}%return..");
    assert!(text.contains("~01020304-00000000-a0b0c0d0"));
    assert_eq!(place(&text).2, Location::ReturnAtOffset(0x10, Some(shape)));
    // Too few digits, and a function of that name.
    assert_eq!(
        place("app:deadbeef+0x10..").2,
        Location::Offset("deadbeef".into(), 16)
    );
    assert_eq!(place("deadbeef:work").0, "deadbeef");
    let fault = |text: &str| Spec::parse(text).expect_err(text).what;
    assert!(fault("a50d682+0x10").contains("no ':'"));
    assert!(fault("a50d6825+0x10~12").contains("no such shape"));
    assert!(fault("a50d6825+0x10%retrun..").contains("%return only"));
    assert!(fault("a50d6825+0xyz").contains("no such offset"));
}

/// Names that would be read as something else are written in quotes.
#[test]
fn names_as_written() {
    for (name, expected) in [
        ("work", "work"),
        ("0x1f40", "0x1f40"),
        ("ns::Class::method", "ns::Class::method"),
        ("ns::f(int)", "ns::f(int)"),
        ("ns::f(int, char)", "\"ns::f(int, char)\""),
        ("(anonymous namespace)::f", "\"(anonymous namespace)::f\""),
        ("A::operator()", "A::operator()"),
        ("A::operator%", "A::operator%"),
        ("A::operator+", "A::operator+"),
        ("net/http.(*conn).serve", "net/http.(*conn).serve"),
        ("main.Map[...]", "main.Map[...]"),
        ("type:.eq.main.T", "\"type:.eq.main.T\""),
        ("f+0x10", "\"f+0x10\""),
        ("a..b", "\"a..b\""),
    ] {
        assert_eq!(written(name), expected);
        let text = format!("x:{expected}(id=arg1)");
        let location = spec(&text).begin.location;
        let address = matches!(location, Location::Address(0x1f40));
        assert!(address || location == func(name), "{text}: {location:?}");
    }
}

/// Quoted text is taken literally.
#[test]
fn quotes() {
    assert_eq!(
        begin(r#""/opt/a:b(c)":work"#),
        ("/opt/a:b(c)".into(), func("work"))
    );
    assert_eq!(
        begin(r#""/opt/a:b..c (x=1)/app":"ns::f(int)""#),
        ("/opt/a:b..c (x=1)/app".into(), func("ns::f(int)"))
    );
    let s = spec(r#"app:"f(a=b, c)"(id=arg1, n=arg2).."g:h"%return(id=retval)"#);
    assert_eq!(s.begin.location, func("f(a=b, c)"));
    assert_eq!(s.begin.args.len(), 2);
    let End::At(end) = s.end else {
        panic!("no end")
    };
    assert_eq!(
        (end.binary.as_str(), end.location),
        ("app", Location::Return("g:h".into()))
    );
    assert_eq!(
        begin(r#"app:"f:g"+0x10.."#),
        ("app".into(), Location::Offset("f:g".into(), 16))
    );
    assert_eq!(
        begin(r#"app:"dir:x/file.c":25"#),
        ("app".into(), Location::Line("dir:x/file.c".into(), 25))
    );
    let fault = |text: &str| Spec::parse(text).expect_err(text);
    assert_eq!(fault(r#"app:"work"#).what, "this quote is not closed");
    assert_eq!(fault(r#"app:"work"x"#).column, 10);
}

/// START..END, with and without the second binary, with paths that hold dots.
#[test]
fn ranges() {
    let s = spec("/usr/sbin/nginx:a_b(id=arg1)..c_d(id=arg1)");
    assert_eq!(s.begin.location, func("a_b"));
    let End::At(end) = s.end else {
        panic!("no end")
    };
    assert_eq!(
        (end.binary.as_str(), end.location),
        ("/usr/sbin/nginx", func("c_d"))
    );
    assert_eq!(end.args[0].name, "id");

    let s = spec("../x/../app:start..../lib/libz.so.1:end%return");
    assert_eq!(s.begin.binary, "../x/../app");
    let End::At(end) = s.end else {
        panic!("no end")
    };
    assert_eq!(end.binary, "../lib/libz.so.1");
    assert_eq!(end.location, Location::Return("end".into()));

    let s = spec("app:usdt:p:begin..usdt:p:end");
    let End::At(end) = s.end else {
        panic!("no end")
    };
    assert_eq!(end.location, Location::Usdt("p".into(), "end".into()));

    let s = spec("app:main.c:10..main.c:20");
    let End::At(end) = s.end else {
        panic!("no end")
    };
    assert_eq!(end.location, Location::Line("main.c".into(), 20));
}

/// Colons of C++ names and of paths do not confuse the split.
#[test]
fn colons() {
    assert_eq!(
        begin("./app:ns::Class::method"),
        ("./app".into(), func("ns::Class::method"))
    );
    assert_eq!(
        begin("./app:ns::f<int>(std::vector<int, a> const&)(id=arg1)"),
        (
            "./app".into(),
            func("ns::f<int>(std::vector<int, a> const&)")
        )
    );
    assert_eq!(begin("/opt/a:b/app:f"), ("/opt/a:b/app".into(), func("f")));
    assert_eq!(begin("app:f(int)"), ("app".into(), func("f(int)")));
    assert_eq!(begin("app:operator+"), ("app".into(), func("operator+")));
    assert_eq!(
        begin("app:<a::B as c::D>::e"),
        ("app".into(), func("<a::B as c::D>::e"))
    );
}

/// The error shows the SPEC with a caret under the fault.
#[test]
fn carets() {
    let shown = Spec::parse("app:work(id=%rzx)").expect_err("bad register");
    assert_eq!(
        shown.to_string(),
        "cannot read probe 'app:work(id=%rzx)': no register '%rzx'\n  \
         app:work(id=%rzx)\n  \
         \u{20}           ^"
    );
    let at = |text: &str| {
        let error = Spec::parse(text).expect_err(text);
        (error.column, error.what)
    };
    assert_eq!(
        at("app"),
        (3, "no ':' between the binary and the function".into())
    );
    assert_eq!(at("app:"), (4, "the function is missing".into()));
    assert_eq!(at(":work"), (0, "the binary is missing".into()));
    assert_eq!(at("app:work(id=)"), (12, "a value is missing".into()));
    assert_eq!(at("app:work(arg1)"), (9, "an argument needs a name".into()));
    assert_eq!(at("app:work(req->hdr.id)").0, 9);
    assert_eq!(at("app:work(id=arg1").0, 16);
    assert_eq!(at("app:work(id=arg1, id=arg2)").0, 18);
    assert_eq!(at("app:work(id=arg1,)").0, 17);
    assert_eq!(at("app:work+8").1, "visits that start here have no end");
    assert_eq!(at("app:work%retrun..x").0, 8);
    assert_eq!(at("app:0xzz").0, 4);
    assert_eq!(at("app:usdt:x").0, 4);
    assert_eq!(at("").1, "it is empty");
    assert_eq!(at("äpp:work(id=*arg1:u23)").0, 18);
}

/// The ids of a batch, and their errors.
#[test]
fn batches() {
    let ids = |text: &str| spec(text).begin.ids.expect(text);
    let found = ids("app:f(ids=arg2[arg3]:u32, n=arg3)");
    assert_eq!((found.array, found.count), (Expr::Arg(2), Expr::Arg(3)));
    assert_eq!(found.r#type, Some(expr::Type::Unsigned(4)));
    assert_eq!(
        spec("app:f(ids=arg2[arg3]:u32, n=arg3)").begin.args.len(),
        1
    );
    assert!(ids("app:f(ids=b->pkts[b->n])").count.has_path());
    assert!(
        ids("app:f(ids = *(arg1+8) [ *(arg1+16):u16 ] : ptr )")
            .r#type
            .is_some()
    );
    let fault = |text: &str| {
        let error = Spec::parse(text).expect_err(text);
        (error.column, error.what, error.hint.unwrap_or_default())
    };
    let (column, what, hint) = fault("app:f(ids=arg2)");
    assert_eq!((column, what.as_str()), (14, "expected '[', found the end"));
    assert!(hint.contains("ids=arg2[arg3]:u64"), "{hint}");
    assert_eq!(fault("app:f(ids=arg2[arg3)").0, 19);
    assert!(fault("app:f(ids=arg2[]:u64)").1.contains("found ']'"));
    assert!(fault("app:f(ids=arg2[arg3]:str)").1.contains("numbers"));
    assert!(fault("app:f(ids=arg2[arg3]:u65)").1.contains("no type"));
    assert!(fault("app:f(ids=arg2[arg3]+1)").1.contains("can't follow"));
    assert!(fault("app:f(id=arg1, ids=arg2[arg3])").1.contains("both"));
    assert!(
        fault("app:f(ids=arg1[arg2], ids=arg2[arg3])")
            .1
            .contains("twice")
    );
}

proptest! {
    /// No text makes the parser panic, and a caret is never beyond the end.
    #[test]
    fn never_panics(text in "\\PC*") {
        if let Err(error) = Spec::parse(&text) {
            prop_assert!(error.column <= text.chars().count());
        }
    }

    /// The same for text composed of the grammar's tokens.
    #[test]
    fn never_panics_on_pieces(pieces in proptest::collection::vec(
        prop::sample::select(vec![
            "app", ":", "..", "(", ")", "id=", "arg1", "+", "8", "*", "%rdi", "%return", ",",
            "u32", "\"", "str(", "0x", "::", "ids=", "[", "]", "usdt:", " ", "/", "<", ">", "é", "->", "fn@0x", "=",
        ]), 0..14)) {
        let text = pieces.concat();
        if let Err(error) = Spec::parse(&text) {
            prop_assert!(error.column <= text.chars().count());
        }
    }
}
