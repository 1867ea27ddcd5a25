"""Golden records: what a version of an adapter and its SDK wrote, kept beside its tests, and replayed ever after."""

from __future__ import annotations

import importlib.metadata
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flyteplugins.agents.core import current_scope

from ._adapter import Adapter, Options
from ._stage import Stage
from .promise._dialogue import QUESTION, options, script

__all__ = ["Golden", "formats", "golden_file", "read_golden", "record_golden", "replay_golden", "shape", "write_golden"]


@dataclass(frozen=True)
class Golden:
    """Records of one agent run.

    Attributes:
        formats: The versions of the formats of records and of keys.
        answer: What the agent said.
        files: The files, by their path below the task's action.
    """

    formats: tuple[str, ...]
    answer: str
    files: dict[str, str]


def formats() -> tuple[str, ...]:
    """The versions of the formats of records and of keys."""
    from flyteplugins.agents.core._canonical import KEY_FORMAT
    from flyteplugins.agents.core._records import RECORD_FORMAT

    return RECORD_FORMAT, KEY_FORMAT


def golden_file(adapter: Adapter) -> Path | None:
    """Where the golden records of the SDK's installed version are; `None` where the adapter keeps none."""
    if adapter.golden is None:
        return None
    version = importlib.metadata.version(adapter.distribution)
    return adapter.golden / f"{adapter.distribution}-{version}.json"


def read_golden(file: Path) -> Golden:
    """Read golden records."""
    kept = json.loads(file.read_text())
    return Golden(tuple(kept["formats"]), kept["answer"], kept["files"])


def _dialogue(stage: Stage) -> tuple[str, Options]:
    """Have the model server take its part in the dialogue, and return the question and the keywords of `run_agent`."""
    if stage.adapter.dialogue is not None:
        return stage.adapter.dialogue(stage.server)
    script(stage.server)
    return QUESTION, options(stage)


async def record_golden(stage: Stage) -> Golden:
    """Run the dialogue, and return its records."""
    question, given = _dialogue(stage)
    answer = await stage.crash(lambda: stage.adapter.run_agent(question, **given), "golden")
    root = stage.folder("golden")
    files = {
        "/".join(path.relative_to(root).parts[1:]): path.read_text()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.relative_to(root).parts[0] != "reports"
    }
    return Golden(formats(), str(answer), files)


async def replay_golden(stage: Stage, golden: Golden) -> Any:
    """Run the dialogue on golden records, and return its answer."""
    question, given = _dialogue(stage)

    async def body() -> Any:
        scope = current_scope()
        assert scope is not None
        for path, text in golden.files.items():
            file = stage.folder("replayed") / scope.action / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return await stage.adapter.run_agent(question, **given)

    return await stage.attempt(body, "replayed")


def write_golden(golden: Golden, file: Path) -> None:
    """Keep golden records."""
    file.parent.mkdir(exist_ok=True)
    kept = {"formats": list(golden.formats), "answer": golden.answer, "files": golden.files}
    file.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def shape(text: str) -> Any:
    """What a record's file is made of, without its values: the names in its header and in its payload."""
    return [_shape(json.loads(line)) for line in text.split("\n", 1) if line]


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shape(item) for name, item in sorted(value.items())}
    if isinstance(value, list):
        return [_shape(item) for item in value]
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__
