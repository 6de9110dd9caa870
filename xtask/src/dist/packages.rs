//! Packages for Debian's and Fedora's families, and an archive for everything else. All have the same files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::tree::{DOC, files, settle, tar, write};
use super::{Arch, SUMMARY, VERSION};
use crate::shell;

/// Description of the packages. Lines as Debian wants them.
const DESCRIPTION: &str = "\
pebs-trace joins precise CPU samples (Intel PEBS, AMD IBS, or a clock) with uprobes at the functions that start and
finish an item of work, and tells the time of every function for every single item: why this request was slow when the
one before it was fast.";

/// Maintainer of the packages.
const MAINTAINER: &str = "pebs-trace maintainers <maintainers@pebs-trace.example>";

const HOMEPAGE: &str = env!("CARGO_PKG_REPOSITORY");

/// An archive to be unpacked below `/usr/local` or anywhere: `tar -xzf FILE -C /usr/local --strip-components=1`.
pub fn archive(dist: &Path, usr: &Path, arch: Arch) -> Result<PathBuf> {
    let name = format!("pebs-trace-{VERSION}-{arch}-linux");
    let room = tempfile::tempdir()?;
    let copied = room.path().join(&name);
    shell::output(Command::new("cp").arg("-a").arg(usr).arg(&copied))?;
    settle(&copied)?;
    let plain = dist.join(format!("{name}.tar"));
    tar(&plain, room.path(), &[&name])?;
    shell::output(Command::new("gzip").args(["-9", "-n", "-f"]).arg(&plain))?;
    Ok(dist.join(format!("{name}.tar.gz")))
}

/// A package for dpkg: no dependencies, no scripts.
pub fn deb(dist: &Path, usr: &Path, arch: Arch, version: &str) -> Result<PathBuf> {
    let room = tempfile::tempdir()?;
    let root = room.path().join("root");
    fs::create_dir(&root)?;
    shell::output(Command::new("cp").arg("-a").arg(usr).arg(root.join("usr")))?;
    let share = root.join("usr/share");
    fs::rename(
        share.join("zsh/site-functions"),
        share.join("zsh/vendor-completions"),
    )?;
    let doc = root.join("usr").join(DOC);
    // As Debian's policy has them.
    fs::rename(doc.join("CHANGELOG.md"), doc.join("changelog"))?;
    shell::output(
        Command::new("gzip")
            .args(["-9", "-n"])
            .arg(doc.join("changelog")),
    )?;
    write(&doc.join("copyright"), &copyright())?;
    let size = Command::new("du")
        .args(["-sk", "--apparent-size"])
        .arg(&root)
        .output()?;
    let size = String::from_utf8_lossy(&size.stdout);
    let size = size.split_whitespace().next().unwrap_or_default();
    let control = format!(
        "Package: pebs-trace\nVersion: {version}\nArchitecture: {}\nMaintainer: {MAINTAINER}\n\
         Installed-Size: {size}\nSection: devel\nPriority: optional\nHomepage: {HOMEPAGE}\n\
         Description: {SUMMARY}\n{}\n",
        arch.debian(),
        indented(DESCRIPTION),
    );
    write(&root.join("DEBIAN/control"), &control)?;
    settle(&root)?;
    let package = dist.join(format!("pebs-trace_{version}_{}.deb", arch.debian()));
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "-Zxz", "--build"]);
    build.env("SOURCE_DATE_EPOCH", super::epoch());
    shell::run(build.arg(&root).arg(&package))?;
    Ok(package)
}

/// A package for rpm: no dependencies, no scripts.
pub fn rpm(dist: &Path, usr: &Path, arch: Arch, version: &str) -> Result<PathBuf> {
    let room = tempfile::tempdir()?;
    let listed: String = ["bin", "lib/systemd/system", "share/man/man1", DOC]
        .into_iter()
        .map(|it| match it {
            // A folder of its own; in the others are files of many packages.
            DOC => Ok(format!("%doc /usr/{DOC}\n")),
            folder => {
                let name = |file: PathBuf| {
                    let name = file.file_name().unwrap_or_default().to_owned();
                    format!("/usr/{folder}/{}\n", name.display())
                };
                Ok(files(&usr.join(folder))?.into_iter().map(name).collect())
            }
        })
        .collect::<Result<_>>()?;
    let spec = format!(
        "Name: pebs-trace\nVersion: {version}\nRelease: 1\nSummary: {SUMMARY}\nLicense: {}\nURL: {HOMEPAGE}\n\
         AutoReqProv: no\n%global _build_id_links none\n%global debug_package %{{nil}}\n%global __os_install_post %{{nil}}\n\
         %description\n{DESCRIPTION}\n%install\nmkdir -p %{{buildroot}}\ncp -a {} %{{buildroot}}/usr\n\
         %files\n%defattr(-,root,root)\n{listed}\
         /usr/share/bash-completion/completions/pebs-trace\n/usr/share/zsh/site-functions/_pebs-trace\n\
         /usr/share/fish/vendor_completions.d/pebs-trace.fish\n",
        env!("CARGO_PKG_LICENSE"),
        usr.display(),
    );
    let spec_file = room.path().join("pebs-trace.spec");
    write(&spec_file, &spec)?;
    let mut build = Command::new("rpmbuild");
    build
        .args(["-bb", "--quiet", "--target", &format!("{arch}-linux")])
        .env("SOURCE_DATE_EPOCH", super::epoch());
    for (name, value) in [
        ("_topdir", room.path().display().to_string()),
        ("_rpmdir", dist.display().to_string()),
        (
            "_rpmfilename",
            "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm".to_owned(),
        ),
        ("_buildhost", "localhost".to_owned()),
        ("use_source_date_epoch_as_buildtime", "1".to_owned()),
        ("clamp_mtime_to_source_date_epoch", "1".to_owned()),
        ("_binary_payload", "w19.zstdio".to_owned()),
    ] {
        build.arg("--define").arg(format!("{name} {value}"));
    }
    shell::run(build.arg(&spec_file))?;
    Ok(dist.join(format!("pebs-trace-{version}-1.{arch}.rpm")))
}

/// The licence, in the form that Debian's tools read.
fn copyright() -> String {
    format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: pebs-trace\nSource: {HOMEPAGE}\n\nFiles: *\nCopyright: the pebs-trace authors\n\
         License: Expat or Apache-2.0\n The texts are in LICENSE-MIT and LICENSE-APACHE beside this file, those of the\n \
         libraries in the program in LICENSES-OF-DEPENDENCIES.\n"
    )
}

/// The further lines of a description.
fn indented(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|it| format!(" {it}")).collect();
    lines.join("\n")
}
