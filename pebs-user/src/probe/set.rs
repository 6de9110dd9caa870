//! Resolved probes: the sites to attach to, and the rule by which their marks form visits.

use std::path::PathBuf;

use super::item::Item;
use super::path::Names;
use super::redact::Redaction;
use crate::spec::expr::Type;
use pebs_common::config::{ArgKind, SiteConfig};
use pebs_common::record::Role;

use crate::store::run::{EntryClass, VisitRule};
use crate::store::schema::{ArgColumn, ArgType};
use crate::units::ProbeId;

/// A place to attach to.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Binary, resolved (no symlink), as this process can open it.
    pub path: PathBuf,
    /// Offset in the file of the probed instruction.
    pub file_offset: u64,
    /// Virtual address of the instruction in the ELF file.
    pub address: u64,
    /// Attach as a uretprobe (the role is then [`Role::Return`] or an end at `FUNC%return`).
    pub uretprobe: bool,
    /// Role of the mark.
    pub role: Role,
    /// Addresses at which the program goes on after the instruction.
    pub goes_on: Vec<u64>,
    /// Cost class of the instruction.
    pub class: EntryClass,
    /// The instruction, disassembled, for `trace.json`.
    pub instruction: String,
    /// Demangled function name and offset (`main+0x10`).
    pub place: String,
    /// Other sites that a visit passes before this one without a mark, as their branch goes to the other side; an
    /// estimate.
    pub passed: f64,
    /// File offset of the USDT semaphore, 0 if there is none.
    pub semaphore_offset: u64,
    /// Values that the eBPF program reads there.
    pub config: SiteConfig,
}

/// Location of a named argument in a mark's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgField {
    /// Index into the trace's argument columns.
    pub column: usize,
    /// Bit in `MarkArgs::valid`.
    pub bit: u32,
    /// Byte offset in the payload.
    pub offset: usize,
    /// Type of the value.
    pub r#type: ArgType,
    /// Names of its values; the column then contains names.
    pub names: Option<Names>,
    /// Rule by which its text is shortened; `None`: all of it is recorded.
    pub redact: Option<Redaction>,
}

impl ArgField {
    /// Name of a value; the number itself if it has none.
    #[must_use]
    pub fn name_of(&self, number: u64) -> Box<str> {
        let value = number.cast_signed();
        let mut names = self.names.iter().flat_map(|names| names.iter());
        match names.find(|(of, _)| *of == value) {
            Some((_, name)) => name.clone(),
            None => value.to_string().into_boxed_str(),
        }
    }
}

/// A SPEC that was looked up in its binaries.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Its number.
    pub id: ProbeId,
    /// The SPEC as typed.
    pub spec: String,
    /// Rule by which its marks form visits.
    pub rule: VisitRule,
    /// Its marks form no visits: from begin to end by the rule, its thread works on the item of this id
    /// (`--resume`).
    pub resumes: bool,
    /// Whether the item id is read from the target (else items are numbered).
    pub has_id: bool,
    /// Type of the ids of a batch, if visits serve several items.
    pub batch: Option<Type>,
    /// Every site to attach to, in this order: ends before begins.
    pub sites: Vec<Site>,
    /// Named arguments read at begin marks.
    pub begin_fields: Vec<ArgField>,
    /// Named arguments read at end and return marks.
    pub end_fields: Vec<ArgField>,
}

impl Probe {
    /// The first probe of a run, with ids of its own and nothing to attach or to read.
    #[must_use]
    pub const fn without_sites(spec: String, rule: VisitRule) -> Self {
        Self {
            id: ProbeId(0),
            spec,
            rule,
            resumes: false,
            has_id: true,
            batch: None,
            sites: Vec::new(),
            begin_fields: Vec::new(),
            end_fields: Vec::new(),
        }
    }
}

/// All probes of a run and the columns that their arguments make.
#[derive(Clone, Debug, Default)]
pub struct ProbeSet {
    /// The probes, by id.
    pub probes: Vec<Probe>,
    /// Argument columns, in order of first mention.
    pub columns: Vec<ArgColumn>,
    /// Source of item ids at samples: if items are not marked, there is one probe, without sites; else of items that
    /// are matched by id, whose turns on threads samples show.
    pub item: Option<Item>,
    /// Remarks for `trace.json` and the first lines of a run: how returns are marked, what a probe can't see.
    pub notes: Vec<String>,
}

impl ProbeSet {
    /// Whether marks begin and end items, and samples show their turns.
    #[must_use]
    pub fn is_marked_and_sampled(&self) -> bool {
        self.item.is_some() && self.probes.iter().any(|it| it.rule == VisitRule::ById)
    }

    /// Whether some marks read ids behind an array of pointers.
    #[must_use]
    pub fn reads_behind(&self) -> bool {
        let mut sites = self.probes.iter().flat_map(|probe| &probe.sites);
        sites.any(|site| site.config.id.kind == ArgKind::IdsBehind as u8)
    }
}
