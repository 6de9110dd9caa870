//! Texts of a recording that are redacted, and their rules.

use std::collections::BTreeMap;

use super::recording::Recording;
use crate::failure::{Failure, Result};
use crate::preset::Chosen;
use crate::probe::redact::{Redaction, Rule};
use crate::probe::set::ProbeSet;
use crate::store::schema::ArgType;

/// Rules by the names of arguments.
pub(super) type Rules = BTreeMap<String, Rule>;

/// The rules that were asked for: those of the presets, and each argument's own, which comes first.
///
/// # Errors
/// No preset has rules.
pub(super) fn rules(recording: &Recording, presets: &[Chosen]) -> Result<Rules> {
    let mut rules = Rules::new();
    if recording.redact_by_preset {
        rules.extend(presets.iter().flat_map(|it| it.redact.clone()));
        if rules.is_empty() {
            return Err(Failure::new(
                match presets {
                    [] => "no preset says what to redact: none is used".to_owned(),
                    [first, ..] => format!("preset {} does not say what to redact", first.name),
                },
                "name the argument: --redact sql=literals",
            ));
        }
    }
    rules.extend(recording.redact.iter().cloned());
    Ok(rules)
}

/// Redacts the arguments of these names wherever they are read.
///
/// # Errors
/// An argument that was asked for is not a text, or is not read.
pub(super) fn place(probes: &mut ProbeSet, rules: &Rules, asked: &[(String, Rule)]) -> Result<()> {
    for (name, _) in asked {
        let column = probes.columns.iter().find(|it| it.name == *name);
        match column.map(|it| it.r#type) {
            Some(ArgType::Str) => {}
            Some(ArgType::U64 | ArgType::I64) => {
                return Err(Failure::new(
                    format!("cannot redact {name}: it is a number"),
                    "only texts are redacted; leave it out of the SPEC",
                ));
            }
            None => {
                let texts = probes.columns.iter().filter(|it| it.r#type == ArgType::Str);
                let texts: Vec<&str> = texts.map(|it| it.name.as_str()).collect();
                return Err(Failure::new(
                    format!("cannot redact {name}: no probe reads it"),
                    match texts.as_slice() {
                        [] => "no probe reads a text".to_owned(),
                        texts => format!("texts that are read: {}", texts.join(", ")),
                    },
                ));
            }
        }
    }
    let columns: Vec<Option<Redaction>> = probes
        .columns
        .iter()
        .map(|it| rules.get(&it.name).copied().map(Redaction::new))
        .collect();
    for probe in &mut probes.probes {
        let fields = probe.begin_fields.iter_mut().chain(&mut probe.end_fields);
        fields.for_each(|it| it.redact = columns.get(it.column).copied().flatten());
    }
    Ok(())
}
