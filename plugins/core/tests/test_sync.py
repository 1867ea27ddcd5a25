"""Sync code runs coroutines on one loop that lives as long as the process."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flyte
import pytest

from flyteplugins.agents.core import (
    JSON,
    AgentTool,
    ErrorClass,
    JsonCodec,
    agent_run,
    current_scope,
    idempotency_key,
    run_coro_sync,
    sync_variant,
)

if TYPE_CHECKING:
    from .conftest import Attempts, StartAgent

env = flyte.TaskEnvironment("core-sync-tests")

_VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("test_sync", default="unset")


async def where() -> tuple[asyncio.AbstractEventLoop, threading.Thread]:
    await asyncio.sleep(0)
    return asyncio.get_running_loop(), threading.current_thread()


def test_every_call_uses_the_same_loop_also_from_other_threads() -> None:
    """SDK clients keep connections that belong to a loop."""
    seen = [run_coro_sync(where()) for _ in range(2)]
    threads = [threading.Thread(target=lambda: seen.append(run_coro_sync(where()))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 7
    assert len(set(seen)) == 1
    _, thread = seen[0]
    assert thread is not threading.current_thread()
    assert thread.daemon  # it does not keep the process alive


def test_something_that_belongs_to_the_loop_works_in_a_second_call() -> None:
    queue: asyncio.Queue[str] = asyncio.Queue()

    async def late() -> None:
        await asyncio.sleep(0)
        await queue.put("from another call")

    results: list[str] = []
    getter = threading.Thread(target=lambda: results.append(run_coro_sync(queue.get())))
    getter.start()
    while not queue._getters:  # type: ignore[attr-defined]  # it waits already: now the second call wakes it
        time.sleep(0.001)
    run_coro_sync(late())
    getter.join()
    assert results == ["from another call"]


def test_results_and_errors_are_the_coroutines() -> None:
    async def fail() -> None:
        raise KeyError("oops")

    async def cancel() -> None:
        raise asyncio.CancelledError

    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())

    with pytest.raises(KeyError, match="oops") as caught:
        run_coro_sync(fail())
    assert any(entry.name == "fail" for entry in caught.traceback)
    with pytest.raises(asyncio.CancelledError):
        run_coro_sync(cancel())
    with pytest.raises(ExceptionGroup):
        run_coro_sync(group())


def test_context_variables_are_the_callers_and_changes_stay_inside() -> None:
    async def change() -> str:
        before = _VARIABLE.get()
        _VARIABLE.set("changed inside")
        return before

    def call() -> None:
        _VARIABLE.set("the caller's")
        assert run_coro_sync(change()) == "the caller's"
        assert _VARIABLE.get() == "the caller's"

    contextvars.copy_context().run(call)


async def test_inside_a_running_loop_it_says_what_to_do_and_leaves_no_coroutine_behind() -> None:
    async def run_agent(text: str) -> str:
        return text

    says = r"inside a running event loop.*Use `await run_agent\(\.\.\.\)`"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match=says):
            run_coro_sync(run_agent("a"))
        with pytest.raises(RuntimeError, match=says):
            sync_variant(run_agent)("a")
        gc.collect()


def test_a_keyboard_interrupt_cancels_the_coroutine_and_waits_for_its_clean_up() -> None:
    cleaned: list[str] = []
    main = threading.main_thread().ident
    assert main is not None

    async def work() -> None:
        asyncio.get_running_loop().call_later(0.02, signal.pthread_kill, main, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            cleaned.append("yes")

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_coro_sync(work())
    finally:
        signal.signal(signal.SIGINT, previous)
    assert cleaned == ["yes"]
    assert run_coro_sync(where())  # and the loop goes on


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=lambda error: type(error).__name__)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_coroutine_that_exits_does_not_hang_its_caller(error: BaseException) -> None:
    async def leave() -> None:
        await asyncio.sleep(0)
        raise error

    raised: list[BaseException] = []

    def call() -> None:
        try:
            run_coro_sync(leave())
        except BaseException as caught:  # noqa: BLE001 - whatever it is
            raised.append(caught)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    caller.join(timeout=20)  # it hangs, or is there at once
    assert raised == [error]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_a_loop_of_its_own() -> None:
    run_coro_sync(where())
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os._exit(0 if run_coro_sync(where())[1].is_alive() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# the sync form of a coroutine function


async def run_agent(text: str, *, times: int = 1) -> str:
    """Run an agent.

    Args:
        text: What to say.
        times: How often.
    """
    await asyncio.sleep(0)
    return text * times


def test_the_sync_form_has_the_same_signature_and_says_what_it_is() -> None:
    run_agent_sync = sync_variant(run_agent)
    assert run_agent_sync("a", times=3) == "aaa"
    assert not inspect.iscoroutinefunction(run_agent_sync)
    assert inspect.signature(run_agent_sync) == inspect.signature(run_agent)
    assert run_agent_sync.__name__ == "run_agent_sync"
    assert run_agent_sync.__module__ == run_agent.__module__
    assert run_agent_sync.__doc__ is not None
    assert run_agent_sync.__doc__.startswith("Run an agent.")
    assert run_agent_sync.__doc__.endswith("This is the sync form, for use in a sync task.")
    with pytest.raises(TypeError, match="unexpected keyword"):
        run_agent_sync("a", often=3)  # type: ignore[call-arg]


# in Flyte

_EVENTS: list[Any] = []


@env.task
async def double(number: int) -> int:
    """Double a number."""
    _EVENTS.append(("double", number, idempotency_key()))
    return number * 2


@env.task
def halve(number: int) -> float:
    """Halve a number."""
    _EVENTS.append(("halve", number, idempotency_key()))
    return number / 2


async def agent() -> list[JSON]:
    scope = current_scope()
    assert scope is not None
    async with agent_run(
        framework="test",
        name="agent",
        input="Hello",
        memory_key=None,
        configuration={},
        classify=lambda error: ErrorClass.RETRY_ATTEMPT,
        observability=False,
    ) as run:

        async def call() -> JSON:
            _EVENTS.append("turn")
            return "answer"

        answer = (await run.recorder.record("turn", {}, call, codec=JsonCodec())).value
        outcomes = await asyncio.gather(
            *(AgentTool(task).call({"number": number}) for task in (double, halve) for number in (3, 4))
        )
        return [answer, *(outcome.text for outcome in outcomes)]


@env.task
def sync_task() -> list[str]:
    return [str(item) for item in run_coro_sync(agent())]


async def test_a_sync_task_runs_a_durable_agent_whose_tools_are_tasks(
    run_task: Callable[..., Awaitable[Any]],
) -> None:
    _EVENTS.clear()
    expected = ["answer", "6", "8", "1.5", "2.0"]
    assert await run_task(sync_task) == expected
    assert sorted(event[:2] for event in _EVENTS if event != "turn") == [
        ("double", 3),
        ("double", 4),
        ("halve", 3),
        ("halve", 4),
    ]
    assert len({event[2] for event in _EVENTS if event != "turn"}) == 4
    assert len(_EVENTS) == 5
    assert await run_task(sync_task) == expected
    assert len(_EVENTS) == 5


async def test_a_sync_tool_may_run_another_agent(attempt: Attempts, start_agent: StartAgent) -> None:
    def delegate() -> str:
        """Ask another agent."""
        return " ".join(str(item) for item in run_coro_sync(agent()))

    async def body() -> str:
        async with start_agent("outer"):
            return (await AgentTool(delegate).call({})).text

    assert await attempt(body) == "answer 6 8 1.5 2.0"


def test_as_many_sync_tools_as_there_are_threads_may_run_agents_at_once(home: Path) -> None:
    program = Path(__file__).parent / "apps" / "nested_sync_agents.py"
    outcome = subprocess.run(
        [sys.executable, str(program)],
        env=os.environ | {"HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.startswith("inner-0 inner-1 ")
