//! Installs each package where there is nothing else, records with it, upgrades and removes it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;

use super::crates::CRATES;
use super::{Arch, VERSION};
use crate::{setup, shell};

/// Recorded program: a function that is called a thousand times a second.
const TARGET: &str = "\
#include <unistd.h>
__attribute__((noinline)) long handle(long n) { volatile long sum = 0; while (n--) sum += n; return sum; }
int main(void) { for (long i = 0;; i++) { handle(10000 + i % 50 * 1000); usleep(900); } }
";

/// A version before this one, to upgrade from.
const BEFORE: &str = "0.0.1";

/// Path of the trace in a root.
const TRACE: &str = "tmp/trace";

/// Packages of Debian that the checks use.
const PACKAGES: [&str; 4] = ["debootstrap", "rpm", "podman", "runc"];

/// Checks the packages of this architecture; `usr` is what is in them.
pub fn packages(dist: &Path, usr: &Path) -> Result<()> {
    setup::install_debian(&PACKAGES)?;
    let room = tempfile::tempdir()?;
    let target = Target::start(room.path())?;
    deb(dist, usr, room.path(), &target)?;
    rpm(dist, usr, room.path(), &target)?;
    image(dist, &target)?;
    wheel(dist, room.path(), &target)
}

/// Compiles the program from its crate, without a compiler for eBPF programs, and records with it.
pub fn crates(dist: &Path) -> Result<()> {
    let room = tempfile::tempdir()?;
    let target = Target::start(room.path())?;
    let begin = Instant::now();
    let mut install = shell::cargo(&["install", "--locked", "--debug", "--path"]);
    install.arg(room.path().join(format!("pebs-trace-{VERSION}")));
    for name in CRATES {
        let packed = dist.join(format!("{name}-{VERSION}.crate"));
        let mut unpack = Command::new("tar");
        unpack.arg("-xzf").arg(packed).arg("-C").arg(room.path());
        shell::output(&mut unpack)?;
        if name != "pebs-trace" {
            let place = room.path().join(format!("{name}-{VERSION}"));
            let patch = format!("patch.crates-io.{name}.path={place:?}");
            install.arg("--config").arg(patch);
        }
    }
    // A linker for eBPF programs that would fail.
    install
        .current_dir(room.path())
        .env("PEBS_BPF_LINKER", "/nonexistent")
        .env("PEBS_BPF_RUSTC", "/nonexistent")
        .arg("--root")
        .arg(room.path());
    shell::run(&mut install)?;
    let items = target.record(
        Command::new(room.path().join("bin/pebs-trace")),
        room.path(),
    )?;
    say("crate", begin, items);
    Ok(())
}

fn deb(dist: &Path, usr: &Path, room: &Path, target: &Target) -> Result<()> {
    let root = debian(room)?;
    let old = super::packages::deb(room, usr, Arch::HOST, BEFORE)?;
    let new = dist.join(format!("pebs-trace_{VERSION}_{}.deb", Arch::HOST.debian()));
    let dpkg = |args: &[&str]| shell::output(inside(&root, "dpkg").args(args));
    for package in [&old, &new] {
        let begin = Instant::now();
        fs::copy(package, root.join("tmp/package.deb"))?;
        dpkg(&["--install", "/tmp/package.deb"])?;
        let items = target.record(inside(&root, "pebs-trace"), &root)?;
        say("deb", begin, items);
    }
    let status = dpkg(&["--status", "pebs-trace"])?;
    let line = format!("Version: {VERSION}");
    anyhow::ensure!(
        status.lines().any(|it| it == line),
        "dpkg has not upgraded:\n{status}"
    );
    let listed = dpkg(&["--listfiles", "pebs-trace"])?;
    dpkg(&["--purge", "pebs-trace"])?;
    is_removed(&root, &listed)
}

fn rpm(dist: &Path, usr: &Path, room: &Path, target: &Target) -> Result<()> {
    let root = room.join("rpm-root");
    fs::create_dir_all(root.join("tmp"))?;
    let old = super::packages::rpm(room, usr, Arch::HOST, BEFORE)?;
    let new = dist.join(format!("pebs-trace-{VERSION}-1.{}.rpm", Arch::HOST));
    let rpm = |args: &[&str]| {
        let mut rpm = Command::new("rpm");
        rpm.arg("--root")
            .arg(&root)
            .args(["--dbpath", "/var/lib/rpm"]);
        shell::output(rpm.args(args))
    };
    for (how, package) in [("--install", &old), ("--upgrade", &new)] {
        let begin = Instant::now();
        rpm(&[how, &package.display().to_string()])?;
        let items = target.record(inside(&root, "pebs-trace"), &root)?;
        say("rpm", begin, items);
    }
    let all = rpm(&["--query", "--all"])?;
    let only = format!("pebs-trace-{VERSION}-1.{}", Arch::HOST);
    anyhow::ensure!(all.trim() == only, "rpm has {all}");
    let listed = rpm(&["--query", "--list", "pebs-trace"])?;
    rpm(&["--erase", "pebs-trace"])?;
    is_removed(&root, &listed)
}

/// Runs the image as a container that sees the host's processes: with all privileges, then with those of `doctor --capabilities`.
fn image(dist: &Path, target: &Target) -> Result<()> {
    let file = dist.join(format!("pebs-trace-{VERSION}-{}-image.tar", Arch::HOST));
    let store = tempfile::tempdir()?;
    let podman = |args: &[&str]| {
        let mut podman = shell::as_root("podman");
        podman.arg("--root").arg(store.path().join("storage"));
        podman.arg("--runroot").arg(store.path().join("run"));
        // As little of the host as possible: no journal, no systemd.
        podman.args(["--storage-driver=vfs", "--cgroup-manager=cgroupfs"]);
        podman
            .args(["--events-backend=none", "--runtime=runc"])
            .args(args);
        podman
    };
    let begin = Instant::now();
    shell::output(podman(&["load", "--input"]).arg(&file))?;
    let listed = shell::output(Command::new(host_program()?).args(["doctor", "--capabilities"]))?;
    let names = listed.lines().filter_map(|it| it.strip_prefix("CAP_"));
    let names: Vec<&str> = names.filter_map(|it| it.split(' ').next()).collect();
    let few = format!("--cap-add={}", names.join(","));
    for privileges in [&["--privileged"][..], &["--cap-drop=all", &few]] {
        let traces = tempfile::tempdir()?;
        let mount = format!("{}:/tmp", traces.path().display());
        let mut run = podman(&["run", "--rm", "--pid=host", "--network=host"]);
        // More than these take a capability that not every root has.
        run.args(["--ulimit=nofile=1000:1000", "--ulimit=nproc=1000:1000"]);
        run.args(privileges)
            .args(["--volume=/sys:/sys", "--volume", &mount]);
        run.arg(format!("pebs-trace:{VERSION}"));
        let root = traces.path().join("root");
        fs::create_dir(&root)?;
        std::os::unix::fs::symlink(traces.path(), root.join("tmp"))?;
        let items = target.record(run, &root)?;
        say(&format!("image {}", privileges[0]), begin, items);
    }
    Ok(())
}

/// Installs the wheel in an environment of its own, and reads a trace with the package.
fn wheel(dist: &Path, room: &Path, target: &Target) -> Result<()> {
    let begin = Instant::now();
    let environment = room.join("venv");
    let begins = format!("pebs_trace-{VERSION}-");
    let wheels = super::tree::files(dist)?.into_iter().find(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&begins) && name.contains(&Arch::HOST.to_string())
    });
    let wheel = wheels.context("no wheel")?;
    let wanted = format!("{}[pandas,polars,duckdb,plots]", wheel.display());
    setup::make_environment(&environment, &[&wanted])?;
    let root = room.join("wheel-root");
    fs::create_dir_all(root.join("tmp"))?;
    // As a name below a root of its own: the trace is at the same place for the command and for Python.
    let script = format!(
        "import pebs_trace as p, sys\n\
         trace = p.record(sys.argv[1], uprobe='target:handle', pid={}, duration=2)\n\
         assert trace.visits.num_rows == len(trace.pandas('visits')) == trace.polars('visits').height\n\
         assert trace.duckdb().sql('select count(*) from visits').fetchall()[0][0] == trace.visits.num_rows\n\
         assert trace.explain().probes[0].items > 0\n\
         print(trace.visits.num_rows)\n",
        target.0.id(),
    );
    let mut python = Command::new(environment.join("bin/python"));
    let rows = shell::output(python.args(["-c", &script]).arg(root.join(TRACE)))?;
    say("wheel", begin, rows.trim().parse()?);
    Ok(())
}

/// A minimal Debian, as it is installed. Made once, then copied.
fn debian(room: &Path) -> Result<PathBuf> {
    let pristine = shell::tools_dir().join("debian-root");
    if !pristine.join("usr/bin/dpkg").exists() {
        let mut sources = Command::new("apt-get");
        sources.args(["indextargets", "--format", "$(REPO_URI) $(CODENAME)"]);
        let sources = shell::output(sources.arg("Created-By: Packages"))?;
        let (mirror, suite) = sources
            .lines()
            .find_map(|it| it.split_once(' '))
            .context("apt has no sources")?;
        let mut make = shell::as_root("debootstrap");
        make.args(["--variant=minbase", suite])
            .arg(&pristine)
            .arg(mirror);
        shell::run(&mut make)?;
    }
    let root = room.join("debian");
    shell::output(Command::new("cp").arg("-a").arg(&pristine).arg(&root))?;
    Ok(root)
}

/// A program inside of a root that has the system's processes and no other file of it.
fn inside(root: &Path, program: &str) -> Command {
    let mount = "mkdir -p \"$1/proc\" \"$1/sys\"; mount --rbind /proc \"$1/proc\"; mount --rbind /sys \"$1/sys\"; \
                 root=$1; shift; exec chroot \"$root\" \"$@\"";
    let mut command = shell::as_root("unshare");
    command.args(["--mount", "sh", "-c", mount, "sh"]).arg(root);
    command
        .arg(program)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// Nothing that a package listed is there any more, but folders that others use.
fn is_removed(root: &Path, listed: &str) -> Result<()> {
    for name in listed.lines() {
        let path = root.join(name.trim_start_matches('/'));
        let is_left = path.is_file() || path.exists() && path.ends_with("pebs-trace");
        anyhow::ensure!(!is_left, "{name} was not removed");
    }
    Ok(())
}

/// The program that was packed.
fn host_program() -> Result<PathBuf> {
    let place = format!("{}-unknown-linux-musl/packed/pebs-trace", Arch::HOST);
    Ok(shell::target_dir()?.join(place))
}

/// Prints how long it took from the package to a trace, and what is in that.
fn say(way: &str, begin: Instant, items: u64) {
    println!(
        "{way}: {items} items recorded after {:.1} s",
        begin.elapsed().as_secs_f64()
    );
}

/// The program that is recorded; it ends with this.
struct Target(Child);

impl Target {
    fn start(room: &Path) -> Result<Self> {
        let (source, program) = (room.join("target.c"), room.join("target"));
        fs::write(&source, TARGET)?;
        shell::output(
            Command::new("gcc")
                .arg("-O1")
                .arg(&source)
                .arg("-o")
                .arg(&program),
        )?;
        let child = Command::new(&program).stdout(Stdio::null()).spawn();
        Ok(Self(child.context("cannot start the target")?))
    }

    /// Records it for two seconds; the items in the trace, which the program finds below its root.
    fn record(&self, mut program: Command, root: &Path) -> Result<u64> {
        let place = root.join(TRACE);
        shell::remove(&place)?;
        // From inside of a root it is below `/`.
        let is_inside = program.get_program() != root.join("bin/pebs-trace");
        let trace = if is_inside {
            Path::new("/").join(TRACE)
        } else {
            place.clone()
        };
        fs::create_dir_all(root.join("tmp"))?;
        program.args(["--uprobe", "target:handle", "--duration", "2", "--pid"]);
        program
            .arg(self.0.id().to_string())
            .arg("--output")
            .arg(trace);
        shell::output(&mut program)?;
        let info = shell::target_dir()?.join("x86_64-unknown-linux-musl/packed/pebs-trace");
        let info = shell::json(
            Command::new(info)
                .args(["info", "--format", "json"])
                .arg(&place),
        )?;
        let tables = info["tables"].as_array().into_iter().flatten();
        let rows = |it: &Value| it["rows"].as_u64().filter(|_| it["table"] == "visits");
        let rows = tables.into_iter().find_map(rows);
        rows.filter(|&it| it > 0).context("no item was recorded")
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
