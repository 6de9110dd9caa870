//! Messages for missing debug information about a function.

use std::path::Path;

use gimli::{Dwarf, Unit};

use super::Refusal;
use crate::binary::debuginfod::{self, CLIENT, Debuginfod, INSTALL};
use crate::binary::dwarf::Slice;
use crate::terminal::shown;

/// Alternative without debug information.
const OTHERWISE: &str = "write registers and offsets: *(arg1+16):u32";

/// Hint for a binary without debug information.
pub(super) fn hint(debuginfod: &Debuginfod) -> String {
    match debuginfod {
        Debuginfod::Off => format!("install its debug symbols, or {OTHERWISE}"),
        Debuginfod::NoClient => {
            format!(
                "{} is set, but {CLIENT} is not installed: {INSTALL}; or {OTHERWISE}",
                debuginfod::URLS
            )
        }
        Debuginfod::Client(_) => {
            format!("debuginfod has none either: install its debug symbols, or {OTHERWISE}")
        }
    }
}

/// Refuses information of which a part is in a file that several binaries share (`dwz -m`) and that is not here.
pub(super) fn shared(name: &Path) -> Refusal {
    (
        format!(
            "part of its debug information is in {}, shared with other binaries, which is not here",
            shown(&name.to_string_lossy())
        ),
        Some(format!(
            "install that with its debug symbols, or {OTHERWISE}"
        )),
    )
}

/// Refuses a skeleton unit, which has only the name of the file with the rest (`-gsplit-dwarf`).
pub(super) fn split_off<'a>(dwarf: &Dwarf<Slice<'a>>, unit: &Unit<Slice<'a>>) -> Option<Refusal> {
    let name = dwarf.attr_string(unit, unit.dwo_name().ok()??).ok()?;
    let name = name.to_string_lossy();
    Some((
        format!(
            "the debug information of its file is apart, in {}, and not read there",
            shown(&name)
        ),
        Some(format!("build it without -gsplit-dwarf, or {OTHERWISE}")),
    ))
}
