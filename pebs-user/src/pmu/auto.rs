//! `auto`: the best precise event that the machine grants. Pure; trying them out is `open`'s.

use crate::pmu::attr::{EventError, ResolvedEvent, resolve};
use crate::pmu::event::{EventKind, EventSpec, Modifiers, Precise, SoftwareEvent, Term, TermValue};
use crate::pmu::host::{Host, Vendor};
use crate::units::ResetValue;

/// One event that `auto` may become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The event.
    pub spec: EventSpec,
    /// Its name for people.
    pub name: &'static str,
    /// Precise level without which the next candidate is better.
    pub min_precise: u8,
    /// Why it stands at this place of the list.
    pub reason: String,
}

impl Candidate {
    /// Resolves with the modes that were typed after `auto`.
    ///
    /// # Errors
    /// The machine can't do it after all.
    pub fn resolve(
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

/// Events that `auto` tries, best first. Never empty: the last one is `cpu-clock`.
///
/// Retired uops tick most evenly over the instructions of a function. Where no such event is
/// precise, instructions; then AMD's dispatched ops; then time.
#[must_use]
pub fn candidates(host: &Host) -> Vec<Candidate> {
    let mut list = match host.cpu.vendor {
        _ if host.no_pmu_reason().is_some() || host.is_hybrid() => Vec::new(),
        Vendor::Intel if host.max_precise() > 0 => intel(host),
        Vendor::Amd => amd(host),
        Vendor::Intel | Vendor::Other => Vec::new(),
    };
    list.push(cpu_clock(host));
    list
}

fn intel(host: &Host) -> Vec<Candidate> {
    let mut list = Vec::new();
    if has_precise_uops(host) {
        list.push(precise(
            cpu(&[("event", 0xc2), ("umask", 0x01)]),
            "uops_retired.all",
            "retired uops are precise on this CPU",
        ));
    } else {
        list.push(precise(
            cpu(&[("event", 0x00), ("umask", 0x01)]),
            "inst_retired.prec_dist",
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

/// Sandy Bridge to Cascade Lake have `UOPS_RETIRED.ALL` (0xc2, umask 1) as a PEBS event.
///
/// Source: arch/x86/events/intel/ds.c (PEBS constraints), arch/x86/include/asm/intel-family.h.
fn has_precise_uops(host: &Host) -> bool {
    const MODELS: [u32; 20] = [
        0x2a, 0x2d, // Sandy Bridge
        0x3a, 0x3e, // Ivy Bridge
        0x3c, 0x3f, 0x45, 0x46, // Haswell
        0x3d, 0x47, 0x4f, 0x56, // Broadwell
        0x4e, 0x5e, 0x55, // Skylake, Cascade Lake
        0x8e, 0x9e, // Kaby Lake, Coffee Lake
        0xa5, 0xa6, // Comet Lake
        0x66, // Cannon Lake
    ];
    host.cpu.family == 6 && MODELS.contains(&host.cpu.model)
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
    // IBS is precise by nature; the kernel takes no level from its own PMU.
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
    } else if host.is_hybrid() {
        "this CPU has two kinds of cores, whose events can't be sampled as one".into()
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

/// Level 2: 3 is left to those who ask for it, as it needs a certain counter.
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

fn cpu(terms: &[(&str, u64)]) -> EventKind {
    let term = |&(name, value): &(&str, u64)| Term {
        name: name.to_owned(),
        value: TermValue::Number(value),
    };
    EventKind::Pmu {
        pmu: "cpu".into(),
        terms: terms.iter().map(term).collect(),
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
            (fixtures::alder_lake(), &["cpu-clock"]),
        ];
        for (host, expect) in cases {
            assert_eq!(names(&host), expect, "{:?}", host.cpu);
        }
    }

    /// Every candidate of every machine resolves there, with its reason as a note.
    #[test]
    fn candidates_resolve() {
        let reset = crate::pmu::reset::reset_value(16_000).unwrap();
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

    /// The clock says why it is not a precise event.
    #[test]
    fn clock_gives_the_reason() {
        let last = |host: Host| candidates(&host).pop().unwrap().reason;
        assert!(last(fixtures::bare_guest()).contains("has no cpu"));
        assert!(last(fixtures::skylake_guest()).contains("neither PEBS nor IBS"));
        assert!(last(fixtures::alder_lake()).contains("two kinds of cores"));
    }
}
