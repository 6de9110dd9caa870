//! Chooses the clocks that sample a target: those of its threads, or those of CPUs. Pure.
//!
//! A clock of a thread stops and starts with it, which sets timers at each switch: several of them take longer than a
//! short request of a server that sleeps after each. Clocks of CPUs cost nothing at a switch, and interrupt whatever else
//! runs there, so that their distance has a minimum.
//!
//! *Worked number*: 16,000 requests of 21 us in a second, each with two switches, at which eight clocks take 2.5 us and one
//! takes 1: 8 % and 3 % of a CPU, of the 35 % that the target uses. A sample takes 13 us, so clocks of CPUs have a distance of
//! 1.3 ms, and take 1 % of each CPU.

use crate::cost::calibrate::SwitchCosts;
use crate::pmu::jitter::Clocks;

/// Share of the target's CPU time that timers may take.
const OF_TARGET: f64 = 0.01;

/// Share of a CPU that they may take in any case.
const OF_CPU: f64 = 0.001;

/// Fraction of that below which threads get several clocks again.
const CALM: f64 = 0.25;

/// The same shares for one clock of each thread, where clocks of CPUs would have to be rarer than the samples are.
const OF_TARGET_ONE: f64 = 0.02;
const OF_CPU_ONE: f64 = 0.01;

/// Share of each CPU that clocks of CPUs may take.
const OF_EACH_CPU: f64 = 0.01;

/// Observation of the target over some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Length of that time, ns.
    pub ns: f64,
    /// CPU time of the target in it, ns.
    pub cpu_ns: f64,
    /// Switches of its threads, out and in.
    pub switches: u64,
    /// The reset value in force, ns, and whether it may be raised.
    pub reset: (f64, bool),
}

/// The shortest distance of clocks of CPUs, ns.
pub(crate) fn least_of_cpus(sample_ns: f64) -> f64 {
    sample_ns / OF_EACH_CPU
}

/// The clocks to sample with from now on.
pub(crate) fn choose(now: Clocks, seen: &Seen, costs: &SwitchCosts, sample_ns: f64) -> Clocks {
    let rate = seen.switches as f64 / seen.ns.max(1.0);
    let share = |which| rate * (costs.of(which) - costs.of(Clocks::OfCpus)).max(0.0);
    let target = seen.cpu_ns / seen.ns.max(1.0);
    let most = (OF_TARGET * target).max(OF_CPU);
    let part = if now == Clocks::Several { 1.0 } else { CALM };
    if share(Clocks::Several) <= part * most {
        return Clocks::Several;
    }
    let (reset, may_rise) = seen.reset;
    let fits_cpus = reset >= least_of_cpus(sample_ns);
    let fits_one = share(Clocks::One) <= (OF_TARGET_ONE * target).max(OF_CPU_ONE);
    match now {
        Clocks::OfCpus => Clocks::OfCpus,
        _ if fits_cpus || may_rise && !fits_one => Clocks::OfCpus,
        _ => Clocks::One,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: SwitchCosts = SwitchCosts {
        several_ns: 3_000.0,
        one_ns: 1_500.0,
        none_ns: 500.0,
    };

    fn chosen(now: Clocks, switches: u64, cpu: f64, reset: (f64, bool)) -> Clocks {
        let seen = Seen {
            ns: 1e9,
            cpu_ns: cpu * 1e9,
            switches,
            reset,
        };
        choose(now, &seen, &COSTS, 13_000.0)
    }

    /// The worked number; and that it stays so.
    #[test]
    fn many_switches() {
        let redis = |now, reset| chosen(now, 32_000, 0.35, reset);
        let close = (350e3, true);
        assert_eq!(redis(Clocks::Several, close), Clocks::OfCpus);
        assert_eq!(redis(Clocks::One, close), Clocks::OfCpus);
        assert_eq!(redis(Clocks::OfCpus, (1.3e6, true)), Clocks::OfCpus);
        // A given reset value stays.
        assert_eq!(redis(Clocks::Several, (350e3, false)), Clocks::One);
        assert_eq!(redis(Clocks::Several, (2e6, false)), Clocks::OfCpus);
    }

    /// Rare and short items need close samples, at which clocks of CPUs would disturb others.
    #[test]
    fn rare_and_short() {
        let reset = (170e3, true);
        assert_eq!(chosen(Clocks::Several, 5_000, 0.01, reset), Clocks::One);
        assert_eq!(chosen(Clocks::One, 5_000, 0.01, reset), Clocks::One);
    }

    /// Several clocks where they cost little, and only then again.
    #[test]
    fn few_switches() {
        let reset = (350e3, true);
        for now in [Clocks::Several, Clocks::One, Clocks::OfCpus] {
            assert_eq!(chosen(now, 400, 1.0, reset), Clocks::Several);
            assert_eq!(chosen(now, 0, 0.0, reset), Clocks::Several);
        }
        assert_eq!(chosen(Clocks::Several, 3_000, 1.0, reset), Clocks::Several);
        assert_eq!(chosen(Clocks::One, 3_000, 1.0, reset), Clocks::One);
        assert_eq!(chosen(Clocks::OfCpus, 3_000, 1.0, reset), Clocks::OfCpus);
    }
}
