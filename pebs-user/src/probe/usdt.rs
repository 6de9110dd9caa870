//! USDT probes: reads the notes that `sys/sdt.h` puts into a binary.
//!
//! A note holds the address of a nop, the address of a counter that the tracer raises while it is attached (the
//! semaphore), and the location of each argument (`-4@%edi`, `8@16(%rsp)`).
//! Source: systemtap wiki, UserSpaceProbeImplementation.

use object::{Object, ObjectSection};

use super::error::ResolveError;
use super::program::Operand;
use super::variable::variable;
use crate::arch::operand;
use crate::binary::elf::Binary;
use crate::spec::expr::Type;
use crate::terminal::shown;

/// A USDT probe of a binary, as in its note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub provider: String,
    pub name: String,
    /// Virtual address of the nop in the file.
    pub address: u64,
    /// Virtual address of the semaphore; 0: none.
    pub semaphore: u64,
    /// Arguments as written by the compiler.
    pub arguments: String,
}

/// One location of a USDT probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site {
    pub address: u64,
    /// Offset in the file of the semaphore, 0: none.
    pub semaphore_offset: u64,
}

/// Sites of a USDT probe with the same operands.
#[derive(Debug)]
pub(super) struct UsdtSites {
    pub sites: Vec<Site>,
    /// Location of each argument, or why it can't be read.
    pub operands: Vec<Result<Operand, String>>,
}

/// Every USDT probe of a binary. Damaged notes are skipped.
#[must_use]
pub(crate) fn notes(binary: &Binary) -> Vec<Note> {
    let Some(file) = binary.elf() else {
        return Vec::new();
    };
    let Some(section) = file.section_by_name(".note.stapsdt") else {
        return Vec::new();
    };
    let Ok(data) = section.data() else {
        return Vec::new();
    };
    let base = file.section_by_name(".stapsdt.base").map(|s| s.address());
    let mut rest = data;
    let mut found = Vec::new();
    while let Some((note, tail)) = split_note(rest) {
        found.extend(parse(note, base));
        rest = tail;
    }
    found
}

/// Splits the description of the first note from the rest. Empty for notes of other owners.
fn split_note(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let word = |at: usize| {
        let bytes = data.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    let (name_size, size, kind) = (word(0)?, word(4)?, word(8)?);
    let start = 12_usize
        .checked_add(name_size)?
        .checked_next_multiple_of(4)?;
    let end = start.checked_add(size)?;
    let description = data.get(start..end)?;
    let next = end.checked_next_multiple_of(4)?.min(data.len());
    let ours = data.get(12..12 + name_size)? == b"stapsdt\0" && kind == 3;
    Some((if ours { description } else { &[] }, &data[next..]))
}

/// Three addresses, three strings. The addresses are as they were when the section `.stapsdt.base` lay at
/// the second of them (prelink moves it).
fn parse(note: &[u8], base: Option<u64>) -> Option<Note> {
    let word = |at: usize| Some(u64::from_le_bytes(note.get(at..at + 8)?.try_into().ok()?));
    let moved = base.map_or(0, |base| base.wrapping_sub(word(8).unwrap_or(base)));
    let mut strings = note
        .get(24..)?
        .split(|byte| *byte == 0)
        .map(|text| shown(&String::from_utf8_lossy(text)).into_owned());
    let semaphore = word(16)?;
    Some(Note {
        provider: strings.next()?,
        name: strings.next()?,
        address: word(0)?.wrapping_add(moved),
        semaphore: if semaphore == 0 {
            0
        } else {
            semaphore.wrapping_add(moved)
        },
        arguments: strings.next()?,
    })
}

/// All sites of one probe, at least one, grouped by equal operands.
pub(super) fn find(
    binary: &Binary,
    provider: &str,
    name: &str,
) -> Result<Vec<UsdtSites>, ResolveError> {
    let notes = notes(binary);
    let any = !notes.is_empty();
    let mut found: Vec<UsdtSites> = Vec::new();
    let matching = |note: &&Note| note.provider == provider && note.name == name;
    for note in notes.iter().filter(matching) {
        let site = Site {
            address: note.address,
            semaphore_offset: binary.file_offset(note.semaphore).unwrap_or(0),
        };
        let variable = |name: &str| {
            let address = variable(binary, name, false).ok()?;
            Some(address.cast_signed() - note.address.cast_signed())
        };
        let operands = operands_at(&note.arguments, &variable);
        match found.iter_mut().find(|it| it.operands == operands) {
            Some(alike) => alike.sites.push(site),
            None => found.push(UsdtSites {
                sites: vec![site],
                operands,
            }),
        }
    }
    if found.is_empty() {
        return Err(ResolveError::Usdt {
            name: format!("{provider}:{name}"),
            path: binary.path.clone(),
            any,
        });
    }
    Ok(found)
}

/// The operands of an argument string, whatever variables it names.
#[cfg(any(test, fuzzing))]
#[must_use]
pub fn operands(arguments: &str) -> Vec<Result<Operand, String>> {
    operands_at(arguments, &|_| None)
}

/// Distance of a variable from the probed instruction, by its name.
type Distance<'a> = dyn Fn(&str) -> Option<i64> + 'a;

fn operands_at(arguments: &str, variable: &Distance<'_>) -> Vec<Result<Operand, String>> {
    split(arguments)
        .iter()
        .map(|text| {
            operand(text, variable).ok_or_else(|| {
                if text
                    .split_once('@')
                    .is_some_and(|(size, _)| size.ends_with('f'))
                {
                    format!("'{text}' is a floating-point number")
                } else {
                    format!("'{text}' is no register, constant, variable or stack slot")
                }
            })
        })
        .collect()
}

/// Splits at blanks outside parentheses and brackets.
fn split(arguments: &str) -> Vec<String> {
    let mut list = vec![String::new()];
    let mut depth = 0_i32;
    for c in arguments.chars() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ => {}
        }
        if c.is_whitespace() && depth <= 0 {
            list.push(String::new());
        } else if let Some(last) = list.last_mut() {
            last.push(c);
        }
    }
    list.retain(|text| !text.is_empty());
    list
}

/// Parses `SIZE@PLACE`, with a place as the architecture's assembler writes it; a negative size means signed. Indexed
/// addresses are not supported: they need two registers.
fn operand(text: &str, variable: &Distance<'_>) -> Option<Operand> {
    let (size, place) = text.split_once('@')?;
    let r#type = match size {
        "1" => Type::Unsigned(1),
        "2" => Type::Unsigned(2),
        "4" => Type::Unsigned(4),
        "8" => Type::Unsigned(8),
        "-1" => Type::Signed(1),
        "-2" => Type::Signed(2),
        "-4" => Type::Signed(4),
        "-8" => Type::Signed(8),
        _ => return None,
    };
    let (register, offsets) = operand::place(place, variable)?;
    Some(Operand {
        register,
        offsets,
        r#type,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::arch::Register;

    /// The operand forms that compilers write.
    #[test]
    fn operand_forms() {
        let variable = |name: &str| (name == "x").then_some(0x100);
        let list = operands_at(
            "8@%rdi -4@%r8d 4@-20(%rbp) 8@(%rax) 4@$5 -1@$-3 8@x(%rip) 8@x+8(%rip) 8@-8+x(%rip) 8@x-4(%rip) \
             8@y(%rip) 8@(%rax,%rbx,8) 8f@%xmm0 4@x(%rax)",
            &variable,
        );
        let ok = |n: usize| list[n].clone().expect("readable");
        let name = |n: usize| ok(n).register.map(Register::name);
        assert_eq!((name(0), ok(0).r#type), (Some("rdi"), Type::Unsigned(8)));
        assert_eq!((name(1), ok(1).r#type), (Some("r8"), Type::Signed(4)));
        assert_eq!((name(2), ok(2).offsets), (Some("rbp"), vec![-20, 0]));
        assert_eq!(ok(3).offsets, [0, 0]);
        assert_eq!((name(4), ok(4).offsets), (None, vec![5]));
        assert_eq!((ok(5).offsets, ok(5).r#type), (vec![-3], Type::Signed(1)));
        let distances: Vec<i64> = (6..10).map(|n| ok(n).offsets[0]).collect();
        assert_eq!(distances, [0x100, 0x108, 0xf8, 0xfc]);
        assert!((6..10).all(|n| name(n) == Some("rip")));
        assert!(list[10..].iter().all(Result::is_err));
        assert!(list[12].clone().expect_err("float").contains("floating"));
        assert_eq!(list.len(), 14);
    }

    /// The C++ library has USDT probes: their arguments are found and the nops are code.
    #[test]
    fn stock_library() {
        let path = crate::binary::locate::find_library("libstdc++.so.6").expect("installed");
        let library = Binary::open(&path).expect("library");
        let notes = notes(&library);
        let throw = notes
            .iter()
            .find(|n| n.provider == "libstdcxx" && n.name == "throw")
            .expect("listed");
        assert!(
            operands(&throw.arguments).iter().all(Result::is_ok),
            "{throw:?}"
        );
        assert!(notes.iter().all(|n| library.is_code(n.address)));
        assert!(find(&library, "libstdcxx", "catch").is_ok());
        let error = find(&library, "libstdcxx", "no").expect_err("missing");
        assert!(!error.to_string().contains("has none"));
    }

    proptest! {
        /// No bytes make the reader panic.
        #[test]
        fn any_bytes(data in proptest::collection::vec(any::<u8>(), 0..200), text in "\\PC*") {
            let mut rest = &data[..];
            while let Some((note, tail)) = split_note(rest) {
                let _ = parse(note, Some(7));
                rest = tail;
            }
            let _ = operands(&text);
        }
    }
}
