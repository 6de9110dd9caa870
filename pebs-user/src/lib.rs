//! pebs-trace: explains why this item was slow when the one before it was fast.
//!
//! This page is the architecture. The README says what the tool is for, `pebs-trace --help` how to use it; [`guide`]
//! answers questions, [`guide::decisions`] those about the code. Most modules are private: `cargo doc
//! --document-private-items` has their pages.
//!
//! # Bird's-eye view
//!
//! ```text
//! kernel programs -> rings -> decode -> order -> correlate -> symbolize -> sink (Parquet) -> report, explain, diff
//!   pebs-ebpf        collect    stream  stream   correlate    symbolize    store             compare, out
//! ```
//!
//! Data flows one way. A stage knows only the output of the stage before it, and books every record that it does not
//! pass on ([`ledger`]). `decode`, `clock`, `order`, `correlate` and the estimators are pure: no I/O, no logging, no
//! reading of clocks. [`pipeline`] ties the stages together; live recording, `import` of a `perf.data` and the replay
//! tests run the same code.
//!
//! Modules look down only: each imports from those above it in this list, and `cargo xtask ci` fails for an import that
//! `ROOMS` in `xtask/src/modules.rs` does not have. Rooms that have a table of their own there (`store`, `compare`,
//! `record`, `out`, `cmd`) keep to it inside as well. Nowhere, at any depth, do modules import each other in a ring that `RINGS`
//! there does not list with its reason. `cargo xtask modules` shows them all, with `--dot` as a drawing.
//!
//! | modules | what they are |
//! |---|---|
//! | [`units`], `files`, `rng`, [`watch`], [`limits`], [`ledger`], [`terminal`] | leaves: they import nothing of ours |
//! | [`binary`] | ELF, DWARF, unwind tables, debug files, names, `/proc` |
//! | [`pmu`], [`perf`] | events, from a name to a counter; records of the perf subsystem, and `perf.data` |
//! | [`stream`] | bytes to one ordered stream of records |
//! | [`estimate`] | times of functions with their errors, baselines, aggregates: pure |
//! | [`spec`] | the parser of SPECs: pure text |
//! | [`store`] | the trace: its tables and `trace.json`, written and read. It is below the stages, as they speak of its rows, and above `stream`, as samples stay in the columns in which they were decoded |
//! | [`probe`] | a SPEC to the instructions to probe |
//! | [`compare`] | the tables of a trace to answers, as plain data: who is slow, and why |
//! | [`present`] | numbers, names and tables for people, words for what was compared; lines of CSV for programs |
//! | [`collect`] | live collection: programs, rings, draining |
//! | [`correlate`], [`symbolize`], [`pipeline`] | records to visits; addresses to functions; all of it to rows |
//! | [`cost`] | what samples and marks cost the program |
//! | [`record`] | a recording as a library: from a description to a finished trace |
//! | [`lake`] | traces of many machines, in an object store or a directory |
//! | [`agent`] | recordings of services all the time, from a configuration to traces that have room |
//! | [`import`] | a recording of `perf record` through the pipeline |
//! | [`suggest`] | a running program to the functions that look like items |
//! | [`out`] | renderers of what was compared, a folder for each: report, explain, diff, info, mine, html, view, export |
//! | [`selftest`], [`validate`] | a workload that logs its truth; sampling judged against known truth |
//! | [`cmd`], [`cli`] | one file per subcommand: wiring, messages, hints; what can be typed |
//!
//! # Where to begin
//!
//! | to change | look at |
//! |---|---|
//! | an option, its help, a message | [`cmd`] (a subcommand's file has its arguments; `values.rs`), then [`cli`] |
//! | an option of recording | `cmd/record/args.rs` (its help), [`record::Recording`], `record/resolve.rs` (what it means on this machine) |
//! | what a recording says meanwhile | [`record::Event`]; its words are in `cmd/record/messages.rs` |
//! | a key of the agent's configuration | `agent/config.rs`: what was typed, checked, and the recording that it makes; `guide/always-on.md` |
//! | when the agent begins, ends and removes traces | `agent/supervisor.rs`, `agent/disk.rs`; what it says is a row in `agent/account.rs` |
//! | what a lake has, and when | [`lake`]: `push.rs` brings, `list.rs` finds, `remote.rs` reads by ranges; `agent/uploads.rs` tries again |
//! | what happens in a recording, in its order | `record/run.rs`, `record/finish.rs`; `examples/record_and_explain.rs` calls it |
//! | the bound on the slow-down, the reset value | `record/budget.rs` and `record/pace.rs` (before it starts), `record/governor.rs` |
//! | a subcommand | its file in [`cmd`]; [`cli`] declares and runs it; the README has a line for each |
//! | what the kernel programs record | `pebs-ebpf/src`, with the wire structs in `pebs-common`; `collect/programs.rs` attaches them; [`stream::decode`] |
//! | what comes between a thread and its work | `interference!` in [`store::schema`]: which columns, and what reports call them; `correlate/interrupts_and_faults.rs` fills them |
//! | when things are attached and taken away, how rings are emptied | [`collect::session`], [`collect::drain`] |
//! | what a SPEC can say | [`spec`] |
//! | which instruction is probed, how visits end | [`probe`] |
//! | an event: its name, its modifiers, its attr, what the machine grants | [`pmu`] (`pmu/event.rs` is the grammar); `cargo xtask events` makes Intel's [`pmu::table`] |
//! | which sample belongs to which item | [`correlate`] |
//! | what it costs a program to count its own events | [`cost::counters`]; the counting is the crate [`pebs_selfcount`] |
//! | names of functions | [`symbolize`], [`binary`] |
//! | a table or a column of the trace | `store/declaration.rs` declares it: row, columns, reader, csv, `guide/trace.md`; `pipeline` fills it |
//! | how columns are read | [`store::view`]: by name and type |
//! | a trace for a test | `store/fixtures.rs`: visit by visit |
//! | an estimate and its error | [`estimate::visit`], [`compare::pool`] |
//! | which counted event explains an outcome | the crate `pebs-mine` (cleaning, ranking, pairs), [`compare::mine`], [`out::mine`] (words) |
//! | a format of `export` | `out/export/mod.rs`: `Format`, with its help, and `Nature`, all that sets one apart; a file for each |
//! | which visits are exported | [`compare::select`], and their rows [`compare::load`] |
//! | a cause in `explain` and `diff` | `compare/explain`: `CauseType` in `model.rs`, `type_of_wait` in `sums.rs`; its words in `present/causes.rs` |
//! | the reason of a wait | `compare/wait_reason.rs`, its words in `present/words.rs` |
//! | a remark, or why something is not shown | `compare/remarks.rs`, its words in `present/remarks.rs` |
//! | why a trace has no answer (an error, its hint) | the enum in `compare`, its words in `present/errors.rs` |
//! | a table of text | [`present::table`] |
//! | means, quantiles, distributions; the bootstrap, gaps between clusters, costs of batches | the crate [`pebs_stats`]: what knows no trace |
//! | what is slow, why, and what the report says about it | `compare/classes.rs`, [`compare::explain`], [`compare::report`]; [`out::report`] |
//! | what two renderers say in the same words | [`present`]: `items.rs`, `causes.rs`, `functions.rs`, `account.rs` |
//!
//! Other recorded data (waits, counts of events, interrupts and faults, frequencies, batches, call stacks, memory
//! accesses) have files of that name in `pebs-ebpf/src`, `correlate` or `stream`, `pipeline` and `compare`. Fast paths
//! for the common case have `fast` in their name (`fast_samples.rs`, `fast_visits.rs`); a test compares each with the
//! slow path, and `cargo bench` shows where time goes.
//!
//! # Threads of a recording
//!
//! The thread that calls [`record::Planned::run`], of the command the main thread, waits for the end (an order, time, the
//! command, the target) in a tokio loop and looks after CPUs that come and go. A thread of the command waits for
//! signals, and gives that order. The *draining* thread empties all rings every few ms and hands
//! the bytes on as a cycle. The *pipeline* thread makes closed visits of them, with named samples, and rows of all
//! tables but two. Two threads of [`store::writer`] estimate the visits that are kept and encode their samples and
//! estimates, another compacts closed segments. Memory between the threads is
//! bounded in bytes; when the bound is reached the rings fill, and the kernel programs refuse samples
//! (never marks, as long as samples can be refused) and count them. [`pipeline`] says what bounds the rate.
//!
//! Once everything is attached, the command has each of them drop the privileges that it no longer needs.
//!
//! # What others wrote
//!
//! Binaries, perf maps, `/proc` files, traces and everything typed are untrusted: their readers neither panic nor hang,
//! and use memory in proportion to the bytes read. `fuzz.rs` lists these readers and gives each to a fuzz target
//! (`cargo xtask fuzz`). Only regular files are opened, and names reach a terminal through [`terminal`] only.
//!
//! # Invariants
//!
//! * **kernel programs.** Invariant: a record's `CLOCK_MONOTONIC` time is read after its room was
//!   reserved. Invariant: every record that is not put into a ring is counted, by reason and CPU.
//!   Nothing there decides about items.
//! * **rings** ([`collect::ring`]). Invariant: positions and framing only; no byte's meaning.
//! * **drain** ([`collect::drain`]). Invariant: below a cycle's frontier no record can still arrive. This follows from
//!   the first invariant: a ring without reserved records is complete up to the instant at which its check began.
//! * **decode, clock** ([`stream::decode`], [`stream::clock`]). Invariant: no bytes make them fail.
//!   All clock arithmetic is in `clock`.
//! * **perf records** ([`perf`]). Invariant: no bytes make decoding fail or allocate, and a sample whose fields do not
//!   end where the sample ends is an error. Rings of events opened here and files are decoded by the same code.
//! * **import** ([`import`]). Invariant: every sample of a file is a sample, mark or switch of the trace, or is
//!   booked. Nothing of this machine (processes, kernel symbols, files by path alone) explains a recording.
//! * **order** ([`stream::order`]). Invariant: records come out once, below the frontier, those of a thread in time
//!   order. It knows which records concern several threads, not what they mean.
//! * **record** ([`record`]). Invariant: prints nothing, never ends the process and handles no signal; recordings in one
//!   process do not know of each other.
//! * **correlate** ([`correlate`]). Invariant: a thread is brought up to the time of a record that
//!   concerns several before that record is used, and at each instant at most one visit of a thread is current,
//!   so no sample and no time counts twice. No symbols, no files.
//! * **symbolize** ([`symbolize`]). Invariant: a sample always gets a function, and no name is guessed.
//! * **sink** ([`store::writer`]). Invariant: a file that ends in `.parquet` is whole. Nothing is estimated
//!   that the pipeline did not ask for ([`store::writer::Estimate`]).
//! * **compare** ([`compare`]). Invariant: reads trace tables only, no live state; has no text for people and
//!   knows no terminal. A figure has its sample count and error beside it, or is unknown.
//! * **renderers** ([`out`]). Invariant: they decide nothing, and none imports another.
//! * **view** ([`out::view`]). Invariant: drawing and keys do no I/O; everything is read before the terminal is taken over,
//!   with `--live` again and again by a separate thread.
//! * **ledger** ([`ledger`]). Invariant: seen = written + each reason, per CPU and kind.

#![cfg_attr(not(any(test, fuzzing)), warn(unreachable_pub))]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "who reads this works on it: cargo doc --document-private-items has the pages"
)]

pub mod units;

pub mod arch;
pub mod failure;
mod files;
pub mod ledger;
pub(crate) mod limits;
mod rng;
pub mod terminal;
pub mod watch;

pub(crate) mod binary;

pub mod pmu;

pub mod perf;

pub mod stream;

pub mod estimate;

pub mod spec;

pub mod store;

pub mod probe;

pub(crate) mod preset;

pub mod compare;

pub(crate) mod present;

pub(crate) mod collect;

pub mod correlate;

pub mod symbolize;

pub mod pipeline;

pub(crate) mod cost;

pub mod record;

pub mod lake;

pub mod agent;

pub mod import;

pub(crate) mod suggest;

pub mod out;

pub(crate) mod selftest;
pub(crate) mod validate;

pub mod cmd;

pub mod cli;

pub mod guide;

#[cfg(any(test, fuzzing))]
pub mod fuzz;
