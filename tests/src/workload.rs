//! Builds the workloads and runs them without a tracer.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::locks::Lock;
use crate::machine;
use crate::process::{self, Finished, Running};
use crate::truth::Truth;

/// Ways to build a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recipe {
    /// One C file, with extra flags.
    C(&'static str, &'static [&'static str]),
    /// One C++ file, with extra flags.
    Cpp(&'static str, &'static [&'static str]),
    /// One Rust file, with extra flags.
    Rust(&'static str, &'static [&'static str]),
    /// A C file, then `strip -s`.
    Stripped(&'static str),
    /// A program and a library beside it.
    WithLibrary(&'static str, &'static str),
    /// A C file that needs these libraries of DPDK; it may include `acl.c`.
    Dpdk(&'static str, &'static [&'static str]),
    /// One Go file.
    Go(&'static str),
    /// A C file that needs `sys/sdt.h`.
    Sdt(&'static str),
}

/// Every function keeps a frame pointer, also leaf functions.
const FRAMES: &[&str] = &["-fno-omit-frame-pointer", "-DFRAMES"];

/// As before, and one function is inlined.
const FRAMES_INLINED: &[&str] = &["-fno-omit-frame-pointer", "-DFRAMES", "-DINLINED"];

/// No function does.
const NO_FRAMES: &[&str] = &["-fomit-frame-pointer"];

/// As before, and no function has a name but that of the items.
const STRIPPED: &[&str] = &[
    "-fomit-frame-pointer",
    "-s",
    "-Wl,--export-dynamic-symbol=handle",
];

const RECIPES: &[(&str, Recipe)] = &[
    ("acl", Recipe::Dpdk("acl.c", &["acl", "eal"])),
    ("answers", Recipe::C("answers.c", &[])),
    ("batches", Recipe::C("batches.c", &[])),
    ("breakpoint", Recipe::C("breakpoint.c", &[])),
    ("breakpoint_no_pie", Recipe::C("breakpoint.c", &["-no-pie"])),
    ("calls", Recipe::C("calls.c", FRAMES)),
    ("calls_cpp", Recipe::Cpp("calls.cpp", FRAMES)),
    ("calls_no_frames", Recipe::C("calls.c", NO_FRAMES)),
    ("calls_inlined", Recipe::C("calls.c", FRAMES_INLINED)),
    ("calls_stripped", Recipe::C("calls.c", STRIPPED)),
    (
        "calls_rust",
        Recipe::Rust("calls.rs", &["-Cforce-frame-pointers=yes"]),
    ),
    ("chains", Recipe::C("chains.c", NO_FRAMES)),
    ("chatty", Recipe::C("chatty.c", &[])),
    ("unwinding", Recipe::Cpp("unwinding.cpp", NO_FRAMES)),
    (
        "unwinding_static",
        Recipe::Cpp("unwinding.cpp", &["-fomit-frame-pointer", "-static-pie"]),
    ),
    (
        "unwinding_stripped",
        Recipe::Cpp("unwinding.cpp", &["-fomit-frame-pointer", "-s"]),
    ),
    ("counted", Recipe::C("counted.c", &[])),
    ("counts", Recipe::C("counts.c", &[])),
    ("intervals", Recipe::C("intervals.c", &[])),
    ("exceptions", Recipe::Cpp("exceptions.cpp", &[])),
    ("execs", Recipe::C("execs.c", &[])),
    ("crowd", Recipe::C("crowd.c", &[])),
    ("faults", Recipe::C("faults.c", &[])),
    ("fibers", Recipe::C("fibers.c", &["-ffixed-r13"])),
    ("fixed", Recipe::C("fixed.c", &[])),
    ("paced", Recipe::C("paced.c", &[])),
    ("firewall", Recipe::Dpdk("firewall.c", DPDK_PIPELINE)),
    ("fork", Recipe::C("fork.c", &[])),
    ("go_callbacks", Recipe::Go("go_callbacks.go")),
    ("go_items", Recipe::Go("go_items.go")),
    ("go_server", Recipe::Go("go_server.go")),
    ("goroutines", Recipe::Go("goroutines.go")),
    ("hostile", Recipe::C("hostile.c", &[])),
    ("ids", Recipe::C("ids.c", &[])),
    (
        "ids_library",
        Recipe::WithLibrary("ids_library.c", "ids_library_so.c"),
    ),
    ("ids_no_pie", Recipe::C("ids.c", &["-no-pie"])),
    ("lines", Recipe::C("lines.c", &[])),
    ("loop", Recipe::C("loop.c", &[])),
    ("loops", Recipe::C("loops.c", &[])),
    ("samplers", Recipe::C("samplers.c", &[])),
    ("locks", Recipe::C("locks.c", FRAMES)),
    ("locks_no_frames", Recipe::C("locks.c", NO_FRAMES)),
    ("interrupts", Recipe::C("interrupts.c", &[])),
    ("killed", Recipe::C("killed.c", &[])),
    ("late_threads", Recipe::C("late_threads.c", &[])),
    ("longjmp", Recipe::C("longjmp.c", &[])),
    ("mappings", Recipe::C("mappings.c", &[])),
    ("marked", Recipe::C("marked.c", &["-ffixed-r13"])),
    ("migrate", Recipe::C("migrate.c", &[])),
    ("misses", Recipe::C("misses.c", &[])),
    ("mixed", Recipe::C("mixed.c", &[])),
    ("mixed_batches", Recipe::C("mixed_batches.c", &[])),
    ("served", Recipe::C("served.c", &[])),
    ("served_stripped", Recipe::Stripped("served.c")),
    ("stages", Recipe::C("stages.c", &[])),
    ("overlap", Recipe::C("overlap.c", &[])),
    ("panics", Recipe::Rust("panics.rs", &[])),
    ("partners", Recipe::C("partners.c", &[])),
    ("plain", Recipe::C("plain.c", &[])),
    ("query", Recipe::C("query.c", &[])),
    ("reads", Recipe::C("reads.c", &[])),
    ("reclaim", Recipe::C("reclaim.c", &[])),
    ("recursion", Recipe::C("recursion.c", &[])),
    ("refaults", Recipe::C("refaults.c", &[])),
    ("regular", Recipe::C("regular.c", &[])),
    ("remap", Recipe::C("remap.c", &[])),
    ("replaced", Recipe::C("replaced.c", &[])),
    (
        "shared_lib",
        Recipe::WithLibrary("shared_lib.c", "shared_lib_so.c"),
    ),
    ("sides", Recipe::C("sides.c", &[])),
    ("steps", Recipe::C("steps.c", &[])),
    ("short_slow", Recipe::C("short_slow.c", &[])),
    // Probed by another tool, which all runs of a file see.
    ("short_slow_probed", Recipe::C("short_slow.c", &[])),
    ("short_visits", Recipe::C("short_visits.c", &[])),
    ("shifts", Recipe::C("shifts.c", &[])),
    ("sleeper", Recipe::C("sleeper.c", &[])),
    ("static_pie", Recipe::C("plain.c", &["-static-pie"])),
    ("stripped", Recipe::Stripped("plain.c")),
    ("strings", Recipe::Rust("strings.rs", &[])),
    (
        "strings_debug",
        Recipe::Rust("strings.rs", &["-Copt-level=0"]),
    ),
    ("kinds", Recipe::C("kinds.c", &[])),
    ("rates", Recipe::C("rates.c", &[])),
    ("stealing", Recipe::C("stealing.c", &["-ffixed-r13"])),
    ("swings", Recipe::C("swings.c", &[])),
    ("tailcall", Recipe::C("tailcall.c", &[])),
    ("usdt", Recipe::Sdt("usdt.c")),
    ("system_calls", Recipe::C("system_calls.c", &[])),
    ("threads", Recipe::C("threads.c", &[])),
];

/// Paths of the macros for USDT probes.
const SDT: [&str; 2] = [
    "/usr/include/sys/sdt.h",
    "/usr/include/x86_64-linux-gnu/sys/sdt.h",
];

/// Libraries of DPDK that threads with rings and ports need.
const DPDK_PIPELINE: &[&str] = &["acl", "eal", "ethdev", "mbuf", "mempool", "ring"];

/// Libraries that DPDK loads for software ports, and for pools of packets.
const DPDK_DRIVERS: [&str; 2] = ["net_af_packet", "mempool_ring"];

/// A built workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The executable.
    pub path: PathBuf,
}

impl Workload {
    /// Names of all workloads.
    pub fn names() -> impl Iterator<Item = &'static str> {
        RECIPES.iter().map(|(name, _)| *name)
    }

    /// Builds a workload that needs nothing but a compiler.
    ///
    /// # Panics
    /// If the name is unknown or the compiler fails.
    #[must_use]
    pub fn build(name: &str) -> Self {
        Self::try_build(name).unwrap_or_else(|reason| panic!("workload {name}: {reason}"))
    }

    /// Builds a workload, once for each state of its sources.
    ///
    /// # Errors
    /// The reason to skip: something it needs is not installed.
    ///
    /// # Panics
    /// If the name is unknown or the compiler fails.
    pub fn try_build(name: &str) -> Result<Self, String> {
        let (_, recipe) = RECIPES
            .iter()
            .find(|(known, _)| *known == name)
            .unwrap_or_else(|| panic!("no workload '{name}'"));
        let cache = machine::profile_dir().join("workloads");
        let dir = cache.join(format!("{name}-{:016x}", recipe.fingerprint()));
        let _lock = Lock::take("workloads");
        if !dir.is_dir() {
            fs::create_dir_all(&cache).expect("target directory is writable");
            let build = tempfile::Builder::new()
                .prefix("build-")
                .tempdir_in(&cache)
                .expect("target directory is writable");
            recipe.build(name, build.path(), &cache)?;
            fs::rename(build.keep(), &dir).expect("rename within the cache");
        }
        Ok(Self {
            path: dir.join(name),
        })
    }

    /// A file that was built beside the executable.
    #[must_use]
    pub fn beside(&self, name: &str) -> PathBuf {
        self.path.with_file_name(name)
    }

    /// SPEC of a function of the workload, arguments included: `PATH:function(...)`.
    #[must_use]
    pub fn spec(&self, function: &str) -> String {
        format!("{}:{function}", self.path.display())
    }

    /// The program.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs it to its end, not traced.
    #[must_use]
    pub fn run(&self, args: &[&str]) -> Finished {
        let truth = TruthFile::new();
        process::run(truth.on(Command::new(&self.path).args(args)))
    }

    /// Starts it; it waits before its first item until [`Waiting::go`].
    #[must_use]
    pub fn start(&self, args: &[&str]) -> Waiting {
        let truth = TruthFile::new();
        let mut command = Command::new(&self.path);
        command.args(args).env("TRUTH_WAIT", "1");
        let mut process = Running::start(truth.on(&mut command));
        process.wait_for_line("ready ");
        Waiting { process, truth }
    }
}

/// A workload that runs on its own, for a tracer to attach to.
#[derive(Debug)]
pub struct Waiting {
    pub process: Running,
    truth: TruthFile,
}

impl Waiting {
    /// Lets it handle its items.
    pub fn go(&mut self) {
        self.process.send("go\n");
    }

    /// Returns once it has logged this many items: for a workload that flushes each one.
    ///
    /// # Panics
    /// If it does not within the time that any child may take.
    pub fn until_items(&self, items: usize) {
        process::wait_until(&format!("no {items} items"), || {
            let log = fs::read_to_string(self.truth.path()).unwrap_or_default();
            log.lines().filter(|line| line.starts_with("item ")).count() >= items
        });
    }

    /// Stops `answers`, and checks that every item was handled with the expected result. Returns the
    /// number of items.
    ///
    /// # Panics
    /// If it does not end so, or has ended before.
    pub fn answers_stop(mut self) -> u64 {
        assert!(self.process.is_running(), "it has ended before");
        self.process.send("stop\n");
        let (finished, truth) = self.finish();
        let items = truth.notes["items"];
        let sum = 3 * items * (items + 1) / 2;
        assert_eq!(finished.code(), Some(0), "{finished}");
        let expected = format!("handled {items} items, sum {sum}\n");
        assert_eq!(finished.stdout, expected, "{finished}");
        items
    }

    /// Waits for its end.
    #[must_use]
    pub fn finish(self) -> (Finished, Truth) {
        let finished = self.process.finish();
        (finished, self.truth.read())
    }
}

/// File for a workload's truth; removed when dropped.
#[derive(Debug)]
pub struct TruthFile {
    dir: TempDir,
}

impl TruthFile {
    /// A new, empty place.
    ///
    /// # Panics
    /// If the temporary directory is not writable.
    #[must_use]
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("temporary directory is writable"),
        }
    }

    /// Tells a command about it.
    pub fn on<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("TRUTH_FILE", self.path())
    }

    /// Reads the log.
    #[must_use]
    pub fn read(&self) -> Truth {
        Truth::read(&self.path())
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("truth")
    }
}

impl Default for TruthFile {
    fn default() -> Self {
        Self::new()
    }
}

/// Folder of the sources.
#[must_use]
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads")
}

/// Virtual address of a function in a binary that still has its symbols, from `nm`.
///
/// # Panics
/// If there is no such symbol.
#[must_use]
pub fn address_of(binary: &Path, function: &str) -> u64 {
    let listing = process::run(Command::new("nm").arg(binary));
    listing
        .stdout
        .lines()
        .find_map(|line| {
            let mut words = line.split_whitespace();
            let address = words.next()?;
            (words.nth(1)? == function).then(|| u64::from_str_radix(address, 16).expect("hex"))
        })
        .unwrap_or_else(|| panic!("no symbol '{function}'\n{listing}"))
}

impl Recipe {
    fn files(self) -> Vec<&'static str> {
        match self {
            Self::C(file, _)
            | Self::Cpp(file, _)
            | Self::Rust(file, _)
            | Self::Stripped(file)
            | Self::Go(file)
            | Self::Sdt(file) => vec![file],
            Self::Dpdk(file, _) => vec![file, "acl.c"],
            Self::WithLibrary(program, library) => vec![program, library],
        }
    }

    fn fingerprint(self) -> u64 {
        let mut hasher = DefaultHasher::new();
        format!("{self:?}").hash(&mut hasher);
        for file in self.files().into_iter().chain(["truth.h"]) {
            fs::read(sources().join(file))
                .unwrap_or_else(|e| panic!("cannot read workload {file}: {e}"))
                .hash(&mut hasher);
        }
        hasher.finish()
    }

    fn build(self, name: &str, dir: &Path, cache: &Path) -> Result<(), String> {
        let out = dir.join(name);
        match self {
            Self::C(file, flags) => compile("cc", file, &out, flags),
            Self::Cpp(file, flags) => compile("c++", file, &out, flags),
            Self::Rust(file, flags) => must(
                Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
                    .args(["--edition", "2024", "-O", "-g"])
                    .args(flags)
                    .arg("-o")
                    .arg(&out)
                    .arg(sources().join(file)),
            ),
            Self::Stripped(file) => {
                let whole = dir.join("with_symbols");
                compile("cc", file, &whole, &[]);
                must(
                    Command::new("strip")
                        .arg("-s")
                        .arg("-o")
                        .arg(&out)
                        .arg(&whole),
                );
            }
            Self::WithLibrary(program, library) => {
                let so = dir.join(format!("lib{name}.so"));
                compile("cc", library, &so, &["-shared", "-fPIC"]);
                // Looked for by its name, beside the program: the folder is renamed later.
                let (find, link) = (format!("-L{}", dir.display()), format!("-l{name}"));
                compile("cc", program, &out, &[&find, &link, "-Wl,-rpath,$ORIGIN"]);
            }
            Self::Sdt(file) => {
                if !SDT.iter().any(|path| Path::new(path).exists()) {
                    return Err("no sys/sdt.h (Debian: systemtap-sdt-dev)".to_owned());
                }
                compile("cc", file, &out, &[]);
            }
            Self::Dpdk(file, libraries) => build_with_dpdk(file, libraries, &out, cache)?,
            Self::Go(file) => {
                let go = machine::program("go")?;
                must(
                    Command::new(go)
                        .args(["build", "-o"])
                        .arg(&out)
                        .arg(sources().join(file))
                        .env("GO111MODULE", "off")
                        .env("GOCACHE", cache.join("go")),
                );
            }
        }
        Ok(())
    }
}

fn compile(compiler: &str, file: &str, out: &Path, flags: &[&str]) {
    must(
        Command::new(compiler)
            .args(["-O2", "-g", "-pthread", "-o"])
            .arg(out)
            .arg(sources().join(file))
            .args(flags),
    );
}

fn must(command: &mut Command) {
    let done = process::run(command);
    assert!(done.status.success(), "cannot build a workload\n{done}");
}

/// A library of Debian's DPDK 22.11, by its versioned name.
fn dpdk_file(library: &str) -> String {
    format!("librte_{library}.so.23")
}

/// Debian's `libdpdk-dev` pulls some 200 packages: its headers alone are unpacked into the cache.
fn build_with_dpdk(file: &str, names: &[&str], out: &Path, cache: &Path) -> Result<(), String> {
    let dirs = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let drivers = &DPDK_DRIVERS[..if names == DPDK_PIPELINE { 2 } else { 0 }];
    for library in names.iter().chain(drivers) {
        let wanted = dpdk_file(library);
        if !dirs.iter().any(|dir| Path::new(dir).join(&wanted).exists()) {
            let package = format!("librte-{}23", library.replace('_', "-"));
            return Err(format!("{wanted} is not installed (package {package})"));
        }
    }
    let root = dpdk_headers(cache)?;
    // The headers ask for libbsd where the configuration has it; nothing here needs it.
    let config = out.with_file_name("config.h");
    fs::write(&config, "#include <rte_config.h>\n#undef RTE_USE_LIBBSD\n").expect("writable");
    let include = |dir: &str| format!("-I{}", root.join(dir).display());
    let config = config.display().to_string();
    let link: Vec<String> = names
        .iter()
        .map(|it| format!("-l:{}", dpdk_file(it)))
        .collect();
    let (generic, machine) = (include("dpdk"), include("x86_64-linux-gnu/dpdk"));
    let mut flags = vec!["-march=native", "-include", &config, &generic, &machine];
    flags.extend(link.iter().map(String::as_str));
    compile("cc", file, out, &flags);
    Ok(())
}

fn dpdk_headers(cache: &Path) -> Result<PathBuf, String> {
    let system = Path::new("/usr/include");
    if system.join("dpdk/rte_acl.h").exists() {
        return Ok(system.to_owned());
    }
    let kept = cache.join("dpdk-headers");
    if !kept.is_dir() {
        let work = tempfile::tempdir_in(cache).map_err(|e| e.to_string())?;
        let download = process::run(
            Command::new("apt-get")
                .args(["download", "libdpdk-dev"])
                .current_dir(work.path()),
        );
        let package = fs::read_dir(work.path())
            .map_err(|e| e.to_string())?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|ext| ext == "deb"))
            .ok_or_else(|| {
                let why = download
                    .stderr
                    .lines()
                    .last()
                    .unwrap_or_default()
                    .to_owned();
                format!("no DPDK headers: cannot download libdpdk-dev: {why}")
            })?;
        let unpacked = work.path().join("unpacked");
        must(Command::new("dpkg").arg("-x").arg(&package).arg(&unpacked));
        fs::rename(&unpacked, &kept).map_err(|e| e.to_string())?;
    }
    Ok(kept.join("usr/include"))
}
