"""The type of the answer: the SDK takes pydantic models, and everything else that pydantic knows is put into one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mistralai.client.models import ResponseFormat
from mistralai.extra import response_format_from_pydantic_model
from pydantic import BaseModel, create_model

from ._entries import Entry, message_text

__all__ = ["OutputFormat", "final_text"]


@dataclass(frozen=True)
class OutputFormat:
    """How an answer of a type is asked for and read.

    Attributes:
        model: The model that the answer has to fit.
        wrapped: Whether the answer is the model's one field, and not the model itself.
    """

    model: type[BaseModel]
    wrapped: bool = False

    @classmethod
    def of(cls, output_type: Any) -> OutputFormat | None:
        """Make the format of a type; `None` for text.

        Args:
            output_type: A pydantic model, or any other type that pydantic can validate.
        """
        if output_type is None or output_type is str:
            return None
        if isinstance(output_type, type) and issubclass(output_type, BaseModel):
            return cls(output_type)
        name = getattr(output_type, "__name__", "Answer")
        return cls(
            create_model(f"{name}Answer" if name.isidentifier() else "Answer", answer=(output_type, ...)), wrapped=True
        )

    def response_format(self) -> ResponseFormat:
        """What the server is asked for."""
        return ResponseFormat.model_validate(response_format_from_pydantic_model(self.model))

    def read(self, text: str) -> Any:
        """Read an answer.

        Args:
            text: The last message.

        Raises:
            pydantic.ValidationError: It does not fit.
        """
        value = self.model.model_validate_json(text)
        return getattr(value, "answer") if self.wrapped else value  # noqa: B009 - a field of a model made at run time


def final_text(entries: list[Entry]) -> str | None:
    """The last message of a run; `None` if there is no message.

    Args:
        entries: What the run added to the conversation.
    """
    for entry in reversed(entries):
        if entry["type"] == "message.output":
            return message_text(entry)
    return None
