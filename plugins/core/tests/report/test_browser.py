"""The report as a person sees it: in a headless Chromium, at two widths, in light and dark, by keyboard and without script."""

from __future__ import annotations

import asyncio
import importlib.resources
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import flyte.report
import pytest

from flyteplugins.agents.core import ToolCallFinished, ToolCallStarted, TurnFinished, Usage

if TYPE_CHECKING:
    from playwright.async_api import Page

    from .conftest import Reported, StartAgent, Viewer

Trip = Callable[..., Awaitable[None]]

pytestmark = pytest.mark.asyncio(loop_scope="module")  # where the browser is

WIDTHS = (360, 1280)


@pytest.fixture
def long_run(start_agent: StartAgent) -> Callable[[], Awaitable[None]]:
    """120 turns, each with a tool call, of which every tenth fails."""

    async def run() -> None:
        async with start_agent("crawler", "Look at many cities.") as agent:
            for number in range(1, 121):
                usage = Usage(1, 500 + 10 * number, 40)
                await agent.run.emit(TurnFinished(agent="crawler", model="m", text=f"City {number} next.", usage=usage))
                call: dict[str, Any] = {"agent": "crawler", "call": str(number), "name": "look"}
                await agent.run.emit(ToolCallStarted(**call, arguments={"city": f"city-{number}"}))
                error = "ValueError: no such city" if number % 10 == 0 else None
                await agent.run.emit(ToolCallFinished(**call, result=f"result-{number} {'x' * 2000}", error=error))
            await agent.run.finish("done")

    return run


@pytest.fixture
def failing_twice(start_agent: StartAgent) -> Callable[[], Awaitable[None]]:
    """Fails twice, each time one turn later, and has a very long word in each text."""
    attempts = 0

    async def run() -> None:
        nonlocal attempts
        attempts += 1
        async with start_agent("n" * 100, "w" * 500) as agent:
            for number in range(1, attempts + 1):
                await agent.turn(f"turn {number} {'t' * 500}", tokens=(100_000, 9000), calls=("look" * 30,))
            if attempts < 3:
                raise ConnectionError("e" * 500)
            await agent.run.finish("a" * 500)

    return run


async def show_without_script(page: Page) -> None:
    """Flyte shows a tab by script; a report that is embedded elsewhere may come without.

    Not by `add_style_tag`, which waits for an event that no page without script tells of.
    """
    style = "<style>#flyte-frame-container > div { display: block !important }</style>"
    await page.evaluate("style => document.head.insertAdjacentHTML('beforeend', style)", style)


async def test_script_in_a_tool_result_is_text(reported: Reported, start_agent: StartAgent, viewer: Viewer) -> None:
    attack = "<script>window.attacked = 1; alert(1)</script><img src=x onerror='window.attacked = 2'>"

    def read_page() -> str:
        """Read."""
        return attack

    async def body() -> None:
        async with start_agent(attack, attack) as agent:
            await agent.turn(attack, calls=(attack,))
            await agent.tool(read_page)
            await agent.run.finish(attack)

    await reported(body)
    for script in (True, False):
        page = await viewer.open(reported.file(), script=script)
        await show_without_script(page)
        result = page.locator(".fla dd.code").last
        assert await result.inner_text() == attack
        assert await result.is_visible()
        assert await page.locator("img").count() == 0
        if script:
            assert await page.evaluate("window.attacked") is None
    assert viewer.errors == []


async def serious(page: Page, *, contrast: bool, rest: bool = True) -> list[str]:
    """What axe-core finds, if it is serious.

    Args:
        page: The page.
        contrast: Whether contrasts of colors are measured, which takes long where there is much to see.
        rest: Whether all other rules are looked at.
    """
    if not contrast and not rest:
        return []
    axe = importlib.resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    await page.evaluate(axe)
    wanted = {"rules": {"color-contrast": {"enabled": contrast}}} if rest else {"runOnly": ["color-contrast"]}
    found = await page.evaluate("wanted => axe.run(document, {resultTypes: ['violations'], ...wanted})", wanted)
    return [
        f"{violation['id']}: {node['html']} {node['failureSummary']}"
        for violation in found["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


@pytest.mark.parametrize("content", ["realistic", "nested", "attempts", "long", "structure", "several"])
async def test_it_is_accessible_fits_its_width_and_asks_for_nothing(
    reported: Reported,
    trip: Trip,
    experts: Trip,
    long_run: Callable[[], Awaitable[None]],
    failing_twice: Callable[[], Awaitable[None]],
    viewer: Viewer,
    content: str,
) -> None:
    async def several() -> None:
        await asyncio.gather(trip(), long_run(), *(trip(observability="structure") for _ in range(3)))

    bodies: dict[str, Callable[[], Awaitable[Any]]] = {
        "realistic": trip,
        "nested": experts,
        "attempts": failing_twice,
        "long": long_run,
        "structure": lambda: trip(observability="structure"),
        "several": several,
    }
    await reported(bodies[content], retries=content == "attempts")
    short = content not in ("long", "several")
    for width in WIDTHS:
        for dark in (False, True):
            page = await viewer.open(reported.file(), width=width, dark=dark)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
            # what is shown when all is open includes what is shown before; where it is dark nothing but colors is different
            assert await serious(page, contrast=not short and width == WIDTHS[-1], rest=not dark) == []
            await page.evaluate("document.querySelectorAll('details').forEach(fold => { fold.open = true })")
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
            assert await serious(page, contrast=short, rest=not dark) == []
            await page.context.close()
    assert viewer.errors == []
    assert {request.split("?")[0] for request in viewer.requests} <= {"https://fonts.googleapis.com/css"}  # Flyte's own


async def test_light_and_dark_are_different_and_both_are_used(reported: Reported, trip: Trip, viewer: Viewer) -> None:
    await reported(trip)
    colors = {}
    for dark in (False, True):
        page = await viewer.open(reported.file(), dark=dark)
        for part in ("body", ".fla"):
            style = f"getComputedStyle(document.querySelector('{part}')).backgroundColor"
            colors[dark, part] = await page.evaluate(style)
    assert colors[False, ".fla"] == "rgb(255, 255, 255)"
    assert colors[True, ".fla"] == colors[True, "body"] == "rgb(13, 17, 23)"


async def test_another_tab_of_the_task_keeps_its_own_light_page(reported: Reported, trip: Trip, viewer: Viewer) -> None:
    async def body() -> None:
        flyte.report.get_tab("mine").log("<p id='mine'>black on white</p>")
        await trip()

    await reported(body)
    page = await viewer.open(reported.file(), dark=True)
    background = "getComputedStyle(document.body).backgroundColor"
    await page.click("text=mine")
    assert await page.evaluate(background) == "rgba(0, 0, 0, 0)"
    await page.click("text=planner")
    assert await page.evaluate(background) == "rgb(13, 17, 23)"


async def test_a_long_run_is_folded_and_its_end_is_open(
    reported: Reported, long_run: Callable[[], Awaitable[None]], viewer: Viewer
) -> None:
    await reported(long_run)
    page = await viewer.open(reported.file())
    groups = page.locator(".group")
    assert await groups.evaluate_all("all => all.map(group => [group.querySelector('b').textContent, group.open])") == [
        ["Turns 1 to 50", False],
        ["Turns 51 to 100", False],
        ["Turns 101 to 120", True],
    ]
    assert "5 failed" in await groups.first.inner_text()
    assert await page.get_by_text("City 60 next.").first.is_hidden()


async def test_a_search_shows_the_steps_that_match_and_opens_them(
    reported: Reported, long_run: Callable[[], Awaitable[None]], viewer: Viewer
) -> None:
    await reported(long_run)
    page = await viewer.open(reported.file())
    visible = "li => li.filter(li => li.checkVisibility()).length"
    before = await page.locator(".fla li").evaluate_all(visible)
    await page.get_by_label("Search the timeline").fill("RESULT-61 ")
    await page.get_by_role("status").filter(has_text="2 of 240 steps").wait_for()
    assert await page.locator(".fla li").evaluate_all(visible) == 2  # the call, and the turn that it is in
    assert await page.locator("dd", has_text="result-61 x").is_visible()
    assert await page.locator("dd", has_text="result-62 x").is_hidden()
    await page.get_by_label("Search the timeline").fill("")
    await page.get_by_role("status").wait_for(state="hidden")  # it has nothing to say
    assert await page.locator(".fla li").evaluate_all(visible) == before


async def test_failures_can_be_looked_at_alone(
    reported: Reported, long_run: Callable[[], Awaitable[None]], viewer: Viewer
) -> None:
    await reported(long_run)
    page = await viewer.open(reported.file())
    await page.get_by_label("only failures").check()
    titles = await page.locator(".fla li").evaluate_all(
        "all => all.filter(li => li.checkVisibility()).map(li => li.querySelector('b').textContent)"
    )
    assert titles[:2] == ["Turn 10 · m", "Tool · look"]
    assert len(titles) == 24
    assert await page.get_by_role("status").inner_text() == "24 of 240 steps"


async def test_everything_can_be_reached_by_keyboard(reported: Reported, trip: Trip, viewer: Viewer) -> None:
    from playwright.async_api import expect

    async def body() -> None:
        await asyncio.gather(trip(), trip(observability="structure"))

    await reported(body)
    page = await viewer.open(reported.file())
    element = "document.activeElement"
    focused = f"{element}.innerText.split('\\n')[0] || {element}.ariaLabel || {element}.type"
    reached = []
    for _ in range(10):
        await page.keyboard.press("Tab")
        reached.append(await page.evaluate(focused))
    assert reached[:7] == [
        "planner", "planner (2)", "Search the timeline", "checkbox", "Open all", "Close all",
        "Memory +" + reached[6].partition("+")[2],
    ]  # fmt: skip
    outlined = "getComputedStyle(document.activeElement).outlineStyle"
    assert await page.evaluate(outlined) != "none"
    is_open = "document.activeElement.parentElement.open"
    assert await page.evaluate(is_open) is True
    await page.keyboard.press("Enter")
    assert await page.evaluate(is_open) is False
    for _ in range(12):
        if await page.evaluate(focused) == "planner (2)":
            break
        await page.keyboard.press("Shift+Tab")
    await page.keyboard.press("Enter")
    tabs = page.get_by_role("tab")
    await expect(tabs.nth(1)).to_have_attribute("aria-selected", "true")
    await expect(tabs.first).to_have_attribute("aria-selected", "false")
    assert await page.locator(".fla").nth(1).is_visible()
    assert await page.locator(".fla").first.is_hidden()


async def test_a_tabs_search_and_buttons_leave_the_other_tabs_alone(
    reported: Reported, trip: Trip, viewer: Viewer
) -> None:
    async def body() -> None:
        await asyncio.gather(trip(), trip())

    await reported(body)
    page = await viewer.open(reported.file())
    first, second = page.locator(".fla").first, page.locator(".fla").nth(1)
    await first.get_by_label("Search the timeline").fill("nothing like it")
    await first.get_by_role("status").filter(has_text="0 of 12 steps").wait_for()
    await page.get_by_role("tab").nth(1).click()
    assert await second.locator("li").evaluate_all("all => all.every(li => li.checkVisibility())")
    await second.get_by_role("button", name="Close all").click()
    assert await second.locator("details[open]").count() == 0
    await page.get_by_role("tab").first.click()
    await first.get_by_label("Search the timeline").fill("")
    await first.get_by_role("status").wait_for(state="hidden")
    assert await first.locator("details[open]").count() > 0
    assert await page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)") == [
        "flyte-frame-nav",
        "flyte-frame-tabs",
        "flyte-frame-container",
    ]


async def test_without_script_everything_is_there_to_read(
    reported: Reported, long_run: Callable[[], Awaitable[None]], start_agent: StartAgent, trip: Trip, viewer: Viewer
) -> None:
    await reported(trip)
    page = await viewer.open(reported.file(), script=False)
    await show_without_script(page)
    assert await page.get_by_text("Booked TP 1230 and Hotel Tejo: reference AB12CD").is_visible()
    assert await page.get_by_text("hotels.example answered 503").first.is_visible()
    assert await page.get_by_label("Search the timeline").is_hidden()
    await page.get_by_text("Turn 1 · gpt-4.1").click()  # folds work by themselves
    assert await page.get_by_text("I will look at the weather").is_hidden()


async def test_the_chart_has_a_bar_for_each_turn_and_says_in_words_what_it_shows(
    reported: Reported, trip: Trip, long_run: Callable[[], Awaitable[None]], viewer: Viewer
) -> None:
    async def body() -> None:
        await trip()
        await long_run()

    await reported(body)
    page = await viewer.open(reported.file())
    short, long = page.locator("svg").first, page.locator("svg").nth(1)
    assert await short.get_attribute("aria-label") == "Tokens by turn, 4 turns. The most is 2,760, in turn 4."
    assert await short.locator("title").all_text_contents() == [
        "Turn 1: 1,240 in, 86 out",
        "Turn 2: 2,210 in, 140 out",
        "Turn 3: 2,480 in, 95 out",
        "Turn 4: 2,700 in, 60 out",
    ]
    boxes = [await bar.bounding_box() for bar in await short.locator("g").all()]
    heights = [box["height"] for box in boxes if box is not None]
    assert len(heights) == 4
    assert heights == sorted(heights)
    assert await long.locator("g").count() == 60
    assert (await long.locator("title").all_text_contents())[-1] == "Turns 119 to 120: 3,390 in, 80 out"


async def test_agents_that_are_tools_are_shown_inside_of_their_calls(
    reported: Reported, experts: Trip, viewer: Viewer
) -> None:
    await reported(experts)
    page = await viewer.open(reported.file())
    chief = page.locator(".fla").first
    lefts = {}
    for title in ("Turn 1 · gpt-4.1", "Tool · researcher", "Turn 2 · gpt-4.1", "Tool · look_up"):
        box = await chief.locator("b", has_text=title).bounding_box()
        assert box is not None
        lefts[title] = box["x"]
    assert list(lefts.values()) == sorted(set(lefts.values())), "each is further inside"
    researcher = chief.locator("li", has=page.locator("b", has_text="Tool · researcher")).last
    assert await researcher.locator("li").count() == 3
    translate = chief.locator("li", has=page.locator("b", has_text="Tool · translate")).last
    assert await translate.locator("i", has_text="run again").is_visible()
    assert await translate.locator("b", has_text="Agent run · translator").is_visible()
    await researcher.locator("summary", has_text="inside of researcher").click()
    assert await chief.locator("b", has_text="Tool · look_up").is_hidden()


async def test_what_it_cost_is_shown_and_what_is_unknown_is_not_nothing(
    reported: Reported, experts: Trip, viewer: Viewer
) -> None:
    await reported(experts)
    page = await viewer.open(reported.file())
    assert "$0.0031" in await page.locator(".fla .sums").first.inner_text()  # 1,250 in at $2, 71 out at $8 a million
    await page.get_by_role("tab", name="translator").click()
    sums = await page.locator(".fla .sums").nth(1).inner_text()
    assert "88 tokens" in sums
    assert "$" not in sums
