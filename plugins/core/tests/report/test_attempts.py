"""Attempts that share an output folder, as Flyte's local retries and resumed runs do, do not overwrite each other's story."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flyteplugins.agents.core import Folder, Usage
from flyteplugins.agents.core._report._attempts import Attempt, AttemptStore

if TYPE_CHECKING:
    from .conftest import Reported, StartAgent

Read = Callable[[str], str]

APP = Path(__file__).with_name("apps") / "dies.py"


async def test_a_retry_shows_what_the_attempts_before_it_did(
    reported: Reported, start_agent: StartAgent, words: Read
) -> None:
    attempts = 0

    async def body() -> None:
        nonlocal attempts
        attempts += 1
        async with start_agent() as agent:
            await agent.turn("first", tokens=(1000, 100))
            if attempts == 1:
                raise ConnectionError("the provider is away")
            await agent.turn("second", tokens=(30, 4))
            if attempts == 2:
                raise TimeoutError("the provider is slow")
            await agent.run.finish("done")

    said = words(await reported(body, retries=True))
    assert "agent: finished Attempt 3, resumed from records" in said
    [table] = re.findall("Attempts Attempt (.*) Timeline", said)
    table = re.sub(r"\d+ ms|\d+\.\d s|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "-", table)
    assert table.startswith(
        "Outcome Turns Tool calls Tokens spent Cost Took Began "
        "1 failed ConnectionError: the provider is away 1 0 1,100 $0.0028 - - "
        "2 failed TimeoutError: the provider is slow 2 1 replayed 0 34 less than $0.0001 - - "
        "3 (this one) finished 2 2 replayed 0 0 $0 - - "
        "All of these together spent 1,134 tokens, $0.0029."
    )


async def test_attempts_whose_price_is_unknown_are_no_sum(
    reported: Reported, start_agent: StartAgent, words: Read
) -> None:
    attempts = 0

    async def body() -> None:
        nonlocal attempts
        attempts += 1
        async with start_agent() as agent:
            for number in range(attempts):
                await agent.turn(
                    f"turn {number}", tokens=(1000, 100), model="my-own-model" if number == 0 else "gpt-4.1"
                )
            if attempts < 3:
                raise ConnectionError("away")

    said = words(await reported(body, retries=True))
    [table] = re.findall("Attempts Attempt (.*) Timeline", said)
    assert "1 failed ConnectionError: away 1 0 1,100 unknown " in table
    assert "2 failed ConnectionError: away 2 1 replayed 0 1,100 $0.0028 " in table
    assert "All of these together spent 3,300 tokens, at least $0.0056." in table


async def test_the_whole_report_of_an_earlier_attempt_is_kept(
    reported: Reported, start_agent: StartAgent, words: Read
) -> None:
    attempts = 0

    async def body() -> None:
        nonlocal attempts
        attempts += 1
        async with start_agent() as agent:
            await agent.turn(f"only attempt {attempts} says this")
            if attempts < 3:
                raise ConnectionError("the provider is away")

    said = words(await reported(body, retries=True))
    [where] = re.findall(r"2 reports of earlier attempts are kept in (\S+) \.", said)
    kept = sorted(Path(where).iterdir())  # noqa: ASYNC240
    assert [file.name for file in kept] == ["0001.html", "0002.html"]
    for number, file in enumerate(kept, 1):
        assert f"only attempt {number} says this" in file.read_text()
    assert "only attempt 3 says this" in said


async def test_a_first_attempt_has_nothing_before_it(reported: Reported, start_agent: StartAgent, words: Read) -> None:
    async def body() -> None:
        for name in ("one", "two"):
            async with start_agent(name) as agent:
                await agent.turn("hello")

    page = await reported(body)
    assert "<table>" not in page
    assert "kept in" not in words(page)
    assert [file for file in reported.folder("").rglob("*.html") if file.name != "report.html"] == []


async def test_a_report_that_is_not_of_an_agent_is_not_kept(reported: Reported, start_agent: StartAgent) -> None:
    async def body() -> None:
        async with start_agent():
            pass

    await reported(body)
    reported.file().write_text("<p>somebody else's</p>")
    assert "kept in" not in await reported(body)


async def test_a_second_try_within_a_task_shows_the_first_one(
    reported: Reported, start_agent: StartAgent, words: Read
) -> None:
    async def body() -> None:
        for number in range(2):
            with contextlib.suppress(ConnectionError):
                async with start_agent() as agent:
                    await agent.turn("hello")
                    if number == 0:
                        raise ConnectionError("the provider is away")

    page = await reported(body)
    first, second = page.split('<section class="fla"')[1:]
    assert "<table>" not in first
    assert "Attempt 2, resumed from records" in words(f"<p {second}")
    assert "1 failed ConnectionError: the provider is away" in words(f"<p {second}")


def test_attempts_that_were_killed_are_not_forgotten(run_folder: Callable[[str], Path], words: Read) -> None:
    folder = run_folder("")
    command = [sys.executable, str(APP), folder.name]
    assert subprocess.run(command, env=os.environ | {"KILL": "in silence"}, timeout=120).returncode == 9
    process = subprocess.Popen(command, env=os.environ | {"KILL": "after a write"})
    try:
        while process.poll() is None and not list(folder.rglob("report.html")):
            time.sleep(0.05)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL, "it did not end by itself"
    subprocess.run(command, check=True, timeout=120)

    [report] = folder.rglob("report.html")
    said = words(report.read_text())
    assert "mortal: finished Attempt 3, resumed from records" in said
    assert "1 no outcome it was ended from outside unknown unknown unknown" in said
    assert "2 no outcome it was ended from outside at least 1 1 replayed unknown unknown" in said
    assert "All of these together spent at least 220 tokens." in said, "what was replayed was paid for"
    [kept] = folder.rglob("kept/*.html")
    assert "mortal: running" in words(kept.read_text())
    assert "answer 0" in words(kept.read_text())


async def test_a_damaged_summary_is_named_and_the_rest_is_shown(
    reported: Reported, start_agent: StartAgent, words: Read, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with start_agent() as agent:
            await agent.turn("hello")
            await agent.run.finish("done")

    await reported(body)
    await reported(body)
    first, _ = sorted(reported.folder("").rglob("*.json"))
    first.write_text('{"number": "many"}')
    said = words(await reported(body))
    assert "Attempt 3" in said
    assert "2 finished" in said
    assert "1 attempt more is not shown" in said or "1 attempt is not shown" in said or "1 more attempt" in said
    assert f"The summary of an earlier attempt in {first} cannot be shown" in caplog.text


async def test_one_file_is_kept_for_an_attempt(reported: Reported, start_agent: StartAgent, clock: object) -> None:
    async def body() -> None:
        async with start_agent() as agent:
            for number in range(5):
                clock.time += 100  # type: ignore[attr-defined]
                await agent.turn(f"turn {number}")
            await agent.run.finish("done")

    await reported(body)
    assert len(reported.written) > 5
    [file] = reported.folder("").rglob("*.json")
    kept = json.loads(file.read_text())
    assert (kept["number"], kept["turns"], kept["outcome"]) == (1, 5, "finished")


async def test_attempts_that_begin_at_once_have_numbers_of_their_own(tmp_path: Path) -> None:
    folder = Folder.at(str(tmp_path))
    numbers = []
    for _ in range(3):  # each has listed what there is before the others wrote
        store = AttemptStore(folder, "a0")
        await store._listing()
        numbers.append(store)
    slots = [await store.begin("a0/x/y-0", Attempt(0, 1.0)) for store in numbers]
    assert [slot.number for slot in slots] == [1, 2, 3]


async def test_of_very_many_attempts_the_first_and_the_last_ones_are_read(tmp_path: Path) -> None:
    folder = Folder.at(str(tmp_path))
    for _ in range(30):
        await AttemptStore(folder, "a0").begin("a0/x/y-0", Attempt(0, 1.0, fresh=Usage(1, 2, 3)))
    slot = await AttemptStore(folder, "a0").begin("a0/x/y-0", Attempt(0, 1.0))
    assert [attempt.number for attempt in slot.earlier] == [1, *range(12, 31)]
    assert (slot.number, slot.unread) == (31, 10)
    assert slot.earlier[0].fresh == Usage(1, 2, 3)


async def test_attempts_that_cannot_be_kept_are_no_reason_to_fail(
    reported: Reported,
    start_agent: StartAgent,
    words: Read,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    create = Folder.create

    async def refuse(self: Folder, name: str, data: bytes) -> bool:
        if name.startswith("reports/"):
            raise PermissionError(f"no {name}")
        return await create(self, name, data)

    monkeypatch.setattr(Folder, "create", refuse)

    async def body() -> None:
        async with start_agent() as agent:
            await agent.turn("hello")
            await agent.run.finish("done")

    with caplog.at_level(logging.ERROR, "flyteplugins.agents"):
        said = words(await reported(body))
    assert "agent: finished began" in said
    assert "Turn 1" in said
    assert caplog.text.count("cannot be kept") == 1
