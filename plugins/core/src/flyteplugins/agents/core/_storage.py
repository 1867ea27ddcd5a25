"""Folders on whatever storage Flyte uses, with conditional creates.

The one place that builds an `obstore` store: `flyte.storage` reads and writes, but has no conditional create, no listing and
no delete, and our records and memories rest on all three.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import pathlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["Folder"]

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = ThreadPoolExecutor(4, thread_name_prefix="flyte-agents-storage")
"""Threads of storage's own: the loop's default ones may all be held by sync tools that wait for storage."""


async def _in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(_THREADS, functools.partial(function, *args, **kwargs))


@dataclass(frozen=True)
class Folder:
    """One folder: a directory of this machine, or a prefix in an object store.

    Attributes:
        uri: Where it is: a local path, or a URL such as `s3://bucket/prefix`.
    """

    uri: str

    @classmethod
    def at(cls, uri: str, *parts: str) -> Folder:
        """Name a folder, which need not exist.

        Args:
            uri: A local path, a `file://` URL or an object store's URL.
            parts: Folders below it.
        """
        if uri.startswith("file://"):
            uri = unquote(urlsplit(uri).path)
        if "://" not in uri:
            uri = str(pathlib.Path(uri).absolute())
        return cls("/".join([uri.rstrip("/"), *(part.strip("/") for part in parts)]))

    @property
    def is_local(self) -> bool:
        """Whether the folder is a directory of this machine."""
        return "://" not in self.uri

    def location(self, name: str) -> str:
        """The absolute path or URL of a file in the folder."""
        return f"{self.uri}/{name}"

    async def create(self, name: str, data: bytes) -> bool:
        """Write a file unless it exists; on local disk it is durable when this returns.

        Args:
            name: Its path below the folder.
            data: Its content.

        Returns:
            Whether this call created it. Of several writers at once, exactly one creates it.
        """
        from obstore.exceptions import AlreadyExistsError

        try:
            if self.is_local:
                await _in_thread(self._create_local, name, data)
            else:
                await self._store().put_async(name, data, mode="create")
        except AlreadyExistsError:
            return False
        return True

    def _create_local(self, name: str, data: bytes) -> None:
        self._store().put(name, data, mode="create")
        path = pathlib.Path(self.uri, name)
        for target in (path, path.parent):  # the content, then its directory entry
            descriptor = os.open(target, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    async def read(self, name: str) -> bytes:
        """Read a file.

        Raises:
            FileNotFoundError: There is none of that name.
        """
        if self.is_local:
            return await _in_thread(pathlib.Path(self.uri, name).read_bytes)
        result = await self._store().get_async(name)  # its NotFoundError is a FileNotFoundError
        return bytes(await result.bytes_async())

    async def names(self, below: str = "") -> list[str]:
        """List the files in the folder and in the folders below it.

        Args:
            below: Only those in this folder.

        Returns:
            Paths relative to this folder, sorted; empty where there is no such folder.
        """
        if self.is_local and not os.path.isdir(f"{self.uri}/{below}"):  # noqa: ASYNC240 - microseconds
            return []
        found: list[str] = []
        async for batch in self._store().list(prefix=below or None):
            found += [str(meta["path"]) for meta in batch]
        return sorted(found)

    async def delete(self, name: str) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            await self._store().delete_async(name)

    def _store(self) -> ObjectStore:
        return _open(self.uri)


@functools.lru_cache(maxsize=64)  # opening one costs a TLS context; obstore's stores are safe to share between threads
def _open(uri: str) -> ObjectStore:
    from obstore.store import LocalStore, from_url

    scheme, separator, _ = uri.partition("://")
    if not separator:
        return LocalStore(uri, mkdir=True)
    import flyte.storage

    options: dict[str, Any] = flyte.storage.get_configured_fsspec_kwargs(scheme)
    known = {
        name: options[name]
        for name in ("config", "client_options", "retry_config", "credential_provider")
        if name in options
    }
    return from_url(uri, **known)
