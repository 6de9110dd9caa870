//! SQL views over the tables of a trace: pooled time of functions and waits by class of item.
//!
//! Means over items are pooled: time of f per item = (events of f / all events) x (time on the CPU / items). The sum of
//! `self_ns` is not: it is made for one visit, and biased in the mean for functions shorter than the interval at a
//! visit's begin or end. Slow and typical are the tool's own, as limits of each probe.
//!
//! Only ANSI SQL, `greatest`, and `&` on integers, which DuckDB, `DataFusion` and Spark have. The tables must exist
//! under their names; comments at the top say how.

use std::io::{self, Write};

use super::Input;
use crate::compare::classes::NetOnCpu;
use crate::compare::event::report_event;
use crate::compare::losses::LossVisits;
use crate::compare::select::Chosen;
use crate::compare::select::error::ExportError;
use crate::store::run::CountedInfo;
use crate::store::schema::visit_flag;

/// Tables that the views read, and `counts` if something was counted.
const TABLES: [&str; 4] = ["visits", "visit_functions", "functions", "waits"];

/// Writes the views.
pub(super) fn write(input: &Input<'_>, out: &mut dyn Write) -> Result<(), ExportError> {
    let info = &input.trace.info;
    let left_out = match input.losses {
        LossVisits::LeaveOut => visit_flag::END_MISSING | visit_flag::LOSS,
        LossVisits::Include => visit_flag::END_MISSING,
    };
    head(input, out)?;
    let net = NetOnCpu::of(info);
    let marks = marks_case(&net);
    let (overlapped, sample) = (visit_flag::OVERLAPPED, net.sample_ns);
    // Without switches the thread is taken to have run all the time.
    let active = if info.switches {
        "oncpu_ns"
    } else {
        "duration_ns"
    };
    let condensed = visit_flag::CONDENSED;
    let event = report_event(info).map_or(0, |event| event.id.0);
    let own = input.trace.own_function()?;
    let own = own.map_or_else(String::new, |it| format!(" and vf.function_id <> {it}"));
    write!(
        out,
        "
-- The visits that are counted: rank_ns ranks them, class is slow, typical or between. Of the time on the CPU pebs-trace's
-- own is left out; of a visit that overlaps others that is its own samples and marks.
create or replace view visit_classes as
select visit_id, item_id, probe_id, duration_ns, rank_ns,
    greatest(active_ns - case when (flags & {overlapped}) = 0 then duration_ns - rank_ns
        else least(duration_ns - rank_ns, cast(round({marks} + {sample:?} * samples) as bigint)) end, 0) as active_ns,
    has_details,
    case
{}        else 'between'
    end as class
from (
    select visit_id, item_id, probe_id, samples, flags, duration_ns,
        coalesce(net_ns, duration_ns) as rank_ns, {active} as active_ns,
        case when {active} is not null and (flags & {condensed}) = 0 then 1 else 0 end as has_details
    from visits
    where duration_ns is not null and (flags & {left_out}) = 0) counted;

-- Each visit in its class, and in 'all'.
create or replace view class_members as
select visit_id, probe_id, class, rank_ns as duration_ns, active_ns from visit_classes where has_details = 1
union all
select visit_id, probe_id, 'all' as class, rank_ns as duration_ns, active_ns from visit_classes where has_details = 1;

-- Items, mean duration and mean time on the CPU of each class, both without what pebs-trace took.
create or replace view class_sums as
select probe_id, class, count(*) as items,
    avg(cast(duration_ns as double)) as duration_ns, avg(cast(active_ns as double)) as active_ns
from class_members group by probe_id, class;

-- Time of each function per item of a class: pooled, the mean to use.
create or replace view pooled_functions as
select s.probe_id, s.class, s.function_id, f.name, f.module, s.samples,
    s.events / t.events as part, s.events / t.events * c.active_ns as ns_per_item
from (
    select m.probe_id, m.class, vf.function_id, sum(vf.samples) as samples,
        cast(sum(coalesce(vf.events, vf.samples)) as double) as events
    from visit_functions vf join class_members m on m.visit_id = vf.visit_id
    where vf.event = {event}{own} group by m.probe_id, m.class, vf.function_id) s
join (
    select m.probe_id, m.class, cast(sum(coalesce(vf.events, vf.samples)) as double) as events
    from visit_functions vf join class_members m on m.visit_id = vf.visit_id
    where vf.event = {event}{own} group by m.probe_id, m.class) t
    on t.probe_id = s.probe_id and t.class = s.class
join class_sums c on c.probe_id = s.probe_id and c.class = s.class
join functions f on f.function_id = s.function_id;

-- Time off the CPU per item of a class, observed.
create or replace view pooled_waits as
select s.probe_id, s.class, s.state, s.function_id, f.name, f.module, s.waits, s.ns / c.items as ns_per_item
from (
    select m.probe_id, m.class, w.state, w.function_id, count(*) as waits,
        cast(sum(w.end_ns - w.begin_ns) as double) as ns
    from waits w join class_members m on m.visit_id = w.visit_id
    group by m.probe_id, m.class, w.state, w.function_id) s
join class_sums c on c.probe_id = s.probe_id and c.class = s.class
left join functions f on f.function_id = s.function_id;

-- Each wait that a thread ended, with the visit that this thread was at then: of nested ones the innermost.
create or replace view woken_waits as
select visit_id, item_id, tid, begin_ns, end_ns, state, function_id, woken_by, woken_by_tid, woken_by_visit, woken_by_item
from (
    select w.visit_id, w.item_id, w.tid, w.begin_ns, w.end_ns, w.state, w.function_id, w.woken_by, w.woken_by_tid,
        v.visit_id as woken_by_visit, v.item_id as woken_by_item,
        row_number() over (partition by w.tid, w.begin_ns order by v.begin_ns desc) as nth
    from waits w left join visits v on v.tid = w.woken_by_tid
        and v.begin_ns < w.end_ns - coalesce(w.runnable_ns, 0)
        and coalesce(v.end_ns, w.end_ns) >= w.end_ns - coalesce(w.runnable_ns, 0)
    where w.woken_by_tid is not null) ended
where nth = 1;
",
        class_cases(input.chosen)
    )?;
    counts(&info.counted, out)?;
    Ok(())
}

/// Cases of SQL that tell the class of a visit.
fn class_cases(chosen: &Chosen) -> String {
    chosen
        .classes
        .iter()
        .flat_map(|(probe, classes)| {
            let mut bounds: Vec<_> = classes.by_samples().collect();
            // Alike from some number of samples on, nearly always from 0.
            while let [.., before, last] = &bounds[..]
                && (before.1, before.2) == (last.1, last.2)
            {
                bounds.pop();
            }
            let last = bounds.len() - 1;
            bounds.into_iter().map(move |(samples, slow, (low, high))| {
                let op = if samples == last { ">=" } else { "=" };
                let of = format!("when probe_id = {probe} and samples {op} {samples} and rank_ns");
                let mut lines = String::new();
                // For some numbers of samples no item may be slow, or typical.
                if slow < i64::MAX {
                    lines += &format!("        {of} >= {slow} then 'slow'\n");
                }
                if low <= high {
                    lines += &format!("        {of} between {low} and {high} then 'typical'\n");
                }
                lines
            })
        })
        .collect()
}

/// Time on the CPU of a visit's marks, ns, in SQL.
fn marks_case(net: &NetOnCpu) -> String {
    let marks: String = net
        .marks_ns
        .iter()
        .map(|(probe, ns)| format!(" when probe_id = {} then {ns:?}", probe.0))
        .collect();
    match marks.is_empty() {
        true => "0".to_owned(),
        false => format!("case{marks} else 0 end"),
    }
}

/// Views over the counts of visits, if anything was counted.
fn counts(counted: &[CountedInfo], out: &mut dyn Write) -> io::Result<()> {
    if counted.is_empty() {
        return Ok(());
    }
    let quoted = |name: &str, quote: char| {
        let twice = quote.to_string().repeat(2);
        format!("{quote}{}{quote}", name.replace(quote, &twice))
    };
    let each = |line: fn(u8, String, String) -> String| -> String {
        let lines = counted.iter().map(|event| {
            line(
                event.id.0,
                quoted(&event.name, '\''),
                quoted(&event.name, '"'),
            )
        });
        lines.collect()
    };
    let names = each(|id, name, _| format!(" when {id} then {name}"));
    let columns = each(|id, _, column| {
        format!(",\n    max(case when event = {id} then \"count\" end) as {column}")
    });
    write!(
        out,
        "
-- Events counted of each visit, a column for each event; null: it had no turn on a counter, or is unknown (see counts.state).
create or replace view visit_counts as
select visit_id{columns}
from counts group by visit_id;

-- Events per item of a class, and per us on the CPU: pooled. visits is how many items they are known of.
create or replace view pooled_counts as
select m.probe_id, m.class, c.event, case c.event{names} end as name, count(*) as visits,
    avg(cast(c.\"count\" as double)) as per_item,
    1000.0 * sum(cast(c.\"count\" as double)) / nullif(sum(cast(c.enabled_ns as double)), 0) as per_us
from counts c join class_members m on m.visit_id = c.visit_id
where c.\"count\" is not null group by m.probe_id, m.class, c.event;
"
    )
}

/// Comments on how to register the tables.
fn head(input: &Input<'_>, out: &mut dyn Write) -> io::Result<()> {
    // A comment ends with its line.
    let dir = input.trace.dir.display().to_string();
    let dir: String = dir.chars().filter(|it| !it.is_control()).collect();
    let quoted = dir.replace('\'', "''");
    writeln!(
        out,
        "-- Views over a trace of pebs-trace: means over items are pooled (time x share of samples).\n\
         -- The tables must be there first. DuckDB:"
    )?;
    let counts = (!input.trace.info.counted.is_empty()).then_some("counts");
    for table in TABLES.into_iter().chain(counts) {
        writeln!(
            out,
            "--   create view {table} as select * from '{quoted}/{table}/*.parquet';"
        )?;
    }
    writeln!(
        out,
        "-- DataFusion: create external table visits stored as parquet location '{quoted}/visits/';\n\
         -- Spark:      create table visits using parquet location '{quoted}/visits';\n\
         -- Then, what slow items take more of than typical ones:\n\
         --   select s.name, s.ns_per_item - coalesce(t.ns_per_item, 0) as more_ns from pooled_functions s\n\
         --   left join pooled_functions t on t.probe_id = s.probe_id and t.function_id = s.function_id\n\
         --       and t.class = 'typical'\n\
         --   where s.class = 'slow' order by more_ns desc;"
    )
}
