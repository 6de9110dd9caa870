//! Start of a recording: that of the command, a time, a file, a call, or an order.

use std::path::PathBuf;
use std::time::Duration;

use pebs_common::record::Role;

use super::recording::Start;
use crate::failure::{Failure, Result};
use crate::probe::ResolveOptions;
use crate::probe::resolve::resolve_each;
use crate::probe::set::Site;

/// Condition that a recording waits for before it places probes.
#[derive(Clone, Debug, Default)]
pub(super) enum Trigger {
    /// Nothing.
    #[default]
    None,
    /// This time, from when the command runs, or the target was found.
    Time(Duration),
    /// A file.
    File(PathBuf),
    /// A call.
    Call(Call),
    /// [`Remote::resume`](super::Remote::resume).
    Order,
}

/// A call that is waited for.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// As it was given.
    text: String,
    pub sites: Vec<Site>,
    /// Value of the sites' id; `None`: any call.
    pub value: Option<u64>,
}

impl Trigger {
    /// Resolves what was asked for.
    ///
    /// # Errors
    /// The call can't be probed, or has no value to compare with.
    pub(super) fn resolve(start: &Start, options: &ResolveOptions) -> Result<Self> {
        Ok(match start {
            Start::AtOnce => Self::None,
            Start::After(Duration::ZERO) => Self::None,
            Start::After(time) => Self::Time(*time),
            Start::File(path) => Self::File(path.clone()),
            Start::Called(text) => Self::Call(Call::resolve(text, options)?),
            Start::Resumed => Self::Order,
        })
    }

    /// Returns the condition in words.
    pub(super) fn text(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Time(time) => humantime::format_duration(*time).to_string(),
            Self::File(path) => format!("the file {}", path.display()),
            Self::Call(call) => format!("a call of {}", call.text),
            Self::Order => "'resume'".to_owned(),
        }
    }
}

impl Call {
    /// `BIN:FUNC` or `BIN:FUNC(EXPR==VALUE)`.
    fn resolve(text: &str, options: &ResolveOptions) -> Result<Self> {
        let (spec, value) = parse(text)?;
        let probe = resolve_each(&[spec], options)
            .pop()
            .ok_or_else(|| not_a_call(text))??;
        let begins = probe.sites.into_iter();
        let sites: Vec<Site> = begins
            .filter(|it| matches!(it.role, Role::Begin | Role::Next))
            .collect();
        let reads = |site: &Site| site.config.id;
        if value.is_some() && sites.windows(2).any(|it| reads(&it[0]) != reads(&it[1])) {
            return Err(Failure::new(
                format!("cannot wait for {text}: its value is read in another way at each place"),
                "name one function".to_owned(),
            ));
        }
        Ok(Self {
            text: text.to_owned(),
            sites,
            value,
        })
    }
}

/// A SPEC that begins at the call and reads the value as its id, and that value.
fn parse(text: &str) -> Result<(String, Option<u64>)> {
    let Some((call, value)) = text.strip_suffix(')').and_then(|it| it.rsplit_once("==")) else {
        return Ok((format!("{text}.."), None));
    };
    // The last parenthesis that is open: the EXPR may have its own.
    let mut depth = 0;
    let open = call.rmatch_indices(['(', ')']).find(|(_, it)| {
        depth += if *it == "(" { 1 } else { -1 };
        depth > 0
    });
    let (Some((at, _)), Some(value)) = (open, number(value.trim())) else {
        return Err(not_a_call(text));
    };
    let (function, expr) = call.split_at(at);
    let expr = expr.trim_start_matches('(').trim();
    Ok((format!("{function}(id={expr}).."), Some(value)))
}

/// A number as a register has it.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text
            .parse()
            .or_else(|_| text.parse::<i64>().map(i64::cast_unsigned))
            .ok(),
    }
}

fn not_a_call(text: &str) -> Failure {
    Failure::new(
        format!("cannot wait for '{text}': it is not a call"),
        "write BIN:FUNC, or BIN:FUNC(EXPR==NUMBER) as in ./app:handle(arg1==7)".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call alone, with a value, and with parentheses in what is read.
    #[test]
    fn calls() {
        let of = |text: &str| parse(text).unwrap();
        assert_eq!(of("app:f"), ("app:f..".to_owned(), None));
        assert_eq!(
            of("app:f(arg1==7)"),
            ("app:f(id=arg1)..".to_owned(), Some(7))
        );
        let (spec, value) = of("app:f(*(arg1+8):i32 == -1)");
        assert_eq!(
            (&*spec, value),
            ("app:f(id=*(arg1+8):i32)..", Some(u64::MAX))
        );
        assert_eq!(of("app:f(arg1==0x10)").1, Some(16));
        for text in ["app:f(arg1==x)", "app:f)arg1==1)"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
