# ruff: noqa: ASYNC110, ASYNC240 - these tasks look at files, and nothing else runs beside them

"""Tasks that the plane's tests run. Each leaves a line per effect in a file, so that what happened can be counted."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import flyte
import flyte.errors
import flyte.report
from flyte.io import File

from flyteplugins.agents.conformance.faults import reach

env = flyte.TaskEnvironment("plane_flow", cache="disable")


def note(effects: str, line: str) -> None:
    """Append one line in one write, so that processes do not mix theirs."""
    with open(effects, "a") as file:
        file.write(f"{line}\n")


async def wait_for(path: str) -> None:
    while not os.path.exists(path):
        await asyncio.sleep(0.05)


# ---- everything once


@flyte.trace
async def add_one(x: int) -> int:
    return x + 1


@env.task
async def double(x: int) -> int:
    return 2 * x


@env.task(report=True)
async def tour(x: int) -> int:
    """A trace, a child, an offloaded file, a report, and a line in the log."""
    total = await double(await add_one(x))
    print(f"the total is {total}", flush=True)
    flyte.report.get_tab("main").log(f"<p>total {total}</p>")
    await flyte.report.flush.aio()
    context = flyte.ctx()
    assert context is not None
    Path("scratch.txt").write_text("a worker's own folder")
    print(f"home={os.environ['HOME']} tmp={os.environ['TMPDIR']} cwd={os.getcwd()}", flush=True)
    return total


@env.task
async def offload(text: str) -> File:
    path = Path("offloaded.txt")
    path.write_text(text)
    return await File.from_local(path)


@env.task
async def pass_on(text: str) -> list[str]:
    """Reads what another worker offloaded, and writes to where its own data goes."""
    file = await offload(text)
    async with file.open("rb") as content:
        read = bytes(await content.read()).decode()
    context = flyte.ctx()
    assert context is not None
    return [read, file.path, context.raw_data_path.path]


# ---- failures


def own_checkpoint() -> flyte.Checkpoint:
    context = flyte.ctx()
    assert context is not None
    assert context.checkpoint is not None
    return context.checkpoint


@env.task(retries=1)
async def fail_once(effects: str) -> str:
    attempt = os.environ["FLYTE_ATTEMPT_NUMBER"]
    note(effects, f"attempt {attempt}")
    checkpoint = own_checkpoint()
    before = await checkpoint.load()
    seen = before.read_text() if before is not None and before.is_file() else "nothing"
    await checkpoint.save(f"saved by {attempt}".encode())
    if attempt == "0":
        raise ValueError(f"attempt {attempt} fails")
    return seen


@env.task(retries=2)
async def refuse(effects: str) -> str:
    note(effects, "refused")
    raise flyte.errors.NonRecoverableError("never")


@env.task(retries=0)
async def die_once(effects: str) -> str:
    """Dies as a lost node does, the first time; there are no retries of its own to use up."""
    checkpoint = own_checkpoint()
    before = await checkpoint.load()
    first = not os.path.exists(effects)
    note(effects, f"attempt {os.environ['FLYTE_ATTEMPT_NUMBER']} checkpoint {before is not None and before.is_file()}")
    if first:
        await checkpoint.save(b"saved before the death")
        os.kill(os.getpid(), signal.SIGKILL)
    return os.environ["FLYTE_ATTEMPT_NUMBER"]


@env.task(timeout=1, retries=0)
async def too_slow() -> None:
    await asyncio.sleep(60)


@env.task
async def catch_timeout() -> str:
    try:
        await too_slow()
    except flyte.errors.MaxRuntimeExceededError:
        return "timed out"
    return "in time"


# ---- cache


@env.task(cache=flyte.Cache(behavior="override", version_override="1", serialize=True))
async def remembered(effects: str, x: int) -> int:
    note(effects, f"ran {x}")
    return x * 10


@env.task
async def ask_twice(effects: str, x: int) -> int:
    return sum(await asyncio.gather(remembered(effects, x), remembered(effects, x)))


# ---- conditions


@env.task
async def ask(name: str, effects: str) -> str:
    condition = await flyte.new_condition.aio(name, prompt="Go on?", data_type=bool, timeout=120)
    answer = await condition.wait.aio()
    note(effects, f"answer {answer}")
    return f"answered {answer}"


@env.task
async def ask_in_vain() -> str:
    condition = await flyte.new_condition.aio("in-vain", prompt="Anyone?", data_type=str, timeout=1)
    try:
        return str(await condition.wait.aio())
    except flyte.errors.ConditionTimedoutError:
        return "nobody answered"


# ---- slots


@env.task
async def fan_out(depth: int, width: int) -> int:
    if depth == 0:
        return 1
    return sum(await asyncio.gather(*(fan_out(depth - 1, width) for _ in range(width))))


# ---- abort


@env.task
async def linger(effects: str, who: str) -> None:
    """Works on until it is killed; says what it hears of that."""
    note(effects, f"{who} started")
    try:
        while True:
            note(effects, f"{who} works")
            await asyncio.sleep(0.1)
    except asyncio.CancelledError:
        note(effects, f"{who} was cancelled")
        raise
    finally:
        note(effects, f"{who} cleaned up")


@env.task
async def linger_with_child(effects: str) -> None:
    await asyncio.gather(linger(effects, "child"), linger_here(effects))


async def linger_here(effects: str) -> None:
    note(effects, "parent started")
    while True:
        await asyncio.sleep(0.1)


# ---- a run that is interrupted


@flyte.trace
async def step(effects: str, number: int) -> int:
    note(effects, f"step {number}")
    return number


@env.task
async def part(effects: str, number: int) -> int:
    note(effects, f"part {number}")
    return number


@env.task(retries=1)
async def story(effects: str, go: str, epilogue: bool) -> int:
    """Two steps and a part, a wait for the file `go`, one more step, and one more part if there is an epilogue."""
    total = await step(effects, 1) + await step(effects, 2) + await part(effects, 1)
    reach("in-the-middle")
    note(effects, f"waiting {os.getpid()}")
    await wait_for(go)
    total += await step(effects, 3)
    if epilogue:
        total += await part(effects, 2)
    note(effects, "done")
    return total


@env.task
async def idle(effects: str, go: str) -> str:
    """Waits for the file `go` and needs nobody for the rest."""
    note(effects, "idle")
    await wait_for(go)
    return "rested"


# ---- what a worker is


@env.task
async def imported(module: str) -> str:
    """Whether the worker had imported a module before, its hash of a text, and its number."""
    return f"{module in sys.modules} {hash('text')} {os.getpid()}"


@env.task
async def stay(effects: str, go: str) -> None:
    """Leave the worker's number, and wait for the file `go`."""
    note(effects, str(os.getpid()))
    await wait_for(go)
