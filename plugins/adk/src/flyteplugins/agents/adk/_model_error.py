"""The error that a response without an answer is."""

from __future__ import annotations

from typing import Any

__all__ = ["ModelResponseError"]


class ModelResponseError(Exception):
    """A model answered with an error in place of an answer: a filter stopped it, it ran out of tokens, or it said nothing.

    Attributes:
        code: The SDK's error code, such as `SAFETY`.
        message: What the model, or the SDK, says of it.
        responses: The SDK's responses, as JSON values.
    """

    def __init__(self, code: str, message: str, responses: list[Any]) -> None:
        super().__init__(code, message, responses)

    @property
    def code(self) -> str:
        return str(self.args[0])

    @property
    def message(self) -> str:
        return str(self.args[1])

    @property
    def responses(self) -> list[Any]:
        return list(self.args[2])

    def __str__(self) -> str:
        return f"The model gave no answer ({self.code}){': ' + self.message if self.message else '.'}"
