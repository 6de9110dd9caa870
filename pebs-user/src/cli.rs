//! What can be typed. Doc comments are the help.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use crate::cmd::{
    calibrate, diff, doctor, events, explain, export, html, import, plan, probes, recover, report,
    selftest, view,
};
use crate::estimate::baseline::Rule;
use crate::probe::item::Typed;
use crate::selftest::workload::WorkloadArgs;
use crate::terminal::Color;

/// Tell why one item was slow on an unmodified program
///
/// Puts probes on the functions that start and finish an item (request, packet, query), samples
/// the CPU, works out which item each sample belongs to, and writes a trace in Parquet: the time
/// of every function for every single item. At the end it prints a report.
///
/// Exit status: 0 complete; 1 finished, but loss above --max-loss or the trace is cut; 2 could not run.
#[derive(Debug, Parser)]
#[command(name = "pebs-trace", version, args_conflicts_with_subcommands = true)]
#[command(subcommand_negates_reqs = true, max_term_width = 100)]
pub struct Cli {
    /// What to do instead of recording.
    #[command(subcommand)]
    pub command: Option<Cmd>,
    /// How to record.
    #[command(flatten)]
    pub record: RecordArgs,
    /// Say more: -v the steps, -vv also what programs and libraries log
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub verbose: u8,
    /// Colour what is printed for people
    ///
    /// auto: on a terminal, unless NO_COLOR is set; CLICOLOR_FORCE=1 does in a pipe, too. Lines are as wide as the
    /// terminal, 120 columns in a pipe or a file; COLUMNS sets another width.
    #[arg(long, value_enum, default_value_t, value_name = "WHEN", global = true)]
    pub color: Color,
}

/// Everything but recording.
#[derive(Debug, Subcommand)]
pub enum Cmd {
    /// Print the report of a trace
    Report(report::ReportArgs),
    /// Say why slow items were slow, ranked, and how sure that is
    ///
    /// Compares the slow items of each group of like ones with its typical ones, and divides what they
    /// take longer: functions on the CPU (from samples), waits off it by the function that blocked,
    /// preemption. All shares and an unexplained rest sum to the difference. Each has its samples and a
    /// 95 % interval: a bootstrap over items, given which are slow. Typical is the middle half of the group
    /// by duration, slow ones excluded; of a trace recorded with --keep, the items that were not kept.
    /// 'because' names a test of an argument that tells slow items from others (Fisher's exact test,
    /// corrected for all tests searched): it goes along with slowness, which does not prove it the reason.
    Explain(explain::ExplainArgs),
    /// Look at a trace in the terminal: items in a list, enter to open one
    ///
    /// The list sorts by duration, time on the CPU, item id or begin, and filters by probe and by a text in
    /// the arguments. An item shows its functions with their errors, its waits and what happened to its
    /// thread, beside what is typical of its probe. '?' lists the keys.
    View(view::ViewArgs),
    /// Compare two traces: which function's time per item changed
    ///
    /// Functions are the same if the file name of their module and their name are; the binary with the probe may
    /// be called otherwise. Each figure has an interval; all of them hold at once in 95 of 100 comparisons, so that
    /// two runs of the same build do not differ by chance. What differs between runs as wholes (frequency, neighbours) no interval of one run
    /// holds: set --fail-above well above it.
    ///
    /// Exit status: 0 compared; 3 something is above --fail-above; 2 could not compare.
    Diff(diff::DiffArgs),
    /// Make a trace of a recording that perf made
    Import(import::ImportArgs),
    /// Write a trace in the format of another tool
    ///
    /// Says on stderr which visits the output shows, and by what they are weighed: perfetto and firefox
    /// show every sample at its time; pprof, speedscope, folded and flamegraph the estimated CPU time
    /// of functions (self_ns; of an event that is no clock, events) and the time of waits, so that the
    /// parts of an item add up to its duration. csv, folded and flamegraph take traces of any size; the
    /// others hold 100,000 visits, and of more the slowest and a uniform sample. Of a trace
    /// recorded with --call-graph a stack is the probe and all that called the function, and an estimate is
    /// divided among its stacks by their samples; else it is the probe and the function.
    Export(export::ExportArgs),
    /// Write a trace as one self-contained page
    ///
    /// Latency over time, functions of selected items against typical ones, functions of each item, time
    /// lines, and the report. The page needs no network and no other file. It holds 10,000 visits; of
    /// more, the slow ones and a uniform sample of the others, and says so.
    Html(html::HtmlArgs),
    /// Finish the open segments of a trace whose recorder was killed
    Recover(recover::RecoverArgs),
    /// List what can be probed in a binary, and how
    Probes(probes::ProbesArgs),
    /// List the events that can be sampled, and how precisely
    Events(events::EventsArgs),
    /// Check what this machine can do, and print how to fix what is missing
    Doctor(doctor::DoctorArgs),
    /// Measure what a sample and a mark cost on this machine, and keep it
    Calibrate(calibrate::CalibrateArgs),
    /// Find the reset value for a bound on the overhead, before recording
    Plan(plan::PlanArgs),
    /// Measure how exact this tool is on this machine
    Selftest(selftest::SelftestArgs),
    /// Be the workload that the self-test records.
    #[command(hide = true)]
    SelftestWorkload(WorkloadArgs),
}

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
    /// As it is typed, and as `trace.json` has it.
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

    /// Mark where a thread goes on with an item, for event loops: BIN:FUNC(id=EXPR)
    ///
    /// While several items are open on a thread, its time belongs to none of them unless a mark says which one it turned
    /// to. From the entry of FUNC to its return the thread works on the open item with this id, which is as --uprobe reads it. The
    /// other forms of SPEC: BIN:START(id=EXPR)..END, and BIN:START(id=EXPR).. until the thread's next mark, or until
    /// it sleeps. Costs as much as an item of --uprobe, each time. Several are allowed.
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
    /// Take this id for no item
    #[arg(long, value_name = "ID", default_value = "0", value_parser = item_id, requires = "item")]
    #[arg(help_heading = "What to record", allow_hyphen_values = true)]
    pub item_none: u64,
    /// Sample this event, as perf names it; repeat for several
    ///
    /// auto is the best precise event that the machine grants, else cpu-clock. Also task-clock,
    /// page-faults, cycles, the CPU's own such as mem_load_retired.l1_miss, cpu/event=0xc2,umask=0x1/,
    /// r01c2, ibs_op/cnt_ctl=1/, mem:SYMBOL:x (hardware breakpoint), each with :p, :pp, :ppp, :P, :u,
    /// :k. 'pebs-trace events' lists what there is.
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
    /// How samples come from the kernel
    ///
    /// bulk: the kernel writes them into perf's rings by itself, on PEBS many for one interrupt. bpf: a
    /// program sees each sample, with one interrupt each. auto is bulk where the hardware collects
    /// several records before an interrupt, else bpf; the first line says which, and why.
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    #[arg(help_heading = "What to record")]
    pub transport: TransportArg,
    /// Take a sample every so many events
    ///
    /// For clocks in ns: 16000 is a sample every 16 us of CPU time. Smaller sees more and costs
    /// more; clocks go no lower than 10000. Default: as often as slows items down by 5 % (--max-overhead),
    /// by what marks and samples cost here; 16000 where that cannot be kept (several events, --transport bulk,
    /// breakpoints).
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
    /// Record also this; a list with commas
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
    /// faults: for each item the time in page faults, and how many had to read the page: visits.fault_ns and
    /// major_faults. Costs about 0.3 us for each.
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
    /// -fno-omit-frame-pointer, of others only the first frame is sure. At most 127 frames each. Costs
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
    pub format: report::Format,
    /// Close a segment of the trace after this time: what a power cut can cost
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "10")]
    #[arg(help_heading = "Output")]
    pub segment: std::time::Duration,
    /// Keep samples and functions of these items only
    ///
    /// slow keeps the items that diverge from the others of their probe (see --slow), whole: the
    /// decision falls when the item ends. Of all items, kept or not, there remain a row in visits
    /// and their part in function_stats: counts, sums and distributions of each function's time.
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
    /// Record although marks would take more than half of the target's CPU time
    ///
    /// Otherwise what is probed is first counted for a moment, and a place that is called that often, or that every
    /// process of the machine runs (libc.so.6:malloc without -p), is refused.
    #[arg(long, help_heading = "Limits")]
    pub force: bool,
    /// Size of each CPU's ring; a power of two, 4KiB to 64MiB
    #[arg(long, value_name = "BYTES", default_value = "512KiB", value_parser = ring_size)]
    #[arg(help_heading = "Limits")]
    pub ring_size: u32,
    /// Memory for records that wait; beyond it samples are dropped and counted
    ///
    /// At least 16MiB. What else the tool needs grows with threads and functions, not with time.
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

/// Reads a number of events.
pub(crate) fn event_count(text: &str) -> Result<u64, String> {
    let wanted = "a number of events without a unit (16000; of clocks: ns)";
    text.parse().map_err(|_| wanted.to_owned())
}

/// Reads a process's number.
pub(crate) fn pid(text: &str) -> Result<u32, String> {
    let wanted = "a process's number; 'pgrep NAME' finds it";
    text.parse().map_err(|_| wanted.to_owned())
}

/// Reads a thread's number.
fn tid(text: &str) -> Result<u32, String> {
    let wanted = "a thread's number; 'ps -L -p PID' lists them";
    text.parse().map_err(|_| wanted.to_owned())
}

/// What may have been meant where a word was not expected.
#[must_use]
pub fn hint_of(error: &clap::Error) -> Option<String> {
    /// Below this similarity a name is no help.
    const ENOUGH: f64 = 0.85;
    if error.kind() == ErrorKind::InvalidUtf8 {
        return Some(
            "only files and commands may have names that are not UTF-8, not what a SPEC names: 'ln -s BIN app', \
             and probe ./app:FUNC"
                .to_owned(),
        );
    }
    let word = match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(word) if error.kind() == ErrorKind::UnknownArgument => word,
        _ => return None,
    };
    if word.starts_with('-') {
        return None;
    }
    if word.parse::<u32>().is_ok() {
        return Some(format!(
            "each process needs an option of its own: -p {word}"
        ));
    }
    let cli = Cli::command();
    let score = |it: &clap::Command| strsim::jaro_winkler(word, it.get_name());
    let near = cli.get_subcommands().filter(|it| !it.is_hide_set());
    let near = near.max_by(|a, b| score(a).total_cmp(&score(b)));
    Some(match near.filter(|it| score(it) >= ENOUGH) {
        Some(near) => format!("did you mean {}?", near.get_name()),
        None => format!("a command to trace follows '--': -- {word}"),
    })
}

/// The arguments with options that all subcommands have behind the subcommand: `pebs-trace --color never report T` is
/// as `pebs-trace report --color never T`. clap takes what comes before a subcommand for options of recording.
pub fn in_order(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.collect();
    let mut end = 1;
    while let Some(arg) = args.get(end).and_then(|arg| arg.to_str()) {
        let counts = |arg: &str| {
            let letters = arg.strip_prefix('-').unwrap_or_default();
            !letters.is_empty() && letters.chars().all(|letter| letter == 'v')
        };
        end += match arg {
            "--color" => 2,
            "--verbose" => 1,
            _ if arg.starts_with("--color=") || counts(arg) => 1,
            _ => break,
        };
    }
    let is_subcommand = |arg: &OsString| {
        let named = |it: &clap::Command| it.get_name() == arg.as_os_str();
        Cli::command().get_subcommands().any(named)
    };
    if args.get(end).is_some_and(is_subcommand) {
        args[1..=end].rotate_right(1);
    }
    args
}

pub(crate) fn seconds(text: &str) -> Result<std::time::Duration, String> {
    let wanted = "a number of seconds (2.5) or a time with a unit (90s, 5m, 1h)";
    let duration = match text.parse::<f64>() {
        Ok(seconds) => {
            std::time::Duration::try_from_secs_f64(seconds).map_err(|_| wanted.to_owned())?
        }
        Err(_) => humantime::parse_duration(text).map_err(|_| wanted.to_owned())?,
    };
    if duration.is_zero() {
        Err("must be above 0".to_owned())
    } else {
        Ok(duration)
    }
}

/// A number as ids are in the trace: of a signed one, its 64 bits.
fn item_id(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse::<u64>().ok(),
    };
    let signed = || text.parse::<i64>().ok().map(i64::cast_unsigned);
    number
        .or_else(signed)
        .ok_or_else(|| "a number (0, -1, 0xffff)".to_owned())
}

pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').parse::<f64>().ok();
    number
        .filter(|percent| (0.0..=100.0).contains(percent))
        .ok_or_else(|| "a percentage from 0 to 100".to_owned())
}

/// A slow-down in percent, as a share. A small number without a sign could be either.
pub(crate) fn overhead(text: &str) -> Result<f64, String> {
    let (digits, has_sign) = match text.strip_suffix('%') {
        Some(digits) => (digits.trim_end(), true),
        None => (text, false),
    };
    let percent = digits.parse::<f64>().ok();
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    let percent = percent.ok_or_else(|| "a percentage above 0 and up to 100 (2%)".to_owned())?;
    if percent == 0.0 {
        return Err("must be above 0: marks and samples always cost something".to_owned());
    }
    if percent < 1.0 && !has_sign {
        let share = percent * 100.0;
        return Err(format!(
            "{text} percent, or {share} percent? write {text}% or {share}%"
        ));
    }
    Ok(percent / 100.0)
}

fn bytes(text: &str) -> Result<u64, String> {
    text.parse::<bytesize::ByteSize>()
        .map(|size| size.as_u64())
        .map_err(|_| "a number of bytes, with a unit if you like (64KiB, 512MiB, 1GB)".to_owned())
}

fn memory(text: &str) -> Result<u64, String> {
    const LEAST: u64 = 16 << 20;
    let size = bytes(text)?;
    if size < LEAST {
        return Err("16MiB at least".to_owned());
    }
    Ok(size)
}

fn ring_size(text: &str) -> Result<u32, String> {
    let size = bytes(text)?;
    u32::try_from(size)
        .ok()
        .filter(|size| size.is_power_of_two() && (4 << 10..=64 << 20).contains(size))
        .ok_or_else(|| format!("{size} is not a power of two from 4KiB to 64MiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options that every subcommand has may come before it, whatever stands behind.
    #[test]
    fn options_before_subcommands() {
        let ordered = |text: &str| in_order(text.split(' ').map(OsString::from));
        let cases = [
            ("p report T", "p report T"),
            ("p --color never report T", "p report --color never T"),
            (
                "p -vv --color=always --verbose explain T -v",
                "p explain -vv --color=always --verbose T -v",
            ),
            (
                "p --color never -u app:f -- report",
                "p --color never -u app:f -- report",
            ),
            ("p --color", "p --color"),
            ("p -v", "p -v"),
            ("p", "p"),
        ];
        for (typed, expected) in cases {
            let expected: Vec<OsString> = expected.split(' ').map(OsString::from).collect();
            assert_eq!(ordered(typed), expected);
        }
        assert!(Cli::try_parse_from(ordered("p --color never report T")).is_ok());
    }
}
