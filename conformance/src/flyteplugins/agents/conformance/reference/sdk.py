"""Parrot, an agent SDK that nobody publishes: the smallest one that has what adapters have to deal with.

It speaks Chat Completions over HTTP. A `Model` asks, again by itself where the provider is busy; an `Agent` is a name, a model,
instructions, tools and an output schema; `run` is the loop. It knows nothing of Flyte.
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "Agent",
    "AuthenticationError",
    "BadRequestError",
    "Model",
    "ParrotError",
    "ProviderError",
    "Result",
    "Tool",
    "TooManyTurnsError",
    "run",
]

Message = dict[str, Any]

_RETRIES = 2


class ParrotError(Exception):
    """Whatever this SDK raises."""


class ProviderError(ParrotError):
    """The provider did not answer, or broke off."""


class AuthenticationError(ParrotError):
    """The key is wrong."""


class BadRequestError(ParrotError):
    """The provider will not answer such a request."""


class TooManyTurnsError(ParrotError):
    """The loop did not come to an end."""


@dataclass(frozen=True)
class Tool:
    """A tool.

    Attributes:
        name: What the model calls it.
        description: What the model is told of it.
        parameters: JSON schema of its arguments.
        function: Gets the arguments as JSON text and the call's id; returns what the model is given.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[[str, str], Awaitable[str]]


@dataclass
class Model:
    """A model behind an address.

    Attributes:
        name: Its name.
        base_url: Where it is; `OPENAI_BASE_URL` by default.
    """

    name: str
    base_url: str = field(default_factory=lambda: os.environ.get("OPENAI_BASE_URL", "https://parrot.invalid/v1"))

    async def respond(self, request: Mapping[str, Any]) -> Message:
        """Ask, and return the whole answer."""
        for tries in range(_RETRIES + 1):
            try:
                with await asyncio.to_thread(self._open, {"model": self.name, **request}) as response:
                    return dict(json.loads(await asyncio.to_thread(response.read)))
            except urllib.error.HTTPError as error:
                problem = f"{error.code} {error.read().decode('utf-8', 'replace')}"
                if error.code in (401, 403):
                    raise AuthenticationError(problem) from error
                if error.code < 500 and error.code != 429:
                    raise BadRequestError(problem) from error
                if tries == _RETRIES:
                    raise ProviderError(problem) from error
            except (OSError, ValueError) as error:
                if tries == _RETRIES:
                    raise ProviderError(str(error)) from error
            await asyncio.sleep(0.01)
        raise AssertionError("unreachable")

    async def stream(self, request: Mapping[str, Any]) -> AsyncIterator[Message]:
        """Ask, and yield the answer in pieces."""
        asked = {"model": self.name, **request, "stream": True, "stream_options": {"include_usage": True}}
        try:
            with await asyncio.to_thread(self._open, asked) as response:
                while line := await asyncio.to_thread(response.readline):
                    if line.strip() == b"data: [DONE]":
                        return
                    if line.startswith(b"data: "):
                        yield json.loads(line[6:])
        except urllib.error.HTTPError as error:
            kind = AuthenticationError if error.code in (401, 403) else ProviderError
            raise kind(f"{error.code} {error.reason}") from error
        except (OSError, ValueError) as error:
            raise ProviderError(str(error)) from error
        raise ProviderError("The stream broke off.")

    def _open(self, request: Mapping[str, Any]) -> Any:
        headers = {
            "authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}",
            "content-type": "application/json",
        }
        url = f"{self.base_url.rstrip('/')}/chat/completions"
        return urllib.request.urlopen(urllib.request.Request(url, json.dumps(request).encode(), headers), timeout=60)


@dataclass
class Agent:
    """What is asked, and with what.

    Attributes:
        name: Its name.
        model: The model, or its name.
        instructions: The system text.
        tools: Its tools.
        output_schema: JSON schema of the answer; text by default.
        temperature: How freely the model speaks.
    """

    name: str
    model: str | Model
    instructions: str = ""
    tools: Sequence[Tool] = ()
    output_schema: Mapping[str, Any] | None = None
    temperature: float | None = None


@dataclass
class Result:
    """What came of a run.

    Attributes:
        id: Made up for each run.
        text: The answer.
        messages: The conversation, without instructions.
        tokens: Tokens of requests and of answers.
    """

    id: str
    text: str
    messages: list[Message]
    tokens: tuple[int, int]


async def run(agent: Agent, messages: Sequence[Message], *, max_turns: int = 50) -> Result:
    """Ask, run the tools that the model calls, and ask again, until it answers.

    Raises:
        ParrotError: See its classes.
    """
    said = [dict(message) for message in messages]
    spent, got = 0, 0
    model = Model(agent.model) if isinstance(agent.model, str) else agent.model
    for _ in range(max_turns):
        answer = await model.respond(request_of(agent, said))
        usage = answer.get("usage") or {}
        spent, got = spent + usage.get("prompt_tokens", 0), got + usage.get("completion_tokens", 0)
        message = answer["choices"][0]["message"]
        said.append({name: message[name] for name in ("role", "content", "tool_calls") if message.get(name)})
        calls = message.get("tool_calls") or []
        if not calls:
            return Result(uuid.uuid4().hex, message.get("content") or "", said, (spent, got))
        results = await asyncio.gather(*(_call(agent, call) for call in calls))
        said += results
    raise TooManyTurnsError(f"{agent.name} had no answer after {max_turns} turns.")


def request_of(agent: Agent, messages: Sequence[Message]) -> dict[str, Any]:
    """What a model is sent, without its name."""
    system = [{"role": "system", "content": agent.instructions}] if agent.instructions else []
    request: dict[str, Any] = {"messages": [*system, *messages]}
    if agent.tools:
        request["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
            }
            for tool in agent.tools
        ]
    if agent.output_schema is not None:
        schema = {"name": "answer", "schema": dict(agent.output_schema)}
        request["response_format"] = {"type": "json_schema", "json_schema": schema}
    if agent.temperature is not None:
        request["temperature"] = agent.temperature
    return request


async def _call(agent: Agent, call: Message) -> Message:
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    found = next((tool for tool in agent.tools if tool.name == name), None)
    text = f"There is no tool {name}." if found is None else await found.function(arguments, call["id"])
    return {"role": "tool", "tool_call_id": call["id"], "content": text}
