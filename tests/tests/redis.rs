//! Debian's stock redis-server: forty of 20,040 GETs are slow for a known reason.
//!
//! Active expiry is off, so that an expired hash of 20,000 fields is freed inside the GET that
//! finds it expired. And two clients that are distinguished without a mark.
#![expect(
    clippy::unwrap_used,
    reason = "integration tests: a panic is the report"
)]

use pebs_tests::check;
use std::collections::HashMap;
use std::path::Path;

use pebs_tests::explain::{Cause, explain, whole};
use pebs_tests::machine;
use pebs_tests::need;
use pebs_tests::recording::{Recorder, Recording, pebs_trace};
use pebs_tests::redis::{Client, Reply, Server, offset_of_current_client};
use pebs_tests::trace::{Trace, Visit, flag};

const SMALL: usize = 20_000;
const BIG: usize = 40;
const FIELDS: usize = 20_000;
/// Fields in one HSET.
const CHUNK: usize = 1_000;
/// Time between two samples, ns: many times the cost of one on virtual machines with slow timers.
const RESET_NS: i64 = 100_000;
/// Between any fast GET and any slow one, ns.
const SLOW_NS: i64 = 500_000;

/// Parts of the names of functions that free a hash.
const FREEING: [&str; 4] = ["free", "dictClear", "dictGenericDelete", "sds"];

/// `client`: id at 0, argc at 72, argv at 80; an argument's text is behind the pointer at 8.
const ARGUMENTS: &str = "processCommand(id=*(arg1):u64, argc=*(arg1+72):i32, \
    cmd=str(*(*(*(arg1+80))+8)), key=str(*(*(*(arg1+80)+8)+8)))";

fn fill(client: &mut Client) {
    client.must(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    for i in 0..SMALL {
        client.must(&[
            "SET",
            &format!("small:{i:06}"),
            "vvvvvvvvvvvvvvvvvvvv",
            "PX",
            "3600000",
        ]);
    }
    for i in 0..BIG {
        let key = format!("big:{i:03}");
        for chunk in 0..FIELDS / CHUNK {
            let fields: Vec<String> = (chunk * CHUNK..(chunk + 1) * CHUNK)
                .flat_map(|n| [format!("f{n}"), format!("val{n}")])
                .collect();
            let mut words = vec!["HSET", &key];
            words.extend(fields.iter().map(String::as_str));
            client.must(&words);
        }
    }
    // A time that is over before the command ends would delete the key there and then.
    for i in 0..BIG {
        client.must(&["PEXPIRE", &format!("big:{i:03}"), "1000"]);
    }
    std::thread::sleep(std::time::Duration::from_millis(1100));
}

/// Every key once; a big one after every 500 small ones.
fn keys() -> Vec<String> {
    let mut keys = Vec::new();
    for i in 0..SMALL {
        keys.push(format!("small:{i:06}"));
        if (i + 1) % (SMALL / BIG) == 0 {
            keys.push(format!("big:{:03}", i / (SMALL / BIG)));
        }
    }
    keys
}

/// Records a GET of every key; only the big ones are expired.
fn record(binary: &Path, args: &[&str]) -> Recording {
    let server = Server::start(binary);
    let mut client = server.connect();
    fill(&mut client);
    let live = Recorder::new(&format!("{}:{ARGUMENTS}", binary.display()))
        .args(&["--event", "cpu-clock", "--reset", &RESET_NS.to_string()])
        // Times of single items are counted in samples.
        .args(&["--jitter", "0"])
        .args(args)
        .attach(server.pid());
    for key in keys() {
        let found = client.must(&["GET", &key]) != Reply::Bulk(None);
        assert_eq!(found, key.starts_with("small:"), "{key}");
    }
    let recording = live.stop();
    drop(client);
    let ended = server.stop();
    assert!(ended.status.success(), "{ended}");
    recording
}

/// The GETs and their keys, all of them, in order.
fn gets_and_keys(trace: &Trace) -> (Vec<Visit>, Vec<String>) {
    check::no_mark_lost(trace);
    let (visits, keys_of) = (gets(trace), trace.text_argument("key"));
    let seen: Vec<String> = visits
        .iter()
        .map(|v| keys_of[&v.visit_id].clone().unwrap())
        .collect();
    assert_eq!(seen, keys(), "every GET, in order");
    (visits, seen)
}

/// Exactly the slow GETs are found, with their keys and the function that is the reason.
#[test]
fn expired_keys() {
    need!(machine::root());
    let binary = need!(machine::program("redis-server"));
    let recording = record(&binary, &[]);
    let trace = recording.trace();
    let (visits, seen) = gets_and_keys(&trace);
    slow_are_the_big_ones(&trace, &visits, &seen);
    report_names_them(&recording.tool.stdout);
    let report = pebs_trace(["report".as_ref(), recording.dir().as_os_str()]);
    report_names_them(&report.stdout);
    explanation_names_them(&recording.dir(), "middle_half");
}

/// The keys separate the slow GETs from others, and their excess is freeing a hash.
fn explanation_names_them(trace: &Path, typical: &str) {
    let slow = format!("{}us", SLOW_NS / 1_000);
    let explanation = explain(trace, &["--slow", &slow]);
    let group = whole(&explanation);
    let because = group.because();
    let key = because.iter().find(|it| it["argument"] == "key");
    let key = key.unwrap_or_else(|| panic!("{because:#?}"));
    assert_eq!(
        (&key["test"], &key["value"]),
        (&"begins".into(), &"big:".into())
    );
    assert_eq!(
        (&key["slow_with"], &key["other_with"]),
        (&BIG.into(), &0.into())
    );
    assert_eq!(group.0["typical"]["rule"], typical);
    // Functions of a library with about equal shares are one cause, which names them.
    let names = |it: &Cause<'_>| format!("{} {}", it.name(), it.0["functions"]);
    let frees = |it: &Cause<'_>| FREEING.iter().any(|part| names(it).contains(part));
    let first = group.first_of_program();
    assert!(frees(&first), "{:#}", group.0["gap"]);
    // Without jitter the samples of a run may beat with its items: then one line says so, and there are no intervals.
    let notes = explanation["notes"].as_array().unwrap();
    let beats = notes
        .iter()
        .any(|it| it.to_string().contains("samples beat"));
    let least = first.0[if beats { "share" } else { "share_low" }].as_f64();
    assert!(
        least.is_some_and(|it| it > 0.05 * group.of_program()),
        "{explanation:#}"
    );
}

/// With the details of slow items only, every slow GET is recorded with its details, and few others;
/// the report still names the reason.
#[test]
fn expired_keys_are_kept() {
    need!(machine::root());
    let binary = need!(machine::program("redis-server"));
    let recording = record(&binary, &["--keep", "slow"]);
    let trace = recording.trace();
    let (visits, seen) = gets_and_keys(&trace);
    let (freeing, mut kept) = (samples_in_code_that_frees(&trace), 0);
    for (visit, key) in visits.iter().zip(&seen) {
        let condensed = visit.has(flag::CONDENSED);
        assert!(!condensed || key.starts_with("small:"), "{key}: {visit:?}");
        kept += usize::from(!condensed);
        let freed = freeing.get(&visit.visit_id).map_or(0, |n| n * RESET_NS);
        assert!(
            freed > SLOW_NS || key.starts_with("small:"),
            "{key}: {freed} ns"
        );
    }
    // 1 % of the durations, 1 % for functions, as much again for chance, and the warm-up.
    assert!(
        kept <= visits.len() / 25 + 100,
        "{kept} of {}",
        visits.len()
    );
    report_names_them(&recording.tool.stdout);
    explanation_names_them(&recording.dir(), "not_kept");
}

/// Every GET of a big key is slow, slower than 99 % of the small ones, and no small one frees as much
/// memory as the least of them.
///
/// An occasional small one is as slow on a busy machine, wherever it was when the hypervisor or an
/// interrupt took the CPU, which may be in a function that frees. So for a single small one the only
/// requirement is that the reason separates the big ones from it.
fn slow_are_the_big_ones(trace: &Trace, visits: &[Visit], keys: &[String]) {
    let freeing = samples_in_code_that_frees(trace);
    let freed = |visit: &Visit| freeing.get(&visit.visit_id).map_or(0, |n| n * RESET_NS);
    let gets = || visits.iter().zip(keys);
    let big = || gets().filter(|(_, key)| key.starts_with("big:"));
    let small = || gets().filter(|(_, key)| key.starts_with("small:"));
    let least = big().map(|(visit, _)| freed(visit)).min().unwrap();
    assert!(least > SLOW_NS, "a big one has {least} ns of freeing");
    for (visit, key) in small() {
        let freed = freed(visit);
        assert!(freed < least, "{key}: {freed} ns of freeing in {visit:?}");
    }
    let mut times: Vec<i64> = small().map(|(visit, _)| visit.oncpu_ns.unwrap()).collect();
    times.sort_unstable();
    let fastest_big = big()
        .map(|(visit, _)| visit.oncpu_ns.unwrap())
        .min()
        .unwrap();
    let p99 = times[SMALL * 99 / 100];
    assert!(
        fastest_big > SLOW_NS && fastest_big > p99,
        "big {fastest_big}, small p99 {p99} ns"
    );
}

/// Samples of each visit in functions that free a hash.
fn samples_in_code_that_frees(trace: &Trace) -> HashMap<u64, i64> {
    let (names, mut visits) = (trace.function_names(), HashMap::new());
    for row in trace.visit_functions() {
        let name = names.get(&row.function_id).map_or("", String::as_str);
        if FREEING.iter().any(|part| name.contains(part)) {
            *visits.entry(row.visit_id).or_default() += row.samples as i64;
        }
    }
    visits
}

fn gets(trace: &Trace) -> Vec<Visit> {
    let commands = trace.text_argument("cmd");
    let is_get = |v: &Visit| commands[&v.visit_id].as_deref() == Some("GET");
    trace.visits().into_iter().filter(is_get).collect()
}

fn report_names_them(report: &str) {
    assert!(
        report.contains("big:"),
        "no slow key in the report\n{report}"
    );
    let reason = [
        "dictClear",
        "sdsfree",
        "zfree",
        "hashTypeFree",
        "dictRelease",
    ];
    assert!(
        reason.iter().any(|name| report.contains(name)),
        "no reason in the report\n{report}"
    );
}

/// The client that the server works for is read from a variable of Debian's own binary, without a mark:
/// one client sorts, and the other fetches a hash.
#[test]
fn clients_without_marks() {
    need!(machine::root());
    let binary = need!(machine::program("redis-server"));
    let server = Server::start(&binary);
    let offset = need!(offset_of_current_client(&server, &binary));
    let (mut sorts, mut counts) = (server.connect(), server.connect());
    let (sorter, counter) = (sorts.id(), counts.id());
    for chunk in 0..20 {
        let members: Vec<String> = (0..500)
            .map(|n| ((n * 7919 + chunk) % 100_003).to_string())
            .collect();
        let mut words = vec!["RPUSH", "list"];
        words.extend(members.iter().map(String::as_str));
        sorts.must(&words);
    }
    counts.must(&["SETBIT", "bits", "40000000", "1"]);
    let place = format!("{}:server+{offset}->0:u64", binary.display());
    let live = Recorder::plain()
        .args(&["--item-mem", &place])
        .args(&["--event", "cpu-clock", "--reset", "50000"])
        .attach(server.pid());
    for _ in 0..40 {
        sorts.must(&["SORT", "list", "LIMIT", "0", "1", "STORE", "least"]);
        counts.must(&["BITCOUNT", "bits"]);
    }
    let recording = live.stop();
    drop((sorts, counts));
    assert!(server.stop().status.success());
    let trace = recording.trace();
    let items: HashMap<u64, u64> = trace
        .visits()
        .iter()
        .map(|v| (v.visit_id, v.item_id))
        .collect();
    assert!(
        items.values().all(|id| [sorter, counter].contains(id)),
        "{items:?}"
    );
    let names = trace.function_names();
    let (mut sorting, mut counting) = (0, 0);
    for sample in trace.samples() {
        let name = names.get(&sample.function_id).map_or("", String::as_str);
        let found = sample.visit_id.map(|visit| items[&visit]);
        if name.contains("sort") || name.contains("Sort") {
            assert_eq!(found, Some(sorter), "{name}: {sample:?}");
            sorting += 1;
        } else if name == "redisPopcount" {
            assert_eq!(found, Some(counter), "{name}: {sample:?}");
            counting += 1;
        }
    }
    assert!(
        sorting > 50 && counting > 20,
        "{sorting} samples sort, {counting} count"
    );
}
