"""The public names of core, which are loaded when they are asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from flyteplugins.agents import core


@pytest.mark.parametrize("name", core.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(core, name) is not None
    assert name in dir(core)


def test_all_and_the_table_of_modules_name_the_same() -> None:
    assert sorted(core.__all__) == sorted(core._WHERE)


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        core.nothing  # noqa: B018


def test_importing_an_agent_run_loads_no_templates_and_no_builder_of_images() -> None:
    heavy = ("flyte.extend", "flyte._internal.imagebuild", "jinja2")
    code = f"import sys; from flyteplugins.agents.core import AgentRun; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
