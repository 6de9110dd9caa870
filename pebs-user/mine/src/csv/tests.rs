use super::*;

fn table(text: &str) -> Table {
    read("f", text.as_bytes()).unwrap()
}

fn counts<'a>(table: &'a Table, event: &str) -> &'a [f64] {
    &table.series.events[table.series.find(event).unwrap()].counts
}

/// Output of perf 6.1: an event without a turn is missing, one whose thread did not run counts 0.
#[test]
fn intervals_of_perf() {
    let text = "# started on Wed Nov 25 07:00:00 2026\n\n\
        \x20    0.050156499,74,,page-faults,1067893,100.00,,\n\
        \x20    0.050156499,<not supported>,,cycles,0,100.00,,\n\
        \x20    0.100406107,<not counted>,,page-faults,0,100.00,,\n\
        \x20    0.100406107,<not supported>,,cycles,0,100.00,,\n\
        \x20    0.150579361,<not counted>,,page-faults,0,0.00,,\n\
        \x20    0.200000000,120,,page-faults,500,25.50,,\n";
    let table = table(text);
    let faults = counts(&table, "page-faults");
    assert_eq!((faults[0], faults[1], faults[3]), (74.0, 0.0, 120.0));
    assert!(faults[2].is_nan());
    assert_eq!(table.series.events[0].running, [1.0, 1.0, 0.0, 0.255]);
    assert!(counts(&table, "cycles").iter().all(|it| it.is_nan()));
    assert!(table.notes[0].contains("cycles"), "{:?}", table.notes);
    assert_eq!(table.series.labels[3], "0.2");
}

/// Per CPU, per thread, per core with its number of CPUs: a segment each, in time.
#[test]
fn parts_of_perf() {
    let cpus = table(
        "0.100166269,CPU0,98,,page-faults,103998939,100.00,942.280,/sec\n\
         0.100166269,CPU1,80,,page-faults,104021672,100.00,769.090,/sec\n\
         0.100166269,CPU0,104.00,msec,task-clock,104002443,100.00,1.040,CPUs utilized\n\
         0.100166269,CPU1,104.02,msec,task-clock,104019759,100.00,1.040,CPUs utilized\n\
         0.151747432,CPU0,38,,page-faults,47877344,100.00,793.789,/sec\n\
         0.151747432,CPU1,7,,page-faults,47872687,100.00,146.222,/sec\n",
    );
    assert_eq!(counts(&cpus, "page-faults"), [98.0, 38.0, 80.0, 7.0]);
    assert_eq!(cpus.series.segments[1].rows, 2..4);
    assert_eq!(cpus.series.segments[1].name, "CPU1");
    let threads = table(
        "     0,100203275;bash-12134;12;;page-faults;0;100,00;;\n\
         \x20    0,150309138;bash-12134;1.234,50;msec;task-clock;0;100,00;;\n",
    );
    assert_eq!(counts(&threads, "task-clock")[1], 1234.5);
    assert_eq!(threads.series.segments[0].name, "bash-12134");
    let cores = table(
        "0.100620476,S0-D0-C0,1,70,,page-faults,104000240,100.00,,\n\
         0.100620476,S0-D0-C1,1,81,,page-faults,103953010,100.00,,\n",
    );
    assert_eq!(counts(&cores, "page-faults"), [70.0, 81.0]);
}

/// Runs without intervals, repeated ones, old versions without shares, and names that contain the separator or occur
/// twice.
#[test]
fn versions_of_perf() {
    let repeated = table(
        "49,,page-faults,0.68%,667776,100.00,72.870,K/sec\n0.67,msec,task-clock,3.03%,667776,100.00,0.723,CPUs utilized\n",
    );
    assert_eq!(counts(&repeated, "page-faults"), [49.0]);
    let old = table("1.000,5,,cycles\n2.000,7,,cycles\n");
    assert_eq!(counts(&old, "cycles"), [5.0, 7.0]);
    let raw = table(
        "1.0,5,,cpu/event=0x3c,umask=0x1/,100,50.00,,\n1.0,6,,cpu/event=0x3c,umask=0x1/,100,50.00,,\n",
    );
    assert_eq!(counts(&raw, "cpu/event=0x3c,umask=0x1/"), [5.0]);
    assert_eq!(counts(&raw, "cpu/event=0x3c,umask=0x1/ #2"), [6.0]);
    assert_eq!(raw.notes.len(), 1);
}

/// Tables with other separators, decimal commas, labels, words, gaps and columns of the same name.
#[test]
fn tables() {
    let table = table("id;duration;faults;kind;faults\na;1,5;3;big;4\nb;2,5;;small;5\n");
    assert_eq!(counts(&table, "duration"), [1.5, 2.5]);
    assert!(counts(&table, "faults")[1].is_nan());
    assert_eq!(counts(&table, "faults #2"), [4.0, 5.0]);
    assert_eq!(table.series.labels, ["a", "b"]);
    assert_eq!(
        (table.words[0].name.as_str(), &*table.words[0].values),
        ("kind", &["big".to_owned(), "small".to_owned()][..])
    );
    assert!(!table.is_timed);
}

/// Unreadable input gives a one-line error that names the place, with a hint.
#[test]
fn refused() {
    for (text, message) in [
        ("", "no counts"),
        ("a,b\n", "no counts"),
        ("hello\n", "neither"),
        ("1,2\n3,4\n", "neither"),
        ("a,b\n1,2,3\n", "f:2: 3 fields, the line of names has 2"),
        ("a,b\n1,2\n1,x\n", "f:3: 'x' is not a number, in column 'b'"),
        (
            "0,100203275,98,,page-faults,103998939,100,00,,\n",
            "decimal point",
        ),
        (
            "0.1,98,,page-faults,103998939,100.00,,\ngarbage\n",
            "f:2: not a line of 'perf stat -x,'",
        ),
    ] {
        let error = read("f", text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(message), "{text:?}: {error}");
        assert!(error.hint().is_some(), "{text:?}");
    }
}

/// Concatenated files: columns that one lacks are missing there, and rows can be told apart.
#[test]
fn joined() {
    let first = table("1.0,5,,a,100,50.00,,\n");
    let second = table("1.0,7,,b,100,100.00,,\n2.0,8,,b,100,100.00,,\n");
    let both = join(vec![("x".into(), first), ("y".into(), second)]);
    assert_eq!(both.series.rows(), 3);
    assert_eq!(both.series.events[0].running, [0.5, 0.0, 0.0]);
    assert!(counts(&both, "a")[2].is_nan() && counts(&both, "b")[0].is_nan());
    assert_eq!(counts(&both, "b")[1..], [7.0, 8.0]);
    assert_eq!(both.series.labels, ["x:1", "y:1", "y:2"]);
    assert_eq!(both.series.segments[1].rows, 1..3);
}

/// The total of `--summary` is not one more interval, with its word or without.
#[test]
fn summaries_are_left_out() {
    for total in ["         summary,", ""] {
        let table = table(&format!(
            "     0.020099237,40.47,msec,task-clock,40465087,100.00,2.023,CPUs utilized\n\
             \x20    0.020099237,30,,context-switches,40466299,100.00,741.367,/sec\n\
             \x20    0.040449303,40.70,msec,task-clock,40704873,100.00,2.035,CPUs utilized\n\
             \x20    0.040449303,29,,context-switches,40701367,100.00,712.449,/sec\n\
             {total}2004.16,msec,task-clock,2004160717,100.00,1.999,CPUs utilized\n\
             {total}1985,,context-switches,2004158552,100.00,990.439,/sec\n"
        ));
        assert_eq!(counts(&table, "task-clock"), [40.47, 40.70]);
        assert_eq!(table.notes, ["2 totals of all intervals are left out"]);
    }
    // Without intervals the total is all there is.
    let run = table("2004.16,msec,task-clock,2004160717,100.00,1.999,CPUs utilized\n");
    assert_eq!(counts(&run, "task-clock"), [2004.16]);
}

/// `-j`: as `-x`, and its total has no time.
#[test]
fn json_of_perf() {
    let each = |head: &str, value: &str, event: &str, ran: u32| {
        format!(
            "{{{head}\"counter-value\" : \"{value}\", \"unit\" : \"\", \"event\" : \"{event}\", \"event-runtime\" : {ran}, \
             \"pcnt-running\" : 100.00, \"metric-value\" : 0.03, \"metric-unit\" : \"K/sec\"}}\n"
        )
    };
    let at = |time: &str| format!("\"interval\" : {time}, ");
    let text = [
        each(&at("0.020093235"), "0.733906", "task-clock", 733_906),
        each(&at("0.020093235"), "<not supported>", "cycles", 0),
        "{\"interval\" : 0.020093235, \"metric-value\" : 0.1, \"metric-unit\" : \"insn per cycle\"}\n".to_owned(),
        each(&at("0.043838597"), "<not counted>", "task-clock", 0),
        each(&at("0.043838597"), "<not supported>", "cycles", 0),
        each("", "0.781986", "task-clock", 781_986),
    ];
    let run = table(&text.concat());
    assert_eq!(counts(&run, "task-clock"), [0.733_906, 0.0]);
    assert_eq!(run.series.labels[1], "0.043838597");
    assert_eq!(
        run.notes[run.notes.len() - 2..],
        [
            "1 lines of metrics without a count are left out",
            "1 totals of all intervals are left out"
        ]
    );
    let cpu = |cpu: u32| format!("{}\"cpu\" : \"{cpu}\", ", at("0.02"));
    let cpus = table(&[0, 1].map(|it| each(&cpu(it), "7", "faults", 1)).concat());
    assert_eq!(cpus.series.segments[1].name, "1");
    let other = read("f", "{\"a\": 1}\n".as_bytes()).unwrap_err();
    assert!(other.to_string().contains("perf stat -j"), "{other}");
}
