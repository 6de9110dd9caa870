//! Uprobes as perf events.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use perf_event_open_sys::bindings::perf_event_attr;

use super::{Attempt, Keeper, OpenError, PerfEvent};
use crate::pmu::attr::READ_FORMAT;
use crate::pmu::bits::BitField;
use crate::pmu::sysfs::UprobePmu;
use crate::units::Pid;

/// Hit of an instruction that makes a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum UprobeAt {
    /// The instruction itself: the kernel's uprobe.
    Instruction,
    /// The return of the function entered at the instruction: the kernel's uretprobe. Not safe on
    /// targets that unwind through the frame.
    Return,
}

/// The place to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UprobeSite {
    /// Binary; processes that map this file are hit.
    pub path: PathBuf,
    /// Offset of the instruction in the file, bytes; not an address.
    pub file_offset: u64,
    /// Hit that makes a mark.
    pub at: UprobeAt,
    /// File offset of a USDT semaphore, which the kernel increments while the probe exists.
    pub semaphore: Option<u64>,
}

impl fmt::Display for UprobeSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.at {
            UprobeAt::Instruction => "uprobe",
            UprobeAt::Return => "uretprobe",
        };
        write!(
            f,
            "{kind} at {}+{:#x}",
            self.path.display(),
            self.file_offset
        )
    }
}

/// Processes whose hits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum UprobeScope {
    /// Every process that maps the file, now or later.
    Everyone,
    /// All threads of one process, but not its children.
    Process(Pid),
}

/// The `pid` and `cpu` arguments of [`UprobeScope::Everyone`].
const EVERYONE: (libc::pid_t, libc::c_int) = (-1, 0);

/// Places an uprobe. It fires as soon as a program is attached; no enabling is needed. Closing it detaches its
/// program; it is removed with the keeper.
///
/// # Errors
/// Names the probe that could not be placed, and the reason.
/// Source: kernel/trace/trace_event_perf.c (`perf_uprobe_init`), kernel/events/core.c.
#[doc(alias = "perf_uprobe")]
pub(crate) fn open_uprobe(
    keeper: &mut Keeper,
    pmu: &UprobePmu,
    site: &UprobeSite,
    scope: UprobeScope,
) -> Result<PerfEvent, OpenError> {
    let target = match scope {
        UprobeScope::Everyone => EVERYONE,
        UprobeScope::Process(pid) => (pid.0.cast_signed(), -1),
    };
    let opened = attr_and_path(pmu, site).and_then(|(attr, path)| {
        let (fd, kept) = keeper.open(&attr, &path, target)?;
        Ok(PerfEvent {
            fd,
            _leader: None,
            _kept: Some(kept),
            target: None,
        })
    });
    opened.map_err(|error| {
        let what = match scope {
            UprobeScope::Everyone => site.to_string(),
            UprobeScope::Process(pid) => format!("{site} in process {}", pid.0),
        };
        OpenError::new(Attempt::Uprobe, what, &error)
    })
}

/// Checks whether this process may place uprobes: some kernels require `CAP_SYS_ADMIN`, others `CAP_PERFMON`. Tries
/// an impossible place, which the kernel checks after the permissions.
///
/// # Errors
/// `PermissionDenied` if it may not.
/// Source: kernel/events/core.c (`perf_uprobe_event_init`).
pub(crate) fn may_place(pmu: &UprobePmu) -> io::Result<()> {
    let directory = UprobeSite {
        path: PathBuf::from("/"),
        file_offset: 0,
        at: UprobeAt::Instruction,
        semaphore: None,
    };
    let (pid, cpu) = EVERYONE;
    let opened = attr_and_path(pmu, &directory).and_then(|(mut attr, path)| {
        attr.uprobe_path = path.as_ptr() as u64;
        PerfEvent::open_raw(&attr, pid, cpu)
    });
    match opened {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        _ => Ok(()),
    }
}

/// The attr of a site, without its path, and that.
fn attr_and_path(pmu: &UprobePmu, site: &UprobeSite) -> io::Result<(perf_event_attr, CString)> {
    let path = CString::new(site.path.as_os_str().as_bytes())?;
    let mut attr = perf_event_attr {
        type_: pmu.kind,
        config: config(pmu, site)?,
        read_format: READ_FORMAT,
        ..perf_event_attr::default()
    };
    attr.probe_offset = site.file_offset;
    Ok((attr, path))
}

fn config(pmu: &UprobePmu, site: &UprobeSite) -> io::Result<u64> {
    let bits = |field: &BitField, value| field.encode(value).map_err(io::Error::other);
    let retprobe = match site.at {
        UprobeAt::Instruction => 0,
        UprobeAt::Return => bits(&pmu.retprobe, 1)?,
    };
    let semaphore = match (site.semaphore, &pmu.semaphore) {
        (None, _) => 0,
        (Some(offset), Some(field)) => bits(field, offset)?,
        (Some(_), None) => return Err(io::Error::other("this kernel has no probe semaphores")),
    };
    Ok(retprobe | semaphore)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::failure::Hint as _;

    fn pmu() -> UprobePmu {
        UprobePmu {
            kind: 8,
            retprobe: BitField::parse("config:0").unwrap(),
            semaphore: BitField::parse("config:32-63"),
        }
    }

    fn site(at: UprobeAt, semaphore: Option<u64>) -> UprobeSite {
        let path = PathBuf::from("/no/such/file");
        UprobeSite {
            path,
            file_offset: 0x40,
            at,
            semaphore,
        }
    }

    /// Return and semaphore go into the bits that sysfs names.
    #[test]
    fn config_bits() {
        let config = |at, semaphore| config(&pmu(), &site(at, semaphore)).unwrap();
        assert_eq!(config(UprobeAt::Instruction, None), 0);
        assert_eq!(config(UprobeAt::Return, None), 1);
        assert_eq!(config(UprobeAt::Return, Some(0x10)), 0x10_0000_0001);
    }

    /// A semaphore that does not fit the bits is an error, never truncated.
    #[test]
    fn semaphore_overflow() {
        let error = config(&pmu(), &site(UprobeAt::Instruction, Some(1 << 32))).unwrap_err();
        assert!(error.to_string().contains("config:32-63"), "{error}");
    }

    /// A missing file is reported as missing, on the running kernel.
    #[test]
    fn missing_file() {
        let Some(pmu) = UprobePmu::read(Path::new("/")) else {
            eprintln!("SKIP no uprobe PMU");
            return;
        };
        let site = site(UprobeAt::Instruction, None);
        let mut keeper = Keeper::start().unwrap();
        let error = open_uprobe(&mut keeper, &pmu, &site, UprobeScope::Everyone).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("cannot place uprobe at /no/such/file+0x40: "),
            "{text}"
        );
        assert!(error.hint().is_some());
    }
}
