//! The trace and the log side by side.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::findings::{
    BINS, Bin, Findings, FunctionFindings, LONG_INTERVALS, Length, PooledFindings, SampleFindings,
    VisitFindings,
};
use super::trace::{Recorded, Sample, Visit, VisitFunction};
use super::truth::{CLOCK_NOTE, ItemTruth, STAMP_NOTE, STOP_NOTE, STOPPED_NOTE, Truth};
use crate::compare::pool::{Pool, Quantity};
use crate::store::schema::visit_flag;
use crate::units::FunctionId;

/// Share of a sample interval that an interrupt may take for [`Comparison::intervals`].
const MAX_STOP: f64 = 0.8;

/// Standard errors on each side of a 95 % interval.
const Z_95: f64 = 1.96;

/// Puts a trace and a log side by side.
///
/// The only tolerance is the log's clock error: the largest difference of its times from the marks'
/// clock, and the error of converting samples' times if these are on another clock.
#[must_use]
pub(crate) fn compare(recorded: &Recorded, truth: &Truth) -> Findings {
    let truth_clock_error_ns = truth.notes.get(CLOCK_NOTE).copied().unwrap_or(0);
    let conversion_ns = recorded.clock_error_ns.unwrap_or(0.0).ceil() as i64;
    let comparison = Comparison {
        recorded,
        truth,
        mark_slack: truth_clock_error_ns,
        sample_slack: truth_clock_error_ns + conversion_ns,
    };
    let (visits, compared) = comparison.visits();
    let (functions, pooled) = comparison.functions(&compared);
    Findings {
        reset_ns: recorded.reset,
        visits,
        samples: comparison.samples(),
        functions,
        bins: comparison.bins(&compared),
        pooled,
        kernel_share: comparison.kernel_share(&compared),
        stop_ns: truth.notes.get(STOP_NOTE).copied(),
        stopped_share: truth
            .notes
            .get(STOPPED_NOTE)
            .map(|&share| share as f64 / 1e6),
        truth_clock_error_ns,
        clock_error_ns: recorded.clock_error_ns,
    }
}

struct Comparison<'a> {
    recorded: &'a Recorded,
    truth: &'a Truth,
    mark_slack: i64,
    sample_slack: i64,
}

/// A visit that spent all its time on one CPU, and its item.
type Compared<'a> = (u64, &'a Visit, &'a ItemTruth);

impl<'a> Comparison<'a> {
    fn visits(&self) -> (VisitFindings, Vec<Compared<'a>>) {
        let mut found = VisitFindings {
            items: self.truth.items.len() as u64,
            visits: self.recorded.visits.len() as u64,
            ..VisitFindings::default()
        };
        let mut visited = HashSet::new();
        let mut compared = Vec::new();
        for (&id, visit) in &self.recorded.visits {
            let Some(item) = self.truth.items.get(&visit.row.item_id) else {
                found.extra += 1;
                continue;
            };
            found.extra += u64::from(!visited.insert(visit.row.item_id));
            found.misplaced += u64::from(!self.is_in_place(visit, item));
            if visit.row.flags & visit_flag::MIGRATED != 0 {
                found.migrated += 1;
            } else if visit.row.flags & !visit_flag::PREEMPTED != 0 || visit.row.oncpu_ns.is_none()
            {
                found.damaged += 1;
            } else if visit.row.oncpu_ns != visit.row.duration_ns {
                found.off_cpu += 1;
            } else if item.disturbed {
                found.disturbed += 1;
            } else {
                compared.push((id, visit, item));
            }
        }
        found.missing = found.items - visited.len() as u64;
        found.compared = compared.len() as u64;
        compared.sort_by_key(|(id, ..)| *id);
        (found, compared)
    }

    /// Whether a visit begins within BEFORE..ENTER and ends within LEAVE..AFTER of its item.
    fn is_in_place(&self, visit: &Visit, item: &ItemTruth) -> bool {
        let slack = self.mark_slack;
        let not_before = |t: i64, bound: Option<i64>| bound.is_none_or(|b| t >= b - slack);
        let not_after = |t: i64, bound: Option<i64>| bound.is_none_or(|b| t <= b + slack);
        let end_fits = |end| not_before(end, item.leave) && not_after(end, item.after);
        let origin = self.recorded.origin;
        let begin = visit.row.begin_ns.0 + origin;
        not_before(begin, item.before)
            && not_after(begin, item.enter)
            && visit.row.end_ns.is_none_or(|end| end_fits(end.0 + origin))
    }

    fn samples(&self) -> SampleFindings {
        let mut found = SampleFindings::default();
        let on_thread = self.items_by_thread();
        for sample in &self.recorded.samples {
            found.samples += 1;
            let visit = sample.visit.and_then(|id| self.recorded.visits.get(&id));
            let item = visit.and_then(|visit| self.truth.items.get(&visit.row.item_id));
            let Some(item) = item else {
                found.wrong_item += u64::from(self.is_in_an_item(sample, &on_thread));
                continue;
            };
            found.in_visits += 1;
            found.wrong_item += u64::from(!self.is_in_item(sample, item));
            if sample.kernel {
                found.kernel += 1;
            } else if self.recorded.clock_readers.contains(&sample.function) {
                // The log's own readings of the clock.
                found.clock_readings += 1;
            } else if let Some(function) = self.function_at(sample.time, item) {
                found.judged += 1;
                let named = self.recorded.names.get(&sample.function);
                found.wrong_function += u64::from(named != Some(function));
            }
        }
        found
    }

    /// Items of each thread by their first instant.
    fn items_by_thread(&self) -> HashMap<u32, BTreeMap<i64, &'a ItemTruth>> {
        let mut threads: HashMap<u32, BTreeMap<i64, &ItemTruth>> = HashMap::new();
        for item in self.truth.items.values() {
            if let Some(enter) = item.enter {
                threads.entry(item.tid).or_default().insert(enter, item);
            }
        }
        threads
    }

    fn is_in_an_item(
        &self,
        sample: &Sample,
        threads: &HashMap<u32, BTreeMap<i64, &ItemTruth>>,
    ) -> bool {
        let latest = sample.time - self.sample_slack;
        let item = threads
            .get(&sample.tid)
            .and_then(|items| items.range(..=latest).next_back());
        let leave = item.and_then(|(_, item)| item.leave);
        leave.is_some_and(|leave| sample.time < leave - self.sample_slack)
    }

    fn is_in_item(&self, sample: &Sample, item: &ItemTruth) -> bool {
        let slack = self.sample_slack;
        item.before
            .is_none_or(|before| sample.time >= before - slack)
            && item.after.is_none_or(|after| sample.time <= after + slack)
    }

    /// The function that surely ran; between two calls it may have been either, or the caller.
    fn function_at(&self, time: i64, item: &ItemTruth) -> Option<&'a String> {
        let after = item
            .calls
            .partition_point(|call| call.enter <= time - self.sample_slack);
        let call = item.calls.get(after.checked_sub(1)?)?;
        let inside = time + self.sample_slack < call.leave;
        inside.then(|| &self.truth.functions[call.function])
    }

    fn functions(&self, compared: &[Compared<'_>]) -> (Vec<FunctionFindings>, Vec<PooledFindings>) {
        let ids = self.function_ids();
        let mut sums: BTreeMap<(Length, usize), Sums> = BTreeMap::new();
        let run = self.recorded.run;
        let mut pool = run.map_or_else(Pool::default, Pool::of_runs);
        let mut truth_total = vec![0_i64; self.truth.functions.len()];
        for (id, visit, item) in compared {
            pool.add_item(*id, visit.row.oncpu_ns.unwrap_or(0));
            for found in &visit.functions {
                // The reset value is the same all the time.
                let seen = (found.samples, u64::from(found.samples));
                pool.add_samples(*id, FunctionId(found.function), seen);
            }
            for (function, (truth_ns, calls)) in self.self_times(item) {
                truth_total[function] += truth_ns;
                let row = visit
                    .functions
                    .iter()
                    .find(|row| ids.get(&row.function) == Some(&function));
                let long = self.intervals(truth_ns, row) >= LONG_INTERVALS;
                let length = if long { Length::Long } else { Length::Short };
                sums.entry((length, function))
                    .or_default()
                    .add(truth_ns as f64, calls, row);
            }
        }
        let functions = sums.into_iter().map(|((length, function), sums)| {
            sums.close(self.truth.functions[function].clone(), length)
        });
        let pooled = pool.close(Quantity::Time);
        let of_pool = |(&id, &function): (&u32, &usize)| {
            let found = pooled.function(FunctionId(id))?;
            Some(PooledFindings {
                name: self.truth.functions[function].clone(),
                truth_ns: truth_total[function] as f64 / compared.len() as f64,
                per_item_ns: found.per_item,
                interval_ns: found.interval,
            })
        };
        let mut pooled: Vec<PooledFindings> = ids.iter().filter_map(of_pool).collect();
        pooled.sort_by(|a, b| a.name.cmp(&b.name));
        (functions.collect(), pooled)
    }

    /// Length of a function in sample intervals: its expected number of samples.
    ///
    /// A sampled function takes longer by the sample's interrupt. This is subtracted if the log has
    /// its duration: otherwise sampled functions would be classified as longer than others, and
    /// every length would look biased.
    fn intervals(&self, truth_ns: i64, row: Option<&VisitFunction>) -> f64 {
        let (truth, reset) = (truth_ns as f64, self.recorded.reset as f64);
        let stop = self
            .truth
            .notes
            .get(STOP_NOTE)
            .map_or(0.0, |&stop| stop as f64);
        if stop > reset * MAX_STOP {
            return truth / reset;
        }
        let samples = f64::from(row.map_or(0, |row| row.samples));
        (truth - samples * stop).max(0.0) / (reset - stop)
    }

    fn bins(&self, compared: &[Compared<'_>]) -> Vec<Bin> {
        let ids = self.function_ids();
        let mut bins = [Bin::default(); BINS.len() + 1];
        for (_, visit, item) in compared {
            for (function, (truth_ns, calls)) in self.self_times(item) {
                let row = |row: &&VisitFunction| ids.get(&row.function) == Some(&function);
                let row = visit.functions.iter().find(row);
                if calls == 1 {
                    let intervals = self.intervals(truth_ns, row);
                    let bin = &mut bins[BINS.partition_point(|&end| end <= intervals)];
                    bin.intervals += intervals;
                    add_to_bin(bin, truth_ns as f64, row);
                }
            }
        }
        let filled = bins.into_iter().filter(|bin| bin.rows > 0);
        filled.map(mean_of_bin).collect()
    }

    /// Returns the functions of the trace that are functions of the log.
    fn function_ids(&self) -> HashMap<u32, usize> {
        let place = |name: &String| self.truth.functions.iter().position(|known| known == name);
        let names = self.recorded.names.iter();
        names
            .filter_map(|(&id, name)| Some((id, place(name)?)))
            .collect()
    }

    /// Self time of each function of an item (without the functions it called), and its calls.
    ///
    /// If the log has the cost of a note, only notes lie between two calls, within the functions,
    /// before the first reading of the clock or after the second: half of the time between two
    /// calls is added to each.
    fn self_times(&self, item: &ItemTruth) -> BTreeMap<usize, (i64, u32)> {
        let mut times = self_times(item);
        if !self.truth.notes.contains_key(STAMP_NOTE) {
            return times;
        }
        let leaves = item.calls.iter().map(|call| Some(call.leave));
        let enters = item.calls.iter().map(|call| Some(call.enter));
        let before = std::iter::once(item.enter).chain(leaves);
        let after = enters.skip(1).chain(std::iter::once(item.leave));
        for (call, (before, after)) in item.calls.iter().zip(before.zip(after)) {
            let notes = call.enter - before.unwrap_or(call.enter) + after.unwrap_or(call.leave)
                - call.leave;
            times.entry(call.function).or_default().0 += notes / 2;
        }
        times
    }

    fn kernel_share(&self, compared: &[Compared<'_>]) -> f64 {
        let is_kernel = |f: &&VisitFunction| self.recorded.kernel.get(&f.function) == Some(&true);
        let own = |f: &VisitFunction| f.self_ns.map_or(0.0, |(own, _)| own);
        let kernel = |visit: &Visit| {
            visit
                .functions
                .iter()
                .filter(is_kernel)
                .map(own)
                .sum::<f64>()
        };
        let all = compared
            .iter()
            .filter_map(|(_, visit, _)| visit.row.oncpu_ns)
            .sum::<i64>();
        let kernel: f64 = compared.iter().map(|(_, visit, _)| kernel(visit)).sum();
        if all > 0 { kernel / all as f64 } else { 0.0 }
    }
}

/// Self time of each function of an item (without the functions it called), and its calls.
fn self_times(item: &ItemTruth) -> BTreeMap<usize, (i64, u32)> {
    let mut times: BTreeMap<usize, (i64, u32)> = BTreeMap::new();
    let mut open: Vec<(usize, i64)> = Vec::new();
    for call in &item.calls {
        let length = call.leave - call.enter;
        while open.pop_if(|(_, leave)| *leave <= call.enter).is_some() {}
        if let Some((outer, _)) = open.last() {
            times.entry(*outer).or_default().0 -= length;
        }
        let (time, calls) = times.entry(call.function).or_default();
        *time += length;
        *calls += 1;
        open.push((call.function, call.leave));
    }
    times
}

/// Adds sums.
fn add_to_bin(bin: &mut Bin, truth: f64, row: Option<&VisitFunction>) {
    let own = row.and_then(|row| row.self_ns).map_or(0.0, |(own, _)| own);
    let span = row.map_or(0.0, |row| row.span_ns as f64);
    bin.rows += 1;
    bin.truth_ns += truth;
    bin.self_ns += own;
    bin.self_error_ns += (own - truth).powi(2);
    bin.span_ns += span;
    bin.span_error_ns += (span - truth).powi(2);
}

/// Turns sums into means.
fn mean_of_bin(sums: Bin) -> Bin {
    let rows = sums.rows as f64;
    Bin {
        rows: sums.rows,
        intervals: sums.intervals / rows,
        truth_ns: sums.truth_ns / rows,
        self_ns: sums.self_ns / rows,
        self_error_ns: (sums.self_error_ns / rows).sqrt(),
        span_ns: sums.span_ns / rows,
        span_error_ns: (sums.span_error_ns / rows).sqrt(),
    }
}

/// Sums over the rows of a function.
#[derive(Default)]
struct Sums {
    rows: u64,
    seen: u64,
    truth: f64,
    own: f64,
    span: f64,
    once: u64,
    once_span_error: f64,
    error: f64,
    error_squared: f64,
    seen_error_squared: f64,
    variance: f64,
    covered: u64,
}

impl Sums {
    fn add(&mut self, truth: f64, calls: u32, row: Option<&VisitFunction>) {
        let own = row.and_then(|row| row.self_ns);
        let error = own.map_or(0.0, |(own, _)| own) - truth;
        self.rows += 1;
        self.truth += truth;
        self.own += truth + error;
        let span = row.map_or(0.0, |row| row.span_ns as f64);
        self.span += span;
        if calls == 1 {
            self.once += 1;
            self.once_span_error += span - truth;
        }
        self.error += error;
        self.error_squared += error * error;
        if let Some((_, stderr)) = own {
            self.seen += 1;
            self.seen_error_squared += error * error;
            self.variance += stderr * stderr;
            self.covered += u64::from(error.abs() <= Z_95 * stderr);
        }
    }

    fn close(self, name: String, length: Length) -> FunctionFindings {
        let (rows, seen) = (self.rows as f64, (self.seen as f64).max(1.0));
        let spread = self.error_squared - self.error * self.error / rows;
        FunctionFindings {
            name,
            length,
            rows: self.rows,
            seen: self.seen,
            truth_ns: self.truth / rows,
            self_ns: self.own / rows,
            span_ns: self.span / rows,
            once: self.once,
            once_span_bias_ns: self.once_span_error / (self.once as f64).max(1.0),
            bias: self.error / self.truth,
            bias_stderr: spread.max(0.0).sqrt() / self.truth,
            stderr_ns: (self.variance / seen).sqrt(),
            error_ns: (self.seen_error_squared / seen).sqrt(),
            covered: self.covered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::truth::CallTruth;
    use super::*;
    use crate::store::schema::VisitRow;
    use crate::units::TraceNs;

    fn call(function: usize, enter: i64, leave: i64) -> CallTruth {
        CallTruth {
            function,
            enter,
            leave,
        }
    }

    /// Two items: f runs 1010..1060 and g 1062..1090 in the first, f 2010..2090 in the second.
    fn truth() -> Truth {
        let item = |id: u64, at: i64, calls| ItemTruth {
            id,
            tid: 9,
            before: Some(at),
            enter: Some(at + 5),
            leave: Some(at + 95),
            after: Some(at + 100),
            disturbed: false,
            calls,
        };
        let first = item(1, 1000, vec![call(0, 1010, 1060), call(1, 1062, 1090)]);
        let second = item(2, 2000, vec![call(0, 2010, 2090)]);
        Truth {
            items: [(1, first), (2, second)].into(),
            functions: vec!["f".to_owned(), "g".to_owned()],
            notes: [(CLOCK_NOTE.to_owned(), 1)].into(),
        }
    }

    fn row(function: u32, own: f64, stderr: f64, span: i64) -> VisitFunction {
        VisitFunction {
            function,
            samples: 5,
            span_ns: span,
            self_ns: Some((own, stderr)),
        }
    }

    fn sample(time: i64, visit: Option<u64>, function: u32) -> Sample {
        Sample {
            time,
            visit,
            tid: 9,
            function,
            kernel: false,
        }
    }

    fn recorded() -> Recorded {
        let visit = |item, begin: i64, functions| Visit {
            row: VisitRow {
                item_id: item,
                begin_ns: TraceNs(begin),
                end_ns: Some(TraceNs(begin + 95)),
                duration_ns: Some(95),
                oncpu_ns: Some(95),
                ..VisitRow::default()
            },
            functions,
        };
        let first = visit(1, 1003, vec![row(7, 52.0, 2.0, 40), row(8, 25.0, 1.0, 20)]);
        let second = visit(2, 2003, vec![row(7, 80.0, 2.0, 70)]);
        Recorded {
            visits: [(11, first), (12, second)].into(),
            samples: vec![sample(1020, Some(11), 7), sample(2050, Some(12), 7)],
            names: [(7, "f".to_owned()), (8, "g".to_owned())].into(),
            kernel: [(7, false), (8, false)].into(),
            clock_readers: HashSet::new(),
            reset: 10,
            run: None,
            origin: 0,
            clock_error_ns: None,
        }
    }

    /// Means, biases and coverage of rows, by hand.
    #[test]
    fn rows_by_hand() {
        let found = compare(&recorded(), &truth());
        assert_eq!((found.visits.compared, found.visits.missing), (2, 0));
        let f = &found.functions[0];
        // f: truth 50 and 80, estimates 52 and 80.
        assert_eq!((f.name.as_str(), f.length, f.rows), ("f", Length::Long, 2));
        assert!((f.truth_ns - 65.0).abs() < 1e-9 && (f.self_ns - 66.0).abs() < 1e-9);
        assert!((f.bias - 2.0 / 130.0).abs() < 1e-9);
        assert!(f.once == 2 && (f.once_span_bias_ns + 10.0).abs() < 1e-9);
        assert_eq!(f.covered, 2);
        // g: truth 28, estimate 25 ± 1, and shorter than 5 intervals.
        let g = &found.functions[1];
        assert_eq!(
            (g.name.as_str(), g.length, g.covered),
            ("g", Length::Short, 0)
        );
    }

    /// A sample outside its item, in no item while one ran, or in another function is found.
    #[test]
    fn wrong_samples_are_found() {
        let mut recorded = recorded();
        let right = compare(&recorded, &truth()).samples;
        assert_eq!(
            (right.wrong_item, right.wrong_function, right.judged),
            (0, 0, 2)
        );
        recorded.samples = vec![
            sample(998, Some(11), 7),
            sample(1102, Some(11), 7),
            sample(1050, None, 7),
            sample(1500, None, 7),
            sample(1050, Some(11), 8),
            // Between two calls: could be of either.
            sample(1061, Some(11), 8),
        ];
        let wrong = compare(&recorded, &truth()).samples;
        assert_eq!(wrong.wrong_item, 3);
        assert_eq!((wrong.judged, wrong.wrong_function), (1, 1));
    }

    /// Visits that are missing, too many, out of place or off the CPU are distinguished.
    #[test]
    fn wrong_visits_are_found() {
        let mut recorded = recorded();
        let twice = recorded.visits[&11].clone();
        let mut late = twice.clone();
        late.row.begin_ns = TraceNs(1007);
        late.row.oncpu_ns = Some(50);
        recorded.visits = [(11, twice), (13, late)].into();
        let found = compare(&recorded, &truth()).visits;
        assert_eq!((found.missing, found.extra), (1, 1));
        assert_eq!((found.misplaced, found.off_cpu, found.compared), (1, 1, 1));
        let mut truth = truth();
        truth.items.entry(1).or_default().disturbed = true;
        let found = compare(&recorded, &truth).visits;
        assert_eq!((found.disturbed, found.compared), (1, 0));
    }

    /// A call within a call is not counted twice.
    #[test]
    fn nested_calls() {
        let item = ItemTruth {
            calls: vec![
                call(0, 0, 100),
                call(1, 10, 30),
                call(2, 15, 20),
                call(1, 40, 50),
            ],
            ..ItemTruth::default()
        };
        let times: Vec<(i64, u32)> = self_times(&item).into_values().collect();
        assert_eq!(times, [(70, 1), (25, 2), (5, 1)]);
    }
}
