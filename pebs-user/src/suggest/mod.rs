//! Functions of a running program that look like items.
//!
//! `stacks` samples their CPU time and system calls with call stacks, `profile` sums
//! these up by function, `entries` watches calls of the most interesting functions, `score` judges.
//!
//! Invariant: the target's code is not changed: samples, counters and hardware breakpoints alone. Their number is bounded
//! beforehand, so that they should take about 1 % of the target's CPU time; where a hit or a switch with breakpoints is dear, as
//! on some virtual machines, threads that often wait pay more.

mod calls;
mod entries;
mod profile;
mod score;
mod sockets;
mod stacks;
mod thread;
mod tracepoint;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use serde::Serialize;

use self::entries::{Calls, Limit, SLOTS, Watched};
use self::profile::{Profile, Rates, Seen};
use self::score::{Facts, SENSIBLE, Term, quantiles};
use self::sockets::{Exchange, exchange};
use self::thread::Thread;
use crate::arch::Register;
use crate::binary::build::SHOWN_DIGITS;
use crate::binary::elf::{Binary, Language};
use crate::binary::mapping::Mapping;
use crate::binary::proc_maps::proc_maps;
use crate::binary::process::{self, FileId};
use crate::cost::stepping;
use crate::failure::Result;
use crate::probe::ResolveOptions;
use crate::probe::resolve::resolve_each;
use crate::probe::set::Probe;
use crate::probe::shape::Shapes;
use crate::spec::written;
use crate::store::run::EntryClass;
use crate::store::schema::FunctionRow;
use crate::units::{FunctionId, Pid, Tid};

/// Functions whose calls are watched.
const WATCHED: usize = 24;

/// Least share of CPU time, or of reads or writes, of such a function.
const LEAST: f64 = 0.03;

/// Time for which a group of functions is watched first, and time for all that were called seldom.
const FIRST: Duration = Duration::from_millis(40);
const SECOND: Duration = Duration::from_millis(600);

/// Time of a second of the target's CPU time that watching calls may take in all, s: 0.7 % of about 5 s.
const SPENT: f64 = 0.035;

/// Calls with which durations are known well enough.
const ENOUGH: usize = 16;

/// Suggestions.
const SUGGESTED: usize = 10;

/// Names with which libraries begin whose functions are no items: they do parts of the work of all programs, or loop.
const LIBRARIES: [&str; 26] = [
    "libc.so",
    "libc-",
    "ld-linux",
    "ld-",
    "libpthread",
    "libm.so",
    "libm-",
    "libdl",
    "librt",
    "libstdc++",
    "libgcc_s",
    "libcrypto",
    "libssl",
    "libgnutls",
    "libz.so",
    "libzstd",
    "liblz4",
    "libpcre",
    "libjemalloc",
    "libtcmalloc",
    "libevent",
    "libev.so",
    "libuv",
    "libglib",
    "libsystemd",
    "libresolv",
];

/// Beginnings of names of Go functions of which the same holds.
const GO_PACKAGES: [&str; 18] = [
    "bufio.",
    "bytes.",
    "crypto/",
    "encoding/",
    "fmt.",
    "internal/",
    "io.",
    "net.",
    "os.",
    "reflect.",
    "runtime.",
    "runtime/",
    "sort.",
    "strconv.",
    "strings.",
    "sync.",
    "syscall.",
    "time.",
];

/// Functions that run once.
const ONCE: [&str; 5] = [
    "main",
    "_start",
    "__libc_start_main",
    "start_thread",
    "clone",
];

impl Candidate {
    /// Whether its threads wait for events in it, and do nothing outside of it.
    fn is_loop(&self) -> bool {
        self.seen.waits_share >= 0.8 && self.seen.stacks_share >= 0.95
    }
}

/// CPU time that the threads of a process have taken so far, ns.
pub(crate) fn cpu_ns(pid: Pid) -> u64 {
    let of = |tid: Tid| {
        let path = format!("/proc/{}/task/{}/schedstat", pid.0, tid.0);
        let text = std::fs::read_to_string(path).ok()?;
        text.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    // A thread that has ended has none.
    process::threads(pid)
        .unwrap_or_default()
        .into_iter()
        .filter_map(of)
        .sum()
}

/// A function to probe.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Suggestion {
    /// Ready to paste.
    pub spec: String,
    pub function: String,
    /// Its binary, as the process sees it.
    pub binary: String,
    pub build_id: Option<String>,
    /// Offset of the function in the file, bytes.
    pub offset: Option<u64>,
    /// Calls per second; null: could not be watched.
    pub per_s: Option<f64>,
    /// Calls whose durations were seen.
    pub calls_seen: usize,
    /// Durations: the median, and the one that 99 of 100 do not exceed; null: no call ended while it was watched. 0: shorter
    /// than what watching takes.
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    /// Most calls at a time on different threads.
    pub at_once: Option<usize>,
    /// Predicted growth of a median call by its two marks, a share; null: too short to tell.
    pub slow_down: Option<f64>,
    /// Share of the process's CPU time; null: not known of what is no function.
    pub cpu: Option<f64>,
    /// Argument that looks like an item's number.
    pub id: Option<usize>,
    pub text: Option<TextSeen>,
    pub score: f64,
    /// Why it was chosen.
    pub reasons: Vec<String>,
}

/// An argument that points at text.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TextSeen {
    /// Expression for a SPEC.
    pub read: String,
    /// Text of one call.
    pub example: String,
    /// Whether calls had different texts.
    pub differs: bool,
}

/// Result of the search.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Suggested {
    /// The best first.
    pub suggestions: Vec<Suggestion>,
    /// Time that it took, s.
    pub seconds: f64,
    /// CPUs that the sampled threads took.
    pub cpus: f64,
    pub samples: usize,
    /// Reads and writes per second, by kind; empty: they could not be counted.
    pub reads_per_s: Vec<(&'static str, f64)>,
    pub writes_per_s: Vec<(&'static str, f64)>,
    /// Functions that would have been suggested, but can't be probed, and why.
    pub refused: Vec<(String, String)>,
    /// Remarks on what was not seen.
    pub notes: Vec<String>,
}

/// A function that may be an item.
struct Candidate {
    row: FunctionRow,
    seen: Seen,
    calls: Option<Calls>,
    watched: Watched,
    is_program: bool,
}

/// Looks at a process and those that descend from it.
///
/// # Errors
/// There is no such process, or this user may not sample it.
pub(crate) fn suggest(pid: Pid, length: Duration) -> Result<Suggested> {
    let start = Instant::now();
    let look = stacks::look(pid, length)?;
    let profile = Profile::of(&look);
    let mut notes = notes(&look);
    let mut candidates = candidates(pid, &look.functions, &profile);
    if let Some(note) = watch_all(&mut candidates, look.cpus * SPENT * 1e9, &profile.calls) {
        notes.push(note);
    }
    let entered = |id: &FunctionId| {
        let known = candidates.iter().find(|it| it.row.function_id == *id)?;
        let is_entered = known.calls.as_ref().map(|it| it.entries > 0);
        if known.is_loop() {
            Some(false)
        } else {
            is_entered
        }
    };
    let is_loop = |id: &FunctionId| {
        let once = look
            .functions
            .get(id.0 as usize)
            .and_then(|row| row.name.as_deref());
        entered(id) == Some(false) || once.is_some_and(|name| ONCE.contains(&name))
    };
    let below: Vec<Option<usize>> = candidates
        .iter()
        .map(|it| it.seen.path.iter().position(is_loop).map(|n| n + 1))
        .collect();
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    for (candidate, (probe, below)) in candidates
        .iter()
        .zip(resolved(pid, &candidates).into_iter().zip(below))
    {
        tracing::debug!(
            "{}: cpu {:.2}, reads {:.0}/s, writes {:.0}/s, waits {:.0}/s, callers {}, below {below:?}, {:?}",
            name(&candidate.row),
            candidate.seen.work,
            candidate.seen.inputs,
            candidate.seen.outputs,
            candidate.seen.waits,
            candidate.seen.callers,
            candidate.calls.as_ref().map(|it| (
                it.rate,
                it.entries,
                quantiles(&it.durations),
                it.durations.len(),
                it.nested
            )),
        );
        // The loop itself.
        if candidate.is_loop() || candidate.calls.as_ref().is_some_and(|it| it.entries == 0) {
            continue;
        }
        let marks_ns = probe.as_ref().map_or(1000.0, |(_, probe)| marks_ns(probe));
        let (score, reasons) = judge(candidate, &profile.rates, below, marks_ns);
        tracing::debug!(
            "{}: {score:.1}, marks {marks_ns} ns, {reasons:?}",
            name(&candidate.row)
        );
        match probe {
            _ if score < SENSIBLE => {}
            Ok((spec, _)) => found.push(suggestion(candidate, spec, (score, reasons), marks_ns)),
            Err(why) => refused.push((name(&candidate.row).to_owned(), why)),
        }
    }
    if let Some(exchange) = exchange(&look, &profile.rates) {
        match resolve_each(std::slice::from_ref(&exchange.spec), &options(pid)).pop() {
            Some(Ok(_)) => found.push(between(exchange)),
            Some(Err(why)) => tracing::debug!("{}: {why}", exchange.spec),
            None => {}
        }
    }
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    found.truncate(SUGGESTED);
    add_shapes(&mut found);
    let named = |list: &BTreeMap<calls::Channel, f64>| {
        list.iter()
            .map(|(channel, per_s)| (channel.name(), *per_s))
            .collect()
    };
    Ok(Suggested {
        suggestions: found,
        seconds: start.elapsed().as_secs_f64(),
        cpus: look.cpus,
        samples: profile.samples,
        reads_per_s: named(&profile.rates.inputs),
        writes_per_s: named(&profile.rates.outputs),
        refused,
        notes,
    })
}

fn notes(look: &stacks::Look) -> Vec<String> {
    let mut notes = Vec::new();
    if look.counted_s == 0.0 {
        notes
            .push("system calls could not be counted: what reads and writes is unknown".to_owned());
    }
    if look.lost * 5 > look.stacks.len() as u64 {
        notes.push(format!(
            "{} samples found no room and are missing",
            look.lost
        ));
    }
    let all = look.stacks.len() as u64;
    if look.cut * 5 > all {
        notes.push(format!("{} of {all} call stacks are not whole", look.cut));
    }
    notes
}

fn name(row: &FunctionRow) -> &str {
    row.name.as_deref().unwrap_or("?")
}

/// The functions to watch, with their addresses.
fn candidates(pid: Pid, functions: &[FunctionRow], profile: &Profile) -> Vec<Candidate> {
    let program = FileId::of(&PathBuf::from(format!("/proc/{}/exe", pid.0)));
    let (inputs, outputs) = (sum(&profile.rates.inputs), sum(&profile.rates.outputs));
    let share = |seen: &Seen| {
        let part = |of: f64, all: f64| if all > 0.0 { of / all } else { 0.0 };
        seen.cpu
            .max(seen.work)
            .max(part(seen.inputs, inputs))
            .max(part(seen.outputs, outputs))
    };
    let mut chosen: Vec<(f64, &Seen)> = profile
        .seen
        .iter()
        .map(|seen| (share(seen), seen))
        .collect();
    chosen.retain(|(share, seen)| {
        *share >= LEAST
            && functions
                .get(seen.function.0 as usize)
                .is_some_and(may_be_item)
    });
    chosen.sort_by(|a, b| b.0.total_cmp(&a.0));
    chosen.truncate(WATCHED);
    let mut maps: FxHashMap<Pid, Vec<Mapping>> = FxHashMap::default();
    let mut languages: FxHashMap<String, Language> = FxHashMap::default();
    let mut made = Vec::new();
    for (_, seen) in chosen {
        let Some(row) = functions.get(seen.function.0 as usize) else {
            continue;
        };
        let module = row.module.clone().unwrap_or_default();
        let language = *languages.entry(module.clone()).or_insert_with(|| {
            // As the process sees it, which may be in a container.
            let path = format!("/proc/{}/root{module}", pid.0);
            Binary::open(&PathBuf::from(path)).map_or(Language::SysV, |it| it.language)
        });
        let entries = seen.inside.iter().filter_map(|(pid, inside)| {
            let mappings = maps
                .entry(*pid)
                .or_insert_with(|| proc_maps(*pid).unwrap_or_default());
            Some((*pid, address(mappings, *inside, row.offset?)?))
        });
        let entries = entries.collect();
        made.push(Candidate {
            row: row.clone(),
            seen: seen.clone(),
            calls: None,
            watched: Watched {
                entries,
                returns: seen.returns.iter().take(SLOTS - 1).copied().collect(),
                arguments: match language {
                    Language::Go => &Register::GO_ARGUMENTS,
                    _ => &Register::ARGUMENTS,
                },
            },
            is_program: program.is_some() && FileId::of(&PathBuf::from(&module)) == program,
        });
    }
    made
}

fn sum(rates: &BTreeMap<calls::Channel, f64>) -> f64 {
    rates.values().sum()
}

/// Whether a function is of a kind that items have: of a program or of a library of its own.
fn may_be_item(row: &FunctionRow) -> bool {
    let Some(module) = row.module.as_deref().filter(|it| it.starts_with('/')) else {
        return false;
    };
    let file = module.rsplit('/').next().unwrap_or(module);
    let is_known = LIBRARIES.iter().any(|it| file.starts_with(it))
        || GO_PACKAGES.iter().any(|it| name(row).starts_with(it));
    !row.kernel
        && row.offset.is_some()
        && row.name.is_some()
        && !is_known
        && !ONCE.contains(&name(row))
}

/// Address of a file's byte in a process, by an address in the same mapping.
fn address(mappings: &[Mapping], inside: u64, offset: u64) -> Option<u64> {
    let mapping = mappings.iter().find(|it| it.contains(inside))?;
    let from_start = offset.checked_sub(mapping.offset)?;
    (from_start < mapping.end - mapping.start).then_some(mapping.start + from_start)
}

/// Watches the calls of all candidates; returns why that was not possible.
fn watch_all(
    candidates: &mut [Candidate],
    spend_ns: f64,
    usual: &BTreeMap<Thread, f64>,
) -> Option<String> {
    let all: Vec<usize> = (0..candidates.len())
        .filter(|n| !candidates[*n].is_loop())
        .collect();
    let limit = Limit::of(candidates.len(), spend_ns);
    tracing::debug!("{limit:?}");
    if let Err(error) = watch_groups(candidates, &all, FIRST, limit, usual) {
        return Some(format!("calls could not be watched: {error}"));
    }
    let enough = limit.hits.unsigned_abs() as usize / 2;
    let seldom = |it: &Candidate| {
        it.calls
            .as_ref()
            .is_some_and(|calls| calls.durations.len() < ENOUGH.min(enough))
    };
    let again: Vec<usize> = all
        .into_iter()
        .filter(|n| seldom(&candidates[*n]))
        .collect();
    for n in &again {
        // Places to which calls returned that no sample had.
        let candidate = &mut candidates[*n];
        let seen = candidate.calls.iter().flat_map(|it| it.returns.clone());
        let mut returns: Vec<(Pid, u64)> = seen.collect();
        returns.extend(&candidate.watched.returns);
        let mut known = Vec::new();
        returns.retain(|it| {
            !known.contains(it) && {
                known.push(*it);
                true
            }
        });
        returns.truncate(SLOTS - 1);
        candidate.watched.returns = returns;
    }
    let groups = groups(candidates, &again).len().max(1) as u32;
    // Rates of functions that are called seldom need no correction.
    let uncounted = Limit {
        tracepoint: None,
        ..limit
    };
    watch_groups(candidates, &again, SECOND / groups, uncounted, usual)
        .err()
        .map(|error| format!("calls could not be watched: {error}"))
}

/// Puts functions together that have few enough addresses.
fn groups(candidates: &[Candidate], which: &[usize]) -> Vec<Vec<usize>> {
    let slots = |n: usize| {
        let watched = &candidates[n].watched;
        let most = watched
            .entries
            .iter()
            .map(|(pid, _)| watched.returns.iter().filter(|it| it.0 == *pid).count());
        1 + most.max().unwrap_or(0).max(1)
    };
    let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
    for n in which {
        let needed = slots(*n);
        match groups.iter_mut().find(|(used, _)| used + needed <= SLOTS) {
            Some((used, group)) => {
                *used += needed;
                group.push(*n);
            }
            None => groups.push((needed, vec![*n])),
        }
    }
    groups.into_iter().map(|it| it.1).collect()
}

fn watch_groups(
    candidates: &mut [Candidate],
    which: &[usize],
    longest: Duration,
    limit: Limit,
    usual: &BTreeMap<Thread, f64>,
) -> Result<()> {
    for group in groups(candidates, which) {
        let watched: Vec<Watched> = group
            .iter()
            .map(|n| candidates[*n].watched.clone())
            .collect();
        let mut threads: Vec<(f64, Thread)> = Vec::new();
        for (thread, part) in group.iter().flat_map(|n| &candidates[*n].seen.threads) {
            match threads.iter_mut().find(|it| it.1 == *thread) {
                Some(known) => known.0 += part,
                None => threads.push((*part, *thread)),
            }
        }
        threads.sort_by(|a, b| b.0.total_cmp(&a.0));
        let threads: Vec<Thread> = threads
            .into_iter()
            .map(|it| it.1)
            .take(entries::THREADS)
            .collect();
        let calls = entries::watch(&watched, &threads, longest, limit)?;
        for (n, mut calls) in group.into_iter().zip(calls) {
            let seen = &candidates[n].seen.threads;
            let part: f64 = seen
                .iter()
                .filter(|it| threads.contains(&it.0))
                .map(|it| it.1)
                .sum();
            calls.rate /= part.clamp(0.05, 1.0);
            // Breakpoints slow threads down.
            let usual: f64 = threads.iter().filter_map(|it| usual.get(it)).sum();
            if usual > 0.0 && calls.system_calls > 0.0 {
                calls.rate *= (usual / calls.system_calls).clamp(0.5, 5.0);
            }
            match &mut candidates[n].calls {
                Some(known) => known.add(calls),
                none => *none = Some(calls),
            }
        }
    }
    Ok(())
}

fn options(pid: Pid) -> ResolveOptions {
    ResolveOptions {
        pid: Some(pid),
        steps: stepping::works(),
        ..ResolveOptions::default()
    }
}

/// The SPEC of each candidate with its probe, or why it can't be probed.
fn resolved(pid: Pid, candidates: &[Candidate]) -> Vec<Result<(String, Probe), String>> {
    let options = options(pid);
    let by_name: Vec<String> = candidates.iter().map(|it| spec(&it.row, true)).collect();
    let by_address: Vec<String> = candidates.iter().map(|it| spec(&it.row, false)).collect();
    let named = resolve_each(&by_name, &options);
    let mut numbered: Option<Vec<_>> = None;
    let mut all = Vec::new();
    for (n, probe) in named.into_iter().enumerate() {
        let is_one = |probe: &Probe| {
            let begins = probe
                .sites
                .iter()
                .filter(|it| it.role == pebs_common::record::Role::Begin);
            begins.count() == 1
        };
        all.push(match probe {
            Ok(probe) if is_one(&probe) => Ok((by_name[n].clone(), probe)),
            other => {
                // Several functions have this name, or it can't be written in a SPEC.
                let numbered = numbered.get_or_insert_with(|| {
                    resolve_each(&by_address, &options)
                        .into_iter()
                        .map(Some)
                        .collect()
                });
                match (numbered[n].take(), other) {
                    (Some(Ok(probe)), _) => Ok((by_address[n].clone(), probe)),
                    (_, Err(error)) | (Some(Err(error)), Ok(_)) => Err(error
                        .to_string()
                        .lines()
                        .next()
                        .unwrap_or_default()
                        .to_owned()),
                    (None, Ok(_)) => Err("several functions have this name".to_owned()),
                }
            }
        });
    }
    all
}

/// A SPEC of a function, by its name if it has one, or by the build id and its offset in the file.
fn spec(row: &FunctionRow, by_name: bool) -> String {
    let module = row.module.as_deref().unwrap_or_default();
    let name = name(row);
    let address = name.rsplit_once("fn@").map(|it| it.1.to_owned());
    if by_name && address.is_none() {
        return format!("{module}:{}", written(name));
    }
    // An address is good for one build only.
    if let (Some(id), Some(offset)) = (&row.build_id, row.offset) {
        return build_place(id, offset);
    }
    match address {
        Some(address) => format!("{module}:{address}"),
        None => format!("{module}:{}", written(name)),
    }
}

/// Adds to SPECs by build id what finds the function in another build.
fn add_shapes(found: &mut [Suggestion]) {
    let mut known: BTreeMap<String, Option<(Binary, Shapes)>> = BTreeMap::new();
    for suggestion in found {
        let Some((place, rest)) = by_build(suggestion) else {
            continue;
        };
        let read = || {
            let binary = Binary::open(&PathBuf::from(&suggestion.binary)).ok()?;
            let shapes = Shapes::of(&binary);
            Some((binary, shapes))
        };
        let known = known.entry(suggestion.binary.clone()).or_insert_with(read);
        let address = |binary: &Binary| binary.address_of(suggestion.offset?);
        let shape = known
            .as_ref()
            .and_then(|(binary, shapes)| shapes.at(address(binary)?));
        if let Some(shape) = shape {
            suggestion.spec = format!("{place}~{shape}{rest}");
        }
    }
}

/// Build id and offset of a SPEC that begins with them, and what follows.
fn by_build(suggestion: &Suggestion) -> Option<(String, String)> {
    let place = build_place(suggestion.build_id.as_deref()?, suggestion.offset?);
    let rest = suggestion.spec.strip_prefix(&place)?.to_owned();
    Some((place, rest))
}

fn build_place(id: &str, offset: u64) -> String {
    let id = id.get(..SHOWN_DIGITS).unwrap_or(id);
    format!("{id}+{offset:#x}")
}

/// Cost of both marks, as `probes` has it.
fn marks_ns(probe: &Probe) -> f64 {
    use pebs_common::record::Role;
    let cost = |class: EntryClass| match class {
        EntryClass::Emulated | EntryClass::InProgram => 500.0,
        EntryClass::SingleStep => 3800.0,
    };
    let of = |begins: bool| {
        let sites = probe
            .sites
            .iter()
            .filter(|it| (it.role == Role::Begin) == begins);
        sites.map(|it| cost(it.class)).fold(0.0, f64::max)
    };
    of(true) + of(false)
}

fn judge(
    candidate: &Candidate,
    rates: &Rates,
    below_loop: Option<usize>,
    marks_ns: f64,
) -> (f64, Vec<String>) {
    let facts = Facts {
        name: name(&candidate.row),
        seen: &candidate.seen,
        calls: candidate.calls.as_ref(),
        rate: candidate.calls.as_ref().map(|it| it.rate),
        rates,
        below_loop,
        marks_ns,
        is_program: candidate.is_program,
    };
    let terms = score::terms(&facts);
    let score = terms.iter().map(|term| term.points).sum();
    let reasons = terms.into_iter().filter_map(|Term { reason, .. }| reason);
    (score, reasons.collect())
}

/// Items between reads and writes of sockets.
fn between(exchange: Exchange) -> Suggestion {
    Suggestion {
        reasons: vec![format!(
            "from a read of a socket to the next write: {:.0} and {:.0} a second",
            exchange.reads_per_s, exchange.writes_per_s
        )],
        spec: exchange.spec,
        function: exchange.functions,
        binary: exchange.library,
        build_id: None,
        offset: None,
        per_s: Some(exchange.per_s),
        calls_seen: 0,
        p50_ns: None,
        p99_ns: None,
        at_once: None,
        slow_down: None,
        cpu: None,
        id: None,
        text: None,
        score: score::of_exchange(exchange.reads_per_s / exchange.writes_per_s),
    }
}

fn suggestion(
    candidate: &Candidate,
    spec: String,
    (score, reasons): (f64, Vec<String>),
    marks_ns: f64,
) -> Suggestion {
    let calls = candidate.calls.as_ref();
    let durations = calls.and_then(|it| quantiles(&it.durations));
    let text = calls.and_then(score::text).map(|text| TextSeen {
        read: match text.offset {
            None => format!("str(arg{})", text.argument),
            Some(0) => format!("str(*(arg{}):ptr)", text.argument),
            Some(offset) => format!("str(*(arg{}+{offset}):ptr)", text.argument),
        },
        example: text.example,
        differs: text.differs,
    });
    let spec = match text.as_ref().filter(|it| it.differs) {
        Some(text) => format!("{spec}(text={})", text.read),
        None => spec,
    };
    Suggestion {
        spec,
        function: name(&candidate.row).to_owned(),
        binary: candidate.row.module.clone().unwrap_or_default(),
        build_id: candidate.row.build_id.clone(),
        offset: candidate.row.offset,
        per_s: calls.map(|it| it.rate),
        calls_seen: calls.map_or(0, |it| it.durations.len()),
        p50_ns: durations.map(|it| it[0]),
        p99_ns: durations.map(|it| it[1]),
        at_once: calls.map(|it| it.at_once),
        slow_down: durations
            .filter(|[median, _]| *median > 0)
            .map(|[median, _]| marks_ns / median as f64),
        cpu: Some(candidate.seen.cpu),
        id: calls.and_then(score::id),
        text,
        score,
        reasons,
    }
}
