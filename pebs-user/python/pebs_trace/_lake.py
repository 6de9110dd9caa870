"""Traces of many machines in an object store or a directory."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._command import run

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import SparkSession

TRACE_ID = "[0-9TZ]+-[0-9a-f]{16}"
"""The id of a trace in the name of an object, as a regular expression."""

BASES = {"stats": "function_stats", "names": "functions", "traces": "traces"}
"""Views that ``lake.sql`` reads, and the tables that they are."""


class Lake:
    """A lake, by its address: ``s3://bucket/lake``, ``gs://..``, ``az://..``, or a directory (``pebs-trace guide lake``)."""

    def __init__(self, address: str | Path) -> None:
        self.address = str(address).rstrip("/")

    def __repr__(self) -> str:
        return f"<pebs_trace.Lake {self.address!r}>"

    def traces(self, *options: str) -> list[dict[str, Any]]:
        """What it has, as ``pebs-trace traces`` lists it; ``options`` are those of its command line."""
        return json.loads(run(["traces", self.address, "--format", "json", *options]))

    def explain(self, by: str, *options: str) -> dict[str, Any]:
        """Which groups are slower and why, as ``pebs-trace explain --by`` says; ``options`` are those of its command line."""
        return json.loads(run(["explain", self.address, "--by", by, "--format", "json", *options]))

    def duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None, *, host: str = "*", date: str = "*"
    ) -> duckdb.DuckDBPyConnection:
        """A connection with the views of ``lake.sql``: ``fleet_items``, ``fleet_functions``, ``fleet_waits``, ``fleet_durations`` and
        ``fleet_hosts``; of one host or day alone, if they are given, whose objects are all that is listed and read then.

        An address of an object store needs DuckDB's extension ``httpfs`` and its settings in ``connection``.
        """
        import duckdb

        connection = connection or duckdb.connect()
        for view, table in BASES.items():
            files = f"{self.address}/{table}/date={date}/host={host}/*.parquet".replace("'", "''")
            of = "" if table == "traces" else f", regexp_extract(filename, '{TRACE_ID}') as trace_id"
            connection.execute(
                f"create or replace temp view {view} as select *{of} from "
                f"read_parquet('{files}', hive_partitioning = true, filename = true, union_by_name = true)"
            )
        connection.execute(
            "create or replace temp view buckets as select trace_id, host, date, probe_id, unnest(bucket_ns) as ns, "
            "unnest(bucket_count) as items from stats where measure = 'duration' and not loss"
        )
        for statement in statements():
            connection.execute(statement)
        return connection

    def spark(self, session: SparkSession) -> SparkSession:
        """The same views in a session of Spark, as temporary ones; ``session`` has the settings of the store."""
        for view, table in BASES.items():
            frame = session.read.option("mergeSchema", True).parquet(f"{self.address}/{table}")
            if table != "traces":
                from pyspark.sql import functions as f

                frame = frame.withColumn("trace_id", f.regexp_extract(f.input_file_name(), f"({TRACE_ID})", 1))
            frame.createOrReplaceTempView(view)
        session.sql(
            "create or replace temp view buckets as select trace_id, host, date, probe_id, bucket.bucket_ns as ns, "
            "bucket.bucket_count as items from (select *, explode(arrays_zip(bucket_ns, bucket_count)) as bucket from stats "
            "where measure = 'duration' and not loss)"
        )
        for statement in statements():
            session.sql(statement)
        return session


def statements() -> list[str]:
    """The statements of ``lake.sql``, which DuckDB and Spark run unchanged."""
    text = (resources.files(__package__) / "lake.sql").read_text()
    text = re.sub(r"--.*", "", text)
    return [it.strip() for it in text.split(";") if it.strip()]
