//! pebs-trace's own work in the kernel, represented by one function of the module [`OWN_MODULE`].
//!
//! The kernel's work at a mark is known by how it was entered: the samples say so, whatever function runs, and
//! so are the kernel's pages in user space that marks use. What is found here is the rest, by name: work elsewhere, as
//! of programs at switches and for new mappings of probed files, and all work where samples don't say how the kernel was
//! entered (`bulk`, imported marks). Programs are known by their symbols, which begin with the hash of the loaded code;
//! functions that run only for probes, for tracing programs and for counting software events by their names. Where
//! samples say that the kernel was entered by a breakpoint of another tool, names say nothing: only programs do. Else
//! another tool that traces the same thread can't be told apart.

use super::functions::{Description, Functions};
use crate::store::schema::OWN_MODULE;
use crate::units::FunctionId;

/// Name of the function.
const NAME: &str = "own marks and samples";

/// Beginnings of the names of functions that run for uprobes, tracing programs and perf's software events alone.
const NAMES: [&str; 22] = [
    "uprobe_",
    "__uprobe_",
    "uretprobe_",
    "handler_chain",
    "handle_swbp",
    "handle_uretprobe_chain",
    "find_active_uprobe",
    "find_uprobe",
    "arch_uprobe_",
    "arch_uretprobe_",
    "push_emulate_op",
    "branch_emulate_op",
    "emulate_push_stack",
    "perf_swevent_",
    "___perf_sw_event",
    "__perf_sw_event",
    "bpf_get_attach_cookie_",
    "bpf_probe_read_",
    "bpf_ringbuf_",
    "__bpf_ringbuf_",
    "copy_from_user_nofault",
    "copy_from_kernel_nofault",
];

/// Recognises pebs-trace's own work.
#[derive(Debug, Default)]
pub(super) struct OwnFunctions {
    /// Prefixes of its programs' symbols; `None`: nothing is own work, as another tool recorded.
    programs: Option<Vec<String>>,
    function: Option<FunctionId>,
}

impl OwnFunctions {
    pub(super) const fn new(programs: Option<Vec<String>>) -> Self {
        Self {
            programs,
            function: None,
        }
    }

    /// Whether own work is known.
    pub(super) const fn is_known(&self) -> bool {
        self.programs.is_some()
    }

    /// Whether a kernel symbol belongs to own work.
    pub(super) fn is(&self, symbol: &str) -> bool {
        let is_named = || NAMES.into_iter().any(|name| symbol.starts_with(name));
        self.is_known() && (is_named() || self.is_program(symbol))
    }

    /// Whether a kernel symbol is one of pebs-trace's own programs.
    pub(super) fn is_program(&self, symbol: &str) -> bool {
        let mut programs = self.programs.iter().flatten();
        programs.any(|it| symbol.starts_with(it.as_str()))
    }

    /// Whether the function is that of own work.
    pub(super) fn has_function(&self, function: FunctionId) -> bool {
        self.function == Some(function)
    }

    pub(super) fn function(&mut self, functions: &mut Functions) -> FunctionId {
        *self.function.get_or_insert_with(|| {
            functions.add(Description {
                name: Some(NAME.to_owned()),
                module: Some(OWN_MODULE.to_owned()),
                kernel: true,
                ..Description::default()
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs are known by their hash, kernel functions by name; in another tool's recording nothing is own work.
    #[test]
    fn what_is_own() {
        let own = OwnFunctions::new(Some(vec!["bpf_prog_fe1c64a6f4681aea_".to_owned()]));
        let is = |name: &str| own.is(name);
        assert!(is("bpf_prog_fe1c64a6f4681aea_mark") && is("uprobe_notify_resume"));
        assert!(!is("bpf_prog_0000000000000001_mark") && !is("irqentry_exit_to_user_mode"));
        assert!(!is("clear_page") && !is("handle_mm_fault") && !is("perf_prepare_sample"));
        assert!(!OwnFunctions::default().is("uprobe_notify_resume"));
        assert!(own.is_program("bpf_prog_fe1c64a6f4681aea_mark"));
        assert!(!own.is_program("uprobe_notify_resume"));
    }
}
