"""Where the memory of a key is."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata

from .._errors import MemoryUnavailableError
from .._scope import TaskScope, agents_home
from .._storage import Folder

__all__ = ["check_key", "memory_folder"]

_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
"""Keys that are a folder's name as they are, on every storage, also where upper and lower case are one."""

_NAMESPACE = "flyteplugins-v1"
"""Beside Flyte's own `v0`."""


def check_key(key: str) -> str:
    """Return a memory key, or say what is wrong with it.

    Args:
        key: One path segment, such as a user's or a ticket's id.

    Raises:
        ValueError: It is empty, `.` or `..`, or has a slash, a backslash or a control character in it.
        TypeError: It is no string.
    """
    if not isinstance(key, str):
        raise TypeError(f"memory_key is {key!r}, a {type(key).__qualname__}; give a string.")
    bad = "" if key.strip() else "it is empty"
    if key in (".", ".."):
        bad = "it is a path"
    elif "/" in key or "\\" in key:
        bad = "it has a slash in it"
    elif any(unicodedata.category(character).startswith("C") for character in key):
        bad = "it has a control character in it"
    if bad:
        raise ValueError(f"memory_key is {key!r}: {bad}. Give one path segment, such as a user's id.")
    return key


def _segment(name: str) -> str:
    """Turn a name into a folder's name, the same everywhere and different for different names."""
    if not name:
        return "_"
    if _PLAIN.fullmatch(name):
        return name
    readable = re.sub(r"[^a-z0-9._-]+", "-", name.lower())[:40].strip("-.") or "key"
    return f"{readable}={hashlib.sha256(name.encode()).hexdigest()[:24]}"


def memory_folder(key: str, scope: TaskScope | None) -> Folder:
    """Find the folder of a key, which need not exist.

    Args:
        key: The memory key.
        scope: The task that asks; its organization, project and domain are part of the path. Outside of a task it is the folder
            that a task on this laptop has.

    Raises:
        MemoryUnavailableError: Flyte does not say where data is kept.
        ValueError: The key is not one path segment.
    """
    check_key(key)
    place = ("", "", "") if scope is None else (scope.org, scope.project, scope.domain)
    below = [*(_segment(part) for part in place), _segment(key)]
    if scope is None or scope.mode == "local":
        home = agents_home()
        if os.path.exists(home) and not os.path.isdir(home):
            raise MemoryUnavailableError(
                f"There is no place for the memory {key!r}: {home} is not a folder. FLYTE_AGENTS_HOME says where memories live."
            )
        return Folder.at(home, "memory", *below)
    from flyte.ai.agents.memory import MemoryStore as FlyteMemoryStore

    marker = "key"
    suffix = "/".join(part for part in ("v0", scope.org, scope.project, scope.domain, marker) if part)
    try:
        path = FlyteMemoryStore.remote_path_for_key(
            key=marker, org=scope.org, project=scope.project, domain=scope.domain
        )
    except Exception as error:  # whatever storage and context it finds fault with
        raise MemoryUnavailableError(f"There is no place for the memory {key!r}: {error}") from error
    if not path.endswith(suffix):
        raise MemoryUnavailableError(
            f"There is no place for the memory {key!r}: Flyte keeps memories at {path}, not below v0/."
        )
    return Folder.at(path.removesuffix(suffix), _NAMESPACE, *below)
