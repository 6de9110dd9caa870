//! Functions, and waits in them, within a number of columns.

use super::human::{columns, safe};
use super::{brief, words};
use crate::compare::names::{FunctionName, file_name};
use crate::compare::wait_reason::{self, Frame, Reason};
use crate::compare::waits::{ELSEWHERE, IDLE, OTHER_ITEMS};
use crate::store::schema::{ANONYMOUS_MODULE, kernel_entry};

/// Characters of a SPEC, a function and an argument that are shown.
pub(crate) const SPEC_WIDTH: usize = 100;
/// Width below which no name is shortened.
pub(crate) const LEAST_NAME: usize = 12;
pub(crate) const NAME_WIDTH: usize = 48;
pub(crate) const ARG_WIDTH: usize = 40;

/// Between a function without a name and its nearest caller that has one.
const CALLED_FROM: &str = " called from ";

/// The reason and place of a wait in this state, by the call stack if known, within this many columns.
pub(crate) fn wait(
    state: &str,
    function: &FunctionName,
    path: &[FunctionName],
    width: usize,
) -> String {
    wait_until((state, false), function, path, width)
}

/// The same where it is known whether an interrupt ended the wait: what waits for a thread then is a timeout.
pub(crate) fn wait_until(
    (state, is_interrupt): (&str, bool),
    function: &FunctionName,
    path: &[FunctionName],
    width: usize,
) -> String {
    let stack = if path.is_empty() {
        std::slice::from_ref(function)
    } else {
        path
    };
    let frames: Vec<Frame<'_>> = stack
        .iter()
        .map(|it| Frame {
            name: it.name.as_deref(),
            module: it.module.as_deref(),
            is_kernel: it.kernel,
        })
        .collect();
    match state {
        ELSEWHERE => return "other items of the thread, or idle".to_owned(),
        OTHER_ITEMS => return "other items of the thread".to_owned(),
        IDLE => return "idle between its turns".to_owned(),
        _ => {}
    }
    let reason = wait_reason::reason(state, &frames);
    let what = match reason.why {
        Reason::Lock | Reason::Condition | Reason::OtherThread if is_interrupt => {
            "waited for a timeout"
        }
        why => words::reason(why),
    };
    let named = |at: usize| {
        let found = stack.get(at).filter(|it| **it != FunctionName::default());
        found.map(|_| called(stack, at))
    };
    let Some(place) = reason.place.and_then(named) else {
        return what.to_owned();
    };
    let left = width.saturating_sub(what.len() + " in ".len());
    match reason.caller.and_then(named) {
        // Both where there is room for both.
        Some(caller) if left >= 2 * LEAST_NAME => {
            let place = name_alone(&place, left / 2);
            let left = left.saturating_sub(columns(&place) + " <- ".len());
            let caller = name_within(&caller, left);
            format!("{what} in {place} <- {caller}")
        }
        _ => format!("{what} in {}", name_within(&place, left)),
    }
}

/// A function on a call stack; without a name, with the nearest caller that has one.
fn called(stack: &[FunctionName], at: usize) -> FunctionName {
    let mut function = stack[at].clone();
    if function.is_nameless() && function.called_from.is_none() {
        let mut named = stack[at + 1..].iter().filter(|it| !it.is_nameless());
        function.called_from = named.find_map(|it| it.name.clone());
    }
    function
}

/// A function by name and attributes; if it has no name, with the nearest caller that has one, where this is known.
pub(crate) fn name(function: &FunctionName) -> String {
    match function.called_from {
        Some(_) => name_within(function, 2 * NAME_WIDTH + CALLED_FROM.len()),
        None => name_within(function, NAME_WIDTH),
    }
}

/// The same within this many columns, without the caller where there is no room.
pub(crate) fn name_within(function: &FunctionName, width: usize) -> String {
    let alone = name_alone(function, width.min(NAME_WIDTH));
    let Some(caller) = &function.called_from else {
        return name_alone(function, width);
    };
    let room = width.saturating_sub(columns(&alone) + CALLED_FROM.len());
    let caller = brief::function(caller, room.max(LEAST_NAME));
    match columns(&caller) <= room {
        true => format!("{alone}{CALLED_FROM}{caller}"),
        false => alone,
    }
}

/// A function by name and attributes, without its caller, within this many columns.
fn name_alone(function: &FunctionName, width: usize) -> String {
    let with = |name: &str, remark: &str| {
        let room = width.saturating_sub(remark.len()).max(LEAST_NAME);
        format!("{}{remark}", brief::function(name, room))
    };
    match function {
        FunctionName {
            name: Some(name),
            kernel: true,
            system_call: Some(entry),
            ..
        }
        | FunctionName {
            name: Some(name),
            kernel: true,
            kernel_entry: Some(entry),
            ..
        } => with(name, &format!(" [kernel, {entry}]")),
        FunctionName {
            name: Some(name),
            kernel: true,
            ..
        } => with(name, " [kernel]"),
        FunctionName {
            name: Some(name),
            inlined: true,
            ..
        } => with(name, " (inlined)"),
        FunctionName {
            name: Some(name), ..
        } => with(name, ""),
        FunctionName {
            module: Some(module),
            ..
        } if module == ANONYMOUS_MODULE => "code made at run time".to_owned(),
        FunctionName {
            module: Some(module),
            ..
        } => with(file_name(module), " (no symbol)"),
        _ => "unknown function".to_owned(),
    }
}

/// Functions of a module, or of the kernel.
pub(crate) fn of_module(module: &FunctionName) -> String {
    match name(module).strip_suffix(" (no symbol)") {
        Some(_) if module.kernel => of_kernel(module),
        Some(module) => format!("functions of {module}"),
        None if module.module.as_deref() == Some(ANONYMOUS_MODULE) => name(module),
        None => "code of no module".to_owned(),
    }
}

/// Functions of the kernel, by how it was entered.
fn of_kernel(functions: &FunctionName) -> String {
    match (&functions.system_call, functions.kernel_entry.as_deref()) {
        (Some(call), _) => format!("system call {call}"),
        (None, Some(kernel_entry::BREAKPOINT)) => "breakpoints of another tool".to_owned(),
        (None, Some(entry)) => safe(&format!("{entry}s"), NAME_WIDTH),
        (None, None) => "functions of the kernel".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names shown for functions that have none.
    #[test]
    fn nameless() {
        let of = |module: Option<&str>| {
            name(&FunctionName {
                function_id: Some(7),
                module: module.map(str::to_owned),
                ..FunctionName::default()
            })
        };
        assert_eq!(of(Some("/usr/lib/libx.so.1")), "libx.so.1 (no symbol)");
        assert_eq!(of(Some(ANONYMOUS_MODULE)), "code made at run time");
        assert_eq!(of(None), "unknown function");
    }

    fn function(name: Option<&str>, called_from: Option<&str>) -> FunctionName {
        FunctionName {
            function_id: Some(7),
            name: name.map(str::to_owned),
            called_from: called_from.map(str::to_owned),
            ..FunctionName::default()
        }
    }

    /// A function without a name has its nearest named caller, as far as there is room.
    #[test]
    fn nearest_caller() {
        let sort = function(Some("postgres+fn@0x5780e0"), Some("tuplesort_performsort"));
        assert_eq!(
            name(&sort),
            "postgres+fn@0x5780e0 called from tuplesort_performsort"
        );
        let cut = name_within(&sort, 48);
        assert!(
            cut.starts_with("postgres+fn@0x5780e0 called from tupl"),
            "{cut}"
        );
        assert_eq!(columns(&cut), 48);
        assert_eq!(name_within(&sort, 40), "postgres+fn@0x5780e0");
        let short = function(Some("postgres+fn@0x5780e0"), Some("main"));
        let fits = "postgres+fn@0x5780e0 called from main";
        assert_eq!(name_within(&short, columns(fits)), fits);
        assert_eq!(
            name(&function(None, Some("run"))),
            "unknown function called from run"
        );
    }

    /// A wait in a function without a name has the nearest named one of its call stack.
    #[test]
    fn waits_in_nameless() {
        let stack = [
            function(Some("app+fn@0x1000"), None),
            function(Some("app+fn@0x2000"), None),
            function(Some("serve"), None),
        ];
        let words = wait("sleeping", &stack[0], &stack, 99);
        assert!(
            words.ends_with(" in app+fn@0x1000 called from serve"),
            "{words}"
        );
        let alone = wait("sleeping", &stack[0], &stack[..2], 99);
        assert!(alone.ends_with(" in app+fn@0x1000"), "{alone}");
    }
}
