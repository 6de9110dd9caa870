//! Go runtime data of a program: the version, the offset of a goroutine's number, and which code is Go's.

use std::ops::Range;

use object::{Object, ObjectSection};

use super::dwarf::DebugInfo;
use super::elf::{Binary, Language};
use super::pclntab;
use super::units::{Node, Units};

/// Start of the build information. Source: src/debug/buildinfo/buildinfo.go of Go.
const MAGIC: &[u8] = b"\xff Go buildinf:";

/// Flag: the version is stored inline, since Go 1.18; else a pointer to it.
const INLINE: u8 = 2;

/// Longest version that is read, bytes.
const VERSION_MAX: u64 = 256;

/// Offsets of `goid` in `runtime.g` on 64-bit machines, by minor versions of Go 1. Go 1.23 inserted `syscallbp`
/// before it, Go 1.25 removed `ret` from `gobuf`.
/// Source: src/runtime/runtime2.go.
const GOID: [(Range<u32>, u64); 3] = [(17..23, 152), (23..25, 160), (25..27, 152)];

/// Suffix of assembly functions and of others that do not keep to Go's register ABI.
const OLD_ABI: &str = ".abi0";

/// Prefix of the runtime's functions.
const RUNTIME: &str = "runtime.";

/// Owner of the code at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// Go's, which has the current goroutine in r14.
    Go,
    /// Go's that does not: assembly, and what calls it.
    OldAbi,
    /// The runtime's own, which also runs outside of goroutines.
    Runtime,
    /// C's, or unknown.
    Other,
}

/// Layout of a Go program's goroutines.
#[derive(Clone, Debug)]
pub(crate) struct Goroutines {
    /// Offset of `goid` in `runtime.g`.
    pub goid: u64,
    /// Offset there of the frame pointer of a goroutine that does not run; `None`: unknown.
    pub frame: Option<u64>,
    /// Code of Go functions, by address.
    code: Vec<Range<u64>>,
}

impl Goroutines {
    /// Looks it up in a Go program.
    ///
    /// # Errors
    /// The unknown part, as the end of a sentence.
    pub(crate) fn of(binary: &Binary) -> Result<Self, String> {
        if binary.language != Language::Go {
            return Err("it is no Go program".to_owned());
        }
        let version = version(binary);
        let minor = version.as_deref().and_then(minor_version);
        let goid = goid_offset(binary).ok_or_else(|| {
            let version = version.as_deref().unwrap_or("its version of Go");
            format!("the place of a goroutine's number in {version} is unknown")
        })?;
        let functions = binary.elf().map(|file| pclntab::functions(&file));
        let code = functions.unwrap_or_default().into_iter();
        let code: Vec<Range<u64>> = code.map(|it| it.start..it.end).collect();
        if code.is_empty() {
            return Err("its table of functions can't be read".to_owned());
        }
        let frame = minor.and_then(|minor| of_version(&SAVED_FRAME, minor));
        Ok(Self { goid, frame, code })
    }

    /// Returns the owner of the code at an address of the binary.
    pub(crate) fn code(&self, binary: &Binary, address: u64) -> Code {
        let at = self.code.partition_point(|range| range.end <= address);
        let range = self.code.get(at).filter(|it| it.contains(&address));
        let name = range.and_then(|range| binary.symbol_at(range.start));
        match range {
            None => Code::Other,
            Some(_) if name.is_some_and(|it| it.name.ends_with(OLD_ABI)) => Code::OldAbi,
            Some(_) if name.is_some_and(|it| it.name.starts_with(RUNTIME)) => Code::Runtime,
            Some(_) => Code::Go,
        }
    }
}

/// Offset of `sched.pc` in `runtime.g`: where a goroutine that does not run goes on.
pub(crate) const SAVED_PC: u64 = 64;

/// Offsets of `sched.bp`, by minor versions: see [`GOID`].
const SAVED_FRAME: [(Range<u32>, u64); 2] = [(17..25, 104), (25..27, 96)];

/// Offset of the goroutine's number in `runtime.g`; `None` if the program is stripped and its version is unknown.
pub(crate) fn goid_offset(binary: &Binary) -> Option<u64> {
    by_debug_information(binary).or_else(|| of_version(&GOID, minor_version(&version(binary)?)?))
}

fn of_version(offsets: &[(Range<u32>, u64)], minor: u32) -> Option<u64> {
    let mut offsets = offsets.iter();
    let (_, offset) = offsets.find(|(versions, _)| versions.contains(&minor))?;
    Some(*offset)
}

fn by_debug_information(binary: &Binary) -> Option<u64> {
    let info = DebugInfo::load(binary)?;
    let dwarf = info.dwarf();
    let units = Units::new(&dwarf);
    // There is one unit for the Go code of the package, and one per assembly file.
    let g = units.iter().find_map(|unit| {
        let name = unit.name.map(|name| name.to_string_lossy());
        if name.as_deref() != Some("runtime") {
            return None;
        }
        let root = Node::of(&unit, unit.header.root_offset())?;
        let is_structure = |it: &Node<'_>| it.tag() == gimli::DW_TAG_structure_type;
        let mut structures = root.children().into_iter().filter(is_structure);
        structures.find(|it| is_named(&units, it, "runtime.g"))
    })?;
    let goid = g
        .children()
        .into_iter()
        .find(|it| is_named(&units, it, "goid"))?;
    goid.attr_value(gimli::DW_AT_data_member_location)?
        .udata_value()
}

fn is_named<'a>(units: &Units<'_, 'a>, node: &Node<'a>, name: &str) -> bool {
    units.name(node).as_deref() == Some(name)
}

/// The version of Go that built a program: `go1.19.8`.
pub(crate) fn version(binary: &Binary) -> Option<String> {
    let file = binary.elf()?;
    let section = file.section_by_name(".go.buildinfo")?;
    let data = section.data().ok()?;
    let at = data.windows(MAGIC.len()).position(|it| it == MAGIC)?;
    let data = &data[at..];
    let text = if data.get(15)? & INLINE != 0 {
        // The length is one byte: versions are shorter than 128.
        let length = usize::from(*data.get(32)?);
        data.get(33..33_usize.checked_add(length)?)?
    } else {
        let word = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
        let header = word(data.get(16..24)?)?;
        let header = binary.bytes(&(header..header.checked_add(16)?));
        let start = word(header.get(..8)?)?;
        let length = word(header.get(8..16)?)?.min(VERSION_MAX);
        binary.bytes(&(start..start.checked_add(length)?))
    };
    let text = std::str::from_utf8(text).ok()?;
    text.starts_with("go")
        .then(|| crate::terminal::shown(text).into_owned())
}

/// 19 of `go1.19.8`, `go1.19rc1`, `go1.19 X:nocoverageredesign`.
fn minor_version(version: &str) -> Option<u32> {
    let rest = version.strip_prefix("go1.")?;
    let end = rest.find(|c: char| !c.is_ascii_digit());
    rest[..end.unwrap_or(rest.len())].parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::binary::parameters::parameters;

    /// The version in all forms of releases.
    #[test]
    fn versions() {
        assert_eq!(minor_version("go1.19.8"), Some(19));
        assert_eq!(minor_version("go1.25rc1"), Some(25));
        assert_eq!(minor_version("go1.22 X:boringcrypto"), Some(22));
        assert_eq!(minor_version("devel +abc"), None);
    }

    /// Debug information and the table of versions agree, a stripped program has its functions' names, and arguments are
    /// numbered by Go's registers, a string's two included.
    #[test]
    fn go_programs() {
        let folder = tempfile::tempdir().expect("folder");
        let source = "package main\n\n//go:noinline\nfunc work(s string, n int) int { return n + len(s) }\n\n\
             func main() { println(work(\"x\", 1)) }\n";
        std::fs::write(folder.path().join("main.go"), source).expect("written");
        let build = |name: &str, flags: &[&str]| {
            let mut command = Command::new("go");
            command
                .args(["build", "-o", name])
                .args(flags)
                .arg("main.go");
            command.current_dir(folder.path()).env("GOFLAGS", "");
            command.env("GOCACHE", folder.path().join("cache"));
            let done = command.status().is_ok_and(|status| status.success());
            done.then(|| Binary::open(&folder.path().join(name)).expect("readable"))
        };
        let Some(whole) = build("whole", &[]) else {
            return println!("SKIP needs go");
        };
        let known = version(&whole).expect("a version");
        let by_debug = by_debug_information(&whole);
        assert!(by_debug.is_some(), "{known}");
        let place = |binary: &Binary, name: &str| {
            let found = binary.functions.iter().find(|it| it.name == name);
            found.map(|it| it.address)
        };
        let work = place(&whole, "main.work").expect("named");
        let listed = parameters(&whole, &[work].into());
        let listed = listed[&work].iter();
        let listed: Vec<_> = listed
            .map(|it| (it.name.as_str(), it.read.as_deref()))
            .collect();
        assert_eq!(listed, [("s", None), ("n", Some("arg3"))]);
        for flags in [
            &["-ldflags=-s -w"][..],
            &["-ldflags=-s -w", "-buildmode=pie"],
        ] {
            let stripped = build("stripped", flags).expect("builds");
            assert_eq!(stripped.tables.symtab, None, "{flags:?}");
            assert_eq!(version(&stripped), Some(known.clone()));
            assert_eq!(by_debug_information(&stripped), None);
            assert_eq!(goid_offset(&stripped), by_debug, "{known}");
            let work = place(&stripped, "main.work").expect("named");
            assert!(place(&stripped, "runtime.execute").is_some());
            assert!(stripped.is_code(work));
            if flags.len() == 1 {
                assert_eq!(Some(work), place(&whole, "main.work"));
            }
            // Every function starts with the check of the stack's limit in r14.
            let code = stripped.bytes(&(work..work + 64));
            assert!(!code.is_empty());
        }
    }
}
