//! A thread that draws the distances between samples anew while recording ([`crate::pmu::jitter`]).
//!
//! A change starts the distance anew in the kernel, so a counter is changed only after it has made a sample: changes
//! cost no more than a part of a distance, and never all samples. Cost: a system call to see what was counted and one
//! to change, each with an interrupt on the CPU where the counter runs; the thread pauses so long that it takes
//! [`SHARE`] of a CPU at most, however many counters there are; that of a patient recorder, of which there may be many, takes
//! [`PATIENT`] of that.
//!
//! Source: `__perf_event_period`, kernel/events/core.c.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::collect::clock::now;
use crate::pmu::attr::{EventClass, ResolvedEvent};
use crate::pmu::jitter::Distances;
use crate::pmu::open::PerfEvent;
use crate::rng::SplitMix64;
use crate::units::{EventId, ResetValue};

/// Mean time between two changes at best: samples in between beat with items, if there are enough of them.
const EVERY: Duration = Duration::from_micros(500);

/// Longest mean time between two changes.
const SELDOM: Duration = Duration::from_millis(500);

/// Mean time between two changes of a clock of a CPU. Each interrupts that CPU, whatever runs there; clocks that sample
/// together shift each other meanwhile.
const OF_CPU: Duration = Duration::from_millis(100);

/// Factor from which on the time between two rounds is another one.
const OTHER: f64 = 1.3;

/// Time without a sample after which nothing seems to happen, and the pause of a patient recorder from then on.
const IDLE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(1));

/// Share of a CPU's time for changes.
const SHARE: f64 = 0.005;

/// Factor of that for a patient recorder.
const PATIENT: f64 = 0.1;

/// A counter with what was counted at its last change, and the distance since.
struct Varied {
    counter: Arc<PerfEvent>,
    /// Its mean distance in reset values.
    times: f64,
    value: u64,
    distance: u64,
    /// Whether it is a clock of a CPU: these count all time, which is known without an interrupt.
    of_cpu: bool,
    /// Time of the next change of such a clock, ns.
    next_ns: u64,
}

impl Varied {
    fn new(counter: &Arc<PerfEvent>, times: f64, reset: ResetValue, is_clock: bool) -> Self {
        let mut varied = Self {
            counter: Arc::clone(counter),
            times,
            value: 0,
            distance: reset.times(times).0.get(),
            of_cpu: is_clock && counter.thread().is_none(),
            next_ns: 0,
        };
        varied.value = varied.value().unwrap_or(0);
        varied
    }

    /// Value of the counter.
    fn value(&self) -> Option<u64> {
        match self.of_cpu {
            true => Some(now().0),
            false => self.counter.times().ok().map(|it| it.value),
        }
    }

    /// Mean time between two changes, where the thread makes a round that often.
    fn every(&self, round: Duration) -> Duration {
        match self.of_cpu {
            true => round.max(OF_CPU),
            false => round,
        }
    }

    /// Draws the distance anew if a sample came since the last time.
    fn vary(&mut self, distances: &mut Distances, rng: &mut SplitMix64) -> bool {
        let now_ns = now().0;
        if now_ns < self.next_ns {
            return false;
        }
        // A counter whose thread or CPU is gone stays as it is.
        let Some(value) = self.value() else {
            return false;
        };
        let events = value.saturating_sub(self.value);
        let Some(samples) = events.checked_div(self.distance).filter(|it| *it > 0) else {
            return false;
        };
        distances.counted((events as f64 / self.times) as u64, samples);
        let distance = distances.draw(self.times);
        let drawn = std::num::NonZeroU64::new(distance).map(ResetValue);
        let changed = drawn.is_some_and(|reset| self.counter.set_reset(reset).is_ok());
        self.value = value;
        if self.of_cpu {
            self.next_ns = now_ns + (OF_CPU.as_nanos() as f64 * around_one(rng)) as u64;
        }
        if changed {
            self.distance = distance;
        }
        changed
    }
}

/// Counters of an event.
struct OfEvent {
    event: EventId,
    is_clock: bool,
    distances: Distances,
    counters: Vec<Varied>,
}

impl OfEvent {
    /// Takes into account that the thread makes a round that often. How many events another event than a clock counts
    /// meanwhile is not known.
    fn settle(&mut self, round: Duration) {
        let sum: f64 = self.counters.iter().map(|it| it.times).sum();
        if let (true, Some(first)) = (self.is_clock, self.counters.first()) {
            let times = sum / self.counters.len() as f64;
            let every_ns = first.every(round).as_nanos() as f64;
            self.distances.drawn_every(every_ns, times);
        }
    }
}

/// Changes of distances so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Drawn {
    /// Number of changes.
    pub changes: u64,
    /// Mean time between two rounds, ns; 0: there was none.
    pub every_ns: u64,
}

#[derive(Default)]
struct State {
    events: Vec<OfEvent>,
    changes: u64,
    rounds: u64,
    /// Time in which nothing happened, and there were no rounds.
    idle: Duration,
    /// Mean time between two rounds, as distances take it into account.
    round: Duration,
}

impl State {
    /// Takes into account that the thread makes a round that often from now on, if that is another time than before.
    fn settle(&mut self, round: Duration) {
        let ratio = round.as_secs_f64() / self.round.as_secs_f64();
        if !(1.0 / OTHER..OTHER).contains(&ratio) {
            self.round = round;
            self.events.iter_mut().for_each(|it| it.settle(round));
        }
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Whether it sleeps longer where nothing happens.
    patient: bool,
    ends: AtomicBool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread. Dropping it ends it; the last distances stay in force.
pub(crate) struct Jitter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    since: Instant,
}

/// No distance is changed while this exists.
pub(crate) struct Held<'a>(MutexGuard<'a, State>);

impl Jitter {
    /// Starts it for those events whose distances can vary; `None` if there are none.
    pub(crate) fn start(
        events: &[ResolvedEvent],
        percent: f64,
        sample_ns: f64,
        patient: bool,
    ) -> Option<Self> {
        let seed = |n: u8| now().0 ^ u64::from(n) << 56;
        let varied = (0..).zip(events).filter_map(|(n, event)| {
            Some(OfEvent {
                event: EventId(n),
                is_clock: event.class == EventClass::Clock,
                distances: Distances::of(event, percent, sample_ns, seed(n))?,
                counters: Vec::new(),
            })
        });
        let state = State {
            events: varied.collect(),
            round: EVERY,
            ..State::default()
        };
        if state.events.is_empty() {
            return None;
        }
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            patient,
            ends: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new().name("jitter".to_owned());
        let thread = thread.spawn(move || run(&theirs)).ok()?;
        Some(Self {
            shared,
            thread: Some(thread),
            since: Instant::now(),
        })
    }

    /// Stops changes for now, so that a reset value or counters can be changed.
    pub(crate) fn hold(&self) -> Held<'_> {
        Held(self.shared.state())
    }

    pub(crate) fn drawn(&self) -> Drawn {
        let state = self.shared.state();
        let rounds = state.rounds.max(1);
        Drawn {
            changes: state.changes,
            every_ns: match state.changes {
                0 => 0,
                _ => self.since.elapsed().saturating_sub(state.idle).as_nanos() as u64 / rounds,
            },
        }
    }
}

impl Held<'_> {
    /// The event's counters are now these, with this reset value.
    pub(crate) fn set<'a>(
        &mut self,
        event: EventId,
        reset: ResetValue,
        counters: impl Iterator<Item = (&'a Arc<PerfEvent>, f64)>,
    ) {
        if let Some(of) = self.varied(event) {
            of.distances.set_mean(reset.0.get());
            of.counters.clear();
        }
        self.add(event, reset, counters);
        let round = self.0.round;
        if let Some(of) = self.varied(event) {
            of.settle(round);
        }
    }

    /// The event has these counters as well, which have this reset value.
    pub(crate) fn add<'a>(
        &mut self,
        event: EventId,
        reset: ResetValue,
        counters: impl Iterator<Item = (&'a Arc<PerfEvent>, f64)>,
    ) {
        if let Some(of) = self.varied(event) {
            let is_clock = of.is_clock;
            let new = |(counter, times)| Varied::new(counter, times, reset, is_clock);
            of.counters.extend(counters.map(new));
        }
    }

    /// An event, if its distances vary.
    fn varied(&mut self, event: EventId) -> Option<&mut OfEvent> {
        self.0.events.iter_mut().find(|it| it.event == event)
    }
}

impl Drop for Jitter {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It panics only if a counter did.
            let _ = thread.join();
        }
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Between 0.5 and 1.5, by chance.
fn around_one(rng: &mut SplitMix64) -> f64 {
    0.5 + f64::from(rng.below(1 << 16)) / f64::from(1 << 16)
}

fn run(shared: &Shared) {
    let mut rng = SplitMix64::new(now().0);
    let share = SHARE * if shared.patient { PATIENT } else { 1.0 };
    let (mut before, mut cost) = (cpu_time(), EVERY.mul_f64(SHARE));
    let mut drew = Instant::now();
    while !shared.ends.load(Ordering::Relaxed) {
        let idle = shared.patient && drew.elapsed() > IDLE.0;
        {
            let mut state = shared.state();
            let State {
                events,
                changes,
                rounds,
                ..
            } = &mut *state;
            let former = *changes;
            for OfEvent {
                distances,
                counters,
                ..
            } in events
            {
                let each = counters.iter_mut();
                *changes += each
                    .filter_map(|it| it.vary(distances, &mut rng).then_some(()))
                    .count() as u64;
            }
            if *changes > former {
                drew = Instant::now();
            }
            *rounds += u64::from(!idle);
        }
        if idle {
            let begin = Instant::now();
            thread::park_timeout(IDLE.1);
            shared.state().idle += begin.elapsed();
            continue;
        }
        let after = cpu_time();
        // A mean over some rounds, without those in which the thread itself was interrupted.
        let last = after.saturating_sub(before).min(cost * 4);
        cost = (cost * 15 + last) / 16;
        before = after;
        let pause = cost.div_f64(share).clamp(EVERY, SELDOM);
        shared.state().settle(pause);
        // Changes at equal distances would beat with items that start at equal distances.
        thread::park_timeout(pause.mul_f64(around_one(&mut rng)));
    }
}
