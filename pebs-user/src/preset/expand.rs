//! The SPECs of a preset for one build of a program.

use std::collections::BTreeMap;

use super::{Chosen, Preset, ProbeForm};
use crate::binary::elf::{Binary, Language};
use crate::binary::go;
use crate::binary::locate::locate;
use crate::failure::{Failure, Result};
use crate::probe::{self, ResolveOptions};
use crate::spec::scan::is_identifier;

/// Placeholder of the program.
const BIN: &str = "bin";

/// Placeholder of the arguments that can be read.
const ARGS: &str = "args";

/// Placeholder of the offset of a goroutine's number in `runtime.g`.
const GOID: &str = "goid";

/// Values of the placeholders.
struct Values {
    all: BTreeMap<String, String>,
    build: Option<String>,
}

/// The SPECs of a preset for a program: of each probe that can be resolved there, with the arguments that can be read.
///
/// # Errors
/// No probe can be resolved.
pub(super) fn expand(
    name: &str,
    preset: &Preset,
    bin: &str,
    options: &ResolveOptions,
) -> Result<Chosen> {
    let values = values(preset, bin, options)?;
    let mut chosen = Chosen {
        name: name.to_owned(),
        redact: preset.redact.clone(),
        ..Chosen::default()
    };
    let mut first: Option<Failure> = None;
    let mut missing = Vec::new();
    for form in &preset.probes {
        let is_needed = chosen.uprobes.is_empty() || form.resume || !form.otherwise;
        if !is_needed {
            continue;
        }
        match with_arguments(form, &chosen.uprobes, &values, options) {
            Ok((spec, left_out)) => {
                // It takes the place of those that could not be resolved.
                if form.otherwise {
                    missing.clear();
                }
                let of_kind = match form.resume {
                    true => &mut chosen.resumes,
                    false => &mut chosen.uprobes,
                };
                of_kind.push(spec);
                chosen.left_out.extend(left_out);
            }
            Err(error) => {
                missing.extend((!form.otherwise).then(|| {
                    let spec = form.spec.replace(&format!("{{{BIN}}}:"), "");
                    format!("{spec} is left out: {}", first_line(&error))
                }));
                first = first.or(Some(error));
            }
        }
    }
    chosen.left_out.append(&mut missing);
    match first {
        Some(error) if chosen.uprobes.is_empty() => Err(error.context(format!(
            "preset {name} does not fit {}",
            if bin.is_empty() { "this machine" } else { bin }
        ))),
        _ => Ok(chosen),
    }
}

/// The SPEC of a probe with the arguments that can be read, and those that can't, with reasons.
fn with_arguments(
    form: &ProbeForm,
    uprobes: &[String],
    values: &Values,
    options: &ResolveOptions,
) -> Result<(String, Vec<String>)> {
    let check = |args: &[String]| -> Result<String> {
        let spec = values.fill(&with(&form.spec, args))?;
        let one = [spec];
        match form.resume {
            true => probe::resolve_with(uprobes, &one, options)?,
            false => probe::resolve_with(&one, &[], options)?,
        };
        let [spec] = one;
        Ok(spec)
    };
    // All at once first: a large binary takes a while each time.
    let first_way = |(name, ways): (&String, &Vec<String>)| {
        let way = ways.first().map_or("", String::as_str);
        Ok(format!("{name}={}", values.fill(way)?))
    };
    let firsts = form.args.iter().map(first_way).collect::<Result<Vec<_>>>();
    if let Some(spec) = firsts.ok().and_then(|all| check(&all).ok()) {
        return Ok((spec, Vec::new()));
    }
    let mut spec = match needs_id(form) {
        true => String::new(),
        false => check(&[])?,
    };
    let mut taken = Vec::new();
    let mut left_out = Vec::new();
    for (name, ways) in &form.args {
        let mut first: Option<Failure> = None;
        let mut found = false;
        for way in ways {
            let read = values.fill(way).and_then(|way| {
                let all = [taken.as_slice(), &[format!("{name}={way}")]].concat();
                Ok((check(&all)?, all))
            });
            match read {
                Ok((with_it, all)) => {
                    (spec, taken, found) = (with_it, all, true);
                    break;
                }
                Err(error) => first = first.or(Some(error)),
            }
        }
        match first {
            Some(error) if !found && needs_id(form) => return Err(error),
            Some(error) if !found => {
                left_out.push(format!("{name} is left out: {}", first_line(&error)));
            }
            _ => {}
        }
    }
    Ok((spec, left_out))
}

/// Returns the error without the SPEC and its caret.
fn first_line(error: &Failure) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    let what = line.strip_prefix("cannot read probe '");
    let what = what.and_then(|it| Some(it.split_once("': ")?.1));
    what.unwrap_or(line).to_owned()
}

/// Whether the probe is of no use without its id.
fn needs_id(form: &ProbeForm) -> bool {
    form.resume && form.args.contains_key("id")
}

/// A SPEC with these arguments in place of `{args}`; without any, no empty brackets are left.
fn with(spec: &str, args: &[String]) -> String {
    let filled = spec.replace(&format!("{{{ARGS}}}"), &args.join(", "));
    match args {
        [] => filled.replace("()", "").replace(", )", ")"),
        _ => filled,
    }
}

impl Values {
    /// A text with every placeholder replaced.
    ///
    /// # Errors
    /// One has no value for this build of the program.
    fn fill(&self, text: &str) -> Result<String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, from)) = rest.split_once('{') {
            filled.push_str(before);
            match from.split_once('}') {
                Some((name, after)) if is_identifier(name) => {
                    let value = self.all.get(name).ok_or_else(|| self.unknown(name))?;
                    filled.push_str(value);
                    rest = after;
                }
                _ => {
                    filled.push('{');
                    rest = from;
                }
            }
        }
        Ok(filled + rest)
    }

    fn unknown(&self, name: &str) -> Failure {
        let build = self.build.as_ref().map_or_else(
            || "a program without a build id".to_owned(),
            |id| format!("build {id}"),
        );
        Failure::new(
            format!("the preset has no {name} for {build}"),
            "with the program's debug information none is needed: install it, or set DEBUGINFOD_URLS".to_owned(),
        )
    }
}

/// The values of placeholders for a program.
fn values(preset: &Preset, bin: &str, options: &ResolveOptions) -> Result<Values> {
    let mut all = BTreeMap::from([(BIN.to_owned(), quoted(bin))]);
    if bin.is_empty() {
        return Ok(Values { all, build: None });
    }
    let binary = Binary::open(&locate(bin, options.pid)?)?;
    let build = binary.build_id();
    let of_build = build.as_ref().and_then(|id| preset.builds.get(id));
    let go = go::version(&binary);
    let go = go.as_deref().map(minor_version);
    let of_go = go.and_then(|version| preset.builds.get(version));
    all.extend(
        of_go
            .into_iter()
            .chain(of_build)
            .flatten()
            .map(|it| (it.0.clone(), it.1.clone())),
    );
    let needs_goid = |form: &ProbeForm| form.spec.contains(&format!("{{{GOID}}}"));
    if preset.probes.iter().any(needs_goid) {
        all.insert(GOID.to_owned(), goid(&binary, bin)?.to_string());
    }
    Ok(Values { all, build })
}

/// `go1.19` of `go1.19.8`.
fn minor_version(version: &str) -> &str {
    let dots = version.match_indices('.').nth(1);
    dots.map_or(version, |(at, _)| version.get(..at).unwrap_or(version))
}

/// Offset of a goroutine's number in the Go program's runtime.
fn goid(binary: &Binary, bin: &str) -> Result<u64> {
    if let Some(offset) = go::goid_offset(binary) {
        return Ok(offset);
    }
    let path = binary.path.display();
    if binary.language != Language::Go {
        return Err(Failure::new(
            format!("{path} is not a Go program"),
            "name one: --preset go=./app".to_owned(),
        ));
    }
    let version = go::version(binary);
    Err(Failure::new(
        format!(
            "cannot tell the goroutines of {path} apart: it is stripped, and the offset of their number in {} is unknown",
            version.as_deref().unwrap_or("its version of Go")
        ),
        format!(
            "build it without -ldflags=-w, or use their addresses, which are reused: -u \
             '{bin}:runtime.execute(id=arg1)..runtime.schedule'"
        ),
    ))
}

/// BIN quoted for a SPEC.
fn quoted(bin: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+');
    if bin.contains('"') || bin.chars().all(is_plain) && !bin.contains("..") {
        bin.to_owned()
    } else {
        format!("\"{bin}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_versions() {
        let of = ["go1.19.8", "go1.19", "go1.22.1 X:boringcrypto", "devel"].map(minor_version);
        assert_eq!(of, ["go1.19", "go1.19", "go1.22", "devel"]);
    }

    /// Arguments are put in place, empty brackets are not left behind, and unknown placeholders are errors.
    #[test]
    fn placeholders() {
        let args = ["a=arg1".to_owned(), "b=str(arg2)".to_owned()];
        let both = with("{bin}:f({args})..{bin}:g", &args);
        assert_eq!(both, "{bin}:f(a=arg1, b=str(arg2))..{bin}:g");
        assert_eq!(with("{bin}:f({args})..{bin}:g", &[]), "{bin}:f..{bin}:g");
        assert_eq!(with("{bin}:f(id=arg1, {args})", &[]), "{bin}:f(id=arg1)");
        let values = Values {
            all: BTreeMap::from([(BIN.to_owned(), quoted("/opt/a:b (c)/x"))]),
            build: Some("ab12".to_owned()),
        };
        assert_eq!(values.fill("{bin}:f").unwrap(), "\"/opt/a:b (c)/x\":f");
        let unknown = values.fill("{bin}:{place}").unwrap_err().to_string();
        assert!(unknown.contains("no place for build ab12"), "{unknown}");
        assert_eq!(values.fill("a{ b} {").unwrap(), "a{ b} {");
    }
}
