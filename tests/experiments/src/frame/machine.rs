//! The machine, and processes on it.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Time between two looks at something that is waited for.
const POLL: Duration = Duration::from_millis(20);

/// Sizes of the caches if the machine does not report them, KiB.
const USUAL_L1_KIB: u64 = 32;
const USUAL_L2_KIB: u64 = 1 << 10;

/// Processes that run or want to, mean of the last minute.
#[must_use]
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next().and_then(|word| word.parse().ok());
    first.unwrap_or(f64::NAN)
}

/// CPU and kernel.
#[must_use]
pub fn describe() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = text
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let cpu = cpu.map_or("an unknown CPU", |it| {
        it.trim_start_matches([' ', '\t', ':'])
    });
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.split('-').next().unwrap_or_default().trim();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{cpu}, {cpus} CPUs, Linux {kernel}")
}

/// Size of a core's second level cache, KiB.
#[must_use]
pub fn l2_kib() -> u64 {
    cache_kib("2").unwrap_or(USUAL_L2_KIB)
}

/// Size of a core's first level cache of data, KiB.
#[must_use]
pub fn l1_kib() -> u64 {
    cache_kib("1").unwrap_or(USUAL_L1_KIB)
}

fn cache_kib(level: &str) -> Option<u64> {
    let size = |dir: PathBuf| {
        let read = |file: &str| fs::read_to_string(dir.join(file)).ok();
        let is_wanted = read("level")?.trim() == level && read("type")?.trim() != "Instruction";
        let size = read("size")?.trim().strip_suffix('K')?.parse().ok()?;
        is_wanted.then_some(size)
    };
    let caches = fs::read_dir("/sys/devices/system/cpu/cpu0/cache");
    let mut caches = caches.into_iter().flatten().flatten();
    caches.find_map(|cache| size(cache.path()))
}

/// `CLOCK_MONOTONIC`, ns.
#[must_use]
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of a process and its children, with all their threads, ns.
pub fn cpu_ns(pid: u32) -> Result<f64> {
    let mut sum = 0.0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = task?.path();
        let read = |name: &str| fs::read_to_string(path.join(name)).unwrap_or_default();
        let first = read("schedstat");
        sum += first
            .split(' ')
            .next()
            .and_then(|it| it.parse().ok())
            .unwrap_or(0.0);
        for child in read("children").split_whitespace() {
            // It may have ended.
            sum += cpu_ns(child.parse()?).unwrap_or(0.0);
        }
    }
    Ok(sum)
}

/// Keeps a process and its children on a CPU: otherwise the time of a request depends on where the other side runs.
pub fn pin(pid: u32, cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let task = task?;
        let tid: i32 = task.file_name().to_string_lossy().parse()?;
        // Where there is no such CPU, it stays where it is.
        let _ = sched_setaffinity(Pid::from_raw(tid), &set);
        let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            pin(child.parse()?, cpu)?;
        }
    }
    Ok(())
}

/// A port that is free at the moment.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    Ok(listener.local_addr()?.port())
}

/// Waits until something holds; false if it does not within that time.
pub fn wait_until(patience: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while !holds() {
        if begin.elapsed() > patience {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}

/// A process that is killed when this is dropped, if it has not ended.
pub struct Killed(pub Child);

impl Deref for Killed {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Killed {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
