//! Options of a recording. Doc comments are the help.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, ValueEnum};

use crate::cmd::report::Format;
use crate::cmd::values::{
    bytes, event_count, item_id, memory, overhead, percent, pid, ring_size, seconds, tid,
};
use crate::estimate::baseline::Rule;
use crate::failure::Result;
use crate::probe::item::Typed;

/// How to end visits of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReturnArg {
    /// Where the function's own code leaves, at the instruction that costs least
    #[default]
    Auto,
    /// A uretprobe; breaks programs that throw through the function or switch stacks
    Uretprobe,
    /// On the return instructions and tail jumps themselves
    Ret,
}

/// How samples come from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TransportArg {
    /// bulk where the hardware collects samples, else bpf
    #[default]
    Auto,
    /// A program sees each sample
    Bpf,
    /// The kernel writes samples into perf's rings
    Bulk,
}

/// How call stacks of samples are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CallGraph {
    /// By frame pointers
    Fp,
    /// By the CPU's record of calls
    Lbr,
    /// By unwind tables, as perf does: refused.
    #[value(hide = true)]
    Dwarf,
}

impl CallGraph {
    /// The name on the command line and in `trace.json`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp => "fp",
            Self::Lbr => "lbr",
            Self::Dwarf => "dwarf",
        }
    }
}

/// What else is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Extra {
    /// Who woke a waiting thread, and who took the CPU from one that could go on
    Waits,
    /// Time that interrupts took within items
    Irq,
    /// Time that page faults took within items, and how many had to read the page
    Faults,
    /// How fast the CPUs ran
    Freq,
}

/// Whose details to keep.
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

/// Options of a recording.
#[derive(Clone, Debug, Args)]
pub struct RecordArgs {
    /// Probe the place where items start and finish; repeat for several
    ///
    /// BIN:FUNC is one visit from entry to return of FUNC. BIN:FUNC(id=EXPR, name=EXPR) reads the
    /// item id and named arguments. BIN:START..END is from START to END; each may be FUNC,
    /// FUNC+OFF, FUNC%return, 0xADDR, 0xADDR%return or FILE:LINE, and where both give id= they are matched by it.
    /// BIN:FILE:LINE alone is from that line to the return of its function.
    /// BIN:START.. is until the next START on the same thread. BIN:usdt:PROVIDER:NAME is a USDT probe, alone or at either
    /// end. EXPR is argN, %REG, retval,
    /// *(EXPR+OFF):TYPE, str(EXPR), or with debug information a path by name: req->hdr.id, req->uri, retval->id. 'pebs-trace probes BIN' lists functions.
    /// str(EXPR, MOST) keeps at most MOST bytes (56 without), and str(EXPR, LENGTH) is a text without a NUL:
    /// str(*(arg1+8), *arg1) of an ngx_str_t. A string that goes on behind what was kept ends in "…".
    /// Double quotes take a BIN or FUNC as it is: '"/opt/a:b(c)":"ns::f(int)"'.
    /// BIN:FUNC(ids=ARRAY[COUNT]:TYPE) is one visit that serves several items, as in ids=arg2[arg3]:u64: its time is shared
    /// out among them; of what an array points to it is ids=arg2[arg3]->16:u64, by name ids=pkts[n]->id. With * in it FUNC
    /// is a pattern: all functions that match are one probe.
    #[expect(
        rustdoc::broken_intra_doc_links,
        reason = "the help shows brackets as they are"
    )]
    #[arg(short = 'u', long = "uprobe", value_name = "SPEC")]
    #[arg(required_unless_present_any = ["presets", "item"])]
    #[arg(help_heading = "What to record")]
    pub uprobes: Vec<String>,

    /// Mark where a thread continues an item, for event loops: BIN:FUNC(id=EXPR)
    ///
    /// While several items are open on a thread, its time belongs to none of them unless a mark says which one it turned
    /// to. From the entry of FUNC to its return the thread works on the open item with this id, the same that --uprobe
    /// reads. The other forms of SPEC: BIN:START(id=EXPR)..END, and BIN:START(id=EXPR).. until the thread's next mark,
    /// or until it sleeps. Costs as much as an item of --uprobe, each time. Several are allowed.
    #[arg(long = "resume", value_name = "SPEC")]
    #[arg(help_heading = "What to record")]
    pub resumes: Vec<String>,

    /// Use SPECs made for one kind of program: go, tokio, or a file
    ///
    /// go: goroutines, by their number; tokio: polls of tasks. The program is that of -p or of the command, or BIN. A file has
    /// one SPEC a line, {bin} stands for the program, {goid} for where its Go runtime has a goroutine's number, and # begins a remark.
    #[arg(long = "preset", value_name = "NAME[=BIN]")]
    #[arg(help_heading = "What to record")]
    pub presets: Vec<String>,
    /// Read the item id from this register at each sample, instead of marking items
    ///
    /// For user-level threads that keep it in a register (-ffixed-r13), and Go, whose goroutine is in r14
    /// (in Go's own code: not in cgo, the vdso, and the runtime's assembly). REG:TYPE takes the low bytes:
    /// r13:u32. Samples in the kernel have the register as it was in user space. A visit is a run of samples
    /// of a thread with the same id; its begin and end are half way to the nearest sample with another
    /// id, cut where the thread slept. Items cost nothing then, but those without a sample are not seen.
    /// Needs -p or a command. Samples come by --transport bpf.
    #[arg(
        long,
        value_name = "REG",
        group = "item",
        help_heading = "What to record"
    )]
    pub item_reg: Option<String>,
    /// Read it from a variable of the program: BIN:SYMBOL+OFF->OFF:TYPE
    ///
    /// Only SYMBOL must be given. ./app:current_request:u64 reads 8 bytes (the default),
    /// redis-server:server+0x2f0->0:u64 follows a pointer; -> may be repeated. Without BIN it is the program of -p or of the command. BIN is an executable, or a library
    /// (libfoo.so:current:u32); processes that run or load another have no items. A visit is what --item-reg says.
    #[arg(
        long,
        value_name = "VARIABLE",
        group = "item",
        help_heading = "What to record"
    )]
    pub item_mem: Option<String>,
    /// Read it from a thread-local variable of the program, written as for --item-mem
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
    /// Sample this event, as perf names it; repeat for several
    ///
    /// auto is the best precise event that the machine grants, else cpu-clock. Also task-clock,
    /// page-faults, cycles, the CPU's own such as mem_load_retired.l1_miss, cpu/event=0xc2,umask=0x1/,
    /// r01c2, ibs_op/cnt_ctl=1/, mem:SYMBOL:x (hardware breakpoint), each with :p, :pp, :ppp, :P, :u,
    /// :k, :D (pinned: before others with --multiplex). 'pebs-trace events' lists what there is.
    #[arg(short, long = "event", value_name = "EVENT", default_value = "auto")]
    #[arg(help_heading = "What to record")]
    pub events: Vec<String>,
    /// Let events take turns where there are more of them than counters
    ///
    /// Each is then counted a part of the time only, which trace.json says (running_ns of enabled_ns).
    #[arg(long, help_heading = "What to record")]
    pub multiplex: bool,
    /// Keep the memory access of each sample: table memory
    ///
    /// Level, snoop, TLB, latency and address. Page faults and Intel's events of loads and stores
    /// (mem-loads, mem_load_retired.l3_miss:pp) have it without being asked; with this also any precise
    /// event from Ice Lake on, and AMD's IBS: with --transport bulk all that its registers say. A sample
    /// then takes 56 bytes of a ring, not 32. 'pebs-trace report --by memory' sums it up. Not with --call-graph.
    #[arg(long, conflicts_with = "call_graph")]
    #[arg(help_heading = "What to record")]
    pub memory: bool,
    /// Count these events for each item: table counts; a list with commas
    ///
    /// The counters are read at each mark and where a thread of the target leaves and takes a CPU, so that each item has what
    /// its own thread did while it worked on it. perf's names as for --event, of the CPU (cycles, branch-misses, cpu/event=../, :u, :k)
    /// or the kernel (page-faults, cpu-migrations, context-switches, task-clock), breakpoints (mem:FUNC:x), and {cycles,instructions} for
    /// events that are counted together. auto: what there is. Where there are more events than counters they
    /// take turns, and the table says so; those with :D do not. At most 16. Costs about 0.1 us for each event and mark, which is part of what marks cost. Needs
    /// switches.
    #[arg(long = "count", value_name = "EVENTS", help_heading = "What to record")]
    pub counts: Vec<String>,
    /// Also count them in intervals of this many ms: table interval_counts
    ///
    /// Of each thread of the target, whatever it works on: as 'perf stat -I', and for threads that start later. The counters are read at a
    /// tick of each CPU's clock as well, and at the switches of threads that made no mark. 'pebs-trace mine TRACE --series intervals'
    /// says what the time depends on. 1 to 60000.
    #[arg(
        short = 'I',
        long,
        value_name = "MS",
        help_heading = "What to record",
        requires = "counts"
    )]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub count_interval: Option<u64>,
    /// How samples come from the kernel
    ///
    /// bulk: the kernel writes them into perf's rings by itself, on PEBS many for one interrupt. bpf: a
    /// program sees each sample, with one interrupt each. auto is bulk where the hardware collects
    /// several records before an interrupt, else bpf; the first line of a recording says which, and why.
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    #[arg(help_heading = "What to record")]
    pub transport: TransportArg,
    /// Take a sample every so many events
    ///
    /// For clocks in ns: 16000 is a sample every 16 us of CPU time. Smaller values show more and cost more; clocks go
    /// no lower than 10000. Default: the value that slows items down by 5 % (--max-overhead), by the cost of marks and
    /// samples on this machine; 16000 where that cannot be kept (several events, --transport bulk, breakpoints).
    #[arg(short = 'c', long, value_name = "EVENTS")]
    #[arg(value_parser = event_count)]
    #[arg(help_heading = "What to record")]
    pub reset: Option<u64>,
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
    /// Trace only the processes of this cgroup (version 2), those that join it later included
    ///
    /// A directory, or its path below where cgroups are mounted: /system.slice/nginx.service. Cgroups below it
    /// belong to it. BIN is the file that a process of it sees. A process that leaves it stays traced.
    #[arg(long, value_name = "PATH", help_heading = "What to record")]
    #[arg(conflicts_with_all = ["command_line", "pids", "tids", "item"])]
    pub cgroup: Option<String>,
    /// Trace only the processes of this container; the first letters of its id are enough
    ///
    /// Found by the name of its cgroup, as docker, containerd, podman and cri-o give it.
    #[arg(long, value_name = "ID", help_heading = "What to record")]
    #[arg(conflicts_with_all = ["command_line", "pids", "tids", "item", "cgroup"])]
    pub container: Option<String>,
    /// Stop after this time
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    #[arg(help_heading = "What to record")]
    pub duration: Option<std::time::Duration>,
    /// End visits of BIN:FUNC by this means
    #[arg(long = "return", value_name = "HOW", value_enum, default_value_t)]
    #[arg(help_heading = "What to record")]
    pub return_mode: ReturnArg,
    /// Take no samples in the kernel
    ///
    /// Time there then counts for the functions of user space that are sampled before and after.
    #[arg(long, help_heading = "What to record")]
    pub exclude_kernel: bool,
    /// Do not record context switches: cheaper, but time on the CPU is then unknown
    #[arg(long, help_heading = "What to record")]
    pub no_switches: bool,
    /// Do not record page faults: cheaper for programs that take many
    #[arg(long, help_heading = "What to record")]
    pub no_page_faults: bool,
    /// Record these as well, separated by commas
    ///
    /// waits: for each wait in an item the thread that ended it (or that it was an interrupt), how long the
    /// thread then waited for a CPU, and who took the CPU from one that could have gone on: columns of waits.
    /// Costs about 0.6 us for each wake-up of a traced thread and each preemption, and some ns for every other
    /// wake-up on the machine. With --call-graph also the call stack at which the thread blocked
    /// (waits.stack_id): about 2 us more for each wait. Needs switches.
    ///
    /// irq: for each item the time in handlers of interrupts and in the softirqs that they left for later, the
    /// interrupts of samples aside: visits.irq_ns and softirq_ns. Costs about 0.6 us for each interrupt on the machine
    /// and 0.2 us for each softirq.
    ///
    /// faults: for each item the time in page faults, how many had to read the page, and the time in which the thread had to
    /// reclaim memory as its cgroup or the machine had none left: visits.fault_ns, major_faults and reclaim_ns. Costs about
    /// 0.3 us for each.
    ///
    /// freq: the frequency of each CPU ten times a second, where the kernel says it (cpufreq; rarely in virtual machines):
    /// table frequencies, and in explain what items lost to a slower clock. Costs the target nothing.
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',')]
    #[arg(help_heading = "What to record")]
    pub with: Vec<Extra>,
    /// Attribute samples in inlined code to the inlined function; needs debug information
    ///
    /// With --call-graph inlined functions are frames of their own, before the function whose code they are in.
    #[arg(long, help_heading = "What to record")]
    pub inlined: bool,
    /// Record the call stack of each sample
    ///
    /// fp follows frame pointers, in the kernel and in user space: programs have to be built with
    /// -fno-omit-frame-pointer, in others only the first frame is reliable. At most 127 frames each. Costs
    /// about 0.8 us more a sample, and 8 bytes a frame on the way. The trace then has the table stacks and
    /// samples.stack_id; export shows whole stacks. Needs --transport bpf, which auto then is.
    ///
    /// lbr takes the CPU's own record of calls that have not returned (Intel from Haswell on, events of its cores): no frame
    /// pointers, nothing to follow, user space only, the newest 8 to 32 calls since the thread is sampled. A sample takes up
    /// to 800 bytes of a ring. Needs --transport bulk, which auto then is.
    ///
    /// Without HOW it is fp, so that -g is what it is for perf record.
    #[arg(
        short = 'g',
        long,
        value_name = "HOW",
        value_enum,
        help_heading = "What to record"
    )]
    #[arg(num_args = 0..=1, default_missing_value = "fp")]
    pub call_graph: Option<CallGraph>,
    /// Write the trace to this directory, which must not exist
    ///
    /// Default: ./pebs-trace-YYYYmmdd-HHMMSS
    #[arg(short, long, value_name = "DIR", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Print the report in this form
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    pub format: Format,
    /// Close a segment of the trace after this time: what a power cut can cost
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "10")]
    #[arg(help_heading = "Output")]
    pub segment: std::time::Duration,
    /// Keep samples and functions of these items only
    ///
    /// slow keeps all details of the items that diverge from the others of their probe (see --slow): the decision is
    /// made when the item ends. All items, kept or not, have a row in visits and count in function_stats: counts, sums
    /// and distributions of each function's time.
    #[arg(long, value_name = "WHICH", value_enum, default_value_t)]
    #[arg(help_heading = "Output")]
    pub keep: KeepArg,
    /// Call items slow by this rule; needs --keep slow
    ///
    /// p99 is among the slowest 1 % so far (p50 to p99.99), 3x at least three times the median, 500us
    /// at least this time. p99 and 3x are judged for the whole item and for each function in it,
    /// and keep everything until there are 100 items to compare with (p99.9: 1,000). Default: p99
    #[arg(long, value_name = "RULE", help_heading = "Output")]
    pub slow: Option<Rule>,
    /// Exit with 1 if more than this share of samples or marks was lost
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent)]
    #[arg(help_heading = "Limits")]
    pub max_loss: f64,
    /// Keep the slow-down of items below this by taking fewer samples
    ///
    /// 2 and 2% are 2 percent. The reset value is changed while recording, from --reset up to
    /// --max-reset and back, as the measured cost of marks and samples asks for; the first one comes from what
    /// they cost here. Each change is in trace.json. Takes one event: a clock, cycles or the like, or page-faults.
    /// Without this and --reset it is 5 %; where marks alone cost more, samples get 2 % on top.
    #[arg(long, value_name = "PERCENT", value_parser = overhead, help_heading = "Limits")]
    #[arg(conflicts_with = "no_switches")]
    pub max_overhead: Option<f64>,
    /// Largest reset value that --max-overhead may take
    ///
    /// Default: 100 times --reset; without --reset as large as the bound asks for.
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
    /// Otherwise calls are first counted for a moment, and a place that is called that often, or that every
    /// process of the machine runs (libc.so.6:malloc without -p), is refused.
    #[arg(long, help_heading = "Limits")]
    pub force: bool,
    /// Size of each CPU's ring; a power of two, 4KiB to 64MiB
    #[arg(long, value_name = "BYTES", default_value = "512KiB", value_parser = ring_size)]
    #[arg(help_heading = "Limits")]
    pub ring_size: u32,
    /// Memory for waiting records; beyond it samples are dropped and counted
    ///
    /// At least 16MiB. The tool's other memory grows with threads and functions, not with time.
    #[arg(long, value_name = "BYTES", default_value = "512MiB", value_parser = memory)]
    #[arg(help_heading = "Limits")]
    pub max_memory: u64,
    /// Memory for different call stacks (default: an eighth of --max-memory): for tests of what is lost.
    #[arg(long, value_name = "BYTES", value_parser = bytes, hide = true)]
    pub stack_memory: Option<u64>,
    /// Clock that samples are timed with: for tests of the conversion between kernel clocks.
    #[arg(long, value_enum, default_value_t, hide = true)]
    pub sample_clock: SampleClock,
    /// Start this command, trace it and its children, and end with it
    #[arg(last = true, value_name = "CMD", id = "command_line")]
    pub command_line: Vec<OsString>,
}

impl RecordArgs {
    /// Reads a command line, the program's name first.
    pub(in crate::cmd) fn parse(words: Vec<OsString>) -> Result<Self, clap::Error> {
        #[derive(Parser)]
        #[command(name = "pebs-trace")]
        struct Recording {
            #[command(flatten)]
            record: RecordArgs,
        }
        Ok(Recording::try_parse_from(words)?.record)
    }

    /// Where item ids are read at samples, if they are.
    #[must_use]
    pub fn item(&self) -> Option<Typed<'_>> {
        let reg = self.item_reg.as_deref().map(Typed::Reg);
        let mem = self.item_mem.as_deref().map(Typed::Mem);
        let tls = self.item_tls.as_deref().map(Typed::Tls);
        reg.or(mem).or(tls)
    }
}

/// Clock of samples of software events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SampleClock {
    /// `CLOCK_MONOTONIC`, like marks.
    #[default]
    Monotonic,
    /// The perf clock, as hardware samples have it.
    Perf,
}
