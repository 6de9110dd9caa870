//! Contents of the program, their licences, and the way to check that it arrived as it was made.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Arch;
use super::tree::{files, write};
use crate::shell;

/// Writes the list of components in CycloneDX's form.
const CYCLONEDX: &str = "cargo-cyclonedx";

/// Begins of names of files with a licence's text.
const NAMES: [&str; 4] = ["LICENSE", "LICENCE", "COPYING", "NOTICE"];

/// Text on what is linked into the program and is not among its crates.
const OTHERS: &str = "\
Beside these crates the program holds Rust's standard library (MIT OR Apache-2.0) and musl (MIT, \
https://git.musl-libc.org/cgit/musl/tree/COPYRIGHT).\n";

/// Name, version, licence and texts of every crate that is linked into the program; each text once.
pub fn licences(arch: Arch) -> Result<String> {
    let triple = format!("{arch}-unknown-linux-musl");
    let metadata = shell::output(&mut shell::cargo(&[
        "metadata",
        "--locked",
        "--format-version=1",
        "--filter-platform",
        &triple,
    ]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let packages: BTreeMap<(&str, &str), &Value> = packages
        .iter()
        .filter_map(|it| Some(((it["name"].as_str()?, it["version"].as_str()?), it)))
        .collect();
    let linked = shell::output(&mut shell::cargo(&[
        "tree",
        "--locked",
        "--package=pebs-trace",
        "--edges=normal",
        "--prefix=none",
        "--format={p}",
        "--target",
        &triple,
    ]))?;
    let linked: BTreeSet<(&str, &str)> = linked
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(" v")?;
            Some((name, rest.split(' ').next()?))
        })
        .collect();
    let mut list = String::new();
    let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for crate_ in linked {
        let package = packages.get(&crate_);
        let package = package.with_context(|| format!("nothing is known of {}", crate_.0))?;
        let licence = match (&package["license"], &package["license_file"]) {
            (Value::String(named), _) => named.as_str(),
            (_, Value::String(_)) => "see its text",
            _ => anyhow::bail!("{} {} names no licence", crate_.0, crate_.1),
        };
        let name = format!("{} {}", crate_.0, crate_.1);
        list += &format!("{name}: {licence}\n");
        if package["source"].is_null() {
            continue;
        }
        let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap_or_default());
        let folder = manifest.parent().context("a manifest without a folder")?;
        for file in files(folder)? {
            let upper = file
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .to_uppercase();
            if file.is_file() && NAMES.iter().any(|it| upper.starts_with(it)) {
                let text = String::from_utf8_lossy(&fs::read(&file)?).trim().to_owned();
                users.entry(text).or_default().push(name.clone());
            }
        }
    }
    let mut all = format!("{list}\n{OTHERS}");
    for (text, users) in users {
        all += &format!("\n{}\n{}:\n\n{text}\n", "-".repeat(72), users.join(", "));
    }
    Ok(all)
}

/// Writes the components of the program, in CycloneDX's form.
pub fn bill_of_materials(dist: &Path, arch: Arch) -> Result<PathBuf> {
    let place = shell::tools_dir().join("cyclonedx");
    let program = place.join("bin").join(CYCLONEDX);
    if !program.exists() {
        let mut install = shell::cargo(&["install", "--locked", "--debug", CYCLONEDX, "--root"]);
        shell::run(install.arg(&place))?;
    }
    let triple = format!("{arch}-unknown-linux-musl");
    let name = format!("pebs-trace-{}-{arch}.cdx", super::VERSION);
    let mut list = Command::new(&program);
    list.args(["cyclonedx", "--format", "json", "--target", &triple])
        .args([
            "--no-build-deps",
            "--override-filename",
            &name,
            "--manifest-path",
        ])
        .arg(shell::workspace().join("pebs-user/Cargo.toml"))
        .env("SOURCE_DATE_EPOCH", super::epoch());
    shell::run(&mut list)?;
    let from = shell::workspace()
        .join("pebs-user")
        .join(format!("{name}.json"));
    let to = dist.join(format!("{name}.json"));
    super::copy(&from, &to)?;
    shell::output(Command::new("find").arg(shell::workspace()).args([
        "-maxdepth",
        "4",
        "-not",
        "-path",
        "*/target/*",
        "-name",
        &format!("{name}.json"),
        "-delete",
    ]))?;
    Ok(to)
}

/// Writes the checksums of these files, and a signature of them by a key of the user's.
pub fn checksums(dist: &Path, made: &[PathBuf], key: Option<&str>) -> Result<()> {
    let names = made.iter().filter_map(|it| it.file_name());
    let mut sums = Command::new("sha256sum");
    let text = shell::output(sums.current_dir(dist).arg("--").args(names))?;
    let list = dist.join("SHA256SUMS");
    write(&list, &text)?;
    if let Some(key) = key {
        let mut sign = Command::new("gpg");
        sign.args([
            "--batch",
            "--yes",
            "--local-user",
            key,
            "--armor",
            "--detach-sign",
        ]);
        shell::run(sign.arg(&list))?;
    }
    Ok(())
}
