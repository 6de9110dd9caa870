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
fn faults(root: &TempDir, directions: &str) -> Vec<String> {
    let folder = format!("{}/", root.path().display());
    let faults = Modules::read(root.path(), "").unwrap().faults(directions);
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
    let modules = Modules::read(&root(), "").unwrap();
    assert_eq!(modules.faults(DIRECTIONS), Vec::<String>::new());
    assert_eq!(modules.knots(), Vec::<Vec<&str>>::new());
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
            "store/rows.rs:{line}: store imports {path}, but may import units (DIRECTIONS in xtask/src/modules.rs)"
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
            "view has no row in DIRECTIONS in xtask/src/modules.rs",
            "DIRECTIONS in xtask/src/modules.rs lets units import store, which does not stand above it",
            "DIRECTIONS in xtask/src/modules.rs has a row for gone, which is no module",
            "DIRECTIONS in xtask/src/modules.rs lets analysis import gone, which it does not",
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
