use super::*;
use crate::pmu::host::fixtures;

fn parsed(text: &str) -> Result<Vec<Vec<String>>, String> {
    let groups = parse(&[text.to_owned()]).map_err(|error| error.to_string())?;
    let names = |group: Vec<EventSpec>| group.iter().map(ToString::to_string).collect();
    Ok(groups.into_iter().map(names).collect())
}

fn names(host: &Host, text: &str) -> Result<Vec<(String, usize)>, CountError> {
    let counted = resolve_all(&parse(&[text.to_owned()])?, host)?;
    Ok(counted.into_iter().map(|it| (it.name, it.group)).collect())
}

/// Lists are split where no event continues; groups stay together, and their modifiers apply to each event.
#[test]
fn lists() {
    let cases: [(&str, &[&[&str]]); 9] = [
        ("page-faults", &[&["page-faults"]]),
        ("faults,cs", &[&["page-faults"], &["context-switches"]]),
        ("{cycles,instructions}", &[&["cycles", "instructions"]]),
        (
            "{cycles,instructions:k}:u,r1c2",
            &[&["cycles:u", "instructions:uk"], &["r1c2"]],
        ),
        (
            "cpu/event=0xc2,umask=1/,cycles:k",
            &[&["cpu/event=0xc2,umask=0x1/"], &["cycles:k"]],
        ),
        (
            "{cpu/event=0xc2,umask=1/u,cycles}",
            &[&["cpu/event=0xc2,umask=0x1/u", "cycles"]],
        ),
        (
            "mem-loads,ldlat=30,cycles",
            &[&["mem-loads,ldlat=0x1e"], &["cycles"]],
        ),
        (
            "mem:./a/b:main:x,mem:0x10/8:w,cs",
            &[
                &["mem:./a/b:main:x"],
                &["mem:0x10/8:w"],
                &["context-switches"],
            ],
        ),
        ("auto:u,cycles", &[&["auto:u"], &["cycles"]]),
    ];
    for (text, expect) in cases {
        let found = parsed(text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(found, expect, "{text}");
    }
}

/// Each fault is one line with the position, and a hint.
#[test]
fn faults() {
    let cases = [
        ("", "an event is missing in ''"),
        ("cs,", "an event is missing in 'cs,'"),
        ("cs,,cycles", "an event is missing in 'cs,,cycles'"),
        ("{cs", "malformed group '{cs'"),
        ("{}", "an event is missing in ''"),
        ("{cs}x", "malformed group '{cs}x'"),
        ("{auto}", "malformed group '{auto}'"),
        ("{cs,{cycles}}", "malformed group '{cs,{cycles}}'"),
        (
            "cycles:q",
            "malformed event 'cycles:q': unknown modifier 'q' at column 8",
        ),
        (
            "{cs}:q",
            "malformed event 'cycles:q': unknown modifier 'q' at column 8",
        ),
    ];
    for (text, expect) in cases {
        assert_eq!(parsed(text), Err(expect.to_owned()), "{text}");
        let error = parse(&[text.to_owned()]).unwrap_err();
        assert!(error.hint().is_some(), "{text}");
    }
}

/// Events that are not attributable to items are refused with a hint; so are missing events, and too many.
#[test]
fn refused() {
    let (bare, skylake) = (fixtures::bare_guest(), fixtures::skylake());
    let cases = [
        (
            &bare,
            "cycles",
            "cannot count for each item: event 'cycles' can't be counted",
            "--count auto",
        ),
        (
            &bare,
            "nonsense",
            "unknown event 'nonsense'",
            "pebs-trace events",
        ),
        (
            &bare,
            "page-faults,faults",
            "'page-faults' is to be counted twice",
            "once",
        ),
        (
            &bare,
            "cgroup-switches",
            "cannot count 'cgroup-switches' for each item",
            "context-switches",
        ),
        (
            &bare,
            "task-clock:u",
            "cannot count 'task-clock:u' for each item",
            "leave out ':u'",
        ),
        (
            &bare,
            "context-switches:u",
            "never happens in user mode",
            "leave out ':u'",
        ),
        (
            &skylake,
            "cycles:p",
            "cannot count 'cycles:p' for each item: precision",
            "leave out ':p'",
        ),
        (&fixtures::zen4(), "ibs_op//", "IBS takes samples", "cycles"),
    ];
    for (host, text, expect, hint) in cases {
        let error = names(host, text).expect_err(text);
        let line = match &error {
            CountError::Event(cause) => format!("{error}: {cause}"),
            _ => error.to_string(),
        };
        assert!(line.contains(expect), "{text}: {line}");
        let actual = error.hint().unwrap_or_default();
        assert!(actual.contains(hint), "{text}: {actual}");
    }
    let many: Vec<String> = (0..=MAX_COUNTS)
        .map(|n| format!("mem:{:#x}:x", 8 * n + 8))
        .collect();
    assert_eq!(
        names(&bare, &many.join(",")),
        Err(CountError::TooMany(MAX_COUNTS + 1))
    );
}

/// `auto` stands for the events that the machine supports, in groups.
#[test]
fn what_there_is() {
    let of = |names: &[(&str, usize)]| {
        Ok(names
            .iter()
            .map(|(name, group)| ((*name).to_owned(), *group))
            .collect())
    };
    let kernels = [
        ("page-faults", 0),
        ("major-faults", 1),
        ("context-switches", 2),
        ("cpu-migrations", 3),
    ];
    assert_eq!(names(&fixtures::bare_guest(), "auto"), of(&kernels));
    let first = [
        ("cycles:u", 0),
        ("instructions:u", 0),
        ("branch-misses:u", 1),
        ("cache-misses:u", 2),
    ];
    let found = names(&fixtures::skylake(), "auto:u").unwrap();
    assert_eq!(Ok(found[..4].to_vec()), of(&first));
    assert_eq!(found[4].0, "page-faults:u");
    assert_eq!(found.len(), 8);
}

/// A counter takes no samples and belongs to a CPU; events counted from records have none.
#[test]
fn counters() {
    let host = fixtures::alder_lake();
    let text = ["cycles:u,context-switches,page-faults".to_owned()];
    let counted = resolve_all(&parse(&text).unwrap(), &host).unwrap();
    let attr = counted[0].attr(Cpu(0)).unwrap();
    assert_eq!(
        (attr.sample_type, attr.inherit(), attr.exclude_kernel()),
        (0, 0, 1)
    );
    assert!(counted[1].attr(Cpu(0)).is_none());
    // For cycles and page-faults.
    assert_eq!((super::counters(&counted), always(&counted)), (2, 2));
    // Each kind of cores has an encoding of its own.
    let atom = counted[0].counter().unwrap().twins[0].cpus[0];
    let other = counted[0].attr(atom).unwrap();
    assert_ne!((attr.type_, attr.config), (other.type_, other.config));
}

/// Sampling events are pinned where counts need the same counters, with a note if counts have to take turns; a
/// group that does not fit beside samples is refused. Clocks and IBS need no core counter.
#[test]
fn beside_samples() {
    let serve = |host: &Host, sampled: &str, text: &str, multiplex| {
        let any = ResetValue(std::num::NonZeroU64::MAX);
        let mut samples = vec![resolve(&sampled.parse().unwrap(), host, any).unwrap()];
        let counted = resolve_all(&parse(&[text.to_owned()]).unwrap(), host).unwrap();
        let note = serve_samples_first(&mut samples, &counted, multiplex, host);
        (samples[0].attr.pinned(), note)
    };
    let skylake = fixtures::skylake();
    let loads = "mem_load_retired.l1_miss:pp";
    let four = "r1c2,r2c2,r3c2,r4c2";
    assert_eq!(serve(&skylake, loads, "auto", false), (1, Ok(None)));
    assert_eq!(serve(&skylake, loads, "page-faults", false), (0, Ok(None)));
    assert_eq!(serve(&skylake, "cpu-clock", four, false), (0, Ok(None)));
    let (pinned, note) = serve(&skylake, loads, four, false);
    let note = note.unwrap().unwrap();
    let begin = "5 events do not fit the counters of cpu: 4 fit: those that are counted take turns";
    assert!(pinned == 1 && note.starts_with(begin), "{note}");
    assert_eq!(serve(&skylake, loads, four, true), (0, Ok(None)));
    let group = format!("{{{four}}}");
    let (_, refused) = serve(&skylake, loads, &group, false);
    let error = refused.unwrap_err();
    let begin = "cannot count r1c2,r2c2,r3c2,r4c2 beside what takes samples";
    assert!(error.to_string().starts_with(begin), "{error}");
    assert!(error.hint().unwrap().contains("cpu-clock"));
    let zen4 = fixtures::zen4();
    assert_eq!(serve(&zen4, "ibs_op//", "auto", false), (0, Ok(None)));
    // Pinned events never take turns, and a group that does not fit beside them never runs.
    let (_, note) = serve(&skylake, "cpu-clock", "r1c2:D,r2c2,r3c2,r4c2,r5c2", false);
    assert!(note.unwrap().unwrap().contains("take turns"));
    let (_, refused) = serve(&skylake, "cpu-clock", &format!("r5c2:D,{group}"), false);
    let error = refused.unwrap_err().to_string();
    assert!(
        error.starts_with(begin) && error.ends_with("or is pinned"),
        "{error}"
    );
    let (_, refused) = serve(
        &skylake,
        "cpu-clock",
        "{r1c2,r2c2,r3c2}:D,{r4c2:D,r5c2}",
        false,
    );
    assert!(refused.is_err());
}

/// A group is pinned by its first event, whichever of them was to be.
#[test]
fn pinned_groups() {
    let pinned = |text: &str| -> Vec<bool> {
        let counted = resolve_all(&parse(&[text.to_owned()]).unwrap(), &fixtures::skylake());
        counted
            .unwrap()
            .iter()
            .map(CountedEvent::is_pinned)
            .collect()
    };
    assert_eq!(pinned("{cycles,instructions:D},r1c2"), [true, false, false]);
    assert_eq!(
        pinned("r1c2,{cycles,instructions}:uD"),
        [false, true, false]
    );
    assert_eq!(pinned("cycles,page-faults:D"), [false, true]);
}
