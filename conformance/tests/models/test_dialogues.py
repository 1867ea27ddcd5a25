"""The stock dialogues, as functions of the conversation."""

from __future__ import annotations

from typing import Any

import pytest

from flyteplugins.agents.conformance.models import Conversation, Message, ModelServer, OfferedTool, PastCall, PastResult
from flyteplugins.agents.conformance.models._dialogues import places
from flyteplugins.agents.conformance.models._fill import fill
from flyteplugins.agents.conformance.models._model import OfflineModel

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}


def talk(user: str, *more: Message, strict: bool = False, **fields: Any) -> Any:
    model = OfflineModel(strict=strict)
    return model.choose(Conversation("w", "m", messages=(Message("user", user), *more), **fields))


def names(*tools: str) -> tuple[OfferedTool, ...]:
    return tuple(OfferedTool(t, "", CITY) for t in tools)


@pytest.mark.parametrize(
    ("question", "cities"),
    [
        ("What is the weather in Paris?", ["Paris"]),
        ("what's the weather like in paris", ["Paris"]),
        ("Weather for New York, São Paulo and Oslo, please", ["New York", "São Paulo", "Oslo"]),
        ("Tell me the weather in Oslo and in Oslo", ["Oslo"]),
        ("What about the weather?", []),
    ],
)
def test_places_are_found_in_a_question(question: str, cities: list[str]) -> None:
    assert places(question) == cities


def test_a_deep_agent_hands_the_weather_to_its_sub_agent_and_keeps_the_answer_where_it_was_told_to() -> None:
    schema = {"type": "object", "properties": {"description": {"type": "string"}, "subagent_type": {"type": "string"}}}
    about = "Available agents:\n- general-purpose: Does anything.\n- meteorologist: Knows the weather of every city.\n"
    tools = (OfferedTool("task", about, schema), OfferedTool("write_file", "", CITY))
    options: Any = {"system": "Keep a diary in /weather.md.", "tools": tools}
    question = "What is the weather in Oslo?"
    [task] = talk(question, **options).reply.calls
    assert task.arguments == {"description": question, "subagent_type": "meteorologist"}
    told = (
        Message("assistant", calls=(PastCall("1", "task", {}),)),
        Message("tool", results=(PastResult("1", "rain"),)),
    )
    [write] = talk(question, *told, **options).reply.calls
    assert (write.name, write.arguments) == ("write_file", {"file_path": "/weather.md", "content": "rain"})
    wrote = (
        Message("assistant", calls=(PastCall("2", "write_file", {}),)),
        Message("tool", results=(PastResult("2", ""),)),
    )
    assert talk(question, *told, *wrote, **options).reply.text == "rain"
    assert talk(question, *told, tools=tools).reply.text == "rain", "nobody named a file"


def test_the_warmest_of_the_cities_that_it_is_told_of_is_named() -> None:
    told = "Which city is the warmest?\nOslo: Sunny and -3 °C in Oslo.\nRome: Sunny and 16 °C in Rome."
    assert talk(told).reply.text == "Rome is the warmest, at 16 °C."


def test_the_weather_is_asked_for_each_city_once() -> None:
    tools = names("mcp__srv__get_weather")
    choice = talk("What is the weather in Paris and Oslo?", tools=tools)
    assert [c.name for c in choice.reply.calls] == ["mcp__srv__get_weather"] * 2
    made = tuple(PastCall(i, "mcp__srv__get_weather", {}) for i in ("1", "2"))
    given = Message("tool", results=(PastResult("2", "rain"), PastResult("1", "sun")))
    told = talk("What is the weather in Paris and Oslo?", Message("assistant", calls=made), given, tools=tools)
    assert told.reply.text == "Here is the weather. Paris: sun. Oslo: rain."
    assert "no weather tool" in talk("What is the weather in Paris?").reply.text
    assert "Which city" in talk("How is the weather?", tools=tools).reply.text


def test_a_sum_uses_the_tools_own_argument_names() -> None:
    schema = {"properties": {"x": {"type": "number"}, "note": {"type": "string"}, "y": {"type": "number"}}}
    choice = talk("Add 1.5 and 2", tools=(OfferedTool("add", "", schema),))
    assert choice.reply.calls[0].arguments == {"x": 1.5, "y": 2}
    assert talk("What is 2 + 3?").reply.text == "2 + 3 = 5"
    assert talk("What is -2 + 3?").reply.text == "-2 + 3 = 1"


def test_a_trip_skips_what_no_tool_is_offered_for() -> None:
    tools = names("find_hotels", "book_trip")
    first = talk("Plan a trip to Rome", tools=tools)
    assert [(c.name, c.arguments) for c in first.reply.calls] == [("find_hotels", {"city": "Rome"})]
    assert "look at the weather" in talk("Plan a trip to Rome").reply.text


def test_a_hand_off_goes_to_the_agent_that_is_named() -> None:
    tools = names("transfer_to_billing_agent", "transfer_to_refund_agent", "get_weather")
    assert talk("I want a refund", tools=tools).reply.calls[0].name == "transfer_to_refund_agent"
    one = names("transfer_to_billing_agent")
    assert talk("Please transfer me", tools=one).reply.calls[0].name == "transfer_to_billing_agent"
    adk = (OfferedTool("transfer_to_agent", "", {"properties": {"agent_name": {"enum": ["billing", "sales"]}}}),)
    assert talk("Ask sales", tools=adk).reply.calls[0].arguments == {"agent_name": "sales"}
    taken = Message("assistant", calls=(PastCall("1", "transfer_to_billing_agent", {}),))
    given = Message("tool", results=(PastResult("1", "ok"),))
    assert talk("A billing question", taken, given, tools=one).reply.text.startswith("This is the billing agent.")
    # The one who takes over answers what it knows about.
    assert talk("billing: what is 2 + 3?", taken, given, tools=one).reply.text == "2 + 3 = 5"


def test_a_structured_answer_holds_what_the_conversation_said() -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "name": {"type": "string"}, "answer": {"type": "string"}},
    }
    choice = talk("My name is Ada", output_schema=schema)
    assert choice.reply.structured == {"city": "Ada", "name": "Ada", "answer": "Nice to meet you, Ada!"}


def test_an_output_tool_is_called_for_a_structured_answer() -> None:
    final = OfferedTool("final_result", "", CITY)
    choice = talk("Describe Madrid", tools=(final,), tool_choice="required")
    assert choice.reply.calls[0].name == "final_result"
    assert choice.reply.calls[0].arguments == {"city": "Madrid"}
    forced = talk("Describe Madrid", tools=(OfferedTool("answer", "", CITY),), tool_choice="answer")
    assert forced.reply.calls[0].name == "answer"


def test_free_text_gets_a_helpful_answer_from_a_lenient_model() -> None:
    choice = talk("How are you?")
    assert choice.rule == "small talk"
    assert "How are you?" in choice.reply.text
    assert "What is the weather in Paris" in choice.reply.text
    given = (
        Message("assistant", calls=(PastCall("1", "lookup", {}),)),
        Message("tool", results=(PastResult("1", "42"),)),
    )
    assert talk("How are you?", *given).reply.text == "Done. lookup said: 42."


def test_a_long_count() -> None:
    assert talk("Count to 500").reply.text.split() == [str(n) for n in range(1, 501)]


SCHEMAS: list[tuple[dict[str, Any], Any]] = [
    ({"type": "string", "enum": ["b", "a"]}, "b"),
    ({"const": 3}, 3),
    ({"type": "integer", "minimum": 30}, 30),
    ({"type": "number", "exclusiveMaximum": 5}, 4),
    ({"type": "integer", "multipleOf": 4}, 24),
    ({"type": ["null", "boolean"]}, True),
    ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, 21),
    ({"type": "array", "items": {"type": "string"}, "minItems": 3}, ["some text", "some text 2", "some text 3"]),
    ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}]}, [21, None]),
    ({"type": "string", "format": "date"}, "2025-06-01"),
    ({"type": "string", "maxLength": 4}, "some"),
    ({"$defs": {"P": {"type": "object", "properties": {"x": {"type": "number"}}}}, "$ref": "#/$defs/P"}, {"x": 21}),
    ({"allOf": [{"type": "string"}, {"const": "k"}]}, "k"),
    ({"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}}, {"n": 21}),
]


@pytest.mark.parametrize(("schema", "value"), SCHEMAS)
def test_schemas_are_filled_with_plausible_values(schema: dict[str, Any], value: Any) -> None:
    assert fill(schema) == value


def test_a_recursive_schema_has_an_end() -> None:
    node: dict[str, Any] = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["name", "children"],
    }
    assert fill(node)["name"] == "Ada"


def test_dialogues_can_be_replaced() -> None:
    with ModelServer(dialogues=()) as server:
        assert server.model.dialogues == ()
