"""One agent for each thing that the SDK can do in a run; tests kill them after each record.

`FOLDER` is where they write what they did: effects, the events and the answer of the attempt that finished.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import flyte
from agents import (
    Agent,
    GuardrailFunctionOutput,
    Model,
    ModelResponse,
    RunContextWrapper,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
    input_guardrail,
    output_guardrail,
)
from agents.mcp import MCPServerStdio
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from flyteplugins.agents.core import AgentResult, Event, TextDelta, TurnFinished
from flyteplugins.agents.openai import run_agent, tool

env = flyte.TaskEnvironment("features")


def note(what: str) -> None:
    with Path(os.environ["FOLDER"], "effects").open("a") as file:
        file.write(f"{what}\n")


def finish(result: AgentResult[str], events: list[Event] | None = None) -> str:
    values = result.as_dict()
    if events is not None:
        told = [event for event in events if isinstance(event, TextDelta | TurnFinished)]
        values["events"] = [
            {name: value for name, value in event.as_dict().items() if name not in ("seconds", "replayed")}
            for event in told
        ]
    Path(os.environ["FOLDER"], "result.json").write_text(json.dumps(values))
    return result.output


@tool
@env.task(cache="disable")
async def weigh(thing: str) -> str:
    """Weigh a thing."""
    note(f"weigh {thing}")
    return f"{len(thing)} kg"


@env.task(retries=2)
async def streamed(question: str) -> str:
    events: list[Event] = []
    return finish(await run_agent(question, tools=[weigh], on_event=events.append, full_result=True), events)


@env.task(retries=2)
async def handoff(question: str) -> str:
    closer = Agent(name="closer", instructions="You close.", model="gpt-4.1", tools=[weigh])
    start = Agent(name="start", model="gpt-4.1", tools=[weigh], handoffs=[closer])
    return finish(await run_agent(question, agent=start, full_result=True))


@env.task(retries=2)
async def agent_as_tool(question: str) -> str:
    expert = Agent(name="expert", instructions="You know.", model="gpt-4.1", tools=[weigh])
    start = Agent(name="start", model="gpt-4.1", tools=[expert.as_tool("ask_expert", "Ask.")])
    return finish(await run_agent(question, agent=start, full_result=True))


judge = Agent(name="judge", instructions="You judge.", model="gpt-4.1")


@input_guardrail(run_in_parallel=False)
async def asks_judge(context: RunContextWrapper[Any], agent: Agent[Any], said: Any) -> GuardrailFunctionOutput:
    note("guard input")
    verdict = (await Runner.run(judge, "Is the question fine?")).final_output
    return GuardrailFunctionOutput(verdict, tripwire_triggered=verdict != "fine")


@output_guardrail
async def asks_judge_again(context: RunContextWrapper[Any], agent: Agent[Any], said: str) -> GuardrailFunctionOutput:
    note("guard output")
    verdict = (await Runner.run(judge, "Is the answer fine?")).final_output
    return GuardrailFunctionOutput(verdict, tripwire_triggered=verdict != "fine")


@env.task(retries=2)
async def guarded(question: str) -> str:
    agent = Agent(
        name="start",
        model="gpt-4.1",
        tools=[weigh],
        input_guardrails=[asks_judge],
        output_guardrails=[asks_judge_again],
    )
    return finish(await run_agent(question, agent=agent, full_result=True))


@env.task(retries=2)
async def mcp(question: str) -> str:
    server = MCPServerStdio(
        params={
            "command": sys.executable,
            "args": [str(Path(__file__).with_name("mcp_server.py"))],
            "env": {"MCP_LOG": str(Path(os.environ["FOLDER"], "effects"))},
        },
        client_session_timeout_seconds=60,
    )
    async with server:
        return finish(await run_agent(question, tools=[server], full_result=True))


class Own(Model):
    """A model of the program's own, without a server: it calls a tool, then answers."""

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        turn = 1 + sum(1 for item in input if item.get("type") == "function_call")
        note(f"own model {turn}")
        output: Any
        if turn < 3:
            output = ResponseFunctionToolCall(
                arguments=json.dumps({"thing": "x" * turn}), call_id=f"call_{turn}", name="weigh", type="function_call"
            )
        else:
            text = ResponseOutputText(annotations=[], text="light", type="output_text")
            output = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[output], usage=Usage(requests=1, input_tokens=1), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("This model does not stream.")


@env.task(retries=2)
async def own_model(question: str) -> str:
    return finish(await run_agent(question, model=Own(), tools=[weigh], full_result=True))


@env.task(retries=2)
async def own_model_listened_to(question: str) -> str:
    events: list[Event] = []
    result = await run_agent(question, model=Own(), tools=[weigh], on_event=events.append, full_result=True)
    return finish(result, events)


@env.task(retries=2)
async def own_session(question: str) -> str:
    session = SQLiteSession("ada", Path(os.environ["FOLDER"], "session.db"))
    return finish(await run_agent(question, tools=[weigh], session=session, full_result=True))


@function_tool(failure_error_function=None)
async def ask_streamed(question: str) -> str:
    """Ask somebody who talks while thinking."""
    note("ask streamed")
    agent = Agent(name="inner", instructions="You talk.", model="gpt-4.1", tools=[weigh])
    result = Runner.run_streamed(agent, question)
    async for _ in result.stream_events():
        pass
    return str(result.final_output)


@env.task(retries=2)
async def streamed_inside(question: str) -> str:
    return finish(await run_agent(question, tools=[ask_streamed], full_result=True))
