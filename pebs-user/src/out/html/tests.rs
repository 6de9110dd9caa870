//! Pages of made-up traces: as text, and as a browser shows them.

use std::process::Command;

use proptest::prelude::*;

use super::{MOST_VISITS, write};
use crate::compare::losses::LossVisits;
use crate::compare::report::{ReportOptions, build};
use crate::compare::select::error::ExportError;
use crate::compare::select::{Request, Selection, choose};
use crate::compare::testing::{HOSTILE, finish, maker, put_strange, small, strange};
use crate::out::report::text;
use crate::store::fixtures::Did::{Called, Ran, Waited};
use crate::store::fixtures::stacks::{server, with_stacks};
use crate::store::fixtures::{Maker, TestTrace, VisitFixture, info};
use crate::store::reader::Trace;

/// Names of Debian's browser.
const BROWSERS: [&str; 2] = ["chromium-headless-shell", "chromium"];

fn page(trace: &Trace) -> (String, String) {
    let mut out = Vec::new();
    let report = build(trace, &ReportOptions::default()).map(|it| text::render(&it));
    let report = report.unwrap_or_default();
    let shows = write(trace, None, LossVisits::LeaveOut, report, &mut out).unwrap();
    (String::from_utf8(out).unwrap(), shows)
}

fn data(page: &str) -> serde_json::Value {
    let data = page.split("id=\"data\">").nth(1).unwrap();
    serde_json::from_str(data.split("</script>").next().unwrap()).unwrap()
}

/// 20,000 visits: one in 200 is slow, and in another function.
fn large() -> TestTrace {
    let mut maker = maker();
    for n in 0..20_000_u64 {
        let usual = Ran(1, 32_000 + (n * 7_919 % 1_000) as i64);
        let slow = [usual, Ran(2, 500_000), Waited(3, "sleeping", 90_000)];
        let did = if n % 200 == 7 { &slow } else { &slow[..1] };
        let key = format!("key:{n}");
        let made = VisitFixture::with([Some(key.as_str().into()), None], did);
        maker.at(n as i64 * 1_000_000, &made.tid(101));
    }
    finish(maker)
}

/// No name of the target becomes markup or ends the data; nothing is loaded from elsewhere.
#[test]
fn hostile_names() {
    let (page, shows) = page(&small());
    assert_eq!(shows, "6 visits");
    assert!(!page.contains(HOSTILE) && !page.contains("</script><b>"));
    assert_eq!(page.matches("<script").count(), 3);
    assert_eq!(page.matches("</script").count(), 3);
    for loading in [" src=", "<link", "@import", "url(h", "fetch("] {
        assert!(!page.contains(loading), "{loading}");
    }
    let data = data(&page);
    let parts = data["parts"].as_array().unwrap();
    let shown = crate::terminal::shown(HOSTILE);
    assert!(parts.iter().any(|part| part["name"] == shown.as_ref()));
    assert!(page.contains("MIT"), "uPlot's licence");
}

/// The columns match the trace: the lossy and the open visit are present, but not counted.
#[test]
fn columns() {
    let data = data(&page(&small()).0);
    let visits = &data["visits"];
    assert_eq!(visits["item"].to_string(), r#"["7","7","8","9","11","12"]"#);
    assert_eq!(visits["counted"].to_string(), "[1,1,1,1,0,0]");
    assert_eq!(visits["duration"][5], serde_json::Value::Null);
    // Visit 2 is 80 us in function 2, waits 70 us, and 50 us in function 3.
    let part = |name: &str| {
        let parts = data["parts"].as_array().unwrap();
        let index = parts.iter().position(|part| part["name"] == name);
        index.unwrap() as u64
    };
    let runs = &data["runs"];
    let at = |i: usize| runs["at"][i].as_u64().unwrap() as usize;
    let of_visit: Vec<(i64, i64, u64)> = (at(1)..at(2))
        .map(|k| {
            let number = |column: &str| runs[column][k].as_i64().unwrap();
            (number("begin"), number("ns"), number("part") as u64)
        })
        .collect();
    let hostile = part(&crate::terminal::shown(HOSTILE));
    // The last sample of the first is at 64 us, the first of the second at 150 us.
    assert_eq!(of_visit[0], (0, 107_000, hostile));
    assert_eq!(of_visit[1], (107_000, 93_000, part("do_syscall_64")));
    assert_eq!((of_visit[2].0, of_visit[2].1), (80_000, 70_000));
}

/// A reduced page of a large trace has all slow visits, and a note on the others.
#[test]
fn reduced() {
    let (page, shows) = page(&large());
    assert!(
        shows.starts_with("10,000 of 20,000 visits: all slow ones"),
        "{shows}"
    );
    assert!(page.contains(&shows));
    let data = data(&page);
    let slow = data["visits"]["slow"].as_array().unwrap();
    assert_eq!(slow.len(), MOST_VISITS);
    assert_eq!(slow.iter().filter(|slow| **slow == 1).count(), 100);
    let bars = data["probes"][0]["bars"].as_array().unwrap();
    let in_bars: u64 = bars.iter().map(|bar| bar[2].as_u64().unwrap()).sum();
    assert_eq!(in_bars, 20_000);
}

/// A trace without visits has no page.
#[test]
fn empty() {
    let trace = finish(maker());
    let error = write(
        &trace,
        None,
        LossVisits::LeaveOut,
        String::new(),
        &mut Vec::new(),
    )
    .unwrap_err();
    assert!(
        error.to_string().starts_with("no visits in trace"),
        "{error}"
    );
}

/// The page as rendered by a browser; `None`, with a SKIP line, if there is no browser.
fn browse(page: &str) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.html");
    std::fs::write(&file, page).unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = BROWSERS.iter().find_map(|name| {
        let mut files = std::env::split_paths(&path).map(|dir| dir.join(name));
        files.find(|file| file.is_file())
    });
    let Some(browser) = found else {
        eprintln!("SKIP {} is not installed", BROWSERS[0]);
        return None;
    };
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        .args(["--disable-dev-shm-usage", "--window-size=1200,900"])
        .args(["--virtual-time-budget=20000", "--timeout=60000"])
        .arg(format!("--user-data-dir={}", dir.path().display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(dom.contains("data-ready="), "the script failed\n{errors}");
    Some(dom)
}

/// Every figure is drawn, the slow items are selected, and the largest difference comes first.
#[test]
fn browser_draws_the_figures() {
    let Some(dom) = browse(&page(&large()).0) else {
        return;
    };
    let body = dom.split("<body").nth(1).unwrap();
    assert!(body.contains("data-ready=\"10000\""));
    assert!(
        body.contains("data-points=\"10000\""),
        "points of the latency"
    );
    assert!(body.contains("Selected: 100 slow of 10,000 visits"));
    assert!(body.matches("class=\"hbar\"").count() >= 2, "histogram");
    assert_eq!(
        body.matches("class=\"column\"").count(),
        100,
        "stacked functions"
    );
    assert_eq!(body.matches("data-visit=").count(), 100, "items");
    assert!(body.matches("class=\"run\"").count() >= 3, "time line");
    assert_eq!(body.matches("class=\"spark\"").count(), 3, "functions");
    let difference = body.split("id=\"difference\"").nth(1).unwrap();
    let first = difference.split("class=\"name\">").nth(1).unwrap();
    assert!(first.starts_with("&lt;/script&gt;&lt;b&gt;"), "{first:.60}");
    assert!(difference.contains("+496 us"), "31 samples of 16 us");
    let items = body.split("id=\"item-table\"").nth(1).unwrap();
    assert!(items.contains("key:7<"), "arguments");
    assert!(body.contains("where the time of all items goes"), "report");
}

/// A hostile name stays text in the browser, too, and small, ragged traces are drawn.
#[test]
fn browser_shows_hostile_names_as_text() {
    let Some(dom) = browse(&page(&small()).0) else {
        return;
    };
    let body = dom.split("<body").nth(1).unwrap();
    let shown = body.split("<script").next().unwrap();
    assert!(!shown.contains("<b>") && !shown.contains("<!--"));
    assert!(shown.contains("&lt;/script&gt;&lt;b&gt;"));
    assert!(shown.contains("Loss: dropped_ring_full"));
}

/// Selecting by keyboard and by mouse: a range typed, a row chosen by arrow keys, a drag over the histogram.
#[test]
fn browser_selects() {
    let user = |does: &str| {
        let (page, _) = page(&large());
        let script =
            format!("<script>document.body.dataset.user = (() => {{ {does} }})();</script></body>");
        browse(&page.replace("</body>", &script))
    };
    let typed = "document.getElementById('d0').value = '100us'; document.getElementById('d1').value = ''; \
        document.querySelector('#range button[type=submit]').click(); \
        return document.getElementById('selected').textContent;";
    let Some(dom) = user(typed) else { return };
    assert!(
        dom.contains("data-user=\"Selected: 100 of 10,000 visits"),
        "{dom:.300}"
    );
    let arrows = "const rows = document.querySelectorAll('#item-table tbody tr'); \
        const press = (row, key) => row.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true })); \
        press(rows[0], 'ArrowDown'); press(rows[1], 'ArrowDown'); \
        return [...rows].findIndex((row) => row.getAttribute('aria-selected') === 'true') \
        + (document.activeElement === rows[2] ? ' focused' : '');";
    assert!(user(arrows).unwrap().contains("data-user=\"2 focused\""));
    let drag = "const it = document.querySelector('#histogram svg'), box = it.getBoundingClientRect(); \
        it.setPointerCapture = () => {}; \
        const at = (type, share) => it.dispatchEvent(new PointerEvent(type, \
        { clientX: box.left + share * box.width, clientY: box.top + 20, bubbles: true })); \
        at('pointerdown', 0.0); at('pointermove', 0.3); at('pointerup', 0.4); \
        return document.getElementById('selected').textContent;";
    let dom = user(drag).unwrap();
    assert!(
        dom.contains("data-user=\"Selected: 9,900 of 10,000 visits"),
        "{dom:.300}"
    );
}

/// The result of a user action in a browser, which the page leaves in `data-user`.
fn used(page: &str, does: &str) -> Option<String> {
    let script =
        format!("<script>document.body.dataset.user = (() => {{ {does} }})();</script></body>");
    let dom = browse(&page.replace("</body>", &script))?;
    let data = dom.split("data-user=\"").nth(1).unwrap();
    Some(data.split('"').next().unwrap().to_owned())
}

/// The page of a trace with call stacks.
fn with_callers() -> String {
    let trace = server(with_stacks(), |_, stack, ns| Called(stack, ns));
    page(&trace).0
}

/// Interruptions are in the table and beside the time line, with typical values, if recorded.
#[test]
fn browser_shows_what_came_between() {
    let made = |extras: bool| {
        let mut maker = Maker::new(info(&["/opt/app:handle"]));
        maker.extras = extras;
        for i in 0..402_u64 {
            let ns = if i % 201 == 100 { 800_000 } else { 50_000 };
            maker.visit(&VisitFixture::new(i, "k", &[Ran(1, ns)]));
        }
        page(&maker.finish(&[(1, "handle", "/opt/app")])).0
    };
    let does = "return document.querySelector('#item-table thead').textContent \
        + [...document.querySelectorAll('.between')].map((it) => it.textContent).join();";
    let Some(shown) = used(&made(true), does) else {
        return;
    };
    assert!(shown.contains("most time ininterruptssoftirqs"), "{shown}");
    let line = "interrupts 80.0 us (typical 5.00 us), softirqs 0 ns (typical 0 ns)";
    assert!(shown.contains(line) && !shown.contains("fault"), "{shown}");
    let shown = used(&made(false), does).unwrap();
    assert!(!shown.contains("interrupts"), "{shown}");
}

/// Call paths are in the data as their samples are, the outermost function first.
#[test]
fn call_paths() {
    let data = data(&with_callers());
    let name = |part: &serde_json::Value| {
        let part = &data["parts"][part.as_u64().unwrap() as usize];
        part["name"].as_str().unwrap().to_owned()
    };
    let flame = &data["flame"];
    let paths = flame["paths"].as_array().unwrap().iter();
    let paths: Vec<String> = paths
        .map(|path| {
            let frames = path.as_array().unwrap().iter().map(name);
            frames.collect::<Vec<_>>().join(" > ")
        })
        .collect();
    let expected = [
        "handle > lookup > compare",
        "handle > parse",
        "handle > lookup > rehash > compare",
        "handle > compare",
    ];
    assert_eq!(paths, expected);
    let sum = |numbers: &serde_json::Value| -> u64 {
        let numbers = numbers.as_array().unwrap().iter();
        numbers.map(|n| n.as_u64().unwrap()).sum()
    };
    assert_eq!(sum(&flame["samples"]), sum(&data["sums"]["samples"]));
    assert_eq!(flame["at"].as_array().unwrap().len(), 4_001);
}

/// The flame graph shows slow visits by call path, with samples, errors and the difference to typical ones.
#[test]
fn browser_draws_the_flame_graph() {
    let Some(dom) = browse(&with_callers()) else {
        return;
    };
    let flame = dom.split("id=\"flame\"").nth(1).unwrap();
    let flame = flame.split("id=\"h-stacked\"").next().unwrap();
    // The probe, handle, lookup, parse, compare, rehash and compare; of typical ones without the last two.
    assert!(flame.contains("data-frames=\"12\""), "{flame:.300}");
    let labels: Vec<&str> = flame
        .split("aria-label=\"")
        .skip(1)
        .map(|it| it.split('"').next().unwrap())
        .collect();
    let label = |begin: &str| {
        let found = labels.iter().find(|label| label.starts_with(begin));
        *found.unwrap_or_else(|| panic!("{labels:#?}"))
    };
    let rehash = label("rehash (server): selected 300 us ± ");
    assert!(
        rehash.contains("1,200 samples), typical no sample, difference +300 us ("),
        "{rehash}"
    );
    let red = |name: &str| -> u32 {
        let label = format!("aria-label=\"{name} (server)");
        let frame = flame.split(label.as_str()).nth(1).unwrap();
        let own = frame.split("</g>").next().unwrap();
        let colour = own.split("var(--slow) ").nth(1);
        colour.map_or(0, |it| it.split('%').next().unwrap().parse().unwrap())
    };
    assert!(red("rehash") > 50 && red("parse") < 25, "{flame}");
}

/// Time off the CPU is shown under the call stack that blocked.
#[test]
fn browser_hangs_waits_under_what_blocked() {
    let mut maker = Maker::new(with_stacks());
    maker.extras = true;
    for i in 0..402_u64 {
        let slept = if i % 201 == 100 { 700_000 } else { 10_000 };
        let did = [Ran(1, 50_000), Waited(4, "sleeping", slept)];
        maker.visit(&VisitFixture::new(i, "k", &did));
    }
    let names = [
        (1, "parse", "/opt/app"),
        (3, "schedule", "[kernel]"),
        (4, "fsync", "/lib/libc.so"),
    ];
    let page = page(&maker.finish(&names)).0;
    let does = "const at = [...document.querySelectorAll('.flame[data-side=picked] .frame')]; \
        return at.map((it) => it.dataset.depth + ' ' + it.getAttribute('aria-label').split(', typical')[0]).join('; ');";
    let Some(shown) = used(&page, does) else {
        return;
    };
    for frame in [
        "2 fsync (libc.so): selected 700 us (2 waits)",
        "3 schedule ([kernel]): selected 700 us (2 waits)",
        "4 [sleeping]",
    ] {
        assert!(shown.contains(frame), "{frame} in {shown}");
    }
}

/// A flame graph by keyboard and mouse: arrow keys walk, Enter zooms, Escape shows all; a new selection redraws it.
#[test]
fn browser_walks_the_flame_graph() {
    let page = with_callers();
    let begin = "const of = () => document.activeElement.getAttribute('aria-label').split(' ')[0]; \
        const press = (...keys) => keys.forEach((key) => document.activeElement.dispatchEvent(\
        new KeyboardEvent('keydown', { key, bubbles: true }))); \
        const zoom = () => document.getElementById('flame').dataset.zoom; \
        document.querySelector('.flame .frame').focus();";
    let does = |what: &str| used(&page, &format!("{begin} {what}"));
    let Some(walked) = does(
        "press('ArrowDown', 'ArrowDown', 'ArrowDown'); const first = of(); \
        press('ArrowRight'); const next = of(); press('ArrowUp', 'ArrowRight'); return [first, next, of()].join(' ');",
    ) else {
        return;
    };
    assert_eq!(walked, "rehash compare parse");
    let zoomed = does(
        "press('ArrowDown', 'ArrowDown', 'Enter'); const at = of(), deep = zoom(); \
        press('o'); const other = document.activeElement.ownerSVGElement.dataset.side; press('Escape'); \
        return [at, deep, other, zoom(), document.getElementById('flame-all').hidden].join(' ');",
    );
    assert_eq!(zoomed.unwrap(), "lookup 2 typical 0 true");
    let all = does(
        "document.getElementById('pick-all').click(); \
        return document.getElementById('flame-help').textContent;",
    );
    assert!(all.unwrap().contains("the 4,000 selected above 0 typical"));
}

/// The time line shows the time of an item in each stage, its waits, and the threads that woke its thread.
#[test]
fn browser_shows_stages_and_wakers() {
    let (page, _) = page(&small());
    let item = "document.getElementById('pick-all').click(); \
        document.querySelector('#item-table tr[data-visit=\"1\"]').click(); \
        const it = document.getElementById('timeline'); \
        return it.querySelectorAll('.queued').length + it.textContent;";
    let Some(line) = used(&page, item) else {
        return;
    };
    let stages = "srv:recv 50.0 us → waiting 9.00 us → srv:work 200 us";
    assert!(line.starts_with('1') && line.contains(stages), "{line}");
    let woken = "70.0 us from 80.0 us, woken by [interrupt], of it ready to run 2.00 us";
    assert!(line.contains(woken), "{line}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// For any times and numbers there are columns of equal length, or an error.
    #[test]
    fn strange_rows(rows in strange()) {
        let mut maker = maker();
        for row in rows {
            put_strange(&mut maker, row);
        }
        let trace = finish(maker);
        let request = Request {
            selection: Selection::All,
            slow: None,
            losses: LossVisits::LeaveOut,
            lossy: true,
            open: true,
            bound: None,
        };
        let chosen = choose(&trace, &request).unwrap();
        let data = super::data::read(&trace, &chosen, LossVisits::LeaveOut).unwrap();
        let json = serde_json::to_value(&data).unwrap();
        let length = |table: &str, column: &str| json[table][column].as_array().unwrap().len();
        let visits = length("visits", "id");
        prop_assert_eq!(length("visits", "duration"), visits);
        prop_assert_eq!(length("sums", "at"), visits + 1);
        prop_assert_eq!(length("runs", "at"), visits + 1);
    }
}

/// `pebs-trace html TRACE | head` is not a failure: the error still shows that the pipe was closed.
#[test]
fn nobody_reads() {
    struct Closed;
    impl std::io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let trace = small();
    let error = write(
        &trace,
        None,
        LossVisits::LeaveOut,
        String::new(),
        &mut Closed,
    )
    .unwrap_err();
    assert!(
        matches!(&error, ExportError::Write(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    );
}
