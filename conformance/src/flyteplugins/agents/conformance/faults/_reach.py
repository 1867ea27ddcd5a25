"""Count the fault points that a run reaches, and die where the plan says so."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from ._plan import DIRECTORY_VARIABLE, PLAN_VARIABLE, Fault, check_name, parse_plan

_COUNT = ".count"
_STRUCK = ".struck.json"


@dataclass(frozen=True)
class FaultRecord:
    """One fault that struck.

    Args:
        point: name of the fault point.
        occurrence: which time it was reached.
        pid: process that died.
        action: the Flyte action it worked on, empty outside a worker.
        time: when, in seconds since the epoch.
    """

    point: str
    occurrence: int
    pid: int
    action: str
    time: float


def reach(point: str) -> None:
    """Say that this process is at `point`; if the plan has a fault there, the process dies and this does not return.

    Does nothing when `AGENTS_FAULT_DIR` is not set, so that a task file may call it and still run anywhere.

    Raises:
        ValueError: `point` cannot name a fault point, or the plan in the environment cannot be read.
    """
    check_name(point)
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if not directory:
        return
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    occurrence = _next_occurrence(folder / f"{point}{_COUNT}")
    if Fault(point, occurrence) in parse_plan(os.environ.get(PLAN_VARIABLE, "")):
        record = FaultRecord(point, occurrence, os.getpid(), os.environ.get("ACTION_NAME", ""), time.time())
        (folder / f"{point}@{occurrence}{_STRUCK}").write_text(json.dumps(asdict(record)))
        os.kill(os.getpid(), signal.SIGKILL)


def _next_occurrence(counter: Path) -> int:
    """Append one byte; its position is this call's number, and no other call, in any process, gets the same."""
    fd = os.open(counter, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(fd, b".")
        return os.lseek(fd, 0, os.SEEK_CUR)
    finally:
        os.close(fd)


def reached(folder: Path) -> dict[str, int]:
    """How often each point was reached, by name, in the run that `folder` belongs to."""
    return {file.name.removesuffix(_COUNT): file.stat().st_size for file in sorted(folder.glob(f"*{_COUNT}"))}


def struck(folder: Path) -> list[FaultRecord]:
    """The faults that struck in the run that `folder` belongs to, oldest first."""
    records = [FaultRecord(**json.loads(file.read_text())) for file in folder.glob(f"*{_STRUCK}")]
    return sorted(records, key=lambda record: record.time)
