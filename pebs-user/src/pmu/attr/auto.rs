//! `auto`: the best precise event that the machine grants. Pure; trying them out is `open`'s.

use super::{EventError, ResolvedEvent, resolve};
use crate::pmu::event::{EventKind, EventSpec, Modifiers, Precise, SoftwareEvent, Term, TermValue};
use crate::pmu::host::{Host, Vendor};
use crate::pmu::table::{EventTable, Precision};
use crate::units::ResetValue;

/// A candidate for `auto`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub spec: EventSpec,
    /// Name for messages.
    pub name: &'static str,
    /// Precise level without which the next candidate is better.
    pub min_precise: u8,
    /// Reason for its place in the list.
    pub reason: String,
}

impl Candidate {
    /// Resolves it with the modifiers given after `auto`.
    ///
    /// # Errors
    /// The machine does not support it after all.
    pub(crate) fn resolve(
        &self,
        modes: Modifiers,
        host: &Host,
        reset: ResetValue,
    ) -> Result<ResolvedEvent, EventError> {
        let precise = self.spec.modifiers.precise;
        let spec = EventSpec {
            modifiers: Modifiers { precise, ..modes },
            ..self.spec.clone()
        };
        let mut event = resolve(&spec, host, reset)?;
        event.name = self.name.to_owned();
        event
            .notes
            .push(format!("auto: {}: {}", self.name, self.reason));
        Ok(event)
    }
}

/// Candidates for `auto`, best first. Never empty: the last one is `cpu-clock`.
///
/// Retired uops are spread most evenly over the instructions of a function. Where no precise event of them exists,
/// instructions; then AMD's dispatched ops; then time.
#[must_use]
pub(crate) fn candidates(host: &Host) -> Vec<Candidate> {
    let mut list = match host.cpu.vendor {
        _ if host.no_pmu_reason().is_some() => Vec::new(),
        Vendor::Intel if host.max_precise() > 0 => intel(host),
        Vendor::Amd => amd(host),
        Vendor::Intel | Vendor::Other => Vec::new(),
    };
    list.push(cpu_clock(host));
    list
}

fn intel(host: &Host) -> Vec<Candidate> {
    let table = EventTable::embedded();
    let lists = table.of(&host.cpu);
    // On a hybrid CPU the event must exist on each kind of cores, for comparable samples.
    let precise_everywhere = |name: &str| {
        let events = lists.iter().map(|list| list.event(name));
        let mut precise = events.map(|event| event.and_then(|event| event.precision));
        !lists.is_empty() && precise.all(|p| p.is_some_and(|p| p != Precision::NotPrecise))
    };
    let mut list = Vec::new();
    if precise_everywhere(UOPS) {
        list.push(precise(
            alias(UOPS),
            UOPS,
            "retired uops are precise on this CPU",
        ));
    } else if precise_everywhere(PREC_DIST) {
        list.push(precise(
            alias(PREC_DIST),
            PREC_DIST,
            "the precise event of this CPU with the least bias; uops_retired.all is not precise here",
        ));
    }
    list.push(precise(
        EventKind::Hardware(crate::pmu::event::HardwareEvent::Instructions),
        "instructions",
        "retired instructions are precise on every CPU with PEBS",
    ));
    list
}

/// Uops retired: precise on Sandy Bridge to Cascade Lake, and on some Atoms.
const UOPS: &str = "uops_retired.all";

/// Instructions retired, precisely distributed: precise from Ivy Bridge on.
const PREC_DIST: &str = "inst_retired.prec_dist";

fn alias(name: &str) -> EventKind {
    EventKind::Alias {
        name: name.to_owned(),
        terms: Vec::new(),
    }
}

fn amd(host: &Host) -> Vec<Candidate> {
    let Some(ibs) = host.pmu("ibs_op") else {
        return Vec::new();
    };
    let ops = ibs.formats.contains_key("cnt_ctl");
    let term = |name: &str| Term {
        name: name.to_owned(),
        value: TermValue::Number(1),
    };
    let kind = EventKind::Pmu {
        pmu: ibs.name.clone(),
        terms: if ops {
            vec![term("cnt_ctl")]
        } else {
            Vec::new()
        },
    };
    let (name, reason) = if ops {
        (
            "ibs_op/cnt_ctl=1/",
            "dispatched ops, sampled without skid by IBS",
        )
    } else {
        (
            "ibs_op//",
            "cycles, sampled without skid by IBS; this CPU's IBS can't count ops",
        )
    };
    // IBS is always precise; its own PMU accepts no precise level.
    vec![Candidate {
        spec: EventSpec {
            kind,
            modifiers: Modifiers::default(),
        },
        name,
        min_precise: 0,
        reason: reason.into(),
    }]
}

fn cpu_clock(host: &Host) -> Candidate {
    let reason = if let Some(reason) = host.no_pmu_reason() {
        reason
    } else if host.max_precise() == 0 {
        "the PMU here grants no precise event: neither PEBS nor IBS".into()
    } else {
        "the machine refused every precise event".into()
    };
    Candidate {
        spec: EventSpec {
            kind: EventKind::Software(SoftwareEvent::CpuClock),
            modifiers: Modifiers::default(),
        },
        name: "cpu-clock",
        min_precise: 0,
        reason,
    }
}

/// Level 2: level 3 needs a certain counter, so it is used only on request.
fn precise(kind: EventKind, name: &'static str, reason: &str) -> Candidate {
    let modifiers = Modifiers {
        precise: Precise::Level(2),
        ..Modifiers::default()
    };
    Candidate {
        spec: EventSpec { kind, modifiers },
        name,
        min_precise: 1,
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::host::fixtures;

    fn names(host: &Host) -> Vec<&'static str> {
        candidates(host)
            .iter()
            .map(|candidate| candidate.name)
            .collect()
    }

    /// Each machine gets the best event it has, and a clock at the end.
    #[test]
    fn order_per_machine() {
        let cases: [(Host, &[&str]); 6] = [
            (
                fixtures::skylake(),
                &["uops_retired.all", "instructions", "cpu-clock"],
            ),
            (
                fixtures::ice_lake(),
                &["inst_retired.prec_dist", "instructions", "cpu-clock"],
            ),
            (fixtures::zen4(), &["ibs_op/cnt_ctl=1/", "cpu-clock"]),
            (fixtures::skylake_guest(), &["cpu-clock"]),
            (fixtures::bare_guest(), &["cpu-clock"]),
            (fixtures::alder_lake(), &["instructions", "cpu-clock"]),
        ];
        for (host, expect) in cases {
            assert_eq!(names(&host), expect, "{:?}", host.cpu);
        }
    }

    /// Every candidate of every machine resolves there, with its reason as a note.
    #[test]
    fn candidates_resolve() {
        let reset = crate::pmu::attr::reset_value(16_000).unwrap();
        let modes = Modifiers {
            user: true,
            ..Modifiers::default()
        };
        for host in [fixtures::skylake(), fixtures::ice_lake(), fixtures::zen4()] {
            for candidate in candidates(&host) {
                let event = candidate.resolve(modes, &host, reset).unwrap();
                assert_eq!(event.name, candidate.name);
                assert!(
                    event
                        .notes
                        .iter()
                        .any(|note| note.contains(&candidate.reason))
                );
                let kernel_off = event.attr.exclude_kernel() == 1 || event.drop_in_program.kernel;
                assert!(kernel_off, "{event:?}");
            }
        }
    }

    /// The note of the clock gives the reason why it is not a precise event.
    #[test]
    fn clock_gives_the_reason() {
        let last = |host: Host| candidates(&host).pop().unwrap().reason;
        assert!(last(fixtures::bare_guest()).contains("no hardware PMU here"));
        assert!(last(fixtures::skylake_guest()).contains("neither PEBS nor IBS"));
    }
}
