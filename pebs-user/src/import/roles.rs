//! Decides what each event of a recording is used for.

use rustc_hash::FxHashSet;

use super::error::ImportError;
use super::marks::Marks;
use super::survey::Survey;
use crate::perf::data::format::Field;
use crate::perf::data::reader::PerfData;
use crate::pmu::watch::Watch;
use crate::store::run::VisitRule;
use crate::units::EventId;

/// Source of the begins and ends of items.
#[derive(Clone, Debug, Default)]
pub enum MarkSource {
    /// No items.
    #[default]
    None,
    /// At samples of these events.
    Events {
        /// Event that begins items, as typed.
        begin: String,
        /// Event that ends items, as typed; `None`: the next begin ends them.
        end: Option<String>,
        /// Field with the item id, as typed.
        id: Option<String>,
    },
    /// At the times in a table.
    Table(Marks),
}

/// Use of an event's samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// Samples of the trace.
    Samples(EventId),
    Mark {
        /// `true`: begins items; `false`: ends them.
        begin: bool,
        /// Field with the item id.
        id: Option<Field>,
    },
    /// Context switches.
    Switches,
    /// Left out by `--event`.
    LeftOut,
}

/// The uses of all events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// By event.
    pub uses: Vec<Use>,
    /// Pairs marks into visits; `None`: no marks.
    pub rule: Option<VisitRule>,
    /// Whether marks carry an id.
    pub has_id: bool,
    /// Whether time off the CPU is recorded.
    pub switches: bool,
    /// Threads with items; empty unless switches come from a tracepoint.
    pub switched: FxHashSet<u32>,
}

impl Roles {
    /// File indices of the sampled events, in order of their numbers in the trace.
    pub fn sampled(&self) -> impl Iterator<Item = usize> + '_ {
        let uses = self.uses.iter().enumerate();
        uses.filter_map(|(n, used)| matches!(used, Use::Samples(_)).then_some(n))
    }

    /// Returns the place that each sampled event watches, by its number in the trace.
    #[must_use]
    pub fn watches(&self, data: &PerfData) -> Vec<Option<Watch>> {
        let watched = self.sampled().map(|n| data.events[n].attr.watch);
        watched.map(|it| it.map(|it| it.watch)).collect()
    }
}

/// Decides what each event is used for. `wanted`: names of the events to sample; empty: all that have no other use.
///
/// # Errors
/// If something named is not there, or there is nothing to be sampled.
pub fn roles(
    data: &PerfData,
    survey: &Survey,
    marks: &MarkSource,
    wanted: &[String],
) -> Result<Roles, ImportError> {
    let lookup = Lookup { data, survey };
    let mut uses: Vec<Option<Use>> = vec![None; data.events.len()];
    let (mut rule, mut has_id) = (None, false);
    match marks {
        MarkSource::None => {}
        MarkSource::Table(table) => {
            rule = Some(table.rule());
            has_id = table.has_id();
        }
        MarkSource::Events { begin, end, id } => {
            let begins = lookup.events(begin)?;
            let mut ends_have_id = id.is_some();
            for &n in &begins {
                let id = id.as_ref().map(|id| lookup.field(n, id)).transpose()?;
                uses[n] = Some(Use::Mark { begin: true, id });
            }
            for n in end
                .iter()
                .map(|end| lookup.events(end))
                .collect::<Result<Vec<_>, _>>()?
                .concat()
            {
                let id = id.as_ref().and_then(|id| lookup.field(n, id).ok());
                ends_have_id &= id.is_some();
                uses[n] = Some(Use::Mark { begin: false, id });
            }
            has_id = id.is_some();
            rule = Some(match end {
                None => VisitRule::UntilNext,
                Some(_) if ends_have_id => VisitRule::ById,
                Some(_) => VisitRule::ByThread,
            });
        }
    }
    for name in wanted {
        for n in lookup.events(name)? {
            // The number is set below.
            uses[n].get_or_insert(Use::Samples(EventId(0)));
        }
    }
    let switched = with_items(survey, &uses, marks);
    let from_tracepoint = survey.switches == 0 && {
        let known = survey.pids.keys().copied().filter(|tid| *tid != 0);
        let whole = survey.switched.is_whole(switched.iter().copied());
        // Threads without a switch prove nothing: judge by all threads.
        whole.or_else(|| survey.switched.is_whole(known)) == Some(true)
    };
    let mut used_switches = false;
    for (n, used) in uses
        .iter_mut()
        .enumerate()
        .filter(|(_, used)| used.is_none())
    {
        let is_switch = from_tracepoint && survey.switch_formats[n].is_some();
        used_switches |= is_switch;
        *used = Some(match (is_switch, wanted.is_empty()) {
            (true, _) => Use::Switches,
            (false, true) => Use::Samples(EventId(0)),
            (false, false) => Use::LeftOut,
        });
    }
    let mut uses: Vec<Use> = uses.into_iter().flatten().collect();
    number(data, survey, &mut uses)?;
    Ok(Roles {
        uses,
        rule,
        has_id,
        switches: survey.switches > 0 || used_switches,
        switched: if used_switches {
            switched
        } else {
            FxHashSet::default()
        },
    })
}

/// Threads with marks.
fn with_items(survey: &Survey, uses: &[Option<Use>], marks: &MarkSource) -> FxHashSet<u32> {
    match marks {
        MarkSource::None => FxHashSet::default(),
        MarkSource::Events { .. } => {
            survey.threads_of(|event| matches!(uses[event], Some(Use::Mark { .. })))
        }
        MarkSource::Table(Marks(rows)) => rows.iter().map(|mark| mark.tid).collect(),
    }
}

/// Numbers the sampled events. Dummy events, which only carry other records, are left out.
fn number(data: &PerfData, survey: &Survey, uses: &mut [Use]) -> Result<(), ImportError> {
    let mut next = 0;
    for (n, used) in uses.iter_mut().enumerate() {
        if let Use::Samples(number) = used {
            if data.events[n].attr.is_dummy() && survey.counts[n].samples == 0 {
                *used = Use::LeftOut;
                continue;
            }
            *number = EventId(next as u8);
            next += 1;
        }
    }
    let path = data.path().to_owned();
    match next {
        0 => {
            let is_other = |&n: &usize| uses[n] == Use::LeftOut && !data.events[n].attr.is_dummy();
            let others = (0..uses.len()).filter(is_other);
            let others = others.map(|n| survey.names.names()[n].clone()).collect();
            Err(ImportError::NothingLeft { path, others })
        }
        1..=256 => Ok(()),
        events => Err(ImportError::TooManyEvents { path, events }),
    }
}

struct Lookup<'a> {
    data: &'a PerfData,
    survey: &'a Survey,
}

impl Lookup<'_> {
    /// File indices of the events with a name: the whole name, or the part before or after its last colon.
    fn events(&self, wanted: &str) -> Result<Vec<usize>, ImportError> {
        let names = self.survey.names.names();
        let found = |fits: &dyn Fn(&str) -> bool| -> Vec<usize> {
            let all = names.iter().enumerate();
            all.filter_map(|(n, name)| fits(name).then_some(n))
                .collect()
        };
        let exact = found(&|name| name == wanted);
        if !exact.is_empty() {
            return Ok(exact);
        }
        let parts = |name: &str| {
            name.rsplit_once(':')
                .is_some_and(|(before, behind)| before == wanted || behind == wanted)
        };
        let similar = found(&parts);
        let (path, wanted) = (self.data.path().to_owned(), wanted.to_owned());
        let mut known: Vec<String> = similar.iter().map(|n| names[*n].clone()).collect();
        known.sort();
        known.dedup();
        match known.len() {
            0 => Err(ImportError::NoEvent {
                path,
                wanted,
                known: names.to_vec(),
            }),
            1 => Ok(similar),
            _ => Err(ImportError::Ambiguous {
                path,
                wanted,
                known,
            }),
        }
    }

    /// A numeric field of an event's raw data.
    fn field(&self, event: usize, name: &str) -> Result<Field, ImportError> {
        let attr = &self.data.events[event].attr;
        let format = self.survey.formats.get(attr.config);
        let format = format.filter(|_| attr.is_tracepoint());
        let (event, field) = (self.survey.names.names()[event].clone(), name.to_owned());
        let Some(format) = format else {
            return Err(ImportError::NoFormat { event, field });
        };
        match format.field(name).filter(|field| field.is_number()) {
            Some(field) => Ok(field.clone()),
            None => Err(ImportError::NoField {
                event,
                field,
                known: format.numbers().map(str::to_owned).collect(),
            }),
        }
    }
}
