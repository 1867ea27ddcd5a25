"""How the SDK's values are kept in records, and come back as the SDK would have seen them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from flyteplugins.agents.core import JSON, UnserializableError
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_ai.usage import RunUsage

__all__ = ["dump_messages", "dump_usage", "load_messages", "load_usage"]

_USAGE = TypeAdapter(RunUsage)


def dump_messages(messages: Sequence[ModelMessage]) -> list[JSON]:
    """Turn messages into JSON values; binary contents are kept as base64 text.

    Args:
        messages: The SDK's messages.

    Raises:
        UnserializableError: A message has no JSON form.
    """
    try:
        return cast("list[JSON]", ModelMessagesTypeAdapter.dump_python(list(messages), mode="json"))
    except PydanticSerializationError as error:
        raise UnserializableError("messages", str(error)) from error


def load_messages(values: Sequence[JSON]) -> list[ModelMessage]:
    """Build messages from what `dump_messages` gave.

    Args:
        values: Messages, as JSON values.

    Raises:
        pydantic.ValidationError: They are none of the SDK's.
    """
    return ModelMessagesTypeAdapter.validate_python(list(values))


def dump_usage(usage: RunUsage) -> JSON:
    """Turn what was used into JSON values."""
    return cast(JSON, _USAGE.dump_python(usage, mode="json"))


def load_usage(values: Any) -> RunUsage:
    """Build what was used from what `dump_usage` gave."""
    return _USAGE.validate_python(values)
