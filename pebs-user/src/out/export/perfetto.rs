//! Protobuf for <https://ui.perfetto.dev>: items and waits as slices on the tracks of their threads, samples
//! with their functions, arrows between the visits of an item on different threads or of different probes, and from a
//! thread that ends a wait to the one that waited.
//!
//! Weight: one for each sample of the event, at its time; samples in no visit are left out. Slices carry the
//! item id, the flags and the arguments. Streamed, except for the visits and their waits, whose number is
//! bounded.

pub(super) mod proto;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use rustc_hash::FxHashMap;

use self::proto::{
    Callstack, DebugAnnotation, Frame, InternedData, InternedString, Mapping, PerfSample,
    ProcessDescriptor, ThreadDescriptor, TracePacket, TrackDescriptor, TrackEvent,
};
use super::Input;
use super::timeline::{Step, Steps, Timeline};
use crate::compare::load;
use crate::compare::load::{Sample, Visit, Wait};
use crate::compare::select::error::ExportError;
use crate::compare::stages::first_stage;
use crate::store::schema::{ArgValue, InterferenceColumns, sample_flag, visit_flag};

/// Field of `Trace` that holds the packets.
const PACKET: u32 = 1;

/// All packets are in one sequence.
const SEQUENCE: u32 = 1;

/// Track for events of the whole trace.
const ABOUT: u64 = 1;

/// Numbers of arrows from wakers; those between visits are smaller.
const WAKES: u64 = 1 << 32;

/// Writes the trace.
pub(super) fn write(input: &Input<'_>, out: &mut dyn Write) -> Result<(), ExportError> {
    let timeline = Timeline::read(input.trace, &input.chosen.visits)?;
    let mut writer = Writer {
        input,
        out,
        buffer: Vec::new(),
        tracks: ABOUT,
        interned: Interned::default(),
    };
    writer.about()?;
    let flows = Flows::between(&timeline.visits, first_stage(&input.trace.info));
    let mut threads: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    let mut processes = BTreeSet::new();
    for ((pid, tid, lane), steps) in timeline.lanes() {
        if processes.insert(pid) {
            writer.process(pid)?;
        }
        let thread = match threads.entry((pid, tid)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => *new.insert(writer.thread(pid, tid)?),
        };
        let track = match lane {
            0 => thread,
            _ => writer.lane(thread, lane)?,
        };
        writer.steps(track, &steps, &flows)?;
    }
    let visits: FxHashMap<u64, &Visit> = timeline
        .visits
        .iter()
        .map(|visit| (visit.visit_id, visit))
        .collect();
    let tracks = threads.iter().map(|((_, tid), track)| (*tid, *track));
    let tracks: FxHashMap<u32, u64> = tracks.collect();
    for (flow, wait) in (WAKES..).zip(&timeline.waits) {
        let waiting = visits.get(&wait.visit_id).map(|it| it.tid.0);
        if let Some(waiting) = waiting {
            writer.wake((wait, waiting), flow, &tracks)?;
        }
    }
    let mut result = Ok(());
    let set = &input.chosen.visits;
    load::samples(input.trace, set, input.weight.event(), |sample| {
        if result.is_ok() {
            result = writer.sample(&sample, visits[&sample.visit_id]);
        }
    })?;
    result
}

/// Arrows that come to and go from each visit, by their numbers.
#[derive(Default)]
struct Flows {
    to: FxHashMap<u64, u64>,
    from: FxHashMap<u64, u64>,
}

impl Flows {
    /// An arrow from each visit of an item to its next, if that is on another thread or of another probe, and
    /// is not the `first` stage, which starts another item with the same id. Visits that serve several items
    /// have no arrows.
    fn between(visits: &[Visit], first: Option<u16>) -> Self {
        let mut flows = Self::default();
        let mut last: FxHashMap<(u32, u64), &Visit> = FxHashMap::default();
        for visit in visits
            .iter()
            .filter(|it| it.flags & visit_flag::SHARED == 0)
        {
            let before = last.insert((visit.pid.0, visit.item_id), visit);
            let same = |it: &&Visit| {
                (it.tid.0, it.probe_id.0) != (visit.tid.0, visit.probe_id.0)
                    && Some(visit.probe_id.0) != first
            };
            let Some(before) = before.filter(same) else {
                continue;
            };
            let flow = flows.to.len() as u64 + 1;
            flows.from.insert(before.visit_id, flow);
            flows.to.insert(visit.visit_id, flow);
        }
        flows
    }
}

/// Numbers of interned data, to refer to them.
#[derive(Default)]
struct Interned {
    /// Stacks by probe and function.
    stacks: FxHashMap<(u16, u32, Option<u32>), u64>,
    /// Frames by name and module.
    frames: FxHashMap<(String, String), u64>,
    modules: FxHashMap<String, u64>,
}

struct Writer<'a> {
    input: &'a Input<'a>,
    out: &'a mut dyn Write,
    buffer: Vec<u8>,
    /// Number of the last track.
    tracks: u64,
    interned: Interned,
}

impl Writer<'_> {
    fn packet(&mut self, packet: TracePacket) -> Result<(), ExportError> {
        let packet = TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: packet.sequence_flags.or(Some(proto::NEEDS_STATE)),
            ..packet
        };
        self.buffer.clear();
        encode_key(PACKET, WireType::LengthDelimited, &mut self.buffer);
        encode_varint(packet.encoded_len() as u64, &mut self.buffer);
        // A vector grows as needed.
        let _ = packet.encode(&mut self.buffer);
        Ok(self.out.write_all(&self.buffer)?)
    }

    fn track(&mut self, descriptor: TrackDescriptor) -> Result<u64, ExportError> {
        self.tracks += 1;
        let uuid = self.tracks;
        self.packet(TracePacket {
            track_descriptor: Some(TrackDescriptor {
                uuid: Some(uuid),
                ..descriptor
            }),
            ..TracePacket::default()
        })?;
        Ok(uuid)
    }

    /// The first packet, and an instant with the description of the trace.
    fn about(&mut self) -> Result<(), ExportError> {
        self.packet(TracePacket {
            sequence_flags: Some(proto::STATE_CLEARED | proto::NEEDS_STATE),
            track_descriptor: Some(TrackDescriptor {
                uuid: Some(ABOUT),
                name: Some("pebs-trace".to_owned()),
                ..TrackDescriptor::default()
            }),
            ..TracePacket::default()
        })?;
        let command = self.input.trace.info.command_line.join(" ");
        self.event(
            0,
            TrackEvent {
                r#type: Some(proto::INSTANT),
                track_uuid: Some(ABOUT),
                name: Some("about this trace".to_owned()),
                debug_annotations: vec![
                    text("shows", &self.input.note),
                    text("recorded by", &command),
                ],
                ..TrackEvent::default()
            },
        )
    }

    fn process(&mut self, pid: u32) -> Result<u64, ExportError> {
        self.track(TrackDescriptor {
            process: Some(ProcessDescriptor {
                pid: Some(pid as i32),
            }),
            ..TrackDescriptor::default()
        })
    }

    fn thread(&mut self, pid: u32, tid: u32) -> Result<u64, ExportError> {
        self.track(TrackDescriptor {
            thread: Some(ThreadDescriptor {
                pid: Some(pid as i32),
                tid: Some(tid as i32),
            }),
            ..TrackDescriptor::default()
        })
    }

    fn lane(&mut self, thread: u64, lane: usize) -> Result<u64, ExportError> {
        self.track(TrackDescriptor {
            name: Some(format!("overlapping items {}", lane + 1)),
            parent_uuid: Some(thread),
            ..TrackDescriptor::default()
        })
    }

    fn event(&mut self, time: i64, event: TrackEvent) -> Result<(), ExportError> {
        self.packet(TracePacket {
            timestamp: Some(time.max(0) as u64),
            track_event: Some(event),
            ..TracePacket::default()
        })
    }

    fn steps(&mut self, track: u64, steps: &Steps<'_>, flows: &Flows) -> Result<(), ExportError> {
        for (time, step) in steps {
            let event = match step {
                Step::Begin(visit) => self.item(visit, flows),
                Step::Leave(wait) => TrackEvent {
                    r#type: Some(proto::SLICE_BEGIN),
                    categories: vec!["wait".to_owned()],
                    name: Some(format!("[{}]", wait.state)),
                    debug_annotations: self.blocked(wait),
                    ..TrackEvent::default()
                },
                Step::End => TrackEvent {
                    r#type: Some(proto::SLICE_END),
                    ..TrackEvent::default()
                },
            };
            let track_uuid = Some(track);
            self.event(
                *time,
                TrackEvent {
                    track_uuid,
                    ..event
                },
            )?;
        }
        Ok(())
    }

    /// An arrow from the thread that ended a wait to the one that waited, if both have a track.
    fn wake(
        &mut self,
        (wait, waiting): (&Wait, u32),
        flow: u64,
        tracks: &FxHashMap<u32, u64>,
    ) -> Result<(), ExportError> {
        let by = wait.by.as_ref().filter(|it| !it.is_preemption);
        let Some((by, tid)) = by.and_then(|it| Some((it, it.tid?))) else {
            return Ok(());
        };
        let (Some(from), Some(to)) = (tracks.get(&tid), tracks.get(&waiting)) else {
            return Ok(());
        };
        let instant = |track: u64, name: String| TrackEvent {
            r#type: Some(proto::INSTANT),
            track_uuid: Some(track),
            categories: vec!["wake".to_owned()],
            name: Some(name),
            ..TrackEvent::default()
        };
        let wakes = TrackEvent {
            flow_ids: vec![flow],
            ..instant(*from, format!("wakes thread {waiting}"))
        };
        self.event(wait.end_ns - wait.runnable_ns.unwrap_or(0), wakes)?;
        let woken = TrackEvent {
            terminating_flow_ids: vec![flow],
            ..instant(*to, format!("woken by {}", by.name))
        };
        self.event(wait.end_ns, woken)
    }

    /// Annotations with the place where a thread went to wait.
    fn blocked(&self, wait: &Wait) -> Vec<DebugAnnotation> {
        let label = |id: u32| self.input.functions.label(id);
        let function = wait.function.map(|id| text("function", &label(id)));
        let stack = self.input.stacks.frames(wait.stack).map(|frames| {
            let frames: Vec<String> = frames.iter().map(|id| label(*id)).collect();
            text("stack", &frames.join(" <- "))
        });
        function.into_iter().chain(stack).collect()
    }

    fn item(&self, visit: &Visit, flows: &Flows) -> TrackEvent {
        let mut annotations = vec![
            unsigned("item_id", visit.item_id),
            unsigned("visit_id", visit.visit_id),
            unsigned("samples", u64::from(visit.samples)),
        ];
        if let Some(oncpu) = visit.oncpu_ns {
            annotations.push(signed("oncpu_ns", oncpu));
        }
        annotations.extend(visit.net_ns.map(|ns| signed("net_ns", ns)));
        let interference = InterferenceColumns::NAMES
            .iter()
            .zip(visit.interference().values());
        annotations.extend(interference.filter_map(|(name, value)| Some(signed(name, value?))));
        if visit.flags != 0 {
            annotations.push(text("flags", &visit.flag_names()));
        }
        for (name, value) in visit.known_args(&self.input.trace.info.columns) {
            let name = format!("args.{name}");
            annotations.push(match value {
                ArgValue::U64(number) => unsigned(&name, *number),
                ArgValue::I64(number) => signed(&name, *number),
                ArgValue::Str(value) => text(&name, value),
            });
        }
        let flow = |flows: &FxHashMap<u64, u64>| flows.get(&visit.visit_id).copied();
        TrackEvent {
            r#type: Some(proto::SLICE_BEGIN),
            categories: vec!["item".to_owned()],
            name: Some(self.input.probes.label(visit.probe_id.0)),
            debug_annotations: annotations,
            flow_ids: flow(&flows.from).into_iter().collect(),
            terminating_flow_ids: flow(&flows.to).into_iter().collect(),
            ..TrackEvent::default()
        }
    }

    fn sample(&mut self, sample: &Sample, visit: &Visit) -> Result<(), ExportError> {
        let mut data = InternedData::default();
        let stack = self.stack(visit.probe_id.0, sample, &mut data);
        let kernel = sample.flags & sample_flag::KERNEL != 0;
        let mode = if kernel {
            proto::MODE_KERNEL
        } else {
            proto::MODE_USER
        };
        self.packet(TracePacket {
            timestamp: Some(sample.time_ns.max(0) as u64),
            interned_data: (data != InternedData::default()).then_some(data),
            perf_sample: Some(PerfSample {
                cpu: sample.cpu.map(u32::from),
                pid: Some(visit.pid.0),
                tid: Some(sample.tid),
                callstack_iid: Some(stack),
                cpu_mode: Some(mode),
            }),
            ..TracePacket::default()
        })
    }

    /// Number of a stack; its new frames go to `data`.
    fn stack(&mut self, probe: u16, sample: &Sample, data: &mut InternedData) -> u64 {
        let key = (probe, sample.function, sample.stack);
        if let Some(iid) = self.interned.stacks.get(&key) {
            return *iid;
        }
        let input = self.input;
        let label = input.probes.label(probe);
        let mut frame_ids = vec![self.interned.frame(&label, "[item]", data)];
        for function in input.stacks.path(sample.stack, Some(sample.function)) {
            let known = function.and_then(|id| input.functions.get(id));
            let module = known.and_then(|function| function.module.as_deref());
            let module = module.unwrap_or("[item]");
            frame_ids.push(self.interned.frame(&input.name(function), module, data));
        }
        let iid = self.interned.stacks.len() as u64 + 1;
        self.interned.stacks.insert(key, iid);
        data.callstacks.push(Callstack {
            iid: Some(iid),
            frame_ids,
        });
        iid
    }
}

impl Interned {
    fn frame(&mut self, name: &str, module: &str, data: &mut InternedData) -> u64 {
        let key = (name.to_owned(), module.to_owned());
        if let Some(iid) = self.frames.get(&key) {
            return *iid;
        }
        let mapping = self.module(module, data);
        let iid = self.frames.len() as u64 + 1;
        self.frames.insert(key, iid);
        data.function_names.push(InternedString {
            iid: Some(iid),
            str: Some(name.as_bytes().to_vec()),
        });
        data.frames.push(Frame {
            iid: Some(iid),
            function_name_id: Some(iid),
            mapping_id: Some(mapping),
            // Frames of a mapping are distinguished by this.
            rel_pc: Some(iid),
        });
        iid
    }

    fn module(&mut self, path: &str, data: &mut InternedData) -> u64 {
        if let Some(iid) = self.modules.get(path) {
            return *iid;
        }
        let iid = self.modules.len() as u64 + 1;
        self.modules.insert(path.to_owned(), iid);
        data.mapping_paths.push(InternedString {
            iid: Some(iid),
            str: Some(path.as_bytes().to_vec()),
        });
        data.mappings.push(Mapping {
            iid: Some(iid),
            path_string_ids: vec![iid],
        });
        iid
    }
}

fn annotation(name: &str) -> DebugAnnotation {
    DebugAnnotation {
        name: Some(name.to_owned()),
        ..DebugAnnotation::default()
    }
}

fn text(name: &str, value: &str) -> DebugAnnotation {
    DebugAnnotation {
        string_value: Some(value.to_owned()),
        ..annotation(name)
    }
}

fn unsigned(name: &str, value: u64) -> DebugAnnotation {
    DebugAnnotation {
        uint_value: Some(value),
        ..annotation(name)
    }
}

fn signed(name: &str, value: i64) -> DebugAnnotation {
    DebugAnnotation {
        int_value: Some(value),
        ..annotation(name)
    }
}
