//! The functions found so far.

use rustc_hash::FxHashMap;
use syscalls::Sysno;

use crate::binary::demangle::NAME_MAX;
use crate::store::schema::{FunctionRow, OWN_MODULE, kernel_entry};
use crate::stream::sample::KernelEntry;
use crate::units::FunctionId;

/// A function without its number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Description {
    /// Name; `None` if unresolved.
    pub name: Option<String>,
    pub module: Option<String>,
    /// Build id in hex.
    pub build_id: Option<String>,
    /// Offset in the module's file; kernel: address.
    pub offset: Option<u64>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Source file.
    pub file: Option<String>,
    /// Source line.
    pub line: Option<u32>,
    /// Kernel code.
    pub kernel: bool,
    /// Whether it was inlined into another function.
    pub inlined: bool,
    /// Entry to the kernel in which it runs: a value of the column.
    pub kernel_entry: Option<&'static str>,
    /// System call in which it runs.
    pub system_call: Option<String>,
}

/// Assigns numbers to functions, from 0 without gaps, and keeps their rows until they are taken.
#[derive(Debug, Default)]
pub(super) struct Functions {
    resolved: Vec<bool>,
    /// Kernel functions that switch to another thread; few.
    scheduling: Vec<FunctionId>,
    /// Functions of Go's runtime that park a goroutine.
    parking: Vec<FunctionId>,
    /// Named kernel functions, except pebs-trace's own work.
    kernel: FxHashMap<FunctionId, Description>,
    /// The same by how the kernel was entered.
    entered: FxHashMap<(FunctionId, KernelEntry), FunctionId>,
    fresh: Vec<FunctionRow>,
}

impl Functions {
    /// Numbers a function. Names beyond [`NAME_MAX`] are cut.
    pub(super) fn add(&mut self, description: Description) -> FunctionId {
        let is_own = description.module.as_deref() == Some(OWN_MODULE);
        if description.kernel && description.name.is_some() && !is_own {
            let id = FunctionId(self.resolved.len() as u32);
            self.kernel.insert(id, description.clone());
        }
        // More than u32::MAX rows can't exist: each takes over 100 bytes.
        let function_id = FunctionId(u32::try_from(self.resolved.len()).unwrap_or(u32::MAX));
        let name = description.name.map(cut);
        self.resolved.push(name.is_some());
        if description.kernel && name.as_deref().is_some_and(is_scheduling) {
            self.scheduling.push(function_id);
        }
        if !description.kernel && name.as_deref().is_some_and(|it| PARKING.contains(&it)) {
            self.parking.push(function_id);
        }
        self.fresh.push(FunctionRow {
            function_id,
            name,
            module: description.module.map(cut),
            build_id: description.build_id,
            offset: description.offset,
            size: description.size,
            file: description.file.map(cut),
            line: description.line,
            kernel: description.kernel,
            inlined: description.inlined,
            kernel_entry: description.kernel_entry.map(str::to_owned),
            system_call: description.system_call,
        });
        function_id
    }

    /// The function that stands for a kernel function where the kernel was entered in this way; other functions are
    /// returned unchanged.
    pub(super) fn entered_by(&mut self, function: FunctionId, entry: KernelEntry) -> FunctionId {
        if let Some(found) = self.entered.get(&(function, entry)) {
            return *found;
        }
        let found = match self.kernel.get(&function) {
            Some(known) => {
                let description = Description {
                    kernel_entry: entry_name(entry),
                    system_call: match entry {
                        KernelEntry::SystemCall(number) => Some(system_call(number)),
                        _ => None,
                    },
                    ..known.clone()
                };
                self.add(description)
            }
            None => function,
        };
        self.entered.insert((function, entry), found);
        found
    }

    /// Whether the function has a name.
    #[must_use]
    pub(super) fn is_resolved(&self, function: FunctionId) -> bool {
        self.resolved
            .get(function.0 as usize)
            .copied()
            .unwrap_or(false)
    }

    /// Whether the kernel calls the function only to give up the CPU.
    #[must_use]
    pub(super) fn is_scheduling(&self, function: FunctionId) -> bool {
        self.scheduling.contains(&function)
    }

    /// Whether Go's runtime calls the function only to park a goroutine.
    #[must_use]
    pub(super) fn is_parking(&self, function: FunctionId) -> bool {
        self.parking.contains(&function)
    }

    /// Moves the rows made since the last call to the end of `out`.
    pub(super) fn take_new(&mut self, out: &mut Vec<FunctionRow>) {
        out.append(&mut self.fresh);
    }
}

/// The value of the column; `None` at marks, where functions are pebs-trace's own work.
const fn entry_name(entry: KernelEntry) -> Option<&'static str> {
    match entry {
        KernelEntry::SystemCall(_) => Some(kernel_entry::SYSTEM_CALL),
        KernelEntry::PageFault => Some(kernel_entry::PAGE_FAULT),
        KernelEntry::Interrupt => Some(kernel_entry::INTERRUPT),
        KernelEntry::Exception => Some(kernel_entry::EXCEPTION),
        KernelEntry::Breakpoint => Some(kernel_entry::BREAKPOINT),
        KernelEntry::Mark => None,
    }
}

/// Functions by which a goroutine parks: their caller is the reason.
const PARKING: [&str; 2] = ["runtime.gopark", "runtime.goparkunlock"];

/// The name of a system call of 64-bit code.
fn system_call(number: u16) -> String {
    let known = Sysno::new(usize::from(number));
    known.map_or_else(|| format!("call {number}"), |it| it.name().to_owned())
}

/// Whether a kernel function only gives up the CPU: its caller is then the reason.
fn is_scheduling(name: &str) -> bool {
    let name = name.trim_start_matches('_');
    let name = name.strip_prefix("io_").unwrap_or(name);
    name == "schedule" || name.starts_with("schedule_")
}

fn cut(mut text: String) -> String {
    const MARK: &str = "...";
    if text.len() > NAME_MAX {
        text.truncate(text.floor_char_boundary(NAME_MAX - MARK.len()));
        text.push_str(MARK);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel function has one more row for each system call in which it runs, and for each other way in which the
    /// kernel was entered; other functions, and own work, have not.
    #[test]
    fn ways_into_the_kernel() {
        let mut functions = Functions::default();
        let mut add = |name: Option<&str>, module: &str, kernel| {
            functions.add(Description {
                name: name.map(str::to_owned),
                module: Some(module.to_owned()),
                kernel,
                ..Description::default()
            })
        };
        let copy = add(Some("copy"), "[kernel]", true);
        let others = [
            add(None, "[kernel]", true),
            add(Some("f"), "/bin/f", false),
            add(Some("own"), OWN_MODULE, true),
        ];
        let call = KernelEntry::SystemCall;
        let [read, write] = [0, 1].map(|it| functions.entered_by(copy, call(it)));
        assert!(read != copy && write != copy && read != write);
        assert_eq!(functions.entered_by(copy, call(0)), read);
        for other in others {
            assert_eq!(functions.entered_by(other, call(0)), other);
        }
        let unknown = functions.entered_by(copy, call(510));
        let fault = functions.entered_by(copy, KernelEntry::PageFault);
        let mut rows = Vec::new();
        functions.take_new(&mut rows);
        let of = |id: FunctionId| &rows[id.0 as usize];
        let call = |id| of(id).system_call.as_deref();
        assert_eq!(
            [copy, read, write].map(call),
            [None, Some("read"), Some("write")]
        );
        assert_eq!(call(unknown), Some("call 510"));
        let entry = |id| of(id).kernel_entry.as_deref();
        assert_eq!(
            [copy, read, unknown, fault].map(entry),
            [
                None,
                Some("system call"),
                Some("system call"),
                Some("page fault")
            ]
        );
        assert_eq!(call(fault), None);
        assert_eq!((&of(read).name, of(read).kernel), (&of(copy).name, true));
    }

    /// Rows are taken once, in order of number; only functions with a name are resolved.
    #[test]
    fn rows_once() {
        let mut functions = Functions::default();
        let named = functions.add(Description {
            name: Some("f".into()),
            ..Description::default()
        });
        let unnamed = functions.add(Description::default());
        assert!(functions.is_resolved(named));
        assert!(!functions.is_resolved(unnamed));
        assert!(!functions.is_resolved(FunctionId(99)));
        let mut rows = Vec::new();
        functions.take_new(&mut rows);
        functions.take_new(&mut rows);
        let ids: Vec<_> = rows.iter().map(|row| row.function_id).collect();
        assert_eq!(ids, [FunctionId(0), FunctionId(1)]);
    }

    /// Functions that give up the CPU are recognised by name, in the kernel only.
    #[test]
    fn schedulers() {
        let mut functions = Functions::default();
        let mut is = |name: &str, kernel| {
            let id = functions.add(Description {
                name: Some(name.into()),
                kernel,
                ..Description::default()
            });
            functions.is_scheduling(id)
        };
        assert!(is("__schedule", true) && is("schedule_hrtimeout_range_clock", true));
        assert!(is("io_schedule_timeout", true));
        assert!(!is("futex_wait_queue", true) && !is("do_nanosleep", true));
        assert!(!is("schedule", false) && !is("scheduler_tick", true));
    }

    /// A giant name is cut between characters.
    #[test]
    fn giant_name() {
        let name = cut("\u{e9}".repeat(NAME_MAX));
        assert!(name.len() <= NAME_MAX && name.ends_with("..."));
        assert_eq!(cut("short".into()), "short");
    }
}
