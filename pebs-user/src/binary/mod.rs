//! What binaries and processes say of themselves: ELF, DWARF and unwind tables, debug files, names, `/proc`.
//!
//! Two readers lie side by side. Probes are placed by whole files in memory ([`elf`], [`dwarf`], [`debug_data`]); samples
//! are named from open files of which only what is needed is read ([`elf_image`], [`debug_file`], [`eh_frame`]).
//!
//! Nothing here is trusted: no bytes make a reader panic or hang.

pub mod locate;
pub mod mapping;
pub mod open;
pub mod proc_maps;
pub mod process;
pub mod run_as;

pub mod bus_error;
mod called;
pub mod eh_frame;
pub mod elf;
pub mod elf_image;
pub mod frames;
pub mod pclntab;
pub mod symbols;

pub mod debug_data;
pub mod debug_file;
pub mod debuginfod;
pub mod dwarf;
pub mod go;
pub mod inlined;
pub mod parameters;
pub mod register;
pub mod units;

pub mod demangle;
pub mod lookup;

#[cfg(test)]
pub(crate) mod testing;
