//! Names of functions and probes.

use rustc_hash::FxHashMap;

use crate::compare::names::file_name;
use crate::store::reader::{ReadError, Trace};
use crate::store::run::{ProbeInfo, RunInfo};
use crate::store::schema::{FunctionRow, functions};

/// Every function of the trace by its id.
///
/// Memory: in proportion to the table.
#[derive(Debug, Default)]
pub(crate) struct Functions(FxHashMap<u32, FunctionRow>);

impl Functions {
    /// Reads them.
    ///
    /// # Errors
    /// If the trace can't be read.
    pub(crate) fn read(trace: &Trace) -> Result<Self, ReadError> {
        let mut found = FxHashMap::default();
        functions::each(trace, |row| {
            found.insert(row.function_id.0, row);
        })?;
        Ok(Self(found))
    }

    /// A function; `None` if the table has it not.
    #[must_use]
    pub(crate) fn get(&self, id: u32) -> Option<&FunctionRow> {
        self.0.get(&id)
    }
}

/// Short names of the probes, each different: the last part of the path and the function, without
/// arguments.
#[derive(Debug)]
pub(crate) struct Probes(FxHashMap<u16, String>);

impl Probes {
    /// Names them.
    #[must_use]
    pub(crate) fn of(info: &RunInfo) -> Self {
        let mut names = FxHashMap::default();
        for ProbeInfo { id, spec, .. } in &info.probes {
            let mut name = short(spec);
            if name.is_empty() || names.values().any(|other| *other == name) {
                name = format!("{name}#{}", id.0);
            }
            names.insert(id.0, name);
        }
        Self(names)
    }

    /// Name of a probe.
    #[must_use]
    pub(crate) fn label(&self, probe: u16) -> String {
        let known = self.0.get(&probe).cloned();
        known.unwrap_or_else(|| format!("probe {probe}"))
    }
}

fn short(spec: &str) -> String {
    let (mut depth, mut plain) = (0_u32, String::new());
    for c in spec.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let parts = plain.split("..").map(|end| match end.split_once(':') {
        Some((path, place)) => format!("{}:{place}", file_name(path)),
        None => file_name(end).to_owned(),
    });
    parts.collect::<Vec<_>>().join("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of probes are short, whatever the SPEC contains.
    #[test]
    fn probe_names() {
        let shorts = [
            "/usr/bin/redis-server:processCommand(cmd=str(*(arg1+8)), n=arg2)",
            "./app:start(id=arg1)..stop(id=arg2)",
            "a/b:f..c/d:g",
            "./app:h..",
            "((",
        ]
        .map(short);
        assert_eq!(
            shorts,
            [
                "redis-server:processCommand",
                "app:start..stop",
                "b:f..d:g",
                "app:h..",
                ""
            ]
        );
    }
}
