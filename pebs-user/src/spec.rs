//! Parser of SPECs: the binary, begin and end of visits, and the values to read.
//!
//! Pure text; nothing is looked up here, that is what [`crate::probe`] is for. The forms are those of `--uprobe`'s help: `BIN:FUNC`,
//! `BIN:START..BIN:END`, `BIN:START..`, `BIN:usdt:PROVIDER:NAME`, each place with its own `(id=EXPR, name=EXPR)`.
//! Text in double quotes is taken literally as a binary or a name. `BUILDID+0xOFF` names binary and place in one.

pub(crate) mod expr;
pub(crate) mod scan;
#[cfg(test)]
mod tests;

use std::fmt;

use self::expr::{Expr, Fault, Ids, number};
use self::scan::{
    address, build_place, is_identifier, is_line, is_sensible, looks_like_args, looks_like_value,
    matching_open, open_without_close, plausible, single_colons, split_offset,
};

/// A parsed SPEC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// As typed.
    pub text: String,
    /// Begin of visits.
    pub begin: Endpoint,
    /// End of visits.
    pub end: End,
}

/// End of visits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// At the return of the function that started them.
    Return,
    /// At a place of its own.
    At(Endpoint),
    /// At the next start on the same thread.
    Next,
}

/// A place and the values to read there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Binary as given: a path, a command, or a library's name; the first digits of its build id, if [`Self::is_build`].
    pub binary: String,
    /// The binary is named by its build id.
    pub is_build: bool,
    /// Place in it.
    pub location: Location,
    /// Values to read.
    pub args: Vec<Arg>,
    /// Ids of several items that start here together (`ids=`).
    pub ids: Option<Box<Ids>>,
    /// Byte of the location in the SPEC, for carets.
    pub at: usize,
}

impl Endpoint {
    /// Whether an expression reads the item's id.
    #[must_use]
    pub fn reads_id(&self) -> bool {
        self.args.iter().any(|arg| arg.name == "id")
    }
}

/// A place in a binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// `FUNC`: its entry.
    Function(String),
    /// `FUNC+OFF`.
    Offset(String, u64),
    /// `FUNC%return`.
    Return(String),
    /// `0xADDR%return`.
    ReturnAt(u64),
    /// `0xADDR`: virtual address in the file.
    Address(u64),
    /// `BUILDID+0xOFF`: offset in the file; and in another build, the function of this shape.
    FileOffset(u64, Option<Shape>),
    /// `BUILDID+0xOFF%return`.
    ReturnAtOffset(u64, Option<Shape>),
    /// `FILE:LINE`.
    Line(String, u32),
    /// `usdt:PROVIDER:NAME`.
    Usdt(String, String),
}

/// Checksums by which a function is found in another build: of its code, and of the functions before and behind it; 0: there
/// is none. Written `OWN-BEFORE-BEHIND`, 8 hexadecimal digits each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Of the function.
    pub own: u32,
    /// Of the function before it.
    pub before: u32,
    /// Of the function behind it.
    pub behind: u32,
}

impl Shape {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-').map(|digits| {
            let is_sum = digits.len() == 8 && digits.bytes().all(|it| it.is_ascii_hexdigit());
            is_sum.then(|| u32::from_str_radix(digits, 16).ok())?
        });
        let shape = Self {
            own: parts.next()??,
            before: parts.next()??,
            behind: parts.next()??,
        };
        parts.next().is_none().then_some(shape)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:08x}-{:08x}-{:08x}",
            self.own, self.before, self.behind
        )
    }
}

/// `name=EXPR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arg {
    /// `id`, or the name of a column.
    pub name: String,
    /// Value.
    pub expr: Expr,
    /// Byte of the expression in the SPEC.
    pub at: usize,
}

/// Error of a SPEC. Displays the SPEC with a caret under the fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// As typed.
    pub spec: String,
    /// Character of the fault, from 0.
    pub column: usize,
    /// The fault, one sentence, lower case.
    pub what: String,
    /// Correct form.
    pub hint: Option<String>,
}

impl SpecError {
    /// An error at byte `at` of `spec`.
    #[must_use]
    pub fn new(spec: &str, fault: Fault) -> Self {
        let before = spec.get(..fault.at).unwrap_or(spec);
        Self {
            spec: spec.to_owned(),
            column: before.chars().count(),
            what: fault.what,
            hint: fault.hint,
        }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "cannot read probe '{}': {}", self.spec, self.what)?;
        writeln!(f, "  {}", self.spec)?;
        write!(f, "  {}^", " ".repeat(self.column))
    }
}

impl std::error::Error for SpecError {}

/// The valid forms, for hints.
const FORMS: &str = "BIN:FUNC, BIN:FUNC(id=EXPR, name=EXPR), BIN:START..END, BIN:START.., BIN:usdt:PROVIDER:NAME, \
                     BUILDID+0xOFF";

/// A function's name, or `0xADDR`, as it is written in a SPEC: in double quotes where it would be read as something else,
/// or could be taken for a part of a sentence.
#[must_use]
pub fn written(name: &str) -> String {
    let is_read_as = |text: String| {
        Spec::parse(&text).is_ok_and(|spec| match &spec.begin.location {
            Location::Function(found) => spec.begin.binary == "x" && found == name,
            Location::Address(_) => spec.begin.binary == "x",
            _ => false,
        })
    };
    let is_word = !name.contains([' ', ',', '"']);
    let is_plain = is_word
        && is_read_as(format!("x:{name}"))
        && is_read_as(format!("x:{name}(id=arg1)"))
        && is_read_as(format!("x:{name}.."));
    if is_plain {
        name.to_owned()
    } else {
        format!("\"{name}\"")
    }
}

impl Spec {
    /// Parses a SPEC.
    ///
    /// # Errors
    /// The first fault, with its column.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let reader = Reader {
            text,
            shape: &shape(text),
        };
        check_quotes(text)
            .and_then(|()| reader.spec())
            .map_err(|fault| SpecError::new(text, fault))
    }
}

/// A stretch of the SPEC, bytes.
#[derive(Clone, Copy)]
struct Part {
    start: usize,
    end: usize,
}

/// Replaces each byte of quoted text.
const QUOTED: u8 = b'Q';

/// Replaces quoted text and its quotes by letters, so that only unquoted punctuation remains.
fn shape(text: &str) -> String {
    let mut shape = text.as_bytes().to_vec();
    let mut rest = quotes(text).into_iter();
    while let Some(open) = rest.next() {
        let close = rest.next().unwrap_or(shape.len() - 1);
        shape[open..=close].fill(QUOTED);
    }
    String::from_utf8(shape).unwrap_or_else(|_| text.to_owned())
}

/// Bytes with a quote: not those of C++'s `operator""`.
fn quotes(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'"' {
            at += 1;
            continue;
        }
        let before = text.get(..at).unwrap_or_default().trim_end();
        if bytes.get(at + 1) == Some(&b'"') && before.ends_with("operator") {
            at += 2;
            continue;
        }
        found.push(at);
        at += 1;
    }
    found
}

/// Refuses a quote that is not closed.
fn check_quotes(text: &str) -> Result<(), Fault> {
    let found = quotes(text);
    match found.last() {
        Some(at) if found.len() % 2 == 1 => Err(Fault::new(*at, "this quote is not closed")),
        _ => Ok(()),
    }
}

/// Splits off quoted text.
fn unquoted(text: &str) -> Option<(&str, &str)> {
    match quotes(text).as_slice() {
        [0, end, ..] => Some((&text[1..*end], &text[end + 1..])),
        _ => None,
    }
}

struct Reader<'a> {
    text: &'a str,
    /// The same with quoted text replaced by [`QUOTED`].
    shape: &'a str,
}

impl<'a> Reader<'a> {
    fn shape(&self, part: Part) -> &'a str {
        &self.shape[part.start..part.end]
    }

    fn slice(&self, part: Part) -> &'a str {
        &self.text[part.start..part.end]
    }

    fn trim(&self, part: Part) -> Part {
        let text = self.slice(part);
        let start = part.start + (text.len() - text.trim_start().len());
        Part {
            start,
            end: start + text.trim().len(),
        }
    }

    fn spec(&self) -> Result<Spec, Fault> {
        let whole = self.trim(Part {
            start: 0,
            end: self.text.len(),
        });
        if whole.start == whole.end {
            return Err(Fault::new(0, "it is empty").hint(FORMS));
        }
        let split = self.dots(whole);
        let begin_part = Part {
            start: whole.start,
            end: split.unwrap_or(whole.end),
        };
        let begin = self.endpoint(begin_part, None)?;
        let end = match split {
            None => Self::single(&begin)?,
            Some(dots) => {
                let rest = self.trim(Part {
                    start: dots + 2,
                    end: whole.end,
                });
                if rest.start == rest.end {
                    End::Next
                } else {
                    End::At(self.endpoint(rest, Some(&begin))?)
                }
            }
        };
        Ok(Spec {
            text: self.text.to_owned(),
            begin,
            end,
        })
    }

    /// End of visits for a SPEC with a single place.
    fn single(begin: &Endpoint) -> Result<End, Fault> {
        match &begin.location {
            Location::Function(_)
            | Location::Address(_)
            | Location::FileOffset(..)
            | Location::Line(..) => Ok(End::Return),
            Location::Usdt(..) => Ok(End::Next),
            Location::Offset(..)
            | Location::Return(_)
            | Location::ReturnAt(_)
            | Location::ReturnAtOffset(..) => Err(Fault::new(
                begin.at,
                "visits that start here have no end",
            )
            .hint("write START..END, or START.. for 'until the next start on the same thread'")),
        }
    }

    /// The `..` between START and END: outside brackets, after the first binary, not part of a path.
    fn dots(&self, whole: Part) -> Option<usize> {
        let bytes = self.shape.as_bytes();
        let mut depth = 0_i32;
        let mut colon = false;
        let mut at = whole.start;
        while at < whole.end {
            match bytes[at] {
                b'(' | b'[' => depth += 1,
                b')' | b']' => depth -= 1,
                b':' if depth == 0 => colon = true,
                b'+' if self.is_build_place(whole.start, at) => colon = true,
                b'.' if depth <= 0
                    && colon
                    && bytes.get(at + 1) == Some(&b'.')
                    && bytes[at - 1] != b'/'
                    && !(bytes[at - 1] == b':' && bytes.get(at + 2) == Some(&b'/')) =>
                {
                    return Some(at);
                }
                _ => {}
            }
            at += 1;
        }
        None
    }

    /// Whether the plus at a byte follows a build id.
    fn is_build_place(&self, start: usize, plus: usize) -> bool {
        let text = self.shape.get(start..plus + 2);
        text.is_some_and(|text| build_place(text).is_some())
    }

    /// Parses `BIN:LOCATION(args)`; the binary may be omitted if `before` gives one.
    fn endpoint(&self, part: Part, before: Option<&Endpoint>) -> Result<Endpoint, Fault> {
        let part = self.trim(part);
        let (place, list) = self.arguments(part)?;
        let place = self.trim(place);
        let (binary, is_build, location, at) = match build_place(self.shape(place)) {
            Some(id) => {
                let location = self.in_build(place, id.len())?;
                (id.to_ascii_lowercase(), true, location, place.start)
            }
            None => {
                let (binary, location) = self.split(place, before.map(|it| &*it.binary))?;
                // Without a binary of its own it is that of the begin.
                let is_own = location.start > place.start;
                let is_build = !is_own && before.is_some_and(|it| it.is_build);
                (binary, is_build, self.location(location)?, location.start)
            }
        };
        let (args, ids) = match list {
            Some(list) => self.args(list)?,
            None => (Vec::new(), None),
        };
        Ok(Endpoint {
            binary,
            is_build,
            location,
            args,
            ids,
            at,
        })
    }

    /// Separates a trailing `(name=EXPR, ...)` from the place. A C++ parameter list has no `=`.
    fn arguments(&self, part: Part) -> Result<(Part, Option<Part>), Fault> {
        let text = self.shape(part);
        let Some(open) = matching_open(text) else {
            if let Some((at, what)) = behind_arguments(text) {
                return Err(Fault::new(part.start + at, what));
            }
            return match open_without_close(text) {
                Some(at) if looks_like_args(&text[at + 1..]) => Err(Fault::new(
                    part.end,
                    "the parenthesis of the arguments is not closed",
                )),
                _ => Ok((part, None)),
            };
        };
        let inner = &text[open + 1..text.len() - 1];
        if looks_like_args(inner) {
            let list = Part {
                start: part.start + open + 1,
                end: part.end - 1,
            };
            let place = Part {
                start: part.start,
                end: part.start + open,
            };
            return Ok((place, Some(list)));
        }
        if looks_like_value(inner) {
            let inner = &self.slice(part)[open + 1..text.len() - 1];
            return Err(
                Fault::new(part.start + open + 1, "an argument needs a name")
                    .hint(format!("write (id={inner}) or (NAME={inner})")),
            );
        }
        Ok((part, None))
    }

    /// Splits at the last colon that is followed by a sensible place.
    fn split(&self, part: Part, before: Option<&str>) -> Result<(String, Part), Fault> {
        let text = self.shape(part);
        let scope = text.find('(').unwrap_or(text.len());
        let cut = |at: usize| {
            let binary = self.slice(part)[..at].trim();
            let binary = match unquoted(binary) {
                Some((inside, "")) => inside.to_owned(),
                _ => binary.to_owned(),
            };
            let location = self.trim(Part {
                start: part.start + at + 1,
                end: part.end,
            });
            (binary, location)
        };
        if let Some(binary) = before
            && (text.starts_with("usdt:") || is_line(text))
        {
            return Ok((binary.to_owned(), part));
        }
        let usdt = text[..scope].find(":usdt:");
        let colons: Vec<usize> = match usdt {
            Some(at) => vec![at],
            None => single_colons(&text[..scope]),
        };
        for &at in colons.iter().rev() {
            let (binary, location) = cut(at);
            if !binary.is_empty() && is_sensible(self.shape(location)) {
                return Ok((binary, location));
            }
        }
        match (colons.last(), before) {
            (None, Some(binary)) => Ok((binary.to_owned(), part)),
            (None, None) => {
                Err(Fault::new(part.end, "no ':' between the binary and the function").hint(FORMS))
            }
            (Some(0), _) => Err(Fault::new(part.start, "the binary is missing").hint(FORMS)),
            (Some(&at), _) if cut(at).1.start >= part.end => {
                Err(Fault::new(part.end, "the function is missing")
                    .hint("'pebs-trace probes BIN' lists what can be probed"))
            }
            (Some(&at), _) => Ok(cut(at)),
        }
    }

    fn location(&self, part: Part) -> Result<Location, Fault> {
        let text = self.slice(part);
        if let Some((name, rest)) = unquoted(text)
            && !is_line(self.shape(part))
        {
            return self.quoted(part, name, rest);
        }
        if let Some(rest) = text.strip_prefix("usdt:") {
            return match rest.split_once(':') {
                Some((provider, name)) if !provider.is_empty() && !name.is_empty() => {
                    Ok(Location::Usdt(provider.to_owned(), name.to_owned()))
                }
                _ => Err(Fault::new(part.start, "a USDT probe is usdt:PROVIDER:NAME")
                    .hint("'pebs-trace probes BIN' lists them")),
            };
        }
        if is_line(self.shape(part))
            && let Some((file, line)) = text.rsplit_once(':')
        {
            let name = unquoted(file).map_or(file, |(inside, _)| inside);
            return match line.parse() {
                Ok(line) if line > 0 => Ok(Location::Line(name.to_owned(), line)),
                _ => Err(Fault::new(
                    part.start + file.len() + 1,
                    "no such line number",
                )),
            };
        }
        if let Some(address) = address(text).filter(|_| !text.contains('%')) {
            return address
                .map(Location::Address)
                .ok_or_else(|| Fault::new(part.start, "an address is 0x and up to 16 hex digits"));
        }
        self.function(part)
    }

    /// Parses what follows a build id: `+0xOFF`, `+0xOFF~SHAPE`, `+0xOFF%return`.
    fn in_build(&self, part: Part, id: usize) -> Result<Location, Fault> {
        let text = &self.slice(part)[id..];
        let (digits, returns) = match text.split_once('%') {
            Some((digits, "return")) => (digits, true),
            Some(_) => {
                let what = "an offset can be followed by %return only";
                return Err(Fault::new(
                    part.start + id + text.find('%').unwrap_or(0),
                    what,
                ));
            }
            None => (text, false),
        };
        let (digits, shape) = match digits.split_once('~') {
            Some((digits, text)) => {
                let shape = Shape::parse(text).ok_or_else(|| {
                    let at = part.start + id + digits.len() + 1;
                    Fault::new(at, format!("no such shape of a function '{text}'"))
                        .hint("three sums of 8 hex digits, as 'pebs-trace suggest' prints them")
                })?;
                (digits, Some(shape))
            }
            None => (digits, None),
        };
        let offset = number(digits[1..].trim()).and_then(|it| u64::try_from(it).ok());
        let Some(offset) = offset else {
            let what = format!("no such offset '{}'", &digits[1..]);
            return Err(
                Fault::new(part.start + id + 1, what).hint("BUILDID+0xOFF, the offset in the file")
            );
        };
        Ok(match returns {
            true => Location::ReturnAtOffset(offset, shape),
            false => Location::FileOffset(offset, shape),
        })
    }

    /// Parses a quoted name, followed by `%return` or `+OFF`.
    fn quoted(&self, part: Part, name: &str, rest: &str) -> Result<Location, Fault> {
        let rest = rest.trim();
        if name.is_empty() {
            return Err(Fault::new(part.start, "the function is missing"));
        }
        if rest.is_empty() {
            return Ok(Location::Function(name.to_owned()));
        }
        if rest == "%return" {
            return Ok(Location::Return(name.to_owned()));
        }
        let offset = rest
            .strip_prefix('+')
            .and_then(|digits| number(digits.trim()));
        match offset.and_then(|n| u64::try_from(n).ok()) {
            Some(offset) => Ok(Location::Offset(name.to_owned(), offset)),
            None => Err(Fault::new(
                part.end - rest.len(),
                format!("'{rest}' can't follow a name"),
            )
            .hint("\"FUNC\"+16, \"FUNC\"%return, \"FUNC\"(id=EXPR)")),
        }
    }

    /// `FUNC`, `FUNC+OFF`, `FUNC%return`.
    fn function(&self, part: Part) -> Result<Location, Fault> {
        let text = self.slice(part);
        if let Some((name, suffix)) = text.rsplit_once('%')
            && !name.trim_end().ends_with("operator")
        {
            if suffix.trim() != "return" {
                return Err(Fault::new(
                    part.start + name.len(),
                    format!("unknown place '%{suffix}'"),
                )
                .hint("FUNC%return is the return of a function"));
            }
            let name = name.trim();
            if let Some(Some(address)) = address(name) {
                return Ok(Location::ReturnAt(address));
            }
            return if plausible(name) && split_offset(name).is_none() && address(name).is_none() {
                Ok(Location::Return(name.to_owned()))
            } else {
                Err(Fault::new(part.start, "%return needs a function's name"))
            };
        }
        if let Some((name, digits)) = split_offset(text) {
            let value = number(digits).and_then(|n| u64::try_from(n).ok());
            return match value {
                Some(0) if plausible(name) => Ok(Location::Function(name.to_owned())),
                Some(offset) if plausible(name) => Ok(Location::Offset(name.to_owned(), offset)),
                Some(_) => Err(name_fault(part.start, name)),
                None => Err(Fault::new(
                    part.end - digits.len(),
                    format!("no such offset '{digits}'"),
                )
                .hint("decimal or 0x: FUNC+16, FUNC+0x10")),
            };
        }
        if plausible(text) {
            Ok(Location::Function(text.to_owned()))
        } else {
            Err(name_fault(part.start, text))
        }
    }

    /// `name=EXPR, name=EXPR`, and the ids of a batch.
    fn args(&self, list: Part) -> Result<(Vec<Arg>, Option<Box<Ids>>), Fault> {
        let mut args: Vec<Arg> = Vec::new();
        let mut ids = None;
        for part in self.commas(list) {
            let part = self.trim(part);
            let text = self.slice(part);
            if text.is_empty() {
                return Err(Fault::new(part.start, "an argument is missing")
                    .hint("arguments are written (id=EXPR, name=EXPR)"));
            }
            let Some((name, _)) = text.split_once('=') else {
                return Err(Fault::new(part.start, "an argument needs a name")
                    .hint(format!("write NAME={text}")));
            };
            let at = part.start + name.len() + 1;
            let name = name.trim();
            if !is_identifier(name) {
                return Err(Fault::new(
                    part.start,
                    format!("'{name}' can't be the name of a column"),
                )
                .hint("letters, digits and _, a letter first"));
            }
            let twice = name == "ids" && ids.is_some();
            if twice || args.iter().any(|arg| arg.name == name) {
                return Err(Fault::new(part.start, format!("'{name}' is given twice")));
            }
            if name == "ids" {
                ids = Some(Box::new(expr::parse_ids(self.text, at, part.end)?));
                continue;
            }
            args.push(Arg {
                name: name.to_owned(),
                expr: expr::parse(self.text, at, part.end)?,
                at,
            });
        }
        if let (Some(ids), true) = (&ids, args.iter().any(|arg| arg.name == "id")) {
            return Err(Fault::new(ids.at, "both id= and ids= are given")
                .hint("id= is one item, ids= are the items of a batch"));
        }
        Ok((args, ids))
    }

    /// Splits at commas outside parentheses.
    fn commas(&self, list: Part) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut depth = 0_i32;
        let mut start = list.start;
        for (i, byte) in self.shape(list).bytes().enumerate() {
            match byte {
                b'(' => depth += 1,
                b')' => depth -= 1,
                b',' if depth == 0 => {
                    let end = list.start + i;
                    parts.push(Part { start, end });
                    start = end + 1;
                }
                _ => {}
            }
        }
        parts.push(Part {
            start,
            end: list.end,
        });
        parts
    }
}

/// Finds text after a closed list of arguments, where none is allowed.
fn behind_arguments(text: &str) -> Option<(usize, &'static str)> {
    let open = text
        .find('(')
        .filter(|&at| looks_like_args(&text[at + 1..]))?;
    let mut depth = 0;
    let close = text.bytes().enumerate().skip(open).find_map(|(at, byte)| {
        depth += i32::from(byte == b'(') - i32::from(byte == b')');
        (depth == 0).then_some(at)
    })?;
    let rest = &text[close + 1..];
    let at = close + 1 + rest.find(|c: char| !c.is_whitespace())?;
    let one_too_many = rest.contains(')') && !rest.contains('(');
    Some(if one_too_many {
        (
            close + 1 + rest.find(')')?,
            "this parenthesis closes nothing",
        )
    } else {
        (at, "nothing can follow the arguments")
    })
}

fn name_fault(at: usize, name: &str) -> Fault {
    Fault::new(at, format!("'{name}' can't be the name of a function"))
        .hint("a place is FUNC, FUNC+OFF, FUNC%return, 0xADDR or FILE:LINE")
}
