//! Names that the runtimes of a trace give to code made at run time.

use super::model::{Cause, Group};
use crate::compare::names::file_name;
use crate::compare::remarks::{Note, Runtime};
use crate::store::reader::{ReadError, Trace};
use crate::store::schema::ANONYMOUS_MODULE;
use crate::store::view::{Select as _, View as _, columns};

/// Number of causes of which one without a name is worth a note.
const FIRST: usize = 3;

/// Begins of the runtimes' file names.
const RUNTIMES: [(&str, Runtime); 9] = [
    ("libjvm.so", Runtime::Jvm),
    ("libj9jit", Runtime::OpenJ9),
    ("node", Runtime::Node),
    ("libnode.so", Runtime::Node),
    ("libcoreclr.so", Runtime::DotNet),
    ("python3", Runtime::Python),
    ("libpython3", Runtime::Python),
    ("php", Runtime::Php),
    ("libpcre2-8.so", Runtime::Pcre),
];

columns! {
    struct Modules of functions { module }
}

/// A note on names if code made at run time, without a name, is among the first causes of a group.
pub(super) fn note<'a>(
    trace: &Trace,
    mut groups: impl Iterator<Item = &'a Group>,
) -> Result<Option<Note>, ReadError> {
    let is_nameless = |it: &Cause| {
        it.function.name.is_none() && it.function.module.as_deref() == Some(ANONYMOUS_MODULE)
    };
    let is_among = |group: &Group| {
        let causes = group.gap.iter().flat_map(|it| it.causes.iter().take(FIRST));
        causes.into_iter().any(is_nameless)
    };
    if !groups.any(is_among) {
        return Ok(None);
    }
    let mut found = [false; RUNTIMES.len()];
    for batch in Modules::scan(trace)? {
        let batch = batch?;
        let columns = Modules::of(&batch)?;
        let rows = 0..batch.num_rows();
        let modules = rows.filter_map(|row| columns.module.get(row));
        for module in modules.map(file_name) {
            for (found, (begin, _)) in found.iter_mut().zip(RUNTIMES) {
                *found |= module.starts_with(begin);
            }
        }
    }
    Ok(Some(Note::Nameless(runtimes(found))))
}

/// These runtimes, each once.
fn runtimes(found: [bool; RUNTIMES.len()]) -> Vec<Runtime> {
    let mut seen = Vec::new();
    for (_, (_, runtime)) in found.iter().zip(RUNTIMES).filter(|(found, _)| **found) {
        if !seen.contains(&runtime) {
            seen.push(runtime);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each runtime is listed once, by the beginning of its file's name.
    #[test]
    fn seen_runtimes() {
        let seen = |names: &[&str]| {
            runtimes(RUNTIMES.map(|(begin, _)| names.iter().any(|name| name.starts_with(begin))))
        };
        assert_eq!(seen(&["libjvm.so", "libc.so.6"]), [Runtime::Jvm]);
        assert_eq!(seen(&["node", "libnode.so.108"]), [Runtime::Node]);
        let both = seen(&["php-fpm8.2", "libpcre2-8.so.0.11.2"]);
        assert_eq!(both, [Runtime::Php, Runtime::Pcre]);
        assert_eq!(seen(&["app"]), []);
    }
}
