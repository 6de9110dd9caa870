//! EVENT in perf's grammar, independent of the machine.
//!
//! ```text
//! EVENT  = auto | NAME | NAME,TERM=... | rHEX | PMU/TERM,.../ | mem:PLACE      then modifiers
//! NAME   = cpu-clock, page-faults, cycles, L1-dcache-load-misses, ..., an alias of sysfs, or one of the vendor
//! TERM   = NAME=NUMBER | NAME | config=N | config1=N | config2=N | config3=N | name=TEXT | period=N
//! PLACE  = 0xADDR[/LEN][:ACCESS] | SYMBOL[/LEN]:ACCESS         ACCESS of r, w, x
//! after  = :MODS, after PMU/.../ also MODS alone               MODS of u, k, h, D, p, pp, ppp, P
//! Any of these but auto may have /period=N/ before MODS.
//! ```

use crate::failure::Hint;
use std::fmt::{self, Write as _};
use std::str::FromStr;

mod names;
mod parse;

pub use parse::raw as raw_code;

pub use names::{CacheEvent, CacheLevel, CacheOp, HardwareEvent, SoftwareEvent, nearest};

/// A parsed EVENT.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventSpec {
    /// The event.
    pub kind: EventKind,
    /// Precise level and CPU modes.
    pub modifiers: Modifiers,
}

/// The event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// The best precise event that the machine grants.
    Auto,
    /// Counted by the kernel.
    Software(SoftwareEvent),
    /// A generic hardware event of the kernel.
    Hardware(HardwareEvent),
    /// A generic cache event of the kernel.
    Cache(CacheEvent),
    /// `rHEX`: a raw code of the CPU.
    Raw(u64),
    /// `PMU/TERMS/`.
    Pmu {
        /// The PMU's name in sysfs.
        pmu: String,
        /// Terms in the order typed; each name once.
        terms: Vec<Term>,
    },
    /// `mem:`: a hardware breakpoint.
    Breakpoint(Breakpoint),
    /// Any other name: an alias in the `events/` folder of a PMU, one of the vendor's, or unknown.
    Alias {
        name: String,
        /// Further terms, which override its own.
        terms: Vec<Term>,
    },
}

/// One term of `PMU/TERMS/`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    /// Name, as in the PMU's `format/` or `events/` folder, or one of perf's own terms.
    pub name: String,
    /// Value, if one was given.
    pub value: TermValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TermValue {
    /// No value: 1 for a format, or the name is an alias.
    Absent,
    Number(u64),
    /// Text, only for `name=`.
    Text(String),
}

/// A hardware breakpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Breakpoint {
    /// Watched address.
    pub place: Place,
    pub access: Access,
    /// Bytes watched: 1, 2, 4 or 8; `None`: the default of the access (8 for execute, else 4).
    pub len: Option<u8>,
}

/// Address of a breakpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A virtual address.
    Address(u64),
    /// A name to be looked up: `FUNC`, `BIN:FUNC`, perhaps with `+OFF`; not checked here.
    Symbol(String),
}

/// Kinds of access that trigger a breakpoint; at least one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access {
    pub read: bool,
    /// Writes.
    pub write: bool,
    /// Execution.
    pub execute: bool,
}

/// Modifiers after the event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Modifiers {
    /// Requested precision.
    pub precise: Precise,
    /// `u`: user mode. If none of the three is set, all modes count.
    pub user: bool,
    /// `k`: kernel mode.
    pub kernel: bool,
    /// `h`: hypervisor mode.
    pub hypervisor: bool,
    /// `D`: it has its counter before others, and takes no turns.
    pub pinned: bool,
    /// `/period=N/` of an event that is no PMU's: its own reset value.
    pub period: Option<u64>,
}

impl Term {
    /// Whether it is one of perf's own terms and no field of a PMU.
    #[must_use]
    pub fn is_perfs_own(&self) -> bool {
        matches!(self.name.as_str(), parse::NAME | parse::PERIOD)
    }
}

impl Modifiers {
    /// Whether user mode is excluded.
    #[must_use]
    pub const fn exclude_user(self) -> bool {
        self.any_mode() && !self.user
    }

    /// Whether kernel mode is excluded.
    #[must_use]
    pub const fn exclude_kernel(self) -> bool {
        self.any_mode() && !self.kernel
    }

    const fn any_mode(self) -> bool {
        self.user || self.kernel || self.hypervisor
    }

    /// Returns each letter except those of precision, with the field that it sets, in the order of display.
    const fn letters(&mut self) -> [(char, &mut bool); 4] {
        let Self {
            precise: _,
            user,
            kernel,
            hypervisor,
            pinned,
            period: _,
        } = self;
        [('u', user), ('k', kernel), ('h', hypervisor), ('D', pinned)]
    }

    /// Adds the modifiers of `other`; its precision replaces this one's, if set.
    #[must_use]
    pub(crate) fn with(mut self, mut other: Self) -> Self {
        for ((_, set), (_, other)) in self.letters().into_iter().zip(other.letters()) {
            *set |= *other;
        }
        if other.precise != Precise::default() {
            self.precise = other.precise;
        }
        self.period = other.period.or(self.period);
        self
    }
}

/// Requested precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precise {
    /// `precise_ip` 0..=3: the number of `p`s.
    #[doc(alias = "precise_ip")]
    Level(u8),
    /// `P`: the most that the machine has.
    Max,
}

impl Default for Precise {
    fn default() -> Self {
        Self::Level(0)
    }
}

/// An EVENT that is not well formed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed event '{text}': {what} at column {}", self.column())]
pub struct ParseError {
    /// The text as typed.
    pub text: String,
    /// Byte offset of the fault.
    pub offset: usize,
    /// Description of the error at that column.
    pub what: String,
    /// Correct form.
    pub advice: Option<String>,
}

impl ParseError {
    /// Column of the fault in characters, from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        self.text
            .char_indices()
            .take_while(|&(at, _)| at < self.offset)
            .count()
            + 1
    }

    /// The text with a caret under the fault, two lines.
    #[must_use]
    pub fn caret(&self) -> String {
        format!("{}\n{:>width$}", self.text, '^', width = self.column())
    }
}

impl Hint for ParseError {
    fn hint(&self) -> Option<String> {
        self.advice.clone()
    }
}

impl EventSpec {
    /// The same without a reset value of its own, but for one among a PMU's terms.
    #[must_use]
    pub(crate) fn without_period(&self) -> Self {
        let mut spec = self.clone();
        spec.modifiers.period = None;
        spec
    }
}

impl FromStr for EventSpec {
    type Err = ParseError;

    /// Parses one EVENT. Lists are repeated options, so commas occur only within `PMU/TERMS/`.
    ///
    /// # Errors
    /// The text is no EVENT; the error has the column. A name that is only unknown becomes an [`EventKind::Alias`],
    /// to be resolved with the machine's `events/` folders and the vendor's table.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse::event(text)
    }
}

impl fmt::Display for EventSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            EventKind::Auto => f.write_str("auto")?,
            EventKind::Software(event) => f.write_str(event.name())?,
            EventKind::Hardware(event) => f.write_str(event.name())?,
            EventKind::Cache(event) => event.fmt(f)?,
            EventKind::Raw(code) => write!(f, "r{code:x}")?,
            EventKind::Breakpoint(breakpoint) => breakpoint.fmt(f)?,
            EventKind::Alias { name, terms } => {
                f.write_str(name)?;
                for term in terms {
                    write!(f, ",{term}")?;
                }
            }
            EventKind::Pmu { pmu, terms } => {
                write!(f, "{pmu}/")?;
                for (n, term) in terms.iter().enumerate() {
                    write!(f, "{}{term}", if n > 0 { "," } else { "" })?;
                }
                return write!(f, "/{}", self.modifiers);
            }
        }
        if let Some(period) = self.modifiers.period {
            return write!(f, "/{}={period}/{}", parse::PERIOD, self.modifiers);
        }
        if self.modifiers == Modifiers::default() {
            return Ok(());
        }
        write!(f, ":{}", self.modifiers)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            TermValue::Absent => f.write_str(&self.name),
            TermValue::Number(n) if self.name == parse::PERIOD => write!(f, "{}={n}", self.name),
            TermValue::Number(n) => write!(f, "{}={n:#x}", self.name),
            TermValue::Text(text) => write!(f, "{}={text}", self.name),
        }
    }
}

impl fmt::Display for Breakpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Address(address) => write!(f, "mem:{address:#x}")?,
            Place::Symbol(symbol) => write!(f, "mem:{symbol}")?,
        }
        if let Some(len) = self.len {
            write!(f, "/{len}")?;
        }
        write!(f, ":{}", self.access)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (set, letter) in [(self.read, "r"), (self.write, "w"), (self.execute, "x")] {
            f.write_str(if set { letter } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Modifiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut modifiers = *self;
        for (letter, set) in modifiers.letters() {
            if *set {
                f.write_char(letter)?;
            }
        }
        match self.precise {
            Precise::Level(level) => f.write_str(&"p".repeat(level.into())),
            Precise::Max => f.write_str("P"),
        }
    }
}
