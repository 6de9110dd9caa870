//! `pebs-trace agent`: records services all the time.

mod journal;
mod notify;
mod top;

use std::path::PathBuf;
use std::process::ExitCode;

use bytesize::ByteSize;
use clap::{Args, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use self::journal::Journal;
use self::notify::Notify;
use self::top::TopArgs;
use super::print_result;
use super::values::Format;
use crate::agent::{self, Agent, Config, Event, Health, Level, Order, Orders, SOCKET, State};
use crate::collect::{privileges, signals};
use crate::failure::{Context as _, Result};
use crate::present::human::percent;
use crate::present::table::{Column, Table};
use crate::terminal::shown;

/// Options of `pebs-trace agent`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct AgentArgs {
    /// Subcommand; `None`: the agent itself.
    #[command(subcommand)]
    pub command: Option<AgentCmd>,
    /// Read what to record from this file
    #[arg(long, value_name = "FILE", required = true)]
    pub config: Option<PathBuf>,
    /// Only check the file
    #[arg(long)]
    pub check: bool,
}

/// Questions to a running agent.
#[derive(Clone, Debug, Subcommand)]
pub enum AgentCmd {
    /// Show what the agent records, and what it takes
    ///
    /// For each target whether it is recorded, its items, samples and losses since the agent started, and how much items are
    /// slowed down; the agent's own CPU time, memory and disk.
    ///
    /// Exit status: 0; 1 a target could not be recorded; 2 no agent answers.
    Status(StatusArgs),
    /// Show what targets do now
    ///
    /// A table that is renewed every second: items a second, slow items since the agent started, how long items of the last
    /// minute took, how rarely samples are taken, how much items are slowed down, and records lost. It ends by q, Esc or
    /// Ctrl-C. If the output is no terminal, the tables are printed one after the other.
    Top(TopArgs),
}

/// The agent that is asked.
#[derive(Clone, Debug, Args)]
pub struct Asked {
    /// Ask on this socket
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    pub socket: PathBuf,
    /// Ask on the socket that this configuration names
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    pub config: Option<PathBuf>,
}

impl Asked {
    /// The socket.
    ///
    /// # Errors
    /// The configuration has a fault.
    fn socket(&self) -> Result<PathBuf> {
        match &self.config {
            Some(file) => Ok(Config::read(file)?.agent.socket),
            None => Ok(self.socket.clone()),
        }
    }
}

/// Options of `pebs-trace agent status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub agent: Asked,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    pub format: Format,
}

/// Runs an agent, checks its configuration, or asks one.
///
/// # Errors
/// The configuration has a fault, or the agent could not start.
pub fn run(args: &AgentArgs) -> Result<ExitCode> {
    match (&args.command, &args.config) {
        (Some(AgentCmd::Status(args)), _) => status(args),
        (Some(AgentCmd::Top(args)), _) => top::run(args),
        (None, Some(file)) if args.check => {
            let config = Config::read(file)?;
            let names: Vec<&str> = config.targets.iter().map(|it| &*it.name).collect();
            let text = format!("{}: {}\n", file.display(), names.join(", "));
            print_result(&text, "result")?;
            Ok(ExitCode::SUCCESS)
        }
        (None, file) => {
            signals::heed_interrupt();
            let agent = Agent::new(file.as_deref().unwrap_or("".as_ref()))?;
            listen(agent.orders())?;
            let (journal, notify) = (Journal::new(), Notify::from_environment());
            agent.run(|event| match event {
                Event::Ready => notify.ready(),
                Event::Reloading => notify.reloading(),
                Event::Ending => notify.stopping(),
                Event::Alive(status) => notify.alive(&status),
                Event::Said(level, text) => journal.say(level, &text),
            });
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Turns signals into orders, on a thread of its own.
fn listen(orders: Orders) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the control loop")?;
    let inside = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot catch SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot catch SIGTERM")?;
    let mut hangup = signal(SignalKind::hangup()).context("cannot catch SIGHUP")?;
    let mut snapshot = signal(SignalKind::user_defined2()).context("cannot catch SIGUSR2")?;
    drop(inside);
    std::thread::spawn(move || {
        privileges::give_up_on_this_thread();
        runtime.block_on(async {
            loop {
                let order = tokio::select! {
                    _ = interrupt.recv() => Order::End("interrupt"),
                    _ = terminate.recv() => Order::End("terminated"),
                    _ = hangup.recv() => Order::Reload,
                    _ = snapshot.recv() => Order::Snapshot,
                };
                orders.give(order);
            }
        });
    });
    Ok(())
}

fn status(args: &StatusArgs) -> Result<ExitCode> {
    let health = agent::ask(&args.agent.socket()?)?;
    let text = match args.format {
        Format::Text => text(&health),
        Format::Json => serde_json::to_string_pretty(&health)? + "\n",
    };
    print_result(&text, "status")?;
    let failed = health.targets.iter().any(|it| it.state == State::Failed);
    Ok(ExitCode::from(u8::from(failed)))
}

fn text(health: &Health) -> String {
    let mut table = Table::new(vec![
        Column::names("target", 8),
        Column::words("state"),
        Column::number("processes"),
        Column::number("items"),
        Column::number("samples"),
        Column::number("lost"),
        Column::number("slow-down"),
        Column::number("traces").rank(1),
    ]);
    for it in &health.targets {
        let cells = [
            shown(&it.name).into_owned(),
            it.state.name().to_owned(),
            it.processes.to_string(),
            it.items.to_string(),
            it.samples.to_string(),
            it.lost.to_string(),
            it.slowdown.map_or_else(|| "-".to_owned(), percent),
            it.traces.to_string(),
        ];
        table.row(cells.map(Into::into));
    }
    let errors = health.targets.iter().filter_map(|it| {
        let error = shown(it.error.as_deref()?).into_owned();
        Some(format!("{}: {error}\n", it.name))
    });
    let errors: String = errors.collect();
    let disk = &health.disk;
    let uploads = health.uploads.to.as_deref().map(|to| {
        let it = &health.uploads;
        let error = it.error.as_deref().map(|it| format!("; {}", shown(it)));
        format!(
            "lake: {} traces ({}) brought to {}, {} wait{}\n",
            it.pushed,
            size(it.bytes),
            shown(to),
            it.pending,
            error.unwrap_or_default()
        )
    });
    format!(
        "{}\n\n{errors}agent {} (process {}): {:.1} s of CPU in {} ({}), {} of memory\n\
         disk: {} of {} in {} closed traces, {} removed, {} free\n{}",
        table.whole(),
        shown(&health.version),
        health.pid,
        health.cpu_seconds,
        humantime::format_duration(std::time::Duration::from_secs(health.seconds as u64)),
        percent(health.cpu_seconds / health.seconds.max(1.0)),
        size(health.memory_bytes),
        size(disk.bytes),
        size(disk.max_bytes),
        disk.traces,
        disk.removed,
        size(disk.free_bytes),
        uploads.unwrap_or_default()
    )
}

fn size(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}

impl Level {
    /// As syslog and the journal number it.
    const fn number(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warning => 4,
            Self::Info => 6,
        }
    }
}
