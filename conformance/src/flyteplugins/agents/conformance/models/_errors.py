"""Why a request is refused."""

from __future__ import annotations

from typing import Literal

RefusalKind = Literal["invalid", "unauthorized", "not_found", "conflict", "unscripted", "server"]


class Refusal(Exception):
    """A request is refused; each wire renders it in its provider's error format.

    Args:
        status: HTTP status.
        message: A sentence: what was found, where, what to do.
        kind: What sort of refusal it is.
        param: The request's field that it is about, if one.
        code: The provider's error code, where one is known.
    """

    def __init__(
        self, status: int, message: str, *, kind: RefusalKind = "invalid", param: str | None = None, code: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
