//! Compares groups of many traces: hosts, versions, labels. Which take longer, since when, and by which functions and waits.
//!
//! Each trace gives sums ([`read`]), which merge exactly; a group is the sum of its traces. Hosts are what is drawn by
//! chance, so an interval covers what differs from one host to the next ([`mod@contrast`]); where hosts are too few it is
//! traces. Quantiles are those of merged sketches: within 1.6 %.
//!
//! By host each group is one: slow hosts are those whose mean duration or time on the CPU, or whose share of slow items,
//! is farther from the middle host's than chance takes any of so many hosts, by the spread of the middle ones (median
//! absolute deviation) and the host's own error. All slow hosts together are then compared with the others, and their
//! properties tested for what they have in common.
//!
//! Two traces that follow one another have the items of some seconds twice (those that an agent makes): they count twice,
//! and the share of time is told.

mod contrast;
pub(crate) mod model;
mod read;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pebs_stats::summary::median;
use thiserror::Error;

use self::contrast::{began, contrast, quantile, with_samples};
use self::model::{
    Common, Contrast, FLEET_VERSION, Fleet, FleetCause, GroupRow, Moment, ProbeFleet, Slower,
    TooFew, Units, Unread,
};
use self::read::{Period, Sums, sums};
use super::chance::{Table, fisher};
use super::diff::figures::Name;
use super::losses::LossVisits;
use crate::store::reader::Trace;

/// The property that names the host.
pub(crate) const HOST: &str = "host";

/// Fewest hosts among which one can be told to be slow.
pub(crate) const LEAST_HOSTS: usize = 5;

/// Fewest hosts that are resampled; else traces are.
const LEAST_UNITS: usize = 3;

/// Figures by which a group can be slower: durations, time on the CPU, the share of slow items.
const FIGURES: usize = 3;

/// Steps of time in the period, about.
const STEPS: i64 = 96;

/// Shortest step of time.
const LEAST_STEP_NS: i64 = 1_000_000_000;

/// Standard deviations of a normal distribution in its median absolute deviation.
const OF_MAD: f64 = 1.4826;

/// A trace, and what sets it apart.
pub(crate) struct Member<'a> {
    /// Its address, for messages.
    pub name: String,
    /// Values by name; `host` among them.
    pub properties: BTreeMap<String, String>,
    pub begin_ns: Moment,
    pub end_ns: Moment,
    /// Time of it whose items are another trace's.
    pub twice_ns: i64,
    /// Opens it.
    pub open: Box<dyn Fn() -> Result<Trace, String> + Send + Sync + 'a>,
}

/// Options of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FleetOptions {
    /// The property that makes the groups.
    pub by: String,
    pub since: Option<Moment>,
    pub until: Option<Moment>,
    /// Causes, at most.
    pub top: usize,
    pub losses: LossVisits,
}

/// Why there is nothing to compare.
#[derive(Debug, Error)]
pub(crate) enum FleetError {
    /// No trace has the property.
    UnknownProperty { by: String, known: Vec<String> },
    /// No trace lies in the time asked for.
    OtherTime,
    /// None has items.
    Empty { unread: Option<Unread> },
}

/// Key of sums: group, host, and number of the trace where traces are what is resampled.
type Unit = (Option<String>, String, usize);

/// Compares the groups.
///
/// Cost: reads each trace once, several at a time; memory for the names of a unit's functions.
///
/// # Errors
/// There is nothing to compare. A trace that can't be read is left out, and named.
pub(crate) fn fleet(members: &[Member<'_>], options: &FleetOptions) -> Result<Fleet, FleetError> {
    let mut known: BTreeSet<&String> = BTreeSet::new();
    known.extend(members.iter().flat_map(|it| it.properties.keys()));
    if !members.is_empty() && !known.contains(&options.by) {
        return Err(FleetError::UnknownProperty {
            by: options.by.clone(),
            known: known.into_iter().cloned().collect(),
        });
    }
    let (since, until) = (options.since, options.until);
    let is_wanted = |it: &&Member<'_>| {
        since.is_none_or(|since| it.end_ns >= since)
            && until.is_none_or(|until| it.begin_ns < until)
    };
    let members: Vec<&Member<'_>> = members.iter().filter(is_wanted).collect();
    let first = members.iter().map(|it| it.begin_ns).min();
    let last = members.iter().map(|it| it.end_ns).max();
    let (Some(first), Some(last)) = (first, last) else {
        return Err(FleetError::OtherTime);
    };
    let (from, to) = (
        first.max(since.unwrap_or(first)),
        last.min(until.unwrap_or(last)),
    );
    let period = Period {
        since: since.unwrap_or(Moment::MIN),
        until: until.unwrap_or(Moment::MAX),
        step_ns: ((to - from) / STEPS).max(LEAST_STEP_NS),
    };
    let hosts: BTreeSet<&str> = members.iter().map(|it| host(it)).collect();
    let units = if hosts.len() < LEAST_UNITS {
        Units::Traces
    } else {
        Units::Hosts
    };
    let read = read_all(&members, &period, options, units);
    if read.probes.is_empty() {
        return Err(FleetError::Empty {
            unread: read.unread.into_iter().next(),
        });
    }
    let properties = by_host(&members);
    let probes = read.probes.into_iter().map(|(spec, found)| {
        let (units, traces) = (units, &found.traces);
        Comparison::new(&found.sums, traces, options, units).probe(
            spec,
            &properties,
            period.step_ns,
        )
    });
    let sum = |of: fn(&Member<'_>) -> i64| members.iter().map(|it| of(it) as f64).sum::<f64>();
    let whole = sum(|it| it.end_ns - it.begin_ns);
    Ok(Fleet {
        fleet_version: FLEET_VERSION,
        twice: if whole > 0.0 {
            sum(|it| it.twice_ns) / whole
        } else {
            0.0
        },
        by: options.by.clone(),
        traces: members.len() as u64,
        hosts: hosts.len() as u64,
        since_ns: from,
        until_ns: to,
        probes: probes.collect(),
        unread: read.unread,
    })
}

fn host<'a>(member: &'a Member<'_>) -> &'a str {
    member.properties.get(HOST).map_or("", String::as_str)
}

/// Sums of a probe by unit, and its traces by group.
#[derive(Default)]
struct OfProbe {
    sums: BTreeMap<Unit, Sums>,
    traces: BTreeMap<Option<String>, u64>,
}

#[derive(Default)]
struct Read {
    probes: BTreeMap<String, OfProbe>,
    unread: Vec<Unread>,
}

/// Reads all traces, as many at a time as there are CPUs.
fn read_all(
    members: &[&Member<'_>],
    period: &Period,
    options: &FleetOptions,
    units: Units,
) -> Read {
    let next = Mutex::new(members.iter().enumerate());
    let read = Mutex::new(Read::default());
    let work = || {
        loop {
            let taken = locked(&next).next();
            let Some((number, member)) = taken else { break };
            let found = (member.open)().and_then(|trace| {
                let found = sums(&trace, period, options.losses);
                found.map_err(|error| error.to_string())
            });
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    let trace = member.name.clone();
                    locked(&read).unread.push(Unread { trace, error });
                    continue;
                }
            };
            let value = member.properties.get(&options.by).cloned();
            let unit = match units {
                Units::Hosts => 0,
                Units::Traces => number,
            };
            let mut read = locked(&read);
            for (spec, sums) in found {
                let probe = read.probes.entry(spec).or_default();
                let key = (value.clone(), host(member).to_owned(), unit);
                probe.sums.entry(key).or_default().merge(sums);
                *probe.traces.entry(value.clone()).or_default() += 1;
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(members.len()) {
            scope.spawn(work);
        }
    });
    let mut read = read.into_inner().unwrap_or_else(PoisonError::into_inner);
    read.unread.sort_by(|a, b| a.trace.cmp(&b.trace));
    read
}

/// Locks; data of a thread that panicked are as good as before.
fn locked<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All values of the properties of each host.
fn by_host<'a>(members: &[&'a Member<'_>]) -> BTreeMap<&'a str, BTreeSet<(&'a str, &'a str)>> {
    let mut hosts: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for member in members {
        let values = member.properties.iter().filter(|it| it.0 != HOST);
        let values = values.map(|(name, value)| (&**name, &**value));
        hosts.entry(host(member)).or_default().extend(values);
    }
    hosts
}

/// The groups of a probe.
struct Comparison<'a> {
    options: &'a FleetOptions,
    units: Units,
    groups: Vec<Group<'a>>,
    all: Sums,
    /// Items longer than this are slow.
    limit_ns: u64,
}

struct Group<'a> {
    value: &'a Option<String>,
    hosts: BTreeSet<&'a str>,
    traces: u64,
    units: Vec<&'a Sums>,
}

impl Group<'_> {
    /// Sums of its items, without functions and waits.
    fn sums(&self) -> Sums {
        let mut all = Sums::default();
        self.units.iter().for_each(|it| all.add(it));
        all
    }

    fn items(&self) -> u64 {
        self.units.iter().map(|it| it.items).sum()
    }
}

/// Items longer than a limit.
fn longer(sums: &Sums, limit_ns: u64) -> f64 {
    let limit = crate::estimate::sketch::bucket(limit_ns);
    let above = sums.lengths.buckets().rev().take_while(|it| it.0 > limit);
    above.map(|it| it.1).sum::<u64>() as f64
}

impl<'a> Comparison<'a> {
    fn new(
        sums: &'a BTreeMap<Unit, Sums>,
        traces: &BTreeMap<Option<String>, u64>,
        options: &'a FleetOptions,
        units: Units,
    ) -> Self {
        let (mut groups, mut all): (Vec<Group<'_>>, Sums) = Default::default();
        // In order of their groups.
        for ((value, host, _), sums) in sums {
            all.add(sums);
            if groups.last().is_none_or(|it| it.value != value) {
                groups.push(Group {
                    value,
                    hosts: BTreeSet::new(),
                    traces: traces.get(value).copied().unwrap_or(0),
                    units: Vec::new(),
                });
            }
            if let Some(group) = groups.last_mut() {
                group.hosts.insert(host);
                group.units.push(sums);
            }
        }
        Self {
            options,
            units,
            groups,
            limit_ns: all.lengths.quantile(0.99).unwrap_or(0),
            all,
        }
    }

    fn probe(
        &self,
        spec: String,
        properties: &BTreeMap<&str, BTreeSet<(&str, &str)>>,
        step_ns: i64,
    ) -> ProbeFleet {
        let is_by_host = self.options.by == HOST;
        let units: usize = self.groups.iter().map(|it| it.units.len()).sum();
        let too_few = if self.groups.len() < 2 {
            Some(TooFew::Groups)
        } else if is_by_host && self.groups.len() < LEAST_HOSTS {
            Some(TooFew::Hosts)
        } else if units < LEAST_UNITS {
            Some(TooFew::Traces)
        } else {
            None
        };
        let slow: Vec<Vec<usize>> = match too_few {
            Some(_) => Vec::new(),
            None if is_by_host => self.slow_hosts().into_iter().collect(),
            None => (0..self.groups.len()).map(|at| vec![at]).collect(),
        };
        let compared = slow.len();
        let slower = slow.iter().filter_map(|members| {
            let mut slower = self.slower(members, compared, step_ns)?;
            if is_by_host {
                slower.common = self.common(members, properties);
            }
            Some((members, slower))
        });
        let (members, mut slower): (Vec<_>, Vec<_>) = slower.unzip();
        slower.sort_by(|a: &Slower, b| b.mean.change.total_cmp(&a.mean.change));
        let mut groups: Vec<GroupRow> = (self.groups.iter().enumerate())
            .map(|(at, group)| self.row(group, members.iter().any(|it| it.contains(&at))))
            .collect();
        groups.sort_by(|a, b| b.mean_ns.total_cmp(&a.mean_ns));
        ProbeFleet {
            spec,
            items: self.all.items,
            mean_ns: self.all.duration_ns / self.all.items.max(1) as f64,
            p50_ns: self.all.lengths.quantile(0.5).unwrap_or(0),
            p99_ns: self.limit_ns,
            units: self.units,
            groups,
            slower,
            too_few,
        }
    }

    fn row(&self, group: &Group<'_>, is_slower: bool) -> GroupRow {
        let all = group.sums();
        let items = all.items.max(1) as f64;
        GroupRow {
            value: group.value.clone(),
            hosts: group.hosts.len() as u64,
            traces: group.traces,
            items: all.items,
            mean_ns: all.duration_ns / items,
            p50_ns: all.lengths.quantile(0.5).unwrap_or(0),
            p99_ns: all.lengths.quantile(0.99).unwrap_or(0),
            slow_share: longer(&all, self.limit_ns) / items,
            is_slower,
        }
    }

    /// Hosts that are slower than chance makes one of so many; `None`: there is none.
    ///
    /// Found ones no longer count for the middle and the spread, which may show more of them.
    fn slow_hosts(&self) -> Option<Vec<usize>> {
        let hosts: Vec<Sums> = self.groups.iter().map(Group::sums).collect();
        let t = quantile(FIGURES * hosts.len(), hosts.len() as f64 - 1.0)?;
        let mut slow: BTreeSet<usize> = BTreeSet::new();
        loop {
            let mut more = BTreeSet::new();
            for figure in [Sums::mean, Sums::on_cpu, Sums::share] {
                let figures = hosts.iter().map(|it| figure(it, self.limit_ns));
                let rest = figures.enumerate().filter(|(at, _)| !slow.contains(at));
                let rest: Vec<(usize, (f64, f64))> = rest.collect();
                let middle = median(rest.iter().map(|(_, it)| it.0).collect());
                let apart = rest.iter().map(|(_, it)| (it.0 - middle).abs());
                let spread = OF_MAD * median(apart.collect());
                let is_slow = |it: &(f64, f64)| it.0 - middle > t * spread.hypot(it.1);
                more.extend(rest.iter().filter(|(_, it)| is_slow(it)).map(|(at, _)| at));
            }
            slow.extend(&more);
            if more.is_empty() || 2 * slow.len() >= hosts.len() {
                break;
            }
        }
        (!slow.is_empty()).then(|| slow.into_iter().collect())
    }

    /// Some groups compared with the others; `None`: they do not take longer, or that may be chance.
    fn slower(&self, members: &[usize], compared: usize, step_ns: i64) -> Option<Slower> {
        let side = |is_here: bool| -> Vec<&Sums> {
            let groups = self.groups.iter().enumerate();
            let side = groups.filter(|(at, _)| members.contains(at) == is_here);
            side.flat_map(|it| it.1.units.iter().copied()).collect()
        };
        let (here, others) = (side(true), side(false));
        let limit = self.limit_ns;
        let figure = |of: &dyn Fn(&Sums) -> f64| {
            let of = |it: &Sums| (of(it), it.items as f64);
            contrast(&here, &others, of, FIGURES * compared)
        };
        let mean = figure(&|it| it.duration_ns);
        let on_cpu = figure(&|it| it.active_ns);
        let slow_share = figure(&|it| longer(it, limit));
        let is_more = [mean, on_cpu, slow_share].iter().any(Contrast::is_more);
        // Slow hosts were found one by one.
        let is_slower = is_more || self.options.by == HOST;
        if !is_slower {
            return None;
        }
        let groups = members.iter().map(|at| &self.groups[*at]);
        Some(Slower {
            values: groups.clone().map(|it| it.value.clone()).collect(),
            hosts: groups
                .clone()
                .flat_map(|it| &it.hosts)
                .collect::<BTreeSet<_>>()
                .len() as u64,
            items: groups.map(Group::items).sum(),
            causes: self.causes(&here, &others, Slower::gap_ns(&mean, &on_cpu), compared),
            since_ns: began(&here, &others).map(|step| step * step_ns),
            mean,
            on_cpu,
            slow_share,
            common: Vec::new(),
        })
    }

    /// Functions and waits by how much longer they take.
    fn causes(
        &self,
        here: &[&Sums],
        others: &[&Sums],
        gap: f64,
        compared: usize,
    ) -> Vec<FleetCause> {
        let names: BTreeSet<&Name> = (here.iter().chain(others))
            .flat_map(|it| it.spent.keys())
            .collect();
        let figures = compared * names.len();
        let samples = |units: &[&Sums], name: &Name| -> u64 {
            let spent = units.iter().filter_map(|it| it.spent.get(name));
            spent.map(|it| it.samples).sum()
        };
        let mut causes: Vec<FleetCause> = names
            .into_iter()
            .map(|name| {
                let is_sampled = name.state.is_none();
                let of = |it: &Sums| {
                    let items = if is_sampled {
                        it.sampled_items
                    } else {
                        it.items
                    };
                    let spent = it.spent.get(name).copied().unwrap_or_default();
                    (spent.ns, items as f64)
                };
                let (ours, theirs) = (samples(here, name), samples(others, name));
                let time = contrast(here, others, of, figures);
                let time = with_samples(time, ours, theirs, figures);
                FleetCause {
                    kind: name.kind,
                    name: name.name.clone(),
                    module: name.module.clone(),
                    kernel: name.kernel,
                    state: name.state.clone(),
                    share: if gap > 0.0 { time.change / gap } else { 0.0 },
                    time,
                    samples: ours,
                    others_samples: theirs,
                }
            })
            .collect();
        causes.sort_by(|a, b| b.time.change.abs().total_cmp(&a.time.change.abs()));
        causes.truncate(self.options.top);
        causes
    }

    /// Values that slow hosts have, and others do not.
    fn common(
        &self,
        members: &[usize],
        properties: &BTreeMap<&str, BTreeSet<(&str, &str)>>,
    ) -> Vec<Common> {
        const MOST: f64 = 0.05;
        let hosts = |is_slow: bool| {
            let groups = self.groups.iter().enumerate();
            let side = groups.filter(move |(at, _)| members.contains(at) == is_slow);
            side.flat_map(|it| &it.1.hosts)
                .filter_map(|host| properties.get(host))
        };
        let mut counts: BTreeMap<(&str, &str), [u64; 2]> = BTreeMap::new();
        for is_slow in [true, false] {
            for value in hosts(is_slow).flatten() {
                counts.entry(*value).or_default()[usize::from(!is_slow)] += 1;
            }
        }
        let (of_slow, of_others) = (hosts(true).count() as u64, hosts(false).count() as u64);
        let tests = counts.len() as f64;
        let mut common: Vec<Common> = counts
            .into_iter()
            .map(|((property, value), [slow, others])| {
                let table = Table {
                    items: of_slow + of_others,
                    slow: of_slow,
                    with: slow + others,
                    both: slow,
                };
                Common {
                    property: property.to_owned(),
                    value: value.to_owned(),
                    slow,
                    of_slow,
                    others,
                    of_others,
                    chance: (fisher(table) * tests).min(1.0),
                }
            })
            .filter(|it| it.chance < MOST)
            .collect();
        common.sort_by(|a, b| a.chance.total_cmp(&b.chance));
        common
    }
}

impl Sums {
    /// Adds items, but for their functions, waits and times.
    fn add(&mut self, other: &Self) {
        self.items += other.items;
        self.duration_ns += other.duration_ns;
        self.squared += other.squared;
        self.active_ns += other.active_ns;
        self.lengths.merge(&other.lengths);
    }

    /// Mean duration with its error, if items were independent.
    fn mean(&self, _: u64) -> (f64, f64) {
        let items = self.items.max(1) as f64;
        let mean = self.duration_ns / items;
        (
            mean,
            ((self.squared / items - mean * mean).max(0.0) / items).sqrt(),
        )
    }

    /// Mean time on the CPU, with the error of the duration, which is at least its own.
    fn on_cpu(&self, limit_ns: u64) -> (f64, f64) {
        let items = self.items.max(1) as f64;
        (self.active_ns / items, self.mean(limit_ns).1)
    }

    /// Share of items longer than a limit, likewise.
    fn share(&self, limit_ns: u64) -> (f64, f64) {
        let items = self.items.max(1) as f64;
        let share = longer(self, limit_ns) / items;
        (share, (share * (1.0 - share) / items).sqrt())
    }
}
