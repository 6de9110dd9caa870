//! Whether samples have call stacks in a recording that was not asked for them.
//!
//! They have, by unwind tables, where the budget chooses how often samples are taken: a dearer sample then means fewer
//! samples, not a slower target. It is decided before the programs are loaded, by what a sample costs on this machine with a
//! copied stack and without: items must keep four fifths of their samples, and the rings must hold the copies.

use bytesize::ByteSize;
use pebs_common::record::{COPY_CLASSES, SampleUser};

use super::budget;
use super::cost;
use super::event::{Emit, Event};
use super::plan::{Offer, Plan};
use super::recording::CallGraph;
use crate::collect::programs::StackLimits;
use crate::cost::ring::{Caches, Sensitivity, advise};
use crate::present::human::time;

/// Least part of the samples that items have without call stacks.
const LEAST_SAMPLES: f64 = 0.8;

/// Bytes of a ring that a sample with a copied stack is assumed to take: servers have 1 to 4 KiB in use.
pub(crate) const USUAL_SAMPLE: usize = HEADER + size_of::<SampleUser>() + COPY_CLASSES[2];

/// Bytes of the kernel's header of each record.
const HEADER: usize = 8;

/// Decision, with its reason.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    /// Costs of a sample without and with its stack, ns.
    Taken([f64; 2]),
    Dear([f64; 2]),
    /// Rings of that size may overflow at a sample every so many ns.
    Overflow {
        ring_bytes: u32,
        every_ns: f64,
    },
    /// The rings would take so much memory in all.
    Memory {
        bytes: u64,
    },
    Calibrated,
    Unknown,
}

impl Verdict {
    fn text(self) -> String {
        let why = match self {
            Self::Taken([plain, with]) => {
                return format!(
                    "stacks: by tables, {} a sample ({} without)",
                    time(with),
                    time(plain)
                );
            }
            Self::Dear([plain, with]) => format!(
                "a sample would cost {} with its stack, and {} without",
                time(with),
                time(plain)
            ),
            Self::Overflow {
                ring_bytes,
                every_ns,
            } => format!(
                "rings of {} may overflow with a stack every {}",
                bytes(ring_bytes.into()),
                time(every_ns)
            ),
            Self::Memory { bytes: all } => format!("rings for them would take {}", bytes(all)),
            Self::Calibrated => "the calibrated cost of a sample is without them".to_owned(),
            Self::Unknown => "what a sample costs with its stack could not be measured".to_owned(),
        };
        format!("stacks: none, as {why}; -g records them")
    }
}

fn bytes(number: u64) -> String {
    ByteSize::b(number).display().iec().to_string()
}

/// Decides on the stacks on offer, if there are any, and says so. Returns whether costs were measured.
pub(super) fn choose(plan: &mut Plan, emit: &mut Emit<'_>) -> bool {
    let Some(offer) = plan.offer.take() else {
        return false;
    };
    let mut measured = false;
    let verdict = if cost::is_calibrated(plan) {
        Verdict::Calibrated
    } else {
        let costs = cost::samples_with(plan, [StackLimits::default(), offer.stacks], || {
            measured = true;
            emit(Event::Measuring);
        });
        costs.map_or(Verdict::Unknown, |costs| {
            let every_ns = first_ns(plan, costs[1]);
            judge(&offer, costs, (every_ns, plan.host.online.len() as u64))
        })
    };
    if matches!(verdict, Verdict::Taken(_)) && !plan.counting {
        plan.call_graph = Some(CallGraph::Eh);
        plan.stacks = offer.stacks;
        plan.ring_bytes = offer.ring_bytes;
        plan.max_stack_bytes = offer.max_stack_bytes;
        let events = plan.events.iter_mut();
        events.for_each(|event| event.with_call_stacks());
    }
    let text = verdict.text();
    if !plan.counting {
        emit(Event::Note(text.clone()));
        plan.notes.push(text.clone());
    }
    plan.stacks_chosen = Some(text);
    measured
}

/// The shortest time between two samples of the clock to expect: where marks cost nothing.
fn first_ns(plan: &Plan, sample_ns: f64) -> f64 {
    let given = (plan.reset, plan.max_reset);
    let first = plan.overhead.zip(plan.events.first());
    let first = first.and_then(|(bounds, event)| {
        let bounds = budget::of_event(&bounds, event, given);
        budget::first_reset(&bounds, event, 0.0, sample_ns)
    });
    first.map_or(budget::PLAIN_RESET as f64, |it| it.0.get() as f64)
}

/// Whether a budget of samples is a budget for samples with stacks.
fn judge(offer: &Offer, costs: [f64; 2], (every_ns, cpus): (f64, u64)) -> Verdict {
    let [plain, with] = costs;
    // As many as the budget pays for.
    if plain < LEAST_SAMPLES * with {
        return Verdict::Dear(costs);
    }
    let all = u64::from(offer.ring_bytes) * cpus;
    if all > offer.all_rings_bytes {
        return Verdict::Memory { bytes: all };
    }
    let rate = 1e9 / every_ns * USUAL_SAMPLE as f64;
    let wanted = advise(rate, Caches::default(), Sensitivity::Oblivious).wanted;
    if wanted > offer.ring_bytes.into() {
        return Verdict::Overflow {
            ring_bytes: offer.ring_bytes,
            every_ns,
        };
    }
    Verdict::Taken(costs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFER: Offer = Offer {
        stacks: StackLimits {
            frames: 127,
            copied: 16 << 10,
            by_pointers: false,
        },
        ring_bytes: 4 << 20,
        all_rings_bytes: 256 << 20,
        max_stack_bytes: 64 << 20,
    };

    /// Stacks are taken where items keep four fifths of their samples and rings hold the copies; else the line says why not.
    #[test]
    fn decided() {
        let at = |costs, every_ns, cpus| judge(&OFFER, costs, (every_ns, cpus)).text();
        assert_eq!(
            at([13_000.0, 14_200.0], 300e3, 2),
            "stacks: by tables, 14.2 us a sample (13.0 us without)"
        );
        assert!(at([13_000.0, 16_200.0], 300e3, 2).starts_with("stacks: by tables"));
        let dear = "stacks: none, as a sample would cost 16.3 us with its stack, and 13.0 us without; -g records them";
        assert_eq!(at([13_000.0, 16_300.0], 300e3, 2), dear);
        // One cheaper by chance.
        assert!(at([13_000.0, 12_000.0], 300e3, 64).starts_with("stacks: by tables"));
        let memory = at([13_000.0, 14_000.0], 300e3, 65);
        assert!(
            memory.contains("rings for them would take 260.0 MiB"),
            "{memory}"
        );
        let often = at([13_000.0, 14_000.0], 60e3, 2);
        assert!(
            often.contains("rings of 4.0 MiB may overflow with a stack every 60.0 us"),
            "{often}"
        );
    }
}
