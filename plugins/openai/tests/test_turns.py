"""Turns of agents that run at once, that fail, that are large, and that are reached in every way the SDK knows."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flyte
import flyte.errors
import openai
import pytest
from agents import (
    Agent,
    Model,
    ModelResponse,
    ModelRetrySettings,
    ModelSettings,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    Usage,
    function_tool,
    retry_policies,
)
from openai import AsyncOpenAI
from openai.types.responses import ResponseOutputMessage, ResponseOutputText
from pydantic import BaseModel

from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, call
from flyteplugins.agents.core import AgentResult
from flyteplugins.agents.openai import run_agent

RunTask = Callable[..., Any]
Folder = Callable[..., Path]

env = flyte.TaskEnvironment("turns")


@env.task(cache="disable")
async def lookup(city: str) -> str:
    """Look a city up."""
    return f"found {city}"


class Crash(Exception):
    """Ends an attempt, as a lost worker would."""


async def test_two_agents_with_one_prompt_do_not_swap_answers_when_they_start_in_another_order(
    model_env: ModelServer, run_task: RunTask
) -> None:
    """With other models, and with everything equal but the name."""
    model_env.script(
        None,
        lambda conversation: Reply(f"{conversation.model} {conversation.system}"),
        Reply("second"),
        repeat_last=True,
    )
    state = {"flipped": False, "crash": True}

    async def one(model: str, name: str) -> str:
        return str(await run_agent("Which?", model=model, name=name, instructions=f"You are {name}."))

    @env.task
    async def both() -> list[str]:
        jobs = [("gpt-4.1", "a"), ("gpt-5", "a"), ("gpt-4.1", "b")]
        order = list(reversed(jobs)) if state["flipped"] else jobs
        found = dict(zip(order, await asyncio.gather(*(one(*job) for job in order)), strict=True))
        if state["crash"]:
            raise Crash("Crash")
        return [found[job] for job in jobs]

    with pytest.raises(Exception, match="Crash"):
        await run_task(both)
    assert model_env.journal.count() == 3
    state.update(flipped=True, crash=False)
    assert await run_task(both) == ["gpt-4.1 You are a.", "gpt-5 You are a.", "gpt-4.1 You are b."]
    assert model_env.journal.count() == 3


async def test_agents_that_are_equal_but_for_their_name_keep_their_own_answers(
    model_env: ModelServer, run_task: RunTask
) -> None:
    answers = iter(["first", "second", "third"])
    model_env.script(None, lambda _: Reply(next(answers)), repeat_last=True)
    state = {"flipped": False, "crash": True}

    @env.task
    async def both() -> list[str]:
        names = ["b", "a"] if state["flipped"] else ["a", "b"]
        found = {}
        for name in names:  # one after the other, so that the test knows which answer is whose
            found[name] = str(await run_agent("Which?", agent=Agent(name=name, model="gpt-4.1")))
        if state["crash"]:
            raise Crash("Crash")
        return [found["a"], found["b"]]

    with pytest.raises(Exception, match="Crash"):
        await run_task(both)
    state.update(flipped=True, crash=False)
    assert await run_task(both) == ["first", "second"]
    assert model_env.journal.count() == 2


async def test_an_answer_behind_a_429_is_found_by_the_next_attempt(model_env: ModelServer, run_task: RunTask) -> None:
    """A failed call takes no number from the answers behind it. The client does not retry here: the caller does."""
    model_env.script(None, Reply("Hello."), repeat_last=True)
    model_env.fault(Fault.rate_limit(retry_after=0, times=1))
    model = OpenAIChatCompletionsModel("gpt-4.1", AsyncOpenAI(max_retries=0))
    state = {"crash": True}

    @env.task
    async def asking() -> str:
        answer = None
        while answer is None:
            with contextlib.suppress(openai.RateLimitError):
                answer = str(await run_agent("Hi?", model=model))
        if state["crash"]:
            raise Crash("Crash")
        return answer

    with pytest.raises(Exception, match="Crash"):
        await run_task(asking)
    assert [entry.status for entry in model_env.journal.requests()] == [429, 200]
    state["crash"] = False
    assert await run_task(asking) == "Hello."
    assert model_env.journal.count() == 2


async def test_a_retry_of_the_sdks_runner_leaves_one_leaf(
    model_env: ModelServer, run_task: RunTask, run_folder: Folder
) -> None:
    """The runner's own retries wrap the model from outside: the first call fails, the second is the same request."""
    model_env.script(None, Reply("Hello."), repeat_last=True)
    model_env.fault(Fault.error(500, times=1))
    retry = ModelRetrySettings(max_retries=2, backoff={"initial_delay": 0.01}, policy=retry_policies.http_status([500]))
    agent = Agent(
        name="retrying",
        model=OpenAIChatCompletionsModel("gpt-4.1", AsyncOpenAI(max_retries=0)),
        model_settings=ModelSettings(retry=retry),
    )

    results: list[AgentResult[str]] = []

    @env.task
    async def asking() -> str:
        results.append(await run_agent("Hi?", agent=agent, full_result=True))
        return results[-1].output

    assert await run_task(asking) == await run_task(asking) == "Hello."
    assert [entry.status for entry in model_env.journal.requests()] == [500, 200]
    assert [len(result.turns) for result in results] == [1, 1]
    assert [result.native.context_wrapper.usage.requests for result in results] == [2, 2]
    assert [path.name.rpartition(".")[2] for path in run_folder().rglob("turn.*")] == ["0"]


async def test_retries_of_the_sdks_client_are_inside_one_leaf(
    model_env: ModelServer, run_task: RunTask, run_folder: Folder
) -> None:
    model_env.script(None, Reply("Hello."), repeat_last=True)
    model_env.fault(Fault.rate_limit(retry_after=0, times=2))

    @env.task
    async def asking() -> str:
        return str(await run_agent("Hi?"))

    assert await run_task(asking) == "Hello."
    assert await run_task(asking) == "Hello."
    assert [entry.status for entry in model_env.journal.requests()] == [429, 429, 200]
    assert len([*run_folder().rglob("turn.*")]) == 1


async def test_a_bad_key_fails_the_task_at_once(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script(None, Reply("never"))
    model_env.fault(Fault.unauthorized())
    attempts = []

    @env.task(retries=3)
    async def asking() -> str:
        attempts.append(1)
        return str(await run_agent("Hi?"))

    with pytest.raises(flyte.errors.RuntimeUserError) as raised:
        await run_task(asking)
    assert raised.value.code == "NonRecoverableError"
    assert "AuthenticationError" in str(raised.value)
    assert len(attempts) == 1
    assert model_env.journal.count() == 1


async def test_a_failing_server_is_asked_again_by_the_next_attempt(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script(None, Reply("Hello."), repeat_last=True)
    model_env.fault(Fault.error(500, times=3))
    attempts = []

    @env.task(retries=1)
    async def asking() -> str:
        attempts.append(1)
        return str(await run_agent("Hi?"))  # the client tries three times, then the attempt fails

    assert await run_task(asking) == "Hello."
    assert len(attempts) == 2
    assert model_env.journal.count() == 4


async def test_outside_of_a_task_the_sdks_own_exceptions_pass(model_env: ModelServer) -> None:
    model_env.script(None, Reply("never"))
    model_env.fault(Fault.unauthorized())
    with pytest.raises(openai.AuthenticationError):
        await run_agent("Hi?")


async def test_a_response_of_12_mib_is_recorded_by_reference(
    model_env: ModelServer, run_task: RunTask, run_folder: Folder
) -> None:
    model_env.script(None, Reply("x" * 12 * 2**20), repeat_last=True)
    lengths = []

    @env.task
    async def asking() -> int:
        lengths.append(len(await run_agent("Hi?")))
        return lengths[-1]

    assert await run_task(asking) == await run_task(asking) == 12 * 2**20
    assert model_env.journal.count() == 1
    (record,) = run_folder().rglob("turn.*")
    assert record.stat().st_size < 10_000
    (payload,) = run_folder().rglob("payload.*")
    assert payload.stat().st_size > 12 * 2**20


async def test_a_damaged_record_is_an_error_that_names_it_and_no_second_call(
    model_env: ModelServer, run_task: RunTask, run_folder: Folder
) -> None:
    model_env.script(None, Reply("Hello."), repeat_last=True)

    @env.task(retries=2)
    async def asking() -> str:
        return str(await run_agent("Hi?"))

    await run_task(asking)
    (record,) = run_folder().rglob("turn.*")
    record.write_bytes(record.read_bytes().replace(b"Hello.", b"Jello."))
    with pytest.raises(flyte.errors.RuntimeUserError, match=record.name) as raised:
        await run_task(asking)
    assert raised.value.code == "NonRecoverableError"
    assert model_env.journal.count() == 1


async def test_an_item_of_an_unknown_type_survives(model_env: ModelServer, run_task: RunTask) -> None:
    item = {"type": "future_thing", "id": "ft_1", "content": [], "made_by": {"whom": [1, 2.5, None]}}
    model_env.script(None, Reply("Hello.", items=(item,)), repeat_last=True)
    seen: list[list[Any]] = []

    @env.task
    async def asking() -> str:
        result = await run_agent("Hi?", full_result=True)
        seen.append([output.model_dump(exclude_unset=True) for output in result.native.raw_responses[0].output])
        return str(result.text)

    assert await run_task(asking) == await run_task(asking)
    assert model_env.journal.count() == 1
    assert item in seen[0]
    assert seen[0] == seen[1]


class Weather(BaseModel):
    """The weather."""

    city: str
    degrees: float


async def test_structured_output_comes_back_typed_and_the_same(model_env: ModelServer, run_task: RunTask) -> None:
    model_env.script(None, Reply(structured={"city": "Oslo", "degrees": 3}), repeat_last=True)
    results: list[AgentResult[Weather]] = []

    @env.task
    async def asking() -> float:
        results.append(await run_agent("Hi?", output_type=Weather, full_result=True))
        return results[-1].output.degrees

    assert await run_task(asking) == await run_task(asking) == 3.0
    assert results[0].output == results[1].output == Weather(city="Oslo", degrees=3)
    assert (results[0].usage.fresh.requests, results[0].usage.replayed.requests) == (1, 0)
    assert (results[1].usage.fresh.requests, results[1].usage.replayed.requests) == (0, 1)
    assert results[0].usage.total == results[1].usage.total
    assert results[0].native.context_wrapper.usage == results[1].native.context_wrapper.usage


class Echo(Model):
    """A model of the caller's own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked = 0

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        self.asked += 1
        text = ResponseOutputText(annotations=[], text=f"{self.name} {self.asked}", type="output_text")
        message = ResponseOutputMessage(
            id=os.urandom(8).hex(), content=[text], role="assistant", status="completed", type="message"
        )
        return ModelResponse(
            output=[message], usage=Usage(requests=1, input_tokens=1, output_tokens=2), response_id=None
        )

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


async def test_every_model_of_an_agent_graph_is_reached(model_env: ModelServer, run_task: RunTask) -> None:
    """A hand-off, an agent as a tool with a run configuration of its own, a model object, a run inside a tool."""
    model_env.script(
        "Start",
        Reply(calls=(call("ask_expert", input="what?"),)),
        Reply(calls=(call("nested", question="deep?"),)),
        Reply(calls=(call("transfer_to_closer"),)),
        Reply("never"),
    )
    own = Echo("own")
    closer_model = Echo("closer")
    expert = Agent(name="expert", model=own)
    inner = Agent(name="inner", model=Echo("inner"))
    closer = Agent(name="closer", model=closer_model, handoff_description="Closes.")

    @function_tool
    async def nested(question: str) -> str:
        """Ask somebody else."""
        return str((await Runner.run(inner, question)).final_output)

    start = Agent(
        name="start",
        model="gpt-4.1",
        tools=[expert.as_tool("ask_expert", "Ask.", run_config=RunConfig(tracing_disabled=True)), nested],
        handoffs=[closer],
    )
    state = {"crash": True}
    last: list[Agent[Any]] = []

    @env.task
    async def asking() -> str:
        result = await run_agent("Start", agent=start, full_result=True)
        last.append(result.native.last_agent)
        if state["crash"]:
            raise Crash("Crash")
        return str(result.text)

    with pytest.raises(Exception, match="Crash"):
        await run_task(asking)
    assert (own.asked, closer_model.asked, model_env.journal.count()) == (1, 1, 3)
    state["crash"] = False
    assert await run_task(asking) == "closer 1"
    assert (own.asked, closer_model.asked, model_env.journal.count()) == (1, 1, 3)
    assert last == [closer, closer]
    assert last[1] is closer


async def test_an_error_result_that_the_model_was_given_replays_without_a_call(
    model_env: ModelServer, run_task: RunTask
) -> None:
    """The expert's model fails, the SDK tells that to the outer model, and the agent goes on past it."""
    model_env.script("Start", Reply(calls=(call("ask_expert", input="what?"),)), Reply("Without the expert, then."))
    model_env.script("what?", Reply("never"))
    model_env.fault(Fault.error(500, times=None), user="what?")
    expert = Agent(name="expert", model="gpt-expert")
    start = Agent(name="start", model="gpt-4.1", tools=[expert.as_tool("ask_expert", "Ask.")])
    state = {"crash": True}
    results: list[AgentResult[str]] = []

    @env.task
    async def asking() -> str:
        results.append(await run_agent("Start", agent=start, full_result=True))
        if state["crash"]:
            raise Crash("Crash")
        return str(results[-1].text)

    with pytest.raises(Exception, match="Crash"):
        await run_task(asking)
    asked = model_env.journal.count()
    assert model_env.journal.count(user="what?") == 3
    state["crash"] = False
    assert await run_task(asking) == "Without the expert, then."
    assert model_env.journal.count() == asked
    outputs = [[item for item in result.native.to_input_list() if "output" in item] for result in results]
    assert outputs[0] == outputs[1]
    assert results[1].turns[0].replayed


async def test_what_cannot_be_part_of_a_key_is_an_error_that_names_the_path(
    model_env: ModelServer, run_task: RunTask
) -> None:
    settings = ModelSettings(extra_args={"odd": {"deep": [object()]}})

    @env.task
    async def asking() -> str:
        return str(await run_agent("Hi?", run_config=RunConfig(model_settings=settings)))

    with pytest.raises(flyte.errors.RuntimeUserError, match=r"settings\.extra_args\.odd\.deep\[0\]"):
        await run_task(asking)
    assert model_env.journal.count() == 0
