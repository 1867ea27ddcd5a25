"""A tool's result as the text that a model is given."""

import array
import asyncio
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import ipaddress
import json
import pathlib
import re
import subprocess
import sys
import textwrap
import threading
import types
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from flyte.io import DataFrame, Dir, File
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, RootModel, SecretStr, computed_field, field_serializer

from flyteplugins.agents.core._render import render_result


class Color(enum.Enum):
    RED = "red"
    PAIR = (1, "two")


class Size(enum.StrEnum):
    SMALL = "small"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: object = None


class Pair(NamedTuple):
    left: object
    right: object = None


class Person(BaseModel):
    full_name: str = Field(alias="fullName")
    tags: set[str] = set()
    photo: File | None = None
    friend: object = None
    password: str = Field("secret", exclude=True)

    @computed_field
    def initial(self) -> str:
        return self.full_name[0]


class Celsius(BaseModel):
    degrees: float
    tags: set[str] = {"b", "a"}

    @field_serializer("degrees")
    def with_unit(self, degrees: float) -> str:
        return f"{degrees} °C"


class Bare:
    pass


class Speaking:
    def __repr__(self) -> str:
        return "<Speaking at 0x7f00deadbeef>"


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no")


@dataclasses.dataclass
class Unset:
    a: int
    b: int = dataclasses.field(init=False)


@pytest.mark.parametrize("text", ["", "plain", '"quoted"', "naïve 😀\n", "null"])
def test_a_string_is_given_as_it_is(text: str) -> None:
    assert render_result(text) == text


def test_a_member_of_a_string_enum_is_a_string() -> None:
    class Legacy(str, enum.Enum):  # noqa: UP042  # prints as Legacy.A
        A = "a"

    assert render_result(Size.SMALL) == "small"
    assert type(render_result(Size.SMALL)) is str
    assert render_result(Legacy.A) == "a"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (1.5, "1.5"),
        (1e300, "1e+300"),
        (float("nan"), '"NaN"'),
        (float("inf"), '"Infinity"'),
        ([float("-inf")], '["-Infinity"]'),
        (2**70, str(2**70)),
        (["é😀"], '["é😀"]'),
        ({"a": [1, {"b": None}]}, '{"a":[1,{"b":null}]}'),
        ((1, "a"), '[1,"a"]'),
        (collections.deque([1]), "[1]"),
        (collections.UserList([1]), "[1]"),
        ({1: 2}.values(), "[2]"),
        ({"b", "a"}, '["a","b"]'),
        (frozenset({2, 10, "x", None}), '["x",10,2,null]'),
        ({"b": 1, "a": 2}, '{"b":1,"a":2}'),
        ({1: 2}.keys(), "[1]"),
        (types.MappingProxyType({"a": 1}), '{"a":1}'),
        (
            {1: "a", None: "b", 2.5: "c", (1, 2): "d", Size.SMALL: "e"},
            '{"1":"a","null":"b","2.5":"c","[1,2]":"d","small":"e"}',
        ),
        ({1: "a", "1": "b"}, '[[1,"a"],["1","b"]]'),
        ({b"k": 1}, '{"{\\"base64\\":\\"aw==\\"}":1}'),
        (b"\xff\x00", '{"base64":"/wA="}'),
        (bytearray(b"hi"), '{"base64":"aGk="}'),
        (memoryview(b"hi"), '{"base64":"aGk="}'),
        (Color.RED, '"red"'),
        (Color.PAIR, '[1,"two"]'),
        ([Size.SMALL, Level.LOW], '["small",1]'),
        (decimal.Decimal("1.10"), '"1.10"'),
        (decimal.Decimal("NaN"), '"NaN"'),
        (fractions.Fraction(1, 3), '"1/3"'),
        (1 + 2j, '"(1+2j)"'),
        (range(3), '"range(0, 3)"'),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (pathlib.PurePosixPath("a/b"), '"a/b"'),
        (ipaddress.ip_address("::1"), '"::1"'),
        (re.compile("a+"), '"a+"'),
        (dt.datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC), '"2024-01-02T03:04:05.000006+00:00"'),
        (dt.date(2024, 1, 2), '"2024-01-02"'),
        (dt.time(3, 4), '"03:04:00"'),
        (dt.timedelta(days=1, hours=2), '"P1DT2H"'),
        (dt.UTC, '"UTC"'),
        (Point(1, {Color.RED}), '{"x":1,"y":["red"]}'),
        (Pair(1), '{"left":1,"right":null}'),
        ({Point(1)}, '[{"x":1,"y":null}]'),
        (RootModel[list[int]]([1]), "[1]"),
        (Celsius(degrees=2), '{"degrees":"2.0 °C","tags":["a","b"]}'),
        (SecretStr("password"), '"**********"'),
        (array.array("i", [1, 2]), "[1,2]"),
        (File(path="s3://b/f"), '"s3://b/f"'),
        ([Dir(path="s3://b/d"), DataFrame(uri="s3://b/t")], '["s3://b/d","s3://b/t"]'),
        (ValueError("no such city"), '"ValueError: no such city"'),
        (KeyError(), '"KeyError"'),
        (dict, '"builtins.dict"'),
        (textwrap.dedent, '"textwrap.dedent"'),
    ],
)
def test_everything_else_is_compact_json(value: Any, text: str) -> None:
    assert render_result(value) == text


def test_an_integer_too_long_for_decimal_is_hexadecimal() -> None:
    assert render_result([-(1 << 20_000)]) == f'["{hex(-(1 << 20_000))}"]'
    assert render_result(10**4299) == str(10**4299)


def test_a_model_is_an_object_of_its_fields_by_alias_and_by_these_rules() -> None:
    friend = Person(fullName="Bob")
    person = Person(fullName="Ann", tags={"y", "x"}, photo=File(path="s3://b/p"), friend=[friend, float("nan")])

    assert json.loads(render_result(person)) == {
        "fullName": "Ann",
        "tags": ["x", "y"],
        "photo": "s3://b/p",
        "friend": [{"fullName": "Bob", "tags": [], "photo": None, "friend": None, "initial": "B"}, "NaN"],
        "initial": "A",
    }


def test_a_lone_surrogate_becomes_its_escape_everywhere() -> None:
    assert render_result("a\ud83d") == "a\\ud83d"
    text = render_result({"\udc00": ["\ud83d", "\\"]})
    assert text == '{"\\udc00":["\\ud83d","\\\\"]}'
    assert json.loads(text) == {"\udc00": ["\ud83d", "\\"]}


def test_a_dataframe_that_is_not_stored_yet_says_so() -> None:
    assert render_result(DataFrame(uri=None)).endswith('DataFrame without a URI: it is not stored yet>"')


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (object(), "<object, which cannot be shown as JSON>"),
        (Bare(), f"<{__name__}.Bare, which cannot be shown as JSON>"),
        (iter([1]), "<list_iterator, which cannot be shown as JSON>"),
        (threading.Lock(), "<unlocked _thread.lock object>"),
        (Speaking(), "<Speaking>"),
        (functools.partial(len), "functools.partial(<built-in function len>)"),
        (Hostile(), f"<{__name__}.Hostile, which raised RuntimeError when it was shown>"),
    ],
)
def test_what_has_no_json_is_a_clear_text_without_an_address(value: object, text: str) -> None:
    assert render_result(value) == json.dumps(text)
    assert render_result({"a": [value]}) == json.dumps({"a": [text]}, separators=(",", ":"))


def test_iterators_and_coroutines_are_not_consumed() -> None:
    seen = []

    def generate() -> Iterator[int]:
        seen.append(1)
        yield 1

    async def work() -> None:
        seen.append(2)

    generator, coroutine = generate(), work()

    assert render_result([generator, coroutine]) == (
        '["<generator, which cannot be shown as JSON>","<coroutine, which cannot be shown as JSON>"]'
    )
    assert seen == []
    assert list(generator) == [1]
    asyncio.run(coroutine)


def test_a_field_that_was_never_set_is_left_out() -> None:
    assert render_result(Unset(1)) == '{"a":1}'
    assert render_result(Person.model_construct(full_name="A")) == (
        '{"fullName":"A","tags":[],"photo":null,"friend":null,"initial":"A"}'
    )


def test_a_model_whose_serializer_fails_is_replaced_and_the_rest_is_shown() -> None:
    class Failing(BaseModel):
        x: int

        @field_serializer("x")
        def fail(self, x: int) -> int:
            raise ZeroDivisionError

    text = render_result({"a": Failing(x=1), "b": 2})

    assert re.fullmatch(r'\{"a":"<.*Failing, which raised \w+ when it was shown>","b":2\}', text)


def test_containers_that_hold_themselves_are_marked() -> None:
    listed: list[Any] = [1]
    listed.append(listed)
    mapped: dict[str, Any] = {}
    mapped["self"] = {"again": mapped}
    person = Person(fullName="A")
    person.friend = (person,)
    point = Point(1, [])
    point.y.append(point)  # type: ignore[attr-defined]

    assert render_result(listed) == '[1,"<circular reference>"]'
    assert render_result(mapped) == '{"self":{"again":"<circular reference>"}}'
    assert json.loads(render_result(person))["friend"] == ["<circular reference>"]
    assert render_result(point) == '{"x":1,"y":["<circular reference>"]}'


def test_a_value_that_appears_twice_is_shown_twice() -> None:
    shared = [1]

    assert render_result([shared, shared]) == "[[1],[1]]"


def test_depth_is_bounded() -> None:
    deep: Any = "bottom"
    for _ in range(100_000):
        deep = [deep]

    text = render_result(deep)

    assert text == "[" * 100 + '"<nested more than 100 levels deep>"' + "]" * 100
    shallow: Any = "bottom"
    for _ in range(100):
        shallow = {"a": shallow}
    assert "bottom" in render_result(shallow)


SCRIPT = """
import dataclasses, enum, uuid
from flyteplugins.agents.core._render import render_result

class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"
    GREEN = "green"

@dataclasses.dataclass(frozen=True)
class Point:
    tags: frozenset

class Bare: ...

print(render_result({
    "strings": set("abcdefghij"),
    "mixed": {1, "1", None, (1, "x"), b"x", 2.5, Color.RED},
    "enums": set(Color),
    "nested": {frozenset({"a", "b"}), frozenset({"c", "d", "e"})},
    "points": {Point(frozenset("xyz")), Point(frozenset("uvw"))},
    "keys": {"p", "q", "r"} | {str(n) for n in range(20)},
    "objects": [object(), Bare(), lambda: 1, print, iter(())],
}))
"""


def test_the_text_is_the_same_in_every_process(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    outputs = {
        subprocess.run(
            [sys.executable, script],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
        ).stdout
        for seed in ("1", "2")
    }

    assert len(outputs) == 1
    assert json.loads(outputs.pop())["strings"] == list("abcdefghij")


_HASHABLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters()),
    st.text(st.characters(categories=["Cs"]), max_size=2),
    st.binary(),
    st.decimals(allow_nan=False) | st.just(decimal.Decimal("NaN")),  # a signalling NaN has no hash
    st.dates(),
    st.datetimes(),
    st.timedeltas(),
    st.uuids(),
    st.fractions(),
    st.complex_numbers(),
    st.sampled_from([Color.RED, Color.PAIR, Size.SMALL, Level.LOW, Bare(), Speaking(), Hostile(), object(), dict, len]),
    st.builds(Point, st.integers()),
    st.integers(4300 * 3, 20_000).map(lambda bits: 1 << bits),
)


def _odd_containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(_holding_itself),
        st.lists(inner, max_size=4).map(tuple),
        st.lists(inner, max_size=3).map(collections.deque),
        st.dictionaries(_HASHABLE, inner, max_size=4),
        st.dictionaries(_HASHABLE, inner, max_size=4).map(collections.OrderedDict),
        st.sets(_HASHABLE, max_size=4),
        st.frozensets(_HASHABLE, max_size=4),
        st.builds(Point, st.integers(), inner),
        st.builds(Pair, inner, inner),
        inner.map(lambda value: Person(fullName="A", friend=value)),
        inner.map(_deep),
    )


def _holding_itself(items: list[Any]) -> list[Any]:
    items.append({"again": items})
    return items


def _deep(value: Any) -> Any:
    for _ in range(150):
        value = [value]
    return value


@given(st.recursive(_HASHABLE, _odd_containers, max_leaves=12))
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
def test_any_value_becomes_text_that_can_be_sent_and_parsed(value: Any) -> None:
    text = render_result(value)

    text.encode("utf-8")
    assert " at 0x" not in text
    assert render_result(value) == text
    if not isinstance(value, str):
        json.loads(text, parse_constant=pytest.fail)


@given(st.frozensets(_HASHABLE, max_size=8), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_a_set_reads_the_same_in_whatever_order_it_was_filled(items: frozenset[Any], random: Any) -> None:
    shuffled = list(items)
    random.shuffle(shuffled)

    assert render_result(set(shuffled)) == render_result(set(items))
