//! Predicts the cost of a recording from a short count of its marks: chooses the first reset value, or refuses to
//! record.

use std::time::{Duration, Instant};

use pebs_common::counter::Counter;
use pebs_common::record::Role;

use super::budget::{self, cheaper, percent};
use super::cost::Prices;
use super::event::{Emit, Event};
use super::plan::Plan;
use crate::binary::process::{self, FileId};
use crate::collect::cpu_time::CpuTimes;
use crate::collect::kernel_map::Counters;
use crate::collect::session::{MarkCount, Session, SessionPlan, Spent};
use crate::cost::calibrate::UnitCosts;
use crate::failure::{Failure, Result, Warning};
use crate::pipeline::{Load, MarksBy};
use crate::pmu::attr::EventClass;
use crate::present::human::{count, plural, time};
use crate::probe::set::{Probe, Site};
use crate::units::Pid;

/// Time for which marks are counted before anything else is attached.
const COUNT: Duration = Duration::from_millis(100);

/// CPU times of the target at which the cost of marks is checked, ns: a command starts up first, and its marks may
/// come late.
pub(super) const LOOKS_NS: [f64; 5] = [5e7, 1e8, 2e8, 4e8, LAST_LOOK_NS];

/// CPU time of the target at the last look, ns.
const LAST_LOOK_NS: f64 = 8e8;

/// Maximum share of the target's CPU time for marks.
const MOST_MARKS: f64 = 0.5;

/// Slow-down above which a given reset value is worth a remark.
const DEAR: f64 = 0.10;

/// Number of processes that run a probed library above which recording all of them is refused, if they are also
/// more than half of all processes.
const MANY_PROCESSES: usize = 8;

/// A running count of begin marks.
pub(super) struct Count {
    since: Instant,
    before: u64,
    /// Times that the target's threads were switched out.
    switches: u64,
    cpu: CpuTimes,
    marks: MarkCount,
}

/// Result of a short count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counted {
    /// Begin marks.
    pub marks: u64,
    /// CPU time of the target during the count, ns, including the cost of counting.
    pub cpu_ns: f64,
    /// Length of the count, ns.
    pub ns: f64,
    /// Switches of the target's threads, out and in.
    pub switches: u64,
}

fn switches(pids: &[Pid]) -> u64 {
    pids.iter().map(|pid| process::switches(*pid)).sum()
}

impl Count {
    /// Starts counting, or returns `None` where it is of no use: a command is judged by its first moments.
    ///
    /// # Errors
    /// The kernel refused a probe.
    pub(super) fn begin(
        plan: &Plan,
        session: &Session,
        session_plan: &SessionPlan<'_>,
        counters: &Counters,
    ) -> Result<Option<Self>> {
        let tells = plan.command.is_empty() && !plan.counting;
        if !tells || (plan.force && plan.reset.is_some()) || plan.probes.probes.is_empty() {
            return Ok(None);
        }
        let mut cpu = CpuTimes::default();
        let traced = session.traced()?;
        cpu.look(&traced);
        let marks = session.count_marks(session_plan)?;
        Ok(Some(Self {
            since: Instant::now(),
            before: marks_without_site(counters),
            switches: switches(&traced),
            cpu,
            marks,
        }))
    }

    /// Waits until the count is long enough; returns it and the probes it used.
    ///
    /// # Errors
    /// The kernel refused a probe.
    pub(super) fn finish(
        mut self,
        session: &Session,
        counters: &Counters,
    ) -> Result<(Counted, Spent)> {
        if self.cpu.sum() == 0 {
            // Without `-p`, processes are found by their first mark.
            std::thread::sleep((COUNT / 4).saturating_sub(self.since.elapsed()));
            let traced = session.traced()?;
            self.cpu.look(&traced);
            self.switches = switches(&traced);
            self.since = Instant::now();
            self.before = marks_without_site(counters);
        }
        std::thread::sleep(COUNT.saturating_sub(self.since.elapsed()));
        let marks = marks_without_site(counters) - self.before;
        let traced = session.traced()?;
        self.cpu.look(&traced);
        let counted = Counted {
            marks,
            cpu_ns: self.cpu.sum() as f64,
            ns: self.since.elapsed().as_nanos() as f64,
            switches: 2 * switches(&traced).saturating_sub(self.switches),
        };
        Ok((counted, self.marks.end()))
    }
}

fn marks_without_site(counters: &Counters) -> u64 {
    let of = |cpu| counters.row(cpu)[Counter::MarkNoSite as usize];
    (0..counters.cpus()).map(of).sum()
}

const fn is_begin(site: &Site) -> bool {
    matches!(site.role, Role::Begin | Role::Next)
}

impl Counted {
    /// Cost of the marks of an item, ns; `None` if unknown.
    fn item_ns(probes: &[Probe], costs: &UnitCosts) -> Option<f64> {
        let dearest = |probe: &Probe, begins: bool| {
            // A visit passes one site at each end.
            let sites = probe.sites.iter().filter(|site| is_begin(site) == begins);
            let each = sites.map(|site| costs.of_mark(site.class, site.uretprobe));
            each.reduce(|one, other| Some(one?.max(other?)))
                .unwrap_or(Some(0.0))
        };
        let each = probes
            .iter()
            .map(|probe| Some(dearest(probe, true)? + dearest(probe, false)?));
        each.reduce(|one, other| Some(one?.max(other?))).flatten()
    }

    /// Cost of a begin mark, ns; `None` if unknown.
    fn begin_ns(probes: &[Probe], costs: &UnitCosts) -> Option<f64> {
        let begins = probes.iter().flat_map(|probe| &probe.sites);
        let begins = begins.filter(|site| is_begin(site));
        let each = begins.map(|site| costs.of_mark(site.class, site.uretprobe));
        each.reduce(|one, other| Some(one?.max(other?))).flatten()
    }

    /// Expected cost of all marks relative to the target's own time; 0 if there were none.
    pub(super) fn fixed(&self, probes: &[Probe], costs: &UnitCosts) -> Option<f64> {
        if self.marks == 0 || self.cpu_ns <= 0.0 {
            return Some(0.0);
        }
        let marks = self.marks as f64;
        // A very frequent mark leaves some of the time, even if counting seems to cost more.
        let own = self.cpu_ns - marks * Self::begin_ns(probes, costs)?;
        Some(marks * Self::item_ns(probes, costs)? / own.max(0.02 * self.cpu_ns))
    }
}

/// Checks whether marks are too frequent for a recording.
///
/// # Errors
/// Marks would take more than half of the target's CPU time, or are made in every process of the machine.
pub(super) fn check(plan: &Plan, costs: &UnitCosts, counted: &Counted) -> Result<()> {
    if plan.force {
        return Ok(());
    }
    let probes = &plan.probes.probes;
    let (Some(fixed), Some(item_ns)) = (
        counted.fixed(probes, costs),
        Counted::item_ns(probes, costs),
    ) else {
        return Ok(());
    };
    let place = probes.first().map_or("", |probe| probe.spec.as_str());
    if plan.pids.is_empty()
        && let Some((users, all)) = everywhere(plan)
    {
        let a_second = counted.marks as f64 / COUNT.as_secs_f64();
        return Err(Failure::new(
            format!(
                "cannot record {place}: it would be probed in {users} of the {all} processes of this machine, which call \
                 it {a_second:.0} times a second now, with marks of {} each",
                time(item_ns)
            ),
            "give -p PID, or a command after '--', or record anyway with --force".to_owned(),
        ));
    }
    refuse(
        place,
        fixed,
        counted.marks as f64 / counted.cpu_ns * 1e9,
        item_ns,
    )
}

/// Refuses to go on with a recording, judging by its marks in `cpu_ns` of the target's CPU time.
///
/// # Errors
/// The marks took more than half of it.
pub(super) fn refuse_seen(
    plan: &Plan,
    prices: &Prices<'_>,
    load: &Load,
    cpu_ns: f64,
) -> Result<()> {
    let Some(marks_ns) = prices.marks_ns(&load.marks) else {
        return Ok(());
    };
    let marks: u64 = load.marks.by.iter().flatten().sum();
    let items = (marks / 2).max(1) as f64;
    let fixed = marks_ns / (cpu_ns - marks_ns).max(0.02 * cpu_ns);
    let place = plan.probes.probes.first();
    let place = place.map_or("", |probe| probe.spec.as_str());
    let seldom = refuse(place, fixed, items / cpu_ns * 1e9, marks_ns / items);
    let goal = plan.overhead.map_or(budget::GOAL, |it| it.overhead);
    let mut sites = plan.probes.probes.iter().flat_map(|it| &it.sites);
    if let Some(begin) = sites.find(|it| is_begin(it))
        && (seldom.is_err() || fixed > goal && cpu_ns >= LAST_LOOK_NS)
    {
        refuse_ends((place, &begin.place), &load.marks.by, fixed)?;
    }
    seldom
}

/// Refuses if there are ends and no begin: they make no items, and cost as much as others.
///
/// # Errors
/// There is no begin mark.
fn refuse_ends((place, begin): (&str, &str), marks_by: &[MarksBy], fixed: f64) -> Result<()> {
    let of = |role: Role| {
        let role = role as usize;
        marks_by
            .iter()
            .map(|by| by[role] + by[role + 4])
            .sum::<u64>()
    };
    let ends = of(Role::End) + of(Role::Return);
    if ends == 0 || of(Role::Begin) + of(Role::Next) > 0 {
        return Ok(());
    }
    Err(Failure::new(
        format!(
            "cannot record {place}: {} and no begin were seen, and their marks take {} of the target's CPU time: it does \
             not call {begin}",
            plural(ends, "end"),
            percent(fixed / (1.0 + fixed)),
        ),
        "give a begin that is called, or record anyway with --force".to_owned(),
    ))
}

/// Refuses if the cost of marks, relative to the target's own time, is too high.
///
/// # Errors
/// Marks would take more than half of the target's CPU time.
pub(super) fn refuse(place: &str, fixed: f64, a_second: f64, item_ns: f64) -> Result<()> {
    let share = fixed / (1.0 + fixed);
    if share <= MOST_MARKS {
        return Ok(());
    }
    Err(Failure::new(
        format!(
            "cannot record {place}: it is called {} times per second of CPU time; its marks ({} each) would \
             take {} of the target's CPU time",
            count(a_second as u64),
            time(item_ns),
            percent(share)
        ),
        "probe a function that is called less often, or record anyway with --force".to_owned(),
    ))
}

/// Number of processes that run a probed library, and of all processes; `None` unless it is most of them.
fn everywhere(plan: &Plan) -> Option<(usize, usize)> {
    let sites = plan.probes.probes.iter().flat_map(|probe| &probe.sites);
    let mut files: Vec<_> = sites.map(|site| site.path.as_path()).collect();
    files.sort_unstable();
    files.dedup();
    // Kernel threads run no program.
    let all = process::all();
    let all = all
        .into_iter()
        .filter(|pid| process::exe_file(*pid).is_some_and(|it| it.exists()));
    let all = all.count();
    let users = files
        .iter()
        .filter_map(|path| Some(process::users(FileId::of(path)?).len()));
    let most = users.max()?;
    (most >= MANY_PROCESSES && 2 * most > all).then_some((most, all))
}

/// Sets the first reset values if they are free, each event's samples having an equal share; given ones may get a remark
/// on their cost.
pub(super) fn set_first(
    plan: &mut Plan,
    costs: &UnitCosts,
    counted: Option<&Counted>,
    emit: &mut Emit<'_>,
) {
    // A command's marks are not known yet: samples start with their minimal share.
    let fixed = counted.and_then(|it| it.fixed(&plan.probes.probes, costs));
    let given = (plan.reset, plan.max_reset);
    if let Some(bounds) = plan.overhead {
        let fixed = match fixed {
            None if bounds.extra > 0.0 => bounds.overhead,
            fixed => fixed.unwrap_or(0.0),
        };
        let governed = budget::governed(&plan.events, costs);
        for event in &governed {
            let sample_ns = costs.of_sample(*event).unwrap_or(0.0) * governed.len() as f64;
            let event = &mut plan.events[usize::from(event.0)];
            let bounds = budget::of_event(&bounds, event, given);
            if let Some(first) = budget::first_reset(&bounds, event, fixed, sample_ns) {
                event.reset = first;
            }
        }
        return;
    }
    let (Some(event), Some(sample_ns)) = (plan.events.first(), costs.sample_ns) else {
        return;
    };
    if plan.reset.is_some() && event.class == EventClass::Clock {
        let reset = event.reset.0.get() as f64;
        let fixed = fixed.unwrap_or(0.0);
        let samples = sample_ns / reset;
        let slower = (fixed + samples) / (1.0 - samples).max(0.01);
        if slower > DEAR {
            let text = format!(
                "--reset {} is expected to slow items down by {} {}: a sample costs {}{}",
                event.reset.0,
                if samples < 0.9 { "about" } else { "at least" },
                percent((slower * 100.0).round() / 100.0),
                time(sample_ns),
                match fixed > 0.0 {
                    true => format!(", marks alone {}", percent(fixed)),
                    false => String::new(),
                }
            );
            let hint = cheaper(fixed, sample_ns, event.reset_unit());
            emit(Event::Warning(Warning { text, hint }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit: marks that take as long as everything else, half of the time.
    #[test]
    fn refused() {
        assert!(refuse("app:f", 0.99, 5e5, 2_000.0).is_ok());
        let error = refuse("app:f", 3.0, 1.5e6, 2_000.0).unwrap_err();
        let text = error.to_string();
        assert_eq!(
            text,
            "cannot record app:f: it is called 1,500,000 times per second of CPU time; its marks (2.00 us each) would \
             take 75 % of the target's CPU time"
        );
    }

    /// Ends without any begin are refused; one begin is enough.
    #[test]
    fn ends_alone() {
        let refused = |begins| {
            let marks_by = [[begins, 0, 0, 0, 0, 1_000, 0, 0]];
            refuse_ends(("python:entry..return", "entry"), &marks_by, 0.5)
        };
        assert!(refused(1).is_ok());
        assert_eq!(
            refused(0).unwrap_err().to_string(),
            "cannot record python:entry..return: 1,000 ends and no begin were seen, and their marks take 33.3 % of the \
             target's CPU time: it does not call entry"
        );
    }
}
