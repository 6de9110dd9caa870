//! A trace as the tests see it: `trace.json` and the tables as rows.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;

use crate::table::Table;

/// Bits of `visits.flags`, as the documentation of the trace format has them.
pub mod flag {
    /// Another item was open on the thread.
    pub const OVERLAPPED: u64 = 1 << 0;
    /// The function never returned: exception, longjmp.
    pub const UNWOUND: u64 = 1 << 1;
    /// The end mark never came.
    pub const END_MISSING: u64 = 1 << 2;
    /// The trace ended first.
    pub const OPEN_AT_END: u64 = 1 << 3;
    /// The thread ended or replaced its program.
    pub const THREAD_ENDED: u64 = 1 << 4;
    /// Overlaps a loss.
    pub const LOSS: u64 = 1 << 5;
    /// The thread changed CPU.
    pub const MIGRATED: u64 = 1 << 6;
    /// Taken off the CPU while it could have run.
    pub const PREEMPTED: u64 = 1 << 7;
    /// The end mark was on another thread.
    pub const ENDED_ELSEWHERE: u64 = 1 << 8;
    /// The kernel throttled sampling.
    pub const THROTTLED: u64 = 1 << 9;
    /// The details were not kept.
    pub const CONDENSED: u64 = 1 << 10;
    /// Begin and end are half way between two samples.
    pub const SAMPLED_BOUNDS: u64 = 1 << 11;
    /// Served several items.
    pub const SHARED: u64 = 1 << 12;
    /// Some of their ids are unknown.
    pub const IDS_MISSING: u64 = 1 << 13;
    /// Some of its time is not known to be its own.
    pub const TIME_SHARED: u64 = 1 << 14;
}

/// Bit of `samples.flags`: the kernel marked the ip as exact.
pub const SAMPLE_EXACT_IP: u64 = 1;
/// Bit of `samples.flags`: taken in kernel mode.
pub const SAMPLE_KERNEL: u64 = 2;

/// One row of `visits`, apart from its arguments. Times are ns on the trace clock.
#[derive(Clone, Debug)]
pub struct Visit {
    /// Its number.
    pub visit_id: u64,
    pub item_id: u64,
    /// Number of the `--uprobe`.
    pub probe_id: u64,
    /// Process.
    pub pid: u64,
    /// Thread.
    pub tid: u64,
    /// CPU of the begin mark.
    pub cpu_begin: u64,
    /// CPU of the end mark.
    pub cpu_end: Option<u64>,
    pub begin_ns: i64,
    pub end_ns: Option<i64>,
    /// End - begin.
    pub duration_ns: Option<i64>,
    /// Time on the CPU.
    pub oncpu_ns: Option<i64>,
    /// `duration_ns` less pebs-trace's own time.
    pub net_ns: Option<i64>,
    /// Its standard error.
    pub net_stderr_ns: Option<i64>,
    /// Samples that belong to it.
    pub samples: u64,
    /// [`flag`].
    pub flags: u64,
    /// Times that its thread left the CPU.
    pub switches: Option<u64>,
    /// Times that it came back on another CPU.
    pub migrations: Option<u64>,
    /// Page faults of the thread.
    pub page_faults: Option<u64>,
    /// Time in interrupts.
    pub irq_ns: Option<i64>,
    /// Time in softirqs.
    pub softirq_ns: Option<i64>,
    /// Time in page faults.
    pub fault_ns: Option<i64>,
    /// Page faults that had to read the page.
    pub major_faults: Option<u64>,
}

impl Visit {
    /// Whether a bit of [`flag`] is set.
    #[must_use]
    pub const fn has(&self, bit: u64) -> bool {
        self.flags & bit != 0
    }
}

/// One row of `visit_functions`.
#[derive(Clone, Debug)]
pub struct VisitFunction {
    pub visit_id: u64,
    pub item_id: u64,
    pub function_id: u64,
    /// The event's number.
    pub event: u64,
    pub samples: u64,
    /// Number of events that they stand for.
    pub events: u64,
    /// Last - first sample, ns.
    pub span_ns: i64,
    /// Estimated time on the CPU, ns.
    pub self_ns: Option<f64>,
    /// Its standard error.
    pub self_stderr_ns: Option<f64>,
}

/// One row of `samples`.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When, ns on the trace clock.
    pub time_ns: i64,
    pub visit_id: Option<u64>,
    pub function_id: u64,
    /// Instruction pointer.
    pub ip: u64,
    /// Thread; 0: it is not known, as it had ended but for the kernel's own last work.
    pub tid: u64,
    pub cpu: u64,
    pub flags: u64,
    /// Call stack.
    pub stack_id: Option<u64>,
}

/// One row of `stacks`.
#[derive(Clone, Debug)]
pub struct Stack {
    /// Key.
    pub stack_id: u64,
    /// Functions, the innermost first.
    pub frames: Vec<u64>,
    /// Outer frames are missing.
    pub truncated: bool,
}

/// One row of `frequencies`.
#[derive(Clone, Copy, Debug)]
pub struct Frequency {
    /// Time at which it was read.
    pub time_ns: i64,
    pub cpu: u64,
    /// The frequency.
    pub khz: u64,
}

/// One row of `batch_items`.
#[derive(Clone, Debug)]
pub struct BatchItem {
    pub visit_id: u64,
    /// The item; `None`: those that are not known.
    pub item_id: Option<u64>,
    /// Items of the visit.
    pub items: Option<u64>,
    /// The item's share of it, 0..1.
    pub share: f64,
}

/// One row of `losses`.
#[derive(Clone, Debug)]
pub struct Loss {
    /// Begin, ns on the trace clock.
    pub begin_ns: i64,
    pub end_ns: i64,
    /// CPU; `None`: not known, or all.
    pub cpu: Option<u64>,
    /// Thread.
    pub tid: Option<u64>,
    /// Why.
    pub reason: String,
    /// Records lost.
    pub records: Option<u64>,
}

impl Loss {
    /// Whether it touches the visit.
    #[must_use]
    pub fn overlaps(&self, visit: &Visit) -> bool {
        self.begin_ns <= visit.end_ns.unwrap_or(i64::MAX) && visit.begin_ns <= self.end_ns
    }

    /// Whether something may be missing of the visit: it touches it, and the visit's thread was on that CPU or left another.
    #[must_use]
    pub fn concerns(&self, visit: &Visit) -> bool {
        let unsure = flag::UNWOUND | flag::END_MISSING | flag::OPEN_AT_END | flag::OVERLAPPED;
        let stayed = visit.switches == Some(0) && visit.cpu_end == Some(visit.cpu_begin);
        let elsewhere = self.cpu.is_some_and(|cpu| cpu != visit.cpu_begin);
        self.overlaps(visit) && !(elsewhere && stayed && !visit.has(unsure))
    }
}

/// One row of `waits`.
#[derive(Clone, Debug)]
pub struct Wait {
    pub visit_id: u64,
    /// Switched out, ns on the trace clock.
    pub begin_ns: i64,
    /// Switched in.
    pub end_ns: i64,
    /// The user function that the thread was in.
    pub function_id: Option<u64>,
    /// `runnable`, `sleeping`, `uninterruptible`, `stopped` or `dead`.
    pub state: String,
    /// Thread that ended it.
    pub woken_by: Option<String>,
    /// Tid of that thread.
    pub woken_by_tid: Option<u64>,
    /// Time for which the thread was then runnable, ns.
    pub runnable_ns: Option<i64>,
    /// Thread that took the CPU.
    pub preempted_by: Option<String>,
    /// Tid of that thread.
    pub preempted_by_tid: Option<u64>,
    /// Call stack at which the thread went to wait.
    pub stack_id: Option<u64>,
}

/// Count of a thread in an interval.
#[derive(Clone, Debug)]
pub struct IntervalCount {
    /// The thread.
    pub tid: u64,
    /// Begin of the interval, ns.
    pub begin_ns: i64,
    /// Number of the event.
    pub event: u64,
    /// Count.
    pub count: Option<u64>,
    /// Time enabled, ns.
    pub enabled_ns: Option<i64>,
    /// `exact`, `scaled`, `no turn` or `unknown`.
    pub state: String,
}

/// Count of a visit.
#[derive(Clone, Debug)]
pub struct Count {
    /// The visit.
    pub visit_id: u64,
    /// Its item.
    pub item_id: u64,
    /// Number of the event.
    pub event: u64,
    /// Count.
    pub count: Option<u64>,
    /// Time enabled, ns.
    pub enabled_ns: Option<i64>,
    /// Time counted, ns.
    pub running_ns: Option<i64>,
    /// `exact`, `scaled`, `no turn` or `unknown`.
    pub state: String,
}

impl Wait {
    #[must_use]
    pub const fn length_ns(&self) -> i64 {
        self.end_ns - self.begin_ns
    }
}

/// Account of one kind of record on one CPU.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Seen by the kernel programs.
    pub seen: u64,
    /// Written to the trace.
    pub written: u64,
    /// Not written, by reason.
    pub reasons: BTreeMap<String, u64>,
}

impl Account {
    /// Records with a reason.
    #[must_use]
    pub fn with_reason(&self) -> u64 {
        self.reasons.values().sum()
    }

    /// Records lost: with a reason other than the missing partner of a mark.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let of = |reason| self.reasons.get(reason).copied().unwrap_or(0);
        let no_loss = ["unmatched_mark", "began_before", "began_after"].map(of);
        self.with_reason() - no_loss.iter().sum::<u64>()
    }
}

/// A trace directory.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Directory of the trace.
    pub dir: PathBuf,
    /// `trace.json`.
    pub json: Value,
    _place: Option<Arc<TempDir>>,
}

impl Trace {
    /// Opens a trace.
    ///
    /// # Panics
    /// If its `trace.json` is missing or not JSON.
    #[must_use]
    pub fn open(dir: &Path) -> Self {
        let path = dir.join("trace.json");
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()));
        let json = serde_json::from_str(&text)
            .unwrap_or_else(|e| panic!("{} is not JSON: {e}", path.display()));
        Self {
            dir: dir.to_owned(),
            json,
            _place: None,
        }
    }

    /// Keeps the temporary directory that the trace lies in for as long as the trace is used.
    #[must_use]
    pub fn keeping(self, place: Arc<TempDir>) -> Self {
        Self {
            _place: Some(place),
            ..self
        }
    }

    #[must_use]
    pub fn table(&self, name: &str) -> Table {
        Table::read(&self.dir, name)
    }

    /// `CLOCK_MONOTONIC` of ns 0 of the trace clock.
    ///
    /// # Panics
    /// If it is missing in `trace.json`.
    #[must_use]
    pub fn monotonic_ns(&self) -> i64 {
        self.json["monotonic_ns"].as_i64().expect("monotonic_ns")
    }

    /// All visits, in order of their begin.
    #[must_use]
    pub fn visits(&self) -> Vec<Visit> {
        let t = self.table("visits");
        let (visit_id, item_id, probe_id) =
            (t.u64("visit_id"), t.u64("item_id"), t.u64("probe_id"));
        let (pid, tid) = (t.u64("pid"), t.u64("tid"));
        let (cpu_begin, cpu_end) = (t.u64("cpu_begin"), t.u64("cpu_end"));
        let (begin, end) = (t.i64("begin_ns"), t.i64("end_ns"));
        let (duration, oncpu) = (t.i64("duration_ns"), t.i64("oncpu_ns"));
        let (net, net_stderr) = (t.i64("net_ns"), t.i64("net_stderr_ns"));
        let (samples, flags) = (t.u64("samples"), t.u64("flags"));
        let (switches, migrations) = (t.u64("switches"), t.u64("migrations"));
        let (page_faults, major_faults) = (t.u64("page_faults"), t.u64("major_faults"));
        let (irq, softirq) = (t.i64("irq_ns"), t.i64("softirq_ns"));
        let fault = t.i64("fault_ns");
        let mut visits: Vec<Visit> = (0..t.len())
            .map(|i| Visit {
                visit_id: visit_id[i].expect("visit_id"),
                item_id: item_id[i].expect("item_id"),
                probe_id: probe_id[i].expect("probe_id"),
                pid: pid[i].expect("pid"),
                tid: tid[i].expect("tid"),
                cpu_begin: cpu_begin[i].expect("cpu_begin"),
                cpu_end: cpu_end[i],
                begin_ns: begin[i].expect("begin_ns"),
                end_ns: end[i],
                duration_ns: duration[i],
                oncpu_ns: oncpu[i],
                net_ns: net[i],
                net_stderr_ns: net_stderr[i],
                samples: samples[i].expect("samples"),
                flags: flags[i].expect("flags"),
                switches: switches[i],
                migrations: migrations[i],
                page_faults: page_faults[i],
                irq_ns: irq[i],
                softirq_ns: softirq[i],
                fault_ns: fault[i],
                major_faults: major_faults[i],
            })
            .collect();
        visits.sort_by_key(|visit| (visit.begin_ns, visit.visit_id));
        visits
    }

    /// A column of numeric arguments by visit id.
    #[must_use]
    pub fn number_argument(&self, name: &str) -> HashMap<u64, Option<u64>> {
        let t = self.table("visits");
        t.u64("visit_id")
            .into_iter()
            .flatten()
            .zip(t.u64(name))
            .collect()
    }

    /// A column of text arguments by visit id.
    #[must_use]
    pub fn text_argument(&self, name: &str) -> HashMap<u64, Option<String>> {
        let t = self.table("visits");
        t.u64("visit_id")
            .into_iter()
            .flatten()
            .zip(t.text(name))
            .collect()
    }

    /// The paper's result.
    #[must_use]
    pub fn visit_functions(&self) -> Vec<VisitFunction> {
        let t = self.table("visit_functions");
        let (visit_id, item_id) = (t.u64("visit_id"), t.u64("item_id"));
        let (function_id, event) = (t.u64("function_id"), t.u64("event"));
        let (samples, events) = (t.u64("samples"), t.u64("events"));
        let (span, own) = (t.i64("span_ns"), t.f64("self_ns"));
        let error = t.f64("self_stderr_ns");
        (0..t.len())
            .map(|i| VisitFunction {
                visit_id: visit_id[i].expect("visit_id"),
                item_id: item_id[i].expect("item_id"),
                function_id: function_id[i].expect("function_id"),
                event: event[i].expect("event"),
                samples: samples[i].expect("samples"),
                events: events[i].expect("events"),
                span_ns: span[i].expect("span_ns"),
                self_ns: own[i],
                self_stderr_ns: error[i],
            })
            .collect()
    }

    #[must_use]
    pub fn samples(&self) -> Vec<Sample> {
        let t = self.table("samples");
        let (time, visit_id, function_id) =
            (t.i64("time_ns"), t.u64("visit_id"), t.u64("function_id"));
        let (ip, tid, cpu) = (t.u64("ip"), t.u64("tid"), t.u64("cpu"));
        let (flags, stack_id) = (t.u64("flags"), t.u64("stack_id"));
        (0..t.len())
            .map(|i| Sample {
                time_ns: time[i].expect("time_ns"),
                visit_id: visit_id[i],
                function_id: function_id[i].expect("function_id"),
                ip: ip[i].expect("ip"),
                tid: tid[i].unwrap_or(0),
                cpu: cpu[i].expect("cpu"),
                flags: flags[i].expect("flags"),
                stack_id: stack_id[i],
            })
            .collect()
    }

    /// Table `frequencies`.
    ///
    /// # Panics
    /// If it can't be read.
    #[must_use]
    pub fn frequencies(&self) -> Vec<Frequency> {
        let t = self.table("frequencies");
        let (times, cpus, khz) = (t.i64("time_ns"), t.u64("cpu"), t.u64("khz"));
        (0..t.len())
            .map(|i| Frequency {
                time_ns: times[i].expect("time_ns"),
                cpu: cpus[i].expect("cpu"),
                khz: khz[i].expect("khz"),
            })
            .collect()
    }

    /// All items of visits that served several.
    #[must_use]
    pub fn batch_items(&self) -> Vec<BatchItem> {
        let t = self.table("batch_items");
        let (visit_id, item_id) = (t.u64("visit_id"), t.u64("item_id"));
        let (items, share) = (t.u64("items"), t.f64("share"));
        (0..t.len())
            .map(|i| BatchItem {
                visit_id: visit_id[i].expect("visit_id"),
                item_id: item_id[i],
                items: items[i],
                share: share[i].expect("share"),
            })
            .collect()
    }

    /// All call stacks.
    #[must_use]
    pub fn stacks(&self) -> Vec<Stack> {
        let t = self.table("stacks");
        let (stack_id, frames) = (t.u64("stack_id"), t.u64_lists("frames"));
        let truncated = t.bool("truncated");
        (0..t.len())
            .map(|i| Stack {
                stack_id: stack_id[i].expect("stack_id"),
                frames: frames[i].clone(),
                truncated: truncated[i].expect("truncated"),
            })
            .collect()
    }

    /// Ids of the functions that are kernel code.
    #[must_use]
    pub fn kernel_functions(&self) -> HashSet<u64> {
        let t = self.table("functions");
        let ids = t.u64("function_id").into_iter().zip(t.bool("kernel"));
        ids.filter(|(_, kernel)| *kernel == Some(true))
            .filter_map(|(id, _)| id)
            .collect()
    }

    /// All time ranges without full data.
    #[must_use]
    pub fn losses(&self) -> Vec<Loss> {
        let t = self.table("losses");
        let (begin, end, reason) = (t.i64("begin_ns"), t.i64("end_ns"), t.text("reason"));
        let (cpu, tid, records) = (t.u64("cpu"), t.u64("tid"), t.u64("records"));
        (0..t.len())
            .map(|i| Loss {
                begin_ns: begin[i].expect("begin_ns"),
                end_ns: end[i].expect("end_ns"),
                cpu: cpu[i],
                tid: tid[i],
                reason: reason[i].clone().expect("reason"),
                records: records[i],
            })
            .collect()
    }

    /// All intervals off the CPU.
    #[must_use]
    pub fn waits(&self) -> Vec<Wait> {
        let t = self.table("waits");
        let (visit_id, function_id) = (t.u64("visit_id"), t.u64("function_id"));
        let (begin, end, state) = (t.i64("begin_ns"), t.i64("end_ns"), t.text("state"));
        let (woken_by, woken_by_tid) = (t.text("woken_by"), t.u64("woken_by_tid"));
        let (preempted_by, preempted_by_tid) = (t.text("preempted_by"), t.u64("preempted_by_tid"));
        let (runnable_ns, stack_id) = (t.i64("runnable_ns"), t.u64("stack_id"));
        (0..t.len())
            .map(|i| Wait {
                visit_id: visit_id[i].expect("visit_id"),
                begin_ns: begin[i].expect("begin_ns"),
                end_ns: end[i].expect("end_ns"),
                function_id: function_id[i],
                state: state[i].clone().expect("state"),
                woken_by: woken_by[i].clone(),
                woken_by_tid: woken_by_tid[i],
                runnable_ns: runnable_ns[i],
                preempted_by: preempted_by[i].clone(),
                preempted_by_tid: preempted_by_tid[i],
                stack_id: stack_id[i],
            })
            .collect()
    }

    /// Counts, in the order of the table.
    ///
    /// # Panics
    /// If the table can't be read.
    #[must_use]
    pub fn counts(&self) -> Vec<Count> {
        let t = self.table("counts");
        let (visit_id, item_id, event) = (t.u64("visit_id"), t.u64("item_id"), t.u64("event"));
        let (count, state) = (t.u64("count"), t.text("state"));
        let (enabled_ns, running_ns) = (t.i64("enabled_ns"), t.i64("running_ns"));
        (0..t.len())
            .map(|i| Count {
                visit_id: visit_id[i].expect("visit_id"),
                item_id: item_id[i].expect("item_id"),
                event: event[i].expect("event"),
                count: count[i],
                enabled_ns: enabled_ns[i],
                running_ns: running_ns[i],
                state: state[i].clone().expect("state"),
            })
            .collect()
    }

    /// Table `interval_counts`.
    ///
    /// # Panics
    /// If it is malformed.
    #[must_use]
    pub fn interval_counts(&self) -> Vec<IntervalCount> {
        let t = self.table("interval_counts");
        let (tid, begin_ns, event) = (t.u64("tid"), t.i64("begin_ns"), t.u64("event"));
        let (count, enabled_ns, state) = (t.u64("count"), t.i64("enabled_ns"), t.text("state"));
        (0..t.len())
            .map(|i| IntervalCount {
                tid: tid[i].expect("tid"),
                begin_ns: begin_ns[i].expect("begin_ns"),
                event: event[i].expect("event"),
                count: count[i],
                enabled_ns: enabled_ns[i],
                state: state[i].clone().expect("state"),
            })
            .collect()
    }

    /// Names of functions by id; those without a name are left out.
    #[must_use]
    pub fn function_names(&self) -> HashMap<u64, String> {
        self.of_functions("name")
    }

    /// System calls of kernel functions, by id.
    #[must_use]
    pub fn system_calls(&self) -> HashMap<u64, String> {
        self.of_functions("system_call")
    }

    /// Returns the entry to the kernel in which functions ran, by id.
    #[must_use]
    pub fn kernel_entries(&self) -> HashMap<u64, String> {
        self.of_functions("kernel_entry")
    }

    /// Text of functions by id; those without are left out.
    fn of_functions(&self, column: &str) -> HashMap<u64, String> {
        let t = self.table("functions");
        let ids = t.u64("function_id").into_iter().flatten();
        ids.zip(t.text(column))
            .filter_map(|(id, text)| Some((id, text?)))
            .collect()
    }

    /// The function of pebs-trace's own work, if a sample fell on it.
    #[must_use]
    pub fn own_function(&self) -> Option<u64> {
        let t = self.table("functions");
        let modules = t.text("module");
        let own = modules
            .iter()
            .position(|it| it.as_deref() == Some("[pebs-trace]"));
        t.u64("function_id")[own?]
    }

    /// The account of `samples`, `marks` or `tasks`, summed over CPUs.
    #[must_use]
    pub fn account(&self, kind: &str) -> Account {
        let mut total = Account::default();
        for account in self.accounts(kind) {
            total.seen += account.seen;
            total.written += account.written;
            for (reason, n) in account.reasons {
                *total.reasons.entry(reason).or_default() += n;
            }
        }
        total
    }

    /// The accounts of `samples`, `marks` or `tasks` of each CPU.
    ///
    /// # Panics
    /// If `trace.json` has no ledger.
    #[must_use]
    pub fn accounts(&self, kind: &str) -> Vec<Account> {
        let cpus = self.json["ledger"]["cpus"].as_array();
        cpus.unwrap_or_else(|| panic!("trace.json has no ledger: {:#}", self.json))
            .iter()
            .map(|cpu| account(&cpu[kind]))
            .collect()
    }
}

fn account(json: &Value) -> Account {
    let reasons = json["reasons"].as_object().expect("reasons");
    Account {
        seen: json["seen"].as_u64().expect("seen"),
        written: json["written"].as_u64().expect("written"),
        reasons: reasons
            .iter()
            .map(|(reason, n)| (reason.clone(), n.as_u64().expect("a count")))
            .collect(),
    }
}
