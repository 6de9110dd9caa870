//! JSON for <https://profiler.firefox.com>: items and waits as markers, samples as samples.
//!
//! Weight: one for each sample of the event, at its time. Markers carry the item id, the flags and the
//! arguments as searchable fields: search the marker table for `key:...`, then "drop samples outside of
//! markers". Those of waits have the call stack that blocked. Held in memory: visits and samples, both bounded.

use std::io::Write;
use std::time::Duration;

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, Marker,
    MarkerFieldFlags, MarkerFieldFormat, MarkerHandle, MarkerLocations, MarkerTiming,
    MarkerTypeHandle, ProcessHandle, Profile, ReferenceTimestamp, RuntimeSchemaMarkerField,
    RuntimeSchemaMarkerSchema, SamplingInterval, StackHandle, StringHandle, ThreadHandle,
    Timestamp, WeightType,
};
use rustc_hash::FxHashMap;

use super::Input;
use super::timeline::{Step, Timeline};
use crate::compare::load;
use crate::compare::load::{Visit, Wait, arg_text};
use crate::compare::select::error::ExportError;

/// A marker with text fields only: numbers of items have more digits than JSON's.
struct Fields {
    kind: MarkerTypeHandle,
    category: CategoryHandle,
    name: StringHandle,
    values: Vec<StringHandle>,
}

impl Marker for Fields {
    fn marker_type(&self, _: &mut Profile) -> MarkerTypeHandle {
        self.kind
    }

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, field_index: u32) -> StringHandle {
        self.values[field_index as usize]
    }

    /// Marker schemas here have no number fields.
    fn number_field_value(&self, _: u32) -> f64 {
        0.0
    }
}

/// Writes the profile.
pub(super) fn write(input: &Input<'_>, out: &mut dyn Write) -> Result<(), ExportError> {
    let mut builder = Builder::new(input);
    let timeline = Timeline::read(input.trace, &input.chosen.visits)?;
    builder.markers(&timeline);
    builder.samples(&timeline.visits)?;
    serde_json::to_writer(&mut *out, &builder.profile).map_err(std::io::Error::from)?;
    Ok(())
}

struct Builder<'a> {
    input: &'a Input<'a>,
    profile: Profile,
    item: MarkerTypeHandle,
    wait: MarkerTypeHandle,
    user: CategoryHandle,
    kernel: CategoryHandle,
    items: CategoryHandle,
    processes: FxHashMap<u32, ProcessHandle>,
    threads: FxHashMap<(u32, u32), ThreadHandle>,
}

impl<'a> Builder<'a> {
    fn new(input: &'a Input<'a>) -> Self {
        let info = &input.trace.info;
        let wall_clock = Duration::from_nanos(info.wall_clock_ns.max(0) as u64);
        let event = info
            .events
            .iter()
            .find(|event| event.id.0 == input.weight.event());
        let interval = event
            .filter(|_| input.weight.is_time())
            .map_or(1, |event| event.reset);
        let mut profile = Profile::new(
            &format!("pebs-trace: {}", input.note),
            ReferenceTimestamp::from_duration_since_unix_epoch(wall_clock),
            SamplingInterval::from_nanos(interval.max(1)),
        );
        profile.set_os_name(&format!("Linux {}", info.host.kernel));
        profile.set_symbolicated(true);
        let item = profile.register_marker_type(item_schema(input));
        let wait = profile.register_marker_type(wait_schema());
        Self {
            input,
            item,
            wait,
            user: profile.add_category("User", CategoryColor::Yellow),
            kernel: profile.add_category("Kernel", CategoryColor::Orange),
            items: profile.add_category("Items", CategoryColor::Blue),
            profile,
            processes: FxHashMap::default(),
            threads: FxHashMap::default(),
        }
    }

    fn thread(&mut self, visit: &Visit) -> ThreadHandle {
        let (pid, tid) = (visit.pid.0, visit.tid.0);
        if let Some(thread) = self.threads.get(&(pid, tid)) {
            return *thread;
        }
        let profile = &mut self.profile;
        let process = *self
            .processes
            .entry(pid)
            .or_insert_with(|| profile.add_process(&format!("process {pid}"), pid, at(0)));
        let thread = profile.add_thread(process, tid, at(0), pid == tid);
        profile.set_thread_name(thread, &format!("thread {tid}"));
        profile.set_thread_samples_weight_type(thread, WeightType::Samples);
        profile.set_thread_show_markers_in_timeline(thread, true);
        self.threads.insert((pid, tid), thread);
        thread
    }

    fn markers(&mut self, timeline: &Timeline) {
        for visit in &timeline.visits {
            let thread = self.thread(visit);
            let mut values = vec![
                visit.item_id.to_string(),
                visit.visit_id.to_string(),
                visit.flag_names(),
            ];
            let text = |value: &Option<_>| value.as_ref().map_or_else(String::new, arg_text);
            values.extend(visit.args.iter().map(text));
            let timing = match visit.end_ns {
                Some(end) => MarkerTiming::Interval(at(visit.begin_ns.0), at(end.0)),
                None => MarkerTiming::IntervalStart(at(visit.begin_ns.0)),
            };
            let name = self.input.probes.label(visit.probe_id.0);
            self.marker(thread, timing, self.item, &name, &values);
        }
        let visits = by_id(&timeline.visits);
        for (_, steps) in timeline.lanes() {
            for (time, step) in steps {
                if let Step::Leave(wait) = step {
                    self.wait_marker(visits[&wait.visit_id], wait, time);
                }
            }
        }
    }

    fn wait_marker(&mut self, visit: &Visit, wait: &Wait, from: i64) {
        let thread = self.thread(visit);
        let values = [wait.visit_id.to_string(), self.input.name(wait.function)];
        let timing = MarkerTiming::Interval(at(from), at(wait.end_ns.max(from)));
        let marker = self.marker(thread, timing, self.wait, &wait.state, &values);
        if wait.stack.is_some() {
            let path = self.input.stacks.wait_path(wait.stack, wait.function);
            let stack = self.stack((thread, visit), path, self.kernel);
            self.profile.set_marker_stack(thread, marker, stack);
        }
    }

    fn marker(
        &mut self,
        thread: ThreadHandle,
        timing: MarkerTiming,
        kind: MarkerTypeHandle,
        name: &str,
        values: &[String],
    ) -> MarkerHandle {
        let marker = Fields {
            kind,
            category: self.items,
            name: self.profile.intern_string(name),
            values: values
                .iter()
                .map(|value| self.profile.intern_string(value))
                .collect(),
        };
        self.profile.add_marker(thread, timing, marker)
    }

    /// A call stack of a visit's thread, the probe outside.
    fn stack(
        &mut self,
        (thread, visit): (ThreadHandle, &Visit),
        path: Vec<Option<u32>>,
        category: CategoryHandle,
    ) -> Option<StackHandle> {
        let input = self.input;
        let names = path.into_iter().map(|function| input.name(function));
        let names = std::iter::once(input.probes.label(visit.probe_id.0)).chain(names);
        let frames = names.map(|frame| FrameInfo {
            frame: Frame::Label(self.profile.intern_string(&frame)),
            category_pair: category.into(),
            flags: FrameFlags::empty(),
        });
        let frames: Vec<_> = frames.collect();
        self.profile.intern_stack_frames(thread, frames.into_iter())
    }

    fn samples(&mut self, visits: &[Visit]) -> Result<(), ExportError> {
        let visits = by_id(visits);
        let input = self.input;
        let set = &input.chosen.visits;
        load::samples(input.trace, set, input.weight.event(), |sample| {
            let visit = visits[&sample.visit_id];
            let thread = self.thread(visit);
            let function = input.functions.get(sample.function);
            let category = match function {
                Some(function) if function.kernel => self.kernel,
                _ => self.user,
            };
            let path = input.stacks.path(sample.stack, Some(sample.function));
            let stack = self.stack((thread, visit), path, category);
            let time = at(sample.time_ns);
            self.profile
                .add_sample(thread, time, stack, CpuDelta::ZERO, 1);
        })?;
        Ok(())
    }
}

fn by_id(visits: &[Visit]) -> FxHashMap<u64, &Visit> {
    visits.iter().map(|visit| (visit.visit_id, visit)).collect()
}

fn at(ns: i64) -> Timestamp {
    Timestamp::from_nanos_since_reference(ns.max(0) as u64)
}

fn item_schema(input: &Input<'_>) -> RuntimeSchemaMarkerSchema {
    let fixed = ["item", "visit", "flags"].map(|name| (name.to_owned(), name.to_owned()));
    let args = input.trace.info.columns.iter();
    // An argument may be called as a field that the format has already.
    let args = args.map(|column| (format!("arg_{}", column.name), column.name.clone()));
    schema(
        "item",
        "item {marker.data.item}",
        fixed.into_iter().chain(args),
    )
}

fn wait_schema() -> RuntimeSchemaMarkerSchema {
    let fields = ["visit", "function"].map(|name| (name.to_owned(), name.to_owned()));
    schema("wait", "{marker.data.function}", fields.into_iter())
}

fn schema(
    name: &str,
    label: &str,
    fields: impl Iterator<Item = (String, String)>,
) -> RuntimeSchemaMarkerSchema {
    RuntimeSchemaMarkerSchema {
        type_name: name.to_owned(),
        description: None,
        locations: MarkerLocations::MARKER_CHART
            | MarkerLocations::MARKER_TABLE
            | MarkerLocations::TIMELINE_OVERVIEW,
        chart_label: Some(label.to_owned()),
        tooltip_label: Some(format!("{{marker.name}} {label}")),
        table_label: Some(label.to_owned()),
        fields: fields
            .map(|(key, label)| RuntimeSchemaMarkerField {
                key,
                label,
                format: MarkerFieldFormat::String,
                flags: MarkerFieldFlags::SEARCHABLE,
            })
            .collect(),
        graphs: Vec::new(),
    }
}
