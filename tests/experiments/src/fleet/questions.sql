-- Questions about a fleet, over the views of `lake.sql`; DuckDB and Spark run them unchanged. Each is named by the comment above it, and
-- its columns of whole numbers and text are a key of its rows.

-- hosts: items and their mean time
select t.target, i.host, sum(i.items) as items, sum(i.duration_ns) / sum(i.items) as mean_ns,
    sum(i.oncpu_ns) / sum(i.items) as oncpu_ns
from fleet_items i join traces t on i.trace_id = t.trace_id and i.host = t.host
group by t.target, i.host;

-- slow hosts: those whose mean is five deviations above the middle host's
with mean as (
    select t.target, i.host, sum(i.duration_ns) / sum(i.items) as ns
    from fleet_items i join traces t on i.trace_id = t.trace_id and i.host = t.host group by t.target, i.host),
middle as (select target, median(ns) as ns from mean group by target),
apart as (
    select m.target, median(abs(m.ns - d.ns)) as ns from mean m join middle d on m.target = d.target group by m.target)
select m.target, m.host, m.ns as mean_ns, d.ns as middle_ns
from mean m join middle d on m.target = d.target join apart a on m.target = a.target
where m.ns - d.ns > 5 * 1.4826 * a.ns;

-- versions: items and their mean time
select t.target, t.labels['version'] as version, count(distinct i.host) as hosts, sum(i.items) as items,
    sum(i.duration_ns) / sum(i.items) as mean_ns
from fleet_items i join traces t on i.trace_id = t.trace_id and i.host = t.host
group by t.target, t.labels['version'];

-- functions: time per item by version
with item as (
    select t.target, t.labels['version'] as version, sum(i.items) as items
    from fleet_items i join traces t on i.trace_id = t.trace_id and i.host = t.host
    group by t.target, t.labels['version']),
spent as (
    select t.target, t.labels['version'] as version, f.name, f.module, sum(f.samples) as samples, sum(f.ns) as ns
    from fleet_functions f join traces t on f.trace_id = t.trace_id and f.host = t.host
    group by t.target, t.labels['version'], f.name, f.module)
select s.target, s.version, s.name, s.module, s.samples, s.ns / i.items as ns_per_item
from spent s join item i on s.target = i.target and s.version = i.version;

-- hours: mean time by version
select t.target, t.labels['version'] as version, substring(i.trace_id, 1, 11) as hour, sum(i.items) as items,
    sum(i.duration_ns) / sum(i.items) as mean_ns
from fleet_items i join traces t on i.trace_id = t.trace_id and i.host = t.host
group by t.target, t.labels['version'], substring(i.trace_id, 1, 11);

-- waits: time per item by host
with item as (
    select host, probe_id, sum(items) as items from fleet_items group by host, probe_id),
waited as (
    select host, probe_id, state, name, module, sum(waits) as waits, sum(ns) as ns
    from fleet_waits group by host, probe_id, state, name, module)
select w.host, w.probe_id, w.state, w.name, w.module, w.waits, w.ns / i.items as ns_per_item
from waited w join item i on w.host = i.host and w.probe_id = i.probe_id;

-- quantiles: the p99 of each host's items, from merged sketches
with bucket as (
    select t.target, d.host, d.ns, sum(d.items) as items
    from fleet_durations d join traces t on d.trace_id = t.trace_id and d.host = t.host group by t.target, d.host, d.ns),
below as (
    select target, host, ns, sum(items) over (partition by target, host order by ns) as items,
        sum(items) over (partition by target, host) as of_all
    from bucket)
select target, host, min(ns) as p99_ns from below where items * 100 >= of_all * 99 group by target, host;

-- functions of hosts: the view as it is
select host, probe_id, items, mean_ns, name, module, samples, ns_per_item from fleet_hosts;
