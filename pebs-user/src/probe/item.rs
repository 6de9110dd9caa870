//! Items without marks: the location from which a sample reads the id of its thread's current item.
//!
//! `REG[:TYPE]`, or a variable: `[BIN:]SYMBOL[+OFF][->OFF]...[:TYPE]`. Each `->OFF` dereferences the value and adds
//! the offset. The kernel knows the address of the executable in every process at any time; the address of a
//! library is found when the loader runs its first instruction, or in `/proc/PID/maps`.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use object::elf;
use pebs_common::config::{ArgKind, ArgProgram, ItemConfig, ItemOffsets, ItemSource, MAX_DEREFS};

use super::breakpoint;
use super::error::ItemError;
use super::variable::{LIBRARY_HINT, first_code, thread_pointer, variable};
use crate::arch::Register;
use crate::binary::elf::{Binary, BinaryError, BinaryType};
use crate::binary::locate::locate;
use crate::binary::symbols::dynamic_values;
use crate::spec::expr::{self, Type};
use crate::spec::scan::single_colons;
use crate::store::run::ItemInfo;
use crate::units::Pid;

/// The option given, with its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Typed<'a> {
    /// `--item-reg`.
    Reg(&'a str),
    /// `--item-mem`.
    Mem(&'a str),
    /// `--item-tls`.
    Tls(&'a str),
}

impl Typed<'_> {
    const fn text(&self) -> &str {
        match self {
            Self::Reg(text) | Self::Mem(text) | Self::Tls(text) => text,
        }
    }

    /// The option's name without dashes, and the first part of the probe's name in a trace.
    const fn words(&self) -> (&'static str, &'static str) {
        match self {
            Self::Reg(_) => ("item-reg", "reg"),
            Self::Mem(_) => ("item-mem", "mem"),
            Self::Tls(_) => ("item-tls", "tls"),
        }
    }
}

/// Defaults for what the text leaves out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Context<'a> {
    /// The program of the command or of the first process.
    pub program: Option<&'a Path>,
    /// The first process that is traced.
    pub pid: Option<Pid>,
    /// The id that means no item.
    pub none: u64,
}

/// Source of item ids at samples: configuration of the eBPF program, and the description for the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Name of the probe: `reg:r13`, `mem:./app:current:u64`.
    pub spec: String,
    /// Source of the id.
    pub source: ItemSource,
    /// The register, if the id is in one.
    pub register: Option<Register>,
    /// The library that contains the variable, if it is in one.
    pub library: Option<Library>,
    /// For the kernel program; offsets still missing.
    pub config: ItemConfig,
    /// For `trace.json`.
    pub info: ItemInfo,
}

/// A library with a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// The file.
    pub path: PathBuf,
    /// Offset in the file of the first instruction that the loader runs.
    pub entry_offset: u64,
    /// Its address in the file.
    pub entry: u64,
}

impl Library {
    /// Its load address in a process (of file address 0); `None` if it is not mapped.
    #[must_use]
    pub fn base(&self, pid: Pid) -> Option<u64> {
        let entry = breakpoint::in_process(pid, &self.path, self.entry_offset)?;
        Some(entry.wrapping_sub(self.entry))
    }
}

/// Resolves the option's text.
///
/// # Errors
/// [`ItemError`].
pub(crate) fn resolve(typed: Typed<'_>, context: &Context<'_>) -> Result<Item, ItemError> {
    let fault = |what: String, hint: String| ItemError::Text {
        option: typed.words().0,
        text: typed.text().to_owned(),
        what,
        hint,
    };
    match typed {
        Typed::Reg(text) => {
            let (register, r#type) =
                parse_register(text).map_err(|(what, hint)| fault(what, hint))?;
            Ok(of_register(register, r#type, context.none))
        }
        Typed::Mem(text) | Typed::Tls(text) => {
            let place = parse_place(text).map_err(|(what, hint)| fault(what, hint))?;
            let path = match (place.binary, context.program) {
                (Some(binary), _) => locate(binary, context.pid)?,
                (None, Some(program)) => program.to_owned(),
                (None, None) => {
                    return Err(fault("no binary is named".to_owned(), FORM.to_owned()));
                }
            };
            of_variable(typed, &place, &path, context.none)
        }
    }
}

/// The valid forms, for hints.
const FORM: &str =
    "write BIN:SYMBOL:TYPE, for example ./app:current_request:u64, ./app:server+0x2f0->0:u64";

/// A message and its hint.
type Fault = (String, String);

fn parse_register(text: &str) -> Result<(Register, Type), Fault> {
    let (name, r#type) = match text.split_once(':') {
        Some((name, word)) => (name, number_type(word)?),
        None => (text, Type::Unsigned(8)),
    };
    let name = name.strip_prefix('%').unwrap_or(name);
    let register = Register::from_name(name).ok_or_else(|| {
        let names = Register::names().replace('%', "");
        (
            format!("no register '{name}'"),
            format!("registers: {names}"),
        )
    })?;
    Ok((register, r#type))
}

fn number_type(word: &str) -> Result<Type, Fault> {
    let numbers = || {
        let names = expr::type_names().filter(|name| *name != "str");
        format!("types: {}", names.collect::<Vec<_>>().join(" "))
    };
    match expr::type_named(word) {
        Some(Type::Str) => Err(("an id is a number, not a string".to_owned(), numbers())),
        Some(r#type) => Ok(r#type),
        None => Err((format!("no type '{word}'"), numbers())),
    }
}

/// A parsed variable.
#[derive(Debug, PartialEq, Eq)]
struct Place<'a> {
    binary: Option<&'a str>,
    symbol: &'a str,
    /// Added to the symbol's address, then to each pointer.
    offsets: Vec<i64>,
    r#type: Type,
    /// All but the binary and the type.
    text: &'a str,
}

fn parse_place(text: &str) -> Result<Place<'_>, Fault> {
    let colons = single_colons(text);
    let parts = |at: usize| (&text[..at], &text[at + 1..]);
    let (place, r#type) = match colons.as_slice() {
        [.., last] if colons.len() > 1 || expr::type_named(parts(*last).1).is_some() => {
            let (place, word) = parts(*last);
            (place, number_type(word)?)
        }
        _ => (text, Type::Unsigned(8)),
    };
    let (binary, place) = match single_colons(place).last() {
        Some(&at) => (Some(&place[..at]), &place[at + 1..]),
        None => (None, place),
    };
    let mut steps = place.split("->");
    let first = steps.next().unwrap_or_default();
    let (symbol, offset) = match first.rsplit_once('+') {
        Some((symbol, offset)) => (symbol, offset_of(offset)?),
        None => (first, 0),
    };
    if symbol.is_empty() || binary == Some("") {
        return Err(("no variable is named".to_owned(), FORM.to_owned()));
    }
    let mut offsets = vec![offset];
    for step in steps {
        offsets.push(offset_of(step)?);
    }
    if offsets.len() > MAX_DEREFS {
        let hint = "start from a pointer that is nearer".to_owned();
        let most = MAX_DEREFS - 1;
        return Err((format!("more than {most} pointers in a row"), hint));
    }
    Ok(Place {
        binary,
        symbol,
        offsets,
        r#type,
        text: place,
    })
}

fn offset_of(text: &str) -> Result<i64, Fault> {
    let fault = || {
        let hint = "an offset is a number of bytes: server+0x2f0, request->16".to_owned();
        (format!("'{text}' is not an offset"), hint)
    };
    let value = expr::number(text).ok_or_else(fault)?;
    // The offset in the eBPF program has 32 bits.
    i32::try_from(value).map(i64::from).map_err(|_| fault())
}

fn of_register(register: Register, r#type: Type, none: u64) -> Item {
    let mut program = number(r#type);
    program.reg_offset = register.offset();
    let whole = r#type == Type::Unsigned(8);
    let suffix = if whole {
        String::new()
    } else {
        format!(":{}", name_of(r#type))
    };
    Item {
        spec: format!("reg:{}{suffix}", register.name()),
        source: ItemSource::Register,
        register: Some(register),
        library: None,
        config: config(program, none),
        info: ItemInfo {
            source: "register".to_owned(),
            path: None,
            place: register.name().to_owned(),
            r#type: name_of(r#type),
            none,
        },
    }
}

fn of_variable(
    typed: Typed<'_>,
    place: &Place<'_>,
    path: &Path,
    none: u64,
) -> Result<Item, ItemError> {
    let thread_local = matches!(typed, Typed::Tls(_));
    let binary = Binary::open(path)?;
    let is_library = binary.kind == BinaryType::SharedLibrary;
    let no_library = |why| ItemError::Library {
        path: path.to_owned(),
        why,
        hint: LIBRARY_HINT,
    };
    if is_library && thread_local {
        return Err(no_library(
            ": its thread-local variables lie elsewhere in each thread",
        ));
    }
    let address = variable(&binary, place.symbol, thread_local)?;
    let entry =
        || first_instruction(&binary).ok_or_else(|| no_library(" without an initial function"));
    let library = is_library.then(entry).transpose()?;
    let base = match (&library, thread_local) {
        (Some(_), _) => 0,
        (None, true) => thread_pointer(&binary),
        (None, false) => first_code(&binary),
    };
    let unreadable = |source| BinaryError::Read {
        path: path.to_owned(),
        source,
    };
    let file = fs::metadata(path).map_err(unreadable)?;
    let mut program = number(place.r#type);
    program.steps = place.offsets.len() as u8;
    // The first is part of the address.
    for (step, offset) in program.derefs.iter_mut().zip(&place.offsets).skip(1) {
        *step = *offset as i32;
    }
    let mut config = config(program, none);
    let first = place.offsets.first().copied().unwrap_or(0);
    config.offset = address
        .wrapping_add(first.cast_unsigned())
        .wrapping_sub(base);
    (config.inode, config.size) = (file.ino(), file.len());
    config.entry = library.as_ref().map_or(0, |library| library.entry);
    let (kind, source) = match (&library, thread_local) {
        (Some(_), _) => ("memory", ItemSource::Library),
        (None, true) => ("tls", ItemSource::Tls),
        (None, false) => ("memory", ItemSource::Memory),
    };
    let shown = place
        .binary
        .map_or_else(|| path.display().to_string(), str::to_owned);
    Ok(Item {
        spec: format!(
            "{}:{shown}:{}:{}",
            typed.words().1,
            place.text,
            name_of(place.r#type)
        ),
        source,
        register: None,
        library,
        config,
        info: ItemInfo {
            source: kind.to_owned(),
            path: Some(path.display().to_string()),
            place: place.text.to_owned(),
            r#type: name_of(place.r#type),
            none,
        },
    })
}

/// The first instruction of a library that the loader runs: its `_init`.
fn first_instruction(binary: &Binary) -> Option<Library> {
    let entry = *dynamic_values(&binary.elf()?, elf::DT_INIT).first()?;
    Some(Library {
        path: binary.path.clone(),
        entry_offset: binary
            .file_offset(entry)
            .filter(|_| binary.is_code(entry))?,
        entry,
    })
}

/// A program that reads a number of this type.
fn number(r#type: Type) -> ArgProgram {
    let kind = match r#type {
        Type::Signed(_) => ArgKind::Signed,
        _ => ArgKind::Unsigned,
    };
    ArgProgram {
        kind: kind as u8,
        width: r#type.width(),
        ..ArgProgram::NONE
    }
}

fn name_of(r#type: Type) -> String {
    let letter = if matches!(r#type, Type::Signed(_)) {
        'i'
    } else {
        'u'
    };
    format!("{letter}{}", 8 * u32::from(r#type.width()))
}

fn config(program: ArgProgram, none: u64) -> ItemConfig {
    ItemConfig {
        program,
        offset: 0,
        entry: 0,
        inode: 0,
        size: 0,
        none,
        offsets: ItemOffsets::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::testing::compile;
    use crate::failure::Hint as _;

    /// Each part of the text is parsed, and missing parts have their default.
    #[test]
    fn places() {
        let place = parse_place("./app:ns::now+0x10->8->4:i32").unwrap();
        assert_eq!((place.binary, place.symbol), (Some("./app"), "ns::now"));
        assert_eq!(
            (place.offsets, place.r#type),
            (vec![0x10, 8, 4], Type::Signed(4))
        );
        let short = parse_place("now:u16").unwrap();
        assert_eq!(
            (short.binary, short.symbol, short.r#type),
            (None, "now", Type::Unsigned(2))
        );
        let bare = parse_place("./app:now").unwrap();
        assert_eq!(
            (bare.binary, bare.symbol, bare.r#type),
            (Some("./app"), "now", Type::Unsigned(8))
        );
        let (register, r#type) = parse_register("%r13:i32").unwrap();
        assert_eq!((register.name(), r#type), ("r13", Type::Signed(4)));
    }

    /// Faults name the error and the valid forms.
    #[test]
    fn faults() {
        let fault = |text| parse_place(text).expect_err(text).0;
        assert_eq!(fault("./app:now:u24"), "no type 'u24'");
        assert_eq!(fault("./app:now+x:u64"), "'x' is not an offset");
        assert_eq!(fault("./app:now->:u64"), "'' is not an offset");
        assert_eq!(fault(":x:u64"), "no variable is named");
        assert_eq!(fault(""), "no variable is named");
        assert!(fault("now:str").contains("not a string"));
        assert!(fault("a->1->2->3->4:u64").contains("3 pointers"));
        let (what, hint) = parse_register("r99").expect_err("r99");
        assert_eq!(what, "no register 'r99'");
        assert!(hint.contains("r13"));
    }

    const SOURCE: &str = "static _Thread_local char pad[100] __attribute__((aligned(64))) = {1};\
        _Thread_local unsigned long mine = 7; unsigned long shared_id = 5;\
        #include <stdio.h>\n#include <stdint.h>\n\
        int main(void) { uintptr_t tp; __asm__(\"mov %%fs:0, %0\" : \"=r\"(tp));\
        printf(\"%ld %d\", (long)((uintptr_t)&mine - tp), pad[0]); return 0; }";

    /// A thread-local variable is found where the program itself finds it.
    #[test]
    fn thread_locals_lie_where_the_program_has_them() {
        let source = SOURCE.replace("#include", "\n#include");
        for flags in [
            &["-O1", "-fpie", "-pie"][..],
            &["-O1", "-no-pie"],
            &["-O1", "-static"],
        ] {
            let program = compile("gcc", &source, flags);
            let output = std::process::Command::new(program.path()).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let truth: i64 = text.split(' ').next().unwrap().parse().unwrap();
            let path = program.path();
            let context = Context {
                program: Some(&path),
                ..Context::default()
            };
            let item = resolve(Typed::Tls("mine:u64"), &context).unwrap();
            assert_eq!(item.config.offset.cast_signed(), truth, "{flags:?}");
        }
    }

    /// Symbols that are no variable of the right kind are refused with a hint.
    #[test]
    fn wrong_symbols() {
        let source = SOURCE.replace("#include", "\n#include");
        let program = compile("gcc", &source, &["-O1"]);
        let path = program.path();
        let context = Context {
            program: Some(&path),
            ..Context::default()
        };
        let hint = |typed| {
            let error = resolve(typed, &context).expect_err("refused");
            error.hint().unwrap()
        };
        assert_eq!(hint(Typed::Mem("mine")), "use --item-tls");
        assert_eq!(hint(Typed::Tls("shared_id")), "use --item-mem");
        assert!(hint(Typed::Mem("main")).contains("name a variable"));
        assert!(hint(Typed::Mem("shared_if")).contains("did you mean shared_id?"));
        assert!(hint(Typed::Mem("nothing_of_the_sort")).contains("nm -C"));
        let library = resolve(Typed::Tls("libc.so.6:errno:i32"), &Context::default());
        assert!(matches!(library, Err(ItemError::Library { .. })));
    }
}
