"""The type of the answer: Claude Code takes a JSON schema, and gives back a value that fits it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

__all__ = ["OutputFormat"]


@dataclass(frozen=True)
class OutputFormat:
    """How an answer of a type is asked for and read.

    Attributes:
        adapter: What checks it.
        schema: Its JSON schema: an object's.
        wrapped: Whether the answer is the one field of that object, and not the object itself.
    """

    adapter: TypeAdapter[Any]
    schema: dict[str, Any]
    wrapped: bool = False

    @classmethod
    def of(cls, output_type: Any) -> OutputFormat | None:
        """Make the format of a type; `None` for text.

        Args:
            output_type: A pydantic model, or any other type that pydantic can validate.
        """
        if output_type is None or output_type is str:
            return None
        adapter = TypeAdapter[Any](output_type)
        schema = adapter.json_schema()
        if schema.get("type") == "object":
            return cls(adapter, schema)
        definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
        wrapping = {"type": "object", "properties": {"answer": schema}, "required": ["answer"], **definitions}
        return cls(adapter, wrapping, wrapped=True)

    def option(self) -> dict[str, Any]:
        """What `ClaudeAgentOptions.output_format` takes."""
        return {"type": "json_schema", "schema": self.schema}

    def read(self, value: Any) -> Any:
        """Read an answer.

        Args:
            value: What Claude Code gives as structured output.

        Raises:
            pydantic.ValidationError: It does not fit.
        """
        if self.wrapped and isinstance(value, dict):
            value = value.get("answer")
        return self.adapter.validate_python(value)
