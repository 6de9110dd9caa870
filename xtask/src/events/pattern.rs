//! Patterns of CPUs in the vendor's map: `GenuineIntel-6-(3C|45|46)`, `GenuineIntel-6-55-[01234]`.

/// Expands a pattern of Intel's CPUs: `FAMILY-MODEL` or `FAMILY-MODEL-STEPPINGS`, hexadecimal and
/// upper case. `None` if it is not Intel's or not of this form.
pub fn cpus(pattern: &str) -> Option<Vec<String>> {
    let rest = pattern.strip_prefix("GenuineIntel-")?;
    let mut parts = rest.splitn(3, '-');
    let (family, model, stepping) = (parts.next()?, parts.next()?, parts.next());
    let family: u32 = family.parse().ok()?;
    let steppings = match stepping {
        None => String::new(),
        Some(set) => format!("-{}", expand(set)?.concat()),
    };
    let models = expand(model)?.into_iter();
    Some(
        models
            .map(|model| format!("{family:X}-{}{steppings}", model.to_uppercase()))
            .collect(),
    )
}

/// All texts of a pattern of letters, `[...]` and one `(a|b)`.
fn expand(pattern: &str) -> Option<Vec<String>> {
    if let Some(inner) = pattern.strip_prefix('(') {
        let choices = inner.strip_suffix(')')?.split('|').map(expand);
        return Some(choices.collect::<Option<Vec<_>>>()?.concat());
    }
    let mut all = vec![String::new()];
    let mut rest = pattern;
    while !rest.is_empty() {
        let choices = if let Some(set) = rest.strip_prefix('[') {
            let (set, after) = set.split_once(']')?;
            rest = after;
            set_of(set)?
        } else {
            let first = rest.chars().next()?;
            rest = &rest[first.len_utf8()..];
            first.is_ascii_hexdigit().then(|| vec![first])?
        };
        all = all
            .iter()
            .flat_map(|head| choices.iter().map(move |c| format!("{head}{c}")))
            .collect();
    }
    Some(all)
}

/// Letters of `[...]`; ranges do not occur.
fn set_of(set: &str) -> Option<Vec<char>> {
    set.chars()
        .map(|c| c.is_ascii_hexdigit().then_some(c))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every form that the maps have.
    #[test]
    fn patterns() {
        let cases: [(&str, &[&str]); 6] = [
            ("GenuineIntel-6-2A", &["6-2A"]),
            ("GenuineIntel-6-A[DE]", &["6-AD", "6-AE"]),
            ("GenuineIntel-6-(3C|45)", &["6-3C", "6-45"]),
            ("GenuineIntel-6-55-[01234]", &["6-55-01234"]),
            ("GenuineIntel-18-1", &["12-1"]),
            ("GenuineIntel-6-7[de]", &["6-7D", "6-7E"]),
        ];
        for (pattern, expect) in cases {
            assert_eq!(cpus(pattern).unwrap_or_default(), expect, "{pattern}");
        }
        assert_eq!(cpus("AuthenticAMD-23-1"), None);
        assert_eq!(cpus("GenuineIntel-6-[[:xdigit:]]+"), None);
    }
}
