"""Every exception class of the SDK has a declared meaning; a new one fails here."""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import agents
import agents.exceptions as sdk
import httpx2
import openai
import pytest

from flyteplugins.agents.core import ErrorClass
from flyteplugins.agents.openai._errors import ERROR_CLASSES, NAMED_CLASSES, classify

PACKAGES = (agents, openai)


@functools.cache
def classes_in_source() -> tuple[tuple[str, str, list[str]], ...]:
    """Every class of the SDK's source: module, name, names of its bases. Importing all modules would need every extra."""
    return tuple(_classes())


def _classes() -> Iterator[tuple[str, str, list[str]]]:
    for package in PACKAGES:
        assert package.__file__ is not None
        root = Path(package.__file__).parent
        for file in sorted(root.rglob("*.py")):
            module = ".".join(file.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__")
            text = file.read_text()
            if "Error" not in text and "Exception" not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef):
                    bases = [ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases]
                    yield module, node.name, bases


def exception_classes() -> list[tuple[str, str]]:
    """Those that are exceptions, by module and name. A name with an underscore before it does not leave the SDK."""
    known = {
        name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
    } | {"CancelledError", "MCPError", "McpError"}
    classes = classes_in_source()
    found: set[tuple[str, str]] = set()
    while True:
        more = {(module, name) for module, name, bases in classes if known & set(bases)} - found
        if not more:
            return sorted((module, name) for module, name in found if not name.startswith("_"))
        found |= more
        known |= {name for _, name in more}


def declared() -> dict[str, ErrorClass]:
    """What is declared, by the class's name, or by module and name."""
    return {kind.__name__: meaning for kind, meaning in ERROR_CLASSES.items()} | NAMED_CLASSES


def test_every_exception_class_of_the_sdk_has_a_declared_meaning() -> None:
    found = exception_classes()
    assert len(found) > 90, "the enumeration found too little to be one"
    missing = [
        f"{module}.{name}"
        for module, name in found
        if f"{module}.{name}" not in declared()
        and not (name in declared() and module in ("agents.exceptions", "openai._exceptions"))
    ]
    assert not missing, f"Say in _errors.py what these mean for an attempt: {missing}"


def test_nothing_is_declared_that_the_sdk_does_not_have() -> None:
    found = {f"{module}.{name}" for module, name in exception_classes()}
    assert set(NAMED_CLASSES) - found == set()


def test_the_enumeration_notices_a_new_class(monkeypatch: pytest.MonkeyPatch) -> None:
    new = ("agents.exceptions", "BrandNewError", ["AgentsException"])
    real = classes_in_source()
    monkeypatch.setitem(exception_classes.__globals__, "classes_in_source", lambda: (*real, new))
    with pytest.raises(AssertionError, match=r"agents\.exceptions\.BrandNewError"):
        test_every_exception_class_of_the_sdk_has_a_declared_meaning()


def make(kind: type[BaseException]) -> BaseException:
    """An exception of a class, as far as `classify` looks at it."""
    error = kind.__new__(kind)
    if isinstance(error, openai.APIError):
        error.code = None
    return error


@pytest.mark.parametrize("kind", ERROR_CLASSES, ids=lambda kind: kind.__qualname__)
def test_classify_says_of_each_class_what_is_declared(kind: type[BaseException]) -> None:
    assert classify(make(kind)) is ERROR_CLASSES[kind]


@pytest.mark.parametrize(
    "name", [name for name in NAMED_CLASSES if name.startswith(("agents.sandbox.errors", "openai._response"))]
)
def test_classify_says_of_each_named_class_what_is_declared(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    kind = getattr(importlib.import_module(module), attribute)
    assert classify(make(kind)) is NAMED_CLASSES[name]


def api_error(kind: Any, **body: Any) -> Any:
    request = httpx2.Request("POST", "http://127.0.0.1/v1/responses")
    return kind("no", response=httpx2.Response(429, request=request), body=body)


def test_an_account_without_credit_is_not_waited_for() -> None:
    assert classify(api_error(openai.RateLimitError, code="insufficient_quota")) is ErrorClass.FAIL_NOW
    assert classify(api_error(openai.RateLimitError, code="rate_limit_exceeded")) is ErrorClass.RETRY_IN_PLACE


def test_what_a_tool_raised_counts_where_the_sdk_only_says_which_tool_it_was() -> None:
    def wrapped(cause: BaseException) -> BaseException:
        error = sdk.UserError("Error running tool x")
        error.__cause__ = cause
        return error

    assert classify(wrapped(api_error(openai.InternalServerError))) is ErrorClass.RETRY_IN_PLACE
    assert classify(wrapped(RuntimeError("odd"))) is ErrorClass.RETRY_ATTEMPT
    assert classify(sdk.UserError("mine")) is ErrorClass.FAIL_NOW


def test_what_is_not_the_sdks_is_tried_again() -> None:
    assert classify(RuntimeError("odd")) is ErrorClass.RETRY_ATTEMPT
    assert classify(ConnectionResetError()) is ErrorClass.RETRY_ATTEMPT
