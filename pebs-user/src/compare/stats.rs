//! Sums over all visits of a trace without all details: reads `function_stats`.

use arrow_array::RecordBatch;
use rustc_hash::FxHashMap;

use super::slots::Slots;
use crate::compare::condensed::{Condensed, FunctionSums};
use crate::compare::losses::LossVisits;
use crate::compare::waits::{States, WaitKey, WaitSum};
use crate::store::reader::{ReadError, Trace};
use crate::store::run::EventInfo;
use crate::store::schema::measure;
use crate::store::view::{Select as _, View as _, columns};
use crate::units::{EventId, FunctionId, ProbeId};

columns! {
    /// Columns of `function_stats` that are needed.
    pub(crate) struct Columns of function_stats {
        begin_ns, end_ns, probe_id, measure, function_id, event, loss, samples, samples_squared, samples_product,
        samples_active_ns, events, events_squared, events_product, events_active_ns, sum_ns, sum_squared, visits_with
    }
}

impl Columns<'_> {
    /// Sums of a function sampled by this event: of its time where it has one from an event that is not a clock. Where
    /// the columns of events are null each sample stands for the reset value, which did not change, or all samples have equal weight.
    fn sums(&self, row: usize, event: &EventInfo) -> FunctionSums {
        let samples = self.samples.get(row).unwrap_or(0);
        let reset = event.reset.max(1) as f64;
        let each = [
            (&self.events_squared, &self.samples_squared, reset * reset),
            (&self.events_product, &self.samples_product, reset * reset),
            (&self.events_active_ns, &self.samples_active_ns, reset),
        ];
        let [squared, product, active_ns] = each.map(|(events, samples, weight)| {
            let of_samples = || samples.get(row).unwrap_or(0.0) * weight;
            events.get(row).unwrap_or_else(of_samples)
        });
        if event.has_times {
            // How times go together within an item is not known, so there is no interval.
            return FunctionSums {
                samples,
                events: self.sum_ns.get(row).unwrap_or(0.0),
                squared: f64::NAN,
                ..FunctionSums::default()
            };
        }
        let events = self.events.get(row).map(|it| it as f64);
        FunctionSums {
            samples,
            events: events.unwrap_or(samples as f64 * reset),
            squared,
            product,
            active_ns,
        }
    }
}

/// Sums over all visits of a probe that are counted.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Functions of the report's event.
    pub functions: Condensed,
    /// Time off the CPU and number of waits, by state and function.
    pub waits: FxHashMap<WaitKey, WaitSum>,
    /// Durations in total.
    pub duration_ns: f64,
    /// End of the last range of time that there are rows of.
    pub until_ns: i64,
}

/// Adds a batch of `function_stats`, with [`Columns`], but for pebs-trace's own function.
pub(crate) fn add(
    batch: &RecordBatch,
    event: Option<&EventInfo>,
    own: Option<u32>,
    losses: LossVisits,
    switches: bool,
    slots: &mut Slots<Stats>,
    states: &mut States,
) -> Result<(), ReadError> {
    let columns = Columns::of(batch)?;
    // Without switches the thread is taken to have run all the time.
    let active = if switches {
        measure::ONCPU
    } else {
        measure::DURATION
    };
    for row in 0..batch.num_rows() {
        let Some((_, stats)) = slots.of(columns.probe_id[row]) else {
            continue;
        };
        stats.until_ns = stats.until_ns.max(columns.end_ns[row]);
        if columns.loss.get(row) && losses == LossVisits::LeaveOut {
            continue;
        }
        let [sum, sum_squared] =
            [&columns.sum_ns, &columns.sum_squared].map(|it| it.get(row).unwrap_or(0.0));
        let function = columns.function_id.get(row).map(FunctionId);
        if function.is_some_and(|it| Some(it.0) == own) {
            continue;
        }
        let count = columns.samples.get(row).unwrap_or(0);
        let name = columns.measure.get(row);
        if name == measure::DURATION {
            stats.duration_ns += sum;
        }
        if name == active {
            stats.functions.items += columns.visits_with[row];
            stats.functions.active_ns += sum;
            stats.functions.active_squared += sum_squared;
        }
        match name {
            measure::DURATION | measure::ONCPU => {}
            measure::SELF => {
                let of_event = columns.event.get(row).map(EventId);
                if let (Some(function), Some(event)) = (function, event)
                    && of_event == Some(event.id)
                {
                    stats.functions.add(function, columns.sums(row, event));
                }
            }
            state => {
                let key = WaitKey {
                    state: states.index(state),
                    function,
                };
                let wait = stats.waits.entry(key).or_default();
                wait.ns += sum as i64;
                wait.waits += count;
            }
        }
    }
    Ok(())
}

/// Sums of an event over all visits, by probe, as the number of events.
pub(crate) fn of_event(
    trace: &Trace,
    event: EventId,
    probe: Option<ProbeId>,
    losses: LossVisits,
) -> Result<Slots<Stats>, ReadError> {
    let info = trace.info.events.iter().find(|it| it.id == event);
    let info = info.map(|it| EventInfo {
        has_times: false,
        ..it.clone()
    });
    let own = trace.own_function()?;
    let (mut slots, mut states) = (
        Slots::new(&trace.info, probe, Stats::default),
        States::default(),
    );
    for batch in Columns::scan(trace)? {
        add(
            &batch?,
            info.as_ref(),
            own,
            losses,
            trace.info.switches,
            &mut slots,
            &mut states,
        )?;
    }
    Ok(slots)
}

/// The waits of `all` minus these.
pub(crate) fn other_waits(
    all: &FxHashMap<WaitKey, WaitSum>,
    without: &FxHashMap<WaitKey, WaitSum>,
) -> FxHashMap<WaitKey, WaitSum> {
    let rest = all.iter().map(|(key, sum)| {
        let less = without.get(key).copied().unwrap_or_default();
        let sum = WaitSum {
            ns: (sum.ns - less.ns).max(0),
            waits: sum.waits.saturating_sub(less.waits),
        };
        (*key, sum)
    });
    rest.filter(|(_, sum)| sum.waits > 0).collect()
}
