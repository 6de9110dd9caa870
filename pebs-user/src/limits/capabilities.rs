//! The capabilities that a recording uses: the one table that `doctor`, `setcap` and systemd's units follow.
//!
//! `tests/tests/kernel/privileges.rs` takes some of them away.

use std::fmt::Write as _;

use rustix::thread::CapabilitySet;

/// A capability that a recording uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needed {
    pub set: CapabilitySet,
    /// As setcap has it.
    pub name: &'static str,
    /// Operations that need it.
    pub purpose: &'static str,
    /// Process or thread that keeps it once everything is attached.
    pub kept_by: Keeper,
}

/// Threads of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeper {
    /// Nobody.
    Nobody,
    /// The main thread.
    Main,
    /// All but the main thread.
    Others,
    /// Every thread.
    All,
}

impl Keeper {
    const fn is_main(self) -> bool {
        matches!(self, Self::Main | Self::All)
    }

    const fn is_other(self) -> bool {
        matches!(self, Self::Others | Self::All)
    }
}

/// Every capability that a recording uses. Nothing else is asked for.
pub(crate) const NEEDED: [Needed; 9] = [
    Needed {
        set: CapabilitySet::SYS_ADMIN,
        name: "cap_sys_admin",
        purpose: "uprobes, where the kernel requires it (6.18 does); not for --item-reg",
        kept_by: Keeper::Nobody,
    },
    Needed {
        set: CapabilitySet::PERFMON,
        name: "cap_perfmon",
        purpose: "events, now and on CPUs and threads that come later",
        kept_by: Keeper::Main,
    },
    Needed {
        set: CapabilitySet::BPF,
        name: "cap_bpf",
        purpose: "eBPF programs",
        kept_by: Keeper::Main,
    },
    Needed {
        set: CapabilitySet::IPC_LOCK,
        name: "cap_ipc_lock",
        purpose: "rings of events beyond what a user may lock (perf_event_mlock_kb)",
        kept_by: Keeper::Main,
    },
    Needed {
        set: CapabilitySet::SYS_PTRACE,
        name: "cap_sys_ptrace",
        purpose: "other users' processes: mappings, root folder, vdso",
        kept_by: Keeper::Others,
    },
    Needed {
        set: CapabilitySet::KILL,
        name: "cap_kill",
        purpose: "other users' processes that copy their probed code: stopped for a moment, mended",
        kept_by: Keeper::Others,
    },
    Needed {
        set: CapabilitySet::CHECKPOINT_RESTORE,
        name: "cap_checkpoint_restore",
        purpose: "binaries that were deleted or replaced since they were started",
        kept_by: Keeper::Others,
    },
    Needed {
        set: CapabilitySet::SYSLOG,
        name: "cap_syslog",
        purpose: "names of kernel functions",
        kept_by: Keeper::Others,
    },
    Needed {
        set: CapabilitySet::DAC_READ_SEARCH,
        name: "cap_dac_read_search",
        purpose: "binaries that only their owner may read",
        kept_by: Keeper::All,
    },
];

/// Those that the main thread keeps once everything is attached.
pub(crate) const MAIN: CapabilitySet = kept(true);

/// Those that all other threads keep.
pub(crate) const OTHERS: CapabilitySet = kept(false);

const fn kept(by_main: bool) -> CapabilitySet {
    let (mut kept, mut row) = (CapabilitySet::empty(), 0);
    while row < NEEDED.len() {
        let by = NEEDED[row].kept_by;
        if if by_main { by.is_main() } else { by.is_other() } {
            kept = kept.union(NEEDED[row].set);
        }
        row += 1;
    }
    kept
}

/// The command that lets any user record with a program, without root.
#[must_use]
pub(crate) fn setcap_command(program: &str) -> String {
    let names: Vec<&str> = NEEDED.iter().map(|it| it.name).collect();
    format!("sudo setcap {}+ep {program}", names.join(","))
}

/// The line of a unit of systemd's that leaves a service these capabilities.
fn bounding_set() -> String {
    let names: Vec<String> = NEEDED.iter().map(|it| it.name.to_uppercase()).collect();
    format!("CapabilityBoundingSet={}", names.join(" "))
}

/// The table, and what grants it.
#[must_use]
pub(crate) fn text() -> String {
    let mut text = String::new();
    for needed in NEEDED {
        let kept = match needed.kept_by {
            Keeper::Nobody => "given up once everything is attached",
            Keeper::Main => "kept by the main thread",
            Keeper::Others => "kept by all but the main thread",
            Keeper::All => "kept",
        };
        let name = needed.name.to_uppercase();
        let _ = writeln!(text, "{name:<22} {}; {kept}", needed.purpose);
    }
    let setcap = setcap_command("$(which pebs-trace)");
    let _ = write!(
        text,
        "\nany user, without sudo:\n  {setcap}\na service, in its unit:\n  {}\n",
        bounding_set()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The agent's unit has the capabilities of the table, and so has what is kept.
    #[test]
    fn of_the_unit() {
        let unit = include_str!("../../data/systemd/pebs-trace-agent.service");
        assert!(unit.lines().any(|line| line == bounding_set()), "{unit}");
        let all = NEEDED
            .iter()
            .fold(CapabilitySet::empty(), |all, it| all | it.set);
        assert!(all.contains(MAIN | OTHERS) && !MAIN.contains(CapabilitySet::SYS_ADMIN));
        assert!(text().contains(&setcap_command("$(which pebs-trace)")));
    }
}
