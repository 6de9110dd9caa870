//! pebs-trace: tells why this item was slow when the one before it was fast.
//!
//! This page is the architecture. The README says what the tool is for; `pebs-trace --help` how to
//! use it.
//!
//! # Bird's-eye view
//!
//! ```text
//! kernel programs -> rings -> decode -> order -> correlate -> symbolize -> sink (Parquet) | report
//!   pebs-ebpf        collect    stream  stream   correlate    symbolize    store            analysis
//! ```
//!
//! Data flows one way. A stage knows only what the stage before it gives out, and books every record
//! that it does not pass on ([`stream::ledger`]). `decode`, `clock`, `order`, `correlate` and the
//! estimators are pure: no I/O, no logging, no reading of clocks. [`pipeline`] ties the stages
//! together; live recording and the replay tests run the same code.
//!
//! # Where things are
//!
//! | to change | look at |
//! |---|---|
//! | an option or its help | [`cli`], then [`cmd`] (one file per subcommand: wiring, messages, hints) |
//! | what a SPEC means, which instruction is probed, how visits end | [`target`] |
//! | an event's name, its attr, what the machine grants | [`pmu`] |
//! | what the kernel programs record | `pebs-ebpf/src`, with the wire structs in `pebs-common` |
//! | when things are attached and taken away | [`collect::session`] |
//! | how rings are emptied, and the frontier | [`collect::drain`] |
//! | which sample belongs to which item | [`correlate`] |
//! | names of functions | [`symbolize`] |
//! | a column of the trace | [`store::schema`], and nothing else |
//! | an estimate and its error | [`analysis::estimate`], [`analysis::pool`] |
//! | what the report says | [`analysis::report`] |
//!
//! # Threads of a recording
//!
//! The main thread waits for the end (signals, time, the command, the target) in a tokio loop and
//! looks after CPUs that come and go. The *draining* thread empties all rings every few ms and hands
//! the bytes on as a cycle. The *pipeline* thread does everything from decoding to column buffers. A
//! background thread of [`store::writer`] closes segments. Memory between the threads is bounded in
//! bytes; when the bound is reached the rings fill, and the kernel programs refuse samples (never
//! marks, as long as samples can be refused) and count them.
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
//! * **order** ([`stream::order`]). Invariant: records come out once, in time order, below the frontier.
//!   It does not know what a mark is.
//! * **correlate** ([`correlate`]). Invariant: at each instant at most one visit of a thread is current,
//!   so no sample and no time counts twice. No symbols, no files.
//! * **symbolize** ([`symbolize`]). Invariant: a sample always gets a function, and no name is guessed.
//! * **sink** ([`store::writer`]). Invariant: a file that ends in `.parquet` is whole. No estimates.
//! * **analysis** ([`analysis`]). Invariant: reads trace tables only, no live state. A figure has its
//!   sample count and error beside it, or is unknown.
//! * **ledger** ([`stream::ledger`]). Invariant: seen = written + each reason, per CPU and kind.
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
//! * A started command is held by ptrace at its first instruction until everything is attached.
//! * The kernel tells no program that it throttles a counter. But a sample program sees it in the
//!   event, at the last sample before; so the range is known to the ns at its begin, whatever the
//!   event, and the visits in it can be flagged when they close.
//! * Time off the CPU is kept in a table of its own, `waits`, with the function in which the thread
//!   left user space; `visit_functions` holds time on the CPU only.

pub mod units;

pub mod target;

pub mod pmu;

pub mod collect;

pub mod stream;

pub mod correlate;

pub mod symbolize;

pub mod store;

pub mod pipeline;

pub mod analysis;

pub mod selftest;

pub mod cli;
pub mod cmd;
