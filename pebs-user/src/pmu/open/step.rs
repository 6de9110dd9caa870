//! Opening with the highest precise level that the machine grants.

use super::{OpenError, PerfEvent};
use crate::failure::Hint;
use crate::failure::Warning;
use crate::pmu::attr::{EventError, ResolvedEvent, auto};
use crate::pmu::event::Modifiers;
use crate::pmu::host::Host;
use crate::pmu::target::Target;
use crate::units::{ResetValue, Tid};

/// A counter that was opened, disabled, and its precision.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The counter.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "it is open as long as this lives")
    )]
    pub counter: PerfEvent,
    pub granted: Granted,
}

/// Precision granted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Granted {
    /// `precise_ip` with which the kernel opened the event. Still only a request: the proof of precision is each
    /// sample's EXACT_IP bit.
    pub precise: u8,
    /// Why it is lower than requested, if it is.
    pub reason: Option<String>,
}

impl Granted {
    /// Warning if an event was granted less precision than requested.
    #[must_use]
    pub(crate) fn warning(&self, event: &str) -> Option<Warning> {
        let reason = self.reason.as_ref()?;
        let hint = match self.precise {
            0 => {
                "samples skid past the instruction; 'pebs-trace doctor' shows the precise ceiling, \
                 'pebs-trace events' what is precise"
            }
            _ => {
                "ask for this level to be rid of the warning; 'pebs-trace doctor' shows the ceiling"
            }
        };
        Some(Warning {
            text: format!("{event} has precise level {}: {reason}", self.precise),
            hint: hint.to_owned(),
        })
    }
}

/// Opens an event; on `EOPNOTSUPP` or `EINVAL` lowers the precise level until it is granted.
///
/// Only hardware events have a precise level; others are tried once.
///
/// # Errors
/// The event can't be opened at any level, or for another reason. The error is that of the lowest level, as higher
/// ones may have failed only for their precision.
pub(crate) fn open_stepping_down(
    event: &ResolvedEvent,
    target: Target,
) -> Result<Opened, OpenError> {
    step_down(event.precise_requested, |level| {
        let mut attr = event.attr_for(target);
        attr.set_precise_ip(level.into());
        PerfEvent::open(&attr, target, &event.name)
    })
    .map(|(counter, granted)| Opened { counter, granted })
}

/// Opens the event on the other kinds of cores of a hybrid CPU, and stores the level that each grants. Returns the
/// reasons for lowered levels.
///
/// # Errors
/// It can't be opened at any level on one of them.
pub(crate) fn settle_twins(event: &mut ResolvedEvent, tid: Tid) -> Result<Vec<String>, OpenError> {
    let attrs = event.attrs_for(Target::Thread(tid)).into_iter().skip(1);
    let mut reasons = Vec::new();
    for (mut attr, twin) in attrs.zip(&mut event.twins) {
        let what = format!("{} ({})", event.name, twin.pmu);
        let (_, granted) = step_down(twin.precise, |level| {
            attr.set_precise_ip(level.into());
            PerfEvent::open(&attr, Target::Thread(tid), &what)
        })?;
        twin.precise = granted.precise;
        reasons.extend(granted.reason.map(|why| format!("on {}: {why}", twin.pmu)));
    }
    Ok(reasons)
}

/// The search itself, apart from the kernel.
fn step_down<T>(
    requested: u8,
    mut open: impl FnMut(u8) -> Result<T, OpenError>,
) -> Result<(T, Granted), OpenError> {
    let mut level = requested;
    let mut reason = None;
    loop {
        match open(level) {
            Ok(counter) => {
                return Ok((
                    counter,
                    Granted {
                        precise: level,
                        reason,
                    },
                ));
            }
            Err(error) if level > 0 && error.may_step_down() => {
                reason = Some(format!(
                    "precise level {level} was refused: {}",
                    error.reason()
                ));
                level -= 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Result of resolving `auto`.
#[derive(Debug)]
pub(crate) struct Auto {
    /// The chosen event; its notes say why, and why not a better one.
    pub event: ResolvedEvent,
    /// Opened on the target that was tried.
    pub opened: Opened,
}

/// No candidate for `auto` could be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AutoError {
    /// The last candidate could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The last candidate does not exist here.
    #[error(transparent)]
    Event(#[from] EventError),
}

impl Hint for AutoError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Open(error) => error.hint(),
            Self::Event(error) => error.hint(),
        }
    }
}

/// Tries the candidates of `auto` on one target, best first.
///
/// A candidate that opens below its minimum precise level is skipped. A refusal that does not depend on the event
/// (permission, files, a thread gone) ends the search.
///
/// # Errors
/// The last candidate's reason, or that refusal.
pub(crate) fn open_auto(
    modes: Modifiers,
    host: &Host,
    reset: ResetValue,
    target: Target,
) -> Result<Auto, AutoError> {
    let mut passed = Vec::new();
    let mut last = None;
    for candidate in auto::candidates(host) {
        let mut event = match candidate.resolve(modes, host, reset) {
            Ok(event) => event,
            Err(error) => {
                passed.push(format!("auto: not {}: {error}", candidate.name));
                last = Some(AutoError::Event(error));
                continue;
            }
        };
        let opened = open_stepping_down(&event, target).and_then(|opened| {
            if let Target::Thread(tid) = target {
                let lower = settle_twins(&mut event, tid)?;
                event.notes.extend(lower);
            }
            Ok(opened)
        });
        match opened {
            Ok(opened) if opened.granted.precise >= candidate.min_precise => {
                event.notes.append(&mut passed);
                return Ok(Auto { event, opened });
            }
            Ok(opened) => {
                let reason = opened.granted.reason.unwrap_or_default();
                passed.push(format!("auto: not {}: {reason}", candidate.name));
            }
            Err(error) if error.is_about_the_event() => {
                passed.push(format!("auto: not {}: {}", candidate.name, error.reason()));
                last = Some(AutoError::Open(error));
            }
            Err(error) => return Err(AutoError::Open(error)),
        }
    }
    // The list ends with a clock of no least level, so the loop leaves with its refusal.
    Err(last.unwrap_or(AutoError::Event(EventError::NoPmu {
        event: "auto".into(),
        reason: "no candidate was left".into(),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::open::Attempt;
    use std::io;

    fn refusal(errno: i32) -> OpenError {
        let error = io::Error::from_raw_os_error(errno);
        OpenError::new(Attempt::Event, "cycles:ppp on cpu 0".into(), &error)
    }

    /// Opens only at or below a level; counts the tries.
    fn granting(most: u8, tries: &mut u32) -> impl FnMut(u8) -> Result<u8, OpenError> {
        move |level| {
            *tries += 1;
            if level <= most {
                Ok(level)
            } else {
                Err(refusal(libc::EOPNOTSUPP))
            }
        }
    }

    /// The first granted level is taken, and the reason kept.
    #[test]
    fn steps_to_what_is_granted() {
        let mut tries = 0;
        let (level, granted) = step_down(3, granting(1, &mut tries)).unwrap();
        assert_eq!((level, granted.precise, tries), (1, 1, 3));
        assert_eq!(
            granted.reason.as_deref(),
            Some("precise level 2 was refused: not supported by this CPU")
        );
    }

    /// The warning of a lowered level has the level and its meaning.
    #[test]
    fn lowered_is_warned_of() {
        let mut tries = 0;
        let (_, granted) = step_down(2, granting(0, &mut tries)).unwrap();
        let warning = granted.warning("cycles:pp").unwrap();
        let expect =
            "cycles:pp has precise level 0: precise level 1 was refused: not supported by this CPU";
        assert_eq!(warning.text, expect);
        assert!(warning.hint.contains("skid"), "{}", warning.hint);
        assert_eq!(Granted::default().warning("cycles"), None);
    }

    /// A level granted at once has no reason.
    #[test]
    fn granted_at_once() {
        let mut tries = 0;
        let (_, granted) = step_down(2, granting(3, &mut tries)).unwrap();
        assert_eq!(
            (granted, tries),
            (
                Granted {
                    precise: 2,
                    reason: None
                },
                1
            )
        );
    }

    /// A refusal unrelated to precision is not retried.
    #[test]
    fn other_refusals_end_the_search() {
        for errno in [libc::EACCES, libc::EMFILE, libc::EBUSY, libc::ESRCH] {
            let mut tries = 0;
            let result: Result<((), _), _> = step_down(3, |_| {
                tries += 1;
                Err(refusal(errno))
            });
            assert_eq!((result.unwrap_err().errno, tries), (Some(errno), 1));
        }
    }
}
