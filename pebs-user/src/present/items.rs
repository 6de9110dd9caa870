//! Phrases about slow items that several renderers say in the same words.

use super::functions::ARG_WIDTH;
use super::human::{UNKNOWN, count, events, maybe_time, percent, plural, safe, time};
use crate::compare::arguments::NamedArg;
use crate::compare::classes::RankBy;
use crate::compare::explain::model::{Label, SplitTest};
use crate::compare::pool::OwnTimes;
use crate::compare::report::model::ProbeReport;
use crate::store::schema::ArgValue;
use crate::units::CountUnit;

/// Shown once for items without marks, in place of a flag on each.
pub(crate) const NO_MARKS: &str =
    "begin and end lie between two samples, as items have no marks (sampled_bounds)";

/// Largest number of causes in the line on where the time went.
pub(crate) const NAMED: usize = 3;

/// Least share of a cause there.
pub(crate) const LEAST_NAMED: f64 = 0.02;

/// The same of time in functions with too few samples each.
const LEAST_UNEXPLAINED: f64 = 0.1;

/// Note on times if it is unknown when threads ran. Intervals cover the chance of sampling, and samples are all on
/// the CPU.
pub(crate) const NO_SWITCHES: &str = "switches were not recorded: time off the CPU counts as \
     the functions' own, and intervals do not cover it";

/// Noun for what the rows count: items, unless these have several visits.
pub(crate) fn noun(probe: &ProbeReport) -> &'static str {
    if probe.batches.is_none() && probe.items == Some(probe.visits) {
        "item"
    } else {
        "visit"
    }
}

/// Beginning of the sentence that lists the causes.
pub(crate) const fn slow_because_of(by: RankBy) -> &'static str {
    match by {
        RankBy::Duration => "slow because:",
        RankBy::CpuTime => "slow on the CPU because:",
    }
}

/// The causes named, the largest of which has this share, and the time on the CPU that no single function is known to have.
pub(crate) fn with_unexplained(named: String, largest: f64, unexplained: f64) -> String {
    if unexplained < LEAST_UNEXPLAINED {
        return named;
    }
    let rest = format!(
        "on the CPU in functions with too few samples each {}",
        percent(unexplained.min(1.0))
    );
    match named.is_empty() {
        true => rest,
        false if unexplained > largest => format!("{rest}, {named}"),
        false => format!("{named}, {rest}"),
    }
}

/// The causes named, and what their shares are of.
pub(crate) fn slow_because(named: &str, longer_ns: f64, noun: &str) -> String {
    let named = if named.is_empty() { UNKNOWN } else { named };
    let longer = time(longer_ns);
    format!("{named} (shares of the {longer} by which slow {noun}s exceed typical ones)")
}

/// Name of what ranks the items.
pub(crate) const fn heading(by: RankBy) -> &'static str {
    match by {
        RankBy::Duration => "duration",
        RankBy::CpuTime => "CPU time",
    }
}

/// Said after a time that ranks items.
pub(crate) const fn on_the_cpu(by: RankBy) -> &'static str {
    match by {
        RankBy::Duration => "",
        RankBy::CpuTime => " on the CPU",
    }
}

/// A rule as it is typed.
pub(crate) fn typed(by: RankBy, rule: &str) -> String {
    match by {
        RankBy::Duration => rule.to_owned(),
        RankBy::CpuTime => format!("cpu:{rule}"),
    }
}

/// Words for the strays in the gap.
pub(crate) fn but_for(between: u64) -> String {
    match between {
        0 => String::new(),
        n => format!(" with {} in it", plural(n, "item")),
    }
}

/// The arguments that the items of a group share.
pub(crate) fn labels(labels: &[Label]) -> String {
    if labels.is_empty() {
        return "all".to_owned();
    }
    let one = |it: &Label| match &it.value {
        None => format!("{} unknown", safe(&it.argument, ARG_WIDTH)),
        Some(value) => test(&it.argument, it.test, value),
    };
    labels.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// A test of an argument: `n=5`, `key=big:…`, `n>=4`.
pub(crate) fn test(argument: &str, test: SplitTest, value: &str) -> String {
    let least_one = value == "1" && matches!(test, SplitTest::AtLeast | SplitTest::Equal);
    if let Some(spec) = argument.strip_prefix("visits of ").filter(|_| least_one) {
        return format!("a visit of {}", safe(spec, ARG_WIDTH));
    }
    let value = match (argument, value.parse::<i64>()) {
        ("begin_ns", Ok(ns)) => time(ns as f64),
        _ => safe(value, ARG_WIDTH),
    };
    let argument = safe(argument, ARG_WIDTH);
    match test {
        SplitTest::Equal => format!("{argument}={value}"),
        SplitTest::Begins => format!("{argument}={value}…"),
        SplitTest::AtLeast => format!("{argument}>={value}"),
        SplitTest::AtMost => format!("{argument}<={value}"),
    }
}

/// pebs-trace's own time.
pub(crate) fn own_times(own: &OwnTimes, noun: &str) -> String {
    let of = |name: &str, ns: Option<f64>| ns.map(|ns| format!("{name} {}", time(ns)));
    let classes = [of("slow", own.slow_ns), of("typical", own.typical_ns)];
    let classes: Vec<String> = classes.into_iter().flatten().collect();
    let classes = match classes.is_empty() {
        true => String::new(),
        false => format!(" ({})", classes.join(", ")),
    };
    format!(
        "pebs-trace's own marks and samples: {} per {noun}{classes}, excluded from all times shown",
        time(own.all_ns)
    )
}

/// Median, 90th and 99th percentile, and the largest, in words.
pub(crate) fn quantiles(ns: [i64; 4]) -> String {
    let names = ["p50", "p90", "p99", "max"].into_iter().zip(ns);
    let shown: Vec<String> = names
        .map(|(name, ns)| format!("{name} {}", time(ns as f64)))
        .collect();
    shown.join("   ")
}

/// Note on items that overlapped on a thread, with the option that separates them; empty if none did.
pub(crate) fn time_shared(shared: u64, all: u64, noun: &str) -> String {
    if shared == 0 {
        return String::new();
    }
    let which = if shared == all {
        format!("all {}", plural(all, noun))
    } else {
        format!("{} of {}", count(shared), plural(all, noun))
    };
    format!(
        "{which} shared a thread with other open items, and no mark says whose time it was; \
         add --resume 'BIN:FUNC(id=EXPR)', the function that continues an item"
    )
}

pub(crate) fn amount(unit: CountUnit, value: Option<f64>) -> String {
    match value {
        Some(value) if !unit.is_time() => events(value),
        value => maybe_time(value),
    }
}

pub(crate) fn argument(arg: &NamedArg) -> Option<String> {
    let value = match arg.value.as_ref()? {
        ArgValue::U64(number) => number.to_string(),
        ArgValue::I64(number) => number.to_string(),
        ArgValue::Str(text) => safe(text, ARG_WIDTH),
    };
    Some(format!("{}={value}", safe(&arg.name, ARG_WIDTH)))
}

pub(crate) fn range(from: i64, to: i64) -> String {
    if from == to {
        time(to as f64)
    } else {
        format!("{} .. {}", time(from as f64), time(to as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests of arguments in the syntax of SPECs, with foreign text escaped.
    #[test]
    fn tests_of_arguments() {
        assert_eq!(test("n", SplitTest::AtLeast, "5"), "n>=5");
        assert_eq!(test("key", SplitTest::Begins, "big:"), "key=big:…");
        assert_eq!(
            test("begin_ns", SplitTest::AtMost, "2500000"),
            "begin_ns<=2.50 ms"
        );
        assert!(!test("key", SplitTest::Equal, "a\x1b[2J").contains('\x1b'));
        let unknown = Label {
            argument: "n".to_owned(),
            test: SplitTest::Equal,
            value: None,
        };
        assert_eq!(labels(&[unknown]), "n unknown");
    }

    /// The unknown part of functions is listed at the place of its share, and left out if it is small.
    #[test]
    fn unexplained_stands_by_its_share() {
        let of = |named: &str, largest, unexplained| {
            with_unexplained(named.to_owned(), largest, unexplained)
        };
        let rest = "on the CPU in functions with too few samples each";
        assert_eq!(of("in f 80 %", 0.8, 0.09), "in f 80 %");
        assert_eq!(
            of("in f 80 %", 0.8, 0.15),
            format!("in f 80 %, {rest} 15 %")
        );
        assert_eq!(
            of("waited 12 %", 0.12, 0.88),
            format!("{rest} 88 %, waited 12 %")
        );
        assert_eq!(of("", 0.0, 1.02), format!("{rest} 100 %"));
    }
}
