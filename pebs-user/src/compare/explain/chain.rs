//! Whom a wait waited for.
//!
//! A wait ends when a thread wakes the one that waits. What that thread did from the begin of the wait to the wake-up is
//! what held it up: the functions that it ran, and its own waits, which are followed in the same way to the threads that
//! ended them. So the time of a wait is divided among what the last threads of the chain did, and nothing counts twice.
//! *Worked number*: an item waits 10 ms for a lock. The thread that wakes it waited 9 ms of these for the disk, within
//! another item, and ran 1 ms: 90 % of the wait are that item's wait for the disk.
//!
//! Items of a probe that wait for one another in the same state and function are one queue: if B, which A waits for, itself
//! waits for C in the same function, A waits for B and C, and the queue is two long.
//!
//! A chain ends where the trace tells no more: at an interrupt (a timer, the disk, the network), at a thread that is
//! not traced, at one that waits for a thread further up (a hand-over back), or after [`DEEPEST`] threads. Where the waits of
//! a thread were not kept (`--keep`, or a trace without `other_waits`), what it did meanwhile is not known. Nothing is
//! guessed: such time is listed as what it is.

mod lines;

use std::cmp::Reverse;

use rustc_hash::{FxHashMap, FxHashSet};

use self::lines::{By, Line, Lines, VisitAt, WaitAt, Windows};
use super::chain_model::{Activity, Awaited, Doing, Link, WaitedFor};
use crate::compare::arguments::NamedArg;
use crate::compare::names::Names;
use crate::store::args::{ArgRef, ArgView};
use crate::store::call_stacks::CallStacks;
use crate::store::reader::{ReadError, Trace};
use crate::store::run::EventInfo;
use crate::store::schema::ArgValue;
use crate::store::view::{Select as _, columns};

/// Most threads of a chain.
const DEEPEST: usize = 16;

/// Most waits that are followed for one root: the longest.
const MOST_WAITS: usize = 10_000;

/// Least part of the root's wait that is listed.
const LEAST_PART: f64 = 0.01;

/// Part of the time of a link's items from which on an argument is theirs, and part of all items up to which it tells
/// them apart.
const COMMON: f64 = 0.9;
const USUAL: f64 = 0.5;

columns! {
    struct Args of visits { visit_id, probe_id }
}

/// A wait to be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Root {
    /// Waits of the same group are summed.
    pub group: usize,
    pub tid: u32,
    pub begin_ns: i64,
    pub end_ns: i64,
}

/// Follows waits; returns what those of each group waited for.
///
/// Cost: reads `waits`, `other_waits`, `visits` and `samples` once, and the arguments of visits twice if there are any.
/// Memory: the rows within these waits.
pub(super) fn follow(
    trace: &Trace,
    event: Option<&EventInfo>,
    (groups, mut roots): (usize, Vec<Root>),
) -> Result<Vec<WaitedFor>, ReadError> {
    // The longest of each group.
    roots.sort_by_key(|it| (it.group, it.begin_ns - it.end_ns, it.tid, it.begin_ns));
    // A wait may be of several items.
    roots.dedup();
    let longest = roots.chunk_by(|a, b| a.group == b.group);
    let longest = longest.flat_map(|it| &it[..it.len().min(MOST_WAITS)]);
    let roots: Vec<Root> = longest.copied().collect();
    let windows = roots.iter().map(|it| (it.begin_ns, it.end_ns)).collect();
    let lines = Lines::read(trace, &Windows::of(windows), event)?;
    let walk = Walk { lines: &lines };
    let mut blames = vec![Blame::default(); groups];
    for root in &roots {
        let line = lines.of(root.tid);
        let waits = line.map(|it| it.waits_in(root.begin_ns, root.end_ns));
        let its = |it: &&WaitAt| it.begin == root.begin_ns && it.end == root.end_ns;
        if let Some(wait) = waits.and_then(|mut it| it.find(its)) {
            let blame = &mut blames[root.group];
            blame.met.clear();
            let range = (root.begin_ns, root.end_ns);
            walk.wait(wait, range, &mut vec![root.tid], blame);
            let ns = (root.end_ns - root.begin_ns) as f64;
            blame.queued += blame.met.len() as f64 * ns;
        }
    }
    let listing = Listing::new(trace, &lines, &blames)?;
    let found = blames.iter();
    Ok(found
        .map(|it| listing.waited_for(it, it.ns as f64))
        .collect())
}

/// Sums over waits in the same state and function.
#[derive(Clone, Debug, Default)]
struct Blame {
    /// Time of the waits, ns.
    ns: i64,
    waits: u64,
    no_cpu_ns: i64,
    interrupt_ns: i64,
    itself_ns: i64,
    unknown_ns: i64,
    links: FxHashMap<Who, LinkSums>,
    /// Visits met in the current root's wait.
    met: FxHashSet<u64>,
    /// Number of these, times the root's time, ns.
    queued: f64,
}

/// Whom a wait waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Who {
    /// Items of a probe.
    Items(u16),
    /// A thread at no item.
    Thread(u32),
    /// A thread that is not traced.
    Untraced(u32),
}

/// Sums over the time in which such threads were waited for.
#[derive(Clone, Debug, Default)]
struct LinkSums {
    ns: i64,
    /// The longest time without a turn: its length, visit and thread.
    longest: (i64, Option<u64>, u32),
    /// Time by visit, ns.
    visits: FxHashMap<u64, i64>,
    ran_ns: i64,
    /// Samples by function.
    samples: FxHashMap<u32, u64>,
    off: FxHashMap<Off, OffSums>,
}

/// Off the CPU in a state and function; preempted by a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Off {
    Waited(usize, Option<u32>),
    Preempted(u32),
}

#[derive(Clone, Debug, Default)]
struct OffSums {
    ns: i64,
    waits: u64,
    /// Time by call stack, ns.
    stacks: FxHashMap<u32, i64>,
    blame: Blame,
}

/// Follows waits.
struct Walk<'a> {
    lines: &'a Lines,
}

impl Walk<'_> {
    /// Books a wait within a range. `chain`: the threads from the root to the one that waits.
    fn wait(
        &self,
        wait: &WaitAt,
        (begin, end): (i64, i64),
        chain: &mut Vec<u32>,
        blame: &mut Blame,
    ) {
        blame.ns += end - begin;
        blame.waits += 1;
        self.ended(wait, (begin, end), chain, blame);
    }

    /// Divides the time of a wait by what ended it.
    fn ended(
        &self,
        wait: &WaitAt,
        (begin, end): (i64, i64),
        chain: &mut Vec<u32>,
        blame: &mut Blame,
    ) {
        let woken = wait.woken.clamp(begin, end);
        blame.no_cpu_ns += end - woken;
        let ns = woken - begin;
        match wait.by {
            By::Interrupt => blame.interrupt_ns += ns,
            By::Unknown | By::Preempted(_) => blame.unknown_ns += ns,
            By::Woken(by) if chain.contains(&by) => blame.itself_ns += ns,
            By::Woken(_) if chain.len() == DEEPEST => blame.unknown_ns += ns,
            By::Woken(by) => match self.lines.of(by) {
                Some(line) => {
                    chain.push(by);
                    self.thread(by, line, (begin, woken), chain, wait, blame);
                    chain.pop();
                }
                None => {
                    let link = blame.links.entry(Who::Untraced(by)).or_default();
                    link.add(ns, None, by);
                }
            },
        }
    }

    /// Books what a thread did in a range, in which the last but one of the chain waited for it.
    fn thread(
        &self,
        tid: u32,
        line: &Line,
        (begin, end): (i64, i64),
        chain: &mut Vec<u32>,
        waits: &WaitAt,
        blame: &mut Blame,
    ) {
        let mut at = begin;
        for wait in line.waits_in(begin, end) {
            let (from, to) = (wait.begin.max(begin), wait.end.min(end));
            self.ran(tid, line, (at, from), blame);
            at = at.max(to);
            let visit = match wait.visit {
                Some(visit) => self.lines.visits.get(&visit),
                None => None,
            };
            if let Some(visit) = visit {
                blame.met.insert(visit.visit_id);
            }
            let is_same = (wait.state, wait.function) == (waits.state, waits.function);
            if is_same && visit.is_some_and(|visit| self.is_for_like(wait, visit)) {
                self.ended(wait, (from, to), chain, blame);
                continue;
            }
            let link = blame.link(visit, tid);
            link.add(to - from, visit, tid);
            let off = match wait.by {
                By::Preempted(by) => Off::Preempted(by),
                _ => Off::Waited(wait.state, wait.function),
            };
            let off = link.off.entry(off).or_default();
            off.ns += to - from;
            off.waits += 1;
            if let Some(stack) = wait.stack {
                *off.stacks.entry(stack).or_default() += to - from;
            }
            if !matches!(wait.by, By::Preempted(_)) {
                self.wait(wait, (from, to), chain, &mut off.blame);
            }
        }
        self.ran(tid, line, (at, end), blame);
    }

    /// Whether an item of the same probe ended a wait of a visit.
    fn is_for_like(&self, wait: &WaitAt, visit: &VisitAt) -> bool {
        let By::Woken(by) = wait.by else {
            return false;
        };
        let line = self.lines.of(by);
        let at = line.and_then(|line| line.visit_at(wait.woken - 1));
        at.is_some_and(|at| at.probe == visit.probe)
    }

    /// Books time on the CPU.
    fn ran(&self, tid: u32, line: &Line, (begin, end): (i64, i64), blame: &mut Blame) {
        if begin >= end {
            return;
        }
        let mut from = begin;
        let turns = line.turns_in(begin, end);
        for to in turns.into_iter().chain([end]) {
            let visit = line.visit_at(from);
            if let Some(visit) = visit {
                blame.met.insert(visit.visit_id);
            }
            let link = blame.link(visit, tid);
            link.add(to - from, visit, tid);
            if self.lines.has_waits_of(visit) {
                link.ran_ns += to - from;
            }
            for function in line.samples_in(from, to) {
                *link.samples.entry(function).or_default() += 1;
            }
            from = to;
        }
    }
}

impl Blame {
    fn link(&mut self, visit: Option<&VisitAt>, tid: u32) -> &mut LinkSums {
        let who = visit.map_or(Who::Thread(tid), |visit| Who::Items(visit.probe));
        self.links.entry(who).or_default()
    }

    /// Calls `take` with this and all blames below it.
    fn each<'a>(&'a self, take: &mut dyn FnMut(&'a Self)) {
        take(self);
        for link in self.links.values() {
            link.off.values().for_each(|off| off.blame.each(take));
        }
    }
}

impl LinkSums {
    fn add(&mut self, ns: i64, visit: Option<&VisitAt>, tid: u32) {
        let visit_id = visit.map(|it| it.visit_id);
        self.ns += ns;
        self.longest = self.longest.max((ns, visit_id, tid));
        if let Some(visit) = visit_id {
            *self.visits.entry(visit).or_default() += ns;
        }
    }
}

/// Makes data with names of sums.
struct Listing<'a> {
    trace: &'a Trace,
    lines: &'a Lines,
    names: Names,
    stacks: CallStacks,
    args: VisitArgs,
}

/// Arguments of visits that were waited for.
#[derive(Default)]
struct VisitArgs {
    of_visit: FxHashMap<u64, Vec<Option<ArgValue>>>,
    /// For each probe its number of visits, and that of those with a value of a column.
    visits: FxHashMap<u16, u64>,
    with: FxHashMap<(u16, usize, ArgValue), u64>,
}

impl<'a> Listing<'a> {
    fn new(trace: &'a Trace, lines: &'a Lines, blames: &[Blame]) -> Result<Self, ReadError> {
        let (mut functions, mut stack_ids) = (FxHashSet::default(), FxHashSet::default());
        let mut visits: FxHashSet<u64> = FxHashSet::default();
        for root in blames {
            root.each(&mut |blame| {
                for link in blame.links.values() {
                    functions.extend(link.samples.keys());
                    visits.extend(link.visits.keys());
                    for (off, sums) in &link.off {
                        if let Off::Waited(_, function) = off {
                            functions.extend(function);
                        }
                        stack_ids.extend(sums.stacks.keys().copied());
                    }
                }
            });
        }
        let stacks = match stack_ids.is_empty() {
            true => CallStacks::default(),
            false => CallStacks::read(trace)?,
        };
        let frames = stack_ids.iter().filter_map(|it| stacks.frames(Some(*it)));
        functions.extend(frames.flatten());
        let args = match trace.info.columns.is_empty() || visits.is_empty() {
            true => VisitArgs::default(),
            false => VisitArgs::read(trace, &visits)?,
        };
        Ok(Self {
            trace,
            lines,
            names: Names::of(trace, functions.into_iter())?,
            stacks,
            args,
        })
    }

    fn waited_for(&self, blame: &Blame, whole_ns: f64) -> WaitedFor {
        let part = |ns: i64| if ns == 0 { 0.0 } else { ns as f64 / whole_ns };
        let listed = |it: &(&Who, &LinkSums)| part(it.1.ns) >= LEAST_PART;
        let mut links: Vec<_> = blame.links.iter().filter(listed).collect();
        links.sort_by_key(|(who, link)| (Reverse(link.ns), **who));
        let hidden = blame.links.values().filter(|it| part(it.ns) < LEAST_PART);
        WaitedFor {
            part: part(blame.ns),
            waits: blame.waits,
            queue: if blame.queued > 0.0 {
                blame.queued / blame.ns as f64
            } else {
                0.0
            },
            links: links
                .into_iter()
                .map(|(who, link)| self.link(*who, link, whole_ns))
                .collect(),
            no_cpu: part(blame.no_cpu_ns),
            interrupts: part(blame.interrupt_ns),
            itself: part(blame.itself_ns),
            unknown: part(blame.unknown_ns) + hidden.map(|it| part(it.ns)).sum::<f64>(),
        }
    }

    fn link(&self, who: Who, link: &LinkSums, whole_ns: f64) -> Link {
        let thread_name = |tid: u32| {
            let name = self.lines.names.get(&tid);
            name.cloned().unwrap_or_else(|| tid.to_string())
        };
        let (kind, name) = match who {
            Who::Items(probe) => {
                let mut probes = self.trace.info.probes.iter();
                let probe = probes.find(|it| it.id.0 == probe);
                let name = probe.map_or_else(String::new, |it| it.spec.function().to_owned());
                (Awaited::Items, name)
            }
            Who::Thread(tid) => (Awaited::Thread, thread_name(tid)),
            Who::Untraced(tid) => (Awaited::Untraced, thread_name(tid)),
        };
        let (_, visit_id, tid) = link.longest;
        let visit = visit_id.and_then(|it| self.lines.visits.get(&it));
        let args = match who {
            Who::Items(probe) => self.args.common(self.trace, probe, &link.visits),
            Who::Thread(_) | Who::Untraced(_) => Vec::new(),
        };
        let mut doing = self.ran(link, whole_ns);
        doing.extend(
            link.off
                .iter()
                .map(|(off, sums)| self.off(*off, sums, whole_ns)),
        );
        doing.retain(|it| it.part >= LEAST_PART);
        doing.sort_by(|a, b| {
            let order = b.part.total_cmp(&a.part);
            order.then_with(|| {
                (a.kind, a.function.function_id).cmp(&(b.kind, b.function.function_id))
            })
        });
        Link {
            kind,
            name,
            part: link.ns as f64 / whole_ns,
            on_cpu: link.ran_ns as f64 / whole_ns,
            items: link.visits.len() as u64,
            args,
            item_id: visit.map(|it| it.item_id),
            visit_id,
            tid,
            doing,
        }
    }

    /// Time on the CPU, divided among functions by their samples.
    fn ran(&self, link: &LinkSums, whole_ns: f64) -> Vec<Doing> {
        let all: u64 = link.samples.values().sum();
        let of = |function: Option<u32>, count: u64, part: f64| Doing {
            kind: Activity::Ran,
            function: self.names.get(function),
            state: None,
            part: link.ran_ns as f64 * part / whole_ns,
            count,
            path: Vec::new(),
            by: None,
            waited_for: None,
        };
        match all {
            0 => vec![of(None, 0, 1.0)],
            all => {
                let each = link.samples.iter();
                each.map(|(id, count)| of(Some(*id), *count, *count as f64 / all as f64))
                    .collect()
            }
        }
    }

    fn off(&self, off: Off, sums: &OffSums, whole_ns: f64) -> Doing {
        let most = sums
            .stacks
            .iter()
            .max_by_key(|(id, ns)| (**ns, Reverse(**id)));
        let frames = most.and_then(|(stack, _)| self.stacks.frames(Some(*stack)));
        let path = frames.unwrap_or_default().iter();
        let (kind, function, state) = match off {
            Off::Preempted(_) => (Activity::Preempted, None, None),
            Off::Waited(state, function) => {
                let state = self.lines.states.name(state).to_owned();
                (Activity::Waited, function, Some(state))
            }
        };
        let by = match off {
            Off::Preempted(by) => self.lines.names.get(&by).cloned(),
            Off::Waited(..) => None,
        };
        let waited_for = (kind == Activity::Waited).then(|| self.waited_for(&sums.blame, whole_ns));
        Doing {
            kind,
            function: self.names.get(function),
            state,
            part: sums.ns as f64 / whole_ns,
            count: sums.waits,
            path: path.map(|id| self.names.get(Some(*id))).collect(),
            by,
            waited_for,
        }
    }
}

impl VisitArgs {
    /// Reads those of these visits, and how many visits have each of their values.
    fn read(trace: &Trace, visits: &FxHashSet<u64>) -> Result<Self, ReadError> {
        let mut args = Self::default();
        for batch in trace.scan_with_args(Args::NAMES)? {
            let batch = batch?;
            let rows = Args::of(&batch)?;
            let views = ArgView::all(&batch, &trace.info.columns)?;
            for (row, visit) in rows.visit_id.iter().enumerate() {
                if visits.contains(visit) {
                    let values: Vec<Option<ArgValue>> = views
                        .iter()
                        .map(|it| it.get(row).map(ArgRef::to_value))
                        .collect();
                    for (column, value) in values.iter().enumerate() {
                        if let Some(value) = value {
                            let key = (rows.probe_id[row], column, value.clone());
                            args.with.insert(key, 0);
                        }
                    }
                    args.of_visit.insert(*visit, values);
                }
            }
        }
        for batch in trace.scan_with_args(Args::NAMES)? {
            let batch = batch?;
            let rows = Args::of(&batch)?;
            let views = ArgView::all(&batch, &trace.info.columns)?;
            for (row, probe) in rows.probe_id.iter().enumerate() {
                *args.visits.entry(*probe).or_default() += 1;
                for (column, view) in views.iter().enumerate() {
                    if let Some(value) = view.get(row)
                        && let Some(count) = args.with.get_mut(&(*probe, column, value.to_value()))
                    {
                        *count += 1;
                    }
                }
            }
        }
        Ok(args)
    }

    /// Arguments of most of these visits, weighted by their time, that tell them from others of their probe.
    fn common(&self, trace: &Trace, probe: u16, visits: &FxHashMap<u64, i64>) -> Vec<NamedArg> {
        let all = self.visits.get(&probe).copied().unwrap_or(0) as f64;
        let mut common = Vec::new();
        for (column, argument) in trace.info.columns.iter().enumerate() {
            let mut times: FxHashMap<&ArgValue, i64> = FxHashMap::default();
            let mut whole = 0;
            for (visit, ns) in visits {
                whole += ns;
                let values = self.of_visit.get(visit);
                if let Some(Some(value)) = values.and_then(|it| it.get(column)) {
                    *times.entry(value).or_default() += ns;
                }
            }
            let Some((value, ns)) = times.into_iter().max_by_key(|(_, ns)| *ns) else {
                continue;
            };
            let with = self.with.get(&(probe, column, value.clone()));
            let usual = with.copied().unwrap_or(0) as f64 / all;
            if ns as f64 >= COMMON * whole as f64 && usual <= USUAL {
                common.push(NamedArg {
                    name: argument.name.clone(),
                    value: Some(value.clone()),
                });
            }
        }
        common
    }
}
