//! Evaluates the facts: one check per feature that recording needs or uses. Pure.

use super::check::Check;
use super::facts::Facts;
use super::{files, kernel, limits, sampling};

/// All checks, in the order in which to fix them.
#[must_use]
pub fn evaluate(facts: &Facts) -> Vec<Check> {
    let all: [fn(&Facts) -> Check; 35] = [
        kernel::version,
        limits::capabilities,
        limits::paranoid,
        limits::lockdown,
        limits::confinement,
        limits::ptrace,
        limits::pids,
        kernel::btf,
        kernel::ring_buffer,
        kernel::task_storage,
        kernel::uprobes,
        kernel::cookies,
        kernel::sample_program,
        kernel::tracepoints,
        kernel::extras,
        kernel::copied_code,
        kernel::sample_time,
        kernel::single_steps,
        kernel::nops,
        sampling::machine,
        sampling::cpus,
        sampling::clock,
        sampling::breakpoints,
        sampling::pmu,
        sampling::precision,
        sampling::automatic,
        sampling::calibration,
        sampling::validation,
        sampling::watchdog,
        limits::rates,
        limits::kernel_symbols,
        limits::memory,
        limits::files,
        limits::mounts,
        files::debug_files,
    ];
    all.iter().map(|check| check(facts)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::doctor::check::Status;
    use crate::cmd::doctor::facts::Answer;
    use crate::limits::{Capabilities, Confinement, Limits, Lockdown, SoftHard};
    use crate::pmu::host::{Host, fixtures};

    fn status(facts: &Facts, name: &str) -> Status {
        let checks = evaluate(facts);
        let check = checks.iter().find(|check| check.name == name);
        check.unwrap_or_else(|| panic!("no check {name}")).status
    }

    fn with_limits(change: impl FnOnce(&mut Limits)) -> Facts {
        let mut facts = Facts::able(fixtures::skylake());
        change(&mut facts.host.limits);
        facts
    }

    /// Names are unique, and every check that is not ok has a fix.
    #[test]
    fn every_fault_has_a_cure() {
        let mut worst = Facts::able(Host::default());
        for answer in worst.answers() {
            *answer = Answer::No("not here".into());
        }
        for facts in [worst, Facts::able(fixtures::bare_guest())] {
            let checks = evaluate(&facts);
            for check in &checks {
                assert_eq!(check.status == Status::Ok, check.fix.is_none(), "{check:?}");
                let same = checks
                    .iter()
                    .filter(|other| other.name == check.name)
                    .count();
                assert_eq!(same, 1, "{check:?}");
            }
        }
    }

    /// A machine with PEBS, as root, has no problem.
    #[test]
    fn good_machine_is_ok() {
        let checks = evaluate(&Facts::able(fixtures::skylake()));
        let bad: Vec<_> = checks
            .iter()
            .filter(|check| check.status != Status::Ok)
            .collect();
        assert!(bad.is_empty(), "{bad:#?}");
    }

    /// Recording needs capabilities, regardless of the sysctl.
    #[test]
    fn capabilities_are_needed() {
        let facts = with_limits(|limits| limits.capabilities = Some(Capabilities::default()));
        assert_eq!(status(&facts, "capabilities"), Status::Missing);
        let facts = with_limits(|limits| {
            limits.capabilities = Some(Capabilities {
                perfmon: true,
                bpf: true,
                ..Capabilities::default()
            });
        });
        assert_eq!(status(&facts, "capabilities"), Status::Degraded);
    }

    /// Lockdown matters only at the level that hides kernel memory.
    #[test]
    fn lockdown_levels() {
        let cases = [
            (Some(Lockdown::None), Status::Ok),
            (Some(Lockdown::Integrity), Status::Ok),
            (Some(Lockdown::Confidentiality), Status::Missing),
            (None, Status::Ok),
        ];
        for (mode, expect) in cases {
            assert_eq!(
                status(&with_limits(|limits| limits.lockdown = mode), "lockdown"),
                expect
            );
        }
    }

    /// A filter or profile is to blame only for what the capabilities allow; each is named with what lifts it.
    #[test]
    fn confined() {
        let rules = Confinement {
            seccomp: true,
            apparmor: Some("docker-default".to_owned()),
            selinux: Some("container_t".to_owned()),
        };
        let mut facts = with_limits(|limits| limits.confinement = rules);
        assert_eq!(status(&facts, "confinement"), Status::Ok);
        facts.clock = Answer::Unknown("permission denied".into());
        let check = limits::confinement(&facts);
        assert_eq!(check.status, Status::Missing);
        let fix = check.fix.unwrap();
        for (name, option) in [
            ("seccomp", "seccomp="),
            ("docker-default", "apparmor="),
            ("container_t", "label="),
        ] {
            assert!(
                check.found.contains(name) && fix.contains(option),
                "{}: {fix}",
                check.found
            );
        }
        facts.host.limits.capabilities = Some(Capabilities::default());
        assert_eq!(status(&facts, "confinement"), Status::Ok);
    }

    /// Yama matters where it forbids to trace one's own child.
    #[test]
    fn ptrace_scopes() {
        for (scope, expect, without) in [
            (None, Status::Ok, Status::Ok),
            (Some(1), Status::Ok, Status::Ok),
            (Some(2), Status::Ok, Status::Degraded),
            (Some(3), Status::Degraded, Status::Degraded),
        ] {
            let mut facts = with_limits(|limits| limits.ptrace_scope = scope);
            assert_eq!(status(&facts, "ptrace"), expect, "{scope:?}");
            facts.host.limits.capabilities = Some(Capabilities::default());
            assert_eq!(status(&facts, "ptrace"), without, "{scope:?}");
        }
    }

    /// Recording is impossible in a pid namespace, where pids differ from the kernel's.
    #[test]
    fn pid_namespaces() {
        for (inside, expect) in [
            (Some(false), Status::Ok),
            (Some(true), Status::Missing),
            (None, Status::Degraded),
        ] {
            let facts = with_limits(|limits| limits.pid_namespace = inside);
            assert_eq!(status(&facts, "pids"), expect);
        }
    }

    /// Warns of throttling for rates below the one that the default reset value needs.
    #[test]
    fn rates_are_judged_by_the_default() {
        for (rate, expect) in [
            (100_000, Status::Ok),
            (62_500, Status::Ok),
            (25_000, Status::Degraded),
        ] {
            let facts = with_limits(|limits| limits.max_sample_rate = Some(rate));
            assert_eq!(status(&facts, "sample rate"), expect, "{rate}");
        }
    }

    /// The limit of open files is too low for probes on many CPUs.
    #[test]
    fn open_files() {
        let limit = |hard| {
            Some(SoftHard {
                soft: Some(256),
                hard: Some(hard),
            })
        };
        let few = with_limits(|limits| limits.open_files = limit(512));
        assert_eq!(status(&few, "open files"), Status::Degraded);
        let many = with_limits(|limits| limits.open_files = limit(524_288));
        assert_eq!(status(&many, "open files"), Status::Ok);
        let found = |facts: &Facts| limits::files(facts).found;
        assert_eq!(found(&many), "256, raised by itself to 524288");
        let same = SoftHard {
            soft: Some(20_000),
            hard: Some(20_000),
        };
        let same = with_limits(|limits| limits.open_files = Some(same));
        assert_eq!(found(&same), "20000", "there is nothing to raise");
    }

    /// Kernels before 5.15 are refused; before 6.3 the sample time is reported as degraded.
    #[test]
    fn kernel_versions() {
        let at = |release: &str| {
            let mut facts = Facts::able(fixtures::skylake());
            facts.host.release = release.into();
            facts.host.version = crate::pmu::host::KernelVersion::parse(release);
            facts
        };
        assert_eq!(status(&at("5.10.0-1-amd64"), "kernel"), Status::Missing);
        assert_eq!(status(&at("5.14.9"), "kernel"), Status::Missing);
        assert_eq!(status(&at("5.15.0"), "kernel"), Status::Ok);
        assert_eq!(status(&at("5.15.0"), "sample time"), Status::Degraded);
        assert_eq!(status(&at("6.3.0"), "sample time"), Status::Ok);
    }

    /// Precision by machine: PEBS and IBS are ok, a guest without either is degraded, not missing.
    #[test]
    fn precision_by_machine() {
        let cases = [
            (
                fixtures::skylake(),
                Status::Ok,
                "PEBS, precise level up to 3",
            ),
            (fixtures::zen4(), Status::Ok, "IBS"),
            (
                fixtures::skylake_guest(),
                Status::Degraded,
                "neither PEBS nor IBS",
            ),
            (
                fixtures::bare_guest(),
                Status::Degraded,
                "without a hardware PMU",
            ),
        ];
        for (host, expect, found) in cases {
            let checks = evaluate(&Facts::able(host));
            let check = checks
                .iter()
                .find(|check| check.name == "precision")
                .unwrap();
            assert_eq!(check.status, expect, "{check:?}");
            assert!(check.found.contains(found), "{check:?}");
        }
    }

    /// A feature that may not be tested is reported as unknown.
    #[test]
    fn unknown_is_degraded() {
        let mut facts = Facts::able(fixtures::skylake());
        facts.ring_buffer = Answer::Unknown("operation not permitted".into());
        assert_eq!(status(&facts, "ring buffer"), Status::Degraded);
    }
}
