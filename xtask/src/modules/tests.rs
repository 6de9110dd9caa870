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
    };
    faults_of(root, &[room], &[])
}

/// The same of tables and rings.
fn faults_of(root: &TempDir, rooms: &[Room], rings: &[Ring]) -> Vec<String> {
    let folder = format!("{}/", root.path().display());
    let faults = super::faults(&Tree::read(root.path()).unwrap(), rooms, rings);
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
    let modules = Modules::new(&Tree::read(&root()).unwrap(), "");
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
    let modules = Modules::new(&Tree::read(root.path()).unwrap(), "");
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
    };
    let faults_of = |room: &Room| faults_of(&root, std::slice::from_ref(room), &[]);
    assert_eq!(faults_of(&out), Vec::<String>::new());
    let html = root.path().join("out/html.rs");
    fs::write(html, "use super::report::text;\n").unwrap();
    assert_eq!(
        faults_of(&out),
        [
            "out/html.rs:1: html imports out::report::text, but may import nothing (ROOMS in xtask/src/modules.rs for out)"
        ]
    );
}

/// Three modules in one, the second and the third of which import each other.
fn store() -> TempDir {
    tree(&[
        ("lib.rs", "mod store;\n"),
        ("store/mod.rs", "mod reader;\nmod run;\nmod schema;\n"),
        ("store/reader.rs", "use super::schema::Table;\n"),
        ("store/run.rs", ""),
        ("store/schema.rs", "use super::reader::Trace;\n"),
    ])
}

const STORE: Ring = Ring {
    parent: "store",
    modules: &["schema", "reader"],
    reason: "a table reads itself",
};

/// A ring is a fault unless it is listed, in modules without a table too, and so is a listed ring that does not exist.
#[test]
fn rings() {
    let root = store();
    let found =
        "store has a ring of reader, schema, which RINGS in xtask/src/modules.rs does not list";
    assert_eq!(faults_of(&root, &[], &[]), [found]);
    assert_eq!(faults_of(&root, &[], &[STORE]), Vec::<String>::new());
    fs::write(root.path().join("store/schema.rs"), "").unwrap();
    let none = "RINGS in xtask/src/modules.rs lists schema, reader in store (a table reads itself), which is no ring";
    assert_eq!(faults_of(&root, &[], &[STORE]), [none]);
}

/// A listed ring has to be the whole of it.
#[test]
fn ring_that_has_grown() {
    let root = store();
    fs::write(
        root.path().join("store/run.rs"),
        "use super::schema::Table;\n",
    )
    .unwrap();
    let reader = root.path().join("store/reader.rs");
    fs::write(reader, "use super::{run::Info, schema::Table};\n").unwrap();
    assert_eq!(
        faults_of(&root, &[], &[STORE]),
        [
            "store has a ring of reader, run, schema, which RINGS in xtask/src/modules.rs does not list",
            "RINGS in xtask/src/modules.rs lists schema, reader in store (a table reads itself), which is no ring",
        ]
    );
}

/// Rings are found at any depth, and at the root.
#[test]
fn rings_below_and_above() {
    let root = tree(&[
        ("lib.rs", "mod a;\nmod b;\n"),
        (
            "a.rs",
            "mod inner { mod x { use super::y::Y; } mod y { use super::x::X; } }\nuse crate::b::B;\n",
        ),
        ("b.rs", "use super::a::A;\n"),
    ]);
    assert_eq!(
        faults_of(&root, &[], &[]),
        [
            "the root has a ring of a, b, which RINGS in xtask/src/modules.rs does not list",
            "a::inner has a ring of x, y, which RINGS in xtask/src/modules.rs does not list",
        ]
    );
}

/// A table lets the modules of a listed ring import each other.
#[test]
fn ring_in_a_table() {
    let root = store();
    let store = [Room {
        parent: "store",
        directions: "run:\nreader: schema\nschema: reader",
    }];
    let upward = "ROOMS in xtask/src/modules.rs for store lets reader import schema, which does not stand above it";
    assert_eq!(faults_of(&root, &store, &[])[0], upward);
    assert_eq!(faults_of(&root, &store, &[STORE]), Vec::<String>::new());
    fs::write(root.path().join("store/schema.rs"), "").unwrap();
    let unused =
        "ROOMS in xtask/src/modules.rs for store lets schema import reader, which it does not";
    assert_eq!(faults_of(&root, &store, &[STORE])[0], unused);
}
