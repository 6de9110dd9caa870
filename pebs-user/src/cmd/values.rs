//! Values of options that several subcommands have, and their parsers.

use std::time::Duration;

use clap::ValueEnum;

use crate::failure::Result;
use crate::pmu::jitter::MAX_PERCENT;
use crate::record::{CallGraph, TransportChoice};

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// Transport of samples from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TransportArg {
    /// bulk if the hardware buffers samples, else bpf
    #[default]
    Auto,
    /// An eBPF program reads each sample
    Bpf,
    /// The kernel writes samples to perf's rings
    Bulk,
}

impl From<TransportArg> for TransportChoice {
    fn from(transport: TransportArg) -> Self {
        match transport {
            TransportArg::Auto => Self::Auto,
            TransportArg::Bpf => Self::Bpf,
            TransportArg::Bulk => Self::Bulk,
        }
    }
}

/// Method that takes call stacks of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CallGraphArg {
    /// By frame pointers
    Fp,
    /// By unwind tables
    #[value(alias = "dwarf")]
    Eh,
    /// By the CPU's last branch records
    Lbr,
    /// Not at all
    None,
}

impl CallGraphArg {
    /// Returns the method; by tables if they cost little, unless one was given.
    pub(super) const fn taken(typed: Option<Self>) -> Option<CallGraph> {
        match typed {
            Some(Self::Fp) => Some(CallGraph::Fp),
            Some(Self::Eh) => Some(CallGraph::Eh),
            Some(Self::Lbr) => Some(CallGraph::Lbr),
            Some(Self::None) => None,
            None => Some(CallGraph::Affordable),
        }
    }

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp => "fp",
            Self::Eh => "eh",
            Self::Lbr => "lbr",
            Self::None => "none",
        }
    }
}

/// Records besides marks and samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Extra {
    /// Who woke a waiting thread, and who preempted a runnable one
    Waits,
    /// Time of interrupts within items
    Irq,
    /// Time of page faults and memory reclaim within items, and major faults
    Faults,
    /// Frequency of the CPUs
    Freq,
    /// None of these, even if the budget allows it
    None,
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
pub(crate) fn tid(text: &str) -> Result<u32, String> {
    let wanted = "a thread's number; 'ps -L -p PID' lists them";
    text.parse().map_err(|_| wanted.to_owned())
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let wanted = "a number of seconds (2.5) or a time with a unit (90s, 5m, 1h)";
    let duration = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| wanted.to_owned())?,
        Err(_) => humantime::parse_duration(text).map_err(|_| wanted.to_owned())?,
    };
    if duration.is_zero() {
        Err("must be above 0".to_owned())
    } else {
        Ok(duration)
    }
}

/// Parses an item id as the trace stores it: the 64 bits of a signed number.
pub(crate) fn item_id(text: &str) -> Result<u64, String> {
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

/// Parses how far distances between samples vary.
pub(crate) fn jitter(text: &str) -> Result<f64, String> {
    percent(text)
        .ok()
        .filter(|percent| *percent <= MAX_PERCENT)
        .ok_or_else(|| format!("a percentage from 0 (equal distances) to {MAX_PERCENT}"))
}

/// Parses a slow-down in percent into a share. A small number without a percent sign is refused as ambiguous.
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

pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    text.parse::<bytesize::ByteSize>()
        .map(|size| size.as_u64())
        .map_err(|_| "a number of bytes, with a unit if you like (64KiB, 512MiB, 1GB)".to_owned())
}

pub(crate) fn memory(text: &str) -> Result<u64, String> {
    const LEAST: u64 = 16 << 20;
    let size = bytes(text)?;
    if size < LEAST {
        return Err("16MiB at least".to_owned());
    }
    Ok(size)
}

pub(crate) fn ring_size(text: &str) -> Result<u32, String> {
    let size = bytes(text)?;
    u32::try_from(size)
        .ok()
        .filter(|size| size.is_power_of_two() && (4 << 10..=64 << 20).contains(size))
        .ok_or_else(|| format!("{size} is not a power of two from 4KiB to 64MiB"))
}
