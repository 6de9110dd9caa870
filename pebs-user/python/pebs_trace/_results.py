"""What the command says of a trace or of two, as data. Times are nanoseconds."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ._command import run


@dataclass(frozen=True)
class Quantiles:
    """Durations of items, ns."""

    p50_ns: float | None
    p90_ns: float | None
    p99_ns: float | None
    max_ns: float | None
    mean_ns: float | None


@dataclass(frozen=True)
class ItemClass:
    """The slow items, or the typical ones."""

    rule: str
    """How they were chosen, such as ``gap`` or ``middle_half``."""
    items: int
    from_ns: float | None
    """The shortest of them."""
    to_ns: float | None
    """The longest of them."""
    mean_ns: float | None
    samples: int
    """Samples in them: what the causes rest on."""


@dataclass(frozen=True)
class Cause:
    """A part of the time that slow items take longer than typical ones."""

    kind: str
    """``function``, ``waiting``, ``preempted``, .."""
    function: str | None
    """The function, if it is one or if one is known that blocked; code without a name is None."""
    module: str | None
    state: str | None
    """Of a wait: ``sleeping``, ``runnable``, .."""
    share: float
    """Part of the additional time, 1 is all of it; with its 95 % interval."""
    share_low: float
    share_high: float
    excess_ns: float
    """Additional time in a slow item, with its 95 % interval."""
    excess_low_ns: float
    excess_high_ns: float
    slow_ns: float
    typical_ns: float
    slow_samples: int
    typical_samples: int
    by: str | None
    """The thread that ended most of the waits, or that took the CPU most often."""
    by_part: float | None
    """The part of these waits that it ended, or of these times that it took."""
    raw: dict[str, Any] = field(repr=False)
    """All that the command said."""

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Cause:
        function, by = raw.get("function") or {}, raw.get("by") or {}
        return cls(
            function=function.get("name"),
            module=function.get("module"),
            by=by.get("name"),
            by_part=by.get("part"),
            raw=raw,
            **{
                name: raw.get(name)
                for name in (
                    "kind state share share_low share_high excess_ns excess_low_ns excess_high_ns slow_ns typical_ns "
                    "slow_samples typical_samples"
                ).split()
            },
        )

    @property
    def label(self) -> str:
        """What a plot or a table calls it."""
        if self.kind == "function":
            return self.function or "function without a name"
        place = f" in {self.function}" if self.function else ""
        return f"{self.kind}{place}" + (f", {self.by_part:.0%} by {self.by}" if self.by_part else "")


@dataclass(frozen=True)
class Gap:
    """By how much slow items are longer than typical ones, ns, with its 95 % interval, and why."""

    gap_ns: float
    gap_low_ns: float | None
    gap_high_ns: float | None
    causes: list[Cause]


@dataclass(frozen=True)
class Kind:
    """Slow items that are slow for the same reason."""

    items: int
    mean_ns: float | None
    samples: int
    causes: list[Cause]
    raw: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Comparison:
    """The slow items of a probe beside its typical ones."""

    items: int
    duration: Quantiles
    slow: ItemClass | None
    typical: ItemClass | None
    gap: Gap | None
    kinds: list[Kind]
    raw: dict[str, Any] = field(repr=False)

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Comparison:
        gap = raw.get("gap")
        return cls(
            items=raw["items"],
            duration=_only(Quantiles, raw["duration"]),
            slow=_only(ItemClass, raw.get("slow")),
            typical=_only(ItemClass, raw.get("typical")),
            gap=gap
            and Gap(
                gap_ns=gap["gap_ns"],
                gap_low_ns=gap.get("gap_low_ns"),
                gap_high_ns=gap.get("gap_high_ns"),
                causes=[Cause.of(it) for it in gap["causes"]],
            ),
            kinds=[
                Kind(
                    items=it["items"],
                    mean_ns=it.get("mean_ns"),
                    samples=it["samples"],
                    causes=[Cause.of(cause) for cause in it["causes"]],
                    raw=it,
                )
                for it in raw.get("kinds") or []
            ],
            raw=raw,
        )


@dataclass(frozen=True)
class Probe:
    """What is said of one probe's items."""

    specs: list[str]
    visits: int
    items: int
    whole: Comparison
    raw: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Explanation:
    """Why slow items are slow; ``print`` shows what ``pebs-trace explain`` prints."""

    trace: str
    event: str
    probes: list[Probe]
    raw: dict[str, Any] = field(repr=False)
    command: list[str] = field(repr=False)
    """The command line that says it."""

    @classmethod
    def of(cls, raw: dict[str, Any], command: list[str]) -> Explanation:
        probes = [
            Probe(
                specs=it["specs"],
                visits=it["visits"],
                items=it["items"],
                whole=Comparison.of(it["whole"]),
                raw=it,
            )
            for it in raw["probes"]
        ]
        return cls(trace=raw["trace"], event=raw["event"]["name"], probes=probes, raw=raw, command=command)

    @property
    def causes(self) -> list[Cause]:
        """Causes of the first probe's slow items, the largest first."""
        gap = self.probes[0].whole.gap if self.probes else None
        return gap.causes if gap else []

    def plot(self, axes: Any = None) -> Any:
        """Draws slow against typical: the time of each cause in both, of the first probe (matplotlib)."""
        from ._plots import causes

        return causes(self, axes)

    @cached_property
    def text(self) -> str:
        """What the command prints."""
        return run(self.command, accepted=(0, 3))

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


@dataclass(frozen=True)
class Change:
    """A figure before and after, ns an item; the interval of the change holds for all figures at once."""

    kind: str
    """``duration``, ``function``, ``module``, ``waiting``, ``preempted``, .."""
    name: str | None
    """The function, or which figure of the durations: ``mean``, ``on_cpu``, ``p50``, ``p99``."""
    module: str | None
    state: str | None
    before_ns: float | None
    after_ns: float | None
    change_ns: float | None
    change_low_ns: float | None
    change_high_ns: float | None
    share: float | None
    """The change as a part of the mean item before, or of the figure itself."""
    changed: bool
    """Whether the interval is on one side of zero."""
    fails: bool
    before_samples: int | None
    after_samples: int | None


@dataclass(frozen=True)
class ProbeDiff:
    """What changed for the items of a probe."""

    spec_before: str
    spec_after: str
    items_before: int
    items_after: int
    durations: list[Change]
    rows: list[Change]
    """Functions, waits and preemption, those that changed most first."""
    raw: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Diff:
    """What changed between two traces; ``print`` shows what ``pebs-trace diff`` prints."""

    before: str
    after: str
    probes: list[ProbeDiff]
    notes: list[str]
    raw: dict[str, Any] = field(repr=False)
    command: list[str] = field(repr=False)
    """The command line that says it."""

    @classmethod
    def of(cls, raw: dict[str, Any], command: list[str]) -> Diff:
        probes = [
            ProbeDiff(
                spec_before=it["spec_before"],
                spec_after=it["spec_after"],
                items_before=it["items_before"],
                items_after=it["items_after"],
                durations=[_only(Change, {"kind": "duration", "name": row["figure"], **row}) for row in it["durations"]],
                rows=[_only(Change, row) for row in it["rows"]],
                raw=it,
            )
            for it in raw["probes"]
        ]
        return cls(before=raw["before"], after=raw["after"], probes=probes, notes=raw["notes"], raw=raw, command=command)

    @cached_property
    def text(self) -> str:
        """What the command prints."""
        return run(self.command, accepted=(0, 3))

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


def _only(of: type, raw: dict[str, Any] | None) -> Any:
    """A dataclass from those of the keys that it has; missing ones are None."""
    if raw is None:
        return None
    return of(**{name: raw.get(name) for name in of.__dataclass_fields__})
