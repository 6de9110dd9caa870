//! Hostile binaries and files of processes, for [`crate::fuzz`].

use std::fs::File;
use std::io::Write as _;

use gimli::RunTimeEndian;
use rustix::fs::MemfdFlags;

use super::blaze::Blaze;
use super::functions::Functions;
use super::jitted::JitTable;
use super::module::{Context, Module};
use super::perf_map;
use super::space::Spaces;
use crate::binary::elf_image::{read_head, read_layout};
use crate::binary::frames::Frames;
use crate::binary::unwind::{Registers, StackCopy, step};
use crate::binary::{demangle, eh_frame, proc_maps};
use crate::stream::sideband::SidebandKind;

/// Updates address spaces like the symbolizer.
pub fn follow(spaces: &mut Spaces, event: SidebandKind) {
    let _ = match event {
        SidebandKind::Mapped { pid, mapping, .. } => spaces.on_mapping(pid, mapping),
        SidebandKind::Fork { pid, parent, .. } => spaces.on_fork(parent, pid),
        SidebandKind::Comm { pid, .. } | SidebandKind::Replaced { pid, .. } => spaces.on_exec(pid),
        SidebandKind::Exit { pid, .. } => {
            spaces.on_exit(pid);
            return;
        }
        SidebandKind::Lost { .. } => return,
    };
    let pids = [1, 2, 100].map(crate::units::Pid);
    for pid in pids {
        let mapped = spaces.mappings(pid);
        assert!(mapped.iter().all(|m| m.mapping.start < m.mapping.end));
        let disjoint = |w: &[super::space::Mapped]| w[0].mapping.end <= w[1].mapping.start;
        assert!(mapped.windows(2).all(disjoint));
    }
}

/// Functions of a mapped binary, at addresses all over its code.
pub fn symbols(data: &[u8]) {
    let Some(file) = in_memory(data) else { return };
    let Some(head) = read_head(&file) else { return };
    let layout = read_layout(&file);
    let blaze = Blaze::new(Some(&[]));
    let mut functions = Functions::default();
    let mut context = Context {
        blaze: &blaze,
        functions: &mut functions,
        innermost: true,
    };
    let segments = head.segments.clone();
    let mut module = Module::of_elf("fuzz".into(), file, head, None);
    let starts = layout.frames.iter().chain(&layout.unsized_functions);
    let starts: Vec<u64> = starts.take(4).map(|span| span.start).collect();
    for segment in segments.iter().take(2) {
        for step in 0..8 {
            let offset = segment.len / 8 * step;
            module.function(segment.offset.wrapping_add(offset), &mut context);
        }
        for start in &starts {
            let offset = start.wrapping_sub(segment.address);
            module.function(segment.offset.wrapping_add(offset), &mut context);
        }
    }
}

fn in_memory(data: &[u8]) -> Option<File> {
    let file = rustix::fs::memfd_create("fuzz", MemfdFlags::CLOEXEC).ok()?;
    let mut file = File::from(file);
    file.write_all(data).ok()?;
    Some(file)
}

/// Frame descriptions in both byte orders and address sizes.
pub fn unwind(data: &[u8]) {
    for (address_size, endian) in [(8, RunTimeEndian::Little), (4, RunTimeEndian::Big)] {
        let spans = eh_frame::function_spans(&eh_frame::Section {
            data,
            address: 0x1000,
            text: 0x500,
            address_size,
            endian,
        });
        assert!(spans.iter().all(|span| span.start < span.end));
        assert!(spans.windows(2).all(|w| w[0].end <= w[1].start));
    }
    unwind_stacks(data);
}

/// Stacks of all code that a table covers, with memory that is the table itself.
fn unwind_stacks(data: &[u8]) {
    let tables = Frames::of_section(data.to_vec(), 0x1000);
    let memory = StackCopy {
        start: 0x7000,
        bytes: data,
    };
    let starts: Vec<u64> = tables.ranges().map(|range| range.start).take(64).collect();
    for start in starts {
        let Some(rule) = tables.rule_at(start) else {
            continue;
        };
        let mut registers = Registers {
            ip: start,
            values: [Some(0x7000); 16],
        };
        let before = registers;
        if step(&tables, &rule, &mut registers, &memory).is_err() {
            assert_eq!(registers, before);
        }
    }
}

/// Lines of maps, of perf maps, and names.
pub fn process_files(data: &[u8]) {
    for mapping in proc_maps::parse_maps(data) {
        assert!(mapping.start < mapping.end);
    }
    let mut table = JitTable::default();
    for line in data.split(|byte| *byte == b'\n') {
        perf_map::push_line(&mut table, line);
        let name = String::from_utf8_lossy(line);
        let _ = demangle::demangle(&name);
    }
    table.check();
}
