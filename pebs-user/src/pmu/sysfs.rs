//! PMUs of the machine, read from sysfs.
//!
//! Everything is read below a root, which is `/` except in tests. Only field formats are interpreted.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use perf_event_open_sys::bindings::perf_event_attr;

use crate::pmu::bits::{BitField, Overflow, Word};
use crate::pmu::event::{EventKind, EventSpec, Term, TermValue};
use crate::units::Cpu;

/// Folder of all PMUs.
pub(crate) const DEVICES: &str = "sys/bus/event_source/devices";

/// The kernel's names of core PMUs.
/// Source: arch/x86/events/intel/core.c (`intel_hybrid_pmu_type_map`).
pub(super) const CORE_PMUS: [&str; 4] = ["cpu", "cpu_core", "cpu_atom", "cpu_lowpower"];

/// Whether that is the PMU of a kind of cores.
#[must_use]
pub(crate) fn is_core_pmu(name: &str) -> bool {
    CORE_PMUS.contains(&name)
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pmu {
    /// Name of its folder: `cpu`, `ibs_op`, ...
    pub name: String,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// Fields of its events, by name.
    pub formats: BTreeMap<String, BitField>,
    /// Names of events it offers, with their terms as text.
    pub events: BTreeMap<String, String>,
    /// Maximum precise level; `None` if the kernel does not report it.
    pub max_precise: Option<u8>,
    /// Number of last branch records; 0: none.
    pub branches: u32,
    /// CPUs that it counts on (hybrid CPUs); `None`: all.
    pub cpus: Option<Vec<Cpu>>,
}

/// The uprobe PMU as sysfs describes it. Read once, used for every probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UprobePmu {
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// Bit field that requests a return probe.
    pub retprobe: BitField,
    /// Bits that hold the semaphore's offset in the file; absent before Linux 4.20.
    pub semaphore: Option<BitField>,
}

impl UprobePmu {
    /// Reads the PMU below `root` (`/` except in tests); `None` if the kernel has none: before Linux 4.17 or
    /// without `CONFIG_UPROBE_EVENTS`.
    /// Source: Documentation/ABI/testing/sysfs-bus-event_source-devices-format.
    #[must_use]
    pub fn read(root: &Path) -> Option<Self> {
        let dir = root.join(DEVICES).join("uprobe");
        let text = |name: &str| fs::read_to_string(dir.join(name)).ok();
        let field = |name: &str| BitField::parse(&text(name)?).filter(|f| f.word == Word::Config);
        Some(Self {
            kind: text("type")?.trim().parse().ok()?,
            retprobe: field("format/retprobe")?,
            semaphore: field("format/ref_ctr_offset"),
        })
    }
}

/// Errors of encoding terms.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TermError {
    /// The PMU has neither a field nor an event of this name.
    #[error("PMU {pmu} has no term '{term}'")]
    Unknown {
        pmu: String,
        term: String,
        known: Vec<String>,
    },
    /// A value is too wide.
    #[error("term '{term}' of PMU {pmu}")]
    Overflow {
        pmu: String,
        term: String,
        /// Value and bits.
        #[source]
        source: Overflow,
    },
    /// An alias can't be parsed.
    #[error("event '{alias}' of PMU {pmu} is '{text}', which can't be read")]
    Alias {
        pmu: String,
        alias: String,
        /// Its text in sysfs.
        text: String,
    },
}

/// The words of `perf_event_attr` that a PMU's terms fill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    pub config: u64,
    /// `config1`.
    pub config1: u64,
    /// `config2`.
    pub config2: u64,
    /// `config3`.
    pub config3: u64,
}

impl Config {
    fn word(&mut self, word: Word) -> &mut u64 {
        match word {
            Word::Config => &mut self.config,
            Word::Config1 => &mut self.config1,
            Word::Config2 => &mut self.config2,
            Word::Config3 => &mut self.config3,
        }
    }

    /// The words of an attr.
    #[must_use]
    pub fn of(attr: &perf_event_attr) -> Self {
        Self {
            config: attr.config,
            config1: attr.config1,
            config2: attr.config2,
            config3: attr.config3,
        }
    }

    /// Writes the words into an attr.
    pub fn apply(self, attr: &mut perf_event_attr) {
        attr.config = self.config;
        attr.config1 = self.config1;
        attr.config2 = self.config2;
        attr.config3 = self.config3;
    }
}

impl Pmu {
    /// Whether it is the PMU of a kind of cores.
    #[must_use]
    pub fn is_core(&self) -> bool {
        is_core_pmu(&self.name)
    }

    /// Encodes terms into settings. An alias is replaced by its own terms, which explicit terms override:
    /// `mem-loads,ldlat=64`.
    ///
    /// perf's own terms `name` and `period` are skipped.
    ///
    /// # Errors
    /// A term is unknown or its value too wide.
    pub fn encode(&self, terms: &[Term]) -> Result<Config, TermError> {
        let mut config = Config::default();
        for term in terms.iter().filter(|term| self.is_alias(term)) {
            for inner in self.alias_terms(&term.name)? {
                self.set(&mut config, &inner)?;
            }
        }
        for term in terms.iter().filter(|term| !self.is_alias(term)) {
            self.set(&mut config, term)?;
        }
        Ok(config)
    }

    /// Whether a term names an event rather than a field: a field of the same name wins.
    fn is_alias(&self, term: &Term) -> bool {
        term.value == TermValue::Absent
            && !self.formats.contains_key(&term.name)
            && self.events.contains_key(&term.name)
    }

    /// An alias's terms: `event=0xcd,umask=0x1,ldlat=3`.
    fn alias_terms(&self, alias: &str) -> Result<Vec<Term>, TermError> {
        let text = self.events.get(alias).map_or("", |text| text.trim());
        terms_of(text).ok_or_else(|| TermError::Alias {
            pmu: self.name.clone(),
            alias: alias.to_owned(),
            text: text.to_owned(),
        })
    }

    /// Encodes terms given as text; `None` if they are not this PMU's.
    #[must_use]
    pub fn encode_text(&self, text: &str) -> Option<Config> {
        self.encode(&terms_of(text)?).ok()
    }

    fn set(&self, config: &mut Config, term: &Term) -> Result<(), TermError> {
        let value = match &term.value {
            TermValue::Absent => 1,
            TermValue::Number(value) => *value,
            TermValue::Text(_) => return Ok(()),
        };
        let field = match self.formats.get(&term.name) {
            Some(field) => field.clone(),
            None => match term.name.as_str() {
                "period" => return Ok(()),
                name => whole_word(name).ok_or_else(|| self.unknown(name))?,
            },
        };
        let overflow = |source| TermError::Overflow {
            pmu: self.name.clone(),
            term: term.name.clone(),
            source,
        };
        let bits = field.encode(value).map_err(overflow)?;
        let word = config.word(field.word);
        *word = (*word & !field.mask()) | bits;
        Ok(())
    }

    fn unknown(&self, term: &str) -> TermError {
        let known = self
            .formats
            .keys()
            .chain(self.events.keys())
            .cloned()
            .collect();
        TermError::Unknown {
            pmu: self.name.clone(),
            term: term.to_owned(),
            known,
        }
    }
}

/// Parses the terms between the slashes of `PMU/TERMS/`.
fn terms_of(text: &str) -> Option<Vec<Term>> {
    let spec: EventSpec = format!("pmu/{text}/").parse().ok()?;
    match spec.kind {
        EventKind::Pmu { terms, .. } => Some(terms),
        _ => None,
    }
}

/// perf's own terms for whole config words.
fn whole_word(name: &str) -> Option<BitField> {
    matches!(name, "config" | "config1" | "config2" | "config3")
        .then(|| BitField::parse(&format!("{name}:0-63")))
        .flatten()
}

/// Reads all PMUs below `root`, sorted by name. Empty if the folder is missing.
#[must_use]
pub(crate) fn read_pmus(root: &Path) -> Vec<Pmu> {
    let mut pmus: Vec<Pmu> = entries(&root.join(DEVICES))
        .into_iter()
        .filter_map(|(name, path)| read_pmu(name, &path))
        .collect();
    pmus.sort_by(|a, b| a.name.cmp(&b.name));
    pmus
}

fn read_pmu(name: String, dir: &Path) -> Option<Pmu> {
    let formats = files(&dir.join("format"));
    let cpus = text(&dir.join("cpus")).or_else(|| text(&dir.join("cpumask")));
    Some(Pmu {
        name,
        kind: text(&dir.join("type"))?.parse().ok()?,
        formats: formats
            .filter_map(|(name, text)| Some((name, BitField::parse(&text)?)))
            .collect(),
        events: files(&dir.join("events"))
            .filter(|(name, _)| is_event(name))
            .collect(),
        max_precise: text(&dir.join("caps/max_precise")).and_then(|text| text.parse().ok()),
        branches: text(&dir.join("caps/branches"))
            .and_then(|text| text.parse().ok())
            .unwrap_or(0),
        cpus: cpus.and_then(|list| parse_cpu_list(&list)),
    })
}

/// Whether a file of `events/` is an event; the others are units and scales.
fn is_event(name: &str) -> bool {
    ![".unit", ".scale", ".per-pkg", ".snapshot"]
        .iter()
        .any(|suffix| name.ends_with(suffix))
}

/// Parses a list such as `0-3,8`; `None` if malformed. An empty text is an empty list.
#[must_use]
pub(crate) fn parse_cpu_list(text: &str) -> Option<Vec<Cpu>> {
    let mut cpus = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let (low, high): (u16, u16) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        cpus.extend((low..=high).map(Cpu));
    }
    Some(cpus)
}

/// The text of a file without the space around it.
pub(super) fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

fn files(dir: &Path) -> impl Iterator<Item = (String, String)> + use<> {
    entries(dir)
        .into_iter()
        .filter_map(|(name, path)| Some((name, text(&path)?)))
}

/// Names and paths in a folder; empty if it can't be read.
fn entries(dir: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::host::fixtures;

    fn terms(text: &str) -> Vec<Term> {
        match text.parse::<EventSpec>().unwrap().kind {
            EventKind::Pmu { terms, .. } => terms,
            other => panic!("{other:?}"),
        }
    }

    fn encoded(pmu: &Pmu, text: &str) -> Config {
        pmu.encode(&terms(text)).unwrap()
    }

    /// Fields use the bits of the kernel's format files, on Intel and with AMD's split event field.
    #[test]
    fn fields_land_in_their_bits() {
        let skylake = fixtures::skylake();
        let cpu = skylake.pmu("cpu").unwrap();
        assert_eq!(cpu.kind, 4);
        assert_eq!(cpu.max_precise, Some(3));
        assert_eq!(encoded(cpu, "cpu/event=0xc2,umask=0x1/").config, 0x01c2);
        assert_eq!(
            encoded(cpu, "cpu/event=0xc2,umask=1,inv,cmask=16/").config,
            0x1080_01c2
        );
        assert_eq!(
            encoded(cpu, "cpu/config=0x1c2,config1=7,config2=9/").config2,
            9
        );

        let zen4 = fixtures::zen4();
        let cpu = zen4.pmu("cpu").unwrap();
        assert_eq!(
            encoded(cpu, "cpu/event=0x1c2,umask=0xff/").config,
            0x1_0000_ffc2
        );
        let ibs = zen4.pmu("ibs_op").unwrap();
        assert_eq!(
            encoded(ibs, "ibs_op/cnt_ctl=1,l3missonly=1/").config,
            0x9_0000
        );
        assert_eq!(encoded(ibs, "ibs_op/cnt_ctl/").config, 0x8_0000);
    }

    /// An alias has its own terms, which explicit ones override.
    #[test]
    fn aliases_expand() {
        let host = fixtures::skylake();
        let cpu = host.pmu("cpu").unwrap();
        let expect = Config {
            config: 0x01cd,
            config1: 3,
            ..Config::default()
        };
        assert_eq!(encoded(cpu, "cpu/mem-loads/"), expect);
        assert_eq!(encoded(cpu, "cpu/ldlat=30,mem-loads/").config1, 30);
    }

    /// Errors for unknown terms and too wide values name the term and its bits.
    #[test]
    fn errors_name_the_term() {
        let host = fixtures::skylake();
        let cpu = host.pmu("cpu").unwrap();
        let error = cpu.encode(&terms("cpu/evnt=1/")).unwrap_err();
        assert_eq!(error.to_string(), "PMU cpu has no term 'evnt'");
        let error = cpu.encode(&terms("cpu/event=0x1c2/")).unwrap_err();
        assert_eq!(error.to_string(), "term 'event' of PMU cpu");
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(source, "value 0x1c2 does not fit the 8 bits of config:0-7");
    }

    /// CPU lists as the kernel prints them.
    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpu_list("0-2,5\n").unwrap(), [0, 1, 2, 5].map(Cpu));
        assert_eq!(parse_cpu_list(""), Some(vec![]));
        assert_eq!(parse_cpu_list("0-"), None);
    }

    /// A machine without the folder has no PMUs, and that is not an error.
    #[test]
    fn no_folder() {
        assert!(read_pmus(Path::new("/no/such/root")).is_empty());
    }
}
