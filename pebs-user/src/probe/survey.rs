//! Lists the functions of a binary that can be probed, with entries, returns and arguments.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::behind;
use super::body::Body;
use super::entry::{self, Needs};
use super::place::name_of;
use super::unwind::{self, ReturnMode};
use super::{ends, usdt};
use crate::arch::Kernel;
use crate::binary::demangle::{symbol_name, without_version};
use crate::binary::elf::{Binary, Language};
use crate::binary::frames::Depth;
use crate::binary::lookup;
use crate::binary::parameters::{Parameter, parameters};
use crate::store::run::EntryClass;

/// Maximum number of functions for which DWARF is read; with more, arguments are left out.
const MAX_WITH_ARGUMENTS: usize = 20_000;

/// A function.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Probeable {
    /// Readable name; `module+fn@0xADDR` where there is no symbol.
    pub function: String,
    /// Virtual address of its first instruction in the file.
    pub address: u64,
    /// Size in bytes; null: unknown.
    pub size: Option<u64>,
    /// Cost class of the entry; null if it can't be probed.
    pub entry: Option<EntryClass>,
    /// Offset of the entry probe from the first instruction, bytes.
    pub offset: Option<u64>,
    /// The instruction there.
    pub instruction: Option<String>,
    /// Why the entry can't be probed.
    pub refused: Option<String>,
    /// Cost class of the dearest instruction that marks a return; null if none is marked by one.
    pub end: Option<EntryClass>,
    /// Marks of its returns: `uretprobe`, `ret x3`, `ret x1, tail jump x2`, or `none`.
    pub returns: String,
    /// Why its returns can't be marked.
    pub unclear: Option<String>,
    /// Arguments, where DWARF has them.
    pub arguments: Option<Vec<Parameter>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct UsdtProbe {
    /// `usdt:PROVIDER:NAME`, as in a SPEC.
    pub probe: String,
    /// Places in the code.
    pub places: usize,
    /// Whether a counter must be raised while it is probed.
    pub semaphore: bool,
    /// Arguments as the compiler wrote them.
    pub arguments: String,
}

/// Result for one binary.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Survey {
    /// The binary, symlinks resolved.
    pub binary: String,
    /// Marks of returns in this binary, and the reason.
    pub returns: String,
    /// Remarks on names and conventions.
    pub notes: Vec<String>,
    /// Functions by address.
    pub functions: Vec<Probeable>,
    /// Functions beyond the limit.
    #[serde(skip)]
    pub left_out: usize,
    /// USDT probes by name.
    pub usdt: Vec<UsdtProbe>,
}

/// The kernel that probes are for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SurveyOn<'a> {
    /// This one, whose mark program may do instructions in its place.
    Running { steps: bool },
    /// Linux of this version.
    Release(&'a str),
}

impl Survey {
    /// Whether nothing was found.
    #[must_use]
    pub(crate) const fn is_empty(&self) -> bool {
        self.functions.is_empty() && self.left_out == 0 && self.usdt.is_empty()
    }
}

/// The functions whose names match the pattern (`None`: all), by address.
///
/// A pattern matches a part of the name, ignoring case; `*` stands for any text. If none has it, a name as in a SPEC.
#[must_use]
pub(crate) fn matching(binary: &Binary, pattern: Option<&str>) -> BTreeMap<u64, String> {
    let mut found = functions(binary);
    let Some(pattern) = pattern else {
        return found;
    };
    if found.values().any(|name| fits(name, pattern)) {
        found.retain(|_, name| fits(name, pattern));
    } else {
        let named = lookup::named(binary, pattern);
        found.retain(|address, _| named.contains(address));
    }
    found
}

/// Examines the functions whose names match the pattern, at most the first `limit` of them.
#[must_use]
pub(crate) fn survey(
    binary: &Binary,
    pattern: Option<&str>,
    on: SurveyOn<'_>,
    limit: usize,
) -> Survey {
    let kernel = match on {
        SurveyOn::Running { steps } => Kernel::running(steps),
        SurveyOn::Release(release) => Kernel::from_release(release),
    };
    let choice = unwind::decide(binary, kernel, ReturnMode::Auto);
    let found = matching(binary, pattern);
    let left_out = found.len().saturating_sub(limit);
    let chosen: BTreeMap<u64, String> = found.into_iter().take(limit).collect();
    let addresses: BTreeSet<u64> = chosen.keys().copied().collect();
    let mut arguments = if addresses.len() <= MAX_WITH_ARGUMENTS {
        parameters(binary, &addresses)
    } else {
        std::collections::HashMap::new()
    };
    let functions = chosen
        .into_iter()
        .map(|(address, name)| Probeable {
            arguments: arguments.remove(&address),
            function: name,
            ..one(binary, kernel, address, choice.uretprobe)
        })
        .collect();
    let how = if choice.uretprobe { "uretprobe" } else { "ret" };
    Survey {
        binary: binary.path.display().to_string(),
        returns: format!("{how}: {}", choice.reason),
        notes: notes(binary),
        functions,
        left_out,
        usdt: usdt_probes(binary, pattern),
    }
}

/// Every function: the best name of each address, else the start from the unwind table.
fn functions(binary: &Binary) -> BTreeMap<u64, String> {
    let mut found = BTreeMap::new();
    for function in binary.functions.iter().filter(|f| !f.ifunc) {
        let part = without_version(&function.name).contains(".cold");
        if !part && binary.is_code(function.address) && !found.contains_key(&function.address) {
            let best = binary.symbol_at(function.address).unwrap_or(function);
            found.insert(function.address, symbol_name(without_version(&best.name)));
        }
    }
    for range in binary.frames.ranges() {
        // A part that was moved away from its function starts with a frame.
        if binary.symbol_at(range.start).is_none()
            && binary.is_code(range.start)
            && !binary.is_stub(range.start)
            && binary.frames.depth_at(range.start) == Some(Depth::RETURN)
        {
            found.insert(range.start, name_of(binary, range.start));
        }
    }
    found
}

fn one(binary: &Binary, kernel: Kernel, address: u64, uretprobe: bool) -> Probeable {
    let range = binary.extent(address);
    let mut row = Probeable {
        function: String::new(),
        address,
        size: range.as_ref().map(|range| range.end - range.start),
        entry: None,
        offset: None,
        instruction: None,
        refused: None,
        end: None,
        returns: "none".to_owned(),
        unclear: None,
        arguments: None,
    };
    let Some(range) = range else {
        row.refused = Some("its end is unknown".to_owned());
        return row;
    };
    let mut taken = Vec::new();
    if uretprobe {
        "uretprobe".clone_into(&mut row.returns);
    } else {
        match behind::cheapest(binary, kernel, &range, &[]) {
            Ok(ends) => {
                row.returns = describe(&ends);
                let classes = ends.sites.iter().map(|site| site.class);
                row.end = classes.max_by_key(|class| class.relative_cost());
                taken = ends.sites.iter().map(|site| site.address).collect();
            }
            Err(why) => row.unclear = Some(why),
        }
    }
    let needs = Needs {
        taken: &taken,
        return_address: if uretprobe {
            entry::ReturnAddress::OnTop
        } else {
            entry::ReturnAddress::Known
        },
        ..Needs::default()
    };
    match entry::choose(binary, kernel, &Body::read(binary, range), needs) {
        Ok(entry) => {
            row.entry = Some(entry.class);
            row.offset = Some(entry.offset);
            row.instruction = Some(entry.text);
        }
        Err(why) => row.refused = Some(why),
    }
    row
}

/// Text such as `ret x3`, or `emulated x1 for ret x3` if not single-stepped.
fn describe(ends: &ends::Ends) -> String {
    if ends.behind_calls > 0 {
        return format!("emulated x{} behind its calls", ends.behind_calls);
    }
    let (rets, tails) = ends.exits;
    let exits = listed(&[
        ("ret", rets),
        ("tail jump", tails),
        ("conditional", ends.conditional.len()),
    ]);
    let cheap = ends
        .sites
        .iter()
        .filter(|site| site.class != EntryClass::SingleStep)
        .count();
    match cheap {
        0 => exits,
        _ => {
            let sites = listed(&[
                ("emulated", cheap),
                ("single step", ends.sites.len() - cheap),
            ]);
            format!("{sites} for {exits}")
        }
    }
}

fn listed(counts: &[(&str, usize)]) -> String {
    let parts: Vec<String> = counts
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| format!("{what} x{count}"))
        .collect();
    parts.join(", ")
}

fn notes(binary: &Binary) -> Vec<String> {
    let mut notes = Vec::new();
    let tables = &binary.tables;
    match (&tables.debug_file, tables.symtab) {
        (Some(path), _) => notes.push(format!("names from {}", path.display())),
        (None, None) if tables.pclntab > 0 => {
            notes.push("stripped: names from Go's own table (.gopclntab)".to_owned());
        }
        (None, None) => notes.push(format!(
            "stripped: no .symtab; .dynsym has {} functions, the others are known by address only",
            tables.dynsym
        )),
        (None, Some(_)) if tables.embedded => {
            notes.push("names from its .gnu_debugdata".to_owned());
        }
        (None, Some(_)) => {}
    }
    if binary.language == Language::Go {
        notes.push("Go: arg1 to arg9 are its own argument registers".to_owned());
    }
    notes
}

fn usdt_probes(binary: &Binary, pattern: Option<&str>) -> Vec<UsdtProbe> {
    let mut found: BTreeMap<String, UsdtProbe> = BTreeMap::new();
    for note in usdt::notes(binary) {
        let name = format!("usdt:{}:{}", note.provider, note.name);
        if pattern.is_some_and(|pattern| !fits(&name, pattern)) {
            continue;
        }
        let probe = found.entry(name.clone()).or_insert_with(|| UsdtProbe {
            probe: name,
            places: 0,
            semaphore: false,
            arguments: note.arguments.clone(),
        });
        probe.places += 1;
        probe.semaphore |= note.semaphore != 0;
    }
    found.into_values().collect()
}

/// Whether the pattern matches a part of the name, ignoring case; `*` stands for any text.
#[must_use]
pub(crate) fn fits(name: &str, pattern: &str) -> bool {
    let name = name.to_lowercase();
    let pattern = pattern.to_lowercase();
    let mut rest = name.as_str();
    for part in pattern.split('*') {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Patterns are parts of names, with wildcards.
    #[test]
    fn patterns() {
        assert!(fits("processCommand", "command"));
        assert!(fits("processCommand", "proc*and"));
        assert!(!fits("processCommand", "and*proc"));
        assert!(fits("x", ""));
    }

    /// A stock server: most entries are cheap, and returns are found in the code.
    #[test]
    fn stock_server() {
        let binary = Binary::open(Path::new("/usr/bin/redis-check-rdb")).expect("redis");
        let survey = survey(
            &binary,
            Some("command"),
            SurveyOn::Release("6.18"),
            usize::MAX,
        );
        let row = survey
            .functions
            .iter()
            .find(|row| row.function == "processCommand")
            .expect("listed");
        assert_eq!(row.entry, Some(EntryClass::Emulated));
        assert!(row.returns.contains("ret x"), "{}", row.returns);
        assert!(
            survey
                .functions
                .iter()
                .all(|row| fits(&row.function, "command"))
        );
    }
}
