//! Checks README, guide, the page on how to work and the library's first page against the program: every command parses,
//! every option exists, every link has a target, every path a file, and the reference of columns equals the schema.
#![expect(
    clippy::unwrap_used,
    reason = "integration tests: a panic is the report"
)]

mod commands;
mod markdown;
mod reference;

use std::path::Path;

/// The workspace, where the README is.
fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn pages() -> Vec<markdown::Page> {
    markdown::pages(workspace()).unwrap()
}

/// The README's size is within its limits.
#[test]
fn readme_is_short() {
    let bytes = pages()[0].text.len();
    assert!((10_000..=12_288).contains(&bytes), "{bytes} bytes");
}

/// Links to files lead to files, and links within a page to headings.
#[test]
fn links() {
    let mut faults = Vec::new();
    let measurements = markdown::Page {
        name: "tests/measurements.md".to_owned(),
        text: std::fs::read_to_string(workspace().join("tests/measurements.md")).unwrap(),
    };
    for page in pages().into_iter().chain([measurements]) {
        let path = workspace().join(&page.name);
        let folder = path.parent().unwrap();
        let inline = page
            .text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        let defined = page
            .text
            .lines()
            .filter_map(|line| line.strip_prefix('[')?.split_once("]: "));
        for target in inline.chain(defined.map(|(_, target)| target)) {
            if target.contains("://") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() {
                path.clone()
            } else {
                folder.join(file)
            };
            let text = std::fs::read_to_string(&file);
            if !file.exists()
                || (!heading.is_empty() && !has_heading(&text.unwrap_or_default(), heading))
            {
                faults.push(format!("{}: {target}", page.name));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// The page on how to work names files and folders that exist; words in capitals stand for any.
#[test]
fn paths() {
    let pages = pages();
    let page = pages
        .iter()
        .find(|page| page.name == markdown::CONTRIBUTING)
        .unwrap();
    let (mut seen, mut faults) = (0, Vec::new());
    for span in markdown::spans(&page.text) {
        let is_any = |part: &str| part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase());
        let fixed: Vec<&str> = span
            .split('/')
            .take_while(|part| !is_any(part.split('.').next().unwrap_or(part)))
            .collect();
        let is_ours = |top: &&str| *top != "target" && workspace().join(top).is_dir();
        if fixed.len() < 2 || span.contains(' ') || !fixed.first().is_some_and(is_ours) {
            continue;
        }
        seen += 1;
        if !workspace().join(fixed.join("/")).exists() {
            faults.push(span);
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(seen > 20, "{seen} paths only");
}

/// Rows of "Where to begin" on the library's first page name files and folders that exist, and what is in them.
#[test]
fn where_to_begin() {
    let roots = ["pebs-user/src", "pebs-user", ""].map(|root| workspace().join(root));
    let place = |span: &str| {
        let path = span.replace("::", "/");
        let places = roots
            .iter()
            .flat_map(|root| [root.join(&path), root.join(format!("{path}.rs"))]);
        places.into_iter().find(|it| it.exists())
    };
    let text = std::fs::read_to_string(roots[0].join("lib.rs")).unwrap();
    let (_, rows) = text.split_once("//! # Where to begin").unwrap();
    let (rows, _) = rows.split_once("//! # ").unwrap();
    let (mut seen, mut faults) = (0, Vec::new());
    for row in rows.lines().filter_map(|line| line.strip_prefix("//! | ")) {
        let spans = markdown::spans(row);
        let mut files: Vec<_> = spans.iter().filter_map(|span| place(span)).collect();
        for span in &spans {
            let is_path = span.contains('/') || span.ends_with(".rs");
            if !is_path || files.iter().any(|it| it.ends_with(span)) {
                seen += usize::from(is_path);
                continue;
            }
            // A file beside those named, or in one of these folders.
            let beside = files
                .iter()
                .flat_map(|it| [it.join(span), it.with_file_name(span)]);
            match beside.into_iter().find(|it| it.exists()) {
                Some(file) => files.push(file),
                None => faults.push(format!("{span}: {row}")),
            }
            seen += 1;
        }
        let is_name = |span: &&String| {
            span.chars().all(|c| c.is_alphanumeric() || c == '_')
                && (span.contains('_') || span.starts_with(char::is_uppercase))
                && !span.starts_with("pebs_")
        };
        for name in spans.iter().filter(is_name) {
            seen += 1;
            let texts = files
                .iter()
                .filter_map(|it| std::fs::read_to_string(it).ok());
            if !texts.into_iter().any(|text| text.contains(name.as_str())) {
                faults.push(format!("{name}: {row}"));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(seen > 40, "{seen} places only");
}

/// Whether a page has a heading with this anchor, as GitHub makes it.
fn has_heading(text: &str, anchor: &str) -> bool {
    let headings = text
        .lines()
        .filter_map(|line| Some(line.strip_prefix('#')?.trim_start_matches('#').trim()));
    headings
        .map(|heading| {
            let kept = heading.to_lowercase().replace(' ', "-");
            kept.chars()
                .filter(|c| c.is_alphanumeric() || *c == '-')
                .collect::<String>()
        })
        .any(|heading| heading == anchor)
}
