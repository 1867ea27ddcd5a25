"""What holds on every wire, over plain HTTP: replies, streams, identity, usage, refusals and faults."""

from __future__ import annotations

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import httpx
import pytest

from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, ToolCall, Usage, call

Json = dict[str, Any]
Said = tuple[str, Any]
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


@dataclass
class Heard:
    """What a client reads from an answer."""

    text: str
    calls: list[tuple[str, str, Any]]
    usage: tuple[int, int]


class Speaker(ABC):
    """Speaks one wire as its SDK does: turns (who, what) pairs into a body, and answers back into text and calls.

    A conversation is a list of ("user", text), ("calls", [(id, name, arguments)]), ("results", [(id, name, text)]) and
    ("native", an answer's own form).
    """

    name: ClassVar[str]
    sdk: ClassVar[str]
    headers: ClassVar[dict[str, str]] = {"authorization": "Bearer test-key"}
    call_ids: ClassVar[tuple[str, str]] = ("call_00000000000000000001", "call_00000000000000000002")

    @abstractmethod
    def path(self, streamed: bool) -> str: ...

    @abstractmethod
    def body(self, said: Sequence[Said], *, streamed: bool = False, tools: bool = True) -> Json: ...

    @abstractmethod
    def hear(self, answer: Json) -> Heard: ...

    @abstractmethod
    def hear_stream(self, events: list[Json]) -> Heard: ...

    @abstractmethod
    def native(self, answer: Json) -> Any: ...

    @abstractmethod
    def problem(self, answer: Json) -> str: ...

    def thinking(self, body: Json) -> Json:
        """Ask for thinking, where the wire has to."""
        return body

    @abstractmethod
    def alter_thinking(self, native: Any) -> Any: ...

    def without(self, body: Json) -> tuple[Json, str]:
        """Drop a required field; return the body and the field's name."""
        return {k: v for k, v in body.items() if k != "model"}, "model"


class Responses(Speaker):
    name, sdk = "openai-responses", "openai"

    def path(self, streamed: bool) -> str:
        return "/openai/v1/responses"

    def body(self, said: Sequence[Said], *, streamed: bool = False, tools: bool = True) -> Json:
        items: list[Json] = []
        for who, what in said:
            if who == "user":
                items.append({"role": "user", "content": what})
            elif who == "calls":
                items += [
                    {"type": "function_call", "call_id": i, "name": n, "arguments": json.dumps(a)} for i, n, a in what
                ]
            elif who == "results":
                items += [{"type": "function_call_output", "call_id": i, "output": t} for i, _, t in what]
            else:
                items += what
        out: Json = {"model": "m", "input": items, "stream": streamed}
        if tools:
            tool = {"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": True}
            out["tools"] = [{**tool, "description": "Get the weather."}]
        return out

    def hear(self, answer: Json) -> Heard:
        messages = [o for o in answer["output"] if o["type"] == "message"]
        text = "".join(p["text"] for m in messages for p in m["content"])
        calls = [
            (o["call_id"], o["name"], json.loads(o["arguments"]))
            for o in answer["output"]
            if o["type"] == "function_call"
        ]
        return Heard(text, calls, (answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]))

    def hear_stream(self, events: list[Json]) -> Heard:
        whole = self.hear(events[-1]["response"])
        assert [e["sequence_number"] for e in events] == list(range(len(events)))
        text = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
        arguments = "".join(e["delta"] for e in events if e["type"] == "response.function_call_arguments.delta")
        assert arguments == "".join(json.dumps(a, separators=(",", ":")) for _, _, a in whole.calls)
        return replace(whole, text=text)

    def native(self, answer: Json) -> Any:
        return answer["output"]

    def problem(self, answer: Json) -> str:
        return str(answer["error"]["message"])

    def alter_thinking(self, native: Any) -> Any:
        native[0]["summary"][0]["text"] += "!"
        return native


class Chat(Speaker):
    name, sdk = "openai-chat", "openai"

    def path(self, streamed: bool) -> str:
        return "/openai/v1/chat/completions"

    def body(self, said: Sequence[Said], *, streamed: bool = False, tools: bool = True) -> Json:
        messages: list[Json] = []
        for who, what in said:
            if who == "user":
                messages.append({"role": "user", "content": what})
            elif who == "calls":
                made = [
                    {"id": i, "type": "function", "function": {"name": n, "arguments": json.dumps(a)}}
                    for i, n, a in what
                ]
                messages.append({"role": "assistant", "content": "", "tool_calls": made})
            elif who == "results":
                messages += [self.result(*r) for r in what]
            else:
                messages.append(what)
        out: Json = {"model": "m", "messages": messages}
        if streamed:
            out |= self.stream_fields
        if tools:
            function = {"name": "get_weather", "description": "Get the weather.", "parameters": WEATHER}
            out["tools"] = [{"type": "function", "function": function}]
        return out

    stream_fields: ClassVar[Json] = {"stream": True, "stream_options": {"include_usage": True}}

    def result(self, call_id: str, name: str, text: str) -> Json:
        return {"role": "tool", "tool_call_id": call_id, "content": text}

    def hear(self, answer: Json) -> Heard:
        message = answer["choices"][0]["message"]
        return Heard(self.text(message["content"]), self.calls(message.get("tool_calls")), self.usage(answer["usage"]))

    def hear_stream(self, events: list[Json]) -> Heard:
        deltas = [e["choices"][0]["delta"] for e in events if e["choices"]]
        text = "".join(self.text(d.get("content")) for d in deltas)
        whole: dict[int, Json] = {}
        for part in (c for d in deltas for c in d.get("tool_calls") or ()):
            if part["index"] in whole:
                whole[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
            else:
                whole[part["index"]] = copy.deepcopy(part)
        usage = next(e["usage"] for e in events if e.get("usage"))
        return Heard(text, self.calls(list(whole.values())), self.usage(usage))

    def text(self, content: Any) -> str:
        if isinstance(content, list):
            return "".join(p["text"] for p in content if p["type"] == "text")
        return content or ""

    def calls(self, made: Any) -> list[tuple[str, str, Any]]:
        return [(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in made or ()]

    def usage(self, usage: Json) -> tuple[int, int]:
        return usage["prompt_tokens"], usage["completion_tokens"]

    def native(self, answer: Json) -> Any:
        message = answer["choices"][0]["message"]
        return {k: message[k] for k in ("role", "content", "tool_calls") if message.get(k)}

    def problem(self, answer: Json) -> str:
        return str(answer["error"]["message"])

    def alter_thinking(self, native: Any) -> Any:
        pytest.skip("Chat Completions carries no signed thinking.")


class Messages(Speaker):
    name, sdk = "anthropic-messages", "anthropic"
    headers: ClassVar[dict[str, str]] = {"x-api-key": "test-key", "anthropic-version": "2023-06-01"}

    def path(self, streamed: bool) -> str:
        return "/anthropic/v1/messages"

    def body(self, said: Sequence[Said], *, streamed: bool = False, tools: bool = True) -> Json:
        messages: list[Json] = []
        for who, what in said:
            if who == "user":
                messages.append({"role": "user", "content": what})
            elif who == "calls":
                blocks = [{"type": "tool_use", "id": i, "name": n, "input": a} for i, n, a in what]
                messages.append({"role": "assistant", "content": blocks})
            elif who == "results":
                blocks = [{"type": "tool_result", "tool_use_id": i, "content": t} for i, _, t in what]
                messages.append({"role": "user", "content": blocks})
            else:
                messages.append({"role": "assistant", "content": what})
        out: Json = {"model": "m", "max_tokens": 100, "messages": messages, "stream": streamed}
        if tools:
            out["tools"] = [{"name": "get_weather", "description": "Get the weather.", "input_schema": WEATHER}]
        return out

    def hear(self, answer: Json) -> Heard:
        blocks = answer["content"]
        calls = [(b["id"], b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"]
        text = "".join(b["text"] for b in blocks if b["type"] == "text")
        return Heard(text, calls, (answer["usage"]["input_tokens"], answer["usage"]["output_tokens"]))

    def hear_stream(self, events: list[Json]) -> Heard:
        text, calls, arguments = "", [], dict[int, str]()
        for event in events:
            if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
                calls.append((event["index"], event["content_block"]))
                arguments[event["index"]] = ""
            elif event["type"] == "content_block_delta":
                text += event["delta"].get("text", "")
                if "partial_json" in event["delta"]:
                    arguments[event["index"]] += event["delta"]["partial_json"]
        usage = next(e["usage"] for e in events if e["type"] == "message_delta")
        made = [(b["id"], b["name"], json.loads(arguments[i])) for i, b in calls]
        return Heard(text, made, (usage["input_tokens"], usage["output_tokens"]))

    def native(self, answer: Json) -> Any:
        return answer["content"]

    def problem(self, answer: Json) -> str:
        assert answer["type"] == "error"
        return str(answer["error"]["message"])

    def thinking(self, body: Json) -> Json:
        return {**body, "max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 1024}}

    def alter_thinking(self, native: Any) -> Any:
        native[0]["thinking"] += "!"
        return native

    def without(self, body: Json) -> tuple[Json, str]:
        return {k: v for k, v in body.items() if k != "max_tokens"}, "max_tokens"


class GeminiSpeaker(Speaker):
    name, sdk = "gemini", "google.genai"
    headers: ClassVar[dict[str, str]] = {"x-goog-api-key": "test-key"}
    model = "gemini-2.5-flash"

    def path(self, streamed: bool) -> str:
        return f"/gemini/v1beta/models/{self.model}:" + (
            "streamGenerateContent?alt=sse" if streamed else "generateContent"
        )

    def body(self, said: Sequence[Said], *, streamed: bool = False, tools: bool = True) -> Json:
        contents: list[Json] = []
        for who, what in said:
            if who == "user":
                contents.append({"role": "user", "parts": [{"text": what}]})
            elif who == "calls":
                parts = [{"functionCall": {"name": n, "args": a, "id": i}} for i, n, a in what]
                contents.append({"role": "model", "parts": parts})
            elif who == "results":
                parts = [{"functionResponse": {"name": n, "response": {"result": t}, "id": i}} for i, n, t in what]
                contents.append({"role": "user", "parts": parts})
            else:
                contents.append(what)
        out: Json = {"contents": contents}
        if tools:
            declared = {"name": "get_weather", "description": "Get the weather.", "parametersJsonSchema": WEATHER}
            out["tools"] = [{"functionDeclarations": [declared]}]
        return out

    def hear(self, answer: Json) -> Heard:
        return self.hear_stream([answer])

    def hear_stream(self, events: list[Json]) -> Heard:
        parts = [p for e in events for p in e["candidates"][0]["content"]["parts"]]
        text = "".join(p["text"] for p in parts if "text" in p and not p.get("thought"))
        made = [p["functionCall"] for p in parts if "functionCall" in p]
        usage = events[-1]["usageMetadata"]
        calls = [(c.get("id", ""), c["name"], c["args"]) for c in made]
        output = usage["candidatesTokenCount"] + usage.get("thoughtsTokenCount", 0)
        return Heard(text, calls, (usage["promptTokenCount"], output))

    def native(self, answer: Json) -> Any:
        return answer["candidates"][0]["content"]

    def problem(self, answer: Json) -> str:
        return str(answer["error"]["message"])

    def thinking(self, body: Json) -> Json:
        return {**body, "generationConfig": {"thinkingConfig": {"includeThoughts": True}}}

    def alter_thinking(self, native: Any) -> Any:
        signed = next(p for p in native["parts"] if "thoughtSignature" in p)
        signed["thoughtSignature"] = "YWJj"
        return native

    def without(self, body: Json) -> tuple[Json, str]:
        return {k: v for k, v in body.items() if k != "contents"}, "contents"


class Gemini3(GeminiSpeaker):
    model = "gemini-3-pro-preview"


class MistralChatSpeaker(Chat):
    name, sdk = "mistral-chat", "mistralai.client"
    call_ids: ClassVar[tuple[str, str]] = ("abcdefg00", "abcdefg01")
    stream_fields: ClassVar[Json] = {"stream": True}

    def path(self, streamed: bool) -> str:
        return "/mistral/v1/chat/completions"

    def result(self, call_id: str, name: str, text: str) -> Json:
        return {"role": "tool", "tool_call_id": call_id, "content": text, "name": name}

    def problem(self, answer: Json) -> str:
        return str(answer["detail"][0]["msg"] if "detail" in answer else answer["message"])

    def alter_thinking(self, native: Any) -> Any:
        native["content"][0]["thinking"][0]["text"] += "!"
        return native


class Conversations(Speaker):
    name, sdk = "mistral-conversations", "mistralai.client"
    call_ids: ClassVar[tuple[str, str]] = ("abcdefg00", "abcdefg01")

    def path(self, streamed: bool) -> str:
        return "/mistral/v1/conversations"

    def body(self, said: Sequence[Said], *, streamed: bool = False, tools: bool = True) -> Json:
        inputs: list[Json] = []
        for who, what in said:
            if who == "user":
                inputs.append({"type": "message.input", "role": "user", "content": what})
            elif who == "calls":
                inputs += [
                    {"type": "function.call", "tool_call_id": i, "name": n, "arguments": json.dumps(a)}
                    for i, n, a in what
                ]
            elif who == "results":
                inputs += [{"type": "function.result", "tool_call_id": i, "result": t} for i, _, t in what]
            else:
                inputs += what
        out: Json = {"model": "m", "inputs": inputs, "stream": streamed, "store": False}
        if tools:
            function = {"name": "get_weather", "description": "Get the weather.", "parameters": WEATHER}
            out["tools"] = [{"type": "function", "function": function}]
        return out

    def hear(self, answer: Json) -> Heard:
        calls, text = [], ""
        for entry in answer["outputs"]:
            if entry["type"] == "function.call":
                calls.append((entry["tool_call_id"], entry["name"], json.loads(entry["arguments"])))
            elif isinstance(entry["content"], str):
                text += entry["content"]
            else:
                text += "".join(p["text"] for p in entry["content"] if p["type"] == "text")
        return Heard(text, calls, (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]))

    def hear_stream(self, events: list[Json]) -> Heard:
        text, calls = "", dict[str, list[Any]]()
        for event in events:
            if event["type"] == "message.output.delta" and isinstance(event["content"], str):
                text += event["content"]
            elif event["type"] == "function.call.delta":
                made = calls.setdefault(event["tool_call_id"], [event["name"], ""])
                made[1] += event["arguments"]
        usage = events[-1]["usage"]
        listed = [(i, n, json.loads(a)) for i, (n, a) in calls.items()]
        return Heard(text, listed, (usage["prompt_tokens"], usage["completion_tokens"]))

    def native(self, answer: Json) -> Any:
        return answer["outputs"]

    def problem(self, answer: Json) -> str:
        return str(answer["detail"][0]["msg"] if "detail" in answer else answer["message"])

    def alter_thinking(self, native: Any) -> Any:
        native[0]["content"][0]["thinking"][0]["text"] += "!"
        return native

    def without(self, body: Json) -> tuple[Json, str]:
        return {k: v for k, v in body.items() if k != "inputs"}, "inputs"


SPEAKERS: tuple[Speaker, ...] = (
    Responses(),
    Chat(),
    Messages(),
    GeminiSpeaker(),
    MistralChatSpeaker(),
    Conversations(),
)
ANSWER = "This answer is long enough to arrive in several pieces, whatever the wire."


@pytest.fixture(params=SPEAKERS, ids=lambda s: s.name)
def speaker(request: pytest.FixtureRequest) -> Speaker:
    found: Speaker = request.param
    return found


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def streamed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def client(model_server: ModelServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=model_server.url, timeout=20, trust_env=False, verify=False) as client:
        yield client


def post(client: httpx.Client, speaker: Speaker, body: Json, streamed: bool = False) -> httpx.Response:
    return client.post(speaker.path(streamed), json=body, headers=speaker.headers)


def ask(client: httpx.Client, speaker: Speaker, said: Sequence[Said], streamed: bool = False) -> Heard:
    answer = post(client, speaker, speaker.body(said, streamed=streamed), streamed)
    assert answer.status_code == 200, answer.text
    return speaker.hear_stream(events_of(answer.text)) if streamed else speaker.hear(answer.json())


def events_of(text: str) -> list[Json]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


# -- replies


def test_a_script_gives_text_and_parallel_calls(
    model_server: ModelServer, client: httpx.Client, speaker: Speaker, streamed: bool
) -> None:
    model_server.script(
        "hello", Reply("I look.", (call("get_weather", city="Oslo"), call("get_weather", city="Rome"))), ANSWER
    )
    first = ask(client, speaker, [("user", "hello")], streamed)
    assert first.text == "I look."
    assert [(n, a) for _, n, a in first.calls] == [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Rome"})]
    results = [(i, n, f"sunny in {a['city']}") for i, n, a in first.calls]
    second = ask(client, speaker, [("user", "hello"), ("calls", first.calls), ("results", results)], streamed)
    assert second == Heard(ANSWER, [], second.usage)
    assert model_server.journal.per_turn(user="hello") == {1: 1, 2: 1}
    sent = model_server.journal.requests(turn=2)[0]
    assert (sent.wire, sent.streamed, sent.status, sent.delivered) == (speaker.name, streamed, 200, True)


def test_a_repeated_turn_gets_the_same_reply(model_server: ModelServer, client: httpx.Client, speaker: Speaker) -> None:
    """The reply depends on the conversation, not on how often it was asked for."""
    model_server.script("hello", Reply(calls=(call("get_weather", city="Oslo"),)), "second")
    ids = speaker.call_ids
    told = [
        ("user", "hello"),
        ("calls", [(ids[0], "get_weather", {"city": "Oslo"})]),
        ("results", [(ids[0], "get_weather", "x")]),
    ]
    assert [ask(client, speaker, told).text for _ in range(3)] == ["second"] * 3
    assert len(ask(client, speaker, told[:1]).calls) == 1
    assert model_server.journal.per_turn() == {1: 1, 2: 3}


def test_equal_requests_have_equal_answers_and_streaming_changes_nothing(
    model_server: ModelServer, client: httpx.Client, speaker: Speaker
) -> None:
    model_server.script("hello", Reply("Yes.", (call("get_weather", city="Oslo"),)))
    heard = [ask(client, speaker, [("user", "hello")], streamed) for streamed in (False, True, False)]
    assert heard[0] == heard[1] == heard[2]
    entries = model_server.journal.requests()
    assert len({e.response_id for e in entries}) == 1 if speaker.name != "mistral-conversations" else True
    assert len({e.identity for e in entries}) == 1
    assert ask(client, speaker, [("user", "hello again")]).calls != heard[0].calls or speaker.name == "gemini"


def test_scripted_usage_is_exact_and_the_default_usage_follows_its_rule(
    model_server: ModelServer, client: httpx.Client, speaker: Speaker, streamed: bool
) -> None:
    model_server.script("scripted", Reply("x", usage=Usage(input=1234, output=56)))
    model_server.script("counted", Reply("12345678"))
    assert ask(client, speaker, [("user", "scripted")], streamed).usage == (1234, 56)
    assert ask(client, speaker, [("user", "counted")], streamed).usage[1] == 2  # 8 characters
    short, long = (ask(client, speaker, [("user", "counted" + "x" * n)], streamed).usage[0] for n in (1, 41))
    assert long - short == 10
    assert model_server.journal.usage(user="scripted") == Usage(1234, 56)


def test_a_very_large_answer_arrives_whole(
    model_server: ModelServer, client: httpx.Client, speaker: Speaker, streamed: bool
) -> None:
    text = "0123456789ab" * 2**20
    model_server.script("hello", Reply(text))
    assert ask(client, speaker, [("user", "hello")], streamed).text == text


def test_a_function_of_the_conversation_can_stand_for_a_reply(
    model_server: ModelServer, client: httpx.Client, speaker: Speaker
) -> None:
    model_server.script("hello", lambda c: Reply(f"{c.wire} turn {c.turn}, tools {[t.name for t in c.tools]}"))
    assert ask(client, speaker, [("user", "hello")]).text == f"{speaker.name} turn 1, tools ['get_weather']"


# -- refusals


def refused(client: httpx.Client, speaker: Speaker, body: Json) -> str:
    answer = post(client, speaker, body)
    assert answer.status_code in (400, 422), answer.text
    return speaker.problem(answer.json())


def test_a_tool_call_without_its_result_is_refused(
    model_server: ModelServer, client: httpx.Client, speaker: Speaker
) -> None:
    ids = speaker.call_ids
    calls = [(i, "get_weather", {"city": c}) for i, c in zip(ids, ("Oslo", "Rome"), strict=True)]
    body = speaker.body([("user", "hello"), ("calls", calls), ("results", [(ids[0], "get_weather", "x")])])
    message = refused(client, speaker, body)
    assert "No tool output found" in message
    assert "get_weather" in message
    assert ids[1] in message
    assert ids[0] not in message


def test_a_tool_result_without_its_call_is_refused(
    model_server: ModelServer, client: httpx.Client, speaker: Speaker
) -> None:
    body = speaker.body([("user", "hello"), ("results", [(speaker.call_ids[0], "get_weather", "x")])])
    message = refused(client, speaker, body)
    assert speaker.call_ids[0] in message
    assert "no call has this id" in message


def test_a_call_id_that_is_used_twice_is_refused(
    model_server: ModelServer, client: httpx.Client, speaker: Speaker
) -> None:
    one = [
        ("calls", [(speaker.call_ids[0], "get_weather", {"city": "Oslo"})]),
        ("results", [(speaker.call_ids[0], "get_weather", "x")]),
    ]
    assert "a second time" in refused(client, speaker, speaker.body([("user", "hello"), *one, *one]))


def test_a_missing_field_is_refused_by_name(model_server: ModelServer, client: httpx.Client, speaker: Speaker) -> None:
    body, field = speaker.without(speaker.body([("user", "hello")]))
    pytest.importorskip(speaker.sdk)
    assert field in refused(client, speaker, body)


def test_an_unknown_field_is_refused_by_name(model_server: ModelServer, client: httpx.Client, speaker: Speaker) -> None:
    pytest.importorskip(speaker.sdk)
    body = {**speaker.body([("user", "hello")]), "temprature": 1}
    message = refused(client, speaker, body)
    assert "temprature" in message
    assert "unknown field" in message


def test_an_unknown_field_inside_a_tool_is_refused_by_its_path(
    model_server: ModelServer, client: httpx.Client, speaker: Speaker
) -> None:
    pytest.importorskip(speaker.sdk)
    body = speaker.body([("user", "hello")])
    body["tools"][0]["descripton"] = "x"
    message = refused(client, speaker, body)
    assert "tools[0].descripton" in message or "tools[0]" in message


def test_an_altered_thinking_is_refused(model_server: ModelServer, client: httpx.Client, speaker: Speaker) -> None:
    model_server.script("hello", Reply("So.", (call("get_weather", city="Oslo"),), thinking="Let me see."), "done")
    first = post(client, speaker, speaker.thinking(speaker.body([("user", "hello")]))).json()
    results = [(i, n, "x") for i, n, _ in speaker.hear(first).calls]
    native = speaker.native(first)
    body = speaker.thinking(speaker.body([("user", "hello"), ("native", native), ("results", results)]))
    assert speaker.hear(post(client, speaker, body).json()).text == "done"
    altered = speaker.alter_thinking(copy.deepcopy(native))
    body = speaker.thinking(speaker.body([("user", "hello"), ("native", altered), ("results", results)]))
    message = refused(client, speaker, body)
    assert "altered" in message


def without_thinking(speaker: Speaker, native: Any) -> Any:
    if speaker.name == "anthropic-messages":
        return [b for b in native if b["type"] != "thinking"]
    if speaker.name == "gemini":
        return {**native, "parts": [{k: v for k, v in p.items() if k != "thoughtSignature"} for p in native["parts"]]}
    return [i for i in native if i["type"] != "reasoning"]


@pytest.mark.parametrize("speaker", [Responses(), Messages(), Gemini3()], ids=["responses", "messages", "gemini 3"])
def test_a_dropped_thinking_is_refused(model_server: ModelServer, client: httpx.Client, speaker: Speaker) -> None:
    model_server.script("hello", Reply("So.", (call("get_weather", city="Oslo"),), thinking="Let me see."), "done")
    first = post(client, speaker, speaker.thinking(speaker.body([("user", "hello")]))).json()
    results = [(i, n, "x") for i, n, _ in speaker.hear(first).calls]
    native = without_thinking(speaker, speaker.native(first))
    body = speaker.thinking(speaker.body([("user", "hello"), ("native", native), ("results", results)]))
    message = refused(client, speaker, body)
    assert "missing" in message or "without its required 'reasoning' item" in message


def test_a_body_of_another_form_is_refused_with_a_reason(
    model_server: ModelServer, client: httpx.Client, speaker: Speaker
) -> None:
    body = {k: [1, "x", None] if isinstance(v, list) else v for k, v in speaker.body([("user", "hello")]).items()}
    message = refused(client, speaker, body)
    assert "server failed" not in message
    assert message


def test_an_unmatched_prompt_is_refused_and_named(
    model_server: ModelServer, client: httpx.Client, speaker: Speaker
) -> None:
    model_server.script("something else", "x")
    message = refused(client, speaker, speaker.body([("user", "Sing!")]))
    assert "'Sing!'" in message
    assert "something else" in message
    entry = model_server.journal.requests()[0]
    assert entry.status == 400
    assert entry.error == message


def test_a_script_that_runs_out_says_so(model_server: ModelServer, client: httpx.Client, speaker: Speaker) -> None:
    model_server.script("hello", Reply(calls=(call("get_weather", city="Oslo"),)), name="short")
    ids = speaker.call_ids
    told: list[Said] = [
        ("user", "hello"),
        ("calls", [(ids[0], "get_weather", {})]),
        ("results", [(ids[0], "get_weather", "x")]),
    ]
    message = refused(client, speaker, speaker.body(told))
    assert "'short'" in message
    assert "asked for turn 2" in message


def test_a_reply_may_call_only_offered_tools_unless_marked(
    model_server: ModelServer, client: httpx.Client, speaker: Speaker
) -> None:
    model_server.script("strict", Reply(calls=(call("fly"),)))
    model_server.script("hallucinate", Reply(calls=(ToolCall("fly", unlisted=True),)))
    message = refused(client, speaker, speaker.body([("user", "strict")]))
    assert "'fly'" in message
    assert "offered: get_weather" in message
    assert ask(client, speaker, [("user", "hallucinate")]).calls[0][1:] == ("fly", {})


def test_a_request_without_a_key_is_refused(model_server: ModelServer, client: httpx.Client, speaker: Speaker) -> None:
    answer = client.post(speaker.path(False), json=speaker.body([("user", "My name is Ada")]))
    assert answer.status_code == 401
    assert "API key" in speaker.problem(answer.json())


def test_the_journal_keeps_no_key(model_server: ModelServer, client: httpx.Client, speaker: Speaker) -> None:
    ask(client, speaker, [("user", "My name is Ada")])
    assert "test-key" not in json.dumps([e.as_json() for e in model_server.journal.all])


def test_a_lenient_server_answers_what_a_strict_one_refuses(speaker: Speaker) -> None:
    with (
        ModelServer(strict=False) as server,
        httpx.Client(base_url=server.url, trust_env=False, verify=False) as client,
    ):
        body = {**speaker.body([("user", "Sing!"), ("results", [(speaker.call_ids[0], "get_weather", "x")])]), "odd": 1}
        assert "Sing!" in speaker.hear(client.post(speaker.path(False), json=body).json()).text


# -- faults


STATUSES = [
    Fault.rate_limit(retry_after=0.25),
    Fault.error(500),
    Fault.error(503),
    Fault.overloaded(),
    Fault.unauthorized(times=1),
]


@pytest.mark.parametrize("fault", STATUSES, ids=str)
def test_an_error_status_comes_in_the_providers_format(
    model_server: ModelServer, client: httpx.Client, speaker: Speaker, streamed: bool, fault: Fault
) -> None:
    model_server.script("hello", ANSWER)
    model_server.fault(fault, user="hello")
    answer = post(client, speaker, speaker.body([("user", "hello")], streamed=streamed), streamed)
    assert answer.status_code == fault.status
    assert speaker.problem(answer.json())
    assert answer.headers.get("retry-after") == ("0.25" if fault.status == 429 else None)
    assert ask(client, speaker, [("user", "hello")], streamed).text == ANSWER
    assert [(e.status, e.fault) for e in model_server.journal] == [(fault.status, str(fault.status)), (200, "")]


BREAKS: list[tuple[Fault, type[Exception]]] = [
    (Fault.reset(), httpx.ReadError),
    (Fault.lost(), httpx.ReadError),
    (Fault.cut(after=1), httpx.RemoteProtocolError),
    (Fault.garbled(after=1), ValueError),
    (Fault.hang(), httpx.ReadTimeout),
]


@pytest.mark.parametrize(("fault", "error"), BREAKS, ids=[str(f) for f, _ in BREAKS])
def test_a_broken_answer_breaks_once(
    model_server: ModelServer,
    client: httpx.Client,
    speaker: Speaker,
    streamed: bool,
    fault: Fault,
    error: type[Exception],
) -> None:
    model_server.script("hello", ANSWER)
    model_server.fault(fault, turn=1)
    if fault.kind == "hang":
        client.timeout = httpx.Timeout(0.2)
    with pytest.raises(error):
        ask(client, speaker, [("user", "hello")], streamed)
    client.timeout = httpx.Timeout(20)
    assert ask(client, speaker, [("user", "hello")], streamed).text == ANSWER
    broken, whole = model_server.journal.requests()
    assert (broken.fault, broken.delivered) == (fault.kind, False)
    assert broken.answered is (fault.kind in ("lost", "cut", "garbled"))
    assert (whole.fault, whole.delivered) == ("", True)


def test_a_slow_answer_arrives(
    model_server: ModelServer, client: httpx.Client, speaker: Speaker, streamed: bool
) -> None:
    model_server.script("hello", ANSWER)
    model_server.fault(Fault.slow(0.05))
    assert ask(client, speaker, [("user", "hello")], streamed).text == ANSWER
    assert model_server.journal.requests()[0].fault == "slow"


def test_a_fault_strikes_where_and_as_often_as_it_says(
    model_server: ModelServer, client: httpx.Client, speaker: Speaker
) -> None:
    model_server.script(None, ANSWER)
    model_server.fault(Fault.error(500, times=2), user="bad", streamed=False)
    model_server.fault(replace(Fault.error(503), each=True), user="worse")

    def statuses(prompt: str, times: int, streamed: bool = False) -> list[int]:
        body = speaker.body([("user", prompt)], streamed=streamed)
        return [post(client, speaker, body, streamed).status_code for _ in range(times)]

    assert statuses("good", 2) == [200, 200]
    assert statuses("bad", 1, streamed=True) == [200]
    assert statuses("bad", 3) == [500, 500, 200]
    assert statuses("worse 1", 2) == [503, 200]
    assert statuses("worse 2", 2) == [503, 200]


def test_a_reply_brings_its_own_faults(model_server: ModelServer, client: httpx.Client, speaker: Speaker) -> None:
    model_server.script("hello", Reply(ANSWER, faults=(Fault.rate_limit(), Fault.error(500))))
    body = speaker.body([("user", "hello")])
    assert [post(client, speaker, body).status_code for _ in range(3)] == [429, 500, 200]


def test_stopping_the_server_frees_a_hanging_client(speaker: Speaker) -> None:
    server = ModelServer().start()
    try:
        server.fault(Fault.hang())
        with httpx.Client(base_url=server.url, timeout=20, trust_env=False, verify=False) as client:
            client.event_hooks["request"] = [stop_when_hanging(server)]
            with pytest.raises(httpx.TransportError):
                post(client, speaker, speaker.body([("user", "My name is Ada")]))
    finally:
        server.stop()


def stop_when_hanging(server: ModelServer) -> Callable[[httpx.Request], None]:
    import threading

    def watch() -> None:
        server.journal.wait_for(1)
        server.stop()

    return lambda _request: threading.Thread(target=watch, daemon=True).start()
