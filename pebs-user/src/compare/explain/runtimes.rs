//! How the runtimes of a trace name the code that they make at run time.

use super::model::{Cause, Group};
use crate::present::brief::file_name;
use crate::store::reader::{ReadError, Trace};
use crate::store::schema::ANONYMOUS_MODULE;
use crate::store::view::{Select as _, View as _, columns};

/// Number of causes of which one without a name is worth a note.
const FIRST: usize = 3;

/// How a runtime's file name begins, and what makes the runtime name its code.
///
/// Source: the kernel's tools/perf/Documentation/jit-interface.txt, and the documentation of each runtime.
const RUNTIMES: [(&str, &str); 9] = [
    (
        "libjvm.so",
        "'jcmd PID Compiler.perfmap' while recording names Java's",
    ),
    ("libj9jit", "'java -Xjit:perfTool' names Java's"),
    ("node", "'node --perf-basic-prof' names that of Node.js"),
    (
        "libnode.so",
        "'node --perf-basic-prof' names that of Node.js",
    ),
    (
        "libcoreclr.so",
        "DOTNET_PerfMapEnabled=1 names that of .NET",
    ),
    ("python3", "PYTHONPERFSUPPORT=1 names Python's (from 3.12)"),
    (
        "libpython3",
        "PYTHONPERFSUPPORT=1 names Python's (from 3.12)",
    ),
    ("php", "'php -d opcache.jit_debug=16' names that of PHP"),
    (
        "libpcre2-8.so",
        "regular expressions that PCRE2 compiles have no names",
    ),
];

columns! {
    struct Modules of functions { module }
}

/// A note on names if code made at run time, without a name, is among the first causes of a group.
pub(super) fn note<'a>(
    trace: &Trace,
    mut groups: impl Iterator<Item = &'a Group>,
) -> Result<Option<String>, ReadError> {
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
    Ok(Some(words(found)))
}

/// The note if these runtimes were seen.
fn words(found: [bool; RUNTIMES.len()]) -> String {
    let mut how: Vec<&str> = Vec::new();
    for (_, (_, text)) in found.iter().zip(RUNTIMES).filter(|(found, _)| **found) {
        if !how.contains(&text) {
            how.push(text);
        }
    }
    if how.is_empty() {
        how.push("a perf map (/tmp/perf-PID.map) or a jit dump of its compiler names it");
    }
    format!("code made at run time has no name here: {}", how.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each runtime is told once; without a known one, the formats.
    #[test]
    fn runtimes() {
        let seen = |names: &[&str]| {
            words(RUNTIMES.map(|(begin, _)| names.iter().any(|name| name.starts_with(begin))))
        };
        assert_eq!(
            seen(&["libjvm.so", "libc.so.6"]),
            "code made at run time has no name here: 'jcmd PID Compiler.perfmap' while recording names Java's"
        );
        assert_eq!(
            seen(&["node", "libnode.so.108"])
                .matches("node --perf")
                .count(),
            1
        );
        assert!(seen(&["php-fpm8.2", "libpcre2-8.so.0.11.2"]).contains("PHP; regular expressions"));
        assert!(seen(&["app"]).contains("/tmp/perf-PID.map"));
    }
}
