"""Who calls.

The plane has no log-in; it believes what it is told. Whoever calls it at `http://127.0.0.1:8090/as/alice` is alice. At
`http://127.0.0.1:8090` it is the account that the plane runs under. (The SDK sends no header of ours without TLS, and
2.12.1 fails when a config file has an `admin.proxyCommand`, so the name is in the address.)
"""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from typing import Final

from flyteidl2.common import identifier_pb2, identity_pb2
from starlette.types import Scope

_PREFIX: Final = "/as/"
_HEADER: Final = "x-plane-user"


def take_name(scope: Scope) -> Scope:
    """Move the caller's name from the path of a request to its headers, where `caller` finds it."""
    path: str = scope["path"]
    if not path.startswith(_PREFIX):
        return scope
    name, _, rest = path.removeprefix(_PREFIX).partition("/")
    headers = [*scope["headers"], (_HEADER.encode(), name.encode())]
    return {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode(), "headers": headers}


def caller(headers: Mapping[str, str]) -> identity_pb2.EnrichedIdentity:
    """The identity behind a call's headers."""
    subject = headers.get(_HEADER) or getpass.getuser()
    return identity_pb2.EnrichedIdentity(user=identity_pb2.User(id=identifier_pb2.UserIdentifier(subject=subject)))
