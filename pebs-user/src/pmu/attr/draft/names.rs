//! Events by the names of sysfs and of the vendor's table.

use super::{Draft, Generic, Listed, pmu_class};
use crate::pmu::attr::{EventError, ibs_terms};
use crate::pmu::event::{Term, TermValue, nearest};
use crate::pmu::host::Host;
use crate::pmu::sysfs::{Config, Pmu, TermError, is_core_pmu};
use crate::pmu::table::{EventTable, VendorEvent};

/// Looks up event names on a machine.
pub(super) struct Names<'a> {
    host: &'a Host,
    table: EventTable,
}

impl<'a> Names<'a> {
    pub(super) fn of(host: &'a Host) -> Self {
        Self {
            host,
            table: EventTable::embedded(),
        }
    }

    pub(super) fn pmu(&self, name: &str, terms: &[Term]) -> Result<Draft, EventError> {
        let Some(pmu) = self.host.pmu(name) else {
            let known = self.host.pmus.iter().map(|pmu| pmu.name.clone()).collect();
            let cores = is_core_pmu(name) || name.starts_with("ibs_");
            let reason = cores.then(|| self.host.no_pmu_reason()).flatten();
            return Err(EventError::UnknownPmu {
                pmu: name.to_owned(),
                known,
                reason,
            });
        };
        match self.draft(pmu, terms) {
            Err(EventError::Term(TermError::Unknown { term, .. }))
                if terms
                    .iter()
                    .any(|typed| typed.name == term && typed.value == TermValue::Absent) =>
            {
                Err(self.unknown_on(pmu, &term))
            }
            other => other,
        }
    }

    /// Looks up a bare name: in the core PMUs first, then in the others.
    pub(super) fn alias(&self, name: &str, more: &[Term]) -> Result<Vec<Draft>, EventError> {
        let cores: Vec<&Pmu> = self.host.core_pmus().collect();
        let (having, lacking): (Vec<&Pmu>, Vec<&Pmu>) =
            cores.into_iter().partition(|pmu| self.knows(pmu, name));
        if let ([_, ..], [lacking, ..]) = (&having[..], &lacking[..]) {
            return Err(EventError::NotOnAllCores {
                event: name.to_owned(),
                pmu: lacking.name.clone(),
                having: having.iter().map(|pmu| pmu.name.clone()).collect(),
            });
        }
        let mut terms = vec![Term {
            name: name.to_owned(),
            value: TermValue::Absent,
        }];
        terms.extend_from_slice(more);
        if !having.is_empty() {
            return having.iter().map(|pmu| self.draft(pmu, &terms)).collect();
        }
        let mut others = self.host.pmus.iter();
        match others.find(|pmu| pmu.events.contains_key(name)) {
            Some(pmu) => Ok(vec![self.draft(pmu, &terms)?]),
            None => Err(self.unknown(name)),
        }
    }

    fn knows(&self, pmu: &Pmu, name: &str) -> bool {
        pmu.events.contains_key(name) || self.listed(pmu, name).is_some()
    }

    /// The vendor's event of that name on a PMU.
    fn listed(&self, pmu: &Pmu, name: &str) -> Option<VendorEvent<'_>> {
        let lists = self.table.of(&self.host.cpu).into_iter();
        lists
            .filter(|list| list.pmu == pmu.name)
            .find_map(|list| list.event(name))
    }

    /// The vendor's entry for an event with this code; `None` if several events share it and differ.
    pub(super) fn by_code(&self, pmu: &Pmu, code: Config) -> Option<Listed> {
        let list = self.table.of(&self.host.cpu);
        let list = list.iter().find(|list| list.pmu == pmu.name)?;
        // Most are distinguished by their first term.
        let first_term = format!("event={:#x}", code.config & 0xff);
        let mut same = list
            .events()
            .filter(|event| event.terms.split(',').next() == Some(&first_term))
            .filter(|event| pmu.encode_text(event.terms) == Some(code));
        let first = same.next()?;
        let says = (first.precision, first.counters);
        same.all(|other| (other.precision, other.counters) == says)
            .then(|| Listed {
                name: first.name.to_owned(),
                precision: first.precision,
                has_address: first.has_address,
                counters: first.counters,
            })
    }

    fn draft(&self, pmu: &Pmu, terms: &[Term]) -> Result<Draft, EventError> {
        // sysfs has priority over the vendor's table, which has priority over perf's generic names.
        let foreign = terms.iter().find(|term| {
            term.value == TermValue::Absent
                && !pmu.formats.contains_key(&term.name)
                && !pmu.events.contains_key(&term.name)
        });
        let listed = foreign.and_then(|term| self.listed(pmu, &term.name));
        let generic = foreign
            .filter(|_| listed.is_none() && pmu.is_core())
            .and_then(|term| Generic::named(&term.name, self.host.cpu.vendor));
        let mut draft = match (generic, foreign, listed) {
            (Some(generic), Some(name), _) => {
                let rest: Vec<Term> = terms.iter().filter(|term| *term != name).cloned().collect();
                return self.generic(pmu, generic, &rest);
            }
            (_, Some(name), Some(event)) => {
                let mut pmu = pmu.clone();
                pmu.events.insert(name.name.clone(), event.terms.to_owned());
                self.encoded(&pmu, terms)?
            }
            _ => self.encoded(pmu, terms)?,
        };
        draft.listed = listed
            .map(|event| Listed {
                name: event.name.to_owned(),
                precision: event.precision,
                has_address: event.has_address,
                counters: event.counters,
            })
            .or_else(|| self.by_code(pmu, Config::of(&draft.attr)));
        own_terms(&mut draft, terms);
        Ok(draft)
    }

    fn encoded(&self, pmu: &Pmu, terms: &[Term]) -> Result<Draft, EventError> {
        let config = pmu.encode(terms)?;
        ibs_terms::check_latency(pmu, &config)?;
        let class = pmu_class(self.host, pmu, config.config);
        let mut draft = Draft::new(pmu.kind, config.config, class).on(pmu);
        config.apply(&mut draft.attr);
        Ok(draft)
    }

    /// `cpu_core/cycles/`: only perf's own terms are allowed beside the name.
    fn generic(&self, pmu: &Pmu, event: Generic, rest: &[Term]) -> Result<Draft, EventError> {
        let field = rest.iter().find(|term| !term.is_perfs_own());
        if let Some(field) = field {
            return Err(EventError::Term(TermError::Unknown {
                pmu: pmu.name.clone(),
                term: field.name.clone(),
                known: vec!["name".into(), "period".into()],
            }));
        }
        let hybrid = self.host.core_pmus().count() > 1;
        let mut draft = if hybrid {
            event.on(pmu)
        } else {
            event.draft().on(pmu)
        };
        own_terms(&mut draft, rest);
        Ok(draft)
    }

    /// Similar names, including the vendor's.
    fn nearest(&self, name: &str) -> Vec<String> {
        let lists = self.table.of(&self.host.cpu);
        let vendor = lists.iter().flat_map(|list| list.events()).map(|e| e.name);
        let pmus = self.host.pmus.iter();
        let sysfs = pmus.flat_map(|pmu| pmu.events.keys().map(String::as_str));
        // The vendor's names are useless without a core PMU.
        let vendor = vendor.filter(|_| self.host.core_pmu().is_some());
        nearest(name, sysfs.chain(vendor))
    }

    fn unknown(&self, name: &str) -> EventError {
        let elsewhere = self.table.cpus_with(name);
        let hardware = !elsewhere.is_empty() || matches!(name, "mem-loads" | "mem-stores");
        if let Some(reason) = self.host.no_pmu_reason().filter(|_| hardware) {
            return EventError::NoPmu {
                event: name.to_owned(),
                reason,
            };
        }
        EventError::Unknown {
            event: name.to_owned(),
            nearest: self.nearest(name),
            elsewhere: elsewhere.into_iter().map(str::to_owned).collect(),
        }
    }

    /// A name that a PMU which was named does not have.
    fn unknown_on(&self, pmu: &Pmu, name: &str) -> EventError {
        let others = self.host.core_pmus().filter(|other| other.name != pmu.name);
        let having: Vec<String> = others
            .filter(|other| pmu.is_core() && self.knows(other, name))
            .map(|other| other.name.clone())
            .collect();
        if !having.is_empty() {
            return EventError::NotOnAllCores {
                event: name.to_owned(),
                pmu: pmu.name.clone(),
                having,
            };
        }
        if pmu.is_core() && !self.table.cpus_with(name).is_empty() {
            return self.unknown(name);
        }
        let known = pmu.formats.keys().chain(pmu.events.keys());
        EventError::Term(TermError::Unknown {
            pmu: pmu.name.clone(),
            term: name.to_owned(),
            known: known.cloned().collect(),
        })
    }
}

/// Applies perf's own terms, which are not the PMU's.
fn own_terms(draft: &mut Draft, terms: &[Term]) {
    for term in terms {
        match (term.name.as_str(), &term.value) {
            ("name", TermValue::Text(text)) => draft.name = Some(text.clone()),
            ("period", TermValue::Number(period)) => draft.period = Some(*period),
            _ => {}
        }
    }
}
