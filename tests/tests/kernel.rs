//! Recordings of the workloads on the real kernel, held against the truth that they log.
//!
//! Root and a kernel with uprobes and BPF rings are all they need: samples come from the software
//! clock, breakpoints and page faults. Times are only ever compared with the workload's own.

#[path = "kernel/accounts.rs"]
mod accounts;
#[path = "kernel/agent.rs"]
mod agent;
#[path = "kernel/arguments.rs"]
mod arguments;
#[path = "kernel/batches.rs"]
mod batches;
#[path = "kernel/binaries.rs"]
mod binaries;
#[path = "kernel/bulk.rs"]
mod bulk;
#[path = "kernel/cgroups.rs"]
mod cgroups;
#[path = "kernel/chains.rs"]
mod chains;
#[path = "kernel/control.rs"]
mod control;
#[path = "kernel/counted.rs"]
mod counted;
#[path = "kernel/counts.rs"]
mod counts;
#[path = "kernel/debug_files.rs"]
mod debug_files;
#[path = "kernel/ends.rs"]
mod ends;
#[path = "kernel/firewall.rs"]
mod firewall;
#[path = "kernel/further.rs"]
mod further;
#[path = "kernel/goroutines.rs"]
mod goroutines;
#[path = "kernel/harmless.rs"]
mod harmless;
#[path = "kernel/hostile.rs"]
mod hostile;
#[path = "kernel/hotplug.rs"]
mod hotplug;
#[path = "kernel/imported.rs"]
mod imported;
#[path = "kernel/interference.rs"]
mod interference;
#[path = "kernel/intervals.rs"]
mod intervals;
#[path = "kernel/items.rs"]
mod items;
#[path = "kernel/keep.rs"]
mod keep;
#[path = "kernel/library.rs"]
mod library;
#[path = "kernel/lines.rs"]
mod lines;
#[path = "kernel/losses.rs"]
mod losses;
#[path = "kernel/marked.rs"]
mod marked;
#[path = "kernel/overhead.rs"]
mod overhead;
#[path = "kernel/overlaps.rs"]
mod overlaps;
#[path = "kernel/presets.rs"]
mod presets;
#[path = "kernel/privileges.rs"]
mod privileges;
#[path = "kernel/processes.rs"]
mod processes;
#[path = "kernel/proxy.rs"]
mod proxy;
#[path = "kernel/sampling.rs"]
mod sampling;
#[path = "kernel/short_items.rs"]
mod short_items;
#[path = "kernel/stacks.rs"]
mod stacks;
#[path = "kernel/suggest.rs"]
mod suggest;
#[path = "kernel/threads.rs"]
mod threads;
#[path = "kernel/waits.rs"]
mod waits;

/// SPEC tail of the usual item: its id.
const ID: &str = "handle(id=*(arg1):u64)";
