//! The functions found so far.

use crate::store::schema::FunctionRow;
use crate::units::FunctionId;

/// Longest name kept, in bytes. Template instances reach some KiB; beyond is hostile or useless.
pub const NAME_MAX: usize = 4096;

/// What is known about a function before it has its number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Name; `None`: unresolved.
    pub name: Option<String>,
    /// Module.
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
    /// Inlined into another function.
    pub inlined: bool,
}

/// Gives functions their numbers, from 0 without gaps, and keeps the rows until they are taken.
#[derive(Debug, Default)]
pub struct Functions {
    resolved: Vec<bool>,
    /// Those of the kernel's that switch to another thread; few.
    scheduling: Vec<FunctionId>,
    fresh: Vec<FunctionRow>,
}

impl Functions {
    /// Numbers a function. Names beyond [`NAME_MAX`] are cut.
    pub fn add(&mut self, description: Description) -> FunctionId {
        // More than u32::MAX rows can't exist: each takes over 100 bytes.
        let function_id = FunctionId(u32::try_from(self.resolved.len()).unwrap_or(u32::MAX));
        let name = description.name.map(cut);
        self.resolved.push(name.is_some());
        if description.kernel && name.as_deref().is_some_and(is_scheduling) {
            self.scheduling.push(function_id);
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
        });
        function_id
    }

    /// Whether the function has a name.
    #[must_use]
    pub fn is_resolved(&self, function: FunctionId) -> bool {
        self.resolved
            .get(function.0 as usize)
            .copied()
            .unwrap_or(false)
    }

    /// Whether the function is one by which a thread of the kernel gives up the CPU.
    #[must_use]
    pub fn is_scheduling(&self, function: FunctionId) -> bool {
        self.scheduling.contains(&function)
    }

    /// Moves the rows made since the last call to the end of `out`.
    pub fn take_new(&mut self, out: &mut Vec<FunctionRow>) {
        out.append(&mut self.fresh);
    }
}

/// Whether a function of the kernel's does nothing but give up the CPU: what called it is why.
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

    /// Rows come out once, numbered in order; only a name makes a function resolved.
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

    /// Functions that give up the CPU are known by their names, if they are the kernel's.
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
