//! Contents of the guest: the tool, the test program, the workloads, their libraries, and the list of
//! steps. Each file has the same path as here, so that the tests find it.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::cpio::Archive;
use super::guest::{self, Step};
use crate::shell;
use crate::toolchain::find_program;

/// Programs that the guest and the tests start.
const PROGRAMS: [&str; 4] = ["mount", "nm", "pgrep", "timeout"];

/// The test that builds every workload, in the test program `workloads`.
const BUILD_WORKLOADS: &str = "every_workload_builds";

/// Workloads that are not taken along: they are linked to DPDK's libraries.
const LEFT_OUT: [&str; 2] = ["acl-", "firewall-"];

/// Time limits in the guest, seconds.
const DOCTOR_LIMIT: u64 = 60;
/// See [`DOCTOR_LIMIT`].
const RECORD_LIMIT: u64 = 120;
/// See [`DOCTOR_LIMIT`]; less than a day, as the machine has a limit of its own.
const TESTS_LIMIT: u64 = 6 * 3600;

/// Items of the recording that is tried before the tests.
const ITEMS: &str = "20";

/// Files of the image.
pub struct Contents {
    /// By their place in the guest: where they come from.
    files: BTreeMap<PathBuf, PathBuf>,
    /// The tool's place, where the tests look for it.
    tool: PathBuf,
    tests: PathBuf,
    workload: PathBuf,
    dir: PathBuf,
}

impl Contents {
    /// Builds and collects everything, with that test program; the tool already exists.
    pub fn build(tool: &Path, tests: &str) -> Result<Self> {
        let dir = shell::tools_dir().join("kernels");
        let programs = test_programs(tests)?;
        let (tests, workloads) = (program(&programs, tests)?, program(&programs, "workloads")?);
        shell::run(shell::as_root(&workloads).args([BUILD_WORKLOADS, "--quiet", "--exact"]))?;
        let profile = tests
            .ancestors()
            .nth(2)
            .context("a test program without a profile")?;
        let cache = profile.join("workloads");
        let mut contents = Self {
            files: BTreeMap::new(),
            tool: profile.join("pebs-trace"),
            workload: newest_workload(&cache, "plain")?,
            tests: tests.clone(),
            dir,
        };
        fs::create_dir_all(&contents.dir)?;
        contents.add_stripped(tool, &profile.join("pebs-trace"))?;
        contents.add_stripped(&tests, &tests)?;
        contents.add_tree(&cache)?;
        contents.add_tree(&shell::workspace().join("tests/workloads"))?;
        for name in PROGRAMS {
            let path = find_program(name).with_context(|| format!("no program {name}"))?;
            contents.files.insert(path.clone(), path);
        }
        let own = std::env::current_exe().context("this program has no path")?;
        contents.files.insert(guest::INIT.into(), own);
        contents.add_libraries()?;
        Ok(contents)
    }

    /// Writes the image; the test program is run with these arguments, and a module is loaded before.
    pub fn write(&self, test_arguments: &[String], module: Option<&Path>) -> Result<PathBuf> {
        let path = self.dir.join("image.cpio");
        let file = fs::File::create(&path)?;
        let mut archive = Archive::new(BufWriter::new(file));
        for folder in guest::FOLDERS {
            archive.folder(Path::new(folder))?;
        }
        archive.device(Path::new("/dev/console"), (5, 1))?;
        let module = module.map(|module| (PathBuf::from(guest::MODULE), module.to_owned()));
        let module = module.iter().map(|(place, source)| (place, source));
        for (place, source) in self.files.iter().chain(module) {
            let bytes =
                fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
            archive.file(place, &bytes)?;
        }
        let steps = self.steps(test_arguments).map(|step| step.line());
        archive.file(Path::new(guest::STEPS), steps.concat().as_bytes())?;
        archive.finish()?;
        Ok(path)
    }

    /// The guest's steps, in order.
    fn steps(&self, test_arguments: &[String]) -> [Step; 3] {
        let tool = self.tool.display().to_string();
        let workload = self.workload.display().to_string();
        let spec = format!("{workload}:handle(id=*(arg1):u64)");
        let record = [
            &tool,
            "--uprobe",
            &spec,
            "-o",
            "/tmp/trace",
            "--",
            &workload,
            ITEMS,
        ];
        let mut tests = vec![self.tests.display().to_string()];
        tests.extend_from_slice(test_arguments);
        [
            Step {
                name: guest::DOCTOR.to_owned(),
                limit_s: DOCTOR_LIMIT,
                after: None,
                command: vec![tool.clone(), "doctor".into(), "--format=json".into()],
            },
            Step {
                name: guest::RECORD.to_owned(),
                limit_s: RECORD_LIMIT,
                after: None,
                command: record.map(str::to_owned).to_vec(),
            },
            Step {
                name: guest::TESTS.to_owned(),
                limit_s: TESTS_LIMIT,
                after: Some(guest::RECORD.to_owned()),
                command: tests,
            },
        ]
    }

    /// Adds a program without its debug sections.
    fn add_stripped(&mut self, path: &Path, place: &Path) -> Result<()> {
        let name = path.file_name().context("a program without a name")?;
        let stripped = self.dir.join(name);
        let mut strip = Command::new("strip");
        shell::run(
            strip
                .arg("--strip-debug")
                .arg("-o")
                .arg(&stripped)
                .arg(path),
        )?;
        self.files.insert(place.to_owned(), stripped);
        Ok(())
    }

    /// Adds the files of a folder, recursively.
    fn add_tree(&mut self, dir: &Path) -> Result<()> {
        let entries =
            fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let mut unwanted = LEFT_OUT.iter().chain(&["dpdk"]);
            let is_unwanted = unwanted.any(|it| name.starts_with(it));
            if path.is_dir() && !is_unwanted {
                self.add_tree(&path)?;
            } else if path.is_file() {
                self.files.insert(path.clone(), path);
            }
        }
        Ok(())
    }

    /// Adds the libraries of all programs added so far.
    fn add_libraries(&mut self) -> Result<()> {
        for source in self.files.clone().values() {
            if !is_elf(source)? {
                continue;
            }
            // It fails for programs that are not dynamically linked.
            let listing = shell::output(Command::new("ldd").arg(source)).unwrap_or_default();
            for library in libraries(&listing) {
                self.files.insert(library.into(), library.into());
            }
        }
        Ok(())
    }
}

/// Absolute paths in the output of `ldd`.
fn libraries(listing: &str) -> impl Iterator<Item = &str> {
    listing.lines().filter_map(|line| {
        line.split_whitespace()
            .find(|word| word.starts_with('/') && !word.ends_with(':'))
    })
}

fn is_elf(path: &Path) -> Result<bool> {
    use std::io::Read;
    let mut magic = [0; 4];
    let mut file =
        fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let read = file.read(&mut magic)?;
    Ok(read == magic.len() && magic == *b"\x7fELF")
}

/// Builds the needed test programs; returns cargo's messages.
fn test_programs(tests: &str) -> Result<String> {
    let mut command = shell::cargo(&["test"]);
    command.args(shell::WHOLE);
    command.args(["--test", tests, "--test", "workloads", "--no-run"]);
    command.args(["--quiet", "--message-format=json"]);
    eprintln!("$ {}", shell::display(&command));
    shell::output(&mut command)
}

/// Path of a test program in cargo's account.
fn program(account: &str, name: &str) -> Result<PathBuf> {
    for line in account.lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else {
            continue;
        };
        if let Some(path) = message["executable"].as_str()
            && message["target"]["name"] == name
        {
            return Ok(path.into());
        }
    }
    bail!("cargo built no test program '{name}'")
}

/// The newest executable of a workload.
fn newest_workload(cache: &Path, name: &str) -> Result<PathBuf> {
    let prefix = format!("{name}-");
    let built = |path: &PathBuf| fs::metadata(path).and_then(|about| about.modified()).ok();
    fs::read_dir(cache)?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path().join(name))
        .max_by_key(built)
        .with_context(|| format!("no workload {name} in {}", cache.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Libraries by their path, whether found by name or not; the vDSO has none.
    #[test]
    fn listing_of_libraries() {
        let listing = "\tlinux-vdso.so.1 (0x00007f73857e8000)\n\
            \tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f7383b20000)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f73857ea000)\n";
        let found: Vec<_> = libraries(listing).collect();
        assert_eq!(
            found,
            [
                "/lib/x86_64-linux-gnu/libm.so.6",
                "/lib64/ld-linux-x86-64.so.2"
            ]
        );
        assert_eq!(libraries("\tstatically linked\n").count(), 0);
    }

    /// The program is found by its target's name among cargo's messages.
    #[test]
    fn test_program_by_name() {
        let account = "{\"reason\":\"build-script-executed\"}\n\
            {\"target\":{\"name\":\"workloads\"},\"executable\":\"/t/workloads-1\"}\n\
            {\"target\":{\"name\":\"kernel\"},\"executable\":\"/t/kernel-2\"}\n";
        let found = program(account, "kernel").unwrap();
        assert_eq!(found, Path::new("/t/kernel-2"));
        assert!(program(account, "redis").is_err());
    }
}
