"""Plots of a trace, with matplotlib (``pip install 'pebs-trace[plots]'``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

if TYPE_CHECKING:
    from ._results import Explanation
    from ._trace import Trace

MOST = 10
"""Causes that are drawn."""

UNITS = [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns")]


def _axes(axes: Any) -> Any:
    if axes is not None:
        return axes
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(8, 4.5), layout="constrained")[1]


def _unit(ns: float) -> tuple[float, str]:
    return next((it for it in UNITS if ns >= it[0]), UNITS[-1])


def latency(trace: Trace, axes: Any = None) -> Any:
    """The share of visits that took at least so long, on logarithmic axes; a line for each probe."""
    axes = _axes(axes)
    visits = trace.visits
    probes = {it["id"]: it["spec"] for it in trace.run["probes"]}
    for probe in pc.unique(visits["probe_id"]).to_pylist():
        times = visits.filter(pc.equal(visits["probe_id"], probe))["duration_ns"].drop_null()
        times = sorted(times.to_pylist(), reverse=True)
        shares = [(index + 1) / len(times) for index in range(len(times))]
        axes.step([it / 1e3 for it in times], shares, where="post", label=probes.get(probe, f"probe {probe}"))
    axes.set(xscale="log", yscale="log", xlabel="duration of a visit, us", ylabel="share that took at least so long")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return axes


def causes(explanation: Explanation, axes: Any = None) -> Any:
    """The time of each cause in slow and in typical items, with the interval of what it adds."""
    axes = _axes(axes)
    found = explanation.causes[:MOST][::-1]
    if not found:
        axes.text(0.5, 0.5, "no slow items, or no causes", ha="center", transform=axes.transAxes)
        return axes
    size, unit = _unit(max(it.slow_ns for it in found))
    rows = range(len(found))
    errors = [
        [max(it.excess_ns - it.excess_low_ns, 0) / size for it in found],
        [max(it.excess_high_ns - it.excess_ns, 0) / size for it in found],
    ]
    slow = [it.slow_ns / size for it in found]
    axes.barh([it + 0.2 for it in rows], slow, 0.4, xerr=errors, label="slow items", color="#c44e52")
    axes.barh([it - 0.2 for it in rows], [it.typical_ns / size for it in found], 0.4, label="typical items", color="#4c72b0")
    axes.set_yticks(list(rows), [it.label for it in found])
    axes.set_xlabel(f"time in an item, {unit}")
    axes.legend(frameon=False)
    return axes
