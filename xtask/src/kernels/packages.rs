//! Kernels from Debian's archive, without touching the machine's own package lists.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell;
use crate::toolchain::find_program;

/// Stands for the newest kernel there is.
pub const NEWEST: &str = "newest";

/// The package whose versions are the kernels, without Debian's name of the architecture: built for virtual machines, and
/// small.
const META: &str = "linux-image-cloud-";

/// The package that names the headers of such a kernel, for building modules.
const HEADERS: &str = "linux-headers-cloud-";

/// The architecture whose kernels are in the folder `images`.
const AMD64: &str = "amd64";

/// Signatures of the archive; part of Debian's `debian-archive-keyring`.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Suites with their archive: first those with short lists, with the kernels that Debian supports; then
/// the releases.
const SUITES: [&[(&str, &str)]; 2] = [
    &[
        ("debian-security", "bullseye-security"),
        ("debian-security", "bookworm-security"),
        ("debian", "bookworm-backports"),
        ("debian", "trixie-backports"),
    ],
    &[
        ("debian-security", "bullseye-security"),
        ("debian-security", "bookworm-security"),
        ("debian", "bookworm-backports"),
        ("debian", "trixie-backports"),
        ("debian", "bullseye"),
        ("debian", "bookworm"),
        ("debian", "trixie"),
    ],
];

/// A kernel, ready to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The package's version, such as `6.1.176-1`.
    pub release: String,
    pub image: PathBuf,
}

/// Lists and downloads, below `target/tools/kernels`.
pub struct Packages {
    dir: PathBuf,
    /// This machine's sources of packages, one a line.
    mirrors: String,
    /// Debian's name of the architecture.
    arch: &'static str,
}

impl Packages {
    /// Makes the folders, for an architecture by Debian's name.
    ///
    /// # Errors
    /// This machine can't read Debian's archive.
    pub fn open(arch: &'static str) -> Result<Self> {
        for program in ["apt-get", "apt-cache", "dpkg-deb"] {
            if find_program(program).is_none() {
                bail!("no {program}: Debian's kernel packages can't be had");
            }
        }
        if !Path::new(KEYRING).is_file() {
            bail!("no {KEYRING} (Debian's debian-archive-keyring)");
        }
        let dir = shell::tools_dir().join("kernels");
        for folder in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(dir.join(folder))?;
        }
        let mut targets = Command::new("apt-get");
        targets.args(["indextargets", "--format", "$(REPO_URI)"]);
        let mirrors = shell::output(&mut targets)?;
        Ok(Self { dir, mirrors, arch })
    }

    /// The newest kernel whose version has this prefix, downloaded unless an earlier run did.
    ///
    /// # Errors
    /// No suite that can be reached has it.
    pub fn kernel(&self, wanted: &str) -> Result<Kernel> {
        let mut failures = Vec::new();
        for suites in SUITES {
            failures = self.update(suites)?;
            let meta = self.meta();
            let versions = shell::output(&mut self.apt("apt-cache", &["madison", &meta]))?;
            if let Some(release) = newest(&versions, wanted) {
                return self.fetch(release);
            }
            if versions.is_empty() {
                // Out of reach altogether: more suites would only take more time.
                break;
            }
        }
        if let Some(kernel) = self.kept(wanted) {
            eprintln!(
                "kernels: {wanted} is not in reach, taking {}",
                kernel.release
            );
            return Ok(kernel);
        }
        let reasons = if failures.is_empty() {
            "none has it".to_owned()
        } else {
            failures.join("; ")
        };
        bail!("no {} {wanted} in Debian's suites: {reasons}", self.meta())
    }

    /// Refreshes the lists of some suites; returns apt's messages on unreachable ones.
    fn update(&self, suites: &[(&str, &str)]) -> Result<Vec<String>> {
        let mut lines = String::new();
        for (archive, suite) in suites {
            let uri = uri_of(&self.mirrors, archive)
                .context("apt's sources name no archive of Debian's")?;
            lines += &format!(
                "deb [arch={} signed-by={KEYRING}] {uri} {suite} main\n",
                self.arch
            );
        }
        fs::write(self.sources(), lines)?;
        let update = self
            .apt("apt-get", &["update", "--quiet"])
            .output()
            .context("cannot run apt-get")?;
        let errors = String::from_utf8_lossy(&update.stderr).into_owned();
        let failed = |line: &&str| line.starts_with("W: Failed") || line.starts_with("E: ");
        Ok(errors.lines().filter(failed).map(str::to_owned).collect())
    }

    /// Downloads a kernel and unpacks its image.
    fn fetch(&self, release: &str) -> Result<Kernel> {
        let kernel = Kernel {
            release: release.to_owned(),
            image: self.image_of(release),
        };
        if kernel.image.is_file() {
            return Ok(kernel);
        }
        let meta = self.meta();
        let name = format!("{meta}={release}");
        let about = shell::output(&mut self.apt("apt-cache", &["show", &name]))?;
        let package =
            image_package(&about).with_context(|| format!("{meta} {release} names no image"))?;
        // Since Linux 7 the image is in a separate package.
        let binary = package.replacen("linux-image-", "linux-binary-", 1);
        for package in [package, binary] {
            self.unpack(&[&format!("{package}={release}")])?;
            let files = self.unpacked().join("files");
            let folders = [files.join("boot"), files.join("usr/lib/modules")];
            let image = folders.iter().find_map(|folder| find_image(folder, 1));
            if let Some(image) = image {
                fs::create_dir_all(kernel.image.parent().unwrap_or(&self.dir))?;
                fs::rename(image, &kernel.image)?;
                fs::remove_dir_all(self.unpacked())?;
                return Ok(kernel);
            }
        }
        bail!("no kernel in the package of {meta} {release}")
    }

    /// The folder to build modules of a kernel in, downloaded unless an earlier run did.
    ///
    /// # Errors
    /// The archive does not have them any more.
    pub fn headers(&self, kernel: &Kernel) -> Result<PathBuf> {
        let place = kernel.image.with_file_name("headers");
        if let Some(folder) = build_folder(&place) {
            return Ok(folder);
        }
        let release = &kernel.release;
        let depends = |package: &str| -> Result<Vec<String>> {
            let about = shell::output(&mut self.apt("apt-cache", &["show", package]))?;
            Ok(dependencies(&about))
        };
        let wanted =
            |name: &String| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-");
        let names = depends(&format!("{HEADERS}{}={release}", self.arch))?;
        let own = names.into_iter().find(wanted);
        let own = own.with_context(|| format!("{HEADERS} {release} names no headers"))?;
        let mut packages: Vec<String> = depends(&format!("{own}={release}"))?;
        packages.retain(wanted);
        packages.push(own);
        let packages: Vec<String> = packages
            .iter()
            .map(|name| format!("{name}={release}"))
            .collect();
        let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
        self.unpack(&packages)?;
        if place.exists() {
            fs::remove_dir_all(&place)?;
        }
        fs::rename(self.unpacked().join("files"), &place)?;
        let folder = build_folder(&place).context("no headers in their packages")?;
        relocate(&folder.join("Makefile"), &place)?;
        Ok(folder)
    }

    /// Downloads packages, with their versions, and unpacks them into one folder.
    fn unpack(&self, packages: &[&str]) -> Result<()> {
        let unpacked = self.unpacked();
        if unpacked.exists() {
            fs::remove_dir_all(&unpacked)?;
        }
        fs::create_dir_all(&unpacked)?;
        let mut download = self.apt("apt-get", &["download", "--quiet=2"]);
        shell::run(download.args(packages).current_dir(&unpacked))?;
        let files = unpacked.join("files");
        for entry in fs::read_dir(&unpacked)? {
            let mut unpack = Command::new("dpkg-deb");
            shell::run(unpack.arg("-x").arg(entry?.path()).arg(&files))?;
        }
        Ok(())
    }

    /// A kernel of an earlier run.
    fn kept(&self, wanted: &str) -> Option<Kernel> {
        let entries = fs::read_dir(self.images()).ok()?;
        let names: Vec<String> = entries
            .flatten()
            .map(|entry| format!("- | {} |", entry.file_name().to_string_lossy()))
            .collect();
        let release = newest(&names.join("\n"), wanted)?.to_owned();
        let image = self.image_of(&release);
        image.is_file().then_some(Kernel { release, image })
    }

    fn image_of(&self, release: &str) -> PathBuf {
        self.images().join(release).join("vmlinuz")
    }

    fn images(&self) -> PathBuf {
        self.dir.join(match self.arch {
            AMD64 => "images".to_owned(),
            arch => format!("images-{arch}"),
        })
    }

    /// Name of the package of kernels.
    fn meta(&self) -> String {
        format!("{META}{}", self.arch)
    }

    /// A file of a package, downloaded unless an earlier run did.
    ///
    /// # Errors
    /// The archive or the package does not have it.
    pub fn file(&self, package: &str, path: &str) -> Result<PathBuf> {
        let name = Path::new(path).file_name().unwrap_or_default();
        let kept = self.images().join(name);
        if !kept.is_file() {
            let failures = self.update(&[("debian", "bookworm")])?;
            if !failures.is_empty() {
                bail!("no lists of packages: {}", failures.join("; "));
            }
            self.unpack(&[package])?;
            fs::create_dir_all(self.images())?;
            let unpacked = self.unpacked().join("files").join(path);
            fs::rename(&unpacked, &kept)
                .with_context(|| format!("no {path} in the package {package}"))?;
        }
        Ok(kept)
    }

    fn sources(&self) -> PathBuf {
        self.dir.join("sources.list")
    }

    fn unpacked(&self) -> PathBuf {
        self.dir.join("unpacked")
    }

    /// A program of apt that knows our lists only.
    fn apt(&self, program: &str, args: &[&str]) -> Command {
        let dir = self.dir.display();
        let mut command = Command::new(program);
        for option in [
            format!("Dir::Etc::SourceList={}", self.sources().display()),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            format!("Dir::State={dir}/state"),
            format!("Dir::Cache={dir}/cache"),
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            "Acquire::Retries=0".to_owned(),
            "Acquire::http::Timeout=10".to_owned(),
            format!("APT::Architecture={}", self.arch),
            format!("APT::Architectures={}", self.arch),
        ] {
            command.arg("-o").arg(option);
        }
        command.args(args);
        command
    }
}

/// The first `vmlinuz` below a folder.
fn find_image(folder: &Path, depth: u32) -> Option<PathBuf> {
    let entries: Vec<PathBuf> = fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    let is_image = |path: &&PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.is_file() && name.starts_with("vmlinuz")
    };
    if let Some(image) = entries.iter().find(is_image) {
        return Some(image.clone());
    }
    let deeper = depth.checked_sub(1)?;
    entries.iter().find_map(|path| find_image(path, deeper))
}

/// The newest of the versions that `apt-cache madison` lists and that is the one wanted: the
/// numbers of `6.1` begin `6.1.176-1` but not `6.12.95-1`.
fn newest<'a>(madison: &'a str, wanted: &str) -> Option<&'a str> {
    let numbers = |version: &str| -> Vec<u32> {
        version
            .split(['.', '-', '~', '+'])
            .map_while(|number| number.parse().ok())
            .collect()
    };
    let prefix = numbers(wanted);
    if prefix.is_empty() && wanted != NEWEST {
        return None;
    }
    madison
        .lines()
        .filter_map(|line| line.split('|').nth(1).map(str::trim))
        .filter(|version| numbers(version).starts_with(&prefix))
        .max_by_key(|version| numbers(version))
}

/// The package with the kernel, from the output of `apt-cache show` on the package that has only
/// dependencies.
fn image_package(about: &str) -> Option<String> {
    let mut names = dependencies(about).into_iter();
    names.find(|name| name.starts_with("linux-image-"))
}

/// Names of a package's dependencies, from the output of `apt-cache show`.
fn dependencies(about: &str) -> Vec<String> {
    let mut lines = about.lines();
    let depends = lines.find_map(|line| line.strip_prefix("Depends: "));
    depends
        .unwrap_or_default()
        .split(',')
        .filter_map(|one| one.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// The folder for building modules, among unpacked headers: the one with the kernel's symbols.
fn build_folder(headers: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(headers.join("usr/src")).ok()?.flatten();
    entries.find_map(|entry| {
        let folder = entry.path();
        folder.join("Module.symvers").is_file().then_some(folder)
    })
}

/// Has a makefile include others from where they are unpacked instead of where they would be installed.
fn relocate(makefile: &Path, root: &Path) -> Result<()> {
    let text = fs::read_to_string(makefile)
        .with_context(|| format!("cannot read {}", makefile.display()))?;
    let there = format!("{}/usr/src/", root.display());
    fs::write(makefile, text.replace("/usr/src/", &there))?;
    Ok(())
}

/// URI of an archive, derived from this machine's sources.
fn uri_of(mirrors: &str, archive: &str) -> Option<String> {
    let base_of = |name: &str| -> Option<&str> {
        let ending = format!("/{name}");
        let mut lines = mirrors.lines().map(|line| line.trim_end_matches('/'));
        lines.find_map(|uri| uri.strip_suffix(&ending))
    };
    let base = base_of(archive).or_else(|| base_of("debian"))?;
    Some(format!("{base}/{archive}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The address of an archive is the one this machine uses, else derived from Debian's main archive.
    #[test]
    fn mirrors() {
        let known = "http://a/other/\nhttp://b/debian/\nhttp://c/x/debian-security/\n";
        assert_eq!(uri_of(known, "debian").as_deref(), Some("http://b/debian"));
        let security = uri_of(known, "debian-security");
        assert_eq!(security.as_deref(), Some("http://c/x/debian-security"));
        let beside = uri_of("http://b/debian/\n", "debian-security");
        assert_eq!(beside.as_deref(), Some("http://b/debian-security"));
        assert_eq!(uri_of("http://a/other/\n", "debian"), None);
    }

    const MADISON: &str = "\
        linux-image-cloud-amd64 | 7.3.4-1~bpo13+1 | http://mirror/debian trixie-backports/main amd64 Packages\n\
        linux-image-cloud-amd64 | 6.12.95-1~bpo12+1 | http://mirror/debian bookworm-backports/main amd64 Packages\n\
        linux-image-cloud-amd64 |  6.1.99-1 | http://mirror/debian bookworm/main amd64 Packages\n\
        linux-image-cloud-amd64 |  6.1.192-2 | http://mirror/debian-security bookworm-security/main amd64 Packages\n";

    /// Versions are compared by number, and a prefix ends at a whole number.
    #[test]
    fn versions() {
        assert_eq!(newest(MADISON, "6.1"), Some("6.1.192-2"));
        assert_eq!(newest(MADISON, "6.12"), Some("6.12.95-1~bpo12+1"));
        assert_eq!(newest(MADISON, NEWEST), Some("7.3.4-1~bpo13+1"));
        assert_eq!(newest(MADISON, "5.10"), None);
        assert_eq!(newest(MADISON, "oldest"), None);
    }

    /// The image among other dependencies, with and without a version.
    #[test]
    fn package_of_the_image() {
        let one = "Package: x\nDepends: linux-image-6.1.0-50-cloud-amd64 (= 6.1.176-1)\n";
        assert_eq!(
            image_package(one).as_deref(),
            Some("linux-image-6.1.0-50-cloud-amd64")
        );
        let several =
            "Depends: linux-base-cloud-amd64 (= 7), linux-image-7.3.4+deb13-cloud-amd64, x\n";
        assert_eq!(
            image_package(several).as_deref(),
            Some("linux-image-7.3.4+deb13-cloud-amd64")
        );
        assert_eq!(image_package("Depends: linux-base\n"), None);
    }
}
