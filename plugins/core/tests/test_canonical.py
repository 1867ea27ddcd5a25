"""Keys are equal in any process, and different for every request that a model would see differently."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import hashlib
import json
import math
import os
import pathlib
import subprocess
import sys
import uuid
from typing import Any, Literal

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from flyteplugins.agents.core import (
    JSON,
    UnserializableError,
    _canonical,
    canonical_json,
    digest,
    fingerprint,
    jsonable,
    rename_generated_ids,
)
from flyteplugins.agents.core._canonical import SeenRequest

SAFE = 2**53 - 1

text = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.none() | st.booleans() | st.integers(-SAFE, SAFE) | st.floats(allow_nan=False, allow_infinity=False) | text
plain_json = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(text.filter(lambda key: not key.startswith("$")), inner, max_size=4)
    ),
    max_leaves=12,
)
odd_scalars = scalars | st.binary() | st.floats() | st.integers() | st.text(st.characters())
anything = st.recursive(
    odd_scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(text | st.sampled_from(["$bytes", "$int", "$float", "$utf16", "$mapping"]), inner, max_size=3)
    ),
    max_leaves=8,
)


# RFC 8785


@given(plain_json)
@settings(max_examples=100, deadline=None)
def test_plain_json_is_written_as_rfc_8785_says(value: Any) -> None:
    assert canonical_json(value) == rfc8785.dumps(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b": 1, "a": [True, None, "x"]}, '{"a":[true,null,"x"],"b":1}'),
        (1.0, "1"),
        (-0.0, "0"),
        (1e21, "1e+21"),
        (333333333.33333329, "333333333.3333333"),
        ('\u20ac$\u000f\nA\'B"\\"/\x7f\u2028', '"\u20ac$\\u000f\\nA\'B\\"\\\\\\"/\x7f\u2028"'),
        ({"\ufb33": 1, "\U0001f600": 2, "\u20ac": 3}, '{"\u20ac":3,"\U0001f600":2,"\ufb33":1}'),  # UTF-16 code units
    ],
)
def test_the_rfcs_own_cases(value: object, expected: str) -> None:
    assert canonical_json(value) == expected.encode()


def test_keys_in_another_order_make_no_difference() -> None:
    assert canonical_json({"a": 1, "b": {"c": 2, "d": 3}}) == canonical_json({"b": {"d": 3, "c": 2}, "a": 1})


# what JSON has no word for


@given(anything, anything)
@settings(max_examples=100, deadline=None)
def test_different_values_are_written_differently(one: Any, other: Any) -> None:
    assert (canonical_json(one) == canonical_json(other)) == (_shape(one) == _shape(other))


def _shape(value: Any) -> Any:
    """A value as something that only equals what JSON would tell apart from it in nothing."""
    match value:
        case bool() | None:
            return ("constant", repr(value))
        case int() | float() if not isinstance(value, float) or math.isfinite(value):
            exact = isinstance(value, float) or abs(value) <= SAFE
            return ("number", float(value)) if exact else ("integer", value)
        case float():
            return ("float", repr(value))
        case str() | bytes():
            return (type(value).__name__, value)
        case list():
            return ("list", tuple(_shape(item) for item in value))
        case dict():
            return ("object", frozenset((key, _shape(item)) for key, item in value.items()))
    raise AssertionError(value)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Settings(BaseModel):
    temperature: float | None = None
    max_tokens: int | None = Field(default=None, alias="maxTokens")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"\x00\xff", {"$bytes": "AP8="}),
        (bytearray(b"a"), {"$bytes": "YQ=="}),
        (math.nan, {"$float": "nan"}),
        (-math.inf, {"$float": "-inf"}),
        (2**53, {"$int": "9007199254740992"}),
        ("\ud800", {"$utf16": "ANg="}),
        ({"$bytes": "AP8="}, {"$mapping": {"$bytes": "AP8="}}),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (Point(1, 2), {"x": 1, "y": 2}),
        ((1, 2), [1, 2]),
        (collections.deque([1, 2]), [1, 2]),
        ({3, 1, 2}, {"$set": [1, 2, 3]}),
        (datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC), {"$time": "2026-01-02T03:04:00+00:00"}),
        (datetime.date(2026, 1, 2), {"$time": "2026-01-02"}),
        (datetime.timedelta(milliseconds=1500), {"$microseconds": "1500000"}),
        (decimal.Decimal("1.10"), {"$decimal": "1.10"}),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (pathlib.PurePosixPath("/a/b"), "/a/b"),
        (Point, {"$type": f"{__name__}.Point"}),
        (
            {1: "a", None: "b", False: "c", 1.5: "d", Colour.RED: "e"},
            {"1": "a", "null": "b", "false": "c", "1.5": "d", "red": "e"},
        ),
        (Settings(temperature=0.5, maxTokens=7), {"temperature": 0.5, "maxTokens": 7}),
    ],
)
def test_other_values_have_a_form_of_their_own(value: object, expected: JSON) -> None:
    assert jsonable(value) == expected


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"tools": [{}, {"handler": object()}]}, "tools[1].handler"),
        ({"tools": [{"handler": lambda: 0}]}, "tools[0].handler"),
        ({"a": iter([1])}, "a"),
        ({"a": {b"key": 1}}, "a"),
        ({"a": {"\ud800": 1}}, "a"),
        ({"a": {1: "x", "1": "y"}}, "a"),
        ({"a": {"b", b"b", object()}}, "a{}"),
    ],
)
def test_what_has_no_form_is_an_error_that_names_its_place(value: object, path: str) -> None:
    with pytest.raises(UnserializableError) as caught:
        canonical_json(value)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path} cannot be made canonical JSON: ")


@pytest.mark.parametrize("kind", ["list", "dict"])
def test_values_may_be_two_hundred_deep_and_no_deeper(kind: str) -> None:
    def nested(depth: int) -> Any:
        value: Any = 1.5
        for _ in range(depth):
            value = [value] if kind == "list" else {"a": value}
        return value

    assert canonical_json(nested(200)).endswith(b"]" if kind == "list" else b"}")
    with pytest.raises(UnserializableError, match="nested more than 200 levels deep"):
        canonical_json(nested(100_000))


def test_a_value_that_contains_itself_is_an_error() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(UnserializableError, match="contains itself"):
        canonical_json(value)


class UserMessage(BaseModel):
    role: Literal["user"] = "user"
    content: str
    attachments: list[str] = []


class AssistantMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str


def test_models_that_differ_in_a_default_are_different() -> None:
    assert digest(UserMessage(content="hi")) != digest(AssistantMessage(content="hi"))


def test_a_model_whose_default_was_filled_in_place_is_different() -> None:
    message = UserMessage(content="hi")
    before = digest(message)
    message.attachments.append("report.pdf")
    assert digest(message) != before


def test_a_duration_is_written_the_same_in_any_decimal_context() -> None:
    duration = datetime.timedelta(days=1, milliseconds=1)
    expected = canonical_json(duration)
    with decimal.localcontext(prec=3):
        assert canonical_json(duration) == expected


# digests and keys


def test_a_digest_is_64_hexadecimal_digits_of_sha_256() -> None:
    assert digest({"a": 1}) == hashlib.sha256(b'{"a":1}').hexdigest()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([], {}),
        ([1, 2], [2, 1]),
        ([1], [[1]]),
        (["a", "b"], ["ab"]),
        ([], None),
        ("[]", []),
        ("1", 1),
        (True, 1),
        ({"a": None}, {}),
        (b"a", "a"),
        (uuid.UUID(int=1), uuid.UUID(int=2)),
    ],
)
def test_different_values_have_different_digests(one: object, other: object) -> None:
    assert digest(one) != digest(other)


def test_an_error_in_a_list_names_the_item() -> None:
    with pytest.raises(UnserializableError, match=r"^messages\[1\]\.content cannot"):
        fingerprint({"messages": [{"content": "a"}, {"content": object()}]})


def test_a_key_covers_every_field_by_its_name() -> None:
    key, digests = fingerprint({"model": "a", "settings": {}})
    assert set(digests) == {"model", "settings"}
    for other in ({"model": "b", "settings": {}}, {"model": "a"}, {"model": {}, "settings": "a"}):
        assert fingerprint(other)[0] != key
    assert fingerprint({"settings": {}, "model": "a"}) == (key, digests)


def test_keys_of_runs_in_flight_stay_what_they_are() -> None:
    """A change of these values makes every run in flight ask again: it needs a new key format."""
    key, digests = fingerprint(
        {"model": "gpt-4.1", "messages": [{"role": "user", "content": "Hé"}], "temperature": 0.5}
    )
    assert digests == {
        "messages": "9611b58720f57d89f42069d01336f2e69384c2e945d285b2a5433379276c4688",
        "model": "c90b18da42b32b93b0bf0c52670dc997f91857c7d8aaa8c5c69c382c0daa0fad",
        "temperature": "d2cbad71ff333de67d07ec676e352ab7f38248eb69c942950157220607c55e84",
    }
    assert key == "b496ab37729c9fedd80578a46390545d081e7472757e0d57f749d1558b880b20"


PROGRAM = """
import datetime, json, sys
from flyteplugins.agents.core import fingerprint, rename_generated_ids
tools = {"weather", "search", "book", "pay"}
messages = [{"id": f"call_{n}", "text": n} for n in tools]
messages.sort(key=lambda message: message["text"])
renamed = rename_generated_ids(messages, lambda field, value: "call" if field == "id" else None)
odd = frozenset([b"a", None, 1.5, "x"])
key, _ = fingerprint({"tools": tools, "names": {n: 0 for n in tools}, "odd": odd, "messages": renamed})
print(key, list(tools))
"""


def test_keys_are_equal_in_processes_with_different_hash_seeds() -> None:
    keys, orders = zip(*(_run_with_seed(seed).split(" ", 1) for seed in (1, 2)), strict=True)
    assert keys[0] == keys[1]
    assert orders[0] != orders[1]  # or the seeds showed nothing


def _run_with_seed(seed: int) -> str:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"PYTHONHASHSEED": str(seed)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


# identifiers that an SDK made up


def _is_call_id(field: str, value: str) -> str | None:
    return "call" if field in ("call_id", "ids") and value.startswith("call_") else None


def test_generated_ids_are_named_by_their_first_appearance() -> None:
    def conversation(one: str, two: str) -> JSON:
        return [
            {"type": "call", "call_id": one, "name": "a"},
            {"type": "call", "call_id": two, "name": "b"},
            {"type": "result", "call_id": two, "text": f"about {one}"},
            {"ids": [two, one], "call_id": "mine"},
        ]

    renamed = rename_generated_ids(conversation("call_x", "call_y"), _is_call_id)
    assert renamed == [
        {"type": "call", "call_id": "call#0", "name": "a"},
        {"type": "call", "call_id": "call#1", "name": "b"},
        {"type": "result", "call_id": "call#1", "text": "about call_x"},  # somebody's text stays
        {"ids": ["call#1", "call#0"], "call_id": "mine"},
    ]
    crossed = conversation("call_x", "call_y")
    assert isinstance(crossed, list)
    assert isinstance(crossed[2], dict)
    crossed[2]["call_id"] = "call_x"
    assert rename_generated_ids(crossed, _is_call_id) != renamed


def test_renaming_leaves_what_it_was_given_alone() -> None:
    messages: JSON = [{"call_id": "call_x", "n": 1, "b": True, "z": None, "f": 1.5}]
    before = json.dumps(messages)
    assert rename_generated_ids(messages, _is_call_id) == [
        {"call_id": "call#0", "n": 1, "b": True, "z": None, "f": 1.5}
    ]
    assert json.dumps(messages) == before


def test_each_kind_of_generated_id_is_counted_by_itself() -> None:
    messages: JSON = [{"call": "c1", "message": "m1"}, {"message": "m2", "call": "c2"}]
    assert rename_generated_ids(messages, lambda field, _: field) == [
        {"call": "call#0", "message": "message#0"},
        {"message": "message#1", "call": "call#1"},
    ]


def test_items_that_were_hashed_before_have_the_digests_that_they_would_have_anyway() -> None:
    """Also those that are equal to Python and different in JSON, and those that change after they were hashed."""
    items: list[Any] = [
        1,
        True,
        1.0,
        "1",
        {"a": 1, "b": 2},
        {"b": 2, "a": 1},
        {"a": True, "b": 2},
        [1],
        [1.0],
        (1,),
        b"1",
        None,
    ]
    alone = [digest([item]) for item in items]
    assert [digest([item]) for item in items] == alone
    assert alone == [
        hashlib.sha256(b"items:" + hashlib.sha256(canonical_json(item)).digest()).hexdigest() for item in items
    ]
    growing: dict[str, Any] = {"content": [{"text": "one"}]}
    before = digest([growing])
    growing["content"].append({"text": "two"})
    assert digest([growing]) != before
    assert digest([{"content": [{"text": "one"}]}]) == before


def test_no_more_items_are_remembered_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_canonical, "_KNOWN_ITEMS", {})
    monkeypatch.setattr(_canonical, "_MAX_KNOWN_ITEMS", 3)
    for number in range(10):
        assert digest([number]) == digest([number])
    assert 0 < len(_canonical._KNOWN_ITEMS) <= 3


# requests of which most was seen before


class Contrary:
    """A value that cannot be compared, as an array cannot."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("The truth value of an array is ambiguous")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.lists(anything, max_size=4), anything), min_size=2, max_size=4))
def test_a_key_is_the_same_whatever_was_seen_before(requests: list[tuple[list[Any], Any]]) -> None:
    seen = SeenRequest()
    for messages, setting in [*requests, *reversed(requests)]:
        fields = {"messages": messages, "settings": setting}
        assert fingerprint(fields, seen) == fingerprint(fields)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1, True),
        (True, 1),
        (0, False),
        (2**60, float(2**60)),
        ("a", b"a"),
        ("", None),
        ({"n": 1}, {"n": True}),
        ({"n": [{"deep": 0}]}, {"n": [{"deep": False}]}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1, "b": 2}, {"a": 1}),
        ([1, 2], [1]),
    ],
)
def test_what_python_calls_equal_and_a_model_does_not_has_another_key(before: object, after: object) -> None:
    seen = SeenRequest()
    old, _ = fingerprint({"messages": [before], "setting": before}, seen)
    new = fingerprint({"messages": [after], "setting": after}, seen)
    assert new == fingerprint({"messages": [after], "setting": after})
    assert new[0] != old


def test_a_message_that_was_changed_in_place_has_another_key() -> None:
    seen = SeenRequest()
    message = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
    before = fingerprint({"messages": [message], "last": message}, seen)
    message["content"][0]["text"] = "Ho"  # type: ignore[index]
    after = fingerprint({"messages": [message], "last": message}, seen)
    assert after == fingerprint({"messages": [message], "last": message})
    assert after[0] != before[0]


def test_a_conversation_that_is_cut_off_and_goes_on_in_another_way_has_the_key_of_what_it_is() -> None:
    seen = SeenRequest()
    for messages in (["a", "b", "c"], ["a"], ["a", "d"], ["b", "d", "c"], [], ["a", "b", "c"]):
        assert fingerprint({"messages": messages}, seen) == fingerprint({"messages": messages})


def test_only_what_is_new_is_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[object] = []
    plain = _canonical._item_digest

    def counting(item: object, path: str, index: int) -> bytes:
        hashed.append(item)
        return plain(item, path, index)

    monkeypatch.setattr(_canonical, "_item_digest", counting)
    seen = SeenRequest()
    messages: list[dict[str, object]] = []
    for number in range(20):
        messages.append({"role": "user", "content": f"message {number}", "number": number, "share": 0.5})
        fingerprint({"messages": json.loads(json.dumps(messages))}, seen)  # equal, and other objects
    assert hashed == messages


def test_what_cannot_be_compared_or_is_no_plain_value_is_looked_at_each_time() -> None:
    seen = SeenRequest()

    class Options(BaseModel):
        level: int

    options = Options(level=1)
    before, _ = fingerprint({"options": options, "messages": [options, {"text": "a"}]}, seen)
    options.level = 2
    after, _ = fingerprint({"options": options, "messages": [options, {"text": "a"}]}, seen)
    assert after != before
    with pytest.raises(UnserializableError, match=r"messages\[1\]"):
        fingerprint({"options": options, "messages": [options, {"text": Contrary()}]}, seen)
    again, _ = fingerprint({"options": options, "messages": [options, {"text": "a"}]}, seen)
    assert again == after
