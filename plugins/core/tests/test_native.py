"""What `@tool` leaves in a module passes for its SDK's own tool object, and does not load the SDK before that is needed."""

from __future__ import annotations

import copy
import importlib
import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle  # type: ignore[import-untyped]
import flyte.extend
import pytest

from flyteplugins.agents.core import AgentTool, NativeTool, as_agent_tool, tool_list

if TYPE_CHECKING:
    from .conftest import Attempts

SDK = '''
"""A small agent SDK."""
import dataclasses


@dataclasses.dataclass
class FunctionTool:
    name: str
    description: str
    strict: bool = True

    def clone(self, **changes):
        return dataclasses.replace(self, **changes)


class ShellTool:
    pass
'''

ADAPTER = '''
"""An adapter of the small SDK, which loads it late."""
from flyteplugins.agents.core import NativeTool, as_agent_tool

BUILT = []


def tool(target, **options):
    return NativeTool(as_agent_tool(target, **options), sdk="smallsdk", factory="smalladapter:build", options={"strict": False})


def build(agent_tool, options):
    import smallsdk

    BUILT.append(agent_tool.name)
    return smallsdk.FunctionTool(agent_tool.name, agent_tool.description, **options)
'''

APP = '''
"""Somebody's program."""
import flyte
from smalladapter import tool

env = flyte.TaskEnvironment("small-app")


@tool
@env.task
async def get_weather(city: str) -> str:
    """Get the weather."""
    return f"sunny in {city}"


@tool
def plain(number: int) -> int:
    """Count."""
    return number + 1


@env.task
async def hidden(city: str) -> str:
    """Somebody's task."""
    return city


renamed = tool(get_weather, name="weather", description="Weather, renamed.")
renamed_task = tool(hidden, name="visible")
'''


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The program, imported; the SDK is not."""
    for name, source in (("smallsdk", SDK), ("smalladapter", ADAPTER), ("smallapp", APP)):
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("smallapp")
    for name in ("smallsdk", "smalladapter", "smallapp"):
        sys.modules.pop(name, None)


def built() -> list[str]:
    names: list[str] = sys.modules["smalladapter"].BUILT
    return names


def test_defining_and_using_tools_does_not_load_the_sdk(app: Any) -> None:
    assert isinstance(app.get_weather, NativeTool)
    assert not isinstance(app.get_weather, flyte.extend.TaskTemplate)  # Flyte looks at every name of a module so
    assert repr(app.get_weather) == "<tool get_weather of task small-app.get_weather>"
    assert repr(app.plain) == "<tool plain of a function>"
    assert app.plain(1) == 2
    assert app.get_weather.__wrapped_task__.name == "small-app.get_weather"
    assert app.plain.__wrapped_task__ is None
    assert isinstance(app.get_weather.__agent_tool__, AgentTool)
    assert as_agent_tool(app.get_weather) is app.get_weather.__agent_tool__
    assert callable(app.get_weather)
    assert "smallsdk" not in sys.modules
    assert built() == []


def test_to_the_sdk_it_is_the_sdks_own_tool(app: Any) -> None:
    smallsdk = importlib.import_module("smallsdk")
    assert isinstance(app.get_weather, smallsdk.FunctionTool)
    assert not isinstance(app.get_weather, smallsdk.ShellTool)
    assert app.get_weather.__class__ is smallsdk.FunctionTool
    assert app.get_weather.name == "get_weather"
    assert app.get_weather.description == "Get the weather."
    assert app.get_weather.strict is False
    app.get_weather.strict = True
    assert app.get_weather.strict is True
    assert built() == ["get_weather"]  # once
    with pytest.raises(AttributeError):
        _ = app.get_weather.nothing
    assert isinstance(app.get_weather, NativeTool)  # we still know our own


async def test_calling_it_calls_the_task(app: Any, attempt: Attempts) -> None:
    async def body() -> str:
        answer: str = await app.get_weather("Paris")
        return answer

    assert await body() == "sunny in Paris"  # outside of a task
    assert await attempt(body) == "sunny in Paris"
    assert "smallsdk" not in sys.modules


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda tool: copy.deepcopy([tool])[0]])
def test_a_copy_is_the_sdks_own_object(app: Any, duplicate: Any) -> None:
    smallsdk = importlib.import_module("smallsdk")
    twin = duplicate(app.get_weather)
    assert type(twin) is smallsdk.FunctionTool
    assert twin == smallsdk.FunctionTool("get_weather", "Get the weather.", strict=False)
    twin.name = "changed"
    assert app.get_weather.name == "get_weather"


def test_the_sdks_own_cloning_works(app: Any) -> None:
    smallsdk = importlib.import_module("smallsdk")
    clone = app.get_weather.clone(name="other")
    assert (type(clone), clone.name, app.get_weather.name) == (smallsdk.FunctionTool, "other", "get_weather")


def test_the_class_of_a_tool_cannot_be_changed(app: Any) -> None:
    with pytest.raises(TypeError, match="cannot be changed"):
        app.get_weather.__class__ = object


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps], ids=["pickle", "cloudpickle"])
@pytest.mark.parametrize("name", ["get_weather", "plain"])
def test_pickling_a_tool_is_by_reference_and_does_not_load_the_sdk(app: Any, dumps: Any, name: str) -> None:
    tool = getattr(app, name)
    assert pickle.loads(dumps(tool)) is tool
    assert pickle.loads(dumps({"tools": [tool]}))["tools"][0] is tool
    assert "smallsdk" not in sys.modules


@pytest.mark.parametrize(
    ("name", "dumps"),
    [
        pytest.param("renamed", pickle.dumps, id="of a tool, pickle"),
        pytest.param("renamed", cloudpickle.dumps, id="of a tool, cloudpickle"),
        pytest.param(
            "renamed_task",
            pickle.dumps,
            id="of a task, pickle",
        ),
        pytest.param("renamed_task", cloudpickle.dumps, id="of a task, cloudpickle"),
    ],
)
def test_a_renamed_tool_survives_pickling(app: Any, name: str, dumps: Any) -> None:
    tool = getattr(app, name)
    twin = pickle.loads(dumps(tool))
    assert isinstance(twin, NativeTool)
    assert twin.__agent_tool__.name == tool.__agent_tool__.name
    assert twin.__agent_tool__.description == tool.__agent_tool__.description
    assert twin.__wrapped_task__.name == tool.__wrapped_task__.name
    assert "smallsdk" not in sys.modules
    assert twin.strict is False


def test_a_pickled_tool_is_found_in_another_process_without_the_sdk(app: Any, tmp_path: Path) -> None:
    (tmp_path / "tool.pickle").write_bytes(pickle.dumps(app.get_weather))
    program = """
        import pickle, sys
        tool = pickle.load(open("tool.pickle", "rb"))
        assert "smallsdk" not in sys.modules
        print(tool.__wrapped_task__.name, tool.name)
    """
    outcome = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.stdout.split() == ["small-app.get_weather", "get_weather"], outcome.stderr


def test_renaming_makes_another_tool(app: Any) -> None:
    assert app.renamed.__agent_tool__.name == "weather"
    assert app.renamed.__agent_tool__.description == "Weather, renamed."
    assert app.get_weather.__agent_tool__.name == "get_weather"
    assert app.renamed.__wrapped_task__ is app.get_weather.__wrapped_task__


def test_an_agent_tool_is_immutable_under_copies(app: Any) -> None:
    agent_tool = app.get_weather.__agent_tool__
    assert copy.copy(agent_tool) is agent_tool
    assert copy.deepcopy([agent_tool])[0] is agent_tool


@pytest.mark.parametrize("tools", ["search", {"search": 1}, print, None, 5])
def test_tools_that_are_no_list_are_refused(tools: Any) -> None:
    with pytest.raises(TypeError, match=r"give a list of tools, such as tools=\[get_weather\]"):
        tool_list(tools)


def test_a_lone_tool_is_no_list_and_any_iterable_of_tools_is_one() -> None:
    def say(text: str) -> str:
        return text

    lone = NativeTool.of(say, sdk="json", factory=f"{__name__}:none", name="say", description="Say it.")
    with pytest.raises(TypeError, match="tools is NativeTool; give a list of tools"):
        tool_list(lone)
    assert [item is lone for item in tool_list(iter([lone]))] == [True]
