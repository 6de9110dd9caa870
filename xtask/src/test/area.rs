//! Areas: what `cargo xtask test AREA` runs.
//!
//! An area is a name: that of a module of pebs-user, of a program of tests, of a file in one (`tests/tests/kernel/waits.rs`),
//! or of another package. What has the same name is tested together. Invariant: the names come from cargo and from the
//! folders; nothing lists them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::shell;

/// Names of areas, each with its parts.
pub type Areas = BTreeMap<String, Vec<Part>>;

/// Some tests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Unit tests of a module of pebs-user.
    Module(String),
    /// A program of tests, or those of one of its modules.
    Program {
        package: String,
        name: String,
        module: Option<String>,
    },
    /// All tests of a package.
    Package(String),
    /// The programs for the kernel, which have no tests of their own: they are compiled with warnings as errors, and
    /// loaded by the unit tests of a module.
    KernelPrograms { loaded_by: &'static str },
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    src_path: std::path::PathBuf,
}

impl Target {
    fn is_test(&self) -> bool {
        self.kind.iter().any(|kind| kind == "test")
    }
}

/// Returns the packages of the workspace, as cargo describes them.
fn packages() -> Result<Vec<Package>> {
    let metadata = shell::output(&mut shell::cargo(&[
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
    ]))?;
    let metadata: Metadata = serde_json::from_str(&metadata)?;
    Ok(metadata.packages)
}

/// Names of the test programs of each package for which `is_of` holds.
pub fn programs(is_of: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let packages = packages()?.into_iter().filter(|it| is_of(&it.name));
    let targets = packages.flat_map(|it| it.targets);
    let programs = targets.filter(Target::is_test).map(|it| it.name);
    Ok(programs.collect())
}

/// Every area of the workspace.
pub fn all() -> Result<Areas> {
    let mut areas = Areas::new();
    let mut add = |name: &str, part| areas.entry(name.to_owned()).or_default().push(part);
    for module in modules(&shell::workspace().join("pebs-user/src"))? {
        if module != "lib" && module != "main" {
            add(&module, Part::Module(module.clone()));
        }
    }
    for package in packages()? {
        let short = package.name.strip_prefix("pebs-").unwrap_or(&package.name);
        match short {
            "trace" | "tests" => {
                for program in package.targets.iter().filter(|it| it.is_test()) {
                    let part = |module| Part::Program {
                        package: package.name.clone(),
                        name: program.name.clone(),
                        module,
                    };
                    // The modules of `kernel.rs` are in `kernel`; a program with a `main.rs` is small.
                    let folder = program.src_path.with_extension("");
                    if folder.is_dir() {
                        for module in modules(&folder)? {
                            add(&module, part(Some(module.clone())));
                        }
                    } else {
                        add(&program.name, part(None));
                    }
                }
            }
            "ebpf" => add(
                short,
                Part::KernelPrograms {
                    loaded_by: "collect",
                },
            ),
            "fuzz" => {}
            _ => add(short, Part::Package(package.name.clone())),
        }
    }
    Ok(areas)
}

/// Names of the modules whose files or folders are in a folder.
fn modules(folder: &Path) -> Result<Vec<String>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let is_code = path.is_dir() || path.extension().is_some_and(|it| it == "rs");
        if let (true, Some(name)) = (is_code, path.file_stem()) {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that a file declares with `mod`.
    fn declared(file: &str) -> Vec<String> {
        let text = fs::read_to_string(shell::workspace().join(file)).unwrap();
        let names = text.lines().filter_map(|line| {
            let line = line
                .trim_start_matches("pub(crate) ")
                .trim_start_matches("pub ");
            line.strip_prefix("mod ")?.strip_suffix(';')
        });
        names.map(str::to_owned).collect()
    }

    /// Every module of pebs-user and each file of the tests on the real kernel is in an area.
    #[test]
    fn nothing_is_left_out() {
        let areas = all().unwrap();
        let modules = declared("pebs-user/src/lib.rs");
        assert!(modules.len() > 20);
        for module in modules {
            let parts = &areas[&module];
            assert!(parts.contains(&Part::Module(module.clone())), "{module}");
        }
        for program in ["kernel", "cli", "pebs", "crash"] {
            let files = declared(&format!("tests/tests/{program}.rs"));
            assert!(files.len() > 2, "{program}");
            for file in files {
                let part = Part::Program {
                    package: "pebs-tests".to_owned(),
                    name: program.to_owned(),
                    module: Some(file.clone()),
                };
                assert!(areas[&file].contains(&part), "{program}/{file}");
            }
        }
        for other in ["guide", "replay", "explain", "xtask", "mine", "ebpf"] {
            assert!(areas.contains_key(other), "{other}");
        }
    }
}
