//! Memory accesses: data source and address in samples, against accesses to known memory.
//!
//! Pointers are followed through memory as large as half of each cache, and through more than the last one holds:
//! memory walked before is in that level by construction, as long as no other program uses the cache. If a step through
//! all memory takes no longer than one through the first level, as in an emulator, levels can't be distinguished.

use std::path::Path;

use super::accuracy::{cpu_ns, with_pages};
use super::offers::{self, Offer, Truth};
use super::report::{Basis, Experiment, Figure, Name, Row};
use super::take::{Delivery, Sample, TakeError, on_thread, take};
use super::work::Walk;
use crate::pmu::host::Host;
use crate::pmu::memory::{Level, TlbLevel};
use crate::present::human::count as thousands;

/// Bytes of a line.
const LINE: usize = 64;

/// Most memory that is walked, bytes.
const MOST_BYTES: u64 = 512 << 20;

/// Share of samples that have to be of the level, percent: other programs share the caches.
const LEAST_RIGHT: f64 = 80.0;

/// Least ratio of a step through RAM to one through the first level, if there are caches. On CPUs it is 20 and more.
const LEAST_APART: f64 = 2.0;

/// Steps that are timed at least.
const TIMED_STEPS: u64 = 20_000;

/// Reset value of loads.
const RESET: u64 = 1_009;

/// Number of pages whose addresses are compared.
const PAGES: u64 = 512;

/// Runs the experiment.
pub(crate) fn run(host: &Host, quick: bool) -> Experiment {
    let samples = if quick { 200 } else { 2_000 };
    let loads = Offer {
        only_misses: true,
        ..Offer::new(
            "loads with their source",
            &[
                "mem-loads,ldlat=3:uP",
                "mem_inst_retired.all_loads:upp",
                offers::OPS,
            ],
            Truth::Loads,
            Basis::Exact,
        )
    };
    let sizes = sizes(Path::new("/sys/devices/system/cpu/cpu0/cache"));
    let walks: Vec<(Wanted, Result<Walked, String>)> = Wanted::all(&sizes)
        .into_iter()
        .map(|(wanted, memory)| match memory {
            Some(memory) => (wanted, walked(host, &loads, memory, samples)),
            None => {
                let why = "sysfs does not say the size of this cache";
                (wanted, Err(why.to_owned()))
            }
        })
        .collect();
    let mut rows = levels(&loads.label, &walks);
    rows.push(Row::not_here(
        &loads.label,
        "remote memory",
        remote(Path::new("/sys/devices/system/node")),
    ));
    rows.push(addresses(host));
    Experiment::new(Name::Memory, rows)
}

/// Expected data of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Cache(Level),
    /// The translation is not in the first level of its cache.
    TlbMiss,
}

impl Wanted {
    fn name(self) -> String {
        match self {
            Self::Cache(level) => level.to_string(),
            Self::TlbMiss => "first TLB missed".to_owned(),
        }
    }

    /// Each with bytes and stride of the memory that makes it; `None`: unknown.
    fn all(caches: &[u64]) -> Vec<(Self, Option<(usize, usize)>)> {
        let half = |n: usize| {
            let bytes = caches.get(n).copied()?.min(MOST_BYTES) / 2;
            Some((bytes as usize, LINE))
        };
        let last = caches
            .last()
            .map(|&bytes| ((bytes * 4).min(MOST_BYTES) as usize, LINE));
        let page = rustix::param::page_size();
        vec![
            (Self::Cache(Level::L1), half(0)),
            (Self::Cache(Level::L2), half(1)),
            (Self::Cache(Level::L3), half(2)),
            (Self::Cache(Level::Ram), last),
            // A line of each of this many pages: more than any first TLB has entries, and few enough for the cache.
            (Self::TlbMiss, Some((1_024 * (page + LINE), page + LINE))),
        ]
    }

    fn is_reported_by(self, sample: &Sample) -> bool {
        let Some(access) = sample.access else {
            return false;
        };
        match self {
            Self::Cache(Level::L1) => access
                .place
                .is_some_and(|it| it.level == Level::L1 && it.hit != Some(false)),
            Self::Cache(level) => access.place.is_some_and(|it| it.level == level),
            // Older CPUs report a hit in either TLB, without saying which.
            Self::TlbMiss => access
                .tlb
                .is_some_and(|it| !it.hit || matches!(it.level, TlbLevel::L2 | TlbLevel::Walker)),
        }
    }
}

/// Result of following pointers.
#[derive(Debug)]
struct Walked {
    /// Samples of the load.
    samples: Vec<Sample>,
    /// Number of samples with an address within the memory.
    within: u64,
    /// Size of the memory, bytes.
    bytes: usize,
    /// Time of a step without sampling, ns.
    step_ns: f64,
}

fn walked(
    host: &Host,
    offer: &Offer,
    (bytes, stride): (usize, usize),
    samples: u64,
) -> Result<Walked, String> {
    let event = offer.find(host, RESET)?;
    let run = on_thread(|cpu| {
        let walk = Walk::new(bytes, stride);
        let round = (bytes / stride) as u64;
        walk.run(round);
        let timed = round.max(TIMED_STEPS);
        let begin = cpu_ns();
        walk.run(timed);
        let step_ns = (cpu_ns() - begin) as f64 / timed as f64;
        let steps = samples * event.reset.0.get();
        let events = [(&event, Delivery::Bulk)];
        let ((), taken) = take(cpu, &events, &host.cpu, || (), || walk.run(steps))?;
        let of_load = taken[0].samples.iter();
        let of_load: Vec<Sample> = of_load
            .filter(|it| it.raw.ip.0 == Walk::load())
            .copied()
            .collect();
        let address = |it: &Sample| it.access.and_then(|access| access.addr);
        let within = of_load.iter().filter_map(address);
        Ok(Walked {
            within: within.filter(|address| walk.contains(*address)).count() as u64,
            samples: of_load,
            bytes,
            step_ns,
        })
    });
    run.map_err(|error: TakeError| error.to_string())
}

/// A row for each walk. If levels can't be distinguished their rows say "not here", and only addresses are judged.
fn levels(label: &str, walks: &[(Wanted, Result<Walked, String>)]) -> Vec<Row> {
    let no_levels = no_levels(walks);
    let row = |(wanted, walked): &(Wanted, Result<Walked, String>)| match (walked, &no_levels) {
        (Ok(walked), None) => {
            let row = Row::new(label, wanted.name(), Basis::Exact);
            confusion(row, *wanted, walked)
        }
        (Ok(_), Some(why)) => Row::not_here(label, wanted.name(), why),
        (Err(why), _) => Row::not_here(label, wanted.name(), why),
    };
    let mut rows: Vec<Row> = walks.iter().map(row).collect();
    if no_levels.is_some() {
        let walks = walks.iter().filter_map(|(_, walked)| walked.as_ref().ok());
        let [mut all, mut within] = [0; 2];
        for walked in walks {
            all += walked.samples.len() as u64;
            within += walked.within;
        }
        let row = Row::new(label, "address, all walks", Basis::Exact)
            .figures([Figure::count("samples", all, "samples")])
            .figures(Figure::share("address in the memory walked", within, all));
        rows.push(row.judged(all > 0 && within == all, "every address in the memory"));
    }
    rows
}

/// Why levels can't be distinguished; `None` if they can.
fn no_levels(walks: &[(Wanted, Result<Walked, String>)]) -> Option<String> {
    let of = |level| {
        let mut walks = walks.iter();
        let (_, walked) = walks.find(|(wanted, _)| *wanted == Wanted::Cache(level))?;
        walked.as_ref().ok()
    };
    let (first, last) = (of(Level::L1)?, of(Level::Ram)?);
    (last.step_ns < first.step_ns * LEAST_APART).then(|| {
        format!(
            "a step through {} KiB takes {:.1} ns, through {} KiB {:.1} ns: no levels that could be told apart, as in an \
             emulator",
            thousands(first.bytes as u64 >> 10),
            first.step_ns,
            thousands(last.bytes as u64 >> 10),
            last.step_ns
        )
    })
}

/// Samples of one load by the place recorded in them.
fn confusion(row: Row, wanted: Wanted, walked: &Walked) -> Row {
    let samples = &walked.samples;
    let all = samples.len() as u64;
    let mut places: Vec<(String, u64)> = Vec::new();
    for sample in samples {
        let place = sample.access.and_then(|access| access.place);
        let name = place.map_or_else(|| "not said".to_owned(), |place| place.to_string());
        match places.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => places.push((name, 1)),
        }
    }
    places.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let count = |is: &dyn Fn(&Sample) -> bool| samples.iter().filter(|it| is(it)).count() as u64;
    let right = count(&|it| wanted.is_reported_by(it));
    let latencies: Vec<f64> = { samples.iter() }
        .filter_map(|it| Some(f64::from(it.access?.latency?)))
        .collect();
    let latency = super::statistics::Summary::of(&latencies);
    let row = row
        .figures([Figure::count("samples", all, "samples")])
        .figures(Figure::share("as it is", right, all))
        .figures(Figure::share(
            "address in the memory walked",
            walked.within,
            all,
        ))
        .figures(latency.map(|it| Figure::mean("latency", it, "cycles")))
        .figures(
            { places.iter() }
                .filter_map(|(name, count)| Figure::share(&format!("said: {name}"), *count, all)),
        )
        .figures([Figure::new("a step unsampled", walked.step_ns, "ns", 1)]);
    let share = right as f64 / (all as f64).max(1.0) * 100.0;
    row.judged(
        all > 0 && share >= LEAST_RIGHT && walked.within == all,
        format!("{LEAST_RIGHT} % as it is at least, every address in the memory"),
    )
}

/// Addresses of page faults: must be those of the pages, in the order in which they are touched.
fn addresses(host: &Host) -> Row {
    let offer = offers::page_faults();
    let case = format!("address, {PAGES} pages");
    let event = match offer.find(host, 1) {
        Ok(event) => event,
        Err(why) => return Row::not_here(&offer.label, case, why),
    };
    let run = on_thread(|cpu| {
        let mut wanted = Vec::new();
        let events = [(&event, Delivery::Bulk)];
        let (_, taken) = with_pages(
            PAGES,
            cpu,
            || (),
            |pages, ready| {
                wanted = (0..PAGES as usize).map(|n| pages.address(n)).collect();
                take(cpu, &events, &host.cpu, ready, || pages.touch())
            },
        )?;
        Ok::<_, TakeError>((wanted, taken))
    });
    let (wanted, taken) = match run {
        Ok(run) => run,
        Err(error) => return Row::not_here(&offer.label, case, error.to_string()),
    };
    let address = |sample: &Sample| sample.access.and_then(|access| access.addr);
    let reported: Vec<u64> = taken[0].samples.iter().filter_map(address).collect();
    let equal = reported.iter().zip(&wanted).filter(|(a, b)| a == b).count() as u64;
    Row::new(&offer.label, case, Basis::Exact)
        .figures([Figure::count("samples", reported.len() as u64, "samples")])
        .figures(Figure::share("address of the page touched", equal, PAGES))
        .judged(reported == wanted, "every address, in order")
}

/// Sizes of the data caches of a CPU by level, bytes.
/// Source: Documentation/ABI/testing/sysfs-devices-system-cpu.
fn sizes(folder: &Path) -> Vec<u64> {
    let mut found: Vec<(u64, u64)> = (0..8)
        .filter_map(|n| {
            let text = |name| std::fs::read_to_string(folder.join(format!("index{n}/{name}"))).ok();
            let kind = text("type")?;
            let level = text("level")?.trim().parse().ok()?;
            let size = text("size")?;
            let kib: u64 = size.trim().strip_suffix('K')?.parse().ok()?;
            (kind.trim() != "Instruction").then_some((level, kib << 10))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, size)| size).collect()
}

/// Why remote memory is not tried.
fn remote(nodes: &Path) -> String {
    let entries = std::fs::read_dir(nodes).into_iter().flatten().flatten();
    let is_node = |name: &str| {
        name.strip_prefix("node")
            .is_some_and(|n| n.parse::<u32>().is_ok())
    };
    let count = entries
        .filter(|it| it.file_name().to_str().is_some_and(is_node))
        .count();
    match count {
        0 | 1 => "one node of memory".to_owned(),
        n => format!("{n} nodes of memory; which one a page is on is not tried"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::host::fixtures;
    use crate::stream::access::Access;
    use crate::stream::sample::{RawSample, SampleKind};
    use crate::units::{Cpu, EventId, Ip, TraceNs};
    use crate::validate::report::Verdict;

    /// A sample with such words, as PEBS of Skylake has them: the load, and its level.
    fn sample(addr: u64, data_src: u64, cycles: u64) -> Sample {
        Sample {
            raw: RawSample {
                time: TraceNs(0),
                ip: Ip(Walk::load()),
                sp: 0,
                kind: SampleKind::new(Cpu(0), EventId(0), (true, false)),
            },
            access: Access::of_words(addr, cycles, data_src),
        }
    }

    /// A word of `PERF_SAMPLE_DATA_SRC`: a load (2), its level by number, a hit of the first TLB or a walk.
    fn word(level: u64, is_tlb_hit: bool) -> u64 {
        // mem_op, mem_lvl_num and mem_dtlb: HIT | L1, or MISS | L2.
        let tlb = if is_tlb_hit { 0x2 | 0x8 } else { 0x4 | 0x10 };
        0x2 | level << 33 | tlb << 26
    }

    /// Made records go the whole way from the kernel's words to the row: levels, addresses, latency.
    #[test]
    fn made_records() {
        const L1: u64 = 1;
        const L3: u64 = 3;
        let samples: Vec<Sample> = (0..100)
            .map(|n| {
                sample(
                    0x1000 + n * 64,
                    word(if n < 90 { L3 } else { L1 }, true),
                    40,
                )
            })
            .collect();
        let all = samples.len() as u64;
        let walked = |samples: Vec<Sample>, within| Walked {
            samples,
            within,
            bytes: 1 << 20,
            step_ns: 5.0,
        };
        let row = |wanted, within| {
            let row = Row::new("loads", "", Basis::Exact);
            confusion(row, wanted, &walked(samples.clone(), within))
        };
        let l3 = row(Wanted::Cache(Level::L3), all);
        assert_eq!(l3.holds, Some(true), "{l3:?}");
        assert_eq!(l3.value("as it is"), Some(90.0));
        assert_eq!(l3.value("latency"), Some(40.0));
        assert_eq!(l3.value("said: L3"), Some(90.0), "{l3:?}");
        let l1 = row(Wanted::Cache(Level::L1), all);
        assert_eq!((l1.holds, l1.value("as it is")), (Some(false), Some(10.0)));
        let elsewhere = row(Wanted::Cache(Level::L3), all - 1);
        assert_eq!(
            elsewhere.holds,
            Some(false),
            "one address is not of the memory"
        );
        let tlb = row(Wanted::TlbMiss, all);
        assert_eq!(tlb.value("as it is"), Some(0.0));
        let row = || Row::new("loads", "", Basis::Exact);
        let missed = walked(vec![sample(64, word(L1, false), 20)], 1);
        let tlb = confusion(row(), Wanted::TlbMiss, &missed);
        assert_eq!(
            (tlb.holds, tlb.value("as it is")),
            (Some(true), Some(100.0)),
            "{tlb:?}"
        );
        let none = confusion(row(), Wanted::TlbMiss, &walked(Vec::new(), 0));
        assert_eq!(none.holds, Some(false), "no sample is no proof");
    }

    /// If all memory is as fast as the first level, levels are not judged, but addresses are.
    #[test]
    fn without_caches() {
        let walks = |ram_ns, within| {
            let walked = |bytes, step_ns| {
                Ok(Walked {
                    samples: vec![sample(64, word(1, true), 7)],
                    within,
                    bytes,
                    step_ns,
                })
            };
            [
                (Wanted::Cache(Level::L1), walked(16 << 10, 6.0)),
                (Wanted::Cache(Level::Ram), walked(64 << 20, ram_ns)),
            ]
        };
        let holds = |ram_ns, within| -> Vec<Option<bool>> {
            let rows = levels("loads", &walks(ram_ns, within)).into_iter();
            rows.map(|row| row.holds).collect()
        };
        assert_eq!(holds(90.0, 1), [Some(true), Some(false)]);
        assert_eq!(holds(6.0, 1), [None, None, Some(true)]);
        assert_eq!(holds(6.0, 0), [None, None, Some(false)]);
        let rows = levels("loads", &walks(6.0, 1));
        let why = rows[1].note.clone().unwrap();
        assert!(
            why.contains("16 KiB takes 6.0 ns, through 65,536 KiB 6.0 ns"),
            "{why}"
        );
        let unknown = [(Wanted::Cache(Level::L1), Err("no".to_owned()))];
        assert_eq!(no_levels(&unknown), None);
    }

    /// The memory of each level is half of its size; that of RAM exceeds the last level.
    #[test]
    fn memory_of_levels() {
        let all = Wanted::all(&[32 << 10, 1 << 20, 32 << 20]);
        let bytes: Vec<usize> = all.iter().map(|(_, memory)| memory.unwrap().0).collect();
        assert_eq!(bytes[..4], [16 << 10, 512 << 10, 16 << 20, 128 << 20]);
        let unknown = Wanted::all(&[]);
        assert_eq!(unknown[0], (Wanted::Cache(Level::L1), None));
        let walk = Walk::new(1 << 12, 64);
        walk.run(64);
        assert!(walk.contains(walk.first()));
    }

    /// Sizes from sysfs, without the instruction cache.
    #[test]
    fn caches() {
        let dir = tempfile::tempdir().unwrap();
        for (n, (level, kind, size)) in [
            ("1", "Data", "32K"),
            ("1", "Instruction", "32K"),
            ("2", "Unified", "1024K"),
        ]
        .into_iter()
        .enumerate()
        {
            let folder = dir.path().join(format!("index{n}"));
            std::fs::create_dir(&folder).unwrap();
            for (name, text) in [("level", level), ("type", kind), ("size", size)] {
                std::fs::write(folder.join(name), format!("{text}\n")).unwrap();
            }
        }
        assert_eq!(sizes(dir.path()), [32 << 10, 1 << 20]);
        assert_eq!(sizes(Path::new("/nowhere")), [0; 0]);
    }

    /// Without hardware that reports levels, their rows say "not here".
    #[test]
    fn without_hardware() {
        let experiment = run(&fixtures::bare_guest(), true);
        let levels = experiment
            .rows
            .iter()
            .filter(|row| row.event != "page-faults");
        assert!(levels.clone().count() >= 6);
        for row in levels {
            assert_eq!(row.basis, Basis::NotHere, "{row:?}");
            assert!(row.note.is_some() && row.figures.is_empty());
        }
        assert_ne!(experiment.verdict, Verdict::Deviates, "{experiment:?}");
    }
}
