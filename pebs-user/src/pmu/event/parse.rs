//! Parser of EVENT.

use super::names::{CacheEvent, HardwareEvent, SoftwareEvent};
use super::{
    Access, Breakpoint, EventKind, EventSpec, Modifiers, ParseError, Place, Precise, Term,
    TermValue,
};

/// Term that overrides the reset value.
pub(super) const PERIOD: &str = "period";

/// Term that names the event in output.
pub(super) const NAME: &str = "name";

/// A parse error: position, cause, and the correct form.
struct Fault {
    offset: usize,
    what: String,
    advice: Option<String>,
}

type Parsed<T> = Result<T, Fault>;

fn fault<T>(offset: usize, what: impl Into<String>, advice: &str) -> Parsed<T> {
    let advice = (!advice.is_empty()).then(|| advice.to_owned());
    Err(Fault {
        offset,
        what: what.into(),
        advice,
    })
}

/// A part of the text with its position.
#[derive(Clone, Copy)]
struct Piece<'a> {
    text: &'a str,
    offset: usize,
}

impl<'a> Piece<'a> {
    /// Splits at a one-byte separator at `at`.
    fn cut(self, at: usize) -> (Self, Self) {
        let left = Piece {
            text: &self.text[..at],
            offset: self.offset,
        };
        let right = Piece {
            text: &self.text[at + 1..],
            offset: self.offset + at + 1,
        };
        (left, right)
    }

    fn split(self, separator: char) -> Option<(Self, Self)> {
        self.text.find(separator).map(|at| self.cut(at))
    }

    fn rsplit(self, separator: char) -> Option<(Self, Self)> {
        self.text.rfind(separator).map(|at| self.cut(at))
    }

    fn end(self) -> usize {
        self.offset + self.text.len()
    }
}

/// Parses a whole EVENT.
pub(super) fn event(text: &str) -> Result<EventSpec, ParseError> {
    spec(Piece { text, offset: 0 }).map_err(|fault| ParseError {
        text: text.to_owned(),
        offset: fault.offset,
        what: fault.what,
        advice: fault.advice,
    })
}

fn spec(all: Piece<'_>) -> Parsed<EventSpec> {
    if let Some(at) = all.text.find(char::is_whitespace) {
        return fault(at, "unexpected space", "an event has no spaces");
    }
    if let Some(spec) = with_period(all) {
        return spec;
    }
    if let Some(place) = all.text.strip_prefix("mem:") {
        return breakpoint(Piece {
            text: place,
            offset: all.offset + "mem:".len(),
        });
    }
    if all.text.starts_with('{') {
        let advice = "give each event its own --event: all of them are sampled";
        return fault(all.offset, "groups are not supported", advice);
    }
    if all.text.contains('/') {
        return pmu(all);
    }
    let (name, modifiers) = match all.split(':') {
        None => (all, Modifiers::default()),
        Some((_, rest)) if is_tracepoint(rest.text) => {
            let advice =
                "record it with perf, and use 'pebs-trace import'; for functions there is --uprobe";
            return fault(all.offset, "tracepoints are not sampled", advice);
        }
        Some((name, letters)) => (name, modifiers(letters, Required::Yes)?),
    };
    let kind = name_kind(name)?;
    if kind == EventKind::Auto && modifiers.precise != Precise::Level(0) {
        let advice = "leave out the ':p': auto takes the most precise event there is";
        return fault(
            name.end() + 1,
            "auto chooses the precise level itself",
            advice,
        );
    }
    Ok(EventSpec { kind, modifiers })
}

/// Whether the text after a colon is the name of a tracepoint, as in `sched:sched_switch`, not modifiers.
fn is_tracepoint(rest: &str) -> bool {
    const MODIFIERS_MAX: usize = "ukhppp".len();
    rest.contains('_') || rest.len() > MODIFIERS_MAX
}

fn name_kind(name: Piece<'_>) -> Parsed<EventKind> {
    let text = name.text;
    if text.is_empty() {
        return fault(
            name.offset,
            "expected an event",
            "for example cpu-clock, cycles:pp or auto",
        );
    }
    let fixed = (text == "auto").then_some(EventKind::Auto);
    if let Some(kind) = fixed.or_else(|| of_kernel(text)) {
        return Ok(kind);
    }
    if let Some((head, rest)) = name.split(',') {
        return with_terms(head, rest);
    }
    if let Some(code) = raw(text) {
        return Ok(EventKind::Raw(code));
    }
    identifier(name, "an event name")?;
    Ok(EventKind::Alias {
        name: text.to_owned(),
        terms: Vec::new(),
    })
}

/// An event that the kernel has a name for.
fn of_kernel(name: &str) -> Option<EventKind> {
    SoftwareEvent::from_name(name)
        .map(EventKind::Software)
        .or_else(|| HardwareEvent::from_name(name).map(EventKind::Hardware))
        .or_else(|| CacheEvent::from_name(name).map(EventKind::Cache))
}

/// `NAME/period=N/MODS`, of an event that is no PMU's; `None`: it is another form.
fn with_period(all: Piece<'_>) -> Option<Parsed<EventSpec>> {
    let (head, rest) = all.cut(all.text.find("/period=")?);
    let has_no_terms =
        head.text.starts_with("mem:") || of_kernel(head.text).is_some() || raw(head.text).is_some();
    has_no_terms.then(|| {
        let Some((period, letters)) = rest.split('/') else {
            return fault(
                all.end(),
                "expected a closing '/'",
                "for example page-faults/period=1/",
            );
        };
        let TermValue::Number(period) = term(period)?.value else {
            return fault(period.offset, "expected a number", "");
        };
        let mut spec = spec(head)?;
        spec.modifiers = spec.modifiers.with(trailing(letters)?);
        spec.modifiers.period = Some(period);
        Ok(spec)
    })
}

/// Modifiers behind a closing slash, perhaps after a colon.
fn trailing(letters: Piece<'_>) -> Parsed<Modifiers> {
    match letters.text.strip_prefix(':') {
        None => modifiers(letters, Required::No),
        Some(text) => {
            let offset = letters.offset + 1;
            modifiers(Piece { text, offset }, Required::Yes)
        }
    }
}

/// `NAME,TERM=...`; refuses a list of events.
fn with_terms(name: Piece<'_>, rest: Piece<'_>) -> Parsed<EventKind> {
    let alone = matches!(name_kind(name)?, EventKind::Alias { .. });
    if !alone || !rest.text.contains('=') {
        let advice = "give each event its own --event";
        return fault(name.end(), "unexpected ','", advice);
    }
    Ok(EventKind::Alias {
        name: name.text.to_owned(),
        terms: terms(rest)?,
    })
}

/// The code of `rHEX`, with 1 to 16 digits.
#[must_use]
pub fn raw(text: &str) -> Option<u64> {
    let digits = text.strip_prefix('r')?;
    let hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    (hex && (1..=16).contains(&digits.len()))
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
}

/// Checks that a piece is a name as sysfs has them.
fn identifier(piece: Piece<'_>, what: &str) -> Parsed<()> {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if piece.text.is_empty() {
        return fault(piece.offset, format!("expected {what}"), "");
    }
    match piece.text.char_indices().find(|&(_, c)| !valid(c)) {
        None => Ok(()),
        Some((at, c)) => fault(piece.offset + at, format!("unexpected '{c}' in {what}"), ""),
    }
}

/// `PMU/TERMS/MODS` and `PMU/TERMS/:MODS`.
fn pmu(all: Piece<'_>) -> Parsed<EventSpec> {
    let unclosed = "for example cpu/event=0xc2,umask=0x1/pp";
    let Some((pmu, rest)) = all.split('/') else {
        return fault(all.end(), "expected '/'", unclosed);
    };
    identifier(pmu, "a PMU name")?;
    let Some((terms_text, letters)) = rest.rsplit('/') else {
        return fault(all.end(), "expected a closing '/'", unclosed);
    };
    let modifiers = trailing(letters)?;
    let kind = EventKind::Pmu {
        pmu: pmu.text.to_owned(),
        terms: terms(terms_text)?,
    };
    Ok(EventSpec { kind, modifiers })
}

fn terms(list: Piece<'_>) -> Parsed<Vec<Term>> {
    let mut terms: Vec<Term> = Vec::new();
    let mut rest = (!list.text.is_empty()).then_some(list);
    while let Some(piece) = rest {
        let (first, after) = piece
            .split(',')
            .map_or((piece, None), |(a, b)| (a, Some(b)));
        let term = term(first)?;
        if terms.iter().any(|other| other.name == term.name) {
            return fault(first.offset, format!("'{}' is given twice", term.name), "");
        }
        terms.push(term);
        rest = after;
    }
    Ok(terms)
}

fn term(piece: Piece<'_>) -> Parsed<Term> {
    let (name, value) = match piece.split('=') {
        None => (piece, None),
        Some((name, value)) => (name, Some(value)),
    };
    identifier(name, "a term")?;
    if matches!(name.text, "freq" | "frequency") {
        let advice = "use period=N, or --reset N";
        return fault(
            name.offset,
            "sampling by frequency is not supported",
            advice,
        );
    }
    let value = match value {
        None if matches!(name.text, NAME | PERIOD) => {
            return fault(name.end(), format!("expected '=' after {}", name.text), "");
        }
        None => TermValue::Absent,
        Some(value) if name.text == NAME => {
            identifier(value, "a name")?;
            TermValue::Text(value.text.to_owned())
        }
        Some(value) => TermValue::Number(number(value)?),
    };
    Ok(Term {
        name: name.text.to_owned(),
        value,
    })
}

/// A number, decimal or `0x` hexadecimal.
fn number(piece: Piece<'_>) -> Parsed<u64> {
    let (digits, radix, skip) = match piece.text.strip_prefix("0x") {
        Some(digits) => (digits, 16, 2),
        None => (piece.text, 10, 0),
    };
    let start = piece.offset + skip;
    if digits.is_empty() {
        return fault(
            start,
            "expected a number",
            "decimal, or hexadecimal with 0x",
        );
    }
    if let Some((at, c)) = digits.char_indices().find(|(_, c)| !c.is_digit(radix)) {
        let advice = "decimal, or hexadecimal with 0x";
        return fault(start + at, format!("unexpected '{c}' in a number"), advice);
    }
    match u64::from_str_radix(digits, radix) {
        Ok(value) => Ok(value),
        Err(_) => fault(start, "number beyond 64 bits", ""),
    }
}

/// Whether modifiers have to be there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Required {
    /// After a colon.
    Yes,
    /// After `PMU/TERMS/`.
    No,
}

fn modifiers(letters: Piece<'_>, required: Required) -> Parsed<Modifiers> {
    const KNOWN: &str = "modifiers: p, pp, ppp or P for precision; u, k, h for user, kernel, hypervisor; D for no turns";
    if letters.text.is_empty() && required == Required::Yes {
        return fault(letters.offset, "expected modifiers after ':'", KNOWN);
    }
    let mut result = Modifiers::default();
    for (at, letter) in letters.text.char_indices() {
        let at = letters.offset + at;
        if let Some((_, set)) = result.letters().into_iter().find(|it| it.0 == letter) {
            *set = true;
            continue;
        }
        match (letter, result.precise) {
            ('p', Precise::Level(level @ 0..=2)) => result.precise = Precise::Level(level + 1),
            ('p', Precise::Level(_)) => return fault(at, "more than three 'p'", KNOWN),
            ('P', Precise::Level(0) | Precise::Max) => result.precise = Precise::Max,
            ('p' | 'P', _) => return fault(at, "'p' and 'P' exclude each other", KNOWN),
            _ => return fault(at, format!("unknown modifier '{letter}'"), KNOWN),
        }
    }
    Ok(result)
}

/// Parses the text after `mem:`.
fn breakpoint(all: Piece<'_>) -> Parsed<EventSpec> {
    let (rest, tail_access, letters) = breakpoint_tail(all)?;
    let (place, len) = breakpoint_len(rest)?;
    if place.text.is_empty() {
        return fault(
            place.offset,
            "expected an address or a symbol",
            "mem:0xADDR:w or mem:BIN:FUNC:x",
        );
    }
    let (place, access) = if place.text.starts_with("0x") {
        let default = Access {
            read: true,
            write: true,
            execute: false,
        };
        (
            Place::Address(number(place)?),
            tail_access.unwrap_or(default),
        )
    } else {
        let Some(access) = tail_access else {
            let advice =
                "append ':x' to stop where it runs, ':w' where it is written, ':rw' for both";
            return fault(all.end(), "a symbol needs an access", advice);
        };
        (Place::Symbol(place.text.to_owned()), access)
    };
    if access.execute && len.is_some_and(|len| len != 8) {
        return fault(
            rest.end() - 1,
            "a breakpoint on execution has no length",
            "",
        );
    }
    let kind = EventKind::Breakpoint(Breakpoint { place, access, len });
    Ok(EventSpec {
        kind,
        modifiers: letters,
    })
}

/// Splits `:ACCESS` or `:ACCESS:MODS` off the end.
///
/// `BIN:FUNC` contains colons, so the access is searched from the right, and modifiers are recognized only after an
/// access.
fn breakpoint_tail(all: Piece<'_>) -> Parsed<(Piece<'_>, Option<Access>, Modifiers)> {
    let Some((rest, last)) = all.rsplit(':') else {
        return Ok((all, None, Modifiers::default()));
    };
    if let Some((place, middle)) = rest.rsplit(':')
        && let Some(access) = access(middle)?
    {
        return Ok((place, Some(access), modifiers(last, Required::Yes)?));
    }
    match access(last)? {
        Some(access) => Ok((rest, Some(access), Modifiers::default())),
        None if all.text.starts_with("0x") => {
            let advice = "ACCESS is made of r, w and x";
            fault(
                last.offset,
                format!("unknown access '{}'", last.text),
                advice,
            )
        }
        None => Ok((all, None, Modifiers::default())),
    }
}

/// Letters of an access; `None` if malformed.
fn access(piece: Piece<'_>) -> Parsed<Option<Access>> {
    let mut access = Access::default();
    for (at, letter) in piece.text.char_indices() {
        let seen = match letter {
            'r' => &mut access.read,
            'w' => &mut access.write,
            'x' => &mut access.execute,
            _ => return Ok(None),
        };
        if std::mem::replace(seen, true) {
            return fault(piece.offset + at, format!("'{letter}' is given twice"), "");
        }
    }
    if access.execute && (access.read || access.write) {
        let advice = "x86 stops at execution or at data, not at both: use two events";
        return fault(piece.offset, "'x' excludes 'r' and 'w'", advice);
    }
    Ok((access != Access::default()).then_some(access))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Splits `/LEN` off the end; slashes in a path are left alone.
fn breakpoint_len(piece: Piece<'_>) -> Parsed<(Piece<'_>, Option<u8>)> {
    let Some((place, digits)) = piece.rsplit('/') else {
        return Ok((piece, None));
    };
    match digits.text {
        "1" => Ok((place, Some(1))),
        "2" => Ok((place, Some(2))),
        "4" => Ok((place, Some(4))),
        "8" => Ok((place, Some(8))),
        // No symbol has a slash before a number.
        number if place.text.starts_with("0x") || is_number(number) => fault(
            digits.offset,
            "unknown length",
            "a breakpoint covers 1, 2, 4 or 8 bytes",
        ),
        _ => Ok((piece, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> EventSpec {
        event(text).unwrap_or_else(|error| panic!("{error}\n{}", error.caret()))
    }

    /// Texts display in canonical form, which parses to the same value.
    #[test]
    fn canonical_forms() {
        let cases = [
            ("auto", "auto"),
            ("auto:u", "auto:u"),
            ("cpu-clock", "cpu-clock"),
            ("cs", "context-switches"),
            ("faults:u", "page-faults:u"),
            ("cpu-cycles:ppu", "cycles:upp"),
            ("instructions:P", "instructions:P"),
            ("cycles:Dppu", "cycles:uDpp"),
            ("r01c2", "r1c2"),
            ("r01c2:pp", "r1c2:pp"),
            ("LLC-load-misses:k", "LLC-load-misses:k"),
            ("cpu/event=0xc2,umask=1/pp", "cpu/event=0xc2,umask=0x1/pp"),
            (
                "cpu/event=0xc2,umask=0x1/:ppu",
                "cpu/event=0xc2,umask=0x1/upp",
            ),
            (
                "cpu/event=0xc0,period=16001,name=inst/u",
                "cpu/event=0xc0,period=16001,name=inst/u",
            ),
            ("cpu/mem-loads,ldlat=30/P", "cpu/mem-loads,ldlat=0x1e/P"),
            ("ibs_op//", "ibs_op//"),
            ("mem-loads:p", "mem-loads:p"),
            ("mem-loads,ldlat=64:P", "mem-loads,ldlat=0x40:P"),
            ("MEM_LOAD_RETIRED.L1_MISS", "MEM_LOAD_RETIRED.L1_MISS"),
            ("mem:0x1000", "mem:0x1000:rw"),
            ("mem:0x1000/8:w:u", "mem:0x1000/8:w:u"),
            ("mem:main:x", "mem:main:x"),
            (
                "mem:/usr/bin/redis-server:call+4:x:u",
                "mem:/usr/bin/redis-server:call+4:x:u",
            ),
            ("mem:./app:counter/8:rw", "mem:./app:counter/8:rw"),
            ("faults/period=1/", "page-faults/period=1/"),
            ("cpu-clock/period=0x4e20/:u", "cpu-clock/period=20000/u"),
            ("r01c2/period=5/pp", "r1c2/period=5/pp"),
            ("mem:./app:hit:x/period=1/u", "mem:./app:hit:x/period=1/u"),
        ];
        for (text, expect) in cases {
            let spec = parsed(text);
            assert_eq!(spec.to_string(), expect, "{text}");
            assert_eq!(parsed(expect), spec, "{text}");
        }
    }

    /// Every fault is named, with the caret under it.
    #[test]
    fn faults_have_columns() {
        let cases = [
            ("", 1, "expected an event"),
            ("cycles:", 8, "expected modifiers after ':'"),
            ("cycles:pq", 9, "unknown modifier 'q'"),
            ("cycles:pppp", 11, "more than three 'p'"),
            ("cycles:pP", 9, "'p' and 'P' exclude each other"),
            ("sched:sched_switch", 1, "tracepoints are not sampled"),
            ("{cycles,instructions}", 1, "groups are not supported"),
            ("{cpu/event=1/,cycles}:u", 1, "groups are not supported"),
            ("auto:pp", 6, "auto chooses the precise level itself"),
            ("cpu/event=0xc2", 15, "expected a closing '/'"),
            ("cpu/event=0xg2/", 13, "unexpected 'g' in a number"),
            ("cpu/event=,umask=1/", 11, "expected a number"),
            ("cpu/event=1,event=2/", 13, "'event' is given twice"),
            ("cpu/event=1,/", 13, "expected a term"),
            (
                "cpu/config=0x10000000000000000/",
                14,
                "number beyond 64 bits",
            ),
            (
                "cpu/event=1,freq=99/",
                13,
                "sampling by frequency is not supported",
            ),
            ("page-faults/period=1", 21, "expected a closing '/'"),
            ("page-faults/period=/", 20, "expected a number"),
            ("page-faults/period=1/z", 22, "unknown modifier 'z'"),
            ("cpu/event=1/z", 13, "unknown modifier 'z'"),
            ("/event=1/", 1, "expected a PMU name"),
            ("cycles,instructions", 7, "unexpected ','"),
            ("cpu clock", 4, "unexpected space"),
            ("cy(les", 3, "unexpected '(' in an event name"),
            ("mem:", 5, "expected an address or a symbol"),
            ("mem:0x:w", 7, "expected a number"),
            ("mem:0x10/3:w", 10, "unknown length"),
            ("mem:./app:pair/16:rw", 16, "unknown length"),
            ("mem:0x10:q", 10, "unknown access 'q'"),
            ("mem:main", 9, "a symbol needs an access"),
            ("mem:./app:main", 15, "a symbol needs an access"),
            ("mem:main:wx", 10, "'x' excludes 'r' and 'w'"),
            ("mem:main:xx", 11, "'x' is given twice"),
            (
                "mem:main/4:x",
                10,
                "a breakpoint on execution has no length",
            ),
        ];
        for (text, column, what) in cases {
            let error = event(text).expect_err(text);
            assert_eq!(
                (error.column(), error.what.as_str()),
                (column, what),
                "{text}"
            );
            assert!(error.caret().ends_with('^'));
        }
    }

    /// The caret is under the fault even after multi-byte characters.
    #[test]
    fn caret_counts_characters() {
        let error = event("mem:ü:xx").unwrap_err();
        assert_eq!(error.caret(), "mem:ü:xx\n       ^");
        assert_eq!(
            error.to_string(),
            "malformed event 'mem:ü:xx': 'x' is given twice at column 8"
        );
    }

    proptest! {
        /// No text panics, and whatever parses survives display.
        #[test]
        fn never_panics(text in "\\PC{0,40}|[a-z0-9:/=,.+xmrwupPkh-]{0,40}|mem:[0-9a-frwx:/]{0,20}|cpu/[a-z0-9=,x]{0,24}/[pPukhD:]{0,5}") {
            match event(&text) {
                Ok(spec) => prop_assert_eq!(event(&spec.to_string()), Ok(spec)),
                Err(error) => {
                    prop_assert!(error.offset <= text.len());
                    prop_assert!(!error.caret().is_empty());
                }
            }
        }
    }
}
