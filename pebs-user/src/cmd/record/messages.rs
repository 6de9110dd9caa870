//! Messages of a recording on stderr while it runs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;

use crate::binary::debug_files;
use crate::cmd::status::StatusLine;
use crate::collect::privileges;
use crate::present::account::samples_may;
use crate::record::{EXTRA, Event, Growth, Recording, Target, percent};
use crate::store::run::OverheadInfo;
use crate::terminal::{quoted, say};

/// Shows events of a recording.
pub(super) struct Messages {
    output: PathBuf,
    /// The program of the command, if there is one.
    command: Option<OsString>,
    duration: Option<Duration>,
    /// Remarks so far.
    notes: Vec<String>,
    status: StatusLine,
    /// Message on when the trace reaches its largest size, once it was shown.
    growth: Option<String>,
}

impl Messages {
    pub(super) fn new(recording: &Recording) -> Self {
        let command = match &recording.target {
            Target::Command(command) => command.first().cloned(),
            _ => None,
        };
        Self {
            output: recording.output.clone(),
            command,
            duration: recording.duration,
            notes: Vec::new(),
            status: StatusLine::default(),
            growth: None,
        }
    }

    /// The remarks that were shown so far.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    pub(super) fn show(&mut self, event: Event) {
        match event {
            Event::AskingDebuginfod(files) => {
                say!("asking debuginfod for {}", debug_files::count(files));
            }
            Event::Preset {
                name,
                uprobes,
                resumes,
            } => say!(
                "preset {name}:{}{}",
                options("-u", &uprobes),
                options("--resume", &resumes)
            ),
            Event::Transport { name, why } => say!("transport {name}: {why}"),
            Event::Note(text) => {
                say!("note: {text}");
                self.notes.push(text);
            }
            Event::Warning(warning) => {
                say!("warning: {}", warning.text);
                say!("hint: {}", warning.hint);
            }
            Event::Problem(text) => say!("warning: {text}"),
            Event::Measuring => {
                say!("measuring the cost of marks and samples (saved once two recordings agree)");
            }
            Event::ReadingSymbols => say!("reading the symbols of running processes"),
            Event::Started { budget } => {
                give_up_privileges();
                say!(
                    "recording to {}{}",
                    self.output.display(),
                    self.how_to_end()
                );
                if let Some(budget) = budget {
                    say!("{budget}");
                }
            }
            Event::Waits(what) => {
                give_up_privileges();
                say!("waiting for {what} before anything is recorded");
            }
            Event::Paused => say!("paused: nothing is recorded until 'resume'"),
            Event::Resumed => say!("recording again"),
            Event::Snapshot(dir) => say!("snapshot in {}", dir.display()),
            Event::Beyond(info) => say!("note: {}", on_top(&info)),
            // The status line has it.
            Event::Changed { .. } => {}
            Event::Status(ref status) => {
                if let (None, Some(text)) = (&self.growth, status.growth.and_then(growth)) {
                    say!("{text}");
                    self.growth = Some(text);
                }
                self.status.show(&event);
            }
            Event::Ending => self.status.show(&event),
        }
    }

    fn how_to_end(&self) -> String {
        match (&self.command, self.duration) {
            (Some(command), _) => format!(" until {} ends", command.to_string_lossy()),
            (None, Some(duration)) => {
                format!(
                    " for {} (Ctrl-C ends sooner)",
                    humantime::format_duration(duration)
                )
            }
            (None, None) => " (Ctrl-C ends)".to_owned(),
        }
    }
}

/// Returns a message on when the trace reaches its largest size, if it has one.
fn growth(growth: Growth) -> Option<String> {
    let left = growth.left?.as_secs();
    // Minutes are enough for what takes longer.
    let left = if left < 120 { left } else { left / 60 * 60 };
    Some(format!(
        "the trace grows by {} an hour: --max-size is reached in about {}",
        ByteSize(growth.an_hour as u64),
        humantime::format_duration(Duration::from_secs(left))
    ))
}

/// SPECs as options, ready to change and paste.
fn options(name: &str, specs: &[String]) -> String {
    let one = |spec: &String| format!(" {name} {}", quoted(spec));
    specs.iter().map(one).collect()
}

/// Gives up root's privileges: everything is attached.
fn give_up_privileges() {
    if let Err(error) = privileges::give_up() {
        say!("warning: cannot give up root's privileges: {error}");
        say!("hint: the recording is not affected; please report this");
    }
}

/// Describes what samples may cost beyond the default bound, and why.
fn on_top(info: &OverheadInfo) -> String {
    let why = match (info.marks_alone, info.last_marks) {
        (true, None) => "marks alone take longer than the items themselves; ".to_owned(),
        (true, Some(share)) => format!("marks alone slow items down by {}; ", percent(share)),
        (false, _) => String::new(),
    };
    let may = info.extra.as_ref().map_or_else(
        || format!("samples may add {}", percent(EXTRA)),
        samples_may,
    );
    format!("{why}{may}")
}
