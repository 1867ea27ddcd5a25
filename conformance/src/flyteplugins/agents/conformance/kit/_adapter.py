"""What an adapter tells the kit about itself."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flyteplugins.agents.conformance.models import ModelServer
from flyteplugins.agents.core import ErrorClass

from ._capabilities import Capability

__all__ = ["Adapter", "Options"]

Options = Mapping[str, Any]
"""Keywords of the adapter's `run_agent`."""


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """An adapter, as far as the kit cannot find out by itself.

    Attributes:
        title: What the SDK is called.
        module: The adapter's module, such as `flyteplugins.agents.openai`.
        sdk: Modules of the SDK. The worker of a tool must not have imported them.
        distribution: The distribution that the SDK comes in; its version names golden records.
        model: A model's name that makes the adapter ask the offline server.
        model_object: Makes keywords of `run_agent` that give a model as one of the SDK's own objects (a model, or the client
            that it is asked through), of the model's name without a provider's prefix.
        agent: Makes keywords of `run_agent` that hold a pre-built agent on `model`, of its instructions and its tools. A tool
            is a plain function, to be made a tool of the SDK's own, or what the adapter's `tool` made, which goes in as it is.
            Where the SDK's agents hold no tools, they are its `tools`.
        bare: Runs what `agent` made with the SDK alone, on a question, and returns the SDK's own result, of the type of
            `AgentResult.native`.
        messages: The conversation in such a result, as JSON values, without what the SDK makes up anew in each run.
        temperature: Makes keywords of `run_agent` that set the model's temperature; where the SDK has none, another setting that
            is part of a request, which is another one below 0.5 than from there on.
        raises: Every exception class that the SDK may raise in an agent run.
        error_classes: What the adapter says that each means.
        at_once: For benchmarks, which leave an adapter without it out: makes keywords as `agent` does, with a model in this
            process that answers with 2 KB at once, and a question with so many such turns behind it. Its arguments: a function to
            be called whenever the model is asked, which says whether the answer calls for another turn; the number of turns
            behind; the tools, of which a turn calls the first. Without any, a turn leads to the next by a hand-off, say.
        unlimited: Keywords of `run_agent` that lift the SDK's own limit of turns. `bare` gets them as well.
        streaming: Keywords of `run_agent` with which text arrives as it is made, besides `on_event`.
        tool_prefix: What the SDK puts before the names of tools, where it does.
        startup: How many seconds an agent may take until it asks its first question, where the SDK starts a process.
        fields: What the adapter's log calls a field of a request, where that is not the name in `FIELDS`.
        capabilities: In what form the adapter has each capability, in a few words for the docs.
        absent: Why the adapter lacks a capability, where it may.
        golden: The folder with golden records.
        dialogue: Scripts the model server with a dialogue of the adapter's own for golden records, and returns the question and
            keywords of `run_agent`; the kit's dialogue by default.
    """

    title: str
    module: str
    sdk: tuple[str, ...]
    distribution: str
    model: str
    model_object: Callable[[str], Options]
    agent: Callable[[str, Sequence[Any]], Options]
    bare: Callable[[Options, str], Awaitable[Any]]
    messages: Callable[[Any], Sequence[Any]]
    temperature: Callable[[float], Options]
    raises: Callable[[], Collection[type[BaseException]]]
    error_classes: Callable[[], Mapping[type[BaseException], ErrorClass]]
    capabilities: Mapping[Capability, str]
    at_once: Callable[[Callable[[], bool], int, Sequence[Any]], tuple[Options, Any]] | None = None
    unlimited: Options = field(default_factory=dict)
    streaming: Options = field(default_factory=dict)
    tool_prefix: str = ""
    startup: float = 0.0
    fields: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[Capability, str] = field(default_factory=dict)
    golden: Path | None = None
    dialogue: Callable[[ModelServer], tuple[str, Options]] | None = None

    @property
    def run_agent(self) -> Callable[..., Awaitable[Any]]:
        """The adapter's `run_agent`."""
        return self.export("run_agent")  # type: ignore[no-any-return]

    @property
    def run_agent_sync(self) -> Callable[..., Any]:
        """The adapter's `run_agent_sync`."""
        return self.export("run_agent_sync")  # type: ignore[no-any-return]

    @property
    def tool(self) -> Callable[..., Any]:
        """The adapter's `tool`."""
        return self.export("tool")  # type: ignore[no-any-return]

    @property
    def model_name(self) -> str:
        """The model's name, without the provider's prefix."""
        return self.model.rpartition(":")[2]

    def export(self, name: str) -> Any:
        """Something that the adapter exports."""
        found = getattr(importlib.import_module(self.module), name, None)
        assert found is not None, f"{self.module} has no {name}. Every adapter exports it; see surface.names."
        return found
