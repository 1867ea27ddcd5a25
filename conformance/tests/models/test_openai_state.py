"""What the server keeps for the Responses protocol, and how items come back. The real client where it matters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError, OpenAI

from flyteplugins.agents.conformance.models import ModelServer, Reply, call

ADD: Any = {
    "type": "function",
    "name": "add",
    "description": "Add.",
    "strict": False,
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
}


@pytest.fixture
def client(model_server: ModelServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=model_server.openai_base_url, api_key="k", max_retries=0) as client:
        yield client


def test_a_response_continues_another(client: OpenAI) -> None:
    first = client.responses.create(model="m", input="My name is Ada")
    second = client.responses.create(model="m", input="What is my name?", previous_response_id=first.id)
    assert second.output_text == "Your name is Ada."
    assert second.previous_response_id == first.id
    assert client.responses.retrieve(first.id).output_text == "Nice to meet you, Ada!"
    assert [i.type for i in client.responses.input_items.list(second.id)] == ["message"]


def test_the_output_of_a_stored_call_completes_it(client: OpenAI) -> None:
    first = client.responses.create(model="m", input="What is 2 + 3?", tools=[ADD])
    made: Any = first.output[0]
    with pytest.raises(BadRequestError, match="No tool output found for add call"):
        client.responses.create(model="m", input="go on", tools=[ADD], previous_response_id=first.id)
    output: Any = [{"type": "function_call_output", "call_id": made.call_id, "output": "5"}]
    second = client.responses.create(model="m", input=output, tools=[ADD], previous_response_id=first.id)
    assert second.output_text == "2 + 3 = 5"


def test_a_response_that_is_not_kept_cannot_be_continued(client: OpenAI, model_server: ModelServer) -> None:
    first = client.responses.create(model="m", input="My name is Ada", store=False)
    with pytest.raises(BadRequestError, match="Previous response with id") as caught:
        client.responses.create(model="m", input="What is my name?", previous_response_id=first.id)
    assert caught.value.code == "previous_response_not_found"
    kept = client.responses.create(model="m", input="My name is Ada")
    client.responses.delete(kept.id)
    with pytest.raises(NotFoundError):
        client.responses.retrieve(kept.id)
    again = client.responses.create(model="m", input="My name is Ada")
    assert again.id == kept.id
    model_server.clear()
    with pytest.raises(NotFoundError):
        client.responses.retrieve(kept.id)


def test_a_conversation_keeps_its_items(client: OpenAI) -> None:
    conversation = client.conversations.create(items=[{"type": "message", "role": "user", "content": "My name is Ada"}])
    other = client.conversations.create(items=[{"type": "message", "role": "user", "content": "My name is Ada"}])
    assert conversation.id != other.id
    answer = client.responses.create(model="m", input="What is my name?", conversation=conversation.id)
    assert answer.output_text == "Your name is Ada."
    items = client.conversations.items.list(conversation.id, order="asc").data
    assert [getattr(i, "role", None) for i in items] == ["user", "user", "assistant"]
    assert len({i.id for i in items}) == 3
    assert len(client.conversations.items.list(other.id).data) == 1
    client.conversations.delete(conversation.id)
    with pytest.raises(NotFoundError):
        client.responses.create(model="m", input="What is my name?", conversation=conversation.id)


def test_an_item_can_be_given_by_reference(client: OpenAI) -> None:
    first = client.responses.create(model="m", input="My name is Ada")
    said = client.responses.input_items.list(first.id).data[0]
    items: Any = [
        {"type": "item_reference", "id": said.id},
        {"type": "item_reference", "id": first.output[0].id},
        {"role": "user", "content": "What is my name?"},
    ]
    assert client.responses.create(model="m", input=items).output_text == "Your name is Ada."
    items[1]["id"] = "msg_unknown"
    with pytest.raises(NotFoundError, match="msg_unknown"):
        client.responses.create(model="m", input=items)


def test_an_item_of_an_unknown_type_comes_back_unchanged_or_is_refused(
    client: OpenAI, model_server: ModelServer
) -> None:
    odd = {"type": "future_thing", "id": "ft_1", "payload": {"list": [1, None, "x"]}}
    model_server.script("odd", Reply(items=(odd,), calls=(call("add", a=1, b=2),)), "done")
    first = client.responses.with_raw_response.create(model="m", input="odd", tools=[ADD]).http_response.json()
    assert first["output"][0] == odd
    made = first["output"][1]
    items: Any = [{"role": "user", "content": "odd"}, odd, made]
    items.append({"type": "function_call_output", "call_id": made["call_id"], "output": "3"})
    assert client.responses.create(model="m", input=items, tools=[ADD]).output_text == "done"
    items[1] = {**odd, "payload": {}}
    with pytest.raises(BadRequestError, match=r"input\[1\]") as caught:
        client.responses.create(model="m", input=items, tools=[ADD])
    assert "future_thing" in str(caught.value)


def test_reasoning_and_what_follows_it_come_back_together(client: OpenAI, model_server: ModelServer) -> None:
    model_server.script("think", Reply(thinking="Hm.", calls=(call("add", a=1, b=2),)), "done")
    first = client.responses.create(model="m", input="think", tools=[ADD])
    reasoning, made = (o.model_dump(exclude_unset=True) for o in first.output)
    output = {"type": "function_call_output", "call_id": made["call_id"], "output": "3"}
    user = {"role": "user", "content": "think"}

    def send(*items: Any) -> str:
        given: Any = [user, *items]
        return client.responses.create(model="m", input=given, tools=[ADD]).output_text

    assert send(reasoning, made, output) == "done"
    with pytest.raises(BadRequestError, match="without its required 'reasoning' item"):
        send(made, output)
    with pytest.raises(BadRequestError, match="without its required following item"):
        send(reasoning)
    unsealed = {k: v for k, v in reasoning.items() if k != "encrypted_content"}
    assert send(unsealed, made, output) == "done"
    with pytest.raises(BadRequestError, match="was altered"):
        send({**unsealed, "summary": []}, made, output)
    with pytest.raises(BadRequestError, match="did not send it"):
        send({**unsealed, "id": "rs_other"}, made, output)


def test_cut_and_refused_answers_look_as_the_provider_sends_them(client: OpenAI, model_server: ModelServer) -> None:
    model_server.script("length", Reply("half an ans", stop="length"))
    model_server.script("refusal", Reply("I will not.", stop="refusal"))
    cut = client.responses.create(model="m", input="length")
    assert cut.status == "incomplete"
    assert cut.incomplete_details
    assert cut.incomplete_details.reason == "max_output_tokens"
    refused: Any = client.responses.create(model="m", input="refusal").output[0]
    assert refused.content[0].refusal == "I will not."
    chat = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "length"}])
    assert chat.choices[0].finish_reason == "length"
    chat = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "refusal"}])
    assert chat.choices[0].message.refusal == "I will not."


def test_scripts_may_match_the_model_and_the_instructions(client: OpenAI, model_server: ModelServer) -> None:
    model_server.script(None, "big", model="big")
    model_server.script(None, "pirate", system="pirate")
    assert client.responses.create(model="big", input="x").output_text == "big"
    assert client.responses.create(model="m", input="x", instructions="You are a pirate.").output_text == "pirate"
    with pytest.raises(BadRequestError):
        client.responses.create(model="m", input="x")
    with pytest.raises(ValueError, match="not both"):
        model_server.script("x", "y", match=model_server.script("z", "y").match)


def test_turns_can_count_from_an_earlier_text_and_repeat(client: OpenAI, model_server: ModelServer) -> None:
    model_server.script("start", "one", "two", anywhere=True, repeat_last=True)

    def send(*texts: str) -> str:
        items: Any = [{"role": "user" if n % 2 == 0 else "assistant", "content": t} for n, t in enumerate(texts)]
        return client.responses.create(model="m", input=items).output_text

    assert send("start") == "one"
    assert send("start", "one", "carry on") == "two"
    assert send("start", "one", "carry on", "two", "and on") == "two"


def test_interleaved_calls_and_results_are_one_turn(client: OpenAI, model_server: ModelServer) -> None:
    model_server.script("both", Reply(calls=(call("add", a=1, b=2), call("add", a=3, b=4))), "second turn")
    first: Any = client.responses.create(model="m", input="both", tools=[ADD]).output
    items: Any = [{"role": "user", "content": "both"}]
    for made in first:
        items.append(made.model_dump(exclude_unset=True))
        items.append({"type": "function_call_output", "call_id": made.call_id, "output": "7"})
    assert client.responses.create(model="m", input=items, tools=[ADD]).output_text == "second turn"
