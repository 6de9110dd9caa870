use std::fs;

use tempfile::TempDir;

use super::*;

/// A crate of these files, in a temporary folder.
fn tree(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

/// Imports of the crate that violate the table, without the path of its folder.
fn faults(root: &TempDir, directions: &'static str) -> Vec<String> {
    let room = Room {
        parent: "",
        directions,
        rings: &[],
    };
    faults_of(root, &room)
}

/// The same of a room.
fn faults_of(root: &TempDir, room: &Room) -> Vec<String> {
    let folder = format!("{}/", root.path().display());
    let modules = Modules::read(root.path(), room.parent).unwrap();
    let faults = modules.faults(room);
    faults
        .iter()
        .map(|fault| fault.replace(&folder, ""))
        .collect()
}

const STAGES: &str = "
    units:
    store: units
    analysis: units store
";

const TREE: &[(&str, &str)] = &[
    (
        "lib.rs",
        "pub mod units;\nmod store;\nmod analysis;\n#[cfg(test)]\nmod fixtures;\n",
    ),
    ("units.rs", "pub struct Ip(pub u64);\n"),
    ("store/mod.rs", "//! See [`crate::analysis`].\nmod rows;\n"),
    (
        "store/rows.rs",
        "use crate::units::Ip;\n#[cfg(test)]\nmod tests {\n    use crate::analysis::report;\n}\n",
    ),
    (
        "analysis.rs",
        "use crate::{store, units::Ip};\n\npub fn report() {\n    super::store::read();\n}\n",
    ),
    ("fixtures.rs", "use crate::nowhere::Else;\n"),
];

/// The real crate passes.
#[test]
fn as_it_is() {
    check().unwrap();
    for room in &ROOMS {
        let modules = Modules::read(&root(), room.parent).unwrap();
        let rings: Vec<_> = room.rings.iter().map(Ring::sorted).collect();
        assert_eq!(modules.knots(), rings, "{}", room.parent);
    }
    let modules = Modules::read(&root(), "").unwrap();
    assert!(
        modules.imports.len() > 1000,
        "{} imports only",
        modules.imports.len()
    );
}

/// Imports of tests, links in comments and imports down are no faults.
#[test]
fn stages_that_look_down() {
    assert_eq!(faults(&tree(TREE), STAGES), Vec::<String>::new());
}

/// Each form of an import upward, planted, is one line with its place and with the allowed imports.
#[test]
fn import_upward() {
    let planted = [
        ("use crate::analysis::report;", "analysis::report"),
        (
            "use crate::{units::Ip, analysis::{self, report}};",
            "analysis::self",
        ),
        ("use super::super::analysis as above;", "analysis"),
        (
            "#[derive(Debug)]\nstruct Row;\nfn f() { assert!(crate::analysis::report() == 1) }",
            "analysis::report",
        ),
        (
            "#[cfg(test)]\nfn f<A, B>() {}\nmod inner { fn g() { super::super::super::analysis::report() } }",
            "analysis::report",
        ),
        (
            "#[cfg(not(test))]\nuse crate::analysis::report;",
            "analysis::report",
        ),
    ];
    for (text, path) in planted {
        let root = tree(TREE);
        let text = format!("use crate::units::Ip;\n{text}\n");
        fs::write(root.path().join("store/rows.rs"), &text).unwrap();
        let line = text
            .lines()
            .position(|line| line.contains("analysis"))
            .unwrap()
            + 1;
        let expected = format!(
            "store/rows.rs:{line}: store imports {path}, but may import units (ROOMS in xtask/src/modules.rs)"
        );
        assert_eq!(faults(&root, STAGES).first(), Some(&expected), "{text}");
    }
}

/// A module without a row, and rows that are not true.
#[test]
fn table_that_is_not_true() {
    let root = tree(TREE);
    fs::write(
        root.path().join("lib.rs"),
        "mod units;\nmod store;\nmod analysis;\nmod view;\n",
    )
    .unwrap();
    fs::write(root.path().join("view.rs"), "").unwrap();
    let directions = "units: store
store: units
gone:
analysis: units store gone";
    assert_eq!(
        faults(&root, directions),
        [
            "view has no row in ROOMS in xtask/src/modules.rs",
            "ROOMS in xtask/src/modules.rs lets units import store, which does not stand above it",
            "ROOMS in xtask/src/modules.rs has a row for gone, which is no module",
            "ROOMS in xtask/src/modules.rs lets analysis import gone, which it does not",
        ]
    );
}

/// Modules that import each other, also through others, are shown as a knot.
#[test]
fn knots() {
    let root = tree(TREE);
    fs::write(
        root.path().join("units.rs"),
        "use crate::analysis::report;\n",
    )
    .unwrap();
    let modules = Modules::read(root.path(), "").unwrap();
    assert_eq!(modules.knots(), [["analysis", "store", "units"]]);
    assert!(
        modules
            .dot()
            .contains("\"units\" -> \"analysis\" [label=1];")
    );
    assert!(modules.mermaid().contains("units -->|1| analysis"));
}

/// A renderer that imports another one: in the table of its room each import of a sibling is a fault.
#[test]
fn sibling() {
    let root = tree(&[
        ("lib.rs", "mod compare;\nmod out;\n"),
        ("compare.rs", ""),
        ("out/mod.rs", "mod html;\nmod report;\n"),
        ("out/html.rs", "use crate::compare::Items;\n"),
        ("out/report.rs", "use crate::compare::Items;\n"),
    ]);
    let out = Room {
        parent: "out",
        directions: "html:\nreport:",
        rings: &[],
    };
    assert_eq!(faults_of(&root, &out), Vec::<String>::new());
    let html = root.path().join("out/html.rs");
    fs::write(html, "use super::report::text;\n").unwrap();
    assert_eq!(
        faults_of(&root, &out),
        [
            "out/html.rs:1: html imports out::report::text, but may import nothing (ROOMS in xtask/src/modules.rs for out)"
        ]
    );
}

/// A ring is a fault unless it is listed, and so is one that is listed and is none.
#[test]
fn rings() {
    let root = tree(&[
        ("lib.rs", "mod store;\n"),
        ("store/mod.rs", "mod reader;\nmod run;\nmod schema;\n"),
        ("store/reader.rs", "use super::schema::Table;\n"),
        ("store/run.rs", ""),
        ("store/schema.rs", "use super::reader::Trace;\n"),
    ]);
    let store = |rings| Room {
        parent: "store",
        directions: "run:\nreader: schema\nschema: reader",
        rings,
    };
    let upward = "ROOMS in xtask/src/modules.rs for store lets reader import schema, which does not stand above it";
    assert_eq!(faults_of(&root, &store(&[])), [upward]);
    let listed = store(&[Ring {
        modules: &["schema", "reader"],
        reason: "a table reads itself",
    }]);
    assert_eq!(faults_of(&root, &listed), Vec::<String>::new());
    fs::write(root.path().join("store/schema.rs"), "").unwrap();
    assert_eq!(
        faults_of(&root, &listed),
        [
            "ROOMS in xtask/src/modules.rs for store lets schema import reader, which it does not",
            "ROOMS in xtask/src/modules.rs for store has a ring of schema, reader (a table reads itself), which is none",
        ]
    );
}
