"""Asks a lake the questions of `questions.sql`: `questions.py LAKE QUESTIONS [MASTER]`; with the address of Spark's master there, else
in DuckDB.

Prints an object with the version of the engine, the seconds until the views were there, bytes that Spark's tasks read, and of
each question its seconds and rows.
"""

import decimal
import json
import sys
import time
import urllib.request

import pebs_trace

address, questions, master = sys.argv[1], sys.argv[2], (sys.argv[3:] or [None])[0]


def plain(value):
    return int(value) if isinstance(value, decimal.Decimal) else value


def named(text):
    for part in text.split("\n\n")[1:]:
        comment, sql = part.split("\n", 1)
        yield comment.removeprefix("-- ").split(":")[0], sql.strip().rstrip(";")


begin = time.monotonic()
lake = pebs_trace.Lake(address)
if master:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("fleet")
    session = lake.spark(builder.getOrCreate())
    version = session.version
    ask = lambda sql: [list(map(plain, row)) for row in session.sql(sql).collect()]
else:
    import duckdb

    session = lake.duckdb()
    session.execute("set enable_progress_bar = false")
    version = duckdb.__version__
    ask = lambda sql: [list(map(plain, row)) for row in session.execute(sql).fetchall()]
found = {"version": version, "begun_s": time.monotonic() - begin, "questions": {}}
with open(questions) as file:
    for name, sql in named(file.read()):
        begin = time.monotonic()
        rows = ask(sql)
        found["questions"][name] = {"seconds": time.monotonic() - begin, "rows": rows}
if master:
    context = session.sparkContext
    url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/executors"
    with urllib.request.urlopen(url) as answer:
        found["bytes"] = sum(it["totalInputBytes"] for it in json.load(answer))
    session.stop()
print(json.dumps(found))
