"""What became of an attempt.

A worker's exit code does not tell: a failed task exits with 0 as well (`flyte/_bin/runtime.py`). What it left in its
outputs folder does: `error.pb`, it failed; `outputs.pb`, it succeeded; neither, it died. So an attempt can be judged
even when nobody was there to see its worker end.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from flyteidl2.core import execution_pb2, tasks_pb2
from flyteidl2.task import common_pb2
from google.protobuf.message import DecodeError

_FILES = ("error.pb", "outputs.pb")
_TAIL = 600  # characters of a dead worker's log that its error quotes


@dataclass(frozen=True)
class Outcome:
    """How an attempt, or one process of it, ended.

    Args:
        error: why it failed, `None` if it succeeded.
    """

    error: execution_pb2.ExecutionError | None = None

    @property
    def system(self) -> bool:
        """Whether the platform failed, not the user's code."""
        return self.error is not None and self.error.kind == execution_pb2.ExecutionError.SYSTEM

    @property
    def final(self) -> bool:
        """Whether the error says that trying again is of no use."""
        return self.error is not None and self.error.recoverability == execution_pb2.ContainerError.NON_RECOVERABLE


def judge(folder: Path, code: int | None, template: tasks_pb2.TaskTemplate) -> Outcome:
    """Judge an attempt whose process ended.

    Args:
        folder: its outputs folder.
        code: the exit code, negative for a signal; `None` if nobody saw it.
        template: its task.
    """
    error = read_error(folder)
    if error is not None:
        return Outcome(error)
    if _has_outputs(folder / "outputs.pb", template):
        return Outcome()
    # SIGKILL is what a lost node and the kernel's memory killer look like; anything else the user's code did itself.
    system = code is None or code == -signal.SIGKILL
    how = "was lost while nobody watched" if code is None else f"ended with {_describe(code)}"
    return Outcome(
        execution_pb2.ExecutionError(
            code="Interrupted" if system else "NonZeroExitCode",
            message=f"The worker {how} and left neither outputs nor an error. Its last words: {_tail(folder)}",
            kind=execution_pb2.ExecutionError.SYSTEM if system else execution_pb2.ExecutionError.USER,
            recoverability=execution_pb2.ContainerError.RECOVERABLE,
        )
    )


def read_error(folder: Path) -> execution_pb2.ExecutionError | None:
    """The error that a task or trace left in its folder; `None` if there is none, or only part of one."""
    try:
        error = execution_pb2.ErrorDocument.FromString((folder / "error.pb").read_bytes()).error
    except (FileNotFoundError, DecodeError):
        return None
    if not error.code and not error.message:
        return None  # a worker killed while it wrote
    return execution_pb2.ExecutionError(
        code=error.code,
        message=error.message,
        kind=error.origin,
        # The SDK re-runs or replays a failed trace by this, and looks for it here.
        recoverability=error.kind,
        error_uri=str(folder / "error.pb"),
    )


def has_ended(folder: Path) -> bool:
    """Whether a worker has begun to write down how its attempt ended."""
    return any((folder / name).exists() for name in _FILES)


def clear(folder: Path) -> None:
    """Remove what an earlier process left in an attempt's folder, so that the next one is judged by its own."""
    for name in _FILES:
        (folder / name).unlink(missing_ok=True)


def _has_outputs(file: Path, template: tasks_pb2.TaskTemplate) -> bool:
    """Whether all outputs are there; a worker killed while it wrote leaves a part."""
    try:
        outputs = common_pb2.Outputs.FromString(file.read_bytes())
    except (FileNotFoundError, DecodeError):
        return False
    return {entry.key for entry in template.interface.outputs.variables} <= {
        literal.name for literal in outputs.literals
    }


def _describe(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _tail(folder: Path) -> str:
    try:
        return (folder / "log.txt").read_text(errors="replace")[-_TAIL:]
    except FileNotFoundError:
        return "(none)"
