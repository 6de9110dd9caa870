//! Finds out whether a program at a probe may do the probed instruction in place of the kernel.
//!
//! Kernels that can do so (Linux 6.19) accept programs that change registers, and leave the instruction alone if the
//! program moved the target on. Both are tried on a function of our own, of whose two instructions a program skips the
//! second; a kernel that accepts the program and executes the instruction nevertheless does no harm.
#![expect(
    unsafe_code,
    reason = "loads a program by the bpf system call, and calls a function written in assembly"
)]

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;

use super::calibrate::place_of;
use crate::arch::work::{IP, SKIPPED};
use crate::pmu::open::{Keeper, UprobeAt, UprobeScope, UprobeSite, open_uprobe};
use crate::pmu::sysfs::UprobePmu;
use crate::units::Pid;

unsafe extern "C" {
    /// 1, or 0 if its second instruction is skipped.
    fn pebs_stepping() -> u32;
    fn pebs_stepping_skipped();
}

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_TYPE_KPROBE: u32 = 2;

/// `struct bpf_insn`; the registers are the low and the high half of a byte.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// `prog_load` of `union bpf_attr` up to the license. Source: include/uapi/linux/bpf.h.
#[repr(C)]
struct ProgramLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
}

/// Moves the target behind the instruction.
const PROGRAM: [Instruction; 5] = {
    const fn instruction(code: u8, registers: u8, offset: i16, immediate: i32) -> Instruction {
        Instruction {
            code,
            registers,
            offset,
            immediate,
        }
    }
    [
        // r2 = *(u64 *)(r1 + IP); r2 += SKIPPED; *(u64 *)(r1 + IP) = r2; r0 = 0; exit
        instruction(0x79, 0x12, IP, 0),
        instruction(0x07, 0x02, 0, SKIPPED),
        instruction(0x7b, 0x21, IP, 0),
        instruction(0xb7, 0x00, 0, 0),
        instruction(0x95, 0x00, 0, 0),
    ]
};

/// Whether it works here; found out once. Without the rights to place probes: no.
#[must_use]
pub(crate) fn works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    *WORKS.get_or_init(|| try_out().unwrap_or(false))
}

fn try_out() -> Option<bool> {
    let program = load().ok()?;
    let pmu = UprobePmu::read(Path::new("/"))?;
    let function: unsafe extern "C" fn() = pebs_stepping_skipped;
    let (path, file_offset) = place_of(function as usize as u64)?;
    let site = UprobeSite {
        path,
        file_offset,
        at: UprobeAt::Instruction,
        semaphore: None,
    };
    let mut keeper = Keeper::start().ok()?;
    let scope = UprobeScope::Process(Pid(std::process::id()));
    let event = open_uprobe(&mut keeper, &pmu, &site, scope).ok()?;
    let link = event.attach(program.as_fd(), Some(0)).ok()?;
    // SAFETY: the function is ours, takes nothing, and returns; with its second instruction skipped, too.
    let result = unsafe { std::hint::black_box(pebs_stepping as unsafe extern "C" fn() -> u32)() };
    drop((link, event));
    Some(result == 0)
}

/// Loads the program.
fn load() -> io::Result<OwnedFd> {
    let attr = ProgramLoad {
        prog_type: BPF_PROG_TYPE_KPROBE,
        insn_cnt: PROGRAM.len() as u32,
        insns: PROGRAM.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: 0,
    };
    // SAFETY: the attr is that of the command; the addresses in it are of constants.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_LOAD,
            &raw const attr,
            size_of::<ProgramLoad>(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::host::KernelVersion;

    /// The result fits the kernel's version; without a probe the function is whole.
    #[test]
    fn as_the_version_says() {
        // SAFETY: the function is ours, takes nothing, and returns.
        assert_eq!(unsafe { pebs_stepping() }, 1);
        if !rustix::process::geteuid().is_root() {
            println!("SKIP not root");
            return;
        }
        let name = rustix::system::uname();
        let version = KernelVersion::parse(&name.release().to_string_lossy());
        let can = version.is_some_and(|it| it >= KernelVersion(6, 19));
        assert_eq!(works(), can);
        // SAFETY: as above; the probe is gone.
        assert_eq!(unsafe { pebs_stepping() }, 1);
    }
}
