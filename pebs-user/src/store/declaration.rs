//! The tables of a trace, declared: the only source of their names, columns, types and descriptions.
//!
//! `None` becomes null; nothing that was not observed is written as 0.
//! Invariant: imports nothing. [`declared`] hands the declaration to a macro, which makes one thing of it: `table.rs` the
//! list of tables, `fields.rs` Arrow's fields, `schema.rs` rows, columns and readers, `tables.rs` what writes rows.
//! Source: design page 6.

/// Calls a macro with the declaration. For each table:
///
/// * a comment, whose first paragraph describes a row;
/// * its name, its variant of `Table`, and its row; `(Copy)`: further traits to derive;
/// * the columns that rows are written to; `in`: the type that takes rows instead, if rows have further columns or come
///   in blocks;
/// * each column: a comment, its name, its type in a row, and after `as` the kind of column if it is not the default one.
macro_rules! declared {
    ($make:ident) => {
        $make! {
            /// One row per visit.
            visits = Visits, VisitRow (Copy), VisitFields in VisitColumns {
                /// Number of the visit, from 1, in order of closing on its thread.
                visit_id: u64,
                /// The item: the value of `id=`. Without it a number from 1, in the order in which visits of a thread begin; between
                /// threads that order is only rough. For a visit that serves several items the number of the batch.
                item_id: u64,
                /// The probe that made the visit.
                probe_id: ProbeId,
                /// Process.
                pid: Pid,
                /// Thread.
                tid: Tid,
                /// CPU of the begin mark; null, as in all tables, if the record has none.
                cpu_begin: Cpu,
                /// CPU of the end mark; null if no end mark was seen.
                cpu_end: Option<Cpu>,
                /// Begin.
                begin_ns: TraceNs,
                /// End; null if the trace ended first.
                end_ns: Option<TraceNs>,
                /// End - begin; null if the end is.
                duration_ns: Option<i64> as NullableCoded<Small<i64>>,
                /// Time on the CPU during which this was the thread's current visit, including waits within pebs-trace's own marks,
                /// which `net_ns` leaves out. Null if switches were not recorded, the end is unknown, or more of it may be in
                /// `shared_ns` ([`visit_flag::TIME_SHARED`]).
                oncpu_ns: Option<i64> as NullableCoded<Small<i64>>,
                /// `duration_ns` less own time (marks, samples, switch and fault records): ranks and classifies visits. Null if the
                /// end or one of these costs is unknown, as in imported traces; rank by the duration then. The cost of a sample is
                /// measured in the run: a segment uses what was known when it was closed.
                net_ns: Option<i64>,
                /// Standard error of `net_ns`, from the spread of the cost of samples and the error of its mean.
                net_stderr_ns: Option<i64>,
                /// Samples that belong to the visit.
                samples: u32 as RequiredCoded<Small<u32>>,
                /// Bits: [`visit_flag`].
                flags: u32,
                /// Times that the thread left the CPU while this was its current visit (of nested visits the
                /// innermost, so that a sum counts each once); null if switches were not recorded.
                switches: Option<u32>,
                /// Times that it came back on another CPU; null if switches were not recorded.
                migrations: Option<u32>,
                /// Page faults that the thread took while this was its current visit, in user code and in the
                /// kernel on its behalf; null if they were not recorded.
                page_faults: Option<u32>,
                /// Time in interrupt handlers, except interrupts in which a sample was taken; null: not recorded (`--with irq`).
                irq_ns: Option<i64>,
                /// Time in softirqs (work that interrupts left for later) that ran on the thread, also at the end of its own system
                /// calls, except interrupts within them.
                softirq_ns: Option<i64>,
                /// Time in page faults, waiting for the disk included; null: not recorded (`--with faults`).
                fault_ns: Option<i64>,
                /// Time in which the thread had to reclaim memory itself, as the machine or its cgroup had none left; mostly part of page
                /// faults and of system calls; null: not recorded (`--with faults`), or by a version that did not.
                reclaim_ns: Option<i64>,
                /// Page faults whose page had to be read.
                major_faults: Option<u32>,
                /// Time on its thread's CPU that belongs to no single item: several were open and no mark says which one the thread
                /// worked on, or it is the event loop's own. It is counted in each of the open visits. Null like `oncpu_ns`.
                shared_ns: Option<i64>,
                /// Time in which its thread slept while it worked on no item, or on another one: neither a wait of this visit
                /// nor work of others. Null like `oncpu_ns`.
                idle_ns: Option<i64>,
            }

            /// One row per function within a visit.
            visit_functions = VisitFunctions, VisitFunctionRow, VisitFunctionColumns {
                /// The visit.
                visit_id: u64,
                /// Its item.
                item_id: u64,
                /// The function.
                function_id: FunctionId as RequiredCoded<Small<u32>>,
                /// Number of the sampled event in `trace.json`.
                event: EventId,
                /// Samples of the function in the visit.
                samples: u32 as RequiredCoded<Small<u32>>,
                /// Events that the samples stand for: the sum of the reset values in force when each was taken; ns for clocks. It is
                /// `samples` x the reset value unless `--max-overhead` changed that. Null if the kernel kept to a frequency.
                events: Option<u64> as NullableCoded<Small<u64>>,
                /// Its first sample.
                first_ns: TraceNs,
                /// Its last sample.
                last_ns: TraceNs,
                /// Last - first: the published estimate.
                span_ns: i64 as RequiredCoded<Small<i64>>,
                /// The estimate of its time on the CPU. Its mean over visits is right but for a function at the begin or end of visits
                /// that is shorter than three mean distances between samples: sampled by several clocks it gets too little (4 % at two
                /// distances), its neighbour too much. By an event that is no clock but goes on at all times (uops, instructions, cycles), by
                /// the rates of functions. Null for other events, and where the visit's time on the CPU is unknown.
                self_ns: Option<f64> as NullableCoded<Halves>,
                /// Standard error of `self_ns`, to 1 in 128.
                self_stderr_ns: Option<f64> as NullableCoded<Rounded>,
            }

            /// One row per sample.
            samples = Samples, SampleRow (Copy), SampleColumns in Samples {
                /// Time of the sample.
                time_ns: TraceNs,
                /// The visit; null: in no visit.
                visit_id: Option<u64>,
                /// The function.
                function_id: FunctionId as RequiredCoded<Small<u32>>,
                /// Instruction pointer.
                ip: u64 as Addresses,
                /// Thread; null where a recording does not have it.
                tid: Tid as Nullable<UInt32Type>,
                /// CPU.
                cpu: Cpu,
                /// Number of the sampled event in `trace.json`.
                event: EventId,
                /// Bits: [`sample_flag`].
                flags: u32,
                /// Its call stack; null: not recorded (`--call-graph`), or no room for it.
                stack_id: Option<StackId> as NullableCoded<Small<u32>>,
            }

            /// One row per interval off the CPU within a visit.
            waits = Waits, WaitRow<'a> (Copy), WaitColumns {
                /// The visit that was current on the thread.
                visit_id: u64,
                /// Its item.
                item_id: u64,
                /// Thread.
                tid: Tid,
                /// Time at which it was switched out.
                begin_ns: TraceNs,
                /// Time at which it was switched in again.
                end_ns: TraceNs,
                /// The user-space function that blocked; null if unknown.
                function_id: Option<FunctionId>,
                /// `runnable` (preempted), `sleeping`, `uninterruptible`, `stopped` or `dead`; `blocked` if a recording has no more
                /// detail; `parked`: no thread ran the goroutine.
                state: &'a str as Text,
                /// CPU it left.
                cpu_from: Cpu,
                /// CPU it came back on.
                cpu_to: Cpu,
                /// Time at its end in which the thread was ready but had no CPU; null: not recorded (`--with waits`).
                runnable_ns: Option<i64>,
                /// Name of the thread that ended it; `[interrupt]`: a timer, the disk or the network; null: not recorded (`--with
                /// waits`), or it was preempted.
                woken_by: Option<&'a str> as NullableText,
                /// The process of `woken_by`; null likewise, and if it was no thread.
                woken_by_pid: Option<Pid>,
                /// The thread of `woken_by`; null likewise, and if it was no thread.
                woken_by_tid: Option<Tid>,
                /// Name of the thread that took the CPU; null: not recorded (`--with waits`), or the thread blocked by itself.
                preempted_by: Option<&'a str> as NullableText,
                /// The process of `preempted_by`; null likewise, and if it was no thread.
                preempted_by_pid: Option<Pid>,
                /// The thread of `preempted_by`; null likewise, and if it was no thread.
                preempted_by_tid: Option<Tid>,
                /// The call stack at which it blocked, the kernel's function that called the scheduler first; null: not recorded
                /// (`--with waits --call-graph`), or it was preempted.
                stack_id: Option<StackId>,
            }

            /// One row per distribution over visits: of a function's time, of durations, of waits; with `--keep slow` or `none` only.
            ///
            /// It covers the visits of a probe that ended in a range of time and whose end is known. Rows of the
            /// same probe, measure, function, event and `loss` merge by adding every column but `min_ns` and
            /// `max_ns`, and counts bucket by bucket; so do rows of other traces, with functions matched by
            /// name. A bucket is a value that stands for all within 1/64 of it.
            function_stats = FunctionStats, FunctionStatRow<'a>, FunctionStatColumns {
                /// Begin of the range.
                begin_ns: TraceNs,
                /// End of the range.
                end_ns: TraceNs,
                /// The probe, which is the group.
                probe_id: ProbeId,
                /// `duration`, `oncpu` or `self` (a function's time on the CPU), or the state of a wait (see `waits`).
                measure: &'a str as Text,
                /// The function; null for whole visits, and for waits whose function is unknown.
                function_id: Option<FunctionId>,
                /// The event that was sampled; null where values are observed, not sampled.
                event: Option<EventId>,
                /// Whether the visits overlap a loss; those that do have separate rows.
                loss: bool,
                /// Visits of the probe in the range, with or without the function.
                visits: u64,
                /// Visits in which the function has a sample, or a wait.
                visits_with: u64,
                /// Samples; for waits their number; null for whole visits.
                samples: Option<u64>,
                /// Sum over visits of the square of the function's samples. With the next two columns the error of a mean over
                /// visits can be computed, if the reset value did not change; else with the same of events.
                samples_squared: Option<f64>,
                /// Sum over visits of the function's samples x all samples of the event.
                samples_product: Option<f64>,
                /// Sum over visits of the function's samples x the visit's time on the CPU (its duration, if
                /// switches were not recorded), ns.
                samples_active_ns: Option<f64>,
                /// Events that the samples stand for, each for the reset value in force at its time. Null, like the next
                /// three, where there are none: for waits and whole visits, and where the kernel aimed at a frequency.
                events: Option<u64>,
                /// Sum over visits of the square of the function's events.
                events_squared: Option<f64>,
                /// Sum over visits of the function's events x all events that the visit's samples stand for.
                events_product: Option<f64>,
                /// Sum over visits of the function's events x the visit's time on the CPU, as above, ns.
                events_active_ns: Option<f64>,
                /// Sum of the values. Null, like the next three, if no value is known: a function sampled by an
                /// event that happens now and then.
                sum_ns: Option<f64>,
                /// Sum of the squares of the values, ns^2.
                sum_squared: Option<f64>,
                /// Smallest value.
                min_ns: Option<f64>,
                /// Largest value.
                max_ns: Option<f64>,
                /// Buckets that hold a value, rising. Functions and whole visits have one value per visit, waits one per wait.
                bucket_ns: Vec<i64>,
                /// Values in each.
                bucket_count: Vec<u64>,
            }

            /// One row per function.
            functions = Functions, FunctionRow (Eq), FunctionColumns {
                /// Key of the row.
                function_id: FunctionId,
                /// Demangled name; `module+fn@0xADDR` for a function start known only from .eh_frame; null if
                /// nothing is known but the address.
                name: Option<String>,
                /// Path of the binary, `[kernel]`, `[vdso]`, or the perf-map file; null if the address is in no mapping.
                module: Option<String>,
                /// Build id in hex.
                build_id: Option<String>,
                /// Offset of the function in the module's file; of kernel code its address.
                offset: Option<u64>,
                /// Size in bytes.
                size: Option<u64>,
                /// Source file of the function's first line.
                file: Option<String>,
                /// Source line.
                line: Option<u32>,
                /// Whether it is kernel code.
                kernel: bool,
                /// Whether it was inlined into its caller: it has no offset of its own.
                inlined: bool as NullableTruth,
                /// Entry from user mode to the kernel in which it ran (a kernel function has a row for each):
                /// `system call`, `page fault`, `interrupt`, `breakpoint` (of another tool), or `exception`. An interrupt of the kernel
                /// is no entry: it belongs to the one before. Null: no kernel code, pebs-trace's own work, or unknown
                /// (`--transport bulk`, imported samples).
                kernel_entry: Option<String>,
                /// The system call, if it was one; null: otherwise, or unknown.
                system_call: Option<String>,
            }

            /// One row per time range without full data.
            losses = Losses, LossRow (Eq), LossColumns {
                /// Last instant with full data.
                begin_ns: TraceNs,
                /// First instant with full data again.
                end_ns: TraceNs,
                /// CPU; null: all.
                cpu: Option<Cpu>,
                /// Thread; null: all.
                tid: Option<Tid>,
                /// A reason of the ledger in `trace.json`, such as `dropped_ring_full`. `throttled`: from the last sample before the
                /// kernel stopped a counter to the next one, 10 ms at most; `cpu_came_online`: until a CPU was sampled; `paused`:
                /// the recording was.
                reason: String,
                /// Records lost; null if the kernel does not say.
                records: Option<u64>,
            }

            /// One row per sample that has data of its memory access, or of the op that AMD's IBS tagged.
            ///
            /// A separate table, not columns of `samples`, as samples of most events have no access. `tid`, `time_ns` and `event`
            /// find a row's sample in `samples`.
            memory = Memory, MemoryRow<'a> (Copy), MemoryColumns {
                /// Time of the sample.
                time_ns: TraceNs,
                /// The visit; null: in no visit.
                visit_id: Option<u64>,
                /// The function.
                function_id: FunctionId,
                /// Thread; null where a recording does not have it.
                tid: Tid as Nullable<UInt32Type>,
                /// Number of the sampled event in `trace.json`.
                event: EventId,
                /// Events that the sample stands for: the reset value in force when it was taken; null if there was none.
                events: Option<u64>,
                /// Operation: `load`, `store`, `load+store`, `prefetch`, `exec`; of IBS also `branch`, `other`, `fetch`
                /// and `aborted fetch`.
                op: Option<&'a str> as NullableText,
                /// Source of the data, in the words of `perf mem`: `L1 hit`, `Remote core, same node Any cache hit`.
                level: Option<&'a str> as NullableText,
                /// Snoop of other caches: `None`, `Hit`, `Miss`, `HitM`, `Fwd`, `Peer`.
                snoop: Option<&'a str> as NullableText,
                /// Translation of the address: `L1 hit`, `L2 miss`, `Walker hit`.
                tlb: Option<&'a str> as NullableText,
                /// Whether the instruction was locked.
                locked: Option<bool>,
                /// Cause for which the load was blocked: `Data`, `Addr`, `Data Addr`.
                blocked: Option<&'a str> as NullableText,
                /// Cycles of the access (perf's weight): of a load since its dispatch; on AMD of a miss of the first level.
                latency_cycles: Option<u32>,
                /// Cycles of the whole instruction; on AMD of the op from its tagging to its retirement.
                op_cycles: Option<u32>,
                /// Cycles from the previous retirement to its own; on AMD from its completion to its retirement.
                retire_cycles: Option<u32>,
                /// Cycles to refill the first-level TLB.
                tlb_cycles: Option<u32>,
                /// Size of the page.
                page_bytes: Option<u64>,
                /// Whether the branch was taken.
                taken: Option<bool>,
                /// Whether the branch was mispredicted.
                mispredicted: Option<bool>,
                /// Address of the data; of a fetch, of the code.
                addr: Option<u64>,
                /// Its physical address.
                phys_addr: Option<u64>,
                /// `union perf_mem_data_src`, as the kernel wrote it.
                data_src: Option<u64>,
                /// Process; null where a recording does not have it.
                pid: Option<Pid>,
                /// Bytes that are accessed from `addr` on, as the instruction says; null: not known. Of a watchpoint `addr` is what is
                /// watched, unless the instruction has its address: null if it may have accessed a part of that, or more.
                bytes: Option<u32>,
                /// The variable at `addr`, by the symbols of its binary; null: not known, or no variable of a binary.
                data_symbol: Option<&'a str> as NullableText,
                /// File that is mapped at `addr`, `[heap]` or `[stack]`; null: memory without a name, or not known.
                data_object: Option<&'a str> as NullableText,
                /// Offset of `addr` from the begin of the variable; without a variable from that of the mapping.
                data_offset: Option<u64>,
            }

            /// One row per call stack; without them (`--call-graph`) it has no rows.
            stacks = Stacks, StackRow (Eq), StackColumns {
                /// Key of the row.
                stack_id: StackId,
                /// Keys of the functions, the innermost first; those in the kernel come before those in user space.
                frames: Vec<u32>,
                /// Whether outer frames are missing.
                truncated: bool,
            }

            /// One row per item of a visit that serves several (`ids=`).
            ///
            /// The shares of a visit sum to 1, so that no time counts twice: an item's part of any figure of the visit is the
            /// figure x `share`. Only a visit that served no item has no row.
            batch_items = BatchItems, BatchItemRow (Copy), BatchItemColumns {
                /// The visit.
                visit_id: u64,
                /// The item; null: all those whose ids are not known, together.
                item_id: Option<u64>,
                /// Items that the visit served; null if that is unknown.
                items: Option<u32>,
                /// The item's share of the visit, 0 to 1.
                share: f64 as NullableReal,
            }

            /// One row per visit and event that was counted, with `--count` only.
            ///
            /// Events of the thread on the CPU while the visit was its current one, as in `visits.oncpu_ns`, in user mode and in
            /// the kernel unless the event is limited to one (`:u`, `:k`). Marks of nested visits are counted, too.
            counts = Counts, CountRow<'a> (Copy), CountColumns {
                /// The visit.
                visit_id: u64,
                /// Its item.
                item_id: u64,
                /// Number of the event in `counted` of `trace.json`.
                event: EventId,
                /// Number of events; ns for clocks. Null if it had no turn on a counter, or is unknown.
                count: Option<u64>,
                /// Time in which it was to be counted; null if that is unknown.
                enabled_ns: Option<i64>,
                /// Time in which it was counted: less where events take turns on a counter, or it is not counted on some CPUs.
                running_ns: Option<i64>,
                /// `exact`; `scaled`: it was on a counter for a part of the time, and `count` is what was counted x `enabled_ns` /
                /// `running_ns`; `no turn`: it was never on a counter; `unknown`: a record is missing, or some of the thread's time
                /// may be another item's.
                state: &'a str as Text,
            }

            /// One row per thread, interval and event that was counted, with `--count-interval` only.
            ///
            /// For every traced thread, from when it first took the CPU, made a mark or was running at the end of an interval, up
            /// to its end; the sum over intervals is all that it did. A thread that was not on the CPU in an interval has no row there.
            interval_counts = IntervalCounts, IntervalCountRow<'a> (Copy), IntervalCountColumns {
                /// Process.
                pid: Pid,
                /// Thread.
                tid: Tid,
                /// Begin of the interval, which is as long as `count_interval_ns` of `trace.json` says.
                begin_ns: TraceNs,
                /// Number of the event in `counted` of `trace.json`.
                event: EventId,
                /// Number of events; ns for clocks. Null if it had no turn on a counter, or is unknown.
                count: Option<u64>,
                /// Time on the CPU in which it was to be counted; null if that is unknown.
                enabled_ns: Option<i64>,
                /// Time in which it was counted.
                running_ns: Option<i64>,
                /// As in `counts`; `unknown`: a record is missing.
                state: &'a str as Text,
            }

            /// One row per interval off the CPU of a traced thread while it was at no visit, with `--with waits` only, and not
            /// with `--keep slow` or `none`.
            ///
            /// With `waits` it tells what a thread did while others waited for it.
            other_waits = OtherWaits, OtherWaitRow<'a> (Copy), OtherWaitColumns {
                /// Process.
                pid: Pid,
                /// Thread.
                tid: Tid,
                /// As in `waits`, and so all further columns.
                begin_ns: TraceNs,
                /// Time at which it was switched in again.
                end_ns: TraceNs,
                /// The user-space function that blocked.
                function_id: Option<FunctionId>,
                /// State.
                state: &'a str as Text,
                /// Time at its end in which the thread was ready but had no CPU.
                runnable_ns: Option<i64>,
                /// Name of the thread that ended it; `[interrupt]`: none did.
                woken_by: Option<&'a str> as NullableText,
                /// The process of `woken_by`.
                woken_by_pid: Option<Pid>,
                /// The thread of `woken_by`.
                woken_by_tid: Option<Tid>,
                /// Name of the thread that took the CPU.
                preempted_by: Option<&'a str> as NullableText,
                /// The process of `preempted_by`.
                preempted_by_pid: Option<Pid>,
                /// The thread of `preempted_by`.
                preempted_by_tid: Option<Tid>,
                /// The call stack at which it blocked.
                stack_id: Option<StackId>,
            }

            /// One row per reading of a CPU's frequency, with `--with freq` only.
            frequencies = Frequencies, FrequencyRow (Copy, Eq), FrequencyColumns {
                /// Time of the reading.
                time_ns: TraceNs,
                /// The CPU.
                cpu: Cpu as Required<UInt16Type>,
                /// Its frequency, as the kernel reports it.
                khz: u32,
            }
        }
    };
}
pub(super) use declared;
