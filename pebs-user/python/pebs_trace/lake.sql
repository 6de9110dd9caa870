-- What explain --by computes from, as SQL that DuckDB and Spark run unchanged. `stats`, `names` and `traces` are the tables function_stats,
-- functions and traces of a lake, with trace_id, date and host as columns. Times are ns; own work of pebs-trace is left out.

-- Items of each trace and probe, whose end is known, in no loss.
create or replace temp view fleet_items as
select s.trace_id, s.host, s.date, s.probe_id,
    sum(case when s.measure = 'duration' then s.visits_with else 0 end) as items,
    sum(case when s.measure = 'duration' then s.sum_ns else 0 end) as duration_ns,
    sum(case when s.measure = 'oncpu' then s.sum_ns else 0 end) as oncpu_ns
from stats s join traces t on s.trace_id = t.trace_id and s.host = t.host
where not s.loss and s.measure in ('duration', 'oncpu')
group by s.trace_id, s.host, s.date, s.probe_id;

-- Time of each function in all items of a trace and probe: its share of the events of a clock x the time on the CPU.
create or replace temp view fleet_functions as
with part as (
    select s.trace_id, s.host, s.date, s.probe_id, n.name, n.module, sum(s.samples) as samples, sum(s.events) as events
    from stats s join names n on s.trace_id = n.trace_id and s.host = n.host and s.function_id = n.function_id
    where not s.loss and s.measure = 'self' and coalesce(n.module, '') <> '[pebs-trace]'
    group by s.trace_id, s.host, s.date, s.probe_id, n.name, n.module),
whole as (
    select trace_id, host, probe_id, sum(events) as events from part group by trace_id, host, probe_id)
select i.trace_id, i.host, i.date, i.probe_id, p.name, p.module, p.samples,
    cast(p.events as double) / cast(w.events as double) * i.oncpu_ns as ns
from part p
join whole w on p.trace_id = w.trace_id and p.host = w.host and p.probe_id = w.probe_id
join fleet_items i on p.trace_id = i.trace_id and p.host = i.host and p.probe_id = i.probe_id
where w.events > 0;

-- Waits of all items of a trace and probe, by state and by the function that waited.
create or replace temp view fleet_waits as
select s.trace_id, s.host, s.date, s.probe_id, s.measure as state, n.name, n.module, sum(s.samples) as waits, sum(s.sum_ns) as ns
from stats s
join traces t on s.trace_id = t.trace_id and s.host = t.host
left join names n on s.trace_id = n.trace_id and s.host = n.host and s.function_id = n.function_id
where not s.loss and s.measure not in ('duration', 'oncpu', 'self')
group by s.trace_id, s.host, s.date, s.probe_id, s.measure, n.name, n.module;

-- Durations of all items as counts by bucket: quantiles of any group are within 1.6 %.
create or replace temp view fleet_durations as
select b.host, b.date, b.probe_id, b.trace_id, b.ns, sum(b.items) as items
from buckets b join traces t on b.trace_id = t.trace_id and b.host = t.host
group by b.host, b.date, b.probe_id, b.trace_id, b.ns;

-- Mean time per item of each function on each host.
create or replace temp view fleet_hosts as
with item as (
    select host, probe_id, sum(items) as items, sum(duration_ns) as duration_ns from fleet_items group by host, probe_id),
spent as (
    select host, probe_id, name, module, sum(samples) as samples, sum(ns) as ns
    from fleet_functions group by host, probe_id, name, module)
select i.host, i.probe_id, i.items, i.duration_ns / i.items as mean_ns, s.name, s.module, s.samples, s.ns / i.items as ns_per_item
from item i join spent s on i.host = s.host and i.probe_id = s.probe_id
where i.items > 0;
