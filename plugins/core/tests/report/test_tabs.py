"""Several agent runs in one task."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import flyte.report

if TYPE_CHECKING:
    from .conftest import Reported, StartAgent

Read = Callable[[str], str]


def tabs(page: str) -> dict[str, str]:
    """The tabs of a report, by title."""
    titles = re.findall(r'<li onclick="handleLinkClick\(this\)">(.*?)</li>', page)
    bodies = page.split('<section class="fla"')[1:]
    return dict(zip(titles, bodies, strict=True))


async def test_runs_at_the_same_time_have_a_tab_each_with_their_own_rows_only(
    reported: Reported, start_agent: StartAgent
) -> None:
    turns = [asyncio.Event() for _ in range(3)]

    async def one(number: int) -> None:
        async with start_agent(f"agent {number}", f"question {number}") as agent:
            for step in range(3):
                await agent.turn(f"answer {number}.{step}")
                turns[step].set()
                await turns[step].wait()
                await agent.tool(echo, text=f"said {number}.{step}")
            await agent.run.finish(f"final {number}")

    def echo(text: str) -> str:
        """Echo."""
        return f"echo of {text}"

    async def body() -> None:
        await asyncio.gather(*(one(number) for number in range(3)))

    found = tabs(await reported(body))
    assert sorted(found) == ["agent 0", "agent 1", "agent 2"]  # they began at once
    for number in range(3):
        html = found[f"agent {number}"]
        for other in range(3):
            for text in ("question {}<", "answer {}.0", "echo of said {}.2", "final {}<"):
                assert (text.format(other) in html) is (other == number)


async def test_runs_of_one_name_have_a_tab_each(reported: Reported, start_agent: StartAgent) -> None:
    async def body() -> None:
        flyte.report.get_tab("agent").log("<p>the task's own</p>")
        for number in range(2):
            async with start_agent("agent") as agent:
                await agent.turn(f"answer {number}")

    page = await reported(body)
    assert re.findall(r'<li onclick="handleLinkClick\(this\)">(.*?)</li>', page) == ["agent", "agent (2)", "agent (3)"]
    assert "<p>the task's own</p>" in page


async def test_style_and_script_are_there_once(reported: Reported, start_agent: StartAgent) -> None:
    async def body() -> None:
        for name in "abc":
            async with start_agent(name):
                pass

    page = await reported(body)
    assert page.count("<style>") == 2  # and Flyte's
    assert page.count("<script>") == 2


async def test_a_name_of_any_length_makes_a_short_tab(reported: Reported, start_agent: StartAgent, words: Read) -> None:
    async def body() -> None:
        async with start_agent("n" * 5000):
            pass

    page = await reported(body)
    assert f'">{"n" * 40}</li>' in page


async def test_a_task_without_an_agent_run_has_no_tab_of_ours(reported: Reported) -> None:
    async def body() -> None:
        flyte.report.get_tab("mine").log("<p>hello</p>")

    assert "fla" not in await reported(body)


async def test_a_run_without_observability_has_no_tab(reported: Reported, start_agent: StartAgent) -> None:
    async def body() -> None:
        flyte.report.get_tab("mine").log("<p>hello</p>")
        async with start_agent(observability=False) as agent:
            await agent.turn("quiet")

    assert "fla" not in await reported(body)
