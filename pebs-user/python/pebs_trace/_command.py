"""Runs the command ``pebs-trace``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._trace import Trace

PROGRAM = "pebs-trace"


class PebsTraceError(Exception):
    """What the command said when it failed: ``str(error)``; ``error.status`` is its exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def program() -> str:
    """Path of the command: ``$PEBS_TRACE``, that of this package, or the first on ``$PATH``."""
    named = os.environ.get("PEBS_TRACE")
    if named:
        return named
    ours = Path(sysconfig.get_path("scripts")) / PROGRAM
    found = str(ours) if ours.exists() else shutil.which(PROGRAM)
    if found is None:
        raise PebsTraceError(f"there is no command {PROGRAM}: name it in $PEBS_TRACE", 127)
    return found


def run(arguments: Sequence[str | os.PathLike[str]], accepted: Iterable[int] = (0,)) -> str:
    """Runs the command and gives what it prints."""
    done = subprocess.run([program(), *map(os.fspath, arguments)], capture_output=True, text=True, check=False)
    if done.returncode not in accepted:
        raise PebsTraceError(done.stderr.strip() or f"{PROGRAM} failed ({done.returncode})", done.returncode)
    return done.stdout


def read(arguments: Sequence[str | os.PathLike[str]], accepted: Iterable[int] = (0,)) -> dict[str, Any]:
    """Runs the command with ``--format json`` and gives what it prints."""
    return json.loads(run([*arguments, "--format", "json"], accepted))


def record(
    output: str | os.PathLike[str],
    *,
    uprobe: str | Sequence[str] = (),
    pid: int | Sequence[int] = (),
    command: Sequence[str | os.PathLike[str]] = (),
    preset: str | None = None,
    duration: float | None = None,
    reset: int | None = None,
    keep: str | None = None,
    options: Sequence[str] = (),
) -> Trace:
    """Records a running process or a command, and gives the trace. Needs root, as ``pebs-trace`` does.

    :param output: directory of the trace, which must not exist
    :param uprobe: SPECs of functions that are items; none: the preset that fits the program
    :param pid: processes to trace
    :param command: program to run and trace, with its arguments
    :param preset: name of a preset
    :param duration: seconds after which the recording ends; None: when the command or the processes end
    :param reset: events, or ns of a clock, between samples; None: as the budget allows
    :param keep: ``all``, ``slow`` or ``none``: whose details are kept
    :param options: further options of the command line, as they are
    :raises PebsTraceError: the recording could not begin, or more was lost than allowed
    """
    from ._trace import load

    line: list[str | os.PathLike[str]] = ["--output", output]
    for spec in [uprobe] if isinstance(uprobe, str) else uprobe:
        line += ["--uprobe", spec]
    for number in [pid] if isinstance(pid, int) else pid:
        line += ["--pid", str(number)]
    for name, value in [("--preset", preset), ("--duration", duration), ("--reset", reset), ("--keep", keep)]:
        if value is not None:
            line += [name, str(value)]
    line += options
    if command:
        line += ["--", *command]
    run(line)
    return load(output)
