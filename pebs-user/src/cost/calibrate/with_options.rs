//! Cost of recording with `--with`: run time of the programs, as counted by the kernel, for events that this thread
//! causes.
//!
//! Some of the programs see the whole machine meanwhile: for some ten ms, at the same cost to others as the
//! recording itself.

use std::io::{Read as _, Write as _};
use std::net::UdpSocket;
use std::num::NonZeroU64;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use aya::sys::{Stats, enable_stats};
use pebs_common::config::Waits;
use pebs_stats::summary::upper_median;
use perf_event_open_sys::bindings as sys;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use super::{Bench, CALLS, SwitchCosts, TABLE, Work, own_thread, spin, timed, work_for};
use crate::collect::programs::RunTime;
use crate::pmu::attr::{EventClass, Faults, ResolvedEvent, page_faults};
use crate::pmu::jitter::{self, DEFAULT_PERCENT};
use crate::pmu::open::PerfEvent;
use crate::stream::decode::Interferences;
use crate::units::ResetValue;

/// Between two interrupts of a clock, ns.
const TICK_NS: u64 = 20_000;
/// Time of the work that they interrupt.
const WORK: Duration = Duration::from_millis(5);
/// Number of times that a thread is woken, and wakes the other.
const WAKES: u32 = 300;
/// Rounds of messages.
const ROUNDS: u32 = 4;
/// Number of times that a thread sleeps for the cost of a switch: the ring holds the records of both threads.
const SLEEPS: u32 = 250;
/// Rounds of these: their times vary.
const SWITCH_ROUNDS: u32 = 7;
/// A reset value so large that no sample is taken.
const SELDOM: ResetValue = ResetValue(NonZeroU64::new(1 << 40).expect("not zero"));
/// A reset value of clocks as in a recording, ns.
const USUAL: ResetValue = ResetValue(NonZeroU64::new(1_000_000).expect("not zero"));
/// Minimum runs of a program for its run time to be known.
const LEAST_RUNS: u64 = 50;

/// The `--with` data that is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    /// Wake-ups and preemptions.
    pub encounters: bool,
    /// The same, if they may be recorded from some time on.
    pub waits_later: bool,
    /// Interruptions (interrupts, page faults).
    pub interference: Interferences,
}

/// Costs, ns; `None` if not recorded, or not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExtraCosts {
    /// An interrupt.
    pub interrupt_ns: Option<f64>,
    /// A softirq.
    pub softirq_ns: Option<f64>,
    /// A page fault, counted and timed.
    pub fault_ns: Option<f64>,
    /// A wake-up; recording a preemption costs as much.
    pub encounter_ns: Option<f64>,
}

impl Bench {
    /// Measures the costs of the recorded data.
    pub(super) fn extras(&mut self, wanted: Extras) -> ExtraCosts {
        if wanted == Extras::default() {
            return ExtraCosts::default();
        }
        let Interferences { irq, faults } = wanted.interference;
        let counted = faults.then(|| self.page_fault()).flatten();
        let Ok(_stats) = enable_stats(Stats::RunTime) else {
            return ExtraCosts::default();
        };
        let timed = counted.and_then(|_| self.faults());
        let attached = self.programs.attach_switches().is_ok();
        if irq && attached {
            self.ticks();
            self.softirqs();
        }
        if wanted.waits_later && attached {
            let recorded = self.programs.record_waits(Waits::Encounters);
            let _ = self.kept(recorded);
        }
        let has_waits = wanted.encounters || wanted.waits_later;
        if has_waits && attached {
            Self::wakes(None, WAKES, || self.empty());
        }
        self.programs.detach_tracepoints();
        if wanted.waits_later {
            let ended = self.programs.record_waits(Waits::Nothing);
            let _ = self.kept(ended);
        }
        let one = |run: Option<RunTime>| {
            let run = run.filter(|run| run.runs >= LEAST_RUNS)?;
            Some(run.ns as f64 / run.runs as f64)
        };
        let both = |[begin, end]: [Option<RunTime>; 2]| Some(one(begin)? + one(end)?);
        let [hard, soft] = self.programs.irq_times();
        ExtraCosts {
            interrupt_ns: both(hard).filter(|_| irq),
            softirq_ns: both(soft).filter(|_| irq),
            fault_ns: counted.zip(one(timed)).map(|(count, time)| count + time),
            encounter_ns: one(self.programs.wake_time()).filter(|_| has_waits),
        }
    }

    /// Cost of a switch with its record, and with the kernel's work for the events of a thread: it stops and starts
    /// counters and sets the timers of clocks, which takes far longer than the record. A timer costs most if it is the
    /// CPU's next one, so clocks have distances as in a recording. This is what a thread's CPU time grows by: the kernel
    /// counts the work of a switch as time of the thread that comes, so that of a switch out before a pause is nobody's.
    ///
    /// All are measured in turn, and only differences within a round count: what a wake-up takes drifts.
    pub(super) fn switch(&mut self, event: Option<&ResolvedEvent>) -> Option<SwitchCosts> {
        let event = event?;
        let here = OnOneCpu::stay();
        let usual = match event.class {
            EventClass::Clock => USUAL,
            _ => SELDOM,
        };
        let clocks = [
            &[][..],
            jitter::together(event, usual, 0.0, None),
            jitter::together(event, usual, DEFAULT_PERCENT, None),
        ];
        let mut more = [const { Vec::new() }; 3];
        for _ in 0..SWITCH_ROUNDS {
            let plain = self.switches(&here.other);
            let attached = self.programs.attach_switches();
            self.kept(attached)?;
            let with = |clocks| {
                let _counters = self.clocks(event, usual, clocks)?;
                Some(self.switches(&here.other) - plain)
            };
            let round = clocks.map(with);
            self.programs.detach_tracepoints();
            for (more, ns) in more.iter_mut().zip(round) {
                more.push(ns?);
            }
        }
        // Each wake switches this thread out and in again.
        let [none, one, several] = more.map(|it| {
            let more = upper_median(it).unwrap_or_default();
            more as f64 / f64::from(2 * SLEEPS)
        });
        Some(SwitchCosts::ordered(none, one, several))
    }

    /// CPU time of a round of sleeps, ns.
    fn switches(&self, other: &CpuSet) -> i64 {
        // Reading records is no part of it.
        self.empty();
        timed(|| Self::wakes(Some(other), SLEEPS, || {})).as_nanos() as i64
    }

    /// Opens the counters that a thread has in a recording with these clocks, begun one after the other so that they stay
    /// apart.
    fn clocks(
        &self,
        event: &ResolvedEvent,
        usual: ResetValue,
        clocks: &[f64],
    ) -> Option<Vec<PerfEvent>> {
        let open = |attr: &sys::perf_event_attr, name: &str| {
            let counter = self.kept(PerfEvent::open(attr, own_thread(), name))?;
            self.kept(counter.enable())?;
            Some(counter)
        };
        if clocks.is_empty() {
            return Some(Vec::new());
        }
        // Page faults are counted on what the clocks are: CPUs, or threads.
        let faults = open(&page_faults(Faults::All, own_thread()), "page-faults");
        let apart = Duration::from_nanos(USUAL.0.get()) / clocks.len() as u32;
        let counters = clocks.iter().map(|times| {
            let mut sampled = event.attr_for(own_thread());
            sampled.__bindgen_anon_1.sample_period = usual.times(*times).0.get();
            spin(work_for(apart, &TABLE), &TABLE);
            open(&sampled, &event.name)
        });
        std::iter::once(faults).chain(counters).collect()
    }

    /// Some work that a clock interrupts.
    fn ticks(&self) {
        let mut attr = sys::perf_event_attr {
            type_: sys::PERF_TYPE_SOFTWARE,
            config: u64::from(sys::PERF_COUNT_SW_CPU_CLOCK),
            ..Default::default()
        };
        attr.__bindgen_anon_1.sample_period = TICK_NS;
        attr.set_disabled(1);
        if let Ok(clock) = PerfEvent::open(&attr, own_thread(), "cpu-clock")
            && clock.enable().is_ok()
        {
            self.empty();
            spin(work_for(WORK, &TABLE), &TABLE);
        }
    }

    /// Sends messages to ourselves, each of which the kernel delivers in a softirq.
    fn softirqs(&self) {
        let socket = || {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.connect(socket.local_addr()?)?;
            socket.set_nonblocking(true)?;
            std::io::Result::Ok(socket)
        };
        let Ok(socket) = socket() else { return };
        for _ in 0..ROUNDS {
            self.empty();
            for _ in 0..CALLS {
                // A lost message was delivered in a softirq, too.
                let _ = socket.send(&[0]);
                let _ = socket.recv(&mut [0]);
            }
        }
    }

    /// Wakes a waiting thread of ours, which stays on that CPU, and waits for it, after `each`.
    pub(super) fn wakes(cpu: Option<&CpuSet>, number: u32, each: impl Fn()) {
        let Ok((mut ours, mut theirs)) = UnixStream::pair() else {
            return;
        };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // Anywhere if that is not allowed.
                let _ = cpu.map(|cpu| sched_setaffinity(None, cpu));
                while matches!(theirs.read(&mut [0]), Ok(1)) && theirs.write_all(&[0]).is_ok() {}
            });
            for _ in 0..number {
                each();
                if ours.write_all(&[0]).is_err() || ours.read_exact(&mut [0]).is_err() {
                    break;
                }
            }
            drop(ours);
        });
    }

    /// Run time of the program at the end of a page fault.
    fn faults(&self) -> Option<RunTime> {
        let open = |which: Faults| {
            let attr = page_faults(which, own_thread());
            let counter = self.kept(PerfEvent::open(&attr, own_thread(), "page-faults"))?;
            let program = self.kept(self.programs.page_fault(which))?;
            let link = self.kept(counter.attach(program, None))?;
            self.kept(counter.enable())?;
            Some((counter, link))
        };
        let _counters = [open(Faults::All)?, open(Faults::Minor)?];
        self.empty();
        Work::Touch.run();
        self.programs.minor_fault_time()
    }
}

/// This thread stays on its CPU: a wake-up takes another time on each.
pub(super) struct OnOneCpu {
    before: Option<CpuSet>,
    /// A CPU for a thread that it wakes; the same if there is no other.
    other: CpuSet,
}

impl OnOneCpu {
    pub(super) fn stay() -> Self {
        let only = |cpu| {
            let mut set = CpuSet::new();
            set.set(cpu);
            set
        };
        let here = sched_getcpu();
        let before = sched_getaffinity(None).ok();
        let others = (0..CpuSet::MAX_CPU).filter(|cpu| *cpu != here);
        let other = before.and_then(|set| others.into_iter().find(|cpu| set.is_set(*cpu)));
        Self {
            before: before.filter(|_| sched_setaffinity(None, &only(here)).is_ok()),
            other: only(other.unwrap_or(here)),
        }
    }
}

impl Drop for OnOneCpu {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // It was allowed there before.
            let _ = sched_setaffinity(None, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::programs::StackLimits;
    use crate::cost::calibrate::RING_BYTES;
    use crate::cost::calibrate::tests::uprobes;

    /// Everything that is recorded can be measured here, and other costs are `None`.
    #[test]
    fn extra_costs() {
        let Some(pmu) = uprobes() else { return };
        let all = Extras {
            encounters: true,
            waits_later: false,
            interference: Interferences {
                irq: true,
                faults: true,
            },
        };
        let measured = |extras| {
            let bench = Bench::new(&pmu, RING_BYTES, StackLimits::default(), extras);
            bench.unwrap().extras(extras)
        };
        let costs = measured(all);
        println!("{costs:?}");
        // The kernel may trace no interrupts of the clock.
        let known = [costs.softirq_ns, costs.fault_ns, costs.encounter_ns];
        let sane = |ns: Option<f64>| ns.is_some_and(|ns| ns > 0.0 && ns < 1e6);
        assert!(known.into_iter().all(sane), "{costs:?}");
        let faults = Extras {
            encounters: false,
            waits_later: false,
            interference: Interferences {
                irq: false,
                faults: true,
            },
        };
        let costs = measured(faults);
        assert!(sane(costs.fault_ns), "{costs:?}");
        let others = [costs.interrupt_ns, costs.softirq_ns, costs.encounter_ns];
        assert_eq!(others, [None; 3]);
    }
}
