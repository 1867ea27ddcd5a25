"""Records outlive the version that wrote them."""

from __future__ import annotations

import json
from itertools import zip_longest

from .._checks import check, expect
from .._golden import Golden, formats, golden_file, read_golden, record_golden, replay_golden, shape
from .._stage import Stage

COMMAND = "python -m flyteplugins.agents.conformance.kit golden <the file with the declaration>"


def _golden(stage: Stage) -> Golden:
    file = golden_file(stage.adapter)
    assert file is not None, "The declaration names no folder for golden records: add `golden=`."
    expect(file.exists(), True, f"golden records of the installed SDK ({file.name})", f"Make them: {COMMAND}")
    golden = read_golden(file)
    todo = f"A format has a new version: keep the old records' error in the notes of the release, and run {COMMAND}"
    expect(golden.formats, formats(), f"the formats of {file.name}", todo)
    return golden


@check("records.golden")
async def what_was_recorded_once_replays_ever_after(stage: Stage) -> None:
    """Records that an earlier version wrote with this SDK are replayed without a model call."""
    golden = _golden(stage)
    answer = await replay_golden(stage, golden)
    todo = (
        "Keys or payloads are made in another way than before: step their version, or runs in flight are lost silently."
    )
    expect(answer, golden.answer, "the answer from golden records", todo)
    expect(stage.asked(), 0, "requests on golden records", todo)
    expect(stage.did(), [], "tools run on golden records", todo)


@check("records.format")
async def a_change_of_format_steps_its_version(stage: Stage) -> None:
    """What is written today has the names and the form of the golden records, or another version."""
    golden = _golden(stage)
    now = await record_golden(stage)
    todo = f"Step the version of what has changed, and run {COMMAND}"
    for wanted, found in zip_longest(_by_place(golden), _by_place(now), fillvalue=("no record", "")):
        expect(found[0], wanted[0], "a record's place", todo)
        expect(shape(found[1]), shape(wanted[1]), f"the form of {wanted[0]}", todo)


def _by_place(golden: Golden) -> list[tuple[str, str]]:
    """The files, by what they are: turns by their number, since an answer may hold what the provider made up."""
    found: list[tuple[str, str]] = []
    for path, text in golden.files.items():
        name = path.rpartition("/")[2]
        if name.startswith("turn."):
            name = f"turn {json.loads(text.partition(chr(10))[0])['position']}"
        found.append((name, text))
    return sorted(found)
