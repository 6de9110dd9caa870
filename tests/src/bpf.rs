//! BPF objects that a process holds in the kernel, and whether they still exist.

use std::collections::BTreeSet;
use std::fs;

/// Ids of BPF objects. The kernel assigns each id once before it wraps around.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    pub programs: BTreeSet<u32>,
    pub maps: BTreeSet<u32>,
    pub links: BTreeSet<u32>,
}

impl Objects {
    /// The objects that the process holds descriptors of; empty if it has ended.
    #[must_use]
    pub fn held_by(pid: u32) -> Self {
        let mut held = Self::default();
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else {
            return held;
        };
        for entry in descriptors.flatten() {
            // A descriptor may be closed in between.
            held.read(&fs::read_to_string(entry.path()).unwrap_or_default());
        }
        held
    }

    /// Source: `bpf_prog_show_fdinfo` and its like, kernel/bpf/syscall.c.
    fn read(&mut self, fdinfo: &str) {
        for line in fdinfo.lines() {
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let ids = match key {
                "prog_id" => &mut self.programs,
                "map_id" => &mut self.maps,
                "link_id" => &mut self.links,
                _ => continue,
            };
            ids.extend(value.trim().parse::<u32>());
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.programs.extend(&other.programs);
        self.maps.extend(&other.maps);
        self.links.extend(&other.links);
    }

    /// The objects that still exist in the kernel.
    ///
    /// # Panics
    /// If the kernel does not list its objects: that takes root.
    #[must_use]
    pub fn still_there(&self) -> Self {
        let programs = aya::programs::loaded_programs().filter_map(Result::ok);
        let maps = aya::maps::loaded_maps().filter_map(Result::ok);
        let links = aya::programs::loaded_links().filter_map(Result::ok);
        Self {
            programs: programs
                .map(|it| it.id())
                .filter(|id| self.programs.contains(id))
                .collect(),
            maps: maps
                .map(|it| it.id())
                .filter(|id| self.maps.contains(id))
                .collect(),
            links: links
                .map(|it| it.id())
                .filter(|id| self.links.contains(id))
                .collect(),
        }
    }
}

/// Number of runs of the programs of that name, counted while the kernel's statistics are on.
///
/// # Panics
/// If the kernel does not list its programs: that takes root.
#[must_use]
pub fn runs(name: &str) -> u64 {
    let programs = aya::programs::loaded_programs();
    programs
        .map(|program| program.expect("programs are listed"))
        .filter(|program| program.name_as_str() == Some(name))
        .map(|program| program.run_count())
        .sum()
}

/// Makes the kernel count the runs of programs while it lives.
#[derive(Debug)]
pub struct Counting(());

impl Counting {
    /// Begins.
    ///
    /// # Panics
    /// If the kernel refuses.
    #[must_use]
    pub fn start() -> Self {
        fs::write(STATS, "1").expect("the kernel counts runs of programs");
        Self(())
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        if let Err(error) = fs::write(STATS, "0") {
            eprintln!("cannot stop counting the runs of programs: {error}");
        }
    }
}

/// Setting that makes the kernel count the runs of programs.
const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids are found among the other lines.
    #[test]
    fn fdinfo() {
        let mut objects = Objects::default();
        objects.read("pos:\t0\nlink_type:\tperf\nlink_id:\t7\nprog_tag:\tab\nprog_id:\t12\n");
        objects.read("map_type:\t27\nmap_id:\t9\n");
        assert!(objects.programs.contains(&12) && objects.maps.contains(&9));
        assert!(objects.links.contains(&7));
    }
}
