//! Options of a recording. Doc comments are the help.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cmd::default_output;
use crate::cmd::report::Format;
use crate::cmd::values::{
    CallGraphArg, Extra, TransportArg, bytes, event_count, item_id, jitter, memory, overhead,
    percent, pid, ring_size, seconds, tid,
};
use crate::estimate::slow_by::SlowBy;
use crate::failure::{Failure, Result};
use crate::probe::ReturnMode;
use crate::probe::redact::Rule;
use crate::record::{ItemId, KeepItems, Recording, SampleClock, Start, Target};
use crate::stream::decode::{Interferences, RecordKinds};
use crate::units::{Pid, Tid};

/// Marks at the end of visits of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReturnArg {
    /// At each exit in the function's code, at the cheapest instruction
    #[default]
    Auto,
    /// A uretprobe; breaks programs that throw through the function or switch stacks
    Uretprobe,
    /// At the return instructions and tail jumps themselves
    Ret,
}

/// Items whose details are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum KeepArg {
    /// Everything
    #[default]
    All,
    /// Slow items, and those that overlap a loss
    Slow,
    /// No item: aggregates and durations only
    None,
}

/// Rules for texts that may hold personal data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redact {
    /// The rule of the preset.
    ByPreset,
    /// An argument.
    Argument(String, Rule),
}

impl Redact {
    fn argument(&self) -> Option<(String, Rule)> {
        match self {
            Self::ByPreset => None,
            Self::Argument(name, rule) => Some((name.clone(), *rule)),
        }
    }
}

/// Reads what to redact.
fn redact(text: &str) -> Result<Redact, String> {
    match text.split_once('=') {
        Some((name, rule)) if !name.is_empty() => {
            Ok(Redact::Argument(name.to_owned(), rule.parse()?))
        }
        None if text == "preset" => Ok(Redact::ByPreset),
        _ => Err("an argument and a rule, such as sql=literals, or preset".to_owned()),
    }
}

/// Reads when to begin.
fn start_on(text: &str) -> Result<Start, String> {
    match text.split_once(':') {
        Some(("file", "")) => Err("a file's name: file:/tmp/begin".to_owned()),
        Some(("file", path)) => Ok(Start::File(path.into())),
        Some(_) => Ok(Start::Called(text.to_owned())),
        None if text == "resume" => Ok(Start::Resumed),
        None => Err("BIN:FUNC, BIN:FUNC(EXPR==NUMBER), file:PATH or resume".to_owned()),
    }
}

/// Options of a recording.
#[derive(Clone, Debug, Args)]
pub struct RecordArgs {
    /// Probe where items begin and end; repeat for several
    ///
    /// BIN:FUNC is a visit from entry to return of FUNC. BIN:FUNC(id=EXPR, name=EXPR) also reads the item id and
    /// named arguments. BIN:START..END is a visit from START to END, each one of FUNC, FUNC+OFF, FUNC%return, 0xADDR,
    /// 0xADDR%return or FILE:LINE; if both read id=, they are matched by it, else by thread. Visits in Go are matched by
    /// goroutine. BIN:FILE:LINE alone lasts until the
    /// return of its function, BIN:START.. until the next START on the same thread. BIN:usdt:PROVIDER:NAME is a USDT
    /// probe, alone or at either end. BUILDID+0xOFF is a place in the file that has this build id; with ~SHAPE behind it, as
    /// 'suggest' prints it, it is found in a later build, too. A FUNC with * is a pattern: all functions that match are one probe, as are
    /// those of FUNC|FUNC. Double quotes take a BIN or FUNC literally: '"/opt/a:b(c)":"ns::f(int)"'. 'pebs-trace probes BIN' lists functions.
    ///
    /// EXPR is argN, %REG, retval, *(EXPR+OFF):TYPE, str(EXPR), or with debug information a path by name:
    /// req->hdr.id, req->uri, retval->id. str(EXPR, MAX) keeps at most MAX bytes (default 56); str(EXPR, LENGTH)
    /// reads a text without a NUL, such as str(*(arg1+8), *arg1) of an ngx_str_t. A string that was cut ends in "…".
    ///
    /// BIN:FUNC(ids=ARRAY[COUNT]:TYPE) is one visit that serves several items, as in ids=arg2[arg3]:u64; its time is
    /// divided among them. For an array of pointers: ids=arg2[arg3]->16:u64, or by name ids=pkts[n]->id.
    #[expect(
        rustdoc::broken_intra_doc_links,
        reason = "the help shows brackets as they are"
    )]
    #[arg(short = 'u', long = "uprobe", value_name = "SPEC")]
    #[arg(required_unless_present_any = ["presets", "item", "pids", "tids", "cgroup", "container", "pod", "command_line"])]
    #[arg(help_heading = "What to record")]
    pub uprobes: Vec<String>,

    /// Mark where a thread resumes an item (event loops): BIN:FUNC(id=EXPR)
    ///
    /// While several items are open on a thread, its time belongs to none of them until a mark names one. From entry
    /// to return of FUNC the thread works on the open item with this id, the same that --uprobe reads. Other forms:
    /// BIN:START(id=EXPR)..END, and BIN:START(id=EXPR).. until the thread's next mark or sleep. Each mark costs as
    /// much as an item of --uprobe. Repeat for several.
    #[arg(long = "resume", value_name = "SPEC")]
    #[arg(help_heading = "What to record")]
    pub resumes: Vec<String>,

    /// Use the SPECs of a preset, or of a preset's file
    ///
    /// 'pebs-trace presets' lists them. The program is BIN, or that of -p or of the command. Without --uprobe and
    /// --preset the one that fits the program is taken.
    #[arg(long = "preset", value_name = "NAME[=BIN]")]
    #[arg(help_heading = "What to record")]
    pub presets: Vec<String>,
    /// Record a part of a text that may hold personal data only
    ///
    /// NAME is an argument of --uprobe. RULE says what stays of it: literals (of SQL all but literals and comments), query
    /// (of a URL or the first line of a request all but query, fragment and user), route (the same without parts of the path that have a
    /// digit), first-word, or hash (equal texts have the same word, in this recording alone). 'preset' takes the rules of the
    /// preset. The rest is dropped as it comes from the kernel, and is nowhere in the trace. Repeat for several.
    #[arg(long = "redact", value_name = "NAME=RULE", value_parser = redact)]
    #[arg(help_heading = "What to record")]
    pub redact: Vec<Redact>,
    /// Read the item id from this register at each sample
    ///
    /// For user-level threads that keep it in a register (-ffixed-r13), and Go, which has the goroutine in r14 (in Go
    /// code; not in cgo, the vdso and the runtime's assembly). REG:TYPE takes the low bytes: r13:u32. Samples in the
    /// kernel have the user-space value. A visit is a run of samples of a thread with the same id; it begins and ends
    /// half way to the nearest sample with another id, or where the thread slept. Items cost nothing, but those
    /// without a sample are not seen. Needs -p or a command. In bulk the hardware's record has the register. With
    /// --uprobe BIN:START(id=EXPR)..END(id=EXPR) visits are from mark to mark, and ids say whose turn a thread is at.
    #[arg(
        long,
        value_name = "REG",
        group = "item",
        help_heading = "What to record"
    )]
    pub item_reg: Option<String>,
    /// Read the item id from a variable: BIN:SYMBOL+OFF->OFF:TYPE
    ///
    /// Only SYMBOL is required. ./app:current_request:u64 reads 8 bytes (the default),
    /// redis-server:server+0x2f0->0:u64 follows a pointer; -> may be repeated. BIN is an executable or a library
    /// (libfoo.so:current:u32), by default the program of -p or of the command; processes that run or load another
    /// have no items. Visits are as for --item-reg. Uses --transport bpf.
    #[arg(
        long,
        value_name = "VARIABLE",
        group = "item",
        help_heading = "What to record"
    )]
    pub item_mem: Option<String>,
    /// Read the item id from a thread-local variable, as for --item-mem
    #[arg(
        long,
        value_name = "VARIABLE",
        group = "item",
        help_heading = "What to record"
    )]
    pub item_tls: Option<String>,
    /// Treat this id as no item
    #[arg(long, value_name = "ID", default_value = "0", value_parser = item_id, requires = "item")]
    #[arg(help_heading = "What to record", allow_hyphen_values = true)]
    pub item_none: u64,
    /// Sample this event, by its name in perf; repeat for several
    ///
    /// auto is the best precise event that the machine grants, else cpu-clock. Others: task-clock, page-faults,
    /// cycles, events of the CPU such as mem_load_retired.l1_miss, cpu/event=0xc2,umask=0x1/, r01c2,
    /// ibs_op/cnt_ctl=1/, mem:SYMBOL:x (hardware breakpoint), each with :p, :pp, :ppp, :P, :u, :k, :D (pinned: before
    /// others with --multiplex). NAME/period=N/ has its own reset value. 'pebs-trace events' lists them.
    #[arg(short, long = "event", value_name = "EVENT", default_value = "auto")]
    #[arg(help_heading = "What to record")]
    pub events: Vec<String>,
    /// Let events share counters (multiplexing), if there are too few
    ///
    /// Each event is then counted only part of the time, as noted in trace.json (running_ns of enabled_ns).
    #[arg(long, help_heading = "What to record")]
    pub multiplex: bool,
    /// Record the memory access of each sample (table memory)
    ///
    /// Level, snoop, TLB, latency and address. Page faults and Intel's events of loads and stores (mem-loads,
    /// mem_load_retired.l3_miss:pp) have it in any case; with this option also any precise event from Ice Lake on,
    /// and AMD's IBS: with --transport bulk all that its registers hold. A sample then takes 56 bytes of a ring, not
    /// 32. 'pebs-trace report --by memory' summarises it. Not with --call-graph.
    #[arg(long, conflicts_with = "call_graph")]
    #[arg(help_heading = "What to record")]
    pub memory: bool,
    /// Count these events per item, separated by commas (table counts)
    ///
    /// The counters are read at each mark and where a thread of the target leaves and takes a CPU, so that each item
    /// has the counts of its own thread while it worked on it. Names are as for --event: events of the CPU (cycles,
    /// branch-misses, cpu/event=../, :u, :k) or the kernel (page-faults, cpu-migrations, context-switches,
    /// task-clock), breakpoints (mem:FUNC:x), and {cycles,instructions} for events that are counted together. auto:
    /// those that the machine has. If there are more events than counters, they take turns, as noted in the table;
    /// those with :D do not. At most 16. Costs about 0.1 us per event and mark, included in the cost of marks. Needs
    /// switches.
    #[arg(long = "count", value_name = "EVENTS", help_heading = "What to record")]
    pub counts: Vec<String>,
    /// Also count them at intervals of this many ms (table interval_counts)
    ///
    /// For each thread of the target, whatever it works on: like 'perf stat -I', threads that start later included.
    /// The counters are read at a tick of each CPU's clock as well, and at the switches of threads that made no mark.
    /// 'pebs-trace mine TRACE --series intervals' shows what the time depends on. 1 to 60000.
    #[arg(
        short = 'I',
        long,
        value_name = "MS",
        help_heading = "What to record",
        requires = "counts"
    )]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub count_interval: Option<u64>,
    /// How to get samples from the kernel
    ///
    /// bulk: the kernel writes them to perf's rings, with PEBS many per interrupt. bpf: an eBPF program reads each
    /// sample, one per interrupt. auto is bulk if the hardware buffers several samples before an interrupt, else
    /// bpf; the first line of a recording has the choice and its reason.
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    #[arg(help_heading = "What to record")]
    pub transport: TransportArg,
    /// Take a sample every this many events
    ///
    /// For clocks in ns: 16000 is a sample every 16 us of CPU time. Smaller values show more and cost more; the
    /// minimum for clocks is 10000. Default: the value that slows items down by 5 % (--max-overhead), from the cost
    /// of marks and samples on this machine; 16000 where that cost is not known (breakpoints, --transport bulk
    /// without 'pebs-trace calibrate'), which is said before the start.
    #[arg(short = 'c', long, value_name = "EVENTS")]
    #[arg(value_parser = event_count)]
    #[arg(help_heading = "What to record")]
    pub reset: Option<u64>,
    /// Vary distances between samples by chance, by up to this many percent
    ///
    /// Samples at equal distances fall on the same places of items that come at equal distances, and miss the others.
    /// So a clock is eight clocks of different distances, and each distance is drawn anew as often as 0.5 % of a CPU
    /// allows, up to 2,000 times a second; the mean stays --reset. It is one clock where threads come and go, and
    /// below 50 us or 4 times what a sample takes. 0: equal distances. Up to 95. For clocks and events of the CPU with a
    /// reset value of 100 or more. Default: 90 for clocks with --transport bpf; 0 for events of the CPU, and with
    /// --item-reg, --item-mem and --item-tls, as items without a sample are not seen there.
    #[arg(long, value_name = "PERCENT", value_parser = jitter)]
    #[arg(help_heading = "What to record")]
    pub jitter: Option<f64>,
    /// Trace only this process and its children; repeat for several
    #[arg(
        short,
        long = "pid",
        value_name = "PID",
        value_parser = pid,
        conflicts_with = "command_line"
    )]
    #[arg(help_heading = "What to record")]
    pub pids: Vec<u32>,
    /// Trace only this thread; repeat for several
    ///
    /// Threads and processes that it starts are not traced.
    #[arg(short, long = "tid", value_name = "TID", value_parser = tid)]
    #[arg(conflicts_with_all = ["command_line", "pids"], help_heading = "What to record")]
    pub tids: Vec<u32>,
    /// Trace only the processes of this cgroup (version 2)
    ///
    /// Includes processes that join it later, and cgroups below it. PATH is a directory, or relative to the mount
    /// point of cgroups: /system.slice/nginx.service. BIN is the file that a process of the cgroup sees. A process
    /// that leaves the cgroup stays traced.
    #[arg(long, value_name = "PATH", help_heading = "What to record")]
    #[arg(conflicts_with_all = ["command_line", "pids", "tids", "item"])]
    pub cgroup: Option<String>,
    /// Trace only the processes of this container
    ///
    /// ID may be the beginning of an id. Found by the name of its cgroup, as docker, containerd, podman and cri-o set
    /// it.
    #[arg(long, value_name = "ID", help_heading = "What to record")]
    #[arg(conflicts_with_all = ["command_line", "pids", "tids", "item", "cgroup"])]
    pub container: Option<String>,
    /// Trace only the processes of this Kubernetes pod
    ///
    /// All its containers, on this machine. Found by the folder that the kubelet keeps for it in /var/log/pods, also from
    /// within a container with the host's processes.
    #[arg(long, value_name = "NAMESPACE/NAME", help_heading = "What to record")]
    #[arg(conflicts_with_all = ["command_line", "pids", "tids", "item", "cgroup", "container"])]
    pub pod: Option<String>,
    /// Stop after this time
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    #[arg(help_heading = "When to record")]
    pub duration: Option<Duration>,
    /// Begin after this time
    ///
    /// A command runs meanwhile as without a recording.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    #[arg(conflicts_with = "start_on", help_heading = "When to record")]
    pub delay: Option<Duration>,
    /// Begin at a call, when a file is there, or at an order
    ///
    /// BIN:FUNC is the first call of FUNC, BIN:FUNC(EXPR==NUMBER) the first one with that value: ./app:reload(arg1==7).
    /// file:PATH waits for a file, resume for that order of --control or SIGUSR1. Until then nothing is probed but this call.
    #[arg(long, value_name = "WHEN", value_parser = start_on, help_heading = "When to record")]
    pub start_on: Option<Start>,
    /// Stop after this many items, within a twentieth of a second
    #[arg(long, value_name = "ITEMS", value_parser = event_count, help_heading = "When to record")]
    pub stop_after: Option<u64>,
    /// Read orders from this FIFO, which is made if it is not there
    ///
    /// A line each: pause (probes are removed, no sample is taken), resume, note TEXT (kept with the time in the trace),
    /// snapshot or snapshot DIR (what was recorded up to now, as a trace of its own), reset N, max-overhead PERCENT, stop. With it
    /// SIGUSR1 pauses and resumes; SIGUSR2 makes a snapshot in any case.
    #[arg(long, value_name = "FIFO", help_heading = "When to record")]
    pub control: Option<PathBuf>,
    /// How to mark the end of visits of BIN:FUNC
    #[arg(long = "return", value_name = "HOW", value_enum, default_value_t)]
    #[arg(help_heading = "What to record")]
    pub return_mode: ReturnArg,
    /// Take no samples in the kernel
    ///
    /// Time in the kernel is then attributed to the user-space functions sampled before and after it.
    #[arg(long, help_heading = "What to record")]
    pub exclude_kernel: bool,
    /// Do not record context switches: cheaper, but CPU time is unknown
    #[arg(long, help_heading = "What to record")]
    pub no_switches: bool,
    /// Do not record page faults: cheaper for programs with many
    #[arg(long, help_heading = "What to record")]
    pub no_page_faults: bool,
    /// Also record these, separated by commas
    ///
    /// waits: for each wait in an item the thread (or interrupt) that ended it, how long the thread then waited for a
    /// CPU, and who preempted a runnable thread: columns of waits. Costs about 0.6 us per wake-up of a traced thread
    /// and per preemption, and some ns per other wake-up on the machine. With --call-graph also the call stack at
    /// which the thread blocked (waits.stack_id): about 2 us more per wait. Needs switches.
    ///
    /// irq: for each item the time in interrupt handlers and softirqs, without the interrupts of samples:
    /// visits.irq_ns and softirq_ns. Costs about 0.6 us per interrupt on the machine and 0.2 us per softirq.
    ///
    /// faults: for each item the time in page faults, the number of major faults (page read from disk), and the time
    /// in which the thread had to reclaim memory, as its cgroup or the machine had none left: visits.fault_ns,
    /// major_faults and reclaim_ns. Costs about 0.3 us for each.
    ///
    /// freq: the frequency of each CPU ten times a second, if the kernel reports it (cpufreq; rarely in virtual
    /// machines): table frequencies, and in explain the time that items lost to a slower clock. Costs the target
    /// nothing.
    ///
    /// Without this option waits are recorded where a clock samples as often as the budget allows (no --reset): from the
    /// moment on, after a second at the earliest, at which slow items wait for more than a tenth of their time, if it
    /// costs at most half of what the budget leaves beside marks; one line says so. none: never.
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',')]
    #[arg(help_heading = "What to record")]
    pub with: Vec<Extra>,
    /// Attribute samples in inlined code to the inlined function
    ///
    /// Needs debug information. With --call-graph inlined functions are separate frames, before the function that
    /// contains their code.
    #[arg(long, help_heading = "What to record")]
    pub inlined: bool,
    /// Record the call stack of each sample
    ///
    /// eh unwinds the user stack by the unwind tables that compilers write for exceptions, which stock binaries have: a copy
    /// of the stack in use, at most 16 KiB, goes through the ring, is unwound while recording, and dropped. The kernel's
    /// frames are followed as by fp. Stacks that can't be unwound to the thread's first function are truncated, and counted.
    ///
    /// fp follows frame pointers, in the kernel and in user space: programs must be built with
    /// -fno-omit-frame-pointer; in others only the first frame is reliable. At most 127 frames each. Costs about 0.8
    /// us more per sample, and 8 bytes of a ring per frame.
    ///
    /// Both add the table stacks and samples.stack_id to the trace; export shows whole stacks. They need --transport bpf, which
    /// auto then selects.
    ///
    /// lbr takes the CPU's last branch records, which hold the calls that have not returned (Intel from Haswell on,
    /// core events): no frame pointers, user space only, the newest 8 to 32 calls since the thread was first sampled. A
    /// sample takes up to 800 bytes of a ring. Needs --transport bulk, which auto then selects.
    ///
    /// -g without HOW is eh; dwarf, perf's name for it, means eh, too.
    ///
    /// Without this option stacks are taken by eh where a clock samples as often as the budget allows (no --reset, no --with
    /// waits), items keep four fifths of their samples, and the rings hold the copies; one line says so. none: never.
    #[arg(
        short = 'g',
        long,
        value_name = "HOW",
        value_enum,
        help_heading = "What to record"
    )]
    #[arg(num_args = 0..=1, default_missing_value = "eh")]
    pub call_graph: Option<CallGraphArg>,
    /// Write the trace to this directory, which must not exist
    ///
    /// Default: ./pebs-trace-YYYYmmdd-HHMMSS
    #[arg(short, long, value_name = "DIR", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Format of the report
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    pub format: Format,
    /// Close a segment of the trace after this time; a power cut can lose one
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "10")]
    #[arg(help_heading = "Output")]
    pub segment: Duration,
    /// Keep samples and functions of only these items
    ///
    /// slow keeps all details of the items that diverge from the others of their probe (see --slow), decided when the
    /// item ends. All items, kept or not, have a row in visits and count in function_stats: counts, sums and
    /// distributions of each function's time.
    #[arg(long, value_name = "WHICH", value_enum, default_value_t)]
    #[arg(help_heading = "Output")]
    pub keep: KeepArg,
    /// Rule for slow items; needs --keep slow
    ///
    /// p99: among the slowest 1 % so far (p50 to p99.99); 3x: at least three times the median; 500us: at least this
    /// time. p99 and 3x apply to the whole item and to each function in it, and keep everything until there are 100
    /// items to compare with (p99.9: 1,000). With cpu: before it (cpu:p99, cpu:3x, cpu:500us; cpu is cpu:p99) of the
    /// time on the CPU. Default: p99
    #[arg(long, value_name = "RULE", help_heading = "Output")]
    pub slow: Option<SlowBy>,
    /// Exit with 1 if more than this share of samples or marks is lost
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent)]
    #[arg(help_heading = "Limits")]
    pub max_loss: f64,
    /// Keep the slow-down of items below this by taking fewer samples
    ///
    /// 2 and 2% are 2 percent. The reset value is changed while recording, between --reset and --max-reset, by the
    /// measured cost of marks and samples; the first one comes from their cost on this machine. Each change is in
    /// trace.json. Needs a clock, cycles or the like, or page-faults; of several events the samples of all these count, and
    /// those of others do not. Default without --reset: 5 %; where marks alone cost more, samples may add 2 %, and what
    /// short and rare items need: up to twice the cost of marks, or a hundredth of a CPU.
    #[arg(long, value_name = "PERCENT", value_parser = overhead, help_heading = "Limits")]
    #[arg(conflicts_with = "no_switches")]
    pub max_overhead: Option<f64>,
    /// Largest reset value that --max-overhead may set
    ///
    /// Default: 100 times --reset; without --reset as large as the bound requires.
    #[arg(
        long,
        value_name = "EVENTS",
        help_heading = "Limits",
        requires = "max_overhead",
        value_parser = event_count
    )]
    pub max_reset: Option<u64>,
    /// Record even if marks take more than half of the target's CPU time
    ///
    /// Otherwise calls are first counted for a moment, and a place that is called that often, or that every process
    /// of the machine runs (libc.so.6:malloc without -p), is refused.
    #[arg(long, help_heading = "Limits")]
    pub force: bool,
    /// Size of each CPU's ring: a power of two, 4KiB to 64MiB
    ///
    /// Default: 512KiB; 4MiB where records hold a part of the stack: with --call-graph eh, given or chosen, and with --with
    /// waits and any call graph.
    #[arg(long, value_name = "BYTES", value_parser = ring_size)]
    #[arg(help_heading = "Limits")]
    pub ring_size: Option<u32>,
    /// Memory for pending records; above it samples are dropped and counted
    ///
    /// At least 16MiB. Other memory of the tool grows with threads and functions, not with time.
    #[arg(long, value_name = "BYTES", default_value = "512MiB", value_parser = memory)]
    #[arg(help_heading = "Limits")]
    pub max_memory: u64,
    /// Stop once the trace has this size
    ///
    /// After ten seconds it is said when that will be, at the rate so far.
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Limits")]
    pub max_size: Option<u64>,
    /// Memory for different call stacks (default: an eighth of --max-memory): for tests of what is lost.
    #[arg(long, value_name = "BYTES", value_parser = bytes, hide = true)]
    pub stack_memory: Option<u64>,
    /// Clock that samples are timed with: for tests of the conversion between kernel clocks.
    #[arg(long, value_enum, default_value_t, hide = true)]
    pub sample_clock: SampleClockArg,
    /// Start this command, trace it and its children, and end with it
    #[arg(last = true, value_name = "CMD", id = "command_line")]
    pub command_line: Vec<OsString>,
}

/// Clock of samples of software events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SampleClockArg {
    /// `CLOCK_MONOTONIC`, like marks.
    #[default]
    Monotonic,
    /// The perf clock, as hardware samples have it.
    Perf,
}

/// Size of a ring that holds copied stacks, unless it is given, bytes.
const RING_WITH_COPIES: u32 = 4 << 20;

impl RecordArgs {
    /// Size of each CPU's ring, bytes.
    fn ring_bytes(&self) -> u32 {
        let has_copies = match self.call_graph {
            Some(CallGraphArg::Eh) => true,
            Some(CallGraphArg::Fp | CallGraphArg::Lbr) => self.with.contains(&Extra::Waits),
            Some(CallGraphArg::None) | None => false,
        };
        let usual = if has_copies {
            RING_WITH_COPIES
        } else {
            512 << 10
        };
        self.ring_size.unwrap_or(usual)
    }

    /// The recording that was asked for.
    ///
    /// # Errors
    /// This version can't do that.
    pub(super) fn recording(&self) -> Result<Recording> {
        let has = |extra| self.with.contains(&extra);
        if has(Extra::None) && self.with.len() > 1 {
            return Err(Failure::new(
                "cannot record with nothing and something else (--with none)".to_owned(),
                "leave 'none' out of --with".to_owned(),
            ));
        }
        Ok(Recording {
            uprobes: self.uprobes.clone(),
            resumes: self.resumes.clone(),
            presets: self.presets.clone(),
            redact: self.redact.iter().filter_map(Redact::argument).collect(),
            redact_by_preset: self.redact.contains(&Redact::ByPreset),
            item: self.item(),
            item_none: self.item_none,
            events: self.events.clone(),
            multiplex: self.multiplex,
            memory: self.memory,
            counts: self.counts.clone(),
            count_interval: self.count_interval.map(Duration::from_millis),
            transport: self.transport.into(),
            reset: self.reset,
            jitter: self.jitter,
            target: self.target(),
            start: match (self.delay, &self.start_on) {
                (Some(time), _) => Start::After(time),
                (None, Some(start)) => start.clone(),
                (None, None) => Start::AtOnce,
            },
            pausable: self.control.is_some(),
            duration: self.duration,
            stop_after: self.stop_after,
            max_size: self.max_size,
            return_mode: match self.return_mode {
                ReturnArg::Auto => ReturnMode::Auto,
                ReturnArg::Uretprobe => ReturnMode::Uretprobe,
                ReturnArg::Ret => ReturnMode::Ret,
            },
            exclude_kernel: self.exclude_kernel,
            kinds: RecordKinds {
                switches: !self.no_switches,
                page_faults: !self.no_page_faults,
                encounters: has(Extra::Waits),
                encounters_later: self.with.is_empty(),
                interference: Interferences {
                    irq: has(Extra::Irq),
                    faults: has(Extra::Faults),
                },
            },
            frequencies: has(Extra::Freq),
            inlined: self.inlined,
            call_graph: CallGraphArg::taken(self.call_graph),
            output: self.output.clone().unwrap_or_else(default_output),
            segment: self.segment,
            keep: match self.keep {
                KeepArg::All => KeepItems::All,
                KeepArg::Slow => KeepItems::Slow,
                KeepArg::None => KeepItems::None,
            },
            slow: self.slow,
            max_overhead: self.max_overhead,
            max_reset: self.max_reset,
            force: self.force,
            ring_size: self.ring_bytes(),
            ring_size_with_stacks: self.ring_size.unwrap_or(RING_WITH_COPIES),
            max_memory: self.max_memory,
            stack_memory: self.stack_memory,
            sample_clock: match self.sample_clock {
                SampleClockArg::Monotonic => SampleClock::Monotonic,
                SampleClockArg::Perf => SampleClock::Perf,
            },
            patient: false,
        })
    }

    /// Returns the source of item ids at samples, if they have one.
    fn item(&self) -> Option<ItemId> {
        let reg = self.item_reg.clone().map(ItemId::Reg);
        let mem = self.item_mem.clone().map(ItemId::Mem);
        let tls = self.item_tls.clone().map(ItemId::Tls);
        reg.or(mem).or(tls)
    }

    /// Returns the processes whose items are recorded: clap takes one of these options only.
    fn target(&self) -> Target {
        match (&self.cgroup, &self.container, &self.pod) {
            (Some(path), ..) => Target::Cgroup(path.clone()),
            (_, Some(id), _) => Target::Container(id.clone()),
            (.., Some(name)) => Target::Pod(name.clone()),
            _ if !self.command_line.is_empty() => Target::Command(self.command_line.clone()),
            _ if !self.pids.is_empty() => {
                Target::Processes(self.pids.iter().copied().map(Pid).collect())
            }
            _ if !self.tids.is_empty() => {
                Target::Threads(self.tids.iter().copied().map(Tid).collect())
            }
            _ => Target::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: RecordArgs,
    }

    fn recording(words: &str) -> Result<Recording> {
        let words = ["pebs-trace"].into_iter().chain(words.split(' '));
        Line::try_parse_from(words)?.args.recording()
    }

    /// A library's recording has the defaults of the command line.
    #[test]
    fn defaults() {
        let expect = Recording {
            uprobes: vec!["app:f".to_owned()],
            ..Recording::new("t")
        };
        assert_eq!(recording("-u app:f -o t").unwrap(), expect);
    }

    /// Waits may be recorded later unless `--with` says what is recorded; nothing goes with nothing else.
    #[test]
    fn with() {
        let kinds = |words: &str| recording(&format!("-u app:f {words}")).map(|it| it.kinds);
        let waits = |words: &str| {
            let kinds = kinds(words).unwrap();
            (kinds.encounters, kinds.encounters_later)
        };
        assert_eq!(waits("--jitter 0"), (false, true));
        assert_eq!(waits("--with none"), (false, false));
        assert_eq!(waits("--with waits,irq"), (true, false));
        assert_eq!(waits("--with irq"), (false, false));
        let error = kinds("--with none,irq").unwrap_err();
        assert!(error.to_string().contains("--with none"), "{error}");
    }

    /// Options of the start, and of what may pause a recording, are understood.
    #[test]
    fn starts() {
        let of = |words: &str| recording(&format!("-u app:f {words}")).unwrap();
        assert_eq!(of("--delay 2").start, Start::After(Duration::from_secs(2)));
        assert_eq!(of("--start-on file:/a").start, Start::File("/a".into()));
        assert_eq!(of("--start-on resume").start, Start::Resumed);
        let call = Start::Called("app:f(arg1==2)".to_owned());
        assert_eq!(of("--start-on app:f(arg1==2)").start, call);
        assert!(recording("-u app:f --start-on soon").is_err());
        assert!(of("--control /tmp/orders").pausable && !of("--stop-after 9").pausable);
    }

    /// Each target is taken for what it is; perf's name for unwinding by tables is known.
    #[test]
    fn targets() {
        let of = |words: &str| recording(&format!("-u app:f {words}")).unwrap().target;
        assert_eq!(of("-p 7 -p 8"), Target::Processes(vec![Pid(7), Pid(8)]));
        assert_eq!(of("-t 7"), Target::Threads(vec![Tid(7)]));
        assert_eq!(of("--cgroup a"), Target::Cgroup("a".to_owned()));
        assert_eq!(of("--container b"), Target::Container("b".to_owned()));
        assert_eq!(of("--pod a/b"), Target::Pod("a/b".to_owned()));
        assert_eq!(
            of("-- ls -l"),
            Target::Command(vec!["ls".into(), "-l".into()])
        );
        let by = |how: &str| recording(&format!("-u app:f --call-graph {how}")).unwrap();
        assert_eq!(by("eh").call_graph, Some(crate::record::CallGraph::Eh));
        assert_eq!(by("dwarf").call_graph, Some(crate::record::CallGraph::Eh));
        assert_eq!(by("none").call_graph, None);
    }
}
