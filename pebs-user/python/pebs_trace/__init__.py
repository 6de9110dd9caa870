"""Which function made this request slow: traces of pebs-trace as tables, causes and plots.

    import pebs_trace

    trace = pebs_trace.record("slow", pid=1234, duration=10)   # as root
    trace = pebs_trace.load("slow")                            # any later time
    print(trace.explain())
    trace.pandas("visits").nlargest(10, "net_ns")

The tables hold what was observed: times are nanoseconds since the trace began, and what was not observed is null. All
statistics (classes of items, causes with intervals, comparisons) are computed by the command ``pebs-trace`` itself,
which this package brings; nothing is computed twice.
"""

from ._command import PebsTraceError, program, record
from ._lake import Lake
from ._results import (
    Cause,
    Change,
    Comparison,
    Diff,
    Explanation,
    Gap,
    ItemClass,
    Kind,
    Probe,
    ProbeDiff,
    Quantiles,
)
from ._trace import TABLES, Trace, diff, explain, load

__all__ = [
    "TABLES",
    "Cause",
    "Change",
    "Comparison",
    "Diff",
    "Explanation",
    "Gap",
    "ItemClass",
    "Kind",
    "Lake",
    "PebsTraceError",
    "Probe",
    "ProbeDiff",
    "Quantiles",
    "Trace",
    "diff",
    "explain",
    "load",
    "program",
    "record",
]
