//! Remarks on missing figures and on oddities of a trace, in words.
//!
//! The JSON formats have the same words: that of a value is its text.

use std::fmt::{self, Display, Formatter};

use serde::{Serialize, Serializer};

use super::human::{count, percent, time};
use super::items::NO_SWITCHES;
use crate::compare::diff::model as diff;
use crate::compare::load::EndedBy;
use crate::compare::mine::of_trace::Remark;
use crate::compare::remarks::{
    FurtherNote, ItemTooLittle, NeverEnded, NoFunctionTimes, Note, Runtime, TooLittle,
};
use crate::compare::select::NoneSlow;

/// JSON has these as text.
macro_rules! as_text {
    ($($name:ty),+) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
    )+};
}

as_text!(
    NeverEnded,
    NoFunctionTimes,
    TooLittle,
    ItemTooLittle,
    FurtherNote,
    Note,
    diff::Note
);

impl Display for NeverEnded {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (open, visits) = (count(self.open), count(self.visits));
        let why = if self.by_thread {
            "the end is on another thread, give it id="
        } else {
            "their end mark was never seen"
        };
        write!(f, "{open} of {visits} items never ended: {why}")
    }
}

impl Display for NoFunctionTimes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEvent => f.write_str("no event was sampled"),
            Self::NotSteady {
                event,
                is_kernel_only,
            } => {
                let what = if *is_kernel_only {
                    "time in user space"
                } else {
                    "time"
                };
                write!(
                    f,
                    "{event} does not count {what}: record a clock or cycles as well (--event)"
                )
            }
        }
    }
}

impl Display for TooLittle {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverEnded(it) => it.fmt(f),
            Self::NothingKept => f.write_str(
                "no details of any item were kept (--keep none): record with --keep slow",
            ),
            Self::SharedThread => {
                f.write_str("their thread was shared with other open items: add --resume")
            }
            Self::NoSlowDetails => f.write_str("no details of slow items are known"),
            Self::NoTypicalDetails => f.write_str("no details of typical items are known"),
            Self::NoFunctionTimes(reason) => write!(f, "functions: - ({reason})"),
            Self::FewSamples(n) => {
                write!(f, "too few samples ({n}): record longer or lower --reset")
            }
            Self::FewSlowItems(n) => write!(
                f,
                "too few slow items ({n}) for intervals: record longer or lower --slow"
            ),
        }
    }
}

impl Display for ItemTooLittle {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotKept => "details were not kept (--keep): the item was not slow",
            Self::NoCpuTime => "its time on the CPU is unknown",
            Self::NoTypical => "there are no typical items to compare it with",
            Self::NotLonger => "it took no longer than typical items",
            Self::FewSamples(n) => return write!(f, "too few samples ({n}): lower --reset"),
        })
    }
}

impl Display for FurtherNote {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByFrequency => f.write_str(
                "sampled by frequency, so its samples stand for unknown numbers of events: record it with a reset value",
            ),
            Self::InPart(percent) => write!(
                f,
                "on a counter for {percent} % of the time, and its numbers are of that part"
            ),
        }
    }
}

impl Display for Note {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCallPaths => {
                "call paths: - (--keep left only sums of the typical items, which slow ones would be compared with)"
            }
            Self::NoSwitches => NO_SWITCHES,
            Self::WaitsFrom(ns) => {
                let from = time(*ns as f64);
                return write!(
                    f,
                    "who ended waits is known from {from} of the recording on; of waits before it is not (--with waits: of all)"
                );
            }
            Self::Beats { spec, percent } => {
                return write!(
                    f,
                    "functions have no intervals: samples beat with the items of {spec}, and functions may be off by {percent} %"
                );
            }
            Self::Stages => {
                "all probes read ids, so they are stages: an item is all visits with its id, from a begin of the first \
                 probe to the next (--per visit takes each visit by itself)"
            }
            Self::NoFunctionTimes(reason) => return write!(f, "functions: - ({reason})"),
            Self::Rates { event, percent } => {
                return write!(
                    f,
                    "times of functions may be off by another {percent} % on average, beyond their intervals: their rates \
                     of {event} are uncertain"
                );
            }
            Self::Nameless(runtimes) => return nameless(f, runtimes),
        })
    }
}

fn nameless(f: &mut Formatter<'_>, runtimes: &[Runtime]) -> fmt::Result {
    let mut how: Vec<&str> = runtimes.iter().map(|it| naming(*it)).collect();
    if how.is_empty() {
        how.push("a perf map (/tmp/perf-PID.map) or a jit dump of its compiler names it");
    }
    let how = how.join("; ");
    write!(f, "code made at run time has no name here: {how}")
}

/// Option or command that makes a runtime name its code.
///
/// Source: the kernel's tools/perf/Documentation/jit-interface.txt, and the documentation of each runtime.
const fn naming(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Jvm => "'jcmd PID Compiler.perfmap' while recording names Java's",
        Runtime::OpenJ9 => "'java -Xjit:perfTool' names Java's",
        Runtime::Node => "'node --perf-basic-prof' names that of Node.js",
        Runtime::DotNet => "DOTNET_PerfMapEnabled=1 names that of .NET",
        Runtime::Python => "PYTHONPERFSUPPORT=1 names Python's (from 3.12)",
        Runtime::Php => "'php -d opcache.jit_debug=16' names that of PHP",
        Runtime::Pcre => "regular expressions that PCRE2 compiles have no names",
    }
}

impl Display for diff::Note {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let differ = |f: &mut Formatter<'_>, what, [old, new]: &[String; 2]| {
            write!(f, "{what} differ: {old} before, {new} after")
        };
        match self {
            Self::OnlyBefore { spec } => write!(f, "probe {spec} is in the trace before only"),
            Self::OnlyAfter { spec } => write!(f, "probe {spec} is in the trace after only"),
            Self::ProbesDiffer(specs) => differ(f, "probes", specs),
            Self::EventsDiffer(events) => {
                differ(f, "events", events)?;
                f.write_str("; functions may be seen differently")
            }
            Self::ResetsDiffer(resets) => {
                differ(f, "reset values", &resets.map(|it| it.to_string()))?;
                f.write_str("; samples slow items down differently")
            }
            Self::HostsDiffer { what, values } => {
                let what = match what {
                    diff::HostPart::Host => "hosts",
                    diff::HostPart::Kernel => "kernels",
                    diff::HostPart::Cpu => "CPUs",
                };
                differ(f, what, values)
            }
            Self::SwitchesDiffer => {
                f.write_str("only one of the traces has switches: waits can't be compared")
            }
            Self::NoSwitches => f.write_str(NO_SWITCHES),
            Self::KeptDiffers => {
                f.write_str("the traces kept the details of different items (--keep)")
            }
            Self::TooFewItems => f.write_str("too few items for intervals: nothing can fail"),
            Self::Beats { spec, is_after } => {
                let when = if *is_after { "after" } else { "before" };
                write!(
                    f,
                    "samples beat with the items of {spec} {when}: its functions have no intervals and cannot fail"
                )
            }
        }
    }
}

impl Display for Remark {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scaled { share } => {
                let share = percent(*share);
                write!(
                    f,
                    "{share} of the counts are scaled, as the events took turns on the counters"
                )
            }
            Self::SharedIds => f.write_str("items share ids: a row is called by its visit_id"),
            Self::OneProbe { items, spec } => write!(
                f,
                "only the {items} items of {spec}, the probe with most of them"
            ),
            Self::Open { items } => write!(f, "{items} items without an end are left out"),
            Self::NotNet { visits } => write!(
                f,
                "the net time of {visits} visits is unknown: their whole duration stands for it"
            ),
        }
    }
}

impl Display for NoneSlow {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => write!(f, "none is by {rule}"),
            Self::Shorter { rule, longest_ns } => {
                let longest = time(*longest_ns as f64);
                write!(f, "none is by {rule}, the longest took {longest}")
            }
            Self::NoDuration => f.write_str("none has a known duration"),
        }
    }
}

impl Display for EndedBy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let what = if self.is_preemption {
            "preempted"
        } else {
            "woken"
        };
        write!(f, "{what} by {}", self.name)?;
        self.tid.map_or(Ok(()), |tid| write!(f, " ({tid})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each runtime is named once; without a known one, the formats are.
    #[test]
    fn runtimes() {
        let said = |runtimes: &[Runtime]| Note::Nameless(runtimes.to_vec()).to_string();
        assert_eq!(
            said(&[Runtime::Jvm]),
            "code made at run time has no name here: 'jcmd PID Compiler.perfmap' while recording names Java's"
        );
        assert!(said(&[Runtime::Php, Runtime::Pcre]).contains("PHP; regular expressions"));
        assert!(said(&[]).contains("/tmp/perf-PID.map"));
    }

    /// A probe most of whose visits have no end is reported with the remedy.
    #[test]
    fn ends_elsewhere() {
        let ended = |by_thread| NeverEnded {
            open: 2_559,
            visits: 2_560,
            by_thread,
        };
        assert_eq!(
            ended(true).to_string(),
            "2,559 of 2,560 items never ended: the end is on another thread, give it id="
        );
        assert!(ended(false).to_string().ends_with("never seen"));
    }
}
