//! The kernel's tracepoint of system calls, as a counter of reads, writes and waits.

use std::ffi::CString;
use std::fs;
use std::io::Read as _;

use perf_event_open_sys::bindings::{self as sys, perf_event_attr};
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::calls;
use crate::pmu::attr::READ_FORMAT;
use crate::pmu::open::PerfEvent;
use crate::pmu::target::Target;
use crate::units::Tid;

/// The tracepoint of all system calls.
pub(super) const CALLS: &str = "raw_syscalls/sys_enter";

/// Mount points of tracefs on most distributions.
const MOUNTED: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// `perf_event_attr.config` of a tracepoint, such as `raw_syscalls/sys_enter`; `None` if the kernel has none, or does not let
/// this user read it.
///
/// Where tracefs is not mounted it is read by a mount of its own, in no directory, which ends with the call.
pub(super) fn id(name: &str) -> Option<u64> {
    let file = format!("events/{name}/id");
    let mut mounted = MOUNTED.iter().map(|root| format!("{root}/{file}"));
    let text = mounted
        .find_map(|path| fs::read_to_string(path).ok())
        .or_else(|| unmounted(&file))?;
    text.trim().parse().ok()
}

/// Content of a file of tracefs.
fn unmounted(file: &str) -> Option<String> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    fsconfig_create(&context).ok()?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    let root = fsmount(&context, flags, MountAttrFlags::empty()).ok()?;
    let file = openat(&root, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = String::new();
    fs::File::from(file).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Settings of a counter, by the tracepoint's number.
pub(super) fn attr(id: u64) -> perf_event_attr {
    let mut attr = perf_event_attr {
        type_: sys::PERF_TYPE_TRACEPOINT,
        config: id,
        read_format: READ_FORMAT,
        ..perf_event_attr::default()
    };
    attr.set_disabled(1);
    attr
}

/// A counter of the calls that matter, not yet enabled; `None` if the kernel refuses.
///
/// `threads`: those whose calls matter; none: all.
pub(super) fn counter(
    attr: &perf_event_attr,
    target: Target,
    threads: &[Tid],
) -> Option<PerfEvent> {
    let event = PerfEvent::open(attr, target, "raw_syscalls:sys_enter").ok()?;
    event
        .filter(&CString::new(calls::filter(threads)).ok()?)
        .ok()?;
    Some(event)
}
