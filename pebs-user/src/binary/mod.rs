//! What binaries and processes say about themselves: ELF, DWARF and unwind tables, debug files, names, `/proc`.
//!
//! Two readers lie side by side. Probes are placed by whole files in memory ([`elf`], [`dwarf`], [`debug_data`]); samples
//! are named from open files of which only what is needed is read ([`elf_image`], [`debug_file`], [`eh_frame`]).
//!
//! Nothing here is trusted: no bytes make a reader panic or hang.

pub(crate) mod locate;
pub(crate) mod mapping;
pub(crate) mod open;
pub(crate) mod proc_maps;
pub(crate) mod process;
pub(crate) mod run_as;

pub(crate) mod bus_error;
pub(crate) mod eh_frame;
pub(crate) mod elf;
pub(crate) mod elf_image;
pub(crate) mod frames;
pub(crate) mod object_file;
pub(crate) mod pclntab;
pub(crate) mod symbols;

pub(crate) mod debug_data;
pub(crate) mod debug_file;
pub(crate) mod debuginfod;
pub(crate) mod dwarf;
pub(crate) mod go;
pub(crate) mod inlined;
pub(crate) mod parameters;
pub(crate) mod units;

pub(crate) mod demangle;
pub(crate) mod lookup;

#[cfg(test)]
pub(crate) mod testing;
