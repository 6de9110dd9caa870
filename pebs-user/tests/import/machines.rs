//! Recordings of other machines: addresses, times and names are imported; what needs their machine code is left out.

use pebs_user::store::schema::{functions, samples};

use crate::fixture;
use crate::piped::Piped;
use crate::run::Import;

const MMAP: (u32, u16) = (1, 2);
const SAMPLE: (u32, u16) = (9, 2);
const FEATURE: (u32, u16) = (80, 0);

/// `HEADER_ARCH`.
const ARCH: u64 = 6;

/// IP, TID, TIME; and CALLCHAIN, REGS_USER, STACK_USER: as of `--call-graph dwarf`.
const FIELDS: u64 = 1 | 2 | 4 | 1 << 5 | 1 << 12 | 1 << 13;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const THREAD: u64 = 10 | 10 << 32;
const USER_CONTEXT: u64 = -512_i64 as u64;

/// A clock of a machine of that name, whose samples have a copied stack.
fn clock(arch: &str) -> Piped {
    let mut piped = Piped::new();
    piped.attr([1, 0, 10_000], (FIELDS, SAMPLE_ID_ALL), 1);
    let mut name = arch.as_bytes().to_vec();
    name.resize(64, 0);
    let body = [&ARCH.to_ne_bytes()[..], &64_u32.to_ne_bytes(), &name].concat();
    piped.record(FEATURE, &body);
    piped
}

/// Addresses keep their mode, and the file that they are mapped from, whatever the machine; a stack that was copied
/// there ends at its innermost frame, with a note.
#[test]
fn others() {
    for arch in ["aarch64", "riscv64", "ppc64le"] {
        if arch == std::env::consts::ARCH {
            continue;
        }
        let mut piped = clock(arch);
        let name = u64::from_ne_bytes(*b"/bin/a\0\0");
        piped.words(MMAP, &[THREAD, 0x1000, 0x1000, 0, name, THREAD, 1_000_000]);
        for n in 0..10 {
            let ip = 0x1800;
            // One frame of the chain; the registers' ABI is none; 8 bytes of stack, all of them copied.
            let body = [
                ip,
                THREAD,
                1_000_000 + n * 10_000,
                2,
                USER_CONTEXT,
                ip,
                0,
                8,
                7,
                8,
            ];
            piped.words(SAMPLE, &body);
        }
        let import = Import::of_bytes(&piped.0, &[]);
        assert_eq!(import.code, 0, "{arch}: {}", import.stderr);
        let trace = import.trace();
        let expected = format!("stacks that were copied on {arch}");
        let notes = trace.info.notes.join("\n");
        assert!(notes.contains(&expected), "{notes}");
        let mut ips = Vec::new();
        samples::each(&trace, |row| ips.push(row.ip)).unwrap();
        assert_eq!(ips, [0x1800; 10]);
        let mut modules = Vec::new();
        functions::each(&trace, |row| {
            modules.push(row.module.map(|it| it.to_string()));
        })
        .unwrap();
        assert_eq!(modules, [Some("/bin/a".to_owned())]);
    }
}

/// A recording of real hardware of another architecture: samples in the kernel and in programs.
#[test]
fn of_real_hardware() {
    let Some(path) = fixture("mstange.sleep.compressed") else {
        return;
    };
    let import = Import::of(&path, &[]);
    assert_eq!(import.code, 0, "{}", import.stderr);
    let trace = import.trace();
    assert!(!trace.info.host.kernel.is_empty());
    let mut modes = [0, 0];
    samples::each(&trace, |row| modes[usize::from(row.ip >> 63 == 1)] += 1).unwrap();
    assert_eq!(modes.iter().sum::<i32>(), 8);
    assert!(modes[1] > 0, "{modes:?}");
}
