//! Call stacks summed by function. Pure.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::calls::{Call, Channel};
use super::stacks::{Look, Stack};
use super::thread::Thread;
use crate::units::{FunctionId, Pid};

/// A function on call stacks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    pub function: FunctionId,
    /// Share of the CPU time in it and in what it calls.
    pub cpu: f64,
    /// The same of the time outside of the kernel, where the program itself works.
    pub work: f64,
    /// Calls per second in it and in what it calls.
    pub inputs: f64,
    pub outputs: f64,
    pub waits: f64,
    /// Share of the waits of its threads.
    pub waits_share: f64,
    /// Share of all stacks of its threads.
    pub stacks_share: f64,
    /// Number of functions that call it.
    pub callers: usize,
    /// An address in it, by process.
    pub inside: Vec<(Pid, u64)>,
    /// Return addresses of its calls, the most frequent first.
    pub returns: Vec<(Pid, u64)>,
    /// Threads that called it, the most frequent first, with their part of its stacks.
    pub threads: Vec<(Thread, f64)>,
    /// Its callers on the most frequent stack, the nearest first.
    pub path: Vec<FunctionId>,
}

/// Reads and writes of the process, per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub inputs: BTreeMap<Channel, f64>,
    pub outputs: BTreeMap<Channel, f64>,
    pub waits: f64,
}

/// Sums over all stacks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Profile {
    /// By function.
    pub seen: Vec<Seen>,
    pub rates: Rates,
    /// Reads, writes and waits per second, by thread.
    pub calls: BTreeMap<Thread, f64>,
    /// Samples of the clock.
    pub samples: usize,
}

#[derive(Default)]
struct Sums {
    cpu: f64,
    work: f64,
    stacks: f64,
    calls: [f64; 3],
    callers: FxHashSet<FunctionId>,
    inside: BTreeMap<Pid, u64>,
    returns: FxHashMap<(Pid, u64), f64>,
    threads: FxHashMap<Thread, f64>,
    /// Weights of paths.
    paths: FxHashMap<Vec<FunctionId>, f64>,
}

impl Profile {
    /// Sums up stacks.
    pub(crate) fn of(look: &Look) -> Self {
        let of_clock = || look.stacks.iter().filter(|it| it.call.is_none());
        let samples = of_clock().count();
        let in_user = of_clock().filter(|it| !it.in_kernel).count();
        let calls: f64 = of_calls(&look.stacks).map(|it| it.weight).sum();
        let mut rates = Rates::default();
        let mut by_thread: BTreeMap<Thread, f64> = BTreeMap::new();
        let per_s = |weight: f64| match look.counted_s {
            seconds if seconds > 0.0 => weight / seconds,
            _ => 0.0,
        };
        let mut sums: BTreeMap<FunctionId, Sums> = BTreeMap::new();
        for stack in &look.stacks {
            let rate = per_s(stack.weight);
            if stack.call.is_some() {
                *by_thread.entry(stack.thread).or_default() += rate;
            }
            match stack.call {
                Some(Call::Input(channel)) => *rates.inputs.entry(channel).or_default() += rate,
                Some(Call::Output(channel)) => *rates.outputs.entry(channel).or_default() += rate,
                Some(Call::Wait) => rates.waits += rate,
                None => {}
            }
            // A part of all samples, or of all calls.
            let part = match stack.call {
                None => 1.0 / samples.max(1) as f64,
                Some(_) => stack.weight / calls.max(1.0),
            };
            let work = match stack.call.is_none() && !stack.in_kernel {
                true => 1.0 / in_user as f64,
                false => 0.0,
            };
            add(&mut sums, stack, (part, work, rate));
        }
        let mut of_threads: FxHashMap<Thread, (f64, f64)> = FxHashMap::default();
        for stack in &look.stacks {
            let (stacks, waits) = of_threads.entry(stack.thread).or_default();
            *stacks += 1.0;
            *waits += match stack.call {
                Some(Call::Wait) => per_s(stack.weight),
                _ => 0.0,
            };
        }
        let seen = sums
            .into_iter()
            .map(|(function, sums)| sums.seen(function, &of_threads));
        Self {
            seen: seen.collect(),
            rates,
            calls: by_thread,
            samples,
        }
    }
}

fn of_calls(stacks: &[Stack]) -> impl Iterator<Item = &Stack> {
    stacks.iter().filter(|it| it.call.is_some())
}

fn add(sums: &mut BTreeMap<FunctionId, Sums>, stack: &Stack, (part, work, rate): (f64, f64, f64)) {
    let mut known = FxHashSet::default();
    for (at, frame) in stack.frames.iter().enumerate() {
        // Recursion counts once.
        if !known.insert(frame.function) {
            continue;
        }
        let sums = sums.entry(frame.function).or_default();
        match stack.call {
            None => {
                sums.cpu += part;
                sums.work += work;
            }
            Some(Call::Input(_)) => sums.calls[0] += rate,
            Some(Call::Output(_)) => sums.calls[1] += rate,
            Some(Call::Wait) => sums.calls[2] += rate,
        }
        sums.stacks += 1.0;
        // A return address may be behind the function's end.
        let inside = frame.address.wrapping_sub(u64::from(at > 0));
        sums.inside.insert(stack.thread.pid, inside);
        let outer = &stack.frames[at + 1..];
        if let Some(caller) = outer.first() {
            sums.callers.insert(caller.function);
            let place = (stack.thread.pid, caller.address);
            *sums.returns.entry(place).or_default() += part;
        }
        *sums.threads.entry(stack.thread).or_default() += part;
        let path = outer.iter().map(|it| it.function).collect();
        *sums.paths.entry(path).or_default() += part;
    }
}

impl Sums {
    fn seen(self, function: FunctionId, of_threads: &FxHashMap<Thread, (f64, f64)>) -> Seen {
        let known = self
            .threads
            .keys()
            .filter_map(|thread| of_threads.get(thread));
        let (stacks, waits) = known.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
        let part = |of: f64, all: f64| if all > 0.0 { of / all } else { 0.0 };
        let all: f64 = self.threads.values().sum();
        let threads = by_weight(self.threads).into_iter();
        Seen {
            function,
            cpu: self.cpu,
            work: self.work,
            inputs: self.calls[0],
            outputs: self.calls[1],
            waits: self.calls[2],
            waits_share: part(self.calls[2], waits),
            stacks_share: part(self.stacks, stacks),
            callers: self.callers.len(),
            inside: self.inside.into_iter().collect(),
            returns: by_weight(self.returns).into_iter().map(|it| it.0).collect(),
            threads: threads.map(|(thread, part)| (thread, part / all)).collect(),
            path: by_weight(self.paths)
                .into_iter()
                .next()
                .map_or_else(Vec::new, |it| it.0),
        }
    }
}

/// The heaviest first; the order of equals is that of their keys.
fn by_weight<K: Ord>(weights: FxHashMap<K, f64>) -> Vec<(K, f64)> {
    let mut sorted: Vec<(K, f64)> = weights.into_iter().collect();
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    sorted
}

#[cfg(test)]
mod tests {
    use super::super::stacks::Frame;
    use super::*;
    use crate::units::Tid;

    const THREAD: Thread = Thread {
        pid: Pid(7),
        tid: Tid(8),
    };

    /// A stack, the outermost function first; a function's number times 16 is where calls return to in it.
    fn stack(call: Option<Call>, functions: &[u32]) -> Stack {
        let frames = functions.iter().rev().map(|number| Frame {
            function: FunctionId(*number),
            address: u64::from(*number) * 16,
        });
        Stack {
            thread: THREAD,
            call,
            in_kernel: false,
            weight: 10.0,
            frames: frames.collect(),
        }
    }

    /// Time and calls count in all functions on the stack, once, and callers are known by the calls' return addresses.
    #[test]
    fn sums() {
        let look = Look {
            stacks: vec![
                stack(None, &[1, 2, 3]),
                stack(None, &[1, 2, 2]),
                stack(Some(Call::Output(Channel::Socket)), &[1, 2]),
                stack(Some(Call::Wait), &[1]),
            ],
            counted_s: 2.0,
            ..Look::default()
        };
        let profile = Profile::of(&look);
        assert_eq!(profile.rates.outputs[&Channel::Socket], 5.0);
        assert_eq!((profile.rates.waits, profile.samples), (5.0, 2));
        let [first, second, third] = &profile.seen[..] else {
            panic!("{profile:?}");
        };
        assert_eq!((first.cpu, first.outputs, first.waits), (1.0, 5.0, 5.0));
        assert_eq!((second.cpu, second.outputs, second.waits), (1.0, 5.0, 0.0));
        assert_eq!((third.cpu, third.callers), (0.5, 1));
        assert_eq!((first.work, third.work), (1.0, 0.5));
        assert_eq!((first.waits_share, first.stacks_share), (1.0, 1.0));
        assert_eq!((second.waits_share, second.stacks_share), (0.0, 0.75));
        assert_eq!(third.returns, [(Pid(7), 32)]);
        assert_eq!(third.path, [FunctionId(2), FunctionId(1)]);
        assert_eq!(second.threads, [(THREAD, 1.0)]);
    }
}
