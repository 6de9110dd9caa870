//! pebs-trace: tells why this item was slow when the one before it was fast.
//!
//! This page is the architecture. The README says what the tool is for; `pebs-trace --help` how to
//! use it.
//!
//! # Bird's-eye view
//!
//! ```text
//! kernel programs -> rings -> decode -> order -> correlate -> symbolize -> sink (Parquet) | report, explain, diff
//!   pebs-ebpf        collect    stream  stream   correlate    symbolize    store            analysis
//! ```
//!
//! Data flows one way. A stage knows only what the stage before it gives out, and books every record
//! that it does not pass on ([`ledger`]). `decode`, `clock`, `order`, `correlate` and the
//! estimators are pure: no I/O, no logging, no reading of clocks. [`pipeline`] ties the stages
//! together; live recording, `import` of a `perf.data` and the replay tests run the same code.
//!
//! # Where things are
//!
//! | to change | look at |
//! |---|---|
//! | an option or its help | [`cli`], then [`cmd`] (one file per subcommand: wiring, messages, hints) |
//! | what a SPEC means, which instruction is probed, how visits end | [`probe`] |
//! | an event's name, its attr, what the machine grants | [`pmu`] |
//! | Intel's events | [`pmu::table`]; `cargo xtask events` makes the table |
//! | what a sample says of its memory access or its op | [`pmu::memory`], [`pmu::ibs`] (words, registers), [`stream::access`] (a sample), `pipeline::memory` (its way to the table), [`analysis::report::memory`] |
//! | what the kernel programs record | `pebs-ebpf/src`, with the wire structs in `pebs-common` |
//! | when things are attached and taken away | [`collect::session`] |
//! | how rings are emptied, and the frontier | [`collect::drain`] |
//! | what the kernel writes by itself (`--transport bulk`) | [`pmu::attr::bulk`] (settings), [`collect::bulk`] (rings; `unseen_events.rs`: for what a program does not see), [`stream::bulk`] (records) |
//! | CPUs that come and go | [`collect::hotplug`] (who tells), [`collect::session`] (`cpus.rs`: which; what is opened then), [`cmd`] (`record/run/cpus.rs`) |
//! | what ends a recording from outside | [`cmd`] (`record/run/ending.rs`), [`collect::signals`] (what was ignored at the start) |
//! | what is left of root's rights meanwhile | [`collect::privileges`] |
//! | what the slow-down is, and how it is kept below a bound | [`cmd`] (`record/cost.rs`), [`cost::calibrate`] (`with_options.rs`: what `--with` costs), [`cost::overhead`] |
//! | what a sample costs (`calibrate`), and which reset value a goal asks for (`plan`) | [`cost`] (the model), [`cost::calibrate`] (the measuring), [`cmd`] (`calibrate.rs`, `plan/`) |
//! | what it costs a program to count its own events (`calibrate --counters`) | [`cost::counters`]; the counting is the crate [`pebs_selfcount`] |
//! | where samples read item ids, if items are not marked | `pebs-ebpf/src/{item,library}.rs`, [`probe::item`], and `correlate/runs.rs` for what visits are then |
//! | which sample belongs to which item | [`correlate`] |
//! | the items of a visit that serves several (`ids=`) | `pebs-ebpf/src/batch.rs`, `correlate/batch.rs`, `pipeline/batches.rs` (rows), `analysis/batches.rs` (shares) |
//! | names of functions | [`symbolize`] |
//! | debug files that are not here | [`binary::debuginfod`], [`cmd`] (`debug_files.rs`: for what they are fetched) |
//! | who woke or displaced a thread (`--with waits`) | `pebs-ebpf/src/wake.rs`, [`correlate`] (`thread.rs`) |
//! | what came between a thread and its work (`--with irq,faults`) | `pebs-ebpf/src/{irq,fault}.rs`, `collect/programs/interrupts_and_faults.rs`, [`correlate`] (`interrupts_and_faults.rs`), `analysis/report/interrupts_and_faults.rs` |
//! | how fast CPUs ran (`--with freq`) | [`collect::frequency`] (reading), `pipeline/frequency.rs` (rows), `analysis/frequencies.rs` (what it took of items) |
//! | where it blocked | `pebs-ebpf/src/stack.rs`, [`symbolize::callers`] (without frame pointers), [`symbolize::stacks`], `analysis/explain/paths.rs` |
//! | call stacks (`--call-graph`) | `pebs-ebpf/src/stack.rs` (frame pointers), [`perf::calls`] (the CPU's record), [`stream::stacks`] (addresses), [`symbolize::stacks`] (functions) |
//! | time by who called | `analysis/paths.rs` (paths), [`analysis::report::paths`], `analysis/explain/paths.rs`; `html/flame.rs` |
//! | what a record of the perf subsystem holds, and `perf.data` | [`perf`] |
//! | how a recording of `perf record` becomes a trace | [`import`] |
//! | whose details are kept (`--keep`), and the aggregates of all visits | [`estimate::baseline`], [`estimate::sketch`], `pipeline::keep` |
//! | a column of the trace | [`store::schema`], and nothing else |
//! | what a record costs on its way to the files | [`stream::samples`] (columns from decoding on), `correlate/fast_visits.rs` (visits that need no state), [`pipeline`] (`rows.rs`), [`store::samples`] (blocks of columns), `store/pages` (encodings); `cargo bench` says where it goes |
//! | an estimate and its error | [`estimate::visit`], [`analysis::pool`] |
//! | which items are slow and which typical | `analysis/classes.rs` (`matching.rs`: items about as short as a sample's cost) |
//! | what pebs-trace takes of items | [`estimate::net`], `pipeline/net.rs`; `symbolize/own_work.rs` (which samples are its own work) |
//! | how probes are placed and taken away | [`pmu::open`] (`keeper.rs`: by a process that no SIGKILL strikes meanwhile) |
//! | what the report says | [`analysis::report`] |
//! | what `view` shows, and what its keys do | [`view`] |
//! | what separates slow items from like ones, and how sure that is | [`analysis::explain`] |
//! | what changed between two traces | [`analysis::diff`] |
//! | a format of another tool | [`export`] (one file per format) |
//! | the page to look at | [`html`] (`data.rs` what, `assets/page.js` and `flame.js` how) |
//! | the line that shows how far a command is | [`watch`] (who tells), [`cmd`] (`progress.rs`, who shows) |
//!
//! # Threads of a recording
//!
//! The main thread waits for the end (signals, time, the command, the target) in a tokio loop and
//! looks after CPUs that come and go. The *draining* thread empties all rings every few ms and hands
//! the bytes on as a cycle. The *pipeline* thread does everything from decoding to encoded pages. A
//! background thread of [`store::writer`] compacts closed segments. Memory between the threads is
//! bounded in bytes; when the bound is reached the rings fill, and the kernel programs refuse samples
//! (never marks, as long as samples can be refused) and count them.
//!
//! Once everything is attached, each of them gives up what it does not need of root's rights.
//!
//! # What others wrote
//!
//! Binaries, perf maps, `/proc` files, traces and everything typed are not trusted: what reads them neither
//! panics nor hangs, and holds memory in proportion to what it read. `fuzz.rs` lists these readers and gives each
//! to a fuzz target (`cargo xtask fuzz`). Only regular files are opened, and names reach a terminal through
//! [`terminal`] only.
//!
//! # Invariants
//!
//! * **kernel programs.** Invariant: a record's `CLOCK_MONOTONIC` time is read after its room was
//!   reserved. Invariant: every record that is not put into a ring is counted, by reason and CPU.
//!   Nothing there decides about items.
//! * **rings** ([`collect::ring`]). Invariant: positions and framing only; no byte's meaning.
//! * **drain** ([`collect::drain`]). Invariant: below a cycle's frontier no record can still arrive.
//!   That follows from the first invariant: a ring that was seen without reserved records is whole up
//!   to the instant at which the looking began.
//! * **decode, clock** ([`stream::decode`], [`stream::clock`]). Invariant: no bytes make them fail.
//!   All clock arithmetic is in `clock`.
//! * **perf records** ([`perf`]). Invariant: no bytes make decoding fail or allocate, and a sample's fields end
//!   where it ends, or it is told. Rings of events opened here and files are decoded by the same code.
//! * **import** ([`import`]). Invariant: every sample of a file is a sample, mark or switch of the trace, or is
//!   booked. Nothing of this machine (processes, kernel symbols, files by path alone) explains a recording.
//! * **order** ([`stream::order`]). Invariant: records come out once, below the frontier, those of a
//!   thread in time order. It knows which records concern several threads, not what they mean.
//! * **correlate** ([`correlate`]). Invariant: a thread is brought up to the time of a record that
//!   concerns several before that record is used, and at each instant at most one visit of a thread is current,
//!   so no sample and no time counts twice. No symbols, no files.
//! * **symbolize** ([`symbolize`]). Invariant: a sample always gets a function, and no name is guessed.
//! * **sink** ([`store::writer`]). Invariant: a file that ends in `.parquet` is whole. No estimates.
//! * **analysis** ([`analysis`]). Invariant: reads trace tables only, no live state. A figure has its
//!   sample count and error beside it, or is unknown.
//! * **view** ([`view`]). Invariant: drawing and keys do no I/O; all is read before the terminal is taken over, with
//!   `--live` anew by a thread of its own.
//! * **ledger** ([`ledger`]). Invariant: seen = written + each reason, per CPU and kind.
//!
//! # Decisions worth knowing
//!
//! * Probes are attached to the file, not to a process, and the mark program looks its process up in
//!   a table. So children are followed from their fork on, without a race; other processes that run
//!   the same binary pay for the look-up. Without `-p` or a command, a process enters the table with
//!   its first mark, and so nothing needs to watch for new processes.
//! * With `-p` or a command, events are opened per thread and inherited; else one per CPU, with the same
//!   look-up. Each event has its own copy of the sample program, as inherited events carry no cookie.
//! * One mark program serves entries, returns and addresses: what a site's marks mean and which
//!   arguments they carry is data ([`pebs_common::config::SiteConfig`]), chosen by the attach cookie.
//! * Where a thread goes to wait, some of its stack is recorded beside what frame pointers lead to: what is followed
//!   there by unwind tables is a few words at fixed distances, so that a stack has its number before anything is kept.
//! * A sample's call stack is in its record, not in a table of the kernel's: nothing there can be full or taken for
//!   another stack. The pipeline keeps each stack once, and looks its functions up when the first sample is written.
//! * There is no order over all rings: it would cost more than decoding and correlating together, and
//!   hardly any record of one thread concerns another. Each thread has a lane, sorted as it comes.
//! * Samples stay in columns from decoding to the files, and are named, estimated and written many at a time. A call that begins
//!   and returns with nothing but samples in between, as most do, goes past the state machine of its thread: both ways give
//!   the same, and a test holds one against the other.
//! * Rows are encoded as Parquet pages when they are made, and an open segment is a Parquet file whose
//!   row groups have a footer each: what `kill -9` leaves is read up to the last footer, and closing a
//!   segment is a rename. A general writer compacts it afterwards, off the path of the records.
//! * A change of the reset value (`--max-overhead`) reaches counters by an ioctl, but not those that
//!   threads have inherited: where there are such, all are opened anew. Every estimate that counts
//!   events weighs a sample by the reset value in force at its time (`visit_functions.events`).
//! * An eBPF program sees one record of each interrupt, so samples that the hardware collects come through
//!   perf's rings (`bulk`), and are joined to the marks by time: from decoding on they are the same
//!   samples. Marks always come from programs.
//! * A hybrid CPU has a PMU for each kind of cores. A name that all of them know is one event with a counter on each
//!   ([`pmu::attr::Twin`]), so that the estimates see one series of samples; a name that one of them lacks is refused.
//! * `plan` is a recording whose events are opened without a reset value: they count, and the same marks and
//!   switches give the items and their time. So it sees what the recording will see, and costs what marks cost.
//! * A calibration is the user's, not the machine's: nothing that root reads was written by anyone but who runs it.
//! * What samples say of memory accesses is a table of its own, not columns of `samples`: few events say anything,
//!   and the path of samples is the one on which every byte costs. It travels beside its sample and is found again by
//!   thread, time, event and ip when the sample is written, so no stage in between knows of it.
//! * An id that a sample reads has the place of the stack pointer in its record, as there are no frames to match
//!   then. Ids become visits in `correlate`: what a thread did since its last sample waits for the next one. Where
//!   an executable lies is looked up by the program at each sample, so that no `exec` can come in between.
//! * A visit that serves several items stays one visit: samples, functions and waits are of the visit, and a table of
//!   its own says whose it was, with shares that sum to 1. So nothing is divided before it is asked for, no sample has two
//!   owners, and readers that know nothing of batches count each visit once.
//! * Page faults are counted by an event of their own with one small record each, not sampled.
//! * A started command is held by ptrace at its first instruction until everything is attached.
//! * What `--keep` leaves out is decided when a visit closes, after its estimates and before its rows:
//!   a visit that is kept is whole, one that is not has a row in `visits` and its part in
//!   `function_stats`. Its samples are booked as `not_kept`.
//! * The kernel tells no program that it throttles a counter. But a sample program sees it in the
//!   event, at the last sample before; so the range is known to the ns at its begin, whatever the
//!   event, and the visits in it can be flagged when they close.
//! * Time off the CPU is kept in a table of its own, `waits`, with the function in which the thread
//!   left user space; `visit_functions` holds time on the CPU only.

pub mod units;

mod files;
pub mod ledger;
pub mod limits;
pub mod present;
mod rng;
pub mod terminal;
pub mod watch;

pub mod binary;

pub mod probe;

pub mod pmu;

pub mod perf;

pub mod collect;

pub mod cost;

pub mod estimate;

pub mod stream;

pub mod correlate;

pub mod symbolize;

pub mod store;

pub mod pipeline;

pub mod import;

pub mod analysis;

pub mod export;
pub mod html;
pub mod view;

pub mod selftest;

pub mod cli;
pub mod cmd;

pub mod guide;

#[cfg(any(test, fuzzing))]
pub mod fuzz;
