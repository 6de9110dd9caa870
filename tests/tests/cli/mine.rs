//! `mine`: results on counts, and messages on bad input.

use std::fs;
use std::path::Path;

use pebs_tests::recording::pebs_trace;

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A table of items, in which faults take time and `other` does not.
fn items() -> String {
    let mut text = String::from("id;duration;faults;other\n");
    let mut state = 7u32;
    for id in 0..400 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let faults = if id == 57 { 36 } else { 1 + (state >> 24) % 5 };
        let duration = 20 + 4 * faults;
        text += &format!(
            "{id};{duration},{};{faults};{}\n",
            (state >> 16) % 10,
            (state >> 8) % 7
        );
    }
    text
}

/// The verdict names the event; the worst item had many times the faults; with a decimal comma and another separator.
#[test]
fn verdict() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("items.csv");
    fs::write(&file, items()).unwrap();
    let page = dir.path().join("page.html");
    let done = pebs_trace(["mine", path(&file), "--html", path(&page)]);
    assert_eq!(done.code(), Some(0), "{done}");
    assert!(
        done.stdout.starts_with("duration depends on faults"),
        "{done}"
    );
    assert!(done.stdout.contains("57: 16"), "{done}");
    assert!(done.stdout.contains("12.0 times the faults"), "{done}");
    assert!(
        done.stdout
            .contains("no better than shuffled counts: other"),
        "{done}"
    );
    assert!(fs::read_to_string(page).unwrap().contains("<svg"));
    let json = pebs_trace(["mine", path(&file), "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["ranking"]["events"][0]["events"][0], "faults");
}

/// Input that can't be mined gives one line with a hint, and exit status 2.
#[test]
fn refused() {
    let dir = tempfile::tempdir().unwrap();
    let constant: String = (0..50).map(|id| format!("{id},5,1\n")).collect();
    for (text, message) in [
        (String::new(), "no counts in it"),
        (
            "hello\n".to_owned(),
            "neither output of 'perf stat -x,' or 'perf stat -j' nor a table",
        ),
        (
            "id,duration,faults\n1,2,3\n4,5,6\n".to_owned(),
            "2 rows have an outcome",
        ),
        (
            format!("id,duration,faults\n{constant}"),
            "the outcome is the same in all 50 rows",
        ),
        (
            format!("id,length,faults\n{constant}"),
            "no column says how long a row took",
        ),
        (
            "0.1,<not supported>,,cycles,0,100.00,,\n".to_owned(),
            "no column says how long a row took",
        ),
        (
            "0,100203275,98,,page-faults,103998939,100,00,,\n".to_owned(),
            "the decimal point, too",
        ),
    ] {
        let file = dir.path().join("counts.csv");
        fs::write(&file, &text).unwrap();
        let done = pebs_trace(["mine", path(&file)]);
        assert_eq!(done.code(), Some(2), "{done}");
        assert!(
            done.stderr.starts_with("error: ") && done.stderr.contains(message),
            "{text:?}\n{done}"
        );
        assert!(
            done.stderr.contains("\nhint: ") && done.stderr.lines().count() == 2,
            "{done}"
        );
        assert_eq!(done.stdout, "", "{done}");
    }
}

/// A table of a run that counted some of eight events: the first takes 4 of the outcome each, the second 2, and with
/// many workers 6.
fn run(seed: u32, events: &[usize], workers: u32, kinds: &[&str]) -> String {
    let names: Vec<String> = events.iter().map(|it| format!("event{it}")).collect();
    let mut text = format!("kind,buffer,duration,{}\n", names.join(","));
    let mut state = u64::from(seed) * 7_919 + 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1 << 24) as f64
    };
    for row in 0..300 {
        let counts: Vec<f64> = (0..8).map(|_| (100.0 * next()).round()).collect();
        let slope = if workers > 2 { 6.0 } else { 2.0 };
        let duration = 1_000.0
            + 4.0 * counts[0]
            + slope * counts[1]
            + 50.0 * next()
            + 90.0 * f64::from(workers);
        text += &format!("{},64,{duration:.1}", kinds[row % kinds.len()]);
        for &event in events {
            text += &format!(",{}", counts[event]);
        }
        text += "\n";
    }
    text
}

/// Runs that counted other events, with two numbers of workers, in folders.
fn runs(dir: &Path, runs: u32) -> Vec<String> {
    let mut files = Vec::new();
    for number in 0..runs {
        let workers = if number % 4 < 2 { 2 } else { 8 };
        let events: &[usize] = if number % 2 == 0 {
            &[0, 1, 2, 3]
        } else {
            &[1, 4, 5, 6, 7]
        };
        let folder = dir.join(format!("workers={workers}"));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join(format!("run{number}.csv"));
        fs::write(&file, run(number, events, workers, &["get", "get", "set"])).unwrap();
        files.push(path(&file).to_owned());
    }
    files
}

fn mine<'a>(files: &'a [String], more: &[&'a str]) -> pebs_tests::process::Finished {
    let args = ["mine"].into_iter().chain(files.iter().map(String::as_str));
    pebs_trace(args.chain(more.iter().copied()).collect::<Vec<&str>>())
}

/// Runs of which none counted all events: both events and the parameter are named, with the pair of a parameter and an
/// event, and with what is unknown.
#[test]
fn runs_of_other_events() {
    let dir = tempfile::tempdir().unwrap();
    let files = runs(dir.path(), 12);
    let page = dir.path().join("page.html");
    let done = mine(
        &files,
        &["-p", "workers", "--class", "kind", "--html", path(&page)],
    );
    assert_eq!(done.code(), Some(0), "{done}");
    for part in [
        "duration depends on",
        "12 runs of 8 events together",
        "by kind, the same share of each class in every run (get 67 %, set 33 %)",
        "workers (parameter)",
        "workers x event1",
    ] {
        assert!(done.stdout.contains(part), "{part}\n{done}");
    }
    assert!(fs::read_to_string(page).unwrap().contains("<svg"));
    let json = mine(&files, &["--parameter", "workers", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let causes = json["across"]["causes"].as_array().unwrap();
    let mut named: Vec<&str> = causes
        .iter()
        .filter(|it| it["is_noise"] == false)
        .map(|it| it["names"][0].as_str().unwrap())
        .collect();
    named.sort_unstable();
    assert_eq!(named, ["event0", "event1", "workers"]);
    // Without parameters the files alone say that they have to be compared.
    let plain = mine(&files[..4], &[]);
    assert!(
        plain.stdout.contains("4 runs of 8 events together"),
        "{plain}"
    );
    let values = format!("workers={}", ["2,2,8,8"; 3].join(","));
    let typed = mine(&files, &["--parameter", &values, "--until", "rank"]);
    assert!(typed.stdout.contains("workers (parameter)"), "{typed}");
}

/// The event that matters only beside the neighbour is named, and none if both sides are alike.
#[test]
fn beside_a_neighbour() {
    let dir = tempfile::tempdir().unwrap();
    let (mut alone, mut beside, mut like) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..6 {
        for (files, seed, workers) in [
            (&mut alone, 0, 2),
            (&mut beside, 50, 8),
            (&mut like, 100, 2),
        ] {
            let file = dir.path().join(format!("{seed}-{number}.csv"));
            let text = run(seed + number, &[0, 1, 2, 3], workers, &["get"]);
            fs::write(&file, text).unwrap();
            files.push(path(&file).to_owned());
        }
    }
    let with = |beside: &[String]| {
        let mut more = vec!["--beside"];
        more.extend(beside.iter().map(String::as_str));
        mine(&alone, &more)
    };
    let done = with(&beside);
    assert!(
        done.stdout
            .contains("rank changes of event1 from 2nd to 1st"),
        "{done}"
    );
    let done = with(&like);
    assert!(
        done.stdout
            .contains("beside the neighbour no event changes rank"),
        "{done}"
    );
}

/// Runs that can't be compared give one line with a hint.
#[test]
fn runs_refused() {
    let dir = tempfile::tempdir().unwrap();
    let files = runs(dir.path(), 8);
    let write = |name: &str, text: &str| {
        let file = dir.path().join(name);
        fs::write(&file, text).unwrap();
        path(&file).to_owned()
    };
    let others = write(
        "others.csv",
        &run(9, &[2], 2, &["get"]).replace("event2", "other"),
    );
    let scans = write("scans.csv", &run(9, &[0, 1], 2, &["scan"]));
    let mixed = write(
        "mixed.csv",
        &run(9, &[0, 1], 2, &["get"]).replacen("get,64", "get,128", 20),
    );
    let two = ["workers=2,8", "workers=2,8,"];
    for (files, more, message) in [
        (&files[..], vec!["-p", "cache"], "has no parameter 'cache'"),
        (
            &files[..2],
            vec!["-p", "workers"],
            "parameter 'workers' is 2 in all 2 runs",
        ),
        (
            &files[..],
            vec!["-p", "buffer"],
            "parameter 'buffer' is 64 in all 8 runs",
        ),
        (&files[..4], vec!["-p", "workers"], "4 runs are too few"),
        (
            &files[..],
            vec!["-p", two[0]],
            "parameter 'workers' has 2 values for 8 files",
        ),
        (
            &files[..3],
            vec!["-p", two[1]],
            "parameter 'workers' has 2 values for 3 files",
        ),
        (
            &files[..],
            vec!["-p", "workers", "-p", "workers"],
            "is given twice",
        ),
        (&files[..], vec!["-p", "=3"], "a parameter without a name"),
        (
            &[mixed][..],
            vec!["-p", "buffer"],
            "column 'buffer' has 2 values",
        ),
        (
            &files[..],
            vec!["--class", "colour"],
            "has no column 'colour'",
        ),
        (
            &[files[0].clone(), scans][..],
            vec!["--class", "kind"],
            "no class of items is in all 2 runs",
        ),
        (
            &files[..1],
            vec!["--beside", &others],
            "no event in common with the others",
        ),
        (
            &files[..],
            vec!["--item", "3"],
            "--item applies to runs that counted the same",
        ),
        (
            &files[..1],
            vec!["--beside", "missing.csv"],
            "cannot open missing.csv",
        ),
    ] {
        let done = mine(files, &more);
        assert_eq!(done.code(), Some(2), "{more:?}\n{done}");
        assert!(
            done.stderr.starts_with("error: ") && done.stderr.contains(message),
            "{message}\n{done}"
        );
        assert_eq!(done.stdout, "", "{done}");
    }
}
