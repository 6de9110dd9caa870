"""p50 and p99 of self time per function, asked of one trace in several ways: `queries.py TRACE ROUNDS`.

Prints an object with the samples, the version of DuckDB, and of each way its best CPU time in seconds, by one thread,
and its rows: function, p50, p99 in ns.
"""

import json
import resource
import sys

import duckdb

trace, rounds = sys.argv[1], int(sys.argv[2])

QUANTILES = "select function_id, quantile_cont(self_ns, 0.5), quantile_cont(self_ns, 0.99)"

WAYS = {
    # As the tool wrote it.
    "visit_functions": f"""
        {QUANTILES}
        from '{trace}/visit_functions/*.parquet'
        group by function_id order by function_id""",
    # Each sample owns the time half way to its neighbours in the visit, cut where the visit begins and ends and where
    # its thread left the CPU and came back.
    "samples": f"""
        with instants as (
            select visit_id, time_ns, function_id from '{trace}/samples/*.parquet' where visit_id is not null
            union all select visit_id, begin_ns, null from '{trace}/visits/*.parquet'
            union all select visit_id, end_ns, null from '{trace}/visits/*.parquet'
            union all select visit_id, begin_ns, null from '{trace}/waits/*.parquet'
            union all select visit_id, end_ns, null from '{trace}/waits/*.parquet'),
        owned as (
            select visit_id, function_id,
                (time_ns - lag(time_ns) over w) * if(lag(function_id) over w is null, 1e0, 5e-1)
                + (lead(time_ns) over w - time_ns) * if(lead(function_id) over w is null, 1e0, 5e-1) as ns
            from instants window w as (partition by visit_id order by time_ns)),
        functions as (
            select function_id, sum(ns) as self_ns from owned where function_id is not null
            group by visit_id, function_id)
        {QUANTILES} from functions group by function_id order by function_id""",
    # Rough: so many samples, so many intervals.
    "counts of samples": f"""
        with functions as (
            select function_id, count(*) * 1e3 as self_ns from '{trace}/samples/*.parquet'
            where visit_id is not null group by visit_id, function_id)
        {QUANTILES} from functions group by function_id order by function_id""",
}


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


connection = duckdb.connect(config={"threads": 1})
# It would be in what is printed.
connection.execute("set enable_progress_bar = false")
ways = {name: {"seconds": float("inf")} for name in WAYS}
for _ in range(rounds):
    for name, sql in WAYS.items():
        begin = cpu()
        rows = connection.execute(sql).fetchall()
        ways[name] = {"seconds": min(cpu() - begin, ways[name]["seconds"]), "rows": rows}
(samples,) = connection.execute(f"select count(*) from '{trace}/samples/*.parquet'").fetchone()
print(json.dumps({"duckdb": duckdb.__version__, "samples": samples, "ways": ways}))
