//! Readers of binaries and processes: ELF, DWARF and unwind tables, debug files, names, `/proc`.
//!
//! There are two readers. Placing probes reads whole files into memory ([`elf`], [`dwarf`], [`debug_data`]); naming
//! samples reads only the needed parts of open files ([`elf_image`], [`debug_file`], [`eh_frame`]).
//!
//! All input is untrusted: no bytes make a reader panic or hang.

pub(crate) mod build;
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
pub(crate) mod references;
pub(crate) mod symbols;
pub(crate) mod unwind;

pub(crate) mod debug_data;
pub(crate) mod debug_file;
pub(crate) mod debug_files;
pub(crate) mod debuginfod;
pub(crate) mod dwarf;
pub(crate) mod go;
pub(crate) mod inlined;
pub(crate) mod parameters;
pub(crate) mod units;

mod cpp_name;
pub(crate) mod demangle;
pub(crate) mod lookup;

#[cfg(test)]
pub(crate) mod testing;
