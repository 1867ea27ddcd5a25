"""Names of any kind as paths below a folder, the same on every storage.

Letters in upper case are escaped, since some file systems take `A` and `a` for one, and so is everything but letters, digits,
`.`, `_` and `-`: `=` and two hexadecimal digits per byte of UTF-8. A segment that gets too long for a file system goes on in the
folder below it: a `=` at the end of a folder's name says so.
"""

from __future__ import annotations

import re

__all__ = ["check_path", "decode_name", "decode_path", "encode_name", "encode_path"]

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789._-")
_ESCAPE = re.compile(rb"=([0-9a-f]{2})")
_MAX_SEGMENT = 200  # bytes; file systems take 255
_MAX_PATH = 700  # bytes; S3 takes 1024 for the whole key


def check_path(path: str) -> str:
    """Return a path of the key-value space, or say what is wrong with it.

    Raises:
        ValueError: It is empty, absolute, too long, or has an empty, `.` or `..` segment.
        TypeError: It is no string.
    """
    if not isinstance(path, str):
        raise TypeError(f"The memory path is {path!r}, a {type(path).__qualname__}; give a string.")
    problem = ""
    if not path:
        problem = "it is empty"
    elif path.startswith("/"):
        problem = "it begins with a slash"
    elif any(segment in ("", ".", "..") for segment in path.split("/")):
        problem = "it has an empty segment, '.' or '..' in it"
    elif (size := len(encode_path(path))) > _MAX_PATH:
        problem = f"it takes {size} bytes as it is stored, and at most {_MAX_PATH} fit"
    if problem:
        raise ValueError(f"The memory path is {path!r}: {problem}. Give a relative path such as 'notes/today.md'.")
    return path


def encode_path(path: str) -> str:
    """Turn a path into the path that it has in storage."""
    return "/".join(_encode_segment(segment) for segment in path.split("/"))


def encode_name(name: str) -> str:
    """Turn a name into a folder's path, of which no other name's is a part."""
    return _encode_segment(name)


def decode_path(encoded: str) -> str | None:
    """Turn a path in storage back, or `None` where it is not one of ours."""
    try:
        path = "/".join(_decode_segment(segment) for segment in encoded.replace("=/", "").split("/"))
    except ValueError:
        return None
    return path if encode_path(path) == encoded else None


def decode_name(encoded: str) -> str | None:
    """Turn a name's folder back, or `None` where it is not one of ours."""
    try:
        name = _decode_segment(encoded.replace("=/", ""))
    except ValueError:
        return None
    return name if encode_name(name) == encoded else None


def _encode_segment(segment: str) -> str:
    raw = segment.encode("utf-8", "surrogatepass")
    text = "".join(chr(byte) if byte in _PLAIN else f"={byte:02x}" for byte in raw)
    if len(text) > _MAX_SEGMENT:
        text = text.replace(".", "=2e")  # a piece of it must not be "." or ".."
    pieces = [text[start : start + _MAX_SEGMENT] for start in range(0, len(text), _MAX_SEGMENT)]
    return "=/".join(pieces)


def _decode_segment(segment: str) -> str:
    raw = _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), segment.encode("ascii"))
    return raw.decode("utf-8", "surrogatepass")
