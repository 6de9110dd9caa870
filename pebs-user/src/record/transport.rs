//! Choice of the transport of samples, with the reason.

use super::recording::{CallGraph, Recording, TransportChoice};
use crate::collect::session::Transport;
use crate::cost::calibrate::saved::{self, Folder, LoadedCalibration};
use crate::failure::{Failure, Result};
use crate::perf::layout::Layout;
use crate::pipeline::BulkOptions;
use crate::pmu::attr::{EventClass, HardwareUnit, ResolvedEvent};
use crate::pmu::host::{Host, Vendor};
use crate::pmu::target::Target;
use crate::probe::item::{Item, Typed};
use crate::stream::access::Registers;
use crate::stream::bulk::RingKind;
use crate::units::Cpu;

/// The transport of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    pub how: Transport,
    /// Why, for the first line and for the trace.
    pub why: String,
}

/// Chooses the transport, and sets the events' clocks for it.
///
/// # Errors
/// `bulk` was given but is impossible, or would silently not be in bulk.
pub(super) fn choose(
    recording: &Recording,
    events: &mut [ResolvedEvent],
    host: &Host,
) -> Result<Choice> {
    let buffered = events.iter().all(|event| event.is_buffered(host));
    let needs_rings = recording.call_graph == Some(CallGraph::Lbr);
    let choice = match (recording.transport, obstacle(recording, events, host)) {
        (TransportChoice::Bpf, _) if needs_rings => return Err(Failure::new(
            "cannot take call stacks by lbr with --transport bpf: the kernel writes last branch records only to \
             perf's rings"
                .to_owned(),
            "leave --transport out, or use --call-graph eh".to_owned(),
        )),
        (TransportChoice::Auto, Some((what, _))) if needs_rings => return Err(Failure::new(
            format!("cannot take call stacks by lbr: they come in bulk, but {what}"),
            "use --call-graph eh".to_owned(),
        )),
        (TransportChoice::Auto, None) if needs_rings && !buffered => Choice {
            how: Transport::Bulk,
            why: "last branch records come only in perf's rings; one interrupt per sample".to_owned(),
        },
        (TransportChoice::Bulk, Some((what, hint))) => {
            return Err(Failure::new(
                format!("cannot take samples in bulk: {what}"),
                hint
            ))
        }
        (TransportChoice::Bulk, None) => Choice {
            how: Transport::Bulk,
            why: if buffered {
                "the hardware buffers many samples before one interrupt".to_owned()
            } else {
                "requested; these events still interrupt at each sample".to_owned()
            },
        },
        (TransportChoice::Auto, None) if buffered => Choice {
            how: Transport::Bulk,
            why: "the hardware buffers many samples before one interrupt".to_owned(),
        },
        (TransportChoice::Auto, Some((what, _))) if buffered => Choice {
            how: Transport::Bpf,
            why: format!("one interrupt per sample, not in bulk: {what}"),
        },
        _ => Choice {
            how: Transport::Bpf,
            why: one_by_one(events).to_owned(),
        },
    };
    if choice.how == Transport::Bulk {
        // No program sees the samples: their time is the one in the record.
        for event in events {
            event.perf_clock = event.attr.use_clockid() == 0;
        }
    }
    Ok(choice)
}

/// Why each sample has its own interrupt.
fn one_by_one(events: &[ResolvedEvent]) -> &'static str {
    if events.iter().any(|event| event.nmi) {
        "one interrupt per sample, so that the eBPF program sees every one"
    } else {
        "software events and breakpoints come one interrupt per sample"
    }
}

/// Why samples can't come in bulk, with a hint.
fn obstacle(
    recording: &Recording,
    events: &[ResolvedEvent],
    host: &Host,
) -> Option<(String, String)> {
    if matches!(recording.typed_item(), Some(Typed::Mem(_) | Typed::Tls(_))) {
        return Some((
            "an eBPF program must read the item id at each sample".to_owned(),
            "use --transport bpf, or --item-reg where a register has the id".to_owned(),
        ));
    }
    let unknown = |event: &&ResolvedEvent| event.is_buffered(host) && !is_calibrated(event, host);
    if recording.max_overhead.is_some()
        && let Some(event) = events.iter().find(unknown)
    {
        let name = &event.name;
        return Some((
            format!(
                "--max-overhead needs what a sample of {name} costs in bulk, which is not known"
            ),
            format!("'pebs-trace calibrate --event {name}' measures it; or use --transport bpf"),
        ));
    }
    let by_lbr = recording.call_graph == Some(CallGraph::Lbr);
    if matches!(recording.call_graph, Some(CallGraph::Fp | CallGraph::Eh)) {
        return Some((
            "an eBPF program must take the call stack of each sample (--call-graph)".to_owned(),
            "use --transport bpf, or leave --call-graph out".to_owned(),
        ));
    }
    for event in events {
        let name = &event.name;
        if event.needs_program() {
            return Some((
                format!("an eBPF program must filter samples of {name} by mode"),
                "use --transport bpf, or Linux 6.14 or later, where the kernel does so".to_owned(),
            ));
        }
        let core = matches!(
            event.class,
            EventClass::Hardware {
                unit: HardwareUnit::Core,
                ..
            }
        );
        let precise = core && event.attr.precise_ip() > 0 && host.cpu.vendor == Vendor::Intel;
        // Events that write one record per interrupt (branches before Ice Lake) have the interrupt's time.
        if precise && !by_lbr && !event.is_buffered(host) {
            return Some((
                format!(
                    "this CPU writes no time into records of {name}, so each sample would interrupt"
                ),
                "use --transport bpf; from Skylake on records have a time".to_owned(),
            ));
        }
    }
    None
}

/// Whether it is known what a sample of an event costs in bulk.
fn is_calibrated(event: &ResolvedEvent, host: &Host) -> bool {
    let key = saved::key(&event.name, Transport::Bulk);
    let loaded = Folder::of_user().map(|folder| folder.load(host, &key));
    matches!(loaded, Some(LoadedCalibration::Good(_)))
}

/// The pipeline's options for perf's rings.
pub(super) fn bulk_options(
    choice: &Choice,
    events: &[ResolvedEvent],
    host: &Host,
    (everyone, item): (bool, Option<&Item>),
) -> Option<BulkOptions> {
    let bulk = choice.how == Transport::Bulk;
    let kind = |event: &ResolvedEvent| {
        let attr = if bulk {
            event.bulk_attr(Target::Cpu(Cpu(0)), 0)
        } else {
            event.attr_for(Target::Cpu(Cpu(0)))
        };
        RingKind {
            layout: Layout::of(&attr),
            perf_clock: attr.use_clockid() == 0,
            registers: registers(event, host),
            item: item.filter(|it| it.register.is_some()).map(|it| it.config),
            // With programs, throttling is seen at the last sample before it.
            reports_throttling: bulk,
        }
    };
    // With programs, the rings hold only the samples that the programs do not see.
    let rest = events.iter().any(ResolvedEvent::leaves_rest);
    (bulk || rest).then(|| BulkOptions {
        kinds: events.iter().map(kind).collect(),
        everyone,
    })
}

/// Registers that samples of IBS carry raw, also where the kernel forwards an event of the cores (`cycles:p`) to it.
fn registers(event: &ResolvedEvent, host: &Host) -> Option<Registers> {
    let EventClass::Hardware {
        unit: HardwareUnit::Ibs,
        ..
    } = event.class
    else {
        return None;
    };
    let fetch = host.pmu("ibs_fetch");
    let is_fetch = fetch.is_some_and(|pmu| pmu.kind == event.attr.type_);
    let pmu = if is_fetch { "ibs_fetch" } else { "ibs_op" };
    Registers::of_pmu(pmu, &host.cpu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmu::attr::{reset_value, resolve};
    use crate::pmu::host::fixtures;

    /// All IBS events have their registers read, under any name; other events have none.
    #[test]
    fn registers_of_ibs() {
        let zen = fixtures::zen4();
        let of = |name: &str| {
            let spec = name.parse().unwrap();
            let event = resolve(&spec, &zen, reset_value(16_000).unwrap()).unwrap();
            registers(&event, &zen)
        };
        let (family, model) = (zen.cpu.family, zen.cpu.model);
        let op = Some(Registers::IbsOp(family, model));
        for name in ["ibs_op/cnt_ctl=1/", "cycles:pp", "r0c1:p"] {
            assert_eq!(of(name), op, "{name}");
        }
        assert_eq!(of("ibs_fetch//"), Some(Registers::IbsFetch(family, model)));
        assert_eq!((of("cycles"), of("cpu-clock")), (None, None));
    }
}
