//! Unwinds copied user stacks by the unwind tables of the binaries.
//!
//! Stacks are unwound as they arrive, ahead of the frontier up to which the symbolizer knows the mappings, so that their
//! bytes need not be kept. So mappings are kept here, too, as of the events that have arrived.
//!
//! Nothing is guessed. A stack ends where no table has a rule, where a rule needs what was not copied, or where a return
//! address is in no code; why is counted. Only code made at run time, which has no table, is taken to keep frame pointers.

use std::time::Instant;

use pebs_common::record::MAX_FRAMES;
use rustc_hash::FxHashMap;

use super::space::{SPACES_KEPT, Spaces};
use super::{MAPS_AGAIN, Symbolizer};
use crate::arch::unwind::{IP_OF_PERF, IP_OF_PT_REGS, OF_PERF, OF_PT_REGS, REGISTERS, is_wide};
use crate::binary::mapping::Backing;
use crate::binary::proc_maps::proc_maps;
use crate::binary::unwind::{FrameRule, NoCaller, NoTables, Registers, StackCopy, step};
use crate::store::run::UnwoundStacks;
use crate::stream::decode::UserCopy;
use crate::stream::sideband::SidebandKind;
use crate::units::{Ip, Pid, TraceNs};

/// A user stack to be unwound.
#[derive(Clone, Copy, Debug)]
pub struct UserStack<'a> {
    /// More exact instruction pointer of the innermost frame.
    pub ip: Option<u64>,
    registers: Registers,
    memory: StackCopy<'a>,
}

impl<'a> UserStack<'a> {
    /// A stack by the registers of the kernel's `struct pt_regs`; `None` for code that is not of 64 bits.
    #[must_use]
    pub fn of_copy(copy: &UserCopy<'a>) -> Option<Self> {
        let words = &copy.registers;
        if !is_wide(words) {
            return None;
        }
        let numbered = OF_PT_REGS.iter().zip(words);
        let values = numbered.filter_map(|(number, value)| Some(((*number)?, *value)));
        let stack = Self::of(words[IP_OF_PT_REGS], values, copy.stack)?;
        Some(Self {
            ip: copy.ip,
            ..stack
        })
    }

    /// A stack as perf records it: the registers of a mask, the lowest first, and memory; `None` without what is needed.
    #[must_use]
    pub fn of_perf(mask: u64, values: impl Iterator<Item = u64>, bytes: &'a [u8]) -> Option<Self> {
        let places = (0..64).filter(|bit| mask >> bit & 1 == 1);
        let mut ip = None;
        let mut numbered = Vec::with_capacity(OF_PERF.len());
        for (place, value) in places.zip(values) {
            if place == IP_OF_PERF {
                ip = Some(value);
            }
            numbered.extend(OF_PERF.get(place).copied().flatten().zip(Some(value)));
        }
        Self::of(ip?, numbered.into_iter(), bytes)
    }

    /// A stack by its instruction pointer, registers by their DWARF numbers, and memory; `None` without a stack pointer.
    fn of(ip: u64, registers: impl Iterator<Item = (u8, u64)>, bytes: &'a [u8]) -> Option<Self> {
        let mut values = [None; REGISTERS];
        for (number, value) in registers {
            if let Some(place) = values.get_mut(usize::from(number)) {
                *place = Some(value);
            }
        }
        let registers = Registers { ip, values };
        let memory = StackCopy {
            start: registers.sp()?,
            bytes,
        };
        Some(Self {
            ip: None,
            registers,
            memory,
        })
    }
}

/// End of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Whole,
    TooLong,
    NotCopied,
    NoTable,
    NoCode,
    Unusable,
}

/// Code at an address.
enum Code {
    /// A binary: its module, and the offset in its file.
    Module(super::ModuleId, u64),
    /// Made at run time.
    Compiled,
    /// The kernel's, in place of a return address or of an instruction.
    OfKernel,
    None,
}

/// The unwinder, with the mappings of all processes as of the events that have arrived.
#[derive(Debug, Default)]
pub(crate) struct Unwinder {
    spaces: Spaces,
    /// Programs that a process ran before: until when, and the pid under which its mappings are kept.
    programs: FxHashMap<Pid, Vec<(TraceNs, Pid)>>,
    /// Time at which the mappings of a process were last read from it.
    maps_read: FxHashMap<Pid, Instant>,
    /// Frames of the current stack.
    frames: Vec<u64>,
    /// Ends of stacks.
    pub ended: UnwoundStacks,
}

impl Unwinder {
    /// A process event has arrived.
    pub(crate) fn on_event(&mut self, time: TraceNs, event: &SidebandKind) {
        let spaces = &mut self.spaces;
        match event {
            SidebandKind::Mapped { pid, mapping, .. } => {
                let _ = spaces.on_mapping(*pid, mapping.clone());
            }
            SidebandKind::Fork { pid, parent, .. } if pid != parent => {
                self.programs.remove(pid);
                self.maps_read.remove(pid);
                let _ = spaces.on_fork(*parent, *pid);
            }
            SidebandKind::Replaced { pid, earlier } => {
                let _ = spaces.on_fork(*pid, *earlier);
                let _ = spaces.on_exec(*pid);
                let programs = self.programs.entry(*pid).or_default();
                programs.push((time, *earlier));
            }
            SidebandKind::Comm {
                pid, exec: true, ..
            } => {
                let _ = spaces.on_exec(*pid);
            }
            SidebandKind::Exit { pid, tid } if pid.0 == tid.0 => {
                spaces.on_exit(*pid);
            }
            _ => {}
        }
    }

    /// The frames of a stack in user space, the innermost first, and whether outer ones are missing.
    ///
    /// Cost: some 100 ns a frame.
    pub(crate) fn frames(
        &mut self,
        (pid, time): (Pid, TraceNs),
        stack: &UserStack<'_>,
        symbolizer: &mut Symbolizer,
    ) -> (&[u64], bool) {
        let earlier = self.programs.get(&pid);
        let mut earlier = earlier
            .into_iter()
            .flatten()
            .filter(|(until, _)| time < *until);
        let program = earlier.next().map_or(pid, |(_, program)| *program);
        self.frames.clear();
        let end = self.follow(program, stack, symbolizer);
        if let (Some(first), Some(ip)) = (self.frames.first_mut(), stack.ip) {
            *first = ip;
        }
        let count = match end {
            End::Whole => &mut self.ended.whole,
            End::TooLong => &mut self.ended.too_long,
            End::NotCopied => &mut self.ended.not_copied,
            End::NoTable => &mut self.ended.no_table,
            End::NoCode => &mut self.ended.no_code,
            End::Unusable => &mut self.ended.unusable,
        };
        *count += 1;
        (&self.frames, end != End::Whole)
    }

    fn follow(&mut self, pid: Pid, stack: &UserStack<'_>, symbolizer: &mut Symbolizer) -> End {
        let mut registers = stack.registers;
        // Whether the address is that of an instruction, not the one behind a call.
        let mut exact = true;
        loop {
            let place = match exact {
                true => registers.ip,
                false => registers.ip.wrapping_sub(1),
            };
            let code = self.code(pid, place, symbolizer);
            let is_first = self.frames.is_empty();
            if !is_first && matches!(code, Code::None | Code::OfKernel) {
                return End::NoCode;
            }
            if self.frames.len() >= MAX_FRAMES {
                return End::TooLong;
            }
            // Callers are looked up before their address.
            let is_behind_call = is_first || !exact;
            let frame = registers.ip.wrapping_add(u64::from(!is_behind_call));
            self.frames.push(frame);
            let found = match code {
                Code::Module(module, offset) => {
                    let module = symbolizer.modules.get_mut(module);
                    module.unwind(offset, &mut registers, &stack.memory)
                }
                Code::Compiled => {
                    let rule = FrameRule::of_frame_pointer();
                    let found = step(&NoTables, &rule, &mut registers, &stack.memory);
                    found.map(|()| false).map_err(Some)
                }
                Code::None | Code::OfKernel => Err(None),
            };
            exact = match found {
                Ok(is_signal) => is_signal,
                Err(Some(NoCaller::Outermost)) => return End::Whole,
                Err(Some(NoCaller::NotCopied)) => return End::NotCopied,
                Err(Some(NoCaller::Unusable)) => return End::Unusable,
                Err(None) => return End::NoTable,
            };
        }
    }

    /// Returns the code at an address; reads the process's mappings if some may be missing.
    fn code(&mut self, pid: Pid, address: u64, symbolizer: &mut Symbolizer) -> Code {
        match self.code_known(pid, address, symbolizer) {
            Code::None if !Ip(address).is_kernel() && self.may_read(pid, symbolizer) => {
                if let Some(mappings) = proc_maps(pid) {
                    let _ = self.spaces.replace(pid, mappings);
                }
                if self.maps_read.len() >= SPACES_KEPT {
                    self.maps_read.clear();
                }
                self.maps_read.insert(pid, Instant::now());
                self.code_known(pid, address, symbolizer)
            }
            code => code,
        }
    }

    fn may_read(&self, pid: Pid, symbolizer: &Symbolizer) -> bool {
        let read = self.maps_read.get(&pid);
        symbolizer.is_live
            && !self.spaces.has_exited(pid)
            && read.is_none_or(|read| read.elapsed() >= MAPS_AGAIN)
    }

    fn code_known(&mut self, pid: Pid, address: u64, symbolizer: &mut Symbolizer) -> Code {
        let Some(mapped) = self.spaces.find(pid, address) else {
            return Code::None;
        };
        let offset = mapped.mapping.file_offset(address);
        match (mapped.module, &mapped.mapping.backing) {
            (Some(module), _) => Code::Module(module, offset),
            (None, Backing::Anonymous) => Code::Compiled,
            (None, Backing::Uprobes | Backing::UprobesTrampoline | Backing::Vsyscall) => {
                Code::OfKernel
            }
            (None, Backing::File(_) | Backing::Vdso) => {
                let module = symbolizer.modules.of_mapping(pid, &mapped.mapping);
                self.spaces.set_module(pid, address, module);
                Code::Module(module, offset)
            }
        }
    }
}
