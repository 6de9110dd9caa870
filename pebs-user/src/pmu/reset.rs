//! Reset values that make sense. Pure.

use std::num::NonZeroU64;

use crate::failure::Warning;
use crate::limits::Limits;
use crate::pmu::attr::{EventClass, EventError, HardwareUnit, ResolvedEvent};
use crate::units::ResetValue;

/// Shortest period of a clock, ns: the kernel raises smaller ones to it.
/// Source: kernel/events/core.c (`perf_swevent_start_hrtimer`).
pub(super) const MIN_CLOCK_NS: u64 = 10_000;

/// Minimum events between two samples of an event that occurs all the time.
///
/// A sample costs about 250 ns even in bulk (Akiyama and Hirofuchi 2017), in which a core at 3 GHz retires about
/// 1,000 instructions: below that it mostly samples itself.
const MIN_STEADY_EVENTS: u64 = 1_000;

/// Events per second assumed for a busy core: 3 GHz, one per cycle.
const STEADY_PER_SECOND: u64 = 3_000_000_000;

/// Share of CPU time at which the kernel lowers the maximum rate, if the sysctl is not 0 or 100.
const NO_CPU_LIMIT: [u64; 2] = [0, 100];

/// Checks whether an event can keep up with its reset value.
///
/// # Errors
/// The value is below the kernel's or the hardware's limit, which the error names.
pub(crate) fn check_reset(event: &ResolvedEvent) -> Result<Vec<Warning>, EventError> {
    if let Some((limit, why)) = smallest(&event.class)
        && event.reset.0.get() < limit
    {
        return Err(EventError::ResetTooSmall {
            event: event.name.clone(),
            reset: event.reset.0.get(),
            limit,
            unit: event.reset_unit(),
            why,
        });
    }
    Ok(lock_warning(event).into_iter().collect())
}

/// The default reset value, changed to a near one that does not run in step with loops.
#[must_use]
pub(crate) fn unasked(event: &ResolvedEvent) -> ResetValue {
    let value = event.reset.0.get();
    let unlocked = match lock_warning(event) {
        Some(_) => next_prime(value),
        None => value,
    };
    NonZeroU64::new(unlocked).map_or(event.reset, ResetValue)
}

/// Maximum expected samples per second and busy CPU; `None` if the event's rate is unknown.
#[must_use]
pub(crate) fn expected_rate(event: &ResolvedEvent) -> Option<u64> {
    let per_second = match event.class {
        EventClass::Clock => 1_000_000_000,
        EventClass::Hardware { steady: true, .. } => STEADY_PER_SECOND,
        _ => return None,
    };
    Some(per_second / event.reset.0.get())
}

fn smallest(class: &EventClass) -> Option<(u64, &'static str)> {
    match class {
        EventClass::Clock => Some((MIN_CLOCK_NS, "the kernel's clock never ticks faster")),
        EventClass::Hardware { steady: true, .. } => Some((
            MIN_STEADY_EVENTS,
            "a core retires about that many while one sample is taken",
        )),
        _ => None,
    }
}

/// The kernel stops a counter for the rest of the tick once it interrupts too often. For events that interrupt at each
/// sample.
pub(crate) fn throttle_warning(event: &ResolvedEvent, limits: &Limits) -> Option<Warning> {
    let rate = expected_rate(event)?;
    let max = limits.max_sample_rate?;
    if rate <= max {
        return None;
    }
    let wanted = rate.next_multiple_of(1_000);
    let mut hint = format!("sudo sysctl kernel.perf_event_max_sample_rate={wanted}");
    // In this order: with the share at 0 the kernel refuses to change the rate.
    match limits.cpu_time_max_percent {
        Some(percent) if NO_CPU_LIMIT.contains(&percent) => {}
        Some(percent) => {
            hint += &format!(
                "; then sudo sysctl kernel.perf_cpu_time_max_percent=0 (now {percent}, which lowers the rate again)"
            );
        }
        None => hint += "; then sudo sysctl kernel.perf_cpu_time_max_percent=0",
    }
    if limits.cpu_time_max_percent == Some(0) {
        hint = format!("sudo sysctl kernel.perf_cpu_time_max_percent=25; then {hint}");
    }
    let longer = event
        .reset
        .0
        .get()
        .saturating_mul(rate.div_ceil(max.max(1)));
    Some(Warning {
        text: format!(
            "a busy cpu takes up to {rate} samples/s of {}, above kernel.perf_event_max_sample_rate \
             ({max}): the kernel will throttle",
            event.name
        ),
        hint: format!("{hint}; or use --reset {}", next_prime(longer)),
    })
}

/// Warning of a reset value that is a multiple of a likely loop length: it would sample the same place of every
/// iteration.
///
/// Loop lengths have small factors, so powers of two and round numbers are at risk and a prime is safe. Clocks do
/// not count code; they may only run in step with the timer tick. IBS randomizes the low bits of its counter.
fn lock_warning(event: &ResolvedEvent) -> Option<Warning> {
    let reset = event.reset.0.get();
    let (locks, to) = match event.class {
        EventClass::Clock => (reset.is_multiple_of(1_000_000), "the timer tick"),
        EventClass::Hardware {
            unit: HardwareUnit::Ibs,
            ..
        } => (false, ""),
        EventClass::Hardware { steady: true, .. } => (is_round(reset), "loops"),
        _ => (false, ""),
    };
    locks.then(|| Warning {
        text: format!(
            "reset value {reset} of {} may lock to {to}: samples then fall on the same place each time",
            event.name
        ),
        hint: format!("use --reset {}, a prime", next_prime(reset)),
    })
}

/// Powers of two, and multiples of 1000 or 1024.
const fn is_round(value: u64) -> bool {
    value.is_power_of_two() || value.is_multiple_of(1_000) || value.is_multiple_of(1_024)
}

/// A reset value close to `wanted` that suits the event: a prime, which runs in step with nothing; for IBS a
/// multiple of 16. Within `least..=most`; these two bounds are used unchanged.
#[must_use]
pub(crate) fn near(class: &EventClass, wanted: u64, least: u64, most: u64) -> u64 {
    if wanted <= least || wanted >= most {
        return wanted.clamp(least, most);
    }
    let suitable = match class {
        EventClass::Hardware {
            unit: HardwareUnit::Ibs,
            ..
        } => wanted.next_multiple_of(16),
        _ => next_prime(wanted - 1),
    };
    suitable.clamp(least, most)
}

/// The smallest prime above a value; the value itself if there is none in 63 bits.
///
/// Cost: trial divisions by odd numbers up to the root; above 2^40 any odd number is good enough.
#[must_use]
pub(crate) fn next_prime(value: u64) -> u64 {
    const EXACT: u64 = 1 << 40;
    if value >= EXACT {
        return value | 1;
    }
    (value + 1..)
        .find(|&candidate| is_prime(candidate))
        .unwrap_or(value)
}

fn is_prime(value: u64) -> bool {
    value >= 2
        && (2..)
            .take_while(|d| d * d <= value)
            .all(|d| !value.is_multiple_of(d))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Hint as _;
    use crate::pmu::attr::{reset_value, resolve};
    use crate::pmu::host::{Host, fixtures};

    fn limits() -> Limits {
        Limits {
            max_sample_rate: Some(100_000),
            cpu_time_max_percent: Some(25),
            ..Limits::default()
        }
    }

    fn check(host: &Host, event: &str, reset: u64) -> Result<Vec<Warning>, EventError> {
        let event = resolve(&event.parse().unwrap(), host, reset_value(reset).unwrap()).unwrap();
        let mut warnings = check_reset(&event)?;
        warnings.extend(throttle_warning(&event, &limits()));
        Ok(warnings)
    }

    /// A round default becomes a prime only for events that may run in step with loops.
    #[test]
    fn unasked_reset_values() {
        let reset = |host: &Host, event: &str| {
            let event = resolve(&event.parse().unwrap(), host, reset_value(16_000).unwrap());
            unasked(&event.unwrap()).0.get()
        };
        assert_eq!(reset(&fixtures::skylake(), "cycles:pp"), 16_001);
        assert_eq!(reset(&fixtures::bare_guest(), "cpu-clock"), 16_000);
        assert_eq!(reset(&fixtures::zen4(), "ibs_op//"), 16_000);
    }

    /// The documented default of a clock passes without a word.
    #[test]
    fn default_is_quiet() {
        assert_eq!(
            check(&fixtures::bare_guest(), "cpu-clock", 16_000),
            Ok(vec![])
        );
        assert_eq!(
            check(&fixtures::bare_guest(), "task-clock", 16_000),
            Ok(vec![])
        );
        assert_eq!(check(&fixtures::bare_guest(), "page-faults", 1), Ok(vec![]));
        assert_eq!(
            check(&fixtures::bare_guest(), "mem:0x1000:x", 1),
            Ok(vec![])
        );
    }

    /// 0 and values below the limit are refused with the limit.
    #[test]
    fn too_small() {
        assert_eq!(reset_value(0), Err(EventError::ResetZero));
        assert_eq!(
            reset_value(1 << 63),
            Err(EventError::ResetTooLarge { reset: 1 << 63 })
        );
        let error = check(&fixtures::bare_guest(), "cpu-clock", 9_999).unwrap_err();
        assert_eq!(
            error.to_string(),
            "reset value 9999 of event 'cpu-clock' is too small: the limit is 10000 ns, \
             as the kernel's clock never ticks faster"
        );
        assert_eq!(error.hint().unwrap(), "use --reset 10000 or more");
        assert!(check(&fixtures::skylake(), "cycles:pp", 999).is_err());
        assert!(check(&fixtures::skylake(), "cpu/event=0xc2,umask=1/pp", 999).is_err());
    }

    /// Rare events may have small reset values: their rate is unknown.
    #[test]
    fn rare_events_are_free() {
        assert_eq!(
            check(&fixtures::skylake(), "cache-misses:pp", 64),
            Ok(vec![])
        );
        assert_eq!(
            check(&fixtures::skylake(), "cpu/event=0xd1,umask=0x20/pp", 100),
            Ok(vec![])
        );
    }

    /// Rates above the sysctls are warned of, the maximum rate first, then the CPU share.
    #[test]
    fn throttling_is_announced() {
        let host = fixtures::skylake();
        let warnings = check(&host, "cycles:pp", 10_007).unwrap();
        assert_eq!(warnings.len(), 1);
        assert!(
            warnings[0].text.contains("299790 samples/s"),
            "{}",
            warnings[0].text
        );
        let hint = &warnings[0].hint;
        let rate = hint.find("perf_event_max_sample_rate=300000").unwrap();
        let share = hint.find("perf_cpu_time_max_percent=0").unwrap();
        assert!(rate < share, "{hint}");
        assert_eq!(check(&host, "cycles:pp", 40_009), Ok(vec![]));
    }

    /// With a CPU share of 0 the kernel refuses to raise the rate: the share has to be raised first.
    #[test]
    fn share_of_zero_comes_first() {
        let host = fixtures::skylake();
        let event = resolve(
            &"cycles".parse().unwrap(),
            &host,
            reset_value(10_007).unwrap(),
        );
        let limits = Limits {
            cpu_time_max_percent: Some(0),
            ..limits()
        };
        let hint = throttle_warning(&event.unwrap(), &limits).unwrap().hint;
        assert!(
            hint.starts_with("sudo sysctl kernel.perf_cpu_time_max_percent=25"),
            "{hint}"
        );
    }

    /// Round numbers of steady hardware events lock to loops; the hint has the next prime.
    #[test]
    fn locking_reset_values() {
        let lock = |event: &str, reset| {
            let warnings = check(&fixtures::skylake(), event, reset).unwrap();
            warnings
                .into_iter()
                .find(|warning| warning.text.contains("lock"))
        };
        for (reset, prime) in [(65_536, 65_537), (64_000, 64_007), (131_072, 131_101)] {
            let warning = lock("instructions:pp", reset).unwrap();
            assert_eq!(warning.hint, format!("use --reset {prime}, a prime"));
            assert_eq!(lock("instructions:pp", prime), None);
        }
        assert!(
            lock("cpu-clock", 1_000_000)
                .unwrap()
                .text
                .contains("timer tick")
        );
        assert_eq!(lock("cpu-clock", 65_536), None);
        let ibs = check(&fixtures::zen4(), "ibs_op//", 65_536).unwrap();
        assert!(ibs.is_empty(), "{ibs:?}");
    }

    /// A value within the bounds becomes a prime, or a multiple of 16 for IBS; the bounds stay.
    #[test]
    fn suitable_values() {
        let ibs = EventClass::Hardware {
            unit: HardwareUnit::Ibs,
            steady: true,
        };
        let near = |class, wanted| near(class, wanted, 16_000, 64_000);
        for (wanted, clock, of_ibs) in [
            (0, 16_000, 16_000),
            (16_000, 16_000, 16_000),
            (16_001, 16_001, 16_016),
            (30_000, 30_011, 30_000),
            (63_999, 64_000, 64_000),
            (90_000, 64_000, 64_000),
        ] {
            let got = (near(&EventClass::Clock, wanted), near(&ibs, wanted));
            assert_eq!(got, (clock, of_ibs), "{wanted}");
        }
    }

    /// The next prime is the next prime.
    #[test]
    fn primes() {
        for (value, prime) in [(1, 2), (2, 3), (16_000, 16_001), (100_000, 100_003)] {
            assert_eq!(next_prime(value), prime);
        }
        assert_eq!(next_prime(1 << 50), (1 << 50) + 1);
    }
}
