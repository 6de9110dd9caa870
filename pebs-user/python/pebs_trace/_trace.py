"""Tables of a trace, as Arrow, pandas, polars or DuckDB have them."""

from __future__ import annotations

import html
import json
import os
import re
import tempfile
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ._command import PebsTraceError, read, run
from ._results import Diff, Explanation

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars

TABLES = (
    "visits visit_functions samples waits function_stats functions losses memory stacks batch_items counts "
    "interval_counts other_waits frequencies"
).split()
"""Every table that a trace may have; ``pebs-trace guide trace`` has their columns."""

COUNTED = {"counts", "interval_counts"}
"""Tables whose events are those that were counted, not sampled."""


class Trace:
    """A trace: a directory of Parquet files and ``trace.json``.

    Tables are attributes (``trace.visits``) and items (``trace["visits"]``): a ``pyarrow.Table`` whose columns ``event``
    have the names of events, and ``flags`` the names of their bits (``loss|migrated``). All other columns are as they
    are on disk; their units and descriptions are in the metadata of the fields (:meth:`describe`).
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self.run: dict[str, Any] = json.loads((self.path / "trace.json").read_text())
        except (OSError, ValueError) as error:
            raise PebsTraceError(f"{self.path} is no trace: {error}", 2) from error

    def __repr__(self) -> str:
        return f"<pebs_trace.Trace {str(self.path)!r}: {', '.join(self.tables)}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(run(['info', self.path]))}</pre>"

    @cached_property
    def tables(self) -> list[str]:
        """The tables that have rows."""
        return [name for name in TABLES if any(pq.read_metadata(it).num_rows for it in self._files(name))]

    @cached_property
    def events(self) -> list[str]:
        """Names of the sampled events, by number."""
        return [it["name"] for it in self.run["events"]]

    def arrow(self, table: str) -> pa.Table:
        """A table, with names of events and flags. A table that the trace does not have is empty."""
        if table not in TABLES:
            raise KeyError(f"no table {table!r}; tables: {', '.join(TABLES)}")
        files = self._files(table)
        if not files:
            return pa.table({})
        first = pq.read_schema(files[0])
        raw = pa.concat_tables([pq.read_table(it) for it in files], promote_options="default")
        raw = raw.replace_schema_metadata(None)
        for index, name in enumerate(raw.column_names):
            known = first.field(name) if name in first.names else raw.schema.field(name)
            column = raw.column(name)
            if name == "event":
                events = self.run.get("counted" if table in COUNTED else "events", [])
                column = _named(column, {it["id"]: it["name"] for it in events})
            elif name == "flags":
                bits = _bits(known)
                column = _named(column, _Flags(bits)) if bits else column
            raw = raw.set_column(index, pa.field(name, column.type, known.nullable, known.metadata), column)
        return raw

    def _files(self, table: str) -> list[Path]:
        return sorted((self.path / table).glob("*.parquet"))

    def describe(self, table: str) -> dict[str, str]:
        """What each column of a table means, with its unit in parentheses."""
        described = {}
        for column in self.arrow(table).schema:
            of = {key.decode(): value.decode() for key, value in (column.metadata or {}).items()}
            unit = f" ({of['unit']})" if "unit" in of else ""
            described[column.name] = of.get("description", "") + unit
        return described

    def pandas(self, table: str) -> pandas.DataFrame:
        """A table as pandas has it; whole numbers that may be null stay whole numbers."""
        import pandas as pd

        nullable = {
            pa.uint8(): pd.UInt8Dtype(),
            pa.uint16(): pd.UInt16Dtype(),
            pa.uint32(): pd.UInt32Dtype(),
            pa.uint64(): pd.UInt64Dtype(),
            pa.int64(): pd.Int64Dtype(),
            pa.bool_(): pd.BooleanDtype(),
        }
        arrow = self.arrow(table)
        return arrow.to_pandas(types_mapper=nullable.get)

    def polars(self, table: str) -> polars.DataFrame:
        """A table as polars has it."""
        import polars as pl

        return pl.from_arrow(self.arrow(table))

    def duckdb(self) -> duckdb.DuckDBPyConnection:
        """A connection to a database in memory that has a view for each table, read from the files as they are, and the views
        of ``pebs-trace export --to views.sql``, which pool the times of functions over slow, typical and all items.
        """
        import duckdb

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "views.sql"
            run(["export", self.path, "--to", "views.sql", "--output", file])
            views = file.read_text()
        connection = duckdb.connect()
        for table in self.tables:
            place = str(self.path.resolve() / table / "*.parquet").replace("'", "''")
            connection.execute(f"create or replace view {table} as select * from '{place}'")
        connection.execute(views)
        return connection

    def explain(self, *options: str) -> Explanation:
        """Why slow items are slow, as ``pebs-trace explain`` says; ``options`` are those of its command line."""
        line = ["explain", str(self.path), *options]
        return Explanation.of(read(line), line)

    def plot_latency(self, axes: Any = None) -> Any:
        """Draws how long items took: the share of them that took at least so long (matplotlib)."""
        from ._plots import latency

        return latency(self, axes)

    def __getitem__(self, table: str) -> pa.Table:
        return self.arrow(table)

    def __getattr__(self, name: str) -> pa.Table:
        if name in TABLES:
            return self.arrow(name)
        raise AttributeError(f"no table or attribute {name!r}")


def load(path: str | os.PathLike[str]) -> Trace:
    """Opens a trace; tables are read when they are asked for."""
    return Trace(path)


def explain(trace: Trace | str | os.PathLike[str], *options: str) -> Explanation:
    """Why slow items of a trace are slow: see :meth:`Trace.explain`."""
    return (trace if isinstance(trace, Trace) else load(trace)).explain(*options)


def diff(before: Trace | str | os.PathLike[str], after: Trace | str | os.PathLike[str], *options: str) -> Diff:
    """What changed from one trace to another, as ``pebs-trace diff`` says, with the options of its command line."""
    paths = [str(it.path if isinstance(it, Trace) else it) for it in (before, after)]
    line = ["diff", *paths, *options]
    # 3: a figure grew by more than --fail-above, which its row says.
    return Diff.of(read(line, accepted=(0, 3)), line)


class _Flags(dict[int, str]):
    """Names of combinations of bits."""

    def __init__(self, bits: dict[int, str]) -> None:
        super().__init__()
        self.bits = bits

    def __missing__(self, value: int) -> str:
        return "|".join(name for bit, name in self.bits.items() if value & bit)


def _bits(column: pa.Field) -> dict[int, str]:
    """Names of a column's bits, from its description."""
    described = (column.metadata or {}).get(b"description", b"").decode()
    return {int(bit): name for bit, name in re.findall(r"(\d+) (\w+)", described)}


def _named(column: pa.ChunkedArray, names: dict[int, str]) -> pa.ChunkedArray:
    """Numbers as a dictionary of names."""
    encoded = pc.dictionary_encode(column).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().chunk(0) if encoded.num_chunks else None
    if encoded is None:
        return column
    words = pa.array([names[it] for it in encoded.dictionary.to_pylist()], pa.string())
    return pa.chunked_array([pa.DictionaryArray.from_arrays(encoded.indices, words)])
