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
